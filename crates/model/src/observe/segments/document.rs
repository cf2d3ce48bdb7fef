//! How much was handed to each device at once, and by whom.

use crate::document::{Axis, Cell, Chart, Column, Sample, Section, Series, Table};
use crate::metric::Unit;
use crate::observe::{
    Bucket, DeviceSegments, SegmentSizes, SegmentsSection, TransmitContext, TransmitShare,
};
use crate::units::{bytes, count};

/// Who shares, in the order of the columns.
const CONTEXTS: [TransmitContext; 5] = [
    TransmitContext::Writer,
    TransmitContext::Reader,
    TransmitContext::AckClock,
    TransmitContext::Worker,
    TransmitContext::Other,
];

pub(super) fn sections(of: &SegmentsSection) -> Vec<Section> {
    let mut section = Section::named("segments", "Segments");
    if of.devices.is_empty() {
        section.text("no packet passed a device");
        return vec![section];
    }
    section.table(sizes(of));
    let contexts = transmit_contexts(of);
    if !contexts.rows.is_empty() {
        section.table(contexts);
    }
    if let Some(chart) = over_time(of) {
        section.chart(chart);
    }
    section.blocks.extend(crate::observe::slices(of.slices));
    if of.uncounted_packets > 0 {
        let number = count(of.uncounted_packets);
        section.note(format!("{number} packets of further devices were not counted"));
    }
    vec![section]
}

fn sizes(of: &SegmentsSection) -> Table {
    let mut table = Table::new([
        Column::text("device"),
        Column::text(""),
        Column::number("packets").drop_order(1),
        Column::number("average"),
        Column::number("by bytes").drop_order(2),
        Column::number("seg/packet"),
        Column::number("at cap%"),
        Column::number("cap").drop_order(4),
        Column::number("p50").drop_order(3),
        Column::number("p90").drop_order(5),
        Column::number("bytes").drop_order(2),
    ]);
    for device in &of.devices {
        let directions = [("sent", Some(&device.sent)), ("received", device.received.as_ref())];
        for (direction, sizes) in directions {
            if let Some(sizes) = sizes.filter(|sizes| sizes.packets > 0) {
                table.row(row(device, direction, sizes));
            }
        }
    }
    table
}

fn row(device: &DeviceSegments, direction: &str, sizes: &SegmentSizes) -> Vec<Cell> {
    let segments = |average| Cell::written(Unit::Ratio, average, format!("{average:.1}"));
    vec![
        Cell::text(device.device.as_str()),
        Cell::text(direction),
        Cell::count(sizes.packets),
        Cell::or_dash(sizes.average_bytes, |average| Cell::number(Unit::Bytes, average)),
        Cell::or_dash(sizes.average_bytes_by_bytes, |average| Cell::number(Unit::Bytes, average)),
        Cell::or_dash(sizes.average_segments, segments),
        Cell::or_dash(sizes.percent_at_cap, Cell::percent),
        Cell::bytes(sizes.cap_ipv4_bytes.into()),
        Cell::or_dash(quantile(&sizes.lengths, 0.5), at_least),
        Cell::or_dash(quantile(&sizes.lengths, 0.9), at_least),
        Cell::bytes(sizes.bytes),
    ]
}

fn at_least(from: u64) -> Cell {
    Cell::written(Unit::Bytes, from as f64, format!(">={}", bytes(from)))
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

/// Average size of what each device was handed, over the window.
fn over_time(of: &SegmentsSection) -> Option<Chart> {
    let series = of.devices.iter().map(|device| {
        let samples = device.sent.intervals.iter().filter_map(|interval| {
            Some(Sample { x: interval.end_seconds * 1e6, y: interval.average_bytes? })
        });
        Series::new(&device.device, samples.collect())
    });
    let series: Vec<Series> = series.filter(|series| series.samples.len() > 1).collect();
    (!series.is_empty())
        .then(|| Chart::over_time("", Axis::new("average sent", Unit::Bytes), series))
}

/// Percent of packets by who handed them over, data and acknowledgements apart.
fn transmit_contexts(of: &SegmentsSection) -> Table {
    let mut table = Table::new([
        Column::text("device"),
        Column::text("sent"),
        Column::number("packets").drop_order(2),
        Column::number("writer%"),
        Column::number("reader%"),
        Column::number("ACK clock%"),
        Column::number("worker%"),
        Column::number("other%").drop_order(3),
    ]);
    for device in &of.devices {
        for (kind, shares) in
            [("data", &device.transmit_contexts), ("ACKs", &device.transmit_contexts_acks)]
        {
            if shares.is_empty() {
                continue;
            }
            let packets = shares.iter().map(|share| share.packets).sum();
            let mut cells =
                vec![Cell::text(device.device.as_str()), Cell::text(kind), Cell::count(packets)];
            cells.extend(CONTEXTS.iter().map(|&by| Cell::percent(share(shares, by))));
            table.row(cells);
        }
    }
    table
}

fn share(shares: &[TransmitShare], by: TransmitContext) -> f64 {
    shares.iter().find(|share| share.by == by).map_or(0.0, |share| share.percent_packets)
}
