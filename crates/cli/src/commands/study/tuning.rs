//! Making the runs of `wirecost tune`, and keeping them as a study.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wirecost_lab::Lab;
use wirecost_model::event::{Event as RunEvent, Listener as _};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef, Value};
use wirecost_report::progress::{Labels, Progress, Style};
use wirecost_store::study::Writer;
use wirecost_study::tuning::{self, KEEP, TuneEvent, Tuned};
use wirecost_study::{Definition, Matrix, PointError, PointRunner, StopReason, Task};

use super::plan::{self, Step};
use super::point_runner::{self, On};
use super::show::show_time;
use super::source::{Loaded, failure};
use super::{counted, default_name, own_directory, say_end};
use crate::Failure;
use crate::commands::run::{ConflictOptions, HostOptions, Machines, interruptible};
use crate::terminal;

/// What `wirecost tune` asks for.
pub(crate) struct TuneRequest<'a> {
    /// With the factors as its axes.
    pub(crate) definition: Definition,
    pub(crate) hosts: &'a HostOptions,
    /// Whether factors that the hosts lack are left out, or refused.
    pub(crate) factors_by_default: bool,
    pub(crate) conflict: ConflictOptions,
    pub(crate) out: Option<&'a Path>,
    pub(crate) quiet: bool,
}

/// A search that ended.
pub(crate) struct Searched {
    pub(crate) definition: Definition,
    pub(crate) tuned: Tuned,
    pub(crate) writer: Writer,
    pub(crate) quiet: bool,
}

/// Length of a run that only shows whether hosts take a setting.
const TRIAL: &str = "100ms";
/// So often a level is tried whose runs are invalid.
const TRIALS: u32 = 3;

/// Searches, and saves the runs as a study.
///
/// # Errors
/// The search cannot be made; then nothing is saved. Or a run could not be made.
pub(crate) fn search(request: TuneRequest<'_>) -> Result<Searched, Failure> {
    let TuneRequest { definition, hosts, factors_by_default, conflict, out, quiet } = request;
    let mut loaded = Loaded::on(definition, hosts)?;
    if let Some(tune) = &mut loaded.definition.tune {
        // What is wrong with them is told before anything is tried.
        tune.aims().map_err(failure)?;
        tune.lab = hosts.lab.clone().filter(|name| !name.is_empty());
    }
    if !factors_by_default {
        // A budget that does not suffice is told before anything is tried.
        tuning::goal(&loaded.definition).map_err(failure)?;
    }
    plan::steps(&loaded, &str::to_owned)?;
    if !factors_by_default {
        for (place, factor) in loaded.definition.axes.keys().enumerate() {
            for point in points_of(&loaded.definition, place)? {
                let value = point.axes[place].value.clone();
                plan::step(&point, &loaded, &str::to_owned)
                    .map_err(|refused| of_level(factor, &value, refused))?;
            }
        }
    }
    let profiles = loaded.profiles()?;
    let mut driver = Driver::new(&loaded, conflict, quiet)?;
    let left_out = driver.try_levels(&mut loaded, factors_by_default)?;
    tuning::goal(&loaded.definition).map_err(|error| {
        let failure = failure(error);
        let reasons = left_out.iter().map(|(factor, reason)| format!("{factor}: {reason}"));
        match reasons.collect::<Vec<_>>().join("; ") {
            none if none.is_empty() => failure,
            reasons => failure.help(format!("left out: {reasons}")),
        }
    })?;
    if let Some(tune) = &mut loaded.definition.tune {
        tune.left_out.extend(left_out);
    }
    let path = match out {
        Some(path) => path.to_owned(),
        None => own_directory(&default_name(&loaded.definition))?,
    };
    let profiles = profiles.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let writer =
        Writer::create(&path, &loaded.definition.to_text(), profiles).map_err(Failure::usage)?;
    let tuned = driver.drive(&loaded, &writer, Vec::new(), &str::to_owned)?;
    if let StopReason::Refused(refusal) = &tuned.summary.ended
        && writer.study().ids().is_ok_and(|ids| ids.is_empty())
    {
        let failure = Failure::new(refusal.status, &refusal.message);
        let _ = writer.discard();
        return Err(failure);
    }
    Ok(Searched { definition: loaded.definition, tuned, writer, quiet })
}

/// Continues a search from its records.
///
/// # Errors
/// As of [`search`].
pub(super) fn resume(
    writer: Writer,
    definition: Definition,
    conflict: ConflictOptions,
    quiet: bool,
) -> Result<Searched, Failure> {
    let lab = definition.tune.as_ref().and_then(|tune| tune.lab.clone());
    let loaded = Loaded::of(definition, PathBuf::new(), lab)?;
    let profiles = writer.study().profiles();
    let kept = |name: &str| match name.starts_with('@') {
        true => name.to_owned(),
        false => profiles.join(super::source::file_name(name)).display().to_string(),
    };
    plan::steps(&loaded, &kept)?;
    let runs = writer.study().runs().map_err(Failure::usage)?;
    let done = runs.into_iter().map(|(_, run)| run).collect();
    let tuned = Driver::new(&loaded, conflict, quiet)?.drive(&loaded, &writer, done, &kept)?;
    Ok(Searched { definition: loaded.definition, tuned, writer, quiet })
}

impl Searched {
    /// Says why a search ended early.
    ///
    /// # Errors
    /// A run could not be made.
    pub(crate) fn say_end(&self) -> Result<(), Failure> {
        say_end(&self.tuned.summary, Some(self.writer.study()))
    }

    /// All runs that were saved.
    pub(crate) fn runs(&self) -> Result<Vec<Run>, Failure> {
        let runs = self.writer.study().runs().map_err(Failure::usage)?;
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    pub(crate) fn say_saved(&self) {
        if !self.quiet {
            let path = self.writer.study().directory().display();
            terminal::warn(format_args!("saved to {path}"));
        }
    }
}

/// The points at which a factor has its levels, and the others are as in the base.
fn points_of(definition: &Definition, place: usize) -> Result<Vec<Point>, Failure> {
    let count = definition.axes.get_index(place).map_or(0, |(_, levels)| levels.len());
    let point = |level| {
        let mut at = vec![0; definition.axes.len()];
        at[place] = level;
        Matrix::at(definition, &at).map_err(failure)
    };
    (0..count).map(point).collect()
}

fn of_level(factor: &str, value: &str, mut refused: Failure) -> Failure {
    refused.message = format!("factor {factor}, level {value}: {}", refused.message);
    refused
}

/// The hosts of a search, from its first run to its last.
struct Driver {
    machines: Machines,
    stop: Arc<AtomicBool>,
    lab: Option<Rc<Lab>>,
    started: Instant,
    quiet: bool,
}

impl Driver {
    fn new(loaded: &Loaded, conflict: ConflictOptions, quiet: bool) -> Result<Self, Failure> {
        let stop = interruptible();
        let machines = Machines::of(&loaded.hosts, conflict, &stop, quiet)?;
        Ok(Self { machines, stop, lab: None, started: Instant::now(), quiet })
    }

    /// Runs each level of each factor once, for a moment, so that what hosts do not take is known before the
    /// search. Leaves out factors of the default set that they do not take.
    ///
    /// # Errors
    /// They do not take a level that the user named.
    fn try_levels(
        &mut self,
        loaded: &mut Loaded,
        by_default: bool,
    ) -> Result<Vec<(String, String)>, Failure> {
        let mut left_out = Vec::new();
        let factors: Vec<String> = loaded.definition.axes.keys().cloned().collect();
        if !self.quiet {
            terminal::warn(format_args!(
                "trying each level of {} for a moment",
                counted(factors.len(), "factor")
            ));
        }
        let base = Matrix::at(&loaded.definition, &vec![0; factors.len()]).map_err(failure)?;
        let base = self.try_point(loaded, &base, &str::to_owned)?;
        for (place, factor) in factors.iter().enumerate() {
            for point in points_of(&loaded.definition, place)?.into_iter().skip(1) {
                let value = point.axes[place].value.clone();
                if value == KEEP {
                    continue;
                }
                match self.try_level(loaded, &point, factor, base.status) {
                    Ok(()) => {}
                    Err(refused) if refused.status == Status::Interrupted => return Err(refused),
                    Err(refused) if by_default => {
                        left_out.push((format!("{factor}={value}"), refused.message));
                        break;
                    }
                    Err(refused) => return Err(of_level(factor, &value, refused)),
                }
            }
        }
        for (factor, _) in &left_out {
            let name = factor.split_once('=').map_or(factor.as_str(), |(name, _)| name);
            loaded.definition.axes.shift_remove(name);
        }
        loaded.matrix = Matrix::of(&loaded.definition).map_err(failure)?;
        Ok(left_out)
    }

    /// A short run.
    ///
    /// # Errors
    /// The hosts do not take the point. An invalid run is no error.
    fn try_point(
        &mut self,
        loaded: &Loaded,
        point: &Point,
        find: &dyn Fn(&str) -> String,
    ) -> Result<Run, Failure> {
        let mut point = point.clone();
        let short = [("duration", TRIAL), ("ramp", "0s"), ("observe", "none")];
        point.settings.retain(|setting| short.iter().all(|(name, _)| setting.name != *name));
        point.settings.extend(short.map(|(name, value)| Value::new(name, value)));
        let step = plan::step(&point, loaded, find)?;
        let task = Task { point, place: 1, repeat: 1, order: 0, load: None, trial: None };
        let on = On { machines: &self.machines, stop: &self.stop, lab: &mut self.lab };
        let (run, _) = point_runner::make(&step, &task, "", on, &mut |_, _| {})?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Status::Interrupted, "interrupted"));
        }
        match run.status {
            Status::Ok | Status::Invalid => Ok(run),
            status => Err(Failure::new(status, run.error.unwrap_or_default())),
        }
    }

    fn try_level(
        &mut self,
        loaded: &Loaded,
        point: &Point,
        factor: &str,
        of_base: Status,
    ) -> Result<(), Failure> {
        let mut run = self.try_point(loaded, point, &str::to_owned)?;
        // A busy machine makes a run invalid now and then; a level that never has a result is none to search.
        for _ in 1..TRIALS {
            if run.status == Status::Ok || of_base != Status::Ok {
                break;
            }
            run = self.try_point(loaded, point, &str::to_owned)?;
        }
        if run.status == Status::Invalid && of_base == Status::Ok {
            let error = run.error.unwrap_or_else(|| "the run is invalid".to_owned());
            return Err(Failure::new(Status::Invalid, error));
        }
        let tunable = factor.rsplit_once(':').map(|(_, name)| format!("tune.{name}"));
        let name = tunable.as_deref().unwrap_or(factor);
        let mut of_factor = run.settings.iter().filter(|setting| setting.name == name).peekable();
        let is_same = of_factor.peek().is_some()
            && of_factor.all(|setting| setting.previous.as_ref() == Some(&setting.effective));
        let first = loaded.definition.levels_of(factor).into_iter().next();
        if is_same && first.as_deref() == Some(KEEP) {
            return Err(Failure::usage("this is what the hosts have already")
                .help(format!("give {factor} another level, or leave it out")));
        }
        Ok(())
    }

    fn drive(
        self,
        loaded: &Loaded,
        writer: &Writer,
        done: Vec<Run>,
        find: &dyn Fn(&str) -> String,
    ) -> Result<Tuned, Failure> {
        let show = RefCell::new(TuneShow::new(loaded, find, self.quiet)?);
        let mut hosts =
            TuneHosts { loaded, find, steps: BTreeMap::new(), writer, show: &show, driver: self };
        let mut listener = |event: &TuneEvent<'_>| show.borrow_mut().event(event);
        tuning::run(&loaded.definition, done, &mut hosts, &mut listener).map_err(failure)
    }
}

/// Runs settings on hosts.
struct TuneHosts<'a> {
    loaded: &'a Loaded,
    find: &'a dyn Fn(&str) -> String,
    /// By place of the setting.
    steps: BTreeMap<u32, Step>,
    writer: &'a Writer,
    show: &'a RefCell<TuneShow>,
    driver: Driver,
}

impl TuneHosts<'_> {
    fn make(&mut self, task: &Task) -> Result<point_runner::Made, Failure> {
        if !self.steps.contains_key(&task.place) {
            self.steps.insert(task.place, plan::step(&task.point, self.loaded, self.find)?);
        }
        let Some(step) = self.steps.get(&task.place) else {
            return Err(Failure::new(Status::Failed, "a setting has no plan"));
        };
        let passes = step.options.passes();
        let show = self.show;
        let mut listen =
            |pass: usize, event: &_| show.borrow_mut().under_way((pass + 1, passes), event);
        let Driver { machines, stop, lab, .. } = &mut self.driver;
        let on = On { machines, stop, lab };
        point_runner::make(step, task, &self.loaded.definition.title, on, &mut listen)
    }
}

/// What may be of one combination of levels alone.
fn is_refusal(status: Status) -> bool {
    matches!(status, Status::Usage | Status::Peer)
}

impl TuneHosts<'_> {
    /// A combination that is refused is a run without a result, if the base still runs.
    ///
    /// # Errors
    /// The base is refused too.
    fn without_result(
        &mut self,
        task: &Task,
        refused: Failure,
    ) -> Result<point_runner::Made, Failure> {
        let base = &self.loaded.matrix.points[0];
        if task.point == *base || self.driver.try_point(self.loaded, base, self.find).is_err() {
            return Err(refused);
        }
        let profile = task.point.get("profile").unwrap_or_default();
        let engine = task.point.get("engine").unwrap_or_default();
        let now = wirecost_linux::clock::unix_ms() as u64;
        let mut run = Run::empty(profile, engine, env!("CARGO_PKG_VERSION"), now);
        run.status = Status::Invalid;
        run.error = Some(refused.message);
        run.study = Some(StudyRunRef {
            study: self.loaded.definition.title.clone(),
            point: task.point.clone(),
            place: task.place,
            repeat: task.repeat,
            order: task.order,
            search: None,
        });
        Ok((run, serde_json::Map::new()))
    }
}

impl PointRunner for TuneHosts<'_> {
    fn run(&mut self, task: &Task) -> Result<Run, PointError> {
        let (run, hosts) = match self.make(task) {
            Ok((run, _)) if is_refusal(run.status) => {
                let message = run.error.clone().unwrap_or_default();
                self.without_result(task, Failure::new(run.status, message))
            }
            Ok(made) => Ok(made),
            Err(refused) if is_refusal(refused.status) => self.without_result(task, refused),
            Err(failure) => Err(failure),
        }
        .map_err(point_runner::refusal)?;
        if matches!(run.status, Status::Ok | Status::Invalid) {
            let kept = self.writer.save(&task.id(), &run, &hosts);
            kept.map_err(|error| point_runner::refusal(Failure::new(Status::Failed, error)))?;
        }
        Ok(run)
    }

    fn spent(&self) -> Duration {
        self.driver.started.elapsed()
    }

    fn stopped(&self) -> bool {
        self.driver.stop.load(Ordering::Relaxed)
    }
}

/// What a search shows while it is under way.
struct TuneShow {
    quiet: bool,
    progress: Progress<io::Stderr>,
    goal: tuning::TuneGoal,
    each: Duration,
    budget: usize,
    number: String,
    point: Point,
    left: Duration,
}

impl TuneShow {
    fn new(loaded: &Loaded, find: &dyn Fn(&str) -> String, quiet: bool) -> Result<Self, Failure> {
        let goal = tuning::goal(&loaded.definition).map_err(failure)?;
        let goal = goal.ok_or_else(|| Failure::usage("the study is no search"))?;
        let base = &loaded.matrix.points[0];
        let each = plan::step(base, loaded, find)?.time;
        Ok(Self {
            quiet,
            progress: Progress::new(io::stderr(), Style::of(&io::stderr())),
            budget: goal.tuning.budget,
            goal,
            each,
            number: String::new(),
            point: Point::default(),
            left: Duration::ZERO,
        })
    }

    fn under_way(&mut self, (pass, of): (usize, usize), event: &RunEvent) {
        if self.quiet {
            return;
        }
        self.progress.label(Labels {
            number: self.number.clone(),
            point: changes(&self.point, &self.goal),
            point_values: changes(&self.point, &self.goal),
            busy: None,
            left: show_time(self.left),
        });
        self.progress.pass(pass, of);
        self.progress.event(event);
    }

    fn event(&mut self, event: &TuneEvent<'_>) {
        if self.quiet {
            return;
        }
        match event {
            TuneEvent::Started { budget, done } => {
                let done = match done {
                    0 => String::new(),
                    done => format!(", {done} of them finished"),
                };
                let time = show_time(self.each * *budget as u32);
                let factors = counted(self.goal.factors.len(), "factor");
                self.progress
                    .stay(&format!("{factors}, at most {budget} runs{done}, about {time}"));
            }
            TuneEvent::RunStarted { task, number, .. } => {
                self.number = format!("{number}/{}", self.budget.max(*number));
                self.point = task.point.clone();
                self.left = self.each * self.budget.saturating_sub(*number) as u32;
            }
            TuneEvent::RunEnded { task, stage, run, .. } => {
                let stage = stage.map_or("warm-up", wirecost_analyze::tuning::Stage::name);
                let objective = &self.goal.objective.selector;
                let figure = match (run.status, objective.of(run)) {
                    (Status::Ok, Ok(value)) => objective.metric().unit.show(value),
                    (Status::Ok, Err(reason)) => reason,
                    _ => run.error.clone().unwrap_or_else(|| "without a result".to_owned()),
                };
                let at = changes(&task.point, &self.goal);
                let line = format!("  {}  {stage}  {figure}  {at}", self.number);
                self.progress.stay_on_one_line(&line);
            }
            TuneEvent::Ended(_) => self.progress.clear(),
        }
    }
}

/// The factors that are not at the base's level: `tune.mtu=9000`; `base` where all are.
fn changes(point: &Point, goal: &tuning::TuneGoal) -> String {
    let each = point.axes.iter().zip(&goal.levels);
    let changed: Vec<String> = each
        .filter(|(axis, levels)| levels.first() != Some(&axis.value))
        .map(|(axis, _)| format!("{}={}", axis.name, axis.value))
        .collect();
    if changed.is_empty() { "base".to_owned() } else { changed.join(" ") }
}
