//! Interrupts, softirqs and how packets were fetched.

use std::io::{self, Write};

use wirecost_model::observe::{
    DeviceInterrupts, InterruptRow, InterruptsSection, NapiRow, SoftnetRow,
};

use super::columns::{Table, number, text};
use super::quantity::{count, or_dash, percent};
use super::{Look, note, slices};

/// Rows of a table; the others are said to be there.
const ROWS: usize = 12;
/// Vectors of a device that are shown.
const VECTORS: usize = 8;

/// Writes the section; `of` says of whom, where that is in doubt.
pub fn write(
    out: &mut dyn Write,
    section: &InterruptsSection,
    of: &str,
    look: &Look,
) -> io::Result<()> {
    let all = format!("interrupts{of}");
    handled(
        out,
        &all,
        "module",
        &section.interrupts,
        section.interrupts_per_second,
        section,
        look,
    )?;
    handled(
        out,
        &format!("softirqs{of}"),
        "",
        &section.softirqs,
        section.softirqs_per_second,
        section,
        look,
    )?;
    devices(out, section, look)?;
    polls(out, section, look)?;
    stack(out, section, look)
}

/// The one in which most time went is the first.
fn handled(
    out: &mut dyn Write,
    title: &str,
    module: &'static str,
    rows: &[InterruptRow],
    per_second: f64,
    section: &InterruptsSection,
    look: &Look,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    // Of one CPU, as a handler runs on one at a time.
    let share = |seconds: f64| percent(seconds * 100.0 / section.seconds.max(f64::MIN_POSITIVE));
    let part = |part: f64, whole: f64| percent(part * 100.0 / whole.max(f64::MIN_POSITIVE));
    let us = |us: f64| format!("{us:.2}");
    let mut table = Table::new(&[
        text(if module.is_empty() { "softirq" } else { "interrupt" }, 0),
        text("handler", 1),
        text(module, 5),
        number("count", 0),
        number("/s", 2),
        number("avg us", 0),
        number("max us", 1),
        number("% of a CPU", 0),
        number("idle%", 3),
        number("ksoftirqd%", 4),
    ]);
    let timed = rows.iter().filter_map(|row| row.total.seconds).reduce(|a, b| a + b);
    // Where nothing was timed the columns say nothing.
    let of_timed = |cell: String| if timed.is_some() { cell } else { String::new() };
    let mut row = |source: &str, name: &str, row: &InterruptRow| {
        let total = &row.total;
        let of_it = |of: Option<f64>| Some((of?, total.seconds?));
        table.row(vec![
            source.to_owned(),
            if name == source { "" } else { name }.to_owned(),
            row.module.clone().unwrap_or_default(),
            count(total.count),
            count(row.per_second.round() as u64),
            of_timed(or_dash(total.average_us, us)),
            of_timed(or_dash(total.max_us, us)),
            of_timed(or_dash(total.seconds, share)),
            of_timed(or_dash(of_it(total.in_idle), |(of, whole)| part(of, whole))),
            of_timed(or_dash(of_it(total.in_ksoftirqd), |(of, whole)| part(of, whole))),
        ]);
    };
    for of in rows.iter().take(ROWS) {
        row(&of.source, &of.name, of);
    }
    writeln!(out)?;
    table.write(out, look)?;
    let mut all = format!("{title}: {} /s", count(per_second.round() as u64));
    if let Some(timed) = timed {
        all += &format!(", {}% of a CPU", share(timed));
    }
    if rows.len() > ROWS {
        all += &format!("; {} more are not shown", rows.len() - ROWS);
    }
    note(out, look, &all)
}

fn devices(out: &mut dyn Write, section: &InterruptsSection, look: &Look) -> io::Result<()> {
    if section.devices.is_empty() {
        return Ok(());
    }
    let ratio = |ratio: f64| format!("{ratio:.2}");
    let per_second =
        |of: u64| count((of as f64 / section.seconds.max(f64::MIN_POSITIVE)).round() as u64);
    let mut table = Table::new(&[
        text("device, vector", 0),
        number("queue", 3),
        number("interrupts/s", 0),
        number("rx packets/s", 1),
        number("tx packets/s", 1),
        number("rx/interrupt", 0),
        number("tx/interrupt", 0),
    ]);
    for device in &section.devices {
        table.row(vec![
            device.device.clone(),
            String::new(),
            or_dash(device.interrupts, per_second),
            per_second(device.rx_packets),
            per_second(device.tx_packets),
            or_dash(device.rx_packets_per_interrupt, ratio),
            or_dash(device.tx_packets_per_interrupt, ratio),
        ]);
        let busy = device.vectors.iter().filter(|vector| vector.interrupts > 0).take(VECTORS);
        for vector in busy {
            table.row(vec![
                format!("  {}", vector.name),
                vector.queue.map_or_else(String::new, |queue| queue.to_string()),
                count(vector.per_second.round() as u64),
                or_dash(vector.rx_packets, per_second),
                or_dash(vector.tx_packets, per_second),
                or_dash(vector.rx_packets_per_interrupt, ratio),
                or_dash(vector.tx_packets_per_interrupt, ratio),
            ]);
        }
    }
    writeln!(out)?;
    table.write(out, look)?;
    for (reason, devices) in reasons(&section.devices) {
        note(out, look, &format!("{}: {reason}", devices.join(", ")))?;
    }
    Ok(())
}

/// Devices by why a figure of theirs is missing.
fn reasons(devices: &[DeviceInterrupts]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for device in devices {
        let Some(reason) = device.reason.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(&device.device),
            None => reasons.push((reason, vec![&device.device])),
        }
    }
    reasons
}

fn polls(out: &mut dyn Write, section: &InterruptsSection, look: &Look) -> io::Result<()> {
    let Some(rows) = section.napi.as_ref().filter(|rows| !rows.is_empty()) else { return Ok(()) };
    let mut table = Table::new(&[
        text("NAPI", 0),
        number("polls", 0),
        number("polls/s", 3),
        number("packets", 1),
        number("packets/poll", 0),
        number("empty", 2),
        number("budget exhausted", 0),
    ]);
    let name = |row: &NapiRow| match (&row.device, row.id) {
        (Some(device), Some(id)) => format!("{device} ({id})"),
        (Some(device), None) => device.clone(),
        (None, _) => "backlog".to_owned(),
    };
    let watched = section.napi_slices.map_or(section.seconds, |slices| slices.seconds);
    for row in rows.iter().take(ROWS) {
        let per_second = row.polls as f64 / watched.max(f64::MIN_POSITIVE);
        table.row(vec![
            name(row),
            count(row.polls),
            count(per_second.round() as u64),
            count(row.packets),
            or_dash(row.packets_per_poll, |ratio| format!("{ratio:.2}")),
            count(row.empty),
            count(row.budget_exhausted),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)?;
    slices(out, section.napi_slices, look)
}

/// What goes wrong when too much comes, on one line.
fn stack(out: &mut dyn Write, section: &InterruptsSection, look: &Look) -> io::Result<()> {
    let SoftnetRow { dropped, time_squeezed, received_rps, .. } = &section.softnet_total;
    let mut line = format!(
        "stack: {} packets, {} dropped for a full backlog, NET_RX out of budget or time {} times, {} \
         wake-ups by RPS",
        count(section.softnet_total.processed),
        count(*dropped),
        count(*time_squeezed),
        count(*received_rps),
    );
    if let Some(used) = &section.ksoftirqd {
        let share = used.seconds * 100.0 / section.seconds.max(f64::MIN_POSITIVE);
        line += &format!("; ksoftirqd: {}% of a CPU", percent(share));
        if let Some(share) = used.share {
            line += &format!(", {}% of softirq time", percent(share * 100.0));
        }
    }
    note(out, look, &line)?;
    for missing in &section.missing {
        note(out, look, &format!("not measured: {missing}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{DeviceVector, Handled, KsoftirqdUse};

    use super::*;

    fn row(source: &str, name: &str, count: u64, seconds: Option<f64>) -> InterruptRow {
        InterruptRow {
            source: source.to_owned(),
            name: name.to_owned(),
            module: (source == "38").then(|| "virtio_net".to_owned()),
            per_second: count as f64 / 2.0,
            total: Handled {
                cpu: None,
                count,
                seconds,
                average_us: seconds.map(|seconds| seconds * 1e6 / count as f64),
                max_us: seconds.map(|_| 61.25),
                in_idle: seconds.map(|seconds| seconds / 4.0),
                in_ksoftirqd: seconds.map(|_| 0.0),
                histogram_ns: None,
            },
            per_cpu: Vec::new(),
        }
    }

    fn section() -> InterruptsSection {
        let vector = DeviceVector {
            source: "38".to_owned(),
            name: "virtio2-input.0".to_owned(),
            queue: Some(0),
            rx: true,
            tx: false,
            interrupts: 5003,
            per_second: 2501.5,
            rx_packets: Some(10_007),
            tx_packets: None,
            rx_packets_per_interrupt: Some(2.0),
            tx_packets_per_interrupt: None,
        };
        let virtual_device = |name: &str| DeviceInterrupts {
            device: name.to_owned(),
            rx_packets: 200_003,
            tx_packets: 200_003,
            reason: Some("a virtual device: packets come to it without an interrupt".to_owned()),
            ..DeviceInterrupts::default()
        };
        InterruptsSection {
            source: "bpf".to_owned(),
            seconds: 2.0,
            cpus: 2,
            interrupts: vec![
                row("38", "virtio2-input.0", 5003, Some(0.0105)),
                row("LOC", "Local timer interrupts", 1009, Some(0.0021)),
                row("NMI", "Non-maskable interrupts", 3, None),
            ],
            interrupts_per_second: 3007.5,
            softirqs: vec![row("net_rx", "net_rx", 210_011, Some(0.402))],
            softirqs_per_second: 105_005.5,
            napi_slices: None,
            devices: vec![
                DeviceInterrupts {
                    device: "eth0".to_owned(),
                    rx_packets: 10_007,
                    tx_packets: 3_001,
                    interrupts: Some(5003),
                    rx_packets_per_interrupt: Some(2.0),
                    tx_packets_per_interrupt: None,
                    reason: Some("no interrupt for sent packets came in the window".to_owned()),
                    vectors: vec![vector],
                },
                virtual_device("lo"),
                virtual_device("veth0"),
            ],
            napi: Some(vec![
                NapiRow {
                    polls: 200_003,
                    packets: 200_003,
                    packets_per_poll: Some(1.0),
                    ..NapiRow::default()
                },
                NapiRow {
                    device: Some("eth0".to_owned()),
                    id: Some(8193),
                    polls: 5003,
                    packets: 10_007,
                    packets_per_poll: Some(2.0002),
                    empty: 7,
                    budget_exhausted: 1,
                    ..NapiRow::default()
                },
            ]),
            softnet: Vec::new(),
            softnet_total: SoftnetRow { processed: 210_010, dropped: 5, ..SoftnetRow::default() },
            ksoftirqd: Some(KsoftirqdUse {
                seconds: 0.02,
                softirq_seconds: Some(0.0402),
                share: Some(0.1),
            }),
            unmatched: Some(0),
            missing: vec!["times of interrupts for which the kernel has no tracepoint".to_owned()],
        }
    }

    fn shown(section: &InterruptsSection, of: &str, width: usize) -> String {
        let mut out = Vec::new();
        write(&mut out, section, of, &Look::plain(width)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn all_tables() {
        insta::assert_snapshot!(shown(&section(), "", 120));
    }

    #[test]
    fn what_was_only_counted_has_no_times_and_a_reason() {
        let mut counted = section();
        counted.source = "proc".to_owned();
        counted.napi = None;
        counted.devices.truncate(0);
        for row in counted.interrupts.iter_mut().chain(&mut counted.softirqs) {
            row.total = Handled { count: row.total.count, ..Handled::default() };
        }
        counted.missing = vec!["times: no BPF here".to_owned()];
        insta::assert_snapshot!(shown(&counted, " of server", 80));
    }

    #[test]
    fn nothing_is_a_line() {
        let text = shown(&InterruptsSection::default(), "", 80);
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 2, "{text}");
    }
}
