//! Sockets that several clients send to, and strands that answer any of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use proptest::prelude::*;
use wirecost_model::profile::IoValue;
use wirecost_model::server_sockets::ServerSockets as Policy;
use wirecost_profile::io_options::server_sockets::ServerSockets;

use super::datagrams::check_accounted;
use super::*;
use crate::clients::Client;
use crate::net::{FromClient, Owner};
use crate::step::{Open, Phase};

/// What the simulated network knows of such sockets. Each strand of the peer has one of them: the same one as others.
#[derive(Debug, Default)]
pub(crate) struct SharedSockets {
    /// The end at which all that is sent to a socket arrives, by host, group and number of the socket.
    queues: BTreeMap<(u32, u32, u32), usize>,
    /// By their ends.
    clients: BTreeMap<usize, Client>,
    /// By the strand's end.
    used: BTreeMap<usize, Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// What one call has received.
    batch: VecDeque<(Vec<u8>, usize)>,
    taken: Vec<u8>,
    last: usize,
    asked: usize,
}

impl SharedSockets {
    /// Where what is sent to a new end arrives.
    pub(super) fn queue(
        &mut self,
        open: &Open,
        owner: Owner,
        (here, there): (usize, usize),
        workers: u32,
    ) -> usize {
        let socket = match ServerSockets.shared(&open.setup.options) {
            Some(Policy::Shared) => 0,
            Some(Policy::PerWorker) => owner.strand % workers,
            _ => return there,
        };
        self.clients.insert(here, Client::new(owner.strand));
        self.used.insert(there, Used::default());
        *self.queues.entry((open.service.host, owner.group, socket)).or_insert(there)
    }

    fn address(end: usize) -> SocketAddr {
        SocketAddr::from(([198, 18, 0, 1], end as u16))
    }

    pub(super) fn end(address: SocketAddr) -> usize {
        address.port().into()
    }

    pub(super) fn has_received(&self, socket: usize) -> bool {
        self.used.get(&socket).is_some_and(|used| !used.batch.is_empty())
    }

    pub(super) fn received(
        &mut self,
        socket: usize,
        datagrams: impl Iterator<Item = (Vec<u8>, usize)>,
    ) {
        self.used.entry(socket).or_default().batch.extend(datagrams);
    }

    pub(super) fn take(&mut self, socket: usize, at: Nanos) -> io::Result<FromClient<'_>> {
        let used = self.used.entry(socket).or_default();
        let (datagram, sender) = used.batch.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        (used.taken, used.last) = (datagram, sender);
        let from = Self::address(sender);
        Ok(FromClient { datagram: &used.taken, client: &self.clients[&sender], from, at })
    }

    pub(super) fn will_answer(&mut self, socket: usize) {
        let used = self.used.entry(socket).or_default();
        used.asked = used.last;
    }

    /// Who is answered.
    pub(super) fn asked(&self, socket: usize) -> Option<usize> {
        self.used.get(&socket).map(|used| used.asked)
    }

    pub(super) fn last_heard(&self) -> Nanos {
        self.clients.values().map(Client::last_heard).max().unwrap_or(0)
    }

    pub(super) fn give_up(
        &self,
        tag: u64,
        phase: &Phase,
        limits: Option<&Vec<u64>>,
        counters: &WorkerCounters,
    ) {
        let least = match phase.until {
            Until::Iterations(iterations) => iterations,
            Until::Duration(_) => 0,
        };
        let each: u64 = phase.datagrams.iter().map(|(receives, _)| receives).sum();
        for client in self.clients.values() {
            let limit = limits.and_then(|limits| limits.get(client.strand as usize));
            let sent = limit.copied().unwrap_or_default().max(least) * each;
            client.give_up((tag, phase.answers()), sent, counters);
        }
    }
}

/// How datagrams are sent and received.
#[derive(Debug, Clone, Copy)]
struct Form {
    count: u64,
    batch: u64,
    gso: u64,
}

impl Form {
    fn datagrams(self) -> u64 {
        self.count * self.batch * self.gso
    }

    fn flowop(self, kind: &str, bytes: u64) -> Flowop {
        let mut flowop = datagrams::udp(kind, bytes, self.count, 1);
        flowop.options.verify = true;
        flowop.options.io.set("batch", IoValue::Number(self.batch));
        flowop.options.io.set("gso", IoValue::Number(self.gso));
        flowop
    }
}

/// Two ways to move the same number of datagrams.
fn forms() -> impl Strategy<Value = (Form, Form)> {
    let number = || prop::sample::select(vec![1u64, 2, 4]);
    (number(), number(), number(), 0usize..6).prop_map(|(count, batch, gso, order)| {
        let mut others = [count, batch, gso];
        others.rotate_left(order % 3);
        if order > 2 {
            others.swap(0, 1);
        }
        let [of_count, of_batch, of_gso] = others;
        (Form { count, batch, gso }, Form { count: of_count, batch: of_batch, gso: of_gso })
    })
}

fn served(sockets: &str, strands: u32, transaction: &Transaction) -> Profile {
    let mut open = connect("udp", "a", 1);
    open.options.io.set("server_sockets", IoValue::Text(sockets.to_owned()));
    // In the second one what is late of the first one may arrive.
    profile(strands, vec![times(1, vec![open]), transaction.clone(), transaction.clone()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(125, 500)))]

    /// Whatever is lost, late, overtaken or comes twice: each datagram that comes is answered once, to the client that has
    /// sent it, and each transaction of a client has as many operations as it has datagrams.
    #[test]
    fn any_strand_answers_any_client(
        (writes, reads) in forms(),
        shared: bool,
        workers in 1u32..4,
        strands in 1u32..5,
        timed: bool,
        patient: bool,
        seed: u64,
        loss in prop_oneof![Just(0u64), 0u64..300],
        late in prop_oneof![Just(0u64), 0u64..100],
        twice in prop_oneof![Just(0u64), 0u64..100],
        queue in prop_oneof![4usize..50, Just(10_000)],
    ) {
        let mut flowops = vec![writes.flowop("write", 64), reads.flowop("read", 40)];
        if !patient {
            // What is late then comes after its time.
            flowops[1].options.timeout = Some(Duration::from_millis(1));
        }
        let phase = if timed { lasting(20 * MILLISECOND, flowops) } else { times(15, flowops) };
        let weather = Weather { seed, loss, late, twice, queue, workers, ..Weather::default() };
        let sockets = if shared { "shared" } else { "per-worker" };
        let profile = served(sockets, strands, &phase);
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        let each = writes.datagrams();
        for of_phase in &outcome.phases[1..] {
            let (master, peer) = (&of_phase[0].counters, &of_phase[1].counters);
            let [write, read] = [&master.flowops[0], &master.flowops[1]];
            // At the end the last ones are given up.
            let given_up = write.done - (read.done + read.failed);
            prop_assert!(given_up <= each * u64::from(strands));
            prop_assert_eq!(write.done % each, 0);
            if !timed {
                prop_assert_eq!(given_up, 0);
                prop_assert_eq!(write.done, 15 * each * u64::from(strands));
            }
            let came = peer.datagrams.received - peer.datagrams.duplicated;
            let [read, answered] = [&peer.flowops[0], &peer.flowops[1]];
            // What is forgotten or of the phase before is no request of this one.
            prop_assert!(read.done <= came);
            prop_assert_eq!((answered.done, answered.failed), (read.done, 0));
            prop_assert_eq!(peer.datagrams.sent, answered.done);
            if loss + late + twice == 0 && queue == 10_000 && patient {
                // Answers overtake one another, and end their transaction all the same.
                prop_assert_eq!(master.flowops[1].failed, 0);
                prop_assert_eq!(master.transactions, write.done / each);
                prop_assert_eq!(master.datagrams.received, master.datagrams.sent);
                prop_assert_eq!(sum(of_phase, |c| c.datagrams.lost), 0);
            }
        }
    }
}

/// Several requests that one call has brought are answered by one call, where the answers allow it.
#[test]
fn what_comes_together_is_answered_together() {
    let alone = Form { count: 8, batch: 1, gso: 1 };
    let together = Form { count: 1, batch: 8, gso: 1 };
    let answers_of = |writes: Form, reads: Form| {
        let flowops = vec![writes.flowop("write", 64), reads.flowop("read", 64)];
        let profile = served("shared", 1, &times(200, flowops));
        let outcome = run(&profile, &Settings::default());
        check_accounted(&outcome);
        let peer = &outcome.phases[1][1];
        assert_eq!(peer.counters.flowops[1].done, 1600);
        peer.counters.transactions
    };
    assert_eq!(answers_of(together, alone), 1600);
    // Of a batch the network takes one at least, so there are at most as many rounds as datagrams.
    let rounds = answers_of(together, together);
    assert!((200..1000).contains(&rounds), "{rounds}");
    // Requests that are read one by one are answered together too.
    let rounds = answers_of(alone, together);
    assert!((200..1600).contains(&rounds), "{rounds}");
}

/// A lost answer is one lost datagram, and the others of its transaction end their operations.
#[test]
fn a_lost_answer_of_several_is_one_operation_that_fails() {
    let form = Form { count: 1, batch: 4, gso: 1 };
    let flowops = vec![form.flowop("write", 64), form.flowop("read", 64)];
    let weather = Weather { loss: 50, ..Weather::default() };
    let profile = served("shared", 2, &times(100, flowops));
    let outcome = run(&profile, &Settings { weather, ..Settings::default() });
    check_accounted(&outcome);
    let phase = &outcome.phases[1];
    let lost = sum(phase, |c| c.datagrams.lost) as u64;
    assert!((30..130).contains(&lost), "{lost}");
    let read = phase[0].counters.flowops[1];
    assert_eq!((read.failed, read.timeouts, read.done), (lost, lost, 800 - lost));
    assert!(phase[0].counters.transactions >= 200 - lost);
}

/// Where answers may fail, one client that cannot be reached costs the others nothing: neither those whose answers are in the
/// same call nor those behind it.
#[test]
fn a_client_that_cannot_be_reached_costs_others_no_answers() {
    for (batch, gso) in [(8, 1), (2, 4), (1, 8)] {
        let form = Form { count: 1, batch, gso };
        let mut flowops = vec![form.flowop("write", 64), form.flowop("read", 64)];
        flowops[1].options.canfail = true;
        let profile = served("shared", 4, &times(50, flowops));
        // The clients that connected first have the ends 0, 2, 4 and 6.
        let weather = Weather { refused_end: Some(2), queue: 10_000, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        for phase in &outcome.phases[1..] {
            let (read, answered) = (phase[0].counters.flowops[1], phase[1].counters.flowops[1]);
            assert_eq!((read.done, read.failed, read.timeouts), (1200, 400, 400), "{form:?}");
            assert_eq!((answered.done, answered.failed), (1200, 400), "{form:?}");
            assert_eq!(sum(phase, |c| c.datagrams.lost), 0, "{form:?}");
        }
    }
}
