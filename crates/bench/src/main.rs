//! Measurements that claims of speed rest on: each side by side with what it is compared to,
//! interleaved, in one run, as a ratio with its interval.

mod callgrind;
mod namespace;
mod observe;
mod paired;
mod peers;
mod program;
mod recording;
mod report;
mod rounds;
mod scale;
mod traffic;
mod variants;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "wirecost-bench", about = "Side-by-side measurements of wirecost")]
enum Bench {
    /// What observing costs: each set of probes against none, in pairs of slices of one run.
    Observe(observe::Observe),
    /// What recording costs an operation, in instructions.
    Recording(recording::Recording),
    /// The table of a thousand runs.
    Report(report::Report),
    /// Thirty thousand connections beside a hundred.
    Scale(scale::Scale),
    #[command(hide = true)]
    RecordingLoop(recording::Loop),
    /// wirecost beside the programs that others use, and its ports of them beside their originals.
    Peers(peers::Peers),
    /// One profile in several settings.
    Variants(variants::Variants),
}

fn main() -> ExitCode {
    let result = match Bench::parse() {
        Bench::Observe(bench) => bench.run(&mut io::stdout()),
        Bench::Recording(bench) => bench.run(&mut io::stdout()),
        Bench::Report(bench) => bench.run(&mut io::stdout()),
        Bench::Scale(bench) => bench.run(&mut io::stdout()),
        Bench::RecordingLoop(of) => {
            of.run();
            Ok(())
        }
        Bench::Peers(bench) => bench.run(&mut io::stdout()),
        Bench::Variants(bench) => bench.run(&mut io::stdout()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "wirecost-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
