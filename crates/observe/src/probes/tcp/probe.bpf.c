// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What TCP receives and sends again, by network namespace: acknowledgements and duplicates of them,
 * order, retransmissions by cause, windows of zero. */
#include "network.h"
#include "tracker.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sock_common {
	possible_net_t skc_net;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
} KERNEL;

struct sk_buff_head {
	u32 qlen;
} KERNEL;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_write_queue;
	struct {
		struct sk_buff *head;
	} sk_backlog;
	u16 sk_protocol;
	int sk_err;
} KERNEL;

struct inet_connection_sock {
	u8 icsk_ca_state : 5;
} KERNEL;

struct tcp_options_received {
	u16 snd_wscale : 4;
} KERNEL;

struct tcp_sock {
	u32 rcv_nxt;
	u32 snd_una;
	u32 snd_wnd;
	u32 packets_out;
	u32 segs_in;
	u32 data_segs_in;
	struct tcp_options_received rx_opt;
} KERNEL;

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u32 ack_seq;
	u16 tcp_gso_segs;
	u8 tcp_flags;
} KERNEL;

/* Only to learn whether the tracepoint says if it failed, as newer kernels do. */
struct trace_event_raw_tcp_retransmit_skb {
	int err;
} KERNEL;

/* States of congestion control: https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tcp.h#L180 */
enum { CA_OPEN, CA_DISORDER, CA_CWR, CA_RECOVERY, CA_LOSS, CA_STATES = 8 };
enum {
	STATE_ESTABLISHED = 1,
	STATE_SYN_SENT = 2,
	STATE_SYN_RECV = 3,
	STATE_FIN_WAIT1 = 4,
	STATE_CLOSE = 7,
	STATE_LAST_ACK = 9,
};
/* Bit of skc_flags: the other end's FIN has come.
 * https://elixir.bootlin.com/linux/v6.12/source/include/net/sock.h#L921 */
enum { SOCK_DONE = 1 };
/* Why something is sent again. */
enum { BY_FAST, BY_TIMEOUT, BY_PROBE, BY_SYN, CAUSES };

/* One network namespace, of one CPU. */
struct flows {
	u32 netns; /* 0 for none */
	u32 pad;
	u64 packets;        /* received on established connections */
	u64 data_packets;   /* of these with payload */
	u64 data_segments;  /* the same before they were joined, and those of closing connections */
	u64 pure_acks;      /* as they came, too */
	u64 fins_sent;      /* without payload, also again */
	u64 duplicate_acks; /* RFC 5681, 2 */
	u64 out_of_order;   /* packets beyond what is awaited */
	u64 old;            /* packets with nothing new */
	u64 resent[CAUSES]; /* segments */
	u64 states[CA_STATES]; /* how often each was entered */
	u64 zero_windows;
	u64 zero_window_ns; /* of those that have ended */
};

enum { NAMESPACES = 64, TRIES = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NAMESPACES);
	__type(key, u32);
	__type(value, struct flows);
} namespaces SEC(".maps");

struct overview {
	u64 used;
	u64 no_room;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct overview);
} overviews SEC(".maps");

/* Connections that may not send now, as the other end's window is 0. */
struct stalled {
	u64 since;
	u32 netns;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct stalled);
} stalls SEC(".maps");

static __always_inline struct flows *counters(u32 netns)
{
	u32 key = netns * 0x9e3779b1U >> 26, zero = 0;
	struct overview *o = 0;

	for (int i = 0; i < TRIES; i++) {
		struct flows *f;

		key &= NAMESPACES - 1;
		f = bpf_map_lookup_elem(&namespaces, &key);
		if (!f)
			return 0;
		if (f->netns == netns)
			return f;
		if (!f->netns) {
			f->netns = netns;
			o = bpf_map_lookup_elem(&overviews, &zero);
			if (o)
				o->used |= 1ULL << key;
			return f;
		}
		key++;
	}
	o = bpf_map_lookup_elem(&overviews, &zero);
	if (o)
		o->no_room++;
	return 0;
}

static __always_inline int counts(void)
{
	struct cpu *c = this_cpu();

	return c && c->count;
}

static __attribute__((noinline)) int stalls_begin(struct flows *f, u64 sk)
{
	struct stalled stalled = {};

	if (!f)
		return 0;
	stalled.since = bpf_ktime_get_ns();
	stalled.netns = f->netns;
	f->zero_windows++;
	bpf_map_update_elem(&stalls, &sk, &stalled, BPF_NOEXIST);
	return 0;
}

/* A connection that is not established any more: what it had received when it ceased to be. */
struct closing {
	u32 segments;
	u32 data_segments;
	u32 fin; /* whether the other end's had come */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct closing);
} closings SEC(".maps");

static __attribute__((noinline)) int stalls_end(struct flows *f, u64 sk)
{
	struct stalled *stalled = bpf_map_lookup_elem(&stalls, &sk);

	if (!f || !stalled)
		return 0;
	f->zero_window_ns += bpf_ktime_get_ns() - stalled->since;
	bpf_map_delete_elem(&stalls, &sk);
	return 0;
}

static __always_inline u32 at_least(u32 value, u32 least)
{
	return value < least ? least : value;
}

/* Every packet of an established connection, before it is worked on. What waited while a task had the
 * socket is worked on in that task, and may be interrupted by more: the kernel leaves out this program
 * then, and counts that (recursion_misses). GRO joins data, and what waits for the task is joined too,
 * acknowledgements as well, each adding to gso_segs (tcp_add_backlog):
 * https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_ipv4.c */
SEC("tp_btf/tcp_probe")
int BPF_PROG(tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	unsigned char *transport, *shared;
	u32 seq, end, una, window, granted;
	struct tcp_sock *tp;
	struct flows *f;
	u32 segments, size;
	u8 fin;
	void *cb;

	if (!counts())
		return 0;
	f = counters(sk->__sk_common.skc_net.net->ns.inum);
	if (!f)
		return 0;
	cb = (void *)skb->cb;
	seq = READ_AT(struct tcp_skb_cb, cb, seq);
	end = READ_AT(struct tcp_skb_cb, cb, end_seq);
	f->packets++;
	transport = skb->head + skb->transport_header;
	window = OCTET_AT(struct tcphdr, transport, TCP_WINDOW) << 8 |
		 OCTET_AT(struct tcphdr, transport, TCP_WINDOW + 1);
	granted = READ_AT(struct tcp_sock, sk, snd_wnd);
	if (!window != !granted) {
		if (!window)
			stalls_begin(f, (u64)sk);
		else
			stalls_end(f, (u64)sk);
	}
	shared = skb->head + skb->end;
	segments = READ_AT(struct skb_shared_info, shared, gso_segs);
	size = READ_AT(struct skb_shared_info, shared, gso_size);
	fin = OCTET_AT(struct tcphdr, transport, TCP_FLAGS) & TCP_FIN;
	/* Who makes packets elsewhere, as the host of a virtual machine, leaves it to us to count; what
	 * then waits for a task is joined as if each had been one segment. */
	if (size)
		segments = at_least(segments, (end - seq - fin + size - 1) / size);
	if (!segments)
		segments = 1;
	/* A FIN has a number of its own, but is neither data nor an acknowledgement only. */
	if (fin && end - seq == 1)
		return 0;
	if (seq != end) {
		u32 awaited = READ_AT(struct tcp_sock, sk, rcv_nxt);

		f->data_packets++;
		f->data_segments += segments;
		if ((s32)(seq - awaited) > 0)
			f->out_of_order++;
		else if ((s32)(end - awaited) <= 0)
			f->old++;
		return 0;
	}
	f->pure_acks += segments;
	una = READ_AT(struct tcp_sock, sk, snd_una);
	if (READ_AT(struct tcp_skb_cb, cb, ack_seq) != una ||
	    !READ_AT(struct tcp_sock, sk, packets_out))
		return 0;
	/* One that changes the window is an update of it, not a duplicate. */
	tp = (struct tcp_sock *)sk;
	if (window << BPF_CORE_READ_BITFIELD_PROBED(tp, rx_opt.snd_wscale) == granted)
		f->duplicate_acks++;
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk, struct sk_buff *skb)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	u32 cause = BY_PROBE, state = sk->__sk_common.skc_state;
	struct flows *f;
	u16 segments;
	void *cb;

	if (!counts())
		return 0;
	if (bpf_core_field_exists(((struct trace_event_raw_tcp_retransmit_skb *)0)->err) && (int)ctx[2])
		return 0;
	f = counters(sk->__sk_common.skc_net.net->ns.inum);
	if (!f)
		return 0;
	/* A tail loss probe is sent while nothing is known to be lost (RFC 8985, 7.3). */
	if (state == STATE_SYN_SENT || state == STATE_SYN_RECV)
		cause = BY_SYN;
	else if (BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) == CA_LOSS)
		cause = BY_TIMEOUT;
	else if (BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) == CA_RECOVERY)
		cause = BY_FAST;
	cb = (void *)skb->cb;
	segments = READ_AT(struct tcp_skb_cb, cb, tcp_gso_segs);
	f->resent[cause] += segments ? segments : 1;
	if (READ_AT(struct tcp_skb_cb, cb, tcp_flags) & TCP_FIN &&
	    READ_AT(struct tcp_skb_cb, cb, end_seq) - READ_AT(struct tcp_skb_cb, cb, seq) == 1)
		f->fins_sent++;
	return 0;
}

/* Packets that wait for a socket are few. */
enum { WAITING = 32 };

/* What waits until a task leaves the socket has been counted by the socket, but is worked on later, when
 * it is not established any more:
 * https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_ipv4.c#L2278 */
static __always_inline void leave_out_waiting(struct closing *now, struct sock *sk)
{
	struct sk_buff *skb = READ_AT(struct sock, sk, sk_backlog.head);

	for (int i = 0; i < WAITING && skb; i++) {
		unsigned char *head = READ_AT(struct sk_buff, skb, head);
		unsigned char *shared = head + READ_AT(struct sk_buff, skb, end);
		unsigned char *transport = head + READ_AT(struct sk_buff, skb, transport_header);
		u32 segments = at_least(READ_AT(struct skb_shared_info, shared, gso_segs), 1);
		void *cb = (void *)((u64)skb + bpf_core_field_offset(struct sk_buff, cb));
		u8 fin = OCTET_AT(struct tcphdr, transport, TCP_FLAGS) & TCP_FIN;

		now->segments -= segments;
		if (READ_AT(struct tcp_skb_cb, cb, end_seq) - READ_AT(struct tcp_skb_cb, cb, seq) > fin)
			now->data_segments -= segments;
		skb = READ_AT(struct sk_buff, skb, next);
	}
}

/* What tcp_probe does not see: the acknowledgement that ends a handshake, and everything that comes
 * when one side has closed. The socket itself counts what it receives, and this is called where it
 * begins and ceases to be established, and at its end. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int before, int after)
{
	u64 key = (u64)sk;
	struct closing *known, now = {};
	struct flows *f;
	s32 data, others;

	if (sk->sk_protocol != PROTOCOL_TCP)
		return 0;
	now.segments = READ_AT(struct tcp_sock, sk, segs_in);
	now.data_segments = READ_AT(struct tcp_sock, sk, data_segs_in);
	now.fin = sk->__sk_common.skc_flags >> SOCK_DONE & 1;
	if (before == STATE_ESTABLISHED && after != STATE_CLOSE) {
		leave_out_waiting(&now, sk);
		bpf_map_update_elem(&closings, &key, &now, BPF_ANY);
	}
	if (!counts())
		return 0;
	f = counters(sk->__sk_common.skc_net.net->ns.inum);
	if (!f)
		return 0;
	/* tcp_send_fin() joins it with data that has not been sent yet. */
	if ((after == STATE_FIN_WAIT1 || after == STATE_LAST_ACK) && !sk->sk_write_queue.qlen)
		f->fins_sent++;
	/* The SYN is among what it has received:
	 * https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_minisocks.c#L580 */
	if (before == STATE_SYN_RECV && after == STATE_ESTABLISHED) {
		others = now.segments - now.data_segments - 1;
		f->pure_acks += others > 0 ? others : 0;
		f->data_segments += now.data_segments;
	}
	if (after != STATE_CLOSE)
		return 0;
	known = bpf_map_lookup_elem(&closings, &key);
	if (!known)
		return 0;
	data = now.data_segments - known->data_segments;
	others = now.segments - known->segments - data;
	/* Of these a FIN is one, and a RST. */
	others -= now.fin && !known->fin;
	others -= !!sk->sk_err;
	/* A packet may come between the readings of the two counters. */
	f->data_segments += data > 0 ? data : 0;
	f->pure_acks += others > 0 ? others : 0;
	bpf_map_delete_elem(&closings, &key);
	return 0;
}

/* An answer to a SYN that is sent again; its socket is not one yet. */
SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(tcp_retransmit_synack, struct sock *sk)
{
	struct flows *f;

	if (!counts())
		return 0;
	f = counters(sk->__sk_common.skc_net.net->ns.inum);
	if (f)
		f->resent[BY_SYN]++;
	return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(tcp_cong_state_set, struct sock *sk, u8 state)
{
	struct flows *f;

	if (!counts())
		return 0;
	f = counters(sk->__sk_common.skc_net.net->ns.inum);
	if (f)
		f->states[state & (CA_STATES - 1)]++;
	return 0;
}
