//! Samples of a window with names: what the CPU did, in which functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use wirecost_linux::kallsyms::Kallsyms;

use super::blocks::ByBlock;
use super::collector::{Collected, Stack};
use super::programs::Programs;

/// Name of what has none.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// Index into [`Profile::frames`].
pub(crate) type FrameId = u32;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) name: String,
    /// `kernel`, a module of it, `bpf`, or the file of a program or library.
    pub(crate) module: String,
    pub(crate) kernel: bool,
}

/// What a CPU was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Halted.
    Idle,
    /// A task, in user space or in the kernel.
    Task,
    /// An interrupt or a softirq, of whatever it interrupted; or the idle loop at work.
    Other,
}

/// Equal samples.
#[derive(Debug)]
pub(crate) struct AggregatedStack {
    pub(crate) cpu: u32,
    pub(crate) process: u32,
    pub(crate) context: Context,
    pub(crate) in_kernel: bool,
    /// Of the thread that collects samples.
    pub(crate) own: bool,
    pub(crate) count: u64,
    /// The same by block of the window.
    pub(crate) blocks: ByBlock,
    /// From the innermost function outwards. Never empty.
    pub(crate) frames: Vec<FrameId>,
}

/// All samples of a window.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) frames: Vec<Frame>,
    pub(crate) taken: Vec<AggregatedStack>,
    pub(crate) lost: u64,
    /// Names of processes that were alive when the window ended.
    pub(crate) processes: BTreeMap<u32, String>,
    /// Why functions of the kernel have no names.
    pub(crate) nameless: Option<String>,
}

/// The halt, and the innermost functions that the timer's interrupt finds when it ends one.
const HALT: &[&str] = &[
    "acpi_idle_do_entry",
    "acpi_idle_enter",
    "acpi_processor_ffh_cstate_enter",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle_poll",
    "cpuidle_enter_state",
    "default_idle",
    "intel_idle",
    "intel_idle_ibrs",
    "intel_idle_irq",
    "intel_idle_xstate",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "psci_enter_idle_state",
    "pv_native_safe_halt",
    "tdx_safe_halt",
];

/// Functions that only interrupts and softirqs run in. Entries of exceptions (asm_exc_...) are not
/// among them: a fault is the task's own work.
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/include/asm/idtentry.h>,
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/arm64/kernel/entry-common.c>,
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/softirq.c#L500>
fn interrupts(name: &str) -> bool {
    const EXACT: &[&str] = &[
        "__do_softirq",
        "__irq_exit_rcu",
        "asm_common_interrupt",
        "call_on_irq_stack",
        "common_interrupt",
        "do_softirq",
        "do_softirq_own_stack",
        "el0_interrupt",
        "el0t_64_irq",
        "el1_interrupt",
        "el1h_64_irq",
        "generic_handle_irq",
        "handle_softirqs",
        "irq_exit_rcu",
    ];
    const PREFIXES: &[&str] = &["asm_sysvec_", "sysvec_", "asm_xen_"];
    EXACT.binary_search(&name).is_ok() || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl Profile {
    /// Gives samples their names.
    pub(super) fn resolve(
        collected: &Collected,
        kernel: io::Result<Kallsyms>,
        programs: &mut Programs,
    ) -> Self {
        let (kernel, nameless) = match kernel {
            Ok(kernel) => (kernel, None),
            Err(error) => (Kallsyms::default(), Some(error.to_string())),
        };
        look_up(collected, programs);
        let mut names =
            Names { kernel: &kernel, programs, collected, ids: HashMap::new(), frames: Vec::new() };
        let mut taken: Vec<AggregatedStack> = Vec::new();
        // Addresses differ where functions do not: equal ones are put together.
        let mut places: HashMap<(u32, u32, bool, bool, Vec<FrameId>), usize> = HashMap::new();
        for (stack, count) in &collected.stacks {
            let frames = names.of(stack);
            let key = (stack.cpu, stack.process, stack.in_kernel, stack.own, frames);
            match places.get(&key) {
                Some(&place) => {
                    taken[place].count += count;
                    *taken[place].blocks.entry(stack.block).or_default() += count;
                }
                None => {
                    taken.push(AggregatedStack {
                        cpu: stack.cpu,
                        process: stack.process,
                        context: context(stack, &key.4, &names.frames),
                        in_kernel: stack.in_kernel,
                        own: stack.own,
                        count: *count,
                        blocks: BTreeMap::from([(stack.block, *count)]),
                        frames: key.4.clone(),
                    });
                    places.insert(key, taken.len() - 1);
                }
            }
        }
        let processes = collected.processes.iter();
        Self {
            frames: names.frames,
            taken,
            lost: collected.lost,
            processes: processes.filter_map(|(id, p)| Some((*id, p.name.clone()?))).collect(),
            nameless,
        }
    }

    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id as usize]
    }
}

fn context(stack: &Stack, ids: &[FrameId], frames: &[Frame]) -> Context {
    let kernel = || ids.iter().map(|&id| &frames[id as usize]).filter(|frame| frame.kernel);
    let innermost = kernel().next().map_or("", |frame| frame.name.as_str());
    if kernel().any(|frame| interrupts(&frame.name)) {
        Context::Other
    } else if stack.process != 0 {
        Context::Task
    } else if HALT.binary_search(&innermost).is_ok() {
        Context::Idle
    } else {
        Context::Other
    }
}

/// The address of an instruction of the call that an address comes back from: the call may be the
/// last of its function.
fn called_at(place: usize, address: u64) -> u64 {
    if place == 0 { address } else { address - 1 }
}

/// Asks for all names of programs at once, as a file is read only once then.
fn look_up(collected: &Collected, programs: &mut Programs) {
    for (&process, known) in &collected.processes {
        let mut offsets: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        let mut mappings = HashMap::new();
        for (stack, _) in collected.stacks.iter().filter(|(stack, _)| stack.process == process) {
            for (place, &address) in stack.user.iter().enumerate() {
                let address = called_at(place, address);
                if let Some(mapping) = known.mappings.find(address) {
                    offsets.entry(&mapping.path).or_default().insert(mapping.offset_of(address));
                    mappings.insert(mapping.path.as_str(), mapping);
                }
            }
        }
        for (path, offsets) in offsets {
            if let Some(mapping) = mappings.get(path) {
                programs.look_up(process, mapping, &offsets.into_iter().collect::<Vec<_>>());
            }
        }
    }
}

/// Functions met so far.
struct Names<'a> {
    kernel: &'a Kallsyms,
    programs: &'a Programs,
    collected: &'a Collected,
    ids: HashMap<Frame, FrameId>,
    frames: Vec<Frame>,
}

impl Names<'_> {
    fn of(&mut self, stack: &Stack) -> Vec<FrameId> {
        let mut ids = Vec::with_capacity(stack.kernel.len() + stack.user.len() + 1);
        // Where the kernel could not walk its own stack, it was in the kernel all the same.
        if stack.in_kernel && stack.kernel.is_empty() {
            ids.push(self.id(UNKNOWN, "kernel", true));
        }
        for (place, &address) in stack.kernel.iter().enumerate() {
            let found = self.kernel.find(called_at(place, address));
            let (name, module) = match found {
                Some(function) => (function.name, function.module.unwrap_or("kernel")),
                None => (UNKNOWN, "kernel"),
            };
            ids.push(self.id(name, module, true));
        }
        let process = self.collected.processes.get(&stack.process);
        for (place, &address) in stack.user.iter().enumerate() {
            let address = called_at(place, address);
            let mapping = process.and_then(|process| process.mappings.find(address));
            let known = process.is_some_and(|process| !process.mappings.is_empty());
            match mapping {
                Some(mapping) => {
                    let name = self.programs.name(mapping, mapping.offset_of(address));
                    ids.push(self.id(name.unwrap_or(UNKNOWN), mapping.module(), false));
                }
                // A function without frame pointers left something else where they would be.
                None if known && place > 0 => break,
                None => {
                    let name = process.and_then(|process| process.name.as_deref());
                    ids.push(self.id(UNKNOWN, name.unwrap_or("[ended]"), false));
                    // One is enough to say that nothing is known.
                    break;
                }
            }
        }
        if ids.is_empty() {
            ids.push(self.id(UNKNOWN, UNKNOWN, false));
        }
        ids
    }

    fn id(&mut self, name: &str, module: &str, kernel: bool) -> FrameId {
        let name = if kernel { plain(name) } else { name };
        let frame = Frame { name: name.to_owned(), module: module.to_owned(), kernel };
        let next = self.frames.len() as FrameId;
        let id = *self.ids.entry(frame.clone()).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }
}

/// A function's name without what the compiler appended to a copy or part of it (`.isra.0`,
/// `.constprop.0`, `.cold`).
fn plain(name: &str) -> &str {
    match name.split_once('.') {
        Some((plain, _)) if !plain.is_empty() => plain,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "\
ffffffff81000000 T tcp_sendmsg
ffffffff81001000 t tcp_v4_rcv.isra.0
ffffffff81002000 T handle_softirqs
ffffffff81003000 T pv_native_safe_halt
ffffffff81004000 T do_idle
ffffffff81005000 T asm_sysvec_apic_timer_interrupt
ffffffff81006000 T asm_exc_page_fault
ffffffff81007000 T end
";

    fn stack(process: u32, kernel: &[u64], user: &[u64]) -> Stack {
        Stack {
            cpu: 0,
            process,
            in_kernel: !kernel.is_empty(),
            own: false,
            block: 0,
            kernel: kernel
                .iter()
                .map(|number| 0xffff_ffff_8100_0000 + (number << 12) + 16)
                .collect(),
            user: user.into(),
        }
    }

    fn resolved(stacks: Vec<(Stack, u64)>) -> Profile {
        let collected = Collected { stacks, ..Collected::default() };
        Profile::resolve(&collected, Ok(Kallsyms::parse(KERNEL)), &mut Programs::default())
    }

    #[test]
    fn a_halted_cpu_is_idle_and_one_that_is_interrupted_is_not() {
        for (stack, context) in [
            (stack(0, &[3, 4], &[]), Context::Idle),
            (stack(0, &[4], &[]), Context::Other),
            (stack(0, &[1, 2, 5, 3, 4], &[]), Context::Other),
            (stack(7, &[0], &[0x5000]), Context::Task),
            (stack(7, &[], &[0x5000]), Context::Task),
            (stack(7, &[1, 2, 0], &[0x5000]), Context::Other),
            (stack(7, &[1, 5], &[0x5000]), Context::Other),
            (stack(7, &[0, 6], &[0x5000]), Context::Task),
        ] {
            assert_eq!(resolved(vec![(stack.clone(), 1)]).taken[0].context, context, "{stack:?}");
        }
    }

    #[test]
    fn a_sample_in_the_kernel_without_its_stack_is_in_the_kernel() {
        let unwalked = Stack { in_kernel: true, ..stack(7, &[], &[0x5000]) };
        let profile = resolved(vec![(unwalked, 1)]);
        let frame = profile.frame(profile.taken[0].frames[0]);
        assert_eq!((frame.name.as_str(), frame.module.as_str()), (UNKNOWN, "kernel"));
        assert!(frame.kernel);
    }

    #[test]
    fn samples_of_the_same_functions_are_one() {
        let mut other = stack(7, &[1, 0], &[]);
        other.kernel[0] += 8;
        let profile = resolved(vec![(stack(7, &[1, 0], &[]), 2), (other, 3)]);
        assert_eq!(profile.taken.len(), 1);
        assert_eq!(profile.taken[0].count, 5);
        let names: Vec<&str> =
            profile.taken[0].frames.iter().map(|&id| profile.frame(id).name.as_str()).collect();
        assert_eq!(names, ["tcp_v4_rcv", "tcp_sendmsg"]);
    }

    #[test]
    fn what_has_no_name_is_kept_with_its_module() {
        let profile = resolved(vec![(stack(7, &[], &[0x5000, 0x6000]), 1)]);
        let frame = profile.frame(profile.taken[0].frames[0]);
        assert_eq!((frame.name.as_str(), frame.module.as_str()), (UNKNOWN, "[ended]"));
        let hidden = Profile::resolve(
            &Collected { stacks: vec![(stack(7, &[0], &[]), 1)], ..Collected::default() },
            Err(io::ErrorKind::PermissionDenied.into()),
            &mut Programs::default(),
        );
        assert_eq!(hidden.frame(hidden.taken[0].frames[0]).module, "kernel");
        assert!(hidden.nameless.is_some());
    }

    #[test]
    fn lists_are_sorted() {
        assert!(HALT.is_sorted());
        for name in ["__do_softirq", "handle_softirqs", "irq_exit_rcu", "common_interrupt"] {
            assert!(interrupts(name));
        }
        assert!(!interrupts("asm_exc_page_fault"));
        assert!(!interrupts("do_syscall_64"));
    }
}
