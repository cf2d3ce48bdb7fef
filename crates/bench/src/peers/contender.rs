//! The contenders and their command lines.

use std::fmt;
use std::path::{Path, PathBuf};

use super::contenders;
use super::contenders::wirecost::{Joins, Wirecost};
use super::point::{Cpus, Point};

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    /// The CPU that it may run on; none for any.
    pub(crate) cpu: Option<u32>,
}

impl Line {
    /// Splits words at spaces.
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

/// How a server shows that it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Tcp(u16),
    Udp(u16),
}

/// A server, and the client that generates the traffic. A program that is both has no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) server: Option<(Line, Port)>,
    pub(crate) client: Line,
}

impl Plan {
    /// Places each end on its CPU.
    pub(crate) fn on(mut self, cpus: Cpus) -> Self {
        if let Some((server, _)) = &mut self.server {
            server.cpu = cpus.server;
        }
        self.client.cpu = cpus.client;
        self
    }
}

/// The parameters of a contender's run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunRequest<'a> {
    pub(crate) point: Point,
    /// This port and the following 199 are free.
    pub(crate) port: u16,
    /// Duration of the traffic in whole seconds, which most programs require.
    pub(crate) seconds: u32,
    /// Open ends of connections while no contender runs.
    pub(crate) open_ends: u64,
    /// A directory for files of this run.
    pub(crate) scratch: &'a Path,
    /// The program `wirecost`.
    pub(crate) wirecost: &'a Path,
}

impl RunRequest<'_> {
    /// Duration for a client whose clock starts before it connects.
    pub(crate) fn seconds_from_start(&self) -> u32 {
        self.seconds + self.point.seconds_to_connect()
    }
}

/// The figures that a contender reports.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ToolFigures {
    /// Bytes or transactions per second, as the point counts; none if it does not report them.
    pub(crate) rate: Option<f64>,
    /// Round trips, microseconds.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

impl ToolFigures {
    pub(crate) fn rate(rate: f64) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }
}

/// The role of a contender in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A wirecost engine to which the targets apply.
    Ours,
    /// wirecost with several datagrams per call, unlike the default settings.
    Joined,
    /// wirecost's `threads` engine, the reference where no peer runs a point.
    Reference,
    Peer,
    /// A peer with a different server: shown but not compared.
    OtherServer,
}

/// One program with one setting.
pub(crate) trait Contender: Sync {
    fn name(&self) -> &str;

    fn part(&self) -> Part {
        Part::Peer
    }

    /// Programs that must be found, see [`find`].
    fn programs(&self) -> &'static [&'static str];

    /// The command line that prints its version.
    fn version(&self) -> Line;

    /// Connections that it opens for its own use, beside those of the point.
    fn control_connections(&self, _: &Point) -> u32 {
        0
    }

    /// How it runs a point.
    ///
    /// # Errors
    /// Why it cannot.
    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError>;

    /// Parses the figures that it reported.
    ///
    /// # Errors
    /// A figure is missing in its output.
    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String>;
}

/// Why a point has no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// The program does not support this kind of traffic.
    NoSuchTest,
    /// It supports the kind, but not these parameters.
    Limit(&'static str),
    /// Preparation failed.
    Failed(String),
}

/// The engines that are compared with other programs.
const ENGINES: [&str; 3] = ["epoll", "io_uring", "threads"];

/// All contenders; wirecost's engines first.
pub(crate) fn all() -> Vec<Box<dyn Contender>> {
    let engines = ENGINES.iter().filter_map(|name| wirecost_load::engines::find(name));
    let engines = engines.map(Wirecost::new);
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

/// Each may name a program, or its directory: of programs that are built from source and not installed.
const VARIABLES: [&str; 2] = ["NETPERF", "NEPER"];

/// The file of a program: beside what `NETPERF` and `NEPER` name, or on PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let named = VARIABLES.iter().filter_map(std::env::var_os).filter(|named| !named.is_empty());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = named.map(PathBuf::from).chain(std::env::split_paths(&path));
    find_in(directories, program)
}

fn find_in(places: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    let mut files = places.map(|place| match place.is_file() {
        true => place.with_file_name(program),
        false => place.join(program),
    });
    files.find(|file| file.is_file())
}

/// Whether all these programs are found.
pub(crate) fn is_installed(programs: &[&str]) -> bool {
    programs.iter().all(|program| find(program).is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::peers::point::{self, Placement};

    #[test]
    fn a_command_line_is_quoted_for_a_shell() {
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
    fn wirecost_runs_every_point() {
        let directory = tempfile::tempdir().unwrap();
        let wirecost = PathBuf::from("wirecost");
        for point in point::ALL {
            let ask = RunRequest {
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
    fn placed_points_place_both_ends() {
        let directory = tempfile::tempdir().unwrap();
        let wirecost = PathBuf::from("wirecost");
        let placed = point::ALL.iter().filter(|point| point.placement != Placement::Shared);
        for point in placed {
            let ask = RunRequest {
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
    fn a_program_is_found_beside_the_one_that_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let server = directory.path().join("netserver");
        std::fs::write(&server, "").unwrap();
        let found = |named: &str| {
            let places = [PathBuf::from("/no/such/directory"), directory.path().join(named)];
            find_in(places.into_iter(), "netserver")
        };
        assert_eq!(found(""), Some(server.clone()));
        assert_eq!(found("netperf"), None, "a program that is not there");
        std::fs::write(directory.path().join("netperf"), "").unwrap();
        assert_eq!(found("netperf"), Some(server));
    }

    #[test]
    fn a_program_is_found_on_the_path() {
        assert!(is_installed(&["sh", "ls"]));
        assert!(!is_installed(&["sh", "no-such-program"]));
    }
}
