//! Whether values of ordered groups rise, fall, or turn once on the way.

use fastrand::Rng;

use super::permutation;

/// The shape to test for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Rises to the turning point, then falls. At an end it is a plain rise or fall.
    Hill,
    /// Falls to the turning point, then rises.
    Valley,
}

/// The best-fitting shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    pub shape: Shape,
    /// The group of the turning point.
    pub at: usize,
    pub p_value: f64,
}

/// The shape that fits best, and how often shuffled values would fit any of these shapes as well: the
/// test of H. Mack and D. Wolfe for an unknown turn (Journal of the American Statistical Association 76,
/// 1981), with the distribution by permutation, or a bound of it where permutations would be too many.
/// `None` for fewer than three groups, or an empty one.
#[must_use]
pub fn umbrella(groups: &[Vec<f64>], shapes: &[Shape]) -> Option<Turn> {
    if groups.len() < 3 || groups.iter().any(Vec::is_empty) {
        return None;
    }
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    let mut order = Order::of(groups);
    let mut pairs = Pairs::of(&sizes);
    let (seen, shape, at) = best(pairs.standardized(&order), shapes)?;
    let rarer = bound(seen, sizes.len() * shapes.len());
    if rarer <= permutation::LEAST {
        return Some(Turn { shape, at, p_value: rarer });
    }
    let p_value = permutation::p_value(seen, |random: &mut Rng| {
        random.shuffle(&mut order.groups);
        best(pairs.standardized(&order), shapes).map_or(f64::NEG_INFINITY, |(value, ..)| value)
    });
    Some(Turn { shape, at, p_value })
}

/// An upper bound of the p-value of values that rise, fall or turn, as that of [`umbrella`], without permutations.
#[must_use]
pub fn at_most(groups: &[Vec<f64>], shapes: &[Shape]) -> f64 {
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    let order = Order::of(groups);
    best(Pairs::of(&sizes).standardized(&order), shapes)
        .map_or(1.0, |(seen, ..)| bound(seen, sizes.len() * shapes.len()))
}

/// Upper bound of the probability that the largest of so many standardized statistics reaches a value, where
/// all orders of the values are alike.
///
/// Each is a sum of independent counts of Mann and Whitney: of the top with all others, and on either side
/// of each group with those before it. The logarithm of the moment generating function of such a count of
/// `m` and `n` values is a sum over `i` of `L((m + i) t / 2) - L(i t / 2)` with `L(x) = ln(sinh(x) / x)`. As a
/// function of the square of `x`, `L` is concave and begins with the slope 1/6; so the sum is
/// at most that of a normal distribution with the same variance, of which this is Chernoff's bound. A tie counts
/// as the mean of both orders, so ties make none larger.
fn bound(largest: f64, statistics: usize) -> f64 {
    let one = (-largest.max(0.0).powi(2) / 2.0).exp();
    (statistics as f64 * one).min(1.0)
}

/// The largest standardized statistic over all shapes and turning points.
fn best(of_turns: &[f64], shapes: &[Shape]) -> Option<(f64, Shape, usize)> {
    let all = of_turns.iter().enumerate().flat_map(|(at, z)| {
        shapes.iter().map(move |shape| match shape {
            Shape::Hill => (*z, *shape, at),
            Shape::Valley => (-z, *shape, at),
        })
    });
    all.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The groups of all values, from the least value to the largest.
struct Order {
    groups: Vec<usize>,
    /// How many values are equal, of each value.
    ties: Vec<usize>,
}

impl Order {
    fn of(groups: &[Vec<f64>]) -> Self {
        let each = groups.iter().enumerate();
        let mut values: Vec<(f64, usize)> = each
            .flat_map(|(group, values)| values.iter().map(move |value| (*value, group)))
            .collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            ties: values.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect(),
            groups: values.into_iter().map(|(_, group)| group).collect(),
        }
    }
}

/// Counts pairs of values of different groups that are in the right order.
struct Pairs {
    /// Mean and standard deviation of the number, for a hill with its top at each group.
    moments: Vec<(f64, f64)>,
    /// How many values were seen, of the groups before each and of all.
    before: Vec<u32>,
    /// By the later group of each pair: twice those that rise.
    rise_to: Vec<u32>,
    /// By the earlier: twice those that fall.
    fall_from: Vec<u32>,
    standardized: Vec<f64>,
}

impl Pairs {
    fn of(sizes: &[usize]) -> Self {
        let moments = (0..sizes.len()).map(|top| {
            let (mean, variance) = moments(sizes, top);
            (mean, variance.sqrt())
        });
        Self {
            moments: moments.collect(),
            before: vec![0; sizes.len() + 1],
            rise_to: vec![0; sizes.len()],
            fall_from: vec![0; sizes.len()],
            standardized: vec![0.0; sizes.len()],
        }
    }

    /// For a hill with its top at each group: pairs in the right order, less how many chance gives, over the
    /// standard deviation of that.
    fn standardized(&mut self, order: &Order) -> &[f64] {
        self.before.fill(0);
        self.rise_to.fill(0);
        self.fall_from.fill(0);
        let mut rest = order.groups.as_slice();
        for equal in &order.ties {
            let (here, others) = rest.split_at(*equal);
            rest = others;
            // Once with those that are less, once with those that are not larger: a tie counts half.
            self.count(here);
            for group in here {
                for count in &mut self.before[group + 1..] {
                    *count += 1;
                }
            }
            self.count(here);
        }
        // Up to a top values rise, from it on they fall.
        let mut right: u32 = self.fall_from.iter().sum();
        for (top, (mean, deviation)) in self.moments.iter().enumerate() {
            right += self.rise_to[top];
            let difference = f64::from(right) / 2.0 - mean;
            self.standardized[top] = if *deviation > 0.0 { difference / deviation } else { 0.0 };
            right -= self.fall_from[top];
        }
        &self.standardized
    }

    /// Pairs of values of these groups, each with all values seen before.
    fn count(&mut self, groups: &[usize]) {
        let all = self.before[self.before.len() - 1];
        for group in groups {
            self.rise_to[*group] += self.before[*group];
            self.fall_from[*group] += all - self.before[*group + 1];
        }
    }
}

/// Mean and variance of that number where all orders are alike; M. Hollander and D. Wolfe,
/// Nonparametric Statistical Methods, 6.3.
fn moments(sizes: &[usize], top: usize) -> (f64, f64) {
    let n = |size: &usize| *size as f64;
    let before: f64 = sizes[..=top].iter().map(n).sum();
    let after: f64 = sizes[top..].iter().map(n).sum();
    let at = sizes[top] as f64;
    let all = before + after - at;
    let squares: f64 = sizes.iter().map(|size| n(size).powi(2)).sum();
    let cubes: f64 = sizes.iter().map(|size| n(size).powi(2) * (2.0 * n(size) + 3.0)).sum();
    let mean = (before.powi(2) + after.powi(2) - squares - at.powi(2)) / 4.0;
    let variance = 2.0 * (before.powi(3) + after.powi(3)) + 3.0 * (before.powi(2) + after.powi(2))
        - cubes
        - at.powi(2) * (2.0 * at + 3.0)
        + 12.0 * at * before * after
        - 12.0 * at.powi(2) * all;
    (mean, variance / 72.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[Shape] = &[Shape::Hill, Shape::Valley];

    fn groups(values: &[&[f64]]) -> Vec<Vec<f64>> {
        values.iter().map(|group| group.to_vec()).collect()
    }

    #[test]
    fn rise_hill_and_valley_are_distinguished() {
        let rise = groups(&[&[1.0, 1.1], &[2.0, 2.1], &[3.0, 3.1], &[4.0, 4.1]]);
        let turn = umbrella(&rise, BOTH).unwrap();
        assert_eq!((turn.shape, turn.at), (Shape::Hill, 3));
        assert!(turn.p_value < 0.01, "{turn:?}");
        let hill = groups(&[&[1.0, 1.1], &[3.0, 3.1], &[9.0, 9.1], &[4.0, 4.1], &[2.0, 2.1]]);
        let turn = umbrella(&hill, BOTH).unwrap();
        assert_eq!((turn.shape, turn.at), (Shape::Hill, 2));
        assert!(turn.p_value < 0.01, "{turn:?}");
        let valley: Vec<Vec<f64>> =
            hill.iter().map(|group| group.iter().map(|value| -value).collect()).collect();
        let turn = umbrella(&valley, BOTH).unwrap();
        assert_eq!((turn.shape, turn.at), (Shape::Valley, 2));
        assert!(umbrella(&valley, &[Shape::Hill]).unwrap().p_value > 0.05);
        assert_eq!(umbrella(&rise[..2], BOTH), None);
    }

    /// As defined: all pairs of values of different groups, for a hill with its top at each group.
    fn by_definition(groups: &[Vec<f64>]) -> Vec<f64> {
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let right = |lower: usize, higher: usize| -> f64 {
            let pairs =
                groups[lower].iter().flat_map(|a| groups[higher].iter().map(move |b| (a, b)));
            pairs.map(|(a, b)| if b > a { 1.0 } else { f64::from(u8::from(a == b)) / 2.0 }).sum()
        };
        let of_top = |top: usize| {
            let up = (0..=top).flat_map(|b| (0..b).map(move |a| right(a, b)));
            let down = (top..sizes.len()).flat_map(|b| (top..b).map(move |a| right(b, a)));
            let (mean, variance) = moments(&sizes, top);
            (up.chain(down).sum::<f64>() - mean) / variance.sqrt()
        };
        (0..sizes.len()).map(of_top).collect()
    }

    #[test]
    fn pairs_are_counted_as_defined() {
        let mut random = Rng::with_seed(7);
        for _ in 0..200 {
            let groups: Vec<Vec<f64>> = (0..random.usize(3..8))
                .map(|_| (0..random.usize(1..5)).map(|_| f64::from(random.u32(0..9))).collect())
                .collect();
            let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
            let mut pairs = Pairs::of(&sizes);
            let counted = pairs.standardized(&Order::of(&groups));
            for (counted, defined) in counted.iter().zip(by_definition(&groups)) {
                assert!((counted - defined).abs() < 1e-9, "{groups:?}: {counted} {defined}");
            }
        }
    }

    #[test]
    fn moments_match_those_of_shuffles() {
        let sizes = [2, 3, 1, 4];
        let mut random = Rng::with_seed(5);
        let each = sizes.iter().enumerate().flat_map(|(group, size)| vec![group; *size]);
        let mut order = Order { groups: each.collect(), ties: vec![1; 10] };
        let mut pairs = Pairs::of(&sizes);
        let mut sums = vec![(0.0, 0.0); sizes.len()];
        const TIMES: usize = 20_000;
        for _ in 0..TIMES {
            random.shuffle(&mut order.groups);
            for (sum, z) in sums.iter_mut().zip(pairs.standardized(&order)) {
                *sum = (sum.0 + z, sum.1 + z * z);
            }
        }
        for (sum, squares) in sums {
            let (mean, variance) = (sum / TIMES as f64, squares / TIMES as f64);
            assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        }
    }

    /// Probabilities of each count of pairs of `m` and `n` values in the right order (H. Mann and D. Whitney, Annals of
    /// Mathematical Statistics 18, 1947): the largest of all values is one of the `n` or not.
    fn mann_whitney(m: usize, n: usize) -> Vec<f64> {
        let mut of = vec![vec![vec![1.0]; n + 1]; m + 1];
        for a in 1..=m {
            for b in 1..=n {
                let mut counts = vec![0.0; a * b + 1];
                let all = (a + b) as f64;
                for (count, chance) in of[a - 1][b].iter().enumerate() {
                    counts[count] += chance * a as f64 / all;
                }
                for (count, chance) in of[a][b - 1].iter().enumerate() {
                    counts[count + a] += chance * b as f64 / all;
                }
                of[a][b] = counts;
            }
        }
        of.pop().and_then(|mut last| last.pop()).unwrap()
    }

    #[test]
    fn the_bound_is_above_the_exact_distribution() {
        for sizes in
            [vec![4; 5], vec![3; 6], vec![1; 12], vec![8, 2, 5], vec![3; 20], vec![1, 9, 1, 6]]
        {
            for top in [0, sizes.len() / 2, sizes.len() - 1] {
                let mut parts = vec![(sizes[top], sizes.iter().sum::<usize>() - sizes[top])];
                for side in [&sizes[..top], &sizes[top + 1..]] {
                    let before = |place: usize| side[..place].iter().sum();
                    parts.extend(
                        side.iter().enumerate().map(|(place, size)| (before(place), *size)),
                    );
                }
                let mut exact = vec![1.0];
                for (m, n) in parts {
                    let mut sum = vec![0.0; exact.len() + m * n];
                    for (a, chance) in exact.iter().enumerate() {
                        for (b, other) in mann_whitney(m, n).iter().enumerate() {
                            sum[a + b] += chance * other;
                        }
                    }
                    exact = sum;
                }
                let (mean, variance) = moments(&sizes, top);
                let of_counts =
                    exact.iter().enumerate().map(|(count, chance)| count as f64 * chance);
                assert!((of_counts.sum::<f64>() - mean).abs() < 1e-6 * mean, "{sizes:?} {top}");
                let mut as_much = 0.0;
                for (count, chance) in exact.iter().enumerate().rev() {
                    as_much += chance;
                    let z = (count as f64 - mean) / variance.sqrt();
                    let bound = bound(z, 1);
                    assert!(
                        bound >= as_much * (1.0 - 1e-9),
                        "{sizes:?} {top}: {z} {bound} {as_much}"
                    );
                }
            }
        }
        assert!(bound(6.0, 10) < 2e-7 && bound(0.0, 10) == 1.0);
    }

    #[test]
    fn noise_has_no_shape() {
        let mut random = Rng::with_seed(11);
        let mut alarms = 0;
        for _ in 0..400 {
            let noise: Vec<Vec<f64>> =
                (0..6).map(|_| (0..3).map(|_| random.f64()).collect()).collect();
            alarms += u32::from(umbrella(&noise, BOTH).unwrap().p_value <= 0.05);
        }
        // 20, and three standard deviations of that.
        assert!(alarms <= 33, "{alarms}");
    }
}
