//! Flame graphs of folded stacks, and of the difference of two: one SVG file each, which needs
//! nothing but itself. Why our own: docs/adr/0008-flame-graphs.md.
//!
//! The width of a frame is its share of all samples, the order of frames at one height means nothing
//! (it is that of their names). A click shows a frame at full width; "search" marks frames by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use wirecost_model::document::FlameDifference;
use wirecost_model::metric::Unit;
use wirecost_model::observe::FoldedStacks;
use wirecost_model::units::{three_digits, whole};
use wirecost_model::visible::visible;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// Above the frames: the title and what the graph is of.
const HEAD: f64 = 58.0;
const FOOT: f64 = 14.0;
const MARGIN: f64 = 10.0;
/// Of a character in the font that is asked for, in units of the picture.
const CHARACTER: f64 = 6.6;
/// Frames that nobody could see are left out.
const NARROWEST: f64 = 0.15;
/// The same on a page, which is sent: a frame has no room for a letter long before.
const NARROWEST_OF_PAGE: f64 = 2.0;
/// Above the frames of a difference on a page: what colours mean.
const LEGEND: f64 = 26.0;

/// What frames of the kernel end in; their colour says it too.
pub(crate) const KERNEL: &str = "_[k]";

/// How the counts of two files are made comparable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Shares of the total of each.
    Total,
    /// Counts of the second are multiplied by this: bytes of the first over bytes of the second,
    /// for example, makes it the cost of a byte.
    Factor(f64),
}

/// A function below the functions that called it.
#[derive(Debug, Default)]
struct Node {
    before: f64,
    after: f64,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, stacks: &FoldedStacks, add: impl Fn(&mut Self, f64)) {
        for folded in &stacks.stacks {
            let count = folded.count as f64;
            add(self, count);
            let mut node = &mut *self;
            for name in folded.stack.split(';') {
                node = node.children.entry(name.to_owned()).or_default();
                add(node, count);
            }
        }
    }

    fn scale(&mut self, before: f64, after: f64) {
        self.before *= before;
        self.after *= after;
        self.children.values_mut().for_each(|child| child.scale(before, after));
    }

    /// Of both together, so that what is only in one of them is seen too.
    fn weight(&self) -> f64 {
        self.before + self.after
    }

    fn change(&self) -> f64 {
        self.after - self.before
    }

    fn largest_change(&self) -> f64 {
        let below =
            self.children.values().map(|child| child.change().abs().max(child.largest_change()));
        below.fold(0.0, f64::max)
    }
}

/// The cost of one function in both profiles, in the unit of [`unit`].
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FunctionChange {
    pub name: String,
    /// In the function itself: A, B.
    pub own: (f64, f64),
    /// In it or in what it calls.
    pub total: (f64, f64),
}

impl FunctionChange {
    /// Of the function itself.
    pub(crate) fn change(&self) -> f64 {
        self.own.1 - self.own.0
    }
}

/// What the costs of functions are in: cycles/KByte, or percent of all samples.
pub(crate) fn unit(of: &FlameDifference) -> Unit {
    if of.cycles_per_kbyte.is_some() { Unit::CyclesPerKByte } else { Unit::Percent }
}

/// What all samples of A and of B cost together.
fn totals(of: &FlameDifference) -> (f64, f64) {
    of.cycles_per_kbyte.unwrap_or((100.0, 100.0))
}

/// The cost of one sample of each side.
fn costs(of: &FlameDifference) -> (f64, f64) {
    let each = |stacks: &FoldedStacks, total: f64| {
        let samples: u64 = stacks.stacks.iter().map(|folded| folded.count).sum();
        total / samples.max(1) as f64
    };
    let (a, b) = totals(of);
    (each(&of.a, a), each(&of.b, b))
}

/// All functions of both sides, the largest change of the functions themselves first. The first frame of a stack is
/// the program, which is no function.
pub(crate) fn changes(of: &FlameDifference) -> Vec<FunctionChange> {
    let mut functions: BTreeMap<&str, FunctionChange> = BTreeMap::new();
    let (in_a, in_b) = costs(of);
    add_functions(&mut functions, &of.a, |cost, count| cost.0 += count * in_a);
    add_functions(&mut functions, &of.b, |cost, count| cost.1 += count * in_b);
    let mut all: Vec<FunctionChange> = functions.into_values().collect();
    // Names in order where changes are the same.
    all.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    all
}

fn add_functions<'a>(
    functions: &mut BTreeMap<&'a str, FunctionChange>,
    stacks: &'a FoldedStacks,
    add: impl Fn(&mut (f64, f64), f64),
) {
    for folded in &stacks.stacks {
        let Some((_, frames)) = folded.stack.split_once(';') else { continue };
        let mut of = |name: &'a str, pick: fn(&mut FunctionChange) -> &mut (f64, f64)| {
            let new = || FunctionChange { name: name.to_owned(), ..FunctionChange::default() };
            add(pick(functions.entry(name).or_insert_with(new)), folded.count as f64);
        };
        // A function that calls itself counts once.
        for name in frames.split(';').collect::<BTreeSet<_>>() {
            of(name, |change| &mut change.total);
        }
        if let Some(name) = frames.rsplit(';').next() {
            of(name, |change| &mut change.own);
        }
    }
}

/// Writes the stacks as text: a line each, the stack, a blank, the count.
///
/// # Errors
/// Those of `out`.
pub fn write_folded(out: &mut dyn Write, stacks: &FoldedStacks) -> io::Result<()> {
    // Names of programs may hold line ends, which would make other lines of them.
    let mut lines = stacks.stacks.iter();
    lines.try_for_each(|folded| writeln!(out, "{} {}", visible(&folded.stack), folded.count))
}

/// A graph of one profile.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, title: &str, stacks: &FoldedStacks) -> io::Result<()> {
    let mut root = Node::default();
    root.add(stacks, |node, count| node.after += count);
    let all = root.after;
    let subtitle = format!("{all:.0} samples; kernel orange, user space blue, processes grey");
    let drawing = Drawing {
        colour: &|name, _, depth| plain_colour(name, depth),
        tell: &|node| format!("{:.0} samples, {}", node.after, percent(node.after, all)),
        head: HEAD,
        narrowest: NARROWEST,
        is_in_page: false,
        weight: Node::weight,
    };
    drawing.write(out, title, &subtitle, &root)
}

/// The frames of a graph alone, for a page that has a style and a script for them.
///
/// # Errors
/// Those of `out`.
pub fn write_frames(out: &mut dyn Write, stacks: &FoldedStacks) -> io::Result<()> {
    let mut root = Node::default();
    root.add(stacks, |node, count| node.after += count);
    let all = root.after;
    let drawing = Drawing {
        colour: &|name, _, depth| plain_colour(name, depth),
        tell: &|node| format!("{:.0} samples, {}", node.after, percent(node.after, all)),
        head: 0.0,
        narrowest: NARROWEST_OF_PAGE,
        is_in_page: true,
        weight: Node::weight,
    };
    let rows = drawing.depth(&root, root.weight());
    let height = rows as f64 * ROW;
    writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">")?;
    if root.weight() > 0.0 {
        let place = Place { begin: 0.0, width: 1.0, depth: 0 };
        drawing.frame(out, "all", &root, place, rows)?;
    }
    writeln!(out, "</svg>")
}

/// The frames of B for a page, coloured by what their cost has changed by since A.
///
/// # Errors
/// Those of `out`.
pub fn write_difference_frames(out: &mut dyn Write, of: &FlameDifference) -> io::Result<()> {
    let mut root = Node::default();
    root.add(&of.a, |node, count| node.before += count);
    root.add(&of.b, |node, count| node.after += count);
    let (in_a, in_b) = costs(of);
    root.scale(in_a, in_b);
    let most = root.largest_change().max(root.change().abs()).max(f64::MIN_POSITIVE);
    let unit = unit(of);
    let shown = |value: f64| match unit {
        Unit::CyclesPerKByte => cycles(value),
        _ => format!("{value:.2}%"),
    };
    let drawing = Drawing {
        colour: &|_, node, _| safe_colour(node.change() / most),
        tell: &|node| {
            let (change, sign) =
                (node.change(), if node.change() < 0.0 { "\u{2212}" } else { "+" });
            let change = match unit {
                Unit::CyclesPerKByte => format!("{sign}{} cycles/KByte", cycles(change.abs())),
                _ => format!("{sign}{:.2} points", change.abs()),
            };
            format!("A {}, B {}: {change}", shown(node.before), shown(node.after))
        },
        head: LEGEND,
        narrowest: NARROWEST_OF_PAGE,
        is_in_page: true,
        weight: |node| node.after,
    };
    let rows = drawing.depth(&root, root.after);
    let height = LEGEND + rows as f64 * ROW;
    writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">")?;
    legend(out, most, unit)?;
    if root.after > 0.0 {
        let place = Place { begin: 0.0, width: 1.0, depth: 0 };
        drawing.frame(out, "all", &root, place, rows)?;
    }
    writeln!(out, "</svg>")
}

/// What colours mean: a square for each of some changes, with the largest at both ends.
fn legend(out: &mut dyn Write, most: f64, unit: Unit) -> io::Result<()> {
    const STEPS: [f64; 7] = [-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0];
    let shown = |change: f64| {
        let value = match unit {
            Unit::CyclesPerKByte => cycles(change.abs() * most),
            _ => format!("{:.1}", change.abs() * most),
        };
        match change {
            0.0 => "no change".to_owned(),
            change if change < 0.0 => format!("\u{2212}{value}"),
            _ => format!("+{value}"),
        }
    };
    for (number, change) in STEPS.into_iter().enumerate() {
        let x = MARGIN + 120.0 * number as f64;
        writeln!(
            out,
            "<rect class=\"legend\" x=\"{x}\" y=\"2\" width=\"14\" height=\"14\" fill=\"{}\"/>\
             <text class=\"legend\" x=\"{}\" y=\"14\">{}</text>",
            safe_colour(change),
            x + 20.0,
            escape(&shown(change)),
        )?;
    }
    let what = match unit {
        Unit::CyclesPerKByte => "cycles/KByte, B \u{2212} A",
        _ => "points of all samples, B \u{2212} A",
    };
    let x = MARGIN + 120.0 * STEPS.len() as f64;
    writeln!(out, "<text class=\"legend\" x=\"{x}\" y=\"14\">{what}</text>")
}

fn cycles(value: f64) -> String {
    if value < 99.95 { three_digits(value) } else { whole(value) }
}

/// What changed from one profile to another: red is more, blue is less.
///
/// # Errors
/// Those of `out`.
pub fn write_difference(
    out: &mut dyn Write,
    title: &str,
    before: &FoldedStacks,
    after: &FoldedStacks,
    scale: Scale,
) -> io::Result<()> {
    let mut root = Node::default();
    root.add(before, |node, count| node.before += count);
    root.add(after, |node, count| node.after += count);
    let samples = format!("{:.0} samples before, {:.0} after", root.before, root.after);
    // Percents of all before, in either case.
    let one = |all: f64| if all > 0.0 { 100.0 / all } else { 0.0 };
    let (by, factor) = match scale {
        Scale::Total => ("as shares of each", one(root.after)),
        Scale::Factor(factor) => ("as percent of all before", one(root.before) * factor),
    };
    root.scale(one(root.before), factor);
    let most = root.largest_change().max(root.change().abs()).max(f64::MIN_POSITIVE);
    let subtitle = format!("{samples}, {by}; red is more, blue is less (up to {most:.1} points)");
    let drawing = Drawing {
        colour: &|_, node, _| change_colour(node.change() / most),
        tell: &|node| {
            format!(
                "{:.2}% before, {:.2}% after: {:+.2} points",
                node.before,
                node.after,
                node.change()
            )
        },
        head: HEAD,
        narrowest: NARROWEST,
        is_in_page: false,
        weight: Node::weight,
    };
    drawing.write(out, title, &subtitle, &root)
}

fn percent(part: f64, all: f64) -> String {
    if all > 0.0 { format!("{:.2}%", part * 100.0 / all) } else { "0%".to_owned() }
}

/// Alike for the same name in every graph, and a little different from its neighbours.
fn plain_colour(name: &str, depth: usize) -> String {
    // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (some, more) = (hash % 16, (hash >> 8) % 12);
    match depth {
        0 | 1 => format!("hsl(0,0%,{}%)", 78 + more),
        _ if name.ends_with(KERNEL) => format!("hsl({},90%,{}%)", 24 + some, 62 + more),
        _ => format!("hsl({},55%,{}%)", 200 + some, 70 + more),
    }
}

/// -1 is blue, 0 grey, 1 red. The square root makes small changes visible.
fn change_colour(change: f64) -> String {
    if change.abs() < 0.005 {
        return "hsl(0,0%,92%)".to_owned();
    }
    let strength = change.abs().min(1.0).sqrt();
    let hue = if change < 0.0 { 215 } else { 5 };
    format!("hsl({hue},85%,{:.0}%)", 97.0 - 37.0 * strength)
}

/// -1 is blue, 0 grey, 1 orange, which people with any colour vision can tell apart.
fn safe_colour(change: f64) -> String {
    if change.abs() < 0.005 {
        return "hsl(0,0%,90%)".to_owned();
    }
    let strength = change.abs().min(1.0).sqrt();
    let hue = if change < 0.0 { 210 } else { 30 };
    format!("hsl({hue},90%,{:.0}%)", 95.0 - 37.0 * strength)
}

/// How the frames of a tree look.
struct Drawing<'a> {
    colour: &'a dyn Fn(&str, &Node, usize) -> String,
    tell: &'a dyn Fn(&Node) -> String,
    /// Room above the frames.
    head: f64,
    /// Frames that are narrower are left out.
    narrowest: f64,
    /// The style of a page has the height of frames, and its script finds the name and the place of a frame in what is drawn.
    is_in_page: bool,
    /// What frames are as wide as.
    weight: fn(&Node) -> f64,
}

/// Where a frame is: shares of the width, and rows from the bottom.
#[derive(Clone, Copy)]
struct Place {
    begin: f64,
    width: f64,
    depth: usize,
}

impl Drawing<'_> {
    fn write(
        &self,
        out: &mut dyn Write,
        title: &str,
        subtitle: &str,
        root: &Node,
    ) -> io::Result<()> {
        let rows = self.depth(root, root.weight());
        let height = HEAD + rows as f64 * ROW + FOOT;
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\">\n\
             <style>text {{ font: 11px monospace; fill: #000; pointer-events: none }}\n\
             .title {{ font: bold 16px sans-serif }} .about {{ font: 12px sans-serif; fill: #555 }}\n\
             .button {{ font: 12px sans-serif; fill: #06c; pointer-events: auto; cursor: pointer }}\n\
             .frame {{ cursor: pointer }} .frame rect {{ stroke: #fff; stroke-width: .5 }}\n\
             .frame:hover rect {{ stroke: #000; stroke-width: 1 }} .found rect {{ fill: #e0e }}\n\
             .around {{ opacity: .55 }} .away {{ display: none }}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"24\">{}</text>\n\
             <text class=\"about\" x=\"{MARGIN}\" y=\"44\">{}</text>\n\
             <text class=\"about\" id=\"matched\" x=\"{}\" y=\"24\" text-anchor=\"end\"></text>\n\
             <text class=\"button\" id=\"search\" x=\"{}\" y=\"44\" text-anchor=\"end\">search</text>",
            escape(title),
            escape(subtitle),
            WIDTH - MARGIN,
            WIDTH - MARGIN,
        )?;
        if root.weight() > 0.0 {
            let place = Place { begin: 0.0, width: 1.0, depth: 0 };
            self.frame(out, "all", root, place, rows)?;
        }
        writeln!(out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
    }

    fn frame(
        &self,
        out: &mut dyn Write,
        name: &str,
        node: &Node,
        place: Place,
        rows: usize,
    ) -> io::Result<()> {
        let inner = WIDTH - 2.0 * MARGIN;
        let Place { begin, width, depth } = place;
        let x = MARGIN + begin * inner;
        let y = self.head + (rows - 1 - depth) as f64 * ROW;
        let label = fitting(name.trim_end_matches(KERNEL), width * inner);
        let (x_of_text, y_of_text) = (x + 3.0, y + 12.0);
        if self.is_in_page {
            let colour = (self.colour)(name, node, depth);
            let told = escape(&(self.tell)(node));
            write!(
                out,
                "<g class=\"frame\"><title>{}: {told}</title><rect x=\"{x:.3}\" y=\"{y}\" \
                 width=\"{:.3}\" fill=\"{colour}\"/>",
                escape(name),
                width * inner,
            )?;
            if !label.is_empty() {
                let label = escape(&label);
                write!(out, "<text x=\"{x_of_text:.1}\" y=\"{y_of_text}\">{label}</text>")?;
            }
            writeln!(out, "</g>")?;
            return self.frames_above(out, node, place, rows);
        }
        writeln!(
            out,
            "<g class=\"frame\" data-x=\"{begin:.7}\" data-w=\"{width:.7}\" data-d=\"{depth}\" \
             data-n=\"{name}\"><title>{name}: {told}</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\" rx=\"1\" fill=\"{}\"/>\
             <text x=\"{x_of_text:.2}\" y=\"{y_of_text}\">{}</text></g>",
            width * inner,
            ROW - 1.0,
            (self.colour)(name, node, depth),
            escape(&label),
            name = escape(name),
            told = escape(&(self.tell)(node)),
        )?;
        self.frames_above(out, node, place, rows)
    }

    /// The frames of what a function calls.
    fn frames_above(
        &self,
        out: &mut dyn Write,
        node: &Node,
        place: Place,
        rows: usize,
    ) -> io::Result<()> {
        let inner = WIDTH - 2.0 * MARGIN;
        let Place { mut begin, width, depth } = place;
        for (name, child) in &node.children {
            let width = width * (self.weight)(child) / (self.weight)(node);
            if width * inner >= self.narrowest {
                let place = Place { begin, width, depth: depth + 1 };
                self.frame(out, name, child, place, rows)?;
            }
            begin += width;
        }
        Ok(())
    }

    /// Rows that are drawn.
    fn depth(&self, node: &Node, all: f64) -> usize {
        let drawn =
            |child: &&Node| (self.weight)(child) / all * (WIDTH - 2.0 * MARGIN) >= self.narrowest;
        let below = node.children.values().filter(drawn).map(|child| self.depth(child, all));
        1 + below.max().unwrap_or(0)
    }
}

/// As much of a name as a frame has room for; nothing where that would say nothing.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 5.0) / CHARACTER).floor().max(0.0) as usize;
    match name.char_indices().nth(room) {
        None => name.to_owned(),
        Some(_) if room < 4 => String::new(),
        Some((end, _)) => {
            let cut = name[..end].char_indices().nth(room - 2).map_or(end, |(cut, _)| cut);
            format!("{}..", &name[..cut])
        }
    }
}

/// As XML wants it. Characters that it cannot hold, or that change what is around them, are shown as
/// escapes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\u{fffe}' | '\u{ffff}' => {}
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Zoom and search. Frames without it are all there, and tell what they are when pointed at.
const SCRIPT: &str = r#"const W = 1200, M = 10, C = 6.6, inner = W - 2 * M;
const frames = [...document.querySelectorAll('.frame')].map(g => ({
  g, x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d, n: g.dataset.n,
  r: g.querySelector('rect'), t: g.querySelector('text') }));
function fit(name, width) {
  const room = Math.max(0, Math.floor((width - 5) / C));
  return name.length <= room ? name : room < 4 ? '' : name.slice(0, room - 2) + '..';
}
function zoom(to) {
  const e = 1e-7;
  for (const f of frames) {
    const around = f.d < to.d && f.x <= to.x + e && f.x + f.w >= to.x + to.w - e;
    const within = f.d >= to.d && f.x >= to.x - e && f.x + f.w <= to.x + to.w + e;
    f.g.classList.toggle('around', around);
    f.g.classList.toggle('away', !around && !within);
    const x = around ? M : M + (f.x - to.x) / to.w * inner;
    const w = around ? inner : f.w / to.w * inner;
    f.r.setAttribute('x', x); f.r.setAttribute('width', Math.max(0, w));
    f.t.setAttribute('x', x + 3); f.t.textContent = fit(f.n.replace(/_\[k\]$/, ''), w);
  }
}
for (const f of frames) f.g.addEventListener('click', () => zoom(f));
document.getElementById('search').addEventListener('click', () => {
  const text = prompt('Mark frames whose name contains (or matches, as a regular expression):');
  if (text === null) return;
  let is; try { const r = new RegExp(text); is = n => text && r.test(n); } catch { is = n => n.includes(text); }
  let share = 0, end = -1;
  const marked = frames.filter(f => { const m = is(f.n); f.g.classList.toggle('found', !!m); return m; });
  for (const f of marked.sort((a, b) => a.x - b.x || a.d - b.d))
    if (f.x >= end - 1e-7) { share += f.w; end = f.x + f.w; }
  document.getElementById('matched').textContent = text ? (share * 100).toFixed(1) + '% in ' + text : '';
});
"#;

#[cfg(test)]
mod tests {
    use wirecost_model::observe::FoldedStack;

    use super::*;

    fn stacks(text: &str) -> FoldedStacks {
        FoldedStacks::parse(text).unwrap()
    }

    fn drawn(text: &str) -> String {
        let mut out = Vec::new();
        write(&mut out, "a <title>", &stacks(text)).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn difference(before: &str, after: &str, scale: Scale) -> String {
        let mut out = Vec::new();
        write_difference(&mut out, "what changed", &stacks(before), &stacks(after), scale).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn frames_are_as_wide_as_their_share() {
        let svg = drawn("app;main;send_[k] 75\napp;main 25\n");
        assert!(svg.contains("a &lt;title&gt;"));
        assert!(svg.contains("100 samples"));
        assert!(svg.contains("data-w=\"0.7500000\" data-d=\"3\" data-n=\"send_[k]\""), "{svg}");
        assert!(svg.contains("send_[k]: 75 samples, 75.00%"));
        assert_eq!(svg.matches("<g class=").count(), 4);
    }

    #[test]
    fn names_may_hold_anything() {
        let svg = drawn("app;<T as \"U\">::f&\u{1}\u{202e} 1\n");
        assert!(
            svg.contains("&lt;T as &quot;U&quot;&gt;::f&amp;\\u{1}\\u{202e}: 1 samples"),
            "{svg}"
        );
        assert!(!svg.contains(['\u{1}', '\u{202e}']));
        assert!(drawn("").contains("0 samples"));
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let stack = "a\nb\u{1b}[2J;main".to_owned();
        let mut out = Vec::new();
        let stacks = FoldedStacks { stacks: vec![FoldedStack { stack, count: 3 }] };
        write_folded(&mut out, &stacks).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\\nb\\u{1b}[2J;main 3\n");
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_is_left_out() {
        let svg = drawn("app;wide 1000000\napp;narrow;deep;deeper 1\n");
        assert!(!svg.contains("narrow") && svg.contains("wide"));
    }

    #[test]
    fn a_difference_is_of_shares() {
        let svg = difference("a;x 50\na;y 50\n", "a;x 150\na;z 50\n", Scale::Total);
        assert!(svg.contains("x: 50.00% before, 75.00% after: +25.00 points"), "{svg}");
        // What is gone is seen as well.
        assert!(svg.contains("y: 50.00% before, 0.00% after: -50.00 points"));
        assert!(svg.contains("a: 100.00% before, 100.00% after: +0.00 points"));
        // The largest change is the strongest colour.
        assert!(svg.contains("fill=\"hsl(215,85%,60%)\""));
    }

    #[test]
    fn a_difference_may_be_of_bytes() {
        // Twice the samples for twice the bytes is no change.
        let svg = difference("a;x 50\n", "a;x 100\na;y 10\n", Scale::Factor(0.5));
        assert!(svg.contains("x: 100.00% before, 100.00% after: +0.00 points"), "{svg}");
        assert!(svg.contains("y: 0.00% before, 10.00% after: +10.00 points"));
    }

    #[test]
    fn names_are_cut_to_fit() {
        assert_eq!(fitting("tcp_sendmsg", 200.0), "tcp_sendmsg");
        assert_eq!(fitting("tcp_sendmsg", 60.0), "tcp_se..");
        assert_eq!(fitting("tcp_sendmsg", 20.0), "");
    }
}
