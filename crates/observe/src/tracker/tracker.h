/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What each CPU is doing at this instant, for every program that wants to know. */
#pragma once
#include "kernel.h"

/* Where the time of a CPU goes. Each nanosecond goes into one slot. */
enum {
	IDLE = 0,      /* halted, or in the idle loop where nothing says when it halts */
	IDLE_LOOP = 1, /* on the way into or out of the halt */
	TASK = 2,      /* in user mode only, where system calls are followed */
	KSOFTIRQD = 3, /* the thread itself, outside of a softirq */
	IN_KERNEL = 4,    /* kernel threads and tasks in system calls, where these are followed */
	IRQ = 8,       /* + what it came upon */
	SOFTIRQ = 16,  /* + vector + 16 * what it came upon */
	SLOTS = 64,
};

/* What an interrupt or a softirq came upon. */
enum { ON_TASK = 0, ON_IDLE = 1, ON_KSOFTIRQD = 2 };

struct cpu {
	u64 last;  /* ktime of the newest transition */
	u64 count; /* whether time is counted now */
	u64 edge;  /* ktime at which the next part of the window begins, of which samples.h tells */
	u64 ns[SLOTS];
	u64 span_irq;     /* nanoseconds of its slot when the interrupt began */
	u64 span_softirq; /* nanoseconds of its slot when the softirq began */
	u64 switches;
	u64 unmatched; /* ends without a beginning */
	u32 irq;       /* source of the interrupt under way + 1, or 0 */
	u32 softirq;   /* vector of the softirq under way + 1, or 0 */
	u32 base;      /* IDLE, IDLE_LOOP, TASK, KSOFTIRQD or IN_KERNEL */
	u32 upon;      /* what an interrupt would come upon: follows from base */
	u32 slot;      /* where time goes now: follows from irq, softirq and base */
	u32 known;     /* whether the above is known */
	u32 ksoftirqd; /* pid of this CPU's thread, which user space fills in */
	u32 epoch;     /* changes when the programs are attached again */

	/* The system call of the task that runs; of one that does not run it is in the task's storage. */
	u64 call_entered; /* ktime */
	u64 call_ran;     /* nanoseconds of its own before this task came to this CPU */
	u64 call_from;    /* ns[IN_KERNEL] when the task came to this CPU */
	u64 call_waited;  /* nanoseconds it did not run */
	u32 call;         /* number + 1, or 0 */
	u32 stored;       /* whether the task has storage */

	u64 halted; /* whether the CPU idles in a way that any interrupt ends */

	u64 began;      /* ktime when the counting began */
	u64 interrupts; /* begun while time is counted */
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
