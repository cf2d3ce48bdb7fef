//! A flowop as meant: its type and its options, word by word.

use wirecost_model::clock::nanos;
use wirecost_model::profile::{
    Cipher, Conns, Flowop, IoValue, Options, Pause, Payload, Position, Size,
};

use super::error::LanguageErrorKind;
use super::lexer::Value;
use super::note::NoteKind;
use super::number::{self, NumberError};
use super::options::{self, Form, OptionDef, ValueKind};
use super::parse::{Reader, Resolved, unknown_option};
use super::source::Span;
use super::typed::RawFlowop;
use super::{escape, names};
use crate::io_options::{IoOption, ValueType, Zero};

/// The flowop, and where each of its options stands.
pub(super) fn read_flowop(
    reader: &mut Reader<'_>,
    typed: &RawFlowop,
    at: Position,
) -> (Flowop, Vec<(&'static str, Span)>) {
    let kind = typed.kind.as_ref().and_then(|kind| read_kind(reader, kind)).unwrap_or_default();
    let mut options = Options::default();
    let mut spans = Vec::new();
    for (index, value) in typed.options.iter().enumerate() {
        if index > 0 {
            let fresh = Options::default();
            options.count = fresh.count;
            options.size = fresh.size;
            options.duration = fresh.duration;
            options.conn = fresh.conn;
        }
        read_options(reader, value, &kind, &mut options, &mut spans);
    }
    for (option, span) in &spans {
        let applies = options::find(option).is_none_or(|option| option.applies_to(&kind));
        if !kind.is_empty() && !applies {
            let flowop = kind.clone();
            reader.note(NoteKind::OptionIgnored { option, flowop }, *span);
        }
    }
    (Flowop { kind, options, at }, spans)
}

fn read_kind(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let written = reader.attribute(value)?;
    let known = names::flowop_names().find(|name| name.eq_ignore_ascii_case(&written.text));
    if known.is_none() {
        let nearest = names::nearest(&written.text, names::flowop_names());
        let name = written.text;
        reader.error(LanguageErrorKind::UnknownFlowop { name, nearest }, written.span);
    }
    known.map(str::to_owned)
}

fn read_options(
    reader: &mut Reader<'_>,
    value: &Value,
    kind: &str,
    options: &mut Options,
    spans: &mut Vec<(&'static str, Span)>,
) {
    let Some((list, from_variable)) = reader.looked_up(value) else {
        return;
    };
    for (offset, word) in words(&list) {
        let place = |from: usize, length: usize| {
            if from_variable { value.span } else { value.span_of(offset + from, length) }
        };
        if !from_variable
            && let Some(variable) = word.strip_prefix('$')
            && let Some(list) = reader.variable(variable)
        {
            read_embedded(reader, &list, place(0, word.len()), kind, options, spans);
        } else if let Some((option, span)) = read_word(reader, word, &place, from_variable, options)
        {
            spans.push((option.name, span));
        }
    }
}

/// A variable among the words of a list: its value is words of the list, and each flowop takes those
/// that it has a use for, so that one variable can serve all flowops of a profile.
fn read_embedded(
    reader: &mut Reader<'_>,
    list: &str,
    span: Span,
    kind: &str,
    options: &mut Options,
    spans: &mut Vec<(&'static str, Span)>,
) {
    for (_, word) in words(list) {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        if options::find(name).is_some_and(|option| !option.applies_to(kind)) {
            continue;
        }
        if let Some((option, span)) = read_word(reader, word, &|_, _| span, true, options) {
            spans.push((option.name, span));
        }
    }
}

/// The words of an option list with their offsets.
pub(super) fn words(list: &str) -> impl Iterator<Item = (usize, &str)> {
    let blanks = [' ', '\t', '\n', '\r'];
    let mut offset = 0;
    list.split(blanks).filter_map(move |word| {
        let at = offset;
        offset += word.len() + 1;
        (!word.is_empty()).then_some((at, word))
    })
}

fn read_word(
    reader: &mut Reader<'_>,
    word: &str,
    place: &dyn Fn(usize, usize) -> Span,
    from_variable: bool,
    options: &mut Options,
) -> Option<(&'static OptionDef, Span)> {
    let span = place(0, word.len());
    if !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let word = word.to_owned();
        reader.note(
            if word.starts_with('$') {
                NoteKind::DroppedVariable { word }
            } else {
                NoteKind::DroppedWord { word }
            },
            span,
        );
        return None;
    }
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    };
    let Some(option) = options::find(key) else {
        reader.error(unknown_option(key), place(0, key.len()));
        return None;
    };
    let is_flag = option.is_flag();
    let name = option.name;
    let written = match (value, is_flag) {
        (None, true) => Resolved { text: String::new(), span },
        (Some(_), true) => {
            reader.error(LanguageErrorKind::TakesNoValue { option: name }, span);
            return None;
        }
        (None | Some(""), false) => {
            reader.error(LanguageErrorKind::NeedsValue { option: name }, span);
            return None;
        }
        (Some(value), false) => {
            let span = place(key.len() + 1, value.len());
            read_value(reader, name, value, span, from_variable)?
        }
    };
    set(reader, option, written, options)?;
    Some((option, span))
}

/// An option's value with its variable looked up and its entities decoded.
fn read_value(
    reader: &mut Reader<'_>,
    option: &'static str,
    value: &str,
    span: Span,
    from_variable: bool,
) -> Option<Resolved> {
    if let Some(name) = value.strip_prefix('$') {
        let text = reader.variable(name);
        if text.is_none() {
            reader.error(
                LanguageErrorKind::UnsetVariable {
                    name: name.to_owned(),
                    remotehost: option == "remotehost",
                },
                span,
            );
        }
        return text.map(|text| Resolved { text, span });
    }
    if value.contains('$') {
        let value = value.to_owned();
        reader.note(NoteKind::EmbeddedDollar { value }, span);
    }
    let text = if from_variable { value.to_owned() } else { escape::decode(value) };
    Some(Resolved { text, span })
}

pub(super) fn set(
    reader: &mut Reader<'_>,
    option: &'static OptionDef,
    written: Resolved,
    options: &mut Options,
) -> Option<()> {
    let name = option.name;
    match &option.value {
        ValueKind::Flag { set, .. } => set(options),
        ValueKind::Integer { min, max, set, .. } => {
            set(options, integer(reader, name, &written, *min, *max)?);
        }
        ValueKind::Plain { min, set, .. } => set(options, plain(reader, name, &written, *min)?),
        ValueKind::Time { set, .. } => set(options, reader.time(name, written)?),
        ValueKind::Text { set, .. } => {
            if option.name == "engine" {
                reader.note(NoteKind::OfOpenSsl { option: option.name }, written.span);
            }
            set(options, written.text);
        }
        ValueKind::Pause => {
            let pause = reader.time(name, written)?;
            options.duration = Some(Pause::Fixed(nanos(pause)));
        }
        ValueKind::Size => options.size = Some(size(reader, &written)?),
        ValueKind::Conns => options.conn = conns(reader, &written)?,
        ValueKind::Port => options.port = port(reader, &written),
        ValueKind::Protocol => options.protocol = Some(protocol(reader, written)?),
        ValueKind::Cipher => options.cipher = Some(cipher(reader, written)?),
        ValueKind::Io(of) => match io_value(reader, *of, written)? {
            Some(value) => options.io.set(name, value),
            None => options.io.remove(name),
        },
        ValueKind::Payload => options.payload = payload(reader, written)?,
        ValueKind::Unsupported(form) => {
            match form {
                Form::Integer { min, max } => {
                    integer(reader, name, &written, *min, *max)?;
                }
                Form::Plain { min } => {
                    plain(reader, name, &written, *min)?;
                }
                Form::Text if written.text.is_empty() => return Some(()),
                Form::Flag | Form::Text => {}
            }
            options.unsupported.insert(name.to_owned(), written.text);
        }
    }
    Some(())
}

fn integer(
    reader: &mut Reader<'_>,
    what: &'static str,
    written: &Resolved,
    min: u64,
    max: u64,
) -> Option<u64> {
    let value = written.text.clone();
    match reader.integer(what, written, false) {
        Ok(number) if (min..=max).contains(&number) => Some(number),
        Ok(_) => {
            reader.error(LanguageErrorKind::OutOfRange { what, value, min, max }, written.span);
            None
        }
        Err(reason) => {
            reader.error(LanguageErrorKind::BadNumber { what, value, reason }, written.span);
            None
        }
    }
}

fn plain(
    reader: &mut Reader<'_>,
    option: &'static str,
    written: &Resolved,
    min: i32,
) -> Option<u64> {
    let read = number::plain(&written.text);
    let value = written.text.clone();
    if read.value < min {
        reader.error(
            LanguageErrorKind::OutOfRange {
                what: option,
                value,
                min: u64::try_from(min).unwrap_or(0),
                max: i32::MAX.unsigned_abs().into(),
            },
            written.span,
        );
        return None;
    }
    if read.value < 0 {
        reader.refuse(LanguageErrorKind::NegativeCount { value }, written.span);
        // uperf keeps it as an unsigned number.
        return Some(u64::MAX);
    }
    if read.inexact {
        let meant = read.value.to_string();
        reader.note(NoteKind::NoSuffix { option, value, meant }, written.span);
    } else if read.value == 0 {
        reader.note(NoteKind::CountZero, written.span);
    }
    u64::try_from(read.value).ok()
}

fn port(reader: &mut Reader<'_>, written: &Resolved) -> Option<u16> {
    let read = number::plain(&written.text);
    let value = written.text.clone();
    let meant = read.value as u16;
    let kind = if i32::from(meant) != read.value {
        Some(NoteKind::PortWraps { value, meant })
    } else if read.inexact {
        let meant = match meant {
            0 => "any port".to_owned(),
            port => port.to_string(),
        };
        Some(NoteKind::NoSuffix { option: "port", value, meant })
    } else {
        None
    };
    if let Some(kind) = kind {
        reader.note(kind, written.span);
    }
    (meant > 0).then_some(meant)
}

fn conns(reader: &mut Reader<'_>, written: &Resolved) -> Option<Conns> {
    let value = written.text.clone();
    if let Some((first, last)) = value.split_once("..") {
        let id = |text: &str| text.parse::<u32>().ok().filter(|id| *id > 0);
        return match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last && last <= i32::MAX.unsigned_abs() => {
                Some(Conns { first, last })
            }
            _ => {
                reader.error(LanguageErrorKind::BadConn { value }, written.span);
                None
            }
        };
    }
    let read = number::plain(&value);
    if read.value <= 0 {
        reader.error(LanguageErrorKind::BadConn { value }, written.span);
        return None;
    }
    if read.inexact {
        let meant = read.value.to_string();
        reader.note(NoteKind::NoSuffix { option: "conn", value, meant }, written.span);
    }
    u32::try_from(read.value).ok().map(Conns::one)
}

fn size(reader: &mut Reader<'_>, written: &Resolved) -> Option<Size> {
    let value = written.text.clone();
    let reason = match random(reader, written) {
        Some(Ok(size)) => return Some(size),
        Some(Err(reason)) => reason,
        None => match reader.integer("size", written, false) {
            Ok(0) => NumberError::Zero,
            Ok(size) => return Some(Size::Fixed(size)),
            Err(reason) => reason,
        },
    };
    reader.error(LanguageErrorKind::BadSize { value, reason }, written.span);
    None
}

/// `rand(min,max)`, cut up as uperf does by strtok; a bound that is missing is 2^32 - 1.
fn random(reader: &mut Reader<'_>, written: &Resolved) -> Option<Result<Size, NumberError>> {
    let text = &written.text;
    text.get(..5).filter(|head| head.eq_ignore_ascii_case("rand("))?;
    let rest = text.get(5..).unwrap_or_default();
    let (min, rest) = next_part(rest, ',');
    let (max, _) = next_part(rest, ')');
    let mut bound = |part: Option<&str>| match part {
        None => Ok(u64::from(u32::MAX)),
        // How a missing bound is printed.
        Some("4294967295") => Ok(u64::from(u32::MAX)),
        Some(part) => {
            let part = Resolved { text: part.trim_matches(' ').to_owned(), span: written.span };
            match reader.integer("size", &part, false)? {
                0 => Err(NumberError::Zero),
                bound => Ok(bound),
            }
        }
    };
    let size = bound(min).and_then(|min| bound(max).map(|max| Size::Random { min, max }));
    if max.is_none() && size.is_ok() {
        let value = text.clone();
        reader.note(NoteKind::OpenRandom { value }, written.span);
    }
    Some(size)
}

/// strtok: the part before the delimiter, of which leading ones do not count.
fn next_part(text: &str, delimiter: char) -> (Option<&str>, &str) {
    let text = text.trim_start_matches(delimiter);
    match text.split_once(delimiter) {
        Some((part, rest)) => (Some(part), rest),
        None => ((!text.is_empty()).then_some(text), ""),
    }
}

fn protocol(reader: &mut Reader<'_>, written: Resolved) -> Option<String> {
    if written.text.eq_ignore_ascii_case(names::UPERF_TLS) {
        reader.note(NoteKind::SslIsTls, written.span);
        return Some("tls".to_owned());
    }
    let known = names::protocol_names().find(|name| name.eq_ignore_ascii_case(&written.text));
    if known.is_none() {
        let name = written.text;
        let nearest = names::nearest(&name, names::protocol_names());
        let kind = LanguageErrorKind::UnknownProtocol { name, nearest };
        reader.error(kind, written.span);
    }
    known.map(str::to_owned)
}

fn cipher(reader: &mut Reader<'_>, written: Resolved) -> Option<Cipher> {
    let text = &written.text;
    let is = |cipher: &Cipher| {
        cipher.name().eq_ignore_ascii_case(text) || cipher.suite().eq_ignore_ascii_case(text)
    };
    let known = Cipher::ALL.into_iter().find(is);
    if known.is_none() {
        let value = written.text;
        reader.error(LanguageErrorKind::BadCipher { value }, written.span);
    }
    known
}

/// The value of an I/O option; the inner `None` where it asks for nothing.
fn io_value(
    reader: &mut Reader<'_>,
    option: &'static dyn IoOption,
    written: Resolved,
) -> Option<Option<IoValue>> {
    let what = option.name();
    Some(match option.value() {
        ValueType::Flag => Some(IoValue::On),
        ValueType::Number { min, max, zero } => {
            let number = integer(reader, what, &written, min, max)?;
            let unset = number == 0 && zero == Zero::Unset;
            (!unset).then_some(IoValue::Number(number))
        }
        // An empty text can only come from an empty variable, and asks for nothing.
        ValueType::Text => (!written.text.is_empty()).then_some(IoValue::Text(written.text)),
        ValueType::Time { min, max } => {
            let (value, span) = (written.text.clone(), written.span);
            let time = reader.time(what, written)?;
            if !(min..=max).contains(&time) {
                let (min, max) = (options::time(min), options::time(max));
                let kind = LanguageErrorKind::TimeOutOfRange { what, value, min, max };
                reader.error(kind, span);
                return None;
            }
            Some(IoValue::Time(time))
        }
        ValueType::CodePoint { times, max } => {
            let Some(point) = code_point(&written.text, times, max) else {
                let value = written.text;
                let kind = LanguageErrorKind::BadCodePoint { what, value, max };
                reader.error(kind, written.span);
                return None;
            };
            Some(IoValue::Number(point))
        }
        ValueType::Choice(_) if written.text.is_empty() => None,
        ValueType::Choice(words) => {
            if !words.contains(&written.text.as_str()) {
                let kind = LanguageErrorKind::BadChoice { what, value: written.text, words };
                reader.error(kind, written.span);
                return None;
            }
            Some(IoValue::Text(written.text))
        }
    })
}

/// A number up to `max`, or `times` the code point of a name. RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
pub fn code_point(text: &str, times: u64, max: u64) -> Option<u64> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return text.parse().ok().filter(|number| *number <= max);
    }
    named_code_point(text).map(|point| u64::from(point) * times)
}

fn named_code_point(text: &str) -> Option<u8> {
    let name = text.to_ascii_lowercase();
    let digit = |index: usize, largest: u8| {
        let digit = name.as_bytes().get(index)?.checked_sub(b'0')?;
        (digit <= largest).then_some(digit)
    };
    match name.as_str() {
        "be" => Some(0),
        "le" => Some(1),
        "ef" => Some(46),
        "va" => Some(44),
        _ if name.starts_with("cs") && name.len() == 3 => Some(digit(2, 7)? * 8),
        _ if name.starts_with("af") && name.len() == 4 => {
            let class = digit(2, 4).filter(|class| *class > 0)?;
            let drop = digit(3, 3).filter(|drop| *drop > 0)?;
            Some(class * 8 + drop * 2)
        }
        _ => None,
    }
}

fn payload(reader: &mut Reader<'_>, written: Resolved) -> Option<Payload> {
    let text = written.text;
    let path = text
        .get(..5)
        .filter(|head| head.eq_ignore_ascii_case("file:"))
        .and(text.get(5..))
        .filter(|path| !path.is_empty());
    match path {
        Some(path) => Some(Payload::File(path.to_owned())),
        None if text.eq_ignore_ascii_case("zero") => Some(Payload::Zero),
        None if text.eq_ignore_ascii_case("random") => Some(Payload::Random),
        None => {
            let kind = LanguageErrorKind::BadPayload { value: text };
            reader.error(kind, written.span);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points() {
        let table = [
            ("0", Some(0)),
            ("63", Some(63)),
            ("64", None),
            ("EF", Some(46)),
            ("be", Some(0)),
            ("cs1", Some(8)),
            ("cs7", Some(56)),
            ("cs8", None),
            ("af11", Some(10)),
            ("af41", Some(34)),
            ("af43", Some(38)),
            ("af44", None),
            ("af01", None),
            ("+5", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(code_point(text, 1, 63), expected, "{text}");
        }
    }

    #[test]
    fn a_name_stands_for_several_times_its_code_point() {
        assert_eq!(code_point("ef", 4, 255), Some(184));
        assert_eq!(code_point("255", 4, 255), Some(255));
        assert_eq!(code_point("256", 4, 255), None);
    }

    #[test]
    fn words_keep_their_offsets() {
        let found: Vec<_> = words("  a=1\tb  c=2 ").collect();
        assert_eq!(found, [(2, "a=1"), (6, "b"), (9, "c=2")]);
    }
}
