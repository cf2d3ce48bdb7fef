//! Datagrams that the kernel is given before they are due, each with the time at which the device is to send it
//! (`txtime`): which transactions can, and when each datagram leaves.

use wirecost_model::clock::{Nanos, SECOND, nanos};
use wirecost_model::profile::{Arrivals, Flowop, Group, Options, Transaction, Until};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::io_options::{IoOption as _, txtime::Txtime};

use crate::program::ProgramError;

const NO_DATAGRAMS: &str = "only datagrams have a departure time: use protocol=udp";
const NO_RATE: &str =
    "departure times follow from a rate: give the transaction a duration and a rate, or use --load";
const OTHER_FLOWOPS: &str = "a transaction must be one flowop, or one write and then one read, on one connection, without \
                             loops or other flowops";

/// The datagrams of a transaction are spread over the time until the next one is due, or over this.
pub(crate) const LONGEST_SPREAD: Nanos = SECOND;

/// How long before it is due a flowop hands over what it sends.
pub(crate) fn lead(options: &Options) -> Option<Nanos> {
    Txtime.lead(options).map(nanos)
}

/// Whether each flowop with departure times can have them.
///
/// # Errors
/// Each that cannot. `is_datagram` says whether a flowop moves datagrams.
pub(crate) fn check(group: &Group, is_datagram: impl Fn(&Flowop) -> bool) -> Vec<ProgramError> {
    let mut refused = Vec::new();
    for transaction in &group.transactions {
        let is_timed = |flowop: &&Flowop| lead(&flowop.options).is_some() && action(flowop).moves();
        let Some(flowop) = transaction.flowops.iter().find(is_timed) else { continue };
        let has_rate =
            transaction.arrivals.is_some() && matches!(transaction.until, Until::Duration(_));
        let problem = match () {
            () if !is_datagram(flowop) => NO_DATAGRAMS,
            () if !is_alone(transaction) => OTHER_FLOWOPS,
            () if !has_rate => NO_RATE,
            () => continue,
        };
        let message = format!("{}: {problem}", Txtime.name());
        refused.push(ProgramError { at: flowop.at, message });
    }
    refused
}

/// Whether what has departure times begins the transaction, and at most its answer follows.
fn is_alone(transaction: &Transaction) -> bool {
    let is_on_one = |flowop: &Flowop| flowop.options.conn.first == flowop.options.conn.last;
    let fits = match &transaction.flowops[..] {
        [only] => is_on_one(only),
        [request, answer] => {
            matches!(action(request), Action::Send(_))
                && matches!(action(answer), Action::Receive(_))
                && lead(&request.options).is_some()
                && is_on_one(request)
                && request.options.conn == answer.options.conn
        }
        _ => false,
    };
    fits && transaction.order.is_empty()
}

fn action(flowop: &Flowop) -> Action {
    flowops::find(&flowop.kind).map_or(Action::Nothing, flowops::Flowop::action)
}

/// How many messages of a strand may wait for their departure times at once, of transactions of so many messages.
pub(crate) fn most_waiting(arrivals: &Arrivals, lead: Nanos, messages: u64) -> u64 {
    let transactions = match arrivals {
        Arrivals::Even(rate) | Arrivals::Poisson(rate) => {
            (rate * lead as f64 / SECOND as f64).ceil() as u64
        }
        // How many come together is not looked for.
        Arrivals::Trace(_) => 0,
    };
    transactions.saturating_add(1).saturating_mul(messages)
}

/// When the messages of one call are to leave this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departures {
    /// When the first message of the transaction is due, and over which time all of them are spread.
    due: Nanos,
    spread: Nanos,
    /// Messages of the transaction, and those of them before this call.
    messages: u64,
    before: u64,
    /// None leaves before the present, nor before those of earlier calls.
    earliest: Nanos,
}

impl Departures {
    pub(crate) fn new(
        (due, spread): (Nanos, Nanos),
        (before, messages): (u64, u64),
        earliest: Nanos,
    ) -> Self {
        Self { due, spread, messages, before, earliest }
    }

    /// When a message of the call is due.
    pub(crate) fn due(&self, message: u64) -> Nanos {
        let number = u128::from(self.before) + u128::from(message);
        let after = u128::from(self.spread) * number / u128::from(self.messages.max(1));
        self.due.saturating_add(after as Nanos)
    }

    /// When a message of the call is to leave, by CLOCK_MONOTONIC.
    #[must_use]
    pub fn at(&self, message: usize) -> Nanos {
        self.due(message as u64).max(self.earliest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::clock::MILLISECOND;
    use wirecost_model::profile::{Conns, IoValue, Part, Position};

    use super::*;

    fn flowop(kind: &str, edit: impl FnOnce(&mut Options)) -> Flowop {
        let mut options = Options::default();
        edit(&mut options);
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn timed(kind: &str) -> Flowop {
        flowop(kind, |o| o.io.set("txtime", IoValue::Time(Duration::from_millis(1))))
    }

    fn plain(kind: &str) -> Flowop {
        flowop(kind, |_| {})
    }

    fn paced(flowops: Vec<Flowop>) -> Transaction {
        Transaction {
            until: Until::Duration(Duration::from_secs(1)),
            arrivals: Some(Arrivals::Even(10.0)),
            flowops,
            order: Vec::new(),
            at: Position::default(),
        }
    }

    fn problems(transaction: Transaction, is_datagram: bool) -> Vec<String> {
        let group = Group { transactions: vec![transaction], ..Group::default() };
        check(&group, |_| is_datagram).into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn what_has_no_departure_times_is_refused_with_one_message() {
        let none: [String; 0] = [];
        for fits in [
            vec![timed("write")],
            // Its mirror sends.
            vec![timed("read")],
            vec![timed("sendto"), plain("recvfrom")],
            vec![plain("write"), plain("write")],
        ] {
            assert_eq!(problems(paced(fits), true), none);
        }
        let said = |problem: &str| [format!("txtime: {problem}")];
        assert_eq!(problems(paced(vec![timed("write")]), false), said(NO_DATAGRAMS));
        let closed = Transaction { arrivals: None, ..paced(vec![timed("write")]) };
        assert_eq!(problems(closed, true), said(NO_RATE));
        let counted = Transaction { until: Until::Iterations(5), ..paced(vec![timed("write")]) };
        assert_eq!(problems(counted, true), said(NO_RATE));
        let both = flowop("write", |options| {
            *options = timed("write").options;
            options.conn = Conns { first: 1, last: 2 };
        });
        for other in [
            vec![plain("read"), timed("write")],
            vec![timed("write"), timed("write")],
            vec![plain("think"), timed("write")],
            vec![timed("write"), plain("read"), plain("read")],
            vec![both],
        ] {
            assert_eq!(problems(paced(other), true), said(OTHER_FLOWOPS));
        }
        let order = vec![Part::Loop { times: 2, parts: vec![Part::Flowop(0)] }];
        assert_eq!(
            problems(Transaction { order, ..paced(vec![timed("write")]) }, true),
            said(OTHER_FLOWOPS)
        );
    }

    #[test]
    fn messages_of_several_calls_are_spread_evenly_and_never_go_back() {
        let at = |before, earliest| {
            let departures = Departures::new((1000, 100), (before, 4), earliest);
            (0..2).map(|message| departures.at(message)).collect::<Vec<_>>()
        };
        assert_eq!((at(0, 0), at(2, 0)), (vec![1000, 1025], vec![1050, 1075]));
        // A strand that is late.
        assert_eq!((at(0, 1010), at(2, 2000)), (vec![1010, 1025], vec![2000, 2000]));
        let large = Departures::new((u64::MAX - 1, u64::MAX), (u64::MAX - 2, u64::MAX), 0);
        assert_eq!(large.at(1), u64::MAX);
    }

    #[test]
    fn as_many_wait_as_are_due_within_the_lead() {
        assert_eq!(most_waiting(&Arrivals::Even(1000.0), 10 * MILLISECOND, 1), 11);
        assert_eq!(most_waiting(&Arrivals::Poisson(1000.0), MILLISECOND / 2, 20), 40);
        assert_eq!(most_waiting(&Arrivals::Even(f64::MAX), SECOND, 2), u64::MAX);
    }
}
