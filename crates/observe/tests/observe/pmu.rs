//! The probe `pmu`, on whatever counters this machine shows.

use wirecost_linux::{clock, environment, privilege, thread};
use wirecost_model::observe::{ObserveRequest, ObserverReport, Part, ProbeStatus};
use wirecost_observe::Observer;

/// Keeps the CPU busy for this long, by the clock of the thread.
fn burn(milliseconds: u64) {
    let end = clock::thread_cpu_time() + milliseconds * 1_000_000;
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

fn watch(probe: &str, cpu: u32) -> ObserverReport {
    let part = Part { cpus: Some(vec![cpu]), ..Part::default() };
    let mut observer =
        Observer::open(ObserveRequest { probes: vec![probe.to_owned()], parts: vec![part] });
    observer.attach();
    observer.begin();
    let load = std::thread::spawn(move || {
        thread::pin(cpu).unwrap();
        burn(200);
    });
    load.join().unwrap();
    observer.end();
    observer.detach();
    observer.take()
}

/// Cycles are counted where there is a PMU; elsewhere they are null with the reason, and never 0.
#[test]
fn a_busy_cpu_counts_cycles() {
    if privilege::skip_without_tracing("a_busy_cpu_counts_cycles") {
        return;
    }
    let cpu = thread::allowed_cpus().unwrap()[0];
    let seen = watch("pmu", cpu);
    let report = &seen.probes[0];
    let Some(pmu) = &seen.parts[0].pmu else {
        assert_eq!(report.status, ProbeStatus::No);
        assert!(report.reason.as_ref().unwrap().contains("PMU"), "{report:?}");
        return;
    };
    assert_eq!(report.status, ProbeStatus::Ready, "{report:?}");
    assert!(pmu.counted > 0.0 && pmu.counted <= 1.0, "{pmu:?}");
    // No CPU is as slow as this.
    assert!(pmu.cycles > 0.200 * 0.2e9, "{pmu:?}");
    assert!(pmu.cycles_kernel.is_none_or(|kernel| kernel < pmu.cycles), "{pmu:?}");
    assert!(pmu.instructions.is_none_or(|instructions| instructions > 0.0), "{pmu:?}");
}

#[test]
fn a_virtual_machine_is_left_in_peace_unless_somebody_insists() {
    if environment::virtual_machine() == Some(false) {
        return;
    }
    let seen = watch("pmu:basic", thread::allowed_cpus().unwrap()[0]);
    assert_eq!(seen.probes[0].status, ProbeStatus::No);
    assert!(seen.probes[0].reason.as_ref().unwrap().contains("virtual machine"));
    assert_eq!(seen.parts[0].pmu, None);
}
