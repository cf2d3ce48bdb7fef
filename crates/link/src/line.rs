//! One direction of a link: a queue, a transmitter, and a delay line. Pure: it has no clock of its own.
//!
//! A frame is what a host hands over at once, up to 64 KiB, and has one or more packets. Everything
//! happens to packets. Packets of a frame that leave the line one after another travel as one frame
//! again (a *piece*): it costs less to receive, and the first of them comes later.
//!
//! The queue is evaluated late: at each arrival and each release everything is computed that has happened
//! since, with the instants at which it happened. A late call therefore delays a release, but changes no
//! decision.

use std::collections::VecDeque;

use wirecost_model::link::{Conditions, Discipline, LineCounts, MAX_HELD, WIRE_OVERHEAD};

use crate::clock::{Instant, Transmitter};
use crate::codel::CoDel;
use crate::jitter::Jitter;

/// Packets of a frame travel together if they are due within this part of the delay, within these bounds. At lower rates a
/// host sends smaller frames by itself: TCP's are about 1 ms long (`tcp_tso_autosize`).
const TOGETHER_PART: u64 = 10;
const TOGETHER_MIN: u64 = 50_000;
const TOGETHER_MAX: u64 = 1_000_000;

/// A reordered packet comes later by this part of the delay, and by at least a millisecond, so that
/// packets sent after it arrive before it.
const REORDER_PART: u64 = 4;
const REORDER_MIN: u64 = 1_000_000;
/// It comes after at least as many packets that follow it at once.
const REORDER_PACKETS: u32 = 4;

/// Bytes of a packet of the cross traffic.
const CROSS_BYTES: u32 = 1_500;

/// Cross traffic of a longer time without calls is not computed.
const CROSS_MEMORY: u64 = 50_000_000;

/// Bytes of frames that a line holds at most, with whole frames for each packet of them.
const MEMORY: u64 = MAX_HELD + MAX_HELD / 2;

/// Packets of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// At least 1.
    pub packets: u16,
    /// Bytes of headers that each packet has, from IP on.
    pub header: u32,
    /// Bytes of all packets without their headers.
    pub payload: u32,
    /// The same of each packet but the last.
    pub each: u32,
}

impl Shape {
    /// A frame that is one packet.
    #[must_use]
    pub fn packet(bytes: u32) -> Self {
        Self { packets: 1, header: 0, payload: bytes, each: bytes }
    }

    /// Bytes of the frame.
    fn total(&self) -> u64 {
        u64::from(self.header) + u64::from(self.payload)
    }

    /// Bytes of all packets, each with its headers.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        u64::from(self.packets) * u64::from(self.header) + u64::from(self.payload)
    }

    /// Bytes of a packet, with its headers.
    #[must_use]
    pub fn bytes(&self, packet: u16) -> u32 {
        let before = u32::from(packet) * self.each;
        self.header + self.each.min(self.payload.saturating_sub(before))
    }
}

/// What leaves the line: packets of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a, F> {
    pub frame: &'a F,
    /// The first of its packets, and the one after the last.
    pub packets: (u16, u16),
    pub shape: Shape,
    /// When the last of them was due.
    pub due: Instant,
}

#[derive(Debug)]
struct Queued {
    /// Its frame, by number; cross traffic has none.
    frame: Option<u64>,
    packet: u16,
    bytes: u32,
    arrived: Instant,
}

#[derive(Debug)]
struct Frame<F> {
    frame: F,
    shape: Shape,
    /// Packets in the queue.
    queued: u16,
    /// Pieces in the delay line.
    delayed: u32,
}

/// Packets of a frame in the delay line.
#[derive(Debug, Clone, Copy)]
struct Delayed {
    /// When the last of its packets is due, and the first.
    due: Instant,
    first_due: Instant,
    frame: u64,
    packets: (u16, u16),
}

/// One direction of a link. `F` is what the caller keeps of a frame.
#[derive(Debug)]
pub struct Line<F> {
    conditions: Conditions,
    transmitter: Transmitter,
    random: fastrand::Rng,
    codel: Option<CoDel>,
    /// Whether the last packet was lost, where losses come in bursts.
    bad: bool,
    queue: VecDeque<Queued>,
    queue_bytes: u64,
    /// When the transmitter has sent what has left the queue.
    free_at: Instant,
    /// Frames with packets in the line. The first has number `first_frame`.
    frames: VecDeque<Option<Frame<F>>>,
    first_frame: u64,
    /// By the time when they are due.
    delayed: VecDeque<Delayed>,
    /// The same of reordered packets.
    held: VecDeque<Delayed>,
    /// Next packet of the cross traffic.
    next_cross: Instant,
    jitter: Jitter,
    /// Bytes of all frames in the line.
    held_bytes: u64,
    counts: LineCounts,
    /// Frames that have left the line.
    done: Vec<F>,
}

impl<F> Line<F> {
    #[must_use]
    pub fn new(conditions: &Conditions, seed: u64) -> Self {
        let mut line = Self {
            transmitter: Transmitter::new(&conditions.capacity),
            conditions: conditions.clone(),
            random: fastrand::Rng::with_seed(seed),
            codel: (conditions.discipline == Discipline::CoDel).then(CoDel::default),
            bad: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            free_at: 0,
            frames: VecDeque::new(),
            first_frame: 0,
            delayed: VecDeque::new(),
            held: VecDeque::new(),
            next_cross: Instant::MAX,
            jitter: Jitter::new(conditions.jitter_nanoseconds),
            held_bytes: 0,
            counts: LineCounts::default(),
            done: Vec::new(),
        };
        line.next_cross = line.cross_after(0);
        line
    }

    #[must_use]
    pub fn counts(&self) -> LineCounts {
        LineCounts { queue: self.queue_bytes, ..self.counts }
    }

    /// Bytes that wait for the transmitter.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// A frame that should have arrived, and for which the caller has no memory.
    pub fn lose(&mut self, frame: F) {
        self.counts.unheld += 1;
        self.done.push(frame);
    }

    /// A frame that the line no longer needs.
    pub fn take_done(&mut self) -> Option<F> {
        self.done.pop()
    }

    /// A frame arrives. From call to call, instants do not decrease.
    pub fn arrive(&mut self, now: Instant, frame: F, shape: Shape) {
        self.advance(now);
        if self.held_bytes + shape.total() > MEMORY {
            return self.lose(frame);
        }
        self.held_bytes += shape.total();
        let number = self.first_frame + self.frames.len() as u64;
        self.frames.push_back(Some(Frame { frame, shape, queued: shape.packets, delayed: 0 }));
        for packet in 0..shape.packets {
            let bytes = shape.bytes(packet);
            self.counts.arrived += 1;
            self.counts.arrived_bytes += u64::from(bytes);
            if !self.enqueue(Queued { frame: Some(number), packet, bytes, arrived: now }) {
                self.counts.overflowed += 1;
                self.left_queue(number);
            }
        }
    }

    /// When the next packets are due. Calls of [`Line::release`] between now and then release nothing,
    /// unless a frame arrives. `None` if the line is empty.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let delayed = self
            .delayed
            .front()
            .map(|first| if self.may_grow(first) { self.grown(first) } else { first.due });
        // What has not been transmitted comes after what has, except what is held.
        let queued = match delayed {
            Some(_) => None,
            None => self.next_queued(),
        };
        let held = self.held.front().map(|first| first.due);
        [delayed, queued, held].into_iter().flatten().min()
    }

    /// About when the first packet in the queue is due.
    fn next_queued(&self) -> Option<Instant> {
        let place = self.queue.iter().position(|queued| queued.frame.is_some())?;
        let (head, first) = (&self.queue[place], &self.queue[0]);
        let cross = place as u32 * (CROSS_BYTES + WIRE_OVERHEAD);
        let start = self.free_at.max(first.arrived) + self.transmitter.estimate(cross);
        let one = self.transmitter.estimate(head.bytes + WIRE_OVERHEAD);
        let rest = self.transmitter.estimate(self.rest_of_frame(head));
        let rest = one + whole(self.together(), one).min(rest.saturating_sub(one));
        Some(start.saturating_add(rest).saturating_add(self.earliest()))
    }

    /// Hands over the next packets that are due. Returns false if nothing is due.
    pub fn release(&mut self, now: Instant, deliver: impl FnOnce(Piece<'_, F>)) -> bool {
        self.advance(now);
        let delayed = self
            .delayed
            .front()
            .filter(|first| first.due <= now && !(self.may_grow(first) && self.grown(first) > now));
        let held = self.held.front().filter(|first| first.due <= now);
        let piece = match (delayed, held) {
            (Some(delayed), Some(held)) if held.due < delayed.due => self.held.pop_front(),
            (Some(_), _) => self.delayed.pop_front(),
            (None, Some(_)) => self.held.pop_front(),
            (None, None) => None,
        };
        let Some(piece) = piece else { return false };
        if let Some(frame) = self.frame(piece.frame) {
            frame.delayed -= 1;
            let Frame { frame, shape, .. } = frame;
            deliver(Piece { frame, packets: piece.packets, shape: *shape, due: piece.due });
        }
        self.settle(piece.frame);
        true
    }

    /// Computes what has happened until `now`.
    fn advance(&mut self, now: Instant) {
        if now.saturating_sub(self.next_cross) > CROSS_MEMORY {
            self.next_cross = now - CROSS_MEMORY;
        }
        while self.next_cross <= now {
            let arrived = self.next_cross;
            self.transmit_until(arrived);
            self.enqueue(Queued { frame: None, packet: 0, bytes: CROSS_BYTES, arrived });
            self.next_cross = self.cross_after(arrived);
        }
        self.transmit_until(now);
    }

    /// Transmits every packet whose transmission begins by `now`.
    fn transmit_until(&mut self, now: Instant) {
        while let Some(head) = self.queue.front() {
            let start = self.free_at.max(head.arrived);
            if start > now {
                return;
            }
            if let Some(packet) = self.dequeue(start) {
                self.transmit(start, packet);
            }
        }
    }

    fn enqueue(&mut self, packet: Queued) -> bool {
        let bytes = self.queue_bytes + u64::from(packet.bytes);
        // A packet that finds the transmitter idle does not wait.
        let waits = !self.queue.is_empty() || self.free_at > packet.arrived;
        if waits && self.conditions.queue_bytes.is_some_and(|limit| bytes > limit) {
            return false;
        }
        self.queue_bytes = bytes;
        self.counts.longest_queue = self.counts.longest_queue.max(bytes);
        let arrived = packet.arrived;
        self.queue.push_back(packet);
        // So that the next finds the transmitter busy.
        self.transmit_until(arrived);
        true
    }

    /// The packet whose transmission begins; none if CoDel drops all that wait.
    fn dequeue(&mut self, now: Instant) -> Option<Queued> {
        loop {
            let packet = self.queue.pop_front()?;
            self.queue_bytes -= u64::from(packet.bytes);
            let Some(codel) = &mut self.codel else { return Some(packet) };
            if !codel.drops(now, now - packet.arrived, self.queue_bytes) {
                return Some(packet);
            }
            self.counts.dropped += 1;
            if let Some(number) = packet.frame {
                self.left_queue(number);
            }
        }
    }

    fn transmit(&mut self, start: Instant, packet: Queued) {
        self.free_at = self.transmitter.transmit(start, packet.bytes);
        let Some(number) = packet.frame else {
            self.counts.cross += 1;
            self.counts.cross_bytes += u64::from(packet.bytes);
            return;
        };
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(packet.bytes);
        if self.is_lost() {
            self.counts.lost += 1;
        } else {
            let copies = 1 + u32::from(self.happens(self.conditions.duplicate));
            self.counts.duplicated += u64::from(copies - 1);
            for _ in 0..copies {
                self.delay(self.free_at, number, packet.packet);
            }
        }
        self.left_queue(number);
    }

    /// Puts a packet that was sent at `sent` into the delay line.
    fn delay(&mut self, sent: Instant, frame: u64, packet: u16) {
        let (behind, ahead) = self.jitter.at(sent, &mut self.random);
        let due =
            (sent + self.conditions.delay_nanoseconds + behind).saturating_sub(ahead).max(sent);
        if self.happens(self.conditions.reorder) {
            self.counts.reordered += 1;
            let others = self.transmitter.estimate(REORDER_PACKETS * (CROSS_BYTES + WIRE_OVERHEAD));
            let due = due
                + (self.conditions.delay_nanoseconds / REORDER_PART).max(REORDER_MIN).max(others);
            let at = self.held.partition_point(|other| other.due <= due);
            self.held
                .insert(at, Delayed { due, first_due: due, frame, packets: (packet, packet + 1) });
        } else {
            let together = self.together();
            match self.delayed.back_mut() {
                Some(last)
                    if last.frame == frame
                        && last.packets.1 == packet
                        && due <= last.first_due + together =>
                {
                    last.due = last.due.max(due);
                    last.packets.1 += 1;
                    return;
                }
                last => {
                    // Jitter alone does not reorder.
                    let due = last.map_or(due, |last| due.max(last.due));
                    let packets = (packet, packet + 1);
                    self.delayed.push_back(Delayed { due, first_due: due, frame, packets });
                }
            }
        }
        if let Some(frame) = self.frame(frame) {
            frame.delayed += 1;
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.f64() < share
    }

    /// Independent losses, or the model of Gilbert: every packet is lost in the bad state, none in the
    /// good one.
    fn is_lost(&mut self) -> bool {
        let (loss, burst) = (self.conditions.loss, self.conditions.loss_burst);
        if burst > 1.0 {
            let change = if self.bad { 1.0 / burst } else { loss / (burst * (1.0 - loss)) };
            self.bad ^= self.happens(change);
            self.bad
        } else {
            self.happens(loss)
        }
    }

    fn cross_after(&mut self, now: Instant) -> Instant {
        match self.conditions.cross_bits_per_second {
            0 => Instant::MAX,
            rate => {
                let mean = f64::from(CROSS_BYTES + WIRE_OVERHEAD) * 8e9 / rate as f64;
                // Poisson arrivals. 1 - f64() is never 0.
                now + (-(1.0 - self.random.f64()).ln() * mean) as u64 + 1
            }
        }
    }

    /// Whether the packet that the transmitter sends next joins the piece.
    fn may_grow(&self, piece: &Delayed) -> bool {
        let is_last = self.delayed.len() == 1;
        self.queue.front().filter(|_| is_last).is_some_and(|head| {
            head.frame == Some(piece.frame)
                && head.packet == piece.packets.1
                && piece.due + self.transmitter.estimate(head.bytes + WIRE_OVERHEAD)
                    <= piece.first_due + self.together()
        })
    }

    /// When a piece that may grow is complete.
    fn grown(&self, piece: &Delayed) -> Instant {
        let Some(head) = self.queue.front() else { return piece.due };
        let one = self.transmitter.estimate(head.bytes + WIRE_OVERHEAD);
        let rest = self.transmitter.estimate(self.rest_of_frame(head));
        let room = (piece.first_due + self.together()).saturating_sub(piece.due);
        piece.due + whole(room, one).min(rest)
    }

    /// Bytes on the wire from a packet in the queue to the end of its frame.
    fn rest_of_frame(&self, head: &Queued) -> u32 {
        let number = head.frame.unwrap_or_default().wrapping_sub(self.first_frame);
        let frame = usize::try_from(number).ok().and_then(|index| self.frames.get(index)?.as_ref());
        frame.map_or(head.bytes + WIRE_OVERHEAD, |frame| {
            let before = u32::from(head.packet) * frame.shape.each;
            let packets = u32::from(frame.shape.packets - head.packet);
            frame.shape.payload.saturating_sub(before)
                + packets * (frame.shape.header + WIRE_OVERHEAD)
        })
    }

    fn earliest(&self) -> u64 {
        self.conditions.delay_nanoseconds.saturating_sub(self.conditions.jitter_nanoseconds)
    }

    fn together(&self) -> u64 {
        (self.conditions.delay_nanoseconds / TOGETHER_PART).clamp(TOGETHER_MIN, TOGETHER_MAX)
    }

    fn frame(&mut self, number: u64) -> Option<&mut Frame<F>> {
        let index = usize::try_from(number.checked_sub(self.first_frame)?).ok()?;
        self.frames.get_mut(index)?.as_mut()
    }

    fn left_queue(&mut self, number: u64) {
        if let Some(frame) = self.frame(number) {
            frame.queued -= 1;
        }
        self.settle(number);
    }

    /// Gives back a frame that has nothing in the line.
    fn settle(&mut self, number: u64) {
        let is_done = |frame: &mut Frame<F>| frame.queued == 0 && frame.delayed == 0;
        if !self.frame(number).is_some_and(is_done) {
            return;
        }
        let index = (number - self.first_frame) as usize;
        if let Some(frame) = self.frames[index].take() {
            self.held_bytes -= frame.shape.total();
            self.done.push(frame.frame);
        }
        while let Some(None) = self.frames.front() {
            self.frames.pop_front();
            self.first_frame += 1;
        }
    }
}

/// The time of as many packets as fit into `room`.
fn whole(room: u64, one: u64) -> u64 {
    room.checked_div(one).map_or(0, |packets| packets * one)
}

#[cfg(test)]
mod tests {
    use wirecost_model::link::Capacity;

    use super::*;

    const MS: u64 = 1_000_000;
    /// A frame of 40 packets of 1500 bytes, of which 52 are headers.
    const LARGE: Shape = Shape { packets: 40, header: 52, payload: 40 * 1_448, each: 1_448 };

    fn conditions() -> Conditions {
        Conditions::default()
    }

    /// What left the line: frame, packets, due time, time of release.
    type Released = Vec<(u32, (u16, u16), u64, u64)>;

    /// Calls the line exactly when it asks for it, until `end`.
    fn run(line: &mut Line<u32>, end: u64) -> Released {
        let mut released = Vec::new();
        while let Some(now) = line.next().filter(|now| *now <= end) {
            while line.release(now, |piece| {
                released.push((*piece.frame, piece.packets, piece.due, now));
            }) {}
        }
        released
    }

    #[test]
    fn a_link_without_limits_only_delays() {
        let mut line = Line::new(&Conditions { delay_nanoseconds: 10 * MS, ..conditions() }, 1);
        line.arrive(5, 7, LARGE);
        line.arrive(9, 8, Shape::packet(60));
        let released = run(&mut line, u64::MAX);
        assert_eq!(
            released,
            [(7, (0, 40), 10 * MS + 5, 10 * MS + 5), (8, (0, 1), 10 * MS + 9, 10 * MS + 9)]
        );
        assert_eq!(
            (line.take_done(), line.take_done(), line.take_done()),
            (Some(8), Some(7), None)
        );
        assert_eq!(line.next(), None);
    }

    #[test]
    fn packets_are_charged_by_their_bytes_on_the_wire() {
        // 40 packets of 1538 bytes at 1 Gb/s take 492.16 us.
        let capacity = Capacity::Rate(1_000_000_000);
        for (delay_nanoseconds, together) in [(0, 5), (10 * MS, 40)] {
            let conditions =
                Conditions { capacity: capacity.clone(), delay_nanoseconds, ..conditions() };
            let mut line = Line::new(&conditions, 1);
            line.arrive(0, 1, LARGE);
            line.arrive(0, 2, LARGE);
            let pieces = (1..=80 / u64::from(together)).map(|number| {
                let last = number as u16 * together;
                let due = u64::from(last) * 12_304 + delay_nanoseconds;
                (
                    1 + u32::from(last > 40),
                    (last - together - 40 * u16::from(last > 40), last - 40 * u16::from(last > 40)),
                    due,
                    due,
                )
            });
            assert_eq!(
                run(&mut line, u64::MAX),
                pieces.collect::<Released>(),
                "{delay_nanoseconds}"
            );
        }
    }

    #[test]
    fn packets_travel_together_for_a_part_of_the_delay() {
        // A packet takes 1.2304 ms at 10 Mb/s, and 123 us at 100 Mb/s.
        let at = |rate, delay_nanoseconds| {
            let capacity = Capacity::Rate(rate);
            let mut line =
                Line::new(&Conditions { capacity, delay_nanoseconds, ..conditions() }, 1);
            line.arrive(0, 1, LARGE);
            run(&mut line, u64::MAX)
        };
        let sizes = |released: &Released| -> Vec<u16> {
            released.iter().map(|(_, packets, ..)| packets.1 - packets.0).collect()
        };
        assert_eq!(sizes(&at(10_000_000, 50 * MS)), [1; 40]);
        let fast = at(100_000_000, 50 * MS);
        assert_eq!(sizes(&fast), [9, 9, 9, 9, 4]);
        assert_eq!(sizes(&at(100_000_000, 2 * MS)), [2; 20]);
        assert_eq!(sizes(&at(100_000_000, 0)), [1; 40]);
        assert!(fast.iter().all(|(_, _, due, released)| due == released));
    }

    #[test]
    fn a_full_queue_drops_the_packets_that_do_not_fit() {
        let conditions = Conditions {
            capacity: Capacity::Rate(100_000_000),
            queue_bytes: Some(15_000),
            ..conditions()
        };
        let mut line = Line::new(&conditions, 1);
        line.arrive(0, 1, LARGE);
        // The first is on the wire, ten more wait.
        assert_eq!(line.counts().overflowed, 29);
        assert_eq!((line.queue_bytes(), line.counts().queue), (15_000, 15_000));
        // Two are sent after 246 us.
        line.arrive(247_000, 2, LARGE);
        assert_eq!(line.counts().overflowed, 29 + 38);
        let packets: u16 =
            run(&mut line, u64::MAX).iter().map(|(_, (from, to), ..)| to - from).sum();
        assert_eq!(packets, 13);
        assert_eq!(line.counts().longest_queue, 15_000);
    }

    /// Many packets, one every 10 us.
    fn many(conditions: &Conditions, packets: u32) -> (Released, LineCounts) {
        let mut line = Line::new(conditions, 3);
        let mut released = Vec::new();
        for number in 0..packets {
            let now = u64::from(number) * 10_000;
            released.extend(run(&mut line, now));
            line.arrive(now, number, Shape::packet(1_000));
        }
        released.extend(run(&mut line, u64::MAX));
        (released, line.counts())
    }

    #[test]
    fn losses_are_as_frequent_and_as_long_as_asked() {
        for loss_burst in [1.0, 8.0] {
            let lossy = Conditions { loss: 0.02, loss_burst, ..conditions() };
            let (released, counts) = many(&lossy, 400_000);
            assert_eq!(released.len() as u64 + counts.lost, 400_000);
            let share = counts.lost as f64 / 400_000.0;
            assert!((0.018..0.022).contains(&share), "{share}");
            let gaps = released.windows(2).filter(|pair| pair[1].0 > pair[0].0 + 1).count();
            let mean = counts.lost as f64 / gaps as f64;
            // Bursts of independent losses have 1 / (1 - 0.02) packets.
            assert!((mean / loss_burst - 1.0).abs() < 0.1, "{mean}");
        }
    }

    #[test]
    fn losses_cut_a_frame() {
        let mut line =
            Line::new(&Conditions { loss: 0.1, delay_nanoseconds: MS, ..conditions() }, 4);
        line.arrive(0, 1, LARGE);
        let released = run(&mut line, u64::MAX);
        assert!(released.len() > 1);
        assert!(released.windows(2).all(|pair| pair[0].1.1 < pair[1].1.0));
        let packets: u64 = released.iter().map(|(_, (from, to), ..)| u64::from(to - from)).sum();
        assert_eq!(packets + line.counts().lost, 40);
    }

    #[test]
    fn jitter_keeps_the_order_and_the_mean() {
        let jittery =
            Conditions { delay_nanoseconds: 10 * MS, jitter_nanoseconds: 2 * MS, ..conditions() };
        let (released, counts) = many(&jittery, 400_000);
        assert_eq!(counts.reordered, 0);
        assert!(released.is_sorted_by_key(|(frame, ..)| *frame));
        let delays: Vec<f64> = released
            .iter()
            .map(|(frame, .., at)| (at - u64::from(*frame) * 10_000) as f64 / MS as f64)
            .collect();
        assert!(delays.iter().all(|delay| (8.0..=12.0).contains(delay)));
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance =
            delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / delays.len() as f64;
        assert!((9.8..10.2).contains(&mean), "{mean}");
        // A line between independent uniform values has 2/3 of their variance.
        let expected = 2.0 / 3.0 * 4.0 / 3.0;
        assert!((0.8..1.2).contains(&(variance / expected)), "{variance}");
    }

    #[test]
    fn frames_that_no_memory_is_left_for_are_dropped() {
        let far = Conditions { delay_nanoseconds: 10_000 * MS, ..conditions() };
        let mut line = Line::new(&far, 1);
        let frames = MEMORY / LARGE.total() + 10;
        for number in 0..frames {
            line.arrive(number, number as u32, LARGE);
        }
        assert_eq!(line.counts().unheld, 10);
        assert_eq!(run(&mut line, u64::MAX).len() as u64, frames - 10);
        assert_eq!(line.held_bytes, 0);
    }

    #[test]
    fn reordered_packets_come_after_later_ones() {
        let (released, counts) =
            many(&Conditions { reorder: 0.01, delay_nanoseconds: 8 * MS, ..conditions() }, 100_000);
        assert!((800..1_200).contains(&counts.reordered), "{}", counts.reordered);
        let late = released.iter().scan(0, |newest: &mut u32, (frame, ..)| {
            let late = *frame < *newest;
            *newest = (*newest).max(*frame);
            Some(u64::from(late))
        });
        assert_eq!(late.sum::<u64>(), counts.reordered);
        assert_eq!(released.len(), 100_000);
    }

    #[test]
    fn duplicates_come_twice() {
        let (released, counts) = many(&Conditions { duplicate: 0.5, ..conditions() }, 1_000);
        assert!((400..600).contains(&counts.duplicated));
        assert_eq!(released.len() as u64, 1_000 + counts.duplicated);
        let mut line = Line::new(&Conditions { duplicate: 1.0, ..conditions() }, 1);
        line.arrive(0, 1, LARGE);
        let packets: u16 = run(&mut line, 0).iter().map(|(_, (from, to), ..)| to - from).sum();
        assert_eq!(packets, 80);
    }

    #[test]
    fn cross_traffic_takes_its_share() {
        let shared = Conditions {
            capacity: Capacity::Rate(100_000_000),
            cross_bits_per_second: 30_000_000,
            queue_bytes: Some(150_000),
            ..conditions()
        };
        // 60 Mb/s of IP of our own: together with what surrounds the packets nearly all of the rate.
        let mut line = Line::new(&shared, 3);
        for number in 0..30_000 {
            let now = u64::from(number) * 133_333;
            run(&mut line, now);
            line.arrive(now, number, Shape::packet(1_000));
        }
        let counts = line.counts();
        assert_eq!(counts.overflowed, 0);
        let cross = (counts.cross_bytes + 38 * counts.cross) as f64 * 8.0 / 4.0;
        assert!((29e6..31e6).contains(&cross), "{cross}");
        assert!(counts.longest_queue > 20_000, "{}", counts.longest_queue);
    }

    #[test]
    fn codel_keeps_the_queue_short() {
        let queue = |discipline| {
            let conditions = Conditions {
                capacity: Capacity::Rate(50_000_000),
                queue_bytes: Some(1_000_000),
                discipline,
                ..conditions()
            };
            let mut line = Line::new(&conditions, 1);
            // 2% more than the link carries, for 10 s.
            for number in 0..61_000 {
                let now = u64::from(number) * 162_900;
                run(&mut line, now);
                line.arrive(now, number, Shape::packet(1_000));
            }
            (line.queue_bytes(), line.counts().dropped)
        };
        let (droptail, none) = queue(Discipline::DropTail);
        let (codel, dropped) = queue(Discipline::CoDel);
        assert_eq!(none, 0);
        assert!(dropped > 100, "{dropped}");
        assert!(codel * 3 < droptail, "{codel} {droptail}");
    }

    #[test]
    fn a_late_caller_changes_no_decision() {
        let conditions = Conditions {
            capacity: Capacity::Rate(300_000_000),
            delay_nanoseconds: 3 * MS,
            jitter_nanoseconds: MS / 10,
            loss: 0.01,
            reorder: 0.01,
            duplicate: 0.01,
            queue_bytes: Some(100_000),
            discipline: Discipline::CoDel,
            cross_bits_per_second: 40_000_000,
            ..conditions()
        };
        // Packets, due times: pieces may be cut elsewhere.
        let all = |every: u64| {
            let mut line = Line::new(&conditions, 9);
            let mut packets = Vec::new();
            for number in 0..2_000_u32 {
                let now = u64::from(number) * 900_000;
                if u64::from(number) % every == 0 {
                    while line.release(now, |piece| {
                        packets.extend(
                            (piece.packets.0..piece.packets.1).map(|at| (*piece.frame, at)),
                        );
                    }) {}
                }
                line.arrive(now, number, LARGE);
            }
            packets.sort_unstable();
            (packets.len(), line.counts())
        };
        assert_eq!(all(1).1, all(7).1);
    }
}
