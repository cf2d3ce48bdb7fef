//! `observe`: what each set of probes costs, against none.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use wirecost_linux::clock::{Monotonic, sleep, thread_cpu_time};
use wirecost_linux::packet_counters::PacketReader;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos};
use wirecost_model::observe::{ObserveRequest, Part};
use wirecost_observe::{EmptyHooks, Observer, Set};

use crate::paired::{Median, median, ratio_of_medians};
use crate::program::Program;
use crate::traffic::Traffic;

const LOADS: [Traffic; 3] = [
    Traffic { name: "stream", builtin: "stream", variables: &[] },
    Traffic { name: "rr", builtin: "rr", variables: &[] },
    Traffic { name: "udp flood, 64 B", builtin: "udp-stream", variables: &[("size", "64")] },
];

/// Largest cost of a set of probes on each of [`LOADS`], percent.
const GOALS: [(&str, [Option<f64>; 3]); 2] =
    [("standard", [Some(2.0), Some(2.0), Some(8.0)]), ("full", [Some(6.0), Some(6.0), Some(12.0)])];
/// A wider interval is not resolved, percentage points.
const RESOLVED: f64 = 6.0;
/// On the flood: the cost of a set over the cost of empty programs in its hooks.
const OVER_EMPTY: f64 = 1.3;
const FLOOD: usize = 2;
/// Names the counters of packets between sockets and the wire, which every run with datagrams reads at each interval.
const LEDGER: &str = "ledger";
/// Ten times as often as a run reads them by default.
const LEDGER_INTERVAL: Nanos = 100 * MILLISECOND;
/// Names the probe `cpu` without the samples of 10 ms that it otherwise takes of each CPU.
const UNSAMPLED: &str = "cpu-unsampled";
/// The same with them.
const SAMPLED: &str = "cpu";

/// Excluded time at the start of a slice: attaching, and its after-effects.
const SETTLE: Nanos = 30 * MILLISECOND;

/// Measure the cost of observing: each set of probes against none, in pairs of slices of one run.
#[derive(Debug, clap::Args)]
pub(crate) struct Observe {
    /// Number of pairs per set and load.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..))]
    pairs: u32,

    /// Length of a slice in milliseconds.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(100..))]
    slice: u64,

    /// Measure only these probes, against none and against empty programs in their hooks: as for
    /// `--observe`, such as `locks` or `drops,locks`. `ledger` is the counters of packets, read every 100 ms;
    /// `cpu-unsampled` is `cpu` without its samples of 10 ms.
    /// May be repeated.
    #[arg(long, value_name = "SET")]
    probes: Vec<String>,

    #[command(flatten)]
    program: Program,
}

/// What is attached during a slice.
enum Variant {
    Probes {
        name: String,
        observer: Box<Observer>,
    },
    /// Empty programs in the hooks of the variant with this name.
    Empty {
        name: String,
        hooks: EmptyHooks,
    },
    Ledger {
        reader: Box<PacketReader>,
        reads: u32,
        /// CPU time of all reads.
        spent: Nanos,
    },
}

impl Variant {
    fn open(name: &str) -> Result<Self, String> {
        if name == LEDGER {
            let loopback = BTreeSet::from([IpAddr::V4(Ipv4Addr::LOCALHOST)]);
            let reader = PacketReader::open(&loopback, &loopback);
            let reader = Box::new(reader.map_err(|error| error.to_string())?);
            return Ok(Variant::Ledger { reader, reads: 0, spent: 0 });
        }
        let observer = Box::new(match name {
            UNSAMPLED => Observer::open_without_cpu_samples(request(SAMPLED)?),
            _ => Observer::open(request(name)?),
        });
        Ok(Variant::Probes { name: name.to_owned(), observer })
    }

    fn name(&self) -> &str {
        match self {
            Variant::Probes { name, .. } | Variant::Empty { name, .. } => name,
            Variant::Ledger { .. } => LEDGER,
        }
    }

    fn attach(&mut self) -> Result<(), String> {
        match self {
            Variant::Probes { observer, .. } => {
                observer.attach();
                observer.begin();
                Ok(())
            }
            Variant::Empty { hooks, .. } => hooks.attach().map_err(|error| error.to_string()),
            Variant::Ledger { .. } => Ok(()),
        }
    }

    fn detach(&mut self) {
        match self {
            Variant::Probes { observer, .. } => {
                observer.end();
                observer.detach();
            }
            Variant::Empty { hooks, .. } => hooks.detach(),
            Variant::Ledger { .. } => {}
        }
    }

    /// What a variant does until then.
    fn until(&mut self, from: Nanos, end: Nanos) -> Result<(), String> {
        match self {
            Variant::Probes { observer, .. } => observer.watch(from, end, Nanos::MAX, |due| {
                sleep(due.saturating_sub(Monotonic.now()));
                true
            }),
            Variant::Empty { .. } => sleep(end.saturating_sub(Monotonic.now())),
            Variant::Ledger { reader, reads, spent } => {
                let mut due = from;
                while due < end {
                    sleep(due.saturating_sub(Monotonic.now()));
                    let before = thread_cpu_time();
                    reader.read().map_err(|error| format!("counters of packets: {error}"))?;
                    *spent += thread_cpu_time() - before;
                    *reads += 1;
                    due += LEDGER_INTERVAL;
                }
                sleep(end.saturating_sub(Monotonic.now()));
            }
        }
        Ok(())
    }
}

/// A slice of the run: what was attached, its start and end.
struct Slice {
    variant: Option<usize>,
    from: Nanos,
    to: Nanos,
}

impl Observe {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let wirecost = self.program.find()?;
        let mut variants = Vec::new();
        let sets = self.sets();
        for name in &sets {
            variants.push(Variant::open(name)?);
        }
        // Its hooks are those of the sampled one.
        let hooked = sets.iter().enumerate().filter(|(_, set)| *set != UNSAMPLED);
        for (number, set) in hooked {
            let tracepoints = tracepoints_of(&mut variants[number])?;
            // What has no hooks has no other side.
            if tracepoints.is_empty() {
                continue;
            }
            let name = format!("{set}, empty programs");
            let count = tracepoints.len();
            let hooks = EmptyHooks::open(&tracepoints).map_err(|error| error.to_string())?;
            let said =
                writeln!(out, "{name}: {count} hooks, all the time: {}", tracepoints.join(" "));
            said.map_err(|error| error.to_string())?;
            variants.push(Variant::Empty { name, hooks });
        }
        let mut costs: Vec<BTreeMap<usize, Vec<f64>>> = Vec::new();
        for load in &LOADS {
            costs.push(self.measure(load, &wirecost, &mut variants)?);
        }
        let names: Vec<String> = variants.iter().map(|variant| variant.name().to_owned()).collect();
        self.table(out, &names, &costs).map_err(|error| error.to_string())?;
        for variant in &variants {
            if let Variant::Ledger { reads, spent, .. } = variant {
                let each = *spent as f64 / 1e3 / f64::from((*reads).max(1));
                writeln!(
                    out,
                    "\nA reading of the ledger takes {each:.0} us of CPU time (mean of {reads})"
                )
                .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// What is measured, as `--observe` takes it.
    fn sets(&self) -> Vec<String> {
        match self.probes.is_empty() {
            true => GOALS.iter().map(|(set, _)| (*set).to_owned()).collect(),
            false => self.probes.clone(),
        }
    }

    /// Costs in percent, by variant: each slice against the two adjacent slices without probes.
    fn measure(
        &self,
        load: &Traffic,
        wirecost: &std::path::Path,
        variants: &mut [Variant],
    ) -> Result<BTreeMap<usize, Vec<f64>>, String> {
        let slice = Duration::from_millis(self.slice);
        let slices = self.pairs * variants.len() as u32 * 2 + 1;
        let each = slice + Duration::from_nanos(SETTLE * 2);
        // What attaching takes beyond that is not known before.
        let length = each * slices * 5 / 4 + Duration::from_secs(2);
        let over = AtomicBool::new(false);
        let (began, begins) = channel();
        let (rates, slices) = std::thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                let rates = load.run(wirecost, length, &began);
                over.store(true, Ordering::Relaxed);
                rates
            });
            let slices = match begins.recv() {
                Ok(ramp) => {
                    sleep(ramp);
                    self.toggle(variants, &over)
                }
                Err(_) => Err("the traffic did not begin".to_owned()),
            };
            let rates = traffic.join().map_err(|_| "the traffic ended in a panic".to_owned());
            (rates.flatten(), slices)
        });
        let (rates, slices) = (rates?, slices?);
        let mut costs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for three in slices.windows(3) {
            let (before, of, after) = (&three[0], &three[1], &three[2]);
            let Some(variant) = of.variant else { continue };
            let rate = |slice: &Slice| rates.within(slice.from, slice.to);
            if let (Some(before), Some(with), Some(after)) = (rate(before), rate(of), rate(after)) {
                let without = (before + after) / 2.0;
                costs.entry(variant).or_default().push((1.0 - with / without) * 100.0);
            }
        }
        Ok(costs)
    }

    /// Waits for the length of a slice, and returns its edges.
    fn slice(&self, number: Option<usize>, variant: Option<&mut Variant>) -> Result<Slice, String> {
        sleep(SETTLE);
        let from = Monotonic.now();
        let end = from + self.slice * MILLISECOND;
        match variant {
            Some(variant) => variant.until(from, end)?,
            None => sleep(end.saturating_sub(Monotonic.now())),
        }
        Ok(Slice { variant: number, from, to: Monotonic.now() })
    }

    /// Runs the slices of every variant in turn, with a slice without probes between.
    fn toggle(&self, variants: &mut [Variant], over: &AtomicBool) -> Result<Vec<Slice>, String> {
        let mut slices = Vec::new();
        for _ in 0..self.pairs {
            for (number, variant) in variants.iter_mut().enumerate() {
                if over.load(Ordering::Relaxed) {
                    return Err("the traffic ended before its time".to_owned());
                }
                slices.push(self.slice(None, None)?);
                variant.attach()?;
                slices.push(self.slice(Some(number), Some(variant))?);
                variant.detach();
            }
        }
        slices.push(self.slice(None, None)?);
        Ok(slices)
    }

    fn table(
        &self,
        out: &mut dyn Write,
        names: &[String],
        costs: &[BTreeMap<usize, Vec<f64>>],
    ) -> std::io::Result<()> {
        writeln!(
            out,
            "\nCost in percent of transactions a second: median of pairs of slices of {} ms, with \
             its 95% interval\n",
            self.slice
        )?;
        writeln!(
            out,
            "{:<26}{:<18}{:>6}{:>8}{:>18}{:>7}  verdict",
            "observed", "load", "pairs", "cost", "interval", "goal"
        )?;
        for (variant, name) in names.iter().enumerate() {
            let goals = GOALS.iter().find(|(set, _)| set == name).map(|(_, goals)| goals);
            for (number, load) in LOADS.iter().enumerate() {
                let cost = costs[number].get(&variant).and_then(|values| median(values));
                let goal = goals.and_then(|goals| goals[number]);
                let (value, interval, pairs) = shown(cost.as_ref());
                writeln!(
                    out,
                    "{name:<26}{:<18}{pairs:>6}{value:>8}{interval:>18}{:>7}  {}",
                    load.name,
                    goal.map_or(String::new(), |goal| format!("{goal:.0}")),
                    goal.map_or("", |goal| verdict(cost.as_ref(), goal)),
                )?;
            }
        }
        for (number, load) in LOADS.iter().enumerate() {
            let of =
                |wanted: &str| costs[number].get(&names.iter().position(|name| name == wanted)?);
            let Some((with, without)) = of(SAMPLED).zip(of(UNSAMPLED)) else { continue };
            let pairs: Vec<f64> =
                with.iter().zip(without).map(|(with, without)| with - without).collect();
            let (value, interval, _) = shown(median(&pairs).as_ref());
            writeln!(out, "\nSamples of CPUs, {}: {value} points ({interval})", load.name)?;
        }
        writeln!(out, "\nOn the flood, over what empty programs in the same hooks cost:")?;
        for set in self.sets() {
            let of = |wanted: String| {
                let number = names.iter().position(|name| *name == wanted)?;
                costs[FLOOD].get(&number)
            };
            let ratio = of(set.clone())
                .zip(of(format!("{set}, empty programs")))
                .and_then(|(full, empty)| ratio_of_medians(full, empty));
            let said = match ratio {
                Some(ratio) if ratio.low > 0.0 => format!(
                    "{:.2} ({:.2} to {:.2}), goal {OVER_EMPTY}",
                    ratio.value, ratio.low, ratio.high
                ),
                _ => "not resolved: the empty programs cost nothing that shows".to_owned(),
            };
            writeln!(out, "  {set:<10} {said}")?;
        }
        Ok(())
    }
}

fn shown(cost: Option<&Median>) -> (String, String, String) {
    match cost {
        Some(cost) => (
            format!("{:.1}", cost.value),
            format!("{:.1} to {:.1}", cost.low, cost.high),
            cost.of.to_string(),
        ),
        None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
    }
}

/// A goal is met if the interval is resolved and its lower end is below the goal.
fn verdict(cost: Option<&Median>, goal: f64) -> &'static str {
    match cost {
        Some(cost) if cost.high - cost.low > RESOLVED => "not resolved",
        Some(cost) if cost.low < goal => "met",
        Some(_) => "missed",
        None => "not measured",
    }
}

fn request(set: &str) -> Result<ObserveRequest, String> {
    let probes = Set::parse(set)?.passes.into_iter().next().unwrap_or_default();
    Ok(ObserveRequest { probes, parts: vec![Part::default()] })
}

/// Tracepoints in which a variant has programs, from the kernel's data on this process's descriptors.
fn tracepoints_of(variant: &mut Variant) -> Result<Vec<String>, String> {
    variant.attach()?;
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let named = text.lines().find_map(|line| line.strip_prefix("tp_name:"));
        found.extend(named.map(|name| name.trim().to_owned()));
    }
    variant.detach();
    found.sort();
    Ok(found)
}
