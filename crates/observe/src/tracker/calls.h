/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* System calls, followed from entry to exit wherever their task runs, sleeps or moves to. Only loaded
 * where the probe `syscalls` asks. A part of tracker.bpf.c, so that the context switch is hooked once. */
#pragma once
#include "tracker.h"

enum { CALLS = 512 };

/* One system call on one CPU, or of one process there. Time is its own: what interrupted it, and what
 * it waited for, is apart. */
struct spent {
	u64 count;
	u64 ns;
	u64 max;
	u64 waited;      /* not on a CPU */
	u64 interrupted; /* on a CPU that an interrupt or a softirq used */
	u64 failed;      /* negative results */
	u64 result;      /* sum of positive results: bytes, of calls that return bytes */
	u64 histogram[32];
};

struct process_call {
	u32 tgid;
	u32 number;
};

/* By number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CALLS);
	__type(key, u32);
	__type(value, struct spent);
} calls SEC(".maps");

/* The processes whose calls are counted apart. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} counted SEC(".maps");

/* By process and number, of the processes above. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct process_call);
	__type(value, struct spent);
} calls_of SEC(".maps");

/* What is known of a task that does not run. */
struct call {
	u64 entered;
	u64 ran;
	u64 waited;
	u64 out; /* ktime when it was switched out */
	u32 number;
	u32 base;
	u32 epoch;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} tasks SEC(".maps");

/* https://elixir.bootlin.com/linux/v6.12/source/include/linux/sched.h#L1686 */
enum { PF_IO_WORKER = 0x10, PF_USER_WORKER = 0x4000, PF_KTHREAD = 0x200000 };

/* Where a task is that nothing has been seen of. An interrupt or exception from user mode leaves -1
 * where a system call leaves its number:
 * https://elixir.bootlin.com/linux/v6.12/source/arch/x86/entry/entry_64.S#L302 and
 * https://elixir.bootlin.com/linux/v6.12/source/arch/arm64/include/asm/ptrace.h#L165 */
static __always_inline u32 base_of(struct task_struct *task)
{
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return IN_KERNEL;
#if defined(__TARGET_ARCH_x86)
	return (s64)((struct pt_regs *)bpf_task_pt_regs(task))->orig_ax >= 0 ? IN_KERNEL : TASK;
#elif defined(__TARGET_ARCH_arm64)
	return ((struct pt_regs *)bpf_task_pt_regs(task))->syscallno >= 0 ? IN_KERNEL : TASK;
#else
	return TASK;
#endif
}

/* A task goes: what is known of its call goes with it. */
static __always_inline void call_leaves(struct cpu *c, struct task_struct *task)
{
	struct call *call;

	if (!c->stored)
		return;
	call = bpf_task_storage_get(&tasks, task, 0, 0);
	if (!call)
		return;
	call->entered = c->call_entered;
	call->ran = c->call_ran + (c->ns[IN_KERNEL] - c->call_from);
	call->waited = c->call_waited;
	call->out = c->last;
	call->number = c->call;
	call->base = c->base;
	call->epoch = c->epoch;
}

/* A task comes. Returns where it is. */
static __always_inline u32 call_comes(struct cpu *c, struct task_struct *task)
{
	struct call *call = bpf_task_storage_get(&tasks, task, 0, 0);

	c->call_from = c->ns[IN_KERNEL];
	c->stored = call && call->epoch == c->epoch;
	if (!c->stored) {
		c->call = 0;
		return base_of(task);
	}
	c->call = call->number;
	c->call_entered = call->entered;
	c->call_ran = call->ran;
	c->call_waited = call->waited + (c->last - call->out);
	return call->base;
}

/* Makes the storage of the task that runs, here where memory may be had and not in the switch. */
static __always_inline void remember(struct cpu *c)
{
	struct call *call;

	if (c->stored)
		return;
	call = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call)
		return;
	call->epoch = c->epoch;
	c->stored = 1;
}

static __always_inline struct spent *calls_of_process(u32 number, u32 tgid)
{
	static const struct spent none;
	struct process_call key = { .tgid = tgid, .number = number };
	struct spent *s;

	if (!bpf_map_lookup_elem(&counted, &tgid))
		return NULL;
	s = bpf_map_lookup_elem(&calls_of, &key);
	if (s)
		return s;
	bpf_map_update_elem(&calls_of, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&calls_of, &key);
}
