//! Whether this kernel can run congestion control as BPF programs, and this process load them.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use wirecost_linux::privilege::{Capability, TRACING, missing};

/// Why no program can be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("the kernel has no type information (/sys/kernel/btf/vmlinux: CONFIG_DEBUG_INFO_BTF)")]
    NoBtf,
    #[error(
        "this kernel ({0}) has no congestion control in BPF programs (CONFIG_BPF_JIT, CONFIG_BPF_SYSCALL)"
    )]
    NoStructOps(String),
    #[error(
        "it needs Linux 6.4 or later (this is {0}): before that a program stays in the kernel when the \
         process that loaded it is killed"
    )]
    NoLinks(String),
    #[error("it needs {}: run as root", names(.0))]
    NotPermitted(Vec<Capability>),
}

fn names(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(|capability| capability.name()).collect();
    names.join(" and ")
}

/// Why this process cannot load a program; `None` where it can.
#[must_use]
pub fn obstacle() -> Option<Obstacle> {
    let Ok(btf) = Btf::from_path("/sys/kernel/btf/vmlinux") else { return Some(Obstacle::NoBtf) };
    let has = |name: &str| btf.type_by_name::<Struct<'_>>(name).is_some();
    let release = || rustix::system::uname().release().to_string_lossy().into_owned();
    // What is asked for is there, whatever the version: distributions add it to earlier kernels.
    // https://elixir.bootlin.com/linux/v6.4/source/kernel/bpf/bpf_struct_ops.c
    if !has("bpf_struct_ops_tcp_congestion_ops") {
        return Some(Obstacle::NoStructOps(release()));
    }
    if !has("bpf_struct_ops_link") {
        return Some(Obstacle::NoLinks(release()));
    }
    let missing = missing(TRACING);
    (!missing.is_empty()).then_some(Obstacle::NotPermitted(missing))
}
