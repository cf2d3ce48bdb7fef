/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Picks the queue of a packet that a host sends through a TUN device (TUNSETSTEERINGEBPF), as the
 * receiving host's device would: by the Toeplitz hash of addresses and ports.
 * https://elixir.bootlin.com/linux/v6.12/source/drivers/net/tun.c#L520 */
#include "types.h"
#include <bpf/bpf_helpers.h>

#define KEY_BYTES 40
#define TABLE_ENTRIES 128
#define TCP 6
#define UDP 17

/* As `struct Settings` in mod.rs. */
const volatile struct {
	u8 key[KEY_BYTES];
	u8 table[TABLE_ENTRIES];
} rss SEC(".rodata.rss");

static __always_inline u32 toeplitz(const u8 *input, int length)
{
	u32 window = (u32)rss.key[0] << 24 | rss.key[1] << 16 | rss.key[2] << 8 | rss.key[3];
	u32 hash = 0;

	for (int place = 0; place < length; place++) {
		u8 byte = input[place], next = rss.key[place + 4];

		for (int bit = 7; bit >= 0; bit--) {
			/* Without a branch, of which the verifier would follow both sides. */
			hash ^= window & -(u32)(byte >> bit & 1);
			window = window << 1 | (next >> bit & 1);
		}
	}
	return hash;
}

static __always_inline bool has_ports(u8 protocol)
{
	return protocol == TCP || protocol == UDP;
}

/* Packets that are not IP have the hash 0. */
static __always_inline u32 hash_of(void *skb)
{
	u8 header[40], input[36];

	if (bpf_skb_load_bytes(skb, 0, header, 20))
		return 0;
	if (header[0] >> 4 == 4) {
		/* Bit "more fragments", and the offset of this one. */
		bool fragment = (header[6] & 0x3f) || header[7];

		__builtin_memcpy(input, header + 12, 8);
		if (fragment || !has_ports(header[9]) ||
		    bpf_skb_load_bytes(skb, (header[0] & 15) * 4, input + 8, 4))
			return toeplitz(input, 8);
		return toeplitz(input, 12);
	}
	if (header[0] >> 4 != 6 || bpf_skb_load_bytes(skb, 0, header, 40))
		return 0;
	__builtin_memcpy(input, header + 8, 32);
	if (!has_ports(header[6]) || bpf_skb_load_bytes(skb, 40, input + 32, 4))
		return toeplitz(input, 32);
	return toeplitz(input, 36);
}

SEC("socket")
int steer(void *skb)
{
	return rss.table[hash_of(skb) % TABLE_ENTRIES];
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
