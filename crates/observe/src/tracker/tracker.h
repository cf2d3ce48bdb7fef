/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What each CPU is doing at this instant, for every program that wants to know. */
#pragma once
#include "kernel.h"

/* Where the time of a CPU goes. Each nanosecond goes into one slot. */
enum {
	IDLE = 0,      /* halted, or in the idle loop where nothing says when it halts */
	IDLE_LOOP = 1, /* on the way into or out of the halt */
	TASK = 2,
	KSOFTIRQD = 3, /* the thread itself, outside of a softirq */
	IRQ = 4,
	SOFTIRQ = 16, /* + vector */
	SLOTS = 32,
};

struct cpu {
	u64 last;  /* ktime of the newest transition */
	u64 count; /* whether time is counted now */
	u64 ns[SLOTS];
	u64 span_irq;     /* ns[IRQ] when the interrupt began */
	u64 span_softirq; /* ns[SOFTIRQ + vector] when the softirq began */
	u64 switches;
	u64 unmatched; /* ends without a beginning */
	u32 irq;       /* source of the interrupt under way + 1, or 0 */
	u32 softirq;   /* vector of the softirq under way + 1, or 0 */
	u32 base;      /* IDLE, IDLE_LOOP, TASK or KSOFTIRQD */
	u32 known;     /* whether the above is known */
	u32 ksoftirqd; /* pid of this CPU's thread, which user space fills in */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}
