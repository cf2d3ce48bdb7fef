//! Events that a PMU names in /sys, as `power/energy-pkg/` of perf-list(1), by the number that the kernel gave it.
//! <https://docs.kernel.org/admin-guide/perf-security.html>,
//! <https://elixir.bootlin.com/linux/v6.12/source/Documentation/ABI/testing/sysfs-bus-event_source-devices-events>

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Event;
use crate::cpu_list::parse_list;

const DEVICES: &str = "sys/bus/event_source/devices";

/// A named event of a PMU.
#[derive(Debug, Clone, PartialEq)]
pub struct PmuEvent {
    pub event: Event,
    /// What a count is to be multiplied by.
    pub scale: f64,
    /// Of the scaled count, as `Joules` or `MiB`.
    pub unit: Option<String>,
}

/// Names of the PMUs below `root` that begin so, sorted.
#[must_use]
pub fn pmus(root: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(DEVICES)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Names of the events of a PMU, sorted, without the files of their scales and units.
#[must_use]
pub fn pmu_events(root: &Path, pmu: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(DEVICES).join(pmu).join("events"));
    let names = entries.into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.contains('.')).collect();
    names.sort();
    names
}

/// CPUs to count on for a PMU that is not of each CPU: one of each package. `None` where it counts on every CPU.
#[must_use]
pub fn cpumask(root: &Path, pmu: &str) -> Option<Vec<u32>> {
    parse_list(&text(&root.join(DEVICES).join(pmu).join("cpumask"))?)
}

/// An event by its name.
///
/// # Errors
/// `NotFound` when there is no such PMU or event, `Unsupported` when it is described in a way that is not known here.
pub fn pmu_event(root: &Path, pmu: &str, name: &str) -> io::Result<PmuEvent> {
    let device = root.join(DEVICES).join(pmu);
    let read = |path: PathBuf| text(&path).ok_or(io::ErrorKind::NotFound);
    let kind = read(device.join("type"))?.parse().map_err(|_| io::ErrorKind::Unsupported)?;
    let events = device.join("events");
    let description = read(events.join(name))?;
    let mut config = 0;
    for term in description.split(',') {
        let (field, value) = term.split_once('=').unwrap_or((term, "1"));
        let place = text(&device.join("format").join(field));
        let placed = place.as_deref().and_then(|place| placed(number(value)?, place));
        config |= placed.ok_or(io::ErrorKind::Unsupported)?;
    }
    let scale = text(&events.join(format!("{name}.scale")));
    Ok(PmuEvent {
        event: Event { kind, config, user: true, kernel: true },
        scale: scale.and_then(|scale| scale.parse().ok()).unwrap_or(1.0),
        unit: text(&events.join(format!("{name}.unit"))),
    })
}

/// A value in the bits of `config` that a format such as `config:0-7` or `config:0-7,32-35` names, the lowest first.
fn placed(value: u64, format: &str) -> Option<u64> {
    let bits = parse_list(format.strip_prefix("config:")?)?;
    let mut rest = value;
    let mut config = 0;
    for bit in bits {
        config |= (rest & 1).checked_shl(bit)?;
        rest >>= 1;
    }
    (rest == 0).then_some(config)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::fixture;

    #[test]
    fn events_are_described_by_files() {
        let device = |path: &str| format!("{DEVICES}/{path}");
        let files = [
            ("power/type", "17\n"),
            ("power/cpumask", "0,16\n"),
            ("power/format/event", "config:0-7\n"),
            ("power/events/energy-pkg", "event=0x02\n"),
            ("power/events/energy-pkg.scale", "2.3283064365386962890625e-10\n"),
            ("power/events/energy-pkg.unit", "Joules\n"),
            ("uncore_imc_0/type", "21\n"),
            ("uncore_imc_0/format/event", "config:0-7\n"),
            ("uncore_imc_0/format/umask", "config:8-15\n"),
            ("uncore_imc_0/format/high", "config:0-3,32-35\n"),
            ("uncore_imc_0/format/other", "config1:0-7\n"),
            ("uncore_imc_0/events/cas_count_read", "event=0x04,umask=0x03\n"),
            ("uncore_imc_0/events/split", "high=0xa5\n"),
            ("uncore_imc_0/events/wide", "event=0x100\n"),
            ("uncore_imc_0/events/filtered", "event=0x04,other=1\n"),
        ];
        let files: Vec<(String, &str)> =
            files.into_iter().map(|(path, text)| (device(path), text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let root = fixture(&files);
        let root = root.path();
        assert_eq!(pmus(root, "uncore_imc"), ["uncore_imc_0"]);
        assert_eq!(pmu_events(root, "power"), ["energy-pkg"]);
        assert_eq!(pmu_events(root, "no-such-pmu"), [""; 0]);
        assert_eq!(cpumask(root, "power"), Some(vec![0, 16]));
        assert_eq!(cpumask(root, "uncore_imc_0"), None);
        let energy = pmu_event(root, "power", "energy-pkg").unwrap();
        assert_eq!((energy.event.kind, energy.event.config), (17, 2));
        assert_eq!(energy.unit.as_deref(), Some("Joules"));
        assert!((energy.scale * (1u64 << 32) as f64 - 1.0).abs() < 1e-9);
        let config = |event| pmu_event(root, "uncore_imc_0", event).map(|of| of.event.config);
        assert_eq!(config("cas_count_read").unwrap(), 0x304);
        assert_eq!(config("split").unwrap(), 0xa_0000_0005);
        assert_eq!(config("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(config("wide").unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(config("filtered").unwrap_err().kind(), io::ErrorKind::Unsupported);
        let none = pmu_event(root, "no-such-pmu", "event").unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
