//! A load whose shares are known by the clock of the thread.

use std::fs::File;
use std::io::Read;

use wirecost_linux::clock;
use wirecost_model::clock::Nanos;

/// Uses the CPU for so long, by turns in user space and in the kernel, and tells how long in each.
/// The kernel's part is in `vfs_read`, of bytes that nothing has to be waited for. Turns are of
/// random lengths, so that they keep step with no sampler.
pub fn use_both(milliseconds: u64) -> (Nanos, Nanos) {
    let mut zero = File::open("/dev/zero").expect("a device");
    let mut buffer = vec![1u8; 1 << 18];
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut up_to = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let (mut user, mut kernel) = (0, 0);
    let mut now = clock::thread_cpu_time();
    let end = now + milliseconds * 1_000_000;
    while now < end {
        let until = now + up_to(4_000_000);
        while clock_is_before(until) {}
        let between = clock::thread_cpu_time();
        let until = between + up_to(2_000_000);
        while clock::thread_cpu_time() < until {
            for _ in 0..60 {
                zero.read_exact(&mut buffer).expect("zeros");
            }
        }
        user += between - now;
        now = clock::thread_cpu_time();
        kernel += now - between;
    }
    (user, kernel)
}

/// Looks at the clock, which is a system call, only after a long time in user space.
fn clock_is_before(until: Nanos) -> bool {
    let mut sum = 0u64;
    for number in 0..1_000_000u64 {
        sum = std::hint::black_box(sum ^ number);
    }
    clock::thread_cpu_time() < until
}
