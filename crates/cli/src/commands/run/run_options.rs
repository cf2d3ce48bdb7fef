//! How a profile is run: what `wirecost run` and a point of a study have in common.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use wirecost_analyze::RunMeta;
use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_lab::Lab;
use wirecost_linux::clock::unix_ms;
use wirecost_load::engines;
use wirecost_model::event::{Event, Listener};
use wirecost_model::outcome::Outcome;
use wirecost_model::run::Run as Document;
use wirecost_model::status::Status;
use wirecost_model::study::{LOAD, OfferedLoad, Value};
use wirecost_model::tuning::{self, Tuning};
use wirecost_model::warning::{self, Warning};
use wirecost_observe::Set;
use wirecost_program::offered;
use wirecost_tunable::Setting;

use super::hosts::{HostOptions, Place};
use super::link_rate::LinkRate;
use super::link_samples::LinkSampler;
use super::machines::{Machines, Uses};
use super::options::load::offer;
use super::options::{Changes, cc_object};
use super::peers::connect_to_each;
use super::{random, sealed};
use crate::Failure;
use crate::profile::{self, Loaded, parse_variable};
use crate::runnable;

/// Bits of a number that every JSON reader preserves.
pub(super) const EXACT: u64 = (1 << 53) - 1;
const DEFAULT_PROBES: &str = "standard";
/// An option without a value.
pub(crate) const ALLOW_CONTROL_DEVICE: &str = "allow-control-device";
/// Sampled connections per worker.
const TCP_SAMPLES: u32 = 16;

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Profile: a file, `-` for standard input, or a built-in (see `wirecost list`).
    #[arg(value_name = "PROFILE|@BUILTIN")]
    pub(crate) profile: String,

    /// Set a variable of the profile; overrides the environment.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,

    #[command(flatten)]
    changes: Changes,

    /// Number of peers; each group opens its connections to every peer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    peers: Option<u32>,

    /// Probes that observe the kernel of every machine: `standard`, `none`, `full` (all probes,
    /// hot-path hooks enabled part of the time), `deep` (standard, then one run per additional
    /// probe), or a comma-separated list of probes.
    #[arg(long, value_name = "SET", default_value = DEFAULT_PROBES, value_parser = Set::parse)]
    pub(crate) observe: Set,

    /// Change a setting (tunable) for the duration of the run, such as `mtu=9000` or
    /// `'tcp_rmem=4096 131072 33554432'`, on every host or on one of them, as in `h2:mtu=9000`; may be given
    /// several times. `wirecost list tunables` shows all.
    #[arg(long, value_name = "[HOST:]NAME=VALUE", value_parser = parse_tuning)]
    tune: Vec<(String, String)>,

    /// Network device to which device tunables apply, on all hosts [default: the device that carries the
    /// run's traffic; none for hosts on agents].
    #[arg(long, value_name = "NAME")]
    tune_device: Option<String>,

    /// Allow changes to the device that carries the connection from this controller to an agent. The agent
    /// reverts them after 10 s unless the controller still reaches it.
    #[arg(long)]
    allow_control_device: bool,

    /// Seed to reproduce a run's random choices; the JSON of a run contains its seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Whether hosts report each strand and each group by itself too.
    #[arg(skip)]
    pub(crate) details: bool,

    /// Whether the profile comes from somebody else, and may name no host and no file.
    #[arg(skip)]
    pub(crate) sealed: bool,

    /// Single operations that the master reports.
    #[arg(skip)]
    pub(crate) logged_operations: u64,
}

/// `[HOST:]NAME=VALUE` of a tunable that there is, and that can have this value.
fn parse_tuning(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE, such as mtu=9000")?;
    let (host, name) = tuning::host_and_name(name.trim());
    let setting = Setting::new(name, value).map_err(|error| error.to_string())?;
    let name = host.map_or_else(String::new, |host| format!("{host}:")) + setting.name();
    Ok((name, setting.value().to_owned()))
}

impl RunOptions {
    /// Reads the profile, applies the options to it, and refuses what cannot be run.
    pub(crate) fn load(
        &self,
        hosts: &mut dyn FnMut(usize) -> Option<String>,
    ) -> Result<Loaded, Failure> {
        let load = if self.sealed { profile::load_sealed } else { profile::load };
        let mut loaded = load(&self.profile, &self.variables, hosts)?;
        if self.sealed {
            sealed::check(&loaded, self.settings().engine.as_str())?;
        }
        if let Some(refusal) = runnable::refused_by_language(&loaded) {
            return Err(refusal);
        }
        // First: an offered load is that of all groups.
        if let Some(peers) = self.peers {
            connect_to_each(&mut loaded, peers as usize, hosts)?;
        }
        self.changes.apply(&mut loaded.profile)?;
        let settings = self.settings();
        match runnable::check(&loaded, &settings.engine).refusal {
            Some(refusal) => Err(refusal),
            None => check_stamps(&settings).map(|()| loaded),
        }
    }

    /// Refuses options about settings where none is changed. Points of a study may have them and change
    /// nothing.
    pub(super) fn check_tune(&self) -> Result<(), Failure> {
        let about = match (&self.tune_device, self.allow_control_device) {
            (Some(_), _) => "--tune-device",
            (None, true) => "--allow-control-device",
            (None, false) => return Ok(()),
        };
        match self.tune.is_empty() {
            true => Err(Failure::usage(format!("{about} is about settings that --tune changes"))
                .help(format!("add --tune NAME=VALUE, or remove {about}"))),
            false => Ok(()),
        }
    }

    /// What options set.
    pub(crate) fn settings(&self) -> Settings {
        self.changes.settings()
    }

    /// What was set, by name: options, and variables of the profile.
    pub(crate) fn given(&self) -> Vec<Value> {
        let mut given = self.given_options();
        given.extend(self.variables.iter().map(|(name, value)| Value::new(name, value)));
        given
    }

    /// The options that were set, but the seed: each run has one, in a key of its own.
    pub(crate) fn given_options(&self) -> Vec<Value> {
        let mut given = self.changes.given().to_vec();
        given.extend(self.peers.map(|peers| Value::new("peers", &peers.to_string())));
        if self.observe.text != DEFAULT_PROBES {
            given.push(Value::new("observe", &self.observe.text));
        }
        given.extend(self.tune_device.iter().map(|name| Value::new("tune-device", name)));
        if self.allow_control_device {
            given.push(Value::new(ALLOW_CONTROL_DEVICE, "true"));
        }
        given.extend(
            self.tune.iter().map(|(name, value)| Value::new(&format!("tune.{name}"), value)),
        );
        given
    }

    /// Says what the link of a loaded profile is. A load that is a share of it becomes a rate.
    pub(crate) fn set_link(
        &self,
        loaded: &mut Loaded,
        link: Option<LinkRate>,
    ) -> Result<(), Failure> {
        loaded.link = link;
        let given = self.changes.given().iter().find(|value| value.name == LOAD);
        let Some(OfferedLoad::OfLink(share)) =
            given.and_then(|value| OfferedLoad::parse(&value.value))
        else {
            return Ok(());
        };
        match link {
            Some(link) => offer(&mut loaded.profile, (share * link.payload as f64) as u64),
            None => Err(Failure::usage(format!(
                "load {}%-of-link: the rate of the link is unknown",
                100.0 * share
            ))
            .help("give a rate, such as 1gbit")),
        }
    }

    /// How many times the profile is run, each time under other probes.
    pub(crate) fn passes(&self) -> usize {
        self.observe.passes.len().max(1)
    }

    /// Variables of the profile that were set.
    pub(crate) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// Gives the runs a seed, if the user does not.
    pub(crate) fn draw_seed(&mut self) {
        self.seed.get_or_insert_with(super::new_seed);
    }

    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Finds a place for every host; see [`Place::find`].
    pub(crate) fn place(
        &self,
        loaded: &Loaded,
        host_options: &HostOptions,
        kept: Option<Rc<Lab>>,
    ) -> Result<Place, Failure> {
        let place = Place::find(&loaded.profile, host_options, kept)?;
        let settings = self.settings();
        place.check_names("--workers", settings.workers.names())?;
        place.check_names("--cpus", settings.cpus.names())?;
        let tuned = self.tune.iter().filter_map(|(name, _)| tuning::host_and_name(name).0);
        place.check_names("--tune", tuned)?;
        Ok(place)
    }

    /// Runs the profile with each set of probes in turn. The document is that of the first pass,
    /// with the sections that further passes add. `listen` gets the events of each pass, with its
    /// number. Each `repeat` of a point (counted from 1) draws its own random values. Otherwise an
    /// effect of these values would look like a property of the point.
    pub(crate) fn run(
        &self,
        loaded: &Loaded,
        place: &Place,
        machines: &Machines,
        repeat: u32,
        stop: &AtomicBool,
        listen: &mut dyn FnMut(usize, &Event),
    ) -> Result<(Document, Outcome), Failure> {
        // One seed for all passes, so that they differ only in their probes.
        let seed = self.seed.unwrap_or_else(super::new_seed);
        let seed = seed.wrapping_add(u64::from(repeat.saturating_sub(1)) << 32);
        let (first, further) = match self.observe.passes.split_first() {
            Some((first, further)) => (first.clone(), further),
            None => (Vec::new(), [].as_slice()),
        };
        let mut of_first = |event: &Event| listen(0, event);
        let (mut document, outcome) =
            self.pass(loaded, place, machines, first, seed, stop, &mut of_first)?;
        for (number, probes) in further.iter().enumerate() {
            if document.status != Status::Ok || stop.load(Ordering::Relaxed) {
                break;
            }
            let mut of_pass = |event: &Event| listen(number + 1, event);
            let (pass, _) =
                self.pass(loaded, place, machines, probes.clone(), seed, stop, &mut of_pass)?;
            wirecost_analyze::add_pass(&mut document, pass, probes);
        }
        Ok((document, outcome))
    }

    /// A document of a run that has not measured anything.
    pub(crate) fn document(&self, started_unix_ms: u64) -> Document {
        let (engine, version) = (self.settings().engine, env!("CARGO_PKG_VERSION"));
        let document = Document::empty(&self.profile, engine.as_str(), version, started_unix_ms);
        Document { options: Some(self.given()), ..document }
    }

    /// Runs the profile once, with these probes.
    #[expect(clippy::too_many_arguments, reason = "each is of another owner")]
    fn pass(
        &self,
        loaded: &Loaded,
        place: &Place,
        machines: &Machines,
        probes: Vec<String>,
        seed: u64,
        stop: &AtomicBool,
        listener: &mut dyn Listener,
    ) -> Result<(Document, Outcome), Failure> {
        let started = unix_ms() as u64;
        let settings = Settings {
            seed,
            token: format!("{:016x}{:016x}", random(), random()),
            tcp_samples: TCP_SAMPLES,
            details: self.details,
            logged_operations: self.logged_operations,
            probes: probes.clone(),
            tuning: Tuning {
                settings: self.tune.clone(),
                device: self.tune_device.clone(),
                allow_control_device: self.allow_control_device,
            },
            ..self.settings()
        };
        let began = Instant::now();
        let members: Vec<Member> = place.members(&machines.request(Uses {
            observes: !probes.is_empty(),
            tunes: !self.tune.is_empty(),
            loads_congestion_control: cc_object::loads(&loaded.profile, &settings),
        }))?;
        let links = place.lab().and_then(|lab| LinkSampler::start(&lab));
        let mut outcome = controller::run(&loaded.profile, members, &settings, stop, listener);
        if let Some(links) = links {
            links.finish(&mut outcome);
        }
        outcome.warnings.extend(machines.shared_since(began));
        outcome.warnings.extend(loaded.impossible());
        for note in &loaded.notes {
            outcome.warnings.push(Warning::from(warning::Profile {
                line: note.at.line,
                column: note.at.column,
                text: note.to_string(),
            }));
        }
        let meta = RunMeta {
            profile: self.profile.clone(),
            engine: settings.engine.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: started,
            probes,
            dead_time: settings.dead_time,
            offered_bits_per_second: offered::bits_per_second(&loaded.profile),
        };
        let mut document = wirecost_analyze::run(&outcome, &meta);
        document.seed = Some(seed);
        document.options = Some(self.given());
        Ok((document, outcome))
    }
}

/// An engine that cannot do what `--receive-stamps` asks for is named before anything starts.
fn check_stamps(settings: &Settings) -> Result<(), Failure> {
    let engine = engines::find(settings.engine.as_str()).filter(|_| settings.receive_stamps);
    match engine.and_then(|engine| engine.lacks_stamps()) {
        Some(reason) => Err(Failure::usage(format!("engine {}: {reason}", settings.engine))),
        None => Ok(()),
    }
}
