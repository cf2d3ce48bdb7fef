//! Departure times of datagrams (`txtime`): what refuses them, and in a virtual machine (`scripts/vm`), whose kernel has
//! fq, that each datagram leaves when it is due.

use std::sync::LazyLock;

use wirecost_linux::privilege::skip;

use crate::document::Document;
use crate::engines;
use crate::guest::Guest;
use crate::program::{BINARY, Program};

/// Datagrams of a call, transactions per second, and how long before they are due they are handed over.
const BATCH: u64 = 10;
const RATE: u64 = 2;
const LEAD: &str = "700ms";

/// A datagram each 50 ms: an emulated CPU may stand still for tens of milliseconds.
fn profile(options: &str, rate: &str, protocol: &str) -> String {
    format!(
        "<profile name=\"d\">\n<group nthreads=\"1\">\n<transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol={protocol}\"/>\n</transaction>\n\
         <transaction duration=\"4s\" {rate}>\n<flowop type=\"write\" options=\"size=64 {options}\"/>\n\
         </transaction>\n</group>\n</profile>\n"
    )
}

fn timed() -> String {
    profile(&format!("txtime={LEAD} batch={BATCH}"), &format!("rate=\"{RATE}\""), "udp")
}

fn fails(text: &str, arguments: &[&str], words: &[&str]) {
    let run = ["run", "d.xml", "--observe", "none", "--quiet", "--json", "run.json"];
    let finished = Program::new(run.iter().chain(arguments)).file("d.xml", text).finish();
    assert_ne!(finished.code, 0, "{finished}");
    let document = finished.document();
    let said = format!("{} {}", document.text("/error"), finished.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(document.is_null("/throughput"), "{finished}");
    for word in words {
        assert!(said.contains(word), "no {word}: {finished}");
    }
}

#[test]
fn departure_times_are_refused_where_they_mean_nothing() {
    let rate = "rate=\"10\"";
    fails(&profile("txtime=1ms", rate, "tcp"), &[], &["txtime", "use protocol=udp"]);
    fails(&profile("txtime=1ms", "", "udp"), &[], &["txtime", "a rate"]);
    for (lead, word) in [("0", "more than 0"), ("0ms", "more than 0"), ("2s", "from 1us to 1s")] {
        fails(&profile(&format!("txtime={lead}"), rate, "udp"), &[], &["txtime", word]);
    }
    let single = profile("txtime=1ms", rate, "udp");
    fails(&single, &["--engine", "af_xdp"], &["txtime is an option of the kernel's sockets"]);
}

/// `lo` has no queueing discipline, unless an administrator has set one.
#[test]
fn a_device_that_holds_nothing_back_is_refused_before_anything_is_sent() {
    fails(&timed(), &[], &["txtime: datagrams leave by lo", "`tc qdisc replace dev lo root fq`"]);
}

static GUEST: LazyLock<Result<Guest, String>> = LazyLock::new(|| {
    let engines: Vec<&str> = engines::names().collect();
    let engines = engines.join(" ");
    let script = format!(
        r"
set -e
exec 2>err
# On a busy machine an emulated CPU stands still at times, and the run is invalid.
run() {{ '{BINARY}' run --observe none --quiet --json $1.json $2.xml ${{@:3}} >$1.txt || test $? = 4; }}
tc qdisc add dev lo root pfifo
run pfifo timed && exit 1
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
    Guest::run("sch_fq", &files, &script)
});

/// `None` where there can be no virtual machine.
fn guest(test: &str) -> Option<&'static Guest> {
    GUEST.as_ref().map_err(|missing| skip(test, missing)).ok()
}

fn run(guest: &Guest, name: &str) -> Document {
    Document::valid(guest.json(&format!("{name}.json")))
}

/// A run that moved data. It may be invalid only because the guest stood still.
fn measured(guest: &Guest, name: &str) -> Document {
    let run = run(guest, name);
    if run.text("/status") != "ok" {
        let error = run.text("/error").split_whitespace().collect::<Vec<_>>().join(" ");
        let stood_still = ["no byte moved for", "the host was too busy"];
        assert!(stood_still.iter().any(|said| error.contains(said)), "{name}: {error}");
    }
    run
}

/// All are handed over by few calls, LEAD early, and none arrives before its departure: without fq their delays would all
/// be 0, as times before that of the departure count as 0. They arrive one by one.
#[test]
fn fq_sends_one_by_one_what_one_call_handed_over() {
    let Some(guest) = guest("fq_sends_one_by_one_what_one_call_handed_over") else { return };
    for engine in engines::names().chain(["one"]) {
        let run = measured(guest, engine);
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
    assert!(guest.read("after").contains("pfifo"), "{}", guest.read("after"));
}

#[test]
fn answers_count_from_the_departure_of_their_requests() {
    let Some(guest) = guest("answers_count_from_the_departure_of_their_requests") else { return };
    let run = measured(guest, "echo");
    let median = run.number("/latency_us/p50");
    // Less than the lead, and not before the request left.
    assert!(median > 0.0 && median < 600_000.0, "{median} us");
}

#[test]
fn what_holds_back_too_few_or_none_is_told() {
    let Some(guest) = guest("what_holds_back_too_few_or_none_is_told") else { return };
    let pfifo = run(guest, "pfifo");
    let error = pfifo.text("/error").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(error.contains("leave by lo, whose queueing discipline pfifo"), "{error}");
    let short = measured(guest, "short");
    let codes: Vec<_> = short.list("/warnings").iter().map(|warning| &warning["code"]).collect();
    assert!(codes.iter().any(|code| *code == "departure-queue-short"), "{codes:?}");
    // Without a time all of a call leave together.
    let at_once = measured(guest, "at-once");
    assert_eq!(at_once.count("/io/sends/datagrams"), at_once.count("/io/sends/calls") * BATCH);
}
