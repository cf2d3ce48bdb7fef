//! What it costs to read what probes read at the two edges of a window, in the network namespace that this runs in, in time
//! that passes and in CPU time of this process:
//!
//! ```text
//! cargo run --release -p wirecost-observe --example edges -- nic,drops:basic
//! ```

use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wirecost_model::observe::{ObserveRequest, Part};
use wirecost_observe::Observer;

const WINDOWS: usize = 101;

fn main() -> Result<(), Box<dyn Error>> {
    let names = std::env::args().nth(1).ok_or("name probes, as nic,drops:basic")?;
    let mut out = std::io::stdout().lock();
    for name in names.split(',') {
        let parts = vec![Part { host: "here".to_owned(), ..Part::default() }];
        let mut observer = Observer::open(ObserveRequest { probes: vec![name.to_owned()], parts });
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..WINDOWS {
            observer.attach();
            begins.push(timed(|| observer.begin()));
            ends.push(timed(|| observer.end()));
            observer.detach();
        }
        for (edge, all) in [("begin", begins), ("end", ends)] {
            for (which, clock) in ["time", "CPU time"].iter().enumerate() {
                let mut times: Vec<Duration> = all.iter().map(|of| of[which]).collect();
                times.sort();
                let at = |quarter: usize| times[quarter * (WINDOWS - 1) / 4].as_secs_f64() * 1e3;
                let (low, middle, high) = (at(1), at(2), at(3));
                writeln!(
                    out,
                    "{name}, {edge}, {clock}: {middle:.2} ms (quartiles {low:.2} to {high:.2})"
                )?;
            }
        }
    }
    Ok(())
}

fn timed(read: impl FnOnce()) -> [Duration; 2] {
    let (at, cpu) = (Instant::now(), cpu_time());
    read();
    [at.elapsed(), cpu_time().saturating_sub(cpu)]
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
