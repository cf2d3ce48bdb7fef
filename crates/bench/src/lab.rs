//! `lab`: whether emulated links do what they say, with both hosts on this machine.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::paired::{center, median};
use crate::program::Program;

/// Links, each with the error that 99% of its frames must not exceed (microseconds).
const LINKS: [(&str, &str, f64, f64); 2] =
    [("200mbit", "50ms", 200e6, 1_000.0), ("1gbit", "20ms", 1e9, 1_000.0)];

/// The rate on the wire may differ from that of the link by this share.
const RATE: f64 = 0.02;

/// Fill emulated links by TCP, and compare their rate and errors with the goals.
#[derive(Debug, clap::Args)]
pub(crate) struct Lab {
    /// Number of runs of each link.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    #[command(flatten)]
    program: Program,
}

/// The result of one run.
struct Run {
    rate: f64,
    p99: f64,
    cpu: f64,
    steal: f64,
}

impl Lab {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let wirecost = self.program.find()?;
        let folder = std::env::temp_dir().join(format!("wirecost-lab-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let result = self.rounds(&wirecost, &folder);
        let _ = fs::remove_dir_all(&folder);
        self.table(out, &result?).map_err(|error| error.to_string())
    }

    /// The runs of each link, in turn.
    fn rounds(&self, wirecost: &Path, folder: &Path) -> Result<Vec<Vec<Run>>, String> {
        let mut runs: Vec<Vec<Run>> = LINKS.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for ((rate, rtt, ..), runs) in LINKS.iter().zip(&mut runs) {
                runs.push(once(wirecost, &folder.join("run.json"), rate, rtt)?);
            }
        }
        Ok(runs)
    }

    fn table(&self, out: &mut dyn Write, all: &[Vec<Run>]) -> std::io::Result<()> {
        writeln!(
            out,
            "Emulated links filled by TCP: medians of {} runs in turn, each with its 95% interval\n",
            self.rounds
        )?;
        writeln!(out, "{:<34}{:>10}{:>22}{:>14}  verdict", "", "", "interval", "goal")?;
        for ((rate, rtt, wanted, limit), runs) in LINKS.iter().zip(all) {
            let mut row = |what: &str,
                           figure: fn(&Run) -> f64,
                           scale: f64,
                           goal: &str,
                           met: &dyn Fn(f64) -> bool| {
                let values: Vec<f64> = runs.iter().map(|run| figure(run) / scale).collect();
                let value = center(&values).unwrap_or(f64::NAN);
                let interval = median(&values)
                    .map_or_else(|| "-".to_owned(), |m| format!("{:.3} to {:.3}", m.low, m.high));
                let verdict = match (goal, met(value)) {
                    ("", _) => "",
                    (_, true) => "met",
                    (_, false) => "missed",
                };
                let what = format!("{rate} x {rtt}: {what}");
                writeln!(out, "{what:<34}{value:>10.3}{interval:>22}{goal:>14}  {verdict}")
            };
            let near = |value: f64| (value - 1.0).abs() <= RATE;
            row("rate / link's", |run| run.rate, *wanted, "0.98 to 1.02", &near)?;
            let goal = format!("< {:.0}", limit / 1e3);
            row("error p99, ms", |run| run.p99, 1e3, &goal, &|value| value < limit / 1e3)?;
            row("emulator, CPUs", |run| run.cpu, 100.0, "", &|_| true)?;
            row("steal, percent", |run| run.steal, 1.0, "", &|_| true)?;
        }
        Ok(())
    }
}

fn once(wirecost: &Path, json: &Path, rate: &str, rtt: &str) -> Result<Run, String> {
    let mut command = Command::new(wirecost);
    command.args(["run", "@stream", "--lab", "--rate", rate, "--rtt", rtt, "--ramp", "3s"]);
    command.args(["--backend", "emulator"]);
    command.args(["--duration", "4s", "--observe", "cpu", "--quiet", "--json"]).arg(json);
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = fs::read_to_string(json)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    read(&document).ok_or_else(|| format!("no result: {}", document["error"]))
}

fn read(document: &Value) -> Option<Run> {
    let lines = document.pointer("/link/lines")?.as_array()?;
    let forward = lines.iter().find(|line| line["name"] == "forward")?;
    Some(Run {
        rate: forward["bits_per_second"].as_f64()?,
        p99: document.pointer("/link/error_us/p99")?.as_f64()?,
        cpu: document.pointer("/link/cpu_percent")?.as_f64()?,
        steal: document.pointer("/machines/0/cpu/steal")?.as_f64()?,
    })
}
