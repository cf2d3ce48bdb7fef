//! Continuous distributions as tables of their quantiles: made once before a run, drawn from with
//! integers only.
//!
//! Both ends of a connection have to draw the same numbers. So everything here is arithmetic that
//! every machine does alike: the logarithms are those of `libm` in Rust and not those of the C
//! library that a host happens to have.

/// Each half of a distribution has points at tail probabilities of 2^-2 to 2^-21, of which each
/// octave is cut into 32: both tails are as exact as the middle.
const OCTAVES: usize = 20;
const STEPS_LOG2: u32 = 5;
const STEPS: usize = 1 << STEPS_LOG2;
/// Points of one half: its extreme first, the median last.
const POINTS: usize = OCTAVES * STEPS + 2;
/// How rare the extremes are: less likely values are not drawn.
const RAREST: f64 = 1.0 / (1u64 << 33) as f64;

/// Bits of a fraction that points have, so that small numbers are not rounded twice.
const FRACTION: u32 = 16;
/// Values end here (39 hours, where they are nanoseconds).
const LARGEST: u64 = 1 << (63 - FRACTION);

/// A distribution. What lies between two points is interpolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantiles {
    /// Of the lower half, then of the upper half.
    points: Box<[u64]>,
}

impl Quantiles {
    /// `quantile(p, upper)` is the value below which (above which, if upper) lies the part `p`, at
    /// most a half, of the distribution.
    fn new(quantile: impl Fn(f64, bool) -> f64, min: u64, max: u64) -> Self {
        let (min, max) = (min.min(LARGEST) as f64, max.min(LARGEST) as f64);
        let point = |p: f64, upper: bool| {
            (quantile(p, upper).clamp(min, max) * f64::from(1u32 << FRACTION)).round() as u64
        };
        let tails = || {
            let steps = (0..OCTAVES).rev().flat_map(|octave| {
                let octave_from = 0.25 / (1u64 << octave) as f64;
                (0..STEPS).map(move |step| octave_from * (1.0 + step as f64 / STEPS as f64))
            });
            std::iter::once(RAREST).chain(steps).chain(std::iter::once(0.5))
        };
        let lower = tails().map(|p| point(p, false));
        let upper = tails().map(|p| point(p, true));
        Self { points: lower.chain(upper).collect() }
    }

    /// Of this mean; what is outside of `min` and `max` is made `min` or `max`.
    pub fn exponential(mean: u64, min: u64, max: u64) -> Self {
        let mean = mean as f64;
        let quantile = |p: f64, upper: bool| {
            if upper { -mean * libm::log(p) } else { -mean * libm::log1p(-p) }
        };
        Self::new(quantile, min, max)
    }

    /// `sigma` is the standard deviation of the natural logarithm; what is outside of `min` and
    /// `max` is made `min` or `max`.
    pub fn lognormal(median: u64, sigma: f64, min: u64, max: u64) -> Self {
        let median = median as f64;
        let quantile = |p: f64, upper: bool| {
            let z = normal_tail(p);
            median * libm::exp(if upper { sigma * z } else { -sigma * z })
        };
        Self::new(quantile, min, max)
    }

    /// The largest number that can be drawn.
    pub fn max(&self) -> u64 {
        self.points.iter().max().map_or(0, |point| (point + (1 << (FRACTION - 1))) >> FRACTION)
    }

    /// The number that belongs to these 64 random bits.
    #[inline]
    pub fn draw(&self, word: u64) -> u64 {
        let half = if word >> 63 == 1 { POINTS } else { 0 };
        let rest = word << 1;
        let octave = rest.leading_zeros();
        let (below, fraction) = if octave < OCTAVES as u32 {
            // Behind the leading one: the step, and how far into it.
            let behind = rest << octave << 1;
            let step = (behind >> (64 - STEPS_LOG2)) as usize;
            let place = 1 + (OCTAVES - 1 - octave as usize) * STEPS + step;
            (place, (behind << STEPS_LOG2) >> 32)
        } else {
            (0, (rest << OCTAVES) >> 32)
        };
        let (from, to) = (self.points[half + below], self.points[half + below + 1]);
        let within = ((i128::from(to) - i128::from(from)) * i128::from(fraction)) >> 32;
        let value = (i128::from(from) + within) as u64;
        (value + (1 << (FRACTION - 1))) >> FRACTION
    }
}

/// How many standard deviations from its mean the tail of a normal distribution begins that holds
/// `p` of it, for p up to a half (M. Wichura, "Algorithm AS 241", 1988; to some 1 in 10^16).
fn normal_tail(p: f64) -> f64 {
    let ratio = |numerator: [f64; 8], denominator: [f64; 8], x: f64| {
        let polynomial = |c: [f64; 8]| c.iter().rev().fold(0.0, |sum, c| sum * x + c);
        polynomial(numerator) / polynomial(denominator)
    };
    let q = 0.5 - p;
    if q <= 0.425 {
        return q * ratio(CENTRE.0, CENTRE.1, 0.180625 - q * q);
    }
    let r = (-libm::log(p)).sqrt();
    if r <= 5.0 { ratio(MIDDLE.0, MIDDLE.1, r - 1.6) } else { ratio(FAR.0, FAR.1, r - 5.0) }
}

const CENTRE: ([f64; 8], [f64; 8]) = (
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_854,
    ],
);

const MIDDLE: ([f64; 8], [f64; 8]) = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_545,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);

const FAR: ([f64; 8], [f64; 8]) = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_7e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;

    const N: u64 = 200_000;

    fn drawn(quantiles: &Quantiles) -> Vec<u64> {
        let mut drawn: Vec<u64> =
            (0..N).map(|i| quantiles.draw(draw::mix(draw::key(&[11, i])))).collect();
        drawn.sort_unstable();
        drawn
    }

    /// Largest distance between what was drawn and a distribution (Kolmogorov and Smirnov).
    fn distance(drawn: &[u64], below: impl Fn(f64) -> f64) -> f64 {
        let n = drawn.len() as f64;
        let mut largest: f64 = 0.0;
        for (i, &value) in drawn.iter().enumerate() {
            // A whole number stands for what rounds to it.
            if drawn.get(i + 1) != Some(&value) {
                largest = largest.max(((i + 1) as f64 / n - below(value as f64 + 0.5)).abs());
            }
        }
        largest
    }

    /// What the distance passes once in a thousand.
    fn critical() -> f64 {
        1.95 / (N as f64).sqrt()
    }

    fn normal_below(z: f64) -> f64 {
        0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
    }

    #[test]
    fn tails_of_the_normal_distribution_are_those_of_the_error_function() {
        for p in [0.5, 0.3, 0.1, 0.01, 1e-4, 1e-6, 1e-9] {
            let back = 1.0 - normal_below(normal_tail(p));
            assert!((back - p).abs() <= 1e-9 * p + 1e-15, "{p}: {back}");
        }
        assert!((normal_tail(0.025) - 1.959_963_984_540_054).abs() < 1e-14);
    }

    #[test]
    fn exponential_is_exponential() {
        let mean = 1e6;
        let drawn = drawn(&Quantiles::exponential(1_000_000, 0, u64::MAX));
        let distance = distance(&drawn, |x| 1.0 - (-x / mean).exp());
        assert!(distance < critical(), "{distance}");
        // The standard error of the mean is 1/sqrt(N) of it: four of them.
        let average = drawn.iter().sum::<u64>() as f64 / N as f64;
        assert!((average / mean - 1.0).abs() < 4.0 / (N as f64).sqrt(), "{average}");
        for part in [0.5f64, 0.9, 0.99] {
            let expected = -(1.0 - part).ln();
            let quantile = drawn[(part * N as f64) as usize] as f64 / mean;
            // Four standard errors of a quantile: sqrt(p(1-p)/N) over the density there.
            let error = 4.0 * (part * (1.0 - part) / N as f64).sqrt() / (1.0 - part);
            assert!((quantile - expected).abs() < error, "{part}: {quantile}");
        }
    }

    #[test]
    fn lognormal_is_lognormal_within_its_bounds() {
        let (median, sigma, min, max) = (8192u64, 1.2, 64u64, 1u64 << 20);
        let drawn = drawn(&Quantiles::lognormal(median, sigma, min, max));
        let z = |x: f64| (x / median as f64).ln() / sigma;
        let below = |x: f64| if x >= max as f64 { 1.0 } else { normal_below(z(x)) };
        let distance = distance(&drawn, below);
        assert!(distance < critical(), "{distance}");
        assert!(drawn[0] >= min && drawn[N as usize - 1] <= max);
        // E[X; a < X < b] of a lognormal, with all that is outside at the bounds.
        let (a, b) = (z(min as f64), z(max as f64));
        let within =
            (sigma * sigma / 2.0).exp() * (normal_below(b - sigma) - normal_below(a - sigma));
        let expected =
            median as f64 * within + min as f64 * normal_below(a) + max as f64 * normal_below(-b);
        let average = drawn.iter().sum::<u64>() as f64 / N as f64;
        // The standard deviation is 1.8 times the mean.
        assert!((average / expected - 1.0).abs() < 4.0 * 1.8 / (N as f64).sqrt(), "{average}");
    }

    #[test]
    fn small_numbers_are_not_rounded_twice() {
        // An exponential of mean 3, rounded: P(0) = 1 - e^(-1/6), P(n) = e^(-(n-1/2)/3)(1 - e^(-1/3)).
        let drawn = drawn(&Quantiles::exponential(3, 0, u64::MAX));
        let mut chi = 0.0;
        for n in 0..8u64 {
            let from = if n == 0 { 0.0 } else { n as f64 - 0.5 };
            let expected = N as f64 * ((-from / 3.0).exp() - (-(n as f64 + 0.5) / 3.0).exp());
            let got = drawn.iter().filter(|&&d| d == n).count() as f64;
            chi += (got - expected).powi(2) / expected;
        }
        // 26.1 with 8 degrees of freedom is passed once in a thousand.
        assert!(chi < 26.1, "{chi}");
    }

    #[test]
    fn larger_words_draw_larger_numbers_in_the_upper_half() {
        let quantiles = Quantiles::exponential(1_000_000, 5, 20_000_000);
        let extremes = [0, u64::MAX >> 1, 1 << 63, u64::MAX].map(|word| quantiles.draw(word));
        assert_eq!(extremes[0], 5);
        assert_eq!(extremes[2], 20_000_000);
        // Both halves meet at the median.
        assert!(extremes[1].abs_diff(693_147) < 10 && extremes[3].abs_diff(693_147) < 10);
    }
}
