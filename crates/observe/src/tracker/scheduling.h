/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How long tasks wait for a CPU, who wakes them and who takes their CPU. Only loaded where the probe `scheduling`
 * asks. A part of tracker.bpf.c, so that the context switch is hooked once.
 *
 * The kernel counts how long each task was ready to run and did not (run_delay), from the wake-up or the
 * preemption until it runs: https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/stats.h#L225
 * It adds a wait when the task comes to a CPU, just after the tracepoint of the switch; so a wait is read when the
 * task leaves again, or when the window ends. No hook of a wake-up and no table of all tasks is needed for it. */
#pragma once
#include "calls.h"

/* Waits by power of two of nanoseconds, each cut into 8 parts. */
enum { WAIT_SLOTS = 256 };

struct waits {
	u64 count;
	u64 ns;
	u64 max;
	u64 histogram[WAIT_SLOTS];
};

/* What the CPU did that woke a task. */
enum { BY_TASK = 0, BY_SOFTIRQ = 1, BY_IRQ = 2, BY_IDLE = 3, WAKERS = 4 };

/* What a watched thread does. */
enum { UNSEEN = 0, RUNS = 1, PREEMPTED = 2, SLEEPS = 3 };

/* A watched thread. Only the CPU on which it comes or goes writes, under the lock of its run queue; what a waker
 * writes is under the thread's pi_lock. */
struct thread {
	struct waits queue; /* for a CPU, after a wake-up or a preemption */
	struct waits wake;  /* from the wake-up until it ran, the way to the other CPU included */
	u64 wakeups[WAKERS];
	u64 preemptions; /* left a CPU though it was ready to run */
	u64 preempted;   /* nanoseconds until it ran again */
	u64 slept;       /* left a CPU to wait */
	u64 migrations;
	u64 early;       /* waits that began before the window and ended in it */
	u64 early_ns;    /* what of them is in the window */
	u64 alone;       /* waits after a wake-up on a CPU that ran no other task */
	u64 alone_ns;
	u64 unlisted_ns; /* waits for tasks that found no room in `holders` */
	u64 delay;       /* run_delay as it was last read */
	u64 left;        /* ktime when it last left a CPU */
	u64 waking;      /* ktime of the newest wake-up */
	u64 slept_so_far; /* nvcsw when it last left a CPU */
	u32 state;
	u32 came_from;   /* state before it came to its CPU */
	u32 holder;      /* task that it waits for or last waited for, or 0 */
	u32 cpu;         /* where it last came to */
	u32 delay_known;
	u32 ended;       /* ENDS or GONE */
};

/* A thread that ends still runs, and can wait for a CPU, until it leaves it for the last time. From there on its
 * number may be another thread's. */
enum { ENDS = 1, GONE = 2 };

/* Its name before 5.14 was `state`. */
struct task_struct___last {
	unsigned int __state;
	long state;
} KERNEL;

/* https://elixir.bootlin.com/linux/v6.12/source/include/linux/sched.h#L117 */
enum { TASK_DEAD = 0x80 };

/* No task has this number. */
enum { UNKNOWN_HOLDER = 0xffffffff };

/* The watched threads, which user space fills in. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct holding {
	u32 waiting; /* a watched thread */
	u32 holder;  /* any task */
};

/* What a watched thread waited for a task that had its CPU. */
struct held {
	u64 preemptions;
	u64 preempted; /* nanoseconds */
	u64 waits;     /* after wake-ups */
	u64 waited;    /* nanoseconds */
	u32 process;
	u32 kernel; /* whether it is a thread of the kernel */
	char comm[16];
	char process_comm[16]; /* of its process's first thread */
};

/* Allocated before: memory may not be had where tasks are switched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct holding);
	__type(value, struct held);
} holders SEC(".maps");

/* The task that runs on a CPU, and all tasks there that are not watched. */
struct queue {
	u64 began;   /* ktime when the window began here */
	u64 arrived; /* ktime when the task came, 0 where that is unknown */
	u64 delay;   /* its run_delay when it came */
	u64 slept;   /* how often it had gone to sleep when it came */
	u32 task;    /* its number */
	u32 watched; /* the same where it is watched, else 0 */
	u32 known;   /* whether the above is known */
	u32 unread;  /* whether its last wait has not been read */
	u32 stopped; /* whether the window has ended here */
	u32 pad;
	struct waits others;
	u64 wakeups[WAKERS];
	u64 preemptions;
	u64 switched_to_sleep;
	u64 migrations;
	u64 early;
	u64 early_ns;
	u64 unmatched; /* tasks that left and had not been seen to come */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue);
} queues SEC(".maps");

static __always_inline struct queue *this_queue(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&queues, &zero);
}

static __always_inline u64 run_delay(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return task->sched_info.run_delay;
}

static __always_inline struct thread *watched(u32 task)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &task);

	return t && t->ended != GONE ? t : NULL;
}

static __always_inline void note_wait(struct waits *w, u64 ns)
{
	u32 slot = ns & 7, power;

	if (ns >= 8) {
		power = log2_slot(ns);
		slot = (power - 2) * 8 + ((ns >> ((power - 3) & 63)) & 7);
		if (power > 33)
			slot = WAIT_SLOTS - 1;
	}
	w->count++;
	w->ns += ns;
	if (ns > w->max)
		w->max = ns;
	w->histogram[slot & (WAIT_SLOTS - 1)]++;
}

/* The entry of a task that a watched thread has to wait for; made where there is none. */
static __always_inline void name_holder(u32 waiting, struct task_struct *task)
{
	struct holding key = { .waiting = waiting, .holder = task->pid };
	struct held h = {};

	if (bpf_map_lookup_elem(&holders, &key))
		return;
	h.process = task->tgid;
	h.kernel = !!(task->flags & PF_KTHREAD);
	/* Byte by byte, as lockdown can forbid bpf_probe_read_kernel (kernel_lockdown(7)). */
#pragma unroll
	for (int i = 0; i < (int)sizeof(h.comm); i++) {
		h.comm[i] = task->comm[i];
		h.process_comm[i] = task->group_leader->comm[i];
	}
	bpf_map_update_elem(&holders, &key, &h, BPF_NOEXIST);
}

/* A watched thread has waited so long. `early` is whether that began before the window. */
static __always_inline void charge(struct thread *t, u32 waiting, u64 ns, bool early)
{
	struct holding key = { .waiting = waiting, .holder = t->holder };
	struct held *h = t->holder ? bpf_map_lookup_elem(&holders, &key) : NULL;

	if (t->came_from == PREEMPTED) {
		t->preempted += ns;
		if (h) {
			h->preempted += ns;
			h->preemptions += !early;
			return;
		}
	} else if (h) {
		h->waited += ns;
		h->waits += !early;
		return;
	} else if (!t->holder) {
		t->alone_ns += ns;
		t->alone += !early;
		return;
	}
	t->unlisted_ns += ns;
}

/* Reads the wait after which the task that runs came to this CPU. */
static __always_inline void read_wait(struct cpu *c, struct queue *q, struct task_struct *task,
				      struct thread *t)
{
	u64 delay = run_delay(task), before = q->delay, in_window;

	if (!q->unread)
		return;
	q->unread = 0;
	if (t) {
		/* Also what it waited on the queue of another CPU, from which it was taken. */
		if (t->delay_known)
			before = t->delay;
		t->delay = delay;
		t->delay_known = 1;
	}
	/* Waits that ended before the window are of no window. */
	if (!c->count || q->arrived < q->began)
		return;
	delay -= before;
	in_window = q->arrived - q->began;
	if (delay > in_window) {
		if (t) {
			t->early++;
			t->early_ns += in_window;
			charge(t, q->watched, in_window, 1);
		} else {
			q->early++;
			q->early_ns += in_window;
		}
		return;
	}
	note_wait(t ? &t->queue : &q->others, delay);
	if (t)
		charge(t, q->watched, delay, 0);
}

/* A task leaves that was not seen to come. There are kernels for virtual machines that run no program while process
 * 1 is the current one, and so none where it makes way for another. Of a watched thread the wait is known all the
 * same. Returns whether it is one. */
static __always_inline int task_came_unseen(struct cpu *c, struct queue *q, struct task_struct *task)
{
	u32 pid = task->pid;
	struct thread *t = watched(pid);

	if (!t || !t->delay_known || t->state == UNSEEN) {
		q->unmatched += !!c->count;
		return 0;
	}
	q->task = pid;
	q->watched = pid;
	q->unread = 1;
	q->slept = t->slept_so_far;
	/* Not later than now, and no time of this CPU is known better. */
	q->arrived = c->last;
	t->came_from = t->state;
	if (t->state != PREEMPTED)
		t->holder = UNKNOWN_HOLDER;
	t->state = RUNS;
	t->cpu = bpf_get_smp_processor_id();
	return 1;
}

static __always_inline bool is_dead(struct task_struct *task)
{
	struct task_struct___last *of = (void *)task;

	if (bpf_core_field_exists(of->__state))
		return of->__state == TASK_DEAD;
	return of->state == TASK_DEAD;
}

/* A task leaves this CPU to another one. */
static __always_inline void task_leaves(struct cpu *c, struct queue *q, struct task_struct *task,
					struct task_struct *next)
{
	struct thread *t = NULL;
	bool slept;

	if (!q->known)
		return;
	if (q->task != (u32)task->pid && !task_came_unseen(c, q, task))
		return;
	if (q->watched)
		t = watched(q->watched);
	read_wait(c, q, task, t);
	/* Its state may have been changed by a waker meanwhile, and older kernels do not hand over what it
	 * was; this counter is the kernel's own decision:
	 * https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c#L6586 */
	slept = task->nvcsw != q->slept;
	if (!t) {
		if (c->count && task->pid) {
			q->switched_to_sleep += slept;
			q->preemptions += !slept;
		}
		return;
	}
	t->left = c->last;
	t->slept_so_far = task->nvcsw;
	t->state = slept ? SLEEPS : PREEMPTED;
	if (!slept) {
		t->holder = next->pid;
		if (t->holder)
			name_holder(q->watched, next);
	}
	if (c->count) {
		t->slept += slept;
		t->preemptions += !slept;
	}
	if (is_dead(task))
		t->ended = GONE;
}

/* A task comes to this CPU. */
static __always_inline void task_comes(struct cpu *c, struct queue *q, struct task_struct *task,
				       struct task_struct *previous)
{
	u32 pid = task->pid;
	struct thread *t;

	q->task = pid;
	q->known = 1;
	q->watched = 0;
	q->unread = 0;
	if (!pid)
		return;
	q->arrived = c->last;
	q->delay = run_delay(task);
	q->slept = task->nvcsw;
	q->unread = 1;
	t = watched(pid);
	if (!t)
		return;
	q->watched = pid;
	t->came_from = t->state;
	if (t->state != PREEMPTED) {
		t->holder = previous->pid;
		if (t->holder)
			name_holder(pid, previous);
	}
	if (c->count && t->state != PREEMPTED && t->waking > t->left && t->waking >= q->began)
		note_wait(&t->wake, c->last - t->waking);
	t->state = RUNS;
	t->cpu = bpf_get_smp_processor_id();
}

static __always_inline void tasks_switch(struct cpu *c, struct task_struct *previous,
					 struct task_struct *next)
{
	struct queue *q = this_queue();

	if (!q || q->stopped)
		return;
	task_leaves(c, q, previous, next);
	task_comes(c, q, next, previous);
}

static __always_inline void task_ends(struct task_struct *task)
{
	u32 pid = task->pid;
	struct thread *t = bpf_map_lookup_elem(&threads, &pid);

	if (t && !t->ended)
		t->ended = ENDS;
}

/* Where its last switch was not seen. */
static __always_inline void task_is_gone(struct task_struct *task)
{
	u32 pid = task->pid;
	struct thread *t = bpf_map_lookup_elem(&threads, &pid);

	if (t && t->ended)
		t->ended = GONE;
}

/* What a CPU is forgotten to do, and the edges of the window there. */
static __always_inline void queue_forget(void)
{
	struct queue *q = this_queue();

	if (!q)
		return;
	q->known = 0;
	q->stopped = 0;
}

static __always_inline void queue_starts(struct cpu *c, struct task_struct *task)
{
	struct queue *q = this_queue();
	u32 pid = task->pid;
	struct thread *t;

	if (!q)
		return;
	q->began = c->last;
	q->others.max = 0;
	if (q->known)
		return;
	/* Nothing has been seen of this CPU: what runs now came before the programs were there. */
	q->known = 1;
	q->task = pid;
	t = watched(pid);
	q->watched = t ? pid : 0;
	if (t) {
		t->state = RUNS;
		t->cpu = bpf_get_smp_processor_id();
	}
	q->arrived = 0;
	q->delay = run_delay(task);
	q->slept = task->nvcsw;
	q->unread = !!pid;
}

static __always_inline void queue_stops(struct cpu *c, struct task_struct *task)
{
	struct queue *q = this_queue();

	if (!q || q->stopped)
		return;
	q->stopped = 1;
	if (q->known && q->task == (u32)task->pid)
		read_wait(c, q, task, q->watched ? watched(q->watched) : NULL);
}
