//! What a study will do, before it does it: how each point is run, and how long that takes.

use std::collections::BTreeSet;
use std::time::Duration;

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_fleet::ask;
use wirecost_fleet::guest::Guest;
use wirecost_model::observe::{ObserveRequest, ProbeStatus};
use wirecost_model::profile::{Profile, Until};
use wirecost_model::search::Search;
use wirecost_model::status::Status;
use wirecost_model::study::{OfferedLoad, Point};
use wirecost_observe::Observer;
use wirecost_study::Task;

use super::settings;
use super::source::{Loaded, failure};
use crate::Failure;
use crate::commands::report;
use crate::commands::run::link_rate::{LinkRate, uses_datagrams};
use crate::commands::run::options::cc_object;
use crate::commands::run::options::duration::set_duration;
use crate::commands::run::options::load::offer;
use crate::commands::run::{HostArgument, HostOptions, RunOptions};
use crate::profile::Loaded as Ready;

/// Preparing hosts, connecting, draining, and the time without observers beside the window.
const OVERHEAD: Duration = Duration::from_millis(700);
/// Opening and closing a connection, at both ends.
const CONNECTION: Duration = Duration::from_micros(100);

/// How a point is run.
pub(super) struct Step {
    pub(super) options: RunOptions,
    pub(super) ready: Ready,
    /// Where it runs: the lab may differ between points.
    pub(super) hosts: HostOptions,
    /// Estimated time of one run; of a search, of all but the measurement time of a trial.
    pub(super) time: Duration,
}

impl Step {
    /// Estimated time of this run.
    pub(super) fn time_of(&self, task: &Task) -> Duration {
        self.time + task.duration().unwrap_or_default()
    }

    /// A search without the loads that the link cannot carry.
    pub(super) fn possible(&self, search: &Search) -> Search {
        let mut search = search.clone();
        if let Some(link) = self.ready.link.filter(|link| link.payload < search.max_bits_per_second)
        {
            search.max_bits_per_second = link.payload;
            search.link_bits_per_second = Some(link.wire);
        }
        search
    }

    /// Why its load is impossible.
    pub(super) fn impossible(&self) -> Option<String> {
        self.ready.impossible().map(|warning| warning.to_string())
    }
}

/// How each point is run, in their order. Makes all checks that can refuse the study.
pub(super) fn steps(loaded: &Loaded, find: &dyn Fn(&str) -> String) -> Result<Vec<Step>, Failure> {
    wirecost_study::check(&loaded.definition).map_err(failure)?;
    let points = loaded.matrix.points.iter().map(MeasuredPoint::not_measured).collect();
    let measured = Measurements { points };
    for table in report::wanted(Some(&loaded.definition))? {
        table.rows(&measured).map_err(report::no_column)?;
    }
    let points = loaded.matrix.points.iter();
    let steps = points.map(|point| step(point, loaded, find)).collect::<Result<Vec<_>, _>>()?;
    let objects: Vec<_> =
        steps.iter().map(|step| step.options.settings().congestion_objects).collect();
    let profiles = steps.iter().map(|step| &step.ready.profile);
    cc_object::check_points(profiles.zip(objects.iter().map(Vec::as_slice)))?;
    Ok(steps)
}

/// What a point runs, on which hosts and by which link.
struct Parts {
    options: RunOptions,
    hosts: HostOptions,
    ready: Ready,
    link: Option<LinkRate>,
}

fn parts(point: &Point, loaded: &Loaded, find: &dyn Fn(&str) -> String) -> Result<Parts, Failure> {
    let mut options = settings::run_options(point, loaded.definition.seed, find)?;
    options.sealed = loaded.sealed;
    let hosts = settings::hosts(point, &loaded.definition, &loaded.hosts)?;
    let mut names = hosts.names();
    let ready = options.load(&mut |number| names(number)).map_err(|failure| failure.at(point))?;
    drop(names);
    let link = LinkRate::of(&hosts, None, &ready.profile).map_err(|failure| failure.at(point))?;
    Ok(Parts { options, hosts, ready, link })
}

/// Whether the load of a point is a share of a link of unknown rate.
pub(super) fn lacks_its_link(
    point: &Point,
    loaded: &Loaded,
    find: &dyn Fn(&str) -> String,
) -> Result<bool, Failure> {
    let is_share = matches!(point.load(), OfferedLoad::OfLink(_));
    Ok(is_share && parts(point, loaded, find)?.link.is_none())
}

pub(super) fn step(
    point: &Point,
    loaded: &Loaded,
    find: &dyn Fn(&str) -> String,
) -> Result<Step, Failure> {
    let Parts { options, hosts, mut ready, link } = parts(point, loaded, find)?;
    if let OfferedLoad::Share(_) = point.load() {
        // Whether it can be offered does not depend on the rate.
        let offered = offer(&mut ready.profile.clone(), 1_000_000_000);
        offered.map_err(|failure| failure.at(point))?;
    }
    options.set_link(&mut ready, link).map_err(|failure| failure.at(point))?;
    let time = time(&options, &ready.profile);
    let mut step = Step { options, ready, hosts, time };
    if let Some(search) = &loaded.search {
        check_search(search, &step).map_err(|failure| failure.at(point))?;
        let mut profile = step.ready.profile.clone();
        set_duration(&mut profile, Duration::ZERO)?;
        step.time = self::time(&step.options, &profile);
    }
    Ok(step)
}

/// Whether a search can be made with the profile of a point.
fn check_search(search: &Search, step: &Step) -> Result<(), Failure> {
    let mut profile = step.ready.profile.clone();
    if !uses_datagrams(&profile) {
        return Err(Failure::usage(format!(
            "a search needs datagrams, and {} has none: other protocols lose nothing",
            step.options.profile
        ))
        .help("use a profile of UDP, such as @udp-stream"));
    }
    set_duration(&mut profile, Duration::from_secs(1))?;
    offer(&mut profile, search.min_bits_per_second)?;
    match step.ready.link.and_then(|link| link.refuses(&profile)) {
        Some(impossible) => Err(Failure::usage(format!("search.min: {impossible}"))
            .help("lower search.min, or raise the rate of the link")),
        None => Ok(()),
    }
}

fn time(options: &RunOptions, profile: &Profile) -> Duration {
    let ramp = Duration::from_nanos(options.settings().ramp);
    let phases = profile.groups.iter().map(|group| group.transactions.len()).max().unwrap_or(0);
    let strands: u32 = profile.groups.iter().map(|group| group.strands).sum();
    let of_phase = |phase: usize| {
        let of_group = profile.groups.iter().filter_map(|group| group.transactions.get(phase));
        let lengths = of_group.filter_map(|transaction| match transaction.until {
            Until::Duration(length) => Some(length.saturating_add(ramp)),
            Until::Iterations(_) => None,
        });
        lengths.max().unwrap_or_default()
    };
    let phases = (0..phases).map(of_phase).fold(Duration::ZERO, Duration::saturating_add);
    let passes = options.observe.passes.len().max(1) as u32;
    phases.saturating_add(OVERHEAD + CONNECTION * strands).saturating_mul(passes)
}

/// Probes that a point requests and a host lacks, or partly lacks, with the reason.
pub(super) fn not_measured(loaded: &Loaded, steps: &[Step]) -> Result<Vec<String>, Failure> {
    let passes = steps.iter().flat_map(|step| &step.options.observe.passes);
    let mut probes: Vec<String> = passes.flatten().cloned().collect();
    probes.sort();
    probes.dedup();
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let mut reports = Vec::new();
    // Of a lab and of loopback all hosts are this machine, and so is one that drives agents.
    let request = ObserveRequest { probes: probes.clone(), parts: Vec::new() };
    reports.push(("this machine".to_owned(), Observer::open(request).reports()));
    let vms: BTreeSet<&str> = steps.iter().filter_map(|step| step.hosts.vm.as_deref()).collect();
    let mut agents: Vec<(String, String)> =
        loaded.hosts.hosts.iter().map(HostArgument::agent).collect();
    for vm in vms {
        let guest = Guest::find(vm).map_err(|error| Failure::new(Status::Peer, error))?;
        // Its hosts have one kernel.
        agents.extend(guest.hosts.first().map(|host| (format!("vm:{vm}"), host.agent.clone())));
    }
    for (name, address) in agents {
        let answer = ask::about(&address).map_err(|error| Failure::new(Status::Peer, error))?;
        let probe_name = |probe: &String| probe.split(':').next().unwrap_or_default().to_owned();
        let wanted: BTreeSet<String> = probes.iter().map(probe_name).collect();
        let of_wanted = answer.probes.into_iter().filter(|report| wanted.contains(&report.name));
        reports.push((name, of_wanted.collect()));
    }
    let lines = reports.into_iter().flat_map(|(host, reports)| {
        let lacking = reports.into_iter().filter(|report| report.status != ProbeStatus::Ready);
        lacking.map(move |report| {
            let reason = report.reason.unwrap_or_default();
            let part = if report.status == ProbeStatus::Partial { " (in part)" } else { "" };
            format!("{} on {host}{part}: {reason}", report.name)
        })
    });
    Ok(lines.collect())
}
