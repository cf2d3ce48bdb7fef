//! One long run on loopback, with frequent snapshots, so that its slices can be compared with each
//! other.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_fleet::host::AgentHost;
use wirecost_model::clock::{MILLISECOND, Nanos, SECOND, seconds};
use wirecost_model::event::Event;
use wirecost_model::measure::PhaseResult;
use wirecost_model::outcome::Outcome;
use wirecost_model::plan::{EngineName, Workers};
use wirecost_model::profile::{Profile, Until};
use wirecost_model::program::Side;
use wirecost_model::status::Status;
use wirecost_profile::builtins;
use wirecost_profile::language::Language;

/// A load of the benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) name: &'static str,
    pub(crate) builtin: &'static str,
    /// Variables that differ from the built-in's defaults.
    pub(crate) variables: &'static [(&'static str, &'static str)],
}

impl Traffic {
    fn profile(&self, length: Duration) -> Result<Profile, String> {
        let builtin =
            builtins::find(self.builtin).ok_or_else(|| format!("no built-in {}", self.builtin))?;
        let look_up = |name: &str| {
            let ours = self.variables.iter().find(|(known, _)| *known == name);
            if let Some((_, value)) = ours {
                return Some((*value).to_owned());
            }
            let variable = builtin.variables.iter().find(|variable| variable.name == name)?;
            match variable.default {
                builtins::Default::Text(text) => Some(text.to_owned()),
                _ => Some("127.0.0.1".to_owned()),
            }
        };
        let mut profile = Language::of("", builtin.source)
            .parse(builtin.source, &look_up)
            .map_err(|error| format!("{error:?}"))?
            .profile;
        for transaction in profile.groups.iter_mut().flat_map(|group| &mut group.transactions) {
            if let Until::Duration(whole) = &mut transaction.until {
                *whole = length;
            }
        }
        Ok(profile)
    }

    /// Runs for so long, on this machine. Blocks; `began` is told when the phase that counts
    /// begins, and how long its ramp is.
    pub(crate) fn run(
        &self,
        wirecost: &Path,
        length: Duration,
        began: &Sender<Nanos>,
    ) -> Result<Rates, String> {
        let profile = self.profile(length)?;
        let member = |name: &str| -> Result<Member, String> {
            let mut command = Command::new(wirecost);
            command.args(["agent", "--session", "--all-files"]);
            let host = AgentHost::spawn(name, command).map_err(|error| error.to_string())?;
            Ok(Member {
                host: Box::new(host),
                data_address: "127.0.0.1".parse().ok(),
                listens_at: "127.0.0.1".parse().ok(),
                address: None,
                cpus: Vec::new(),
                owns_cpus: false,
                device: None,
                spreading: None,
                claim: None,
            })
        };
        let settings = Settings {
            engine: EngineName::default(),
            workers: Workers::default(),
            interval: Some(10 * MILLISECOND),
            ramp: SECOND,
            timeout: Some(length + Duration::from_secs(60)),
            seed: 1,
            token: format!("bench-{}-{}", std::process::id(), self.name),
            tcp_samples: 0,
            probes: Vec::new(),
            ..Settings::default()
        };
        let members = vec![member("master")?, member("peer")?];
        let stop = AtomicBool::new(false);
        let mut listener = |event: &Event| {
            if let Event::PhaseStarted { ramp, headline: true, .. } = event {
                // Who does not listen any more has an error to tell.
                let _ = began.send(*ramp);
            }
        };
        let outcome = controller::run(&profile, members, &settings, &stop, &mut listener);
        match outcome.status {
            Status::Ok => Rates::of(&outcome),
            _ => Err(outcome.error.unwrap_or_else(|| "the run failed".to_owned())),
        }
    }
}

/// What the master had done at each of its snapshots: transactions, which a stream has for each
/// write.
#[derive(Debug)]
pub(crate) struct Rates {
    snapshots: Vec<(Nanos, u64)>,
}

impl Rates {
    fn of(outcome: &Outcome) -> Result<Self, String> {
        let headline = outcome.phases.iter().position(|plan| plan.headline);
        let master = outcome.hosts.iter().find(|host| host.side == Side::Master);
        let phase: Option<&PhaseResult> = master
            .zip(headline)
            .and_then(|(host, phase)| host.phases.iter().find(|p| p.phase as usize == phase));
        let phase = phase.ok_or("the run has no headline")?;
        Ok(Self {
            snapshots: phase.snapshots.iter().map(|c| (c.at, c.counters.transactions)).collect(),
        })
    }

    /// Transactions a second between the first and the last snapshot within a slice; `None` where
    /// there are fewer than half of the snapshots that there should be.
    pub(crate) fn within(&self, from: Nanos, to: Nanos) -> Option<f64> {
        let mut inside = self.snapshots.iter().filter(|(at, _)| (from..=to).contains(at));
        let (first, last) = (inside.next()?, inside.next_back()?);
        let length = last.0.saturating_sub(first.0);
        (length * 2 >= to - from).then(|| (last.1 - first.1) as f64 / seconds(length))
    }
}
