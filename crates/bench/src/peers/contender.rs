//! Who is compared, and how each is called.

use std::fmt;
use std::path::Path;

use wirecost_model::plan::EngineKind;

use super::contenders;
use super::contenders::wirecost::{Joins, Wirecost};
use super::point::{Cpus, Point};

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    /// The only CPU that it may run on; none for any.
    pub(crate) cpu: Option<u32>,
}

impl Line {
    /// Of words with blanks between them; none of them holds one.
    pub(crate) fn of(words: &str) -> Self {
        let mut words = words.split_ascii_whitespace().map(str::to_owned);
        Self { program: words.next().unwrap_or_default(), args: words.collect(), cpu: None }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cpu) = self.cpu {
            write!(f, "taskset -c {cpu} ")?;
        }
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| match shlex::try_quote(arg) {
            Ok(quoted) if arg.contains(char::is_whitespace) => write!(f, " {quoted}"),
            _ => write!(f, " {arg}"),
        })
    }
}

/// Where a server shows that it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Tcp(u16),
    Udp(u16),
}

/// A server, and the client that makes the traffic. A program that is both has no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) server: Option<(Line, Port)>,
    pub(crate) client: Line,
}

impl Plan {
    /// The same with each end on its CPU.
    pub(crate) fn on(mut self, cpus: Cpus) -> Self {
        if let Some((server, _)) = &mut self.server {
            server.cpu = cpus.server;
        }
        self.client.cpu = cpus.client;
        self
    }
}

/// What is asked of a contender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) point: Point,
    /// This one and the hundred and ninety-nine that follow are free.
    pub(crate) port: u16,
    /// How long traffic is to go on after it began, whole seconds as most programs want it.
    pub(crate) seconds: u32,
    /// Ends of connections that are open while nobody runs.
    pub(crate) open_ends: u64,
    /// A directory for files of this run.
    pub(crate) scratch: &'a Path,
    /// The program `wirecost`.
    pub(crate) wirecost: &'a Path,
}

impl Ask<'_> {
    /// How long, for a client whose clock runs while it still connects.
    pub(crate) fn seconds_from_start(&self) -> u32 {
        self.seconds + self.point.seconds_to_connect()
    }
}

/// What a contender says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Own {
    /// Bytes or transactions a second, as the point counts; none where it does not say.
    pub(crate) rate: Option<f64>,
    /// Of round trips, microseconds.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

impl Own {
    pub(crate) fn rate(rate: f64) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }
}

/// What part a contender has in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// An engine of ours that the targets are of.
    Ours,
    /// Ours with several datagrams in a call, which those in the default setting do not have.
    Joined,
    /// Our model of a thread for each connection, which stands in where no peer runs a point.
    Reference,
    Peer,
    /// A peer with another server behind it: shown, not compared with.
    OtherServer,
}

/// One program in one setting.
pub(crate) trait Contender: Sync {
    fn name(&self) -> &str;

    fn part(&self) -> Part {
        Part::Peer
    }

    /// Programs that have to be on PATH.
    fn programs(&self) -> &'static [&'static str];

    /// Its line that tells the version, and the arguments that ask for it.
    fn version(&self) -> Line;

    /// How it runs a point.
    ///
    /// # Errors
    /// Why it cannot, in a few words.
    fn plan(&self, ask: &Ask) -> Result<Plan, Refusal>;

    /// What it said of itself.
    ///
    /// # Errors
    /// What is missing of what it should have written.
    fn own(&self, point: &Point, written: &str) -> Result<Own, String>;
}

/// Why a point has no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The program does nothing of the kind.
    NoSuchTest,
    /// It does, but not so.
    Limit(&'static str),
    /// Something could not be got ready.
    Failed(String),
}

/// All of them, ours first: each engine that there is.
pub(crate) fn all() -> Vec<Box<dyn Contender>> {
    let engines = EngineKind::ALL.into_iter().map(Wirecost::new);
    let joined = [Joins::Gso, Joins::Batch].map(Wirecost::joined);
    let ours = engines.chain(joined).map(|ours| Box::new(ours) as Box<dyn Contender>);
    let peers: [Box<dyn Contender>; 9] = [
        Box::new(contenders::iperf3::Iperf3),
        Box::new(contenders::iperf::Iperf),
        Box::new(contenders::nuttcp::Nuttcp),
        Box::new(contenders::sockperf::Sockperf),
        Box::new(contenders::qperf::Qperf),
        Box::new(contenders::netperf::Netperf),
        Box::new(contenders::neper::Neper),
        Box::new(contenders::http::Wrk),
        Box::new(contenders::http::Ab),
    ];
    ours.chain(peers).collect()
}

/// Whether all its programs are on PATH.
pub(crate) fn is_installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    programs.iter().all(|program| directories.iter().any(|d| d.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::peers::point::{self, Placement};

    #[test]
    fn a_line_can_be_typed_again() {
        let mut line = Line { cpu: Some(3), ..Line::of("wirecost run @stream --var size=1k") };
        assert_eq!(line.to_string(), "taskset -c 3 wirecost run @stream --var size=1k");
        line.args.push("options=gso=4 gro".to_owned());
        let words = shlex::split(&line.to_string()).unwrap();
        assert_eq!(words.last(), Some(&"options=gso=4 gro".to_owned()));
    }

    #[test]
    fn names_are_unique() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|contender| contender.name()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn every_point_has_one_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let wirecost = PathBuf::from("wirecost");
        for point in point::ALL {
            let ask = Ask {
                point: *point,
                port: 10_000,
                seconds: 2,
                open_ends: 0,
                scratch: directory.path(),
                wirecost: &wirecost,
            };
            let all = all();
            let plans = all.iter().filter(|contender| contender.plan(&ask).is_ok());
            let parts: Vec<Part> = plans.map(|contender| contender.part()).collect();
            assert!(parts.contains(&Part::Ours), "{}", point.name());
            assert!(parts.contains(&Part::Reference), "{}", point.name());
        }
    }

    #[test]
    fn where_an_end_can_be_placed_all_have_two() {
        let directory = tempfile::tempdir().unwrap();
        let wirecost = PathBuf::from("wirecost");
        let placed = point::ALL.iter().filter(|point| point.placement != Placement::Shared);
        for point in placed {
            let ask = Ask {
                point: *point,
                port: 10_000,
                seconds: 2,
                open_ends: 0,
                scratch: directory.path(),
                wirecost: &wirecost,
            };
            for contender in all() {
                let Ok(plan) = contender.plan(&ask) else { continue };
                let plan = plan.on(Cpus { client: Some(3), server: Some(5) });
                assert_eq!(plan.client.cpu, Some(3));
                let server = plan.server.map(|(server, _)| server.to_string());
                let server = server.unwrap_or_else(|| panic!("{} has one", contender.name()));
                assert!(server.starts_with("taskset -c 5 "), "{server}");
            }
        }
    }

    #[test]
    fn a_program_is_found_on_the_path() {
        assert!(is_installed(&["sh", "ls"]));
        assert!(!is_installed(&["sh", "no-such-program"]));
    }
}
