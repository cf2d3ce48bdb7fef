//! The Universal Scalability Law (N. Gunther, Guerrilla Capacity Planning, 2007): what `n` do together is
//! `rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))`.

use fastrand::Rng;

use super::{bootstrap, permutation};

/// Parameters of the law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// Throughput of one: lambda.
    pub rate: f64,
    /// Serialized share: sigma.
    pub contention: f64,
    /// Cost of pairwise coordination: kappa.
    pub coherency: f64,
}

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    pub law: Law,
    /// 95% intervals of the parameters.
    pub rate: (f64, f64),
    pub contention: (f64, f64),
    pub coherency: (f64, f64),
    /// 95% interval of the peak's position; `None` if it may not have a peak.
    pub peak: Option<(f64, f64)>,
    /// Share of the variance of the logarithms that it explains.
    pub explained: f64,
    /// p-value of a constant in place of the law.
    pub p_value: f64,
}

impl Law {
    #[must_use]
    pub fn at(&self, n: f64) -> f64 {
        let slower = self.contention * (n - 1.0) + self.coherency * n * (n - 1.0);
        self.rate * n / (1.0 + slower)
    }

    /// Position of the maximum; `None` if it grows without limit.
    #[must_use]
    pub fn peak(&self) -> Option<f64> {
        (self.coherency > 0.0).then(|| ((1.0 - self.contention).max(0.0) / self.coherency).sqrt())
    }

    /// The law of least relative squares: `n / y` is linear in three terms, of which none is negative.
    /// With weights by `y` itself noise would be favoured that makes it larger, so they are taken from
    /// the law that is found, and that again.
    fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let mut weights: Vec<f64> = points.iter().map(|(n, y)| y / n).collect();
        let mut law = None;
        for _ in 0..3 {
            let found = least_squares(points, &weights)?;
            weights = points.iter().map(|(n, _)| found.at(*n) / n).collect();
            law = Some(found);
        }
        law
    }
}

/// Each of the last two terms is in or not: the best of these fits in which no term is negative.
fn least_squares(points: &[(f64, f64)], weights: &[f64]) -> Option<Law> {
    let terms = |n: f64| [1.0, n - 1.0, n * (n - 1.0)];
    let mut best: Option<(f64, [f64; 3])> = None;
    for chosen in [&[0, 1, 2][..], &[0, 1], &[0, 2], &[0]] {
        let mut matrix = [[0.0; 4]; 3];
        for ((n, y), weight) in points.iter().zip(weights) {
            let terms = terms(*n);
            for (row, a) in chosen.iter().enumerate() {
                for (column, b) in chosen.iter().enumerate() {
                    matrix[row][column] += weight * weight * terms[*a] * terms[*b];
                }
                matrix[row][3] += weight * weight * terms[*a] * n / y;
            }
        }
        let Some(solved) = solve(matrix, chosen.len()) else { continue };
        let mut all = [0.0; 3];
        for (place, value) in chosen.iter().zip(solved) {
            all[*place] = value;
        }
        if all[0] <= 0.0 || all.iter().any(|value| *value < 0.0) {
            continue;
        }
        let error = points.iter().zip(weights).map(|((n, y), weight)| {
            let fitted: f64 = terms(*n).iter().zip(all).map(|(term, value)| term * value).sum();
            (weight * (n / y - fitted)).powi(2)
        });
        let error: f64 = error.sum();
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, all));
        }
    }
    let (_, [a, b, c]) = best?;
    Some(Law { rate: 1.0 / a, contention: b / a, coherency: c / a })
}

/// By elimination, of the first `size` rows; `None` where they say the same.
fn solve(mut matrix: [[f64; 4]; 3], size: usize) -> Option<[f64; 3]> {
    for pivot in 0..size {
        let largest = (pivot..size)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, largest);
        let row = matrix[pivot];
        if row[pivot].abs() < 1e-12 * row[3].abs().max(f64::MIN_POSITIVE) {
            return None;
        }
        for other in (0..size).filter(|other| *other != pivot) {
            let factor = matrix[other][pivot] / row[pivot];
            for (value, of_row) in matrix[other].iter_mut().zip(row) {
                *value -= factor * of_row;
            }
        }
    }
    let mut solved = [0.0; 3];
    for (place, value) in solved.iter_mut().enumerate().take(size) {
        *value = matrix[place][3] / matrix[place][place];
    }
    solved.iter().all(|value| value.is_finite()).then_some(solved)
}

/// Fits the law to numbers and what they did together. `None` for fewer than five different numbers, or
/// values that are not positive.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let mut numbers: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    if numbers.len() < 5 || points.iter().any(|(n, y)| *n < 1.0 || *y <= 0.0) {
        return None;
    }
    let law = Law::fit(points)?;
    let explained = explained(points, &law);
    let mut values: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    let p_value = permutation::p_value(explained, |random: &mut Rng| {
        random.shuffle(&mut values);
        let shuffled: Vec<(f64, f64)> =
            points.iter().zip(&values).map(|((n, _), y)| (*n, *y)).collect();
        Law::fit(&shuffled).map_or(f64::NEG_INFINITY, |law| self::explained(&shuffled, &law))
    });
    // Residuals are smaller than errors by what the three parameters took.
    let count = points.len() as f64;
    let wider = (count / (count - 3.0)).sqrt();
    let residuals: Vec<f64> = points.iter().map(|(n, y)| wider * (y / law.at(*n)).ln()).collect();
    let laws = bootstrap::draws(|random: &mut Rng| {
        let errors = bootstrap::resample(&residuals, random);
        let drawn: Vec<(f64, f64)> =
            points.iter().zip(errors).map(|((n, _), e)| (*n, law.at(*n) * e.exp())).collect();
        Law::fit(&drawn)
    });
    Some(Fit {
        law,
        rate: bootstrap::middle(&laws, |law| Some(law.rate))?,
        contention: bootstrap::middle(&laws, |law| Some(law.contention))?,
        coherency: bootstrap::middle(&laws, |law| Some(law.coherency))?,
        peak: bootstrap::middle(&laws, Law::peak),
        explained,
        p_value,
    })
}

fn explained(points: &[(f64, f64)], law: &Law) -> f64 {
    let logs: Vec<f64> = points.iter().map(|(_, y)| y.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let all: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let rest: f64 =
        points.iter().zip(&logs).map(|((n, _), log)| (log - law.at(*n).ln()).powi(2)).sum();
    if all > 0.0 { 1.0 - rest / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    fn study(law: &Law, noise: f64, random: &mut Rng) -> Vec<(f64, f64)> {
        let runs = NUMBERS.iter().flat_map(|n| [*n; 3]);
        runs.map(|n| (n, law.at(n) * (noise * bootstrap::normal(random)).exp())).collect()
    }

    #[test]
    fn exact_data_recover_the_law() {
        for law in [
            Law { rate: 9.5e8, contention: 0.02, coherency: 1e-4 },
            Law { rate: 1e9, contention: 0.05, coherency: 0.0 },
            Law { rate: 3.0, contention: 0.0, coherency: 0.0 },
        ] {
            let points: Vec<(f64, f64)> = NUMBERS.iter().map(|n| (*n, law.at(*n))).collect();
            let fit = fit(&points).unwrap();
            assert!((fit.law.rate / law.rate - 1.0).abs() < 1e-6, "{fit:?}");
            assert!((fit.law.contention - law.contention).abs() < 1e-6, "{fit:?}");
            assert!((fit.law.coherency - law.coherency).abs() < 1e-8, "{fit:?}");
            assert!(fit.explained > 0.999 && fit.p_value < 0.001, "{fit:?}");
        }
    }

    #[test]
    fn intervals_cover_the_law() {
        let law = Law { rate: 9.5e8, contention: 0.02, coherency: 1e-4 };
        let peak = law.peak().unwrap();
        assert!((peak - 98.99).abs() < 0.01);
        let mut random = Rng::with_seed(29);
        let mut holds = [0; 4];
        for _ in 0..100 {
            let fit = fit(&study(&law, 0.03, &mut random)).unwrap();
            let inside =
                |(low, high): (f64, f64), value: f64| u32::from(low <= value && value <= high);
            holds[0] += inside(fit.rate, law.rate);
            holds[1] += inside(fit.contention, law.contention);
            holds[2] += inside(fit.coherency, law.coherency);
            holds[3] += fit.peak.map_or(0, |interval| inside(interval, peak));
        }
        assert!(holds.iter().all(|count| (88..=100).contains(count)), "{holds:?}");
    }

    #[test]
    fn noise_follows_no_law() {
        let flat = Law { rate: 1e9, contention: 1.0, coherency: 0.0 };
        let mut random = Rng::with_seed(31);
        let mut alarms = 0;
        for _ in 0..100 {
            let fit = fit(&study(&flat, 0.2, &mut random)).unwrap();
            alarms += u32::from(fit.p_value <= 0.05);
        }
        assert!(alarms <= 11, "{alarms}");
        assert_eq!(fit(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }
}
