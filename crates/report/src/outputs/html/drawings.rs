//! Drawings of a page: the first as markup, those beyond a size of all together deflated, for the script to put in
//! their places.

use std::io;

use maud::{Markup, PreEscaped, html};

use super::compact::compact;
use super::data;

/// Bytes of all drawings that stand in the page as they are. A study of many points has five times as many.
const PLAIN: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct Drawings {
    /// Bytes so far.
    plain: usize,
    packed: Vec<String>,
}

impl Drawings {
    /// The place of a drawing.
    pub(super) fn add(&mut self, drawing: Markup) -> Markup {
        let drawing = compact(&drawing.into_string());
        if self.plain + drawing.len() <= PLAIN {
            self.plain += drawing.len();
            return html! { div.plot.scroll { (PreEscaped(drawing)) } };
        }
        self.packed.push(drawing);
        html! {
            div.plot.scroll data-packed=(self.packed.len() - 1) {
                noscript { "A script draws this chart; its table has the figures." }
            }
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        !self.packed.is_empty()
    }

    /// A list of the drawings that are not in their places, as JSON, deflated, in base64.
    ///
    /// # Errors
    /// None in practice: it is written to memory.
    pub(super) fn packed(&self) -> io::Result<String> {
        data::deflated(serde_json::to_string(&self.packed)?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use flate2::read::DeflateDecoder;

    use super::*;

    #[test]
    fn drawings_beyond_a_size_are_packed() {
        let drawing = |letter: &str| html! { svg { text { (letter.repeat(PLAIN / 3)) } } };
        let mut drawings = Drawings::default();
        let places = ["a", "b", "c", "d"].map(|of| drawings.add(drawing(of)).into_string());
        let is_plain = places.each_ref().map(|place| place.contains("<svg>"));
        assert_eq!(is_plain, [true, true, false, false]);
        assert!(places[3].contains("data-packed=\"1\""), "{}", places[3]);
        let packed = STANDARD.decode(drawings.packed().unwrap()).unwrap();
        let mut text = String::new();
        DeflateDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        let packed: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(packed, ["c", "d"].map(|of| drawing(of).into_string()));
    }
}
