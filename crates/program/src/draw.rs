//! Random numbers that both ends of a connection draw alike, without telling each other.
//!
//! A draw depends on nothing but its key and its place, so either end can draw any one of them in
//! any order: a receiver knows the size of the message that its sender has drawn.

/// Mixes 64 bits so that each input bit changes half of the output bits (the finaliser of
/// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A key made of parts, in order.
pub fn key(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |key, &part| mix(key ^ part))
}

/// A number from `min` to `max`, both included, uniform but for a bias below 2^-32 for ranges below
/// 2^32 (multiply-shift instead of division: D. Lemire, "Fast random integer generation in an
/// interval", 2019).
#[inline]
pub fn between(key: u64, min: u64, max: u64) -> u64 {
    let span = u128::from(max.saturating_sub(min)) + 1;
    min + ((u128::from(mix(key)) * span) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stays_within_its_bounds(key: u64, min in 0u64..1 << 40, span in 0u64..1 << 40) {
            let drawn = between(key, min, min + span);
            prop_assert!((min..=min + span).contains(&drawn));
        }
    }

    #[test]
    fn is_uniform() {
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|i| counts[between(key(&[7, i]), 0, 9) as usize] += 1);
        // Chi-squared with 9 degrees of freedom: 27.9 is passed once in a thousand, and the draws
        // are the same each time.
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 27.9, "{chi}: {counts:?}");
    }
}
