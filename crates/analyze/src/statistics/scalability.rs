//! The Universal Scalability Law (N. Gunther, Guerrilla Capacity Planning, 2007): what `n` do together is
//! `rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))`.

use fastrand::Rng;

use super::umbrella::{self, Shape};
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
}

/// Sums over values `y` of a number, which say all of them that a fit needs.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    values: f64,
    squares: f64,
    inverses: f64,
}

/// The numbers that values belong to: the law is fitted to many values of the same numbers.
struct Numbers {
    all: Vec<Number>,
    /// Place of the number of each value.
    places: Vec<usize>,
}

struct Number {
    n: f64,
    /// How many values it has.
    count: f64,
    /// What `n / y` is linear in.
    terms: [f64; TERMS],
}

const TERMS: usize = 3;

/// Sums of products for least squares: of each two terms, and of each term with what is fitted.
type Products = [[f64; TERMS + 1]; TERMS];

impl Numbers {
    fn of(points: &[(f64, f64)]) -> Self {
        let mut all: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let place = |n: f64| all.partition_point(|other| *other < n);
        let places: Vec<usize> = points.iter().map(|(n, _)| place(*n)).collect();
        let number = |(place, n): (usize, &f64)| Number {
            n: *n,
            count: places.iter().filter(|other| **other == place).count() as f64,
            terms: [1.0, n - 1.0, n * (n - 1.0)],
        };
        Self { all: all.iter().enumerate().map(number).collect(), places }
    }

    /// Of each number, where these are all values.
    fn sums(&self, values: impl Iterator<Item = f64>) -> Vec<Sums> {
        let mut all = vec![Sums::default(); self.all.len()];
        for (place, value) in self.places.iter().zip(values) {
            let sums = &mut all[*place];
            sums.values += value;
            sums.squares += value * value;
            sums.inverses += 1.0 / value;
        }
        all
    }

    /// The law of least relative squares: `n / y` is linear in three terms, of which none is negative.
    /// With weights by `y` itself noise would be favoured that makes it larger, so they are taken from
    /// the law that is found, and that again.
    fn fit(&self, sums: &[Sums]) -> Option<Law> {
        // The weight of a value is `y / n`.
        let by_values = |number: &Number, sums: &Sums| {
            (sums.squares / number.n.powi(2), sums.values / number.n)
        };
        let mut law = least_squares(&self.products(sums, by_values))?;
        for _ in 0..2 {
            let by_law = |number: &Number, sums: &Sums| {
                let weight = (law.at(number.n) / number.n).powi(2);
                (weight * number.count, weight * number.n * sums.inverses)
            };
            law = least_squares(&self.products(sums, by_law))?;
        }
        Some(law)
    }

    /// Where `weighted` is, of the values of a number, the sum of the squares of weights, and that of
    /// these with `n / y`.
    fn products(&self, sums: &[Sums], weighted: impl Fn(&Number, &Sums) -> (f64, f64)) -> Products {
        let mut products = Products::default();
        for (number, sums) in self.all.iter().zip(sums) {
            let (weights, fitted) = weighted(number, sums);
            for (row, a) in products.iter_mut().zip(number.terms) {
                for (product, b) in row.iter_mut().zip(number.terms) {
                    *product += weights * a * b;
                }
                row[TERMS] += fitted * a;
            }
        }
        products
    }
}

/// Each of the last two terms is in or not: the best of these fits in which no term is negative.
fn least_squares(products: &Products) -> Option<Law> {
    let fitted = |chosen: &[usize]| {
        let mut matrix = Products::default();
        for (row, a) in chosen.iter().enumerate() {
            for (column, b) in chosen.iter().enumerate() {
                matrix[row][column] = products[*a][*b];
            }
            matrix[row][TERMS] = products[*a][TERMS];
        }
        let solved = solve(matrix, chosen.len())?;
        let mut all = [0.0; TERMS];
        for (place, value) in chosen.iter().zip(solved) {
            all[*place] = value;
        }
        (all[0] > 0.0 && all.iter().all(|value| *value >= 0.0)).then_some(all)
    };
    // More terms leave less.
    let best = fitted(&[0, 1, 2])
        .or_else(|| {
            let left = |all: &[f64; TERMS]| -> f64 {
                let of_term = |(row, value): (&[f64; TERMS + 1], &f64)| {
                    let with_all: f64 =
                        row.iter().zip(all).map(|(product, other)| product * other).sum();
                    value * (with_all - 2.0 * row[TERMS])
                };
                products.iter().zip(all).map(of_term).sum()
            };
            let two = [fitted(&[0, 1]), fitted(&[0, 2])];
            two.into_iter().flatten().min_by(|a, b| left(a).total_cmp(&left(b)))
        })
        .or_else(|| fitted(&[0]));
    let [a, b, c] = best?;
    Some(Law { rate: 1.0 / a, contention: b / a, coherency: c / a })
}

/// By elimination, of the first `size` rows; `None` where they say the same.
fn solve(mut matrix: Products, size: usize) -> Option<[f64; TERMS]> {
    for pivot in 0..size {
        let largest = (pivot..size)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, largest);
        let row = matrix[pivot];
        if row[pivot].abs() < 1e-12 * row[TERMS].abs().max(f64::MIN_POSITIVE) {
            return None;
        }
        for other in (0..size).filter(|other| *other != pivot) {
            let factor = matrix[other][pivot] / row[pivot];
            for (value, of_row) in matrix[other].iter_mut().zip(row) {
                *value -= factor * of_row;
            }
        }
    }
    let mut solved = [0.0; TERMS];
    for (place, value) in solved.iter_mut().enumerate().take(size) {
        *value = matrix[place][TERMS] / matrix[place][place];
    }
    solved.iter().all(|value| value.is_finite()).then_some(solved)
}

/// Fits the law to numbers and what they did together. `None` for fewer than five different numbers, or
/// values that are not positive.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let numbers = Numbers::of(points);
    if numbers.all.len() < 5 || points.iter().any(|(n, y)| *n < 1.0 || *y <= 0.0) {
        return None;
    }
    let mut groups = vec![Vec::new(); numbers.all.len()];
    for (place, (_, y)) in numbers.places.iter().zip(points) {
        groups[*place].push(*y);
    }
    let law = numbers.fit(&numbers.sums(points.iter().map(|(_, y)| *y)))?;
    let logarithms: Vec<f64> = points.iter().map(|(_, y)| y.ln()).collect();
    let mut residuals: Vec<f64> = points.iter().map(|(n, y)| (y / law.at(*n)).ln()).collect();
    let explained = explained(&logarithms, &residuals);
    // The law rises to its peak and falls from it. Of many values that alone says more than permutations can.
    let mut p_value = umbrella::at_most(&groups, &[Shape::Hill]);
    if p_value > permutation::LEAST {
        let mut values: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
        p_value = permutation::p_value(explained, |random: &mut Rng| {
            random.shuffle(&mut values);
            let law = numbers.fit(&numbers.sums(values.iter().copied()));
            let explained = |law: Law| {
                let residual = |(value, (n, _)): (&f64, &(f64, f64))| (value / law.at(*n)).ln();
                let residuals: Vec<f64> = values.iter().zip(points).map(residual).collect();
                self::explained(&logarithms, &residuals)
            };
            law.map_or(f64::NEG_INFINITY, explained)
        });
    }
    // Residuals are smaller than errors by what the three parameters took.
    let count = points.len() as f64;
    let wider = (count / (count - 3.0)).sqrt();
    residuals.iter_mut().for_each(|residual| *residual *= wider);
    let laws = bootstrap::draws(|random: &mut Rng| {
        let errors = bootstrap::resample(&residuals, random);
        numbers
            .fit(&numbers.sums(points.iter().zip(errors).map(|((n, _), e)| law.at(*n) * e.exp())))
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

/// Share of the variance of values that residuals are not.
fn explained(values: &[f64], residuals: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let all: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let rest: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
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
    fn a_peak_amid_single_runs_is_significant() {
        let law = Law { rate: 1e9, contention: 0.02, coherency: 0.002 };
        let mut random = Rng::with_seed(37);
        let points: Vec<(f64, f64)> = NUMBERS[..7]
            .iter()
            .map(|n| (*n, law.at(*n) * (0.005 * bootstrap::normal(&mut random)).exp()))
            .collect();
        let fit = fit(&points).unwrap();
        assert!(fit.law.peak().unwrap() < 30.0 && fit.p_value < 0.005, "{fit:?}");
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
