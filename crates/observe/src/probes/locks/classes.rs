//! What well-known locks protect, by the function that wants them. Without lockdep the kernel has no names for
//! locks, except for static ones in kallsyms with CONFIG_KALLSYMS_ALL, and those are not read. A function that
//! takes several locks of a kind is not here, or its class names all of them.

use wirecost_model::observe::LockKind;

use super::stack::base;

const SOCKET: &str = "socket lock (sk_lock.slock)";
const RECEIVE_QUEUE: &str = "receive queue of a UDP socket (or busylock)";
const QUEUE: &str = "queue of packets (sk_buff_head)";
const WAIT_QUEUE: &str = "wait queue";
const EPOLL: &str = "epoll";
const TRANSMIT: &str = "qdisc (root lock or busylock) or transmit queue";
const RUN_QUEUE: &str = "run queue of a CPU";
const WAKE_UP: &str = "task being woken (pi_lock)";
const ZONE: &str = "page allocator (zone)";
const SLAB: &str = "slab (list_lock)";
const FUTEX: &str = "futex hash bucket";
const CONNECTIONS: &str = "hash table of connections or ports";
const TIMERS: &str = "timers of a CPU";
const RCU: &str = "RCU (rcu_node)";
const LRU: &str = "LRU list of pages";
const CONNTRACK: &str = "conntrack hash bucket";
const INODE: &str = "inode (i_rwsem)";
const MMAP: &str = "mmap_lock";
const PIPE: &str = "pipe";
const RTNL: &str = "RTNL";
const POSITION: &str = "file position (f_pos_lock)";

/// Spinning locks.
const SPINNING: &[(&str, &[&str])] = &[
    // Inlined there: bh_lock_sock_nested, bh_lock_sock, and in sock.c itself lock_sock_nested (sk_wait_data).
    // https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c
    // https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_ipv4.c
    // https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_timer.c
    (
        SOCKET,
        &[
            "__lock_sock",
            "__lock_sock_fast",
            "__release_sock",
            "__sk_flush_backlog",
            "lock_sock_nested",
            "release_sock",
            "sk_wait_data",
            "tcp_delack_timer",
            "tcp_keepalive_timer",
            "tcp_v4_rcv",
            "tcp_v6_rcv",
            "tcp_write_timer",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/udp.c
    (
        RECEIVE_QUEUE,
        &[
            "__skb_recv_udp",
            "__udp_enqueue_schedule_skb",
            "first_packet_length",
            "udp_rmem_release",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/net/core/skbuff.c
    // https://elixir.bootlin.com/linux/v6.12/source/net/core/datagram.c
    (
        QUEUE,
        &[
            "__skb_try_recv_datagram",
            "skb_dequeue",
            "skb_dequeue_tail",
            "skb_queue_head",
            "skb_queue_tail",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/wait.c and swait.c
    (
        WAIT_QUEUE,
        &[
            "__wake_up",
            "__wake_up_common_lock",
            "__wake_up_sync_key",
            "add_wait_queue",
            "add_wait_queue_exclusive",
            "finish_wait",
            "prepare_to_swait_event",
            "prepare_to_wait",
            "prepare_to_wait_event",
            "prepare_to_wait_exclusive",
            "remove_wait_queue",
            "swake_up_all",
            "swake_up_one",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/fs/eventpoll.c
    (
        EPOLL,
        &[
            "do_epoll_wait",
            "ep_done_scan",
            "ep_poll",
            "ep_poll_callback",
            "ep_send_events",
            "ep_start_scan",
        ],
    ),
    // Both take the root lock of the qdisc and that of the device's queue, the first also the busylock, on which
    // senders queue while the qdisc runs (__dev_xmit_skb, inlined).
    // https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c
    // https://elixir.bootlin.com/linux/v6.12/source/net/sched/sch_generic.c
    (TRANSMIT, &["__dev_queue_xmit", "sch_direct_xmit"]),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c
    (
        RUN_QUEUE,
        &[
            "__schedule",
            "__task_rq_lock",
            "_raw_spin_rq_lock_irqsave",
            "double_rq_lock",
            "raw_spin_rq_lock_nested",
            "sched_tick",
            "scheduler_tick",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c
    (WAKE_UP, &["try_to_wake_up"]),
    // https://elixir.bootlin.com/linux/v6.12/source/mm/page_alloc.c
    // May be inlined: rmqueue_bulk in __rmqueue_pcplist, rmqueue_buddy in get_page_from_freelist.
    (
        ZONE,
        &[
            "__free_pages_ok",
            "__rmqueue_pcplist",
            "free_one_page",
            "free_pcppages_bulk",
            "get_page_from_freelist",
            "rmqueue",
            "rmqueue_bulk",
            "rmqueue_buddy",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/mm/slub.c
    (
        SLAB,
        &[
            "__put_partials",
            "__slab_free",
            "__unfreeze_partials",
            "deactivate_slab",
            "get_partial_node",
            "get_partial_node_bulk",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/futex
    (
        FUTEX,
        &[
            "futex_q_lock",
            "futex_q_lockptr_lock",
            "futex_requeue",
            "futex_unqueue",
            "futex_wait_setup",
            "futex_wake",
            "futex_wake_op",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/inet_hashtables.c
    (
        CONNECTIONS,
        &[
            "__inet_bhash2_update_saddr",
            "__inet_check_established",
            "__inet_hash",
            "__inet_hash_connect",
            "__inet_inherit_port",
            "inet_bhash2_update_saddr",
            "inet_csk_get_port",
            "inet_ehash_insert",
            "inet_hash",
            "inet_put_port",
            "inet_twsk_hashdance",
            "inet_twsk_hashdance_schedule",
            "inet_twsk_kill",
            "inet_unhash",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/time/timer.c
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/time/hrtimer.c
    // Inlined on x86: lock_hrtimer_base; since 6.9 also __run_timer_base.
    (
        TIMERS,
        &[
            "__hrtimer_run_queues",
            "__mod_timer",
            "__run_timer_base",
            "__run_timers",
            "hrtimer_interrupt",
            "hrtimer_run_softirq",
            "hrtimer_start_range_ns",
            "hrtimer_try_to_cancel",
            "lock_hrtimer_base",
            "lock_timer_base",
            "run_timer_base",
            "run_timer_softirq",
            "timer_expire_remote",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/rcu/tree.c
    (RCU, &["force_qs_rnp", "rcu_core", "rcu_gp_cleanup", "rcu_gp_init", "rcu_report_qs_rdp"]),
    // https://elixir.bootlin.com/linux/v6.12/source/mm/memcontrol.c
    (LRU, &["folio_lruvec_lock", "folio_lruvec_lock_irq", "folio_lruvec_lock_irqsave"]),
    // https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_conntrack_core.c
    (CONNTRACK, &["nf_conntrack_double_lock", "nf_conntrack_lock"]),
];

/// Mutexes.
const MUTEXES: &[(&str, &[&str])] = &[
    // https://elixir.bootlin.com/linux/v6.12/source/fs/pipe.c; since 6.15 two begin with anon_.
    (PIPE, &["anon_pipe_read", "anon_pipe_write", "pipe_lock", "pipe_read", "pipe_write"]),
    // https://elixir.bootlin.com/linux/v6.12/source/net/core/rtnetlink.c
    (RTNL, &["rtnl_lock", "rtnl_lock_interruptible", "rtnl_lock_killable"]),
    // https://elixir.bootlin.com/linux/v6.12/source/fs/file.c
    (POSITION, &["__fdget_pos", "fdget_pos"]),
    // https://elixir.bootlin.com/linux/v6.12/source/fs/eventpoll.c
    (EPOLL, &["do_epoll_ctl", "ep_send_events"]),
];

/// Sleeping locks of readers and writers.
const SEMAPHORES: &[(&str, &[&str])] = &[
    // https://elixir.bootlin.com/linux/v6.12/source/include/linux/fs.h: inode_lock is inlined.
    (
        INODE,
        &[
            "ext4_buffered_write_iter",
            "generic_file_write_iter",
            "shmem_fallocate",
            "shmem_file_llseek",
            "shmem_file_write_iter",
        ],
    ),
    // https://elixir.bootlin.com/linux/v6.12/source/include/linux/mmap_lock.h, inlined as well
    (
        MMAP,
        &[
            "__vm_munmap",
            "do_madvise",
            "do_mprotect_pkey",
            "do_user_addr_fault",
            "get_mmap_lock_carefully",
            "lock_mm_and_find_vma",
            "vm_mmap_pgoff",
        ],
    ),
];

/// The class of a lock of a kind that a function wants. `own_mmap` is told by the lock's address.
pub(super) fn of(kind: LockKind, own_mmap: bool, function: Option<&str>) -> Option<&'static str> {
    if own_mmap {
        return Some(MMAP);
    }
    let known = match kind {
        LockKind::SocketOwner => return Some("socket owner (sk_lock.owned)"),
        LockKind::Spinlock | LockKind::RwlockRead | LockKind::RwlockWrite => SPINNING,
        LockKind::Mutex => MUTEXES,
        LockKind::RwsemRead | LockKind::RwsemWrite => SEMAPHORES,
        _ => return None,
    };
    let function = base(function?);
    known.iter().find(|(_, functions)| functions.contains(&function)).map(|(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_of_a_kind_of_lock() {
        let of = |kind, function| of(kind, false, Some(function));
        assert_eq!(of(LockKind::Spinlock, "lock_sock_nested"), Some(SOCKET));
        assert_eq!(of(LockKind::Spinlock, "tcp_v4_rcv"), Some(SOCKET));
        assert_eq!(of(LockKind::Mutex, "anon_pipe_write.isra.0"), Some(PIPE));
        assert_eq!(of(LockKind::Spinlock, "anon_pipe_write"), None);
        assert_eq!(of(LockKind::RwsemWrite, "shmem_file_write_iter"), Some(INODE));
        assert_eq!(of(LockKind::RtMutex, "lock_sock_nested"), None);
    }

    #[test]
    fn an_address_says_more_than_a_function() {
        assert_eq!(of(LockKind::RwsemRead, true, None), Some(MMAP));
        assert_eq!(of(LockKind::RwsemRead, false, None), None);
        let owner = of(LockKind::SocketOwner, false, Some("tcp_sendmsg"));
        assert_eq!(owner, Some("socket owner (sk_lock.owned)"));
    }

    #[test]
    fn a_function_is_of_one_class() {
        for table in [SPINNING, MUTEXES, SEMAPHORES] {
            let mut all: Vec<&str> = table.iter().flat_map(|(_, of)| *of).copied().collect();
            all.sort_unstable();
            let before = all.len();
            all.dedup();
            assert_eq!(all.len(), before);
        }
    }
}
