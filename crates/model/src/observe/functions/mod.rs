//! Which functions the CPUs were in.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, reading};
use crate::document::Section;
use crate::metric::Better::Neither;
use crate::metric::Unit::Percent;
use crate::proportion::Proportion;

/// The layer whose share of the cost is told where a profile encrypts.
pub const CRYPTO: &str = "crypto";

/// One layer of the way that data takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerShare {
    pub layer: String,
    /// Of the busy samples, 0 to 1.
    pub share: f64,
    /// 95% interval of `share`.
    pub interval: (f64, f64),
    /// Null until the cost of the host is known, or where it is not.
    pub cycles_per_kbyte: Option<f64>,
}

/// One function of the kernel or of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionShare {
    /// `[unknown]` where the module has no name for the address.
    pub name: String,
    pub layer: String,
    /// `kernel`, a module of it, `bpf`, or the file of a program or library.
    pub module: String,
    /// Share of the busy samples in the function itself, 0 to 1.
    pub exclusive: f64,
    /// The same with what it calls.
    pub inclusive: f64,
    /// 95% interval of `exclusive`.
    pub interval: (f64, f64),
    /// Of `exclusive`.
    pub cycles_per_kbyte: Option<f64>,
}

/// What the probe `functions` says. Shares are of busy samples: those that found the CPU in a task,
/// an interrupt or a softirq. How long a CPU was idle is not told by samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FunctionsSection {
    /// Samples a second of each CPU, as asked.
    pub hz: u32,
    /// Busy samples: those in the kernel and those in user space.
    pub samples: u64,
    pub kernel_samples: u64,
    pub user_samples: u64,
    /// Busy samples that the busy time of the CPUs asks for, without steal, where that time was traced.
    /// Virtual machines give fewer of CPUs that are idle now and then: a timer interrupt that comes late
    /// finds the CPU idle again, and on some of them it does not come after idle time.
    pub expected_samples: Option<u64>,
    /// Samples that the busy time of interrupt handlers on idle CPUs asks for, beyond these. A handler
    /// runs with interrupts off: the sampler's timer waits for its end, and then finds the CPU idle.
    /// Null as above, and in older records.
    #[serde(default)]
    pub hidden_samples: Option<u64>,
    /// Blocks of time by whose spread the intervals are widened: neighbouring samples are alike. Null
    /// where there were too few of them, and in older records.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// Samples of all CPUs that found no room.
    pub lost: u64,
    /// Most first. With `unmapped` they add up to 1.
    pub layers: Vec<LayerShare>,
    /// Those with the largest share, most first.
    pub functions: Vec<FunctionShare>,
    /// Share of the busy samples in functions of no layer; null without samples.
    pub unmapped: Option<f64>,
    /// The functions of no layer that were found most, by name.
    pub unmapped_functions: Vec<String>,
    /// Empty in the document of a record, beside which they are in `stacks.folded`.
    pub stacks: FoldedStacks,
}

impl FunctionsSection {
    /// The share of a layer, also of one in which no sample was, which is then 0 and so is its cost.
    /// `None` where there are no samples.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<LayerShare> {
        let nowhere = || {
            let Proportion { share, interval } = Proportion::of(0, self.samples);
            // What is known of one layer is known of all.
            let known = self.layers.first().and_then(|layer| layer.cycles_per_kbyte);
            let cycles_per_kbyte = known.map(|_| 0.0);
            LayerShare { layer: name.to_owned(), share, interval, cycles_per_kbyte }
        };
        let found = self.layers.iter().find(|layer| layer.layer == name).cloned();
        (self.samples > 0).then(|| found.unwrap_or_else(nowhere))
    }

    fn function(&self, name: &str, of: fn(&FunctionShare) -> f64) -> Result<f64, String> {
        let found = self.functions.iter().find(|function| function.name == name);
        let few = || format!("{name} is not among the functions that were found most");
        found.map(|function| 100.0 * of(function)).ok_or_else(few)
    }
}

impl Observation for FunctionsSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "layers.*.share",
            Percent,
            Neither,
            MetricScope::Cpus,
            "busy CPU time in one layer of the stack",
            Value::Named(|section, layer| {
                let found = section.layer(layer).ok_or("the sampler has no samples")?;
                Ok(100.0 * found.share)
            }),
        ),
        reading(
            "functions.*.inclusive",
            Percent,
            Neither,
            MetricScope::Cpus,
            "busy CPU time in a function and what it calls",
            Value::Named(|section, name| section.function(name, |f| f.inclusive)),
        ),
        reading(
            "functions.*.exclusive",
            Percent,
            Neither,
            MetricScope::Cpus,
            "busy CPU time in a function itself",
            Value::Named(|section, name| section.function(name, |f| f.exclusive)),
        ),
    ];

    /// Busy cycles are divided as the busy samples are.
    fn divide_cost(&mut self, cycles_per_kbyte_of_host: Option<f64>) {
        let cost = |share: f64| cycles_per_kbyte_of_host.map(|all| all * share);
        for layer in &mut self.layers {
            layer.cycles_per_kbyte = cost(layer.share);
        }
        for function in &mut self.functions {
            function.cycles_per_kbyte = cost(function.exclusive);
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

/// One stack and how often it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoldedStack {
    /// From the outermost frame, which is the name of the process, to the innermost, with `;`
    /// between them. Frames of the kernel end in `_[k]`.
    pub stack: String,
    pub count: u64,
}

/// All busy samples, as tools for flame graphs take them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FoldedStacks {
    /// In the order of their names.
    pub stacks: Vec<FoldedStack>,
}

impl FoldedStacks {
    /// A line each: the stack, a blank, the count.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines = self.stacks.iter().map(|folded| format!("{} {}\n", folded.stack, folded.count));
        lines.collect()
    }

    /// Reads such lines. Empty ones are left out.
    ///
    /// # Errors
    /// The first line, by number, that has no count.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut stacks = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let parsed = line
                .trim_end()
                .rsplit_once(' ')
                .and_then(|(stack, count)| Some((stack.trim_end(), count.parse().ok()?)));
            let (stack, count) = parsed.filter(|(stack, _)| !stack.is_empty()).ok_or(number + 1)?;
            stacks.push(FoldedStack { stack: stack.to_owned(), count });
        }
        Ok(Self { stacks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_stacks_are_read_as_they_are_written() {
        let folded = |stack: &str, count| FoldedStack { stack: stack.to_owned(), count };
        let stacks = FoldedStacks {
            stacks: vec![folded("iperf3;main;do_syscall_64_[k]", 3), folded("a b;<T as U>::f", 1)],
        };
        assert_eq!(FoldedStacks::parse(&stacks.to_text()), Ok(stacks));
        assert_eq!(FoldedStacks::parse("\n\n"), Ok(FoldedStacks::default()));
        assert_eq!(FoldedStacks::parse("a;b 1\na;c\n"), Err(2));
        assert_eq!(FoldedStacks::parse(" 7\n"), Err(1));
    }

    #[test]
    fn a_layer_without_samples_has_a_share_where_there_are_others() {
        let copy = LayerShare {
            layer: "copy".to_owned(),
            share: 1.0,
            interval: (0.9, 1.0),
            cycles_per_kbyte: Some(7.0),
        };
        let section = FunctionsSection {
            samples: 100,
            layers: vec![copy.clone()],
            ..FunctionsSection::default()
        };
        assert_eq!(section.layer("copy"), Some(copy));
        let none = section.layer(CRYPTO).unwrap();
        assert_eq!((none.share, none.cycles_per_kbyte), (0.0, Some(0.0)));
        assert!(none.interval.0 < 1e-9, "{none:?}");
        assert!(0.03 < none.interval.1 && none.interval.1 < 0.04, "{none:?}");
        assert_eq!(FunctionsSection::default().layer(CRYPTO), None);
    }

    #[test]
    fn the_cost_of_a_host_is_divided_by_shares() {
        let mut section = FunctionsSection {
            layers: vec![LayerShare {
                layer: "copy".to_owned(),
                share: 0.25,
                interval: (0.2, 0.3),
                cycles_per_kbyte: None,
            }],
            ..FunctionsSection::default()
        };
        section.divide_cost(Some(400.0));
        assert_eq!(section.layers[0].cycles_per_kbyte, Some(100.0));
        section.divide_cost(None);
        assert_eq!(section.layers[0].cycles_per_kbyte, None);
    }
}
