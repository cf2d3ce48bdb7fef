//! Clients of a socket that several of them send to.

use std::sync::{Mutex, PoisonError};

use wirecost_model::clock::Nanos;

use crate::arrivals::{Arrival, Arrivals, arrived};
use crate::payload;
use crate::record::WorkerCounters;

/// One client: datagrams that it sends may be read by any strand that has the socket.
#[derive(Debug)]
pub struct Client {
    /// Number of its strand.
    pub strand: u32,
    numbers: Mutex<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    /// Of which phase they are, see [`Client::take`].
    tag: u64,
    received: u64,
    arrivals: Arrivals,
    last: Nanos,
}

/// A datagram that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) arrival: Arrival,
    /// Its number, which is also that of the answer to it; none where it is not to be answered.
    pub(crate) answer: Option<u64>,
}

impl Client {
    #[must_use]
    pub fn new(strand: u32) -> Self {
        let arrivals = Arrivals::new();
        let numbers = Numbers { tag: 0, received: 0, arrivals, last: 0 };
        Self { strand, numbers: Mutex::new(numbers) }
    }

    fn with<T>(&self, tag: u64, act: impl FnOnce(&mut Numbers) -> T) -> T {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.tag != tag {
            numbers.tag = tag;
            numbers.received = 0;
            numbers.arrivals.begin_phase();
        }
        act(&mut numbers)
    }

    /// Notes a datagram of this client. `tag`: what numbers of the phase begin with; `start`: when it began. `answers`:
    /// whether datagrams are answered, by one of the same number, so that a missing one is not lost a second time.
    pub(crate) fn take(
        &self,
        (tag, answers): (u64, bool),
        datagram: &[u8],
        (now, start): (Nanos, Nanos),
        counters: &WorkerCounters,
    ) -> Taken {
        self.with(tag, |numbers| {
            let Numbers { received, arrivals, last, .. } = numbers;
            *last = now;
            let ahead = payload::ahead(datagram, tag | *received);
            let times = (payload::sent_at(datagram), now.wrapping_sub(start));
            let arrival = arrived((*received, ahead), times, arrivals, &counters.arrivals);
            match arrival.number {
                Some(number) if !arrival.belated => {
                    counters.gaps.add(number - *received);
                    counters.skipped.add(if answers { number - *received } else { 0 });
                    arrivals.passed_over(*received..number, &counters.arrivals);
                    arrivals.expected(number);
                    *received = number + 1;
                }
                _ => {
                    counters.late.add(u64::from(arrival.is_new));
                    let resumed = answers && arrival.is_new && arrival.number.is_some();
                    counters.resumed.add(u64::from(resumed));
                }
            }
            let answer = arrival.number.filter(|_| arrival.is_new);
            Taken { arrival, answer }
        })
    }

    /// When it was last heard of.
    #[must_use]
    pub fn last_heard(&self) -> Nanos {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Gives up what has not come of the `sent` datagrams that it has sent in this phase.
    pub fn give_up(&self, (tag, answers): (u64, bool), sent: u64, counters: &WorkerCounters) {
        self.with(tag, |numbers| {
            let missing = numbers.received..sent.max(numbers.received);
            counters.gaps.add(missing.end - missing.start);
            counters.skipped.add(if answers { missing.end - missing.start } else { 0 });
            numbers.received = missing.end;
            numbers.arrivals.passed_over(missing, &counters.arrivals);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: u64 = 3 << 56;

    fn datagram(number: u64) -> [u8; 8] {
        (TAG | number).to_le_bytes()
    }

    /// Two workers read what one client sends.
    #[test]
    fn what_several_workers_read_is_counted_once() {
        let client = Client::new(7);
        let workers = [WorkerCounters::new(0, vec![]), WorkerCounters::new(0, vec![])];
        let order = [(0, 0), (2, 1), (1, 0), (5, 0), (3, 1), (3, 0)];
        let answers = order.map(|(number, worker)| {
            client.take((TAG, true), &datagram(number), (9, 1), &workers[worker]).answer
        });
        assert_eq!(answers, [Some(0), Some(2), Some(1), Some(5), Some(3), None]);
        client.give_up((TAG, true), 8, &workers[1]);
        // A second time changes nothing.
        client.give_up((TAG, true), 8, &workers[0]);
        let sum = |of: fn(&WorkerCounters) -> u64| workers.iter().map(of).sum::<u64>();
        assert_eq!(sum(|w| w.gaps.get()) - sum(|w| w.late.get()), 3, "4, 6 and 7 are lost");
        assert_eq!(sum(|w| w.skipped.get()) - sum(|w| w.resumed.get()), 3, "and not answered");
        assert_eq!(sum(|w| w.arrivals.reordered.get()), 2);
        assert_eq!(sum(|w| w.arrivals.duplicated.get()), 1);
        let mut bursts = workers[0].arrivals.bursts();
        bursts.iter_mut().zip(workers[1].arrivals.bursts()).for_each(|(sum, of)| *sum += of);
        assert_eq!(bursts[..2], [1, 1]);
        assert_eq!(client.last_heard(), 9);
        // Numbers begin anew in the next phase, and what is left of this one is not of it.
        let next =
            client.take((4 << 56, false), &(4u64 << 56).to_le_bytes(), (20, 10), &workers[0]);
        assert_eq!((next.arrival.number, next.answer), (Some(0), Some(0)));
        let stale = client.take((4 << 56, false), &datagram(6), (21, 10), &workers[0]);
        assert_eq!((stale.arrival.number, stale.answer), (None, None));
    }
}
