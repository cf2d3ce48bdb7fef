//! Groups whose clients share sockets of their peer (`server_sockets`). A strand of the peer reads from any client, so
//! it cannot follow the program of one of them: what it does must be the same for all.

use wirecost_model::profile::{Flowop, Group, Transaction, Until};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_profile::protocols;

use crate::outstanding::is_one;
use crate::program::ProgramError;

const ANSWERS: &str = "the peer answers each datagram by one: use one write and then one read, without count, \
                       repeat, batch or gso";

/// Whether the clients of a group share sockets.
pub(crate) fn is_served(group: &Group) -> bool {
    group.transactions.iter().flat_map(|transaction| &transaction.flowops).any(is_shared)
}

fn is_shared(flowop: &Flowop) -> bool {
    let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
    ServerSockets.fits(protocol) && ServerSockets.shared(&flowop.options).is_some()
}

fn action(flowop: &Flowop) -> Action {
    flowops::find(&flowop.kind).map_or(Action::Nothing, flowops::Flowop::action)
}

/// Whether the peer runs the mirror of a flowop of such a group: what only takes time is the client's alone.
pub(crate) fn is_mirrored(flowop: &Flowop) -> bool {
    !matches!(action(flowop), Action::Think | Action::Nothing)
}

/// Whether any strand of the peer can serve all clients of such a group.
///
/// # Errors
/// Each flowop that forbids it.
pub(crate) fn check(group: &Group) -> Vec<ProgramError> {
    let opens = |flowop: &&Flowop| matches!(action(flowop), Action::Connect | Action::Accept);
    let all = || group.transactions.iter().flat_map(|transaction| &transaction.flowops);
    let mut refused = Vec::new();
    let is_single = |flowop: &Flowop| {
        let conn = flowop.options.conn;
        conn.first == conn.last && flowop.options.count <= 1 && is_shared(flowop)
    };
    if all().filter(opens).count() > 1 || !all().filter(opens).all(is_single) {
        refused.extend(
            all()
                .find(opens)
                .map(|flowop| (flowop, "a strand has one connection: use one connect")),
        );
    }
    for transaction in &group.transactions {
        let reconnects = !matches!(transaction.until, Until::Iterations(0 | 1));
        if reconnects && let Some(flowop) = transaction.flowops.iter().find(opens) {
            refused.push((
                flowop,
                "connections are opened once: connect in a transaction with iterations=1",
            ));
        }
        let is_move = |flowop: &&Flowop| action(flowop).moves();
        let is_open_or_close =
            |flowop: &&Flowop| opens(flowop) || matches!(action(flowop), Action::Close);
        if transaction.flowops.iter().any(|flowop| is_open_or_close(&flowop))
            && let Some(flowop) = transaction.flowops.iter().find(is_move)
        {
            refused.push((flowop, "connect and disconnect in transactions of their own"));
        }
        if !transaction.order.is_empty()
            && let Some(flowop) = transaction.flowops.first()
        {
            refused.push((flowop, "a transaction cannot have loops or mixes"));
        }
        refused.extend(transfers(transaction));
    }
    let refused = refused.into_iter().map(|(flowop, problem)| ProgramError {
        at: flowop.at,
        message: format!("{}: {problem}", ServerSockets.name()),
    });
    refused.collect()
}

/// What a transaction moves in a way that is not possible.
fn transfers(transaction: &Transaction) -> Option<(&Flowop, &'static str)> {
    let each = || transaction.flowops.iter();
    let other = each().find(|flowop| {
        matches!(action(flowop), Action::SendFile | Action::ShutDown | Action::ReceiveEnd)
    });
    if let Some(other) = other {
        return Some((other, "only datagrams can be sent and received"));
    }
    let receives = each().find(|flowop| matches!(action(flowop), Action::Receive(_)))?;
    let moves = each().filter(|flowop| action(flowop).moves());
    let alternates = match moves.collect::<Vec<_>>()[..] {
        [first, second] => {
            matches!(action(first), Action::Send(_)) && is_one(first) && is_one(second)
        }
        _ => false,
    };
    (!alternates).then_some((receives, ANSWERS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::profile::{Conns, IoValue, Options, Part, Position};

    use super::*;

    fn flowop(kind: &str, edit: impl FnOnce(&mut Options)) -> Flowop {
        let mut options = Options::default();
        edit(&mut options);
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn connect(sockets: &str) -> Flowop {
        flowop("connect", |options| {
            options.protocol = Some("udp".to_owned());
            options.io.set("server_sockets", IoValue::Text(sockets.to_owned()));
        })
    }

    fn write() -> Flowop {
        flowop("write", |_| {})
    }

    fn read() -> Flowop {
        flowop("read", |_| {})
    }

    fn group(opening: Vec<Flowop>, moving: Vec<Flowop>) -> Group {
        let at = Position::default();
        let transaction =
            |until, flowops| Transaction { until, arrivals: None, flowops, order: Vec::new(), at };
        let mut group = Group { name: "g".to_owned(), strands: 3, ..Group::default() };
        group.transactions = vec![
            transaction(Until::Iterations(1), opening),
            transaction(Until::Duration(Duration::from_secs(1)), moving),
            transaction(Until::Iterations(1), vec![flowop("disconnect", |_| {})]),
        ];
        group
    }

    fn problems(group: &Group) -> Vec<String> {
        check(group).into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn any_strand_can_serve_a_sink_and_an_echo() {
        let think = || flowop("think", |_| {});
        let batched = || flowop("write", |options| options.io.set("batch", IoValue::Number(8)));
        for moving in [vec![write(), write()], vec![batched()], vec![think(), write(), read()]] {
            let group = group(vec![connect("shared")], moving);
            assert!(is_served(&group));
            assert_eq!(problems(&group), Vec::<String>::new());
        }
        assert!(!is_served(&group(vec![connect("per-connection")], vec![write()])));
        assert!(is_mirrored(&read()) && !is_mirrored(&think()));
    }

    #[test]
    fn what_needs_one_partner_is_refused() {
        let two = || flowop("read", |options| options.count = 2);
        for moving in [
            vec![read()],
            vec![read(), write()],
            vec![write(), two()],
            vec![write(), read(), read()],
            vec![write(), write(), read()],
        ] {
            let problems = problems(&group(vec![connect("shared")], moving));
            assert_eq!(problems, [format!("server_sockets: {ANSWERS}")]);
        }
        let both = vec![connect("shared"), connect("shared")];
        let many = flowop("connect", |options| {
            *options = connect("shared").options;
            options.conn = Conns { first: 1, last: 2 };
        });
        for opening in [both, vec![many]] {
            let problems = problems(&group(opening, vec![write()]));
            assert_eq!(problems, ["server_sockets: a strand has one connection: use one connect"]);
        }
        let mut again = group(vec![connect("shared")], vec![write()]);
        again.transactions[0].until = Until::Iterations(2);
        assert_eq!(problems(&again).len(), 1);
        let mut looped = group(vec![connect("shared")], vec![write()]);
        looped.transactions[1].order = vec![Part::Loop { times: 2, parts: vec![Part::Flowop(0)] }];
        assert_eq!(problems(&looped), ["server_sockets: a transaction cannot have loops or mixes"]);
        let mut once = group(vec![connect("shared"), write()], vec![write()]);
        assert_eq!(problems(&once).len(), 1);
        once.transactions[0].flowops.pop();
        once.transactions[2].flowops.insert(0, write());
        assert_eq!(problems(&once).len(), 1);
        let file = group(vec![connect("shared")], vec![flowop("sendfile", |_| {})]);
        assert_eq!(problems(&file).len(), 1);
    }
}
