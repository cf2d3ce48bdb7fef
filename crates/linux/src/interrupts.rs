//! How many interrupts and softirqs there were: /proc/interrupts, /proc/softirqs (proc_interrupts(5))
//! and which device an interrupt is of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One line of /proc/interrupts or /proc/softirqs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of an interrupt, or a name such as `LOC` or `NET_RX`.
    pub source: String,
    /// By number of CPU; only those that are online.
    pub counts: BTreeMap<u32, u64>,
    /// Of an interrupt that has a number the names of its handlers, of others what they are for.
    pub name: String,
}

impl Line {
    /// Number of the interrupt.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.source.parse().ok()
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// How many came between two readings of one counter. The kernel's are of 32 bits, and wrap:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/kernel_stat.h#L40>.
#[must_use]
pub fn since(before: u64, after: u64) -> u64 {
    match after.checked_sub(before) {
        Some(count) => count,
        None => u64::from((after as u32).wrapping_sub(before as u32)),
    }
}

/// Interrupts since boot.
///
/// # Errors
/// When the file cannot be read.
pub fn interrupts() -> io::Result<Vec<Line>> {
    Ok(parse(&fs::read_to_string("/proc/interrupts")?))
}

/// Softirqs since boot, by vector.
///
/// # Errors
/// When the file cannot be read.
pub fn softirqs() -> io::Result<Vec<Line>> {
    Ok(parse(&fs::read_to_string("/proc/softirqs")?))
}

/// The lines of either file. Columns are of the CPUs that the first line names; a line that is not
/// counted by CPU (`ERR`) is left out.
#[must_use]
pub fn parse(text: &str) -> Vec<Line> {
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .filter_map(|cpu| cpu.strip_prefix("CPU")?.parse().ok())
        .collect();
    lines
        .filter_map(|line| {
            let (source, rest) = line.split_once(':')?;
            let mut rest = rest.trim_start();
            let mut counts = BTreeMap::new();
            for &cpu in &cpus {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                counts.insert(cpu, rest[..end].parse().ok()?);
                rest = rest[end..].trim_start();
            }
            let source = source.trim().to_owned();
            let name = match source.parse::<u32>() {
                Ok(_) => handlers(rest),
                Err(_) => rest.trim_end().to_owned(),
            };
            Some(Line { source, counts, name })
        })
        .collect()
}

/// Names of the handlers in what follows the counts: the chip, its own number of the interrupt, how
/// it is triggered, the handlers. x86 writes `PCI-MSI 524289-edge      eth0-TxRx-0`, ARM
/// `GICv3  30 Level     arch_timer`:
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/irq/proc.c#L463>.
fn handlers(text: &str) -> String {
    const TRIGGERS: [&str; 5] = ["edge", "level", "fasteoi", "simple", "per_cpu"];
    let mut place = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        place += word.len();
        let word = word.trim_end().to_ascii_lowercase();
        let kind = word.rsplit_once('-').map_or(word.as_str(), |(_, kind)| kind);
        if TRIGGERS.contains(&kind) {
            return text[place..].trim().to_owned();
        }
    }
    // Of a kind that is not known all of it, without the columns' padding.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The driver of each interrupt that belongs to a device of the PCI bus, by number. A virtio device
/// has one of its own beneath the one that the bus sees.
#[must_use]
pub fn drivers() -> BTreeMap<u32, String> {
    let mut drivers = BTreeMap::new();
    for device in children(Path::new("/sys/bus/pci/devices")) {
        let Some(mut driver) = driver(&device) else { continue };
        if driver == "virtio-pci" {
            let below = children(&device).into_iter().find(|path| is_virtio(path));
            driver = below.and_then(|path| self::driver(&path)).unwrap_or(driver);
        }
        drivers.extend(of_bus_device(&device).into_iter().map(|irq| (irq, driver.clone())));
    }
    drivers
}

/// Numbers of the interrupts of storage controllers on the PCI bus, by their class
/// (<https://elixir.bootlin.com/linux/v6.12/source/include/linux/pci_ids.h#L17>, `PCI_BASE_CLASS_STORAGE`). A virtio disk is one.
///
/// # Errors
/// When the devices of the bus cannot be read.
pub fn of_storage() -> io::Result<BTreeSet<u32>> {
    storage_below(Path::new("/sys/bus/pci/devices"))
}

fn storage_below(devices: &Path) -> io::Result<BTreeSet<u32>> {
    let mut irqs = BTreeSet::new();
    for entry in fs::read_dir(devices)? {
        let device = entry?.path();
        let class = fs::read_to_string(device.join("class")).unwrap_or_default();
        if class.starts_with("0x01") {
            irqs.extend(of_bus_device(&device));
        }
    }
    Ok(irqs)
}

/// The interrupts of a device by its place on a bus, as a driver tells it ([`crate::ethtool::Driver`]);
/// none where nothing stands there. Buses are in no network namespace.
#[must_use]
pub fn of_device(place: &str) -> Option<Vec<u32>> {
    on_a_bus(Path::new("/"), place).map(|path| of_bus_device(&path))
}

/// Directory of the device at a place on a bus, in the files of the kernel below `root`.
#[must_use]
pub fn on_a_bus(root: &Path, place: &str) -> Option<PathBuf> {
    ["pci", "platform", "virtio", "vmbus", "xen"]
        .iter()
        .map(|bus| root.join(format!("sys/bus/{bus}/devices/{place}")))
        .find(|path| path.exists())
}

/// The interrupts of a device by its directory, ascending.
#[must_use]
pub fn of_bus_device(path: &Path) -> Vec<u32> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut irqs: Vec<u32> = children(&path.join("msi_irqs")).iter().filter_map(number).collect();
    if irqs.is_empty() {
        let pin =
            fs::read_to_string(path.join("irq")).ok().and_then(|t| t.trim().parse::<u32>().ok());
        irqs.extend(pin.filter(|&irq| irq > 0));
    }
    irqs.sort_unstable();
    irqs
}

fn is_virtio(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("virtio"))
}

fn driver(device: &Path) -> Option<String> {
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, source: &str) -> Line {
        parse(text).into_iter().find(|line| line.source == source).unwrap()
    }

    #[test]
    fn columns_are_of_the_cpus_that_are_named() {
        let text = "            CPU0       CPU2       
  24:          1     526787  IO-APIC   5-edge      ACPI:Ged
  36:          7          0 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 NMI:          0          3   Non-maskable interrupts
 ERR:          0
 MIS:          0
";
        let req = line(text, "36");
        assert_eq!(req.counts, BTreeMap::from([(0, 7), (2, 0)]));
        assert_eq!((req.name.as_str(), req.number(), req.total()), ("virtio1-req.0", Some(36), 7));
        assert_eq!(line(text, "24").name, "ACPI:Ged");
        let nmi = line(text, "NMI");
        assert_eq!((nmi.name.as_str(), nmi.number()), ("Non-maskable interrupts", None));
        // Not counted by CPU.
        assert_eq!(parse(text).len(), 3);
    }

    #[test]
    fn interrupts_of_storage_are_those_of_its_controllers() {
        let bus = tempfile::tempdir().unwrap();
        let device = |name: &str, class: &str, irqs: &[u32], pin: Option<u32>| {
            let path = bus.path().join(name);
            fs::create_dir_all(path.join("msi_irqs")).unwrap();
            fs::write(path.join("class"), format!("{class}\n")).unwrap();
            irqs.iter().for_each(|irq| {
                fs::write(path.join("msi_irqs").join(irq.to_string()), "msix\n").unwrap();
            });
            fs::write(path.join("irq"), format!("{}\n", pin.unwrap_or(0))).unwrap();
        };
        device("nvme", "0x010802", &[40, 41], None);
        device("ahci", "0x010601", &[], Some(16));
        device("net", "0x020000", &[50], Some(17));
        device("bridge", "0x060100", &[], None);
        assert_eq!(storage_below(bus.path()).unwrap(), BTreeSet::from([16, 40, 41]));
        assert!(storage_below(&bus.path().join("nothing")).is_err());
    }

    #[test]
    fn counters_wrap() {
        assert_eq!(since(7, 12), 5);
        assert_eq!(since(u64::from(u32::MAX) - 1, 5), 7);
    }

    #[test]
    fn handlers_come_after_the_trigger() {
        for (text, name) in [
            ("PCI-MSI 524289-edge      eth0-TxRx-0", "eth0-TxRx-0"),
            ("IO-APIC   16-fasteoi   ehci_hcd:usb1, snd_hda_intel", "ehci_hcd:usb1, snd_hda_intel"),
            (
                "PCI-MSIX-0000:3b:00.0   2-edge      mlx5_comp1@pci:0000:3b:00.0",
                "mlx5_comp1@pci:0000:3b:00.0",
            ),
            ("GICv3  30 Level     arch_timer", "arch_timer"),
            ("ITS-MSI 16384 Edge      nvme0q0", "nvme0q0"),
            ("xen-dyn    -event     vif0-q0-rx", "xen-dyn -event vif0-q0-rx"),
            ("  SIGALRM      hr timer", "SIGALRM hr timer"),
            ("PCI-MSIX-0000:00:03.0   2-edge", ""),
            ("", ""),
        ] {
            assert_eq!(handlers(text), name);
        }
    }

    #[test]
    fn this_kernel() {
        let softirqs = softirqs().unwrap();
        assert!(softirqs.iter().any(|line| line.source == "NET_RX" && !line.counts.is_empty()));
        assert!(interrupts().unwrap().iter().any(|line| line.total() > 0));
        assert_eq!(of_device("nowhere"), None);
        assert!(drivers().values().all(|driver| !driver.is_empty()));
    }

    #[test]
    fn what_is_not_the_file_has_no_lines() {
        for text in ["", "CPU0\n", "nothing: here\n1: 2\n", "CPU0 CPU1\n 1: 2 x\n 3\n"] {
            assert!(parse(text).iter().all(|line| line.counts.is_empty()), "{text}");
        }
    }
}
