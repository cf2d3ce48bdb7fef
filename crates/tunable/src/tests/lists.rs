//! The list of tunables and its documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::restore::order;
use crate::setting::find;
use crate::{Tunable, all};

#[test]
fn names_are_unique_and_every_tunable_says_what_it_is() {
    let mut names = BTreeSet::new();
    for tunable in all() {
        let name = tunable.name();
        assert!(names.insert(name), "{name} is there twice");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        assert!(name.bytes().all(fits), "{name}");
        let about = tunable.about();
        assert!(about.ends_with('.') && about.starts_with(char::is_uppercase), "{name}: {about}");
        assert!(!tunable.values().is_empty() && !tunable.values().ends_with('.'), "{name}");
        assert_eq!(tunable.check(""), None, "{name}");
        assert_eq!(tunable.check("no such value"), None, "{name}");
        for other in tunable.disturbs().iter().chain(tunable.restored_after()) {
            assert!(find(other).is_ok(), "{name} disturbs or takes {other}");
        }
    }
}

/// The kernel attaches the default where a queueing discipline is removed.
#[test]
fn the_default_queueing_discipline_is_restored_before_those_that_take_it() {
    let order = |names: &[&str]| {
        let tunables: Vec<_> = names.iter().map(|name| find(name).unwrap()).collect();
        order(&tunables).into_iter().map(|at| names[at].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        order(&["default_qdisc", "mtu", "qdisc", "qdisc"]),
        ["default_qdisc", "qdisc", "qdisc", "mtu"]
    );
    assert_eq!(order(&["default_qdisc", "mtu"]), ["mtu", "default_qdisc"]);
}

#[test]
fn every_file_of_the_folder_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tunables");
    let list = fs::read_to_string(folder.join("mod.rs")).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".rs").unwrap();
        if name != "mod" {
            assert!(list.contains(&format!("mod {name};")), "{name}");
            assert!(list.contains(&format!("    {name}::LIST,")), "{name}");
        }
    }
}

fn line(tunable: &dyn Tunable) -> String {
    let (name, scope, values) = (tunable.name(), tunable.scope().name(), tunable.values());
    format!("| `{name}` | {scope} | {values} | {} |", tunable.about())
}

/// With UPDATE_DOCS set it writes the table.
#[test]
fn the_documentation_has_a_line_for_each_tunable() {
    const HEAD: &str = "| name | setting of | values | what it is |\n|---|---|---|---|\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("the table");
    let (table, after) = rest.split_once("\n\n").expect("text after the table");
    let expected = all().map(line).collect::<Vec<_>>().join("\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{HEAD}{expected}\n\n{after}")).unwrap();
    } else {
        assert_eq!(table, expected, "run this test with UPDATE_DOCS=1");
    }
}
