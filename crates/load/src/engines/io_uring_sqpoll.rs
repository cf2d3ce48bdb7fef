//! As `io_uring`, but a thread of the kernel takes the operations from the ring and executes them.

use std::io;

use wirecost_linux::uring::Poller;
use wirecost_model::program::Program;
use wirecost_model::warning::Warning;

use super::epoll::Epoll;
use super::io_uring::{calls_beside_the_ring, prepare};
use super::{Engine, Run, Setup};

/// Milliseconds without an operation after which the kernel's thread sleeps: with a hundred operations per
/// second it never does.
const IDLE: u32 = 10;

pub(super) struct IoUringSqpoll;

impl Engine for IoUringSqpoll {
    fn name(&self) -> &'static str {
        "io_uring_sqpoll"
    }

    fn help(&self) -> &'static str {
        "as io_uring, but a kernel thread polls for operations (SQPOLL); a worker has two CPUs"
    }

    fn cpus_per_worker(&self) -> usize {
        2
    }

    fn fallback(&self) -> Option<&'static dyn Engine> {
        Some(&Epoll)
    }

    fn warnings(&self, program: &Program) -> Vec<Warning> {
        calls_beside_the_ring(self.name(), program)
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        let poller = Poller { cpu: setup.second_cpu, idle: IDLE };
        prepare(self.name(), setup, Some(poller))
    }
}
