//! `report`: how long it takes to make the table of many runs, and their page.

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
        let run = self.record(&wirecost, folder.path())?;
        let study = folder.path().join("study");
        let bytes = self.make(&run, &study)?;
        let page = folder.path().join("page.html");
        let mut rounds =
            Rounds { whole: Vec::new(), tables: Vec::new(), pages: Vec::new(), page_bytes: 0 };
        for _ in 0..self.rounds {
            rounds.whole.push(command(&wirecost, &arguments(&study))?);
            rounds.tables.push(in_process(&study)?);
            rounds.pages.push(command(&wirecost, &page_arguments(&study, &page))?);
        }
        rounds.page_bytes = fs::metadata(&page).map_err(told)?.len();
        let counted = match self.no_instructions {
            true => None,
            false => Some(instructions(&wirecost, arguments(&study))?),
        };
        self.table(out, bytes, &rounds, counted).map_err(told)
    }

    /// A real run.
    fn record(&self, wirecost: &Path, folder: &Path) -> Result<Run, String> {
        let directory = match &self.record {
            Some(directory) => directory.clone(),
            None => {
                let directory = folder.join("one");
                let status = Command::new(wirecost)
                    .args(["run", "@stream", "--duration", "500ms", "--quiet", "--out"])
                    .arg(&directory)
                    .stdout(Stdio::null())
                    .status()
                    .map_err(told)?;
                if !status.success() {
                    return Err(format!("the run to make the others of failed: {status}"));
                }
                directory
            }
        };
        read(&directory)
    }

    /// The study, and how large its documents are.
    fn make(&self, run: &Run, study: &Path) -> Result<u64, String> {
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
            if let Some(moved) = &mut run.throughput {
                moved.bits_per_second *= 1.0 + 0.01 * f64::from(repeat) + 0.001 * f64::from(place);
            }
            let record = study.join(format!("runs/{:04}-{:02}", place + 1, repeat + 1));
            fs::create_dir_all(&record).map_err(told)?;
            let text = serde_json::to_vec_pretty(&run).map_err(told)?;
            bytes += text.len() as u64;
            fs::write(record.join("run.json"), text).map_err(told)?;
            fs::write(record.join("hosts.json"), "{}").map_err(told)?;
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
            "The table of {} runs ({:.1} MB of documents), medians of {}:\n",
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
