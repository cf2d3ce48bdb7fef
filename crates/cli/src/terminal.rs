//! The only place that writes lines of text to standard output and standard error. Names in them come
//! from files, agents and records, so control characters are escaped here. (Documents are written by
//! `wirecost_report::outputs`, which does the same.)

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Mutex;

use wirecost_linux::descriptors;
use wirecost_model::visible::visible_lines;

/// The first failure to write to standard output.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output. What it cannot write, the program tells at its end ([`finish_output`]), so that a
/// full disk is not mistaken for a result without lines.
#[derive(Debug)]
pub(crate) struct StandardOutput(io::Stdout);

pub(crate) fn stdout() -> StandardOutput {
    StandardOutput(io::stdout())
}

impl StandardOutput {
    fn remember<T>(result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::Interrupted
            && let Ok(mut failure) = FAILURE.lock()
        {
            let copy = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            };
            failure.get_or_insert(copy);
        }
        result
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Rust opens /dev/null in place of a standard stream that is closed.
        Self::remember(match descriptors::stdout_was_closed() {
            true => Err(rustix::io::Errno::BADF.into()),
            false => self.0.write(bytes),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::remember(self.0.flush())
    }
}

/// Writes what is still buffered.
///
/// # Errors
/// The first failure to write to standard output. A reader that stops early (`| head`) is none.
pub(crate) fn finish_output() -> io::Result<()> {
    let _ = stdout().flush();
    let failure = FAILURE.lock().ok().and_then(|mut failure| failure.take());
    match failure {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) {
    let _ = stdout().write_all(visible_lines(text).as_bytes());
}

/// Writes a line to standard error.
pub(crate) fn warn(line: impl Display) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", visible_lines(&line));
}

/// Writes a report about a place in a file to standard error. `diagnostics` has escaped what it shows.
pub(crate) fn draw(report: &miette::Report) {
    let _ = writeln!(io::stderr().lock(), "{report:?}");
}
