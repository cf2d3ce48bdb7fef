//! Names that the kernel has.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::rand::{GetRandomFlags, getrandom};
use wirecost_model::congestion::{self, RANDOM};

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Differs for each call of a process, and for each process: its number has at most 22 bits
/// (<https://elixir.bootlin.com/linux/v6.12/source/include/linux/threads.h>, `PID_MAX_LIMIT`), a name has 35.
fn without_randomness(pid: u32, call: u32) -> [u8; RANDOM] {
    let number = (u64::from(pid) << 10) | u64::from(call % 1024);
    std::array::from_fn(|digit| ((number >> (5 * digit)) & 31) as u8)
}

/// A name in the kernel that no other process has.
pub(crate) fn unique(name: &str) -> String {
    let mut random = [0u8; RANDOM];
    if getrandom(&mut random, GetRandomFlags::empty()) != Ok(RANDOM) {
        // Only during early boot. A name that is taken is refused, and another one is tried.
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        random = without_randomness(pid, CALLS.fetch_add(1, Ordering::Relaxed));
    }
    congestion::kernel_name(name, random)
}

/// Names that the kernel lists as available to this network namespace, without those that go with a process.
///
/// # Errors
/// Those of reading /proc.
pub fn available() -> std::io::Result<Vec<String>> {
    Ok(registered()?.into_iter().filter(|name| !congestion::is_temporary(name)).collect())
}

/// All names that the kernel lists.
///
/// # Errors
/// Those of reading /proc.
pub fn registered() -> std::io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_randomness_differ_for_each_call_and_process() {
        let names = [(1, 0), (1, 1), (1, 31), (1, 32), (1, 1023), (2, 0), (33, 0), (1 << 21, 0)]
            .map(|(pid, call)| congestion::kernel_name("x", without_randomness(pid, call)));
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name), "{names:?}");
        }
    }
}
