/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What our programs read of the kernel: only the fields they need. libbpf finds where these are on
 * the running kernel by its BTF (CO-RE), so the order and the gaps here mean nothing. */
#pragma once

#include "types.h"

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define KERNEL __attribute__((preserve_access_index))

struct sched_entity {
	u64 sum_exec_runtime;
} KERNEL;

struct sched_info {
	unsigned long long run_delay;
} KERNEL;

struct signal_struct {
	unsigned long long sum_sched_runtime;
} KERNEL;

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	unsigned int flags;
	struct sched_entity se;
	struct signal_struct *signal;
	struct task_struct *group_leader;
	unsigned long nvcsw; /* how often it went to sleep */
	struct sched_info sched_info;
} KERNEL;

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	int syscallno;
#endif
} KERNEL;

/* What BPF_PROG_TEST_RUN hands to a raw tracepoint program. */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

/* Slot of a histogram of powers of two: 2^slot is at most v. A function of its own, because the
 * verifier walks through inlined branches once for each way into them. */
static __attribute__((noinline, unused)) u32 log2_slot(u64 v)
{
	u32 slot = 0;

	if (v >> 32) { v >>= 32; slot += 32; }
	if (v >> 16) { v >>= 16; slot += 16; }
	if (v >> 8) { v >>= 8; slot += 8; }
	if (v >> 4) { v >>= 4; slot += 4; }
	if (v >> 2) { v >>= 2; slot += 2; }
	if (v >> 1) slot++;
	return slot;
}
