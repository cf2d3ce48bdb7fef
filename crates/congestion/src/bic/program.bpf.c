/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Binary increase congestion control (BIC): L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for
 * Fast Long-Distance Networks", IEEE INFOCOM 2004, https://doi.org/10.1109/INFCOM.2004.1354672. Parameters and integer
 * arithmetic are those of Linux's module tcp_bic, so that a trace of either agrees with the model (model/mod.rs). */
#include "trace.h"

/* Smax: segments that the window grows by in a round trip at most. */
#define SMAX 16
/* B: a search step goes to 1/B of the distance. */
#define B 4
/* Round trips from the window where the step would be one segment to the maximum; stands for Smin. */
#define SMOOTH_PART 20
/* Up to this window it grows and shrinks as Reno does. */
#define LOW_WINDOW 14
/* What a loss leaves of the window, of 1024: 0.8. */
#define BETA 819
#define BETA_SCALE 1024
/* Growth where no maximum is known: a segment for 20 acknowledged, 5% of the window in a round trip. */
#define MOST_FOR_ONE 20
#define ACK_RATIO_SHIFT 4
/* https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tcp.h#L180 */
#define TCP_CA_Open 0
#define TCP_CA_Loss 4
/* Sockets may choose it without CAP_NET_ADMIN:
 * https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h (TCP_CONG_NON_RESTRICTED) */
#define NON_RESTRICTED 1

/* As `Settings` in mod.rs. Set before the program is loaded: branches of what is off are not there. */
const volatile struct {
	u32 hz; /* jiffies in a second */
	u32 traces;
} settings SEC(".rodata.settings") = { 250, 0 };

/* https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h (struct tcp_congestion_ops) */
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 state);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	u32 flags;
	char name[16];
};

extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* The verifier knows that the socket of these programs is one of TCP. */
static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline u32 largest(u32 a, u32 b)
{
	return a > b ? a : b;
}

static __always_inline void reset(struct bic *bic)
{
	bic->cnt = 0;
	bic->last_max_cwnd = 0;
	bic->last_cwnd = 0;
	bic->last_time = 0;
	bic->epoch_start = 0;
	bic->delayed_ack = 2 << ACK_RATIO_SHIFT;
}

/* tcp_is_cwnd_limited: https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h. A window that the application does
 * not fill must not grow (RFC 7661), but slow start must reach twice what was acknowledged. */
static __always_inline bool is_limited_by_window(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Acknowledged segments for one more of the window. */
static __always_inline u32 segments_for_one(u32 cwnd, u32 last_max)
{
	u32 distance, beyond;

	if (cwnd < last_max) {
		distance = (last_max - cwnd) / B;
		if (distance > SMAX)
			return cwnd / SMAX; /* additive increase */
		if (distance <= 1)
			return cwnd * SMOOTH_PART / B; /* close to the maximum: slower than by Smin */
		return cwnd / distance; /* binary search */
	}
	/* Max probing: slow near the old maximum, then faster. */
	if (cwnd < last_max + B)
		return cwnd * SMOOTH_PART / B;
	beyond = cwnd - last_max;
	if (beyond < SMAX * (B - 1))
		return cwnd * (B - 1) / beyond;
	return cwnd / SMAX;
}

static __always_inline void update(struct bic *bic, u32 cwnd)
{
	u32 now = (u32)bpf_jiffies64();
	u32 cnt, ratio;

	/* 32 times a second are enough. */
	if (bic->last_cwnd == cwnd && (s32)(now - bic->last_time) <= (s32)(settings.hz / 32))
		return;
	bic->last_cwnd = cwnd;
	bic->last_time = now;
	if (bic->epoch_start == 0)
		bic->epoch_start = now;
	if (cwnd <= LOW_WINDOW) {
		bic->cnt = cwnd; /* as Reno */
		return;
	}
	cnt = segments_for_one(cwnd, bic->last_max_cwnd);
	if (bic->last_max_cwnd == 0 && cnt > MOST_FOR_ONE)
		cnt = MOST_FOR_ONE;
	/* Acknowledgements that are delayed count for more. */
	ratio = bic->delayed_ack;
	cnt = ratio ? (cnt << ACK_RATIO_SHIFT) / ratio : cnt;
	bic->cnt = largest(cnt, 1);
}

SEC("struct_ops")
void BPF_PROG(bic_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct event event;

	if (settings.traces)
		begin_event(tp, &event, CALL_INIT, 0);
	reset(bic_of(tp));
	if (settings.traces)
		end_event(tp, &event, 0);
}

SEC("struct_ops")
void BPF_PROG(bic_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct bic *bic = bic_of(tp);
	struct event event;

	if (settings.traces)
		begin_event(tp, &event, CALL_CONG_AVOID, acked);
	if (is_limited_by_window(tp)) {
		bool is_done = 0;

		/* Slow start may leave nothing; outside of it the kernel goes on with 0 too. */
		if (tp->snd_cwnd < tp->snd_ssthresh) {
			acked = tcp_slow_start(tp, acked);
			is_done = acked == 0;
		}
		if (!is_done) {
			update(bic, tp->snd_cwnd);
			tcp_cong_avoid_ai(tp, bic->cnt, acked);
		}
	}
	if (settings.traces)
		end_event(tp, &event, 0);
}

SEC("struct_ops")
u32 BPF_PROG(bic_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 cwnd = tp->snd_cwnd;
	struct bic *bic = bic_of(tp);
	struct event event;
	u32 threshold;

	if (settings.traces)
		begin_event(tp, &event, CALL_SSTHRESH, 0);
	bic->epoch_start = 0;
	/* Fast convergence: a flow that lost before it came back to its maximum leaves room for others. */
	if (cwnd < bic->last_max_cwnd)
		bic->last_max_cwnd = cwnd * (BETA_SCALE + BETA) / (2 * BETA_SCALE);
	else
		bic->last_max_cwnd = cwnd;
	threshold = cwnd <= LOW_WINDOW ? cwnd / 2 : cwnd * BETA / BETA_SCALE;
	threshold = largest(threshold, 2);
	if (settings.traces)
		end_event(tp, &event, threshold);
	return threshold;
}

SEC("struct_ops")
void BPF_PROG(bic_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct event event;

	if (settings.traces)
		begin_event(tp, &event, CALL_SET_STATE, state);
	/* After a timeout the path may be another. */
	if (state == TCP_CA_Loss)
		reset(bic_of(tp));
	if (settings.traces)
		end_event(tp, &event, 0);
}

SEC("struct_ops")
void BPF_PROG(bic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct bic *bic = bic_of(tp);
	u32 acked = sample->pkts_acked;
	struct event event;

	if (settings.traces)
		begin_event(tp, &event, CALL_PKTS_ACKED, acked);
	/* A moving average, of which each acknowledgement is a sixteenth. */
	if (BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == TCP_CA_Open)
		bic->delayed_ack += acked - (bic->delayed_ack >> ACK_RATIO_SHIFT);
	if (settings.traces)
		end_event(tp, &event, 0);
}

SEC("struct_ops")
u32 BPF_PROG(bic_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct event event;
	u32 cwnd;

	if (settings.traces)
		begin_event(tp, &event, CALL_UNDO_CWND, 0);
	cwnd = tcp_reno_undo_cwnd(sk);
	if (settings.traces)
		end_event(tp, &event, cwnd);
	return cwnd;
}

/* The name is replaced by one that is unique to the process that loads it. */
SEC(".struct_ops.link")
struct tcp_congestion_ops bpf_bic = {
	.init = (void *)bic_init,
	.ssthresh = (void *)bic_ssthresh,
	.cong_avoid = (void *)bic_cong_avoid,
	.set_state = (void *)bic_set_state,
	.pkts_acked = (void *)bic_pkts_acked,
	.undo_cwnd = (void *)bic_undo_cwnd,
	.flags = NON_RESTRICTED,
	.name = "bpf_bic",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
