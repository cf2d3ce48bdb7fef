//! Links by netem, which many kernels lack.

use serde_json::Value;

use crate::guest::{Check, Left, Part, checks};

const STUDY: &str = r#"
title = "Backends"
profile = "@rr"
place = "lab"
[lab]
rtt = "4ms"
[set]
duration = "2s"
observe = "none"
[repeat]
times = 1
[axes]
"lab.backend" = ["netem", "emulator"]
"#;

/// Each has labs of its own, and leaves none.
const FUNCTIONS: &str = r"
set -e
modprobe -a veth bridge tun
trap 'wirecost lab down >/dev/null 2>&1 || true' EXIT
left() { ip netns list; ls /run/wirecost/lab; }
in_first() { ip netns exec wirecost-lab-h1 $@; }
";

/// An emulated CPU is slow, so whole seconds are short.
pub(crate) fn parts() -> Vec<Part> {
    let part = |name, script: &str, checks: &'static [Check]| Part {
        name,
        files: vec![("study.toml".to_owned(), STUDY.as_bytes().to_vec())],
        script: format!("{FUNCTIONS}{script}"),
        checks,
    };
    vec![
        part(
            "netem_links",
            r"
wirecost lab up --rate 10mbit --rtt 20ms --loss 1% --loss-burst 4 --reorder 1% --duplicate 2% \
    --back rate=1mbit,loss=0,duplicate=0 >up
tc -n wirecost-lab-switch -d qdisc show >qdiscs
ip -n wirecost-lab-h1 neigh >neighbours
in_first ping -c 20 -i 0.1 198.18.0.2 >ping || true
wirecost lab status --json >lab.json
wirecost lab status >lab-text
wirecost lab down >down
left >after-down
",
            checks![
                the_kernel_has_the_links_that_were_typed,
                packets_take_as_long_as_the_link_and_are_counted,
                nothing_is_left_of_a_lab_by_netem,
            ],
        ),
        part(
            "netem_loss",
            r"
wirecost lab up --rtt 2ms --loss 99.9999% >/dev/null
in_first ping -c 20 -i 0.1 -W 1 198.18.0.2 >ping-lost || true
wirecost lab status --json >lab-lost.json
",
            checks![a_link_that_loses_all_lets_nothing_through],
        ),
        part(
            "netem_topologies",
            r"
for topology in star dumbbell; do
    wirecost lab up --hosts 4 --topology $topology --rtt 40ms --rate 10mbit >/dev/null
    in_first ping -c 5 -i 0.2 198.18.0.2 >$topology-near
    in_first ping -c 5 -i 0.2 198.18.0.4 >$topology-far
    wirecost lab down >/dev/null
done
",
            checks![hosts_of_a_star_and_of_a_dumbbell_have_the_links_of_their_topology],
        ),
        part(
            "netem_runs",
            r#"
run="run @stream --lab --rate 10mbit --rtt 20ms --duration 8s --ramp 4s --observe none --details"
measure netem $run
measure fq $run --tune qdisc=fq
measure emulator $run --backend emulator
measure jitter $run --jitter 1ms
measure jumbo run @stream --lab --rate 50mbit --rtt 2ms --tune mtu=9000 --duration 3s --observe none
wirecost lab up --rtt 20ms >/dev/null
tc -n wirecost-lab-switch qdisc del dev h2 root
measure removed run @rr --lab=lab --duration 1s --observe none
"#,
            checks![
                a_result_says_what_made_its_links_and_what_is_not_known,
                a_link_takes_the_frames_of_a_device_with_a_greater_mtu,
                a_delay_line_that_somebody_removed_is_told,
                the_emulator_makes_links_on_request_and_where_netem_cannot,
            ],
        ),
        part(
            "netem_study",
            r#"
# A run that is invalid (4) has its links too.
wirecost study run study.toml --out /run/kept >study 2>&1 || test $? = 4
number=0
for run in /run/kept/runs/*/run.json; do cp $run study-$((number += 1)).json; done
"#,
            checks![a_study_has_links_of_both_kinds],
        ),
        part(
            "netem_killed",
            r#"
"$program" run @rr --lab --rtt 2ms --duration 600s --observe none --quiet >said 2>&1 &
until host=$(ip netns list | grep -o '^wirecost-run-[^ ]*-h1') \
    && ip netns exec "$host" ss -tH state established | grep -q .
do is_running said; sleep 0.1; done
kill -9 $!
wait $! || true
left >killed
measure next run @rr --lab --rtt 2ms --duration 1s --observe none --quiet
left >after-killed
"#,
            checks![nothing_is_left_of_links_by_netem_after_kill_9],
        ),
    ]
}

/// Round-trip times that ping has seen in milliseconds, in the order of time.
fn times(ping: &str) -> Vec<f64> {
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse().ok();
    ping.lines().filter_map(time).collect()
}

fn fastest(ping: &str) -> f64 {
    times(ping).into_iter().fold(f64::INFINITY, f64::min)
}

/// A queueing discipline of the first lab.
fn qdisc(status: &Value, line: usize, kind: &str) -> Value {
    let qdiscs = status["labs"][0]["emulated"]["qdiscs"][line]["qdiscs"].as_array().unwrap();
    qdiscs.iter().find(|qdisc| qdisc["kind"] == kind).unwrap().clone()
}

fn the_kernel_has_the_links_that_were_typed(left: &Left) {
    let up = left.read("up");
    assert!(up.contains("links: pair, RTT 20.0 ms, 10.0 Mb/s") && up.contains("(netem)"), "{up}");
    let shown = left.read("qdiscs");
    let of = |device: &str| {
        let device = format!(" dev {device} ");
        shown.lines().find(|line| line.contains(&device)).unwrap_or_else(|| panic!("{shown}"))
    };
    let says = |device: &str, parts: &[&str]| {
        for part in parts {
            assert!(of(device).contains(part), "no {part}: {}", of(device));
        }
    };
    // The queue of 1bdp is 25000 bytes; 2500 are in the bucket: 22500 bytes of 10 Mb/s are 18 ms.
    says("h2-queue", &["qdisc tbf", "rate 10Mbit", "burst 2537b/1", "lat 18ms", "overhead 38"]);
    says("h2", &["qdisc netem", "delay 10ms", "loss gemodel", "1-h 100%", "duplicate 2%"]);
    says("h2", &["r 25%", "p 0.252525%"]);
    says("h1-queue", &["qdisc tbf", "rate 1Mbit", "overhead 38"]);
    says("h1", &["qdisc netem", "delay 10ms"]);
    assert!(!of("h1").contains("loss"), "{shown}");
    // All count from the IP header on; two are the entries.
    assert_eq!(shown.matches("overhead -14").count(), 6, "{shown}");
    // Nobody asks for the address of a host over the link.
    let neighbours = left.read("neighbours");
    assert!(neighbours.contains("198.18.0.2 dev eth0 lladdr"), "{neighbours}");
    assert!(neighbours.contains("PERMANENT"), "{neighbours}");
}

fn packets_take_as_long_as_the_link_and_are_counted(left: &Left) {
    assert!(fastest(&left.read("ping")) >= 20.0, "{}", left.read("ping"));
    let status = left.json("lab.json");
    let lab = &status["labs"][0]["emulated"];
    assert_eq!(lab["backend"], "netem");
    assert_eq!((&lab["alive"], &lab["counts"]), (&Value::Bool(true), &Value::Null));
    let count = |qdisc: &Value, key: &str| qdisc[key].as_u64().unwrap();
    let (forward, delayed) = (qdisc(&status, 0, "tbf"), qdisc(&status, 0, "netem"));
    // 20 echo requests of 84 bytes, and a little of IPv6.
    assert!((20..60).contains(&count(&forward, "packets")), "{forward}");
    assert!(count(&forward, "bytes") >= 20 * 84, "{forward}");
    assert!(count(&delayed, "packets") + count(&delayed, "drops") >= 20, "{delayed}");
    let text = left.read("lab-text");
    assert!(text.contains("forward: tbf: ") && text.contains("back: netem: "), "{text}");
}

fn nothing_is_left_of_a_lab_by_netem(left: &Left) {
    let down = left.read("down");
    assert!(down.contains("removed lab lab (3 namespaces)"), "{down}");
    assert_eq!(left.read("after-down").trim(), "");
}

fn a_link_that_loses_all_lets_nothing_through(left: &Left) {
    let ping = left.read("ping-lost");
    assert!(ping.contains("20 packets transmitted, 0 received"), "{ping}");
    let delayed = qdisc(&left.json("lab-lost.json"), 0, "netem");
    assert!(delayed["drops"].as_u64().unwrap() >= 20, "{delayed}");
}

fn hosts_of_a_star_and_of_a_dumbbell_have_the_links_of_their_topology(left: &Left) {
    for name in ["star-near", "star-far", "dumbbell-far"] {
        assert!(fastest(&left.read(name)) >= 40.0, "{name}: {}", left.read(name));
    }
    // Hosts of one side reach each other without the link.
    let near = left.read("dumbbell-near");
    assert!(fastest(&near) < 40.0, "{near}");
}

fn a_result_says_what_made_its_links_and_what_is_not_known(left: &Left) {
    for name in ["netem", "fq"] {
        let document = left.measured(name);
        assert_eq!(document.text("/status"), "ok");
        assert!(document.at("/link").is_null());
        let forward = document.at("/netem/lines/0");
        assert_eq!(forward["name"], "forward");
        // A timer of an emulated CPU is late.
        let rate = forward["bits_per_second"].as_f64().unwrap();
        assert!((3e6..10.3e6).contains(&rate), "{rate}");
        let [tbf, netem] = forward["qdiscs"].as_array().unwrap().as_slice() else {
            panic!("{forward}")
        };
        assert_eq!((&tbf["kind"], &netem["kind"]), (&"tbf".into(), &"netem".into()));
        // TCP fills the queue of the link.
        assert!(tbf["drops"].as_u64().unwrap() > 0, "{tbf}");
        // The packets of the wire, and not what TCP hands over at once.
        let [packets, bytes] = ["packets", "bytes"].map(|key| tbf[key].as_f64().unwrap());
        assert!(packets > 1_000.0 && bytes / packets <= 1_500.0, "{tbf}");
        assert!(bytes / packets > 1_400.0, "{tbf}");
        let unknown = document.list("/netem/unknown");
        assert!(unknown.iter().any(|what| what == "how late packets were released"));
        assert!(document.number("/tcp/rtt_us_min") >= 20_000.0);
        assert!(!document.has_warning("link-qdiscs-unread"));
        // The row of the emulator's CPU time is not there.
        let text = left.read(&format!("{name}.txt"));
        assert!(text.contains("; by netem, error") && text.contains(", by netem"), "{text}");
        assert!(!text.contains("emulator"), "{text}");
    }
    let settings = left.measured("fq").at("/settings").to_string();
    assert!(settings.contains("fq"), "{settings}");
}

fn a_link_takes_the_frames_of_a_device_with_a_greater_mtu(left: &Left) {
    let jumbo = left.measured("jumbo");
    let tbf = jumbo.at("/netem/lines/0/qdiscs/0");
    let [packets, bytes] = ["packets", "bytes"].map(|key| tbf[key].as_f64().unwrap());
    assert!(packets > 100.0 && bytes / packets > 2_000.0, "{tbf}");
}

fn a_delay_line_that_somebody_removed_is_told(left: &Left) {
    assert!(left.measured("removed").has_warning("link-qdiscs-unread"));
}

fn the_emulator_makes_links_on_request_and_where_netem_cannot(left: &Left) {
    for name in ["emulator", "jitter"] {
        let document = left.measured(name);
        assert!(document.at("/netem").is_null());
        assert!(document.number("/link/error_us/p99") > 0.0);
        let text = left.read(&format!("{name}.txt"));
        assert!(text.contains("by the emulator"), "{text}");
    }
}

fn a_study_has_links_of_both_kinds(left: &Left) {
    let runs = ["study-1.json", "study-2.json"].map(|name| left.json(name));
    let by = |key: &str| runs.iter().filter(|run| run[key].is_object()).count();
    assert_eq!((by("netem"), by("link")), (1, 1), "{}", left.read("study"));
}

fn nothing_is_left_of_links_by_netem_after_kill_9(left: &Left) {
    let killed = left.read("killed");
    assert!(killed.contains("wirecost-run-"), "{killed}");
    left.measured("next");
    assert_eq!(left.read("after-killed").trim(), "");
}
