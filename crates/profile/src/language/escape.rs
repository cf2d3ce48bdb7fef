//! XML's entities, in both directions.
//!
//! Options are split at blanks and variables are found before entities are read, so a value may hold
//! any character when it is written as an entity (`dir=/my&#32;files`).

/// Replaces the five named entities and numeric ones. What is no entity stays as it is, since uperf's
/// files hold plain `&`.
pub(super) fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let decoded = tail
            .get(1..)
            .and_then(|tail| tail.split_once(';'))
            .and_then(|(name, after)| Some((entity(name)?, after)));
        if let Some((character, after)) = decoded {
            out.push(character);
            rest = after;
        } else {
            out.push('&');
            rest = tail.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let hex = number.strip_prefix(['x', 'X']);
            let digits = hex.unwrap_or(number);
            if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
                return None;
            }
            let code = u32::from_str_radix(digits, if hex.is_some() { 16 } else { 10 }).ok()?;
            char::from_u32(code).filter(|c| *c != '\0')
        }
    }
}

/// Writes a whole attribute value.
pub(super) fn encode(text: &str) -> String {
    written(text, |_| false)
}

/// Writes the value of one option, which must not hold a blank.
pub(super) fn encode_word(text: &str) -> String {
    written(text, |c| c == ' ')
}

fn written(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, c) in text.char_indices() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // At the beginning it would make a variable of the value.
            '$' if index == 0 => out.push_str("&#36;"),
            c if c.is_control() || also(c) => {
                out.push_str(&format!("&#{};", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities() {
        assert_eq!(decode("a&amp;b&lt;&gt;&quot;&apos;"), "a&b<>\"'");
        assert_eq!(decode("&#65;&#x42;&#X43;"), "ABC");
        assert_eq!(
            decode("a&b &c; &#; &#0; &#x110000; &#+5; &"),
            "a&b &c; &#; &#0; &#x110000; &#+5; &"
        );
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(text in "[^\u{0}]{0,20}") {
            proptest::prop_assert_eq!(decode(&encode(&text)), text.clone());
            let word = encode_word(&text);
            proptest::prop_assert!(!word.contains(|c: char| c <= ' ' || c == '"'));
            proptest::prop_assert_eq!(decode(&word), text);
        }
    }
}
