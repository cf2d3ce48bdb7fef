//! Making the runs of a study, and keeping them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wirecost_lab::Lab;
use wirecost_model::event::Event as RunEvent;
use wirecost_model::run::Run;
use wirecost_model::search::Search;
use wirecost_model::status::Status;
use wirecost_model::study::StudyRunRef;
use wirecost_store::study::Writer;
use wirecost_study::{PointError, PointRunner, Task};

use super::plan::Step;
use super::show::Show;
use crate::Failure;
use crate::commands::run::options::duration::set_duration;
use crate::commands::run::options::load::offer;
use crate::commands::run::{Machines, environments};

/// Runs points on hosts.
pub(super) struct Hosts<'a> {
    pub(super) title: &'a str,
    pub(super) steps: &'a [Step],
    pub(super) writer: &'a Writer,
    pub(super) show: &'a RefCell<Show<'a>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) machines: &'a Machines,
    pub(super) started: Instant,
    /// Reused between runs: creating a lab takes as long as a short run.
    pub(super) lab: Option<Rc<Lab>>,
}

impl PointRunner for Hosts<'_> {
    fn run(&mut self, task: &Task) -> Result<Run, PointError> {
        let (run, hosts) = self.make(task).map_err(refusal)?;
        // What was broken off is made again by `resume`.
        if matches!(run.status, Status::Ok | Status::Invalid) {
            let kept = self.writer.save(&task.id(), &run, &hosts);
            kept.map_err(|error| refusal(Failure::new(Status::Failed, error)))?;
        }
        Ok(run)
    }

    fn possible(&self, place: u32, search: &Search) -> Search {
        self.steps[place as usize - 1].possible(search)
    }

    fn spent(&self) -> Duration {
        self.started.elapsed()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub(super) type Made = (Run, serde_json::Map<String, serde_json::Value>);

impl Hosts<'_> {
    fn make(&mut self, task: &Task) -> Result<Made, Failure> {
        let step = &self.steps[task.place as usize - 1];
        let show = self.show;
        let passes = step.options.passes();
        let mut listen =
            |pass: usize, event: &_| show.borrow_mut().under_way((pass + 1, passes), event);
        let on = On { machines: self.machines, stop: &self.stop, lab: &mut self.lab };
        make(step, task, self.title, on, &mut listen)
    }
}

/// Where a run is made.
pub(super) struct On<'a> {
    pub(super) machines: &'a Machines,
    pub(super) stop: &'a AtomicBool,
    /// That of the run before, and then of this one.
    pub(super) lab: &'a mut Option<Rc<Lab>>,
}

/// Makes a run of a point.
pub(super) fn make(
    step: &Step,
    task: &Task,
    title: &str,
    on: On<'_>,
    listen: &mut dyn FnMut(usize, &RunEvent),
) -> Result<Made, Failure> {
    let mut ready = step.ready.clone();
    if let Some(duration) = task.duration() {
        set_duration(&mut ready.profile, duration)?;
    }
    if let Some(load) = task.load {
        offer(&mut ready.profile, load)?;
    }
    let place = step.options.place(&ready, &step.hosts, on.lab.take())?;
    *on.lab = place.lab();
    let made = step.options.run(&ready, &place, on.machines, task.repeat, on.stop, listen);
    let (mut run, outcome) = made?;
    // As the study calls it, not where it is kept.
    run.profile = task.point.get("profile").unwrap_or_default().to_owned();
    run.study = Some(StudyRunRef {
        study: title.to_owned(),
        point: task.point.clone(),
        place: task.place,
        repeat: task.repeat,
        order: task.order,
        search: task.trial.clone(),
    });
    Ok((run, environments(&outcome)))
}

pub(super) fn refusal(failure: Failure) -> PointError {
    let message = match failure.help {
        Some(help) => format!("{}\n  help: {help}", failure.message),
        None => failure.message,
    };
    PointError { status: failure.status, message }
}
