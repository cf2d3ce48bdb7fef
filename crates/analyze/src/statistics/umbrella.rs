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
/// 1981), with the distribution by permutation. `None` for fewer than three groups, or an empty one.
#[must_use]
pub fn umbrella(groups: &[Vec<f64>], shapes: &[Shape]) -> Option<Turn> {
    if groups.len() < 3 || groups.iter().any(Vec::is_empty) {
        return None;
    }
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    let values: Vec<f64> = groups.iter().flatten().copied().collect();
    let (seen, shape, at) = best(&values, &sizes, shapes)?;
    let mut shuffled = values;
    let p_value = permutation::p_value(seen, |random: &mut Rng| {
        random.shuffle(&mut shuffled);
        best(&shuffled, &sizes, shapes).map_or(f64::NEG_INFINITY, |(value, ..)| value)
    });
    Some(Turn { shape, at, p_value })
}

/// The largest standardized statistic over all shapes and turning points.
fn best(values: &[f64], sizes: &[usize], shapes: &[Shape]) -> Option<(f64, Shape, usize)> {
    let of_turns = standardized(values, sizes);
    let all = of_turns.iter().enumerate().flat_map(|(at, z)| {
        shapes.iter().map(move |shape| match shape {
            Shape::Hill => (*z, *shape, at),
            Shape::Valley => (-z, *shape, at),
        })
    });
    all.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// For a hill with its top at each group: pairs of values in the right order, less how many chance
/// gives, over the standard deviation of that.
fn standardized(values: &[f64], sizes: &[usize]) -> Vec<f64> {
    let groups = sizes.len();
    let starts: Vec<usize> =
        sizes.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size))).collect();
    let of = |group: usize| &values[starts[group]..starts[group] + sizes[group]];
    // By the later group of each pair: those that rise; by the earlier: those that fall.
    let (mut rise_to, mut fall_from) = (vec![0.0; groups], vec![0.0; groups]);
    for first in 0..groups {
        for second in first + 1..groups {
            let mut rises = 0.0;
            for a in of(first) {
                for b in of(second) {
                    rises += if b > a {
                        1.0
                    } else if b == a {
                        0.5
                    } else {
                        0.0
                    };
                }
            }
            rise_to[second] += rises;
            fall_from[first] += (sizes[first] * sizes[second]) as f64 - rises;
        }
    }
    (0..groups)
        .map(|top| {
            let right: f64 =
                rise_to[..=top].iter().sum::<f64>() + fall_from[top..].iter().sum::<f64>();
            let (mean, variance) = moments(sizes, top);
            if variance > 0.0 { (right - mean) / variance.sqrt() } else { 0.0 }
        })
        .collect()
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

    #[test]
    fn moments_match_those_of_shuffles() {
        let sizes = [2, 3, 1, 4];
        let mut random = Rng::with_seed(5);
        let mut values: Vec<f64> = (0..10).map(f64::from).collect();
        let mut sums = vec![(0.0, 0.0); sizes.len()];
        const TIMES: usize = 20_000;
        for _ in 0..TIMES {
            random.shuffle(&mut values);
            for (sum, z) in sums.iter_mut().zip(standardized(&values, &sizes)) {
                *sum = (sum.0 + z, sum.1 + z * z);
            }
        }
        for (sum, squares) in sums {
            let (mean, variance) = (sum / TIMES as f64, squares / TIMES as f64);
            assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        }
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
