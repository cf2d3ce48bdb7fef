// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Does nothing, in whichever hook it is put: what a hook costs of itself. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The hook is named when the program is loaded. */
SEC("tp_btf/sched_switch")
int empty(void *context) { return 0; }
