//! Groups whose clients share sockets of their peer (`server_sockets`). A strand of the peer reads from any client, or
//! accepts the connection of any, so it cannot follow the program of one of them: what it does must be the same for all.

use wirecost_model::profile::{Flowop, Group, Options, Quantity, Transaction, Until};
use wirecost_model::program::{GroupProgram, HostFlowop};
use wirecost_model::server_sockets::ServerSockets as Sockets;
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_profile::io_options::{self, IoOption as _};
use wirecost_profile::protocols;

use crate::program::ProgramError;

const ANSWERS: &str = "the peer answers each datagram by one: use one write, and then one read of as many datagrams \
                       (count, repeat, batch, gso)";
const ONE_SIZE: &str = "the peer sends answers to several datagrams to any client, so they have one size: use a fixed size \
                        for the read";
const WRITES_FIRST: &str = "the peer's strands follow their clients: over TCP, a transaction on an open connection begins with a write";
const WHOLE: &str = "over TCP, a transaction with a connect that is repeated begins with it and ends with its disconnect; \
                     or connect and disconnect in transactions of their own with iterations=1";

/// What the sockets are that the clients of a group of this host share; none where each has its own.
fn policy(group: &GroupProgram, reliable: bool) -> Option<Sockets> {
    let mut acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    acts.find_map(|act| policy_of(act, reliable))
}

fn policy_of(act: &HostFlowop, reliable: bool) -> Option<Sockets> {
    let protocol = act.options.protocol.as_deref().and_then(protocols::find)?;
    let fits = act.kind == "accept" && protocol.delivery().is_reliable() == reliable;
    let policy = ServerSockets.shared(&act.options);
    policy.filter(|_| fits && ServerSockets.fits(Some(protocol)))
}

/// The sockets on which strands of this host receive datagrams of any client of a group.
pub(crate) fn shared_sockets(group: &GroupProgram) -> Option<Sockets> {
    policy(group, false)
}

/// The listeners at which strands of this host accept connections of any client of a group.
pub fn shared_listeners(group: &GroupProgram) -> Option<Sockets> {
    policy(group, true)
}

/// Whether the clients of a group share sockets.
pub(crate) fn is_served(group: &Group) -> bool {
    group.transactions.iter().flat_map(|transaction| &transaction.flowops).any(is_shared)
}

fn is_shared(flowop: &Flowop) -> bool {
    let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
    ServerSockets.fits(protocol) && ServerSockets.shared(&flowop.options).is_some()
}

fn is_stream(flowop: &Flowop) -> bool {
    let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
    protocol.is_some_and(|protocol| protocol.delivery().is_reliable())
}

fn action(flowop: &Flowop) -> Action {
    flowops::find(&flowop.kind).map_or(Action::Nothing, flowops::Flowop::action)
}

fn opens(flowop: &&Flowop) -> bool {
    action(flowop).opens()
}

fn is_move(flowop: &&Flowop) -> bool {
    action(flowop).moves()
}

fn is_close(flowop: &&Flowop) -> bool {
    action(flowop) == Action::Close
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
    let stream = all().find(opens).is_some_and(is_stream);
    for transaction in &group.transactions {
        if !transaction.order.is_empty()
            && let Some(flowop) = transaction.flowops.first()
        {
            refused.push((flowop, "a transaction cannot have loops or mixes"));
        }
        if stream {
            refused.extend(stream_problem(transaction));
            continue;
        }
        let repeats = !matches!(transaction.until, Until::Iterations(0 | 1));
        if repeats && let Some(flowop) = transaction.flowops.iter().find(opens) {
            refused.push((
                flowop,
                "connections are opened once: connect in a transaction with iterations=1",
            ));
        }
        if transaction.flowops.iter().any(|flowop| opens(&flowop) || is_close(&flowop))
            && let Some(flowop) = transaction.flowops.iter().find(is_move)
        {
            refused.push((flowop, "connect and disconnect in transactions of their own"));
        }
        refused.extend(transfers(transaction));
    }
    let refused = refused.into_iter().map(|(flowop, problem)| ProgramError {
        at: flowop.at,
        message: format!("{}: {problem}", ServerSockets.name()),
    });
    refused.collect()
}

/// Why the strands of a peer cannot serve any client by a transaction over streams. They do not know whose
/// connection they have: what they do is the same for all, and each transaction begins with what a client does.
fn stream_problem(transaction: &Transaction) -> Option<(&Flowop, &'static str)> {
    let each = || transaction.flowops.iter().filter(|flowop| is_mirrored(flowop));
    let other = each().find(|flowop| {
        matches!(action(flowop), Action::SendFile | Action::ShutDown | Action::ReceiveEnd)
    });
    if let Some(other) = other {
        return Some((other, "over TCP, only write and read can move bytes"));
    }
    if let Some(flowop) = transaction.flowops.iter().find(|flowop| flowop.options.canfail) {
        return Some((flowop, "over TCP, no flowop may fail (canfail)"));
    }
    let is_drawn =
        |flowop: &&Flowop| !matches!(flowop.options.size, None | Some(Quantity::Fixed(_)));
    if let Some(flowop) = each().filter(is_move).find(is_drawn) {
        return Some((flowop, "over TCP, messages have a fixed size"));
    }
    let repeats = !matches!(transaction.until, Until::Iterations(0 | 1));
    let first = each().next()?;
    let ends = each().next_back().is_some_and(|last| is_close(&last));
    let (opening, closing) = (each().any(|f| opens(&f)), each().filter(is_close).count());
    let is_whole = opens(&first) && ends && closing == 1;
    if repeats && (opening || closing > 0) && !is_whole {
        return Some((each().find(|f| opens(f) || is_close(f))?, WHOLE));
    }
    if opening && !opens(&first) {
        return Some((first, WHOLE));
    }
    let leads = opens(&first) || is_close(&first) || matches!(action(first), Action::Send(_));
    (!leads).then_some((first, WRITES_FIRST))
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
    let [first, second] = moves.collect::<Vec<_>>()[..] else { return Some((receives, ANSWERS)) };
    let alternates = matches!(action(first), Action::Send(_));
    if !alternates
        || !is_on_one(first)
        || !is_on_one(second)
        || datagrams(first) != datagrams(second)
    {
        return Some((receives, ANSWERS));
    }
    let is_fixed = matches!(second.options.size, None | Some(Quantity::Fixed(_)));
    (datagrams(second) > 1 && !is_fixed).then_some((second, ONE_SIZE))
}

fn is_on_one(flowop: &Flowop) -> bool {
    flowop.options.conn.first == flowop.options.conn.last
}

/// How many datagrams a flowop moves.
fn datagrams(flowop: &Flowop) -> u64 {
    let Options { count, repeat, io, .. } = &flowop.options;
    let each = io_options::datagrams(io);
    (*count).max(1).saturating_mul((*repeat).max(1)).saturating_mul(each)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::profile::{Conns, IoValue, Part, Position};

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
    fn each_of_several_datagrams_has_an_answer() {
        let of = |kind, option: &'static str, number| {
            flowop(kind, |options| match option {
                "count" => options.count = number,
                "repeat" => options.repeat = number,
                option => options.io.set(option, IoValue::Number(number)),
            })
        };
        let both = |number| {
            let mut write = of("write", "batch", number);
            write.options.io.set("gso", IoValue::Number(4));
            write
        };
        for moving in [
            vec![of("write", "batch", 8), of("read", "batch", 8)],
            vec![of("write", "gso", 8), of("read", "count", 8)],
            vec![both(2), of("read", "repeat", 8)],
        ] {
            assert_eq!(problems(&group(vec![connect("shared")], moving)), Vec::<String>::new());
        }
        for moving in [
            vec![of("write", "batch", 8), of("read", "batch", 4)],
            vec![both(8), of("read", "batch", 8)],
            vec![of("write", "count", 2), read(), read()],
        ] {
            let problems = problems(&group(vec![connect("shared")], moving));
            assert_eq!(problems, [format!("server_sockets: {ANSWERS}")]);
        }
        let mut drawn = of("read", "count", 2);
        drawn.options.size = Some(Quantity::Random { min: 1, max: 9 });
        let problems =
            problems(&group(vec![connect("shared")], vec![of("write", "count", 2), drawn]));
        assert_eq!(problems, [format!("server_sockets: {ONE_SIZE}")]);
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

    fn tcp(options: impl FnOnce(&mut Options)) -> Flowop {
        let mut connect = connect("per-worker");
        connect.options.protocol = Some("tcp".to_owned());
        options(&mut connect.options);
        connect
    }

    #[test]
    fn any_strand_can_serve_connections_that_are_all_alike() {
        let close = || flowop("disconnect", |_| {});
        let think = || flowop("think", |_| {});
        for moving in
            [vec![write()], vec![think(), write(), read(), read()], vec![write(), write()]]
        {
            assert_eq!(problems(&group(vec![tcp(|_| {})], moving)), Vec::<String>::new());
        }
        // A connection per transaction, in which the peer may also begin.
        for moving in [vec![write(), read()], vec![read()], vec![]] {
            let mut each = vec![tcp(|_| {})];
            each.extend(moving);
            each.push(close());
            let mut group = group(Vec::new(), each);
            group.transactions.retain(|transaction| transaction.flowops.len() > 1);
            assert!(is_served(&group));
            assert_eq!(problems(&group), Vec::<String>::new());
        }
    }

    #[test]
    fn connections_whose_client_must_be_known_are_refused() {
        let refused = |opening, moving| problems(&group(opening, moving));
        let connect = || vec![tcp(|_| {})];
        assert_eq!(
            refused(connect(), vec![read(), write()]),
            [format!("server_sockets: {WRITES_FIRST}")]
        );
        let drawn = flowop("write", |o| o.size = Some(Quantity::Random { min: 1, max: 9 }));
        let fixed = flowop("write", |o| o.size = Some(Quantity::Fixed(9)));
        assert_eq!(refused(connect(), vec![fixed]), Vec::<String>::new());
        assert_eq!(refused(connect(), vec![drawn]).len(), 1);
        assert_eq!(refused(connect(), vec![flowop("write", |o| o.canfail = true)]).len(), 1);
        assert_eq!(refused(connect(), vec![flowop("sendfile", |_| {})]).len(), 1);
        // Connections that pile up, in two ways.
        let mut again = group(connect(), vec![write()]);
        again.transactions[0].until = Until::Iterations(2);
        assert_eq!(problems(&again), [format!("server_sockets: {WHOLE}")]);
        let piled = group(Vec::new(), vec![tcp(|_| {}), write()]);
        assert_eq!(problems(&piled), [format!("server_sockets: {WHOLE}")]);
        let both = vec![tcp(|_| {}), tcp(|_| {})];
        assert_eq!(
            refused(both, vec![write()])[0],
            "server_sockets: a strand has one connection: use one connect"
        );
    }
}
