//! Grades of bufferbloat: <https://www.dslreports.com/faq/17930>. There is no grade E.

use wirecost_model::units::three_digits;

/// A grade with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grade {
    pub name: &'static str,
    /// Increases of the round-trip time from this one on, milliseconds; the first grade also has decreases.
    pub from: f64,
    /// To below this one.
    pub below: f64,
}

const fn grade(name: &'static str, from: f64, below: f64) -> Grade {
    Grade { name, from, below }
}

/// The best first.
pub static GRADES: [Grade; 6] = [
    grade("A+", 0.0, 5.0),
    grade("A", 5.0, 30.0),
    grade("B", 30.0, 60.0),
    grade("C", 60.0, 200.0),
    grade("D", 200.0, 400.0),
    grade("F", 400.0, f64::INFINITY),
];

impl Grade {
    /// The grade of an increase in microseconds.
    #[must_use]
    pub fn of(increase: f64) -> Self {
        let of_increase = GRADES.iter().find(|grade| increase / 1e3 < grade.below);
        *of_increase.unwrap_or(&GRADES[GRADES.len() - 1])
    }

    /// `200 to 400 ms`.
    #[must_use]
    pub fn range(&self) -> String {
        match (self.from, self.below) {
            (0.0, below) => format!("below {} ms", whole(below)),
            (from, below) if below.is_finite() => format!("{} to {} ms", whole(from), whole(below)),
            (from, _) => format!("{} ms or more", whole(from)),
        }
    }
}

fn whole(milliseconds: f64) -> String {
    if milliseconds.fract() == 0.0 {
        format!("{milliseconds:.0}")
    } else {
        three_digits(milliseconds)
    }
}

/// `A+ below 5 ms, A 5 to 30 ms, ...`.
#[must_use]
pub fn thresholds() -> String {
    let each = GRADES.iter().map(|grade| format!("{} {}", grade.name, grade.range()));
    each.collect::<Vec<_>>().join(", ")
}
