//! Values that rise and then fall.

/// A run of neighbours that have one value.
#[derive(Clone, Copy)]
struct Level {
    sum: f64,
    count: usize,
}

impl Level {
    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// The values nearest to these, by the sum of squares, that rise to some place and fall beyond it.
/// Neighbours in the wrong order become their mean (isotonic regression by pooling adjacent violators; R.
/// Barlow and others, Statistical Inference under Order Restrictions, 1972), so noise within a plateau
/// does not look like a peak.
#[must_use]
pub fn unimodal(values: &[f64]) -> Vec<f64> {
    let with_top_at = |top: usize| {
        let mut fitted = rising(values[..top].iter().copied());
        let mut falling = rising(values[top..].iter().rev().copied());
        falling.reverse();
        fitted.extend(falling);
        let squares: f64 =
            fitted.iter().zip(values).map(|(fitted, value)| (fitted - value).powi(2)).sum();
        (squares, fitted)
    };
    // The place between both parts stands for a top in either of them.
    let best = (0..=values.len()).map(with_top_at).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, fitted)| fitted).unwrap_or_default()
}

fn rising(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut levels: Vec<Level> = Vec::new();
    for value in values {
        let mut level = Level { sum: value, count: 1 };
        while let Some(before) = levels.pop_if(|before| before.mean() >= level.mean()) {
            level = Level { sum: before.sum + level.sum, count: before.count + level.count };
        }
        levels.push(level);
    }
    levels.iter().flat_map(|level| std::iter::repeat_n(level.mean(), level.count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_the_wrong_order_become_their_mean() {
        assert_eq!(unimodal(&[1.0, 4.0, 9.0, 7.0, 2.0]), [1.0, 4.0, 9.0, 7.0, 2.0]);
        assert_eq!(unimodal(&[1.0, 10.0, 9.0, 11.0]), [1.0, 9.5, 9.5, 11.0]);
        assert_eq!(unimodal(&[3.0, 2.0, 1.0]), [3.0, 2.0, 1.0]);
        assert_eq!(unimodal(&[1.0, 10.0, 8.0, 9.0, 2.0]), [1.0, 10.0, 8.5, 8.5, 2.0]);
        assert!(unimodal(&[]).is_empty());
    }
}
