//! Links by netem. Where this kernel lacks it, what says so; and all that netem does, in a virtual machine
//! (`scripts/vm`) whose kernel has it.

use std::sync::LazyLock;

use serde_json::Value;
use wirecost_linux::privilege::{skip, skip_without_namespaces};

use crate::document::Document;
use crate::guest::Guest;
use crate::program::{BINARY, Program, namespaces_of};

/// Whether this machine's kernel lacks netem. The kernel's list of symbols is another source than the program's.
fn has_no_netem() -> bool {
    !std::fs::read_to_string("/proc/kallsyms").unwrap().contains(" netem_enqueue")
}

#[test]
fn without_netem_it_is_refused_and_the_emulator_makes_the_links() {
    let test = "without_netem_it_is_refused_and_the_emulator_makes_the_links";
    if skip_without_namespaces(test) {
        return;
    }
    if !has_no_netem() {
        skip(test, "this kernel has netem");
        return;
    }
    let name = format!("test-{}-no-netem", std::process::id());
    let up = ["lab", "up", "--name", &name, "--rtt", "2ms", "--backend", "netem"];
    let refused = Program::new(up).finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("this kernel has no netem"), "{refused}");
    assert!(refused.stderr.contains("modprobe sch_netem"), "{refused}");
    let status = Program::new(["lab", "status"]).finish();
    assert!(!status.stdout.contains(&name), "{status}");
    let refused = Program::short_run("@rr", &["--lab", "--rtt", "2ms", "--backend", "netem"]);
    let running = refused.start();
    let pid = running.pid;
    let refused = running.wait();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(namespaces_of(pid).is_empty());
    let document = Program::short_run("@rr", &["--lab", "--rtt", "2ms"]).measure();
    assert!(document.at("/netem").is_null() && document.at("/link").is_object());
}

#[test]
fn what_netem_cannot_do_is_refused_with_the_remedy() {
    if skip_without_namespaces("what_netem_cannot_do_is_refused_with_the_remedy") {
        return;
    }
    for (arguments, reason) in [
        (&["--jitter", "1ms"][..], "netem does not have jitter"),
        (&["--rate", "1gbit", "--aqm", "codel"], "netem does not have aqm=codel"),
        (&["--rate", "1gbit", "--back", "cross=1%"], "netem does not have cross"),
        (&["--queues", "1"], "netem does not have queues"),
    ] {
        let up = ["lab", "up", "--rtt", "4ms", "--backend", "netem"];
        let up = Program::new(up).args(arguments).finish();
        assert_eq!(up.code, 2, "{arguments:?}: {up}");
        assert!(up.stderr.contains(reason), "{arguments:?}: {up}");
        assert!(up.stderr.contains("--backend emulator"), "{arguments:?}: {up}");
    }
    let unknown = Program::new(["lab", "up", "--rtt", "4ms", "--backend", "tc"]).finish();
    assert_eq!(unknown.code, 2, "{unknown}");
    assert!(unknown.stderr.contains("backend `tc`: must be auto, netem or emulator"), "{unknown}");
}

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

/// One boot for all tests of this file. An emulated CPU is slow, so whole seconds are short.
static GUEST: LazyLock<Result<Guest, String>> = LazyLock::new(|| {
    let script = format!(
        r#"
set -e
PATH=$PATH:/usr/sbin:/sbin
wirecost() {{ '{BINARY}' "$@"; }}
left() {{ ip netns list; ls /run/wirecost/lab; }}
in_first() {{ ip netns exec wirecost-lab-h1 "$@"; }}

wirecost lab up --rate 10mbit --rtt 20ms --loss 1% --loss-burst 4 --reorder 1% --duplicate 2% \
    --back rate=1mbit,loss=0,duplicate=0 >up
tc -n wirecost-lab-switch -d qdisc show >qdiscs
ip -n wirecost-lab-h1 neigh >neighbours
in_first ping -c 20 -i 0.1 198.18.0.2 >ping || true
wirecost lab status --json >lab.json
wirecost lab status >lab-text
wirecost lab down >down
left >after-down

wirecost lab up --rtt 2ms --loss 99.9999% >/dev/null
in_first ping -c 20 -i 0.1 -W 1 198.18.0.2 >ping-lost || true
wirecost lab status --json >lab-lost.json
wirecost lab down >/dev/null

for topology in star dumbbell; do
    wirecost lab up --hosts 4 --topology $topology --rtt 40ms --rate 10mbit >/dev/null
    in_first ping -c 5 -i 0.2 198.18.0.2 >$topology-near
    in_first ping -c 5 -i 0.2 198.18.0.4 >$topology-far
    wirecost lab down >/dev/null
done

run="run @stream --lab --rate 10mbit --rtt 20ms --duration 8s --ramp 4s --observe none --details"
wirecost $run --json netem.json >netem
wirecost $run --tune qdisc=fq --json fq.json >fq
wirecost $run --backend emulator --json emulator.json >emulator
wirecost $run --jitter 1ms --json jitter.json >jitter
wirecost run @stream --lab --rate 50mbit --rtt 2ms --tune mtu=9000 --duration 3s --observe none --json jumbo.json >/dev/null
wirecost study run study.toml --out /run/kept >study
wirecost lab up --rtt 20ms >/dev/null
tc -n wirecost-lab-switch qdisc del dev h2 root
wirecost run @rr --lab=lab --duration 1s --observe none --json removed.json >/dev/null
wirecost lab down >/dev/null
number=0
for run in /run/kept/runs/*/run.json; do cp $run study-$((number += 1)).json; done

'{BINARY}' run @rr --lab --rtt 2ms --duration 600s --observe none --quiet >/dev/null 2>&1 &
until host=$(ip netns list | grep -o '^wirecost-run-[^ ]*-h1') \
    && ip netns exec "$host" ss -tH state established | grep -q .
do kill -0 $!; sleep 0.1; done
kill -9 $!
wait $! || true
left >killed
wirecost run @rr --lab --rtt 2ms --duration 1s --observe none --quiet >/dev/null
left >after-killed
"#
    );
    let files = [("study.toml".to_owned(), STUDY.as_bytes().to_vec())];
    Guest::run("veth,bridge,tun", &files, &script)
});

/// `None` where there can be no virtual machine.
fn guest(test: &str) -> Option<&'static Guest> {
    GUEST.as_ref().map_err(|missing| skip(test, missing)).ok()
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

#[test]
fn the_kernel_has_the_links_that_were_typed() {
    let Some(guest) = guest("the_kernel_has_the_links_that_were_typed") else { return };
    let up = guest.read("up");
    assert!(up.contains("links: pair, RTT 20.0 ms, 10.0 Mb/s") && up.contains("(netem)"), "{up}");
    let shown = guest.read("qdiscs");
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
    let neighbours = guest.read("neighbours");
    assert!(neighbours.contains("198.18.0.2 dev eth0 lladdr"), "{neighbours}");
    assert!(neighbours.contains("PERMANENT"), "{neighbours}");
}

#[test]
fn packets_take_as_long_as_the_link_and_are_counted() {
    let Some(guest) = guest("packets_take_as_long_as_the_link_and_are_counted") else { return };
    assert!(fastest(guest.read("ping")) >= 20.0, "{}", guest.read("ping"));
    let status = guest.json("lab.json");
    let lab = &status["labs"][0]["emulated"];
    assert_eq!(lab["backend"], "netem");
    assert_eq!((&lab["alive"], &lab["counts"]), (&Value::Bool(true), &Value::Null));
    let count = |qdisc: &Value, key: &str| qdisc[key].as_u64().unwrap();
    let (forward, delayed) = (qdisc(&status, 0, "tbf"), qdisc(&status, 0, "netem"));
    // 20 echo requests of 84 bytes, and a little of IPv6.
    assert!((20..60).contains(&count(&forward, "packets")), "{forward}");
    assert!(count(&forward, "bytes") >= 20 * 84, "{forward}");
    assert!(count(&delayed, "packets") + count(&delayed, "drops") >= 20, "{delayed}");
    let text = guest.read("lab-text");
    assert!(text.contains("forward: tbf: ") && text.contains("back: netem: "), "{text}");
}

#[test]
fn a_link_that_loses_all_lets_nothing_through() {
    let Some(guest) = guest("a_link_that_loses_all_lets_nothing_through") else { return };
    let ping = guest.read("ping-lost");
    assert!(ping.contains("20 packets transmitted, 0 received"), "{ping}");
    let delayed = qdisc(&guest.json("lab-lost.json"), 0, "netem");
    assert!(delayed["drops"].as_u64().unwrap() >= 20, "{delayed}");
}

#[test]
fn hosts_of_a_star_and_of_a_dumbbell_have_the_links_of_their_topology() {
    let test = "hosts_of_a_star_and_of_a_dumbbell_have_the_links_of_their_topology";
    let Some(guest) = guest(test) else { return };
    for name in ["star-near", "star-far", "dumbbell-far"] {
        assert!(fastest(guest.read(name)) >= 40.0, "{name}: {}", guest.read(name));
    }
    // Hosts of one side reach each other without the link.
    let near = guest.read("dumbbell-near");
    assert!(fastest(near) < 40.0, "{near}");
}

#[test]
fn a_result_says_what_made_its_links_and_what_is_not_known() {
    let test = "a_result_says_what_made_its_links_and_what_is_not_known";
    let Some(guest) = guest(test) else { return };
    for name in ["netem", "fq"] {
        let document = Document::valid(guest.json(&format!("{name}.json")));
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
        // The row of the emulator's CPU time is not there.
        let text = guest.read(name);
        assert!(text.contains("; by netem, error") && text.contains(", by netem"), "{text}");
        assert!(!text.contains("emulator"), "{text}");
    }
    let jumbo = &guest.json("jumbo.json")["netem"]["lines"][0]["qdiscs"][0];
    let [packets, bytes] = ["packets", "bytes"].map(|key| jumbo[key].as_f64().unwrap());
    assert!(packets > 100.0 && bytes / packets > 2_000.0, "{jumbo}");
    // Somebody has removed the delay line of a lab that was there.
    let warned = guest.json("removed.json")["warnings"].to_string();
    assert!(warned.contains("link-qdiscs-unread"), "{warned}");
    assert!(!guest.json("netem.json")["warnings"].to_string().contains("link-qdiscs-unread"));
    let fq = guest.json("fq.json");
    let set = fq["settings"].to_string();
    assert!(set.contains("fq"), "{set}");
    // The emulator on request, and for what netem does not do.
    for name in ["emulator", "jitter"] {
        let document = Document::valid(guest.json(&format!("{name}.json")));
        assert!(document.at("/netem").is_null());
        assert!(document.number("/link/error_us/p99") > 0.0);
        let text = guest.read(name);
        assert!(text.contains("by the emulator"), "{text}");
    }
}

#[test]
fn a_study_has_links_of_both_kinds() {
    let Some(guest) = guest("a_study_has_links_of_both_kinds") else { return };
    let runs = ["study-1.json", "study-2.json"].map(|name| guest.json(name));
    let by = |key: &str| runs.iter().filter(|run| run[key].is_object()).count();
    assert_eq!((by("netem"), by("link")), (1, 1), "{}", guest.read("study"));
}

#[test]
fn nothing_is_left_of_links_by_netem() {
    let Some(guest) = guest("nothing_is_left_of_links_by_netem") else { return };
    assert!(
        guest.read("down").contains("removed lab lab (3 namespaces)"),
        "{}",
        guest.read("down")
    );
    assert!(guest.read("killed").contains("wirecost-run-"), "{}", guest.read("killed"));
    for name in ["after-down", "after-killed"] {
        assert_eq!(guest.read(name).trim(), "", "{name}");
    }
}
