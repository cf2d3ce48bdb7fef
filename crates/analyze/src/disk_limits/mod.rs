//! Which side limits a transfer from or to files, as sentences by rule: what it moves, beside what each of its parts moves alone.
//!
//! The parts of a transfer are the network (memory to memory), the disk of the sender, and that of the receiver. A disk alone is
//! a transfer through a Unix socket. A rule states figures of points. It is no test with a p-value, so it also speaks of points
//! that were run once. A rule whose figures are missing says nothing, and the reason is listed.

#[cfg(test)]
mod tests;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use crate::conclusions::{Answer, disturbances, effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::wan_tuning::axis_value;
use crate::{Conclusions, Estimate};

/// The axis of transfers.
const TRANSFER: &str = "transfer";
/// A transfer is limited by its slowest part if it moves at least this share of what that part moves alone.
const LIMITED: f64 = 0.9;

/// How an end treats a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    io: String,
    /// Whether the page cache is bypassed.
    direct: bool,
}

/// What a point transfers, by its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Transfer {
    source: Option<File>,
    sink: Option<File>,
    /// Through a Unix socket, without a network.
    local: bool,
}

impl Transfer {
    fn of(point: &MeasuredPoint) -> Option<Self> {
        let point = &point.point;
        let (source, sink) = match point.get("profile")? {
            "@stream" => (false, false),
            "@disk-to-memory" => (true, false),
            "@memory-to-disk" => (false, true),
            "@disk-to-disk" => (true, true),
            _ => return None,
        };
        let options = point.get("options").unwrap_or_default();
        let direct = options.split_whitespace().any(|option| option == "o_direct");
        let file = |io: &str, usual: &str| {
            let io = point.get(io).unwrap_or(usual).to_owned();
            File { io, direct }
        };
        Some(Self {
            source: source.then(|| file("source_io", "read")),
            sink: sink.then(|| file("sink_io", "write")),
            local: point.get("protocol") == Some("unix"),
        })
    }
}

/// A part of a transfer, and what it moves alone.
struct Part {
    /// Ends the sentence.
    limits: &'static str,
    /// Before its figure.
    name: &'static str,
    alone: Estimate,
}

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let mut clusters: Vec<(Vec<Value>, Vec<&MeasuredPoint>)> = Vec::new();
    for point in &measured.points {
        let common = measured.common(point, |axis| axis == TRANSFER);
        match clusters.iter_mut().find(|(known, _)| *known == common) {
            Some((_, points)) => points.push(point),
            None => clusters.push((common, vec![point])),
        }
    }
    let mut conclusions = Conclusions::default();
    for (common, points) in &clusters {
        let answers = points.iter().map(|point| answer(common, point, points));
        conclusions.add(("limiting-side", "which side limits"), answers);
    }
    conclusions
}

fn throughput(point: &MeasuredPoint) -> Result<Estimate, String> {
    mean(point, |run| figure(run, "throughput"))
}

/// Of a transfer between hosts that uses files.
fn answer(common: &[Value], point: &MeasuredPoint, points: &[&MeasuredPoint]) -> Answer {
    let Some(transfer) = Transfer::of(point) else { return Ok(None) };
    if transfer.local || (transfer.source.is_none() && transfer.sink.is_none()) {
        return Ok(None);
    }
    let name = axis_value(point, TRANSFER).unwrap_or_default();
    let moves = throughput(point).map_err(|reason| format!("{name}: {reason}"))?;
    let alone = |wanted: &Transfer, what: &str| {
        let found = points.iter().find(|of| Transfer::of(of).as_ref() == Some(wanted));
        let found = found.ok_or_else(|| format!("{name}: no run of {what} alone"))?;
        Ok::<_, String>((*found, throughput(found)?))
    };
    let network = Transfer { source: None, sink: None, local: false };
    let (mut parts, mut used) = (Vec::new(), vec![point]);
    let mut add = |wanted: Transfer, what, limits, name| {
        let (point, of) = alone(&wanted, what)?;
        used.push(point);
        parts.push(Part { limits, name, alone: of });
        Ok::<_, String>(())
    };
    add(
        network,
        "the network",
        "the network or the CPUs are the bottleneck",
        "memory to memory alone",
    )?;
    if let Some(file) = &transfer.source {
        // What sendfile(2) and splice(2) read is read as by read(2).
        let io = if file.io == "io_uring" { "io_uring" } else { "read" };
        let source = Some(File { io: io.to_owned(), ..file.clone() });
        let wanted = Transfer { source, sink: None, local: true };
        add(
            wanted,
            "the sender's disk",
            "the sender's disk is the bottleneck",
            "the sender's disk alone",
        )?;
    }
    if let Some(file) = &transfer.sink {
        let wanted = Transfer { source: None, sink: Some(file.clone()), local: true };
        add(
            wanted,
            "the receiver's disk",
            "the receiver's disk is the bottleneck",
            "the receiver's disk alone",
        )?;
    }
    let rate = |of: Estimate| show(Unit::BitsPerSecond, of.mean);
    let told: Vec<String> =
        parts.iter().map(|part| format!("{} {}", part.name, rate(part.alone))).collect();
    parts.sort_by(|a, b| a.alone.mean.total_cmp(&b.alone.mean));
    let (slowest, next) = (&parts[0], parts.get(1));
    let share = moves.mean / slowest.alone.mean;
    let verdict = if share < LIMITED {
        format!("that is {share:.2}x its slowest part alone, so no single part is the bottleneck")
    } else if share * LIMITED > 1.0 {
        format!("that is {share:.2}x its slowest part alone, so that part is not the bottleneck")
    } else if next.is_some_and(|next| LIMITED * next.alone.mean < slowest.alone.mean) {
        format!(
            "that is {share:.2}x its slowest part alone; two parts are similarly slow, so either may be the bottleneck"
        )
    } else {
        format!("that is {share:.2}x its slowest part alone: {}", slowest.limits)
    };
    let disturbed = disturbances(&used);
    let text = format!("{name} moves {}; {}; {verdict}{disturbed}", rate(moves), told.join(", "));
    let fixed: Vec<&Value> = common.iter().collect();
    Ok(Some(Finding {
        kind: String::new(),
        metric: Some("throughput".to_owned()),
        axis: Some(TRANSFER.to_owned()),
        at: common.to_vec(),
        sentence: words::sentence(&fixed, &text),
        effect: effect("share of the slowest part", Unit::Ratio, share, None),
        p_value: None,
        strength: None,
        evidence: Vec::new(),
        points: Vec::new(),
    }))
}
