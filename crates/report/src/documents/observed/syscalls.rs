//! The tables of system calls, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{Observation, SyscallRow, SyscallsSection, UsrSys};

    #[test]
    fn calls_by_time_and_the_exact_split() {
        let call = |name: &str, count: u64, seconds: f64, bytes: Option<u64>| SyscallRow {
            name: name.to_owned(),
            count,
            per_second: count as f64 / 2.0,
            seconds,
            average_us: seconds * 1e6 / count as f64,
            max_us: 61.25,
            interrupted_seconds: seconds / 2.0,
            waited_seconds: seconds * 3.0,
            failed: 7,
            bytes,
            ..SyscallRow::default()
        };
        let section = SyscallsSection {
            pid: Some(4321),
            calls: vec![
                call("sendto", 200_003, 0.4, Some(12_800_192)),
                call("epoll_wait", 1_009, 0.002, None),
            ],
            count: 201_012,
            per_second: 100_506.0,
            seconds: 0.402,
            window_seconds: 2.0,
            usr_sys: Some(UsrSys {
                source: "spans".to_owned(),
                usr: 0.2505,
                interval: None,
                samples: 0,
            }),
        };
        insta::assert_snapshot!(super::super::shown(section.document(), 120));
        let none = super::super::shown(SyscallsSection::default().document(), 80);
        assert!(none.ends_with("  all: 0 /s, 0.0% of a CPU\n"), "{none}");
    }
}
