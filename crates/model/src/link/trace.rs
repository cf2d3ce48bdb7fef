//! Traces of a link's rate.

use super::Capacity;
use super::keys::{MAX_RATE, MIN_RATE};

/// A trace is larger than this by mistake.
const MAX_LINES: usize = 1_000_000;
const MAX_MILLISECONDS: u64 = 24 * 3_600 * 1_000;

/// Reads a trace: Mahimahi's lines of milliseconds, or lines `SECONDS RATE`, such as `0.5 20mbit`: how long,
/// and how fast. Empty lines and `#` comments are ignored.
pub(super) fn parse(text: &str) -> Result<Capacity, String> {
    let lines: Vec<(usize, &str)> = (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return Err("the trace is empty".to_owned());
    }
    if lines.len() > MAX_LINES {
        return Err(format!("the trace has more than {MAX_LINES} lines"));
    }
    let is_mahimahi = lines.iter().all(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()));
    let trace = if is_mahimahi { opportunities(&lines) } else { steps(&lines) }?;
    match trace.mean() {
        Some(mean) if (MIN_RATE..=MAX_RATE).contains(&mean) => Ok(trace),
        _ => Err("the mean rate must be from 120kbit to 100gbit".to_owned()),
    }
}

fn opportunities(lines: &[(usize, &str)]) -> Result<Capacity, String> {
    let mut milliseconds = Vec::with_capacity(lines.len());
    for (number, line) in lines {
        let instant: u64 =
            line.parse().map_err(|_| format!("line {number}: `{line}` is too large"))?;
        if milliseconds.last().is_some_and(|last| instant < *last) {
            return Err(format!("line {number}: {instant} ms comes before the line above"));
        }
        if instant > MAX_MILLISECONDS {
            return Err(format!("line {number}: a trace is at most a day long"));
        }
        milliseconds.push(instant);
    }
    // The trace would begin anew at once, for ever.
    if milliseconds.last() == Some(&0) {
        return Err("the trace ends at 0 ms".to_owned());
    }
    Ok(Capacity::Opportunities(milliseconds))
}

fn steps(lines: &[(usize, &str)]) -> Result<Capacity, String> {
    let step = |(number, line): &(usize, &str)| {
        let error = || format!("line {number}: `{line}` is not SECONDS RATE, such as `0.5 20mbit`");
        let (seconds, rate) = line.split_once([' ', '\t', ',']).ok_or_else(error)?;
        let seconds: f64 = seconds.parse().map_err(|_| error())?;
        if !(1e-3..=86_400.0).contains(&seconds) {
            return Err(format!("line {number}: a step lasts from 1 ms to a day"));
        }
        let rate = rate.trim();
        let rate = if rate == "0" { Some(0) } else { crate::units::parse_bit_rate(rate) };
        let rate = rate.ok_or_else(error)?;
        if rate != 0 && !(MIN_RATE..=MAX_RATE).contains(&rate) {
            return Err(format!("line {number}: a rate is 0, or from 120kbit to 100gbit"));
        }
        Ok(((seconds * 1e9) as u64, rate))
    };
    let steps = lines.iter().map(step).collect::<Result<Vec<_>, String>>()?;
    Ok(Capacity::Steps(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_traces_are_read() {
        assert_eq!(parse("0\n5\n\n5\n10\n"), Ok(Capacity::Opportunities(vec![0, 5, 5, 10])));
        assert_eq!(
            parse("# downlink\n0.5 20mbit\n1,0\n2\t1gbit # fast\n"),
            Ok(Capacity::Steps(vec![
                (500_000_000, 20_000_000),
                (1_000_000_000, 0),
                (2_000_000_000, 1_000_000_000)
            ]))
        );
        assert_eq!(parse("10\n10\n").map(|trace| trace.mean()), Ok(Some(2_400_000)));
        assert_eq!(parse("1 10mbit\n3 2mbit\n").map(|trace| trace.mean()), Ok(Some(4_000_000)));
    }

    #[test]
    fn a_trace_that_cannot_be_followed_is_refused() {
        for (text, reason) in [
            ("# nothing\n", "the trace is empty"),
            ("0\n0\n", "the trace ends at 0 ms"),
            ("5\n4\n", "line 2: 4 ms comes before the line above"),
            ("99999999999999999999\n", "line 1: `99999999999999999999` is too large"),
            ("1 0\n2 0\n", "the mean rate must be from 120kbit to 100gbit"),
            ("1 1kbit\n", "line 1: a rate is 0, or from 120kbit to 100gbit"),
            ("0\n86000000\n", "the mean rate must be from 120kbit to 100gbit"),
            ("1 fast\n", "line 1: `1 fast` is not SECONDS RATE, such as `0.5 20mbit`"),
            ("-1 1mbit\n", "line 1: a step lasts from 1 ms to a day"),
            ("0.5\n1 1mbit\n", "line 1: `0.5` is not SECONDS RATE, such as `0.5 20mbit`"),
        ] {
            assert_eq!(parse(text), Err(reason.to_owned()), "{text}");
        }
    }
}
