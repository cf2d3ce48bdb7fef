//! Network devices, and where their interrupts go.

use wirecost_model::doctor::Finding;
use wirecost_model::environment::{Device, Environment, Vector};
use wirecost_model::rss::{EQUAL, table_text};

use super::{Verdict, hardware, list, several_nodes, up};

const SILENT_DRIVER: &str = "the driver does not report it";
/// Drivers that ask for pause frames whatever is set, as long as they are negotiated
/// (<https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/igb/igb_ethtool.c>,
/// `igb_set_pauseparam`). Others offer what is set, and some refuse to switch the negotiation here
/// (`ice_set_pauseparam`), so it is left to them.
const NEGOTIATE_FIRST: [&str; 3] = ["e1000e", "igb", "igc"];
/// Root disciplines that delay or limit whatever passes.
const SHAPERS: [&str; 4] = ["netem", "tbf", "htb", "hfsc"];
/// Waiting longer for an interrupt shows in a latency over a fast network.
const LATE_INTERRUPT_US: u32 = 20;

pub(super) fn flow_control(environment: &Environment, verdict: &mut Verdict) {
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(flow_control) = device.flow_control else {
            verdict.unknown_of(name, SILENT_DRIVER);
            continue;
        };
        let (rx, tx) = (flow_control.rx, flow_control.tx);
        if !rx && !tx {
            continue;
        }
        let found = match (rx, tx) {
            (true, true) => "pause frames are enabled (receive and send)",
            (true, false) => "pause frames are enabled (receive)",
            _ => "pause frames are enabled (send)",
        };
        let word = |on| if on { "on" } else { "off" };
        let obstinate =
            device.driver.as_deref().is_some_and(|driver| NEGOTIATE_FIRST.contains(&driver));
        let (off, on) = match flow_control.negotiated && obstinate {
            true => (" autoneg off", " autoneg on"),
            false => ("", ""),
        };
        verdict.finding(
            Finding::problem(
                found,
                "a slow receiver stops its sender and all other senders behind the same switch port: \
                 this hides drops and lowers throughput",
            )
            .about(name)
            .fix(format!("ethtool -A {name}{off} rx off tx off"))
            .undo(format!("ethtool -A {name}{on} rx {} tx {}", word(rx), word(tx))),
        );
    }
}

pub(super) fn shaping(environment: &Environment, verdict: &mut Verdict) {
    for device in up(environment, verdict) {
        let Some(qdisc) = device.qdisc.as_deref().filter(|qdisc| SHAPERS.contains(qdisc)) else {
            continue;
        };
        let name = &device.name;
        verdict.finding(
            Finding::problem(
                format!("the queueing discipline is {qdisc}"),
                "it delays or limits what the device sends",
            )
            .about(name)
            .fix(format!("tc qdisc del dev {name} root"))
            .advice(format!("before, save the output of `tc qdisc show dev {name}`: there is no command to undo this")),
        );
    }
}

/// Features whose lack changes figures most, and what ethtool(8) calls them.
const OFFLOADS: [(&str, &str); 5] = [
    ("tx-tcp-segmentation", "tso"),
    ("tx-generic-segmentation", "gso"),
    ("rx-gro", "gro"),
    ("tx-scatter-gather", "sg"),
    ("rx-checksum", "rx"),
];

pub(super) fn offloads(environment: &Environment, verdict: &mut Verdict) {
    for device in up(environment, verdict) {
        let pair = device.kind.as_deref() == Some("veth");
        // A pair begins without GRO, which it needs less: what one end sends in large segments
        // arrives so at the other
        // (<https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c#L1499>).
        let needed = |feature: &str| !(pair && feature == "rx-gro");
        if device.bus.is_none() && !pair {
            continue;
        }
        let name = &device.name;
        let (Some(features), Some(changeable)) = (&device.features, &device.changeable_features)
        else {
            verdict.unknown_of(name, SILENT_DRIVER);
            continue;
        };
        let off: Vec<_> = OFFLOADS
            .iter()
            .filter(|(feature, _)| needed(feature) && features.get(*feature) == Some(&false))
            .filter(|(feature, _)| changeable.iter().any(|name| name == feature))
            .collect();
        if off.is_empty() {
            continue;
        }
        let names: Vec<&str> = off.iter().map(|(feature, _)| *feature).collect();
        let switch = |to| {
            let words: Vec<String> = off.iter().map(|(_, word)| format!(" {word} {to}")).collect();
            format!("ethtool -K {name}{}", words.concat())
        };
        verdict.finding(
            Finding::problem(
                format!("disabled offloads: {}", names.join(", ")),
                "the kernel processes each segment separately, which costs several times the cycles",
            )
            .about(name)
            .fix(switch("on"))
            .undo(switch("off")),
        );
    }
}

/// CPUs of the node of a device, where there are several nodes.
fn cpus_of_node<'a>(environment: &'a Environment, device: &Device) -> Option<&'a [u32]> {
    let node = device.numa_node?;
    let nodes = environment.cpu.numa_nodes.as_ref()?;
    nodes.iter().find(|known| known.node == node)?.cpus.as_deref().filter(|cpus| !cpus.is_empty())
}

pub(super) fn node(environment: &Environment, verdict: &mut Verdict) {
    if !several_nodes(environment) {
        return;
    }
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(near) = cpus_of_node(environment, device) else {
            verdict.unknown_of(name, "the firmware does not report its NUMA node");
            continue;
        };
        let Some(allowed) = &environment.process.allowed_cpus else {
            verdict.unknown_of(name, "the allowed CPUs are unknown");
            continue;
        };
        let far: Vec<u32> = allowed.iter().copied().filter(|cpu| !near.contains(cpu)).collect();
        if far.is_empty() {
            continue;
        }
        let node = device.numa_node.unwrap_or_default();
        let found = format!("it is on NUMA node {node}, remote from CPUs {}", list(&far));
        let why = "workers on remote CPUs have less throughput and more cycles per byte than workers \
                   on the node of the device";
        let all = far.len() == allowed.len();
        let finding = if all { Finding::problem(found, why) } else { Finding::note(found, why) };
        verdict.finding(
            finding
                .about(name)
                .fix(format!("taskset -c {} wirecost run ...", list(near)))
                .advice("the same for `wirecost agent`, if an agent runs on this host"),
        );
    }
}

pub(super) fn vector_node(environment: &Environment, verdict: &mut Verdict) {
    if !several_nodes(environment) {
        return;
    }
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(vectors) = &device.vectors else {
            verdict.unknown_of(name, "its interrupts are unknown");
            continue;
        };
        let Some(near) = cpus_of_node(environment, device) else { continue };
        let far: Vec<&Vector> = vectors
            .iter()
            .filter(|vector| {
                destinations(vector).is_some_and(|cpus| {
                    !cpus.is_empty() && cpus.iter().all(|cpu| !near.contains(cpu))
                })
            })
            .collect();
        if far.is_empty() {
            continue;
        }
        let irqs = numbers(&far);
        let finding = Finding::problem(
            format!(
                "{} of its {} interrupts go to CPUs of other NUMA nodes",
                far.len(),
                vectors.len()
            ),
            "packets are processed on another node than the memory that the device writes them to",
        )
        .about(name);
        let move_near = format!(
            "for irq in {irqs}; do echo {} > /proc/irq/$irq/smp_affinity_list; done",
            list(near)
        );
        verdict.finding(with_saved_affinity(finding, &irqs, move_near));
    }
}

pub(super) fn vector_spread(environment: &Environment, verdict: &mut Verdict) {
    let threads = environment.cpu.threads.unwrap_or(1);
    if threads < 2 {
        return;
    }
    for device in hardware(environment, verdict) {
        // One queue has one place to be.
        let queues = device.channels.map_or(1, |channels| channels.combined.max(channels.rx));
        let (Some(vectors), true) = (&device.vectors, queues > 1) else { continue };
        let Some(Some([only])) = vectors.first().map(destinations) else { continue };
        if vectors.len() < 2 || !vectors.iter().all(|v| destinations(v) == Some([*only].as_slice()))
        {
            continue;
        }
        let irqs = numbers(&vectors.iter().collect::<Vec<_>>());
        let finding = Finding::problem(
            format!("all its {} interrupts go to CPU {only}", vectors.len()),
            "one CPU processes all received packets and becomes the bottleneck",
        )
        .about(&device.name);
        let near = cpus_of_node(environment, device);
        let cpus = near.map_or_else(|| (0..threads).collect(), <[u32]>::to_vec);
        let words: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        let spread = format!(
            "set -- {}; for irq in {irqs}; do echo $1 > /proc/irq/$irq/smp_affinity_list; \
             set -- \"$@\" $1; shift; done",
            words.join(" ")
        );
        verdict.finding(with_saved_affinity(finding, &irqs, spread));
    }
}

/// CPUs to which an interrupt really goes; where the kernel does not say, those it may go to.
fn destinations(vector: &Vector) -> Option<&[u32]> {
    vector.effective_cpus.as_deref().or(vector.cpus.as_deref())
}

fn numbers(vectors: &[&Vector]) -> String {
    vectors.iter().map(|vector| vector.irq.to_string()).collect::<Vec<_>>().join(" ")
}

fn with_saved_affinity(finding: Finding, irqs: &str, fix: String) -> Finding {
    finding
        .fix(format!(
            "for irq in {irqs}; do grep -H . /proc/irq/$irq/smp_affinity_list; done > affinity.saved"
        ))
        .fix(fix)
        .undo("while IFS=: read -r file cpus; do echo $cpus > $file; done < affinity.saved")
}

pub(super) fn queues(environment: &Environment, verdict: &mut Verdict) {
    let threads = environment.cpu.threads.unwrap_or(1);
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(channels) = device.channels else {
            verdict.unknown_of(name, SILENT_DRIVER);
            continue;
        };
        for (kind, now, most) in [
            ("combined", channels.combined, channels.combined_max),
            ("rx", channels.rx, channels.rx_max),
        ] {
            let wanted = most.min(threads);
            if now == 0 || now >= wanted {
                continue;
            }
            let found = format!("it uses {now} of {most} {kind} queues, on {threads} CPUs");
            let why = "received packets are processed by only as many CPUs as there are queues";
            let finding =
                if now == 1 { Finding::problem(found, why) } else { Finding::note(found, why) };
            verdict.finding(
                finding
                    .about(name)
                    .fix(format!("ethtool -L {name} {kind} {wanted}"))
                    .undo(format!("ethtool -L {name} {kind} {now}")),
            );
        }
        let queues = (channels.combined + channels.rx) as usize;
        if let Some(rss) = device.rss.as_ref().filter(|rss| rss.queues() < queues) {
            let used = rss.queues();
            let found = format!("RSS spreads received packets over {used} of {queues} queues");
            let finding = Finding::note(found, "the CPUs of the other queues process no packets");
            let finding = finding.about(name).fix(format!("ethtool -X {name} equal {queues}"));
            let table = table_text(&rss.table);
            verdict.finding(match table.starts_with(EQUAL) {
                true => finding.undo(format!("ethtool -X {name} {table}")),
                false => finding.advice(format!(
                    "ethtool cannot restore this table; `--tune rss.table='equal {queues}'` of a run does"
                )),
            });
        }
    }
}

pub(super) fn rings(environment: &Environment, verdict: &mut Verdict) {
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(rings) = device.rings.filter(|rings| rings.rx_max > 0) else {
            verdict.unknown_of(name, SILENT_DRIVER);
            continue;
        };
        let missed = device.rx_missed.unwrap_or(0);
        let why = "the device drops packets of a burst that arrive while the CPU is busy";
        if rings.rx < rings.rx_max {
            let found =
                format!("the receive ring has {} of {} possible entries", rings.rx, rings.rx_max);
            let finding = match missed {
                0 => Finding::note(found, why),
                _ => Finding::problem(format!("{found}, and {missed} packets were dropped"), why),
            };
            verdict.finding(
                finding
                    .about(name)
                    .fix(format!("ethtool -G {name} rx {}", rings.rx_max))
                    .undo(format!("ethtool -G {name} rx {}", rings.rx)),
            );
        } else if missed > 0 {
            verdict.finding(
                Finding::note(
                    format!("{missed} packets were dropped although the receive ring has its maximum size"),
                    why,
                )
                .about(name)
                .advice("more queues, or workers on other CPUs than its interrupts, may help"),
            );
        }
    }
}

pub(super) fn coalescing(environment: &Environment, verdict: &mut Verdict) {
    for device in hardware(environment, verdict) {
        let name = &device.name;
        let Some(coalescing) = device.coalescing else {
            verdict.unknown_of(name, SILENT_DRIVER);
            continue;
        };
        let us = coalescing.rx_us;
        if coalescing.adaptive_rx {
            verdict.finding(
                Finding::note(
                    "adaptive interrupt coalescing is enabled",
                    "latency and packets per interrupt change with the load",
                )
                .about(name)
                .fix(format!("ethtool -C {name} adaptive-rx off"))
                .undo(format!("ethtool -C {name} adaptive-rx on")),
            );
        } else if us >= LATE_INTERRUPT_US {
            verdict.finding(
                Finding::note(
                    format!("interrupts are delayed by up to {us} us (coalescing)"),
                    "single messages arrive later; bulk throughput costs less",
                )
                .about(name)
                .fix(format!("ethtool -C {name} rx-usecs 0"))
                .undo(format!("ethtool -C {name} rx-usecs {us}"))
                .advice("change it to measure latency; keep it to measure throughput and its cost"),
            );
        }
    }
}
