//! The only way in which a test does something again: where the run itself reports what disturbed it.
#![allow(dead_code, reason = "each test program uses its part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use wirecost_linux::proc_stat::cpu_snapshot;

/// How often at most.
pub const ATTEMPTS: usize = 3;

/// Runs something and checks it. Where the check fails, `disturbances` asks the run what disturbed it: steal,
/// CPU time of other programs. Without any the failure stands at once, so a change for the worse
/// is not hidden. With one it is run again, and after the last attempt the test fails and names them.
pub fn undisturbed<R, T>(
    mut run: impl FnMut() -> R,
    disturbances: impl Fn(&R) -> Vec<String>,
    check: impl Fn(&R) -> T,
) -> T {
    let mut disturbed = Vec::new();
    loop {
        let result = run();
        match catch_unwind(AssertUnwindSafe(|| check(&result))) {
            Ok(value) => return value,
            Err(failure) => {
                let reasons = disturbances(&result);
                if reasons.is_empty() {
                    resume_unwind(failure);
                }
                disturbed.push(reasons.join(", "));
                assert!(
                    disturbed.len() < ATTEMPTS,
                    "failed in each of {ATTEMPTS} attempts, which were disturbed: {disturbed:#?}"
                );
            }
        }
    }
}

/// The same of a test that is one with its check. What disturbs it is read from the counters of the machine.
pub fn undisturbed_machine(test: impl Fn()) {
    let run = || {
        let before = Machine::now();
        let outcome = catch_unwind(AssertUnwindSafe(&test));
        (outcome.map_err(|failure| text_of(&*failure)), Machine::now().disturbances(&before))
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

fn text_of(failure: &(dyn std::any::Any + Send)) -> String {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| failure.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// Ticks of all CPUs so far, and of this process with the children that it has waited for.
struct Machine {
    all: u64,
    steal: u64,
    user: u64,
    own_user: u64,
    /// Nanoseconds of process 1.
    first_process: u64,
}

impl Machine {
    fn now() -> Self {
        let mut machine = Self { all: 0, steal: 0, user: 0, own_user: 0, first_process: 0 };
        for cpu in cpu_snapshot().expect("/proc/stat").ticks {
            let busy = cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal;
            machine.all += busy + cpu.idle + cpu.iowait;
            machine.steal += cpu.steal;
            machine.user += cpu.user;
        }
        // User time of this process and of its children: fields 14 and 16 of proc_pid_stat(5), the 12th and
        // the 14th behind the name.
        let text = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat");
        let (_, fields) = text.rsplit_once(')').expect("a name");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        for place in [11, 13] {
            machine.own_user += fields[place].parse::<u64>().expect("a number");
        }
        for thread in std::fs::read_dir("/proc/1/task").into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let ran = text.split(' ').next().and_then(|time| time.parse::<u64>().ok());
            machine.first_process += ran.unwrap_or(0);
        }
        machine
    }

    /// Other programs are told by their time in user space: time in the kernel may be the load's own.
    fn disturbances(&self, before: &Self) -> Vec<String> {
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
        // There are kernels for virtual machines that run no BPF program in process 1 or in what
        // interrupts it, and do not count that as missed: ftrace shows events there that none has seen.
        let first_process = self.first_process.saturating_sub(before.first_process);
        if first_process > 0 {
            found.push(format!("process 1 ran for {:.2} ms", first_process as f64 / 1e6));
        }
        found
    }
}

mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often a test was run that always fails, and with what it ended.
    fn failing(disturbances: &[&str]) -> (usize, String) {
        let runs = Cell::new(0);
        let reasons: Vec<String> = disturbances.iter().map(|&reason| reason.to_owned()).collect();
        let run = || runs.set(runs.get() + 1);
        fn fails(_: &()) {
            panic!("as ever");
        }
        let test = || undisturbed(run, |()| reasons.clone(), fails);
        let failure = catch_unwind(AssertUnwindSafe(test)).unwrap_err();
        (runs.get(), text_of(&*failure))
    }

    #[test]
    fn what_fails_undisturbed_fails_at_once() {
        assert_eq!(failing(&[]), (1, "as ever".to_owned()));
    }

    #[test]
    fn what_is_disturbed_is_repeated_and_named_in_the_end() {
        let (runs, failure) = failing(&["steal"]);
        assert_eq!(runs, ATTEMPTS);
        assert!(failure.contains("steal"), "{failure}");
    }

    #[test]
    fn what_holds_the_second_time_holds() {
        let runs = Cell::new(0);
        let run = || runs.replace(runs.get() + 1);
        let check = |&run: &i32| assert_eq!(run, 1);
        undisturbed(run, |_| vec!["steal".to_owned()], check);
        assert_eq!(runs.get(), 2);
    }
}
