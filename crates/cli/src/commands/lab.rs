use std::fmt::Write as _;

use clap::{Args, Subcommand};
use wirecost_lab::{self as lab, LabError, LabSpec};
use wirecost_model::status::Status;
use wirecost_model::units;
use wirecost_model::visible::visible;

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
        #[arg(long, value_name = "N", default_value_t = 2)]
        hosts: usize,
        #[arg(long, default_value = lab::DEFAULT_NAME)]
        name: String,
        /// Rate of each host's link per direction, such as `1gbit` or `100mbit` [default: unlimited].
        #[arg(long, value_name = "RATE", value_parser = parse_rate)]
        rate: Option<u64>,
    },
    /// Remove a lab, and the labs of killed runs.
    Down {
        #[arg(long, default_value = lab::DEFAULT_NAME)]
        name: String,
    },
    /// Show all labs.
    Status,
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
            Act::Up { hosts, name, rate } => {
                let mut spec = LabSpec::persistent(name, hosts);
                spec.rate_bits_per_second = rate;
                let lab = lab::Lab::up(&spec).map_err(|e| failure(&e))?;
                let links = links(lab.rate_bits_per_second());
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
            Act::Status => {
                let status = lab::status().map_err(|e| failure(&e))?;
                if status.labs.is_empty() && status.orphans.is_empty() {
                    let _ = writeln!(out, "no lab exists");
                }
                for one in &status.labs {
                    let state = match (one.stale, one.whole) {
                        (true, _) => {
                            "stale: its run was killed; the next lab or `wirecost lab down` removes it"
                        }
                        (false, false) => "incomplete: a namespace is missing",
                        (false, true) => "up",
                    };
                    let links = links(one.rate_bits_per_second);
                    let _ = writeln!(out, "lab {}: {state}{links}", visible(&one.name));
                    for host in &one.hosts {
                        let link = match &host.link {
                            Some(link) if link.running => "link up",
                            Some(_) => "link down",
                            None => "link not visible",
                        };
                        let alive = if host.alive { link } else { "gone" };
                        let _ = writeln!(out, "  {}  {alive}", line(&host.host));
                    }
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

/// A rate on the command line.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    units::parse_bit_rate(text).ok_or_else(|| {
        "must be a number with k, m or g, or with bit, kbit, mbit or gbit, such as 1gbit".to_owned()
    })
}

/// The rate of the links, if it is limited.
fn links(rate: Option<u64>) -> String {
    rate.map_or_else(String::new, |rate| {
        format!(", each link {}", units::decimal(rate as f64, "b/s"))
    })
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
