//! The report of a cost model, and of a prediction.

use wirecost_model::cost::{CostAtRate, CostModel, Errors, Input, ModelledPoint, Prediction, Term};
use wirecost_model::document::{Cell, Column, Document, Number, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::units::{self, decimal, three_digits};

/// Costs, what each explains at every point, and how good the model is.
#[must_use]
pub fn explanation(model: &CostModel) -> Document {
    let mut report = Document::new(&format!("Cost model of {}", titled(model)));
    report.sections = vec![costs(model), points(model), check(model)];
    report
}

/// The predicted cost of a load, and the model behind it.
#[must_use]
pub fn prediction(model: &CostModel) -> Document {
    let mut report =
        Document::new(&format!("Predicted cost, from the cost model of {}", titled(model)));
    if let Some(prediction) = &model.prediction {
        report.sections.extend([load(model, prediction), along_rate(model, prediction)]);
    }
    report.sections.extend([costs(model), check(model)]);
    report
}

fn titled(model: &CostModel) -> String {
    match &model.study {
        Some(study) if !study.is_empty() => format!("{} ({study})", model.name),
        _ => model.name.clone(),
    }
}

fn whose(model: &CostModel) -> String {
    match &model.host {
        Some(host) => format!("of {host}"),
        None => "of all machines together".to_owned(),
    }
}

fn costs(model: &CostModel) -> Section {
    let mut section = Section::new("Costs");
    section.name = "costs".to_owned();
    let sum: Vec<&str> = model.terms.iter().map(|term| term.input.name()).collect();
    section.text(format!(
        "Busy cycles per second {}, as a sum of non-negative costs of {}.",
        whose(model),
        sum.join(", ")
    ));
    let mut columns = vec![Column::text("cost of")];
    columns.extend(["cycles", "95% interval", "share", "minimum", "maximum"].map(Column::number));
    let rows = model.terms.iter().map(term).collect();
    section.table(Table { columns, rows, ..Table::default() });
    if let Some(source) = &model.packets_source {
        section.text(format!("A packet is {source}."));
    }
    for left_out in &model.left_out {
        section.text(format!("Left out: {}: {}.", left_out.input.name(), left_out.reason));
    }
    section
}

fn term(term: &Term) -> Vec<Cell> {
    let each = match term.input {
        Input::Bytes => "a byte",
        Input::Operations => "an operation",
        Input::Packets => "a packet",
        Input::Connections => "a connection, per second",
        Input::Interrupts => "an interrupt",
        Input::Constant => "the constant, per second",
    };
    let level = |value: f64| match term.input {
        Input::Bytes => decimal(value * 8.0, "b/s"),
        Input::Connections => units::whole(value),
        Input::Constant => String::new(),
        _ => decimal(value, "/s"),
    };
    let interval = match term.interval {
        Some((low, high)) => Cell::text(format!("{} to {}", cycles(low), cycles(high))),
        None => Cell::Missing("too few points for an interval".to_owned()),
    };
    vec![
        Cell::text(each),
        Cell::Number(Number {
            value: term.cycles,
            interval: term.interval,
            text: cycles(term.cycles),
            unit: Unit::Count,
        }),
        interval,
        Cell::number(Unit::Percent, 100.0 * term.share),
        Cell::text(level(term.range.0)),
        Cell::text(level(term.range.1)),
    ]
}

fn cycles(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 100.0 => three_digits(value),
        value if value < 1e6 => units::whole(value),
        value => decimal(value, ""),
    }
}

fn points(model: &CostModel) -> Section {
    let mut section = Section::new("Cycles of each point");
    section.name = "points".to_owned();
    let mut axes: Vec<&str> = Vec::new();
    for axis in model.points.iter().flat_map(|point| &point.point.axes) {
        if !axes.contains(&axis.name.as_str()) {
            axes.push(&axis.name);
        }
    }
    let mut columns: Vec<Column> = axes.iter().map(|axis| Column::number(axis)).collect();
    columns.extend(["cycles/KByte", "model", "held out"].map(Column::number));
    let names = model.terms.iter().map(|term| match term.input {
        Input::Operations => "ops%",
        Input::Connections => "conn%",
        Input::Interrupts => "intr%",
        Input::Constant => "const%",
        Input::Bytes => "bytes%",
        Input::Packets => "packets%",
    });
    columns.extend(names.map(Column::number));
    let rows = model.points.iter().map(|point| row(point, &axes)).collect();
    // As lists of runs name them.
    let points = model.points.iter().map(|point| point.point.to_string()).collect();
    section.table(Table { columns, rows, points, ..Table::default() });
    section.text(
        "model: over- (+) or underestimate (-) of the model of all points; held out: of a model of the \
         other points.",
    );
    for left_out in &model.points_left_out {
        section.text(format!("Left out: {}: {}.", left_out.point, left_out.reason));
    }
    section
}

fn row(point: &ModelledPoint, axes: &[&str]) -> Vec<Cell> {
    let key = |axis: &&str| Cell::set(point.point.get(axis).unwrap_or_default());
    let mut row: Vec<Cell> = axes.iter().map(key).collect();
    row.push(Cell::number(Unit::CyclesPerKByte, point.cycles_per_kbyte));
    row.push(error(point.error));
    row.push(match point.held_out_error {
        Some(value) => error(value),
        None => Cell::Missing("too few points to hold one out".to_owned()),
    });
    let share = |share: f64| Number {
        value: 100.0 * share,
        interval: None,
        text: format!("{:.0}", 100.0 * share),
        unit: Unit::Percent,
    };
    row.extend(point.shares.iter().map(|of| Cell::Number(share(of.share))));
    row
}

fn error(value: f64) -> Cell {
    let percent = 100.0 * value;
    let text = format!("{percent:+.1}%");
    Cell::Number(Number { value: percent, interval: None, text, unit: Unit::Percent })
}

fn check(model: &CostModel) -> Section {
    let mut section = Section::new("Errors of the model");
    section.name = "check".to_owned();
    let said = |errors: &Errors| {
        format!(
            "median {:.1}%, worst {:.1}% at {}",
            100.0 * errors.median,
            100.0 * errors.worst,
            errors.worst_at
        )
    };
    match &model.held_out {
        Some(errors) => section.text(format!("At held-out points: {}.", said(errors))),
        None => section.text("Too few points to hold one out: the model is not checked."),
    }
    if let Some(errors) = &model.fit {
        section.text(format!("At fitted points: {}.", said(errors)));
    }
    let inflated: Vec<String> = model
        .terms
        .iter()
        .filter(|term| term.inflation > 10.0)
        .map(|term| format!("{} ({:.0})", term.input.name(), term.inflation))
        .collect();
    if !inflated.is_empty() {
        section.text(format!(
            "Collinear inputs, with variance inflation factors: {}.",
            inflated.join(", ")
        ));
    }
    if let Some(source) = &model.cycles_source {
        section.text(format!("Cycles: {source}."));
    }
    for note in &model.notes {
        section.text(format!("Note: {note}."));
    }
    section
}

fn load(model: &CostModel, prediction: &Prediction) -> Section {
    let size = prediction.size.as_ref().map(|size| format!(", {size} each")).unwrap_or_default();
    let connections = units::counted(prediction.connections, "connection", "connections");
    let rate = decimal(prediction.bits_per_second, "b/s");
    let mut section = Section::new(&format!("{rate}, {connections}{size}"));
    section.name = "prediction".to_owned();
    if prediction.extrapolated {
        let outside = prediction.inputs.iter().filter(|input| input.outside);
        let names: Vec<&str> = outside.map(|input| input.input.name()).collect();
        let names = match names.is_empty() {
            true => "the size".to_owned(),
            false => names.join(", "),
        };
        section.text(format!(
            "EXTRAPOLATED: outside the studied range: {names}. Effects beyond it (caches, memory \
             bandwidth, locks) are not in the figures or their intervals."
        ));
    }
    let between = |interval: Option<(f64, f64)>, show: fn(f64) -> String| match interval {
        Some((low, high)) => format!(" ({} to {})", show(low), show(high)),
        None => " (too few points for an interval)".to_owned(),
    };
    match (prediction.cpus, model.cycles_per_cpu_second) {
        (Some(cpus), Some(frequency)) => section.text(format!(
            "{} CPUs{} at {}, {}.",
            three_digits(cpus),
            between(prediction.cpus_interval, three_digits),
            decimal(frequency, "Hz"),
            whose(model)
        )),
        _ => section.text("The number of CPUs is unknown: the study did not measure CPU time."),
    }
    section.text(format!(
        "{}{}; {} cycles/KByte.",
        decimal(prediction.cycles_per_second, "cycles/s"),
        between(prediction.interval, |value| decimal(value, "cycles/s")),
        cycles(prediction.cycles_per_kbyte)
    ));
    let columns = [Column::text("input")]
        .into_iter()
        .chain(["load", "share", "studied from", "to"].map(Column::number))
        .chain([Column::text("")])
        .collect();
    let level = |input: Input, value: f64| match input {
        Input::Bytes => decimal(value * 8.0, "b/s"),
        Input::Connections => units::whole(value),
        Input::Constant => "1".to_owned(),
        _ => decimal(value, "/s"),
    };
    let rows = prediction.inputs.iter().map(|of| {
        vec![
            Cell::text(of.input.name()),
            Cell::text(level(of.input, of.value)),
            Cell::number(Unit::Percent, 100.0 * of.share),
            Cell::text(level(of.input, of.range.0)),
            Cell::text(level(of.input, of.range.1)),
            Cell::text(if of.outside { "outside" } else { "" }),
        ]
    });
    section.table(Table { rows: rows.collect(), columns, ..Table::default() });
    section
}

/// The cost of the same connections and size along the rate.
fn along_rate(model: &CostModel, prediction: &Prediction) -> Section {
    let mut section = Section::new("Cost along the rate");
    section.name = "rates".to_owned();
    let columns = ["rate", "cycles/KByte", "cycles/operation", "CPUs"].map(Column::number);
    let here = CostAtRate {
        bits_per_second: prediction.bits_per_second,
        cycles_per_second: prediction.cycles_per_second,
        cycles_per_kbyte: prediction.cycles_per_kbyte,
        cycles_per_operation: prediction.cycles_per_operation,
        cpus: prediction.cpus,
    };
    let mut rates = prediction.along_rate.clone();
    rates.push(here);
    rates.sort_by(|a, b| a.bits_per_second.total_cmp(&b.bits_per_second));
    let plain = |unit: Unit, value: f64, text: String| {
        Cell::Number(Number { value, interval: None, text, unit })
    };
    let rows = rates.iter().map(|at| {
        let operation = at.cycles_per_operation.map_or_else(
            || Cell::Missing("operations were not counted".to_owned()),
            |value| plain(Unit::Count, value, cycles(value)),
        );
        let cpus = at.cpus.map_or_else(
            || Cell::Missing("the study did not measure CPU time".to_owned()),
            |value| plain(Unit::Count, value, three_digits(value)),
        );
        vec![
            Cell::number(Unit::BitsPerSecond, at.bits_per_second),
            plain(Unit::CyclesPerKByte, at.cycles_per_kbyte, cycles(at.cycles_per_kbyte)),
            operation,
            cpus,
        ]
    });
    section.table(Table { rows: rows.collect(), columns: columns.into(), ..Table::default() });
    section.text(match (prediction.idle_cycles_per_second, model.cycles_per_cpu_second) {
        (None, _) => {
            "The cost of being idle is unknown: no load of the study was light.".to_owned()
        }
        (Some(idle), None) => format!("Idle: {}.", decimal(idle, "cycles/s")),
        (Some(idle), Some(rate)) => format!(
            "Idle: {}, {} CPUs, which are part of every row.",
            decimal(idle, "cycles/s"),
            three_digits(idle / rate)
        ),
    });
    section
}
