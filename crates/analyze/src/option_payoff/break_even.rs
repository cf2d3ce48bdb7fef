//! The size above (or below) which an option pays off: where the ratio of the cost with it to the cost without it is 1.
//!
//! Between two sizes the logarithm of the ratio is interpolated along the logarithm of the size. The interval comes from
//! a parametric bootstrap: each draw has a plausible ratio at every size, and crosses somewhere.

use crate::statistics::bootstrap;
use crate::statistics::moderated::Effect;

/// What is known about one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Saves,
    Costs,
    /// No significant difference.
    Unclear,
}

/// The ratio of costs at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At {
    /// Bytes.
    pub size: f64,
    pub effect: Effect,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BreakEven {
    /// The option saves at the smallest and the largest size, and costs at none.
    BelowSmallest,
    /// The option costs at the smallest and the largest size, and saves at none.
    AboveLargest,
    At(Crossing),
    /// Pairs of sizes between which it changes whether the option saves, in bytes.
    SeveralTimes(Vec<(f64, f64)>),
    /// No significant difference at the smallest or the largest size, or at any.
    NotResolved,
}

/// The only size at which the option costs as much as it saves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Bytes.
    pub size: f64,
    /// 95%.
    pub interval: (f64, f64),
    /// Whether the option saves at larger sizes; else it saves at smaller ones.
    pub saves_above: bool,
}

/// The break-even point, from sizes in ascending order.
#[must_use]
pub fn break_even(sizes: &[At]) -> BreakEven {
    let known: Vec<usize> =
        (0..sizes.len()).filter(|place| sizes[*place].verdict != Verdict::Unclear).collect();
    let changes: Vec<(usize, usize)> = known
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .filter(|(a, b)| sizes[*a].verdict != sizes[*b].verdict)
        .collect();
    match changes.as_slice() {
        [] if known.is_empty() => BreakEven::NotResolved,
        [] => without_a_crossing(sizes),
        [(a, b)] => crossing(&sizes[*a..=*b]),
        _ => {
            let between = changes.iter().map(|(a, b)| (sizes[*a].size, sizes[*b].size));
            BreakEven::SeveralTimes(between.collect())
        }
    }
}

/// Of sizes that all say the same, or nothing.
fn without_a_crossing(sizes: &[At]) -> BreakEven {
    let ends = (sizes.first().map(|at| at.verdict), sizes.last().map(|at| at.verdict));
    match ends {
        (Some(Verdict::Saves), Some(Verdict::Saves)) => BreakEven::BelowSmallest,
        (Some(Verdict::Costs), Some(Verdict::Costs)) => BreakEven::AboveLargest,
        _ => BreakEven::NotResolved,
    }
}

/// Between sizes of which the first and the last differ in their verdict, and no other has one.
fn crossing(sizes: &[At]) -> BreakEven {
    let saves_above = sizes.last().is_some_and(|at| at.verdict == Verdict::Saves);
    let places: Vec<f64> = sizes.iter().map(|at| at.size.ln()).collect();
    let zero = |ratios: &[f64]| zero(&places, ratios, saves_above);
    let estimates: Vec<f64> = sizes.iter().map(|at| at.effect.log_ratio).collect();
    let draw = |random: &mut fastrand::Rng| {
        let one = |Effect { log_ratio, error, freedom, .. }| match error > 0.0 {
            true => log_ratio + error * bootstrap::student(freedom, random),
            false => log_ratio,
        };
        let drawn: Vec<f64> = sizes.iter().map(|at| at.effect).map(one).collect();
        Some(zero(&drawn))
    };
    match bootstrap::interval(draw) {
        Some((low, high)) => BreakEven::At(Crossing {
            size: zero(&estimates).exp(),
            interval: (low.exp(), high.exp()),
            saves_above,
        }),
        None => BreakEven::NotResolved,
    }
}

/// Where the ratios, joined by straight lines, are 0; of several places, the middle one. A curve that does not cross ends
/// at the side to which it points.
fn zero(places: &[f64], ratios: &[f64], saves_above: bool) -> f64 {
    let (first, last) = (places[0], places[places.len() - 1]);
    let mut zeros = Vec::new();
    for (place, ratio) in places.windows(2).zip(ratios.windows(2)) {
        if (ratio[0] < 0.0) != (ratio[1] < 0.0) {
            zeros.push(place[0] + (place[1] - place[0]) * ratio[0] / (ratio[0] - ratio[1]));
        }
    }
    match zeros.get(zeros.len() / 2) {
        Some(zero) => *zero,
        None if (ratios[0] < 0.0) == saves_above => first,
        None => last,
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::statistics::bootstrap::normal;
    use crate::statistics::moderated::{Pairs, paired_effects};

    const SIZES: [f64; 5] = [64.0, 512.0, 4096.0, 16384.0, 65536.0];

    /// Runs of a surface: differences of logarithms at each size, `pairs` of each with this deviation.
    fn measured(
        surface: impl Fn(f64) -> f64,
        pairs: usize,
        noise: f64,
        random: &mut Rng,
    ) -> Vec<At> {
        let differences = |size: &f64| Pairs {
            metric: 0,
            differences: (0..pairs).map(|_| surface(*size) + noise * normal(random)).collect(),
        };
        let cells: Vec<Pairs> = SIZES.iter().map(differences).collect();
        let effects = paired_effects(&cells);
        let at = |(size, effect): (&f64, &Effect)| At {
            size: *size,
            effect: *effect,
            verdict: match effect.interval(0.05) {
                (_, high) if high < 1.0 => Verdict::Saves,
                (low, _) if low > 1.0 => Verdict::Costs,
                _ => Verdict::Unclear,
            },
        };
        SIZES.iter().zip(&effects).map(at).collect()
    }

    fn exact(ratios: [f64; 5]) -> Vec<At> {
        let at = |(size, ratio): (f64, f64)| At {
            size,
            effect: Effect { log_ratio: ratio.ln(), error: 0.0, freedom: 4.0, runs: 5.0 },
            verdict: match ratio {
                ratio if ratio < 1.0 => Verdict::Saves,
                ratio if ratio > 1.0 => Verdict::Costs,
                _ => Verdict::Unclear,
            },
        };
        SIZES.into_iter().zip(ratios).map(at).collect()
    }

    /// A cost that falls by the same part with each doubling of the size, and is 1 at 7 KiB.
    fn falling(size: f64) -> f64 {
        -0.05 * (size / 7168.0).log2()
    }

    #[test]
    fn without_noise_the_crossing_is_exact() {
        let sizes = exact(SIZES.map(|size| falling(size).exp()));
        let BreakEven::At(crossing) = break_even(&sizes) else { panic!("{sizes:?}") };
        assert!((crossing.size - 7168.0).abs() < 1e-6 && crossing.saves_above);
        assert!((crossing.interval.0 - 7168.0).abs() < 1e-6, "{crossing:?}");
        let sizes = exact(SIZES.map(|size| (-falling(size)).exp()));
        let BreakEven::At(crossing) = break_even(&sizes) else { panic!("{sizes:?}") };
        assert!((crossing.size - 7168.0).abs() < 1e-6 && !crossing.saves_above);
    }

    #[test]
    fn what_does_not_cross_once_is_told_so() {
        let several = vec![(64.0, 4096.0), (4096.0, 16384.0)];
        for (ratios, expected) in [
            ([0.9, 0.9, 0.8, 0.7, 0.6], BreakEven::BelowSmallest),
            ([0.9, 1.0, 0.8, 0.7, 0.6], BreakEven::BelowSmallest),
            ([1.2, 1.1, 1.1, 1.1, 1.1], BreakEven::AboveLargest),
            ([1.2, 1.0, 0.9, 1.1, 1.1], BreakEven::SeveralTimes(several)),
            ([1.0, 1.0, 1.0, 1.0, 1.0], BreakEven::NotResolved),
            // It may cross below 512 bytes, or nowhere.
            ([1.0, 0.9, 0.8, 0.7, 0.6], BreakEven::NotResolved),
            ([1.2, 1.1, 1.1, 1.1, 1.0], BreakEven::NotResolved),
        ] {
            assert_eq!(break_even(&exact(ratios)), expected, "{ratios:?}");
        }
        assert_eq!(break_even(&[]), BreakEven::NotResolved);
    }

    #[test]
    fn intervals_of_a_surface_with_noise_of_1_percent_cover_its_crossing() {
        for (pairs, truth, least) in [(3, 7168.0, 372), (5, 7168.0, 372), (5, 700.0, 372)] {
            let mut random = Rng::with_seed(7 + pairs as u64);
            let (mut held, mut found, mut widths) = (0, 0, Vec::new());
            for _ in 0..400 {
                let surface = |size: f64| -0.05 * (size / truth).log2();
                let sizes = measured(surface, pairs, 0.01, &mut random);
                let BreakEven::At(Crossing { size, interval: (low, high), saves_above }) =
                    break_even(&sizes)
                else {
                    continue;
                };
                assert!(saves_above && low <= size && size <= high);
                found += 1;
                held += u32::from(low <= truth && truth <= high);
                widths.push(high / low);
            }
            widths.sort_by(f64::total_cmp);
            // 95% of 400 are 380, with a deviation of 4.
            assert!(found == 400 && held >= least, "{pairs} pairs: {held} of {found}");
            assert!(widths[200] < 2.0, "{pairs} pairs: {}", widths[200]);
        }
    }

    #[test]
    fn a_difference_of_nothing_has_no_crossing() {
        // With an error of 5% at each of 5 sizes, which callers correct for.
        let mut random = Rng::with_seed(5);
        let none = |_: f64| 0.0;
        let crossings = (0..400).filter(|_| {
            let sizes = measured(none, 5, 0.01, &mut random);
            !matches!(break_even(&sizes), BreakEven::NotResolved)
        });
        let crossings = crossings.count();
        assert!(crossings < 20, "{crossings} of 400");
    }

    #[test]
    fn a_curved_surface_crosses_between_the_sizes_around_it() {
        // A call costs 300 cycles more, a byte a fifth less: even at 1500 bytes of one cycle each.
        let surface = |size: f64| ((1300.0 + 0.8 * size) / (1000.0 + size)).ln();
        let mut random = Rng::with_seed(9);
        for _ in 0..50 {
            let sizes = measured(surface, 5, 0.01, &mut random);
            let BreakEven::At(crossing) = break_even(&sizes) else { panic!("{sizes:?}") };
            assert!((512.0..4096.0).contains(&crossing.size), "{crossing:?}");
            // Straight lines between the sizes put it a tenth too high.
            assert!((crossing.size / 1650.0 - 1.0).abs() < 0.12, "{crossing:?}");
        }
    }
}
