use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Deserialize;
use wirecost_lab::{self as lab, LabError, LabSpec};
use wirecost_model::link::netem::{Backend, NetemLine};
use wirecost_model::link::{LinkCounts, LinkSpec, Topology};
use wirecost_model::status::Status;
use wirecost_model::units;
use wirecost_model::visible::visible;
use wirecost_study::LabDefinition;

use super::link_options::LinkOptions;
use crate::Failure;
use crate::terminal;

/// Create, show or remove test hosts in network namespaces on this machine.
///
/// `wirecost run --lab` creates a temporary lab for the run. A lab created here persists, for `run
/// --lab=NAME` and for other programs (`ip netns exec ...`).
#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Create a lab that persists.
    Up {
        /// TOML file with the number of hosts and the keys of their links; options override it.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Number of hosts [default: 2].
        #[arg(long, value_name = "N")]
        hosts: Option<usize>,
        #[arg(long, default_value = lab::DEFAULT_NAME)]
        name: String,
        #[command(flatten)]
        links: LinkOptions,
    },
    /// Remove a lab, and the labs of killed runs.
    Down {
        #[arg(long, default_value = lab::DEFAULT_NAME)]
        name: String,
    },
    /// Show all labs.
    Status {
        /// Write everything that is known as JSON, the counters of emulated links and queues among it.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn failure(error: &LabError) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let status = match error {
        LabError::HostCount { .. }
        | LabError::Rate { .. }
        | LabError::Topology { .. }
        | LabError::Queues { .. }
        | LabError::NoQdisc { .. }
        | LabError::BeyondNetem { .. }
        | LabError::BadName { .. }
        | LabError::NameTaken { .. } => Status::Usage,
        _ => Status::Peer,
    };
    let failure = Failure::new(status, text);
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

impl Lab {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let mut out = String::new();
        match self.act {
            Act::Up { file, hosts, name, links } => {
                let file =
                    file.map_or_else(|| Ok(LabFile::default()), |path| LabFile::read(&path))?;
                let links = links.over((&file.lab).into());
                let hosts = hosts.or(file.hosts).unwrap_or(DEFAULT_HOSTS);
                let mut spec = LabSpec::persistent(name, hosts);
                links.links()?.apply(&mut spec)?;
                let lab = lab::Lab::up(&spec).map_err(|e| failure(&e))?;
                let links = describe(lab.rate_bits_per_second(), lab.emulated());
                let _ = writeln!(out, "lab {} is up{links}", lab.name());
                for host in lab.hosts() {
                    let _ = writeln!(out, "  {}", line(host));
                }
                let name = lab.name();
                let option = if name == lab::DEFAULT_NAME {
                    String::new()
                } else {
                    format!(" --name {name}")
                };
                let _ = writeln!(out, "use it:    wirecost run @stream --lab={name}");
                let _ = writeln!(out, "remove it: wirecost lab down{option}");
            }
            Act::Down { name } => {
                let mut removed = lab::remove_stale().map_err(|e| failure(&e))?;
                match lab::down(&name) {
                    Ok(one) => removed.push(one),
                    // Something was removed: not to find the usual lab as well is no failure.
                    Err(LabError::NotFound { .. }) if !removed.is_empty() => {}
                    Err(error) => return Err(failure(&error)),
                }
                for one in removed {
                    let count = one.namespaces.len();
                    let _ = writeln!(out, "removed lab {} ({count} namespaces)", one.name);
                }
            }
            Act::Status { json } => {
                let status = lab::status().map_err(|e| failure(&e))?;
                if json {
                    let text = serde_json::to_string_pretty(&status);
                    let text = text.map_err(|e| Failure::new(Status::Failed, e.to_string()))?;
                    terminal::print(&format!("{text}\n"));
                    return Ok(Status::Ok);
                }
                if status.labs.is_empty() && status.orphans.is_empty() {
                    let _ = writeln!(out, "no lab exists");
                }
                for one in &status.labs {
                    let gone = one.emulated.as_ref().is_some_and(|links| !links.alive);
                    let state = match (one.stale, one.whole) {
                        (false, true) if gone => "incomplete: the emulator of its links has ended",
                        (true, _) => {
                            "stale: its run was killed; the next lab or `wirecost lab down` removes it"
                        }
                        (false, false) => "incomplete: a namespace is missing",
                        (false, true) => "up",
                    };
                    let emulated = one.emulated.as_ref();
                    let links = describe(
                        one.rate_bits_per_second,
                        emulated.map(|links| (links.topology, &links.link, links.backend)),
                    );
                    let _ = writeln!(out, "lab {}: {state}{links}", visible(&one.name));
                    let lines = emulated.and_then(|links| links.qdiscs.as_deref());
                    for qdisc in lines.iter().flat_map(|lines| qdiscs_of(lines)) {
                        let _ = writeln!(out, "  {qdisc}");
                    }
                    for host in &one.hosts {
                        let link = match &host.link {
                            Some(link) if link.running => "link up",
                            Some(_) => "link down",
                            None => "link not visible",
                        };
                        let alive = if host.alive { link } else { "gone" };
                        let _ = writeln!(out, "  {}  {alive}", line(&host.host));
                        let counts = emulated.and_then(|links| links.counts.as_ref());
                        for queue in queues_of(&host.host, counts) {
                            let _ = writeln!(out, "       {queue}");
                        }
                    }
                }
                for why in &status.unreadable {
                    let _ = writeln!(out, "{}", visible(why));
                }
                for orphan in &status.orphans {
                    let _ = writeln!(out, "namespace {} belongs to no lab", visible(orphan));
                }
            }
        }
        terminal::print(&out);
        Ok(Status::Ok)
    }
}

const DEFAULT_HOSTS: usize = 2;

/// A lab as a file describes it.
#[derive(Debug, Default, Deserialize)]
struct LabFile {
    hosts: Option<usize>,
    #[serde(flatten)]
    lab: LabDefinition,
}

impl LabFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: String| Failure::usage(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        toml::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

/// Name of the command that emulates links.
pub(crate) const EMULATOR: &str = "link-emulator";

/// Emulates the links of a lab that another process creates.
pub(crate) fn emulate() -> Result<Status, Failure> {
    match lab::serve_links() {
        Ok(()) => Ok(Status::Ok),
        Err(error) => Err(Failure::new(Status::Peer, error.to_string())),
    }
}

/// What starts this program as an emulator.
pub(crate) fn emulator_program() -> Result<Vec<OsString>, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Status::Peer, format!("cannot find this program: {error}"))
    })?;
    Ok(vec![program.into(), EMULATOR.into()])
}

/// What has passed through the queues of a host's device, one line each.
fn queues_of(host: &lab::LabHost, counts: Option<&LinkCounts>) -> Vec<String> {
    let mut devices = counts.iter().flat_map(|counts| &counts.devices);
    let device = devices.find(|device| device.host == host.name);
    let queues = device.iter().flat_map(|device| device.queues.iter().enumerate());
    queues
        .map(|(number, queue)| {
            format!(
                "queue {number}, CPU {}: {} sent, {} received, {} dropped, {} interrupts",
                queue.cpu, queue.sent, queue.received, queue.dropped, queue.interrupts
            )
        })
        .collect()
}

/// What has passed through the queueing disciplines of links by netem, one line each.
fn qdiscs_of(lines: &[NetemLine]) -> Vec<String> {
    let all = lines.iter().flat_map(|line| line.qdiscs.iter().map(move |qdisc| (line, qdisc)));
    all.map(|(line, qdisc)| {
        format!(
            "{}: {}: {} packets sent, {} dropped, {} overlimits, {} waiting",
            line.name,
            qdisc.kind,
            qdisc.packets,
            qdisc.drops,
            qdisc.overlimits,
            qdisc.backlog_packets
        )
    })
    .collect()
}

/// What lies between the hosts, where that is more than wires.
fn describe(rate: Option<u64>, emulated: Option<(Topology, &LinkSpec, Backend)>) -> String {
    match (rate, emulated) {
        (_, Some((topology, link, backend))) => {
            format!(", links: {} ({})", link.describe(topology), backend.name())
        }
        (Some(rate), None) => format!(", each link {}", units::bit_rate(rate as f64)),
        (None, None) => String::new(),
    }
}

fn line(host: &lab::LabHost) -> String {
    let cpus: Vec<String> = host.cpus.iter().map(ToString::to_string).collect();
    let whose = if host.owns_cpus { "own CPU" } else { "shared CPUs" };
    let ipv6 = host.ipv6.map_or_else(String::new, |address| address.to_string());
    // State files and namespaces are named by others.
    let [name, namespace] = [&host.name, &host.namespace].map(|name| visible(name));
    format!(
        "{name:<4} {:<15} {:<18} {whose} {:<8} netns {namespace}",
        host.ipv4,
        ipv6,
        cpus.join(","),
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn names_of_a_state_file_stay_on_their_line() {
        let host = lab::LabHost {
            name: "h1\n\u{1b}[2J".to_owned(),
            namespace: "wn\r".to_owned(),
            ipv4: Ipv4Addr::LOCALHOST,
            ipv6: None,
            device: "lab0".to_owned(),
            cpus: vec![0],
            owns_cpus: true,
            receive_cpus: Vec::new(),
        };
        let line = line(&host);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.starts_with("h1\\n\\u{1b}[2J ") && line.ends_with("netns wn\\r"), "{line}");
    }
}
