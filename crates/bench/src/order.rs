//! The order in which what is compared has its turns: another in each round.

/// The order of turns, by a seed.
#[derive(Debug)]
pub(crate) struct Order(u64);

impl Order {
    pub(crate) fn of(seed: u64) -> Self {
        // It would stay at nought.
        Self(seed.max(1))
    }

    /// Another order each time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_another_each_time_and_the_same_for_a_seed() {
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
