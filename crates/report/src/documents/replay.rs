//! Which findings of a page hold on other hosts (`wirecost replay`).

use wirecost_analyze::replay::{Here, Replayed, Verdict};
use wirecost_model::document::{
    Cell, Column, Effect, Emphasis, Finding, Message, Number, Section, Table,
};
use wirecost_model::units::counted;

/// A row for each finding of the page, and what was found here in addition.
#[must_use]
pub fn sections(replayed: &[Replayed], new: &[&Finding]) -> Vec<Section> {
    let mut section = Section::named("replay", "Findings of the page, on these hosts");
    if replayed.is_empty() {
        section.text("The page has no findings.");
    } else {
        section.text(summary(replayed));
        section.table(table(replayed));
        section.note(
            "holds: found here too, and the 95% intervals overlap; other size: the intervals do not overlap; \
             not shown: an effect here may be too small for these runs",
        );
    }
    let mut sentences = Section::named("replay-findings", "The findings");
    for (number, of) in (1..).zip(replayed) {
        let text = match &of.here {
            Here::Finding(here) if here.sentence != of.finding.sentence => {
                format!("{} Here: {}", of.finding.sentence, here.sentence)
            }
            _ => of.finding.sentence.clone(),
        };
        let message = Message { label: number.to_string(), text, ..Message::default() };
        sentences.message(message);
    }
    let mut further = Section::named("replay-new", "Found here only");
    new.iter().for_each(|finding| further.finding((*finding).clone()));
    [section.filled(), sentences.filled(), further.filled()].into_iter().flatten().collect()
}

fn summary(replayed: &[Replayed]) -> String {
    let count = |verdict: Verdict| replayed.iter().filter(|of| of.verdict == verdict).count();
    let verdicts = [
        Verdict::Holds,
        Verdict::OtherSize,
        Verdict::Contradicted,
        Verdict::NotShown,
        Verdict::NotTested,
    ];
    let counts = verdicts.map(|verdict| (count(verdict), words(verdict).0));
    let known = counts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = known.map(|(number, words)| format!("{words} {number}")).collect();
    let all = counted(replayed.len() as u64, "finding", "findings");
    format!("Of {all} of the page: {}.", parts.join(", "))
}

fn table(replayed: &[Replayed]) -> Table {
    let mut table = Table::new([
        Column::number("finding"),
        Column::text("here"),
        Column::text("on the page"),
        Column::text("measured here"),
    ]);
    let effect = |finding: &Finding| match &finding.effect {
        Some(effect) => sized(effect),
        None => Cell::empty(),
    };
    for (number, of) in (1..).zip(replayed) {
        let here = match &of.here {
            Here::Effect(effect) => sized(effect),
            Here::Finding(finding) => effect(finding),
            Here::Nothing(reason) => Cell::Missing(reason.clone()),
        };
        let (text, emphasis) = words(of.verdict);
        let verdict = Cell::marked(emphasis, text);
        table.row(vec![Cell::count(number), verdict, effect(&of.finding), here]);
    }
    table
}

fn words(verdict: Verdict) -> (&'static str, Emphasis) {
    match verdict {
        Verdict::Holds => ("holds", Emphasis::Plain),
        Verdict::OtherSize => ("other size", Emphasis::Warning),
        Verdict::Contradicted => ("contradicted", Emphasis::Error),
        Verdict::NotShown => ("not shown", Emphasis::Warning),
        Verdict::NotTested => ("not tested", Emphasis::Muted),
    }
}

/// `4.31x (4.10x to 4.52x)`.
fn sized(effect: &Effect) -> Cell {
    let text = match effect.interval_text() {
        Some(interval) => format!("{} ({interval})", effect.value_text()),
        None => effect.value_text(),
    };
    let Effect { value, interval, unit, .. } = *effect;
    Cell::Number(Number { value, interval, text, unit })
}
