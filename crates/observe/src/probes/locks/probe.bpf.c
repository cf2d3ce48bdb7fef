// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Waiting for locks of the kernel, by stack and lock.
 *
 * The kernel tells of a lock only when somebody has to wait for it:
 * https://elixir.bootlin.com/linux/v6.12/source/include/trace/events/lock.h
 * Waiting for the owner of a socket (__lock_sock) is no lock to it: this is found in the stacks of tasks
 * that go to sleep. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* LCB_F_*, and flags of our own. */
enum {
	SPIN = 1,
	READ = 2,
	WRITE = 4,
	RT = 8,
	PERCPU = 16,
	MUTEX = 32,
	SOCKET_OWNER = 1 << 16,
	MMAP_LOCK = 1 << 17, /* the lock of the waiting task's own address space */
	READERS = 1 << 18,   /* readers had it, of whom the kernel names none for certain */
};

typedef struct {
	long counter;
} owner_t;

/* On PREEMPT_RT these two have no such field. */
struct mutex {
	owner_t owner;
} KERNEL;

struct rw_semaphore {
	owner_t owner;
} KERNEL;

struct mm_struct {
	struct rw_semaphore mmap_lock;
} KERNEL;

struct list_head {
	struct list_head *next;
} KERNEL;

struct wait_queue_head {
	struct list_head head;
} KERNEL;

struct wait_queue_entry {
	void *private;
	void *func;
	struct list_head entry;
} KERNEL;

typedef struct {
	int owned;
	struct wait_queue_head wq;
} socket_lock_t;

struct sock {
	socket_lock_t sk_lock;
} KERNEL;

struct task_struct___waits {
	struct mm_struct *mm;
	struct task_struct *group_leader;
} KERNEL;

/* Stacks of one bucket displace each other: many more buckets than stacks. */
enum { DEPTH = 96, STACKS = 16384 };

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, STACKS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, DEPTH * sizeof(u64));
} stacks SEC(".maps");

/* A wait that goes on. */
struct wait {
	u64 since;
	u64 lock;
	u64 phase; /* since when it spins, or sleeps */
	u64 spun;
	u64 looked; /* what it took to read the stack, while the wait had begun */
	u64 inside; /* other waits of this task or CPU that ended meanwhile, and have rows of their own */
	s32 stack; /* negative: there is none */
	u32 flags; /* as it began */
	u32 now;   /* flags of the newest phase */
	u32 process;
	u32 owner; /* process; 0 for unknown */
	u32 task;
};

/* Spinning waits of a CPU: an interrupt may begin to wait while what it interrupted does. */
enum { NESTED = 8 };

struct spins {
	u64 depth;
	volatile u64 place; /* on the kernel's stack; by way of memory, the verifier takes a pointer as a number */
	struct wait of[NESTED];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spins);
} spinning SEC(".maps");

/* To read a stack takes microseconds, and a lock that becomes free meanwhile is not taken: that is what this probe costs
 * where a lock is waited for all the time. So where a CPU spins for a lock again, in the same task and at the same depth
 * of the kernel's stack, it most likely comes from the same place: such a stack serves REUSES further waits. The kernel
 * may move the depth at random at each system call (CONFIG_RANDOMIZE_KSTACK_OFFSET): then each depth has its stack. */
enum { REMEMBERED = 256, REUSES = 15 };

struct remembered {
	u64 lock;
	u64 place; /* of the program on the kernel's stack */
	u32 task;
	u32 uses; /* that are left */
	s32 stack;
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REMEMBERED);
	__type(key, u32);
	__type(value, struct remembered);
} remembered SEC(".maps");

/* Tasks that wait for a lock, and, above that bit, for the owner of a socket. */
#define FOR_SOCKET (1ULL << 32)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct wait);
} waiting SEC(".maps");

struct site {
	u64 lock;
	s32 stack;
	u32 flags;
	u32 process;
	u32 owner;
};

struct tally {
	u64 count;
	u64 ns;
	u64 longest;
	u64 spun;
	u64 looked;
	u64 inside;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct site);
	__type(value, struct tally);
} sites SEC(".maps");

/* Rows of `sites` that tell sockets apart. Were there one for each socket of a busy server, no other lock would find room:
 * once there are this many, waits for further sockets share the row without an address of their stack. */
enum { MOST_SOCKET_ROWS = 1024 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} socket_rows SEC(".maps");

struct name {
	char comm[16];
};

/* Names of processes that waited or owned a lock: they may have ended when the window has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct name);
} names SEC(".maps");

/* Times of the clock that bpf_ktime_get_ns reads; 0 while they are still to come. */
struct window {
	u64 begin;
	u64 end;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct window);
} windows SEC(".maps");

struct overview {
	u64 no_room;   /* waits that found no place in a table */
	u64 abandoned; /* waits that began in the window and whose end was not seen */
	u64 unbegun;   /* ends of waits whose beginning was not seen */
	u64 during;    /* waits that came while a program of this file ran on their CPU */
	u64 stackless; /* waits whose stack found its place taken by another */
	u64 assumed;   /* waits that began in the window and have the stack of an earlier one */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct overview);
} overviews SEC(".maps");

/* Which of these programs runs on a CPU. The kernel leaves a program out where it is under way on that CPU already,
 * but not another one: of a wait inside contention_begin only the end would be seen, inside contention_end only the
 * beginning, which would then wait until the lock is waited for again. So a wait inside any of them is left out as a
 * whole: https://elixir.bootlin.com/linux/v6.12/source/kernel/trace/bpf_trace.c#L2382 */
enum { NONE = 0, AT_BEGIN = 1, AT_END = 2, AT_SWITCH = 3 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} at_work SEC(".maps");

struct settings {
	u64 lock_sock; /* the function __lock_sock: from here */
	u64 lock_sock_end;
	u64 autoremove; /* autoremove_wake_function; 0 where its address is unknown */
};
const volatile struct settings settings SEC(".rodata.settings");

/* The window, unless it is over: what waits then is left as it is. */
static __always_inline struct window *open_window(void)
{
	u32 zero = 0;
	struct window *w = bpf_map_lookup_elem(&windows, &zero);

	return w && !w->end ? w : 0;
}

static __always_inline struct overview *overview(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&overviews, &zero);
}

static __always_inline u64 *which_works(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&at_work, &zero);
}

static __always_inline u64 from(u64 at, struct window *w)
{
	return at > w->begin ? at : w->begin;
}

static __always_inline u64 span(u64 since, u64 now, struct window *w)
{
	since = from(since, w);
	/* An interrupt may have come between a clock reading and its use. */
	return now > since ? now - since : 0;
}

static __attribute__((noinline)) int keep_name(struct task_struct *task)
{
	struct task_struct___waits *of = (void *)task;
	struct task_struct *leader = 0;
	struct name name = {};
	u32 process = 0;

	if (bpf_core_read(&process, sizeof(process), &task->tgid) || !process)
		return 0;
	if (bpf_map_lookup_elem(&names, &process))
		return process;
	bpf_core_read(&leader, sizeof(leader), &of->group_leader);
	bpf_core_read(&name.comm, sizeof(name.comm), &leader->comm);
	bpf_map_update_elem(&names, &process, &name, BPF_NOEXIST);
	return process;
}

/* The lowest three bits of an owner are flags. A reader leaves its name in a semaphore, and may be gone:
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/locking/mutex.c
 * https://elixir.bootlin.com/linux/v6.12/source/kernel/locking/rwsem.c */
enum { OWNER_FLAGS = 7, READER_OWNED = 1 };

static __always_inline void find_owner(struct wait *wait)
{
	struct rw_semaphore *sem = (void *)wait->lock;
	struct mutex *mutex = (void *)wait->lock;
	u64 owner = 0;

	if (wait->flags & (RT | PERCPU))
		return;
	if (wait->flags & MUTEX) {
		if (bpf_core_field_exists(mutex->owner))
			bpf_core_read(&owner, sizeof(owner), &mutex->owner.counter);
	} else if (wait->flags & (READ | WRITE)) {
		if (bpf_core_field_exists(sem->owner))
			bpf_core_read(&owner, sizeof(owner), &sem->owner.counter);
		if (owner & READER_OWNED) {
			wait->flags |= READERS;
			return;
		}
	}
	owner &= ~(u64)OWNER_FLAGS;
	if (owner)
		wait->owner = keep_name((void *)owner);
}

/* The tally of a site that has no row yet, or of the row that it shares. */
static __always_inline struct tally *new_row(struct site *site)
{
	struct tally first = {};
	u64 *rows = 0;
	u32 zero = 0;

	if ((site->flags & SOCKET_OWNER) && site->lock) {
		rows = bpf_map_lookup_elem(&socket_rows, &zero);
		if (rows && *rows >= MOST_SOCKET_ROWS) {
			site->lock = 0;
			rows = 0;
		}
	}
	if (!bpf_map_update_elem(&sites, site, &first, BPF_NOEXIST) && rows)
		__sync_fetch_and_add(rows, 1);
	return bpf_map_lookup_elem(&sites, site);
}

static __always_inline void add(struct wait *wait, u64 now, struct window *w)
{
	struct site site = {
		.lock = wait->lock,
		.stack = wait->stack,
		.flags = wait->flags,
		.process = wait->process,
		.owner = wait->owner,
	};
	struct overview *o;
	struct tally *t;
	u64 ns, spun;

	if (!w->begin)
		return;
	ns = span(wait->since, now, w);
	spun = wait->spun;
	if (wait->now & SPIN)
		spun += span(wait->phase, now, w);
	t = bpf_map_lookup_elem(&sites, &site);
	if (!t)
		t = new_row(&site);
	if (!t) {
		o = overview();
		if (o)
			o->no_room++;
		return;
	}
	t->count++;
	t->ns += ns;
	/* Phases before the window are not in ns. */
	t->spun += spun < ns ? spun : ns;
	t->looked += wait->looked < ns ? wait->looked : ns;
	t->inside += wait->inside < ns ? wait->inside : ns;
	if (ns > t->longest)
		t->longest = ns;
}

static __always_inline void abandon(struct wait *wait, struct window *w)
{
	struct overview *o = overview();

	if (o && w->begin && wait->since >= w->begin)
		o->abandoned++;
}

/* The waits of a CPU from this place on. */
static __always_inline void abandon_spins(struct spins *s, u64 first, struct window *w)
{
	int i;

	for (i = 0; i < NESTED; i++)
		if (i >= first && i < s->depth)
			abandon(&s->of[i], w);
	s->depth = first;
}

enum { EEXIST = 17 };

static __always_inline s64 read_stack(void *ctx, struct window *w)
{
	s64 stack = bpf_get_stackid(ctx, &stacks, 0);
	struct overview *o;

	if (stack == -EEXIST && w->begin) {
		o = overview();
		if (o)
			o->stackless++;
	}
	return stack;
}

/* Of a wait that spins. */
static __always_inline s64 spinning_stack(void *ctx, u64 lock, u32 task, struct spins *s,
					  struct window *w)
{
	struct remembered *known;
	struct overview *o;
	u64 place;
	s64 stack;
	u32 at;

	/* clang 14 has no code for __builtin_frame_address here. */
	asm volatile("%0 = r10" : "=r"(place));
	s->place = place;
	place = s->place;
	at = (u32)(((lock ^ place ^ task) * 0x9e3779b97f4a7c15ULL) >> 56);
	known = bpf_map_lookup_elem(&remembered, &at);
	if (!known)
		return read_stack(ctx, w);
	if (known->uses && known->lock == lock && known->place == place && known->task == task) {
		known->uses--;
		o = overview();
		if (o && w->begin)
			o->assumed++;
		return known->stack;
	}
	stack = read_stack(ctx, w);
	if (stack < 0)
		return stack;
	known->lock = lock;
	known->place = place;
	known->task = task;
	known->stack = stack;
	known->uses = REUSES;
	return stack;
}

/* A wait, of which the stack is still to be read. */
static __always_inline void start(struct wait *wait, u64 lock, u32 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();

	wait->since = bpf_ktime_get_ns();
	wait->phase = wait->since;
	wait->lock = lock;
	wait->flags = flags;
	wait->now = flags;
	wait->spun = 0;
	wait->owner = 0;
	wait->inside = 0;
	wait->task = task->pid;
	wait->process = keep_name(task);
}

static __always_inline void has_stack(struct wait *wait, s64 stack)
{
	wait->stack = stack;
	/* The lock may become free meanwhile: a shorter wait seems that long. */
	wait->looked = bpf_ktime_get_ns() - wait->since;
}

/* Forgets waits that have ended unseen: no CPU goes over to another task while it spins, and none spins for a lock
 * for which it already does. */
static __always_inline void forget_stale(struct spins *s, u32 task, u64 lock, struct window *w)
{
	int i;

	if (!s->depth)
		return;
	for (i = 0; i < NESTED; i++)
		if (i < s->depth && (s->of[i].task != task || s->of[i].lock == lock))
			break;
	if (i < s->depth)
		abandon_spins(s, i, w);
}

static __always_inline int spin_begins(void *ctx, u64 lock, u32 flags, struct window *w)
{
	u32 zero = 0, task = bpf_get_current_pid_tgid();
	struct spins *s = bpf_map_lookup_elem(&spinning, &zero);
	struct wait *wait;
	u64 depth;

	if (!s)
		return 0;
	forget_stale(s, task, lock, w);
	/* Those whose end nobody saw: the program was at work on this CPU then. */
	if (s->depth >= NESTED)
		abandon_spins(s, 0, w);
	depth = s->depth;
	wait = &s->of[depth & (NESTED - 1)];
	start(wait, lock, flags);
	has_stack(wait, spinning_stack(ctx, lock, task, s, w));
	s->depth = depth + 1;
	return 0;
}

static __always_inline int begins(void *ctx, u64 lock, u32 flags, struct window *w)
{
	struct task_struct *task;
	struct task_struct___waits *of;
	struct wait *known, wait = {};
	struct overview *o;
	struct mm_struct *mm;
	u64 key;

	if ((flags & (SPIN | MUTEX)) == SPIN)
		return spin_begins(ctx, lock, flags, w);
	task = bpf_get_current_task_btf();
	key = (u32)task->pid;
	known = bpf_map_lookup_elem(&waiting, &key);
	if (known && known->lock == lock) {
		/* A mutex: the task spins while the owner runs, and sleeps otherwise. */
		wait.phase = bpf_ktime_get_ns();
		if (known->now & SPIN)
			known->spun += span(known->phase, wait.phase, w);
		known->phase = wait.phase;
		known->now = flags;
		return 0;
	}
	if (known)
		abandon(known, w);
	start(&wait, lock, flags);
	has_stack(&wait, read_stack(ctx, w));
	find_owner(&wait);
	of = (void *)task;
	if (bpf_core_field_exists(struct mm_struct, mmap_lock) &&
	    !bpf_core_read(&mm, sizeof(mm), &of->mm) && mm &&
	    lock == (u64)mm + bpf_core_field_offset(struct mm_struct, mmap_lock))
		wait.flags |= MMAP_LOCK;
	if (bpf_map_update_elem(&waiting, &key, &wait, BPF_ANY)) {
		o = overview();
		if (o && w->begin)
			o->no_room++;
	}
	return 0;
}

static __always_inline void is_during(void)
{
	struct overview *o = overview();

	if (o)
		o->during++;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *address, u32 flags)
{
	struct window *w = open_window();
	u64 *works = which_works();

	if (!w || !works)
		return 0;
	if (*works) {
		is_during();
		return 0;
	}
	*works = AT_BEGIN;
	begins(ctx, (u64)address, flags, w);
	*works = NONE;
	return 0;
}

/* The time of a wait that has ended also passed for the wait around it, if there is one. */
static __always_inline void was_inside(struct wait *outer, struct wait *inner, u64 now,
				       struct window *w)
{
	outer->inside += span(inner->since, now, w);
}

static __always_inline int ends(u64 lock, struct window *w)
{
	u32 zero = 0, task = bpf_get_current_pid_tgid();
	u64 key = task, depth, now = bpf_ktime_get_ns();
	struct overview *o;
	struct wait *wait;
	struct spins *s;
	int i;

	s = bpf_map_lookup_elem(&spinning, &zero);
	if (!s)
		return 0;
	depth = s->depth;
	wait = bpf_map_lookup_elem(&waiting, &key);
	for (i = NESTED - 1; i >= 0; i--) {
		if (i >= depth || s->of[i].lock != lock || s->of[i].task != task)
			continue;
		add(&s->of[i], now, w);
		/* Those that began later have ended unseen. */
		abandon_spins(s, i + 1, w);
		s->depth = i;
		if (i > 0)
			was_inside(&s->of[i - 1], &s->of[i], now, w);
		else if (wait)
			was_inside(wait, &s->of[i], now, w);
		return 0;
	}
	if (wait && wait->lock == lock) {
		add(wait, now, w);
		bpf_map_delete_elem(&waiting, &key);
		return 0;
	}
	o = overview();
	if (o && w->begin)
		o->unbegun++;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *address)
{
	struct window *w = open_window();
	u64 *works = which_works();

	if (!w || !works)
		return 0;
	if (*works) {
		/* The kernel has left out its beginning; elsewhere contention_begin has counted it. */
		if (*works == AT_BEGIN)
			is_during();
		return 0;
	}
	*works = AT_END;
	ends((u64)address, w);
	*works = NONE;
	return 0;
}

/* What of a stack is searched for the place in the socket's queue: nearer to the innermost frame than this. */
enum { WORDS = 128, OTHERS = 16 };

struct words {
	volatile u64 place; /* of the first word: by way of memory, the verifier takes a pointer as a number */
	u64 of[WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct words);
} searched SEC(".maps");

/* The socket whose queue has this head. Owned is 0 or 1. The memory around an entry on a stack, in another queue than
 * that of a socket, has other numbers there. Between two owners the socket is not told: 0. */
static __always_inline u64 socket_around(u64 head)
{
	u64 sock = head - bpf_core_field_offset(struct sock, sk_lock.wq.head);
	u64 owned_at = sock + bpf_core_field_offset(struct sock, sk_lock.owned);
	s32 owned = 0;

	if (bpf_probe_read_kernel(&owned, sizeof(owned), (void *)owned_at) || owned != 1)
		return 0;
	return sock;
}

/* The socket for whose owner a task waits. __lock_sock has its place in the socket's queue on the stack (DEFINE_WAIT), which is
 * the innermost of the task: what was called before may have left others further in, below the arguments of this program, and
 * callers such as accept() have theirs further out. The kernel's list leads from there to the queue, over those who came later:
 * https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c
 * https://elixir.bootlin.com/linux/v6.12/source/include/linux/wait.h */
static __attribute__((noinline)) u64 socket_of(u64 stack)
{
	const u64 func = bpf_core_field_offset(struct wait_queue_entry, func);
	const u64 entry = bpf_core_field_offset(struct wait_queue_entry, entry);
	u64 task = (u64)bpf_get_current_task_btf(), next, others = 0, place = 0;
	u32 zero = 0, i, words = WORDS;
	struct words *w = bpf_map_lookup_elem(&searched, &zero);

	if (!w || !settings.autoremove ||
	    !bpf_core_field_exists(struct sock, sk_lock.wq.head) ||
	    !bpf_core_field_exists(struct sock, sk_lock.owned))
		return 0;
	/* private and func are neighbours in every kernel since 4.13. */
	if (func != bpf_core_field_offset(struct wait_queue_entry, private) + sizeof(u64))
		return 0;
	w->place = stack;
	stack = w->place;
	if (bpf_probe_read_kernel(w->of, sizeof(w->of), (void *)stack)) {
		/* The stack ends before. */
		words = WORDS / 2;
		if (bpf_probe_read_kernel(w->of, sizeof(w->of) / 2, (void *)stack))
			return 0;
	}
	for (i = 1; i < WORDS; i++) {
		if (i >= words)
			break;
		if (w->of[i] == settings.autoremove && w->of[i - 1] == task) {
			place = stack + i * sizeof(u64) + entry - func;
			break;
		}
	}
	if (!place || bpf_probe_read_kernel(&next, sizeof(next), (void *)place))
		return 0;
	/* Woken before it slept: it is in no queue. */
	if (next == place)
		return 0;
	for (i = 0; i < OTHERS; i++) {
		if (bpf_probe_read_kernel(&others, sizeof(others), (void *)(next - entry + func)))
			return 0;
		if (others != settings.autoremove)
			return socket_around(next);
		if (bpf_probe_read_kernel(&next, sizeof(next), (void *)next))
			return 0;
	}
	return 0;
}

/* A task goes to sleep in __lock_sock, which is uninterruptible, as few sleeps are:
 * https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c */
enum { UNINTERRUPTIBLE = 2, INNERMOST = 12 };

static __always_inline void sleeps(void *ctx, struct task_struct *task, struct window *w)
{
	u64 key = (u32)task->pid | FOR_SOCKET, frames[INNERMOST] = {};
	struct wait wait = {};
	struct overview *o;
	int i, found = 0;

	bpf_get_stack(ctx, frames, sizeof(frames), 0);
	for (i = 0; i < INNERMOST; i++)
		if (frames[i] >= settings.lock_sock && frames[i] < settings.lock_sock_end)
			found = 1;
	if (!found)
		return;
	start(&wait, 0, SOCKET_OWNER);
	wait.stack = read_stack(ctx, w);
	wait.lock = socket_of((u64)ctx);
	wait.looked = bpf_ktime_get_ns() - wait.since;
	if (bpf_map_update_elem(&waiting, &key, &wait, BPF_ANY)) {
		o = overview();
		if (o && w->begin)
			o->no_room++;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     u32 prev_state)
{
	struct window *w = open_window();
	u64 *works = which_works();
	struct spins *s;
	struct wait *wait;
	u32 zero = 0;
	u64 key, worked;

	if (!w || !works)
		return 0;
	worked = *works;
	*works = AT_SWITCH;
	/* Nothing spins where tasks are switched. */
	s = bpf_map_lookup_elem(&spinning, &zero);
	if (s && s->depth)
		abandon_spins(s, 0, w);
	key = (u32)next->pid | FOR_SOCKET;
	wait = bpf_map_lookup_elem(&waiting, &key);
	if (wait) {
		add(wait, bpf_ktime_get_ns(), w);
		bpf_map_delete_elem(&waiting, &key);
	}
	/* Idle kernel threads have a further bit (TASK_NOLOAD). */
	if (!preempt && prev_state == UNINTERRUPTIBLE)
		sleeps(ctx, prev, w);
	*works = worked;
	return 0;
}
