//! Frames on their way to a line, from or to a host that is farther away than the others. Pure: it has no clock of its own.

use std::collections::{BTreeMap, VecDeque};

use wirecost_model::link::MAX_HELD;

use crate::clock::Instant;

/// Frames of one thread that have not arrived at their lines. `F` is what the caller keeps of a frame.
#[derive(Debug)]
pub(crate) struct Approach<F> {
    /// By the delay: frames of one delay stay in order.
    ways: BTreeMap<u64, VecDeque<Coming<F>>>,
    bytes: u64,
}

#[derive(Debug)]
struct Coming<F> {
    due: Instant,
    bytes: u64,
    frame: F,
}

impl<F> Default for Approach<F> {
    fn default() -> Self {
        Self { ways: BTreeMap::new(), bytes: 0 }
    }
}

impl<F> Approach<F> {
    /// A frame sets out.
    ///
    /// # Errors
    /// The frame: the frames on the way have more bytes than a link may hold.
    pub(crate) fn depart(
        &mut self,
        now: Instant,
        delay: u64,
        bytes: u64,
        frame: F,
    ) -> Result<(), F> {
        if self.bytes + bytes > MAX_HELD {
            return Err(frame);
        }
        self.bytes += bytes;
        let coming = Coming { due: now + delay, bytes, frame };
        self.ways.entry(delay).or_default().push_back(coming);
        Ok(())
    }

    /// When the next frame arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.ways.values().filter_map(|way| way.front()).map(|coming| coming.due).min()
    }

    /// The next frame that has arrived by `now`, and when.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<(Instant, F)> {
        let due = |way: &VecDeque<Coming<F>>| way.front().map_or(Instant::MAX, |first| first.due);
        let way = self.ways.values_mut().min_by_key(|way| due(way))?;
        let coming = if due(way) <= now { way.pop_front()? } else { return None };
        self.bytes -= coming.bytes;
        Some((coming.due, coming.frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_the_order_of_their_arrival() {
        let mut approach = Approach::default();
        assert_eq!((approach.next(), approach.arrived(1_000)), (None, None));
        for (now, delay) in [(0, 100), (10, 20), (15, 100), (20, 20)] {
            approach.depart(now, delay, 1_500, (now, delay)).unwrap();
        }
        assert_eq!(approach.next(), Some(30));
        assert_eq!(approach.arrived(29), None);
        let arrived: Vec<_> = std::iter::from_fn(|| approach.arrived(1_000)).collect();
        assert_eq!(arrived, [(30, (10, 20)), (40, (20, 20)), (100, (0, 100)), (115, (15, 100))]);
        assert_eq!((approach.next(), approach.bytes), (None, 0));
    }

    #[test]
    fn it_holds_no_more_than_a_link() {
        let mut approach = Approach::default();
        approach.depart(0, 1, MAX_HELD, 'a').unwrap();
        assert_eq!(approach.depart(0, 1, 1, 'b'), Err('b'));
        assert_eq!(approach.arrived(1), Some((1, 'a')));
        approach.depart(0, 1, 1, 'c').unwrap();
    }
}
