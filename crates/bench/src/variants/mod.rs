//! `variants`: one profile in several settings, in turn. docs/bench.md tells what is compared.

mod table;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::run::Run;

use crate::interrupt::{check_interrupted, watch};
use crate::namespace::enter_own_namespace;
use crate::peers::contender::{Line, Plan};
use crate::peers::contenders::wirecost;
use crate::peers::{machine, meter, say, session, tell};
use crate::program::Program;
use crate::rounds::{Order, is_given_up};
use table::Table;

/// Time before the window, milliseconds.
const RAMP: u32 = 500;
/// Maximum time of a profile's other phases.
const OTHER_PHASES: Nanos = 60 * SECOND;

/// Compare settings of one profile.
///
/// Runs are interleaved. Shows throughput or transactions, CPU time and latency of each setting, and
/// their ratios to the first.
#[derive(Debug, clap::Args)]
pub(crate) struct Variants {
    /// Profile: a file, or a built-in profile (see `wirecost list`).
    #[arg(value_name = "PROFILE|@BUILTIN")]
    profile: String,

    /// Name of a setting and its arguments of `wirecost run`, as in a shell. The first variant is the
    /// base; builds follow the settings.
    #[arg(long = "variant", value_name = "NAME='ARGS'", value_parser = parse)]
    variants: Vec<Variant>,

    /// Name and path of another `wirecost`, which is a variant too.
    #[arg(long = "build", value_name = "NAME=PATH", value_parser = parse_build)]
    builds: Vec<Variant>,

    /// Arguments of `wirecost run` for all settings.
    #[arg(last = true, value_name = "ARGS")]
    common: Vec<String>,

    /// Number of rounds; each runs every setting. Fewer than six give no interval.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Length of a window in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    window: u32,

    /// Seed of the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Also save the tables to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    program: Program,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variant {
    name: String,
    args: Vec<String>,
    /// None: the one of all settings.
    program: Option<PathBuf>,
}

fn parse(text: &str) -> Result<Variant, String> {
    let (name, args) = text.split_once('=').ok_or("it has no `=` after its name")?;
    let name = name.trim();
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let args = shlex::split(args).ok_or("a quotation mark has no other")?;
    Ok(Variant { name: name.to_owned(), args, program: None })
}

fn parse_build(text: &str) -> Result<Variant, String> {
    let (name, path) = text.split_once('=').ok_or("it has no `=` after its name")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let program = Some(Program::at(path).find()?);
    Ok(Variant { name: name.to_owned(), args: Vec::new(), program })
}

/// The result of one run, per second of its window.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sample {
    /// Bytes of payload, received.
    payload: f64,
    transactions: f64,
    /// Whether all payload goes in the same direction.
    one_way: bool,
    /// Traced number of CPUs that were not halted, on all machines of the run.
    busy: Option<f64>,
    /// Cycles of the TSC in a second of a CPU.
    hertz: Option<f64>,
    /// Microseconds.
    p50: Option<f64>,
    p99: Option<f64>,
    warnings: Vec<String>,
}

impl Sample {
    fn of(run: &Run) -> Self {
        let rates = run.throughput.as_ref();
        let observed = || run.observe.iter().flat_map(|observe| &observe.hosts);
        let cpus = || observed().filter_map(|host| host.cpu.as_ref());
        let busy: Option<Vec<f64>> = cpus().map(meter::busy_cpus).collect();
        Self {
            payload: rates.map_or(0.0, |rates| rates.bits_per_second / 8.0),
            transactions: run.transactions.as_ref().map_or(0.0, |done| done.per_second),
            one_way: rates.is_some_and(|rates| (rates.tx_bytes == 0) != (rates.rx_bytes == 0)),
            busy: busy
                .filter(|of_hosts| !of_hosts.is_empty())
                .map(|of_hosts| of_hosts.iter().sum()),
            hertz: cpus().find_map(|cpu| cpu.tsc_hz),
            p50: run.latency_us.as_ref().map(|latency| latency.p50),
            p99: run.latency_us.as_ref().map(|latency| latency.p99),
            warnings: run.warnings.iter().map(|warning| warning.code.clone()).collect(),
        }
    }
}

/// A variant's runs, by round; none for a failed run.
#[derive(Debug, Clone)]
struct Series {
    name: String,
    line: String,
    samples: Vec<Option<Sample>>,
    /// Message of the last failed run.
    failed: Option<String>,
}

impl Variants {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        if self.all().count() < 2 {
            return Err(
                "there is nothing to compare: name two variants or builds at least".to_owned()
            );
        }
        let names = || self.all().map(|variant| variant.name.as_str());
        if let Some(twice) = names().find(|name| names().filter(|other| other == name).count() > 1)
        {
            return Err(format!("two variants are called {twice}"));
        }
        let wirecost = match self.variants.is_empty() {
            true => PathBuf::new(),
            false => self.program.find()?,
        };
        watch()?;
        let mut notes = Vec::new();
        // Agents elsewhere are not to be reached from there.
        if !self.has_hosts_elsewhere()
            && let Err(error) = enter_own_namespace()
        {
            notes.push(format!("not in a network namespace of its own ({error})"));
        }
        if self.rounds < 6 {
            notes.push(format!("{} rounds: an interval takes six", self.rounds));
        }
        let series = self.run_rounds(&wirecost)?;
        let mut facts = machine();
        facts.push(("measured".to_owned(), self.measured()));
        let table = Table { facts, notes, series };
        let markdown = table.markdown();
        out.write_all(markdown.as_bytes()).map_err(told)?;
        if let Some(path) = &self.out {
            fs::write(path, &markdown).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        match table.series.iter().find(|series| series.samples.iter().all(Option::is_none)) {
            None => Ok(()),
            Some(series) => Err(format!(
                "{} never ran: {}",
                series.name,
                series.failed.as_deref().unwrap_or("no round")
            )),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Variant> {
        self.variants.iter().chain(&self.builds)
    }

    fn has_hosts_elsewhere(&self) -> bool {
        let is_host = |arg: &String| arg == "--host" || arg.starts_with("--host=");
        self.common.iter().chain(self.all().flat_map(|v| &v.args)).any(is_host)
    }

    fn measured(&self) -> String {
        format!("{} rounds, windows of {} s, seed {}", self.rounds, self.window, self.seed)
    }

    fn run_rounds(&self, wirecost: &Path) -> Result<Vec<Series>, String> {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let begun = Monotonic.now();
        let lines: Vec<Line> = self.all().map(|v| self.line(wirecost, v)).collect();
        let mut all: Vec<Series> = (self.all().zip(&lines))
            .map(|(variant, line)| Series {
                name: variant.name.clone(),
                line: line.to_string(),
                samples: Vec::new(),
                failed: None,
            })
            .collect();
        let mut order = Order::of(self.seed);
        for round in 0..self.rounds {
            let mut turns: Vec<usize> = (0..all.len()).collect();
            order.shuffle(&mut turns);
            for turn in turns {
                if is_given_up(&all[turn].samples) {
                    continue;
                }
                let plan = Plan { server: None, client: lines[turn].clone() };
                let time = Nanos::from(self.window) * SECOND + OTHER_PHASES;
                let sample = session::run(&plan, scratch.path(), time)
                    .and_then(|written| Ok(Sample::of(&wirecost::read(&written)?)));
                check_interrupted()?;
                let series = &mut all[turn];
                if let Err(why) = &sample {
                    say(&format!("{}: {why}", series.name));
                    series.failed = Some(why.clone());
                }
                series.samples.push(sample.ok());
            }
            tell(&format!("round {} of {}", round + 1, self.rounds), begun);
        }
        Ok(all)
    }

    /// The command line of a user, with the probe that traces CPU time.
    fn line(&self, wirecost: &Path, variant: &Variant) -> Line {
        let ours =
            format!("--ramp {RAMP}ms --duration {}s --observe cpu --quiet --json -", self.window);
        let mut args = vec!["run".to_owned(), self.profile.clone()];
        args.extend(self.common.iter().chain(&variant.args).cloned());
        args.extend(ours.split(' ').map(str::to_owned));
        let wirecost = variant.program.as_deref().unwrap_or(wirecost);
        Line { program: wirecost.display().to_string(), args, cpu: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_a_name_and_shell_words() {
        let variant =
            parse("single reads=--var options='single_reads nodelay' --workers 1").unwrap();
        assert_eq!(variant.name, "single reads");
        assert_eq!(variant.args, ["--var", "options=single_reads nodelay", "--workers", "1"]);
        assert_eq!(parse("base=").unwrap().args, [""; 0]);
        assert!(parse("base").unwrap_err().contains("`=`"));
        assert!(parse("=--workers 1").unwrap_err().contains("name"));
        assert!(parse("base=--var 'x").unwrap_err().contains("quotation"));
    }
}
