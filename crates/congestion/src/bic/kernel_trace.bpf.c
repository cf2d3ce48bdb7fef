/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The same trace of the kernel's own BIC (module tcp_bic), by fentry and fexit of its functions. For tests: the program
 * has no use for it. */
#include "trace.h"

/* Calls under way, by socket: one at a time, because the socket is locked. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct event);
} calls SEC(".maps");

static __always_inline int enter(struct sock *sk, u32 call, u32 argument)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct event event;
	u64 key = (u64)(unsigned long)sk;

	if (!tp)
		return 0;
	begin_event(tp, &event, call, argument);
	bpf_map_update_elem(&calls, &key, &event, 0);
	return 0;
}

static __always_inline int leave(struct sock *sk, u32 result)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	u64 key = (u64)(unsigned long)sk;
	struct event *event = bpf_map_lookup_elem(&calls, &key);

	if (!event || !tp)
		return 0;
	end_event(tp, event, result);
	bpf_map_delete_elem(&calls, &key);
	return 0;
}

SEC("fentry/bictcp_init")
int BPF_PROG(init_enters, struct sock *sk)
{
	return enter(sk, CALL_INIT, 0);
}

SEC("fexit/bictcp_init")
int BPF_PROG(init_leaves, struct sock *sk)
{
	return leave(sk, 0);
}

SEC("fentry/bictcp_cong_avoid")
int BPF_PROG(cong_avoid_enters, struct sock *sk, u32 ack, u32 acked)
{
	return enter(sk, CALL_CONG_AVOID, acked);
}

SEC("fexit/bictcp_cong_avoid")
int BPF_PROG(cong_avoid_leaves, struct sock *sk, u32 ack, u32 acked)
{
	return leave(sk, 0);
}

SEC("fentry/bictcp_recalc_ssthresh")
int BPF_PROG(ssthresh_enters, struct sock *sk)
{
	return enter(sk, CALL_SSTHRESH, 0);
}

SEC("fexit/bictcp_recalc_ssthresh")
int BPF_PROG(ssthresh_leaves, struct sock *sk, u32 result)
{
	return leave(sk, result);
}

SEC("fentry/bictcp_state")
int BPF_PROG(state_enters, struct sock *sk, u8 state)
{
	return enter(sk, CALL_SET_STATE, state);
}

SEC("fexit/bictcp_state")
int BPF_PROG(state_leaves, struct sock *sk, u8 state)
{
	return leave(sk, 0);
}

SEC("fentry/bictcp_acked")
int BPF_PROG(acked_enters, struct sock *sk, const struct ack_sample *sample)
{
	return enter(sk, CALL_PKTS_ACKED, sample->pkts_acked);
}

SEC("fexit/bictcp_acked")
int BPF_PROG(acked_leaves, struct sock *sk, const struct ack_sample *sample)
{
	return leave(sk, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
