//! As [`super::af_xdp`], with the XDP program in the device's driver, and zero-copy where the driver has it.

use std::io;

use wirecost_linux::xdp::Mode;
use wirecost_model::plan::Plan;
use wirecost_model::program::Program;

use super::{Engine, Run, Setup, af_xdp};
use crate::frames;

pub(super) struct AfXdpNative;

impl Engine for AfXdpNative {
    fn name(&self) -> &'static str {
        "af_xdp_native"
    }

    fn help(&self) -> &'static str {
        "as af_xdp, but the XDP program runs in the driver, which may send and receive without a copy"
    }

    fn is_general(&self) -> bool {
        false
    }

    fn most_workers(&self) -> Option<u32> {
        Some(frames::MOST_WORKERS)
    }

    fn refuses(&self, program: &Program) -> Option<String> {
        frames::refuses(program)
    }

    fn lacks(&self, plan: &Plan, longest: u64) -> Option<String> {
        frames::lacks(plan, longest)
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        af_xdp::prepare(setup, Mode::Native)
    }
}
