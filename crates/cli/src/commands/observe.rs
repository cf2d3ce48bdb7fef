//! `wirecost observe`: watches this host while any other program makes the traffic.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use wirecost_fleet::environment;
use wirecost_linux::clock::{Monotonic, sleep, unix_ms};
use wirecost_linux::{facts, net_dev};
use wirecost_model::clock::{Clock, MILLISECOND, SECOND, nanos};
use wirecost_model::observe::{
    DeviceTraffic, ObserveDocument, ObserveRequest, ObserverReport, Part,
};
use wirecost_model::status::Status;
use wirecost_model::warning::Entry;
use wirecost_observe::{Observer, Set, describe};
use wirecost_report::documents;
use wirecost_report::json::{self, Target};
use wirecost_store::Recorder;

use super::run::{ConflictOptions, Machines, interruptible};
use super::{output, parse_time_not_zero};
use crate::Failure;
use crate::terminal;

/// Observe this host while another program generates the traffic.
///
/// Changes nothing and leaves nothing behind. Ctrl-C stops early and shows the results so far. Exit
/// codes: 0 ok, 2 usage error, 3 another run measures on the same CPUs, 130 interrupted before the
/// window began.
#[derive(Debug, Args)]
pub(crate) struct Observe {
    /// Time to observe.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_time_not_zero)]
    length: Duration,

    /// Probes: `standard`, `full` (all, hot-path hooks enabled part of the time), `deep` (one after
    /// the other, each for the entire time), or a comma-separated list of names.
    #[arg(long, value_name = "SET", default_value = "full", value_parser = Set::parse)]
    probes: Set,

    /// Observe only this process, its network namespace, and its CPU time and functions.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Observe only this network device; cycles per byte use its bytes.
    #[arg(long = "dev", value_name = "DEVICE")]
    device: Option<String>,

    /// Observe only these CPUs, such as `0-3,8`.
    #[arg(long = "cpu", value_name = "LIST", value_parser = parse_cpus)]
    cpus: Option<Cpus>,

    /// Write the result as JSON (wirecost.observe/1) to a file, or `-` for standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,

    /// Save a record to this new directory: observe.json, hosts.json, samples.parquet.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// List the probes: what each shows, needs, costs and cannot see.
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    conflict: ConflictOptions,
}

/// A list of CPUs is one value on the command line.
#[derive(Debug, Clone)]
struct Cpus(Vec<u32>);

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    match wirecost_linux::cpu_list::parse_list(text) {
        Some(cpus) if !cpus.is_empty() => Ok(Cpus(cpus)),
        _ => Err("must be a list of CPUs, such as 0-3,8".to_owned()),
    }
}

impl Observe {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        if self.list {
            // A reader that has seen enough (`| head`) is no failure.
            let _ = list(&mut terminal::stdout());
            return Ok(Status::Ok);
        }
        let stop = interruptible();
        let cpus = self.cpus.as_ref().map(|cpus| cpus.0.as_slice()).unwrap_or_default();
        let ready = self.check().and_then(|()| {
            let machines = Machines::to_observe(cpus, self.conflict, &stop)?;
            let recorder = self.out.as_deref().map(Recorder::create).transpose();
            Ok((recorder.map_err(Failure::usage)?, machines))
        });
        let (recorder, machines) = match ready {
            Ok(ready) => ready,
            Err(failure) => {
                let document = failed(failure.status, &failure.message);
                // Where the document cannot be written either, the first failure is the one to
                // tell.
                let _ = self.write_json(&document);
                return Err(failure);
            }
        };
        let began = Instant::now();
        let mut document = ObserveDocument::empty(env!("CARGO_PKG_VERSION"), unix_ms() as u64);
        document.facts = facts::read().ok();
        let host = document.facts.as_ref().map(|facts| facts.hostname.clone()).unwrap_or_default();
        let (observation, mut devices) = self.watch(&host, &stop);
        devices.retain(|traffic| match &self.device {
            Some(device) => *device == traffic.device,
            None => traffic.rx_packets + traffic.tx_packets > 0,
        });
        document.devices = devices;
        wirecost_analyze::watched(&mut document, observation, self.device.as_deref());
        document.warnings.extend(machines.shared_since(began).as_ref().map(Entry::from));
        drop(machines);
        if document.seconds.is_none() && stop.load(Ordering::Relaxed) {
            document.status = Status::Interrupted;
            document.error = Some("interrupted before the window began".to_owned());
        }
        let kept = self.keep(&document, recorder, &host);
        // What cannot be kept can still be read.
        if self.json.as_deref() != Some("-") {
            output::show(&documents::watched::document(&document));
        }
        kept?;
        Ok(document.status)
    }

    /// Makes all checks that can refuse the observation, before attaching anything.
    fn check(&self) -> Result<(), Failure> {
        if let Some(target) = &self.json {
            json::check(&Target::from(target.as_str())).map_err(Failure::usage)?;
        }
        let devices = net_dev::read(self.pid).map_err(|error| match self.pid {
            Some(pid) => Failure::usage(format!("process {pid}: {error}")),
            None => Failure::new(Status::Failed, error),
        })?;
        if let Some(device) = &self.device
            && !devices.contains_key(device)
        {
            let names: Vec<&str> = devices.keys().map(String::as_str).collect();
            return Err(Failure::usage(format!(
                "no network device is named `{device}`; devices: {}",
                names.join(", ")
            )));
        }
        match &self.out {
            Some(directory) => Recorder::check(directory).map_err(Failure::usage),
            None => Ok(()),
        }
    }

    /// Runs each pass for the entire time; further passes add what the first does not show. CPU time
    /// and the bytes it is divided by are of the first.
    fn watch(&self, host: &str, stop: &AtomicBool) -> (ObserverReport, Vec<DeviceTraffic>) {
        let mut all = ObserverReport::default();
        let mut devices = None;
        for probes in &self.probes.passes {
            let part = Part {
                host: host.to_owned(),
                covers: vec![host.to_owned()],
                cpus: self.cpus.as_ref().map(|cpus| cpus.0.clone()),
                netns_of: self.pid,
                device: self.device.clone(),
                pid: self.pid,
                ..Part::default()
            };
            let request = ObserveRequest { probes: probes.clone(), parts: vec![part] };
            let (seen, traffic) = watch_once(request, self.length, stop);
            devices.get_or_insert(traffic);
            all.probes.extend(seen.probes);
            for part in seen.parts {
                match all.parts.first_mut() {
                    Some(known) => known.complete_with(part),
                    None => all.parts.push(part),
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        (all, devices.unwrap_or_default())
    }

    fn write_json(&self, document: &ObserveDocument) -> Result<(), Failure> {
        let Some(target) = &self.json else { return Ok(()) };
        json::write(document, &Target::from(target.as_str()), &mut terminal::stdout())
            .map_err(|error| Failure::new(Status::Failed, error))
    }

    fn keep(
        &self,
        document: &ObserveDocument,
        recorder: Option<Recorder>,
        host: &str,
    ) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(Status::Failed, error);
        self.write_json(document)?;
        if let Some(recorder) = recorder {
            let environment =
                serde_json::to_value(environment::read()).map_err(|error| failed(&error))?;
            let hosts = [(host.to_owned(), environment)].into_iter().collect();
            recorder.save_observation(document, &hosts).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

fn watch_once(
    request: ObserveRequest,
    length: Duration,
    stop: &AtomicBool,
) -> (ObserverReport, Vec<DeviceTraffic>) {
    let mut observer = Observer::open(request);
    if stop.load(Ordering::Relaxed) {
        return Default::default();
    }
    observer.attach();
    observer.begin();
    let start = Monotonic.now();
    observer.watch(start, start.saturating_add(nanos(length)), SECOND, |due| {
        while !stop.load(Ordering::Relaxed) {
            let left = due.saturating_sub(Monotonic.now());
            if left == 0 {
                return true;
            }
            // Short, so that Ctrl-C is heard soon.
            sleep(left.min(50 * MILLISECOND));
        }
        false
    });
    observer.end();
    observer.detach();
    (observer.take(), observer.devices())
}

fn list(out: &mut impl Write) -> io::Result<()> {
    for (name, about) in describe() {
        writeln!(out, "{name}")?;
        for (label, text) in [
            ("tells", about.tells),
            ("needs", about.needs),
            ("costs", about.costs),
            ("limitations", about.limitations),
        ] {
            writeln!(out, "  {label}  {text}")?;
        }
    }
    Ok(())
}

/// The document of an observation that did not begin.
fn failed(status: Status, message: &str) -> ObserveDocument {
    let mut document = ObserveDocument::empty(env!("CARGO_PKG_VERSION"), unix_ms() as u64);
    document.status = status;
    document.error = Some(message.to_owned());
    document
}

/// Writes the document of an observation with an invalid command line.
pub(super) fn refuse(target: &str, message: &str) -> Result<(), Failure> {
    let document = failed(Status::Usage, message);
    json::write(&document, &Target::from(target), &mut terminal::stdout())
        .map_err(|error| Failure::new(Status::Failed, error))
}
