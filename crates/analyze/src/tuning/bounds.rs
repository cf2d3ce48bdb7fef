//! Bounds that a setting has to keep: `throughput >= 0.95*best`.

use super::exponential;
use super::screening::ROUNDING;
use crate::statistics::{Estimate, one_sided_p};

/// The metric has a name where the search is made; here it is only a number of each run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Whether the metric is to be at least so much; else at most.
    pub at_least: bool,
    pub amount: f64,
    pub of: Reference,
}

/// What the amount of a bound is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// Nothing: it is the value itself.
    Number,
    /// The best value that screening saw: that of its fit at a setting that was run.
    Best,
    /// The value of the base.
    Base,
}

/// How the winner stands to a bound, by the runs of the confirmation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundResult {
    /// Of the winner.
    pub measured: Estimate,
    /// Of the base.
    pub base: Estimate,
    pub limit: f64,
    /// On average.
    pub is_kept: bool,
    /// Whether it is not significantly broken by the base.
    pub base_keeps: bool,
    /// Whether the winner keeps it significantly better than the base does.
    pub is_improved: bool,
}

impl Bound {
    /// +1 where more is better.
    pub(crate) fn direction(&self) -> f64 {
        if self.at_least { 1.0 } else { -1.0 }
    }

    /// The metric as it is modelled: the logarithm where a share of it counts, else a multiple of the limit, as a
    /// metric that may be 0 has no logarithm.
    pub(crate) fn figure(&self, value: f64) -> f64 {
        match self.of {
            Reference::Number => value / self.unit(),
            Reference::Best | Reference::Base => value.ln(),
        }
    }

    /// An estimate of figures, as one of the metric.
    pub(crate) fn estimate(&self, of: Estimate) -> Estimate {
        match self.of {
            Reference::Number => {
                let unit = self.unit();
                let interval = of.interval.map(|(low, high)| (low * unit, high * unit));
                Estimate { mean: of.mean * unit, interval, ..of }
            }
            Reference::Best | Reference::Base => exponential(of),
        }
    }

    fn unit(&self) -> f64 {
        if self.amount > 0.0 { self.amount } else { 1.0 }
    }

    /// The figure of the limit, by those of the best and of the base.
    pub(crate) fn limit(&self, best: f64, base: f64) -> f64 {
        match self.of {
            Reference::Number => self.figure(self.amount),
            Reference::Best => self.amount.ln() + best,
            Reference::Base => self.amount.ln() + base,
        }
    }

    /// The limit as a value of the metric.
    pub(crate) fn limit_value(&self, limit: f64) -> f64 {
        match self.of {
            Reference::Number => self.amount,
            Reference::Best | Reference::Base => limit.exp(),
        }
    }

    /// By how much the figure of a value keeps the limit; negative where it does not.
    pub(crate) fn margin(&self, value: f64, limit: f64) -> f64 {
        self.direction() * (value - limit)
    }
}

/// Level of the test by which a candidate has broken a bound.
const LEVEL: f64 = 0.05;

/// Whether the mean of these margins is significantly negative, with this variance of one of them.
pub(crate) fn is_broken(margins: &[f64], variance: f64, freedom: f64) -> bool {
    let n = margins.len() as f64;
    let mean = margins.iter().sum::<f64>() / n;
    let error = (variance / n).sqrt();
    mean < 0.0 && one_sided_p(-mean / error, freedom) < LEVEL
}

/// The same by what these margins themselves differ.
pub(crate) fn is_broken_by_itself(margins: &[f64]) -> bool {
    let n = margins.len() as f64;
    let mean = margins.iter().sum::<f64>() / n;
    let squares: f64 = margins.iter().map(|margin| (margin - mean).powi(2)).sum();
    n > 1.0 && is_broken(margins, (squares / (n - 1.0)).max(ROUNDING), n - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_shares() {
        let bound = |of| Bound { at_least: true, amount: 0.5, of };
        let (best, base) = (8f64.ln(), 4f64.ln());
        for (of, limit) in
            [(Reference::Number, 0.5), (Reference::Best, 4.0), (Reference::Base, 2.0)]
        {
            let of = bound(of);
            let at = of.limit(best, base);
            assert!((of.limit_value(at) - limit).abs() < 1e-12);
            assert!(of.margin(of.figure(limit * 1.01), at) > 0.0);
            assert!(of.margin(of.figure(limit * 0.99), at) < 0.0);
        }
        let most = Bound { at_least: false, ..bound(Reference::Number) };
        assert!(most.margin(1.0, 2.0) > 0.0 && bound(Reference::Number).margin(1.0, 2.0) < 0.0);
    }

    #[test]
    fn a_bound_is_broken_only_by_more_than_noise() {
        assert!(is_broken(&[-0.05, -0.04], 1e-4, 10.0));
        assert!(!is_broken(&[-0.005, -0.004], 1e-4, 10.0));
        assert!(!is_broken(&[0.05, 0.04], 1e-4, 10.0));
        assert!(is_broken_by_itself(&[-0.05, -0.04, -0.05]));
        assert!(!is_broken_by_itself(&[-0.05, 0.04, -0.05]));
    }
}
