//! Numbers that are drawn each time: the size of a message, the length of a pause.

use serde::{Deserialize, Serialize};

use crate::units;

/// A number of bytes or of nanoseconds, as a profile gives it. All parameters are whole numbers, so that
/// every host of a run draws from exactly the same distribution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Always this.
    Fixed(u64),
    /// Uniform, both ends included.
    Random { min: u64, max: u64 },
    /// Values are clamped to `min` and `max`.
    Lognormal {
        median: u64,
        /// Standard deviation of the natural logarithm, in millionths.
        sigma: u64,
        min: u64,
        max: u64,
    },
    /// Values are clamped to `min` and `max`.
    Exponential { mean: u64, min: u64, max: u64 },
    /// These values, each as often as its weight says.
    Table(Vec<Weighted>),
    /// The payloads of [`IMIX`], whose packets have this many bytes of headers.
    Imix { headers: u64 },
    /// Each strand has one value and keeps it.
    ByStrand(ByStrand),
}

/// A value of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighted {
    pub value: u64,
    pub weight: u32,
}

/// How a value depends on the strand alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByStrand {
    /// Strand n has the n-th value; after the last the list starts again.
    Each(Vec<u64>),
    /// From the first value for the first strand to the last for the last, in even steps.
    Spread { first: u64, last: u64 },
    /// Each strand draws once.
    Drawn(Box<Quantity>),
}

/// The "simple IMIX": bytes of an IP packet, and how many of twelve packets have them. Its average
/// packet has 340 bytes.
pub const IMIX: [Weighted; 3] = [
    Weighted { value: 40, weight: 7 },
    Weighted { value: 576, weight: 4 },
    Weighted { value: 1500, weight: 1 },
];

impl Quantity {
    /// The largest value it can have.
    pub fn max(&self) -> u64 {
        match self {
            Quantity::Fixed(n) => *n,
            Quantity::Random { max, .. }
            | Quantity::Lognormal { max, .. }
            | Quantity::Exponential { max, .. } => *max,
            Quantity::Table(values) => values.iter().map(|v| v.value).max().unwrap_or(0),
            Quantity::Imix { headers } => {
                imix(*headers).into_iter().map(|v| v.value).max().unwrap_or(0)
            }
            Quantity::ByStrand(ByStrand::Each(values)) => values.iter().copied().max().unwrap_or(0),
            Quantity::ByStrand(ByStrand::Spread { first, last }) => *first.max(last),
            Quantity::ByStrand(ByStrand::Drawn(quantity)) => quantity.max(),
        }
    }

    /// For a person, with values in the words of `unit`.
    pub fn described(&self, unit: &dyn Fn(u64) -> String) -> String {
        match self {
            Quantity::Fixed(n) => unit(*n),
            Quantity::Random { min, max } => format!("rand({},{})", unit(*min), unit(*max)),
            Quantity::Lognormal { median, sigma, min, max } => format!(
                "lognormal(median {}, sigma {}, from {} to {})",
                unit(*median),
                *sigma as f64 / 1e6,
                unit(*min),
                unit(*max)
            ),
            Quantity::Exponential { mean, min, max } => {
                format!("exponential(mean {}, from {} to {})", unit(*mean), unit(*min), unit(*max))
            }
            Quantity::Table(values) => format!("table({})", shares(values, unit)),
            Quantity::Imix { headers } => format!("imix({})", shares(&imix(*headers), unit)),
            Quantity::ByStrand(ByStrand::Each(values)) => {
                let values: Vec<String> = values.iter().map(|v| unit(*v)).collect();
                format!("by strand {}", values.join(", "))
            }
            Quantity::ByStrand(ByStrand::Spread { first, last }) => {
                format!("by strand from {} to {}", unit(*first), unit(*last))
            }
            Quantity::ByStrand(ByStrand::Drawn(quantity)) => {
                format!("by strand {}", quantity.described(unit))
            }
        }
    }
}

/// The payloads of the simple IMIX, with this number of header bytes in each packet.
pub fn imix(headers: u64) -> [Weighted; 3] {
    IMIX.map(|packet| Weighted { value: packet.value.saturating_sub(headers), ..packet })
}

/// Each value with its share in percent.
fn shares(values: &[Weighted], unit: &dyn Fn(u64) -> String) -> String {
    let total: f64 = values.iter().map(|v| f64::from(v.weight)).sum();
    let share = |v: &Weighted| {
        format!("{} {}%", unit(v.value), units::three_digits(100.0 * f64::from(v.weight) / total))
    };
    values.iter().map(share).collect::<Vec<_>>().join(", ")
}

impl std::fmt::Display for Quantity {
    /// As a number of bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.described(&units::binary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_averages_340_bytes_a_packet() {
        let sum: u64 = IMIX.iter().map(|v| v.value * u64::from(v.weight)).sum();
        // 4084 bytes in twelve packets.
        assert_eq!((sum, IMIX.iter().map(|v| v.weight).sum()), (4084, 12));
        assert_eq!(imix(28).map(|v| v.value), [12, 548, 1472]);
    }

    #[test]
    fn quantities_describe_themselves() {
        let each = Quantity::ByStrand(ByStrand::Each(vec![1024, 5]));
        assert_eq!(each.to_string(), "by strand 1k, 5");
        assert_eq!(
            Quantity::Imix { headers: 28 }.to_string(),
            "imix(12 58.3%, 548 33.3%, 1472 8.33%)"
        );
        let drawn = Quantity::Lognormal { median: 8192, sigma: 1_200_000, min: 1, max: 1 << 20 };
        let text = "by strand lognormal(median 8k, sigma 1.2, from 1 to 1m)";
        assert_eq!(Quantity::ByStrand(ByStrand::Drawn(Box::new(drawn))).to_string(), text);
    }
}
