// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Packets that the kernel frees as dropped, by network namespace, reason and call site. */
#include "network.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sock_common {
	unsigned short skc_family;
	possible_net_t skc_net;
} KERNEL;

struct sock {
	struct sock_common __sk_common;
} KERNEL;

/* Only to learn whether the tracepoint names the socket that was to receive, as it does since Linux 6.11. */
struct trace_event_raw_kfree_skb {
	void *rx_sk;
} KERNEL;

struct site {
	u64 location;
	u32 netns; /* 0 where the packet does not lead to one */
	u32 reason;
};

struct tally {
	u64 skbs;
	u64 packets;
	u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct site);
	__type(value, struct tally);
} sites SEC(".maps");

/* Namespaces that somebody wants to know of: what others drop takes no place in the table. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");

/* Whether the window is open. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} counting SEC(".maps");

struct overview {
	u64 no_room;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct overview);
} overviews SEC(".maps");

static __always_inline int counts(void)
{
	u32 zero = 0, *on = bpf_map_lookup_elem(&counting, &zero);

	return on && *on;
}

/* The place of a packet's device has other uses while the packet is in a queue: UDP has flags there
 * (udp_set_dev_scratch), and TCP and reassembly a node of a tree, which is the address of another packet
 * (struct sk_buff, https://elixir.bootlin.com/linux/v6.18/source/include/linux/skbuff.h)
 * Addresses of the kernel have their highest bit set, UDP's flags do not. A device is one whose namespace has
 * a loopback device, which is in this namespace. */
static __always_inline u32 netns_of_device(struct sk_buff *skb)
{
	struct net_device *dev, *loopback;
	struct net *net;

	if ((s64)skb->dev_scratch >= 0)
		return 0;
	dev = skb->dev;
	net = dev->nd_net.net;
	loopback = net->loopback_dev;
	if (loopback->nd_net.net != net)
		return 0;
	return net->ns.inum;
}

/* AF_*, https://elixir.bootlin.com/linux/v6.12/source/include/linux/socket.h */
enum { FAMILY_UNIX = 1, FAMILY_NETLINK = 16 };
/* SKB_GSO_UDP_L4, and a transport_header that is not set (skb_transport_header_was_set):
 * https://elixir.bootlin.com/linux/v6.12/source/include/linux/skbuff.h */
enum { GSO_UDP_L4 = 1 << 17, NO_HEADER = 0xffff, UDP_HEADER = 8 };

/* Packets on a wire. */
static __attribute__((noinline)) u32 packets_of(struct sk_buff *skb)
{
	unsigned char *shared = skb->head + skb->end, *transport;
	u32 count = READ_AT(struct skb_shared_info, shared, gso_segs);
	u32 size, at = skb->transport_header, length = skb->len, header = UDP_HEADER;

	if (count)
		return count;
	size = READ_AT(struct skb_shared_info, shared, gso_size);
	if (!size)
		return 1;
	/* Who makes packets elsewhere, as the host of a virtual machine, leaves it to us to count. */
	if (at != NO_HEADER) {
		transport = skb->head + at;
		if (!(READ_AT(struct skb_shared_info, shared, gso_type) & GSO_UDP_L4))
			header = (OCTET_AT(struct tcphdr, transport, TCP_OFFSET) >> 4) * 4;
		length = (u32)(skb->data - transport) + length - header;
	}
	return (length + size - 1) / size;
}

static __always_inline void add(struct sk_buff *skb, struct site *site)
{
	struct tally *t = bpf_map_lookup_elem(&sites, site), first = {};
	struct overview *o;
	u32 zero = 0;

	if (!t) {
		bpf_map_update_elem(&sites, site, &first, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&sites, site);
	}
	if (t) {
		t->skbs++;
		t->packets += packets_of(skb);
		t->bytes += skb->len;
		return;
	}
	o = bpf_map_lookup_elem(&overviews, &zero);
	if (o)
		o->no_room++;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(kfree_skb, struct sk_buff *skb, void *location, u32 reason)
{
	int told = bpf_core_field_exists(((struct trace_event_raw_kfree_skb *)0)->rx_sk);
	struct site site = { .location = (u64)location, .reason = reason };
	struct sock *sk = 0;
	__be16 protocol;

	if (!counts())
		return 0;
	if (told)
		sk = (struct sock *)ctx[3];
	if (sk)
		site.netns = sk->__sk_common.skc_net.net->ns.inum;
	/* Where a packet passes from one namespace to another its socket is still the sender's. */
	if (!site.netns)
		site.netns = netns_of_device(skb);
	sk = site.netns ? 0 : skb->sk;
	if (sk) {
		/* Their messages are no packets. */
		if (sk->__sk_common.skc_family == FAMILY_UNIX ||
		    sk->__sk_common.skc_family == FAMILY_NETLINK)
			return 0;
		site.netns = sk->__sk_common.skc_net.net->ns.inum;
	}
	if (site.netns) {
		if (!bpf_map_lookup_elem(&watched, &site.netns))
			return 0;
	} else {
		/* Messages of the kernel to itself and to processes are skbs as well. */
		protocol = skb->protocol;
		if (protocol != ETHERTYPE_IPV4 && protocol != ETHERTYPE_IPV6)
			return 0;
	}
	add(skb, &site);
	return 0;
}
