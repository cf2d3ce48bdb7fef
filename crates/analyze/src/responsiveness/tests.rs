//! Studies with known answers.

use wirecost_model::program::Side;
use wirecost_model::run::{Crypto, FlowopRow, GroupRtt, Latency, Run};
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef};

use super::*;
use crate::fixtures;

/// All percentiles, in milliseconds; what is trimmed is nothing.
fn latency(milliseconds: f64) -> Latency {
    let us = milliseconds * 1e3;
    Latency {
        p50: us,
        p90: us,
        p99: 2.0 * us,
        p999: us,
        max: us,
        mean: 1.5 * us,
        trimmed_mean: Some(us),
        count: 100,
    }
}

fn row(group: u32, kind: &str, bytes: u64, milliseconds: Option<f64>) -> FlowopRow {
    FlowopRow {
        kind: kind.to_owned(),
        side: Side::Master,
        group,
        flowop: 0,
        count: 100,
        bytes,
        failed: 0,
        timeouts: 0,
        latency_us: milliseconds.map(latency),
        latency_histogram: None,
    }
}

/// A run whose probes all take this time, milliseconds, with this load.
fn run(milliseconds: f64, load: Load) -> Run {
    let mut run = Run::empty(PROFILE, "epoll", "0.1.0", 0);
    run.status = Status::Ok;
    run.throughput = Some(fixtures::throughput(50e6, 1 << 20));
    let bytes = |way| if load.is(way) { 1 << 20 } else { 0 };
    run.flowops = vec![
        row(0, "write", bytes("up"), None),
        row(1, "read", bytes("down"), None),
        row(2, "think", 0, Some(900.0)),
        row(2, "read", 64, Some(milliseconds)),
        row(3, "connect", 0, Some(milliseconds)),
        row(3, "read", 64, Some(milliseconds)),
        row(4, "connect", 0, Some(milliseconds)),
    ];
    let rtt = |group, side| GroupRtt { group, side, rtt_us: latency(milliseconds) };
    // The receiving ends know only the handshake.
    let handshake = |group, side| GroupRtt { group, side, rtt_us: latency(1.0) };
    run.group_rtts = Some(vec![
        rtt(0, Side::Master),
        handshake(0, Side::Peer),
        handshake(1, Side::Master),
        rtt(1, Side::Peer),
    ]);
    run
}

fn study(points: &[(&str, Load, &[f64])]) -> Measurements {
    let mut runs = Vec::new();
    for (place, (name, load, times)) in (0..).zip(points) {
        for (repeat, milliseconds) in (1..).zip(*times) {
            let mut run = run(*milliseconds, *load);
            run.study = Some(StudyRunRef {
                study: "s".to_owned(),
                point: Point { axes: vec![Value::new("traffic", name)], settings: Vec::new() },
                place,
                repeat,
                order: repeat,
                search: None,
            });
            runs.push((String::new(), run));
        }
    }
    Measurements::of(runs)
}

fn sentences(measured: &Measurements, kind: &str) -> Vec<String> {
    let found = conclusions(measured).findings.into_iter().filter(|of| of.kind == kind);
    found.map(|finding| finding.sentence).collect()
}

#[test]
fn grades_are_those_of_dslreports() {
    for (milliseconds, name, range) in [
        (-3.0, "A+", "below 5 ms"),
        (4.99, "A+", "below 5 ms"),
        (5.0, "A", "5 to 30 ms"),
        (29.9, "A", "5 to 30 ms"),
        (30.0, "B", "30 to 60 ms"),
        (60.0, "C", "60 to 200 ms"),
        (199.9, "C", "60 to 200 ms"),
        (200.0, "D", "200 to 400 ms"),
        (400.0, "F", "400 ms or more"),
        (1e6, "F", "400 ms or more"),
    ] {
        let grade = Grade::of(milliseconds * 1e3);
        assert_eq!((grade.name, grade.range()), (name, range.to_owned()), "{milliseconds}");
    }
    let joined = GRADES.windows(2).all(|pair| pair[0].below == pair[1].from);
    assert!(joined, "each begins where the one before ends");
}

#[test]
fn rpm_is_by_the_formulas_of_the_draft() {
    let parts = Responsiveness { tcp: 20e3, tls: None, request: 40e3, own: 60e3 };
    // 60,000 / 30 ms = 2,000, and 60,000 / 60 ms = 1,000.
    assert_eq!(parts.rpm(), 1500.0);
    // 60,000 / ((20 + 60 + 40) / 3) = 1,500.
    assert_eq!(Responsiveness { tls: Some(60e3), ..parts }.rpm(), 1250.0);
}

#[test]
fn each_load_has_its_growth_and_its_grade() {
    let measured = study(&[
        ("idle", Load::Idle, &[20.0]),
        ("up", Load::Up, &[100.0]),
        ("down", Load::Down, &[60.0]),
        ("both", Load::Both, &[232.0]),
    ]);
    assert_eq!(
        sentences(&measured, "latency-under-load"),
        [
            "During upload, p50 of the round trip grew by 80.0 ms, from 20.0 ms to 100 ms: grade C (60 to 200 ms).",
            "During download, p50 of the round trip grew by 40.0 ms, from 20.0 ms to 60.0 ms: grade B (30 to 60 ms).",
            "During upload and download, p50 of the round trip grew by 212 ms, from 20.0 ms to 232 ms: grade D (200 to 400 ms).",
        ]
    );
    assert_eq!(
        sentences(&measured, "bufferbloat"),
        [
            "Bufferbloat grade C (60 to 200 ms): upload adds 80.0 ms and download 40.0 ms, 60.0 ms on average."
        ]
    );
    assert_eq!(
        sentences(&measured, "rpm"),
        [
            "RPM (not HTTP/2) during upload is 600.",
            "RPM (not HTTP/2) during download is 1000.",
            "RPM (not HTTP/2) during upload and download is 259.",
        ]
    );
    let found = conclusions(&measured);
    assert_eq!(found.unanswered, []);
    assert_eq!(found.findings[0].evidence[1], "p99 from 40.0 ms to 200 ms");
}

#[test]
fn repeats_give_intervals() {
    let measured = study(&[
        ("idle", Load::Idle, &[20.0, 20.0, 20.0]),
        ("up", Load::Up, &[190.0, 200.0, 210.0]),
    ]);
    let found = conclusions(&measured);
    let increase = found.findings[0].effect.as_ref().unwrap();
    // By hand: 180 ms, standard error 10 / sqrt(3), t(2) = 4.303.
    let (low, high) = increase.interval.unwrap();
    assert!((low / 1e3 - (180.0 - 24.84)).abs() < 0.01 && (high / 1e3 - 204.84).abs() < 0.01);
    let rpm = &sentences(&measured, "rpm")[0];
    assert!(
        rpm.starts_with("RPM (not HTTP/2) during upload is 301 (") && rpm.ends_with(")."),
        "{rpm}"
    );
}

#[test]
fn tls_takes_the_handshake_of_tcp_off_its_own() {
    let mut tls = run(50.0, Load::Up);
    tls.crypto = Some(Crypto { shares: Vec::new(), reason: None });
    tls.flowops[4].latency_us = Some(latency(110.0));
    let parts = responsiveness(&tls).unwrap();
    assert_eq!((parts.tcp, parts.tls), (50e3, Some(60e3)));
    tls.flowops[4].latency_us = Some(latency(50.0));
    assert!(responsiveness(&tls).unwrap_err().contains("took longer"));
}

#[test]
fn what_is_missing_is_told() {
    let loaded = study(&[("up", Load::Up, &[100.0])]);
    let found = conclusions(&loaded);
    let idle = "there is no run of the idle path".to_owned();
    assert_eq!(found.unanswered, [("latency under load", vec![idle])]);
    assert_eq!(sentences(&loaded, "rpm").len(), 1, "RPM needs no idle path");

    let mut other = run(20.0, Load::Up);
    other.profile = "@rr".to_owned();
    for reason in [request(&other).err(), responsiveness(&other).err(), load(&other).err()] {
        assert_eq!(reason.unwrap(), "the run is not of the profile @responsiveness");
    }
    let mut unsampled = run(20.0, Load::Both);
    unsampled.group_rtts.as_mut().unwrap().pop();
    let reason = responsiveness(&unsampled).unwrap_err();
    assert_eq!(reason, "no TCP connection of the streams down was sampled");
    assert_eq!(responsiveness(&run(20.0, Load::Idle)).unwrap_err(), "RPM needs a loaded path");
    let mut none = run(20.0, Load::Up);
    none.flowops[3].latency_us = None;
    assert_eq!(request(&none).unwrap_err(), "no request was completed in the window");
}

#[test]
fn numbers_of_streams_are_told_where_several_points_have_such_a_load() {
    let point = |up: &str, load: Load, milliseconds: f64| {
        let mut measured = study(&[("", load, &[milliseconds])]);
        let axes = vec![Value::new("up", up), Value::new("down", "0")];
        measured.points[0].point.axes = axes;
        measured.points.remove(0)
    };
    let points =
        vec![point("0", Load::Idle, 20.0), point("1", Load::Up, 40.0), point("8", Load::Up, 90.0)];
    let measured = Measurements { points };
    let [group] = &groups(&measured)[..] else { panic!("streams make no group") };
    let streams: Vec<String> = group.points.iter().map(LoadedPoint::streams).collect();
    assert_eq!(streams, ["idle", "1 up", "8 up"]);
    assert_eq!(
        sentences(&measured, "rpm"),
        [
            "RPM (not HTTP/2) during upload (1 up) is 1500.",
            "RPM (not HTTP/2) during upload (8 up) is 667."
        ]
    );
    assert_eq!(sentences(&measured, "bufferbloat"), [""; 0]);
}
