//! What reading a study takes: `cargo run --release -p wirecost-store --example reading RECORD RUNS`
//! makes a study of that many copies of a record in a temporary directory, and reads it.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use wirecost_store::study::{Study, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let [record, runs] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("name a record and a number of runs".into());
    };
    let record = wirecost_store::read(Path::new(record))?;
    let hosts = serde_json::to_value(&record.hosts)?;
    let hosts = hosts.as_object().cloned().unwrap_or_default();
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("study");
    let writer = Writer::create(&directory, "", [])?;
    let start = Instant::now();
    for number in 1..=runs.parse()? {
        let number: u32 = number;
        writer.save(&format!("{number:04}-01"), &record.run, &hosts)?;
    }
    println!("writing: {:?}", start.elapsed());
    for _ in 0..3 {
        let (start, cpu) = (Instant::now(), cpu_ticks()?);
        let runs = Study::open(&directory)?.runs()?;
        let (wall, cpu) = (start.elapsed(), cpu_ticks()? - cpu);
        println!("reading {} runs: {wall:?}, of CPU time {} ms", runs.len(), cpu * 10);
    }
    Ok(())
}

/// User and system time of this process, in hundredths of a second (proc_pid_stat(5)).
fn cpu_ticks() -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}
