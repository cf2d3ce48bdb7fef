//! From a profile to the program of each host.
//!
//! The master runs what is written; a peer runs the mirror of every flowop that concerns it. A
//! flowop that names no `remotehost` follows the connection it acts on to the host where its strand
//! opened it; flowops without a connection (think, nop) run on every peer of their group.
//!
//! A strand may hold several connections of one id and uses the newest, as in uperf. Where they lead to
//! different hosts, or are of different protocols, each kind has an id of its own in the programs, so
//! that of every flowop it is known beforehand which host and protocol it uses.

use std::collections::BTreeMap;

use wirecost_model::profile::{Conns, Flowop, Group, Options, Position, Profile, Until};
use wirecost_model::program::{
    GroupProgram, HostFlowop, PhaseProgram, Program, Service, ServiceRef, Side,
};
use wirecost_profile::flowops;
use wirecost_profile::io_options::placement::Placement;
use wirecost_profile::io_options::{self, Effect, IoOption as _};
use wirecost_profile::open_connections::OpenConnections;
use wirecost_profile::protocols;

use crate::{departures, openers, outstanding, served};

/// Why a profile cannot be run, and where it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct ProgramError {
    pub at: Position,
    pub message: String,
}

impl ProgramError {
    fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// The hosts that a profile names, in the order of their first appearance. They are hosts 1, 2, ...
/// of the run; host 0 is the master.
pub fn remote_hosts(profile: &Profile) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let flowops = profile.groups.iter().flat_map(|g| &g.transactions).flat_map(|t| &t.flowops);
    for name in flowops.filter_map(|flowop| flowop.options.remotehost.as_ref()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The program of each host, the master's first.
///
/// # Errors
/// Every flowop that cannot be executed: no such connection, no host, too many hosts in one range.
pub fn compile(profile: &Profile) -> Result<Vec<Program>, Vec<ProgramError>> {
    let names = remote_hosts(profile);
    let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
    let mut compiler = Compiler { names, services: BTreeMap::new(), errors: Vec::new() };
    let mut programs: Vec<Vec<GroupProgram>> = vec![Vec::new(); compiler.names.len() + 1];
    for (number, group) in profile.groups.iter().enumerate() {
        let compiled = compiler.group(number as u32, group, phases);
        for (host, program) in programs.iter_mut().zip(compiled) {
            host.extend(program);
        }
    }
    if !compiler.errors.is_empty() {
        return Err(compiler.errors);
    }
    let mut services = compiler.services;
    Ok(programs
        .into_iter()
        .enumerate()
        .map(|(host, groups)| Program {
            side: if host == 0 { Side::Master } else { Side::Peer },
            groups,
            services: services.remove(&(host as u32)).unwrap_or_default(),
        })
        .collect())
}

/// Services by host, in the making.
type Services = BTreeMap<u32, Vec<Service>>;

struct Compiler {
    names: Vec<String>,
    services: Services,
    errors: Vec<ProgramError>,
}

impl Compiler {
    /// A group's program on each host; `None` on hosts that have no part in it.
    fn group(&mut self, number: u32, group: &Group, phases: usize) -> Vec<Option<GroupProgram>> {
        let hosts = self.names.len() + 1;
        let (group, errors) = openers::resolve(group);
        self.errors.extend(errors.into_iter().map(|(at, message)| ProgramError { at, message }));
        let group = &group;
        let served = served::is_served(group);
        if served {
            self.errors.extend(served::check(group));
        }
        self.errors.extend(outstanding::check(group, |flowop| by_datagrams(group, flowop)));
        self.errors.extend(departures::check(group, |flowop| by_datagrams(group, flowop)));
        let open = OpenConnections::of(group);
        let mut of_conn: BTreeMap<u32, u32> = BTreeMap::new();
        let mut programs: Vec<Vec<Option<PhaseProgram>>> = vec![Vec::new(); hosts];
        let members = self.members(group);
        for transaction in &group.transactions {
            let mut acts: Vec<Vec<HostFlowop>> = vec![Vec::new(); hosts];
            let repeats = !matches!(transaction.until, Until::Iterations(0 | 1));
            for (index, flowop) in transaction.flowops.iter().enumerate() {
                let parts = match self.targets(flowop, &mut of_conn, &members) {
                    Ok(parts) => parts,
                    Err(error) => {
                        self.errors.push(error);
                        continue;
                    }
                };
                let most_open = open.most(flowop, group.strands);
                let service = self.service((number, most_open), flowop, &parts, repeats);
                let act = |kind: &str, conns| HostFlowop {
                    flowop: index as u32,
                    kind: kind.to_owned(),
                    options: Options { conn: conns, ..flowop.options.clone() },
                    service,
                    most_open: if service.is_some() { most_open } else { 0 },
                    at: flowop.at,
                };
                let mut on_master = act(&flowop.kind, flowop.options.conn);
                // `rsize` is the peer's size; the master keeps to `size`.
                on_master.options.rsize = None;
                acts[0].push(on_master);
                if served && !served::is_mirrored(flowop) {
                    continue;
                }
                let mirror = flowops::find(&flowop.kind).map_or("nop", |f| f.mirror());
                for part in parts {
                    let mut mirrored = act(mirror, part.conns);
                    swap_streams(&mut mirrored.options);
                    // How long the master waits is its own affair.
                    mirrored.options.timeout = None;
                    acts[part.host as usize].push(mirrored);
                }
            }
            for (host, acts) in acts.into_iter().enumerate() {
                let takes_part = host == 0 || !acts.is_empty();
                programs[host].push(takes_part.then_some(PhaseProgram {
                    until: transaction.until,
                    arrivals: transaction.arrivals.clone(),
                    acts,
                    order: transaction.order.clone(),
                }));
            }
        }
        programs
            .into_iter()
            .enumerate()
            .map(|(host, mut of_phases)| {
                of_phases.resize(phases, None);
                (host == 0 || members.contains(&(host as u32))).then(|| GroupProgram {
                    group: number,
                    name: group.name.clone(),
                    strands: group.strands,
                    phases: of_phases,
                })
            })
            .collect()
    }

    /// Hosts that a group connects to or accepts from.
    fn members(&self, group: &Group) -> Vec<u32> {
        let mut members: Vec<u32> = group
            .transactions
            .iter()
            .flat_map(|t| &t.flowops)
            .filter_map(|flowop| self.host(flowop.options.remotehost.as_deref()?))
            .collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn host(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|known| known == name).map(|index| index as u32 + 1)
    }

    /// Which peers run a flowop's mirror, and with which of its connections.
    fn targets(
        &self,
        flowop: &Flowop,
        of_conn: &mut BTreeMap<u32, u32>,
        members: &[u32],
    ) -> Result<Vec<Part>, ProgramError> {
        let options = &flowop.options;
        let named = options.remotehost.as_deref().and_then(|name| self.host(name));
        match flowop.kind.as_str() {
            "connect" | "accept" => {
                let host = named.ok_or_else(|| {
                    ProgramError::new(
                        flowop.at,
                        format!("{} needs remotehost=, the host at the other end", flowop.kind),
                    )
                })?;
                for id in options.conn.first..=options.conn.last {
                    of_conn.insert(id, host);
                }
                Ok(vec![Part { host, conns: options.conn }])
            }
            "think" | "nop" => Ok(match named {
                Some(host) => vec![Part { host, conns: options.conn }],
                None => members.iter().map(|&host| Part { host, conns: options.conn }).collect(),
            }),
            _ => match named {
                Some(host) => Ok(vec![Part { host, conns: options.conn }]),
                None => follow(flowop, of_conn),
            },
        }
    }

    /// The service behind a connect or accept, made when it is first needed.
    fn service(
        &mut self,
        (group, most_open): (u32, u32),
        flowop: &Flowop,
        parts: &[Part],
        repeats: bool,
    ) -> Option<ServiceRef> {
        let remote = parts.first()?.host;
        let (host, client) = match flowop.kind.as_str() {
            "connect" => (remote, 0),
            "accept" => (0, remote),
            _ => return None,
        };
        let protocol = flowop.options.protocol.clone()?;
        let reliable = protocols::find(&protocol).is_some_and(|p| p.delivery().is_reliable());
        let services = self.services.entry(host).or_default();
        let wanted = flowop.options.conn.last - flowop.options.conn.first + 1;
        let wanted = wanted.saturating_mul(most_open);
        let mut options = flowop.options.clone();
        if host != 0 {
            swap_streams(&mut options);
        }
        let index = services.iter().position(|service| {
            service.group == group
                && service.protocol == protocol
                && service.port == options.port
                && same_listener(&service.options, &options)
        });
        let index = match index {
            // What another flowop opens of the same id is counted; another id is not.
            Some(index) => {
                let service = &mut services[index];
                if service.options.conn != options.conn || !reliable {
                    service.conns_per_strand = service.conns_per_strand.saturating_add(wanted);
                }
                service.reconnects |= repeats;
                if !service.clients.contains(&client) {
                    service.clients.push(client);
                }
                index
            }
            None => {
                services.push(Service {
                    group,
                    protocol,
                    port: options.port,
                    conns_per_strand: wanted,
                    reconnects: repeats,
                    clients: vec![client],
                    options,
                });
                services.len() - 1
            }
        };
        Some(ServiceRef { host, service: index as u32 })
    }
}

/// A peer's share of a flowop.
struct Part {
    host: u32,
    conns: Conns,
}

/// Whether one listening socket can serve both: what must be set before listening is the same.
fn same_listener(a: &Options, b: &Options) -> bool {
    let sockets = |options: &Options| {
        let set = io_options::set_in(&options.io);
        let sockets = set.filter(|(option, _)| {
            matches!(option.effect(), Effect::Socket(of) if of.iter().any(|socket| socket.inherited))
        });
        sockets.map(|(option, value)| (option.name(), value.clone())).collect::<Vec<_>>()
    };
    // Connections that are placed may come to other listeners.
    let placement = |options: &Options| Placement.get(options).cloned();
    sockets(a) == sockets(b) && a.sctp == b.sctp && placement(a) == placement(b)
}

/// Streams out of one end are into the other.
fn swap_streams(options: &mut Options) {
    std::mem::swap(&mut options.sctp.in_streams, &mut options.sctp.out_streams);
}

/// Whether a flowop moves datagrams.
fn by_datagrams(group: &Group, flowop: &Flowop) -> bool {
    let first = flowop.options.conn.first;
    let flowops = group.transactions.iter().flat_map(|transaction| &transaction.flowops);
    let opens = |other: &&Flowop| {
        matches!(other.kind.as_str(), "connect" | "accept") && other.options.conn.contains(first)
    };
    let protocol = flowops.filter(opens).find_map(|opens| opens.options.protocol.as_deref());
    let protocol = protocol.and_then(protocols::find);
    protocol.is_some_and(|protocol| !protocol.delivery().is_reliable())
}

/// Splits a flowop's connections by the host at their other end.
fn follow(flowop: &Flowop, of_conn: &BTreeMap<u32, u32>) -> Result<Vec<Part>, ProgramError> {
    let conns = flowop.options.conn;
    let mut parts: Vec<Part> = Vec::new();
    for id in conns.first..=conns.last {
        let host = *of_conn.get(&id).ok_or_else(|| {
            let which = if id == 0 { "connection".to_owned() } else { format!("connection {id}") };
            ProgramError::new(
                flowop.at,
                format!(
                    "{} acts on a {which} that no connect or accept before it opens{}",
                    flowop.kind,
                    if id == 0 && !of_conn.is_empty() { "; name one with conn=" } else { "" }
                ),
            )
        })?;
        match parts.last_mut() {
            Some(part) if part.host == host && part.conns.last + 1 == id => part.conns.last = id,
            _ => parts.push(Part { host, conns: Conns::one(id) }),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Size, Transaction};

    use super::*;

    fn flowop(kind: &str, edit: impl FnOnce(&mut Options)) -> Flowop {
        let mut options = Options::default();
        edit(&mut options);
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn connect(host: &str, conn: u32) -> Flowop {
        flowop("connect", |o| {
            o.remotehost = Some(host.to_owned());
            o.protocol = Some("tcp".to_owned());
            o.conn = Conns::one(conn);
        })
    }

    fn transfer(kind: &str, conn: u32) -> Flowop {
        flowop(kind, |o| {
            o.size = Some(Size::Fixed(300));
            o.conn = Conns::one(conn);
        })
    }

    fn profile(transactions: Vec<Vec<Flowop>>) -> Profile {
        let transactions = transactions
            .into_iter()
            .map(|flowops| Transaction {
                until: Until::Iterations(1),
                arrivals: None,
                flowops,
                order: Vec::new(),
                at: Position::default(),
            })
            .collect();
        Profile {
            name: String::new(),
            groups: vec![Group { strands: 2, transactions, ..Group::default() }],
        }
    }

    fn kinds(program: &Program, phase: usize) -> Vec<&str> {
        let acts = &program.groups[0].phases[phase].as_ref().unwrap().acts;
        acts.iter().map(|act| act.kind.as_str()).collect()
    }

    #[test]
    fn a_flowop_follows_the_connection_its_strand_opened() {
        let profile = profile(vec![
            vec![connect("h1", 0), connect("h2", 1)],
            vec![transfer("write", 0), transfer("read", 1), flowop("nop", |_| {})],
        ]);
        let programs = compile(&profile).unwrap();
        assert_eq!(programs.len(), 3);
        assert_eq!(kinds(&programs[0], 1), ["write", "read", "nop"]);
        assert_eq!(kinds(&programs[1], 0), ["accept"]);
        assert_eq!(kinds(&programs[1], 1), ["read", "nop"]);
        assert_eq!(kinds(&programs[2], 1), ["write", "nop"]);
        assert_eq!(programs[1].services.len(), 1);
        assert_eq!(programs[0].services.len(), 0);
    }

    #[test]
    fn a_range_over_two_hosts_is_split() {
        let both = flowop("write", |o| {
            o.size = Some(Size::Fixed(8));
            o.conn = Conns { first: 1, last: 4 };
        });
        let profile = profile(vec![
            vec![connect("a", 1), connect("a", 2), connect("b", 3), connect("b", 4)],
            vec![both],
        ]);
        let programs = compile(&profile).unwrap();
        let conns =
            |host: usize| programs[host].groups[0].phases[1].as_ref().unwrap().acts[0].options.conn;
        assert_eq!(conns(0), Conns { first: 1, last: 4 });
        assert_eq!(conns(1), Conns { first: 1, last: 2 });
        assert_eq!(conns(2), Conns { first: 3, last: 4 });
        assert_eq!(programs[1].services[0].conns_per_strand, 2);
    }

    #[test]
    fn a_connection_nobody_opened_is_an_error() {
        let errors = compile(&profile(vec![vec![connect("a", 1), transfer("read", 2)]]));
        assert!(errors.unwrap_err()[0].message.contains("connection 2"));
    }

    #[test]
    fn the_master_accepts_where_it_says_accept() {
        let mut accept = connect("a", 0);
        accept.kind = "accept".to_owned();
        let programs = compile(&profile(vec![vec![accept], vec![transfer("write", 0)]])).unwrap();
        assert_eq!(kinds(&programs[1], 0), ["connect"]);
        assert_eq!(programs[0].services.len(), 1);
        assert_eq!(programs[0].services[0].clients, [1]);
    }
}
