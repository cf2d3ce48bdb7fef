//! Interrupts a second and cycles that a line rate would ask for: the article's equations (1) to (3), as
//! it has them and as these runs measure them.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_model::document::{
    Align::{Left, Right},
    Block, Cell, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{InterruptKind, InterruptRow, InterruptsSection};
use wirecost_model::run::Run;
use wirecost_model::units::{decimal, three_digits};

use super::super::cells::{at, estimate, known, name, number, of, sentence, table, text};

const RATES: [f64; 3] = [10e9, 25e9, 100e9];

/// What the article assumes: bits on the wire for a byte, bytes of a packet, one packet in two is
/// received, and instructions for an interrupt.
const BITS_OF_A_BYTE: f64 = 10.0;
const PACKET: f64 = 1000.0;
const RECEIVED: f64 = 0.5;
const INSTRUCTIONS: f64 = 10_000.0;

pub(super) fn build<'a>(
    measured: &Measurements,
    points: impl Iterator<Item = &'a MeasuredPoint>,
    end: Option<&str>,
) -> Vec<Block> {
    let mut blocks = vec![
        Block::Table(assumed()),
        sentence(
            "(1) is not measured. It uses the assumptions of \"Mainstream NUMA and the TCP/IP stack: Part I\" (Microsoft, \
             2008): 10 bits on the wire per byte, packets of 1,000 bytes, half of them received, an interrupt per received packet, 10,000 \
             instructions per interrupt.",
        ),
    ];
    for point in points {
        blocks.push(Block::Table(of_point(&name(measured, point), point, end)));
        if let Some(run) = point.runs.first()
            && let Ok(rate) = Rate::of(run, end)
        {
            blocks.push(sentence(rate.explain(hz(run, end).ok())));
        }
        blocks.extend(conclusion(&name(measured, point), point, end).map(sentence));
    }
    blocks.push(sentence(
        "(2) divides the busy cycles of the CPUs by the interrupts, without steal and, where they are \
         known, without those of other programs; (3) uses only the cycles traced in handlers: the softirq \
         NET_RX, and the interrupts of the devices and by other CPUs (IPI), if any. Both assume \
         that the line carries only payload, with as many interrupts per byte as measured.",
    ));
    blocks
}

/// The line of which the conclusion speaks.
const LINE: f64 = 10e9;

/// How many CPUs a line takes at this cost, and how many of them handle its packets.
fn conclusion(name: &str, point: &MeasuredPoint, end: Option<&str>) -> Option<String> {
    let cpus = |cycles: fn(&Run, Option<&str>) -> Result<f64, String>| {
        estimate(point, |run| {
            let throughput = of(run, "throughput")?;
            if throughput <= 0.0 {
                return Err("nothing was transferred".to_owned());
            }
            Ok(cycles(run, end)? * LINE / throughput / hz(run, end)?)
        })
        .ok()
    };
    let show = |cpus: wirecost_analyze::Estimate| match cpus.interval {
        Some((low, high)) => {
            format!("{} ({} to {})", three_digits(cpus.mean), three_digits(low), three_digits(high))
        }
        None => three_digits(cpus.mean),
    };
    let clock = hz(point.runs.first()?, end).ok()?;
    let named = Scope::find(point.runs.first()?, end).and_then(|scope| scope.devices());
    let handlers = match (cpus(traced), named) {
        (Some(handlers), Ok(section)) => {
            format!(", {} of them for {}", show(handlers), handled(section))
        }
        _ => String::new(),
    };
    Some(format!(
        "{name}: a line of {} at this cost takes {} CPUs of {}{handlers}. {}",
        decimal(LINE, "b/s"),
        show(cpus(busy)?),
        decimal(clock, "Hz"),
        subtracted(point, end),
    ))
}

/// Whether CPU time that is not the network's is in the CPUs of the conclusion.
fn subtracted(point: &MeasuredPoint, end: Option<&str>) -> String {
    let percent = |share: &dyn Fn(&Run) -> Option<f64>| {
        let share = estimate(point, |run| share(run).ok_or_else(String::new)).ok()?;
        Some(format!("{:.1}%", 100.0 * share.mean))
    };
    let steal = percent(&|run| {
        let total = &Scope::find(run, end).ok()?.cpu_times().ok()?.total;
        total.steal.and(Some(stolen(run, end).ok()? / (total.wall - total.idle)))
    });
    let steal = steal.map_or_else(String::new, |steal| format!(" ({steal} of the busy time)"));
    match (percent(&|run| foreign(run, end)), percent(&|run| foreign(run, None))) {
        (Some(others), _) => format!(
            "Not counted: steal{steal} and CPU time of other programs ({others} of the busy time)."
        ),
        (None, Some(others)) => format!(
            "Steal{steal} is not counted. CPU time of other programs ({others} of the machine's busy \
             time) is counted, because it is unknown on which CPUs they ran."
        ),
        (None, None) => format!(
            "Steal{steal} is not counted. CPU time of other programs is counted, because it was not \
             measured."
        ),
    }
}

/// The handlers of [`traced`], by name.
fn handled(section: &InterruptsSection) -> String {
    let any = |is: &dyn Fn(&InterruptRow) -> bool| section.interrupts.iter().any(is);
    let mut names = Vec::new();
    if any(&|row| is_of_device(section, row)) {
        names.push("interrupts of the devices");
    }
    if any(&is_ipi) {
        names.push("interrupts by other CPUs (IPI)");
    }
    match names.is_empty() {
        true => "the softirq NET_RX".to_owned(),
        false => format!("{} and the softirq NET_RX", names.join(", ")),
    }
}

fn is_of_device(section: &InterruptsSection, row: &InterruptRow) -> bool {
    let vectors = section.devices.iter().flat_map(|device| &device.vectors);
    vectors.map(|vector| &vector.source).any(|source| *source == row.source)
}

/// Packets that another CPU steers here, and wake-ups for them, come with one: between the hosts of a lab
/// there is no other interrupt.
fn is_ipi(row: &InterruptRow) -> bool {
    row.kind() == InterruptKind::Ipi
}

const COLUMNS: [(&str, wirecost_model::document::Align); 6] = [
    ("Equation", Left),
    ("Line rate", Right),
    ("interrupts/s", Right),
    ("per interrupt", Right),
    ("total", Right),
    ("CPUs", Right),
];

fn assumed() -> Table {
    let mut table = table("A line rate, rough estimate", &COLUMNS);
    for rate in RATES {
        let interrupts = rate / BITS_OF_A_BYTE / PACKET * RECEIVED;
        let all = interrupts * INSTRUCTIONS;
        table.rows.push(vec![
            text("(1) assumed"),
            number(rate, Unit::BitsPerSecond, decimal(rate, "b/s")),
            number(interrupts, Unit::PerSecond, decimal(interrupts, "/s")),
            number(INSTRUCTIONS, Unit::Count, "10,000 instr.".to_owned()),
            number(all, Unit::PerSecond, decimal(all, "instr./s")),
            Cell::Missing("instructions are not a time".to_owned()),
        ]);
    }
    table
}

fn of_point(name: &str, point: &MeasuredPoint, end: Option<&str>) -> Table {
    let mut table = table(format!("A line rate as measured, {name}"), &COLUMNS);
    type Cycles = fn(&Run, Option<&str>) -> Result<f64, String>;
    for (equation, cycles) in [("(2) busy", busy as Cycles), ("(3) traced", traced)] {
        for rate in RATES {
            let interrupts = |run: &Run| {
                let throughput = of(run, "throughput")?;
                if throughput <= 0.0 {
                    return Err("nothing was transferred".to_owned());
                }
                Ok(Rate::of(run, end)?.per_second * rate / throughput)
            };
            let each = |run: &Run| Ok(cycles(run, end)? / Rate::of(run, end)?.per_second);
            let all = |run: &Run| Ok(interrupts(run)? * each(run)?);
            let cpus = |run: &Run| Ok(all(run)? / hz(run, end)?);
            let mean = |of: &dyn Fn(&Run) -> Result<f64, String>| Ok(estimate(point, of)?.mean);
            table.rows.push(vec![
                text(equation),
                number(rate, Unit::BitsPerSecond, decimal(rate, "b/s")),
                known(mean(&interrupts), Unit::PerSecond, |v| decimal(v, "/s")),
                known(mean(&each), Unit::Count, |v| decimal(v, "cycles")),
                known(mean(&all), Unit::PerSecond, |v| decimal(v, "cycles/s")),
                known(mean(&cpus), Unit::Ratio, three_digits),
            ]);
        }
    }
    table
}

/// How often packets were told of, and what is counted for that.
struct Rate {
    per_second: f64,
    what: String,
}

impl Rate {
    /// Interrupts of the devices; where these have none, polls, and where nobody watched those,
    /// packets.
    fn of(run: &Run, end: Option<&str>) -> Result<Self, String> {
        let section = Scope::find(run, end)?.devices()?;
        let vectors: u64 = section.devices.iter().filter_map(|device| device.interrupts).sum();
        let polls: u64 = section.napi.iter().flatten().map(|row| row.polls).sum();
        let packets: u64 = section.devices.iter().map(|device| device.rx_packets).sum();
        let watched = section.napi_slices.map_or(section.seconds, |slices| slices.seconds);
        let (number, seconds, what) = match (vectors, polls, packets) {
            (1.., _, _) => (vectors, section.seconds, "interrupts of the devices"),
            (0, 1.., _) => (polls, watched, "NAPI polls, because no device has an interrupt"),
            (0, 0, 1..) => (
                packets,
                section.seconds,
                "received packets, because no device has an interrupt and polls were not observed",
            ),
            (0, 0, 0) => return Err("no packet was received".to_owned()),
        };
        if seconds <= 0.0 {
            return Err("the window has no length".to_owned());
        }
        Ok(Self { per_second: number as f64 / seconds, what: what.to_owned() })
    }

    fn explain(&self, hz: Option<f64>) -> String {
        let cpus =
            hz.map_or_else(String::new, |hz| format!(" CPU frequency: {}.", decimal(hz, "Hz")));
        format!(
            "Counted as interrupts: {}, {} in the run.{cpus}",
            self.what,
            decimal(self.per_second, "/s")
        )
    }
}

/// Cycles a second of one CPU, by its time-stamp counter.
fn hz(run: &Run, end: Option<&str>) -> Result<f64, String> {
    let hz = Scope::find(run, end)?.cpu_times()?.tsc_hz;
    hz.ok_or_else(|| "the TSC rate is unknown".to_owned())
}

/// Busy cycles a second of all CPUs that are meant, without steal and those of other programs.
fn busy(run: &Run, end: Option<&str>) -> Result<f64, String> {
    let total = &Scope::find(run, end)?.cpu_times()?.total;
    let seconds = Scope::find(run, end)?.observed()?.seconds;
    let own = total.wall - total.idle - stolen(run, end)?;
    Ok(own * (1.0 - foreign(run, end).unwrap_or(0.0)) / seconds * hz(run, end)?)
}

/// Seconds of tasks that the hypervisor took, as the cost per byte subtracts them.
fn stolen(run: &Run, end: Option<&str>) -> Result<f64, String> {
    let per_cpu = Scope::find(run, end)?.cpu_times()?.per_cpu.iter();
    Ok(per_cpu.fold(0.0, |sum, time| sum + time.steal.unwrap_or(0.0).min(time.task)))
}

/// Part of the cycles that other programs used; `None` where it is unknown.
fn foreign(run: &Run, end: Option<&str>) -> Option<f64> {
    let foreign = Scope::find(run, end).ok()?.foreign_cycles_per_kbyte()?;
    let all = of(run, &at(end, "cycles_per_kbyte")).ok()?;
    (all > 0.0).then(|| (foreign / all).min(1.0))
}

/// Cycles a second in the handlers of packets.
fn traced(run: &Run, end: Option<&str>) -> Result<f64, String> {
    let section = Scope::find(run, end)?.devices()?;
    let untimed = || "handlers were counted and not timed (BPF is not available)".to_owned();
    let softirq = section.softirqs.iter().find(|row| row.source == "net_rx");
    let softirq = softirq.map_or(Some(0.0), |row| row.total.seconds).ok_or_else(untimed)?;
    let rows = section.interrupts.iter().filter(|row| is_of_device(section, row) || is_ipi(row));
    let irq: Option<f64> = rows.map(|row| row.total.seconds).sum();
    Ok((softirq + irq.ok_or_else(untimed)?) / section.seconds * hz(run, end)?)
}
