//! Instructions that an operation of a strand takes, from its turn down to the system calls.

use std::collections::BTreeMap;

use wirecost_load::load::Lone;
use wirecost_model::clock::SECOND;
use wirecost_model::plan::{Endpoints, Plan};
use wirecost_profile::builtins;
use wirecost_profile::language::Language;
use wirecost_program::program;
use wirecost_program::strand::Turn;

use crate::callgrind::{Costs, costs};

/// Writes of a stream.
const WRITE_BYTES: &str = "1k";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    Write,
    Read,
    Rr,
}

/// Each with what it is, the goal, and the operations that one of it is.
pub(crate) const LOADS: [(Load, &str, f64, f64); 3] = [
    (Load::Write, "a write of a stream", 150.0, 1.0),
    (Load::Read, "a read of a stream, gathered", 100.0, 1.0),
    (Load::Rr, "a write and a read of request-response", 250.0, 2.0),
];

/// Turns of strands, for callgrind to count.
#[derive(Debug, clap::Args)]
pub(crate) struct Turns {
    load: Load,
    operations: u64,
    /// Number of connections, which have their turns one after another.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
}

impl Turns {
    pub(crate) fn run(&self) -> Result<(), String> {
        let strands = self.connections;
        let [mut master, mut peer] = self.load.hosts(self.connections)?;
        complete_openings(&mut master, &mut peer, strands)?;
        master.begin(1, true);
        peer.begin(1, true);
        let [of_master, of_peer] = [self.load != Load::Read, self.load != Load::Write];
        let turn = |host: &mut Lone, strand: u32, is_counted: bool| match is_counted {
            true => counted_turn(host, strand),
            false => host.turn(strand),
        };
        let done = |master: &Lone, peer: &Lone| {
            (if of_master { master.operations() } else { 0 })
                + (if of_peer { peer.operations() } else { 0 })
        };
        while done(&master, &peer) < self.operations {
            for strand in 0..strands {
                let turns =
                    [turn(&mut master, strand, of_master), turn(&mut peer, strand, of_peer)];
                for turned in turns {
                    if let Turn::Failed(error) = turned {
                        return Err(error.to_string());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Load {
    /// Both hosts of a run, in this process.
    fn hosts(self, connections: u32) -> Result<[Lone; 2], String> {
        let name = if self == Load::Rr { "rr" } else { "stream" };
        let builtin = builtins::find(name).ok_or("no such profile")?;
        let variables = |name: &str| {
            let variable = builtin.variables.iter().find(|variable| variable.name == name)?;
            Some(match (name, variable.default) {
                ("size", _) => WRITE_BYTES.to_owned(),
                ("connections", _) => connections.to_string(),
                ("duration", _) => "3600s".to_owned(),
                (_, builtins::Default::Text(text)) => text.to_owned(),
                (_, _) => "127.0.0.1".to_owned(),
            })
        };
        let profile = Language::of("", builtin.source).parse(builtin.source, &variables);
        let profile = profile.map_err(|error| format!("{error:?}"))?.profile;
        let programs = program::compile(&profile).map_err(|errors| format!("{errors:?}"))?;
        let mut endpoints = Endpoints::default();
        let mut hosts = Vec::new();
        for (number, program) in (0..).zip(programs) {
            let plan = Plan {
                token: "turns".to_owned(),
                seed: 1,
                host: number,
                engine: "epoll".into(),
                workers: Some(1),
                cpus: Vec::new(),
                shares_cpus: false,
                interval: SECOND,
                program,
                data_address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
                tcp_samples: 0,
                details: false,
                logged_operations: 0,
                receive_stamps: false,
                congestion_objects: Vec::new(),
            };
            let (host, prepared) = Lone::prepare(plan).map_err(|error| error.to_string())?;
            hosts.push(host);
            endpoints.hosts.push(prepared);
        }
        for host in &mut hosts {
            host.connect(endpoints.clone()).map_err(|error| error.to_string())?;
        }
        hosts.try_into().map_err(|_| "a profile of other than two hosts".to_owned())
    }

    /// Instructions of an operation by function, without reading clocks and without the C library.
    pub(crate) fn count(self, operations: u64) -> Result<BTreeMap<String, f64>, String> {
        let few = self.costs(operations)?;
        let many = self.costs(operations * 2)?;
        let each = |(function, cost): (&String, &u64)| {
            let before = few.get(function).copied().unwrap_or(0);
            (function.clone(), (*cost as f64 - before as f64) / operations as f64)
        };
        Ok(many.iter().map(each).collect())
    }

    fn costs(self, operations: u64) -> Result<Costs, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let load = clap::ValueEnum::to_possible_value(&self).ok_or("a load without a name")?;
        costs(&program, ["turns", load.get_name(), &operations.to_string()], "*counted_turn*")
    }
}

/// What is counted.
#[inline(never)]
fn counted_turn(host: &mut Lone, strand: u32) -> Turn {
    host.turn(strand)
}

/// The first phase, which opens the connections.
fn complete_openings(master: &mut Lone, peer: &mut Lone, strands: u32) -> Result<(), String> {
    master.begin(0, false);
    peer.begin(0, false);
    for strand in 0..strands {
        loop {
            match (master.turn(strand), peer.turn(strand)) {
                (Turn::Quiesced, Turn::Quiesced) => break,
                (Turn::Failed(error), _) | (_, Turn::Failed(error)) => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
    }
    Ok(())
}
