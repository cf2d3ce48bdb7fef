// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What each CPU did, event by event: switches, wake-ups, migrations, softirqs and interrupts, into a buffer of fixed
 * size, for at most the time that user space sets. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { ROOM = 131072, TASKS = 4096 };

enum kind {
	SWITCH = 0,        /* task: who leaves; other: who comes */
	SWITCH_READY = 1,  /* the same, and who leaves is ready to run */
	WAKE = 2,          /* task: who is woken; other: the task that runs meanwhile */
	MIGRATE = 3,       /* task: who is moved; other: to which CPU */
	SOFTIRQ_ENTRY = 4, /* task: the vector */
	SOFTIRQ_EXIT = 5,
	IRQ_ENTRY = 6,     /* task: the number, or the vector of the CPU; other: which of both */
	IRQ_EXIT = 7,
};

struct event {
	u64 at;
	u32 cpu;
	u32 kind;
	u32 task;
	u32 other;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROOM);
	__type(key, u32);
	__type(value, struct event);
} events SEC(".maps");

/* Times of the clock that bpf_ktime_get_ns reads, and how many events there were, also without room. */
struct control {
	u64 begin; /* 0 while it is still to come */
	u64 end;
	u64 events;
	u64 full;    /* when the first event found no room */
	u64 unnamed; /* times that a task found no room in `tasks` */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} controls SEC(".maps");

/* Whether the CPU is one of those that are traced. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} chosen SEC(".maps");

struct task {
	u32 process;
	u32 kernel; /* whether it is a thread of the kernel */
	char comm[16];
	char process_comm[16];
};

/* Allocated before: memory may not be had where tasks are switched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS);
	__type(key, u32);
	__type(value, struct task);
} tasks SEC(".maps");

enum { PF_KTHREAD = 0x200000 };

/* Its name before 5.14 was `state`. */
struct task_struct___states {
	unsigned int __state;
	long state;
} KERNEL;

static __always_inline struct control *now_traced(u64 *now)
{
	u32 zero = 0;
	u64 *is_chosen = bpf_map_lookup_elem(&chosen, &zero);
	struct control *c;

	if (!is_chosen || !*is_chosen)
		return NULL;
	c = bpf_map_lookup_elem(&controls, &zero);
	if (!c || !c->begin)
		return NULL;
	*now = bpf_ktime_get_ns();
	return *now >= c->begin && *now < c->end ? c : NULL;
}

static __always_inline void keep(struct control *c, u64 now, u32 kind, u32 task, u32 other)
{
	/* Each event has its own place, also that of an interrupt which comes here and now. */
	u32 place = __sync_fetch_and_add(&c->events, 1);
	struct event *e;

	if (place >= ROOM) {
		if (!c->full)
			c->full = now;
		return;
	}
	e = bpf_map_lookup_elem(&events, &place);
	if (!e)
		return;
	e->at = now;
	e->cpu = bpf_get_smp_processor_id();
	e->kind = kind;
	e->task = task;
	e->other = other;
}

static __always_inline void keep_name(struct control *c, struct task_struct *task)
{
	struct task t = {};
	u32 pid = task->pid;

	if (!pid || bpf_map_lookup_elem(&tasks, &pid))
		return;
	t.process = task->tgid;
	t.kernel = !!(task->flags & PF_KTHREAD);
	/* Byte by byte, as lockdown can forbid bpf_probe_read_kernel (kernel_lockdown(7)). */
#pragma unroll
	for (int i = 0; i < (int)sizeof(t.comm); i++) {
		t.comm[i] = task->comm[i];
		t.process_comm[i] = task->group_leader->comm[i];
	}
	if (bpf_map_update_elem(&tasks, &pid, &t, BPF_NOEXIST))
		__sync_fetch_and_add(&c->unnamed, 1);
}

/* A waker that sees the task on its way out of the CPU does not set its state to 0 before it has left:
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c#L4101 */
static __always_inline bool ready(struct task_struct *task)
{
	struct task_struct___states *of = (void *)task;

	if (bpf_core_field_exists(of->__state))
		return !of->__state;
	return !of->state;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *previous, struct task_struct *next)
{
	struct control *c;
	u64 now;

	c = now_traced(&now);
	if (!c)
		return 0;
	keep_name(c, previous);
	keep_name(c, next);
	keep(c, now, preempt || ready(previous) ? SWITCH_READY : SWITCH, previous->pid, next->pid);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct control *c;
	u64 now;

	c = now_traced(&now);
	if (!c)
		return 0;
	keep_name(c, task);
	keep(c, now, WAKE, task->pid, (u32)bpf_get_current_pid_tgid());
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *task, int to)
{
	struct control *c;
	u64 now;

	c = now_traced(&now);
	if (!c)
		return 0;
	keep_name(c, task);
	keep(c, now, MIGRATE, task->pid, to);
	return 0;
}

static __always_inline int plain(u32 kind, u32 number, u32 other)
{
	struct control *c;
	u64 now;

	c = now_traced(&now);
	if (c)
		keep(c, now, kind, number, other);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector) { return plain(SOFTIRQ_ENTRY, vector, 0); }
SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector) { return plain(SOFTIRQ_EXIT, vector, 0); }
SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq) { return plain(IRQ_ENTRY, irq, 0); }
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq) { return plain(IRQ_EXIT, irq, 0); }

/* Vectors of x86 that no device driver handles, in the order of `VECTORS` in mod.rs. */
#define VECTOR(name, number)                                                                        \
	SEC("tp_btf/" #name "_entry")                                                                \
	int BPF_PROG(name##_entry, int vector) { return plain(IRQ_ENTRY, number, 1); }               \
	SEC("tp_btf/" #name "_exit")                                                                 \
	int BPF_PROG(name##_exit, int vector) { return plain(IRQ_EXIT, number, 1); }
VECTOR(local_timer, 0)
VECTOR(reschedule, 1)
VECTOR(call_function, 2)
VECTOR(call_function_single, 3)
VECTOR(irq_work, 4)
VECTOR(thermal_apic, 5)
