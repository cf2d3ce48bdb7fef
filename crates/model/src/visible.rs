//! Text of others (files, agents, records), made safe to show: what would move a terminal's cursor,
//! change its colours or reverse the order of letters is written as an escape. Letters of any script
//! stay as they are.

use std::borrow::Cow;

/// On one line: control characters as Rust writes them in a string literal, such as `\u{1b}`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
}

/// The same of a text of several lines, which stay lines.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_hidden(c) && c != '\n')
}

fn escape(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match hidden(c) {
            true => shown.extend(c.escape_debug()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and the formatting characters that change the direction of the text after
/// them (Unicode Technical Standard 55).
fn is_hidden(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    );
    c.is_control() || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_as_escapes() {
        assert_eq!(visible("a\u{1b}[31mb\u{7}\u{9b}c\0"), "a\\u{1b}[31mb\\u{7}\\u{9b}c\\0");
        assert_eq!(visible("x\ty\r\nz\u{7f}"), "x\\ty\\r\\nz\\u{7f}");
        assert_eq!(visible("to\u{202e}txe.\u{2066}"), "to\\u{202e}txe.\\u{2066}");
    }

    #[test]
    fn letters_and_lines_stay() {
        let text = "\u{e9}\u{65e5}\u{672c} 'q' \"w\" \\ e\u{301}";
        assert!(matches!(visible(text), Cow::Borrowed(same) if same == text));
        assert_eq!(visible_lines("a\n\u{1b}b\n"), "a\n\\u{1b}b\n");
    }
}
