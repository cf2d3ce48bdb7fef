//! `scale`: thirty thousand connections beside a hundred, each a few times in turn.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use wirecost_linux::process::descendants;

use crate::paired::{center, median, ratio_of_medians};
use crate::program::Program;

const FEW: u32 = 100;
const MANY: u32 = 30_000;
/// Number of connecting hosts in a lab.
const CLIENTS: u32 = 15;

const SET_UP_SECONDS: f64 = 0.5;
const TEAR_DOWN_SECONDS: f64 = 5.0;
/// User memory per end of a connection, without its kernel buffers.
const USER_BYTES: f64 = 800.0;
/// Payload per CPU second at many connections, over that at few.
const THROUGHPUT_PER_CPU: f64 = 0.5;

/// Compare thirty thousand open connections with a hundred.
///
/// Each writes 8 KiB at a time with buffers of 8 KiB. Measures setup and teardown time, memory of the
/// program, and payload per CPU second.
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// Number of runs of each.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Length of the window in milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(200..))]
    window: u32,

    /// Connect from fifteen hosts of a lab, which share the connections [default: one host on loopback].
    #[arg(long)]
    lab: bool,

    #[command(flatten)]
    program: Program,
}

/// The result of one run.
struct Run {
    open: u64,
    set_up: f64,
    tear_down: f64,
    /// Peak memory of all its processes together.
    memory: u64,
    /// Payload over busy cycles of the machine.
    kbytes_per_cycle: f64,
}

impl Scale {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let wirecost = self.program.find()?;
        let clients = if self.lab { CLIENTS } else { 1 };
        let folder = std::env::temp_dir().join(format!("wirecost-scale-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let result = self.rounds(&wirecost, &folder, clients);
        let _ = fs::remove_dir_all(&folder);
        let (few, many) = result?;
        self.table(out, &few, &many).map_err(|error| error.to_string())
    }

    fn rounds(
        &self,
        wirecost: &Path,
        folder: &Path,
        clients: u32,
    ) -> Result<(Vec<Run>, Vec<Run>), String> {
        let profile = folder.join("scale.xml");
        fs::write(&profile, text(clients)).map_err(|error| error.to_string())?;
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            few.push(self.once(wirecost, &profile, folder, FEW.div_ceil(clients))?);
            many.push(self.once(wirecost, &profile, folder, MANY / clients)?);
        }
        Ok((few, many))
    }

    fn once(
        &self,
        wirecost: &Path,
        profile: &Path,
        folder: &Path,
        connections: u32,
    ) -> Result<Run, String> {
        let json = folder.join("run.json");
        let mut command = Command::new(wirecost);
        command.arg("run").arg(profile).arg("--json").arg(&json).args([
            "--var",
            &format!("n={connections}"),
            "--var",
            &format!("d={}ms", self.window),
            "--ramp",
            "500ms",
            "--observe",
            "cpu",
            "--quiet",
        ]);
        if self.lab {
            command.arg("--lab");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut memory = 0;
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            let all = descendants(child.id());
            memory = all.into_iter().map(resident).sum::<u64>().max(memory);
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let text = fs::read_to_string(&json)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
        let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let run = read(&document, memory);
        run.ok_or_else(|| format!("no result: {}", document["error"]))
    }

    fn table(&self, out: &mut dyn Write, few: &[Run], many: &[Run]) -> std::io::Result<()> {
        let of = |runs: &[Run], figure: fn(&Run) -> f64| -> Vec<f64> {
            runs.iter().map(figure).collect()
        };
        let where_ = if self.lab { "from 15 hosts of a lab" } else { "on loopback" };
        let open = many.iter().map(|run| run.open).min().unwrap_or(0);
        writeln!(
            out,
            "{open} connections {where_} beside {}: medians of {} runs in turn, each with its 95% \
             interval\n",
            few.iter().map(|run| run.open).min().unwrap_or(0),
            self.rounds
        )?;
        writeln!(out, "{:<36}{:>10}{:>22}{:>8}  verdict", "", "", "interval", "goal")?;
        let mut row = |what: &str, values: &[f64], goal: f64, digits: usize| {
            let value = center(values).unwrap_or(f64::NAN);
            let interval = median(values).map_or_else(
                || "-".to_owned(),
                |m| format!("{:.digits$} to {:.digits$}", m.low, m.high),
            );
            let verdict = if value < goal { "met" } else { "missed" };
            writeln!(out, "{what:<36}{value:>10.digits$}{interval:>22}{goal:>8}  {verdict}")
        };
        row("set-up, s", &of(many, |run| run.set_up), SET_UP_SECONDS, 2)?;
        row("teardown, s", &of(many, |run| run.tear_down), TEAR_DOWN_SECONDS, 2)?;
        let more = |(many, few): (&Run, &Run)| {
            let ends = 2.0 * many.open.saturating_sub(few.open).max(1) as f64;
            many.memory.saturating_sub(few.memory) as f64 / ends
        };
        let memory: Vec<f64> = many.iter().zip(few).map(more).collect();
        row("user memory of one end, bytes", &memory, USER_BYTES, 0)?;
        let rate = |run: &Run| run.kbytes_per_cycle;
        let (few, many) = (of(few, rate), of(many, rate));
        let value = center(&many).zip(center(&few)).map_or(f64::NAN, |(many, few)| many / few);
        let interval = ratio_of_medians(&many, &few)
            .map_or_else(|| "-".to_owned(), |m| format!("{:.2} to {:.2}", m.low, m.high));
        let verdict = if value >= THROUGHPUT_PER_CPU { "met" } else { "missed" };
        writeln!(
            out,
            "{:<36}{value:>10.2}{interval:>22}{THROUGHPUT_PER_CPU:>8}  {verdict}",
            "payload for each CPU second, ratio"
        )
    }
}

/// One group per client.
fn text(clients: u32) -> String {
    let group = |host: u32| {
        format!(
            "  <group nthreads=\"$n\">\n    \
             <transaction iterations=\"1\"><flowop type=\"connect\" options=\"remotehost=$h{host} \
             protocol=tcp wndsz=8k\"/></transaction>\n    \
             <transaction duration=\"$d\"><flowop type=\"write\" options=\"size=8k\"/></transaction>\n    \
             <transaction iterations=\"1\"><flowop type=\"disconnect\"/></transaction>\n  \
             </group>\n"
        )
    };
    let groups: String = (1..=clients).map(group).collect();
    format!("<?xml version=\"1.0\"?>\n<profile name=\"scale\">\n{groups}</profile>\n")
}

/// Private anonymous memory in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kibibytes.unwrap_or(0u64) * 1024
}

fn read(document: &Value, memory: u64) -> Option<Run> {
    let phase = |number: usize| document.pointer(&format!("/phases/{number}/seconds"))?.as_f64();
    let cycles_per_kbyte = document.pointer("/machines/0/cycles_per_kbyte")?.as_f64()?;
    Some(Run {
        open: document.pointer("/connections/open")?.as_u64()?,
        set_up: phase(0)?,
        tear_down: phase(2)?,
        memory,
        kbytes_per_cycle: 1.0 / cycles_per_kbyte,
    })
}
