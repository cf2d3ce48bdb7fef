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
    let btf = Btf::from_path("/sys/kernel/btf/vmlinux").ok();
    let has = btf.map(|btf| move |name: &str| btf.type_by_name::<Struct<'_>>(name).is_some());
    let release = || rustix::system::uname().release().to_string_lossy().into_owned();
    obstacle_of(has, release, || missing(TRACING))
}

/// The same of a kernel that has these structures; `None` where it does not say which.
fn obstacle_of(
    has: Option<impl Fn(&str) -> bool>,
    release: impl Fn() -> String,
    missing: impl Fn() -> Vec<Capability>,
) -> Option<Obstacle> {
    let Some(has) = has else { return Some(Obstacle::NoBtf) };
    // What is asked for is there, whatever the version: distributions add it to earlier kernels.
    // https://elixir.bootlin.com/linux/v6.4/source/kernel/bpf/bpf_struct_ops.c
    if !has("bpf_struct_ops_tcp_congestion_ops") {
        return Some(Obstacle::NoStructOps(release()));
    }
    if !has("bpf_struct_ops_link") {
        return Some(Obstacle::NoLinks(release()));
    }
    let missing = missing();
    (!missing.is_empty()).then_some(Obstacle::NotPermitted(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a kernel with these structures, to a process that lacks these capabilities.
    fn message(structures: Option<&[&str]>, lacks: &[Capability]) -> Option<String> {
        let has = structures.map(|names| move |name: &str| names.contains(&name));
        let found = obstacle_of(has, || "6.1.0-x".to_owned(), || lacks.to_vec());
        found.map(|obstacle| obstacle.to_string())
    }

    #[test]
    fn each_obstacle_says_what_is_missing() {
        const OPERATIONS: &str = "bpf_struct_ops_tcp_congestion_ops";
        const LINK: &str = "bpf_struct_ops_link";
        let said = |structures, lacks: &[Capability]| message(structures, lacks).unwrap();
        assert_eq!(
            said(None, TRACING),
            "the kernel has no type information (/sys/kernel/btf/vmlinux: CONFIG_DEBUG_INFO_BTF)"
        );
        assert_eq!(
            said(Some(&[LINK]), TRACING),
            "this kernel (6.1.0-x) has no congestion control in BPF programs (CONFIG_BPF_JIT, CONFIG_BPF_SYSCALL)"
        );
        assert_eq!(
            said(Some(&[OPERATIONS]), TRACING),
            "it needs Linux 6.4 or later (this is 6.1.0-x): before that a program stays in the kernel when the \
             process that loaded it is killed"
        );
        let both: &[&str] = &[OPERATIONS, LINK];
        assert_eq!(said(Some(both), TRACING), "it needs CAP_BPF and CAP_PERFMON: run as root");
        assert_eq!(said(Some(both), &[Capability::Perfmon]), "it needs CAP_PERFMON: run as root");
        assert_eq!(message(Some(both), &[]), None);
    }
}
