//! Rounds in which everything that is compared has its turn: in which order, and who is left out.

/// The order of turns, from a seed.
#[derive(Debug)]
pub(crate) struct Order(u64);

impl Order {
    pub(crate) fn of(seed: u64) -> Self {
        // It would stay at nought.
        Self(seed.max(1))
    }

    /// Returns a different order each time.
    pub(crate) fn shuffle<T>(&mut self, turns: &mut [T]) {
        for last in (1..turns.len()).rev() {
            // xorshift64*, which is enough to be in step with nothing.
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            turns.swap(last, (drawn % (last as u64 + 1)) as usize);
        }
    }
}

/// A contender with this many failures and no success is left out of further rounds.
const GIVEN_UP: usize = 2;

/// Whether it is of no use to try again; of samples by round, none where one failed.
pub(crate) fn is_given_up<T>(samples: &[Option<T>]) -> bool {
    samples.len() >= GIVEN_UP && samples.iter().all(Option::is_none)
}

/// Number of failures, and the last reason.
pub(crate) fn failures<T>(samples: &[Option<T>], why: Option<&str>) -> Option<String> {
    let count = samples.iter().filter(|sample| sample.is_none()).count();
    let end = if is_given_up(samples) { ", then left out" } else { "" };
    why.filter(|_| count > 0).map(|why| format!("failed {count} times{end}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_that_never_succeeds_is_left_out() {
        assert!(is_given_up::<()>(&[None, None]));
        assert!(!is_given_up::<()>(&[None]));
        assert!(!is_given_up(&[None, Some(()), None]));
        assert_eq!(
            failures::<()>(&[None, None], Some("no luck")).unwrap(),
            "failed 2 times, then left out: no luck"
        );
        assert_eq!(failures(&[Some(())], None), None);
    }

    #[test]
    fn the_order_differs_each_time_and_depends_on_the_seed_alone() {
        let of = |seed: u64| {
            let mut order = Order::of(seed);
            [(); 2].map(|()| {
                let mut turns: Vec<u32> = (0..20).collect();
                order.shuffle(&mut turns);
                turns
            })
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7)[0], of(7)[1]);
        assert_ne!(of(7), of(8));
        let mut sorted = of(7)[0].clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
