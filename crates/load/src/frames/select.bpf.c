/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hands the datagrams of a run's connections to the AF_XDP sockets of its workers. Everything else goes on to the
 * kernel: other flows, fragments, packets with IP options or extension headers, and frames that came to a queue of
 * another worker than the connection's: its kernel socket has them then. */
#include "types.h"
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
#define IPV4 0x0800
#define IPV6 0x86dd
#define UDP 17
/* Bit "more fragments", and the offset. */
#define FRAGMENT 0x3fff
/* enum xdp_action, of which XDP_PASS is what bpf_redirect_map returns where a queue has no socket. */
#define XDP_PASS 2

#define swapped(value) __builtin_bswap16(value)
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#undef swapped
#define swapped(value) (value)
#endif

/* https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/bpf.h (struct xdp_md) */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
};

/* As `Flow` in packet.rs. Addresses of IPv4 are mapped; ports are as in the header. */
struct flow {
	u32 remote[4];
	u32 local[4];
	u16 remote_port;
	u16 local_port;
};

/* As `Owner` in program.rs: who receives a connection. Worker 1 of 3 has queues 1, 4, 7... */
struct owner {
	u32 device;
	u32 queues;
	/* Key of the device's queue 0 in `sockets`. */
	u32 first;
	u32 worker;
	u32 workers;
};

struct {
	__uint(type, 1 /* BPF_MAP_TYPE_HASH */);
	__uint(max_entries, 65536);
	/* Entries are allocated as flows are added. */
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC */);
	__type(key, struct flow);
	__type(value, struct owner);
} flows SEC(".maps");

/* The socket of each queue of each device. */
struct {
	__uint(type, 17 /* BPF_MAP_TYPE_XSKMAP */);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

SEC("xdp")
int select_frames(struct xdp_md *context)
{
	u8 *frame = (u8 *)(unsigned long)context->data;
	u8 *end = (u8 *)(unsigned long)context->data_end;
	u8 *header = frame + ETHERNET;
	struct flow flow = {};
	u16 kind;
	u32 queue = context->rx_queue_index;
	struct owner *owner;
	u8 *udp;

	if (header > end)
		return XDP_PASS;
	kind = swapped(*(u16 *)(frame + 12));
	if (kind == IPV4) {
		udp = header + 20;
		if (udp + 8 > end || header[0] != 0x45 || header[9] != UDP ||
		    (swapped(*(u16 *)(header + 6)) & FRAGMENT))
			return XDP_PASS;
		((u8 *)flow.remote)[10] = ((u8 *)flow.remote)[11] = 0xff;
		((u8 *)flow.local)[10] = ((u8 *)flow.local)[11] = 0xff;
		flow.remote[3] = *(u32 *)(header + 12);
		flow.local[3] = *(u32 *)(header + 16);
	} else if (kind == IPV6) {
		udp = header + 40;
		if (udp + 8 > end || header[0] >> 4 != 6 || header[6] != UDP)
			return XDP_PASS;
		__builtin_memcpy(flow.remote, header + 8, 16);
		__builtin_memcpy(flow.local, header + 24, 16);
	} else {
		return XDP_PASS;
	}
	flow.remote_port = *(u16 *)udp;
	flow.local_port = *(u16 *)(udp + 2);
	owner = bpf_map_lookup_elem(&flows, &flow);
	if (!owner || owner->device != context->ingress_ifindex || queue >= owner->queues ||
	    queue % owner->workers != owner->worker)
		return XDP_PASS;
	return bpf_redirect_map(&sockets, owner->first + queue, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
