//! Measurements behind claims of speed. Each is interleaved with its reference in one run, and reported
//! as a ratio with its interval.

mod callgrind;
mod findings;
mod interrupt;
mod lab;
mod lateness;
mod namespace;
mod observe;
mod paired;
mod peers;
mod program;
mod recording;
mod report;
mod resampling;
mod rounds;
mod scale;
mod statistics;
mod traffic;
mod tune;
mod turns;
mod variants;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "wirecost-bench", about = "Side-by-side measurements of wirecost")]
enum Bench {
    /// Fill emulated links: their rate and their errors.
    Lab(lab::Lab),
    /// Saturate loopback again and again: how late counters are read, and which runs are invalid.
    Lateness(lateness::Lateness),
    /// Measure the cost of observing: each set of probes against none, in pairs of slices of one run.
    Observe(observe::Observe),
    /// Count the instructions that recording takes per operation.
    Recording(recording::Recording),
    /// Time the report of a thousand runs.
    Report(report::Report),
    /// Draw studies from real runs: false alarms, and changes found.
    Resampling(resampling::Resampling),
    /// Compare thirty thousand connections with a hundred.
    Scale(scale::Scale),
    /// Simulate comparisons of studies: false alarms, and changes found.
    Statistics(statistics::Statistics),
    /// Simulate searches for the best setting: how near to it they end, and gains claimed where there is none.
    Tune(tune::Tune),
    #[command(hide = true)]
    RecordingLoop(recording::Loop),
    #[command(hide = true)]
    Turns(turns::Turns),
    /// Compare wirecost with other programs, and its ports of them with their originals.
    Peers(peers::Peers),
    /// Compare settings of one profile.
    Variants(variants::Variants),
}

fn main() -> ExitCode {
    let result = match Bench::parse() {
        Bench::Observe(bench) => bench.run(&mut io::stdout()),
        Bench::Recording(bench) => bench.run(&mut io::stdout()),
        Bench::Report(bench) => bench.run(&mut io::stdout()),
        Bench::Resampling(bench) => bench.run(&mut io::stdout()),
        Bench::Lab(bench) => bench.run(&mut io::stdout()),
        Bench::Lateness(bench) => bench.run(&mut io::stdout()),
        Bench::Scale(bench) => bench.run(&mut io::stdout()),
        Bench::Statistics(bench) => bench.run(&mut io::stdout()),
        Bench::RecordingLoop(of) => {
            of.run();
            Ok(())
        }
        Bench::Turns(turns) => turns.run(),
        Bench::Peers(bench) => bench.run(&mut io::stdout()),
        Bench::Tune(bench) => bench.run(&mut io::stdout()),
        Bench::Variants(bench) => bench.run(&mut io::stdout()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if interrupt::is_interrupted() => ExitCode::from(130),
        Err(error) => {
            let _ = writeln!(io::stderr(), "wirecost-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
