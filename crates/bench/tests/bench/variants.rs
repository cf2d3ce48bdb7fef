//! Variants of a profile as their user calls them.

use std::process::Output;

use crate::built::{self, row, wirecost};

fn variants(args: &[&str]) -> Output {
    let program = wirecost();
    let words = ["variants", "--wirecost", program.to_str().unwrap()];
    built::bench(&[&words, args].concat())
}

#[test]
fn two_variants_are_measured_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("variants.md");
    let output = variants(&[
        "@rr",
        "--rounds",
        "1",
        "--window",
        "1",
        "--variant",
        "epoll=",
        "--variant",
        "threads=--engine threads --var options='tcp_nodelay notsent_lowat=128k'",
        "--out",
        kept.to_str().unwrap(),
        "--",
        "--connections",
        "2",
    ]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
    let (figures, ratios) = text.split_once("## Over epoll").unwrap();
    for name in ["epoll", "threads"] {
        let row = row(figures, name);
        assert_eq!(row[2], "1", "{row:?}");
        assert!(row[3].ends_with("/s") && row[8].ends_with("us"), "{row:?}");
        let traced =
            row[5].ends_with("ns") && row[6].parse::<f64>().is_ok_and(|cycles| cycles > 0.0);
        assert!(traced || row[9].contains("CPU time was not traced"), "{row:?}");
    }
    // Of one round there is a ratio and no interval.
    assert!(row(ratios, "threads")[3].parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{ratios}");
    assert!(
        ratios.contains("run @rr --connections 2 --engine threads --var 'options=tcp_nodelay notsent_lowat=128k' --ramp"),
        "{ratios}"
    );
}

#[test]
fn two_builds_are_compared() {
    let program = wirecost();
    let path = program.to_str().unwrap();
    let (old, new) = (format!("old={path}"), format!("new={path}"));
    let output = built::bench(&[
        "variants", "@rr", "--rounds", "1", "--window", "1", "--build", &old, "--build", &new,
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (figures, ratios) = text.split_once("## Over old").unwrap();
    assert!(["old", "new"].iter().all(|name| row(figures, name)[2] == "1"), "{text}");
    assert!(row(ratios, "new")[3].parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{ratios}");
}

#[test]
fn a_variant_that_cannot_run_is_reported() {
    let output = variants(&[
        "@stream",
        "--rounds",
        "1",
        "--window",
        "1",
        "--variant",
        "base=",
        "--variant",
        "wrong=--var no_such_variable=1",
    ]);
    assert!(!output.status.success());
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("wrong never ran"), "{complaint}");
    assert!(complaint.contains("no_such_variable"), "{complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(row(&text, "base")[2], "1", "{text}");
    assert!(row(&text, "wrong")[9].contains("failed 1 times"), "{text}");
}

#[test]
fn invalid_variants_are_refused_before_anything_runs() {
    let told = |args: &[&str], what: &str| {
        let output = variants(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.contains(what), "{complaint}");
    };
    told(&["@rr", "--variant", "base="], "two variants or builds at least");
    told(&["@rr", "--variant", "a=", "--build", "b=/no/such/program"], "/no/such/program");
    told(&["@rr", "--variant", "a=", "--variant", "a=--workers 1"], "are called a");
    told(&["@rr", "--variant", "base", "--variant", "a="], "`=`");
}
