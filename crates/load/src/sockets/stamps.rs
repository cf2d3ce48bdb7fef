//! Sockets whose messages the kernel stamps: how long each message took from the driver to this program.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wirecost_linux::clock::{Monotonic, realtime, realtime_ahead};
use wirecost_linux::receive_stamps::{self, Received, Stamp};
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::histogram::Recorder;
use wirecost_model::receive_stamps::{NotSampled, ONE_IN, StampCounts, Unstamped};
use wirecost_profile::protocols::Family;

use super::Socket;
use super::data::DataPath;

/// Whether the kernel stamps what comes to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sampling {
    /// Its strand was not chosen.
    #[default]
    Off,
    On,
    /// Its strand was chosen, but the socket cannot be stamped.
    Impossible(NotSampled),
}

/// Two clocks, read after a call: that of the stamps, and that of the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadAt {
    realtime: Nanos,
    monotonic: Nanos,
}

impl ReadAt {
    pub(super) fn now() -> Self {
        Self { realtime: realtime(), monotonic: Monotonic.now() }
    }
}

/// The stamps of one worker's sockets.
#[derive(Debug)]
pub(super) struct Stamps {
    /// Whether a strand was chosen, by its place among its worker's.
    chosen: Vec<bool>,
    /// Keeps stamps on between the connections of strands that open them anew: to turn them on and off patches the
    /// kernel's code on all CPUs.
    _keeps_on: Option<OwnedFd>,
    /// Stamped sockets, and those that cannot be, that were open at some time since the phase began, and that are open.
    sockets: Opened,
    not_sampled: BTreeMap<NotSampled, Opened>,
    window: Range<Nanos>,
    messages: u64,
    delays: Recorder,
    negative: u64,
    without_stamp: u64,
    by_call: u64,
    by_device: u64,
    /// See [`realtime_ahead`].
    ahead: (i64, Nanos),
}

#[derive(Debug, Clone, Copy, Default)]
struct Opened {
    in_phase: u64,
    open: u64,
}

/// Which strands of a worker have their sockets stamped: of each group every 64th, and at least one. Where each has a
/// thread of its own, those of the host count. `mine`: group and number of each, ascending.
fn choose(mine: &[(u32, u32)], has_own_threads: bool) -> Vec<bool> {
    let (mut group, mut before) = (None, 0);
    let choice = mine.iter().map(|&(of_group, strand)| {
        if group.replace(of_group) != Some(of_group) {
            before = 0;
        }
        let number = if has_own_threads { strand } else { before };
        before += 1;
        number % ONE_IN == 0
    });
    choice.collect()
}

impl Stamps {
    /// # Errors
    /// This kernel has no receive stamps.
    pub(super) fn new(mine: &[(u32, u32)], has_own_threads: bool) -> io::Result<Self> {
        let chosen = choose(mine, has_own_threads);
        let keeps_on = chosen.contains(&true).then(|| {
            let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
            let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
            receive_stamps::enable(&socket).map(|()| socket)
        });
        let lacks = |error: io::Error| {
            let reason = "this kernel stamps no received packets (SO_TIMESTAMPING_NEW, Linux 5.1)";
            io::Error::new(error.kind(), format!("{reason}: {error}"))
        };
        Ok(Self {
            chosen,
            _keeps_on: keeps_on.transpose().map_err(lacks)?,
            sockets: Opened::default(),
            not_sampled: BTreeMap::new(),
            window: 0..0,
            messages: 0,
            delays: Recorder::default(),
            negative: 0,
            without_stamp: 0,
            by_call: 0,
            by_device: 0,
            ahead: (0, 0),
        })
    }

    fn opened(&mut self, sampling: Sampling) -> Option<&mut Opened> {
        match sampling {
            Sampling::Off => None,
            Sampling::On => Some(&mut self.sockets),
            Sampling::Impossible(reason) => Some(self.not_sampled.entry(reason).or_default()),
        }
    }

    fn begin(&mut self, window: Range<Nanos>) {
        for opened in self.not_sampled.values_mut().chain([&mut self.sockets]) {
            opened.in_phase = opened.open;
        }
        self.window = window;
        self.messages = 0;
        self.delays = Recorder::default();
        (self.negative, self.without_stamp, self.by_call, self.by_device) = (0, 0, 0, 0);
        self.ahead = realtime_ahead();
    }

    #[inline]
    fn note(&mut self, stamp: Stamp, at: ReadAt) {
        if !self.window.contains(&at.monotonic) {
            return;
        }
        self.messages += 1;
        self.by_device += u64::from(stamp.hardware.is_some());
        match stamp.software.map(|stamp| at.realtime.checked_sub(stamp)) {
            Some(Some(delay)) => self.delays.record(delay),
            Some(None) => self.negative += 1,
            None => self.without_stamp += 1,
        }
    }

    fn counts(&self) -> StampCounts {
        let some = |(reason, count): (Unstamped, u64)| (count > 0).then_some((reason, count));
        let unstamped = [(Unstamped::NoStamp, self.without_stamp), (Unstamped::Call, self.by_call)];
        let not_sampled = self.not_sampled.iter().map(|(reason, of)| (*reason, of.in_phase));
        let ((before, error), (after, also)) = (self.ahead, realtime_ahead());
        let step = after.wrapping_sub(before);
        StampCounts {
            sockets: self.sockets.in_phase,
            not_sampled: not_sampled.filter(|(_, sockets)| *sockets > 0).collect(),
            messages: self.messages,
            delays: self.delays.histogram(),
            negative: self.negative,
            unstamped: unstamped.into_iter().filter_map(some).collect(),
            by_device: self.by_device,
            clock_step: if step.unsigned_abs() > error + also { step } else { 0 },
        }
    }
}

impl DataPath {
    /// Has the kernel stamp what comes to a connection, if its strand was chosen.
    pub(super) fn sample(&mut self, socket: &mut Socket, local: u32) {
        let Some(stamps) = &mut self.stamps else { return };
        if !stamps.chosen.get(local as usize).is_some_and(|chosen| *chosen) {
            return;
        }
        let protocol = socket.transport.protocol();
        socket.sampling = if protocol.family() != Family::Inet {
            Sampling::Impossible(NotSampled::NoPackets)
        } else if protocol.is_secure() {
            Sampling::Impossible(NotSampled::Tls)
        } else {
            match receive_stamps::enable(&socket.fd) {
                Ok(()) => Sampling::On,
                Err(_) => Sampling::Impossible(NotSampled::Refused),
            }
        };
        socket.reads_plainly = socket.reliable && socket.sampling != Sampling::On;
        if let Some(opened) = stamps.opened(socket.sampling) {
            opened.in_phase += 1;
            opened.open += 1;
        }
    }

    /// A connection is closed.
    pub(super) fn end_sampling(&mut self, socket: &mut Socket) {
        let sampling = std::mem::take(&mut socket.sampling);
        let opened = self.stamps.as_mut().and_then(|stamps| stamps.opened(sampling));
        if let Some(opened) = opened {
            opened.open = opened.open.saturating_sub(1);
        }
    }

    /// A phase with this window begins.
    pub(super) fn begin_stamps(&mut self, window: Range<Nanos>) {
        if let Some(stamps) = &mut self.stamps {
            stamps.begin(window);
        }
    }

    /// What has been read in the window; none where no stamps were asked for.
    pub(super) fn stamp_counts(&self) -> Option<StampCounts> {
        self.stamps.as_ref().map(|stamps| stamps.counts())
    }

    /// Notes a message that was read at an instant.
    pub(super) fn note_stamp(&mut self, stamp: Stamp, at: ReadAt) {
        if let Some(stamps) = &mut self.stamps {
            stamps.note(stamp, at);
        }
    }

    /// Notes what was read by a call that takes no stamp.
    pub(super) fn note_unstamped_call(&mut self) {
        if let Some(stamps) = &mut self.stamps
            && stamps.window.contains(&Monotonic.now())
        {
            stamps.messages += 1;
            stamps.by_call += 1;
        }
    }

    /// Receives with the stamp.
    pub(super) fn receive_with_stamp(
        &mut self,
        socket: &Socket,
        size: usize,
        wait: bool,
    ) -> io::Result<(Received, ReadAt)> {
        let most = size.min(self.buffer.len());
        let received = receive_stamps::receive(&socket.fd, &mut self.buffer[..most], wait)?;
        Ok((received, ReadAt::now()))
    }

    /// The same on a socket of several clients.
    pub(super) fn receive_from_with_stamp(
        &mut self,
        socket: &Socket,
        wait: bool,
    ) -> io::Result<(Received, ReadAt, Option<SocketAddr>)> {
        let received = receive_stamps::receive_from(&socket.fd, &mut self.buffer[..], wait)?;
        let at = ReadAt::now();
        let (received, sender) = received;
        Ok((received, at, sender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_64th_strand_of_each_group_is_chosen_and_at_least_one_of_each_worker() {
        let mine: Vec<(u32, u32)> =
            (5..200).step_by(2).map(|strand| (0, strand)).chain([(3, 7), (3, 9)]).collect();
        let chosen = |has_own_threads| -> Vec<(u32, u32)> {
            let choice = choose(&mine, has_own_threads);
            let chosen = mine.iter().zip(choice).filter(|(_, chosen)| *chosen);
            chosen.map(|(strand, _)| *strand).collect()
        };
        assert_eq!(chosen(false), [(0, 5), (0, 133), (3, 7)]);
        assert_eq!(chosen(true), []);
        let host: Vec<(u32, u32)> = (0..130).map(|strand| (1, strand)).collect();
        let of_threads = host.iter().filter(|&&strand| choose(&[strand], true) == [true]);
        assert_eq!(of_threads.map(|(_, strand)| *strand).collect::<Vec<_>>(), [0, 64, 128]);
    }

    /// Each message of the window is a time, one of less than nothing, or has a reason.
    #[test]
    fn every_message_of_the_window_is_counted_once() {
        let mut stamps = Stamps::new(&[(0, 0)], false).unwrap();
        stamps.begin(100..200);
        let stamp = |software| Stamp { software, hardware: None };
        let at = |realtime, monotonic| ReadAt { realtime, monotonic };
        for (software, realtime) in [(Some(5), 105), (Some(9), 9), (Some(10), 9), (None, 9)] {
            stamps.note(stamp(software), at(realtime, 100));
            stamps.note(stamp(software), at(realtime, 99));
            stamps.note(stamp(software), at(realtime, 200));
        }
        let counts = stamps.counts();
        assert_eq!((counts.messages, counts.delays.count(), counts.negative), (4, 2, 1));
        assert_eq!(counts.unstamped, [(Unstamped::NoStamp, 1)].into());
        assert_eq!((counts.delays.min(), counts.delays.max()), (Some(0), Some(100)));
        assert_eq!(counts.clock_step, 0);
        // A clock that was set back by a second meanwhile.
        stamps.ahead.0 += 1_000_000_000;
        let step = stamps.counts().clock_step;
        assert!((-1_010_000_000..=-990_000_000).contains(&step), "{step}");
        stamps.begin(100..200);
        assert_eq!(stamps.counts(), StampCounts::default());
    }
}
