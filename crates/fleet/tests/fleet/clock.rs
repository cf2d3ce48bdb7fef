//! The offset of a host's clock is right also where another host keeps the controller waiting.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_fleet::host::{Host, HostError, Notices};
use wirecost_fleet::wire::{Notice, Order};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, SECOND};
use wirecost_model::host::HostFacts;
use wirecost_model::plan::{EngineName, Workers};
use wirecost_model::profile::{
    Conns, Flowop, Group, Options, Position, Profile, Transaction, Until,
};
use wirecost_model::status::Status;

/// A host on another machine, whose clock is ahead.
struct Elsewhere {
    name: &'static str,
    ahead: u64,
    slow: Duration,
    notices: Option<(usize, Notices)>,
}

impl Elsewhere {
    fn member(name: &'static str, ahead: u64, slow: Duration) -> Member {
        Member {
            host: Box::new(Self { name, ahead, slow, notices: None }),
            data_address: None,
            listens_at: None,
            address: None,
            cpus: Vec::new(),
            owns_cpus: false,
            device: None,
            spreading: None,
            claim: None,
        }
    }
}

impl Host for Elsewhere {
    fn name(&self) -> &str {
        self.name
    }

    fn order(&mut self, order: Order) -> Result<(), HostError> {
        let Some((number, notices)) = self.notices.clone() else { return Ok(()) };
        let notice = match order {
            Order::Hello { version } => {
                let facts = HostFacts { boot_id: self.name.to_owned(), ..HostFacts::default() };
                Notice::Welcome {
                    version,
                    facts: Box::new(facts),
                    pid: 0,
                    available_memory: None,
                    network_namespace: None,
                }
            }
            Order::Ping { number } => Notice::Pong { number, now: Monotonic.now() + self.ahead },
            // Far enough.
            _ => Notice::Failed { status: Status::Peer, message: "enough".to_owned() },
        };
        let slow = match notice {
            Notice::Welcome { .. } => self.slow,
            _ => Duration::from_millis(2),
        };
        std::thread::spawn(move || {
            std::thread::sleep(slow);
            let _ = notices.send((number, Ok(notice)));
        });
        Ok(())
    }

    fn attach(&mut self, number: usize, notices: Notices) {
        self.notices = Some((number, notices));
    }
}

fn profile(hosts: &[&str]) -> Profile {
    let flowops = hosts
        .iter()
        .enumerate()
        .map(|(id, host)| Flowop {
            kind: "connect".to_owned(),
            options: Options {
                remotehost: Some((*host).to_owned()),
                protocol: Some("tcp".to_owned()),
                conn: Conns::one(id as u32),
                ..Options::default()
            },
            at: Position::default(),
        })
        .collect();
    let transaction = Transaction {
        until: Until::Iterations(1),
        arrivals: None,
        flowops,
        order: Vec::new(),
        at: Position::default(),
    };
    let group = Group { strands: 1, transactions: vec![transaction], ..Group::default() };
    Profile { name: String::new(), groups: vec![group] }
}

/// Waits until a host says who it is.
mod waiting {
    use super::*;

    #[test]
    fn an_old_answer_does_not_tell_the_time() {
        let settings = Settings {
            engine: EngineName::default(),
            workers: Workers::default(),
            interval: Some(SECOND),
            ramp: 0,
            timeout: Some(Duration::MAX),
            seed: 1,
            token: "t".to_owned(),
            tcp_samples: 0,
            probes: Vec::new(),
            ..Settings::default()
        };
        // While the one takes three seconds to say who it is, the other is asked for signs of life.
        let members = vec![
            Elsewhere::member("master", 7 * SECOND, Duration::from_secs(3)),
            Elsewhere::member("peer", 5 * SECOND, Duration::ZERO),
        ];
        let stop = AtomicBool::new(false);
        let outcome = controller::run(&profile(&["peer"]), members, &settings, &stop, &mut ());
        let error = outcome.error.unwrap_or_default();
        assert!(error.ends_with("enough"), "{:?}: {error}", outcome.status);
        for (host, truth) in outcome.hosts.iter().zip([7 * SECOND, 5 * SECOND]) {
            let wrong = host.clock_offset.unsigned_abs().abs_diff(truth);
            assert!(wrong <= host.clock_error, "{}: {wrong} ns", host.name);
            // False failures: 1e-9, computed: 16 exchanges of two seconds each, even if one of four took as long.
            assert!(host.clock_error < SECOND, "{}: {} ns", host.name, host.clock_error);
        }
    }
}
