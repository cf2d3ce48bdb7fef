//! What is told of datagrams, against what the link and the kernel did to them.

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

const DATAGRAMS: u32 = 8000;

/// Two strands that take turns.
const PACED: &str = r#"
    name = "paced"
    [variables]
    h = { help = "remote host" }
    [[group]]
    strands = 2
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp" }]
    [[group.transaction]]
    duration = "3s"
    arrivals = { intervals = "arrivals.txt" }
    flowops = [{ type = "write", size = 200 }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

/// When datagrams are due: none near the edges of the window, so what is read a little later at one place than at
/// another is of the same datagrams.
fn arrivals() -> String {
    format!("300ms\n{}", "250us\n".repeat(DATAGRAMS as usize - 1))
}

fn paced(text: &str, link: &[&str]) -> Program {
    let arguments = ["run", "paced.toml", "--lab", "--backend", "emulator", "--observe", "none"];
    let program = Program::new(arguments.iter().chain(link)).args(["--ramp", "0s"]);
    program.file("paced.toml", text).file("arrivals.txt", &arrivals())
}

/// What one direction of the link did to packets in the window.
fn forward(document: &Document, what: &str) -> f64 {
    let lines = document.list("/link/lines");
    let line = lines.iter().find(|line| line["name"] == "forward").expect("a direction");
    line[what].as_f64().unwrap_or_else(|| panic!("{what} in {line:#}"))
}

/// What was lost at places of their own that the kernel counts, between the link and the programs.
fn beside_the_link(document: &Document) -> f64 {
    let stages = document.list("/frames/directions/0/stages").iter();
    let places = stages.flat_map(|stage| stage["places"].as_array().expect("places"));
    places.map(|place| place["packets"].as_f64().expect("packets")).sum()
}

mod measured {
    use super::*;

    #[test]
    fn loss_reordering_and_duplicates_are_told_apart() {
        if skip_without_namespaces("loss_reordering_and_duplicates_are_told_apart") {
            return;
        }
        let link = ["--rate", "100mbit", "--rtt", "4ms", "--loss", "2%", "--loss-burst", "5"];
        let run = paced(PACED, &[&link[..], &["--reorder", "3%", "--duplicate", "5%"]].concat());
        run.measure_and(|_, document| {
            let told = |what: &str| document.number(&format!("/datagrams/{what}"));
            let link = |what: &str| forward(document, what);
            assert_eq!(told("sent"), f64::from(DATAGRAMS));
            assert_eq!(link("arrived"), f64::from(DATAGRAMS), "{:#}", document.at("/link"));
            // A strand that gets no CPU for a time sends all that is due at once, for which the queue of its link or the buffer
            // of its receiver may have no room.
            let of_link: f64 = ["lost", "overflowed", "dropped", "unheld"].map(link).iter().sum();
            let beside = beside_the_link(document);
            let places = format!("{:#}\n{:#}", document.at("/link"), document.at("/frames"));
            // What was dropped beside the link may be one of two copies.
            let (lost, duplicated) = (told("lost"), told("duplicated"));
            assert!((of_link..=of_link + beside).contains(&lost), "{lost}: {places}");
            assert!((duplicated - link("duplicated")).abs() <= beside, "{duplicated}: {places}");
            assert_eq!(told("late"), told("reordered"));
            // A packet that is held back is told only if one of the same strand overtakes it and it is not lost: nine of ten.
            // False failures: 1e-9, computed: binomial of 240 with 0.9, 13 standard deviations.
            let (reordered, held) = (told("reordered"), link("reordered"));
            assert!((reordered - held).abs() <= 0.3 * held + 20.0, "{reordered} told, {held} held");
            for what in ["lost", "reordered", "duplicated"] {
                // False failures: 1e-6, simulated: losses of 2 million such runs; 240 and 400 of the others.
                assert!(link(what) >= 30.0, "{what}: {}", link(what));
            }
            let bursts = document.list("/datagrams/loss_bursts");
            let runs: f64 = bursts.iter().map(|burst| burst["count"].as_f64().unwrap()).sum();
            // The link draws five on average, of which two strands that take turns have half each: 2.8, in 60 bursts or
            // so. Losses that do not know of each other have a mean of 1.02.
            let mean = told("lost") / runs;
            // False failures: 2e-6, simulated: means of 2 million such runs.
            assert!((1.3..6.0).contains(&mean), "{mean}: {bursts:#?}");
            // Half the round-trip time; both hosts have one clock.
            let median = told("one_way_us/delay/p50");
            // False failures: 1e-5, computed: on an idle machine half of 8,000 would have to be 2 ms late.
            assert!((2_000.0..4_000.0).contains(&median), "{median} us");
            assert_eq!(told("one_way_us/clock_error_us"), 0.0);
        });
    }

    #[test]
    fn jitter_of_a_link_is_told() {
        if skip_without_namespaces("jitter_of_a_link_is_told") {
            return;
        }
        // Packets keep their order, so those that follow soon would wait for a late one.
        let sparse = PACED.replace("arrivals = { intervals = \"arrivals.txt\" }", "rate = 100");
        let link = ["--rate", "100mbit", "--rtt", "100ms", "--jitter", "20ms"];
        paced(&sparse, &link).measure_and(|_, uneven| {
            // A busy machine adds tenths of a millisecond.
            let jitter = uneven.number("/datagrams/jitter_us");
            // False failures: 1e-5, measured: 5.8 to 13.5 ms in 6 runs beside load 20.
            assert!((1_000.0..40_000.0).contains(&jitter), "{jitter} us");
            assert_eq!(uneven.number("/datagrams/reordered"), 0.0);
            assert_eq!(uneven.list("/datagrams/loss_bursts"), [Value::Null; 0]);
        });
    }
}

/// One that is too short for its number and time is counted all the same.
#[test]
fn short_datagrams_have_no_delay() {
    let text = PACED.replace("size = 200", "size = 15");
    let program = Program::new(["run", "paced.toml", "--observe", "none", "--ramp", "0s"]);
    let program = program.file("paced.toml", &text).file("arrivals.txt", &arrivals());
    let document = program.measure();
    assert_eq!(document.number("/datagrams/sent"), f64::from(DATAGRAMS));
    assert!(document.number("/datagrams/received") > 0.0);
    for key in ["jitter_us", "one_way_us"] {
        assert!(document.at(&format!("/datagrams/{key}")).is_null(), "{key}");
    }
}
