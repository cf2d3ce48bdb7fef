//! The report of a search for the best setting (`wirecost tune`).

use wirecost_analyze::metrics::Selector;
use wirecost_analyze::tuning::{Confirmation, FactorEffect, Outcome, Verdict};
use wirecost_model::document::{Cell, Column, Command, Emphasis, Message, Number, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::units::counted;

/// A search, its outcome, and what its setting is outside of it.
#[derive(Debug)]
pub struct Searched<'a> {
    pub objective: &'a Selector,
    pub maximize: bool,
    /// Each as it is written, with the unit of its metric.
    pub bounds: &'a [(String, Unit)],
    pub factors: &'a [String],
    /// Of each factor.
    pub levels: &'a [Vec<String>],
    pub outcome: &'a Outcome,
    /// Factors that were left out, with the reason.
    pub left_out: &'a [(String, String)],
    /// What makes the setting permanent, and what undoes that.
    pub keep: Vec<Command>,
    pub undo: Vec<Command>,
    /// What the commands leave to the reader.
    pub notes: Vec<String>,
}

/// Effects that could be larger than this are not called too small to matter.
const SMALL: f64 = 0.02;

/// The sections of a search: its result first.
#[must_use]
pub fn sections(of: &Searched<'_>) -> Vec<Section> {
    let all = [result(of), setting(of), effects(of), candidates(of), commands(of), left_out(of)];
    all.into_iter().filter_map(Section::filled).collect()
}

impl Searched<'_> {
    /// `tune.mtu=9000`: what is not as in the base.
    fn changes(&self, levels: &[usize]) -> String {
        let changed: Vec<String> = levels
            .iter()
            .enumerate()
            .filter(|(_, level)| **level > 0)
            .map(|(factor, level)| {
                format!("{}={}", self.factors[factor], self.level(factor, *level))
            })
            .collect();
        if changed.is_empty() { "base".to_owned() } else { changed.join(" ") }
    }

    fn level(&self, factor: usize, level: usize) -> &str {
        self.levels[factor].get(level).map_or("", String::as_str)
    }
}

/// `+12.3%` of a ratio of 1.123.
fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    match percent.abs() {
        0.0..0.05 => "0.0%".to_owned(),
        size if size < 99.95 => format!("{percent:+.1}%"),
        _ => format!("{percent:+.0}%"),
    }
}

fn change_with_interval(ratio: f64, interval: Option<(f64, f64)>) -> String {
    match interval {
        Some((low, high)) => {
            format!("{} (95% interval {} to {})", change(ratio), change(low), change(high))
        }
        None => change(ratio),
    }
}

fn result(of: &Searched<'_>) -> Section {
    let mut section = Section::named("tune", "Result");
    let name = &of.objective.name;
    let outcome = of.outcome;
    let tested = outcome.confirmation.as_ref().map(|confirmed| {
        let pairs = counted(confirmed.ratio.times as u64, "pair", "pairs");
        let gain = change_with_interval(confirmed.ratio.mean, confirmed.ratio.interval);
        format!(
            "{name} {gain} compared with the base, on {pairs} of runs that the search had not used"
        )
    });
    let winner = of.changes(&outcome.winner);
    match (outcome.verdict, tested) {
        (Verdict::Better, Some(tested)) => {
            section.text(format!("Best setting: {winner}. Confirmed: {tested}."));
        }
        (Verdict::KeepsBounds, Some(tested)) => section.text(format!(
            "Best setting that keeps the bounds, which the base does not: {winner}; {tested}."
        )),
        (Verdict::NothingHelps, Some(tested)) => section.text(format!(
            "Nothing helps: no setting was shown to be better than the base. The best candidate, {winner}: \
             {tested}."
        )),
        (Verdict::NothingHelps, None) => section.text(
            "Nothing helps: no setting was shown to be better than the base. No factor was promising \
             enough for a confirmation.",
        ),
        (Verdict::Unreliable, _) => {
            let (runs, failed) = outcome.confirming;
            section.text(format!(
                "No setting is recommended: {failed} of {runs} runs of the best candidate, {winner}, had no \
                 result in the confirmation, or too few of the base beside it had."
            ));
        }
        (_, Some(tested)) => section.text(format!(
            "No setting was shown to keep the bounds. The best candidate, {winner}: {tested}."
        )),
        (_, None) => section.text("No setting was shown to keep the bounds, nor does the base."),
    }
    if let Some(confirmed) = &outcome.confirmation {
        section.table(confirmation(of, confirmed));
    }
    let failed = match outcome.failed {
        0 => String::new(),
        failed => format!(", {failed} of them without a result"),
    };
    section.note(format!(
        "{}{failed}. {name} of runs of the same setting differs by {:.1}% (standard deviation).",
        counted(outcome.runs as u64, "run", "runs"),
        100.0 * outcome.noise
    ));
    section
}

/// The winner beside the base, and the bounds.
fn confirmation(of: &Searched<'_>, confirmed: &Confirmation) -> Table {
    let heads = ["metric", "bound"].map(Column::text).into_iter();
    let numbers = ["base", "winner"].map(Column::number);
    let mut table =
        Table::new(heads.chain(numbers).chain([Column::text("kept")]).collect::<Vec<_>>());
    let number = |unit: Unit, estimate: &wirecost_analyze::Estimate| {
        Cell::Number(Number::estimate(unit, estimate.mean, estimate.interval))
    };
    let unit = of.objective.metric().unit;
    table.row(vec![
        Cell::text(of.objective.name.clone()),
        Cell::text(if of.maximize { "maximize" } else { "minimize" }),
        number(unit, &confirmed.base),
        number(unit, &confirmed.winner),
    ]);
    for ((text, unit), bound) in of.bounds.iter().zip(&confirmed.bounds) {
        table.row(vec![
            Cell::text(text.split(['<', '>']).next().unwrap_or_default().trim()),
            Cell::text(format!("{text}: {}", unit.show(bound.limit))),
            number(*unit, &bound.base),
            number(*unit, &bound.measured),
            Cell::text(if bound.is_kept { "yes" } else { "no" }),
        ]);
    }
    table
}

fn setting(of: &Searched<'_>) -> Section {
    let mut section = Section::named("setting", "Setting");
    let recommended = of.outcome.recommended();
    let mut table = Table::new(["factor", "base", "best", "evidence"].map(Column::text).to_vec());
    for (factor, level) in recommended.iter().enumerate().filter(|(_, level)| **level > 0) {
        table.row(vec![
            Cell::text(of.factors[factor].clone()),
            Cell::set(of.level(factor, 0)),
            Cell::set(of.level(factor, *level)),
            Cell::text(evidence_of(of, factor, *level)),
        ]);
    }
    if !table.rows.is_empty() {
        section.table(table);
        section.note("`keep` is what the host or the profile has without a change.");
        section.note(
            "The confirmation is of the whole setting. Evidence is of one factor in the screening: where it is \
             `none`, the setting may be as good without that change; where it is `against`, the factor alone makes it \
             worse, and the setting may be better without it.",
        );
    }
    section
}

/// What speaks for a factor's level in a setting.
fn evidence_of(of: &Searched<'_>, factor: usize, level: usize) -> &'static str {
    let outcome = of.outcome;
    let interacts = outcome.interactions.iter().any(|pair| pair.a == factor || pair.b == factor);
    let alone = outcome.factors.get(factor).map_or("none", |of| evidence(of.adjusted_p));
    let is_worse = |effect: &FactorEffect| (effect.ratio < 1.0) == of.maximize;
    match (level, alone) {
        (0 | 1, "none") if interacts => "interaction",
        // Alone it does harm: it came into the setting with others.
        (1, alone) if alone != "none" && outcome.factors.get(factor).is_some_and(is_worse) => {
            "against"
        }
        (0 | 1, alone) => alone,
        _ => "race",
    }
}

/// As [words of evidence](wirecost_model::document::Strength) of an adjusted p-value.
fn evidence(p_value: f64) -> &'static str {
    match p_value {
        p if p < 0.001 => "very strong",
        p if p < 0.01 => "strong",
        p if p < 0.05 => "moderate",
        _ => "none",
    }
}

fn effects(of: &Searched<'_>) -> Section {
    let mut section = Section::named("effects", "Effect of each factor alone");
    let name = &of.objective.name;
    let mut columns = ["factor", "from", "to"].map(Column::text).to_vec();
    columns.push(Column::number(name));
    columns.push(Column::text("95% interval"));
    columns.push(Column::number("adjusted p"));
    columns.push(Column::text("evidence"));
    let mut table = Table::new(columns);
    let effects = &of.outcome.factors;
    let mut order: Vec<usize> = (0..effects.len()).collect();
    order.sort_by(|a, b| effects[*a].p_value.total_cmp(&effects[*b].p_value));
    for factor in order {
        let FactorEffect { ratio, interval, adjusted_p, .. } = effects[factor];
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let text = change(ratio);
        let number = Number {
            value: percent(ratio),
            interval: Some((percent(interval.0), percent(interval.1))),
            text,
            unit: Unit::Percent,
        };
        table.row(vec![
            Cell::text(of.factors[factor].clone()),
            Cell::set(of.level(factor, 0)),
            Cell::set(of.level(factor, 1)),
            Cell::Number(number),
            Cell::text(format!("{} to {}", change(interval.0), change(interval.1))),
            Cell::Number(Number {
                value: adjusted_p,
                interval: None,
                text: if adjusted_p < 0.001 {
                    "<0.001".to_owned()
                } else {
                    format!("{adjusted_p:.3}")
                },
                unit: Unit::Ratio,
            }),
            Cell::text(evidence(adjusted_p)),
        ]);
    }
    section.table(table);
    section.note(
        "Each effect is the mean over the other factors' two levels. Where factors interact, it depends on \
         them.",
    );
    let without: Vec<usize> = (0..effects.len()).filter(|at| !effects[*at].is_active).collect();
    let reach = |at: &usize| {
        let (low, high) = effects[*at].interval;
        (1.0 - low).abs().max((high - 1.0).abs())
    };
    let (small, unknown): (Vec<usize>, Vec<usize>) =
        without.into_iter().partition(|at| reach(at) <= SMALL);
    let names = |places: &[usize]| {
        places.iter().map(|at| of.factors[*at].clone()).collect::<Vec<_>>().join(", ")
    };
    if !small.is_empty() {
        let most = small.iter().map(reach).fold(0.0, f64::max);
        section.text(format!(
            "Do not matter: {}; each changes {name} by at most {:.1}%.",
            names(&small),
            100.0 * most
        ));
    }
    if !unknown.is_empty() {
        let most = unknown.iter().map(reach).fold(0.0, f64::max);
        section.text(format!(
            "No detectable effect: {}; effects of up to {:.1}% are possible.",
            names(&unknown),
            100.0 * most
        ));
    }
    for pair in &of.outcome.interactions {
        let (a, b) = (&of.factors[pair.a], &of.factors[pair.b]);
        section.text(format!(
            "{a} and {b} interact: the factor by which {a} changes {name} is {:.2} times as large with {b} at \
             its second level as at its first.",
            pair.ratio
        ));
    }
    section
}

fn candidates(of: &Searched<'_>) -> Section {
    let mut section = Section::named("candidates", "Candidates");
    let raced: Vec<_> = of.outcome.candidates.iter().filter(|one| one.runs > 0).collect();
    if raced.is_empty() {
        return section;
    }
    let mut columns = vec![Column::text("setting"), Column::text("why")];
    columns.extend([Column::number("runs"), Column::number("compared with the base")]);
    columns.push(Column::text("left"));
    let mut table = Table::new(columns);
    for one in raced {
        let to_base = one.to_base.map_or_else(
            || Cell::Missing("it did not run beside the base".to_owned()),
            |ratio| {
                Cell::Number(Number {
                    value: 100.0 * (ratio - 1.0),
                    interval: None,
                    text: change(ratio),
                    unit: Unit::Percent,
                })
            },
        );
        table.row(vec![
            Cell::text(of.changes(&one.levels)),
            Cell::text(one.why),
            Cell::count(one.runs as u64),
            to_base,
            Cell::text(one.left.unwrap_or("")),
        ]);
    }
    section.table(table);
    section
}

fn commands(of: &Searched<'_>) -> Section {
    let mut section = Section::named("commands", "Commands");
    for (label, text, commands) in [
        ("keep", "keep the setting:", &of.keep),
        ("undo", "go back to what was set before:", &of.undo),
    ] {
        if !commands.is_empty() {
            let message = Message::new(Emphasis::Strong, label, text);
            section.message(Message { commands: commands.clone(), ..message });
        }
    }
    for note in &of.notes {
        section.note(note.clone());
    }
    section
}

fn left_out(of: &Searched<'_>) -> Section {
    let mut section = Section::named("left-out", "Factors left out");
    if of.left_out.is_empty() {
        return section;
    }
    let mut table = Table::new(["factor", "reason"].map(Column::text).to_vec());
    for (factor, reason) in of.left_out {
        table.row(vec![Cell::text(factor.clone()), Cell::text(reason.clone())]);
    }
    section.table(table);
    section
}

#[cfg(test)]
mod tests {
    use wirecost_analyze::Estimate;
    use wirecost_analyze::metrics;
    use wirecost_analyze::tuning::Candidate;
    use wirecost_model::document::Block;

    use super::*;

    fn outcome(verdict: Verdict, confirmed: bool) -> Outcome {
        let effect = |ratio: f64, reach: f64, p_value: f64, is_active: bool| FactorEffect {
            ratio,
            interval: (ratio - reach, ratio + reach),
            p_value,
            adjusted_p: p_value,
            is_active,
        };
        let of =
            |mean: f64| Estimate { mean, interval: Some((0.98 * mean, 1.02 * mean)), times: 5 };
        Outcome {
            factors: vec![
                effect(1.001, 0.01, 0.8, false),
                effect(1.25, 0.02, 1e-6, true),
                effect(1.03, 0.05, 0.3, false),
            ],
            interactions: Vec::new(),
            noise: 0.012,
            candidates: vec![Candidate {
                levels: vec![0, 1, 0],
                why: "predicted best",
                runs: 2,
                to_base: Some(1.24),
                left: None,
            }],
            winner: vec![0, 1, 0],
            confirmation: confirmed.then(|| Confirmation {
                winner: of(1.25e9),
                base: of(1e9),
                ratio: of(1.25),
                maximize: true,
                bounds: Vec::new(),
            }),
            confirming: (5, 0),
            verdict,
            runs: 40,
            failed: 0,
        }
    }

    fn text(outcome: &Outcome) -> String {
        let objective = metrics::find("throughput").unwrap();
        let names = ["tune.tcp_sack", "tune.mtu", "engine"].map(str::to_owned);
        let levels = ["keep 0", "keep 9000", "epoll io_uring"]
            .map(|levels| levels.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let searched = Searched {
            objective: &objective,
            maximize: true,
            bounds: &[],
            factors: &names,
            levels: &levels,
            outcome,
            left_out: &[("tune.qdisc=fq".to_owned(), "no such device".to_owned())],
            keep: Vec::new(),
            undo: Vec::new(),
            notes: Vec::new(),
        };
        let all = sections(&searched);
        let texts =
            all.iter().flat_map(|section| &section.blocks).filter_map(|block| match block {
                Block::Text(text) | Block::Note(text) => Some(text.as_str()),
                _ => None,
            });
        let names: Vec<&str> = all.iter().map(|section| section.name.as_str()).collect();
        format!("{} {}", names.join(","), texts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn evidence_of_harm_is_no_evidence_for_a_setting() {
        let of = |outcome: &Outcome, maximize: bool| {
            let objective = metrics::find("throughput").unwrap();
            let searched = Searched {
                objective: &objective,
                maximize,
                bounds: &[],
                factors: &[],
                levels: &[],
                outcome,
                left_out: &[],
                keep: Vec::new(),
                undo: Vec::new(),
                notes: Vec::new(),
            };
            evidence_of(&searched, 1, 1)
        };
        let mut outcome = outcome(Verdict::Better, true);
        assert_eq!((of(&outcome, true), of(&outcome, false)), ("very strong", "against"));
        outcome.factors[1].ratio = 0.92;
        assert_eq!((of(&outcome, true), of(&outcome, false)), ("against", "very strong"));
        outcome.factors[1].adjusted_p = 0.5;
        assert_eq!(of(&outcome, true), "none");
    }

    #[test]
    fn a_gain_is_told_with_its_interval_and_its_setting() {
        let text = text(&outcome(Verdict::Better, true));
        for wanted in [
            "tune,setting,effects,candidates,left-out",
            "Best setting: tune.mtu=9000. Confirmed: throughput +25.0% (95% interval +22.5% to +27.5%) compared \
             with the base, on 5 pairs of runs",
            "40 runs. throughput of runs of the same setting differs by 1.2%",
            "Do not matter: tune.tcp_sack; each changes throughput by at most 1.1%.",
            "No detectable effect: engine; effects of up to 8.0% are possible.",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn a_gain_that_is_not_confirmed_is_no_setting() {
        for (confirmed, wanted) in
            [(true, "The best candidate, tune.mtu=9000:"), (false, "No factor was")]
        {
            let text = text(&outcome(Verdict::NothingHelps, confirmed));
            assert!(text.starts_with("tune,effects,candidates,left-out Nothing helps:"), "{text}");
            assert!(text.contains(wanted) && !text.contains("Best setting"), "{text}");
        }
    }
}
