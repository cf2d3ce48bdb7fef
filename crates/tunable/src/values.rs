//! Values as a user types them: each function returns how a value is written when it is read back, or
//! `None`.

use std::str::FromStr;

use wirecost_linux::cpu_list::{format_list, parse_list};

use crate::target::Refusal;

/// No CPUs, where a value is a list of CPUs.
pub(crate) const NONE: &str = "none";

pub(crate) fn number(value: &str, least: u64, most: u64) -> Option<String> {
    let number: u64 = value.parse().ok()?;
    (least..=most).contains(&number).then(|| number.to_string())
}

/// The number that a checked value, or a value that was read back, stands for.
pub(crate) fn parsed<T: FromStr>(value: &str) -> Result<T, Refusal> {
    value
        .parse()
        .map_err(|_| Refusal::Unsupported(format!("`{value}` is not a number that it takes")))
}

/// Numbers that are separated by blanks or commas.
pub(crate) fn numbers(value: &str, count: usize) -> Option<String> {
    let parts: Option<Vec<u64>> = value
        .split(|c: char| c.is_ascii_whitespace() || c == ',')
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect();
    let parts = parts.filter(|parts| parts.len() == count)?;
    Some(parts.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
}

pub(crate) fn switch(value: &str) -> Option<String> {
    match value {
        "on" | "true" | "1" => Some(on_off(true)),
        "off" | "false" | "0" => Some(on_off(false)),
        _ => None,
    }
}

pub(crate) fn on_off(on: bool) -> String {
    (if on { "on" } else { "off" }).to_owned()
}

/// A list of CPUs, or `none`.
pub(crate) fn cpus_or_none(value: &str) -> Option<String> {
    if value == NONE { Some(NONE.to_owned()) } else { cpus(value) }
}

/// A list of CPUs such as `0-3,8`.
pub(crate) fn cpus(value: &str) -> Option<String> {
    let cpus = parse_list(value).filter(|cpus| !cpus.is_empty())?;
    Some(format_list(&cpus))
}

/// A name of the kernel's, as of a congestion control.
pub(crate) fn word(value: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    ((1..=32).contains(&value.len()) && value.bytes().all(fits)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read_back() {
        let same =
            |found: Option<String>, expected: &str| assert_eq!(found.as_deref(), Some(expected));
        same(number("0017", 0, 20), "17");
        same(numbers("4096, 131072\t6291456", 3), "4096 131072 6291456");
        same(switch("true"), "on");
        same(cpus("3,0-1,2"), "0-3");
        same(cpus_or_none("none"), "none");
        same(word("tcp_bbr-2"), "tcp_bbr-2");
    }

    #[test]
    fn other_values_are_refused() {
        assert_eq!(number("21", 0, 20), None);
        assert_eq!(number("-1", 0, 20), None);
        assert_eq!(numbers("1 2", 3), None);
        assert_eq!(numbers("1 2 x", 3), None);
        assert_eq!(switch("yes"), None);
        assert_eq!(cpus(""), None);
        assert_eq!(cpus("none"), None);
        assert_eq!(cpus_or_none("0-"), None);
        assert_eq!(word("a b"), None);
        assert_eq!(word(""), None);
    }
}
