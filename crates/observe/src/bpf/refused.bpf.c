// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* For a test: the verifier refuses it, because it follows a pointer that may be null. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} values SEC(".maps");

SEC("raw_tp")
int follows_null(void *context)
{
	u32 key = 0;
	u64 *value = bpf_map_lookup_elem(&values, &key);

	return *value;
}
