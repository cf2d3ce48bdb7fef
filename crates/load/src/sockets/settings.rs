//! What was requested of sockets, and what took effect.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use wirecost_linux::sockopt;
use wirecost_model::placement::{PlacedBy, StrandPlacement};
use wirecost_profile::io_options::IoOption;
use wirecost_profile::io_options::busy_poll::BusyPoll;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::net::Owner;
use wirecost_program::step::Open;

use super::Socket;
use crate::socket_options;

/// Connections of a step whose settings a worker reads: five calls each, as many as connecting
/// takes.
const SETTINGS_READ: u32 = 256;

/// The settings of one worker's connections so far.
#[derive(Debug, Default)]
pub(crate) struct SettingsLog {
    settings: BTreeSet<EffectiveSetting>,
    /// Connections of each row of the phase whose settings have been read.
    read: Vec<u32>,
    /// The longest `busy_poll` of a connection, microseconds, which an event loop's waits keep to.
    busy_poll: u32,
    /// By number of the peer, group and strand: where connections were placed, or arrived.
    placements: BTreeMap<(u32, u32, u32), StrandPlacement>,
}

impl SettingsLog {
    /// A phase of so many rows begins.
    pub(super) fn begin(&mut self, rows: usize) {
        self.read.clear();
        self.read.resize(rows, 0);
    }

    pub(super) fn add(&mut self, settings: impl IntoIterator<Item = EffectiveSetting>) {
        self.settings.extend(settings);
    }

    /// A connection to a host has been placed: on a queue of its device, or on a CPU, after so many connections were tried.
    pub(super) fn placed(
        &mut self,
        (owner, peer): (Owner, u32),
        queue: Option<u32>,
        cpu: Option<(u32, u32)>,
    ) {
        let Some(placement) = self.placement((peer, owner.group, owner.strand)) else { return };
        placement.by = Some(match cpu {
            Some(_) => PlacedBy::Observation,
            None => PlacedBy::DeviceTable,
        });
        (placement.queue, placement.cpu) = (queue, cpu.map(|(cpu, _)| cpu));
        placement.connections += 1;
        placement.connections_tried += cpu.map_or(1, |(_, tried)| u64::from(tried));
    }

    /// Notes on which CPU the last packet of a placed connection arrived here.
    pub(super) fn arrived(&mut self, socket: &Socket) {
        let Some(key) = socket.placed else { return };
        let Ok(Some(cpu)) = sockopt::incoming_cpu(&socket.fd) else { return };
        if let Some(placement) = self.placement(key) {
            placement.arrived_on.insert(cpu);
        }
    }

    fn placement(&mut self, key: (u32, u32, u32)) -> Option<&mut StrandPlacement> {
        if !self.placements.contains_key(&key) && self.placements.len() >= StrandPlacement::MOST {
            return None;
        }
        Some(self.placements.entry(key).or_insert_with(|| StrandPlacement::of(key.1, key.2)))
    }

    /// By number of the peer, group and strand.
    pub(crate) fn placements(&self) -> &BTreeMap<(u32, u32, u32), StrandPlacement> {
        &self.placements
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EffectiveSetting> {
        self.settings.iter()
    }

    /// Reads what took effect of what a step asks for. Connections of one step are alike, so only
    /// the first of them are read.
    pub(super) fn read(&mut self, socket: &Socket, open: &Open, epoll: Option<&OwnedFd>) {
        let Some(read) = self.read.get_mut(open.row as usize) else { return };
        if *read >= SETTINGS_READ {
            return;
        }
        *read += 1;
        let longer = BusyPoll.number(&open.setup.options);
        let longer = longer.and_then(|longer| u32::try_from(longer).ok());
        if let Some(microseconds) = longer.filter(|&longer| longer > self.busy_poll) {
            self.busy_poll = microseconds;
            if let Some(epoll) = epoll {
                let set = sockopt::set_epoll_busy_poll(epoll, microseconds).is_ok();
                self.note_waits(set);
            }
        }
        self.settings.extend(socket_options::effective(&socket.fd, &open.setup));
    }

    /// The longest `busy_poll` so far, microseconds; 0 without.
    pub(crate) fn busy_poll(&self) -> u32 {
        self.busy_poll
    }

    /// Notes whether an event loop's waits keep to the longest `busy_poll`.
    pub(crate) fn note_waits(&mut self, set: bool) {
        let requested = self.busy_poll.to_string();
        let effective = if set { requested.clone() } else { "0".to_owned() };
        self.settings.insert(EffectiveSetting { name: "busy_poll.waits", requested, effective });
    }
}
