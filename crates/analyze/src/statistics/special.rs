//! Special functions that `statrs` lacks.

/// The second derivative of ln Γ at a positive `x`: by its recurrence to where the asymptotic series holds
/// (M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 6.4.6 and 6.4.12).
#[must_use]
pub fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series =
        1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * (1.0 / 30.0 - y * 5.0 / 66.0)));
    sum + 1.0 / x + y / 2.0 + y / x * series
}

/// Where [`trigamma`], which falls from infinity to 0, has a positive value. Values beyond those of
/// 10^-8 and 10^8 give these ends.
#[must_use]
pub fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-8_f64.ln(), 1e8_f64.ln());
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if trigamma(middle.exp()) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high).exp()
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use statrs::function::gamma::digamma;

    use super::*;

    #[test]
    fn trigamma_matches_its_closed_forms_and_tables() {
        let square = PI * PI;
        // Catalan's constant.
        let catalan = 0.915_965_594_177_219_f64;
        for (x, value) in [
            (0.25, square + 8.0 * catalan),
            (0.5, square / 2.0),
            (1.0, square / 6.0),
            (1.5, square / 2.0 - 4.0),
            (2.0, square / 6.0 - 1.0),
            (3.0, square / 6.0 - 1.25),
            // Abramowitz and Stegun, table 6.1 gives 0.105166 at 10.
            (10.0, square / 6.0 - (1..10).map(|k| 1.0 / f64::from(k * k)).sum::<f64>()),
            (100.0, 0.010_050_166_663_333_571),
        ] {
            assert!((trigamma(x) / value - 1.0).abs() < 1e-12, "{x}: {} {value}", trigamma(x));
        }
    }

    #[test]
    fn trigamma_is_the_slope_of_digamma() {
        for x in [0.3, 0.9, 2.5, 9.9, 10.1, 40.0] {
            let step = 1e-4 * x;
            let slope = (digamma(x + step) - digamma(x - step)) / (2.0 * step);
            assert!((slope / trigamma(x) - 1.0).abs() < 1e-6, "{x}");
        }
        // -γ and -γ - 2 ln 2.
        assert!((digamma(1.0) + 0.577_215_664_901_532_9).abs() < 1e-12);
        assert!((digamma(0.5) + 1.963_510_026_021_423_5).abs() < 1e-12);
    }

    #[test]
    fn the_inverse_undoes_trigamma() {
        for x in [1e-4, 0.01, 0.5, 1.0, 3.7, 60.0, 1e5] {
            assert!((inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-9, "{x}");
        }
    }
}
