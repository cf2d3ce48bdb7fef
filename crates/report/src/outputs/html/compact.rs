//! Markup without what HTML lets be left out: it is a fifth of a page with many runs.

/// End tags that the next start tag, or the end of what they are in, implies:
/// <https://html.spec.whatwg.org/multipage/syntax.html#optional-tags>. Nothing but these follows them here.
const IMPLIED: [&str; 6] = ["td", "th", "tr", "li", "dt", "dd"];
/// Elements of drawings, which may close themselves where they are empty.
const SHAPES: [&str; 4] = ["circle", "line", "path", "rect"];

/// The same elements in fewer bytes. The markup is maud's: `<`, `>` and `"` stand for nothing but themselves.
pub(super) fn compact(markup: &str) -> String {
    let mut out = String::with_capacity(markup.len());
    let mut rest = markup;
    // Of the last start tag its name, and how long the output was after it.
    let mut opened = ("", 0);
    while let Some(begin) = rest.find('<') {
        out.push_str(&rest[..begin]);
        let (tag, after) = rest[begin..].split_at(tag_length(&rest[begin..]));
        rest = after;
        if let Some(name) = tag.strip_prefix("</").and_then(|tag| tag.strip_suffix('>')) {
            if opened == (name, out.len()) && SHAPES.contains(&name) {
                out.pop();
                // A slash would be part of a value without quotes.
                out.push_str(if out.ends_with('"') { "/>" } else { " />" });
            } else if !IMPLIED.contains(&name) {
                out.push_str(tag);
            }
            continue;
        }
        without_quotes(tag, &mut out);
        let end = |letter: char| !letter.is_ascii_alphanumeric();
        opened = (tag[1..].split(end).next().unwrap_or_default(), out.len());
    }
    out.push_str(rest);
    out
}

/// Bytes of the tag that a text begins with.
fn tag_length(text: &str) -> usize {
    let mut is_quoted = false;
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'>' if !is_quoted => return place + 1,
            _ => {}
        }
    }
    text.len()
}

/// Adds a start tag whose plain values have no quotes:
/// <https://html.spec.whatwg.org/multipage/syntax.html#unquoted>.
fn without_quotes(tag: &str, out: &mut String) {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "#._-:,%()".contains(letter);
    for (number, part) in tag.split('"').enumerate() {
        match number % 2 {
            // A slash would be part of the value before it.
            0 if part == "/>" && !out.ends_with('"') => out.push_str(" />"),
            0 => out.push_str(part),
            _ if !part.is_empty() && part.chars().all(is_plain) => out.push_str(part),
            _ => {
                out.push('"');
                out.push_str(part);
                out.push('"');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn what_is_implied_is_left_out() {
        let table = html! {
            table { thead { tr { th scope="col" { "a" } th.n.x { "b" } } } tr { td { b { "1" } } td { "2 > 1" } } }
        };
        assert_eq!(
            compact(&table.into_string()),
            "<table><thead><tr><th scope=col>a<th class=\"n x\">b</thead><tr><td><b>1</b><td>2 &gt; 1</table>"
        );
    }

    #[test]
    fn values_keep_the_quotes_that_they_need() {
        let markup = html! {
            a href="#run-1" title="" aria-label="x=\"<y>\"" { "=\"z\"" }
            input value="a/b" disabled;
        };
        assert_eq!(
            compact(&markup.into_string()),
            "<a href=#run-1 title=\"\" aria-label=\"x=&quot;&lt;y&gt;&quot;\">=&quot;z&quot;</a>\
             <input value=\"a/b\" disabled>"
        );
    }

    #[test]
    fn what_closes_itself_keeps_its_values() {
        let markup =
            "<rect width=\"3\" fill=\"hsl(2,8%,6%)\"/><rect d=\"a b\"/><rect x=\"1\" /><br/>";
        let made = "<rect width=3 fill=hsl(2,8%,6%) /><rect d=\"a b\"/><rect x=1 /><br/>";
        assert_eq!(compact(markup), made);
        assert_eq!(compact(made), made);
    }

    #[test]
    fn empty_shapes_close_themselves() {
        let markup = html! {
            svg {
                path d="M1 2" {} line x1="1" {} rect { title { "t" } } g {} circle r="4" { } "text"
            }
        };
        assert_eq!(
            compact(&markup.into_string()),
            "<svg><path d=\"M1 2\"/><line x1=1 /><rect><title>t</title></rect><g></g><circle r=4 />text</svg>"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_kept(text in ".*") {
            let markup = html! { p title=(text) { (text) } }.into_string();
            let plain = !text.is_empty() && text.chars().all(|of| of.is_ascii_alphanumeric());
            let kept = if plain { markup.replace('"', "") } else { markup.clone() };
            let made = compact(&markup);
            proptest::prop_assert!(made == kept || made == markup.replace('"', ""), "{}", made);
        }
    }
}
