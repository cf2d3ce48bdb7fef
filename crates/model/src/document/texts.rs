//! All texts of a document that come from hosts, files or people.

use super::{
    Axis, Block, Cell, Chart, Column, Document, Figure, Finding, FlameDifference, Message, Replay,
    RunList, Section, Table,
};
use crate::study::Value;

/// What is done to a text.
type Change<'a> = &'a mut dyn FnMut(&mut String);

impl Document {
    /// Changes every text that a reader or a program can see; names of sections and of kinds, which are
    /// wirecost's own, stay.
    pub fn change_texts(&mut self, change: Change<'_>) {
        change(&mut self.title);
        self.error.iter_mut().for_each(&mut *change);
        for section in &mut self.sections {
            section.change_texts(change);
        }
    }
}

impl Replay {
    /// Changes every text that came from hosts, files or people.
    pub fn change_texts(&mut self, change: Change<'_>) {
        let Self { version: _, study, profiles, place: _, left_out, findings } = self;
        change(study);
        // The study has their names.
        *profiles = std::mem::take(profiles)
            .into_iter()
            .map(|(mut name, mut text)| {
                change(&mut name);
                change(&mut text);
                (name, text)
            })
            .collect();
        left_out.iter_mut().for_each(&mut *change);
        findings.iter_mut().for_each(|finding| of_finding(finding, change));
    }
}

impl Section {
    fn change_texts(&mut self, change: Change<'_>) {
        change(&mut self.title);
        for block in &mut self.blocks {
            match block {
                Block::Table(table) => of_table(table, change),
                Block::Text(text) | Block::Note(text) => change(text),
                Block::Figures(figures) => {
                    for Figure { label, value } in figures {
                        change(label);
                        of_cell(value, change);
                    }
                }
                Block::Chart(chart) => of_chart(chart, change),
                Block::Message(message) => of_message(message, change),
                Block::Finding(finding) => of_finding(finding, change),
                Block::Flame(flame) => {
                    change(&mut flame.title);
                    flame.stacks.stacks.iter_mut().for_each(|stack| change(&mut stack.stack));
                }
                Block::FlameDifference(FlameDifference { title, a, b, cycles_per_kbyte: _ }) => {
                    change(title);
                    let stacks = a.stacks.iter_mut().chain(&mut b.stacks);
                    stacks.for_each(|folded| change(&mut folded.stack));
                }
                Block::Runs(list) => of_runs(list, change),
            }
        }
    }
}

fn of_table(table: &mut Table, change: Change<'_>) {
    let Table { title, common, columns, rows, points } = table;
    change(title);
    of_values(common, change);
    of_columns(columns, change);
    rows.iter_mut().flatten().for_each(|cell| of_cell(cell, change));
    points.iter_mut().for_each(change);
}

fn of_columns(columns: &mut [Column], change: Change<'_>) {
    columns.iter_mut().for_each(|column| change(&mut column.title));
}

fn of_values(values: &mut [Value], change: Change<'_>) {
    for Value { name, value } in values {
        change(name);
        change(value);
    }
}

fn of_cell(cell: &mut Cell, change: Change<'_>) {
    match cell {
        Cell::Text(text) | Cell::Missing(text) => change(text),
        Cell::Set(set) => change(&mut set.text),
        Cell::Number(number) => change(&mut number.text),
        Cell::Marked(marked) => change(&mut marked.text),
        Cell::Parts(parts) => {
            change(&mut parts.text);
            parts.parts.iter_mut().for_each(|part| change(&mut part.name));
        }
    }
}

fn of_chart(chart: &mut Chart, change: Change<'_>) {
    let Chart { title, kind: _, x, y, series, marks, group } = chart;
    change(title);
    for Axis { title, labels, .. } in [x, y] {
        change(title);
        labels.iter_mut().for_each(|label| change(&mut label.text));
    }
    for of in series {
        change(&mut of.name);
        of.runs.iter_mut().for_each(|run| change(&mut run.run));
    }
    marks.iter_mut().for_each(|mark| change(&mut mark.label));
    group.iter_mut().for_each(change);
}

fn of_message(message: &mut Message, change: Change<'_>) {
    change(&mut message.label);
    change(&mut message.text);
    message.details.iter_mut().for_each(&mut *change);
    for command in &mut message.commands {
        change(&mut command.label);
        change(&mut command.command);
    }
}

fn of_finding(finding: &mut Finding, change: Change<'_>) {
    let Finding { kind: _, metric, axis, at, sentence, evidence, points, effect, .. } = finding;
    for text in [metric, axis].into_iter().flatten() {
        change(text);
    }
    of_values(at, change);
    change(sentence);
    effect.iter_mut().for_each(|effect| change(&mut effect.name));
    evidence.iter_mut().for_each(&mut *change);
    points.iter_mut().for_each(change);
}

fn of_runs(list: &mut RunList, change: Change<'_>) {
    of_columns(&mut list.columns, change);
    for run in &mut list.runs {
        change(&mut run.name);
        change(&mut run.point);
        run.record.iter_mut().for_each(&mut *change);
        run.cells.iter_mut().for_each(|cell| of_cell(cell, change));
    }
}
