//! What libbpf and the verifier say while a BPF object is loaded. libbpf has one printer for the process, so
//! all crates that load objects load them here, one at a time.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::PrintLevel;

/// The verifier's log may have megabytes, in one message; what matters is at its end, which is kept.
const KEPT: usize = 64 << 10;

static LOG: Mutex<String> = Mutex::new(String::new());
static LOADING: Mutex<()> = Mutex::new(());

fn keep(_: PrintLevel, message: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    append(&mut log, &message);
}

/// What a log is after a message: its end.
fn append(log: &mut String, message: &str) {
    log.push_str(last(message, KEPT));
    let kept = last(log, KEPT).len();
    log.drain(..log.len() - kept);
}

/// The last bytes of a text at most, from the beginning of a character.
fn last(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Calls what opens or loads an object. Nothing is printed.
///
/// # Errors
/// Those of `load`, with what libbpf and the verifier said.
pub fn logged<T>(
    load: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, (libbpf_rs::Error, String)> {
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    load().map_err(|error| {
        let log = std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
        (error, log)
    })
}

/// The end of a log, to follow a message; empty where the log is.
#[must_use]
pub fn excerpt(log: &str) -> String {
    const LINES: usize = 12;
    const LINE: usize = 300;
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n  {}", line.chars().take(LINE).collect::<String>())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libbpf_says_is_kept_for_the_error() {
        let opened = logged(|| libbpf_rs::ObjectBuilder::default().open_memory(b"no object"));
        let (_, log) = opened.expect_err("it is no object");
        assert!(log.contains("libbpf: "), "{log}");
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let mut log = String::new();
        append(&mut log, &format!("{}\nR0 invalid mem access\n", "\u{e9}".repeat(1 << 20)));
        append(&mut log, "-- END PROG LOAD LOG --\n");
        assert!(log.len() <= KEPT && log.len() > KEPT - 2, "{}", log.len());
        assert!(log.starts_with('\u{e9}'));
        assert_eq!(
            excerpt(&log).lines().skip(2).collect::<Vec<_>>(),
            ["  R0 invalid mem access", "  -- END PROG LOAD LOG --"]
        );
        append(&mut log, &"x".repeat(KEPT));
        assert_eq!(log, "x".repeat(KEPT));
    }

    #[test]
    fn an_excerpt_is_the_end_of_a_log() {
        let log: String = (0..100).map(|line| format!("line {line}\n\n")).collect();
        let lines: Vec<String> = excerpt(&log).lines().map(str::to_owned).collect();
        assert_eq!((lines.len(), lines[12].as_str()), (13, "  line 99"));
        assert_eq!(excerpt(&"x".repeat(1 << 20)).len(), 303);
        assert_eq!(excerpt("\n"), "");
    }
}
