/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What each CPU does over time, by parts of 10 ms. A part of tracker.bpf.c.
 *
 * The first transition after an edge between two parts leaves a record: what the CPU had counted when the span
 * across that edge began, and what the span is. Nothing changes within a span, so user space knows the counts at
 * every edge exactly, however many edges the span has crossed: an idle CPU leaves one record. All other
 * transitions pay one comparison. */
#pragma once
#include "tracker.h"

enum {
	PART_NS = 10000000,
	/* A CPU leaves at most one record in PART_NS, so user space has more than 2.5 s to read one. */
	RECORDS = 256,
};

/* A span across one edge or more. User space copies a record from its beginning to its end, and it is written the
 * other way round, so that `number` and `same_number` differ in a copy that was made meanwhile. */
struct crossing {
	u64 number; /* of the record on this CPU, from 1 on */
	u64 start;  /* ktime */
	u64 end;
	u64 idle;   /* nanoseconds until `start` */
	u64 irq;
	u64 softirq;
	u64 interrupts;
	u64 slot;   /* where the time of the span goes */
	u64 same_number;
};

struct crossings {
	u64 newest; /* number */
	struct crossing records[RECORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct crossings);
} crossings SEC(".maps");

/* The first edge after an instant. Edges are multiples of PART_NS, so that those of all CPUs are the same. */
static __always_inline u64 edge_after(u64 at)
{
	return (at / PART_NS + 1) * PART_NS;
}

/* The span from `c->last` until `now` goes across an edge. Before its time is counted. */
static __attribute__((noinline)) int leave_record(struct cpu *c, u64 now)
{
	u32 zero = 0;
	struct crossings *all = bpf_map_lookup_elem(&crossings, &zero);
	u64 start = *(volatile u64 *)&c->last, irq = 0, softirq = 0, number;
	struct crossing *r;

	/* `start` is later where an interrupt came just before, and has left the record. */
	if (!all || start > now)
		return 0;
	for (int slot = IRQ; slot < SOFTIRQ; slot++)
		irq += c->ns[slot];
	for (int slot = SOFTIRQ; slot < SLOTS; slot++)
		softirq += c->ns[slot];
	/* The same of one that came since. */
	if (*(volatile u64 *)&c->last != start)
		return 0;
	number = all->newest + 1;
	all->newest = number;
	r = &all->records[number & (RECORDS - 1)];
	*(volatile u64 *)&r->same_number = number;
	*(volatile u64 *)&r->slot = c->slot;
	*(volatile u64 *)&r->interrupts = c->interrupts;
	*(volatile u64 *)&r->softirq = softirq;
	*(volatile u64 *)&r->irq = irq;
	*(volatile u64 *)&r->idle = c->ns[IDLE];
	*(volatile u64 *)&r->end = now;
	*(volatile u64 *)&r->start = start;
	*(volatile u64 *)&r->number = number;
	c->edge = edge_after(now);
	return 0;
}
