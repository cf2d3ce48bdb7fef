//! What a study's CPU cycles were spent on: the document `wirecost.model/1`. Keys are stable: adding
//! one keeps the version, changing or removing one makes a new one. The JSON Schema is
//! docs/schema/wirecost.model-1.json.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::study::{Point, Value};

pub const SCHEMA: &str = "wirecost.model/1";

/// Cycles per second of each point as a sum: a cost per byte, per packet, and so on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostModel {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost that made the model.
    pub version: String,
    /// The study as named on the command line.
    pub name: String,
    /// Title of the study; null for runs of none.
    pub study: Option<String>,
    /// The host whose cycles are explained; null for those of all machines together.
    pub host: Option<String>,
    /// Only points that have these values.
    pub at: Vec<Value>,
    /// Where cycles come from: `pmu`, `tsc-exact` or `tsc-ticks`.
    pub cycles_source: Option<String>,
    /// What is counted as a packet; null where packets are no part of the model.
    pub packets_source: Option<String>,
    pub terms: Vec<Term>,
    /// Inputs that are no part of the model.
    pub left_out: Vec<ExcludedTerm>,
    pub points: Vec<ModelledPoint>,
    /// Points that are no part of it.
    pub points_left_out: Vec<ExcludedPoint>,
    /// How far the model is from the points that it was made of.
    pub fit: Option<Errors>,
    /// How far a model of all other points is from each. Null where too few points are left.
    pub held_out: Option<Errors>,
    /// Cycles a second of one CPU that is always busy; null where the CPUs' time was not read.
    pub cycles_per_cpu_second: Option<f64>,
    /// What a reader should know of the data.
    pub notes: Vec<String>,
    /// Null where none was asked for.
    pub prediction: Option<Prediction>,
}

/// What costs cycles.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Payload, each byte counted once.
    Bytes,
    /// Completed flowops of the master.
    Operations,
    /// What the stack hands to a device.
    Packets,
    /// Open connections, each second.
    Connections,
    /// Hard interrupts and softirqs.
    Interrupts,
    /// What is spent each second whatever is done.
    Constant,
}

impl Input {
    /// In the order in which they are taken into a model: of two that cannot be told apart the first
    /// stays.
    pub const ALL: [Input; 6] = [
        Input::Bytes,
        Input::Operations,
        Input::Packets,
        Input::Connections,
        Input::Interrupts,
        Input::Constant,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Input::Bytes => "bytes",
            Input::Operations => "operations",
            Input::Packets => "packets",
            Input::Connections => "connections",
            Input::Interrupts => "interrupts",
            Input::Constant => "constant",
        }
    }

    /// What its cost is of.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Input::Bytes => "cycles/byte",
            Input::Operations => "cycles/operation",
            Input::Packets => "cycles/packet",
            Input::Connections => "cycles/s per connection",
            Input::Interrupts => "cycles/interrupt",
            Input::Constant => "cycles/s",
        }
    }
}

/// One summand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Term {
    pub input: Input,
    /// Cycles for each, in `unit`; never negative.
    pub cycles: f64,
    pub unit: String,
    /// 95% interval of `cycles` (bootstrap over points and their runs).
    pub interval: Option<(f64, f64)>,
    /// The least and the most of the input at the points: a second, or at a time of connections.
    pub range: (f64, f64),
    /// How many times the variance of `cycles` is what it would be if no other input went along with
    /// this one (variance inflation).
    pub inflation: f64,
    /// Mean of its shares of the points' cycles, 0 to 1.
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedTerm {
    pub input: Input,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedPoint {
    pub point: Point,
    pub reason: String,
}

/// What the model says of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelledPoint {
    pub point: Point,
    pub runs: u64,
    /// Measured.
    pub cycles_per_second: f64,
    pub cycles_per_kbyte: f64,
    /// By the model, and its difference to what was measured over the latter: 0.05 is 5% too much.
    pub modelled_cycles_per_second: f64,
    pub error: f64,
    /// The same of the model that did not see this point.
    pub held_out_error: Option<f64>,
    /// Of the modelled cycles, in the order of `terms`; they add up to 1.
    pub shares: Vec<Share>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    pub input: Input,
    pub share: f64,
}

/// Sizes of relative errors, without their signs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Errors {
    pub median: f64,
    pub worst: f64,
    pub worst_at: Point,
}

/// What a load would cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    pub bits_per_second: f64,
    pub connections: u64,
    /// Bytes of an operation as asked for; null where the study has one size.
    pub size: Option<String>,
    pub inputs: Vec<PredictedInput>,
    /// Whether anything is outside of what the study covered.
    pub extrapolated: bool,
    pub cycles_per_second: f64,
    /// 95% interval: of the model's costs, and of how far it is from points that it has not seen. Of what
    /// is extrapolated it says too little.
    pub interval: Option<(f64, f64)>,
    pub cycles_per_kbyte: f64,
    /// Null where operations were not counted.
    #[serde(default)]
    pub cycles_per_operation: Option<f64>,
    /// CPUs that are always busy, of the kind that the study ran on.
    pub cpus: Option<f64>,
    pub cpus_interval: Option<(f64, f64)>,
    /// The same connections and size at parts of the largest rate that was studied there.
    #[serde(default)]
    pub along_rate: Vec<CostAtRate>,
    /// Of these connections without any traffic; null where no load of the study was light.
    #[serde(default)]
    pub idle_cycles_per_second: Option<f64>,
}

/// What a rate would cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostAtRate {
    pub bits_per_second: f64,
    pub cycles_per_second: f64,
    pub cycles_per_kbyte: f64,
    /// Null where operations were not counted.
    pub cycles_per_operation: Option<f64>,
    /// CPUs that are always busy, of the kind that the study ran on.
    pub cpus: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedInput {
    pub input: Input,
    pub value: f64,
    /// What the study covered.
    pub range: (f64, f64),
    pub outside: bool,
    /// Of the predicted cycles, 0 to 1.
    pub share: f64,
}
