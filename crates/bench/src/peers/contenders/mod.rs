//! The contenders: a file for each program, with its command lines at its best documented setting,
//! what it cannot do, and how to read what it writes.

pub(crate) mod http;
pub(crate) mod iperf;
pub(crate) mod iperf3;
pub(crate) mod neper;
pub(crate) mod netperf;
pub(crate) mod nuttcp;
pub(crate) mod qperf;
pub(crate) mod sockperf;
pub(crate) mod wirecost;

/// The number that stands before or after a word, in a line that has blanks between its words.
fn number_before(line: &str, word: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = words.iter().position(|found| *found == word)?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

/// The value of `key=value` or `key = value`.
fn value<'a>(written: &'a str, key: &str) -> Option<&'a str> {
    written.match_indices(key).find_map(|(at, _)| {
        let starts = at == 0 || !written[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = written[at + key.len()..].trim_start_matches([' ', '\t']).strip_prefix('=')?;
        let rest = rest.trim_start_matches([' ', '\t']);
        let end = rest.find([' ', ';', '\n', '\r', '\x1b', ')']).unwrap_or(rest.len());
        starts.then(|| &rest[..end])
    })
}

fn number(written: &str, key: &str) -> Result<f64, String> {
    value(written, key).and_then(|v| v.parse().ok()).ok_or_else(|| format!("it wrote no `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_at_a_blank_or_a_semicolon() {
        assert_eq!(value("RunTime=0.546 sec; X=1", "RunTime"), Some("0.546"));
        assert_eq!(value("    bw  =  26 bytes", "bw"), Some("26"));
        assert_eq!(value("send_bw = 1\nbw = 2", "bw"), Some("2"));
        assert_eq!(value("bw", "bw"), None);
        assert!(number("bw = fast", "bw").is_err());
    }

    #[test]
    fn a_number_stands_before_its_unit() {
        assert_eq!(number_before("[  1] 0-1 sec  5 Bytes  40 bits/sec", "bits/sec"), Some(40.0));
        assert_eq!(number_before("bits/sec", "bits/sec"), None);
    }
}
