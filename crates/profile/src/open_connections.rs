//! How many connections of one id a strand holds at once, at most.
//!
//! As in uperf a connect or accept adds a connection, and the flowops that follow use the newest one
//! until disconnect closes it. A transaction that opens more than it closes therefore holds more
//! with each pass.

use std::collections::BTreeMap;

use wirecost_model::plan::limits::OPEN_ENDED;
use wirecost_model::profile::{Flowop, Group, Part, Transaction, Until};

use crate::flowops::{self, Action};

/// The most connections that a strand holds of each id, by ranges of ids for which it is the same.
#[derive(Debug, Default)]
pub struct OpenConnections {
    /// By the first id of the range.
    ranges: BTreeMap<u32, Most>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Most {
    /// So many; 0 where none are opened.
    Known(u64),
    /// A phase with a duration opens more with each pass.
    OpenEnded,
}

/// Connections held after something, and meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    after: u64,
    most: u64,
}

/// Opens or closes connections; by index of the flowop.
type Changes = BTreeMap<u32, Change>;

#[derive(Debug, Clone, Copy)]
struct Change {
    opens: bool,
    count: u64,
}

impl OpenConnections {
    pub fn of(group: &Group) -> Self {
        let flowops = || {
            let phases = group.transactions.iter().enumerate();
            phases.flat_map(|(phase, t)| (0u32..).zip(&t.flowops).map(move |(i, f)| (phase, i, f)))
        };
        let changes = || flowops().filter_map(|(phase, i, f)| Some((phase, i, f, change(f)?)));
        let mut ranges: BTreeMap<u32, BTreeMap<usize, Changes>> = BTreeMap::new();
        for (_, _, flowop, _) in changes() {
            let conns = flowop.options.conn;
            ranges.entry(conns.first).or_default();
            ranges.entry(conns.last.saturating_add(1)).or_default();
        }
        for (phase, index, flowop, change) in changes() {
            let conns = flowop.options.conn;
            for (_, of_range) in ranges.range_mut(conns.first..=conns.last) {
                of_range.entry(phase).or_default().insert(index, change);
            }
        }
        let most = |of_range: BTreeMap<usize, Changes>| most(&group.transactions, &of_range);
        Self { ranges: ranges.into_iter().map(|(first, of)| (first, most(of))).collect() }
    }

    /// The most that one of `strands` strands holds of each of a flowop's connections.
    pub fn most(&self, flowop: &Flowop, strands: u32) -> u32 {
        let conns = flowop.options.conn;
        let before = self.ranges.range(..=conns.first).next_back();
        let within = self.ranges.range(conns.first..=conns.last);
        let most = before.into_iter().chain(within).map(|(_, most)| match *most {
            Most::Known(most) => most,
            Most::OpenEnded => (OPEN_ENDED / u64::from(strands.max(1))).max(1),
        });
        u32::try_from(most.max().unwrap_or(0).max(1)).unwrap_or(u32::MAX)
    }

    /// Whether the number of a flowop's connections only ends with its phase.
    pub fn is_open_ended(&self, flowop: &Flowop) -> bool {
        let conns = flowop.options.conn;
        let before = self.ranges.range(..=conns.first).next_back();
        let within = self.ranges.range(conns.first..=conns.last);
        before.into_iter().chain(within).any(|(_, most)| *most == Most::OpenEnded)
    }
}

fn change(flowop: &Flowop) -> Option<Change> {
    let action = flowops::find(&flowop.kind)?.action();
    let opens = action.opens();
    (opens || action == Action::Close).then_some(Change { opens, count: flowop.options.count })
}

fn most(transactions: &[Transaction], changes: &BTreeMap<usize, Changes>) -> Most {
    let (mut held, mut most) = (0, 0);
    for (phase, of_phase) in changes {
        let transaction = &transactions[*phase];
        let pass = |held| {
            if transaction.order.is_empty() {
                of_phase.values().fold(Held { after: held, most: held }, |so_far, change| {
                    so_far.then(|held| apply(*change, held))
                })
            } else {
                parts(&transaction.order, of_phase, held)
            }
        };
        let times = match transaction.until {
            Until::Iterations(times) => times,
            Until::Duration(_) => u64::MAX,
        };
        let of_phase = repeat(times, held, &pass);
        // More than this nobody can open one after the other.
        if times == u64::MAX && of_phase.most > u64::from(u32::MAX) {
            return Most::OpenEnded;
        }
        (held, most) = (of_phase.after, of_phase.most.max(most));
    }
    Most::Known(most)
}

impl Held {
    fn then(self, next: impl Fn(u64) -> Self) -> Self {
        let next = next(self.after);
        Self { most: self.most.max(next.most), ..next }
    }
}

fn apply(change: Change, held: u64) -> Held {
    let after = if change.opens {
        held.saturating_add(change.count)
    } else {
        held.saturating_sub(change.count)
    };
    Held { after, most: held.max(after) }
}

/// Of a mix the choice that leaves most.
fn parts(parts_of: &[Part], changes: &Changes, held: u64) -> Held {
    parts_of.iter().fold(Held { after: held, most: held }, |so_far, part| {
        so_far.then(|held| match part {
            Part::Flowop(flowop) => match changes.get(flowop) {
                Some(change) => apply(*change, held),
                None => Held { after: held, most: held },
            },
            Part::Loop { times, parts: inner } => {
                repeat(u64::from(*times), held, &|held| parts(inner, changes, held))
            }
            Part::Mix(choices) => {
                let each = choices.iter().map(|choice| parts(&choice.parts, changes, held));
                each.fold(Held { after: 0, most: held }, |a, b| Held {
                    after: a.after.max(b.after),
                    most: a.most.max(b.most),
                })
            }
        })
    })
}

/// So many passes. One pass adds or removes a number of connections, but leaves no fewer than some
/// number, as there are none to close below 0; so after the second pass the difference is always the
/// same until that number is reached.
fn repeat(times: u64, held: u64, pass: &impl Fn(u64) -> Held) -> Held {
    if times == 0 {
        return Held { after: held, most: held };
    }
    let first = pass(held);
    if times == 1 {
        return first;
    }
    let second = first.then(pass);
    if let Some(growth) = second.after.checked_sub(first.after) {
        let before_last = first.after.saturating_add(growth.saturating_mul(times - 2));
        return Held { after: before_last, most: second.most }.then(pass);
    }
    let shrinking = (first.after - second.after).saturating_mul(times - 2);
    let least = pass(0).after;
    Held { after: second.after.saturating_sub(shrinking).max(least), most: second.most }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::profile::{Choice, Conns, Options, Position};

    use super::*;

    fn flowop(kind: &str, conn: u32, count: u64) -> Flowop {
        let options = Options { conn: Conns::one(conn), count, ..Options::default() };
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn phase(until: Until, flowops: Vec<Flowop>, order: Vec<Part>) -> Transaction {
        Transaction { until, arrivals: None, flowops, order, at: Position::default() }
    }

    /// The most connections of id 0, none where that is open.
    fn most_of(transactions: Vec<Transaction>) -> Option<u32> {
        let group = Group { strands: 1, transactions, ..Group::default() };
        let open = OpenConnections::of(&group);
        let connect = flowop("connect", 0, 1);
        (!open.is_open_ended(&connect)).then(|| open.most(&connect, 1))
    }

    fn times(times: u64, kinds: &[&str]) -> Transaction {
        let flowops = kinds.iter().map(|kind| flowop(kind, 0, 1)).collect();
        phase(Until::Iterations(times), flowops, Vec::new())
    }

    fn lasting(kinds: &[&str]) -> Transaction {
        Transaction { until: Until::Duration(Duration::from_secs(1)), ..times(1, kinds) }
    }

    #[test]
    fn each_connect_adds_a_connection_until_it_is_closed() {
        assert_eq!(most_of(vec![times(1, &["connect"]), lasting(&["write"])]), Some(1));
        assert_eq!(most_of(vec![times(1000, &["connect"])]), Some(1000));
        assert_eq!(most_of(vec![times(10, &["connect", "connect", "disconnect"])]), Some(11));
        let opened_and_closed = ["connect", "write", "disconnect"];
        assert_eq!(most_of(vec![lasting(&opened_and_closed)]), Some(1));
        assert_eq!(most_of(vec![times(3, &["accept"]), lasting(&opened_and_closed)]), Some(4));
        let half = [times(10, &["connect"]), times(4, &["disconnect"]), times(2, &["connect"])];
        assert_eq!(most_of(half.to_vec()), Some(10));
        let all = [times(10, &["connect"]), times(40, &["disconnect"]), times(2, &["connect"])];
        assert_eq!(most_of(all.to_vec()), Some(10));
        assert_eq!(most_of(vec![lasting(&["disconnect", "connect"])]), Some(1));
    }

    #[test]
    fn a_phase_with_a_duration_opens_as_many_as_there_is_time_for() {
        assert_eq!(most_of(vec![lasting(&["connect"])]), None);
        assert_eq!(most_of(vec![times(5, &["connect"]), lasting(&["disconnect"])]), Some(5));
        let twice = phase(
            Until::Duration(Duration::from_secs(1)),
            vec![flowop("connect", 0, 2), flowop("disconnect", 0, 1)],
            Vec::new(),
        );
        assert_eq!(most_of(vec![twice]), None);
    }

    #[test]
    fn loops_open_more_and_mixes_the_most() {
        let (open, close) = (Part::Flowop(0), Part::Flowop(1));
        let flowops = vec![flowop("connect", 0, 1), flowop("disconnect", 0, 1)];
        let inner = Part::Loop { times: 3, parts: vec![open.clone(), open.clone(), close.clone()] };
        let order = vec![Part::Loop { times: 2, parts: vec![inner] }];
        assert_eq!(most_of(vec![phase(Until::Iterations(2), flowops.clone(), order)]), Some(13));
        let choice = |part: &Part| Choice { weight: 1, parts: vec![part.clone()] };
        let order = vec![Part::Mix(vec![choice(&open), choice(&close)])];
        assert_eq!(most_of(vec![phase(Until::Iterations(7), flowops, order)]), Some(7));
    }

    #[test]
    fn ids_are_counted_apart() {
        let range = |first, last| Conns { first, last };
        let mut connect = flowop("connect", 0, 1);
        connect.options.conn = range(1, 1_000_000);
        let mut again = connect.clone();
        again.options.conn = range(10, 20);
        let transactions = vec![phase(Until::Iterations(1), vec![connect, again], Vec::new())];
        let group = Group { strands: 1, transactions, ..Group::default() };
        let open = OpenConnections::of(&group);
        let mut asked = flowop("connect", 0, 1);
        for (conns, most) in
            [(range(1, 9), 1), (range(9, 10), 2), (range(15, 99), 2), (range(21, 30), 1)]
        {
            asked.options.conn = conns;
            assert_eq!(open.most(&asked, 1), most, "{conns}");
        }
    }

    #[test]
    fn strands_share_what_is_open_ended() {
        let group =
            Group { strands: 4, transactions: vec![lasting(&["connect"])], ..Group::default() };
        let open = OpenConnections::of(&group);
        assert_eq!(open.most(&flowop("connect", 0, 1), 4), OPEN_ENDED as u32 / 4);
        assert_eq!(open.most(&flowop("connect", 0, 1), u32::MAX), 1);
    }
}
