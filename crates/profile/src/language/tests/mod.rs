//! The languages as a whole: what uperf accepts, what only XML allows, what is refused, that printing
//! loses nothing, and the native one.

mod io;
mod messages;
mod native;
mod print;
mod uperf;
mod xml;

use wirecost_model::profile::{Flowop, Profile};

use super::{LanguageError, Parsed, Variables, parse};

fn no_variables() -> impl Variables {
    |_: &str| None
}

#[track_caller]
fn accepted_with(source: &str, variables: &dyn Variables) -> Parsed {
    parse(source, variables).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[track_caller]
fn accepted(source: &str) -> Parsed {
    accepted_with(source, &no_variables())
}

#[track_caller]
fn refused_with(source: &str, variables: &dyn Variables) -> Vec<LanguageError> {
    match parse(source, variables) {
        Ok(parsed) => panic!("{parsed:#?}"),
        Err(errors) => errors,
    }
}

#[track_caller]
fn refused(source: &str) -> Vec<LanguageError> {
    refused_with(source, &no_variables())
}

/// A profile of one group of one strand, with these flowops in a transaction of one iteration.
fn around(flowops: &str) -> String {
    format!(
        "<profile name=\"p\">\n<group nthreads=\"1\">\n<transaction iterations=\"1\">\n{flowops}\n\
         </transaction>\n</group>\n</profile>\n"
    )
}

/// The only flowop of a profile that has it alone.
#[track_caller]
fn flowop(options: &str) -> (Flowop, Vec<String>) {
    let parsed = accepted(&around(&format!("<flowop type=\"write\" options=\"{options}\"/>")));
    let flowop = first_flowop(&parsed.profile).clone();
    (flowop, notes(&parsed))
}

#[track_caller]
fn first_flowop(profile: &Profile) -> &Flowop {
    &profile.groups[0].transactions[0].flowops[0]
}

fn notes(parsed: &Parsed) -> Vec<String> {
    parsed.notes.iter().map(|note| format!("{} {note}", note.at)).collect()
}

fn messages(errors: &[LanguageError]) -> Vec<String> {
    errors.iter().map(|error| format!("{} {error}", error.at)).collect()
}

/// The profile without positions, for comparing what two texts mean.
fn without_positions(mut profile: Profile) -> Profile {
    for group in &mut profile.groups {
        group.at = Default::default();
        for transaction in &mut group.transactions {
            transaction.at = Default::default();
            for flowop in &mut transaction.flowops {
                flowop.at = Default::default();
            }
        }
    }
    profile
}
