//! The root queueing discipline of a device.

use wirecost_linux::qdisc::{Qdisc, Qdiscs};

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct RootQdisc;

pub(super) const LIST: &[&dyn Tunable] = &[&RootQdisc];

/// Saved, with its kind, in place of a root that the kernel attached by itself.
const KERNELS: &str = "kernel";
/// A kind that every kernel has.
const ANY: &str = "pfifo";

/// Kinds whose parameters, as the kernel tells them, make the same again. They have no classes.
const REPLAYABLE: &[&str] = &[
    "bfifo",
    "codel",
    "fq",
    "fq_codel",
    "fq_pie",
    "mq",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pie",
    "tbf",
];

impl Tunable for RootQdisc {
    fn name(&self) -> &'static str {
        "qdisc"
    }

    fn about(&self) -> &'static str {
        "Root queueing discipline of the device, with its default parameters."
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "the kind of a queueing discipline, such as fq or fq_codel".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::word(value)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let link = target.link()?;
        link.qdisc.ok_or_else(|| {
            Refusal::Unsupported(format!("`{}` has no queueing discipline", link.name))
        })
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let (index, qdiscs) = qdiscs(target)?;
        qdiscs.replace_root(index, value, 0, &[]).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Refusal::Unsupported(format!("this kernel has no queueing discipline `{value}`"))
            }
            _ => Refusal::failed("replace the queueing discipline")(source),
        })
    }

    fn save(&self, target: &Target) -> Result<String, Refusal> {
        let (index, qdiscs) = qdiscs(target)?;
        let all =
            qdiscs.of_device(index).map_err(Refusal::failed("read the queueing disciplines"))?;
        if let Some(kind) = unrestorable(&all) {
            return Err(Refusal::Unsupported(format!(
                "`{}` has a queueing discipline `{kind}` that could not be restored",
                target.device()?
            )));
        }
        Ok(match all.iter().find(|qdisc| qdisc.is_root() && qdisc.handle != 0) {
            None => format!("{KERNELS} {}", self.read(target)?),
            Some(root) => {
                let options: String =
                    root.options.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{} {:x} {options}", root.kind, root.handle)
            }
        })
    }

    fn put_back(&self, target: &Target, saved: &str) -> Result<(), Refusal> {
        let (index, qdiscs) = qdiscs(target)?;
        let all =
            qdiscs.of_device(index).map_err(Refusal::failed("read the queueing disciplines"))?;
        let is_kernels = !all.iter().any(|qdisc| qdisc.is_root() && qdisc.handle != 0);
        if let Some(kind) = saved.strip_prefix(KERNELS) {
            if is_kernels {
                if self.read(target)? == kind.trim_start() {
                    return Ok(());
                }
                // It was attached when the default was another one. One that was set can be removed.
                qdiscs
                    .replace_root(index, ANY, 0, &[])
                    .map_err(Refusal::failed("replace the queueing discipline"))?;
            }
            return qdiscs
                .delete_root(index)
                .map_err(Refusal::failed("remove the queueing discipline"));
        }
        let (kind, handle, options) = parse(saved)
            .ok_or_else(|| Refusal::Unsupported(format!("`{saved}` is no queueing discipline")))?;
        qdiscs
            .replace_root(index, kind, handle, &options)
            .map_err(Refusal::failed("restore the queueing discipline"))
    }

    /// The kernel attaches the default where one is removed, and below `mq`.
    fn restored_after(&self) -> &'static [&'static str] {
        &["default_qdisc"]
    }
}

fn qdiscs(target: &Target) -> Result<(u32, Qdiscs), Refusal> {
    let index = target.link()?.index;
    let qdiscs = target.run(Qdiscs::open)?.map_err(Refusal::failed("open a netlink socket"))?;
    Ok((index, qdiscs))
}

/// A kind that could not be restored: one with parameters or classes of its own that are not replayed,
/// or one that somebody put below the root.
fn unrestorable(qdiscs: &[Qdisc]) -> Option<&str> {
    let set = |qdisc: &&Qdisc| qdisc.handle != 0;
    let replayable = |qdisc: &Qdisc| qdisc.is_root() && REPLAYABLE.contains(&qdisc.kind.as_str());
    qdiscs.iter().filter(set).find(|qdisc| !replayable(qdisc)).map(|qdisc| qdisc.kind.as_str())
}

fn parse(saved: &str) -> Option<(&str, u32, Vec<u8>)> {
    let mut parts = saved.split(' ');
    let (kind, handle, options) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let options: Option<Vec<u8>> = options.as_bytes().chunks(2).map(byte).collect();
    Some((kind, u32::from_str_radix(handle, 16).ok()?, options?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qdisc(kind: &str, handle: u32, parent: u32) -> Qdisc {
        Qdisc { kind: kind.to_owned(), handle, parent, options: vec![] }
    }

    #[test]
    fn only_what_can_be_restored_is_replaced() {
        const ROOT: u32 = u32::MAX;
        let kernels = [qdisc("mq", 0, ROOT), qdisc("fq_codel", 0, 1), qdisc("fq_codel", 0, 2)];
        assert_eq!(unrestorable(&kernels), None);
        assert_eq!(unrestorable(&[qdisc("fq", 0x8001_0000, ROOT)]), None);
        assert_eq!(unrestorable(&[qdisc("htb", 0x1_0000, ROOT)]), Some("htb"));
        let below = [qdisc("mq", 0x1_0000, ROOT), qdisc("fq", 0x8001_0000, 0x1_0001)];
        assert_eq!(unrestorable(&below), Some("fq"));
    }

    #[test]
    fn parameters_survive_being_saved() {
        let expected = ("fq", 0x8001_0000, vec![0, 0x1f, 0xff]);
        assert_eq!(parse("fq 80010000 001fff"), Some(expected));
        assert_eq!(parse("mq 1 "), Some(("mq", 1, vec![])));
        assert_eq!(parse("mq"), None);
    }
}
