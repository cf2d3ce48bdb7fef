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

use super::observed::{AskedFlow, EACH, MOVED, TOGETHER, ask, keep_hash, list};
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
    /// Flows for each CPU, in the order of trying. Each was asked about twice, by two sockets on different CPUs of this
    /// host.
    ///
    /// # Errors
    /// Why flows cannot be found, in one sentence.
    pub fn find(&self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, String> {
        // A thread of its own, as it changes the CPU on which it runs.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.find_here());
            thread.join().unwrap_or_else(|_| Err("the search for flows failed".to_owned()))
        })
    }

    fn find_here(&self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, String> {
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
            // What is not had a second time has been taken by somebody else.
            let again: Vec<SocketAddr> = first.keys().copied().collect();
            let second = self.cpus_of(&again, own.get(1).or(own.first()))?;
            found.add(&some, &first, &second)?;
        }
        found.result()
    }

    /// On which CPU each flow arrives; without those whose port another socket has.
    fn cpus_of(
        &self,
        sources: &[SocketAddr],
        from: Option<&u32>,
    ) -> Result<BTreeMap<SocketAddr, u32>, String> {
        let asked = || -> io::Result<Vec<(SocketAddr, AskedFlow)>> {
            if let Some(&cpu) = from {
                thread::pin(cpu)?;
            }
            let transport = transport(self.protocol)?;
            let (mut had, mut flows) = (Vec::new(), Vec::new());
            for &source in sources {
                match self.open(transport, source, flows.len() as u32) {
                    Ok(flow) => {
                        had.push(source);
                        flows.push(flow);
                    }
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                    Err(error) => return Err(error),
                }
            }
            let answered = ask(&mut flows);
            flows.iter().for_each(AskedFlow::abandon);
            answered.map(|()| had.into_iter().zip(flows).collect())
        };
        let asked = asked().map_err(|error| self.failed(&error))?;
        Ok(asked.into_iter().filter_map(|(source, flow)| Some((source, flow.cpu()?))).collect())
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

    fn failed(&self, error: &io::Error) -> String {
        let to = self.destination;
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => "a source is no address of this host".to_owned(),
            io::ErrorKind::TimedOut
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset => {
                format!("{to} does not say where packets arrive ({error})")
            }
            _ => format!("cannot ask {to} where packets arrive: {error}"),
        }
    }
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
    fn add(
        &mut self,
        sources: &[SocketAddr],
        first: &BTreeMap<SocketAddr, u32>,
        second: &BTreeMap<SocketAddr, u32>,
    ) -> Result<(), String> {
        for source in sources {
            let (Some(&cpu), Some(&again)) = (first.get(source), second.get(source)) else {
                continue;
            };
            if cpu != again {
                return Err(format!(
                    "packets from {source} arrived on CPU {cpu} of the receiver, and then on CPU {again}: {MOVED}"
                ));
            }
            self.asked += 1;
            self.flows.entry(cpu).or_default().push(*source);
        }
        Ok(())
    }

    fn is_enough(&self) -> bool {
        let has = |cpu: &u32| self.flows.get(cpu).is_some_and(|flows| flows.len() >= self.count);
        match self.cpus {
            [] => self.asked >= EACH * self.flows.len().max(1) && self.flows.keys().all(has),
            cpus => cpus.iter().all(has),
        }
    }

    fn result(mut self) -> Result<BTreeMap<u32, Vec<SocketAddr>>, String> {
        if self.flows.is_empty() {
            return Err("other sockets have all the ports".to_owned());
        }
        let seen: BTreeSet<u32> = self.flows.keys().copied().collect();
        let wanted =
            if self.cpus.is_empty() { seen.clone() } else { self.cpus.iter().copied().collect() };
        self.flows.retain(|cpu, _| wanted.contains(cpu));
        for cpu in &wanted {
            let flows = self.flows.entry(*cpu).or_default();
            if flows.len() < self.count {
                return Err(format!(
                    "of {} flows {} arrived on CPU {cpu} of the receiver; flows arrived on CPU {}",
                    self.asked,
                    flows.len(),
                    list(&seen)
                ));
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
            let refused = search(protocol, responder.address(), &sources).find().unwrap_err();
            let moved =
                format!("arrived on CPU {} of the receiver, and then on CPU {}", cpus[0], cpus[1]);
            assert!(refused.contains(&moved), "{protocol}: {refused}");
        }
    }

    #[test]
    fn who_does_not_know_the_code_is_not_answered() {
        let responder = Responder::start("tcp", "127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let sources = ["127.0.0.1".parse().unwrap()];
        let refused = search("tcp", responder.address(), &sources).find().unwrap_err();
        assert!(refused.contains("does not say where packets arrive"), "{refused}");
        let elsewhere = ["198.18.255.254".parse().unwrap()];
        let refused = search("tcp", responder.address(), &elsewhere).find().unwrap_err();
        assert_eq!(refused, "a source is no address of this host");
    }

    #[test]
    fn flows_are_told_in_the_order_of_trying_as_many_as_wanted() {
        let source = |port| SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let found = |cpus: &'static [u32], of: &[(u16, u32)]| {
            let mut found = Found { cpus, count: 2, flows: BTreeMap::new(), asked: 0 };
            let flows: BTreeMap<_, _> = of.iter().map(|&(port, cpu)| (source(port), cpu)).collect();
            let sources: Vec<_> = of.iter().map(|&(port, _)| source(port)).collect();
            found.add(&sources, &flows, &flows).unwrap();
            (found.is_enough(), found.result())
        };
        let of = [(9, 0), (3, 4), (4, 0), (5, 4), (6, 0)];
        let both =
            BTreeMap::from([(0, vec![source(9), source(4)]), (4, vec![source(3), source(5)])]);
        // Among so few a CPU can be missing.
        assert_eq!(found(&[], &of), (false, Ok(both.clone())));
        assert_eq!(found(&[4, 0], &of), (true, Ok(both.clone())));
        assert_eq!(found(&[4], &of), (true, Ok(BTreeMap::from([(4, both[&4].clone())]))));
        let (enough, refused) = found(&[1], &of);
        let expected = "of 5 flows 0 arrived on CPU 1 of the receiver; flows arrived on CPU 0, 4";
        assert_eq!((enough, refused.unwrap_err().as_str()), (false, expected));
        assert!(found(&[], &[]).1.unwrap_err().contains("other sockets"));
    }
}
