//! The document of the doctor: what can be measured, problems with the commands that fix them,
//! notes, and what is unknown. The summary is last, next to the prompt.

use wirecost_model::doctor::{self, Capacity, Examination, Finding, Need, Severity};
use wirecost_model::document::{
    Cell, Column, Command, Document, Emphasis, Message, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::ProbeStatus;
use wirecost_model::units::{bytes, count, counted};

/// The document of an examination of a host that answered.
#[must_use]
pub fn document(examination: &Examination) -> Document {
    let mut document = Document::new(&title(examination));
    document.status = examination.status;
    document.error.clone_from(&examination.error);
    let sections = &mut document.sections;
    sections.push(probes(examination));
    let mut findings = Section::named("findings", "");
    examination.findings.iter().for_each(|finding| findings.message(found(finding)));
    sections.extend(findings.filled());
    sections.extend(unknown(examination).filled());
    sections.extend(examination.capacity.as_ref().map(capacity));
    sections.push(sum(examination));
    document
}

fn title(examination: &Examination) -> String {
    let host = examination.host.as_ref();
    let name = host.and_then(|host| host.name.as_deref());
    let name = match (&examination.address, name) {
        (Some(address), Some(name)) => format!("{name} ({address})"),
        (Some(address), None) => address.clone(),
        (None, name) => name.unwrap_or("this host").to_owned(),
    };
    let mut words = Vec::new();
    if let Some(host) = host {
        words.extend(host.kernel.as_ref().map(|release| format!("Linux {release}")));
        words.extend(host.threads.map(|threads| counted(u64::from(threads), "CPU", "CPUs")));
        words.extend(host.cpu_model.clone());
        if host.virtual_machine == Some(true) {
            words.push("virtual machine".to_owned());
        }
    }
    format!("{name}: {}", words.join(", "))
}

fn probes(examination: &Examination) -> Section {
    let mut section = Section::named("probes", "");
    let mut table = Table::new(["probe", "can it be measured?", "reason"].map(Column::text));
    for row in &examination.probes {
        let status = match row.status {
            ProbeStatus::Ready => Cell::marked(Emphasis::Plain, "ready"),
            ProbeStatus::Partial => Cell::marked(Emphasis::Warning, "partial"),
            ProbeStatus::No => Cell::marked(Emphasis::Error, "no"),
        };
        let reason = row.reason.as_deref().unwrap_or_default();
        table.row(vec![Cell::text(row.name.as_str()), status, Cell::text(reason)]);
    }
    section.table(table);
    // Several probes lack the same.
    let mut fixes: Vec<&str> =
        examination.probes.iter().filter_map(|row| row.fix.as_deref()).collect();
    fixes.dedup();
    if !fixes.is_empty() {
        let commands = fixes.into_iter().map(|fix| command("fix", fix)).collect();
        section.message(Message { commands, ..Message::default() });
    }
    section
}

fn command(label: &str, command: &str) -> Command {
    Command { label: label.to_owned(), command: command.to_owned() }
}

/// What changes a setting, then what restores it.
fn commands(fix: &[String], undo: &[String]) -> Vec<Command> {
    let fix = fix.iter().map(|fix| command("fix", fix));
    fix.chain(undo.iter().map(|undo| command("undo", undo))).collect()
}

fn found(finding: &Finding) -> Message {
    let (emphasis, label) = match finding.severity {
        Severity::Problem => (Emphasis::Warning, "problem"),
        Severity::Note => (Emphasis::Muted, "note"),
    };
    let about = finding.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
    let text = format!("{about}{} [{}]", finding.found, finding.check);
    Message {
        details: [finding.why.clone()].into_iter().chain(finding.advice.clone()).collect(),
        commands: commands(&finding.fix, &finding.undo),
        ..Message::new(emphasis, label, text)
    }
}

/// What a number of connections needs, and what there is of it.
fn capacity(capacity: &Capacity) -> Section {
    let number = count(capacity.connections);
    let mut section = Section::named(
        "capacity",
        &format!("Requirements of {number} connections, one end of each on this host"),
    );
    let mut table = Table::new([
        Column::text(""),
        Column::number("needed"),
        Column::number("available"),
        Column::text("").drop_order(1),
    ]);
    for need in &capacity.needs {
        table.row(row(need));
    }
    section.table(table);
    for need in &capacity.needs {
        section.message(Message {
            details: need.advice.iter().cloned().collect(),
            commands: commands(&need.fix, &need.undo),
            ..Message::new(Emphasis::Plain, &need.name, need.why.as_str())
        });
    }
    section
}

fn row(need: &Need) -> Vec<Cell> {
    let amount = |of: u64| match need.unit {
        doctor::Unit::Count => Cell::count(of),
        doctor::Unit::Bytes => Cell::written(Unit::Bytes, of as f64, bytes(of)),
    };
    // The largest number there is stands for no limit.
    let there = match need.available {
        Some(u64::MAX) => Cell::text("no limit"),
        there => Cell::or_dash(there, amount),
    };
    let verdict = match need.enough {
        Some(true) => Cell::marked(Emphasis::Plain, "enough"),
        Some(false) => Cell::marked(Emphasis::Warning, "not enough"),
        None => Cell::marked(Emphasis::Muted, "unknown"),
    };
    vec![Cell::text(need.name.as_str()), amount(need.needed), there, verdict]
}

/// Checks that give the same reason share a line.
fn unknown(examination: &Examination) -> Section {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for unknown in &examination.unknown {
        let name = match &unknown.about {
            Some(about) => format!("{} of {about}", unknown.check),
            None => unknown.check.clone(),
        };
        match reasons.iter_mut().find(|(reason, _)| *reason == unknown.reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((&unknown.reason, vec![name])),
        }
    }
    let mut section = Section::named("unknown", "");
    for (reason, mut names) in reasons {
        names.dedup();
        let text = format!("{}: {reason}", names.join(", "));
        section.message(Message::new(Emphasis::Muted, "unknown", text));
    }
    section
}

fn sum(examination: &Examination) -> Section {
    let of = |severity| examination.findings.iter().filter(|f| f.severity == severity).count();
    let (spoils, notes) = (of(Severity::Problem) as u64, of(Severity::Note) as u64);
    let found = match spoils {
        0 => "no problems found".to_owned(),
        _ => counted(spoils, "problem", "problems"),
    };
    let mut unknown: Vec<&str> = examination.unknown.iter().map(|u| u.check.as_str()).collect();
    unknown.dedup();
    let notes = match notes {
        0 => String::new(),
        _ => format!(", {}", counted(notes, "note", "notes")),
    };
    let text = format!(
        "{found}{notes}; {} of {} checks could not run",
        count(unknown.len() as u64),
        count(examination.checks.len() as u64)
    );
    let mut section = Section::named("sum", "");
    if examination.findings.iter().any(|finding| !finding.fix.is_empty()) {
        let legend =
            "Run commands as root on that host: fix changes the setting, undo restores it.";
        section.message(Message::new(Emphasis::Muted, "", legend));
    }
    section.message(Message::new(Emphasis::Strong, "", text));
    section
}
