// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* For a test: drops every UDP packet, and lets all others pass. */
#include "network.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct xdp_md {
	u32 data;
	u32 data_end;
};

enum { XDP_DROP = 1, XDP_PASS = 2, PROTOCOL_UDP = 17, ETHERNET = 14, ETHERTYPE = 12 };

SEC("xdp")
int drop_udp(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	u8 *end = (void *)(long)ctx->data_end;

	if (data + ETHERNET + IPV4_PROTOCOL + 1 > end)
		return XDP_PASS;
	if (*(u16 *)(data + ETHERTYPE) != ETHERTYPE_IPV4)
		return XDP_PASS;
	return data[ETHERNET + IPV4_PROTOCOL] == PROTOCOL_UDP ? XDP_DROP : XDP_PASS;
}
