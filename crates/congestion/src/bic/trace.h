/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A trace of what BIC was given and what it made of it, for the model. */
#pragma once
#include "socket.h"

/* As `Call` in trace.rs. */
enum call {
	CALL_INIT,
	CALL_CONG_AVOID,
	CALL_SSTHRESH,
	CALL_SET_STATE,
	CALL_PKTS_ACKED,
	CALL_UNDO_CWND,
};

/* As `Window` in trace.rs. */
struct window {
	u32 cwnd;
	u32 cwnd_cnt;
	u32 ssthresh;
	u32 clamp;
	u32 prior_cwnd;
	u32 max_packets_out;
	u32 is_cwnd_limited;
	u32 ca_state;
};

/* As `Event` in trace.rs. */
struct event {
	u64 socket;
	u32 call;
	u32 argument; /* segments acknowledged, or the new state */
	u32 result; /* what the call returned */
	u32 jiffies_before;
	u32 jiffies_after;
	u32 unused;
	struct window before;
	struct window after;
	struct bic bic; /* after the call */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} trace SEC(".maps");

/* Events that had no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

static __always_inline void read_window(struct tcp_sock *tp, struct window *window)
{
	window->cwnd = tp->snd_cwnd;
	window->cwnd_cnt = tp->snd_cwnd_cnt;
	window->ssthresh = tp->snd_ssthresh;
	window->clamp = tp->snd_cwnd_clamp;
	window->prior_cwnd = tp->prior_cwnd;
	window->max_packets_out = tp->max_packets_out;
	/* A plain read of a bit field is not relocated. */
	window->is_cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	window->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

static __always_inline void begin_event(struct tcp_sock *tp, struct event *event, u32 call, u32 argument)
{
	__builtin_memset(event, 0, sizeof(*event));
	event->socket = (u64)(unsigned long)tp;
	event->call = call;
	event->argument = argument;
	event->jiffies_before = (u32)bpf_jiffies64();
	read_window(tp, &event->before);
}

static __always_inline void end_event(struct tcp_sock *tp, struct event *event, u32 result)
{
	struct bic *bic = bic_of(tp);
	u32 first = 0;
	u64 *count;

	event->jiffies_after = (u32)bpf_jiffies64();
	event->result = result;
	read_window(tp, &event->after);
	event->bic.cnt = bic->cnt;
	event->bic.last_max_cwnd = bic->last_max_cwnd;
	event->bic.last_cwnd = bic->last_cwnd;
	event->bic.last_time = bic->last_time;
	event->bic.epoch_start = bic->epoch_start;
	event->bic.delayed_ack = bic->delayed_ack;
	if (bpf_ringbuf_output(&trace, event, sizeof(*event), 0) == 0)
		return;
	count = bpf_map_lookup_elem(&lost, &first);
	if (count)
		__sync_fetch_and_add(count, 1);
}
