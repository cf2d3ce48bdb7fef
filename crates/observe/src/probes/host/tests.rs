//! The section of a machine between two readings, with known answers.

use wirecost_linux::hardware::{Energy, IdleUse, Throttle};
use wirecost_linux::tsc::TscReading;
use wirecost_model::observe::ResidencyScope;

use super::*;
use clock::ClockCounts;

const SECOND: Nanos = 1_000_000_000;

/// Counters of no machine: the reasons are those of a virtual one.
fn no_counters() -> Counters {
    Counters::open(Path::new("/nowhere"), &[])
}

fn of(edges: &[Snapshot; 2], clocks: &Clocks) -> HardwareSection {
    section(edges, clocks, &no_counters(), |_| true)
}

fn at(seconds: u64, files: HardwareReading, counted: Counted) -> Snapshot {
    Snapshot { at: seconds * SECOND, files, counted }
}

#[test]
fn a_machine_that_tells_nothing_says_so_and_has_no_zeros() {
    let edges = [1, 3].map(|second| at(second, HardwareReading::default(), Counted::default()));
    let section = of(&edges, &Clocks::default());
    let expected = HardwareSection {
        clock_reason: Some("the CPU shows no APERF and MPERF (PMU `msr`); no cpufreq".to_owned()),
        idle_reason: Some("the kernel has no cpuidle".to_owned()),
        residency_reason: Some("no PMU `cstate_core` or `cstate_pkg`".to_owned()),
        throttling_reason: Some("the kernel shows no thermal_throttle".to_owned()),
        power_reason: Some("no counters of energy (PMU `power`); no readable powercap".to_owned()),
        memory_reason: Some("no counters of memory controllers (PMUs `uncore_imc`)".to_owned()),
        ..HardwareSection::default()
    };
    assert_eq!(section, expected);
}

#[test]
fn clock_idle_heat_power_and_memory_are_those_of_the_window() {
    let idle = |entries, microseconds| {
        let state = |name: &str, entries, microseconds| IdleUse {
            name: name.to_owned(),
            entries,
            microseconds,
        };
        vec![state("POLL", 0, 0), state("C6", entries, microseconds)]
    };
    let throttle = |core, package, ms| Throttle {
        package: Some(0),
        core_events: Some(core),
        core_ms: Some(ms),
        package_events: Some(package),
        package_ms: None,
    };
    let energy =
        |microjoules| Energy { domain: "package-0".to_owned(), microjoules, range: Some(1 << 40) };
    let settings = |governor: &str, khz, turbo| FrequencySettings {
        governor: [0, 1].map(|cpu| (cpu, governor.to_owned())).into(),
        max_khz: [(0, 3_500_000), (1, khz)].into(),
        turbo: Some(turbo),
        ..FrequencySettings::default()
    };
    let before = HardwareReading {
        idle: [(0, idle(5, 1_000_000))].into(),
        throttle: [(0, throttle(3, 7, 100)), (1, throttle(0, 7, 0))].into(),
        energy: vec![energy(1_000_000)],
        settings: settings("performance", 3_500_000, true),
    };
    let after = HardwareReading {
        idle: [(0, idle(105, 1_500_000))].into(),
        throttle: [(0, throttle(5, 8, 140)), (1, throttle(1, 8, 20))].into(),
        energy: vec![energy(161_000_000)],
        settings: settings("powersave", 2_000_000, false),
    };
    let bytes =
        |read, written| Counted { memory_bytes: Some((read, written)), ..Counted::default() };
    let counts = |busy_seconds: u64| {
        // At 3 GHz while it was busy; the TSC runs at 2 GHz.
        let counts = ClockCounts {
            aperf: busy_seconds * 3_000_000_000,
            mperf: busy_seconds * 2_000_000_000,
            tsc: 2 * busy_seconds * 2_000_000_000,
        };
        ClockReading::Counted([(0, counts)].into())
    };
    let clocks = Clocks::of([(SECOND, counts(1)), (3 * SECOND, counts(2))].iter());
    let edges = [at(1, before, bytes(1000.0, 0.0)), at(3, after, bytes(5000.0, 600.0))];
    let section = of(&edges, &clocks);
    let [cpu] = section.cpus.as_slice() else { panic!("{section:?}") };
    let clock = cpu.clock.unwrap();
    assert_eq!((clock.min_ghz, clock.mean_ghz, clock.max_ghz), (3.0, 3.0, 3.0));
    assert_eq!(cpu.busy_percent, Some(50.0));
    let states: Vec<_> =
        cpu.idle_states.as_ref().unwrap().iter().map(|of| (of.percent, of.entries)).collect();
    assert_eq!(states, [(0.0, 0), (25.0, 100)]);
    let expected = Throttling { core_events: 3, package_events: 1, milliseconds: Some(40) };
    assert_eq!(section.throttling, Some(expected));
    let expected = vec![Power { domain: "package-0".to_owned(), watts: 80.0 }];
    assert_eq!(section.power, Some(expected));
    let memory = section.memory.unwrap();
    assert_eq!((memory.read_bytes_per_second, memory.write_bytes_per_second), (2000.0, 300.0));
    let changes: Vec<String> = section.changes.iter().map(ToString::to_string).collect();
    let expected = [
        "turbo from on to off",
        "governor of CPU 0-1 from performance to powersave",
        "highest frequency of CPU 1 from 3.50 GHz to 2.00 GHz",
    ];
    assert_eq!(changes, expected);
    assert_eq!(section.settings.governors, Some(vec!["powersave".to_owned()]));
    assert_eq!((section.settings.turbo, section.settings.max_ghz), (Some(false), Some(3.5)));
    let reasons = [&section.clock_reason, &section.idle_reason, &section.throttling_reason];
    assert!(reasons.iter().all(|reason| reason.is_none()), "{section:?}");
    assert_eq!((section.power_reason, section.memory_reason), (None, None));
}

#[test]
fn joules_of_counters_come_before_those_of_files() {
    let files = |microjoules| HardwareReading {
        energy: vec![Energy { domain: "package-0".to_owned(), microjoules, range: None }],
        ..HardwareReading::default()
    };
    let joules = |joules| Counted {
        joules: [("package-0".to_owned(), joules)].into(),
        ..Counted::default()
    };
    let edges = [at(0, files(0), joules(5.0)), at(2, files(9), joules(25.0))];
    let power = of(&edges, &Clocks::default()).power.unwrap();
    assert_eq!(power, [Power { domain: "package-0".to_owned(), watts: 10.0 }]);
}

#[test]
fn c_states_are_shares_of_the_ticks_that_passed() {
    let counted = |tsc, c6: f64, pc2: f64| Counted {
        cstates: [
            ((ResidencyScope::Core, 3, "C6".to_owned()), c6),
            ((ResidencyScope::Package, 0, "C2".to_owned()), pc2),
        ]
        .into(),
        tsc: Some(TscReading { count: tsc, at: 0, error: 0 }),
        ..Counted::default()
    };
    let before = counted(1_000, 10.0, 0.0);
    let percents = |after: &Counted| {
        let all = residency(&before, after).unwrap();
        all.into_iter().map(|of| (of.scope, of.cpu, of.state, of.percent)).collect::<Vec<_>>()
    };
    let (core, package) = (ResidencyScope::Core, ResidencyScope::Package);
    let expected = [(core, 3, "C6".to_owned(), 25.0), (package, 0, "C2".to_owned(), 5.0)];
    assert_eq!(percents(&counted(3_000, 510.0, 100.0)), expected);
    // A counter that is read later than the clock may have more ticks than passed.
    assert_eq!(percents(&counted(3_000, 2_100.0, 100.0))[0].3, 100.0);
    assert_eq!(residency(&before, &Counted { tsc: None, ..before.clone() }), None);
    assert_eq!(residency(&before, &before), None, "no time passed");
    assert_eq!(residency(&Counted::default(), &before), None);
}
