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

/// Bytes between two places whose number of characters is known.
const BLOCK: usize = 256;

/// Knows where the lines of a text begin.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// Characters before each block, so that a place in a long line is found without counting from the
    /// line's beginning. Empty where all of the text is ASCII: then bytes are characters.
    blocks: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self {
            text,
            starts: std::iter::once(0).chain(after_newlines.map(|(at, _)| at + 1)).collect(),
            blocks: if text.is_ascii() { Vec::new() } else { characters_before_blocks(text) },
        }
    }

    /// Characters that begin before a byte.
    fn characters_before(&self, offset: usize) -> usize {
        let Some(before) = self.blocks.get(offset / BLOCK) else { return offset };
        before + self.rest_of_block(offset).iter().filter(|byte| begins_character(**byte)).count()
    }

    /// What is counted to find a place: the bytes before it in its block.
    fn rest_of_block(&self, offset: usize) -> &[u8] {
        let block = offset - offset % BLOCK;
        self.text.as_bytes().get(block..offset).unwrap_or_default()
    }

    /// Line and column (in characters) of a byte, both from 1.
    pub(super) fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start =
            line.checked_sub(1).and_then(|index| self.starts.get(index).copied()).unwrap_or(0);
        let offset = offset.min(self.text.len());
        let before = self.characters_before(offset).saturating_sub(self.characters_before(start));
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(before + 1).unwrap_or(u32::MAX),
        }
    }
}

fn characters_before_blocks(text: &str) -> Vec<usize> {
    let mut before = vec![0];
    let mut sum = 0;
    for block in text.as_bytes().chunks(BLOCK) {
        sum += block.iter().filter(|byte| begins_character(**byte)).count();
        before.push(sum);
    }
    before
}

/// Not a continuation byte of UTF-8.
fn begins_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
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

    #[test]
    fn a_place_in_a_long_line_is_found_by_counting_one_block() {
        let text = "\u{e9}x\u{65e5}\n".repeat(40) + &"\u{65e5} \u{e9}".repeat(10_000);
        let lines = Lines::new(&text);
        for (offset, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let line = text[..offset].matches('\n').count();
            let start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
            let column =
                if offset % 1009 < 3 { text[start..offset].chars().count() + 1 } else { 0 };
            let found = lines.position(offset);
            assert_eq!(found.line as usize, line + 1);
            assert!(column == 0 || found.column as usize == column, "{offset}");
            assert!(lines.rest_of_block(offset).len() < BLOCK);
        }
    }
}
