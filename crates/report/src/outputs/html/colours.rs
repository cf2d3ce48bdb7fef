//! The one table of colours. The same thing has the same colour in all charts of a page.
//!
//! Series have the colours of Okabe and Ito (Color Universal Design, 2008), which people with any colour
//! vision can tell apart, darker on a light page and lighter on a dark one.

use std::collections::HashMap;
use std::fmt::Write as _;

/// A colour: its name in the style sheet, on a light page, on a dark page.
pub(super) type Colour = (&'static str, u32, u32);

pub(super) const TABLE: &[Colour] = &[
    // Page, and what lies on it.
    ("paper", 0xfd_fcfa, 0x15_171b),
    ("raised", 0xf4_f2ed, 0x1e_2127),
    ("rule", 0xd9_d5cc, 0x3a_3f48),
    ("shade", 0xc4_beb2, 0x4a_505b),
    // Text.
    ("ink", 0x1d_1f23, 0xe8_e6e1),
    ("muted", 0x5c_5f66, 0xa4_a8b0),
    ("link", 0x00_5a94, 0x7c_c0f0),
    ("warning", 0x8a_4b00, 0xf0_b060),
    ("error", 0xa3_2316, 0xff_9184),
    // Series.
    ("c1", 0x00_6fae, 0x4f_a8e0),
    ("c2", 0xc0_6a00, 0xe6_a93a),
    ("c3", 0x00_8062, 0x2d_b88c),
    ("c4", 0xb0_4f8a, 0xd9_8abb),
    ("c5", 0xcb_4a12, 0xf0_7a3a),
    ("c6", 0x4b_8fc4, 0x9a_d2f5),
    ("c7", 0x7d_7300, 0xd9_cf4a),
    ("c8", 0x5d_4fa3, 0xa9_9be8),
    ("idle", 0xdf_dbd2, 0x33_3841),
    ("heat", 0x00_72b2, 0x2f_6f9f),
];

/// Colours of series.
const SERIES: usize = 8;

/// Names that have their colour on every page.
const FIXED: &[(&str, usize)] = &[
    ("user", 1),
    ("system", 2),
    ("softirq", 5),
    ("irq", 4),
    ("steal", 7),
    ("utilisation", 6),
    ("bytes", 1),
    ("operations", 2),
    ("packets", 3),
    ("connections", 4),
    ("interrupts", 5),
    ("constant", 6),
    ("throughput", 1),
    ("transactions", 3),
    ("p99", 5),
    ("waits", 1),
    ("application", 6),
    ("copy", 1),
    ("driver", 2),
    ("TCP/UDP", 3),
    ("NAPI/GRO", 4),
    ("skb memory", 7),
    ("socket", 8),
    ("scheduler", 4),
    ("memory", 7),
    ("IP", 8),
    ("syscall entry", 2),
];

/// Names without a colour: what is not used, and what is the rest.
const PLAIN: [&str; 2] = ["idle", "other layers"];

/// How a series looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// From 1; 0 is that of idle time.
    pub colour: usize,
    /// Series beyond the number of colours are dashed.
    pub dashed: bool,
}

impl Look {
    fn solid(colour: usize) -> Self {
        Self { colour, dashed: false }
    }
}

/// Looks by name, given in the order in which names first come.
#[derive(Debug, Default)]
pub(super) struct Colours {
    known: HashMap<String, Look>,
    next: usize,
}

impl Colours {
    pub(super) fn of(&mut self, name: &str) -> Look {
        if PLAIN.contains(&name) {
            return Look::solid(0);
        }
        if let Some((_, colour)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Look::solid(*colour);
        }
        let next = &mut self.next;
        *self.known.entry(name.to_owned()).or_insert_with(|| {
            let place = *next;
            *next += 1;
            Look { colour: place % SERIES + 1, dashed: (place / SERIES) % 2 == 1 }
        })
    }
}

/// Looks of the parts of one bar, which must differ: a part whose colour another has gets one that is left.
pub(super) fn apart(looks: Vec<Look>) -> Vec<Look> {
    let mut free: Vec<usize> =
        (1..=SERIES).filter(|colour| looks.iter().all(|look| look.colour != *colour)).collect();
    let mut taken = Vec::new();
    let each = looks.into_iter().map(|look| match look.colour {
        0 => look,
        colour if taken.contains(&colour) && !free.is_empty() => Look::solid(free.remove(0)),
        colour => {
            taken.push(colour);
            Look::solid(colour)
        }
    });
    each.collect()
}

/// The table as variables of the style sheet: light, dark where the reader prefers that, light on paper.
pub(super) fn style() -> String {
    let of = |pick: fn(&Colour) -> u32| {
        let mut variables = String::new();
        for colour in TABLE {
            let _ = write!(variables, "--{}:#{:06x};", colour.0, pick(colour));
        }
        variables
    };
    let (light, dark) = (of(|colour| colour.1), of(|colour| colour.2));
    format!(
        ":root{{color-scheme:light dark;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{{light}}}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>
    fn luminance(colour: u32) -> f64 {
        let part = |shift: u32| {
            let value = f64::from((colour >> shift) & 0xff) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0)
    }

    fn contrast(a: u32, b: u32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// One colour over another.
    fn mixed(over: u32, under: u32, opacity: f64) -> u32 {
        [16, 8, 0].into_iter().fold(0, |mixed, shift| {
            let part = |colour: u32| f64::from((colour >> shift) & 0xff);
            let value = opacity * part(over) + (1.0 - opacity) * part(under);
            mixed | (value.round() as u32) << shift
        })
    }

    fn named(name: &str) -> Colour {
        *TABLE.iter().find(|colour| colour.0 == name).unwrap()
    }

    /// WCAG AA: 4.5 of text, 3 of what is drawn.
    #[test]
    fn text_and_marks_stand_out_in_both_themes() {
        let themes: [fn(&Colour) -> u32; 2] = [|colour| colour.1, |colour| colour.2];
        for of in themes {
            for text in ["ink", "muted", "link", "warning", "error"] {
                for below in ["paper", "raised"] {
                    let found = contrast(of(&named(text)), of(&named(below)));
                    assert!(found >= 4.5, "{text} on {below}: {found:.2}");
                }
            }
            for series in 1..=SERIES {
                let name = format!("c{series}");
                let found = contrast(of(&named(&name)), of(&named("paper")));
                assert!(found >= 3.0, "{name}: {found:.2}");
            }
            let strongest = super::super::svg::HEAT.1;
            let cell = mixed(of(&named("heat")), of(&named("paper")), strongest);
            let found = contrast(of(&named("ink")), cell);
            assert!(found >= 4.5, "figures of heat maps: {found:.2}");
        }
    }

    #[test]
    fn a_name_keeps_its_colour() {
        let mut colours = Colours::default();
        let names: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
        let first: Vec<Look> = names.iter().map(|name| colours.of(name)).collect();
        let again: Vec<Look> = names.iter().map(|name| colours.of(name)).collect();
        assert_eq!(first, again);
        let different: std::collections::HashSet<_> =
            first[..16].iter().map(|look| (look.colour, look.dashed)).collect();
        assert_eq!(different.len(), 16);
        assert_eq!(colours.of("user"), Colours::default().of("user"));
    }

    #[test]
    fn parts_of_a_bar_differ() {
        let mut colours = Colours::default();
        let names = ["memory", "locks", "skb memory", "socket", "IP", "driver", "idle"];
        let looks = apart(names.map(|name| colours.of(name)).into());
        let different: std::collections::HashSet<_> =
            looks.iter().map(|look| look.colour).collect();
        assert_eq!(different.len(), names.len(), "{looks:?}");
        assert_eq!((looks[0], looks[6]), (colours.of("memory"), colours.of("idle")));
    }
}
