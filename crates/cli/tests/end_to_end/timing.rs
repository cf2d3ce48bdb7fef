//! Times are those that were asked for.

use crate::attempts::undisturbed;
use crate::document::Document;
use crate::engines;
use crate::program::Program;

fn timed(transaction: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<profile name=\"timed\">\n<group nthreads=\"2\">\n\
         <transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp tcp_nodelay\"/>\n\
         </transaction>\n<transaction {transaction}>\n\
         <flowop type=\"write\" options=\"size=64\"/>\n\
         <flowop type=\"read\" options=\"size=64\"/>\n</transaction>\n</group>\n</profile>\n"
    )
}

#[test]
fn a_phase_lasts_as_long_as_it_was_asked_to() {
    for (asked, engine) in [("400ms", "epoll"), ("850ms", "epoll"), ("850ms", "threads")] {
        let document = Program::new(["run", "timed.xml", "--ramp", "200ms", "--quiet"])
            .args(["--interval", "100ms", "--engine", engine])
            // Of uperf's dialect, where m is milliseconds.
            .file("timed.xml", &timed(&format!("duration=\"{}\"", asked.replace("ms", "m"))))
            .measure();
        let wanted: f64 = asked.trim_end_matches("ms").parse::<f64>().unwrap() / 1000.0;
        let got = document.number("/window/seconds");
        document.lasts(wanted);
        assert_eq!(document.number("/window/ramp_seconds"), 0.2);
        assert_eq!(document.number("/phases/1/seconds"), got);
    }
}

/// A phase of iterations is counted whole.
#[test]
fn iterations_are_counted_to_the_last() {
    for engine in engines::names() {
        let document = Program::new(["run", "count.xml", "--quiet", "--engine", engine])
            .file("count.xml", &timed("iterations=\"500\""))
            .measure();
        assert_eq!(document.text("/window/kind"), "iterations");
        assert_eq!(document.count("/transactions/count"), 1000);
        assert_eq!(document.count("/throughput/tx_bytes"), 64_000);
        assert_eq!(document.count("/throughput/rx_bytes"), 64_000);
        assert_eq!(document.count("/latency_us/count"), 1000);
        assert_eq!(document.count("/operations/count"), 2000);
    }
}

mod measured {
    use super::*;

    /// What is due while the machine has no CPU for it comes later, or beyond the end of the window: so no
    /// more may come than was due, always, and as many, when nothing disturbs.
    #[test]
    fn a_rate_is_kept() {
        for engine in engines::names() {
            let run = || {
                let document = Program::new(["run", "rate.xml", "--ramp", "200ms", "--quiet"])
                    .args(["--interval", "100ms", "--engine", engine])
                    .file("rate.xml", &timed("duration=\"1s\" rate=\"400\""))
                    .measure();
                // Of each of two strands. What was late when the window began has its latency from when it was due.
                let count = document.count("/transactions/count");
                let late = document.number("/latency_us/max") / 1e6 + document.skew();
                let most = 800.0 * (document.number("/window/seconds") + late) + 2.0;
                assert!(count as f64 <= most, "{engine}: {count} of at most {most}");
                document
            };
            undisturbed(run, Document::disturbances, |document| {
                // Threads that spin take the CPUs of those that have something due.
                if document.has_warning("pollers-share-cpus") {
                    return;
                }
                let count = document.count("/transactions/count");
                // False failures: 1e-5 (x5), computed: the last 50 ms would have to be late at both strands.
                assert!(count.abs_diff(800) <= 40, "{engine}: {count}, not 800");
                let per_second = document.number("/transactions/per_second");
                // Of the same transactions: the window is longer or shorter by as much as the document says.
                let within = 40.0 + 800.0 * 2.0 * document.skew();
                // False failures: 1e-6 (x5), computed: the count before, divided by a window that is off by no more than it tells.
                assert!((per_second - 800.0).abs() <= within, "{engine}: {per_second}, not 800");
            });
        }
    }
}
