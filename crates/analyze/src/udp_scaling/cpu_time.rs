//! How the server's CPUs are divided between softirqs, which receive, and its workers, which read and answer.

use wirecost_model::document::Finding;
use wirecost_model::metric::Unit;
use wirecost_model::observe::CpuSection;
use wirecost_model::run::{Cpu, Run};

use super::server::{section, server};
use super::{Answer, Group, SERVER, along, disturbed, effect, finding, mean, place, with};
use crate::measured::MeasuredPoint;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().map(|servers| of_servers(servers)).collect()
}

/// Percent of the time of the CPUs.
struct Shares {
    softirq: f64,
    tasks: f64,
    idle: f64,
    /// The server's own process; none where nobody tells.
    own: Option<f64>,
    /// The part of `softirq` that ksoftirqd ran.
    ksoftirqd: Option<f64>,
}

fn cpu_section(run: &Run) -> Option<&CpuSection> {
    section(run, "cpu", |of| of.cpu.as_ref()).ok()
}

fn shares(point: &MeasuredPoint) -> Result<Shares, String> {
    let of = |what: fn(&Cpu) -> f64| {
        mean(point, move |run: &Run| {
            let cpu = server(run)?.cpu.ok_or("CPU time was not measured")?;
            Ok(what(cpu))
        })
    };
    let traced = |what: &dyn Fn(&Run) -> Option<f64>| {
        mean(point, |run| what(run).ok_or_else(String::new)).ok().map(|share| share.mean)
    };
    Ok(Shares {
        softirq: of(|cpu| cpu.softirq)?.mean,
        tasks: of(|cpu| cpu.usr + cpu.sys)?.mean,
        idle: of(|cpu| cpu.idle)?.mean,
        own: traced(&|run| {
            let (cpu, agent) =
                (cpu_section(run)?, format!("agent of {}", server(run).ok()?.host.name));
            let own = cpu.processes.iter().filter(|process| process.role.as_ref() == Some(&agent));
            let seconds: Vec<f64> = own.map(|process| process.seconds).collect();
            let known = !seconds.is_empty() && cpu.total.wall > 0.0;
            known.then(|| 100.0 * seconds.iter().sum::<f64>() / cpu.total.wall)
        }),
        ksoftirqd: traced(&|run| {
            let total = &cpu_section(run)?.total;
            (total.wall > 0.0).then_some(100.0 * total.in_ksoftirqd? / total.wall)
        }),
    })
}

fn of_servers(servers: &[&Group<'_>]) -> Answer {
    let mut all = Vec::new();
    let mut reason = None;
    for group in servers {
        let Some((number, point)) = group.last() else { continue };
        match shares(point) {
            Ok(shares) => all.push((*group, number, point, shares)),
            Err(why) => reason = Some(why),
        }
    }
    let Some((group, number, point, shares)) = all.first() else {
        return Err(reason.unwrap_or_else(|| "not run yet".to_owned()));
    };
    let whose = point.runs.first().and_then(|run| server(run).ok());
    let whose = whose.map_or_else(|| "the server".to_owned(), |end| end.whose_cpus("the server"));
    let own = match shares.own {
        Some(own) => format!(", of which the server's process {own:.0}%"),
        None => String::new(),
    };
    let ksoftirqd = match shares.ksoftirqd {
        Some(part) if part >= 0.5 => format!(" ({part:.0}% in ksoftirqd)"),
        _ => String::new(),
    };
    let text = format!(
        "softirqs take {:.0}% of the CPU time of {whose}{ksoftirqd} and tasks {:.0}%{own}; {:.0}% is idle",
        shares.softirq, shares.tasks, shares.idle
    );
    let mut evidence: Vec<String> = all
        .iter()
        .skip(1)
        .map(|(group, number, _, shares)| {
            format!(
                "{}: softirqs {:.0}%, tasks {:.0}%",
                place(group, *number),
                shares.softirq,
                shares.tasks
            )
        })
        .collect();
    evidence.extend(disturbed(point));
    Ok(Some(Finding {
        metric: Some("cpu.softirq".to_owned()),
        effect: effect("softirqs", Unit::Percent, shares.softirq, None),
        evidence,
        ..finding(group, Some(*number), with(group, *number, &text))
    }))
}
