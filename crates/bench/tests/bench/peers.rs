//! The bench as its user calls it, with whoever is installed: at least the engines of wirecost
//! against each other.

use std::process::Output;

use wirecost_linux::privilege::skip;

use crate::built::{self, row, wirecost};

fn bench(args: &[&str]) -> Output {
    built::bench(&[&["peers"], args].concat())
}

#[test]
fn a_point_and_a_port_are_measured_and_saved() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("bench.md");
    let output = bench(&[
        "--points",
        "^rr-1$|^port-qperf-tcp-lat",
        "--rounds",
        "1",
        "--out",
        kept.to_str().unwrap(),
        "--wirecost",
        wirecost().to_str().unwrap(),
    ]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
    for engine in ["wirecost epoll", "wirecost threads"] {
        let row = row(&text, engine);
        assert_eq!(row[2], "1", "{row:?}\n{complaint}");
        assert!(row[3].ends_with("/s") && row[7].ends_with("us"), "{row:?}");
    }
    // Of one round there is no interval, and so no verdict.
    assert!(text.contains("not resolved") && !text.contains("| met |"), "{text}");
    let port = row(&text, "@qperf-tcp-lat");
    assert!(matches!(port[10], "not installed" | "not resolved"), "{port:?}");
    // Every line can be typed again.
    assert!(text.contains("- rr-1, wirecost epoll: `"), "{text}");
    assert!(text.contains("wirecost run @rr --var request=64"), "{text}");
}

/// Neither is packaged by Debian's main section: whoever built them names them by `NETPERF` and `NEPER`.
#[test]
fn netperf_and_neper_are_measured_where_they_are() {
    let name = "netperf_and_neper_are_measured_where_they_are";
    let output = bench(&[
        "--points",
        "^crr-32$",
        "--rounds",
        "1",
        "--wirecost",
        wirecost().to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for peer in ["netperf", "neper"] {
        let row = row(&text, peer);
        if row.contains(&"not installed") {
            skip(name, &format!("no {peer}"));
        } else {
            assert!(row[2] == "1" && row[3].ends_with("/s"), "{row:?}");
        }
    }
}

#[test]
fn invalid_arguments_are_refused_before_anything_runs() {
    let output = bench(&["--points", "no-such-point", "--wirecost", wirecost().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no point matches"));
    let output = bench(&["--points", "rr-1$", "--wirecost", "/no/such/program"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"));
}

#[test]
fn the_list_names_points_and_ports() {
    let output = bench(&["--list", "--full"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|line| line == "stream-6000x64k"), "{text}");
    assert!(text.lines().any(|line| line == "port-iperf-stream-of-iperf3"), "{text}");
    let quick = bench(&["--list"]);
    assert!(quick.stdout.len() < text.len());
}
