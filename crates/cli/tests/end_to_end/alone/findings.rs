//! What studies show whose limits differ by construction: the same traffic over a slow link, and over
//! one as fast as the CPUs can.

use wirecost_analyze::findings::{Finding, findings};
use wirecost_analyze::measured::Measured;
use wirecost_linux::privilege::skip_without_namespaces;
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
    repeat.times = 5
    set.duration = "300ms"
    set.ramp = "200ms"
    set.observe = "cpu"
"#;

/// 13 Mb/s of each connection.
const OVER_A_LINK: &str = r#"
    lab.rate = "100mbit"
    axes.connections = [1, 2, 4, 32, 48, 64]
    set.size = "16k"
    set.pause = "10ms"
"#;

/// Some 1000 small writes a second of each connection.
const OVER_CPUS: &str = r#"
    axes.connections = [1, 4, 16, 512, 768, 1024]
    set.size = "512"
    set.pause = "1ms"
"#;

/// Where throughput stops growing in a study, and the report of it. How often a study of such an effect
/// finds it is simulated in `analyze/tests/findings`.
fn saturation(own: &str) -> (Finding, String) {
    let run = || {
        Program::new(["study", "run", "s.toml", "--out", "kept", "--quiet", "--seed", "1"])
            .file("s.toml", &format!("{STUDY}{own}"))
            .file("paced.xml", PROFILE)
            .finish()
    };
    undisturbed(run, kept_disturbances, |finished| {
        assert_eq!(finished.code, 0, "{finished}");
        let study = Study::open(&finished.path("kept")).unwrap();
        let found = findings(&Measured::of(study.runs().unwrap()));
        let limits: Vec<_> = found.iter().filter(|finding| finding.kind == "saturation").collect();
        let [limit] = limits[..] else { panic!("{found:#?}\n{finished}") };
        (limit.clone(), finished.stdout.clone())
    })
}

/// One after the other: the second takes all CPUs.
#[test]
fn a_full_link_and_full_cpus_are_told_apart() {
    if skip_without_namespaces("alone::findings::a_full_link_and_full_cpus_are_told_apart") {
        return;
    }
    let (knee, report) = saturation(OVER_A_LINK);
    let sentence = &knee.sentence;
    // 8 of them would fill it.
    assert!(!sentence.starts_with("Throughput grows up to 4 "), "{knee:#?}");
    assert!(sentence.starts_with("Throughput grows up to "), "{knee:#?}");
    assert!(sentence.contains("; there the link of h1 ("), "{knee:#?}");
    assert!(sentence.contains("% of 100 Mb/s)"), "{knee:#?}");
    // CPUs may be busy with other programs, and are not what is told.
    assert!(!sentence.contains("CPU"), "{knee:#?}");
    assert!(report.contains("Findings") && report.contains("grows up to"), "{report}");

    let (knee, _) = saturation(OVER_CPUS);
    assert!(knee.sentence.contains("; there the CPUs of "), "{knee:#?}");
    assert!(!knee.sentence.contains("link"), "{knee:#?}");
}
