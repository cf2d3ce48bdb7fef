//! How output may look where it goes: its width, and whether it may have colour.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};

/// Where output is not a terminal it is wrapped as if it were an ordinary one.
const DEFAULT_WIDTH: usize = 80;
/// Longer lines of text are hard to read, however wide the terminal.
const MAX_TEXT_WIDTH: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    pub colour: bool,
}

impl Look {
    /// Of this stream. Colour only on a terminal, and not where `NO_COLOR` is set (no-color.org).
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = understands_escapes(stream);
        let width = terminal
            .then(|| rustix::termios::tcgetwinsize(stream).ok())
            .flatten()
            .map(|size| usize::from(size.ws_col))
            .filter(|&columns| columns > 0);
        Self { width: width.unwrap_or(DEFAULT_WIDTH), colour: terminal && !no_color }
    }

    pub fn plain(width: usize) -> Self {
        Self { width, colour: false }
    }

    pub(super) fn heading(&self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    pub(super) fn title(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub(super) fn warning(&self, text: &str) -> String {
        self.paint(AnsiColor::Yellow.on_default().bold(), text)
    }

    pub(super) fn error(&self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Breaks text between words so that, after `label` on the first line and as much space on the
    /// others, it fits.
    pub(super) fn wrap(&self, label: usize, text: &str) -> Vec<String> {
        let room = self.width.min(MAX_TEXT_WIDTH).saturating_sub(label).max(20);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }
}

/// Whether the stream is a terminal that does what escape sequences say.
pub(crate) fn understands_escapes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
