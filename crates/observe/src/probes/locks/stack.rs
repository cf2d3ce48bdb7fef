//! Stacks of the kernel, and which of their functions wanted a lock.

use wirecost_linux::kallsyms::Kallsyms;
use wirecost_model::observe::WaitContext;

/// Where a CPU was when it began to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stack {
    /// The innermost function that is not the code of locks: it may be one that takes a certain lock for others.
    pub(super) wanted_by: Option<String>,
    /// From the function that wanted the lock for itself outwards.
    pub(super) functions: Vec<String>,
    /// Its module, and where in it.
    pub(super) module: Option<String>,
    pub(super) offset: u64,
    pub(super) context: WaitContext,
}

/// Code of locks, of the scheduler that waits for them, and of the tracepoints that tell of it. Sections of code
/// have these in order (`__lock_text`, `__sched_text`), but their bounds are not functions.
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/locking>
const PRIMITIVES: &[&str] = &[
    "__bpf_trace_*",
    "__down",
    "__down_common",
    "__down_interruptible",
    "__down_killable",
    "__down_read*",
    "__down_timeout",
    "__down_write*",
    "__mutex_lock*",
    "__mutex_unlock_slowpath",
    "__percpu_down_read*",
    "__pv_queued_spin_lock_slowpath",
    "__raw_read_lock*",
    "__raw_spin_lock*",
    "__raw_write_lock*",
    "__rt_mutex_*",
    "__rwbase_read_lock",
    "__schedule",
    "__traceiter_*",
    "__ww_mutex_lock*",
    "_mutex_lock*",
    "_raw_read_lock*",
    "_raw_spin_lock*",
    "_raw_write_lock*",
    "bpf_trace_run*",
    "do_raw_read_lock",
    "do_raw_spin_lock",
    "do_raw_write_lock",
    "down",
    "down_interruptible",
    "down_killable",
    "down_read*",
    "down_timeout",
    "down_write*",
    "io_schedule*",
    "lock_acquire",
    "mutex_lock*",
    "mutex_unlock",
    "native_queued_spin_lock_slowpath",
    "percpu_down_read*",
    "percpu_down_write",
    "percpu_rwsem_wait",
    "percpu_up_write",
    "preempt_schedule*",
    "pv_queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_write_lock_slowpath",
    "resilient_queued_spin_lock_slowpath",
    "resilient_tas_spin_lock",
    "rt_mutex_*",
    "rt_read_lock",
    "rt_spin_lock*",
    "rt_write_lock",
    "rtlock_slowlock*",
    "rwbase_*",
    "rwsem_down_*",
    "rwsem_read_trylock",
    "rwsem_wake",
    "schedule",
    "schedule_hrtimeout*",
    "schedule_idle",
    "schedule_preempt_disabled",
    "schedule_timeout*",
    "spin_lock*",
    "trace_contention_*",
    "up",
    "up_read",
    "up_write",
    "ww_mutex_lock*",
];

/// Functions that take a certain lock for whoever calls them, which is the call site that a reader looks for.
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c> (sockets),
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c> (run queues),
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/time/timer.c> (timers),
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/rtnetlink.c> (RTNL),
/// <https://elixir.bootlin.com/linux/v6.12/source/mm/memcontrol.c> (LRU lists)
const ON_BEHALF: &[&str] = &[
    "_raw_spin_rq_lock_irqsave",
    "__lock_sock",
    "__lock_sock_fast",
    "__task_rq_lock",
    "folio_lruvec_lock",
    "folio_lruvec_lock_irq",
    "folio_lruvec_lock_irqsave",
    "futex_q_lock",
    "futex_q_lockptr_lock",
    "lock_hrtimer_base",
    "lock_sock_fast",
    "lock_sock_nested",
    "lock_timer_base",
    "nf_conntrack_double_lock",
    "nf_conntrack_lock",
    "pipe_lock",
    "raw_spin_rq_lock_nested",
    "rtnl_lock",
    "rtnl_lock_interruptible",
    "rtnl_lock_killable",
    "task_rq_lock",
];

/// Compilers give copies of functions further names, as `name.isra.0`.
pub(super) fn base(function: &str) -> &str {
    function.split('.').next().unwrap_or(function)
}

fn is_primitive(name: &str) -> bool {
    PRIMITIVES.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// What a function says of the context of all that it calls. The innermost that says something decides: a softirq
/// runs at the end of an interrupt, and is interrupted by others.
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/softirq.c>,
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/include/asm/idtentry.h>,
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/arm64/kernel/entry-common.c>
fn context(name: &str) -> Option<WaitContext> {
    const SOFTIRQ: &[&str] = &["__do_softirq", "handle_softirqs"];
    // At its end an interrupt gives the CPU to another task, or returns to user mode and first does what waits for
    // that (signals, task work): the task does this, although the entry is still on the stack.
    // https://elixir.bootlin.com/linux/v6.12/source/kernel/entry/common.c
    const TASK: &[&str] = &[
        "do_notify_resume",
        "exit_to_user_mode_loop",
        "exit_to_user_mode_prepare",
        "irqentry_exit",
        "irqentry_exit_to_user_mode",
        "preempt_schedule_irq",
    ];
    const INTERRUPT: &[&str] = &[
        "asm_common_interrupt",
        "asm_exc_nmi",
        "common_interrupt",
        "do_interrupt_handler",
        "el0_interrupt",
        "el1_interrupt",
        "exc_nmi",
        "fred_exc_nmi",
        "fred_extint",
        "generic_handle_arch_irq",
        "generic_handle_irq",
    ];
    if TASK.contains(&name) {
        return Some(WaitContext::Task);
    }
    if SOFTIRQ.contains(&name) {
        return Some(WaitContext::Softirq);
    }
    let entry =
        ["sysvec_", "asm_sysvec_", "fred_sysvec_"].iter().any(|start| name.starts_with(start));
    (entry || INTERRUPT.contains(&name)).then_some(WaitContext::Interrupt)
}

impl Stack {
    /// `frames` are from the innermost outwards: the first is in our own program.
    pub(super) fn resolve(frames: impl Iterator<Item = u64>, kernel: &Kallsyms) -> Self {
        // An address on the stack is the one behind the call, which may be behind the function.
        let found: Vec<_> = frames.map(|at| (at, kernel.find(at.wrapping_sub(1)))).collect();
        let name = |index: usize| {
            found.get(index).and_then(|(_, function)| function.as_ref()).map(|f| base(f.name))
        };
        let ours = |index: usize| {
            let module = found[index].1.as_ref().and_then(|function| function.module);
            module == Some("bpf") || name(index).is_some_and(is_primitive)
        };
        // The scheduler is what tasks wait in for other locks, and takes the lock of its run queue for itself.
        let schedules = |index: usize| {
            let before = index.checked_sub(1).and_then(name);
            name(index) == Some("__schedule")
                && before.is_some_and(|of| of.starts_with("_raw_spin_"))
        };
        let wants = |&index: &usize| !ours(index) || schedules(index);
        let wanted = (0..found.len()).find(wants).unwrap_or(found.len());
        let calls = |&index: &usize| {
            !ours(index) && !name(index).is_some_and(|name| ON_BEHALF.contains(&name))
        };
        let site = (wanted..found.len()).find(calls).unwrap_or(wanted);
        let of_all = (0..found.len()).filter_map(name).find_map(context);
        let named = found.iter().any(|(_, function)| function.is_some());
        let at_site = found.get(site);
        let function = at_site.and_then(|(_, function)| function.as_ref());
        Self {
            wanted_by: name(wanted).map(str::to_owned),
            functions: found
                .iter()
                .skip(site)
                .filter_map(|(_, function)| Some(function.as_ref()?.name.to_owned()))
                .collect(),
            module: function.and_then(|function| function.module).map(str::to_owned),
            offset: at_site.map_or(0, |(at, _)| at - function.map_or(0, |of| of.address)),
            context: match of_all {
                Some(context) => context,
                None if named => WaitContext::Task,
                None => WaitContext::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One function at each multiple of 0x100.
    fn resolve(names: &[&str]) -> Stack {
        let text: String = names
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{:x} T {name}\n", 0xffff_ffff_8100_0000 + index * 0x100))
            .collect();
        let kernel = Kallsyms::parse(&text);
        let at = |index: usize| 0xffff_ffff_8100_0010 + index as u64 * 0x100;
        Stack::resolve((0..names.len()).map(at), &kernel)
    }

    #[test]
    fn the_caller_of_lock_code_wanted_it() {
        let stack = resolve(&[
            "bpf_prog_6deef7357e7b4530_contention_begin\t[bpf]",
            "bpf_trace_run2",
            "__traceiter_contention_begin",
            "__pv_queued_spin_lock_slowpath",
            "_raw_spin_lock_bh",
            "lock_sock_nested",
            "tcp_sendmsg",
            "sock_write_iter",
        ]);
        assert_eq!(stack.wanted_by.as_deref(), Some("lock_sock_nested"));
        assert_eq!(stack.functions, ["tcp_sendmsg", "sock_write_iter"]);
        assert_eq!((stack.offset, stack.context), (0x10, WaitContext::Task));
    }

    #[test]
    fn the_scheduler_wants_its_run_queue_for_whoever_sleeps() {
        let stack = resolve(&["_raw_spin_lock", "__schedule", "schedule", "sk_wait_data", "recv"]);
        assert_eq!(stack.wanted_by.as_deref(), Some("__schedule"));
        assert_eq!(stack.functions, ["sk_wait_data", "recv"]);
        // Here it is where the task sleeps.
        let stack = resolve(&["__schedule", "schedule", "__lock_sock", "lock_sock_nested", "recv"]);
        assert_eq!(stack.wanted_by.as_deref(), Some("__lock_sock"));
        assert_eq!(stack.functions, ["recv"]);
    }

    #[test]
    fn the_innermost_entry_is_the_context() {
        let of = |names: &[&str]| resolve(names).context;
        let softirq = ["_raw_spin_lock", "tcp_v4_rcv", "handle_softirqs"];
        assert_eq!(of(&softirq), WaitContext::Softirq);
        let at_the_end =
            [&softirq[..], &["__irq_exit_rcu", "sysvec_apic_timer_interrupt"]].concat();
        assert_eq!(of(&at_the_end), WaitContext::Softirq);
        let inside =
            ["_raw_spin_lock", "sched_tick", "sysvec_apic_timer_interrupt", "handle_softirqs"];
        assert_eq!(of(&inside), WaitContext::Interrupt);
        assert_eq!(of(&["_raw_spin_lock", "do_exit"]), WaitContext::Task);
        let nameless = Stack::resolve([0x1000].into_iter(), &Kallsyms::default());
        assert_eq!((nameless.context, nameless.functions.len()), (WaitContext::Unknown, 0));
    }

    #[test]
    fn copies_of_lock_functions_are_lock_functions() {
        let stack = resolve(&[
            "__mutex_lock.constprop.0",
            "rwsem_down_write_slowpath.cold",
            "anon_pipe_write.isra.0",
        ]);
        assert_eq!(stack.wanted_by.as_deref(), Some("anon_pipe_write"));
        assert_eq!(stack.functions, ["anon_pipe_write.isra.0"]);
    }

    #[test]
    fn a_stack_of_lock_code_alone_has_no_call_site() {
        let stack = resolve(&["_raw_spin_lock"]);
        assert_eq!((stack.wanted_by, stack.functions.len()), (None, 0));
        let stack = resolve(&["_raw_spin_lock", "rtnl_lock"]);
        assert_eq!(stack.functions, ["rtnl_lock"]);
    }
}
