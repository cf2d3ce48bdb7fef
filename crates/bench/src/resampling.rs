//! `resampling`: the statistics of comparisons and findings on real runs, whose noise no simulation has.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use fastrand::Rng;
use wirecost_analyze::compare::{self, Options, Subject};
use wirecost_analyze::findings;
use wirecost_analyze::measured::Measurements;
use wirecost_model::comparison::{Comparison, Verdict};
use wirecost_model::run::Run;
use wirecost_model::study::{Point, StudyRunRef, Value};
use wirecost_store::study::Study;

use crate::program::Program;

/// Probability of a false alarm in a comparison, and of a finding where nothing has an effect.
const LEVEL: f64 = 0.05;
/// Noise of the runs up to which changes must be found: the standard deviation of the logarithm of the rate.
const NOISE: f64 = 0.05;
/// Settings of the runs that are made: long enough that a machine shared with others has little noise.
const WINDOW: [(&str, &str); 2] = [("duration", "1s"), ("ramp", "200ms")];
/// The axis of the runs that are made.
const AXIS: &str = "connections";
/// Values of that axis.
const POINTS: [&str; 3] = ["1", "4", "16"];

/// Compare and explain studies that are drawn from many real runs of the same points, and fresh studies of
/// the same setting.
#[derive(Debug, clap::Args)]
pub(crate) struct Resampling {
    /// Study with many runs of each point; by default a new one of `@rr` on loopback.
    #[arg(value_name = "STUDY")]
    study: Option<PathBuf>,

    /// Runs of each point of the new study.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(6..=1000))]
    runs: u32,

    /// Studies to draw in each row.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    studies: u32,

    /// Runs of each point in a drawn or fresh study.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=100))]
    repeats: u32,

    /// Fresh pairs of studies of the same setting, made by turns with `wirecost compare --run`.
    #[arg(long, default_value_t = 20)]
    fresh: u32,

    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    program: Program,
}

/// What B is made to differ in from A: its throughput and transactions by this factor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    None,
    AllPoints(f64),
    OnePoint(f64),
}

impl Change {
    fn at(self, place: usize) -> f64 {
        match (self, place) {
            (Change::AllPoints(factor), _) | (Change::OnePoint(factor), 0) => factor,
            _ => 1.0,
        }
    }
}

/// The rows of drawn comparisons, with the share that must find the change.
const ROWS: [(&str, Change, Option<f64>); 3] = [
    ("equal", Change::None, None),
    ("-15% at all points", Change::AllPoints(0.85), Some(0.9)),
    ("-30% at one point", Change::OnePoint(0.7), Some(0.8)),
];

/// The share of studies in which a change must be found.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Goal {
    share: f64,
    /// Whether the runs have little enough noise.
    applies: bool,
}

/// Numbers of studies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    studies: u32,
    /// In which something is called different that is not.
    alarms: u32,
    /// In which the change was found.
    found: u32,
}

impl Resampling {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(told)?;
        let points = self.points(folder.path())?;
        let least = points.iter().map(Vec::len).min().unwrap_or(0);
        if points.len() < 2 || least < 2 * self.repeats as usize {
            return Err(format!(
                "the study has {} points, of {least} valid runs at least: it needs two points or more, of {} \
                 runs",
                points.len(),
                2 * self.repeats
            ));
        }
        let noises: Vec<f64> = points.iter().map(|runs| noise(runs)).collect();
        let shown: Vec<String> = noises.iter().map(|of| format!("{:.1}%", 100.0 * of)).collect();
        let is_noisy = noises.iter().any(|of| *of > NOISE);
        writeln!(
            out,
            "Real runs: {} points, {least} runs or more of each, whose rates have noise of {}. {} studies a row, of \
             {} repeats, seed {}.\n",
            points.len(),
            shown.join(", "),
            self.studies,
            self.repeats,
            self.seed
        )
        .and_then(|()| writeln!(out, "| studies | false alarm | found | goal |\n|---|---|---|---|"))
        .map_err(told)?;
        let mut missed = Vec::new();
        let mut row = |out: &mut dyn Write, name: &str, counts: Counts, least: Option<Goal>| {
            let (text, met) = verdict(counts, least);
            if !met {
                missed.push(name.to_owned());
            }
            let share = |number| 100.0 * f64::from(number) / f64::from(counts.studies.max(1));
            let found =
                least.map_or_else(|| "-".to_owned(), |_| format!("{:.1}%", share(counts.found)));
            let alarms = share(counts.alarms);
            writeln!(out, "| {name} | {alarms:.1}% of {} | {found} | {text} |", counts.studies)
                .map_err(told)
        };
        for (name, change, least) in ROWS {
            let least = least.map(|share| Goal { share, applies: !is_noisy });
            row(out, &format!("comparison, {name}"), self.compared(&points, change)?, least)?;
        }
        row(out, "findings, an axis without effect", self.explained(&points), None)?;
        if self.fresh > 0 {
            row(out, "fresh comparisons, equal", self.fresh()?, None)?;
        }
        match missed.as_slice() {
            [] => Ok(()),
            missed => Err(format!("goals missed: {}", missed.join("; "))),
        }
    }

    /// The valid runs of each point.
    fn points(&self, folder: &Path) -> Result<Vec<Vec<Run>>, String> {
        let made = folder.join("study");
        let path = match &self.study {
            Some(path) => path,
            None => {
                self.make(&made)?;
                &made
            }
        };
        let runs = Study::open(path).and_then(|study| study.runs()).map_err(|e| e.to_string())?;
        let measured = Measurements::of(runs);
        Ok(measured.points.into_iter().map(|point| point.runs).collect())
    }

    fn make(&self, path: &Path) -> Result<(), String> {
        let set = WINDOW.map(|(name, value)| format!("{name} = \"{value}\"\n")).concat();
        let text = format!(
            "title = \"Real runs\"\nprofile = \"@rr\"\nwarm_up = 1\n[set]\n{set}[repeat]\ntimes = {}\n[axes]\n\
             {AXIS} = [{}]\n",
            self.runs,
            POINTS.join(", ")
        );
        let file = path.with_extension("toml");
        std::fs::write(&file, text).map_err(told)?;
        let made = Command::new(self.program.find()?)
            .args(["study", "run", "--quiet", "--loopback"])
            .arg(&file)
            .arg("--out")
            .arg(path)
            .output()
            .map_err(told)?;
        // Invalid runs are left out.
        match path.join("runs").exists() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }

    /// Pairs of studies whose runs are drawn from those of their points, none twice.
    fn compared(&self, points: &[Vec<Run>], change: Change) -> Result<Counts, String> {
        let mut random = Rng::with_seed(self.seed);
        let mut counts = Counts { studies: self.studies, ..Counts::default() };
        let options = Options { threshold: 0.0, metrics: Vec::new() };
        for _ in 0..self.studies {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for (place, runs) in points.iter().enumerate() {
                let drawn = draw(&mut random, runs, 2 * self.repeats as usize);
                let (of_a, of_b) = drawn.split_at(self.repeats as usize);
                a.extend(of_a.iter().map(|run| (place, (*run).clone())));
                let factor = change.at(place);
                b.extend(of_b.iter().map(|run| (place, scaled(run, factor))));
            }
            let [a, b] = [("A", a), ("B", b)].map(|(name, runs)| study(name, runs));
            let compared = compare::compare(&a, &b, &options, "").map_err(|e| e.to_string())?;
            let (alarm, found) = judge(&compared, change);
            counts.alarms += u32::from(alarm);
            counts.found += u32::from(found);
        }
        Ok(counts)
    }

    /// Studies whose axis has no effect: all of their runs are of one real point.
    fn explained(&self, points: &[Vec<Run>]) -> Counts {
        let mut random = Rng::with_seed(self.seed);
        let mut counts = Counts { studies: self.studies, ..Counts::default() };
        let all = points.len() * self.repeats as usize;
        let enough: Vec<&Vec<Run>> = points.iter().filter(|runs| runs.len() >= all).collect();
        counts.studies = if enough.is_empty() { 0 } else { self.studies };
        for number in 0..counts.studies as usize {
            let drawn = draw(&mut random, enough[number % enough.len()], all);
            let placed = drawn.into_iter().enumerate();
            let runs = placed.map(|(at, run)| (at / self.repeats as usize, run.clone()));
            let found = findings::findings(&study("A", runs.collect()).measured);
            let alarm = found.iter().any(|found| found.axis.is_some() && found.p_value.is_some());
            counts.alarms += u32::from(alarm);
        }
        counts
    }

    /// Pairs of the same setting, each made now.
    fn fresh(&self) -> Result<Counts, String> {
        let mut counts = Counts { studies: self.fresh, ..Counts::default() };
        let set = WINDOW.map(|(name, value)| format!(" --{name} {value}")).concat();
        let side = format!("@rr{set}");
        for _ in 0..self.fresh {
            let made = Command::new(self.program.find()?)
                .args(["compare", "--quiet", "--format", "json", "--threshold", "0%"])
                .args(["--repeat", &self.repeats.to_string()])
                .args(["--axis", &format!("{AXIS}={}", POINTS.join(","))])
                .args(["--run", &side, &side])
                .output()
                .map_err(told)?;
            let compared: Comparison = serde_json::from_slice(&made.stdout).map_err(|error| {
                format!("{error}: {}", String::from_utf8_lossy(&made.stderr).trim())
            })?;
            if let (Some(error), true) = (&compared.error, compared.points.is_empty()) {
                return Err(error.clone());
            }
            counts.alarms += u32::from(judge(&compared, Change::None).0);
        }
        Ok(counts)
    }
}

/// Standard deviation of the logarithm of the rate of transactions, or of bytes where there are none.
fn noise(runs: &[Run]) -> f64 {
    let rate = |run: &Run| {
        let transactions = run.transactions.as_ref().map(|transactions| transactions.per_second);
        transactions.or_else(|| Some(run.throughput.as_ref()?.bits_per_second))
    };
    let logarithms: Vec<f64> =
        runs.iter().filter_map(rate).filter(|rate| *rate > 0.0).map(f64::ln).collect();
    let number = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / number;
    let squares: f64 = logarithms.iter().map(|logarithm| (logarithm - mean).powi(2)).sum();
    (squares / (number - 1.0)).sqrt()
}

fn told(error: io::Error) -> String {
    error.to_string()
}

/// So many of the runs, none twice, in random order.
fn draw<'a>(random: &mut Rng, runs: &'a [Run], number: usize) -> Vec<&'a Run> {
    let mut drawn = random.choose_multiple(runs, number);
    random.shuffle(&mut drawn);
    drawn
}

/// A run with another rate.
fn scaled(run: &Run, factor: f64) -> Run {
    let mut run = run.clone();
    if let Some(throughput) = &mut run.throughput {
        throughput.bits_per_second *= factor;
    }
    if let Some(transactions) = &mut run.transactions {
        transactions.per_second *= factor;
    }
    run
}

/// A study of these runs, each with the place of its point.
fn study(name: &str, runs: Vec<(usize, Run)>) -> Subject {
    let mut repeats: BTreeMap<usize, u32> = BTreeMap::new();
    let runs = runs.into_iter().map(|(place, mut run)| {
        let repeat = repeats.entry(place).or_insert(0);
        *repeat += 1;
        let value = vec![Value::new(AXIS, &(place + 1).to_string())];
        run.study = Some(StudyRunRef {
            study: name.to_owned(),
            point: Point { axes: value.clone(), settings: value },
            place: place as u32 + 1,
            repeat: *repeat,
            order: 1,
            search: None,
        });
        (String::new(), run)
    });
    Subject { name: name.to_owned(), measured: Measurements::of(runs), ..Subject::default() }
}

/// Whether something is called different that is not, and whether the change is found.
fn judge(comparison: &Comparison, change: Change) -> (bool, bool) {
    let is_rate = |metric: &str| matches!(metric, "throughput" | "transactions");
    let different =
        |verdict| matches!(verdict, Verdict::Worse | Verdict::Better | Verdict::Different);
    let (mut alarm, mut found) = (false, false);
    for (place, point) in comparison.points.iter().enumerate() {
        for figure in point.figures.iter().filter(|figure| different(figure.verdict)) {
            match is_rate(&figure.metric) && change.at(place) != 1.0 {
                true => found = true,
                false => alarm = true,
            }
        }
    }
    for figure in comparison.overall.iter().filter(|figure| different(figure.verdict)) {
        match (is_rate(&figure.metric), change) {
            (true, Change::AllPoints(_)) => found = true,
            // The mean over all points has changed too.
            (true, Change::OnePoint(_)) => {}
            _ => alarm = true,
        }
    }
    (alarm, found)
}

/// What a row has to reach: few alarms, and the change in at least this share of studies.
fn verdict(counts: Counts, least: Option<Goal>) -> (String, bool) {
    if counts.studies == 0 {
        return ("not done: too few runs of a point".to_owned(), true);
    }
    let studies = f64::from(counts.studies);
    // As many as chance allows in this number of studies: two standard errors.
    let most = studies * LEVEL + 2.0 * (studies * LEVEL * (1.0 - LEVEL)).sqrt();
    let few = f64::from(counts.alarms) <= most;
    let enough = least.is_none_or(|goal| f64::from(counts.found) >= goal.share * studies);
    let goal = match least {
        Some(goal) => format!("found at least {:.0}%", 100.0 * goal.share),
        None => "alarms at most 5%".to_owned(),
    };
    match (few, enough, least) {
        (true, true, _) => (format!("{goal}: met"), true),
        // What is not found in so much noise is no fault of the statistics.
        (true, false, Some(Goal { applies: false, .. })) => {
            (format!("{goal} at noise of {:.0}%: does not apply", 100.0 * NOISE), true)
        }
        _ => (format!("{goal}: missed"), false),
    }
}

#[cfg(test)]
mod tests {
    use wirecost_analyze::statistics::bootstrap::normal;
    use wirecost_model::run::{Throughput, Window, WindowKind};

    use super::*;

    fn points(noise: f64) -> Vec<Vec<Run>> {
        let mut random = Rng::with_seed(5);
        let mut run = || {
            let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
            run.window = Some(Window {
                seconds: 1.0,
                phase: 0,
                ramp_seconds: 0.1,
                kind: WindowKind::Duration,
                dead_seconds: None,
                late_us: None,
                started_unix_ms: None,
            });
            let rate = 1e9 * (noise * normal(&mut random)).exp();
            run.throughput = Some(Throughput {
                bits_per_second: rate,
                tx_bits_per_second: rate,
                rx_bits_per_second: 0.0,
                tx_bytes: 1,
                rx_bytes: 0,
            });
            run
        };
        (0..3).map(|_| (0..30).map(|_| run()).collect()).collect()
    }

    fn resampling() -> Resampling {
        Resampling {
            study: None,
            runs: 60,
            studies: 400,
            repeats: 3,
            fresh: 0,
            seed: 1,
            program: Program::default(),
        }
    }

    #[test]
    fn equal_runs_raise_few_alarms_and_changed_ones_are_found() {
        let points = points(0.03);
        let equal = resampling().compared(&points, Change::None).unwrap();
        assert!(verdict(equal, None).1 && equal.found == 0, "{equal:?}");
        assert!((noise(&points[0]) - 0.03).abs() < 0.015);
        for (_, change, least) in &ROWS[1..] {
            let counts = resampling().compared(&points, *change).unwrap();
            let goal = least.map(|share| Goal { share, applies: true });
            assert!(verdict(counts, goal).1, "{change:?}: {counts:?}");
        }
        let explained = resampling().explained(&points);
        assert!(explained.studies == 400 && verdict(explained, None).1, "{explained:?}");
    }

    #[test]
    fn a_missed_goal_is_called_missed() {
        let counts = |alarms, found| Counts { studies: 100, alarms, found };
        assert!(verdict(counts(9, 0), None).1);
        assert!(!verdict(counts(10, 0), None).1);
        let goal = |applies| Some(Goal { share: 0.9, applies });
        assert!(verdict(counts(5, 90), goal(true)).1);
        assert!(!verdict(counts(5, 89), goal(true)).1);
        // Runs of much noise are no reason to find nothing, but none for false alarms.
        assert!(verdict(counts(5, 0), goal(false)).1);
        assert!(!verdict(counts(10, 0), goal(false)).1);
    }
}
