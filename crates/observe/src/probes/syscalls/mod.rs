//! System calls: how many, how long each kind was on a CPU and how long it waited. Following them
//! makes the split of task time into user and system exact, which the probe `cpu` then tells.

use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{HostObservation, Part, SyscallRow, SyscallsSection, UsrSys};

use crate::probe::{Description, Probe, Session, Sets, Shared, Unavailable};
use crate::probes::cpu::exact_split;
use crate::tracker::{Calls, Spent, Times, TrackerNeeds};

/// Names by number, as the headers have them that this program was built with: build.rs.
const NAMES: &[(u32, &str)] = include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));

/// Calls that return how many bytes they moved.
const MOVE_BYTES: [&str; 20] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "sendfile",
    "splice",
    "tee",
    "vmsplice",
    "copy_file_range",
    "getrandom",
];

#[derive(Debug)]
pub(crate) struct Syscalls;

impl Probe for Syscalls {
    fn name(&self) -> &'static str {
        "syscalls"
    }

    fn about(&self) -> Description {
        Description {
            tells: "system calls by name: count, CPU time, blocked time, histogram, bytes, errors; \
                    the exact split of task time into user and system",
            needs: "BPF with BTF and task storage (Linux 5.15; root, or CAP_BPF and CAP_PERFMON)",
            costs: "two programs at each system call of every process, and the slow path of system \
                    call entry: expensive if messages are small",
            limitations: "faults and exceptions in user mode count as user time; system calls that began \
                    before the window or never return are missing; 32-bit programs use other \
                    numbers; work of io_uring for a task belongs to no call",
        }
    }

    /// It costs too much to share a pass.
    fn sets(&self) -> Sets {
        Sets { standard: None, full: None }
    }

    fn ask_tracker(&self, wants: &mut TrackerNeeds) {
        wants.calls = true;
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        if shared.basic(self.name()) {
            return Err(Unavailable::Other("/proc does not count system calls".to_owned()));
        }
        let tracker = shared.need_tracker()?;
        match tracker.follows_calls() {
            Ok(_) => Ok(Box::new(Watch::default())),
            Err(reason) => Err(Unavailable::Other(reason.to_owned())),
        }
    }
}

#[derive(Debug, Default)]
struct Watch {
    begin: Nanos,
    end: Nanos,
    times: Option<Times>,
    missing: Vec<String>,
}

impl Session for Watch {
    fn begin(&mut self, _shared: &Shared, at: Nanos) {
        self.begin = at;
    }

    fn end(&mut self, shared: &Shared, at: Nanos) {
        self.end = at;
        self.times = shared.tracker().and_then(|tracker| tracker.times().ok());
        self.missing.clear();
        self.missing.extend(shared.tracker_error().map(str::to_owned));
    }

    fn fill(&mut self, shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(tracker) = shared.tracker() else { return };
        match tracker.calls(part.pid) {
            Ok(calls) => {
                let window = seconds(self.end.saturating_sub(self.begin));
                into.syscalls = Some(section(&calls, window, self.usr_sys(part), part));
            }
            Err(error) => self.missing.push(error.to_string()),
        }
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

impl Watch {
    fn usr_sys(&self, part: &Part) -> Option<UsrSys> {
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        let cpus = self.times.as_ref()?.cpus.iter().filter(|(cpu, _)| wanted(**cpu));
        exact_split(cpus.map(|(_, spent)| spent))
    }
}

fn section(calls: &Calls, window: f64, usr_sys: Option<UsrSys>, part: &Part) -> SyscallsSection {
    let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
    let mut rows: Vec<SyscallRow> = calls
        .iter()
        .filter_map(|(&number, per_cpu)| {
            let mut sum = Spent::default();
            (0..)
                .zip(per_cpu)
                .filter(|(cpu, _)| wanted(*cpu))
                .for_each(|(_, spent)| sum.add(spent));
            (sum.count > 0).then(|| row(number, &sum, window))
        })
        .collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.number.cmp(&b.number)));
    SyscallsSection {
        pid: part.pid,
        count: rows.iter().map(|row| row.count).sum(),
        per_second: rows.iter().map(|row| row.per_second).sum(),
        seconds: rows.iter().map(|row| row.seconds).sum(),
        window_seconds: window,
        usr_sys,
        calls: rows,
    }
}

fn row(number: u32, sum: &Spent, window: f64) -> SyscallRow {
    let name = name(number);
    SyscallRow {
        number,
        count: sum.count,
        per_second: sum.count as f64 / window.max(f64::MIN_POSITIVE),
        seconds: seconds(sum.ns),
        average_us: sum.ns as f64 / sum.count as f64 / 1e3,
        max_us: sum.max as f64 / 1e3,
        interrupted_seconds: seconds(sum.interrupted),
        waited_seconds: seconds(sum.waited),
        failed: sum.failed,
        bytes: MOVE_BYTES.contains(&name.as_str()).then_some(sum.result),
        histogram_ns: super::without_trailing_zeros(&sum.histogram),
        name,
    }
}

fn name(number: u32) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("syscall_{number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert!(NAMES.len() > 200);
        for moving in MOVE_BYTES {
            assert!(NAMES.iter().any(|(_, name)| *name == moving), "{moving}");
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!((name(0), name(110)), ("read".to_owned(), "getppid".to_owned()));
        assert_eq!(name(511), "syscall_511");
    }
}
