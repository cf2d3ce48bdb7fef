//! What a study shows while it is under way: which run of how many, how long it still takes, what is
//! finished.

use std::io::{self, Stderr, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use wirecost_analyze::metrics;
use wirecost_linux::proc_stat;
use wirecost_model::event::{Event as RunEvent, Listener as RunListener};
use wirecost_model::host::CpuSnapshot;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::Point;
use wirecost_report::outputs::TerminalStyle;
use wirecost_report::progress::{Labels, Progress, Style};
use wirecost_report::run_lines::RunLines;
use wirecost_report::tables::TableRequest;
use wirecost_study::{Event, Listener, Matrix, StopReason, Summary};

use crate::terminal;

use super::counted;
use super::plan::Step;

/// CPU use is averaged over this time.
const CPU_EVERY: Duration = Duration::from_millis(500);

/// Which outputs are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Output {
    /// Progress on standard error.
    pub(super) progress: bool,
    /// Each event as JSON on standard output.
    pub(super) json_lines: bool,
}

pub(super) struct Show<'a> {
    output: Output,
    steps: &'a [Step],
    /// Whether its runs are trials, whose number nobody knows beforehand.
    is_search: bool,
    finished: RunLines<'a>,
    progress: Progress<Stderr>,
    least: usize,
    /// Estimated and actual time of the finished runs.
    thought: Duration,
    took: Duration,
    /// Estimated time of the remaining runs.
    left: Duration,
    run_started: Instant,
    /// Number and point of the current run.
    number: String,
    point: Point,
    cpu: Option<(Instant, CpuSnapshot)>,
    busy: Option<f64>,
}

impl<'a> Show<'a> {
    pub(super) fn new(
        output: Output,
        steps: &'a [Step],
        table: &'a TableRequest,
        matrix: &Matrix,
        left: Duration,
        is_search: bool,
    ) -> Self {
        Self {
            output,
            steps,
            is_search,
            finished: RunLines::new(table, &matrix.points, TerminalStyle::of(&io::stderr())),
            progress: Progress::new(io::stderr(), Style::of(&io::stderr())),
            least: 0,
            thought: Duration::ZERO,
            took: Duration::ZERO,
            left,
            run_started: Instant::now(),
            number: String::new(),
            point: Point::default(),
            cpu: None,
            busy: None,
        }
    }

    /// An event of the current run, in this pass of so many.
    pub(super) fn under_way(&mut self, (pass, of): (usize, usize), event: &RunEvent) {
        if !self.output.progress {
            return;
        }
        self.look_at_cpus();
        self.progress.label(Labels {
            number: self.number.clone(),
            point: self.point.to_string(),
            point_values: values(&self.point),
            busy: self.busy,
            left: show_time(self.remaining()),
        });
        self.progress.pass(pass, of);
        self.progress.event(event);
    }

    /// Estimated remaining time, corrected by the error of the estimates so far.
    fn remaining(&self) -> Duration {
        let pace = if self.thought.is_zero() {
            1.0
        } else {
            self.took.as_secs_f64() / self.thought.as_secs_f64()
        };
        let of_this = self.run_started.elapsed();
        self.left.mul_f64(pace).saturating_sub(of_this)
    }

    /// `3/12`; repeats that the study adds are beyond its least number of runs.
    fn number(&self, number: usize) -> String {
        match self.is_search {
            true => number.to_string(),
            false => format!("{number}/{}", self.least.max(number)),
        }
    }

    /// CPU use of this machine from /proc/stat, precise enough to show activity.
    fn look_at_cpus(&mut self) {
        let due = self.cpu.as_ref().is_none_or(|(at, _)| at.elapsed() >= CPU_EVERY);
        if !due {
            return;
        }
        let Ok(now) = proc_stat::cpu_snapshot() else { return };
        if let Some((_, before)) = &self.cpu {
            let sum = |snapshot: &CpuSnapshot| {
                snapshot.ticks.iter().fold((0, 0), |(idle, all), cpu| {
                    let rest = cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal;
                    let off = cpu.idle + cpu.iowait;
                    (idle + off, all + off + rest)
                })
            };
            let ((idle_0, all_0), (idle_1, all_1)) = (sum(before), sum(&now));
            let all = all_1.saturating_sub(all_0);
            if all > 0 {
                self.busy = Some(1.0 - idle_1.saturating_sub(idle_0) as f64 / all as f64);
            }
        }
        self.cpu = Some((Instant::now(), now));
    }

    fn json(&self, line: &Line<'_>) {
        if self.output.json_lines
            && let Ok(text) = serde_json::to_string(line)
        {
            // Who reads no further wants no further line.
            let _ = writeln!(terminal::stdout(), "{text}");
        }
    }
}

impl Listener for Show<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.json(&Line::of(event));
        match event {
            Event::Started { points, least, done, .. } => {
                self.least = *least;
                if self.output.progress {
                    let left = show_time(self.left);
                    let done = if *done > 0 {
                        let runs = if self.is_search { "trials" } else { "of them" };
                        format!(", {done} {runs} finished")
                    } else {
                        String::new()
                    };
                    let points = counted(*points, "point");
                    self.progress.stay(&match self.is_search {
                        true => format!("{points}, a search at each{done}, typically {left}"),
                        false => {
                            format!("{points}, {}{done}, about {left}", counted(*least, "run"))
                        }
                    });
                }
            }
            Event::RunStarted { task, number } => {
                self.run_started = Instant::now();
                self.number = self.number(*number);
                self.point = task.point.clone();
            }
            Event::RunEnded { task, number, run } => {
                let thought = self.steps[task.place as usize - 1].time_of(task);
                self.took += self.run_started.elapsed();
                self.thought += thought;
                self.left = self.left.saturating_sub(thought);
                if self.output.progress {
                    let remark = if task.repeat == 0 { "  (warm-up)" } else { "" };
                    let number = self.number(*number);
                    for line in self.finished.of(&number, task.place as usize - 1, run, remark) {
                        self.progress.stay_on_one_line(&line);
                    }
                }
            }
            Event::NotMeasured { task, reason, .. } => {
                self.left = self.left.saturating_sub(self.steps[task.place as usize - 1].time);
                if self.output.progress {
                    self.progress.stay(&format!("not measured: {}: {reason}", task.point));
                }
            }
            Event::Wants { points, repeat } => {
                if self.output.progress {
                    let plural = if *points == 1 { "point varies" } else { "points vary" };
                    self.progress.stay(&format!(
                        "{points} {plural} too much: starting run {repeat} of each"
                    ));
                }
            }
            Event::Ended(_) => self.progress.clear(),
        }
    }
}

/// `8 64k` for `connections=8 size=64k`.
fn values(point: &Point) -> String {
    let values: Vec<&str> = point.axes.iter().map(|axis| axis.value.as_str()).collect();
    values.join(" ")
}

/// Hours and minutes, or minutes and seconds.
pub(super) fn show_time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// An event as `--json-lines` writes it.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line<'a> {
    Started {
        points: usize,
        least: usize,
        most: usize,
        done: usize,
    },
    RunStarted {
        number: usize,
        id: String,
        point: &'a Point,
    },
    RunEnded {
        number: usize,
        id: String,
        run: Box<Brief<'a>>,
    },
    NotMeasured {
        number: usize,
        id: String,
        point: &'a Point,
        reason: &'a str,
    },
    Wants {
        points: usize,
        repeat: u32,
    },
    Ended {
        status: Status,
        error: Option<&'a str>,
        made: usize,
        invalid: usize,
        not_measured: usize,
    },
}

/// The figures of a run for one line; the record has all.
#[derive(Debug, Serialize)]
struct Brief<'a> {
    status: Status,
    error: Option<&'a str>,
    bits_per_second: Option<f64>,
    transactions_per_second: Option<f64>,
    cycles_per_kbyte: Option<f64>,
}

impl<'a> Brief<'a> {
    fn of(run: &'a Run) -> Self {
        let figure = |name| metrics::find(name).ok()?.of(run).ok();
        Self {
            status: run.status,
            error: run.error.as_deref(),
            bits_per_second: figure("throughput"),
            transactions_per_second: figure("transactions"),
            cycles_per_kbyte: figure("cycles_per_kbyte"),
        }
    }
}

/// Writes the last event of a study that could not begin, or that broke off without one.
pub(super) fn refuse(status: Status, message: &str) -> io::Result<()> {
    let line = Line::Ended { status, error: Some(message), made: 0, invalid: 0, not_measured: 0 };
    let text = serde_json::to_string(&line)?;
    writeln!(terminal::stdout(), "{text}")
}

impl<'a> Line<'a> {
    fn of(event: &Event<'a>) -> Self {
        match event {
            Event::Started { points, least, most, done } => {
                Line::Started { points: *points, least: *least, most: *most, done: *done }
            }
            Event::RunStarted { task, number } => {
                Line::RunStarted { number: *number, id: task.id(), point: &task.point }
            }
            Event::RunEnded { task, number, run } => {
                Line::RunEnded { number: *number, id: task.id(), run: Box::new(Brief::of(run)) }
            }
            Event::NotMeasured { task, number, reason } => {
                Line::NotMeasured { number: *number, id: task.id(), point: &task.point, reason }
            }
            Event::Wants { points, repeat } => Line::Wants { points: *points, repeat: *repeat },
            Event::Ended(summary) => {
                let error = match &summary.ended {
                    StopReason::Refused(refusal) => Some(refusal.message.as_str()),
                    StopReason::Complete | StopReason::BudgetSpent | StopReason::Interrupted => {
                        None
                    }
                };
                let Summary { made, invalid, not_measured, .. } = **summary;
                Line::Ended { status: summary.status(), error, made, invalid, not_measured }
            }
        }
    }
}
