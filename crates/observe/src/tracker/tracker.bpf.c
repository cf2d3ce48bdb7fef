// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Where the time of each CPU goes, to the nanosecond: idle, task, interrupt, each softirq vector.
 * One clock reading a transition, so the parts add up to the whole. */
#include "calls.h"
#include "samples.h"
#include "scheduling.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* One source of interrupts or one softirq vector on one CPU. Time is its own: what interrupted it is
 * not in it. */
struct source {
	u64 count;
	u64 ns;
	u64 max;
	u64 in_idle;      /* part of ns that came while the CPU was idle */
	u64 in_ksoftirqd; /* part of ns that ksoftirqd ran */
	u64 histogram[32];
};

/* Softirqs by vector, then the vectors that have no handler of a device: enum below. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32);
	__type(key, u32);
	__type(value, struct source);
} sources SEC(".maps");

/* Interrupts of devices by number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct source);
} irqs SEC(".maps");

/* A process, all threads of which have ended, or a thread of the kernel. */
struct ended {
	u64 ns;     /* CPU time of all its threads since it began */
	u32 kernel; /* whether it is a thread of the kernel */
	u32 unused;
	char comm[16];
};

/* Those that ended while time was counted, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct ended);
} ended SEC(".maps");

struct settings {
	u32 tables; /* whether to fill `sources` and `irqs` */
	u32 halts;  /* whether cpu_idle tells when a CPU halts */
	u32 calls;  /* whether system calls are followed */
	u32 of;     /* the only process in `calls`, 0 for all */
	u32 by_process; /* whether processes are counted apart, in `calls_of` */
	u32 in_all; /* whether there is `calls` too */
	u32 scheduling; /* whether waits for CPUs are followed */
	u32 samples; /* whether parts of the window are told apart */
};
const volatile struct settings settings SEC(".rodata.settings");

enum {
	LOCAL_TIMER = 16,
	RESCHEDULE,
	CALL_FUNCTION,
	CALL_FUNCTION_SINGLE,
	IRQ_WORK,
	THERMAL,
	DEVICES = 32, /* + number of the interrupt */
};

static __always_inline u32 irq_slot(struct cpu *c)
{
	return (IRQ + c->upon) & (SLOTS - 1);
}

static __always_inline u32 softirq_slot(struct cpu *c, u32 vector)
{
	return (SOFTIRQ + (c->upon << 4) + vector) & (SLOTS - 1);
}

/* Counts the time until now where it belongs. */
static __always_inline void settle(struct cpu *c)
{
	u64 now = bpf_ktime_get_ns();
	s64 passed;

	if (settings.samples && c->count && now >= c->edge)
		leave_record(c, now);
	passed = now - c->last;
	/* An interrupt may come between the clock reading and here, and settle later time first. */
	if (passed < 0)
		return;
	c->last = now;
	if (c->count)
		c->ns[c->slot & (SLOTS - 1)] += passed;
}

/* No interrupt or softirq is under way where a task or the idle loop begins, goes on or ends. */
static __always_inline void go_to(struct cpu *c, u32 base)
{
	c->irq = 0;
	c->softirq = 0;
	c->known = 1;
	c->base = base;
	c->slot = base;
	c->upon = base <= IDLE_LOOP ? ON_IDLE : base == KSOFTIRQD ? ON_KSOFTIRQD : ON_TASK;
}

static __always_inline void note(struct cpu *c, struct source *s, u64 spent)
{
	s->count++;
	s->ns += spent;
	if (spent > s->max)
		s->max = spent;
	if (c->upon == ON_KSOFTIRQD)
		s->in_ksoftirqd += spent;
	else if (c->upon == ON_IDLE)
		s->in_idle += spent;
	s->histogram[log2_slot(spent) & 31]++;
}

static __always_inline int softirq_begins(u32 vector)
{
	struct cpu *c = this_cpu();
	u32 slot;

	if (!c)
		return 0;
	settle(c);
	vector &= 15;
	slot = softirq_slot(c, vector);
	c->softirq = vector + 1;
	c->slot = slot;
	c->span_softirq = c->ns[slot];
	return 0;
}

static __always_inline int softirq_ends(u32 vector)
{
	struct cpu *c = this_cpu();
	u32 key = vector & 15;
	struct source *s;
	u32 under_way;

	if (!c)
		return 0;
	settle(c);
	under_way = c->softirq;
	c->softirq = 0;
	c->slot = c->base;
	if (under_way != key + 1) {
		c->unmatched += !!c->count;
		return 0;
	}
	if (!settings.tables || !c->count)
		return 0;
	s = bpf_map_lookup_elem(&sources, &key);
	if (s)
		note(c, s, c->ns[softirq_slot(c, key)] - c->span_softirq);
	return 0;
}

static __always_inline int irq_begins(u32 source)
{
	struct cpu *c = this_cpu();
	u32 slot;

	if (!c)
		return 0;
	settle(c);
	slot = irq_slot(c);
	c->interrupts += !!c->count;
	c->irq = source + 1;
	c->slot = slot;
	c->span_irq = c->ns[slot];
	return 0;
}

static __always_inline struct source *of_device(u32 irq)
{
	static const struct source none;
	struct source *s = bpf_map_lookup_elem(&irqs, &irq);

	if (s)
		return s;
	bpf_map_update_elem(&irqs, &irq, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&irqs, &irq);
}

static __always_inline int irq_ends(u32 source)
{
	struct cpu *c = this_cpu();
	struct source *s;
	u32 under_way;

	if (!c)
		return 0;
	settle(c);
	under_way = c->irq;
	c->irq = 0;
	if (c->halted && c->base == IDLE)
		c->base = IDLE_LOOP;
	c->slot = c->softirq ? softirq_slot(c, (c->softirq - 1) & 15) : c->base;
	if (under_way != source + 1) {
		c->unmatched += !!c->count;
		return 0;
	}
	if (!settings.tables || !c->count)
		return 0;
	s = source >= DEVICES ? of_device(source - DEVICES) : bpf_map_lookup_elem(&sources, &source);
	if (s)
		note(c, s, c->ns[irq_slot(c)] - c->span_irq);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector) { return softirq_begins(vector); }
SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector) { return softirq_ends(vector); }
SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq) { return irq_begins(DEVICES + irq); }
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq) { return irq_ends(DEVICES + irq); }

/* Vectors of x86 that no device driver handles. */
#define VECTOR(name, source)                                                                        \
	SEC("tp_btf/" #name "_entry")                                                                \
	int BPF_PROG(name##_entry, int vector) { return irq_begins(source); }                        \
	SEC("tp_btf/" #name "_exit")                                                                 \
	int BPF_PROG(name##_exit, int vector) { return irq_ends(source); }
VECTOR(local_timer, LOCAL_TIMER)
VECTOR(reschedule, RESCHEDULE)
VECTOR(call_function, CALL_FUNCTION)
VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
VECTOR(irq_work, IRQ_WORK)
VECTOR(thermal_apic, THERMAL)

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *previous, struct task_struct *next)
{
	struct cpu *c = this_cpu();
	u32 pid = next->pid;
	u32 base = TASK;

	if (!c)
		return 0;
	settle(c);
	if (settings.calls) {
		call_leaves(c, previous);
		base = call_comes(c, next);
	}
	/* The idle task is on its way to the halt, of which cpu_idle tells. */
	if (pid == 0)
		base = settings.halts ? IDLE_LOOP : IDLE;
	else if (pid == c->ksoftirqd)
		base = KSOFTIRQD;
	go_to(c, base);
	c->switches += !!c->count;
	if (settings.scheduling)
		tasks_switch(c, previous, next);
	return 0;
}

/* Here, on the CPU of whoever wakes the task: sched_wakeup may be told by an interrupt of the task's own CPU.
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c#L4221 */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct queue *q = this_queue();
	struct cpu *c = this_cpu();
	struct thread *t;
	u32 by = BY_TASK;

	if (!c || !q || q->stopped)
		return 0;
	if (c->irq)
		by = BY_IRQ;
	else if (c->softirq)
		by = BY_SOFTIRQ;
	else if (c->upon == ON_IDLE)
		by = BY_IDLE;
	t = watched(task->pid);
	if (t) {
		t->waking = bpf_ktime_get_ns();
		t->wakeups[by] += !!c->count;
	} else {
		q->wakeups[by] += !!c->count;
	}
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *task, int to)
{
	struct queue *q = this_queue();
	struct cpu *c = this_cpu();
	struct thread *t;

	if (!c || !q || !c->count)
		return 0;
	t = watched(task->pid);
	if (t)
		t->migrations++;
	else
		q->migrations++;
	return 0;
}

/* What it has used so far, which is not all: it still has to leave its CPU, and other threads may go
 * on. What it runs now was last added to its time at a tick or when it came to the CPU. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct cpu *c = this_cpu();
	struct ended e = {};
	u32 tgid = task->tgid;

	if (settings.scheduling)
		task_ends(task);
	if (!c || !c->count || (u32)task->pid != tgid)
		return 0;
	e.ns = task->se.sum_exec_runtime + task->signal->sum_sched_runtime;
	e.kernel = !!(task->flags & PF_KTHREAD);
	/* Byte by byte, as lockdown can forbid bpf_probe_read_kernel (kernel_lockdown(7)). */
#pragma unroll
	for (int i = 0; i < (int)sizeof(e.comm); i++)
		e.comm[i] = task->comm[i];
	bpf_map_update_elem(&ended, &tgid, &e, BPF_ANY);
	return 0;
}

/* Nothing runs for it any more, and each thread's time has been added to that of all:
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/exit.c#L185 */
SEC("tp_btf/sched_process_free")
int BPF_PROG(sched_process_free, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct ended *e;

	if (settings.scheduling)
		task_is_gone(task);
	if ((u32)task->pid != tgid)
		return 0;
	e = bpf_map_lookup_elem(&ended, &tgid);
	if (e)
		e->ns = task->signal->sum_sched_runtime;
	return 0;
}

/* Into the halt (state: how deep) and out of it (-1):
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/idle.c#L100
 * State 0 is the one of drivers that poll, where an interrupt need not be the end. */
SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int number)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	/* An interrupt was the end of the halt: nothing changes here, so no time is read. */
	if (state == (u32)-1 && c->slot == IDLE_LOOP)
		return 0;
	settle(c);
	go_to(c, state == (u32)-1 ? IDLE_LOOP : IDLE);
	c->halted = state && state != (u32)-1;
	return 0;
}

/* Preemption is off here though these tracepoints may fault:
 * https://elixir.bootlin.com/linux/v6.13/source/include/trace/bpf_probe.h#L60 */
SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *registers, long number)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	settle(c);
	remember(c);
	c->call = ((u32)number & (CALLS - 1)) + 1;
	c->call_entered = c->last;
	c->call_ran = 0;
	c->call_waited = 0;
	c->call_from = c->ns[IN_KERNEL];
	go_to(c, IN_KERNEL);
	return 0;
}

/* The call that ends now, if it goes into this table. */
static __always_inline void call_ends(struct cpu *c, struct spent *s, long result)
{
	u64 ran = c->call_ran + (c->ns[IN_KERNEL] - c->call_from);
	u64 whole = c->last - c->call_entered;

	if (!s)
		return;
	s->count++;
	s->ns += ran;
	if (ran > s->max)
		s->max = ran;
	s->waited += c->call_waited;
	if (whole > ran + c->call_waited)
		s->interrupted += whole - ran - c->call_waited;
	if (result < 0)
		s->failed++;
	else
		s->result += result;
	s->histogram[log2_slot(ran) & 31]++;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *registers, long result)
{
	struct cpu *c = this_cpu();
	u32 number, tgid = 0;

	if (!c)
		return 0;
	settle(c);
	remember(c);
	number = c->call;
	c->call = 0;
	go_to(c, TASK);
	/* Without a number the call was under way before the programs were there. */
	if (!number || !c->count)
		return 0;
	number = (number - 1) & (CALLS - 1);
	if (settings.of || settings.by_process)
		tgid = bpf_get_current_pid_tgid() >> 32;
	if (settings.by_process)
		call_ends(c, calls_of_process(number, tgid), result);
	if (settings.in_all && (!settings.of || settings.of == tgid))
		call_ends(c, bpf_map_lookup_elem(&calls, &number), result);
	return 0;
}

enum { FORGET = 0, START = 1, STOP = 2 };

/* Begins and ends the counting of one CPU: run there by BPF_PROG_TEST_RUN, at the edges of the
 * window. Before the programs are attached again, what was known is forgotten. */
SEC("raw_tp")
int edge(struct bpf_raw_tracepoint_args *ctx)
{
	struct cpu *c = this_cpu();
	u64 act = ctx->args[0];

	if (!c)
		return 0;
	if (act == FORGET) {
		c->count = 0;
		c->known = 0;
		c->call = 0;
		c->stored = 0;
		c->epoch++;
		if (settings.scheduling)
			queue_forget();
		return 0;
	}
	if (!c->known) {
		/* Nothing has been seen of this CPU: what runs now began before the programs were there. */
		u32 base = TASK;

		if (settings.calls)
			base = base_of(bpf_get_current_task_btf());
		if ((u32)bpf_get_current_pid_tgid() == 0)
			base = IDLE;
		go_to(c, base);
	}
	settle(c);
	if (settings.scheduling) {
		if (act == START)
			queue_starts(c, bpf_get_current_task_btf());
		else
			queue_stops(c, bpf_get_current_task_btf());
	}
	c->count = act == START;
	if (act == START) {
		c->began = c->last;
		c->edge = edge_after(c->last);
	}
	return 0;
}
