//! What a study of ways to receive packets shows, as sentences by rule: interrupts against polling, by latency at light load and
//! by what is delivered when more is offered than the receiver can take (receive livelock: J. Mogul and K. Ramakrishnan, "Eliminating
//! Receive Livelock in an Interrupt-Driven Kernel", 1997).
//!
//! A rule states figures of points. It is no test with a p-value, so it also speaks of points that were run once. A rule whose
//! figures are missing says nothing, and the reason is listed.

#[cfg(test)]
mod tests;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::program::Side;
use wirecost_model::run::{HostRow, Run};
use wirecost_model::study::Value;

use crate::conclusions::{Answer, DISTURBED, effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::{Conclusions, Estimate};

/// The axis of the ways to receive, the first of which is the base.
pub const RECEIVE: &str = "receive";
/// The axis of offered loads.
pub const OFFERED: &str = "offered";
/// Its value at which requests are answered one at a time, and latency is compared.
pub const LIGHT: &str = "light";
/// Datagrams that the sender sent, and those that the receiver read.
pub const SENT: &str = "frames.generated";
pub const READ: &str = "frames.read";

/// What two means must differ by for it to matter.
const DIFFERENCE: f64 = 1.05;
/// The share of what is offered below which the receiver is overloaded.
const TAKEN: f64 = 0.95;
/// The share of the most that was delivered, below which it has fallen.
const KEPT: f64 = 0.90;
/// How much more must be offered than where most was delivered, for a fall to be that of an overload.
const MORE: f64 = 1.25;

/// A way to receive, with its points.
#[derive(Debug, Clone)]
pub struct Way<'a> {
    pub name: &'a str,
    /// The other axes of the study.
    pub common: Vec<Value>,
    pub light: Option<&'a MeasuredPoint>,
    /// In the order of the study.
    pub floods: Vec<&'a MeasuredPoint>,
}

/// In the order of the study.
#[must_use]
pub fn ways(measured: &Measurements) -> Vec<Way<'_>> {
    let mut ways: Vec<Way<'_>> = Vec::new();
    for point in &measured.points {
        let of = |axis: &str| {
            let value = point.point.axes.iter().find(|value| value.name == axis);
            value.map(|value| value.value.as_str())
        };
        let (Some(name), Some(offered)) = (of(RECEIVE), of(OFFERED)) else { continue };
        let common = measured.common(point, |axis| [RECEIVE, OFFERED].contains(&axis));
        let place = ways.iter().position(|way| way.name == name && way.common == common);
        let place = place.unwrap_or_else(|| {
            ways.push(Way { name, common, light: None, floods: Vec::new() });
            ways.len() - 1
        });
        match offered {
            LIGHT => ways[place].light = Some(point),
            _ => ways[place].floods.push(point),
        }
    }
    ways
}

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let ways = ways(measured);
    let mut conclusions = Conclusions::default();
    if ways.is_empty() {
        return conclusions;
    }
    let mut clusters: Vec<Vec<&Way<'_>>> = Vec::new();
    for way in &ways {
        match clusters.iter_mut().find(|cluster| cluster[0].common == way.common) {
            Some(cluster) => cluster.push(way),
            None => clusters.push(vec![way]),
        }
    }
    let latencies = clusters.iter().map(|cluster| latency(cluster));
    conclusions.add(("light-load-latency", "latency at light load"), latencies);
    conclusions.add(("receive-livelock", "receive livelock"), ways.iter().map(livelock));
    conclusions
}

/// Why a run says nothing of the way that it asked for. Of hosts that receive nothing, nothing is asked.
fn without_effect(run: &Run, receives: fn(&HostRow) -> bool) -> Option<String> {
    let receivers = || run.hosts.iter().filter(|host| receives(host));
    let is_of_one = |message: &str| {
        let of = |host: &HostRow| format!("busy_poll had no effect on {}:", host.name);
        receivers().any(|host| message.starts_with(&of(host)))
    };
    let mut warnings = run.warnings.iter();
    let warning = warnings.find(|of| of.code == "no-effect" && is_of_one(&of.message))?;
    Some(warning.message.clone())
}

fn disturbance(point: &MeasuredPoint) -> Option<&'static str> {
    let has =
        |code: &str| point.runs.iter().any(|run| run.warnings.iter().any(|of| of.code == code));
    DISTURBED.iter().find(|(code, _)| has(code)).map(|(_, what)| *what)
}

/// Latency of each way at light load, the lowest first.
fn latency(ways: &[&Way<'_>]) -> Answer {
    let mut found: Vec<(&str, Estimate, Estimate)> = Vec::new();
    let mut missing = Vec::new();
    for way in ways {
        let Some(point) = way.light else {
            missing.push(format!("{}: no run at light load", way.name));
            continue;
        };
        if let Some(what) = disturbance(point) {
            missing.push(format!("{}: {what}", way.name));
            continue;
        }
        let of = |metric| {
            mean(point, |run| match without_effect(run, |_| true) {
                Some(reason) => Err(reason),
                None => figure(run, metric),
            })
        };
        match (of("latency.p50"), of("latency.p99")) {
            (Ok(p50), Ok(p99)) => found.push((way.name, p50, p99)),
            (Err(reason), _) | (_, Err(reason)) => missing.push(format!("{}: {reason}", way.name)),
        }
    }
    let base = ways[0].name;
    let Some((_, of_base, _)) = found.iter().find(|(name, ..)| *name == base).copied() else {
        return Err(missing.join("; "));
    };
    if found.len() < 2 {
        missing.insert(0, "fewer than two ways were measured".to_owned());
        return Err(missing.join("; "));
    }
    found.sort_by(|(_, a, _), (_, b, _)| a.mean.total_cmp(&b.mean));
    let each: Vec<String> = found
        .iter()
        .map(|(name, p50, p99)| {
            let [p50, p99] = [p50, p99].map(|of| show(Unit::Microseconds, of.mean));
            format!("{name} {p50} (p99 {p99})")
        })
        .collect();
    let different = |better: bool| -> Vec<String> {
        let is = |of: Estimate| match better {
            true => of.mean < of_base.mean && differ(of, of_base),
            false => of.mean > of_base.mean && differ(of, of_base),
        };
        let names = found.iter().filter(|(_, p50, _)| is(*p50));
        names.map(|(name, ..)| (*name).to_owned()).collect()
    };
    let (faster, slower) = (different(true), different(false));
    let verdict = match (faster.as_slice(), slower.as_slice()) {
        ([], []) => format!("median latency is not distinguishable from that with {base}"),
        ([], slower) => format!(
            "{} {} the median latency above that with {base}, and nothing lowers it",
            words::list(slower),
            raises(slower)
        ),
        (faster, []) => format!(
            "{} {} the median latency below that with {base}",
            words::list(faster),
            lowers(faster)
        ),
        (faster, slower) => format!(
            "{} {} the median latency below that with {base}, {} {} it",
            words::list(faster),
            lowers(faster),
            words::list(slower),
            raises(slower)
        ),
    };
    let text = format!("at light load, {verdict}: {}", each.join(", "));
    let (_, best, _) = found[0];
    Ok(Some(Finding {
        effect: effect("latency.p50", Unit::Microseconds, best.mean, best.interval),
        evidence: missing,
        ..finding(&ways[0].common, &text)
    }))
}

fn lowers(names: &[String]) -> &'static str {
    if names.len() == 1 { "lowers" } else { "lower" }
}

fn raises(names: &[String]) -> &'static str {
    if names.len() == 1 { "raises" } else { "raise" }
}

/// Whether what is delivered falls when more is offered than the receiver takes.
fn livelock(way: &Way<'_>) -> Answer {
    let name = way.name;
    let explain = |reason: String| format!("{name}: {reason}");
    let runs = || way.floods.iter().flat_map(|point| &point.runs);
    if runs().any(|run| run.hosts.iter().any(|host| run.shares_cpus(host))) {
        return Err(explain(
            "the hosts share CPUs, so the sender takes time from the receiver".to_owned(),
        ));
    }
    let receives = |host: &HostRow| host.role == Side::Peer;
    if let Some(reason) = runs().find_map(|run| without_effect(run, receives)) {
        return Err(explain(reason));
    }
    if let Some(what) = way.floods.iter().find_map(|point| disturbance(point)) {
        return Err(explain(what.to_owned()));
    }
    let mut rates: Vec<(Estimate, Estimate)> = Vec::new();
    for point in &way.floods {
        let sent = mean(point, |run| figure(run, SENT)).map_err(explain)?;
        let read = mean(point, |run| figure(run, READ)).map_err(explain)?;
        rates.push((sent, read));
    }
    rates.sort_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let Some((most_sent, last)) = rates.last().copied().filter(|_| rates.len() > 1) else {
        return Err(explain("fewer than two offered rates were measured".to_owned()));
    };
    if last.mean >= TAKEN * most_sent.mean {
        let most = show(Unit::PerSecond, most_sent.mean);
        return Err(explain(format!(
            "the receiver took at least 95% of all offered rates, up to {most}: offer more"
        )));
    }
    let peak = rates.iter().copied().max_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
    let (sent_at_peak, peak) = peak.unwrap_or((most_sent, last));
    let share = 100.0 * last.mean / peak.mean;
    let [most, at, peak_rate, last_rate] =
        [most_sent, sent_at_peak, peak, last].map(|of| show(Unit::PerSecond, of.mean));
    let has_fallen = last.mean < KEPT * peak.mean && differ(last, peak);
    if has_fallen && most_sent.mean < MORE * sent_at_peak.mean {
        return Err(explain(format!(
            "less is delivered at {most} offered than at {at}, which differ too little: offer more"
        )));
    }
    let text = if has_fallen {
        format!(
            "with {name}, delivered datagrams fall from {peak_rate} ({at} offered) to {last_rate} ({most} offered), {share:.0}% of \
             the most: receive livelock"
        )
    } else {
        format!(
            "with {name}, {last_rate} are delivered when {most} are offered, {share:.0}% of the most: no receive livelock"
        )
    };
    let mut evidence: Vec<String> = rates
        .iter()
        .map(|(sent, read)| {
            let [sent, read] = [sent, read].map(|of| show(Unit::PerSecond, of.mean));
            format!("{sent} offered: {read} delivered")
        })
        .collect();
    evidence.insert(0, format!("most delivered: {peak_rate}"));
    Ok(Some(Finding {
        effect: effect("delivered at the highest offered rate", Unit::Percent, share, None),
        evidence,
        ..finding(&way.common, &text)
    }))
}

/// Whether two means differ by more than matters, and by more than their intervals.
fn differ(a: Estimate, b: Estimate) -> bool {
    let (less, more) = if a.mean <= b.mean { (a, b) } else { (b, a) };
    let apart = match (less.interval, more.interval) {
        (Some((_, high)), Some((low, _))) => high < low,
        _ => true,
    };
    apart && more.mean > DIFFERENCE * less.mean
}

fn finding(common: &[Value], text: &str) -> Finding {
    let fixed: Vec<&Value> = common.iter().collect();
    Finding {
        kind: String::new(),
        metric: None,
        axis: Some(RECEIVE.to_owned()),
        at: common.to_vec(),
        sentence: words::sentence(&fixed, text),
        effect: None,
        p_value: None,
        strength: None,
        evidence: Vec::new(),
        points: Vec::new(),
    }
}
