//! Speed of the CPUs, and who else uses them.

use wirecost_model::doctor::Finding;
use wirecost_model::environment::Environment;

use super::{Verdict, hidden, list, several_nodes};

/// Waking from an idle state that takes longer shows in a latency over a fast network.
const SLOW_TO_WAKE_US: u64 = 10;
const STEAL_PERCENT: f64 = 1.0;
/// Parts of the CPUs that others use.
const BUSY: f64 = 0.75;
const NOT_IDLE: f64 = 0.25;

pub(super) fn turbo(environment: &Environment, verdict: &mut Verdict) {
    let cpu = &environment.cpu;
    let (Some(turbo), Some(setting)) = (cpu.turbo, &cpu.turbo_setting) else {
        verdict.unknown(hidden(environment, "the kernel has no setting for it"));
        return;
    };
    if turbo {
        // Intel's switch turns it off, all others turn it on.
        let (off, on) = if setting.ends_with("no_turbo") { (1, 0) } else { (0, 1) };
        verdict.finding(
            Finding::problem(
                "turbo is enabled",
                "the CPU frequency depends on temperature and on the number of busy cores, so the \
                 same work takes a different time in each run",
            )
            .fix(format!("echo {off} > {setting}"))
            .undo(format!("echo {on} > {setting}")),
        );
    }
}

pub(super) fn governor(environment: &Environment, verdict: &mut Verdict) {
    let Some(governors) = &environment.cpu.governors else {
        verdict.unknown(hidden(environment, "the kernel has no frequency governor"));
        return;
    };
    let others: Vec<&str> =
        governors.iter().map(String::as_str).filter(|&name| name != "performance").collect();
    if others.is_empty() {
        return;
    }
    let set = |governor| {
        format!("echo {governor} | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    };
    let finding = Finding::problem(
        format!("the frequency governor is {}", governors.join(" and ")),
        "CPUs speed up only after some time under load: short runs and low rates measure the \
         governor, not the network",
    )
    .fix(set("performance"));
    verdict.finding(match governors.as_slice() {
        [only] => finding.undo(set(only)),
        _ => finding
            .advice("the CPUs have different governors: `cpupower frequency-info` lists them"),
    });
}

pub(super) fn idle_states(environment: &Environment, verdict: &mut Verdict) {
    let Some(states) = &environment.cpu.idle_states else {
        verdict.unknown(hidden(environment, "the kernel has no idle states"));
        return;
    };
    let slow: Vec<_> = states
        .iter()
        .filter(|state| !state.disabled && state.latency_us >= SLOW_TO_WAKE_US)
        .collect();
    let Some(slowest) = slow.iter().max_by_key(|state| state.latency_us) else { return };
    verdict.finding(
        Finding::problem(
            format!("idle CPUs may enter the deep idle state {}", slowest.name),
            format!(
                "waking up takes up to {} us, which is added to the latency of messages that arrive \
                 at an idle CPU: latency is worse at low load",
                slowest.latency_us
            ),
        )
        .fix(format!("cpupower idle-set -D {SLOW_TO_WAKE_US}"))
        .undo("cpupower idle-set -E")
        .advice("cpupower comes with linux-cpupower, linux-tools or kernel-tools"),
    );
}

pub(super) fn steal(environment: &Environment, verdict: &mut Verdict) {
    let Some(percent) = environment.cpu.steal_percent else {
        verdict.unknown("/proc/stat cannot be read");
        return;
    };
    if percent >= STEAL_PERCENT {
        verdict.finding(
            Finding::problem(
                format!("the hypervisor gave {percent:.1}% of the CPU time to others since boot"),
                "stolen time appears as a cost of the network",
            )
            .advice("use a machine with dedicated CPUs; no setting of this machine fixes it"),
        );
    }
}

pub(super) fn quota(environment: &Environment, verdict: &mut Verdict) {
    let process = &environment.process;
    let (Some(quota), Some(setting)) = (process.quota_cpus, &process.quota_setting) else { return };
    let cpus = process.allowed_cpus.as_ref().map(Vec::len);
    if cpus.is_some_and(|cpus| quota >= cpus as f64) {
        return;
    }
    let unlimited = if setting.ends_with("cpu.max") { "max" } else { "-1" };
    let finding = Finding::problem(
        format!("a cgroup limits CPU time to {quota} CPUs"),
        "a throttled task stalls until the next period, for tens of milliseconds",
    )
    .fix(format!("echo {unlimited} > {setting}"));
    verdict.finding(match &process.quota_value {
        Some(value) => finding.undo(format!("echo '{value}' > {setting}")),
        None => finding,
    });
}

pub(super) fn busy_host(environment: &Environment, verdict: &mut Verdict) {
    let (Some(load), Some(threads)) = (environment.cpu.load, environment.cpu.threads) else {
        verdict.unknown("/proc/loadavg cannot be read");
        return;
    };
    let part = load / f64::from(threads.max(1));
    if part < NOT_IDLE {
        return;
    }
    let found = format!("the load average of the last minute is {load:.1}, on {threads} CPUs");
    let why = "other programs compete with the benchmark for CPU time and caches";
    let finding =
        if part >= BUSY { Finding::problem(found, why) } else { Finding::note(found, why) };
    verdict.finding(
        finding.advice("`ps -eo pcpu,pid,comm --sort=-pcpu | head` lists the busiest processes"),
    );
}

pub(super) fn clocksource(environment: &Environment, verdict: &mut Verdict) {
    let kernel = &environment.kernel;
    let (Some(current), Some(architecture)) = (&kernel.clocksource, &kernel.architecture) else {
        verdict.unknown("the clocksource is unknown");
        return;
    };
    // Other architectures have one clock, and it is a good one.
    if architecture != "x86_64" || current == "tsc" {
        return;
    }
    // Those of hypervisors are read without a system call, too.
    let fast = ["kvm-clock", "hyperv_clocksource_tsc_page"].contains(&current.as_str());
    let found = format!("the clocksource is {current}, not tsc");
    let finding = if fast {
        Finding::note(found, "without a PMU, cycles per byte cannot be measured")
    } else {
        Finding::problem(
            found,
            "each clock reading is a slow system call, and the load generator makes many of them",
        )
    };
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let has_tsc = kernel
        .available_clocksources
        .as_ref()
        .is_some_and(|available| available.iter().any(|name| name == "tsc"));
    verdict.finding(if has_tsc {
        finding.fix(format!("echo tsc > {file}")).undo(format!("echo {current} > {file}"))
    } else {
        finding.advice("the kernel does not offer tsc; `dmesg | grep -i tsc` shows the reason")
    });
}

pub(super) fn numa_balancing(environment: &Environment, verdict: &mut Verdict) {
    if !several_nodes(environment) {
        return;
    }
    match environment.sysctl_number("kernel.numa_balancing") {
        None => verdict.unknown("the kernel does not show kernel.numa_balancing"),
        Some(0) => {}
        Some(value) => verdict.finding(
            Finding::problem(
                "automatic NUMA balancing is enabled",
                "its page faults and migrations disturb a run at any time",
            )
            .fix("sysctl -w kernel.numa_balancing=0")
            .undo(format!("sysctl -w kernel.numa_balancing={value}")),
        ),
    }
}

pub(super) fn irqbalance(environment: &Environment, verdict: &mut Verdict) {
    if environment.cpu.threads == Some(1) {
        return;
    }
    match environment.cpu.irqbalance {
        None => verdict.unknown("processes of other users are hidden"),
        Some(false) => {}
        Some(true) => verdict.finding(
            Finding::problem(
                "irqbalance is running",
                "it moves interrupts to other CPUs during a run, and overrides affinities that were \
                 set by hand",
            )
            .fix("systemctl stop irqbalance")
            .undo("systemctl start irqbalance"),
        ),
    }
}

pub(super) fn smt(environment: &Environment, verdict: &mut Verdict) {
    let cpu = &environment.cpu;
    if cpu.smt != Some(true) {
        // Without the file there is no SMT to speak of.
        return;
    }
    let finding = Finding::note(
        "hardware threads share cores (SMT is enabled)",
        "two busy hardware threads slow each other down, so cycles per byte depend on the CPUs \
         that the load uses",
    );
    let control = "/sys/devices/system/cpu/smt/control";
    verdict.finding(match cpu.smt_control.as_deref() {
        Some("on") => {
            finding.fix(format!("echo off > {control}")).undo(format!("echo on > {control}"))
        }
        _ => {
            let cpus = cpu.threads.map_or_else(Vec::new, |threads| (0..threads).collect());
            finding.advice(format!(
                "use CPUs of different cores, of {}: `lscpu -e` lists them",
                list(&cpus)
            ))
        }
    });
}
