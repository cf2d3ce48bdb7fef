//! What receiving asks of interrupts: NTttcp's lines, softirqs and interrupts by handler, CPU by process,
//! and what a line rate would ask for. After "Mainstream NUMA and the TCP/IP stack: Part I" (Microsoft,
//! 2008), where a softirq is called DPC and an interrupt ISR.

mod equations;

use std::collections::BTreeSet;

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_model::document::{
    Align::{self, Left, Right},
    Block, Cell, Section, Table,
};
use wirecost_model::link::nic::{DeviceCounts, QueueCounts};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{CpuTime, CpuUser, HostObservation, InterruptRow, InterruptsSection};
use wirecost_model::run::Run;
use wirecost_model::study::Value;

use super::cells::{
    at, count, ends, estimate, estimated, figure, first, grouped, known, label, name, number, of,
    scaled, sentence, table, text,
};
use super::rows::{Rows, other_axes};

/// A smaller part of the wall has no row of its own.
const LEAST: f64 = 0.000_5;
/// Rows of the table of processes.
const PROCESSES: usize = 12;

pub(super) struct InterruptCost;

impl super::Table for InterruptCost {
    fn name(&self) -> &'static str {
        "interrupt-cost"
    }

    fn help(&self) -> &'static str {
        "cost of interrupts and softirqs, and CPUs that a line rate would need"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }
}

fn build(measured: &Measurements) -> Section {
    // Of the two the last is the one that receives.
    let end = ends(measured, ["sender", "receiver"]).pop().flatten();
    let whose = end.unwrap_or("all hosts together");
    let mut blocks = vec![
        Block::Table(lines(measured, end, whose)),
        sentence(
            "KB is 1000 bytes. A frame is the payload of a packet as the devices count packets: \
             between devices of one machine a packet can have many segments.",
        ),
    ];
    blocks.extend(coalescing(measured, end, whose));
    for point in without_coalescing(measured) {
        let name = name(measured, point);
        let section = first(point).and_then(|run| Scope::find(run, end)?.interrupts());
        let handlers = |rows: fn(&InterruptsSection) -> &[InterruptRow], title: &str| {
            let section = section.as_ref().map_err(Clone::clone);
            Block::Table(handlers(&format!("{title}, {whose}, {name}"), section.copied(), rows))
        };
        blocks.push(handlers(|section| &section.softirqs, "Softirqs (DPC)"));
        blocks.push(handlers(|section| &section.interrupts, "Interrupts (ISR)"));
        blocks.extend(processes(&format!("CPU by process, {name}"), point));
    }
    blocks.extend(equations::build(measured, without_coalescing(measured), end));
    Section { blocks, ..Section::new("What interrupts cost") }
}

/// An axis of how long devices wait before they interrupt.
const COALESCING: &str = "coalescing";

/// Points whose devices interrupt as they do first: those of which all is shown.
fn without_coalescing(measured: &Measurements) -> impl Iterator<Item = &MeasuredPoint> {
    let first = measured.points.first().and_then(|point| point.point.get(COALESCING));
    measured.points.iter().filter(move |point| point.point.get(COALESCING) == first)
}

/// What it changes that devices wait, in a study of that.
fn coalescing(measured: &Measurements, end: Option<&str>, whose: &str) -> Vec<Block> {
    let names = [COALESCING, "lab.coalesce", "tune.coalesce.rx-usecs", "tune.coalesce.rx-frames"];
    if names.iter().all(|name| measured.values(name).len() < 2) {
        return Vec::new();
    }
    let first = Rows { columns: other_axes(measured, &[]) };
    let columns = [
        ("interrupts/s", Right),
        ("packets/interrupt", Right),
        ("dropped", Right),
        ("Throughput", Right),
        ("cycles/KByte", Right),
    ];
    let mut table = table(format!("Coalescing, {whose}"), &columns);
    table.columns.splice(0..0, first.head());
    table.common.push(Value::new("host", end.unwrap_or("all")));
    table.rows.extend(measured.points.iter().map(|point| {
        let of = |of: &dyn Fn(&Run) -> Result<f64, String>| estimate(point, of);
        let cells = vec![
            estimated(of(&|run| of_device(run, end)), Unit::PerSecond, grouped),
            estimated(of(&|run| per_interrupt(run, end)), Unit::Ratio, |v| format!("{v:.2}")),
            estimated(of(&dropped), Unit::Count, grouped),
            figure(point, "throughput"),
            scaled(point, &at(end, "cycles_per_kbyte"), 1.0, grouped),
        ];
        [first.row(point), cells].concat()
    }));
    let note = "Interrupts are those of the device that receives. Those of a lab's device with queues come                 from the emulator of links, and are no interrupts of the kernel.";
    vec![Block::Table(table), sentence(note)]
}

/// The lab's device that received most, and for how many seconds it was counted.
fn lab_device(run: &Run) -> Option<(QueueCounts, f64)> {
    let link = run.link.as_ref()?;
    let sum = |device: &DeviceCounts| {
        device.queues.iter().fold(QueueCounts::default(), |sum, queue| QueueCounts {
            received: sum.received + queue.received,
            received_bytes: sum.received_bytes + queue.received_bytes,
            dropped: sum.dropped + queue.dropped,
            interrupts: sum.interrupts + queue.interrupts,
            ..sum
        })
    };
    let most = link.devices.iter().map(sum).max_by_key(|device| device.received_bytes)?;
    Some((most, link.seconds))
}

/// Interrupts a second of the device that receives.
fn of_device(run: &Run, end: Option<&str>) -> Result<f64, String> {
    match lab_device(run) {
        Some((device, seconds)) => Ok(device.interrupts as f64 / seconds),
        // Where no packet comes with an interrupt, those of devices are of others.
        None => per_interrupt(run, end).and_then(|_| of(run, &at(end, "interrupts.device"))),
    }
}

/// Packets received for each interrupt of the device that receives.
fn per_interrupt(run: &Run, end: Option<&str>) -> Result<f64, String> {
    match lab_device(run) {
        Some((device, _)) if device.interrupts > 0 => {
            Ok(device.received as f64 / device.interrupts as f64)
        }
        Some(_) => Err("the device did not interrupt".to_owned()),
        None => of(run, &at(end, "packets_per_interrupt")),
    }
}

/// Packets that found the receive queue full.
fn dropped(run: &Run) -> Result<f64, String> {
    let device = lab_device(run).ok_or("a device without queues that the lab counts")?;
    Ok(device.0.dropped as f64)
}

/// NTttcp's report; a column for each point.
fn lines(measured: &Measurements, end: Option<&str>, whose: &str) -> Table {
    let points: Vec<&MeasuredPoint> = without_coalescing(measured).collect();
    let labels: Vec<String> = points.iter().map(|point| label(point)).collect();
    let mut columns: Vec<(&str, Align)> = vec![("Line", Left)];
    columns.extend(labels.iter().map(|label| (label.as_str(), Right)));
    let mut table = table(format!("Receiving, {whose}"), &columns);
    table.common.push(Value::new("host", end.unwrap_or("all")));
    type Show = fn(f64) -> String;
    let two: Show = |value| format!("{value:.2}");
    let lines: [(&str, String, f64, Show); 14] = [
        ("Throughput(KB/s)", "throughput".to_owned(), 1.0 / 8e3, grouped),
        ("Throughput(Mbit/s)", "throughput".to_owned(), 1e-6, grouped),
        ("Average Frame Size", at(end, "payload_per_packet"), 1.0, |v| format!("{v:.1}")),
        ("Packets Sent", at(end, "packets.sent"), 1.0, grouped),
        ("Packets Received", at(end, "packets.received"), 1.0, grouped),
        ("Packets received/Int", at(end, "packets_per_interrupt"), 1.0, two),
        ("Packets received/Int of another CPU", at(end, "packets_per_interrupt.ipi"), 1.0, two),
        ("Packets received/Int of a timer", at(end, "packets_per_interrupt.timer"), 1.0, two),
        ("Packets received/poll", at(end, "packets_per_poll"), 1.0, two),
        ("Interrupts/sec", at(end, "interrupts"), 1.0, grouped),
        ("  of devices", at(end, "interrupts.device"), 1.0, grouped),
        ("  by other CPUs (IPI)", at(end, "interrupts.ipi"), 1.0, grouped),
        (INTERRUPTS_BY_TIMERS, at(end, "interrupts.timer"), 1.0, grouped),
        ("Cycles/Byte", at(end, "cycles_per_kbyte"), 1.0 / 1024.0, two),
    ];
    for (line, metric, factor, show) in lines {
        let mut row = vec![text(line)];
        row.extend(points.iter().map(|point| scaled(point, &metric, factor, show)));
        table.rows.push(row);
        if line == INTERRUPTS_BY_TIMERS {
            let mut row = vec![text("Interrupts/softirq")];
            let ratio = |run: &Run| per_softirq(run, end);
            let of = |point| estimated(estimate(point, ratio), Unit::Ratio, two);
            row.extend(points.iter().copied().map(of));
            table.rows.push(row);
        }
    }
    table
}

const INTERRUPTS_BY_TIMERS: &str = "  of timers";

/// Interrupts over softirqs: below 1, work is put off that no interrupt announced.
fn per_softirq(run: &Run, end: Option<&str>) -> Result<f64, String> {
    let (interrupts, softirqs) = (of(run, &at(end, "interrupts"))?, of(run, &at(end, "softirqs"))?);
    match softirqs > 0.0 {
        true => Ok(interrupts / softirqs),
        false => Err("there was no softirq".to_owned()),
    }
}

/// The devices behind a softirq: those whose packets NET_RX fetched, and those that NET_TX may have sent
/// for. Others are of the kernel, or of devices that nothing here knows.
fn devices_behind(section: &InterruptsSection, row: &InterruptRow) -> Option<String> {
    match row.source.as_str() {
        "net_rx" => devices_received(section),
        "net_tx" => {
            let sent = section.devices.iter().filter(|device| device.tx_packets > 0);
            let names: Vec<&str> = sent.map(|device| device.device.as_str()).collect();
            (!names.is_empty()).then(|| names.join(", "))
        }
        _ => None,
    }
}

fn devices_received(section: &InterruptsSection) -> Option<String> {
    let polled = section.napi.iter().flatten().filter(|napi| napi.polls > 0);
    let with_napi: BTreeSet<&str> = polled.filter_map(|napi| napi.device.as_deref()).collect();
    // The others hand their packets to the backlog of a CPU.
    let received = section.devices.iter().filter(|device| device.rx_packets > 0);
    let without = received.map(|device| device.device.as_str());
    let without: Vec<&str> = without.filter(|device| !with_napi.contains(device)).collect();
    let backlog = (!without.is_empty()).then(|| format!("backlog: {}", without.join(", ")));
    let all: Vec<String> = with_napi.into_iter().map(str::to_owned).chain(backlog).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Of the first run. Most time first, as the section has them.
fn handlers(
    title: &str,
    section: Result<&InterruptsSection, String>,
    rows: fn(&InterruptsSection) -> &[InterruptRow],
) -> Table {
    let columns = [
        ("Driver or device", Left),
        ("Function", Left),
        ("Count", Right),
        ("Max [ms]", Right),
        ("Avg [ms]", Right),
        ("Duration [ms]", Right),
    ];
    let mut table = table(title, &columns);
    let section = match section {
        Ok(section) => section,
        Err(reason) => {
            table.rows.push(vec![Cell::Missing(reason); columns.len()]);
            return table;
        }
    };
    let untimed = || match section.missing.first() {
        Some(reason) => reason.clone(),
        None => "it was counted and not timed".to_owned(),
    };
    for row in rows(section) {
        let ms = |value: Option<f64>, factor: f64| {
            let value = value.map(|value| value * factor).ok_or_else(untimed);
            known(value, Unit::Ratio, |ms| format!("{ms:.6}"))
        };
        let function = match row.source == row.name {
            true => row.name.clone(),
            false => format!("{} ({})", row.name, row.source),
        };
        let module = row.module.clone().or_else(|| devices_behind(section, row));
        table.rows.push(vec![
            text(module.as_deref().unwrap_or("kernel")),
            text(function),
            count(row.total.count),
            ms(row.total.max_us, 1e-3),
            ms(row.total.average_us, 1e-3),
            ms(row.total.seconds, 1e3),
        ]);
    }
    table
}

/// Of all CPUs of the machine: a process is not of one host's. Of the first run.
fn processes(title: &str, point: &MeasuredPoint) -> Vec<Block> {
    let columns = [("Process", Left), ("CPU usage (ms)", Right), ("% CPU usage", Right)];
    let mut table = table(title, &columns);
    let usage = match first(point).and_then(usage) {
        Ok(usage) => usage,
        Err(reason) => {
            table.rows.push(vec![Cell::Missing(reason); columns.len()]);
            return vec![Block::Table(table)];
        }
    };
    table.rows.extend(usage.rows.into_iter().map(|(process, seconds)| {
        let percent = 100.0 * seconds / usage.wall;
        vec![
            text(process),
            number(1e3 * seconds, Unit::Ratio, format!("{:.3}", 1e3 * seconds)),
            number(percent, Unit::Percent, format!("{percent:.2}")),
        ]
    }));
    let note = (usage.scale < 1.0 - LEAST).then(|| {
        sentence(format!(
            "The kernel's CPU time of a process includes the interrupts that occurred while it ran. They have \
             their own row, so process times are reduced by {:.1}% to match the time of tasks.",
            100.0 * (1.0 - usage.scale)
        ))
    });
    [Block::Table(table)].into_iter().chain(note).collect()
}

/// Who used the CPUs of a machine.
struct Usage {
    /// Name and seconds. The idle CPUs first, where all are known.
    rows: Vec<(String, f64)>,
    /// Seconds that all CPUs had.
    wall: f64,
    /// What the clocks of processes were multiplied by.
    scale: f64,
}

fn usage(run: &Run) -> Result<Usage, String> {
    let machine = match Scope::find(run, None)? {
        Scope::Machine { machine, .. } => machine,
        _ => return Err("the hosts are on several machines".to_owned()),
    };
    // Every part of a machine tells of the processes of all of it.
    let section = Scope::find(run, Some(&run.hosts[0].name))?.cpu_times()?;
    if section.processes.is_empty() {
        return Err("the CPU time of processes was not read".to_owned());
    }
    let all = run.observe.iter().flat_map(|observe| &observe.hosts);
    let parts: Vec<_> =
        all.filter_map(|observed: &HostObservation| observed.cpu.as_ref()).collect();
    let knows_all =
        parts.iter().map(|cpu| cpu.per_cpu.len()).sum::<usize>() == machine.cpus as usize;
    let sum = |of: fn(&CpuTime) -> f64| parts.iter().map(|cpu| of(&cpu.total)).sum::<f64>();
    let seconds = run.observe.iter().flat_map(|observe| &observe.hosts).map(|h| h.seconds).next();
    let wall = match knows_all {
        true => sum(|time| time.wall),
        false => seconds.unwrap_or_default() * f64::from(machine.cpus),
    };
    let mut rows = Vec::new();
    let users = section.users();
    let ended = section.ended.as_ref().map_or(0.0, |ended| ended.seconds);
    let used = section.processes_total + ended;
    let (named, others) = users.split_at(users.len().min(PROCESSES));
    let idle_loop = sum(|time| time.idle_loop.unwrap_or(0.0));
    // Softirqs are what ksoftirqd is for, so they are in its clock with good reason.
    let is_ksoftirqd =
        |user: &&CpuUser<'_>| user.kernel_thread && user.name.starts_with("ksoftirqd/");
    let in_ksoftirqd = users.iter().filter(is_ksoftirqd).fold(0.0, |sum, user| sum + user.seconds);
    let (mut scale, mut of_tasks) = (1.0, used);
    if knows_all {
        let idle = sum(|time| time.idle);
        // What ksoftirqd ran is in the time of that process.
        let apart = sum(|time| time.irq + time.softirq - time.in_ksoftirqd.unwrap_or(0.0));
        rows.push(("Idle (0)".to_owned(), idle));
        rows.push(("Interrupts and softirqs".to_owned(), apart));
        // Without CONFIG_IRQ_TIME_ACCOUNTING the clock of a process runs on in interrupts, so all of them
        // together are more than the time that was left for tasks.
        of_tasks = (wall - idle - apart - idle_loop).max(in_ksoftirqd);
        if used > of_tasks {
            scale = (of_tasks - in_ksoftirqd) / (used - in_ksoftirqd);
        }
    }
    let time = |user: &CpuUser<'_>| match is_ksoftirqd(&user) {
        true => user.seconds,
        false => scale * user.seconds,
    };
    rows.extend(named.iter().map(|user| {
        let pid = user.pid.map(|pid| format!(" ({pid})")).unwrap_or_default();
        (format!("{}{pid}", user.title()), time(user))
    }));
    let of_all = in_ksoftirqd + scale * (used - in_ksoftirqd);
    let of_named = named.iter().fold(0.0, |sum, user| sum + time(user));
    let others = match others.len() {
        0 => "Other processes".to_owned(),
        _ => format!("At least {} other processes", others.len()),
    };
    let rest = [
        (others, of_all - of_named),
        ("Idle loop".to_owned(), if knows_all { idle_loop } else { 0.0 }),
        // Programs in other PID namespaces; in older records those that ended, too.
        ("Programs without a name".to_owned(), of_tasks - of_all),
    ];
    rows.extend(rest.into_iter().filter(|(_, seconds)| *seconds > LEAST * wall));
    Ok(Usage { rows, wall, scale })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wirecost_model::link::{LinkReport, LinkSpec, Topology};

    use super::super::tests::{at, fixture, near, section, value};
    use super::*;

    /// Figures by other arithmetic, of the same runs.
    #[test]
    fn the_lines_are_those_of_the_receiver() {
        let section = section("interrupt-cost", &fixture("interrupt-cost"));
        let of = |line, column| value(&section, "Receiving, receiver", line, column);
        near(of("Throughput(KB/s)", "512"), 50_226.481_857_9);
        near(of("Throughput(Mbit/s)", "64k"), 18_144.206_820_7);
        near(of("Average Frame Size", "512"), 150_679_152.0 / 163_012.0);
        assert_eq!(of("Packets Sent", "512"), 76_899.0);
        assert_eq!(of("Packets Received", "64k"), 126_224.0);
        near(of("Interrupts/sec", "512"), 31_404.455_648_9);
        near(of("Cycles/Byte", "64k"), 1.142_988_377_9);
        let why = at(&section, "Receiving, receiver", "Packets received/Int", "512");
        assert!(matches!(why, Cell::Missing(why) if why.contains("virtual device")));
    }

    /// Whose packets a softirq fetched, and what its time is compared with.
    #[test]
    fn softirqs_have_devices_and_processes_add_up_to_the_wall() {
        let measured = fixture("interrupt-cost");
        let section = section("interrupt-cost", &measured);
        let run = &measured.points[0].runs[0];
        let interrupts = Scope::find(run, Some("receiver")).unwrap().interrupts().unwrap();
        let ratio = value(&section, "Receiving, receiver", "Interrupts/softirq", "512");
        near(ratio, interrupts.interrupts_per_second / interrupts.softirqs_per_second);
        let tables = section.blocks.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        });
        let tables: Vec<&Table> = tables.collect();
        let softirqs = tables.iter().find(|table| table.title.starts_with("Softirqs (DPC)"));
        let rows = &softirqs.unwrap().rows;
        let net_rx = rows.iter().find(|row| row[1] == text("net_rx")).unwrap();
        let device = &interrupts.devices.iter().max_by_key(|d| d.rx_packets).unwrap().device;
        assert!(matches!(&net_rx[0], Cell::Text(text) if text.contains(device)), "{:?}", net_rx[0]);
        let processes = tables.iter().find(|table| table.title.starts_with("CPU by process"));
        let percent = processes.unwrap().rows.iter().map(|row| match &row[2] {
            Cell::Number(number) => number.value,
            other => panic!("{other:?}"),
        });
        let all: f64 = percent.sum();
        assert!((99.9..=100.1).contains(&all), "{all}");
        let sentences = section.blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            _ => None,
        });
        let conclusion = "a line of 10.0 Gb/s at this cost takes";
        assert_eq!(
            sentences.filter(|text| text.contains(conclusion)).count(),
            measured.points.len()
        );
    }

    /// A device of the receiver with two queues, and one that receives acknowledgements.
    fn link() -> LinkReport {
        let queue = |received, interrupts| QueueCounts {
            received,
            received_bytes: 1500 * received,
            interrupts,
            dropped: 3,
            ..QueueCounts::default()
        };
        let device = |host: &str, queues| DeviceCounts { host: host.to_owned(), pauses: 0, queues };
        LinkReport {
            topology: Topology::default(),
            link: LinkSpec::default(),
            seconds: 2.0,
            lines: Vec::new(),
            devices: vec![
                device("h1", vec![queue(50, 50)]),
                device("h2", vec![queue(4_000, 300), queue(2_000, 100)]),
            ],
            error_us: None,
            late: 0.0,
            refused: 0,
            unread: 0,
            unheld: 0,
            cpu_percent: 0.0,
            cpu_source: "bpf".to_owned(),
            cpus: BTreeMap::new(),
        }
    }

    #[test]
    fn coalescing_is_compared_and_the_rest_is_as_without_it() {
        let alone = fixture("interrupt-cost");
        let mut measured = alone.clone();
        let mut waiting = measured.points.clone();
        for point in &mut measured.points {
            point.point.axes.push(Value::new(COALESCING, "veth"));
        }
        for point in &mut waiting {
            point.point.axes.push(Value::new(COALESCING, "20us"));
            point.runs.iter_mut().for_each(|run| run.link = Some(link()));
        }
        measured.points.extend(waiting);
        let shown = section("interrupt-cost", &measured);
        let tables = |section: &Section| {
            section.blocks.iter().filter(|block| matches!(block, Block::Table(_))).count()
        };
        assert_eq!(tables(&shown), tables(&section("interrupt-cost", &alone)) + 1);
        let Some(Block::Table(table)) = shown.blocks.iter().find(
            |block| matches!(block, Block::Table(table) if table.title.starts_with("Coalescing")),
        ) else {
            panic!("{shown:?}")
        };
        let texts = |row: usize| table.rows[row][..5].iter().map(Cell::shown).collect::<Vec<_>>();
        assert_eq!(texts(0), ["512", "veth", "-", "-", "-"]);
        assert_eq!(texts(3), ["64k", "20us", "200", "15.00", "6"]);
        let why = |cell: &Cell| match cell {
            Cell::Missing(why) => why.clone(),
            other => panic!("{other:?}"),
        };
        assert!(why(&table.rows[0][2]).contains("without an interrupt"));
        assert_eq!(value(&shown, "Receiving, receiver", "Packets Sent", "512 veth"), 76_899.0);
    }

    #[test]
    fn softirqs_that_send_have_the_devices_that_sent() {
        use wirecost_model::observe::DeviceInterrupts;
        let device = |name: &str, tx_packets| DeviceInterrupts {
            device: name.to_owned(),
            tx_packets,
            ..DeviceInterrupts::default()
        };
        let section = InterruptsSection {
            devices: vec![device("eth0", 7), device("eth1", 0), device("eth2", 1)],
            ..InterruptsSection::default()
        };
        let behind = |source: &str| {
            let row = InterruptRow { source: source.to_owned(), ..InterruptRow::default() };
            devices_behind(&section, &row)
        };
        assert_eq!(behind("net_tx").as_deref(), Some("eth0, eth2"));
        assert_eq!((behind("tasklet"), behind("net_rx")), (None, None));
    }

    #[test]
    fn softirqs_and_processes_have_their_time() {
        let section = section("interrupt-cost", &fixture("interrupt-cost"));
        let of = |column| {
            let tables = section.blocks.iter().filter_map(|block| match block {
                Block::Table(table) if table.title.starts_with("Softirqs (DPC)") => Some(table),
                _ => None,
            });
            let table = { tables }.next().unwrap();
            let place = table.columns.iter().position(|c| c.title == column).unwrap();
            let row = table.rows.iter().find(|row| row[1] == text("net_rx")).unwrap();
            match &row[place] {
                Cell::Number(number) => number.value,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("Count"), 94_819.0);
        near(of("Duration [ms]"), 329.011_478);
        assert!((of("Avg [ms]") * of("Count") - of("Duration [ms]")).abs() < 1e-3);
        let ms = value(&section, "CPU by process, 512", "wirecost (10735)", "CPU usage (ms)");
        // Its clock beside those of all processes, which ran on in interrupts, and the time of tasks.
        let seconds = 1.167_146_478 * 5.112_977_601 / 5.190_249_323;
        near(ms, 1e3 * seconds);
        let of_softirqs =
            value(&section, "CPU by process, 64k", "ksoftirqd/0 (14)", "CPU usage (ms)");
        near(of_softirqs, 58.757_585);
        let share = value(&section, "CPU by process, 512", "wirecost (10735)", "% CPU usage");
        near(share, 100.0 * seconds / (2.999_892_615 + 2.999_897_175));
    }

    /// Interrupts are in the clock of whom they interrupt, on kernels without IRQ_TIME_ACCOUNTING.
    #[test]
    fn interrupts_on_top_of_processes_count_once() {
        let mut measured = fixture("interrupt-cost");
        let of_first = measured.points[0].runs.iter_mut();
        for observed in of_first.flat_map(|run| &mut run.observe.as_mut().unwrap().hosts) {
            let total = &mut observed.cpu.as_mut().unwrap().total;
            total.task -= 1.5;
            total.softirq += 1.5;
        }
        let usage = usage(&measured.points[0].runs[0]).unwrap();
        let all: f64 = usage.rows.iter().map(|(_, seconds)| seconds).sum();
        assert!((all / usage.wall - 1.0).abs() < 1e-3, "{all} of {}", usage.wall);
        near(usage.scale, 2.112_977_601 / 5.190_249_323);
        let section = section("interrupt-cost", &measured);
        let told =
            |block: &Block| matches!(block, Block::Text(text) if text.contains("reduced by 59.3%"));
        assert!(section.blocks.iter().any(told));
    }

    /// What a line of 10 Gb/s takes is not what ran beside the network.
    #[test]
    fn other_programs_and_steal_are_not_the_cost_of_a_line() {
        let told = |change: fn(&mut Run)| {
            let mut measured = fixture("interrupt-cost");
            measured.points.iter_mut().flat_map(|point| &mut point.runs).for_each(change);
            let section = section("interrupt-cost", &measured);
            let cpus = value(&section, "A line rate as measured, 512", "(2)", "CPUs");
            let conclusion = section.blocks.iter().find_map(|block| match block {
                Block::Text(text) if text.contains("a line of 10.0 Gb/s") => Some(text.clone()),
                _ => None,
            });
            (cpus, conclusion.unwrap())
        };
        let (all, text) = told(|_| ());
        assert!(
            text.contains(" of them for interrupts by other CPUs (IPI) and the softirq NET_RX")
        );
        assert!(
            text.ends_with("other programs is counted, because it was not measured."),
            "{text}"
        );
        let (net, text) = told(|run| {
            for host in &mut run.hosts {
                host.foreign_cycles_per_kbyte = host.cycles_per_kbyte.map(|all| 0.75 * all);
            }
        });
        near(net, 0.25 * all);
        assert!(text.ends_with("other programs (75.0% of the busy time)."), "{text}");
        let (_, text) = told(|run| {
            let machine = &mut run.machines[0];
            machine.foreign_cycles_per_kbyte = machine.cycles_per_kbyte.map(|all| 0.75 * all);
        });
        assert!(text.contains("(75.0% of the machine's busy time) is counted, because"), "{text}");
        let (net, text) = told(|run| {
            for observed in &mut run.observe.as_mut().unwrap().hosts {
                let cpu = observed.cpu.as_mut().unwrap();
                let stolen = 0.5 * (cpu.total.wall - cpu.total.idle);
                cpu.per_cpu[0].steal = Some(stolen);
                cpu.total.steal = Some(stolen);
            }
        });
        near(net, 0.5 * all);
        assert!(text.contains("Steal (50.0% of the busy time) is not counted."), "{text}");
    }

    #[test]
    fn equations_are_recomputed() {
        let section = section("interrupt-cost", &fixture("interrupt-cost"));
        let first = |column| value(&section, "A line rate, rough", "(1)", column);
        assert_eq!((first("interrupts/s"), first("total")), (500e3, 5e9));
        let of = |row, column| value(&section, "A line rate as measured, 512", row, column);
        near(of("(2)", "interrupts/s"), 795_673.601_441);
        near(of("(2)", "per interrupt"), 81_362.625_378_0);
        // NET_RX, and the interrupts of the sources CAL, RES and IWI.
        let (net_rx, ipi) = (0.329_011_478, 0.031_051_867 + 56.02e-6 + 21.67e-6);
        near(of("(3)", "per interrupt"), 8_923.385_058_88 * (net_rx + ipi) / net_rx);
        // All busy cycles at the line rate are those of a byte times its bytes, by another way.
        let byte = value(&section, "Receiving, receiver", "Cycles/Byte", "512");
        assert!((of("(2)", "total") / (byte * 10e9 / 8.0) - 1.0).abs() < 0.01);
        assert!((of("(2)", "CPUs") - of("(2)", "total") / 2.6e9).abs() < 0.1);
    }

    /// With a device of hardware its interrupts count, and without polls its packets.
    #[test]
    fn what_is_counted_as_an_interrupt_is_said() {
        let told = |change: fn(&mut InterruptsSection)| {
            let mut measured = fixture("interrupt-cost");
            let runs = measured.points.iter_mut().flat_map(|point| &mut point.runs);
            let observed = runs.flat_map(|run| &mut run.observe.as_mut().unwrap().hosts);
            observed.for_each(|observed| change(observed.interrupts.as_mut().unwrap()));
            let section = section("interrupt-cost", &measured);
            let each = value(&section, "A line rate as measured, 512", "(3)", "interrupts/s");
            let texts = section.blocks.into_iter().filter_map(|block| match block {
                Block::Text(text) if text.starts_with("Counted") => Some(text),
                _ => None,
            });
            (each, { texts }.next().unwrap())
        };
        let (polls, text) = told(|_| ());
        assert!(text.contains("NAPI polls"), "{text}");
        let (packets, text) = told(|section| section.napi = None);
        assert!(text.contains("received packets") && packets > polls, "{text}");
        let (_, text) = told(|section| section.devices[0].interrupts = Some(1000));
        assert!(text.contains("interrupts of the devices"), "{text}");
    }

    #[test]
    fn what_was_counted_only_has_no_times_but_a_reason() {
        let mut measured = fixture("interrupt-cost");
        let runs = measured.points.iter_mut().flat_map(|point| &mut point.runs);
        for observed in runs.flat_map(|run| &mut run.observe.as_mut().unwrap().hosts) {
            let section = observed.interrupts.as_mut().unwrap();
            section.missing = vec!["times: without BPF".to_owned()];
            for row in section.softirqs.iter_mut().chain(&mut section.interrupts) {
                row.total.seconds = None;
                row.total.average_us = None;
                row.total.max_us = None;
            }
        }
        let section = section("interrupt-cost", &measured);
        let of = |column| at(&section, "Softirqs (DPC)", "kernel", column).clone();
        assert!(matches!(of("Count"), Cell::Number(_)));
        assert_eq!(of("Duration [ms]"), Cell::Missing("times: without BPF".to_owned()));
        let (busy, traced) = ("(2)", "(3)");
        let of = |row| at(&section, "A line rate as measured, 512", row, "per interrupt").clone();
        assert!(matches!(of(busy), Cell::Number(_)));
        assert!(matches!(of(traced), Cell::Missing(why) if why.contains("not timed")));
    }
}
