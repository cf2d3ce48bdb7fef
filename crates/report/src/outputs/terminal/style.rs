//! What a stream can show: its width, and whether it may have colour.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use wirecost_model::document::Emphasis;

/// Where output is not a terminal it is wrapped as if it were an ordinary one.
const DEFAULT_WIDTH: usize = 80;
/// Longer lines of text are hard to read, however wide the terminal.
const MAX_TEXT_WIDTH: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Columns.
    pub width: usize,
    pub colour: bool,
}

impl TerminalStyle {
    /// Of this stream; `COLUMNS` overrides its width. Colour only on a terminal, and not where `NO_COLOR` is set (no-color.org).
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = understands_escapes(stream);
        let of_terminal = || {
            let size = rustix::termios::tcgetwinsize(stream).ok().filter(|_| terminal)?;
            Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
        };
        let columns = std::env::var("COLUMNS").ok();
        let width = columns.and_then(|columns| requested_width(&columns)).or_else(of_terminal);
        Self { width: width.unwrap_or(DEFAULT_WIDTH), colour: terminal && !no_color }
    }

    pub fn plain(width: usize) -> Self {
        Self { width, colour: false }
    }

    pub(crate) fn emphasize(&self, emphasis: Emphasis, text: &str) -> String {
        let style = match emphasis {
            Emphasis::Plain => return text.to_owned(),
            Emphasis::Muted => Style::new().dimmed(),
            Emphasis::Strong => Style::new().bold(),
            Emphasis::Warning => AnsiColor::Yellow.on_default().bold(),
            Emphasis::Error => AnsiColor::Red.on_default().bold(),
        };
        self.paint(style, text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Breaks text between words so that, after `label` on the first line and as much space on the
    /// others, it fits.
    pub(crate) fn wrap(&self, label: usize, text: &str) -> Vec<String> {
        let room = self.width.min(MAX_TEXT_WIDTH).saturating_sub(label).max(20);
        wrap(text, Options::new(room).word_separator(WordSeparator::AsciiSpace))
    }
}

/// What `COLUMNS` asks for.
fn requested_width(columns: &str) -> Option<usize> {
    columns.trim().parse().ok().filter(|&columns| columns > 0)
}

/// Breaks text between words, and names also behind their dots, colons and underscores.
pub(crate) fn fold(text: &str, width: usize) -> Vec<String> {
    wrap(text, Options::new(width).word_separator(WordSeparator::Custom(words)))
}

/// Between these [`fold`] breaks.
pub(crate) fn words(text: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut rest = text;
    Box::new(std::iter::from_fn(move || {
        let end = rest.find([' ', '.', ':', '_']).map_or(rest.len(), |at| at + 1);
        // `::` of a path is not broken.
        let colons = rest[..end].ends_with(':') && rest[end..].starts_with(':');
        let (word, left) = rest.split_at(end + usize::from(colons));
        rest = left;
        (!word.is_empty()).then(|| Word::from(word))
    }))
}

/// Words that are longer than a line are broken too.
fn wrap(text: &str, options: Options<'_>) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() {
        return Vec::new();
    }
    let options =
        options.wrap_algorithm(WrapAlgorithm::FirstFit).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(&words.join(" "), options).into_iter().map(Into::into).collect()
}

/// Whether the stream is a terminal that does what escape sequences say.
pub(crate) fn understands_escapes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_is_a_number_above_zero() {
        assert_eq!(
            ["60", " 7 ", "0", "", "x"].map(requested_width),
            [Some(60), Some(7), None, None, None]
        );
    }

    #[test]
    fn names_are_folded_behind_their_parts() {
        let name = "<rustc::ty::Context>::intern_ty";
        assert_eq!(fold(name, 12), ["<rustc::ty::", "Context>::", "intern_ty"]);
        assert_eq!(fold("a:b c.d", 2), ["a:", "b", "c.", "d"]);
        assert_eq!(words(name).map(|word| word.word).collect::<String>(), name);
    }
}
