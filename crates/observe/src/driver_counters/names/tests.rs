//! Outputs of `ethtool -S` of each driver: its names, in its order, and numbers that are all different.

use std::fmt::Write;

use super::super::{Statistics, meaning, translated};
use super::*;

fn statistics(fixture: &str) -> Statistics {
    let path = format!("src/driver_counters/fixtures/{fixture}");
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (name, count) = line.trim().rsplit_once(": ")?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// What a device counts, a line for each queue and for the whole device.
fn told(fixture: &str) -> String {
    let driver = fixture.split('-').next();
    let mut text = String::new();
    for ((direction, queue), of) in translated(driver, &statistics(fixture)) {
        let mut parts = Vec::new();
        parts.extend(of.packets.map(|packets| format!("{packets} packets")));
        parts.extend(of.bytes.map(|bytes| format!("{bytes} bytes")));
        parts.extend(of.pause.map(|frames| format!("{frames} pause")));
        let dropped = of.drops.iter().filter(|(_, count)| **count > 0);
        parts.extend(dropped.map(|(kind, count)| format!("{} {count}", kind.words())));
        let queue = queue.map_or_else(String::new, |queue| format!(" {queue}"));
        writeln!(text, "{direction}{queue}: {}", parts.join(", ")).unwrap();
    }
    text
}

#[test]
fn igb() {
    let expected = "\
rx: 41 pause, missed 11, error 3
rx 0: 2000 packets, 256000 bytes, no buffer 4
rx 1: 3000 packets, 384000 bytes, no buffer 5, allocation failed 1
tx: 11 pause
tx 0: 100 packets, 7000 bytes
tx 1: 200 packets, 14000 bytes
";
    assert_eq!(told("igb"), expected);
}

#[test]
fn e1000e() {
    let expected = "\
rx: 5 pause, missed 5, allocation failed 4
tx: 0 pause
";
    assert_eq!(told("e1000e"), expected);
}

#[test]
fn ixgbe() {
    let expected = "\
rx: 300 pause, no buffer 17, missed 31, allocation failed 7
rx 0: 2000 packets, 256000 bytes
rx 1: 3000 packets, 384000 bytes
tx: 3 pause
tx 0: 200 packets, 12800 bytes
tx 1: 300 packets, 19200 bytes
";
    assert_eq!(told("ixgbe"), expected);
}

#[test]
fn i40e() {
    let expected = "\
rx: 21 pause, missed 6, allocation failed 5, error 1, unspecified 8
rx 0: 400 packets, 40000 bytes
rx 1: 500 packets, 50000 bytes
tx: 25 pause, link down 5, unspecified 1
tx 0: 40 packets, 4000 bytes
tx 1: 50 packets, 5000 bytes
";
    assert_eq!(told("i40e"), expected);
}

#[test]
fn ice() {
    let expected = "\
rx: 21 pause, no buffer 8, missed 6, allocation failed 5, error 4
rx 0: 400 packets, 40000 bytes
rx 1: 500 packets, 50000 bytes
tx: 25 pause, link down 5
tx 0: 40 packets, 4000 bytes
tx 1: 50 packets, 5000 bytes
";
    assert_eq!(told("ice"), expected);
}

#[test]
fn mlx5() {
    let expected = "\
rx: 4096 pause, no buffer 17, missed 83
rx 0: 500 packets, 50000 bytes, allocation failed 2, XDP 4
rx 1: 1000 packets, 100000 bytes, allocation failed 3, error 1, XDP 5
tx: 8 pause, unspecified 2
tx 0: 300 packets, 30000 bytes
tx 1: 400 packets, 40000 bytes, unspecified 6
";
    assert_eq!(told("mlx5_core"), expected);
}

#[test]
fn bnxt() {
    let expected = "\
rx: 12 pause, missed 44
rx 0: 105 packets, 10500 bytes, no buffer 6
rx 1: 205 packets, 20500 bytes, no buffer 7, error 1, unspecified 5
tx: 9 pause
tx 0: 52 packets, 5200 bytes
tx 1: 102 packets, 10200 bytes, unspecified 2
";
    assert_eq!(told("bnxt_en"), expected);
}

#[test]
fn ena() {
    let expected = "\
rx: rate limit 26
rx 0: 900 packets, 90000 bytes, allocation failed 1
rx 1: 901 packets, 90100 bytes, allocation failed 3, XDP 2
tx: rate limit 19
tx 0: 90 packets, 9000 bytes
tx 1: 91 packets, 9100 bytes
";
    assert_eq!(told("ena"), expected);
}

#[test]
fn gve() {
    let expected = "\
rx 0: 70000 bytes, no buffer 2, missed 5, error 2
rx 1: 80000 bytes, no buffer 3, missed 6, error 2
tx 0: 7000 bytes
tx 1: 8000 bytes, allocation failed 1
";
    assert_eq!(told("gve"), expected);
}

#[test]
fn virtio_net_before_and_since_its_counters_became_the_kernels() {
    let before = "\
rx 0: 70 packets, 7000 bytes, unspecified 3
rx 1: 71 packets, 7100 bytes, XDP 1, unspecified 4
tx 0: 60 packets, 6000 bytes
tx 1: 61 packets, 6100 bytes, XDP 2
";
    assert_eq!(told("virtio_net-6.1"), before);
    let since = "\
rx 0: unspecified 3
rx 1: XDP 1, unspecified 4
tx 0: 
tx 1: XDP 2
";
    assert_eq!(told("virtio_net-6.18"), since);
}

#[test]
fn veth() {
    let expected = "\
rx 0: 20 packets, 2000 bytes
rx 1: 21 packets, 2100 bytes, unspecified 1
tx 0: 
tx 1: 
";
    assert_eq!(told("veth"), expected);
}

#[test]
fn names_have_one_meaning_and_drivers_one_family() {
    let mut drivers: Vec<&str> = FAMILIES.iter().flat_map(|of| of.drivers).copied().collect();
    drivers.sort_unstable();
    let all = drivers.len();
    drivers.dedup();
    assert_eq!(drivers.len(), all);
    for family in FAMILIES {
        for rule in family.rules {
            let name = rule.name.replace('#', "12");
            let read: Vec<_> = family.rules.iter().filter_map(|rule| rule.read(&name)).collect();
            assert_eq!(read.len(), 1, "{name}: {read:?}");
            let queue = rule.name.contains('#').then_some(12);
            assert_eq!((read[0].queue, read[0].what), (queue, rule.what), "{name}");
        }
    }
    assert_eq!(meaning(Some("igb"), "rx_queue_+1_packets"), None);
    assert_eq!(meaning(Some("igb"), "rx_queue__packets"), None);
    assert_eq!(meaning(Some("igb"), "rx_queue_99999999999_packets"), None);
}
