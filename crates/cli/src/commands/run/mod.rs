//! `wirecost run`: a profile, on hosts, once.

mod adjust;
mod hosts;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use wirecost_analyze::RunMeta;
use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_linux::clock::unix_ms;
use wirecost_model::clock::nanos;
use wirecost_model::event::{Event, Listener};
use wirecost_model::outcome::Outcome;
use wirecost_model::plan::EngineKind;
use wirecost_model::run::Run as Document;
use wirecost_model::status::Status;
use wirecost_model::warning::Warning;
use wirecost_observe::Set;
use wirecost_report::json::{self, Target};
use wirecost_report::progress::{Progress, Style};
use wirecost_report::terminal::{self, Look};
use wirecost_report::uperf::{Header, Printer};
use wirecost_store::Recorder;

use super::{parse_time, parse_time_not_zero};
use crate::Failure;
use crate::profile::{self, Loaded, parse_variable};
use adjust::Adjust;
use hosts::{HostArgument, Place};

/// Sampled connections of each worker.
const TCP_SAMPLES: u32 = 16;

/// Run a profile between hosts and say what it cost.
///
/// With nothing else, its hosts are processes on loopback. Results go to standard output, progress
/// to standard error. Exit codes: 0 ok, 2 bad usage or profile, 3 a host or the network failed,
/// 4 the result is not valid, 130 interrupted.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A file, or a built-in profile of `wirecost list`.
    #[arg(value_name = "PROFILE|@BUILTIN")]
    profile: String,

    /// Set a variable of the profile; beats the environment.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,

    /// How workers wait: `epoll` runs many strands on each; `io_uring` does so with fewer system
    /// calls, and where the kernel forbids it with epoll; `threads` is a thread for each strand.
    #[arg(long, value_name = "ENGINE", default_value = "epoll", value_parser = parse_engine)]
    engine: EngineKind,

    /// Length of the window of the phase that counts, in place of the profile's.
    #[arg(long, value_name = "TIME", value_parser = parse_time_not_zero)]
    duration: Option<Duration>,

    /// Time before each window, which does not count.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    ramp: Duration,

    /// Strands of each group, in place of the profile's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,

    /// Turn the data around: the master reads where the profile writes.
    #[arg(long)]
    reverse: bool,

    /// Workers of each host [default: one for each of its CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,

    /// Length of the intervals of the series, 10ms or longer.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// End the whole run after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time_not_zero)]
    timeout: Option<Duration>,

    /// Write the result as JSON (wirecost.run/1) to a file, or `-` for standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Keep the run as a record in this new directory: run.json, hosts.json, samples.parquet.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// What is written to standard output.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Terminal)]
    format: Format,

    /// Run between hosts in network namespaces on this machine: in a lab of its own, or in the one
    /// of that name which `wirecost lab up` made.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "hosts"
    )]
    lab: Option<String>,

    /// A host of the profile and the agent there (`wirecost agent --listen ADDR`); `master=ADDR`
    /// is the one that drives, which else is this machine.
    #[arg(long = "host", value_name = "NAME=ADDR", value_parser = hosts::parse)]
    hosts: Vec<HostArgument>,

    /// What watches the kernel of every machine in the window: `standard`, `none`, `full` (all probes,
    /// hooks of hot paths in slices of the window), `deep` (standard, then a run for each further probe),
    /// or probes with commas between them.
    #[arg(long, value_name = "SET", default_value = "standard", value_parser = Set::parse)]
    observe: Set,

    /// Seed of everything random, to repeat a run as it was.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for people.
    Terminal,
    /// uperf's raw lines (-R), Run Statistics and Difference, for programs that parse those.
    Uperf,
}

fn parse_engine(text: &str) -> Result<EngineKind, String> {
    EngineKind::ALL.into_iter().find(|engine| engine.name() == text).ok_or_else(|| {
        let names: Vec<&str> = EngineKind::ALL.iter().map(|engine| engine.name()).collect();
        format!("the engines are {}", names.join(", "))
    })
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time(text)?;
    if interval < Duration::from_millis(10) {
        return Err("the shortest interval is 10ms".to_owned());
    }
    Ok(interval)
}

/// Everything a run has, before it begins.
struct Ready {
    loaded: Loaded,
    place: Place,
    recorder: Option<Recorder>,
}

impl Run {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let started = unix_ms() as u64;
        match self.get_ready() {
            Ok(ready) => self.drive(ready, started),
            Err(failure) => {
                let mut document = self.document(started);
                document.status = failure.status;
                document.error = Some(failure.message.clone());
                // Where the document cannot be written either, the first failure is the one to tell.
                let _ = self.write_json(&document);
                Err(failure)
            }
        }
    }

    fn document(&self, started: u64) -> Document {
        Document::empty(&self.profile, self.engine.name(), env!("CARGO_PKG_VERSION"), started)
    }

    /// Everything that can be refused is, before anything is made.
    fn get_ready(&self) -> Result<Ready, Failure> {
        if let Some(target) = &self.json {
            json::check(&Target::from(target.as_str())).map_err(Failure::usage)?;
        }
        let mut names = hosts::names(&self.hosts, self.lab.as_deref())?;
        let mut loaded = profile::load(&self.profile, &self.variables, &mut |n| names(n))?;
        if !loaded.refusals.is_empty() {
            return Err(profile::describe(&loaded.name, &loaded.source, &loaded.refusals));
        }
        let adjust = Adjust {
            connections: self.connections,
            duration: self.duration,
            reverse: self.reverse,
        };
        adjust.apply(&mut loaded.profile)?;
        let recorder = match &self.out {
            Some(directory) => Some(Recorder::create(directory).map_err(Failure::usage)?),
            None => None,
        };
        let place = Place::find(&loaded.profile, &self.hosts, self.lab.as_deref())?;
        Ok(Ready { loaded, place, recorder })
    }

    fn drive(self, ready: Ready, started: u64) -> Result<Status, Failure> {
        let Ready { loaded, place, recorder } = ready;
        let stop = interruptible();
        // One seed for all passes: they differ in who watches, and in nothing else.
        let seed = self.seed.unwrap_or_else(random);
        let mut printer = self.printer(&loaded);
        let (first, further) = match self.observe.passes.split_first() {
            Some((first, further)) => (first.clone(), further),
            None => (Vec::new(), [].as_slice()),
        };
        let headline = self.pass(&loaded, &place, first, seed, &stop, &mut printer);
        let (mut document, outcome) = match headline {
            Ok(measured) => measured,
            Err(failure) => {
                let mut document = self.document(started);
                document.status = failure.status;
                document.error = Some(failure.message.clone());
                self.write_json(&document)?;
                return Err(failure);
            }
        };
        for probes in further {
            if document.status != Status::Ok || stop.load(Ordering::Relaxed) {
                break;
            }
            let (pass, _) = self.pass(&loaded, &place, probes.clone(), seed, &stop, &mut None)?;
            wirecost_analyze::add_pass(&mut document, pass, probes);
        }
        drop(place);
        self.write_json(&document)?;
        let kept = recorder.map(|recorder| {
            let hosts = outcome
                .hosts
                .iter()
                .map(|host| (host.name.clone(), host.environment.clone()))
                .collect();
            recorder.save(&document, &hosts)
        });
        // What cannot be kept can still be read.
        let status = self.show(&document, printer)?;
        kept.transpose().map_err(|error| Failure::new(Status::Failed, error))?;
        Ok(status)
    }

    /// Runs the profile once, under these probes.
    fn pass(
        &self,
        loaded: &Loaded,
        place: &Place,
        probes: Vec<String>,
        seed: u64,
        stop: &AtomicBool,
        printer: &mut Option<Printer<io::Stdout>>,
    ) -> Result<(Document, Outcome), Failure> {
        let started = unix_ms() as u64;
        let settings = Settings {
            engine: self.engine,
            workers: self.workers,
            interval: nanos(self.interval),
            ramp: nanos(self.ramp),
            timeout: self.timeout,
            seed,
            token: format!("{:016x}{:016x}", random(), random()),
            tcp_samples: TCP_SAMPLES,
            probes: probes.clone(),
        };
        let mut outcome = self.listen_and_run(loaded, place.members()?, &settings, stop, printer);
        for note in &loaded.notes {
            outcome.warnings.push(Warning::Profile {
                line: note.at.line,
                column: note.at.column,
                text: note.to_string(),
            });
        }
        let meta = RunMeta {
            profile: self.profile.clone(),
            engine: self.engine.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: started,
            probes,
        };
        Ok((wirecost_analyze::run(&outcome, &meta), outcome))
    }

    /// Who writes uperf's lines, where they are wanted.
    fn printer(&self, loaded: &Loaded) -> Option<Printer<io::Stdout>> {
        (self.format == Format::Uperf && !self.json_on_stdout()).then(|| {
            let strands = loaded.profile.groups.iter().map(|g| u64::from(g.strands)).sum();
            let header = Header { profile: loaded.profile.name.clone(), strands };
            Printer::new(io::stdout(), header)
        })
    }

    fn listen_and_run(
        &self,
        loaded: &Loaded,
        members: Vec<Member>,
        settings: &Settings,
        stop: &AtomicBool,
        printer: &mut Option<Printer<io::Stdout>>,
    ) -> Outcome {
        let mut progress =
            (!self.quiet).then(|| Progress::new(io::stderr(), Style::of(&io::stderr())));
        let mut listener = |event: &Event| {
            if let Some(progress) = &mut progress {
                progress.event(event);
            }
            if let Some(printer) = printer {
                printer.event(event);
            }
        };
        let outcome = controller::run(&loaded.profile, members, settings, stop, &mut listener);
        if let Some(progress) = &mut progress {
            progress.clear();
        }
        outcome
    }

    fn show(
        &self,
        document: &Document,
        printer: Option<Printer<io::Stdout>>,
    ) -> Result<Status, Failure> {
        let mut out = io::stdout();
        let shown = match printer {
            Some(printer) => printer.finish(),
            None if self.json_on_stdout() => Ok(()),
            None => terminal::write(&mut out, document, &Look::of(&io::stdout())),
        };
        // A reader that has seen enough (`| head`) is no failure.
        let _ = shown;
        if (self.format == Format::Uperf || self.json_on_stdout())
            && let Some(error) = &document.error
        {
            let _ = writeln!(io::stderr(), "wirecost: {error}");
        }
        Ok(document.status)
    }

    fn json_on_stdout(&self) -> bool {
        self.json.as_deref() == Some("-")
    }

    fn write_json(&self, document: &Document) -> Result<(), Failure> {
        let Some(target) = &self.json else { return Ok(()) };
        write_json(document, target)
    }
}

fn write_json(document: &Document, target: &str) -> Result<(), Failure> {
    json::write(document, &Target::from(target), &mut io::stdout())
        .map_err(|error| Failure::new(Status::Failed, error))
}

/// Writes the document of a run whose command line nobody understands.
pub(super) fn refuse(target: &str, message: &str) -> Result<(), Failure> {
    let mut document = Document::empty("", "", env!("CARGO_PKG_VERSION"), unix_ms() as u64);
    document.status = Status::Usage;
    document.error = Some(message.to_owned());
    write_json(&document, target)
}

/// Ctrl-C and SIGTERM end the run in order; a second one ends the program.
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

/// Anything.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Only an early boot has no randomness; time and process are different each time, too.
        _ => unix_ms().to_bits() ^ u64::from(std::process::id()).rotate_left(32),
    }
}
