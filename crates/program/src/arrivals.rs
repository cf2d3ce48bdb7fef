//! In which order the datagrams of a connection arrive, and after how long.

use std::collections::VecDeque;
use std::ops::Range;

use wirecost_model::clock::Nanos;
use wirecost_model::measure::burst_class;

use crate::record::ArrivalCounters;

/// Runs of missing datagrams that are remembered. Of older ones it is not told whether what arrives is one
/// of them.
const RUNS: usize = 128;
/// Bytes that the memory of one connection takes.
pub(crate) const MEMORY: u64 = ((RUNS + 1) * size_of::<Range<u64>>()) as u64;

/// What one connection has received, by the numbers of its datagrams. It has all its memory from the beginning.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Numbers that have been passed over and have not arrived, in order.
    missing: VecDeque<Range<u64>>,
    /// What is below is not remembered.
    forgotten: u64,
    /// Behind the highest number that has arrived.
    next: u64,
    transit: Option<i64>,
    /// Sixteen times the jitter of RFC 3550, nanoseconds.
    jitter: u64,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        let missing = VecDeque::with_capacity(RUNS + 1);
        Self { missing, forgotten: 0, next: 0, transit: None, jitter: 0 }
    }

    /// Datagrams are numbered anew.
    pub(crate) fn begin_phase(&mut self) {
        self.missing.clear();
        (self.forgotten, self.next, self.transit, self.jitter) = (0, 0, None, 0);
    }

    /// One that was awaited has arrived.
    pub(crate) fn expected(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// Numbers that have not arrived, and are not awaited any more.
    pub(crate) fn passed_over(&mut self, numbers: Range<u64>, counters: &ArrivalCounters) {
        if numbers.is_empty() {
            return;
        }
        match self.missing.back_mut() {
            Some(last) if last.end == numbers.start => {
                counters.burst_ended(length(last));
                last.end = numbers.end;
                counters.burst(length(last));
            }
            _ => {
                counters.burst(length(&numbers));
                self.missing.push_back(numbers);
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        if self.missing.len() > RUNS
            && let Some(oldest) = self.missing.pop_front()
        {
            self.forgotten = oldest.end;
        }
    }

    /// One that is not awaited any more has arrived. Returns whether it had not arrived before.
    pub(crate) fn belated(&mut self, number: u64, counters: &ArrivalCounters) -> bool {
        let place = self.missing.partition_point(|run| run.end <= number);
        let Some(run) = self.missing.get(place).filter(|run| run.start <= number).cloned() else {
            let duplicated = number >= self.forgotten;
            counters.duplicated.add(u64::from(duplicated));
            return !duplicated;
        };
        counters.burst_ended(length(&run));
        let parts = [run.start..number, number + 1..run.end];
        self.missing.remove(place);
        for part in parts.into_iter().rev().filter(|part| !part.is_empty()) {
            counters.burst(length(&part));
            self.missing.insert(place, part);
        }
        self.forget();
        // Others may have been given up after it, and only they.
        counters.reordered.add(u64::from(number < self.next));
        true
    }

    /// Takes the transit time of a datagram that has just arrived: the difference of two clocks, of which only
    /// changes count (RFC 3550, 6.4.1 and A.8).
    pub(crate) fn transit(&mut self, transit: i64, counters: &ArrivalCounters) {
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.abs_diff(before);
            self.jitter = (self.jitter + change).saturating_sub((self.jitter + 8) >> 4);
            counters.jitters.add(1);
            counters.jitter_sum.add(self.jitter >> 4);
        }
    }
}

/// What a datagram is by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// `None`: it is of another phase.
    pub(crate) number: Option<u64>,
    /// Whether it is not awaited any more.
    pub(crate) belated: bool,
    /// Whether it had not arrived before.
    pub(crate) is_new: bool,
    /// How long it took, where it tells when it was sent.
    pub(crate) transit: Option<i64>,
}

/// Finds what has arrived on a connection that awaits number `awaited` next, of a datagram so far ahead of that.
/// When it was sent, and `now`, are since the phase began.
pub(crate) fn arrived(
    (awaited, ahead): (u64, i64),
    (sent, now): (Option<Nanos>, Nanos),
    arrivals: &mut Arrivals,
    counters: &ArrivalCounters,
) -> Arrival {
    let known = (0..1 << 40).contains(&ahead);
    let number = awaited.checked_add_signed(ahead).filter(|_| known || ahead < 0);
    // What is above is the phase's.
    let number = number.filter(|number| *number < 1 << 56);
    let is_new = match number {
        Some(number) if !known => arrivals.belated(number, counters),
        _ => true,
    };
    let transit = sent.filter(|_| number.is_some() && is_new).map(|sent| transit(sent, now));
    if let Some(transit) = transit {
        arrivals.transit(transit, counters);
    }
    Arrival { number, belated: !known, is_new, transit }
}

fn length(run: &Range<u64>) -> usize {
    burst_class(run.end - run.start)
}

/// The time from one instant to another, of clocks whose instants are those since the phase began.
fn transit(sent: Nanos, received: Nanos) -> i64 {
    received.wrapping_sub(sent).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use wirecost_model::measure::BURST_CLASSES;

    use super::*;

    /// Lengths of the runs of missing numbers, by class.
    fn bursts(missing: &BTreeSet<u64>) -> [i64; BURST_CLASSES] {
        let mut classes = [0; BURST_CLASSES];
        let mut run = 0u64;
        for number in missing {
            run += 1;
            if !missing.contains(&(number + 1)) {
                classes[burst_class(run)] += 1;
                run = 0;
            }
        }
        classes
    }

    proptest! {
        /// Whatever arrives in whichever order, as often as it may: what is counted is what a list of all
        /// numbers tells.
        #[test]
        fn arrivals_are_told_apart(numbers in prop::collection::vec(0u64..60, 0..200)) {
            let (counters, mut arrivals) = (ArrivalCounters::default(), Arrivals::new());
            let (mut awaited, mut reordered, mut duplicated) = (0, 0, 0);
            let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
            for number in numbers {
                let is_new = seen.insert(number);
                if number >= awaited {
                    arrivals.passed_over(awaited..number, &counters);
                    arrivals.expected(number);
                    missing.extend(awaited..number);
                    awaited = number + 1;
                } else {
                    prop_assert_eq!(arrivals.belated(number, &counters), is_new);
                    missing.remove(&number);
                    *(if is_new { &mut reordered } else { &mut duplicated }) += 1;
                }
                prop_assert_eq!(counters.bursts(), bursts(&missing));
            }
            prop_assert_eq!(counters.reordered.get(), reordered);
            prop_assert_eq!(counters.duplicated.get(), duplicated);
        }
    }

    #[test]
    fn what_was_given_up_is_late_and_in_order() {
        let (counters, mut arrivals) = (ArrivalCounters::default(), Arrivals::new());
        arrivals.expected(0);
        arrivals.passed_over(1..5, &counters);
        assert!(arrivals.belated(1, &counters));
        assert_eq!((counters.reordered.get(), counters.duplicated.get()), (0, 0));
        assert!(!arrivals.belated(1, &counters));
        assert_eq!((counters.reordered.get(), counters.duplicated.get()), (0, 1));
    }

    #[test]
    fn of_what_is_forgotten_nothing_is_told() {
        let (counters, mut arrivals) = (ArrivalCounters::default(), Arrivals::new());
        for number in 0..=RUNS as u64 {
            arrivals.passed_over(2 * number..2 * number + 1, &counters);
            arrivals.expected(2 * number + 1);
        }
        assert!(arrivals.belated(0, &counters));
        assert!(!arrivals.belated(1, &counters));
        assert_eq!((counters.reordered.get(), counters.duplicated.get()), (0, 1));
        assert_eq!(counters.bursts()[0], RUNS as i64 + 1);
    }

    /// The example values were computed by the recurrence of RFC 3550, A.8, in integers.
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let (counters, mut arrivals) = (ArrivalCounters::default(), Arrivals::new());
        let (mut last, mut exact, mut sum) = (1_000i64, 0f64, 0f64);
        for transit in [1_000, 17_000, 1_000, 5_000, 5_000, -3_000, 900_000] {
            arrivals.transit(transit, &counters);
            exact += ((transit - last).abs() as f64 - exact) / 16.0;
            sum += exact;
            last = transit;
        }
        assert_eq!(counters.jitters.get(), 6);
        let told = counters.jitter_sum.get() as f64;
        assert!((told - sum).abs() <= 7.0, "{told} {sum}");
    }
}
