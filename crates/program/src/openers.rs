//! Which host a flowop's connection leads to, and by which protocol, where a strand opens connections
//! of the same id in different ways.
//!
//! As in uperf a flowop uses the newest connection of its id. Here the host and the protocol of each
//! flowop are known before the run, so connections of one id that differ in them get ids of their
//! own: the first kind keeps the id, and others get numbers above all that the group uses.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::profile::{Conns, Flowop, Group, Position, Transaction, Until};
use wirecost_profile::flowops::{self, Action};

/// How a connection is opened, as far as other flowops must know it.
type Opener = (Option<String>, Option<String>);

/// Open connections of one id, the newest last: which of the openers each is from. The lowest may stand
/// for any number of connections that are not known.
type Stack = Vec<Option<usize>>;

/// Why a flowop's connection cannot be known beforehand.
pub(crate) type Ambiguous = (Position, String);

/// Gives each kind of connection an id of its own.
pub(crate) fn resolve(group: &Group) -> (Group, Vec<Ambiguous>) {
    let openers = openers(group);
    let mut resolved = group.clone();
    if openers.is_empty() {
        return (resolved, Vec::new());
    }
    let mut errors = Vec::new();
    let mut numbers = Numbers::new(group, &openers);
    let mut stacks: BTreeMap<u32, Stack> = openers.keys().map(|&id| (id, Stack::new())).collect();
    for transaction in &mut resolved.transactions {
        if transaction.until == Until::Iterations(0) {
            continue;
        }
        forget_what_changes(transaction, &openers, &mut stacks);
        for flowop in &mut transaction.flowops {
            if !is_on_connection(flowop) {
                continue;
            }
            let conns = flowop.options.conn;
            let Some((&id, _)) = openers.range(conns.first..=conns.last).next() else { continue };
            if conns.first != conns.last {
                errors.push((flowop.at, several_in_range(flowop, id)));
                continue;
            }
            let Some(stack) = stacks.get_mut(&id) else { continue };
            match used(flowop, &openers[&id], stack) {
                Some(opener) => flowop.options.conn = Conns::one(numbers.of(id, opener)),
                None => errors.push((flowop.at, unknown(flowop, id))),
            }
        }
    }
    (resolved, errors)
}

/// The openers of each id that has more than one, in the order of the profile.
fn openers(group: &Group) -> BTreeMap<u32, Vec<Opener>> {
    let flowops = || group.transactions.iter().flat_map(|transaction| &transaction.flowops);
    let opening: Vec<(Conns, Opener)> =
        flowops().filter(|flowop| opens(flowop)).map(|f| (f.options.conn, opener(f))).collect();
    let different: BTreeSet<&Opener> = opening.iter().map(|(_, opener)| opener).collect();
    let mut of_id: BTreeMap<u32, Vec<Opener>> = BTreeMap::new();
    if different.len() < 2 {
        return of_id;
    }
    for (conns, opener) in &opening {
        for id in conns.first..=conns.last {
            let known = of_id.entry(id).or_default();
            if !known.contains(opener) {
                known.push(opener.clone());
            }
        }
    }
    of_id.retain(|_, openers| openers.len() > 1);
    of_id
}

fn opener(flowop: &Flowop) -> Opener {
    (flowop.options.remotehost.clone(), flowop.options.protocol.clone())
}

fn action(flowop: &Flowop) -> Option<Action> {
    flowops::find(&flowop.kind).map(|flowop| flowop.action())
}

fn opens(flowop: &Flowop) -> bool {
    action(flowop).is_some_and(Action::opens)
}

fn is_on_connection(flowop: &Flowop) -> bool {
    action(flowop).is_some_and(Action::is_on_connection)
}

/// The opener of the connection that a flowop uses; `None` where it is not known. What the flowop does
/// to the stack is done.
fn used(flowop: &Flowop, openers: &[Opener], stack: &mut Stack) -> Option<usize> {
    let opener = match action(flowop) {
        Some(action) if action.opens() => {
            let of_flowop = opener(flowop);
            let opener = openers.iter().position(|opener| *opener == of_flowop)?;
            // More than these nobody closes one by one.
            let more = flowop.options.count.min(1024) as usize;
            stack.extend(std::iter::repeat_n(Some(opener), more));
            return Some(opener);
        }
        // Where none is open the flowop fails, whichever it was to use.
        _ => stack.last().copied().unwrap_or(Some(0)),
    };
    if action(flowop) == Some(Action::Close) {
        for _ in 0..flowop.options.count {
            match stack.last() {
                Some(&of_top) if of_top == opener => {
                    if of_top.is_none() {
                        break;
                    }
                    stack.pop();
                }
                Some(_) => return None,
                None => break,
            }
        }
    }
    opener
}

/// What a transaction that is executed more than once leaves other than it was, it may find so as well.
fn forget_what_changes(
    transaction: &Transaction,
    openers: &BTreeMap<u32, Vec<Opener>>,
    stacks: &mut BTreeMap<u32, Stack>,
) {
    if transaction.until == Until::Iterations(1) && transaction.order.is_empty() {
        return;
    }
    for (id, stack) in stacks {
        let mut after = stack.clone();
        let mut changes = false;
        for flowop in &transaction.flowops {
            if flowop.options.conn == Conns::one(*id) && is_on_connection(flowop) {
                changes |= opens(flowop) || action(flowop) == Some(Action::Close);
                let _ = used(flowop, &openers[id], &mut after);
            }
        }
        // Of loops and mixes only what they do not touch is known.
        let unknown = if transaction.order.is_empty() { after != *stack } else { changes };
        if unknown {
            *stack = vec![None];
        }
    }
}

fn name(id: u32) -> String {
    if id == 0 { "a connection without conn=".to_owned() } else { format!("connection {id}") }
}

fn unknown(flowop: &Flowop, id: u32) -> String {
    format!(
        "{} acts on {}, and before it runs it is not known to which host or by which protocol the \
         newest of them leads; give those that differ a conn= of their own",
        flowop.kind,
        name(id)
    )
}

fn several_in_range(flowop: &Flowop, id: u32) -> String {
    format!(
        "{} acts on a range of connections, of which {} is opened to several hosts or by several \
         protocols; give those that differ a conn= of their own",
        flowop.kind,
        name(id)
    )
}

/// Ids in the programs.
struct Numbers {
    of: BTreeMap<(u32, usize), u32>,
}

impl Numbers {
    fn new(group: &Group, openers: &BTreeMap<u32, Vec<Opener>>) -> Self {
        let flowops = group.transactions.iter().flat_map(|transaction| &transaction.flowops);
        let highest = flowops.map(|flowop| flowop.options.conn.last).max().unwrap_or(0);
        let mut next = highest;
        let mut of = BTreeMap::new();
        for (&id, openers) in openers {
            of.insert((id, 0), id);
            for opener in 1..openers.len() {
                next = next.saturating_add(1);
                of.insert((id, opener), next);
            }
        }
        Self { of }
    }

    fn of(&mut self, id: u32, opener: usize) -> u32 {
        self.of.get(&(id, opener)).copied().unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::Options;

    use super::*;

    fn flowop(kind: &str, host: &str, protocol: &str) -> Flowop {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let options =
            Options { remotehost: text(host), protocol: text(protocol), ..Options::default() };
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn connect(host: &str, protocol: &str) -> Flowop {
        flowop("connect", host, protocol)
    }

    fn uses(kind: &str) -> Flowop {
        flowop(kind, "", "")
    }

    fn times(times: u64, flowops: Vec<Flowop>) -> Transaction {
        Transaction {
            until: Until::Iterations(times),
            arrivals: None,
            flowops,
            order: Vec::new(),
            at: Position::default(),
        }
    }

    fn resolved(transactions: Vec<Transaction>) -> Result<Vec<u32>, Vec<Ambiguous>> {
        let group = Group { strands: 1, transactions, ..Group::default() };
        let (group, errors) = resolve(&group);
        let flowops = group.transactions.into_iter().flat_map(|t| t.flowops);
        let ids = flowops.map(|flowop| flowop.options.conn.first).collect();
        if errors.is_empty() { Ok(ids) } else { Err(errors) }
    }

    #[test]
    fn what_leads_to_one_host_keeps_its_id() {
        let open = connect("a", "tcp");
        let all = vec![times(9, vec![open.clone(), open]), times(18, vec![uses("disconnect")])];
        assert_eq!(resolved(all), Ok(vec![0, 0, 0]));
    }

    #[test]
    fn a_flowop_uses_the_newest_connection_wherever_that_leads() {
        let all = vec![
            times(1, vec![connect("a", "tcp"), connect("b", "tcp")]),
            times(50, vec![uses("write")]),
            times(1, vec![uses("disconnect"), uses("write"), uses("disconnect")]),
        ];
        assert_eq!(resolved(all), Ok(vec![0, 1, 1, 1, 0, 0]));
    }

    #[test]
    fn protocols_are_told_apart() {
        let all = vec![
            times(10, vec![connect("a", "tcp"), uses("disconnect")]),
            times(10, vec![connect("a", "udp"), uses("write"), uses("disconnect")]),
            times(10, vec![connect("a", "tcp")]),
            times(1, vec![uses("disconnect")]),
        ];
        assert_eq!(resolved(all), Ok(vec![0, 0, 1, 1, 1, 0, 0]));
    }

    #[test]
    fn what_is_not_known_beforehand_is_refused() {
        let open = vec![connect("a", "tcp"), connect("b", "tcp")];
        let all = vec![times(5, open.clone()), times(10, vec![uses("disconnect")])];
        let errors = resolved(all).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].1.contains("a connection without conn="), "{}", errors[0].1);
        // The newest one is known all the same.
        assert_eq!(
            resolved(vec![times(5, open), times(7, vec![uses("write")])]),
            Ok(vec![0, 1, 1])
        );
    }
}
