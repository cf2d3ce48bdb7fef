//! What can be measured on a host: what its probes answered, what would help those that cannot do
//! all, and where cycles come from.

use wirecost_model::doctor::ProbeState;
use wirecost_model::environment::{CycleCounter, Environment};
use wirecost_model::observe::{ProbeReport, ProbeStatus};

/// Why something cannot be used, and what helps.
struct Obstacle {
    reason: String,
    fix: Option<String>,
}

/// A row a probe, as it answered, and one for cycles.
pub fn probes(environment: &Environment, answers: &[ProbeReport]) -> Vec<ProbeState> {
    let answered = answers.iter().map(|report| {
        let obstacle = match report.status {
            ProbeStatus::Ready => None,
            // The functions are sampled without BPF.
            _ if report.name == "functions" => sampling(environment),
            _ => bpf(environment),
        };
        let hint = obstacle.as_ref().map(|obstacle| obstacle.reason.clone());
        ProbeState {
            name: report.name.clone(),
            status: report.status,
            reason: report.reason.clone().or(hint),
            fix: obstacle.and_then(|obstacle| obstacle.fix),
        }
    });
    let mut rows: Vec<ProbeState> = answered.collect();
    let after_cpu = rows.iter().position(|row| row.name == "cpu").map_or(0, |place| place + 1);
    rows.insert(after_cpu, cycles(environment));
    rows
}

/// Whether BPF programs that watch the kernel can be loaded.
fn bpf(environment: &Environment) -> Option<Obstacle> {
    let obstacle = |reason: &str| Some(Obstacle { reason: reason.to_owned(), fix: None });
    if environment.kernel.btf == Some(false) {
        return obstacle("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)");
    }
    // <https://elixir.bootlin.com/linux/v6.12/source/include/linux/security.h#L142>.
    if environment.kernel.lockdown.as_deref() == Some("confidentiality") {
        return obstacle("kernel lockdown (confidentiality) forbids reading kernel memory");
    }
    rights(environment, &["cap_bpf", "cap_perfmon"])
}

/// Whether the functions that all CPUs run can be sampled, those of the kernel too
/// (<https://docs.kernel.org/admin-guide/perf-security.html>).
fn sampling(environment: &Environment) -> Option<Obstacle> {
    if environment.kernel.lockdown.as_deref() == Some("confidentiality") {
        return Some(Obstacle {
            reason: "kernel lockdown (confidentiality) forbids reading kernel memory".to_owned(),
            fix: None,
        });
    }
    let paranoid = environment.sysctl_number("kernel.perf_event_paranoid");
    if paranoid.is_some_and(|level| level < 0) {
        return None;
    }
    rights(environment, &["cap_perfmon"])
}

/// Whether the process has these rights, or the one that stands for all of them.
fn rights(environment: &Environment, wanted: &[&str]) -> Option<Obstacle> {
    let process = &environment.process;
    let has = |right| process.may(right) == Some(true);
    if process.capabilities.is_none() {
        let reason = "the capabilities of this process are unknown".to_owned();
        return Some(Obstacle { reason, fix: None });
    }
    if !has("cap_sys_admin") && !wanted.iter().all(|right| has(right)) {
        let names: Vec<String> = wanted.iter().map(|right| right.to_uppercase()).collect();
        return Some(Obstacle {
            reason: format!("needs root, or {}", names.join(" and ")),
            fix: Some("setcap cap_bpf,cap_perfmon=ep \"$(command -v wirecost)\"".to_owned()),
        });
    }
    (process.rights_hold_everywhere == Some(false)).then(|| Obstacle {
        reason: "the capabilities of this process apply only inside its container".to_owned(),
        fix: None,
    })
}

fn cycles(environment: &Environment) -> ProbeState {
    let cpu = &environment.cpu;
    let no_pmu = match cpu.cycle_counter {
        Some(CycleCounter::Counts) => None,
        Some(CycleCounter::Refused) => Some("this process may not use the PMU"),
        Some(CycleCounter::Absent) if cpu.virtual_machine == Some(true) => {
            Some("this virtual machine has no PMU")
        }
        Some(CycleCounter::Absent) => Some("there is no PMU"),
        None => Some("the PMU could not be checked"),
    };
    // The kernel leaves a counter whose CPUs do not agree.
    let tsc =
        cpu.constant_tsc == Some(true) && environment.kernel.clocksource.as_deref() == Some("tsc");
    let (status, reason) = match (no_pmu, tsc) {
        (None, true) if cpu.virtual_machine != Some(false) => (
            ProbeStatus::Ready,
            "TSC rate x busy time; the PMU is used only if probe `pmu` is requested, because it can \
             halve the throughput of a virtual machine"
                .to_owned(),
        ),
        (None, _) => (ProbeStatus::Ready, "counted by the PMU".to_owned()),
        (Some(why), true) => (
            ProbeStatus::Partial,
            format!("{why}; TSC rate x busy time is used instead"),
        ),
        (Some(why), false) => {
            (ProbeStatus::No, format!("{why}, and the clocksource is not a constant-rate TSC"))
        }
    };
    // Up to this level everybody may count his own cycles; a container's filter may refuse it
    // still.
    let refused = cpu.cycle_counter == Some(CycleCounter::Refused);
    let paranoid = environment.sysctl_number("kernel.perf_event_paranoid");
    let fix = (refused && paranoid.is_some_and(|level| level > 2))
        .then(|| "sysctl -w kernel.perf_event_paranoid=2".to_owned());
    ProbeState { name: "cycles".to_owned(), status, reason: Some(reason), fix }
}
