/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Congestion control of a user's: Reno with a smaller reduction. Compiled by tests as a user would: clang -g -O2 -target bpf -c. */
#define SEC(name) __attribute__((section(name), used))
#define KERNEL __attribute__((preserve_access_index))

typedef unsigned int u32;
typedef unsigned long long u64;

struct sock {
} KERNEL;

struct tcp_sock {
	u32 snd_cwnd;
} KERNEL;

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 flags;
	char name[16];
};

extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) SEC(".ksyms");
extern u32 tcp_reno_undo_cwnd(struct sock *sk) SEC(".ksyms");

#ifndef NAME
#define NAME "mine"
#endif

SEC("struct_ops")
u32 mine_ssthresh(u64 *context)
{
	struct tcp_sock *tp = (struct tcp_sock *)context[0];
	u32 threshold = tp->snd_cwnd * 7 / 8;
#ifdef FORBIDDEN
	/* The verifier refuses it: the length of what is read is not known. */
	threshold += ((u32 *)context)[threshold];
#endif
	return threshold > 2 ? threshold : 2;
}

SEC("struct_ops")
void mine_cong_avoid(u64 *context)
{
	tcp_reno_cong_avoid((struct sock *)context[0], (u32)context[1], (u32)context[2]);
}

SEC("struct_ops")
u32 mine_undo_cwnd(u64 *context)
{
	return tcp_reno_undo_cwnd((struct sock *)context[0]);
}

#ifndef NO_OPERATIONS
/* Without a link, as examples of old have it. */
SEC(".struct_ops")
struct tcp_congestion_ops mine = {
	.ssthresh = (void *)mine_ssthresh,
	.cong_avoid = (void *)mine_cong_avoid,
	.undo_cwnd = (void *)mine_undo_cwnd,
	.flags = 1,
	.name = NAME,
};
#endif

#ifdef PINNED
struct {
	int (*type)[2];
	int (*max_entries)[1];
	u32 *key;
	u32 *value;
	int (*pinning)[1];
} kept SEC(".maps");

SEC("struct_ops")
u32 mine_reads_map(u64 *context)
{
	return (u32)(u64)&kept;
}
#endif

#ifdef LARGE
struct {
	int (*type)[2];
	int (*max_entries)[1 << 23];
	u32 *key;
	u64 *value;
} many SEC(".maps");

SEC("struct_ops")
u32 mine_reads_many(u64 *context)
{
	return (u32)(u64)&many;
}
#endif

#ifdef OTHER_PROGRAM
SEC("tp/sched/sched_switch")
int watches(void *context)
{
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
