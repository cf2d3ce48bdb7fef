//! Ordinary least squares of a few columns.

/// Coefficients of columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    pub(crate) coefficients: Vec<f64>,
    /// Of each coefficient: its variance, where that of an observation is 1.
    pub(crate) variances: Vec<f64>,
    /// Sum of the squared residuals, and its degrees of freedom.
    pub(crate) residual: f64,
    pub(crate) freedom: f64,
}

/// Fits `y` to the columns of `rows`. `None` where the columns depend on one another.
pub(crate) fn fit(rows: &[Vec<f64>], y: &[f64]) -> Option<Fit> {
    let columns = rows.first().map_or(0, Vec::len);
    if rows.len() < columns {
        return None;
    }
    let gram = (0..columns).map(|i| {
        let product = |j: usize| rows.iter().map(|row| row[i] * row[j]).sum();
        (0..columns).map(product).collect()
    });
    let inverse = inverted(gram.collect())?;
    let right: Vec<f64> =
        (0..columns).map(|i| rows.iter().zip(y).map(|(row, y)| row[i] * y).sum()).collect();
    let product = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let coefficients: Vec<f64> = inverse.iter().map(|row| product(row, &right)).collect();
    let residual =
        rows.iter().zip(y).map(|(row, y)| (y - product(row, &coefficients)).powi(2)).sum();
    let variances = (0..columns).map(|i| inverse[i][i]).collect();
    let freedom = (rows.len() - columns) as f64;
    Some(Fit { coefficients, variances, residual, freedom })
}

/// The inverse of a symmetric positive definite matrix (Gauss-Jordan); `None` where it is singular.
fn inverted(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    for (place, row) in matrix.iter_mut().enumerate() {
        row.extend((0..n).map(|column| if column == place { 1.0 } else { 0.0 }));
    }
    for at in 0..n {
        let best = (at..n).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()))?;
        matrix.swap(at, best);
        let pivot = matrix[at][at];
        if pivot.is_nan() || pivot.abs() < 1e-9 {
            return None;
        }
        matrix[at].iter_mut().for_each(|value| *value /= pivot);
        let own = matrix[at].clone();
        for (place, row) in matrix.iter_mut().enumerate() {
            let factor = row[at];
            if place != at && factor != 0.0 {
                row.iter_mut().zip(&own).for_each(|(value, own)| *value -= factor * own);
            }
        }
    }
    Some(matrix.into_iter().map(|row| row[n..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_as_r_does() {
        // R: summary(lm(c(1, 3, 2, 5) ~ c(0, 1, 2, 3)))
        let rows: Vec<Vec<f64>> = (0..4).map(|x| vec![1.0, f64::from(x)]).collect();
        let fit = fit(&rows, &[1.0, 3.0, 2.0, 5.0]).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(fit.coefficients[0], 1.1);
        close(fit.coefficients[1], 1.1);
        close(fit.residual, 2.7);
        close(fit.variances[1], 0.2);
        close(fit.freedom, 2.0);
    }

    #[test]
    fn dependent_columns_have_no_fit() {
        assert_eq!(fit(&[vec![1.0, 2.0], vec![2.0, 4.0], vec![3.0, 6.0]], &[1.0, 2.0, 3.0]), None);
        assert_eq!(fit(&[vec![1.0, 2.0]], &[1.0]), None);
    }
}
