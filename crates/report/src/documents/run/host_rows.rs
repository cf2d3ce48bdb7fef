//! Rows of hosts for a summary: hosts that say the same have one row, and there are few rows.

use std::ops::Range;

use wirecost_model::document::Cell;
use wirecost_model::measure::Bytes;
use wirecost_model::run::{HostRow, Run};
use wirecost_model::units::cpus;

use super::cost::host_row;

/// Columns of [`host_row`] with CPU time and cost.
const FIGURES: Range<usize> = 3..10;
/// As many hosts as can be one row.
const ALIKE: usize = 3;
/// Rows at most.
const ROWS: usize = 8;
/// Percent of the time of a host's CPUs; with more it took no part.
const IDLE: f64 = 99.0;

/// Rows of all hosts, in the order of the first host of each.
pub(super) fn folded(run: &Run) -> Vec<Vec<Cell>> {
    let rows: Vec<Vec<Cell>> = run.hosts.iter().map(|host| host_row(run, host)).collect();
    let alike = |a: usize, b: usize| {
        let (first, second) = (&run.hosts[a], &run.hosts[b]);
        match (is_idle(run, first), is_idle(run, second)) {
            (true, true) => true,
            (false, false) => first.role == second.role && rows[a][FIGURES] == rows[b][FIGURES],
            _ => false,
        }
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for host in 0..rows.len() {
        match groups.iter_mut().find(|group| alike(group[0], host)) {
            Some(group) => group.push(host),
            None => groups.push(vec![host]),
        }
    }
    let mut groups: Vec<Vec<usize>> = groups
        .into_iter()
        .flat_map(|group| match group.len() < ALIKE {
            true => group.into_iter().map(|host| vec![host]).collect(),
            false => vec![group],
        })
        .collect();
    groups.sort();
    if groups.len() > ROWS {
        let rest = groups.split_off(ROWS - 1);
        groups.push(rest.concat());
    }
    let several = groups.len() > 1;
    let row = |group: &Vec<usize>| match group.as_slice() {
        [host] => rows[*host].clone(),
        hosts => {
            let same = hosts.iter().all(|host| alike(hosts[0], *host));
            let figures = same.then(|| rows[hosts[0]][FIGURES].to_vec());
            let hosts: Vec<&HostRow> = hosts.iter().map(|host| &run.hosts[*host]).collect();
            row_of(run, &hosts, figures, several)
        }
    };
    groups.iter().map(row).collect()
}

fn is_idle(run: &Run, host: &HostRow) -> bool {
    let own = host.cpu.as_ref().filter(|_| !run.shares_cpus(host));
    own.is_some_and(|cpu| cpu.idle >= IDLE)
}

/// Of several hosts. Without `figures` they differ.
fn row_of(
    run: &Run,
    hosts: &[&HostRow],
    figures: Option<Vec<Cell>>,
    beside_others: bool,
) -> Vec<Cell> {
    let idle = hosts.iter().all(|host| is_idle(run, host));
    let number = hosts.len();
    let name = format!(
        "{number}{} hosts{}",
        if beside_others { " other" } else { "" },
        if idle { ", idle" } else { "" }
    );
    let role = hosts[0].role;
    let same_role = hosts.iter().all(|host| host.role == role);
    let mut theirs: Vec<u32> = hosts.iter().flat_map(|host| host.cpus.iter().copied()).collect();
    theirs.sort_unstable();
    theirs.dedup();
    let sum = |of: fn(&Bytes) -> u64| {
        let bytes: Option<Vec<&Bytes>> = hosts.iter().map(|host| host.bytes.as_ref()).collect();
        Cell::or_dash(bytes, |bytes| Cell::bytes(bytes.into_iter().map(of).sum()))
    };
    let mut row = vec![
        Cell::text(name),
        if same_role { Cell::text(role.to_string()) } else { Cell::empty() },
        Cell::text(cpus(&theirs)),
    ];
    // Of idle hosts the name says all.
    let figures = figures.filter(|_| !idle);
    row.extend(figures.unwrap_or_else(|| FIGURES.map(|_| Cell::empty()).collect()));
    row.extend([sum(Bytes::sent), sum(Bytes::received)]);
    row
}
