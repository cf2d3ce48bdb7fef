//! A profile as typed: which attribute belongs to which group, transaction or flowop, by uperf's
//! rules. Values are not looked at yet.
//!
//! uperf keeps no tree: `<group` begins a group, attributes go to the current group, transaction or
//! flowop wherever they stand, and of the closing tags only `</group` and `</transaction` do anything.

use super::error::LanguageErrorKind;
use super::lexer::{Token, TokenKind, Value};
use super::names;
use super::note::NoteKind;
use super::source::Span;

#[derive(Debug, Default)]
pub(super) struct RawProfile {
    pub(super) name: Option<Value>,
    pub(super) groups: Vec<RawGroup>,
}

#[derive(Debug, Default)]
pub(super) struct RawGroup {
    pub(super) at: Span,
    pub(super) name: Option<Value>,
    /// The attribute that says so (`nthreads` or `nprocs`), and its value.
    pub(super) strands: Option<(&'static str, Value)>,
    pub(super) transactions: Vec<RawTransaction>,
}

#[derive(Debug, Default)]
pub(super) struct RawTransaction {
    pub(super) at: Span,
    pub(super) iterations: Option<Value>,
    pub(super) duration: Option<Value>,
    pub(super) rate: Option<Value>,
    pub(super) flowops: Vec<RawFlowop>,
}

#[derive(Debug, Default)]
pub(super) struct RawFlowop {
    pub(super) at: Span,
    pub(super) kind: Option<Value>,
    /// Each `options=` of the flowop; more than one is odd, but legal.
    pub(super) options: Vec<Value>,
}

#[derive(Debug, Default)]
pub(super) struct Typed {
    pub(super) profile: RawProfile,
    pub(super) notes: Vec<(NoteKind, Span)>,
    pub(super) errors: Vec<(LanguageErrorKind, Span)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Element {
    Profile,
    Group,
    Transaction,
    Flowop,
}

impl Element {
    const ALL: [Element; 4] =
        [Element::Profile, Element::Group, Element::Transaction, Element::Flowop];

    fn name(self) -> &'static str {
        match self {
            Element::Profile => "profile",
            Element::Group => "group",
            Element::Transaction => "transaction",
            Element::Flowop => "flowop",
        }
    }

    /// A tag is known by its first letters.
    fn of(tag: &str) -> Option<Element> {
        Self::ALL.into_iter().find(|element| tag.starts_with(element.name()))
    }
}

const ATTRIBUTES: [&str; 8] =
    ["name", "nthreads", "nprocs", "iterations", "duration", "rate", "type", "options"];

pub(super) fn arrange(tokens: Vec<Token>) -> Typed {
    let mut arranger = Arranger::default();
    for token in tokens {
        arranger.token(token);
    }
    arranger.finish()
}

/// Enough of a text to know it by: an unclosed quote makes one word of the rest of the file.
fn beginning(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

#[derive(Default)]
struct Arranger {
    out: Typed,
    in_group: bool,
    in_transaction: bool,
    /// Tags that are open, for notes about those that are not closed.
    open: Vec<(Element, Span)>,
    /// The tag whose attributes are being read.
    tag: Option<Element>,
    /// The tag was wrong, and its attributes would only repeat that.
    skip_attributes: bool,
    saw_profile: bool,
}

impl Arranger {
    fn note(&mut self, kind: NoteKind, at: Span) {
        self.out.notes.push((kind, at));
    }

    fn error(&mut self, kind: LanguageErrorKind, at: Span) {
        self.out.errors.push((kind, at));
    }

    fn token(&mut self, token: Token) {
        let Token { kind, span, swallowed } = token;
        match kind {
            TokenKind::Open(tag) => match Element::of(&tag) {
                Some(element) => self.begin(element, &tag, span),
                None => self.unknown_tag(tag, span, swallowed),
            },
            TokenKind::Close(tag) => match Element::of(&tag) {
                Some(element) => self.end(element, span),
                None => self.unknown_tag(tag, span, swallowed),
            },
            TokenKind::SelfClose => {
                if self.tag.is_some() && self.open.last().map(|(element, _)| *element) == self.tag {
                    self.open.pop();
                }
            }
            TokenKind::Attribute { key, .. } if swallowed => {
                self.note(NoteKind::Glued { text: key }, span);
            }
            TokenKind::Word(text) if swallowed => self.note(NoteKind::Glued { text }, span),
            TokenKind::Attribute { key, value } => self.attribute(&key, value, span),
            TokenKind::Word(text) => {
                let text = beginning(&text);
                self.error(LanguageErrorKind::UnexpectedText { text }, span);
            }
        }
    }

    fn unknown_tag(&mut self, tag: String, span: Span, swallowed: bool) {
        if swallowed {
            self.note(NoteKind::Glued { text: tag }, span);
            return;
        }
        let nearest = names::nearest(&tag, Element::ALL.into_iter().map(Element::name));
        let tag = beginning(&tag);
        self.error(LanguageErrorKind::UnknownTag { tag, nearest }, span);
        self.skip_attributes = true;
    }

    fn begin(&mut self, element: Element, tag: &str, span: Span) {
        self.tag = Some(element);
        self.skip_attributes = false;
        if tag != element.name() {
            self.note(NoteKind::TagTail { tag: element.name(), written: tag.to_owned() }, span);
        }
        let first_inside =
            self.open.iter().position(|(open, _)| *open >= element).unwrap_or(self.open.len());
        self.unclosed(first_inside);
        self.open.push((element, span));
        let what = || format!("<{}>", element.name());
        match element {
            Element::Profile => self.saw_profile = true,
            Element::Group => {
                self.in_group = true;
                self.out.profile.groups.push(RawGroup { at: span, ..RawGroup::default() });
            }
            Element::Transaction => {
                let in_group = self.in_group;
                match self.out.profile.groups.last_mut() {
                    Some(group) if in_group => {
                        self.in_transaction = true;
                        group
                            .transactions
                            .push(RawTransaction { at: span, ..RawTransaction::default() });
                    }
                    _ => {
                        self.skip_attributes = true;
                        self.error(LanguageErrorKind::OutsideGroup { what: what() }, span);
                    }
                }
            }
            Element::Flowop => {
                if let Some(transaction) = self.transaction() {
                    transaction.flowops.push(RawFlowop { at: span, ..RawFlowop::default() });
                } else {
                    self.skip_attributes = true;
                    self.error(LanguageErrorKind::OutsideTransaction { what: what() }, span);
                }
            }
        }
    }

    /// Notes the open tags from this index on as never closed.
    fn unclosed(&mut self, from: usize) {
        for (element, at) in self.open.split_off(from) {
            let tag = element.name();
            self.note(NoteKind::Unclosed { tag }, at);
        }
    }

    fn end(&mut self, element: Element, span: Span) {
        self.tag = None;
        self.skip_attributes = false;
        match self.open.iter().rposition(|(open, _)| *open == element) {
            Some(index) => {
                self.unclosed(index + 1);
                self.open.pop();
            }
            None => self.note(NoteKind::StrayClose { tag: element.name() }, span),
        }
        match element {
            Element::Group => self.in_group = false,
            Element::Transaction => self.in_transaction = false,
            Element::Profile | Element::Flowop => {}
        }
    }

    fn group(&mut self) -> Option<&mut RawGroup> {
        self.out.profile.groups.last_mut().filter(|_| self.in_group)
    }

    fn transaction(&mut self) -> Option<&mut RawTransaction> {
        let group = self.out.profile.groups.last_mut()?;
        group.transactions.last_mut().filter(|_| self.in_transaction)
    }

    /// The last flowop, also after its transaction has ended.
    fn flowop(&mut self) -> Option<&mut RawFlowop> {
        let group = self.out.profile.groups.last_mut()?;
        group.transactions.last_mut()?.flowops.last_mut()
    }

    fn attribute(&mut self, key: &str, value: Value, span: Span) {
        let Some(key) = ATTRIBUTES.into_iter().find(|known| *known == key) else {
            let name = key.to_owned();
            let nearest = names::nearest(key, ATTRIBUTES.into_iter());
            self.error(LanguageErrorKind::UnknownAttribute { name, nearest }, span);
            return;
        };
        if self.skip_attributes {
            return;
        }
        match key {
            "name" => self.name(value, span),
            "nthreads" | "nprocs" => self.strands(key, value, span),
            "type" | "options" => self.of_flowop(key, value, span),
            _ => self.of_transaction(key, value, span),
        }
    }

    fn name(&mut self, value: Value, span: Span) {
        let previous = match self.group() {
            Some(group) => group.name.replace(value),
            None => self.out.profile.name.replace(value),
        };
        match self.tag {
            Some(on @ (Element::Transaction | Element::Flowop)) if self.in_group => {
                self.note(NoteKind::InnerName { on: on.name() }, span);
            }
            _ if previous.is_some() => self.note(NoteKind::Replaced { key: "name" }, span),
            _ => {}
        }
    }

    fn strands(&mut self, key: &'static str, value: Value, span: Span) {
        let Some(group) = self.group() else {
            let what = format!("{key}=");
            self.error(LanguageErrorKind::OutsideGroup { what }, span);
            return;
        };
        let replaced = group.strands.replace((key, value)).is_some();
        self.misplaced_or_replaced(key, Element::Group, replaced, span);
    }

    fn of_transaction(&mut self, key: &'static str, value: Value, span: Span) {
        let Some(transaction) = self.transaction() else {
            let what = format!("{key}=");
            self.error(LanguageErrorKind::OutsideTransaction { what }, span);
            return;
        };
        let place = match key {
            "iterations" => &mut transaction.iterations,
            "duration" => &mut transaction.duration,
            _ => &mut transaction.rate,
        };
        let replaced = place.replace(value).is_some();
        self.misplaced_or_replaced(key, Element::Transaction, replaced, span);
    }

    fn of_flowop(&mut self, key: &'static str, value: Value, span: Span) {
        let Some(flowop) = self.flowop() else {
            let what = format!("{key}=");
            self.error(LanguageErrorKind::OutsideFlowop { what }, span);
            return;
        };
        let mut replaced = false;
        if key == "type" {
            replaced = flowop.kind.replace(value).is_some();
        } else {
            flowop.options.push(value);
            if flowop.options.len() > 1 {
                self.note(NoteKind::SecondOptions, span);
            }
        }
        self.misplaced_or_replaced(key, Element::Flowop, replaced, span);
    }

    fn misplaced_or_replaced(
        &mut self,
        key: &'static str,
        to: Element,
        replaced: bool,
        span: Span,
    ) {
        match self.tag {
            Some(on) if on != to => {
                self.note(NoteKind::Misplaced { key, on: on.name(), to: to.name() }, span)
            }
            _ if replaced => self.note(NoteKind::Replaced { key }, span),
            _ => {}
        }
    }

    fn finish(mut self) -> Typed {
        self.unclosed(0);
        if let Some(group) = self.out.profile.groups.first()
            && !self.saw_profile
        {
            let at = group.at;
            self.note(NoteKind::NoProfileTag, at);
        }
        self.out
    }
}
