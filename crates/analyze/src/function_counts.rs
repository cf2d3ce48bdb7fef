//! How often samples found each function, over several runs.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::observe::{FoldedStack, FoldedStacks, FunctionsSection};

/// Samples of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// In the function or in what it calls.
    pub inclusive: u64,
    /// In the function itself.
    pub exclusive: u64,
}

/// Samples of all functions of the kernel, of one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionCounts {
    /// Busy samples, also those in no function of the kernel.
    pub samples: u64,
    /// Of them, samples of programs that are not wirecost, outside interrupts. Their functions are
    /// not counted.
    pub foreign: u64,
    pub functions: BTreeMap<String, Found>,
}

/// What frames of the kernel end in.
const KERNEL: &str = "_[k]";

const OWN: &str = "wirecost";

/// Threads of the kernel by the begin of their names, among which what the network does is not of
/// another program. The sampler calls `swapper` the idle task.
const KERNEL_THREADS: [&str; 8] =
    ["[idle task]", "ksoftirqd", "kworker", "napi/", "irq/", "rcu", "migration", "kthread"];

/// What a stack within an interrupt or softirq has among its frames.
const INTERRUPTS: [&str; 6] = [
    "handle_softirqs_[k]",
    "__do_softirq_[k]",
    "irq_exit_rcu_[k]",
    "__irq_exit_rcu_[k]",
    "common_interrupt_[k]",
    "el1_interrupt_[k]",
];

/// Whether another program asked for what a stack does. Packets arrive in the interrupts of any program.
fn is_foreign(stack: &str) -> bool {
    let program = stack.split(';').next().unwrap_or_default();
    let is_kernel = || KERNEL_THREADS.iter().any(|thread| program.starts_with(thread));
    program != OWN && !is_kernel() && !stack.split(';').any(|frame| INTERRUPTS.contains(&frame))
}

/// The stacks of what a run did, without those of other programs. Where no program has wirecost's name, any of them
/// may be wirecost, and all are kept.
pub fn own(stacks: &FoldedStacks) -> impl Iterator<Item = &FoldedStack> {
    let knows_own = knows_own(stacks);
    stacks.stacks.iter().filter(move |folded| !(knows_own && is_foreign(&folded.stack)))
}

fn knows_own(stacks: &FoldedStacks) -> bool {
    let is_own = |stack: &str| stack.split(';').next() == Some(OWN);
    stacks.stacks.iter().any(|folded| is_own(&folded.stack))
}

impl FunctionCounts {
    /// Adds the samples of a run: by their stacks, which know every function. A function that calls
    /// itself counts once.
    pub fn add(&mut self, section: &FunctionsSection) {
        self.samples += section.samples;
        // A program by another name may be wirecost.
        let knows_own = knows_own(&section.stacks);
        for folded in &section.stacks.stacks {
            if knows_own && is_foreign(&folded.stack) {
                self.foreign += folded.count;
                continue;
            }
            let frames = || folded.stack.split(';').filter_map(|frame| frame.strip_suffix(KERNEL));
            for function in frames().collect::<BTreeSet<_>>() {
                self.of(function).inclusive += folded.count;
            }
            let innermost = folded.stack.rsplit(';').next();
            if let Some(function) = innermost.and_then(|frame| frame.strip_suffix(KERNEL)) {
                self.of(function).exclusive += folded.count;
            }
        }
    }

    fn of(&mut self, function: &str) -> &mut Found {
        self.functions.entry(function.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_other_programs_are_counted_apart() {
        let folded = |stack: &str| FoldedStack { stack: stack.to_owned(), count: 1 };
        let stacks = [
            "wirecost;main;tcp_[k]",
            "python3;main;tcp_[k]",
            "python3;main;asm_common_interrupt_[k];common_interrupt_[k];tcp_[k]",
            "ksoftirqd/0;tcp_[k]",
            "[idle task];do_idle_[k];tcp_[k]",
        ];
        let mut section = FunctionsSection {
            samples: 5,
            stacks: FoldedStacks { stacks: stacks.map(folded).to_vec() },
            ..FunctionsSection::default()
        };
        let of = |section: &FunctionsSection| {
            let mut counts = FunctionCounts::default();
            counts.add(section);
            (counts.foreign, counts.functions["tcp"].inclusive)
        };
        assert_eq!(of(&section), (1, 4));
        assert_eq!(own(&section.stacks).count(), 4);
        // Of a program by another name nobody knows.
        section.stacks.stacks.remove(0);
        assert_eq!(of(&section), (0, 4));
        assert_eq!(own(&section.stacks).count(), 4);
    }

    #[test]
    fn a_stack_counts_once_per_function_and_as_self_for_the_innermost() {
        let folded = |stack: &str, count| FoldedStack { stack: stack.to_owned(), count };
        let stacks = FoldedStacks {
            stacks: vec![
                folded("wirecost;main;sys_[k];tcp_[k];copy_[k]", 3),
                folded("wirecost;main;sys_[k];tcp_[k];sys_[k]", 2),
                folded("wirecost;main", 5),
            ],
        };
        let section = FunctionsSection { samples: 10, stacks, ..FunctionsSection::default() };
        let mut counts = FunctionCounts::default();
        counts.add(&section);
        counts.add(&section);
        assert_eq!(counts.samples, 20);
        let found: Vec<(&str, Found)> =
            counts.functions.iter().map(|(name, found)| (name.as_str(), *found)).collect();
        assert_eq!(
            found,
            [
                ("copy", Found { inclusive: 6, exclusive: 6 }),
                ("sys", Found { inclusive: 10, exclusive: 4 }),
                ("tcp", Found { inclusive: 10, exclusive: 0 }),
            ]
        );
    }
}
