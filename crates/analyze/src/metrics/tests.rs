use std::collections::BTreeSet;

use wirecost_model::run::{Run, Throughput};

use super::*;

fn run() -> Run {
    Run::empty("@stream", "epoll", "0.1.0", 0)
}

#[test]
fn names_are_unique_and_each_is_found() {
    let mut seen = BTreeSet::new();
    for metric in all() {
        assert!(seen.insert(metric.name), "{} is there twice", metric.name);
        assert!(!metric.help.is_empty());
        let name = metric.name.replace('*', "copy");
        assert_eq!(find(&name).unwrap().metric(), metric);
    }
}

#[test]
fn what_is_of_hosts_can_be_asked_of_one() {
    let asked = find("hosts.sender.cycles_per_kbyte").unwrap();
    assert_eq!(asked.metric().name, "cycles_per_kbyte");
    assert_eq!(asked.host.as_deref(), Some("sender"));
    let asked = find("hosts.h2.functions.tcp_sendmsg.inclusive").unwrap();
    assert_eq!(asked.thing.as_deref(), Some("tcp_sendmsg"));
    assert_eq!(find("functions.a.b.exclusive").unwrap().thing.as_deref(), Some("a.b"));
}

#[test]
fn a_slip_of_the_pen_is_told_the_nearest_name() {
    assert_eq!(find("througput").unwrap_err().nearest, Some("throughput"));
    assert_eq!(
        find("hosts.sender.cycles_per_kb").unwrap_err().to_string(),
        "there is no metric hosts.sender.cycles_per_kb; did you mean cycles_per_kbyte?"
    );
    assert_eq!(find("xyzzy").unwrap_err().nearest, None);
    // What is of a whole run is of no host.
    assert!(find("hosts.sender.throughput").is_err());
    assert!(find("layers..share").is_err());
}

#[test]
fn every_figure_of_a_run_that_measured_nothing_is_missing_with_a_reason() {
    for metric in all() {
        let reason = find(&metric.name.replace('*', "copy")).unwrap().of(&run()).unwrap_err();
        assert!(!reason.is_empty(), "{}", metric.name);
    }
}

#[test]
fn what_is_no_number_is_missing() {
    let mut run = run();
    let throughput = |bits_per_second| Throughput {
        bits_per_second,
        tx_bits_per_second: 0.0,
        rx_bits_per_second: 0.0,
        tx_bytes: 0,
        rx_bytes: 0,
    };
    let asked = find("throughput").unwrap();
    run.throughput = Some(throughput(f64::NAN));
    assert!(asked.of(&run).is_err());
    run.throughput = Some(throughput(5.0));
    assert_eq!(asked.of(&run), Ok(5.0));
}
