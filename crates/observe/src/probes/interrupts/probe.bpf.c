// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Polls of NAPI: how many packets each fetched. One hook; interrupts and softirqs are the tracker's. */
#include "network.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Polls of one NAPI instance on one CPU. */
struct poll {
	u64 polls;
	u64 packets;
	u64 empty;
	u64 exhausted;
	u64 histogram[16]; /* at 0 polls of no packet, at n of 2^(n-1) to 2^n - 1 */
	u32 id;
	u32 netns;
	char device[16];
};

/* The backlog of each CPU, which belongs to no device: most polls on loopback and veth. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct poll);
} backlog SEC(".maps");

/* By address of the instance: its number is 0 on some kernels without busy polling. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct poll);
} instances SEC(".maps");

static __always_inline struct poll *of_backlog(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&backlog, &zero);
}

static __always_inline struct poll *of_device(struct napi_struct *napi, struct net_device *device)
{
	u64 key = (u64)napi;
	struct poll *p = bpf_map_lookup_elem(&instances, &key);
	struct poll first = {};

	if (p)
		return p;
	first.id = napi->napi_id;
	first.netns = device->nd_net.net->ns.inum;
	bpf_probe_read_kernel_str(first.device, sizeof(first.device), device->name);
	bpf_map_update_elem(&instances, &key, &first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&instances, &key);
}

/* https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c#L6799 */
SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct net_device *device = napi->dev;
	struct poll *p = device ? of_device(napi, device) : of_backlog();

	if (!p)
		return 0;
	p->polls++;
	if (work <= 0) {
		p->empty++;
		p->histogram[0]++;
		return 0;
	}
	p->packets += work;
	/* netpoll polls with no budget, to free what was sent. */
	if (budget > 0 && work >= budget)
		p->exhausted++;
	/* The backlog of loopback: nearly always. */
	if (work == 1) {
		p->histogram[1]++;
		return 0;
	}
	p->histogram[(log2_slot(work) + 1) & 15]++;
	return 0;
}
