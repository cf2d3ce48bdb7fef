//! `report`: how long it takes to make the table of many runs, and to make and draw their page.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};
use wirecost_analyze::measured::Measurements;
use wirecost_linux::process_time::cpu_time;
use wirecost_model::document::Document;
use wirecost_model::run::Run;
use wirecost_model::study::{Point, StudyRunRef, Value};
use wirecost_report::outputs::{self, TerminalStyle};
use wirecost_report::tables::{self, TableRequest};
use wirecost_store::{Record, Recorder};

use crate::callgrind::instructions;
use crate::paired::center;
use crate::program::Program;

/// Runs of each point.
const REPEATS: u32 = 4;
const SIZES: [&str; 5] = ["64k", "16k", "8k", "1k", "64"];
/// Goal: maximum CPU time of the command.
const GOAL: f64 = 0.5;
/// Goal: maximum time to make the page, from start to end.
const PAGE_GOAL: f64 = 2.0;
/// Goal: maximum time in which a browser draws it.
const DRAWN_GOAL: f64 = 3.0;

/// Time `wirecost report` on a study of a thousand runs.
///
/// The records are copies of a real one with differing figures. The time without reading them is
/// measured separately.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Number of runs.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(20..))]
    runs: u32,

    /// Number of times to make the table.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Record to copy; by default a new run of `@stream`.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Do not count instructions, which is slow.
    #[arg(long)]
    no_instructions: bool,

    #[command(flatten)]
    program: Program,
}

/// Seconds of the table, and of all the page.
struct Rounds {
    whole: Vec<Took>,
    tables: Vec<f64>,
    pages: Vec<Took>,
    /// Of a page.
    page_bytes: u64,
    /// What a browser takes for the page, less what it takes for an empty one; or why that is not known.
    drawn: Result<Vec<f64>, String>,
}

/// Seconds.
struct Took {
    wall: f64,
    cpu: f64,
}

impl Report {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let wirecost = self.program.find()?;
        let folder = tempfile::tempdir().map_err(told)?;
        let record = self.record(&wirecost, folder.path())?;
        let study = folder.path().join("study");
        let bytes = self.make(&record, &study)?;
        let page = folder.path().join("page.html");
        let empty = folder.path().join("empty.html");
        fs::write(&empty, "<!doctype html><html data-charts=0 data-drawn=0>").map_err(told)?;
        let mut rounds = Rounds {
            whole: Vec::new(),
            tables: Vec::new(),
            pages: Vec::new(),
            page_bytes: 0,
            drawn: Ok(Vec::new()),
        };
        for _ in 0..self.rounds {
            rounds.whole.push(command(&wirecost, &arguments(&study))?);
            rounds.tables.push(in_process(&study)?);
            rounds.pages.push(command(&wirecost, &page_arguments(&study, &page))?);
            rounds.drawn = rounds.drawn.and_then(|mut drawn| {
                drawn.push(in_browser(&page)? - in_browser(&empty)?);
                Ok(drawn)
            });
        }
        rounds.page_bytes = fs::metadata(&page).map_err(told)?.len();
        let counted = match self.no_instructions {
            true => None,
            false => Some(instructions(&wirecost, arguments(&study))?),
        };
        self.table(out, bytes, &rounds, counted).map_err(told)
    }

    /// The record of a real run.
    fn record(&self, wirecost: &Path, folder: &Path) -> Result<PathBuf, String> {
        if let Some(directory) = &self.record {
            return Ok(directory.clone());
        }
        let directory = folder.join("one");
        let status = Command::new(wirecost)
            .args(["run", "@stream", "--duration", "500ms", "--quiet", "--out"])
            .arg(&directory)
            .stdout(Stdio::null())
            .status()
            .map_err(told)?;
        match status.success() {
            true => Ok(directory),
            false => Err(format!("the run to make the others of failed: {status}")),
        }
    }

    /// The study, and how large its records are.
    fn make(&self, record: &Path, study: &Path) -> Result<u64, String> {
        let Record { run, .. } = wirecost_store::read(record).map_err(told)?;
        let hosts = fs::read(record.join(wirecost_store::HOSTS)).map_err(told)?;
        let hosts = serde_json::from_slice(&hosts).map_err(told)?;
        let connections = self.runs.div_ceil(REPEATS * SIZES.len() as u32);
        let listed: Vec<String> = (1..=connections).map(|number| number.to_string()).collect();
        let text = format!(
            "title = \"{} runs\"\nprofile = \"@stream\"\n[repeat]\ntimes = {REPEATS}\n[axes]\n\
             size = {SIZES:?}\nconnections = [{}]\n",
            self.runs,
            listed.join(", ")
        );
        fs::create_dir_all(study).map_err(told)?;
        fs::write(study.join("study.toml"), text).map_err(told)?;
        let mut bytes = 0;
        for number in 0..self.runs {
            let (place, repeat) = (number / REPEATS, number % REPEATS);
            let (size, connections) = (place / connections, place % connections);
            let axes = vec![
                Value::new("size", SIZES[size as usize]),
                Value::new("connections", &listed[connections as usize]),
            ];
            let mut run = run.clone();
            run.study = Some(StudyRunRef {
                study: format!("{} runs", self.runs),
                point: Point { axes: axes.clone(), settings: axes },
                place: place + 1,
                repeat: repeat + 1,
                order: number + 1,
                search: None,
            });
            let faster = 1.0 + 0.01 * f64::from(repeat) + 0.001 * f64::from(place);
            if let Some(moved) = &mut run.throughput {
                moved.bits_per_second *= faster;
            }
            let of_hosts = run.hosts.iter_mut().map(|host| &mut host.cycles_per_kbyte);
            let of_machines = run.machines.iter_mut().map(|machine| &mut machine.cycles_per_kbyte);
            for cost in of_hosts.chain(of_machines).flatten() {
                *cost /= faster;
            }
            let record = study.join(format!("runs/{:04}-{:02}", place + 1, repeat + 1));
            Recorder::create(&record).and_then(|into| into.save(&run, &hosts)).map_err(told)?;
            for file in fs::read_dir(&record).map_err(told)? {
                bytes += file.and_then(|file| file.metadata()).map_err(told)?.len();
            }
        }
        Ok(bytes)
    }

    fn table(
        &self,
        out: &mut dyn Write,
        bytes: u64,
        rounds: &Rounds,
        counted: Option<u64>,
    ) -> io::Result<()> {
        let of = |took: &[Took], each: fn(&Took) -> f64| {
            center(&took.iter().map(each).collect::<Vec<f64>>()).unwrap_or_default()
        };
        let (wall, cpu) = (of(&rounds.whole, |took| took.wall), of(&rounds.whole, |took| took.cpu));
        let page = of(&rounds.pages, |took| took.wall);
        let alone = center(&rounds.tables).unwrap_or_default();
        let verdict = |is_met: bool| if is_met { "met" } else { "missed" };
        writeln!(
            out,
            "The table of {} runs ({:.1} MB of records), medians of {}:\n",
            self.runs,
            bytes as f64 / 1e6,
            self.rounds
        )?;
        writeln!(out, "  wirecost report, from start to end {:>12.0} ms", wall * 1e3)?;
        writeln!(
            out,
            "  its CPU time, user and system      {:>12.0} ms, goal {:.0}: {}",
            cpu * 1e3,
            GOAL * 1e3,
            verdict(cpu <= GOAL)
        )?;
        writeln!(out, "  of it all but reading the records  {:>12.1} ms", alone * 1e3)?;
        writeln!(
            out,
            "  their page (html), start to end    {:>12.0} ms, goal {:.0}: {}; {:.2} MB",
            page * 1e3,
            PAGE_GOAL * 1e3,
            verdict(page <= PAGE_GOAL),
            rounds.page_bytes as f64 / 1e6
        )?;
        match &rounds.drawn {
            Ok(drawn) => {
                let drawn = center(drawn).unwrap_or_default();
                writeln!(
                    out,
                    "  drawing it in Chromium             {:>12.0} ms, goal {:.0}: {}",
                    drawn * 1e3,
                    DRAWN_GOAL * 1e3,
                    verdict(drawn <= DRAWN_GOAL)
                )?;
            }
            Err(why) => writeln!(out, "  drawing it in Chromium                 unknown: {why}")?,
        }
        match counted {
            Some(counted) => writeln!(
                out,
                "  its instructions in user space     {:>12.0} M (callgrind)",
                counted as f64 / 1e6
            ),
            None => Ok(()),
        }
    }
}

fn told(error: impl std::error::Error) -> String {
    error.to_string()
}

fn arguments(study: &Path) -> [&std::ffi::OsStr; 2] {
    ["report".as_ref(), study.as_os_str()]
}

fn page_arguments<'a>(study: &'a Path, page: &'a Path) -> [&'a std::ffi::OsStr; 7] {
    let [report, study] = arguments(study);
    let page = page.as_os_str();
    [
        report,
        study,
        "--format".as_ref(),
        "html".as_ref(),
        "--force".as_ref(),
        "--out".as_ref(),
        page,
    ]
}

/// The command, once.
fn command(wirecost: &Path, arguments: &[&std::ffi::OsStr]) -> Result<Took, String> {
    let start = Instant::now();
    let mut child =
        Command::new(wirecost).args(arguments).stdout(Stdio::null()).spawn().map_err(told)?;
    let cpu = cpu_to_the_end(&child)?;
    let wall = start.elapsed().as_secs_f64();
    let status = child.wait().map_err(told)?;
    match status.success() {
        true => Ok(Took { wall, cpu }),
        false => Err(format!("wirecost report failed: {status}")),
    }
}

/// Seconds of a browser from its start to its end, with all of a page drawn.
fn in_browser(page: &Path) -> Result<f64, String> {
    let profile = tempfile::tempdir().map_err(told)?;
    let start = Instant::now();
    // In virtual time only what the browser computes takes time: it does not wait.
    let output = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--window-size=1000,2000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .map_err(|error| format!("chromium: {error}"))?;
    let took = start.elapsed().as_secs_f64();
    let dom = String::from_utf8_lossy(&output.stdout);
    let attribute = |name: &str| dom.split_once(name)?.1.split('"').nth(1).map(str::to_owned);
    match (attribute("data-drawn="), attribute("data-charts=")) {
        (Some(drawn), Some(charts)) if drawn == charts => Ok(took),
        (Some(drawn), Some(charts)) => Err(format!("chromium drew {drawn} of {charts} charts")),
        _ => Err(format!("chromium drew no page: {}", output.status)),
    }
}

/// CPU time of an ended process that was not waited for yet.
fn cpu_to_the_end(child: &Child) -> Result<f64, String> {
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).map_err(told)?;
    let nanoseconds = cpu_time(child.id()).ok_or("the CPU time of wirecost cannot be read")?;
    Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// CPU seconds from parsed documents to the text.
fn in_process(study: &Path) -> Result<f64, String> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(study.join("runs")).map_err(told)? {
        let path = entry.map_err(told)?.path();
        runs.push((path.display().to_string(), read(&path)?));
    }
    let output = outputs::find("terminal").ok_or("there is no format terminal")?;
    let start = thread_time();
    let measured = Measurements::of(runs);
    let mut report = Document::new("");
    report.sections.push(TableRequest::general().build(&measured).map_err(told)?);
    report.sections.push(tables::about(&measured, &[]));
    let mut text = Vec::new();
    output.write(&mut text, &report, &TerminalStyle::plain(80)).map_err(told)?;
    let end = thread_time();
    if text.is_empty() { Err("the table is empty".to_owned()) } else { Ok(end - start) }
}

fn read(record: &Path) -> Result<Run, String> {
    let file = record.join("run.json");
    let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))
}

fn thread_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
