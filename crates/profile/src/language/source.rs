//! Places in a source text: byte spans for drawing carets, lines and columns for people.

use wirecost_model::profile::Position;

/// A stretch of source text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Span {
    pub offset: usize,
    pub length: usize,
}

impl Span {
    pub(super) fn between(start: usize, end: usize) -> Self {
        Self { offset: start, length: end.saturating_sub(start) }
    }

    pub(super) fn end(self) -> usize {
        self.offset.saturating_add(self.length)
    }
}

/// Knows where the lines of a text begin.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// Then bytes are characters, and long lines need no counting.
    ascii: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self {
            text,
            ascii: text.is_ascii(),
            starts: std::iter::once(0).chain(after_newlines.map(|(at, _)| at + 1)).collect(),
        }
    }

    /// Line and column (in characters) of a byte, both from 1.
    pub(super) fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start =
            line.checked_sub(1).and_then(|index| self.starts.get(index).copied()).unwrap_or(0);
        let before = if self.ascii {
            offset.saturating_sub(start)
        } else {
            let before = self.text.get(start..offset).unwrap_or_default();
            before.chars().count()
        };
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(before + 1).unwrap_or(u32::MAX),
        }
    }
}

/// What stands at a place, to the end of its line.
pub(super) fn line_from(text: &str, at: Position) -> Span {
    let Some(line) = at.line.checked_sub(1) else { return Span::default() };
    let Some(line) = text.split_inclusive('\n').nth(line as usize) else { return Span::default() };
    let column = at.column.saturating_sub(1) as usize;
    let from = line.char_indices().nth(column).map_or(line.len(), |(from, _)| from);
    let offset = line.as_ptr() as usize - text.as_ptr() as usize + from;
    Span { offset, length: line.get(from..).unwrap_or_default().trim_end().len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let lines = Lines::new("ab\n\u{e9}x\n");
        let at = |offset| lines.position(offset).to_string();
        assert_eq!(at(0), "1:1");
        assert_eq!(at(2), "1:3");
        assert_eq!(at(3), "2:1");
        assert_eq!(at(5), "2:2");
        assert_eq!(at(7), "3:1");
        let lines = Lines::new("ab\ncd");
        assert_eq!(lines.position(4).to_string(), "2:2");
    }
}
