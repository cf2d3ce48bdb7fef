//! Two-level designs, folded over: each row is run, and its mirror image (each factor at its other level).
//!
//! Half the difference of such a pair has main effects without interactions of two factors, and half their
//! sum has those interactions without main effects (G. E. P. Box and K. B. Wilson, J. R. Stat. Soc. B 13,
//! 1951).

/// The most factors that a design here has room for.
pub const MOST_FACTORS: usize = 23;

/// First rows of the designs of R. L. Plackett and J. P. Burman, Biometrika 33 (1946), p. 323. The others
/// are its cyclic shifts, and a row of `-`.
const ROWS: [&str; 3] = ["++-+++---+-", "++--++++-+-+----++-", "+++++-+-++--++--+-+----"];

/// Factors up to this number have all combinations of their levels.
const FEW: usize = 4;

/// The first half of a design of so many factors: for each row and factor, whether the factor has its high
/// level. Up to four factors have every combination of levels, and up to two of them twice.
#[must_use]
pub(crate) fn half(factors: usize) -> Vec<Vec<bool>> {
    if factors <= FEW {
        // The mirror images have the first factor at its other level.
        let combinations = 0..1usize << factors.saturating_sub(1);
        let row = |bits: usize| {
            (0..factors).map(|factor| factor == 0 || bits >> (factor - 1) & 1 == 1).collect()
        };
        let rows: Vec<Vec<bool>> = combinations.map(row).collect();
        return if factors <= 2 { [rows.clone(), rows].concat() } else { rows };
    }
    let first = ROWS.iter().find(|row| row.len() >= factors).unwrap_or(&ROWS[2]);
    let first: Vec<bool> = first.bytes().map(|sign| sign == b'+').collect();
    let width = first.len();
    let shift =
        |by: usize| (0..factors).map(|factor| first[(factor + width - by) % width]).collect();
    let mut rows: Vec<Vec<bool>> = (0..width).map(shift).collect();
    rows.push(vec![false; factors]);
    rows
}

/// The mirror image of a row.
#[must_use]
pub(crate) fn mirrored(row: &[bool]) -> Vec<bool> {
    row.iter().map(|high| !high).collect()
}

/// +1 for the high level, -1 for the low one.
#[must_use]
pub(crate) fn sign(high: bool) -> f64 {
    if high { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(rows: &[Vec<bool>], a: usize, b: usize) -> f64 {
        rows.iter().map(|row| sign(row[a]) * sign(row[b])).sum()
    }

    #[test]
    fn main_effects_are_independent_of_one_another() {
        for factors in 1..=MOST_FACTORS {
            let rows = half(factors);
            assert!(rows.iter().all(|row| row.len() == factors));
            for a in 0..factors {
                for b in 0..a {
                    assert_eq!(product(&rows, a, b), 0.0, "{factors} factors: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn the_number_of_runs_grows_with_that_of_factors() {
        let sizes = [1, 2, 3, 4, 5, 11, 12, 19, 20, 23].map(|factors| 2 * half(factors).len());
        assert_eq!(sizes, [4, 8, 8, 16, 24, 24, 40, 40, 48, 48]);
    }

    #[test]
    fn folding_keeps_interactions_out_of_main_effects() {
        for factors in 2..=MOST_FACTORS {
            let rows = half(factors);
            let both: Vec<Vec<bool>> =
                rows.iter().flat_map(|row| [row.clone(), mirrored(row)]).collect();
            for main in 0..factors {
                for a in 0..factors {
                    for b in 0..a {
                        let alias: f64 = both
                            .iter()
                            .map(|row| sign(row[main]) * sign(row[a]) * sign(row[b]))
                            .sum();
                        assert_eq!(alias, 0.0, "{factors} factors: {main} and {a} x {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_design_has_the_base() {
        for factors in 1..=MOST_FACTORS {
            let rows = half(factors);
            let is_base = |row: &Vec<bool>| row.iter().all(|high| !high);
            assert!(rows.iter().any(|row| is_base(row) || is_base(&mirrored(row))));
        }
    }
}
