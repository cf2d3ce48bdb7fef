//! uperf's flags, read as getopt(3) reads them there: single letters that can be joined (`-vaR`), values with
//! or without a blank before them (`-P30000`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use wirecost_profile::language;
use wirecost_report::uperf::{Part, Progress};

/// Letters with a value.
const WITH_VALUE: &str = "EHmXiPS";
/// Letters without.
const WITHOUT_VALUE: &str = "epTgtfknasRvVh";

/// uperf's own.
pub(super) const PORT: u16 = 20_000;
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest that hosts are read in.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Master(Master),
    Slave {
        port: u16,
    },
    Version,
    /// The usage, after what is wrong, with this exit code.
    Usage {
        problem: Option<String>,
        code: u8,
    },
    /// Not done, for this reason: exit code 1.
    Refused(String),
}

/// How to drive a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) profile: String,
    pub(super) port: u16,
    pub(super) interval: Duration,
    /// None with `-n`.
    pub(super) progress: Option<Progress>,
    pub(super) parts: BTreeSet<Part>,
    pub(super) verbose: bool,
    /// File for the percentiles of transactions.
    pub(super) histogram: Option<PathBuf>,
    /// File for single operations.
    pub(super) log: Option<PathBuf>,
    /// File for the result as JSON.
    pub(super) json: Option<String>,
    /// Flags that have no effect, each with the reason.
    pub(super) without_effect: Vec<&'static str>,
}

/// Reads the arguments after the program's name.
pub(super) fn read(arguments: &[OsString]) -> Request {
    let usage = |problem: Option<String>, code| Request::Usage { problem, code };
    if arguments.is_empty() {
        return usage(None, 1);
    }
    let mut options = Options::default();
    let mut words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        // uperf ignores words that belong to no flag.
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            continue;
        };
        if let Some(long) = letters.strip_prefix('-') {
            match long.split_once('=') {
                _ if long.is_empty() => break,
                Some(("json", file)) => options.json = Some(file.to_owned()),
                None if long == "json" => match words.next() {
                    Some(file) => options.json = Some(file),
                    None => return usage(Some(requires_value("json")), 0),
                },
                None if long == "help" => return usage(None, 0),
                _ => return usage(Some(format!("invalid option -- '-{long}'")), 0),
            }
            continue;
        }
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let value = if WITH_VALUE.contains(letter) {
                let joined = rest.as_str().to_owned();
                rest = "".chars();
                match Some(joined).filter(|joined| !joined.is_empty()).or_else(|| words.next()) {
                    Some(value) => value,
                    None => return usage(Some(requires_value(&letter.to_string())), 0),
                }
            } else if WITHOUT_VALUE.contains(letter) {
                String::new()
            } else {
                return usage(Some(format!("invalid option -- '{letter}'")), 0);
            };
            if let Some(request) = options.set(letter, value) {
                return request;
            }
        }
    }
    options.request()
}

fn requires_value(option: &str) -> String {
    format!("option requires an argument -- '{option}'")
}

/// The flags so far.
#[derive(Debug)]
struct Options {
    profile: Option<String>,
    slave: bool,
    port: u16,
    interval: Duration,
    raw: bool,
    /// `-n` resets what was asked for before, and turns all counting off.
    none: bool,
    parts: BTreeSet<Part>,
    verbose: bool,
    histogram: Option<PathBuf>,
    log: Option<PathBuf>,
    json: Option<String>,
    without_effect: Vec<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: None,
            slave: false,
            port: PORT,
            interval: INTERVAL,
            raw: false,
            none: false,
            parts: BTreeSet::from([Part::Total, Part::Devices, Part::RunStatistics]),
            verbose: false,
            histogram: None,
            log: None,
            json: None,
            without_effect: Vec::new(),
        }
    }
}

impl Options {
    /// Takes in a flag. Returns a request that ends the reading.
    fn set(&mut self, letter: char, value: String) -> Option<Request> {
        match letter {
            'm' => self.profile = Some(value),
            's' => self.slave = true,
            'P' => match language::number(&value).ok().and_then(|port| u16::try_from(port).ok()) {
                Some(port) => self.port = port,
                None => return refused(format!("-P {value}: ports are 0 to 65535")),
            },
            'i' => match language::duration(&value) {
                Ok(interval) if interval >= SHORTEST_INTERVAL => self.interval = interval,
                Ok(_) => {
                    return refused(format!("-i {value}: the shortest interval is 10m (10 ms)"));
                }
                Err(error) => return refused(format!("-i {value}: {error}")),
            },
            'S' if value.eq_ignore_ascii_case("tcp") => {}
            'S' => return refused(format!("-S {value}: the control connection is TCP")),
            'H' => self.histogram = Some(value.into()),
            'X' => self.log = Some(value.into()),
            'R' => self.raw = true,
            'v' => self.verbose = true,
            'n' => self.none = true,
            'k' => drop(self.parts.insert(Part::Devices)),
            't' => drop(self.parts.insert(Part::Transactions)),
            'g' => drop(self.parts.insert(Part::Groups)),
            'T' => drop(self.parts.insert(Part::Threads)),
            'f' => drop(self.parts.insert(Part::Flowops)),
            'a' => self.parts.extend([
                Part::Flowops,
                Part::Transactions,
                Part::Devices,
                Part::Threads,
                Part::RunStatistics,
                Part::Groups,
            ]),
            'p' | 'e' | 'E' => {
                self.parts.insert(Part::Flowops);
                self.without_effect.push(match letter {
                    'p' => {
                        "-p: CPU time is not measured by flowop; `wirecost run` measures it by host"
                    }
                    'e' => {
                        "-e: CPU counters are not read by flowop; `wirecost run` reads them by host"
                    }
                    _ => {
                        "-E: CPU counters are not read by flowop; `wirecost run` reads them by host"
                    }
                });
            }
            'V' => return Some(Request::Version),
            _ => return Some(Request::Usage { problem: None, code: 0 }),
        }
        None
    }

    fn request(self) -> Request {
        let usage = |problem: &str| Request::Usage { problem: Some(problem.to_owned()), code: 1 };
        match (self.slave, self.profile) {
            (true, Some(_)) => usage("-m and -s exclude each other"),
            (false, None) => usage("either -m PROFILE or -s is needed"),
            (true, None) => Request::Slave { port: self.port },
            (false, Some(profile)) => Request::Master(Master {
                profile,
                port: self.port,
                interval: self.interval,
                progress: match (self.none, self.raw) {
                    (true, _) => None,
                    (_, true) => Some(Progress::Raw),
                    (_, false) => Some(Progress::Overwritten),
                },
                parts: if self.none { BTreeSet::new() } else { self.parts },
                verbose: self.verbose,
                histogram: self.histogram,
                log: self.log,
                json: self.json,
                without_effect: self.without_effect,
            }),
        }
    }
}

fn refused(reason: String) -> Option<Request> {
    Some(Request::Refused(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Request {
        read(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn master(line: &str) -> Master {
        match of(line) {
            Request::Master(master) => master,
            other => panic!("{line}: {other:?}"),
        }
    }

    const ALL: [Part; 7] = [
        Part::Total,
        Part::Groups,
        Part::Threads,
        Part::Transactions,
        Part::Flowops,
        Part::Devices,
        Part::RunStatistics,
    ];

    #[test]
    fn the_lines_of_the_programs_that_call_uperf() {
        // arcaflow, crucible, clusterbuster, k8s-netperf and benchmark-wrapper.
        let arcaflow = master("-vaR -i 1 -m /tmp/profile.xml");
        assert_eq!(arcaflow.profile, "/tmp/profile.xml");
        assert_eq!((arcaflow.port, arcaflow.interval), (20_000, Duration::from_secs(1)));
        assert!(arcaflow.verbose);
        let crucible = master("-R -tTfa -m test.xml -P 30002");
        let clusterbuster = master("-f -P 30002 -m /tmp/uperf-test.xml -R -a -i 1 -Tf");
        let netperf = master("-v -a -R -i 1 -m F -P 30002");
        for master in [&crucible, &clusterbuster, &netperf] {
            assert_eq!((master.port, master.progress), (30_002, Some(Progress::Raw)));
            assert_eq!(master.parts, BTreeSet::from(ALL));
        }
        assert_eq!(of("-s -v -P 30002"), Request::Slave { port: 30_002 });
        assert_eq!(of("-s"), Request::Slave { port: 20_000 });
    }

    #[test]
    fn flags_can_be_joined_to_one_another_and_to_their_values() {
        let master = master("-i500m -tRP1k -mF");
        assert_eq!((master.interval, master.port), (Duration::from_millis(500), 1024));
        assert_eq!((master.profile.as_str(), master.progress), ("F", Some(Progress::Raw)));
        let parts = [Part::Total, Part::Transactions, Part::Devices, Part::RunStatistics];
        assert_eq!(master.parts, BTreeSet::from(parts));
    }

    #[test]
    fn without_statistics_nothing_is_printed() {
        let master = master("-a -n -R -m F");
        assert_eq!((master.progress, master.parts), (None, BTreeSet::new()));
    }

    /// uperf prints its usage and exits with 0 for what it does not know, and with 1 where something is
    /// missing.
    #[test]
    fn what_is_not_understood_has_the_exit_code_of_uperf() {
        for (line, code) in [
            ("", 1),
            ("-m F -s", 1),
            ("-R", 1),
            ("-h", 0),
            ("-Z -m F", 0),
            ("-x", 0),
            ("-m", 0),
            ("-aZ -m F", 0),
            ("--format json", 0),
            ("--json", 0),
        ] {
            let request = of(line);
            assert!(
                matches!(&request, Request::Usage { code: found, .. } if *found == code),
                "{line}: {request:?}"
            );
        }
        assert_eq!(of("-V -m"), Request::Version);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for line in ["-S udp -m F", "-P 70000 -m F", "-P x -s", "-i 0 -m F", "-i 1m -m F"] {
            assert!(matches!(of(line), Request::Refused(_)), "{line}: {:?}", of(line));
        }
        assert_eq!(master("-S TCP -m F").port, 20_000);
    }

    #[test]
    fn files_for_more_than_the_output_are_named() {
        let named = master("-aX operations -Hpercentiles -m F");
        assert_eq!(named.log.as_deref(), Some("operations".as_ref()));
        assert_eq!(named.histogram.as_deref(), Some("percentiles".as_ref()));
        assert!(matches!(of("-m F -X"), Request::Usage { code: 0, .. }));
        assert_eq!(master("-a -m F").log, None);
    }

    #[test]
    fn flags_without_effect_say_so() {
        let master = master("-p -e -E a,b -m F --json=run.json");
        assert_eq!(master.without_effect.len(), 3);
        assert!(master.parts.contains(&Part::Flowops));
        assert_eq!(master.json.as_deref(), Some("run.json"));
    }
}
