//! Values: numbers, times and distributions. Numbers mean what they say: nothing is cut off.

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use wirecost_model::profile::{ByStrand, Quantity, Weighted};

use super::keys::{self, Table};
use super::{Native, span};
use crate::language::error::LanguageErrorKind;
use crate::language::parse::Resolved;

/// Largest number that both languages can write.
pub(super) const INT_MAX: u64 = i32::MAX as u64;

/// Headers of IPv4 and UDP.
pub(super) const IPV4_UDP: u64 = 28;

/// Longest time of a distribution: a day.
const DAY: u64 = 86_400_000_000_000;

/// What a quantity counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Time,
}

impl Unit {
    fn least(self) -> u64 {
        match self {
            Unit::Bytes => 1,
            Unit::Time => 0,
        }
    }

    /// The most that a distribution can have.
    fn most(self) -> u64 {
        match self {
            // An end that uperf leaves open is 2^32 - 1.
            Unit::Bytes => u32::MAX.into(),
            Unit::Time => DAY,
        }
    }
}

/// What is wrong with a text that is to be a number.
pub(super) struct NoValue {
    pub(super) wanted: &'static str,
    pub(super) help: &'static str,
}

const NO_BYTES: NoValue = NoValue {
    wanted: "a number of bytes",
    help: "write digits and at most one of k, m, g (of 1024), as in \"64k\"",
};
const NO_TIME: NoValue = NoValue {
    wanted: "a time",
    help: "write digits and a unit: ns, us, ms, s, min or h, as in \"10ms\"",
};
pub(super) const NO_COUNT: NoValue =
    NoValue { wanted: "a whole number", help: "write digits only, as in 100" };
pub(super) const NO_NUMBER: NoValue =
    NoValue { wanted: "a number", help: "write a number more than 0, as in 1.5" };

/// Digits, and nothing else.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A number without sign or exponent, and what follows it.
fn decimal(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let begins = number.starts_with(|c: char| c.is_ascii_digit());
    let ends = number.ends_with(|c: char| c.is_ascii_digit());
    (begins && ends).then_some((number, rest))
}

/// `number` of units, exactly where it has no fraction.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    if let Some(number) = whole(number) {
        return number.checked_mul(unit);
    }
    let value = number.parse::<f64>().ok()? * unit as f64;
    (value < 9e18).then(|| value.round() as u64)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, suffix) = decimal(text)?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    // There is no half of a byte.
    if unit == 1 { whole(number) } else { scaled(number, unit) }
}

/// Nanoseconds; a number alone is seconds.
pub(in crate::language) fn time(text: &str) -> Option<u64> {
    let (number, suffix) = decimal(text)?;
    let unit = match suffix {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "min" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    };
    scaled(number, unit).filter(|ns| i64::try_from(*ns).is_ok())
}

impl Native<'_> {
    pub(super) fn no_value(&mut self, what: &'static str, written: &Resolved, no: &NoValue) {
        let kind = LanguageErrorKind::BadValue {
            what,
            value: written.text.clone(),
            wanted: no.wanted,
            help: no.help,
        };
        self.reader.error(kind, written.span);
    }

    pub(super) fn in_range(
        &mut self,
        what: &'static str,
        written: &Resolved,
        value: u64,
        (min, max): (u64, u64),
    ) -> Option<u64> {
        if (min..=max).contains(&value) {
            return Some(value);
        }
        let value = written.text.clone();
        self.reader.error(LanguageErrorKind::OutOfRange { what, value, min, max }, written.span);
        None
    }

    /// A whole number from `min` to `max`.
    pub(super) fn count(
        &mut self,
        what: &'static str,
        value: &Spanned<DeValue<'_>>,
        range: (u64, u64),
    ) -> Option<u64> {
        let written = self.scalar(what, value)?;
        let Some(count) = whole(&written.text) else {
            self.no_value(what, &written, &NO_COUNT);
            return None;
        };
        self.in_range(what, &written, count, range)
    }

    /// A number of more than 0.
    pub(super) fn number(
        &mut self,
        what: &'static str,
        value: &Spanned<DeValue<'_>>,
        most: f64,
    ) -> Option<f64> {
        let written = self.scalar(what, value)?;
        let number = written.text.parse::<f64>().ok();
        let number = number.filter(|number| *number > 0.0 && *number <= most);
        if number.is_none() {
            self.no_value(what, &written, &NO_NUMBER);
        }
        number
    }

    /// Bytes, or nanoseconds.
    pub(super) fn amount(
        &mut self,
        what: &'static str,
        written: &Resolved,
        unit: Unit,
    ) -> Option<u64> {
        let (read, no) = match unit {
            Unit::Bytes => (bytes(&written.text), &NO_BYTES),
            Unit::Time => (time(&written.text), &NO_TIME),
        };
        if read.is_none() {
            self.no_value(what, written, no);
        }
        read
    }

    /// A time of more than nothing.
    pub(super) fn time(&mut self, what: &'static str, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        let written = self.scalar(what, value)?;
        let time = self.amount(what, &written, Unit::Time)?;
        if time == 0 {
            self.no_value(what, &written, &NoValue { wanted: "a time of more than 0", ..NO_TIME });
        }
        (time > 0).then_some(time)
    }

    /// A constant or a distribution.
    pub(super) fn quantity(
        &mut self,
        what: &'static str,
        value: &Spanned<DeValue<'_>>,
        unit: Unit,
    ) -> Option<Quantity> {
        match value.get_ref() {
            DeValue::Table(table) => self.distribution(what, table, span(value), unit),
            DeValue::String(text) if text == "imix" && unit == Unit::Bytes => {
                Some(Quantity::Imix { headers: IPV4_UDP })
            }
            _ => {
                if unit == Unit::Time {
                    return self.time(what, value).map(Quantity::Fixed);
                }
                let written = self.scalar(what, value)?;
                let amount = self.amount(what, &written, unit)?;
                self.in_range(what, &written, amount, (1, INT_MAX)).map(Quantity::Fixed)
            }
        }
    }

    fn distribution(
        &mut self,
        what: &'static str,
        table: &DeTable<'_>,
        at: crate::language::Span,
        unit: Unit,
    ) -> Option<Quantity> {
        self.known_keys(table, Table::Quantity, &[]);
        let mut found = table.iter().filter_map(|(key, value)| {
            let name = keys::names(Table::Quantity).find(|name| *name == key.get_ref().as_ref())?;
            Some((name, value))
        });
        let (Some((name, value)), None) = (found.next(), found.next()) else {
            if table.len() != 1 {
                self.reader.error(LanguageErrorKind::OneDistribution { what }, at);
            }
            return None;
        };
        match (name, value.get_ref()) {
            ("uniform", DeValue::Table(of)) => {
                self.known_keys(of, Table::Uniform, &[]);
                let min = self.bound("min", of, unit);
                let max = self.bound("max", of, unit);
                if !self.needs(of, "min", Table::Uniform, span(value))
                    | !self.needs(of, "max", Table::Uniform, span(value))
                {
                    return None;
                }
                let (min, max) = (min?, max?);
                self.ordered(min, max, span(value))?;
                Some(Quantity::Random { min, max })
            }
            ("lognormal", DeValue::Table(of)) => {
                self.known_keys(of, Table::Lognormal, &[]);
                let median = self.bound("median", of, unit);
                let sigma = of.get("sigma").map(|sigma| self.number("sigma", sigma, 10.0));
                let bounds = (self.bound("min", of, unit), self.bound("max", of, unit));
                if !self.needs(of, "median", Table::Lognormal, span(value))
                    | !self.needs(of, "sigma", Table::Lognormal, span(value))
                {
                    return None;
                }
                let (median, sigma) = (median?, sigma??);
                // One in three and a half million is more than five standard deviations out.
                let far = (median as f64 * (5.0 * sigma).exp()) as u64;
                let (min, max) = self.bounds(of, bounds, far, span(value), unit)?;
                let sigma = ((sigma * 1e6).round() as u64).max(1);
                Some(Quantity::Lognormal { median, sigma, min, max })
            }
            ("exponential", DeValue::Table(of)) => {
                self.known_keys(of, Table::Exponential, &[]);
                let mean = self.bound("mean", of, unit);
                let bounds = (self.bound("min", of, unit), self.bound("max", of, unit));
                if !self.needs(of, "mean", Table::Exponential, span(value)) {
                    return None;
                }
                let mean = mean?;
                // e^-20 is one in 500 million.
                let far = mean.saturating_mul(20);
                let (min, max) = self.bounds(of, bounds, far, span(value), unit)?;
                Some(Quantity::Exponential { mean, min, max })
            }
            ("table", DeValue::Table(of)) => self.table(what, of, span(value), unit),
            ("imix", DeValue::Table(of)) if unit == Unit::Bytes => {
                self.known_keys(of, Table::Imix, &[]);
                let headers = match of.get("headers") {
                    // The smallest packet has 40 bytes, and something must be left of it.
                    Some(headers) => self.count("headers", headers, (0, 39))?,
                    None => IPV4_UDP,
                };
                Some(Quantity::Imix { headers })
            }
            ("by_strand", _) => self.by_strand(what, value, unit),
            ("imix", _) if unit == Unit::Time => {
                self.reader.error(LanguageErrorKind::OneDistribution { what }, span(value));
                None
            }
            (name, _) => {
                self.wrong_type(name, "a table", value);
                None
            }
        }
    }

    fn bound(&mut self, what: &'static str, table: &DeTable<'_>, unit: Unit) -> Option<u64> {
        let value = table.get(what)?;
        let written = self.scalar(what, value)?;
        let amount = self.amount(what, &written, unit)?;
        self.in_range(what, &written, amount, (unit.least(), unit.most()))
    }

    fn bounds(
        &mut self,
        table: &DeTable<'_>,
        (min, max): (Option<u64>, Option<u64>),
        far: u64,
        at: crate::language::Span,
        unit: Unit,
    ) -> Option<(u64, u64)> {
        if (min.is_none() && table.contains_key("min"))
            || (max.is_none() && table.contains_key("max"))
        {
            return None;
        }
        let min = min.unwrap_or(unit.least());
        let most = if unit == Unit::Bytes { INT_MAX } else { unit.most() };
        let max = max.unwrap_or(far.min(most).max(min));
        self.ordered(min, max, at)?;
        Some((min, max))
    }

    fn ordered(&mut self, min: u64, max: u64, at: crate::language::Span) -> Option<()> {
        if min > max {
            self.reader.error(LanguageErrorKind::MinAboveMax, at);
        }
        (min <= max).then_some(())
    }

    fn table(
        &mut self,
        what: &'static str,
        table: &DeTable<'_>,
        at: crate::language::Span,
        unit: Unit,
    ) -> Option<Quantity> {
        if table.is_empty() {
            self.reader.error(LanguageErrorKind::OneDistribution { what }, at);
            return None;
        }
        let mut values = Vec::new();
        for (key, weight) in table {
            let at = span(key);
            let written =
                self.filled_in(what, key.get_ref(), at).map(|text| Resolved { text, span: at });
            let amount = written.and_then(|written| {
                let amount = self.amount(what, &written, unit)?;
                self.in_range(what, &written, amount, (unit.least(), unit.most()))
            });
            let weight = self.count("weight", weight, (1, u32::MAX.into()));
            values.push(amount.zip(weight));
        }
        let values: Option<Vec<_>> = values.into_iter().collect();
        let mut values = values?;
        values.sort_unstable();
        let weighted = values.into_iter().map(|(value, weight)| Weighted {
            value,
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
        });
        Some(Quantity::Table(weighted.collect()))
    }

    fn by_strand(
        &mut self,
        what: &'static str,
        value: &Spanned<DeValue<'_>>,
        unit: Unit,
    ) -> Option<Quantity> {
        let by_strand = match value.get_ref() {
            DeValue::Array(values) if !values.is_empty() => {
                let read = |value| {
                    let written = self.scalar(what, value)?;
                    let amount = self.amount(what, &written, unit)?;
                    self.in_range(what, &written, amount, (unit.least(), unit.most()))
                };
                let values: Vec<Option<u64>> = values.iter().map(read).collect();
                ByStrand::Each(values.into_iter().collect::<Option<_>>()?)
            }
            DeValue::Table(table)
                if keys::names(Table::ByStrand).any(|k| table.contains_key(k)) =>
            {
                self.known_keys(table, Table::ByStrand, &[]);
                let (from, to) = (self.bound("from", table, unit), self.bound("to", table, unit));
                if !self.needs(table, "from", Table::ByStrand, span(value))
                    | !self.needs(table, "to", Table::ByStrand, span(value))
                {
                    return None;
                }
                ByStrand::Spread { first: from?, last: to? }
            }
            DeValue::Table(table) if !table.contains_key("by_strand") => {
                let drawn = self.distribution(what, table, span(value), unit)?;
                ByStrand::Drawn(Box::new(drawn))
            }
            _ => {
                self.wrong_type("by_strand", "a list, from and to, or a distribution", value);
                return None;
            }
        };
        Some(Quantity::ByStrand(by_strand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_what_they_say() {
        assert_eq!(bytes("64k"), Some(65536));
        assert_eq!(bytes("1.5K"), Some(1536));
        assert_eq!(bytes("4294967297"), Some(4_294_967_297));
        for bad in ["", "k", "-1", "+1", "1e3", "64kb", "1.5", ".5k", "5.k", "0x10", "1 k"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        assert_eq!(time("10ms"), Some(10_000_000));
        assert_eq!(time("1.5"), Some(1_500_000_000));
        assert_eq!(time("2min"), Some(120_000_000_000));
        assert_eq!(time("0s"), Some(0));
        for bad in ["2m", "", "ms", "1S", "1 s", "10000000000h", "-1s"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
