//! How much was handed to each device at once, and by whom.

use std::io::{self, Write};

use wirecost_model::observe::{
    Bucket, DeviceSegments, Drain, Drainer, SegmentSizes, SegmentsSection,
};

use super::columns::{Table, number, text};
use super::look::Look;
use super::quantity::{bytes, count, or_dash, percent};
use super::{figure, slices};

/// Who drains, in the order of the columns.
const DRAINERS: [Drainer; 5] =
    [Drainer::Writer, Drainer::Reader, Drainer::AckClock, Drainer::Worker, Drainer::Other];

/// Intervals that are shown.
const SHOWN: usize = 8;

/// Writes the section of one host.
pub fn write(out: &mut dyn Write, section: &SegmentsSection, look: &Look) -> io::Result<()> {
    if section.devices.is_empty() {
        return writeln!(out, "  no packet passed a device");
    }
    sizes(out, section, look)?;
    drained(out, section, look)?;
    over_time(out, section, look)?;
    slices(out, section.slices, look)?;
    if section.uncounted_packets > 0 {
        let number = count(section.uncounted_packets);
        writeln!(out, "  {number} packets of further devices were not counted")?;
    }
    Ok(())
}

fn sizes(out: &mut dyn Write, section: &SegmentsSection, look: &Look) -> io::Result<()> {
    let mut table = Table::new(&[
        text("device", 0),
        text("", 0),
        number("packets", 1),
        number("average", 0),
        number("seg/packet", 0),
        number("at cap%", 0),
        number("cap", 4),
        number("p50", 3),
        number("p90", 5),
        number("bytes", 2),
    ]);
    for device in &section.devices {
        let directions = [("sent", Some(&device.sent)), ("received", device.received.as_ref())];
        for (direction, sizes) in directions {
            if let Some(sizes) = sizes.filter(|sizes| sizes.packets > 0) {
                table.row(row(device, direction, sizes));
            }
        }
    }
    table.write(out, look)
}

fn row(device: &DeviceSegments, direction: &str, sizes: &SegmentSizes) -> Vec<String> {
    vec![
        device.device.clone(),
        direction.to_owned(),
        count(sizes.packets),
        or_dash(sizes.average_bytes, |average| bytes(average.round() as u64)),
        or_dash(sizes.average_segments, |average| format!("{average:.1}")),
        or_dash(sizes.percent_at_cap, percent),
        bytes(sizes.cap_ipv4_bytes.into()),
        or_dash(quantile(&sizes.lengths, 0.5), at_least),
        or_dash(quantile(&sizes.lengths, 0.9), at_least),
        bytes(sizes.bytes),
    ]
}

fn at_least(from: u64) -> String {
    format!(">={}", bytes(from))
}

/// Lower end of the bucket that a share of all packets reaches to.
fn quantile(buckets: &[Bucket], share: f64) -> Option<u64> {
    let all: u64 = buckets.iter().map(|bucket| bucket.packets).sum();
    let mut passed = 0;
    buckets
        .iter()
        .find(|bucket| {
            passed += bucket.packets;
            passed > 0 && passed as f64 >= all as f64 * share
        })
        .map(|bucket| bucket.from)
}

/// Average size of what the busiest device was handed, one interval after the other.
fn over_time(out: &mut dyn Write, section: &SegmentsSection, look: &Look) -> io::Result<()> {
    let Some(device) = section.devices.first() else { return Ok(()) };
    let averages: Vec<f64> =
        device.sent.intervals.iter().filter_map(|interval| interval.average_bytes).collect();
    if averages.len() < 2 {
        return Ok(());
    }
    // Of many, some at equal distances.
    let every = averages.len().div_ceil(SHOWN);
    let shown = averages.iter().step_by(every).map(|average| bytes(average.round() as u64));
    let which = if every == 1 { String::new() } else { format!(" (each {every}th interval)") };
    writeln!(out)?;
    let text = format!("{}{which}", shown.collect::<Vec<_>>().join(", "));
    figure(out, look, &format!("{} average", device.device), &text)
}

/// Percent of packets by who handed them over, data and acknowledgements apart.
fn drained(out: &mut dyn Write, section: &SegmentsSection, look: &Look) -> io::Result<()> {
    let mut table = Table::new(&[
        text("device", 0),
        text("drained", 0),
        number("packets", 2),
        number("writer%", 0),
        number("reader%", 0),
        number("ACK clock%", 0),
        number("worker%", 0),
        number("other%", 3),
    ]);
    let mut any = false;
    for device in &section.devices {
        for (kind, drains) in [("data", &device.drained), ("ACKs", &device.drained_acks)] {
            if drains.is_empty() {
                continue;
            }
            any = true;
            let packets = drains.iter().map(|drain| drain.packets).sum();
            let mut cells = vec![device.device.clone(), kind.to_owned(), count(packets)];
            cells.extend(DRAINERS.iter().map(|&by| percent(share(drains, by))));
            table.row(cells);
        }
    }
    if any {
        writeln!(out)?;
        table.write(out, look)?;
    }
    Ok(())
}

fn share(drains: &[Drain], by: Drainer) -> f64 {
    drains.iter().find(|drain| drain.by == by).map_or(0.0, |drain| drain.percent_packets)
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{SegmentInterval, Slices};

    use super::*;

    fn example() -> SegmentsSection {
        let sizes = SegmentSizes {
            packets: 1000,
            bytes: 40_426_000,
            segments: 27_900,
            average_bytes: Some(40_426.0),
            average_segments: Some(27.9),
            percent_at_cap: Some(12.34),
            cap_ipv4_bytes: 65536,
            intervals: [40_426, 40_760, 40_530]
                .map(|average| SegmentInterval {
                    end_seconds: 5.0,
                    packets: 10,
                    bytes: average * 10,
                    segments: 10,
                    average_bytes: Some(average as f64),
                })
                .to_vec(),
            lengths: vec![
                Bucket { from: 1024, packets: 400 },
                Bucket { from: 32768, packets: 600 },
            ],
            ..SegmentSizes::default()
        };
        let drain = |by, packets: u64, all: u64| Drain {
            by,
            packets,
            bytes: packets,
            percent_packets: packets as f64 * 100.0 / all as f64,
            percent_bytes: packets as f64 * 100.0 / all as f64,
            contexts: Vec::new(),
        };
        SegmentsSection {
            slices: Some(Slices { count: 40, seconds: 2.0, percent: 20.0 }),
            devices: vec![DeviceSegments {
                device: "eth0".to_owned(),
                ifindex: 2,
                sent: sizes,
                received: Some(SegmentSizes::default()),
                gso_max_segments: 65535,
                drained: vec![
                    drain(Drainer::Writer, 120, 1000),
                    drain(Drainer::AckClock, 880, 1000),
                ],
                drained_acks: Vec::new(),
                control_packets: 2,
            }],
            uncounted_packets: 0,
        }
    }

    #[test]
    fn a_device_has_a_row_of_sizes_and_one_of_who_drained() {
        let mut out = Vec::new();
        write(&mut out, &example(), &Look::plain(100)).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn without_packets_it_says_so() {
        let mut out = Vec::new();
        write(&mut out, &SegmentsSection::default(), &Look::plain(80)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  no packet passed a device\n");
    }
}
