//! Counters of the PMU on each CPU: which events there are, and what they count.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use wirecost_linux::cpu_list;
use wirecost_linux::perf::{Counts, Event, Group, Hardware, Scope};
use wirecost_model::observe::PmuCounts;

/// Where the kernel shows its PMUs.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU of CPU cores.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Core {
    name: String,
    /// To be told in events where several kinds of cores are there; else the kernel finds it.
    kind: Option<u32>,
    /// None for all CPUs.
    cpus: Option<Vec<u32>>,
}

/// PMUs of cores among the devices, in the order of their names.
///
/// `cpu` is that of x86 with cores of one kind (and is there in guests without any counter, too);
/// `cpu_core` and `cpu_atom` those of hybrid ones; `armv8_pmuv3_0`, `armv8_cortex_a72`... those of
/// Arm. Uncore and other devices count no instructions:
/// <https://elixir.bootlin.com/linux/v6.12/source/Documentation/admin-guide/perf>.
fn cores(devices: &Path) -> Vec<Core> {
    let mut names: Vec<String> = fs::read_dir(devices)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let arm = ["armv6", "armv7", "armv8", "armv9"];
            matches!(name.as_str(), "cpu" | "cpu_core" | "cpu_atom" | "cpu_lowpower")
                || arm.iter().any(|arm| name.starts_with(arm))
        })
        .collect();
    names.sort();
    let hybrid = names.iter().any(|name| name.starts_with("cpu_"));
    names
        .into_iter()
        .map(|name| {
            let read = |file: &str| fs::read_to_string(devices.join(&name).join(file)).ok();
            let cpus = read("cpus").or_else(|| read("cpumask"));
            Core {
                // Arm finds its PMU by the CPU; x86 wants to be told.
                kind: if hybrid {
                    read("type").and_then(|text| text.trim().parse().ok())
                } else {
                    None
                },
                cpus: cpus.and_then(|text| cpu_list::parse_list(&text)).filter(|c| !c.is_empty()),
                name,
            }
        })
        .collect()
}

/// What is counted, in two groups: those that belong together are on the PMU together, and a PMU
/// with few counters can take turns.
fn events(kind: Option<u32>) -> [Vec<Event>; 2] {
    let event = |what| Event::hardware(what, kind);
    [
        vec![
            event(Hardware::Cycles),
            event(Hardware::Cycles).in_kernel(),
            event(Hardware::Instructions),
        ],
        vec![event(Hardware::CacheMisses), event(Hardware::BranchMisses)],
    ]
}

/// Counters of one CPU.
#[derive(Debug)]
struct OnCpu {
    /// Cycles; with those in the kernel and instructions where the PMU can count them together.
    first: (Group, usize),
    /// Misses, as far as the PMU has them.
    second: Option<(Group, usize)>,
}

/// Counters of all CPUs that have a PMU.
#[derive(Debug)]
pub(super) struct Counters {
    cpus: BTreeMap<u32, OnCpu>,
}

/// What the counters of each CPU showed.
pub(super) type Reading = BTreeMap<u32, [Option<Counts>; 2]>;

impl Counters {
    /// Opens counters on these CPUs; they do not count yet.
    ///
    /// # Errors
    /// Why there are none. A guest without a PMU says that there is no such event.
    pub(super) fn open(online: &[u32]) -> Result<Self, String> {
        Self::of(&cores(Path::new(DEVICES)), online)
    }

    fn of(cores: &[Core], online: &[u32]) -> Result<Self, String> {
        if cores.is_empty() {
            return Err("this machine has no visible PMU, so cycles are not counted".to_owned());
        }
        let mut cpus = BTreeMap::new();
        for &cpu in online {
            let of_cpu = |core: &&Core| core.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
            let Some(core) = cores.iter().find(of_cpu) else { continue };
            let [first, second] = events(core.kind);
            let first = most_of(cpu, &first).map_err(|error| {
                format!("the PMU `{}` does not count cycles: {error}", core.name)
            })?;
            cpus.insert(cpu, OnCpu { first, second: most_of(cpu, &second).ok() });
        }
        Ok(Self { cpus })
    }

    pub(super) fn start(&self) -> io::Result<()> {
        self.groups().try_for_each(Group::start)
    }

    pub(super) fn stop(&self) -> io::Result<()> {
        self.groups().try_for_each(Group::stop)
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.cpus.values().flat_map(|on_cpu| {
            std::iter::once(&on_cpu.first).chain(&on_cpu.second).map(|(group, _)| group)
        })
    }

    pub(super) fn read(&self) -> Reading {
        let read = |(group, _): &(Group, usize)| group.read().ok();
        let each = self.cpus.iter();
        each.map(|(&cpu, on)| (cpu, [read(&on.first), on.second.as_ref().and_then(read)])).collect()
    }
}

/// The events as one group, or as many of the first as the PMU has and can count together.
fn most_of(cpu: u32, events: &[Event]) -> io::Result<(Group, usize)> {
    let mut number = events.len();
    loop {
        match Group::open(Scope::Cpu(cpu), &events[..number]) {
            Ok(group) => return Ok((group, number)),
            Err(_) if number > 1 => number -= 1,
            Err(error) => return Err(error),
        }
    }
}

/// Counts of a window on these CPUs together. None where no CPU of them counted cycles; a figure
/// that one of them lacks is null.
pub(super) fn counts(
    begin: &Reading,
    end: &Reading,
    wanted: impl Fn(u32) -> bool,
) -> Option<PmuCounts> {
    let mut total = PmuCounts { counted: 1.0, ..PmuCounts::default() };
    let mut sums = [Some(0.0); 4];
    let mut any = false;
    for (cpu, after) in end.iter().filter(|(cpu, _)| wanted(**cpu)) {
        let before = begin.get(cpu)?;
        let spent = |place: usize| {
            let spent = after[place].as_ref()?.since(before[place].as_ref()?);
            Some((spent.scaled()?, spent.share()))
        };
        // Without cycles of one CPU there are none of all.
        let (first, share) = spent(0)?;
        total.cycles += first.first()?;
        total.counted = total.counted.min(share);
        let second = spent(1);
        if let Some((_, share)) = &second {
            total.counted = total.counted.min(*share);
        }
        let second = second.map(|(values, _)| values).unwrap_or_default();
        let found = [first.get(1), first.get(2), second.first(), second.get(1)];
        for (sum, found) in sums.iter_mut().zip(found) {
            *sum = sum.zip(found).map(|(sum, found)| sum + found);
        }
        any = true;
    }
    let [cycles_kernel, instructions, cache_misses, branch_misses] = sums;
    any.then_some(PmuCounts { cycles_kernel, instructions, cache_misses, branch_misses, ..total })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as the kernel shows it: devices with their files.
    fn devices(all: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (device, files) in all {
            fs::create_dir(folder.path().join(device)).unwrap();
            for (file, text) in *files {
                fs::write(folder.path().join(device).join(file), format!("{text}\n")).unwrap();
            }
        }
        folder
    }

    fn found(all: &[(&str, &[(&str, &str)])]) -> Vec<(String, Option<u32>, Option<Vec<u32>>)> {
        let folder = devices(all);
        let cores = cores(folder.path());
        cores.into_iter().map(|core| (core.name, core.kind, core.cpus)).collect()
    }

    #[test]
    fn intel_and_amd_have_one() {
        let intel: &[(&str, &[(&str, &str)])] = &[
            ("breakpoint", &[("type", "5")]),
            ("cpu", &[("type", "4")]),
            ("cstate_core", &[("type", "20"), ("cpumask", "0")]),
            ("power", &[("type", "17"), ("cpumask", "0")]),
            ("software", &[("type", "1")]),
            ("uncore_imc_0", &[("type", "11"), ("cpumask", "0")]),
        ];
        assert_eq!(found(intel), [("cpu".to_owned(), None, None)]);
        let amd: &[(&str, &[(&str, &str)])] = &[
            ("amd_df", &[("type", "9"), ("cpumask", "0")]),
            ("amd_l3", &[("type", "10"), ("cpumask", "0,8")]),
            ("cpu", &[("type", "4")]),
            ("ibs_op", &[("type", "8")]),
        ];
        assert_eq!(found(amd), [("cpu".to_owned(), None, None)]);
    }

    #[test]
    fn hybrid_cpus_have_one_for_each_kind() {
        let hybrid: &[(&str, &[(&str, &str)])] = &[
            ("cpu_atom", &[("type", "10"), ("cpus", "16-23")]),
            ("cpu_core", &[("type", "4"), ("cpus", "0-15")]),
            ("uncore_cbox_0", &[("type", "12"), ("cpumask", "0")]),
        ];
        assert_eq!(
            found(hybrid),
            [
                ("cpu_atom".to_owned(), Some(10), Some((16..=23).collect())),
                ("cpu_core".to_owned(), Some(4), Some((0..=15).collect())),
            ]
        );
        let [first, _] = events(Some(10));
        // The kind is in the upper half.
        assert_eq!((first[0].kind, first[0].config >> 32), (0, 10));
        assert!(!first[1].user && first[1].kernel);
    }

    #[test]
    fn arm_has_one_that_the_kernel_finds() {
        let arm: &[(&str, &[(&str, &str)])] = &[
            ("arm_cmn_0", &[("type", "9"), ("cpumask", "0")]),
            ("armv8_pmuv3_0", &[("type", "8"), ("cpus", "0-63")]),
            ("software", &[("type", "1")]),
        ];
        let all: Vec<u32> = (0..64).collect();
        assert_eq!(found(arm), [("armv8_pmuv3_0".to_owned(), None, Some(all))]);
        let [first, second] = events(None);
        assert!(first.iter().chain(&second).all(|event| event.config >> 32 == 0));
    }

    #[test]
    fn where_there_is_none_it_is_said() {
        let none: &[(&str, &[(&str, &str)])] = &[("software", &[("type", "1")])];
        assert!(found(none).is_empty());
        assert!(Counters::of(&[], &[0]).unwrap_err().contains("no visible PMU"));
        assert!(cores(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn counts_are_scaled_and_summed_over_cpus() {
        let counts_of = |enabled, running, values: &[u64]| {
            Some(Counts { enabled, running, values: values.to_vec() })
        };
        let begin: Reading =
            [0, 1].map(|cpu| (cpu, [counts_of(0, 0, &[0, 0, 0]), counts_of(0, 0, &[0, 0])])).into();
        let mut end = Reading::new();
        end.insert(0, [counts_of(100, 100, &[1000, 600, 2000]), counts_of(100, 50, &[10, 20])]);
        end.insert(1, [counts_of(100, 100, &[500, 100, 300]), counts_of(100, 100, &[1, 2])]);
        let all = counts(&begin, &end, |_| true).unwrap();
        assert_eq!(
            all,
            PmuCounts {
                cycles: 1500.0,
                cycles_kernel: Some(700.0),
                instructions: Some(2300.0),
                cache_misses: Some(21.0),
                branch_misses: Some(42.0),
                counted: 0.5,
            }
        );
        let one = counts(&begin, &end, |cpu| cpu == 1).unwrap();
        assert_eq!((one.cycles, one.counted), (500.0, 1.0));
        assert_eq!(counts(&begin, &end, |_| false), None);
        // A CPU without misses: the sum has none.
        end.insert(1, [counts_of(100, 100, &[500, 100, 300]), None]);
        assert_eq!(counts(&begin, &end, |_| true).unwrap().cache_misses, None);
        // A group that never got onto the PMU has no figure.
        end.insert(1, [counts_of(100, 0, &[0, 0, 0]), None]);
        assert_eq!(counts(&begin, &end, |_| true), None);
    }
}
