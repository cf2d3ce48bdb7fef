//! What reading a study takes: `cargo run --release -p wirecost-store --example reading RECORD RUNS`
//! makes a study of that many copies of a record in a temporary directory, and reads it.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::time::Instant;

use wirecost_store::study::Writer;

fn main() -> Result<(), Box<dyn Error>> {
    let [record, runs] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("name a record and a number of runs".into());
    };
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("study");
    let writer = Writer::create(&directory, "", [])?;
    for number in 1..=runs.parse::<u32>()? {
        let to = writer.study().record(&format!("{number:04}-01"));
        std::fs::create_dir(&to)?;
        for entry in std::fs::read_dir(record)? {
            let entry = entry?;
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    for _ in 0..3 {
        let (start, cpu) = (Instant::now(), cpu_ticks()?);
        let runs = writer.study().runs()?;
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
