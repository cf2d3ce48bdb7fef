//! How often samples found each function, over several runs.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::observe::FunctionsSection;

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
    pub functions: BTreeMap<String, Found>,
}

/// What frames of the kernel end in.
const KERNEL: &str = "_[k]";

impl FunctionCounts {
    /// Adds the samples of a run: by their stacks, which know every function. A function that calls
    /// itself counts once.
    pub fn add(&mut self, section: &FunctionsSection) {
        self.samples += section.samples;
        for folded in &section.stacks.stacks {
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
    use wirecost_model::observe::{FoldedStack, FoldedStacks};

    use super::*;

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
