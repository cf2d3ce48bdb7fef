//! A virtual machine by `scripts/vm`, which runs parts of a test one after another (`run-parts`). Each part is checked as soon as
//! it has ended, and none hides another.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use wirecost_linux::privilege::skip;

use crate::document::Document;
use crate::program::BINARY;

/// Exit code of `scripts/vm` where this machine lacks what it takes.
pub(crate) const LACKS: i32 = 126;

/// What a guest does, and what must hold of what it leaves.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// Names and contents.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// For bash, after `functions.sh`.
    pub(crate) script: String,
    pub(crate) checks: &'static [Check],
}

/// Its name, and what panics if it does not hold.
pub(crate) type Check = (&'static str, fn(&Left));

/// Functions as checks that have their names.
macro_rules! checks {
    ($($check:ident),+ $(,)?) => {
        &[$((stringify!($check), $check)),+]
    };
}
pub(crate) use checks;

/// What a part left.
#[derive(Debug)]
pub(crate) struct Left {
    directory: PathBuf,
}

impl Left {
    /// Empty where there is no such file.
    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self, name: &str) -> Value {
        let text = self.read(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"))
    }

    /// What a command of `measure` has written, however it ended.
    #[track_caller]
    pub(crate) fn document(&self, name: &str) -> Document {
        Document::valid(self.json(&format!("{name}.json")))
    }

    /// The same of one that ended well.
    #[track_caller]
    pub(crate) fn measured(&self, name: &str) -> Document {
        Document::valid(self.ended_well(name))
    }

    /// The JSON of a command of `measure` that ended well.
    #[track_caller]
    pub(crate) fn ended_well(&self, name: &str) -> Value {
        let read = |extension: &str| self.read(&format!("{name}.{extension}"));
        let reason = serde_json::from_str(&read("json"))
            .map_or_else(|_| String::new(), |run| reason_of(&run));
        assert_eq!(read("code").trim(), "0", "{name} failed: {reason}\n{}", read("err"));
        self.json(&format!("{name}.json"))
    }

    /// The reasons for which a command of `measure` was repeated.
    pub(crate) fn retried(&self, name: &str) -> Vec<String> {
        let attempts = (1..3).map(|attempt| self.directory.join(format!("{name}.{attempt}.json")));
        let read = attempts.filter_map(|path| fs::read(path).ok());
        read.map(|bytes| reason_of(&serde_json::from_slice(&bytes).unwrap_or_default())).collect()
    }

    /// The names of all that `measure` did.
    fn measures(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut measures: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".code")?.to_owned())).collect();
        measures.sort();
        measures
    }

    /// `None` before its end.
    fn status(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory.join("status")).ok()?;
        Some(text.trim().to_owned())
    }
}

/// Why a run was not valid, on one line.
pub(crate) fn reason_of(run: &Value) -> String {
    run["error"].as_str().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks of a guest, which are told as they end.
#[derive(Debug)]
pub(crate) struct Report {
    guest: &'static str,
    failed: Vec<String>,
}

impl Report {
    pub(crate) fn says(&self, text: &str) {
        println!("{}: {text}", self.guest);
    }

    /// With the time that it took.
    pub(crate) fn says_after(&self, text: &str, began: Instant) {
        self.says(&format!("{text}: {:.0} s", began.elapsed().as_secs_f64()));
    }

    /// What fails is told, and the next can be checked.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce()) {
        let holds = catch_unwind(AssertUnwindSafe(check)).is_ok();
        self.says(&format!("{name} {}", if holds { "ok" } else { "FAILED" }));
        if !holds {
            self.failed.push(name.to_owned());
        }
    }
}

pub(crate) fn tell_retried(name: &str, reason: &str) {
    println!("RETRIED {name} {reason}");
}

/// A guest that is not booted yet, and its parts.
#[derive(Debug)]
pub(crate) struct Guest {
    directory: TempDir,
    parts: Vec<(Part, Left)>,
    pub(crate) began: Instant,
    pub(crate) report: Report,
}

impl Guest {
    pub(crate) fn new(name: &'static str, mut parts: Vec<Part>) -> Self {
        parts.retain(|part| is_wanted(part.name));
        let directory = tempfile::tempdir().unwrap();
        let prepare = |(number, part): (usize, Part)| {
            let left = Left {
                directory: directory.path().join(format!("parts/{number:02}-{}", part.name)),
            };
            fs::create_dir_all(&left.directory).unwrap();
            let script =
                format!("program='{BINARY}'\n{}\n{}", include_str!("functions.sh"), part.script);
            fs::write(left.directory.join("script"), script).unwrap();
            for (name, content) in &part.files {
                fs::write(left.directory.join(name), content).unwrap();
            }
            (part, left)
        };
        let parts = parts.into_iter().enumerate().map(prepare).collect();
        let report = Report { guest: name, failed: Vec::new() };
        Self { directory, parts, began: Instant::now(), report }
    }

    /// What the guest sees for writing.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.report.guest
    }

    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Boots it with no devices, for its parts only.
    pub(crate) fn run(mut self) {
        if !self.has_parts() {
            return;
        }
        let mut process = Command::new(script("vm"))
            .arg(self.directory())
            .args(["", run_parts()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.watch(&mut process);
        self.ends(process, true);
    }

    /// Checks all parts as they end; returns when none is left, or the guest has ended.
    pub(crate) fn watch(&mut self, process: &mut Child) {
        if !self.has_parts() {
            return;
        }
        let Self { directory, parts, began, report } = self;
        let directory = directory.path().to_owned();
        let mut ended = false;
        // What was there before the end is seen after it.
        let mut until = |holds: &dyn Fn() -> bool| {
            while !holds() && !ended {
                std::thread::sleep(Duration::from_millis(50));
                ended = process.try_wait().unwrap().is_some();
            }
            holds()
        };
        if until(&|| directory.join("booted").exists()) {
            report.says_after("booted", *began);
        }
        for (part, left) in parts {
            if !until(&|| left.directory.join("started").exists()) {
                return;
            }
            let began = Instant::now();
            report.says(&format!("{} runs", part.name));
            until(&|| left.status().is_some());
            report.says_after(part.name, began);
            for name in left.measures() {
                for reason in left.retried(&name) {
                    let name = format!("{}::{}::{name}", report.guest, part.name);
                    tell_retried(&name, &reason);
                }
            }
            report.check(&format!("{}::script", part.name), || {
                let said = [left.read("stdout"), left.read("stderr")].join("\n");
                assert_eq!(left.status().as_deref(), Some("0"), "{}: {said}", part.name);
            });
            for (name, check) in part.checks {
                report.check(&format!("{}::{name}", part.name), || check(left));
            }
        }
    }

    /// Waits for the end of the script that runs it. Fails if a check or a part failed, or if it never was `up`; where this machine
    /// lacks what a guest takes, that is told.
    pub(crate) fn ends(mut self, process: Child, up: bool) {
        let done = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.code() == Some(LACKS) {
            return skip(self.name(), said.trim());
        }
        let left = self.parts.iter().filter(|(_, left)| left.status().is_none());
        let left: Vec<&str> = left.map(|(part, _)| part.name).collect();
        self.report.check("all_parts_ended", || assert!(up && left.is_empty(), "{left:?}"));
        self.report.says_after("ended", self.began);
        let console = fs::read(self.directory().join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let Report { guest, failed } = self.report;
        assert!(failed.is_empty(), "failed in {guest}: {failed:#?}\n{said}\n{console}");
    }
}

/// Whether a part runs: see `main.rs`.
pub(crate) fn is_wanted(part: &str) -> bool {
    std::env::var("WIRECOST_VM_PARTS").map_or(true, |word| part.contains(&word))
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}

pub(crate) fn run_parts() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vm/run-parts")
}
