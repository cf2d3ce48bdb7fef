//! The tables of scheduling, as a terminal shows them.

mod tests {
    use wirecost_model::histogram::Histogram;
    use wirecost_model::observe::{
        CpuHolder, Observation, OtherTasks, PartialWaits, SchedulingSection, ThreadScheduling,
        WaitTimes, WakeupCounts,
    };

    /// Of a hundred waits two are long.
    fn waits(hundreds: u64, usual: u64, long: u64) -> WaitTimes {
        let mut histogram = Histogram::new();
        histogram.record_many(usual, hundreds * 98);
        histogram.record_many(long, hundreds * 2);
        WaitTimes::new(histogram, hundreds * (98 * usual + 2 * long), long)
    }

    fn holder(name: &str, process: Option<u32>, kernel_thread: bool, seconds: f64) -> CpuHolder {
        CpuHolder {
            name: name.to_owned(),
            process,
            kernel_thread,
            preemptions: 3,
            preempted_seconds: seconds,
            ..CpuHolder::default()
        }
    }

    fn wakeups(by_task: u64, by_softirq: u64, by_interrupt: u64) -> WakeupCounts {
        let total = by_task + by_softirq + by_interrupt;
        WakeupCounts { total, by_task, by_softirq, by_interrupt, by_idle: 0 }
    }

    fn example() -> SchedulingSection {
        let worker = |worker, waited_for| ThreadScheduling {
            host: Some("h1".to_owned()),
            worker: Some(worker),
            name: format!("wirecost-{worker}"),
            process: 321,
            thread: 330 + worker,
            cpu: Some(worker),
            wakeups: wakeups(12, 60_000, 20),
            run_queue: Some(waits(601, 1_200, 50_000)),
            wakeup_latency: waits(600, 14_000, 270_000),
            preemptions: 78,
            preempted_seconds: Some(0.08),
            sleeps: 60_000,
            waited_for,
            waited_for_no_task: PartialWaits { count: 59_000, seconds: 0.06 },
            ..ThreadScheduling::default()
        };
        let many = vec![
            holder("rustc", None, false, 0.05),
            holder("kworker/1:2", Some(77), true, 0.02),
            holder("sshd", Some(900), false, 0.01),
        ];
        SchedulingSection {
            seconds: 2.0,
            threads: vec![
                worker(0, Vec::new()),
                ThreadScheduling {
                    began_before: PartialWaits { count: 1, seconds: 0.003 },
                    open_at_end: PartialWaits { count: 1, seconds: 0.0004 },
                    migrations: 2,
                    ..worker(1, many)
                },
            ],
            others: OtherTasks {
                wakeups: wakeups(900, 300, 1_000),
                run_queue: Some(waits(22, 3_000, 4_000_000)),
                preemptions: 40,
                sleeps: 2_100,
                migrations: 110,
                unobserved: 3,
                ..OtherTasks::default()
            },
        }
    }

    #[test]
    fn every_worker_has_its_waits_and_for_whom_and_its_wakers() {
        insta::assert_snapshot!(super::super::shown(example().document(), 140));
    }

    #[test]
    fn a_narrow_terminal_keeps_what_matters() {
        insta::assert_snapshot!(super::super::shown(example().document(), 80));
    }

    #[test]
    fn without_workers_there_are_all_tasks_and_what_is_not_counted_says_so() {
        let none = SchedulingSection { threads: Vec::new(), ..example() };
        let text = super::super::shown(none.document(), 120);
        assert!(text.contains("all tasks") && !text.contains("worker"), "{text}");
        let mut uncounted = example();
        uncounted.threads[0].run_queue = None;
        uncounted.threads[0].preempted_seconds = None;
        let text = super::super::shown(uncounted.document(), 120);
        assert!(text.contains("CONFIG_SCHED_INFO"), "{text}");
    }
}
