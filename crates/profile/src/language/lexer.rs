//! Cuts a profile into tags, attributes and stray words, with their places.
//!
//! One lexer for two forms. uperf does not read XML: it cuts the text at blanks, and a double-quoted
//! run ends a word; so values need no quotes, and `/>` swallows whatever is glued to it. Well-formed
//! XML is cut at `<` and `>`, knows single quotes and blanks around `=`. Where the two would differ,
//! a token says that uperf would have swallowed it ([`Token::swallowed`]).

use super::note::NoteKind;
use super::source::Span;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) span: Span,
    /// For uperf this is the tail of the word before it, without any meaning.
    pub(super) swallowed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// `<name`, in lower case.
    Open(String),
    /// `</name`, in lower case.
    Close(String),
    /// `/>`.
    SelfClose,
    /// `key=value`; the key in lower case.
    Attribute { key: String, value: Value },
    /// Anything else.
    Word(String),
}

/// A value as typed: quotes removed, newlines made blanks, entities and variables untouched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) span: Span,
    /// Each byte of `text` is the byte of the source at the same distance from the span's start.
    contiguous: bool,
}

impl Value {
    /// Where a part of `text` stands in the source.
    pub(super) fn span_of(&self, offset: usize, length: usize) -> Span {
        if self.contiguous {
            Span { offset: self.span.offset.saturating_add(offset), length }
        } else {
            self.span
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Lexed {
    pub(super) tokens: Vec<Token>,
    pub(super) notes: Vec<(NoteKind, Span)>,
}

pub(super) fn lex(source: &str) -> Lexed {
    let mut lexer = Lexer::new(source);
    while lexer.token() {}
    lexer.finish()
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    /// Next byte to read.
    at: usize,
    /// Up to here uperf would have read one word that it took for a tag.
    swallowed_until: usize,
    /// A document type was looked through to the end of the text in vain.
    endless_document_type: bool,
    /// uperf would refuse the file anyway: what it would swallow is of no interest.
    refused: bool,
    out: Lexed,
}

/// uperf's separators; everything above, also 0x7f and non-ASCII, is part of a word.
fn is_separator(byte: u8) -> bool {
    (1..=32).contains(&byte)
}

impl<'a> Lexer<'a> {
    fn new(source: &'a str) -> Self {
        let mut out = Lexed::default();
        let nul = source.find('\0');
        if let Some(nul) = nul
            && source.get(nul + 1..).is_some_and(|rest| !rest.is_empty())
        {
            out.notes.push((NoteKind::NulByte, Span::between(nul, nul + 1)));
        }
        let text = source.get(..nul.unwrap_or(source.len())).unwrap_or(source);
        Self {
            source: text,
            bytes: text.as_bytes(),
            at: if text.starts_with('\u{feff}') { 3 } else { 0 },
            swallowed_until: 0,
            endless_document_type: false,
            refused: false,
            out,
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at.saturating_add(ahead)).copied()
    }

    fn looking_at(&self, text: &str) -> bool {
        self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    fn text(&self, start: usize, end: usize) -> &'a str {
        self.source.get(start..end).unwrap_or_default()
    }

    /// Reads one token (or skips something); false at the end of the text.
    fn token(&mut self) -> bool {
        self.skip_blanks();
        let start = self.at;
        let Some(byte) = self.peek(0) else {
            return false;
        };
        match byte {
            b'<' => self.tag(),
            b'>' => {
                self.at += 1;
                self.refused |= start >= self.swallowed_until
                    && self.peek(0).is_some_and(|next| !is_separator(next));
            }
            b'/' if self.peek(1) == Some(b'>') => {
                self.at += 2;
                self.push(TokenKind::SelfClose, start);
                self.swallow_from(start);
            }
            _ => self.attribute(),
        }
        true
    }

    fn push(&mut self, kind: TokenKind, start: usize) {
        self.out.tokens.push(Token {
            kind,
            span: Span::between(start, self.at),
            swallowed: start < self.swallowed_until,
        });
    }

    /// Blanks, comments, processing instructions and document types, as often as they come.
    fn skip_blanks(&mut self) {
        loop {
            let start = self.at;
            while self.peek(0).is_some_and(is_separator) {
                self.at += 1;
            }
            if self.looking_at("<!--") {
                self.skip_past("-->", start_of_search(4, 2), NoteKind::UnclosedComment);
            } else if self.looking_at("<?") {
                self.skip_past("?>", start_of_search(2, 1), NoteKind::UnclosedInstruction);
            } else if !self.endless_document_type
                && self
                    .bytes
                    .get(self.at..self.at + 9)
                    .is_some_and(|word| word.eq_ignore_ascii_case(b"<!doctype"))
            {
                self.skip_document_type();
            }
            if self.at == start {
                return;
            }
        }
    }

    fn skip_past(&mut self, close: &str, search_from: usize, unclosed: NoteKind) {
        let start = self.at;
        let from = start.saturating_add(search_from).min(self.bytes.len());
        if let Some(found) = self.text(from, self.bytes.len()).find(close) {
            self.at = from + found + close.len();
        } else {
            self.at = self.bytes.len();
            self.out.notes.push((unclosed, Span::between(start, start + 2)));
        }
    }

    /// Only moves when the document type has an end.
    fn skip_document_type(&mut self) {
        let mut depth = 0usize;
        for (index, byte) in self.bytes.iter().enumerate().skip(self.at) {
            match byte {
                b'[' => depth += 1,
                b']' => depth = depth.saturating_sub(1),
                b'>' if depth == 0 => {
                    self.at = index + 1;
                    self.refused = true;
                    return;
                }
                _ => {}
            }
        }
        self.endless_document_type = true;
    }

    fn tag(&mut self) {
        let start = self.at;
        self.at += 1;
        let mut closing = self.eat(b'/');
        let mut name = self.tag_name();
        let mut word = start;
        // uperf joins a lone `<` or `</` with the word after it.
        for _ in 0..2 {
            if !name.is_empty() || !self.peek(0).is_some_and(is_separator) {
                break;
            }
            self.skip_blanks();
            word = self.at;
            closing |= self.eat(b'/');
            name = self.tag_name();
        }
        if name.is_empty() || name.starts_with('!') {
            self.push(TokenKind::Word(self.text(start, self.at).to_owned()), start);
            return;
        }
        let kind = if closing {
            TokenKind::Close(name)
        } else {
            if start < self.swallowed_until && !self.refused {
                self.out.notes.push((
                    NoteKind::UperfLosesTag { tag: name.clone() },
                    Span::between(start, self.at),
                ));
            }
            TokenKind::Open(name)
        };
        self.push(kind, start);
        self.swallow_from(word);
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek(0) == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Up to a blank, `>` or `/>`; a quoted run ends it, as it ends every word.
    fn tag_name(&mut self) -> String {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            if is_separator(byte) || byte == b'>' || self.looking_at("/>") {
                break;
            }
            if byte == b'"' {
                let before = self.text(start, self.at).to_owned();
                return (before + &self.quoted(b'"').text).to_ascii_lowercase();
            }
            self.at += 1;
        }
        self.text(start, self.at).to_ascii_lowercase()
    }

    /// Marks the rest of uperf's word that begins at `start`.
    fn swallow_from(&mut self, start: usize) {
        // Inside a word that is swallowed already, its end is known.
        if start >= self.swallowed_until {
            self.swallowed_until = self.word_end(start);
        }
    }

    /// Where uperf's word that begins at `start` ends: at a blank, or with a quoted run.
    fn word_end(&self, start: usize) -> usize {
        let mut end = start;
        while let Some(byte) = self.bytes.get(end) {
            if is_separator(*byte) {
                break;
            }
            end += 1;
            if *byte == b'"' {
                let rest = self.text(end, self.bytes.len());
                return end + rest.find('"').map_or(rest.len(), |found| found + 1);
            }
        }
        end
    }

    fn attribute(&mut self) {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            let ends = is_separator(byte) || matches!(byte, b'=' | b'"' | b'<' | b'>');
            if ends || self.looking_at("/>") {
                break;
            }
            self.at += 1;
        }
        let key = Span::between(start, self.at);
        let mut end = key.end();
        let mut has_value = false;
        if self.peek(0) == Some(b'"') {
            self.quoted(b'"');
            end = self.at;
        } else if key.length == 0 {
            self.stray_equals(start);
            return;
        } else {
            if self.peek(0) != Some(b'=') {
                self.skip_blanks();
            }
            has_value = self.eat(b'=');
        }
        if !has_value {
            let resume = std::mem::replace(&mut self.at, end);
            self.push(TokenKind::Word(self.text(start, end).to_owned()), start);
            self.at = resume;
            return;
        }
        while self.peek(0).is_some_and(is_separator) {
            self.refused = true;
            self.at += 1;
        }
        let value = self.value();
        let kind = TokenKind::Attribute {
            key: self.text(key.offset, key.end()).to_ascii_lowercase(),
            value,
        };
        self.push(kind, start);
    }

    /// uperf joins a word that begins with `=` with the word before it, which is lost on a tag.
    fn stray_equals(&mut self, start: usize) {
        let after_tag = self.out.tokens.last().is_some_and(|token| {
            let tag = matches!(
                token.kind,
                TokenKind::Open(_) | TokenKind::Close(_) | TokenKind::SelfClose
            );
            tag || token.swallowed
        });
        self.at = start + 1;
        if after_tag {
            self.at = self.word_end(start);
            self.swallowed_until = self.swallowed_until.max(self.at);
        }
        self.push(TokenKind::Word(self.text(start, self.at).to_owned()), start);
    }

    fn value(&mut self) -> Value {
        match self.peek(0) {
            Some(b'"') => self.quoted(b'"'),
            Some(b'\'') if self.single_quote_closes() => self.quoted(b'\''),
            _ => self.unquoted(),
        }
    }

    /// XML allows no `<` in a value, so a quote mark that has none before its end is one.
    fn single_quote_closes(&self) -> bool {
        self.bytes.iter().skip(self.at + 1).find(|byte| matches!(**byte, b'\'' | b'<'))
            == Some(&b'\'')
    }

    fn quoted(&mut self, quote: u8) -> Value {
        self.refused |= quote == b'\'';
        let open = self.at;
        let start = open + 1;
        let length = self.bytes.iter().skip(start).position(|byte| *byte == quote);
        let end = start + length.unwrap_or(self.bytes.len().saturating_sub(start));
        self.at = end;
        if length.is_some() {
            self.at += 1;
        } else {
            self.out.notes.push((NoteKind::UnclosedQuote, Span::between(open, start)));
        }
        Value {
            text: one_line(self.text(start, end)),
            span: Span::between(start, end),
            contiguous: true,
        }
    }

    fn unquoted(&mut self) -> Value {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            if is_separator(byte) || byte == b'>' || self.looking_at("/>") {
                break;
            }
            if byte == b'"' {
                let before = self.text(start, self.at).to_owned();
                let quoted = self.quoted(b'"');
                return Value {
                    text: before + &quoted.text,
                    span: Span::between(start, self.at),
                    contiguous: false,
                };
            }
            self.at += 1;
        }
        Value {
            text: self.text(start, self.at).to_owned(),
            span: Span::between(start, self.at),
            contiguous: true,
        }
    }

    fn finish(mut self) -> Lexed {
        // uperf overwrites the last byte of the file, so a last word of one byte is never seen.
        if let Some(last) = self.out.tokens.last()
            && let TokenKind::Word(word) = &last.kind
            && word.len() == 1
            && last.span.end() == self.bytes.len()
        {
            self.out.notes.push((NoteKind::LastByte, last.span));
            self.out.tokens.pop();
        }
        self.out
    }
}

/// Where the end of something may begin: its opening (`<!--`, of length `opening`) may lend the first
/// `shared` bytes of its closing (uperf takes `<!-->` for a whole comment).
fn start_of_search(opening: usize, shared: usize) -> usize {
    opening.saturating_sub(shared)
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        lex(source)
            .tokens
            .into_iter()
            .map(|token| {
                let text = match token.kind {
                    TokenKind::Open(name) => format!("<{name}"),
                    TokenKind::Close(name) => format!("</{name}"),
                    TokenKind::SelfClose => "/>".to_owned(),
                    TokenKind::Attribute { key, value } => format!("{key}={}", value.text),
                    TokenKind::Word(word) => format!("?{word}"),
                };
                if token.swallowed { format!("({text})") } else { text }
            })
            .collect()
    }

    #[test]
    fn values_need_no_quotes_where_a_blank_follows() {
        assert_eq!(
            words("<FLOWOP type=Write\noptions=size=4k />\n"),
            ["<flowop", "type=Write", "options=size=4k", "/>"]
        );
    }

    #[test]
    fn an_unquoted_value_ends_at_the_end_of_its_tag() {
        assert_eq!(words("<group nthreads=1>"), ["<group", "nthreads=1"]);
        assert_eq!(words("<flowop type=nop/>"), ["<flowop", "type=nop", "/>"]);
    }

    #[test]
    fn quoting_forms() {
        assert_eq!(words("a =\"x\" b= \"y\" c = 'z z'"), ["a=x", "b=y", "c=z z"]);
        assert_eq!(words("a=\"one\ntwo\""), ["a=one two"]);
        assert_eq!(words("a=x\"y z\"b=c"), ["a=xy z", "b=c"]);
        assert_eq!(words("a='it b=<"), ["a='it", "b=<"]);
    }

    #[test]
    fn blanks_are_the_bytes_1_to_32() {
        assert_eq!(words("a=1\u{1}\u{b}b=2\u{7f}\u{a0}"), ["a=1", "b=2\u{7f}\u{a0}"]);
    }

    #[test]
    fn comments_and_instructions_are_skipped_wherever_a_word_could_begin() {
        assert_eq!(
            words("<?xml version=1.0?><!-- <group --><group > <!--x-->a=1<!-- <!-->b=2"),
            ["<group", "a=1<!--", "b=2"]
        );
        assert_eq!(words("<!DOCTYPE p [ <!ELEMENT a (b)> ]><p"), ["<p"]);
    }

    #[test]
    fn an_unclosed_comment_swallows_the_rest() {
        let lexed = lex("<group <!-- x\n</group>");
        assert_eq!(lexed.tokens.len(), 1);
        assert!(matches!(
            lexed.notes.as_slice(),
            [(NoteKind::UnclosedComment, span)] if span.offset == 7
        ));
    }

    #[test]
    fn a_lone_bracket_joins_the_next_word() {
        assert_eq!(
            words("< profile name=x > </ profile> < / group>x\n"),
            ["<profile", "name=x", "</profile", "</group", "(?x)"]
        );
    }

    #[test]
    fn what_uperf_swallows_is_marked() {
        assert_eq!(
            words("<groupfoo> <transaction>x <flowop />y=1 z=2"),
            ["<groupfoo", "<transaction", "(?x)", "<flowop", "/>", "(y=1)", "z=2"]
        );
    }

    #[test]
    fn a_word_that_begins_with_an_equals_sign_is_lost_on_the_tag_before_it() {
        assert_eq!(
            words("<groupname =\"x y\" nprocs=2\n"),
            ["<groupname", "(?=\"x y\")", "nprocs=2"]
        );
        assert_eq!(words("name=x =y\n"), ["name=x", "?=", "?y"]);
    }

    #[test]
    fn quotes_are_no_part_of_a_tag() {
        assert_eq!(words("</pro\"file> \"x\n"), ["</profile> ", "?x"]);
    }

    #[test]
    fn a_tag_glued_to_the_end_of_another_is_lost_on_uperf() {
        let notes = |source: &str| lex(source).notes.len();
        assert_eq!(notes("<flowop type=\"a\"/><flowop type=\"b\" />"), 1);
        assert_eq!(notes("<flowop type=\"a\"/> <flowop type=\"b\" />"), 0);
        // uperf refuses a minified file as a whole.
        assert_eq!(notes("<group nthreads=\"1\"><flowop type=\"a\"/><flowop />"), 0);
    }

    #[test]
    fn the_last_byte_is_not_seen_by_uperf() {
        let lexed = lex("</profile>\n?");
        assert_eq!(lexed.tokens.len(), 1);
        assert!(matches!(lexed.notes.as_slice(), [(NoteKind::LastByte, _)]));
    }

    #[test]
    fn text_after_a_nul_is_not_read() {
        let lexed = lex("<group \0 nthreads=2");
        assert_eq!(lexed.tokens.len(), 1);
        assert!(matches!(lexed.notes.as_slice(), [(NoteKind::NulByte, _)]));
    }

    #[test]
    fn parts_of_a_value_keep_their_place() {
        let source = "options=\"size=4k  count=2\"";
        let lexed = lex(source);
        let [Token { kind: TokenKind::Attribute { value, .. }, .. }] = lexed.tokens.as_slice()
        else {
            panic!("{lexed:?}");
        };
        let span = value.span_of(value.text.find("count").unwrap(), 7);
        assert_eq!(&source[span.offset..span.end()], "count=2");
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_always_ends(source in "[<>/=\"' !?a-z\u{0}\u{e9}-]{0,60}") {
            let lexed = lex(&source);
            for token in lexed.tokens {
                proptest::prop_assert!(source.get(token.span.offset..token.span.end()).is_some());
            }
        }
    }
}
