//! Network devices of the calling thread's namespace.

use std::fs;

use wirecost_model::environment::{Device, DeviceRss, Vector};
use wirecost_model::rss::key_text;

use super::files::Files;
use crate::ethtool::{Driver, Ethtool, Spreading};
use crate::interrupts::{self, Line};
use crate::link::{Link, Links};

/// `None` when the kernel does not list them.
pub(super) fn read(files: &Files<'_>) -> Option<Vec<Device>> {
    let links = Links::here().ok()?;
    let mut qdiscs = links.qdiscs().ok();
    let ethtool = Ethtool::open().ok();
    let lines = files.text("proc/interrupts").map(|text| interrupts::parse(&text));
    let mut devices: Vec<Device> = links
        .list()
        .ok()?
        .into_iter()
        .map(|link| {
            // One that the kernel names none of has none.
            let qdiscs = qdiscs.as_mut().map(|all| all.remove(&link.index).unwrap_or_default());
            Device { qdiscs, ..device(link, ethtool.as_ref()) }
        })
        .collect();
    for device in &mut devices {
        if let Some(bus) = &device.bus {
            device.numa_node = numa_node(files, bus);
            device.vectors = lines.as_deref().and_then(|lines| vectors(files, lines, bus));
        }
    }
    Some(devices)
}

/// Bits a second of the one link that leads out; `None` where there are several, or its speed is not
/// known.
pub(crate) fn link_rate() -> Option<u64> {
    let links = Links::here().and_then(|links| links.list()).ok()?;
    let ethtool = Ethtool::open().ok()?;
    let is_hardware = |link: &Link| ethtool.driver(&link.name).is_ok_and(|d| d.bus.is_some());
    let leads_out = |link: &&Link| {
        link.up && (link.announced_rate().is_some() || link.kind.is_none() && is_hardware(link))
    };
    match links.iter().filter(leads_out).collect::<Vec<_>>()[..] {
        [link] => speed(link, Some(&ethtool)),
        _ => None,
    }
}

/// Of a pair it is what its maker noted: its driver says 10 Gb/s, whatever it carries.
fn speed(link: &Link, ethtool: Option<&Ethtool>) -> Option<u64> {
    match link.kind.as_deref() {
        Some("veth") => link.announced_rate(),
        _ => ethtool?.speed(&link.name).ok(),
    }
}

fn device(link: Link, ethtool: Option<&Ethtool>) -> Device {
    let speed_bits_per_second = speed(&link, ethtool);
    let name = link.name;
    let driver = ethtool.and_then(|ethtool| ethtool.driver(&name).ok());
    let (driver, driver_version, firmware, bus) = match driver {
        Some(Driver { name, version, firmware, bus }) => (Some(name), version, firmware, bus),
        None => (None, None, None, None),
    };
    let features = ethtool.and_then(|ethtool| ethtool.features(&name).ok());
    Device {
        speed_bits_per_second,
        changeable_features: features.as_ref().map(|features| {
            let changeable = features.iter().filter(|(_, feature)| feature.changeable);
            changeable.map(|(name, _)| name.clone()).collect()
        }),
        features: features.map(|features| {
            features.into_iter().map(|(name, feature)| (name, feature.on)).collect()
        }),
        rings: ethtool.and_then(|ethtool| ethtool.rings(&name).ok()),
        coalescing: ethtool.and_then(|ethtool| ethtool.coalescing(&name).ok()),
        flow_control: ethtool.and_then(|ethtool| ethtool.flow_control(&name).ok()),
        channels: ethtool.and_then(|ethtool| ethtool.channels(&name).ok()),
        rss: ethtool.and_then(|ethtool| rss(ethtool.spreading(&name).ok()?)),
        name,
        kind: link.kind,
        up: link.up,
        mtu: link.mtu,
        tx_queue_len: link.tx_queue_len,
        qdisc: link.qdisc,
        qdiscs: None,
        driver,
        driver_version,
        firmware,
        bus,
        numa_node: None,
        vectors: None,
        rx_missed: link.rx_missed,
    }
}

/// A device with one queue may have no table.
fn rss(told: Spreading) -> Option<DeviceRss> {
    let key = (!told.key.is_empty()).then(|| key_text(&told.key));
    (!told.table.is_empty()).then_some(DeviceRss { key, table: told.table })
}

/// The kernel writes -1 where it does not know. The bus is in no namespace, unlike /sys/class/net.
fn numa_node(files: &Files<'_>, bus: &str) -> Option<u32> {
    let device = interrupts::on_a_bus(files.root, bus)?;
    fs::read_to_string(device.join("numa_node")).ok()?.trim().parse().ok()
}

/// The interrupts that the device was given and somebody handles. Those of devices that are on
/// another bus than PCI cannot be told from others'.
fn vectors(files: &Files<'_>, lines: &[Line], bus: &str) -> Option<Vec<Vector>> {
    let irqs = interrupts::of_bus_device(&interrupts::on_a_bus(files.root, bus)?);
    let vector = |irq: &u32| {
        let line = lines.iter().find(|line| line.number() == Some(*irq))?;
        (!line.name.is_empty()).then(|| Vector {
            irq: *irq,
            name: line.name.clone(),
            cpus: files.cpus(&format!("proc/irq/{irq}/smp_affinity_list")),
            effective_cpus: files.cpus(&format!("proc/irq/{irq}/effective_affinity_list")),
        })
    };
    (!irqs.is_empty()).then(|| irqs.iter().filter_map(vector).collect())
}

#[cfg(test)]
mod tests {
    use wirecost_model::rss::Symmetry;

    use super::*;
    use crate::environment::tests::fixture;

    const INTERRUPTS: &str = "\
           CPU0       CPU1
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      13747 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:          1          0 PCI-MSIX-0000:00:03.0   2-edge
 40:          0          0
NMI:          0          0   Non-maskable interrupts
";

    /// What a card tells ([`Ethtool::spreading`]), one without a table, and devices that have no queues to
    /// choose from.
    #[test]
    fn rss_is_that_of_the_driver() {
        let told = |table: &[u32], key: &[u8]| {
            rss(Spreading {
                table: table.to_vec(),
                key: key.to_vec(),
                queues: 2,
                toeplitz: true,
                symmetry: Some(Symmetry::None),
            })
        };
        let of = |key: Option<&str>| {
            Some(DeviceRss { key: key.map(str::to_owned), table: vec![0, 1, 300, 1] })
        };
        assert_eq!(told(&[0, 1, 300, 1], &[0x6d, 0x5a, 0]), of(Some("6d:5a:00")));
        assert_eq!(told(&[0, 1, 300, 1], &[]), of(None));
        assert_eq!(told(&[], &[0x6d]), None);
        let devices = read(&Files { root: std::path::Path::new("/") }).unwrap();
        let lo = devices.iter().find(|device| device.name == "lo").unwrap();
        assert_eq!(lo.rss, None);
    }

    #[test]
    fn a_device_has_a_place_and_vectors() {
        let device = "sys/bus/pci/devices/0000:00:03.0";
        let root = fixture(&[
            (&format!("{device}/numa_node"), "1\n"),
            (&format!("{device}/msi_irqs/38"), "msix\n"),
            (&format!("{device}/msi_irqs/39"), "msix\n"),
            ("sys/bus/pci/devices/0000:00:04.0/numa_node", "-1\n"),
            ("proc/irq/38/smp_affinity_list", "0-1\n"),
            ("proc/irq/38/effective_affinity_list", "1\n"),
        ]);
        let files = Files { root: root.path() };
        assert_eq!(numa_node(&files, "0000:00:03.0"), Some(1));
        assert_eq!(numa_node(&files, "0000:00:04.0"), None);
        let expected = Vector {
            irq: 38,
            name: "virtio2-input.0".to_owned(),
            cpus: Some(vec![0, 1]),
            effective_cpus: Some(vec![1]),
        };
        assert_eq!(
            vectors(&files, &interrupts::parse(INTERRUPTS), "0000:00:03.0"),
            Some(vec![expected])
        );
        assert_eq!(vectors(&files, &interrupts::parse(INTERRUPTS), "0000:00:05.0"), None);
    }
}
