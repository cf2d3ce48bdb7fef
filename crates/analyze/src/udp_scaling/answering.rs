//! What answering costs: a server that answers against one that only receives, at the same pairs.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;

use super::server::server;
use super::{
    Answer, Group, READ, TRAFFIC, along, cycles_per_datagram, effect, figure, finding, mean, pairs,
};
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// A part of what its device received that a server did not read, from which it was overloaded.
const OVERLOADED: f64 = 0.05;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, TRAFFIC).iter().map(|kinds| of_kinds(kinds)).collect()
}

fn answers(point: &MeasuredPoint) -> bool {
    mean(point, |run| figure(run, "answers.generated")).is_ok_and(|rate| rate.mean > 0.0)
}

fn of_kinds(kinds: &[&Group<'_>]) -> Answer {
    let does = |answering: bool| {
        kinds.iter().copied().find(|group| {
            let mut points = group.points.iter().filter(|(_, point)| !point.runs.is_empty());
            points.next().is_some_and(|(_, point)| answers(point) == answering)
        })
    };
    let (Some(echo), Some(sink)) = (does(true), does(false)) else {
        return Err("there are no points with and without answers".to_owned());
    };
    let mut rows = Vec::new();
    let mut reason = "they have no number of pairs in common".to_owned();
    for (number, point) in &echo.points {
        let Some(other) = sink.at(*number) else { continue };
        match ratio(point, other) {
            Ok(rates) => rows.push((*number, *point, other, rates)),
            Err(why) => reason = why,
        }
    }
    let Some(&(number, echoing, receiving, (answered, received))) = rows.last() else {
        return Err(reason);
    };
    let rate = |value: f64| show(Unit::PerSecond, value);
    let ratio = answered / received;
    let mut text = format!(
        "the server reads {} when it answers each datagram and {} when it only receives ({:.2}x)",
        rate(answered),
        rate(received),
        ratio
    );
    let own_cpus = |point: &MeasuredPoint| {
        point.runs.iter().all(|run| server(run).is_ok_and(|server| server.own_cpus))
    };
    let of_server = own_cpus(echoing) && own_cpus(receiving);
    let cost = |point| mean(point, |run| cycles_per_datagram(run, of_server));
    match (cost(echoing), cost(receiving)) {
        (Ok(with), Ok(without)) => {
            let cycles = |value: f64| show(Unit::Count, value.round());
            let (more, word) = match with.mean - without.mean {
                more if more < 0.0 => (-more, "less"),
                more => (more, "more"),
            };
            let whose = if of_server { "" } else { " of all hosts" };
            text.push_str(&format!(
                "; a datagram that it answers takes {} busy cycles{whose}, {} {word} than one that it only reads",
                cycles(with.mean),
                cycles(more)
            ));
        }
        (Err(reason), _) | (_, Err(reason)) => {
            text.push_str(&format!("; cycles per datagram are unknown ({reason})"));
        }
    }
    let unread = mean(receiving, |run| {
        let received = figure(run, "frames.received")?;
        if received > 0.0 { Ok(1.0 - figure(run, READ)? / received) } else { Err(String::new()) }
    });
    if let Ok(unread) = unread
        && unread.mean > OVERLOADED
    {
        text.push_str(&format!(
            "; without answers, {:.0}% of what its device received was not read by its \
             workers",
            100.0 * unread.mean
        ));
    }
    let each: Vec<String> = rows
        .iter()
        .map(|(number, _, _, (answered, received))| {
            format!(
                "{number}: {} and {} ({:.2}x)",
                rate(*answered),
                rate(*received),
                answered / received
            )
        })
        .collect();
    let others: Vec<String> =
        echo.others(TRAFFIC).iter().map(|value| value.value.clone()).collect();
    let at: Vec<String> = others.into_iter().chain([pairs(number)]).collect();
    let mut found = finding(echo, Some(number), format!("With {}, {text}.", words::list(&at)));
    found.at.retain(|value| value.name != TRAFFIC);
    Ok(Some(Finding {
        metric: Some(READ.to_owned()),
        axis: Some(TRAFFIC.to_owned()),
        effect: effect("ratio", Unit::Ratio, ratio, None),
        evidence: vec![format!("read with and without answers, by pairs: {}", each.join(", "))],
        ..found
    }))
}

/// What is read with and without answers.
fn ratio(echo: &MeasuredPoint, sink: &MeasuredPoint) -> Result<(f64, f64), String> {
    let rate = |point| mean(point, |run| figure(run, READ));
    let (echo, sink) = (rate(echo)?.mean, rate(sink)?.mean);
    if sink > 0.0 {
        Ok((echo, sink))
    } else {
        Err("the server that only receives read nothing".to_owned())
    }
}
