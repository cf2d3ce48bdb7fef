//! What is told of datagrams, against what the link did to them.

use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

const PACED: &str = r#"
    name = "paced"
    [variables]
    h = { help = "remote host" }
    [[group]]
    strands = 2
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp" }]
    [[group.transaction]]
    duration = "2s"
    rate = 2000
    flowops = [{ type = "write", size = 200 }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

fn paced(text: &str, link: &[&str]) -> Document {
    let arguments = ["run", "paced.toml", "--lab", "--backend", "emulator", "--observe", "none"];
    let program = Program::new(arguments.iter().chain(link).chain(&["--json", "run.json"]));
    let finished = program.file("paced.toml", text).finish();
    assert_eq!(finished.code, 0, "{finished}");
    finished.document()
}

/// What one direction of the link did to packets in the window.
fn forward(document: &Document, what: &str) -> f64 {
    let lines = document.list("/link/lines");
    let line = lines.iter().find(|line| line["name"] == "forward").expect("a direction");
    line[what].as_f64().unwrap_or_else(|| panic!("{what} in {line:#}"))
}

/// The instants at which both are read differ by some packets, and a packet that is held back is told as reordered only if
/// one of the same strand overtakes it and it is not lost.
#[track_caller]
fn alike(told: f64, truth: f64) {
    assert!((told - truth).abs() <= 0.3 * truth + 20.0, "{told} told, {truth} in truth");
}

#[test]
fn loss_reordering_and_duplicates_are_told_apart() {
    if skip_without_namespaces("loss_reordering_and_duplicates_are_told_apart") {
        return;
    }
    let link = ["--rate", "100mbit", "--rtt", "4ms", "--loss", "2%", "--loss-burst", "5"];
    let document = paced(PACED, &[&link[..], &["--reorder", "3%", "--duplicate", "5%"]].concat());
    let told = |what: &str| document.number(&format!("/datagrams/{what}"));
    for what in ["lost", "reordered", "duplicated"] {
        assert!(forward(&document, what) > 50.0, "{what}");
        alike(told(what), forward(&document, what));
    }
    assert_eq!(told("late"), told("reordered"));
    let bursts = document.list("/datagrams/loss_bursts");
    let number = |burst: &serde_json::Value, key: &str| burst[key].as_f64().unwrap_or(f64::NAN);
    let runs: f64 = bursts.iter().map(|burst| number(burst, "count")).sum();
    // The link draws five on average, of which two strands that take turns have half each: 2.8, in 60 bursts or so. Losses
    // that do not know of each other have a mean of 1.02.
    let mean = told("lost") / runs;
    assert!((1.5..10.0).contains(&mean), "{mean}: {bursts:#?}");
    // Half the round-trip time; both hosts have one clock.
    let median = told("one_way_us/delay/p50");
    assert!((2_000.0..4_000.0).contains(&median), "{median} us");
    assert_eq!(told("one_way_us/clock_error_us"), 0.0);
}

#[test]
fn jitter_of_a_link_is_told() {
    if skip_without_namespaces("jitter_of_a_link_is_told") {
        return;
    }
    // Packets keep their order, so those that follow soon would wait for a late one.
    let sparse = PACED.replace("rate = 2000", "rate = 100");
    let link = ["--rate", "100mbit", "--rtt", "100ms", "--jitter", "20ms"];
    let uneven = paced(&sparse, &link);
    // A busy machine adds tenths of a millisecond.
    let jitter = uneven.number("/datagrams/jitter_us");
    assert!((1_000.0..40_000.0).contains(&jitter), "{jitter} us");
    assert_eq!(uneven.number("/datagrams/reordered"), 0.0);
    assert_eq!(uneven.list("/datagrams/loss_bursts").len(), 0);
}

/// One that is too short for its number and time is counted all the same.
#[test]
fn short_datagrams_have_no_delay() {
    let text = PACED.replace("size = 200", "size = 15");
    let arguments = ["run", "paced.toml", "--observe", "none", "--json", "run.json"];
    let finished = Program::new(arguments).file("paced.toml", &text).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let document = finished.document();
    assert!(document.number("/datagrams/received") > 1_000.0);
    for key in ["jitter_us", "one_way_us"] {
        assert!(document.at(&format!("/datagrams/{key}")).is_null(), "{key}");
    }
}
