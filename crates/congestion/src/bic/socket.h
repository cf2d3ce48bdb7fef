/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What congestion control reads and writes of a TCP socket. libbpf finds the fields on the running kernel (CO-RE). */
#pragma once
#include "types.h"

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define KERNEL __attribute__((preserve_access_index))

struct sock {
} KERNEL;

/* https://elixir.bootlin.com/linux/v6.12/source/include/net/inet_connection_sock.h */
struct inet_connection_sock {
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
} KERNEL;

/* https://elixir.bootlin.com/linux/v6.12/source/include/linux/tcp.h */
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 max_packets_out;
	u32 is_cwnd_limited : 1;
} KERNEL;

struct ack_sample {
	u32 pkts_acked;
} KERNEL;

/* State of BIC for a socket, in icsk_ca_priv: the fields of the kernel's `struct bictcp`, in its order
 * (https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_bic.c#L45). */
struct bic {
	u32 cnt; /* acknowledged segments for each segment that the window grows by */
	u32 last_max_cwnd; /* where the search ends: the window at the last loss, or less */
	u32 last_cwnd; /* window for which cnt was computed */
	u32 last_time; /* and when, jiffies */
	u32 epoch_start; /* when the window first grew after the last loss, jiffies */
	u32 delayed_ack; /* segments for each acknowledgement, in sixteenths */
};

static __always_inline struct bic *bic_of(struct tcp_sock *tp)
{
	return (struct bic *)tp->inet_conn.icsk_ca_priv;
}
