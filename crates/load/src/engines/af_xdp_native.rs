//! As [`super::af_xdp`], with the XDP program in the device's driver, and zero-copy where the driver has it.

use std::io;

use wirecost_linux::xdp::Mode;

use super::{Engine, Limits, Run, Setup, Shared, af_xdp};
use crate::frames;

pub(super) struct AfXdpNative;

impl Engine for AfXdpNative {
    fn name(&self) -> &'static str {
        "af_xdp_native"
    }

    fn help(&self) -> &'static str {
        "as af_xdp, but the XDP program runs in the driver, which may send and receive without a copy"
    }

    fn limits(&self) -> Option<&'static Limits> {
        Some(&frames::LIMITS)
    }

    fn share(&self, workers: u32) -> io::Result<Shared> {
        af_xdp::share(Mode::Native, workers)
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        af_xdp::prepare(setup, Mode::Native)
    }
}
