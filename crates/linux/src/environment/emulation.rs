//! Whether CPUs are emulated by software.

/// Whether QEMU's TCG translates the instructions of this machine's CPUs; `None` on other architectures than
/// x86, whose CPUs do not say.
pub(super) fn read() -> Option<bool> {
    signature().map(|signature| signature == TCG)
}

/// How TCG signs in the leaf of hypervisors (`cpu_x86_cpuid` in
/// [cpu.c](https://gitlab.com/qemu-project/qemu/-/blob/v7.2.0/target/i386/cpu.c)). That of KVM is
/// `KVMKVMKVM`.
const TCG: [u8; 12] = *b"TCGTCGTCGTCG";

/// That of the hypervisor; zeros on a machine without one.
#[cfg(target_arch = "x86_64")]
fn signature() -> Option<[u8; 12]> {
    use std::arch::x86_64::__cpuid;

    /// Bit of ECX of leaf 1 that a hypervisor sets.
    const HYPERVISOR: u32 = 1 << 31;
    const LEAF: u32 = 0x4000_0000;

    let mut signature = [0; 12];
    if __cpuid(1).ecx & HYPERVISOR != 0 {
        let leaf = __cpuid(LEAF);
        let registers = [leaf.ebx, leaf.ecx, leaf.edx];
        for (bytes, register) in signature.chunks_exact_mut(4).zip(registers) {
            bytes.copy_from_slice(&register.to_le_bytes());
        }
    }
    Some(signature)
}

#[cfg(not(target_arch = "x86_64"))]
fn signature() -> Option<[u8; 12]> {
    None
}
