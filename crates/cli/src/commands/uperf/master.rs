//! `uperf -m`: drives the hosts that a profile names, each where the profile says.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::Parser;
use wirecost_linux::clock::unix_ms;
use wirecost_linux::net_dev::{self, Counters};
use wirecost_model::event::{Event, Listener};
use wirecost_model::outcome::Outcome;
use wirecost_model::plan::limits::LOGGED_OPERATIONS;
use wirecost_model::run::Run as Document;
use wirecost_model::status::Status;
use wirecost_model::units;
use wirecost_report::json::{self, Target};
use wirecost_report::uperf::{Details, DeviceRates, Part, Printer, Style, write_failure};

use super::flags::Master;
use super::histogram;
use super::log::Log;
use crate::Failure;
use crate::commands::run::{
    ConflictOptions, HostOptions, Machines, Place, RunOptions, interruptible, uperf_header,
    uperf_warning, write_json,
};
use crate::profile::Loaded;
use crate::terminal;

/// Code of the warnings that are notes on the profile.
const NOTE: &str = "profile";

/// How uperf runs a profile, as arguments of `wirecost run`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    options: RunOptions,
}

impl Master {
    pub(super) fn run(&self) -> Result<Status, Failure> {
        let started = unix_ms() as u64;
        let stop = interruptible();
        for reason in &self.without_effect {
            terminal::warn(format_args!("uperf: {reason}"));
        }
        let options = self.options()?;
        let checked = self.check().and_then(|()| self.open_log());
        let ended = checked.and_then(|log| self.measure(&options, log, &stop));
        match ended {
            Ok(status) => Ok(status),
            Err(failure) => {
                // A reader that stops early (`| head`) is not a failure.
                let _ = write_failure(&mut terminal::stdout(), &failure.message);
                let mut document = options.document(started);
                document.status = failure.status;
                document.error = Some(failure.message.clone());
                // If the document cannot be written either, the first failure is reported.
                let _ = self.write_document(&document);
                Err(failure)
            }
        }
    }

    /// Whole phases count, as uperf has no ramp, and nothing observes.
    fn options(&self) -> Result<RunOptions, Failure> {
        let interval = format!("--interval={}ns", self.interval.as_nanos());
        let line = ["--ramp=0s", "--observe=none", &interval, "--", &self.profile];
        let mut options = Line::try_parse_from(line).map_err(Failure::usage)?.options;
        options.details =
            [Part::Threads, Part::Transactions].iter().any(|part| self.parts.contains(part));
        options.logged_operations = if self.log.is_some() { LOGGED_OPERATIONS } else { 0 };
        Ok(options)
    }

    fn check(&self) -> Result<(), Failure> {
        match self.json.as_deref() {
            Some("-") => Err(Failure::usage("--json writes to a file")),
            Some(file) => json::check(&Target::from(file)).map_err(Failure::usage),
            None => Ok(()),
        }
    }

    fn open_log(&self) -> Result<Option<Log>, Failure> {
        let open = |file: &PathBuf| {
            Log::open(file).map_err(|error| {
                Failure::new(
                    Status::Failed,
                    format!("-X {}: cannot open the file: {error}", file.display()),
                )
            })
        };
        self.log.as_ref().map(open).transpose()
    }

    fn write_log(&self, log: Log, loaded: &Loaded, outcome: &Outcome) -> Result<(), Failure> {
        let file = self.log.as_deref().unwrap_or(Path::new("")).display();
        let threads: Vec<u32> = loaded.profile.groups.iter().map(|group| group.strands).collect();
        let counts = log
            .write(outcome, &threads)
            .map_err(|error| Failure::new(Status::Failed, format!("-X {file}: {error}")))?;
        if counts.left_out > 0 {
            let [written, left_out] = [counts.written, counts.left_out].map(units::count);
            terminal::warn(format_args!(
                "uperf: -X: the first {written} operations are in {file}, {left_out} more are not"
            ));
        }
        Ok(())
    }

    fn measure(
        &self,
        options: &RunOptions,
        log: Option<Log>,
        stop: &AtomicBool,
    ) -> Result<Status, Failure> {
        let loaded = options.load(&mut |_| None)?;
        let place = Place::at_remote_hosts(&loaded.profile, self.port)?;
        // uperf runs beside whatever runs.
        let here = HostOptions::default();
        let machines = Machines::of(&here, ConflictOptions::share(), stop, true)?;
        let style =
            Style { progress: self.progress, parts: self.parts.clone(), verbose: self.verbose };
        let header = uperf_header(&loaded, &place, options);
        let mut printer = Printer::new(terminal::stdout(), header, style);
        let mut devices = None;
        let measured = options.run(&loaded, &place, &machines, 1, stop, &mut |_, event| {
            if matches!(event, Event::Ready { .. }) {
                devices = Some(Devices::read());
            }
            printer.event(event);
        });
        let devices = devices.map(Devices::rates_since).unwrap_or_default();
        let (document, outcome) = measured?;
        drop(place);
        drop(machines);
        self.show(printer, &loaded, (&document, &outcome), &devices);
        self.write_document(&document)?;
        if let Some(log) = log {
            self.write_log(log, &loaded, &outcome)?;
        }
        if let Some(file) = &self.histogram {
            histogram::write(file, &outcome).map_err(|error| {
                Failure::new(Status::Failed, format!("-H {}: {error}", file.display()))
            })?;
        }
        Ok(document.status)
    }

    fn show(
        &self,
        printer: Printer<impl Write>,
        loaded: &Loaded,
        (document, outcome): (&Document, &Outcome),
        devices: &[DeviceRates],
    ) {
        let shown = document.warnings.iter().filter(|entry| self.verbose || entry.code != NOTE);
        let warnings: Vec<String> = shown.map(uperf_warning).collect();
        let details = Details { outcome, groups: &loaded.profile.groups, devices };
        let failed = document.status != Status::Ok;
        let reason = document.error.as_deref().unwrap_or("the result is invalid");
        // A reader that stops early (`| head`) is not a failure.
        let _ = printer.finish(failed.then_some(reason), &warnings, Some(details));
        if failed {
            terminal::warn(format_args!("uperf: {reason}"));
        }
    }

    fn write_document(&self, document: &Document) -> Result<(), Failure> {
        self.json.as_deref().map_or(Ok(()), |target| write_json(document, target))
    }
}

/// Counters of this machine's network devices at an instant.
struct Devices {
    at: Instant,
    counters: BTreeMap<String, Counters>,
}

impl Devices {
    /// None, where they cannot be read.
    fn read() -> Self {
        let counters = net_dev::read(None).unwrap_or_default();
        Self { at: Instant::now(), counters }
    }

    fn rates_since(self) -> Vec<DeviceRates> {
        let now = Self::read();
        let length = now.at.duration_since(self.at).as_secs_f64();
        let rates = |(name, after): (String, Counters)| {
            let before = self.counters.get(&name)?;
            let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / length;
            Some(DeviceRates {
                name,
                sent_packets: rate(after.tx_packets, before.tx_packets),
                received_packets: rate(after.rx_packets, before.rx_packets),
                sent_bits: 8.0 * rate(after.tx_bytes, before.tx_bytes),
                received_bits: 8.0 * rate(after.rx_bytes, before.rx_bytes),
            })
        };
        now.counters.into_iter().filter_map(rates).collect()
    }
}
