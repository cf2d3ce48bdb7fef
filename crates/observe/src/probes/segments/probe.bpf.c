// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What is handed to each device and what comes from it: how long, how many segments, and who was at
 * work when it was handed over. */
#include "network.h"
#include "tracker.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Who hands a packet over, by what its CPU is doing. The order is that of `Context` in mod.rs. */
enum {
	BY_WRITE,      /* a task in write, send... */
	BY_READ,       /* a task in read, recv... */
	BY_RING,       /* a task in io_uring_enter, which does both */
	BY_OTHER_CALL, /* a task in another system call */
	BY_KTHREAD,
	BY_WORKQUEUE,
	BY_KSOFTIRQD,
	BY_IRQ,
	BY_SOFTIRQ, /* + index of the vector, which is below 8: */
	CONTEXTS = 16,
};
enum { VECTOR_OTHER, VECTOR_TIMER, VECTOR_NET_TX, VECTOR_NET_RX, VECTOR_TASKLET, VECTOR_HRTIMER };

/* What is handed over. */
enum { DATA, PURE_ACK, CONTROL, KINDS = 4 };

struct tally {
	u64 packets;
	u64 bytes;
};

/* One direction. Packets of one segment are most of them, so they are what is left: neither is
 * their one segment in `further`, nor are they in `segments`. */
struct sizes {
	u64 further; /* segments after the first of a packet */
	u64 gso;     /* packets of a gso_size */
	u64 at_cap;
	u64 squares; /* of the lengths: the mean by bytes is their sum over that of the lengths */
	u64 lengths[32];  /* packets by powers of two of bytes */
	u64 segments[32]; /* the same by segments, without packets of one */
};

/* One device, of one CPU. */
struct device {
	u32 netns; /* inode of the network namespace */
	u32 ifindex; /* 0 for none */
	char name[16];
	u32 gso_max; /* bytes, IPv6 */
	u32 gso_max_ipv4;
	u32 gso_max_segs;
	u32 gro_max;
	u32 gro_max_ipv4;
	u32 pad;
	struct tally by[CONTEXTS][KINDS];
	struct tally got;
	struct sizes sent;
	struct sizes received;
};

enum { DEVICES = 64, TRIES = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DEVICES);
	__type(key, u32);
	__type(value, struct device);
} devices SEC(".maps");

struct overview {
	u64 used;    /* a bit for each device there is */
	u64 no_room; /* packets of devices that found no place */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct overview);
} overviews SEC(".maps");

static __attribute__((noinline)) int introduce(struct device *d, struct net_device *dev, u32 key)
{
	struct overview *o;
	u32 zero = 0;

	if (!d || !dev)
		return 0;
	d->netns = dev->nd_net.net->ns.inum;
	bpf_core_read(d->name, sizeof(d->name), &dev->name);
	/* IPv4 has a limit of its own since it can be more than 64 KB (BIG TCP), that is Linux 6.3:
	 * https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c#L2445 */
	d->gso_max = dev->gso_max_size;
	d->gso_max_ipv4 = bpf_core_field_exists(dev->gso_ipv4_max_size) ? dev->gso_ipv4_max_size :
									  dev->gso_max_size;
	d->gso_max_segs = dev->gso_max_segs;
	d->gro_max = bpf_core_field_exists(dev->gro_max_size) ? dev->gro_max_size : 65536;
	d->gro_max_ipv4 = bpf_core_field_exists(dev->gro_ipv4_max_size) ? dev->gro_ipv4_max_size :
									  d->gro_max;
	d->ifindex = dev->ifindex;
	o = bpf_map_lookup_elem(&overviews, &zero);
	if (o)
		o->used |= 1ULL << (key & 63);
	return 0;
}

/* The counters of a device on this CPU. */
static __always_inline struct device *counters(struct net_device *dev)
{
	u32 netns = dev->nd_net.net->ns.inum, ifindex = dev->ifindex;
	u32 key = (netns * 0x9e3779b1U + ifindex * 0x85ebca6bU) >> 26;
	struct overview *o;
	u32 zero = 0;

	for (int i = 0; i < TRIES; i++) {
		struct device *d;

		key &= DEVICES - 1;
		d = bpf_map_lookup_elem(&devices, &key);
		if (!d)
			return 0;
		if (d->ifindex == ifindex && d->netns == netns)
			return d;
		if (!d->ifindex) {
			introduce(d, dev, key);
			return d;
		}
		key++;
	}
	o = bpf_map_lookup_elem(&overviews, &zero);
	if (o)
		o->no_room++;
	return 0;
}

#if defined(__TARGET_ARCH_x86)
#define NUMBER_OF_CALL(regs) ((long)(regs)->orig_ax)
enum {
	CALL_READ = 0,
	CALL_WRITE = 1,
	CALL_READV = 19,
	CALL_WRITEV = 20,
	CALL_SENDFILE = 40,
	CALL_SENDTO = 44,
	CALL_RECVFROM = 45,
	CALL_SENDMSG = 46,
	CALL_RECVMSG = 47,
	CALL_SPLICE = 275,
	CALL_RECVMMSG = 299,
	CALL_SENDMMSG = 307,
	CALL_RING = 426,
};
#elif defined(__TARGET_ARCH_arm64)
#define NUMBER_OF_CALL(regs) ((long)(regs)->syscallno)
#else
#define NUMBER_OF_CALL(regs) ((void)(regs), -1L)
#endif
#if !defined(__TARGET_ARCH_x86)
/* https://elixir.bootlin.com/linux/v6.12/source/include/uapi/asm-generic/unistd.h */
enum {
	CALL_READ = 63,
	CALL_WRITE = 64,
	CALL_READV = 65,
	CALL_WRITEV = 66,
	CALL_SENDFILE = 71,
	CALL_SPLICE = 76,
	CALL_SENDTO = 206,
	CALL_RECVFROM = 207,
	CALL_SENDMSG = 211,
	CALL_RECVMSG = 212,
	CALL_RECVMMSG = 243,
	CALL_SENDMMSG = 269,
	CALL_RING = 426,
};
#endif

/* https://elixir.bootlin.com/linux/v6.12/source/include/linux/sched.h#L1676 */
enum { PF_WQ_WORKER = 0x20, PF_KTHREAD = 0x200000 };

static __always_inline u32 context_of_task(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs;

	if (task->flags & PF_KTHREAD)
		return task->flags & PF_WQ_WORKER ? BY_WORKQUEUE : BY_KTHREAD;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	switch (NUMBER_OF_CALL(regs)) {
	case CALL_SENDTO:
	case CALL_WRITE:
	case CALL_SENDMSG:
	case CALL_WRITEV:
	case CALL_SENDMMSG:
	case CALL_SENDFILE:
	case CALL_SPLICE:
		return BY_WRITE;
	case CALL_RECVFROM:
	case CALL_READ:
	case CALL_RECVMSG:
	case CALL_READV:
	case CALL_RECVMMSG:
		return BY_READ;
	case CALL_RING:
		return BY_RING;
	default:
		return BY_OTHER_CALL;
	}
}

static __always_inline u32 context_of(struct cpu *c)
{
	if (c->softirq) {
		if (c->base == KSOFTIRQD)
			return BY_KSOFTIRQD;
		switch (c->softirq - 1) {
		case 3:
			return BY_SOFTIRQ + VECTOR_NET_RX;
		case 1:
			return BY_SOFTIRQ + VECTOR_TIMER;
		case 2:
			return BY_SOFTIRQ + VECTOR_NET_TX;
		case 0: /* high tasklets and work */
		case 6:
			return BY_SOFTIRQ + VECTOR_TASKLET;
		case 8:
			return BY_SOFTIRQ + VECTOR_HRTIMER;
		default:
			return BY_SOFTIRQ + VECTOR_OTHER;
		}
	}
	if (c->irq)
		return BY_IRQ;
	return context_of_task();
}

/* Longest packet of TCP without payload: link header with a VLAN tag 18, IPv6 40, TCP 60. */
enum { LONGEST_BARE = 118 };

/* What a short packet is. Without payload of TCP it is an acknowledgement, or begins or ends a
 * connection. */
static __always_inline u32 kind_of(struct sk_buff *skb, u32 len)
{
	unsigned char *head = skb->head;
	unsigned char *network = head + skb->network_header;
	u32 at = skb->transport_header;
	unsigned char *transport = head + at;
	__be16 protocol = skb->protocol;
	u8 next, offset, flags;

	if (protocol == ETHERTYPE_IPV4)
		next = OCTET_AT(struct iphdr, network, IPV4_PROTOCOL);
	else if (protocol == ETHERTYPE_IPV6)
		next = OCTET_AT(struct ipv6hdr, network, IPV6_NEXT_HEADER);
	else
		return DATA;
	/* A header that is not set is at 0xffff. */
	if (next != PROTOCOL_TCP || at + TCP_SHORTEST > skb->end)
		return DATA;
	offset = OCTET_AT(struct tcphdr, transport, TCP_OFFSET);
	if ((u32)(transport - skb->data) + (offset >> 4) * 4 < len)
		return DATA;
	flags = OCTET_AT(struct tcphdr, transport, TCP_FLAGS);
	return flags & (TCP_SYN | TCP_FIN | TCP_RST) ? CONTROL : PURE_ACK;
}

/* What TCP leaves of the limit for headers, MAX_TCP_HEADER + 1: it depends on how the kernel was
 * built, and is between 193 and 321 bytes:
 * https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c#L2454 */
enum { HEADERS = 321 };

/* Bytes of a packet that each of its segments has: link, IP and transport headers. On receipt the
 * data begins with IP's, and their places are not set yet. */
static __attribute__((noinline)) u32 headers_of(struct sk_buff *skb, int is_received)
{
	unsigned char *data = skb->data, *network = data;
	__be16 protocol = skb->protocol;
	u32 ip = 40;
	u8 next;

	if (!is_received)
		network = skb->head + skb->network_header;
	if (protocol == ETHERTYPE_IPV4) {
		next = OCTET_AT(struct iphdr, network, IPV4_PROTOCOL);
		ip = (OCTET_AT(struct iphdr, network, 0) & 15) * 4;
	} else {
		next = OCTET_AT(struct ipv6hdr, network, IPV6_NEXT_HEADER);
	}
	/* Of UDP it is 8. */
	return (u32)(network - data) + ip +
	       (next == PROTOCOL_TCP ?
			(OCTET_AT(struct tcphdr, network + ip, TCP_OFFSET) >> 4) * 4 :
			8);
}

/* Counts a packet of several segments. It is at the cap when one segment more would be too much. */
static __always_inline void several(struct sizes *s, struct sk_buff *skb, int is_received, u32 size,
				    u32 count, u32 max_segments, u32 max)
{
	/* Who makes packets elsewhere, as the host of a virtual machine, may leave it to us to count. */
	if (!count)
		count = (skb->len - headers_of(skb, is_received) + size - 1) / size;
	s->gso++;
	if ((count + 1) * size + HEADERS > max || count >= max_segments)
		s->at_cap++;
	if (count < 2)
		return;
	s->further += count - 1;
	s->segments[log2_slot(count) & 31]++;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(net_dev_start_xmit, struct sk_buff *skb, struct net_device *dev)
{
	struct cpu *c = this_cpu();
	u32 len, size, max, kind;
	unsigned char *shared;
	struct device *d;
	struct tally *t;

	if (!c || !c->count)
		return 0;
	d = counters(dev);
	if (!d)
		return 0;
	len = skb->len;
	kind = len <= LONGEST_BARE ? kind_of(skb, len) : DATA;
	t = &d->by[context_of(c) & (CONTEXTS - 1)][kind & (KINDS - 1)];
	t->packets++;
	t->bytes += len;
	d->sent.lengths[log2_slot(len) & 31]++;
	d->sent.squares += (u64)len * len;
	max = skb->protocol == ETHERTYPE_IPV6 ? d->gso_max : d->gso_max_ipv4;
	shared = skb->head + skb->end;
	size = READ_AT(struct skb_shared_info, shared, gso_size);
	if (size)
		several(&d->sent, skb, 0, size, READ_AT(struct skb_shared_info, shared, gso_segs),
			d->gso_max_segs, max);
	else if (len + HEADERS > max)
		d->sent.at_cap++;
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
	struct cpu *c = this_cpu();
	unsigned char *shared;
	u32 len, size, max;
	struct device *d;

	if (!c || !c->count)
		return 0;
	d = counters(skb->dev);
	if (!d)
		return 0;
	len = skb->len;
	d->got.packets++;
	d->got.bytes += len;
	d->received.lengths[log2_slot(len) & 31]++;
	d->received.squares += (u64)len * len;
	max = skb->protocol == ETHERTYPE_IPV6 ? d->gro_max : d->gro_max_ipv4;
	shared = skb->head + skb->end;
	size = READ_AT(struct skb_shared_info, shared, gso_size);
	if (size)
		several(&d->received, skb, 1, size, READ_AT(struct skb_shared_info, shared, gso_segs),
			~0U, max);
	else if (len + HEADERS > max)
		d->received.at_cap++;
	return 0;
}
