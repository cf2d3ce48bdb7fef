//! Transactions that do not wait for one another (`outstanding`): which ones can, and how many at a time.

use wirecost_model::profile::{Flowop, Group, Options, Quantity};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::io_options::{self, IoOption as _, outstanding::Outstanding};

use crate::program::ProgramError;

const ONE_EACH: &str = "a transaction must be one write and then one read on one connection, without count, repeat, \
                        batch, gso, canfail, loops or other flowops";

/// Requests that may be without an answer at a time, as a flowop says.
pub(crate) fn most(options: &Options) -> Option<u64> {
    Outstanding.number(options)
}

/// Whether each transaction that does not wait can do without.
///
/// # Errors
/// Each flowop that must wait all the same. `is_datagram` says whether one moves datagrams: others have no such option.
pub(crate) fn check(group: &Group, is_datagram: impl Fn(&Flowop) -> bool) -> Vec<ProgramError> {
    let refused = group.transactions.iter().filter_map(|transaction| {
        let asks = |flowop: &&Flowop| most(&flowop.options).is_some() && is_datagram(flowop);
        let flowop = transaction.flowops.iter().find(asks)?;
        let fits = match &transaction.flowops[..] {
            [request, answer] => {
                matches!(action(request), Some(Action::Send(_)))
                    && matches!(action(answer), Some(Action::Receive(_)))
                    && request.options.conn == answer.options.conn
                    && [request, answer].into_iter().all(|of| is_one(of) && !of.options.canfail)
                    && transaction.order.is_empty()
            }
            _ => false,
        };
        let problem = match (fits, too_many(&transaction.flowops)) {
            (false, _) => ONE_EACH.to_owned(),
            (true, Some(problem)) => problem,
            (true, None) => return None,
        };
        let message = format!("{}: {problem}", Outstanding.name());
        Some(ProgramError { at: flowop.at, message })
    });
    refused.collect()
}

/// Why there are too few numbers: a datagram of fewer than 8 bytes has as many of its number as fit, and two ways
/// from one number to another are told apart only within half of all numbers.
fn too_many(flowops: &[Flowop]) -> Option<String> {
    let sizes = flowops.iter().filter_map(|flowop| flowop.options.size.as_ref().map(smallest));
    let bytes = sizes.min().filter(|bytes| (1..8).contains(bytes))?;
    let allowed = (1u64 << (8 * bytes - 1)) - 1;
    let asked = flowops.iter().filter_map(|flowop| most(&flowop.options)).max()?;
    (asked > allowed).then(|| {
        format!("datagrams of {bytes} bytes can be numbered for up to {allowed} requests: use longer ones or fewer")
    })
}

fn smallest(size: &Quantity) -> u64 {
    match size {
        Quantity::Fixed(bytes) => *bytes,
        Quantity::Random { min, .. }
        | Quantity::Lognormal { min, .. }
        | Quantity::Exponential { min, .. } => *min,
        Quantity::Table(values) => values.iter().map(|of| of.value).min().unwrap_or(0),
        Quantity::Imix { .. } | Quantity::ByStrand(_) => 8,
    }
}

fn action(flowop: &Flowop) -> Option<Action> {
    flowops::find(&flowop.kind).map(flowops::Flowop::action)
}

/// Whether a flowop moves one datagram.
pub(crate) fn is_one(flowop: &Flowop) -> bool {
    let Options { conn, count, repeat, io, .. } = &flowop.options;
    conn.first == conn.last && *count <= 1 && *repeat <= 1 && io_options::datagrams(io) == 1
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Conns, IoValue, Part, Position, Transaction, Until};

    use super::*;

    fn flowop(kind: &str, edit: impl FnOnce(&mut Options)) -> Flowop {
        let mut options = Options::default();
        edit(&mut options);
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn ahead(options: &mut Options) {
        options.io.set("outstanding", IoValue::Number(8));
    }

    fn problems(flowops: Vec<Flowop>, order: Vec<Part>) -> Vec<String> {
        let until = Until::Iterations(1);
        let transaction =
            Transaction { until, arrivals: None, flowops, order, at: Position::default() };
        let group = Group { transactions: vec![transaction], ..Group::default() };
        check(&group, |flowop| flowop.kind != "connect").into_iter().map(|e| e.message).collect()
    }

    #[test]
    fn one_request_and_one_answer_need_not_wait() {
        let write = || flowop("write", ahead);
        let read = || flowop("read", |_| {});
        let refused = [format!("outstanding: {ONE_EACH}")];
        assert_eq!(problems(vec![write(), read()], vec![]), [] as [&str; 0]);
        assert_eq!(problems(vec![flowop("write", |_| {})], vec![]), [] as [&str; 0]);
        // What has no such option ignores it.
        assert_eq!(problems(vec![flowop("connect", ahead)], vec![]), [] as [&str; 0]);
        let batched = flowop("read", |options| options.io.set("batch", IoValue::Number(4)));
        let elsewhere = flowop("read", |options| options.conn = Conns::one(2));
        for flowops in [
            vec![write()],
            vec![read(), write()],
            vec![write(), read(), read()],
            vec![write(), flowop("read", |options| options.count = 2)],
            vec![write(), batched],
            vec![write(), elsewhere],
            vec![write(), flowop("read", |options| options.canfail = true)],
        ] {
            assert_eq!(problems(flowops, vec![]), refused);
        }
        let sized = |bytes| flowop("read", |options| options.size = Some(Quantity::Fixed(bytes)));
        let many = flowop("write", |options| options.io.set("outstanding", IoValue::Number(128)));
        assert_eq!(problems(vec![many.clone(), sized(2)], vec![]), [] as [&str; 0]);
        let few = "outstanding: datagrams of 1 bytes can be numbered for up to 127 requests: use longer ones or fewer";
        assert_eq!(problems(vec![many, sized(1)], vec![]), [few]);
        let twice = Part::Loop { times: 2, parts: vec![Part::Flowop(0), Part::Flowop(1)] };
        assert_eq!(problems(vec![write(), read()], vec![twice]), refused);
    }
}
