//! The tables of locks that were waited for, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        LockKind, LockSite, LockTask, LocksSection, Observation, UnlistedWaits, WaitContext,
    };

    fn task(pid: u32, name: &str, role: Option<&str>) -> LockTask {
        LockTask { pid, name: name.to_owned(), role: role.map(str::to_owned) }
    }

    fn site(kind: LockKind, class: Option<&str>, stack: &[&str], waits: u64) -> LockSite {
        LockSite {
            kind,
            class: class.map(str::to_owned),
            lock: Some(format!("{:#x}", 0xffff_8881_0000_0000u64 + waits)),
            function: stack.first().map(|&name| name.to_owned()),
            module: None,
            offset: 0x1a3,
            context: WaitContext::Task,
            waiter: Some(task(7, "wirecost", Some("agent"))),
            owner: None,
            stack: stack.iter().map(|&name| name.to_owned()).collect(),
            waits,
            seconds: waits as f64 * 2e-6,
            spin_seconds: waits as f64 * 2e-6,
            probe_seconds: waits as f64 * 1.5e-6,
            inner_seconds: 0.0,
            longest_seconds: 41e-6,
            still_waiting: 0,
            still_waiting_seconds: 0.0,
        }
    }

    fn example() -> LocksSection {
        let sendmsg = ["tcp_sendmsg", "sock_write_iter", "vfs_write", "ksys_write"];
        let received = [
            "tcp_v4_rcv",
            "ip_protocol_deliver_rcu",
            "ip_local_deliver_finish",
            "__netif_receive_skb_one_core",
            "process_backlog",
            "__napi_poll",
            "net_rx_action",
            "handle_softirqs",
            "do_softirq",
        ];
        let socket = Some("socket lock (sk_lock.slock)");
        let owner = Some("socket owner (sk_lock.owned)");
        let sites = vec![
            site(LockKind::Spinlock, socket, &sendmsg, 28_975),
            LockSite {
                context: WaitContext::Softirq,
                waiter: None,
                ..site(LockKind::Spinlock, socket, &received, 1_250)
            },
            LockSite {
                lock: None,
                spin_seconds: 0.0,
                longest_seconds: 0.25,
                seconds: 0.5,
                still_waiting: 1,
                still_waiting_seconds: 0.1,
                ..site(LockKind::SocketOwner, owner, &sendmsg, 2)
            },
            LockSite {
                owner: Some(task(9, "tc", None)),
                waiter: Some(task(8, "ip", None)),
                module: Some("sch_htb".to_owned()),
                ..site(LockKind::Mutex, Some("RTNL"), &["htb_init"], 3)
            },
            LockSite {
                waiter: Some(task(10, "cc1", None)),
                seconds: 0.0,
                longest_seconds: 0.0,
                spin_seconds: 0.0,
                still_waiting: 2,
                still_waiting_seconds: 0.3,
                ..site(LockKind::RwsemRead, Some("mmap_lock"), &["do_user_addr_fault"], 0)
            },
            LockSite {
                function: None,
                context: WaitContext::Unknown,
                waiter: None,
                ..site(LockKind::RtMutex, None, &[], 1)
            },
        ];
        let sum = |of: fn(&LockSite) -> f64| sites.iter().map(of).sum();
        LocksSection {
            waits: sites.iter().map(|site| site.waits).sum(),
            wait_seconds: sum(|site| site.seconds),
            spin_seconds: sum(|site| site.spin_seconds),
            probe_seconds: sum(|site| site.probe_seconds),
            inner_seconds: 0.0,
            longest_seconds: 0.25,
            still_waiting: 3,
            still_waiting_seconds: 0.4,
            unlisted: UnlistedWaits { sites: 4, waits: 5, seconds: 7e-6 },
            socket_owners: true,
            abandoned: 1,
            unbegun: 2,
            uncounted: 3,
            during_probe: 0,
            lost_stacks: 0,
            assumed_stacks: 0,
            sites,
        }
    }

    #[test]
    fn every_lock_has_a_row_and_what_linux_does_not_tell_a_dash() {
        insta::assert_snapshot!(super::super::shown(example().document(), 150));
    }

    #[test]
    fn a_narrow_terminal_has_the_figures_that_matter() {
        insta::assert_snapshot!(super::super::shown(example().document(), 80));
    }

    #[test]
    fn without_waits_it_says_so() {
        let section = LocksSection { socket_owners: false, ..LocksSection::default() };
        insta::assert_snapshot!(super::super::shown(section.document(), 80));
    }

    /// Of other programs' waits a run says nothing.
    #[test]
    fn one_line_names_the_locks_that_cost_the_run_most() {
        assert_eq!(
            example().brief(10.0).unwrap(),
            "at least 515 ms, 5.2% of the busy time: socket owner (sk_lock.owned) (tcp_sendmsg) 500 ms; \
             socket lock (sk_lock.slock), spinlock (tcp_sendmsg) 14.5 ms; socket lock (sk_lock.slock), \
             spinlock (tcp_v4_rcv) 625 us"
        );
        assert_eq!(example().brief(100.0), None);
        assert_eq!(LocksSection::default().brief(1.0), None);
        assert_eq!(LocksSection::default().brief(0.0), None);
    }
}
