//! Whether the PMU counts cycles for this process. That the kernel lists a PMU says little: in a
//! virtual machine it may be there without a counter.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use wirecost_model::environment::CycleCounter;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/perf_event.h>.
const PERF_TYPE_HARDWARE: u64 = 0;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
/// The first version of `struct perf_event_attr`: 8 words of 64 bits.
const PERF_ATTR_SIZE_VER0: u64 = 64;
/// Bits of its flags. Only cycles of this thread in user mode are asked for, which takes least.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
/// With the count comes the time in which it was counted.
const FORMAT_TOTAL_TIME_RUNNING: u64 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `None` where the kernel's answer says neither.
pub(super) fn count() -> Option<CycleCounter> {
    let counter = match open() {
        Ok(counter) => counter,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
                    Some(CycleCounter::Absent)
                }
                Some(libc::EACCES | libc::EPERM) => Some(CycleCounter::Refused),
                _ => None,
            };
        }
    };
    // Something to count.
    std::hint::black_box((0..10_000u64).fold(0, |sum, number| sum ^ std::hint::black_box(number)));
    let mut counted = [[0; 8]; 2];
    File::from(counter).read_exact(counted.as_flattened_mut()).ok()?;
    match counted.map(u64::from_ne_bytes) {
        // Others have all counters, and this one had no turn yet.
        [_, 0] => None,
        [0, _] => Some(CycleCounter::Absent),
        _ => Some(CycleCounter::Counts),
    }
}

fn open() -> io::Result<OwnedFd> {
    let mut attributes = [0u64; PERF_ATTR_SIZE_VER0 as usize / 8];
    // Type and size, 32 bits each; a big-endian kernel refuses this, and the answer is `None`.
    attributes[0] = PERF_TYPE_HARDWARE | PERF_ATTR_SIZE_VER0 << 32;
    attributes[1] = PERF_COUNT_HW_CPU_CYCLES;
    attributes[4] = FORMAT_TOTAL_TIME_RUNNING;
    attributes[5] = EXCLUDE_KERNEL | EXCLUDE_HV;
    // SAFETY: the structure is valid for the call and as long as it says; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            0 as libc::pid_t,
            -1 as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let descriptor = RawFd::try_from(result).ok().filter(|&descriptor| descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just given this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_can_be_opened_counts_or_waits_for_its_turn() {
        match open() {
            Ok(_) => assert_ne!(count(), Some(CycleCounter::Refused)),
            Err(_) => assert_ne!(count(), Some(CycleCounter::Counts)),
        }
    }
}
