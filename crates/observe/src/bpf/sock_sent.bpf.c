// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* For tests: the sockets that a process sent on, by the kernel's own account (tracepoint sock:sock_send_length, Linux
 * 6.2). */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sock;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} wanted SEC(".maps");

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk)
{
	u64 address = (u64)sk;
	u32 zero = 0, process = bpf_get_current_pid_tgid() >> 32;
	u32 *of = bpf_map_lookup_elem(&wanted, &zero);

	/* Others may send on more sockets than the table takes. */
	if (!of || *of != process)
		return 0;
	bpf_map_update_elem(&sockets, &address, &process, BPF_ANY);
	return 0;
}
