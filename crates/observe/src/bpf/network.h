/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What programs read of packets, devices and namespaces. */
#pragma once
#include "kernel.h"

struct ns_common {
	unsigned int inum;
} KERNEL;

struct net_device;

struct net {
	struct ns_common ns;
	struct net_device *loopback_dev;
} KERNEL;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	char name[16];
	int ifindex;
	possible_net_t nd_net;
	unsigned int gso_max_size;
	unsigned int gso_ipv4_max_size; /* Linux 6.3 */
	u16 gso_max_segs;
	unsigned int gro_max_size;
	unsigned int gro_ipv4_max_size; /* Linux 6.3 */
} KERNEL;

struct napi_struct {
	struct net_device *dev;
	unsigned int napi_id;
} KERNEL;

struct skb_shared_info {
	u16 gso_size;
	u16 gso_segs;
	unsigned int gso_type;
} KERNEL;

struct sock;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	unsigned long dev_scratch; /* in place of dev, while UDP has it */
	struct sock *sk;
	unsigned int len;
	unsigned char *head;
	unsigned char *data;
	unsigned int end;
	__be16 protocol;
	u16 transport_header;
	u16 network_header;
	char cb[48];
} KERNEL;

/* Headers as they are on the wire (RFC 791, 8200, 9293), of which only the names matter here: bytes
 * are read by their place. */
struct iphdr {
} KERNEL;
struct ipv6hdr {
} KERNEL;
struct tcphdr {
} KERNEL;
enum {
	IPV4_PROTOCOL = 9,
	IPV6_NEXT_HEADER = 6,
	TCP_OFFSET = 12, /* of the data, words, in the upper half */
	TCP_FLAGS = 13,
	TCP_WINDOW = 14,
	TCP_SHORTEST = 20,
};
enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };
enum { PROTOCOL_TCP = 6 };
/* ETH_P_IP and ETH_P_IPV6 as they are in memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ETHERTYPE_IPV4 0x0008
#define ETHERTYPE_IPV6 0xdd86
#else
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#endif

/* A pointer of which the verifier knows nothing, as one of a type: reading through it costs a load,
 * where a helper that copies costs ten times that. Linux 6.2; before that the helper is called. */
extern void *bpf_rdonly_cast(const void *object, u32 btf_id) __ksym __weak;

#define READ_AT(type, address, field)                                                               \
	({                                                                                           \
		type *at_ = (void *)(address);                                                       \
		typeof(at_->field) value_ = 0;                                                       \
		if (bpf_ksym_exists(bpf_rdonly_cast)) {                                              \
			at_ = bpf_rdonly_cast(at_, bpf_core_type_id_kernel(type));                   \
			value_ = at_->field;                                                         \
		} else {                                                                             \
			bpf_core_read(&value_, sizeof(value_), &at_->field);                         \
		}                                                                                    \
		value_;                                                                              \
	})

/* A byte of a header. */
#define OCTET_AT(type, address, place)                                                              \
	({                                                                                           \
		const u8 *at_ = (const void *)(address);                                             \
		u8 value_ = 0;                                                                       \
		if (bpf_ksym_exists(bpf_rdonly_cast)) {                                              \
			at_ = bpf_rdonly_cast(at_, bpf_core_type_id_kernel(type));                   \
			value_ = at_[place];                                                         \
		} else {                                                                             \
			bpf_probe_read_kernel(&value_, 1, at_ + (place));                            \
		}                                                                                    \
		value_;                                                                              \
	})
