//! What studies show whose limits differ by construction: the same traffic over a slow link, and over
//! one as fast as the CPUs can. Here the records of the larger loads say what filled up; `long` runs whole studies, of which
//! `analyze/tests/findings/power.rs` simulates many.

use std::path::PathBuf;

use wirecost_analyze::findings::{Finding, findings, saturated_at};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_model::run::Run;
use wirecost_store::study::Study;

use crate::attempts::undisturbed;
use crate::builtin_studies::kept_disturbances;
use crate::program::{Finished, Program};

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

fn study(own: &str, arguments: &[&str]) -> Finished {
    Program::new(["study", "run", "s.toml", "--out", "kept", "--quiet", "--seed", "1"])
        .args(arguments)
        .file("s.toml", &format!("{STUDY}{own}"))
        .file("paced.xml", PROFILE)
        .finish()
}

fn measurements(kept: PathBuf) -> Measurements {
    Measurements::of(Study::open(&kept).unwrap().runs().unwrap())
}

/// Where throughput stops growing in a study.
fn saturation(study: &Measurements) -> Option<Finding> {
    let mut found = findings(study);
    found.retain(|finding| finding.kind == "saturation");
    assert!(found.len() <= 1, "{found:#?}");
    found.pop()
}

#[track_caller]
fn is_of_the_link(knee: &Finding) {
    let sentence = &knee.sentence;
    // 8 of them would fill it.
    assert!(!sentence.starts_with("Throughput grows up to 4 "), "{knee:#?}");
    assert!(sentence.starts_with("Throughput grows up to "), "{knee:#?}");
    assert!(sentence.contains("; there the link of h1 ("), "{knee:#?}");
    assert!(sentence.contains("% of 100 Mb/s)"), "{knee:#?}");
    // CPUs may be busy with other programs, and are not what is told.
    assert!(!sentence.contains("CPU"), "{knee:#?}");
}

#[track_caller]
fn is_of_the_cpus(knee: &Finding) {
    assert!(knee.sentence.contains("; there the CPUs of "), "{knee:#?}");
    assert!(!knee.sentence.contains("link"), "{knee:#?}");
}

/// Whatever differs between the runs, the largest loads fill CPUs.
fn both_fill_cpus(points: &[MeasuredPoint]) {
    for point in points {
        for run in &point.runs {
            let idle = run.hosts.iter().map(|host| host.cpu.as_ref().unwrap().idle);
            let idle = idle.fold(f64::INFINITY, f64::min);
            // False failures: 1e-6 (x2), computed: 500,000 writes a second are due; CPUs would be idle for 30 ms of 300.
            assert!(idle < 10.0, "{idle} at {:?}", point.point);
        }
    }
}

mod measured {
    use super::*;

    /// What filled up is read from the records of one run of each of the larger loads.
    #[test]
    fn what_is_full_is_in_the_records() {
        if skip_without_namespaces("findings::measured::what_is_full_is_in_the_records") {
            return;
        }
        let once = ["--repeat", "1", "--axis"];
        let full = |own: &str, connections: &str, check: &dyn Fn(&MeasuredPoint)| {
            let run = || study(own, &[&once[..], &[connections]].concat());
            undisturbed(run, kept_disturbances, |finished| {
                assert_eq!(finished.code, 0, "{finished}");
                let study = measurements(finished.path("kept"));
                study.points.iter().for_each(check);
            });
        };
        full(OVER_A_LINK, "connections=32,64", &|point| {
            let said = saturated_at(point);
            // False failures: 1e-6 (x2), computed: four times what the link carries is offered, which would lack 60 ms of 1 s.
            assert!(said.starts_with("the link of h1 ("), "{said}");
            assert!(said.contains("% of 100 Mb/s)") && !said.contains("CPU"), "{said}");
        });
        full(OVER_CPUS, "connections=512,1024", &|point| {
            let said = saturated_at(point);
            // False failures: 1e-6 (x2), computed: 500,000 writes a second are due; CPUs would be idle for 15 ms of 300.
            assert!(said.starts_with("the CPUs of ") && !said.contains("link"), "{said}");
            both_fill_cpus(std::slice::from_ref(point));
        });
    }
}

mod long {
    use super::*;

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

    /// Runs a study and checks where throughput stops growing in it.
    fn saturated(name: &str, own: &str, check: impl Fn(&Finding, &str)) {
        undisturbed(
            || study(own, &[]),
            kept_disturbances,
            |finished| {
                assert_eq!(finished.code, 0, "{finished}");
                let study = measurements(finished.path("kept"));
                match saturation(&study) {
                    Some(knee) => check(&knee, &finished.stdout),
                    None => assert!(noise(&study) > NOISE, "{finished}"),
                }
                if name == "cpus" {
                    both_fill_cpus(&study.points[2..]);
                }
            },
        );
    }

    #[test]
    fn a_full_link_is_found() {
        if skip_without_namespaces("findings::long::a_full_link_is_found") {
            return;
        }
        saturated("link", OVER_A_LINK, |knee, report| {
            is_of_the_link(knee);
            assert!(report.contains("Findings") && report.contains("grows up to"), "{report}");
        });
    }

    #[test]
    fn full_cpus_are_found() {
        if skip_without_namespaces("findings::long::full_cpus_are_found") {
            return;
        }
        saturated("cpus", OVER_CPUS, |knee, _| is_of_the_cpus(knee));
    }
}
