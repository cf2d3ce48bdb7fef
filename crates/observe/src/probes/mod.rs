//! All probes. A new one is a folder and two lines here.

mod cpu;
mod drops;
mod functions;
mod host;
mod interrupts;
mod locks;
mod memory;
mod nic;
mod pmu;
mod scheduling;
mod segments;
mod syscalls;
mod tcp;
mod trace;

use crate::probe::{Description, Extent, Probe, Sets, parse_entry};
pub use functions::layers;

/// Every probe, in the order of their sections.
pub(crate) const ALL: &[&dyn Probe] = &[
    &cpu::Cpu,
    &pmu::Pmu,
    &interrupts::Interrupts,
    &segments::Segments,
    &tcp::Tcp,
    &drops::Drops,
    &nic::Nic,
    &host::Host,
    &scheduling::Scheduling,
    &locks::Locks,
    &memory::Memory,
    &functions::Functions,
    &syscalls::Syscalls,
    &trace::Trace,
];

/// Names of all probes.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|probe| probe.name())
}

/// Every probe and what there is to know of it.
pub fn describe() -> impl Iterator<Item = (&'static str, Description)> {
    ALL.iter().map(|probe| (probe.name(), probe.about()))
}

/// Whether an entry names a probe, and as much of it as can be asked for.
fn known(entry: &str) -> bool {
    let (name, extent) = parse_entry(entry);
    let has = |probe: &&dyn Probe| {
        probe.name() == name && (extent == Extent::Whole || probe.extents().contains(&extent))
    };
    ALL.iter().any(has)
}

/// What `--observe` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// As it was asked for.
    pub text: String,
    /// Probes of each pass; the first gives the headline.
    pub passes: Vec<Vec<String>>,
}

impl Set {
    /// `standard` (`cpu`, `functions`, `nic`, `host`, and of `interrupts`, `tcp`, `drops` and `memory` what is `:basic`), `none`,
    /// `deep` (`standard`, then a pass for each probe that is not whole in it), `full` (all but
    /// `syscalls` in one pass, hooks of hot paths in slices of the window), or names of probes with
    /// commas between them, each whole, or with `:sliced` behind it in slices, or with `:basic`
    /// what it tells for little. Probes on request are in no set, and have a pass of
    /// their own.
    ///
    /// # Errors
    /// A name that is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let all_that = |wanted: fn(Sets) -> Option<Extent>| -> Vec<String> {
            let of = |probe: &&dyn Probe| Some(wanted(probe.sets())?.of(probe.name()));
            ALL.iter().filter_map(of).collect()
        };
        let standard = all_that(|sets| sets.standard);
        let passes = match text {
            "none" => vec![Vec::new()],
            "standard" => vec![standard],
            "full" => vec![all_that(|sets| sets.full)],
            "deep" => {
                let partial = |probe: &&&dyn Probe| {
                    probe.sets().standard != Some(Extent::Whole) && !probe.on_request()
                };
                let further = ALL.iter().filter(partial).map(|probe| vec![probe.name().to_owned()]);
                std::iter::once(standard).chain(further).collect()
            }
            list => {
                let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
                if let Some(unknown) = wanted.iter().find(|entry| !known(entry)) {
                    let all: Vec<&str> = names().collect();
                    return Err(format!(
                        "`{unknown}` is not a probe: the probes are {}, and the sets standard, deep, full \
                         and none",
                        all.join(", ")
                    ));
                }
                // Of one that is asked for in several ways the most is wanted.
                let most = |name: &'static str| {
                    let of_it = wanted.iter().filter(|entry| parse_entry(entry).0 == name);
                    of_it.max_by_key(|entry| parse_entry(entry).1).map(|&entry| entry.to_owned())
                };
                let is_apart = |entry: &String| {
                    let of = |probe: &&&dyn Probe| probe.name() == parse_entry(entry).0;
                    ALL.iter().find(of).is_some_and(|probe| probe.on_request())
                };
                let all = names().filter_map(most);
                let (apart, together): (Vec<String>, Vec<String>) = all.partition(is_apart);
                let together = Some(together).filter(|probes| !probes.is_empty());
                together.into_iter().chain(apart.into_iter().map(|probe| vec![probe])).collect()
            }
        };
        Ok(Self { text: text.to_owned(), passes })
    }
}

/// A histogram up to its last slot that has something.
fn without_trailing_zeros(slots: &[u64]) -> Vec<u64> {
    let end = slots.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    slots[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_folder_is_in_the_list_once() {
        let folders: BTreeSet<String> = std::fs::read_dir("src/probes")
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        let listed: BTreeSet<String> = names().map(str::to_owned).collect();
        assert_eq!(listed, folders);
        assert_eq!(listed.len(), ALL.len());
    }

    #[test]
    fn sets_are_known_by_name() {
        assert_eq!(Set::parse("none").unwrap().passes, [Vec::<String>::new()]);
        assert_eq!(Set::parse("cpu").unwrap().passes, [["cpu"]]);
        let full = Set::parse("full").unwrap();
        assert_eq!(full.passes.len(), 1);
        let shared = ALL.iter().filter(|probe| probe.sets().full.is_some()).count();
        assert_eq!(full.passes[0].len(), shared);
        assert!(full.passes[0].contains(&"segments:sliced".to_owned()), "{full:?}");
        assert!(full.passes[0].iter().all(|entry| known(entry)), "{full:?}");
        let deep = Set::parse("deep").unwrap();
        assert_eq!(deep.passes[0], Set::parse("standard").unwrap().passes[0]);
        let standard = &deep.passes[0];
        assert!(standard.iter().all(|entry| known(entry)), "{standard:?}");
        assert!(standard.contains(&"interrupts:basic".to_owned()), "{standard:?}");
        assert!(deep.passes.contains(&vec!["interrupts".to_owned()]));
        assert!(deep.passes.contains(&vec!["syscalls".to_owned()]));
        let list = "interrupts:basic, cpu,interrupts";
        assert_eq!(Set::parse(list).unwrap().passes, [["cpu", "interrupts"]]);
        assert_eq!(Set::parse("interrupts:basic").unwrap().passes, [["interrupts:basic"]]);
        let list = "interrupts:basic,interrupts:sliced";
        assert_eq!(Set::parse(list).unwrap().passes, [["interrupts:sliced"]]);
        // What is on request is in no set, and never in the pass of others.
        assert_eq!(Set::parse("trace").unwrap().passes, [["trace"]]);
        assert_eq!(Set::parse("trace,cpu").unwrap().passes, [["cpu"], ["trace"]]);
        for set in ["standard", "full", "deep"] {
            let passes = Set::parse(set).unwrap().passes;
            assert!(passes.iter().flatten().all(|entry| entry != "trace"), "{set}");
        }
        assert!(Set::parse("tcp:sliced").unwrap_err().contains("`tcp:sliced` is not a probe"));
        assert!(Set::parse("cpu:basic").unwrap_err().contains("`cpu:basic` is not a probe"));
        assert!(Set::parse("cpus").unwrap_err().contains("the probes are cpu"));
    }
}
