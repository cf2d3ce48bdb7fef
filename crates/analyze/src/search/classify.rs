//! What the trials at a load decide about it: RFC 9971, "Load Classification Logic" and "Conditional
//! Throughput Logic".

use wirecost_model::clock::seconds;

use super::{Done, Measured, Target};

/// Load Classification of the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Lower,
    Upper,
    Undecided,
}

/// The class of a load, of all trials at it. `loss` selects which loss counts.
pub(super) fn class(target: &Target, at: &[&Done], loss: fn(&Measured) -> f64) -> Class {
    // By length (full-length or not) and by loss (high or not).
    let sum = |full: bool, high: bool| -> f64 {
        let is = |done: &&&Done| {
            (done.duration >= target.trial) == full
                && (loss(&done.measured) > target.loss_ratio) == high
        };
        at.iter().filter(is).map(|done| seconds(done.duration)).sum()
    };
    let exceed = target.exceed_ratio;
    // Short trials with little loss balance short ones with much, as far as the exceed ratio lets them.
    let excess = sum(false, true) - sum(false, false) * exceed / (1.0 - exceed);
    let high = sum(true, true) + excess.max(0.0);
    let low = sum(true, false);
    let whole = (high + low).max(seconds(target.sum));
    let allowed = whole * exceed;
    if high > allowed {
        // Even if no further trial has much loss.
        Class::Upper
    } else if whole - low <= allowed {
        // Even if all further trials have.
        Class::Lower
    } else {
        Class::Undecided
    }
}

/// Conditional Throughput at a load, in bits per second; `None` without a full-length trial.
pub(super) fn conditional_throughput(target: &Target, load: u64, at: &[&Done]) -> Option<f64> {
    let mut full: Vec<&Done> =
        at.iter().filter(|done| done.duration >= target.trial).copied().collect();
    let short = |done: &&Done| done.measured.short();
    full.sort_by(|a, b| short(a).total_cmp(&short(b)));
    let measured: f64 = full.iter().map(|done| seconds(done.duration)).sum();
    let mut left = measured.max(seconds(target.sum)) * (1.0 - target.exceed_ratio);
    let mut quantile = full.first()?.measured.short();
    for done in full {
        if left <= 0.0 {
            break;
        }
        quantile = done.measured.short();
        left -= seconds(done.duration);
    }
    // Trials that are missing may lose everything.
    let loss = if left > 0.0 { 1.0 } else { quantile };
    Some(load as f64 * (1.0 - loss))
}
