// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Where the time of each CPU goes, to the nanosecond: idle, task, interrupt, each softirq vector.
 * One clock reading a transition, so the parts add up to the whole. */
#include "tracker.h"

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

struct settings {
	u32 tables; /* whether to fill `sources` and `irqs` */
	u32 halts;  /* whether cpu_idle tells when a CPU halts */
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

static __always_inline u32 slot_of(struct cpu *c)
{
	if (c->irq)
		return IRQ;
	if (c->softirq)
		return SOFTIRQ + ((c->softirq - 1) & 15);
	return c->base;
}

/* Counts the time until now where it belongs. */
static __always_inline void settle(struct cpu *c)
{
	u64 now = bpf_ktime_get_ns();
	s64 passed = now - c->last;

	/* An interrupt may come between the clock reading and here, and settle later time first. */
	if (passed < 0)
		return;
	c->last = now;
	if (c->count)
		c->ns[slot_of(c) & (SLOTS - 1)] += passed;
}

static __always_inline void note(struct cpu *c, struct source *s, u64 spent)
{
	s->count++;
	s->ns += spent;
	if (spent > s->max)
		s->max = spent;
	if (c->base == KSOFTIRQD)
		s->in_ksoftirqd += spent;
	else if (c->base != TASK)
		s->in_idle += spent;
	s->histogram[log2_slot(spent) & 31]++;
}

static __always_inline int softirq_begins(u32 vector)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	settle(c);
	c->softirq = (vector & 15) + 1;
	c->span_softirq = c->ns[(SOFTIRQ + (vector & 15)) & (SLOTS - 1)];
	return 0;
}

static __always_inline int softirq_ends(u32 vector)
{
	struct cpu *c = this_cpu();
	u32 key = vector & 15;
	struct source *s;

	if (!c)
		return 0;
	settle(c);
	if (c->softirq != key + 1) {
		c->unmatched += !!c->count;
		c->softirq = 0;
		return 0;
	}
	c->softirq = 0;
	if (!settings.tables || !c->count)
		return 0;
	s = bpf_map_lookup_elem(&sources, &key);
	if (s)
		note(c, s, c->ns[(SOFTIRQ + key) & (SLOTS - 1)] - c->span_softirq);
	return 0;
}

static __always_inline int irq_begins(u32 source)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	settle(c);
	c->irq = source + 1;
	c->span_irq = c->ns[IRQ];
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

	if (!c)
		return 0;
	settle(c);
	if (c->irq != source + 1) {
		c->unmatched += !!c->count;
		c->irq = 0;
		return 0;
	}
	c->irq = 0;
	if (!settings.tables || !c->count)
		return 0;
	s = source >= DEVICES ? of_device(source - DEVICES) : bpf_map_lookup_elem(&sources, &source);
	if (s)
		note(c, s, c->ns[IRQ] - c->span_irq);
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

	if (!c)
		return 0;
	settle(c);
	c->known = 1;
	/* The idle task is on its way to the halt, of which cpu_idle tells. */
	if (pid == 0)
		c->base = settings.halts ? IDLE_LOOP : IDLE;
	else
		c->base = pid == c->ksoftirqd ? KSOFTIRQD : TASK;
	c->switches += !!c->count;
	return 0;
}

/* Into the halt (state: how deep) and out of it (-1):
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/idle.c#L100 */
SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int number)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	settle(c);
	c->known = 1;
	c->base = state == (u32)-1 ? IDLE_LOOP : IDLE;
	return 0;
}

enum { START = 1, STOP = 2 };

/* Begins and ends the counting of one CPU: run there by BPF_PROG_TEST_RUN, at the edges of the
 * window. */
SEC("raw_tp")
int edge(struct bpf_raw_tracepoint_args *ctx)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	if (!c->known) {
		/* Nothing has been seen of this CPU: what runs now began before the programs were there. */
		c->known = 1;
		c->base = (u32)bpf_get_current_pid_tgid() == 0 ? IDLE : TASK;
	}
	settle(c);
	c->count = ctx->args[0] == START;
	return 0;
}
