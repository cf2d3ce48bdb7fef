//! Least squares whose solution has no negative part: C. L. Lawson and R. J. Hanson, Solving Least
//! Squares Problems (1974), chapter 23. By the normal equations of columns of unit length, which is
//! exact enough for a handful of columns that are not collinear; a library of linear algebra would be
//! many times the size of this.

/// A matrix by rows, each as long.
pub(crate) type Rows = [Vec<f64>];

/// The `x`, none of it negative, for which `rows` times `x` is nearest to `b`. A column that depends on
/// others gets 0.
pub(crate) fn nonnegative(rows: &Rows, b: &[f64]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    let lengths: Vec<f64> = (0..columns).map(|column| length(rows, column)).collect();
    let unit = |row: &[f64], column: usize| match lengths[column] {
        0.0 => 0.0,
        length => row[column] / length,
    };
    let gram: Vec<Vec<f64>> = (0..columns)
        .map(|i| {
            let product = |j| rows.iter().map(|row| unit(row, i) * unit(row, j)).sum();
            (0..columns).map(product).collect()
        })
        .collect();
    let target: Vec<f64> =
        (0..columns).map(|i| rows.iter().zip(b).map(|(row, b)| unit(row, i) * b).sum()).collect();
    let solution = active_set(&gram, &target);
    let scale = |(x, length): (f64, &f64)| if *length > 0.0 { x / length } else { 0.0 };
    solution.into_iter().zip(&lengths).map(scale).collect()
}

fn active_set(gram: &[Vec<f64>], target: &[f64]) -> Vec<f64> {
    let columns = target.len();
    let enough = 1e-12 * target.iter().fold(f64::MIN_POSITIVE, |most, t| most.max(t.abs()));
    let mut x = vec![0.0; columns];
    let mut free = vec![false; columns];
    let mut refused = vec![false; columns];
    // Each turn makes the sum of squares smaller, so no set of columns comes twice; rounding could
    // undo that, and the limit is for it.
    for _ in 0..10 * columns.max(1) {
        let slope = |j: usize| -> f64 {
            target[j] - gram[j].iter().zip(&x).map(|(g, x)| g * x).sum::<f64>()
        };
        let candidates = (0..columns).filter(|j| !free[*j] && !refused[*j]);
        let steepest = candidates.max_by(|a, b| slope(*a).total_cmp(&slope(*b)));
        let Some(added) = steepest.filter(|j| slope(*j) > enough) else { break };
        free[added] = true;
        loop {
            let set: Vec<usize> = (0..columns).filter(|j| free[*j]).collect();
            let Some(solved) = solve_within(gram, target, &set) else {
                free[added] = false;
                refused[added] = true;
                break;
            };
            let blocking = set.iter().zip(&solved).filter(|(_, s)| **s <= 0.0);
            let step = blocking.map(|(j, s)| x[*j] / (x[*j] - s)).fold(f64::INFINITY, f64::min);
            if step.is_infinite() {
                set.iter().zip(solved).for_each(|(j, s)| x[*j] = s);
                refused.fill(false);
                break;
            }
            let step = if step.is_finite() { step } else { 0.0 };
            for (j, s) in set.iter().zip(solved) {
                x[*j] += step * (s - x[*j]);
                if s <= 0.0 && x[*j] <= enough {
                    x[*j] = 0.0;
                    free[*j] = false;
                    // Its slope was no more than rounding.
                    refused[*j] |= *j == added;
                }
            }
        }
    }
    x
}

fn solve_within(gram: &[Vec<f64>], target: &[f64], set: &[usize]) -> Option<Vec<f64>> {
    let part: Vec<Vec<f64>> =
        set.iter().map(|i| set.iter().map(|j| gram[*i][*j]).collect()).collect();
    let right: Vec<f64> = set.iter().map(|i| target[*i]).collect();
    solve(part, right)
}

/// Solves a symmetric positive definite system (Cholesky). `None` where the matrix is singular.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for j in 0..n {
        let own = matrix[j][j];
        let pivot = own - matrix[j][..j].iter().map(|value| value * value).sum::<f64>();
        // What rounding leaves of a column that depends on others.
        if pivot.is_nan() || pivot <= 1e-12 * own {
            return None;
        }
        matrix[j][j] = pivot.sqrt();
        for i in j + 1..n {
            let known: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            matrix[i][j] = (matrix[i][j] - known) / matrix[j][j];
        }
    }
    for i in 0..n {
        let known: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - known) / matrix[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - known) / matrix[i][i];
    }
    Some(right)
}

/// How many times a column's cost is less sure for what it has in common with the other columns:
/// 1 / (1 - R^2) of the column on them, without a constant. Infinite where it is a sum of them.
pub(crate) fn inflation(rows: &Rows, column: usize, others: &[usize]) -> f64 {
    let others: Vec<usize> =
        others.iter().copied().filter(|other| length(rows, *other) > 0.0).collect();
    let own = length(rows, column).powi(2);
    if own == 0.0 {
        return f64::INFINITY;
    }
    let product = |i: usize, j: usize| -> f64 { rows.iter().map(|row| row[i] * row[j]).sum() };
    let scaled = |i: usize, j: usize| product(i, j) / (length(rows, i) * length(rows, j));
    let gram: Vec<Vec<f64>> =
        others.iter().map(|i| others.iter().map(|j| scaled(*i, *j)).collect()).collect();
    let right: Vec<f64> = others.iter().map(|other| scaled(*other, column)).collect();
    let Some(solved) = solve(gram, right.clone()) else { return f64::INFINITY };
    let explained: f64 = solved.iter().zip(right).map(|(a, b)| a * b).sum();
    match 1.0 - explained {
        rest if rest > 1e-12 => 1.0 / rest,
        _ => f64::INFINITY,
    }
}

/// How alike two columns are: 1 where one is a multiple of the other.
pub(crate) fn likeness(rows: &Rows, a: usize, b: usize) -> f64 {
    let product: f64 = rows.iter().map(|row| row[a] * row[b]).sum();
    product / (length(rows, a) * length(rows, b)).max(f64::MIN_POSITIVE)
}

fn length(rows: &Rows, column: usize) -> f64 {
    rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By scipy.optimize.nnls.
    #[test]
    fn solutions_match_scipy() {
        for (rows, b, expected) in [
            (
                vec![vec![9.7, 5.5], vec![9.7, 7.1], vec![7.0, 2.2], vec![9.8, 0.1]],
                vec![2.5, 4.3, 7.8, 2.0],
                vec![0.370_734_103_758_958_9, 0.119_942_149_677_498_2],
            ),
            (
                vec![
                    vec![8.6, 9.8, 1.6],
                    vec![6.0, 0.1, 3.9],
                    vec![0.4, 9.6, 4.4],
                    vec![9.5, 7.9, 8.7],
                    vec![1.7, 0.7, 6.0],
                    vec![1.7, 7.3, 4.1],
                ],
                vec![2.3, 6.4, 2.2, -1.9, -1.4, 2.5],
                vec![0.153_212_754_627_564_06, 0.063_681_516_792_738_26, 0.0],
            ),
            (
                vec![
                    vec![5.2, 6.4, 4.0, 6.5],
                    vec![4.0, 6.2, 7.7, 1.8],
                    vec![3.8, 5.0, 6.9, 2.5],
                    vec![5.5, 6.2, 9.0, 3.6],
                    vec![6.4, 1.9, 5.0, 1.8],
                    vec![9.2, 4.3, 8.3, 4.2],
                    vec![9.0, 4.0, 3.3, 5.7],
                    vec![8.5, 8.6, 6.0, 0.8],
                ],
                vec![3.0, -0.5, 4.3, 5.9, 2.1, 3.0, -2.3, 2.4],
                vec![0.0, 0.0, 0.386_242_311_709_411_6, 0.0],
            ),
        ] {
            let solution = nonnegative(&rows, &b);
            for (x, expected) in solution.iter().zip(&expected) {
                assert!((x - expected).abs() < 1e-10, "{solution:?} {expected:?}");
            }
        }
    }

    #[test]
    fn a_dependent_column_has_no_cost() {
        let rows = [vec![1.0, 2.0, 0.0], vec![2.0, 4.0, 0.0], vec![3.0, 6.0, 0.0]];
        let x = nonnegative(&rows, &[2.0, 4.0, 6.0]);
        assert!((x[0] + 2.0 * x[1] - 2.0).abs() < 1e-9 && x[2] == 0.0, "{x:?}");
        assert_eq!(nonnegative(&[], &[]), Vec::<f64>::new());
    }

    #[test]
    fn variance_inflation_measures_shared_columns() {
        let rows = [vec![1.0, 0.0, 1.0], vec![0.0, 1.0, 1.0], vec![0.0, 0.0, 1.0]];
        assert!((inflation(&rows, 0, &[1]) - 1.0).abs() < 1e-12);
        // The third column lies with 2 of its squared length of 3 in the plane of the others.
        assert!((inflation(&rows, 2, &[0, 1]) - 3.0).abs() < 1e-12);
        let same = [vec![1.0, 2.0], vec![2.0, 4.0]];
        assert!(inflation(&same, 1, &[0]).is_infinite());
        assert!((likeness(&same, 0, 1) - 1.0).abs() < 1e-12);
    }

    proptest! {
        /// The conditions of Karush, Kuhn and Tucker, which hold at the solution and nowhere else.
        #[test]
        fn nothing_is_negative_and_nothing_nearer(
            rows in prop::collection::vec(prop::collection::vec(-10.0..10.0f64, 4), 8..20),
            seed in 0..1000u64,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let b: Vec<f64> = rows.iter().map(|_| 20.0 * random.f64() - 10.0).collect();
            let x = nonnegative(&rows, &b);
            let rest: Vec<f64> = rows.iter().zip(&b)
                .map(|(row, b)| b - row.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>())
                .collect();
            for j in 0..4 {
                let slope: f64 = rows.iter().zip(&rest).map(|(row, rest)| row[j] * rest).sum();
                prop_assert!(x[j] >= 0.0);
                prop_assert!(slope < 1e-6, "{j}: {slope}");
                prop_assert!(x[j] == 0.0 || slope.abs() < 1e-6, "{j}: {slope}");
            }
        }
    }
}
