//! A network and a clock that exist only here: streams with small buffers, datagrams that get lost.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use wirecost_model::clock::{MICROSECOND, MILLISECOND, Nanos};

use super::served::SharedSockets;
use crate::calls::KernelReceive;
use crate::draw;
use crate::net::{FromClient, Interest, Net, Opening, Owner};
use crate::payload::{Addressed, DatagramBatch};
use crate::step::{Open, ReceiveCall, SendCall};

/// What the network does to those who use it.
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    /// One way.
    pub(crate) latency: Nanos,
    /// Bytes that a stream holds in each direction.
    pub(crate) buffer: usize,
    /// Most bytes of a stream that one call moves.
    pub(crate) piece: u64,
    /// Of a thousand datagrams: so many are lost, and so many arrive late by so much.
    pub(crate) loss: u64,
    pub(crate) late: u64,
    pub(crate) late_by: Nanos,
    /// So many arrive twice.
    pub(crate) twice: u64,
    /// Datagrams that wait at most at a receiver.
    pub(crate) queue: usize,
    /// Of a thousand connects, so many are refused.
    pub(crate) refused: u64,
    /// The end to which no answer can be sent: the network refuses its address.
    pub(crate) refused_end: Option<usize>,
    /// Whether each end that accepted datagrams is told first that its answer to a repeated hello was refused.
    pub(crate) answers_refused: bool,
    /// How much later than others connections may arrive.
    pub(crate) straggle: Nanos,
    /// So long after a datagram has been sent, its sender learns of it, as from a ring; 0: at once.
    pub(crate) told_late: Nanos,
    /// Messages that one call sends at most. Such calls say later how it went, as a ring does.
    pub(crate) times: u64,
    /// No event tells of new data, as where calls block.
    pub(crate) silent: bool,
    /// The files of every `sendfile`.
    pub(crate) files: Vec<u64>,
    /// Sockets of a peer whose clients share those of its workers.
    pub(crate) workers: u32,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            seed: 1,
            latency: 50 * MICROSECOND,
            buffer: 4096,
            piece: 1500,
            loss: 0,
            late: 0,
            late_by: 3 * MILLISECOND,
            twice: 0,
            queue: 64,
            refused: 0,
            refused_end: None,
            answers_refused: false,
            straggle: 0,
            told_late: 0,
            times: 1,
            silent: false,
            files: Vec::new(),
            workers: 2,
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    other: usize,
    datagram: bool,
    open: bool,
    /// When the connection is, or will be, open; and when the other end's close arrives.
    opens: Nanos,
    closes: Nanos,
    /// When the other end has sent its end, at the latest when it closes.
    ended: Nanos,
    opening: bool,
    answer_refused: bool,
    corked: bool,
    low_water: usize,
    /// What a send under way has sent of its bytes, and how many it was given.
    deferred: Option<(usize, usize)>,
    /// When that is told.
    told: Nanos,
    incoming: VecDeque<(Nanos, Vec<u8>)>,
    /// The ends that have sent them, of datagrams.
    senders: VecDeque<usize>,
    /// The end at which what is sent to this one arrives: another one where both are of one socket.
    queue: usize,
}

type Place = (u32, u32, u32);

/// A message with a departure time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Departed {
    pub(crate) socket: usize,
    /// When it was given to the network, and when it left.
    pub(crate) handed_over: Nanos,
    pub(crate) left: Nanos,
}

#[derive(Debug)]
pub(crate) struct SimNet {
    pub(crate) weather: Weather,
    pub(crate) now: Nanos,
    draws: u64,
    ends: Vec<End>,
    /// Connections that have not been accepted, by host, group and strand: when they come, whose.
    arrivals: BTreeMap<Place, Vec<(Nanos, Owner, usize)>>,
    arrived: BTreeMap<Place, Vec<Nanos>>,
    received: Vec<u8>,
    /// Calls that received something.
    pub(crate) receives: usize,
    /// Bytes of streams that were sent.
    pub(crate) sent: usize,
    /// Messages with departure times.
    pub(crate) departures: Vec<Departed>,
    /// How long bytes of a stream were there before they were received, at most.
    pub(crate) longest_unread: Nanos,
    /// Bytes of streams that were thrown away unread.
    pub(crate) discarded: usize,
    /// Sockets that several clients send to.
    pub(crate) shared: SharedSockets,
}

impl SimNet {
    pub(crate) fn new(weather: Weather) -> Self {
        Self {
            weather,
            now: MILLISECOND,
            draws: 0,
            ends: Vec::new(),
            arrivals: BTreeMap::new(),
            arrived: BTreeMap::new(),
            received: Vec::new(),
            receives: 0,
            sent: 0,
            departures: Vec::new(),
            longest_unread: 0,
            discarded: 0,
            shared: SharedSockets::default(),
        }
    }

    pub(crate) fn draw(&mut self, max: u64) -> u64 {
        self.draws += 1;
        draw::between(draw::key(&[self.weather.seed, self.draws]), 0, max)
    }

    fn happens(&mut self, of_a_thousand: u64) -> bool {
        self.draw(999) < of_a_thousand
    }

    /// Every call takes a little time.
    pub(crate) fn spend(&mut self) {
        self.now += 500 + self.draw(1000);
    }

    /// Whether what a strand waits for on a connection is so.
    pub(crate) fn ready(&self, socket: usize, on: Interest) -> bool {
        let end = &self.ends[socket];
        if end.opening {
            return end.opens <= self.now;
        }
        match on {
            Interest::Readable => {
                let end = &self.ends[end.queue];
                let there = end.incoming.iter().take_while(|(at, _)| *at <= self.now);
                end.closes.min(end.ended) <= self.now
                    || if end.datagram {
                        there.count() > 0
                    } else {
                        let bytes: usize = there.map(|(_, bytes)| bytes.len()).sum();
                        bytes >= end.low_water.min(self.weather.buffer / 2).max(1)
                    }
            }
            Interest::Writable => {
                end.deferred.is_some() && end.told <= self.now
                    || end.deferred.is_none()
                        && (end.closes <= self.now || self.space(end.other) > 0)
            }
            Interest::Arrival | Interest::Nothing => false,
        }
    }

    /// How many connections have come so far for this strand.
    pub(crate) fn arrived(&self, place: Place) -> usize {
        let arrived = self.arrived.get(&place).into_iter().flatten();
        arrived.filter(|at| **at <= self.now).count()
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let ends = self.ends.iter().filter(|end| end.open);
        let of_ends = ends.flat_map(|end| {
            let incoming = end.incoming.iter().map(|(at, _)| *at);
            incoming.chain([end.opens, end.closes, end.ended, end.told])
        });
        let arrivals = self.arrived.values().flatten().copied();
        of_ends.chain(arrivals).filter(|at| *at > self.now && *at < Nanos::MAX).min()
    }

    /// Bytes or datagrams that nobody has read from open connections.
    pub(crate) fn unread(&self) -> usize {
        let open = self.ends.iter().filter(|end| end.open);
        open.flat_map(|end| &end.incoming).map(|(_, bytes)| bytes.len().max(1)).sum()
    }

    fn space(&self, at: usize) -> usize {
        let held: usize = self.ends[at].incoming.iter().map(|(_, bytes)| bytes.len()).sum();
        self.weather.buffer.saturating_sub(held)
    }

    fn send_stream(&mut self, socket: usize, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let other = self.ends[socket].other;
        if !self.ends[other].open || self.ends[socket].closes <= self.now {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let space = self.space(other);
        if space == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = 1 + self.draw(self.weather.piece - 1) as usize;
        let length = bytes.len().min(space).min(most);
        self.sent += length;
        let before = self.ends[other].incoming.back().map_or(0, |(at, _)| *at);
        let at = (self.now + self.weather.latency).max(before);
        self.ends[other].incoming.push_back((at, bytes[..length].to_vec()));
        Ok(length)
    }

    /// Sends a datagram to an end, which leaves at an instant or at once.
    fn send_datagram_to(
        &mut self,
        (socket, to): (usize, usize),
        bytes: &[u8],
        leaves: Nanos,
    ) -> usize {
        let other = self.ends[to].queue;
        let lost = self.happens(self.weather.loss);
        let late = if self.happens(self.weather.late) { self.weather.late_by } else { 0 };
        let at = self.now.max(leaves) + self.weather.latency + late;
        let again = self.happens(self.weather.twice).then_some(at + self.weather.late_by / 2);
        let end = &mut self.ends[other];
        for at in [Some(at), again].into_iter().flatten() {
            if end.open && !lost && end.incoming.len() < self.weather.queue {
                let place = end.incoming.partition_point(|(before, _)| *before <= at);
                end.incoming.insert(place, (at, bytes.to_vec()));
                end.senders.insert(place, socket);
            }
        }
        bytes.len()
    }
}

impl Net for SimNet {
    type Socket = usize;

    fn now(&mut self) -> Nanos {
        self.now
    }

    fn connect(&mut self, open: &Open, owner: Owner, _: u64) -> io::Result<usize> {
        self.spend();
        if self.happens(self.weather.refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let service = open.service;
        let (here, there) = (self.ends.len(), self.ends.len() + 1);
        let arrives = self.now + self.weather.latency;
        let datagram = !open.protocol.delivery().is_reliable();
        let queue = self.shared.queue(open, owner, (here, there), self.weather.workers);
        let opens = if datagram { Nanos::MAX } else { arrives + self.weather.latency };
        for (other, opens) in [(there, opens), (here, 0)] {
            self.ends.push(End {
                other,
                datagram,
                open: true,
                opens,
                closes: Nanos::MAX,
                ended: Nanos::MAX,
                opening: other == there,
                answer_refused: datagram && other == here && self.weather.answers_refused,
                corked: false,
                low_water: 1,
                deferred: None,
                told: 0,
                incoming: VecDeque::new(),
                senders: VecDeque::new(),
                queue: if other == here { queue } else { here },
            });
        }
        let place = (service.host, owner.group, owner.strand);
        let arrives = arrives + self.draw(self.weather.straggle);
        self.arrivals.entry(place).or_default().push((arrives, owner, there));
        self.arrived.entry(place).or_default().push(arrives);
        Ok(here)
    }

    fn opening(&mut self, &mut socket: &mut usize) -> io::Result<Opening> {
        let now = self.now;
        let end = &mut self.ends[socket];
        if end.opens <= now {
            end.opening = false;
            return Ok(Opening::Done);
        }
        Ok(if end.datagram {
            Opening::Wait(Interest::Readable, Some(now + 200 * MILLISECOND))
        } else {
            Opening::Wait(Interest::Writable, None)
        })
    }

    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<(usize, u32)> {
        self.spend();
        let now = self.now;
        let place = (open.service.host, owner.group, owner.strand);
        let waiting = self.arrivals.entry(place).or_default();
        let own = |at: Nanos, of: &Owner| at <= now && owner.takes(of.id, of.ordinal);
        let first = waiting.iter().position(|(at, of, _)| own(*at, of));
        let first = first.ok_or(io::ErrorKind::WouldBlock)?;
        let (_, of, socket) = waiting.remove(first);
        let other = self.ends[socket].other;
        if self.ends[other].opens == Nanos::MAX {
            self.ends[other].opens = now + self.weather.latency;
        }
        Ok((socket, of.ordinal))
    }

    fn send(&mut self, &socket: &usize, bytes: &[u8], _: SendCall) -> io::Result<usize> {
        self.spend();
        assert!(self.ends[socket].open, "sends on a closed socket");
        if self.ends[socket].datagram {
            let now = self.now;
            match self.ends[socket].deferred {
                Some((sent, _)) if self.ends[socket].told <= now => {
                    self.ends[socket].deferred = None;
                    return Ok(sent);
                }
                Some(_) => return Err(io::ErrorKind::WouldBlock.into()),
                None => {}
            }
            let to = self.shared.asked(socket).unwrap_or(self.ends[socket].other);
            let sent = self.send_datagram_to((socket, to), bytes, 0);
            if self.weather.told_late > 0 {
                self.ends[socket].deferred = Some((sent, bytes.len()));
                self.ends[socket].told = now + self.weather.told_late;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            return Ok(sent);
        }
        self.send_stream(socket, bytes)
    }

    fn has_begun_to_send(&self, &socket: &usize) -> bool {
        self.ends[socket].deferred.is_some()
    }

    fn most_times(&self, _: &usize) -> u64 {
        self.weather.times
    }

    /// Sends a part of what it was given, or all, and tells next time.
    fn send_times(
        &mut self,
        &socket: &usize,
        bytes: &[u8],
        _: SendCall,
        times: u64,
    ) -> io::Result<u64> {
        self.spend();
        let all = bytes.repeat(times as usize);
        if let Some((sent, given)) = self.ends[socket].deferred.take() {
            assert_eq!(given, all.len(), "asked again for something else");
            return Ok(sent as u64);
        }
        let mut sent = self.send_stream(socket, &all)?;
        while sent < all.len() && self.draw(3) > 0 {
            match self.send_stream(socket, &all[sent..]) {
                Ok(more) => sent += more,
                Err(_) => break,
            }
        }
        self.ends[socket].deferred = Some((sent, all.len()));
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn send_zerocopy(&mut self, socket: &usize, bytes: &[u8], copied: usize) -> io::Result<usize> {
        assert!(copied <= bytes.len());
        self.send(socket, bytes, SendCall::SEND)
    }

    fn cork(&mut self, &socket: &usize, on: bool) -> io::Result<()> {
        self.spend();
        let end = &mut self.ends[socket];
        assert!(end.open && end.corked != on, "corked {} while it is", on);
        end.corked = on;
        Ok(())
    }

    fn send_batch(&mut self, &socket: &usize, datagrams: &DatagramBatch<'_>) -> io::Result<usize> {
        let handed_over = self.now;
        self.spend();
        let messages: Vec<usize> = datagrams.messages().collect();
        let addressed = datagrams.addressed;
        // There is room at once.
        if !addressed.is_empty() && self.draw(3) == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A ring has calls for one datagram only.
        let defers = self.weather.told_late > 0 && datagrams.departures.is_some();
        let defers = defers && datagrams.lengths.len() == 1;
        let now = self.now;
        match self.ends[socket].deferred.filter(|_| defers) {
            Some((sent, _)) if self.ends[socket].told <= now => {
                self.ends[socket].deferred = None;
                return Ok(sent);
            }
            Some(_) => return Err(io::ErrorKind::WouldBlock.into()),
            None => {}
        }
        // The kernel may take fewer messages than it is given, but none in part.
        let mut taken = 1 + self.draw(messages.len() as u64 - 1) as usize;
        // Nor one behind one that it cannot send, which it only tells of where that is the first.
        let refused =
            |message: &Addressed| Some(SharedSockets::end(message.to)) == self.weather.refused_end;
        match addressed.iter().position(refused) {
            Some(0) => return Err(io::ErrorKind::HostUnreachable.into()),
            Some(before) => taken = taken.min(before),
            None => {}
        }
        let mut rest = datagrams.bytes;
        let mut lengths = datagrams.lengths.iter();
        for message in 0..taken {
            let left = datagrams.departures.map_or(0, |departures| departures.at(message));
            if left > 0 {
                self.departures.push(Departed { socket, handed_over, left });
            }
            let of_message = addressed.get(message);
            let to = of_message.map(|message| SharedSockets::end(message.to));
            let to = to.unwrap_or(self.ends[socket].other);
            let most = of_message.map_or(datagrams.segments, |message| message.datagrams.into());
            for &length in lengths.by_ref().take(most) {
                let (datagram, behind) = rest.split_at(length);
                self.send_datagram_to((socket, to), datagram, left);
                rest = behind;
            }
        }
        let taken = datagrams.datagrams(taken);
        if defers {
            self.ends[socket].deferred = Some((taken, taken));
            self.ends[socket].told = now + self.weather.told_late;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    fn receive(
        &mut self,
        &socket: &usize,
        size: usize,
        _: ReceiveCall,
        _: bool,
    ) -> io::Result<&[u8]> {
        self.spend();
        let most = 1 + self.draw(self.weather.piece - 1) as usize;
        let now = self.now;
        let end = &mut self.ends[socket];
        assert!(end.open, "receives from a closed socket");
        if !end.datagram && size == 0 {
            return Ok(&[]);
        }
        if std::mem::take(&mut end.answer_refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let Some((at, bytes)) = end.incoming.front_mut().filter(|(at, _)| *at <= now) else {
            return if !end.datagram && end.closes.min(end.ended) <= now && end.incoming.is_empty() {
                Ok(&[])
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        };
        self.receives += 1;
        self.longest_unread = self.longest_unread.max(now - *at);
        if end.datagram {
            bytes.truncate(size);
            self.received = std::mem::take(bytes);
            end.incoming.pop_front();
            end.senders.pop_front();
            return Ok(&self.received);
        }
        // What has come of a stream has no boundaries.
        self.received.clear();
        let most = size.min(most);
        while let Some((_, bytes)) = end.incoming.front_mut().filter(|(at, _)| *at <= now) {
            let length = bytes.len().min(most - self.received.len());
            self.received.extend(bytes.drain(..length));
            if !bytes.is_empty() {
                break;
            }
            end.incoming.pop_front();
        }
        Ok(&self.received)
    }

    fn receive_from_client(
        &mut self,
        &socket: &usize,
        call: ReceiveCall,
        _: bool,
    ) -> io::Result<FromClient<'_>> {
        self.spend();
        let now = self.now;
        assert!(self.ends[socket].open, "receives from a closed socket");
        if !self.shared.has_received(socket) {
            let most = match call {
                ReceiveCall::Batched(receives) => receives.messages.into(),
                _ => 1,
            };
            let queue = self.ends[socket].queue;
            let end = &mut self.ends[queue];
            let there = end.incoming.iter().take(most).take_while(|(at, _)| *at <= now).count();
            let datagrams = end.incoming.drain(..there).map(|(_, bytes)| bytes);
            self.shared.received(socket, datagrams.zip(end.senders.drain(..there)));
            self.receives += usize::from(there > 0);
        }
        self.shared.take(socket, now)
    }

    fn has_received(&self, &socket: &usize) -> bool {
        self.shared.has_received(socket)
    }

    fn will_answer(&mut self, &socket: &usize) {
        self.shared.will_answer(socket);
    }

    fn take_hello_refusal(&self, &socket: &usize, error: &io::Error) -> bool {
        let accepted = !self.ends[socket].opening && self.ends[socket].datagram;
        accepted && error.kind() == io::ErrorKind::ConnectionRefused
    }

    /// By edge, as epoll: what is there already it would not tell of.
    fn notifies_on_new_data(&self, &socket: &usize) -> bool {
        let end = &self.ends[socket];
        if self.weather.silent {
            return false;
        }
        let there = end.incoming.front().is_some_and(|(at, _)| *at <= self.now);
        assert!(end.datagram || !there, "nobody would be told of what has arrived already");
        !end.datagram
    }

    fn low_water(&mut self, &socket: &usize, bytes: u64) -> io::Result<u64> {
        self.spend();
        let end = &mut self.ends[socket];
        assert!(end.open && !end.datagram, "of a stream that is open");
        end.low_water = bytes as usize;
        Ok(bytes)
    }

    fn receive_in_kernel(
        &mut self,
        socket: &usize,
        size: usize,
        _: KernelReceive,
        timed: bool,
    ) -> io::Result<usize> {
        self.receive(socket, size, ReceiveCall::RECV, timed).map(<[u8]>::len)
    }

    fn send_file(
        &mut self,
        &socket: &usize,
        _: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.spend();
        let left = self.weather.files[file].saturating_sub(offset).min(length);
        self.send_stream(socket, &vec![0; left as usize])
    }

    fn shut_down(&mut self, &socket: &usize) -> io::Result<()> {
        self.spend();
        let end = &self.ends[socket];
        assert!(end.open && !end.datagram, "of a stream that is open");
        let other = end.other;
        let last = self.ends[other].incoming.back().map_or(0, |(at, _)| *at);
        self.ends[other].ended = (self.now + self.weather.latency).max(last);
        Ok(())
    }

    fn close(&mut self, socket: usize, _: Owner) {
        self.spend();
        let (latency, now) = (self.weather.latency, self.now);
        let end = &mut self.ends[socket];
        assert!(end.open, "closes twice");
        end.open = false;
        let unread = end.incoming.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        self.discarded += if end.datagram { 0 } else { unread };
        let other = end.other;
        let last = self.ends[other].incoming.back().map_or(0, |(at, _)| *at);
        // Of datagrams nobody hears that no more come.
        if !self.ends[other].datagram {
            self.ends[other].closes = (now + latency).max(last);
        }
    }
}
