//! All probes. A new one is a folder and two lines here.

mod cpu;
mod functions;
mod interrupts;
mod pmu;
mod segments;
mod syscalls;
mod tcp;

use crate::probe::{About, Probe, named};
pub use functions::layers;

/// Every probe, in the order of their sections.
pub(crate) const ALL: &[&dyn Probe] = &[
    &cpu::Cpu,
    &pmu::Pmu,
    &interrupts::Interrupts,
    &segments::Segments,
    &tcp::Tcp,
    &functions::Functions,
    &syscalls::Syscalls,
];

/// Those of `standard`. `NAME:basic` is what a probe can tell for little: by /proc alone, and of the
/// PMU where it is not a hypervisor's.
const STANDARD: &[&str] = &["cpu", "pmu:basic", "functions", "interrupts:basic", "tcp:basic"];

/// Those that can be asked for as `NAME:basic`.
const WITH_BASIC: &[&str] = &["pmu", "interrupts", "tcp"];

/// Those that cost too much to share a pass: by name, and in a pass of `deep`.
const ALONE: &[&str] = &["syscalls"];

/// Names of all probes.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|probe| probe.name())
}

/// Every probe and what there is to know of it.
pub fn describe() -> impl Iterator<Item = (&'static str, About)> {
    ALL.iter().map(|probe| (probe.name(), probe.about()))
}

/// What `--observe` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Probes of each pass; the first gives the headline.
    pub passes: Vec<Vec<String>>,
}

impl Set {
    /// `standard` (`cpu`, `functions`, `interrupts:basic` and `tcp:basic`), `none`, `deep` (`standard`,
    /// then a pass for each probe that is not whole in it), `full` (all but `syscalls` in one pass), or
    /// names of probes with commas between them, each whole or, with `:basic` behind it, what it
    /// tells for little.
    ///
    /// # Errors
    /// A name that is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let standard: Vec<String> = STANDARD
            .iter()
            .filter(|name| names().any(|known| known == named(name)))
            .map(|&name| name.to_owned())
            .collect();
        let passes = match text {
            "none" => vec![Vec::new()],
            "standard" => vec![standard],
            "full" => {
                let cheap = |name| if name == "pmu" { "pmu:basic" } else { name };
                let full = names().filter(|name| !ALONE.contains(name)).map(cheap);
                vec![full.map(str::to_owned).collect()]
            }
            "deep" => {
                let further = names().filter(|name| !STANDARD.contains(name));
                std::iter::once(standard).chain(further.map(|name| owned(&[name]))).collect()
            }
            list => {
                let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
                let known = |asked: &str| {
                    let name = named(asked);
                    names().any(|n| n == name) && (asked == name || WITH_BASIC.contains(&name))
                };
                if let Some(unknown) = wanted.iter().find(|asked| !known(asked)) {
                    let all: Vec<&str> = names().collect();
                    return Err(format!(
                        "`{unknown}` is no probe: the probes are {}, and the sets standard, deep, full \
                         and none",
                        all.join(", ")
                    ));
                }
                // One that is asked for both ways is wanted whole.
                let asked = |name: &'static str| {
                    let of_it = wanted.iter().filter(|asked| named(asked) == name);
                    of_it.min_by_key(|asked| asked.len()).map(|&asked| asked.to_owned())
                };
                vec![names().filter_map(asked).collect()]
            }
        };
        Ok(Self { passes })
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
        assert_eq!(full.passes[0].len(), ALL.len() - ALONE.len());
        let deep = Set::parse("deep").unwrap();
        assert_eq!(deep.passes[0], Set::parse("standard").unwrap().passes[0]);
        let standard = &deep.passes[0];
        assert!(standard.contains(&"interrupts:basic".to_owned()), "{standard:?}");
        assert!(deep.passes.contains(&vec!["interrupts".to_owned()]));
        assert!(deep.passes.contains(&vec!["syscalls".to_owned()]));
        let list = "interrupts:basic, cpu,interrupts";
        assert_eq!(Set::parse(list).unwrap().passes, [["cpu", "interrupts"]]);
        assert_eq!(Set::parse("interrupts:basic").unwrap().passes, [["interrupts:basic"]]);
        assert!(Set::parse("cpu:basic").unwrap_err().contains("`cpu:basic` is no probe"));
        assert!(Set::parse("cpus").unwrap_err().contains("the probes are cpu"));
    }
}
