//! Departure times of datagrams (`txtime`): in a guest, whose kernel has fq, each datagram leaves when it is due.

use crate::document::Document;
use crate::engines;
use crate::guest::{Left, Part, checks, reason_of};
use crate::timed_datagrams::{BATCH, LEAD, RATE, profile, timed};

pub(crate) fn part() -> Part {
    let engines: Vec<&str> = engines().collect();
    let engines = engines.join(" ");
    let script = format!(
        r"
set -e
modprobe sch_fq
tc qdisc add dev lo root pfifo
trap 'tc qdisc delete dev lo root' EXIT
run() {{ measure $1 run $2.xml --observe none --quiet ${{@:3}}; }}
run pfifo timed
for engine in {engines}; do run $engine timed --engine $engine --tune-device lo --tune qdisc=fq; done
run one one --engine io_uring --tune-device lo --tune qdisc=fq
run echo echo --tune-device lo --tune qdisc=fq
run short short --tune-device lo --tune qdisc=fq
run at-once at-once
tc qdisc show dev lo >after
"
    );
    let rate = format!("rate=\"{RATE}\"");
    let at_once = profile(&format!("batch={BATCH}"), &rate, "udp");
    let write = format!(
        "size=64 txtime={LEAD} outstanding=1000\"/>\n<flowop type=\"read\" options=\"size=64"
    );
    let echo = timed().replace(&format!("size=64 txtime={LEAD} batch={BATCH}"), &write);
    let short = timed().replace("batch=10", "batch=200");
    // By the ring itself.
    let one = profile(&format!("txtime={LEAD}"), "rate=\"20\"", "udp");
    let files =
        [("timed", timed()), ("at-once", at_once), ("one", one), ("echo", echo), ("short", short)];
    let files = files.map(|(name, text)| (format!("{name}.xml"), text.into_bytes()));
    Part {
        name: "departures",
        files: files.into(),
        script,
        checks: checks![
            fq_sends_one_by_one_what_one_call_handed_over,
            answers_count_from_the_departure_of_their_requests,
            what_holds_back_too_few_or_none_is_told,
        ],
    }
}

/// A run that moved data. It may be invalid only because the guest stood still in each attempt.
fn measured(left: &Left, name: &str) -> Document {
    let run = left.document(name);
    if run.text("/status") != "ok" {
        let error = reason_of(run.value());
        let stood_still = ["no byte moved for", "the host was too busy"];
        assert!(stood_still.iter().any(|said| error.contains(said)), "{name}: {error}");
    }
    run
}

/// All are handed over by few calls, LEAD early, and none arrives before its departure: without fq their delays would all
/// be 0, as times before that of the departure count as 0. They arrive one by one.
fn fq_sends_one_by_one_what_one_call_handed_over(left: &Left) {
    for engine in engines().chain(["one"]) {
        let run = measured(left, engine);
        let (calls, sent) = (run.count("/io/sends/calls"), run.count("/io/sends/datagrams"));
        assert_eq!(sent, if engine == "one" { calls } else { calls * BATCH }, "{engine}");
        assert_eq!(run.count("/datagrams/lost"), 0, "{engine}");
        assert!(run.number("/datagrams/one_way_us/delay/p50") > 0.0, "{engine}");
        // Pollers of the kernel keep both emulated CPUs busy.
        if !["one", "io_uring_sqpoll"].contains(&engine) {
            let of_calls = |what: &str| run.count(&format!("/io/receives/{what}"));
            let (calls, got) = (of_calls("calls"), of_calls("datagrams"));
            assert!(calls * 3 > got, "{engine}: {got} datagrams by {calls} calls");
        }
    }
    assert!(left.read("after").contains("pfifo"), "{}", left.read("after"));
}

fn answers_count_from_the_departure_of_their_requests(left: &Left) {
    let median = measured(left, "echo").number("/latency_us/p50");
    // Less than the lead, and not before the request left.
    assert!(median > 0.0 && median < 600_000.0, "{median} us");
}

fn what_holds_back_too_few_or_none_is_told(left: &Left) {
    assert_ne!(left.read("pfifo.code").trim(), "0");
    let error = reason_of(left.document("pfifo").value());
    assert!(error.contains("leave by lo, whose queueing discipline pfifo"), "{error}");
    assert!(measured(left, "short").has_warning("departure-queue-short"));
    // Without a time all of a call leave together.
    let at_once = measured(left, "at-once");
    assert_eq!(at_once.count("/io/sends/datagrams"), at_once.count("/io/sends/calls") * BATCH);
}
