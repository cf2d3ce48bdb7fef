//! `peers`: wirecost beside other programs, on loopback, in one execution. docs/bench.md describes what
//! it measures and how.

mod agreement;
mod child;
pub(crate) mod contender;
pub(crate) mod contenders;
pub(crate) mod meter;
mod point;
pub(crate) mod session;
pub(crate) mod table;
mod verdict;

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use regex::Regex;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::sysctl;
use wirecost_model::clock::{Clock, Nanos, SECOND, seconds};

use agreement::Pair;
use contender::{Contender, Plan, PlanError, RunRequest, is_installed};
use meter::WindowMeter;
use point::{Cpus, Placement, Point};
use session::{LEAD, TAIL};
use table::{PairResult, PointResult, Results, Row};
use verdict::Series;

use crate::interrupt::{check_interrupted, is_interrupted, watch};
use crate::namespace::enter_own_namespace;
use crate::program::Program;
use crate::rounds::Order;

const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Compare wirecost with other programs, and its ports of them with their originals.
#[derive(Debug, clap::Args)]
pub(crate) struct Peers {
    /// Measure the full matrix, not only the part that takes a quarter of an hour.
    #[arg(long)]
    full: bool,

    /// Measure only points and ports with a matching name, of the full matrix.
    #[arg(long, value_name = "REGEX")]
    points: Option<Regex>,

    /// Run only contenders with a matching name, as in the first column of the tables.
    #[arg(long, value_name = "REGEX")]
    contenders: Option<Regex>,

    /// Number of rounds; each runs every contender at every point. Fewer than six give no interval.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Length of a window in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    window: u32,

    /// Time budget in minutes; a round that would exceed it does not begin.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,

    /// TCP congestion control of all contenders, one that `net.ipv4.tcp_allowed_congestion_control` lists
    /// [default: the machine's].
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,

    /// Seed of the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Also save the tables to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// List points and ports, then exit.
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    program: Program,
}

/// What a round runs in one turn.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Point(usize),
    Pair(usize),
}

impl Peers {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        if self.list {
            return self.names().iter().try_for_each(|name| writeln!(out, "{name}")).map_err(told);
        }
        let markdown = self.measure()?.markdown();
        out.write_all(markdown.as_bytes()).map_err(told)?;
        match &self.out {
            Some(path) => {
                fs::write(path, &markdown).map_err(|e| format!("{}: {e}", path.display()))
            }
            None => Ok(()),
        }
    }

    fn names(&self) -> Vec<String> {
        let points = self.chosen_points().iter().map(Point::name).collect::<Vec<_>>();
        points.into_iter().chain(self.chosen_pairs().iter().map(|pair| pair.name())).collect()
    }

    fn is_chosen(&self, name: &str, quick: bool) -> bool {
        match &self.points {
            Some(pattern) => pattern.is_match(name),
            None => self.full || quick,
        }
    }

    fn chosen_points(&self) -> Vec<Point> {
        let chosen = |p: &Point| self.is_chosen(&p.name(), p.quick) && cpus(p.placement).is_some();
        point::ALL.iter().copied().filter(chosen).collect()
    }

    fn chosen_pairs(&self) -> Vec<&'static Pair> {
        agreement::ALL.iter().filter(|pair| self.is_chosen(&pair.name(), pair.quick)).collect()
    }

    fn measure(&self) -> Result<Results, String> {
        let wirecost = self.program.find()?;
        watch()?;
        let mut notes = Vec::new();
        match (enter_own_namespace(), &self.congestion_control) {
            (Ok(()), None) => {}
            (Ok(()), Some(name)) => set_congestion_control(name)?,
            // It would change the whole machine.
            (Err(error), Some(_)) => {
                return Err(format!("--congestion-control needs a network namespace: {error}"));
            }
            (Err(error), None) => notes.push(format!(
                "not in a network namespace of its own, so all that passes on loopback is counted \
                 ({error})"
            )),
        }
        let mut bench = Bench::open(self, wirecost)?;
        let lacks = bench.meter.lacks();
        notes.extend(
            lacks.map(|lacks| format!("CPU time by the probe `cpu` is not whole: {lacks}")),
        );
        let rounds = bench.run_rounds()?;
        if rounds < 6 {
            notes.push(format!("{rounds} rounds: intervals take six, so nothing is resolved"));
        }
        Ok(bench.results(notes, rounds))
    }
}

/// The running measurement.
struct Bench<'a> {
    settings: &'a Peers,
    wirecost: PathBuf,
    contenders: Vec<Box<dyn Contender>>,
    meter: WindowMeter,
    ports: Ports,
    scratch: tempfile::TempDir,
    open_ends: u64,
    points: Vec<PointResult>,
    pairs: Vec<PairResult>,
}

impl<'a> Bench<'a> {
    fn open(settings: &'a Peers, wirecost: PathBuf) -> Result<Self, String> {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut contenders = contender::all();
        if let Some(pattern) = &settings.contenders {
            contenders.retain(|contender| pattern.is_match(contender.name()));
        }
        let mut bench = Self {
            settings,
            wirecost,
            contenders,
            meter: WindowMeter::open(),
            ports: Ports::default(),
            scratch,
            open_ends: meter::Counters::read().map_err(|error| error.to_string())?.open_ends(),
            points: Vec::new(),
            pairs: Vec::new(),
        };
        for point in settings.chosen_points() {
            bench.points.push(bench.prepare(point));
        }
        for pair in settings.chosen_pairs() {
            let installed = is_installed(pair.programs);
            let rounds = Vec::new();
            bench.pairs.push(PairResult { pair, installed, rounds, failed: None, lines: None });
        }
        if bench.points.is_empty() && bench.pairs.is_empty() {
            return Err("no point matches; --list --full shows all".to_owned());
        }
        if bench.contenders.is_empty() {
            let names: Vec<String> = contender::all().iter().map(|c| c.name().to_owned()).collect();
            return Err(format!("no contender matches; there are {}", names.join(", ")));
        }
        Ok(bench)
    }

    /// The contenders that take part at a point.
    fn prepare(&self, point: Point) -> PointResult {
        let mut result = PointResult { point, rows: Vec::new(), absent: Vec::new() };
        for contender in &self.contenders {
            let name = contender.name().to_owned();
            let plan = contender.plan(&self.ask(point, 0));
            match plan {
                Err(PlanError::NoSuchTest) => {}
                Err(PlanError::Limit(why)) => result.absent.push((name, why.to_owned())),
                Err(PlanError::Failed(why)) => result.absent.push((name, why)),
                Ok(_) if !is_installed(contender.programs()) => {
                    result.absent.push((name, "not installed".to_owned()));
                }
                Ok(_) => {
                    let series = Series { name, part: contender.part(), samples: Vec::new() };
                    result.rows.push(Row { series, failed: None, plan: None });
                }
            }
        }
        result
    }

    fn ask(&self, point: Point, port: u16) -> RunRequest<'_> {
        let window = Nanos::from(self.settings.window) * SECOND;
        let seconds = (LEAD + window + TAIL).div_ceil(SECOND) as u32;
        let scratch = self.scratch.path();
        let open_ends = self.open_ends;
        RunRequest { point, port, seconds, open_ends, scratch, wirecost: &self.wirecost }
    }

    /// Runs rounds until the number or the time budget is reached; returns their number.
    fn run_rounds(&mut self) -> Result<u32, String> {
        let begun = Monotonic.now();
        let mut order = Order::of(self.settings.seed);
        for round in 0..self.settings.rounds {
            let so_far = Monotonic.now() - begun;
            let next = so_far / u64::from(round.max(1));
            if self.settings.budget.is_some_and(|minutes| so_far + next > minutes * 60 * SECOND) {
                return Ok(round);
            }
            let of_points = (0..self.points.len()).map(Turn::Point);
            let mut turns: Vec<Turn> =
                of_points.chain((0..self.pairs.len()).map(Turn::Pair)).collect();
            order.shuffle(&mut turns);
            for turn in turns {
                match turn {
                    Turn::Point(index) => self.run_point(index, &mut order),
                    Turn::Pair(index) => self.run_pair(index, &mut order),
                }
                check_interrupted()?;
            }
            tell(&format!("round {} of {}", round + 1, self.settings.rounds), begun);
        }
        Ok(self.settings.rounds)
    }

    /// Runs every contender at a point, one after the other.
    fn run_point(&mut self, index: usize, order: &mut Order) {
        let window = Nanos::from(self.settings.window) * SECOND;
        let point = self.points[index].point;
        let mut turns: Vec<usize> = (0..self.points[index].rows.len()).collect();
        order.shuffle(&mut turns);
        for turn in turns {
            if is_interrupted() {
                return;
            }
            if self.points[index].rows[turn].is_given_up() {
                continue;
            }
            let name = self.points[index].rows[turn].series.name.clone();
            let port = self.ports.next();
            let Some(place) = self.contenders.iter().position(|found| found.name() == name) else {
                continue;
            };
            let scratch = self.scratch.path().to_owned();
            let wirecost = self.wirecost.clone();
            let ask =
                RunRequest { scratch: &scratch, wirecost: &wirecost, ..self.ask(point, port) };
            let contender = self.contenders[place].as_ref();
            let sample = plan_of(contender, &ask).and_then(|plan| {
                let sample = session::measure(contender, &plan, &ask, &mut self.meter, window);
                self.points[index].rows[turn].plan.get_or_insert(plan);
                sample
            });
            let row = &mut self.points[index].rows[turn];
            if let Err(why) = &sample {
                say(&format!("{}, {name}: {why}", point.name()));
                row.failed = Some(why.clone());
            }
            row.series.samples.push(sample.ok());
        }
    }

    /// Runs a port and its original, one after the other.
    fn run_pair(&mut self, index: usize, order: &mut Order) {
        let result = &mut self.pairs[index];
        if !result.installed {
            return;
        }
        let (pair, seconds) = (result.pair, self.settings.window);
        let time = Nanos::from(seconds) * SECOND;
        let original = pair.original(self.ports.next(), seconds);
        let ours = Plan { server: None, client: pair.ours(&self.wirecost, seconds) };
        let scratch = self.scratch.path();
        let mut values = (Err(String::new()), Err(String::new()));
        let mut turns = [true, false];
        order.shuffle(&mut turns);
        for of_ours in turns {
            if of_ours {
                let written = session::run(&ours, scratch, time);
                values.0 = written.and_then(|text| pair.read_ours(&text));
            } else {
                let written = session::run(&original, scratch, time);
                values.1 = written.and_then(|text| pair.read_original(&text));
            }
        }
        for why in [values.0.as_ref().err(), values.1.as_ref().err()].into_iter().flatten() {
            say(&format!("{}: {why}", pair.name()));
            result.failed = Some(why.clone());
        }
        result.rounds.push((values.0.ok(), values.1.ok()));
        result.lines.get_or_insert((ours.client.to_string(), original));
    }

    fn results(self, notes: Vec<String>, rounds: u32) -> Results {
        let mut programs = vec![(
            "wirecost".to_owned(),
            version(&contender::Line {
                program: self.wirecost.display().to_string(),
                args: vec!["--version".to_owned()],
                ..Default::default()
            }),
        )];
        for contender in self.contenders.iter().filter(|found| !found.programs().is_empty()) {
            let said = match is_installed(contender.programs()) {
                true => version(&contender.version()),
                false => "not installed".to_owned(),
            };
            programs.push((contender.name().to_owned(), said));
        }
        let mut machine = machine();
        let between =
            "127.0.0.1 and itself, both ends on all CPUs but where a point says otherwise";
        machine.push(("between".to_owned(), between.to_owned()));
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        machine.push(("date".to_owned(), now[..10].to_owned()));
        machine.push((
            "measured".to_owned(),
            format!(
                "{rounds} rounds, windows of {} s, seed {}",
                self.settings.window, self.settings.seed
            ),
        ));
        Results { machine, programs, notes, points: self.points, pairs: self.pairs }
    }
}

fn plan_of(contender: &dyn Contender, ask: &RunRequest) -> Result<Plan, String> {
    let plan = contender.plan(ask).map_err(|refusal| match refusal {
        PlanError::NoSuchTest => "it has no such test".to_owned(),
        PlanError::Limit(why) => why.to_owned(),
        PlanError::Failed(why) => why,
    })?;
    let cpus = cpus(ask.point.placement).ok_or("this machine has too few CPUs for it")?;
    Ok(plan.on(cpus))
}

/// The CPUs of a placement on this machine.
fn cpus(placement: Placement) -> Option<Cpus> {
    placement.cpus(&wirecost_linux::thread::allowed_cpus().unwrap_or_default())
}

/// Prints progress; errors of the output are ignored.
pub(crate) fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

pub(crate) fn tell(what: &str, begun: Nanos) {
    say(&format!("{what}, {:.0} s", seconds(Monotonic.now() - begun)));
}

/// Sets the congestion control of this thread's network namespace.
fn set_congestion_control(name: &str) -> Result<(), String> {
    sysctl::write(CONGESTION_CONTROL, name).map_err(|error| {
        let allowed = sysctl::read("net.ipv4.tcp_allowed_congestion_control");
        let allowed = allowed.unwrap_or_else(|error| error.to_string());
        format!("--congestion-control {name}: {error}; allowed: {allowed}")
    })
}

/// The machine's properties for the table.
pub(crate) fn machine() -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease").trim().to_owned()),
        (
            "CPUs".to_owned(),
            format!("{cpus}, {}", model.map_or("model not told", |(_, model)| model.trim())),
        ),
        (
            "TCP congestion control".to_owned(),
            sysctl::read(CONGESTION_CONTROL).unwrap_or_else(|_| "unknown".to_owned()),
        ),
    ]
}

/// The first line with a digit of a program's version output, which some print to standard error.
fn version(line: &contender::Line) -> String {
    let said = Command::new(child::file(&line.program)).args(&line.args).output();
    let Ok(said) = said else { return "version not told".to_owned() };
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()));
    first.map_or("version not told".to_owned(), |line| line.trim().to_owned())
}

/// Free ports, two hundred at a time.
#[derive(Debug, Default)]
struct Ports {
    used: u16,
}

impl Ports {
    /// Below the kernel's range for clients.
    const FIRST: u16 = 10_000;
    const STEP: u16 = 200;
    const STEPS: u16 = 100;

    fn next(&mut self) -> u16 {
        for _ in 0..Self::STEPS {
            let port = Self::FIRST + self.used * Self::STEP;
            self.used = (self.used + 1) % Self::STEPS;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
        Self::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_port_ranges_differ() {
        let mut ports = Ports::default();
        let first = ports.next();
        assert_ne!(first, ports.next());
        let taken = TcpListener::bind(("127.0.0.1", Ports::FIRST + 2 * Ports::STEP));
        assert_ne!(ports.next(), Ports::FIRST + 2 * Ports::STEP, "{taken:?}");
    }
}
