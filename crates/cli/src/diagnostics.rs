//! Messages about a place in a file, drawn with the lines around it.
//!
//! A report holds an excerpt of the file: miette walks through its source from the beginning for each
//! report, and pads with a formatting width, which ends at 65,535 columns.

use std::borrow::Cow;
use std::fmt::{self, Display};

use miette::{
    LabeledSpan, MietteDiagnostic, MietteError, MietteSpanContents, Report, Severity, SourceCode,
    SourceSpan, SpanContents,
};
use wirecost_model::profile::Position;
use wirecost_model::visible::{visible, visible_lines};

/// Reports that are shown; the others are counted.
const MOST: usize = 20;
/// Characters of a line that are shown before what is underlined, and in all.
const BEFORE: usize = 60;
const LINE: usize = 160;
/// Lines of what is underlined.
const LINES: usize = 6;
/// Characters of a message.
const MESSAGE: usize = 2000;

/// What stands for the rest of a line or a message.
const MORE: &str = "...";

/// A file that a report is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct File<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl File<'_> {
    /// From this place to the end of its line; empty where there is no such place.
    pub(crate) fn line_from(self, at: Position) -> std::ops::Range<usize> {
        let Some(number) = at.line.checked_sub(1) else { return 0..0 };
        let mut lines = self.text.split_inclusive('\n').scan(0, |end, line| {
            let start = *end;
            *end += line.len();
            Some((start, line.trim_end()))
        });
        let Some((start, line)) = lines.nth(number as usize) else { return 0..0 };
        let column = at.column.saturating_sub(1) as usize;
        let from = line.char_indices().nth(column).map_or(line.len(), |(from, _)| from);
        start + from..start + line.len()
    }

    /// A report about these bytes of the file; about the whole file where there are none.
    pub(crate) fn report(
        self,
        severity: Severity,
        message: &str,
        help: Option<String>,
        span: std::ops::Range<usize>,
    ) -> Report {
        let mut diagnostic = MietteDiagnostic::new(message_text(message)).with_severity(severity);
        if let Some(help) = help {
            diagnostic = diagnostic.with_help(message_text(&help));
        }
        if span.is_empty() {
            return Report::new(diagnostic);
        }
        let excerpt = Excerpt::of(self, span);
        let diagnostic = diagnostic.with_label(LabeledSpan::underline(excerpt.label.clone()));
        Report::new(diagnostic).with_source_code(excerpt)
    }
}

/// The first of these, and how many are left out.
pub(crate) fn first<T>(all: &[T]) -> (&[T], Option<Left>) {
    let (shown, left) = all.split_at(all.len().min(MOST));
    (shown, (!left.is_empty()).then_some(Left(left.len())))
}

/// How many more there are than shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left(usize);

impl Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "and {} more", self.0)
    }
}

/// A message quotes the file, of which a word can be megabytes long.
pub(crate) fn message_text(text: &str) -> String {
    let text = visible_lines(text);
    match text.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}{MORE}", &text[..end]),
        None => text.into_owned(),
    }
}

/// The lines around a place in a file, each as long as can be read and without control characters.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    name: String,
    text: String,
    /// In bytes of `text`.
    label: std::ops::Range<usize>,
    /// Lines of the file before the first line of `text`.
    lines_before: usize,
    /// Characters of the file between the beginning of the line and the label.
    column: usize,
}

impl Excerpt {
    fn of(file: File<'_>, span: std::ops::Range<usize>) -> Self {
        let all = file.text;
        let boundary = |at: &usize| all.is_char_boundary(*at);
        let start = (0..=span.start.min(all.len())).rev().find(boundary).unwrap_or(0);
        let end = (span.end.max(start)..all.len()).find(boundary).unwrap_or(all.len());
        let begin = line_start(all, start);
        let previous = begin.checked_sub(1).map(|end| line_start(all, end)..end);
        let mut excerpt = Self {
            name: message_text(file.name),
            text: String::new(),
            label: 0..0,
            lines_before: all[..previous.as_ref().map_or(begin, |line| line.start)]
                .bytes()
                .filter(|&byte| byte == b'\n')
                .count(),
            column: all[begin..start].chars().count(),
        };
        if let Some(line) = previous {
            excerpt.line(&all[line], 0..0);
        }
        let label = excerpt.text.len();
        let mut lines = all[begin..].split_inclusive('\n');
        let mut at = begin;
        for (number, line) in lines.by_ref().take(LINES).enumerate() {
            let part = start.max(at) - at..end.min(at + line.len()).max(at) - at;
            let shown = excerpt.line(line, part);
            at += line.len();
            if number == 0 {
                excerpt.label = shown.clone();
            }
            excerpt.label.end = shown.end;
            if end <= at {
                break;
            }
        }
        if excerpt.label == (0..0) {
            excerpt.label = label..label;
        }
        if let Some(line) = lines.next() {
            excerpt.line(line, 0..0);
        }
        excerpt
    }

    /// Adds a line, cut around a part of it, and says where this part is now.
    fn line(&mut self, line: &str, part: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let part = part.start.min(line.len())..part.end.min(line.len());
        let before = line[..part.start].char_indices().rev().nth(BEFORE);
        let cut = before.map(|(from, c)| from + c.len_utf8());
        let from = cut.unwrap_or(0);
        if cut.is_some() {
            self.text.push_str(MORE);
        }
        let to = line[from..].char_indices().nth(LINE).map(|(to, _)| from + to);
        let end = to.unwrap_or(line.len());
        self.push(&line[from..part.start.min(end)]);
        let start = self.text.len();
        self.push(&line[part.start.min(end)..part.end.min(end)]);
        let shown = start..self.text.len();
        self.push(&line[part.end.min(end)..end]);
        if to.is_some() {
            self.text.push_str(MORE);
        }
        self.text.push('\n');
        shown
    }

    fn push(&mut self, part: &str) {
        // miette shows tabs as blanks.
        for (number, part) in part.split('\t').enumerate() {
            if number > 0 {
                self.text.push('\t');
            }
            let shown: Cow<'_, str> = visible(part);
            self.text.push_str(&shown);
        }
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let of_excerpt = self.text.as_bytes().read_span(span, before, after)?;
        // Without the lines around it, the place of the label itself is wanted.
        let column = if before == 0 { self.column } else { of_excerpt.column() };
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            of_excerpt.data(),
            *of_excerpt.span(),
            self.lines_before + of_excerpt.line(),
            column,
            of_excerpt.line_count(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, part: &str) -> Excerpt {
        let start = text.find(part).unwrap();
        Excerpt::of(File { name: "f", text }, start..start + part.len())
    }

    fn drawn(text: &str, span: std::ops::Range<usize>) -> String {
        let report = File { name: "f", text }.report(Severity::Error, "wrong", None, span);
        format!("{report:?}")
    }

    #[test]
    fn the_lines_around_a_place_are_shown_and_no_others() {
        let text = "one\r\ntwo\nthree\nfour\nfive\n";
        let found = excerpt(text, "hre");
        assert_eq!((found.text.as_str(), found.lines_before), ("two\nthree\nfour\n", 1));
        assert_eq!((&found.text[found.label.clone()], found.column), ("hre", 1));
        let found = excerpt(text, "one");
        assert_eq!((found.text.as_str(), found.lines_before), ("one\ntwo\n", 0));
        assert_eq!(excerpt(text, "five").text, "four\nfive\n");
    }

    #[test]
    fn a_place_is_found_by_line_and_column() {
        let file = File { name: "f", text: "a\n \u{e9}xy \r\nb" };
        let from = |line, column| &file.text[file.line_from(Position { line, column })];
        assert_eq!((from(2, 3), from(3, 1), from(2, 9)), ("xy", "b", ""));
        assert_eq!((from(0, 0), from(9, 1)), ("", ""));
    }

    #[test]
    fn a_place_beyond_column_65535_is_drawn() {
        let text = format!("{}<grupp>{}", "\u{e9} ".repeat(50_000), " x".repeat(50_000));
        let start = text.find('<').unwrap();
        let drawn = drawn(&text, start..start + 7);
        assert!(drawn.contains("<grupp>") && drawn.contains("[f:1:100001]"), "{drawn}");
        assert!(drawn.contains("..."), "{drawn}");
        assert!(drawn.chars().count() < 1000, "{drawn}");
    }

    #[test]
    fn what_is_underlined_is_cut_where_it_is_long() {
        let text = format!("a \"{}", "word\n".repeat(1000));
        let found = excerpt(&text, &text[2..]);
        assert_eq!(found.text.lines().count(), LINES + 1);
        let long = "x".repeat(100_000);
        assert!(drawn(&long, 0..long.len()).len() < 2000);
        // Past the end, and inside of a character.
        assert!(drawn("\u{e9}", 1..9).contains('\u{e9}'));
        assert!(drawn("", 0..1).contains("wrong"));
    }

    #[test]
    fn escapes_of_a_file_are_shown_and_never_sent() {
        let text = "a\u{1b}[2J\t<b\u{7}ad>\u{202e}\n";
        let found = excerpt(text, "<b\u{7}ad>");
        assert_eq!(found.text, "a\\u{1b}[2J\t<b\\u{7}ad>\\u{202e}\n");
        assert_eq!(&found.text[found.label.clone()], "<b\\u{7}ad>");
        let report = File { name: "\u{1b}f", text }.report(
            Severity::Error,
            "'\u{1b}]0;title\u{7}' is wrong",
            Some("not \u{9b}1m".to_owned()),
            8..10,
        );
        let drawn = format!("{report:?}");
        assert!(!drawn.contains(|c: char| c.is_control() && c != '\n'), "{drawn:?}");
    }

    #[test]
    fn as_many_as_can_be_read_are_shown_and_the_rest_is_counted() {
        let (shown, left) = first(&[0; MOST]);
        assert_eq!((shown.len(), left), (MOST, None));
        let (shown, left) = first(&[0; MOST + 7]);
        assert_eq!((shown.len(), left.unwrap().to_string()), (MOST, "and 7 more".to_owned()));
    }
}
