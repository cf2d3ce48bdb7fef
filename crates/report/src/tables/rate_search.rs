//! `rate-search`: what a search found (RFC 9971), a row for each goal at each point, and its trials by load.

use std::collections::BTreeMap;

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::search::{self, GoalOutcome, Limit, State, Trial};
use wirecost_model::document::{Cell, Column, Number, Section, Table as DocumentTable};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::search::{Search, SearchGoal, percent};
use wirecost_model::study::{Point, Value};
use wirecost_model::units::bit_rate;

use super::rows::{ColumnOf, Rows};
use super::{Table, cells};

pub(super) struct RateSearch;

impl Table for RateSearch {
    fn name(&self) -> &'static str {
        "rate-search"
    }

    fn help(&self) -> &'static str {
        "searches: the highest rate for each loss goal, its bounds, and the trials"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(&searches(measured))
    }

    /// While trials are made, each has a row.
    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        let of_trial = ColumnOf::new(Column::number("loss"), |point| {
            let trial = point.runs.first().and_then(Trial::of);
            let measured =
                trial.ok_or_else(|| "no trial".to_owned()).and_then(|trial| trial.result);
            cells::known(measured.map(|measured| 100.0 * measured.loss), Unit::Percent, loss)
        });
        let load = ColumnOf::metric("load", "offered");
        let throughput = ColumnOf::metric("throughput", "throughput");
        Some(Rows::by_axes(measured, [load, throughput, of_trial]))
    }
}

/// The search at one point of a study.
struct PointSearch<'a> {
    point: &'a Point,
    search: &'a Search,
    trials: Vec<Trial>,
    /// Bytes of payload in a datagram.
    size: Option<f64>,
}

/// By point, in the order of the study.
fn searches(measured: &Measurements) -> Vec<PointSearch<'_>> {
    let mut runs: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for run in measured.points.iter().flat_map(|point| point.runs.iter().chain(&point.failed)) {
        if let Some(study) = run.study.as_ref().filter(|study| study.search.is_some()) {
            runs.entry(study.place).or_default().push(run);
        }
    }
    runs.into_values().filter_map(of_point).collect()
}

fn of_point(mut runs: Vec<&Run>) -> Option<PointSearch<'_>> {
    runs.sort_by_key(|run| run.study.as_ref().map(|study| study.repeat));
    let study = runs.first()?.study.as_ref()?;
    Some(PointSearch {
        point: &study.point,
        search: &study.search.as_ref()?.search,
        trials: runs.iter().filter_map(|run| Trial::of(run)).collect(),
        size: runs.iter().find_map(|run| size(run)),
    })
}

fn size(run: &Run) -> Option<f64> {
    let datagrams = run.datagrams.as_ref().filter(|datagrams| datagrams.sent > 0)?;
    let bytes: u64 = run.hosts.iter().filter_map(|host| host.bytes).map(|bytes| bytes.sent()).sum();
    (bytes > 0).then(|| bytes as f64 / datagrams.sent as f64)
}

fn build(searches: &[PointSearch<'_>]) -> Section {
    let mut section = Section::new("Highest rate by loss goal");
    if searches.is_empty() {
        section.text("There is no trial of a search yet.");
        return section;
    }
    let axes = searches[0].point.axes.iter().map(|axis| Column::text(&axis.name));
    let figures = ["throughput", "packets", "lower bound", "upper bound"];
    let columns = axes.clone().chain([Column::text("goal")]).chain(figures.map(Column::number));
    let columns = columns.chain(["result", "limit"].map(Column::text));
    let columns = columns.chain(["trials", "seconds"].map(Column::number));
    let mut goals = DocumentTable::new(columns.collect::<Vec<_>>());
    let mut notes = Vec::new();
    for one in searches {
        let outcomes = search::outcomes(one.search, &one.trials);
        for (goal, outcome) in one.search.goals.iter().zip(&outcomes) {
            goals.row(one.row(goal, outcome));
            notes.extend(one.note(goal, outcome));
        }
    }
    section.table(goals);
    for note in notes {
        section.text(note);
    }
    let figures = ["load", "trials", "seconds", "lowest loss", "highest loss", "not sent"];
    let mut loads = DocumentTable::new(axes.chain(figures.map(Column::number)).collect::<Vec<_>>());
    loads.title = "Trials by load".to_owned();
    for one in searches {
        one.loads(&mut loads);
    }
    section.table(loads);
    section.note(
        "Throughput is the Conditional Throughput of RFC 9971, payload of both directions; packets are \
         datagrams per second. Trials and seconds are of all goals together.",
    );
    section
}

impl PointSearch<'_> {
    fn axes(&self) -> Vec<Cell> {
        self.point.axes.iter().map(|Value { value, .. }| Cell::set(value)).collect()
    }

    fn row(&self, goal: &SearchGoal, outcome: &GoalOutcome) -> Vec<Cell> {
        let reason = || match outcome.state {
            State::MaxLoad => "no load was too high".to_owned(),
            _ => format!("the result is: {}", outcome.state.text()),
        };
        let rate = |rate: Option<f64>| {
            cells::known(rate.ok_or_else(reason), Unit::BitsPerSecond, bit_rate)
        };
        let load = |bound: Option<search::Bound>| rate(bound.map(|bound| bound.load as f64));
        let packets = match (outcome.throughput, self.size) {
            (Some(throughput), Some(size)) => {
                Cell::Number(Number::once(Unit::PerSecond, throughput / size / 8.0))
            }
            _ => Cell::Missing(reason()),
        };
        let mut row = self.axes();
        row.extend([
            Cell::text(name(goal)),
            rate(outcome.throughput),
            packets,
            load(outcome.lower),
            load(outcome.upper),
            Cell::text(outcome.state.text()),
            outcome.limit.map_or_else(|| Cell::Missing(reason()), |limit| Cell::text(limit.text())),
            cells::count(self.trials.len() as u64),
            cells::count(search::spent(&self.trials).round() as u64),
        ]);
        row
    }

    /// What a person must know of a result that is not regular, or that is not of the path.
    fn note(&self, goal: &SearchGoal, outcome: &GoalOutcome) -> Option<String> {
        let (min, max) = (self.search.min_bits_per_second, self.search.max_bits_per_second);
        let (min, max) = (bit_rate(min as f64), bit_rate(max as f64));
        let text = match (outcome.state, outcome.limit) {
            (State::MaxLoad, Some(Limit::Link)) => {
                let link = self.search.link_bits_per_second.unwrap_or_default();
                format!(
                    "met at {max}, which is all that the link of {} carries with its headers",
                    bit_rate(link as f64)
                )
            }
            (State::MaxLoad, _) => format!("met at search.max ({max}): raise it to find the limit"),
            (State::MinLoad, _) => format!("not met at search.min ({min}): lower it"),
            (State::TimeLimit, _) => {
                "search.time_limit ended the search before the bounds were as close \
                                      as the goal's width"
                    .to_owned()
            }
            (State::Invalid, _) => {
                let failed = self.trials.iter().rev().find_map(|trial| trial.result.as_ref().err());
                format!(
                    "the search ended because trials were invalid: {}",
                    failed.map_or("", String::as_str)
                )
            }
            (State::Unfinished, _) => "the search is not finished".to_owned(),
            (State::Reached, Some(Limit::Sender)) => {
                let upper = outcome.upper.map_or(0.0, |bound| bound.load as f64);
                format!(
                    "the sender, not the path, is the limit: it could not send {}",
                    bit_rate(upper)
                )
            }
            (State::Reached, _) => return None,
        };
        let at = match self.point.axes.is_empty() {
            true => String::new(),
            false => format!("{}, ", self.point),
        };
        Some(format!("{at}{}: {text}.", name(goal)))
    }

    fn loads(&self, table: &mut DocumentTable) {
        let mut loads: BTreeMap<u64, Vec<&Trial>> = BTreeMap::new();
        for trial in &self.trials {
            loads.entry(trial.load).or_default().push(trial);
        }
        for (load, trials) in loads {
            let done = || trials.iter().filter_map(|trial| trial.result.as_ref().ok());
            let least = done().map(|measured| measured.loss).reduce(f64::min);
            let most = done().map(|measured| measured.loss).reduce(f64::max);
            let unsent = done().map(|measured| measured.unsent).reduce(f64::max);
            let seconds: f64 =
                trials.iter().map(|trial| wirecost_model::clock::seconds(trial.duration)).sum();
            let share = |share: Option<f64>| {
                let share = share.map(|share| 100.0 * share);
                cells::known(
                    share.ok_or_else(|| "no trial is valid".to_owned()),
                    Unit::Percent,
                    loss,
                )
            };
            let mut row = self.axes();
            row.extend([
                cells::number(load as f64, Unit::BitsPerSecond, bit_rate(load as f64)),
                cells::count(trials.len() as u64),
                Cell::Number(Number::once(Unit::Count, seconds)),
                share(least),
                share(most),
                share(unsent),
            ]);
            table.row(row);
        }
    }
}

fn name(goal: &SearchGoal) -> String {
    format!("loss {}", percent(goal.loss_ratio))
}

/// Small losses matter here: a goal may allow a thousandth of a percent.
fn loss(percent: f64) -> String {
    match percent {
        0.0 => "0%".to_owned(),
        small if small < 0.01 => format!("{small:.1e}%"),
        _ => format!("{percent:.2}%"),
    }
}

#[cfg(test)]
mod tests {
    use wirecost_analyze::search::Next;
    use wirecost_model::measure::Bytes;
    use wirecost_model::run::{AfterRamp, Datagrams, Window, WindowKind};
    use wirecost_model::search::SearchTrial;
    use wirecost_model::status::Status;
    use wirecost_model::study::StudyRunRef;

    use super::super::tests::{at, fixture, value};
    use super::*;

    const SIZE: u64 = 1000;

    /// A link that carries this payload, and a sender that sends that much at most.
    struct Link {
        carries: f64,
        sends: f64,
        fails: bool,
    }

    /// All trials of a search, as a study saves them.
    fn trials(place: u32, link: &Link, search: &Search) -> Vec<(String, Run)> {
        // Hosts and what else a run has.
        let real = fixture("patterns").points.remove(0).runs.remove(0);
        let mut runs: Vec<(String, Run)> = Vec::new();
        loop {
            let done: Vec<Trial> = runs.iter().filter_map(|(_, run)| Trial::of(run)).collect();
            let Next::Trial { load, duration } = search::next(search, &done) else { return runs };
            let seconds = duration as f64 / 1e9;
            let rate = (load as f64).min(link.sends);
            let sent = (rate * seconds / 8.0 / SIZE as f64).round();
            let lost = (sent * (1.0 - link.carries / rate).max(0.0)).ceil();
            let (sent, lost) = (sent as u64, lost as u64);
            let mut run = real.clone();
            if link.fails {
                run.status = Status::Invalid;
                run.error = Some("no traffic for 0.5 s".to_owned());
            }
            run.window = Some(Window {
                seconds,
                phase: 1,
                ramp_seconds: 0.5,
                kind: WindowKind::Duration,
                dead_seconds: None,
                late_us: None,
                started_unix_ms: None,
            });
            run.datagrams = Some(Datagrams {
                sent,
                received: sent - lost,
                lost: lost as i64,
                late: 0,
                reordered: None,
                duplicated: None,
                loss_bursts: None,
                jitter_us: None,
                one_way_us: None,
                after_ramp: Some(AfterRamp { sent, lost }),
            });
            run.hosts[0].bytes = Some(Bytes { tx_sent: sent * SIZE, ..Bytes::default() });
            run.hosts[1].bytes = Some(Bytes::default());
            let axes = vec![Value::new("queue", &place.to_string())];
            run.study = Some(StudyRunRef {
                study: "search".to_owned(),
                point: Point { settings: axes.clone(), axes },
                place,
                repeat: runs.len() as u32 + 1,
                order: runs.len() as u32 + 1,
                search: Some(SearchTrial {
                    bits_per_second: load,
                    seconds,
                    search: search.clone(),
                }),
            });
            runs.push((String::new(), run));
        }
    }

    fn search(max: u64, link: Option<u64>) -> Search {
        Search {
            min_bits_per_second: 1_000_000,
            max_bits_per_second: max,
            link_bits_per_second: link,
            time_limit_seconds: 600.0,
            goals: vec![SearchGoal {
                loss_ratio: 0.005,
                exceed_ratio: 0.5,
                width: 0.01,
                initial_trial_seconds: 1.0,
                trial_seconds: 1.0,
                duration_sum_seconds: 5.0,
            }],
        }
    }

    fn measured() -> Measurements {
        let any = f64::INFINITY;
        let link = |carries, sends| Link { carries, sends, fails: false };
        let most = 1_000_000_000;
        let failing = Link { carries: any, sends: any, fails: true };
        Measurements::of(
            [
                trials(1, &link(80e6, any), &search(most, None)),
                trials(2, &link(any, any), &search(95_000_000, Some(100_000_000))),
                trials(3, &link(any, 50e6), &search(most, None)),
                trials(4, &link(0.0, any), &search(most, None)),
                trials(5, &link(any, any), &search(most, None)),
                trials(6, &failing, &search(most, None)),
            ]
            .concat(),
        )
    }

    #[test]
    fn each_goal_has_a_row_with_its_bounds_and_how_it_ended() {
        let section = RateSearch.build(&measured());
        let figure = |row: &str, column| value(&section, "", row, column);
        let throughput = figure("1", "throughput");
        assert!((79e6..=80e6).contains(&throughput), "{throughput}");
        assert_eq!(figure("1", "packets"), throughput / 8.0 / SIZE as f64);
        assert!(figure("1", "lower bound") < figure("1", "upper bound"));
        assert_eq!(figure("2", "throughput"), 95e6);
        let text = |row: &str, column| at(&section, "", row, column).shown();
        let ends =
            ["1", "2", "3", "4", "5", "6"].map(|row| (text(row, "result"), text(row, "limit")));
        assert_eq!(
            ends,
            [
                ("reached", "path"),
                ("met at max", "link rate"),
                ("reached", "sender"),
                ("not met at min", "path"),
                ("met at max", "max"),
                ("invalid trials", "-"),
            ]
        );
    }

    #[test]
    fn a_result_that_is_not_of_the_path_is_explained() {
        let section = RateSearch.build(&measured());
        let texts: Vec<&str> = section
            .blocks
            .iter()
            .filter_map(|block| match block {
                wirecost_model::document::Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        for wanted in [
            "queue=2, loss 0.5%: met at 95.0 Mb/s, which is all that the link of 100 Mb/s carries",
            "queue=3, loss 0.5%: the sender, not the path, is the limit: it could not send",
            "queue=4, loss 0.5%: not met at search.min (1.00 Mb/s)",
            "queue=5, loss 0.5%: met at search.max (1.00 Gb/s)",
            "queue=6, loss 0.5%: the search ended because trials were invalid: no traffic for 0.5 s",
        ] {
            assert!(texts.iter().any(|text| text.starts_with(wanted)), "{wanted}: {texts:#?}");
        }
        assert!(!texts.iter().any(|text| text.starts_with("queue=1")), "{texts:#?}");
    }

    #[test]
    fn loads_are_listed_with_what_their_trials_lost() {
        let section = RateSearch.build(&measured());
        let loss = |row, column| value(&section, "Trials by load", row, column);
        // The first row of a point is that of its lowest load.
        assert_eq!(loss("4", "lowest loss"), 100.0);
        assert_eq!((loss("2", "highest loss"), loss("2", "not sent")), (0.0, 0.0));
        assert_eq!(loss("2", "seconds"), loss("2", "trials"));
    }

    #[test]
    fn trials_are_no_sample_for_findings_and_other_tables_have_a_row_for_each_load() {
        let measured = measured();
        assert_eq!(crate::documents::findings::section(&measured), None);
        let axes = measured.axes();
        assert_eq!(axes, ["queue", "load"]);
        let planned: Vec<Point> = (1..=7)
            .map(|place| {
                let axes = vec![Value::new("queue", &place.to_string())];
                Point { settings: axes.clone(), axes }
            })
            .collect();
        let about = format!("{:?}", super::super::about(&measured, &planned));
        assert!(about.contains("1 point has no run yet: queue=7."), "{about}");
    }
}
