//! What the doctor says of a host before anything is run there: the document `wirecost.doctor/1`.
//! Keys are stable: adding one keeps the version, changing or removing one makes a new one. The
//! JSON Schema is docs/schema/wirecost.doctor-1.json.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::CycleCounter;
use crate::observe::ProbeStatus;
use crate::renamed::renamed;
use crate::status::Status;

renamed!(
    /// What to type as root on that host; none where no command helps, or none is needed.
    fix, formerly mend, in fix
);

pub const SCHEMA: &str = "wirecost.doctor/1";

/// The document of one examination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Examination {
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost.
    pub version: String,
    /// Wall-clock time, milliseconds since 1970.
    pub examined_unix_ms: u64,
    /// Address of the agent; `None` for this host.
    pub address: Option<String>,
    /// `None` where no host was examined.
    pub host: Option<Subject>,
    /// What can be measured there.
    pub probes: Vec<ProbeState>,
    /// What can invalidate a benchmark, the worst first.
    pub findings: Vec<Finding>,
    /// Checks that could not run.
    pub unknown: Vec<Unknown>,
    /// All checks, by name.
    pub checks: Vec<String>,
    /// What a number of connections needs; `None` where none was requested.
    pub capacity: Option<Capacity>,
}

/// What this number of open connections needs on a host that has one end of each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    pub connections: u64,
    pub needs: Vec<Need>,
}

/// One thing that connections need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    pub name: String,
    pub needed: u64,
    pub unit: Unit,
    /// What the host has; `None` where it does not say.
    pub available: Option<u64>,
    pub enough: Option<bool>,
    /// How `needed` comes about.
    pub why: String,
    #[serde(flatten, with = "fix")]
    #[schemars(with = "fix::Keys<Vec<String>>")]
    pub fix: Vec<String>,
    /// Commands that put it back as it is.
    pub undo: Vec<String>,
    pub advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Count,
    Bytes,
}

impl Need {
    #[must_use]
    pub fn new(name: &str, needed: u64, unit: Unit, available: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            needed,
            unit,
            available,
            enough: available.map(|available| available >= needed),
            why: String::new(),
            fix: Vec::new(),
            undo: Vec::new(),
            advice: None,
        }
    }

    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }

    #[must_use]
    pub fn undo(mut self, command: impl Into<String>) -> Self {
        self.undo.push(command.into());
        self
    }
}

/// Who was examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    pub name: Option<String>,
    pub kernel: Option<String>,
    pub cpu_model: Option<String>,
    pub threads: Option<u32>,
    pub virtual_machine: Option<bool>,
    pub cycle_counter: Option<CycleCounter>,
}

/// Whether something can be read from a host while traffic runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeState {
    pub name: String,
    pub status: ProbeStatus,
    /// Why it is not ready, or where its figures come from.
    pub reason: Option<String>,
    #[serde(flatten, with = "fix")]
    #[schemars(with = "fix::Keys<Option<String>>")]
    pub fix: Option<String>,
}

/// How much a finding matters; the worse is the less.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Figures are not what they seem.
    #[serde(rename = "spoils")]
    Problem,
    /// Matters to some runs, or to those who compare.
    Note,
}

/// One setting or circumstance that can invalidate a benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Name of the check.
    pub check: String,
    pub severity: Severity,
    /// The device or CPUs concerned; `None` for the whole host.
    pub about: Option<String>,
    /// What is so, with its value.
    pub found: String,
    /// What that does to a result.
    pub why: String,
    #[serde(flatten, with = "fix")]
    #[schemars(with = "fix::Keys<Vec<String>>")]
    pub fix: Vec<String>,
    /// Commands that put it back as it is.
    pub undo: Vec<String>,
    /// What to do, or to mind, beside the commands.
    pub advice: Option<String>,
}

impl Finding {
    /// The check that finds it puts its name in later.
    fn new(severity: Severity, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            check: String::new(),
            severity,
            about: None,
            found: found.into(),
            why: why.into(),
            fix: Vec::new(),
            undo: Vec::new(),
            advice: None,
        }
    }

    #[must_use]
    pub fn problem(found: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(Severity::Problem, found, why)
    }

    #[must_use]
    pub fn note(found: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(Severity::Note, found, why)
    }

    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }

    #[must_use]
    pub fn undo(mut self, command: impl Into<String>) -> Self {
        self.undo.push(command.into());
        self
    }

    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// A check that could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unknown {
    /// Name of the check.
    pub check: String,
    pub about: Option<String>,
    pub reason: String,
}

impl Examination {
    /// One of which nothing is known yet.
    #[must_use]
    pub fn empty(version: &str, examined_unix_ms: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            status: Status::Ok,
            error: None,
            version: version.to_owned(),
            examined_unix_ms,
            address: None,
            host: None,
            probes: Vec::new(),
            findings: Vec::new(),
            unknown: Vec::new(),
            checks: Vec::new(),
            capacity: None,
        }
    }
}
