//! `wirecost run`: a profile, on hosts, once.

mod hosts;
pub(crate) mod link_rate;
mod link_samples;
mod machines;
pub(crate) mod options;
mod peers;
mod run_options;
mod sealed;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use wirecost_linux::clock::unix_ms;
use wirecost_model::document::Document as Report;
use wirecost_model::environment::Environment;
use wirecost_model::event::Listener;
use wirecost_model::link::nic::Nic;
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::profile::Profile;
use wirecost_model::run::Run as Document;
use wirecost_model::status::Status;
use wirecost_model::visible::visible;
use wirecost_model::warning::Entry;
use wirecost_program::program;
use wirecost_report::documents;
use wirecost_report::documents::page::Redaction;
use wirecost_report::json::{self, Target};
use wirecost_report::progress::{self, Progress};
use wirecost_report::uperf::{Header, Printer, Style, write_failure};
use wirecost_store::Recorder;

use super::output;
use super::report::{HtmlFile, PageOptions, of_new_run};
use super::study::{Repeated, plan_of_run};
use crate::Failure;
use crate::profile::Loaded;
use crate::terminal::{self, StandardOutput};

pub(crate) use hosts::{HostArgument, HostOptions, Place};
use link_rate::LinkRate;
pub(crate) use machines::{ConflictOptions, Machines};
pub(crate) use run_options::{ALLOW_CONTROL_DEVICE, RunOptions};

/// Run a profile between hosts and report what it cost.
///
/// By default the hosts are processes on loopback. Results go to standard output, progress to
/// standard error. Exit codes: 0 ok, 1 the result cannot be written, 2 usage error or invalid
/// profile, 3 a host or the network failed or another run measures on the same CPUs, 4 the result is
/// invalid, 130 interrupted.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    options: RunOptions,

    /// Run N times, and report the mean of each figure, its 95% interval, lowest and highest.
    #[arg(long, value_name = "N", value_parser = parse_repeat)]
    repeat: Option<u32>,

    /// Write the result as JSON to a file, or `-` for standard output: wirecost.run/1, or
    /// wirecost.report/1 of several runs.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Write the result as one page of HTML, which opens offline, to this new file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    page: PageOptions,

    /// Save the run as a record to this new directory: run.json, hosts.json, samples.parquet. With
    /// --repeat the directory is a study.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Format of the standard output.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Terminal)]
    format: Format,

    /// Print everything that was measured, in place of a summary of one screen.
    #[arg(long)]
    details: bool,

    #[command(flatten)]
    hosts: HostOptions,

    #[command(flatten)]
    conflict: ConflictOptions,

    /// Do not show progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for people.
    Terminal,
    /// uperf's raw lines (-R) for whole intervals of the window, totals, Run Statistics and Difference,
    /// for programs that parse them.
    Uperf,
}

fn parse_repeat(text: &str) -> Result<u32, String> {
    let times = text.parse().ok().filter(|times| (1..=1000).contains(times));
    times.ok_or_else(|| "must be a number of runs from 1 to 1000, such as 5".to_owned())
}

/// Everything that a run needs before it begins.
struct Ready {
    loaded: Loaded,
    place: Place,
    /// Released when the lab of the place is gone.
    machines: Machines,
    recorder: Option<Recorder>,
    page: Option<HtmlFile>,
}

impl Run {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        if let Some(times) = self.repeat {
            return self.run_repeatedly(times);
        }
        let started = unix_ms() as u64;
        let stop = interruptible();
        match self.get_ready(&stop) {
            Ok(ready) => self.drive(ready, started, &stop),
            Err(failure) => {
                let mut document = self.options.document(started);
                document.status = failure.status;
                document.error = Some(failure.message.clone());
                // If the document cannot be written either, the first failure is reported.
                let _ = self.write_json(&document);
                self.show_failure(&failure);
                Err(failure)
            }
        }
    }

    /// Makes several runs, and reports what they have in common.
    fn run_repeatedly(&self, times: u32) -> Result<Status, Failure> {
        let page = HtmlFile::wanted(self.html.as_deref(), self.page)?;
        let finished = self.repeats(times);
        let document = match &finished {
            Ok(document) => document.clone(),
            Err(failure) => failed(&self.options.profile, failure.status, &failure.message),
        };
        if let Some(target) = &self.json {
            let written =
                json::write(&document, &Target::from(target.as_str()), &mut terminal::stdout());
            // If the document cannot be written either, the first failure is reported.
            if finished.is_ok() {
                written.map_err(|error| Failure::new(Status::Failed, error))?;
            }
        }
        let document = finished?;
        if let Some(page) = page {
            page.write(document.clone(), &Redaction::default())?;
        }
        if !self.json_on_stdout() {
            output::show(&document);
        }
        Ok(document.status)
    }

    fn repeats(&self, times: u32) -> Result<Report, Failure> {
        if let Some(target) = &self.json {
            json::check(&Target::from(target.as_str())).map_err(Failure::usage)?;
        }
        if self.format == Format::Uperf {
            return Err(Failure::usage("--format uperf shows one run, and --repeat makes several")
                .help("remove one of them"));
        }
        self.options.check_tune()?;
        Repeated {
            options: &self.options,
            hosts: &self.hosts,
            conflict: self.conflict,
            times,
            out: self.out.as_deref(),
            quiet: self.quiet,
        }
        .run()
    }

    /// Makes all checks that can refuse the run, before creating anything.
    fn get_ready(&self, stop: &AtomicBool) -> Result<Ready, Failure> {
        if let Some(target) = &self.json {
            json::check(&Target::from(target.as_str())).map_err(Failure::usage)?;
        }
        let page = HtmlFile::wanted(self.html.as_deref(), self.page)?;
        self.options.check_tune()?;
        let mut names = self.hosts.names();
        let mut loaded = self.options.load(&mut |number| names(number))?;
        options::cc_object::check(&loaded.profile, &self.options.settings().congestion_objects)?;
        if let Some(directory) = &self.out {
            Recorder::check(directory).map_err(Failure::usage)?;
        }
        let place = || self.options.place(&loaded, &self.hosts, None);
        // To make a lab would disturb another run as much as traffic does. Agents are only looked
        // up.
        let of_agents = self.hosts.are_made().then(place).transpose()?;
        let machines = Machines::of(&self.hosts, self.conflict, stop, self.quiet)?;
        let place = of_agents.map_or_else(place, Ok)?;
        let link = LinkRate::of(&self.hosts, place.lab().as_deref(), &loaded.profile)?;
        self.options.set_link(&mut loaded, link)?;
        if let Some(impossible) = loaded.impossible() {
            terminal::warn(format_args!("wirecost: {impossible}"));
        }
        let recorder = self.out.as_deref().map(Recorder::create).transpose();
        let recorder = recorder.map_err(Failure::usage)?;
        Ok(Ready { loaded, place, machines, recorder, page })
    }

    fn drive(mut self, ready: Ready, started: u64, stop: &AtomicBool) -> Result<Status, Failure> {
        let Ready { loaded, place, machines, recorder, page } = ready;
        let mut printer = self.printer(&loaded, &place);
        let mut progress =
            (!self.quiet).then(|| Progress::new(io::stderr(), progress::Style::of(&io::stderr())));
        // Another run of the plan draws the same.
        self.options.draw_seed();
        let plan = plan_of_run(&self.options, &self.hosts, &loaded.source);
        let passes = self.options.passes();
        let measured = self.options.run(&loaded, &place, &machines, 1, stop, &mut |pass, event| {
            if let Some(progress) = &mut progress {
                progress.pass(pass + 1, passes);
                progress.event(event);
            }
            // Further passes belong to the same run.
            if let Some(printer) = printer.as_mut().filter(|_| pass == 0) {
                printer.event(event);
            }
        });
        if let Some(progress) = &mut progress {
            progress.clear();
        }
        let (mut document, outcome) = match measured {
            Ok(measured) => measured,
            Err(failure) => {
                let mut document = self.options.document(started);
                document.status = failure.status;
                document.error = Some(failure.message.clone());
                // If the document cannot be written either, the first failure is reported.
                let _ = self.write_json(&document);
                self.show_failure(&failure);
                return Err(failure);
            }
        };
        drop(place);
        drop(machines);
        document.plan = plan;
        let written = self.write_json(&document);
        let kept = recorder.map(|recorder| recorder.save(&document, &environments(&outcome)));
        // A result that cannot be saved is still shown, and why it is no result.
        let page = page.map(|file| self.write_page(&file, &document, &outcome));
        let status = self.show(&document, printer)?;
        written?;
        page.transpose()?;
        kept.transpose().map_err(|error| Failure::new(Status::Failed, error))?;
        Ok(status)
    }

    /// The printer of uperf's lines, if that format was requested.
    fn printer(&self, loaded: &Loaded, place: &Place) -> Option<Printer<StandardOutput>> {
        self.prints_uperf().then(|| {
            let header = uperf_header(loaded, place, &self.options);
            Printer::new(terminal::stdout(), header, Style::default())
        })
    }

    fn prints_uperf(&self) -> bool {
        self.format == Format::Uperf && !self.json_on_stdout()
    }

    /// Of a run that did not begin, a program that parses uperf's output finds the error there.
    fn show_failure(&self, failure: &Failure) {
        if self.prints_uperf() {
            // A reader that stops early (`| head`) is not a failure.
            let _ = write_failure(&mut terminal::stdout(), &failure.message);
        }
    }

    fn show(
        &self,
        document: &Document,
        printer: Option<Printer<StandardOutput>>,
    ) -> Result<Status, Failure> {
        match printer {
            // A reader that stops early (`| head`) is not a failure.
            Some(printer) => {
                let failed = document.status != Status::Ok;
                let reason = document.error.as_deref().unwrap_or("the result is invalid");
                let warnings: Vec<String> = document.warnings.iter().map(uperf_warning).collect();
                drop(printer.finish(failed.then_some(reason), &warnings, None));
            }
            None if self.json_on_stdout() => {}
            None if self.details => output::show(&documents::run::document(document)),
            None => output::show(&documents::run::summary(document)),
        }
        if (self.format == Format::Uperf || self.json_on_stdout())
            && let Some(error) = &document.error
        {
            terminal::warn(format_args!("wirecost: {error}"));
        }
        Ok(document.status)
    }

    fn write_page(
        &self,
        file: &HtmlFile,
        document: &Document,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let hosts = environments(outcome).into_iter().filter_map(|(name, environment)| {
            Some((name, Environment::deserialize(environment).ok()?))
        });
        let (page, names) = of_new_run(document, self.out.as_deref(), &hosts.collect());
        file.write(page, &names)
    }

    fn json_on_stdout(&self) -> bool {
        self.json.as_deref() == Some("-")
    }

    fn write_json(&self, document: &Document) -> Result<(), Failure> {
        let Some(target) = &self.json else { return Ok(()) };
        write_json(document, target)
    }
}

/// What uperf's output says of a profile.
pub(crate) fn uperf_header(loaded: &Loaded, place: &Place, options: &RunOptions) -> Header {
    let profile = &loaded.profile;
    let strands = |processes: bool| {
        let groups = profile.groups.iter().filter(|group| group.processes == processes);
        groups.map(|group| u64::from(group.strands)).sum()
    };
    Header {
        profile: visible(&profile.name).into_owned(),
        threads: strands(false),
        processes: strands(true),
        interval: options.settings().interval_of(profile),
        peers: place.remote_hosts(profile, &loaded.assigned),
        connected: connected(profile),
    }
}

/// A warning as uperf's output shows it.
pub(crate) fn uperf_warning(warning: &Entry) -> String {
    format!("{}: {}", warning.code, warning.message)
}

/// For each group and each host that it names: indices of both.
fn connected(profile: &Profile) -> Vec<(u32, u32)> {
    let hosts = program::remote_hosts(profile);
    let mut connected = Vec::new();
    for (number, group) in (0..).zip(&profile.groups) {
        let flowops = group.transactions.iter().flat_map(|transaction| &transaction.flowops);
        for name in flowops.filter_map(|flowop| flowop.options.remotehost.as_ref()) {
            let host = (0..).zip(&hosts).find_map(|(host, known)| (known == name).then_some(host));
            if let Some(pair) = host.map(|host| (number, host)).filter(|p| !connected.contains(p)) {
                connected.push(pair);
            }
        }
    }
    connected
}

/// The environment of each host, by host name.
pub(crate) fn environments(outcome: &Outcome) -> Map<String, Value> {
    let nic = outcome.link.as_ref().and_then(|link| link.link.nic.as_ref());
    let of = |host: &HostOutcome| {
        let environment = host.environment.clone();
        let environment = nic.map_or(environment.clone(), |nic| with_nic(environment, nic));
        (host.name.clone(), environment)
    };
    outcome.hosts.iter().map(of).collect()
}

/// An environment whose TUN devices have the settings that an emulator gives them: the kernel does not know
/// them.
fn with_nic(environment: Value, nic: &Nic) -> Value {
    let Ok(mut read) = Environment::deserialize(&environment) else { return environment };
    let devices = read.devices.iter_mut().flatten();
    for device in devices.filter(|device| device.kind.as_deref() == Some("tun")) {
        nic.show_in(device);
    }
    serde_json::to_value(read).unwrap_or(environment)
}

pub(crate) fn write_json(document: &Document, target: &str) -> Result<(), Failure> {
    json::write(document, &Target::from(target), &mut terminal::stdout())
        .map_err(|error| Failure::new(Status::Failed, error))
}

/// The document of several runs that could not be made.
fn failed(profile: &str, status: Status, message: &str) -> Report {
    Report { status, error: Some(message.to_owned()), ..Report::new(profile) }
}

/// Writes the document of a run, or of several, with an invalid command line.
pub(super) fn refuse(target: &str, repeats: bool, message: &str) -> Result<(), Failure> {
    if repeats {
        let document = failed("", Status::Usage, message);
        return json::write(&document, &Target::from(target), &mut terminal::stdout())
            .map_err(|error| Failure::new(Status::Failed, error));
    }
    let mut document = Document::empty("", "", env!("CARGO_PKG_VERSION"), unix_ms() as u64);
    document.status = Status::Usage;
    document.error = Some(message.to_owned());
    write_json(&document, target)
}

/// The first Ctrl-C or SIGTERM ends the run in an orderly way, the second ends the program.
pub(crate) fn interruptible() -> Arc<AtomicBool> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Order matters: the second signal finds the flag set.
        let code = i32::from(Status::Interrupted.exit_code());
        let _ = flag::register_conditional_shutdown(signal, code, stop.clone());
        let _ = flag::register(signal, stop.clone());
    }
    stop
}

/// A seed that every JSON reader preserves.
pub(crate) fn new_seed() -> u64 {
    random() & run_options::EXACT
}

/// A random number for seeds and tokens.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Randomness is missing only during early boot. Time and process ID differ between runs,
        // too.
        _ => unix_ms().to_bits() ^ u64::from(std::process::id()).rotate_left(32),
    }
}
