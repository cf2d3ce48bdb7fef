//! How a profile is run: what `wirecost run` and a point of a study have in common.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use wirecost_analyze::RunMeta;
use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_lab::Lab;
use wirecost_linux::clock::unix_ms;
use wirecost_model::clock::nanos;
use wirecost_model::event::{Event, Listener};
use wirecost_model::outcome::Outcome;
use wirecost_model::plan::{EngineKind, Workers};
use wirecost_model::run::Run as Document;
use wirecost_model::status::Status;
use wirecost_model::warning::Warning;
use wirecost_observe::Set;

use super::adjust::{Adjust, connect_to_each};
use super::hosts::{At, Place};
use super::random;
use crate::Failure;
use crate::commands::{parse_time, parse_time_not_zero};
use crate::profile::{self, Loaded, parse_variable};

/// Bits of a number that every reader of JSON keeps.
const EXACT: u64 = (1 << 53) - 1;
/// Sampled connections of each worker.
const TCP_SAMPLES: u32 = 16;

#[derive(Debug, Args)]
pub(crate) struct How {
    /// A file, or a built-in profile of `wirecost list`.
    #[arg(value_name = "PROFILE|@BUILTIN")]
    pub(crate) profile: String,

    /// Set a variable of the profile; beats the environment.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,

    /// How workers wait: `epoll` runs many strands on each; `io_uring` does so with fewer system
    /// calls, and where the kernel forbids it with epoll; `threads` is a thread for each strand.
    #[arg(long, value_name = "ENGINE", default_value = "epoll", value_parser = parse_engine)]
    pub(crate) engine: EngineKind,

    /// Length of the window of the phase that counts, in place of the profile's.
    #[arg(long, value_name = "TIME", value_parser = parse_time_not_zero)]
    duration: Option<Duration>,

    /// Time before each window, which does not count.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) ramp: Duration,

    /// Strands of each group, in place of the profile's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,

    /// Turn the data around: the master reads where the profile writes.
    #[arg(long)]
    reverse: bool,

    /// Connect to so many hosts in place of one: each group of the profile once for each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    peers: Option<u32>,

    /// Workers of each host, or of hosts by name, `master` and `peer` among them: `master=4,peer=1`
    /// [default: one for each of its CPUs].
    #[arg(long, value_name = "N|NAME=N,...")]
    workers: Option<Workers>,

    /// Length of the intervals of the series, 10ms or longer.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// End the whole run after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time_not_zero)]
    timeout: Option<Duration>,

    /// What watches the kernel of every machine in the window: `standard`, `none`, `full` (all probes,
    /// hooks of hot paths in slices of the window), `deep` (standard, then a run for each further probe),
    /// or probes with commas between them.
    #[arg(long, value_name = "SET", default_value = "standard", value_parser = Set::parse)]
    pub(crate) observe: Set,

    /// Seed of everything random, to draw again what a run drew: its JSON has the seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
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

impl How {
    /// Reads the profile and applies the rest to it. What cannot be run is refused.
    pub(crate) fn load(
        &self,
        hosts: &mut dyn FnMut(usize) -> Option<String>,
    ) -> Result<Loaded, Failure> {
        let mut loaded = profile::load(&self.profile, &self.variables, hosts)?;
        if !loaded.refusals.is_empty() {
            return Err(profile::describe(&loaded.name, &loaded.source, &loaded.refusals));
        }
        let adjust = Adjust {
            connections: self.connections,
            duration: self.duration,
            reverse: self.reverse,
        };
        adjust.apply(&mut loaded.profile)?;
        if let Some(peers) = self.peers {
            connect_to_each(&mut loaded, peers as usize, hosts)?;
        }
        Ok(loaded)
    }

    /// Finds a place for every host; see [`Place::find`].
    pub(crate) fn place(
        &self,
        loaded: &Loaded,
        at: &At,
        kept: Option<Rc<Lab>>,
    ) -> Result<Place, Failure> {
        let place = Place::find(&loaded.profile, at, kept)?;
        if let Some(workers) = &self.workers {
            place.check_names("--workers", workers.names())?;
        }
        Ok(place)
    }

    /// Runs the profile under each set of probes in turn, and says what the first saw, with what the
    /// others add. `listen` gets the events of each, with its number. Each `repeat` of a point, from 1 on,
    /// has draws of its own: what is due to them would else look like a property of the point.
    pub(crate) fn run(
        &self,
        loaded: &Loaded,
        place: &Place,
        repeat: u32,
        stop: &AtomicBool,
        listen: &mut dyn FnMut(usize, &Event),
    ) -> Result<(Document, Outcome), Failure> {
        // One seed for all passes: they differ in who watches, and in nothing else.
        let seed = self.seed.unwrap_or_else(|| random() & EXACT);
        let seed = seed.wrapping_add(u64::from(repeat.saturating_sub(1)) << 32);
        let (first, further) = match self.observe.passes.split_first() {
            Some((first, further)) => (first.clone(), further),
            None => (Vec::new(), [].as_slice()),
        };
        let mut of_first = |event: &Event| listen(0, event);
        let (mut document, outcome) = self.pass(loaded, place, first, seed, stop, &mut of_first)?;
        for (number, probes) in further.iter().enumerate() {
            if document.status != Status::Ok || stop.load(Ordering::Relaxed) {
                break;
            }
            let mut of_pass = |event: &Event| listen(number + 1, event);
            let (pass, _) = self.pass(loaded, place, probes.clone(), seed, stop, &mut of_pass)?;
            wirecost_analyze::add_pass(&mut document, pass, probes);
        }
        Ok((document, outcome))
    }

    /// A document of a run that measured nothing (yet).
    pub(crate) fn document(&self, started_unix_ms: u64) -> Document {
        let (engine, version) = (self.engine.name(), env!("CARGO_PKG_VERSION"));
        Document::empty(&self.profile, engine, version, started_unix_ms)
    }

    /// Runs the profile once, under these probes.
    fn pass(
        &self,
        loaded: &Loaded,
        place: &Place,
        probes: Vec<String>,
        seed: u64,
        stop: &AtomicBool,
        listener: &mut dyn Listener,
    ) -> Result<(Document, Outcome), Failure> {
        let started = unix_ms() as u64;
        let settings = Settings {
            engine: self.engine,
            workers: self.workers.clone().unwrap_or_default(),
            interval: nanos(self.interval),
            ramp: nanos(self.ramp),
            timeout: self.timeout,
            seed,
            token: format!("{:016x}{:016x}", random(), random()),
            tcp_samples: TCP_SAMPLES,
            probes: probes.clone(),
        };
        let members: Vec<Member> = place.members()?;
        let mut outcome = controller::run(&loaded.profile, members, &settings, stop, listener);
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
        let mut document = wirecost_analyze::run(&outcome, &meta);
        document.seed = Some(seed);
        Ok((document, outcome))
    }
}
