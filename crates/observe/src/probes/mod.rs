//! All probes. A new one is a folder and two lines here.

mod cpu;
mod functions;

use crate::probe::{About, Probe};
pub use functions::layers;

/// Every probe, in the order of their sections.
pub(crate) const ALL: &[&dyn Probe] = &[&cpu::Cpu, &functions::Functions];

/// Those of `standard`.
const STANDARD: &[&str] = &["cpu", "functions"];

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
    /// `standard`, `none`, `deep`, `full`, or names of probes with commas between them.
    ///
    /// # Errors
    /// A name that is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let standard: Vec<String> =
            names().filter(|name| STANDARD.contains(name)).map(str::to_owned).collect();
        let passes = match text {
            "none" => vec![Vec::new()],
            "standard" => vec![standard],
            "full" => vec![names().map(str::to_owned).collect()],
            "deep" => {
                let further = names().filter(|name| !STANDARD.contains(name));
                std::iter::once(standard).chain(further.map(|name| owned(&[name]))).collect()
            }
            list => {
                let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
                if let Some(unknown) = wanted.iter().find(|name| !names().any(|n| n == **name)) {
                    let all: Vec<&str> = names().collect();
                    return Err(format!(
                        "`{unknown}` is no probe: the probes are {}, and the sets standard, deep, full \
                         and none",
                        all.join(", ")
                    ));
                }
                vec![names().filter(|name| wanted.contains(name)).map(str::to_owned).collect()]
            }
        };
        Ok(Self { passes })
    }
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
        assert_eq!(full.passes[0].len(), ALL.len());
        let deep = Set::parse("deep").unwrap();
        assert_eq!(deep.passes[0], Set::parse("standard").unwrap().passes[0]);
        assert!(Set::parse("cpus").unwrap_err().contains("the probes are cpu"));
    }
}
