//! Whatever the bytes: reading a profile, in the language that they begin like, never panics, every
//! place it names is in the text, and a profile that is printed and read again is the same.

use wirecost_model::profile::{Position, Profile};
use wirecost_profile::language::{Language, Span, unrepresentable};

pub fn run(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let language = Language::of("", &source);
    let lookup = |name: &str| match (name.len(), language) {
        (0, _) => None,
        (1, _) => Some("7".to_owned()),
        (2, _) => Some(String::new()),
        (3, _) => Some("tcp".to_owned()),
        (_, Language::Xml) => Some("size=4k conn=$a dir=/A b".to_owned()),
        (_, Language::Toml) => Some("${x} 64k".to_owned()),
    };
    let _ = language.variables(&source);
    match language.parse(&source, &lookup) {
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                in_text(&source, error.span);
                assert!(!error.to_string().is_empty() && error.help().is_some());
            }
        }
        Ok(parsed) => {
            for note in &parsed.notes {
                in_text(&source, note.span);
            }
            for refusal in &parsed.refusals {
                in_text(&source, refusal.span);
            }
            for lost in Language::ALL
                .into_iter()
                .flat_map(|to| unrepresentable(&parsed.profile, to, &source))
            {
                in_text(&source, lost.span);
            }
            let printed = language.print(&parsed.profile);
            match language.parse(&printed, &|_: &str| None) {
                Ok(again) => assert_eq!(
                    without_positions(parsed.profile),
                    without_positions(again.profile),
                    "{printed}"
                ),
                Err(errors) => panic!("{errors:#?}\n{printed}"),
            }
        }
    }
}

fn in_text(source: &str, span: Span) {
    assert!(source.get(span.offset..span.offset + span.length).is_some());
}

fn without_positions(mut profile: Profile) -> Profile {
    for group in &mut profile.groups {
        group.at = Position::default();
        for transaction in &mut group.transactions {
            transaction.at = Position::default();
            for flowop in &mut transaction.flowops {
                flowop.at = Position::default();
            }
        }
    }
    profile
}
