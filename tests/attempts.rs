//! The only way in which a test does something again: where the run itself reports what disturbed it, or the kernel
//! counts what did not belong to it.
#![allow(dead_code, reason = "each test program uses its part")]

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use wirecost_linux::proc_stat::cpu_snapshot;

/// How often at most.
pub const ATTEMPTS: usize = 3;

/// Runs something and checks it. Where the check fails, `disturbances` asks the run what disturbed it: steal,
/// CPU time of other programs. Without any the failure stands at once, so a change for the worse
/// is not hidden. With one it is run again, and after the last attempt the test fails and names them.
#[track_caller]
pub fn undisturbed<R, T>(
    mut run: impl FnMut() -> R,
    disturbances: impl Fn(&R) -> Vec<String>,
    check: impl Fn(&R) -> T,
) -> T {
    again_where_disturbed(|_| run(), disturbances, check)
}

/// The same of what runs again from what it was before.
#[track_caller]
pub fn again_where_disturbed<R, T>(
    run: impl FnMut(Option<R>) -> R,
    disturbances: impl Fn(&R) -> Vec<String>,
    check: impl Fn(&R) -> T,
) -> T {
    let caller = Location::caller();
    attempts(run, disturbances, check, |reasons| {
        // On standard error, past the test harness's capture.
        let _ = writeln!(std::io::stderr(), "{}", retried(&test_name(caller), reasons));
    })
}

/// Says of each attempt that is followed by another what disturbed it.
fn attempts<R, T>(
    mut run: impl FnMut(Option<R>) -> R,
    disturbances: impl Fn(&R) -> Vec<String>,
    check: impl Fn(&R) -> T,
    tell: impl Fn(&str),
) -> T {
    let mut disturbed = Vec::new();
    let mut before = None;
    loop {
        let result = run(before.take());
        match catch_unwind(AssertUnwindSafe(|| check(&result))) {
            Ok(value) => return value,
            Err(failure) => {
                let reasons = disturbances(&result);
                if reasons.is_empty() {
                    resume_unwind(failure);
                }
                let failure = text_of(&*failure).to_owned();
                let reasons = reasons.join(", ");
                disturbed.push(format!("{reasons}: {failure}"));
                assert!(
                    disturbed.len() < ATTEMPTS,
                    "failed in each of {ATTEMPTS} attempts, which were disturbed: {disturbed:#?}"
                );
                tell(&reasons);
                before = Some(result);
            }
        }
    }
}

/// The same of a test that is one with its check. What disturbs it is read from the counters of the machine.
#[track_caller]
pub fn undisturbed_machine(test: impl Fn()) {
    let run = || {
        let before = Machine::now();
        let outcome = catch_unwind(AssertUnwindSafe(&test));
        (outcome.map_err(|failure| text_of(&*failure).to_owned()), before.disturbances())
    };
    undisturbed(
        run,
        |(_, disturbances)| disturbances.clone(),
        |(outcome, _)| {
            if let Err(failure) = outcome {
                panic!("{failure}");
            }
        },
    );
}

fn text_of(failure: &(dyn Any + Send)) -> &str {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| failure.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

/// One line, whatever the reasons say.
fn retried(test: &str, reasons: &str) -> String {
    let reasons: Vec<&str> = reasons.split_whitespace().collect();
    format!("RETRIED {test} {}", reasons.join(" "))
}

/// The test that runs: the one that this process was started for; else that of this thread, which the harness has named
/// after it; else the place in the source.
fn test_name(caller: &Location<'_>) -> String {
    let of_process = exact(std::env::args());
    let thread = std::thread::current();
    let of_thread = || thread.name().filter(|name| *name != "main").map(str::to_owned);
    of_process.or_else(of_thread).unwrap_or_else(|| caller.to_string())
}

/// The test of `--exact TEST`.
fn exact(arguments: impl Iterator<Item = String>) -> Option<String> {
    let mut behind = arguments.skip_while(|argument| argument != "--exact").skip(1);
    behind.next().filter(|name| !name.starts_with('-'))
}

/// Ticks of all CPUs so far, and of this test.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    all: u64,
    steal: u64,
    user: u64,
    own_user: u64,
}

impl Machine {
    pub fn now() -> Self {
        let mut machine = Self { all: 0, steal: 0, user: 0, own_user: 0 };
        // Before the time of all, so that what this process takes meanwhile is no other's.
        machine.own_user = user_of_tree(&processes(), std::process::id());
        for cpu in cpu_snapshot().expect("/proc/stat").ticks {
            let busy = cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal;
            machine.all += busy + cpu.idle + cpu.iowait;
            machine.steal += cpu.steal;
            machine.user += cpu.user;
        }
        machine
    }

    /// What has disturbed this process since.
    pub fn disturbances(&self) -> Vec<String> {
        Self::now().since(self)
    }

    /// Other programs are told by their time in user space: time in the kernel may be the load's own. Tests that run at
    /// the same time are other programs.
    fn since(&self, before: &Self) -> Vec<String> {
        const STEAL_PERCENT: f64 = 0.5;
        const FOREIGN_PERCENT: f64 = 5.0;
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let steal = self.steal.saturating_sub(before.steal) as f64 * 100.0 / all;
        let user = self.user.saturating_sub(before.user);
        let own = self.own_user.saturating_sub(before.own_user);
        let foreign = user.saturating_sub(own) as f64 * 100.0 / all;
        let mut found = Vec::new();
        if steal > STEAL_PERCENT {
            found.push(format!("the hypervisor took {steal:.1}% of the CPU time"));
        }
        if foreign > FOREIGN_PERCENT {
            found.push(format!("other programs used {foreign:.1}% of the CPU time"));
        }
        found
    }
}

/// Of a process: its parent, and ticks in user space of it and of the children that it has waited for.
type Process = (u32, u64);

fn processes() -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // One that ends meanwhile is its parent's.
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent_and_user(&stat)?))
    })
    .collect()
}

/// Of proc_pid_stat(5), fields 4, 14 and 16: the 2nd, the 12th and the 14th behind the name.
fn parent_and_user(stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some((u32::try_from(number(1)?).ok()?, number(11)? + number(13)?))
}

/// Of a process and of all that descend from it.
fn user_of_tree(processes: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let is_in_tree = |pid: u32| {
        // A process can end between two readings, and another have its number: what leads in a circle is no descent.
        let mut ancestors = std::iter::successors(Some(pid), |pid| Some(processes.get(pid)?.0));
        ancestors.by_ref().take(processes.len() + 1).any(|ancestor| ancestor == root)
    };
    let tree = processes.iter().filter(|(pid, _)| is_in_tree(**pid));
    tree.map(|(_, (_, user))| user).sum()
}

mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// How often a test was run that always fails, what it said of its attempts, and with what it ended.
    fn failing(disturbances: &[&str]) -> (usize, Vec<String>, String) {
        let (runs, told) = (Cell::new(0), RefCell::new(Vec::new()));
        let reasons: Vec<String> = disturbances.iter().map(|&reason| reason.to_owned()).collect();
        let run = |_| runs.set(runs.get() + 1);
        fn fails(_: &()) {
            panic!("as ever");
        }
        let tell = |reasons: &str| told.borrow_mut().push(reasons.to_owned());
        let test = || attempts(run, |()| reasons.clone(), fails, tell);
        let failure = catch_unwind(AssertUnwindSafe(test)).unwrap_err();
        (runs.get(), told.into_inner(), text_of(&*failure).to_owned())
    }

    #[test]
    fn what_fails_undisturbed_fails_at_once() {
        assert_eq!(failing(&[]), (1, Vec::new(), "as ever".to_owned()));
    }

    #[test]
    fn what_is_disturbed_is_repeated_and_named_in_the_end() {
        let (runs, told, failure) = failing(&["steal", "others"]);
        assert_eq!(runs, ATTEMPTS);
        assert_eq!(told, ["steal, others", "steal, others"]);
        assert!(failure.contains("steal, others: as ever"), "{failure}");
    }

    #[test]
    fn what_holds_the_second_time_holds() {
        let run = |before: Option<u32>| before.map_or(1, |before| before + 1);
        let check = |&run: &u32| assert_eq!(run, 2);
        let told = Cell::new(0);
        let tell = |_: &str| told.set(told.get() + 1);
        attempts(run, |_| vec!["steal".to_owned()], check, tell);
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn a_retry_is_told_in_one_line_by_the_name_of_the_test() {
        let name = test_name(Location::caller());
        let here = "a_retry_is_told_in_one_line_by_the_name_of_the_test";
        let at = format!("{}:", file!());
        assert!(name.ends_with(here) || name.starts_with(&at), "{name}");
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| exact(arguments(text).into_iter());
        assert_eq!(of("tests --exact measured::one --nocapture"), Some("measured::one".to_owned()));
        assert_eq!(of("tests --nocapture measured::one"), None);
        assert_eq!(of("tests measured::one --exact --nocapture"), None);
        assert_eq!(retried("a::test", "one\n  reason,  and"), "RETRIED a::test one reason, and");
    }

    const BEFORE: Machine = Machine { all: 1000, steal: 0, user: 100, own_user: 50 };

    #[test]
    fn steal_and_the_time_of_other_programs_disturb_and_own_time_does_not() {
        let own = Machine { all: 3000, steal: 10, user: 1100, own_user: 1000 };
        assert_eq!(own.since(&BEFORE), [""; 0]);
        let stolen = Machine { steal: 20, ..own };
        assert_eq!(stolen.since(&BEFORE), ["the hypervisor took 1.0% of the CPU time"]);
        let others = Machine { own_user: 850, ..own };
        assert_eq!(others.since(&BEFORE), ["other programs used 10.0% of the CPU time"]);
    }

    #[test]
    fn own_time_is_that_of_the_tree_of_this_process_and_of_no_sibling() {
        const TABLE: [(u32, Process); 7] = [
            (1, (0, 1)),
            (10, (1, 2)),
            (20, (10, 4)),
            (30, (20, 8)),
            (40, (10, 16)),
            // Two whose numbers were given again while they were read.
            (50, (60, 32)),
            (60, (50, 64)),
        ];
        let of = |root: u32| user_of_tree(&TABLE.into(), root);
        assert_eq!([of(20), of(40), of(10), of(1)], [12, 16, 30, 31]);
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 100 5 20 6 20 0 1 0 99";
        assert_eq!(parent_and_user(stat), Some((3, 120)));
        assert!(processes().contains_key(&std::process::id()));
    }
}
