//! `lateness`: whether saturated runs read their counters on time.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::interrupt;
use crate::program::Program;

/// Saturate loopback again and again, and tell how late counters were read and which runs are invalid.
///
/// Streams of 64 KiB writes between two hosts on loopback, which share all CPUs. Use a machine on which nothing else
/// runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Lateness {
    /// Number of runs of each engine at each number of connections.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Engines, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "epoll,io_uring,io_uring_sqpoll,poll,threads"
    )]
    engines: Vec<String>,

    /// Numbers of connections, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,8,100,1000")]
    connections: Vec<u32>,

    /// Length of the window in milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..))]
    window: u32,

    /// Probes, as `wirecost run --observe` takes them.
    #[arg(long, default_value = "none")]
    observe: String,

    #[command(flatten)]
    program: Program,
}

/// What one run says.
#[derive(Debug, PartialEq)]
struct Run {
    status: String,
    reason: String,
    /// Microseconds after an edge of its window, at most.
    late: Option<f64>,
}

impl Lateness {
    /// # Errors
    /// A run that did not end with a document, and runs that are invalid.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let wirecost = self.program.find()?;
        interrupt::watch()?;
        let folder = std::env::temp_dir().join(format!("wirecost-lateness-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let result = self.points(out, &wirecost, &folder.join("run.json"));
        let _ = fs::remove_dir_all(&folder);
        match result? {
            0 => Ok(()),
            invalid => Err(format!("{invalid} runs are not valid")),
        }
    }

    /// Returns the number of runs that are not valid.
    fn points(&self, out: &mut dyn Write, wirecost: &Path, json: &Path) -> Result<usize, String> {
        let written = |error: std::io::Error| error.to_string();
        writeln!(
            out,
            "{:<18}{:>12}{:>7}{:>9}{:>10}{:>10}{:>10}{:>10}  late by, us",
            "engine", "connections", "runs", "invalid", "p50", "p90", "p99", "max"
        )
        .map_err(written)?;
        let mut all = 0;
        for engine in &self.engines {
            for &connections in &self.connections {
                let mut runs = Vec::new();
                for _ in 0..self.rounds {
                    interrupt::check_interrupted()?;
                    runs.push(self.once(wirecost, json, engine, connections)?);
                }
                let (invalid, reasons) = invalid(&runs);
                all += invalid;
                let late = quantiles(&runs).map_or_else(
                    || format!("{:>40}", "-"),
                    |late| late.iter().map(|late| format!("{late:>10.0}")).collect(),
                );
                writeln!(out, "{engine:<18}{connections:>12}{:>7}{invalid:>9}{late}", runs.len())
                    .map_err(written)?;
                for (reason, count) in reasons {
                    writeln!(out, "    {count} x {reason}").map_err(written)?;
                }
                out.flush().map_err(written)?;
            }
        }
        Ok(all)
    }

    fn once(
        &self,
        wirecost: &Path,
        json: &Path,
        engine: &str,
        connections: u32,
    ) -> Result<Run, String> {
        let mut command = Command::new(wirecost);
        command
            .args(["run", "@stream", "--engine", engine, "--quiet"])
            .args(["--connections", &connections.to_string()])
            .args(["--duration", &format!("{}ms", self.window), "--observe", &self.observe])
            .arg("--json")
            .arg(json);
        let output = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let text = fs::read_to_string(json)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
        // So that a run that writes none is not taken for the one before.
        fs::remove_file(json).map_err(|error| error.to_string())?;
        let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(read(&document))
    }
}

fn read(document: &Value) -> Run {
    let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let late = document.pointer("/window/late_us").and_then(Value::as_f64);
    Run { status: text("status"), reason: text("error"), late }
}

/// How many runs are not valid, and how many for each reason.
fn invalid(runs: &[Run]) -> (usize, BTreeMap<&str, usize>) {
    let mut reasons = BTreeMap::new();
    for run in runs.iter().filter(|run| run.status != "ok") {
        *reasons.entry(run.reason.as_str()).or_default() += 1;
    }
    (reasons.values().sum(), reasons)
}

/// The median, the 90th and 99th percentile, and the maximum.
fn quantiles(runs: &[Run]) -> Option<[f64; 4]> {
    let mut late: Vec<f64> = runs.iter().filter_map(|run| run.late).collect();
    late.sort_by(f64::total_cmp);
    let last = late.len().checked_sub(1)?;
    let at = |share: f64| late[((last as f64 * share).round() as usize).min(last)];
    Some([0.5, 0.9, 0.99, 1.0].map(at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_runs_are_told_by_reason() {
        let runs = [
            read(&json!({"status": "ok", "error": null, "window": {"late_us": 70.0}})),
            read(&json!({"status": "invalid", "error": "late", "window": {"late_us": 311e3}})),
            read(&json!({"status": "invalid", "error": "late", "window": {"late_us": 90.0}})),
            read(&json!({"status": "peer", "error": "gone", "window": null})),
        ];
        let (count, reasons) = invalid(&runs);
        assert_eq!(count, 3);
        assert_eq!(reasons, BTreeMap::from([("gone", 1), ("late", 2)]));
        assert_eq!(quantiles(&runs), Some([90.0, 311e3, 311e3, 311e3]));
        assert_eq!(quantiles(&runs[3..]), None);
    }
}
