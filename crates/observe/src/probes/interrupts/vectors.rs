//! What the interrupt vectors of network devices brought: which queue a vector is of, by the name of
//! its handler, and how many packets that queue had, by the driver's own counters.

use std::sync::Arc;

use wirecost_linux::interrupts::{Line, since};
use wirecost_linux::net_dev::Counters;
use wirecost_model::observe::{DeviceInterrupts, DeviceVector, Direction};

use crate::driver_counters::{Statistics, translated};

/// What is read of one network device.
#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    pub(super) packets: Counters,
    /// Whether it stands on a bus, and then which interrupts are its own.
    pub(super) irqs: Option<Vec<u32>>,
    pub(super) driver: Option<String>,
    /// By the driver's names.
    pub(super) statistics: Arc<Statistics>,
}

/// What a vector is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::probes) struct Role {
    pub(in crate::probes) queue: u32,
    pub(in crate::probes) rx: bool,
    pub(in crate::probes) tx: bool,
}

/// Of one device between two readings of it and of /proc/interrupts.
pub(super) fn device(
    name: &str,
    (before, after): (&Device, &Device),
    (irqs_before, irqs_after): (&[Line], &[Line]),
    seconds: f64,
) -> DeviceInterrupts {
    let rx_packets = after.packets.rx_packets.saturating_sub(before.packets.rx_packets);
    let tx_packets = after.packets.tx_packets.saturating_sub(before.packets.tx_packets);
    let mut of = DeviceInterrupts {
        device: name.to_owned(),
        rx_packets,
        tx_packets,
        ..DeviceInterrupts::default()
    };
    let lines: Vec<&Line> = irqs_after.iter().filter(|line| is_of(line, name, after)).collect();
    if lines.is_empty() {
        of.reason = Some(match after.irqs {
            None => "a virtual device: it receives packets without an interrupt".to_owned(),
            Some(_) => {
                "its interrupts cannot be distinguished from those of other devices".to_owned()
            }
        });
        return of;
    }
    let translate = |of: &Device| translated(of.driver.as_deref(), &of.statistics);
    let (counted_before, counted_after) = (translate(before), translate(after));
    let packets = |direction: Direction, queue: u32| {
        let key = (direction, Some(queue));
        let now = counted_after.get(&key)?.packets?;
        Some(now.saturating_sub(counted_before.get(&key)?.packets?))
    };
    let handlers: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let roles: Vec<Option<Role>> = roles(&handlers, name);
    let only =
        |serves: fn(&Role) -> bool| roles.iter().flatten().filter(|r| serves(r)).count() == 1;
    let (only_rx, only_tx) = (only(|role| role.rx), only(|role| role.tx));
    for (line, role) in lines.iter().zip(&roles) {
        let earlier = irqs_before.iter().find(|before| before.source == line.source);
        let earlier = |cpu| earlier.and_then(|line| line.counts.get(cpu)).copied().unwrap_or(0);
        let interrupts = line.counts.iter().map(|(cpu, count)| since(earlier(cpu), *count)).sum();
        // All packets of a device with one queue are that queue's, whether the driver says so or not.
        let rx = role
            .filter(|role| role.rx)
            .and_then(|role| packets(Direction::Rx, role.queue).or(only_rx.then_some(rx_packets)));
        let tx = role
            .filter(|role| role.tx)
            .and_then(|role| packets(Direction::Tx, role.queue).or(only_tx.then_some(tx_packets)));
        of.vectors.push(DeviceVector {
            source: line.source.clone(),
            name: line.name.clone(),
            queue: role.map(|role| role.queue),
            rx: role.is_some_and(|role| role.rx),
            tx: role.is_some_and(|role| role.tx),
            interrupts,
            per_second: interrupts as f64 / seconds.max(f64::MIN_POSITIVE),
            rx_packets: rx,
            tx_packets: tx,
            rx_packets_per_interrupt: rx.and_then(|packets| over(packets, interrupts)),
            tx_packets_per_interrupt: tx.and_then(|packets| over(packets, interrupts)),
        });
    }
    of.interrupts = Some(of.vectors.iter().map(|vector| vector.interrupts).sum());
    let telling = |serves: fn(&DeviceVector) -> bool| {
        let telling: Vec<&DeviceVector> = of.vectors.iter().filter(|v| serves(v)).collect();
        (!telling.is_empty()).then(|| telling.iter().map(|vector| vector.interrupts).sum::<u64>())
    };
    let (of_rx, of_tx) = (telling(|vector| vector.rx), telling(|vector| vector.tx));
    of.rx_packets_per_interrupt = of_rx.and_then(|interrupts| over(rx_packets, interrupts));
    of.tx_packets_per_interrupt = of_tx.and_then(|interrupts| over(tx_packets, interrupts));
    let mut reasons: Vec<&str> = match (of_rx, of_tx) {
        (None, None) => vec!["the purpose of its vectors is unknown from their names"],
        (None, Some(_)) => vec!["it has no vector that is known to signal received packets"],
        (Some(_), None) => vec!["it has no vector that is known to signal sent packets"],
        (Some(0), Some(0)) => vec!["no interrupt occurred in the window"],
        (Some(0), _) => vec!["no interrupt for received packets occurred in the window"],
        (_, Some(0)) => vec!["no interrupt for sent packets occurred in the window"],
        _ => Vec::new(),
    };
    let unknown = |vector: &DeviceVector| {
        vector.rx && vector.rx_packets.is_none() || vector.tx && vector.tx_packets.is_none()
    };
    if of.vectors.iter().any(unknown) {
        reasons.push("the driver does not count packets by queue (`ethtool -S`)");
    }
    of.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    of
}

fn over(packets: u64, interrupts: u64) -> Option<f64> {
    (interrupts > 0).then(|| packets as f64 / interrupts as f64)
}

/// By what the bus says; where it says nothing (a device that is on none that is known), by name.
fn is_of(line: &Line, device: &str, known: &Device) -> bool {
    let Some(number) = line.number() else { return false };
    match known.irqs.as_deref() {
        None => false,
        // Without a handler it is not in use.
        Some(irqs) if !irqs.is_empty() => irqs.contains(&number) && !line.name.is_empty(),
        Some(_) => words(&line.name).any(|word| word == device),
    }
}

/// Parts of a handler's name, `i40e-eth0-TxRx-3`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['-', ' ', ',', '@', ':'])
}

/// What the vectors of a device are for, by the names of their handlers.
pub(in crate::probes) fn roles(handlers: &[&str], device: &str) -> Vec<Option<Role>> {
    let named: Vec<Option<Role>> = handlers.iter().map(|handler| role(handler)).collect();
    // A device with one interrupt names it as itself and uses it for everything. Beside vectors of
    // queues, one of that name is for the link.
    if named.iter().any(Option::is_some) {
        return named;
    }
    let all = |handler: &&str| {
        let itself = handlers.len() == 1 || words(handler).any(|word| word == device);
        itself.then_some(Role { queue: 0, rx: true, tx: true })
    };
    handlers.iter().map(all).collect()
}

/// By the name of the handler, as drivers form it: `eth0-TxRx-3` (ixgbe, igb, i40e, ice, bnxt),
/// `eth0-Tx-Rx-3` (ena), `mlx5_comp3@pci:...`, `virtio2-input.3`, `eth0-rx-3`, `vif0-q3-rx` (Xen).
fn role(name: &str) -> Option<Role> {
    let name = name.split('@').next().unwrap_or(name).to_ascii_lowercase();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &name[stem.len()..];
    let stem = stem.trim_end_matches(['-', '.', '_']);
    let (rx, tx) =
        if ["txrx", "tx-rx", "rxtx", "rx-tx", "comp"].iter().any(|end| stem.ends_with(end)) {
            (true, true)
        } else if stem.ends_with("rx") || stem.ends_with("input") {
            (true, false)
        } else if stem.ends_with("tx") || stem.ends_with("output") {
            (false, true)
        } else {
            return None;
        };
    let queue = if number.is_empty() {
        words(stem).find_map(|word| word.strip_prefix('q')?.parse().ok())
    } else {
        number.parse().ok()
    };
    // A vector for all queues, where there is one.
    Some(Role { queue: queue.unwrap_or(0), rx, tx })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wirecost_linux::interrupts::parse;

    use super::*;

    /// A reading as it was on a host: /proc/interrupts, `ethtool -S`, the device's own interrupts.
    fn reading(fixture: &str, edge: &str) -> (Vec<Line>, Device) {
        let read = |what: &str| {
            std::fs::read_to_string(format!("src/probes/interrupts/fixtures/{fixture}/{what}"))
                .unwrap()
        };
        let statistics: BTreeMap<String, u64> = read(&format!("statistics-{edge}"))
            .lines()
            .filter_map(|line| {
                let (name, count) = line.trim().rsplit_once(": ")?;
                Some((name.to_owned(), count.parse().ok()?))
            })
            .collect();
        let irqs = read("irqs").split_whitespace().map(|irq| irq.parse().unwrap()).collect();
        let packets = Counters {
            rx_packets: statistics["rx_packets"],
            tx_packets: statistics["tx_packets"],
            ..Counters::default()
        };
        (
            parse(&read(&format!("interrupts-{edge}"))),
            Device { packets, irqs: Some(irqs), driver: None, statistics: Arc::new(statistics) },
        )
    }

    fn between(fixture: &str, name: &str) -> DeviceInterrupts {
        let (irqs_before, before) = reading(fixture, "begin");
        let (irqs_after, after) = reading(fixture, "end");
        device(name, (&before, &after), (&irqs_before, &irqs_after), 2.0)
    }

    fn vector<'a>(of: &'a DeviceInterrupts, name: &str) -> &'a DeviceVector {
        of.vectors.iter().find(|vector| vector.name == name).unwrap()
    }

    #[test]
    fn ixgbe_has_a_vector_for_both_directions_of_each_queue() {
        let of = between("ixgbe", "eth0");
        assert_eq!(of.vectors.len(), 5);
        let second = vector(&of, "eth0-TxRx-1");
        assert_eq!((second.queue, second.rx, second.tx), (Some(1), true, true));
        assert_eq!((second.interrupts, second.per_second), (4001, 2000.5));
        assert_eq!(second.rx_packets, Some(32_008));
        assert_eq!(second.rx_packets_per_interrupt, Some(8.0));
        assert_eq!(second.tx_packets_per_interrupt, Some(2.0));
        // The link's own.
        let link = vector(&of, "eth0");
        assert_eq!(
            (link.queue, link.rx_packets, link.rx_packets_per_interrupt),
            (None, None, None)
        );
        assert_eq!(of.interrupts, Some(12_008));
        assert_eq!(of.rx_packets_per_interrupt, Some(96_056.0 / 12_007.0));
        assert_eq!(of.reason, None);
    }

    #[test]
    fn mlx5_names_its_completions() {
        let of = between("mlx5", "enp59s0f0np0");
        // Of the other port, the vectors are not in the list.
        assert_eq!(of.vectors.len(), 3);
        let first = vector(&of, "mlx5_comp0@pci:0000:3b:00.0");
        assert_eq!((first.queue, first.rx, first.tx), (Some(0), true, true));
        assert_eq!(first.rx_packets_per_interrupt, Some(64.0));
        assert_eq!(vector(&of, "mlx5_async0@pci:0000:3b:00.0").queue, None);
        // A queue without an interrupt has no ratio.
        let idle = vector(&of, "mlx5_comp1@pci:0000:3b:00.0");
        assert_eq!((idle.interrupts, idle.rx_packets_per_interrupt), (0, None));
        assert_eq!(of.rx_packets_per_interrupt, Some(64.0));
    }

    #[test]
    fn virtio_has_a_vector_for_each_direction() {
        let of = between("virtio_net", "eth0");
        let input = vector(&of, "virtio2-input.0");
        assert_eq!((input.rx, input.tx, input.queue), (true, false, Some(0)));
        // The driver does not count by queue, but there is one only.
        assert_eq!(input.rx_packets, Some(10_007));
        assert_eq!(input.tx_packets, None);
        assert_eq!(input.rx_packets_per_interrupt, Some(10_007.0 / 5_003.0));
        assert_eq!(vector(&of, "virtio2-output.0").tx_packets_per_interrupt, Some(3.0));
        assert_eq!(vector(&of, "virtio2-config").queue, None);
        assert_eq!(of.tx_packets_per_interrupt, Some(3.0));
    }

    #[test]
    fn ena_counts_its_queues_by_other_names() {
        let of = between("ena", "ens5");
        let second = vector(&of, "ens5-Tx-Rx-1");
        assert_eq!((second.queue, second.rx, second.tx), (Some(1), true, true));
        assert_eq!(second.rx_packets_per_interrupt, Some(11.0));
        assert_eq!(vector(&of, "ena-mgmnt@pci:0000:00:05.0").queue, None);
        assert_eq!(of.vectors.len(), 3);
    }

    #[test]
    fn without_a_vector_there_is_a_reason() {
        let (before, mut after) = (Device::default(), Device::default());
        after.packets = Counters { rx_packets: 7, tx_packets: 5, ..Counters::default() };
        let lo = device("lo", (&before, &after), (&[], &[]), 1.0);
        assert_eq!((lo.rx_packets, lo.interrupts, lo.rx_packets_per_interrupt), (7, None, None));
        assert!(lo.reason.unwrap().contains("virtual device"));
        after.irqs = Some(Vec::new());
        let unknown = device("eth0", (&before, &after), (&[], &[]), 1.0);
        assert!(unknown.reason.unwrap().contains("cannot be distinguished"));
    }

    #[test]
    fn queues_that_nobody_counts_have_a_reason() {
        let text = |a, b| {
            format!(
                "CPU0\n 38: {a} MSI 1-edge virtio0-input.0\n 40: {b} MSI 3-edge virtio0-input.1\n"
            )
        };
        let known = |received| Device {
            packets: Counters { rx_packets: received, ..Counters::default() },
            irqs: Some(vec![38, 40]),
            ..Device::default()
        };
        let lines = (parse(&text(0, 0)), parse(&text(7, 3)));
        let of = device("eth0", (&known(0), &known(30)), (&lines.0, &lines.1), 1.0);
        assert_eq!(of.rx_packets_per_interrupt, Some(3.0));
        assert!(of.vectors.iter().all(|vector| vector.rx_packets_per_interrupt.is_none()));
        assert!(of.reason.unwrap().contains("does not count packets by queue"));
    }

    #[test]
    fn one_interrupt_is_for_everything() {
        let text =
            |count| format!("CPU0\n 16: {count} IO-APIC 16-fasteoi enp0s25, ehci_hcd:usb1\n");
        let known = |received| Device {
            packets: Counters { rx_packets: received, ..Counters::default() },
            irqs: Some(Vec::new()),
            ..Device::default()
        };
        let of =
            device("enp0s25", (&known(0), &known(33)), (&parse(&text(0)), &parse(&text(11))), 1.0);
        assert_eq!(of.vectors[0].rx_packets_per_interrupt, Some(3.0));
        assert_eq!(of.tx_packets_per_interrupt, Some(0.0));
    }

    #[test]
    fn handlers_say_what_they_are_for() {
        let both = |queue| Some(Role { queue, rx: true, tx: true });
        for (name, expected) in [
            ("i40e-eth2-TxRx-17", both(17)),
            ("iavf-eth0-TxRx-0", both(0)),
            ("vif0-q3-rx", Some(Role { queue: 3, rx: true, tx: false })),
            ("eth0-tx-2", Some(Role { queue: 2, rx: false, tx: true })),
            ("virtio0-output.1", Some(Role { queue: 1, rx: false, tx: true })),
            ("virtio1-req.0", None),
            ("eth0", None),
            ("nvme0q3", None),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }
}
