//! Two studies, or two runs, beside one another: the document `wirecost.compare/1`. Keys are stable:
//! adding one keeps the version, changing or removing one makes a new one. The JSON Schema is
//! docs/schema/wirecost.compare-1.json.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::study::Point;

pub const SCHEMA: &str = "wirecost.compare/1";

/// What became of B, seen from A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// `failed` where something is worse, `usage` where nothing could be compared.
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost that compared.
    pub version: String,
    pub a: Side,
    pub b: Side,
    /// A difference of at most this part, better or worse, is none that counts: 0.05 is 5%.
    pub threshold: f64,
    /// In what the hosts and the runs differ beside what is compared, by kind.
    pub differences: Vec<Difference>,
    /// What is not known of the surroundings of a side, and why.
    pub unknown: Vec<String>,
    pub points: Vec<ComparedPoint>,
    /// Each figure over all points, of figures that were tested at two points or more.
    #[serde(default)]
    pub overall: Vec<OverallFigure>,
    /// The changes that could have been found, by figure.
    #[serde(default)]
    pub sensitivity: Vec<Sensitivity>,
    /// Points of both that cannot be compared.
    pub not_compared: Vec<NotCompared>,
    pub only_in_a: Vec<Point>,
    pub only_in_b: Vec<Point>,
    /// Tests of single points, for which their p-values are corrected together. Those of `overall` are
    /// corrected apart.
    pub tests: u64,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// As named on the command line.
    pub name: String,
    /// Title of the study; null for runs of none.
    pub study: Option<String>,
    pub points: u64,
    /// Runs that count, and those that failed or are not valid.
    pub runs: u64,
    pub failed: u64,
}

/// Something that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub kind: DifferenceKind,
    /// Hosts of the run of which it is true; empty where it is of no host.
    pub hosts: Vec<String>,
    /// The setting: `net.ipv4.tcp_rmem`, `eth0 tx-tcp-segmentation`.
    pub what: String,
    /// Null where it is not there, or not known. Several where it changed between the runs of a side.
    pub a: Option<String>,
    pub b: Option<String>,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Version of wirecost.
    Wirecost,
    /// Engine, length of the window, probes.
    Run,
    /// Keys of the studies' files.
    Study,
    Kernel,
    Sysctl,
    /// Features of network devices: segmentation, checksums, GRO.
    Offload,
    /// What the kernel does about vulnerabilities of the CPU.
    Mitigation,
    /// Governor, turbo, idle states.
    Frequency,
    Cpu,
    /// Drivers, rings, coalescing, queues, MTU.
    Device,
    Memory,
    /// Packet filters, IPsec.
    Path,
    /// Rights and limits of the program.
    Process,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotCompared {
    pub point: Point,
    pub reason: String,
}

/// One point of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedPoint {
    pub point: Point,
    /// In the order in which they were asked for.
    pub figures: Vec<ComparedFigure>,
}

/// One figure at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedFigure {
    /// As it was asked for: `hosts.sender.cycles_per_kbyte`.
    pub metric: String,
    /// Empty for what has none.
    pub unit: String,
    /// Null where a side did not measure it.
    pub a: Option<SideEstimate>,
    pub b: Option<SideEstimate>,
    /// Geometric mean of B's runs over that of A's; of arithmetic means if a run measured 0.
    pub ratio: Option<f64>,
    /// Interval of `ratio` at the level of the corrected test: it excludes 1 exactly if the difference is
    /// significant. Null with fewer than two runs on a side.
    pub interval: Option<(f64, f64)>,
    /// Probability that such an interval contains the true ratio.
    #[serde(default)]
    pub interval_confidence: Option<f64>,
    /// Probability of a difference like this, or larger, by chance: a moderated t-test of logarithms, or
    /// Welch's of the values if a run measured 0.
    pub p_value: Option<f64>,
    /// The same, corrected for all tests together (Holm): below 0.05 is significant.
    pub p_value_corrected: Option<f64>,
    /// The smallest change that would have been found here with 80% power: 0.12 is 12%.
    #[serde(default)]
    pub detectable_change: Option<f64>,
    pub verdict: Verdict,
    /// Why there is no ratio, no interval, or no test.
    pub reason: Option<String>,
}

/// One figure over all points: the geometric mean of the ratios of the points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverallFigure {
    pub metric: String,
    /// Points that were tested.
    pub points: u64,
    pub ratio: f64,
    /// At the level of the corrected test: it excludes 1 exactly if the difference is significant.
    pub interval: (f64, f64),
    /// Probability that such an interval contains the true ratio.
    pub interval_confidence: f64,
    pub p_value: f64,
    /// The same, corrected for all tests together (Holm): below 0.05 is significant.
    pub p_value_corrected: f64,
    pub verdict: Verdict,
}

/// The changes of a figure that the tests would have found with 80% power, given how much its runs
/// differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sensitivity {
    pub metric: String,
    /// The smallest change at a single point, of the least and of the most noisy point: 0.12 is 12%.
    pub at_points: (f64, f64),
    /// The smallest common change of all points; null if fewer than two were tested.
    pub overall: Option<f64>,
    /// Runs of each point on each side that would find a change of 5% at every single point; null above
    /// 10,000.
    pub runs_for_5_percent_at_each_point: Option<u64>,
    /// The same for a common change of all points.
    pub runs_for_5_percent_overall: Option<u64>,
}

/// What one side measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideEstimate {
    pub mean: f64,
    /// 95% interval of the mean (Student); null for one run.
    pub interval: Option<(f64, f64)>,
    pub runs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Significantly worse, by more than the threshold.
    Worse,
    /// Significantly better, by more than the threshold.
    Better,
    /// Significant, but within the threshold, or of a figure that is neither better nor worse.
    Different,
    /// No significant difference.
    Same,
    /// Nothing can be said: `reason` says why.
    Unknown,
}

impl Verdict {
    /// What B is, seen from A.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Better => "better",
            Verdict::Different => "different",
            Verdict::Same => "not significant",
            Verdict::Unknown => "not tested",
        }
    }
}

impl Comparison {
    /// How many figures at single points came out so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.figures().filter(|(_, figure)| figure.verdict == verdict).count()
    }

    /// Every figure, with its point.
    pub fn figures(&self) -> impl Iterator<Item = (&Point, &ComparedFigure)> {
        self.points.iter().flat_map(|at| at.figures.iter().map(|figure| (&at.point, figure)))
    }
}
