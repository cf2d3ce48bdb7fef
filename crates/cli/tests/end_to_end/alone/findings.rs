//! What studies show whose limits differ by construction: the same traffic over a slow link, and over
//! one as fast as the CPUs can.

use wirecost_analyze::findings::{Finding, findings};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_model::run::Run;
use wirecost_store::study::Study;

use super::kept_disturbances;
use crate::attempts::undisturbed;
use crate::program::Program;

/// Each connection offers the same, so that it takes several to fill anything.
const PROFILE: &str = r#"<?xml version="1.0"?>
<profile name="paced">
  <group nthreads="$connections">
    <transaction iterations="1">
      <flowop type="connect" options="remotehost=$h protocol=tcp"/>
    </transaction>
    <transaction duration="1s">
      <flowop type="write" options="size=$size"/>
      <flowop type="think" options="idle duration=$pause"/>
    </transaction>
    <transaction iterations="1">
      <flowop type="disconnect"/>
    </transaction>
  </group>
</profile>
"#;

const STUDY: &str = r#"
    title = "Limits"
    profile = "paced.xml"
    place = "lab"
    repeat.times = 10
    set.observe = "cpu"
"#;

/// 13 Mb/s of each connection. What is in the queue of the link as the window begins and ends is a small
/// part of what goes over it in a second.
const OVER_A_LINK: &str = r#"
    set.duration = "1s"
    set.ramp = "500ms"
    lab.rate = "100mbit"
    axes.connections = [1, 4, 32, 64]
    set.size = "16k"
    set.pause = "10ms"
"#;

/// Some 1000 small writes a second of each connection.
const OVER_CPUS: &str = r#"
    set.duration = "300ms"
    set.ramp = "200ms"
    axes.connections = [1, 16, 512, 1024]
    set.size = "512"
    set.pause = "1ms"
"#;

/// A standard deviation of throughput at a point, relative to its mean, with which a study finds a
/// plateau in over 99% of simulated repeats (`analyze/tests/findings/power.rs`). Where a shared machine repeats
/// itself worse, there may be none.
const NOISE: f64 = 0.02;

fn noise(study: &Measurements) -> f64 {
    let of = |point: &MeasuredPoint| {
        let of_run = |run: &Run| run.throughput.as_ref().unwrap().bits_per_second;
        let values: Vec<f64> = point.runs.iter().map(of_run).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value / mean - 1.0).powi(2)).sum();
        (squares / (values.len() - 1) as f64).sqrt()
    };
    study.points.iter().map(of).fold(0.0, f64::max)
}

/// A study, where throughput stops growing in it, and its report.
fn saturation(own: &str) -> (Measurements, Option<Finding>, String) {
    let run = || {
        Program::new(["study", "run", "s.toml", "--out", "kept", "--quiet", "--seed", "1"])
            .file("s.toml", &format!("{STUDY}{own}"))
            .file("paced.xml", PROFILE)
            .finish()
    };
    undisturbed(run, kept_disturbances, |finished| {
        assert_eq!(finished.code, 0, "{finished}");
        let study = Study::open(&finished.path("kept")).unwrap();
        let measured = Measurements::of(study.runs().unwrap());
        let found = findings(&measured);
        let limit = match &found.iter().filter(|f| f.kind == "saturation").collect::<Vec<_>>()[..] {
            [limit] => Some((*limit).clone()),
            [] if noise(&measured) > NOISE => None,
            _ => panic!("{found:#?}\n{finished}"),
        };
        (measured, limit, finished.stdout.clone())
    })
}

/// One after the other: the second takes all CPUs.
#[test]
fn a_full_link_and_full_cpus_are_told_apart() {
    if skip_without_namespaces("alone::findings::a_full_link_and_full_cpus_are_told_apart") {
        return;
    }
    let (_, knee, report) = saturation(OVER_A_LINK);
    if let Some(knee) = knee {
        let sentence = &knee.sentence;
        // 8 of them would fill it.
        assert!(!sentence.starts_with("Throughput grows up to 4 "), "{knee:#?}");
        assert!(sentence.starts_with("Throughput grows up to "), "{knee:#?}");
        assert!(sentence.contains("; there the link of h1 ("), "{knee:#?}");
        assert!(sentence.contains("% of 100 Mb/s)"), "{knee:#?}");
        // CPUs may be busy with other programs, and are not what is told.
        assert!(!sentence.contains("CPU"), "{knee:#?}");
        assert!(report.contains("Findings") && report.contains("grows up to"), "{report}");
    }

    let (study, knee, _) = saturation(OVER_CPUS);
    if let Some(knee) = knee {
        assert!(knee.sentence.contains("; there the CPUs of "), "{knee:#?}");
        assert!(!knee.sentence.contains("link"), "{knee:#?}");
    }
    // However noisy they are, both of the largest loads fill CPUs.
    for point in &study.points[2..] {
        for run in &point.runs {
            let idle = run.hosts.iter().map(|host| host.cpu.as_ref().unwrap().idle);
            let idle = idle.fold(f64::INFINITY, f64::min);
            assert!(idle < 10.0, "{idle} at {:?}", point.point);
        }
    }
}
