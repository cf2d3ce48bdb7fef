//! What one language can say and the other cannot.

use wirecost_model::profile::{Arrivals, Position, Profile, Quantity, Until};

use super::Language;
use super::error::{LanguageError, LanguageErrorKind};
use super::source::line_from;

/// What `to` cannot say of a profile that was read from `source`, in the order of the file.
pub fn unrepresentable(profile: &Profile, to: Language, source: &str) -> Vec<LanguageError> {
    let mut found = Vec::new();
    let mut no = |at: Position, what: String, why: &'static str| {
        let language = match to {
            Language::Xml => "uperf's language",
            Language::Toml => "the native language",
        };
        let kind = LanguageErrorKind::NotRepresentable { what, language, why };
        found.push(LanguageError { kind, at, span: line_from(source, at) });
    };
    for transaction in profile.groups.iter().flat_map(|group| &group.transactions) {
        if to == Language::Xml {
            xml_transaction(transaction, &mut no);
        }
        for flowop in &transaction.flowops {
            match to {
                Language::Xml => xml_flowop(flowop, &mut no),
                Language::Toml => toml_flowop(flowop, &mut no),
            }
        }
    }
    found
}

type No<'a> = dyn FnMut(Position, String, &'static str) + 'a;

fn xml_transaction(transaction: &wirecost_model::profile::Transaction, no: &mut No<'_>) {
    let at = transaction.at;
    if !transaction.order.is_empty() {
        no(
            at,
            "a loop or a mix".to_owned(),
            "there a transaction is a list of flowops, each of which is executed once",
        );
    }
    match &transaction.arrivals {
        Some(Arrivals::Even(rate)) if rate.fract() != 0.0 || *rate > f64::from(i32::MAX) => {
            no(at, format!("rate {rate}"), "its rates are whole numbers below 2^31");
        }
        Some(Arrivals::Poisson(_)) => {
            no(at, "a Poisson process".to_owned(), "its rates are even");
        }
        Some(Arrivals::Trace(_)) => no(at, "a trace".to_owned(), "its rates are even"),
        Some(Arrivals::Even(_)) | None => {}
    }
    if let Until::Iterations(iterations) = transaction.until
        && iterations > i32::MAX.unsigned_abs().into()
    {
        no(at, format!("iterations {iterations}"), "its numbers are below 2^31");
    }
}

fn xml_flowop(flowop: &wirecost_model::profile::Flowop, no: &mut No<'_>) {
    match &flowop.options.size {
        None | Some(Quantity::Fixed(_) | Quantity::Random { .. }) => {}
        Some(size) => no(
            flowop.at,
            format!("size {size}"),
            "it knows constant sizes and uniform ones, rand(min,max)",
        ),
    }
    match &flowop.options.duration {
        None | Some(Quantity::Fixed(_)) => {}
        Some(pause) => {
            let time = |ns| super::options::time(std::time::Duration::from_nanos(ns));
            let what = format!("duration {}", pause.described(&time));
            no(flowop.at, what, "every think of a flowop takes the same time there");
        }
    }
}

fn toml_flowop(flowop: &wirecost_model::profile::Flowop, no: &mut No<'_>) {
    if flowop.kind.is_empty() {
        no(flowop.at, "a flowop without type".to_owned(), "each flowop says what it does");
    }
    if flowop.options.count == u64::MAX {
        no(flowop.at, "a negative count".to_owned(), "a count is 0 or more");
    }
    if let Some(Quantity::Random { min, max }) = &flowop.options.size
        && max < min
    {
        let what = format!("rand({min},{max})");
        no(flowop.at, what, "min is not more than max");
    }
}
