//! What the doctor found, for people: what can be measured, what spoils a benchmark with the
//! command that mends it, what else to know, and what is not known. The sum of it is last, next to
//! the prompt.

use std::io::{self, Write};

use wirecost_model::doctor::{Capacity, Examination, Finding, Severity, Unit};
use wirecost_model::observe::ProbeStatus;

use super::columns::{Table, number, text};
use super::look::Look;
use super::quantity::{bytes, count, counted, or_dash};
use super::{LABEL, labelled};

/// Width of the column that says whether something can be measured.
const STATUS: usize = 9;
const INDENT: usize = 2;

/// Writes an examination of a host that answered.
pub fn write(out: &mut dyn Write, examination: &Examination, look: &Look) -> io::Result<()> {
    for line in look.wrap(0, &title(examination)) {
        writeln!(out, "{}", look.title(&line))?;
    }
    probes(out, examination, look)?;
    for finding in &examination.findings {
        writeln!(out)?;
        write_finding(out, finding, look)?;
    }
    unknown(out, examination, look)?;
    if let Some(capacity) = &examination.capacity {
        write_capacity(out, capacity, look)?;
    }
    sum(out, examination, look)
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

fn probes(out: &mut dyn Write, examination: &Examination, look: &Look) -> io::Result<()> {
    writeln!(out)?;
    writeln!(out, "{}", look.heading("  probe         can it be measured?"))?;
    for row in &examination.probes {
        // Padded before it is coloured: escapes have no width.
        let status = match row.status {
            ProbeStatus::Ready => format!("{:<STATUS$}", "ready"),
            ProbeStatus::Partial => look.warning(&format!("{:<STATUS$}", "partial")),
            ProbeStatus::No => look.error(&format!("{:<STATUS$}", "no")),
        };
        let label = format!("  {:<LABEL$}{status}", row.name);
        match &row.reason {
            // `labelled` puts a blank between.
            Some(reason) => labelled(out, look, &label, INDENT + LABEL + STATUS + 1, reason)?,
            None => writeln!(out, "{}", label.trim_end())?,
        }
    }
    // Several probes lack the same.
    let mut mends: Vec<&str> =
        examination.probes.iter().filter_map(|row| row.mend.as_deref()).collect();
    mends.dedup();
    for mend in mends {
        command(out, look, "mend", mend)?;
    }
    Ok(())
}

fn write_finding(out: &mut dyn Write, finding: &Finding, look: &Look) -> io::Result<()> {
    let (name, label) = match finding.severity {
        Severity::Spoils => ("spoils:", look.warning("spoils:")),
        Severity::Note => ("note:", look.heading("note:")),
    };
    let about = finding.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
    let found = format!("{about}{} [{}]", finding.found, finding.check);
    labelled(out, look, &label, name.len() + 1, &found)?;
    for line in look.wrap(INDENT, &finding.why) {
        writeln!(out, "  {line}")?;
    }
    if let Some(advice) = &finding.advice {
        for line in look.wrap(INDENT, advice) {
            writeln!(out, "  {line}")?;
        }
    }
    for mend in &finding.mend {
        command(out, look, "mend", mend)?;
    }
    for undo in &finding.undo {
        command(out, look, "back", undo)?;
    }
    Ok(())
}

/// What a number of connections needs, and what there is of it.
fn write_capacity(out: &mut dyn Write, capacity: &Capacity, look: &Look) -> io::Result<()> {
    writeln!(out)?;
    let title = format!("for {} connections, one end of each here:", count(capacity.connections));
    writeln!(out, "{}", look.title(&title))?;
    let mut table =
        Table::new(&[text("", 0), number("needed", 0), number("there", 0), text("", 1)]);
    for need in &capacity.needs {
        let amount = |of: u64| match need.unit {
            Unit::Count => count(of),
            Unit::Bytes => bytes(of),
        };
        // The largest number there is stands for no limit.
        let there = match need.available {
            Some(u64::MAX) => "no limit".to_owned(),
            there => or_dash(there, amount),
        };
        let verdict = match need.enough {
            Some(true) => "enough",
            Some(false) => "too little",
            None => "not known",
        };
        let cells = vec![need.name.clone(), amount(need.needed), there, verdict.to_owned()];
        table.row(cells);
    }
    table.write(out, look)?;
    for need in &capacity.needs {
        let lines = look.wrap(4, &format!("{}: {}", need.name, need.why));
        for (place, line) in lines.iter().enumerate() {
            writeln!(out, "{}{line}", if place == 0 { "  " } else { "    " })?;
        }
        if let Some(advice) = &need.advice {
            for line in look.wrap(4, advice) {
                writeln!(out, "    {line}")?;
            }
        }
        for mend in &need.mend {
            command(out, look, "mend", mend)?;
        }
        for undo in &need.undo {
            command(out, look, "back", undo)?;
        }
    }
    Ok(())
}

/// To be copied, so it is never broken, however long.
fn command(out: &mut dyn Write, look: &Look, label: &str, command: &str) -> io::Result<()> {
    writeln!(out, "    {}  {command}", look.heading(label))
}

/// Checks that give the same reason share a line.
fn unknown(out: &mut dyn Write, examination: &Examination, look: &Look) -> io::Result<()> {
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
    if !reasons.is_empty() {
        writeln!(out)?;
    }
    let label = "not known:";
    for (reason, mut names) in reasons {
        names.dedup();
        let text = format!("{}: {reason}", names.join(", "));
        labelled(out, look, &look.heading(label), label.len() + 1, &text)?;
    }
    Ok(())
}

fn sum(out: &mut dyn Write, examination: &Examination, look: &Look) -> io::Result<()> {
    let of = |severity| examination.findings.iter().filter(|f| f.severity == severity).count();
    let (spoils, notes) = (of(Severity::Spoils) as u64, of(Severity::Note) as u64);
    let found = match spoils {
        0 => "nothing found that spoils a benchmark".to_owned(),
        _ => counted(spoils, "thing spoils a benchmark", "things spoil a benchmark"),
    };
    let mut unknown: Vec<&str> = examination.unknown.iter().map(|u| u.check.as_str()).collect();
    unknown.dedup();
    let notes = match notes {
        0 => String::new(),
        _ => format!(", {}", counted(notes, "note", "notes")),
    };
    let text = format!(
        "{found}{notes}; {} of {} checks could not look",
        count(unknown.len() as u64),
        count(examination.checks.len() as u64)
    );
    writeln!(out)?;
    if examination.findings.iter().any(|finding| !finding.mend.is_empty()) {
        let legend =
            "Commands are for root on that host: mend changes the setting, back restores it.";
        for line in look.wrap(0, legend) {
            writeln!(out, "{}", look.heading(&line))?;
        }
    }
    for line in look.wrap(0, &text) {
        writeln!(out, "{}", look.title(&line))?;
    }
    Ok(())
}
