//! Traces: files of the times at which transactions are to begin. They are read where the run is
//! started, and travel to the other hosts in their plans.

use wirecost_model::profile::{Arrivals, Profile, Trace};

use super::error::{LanguageError, LanguageErrorKind};
use super::native::trace_time;
use super::source::line_from;

/// Starts that a trace may have: as text of a plan some ten megabytes for each host.
pub const LONGEST_TRACE: usize = 1_000_000;

/// Reads the traces that a profile names, by `read`.
///
/// # Errors
/// Each trace that cannot be read or is none.
pub fn read_traces(
    profile: &mut Profile,
    source: &str,
    read: &dyn Fn(&str) -> std::io::Result<String>,
) -> Result<(), Vec<LanguageError>> {
    let mut errors = Vec::new();
    for transaction in profile.groups.iter_mut().flat_map(|group| &mut group.transactions) {
        let Some(Arrivals::Trace(trace)) = &mut transaction.arrivals else { continue };
        let at = transaction.at;
        let text = read(&trace.file).map_err(|error| LanguageErrorKind::NoTrace {
            file: trace.file.clone(),
            reason: error.to_string(),
        });
        match text.and_then(|text| starts(trace, &text)) {
            Ok(starts) => trace.starts = starts,
            Err(kind) => {
                errors.push(LanguageError { kind, at, span: line_from(source, at) });
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The starts in a trace's text.
fn starts(trace: &Trace, text: &str) -> Result<Vec<u64>, LanguageErrorKind> {
    let mut starts: Vec<u64> = Vec::new();
    let bad = |line: usize, reason| {
        let file = trace.file.clone();
        Err(LanguageErrorKind::BadTrace { file, line, reason })
    };
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let words = line.split_once('#').map_or(line, |(words, _)| words).trim();
        if words.is_empty() {
            continue;
        }
        let Some(time) = trace_time(words) else {
            return bad(number, "there is no time");
        };
        let before = starts.last().copied().unwrap_or(0);
        let start = if trace.intervals { before.checked_add(time) } else { Some(time) };
        match start.filter(|start| i64::try_from(*start).is_ok()) {
            Some(start) if start >= before => starts.push(start),
            Some(_) => return bad(number, "it is before the one before it"),
            None => return bad(number, "it is too late"),
        }
        if starts.len() > LONGEST_TRACE {
            return bad(number, "a trace has at most 1000000 starts");
        }
    }
    if starts.is_empty() { bad(0, "there is no start in it") } else { Ok(starts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, intervals: bool) -> Result<Vec<u64>, String> {
        let trace = Trace { file: "t".to_owned(), intervals, starts: Vec::new() };
        starts(&trace, text).map_err(|kind| kind.to_string())
    }

    #[test]
    fn times_and_intervals() {
        let text = "# begin\n0\n0.25 # a quarter\n\n300ms\n";
        assert_eq!(read(text, false), Ok(vec![0, 250_000_000, 300_000_000]));
        assert_eq!(read(text, true), Ok(vec![0, 250_000_000, 550_000_000]));
    }

    #[test]
    fn what_is_no_trace() {
        let cases = [
            ("", "t, line 0: there is no start in it"),
            ("1\nx\n", "t, line 2: there is no time"),
            ("2\n1\n", "t, line 2: it is before the one before it"),
            ("-1\n", "t, line 1: there is no time"),
        ];
        for (text, message) in cases {
            assert_eq!(read(text, false), Err(message.to_owned()));
        }
        let long = "1us\n".repeat(LONGEST_TRACE + 1);
        assert!(read(&long, true).unwrap_err().contains("at most 1000000"));
        assert_eq!(read(&long[4..], true).unwrap().len(), LONGEST_TRACE);
    }
}
