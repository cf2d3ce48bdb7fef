//! Flows of chosen addresses and ports by the CPU of the receiver on which they arrive, where its device does not tell how
//! it spreads packets. The receiver reads the CPU of each flow from a socket (SO_INCOMING_CPU), and the sender asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use wirecost_linux::thread;
use wirecost_model::plan::Address;
use wirecost_program::hello::Hello;
use wirecost_program::socket_setup::SocketSetup;

use super::observed::{AskedFlow, EACH, TOGETHER, ask, keep_hash, list};
use super::probe::Probe;
use crate::broker::{Broker, ListenerKind, Route, SharedListener};
use crate::permissions::Partners;
use crate::transports::{self, Transport};

/// Flows that are asked about at most.
const MOST: usize = 1 << 14;

/// The receiver. It answers until it is dropped.
#[derive(Debug)]
pub struct Responder {
    _broker: Broker,
    address: SocketAddr,
}

impl Responder {
    /// Answers at an address of this host those who know the code, with one packet as long as each question.
    ///
    /// # Errors
    /// Those of binding and of starting a thread.
    pub fn start(protocol: &str, at: SocketAddr, code: u32) -> io::Result<Self> {
        let transport = transport(protocol)?;
        let (listener, bound) = transport.listen(&Address::Inet(at), &SocketSetup::default())?;
        let Address::Inet(address) = bound else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let kind = ListenerKind::Data { transport, setup: Arc::default() };
        let listeners = vec![SharedListener { listener, kind }];
        // Nobody takes connections from it: who connects asks, and closes.
        let route = Route::Mailbox(Arc::default());
        let broker = Broker::start(code, Partners::OfRun, listeners, route, 0)?;
        Ok(Self { _broker: broker, address })
    }

    /// Where it answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn transport(protocol: &str) -> io::Result<&'static dyn Transport> {
    transports::find(protocol).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Why flows were not found.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("{0} does not say where packets arrive ({1})")]
    Unanswered(SocketAddr, io::Error),
    #[error(
        "packets from {source_address} arrived on CPU {before} of the receiver, and then on CPU {after}: something other than \
        addresses and ports selects the CPU there. On veth and loopback the kernel draws the hash of each socket anew; RFS, \
        threaded NAPI and a moving IRQ affinity do the same"
    )]
    Moved { source_address: SocketAddr, before: u32, after: u32 },
    #[error(
        "{found} of {asked} flows arrived on CPU {cpu} of the receiver; flows arrived on CPU {seen}"
    )]
    TooFew { cpu: u32, found: usize, asked: usize, seen: String },
    #[error("{0} is no address of this host")]
    NotHere(IpAddr),
    #[error("all the ports are in use")]
    InUse,
    #[error("cannot ask {0} where packets arrive: {1}")]
    Failed(SocketAddr, io::Error),
}

/// Which flows to find.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// `udp` or `tcp`.
    pub protocol: &'a str,
    /// The responder's.
    pub code: u32,
    /// Where the responder answers.
    pub destination: SocketAddr,
    /// Addresses of this host. They are tried before ports.
    pub sources: &'a [IpAddr],
    pub ports: RangeInclusive<u16>,
    /// CPUs of the receiver; all that packets arrive on if there are none.
    pub cpus: &'a [u32],
    /// Flows for each CPU.
    pub count: usize,
}

impl Search<'_> {
    /// Flows for each CPU, in the order of trying. Each was asked about at least twice, by sockets on different CPUs of this
    /// host, and the first ones together at least 32 times again: if the CPU is random, each answer agrees by chance.
    ///
    /// # Errors
    /// Why flows cannot be found.
    pub fn find(&self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, SearchError> {
        // A thread of its own, as it changes the CPU on which it runs.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.find_here());
            thread.join().unwrap_or_else(|_| {
                Err(SearchError::Failed(self.destination, io::Error::other("a panic")))
            })
        })
    }

    fn find_here(&self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, SearchError> {
        let own = thread::allowed_cpus().unwrap_or_default();
        let mut found =
            Found { cpus: self.cpus, count: self.count, flows: BTreeMap::new(), asked: 0 };
        let sources = self
            .ports
            .clone()
            .flat_map(|port| self.sources.iter().map(move |&source| SocketAddr::new(source, port)));
        let mut sources = sources.take(MOST);
        while !found.is_enough() {
            let some: Vec<SocketAddr> = sources.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                break;
            }
            let first = self.cpus_of(&some, own.first())?;
            let again: Vec<SocketAddr> = first.keys().copied().collect();
            let times = if found.asked == 0 { EACH.div_ceil(again.len().max(1)) } else { 1 };
            let mut arrived = first.clone();
            for _ in 0..times {
                let second = self.cpus_of(&again, own.get(1).or(own.first()))?;
                // What is not had again has been taken by somebody else.
                arrived.retain(|source, _| second.contains_key(source));
                compare(&first, &second)?;
            }
            found.add(&some, &arrived);
        }
        found.result()
    }

    /// On which CPU each flow arrives; without those whose port another socket has.
    fn cpus_of(
        &self,
        sources: &[SocketAddr],
        from: Option<&u32>,
    ) -> Result<BTreeMap<SocketAddr, u32>, SearchError> {
        let failed = |error| SearchError::Failed(self.destination, error);
        if let Some(&cpu) = from {
            thread::pin(cpu).map_err(failed)?;
        }
        let transport = transport(self.protocol).map_err(failed)?;
        let (mut had, mut flows) = (Vec::new(), Vec::new());
        for &source in sources {
            match self.open(transport, source, flows.len() as u32) {
                Ok(flow) => {
                    had.push(source);
                    flows.push(flow);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    return Err(SearchError::NotHere(source.ip()));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let answered = ask(&mut flows);
        flows.iter().for_each(AskedFlow::abandon);
        answered.map_err(|error| self.unanswered(error))?;
        let flows = had.into_iter().zip(flows);
        Ok(flows.filter_map(|(source, flow)| Some((source, flow.cpu()?))).collect())
    }

    fn open(
        &self,
        transport: &'static dyn Transport,
        source: SocketAddr,
        ordinal: u32,
    ) -> io::Result<AskedFlow> {
        let (to, setup) = (Address::Inet(self.destination), SocketSetup::default());
        let fd = transport.connect_from(source, &to, &setup)?;
        keep_hash(&fd);
        let hello = Hello { run: self.code, group: 0, strand: 0, id: 0, ordinal, cookie: 0 };
        let reliable = transport.protocol().delivery().is_reliable();
        Ok(AskedFlow::new(fd, Probe::new(hello, reliable, None)))
    }

    fn unanswered(&self, error: io::Error) -> SearchError {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
        match error.kind() {
            TimedOut | ConnectionRefused | ConnectionReset => {
                SearchError::Unanswered(self.destination, error)
            }
            _ => SearchError::Failed(self.destination, error),
        }
    }
}

fn compare(
    first: &BTreeMap<SocketAddr, u32>,
    second: &BTreeMap<SocketAddr, u32>,
) -> Result<(), SearchError> {
    for (&source_address, &after) in second {
        match first.get(&source_address) {
            Some(&before) if before != after => {
                return Err(SearchError::Moved { source_address, before, after });
            }
            _ => {}
        }
    }
    Ok(())
}

/// What has been found so far.
struct Found<'a> {
    cpus: &'a [u32],
    count: usize,
    flows: BTreeMap<u32, Vec<SocketAddr>>,
    asked: usize,
}

impl Found<'_> {
    /// Adds flows in the order of trying.
    fn add(&mut self, sources: &[SocketAddr], arrived: &BTreeMap<SocketAddr, u32>) {
        for source in sources {
            if let Some(&cpu) = arrived.get(source) {
                self.asked += 1;
                self.flows.entry(cpu).or_default().push(*source);
            }
        }
    }

    fn is_enough(&self) -> bool {
        let has = |cpu: &u32| self.flows.get(cpu).is_some_and(|flows| flows.len() >= self.count);
        match self.cpus {
            [] => self.asked >= EACH * self.flows.len().max(1) && self.flows.keys().all(has),
            cpus => cpus.iter().all(has),
        }
    }

    fn result(mut self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, SearchError> {
        if self.flows.is_empty() {
            return Err(SearchError::InUse);
        }
        let seen: BTreeSet<u32> = self.flows.keys().copied().collect();
        let wanted =
            if self.cpus.is_empty() { seen.clone() } else { self.cpus.iter().copied().collect() };
        self.flows.retain(|cpu, _| wanted.contains(cpu));
        for cpu in &wanted {
            let flows = self.flows.entry(*cpu).or_default();
            if flows.len() < self.count {
                let (found, asked, seen) = (flows.len(), self.asked, list(&seen));
                return Err(SearchError::TooFew { cpu: *cpu, found, asked, seen });
            }
            flows.truncate(self.count);
        }
        Ok(self.flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search<'a>(protocol: &'a str, to: SocketAddr, sources: &'a [IpAddr]) -> Search<'a> {
        let (code, ports, cpus) = (7, 20_000..=20_999, &[][..]);
        Search { protocol, code, destination: to, sources, ports, cpus, count: 3 }
    }

    /// Loopback without RPS handles packets on the CPU that sends them, which no flow selects.
    #[test]
    fn a_cpu_that_the_flow_does_not_select_is_refused() {
        let cpus = thread::allowed_cpus().unwrap();
        let rps = std::fs::read_to_string("/sys/class/net/lo/queues/rx-0/rps_cpus");
        let steered = rps.is_ok_and(|rps| rps.trim().chars().any(|c| !matches!(c, '0' | ',')));
        if cpus.len() < 2 || steered {
            return;
        }
        for protocol in ["udp", "tcp"] {
            let at = "127.0.0.1:0".parse().unwrap();
            let responder = Responder::start(protocol, at, 7).unwrap();
            let sources = ["127.0.0.1".parse().unwrap()];
            let refused =
                search(protocol, responder.address(), &sources).find().unwrap_err().to_string();
            let moved =
                format!("arrived on CPU {} of the receiver, and then on CPU {}", cpus[0], cpus[1]);
            assert!(refused.contains(&moved), "{protocol}: {refused}");
        }
    }

    #[test]
    fn who_does_not_know_the_code_is_not_answered() {
        let responder = Responder::start("tcp", "127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let sources = ["127.0.0.1".parse().unwrap()];
        let refused = search("tcp", responder.address(), &sources).find().unwrap_err().to_string();
        assert!(refused.contains("does not say where packets arrive"), "{refused}");
        let elsewhere = ["198.18.255.254".parse().unwrap()];
        let refused =
            search("tcp", responder.address(), &elsewhere).find().unwrap_err().to_string();
        assert_eq!(refused, "198.18.255.254 is no address of this host");
    }

    #[test]
    fn flows_are_told_in_the_order_of_trying_as_many_as_wanted() {
        let source = |port| SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let found = |cpus: &'static [u32], of: &[(u16, u32)]| {
            let mut found = Found { cpus, count: 2, flows: BTreeMap::new(), asked: 0 };
            let flows: BTreeMap<_, _> = of.iter().map(|&(port, cpu)| (source(port), cpu)).collect();
            let sources: Vec<_> = of.iter().map(|&(port, _)| source(port)).collect();
            found.add(&sources, &flows);
            (found.is_enough(), found.result().map_err(|error| error.to_string()))
        };
        let of = [(9, 0), (3, 4), (4, 0), (5, 4), (6, 0)];
        let both =
            BTreeMap::from([(0, vec![source(9), source(4)]), (4, vec![source(3), source(5)])]);
        // Among so few a CPU can be missing.
        assert_eq!(found(&[], &of), (false, Ok(both.clone())));
        assert_eq!(found(&[4, 0], &of), (true, Ok(both.clone())));
        assert_eq!(found(&[4], &of), (true, Ok(BTreeMap::from([(4, both[&4].clone())]))));
        let (enough, refused) = found(&[1], &of);
        let expected = "0 of 5 flows arrived on CPU 1 of the receiver; flows arrived on CPU 0, 4";
        assert_eq!((enough, refused.unwrap_err().as_str()), (false, expected));
        assert!(found(&[], &[]).1.unwrap_err().contains("in use"));
    }
}
