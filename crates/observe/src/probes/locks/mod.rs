//! Waiting for locks of the kernel: by lock, stack, waiter and owner.

mod classes;
mod stack;

use std::collections::BTreeMap;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::kallsyms::Kallsyms;
use wirecost_linux::process_time;
use wirecost_model::clock::{Clock, Nanos, seconds};
use wirecost_model::observe::{
    HostObservation, LockKind, LockSite, LockTask, LocksSection, Part, ProbeCost, UnlistedWaits,
    WaitContext,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::cpu;
use crate::bpf::{BpfError, LoadedObject, Options, compiled};
use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use stack::Stack;

const NAME: &str = "locks";
/// Programs of probe.bpf.c: without the first two there is nothing, and the third is for owners of sockets.
const BEGINS: &str = "contention_begin";
const ENDS: &str = "contention_end";
const SLEEPS: &str = "sched_switch";
/// Rows of the document: those of most time.
const LISTED: usize = 256;

#[derive(Debug)]
pub(crate) struct Locks;

impl Probe for Locks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> Description {
        Description {
            tells: "waiting for locks of the kernel: which lock, by which call site and stack, how \
                    often, how long, who waited and who held it; tasks that wait for the owner of a \
                    socket",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON), and CAP_SYSLOG for names of \
                    functions",
            costs: "4 us (up to 40 us on a busy machine) for each wait, most of it for the stack, while the wait goes on, \
                    and about 0.05 us at each context switch",
            limitations: "reports waits, not hold times; on bare metal a CPU that is the only one to spin \
                          on a spinlock is not seen, nor is a writer's spinning before it sleeps for a \
                          read-write semaphore; waits for a socket's owner are seen as sleeps",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: None, full: Some(Extent::Whole) }
    }

    fn open(&self, _shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        Ok(Box::new(Watch::new(Tracer::load()?)))
    }
}

/// `struct site` of probe.bpf.c.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Site {
    lock: u64,
    stack: i32,
    flags: u32,
    process: u32,
    owner: u32,
}

/// `struct tally` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Tally {
    count: u64,
    ns: u64,
    longest: u64,
    spun: u64,
    looked: u64,
    inside: u64,
}

/// `struct wait` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Wait {
    since: u64,
    lock: u64,
    phase: u64,
    spun: u64,
    looked: u64,
    inside: u64,
    stack: i32,
    flags: u32,
    now: u32,
    process: u32,
    owner: u32,
    task: u32,
}

impl Wait {
    fn site(&self) -> Site {
        let Self { lock, stack, flags, process, owner, .. } = *self;
        Site { lock, stack, flags, process, owner }
    }
}

/// `struct spins` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Spins {
    depth: u64,
    place: u64,
    of: [Wait; 8],
}

/// `struct remembered` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Remembered {
    lock: u64,
    place: u64,
    task: u32,
    uses: u32,
    stack: i32,
    unused: u32,
}

/// `struct window` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Window {
    begin: u64,
    end: u64,
}

/// `struct overview` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Overview {
    no_room: u64,
    abandoned: u64,
    unbegun: u64,
    during: u64,
    stackless: u64,
    assumed: u64,
}

/// `struct settings` of probe.bpf.c.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Settings {
    lock_sock: u64,
    lock_sock_end: u64,
    autoremove: u64,
}

/// A value of `stacks` of probe.bpf.c: from the innermost frame outwards, then zeros.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Frames([u64; 96]);

/// Flags of [`Site`], of which those below the first are the kernel's.
const SOCKET_OWNER: u32 = 1 << 16;
const MMAP_LOCK: u32 = 1 << 17;

/// LCB_F_*, <https://elixir.bootlin.com/linux/v6.12/source/include/trace/events/lock.h>
fn kind(flags: u32) -> LockKind {
    let has = |flag: u32| flags & flag != 0;
    let (spin, read, write) = (has(1), has(2), has(4));
    let (rt, percpu, mutex) = (has(8), has(16), has(32));
    match () {
        () if has(SOCKET_OWNER) => LockKind::SocketOwner,
        () if mutex => LockKind::Mutex,
        () if spin && read => LockKind::RwlockRead,
        () if spin && write => LockKind::RwlockWrite,
        () if spin => LockKind::Spinlock,
        () if percpu && read => LockKind::PercpuRwsemRead,
        () if percpu => LockKind::PercpuRwsemWrite,
        () if read => LockKind::RwsemRead,
        () if write => LockKind::RwsemWrite,
        () if rt => LockKind::RtMutex,
        () => LockKind::Semaphore,
    }
}

/// The programs, loaded.
#[derive(Debug)]
struct Tracer {
    loaded: LoadedObject,
    /// Why owners of sockets are not seen.
    no_owners: Option<String>,
}

/// What was read when the window was over.
#[derive(Debug, Default)]
struct Reading {
    ended: Vec<(Site, Vec<Tally>)>,
    /// Waits that went on, with the CPU of those that spin.
    going_on: Vec<(Option<usize>, Wait)>,
    stacks: BTreeMap<u32, Stack>,
    names: BTreeMap<u32, LockTask>,
    overview: Overview,
}

impl Tracer {
    fn load() -> Result<Self, Unavailable> {
        // The stacks that matter are told by the addresses of one function.
        let lock_sock = Kallsyms::load().map_err(|error| error.to_string()).and_then(|kernel| {
            let range = kernel.range("__lock_sock").ok_or("no function __lock_sock")?;
            let autoremove = kernel.range("autoremove_wake_function").unwrap_or_default().start;
            Ok((range, autoremove))
        });
        let mut no_owners = lock_sock.as_ref().err().cloned();
        let (range, autoremove) = lock_sock.unwrap_or_default();
        let settings = Settings { lock_sock: range.start, lock_sock_end: range.end, autoremove };
        let without: &[&str] = if no_owners.is_some() { &[SLEEPS] } else { &[] };
        let object = compiled!("locks", "probes_locks_probe");
        let options = Options { without, settings: settings.as_bytes(), ..Options::default() };
        let loaded = LoadedObject::load(object, &options)?;
        let lacks = |name: &str| loaded.missing.iter().any(|hook| hook == name);
        if let Some(hook) = [BEGINS, ENDS].into_iter().find(|hook| lacks(hook)) {
            return Err(Unavailable::Other(format!(
                "this kernel has no tracepoint {hook} (Linux 5.19)"
            )));
        }
        if lacks(SLEEPS) {
            no_owners = Some(format!("no tracepoint {SLEEPS}"));
        }
        Ok(Self { loaded, no_owners })
    }

    /// Empties the tables and attaches. Nothing counts before the window begins, but what waits is known.
    fn attach(&mut self) -> Result<(), BpfError> {
        self.set_window(Window::default())?;
        self.loaded.clear::<Tally>("sites")?;
        self.loaded.set("socket_rows", &0u32, &0u64)?;
        self.loaded.clear::<Wait>("waiting")?;
        self.loaded.clear::<Spins>("spinning")?;
        self.loaded.clear::<Remembered>("remembered")?;
        self.loaded.clear::<Overview>("overviews")?;
        self.loaded.clear::<u64>("at_work")?;
        self.loaded.clear::<u32>("names")?;
        self.loaded.clear::<u32>("stacks")?;
        self.loaded.attach()
    }

    fn set_window(&self, window: Window) -> Result<(), BpfError> {
        self.loaded.set("windows", &0u32, &window)
    }

    /// `missing` is told what has no names.
    fn read(&self, missing: &mut Vec<String>) -> Result<Reading, BpfError> {
        let mut reading = Reading { ended: self.loaded.values("sites")?, ..Reading::default() };
        for (cpu, spins) in self.loaded.percpu::<Spins>("spinning", 0)?.iter().enumerate() {
            let depth = usize::try_from(spins.depth).unwrap_or(usize::MAX).min(spins.of.len());
            reading.going_on.extend(spins.of[..depth].iter().map(|wait| (Some(cpu), *wait)));
        }
        for (_, waits) in self.loaded.values::<u64, Wait>("waiting")? {
            reading.going_on.extend(waits.into_iter().map(|wait| (None, wait)));
        }
        for overview in self.loaded.percpu::<Overview>("overviews", 0)? {
            reading.overview.no_room += overview.no_room;
            reading.overview.abandoned += overview.abandoned;
            reading.overview.unbegun += overview.unbegun;
            reading.overview.during += overview.during;
            reading.overview.stackless += overview.stackless;
            reading.overview.assumed += overview.assumed;
        }
        let numbers_are_ours = process_time::in_first_pid_namespace();
        for (pid, names) in self.loaded.values::<u32, [u8; 16]>("names")? {
            let name = names.first().map(|name| name.split(|&byte| byte == 0).next());
            let name = String::from_utf8_lossy(name.flatten().unwrap_or_default()).into_owned();
            let role = numbers_are_ours.then(|| cpu::role(pid)).flatten();
            reading.names.insert(pid, LockTask { pid, name, role });
        }
        if reading.ended.is_empty() && reading.going_on.is_empty() {
            return Ok(reading);
        }
        // Read after each window: modules come and go.
        let kernel = Kallsyms::load().unwrap_or_else(|error| {
            missing.push(format!("names of functions: {error}"));
            Kallsyms::default()
        });
        for (id, frames) in self.loaded.values::<u32, Frames>("stacks")? {
            let frames = frames.iter().flat_map(|frames| frames.0).take_while(|&frame| frame != 0);
            reading.stacks.insert(id, Stack::resolve(frames, &kernel));
        }
        Ok(reading)
    }
}

#[derive(Debug)]
struct Watch {
    tracer: Tracer,
    window: Window,
    reading: Result<Reading, String>,
    missing: Vec<String>,
}

impl Watch {
    fn new(tracer: Tracer) -> Self {
        Self {
            tracer,
            window: Window::default(),
            reading: Ok(Reading::default()),
            missing: Vec::new(),
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, _shared: &Shared) -> Result<(), Unavailable> {
        self.window = Window::default();
        self.reading = Ok(Reading::default());
        self.missing.clear();
        Ok(self.tracer.attach()?)
    }

    /// The window is what the programs are told, so that a wait is inside or outside of it for all.
    fn edge(&mut self, _shared: &Shared, _at: Nanos, edge: Edge) {
        let now = Monotonic.now();
        match edge {
            Edge::Begin => self.window.begin = now,
            Edge::End => self.window.end = now,
        }
        if let Err(error) = self.tracer.set_window(self.window) {
            self.reading = Err(error.to_string());
        }
    }

    fn end(&mut self, _shared: &Shared, _at: Nanos) {
        if self.reading.is_ok() {
            let reading = self.tracer.read(&mut self.missing);
            self.reading = reading.map_err(|error| error.to_string());
        }
        match &self.reading {
            Err(error) => self.missing.push(format!("waits for locks: {error}")),
            Ok(reading) if reading.overview.no_room > 0 => {
                let waits = reading.overview.no_room;
                self.missing
                    .push(format!("{waits} waits, as there were too many stacks and locks"));
            }
            Ok(_) => {}
        }
        if let Some(reason) = &self.tracer.no_owners {
            self.missing.push(format!("waits for owners of sockets: {reason}"));
        }
    }

    fn detach(&mut self) {
        self.tracer.loaded.detach();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        if let Ok(reading) = &self.reading {
            let owners = self.tracer.no_owners.is_none();
            into.locks = Some(section(reading, self.window, part, owners));
        }
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn cost(&self) -> ProbeCost {
        self.tracer.loaded.cost()
    }
}

/// What waited on the CPUs of a part: a wait is of the CPU where it ends. Of one that sleeps nobody knows where
/// that will be: it is of every part.
fn section(reading: &Reading, window: Window, part: &Part, socket_owners: bool) -> LocksSection {
    let of_part = |cpu: usize| {
        let cpus = part.cpus.as_ref();
        cpus.is_none_or(|cpus| cpus.iter().any(|&wanted| wanted as usize == cpu))
    };
    let of_process = |process: u32| part.pid.is_none_or(|pid| pid == process);
    let mut sites: BTreeMap<Key<'_>, LockSite> = BTreeMap::new();
    for (site, tallies) in &reading.ended {
        let on_part = tallies.iter().enumerate().filter(|(cpu, _)| of_part(*cpu));
        let tally = on_part.fold(Tally::default(), |sum, (_, tally)| Tally {
            count: sum.count + tally.count,
            ns: sum.ns + tally.ns,
            longest: sum.longest.max(tally.longest),
            spun: sum.spun + tally.spun,
            looked: sum.looked + tally.looked,
            inside: sum.inside + tally.inside,
        });
        if tally.count == 0 || !of_process(site.process) {
            continue;
        }
        let row = row(&mut sites, site, reading);
        row.waits += tally.count;
        row.seconds += seconds(tally.ns);
        row.spin_seconds += seconds(tally.spun);
        row.probe_seconds += seconds(tally.looked);
        row.inner_seconds += seconds(tally.inside);
        row.longest_seconds = row.longest_seconds.max(seconds(tally.longest));
    }
    for (cpu, wait) in &reading.going_on {
        if cpu.is_some_and(|cpu| !of_part(cpu)) || !of_process(wait.process) {
            continue;
        }
        let row = row(&mut sites, &wait.site(), reading);
        row.still_waiting += 1;
        let since = wait.since.max(window.begin);
        row.still_waiting_seconds += seconds(window.end.saturating_sub(since));
    }
    let mut sites: Vec<LockSite> = sites.into_values().collect();
    let weight = |site: &LockSite| site.seconds + site.still_waiting_seconds;
    sites.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let mut section = LocksSection {
        socket_owners,
        abandoned: reading.overview.abandoned,
        unbegun: reading.overview.unbegun,
        uncounted: reading.overview.no_room,
        during_probe: reading.overview.during,
        lost_stacks: reading.overview.stackless,
        assumed_stacks: reading.overview.assumed,
        ..LocksSection::default()
    };
    for site in &sites {
        section.waits += site.waits;
        section.wait_seconds += site.seconds;
        section.spin_seconds += site.spin_seconds;
        section.probe_seconds += site.probe_seconds;
        section.inner_seconds += site.inner_seconds;
        section.longest_seconds = section.longest_seconds.max(site.longest_seconds);
        section.still_waiting += site.still_waiting;
        section.still_waiting_seconds += site.still_waiting_seconds;
    }
    let rest = sites.split_off(sites.len().min(LISTED));
    section.unlisted = UnlistedWaits {
        sites: rest.len() as u64,
        waits: rest.iter().map(|site| site.waits).sum(),
        // A sum of nothing is -0.0.
        seconds: rest.iter().fold(0.0, |sum, site| sum + site.seconds),
    };
    section.sites = sites;
    section
}

/// What a row is of: lock, flags, frames by their functions, waiter and owner.
type Key<'a> = (u64, u32, &'a [String], u64, Option<u32>, u32);

/// The row of a site: stacks differ in addresses where their functions do not.
fn row<'a, 'b>(
    sites: &'b mut BTreeMap<Key<'a>, LockSite>,
    site: &Site,
    reading: &'a Reading,
) -> &'b mut LockSite {
    let id = u32::try_from(site.stack).ok();
    let stack = id.and_then(|id| reading.stacks.get(&id));
    let context = stack.map_or(WaitContext::Unknown, |stack| stack.context);
    let waiter = matches!(context, WaitContext::Task | WaitContext::Unknown);
    let waiter = (waiter && site.process != 0).then_some(site.process);
    let (frames, offset) = stack.map_or((&[][..], 0), |stack| (&stack.functions[..], stack.offset));
    sites.entry((site.lock, site.flags, frames, offset, waiter, site.owner)).or_insert_with(|| {
        let task = |pid: &u32| reading.names.get(pid).cloned();
        let kind = kind(site.flags);
        LockSite {
            kind,
            class: classes::of(
                kind,
                site.flags & MMAP_LOCK != 0,
                stack.and_then(|stack| stack.wanted_by.as_deref()),
            )
            .map(str::to_owned),
            // A task that was woken before it slept is no longer in its socket's queue, and the program tells only so many
            // sockets apart.
            lock: (kind != LockKind::SocketOwner || site.lock != 0)
                .then(|| format!("{:#x}", site.lock)),
            function: stack.and_then(|stack| stack.functions.first().cloned()),
            module: stack.and_then(|stack| stack.module.clone()),
            offset,
            context,
            waiter: waiter.as_ref().and_then(task),
            owner: task(&site.owner),
            stack: frames.to_vec(),
            waits: 0,
            seconds: 0.0,
            spin_seconds: 0.0,
            probe_seconds: 0.0,
            inner_seconds: 0.0,
            longest_seconds: 0.0,
            still_waiting: 0,
            still_waiting_seconds: 0.0,
        }
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn wait(process: u32, since: u64) -> Wait {
        Wait { since, process, flags: 32, stack: -1, ..Wait::default() }
    }

    fn tally(count: u64, ns: u64, longest: u64) -> Tally {
        Tally { count, ns, longest, spun: ns / 2, looked: ns / 4, inside: ns / 8 }
    }

    fn site(lock: u64, process: u32) -> Site {
        Site { lock, stack: -1, flags: 32, process, owner: 9 }
    }

    fn reading() -> Reading {
        let task = |pid: u32| LockTask { pid, name: format!("p{pid}"), role: None };
        Reading {
            ended: vec![
                (site(1, 7), vec![tally(2, 3_000, 2_000), tally(1, 500, 500)]),
                (site(2, 8), vec![tally(0, 0, 0), tally(4, 8_000, 6_000)]),
            ],
            going_on: vec![(Some(1), wait(7, 100)), (None, wait(8, 2_000))],
            names: BTreeMap::from([(7, task(7)), (8, task(8)), (9, task(9))]),
            overview: Overview {
                no_room: 1,
                abandoned: 2,
                unbegun: 3,
                during: 4,
                stackless: 5,
                assumed: 6,
            },
            ..Reading::default()
        }
    }

    const WINDOW: Window = Window { begin: 1_000, end: 5_000 };

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn all_waits_of_the_machine_are_in_the_sums() {
        let all = section(&reading(), WINDOW, &Part::default(), true);
        assert_eq!((all.waits, all.still_waiting, all.sites.len()), (7, 2, 4));
        assert!(near(all.wait_seconds, 11_500e-9) && near(all.longest_seconds, 6_000e-9));
        assert!(near(all.spin_seconds, 5_750e-9) && near(all.probe_seconds, 2_875e-9));
        // The first began before the window.
        assert!(near(all.still_waiting_seconds, 4_000e-9 + 3_000e-9));
        assert!(near(all.inner_seconds, 1_437e-9), "{}", all.inner_seconds);
        assert_eq!((all.uncounted, all.abandoned, all.unbegun), (1, 2, 3));
        assert_eq!((all.during_probe, all.lost_stacks, all.assumed_stacks), (4, 5, 6));
        let first = &all.sites[0];
        assert_eq!((first.kind, first.waits), (LockKind::Mutex, 4));
        assert_eq!(first.lock.as_deref(), Some("0x2"));
        assert_eq!(first.waiter.as_ref().map(|task| task.name.as_str()), Some("p8"));
        assert_eq!(first.owner.as_ref().map(|task| task.name.as_str()), Some("p9"));
    }

    #[test]
    fn a_host_has_what_ended_on_its_cpus() {
        let part = Part { cpus: Some(vec![0]), ..Part::default() };
        let of = section(&reading(), WINDOW, &part, true);
        assert_eq!((of.waits, of.still_waiting), (2, 1));
        assert!(near(of.wait_seconds, 3_000e-9));
        let part = Part { pid: Some(8), ..Part::default() };
        let of = section(&reading(), WINDOW, &part, true);
        assert_eq!((of.waits, of.still_waiting), (4, 1));
    }

    #[test]
    fn rows_without_room_are_in_the_sums() {
        let ended = (0..300).map(|lock| (site(lock, 7), vec![tally(1, lock, lock)])).collect();
        let all = section(&Reading { ended, ..Reading::default() }, WINDOW, &Part::default(), true);
        assert_eq!((all.sites.len(), all.unlisted.sites, all.unlisted.waits), (LISTED, 44, 44));
        assert_eq!(all.waits, 300);
        assert!(near(all.unlisted.seconds, (0..44).sum::<u64>() as f64 / 1e9));
    }

    #[test]
    fn flags_tell_the_kind() {
        for (flags, expected) in [
            (1, LockKind::Spinlock),
            (1 | 2, LockKind::RwlockRead),
            (1 | 4, LockKind::RwlockWrite),
            (32, LockKind::Mutex),
            (32 | 1, LockKind::Mutex),
            (2, LockKind::RwsemRead),
            (4, LockKind::RwsemWrite),
            (4 | MMAP_LOCK, LockKind::RwsemWrite),
            (16 | 2, LockKind::PercpuRwsemRead),
            (16 | 4, LockKind::PercpuRwsemWrite),
            (8, LockKind::RtMutex),
            (8 | 2, LockKind::RwsemRead),
            (0, LockKind::Semaphore),
            (SOCKET_OWNER, LockKind::SocketOwner),
        ] {
            assert_eq!(kind(flags), expected, "{flags:#x}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_programs() {
        // `values` and `percpu` compare them with the maps, `clear` does not.
        assert_eq!((size_of::<Wait>(), size_of::<Spins>()), (72, 8 + 8 + 8 * 72));
        assert_eq!(size_of::<Remembered>(), 32);
        assert_eq!(Frames::new_zeroed().0.len(), 96);
    }
}
