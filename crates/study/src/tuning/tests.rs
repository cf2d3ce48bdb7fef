//! Searches end near the best, claim no gain where there is none, and continue from their records.

#[path = "../../../../tests/seed.rs"]
mod seed;

use std::time::Duration;

use wirecost_analyze::tuning::Verdict;
use wirecost_model::run::{Run, Transactions};
use wirecost_model::status::Status;
use wirecost_model::study::StudyRunRef;

use super::simulation::{SCENARIOS, SearchCounts};
use super::{replay, run};
use crate::definition::Definition;
use crate::order::Task;
use crate::runner::{PointError, PointRunner, StopReason};

/// Of each scenario.
fn searches() -> u32 {
    seed::cases(150, 1000)
}

/// Of all scenarios that end near the best, or of those in which nothing helps.
fn simulated(noise: f64, nothing_helps: bool) -> Vec<(&'static str, SearchCounts)> {
    let wanted = SCENARIOS.iter().filter(|scenario| scenario.nothing_helps == nothing_helps);
    wanted.map(|scenario| (scenario.name, scenario.simulate(searches(), noise, 1))).collect()
}

#[test]
fn nine_of_ten_searches_end_near_the_best_at_one_percent_noise() {
    for (name, counts) in simulated(0.01, false) {
        assert!(counts.near_best >= searches() * 9 / 10, "{name}: {counts:?}");
        assert!(counts.broke_bound <= searches() / 20, "{name}: {counts:?}");
    }
}

#[test]
fn of_a_hundred_searches_in_which_nothing_helps_at_most_five_claim_a_gain() {
    for (name, counts) in simulated(0.01, true) {
        assert!(counts.changed <= searches() / 20, "{name}: {counts:?}");
        assert!(counts.near_best >= searches() * 9 / 10, "{name}: {counts:?}");
    }
}

#[test]
fn intervals_of_the_gain_miss_it_in_at_most_one_of_twenty() {
    let counts = SCENARIOS[0].simulate(searches(), 0.01, 2);
    assert!(counts.confirmed > searches() / 2, "{counts:?}");
    let confirmed = f64::from(counts.confirmed);
    // 5%, and three standard errors.
    let most = 0.05 * confirmed + 3.0 * (0.05 * 0.95 * confirmed).sqrt();
    assert!(f64::from(counts.missed) < most, "{counts:?}");
}

/// Hosts on which buffers help, and nothing else; they stop after so many runs.
struct Hosts {
    made: Vec<Run>,
    stop_after: usize,
    /// The n-th run has no result.
    invalid: Option<usize>,
}

impl PointRunner for Hosts {
    fn run(&mut self, task: &Task) -> Result<Run, PointError> {
        let mut run = Run::empty("@stream", "epoll", "0", 0);
        // By what it is, not by when it is made: a resumed search measures the same.
        let noise = f64::from((task.place * 7 + task.repeat * 13) % 11) / 1000.0;
        let helps = task.point.get("option.wndsz") == Some("4m");
        let per_second = (if helps { 150.0 } else { 100.0 }) * (1.0 + noise);
        run.transactions = Some(Transactions { count: 1, per_second });
        if self.invalid == Some(self.made.len()) {
            run.status = Status::Invalid;
        }
        run.study = Some(StudyRunRef {
            study: String::new(),
            point: task.point.clone(),
            place: task.place,
            repeat: task.repeat,
            order: task.order,
            search: None,
        });
        self.made.push(run.clone());
        Ok(run)
    }

    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    fn stopped(&self) -> bool {
        self.made.len() >= self.stop_after
    }
}

const STUDY: &str = r#"
    profile = "@stream"
    warm_up = 1
    seed = 3
    [tune]
    maximize = "transactions"
    [axes]
    "option.wndsz" = [{ label = "keep" }, "4m"]
    engine = ["epoll", "threads"]
    "tune.mtu" = [{ label = "keep" }, 9000]
"#;

fn searched(done: Vec<Run>, stop_after: usize, invalid: Option<usize>) -> (Hosts, super::Tuned) {
    let study = Definition::parse(STUDY).unwrap();
    let mut hosts = Hosts { made: Vec::new(), stop_after, invalid };
    let tuned = run(&study, done, &mut hosts, &mut ()).unwrap();
    (hosts, tuned)
}

#[test]
fn an_interrupted_search_continues_from_its_records() {
    let (whole, finished) = searched(Vec::new(), usize::MAX, None);
    let outcome = finished.outcome.unwrap().unwrap();
    assert_eq!((outcome.winner.clone(), outcome.verdict), (vec![1, 0, 0], Verdict::Better));
    let study = Definition::parse(STUDY).unwrap();
    for stop_after in [0, 1, 5, whole.made.len() - 1] {
        let (first, tuned) = searched(Vec::new(), stop_after, None);
        assert_eq!(tuned.summary.ended, StopReason::Interrupted);
        assert!(tuned.outcome.is_none());
        assert!(replay(&study, first.made.clone()).unwrap().is_none());
        let (rest, tuned) = searched(first.made.clone(), usize::MAX, None);
        assert_eq!(first.made.len() + rest.made.len(), whole.made.len());
        assert_eq!(tuned.outcome.unwrap().unwrap(), outcome);
    }
    assert_eq!(replay(&study, whole.made).unwrap().unwrap().unwrap(), outcome);
}

#[test]
fn a_run_without_a_result_is_made_again() {
    let (hosts, tuned) = searched(Vec::new(), usize::MAX, Some(4));
    let outcome = tuned.outcome.unwrap().unwrap();
    assert_eq!((outcome.failed, tuned.summary.invalid), (0, 1));
    // With the warm-up, and the second attempt.
    assert_eq!(hosts.made.len(), outcome.runs + 2);
}

#[test]
fn levels_that_keep_what_there_is_set_nothing() {
    let (hosts, _) = searched(Vec::new(), 2, None);
    let base = &hosts.made[0].study.as_ref().unwrap().point;
    assert_eq!(base.axes[0].value, "keep");
    assert_eq!(
        base.settings.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(),
        ["profile", "engine"]
    );
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let error = |from: &str, to: &str| {
        let study = Definition::parse(&STUDY.replace(from, to)).unwrap();
        super::goal(&study).unwrap_err().to_string()
    };
    assert!(error("transactions", "transaction").contains("did you mean transactions?"));
    assert!(error("maximize", "minimize").contains("is better when higher"));
    assert!(error("maximize = \"transactions\"", "").contains("no objective"));
    assert!(error("[\"epoll\", \"threads\"]", "[\"epoll\"]").contains("engine has a single level"));
    assert!(error("[axes]", "budget = 18\n[axes]").contains("take 19 runs"));
    for bound in [
        "throughput",
        "throughput >= best*best",
        "throughput >= 1*2",
        "throughput >= 0",
        "throughput >= x",
        "throughput >= 0.95 Gb/s*best",
        "loss <= -1%",
    ] {
        let with = format!("subject_to = [{bound:?}]\n[axes]");
        assert!(error("[axes]", &with).contains("subject_to"), "{bound}");
    }
}

#[test]
fn shares_are_numbers_or_percent_and_faults_may_be_limited_to_0() {
    let bound = |text: &str| super::BoundDefinition::parse(text).unwrap().bound;
    for text in ["throughput >= 95%*best", "throughput >= best * 0.95"] {
        assert!((bound(text).amount - 0.95).abs() < 1e-12, "{text}");
    }
    assert!((bound("loss <= 1%").amount - bound("loss <= 0").amount).abs() > 0.0);
}
