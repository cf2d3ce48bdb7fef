//! Which functions the CPUs were in, of the kernel and of programs, and in which layer.

mod layers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use wirecost_model::clock::Nanos;
use wirecost_model::observe::{
    CpuTime, FoldedStack, FoldedStacks, FunctionShare, FunctionsSection, HostObservation,
    LayerShare, Part,
};
use wirecost_model::proportion::Proportion;

use crate::probe::{Description, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::sampler::{AggregatedStack, Blocks, ByBlock, Context, FrameId, Profile, add_blocks};
use crate::tracker::EndedProcess;
use layers::Verdict;

/// Functions that are listed; all are in the stacks.
const LISTED: usize = 60;
/// Of them, those that are listed for what they call.
const CALLING: usize = 15;

/// Functions of no layer that are named.
const NAMED: usize = 10;

/// Name of a layer in the row of a function that is in none.
const UNMAPPED: &str = "unmapped";

#[derive(Debug)]
pub(crate) struct Functions;

impl Probe for Functions {
    fn name(&self) -> &'static str {
        "functions"
    }

    fn about(&self) -> Description {
        Description {
            tells: "share of busy time in each function of the kernel and of programs, including \
                    softirqs, and in each layer; stacks for flame graphs",
            needs: "perf events: root, CAP_PERFMON, or kernel.perf_event_paranoid=0; addresses of \
                    kernel functions (CAP_SYSLOG, or kernel.kptr_restrict=0); no BPF",
            costs: "a timer interrupt 99 times per second on each CPU, which walks the stack",
            limitations: "time with interrupts disabled appears where they are enabled again; stacks of \
                    programs without frame pointers are truncated; inlined functions count to \
                    their callers; with a process, samples include softirqs that interrupted it",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Whole), full: Some(Extent::Whole) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        shared.need_sampler()?;
        Ok(Box::new(Watch::default()))
    }
}

#[derive(Debug, Default)]
struct Watch {
    missing: Vec<String>,
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        shared.sampler_error().map_or(Ok(()), |error| Err(Unavailable::Other(error.to_owned())))
    }

    fn begin(&mut self, _shared: &Shared, _at: Nanos) {
        self.missing.clear();
    }

    fn fill(&mut self, shared: &Shared, part: &Part, into: &mut HostObservation) {
        self.missing.clear();
        if let Some(error) = shared.sampler_error() {
            self.missing.push(error.to_owned());
        }
        let Some(sampler) = shared.sampler() else { return };
        let Some(profile) = sampler.profile() else { return };
        if let Some(reason) = &profile.nameless {
            self.missing.push(format!("kernel functions have no names: {reason}"));
        }
        if profile.lost > 0 {
            self.missing.push(format!(
                "{} samples were lost because the ring buffer was full",
                profile.lost
            ));
        }
        let mut section =
            section(profile, &shared.ended().unwrap_or_default(), sampler.per_second(), part);
        // Of one process the busy time of the CPUs says nothing.
        let traced = into.cpu.as_ref().filter(|cpu| cpu.source == "bpf" && part.pid.is_none());
        let samples = |seconds: f64| (seconds.max(0.0) * f64::from(section.hz)).round() as u64;
        section.expected_samples = traced.map(|cpu| samples(seen(&cpu.total)));
        section.hidden_samples = traced.map(|cpu| samples(hidden(&cpu.total)));
        into.functions = Some(section);
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

/// Busy time in which the sampler's timer can find a CPU: while the hypervisor runs others on it, which
/// counts as busy time of the task that was on it, no timer expires.
fn seen(of: &CpuTime) -> f64 {
    of.task + of.irq + of.softirq - hidden(of) - of.steal.unwrap_or(0.0)
}

/// Of a handler on an idle CPU the sampler finds the idle CPU, when the handler has returned.
fn hidden(of: &CpuTime) -> f64 {
    of.irq_in_idle.unwrap_or(0.0)
}

/// Every layer of the section, and what is in it.
pub fn layers() -> impl Iterator<Item = (&'static str, &'static str)> {
    layers::ALL.iter().map(|layer| (layer.name, layer.holds))
}

/// How often a function was found.
#[derive(Debug, Clone, Default)]
struct Found {
    exclusive: u64,
    inclusive: u64,
    /// Samples by layer in which it was the innermost; none is the last.
    layers: BTreeMap<Option<usize>, u64>,
    /// Samples in which it was the innermost, by block.
    blocks: ByBlock,
}

/// Processes that ended in the window, by number.
type Ended = BTreeMap<u32, EndedProcess>;

/// The section of a part of the machine.
fn section(profile: &Profile, ended: &Ended, per_second: u32, part: &Part) -> FunctionsSection {
    let verdicts: Vec<(Verdict, bool)> = profile.frames.iter().map(layers::classify).collect();
    let mut found: HashMap<FrameId, Found> = HashMap::new();
    let mut by_layer = vec![ByBlock::new(); layers::ALL.len()];
    let mut by_block = ByBlock::new();
    let mut unmapped: HashMap<FrameId, u64> = HashMap::new();
    let (mut kernel, mut all) = (0, 0);
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for taken in profile.taken.iter().filter(|taken| is_of(taken, part)) {
        all += taken.count;
        add_blocks(&mut by_block, &taken.blocks);
        kernel += if taken.in_kernel { taken.count } else { 0 };
        let layer = layer(profile, taken, &verdicts);
        let innermost = taken.frames.first().copied().unwrap_or_default();
        match layer {
            Some(layer) => add_blocks(&mut by_layer[layer], &taken.blocks),
            None => *unmapped.entry(innermost).or_default() += taken.count,
        }
        let function = found.entry(innermost).or_default();
        function.exclusive += taken.count;
        add_blocks(&mut function.blocks, &taken.blocks);
        *function.layers.entry(layer).or_default() += taken.count;
        for id in taken.frames.iter().collect::<HashSet<_>>() {
            found.entry(*id).or_default().inclusive += taken.count;
        }
        *folded.entry(fold(profile, ended, taken)).or_default() += taken.count;
    }
    let blocks = Blocks::of(&by_block);
    let mut layers: Vec<LayerShare> = layers::ALL
        .iter()
        .zip(&by_layer)
        .filter(|(_, found)| !found.is_empty())
        .map(|(layer, found)| {
            let Proportion { share, interval } = blocks.proportion(found);
            let layer = layer.name.to_owned();
            LayerShare { layer, share, interval, cycles_per_kbyte: None }
        })
        .collect();
    layers.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.layer.cmp(&b.layer)));
    FunctionsSection {
        hz: per_second,
        samples: all,
        kernel_samples: kernel,
        user_samples: all - kernel,
        expected_samples: None,
        hidden_samples: None,
        blocks: Proportion::widened_by(blocks.number()).then_some(blocks.number() as u32),
        lost: profile.lost,
        layers,
        functions: rows(profile, &verdicts, &found, all, &blocks),
        unmapped: (all > 0).then(|| unmapped.values().sum::<u64>() as f64 / all as f64),
        unmapped_functions: most(&unmapped)
            .take(NAMED)
            .map(|id| profile.frame(id).name.clone())
            .collect(),
        stacks: FoldedStacks {
            stacks: folded.into_iter().map(|(stack, count)| FoldedStack { stack, count }).collect(),
        },
    }
}

fn is_of(taken: &AggregatedStack, part: &Part) -> bool {
    taken.context != Context::Idle
        && part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&taken.cpu))
        && part.pid.is_none_or(|pid| pid == taken.process)
}

fn layer(
    profile: &Profile,
    taken: &AggregatedStack,
    verdicts: &[(Verdict, bool)],
) -> Option<usize> {
    if taken.own {
        return Some(layers::index(layers::OBSERVER));
    }
    // Time in the kernel is not the application's, also where no function of the kernel has a
    // layer.
    let frames = taken.frames.iter().filter(|id| !taken.in_kernel || profile.frame(**id).kernel);
    layers::layer_of(frames.map(|&id| verdicts[id as usize]))
}

/// Ids by how often, most first; of equal ones the lower.
fn most(counts: &HashMap<FrameId, u64>) -> impl Iterator<Item = FrameId> {
    let mut sorted: Vec<(FrameId, u64)> = counts.iter().map(|(&id, &count)| (id, count)).collect();
    sorted.sort_by_key(|(id, count)| (Reverse(*count), *id));
    sorted.into_iter().map(|(id, _)| id)
}

/// Functions with the largest share of their own; and some with the largest share of what they
/// call, which may have none of their own.
fn rows(
    profile: &Profile,
    verdicts: &[(Verdict, bool)],
    found: &HashMap<FrameId, Found>,
    all: u64,
    blocks: &Blocks,
) -> Vec<FunctionShare> {
    let mut listed: Vec<(&FrameId, &Found)> = found.iter().collect();
    listed.sort_by_key(|(id, found)| (Reverse((found.exclusive, found.inclusive)), **id));
    if let Some(rest) = listed.get_mut(LISTED - CALLING..) {
        rest.sort_by_key(|(id, found)| (Reverse((found.inclusive, found.exclusive)), **id));
    }
    listed.truncate(LISTED);
    listed.sort_by_key(|(id, found)| (Reverse((found.exclusive, found.inclusive)), **id));
    listed
        .into_iter()
        .map(|(&id, found)| {
            // A helper is of several layers: told is that of most of its samples.
            let own = match verdicts[id as usize].0 {
                Verdict::Layer(layer) => Some(layer),
                Verdict::Caller | Verdict::Nothing => None,
            };
            let most = found.layers.iter().max_by_key(|(_, count)| **count);
            let layer = most.map_or(own, |(layer, _)| *layer);
            let frame = profile.frame(id);
            let exclusive = blocks.proportion(&found.blocks);
            FunctionShare {
                name: frame.name.clone(),
                layer: layer.map_or(UNMAPPED, |layer| layers::ALL[layer].name).to_owned(),
                module: frame.module.clone(),
                exclusive: exclusive.share,
                inclusive: Proportion::of(found.inclusive, all).share,
                interval: exclusive.interval,
                cycles_per_kbyte: None,
            }
        })
        .collect()
}

/// The stack from the process inwards, as tools for flame graphs take it.
fn fold(profile: &Profile, ended: &Ended, taken: &AggregatedStack) -> String {
    let alive = |process| profile.processes.get(&process).map(String::as_str);
    let ended = |process| ended.get(&process).map(|process| process.name.as_str());
    let process = match taken.process {
        0 => "[idle task]",
        process => alive(process).or_else(|| ended(process)).unwrap_or("[ended]"),
    };
    // What separates frames and counts may not be in their names.
    let clean = |name: &str| name.replace(';', ":").replace(['\n', '\r'], " ");
    let mut text = clean(process);
    for &id in taken.frames.iter().rev() {
        let frame = profile.frame(id);
        text.push(';');
        text += &clean(&frame.name);
        if frame.kernel {
            text += "_[k]";
        } else if frame.name == crate::sampler::UNKNOWN {
            text += &format!(" ({})", clean(&frame.module));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Frame;

    fn profile(taken: &[(u32, u32, u64, &[&str])]) -> Profile {
        let mut profile = Profile::default();
        profile.processes.insert(7, "app;1".to_owned());
        for (cpu, process, count, names) in taken {
            let frames = names
                .iter()
                .map(|name| {
                    let kernel = !name.starts_with("user_");
                    let module = if kernel { "kernel" } else { "app" };
                    let frame =
                        Frame { name: (*name).to_owned(), module: module.to_owned(), kernel };
                    let known = profile.frames.iter().position(|known| *known == frame);
                    known.unwrap_or_else(|| {
                        profile.frames.push(frame);
                        profile.frames.len() - 1
                    }) as FrameId
                })
                .collect();
            profile.taken.push(AggregatedStack {
                cpu: *cpu,
                process: *process,
                context: if names[0] == "default_idle" { Context::Idle } else { Context::Task },
                in_kernel: !names[0].starts_with("user_"),
                own: false,
                blocks: BTreeMap::from([(0, *count)]),
                count: *count,
                frames,
            });
        }
        profile
    }

    fn sampled() -> Profile {
        profile(&[
            (0, 7, 30, &["_copy_from_iter", "tcp_sendmsg", "do_syscall_64", "user_main"]),
            (0, 7, 50, &["tcp_sendmsg", "do_syscall_64", "user_main"]),
            (1, 7, 10, &["user_main"]),
            (1, 8, 10, &["odd_function", "odd_function", "do_syscall_64", "user_x"]),
            (1, 0, 500, &["default_idle", "do_idle"]),
        ])
    }

    #[test]
    fn no_samples_are_expected_of_time_that_the_hypervisor_took() {
        let busy = CpuTime { task: 5.0, irq: 1.0, softirq: 2.0, ..CpuTime::default() };
        assert_eq!(seen(&busy), 8.0);
        let busy = CpuTime { irq_in_idle: Some(0.5), steal: Some(3.0), ..busy };
        assert_eq!((seen(&busy), hidden(&busy)), (4.5, 0.5));
    }

    #[test]
    fn shares_are_of_busy_samples_and_add_up() {
        let section = section(&sampled(), &Ended::new(), 99, &Part::default());
        assert_eq!((section.samples, section.kernel_samples, section.user_samples), (100, 90, 10));
        let layer = |name: &str| section.layers.iter().find(|l| l.layer == name).unwrap().share;
        assert_eq!((layer("copy"), layer("TCP/UDP"), layer("application")), (0.3, 0.5, 0.1));
        assert_eq!(section.unmapped, Some(0.1));
        assert_eq!(section.unmapped_functions, ["odd_function"]);
        assert_eq!(section.layers[0].layer, "TCP/UDP");
        let sum: f64 = section.layers.iter().map(|layer| layer.share).sum();
        assert!((sum + section.unmapped.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn time_in_the_kernel_is_not_of_the_application() {
        let helper = "memcmp";
        assert_eq!(
            layers::classify(&Frame {
                name: helper.to_owned(),
                module: "kernel".to_owned(),
                kernel: true
            })
            .0,
            Verdict::Caller
        );
        let profile = profile(&[(0, 7, 1, &[helper, "user_main"]), (0, 7, 3, &["user_main"])]);
        let section = section(&profile, &Ended::new(), 99, &Part::default());
        let application = section.layers.iter().find(|l| l.layer == "application").unwrap();
        assert_eq!((application.share, section.unmapped), (0.75, Some(0.25)));
    }

    #[test]
    fn what_a_function_calls_is_inclusive() {
        let section = section(&sampled(), &Ended::new(), 99, &Part::default());
        let row = |name: &str| section.functions.iter().find(|f| f.name == name).unwrap();
        assert_eq!((row("tcp_sendmsg").exclusive, row("tcp_sendmsg").inclusive), (0.5, 0.8));
        assert_eq!((row("do_syscall_64").exclusive, row("do_syscall_64").inclusive), (0.0, 0.9));
        // Twice in one stack is once in its share.
        assert_eq!(row("odd_function").inclusive, 0.1);
        assert_eq!(row("odd_function").layer, UNMAPPED);
        assert_eq!(section.functions[0].name, "tcp_sendmsg");
    }

    #[test]
    fn a_part_has_its_cpus_or_its_process() {
        let of = |part: Part| section(&sampled(), &Ended::new(), 99, &part).samples;
        assert_eq!(of(Part { cpus: Some(vec![1]), ..Part::default() }), 20);
        assert_eq!(of(Part { pid: Some(7), ..Part::default() }), 90);
        let nothing =
            section(&sampled(), &Ended::new(), 99, &Part { pid: Some(9), ..Part::default() });
        assert_eq!((nothing.samples, nothing.unmapped), (0, None));
    }

    #[test]
    fn stacks_are_folded_from_the_process_inwards() {
        let section = section(&sampled(), &Ended::new(), 99, &Part::default());
        let text = section.stacks.to_text();
        assert!(
            text.contains(
                "app:1;user_main;do_syscall_64_[k];tcp_sendmsg_[k];_copy_from_iter_[k] 30\n"
            ),
            "{text}"
        );
        assert!(text.contains("[ended];user_x;"));
        assert_eq!(FoldedStacks::parse(&text), Ok(section.stacks));
        let process = EndedProcess { name: "date".to_owned(), kernel_thread: false, time: 1 };
        let ended = Ended::from([(8, process)]);
        let named = super::section(&sampled(), &ended, 99, &Part::default()).stacks.to_text();
        assert!(named.contains("date;user_x;"), "{named}");
    }
}
