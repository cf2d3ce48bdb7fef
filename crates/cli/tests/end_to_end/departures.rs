//! Departure times of datagrams (`txtime`): what refuses them. That each datagram leaves when it is due is in the target
//! `vm`, whose kernel has fq.

use crate::program::Program;
use crate::timed_datagrams::{profile, timed};

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
