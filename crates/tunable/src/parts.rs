//! A value that several things have, such as each queue of a device: one value where all agree, otherwise
//! `rx-0=0 rx-1=1`.

/// Name of a part, and its value, which holds neither blanks nor `=`.
pub(crate) type Part = (String, String);

pub(crate) fn join(parts: &[Part]) -> String {
    match parts {
        [(_, first), rest @ ..] if rest.iter().all(|(_, value)| value == first) => first.clone(),
        _ => parts
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The value of each part of those that exist and that `value` names; all where it is one value.
pub(crate) fn spread(value: &str, names: &[String]) -> Vec<Part> {
    if !value.contains('=') {
        return names.iter().map(|name| (name.clone(), value.to_owned())).collect();
    }
    let named =
        |part: &str| part.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    value
        .split_ascii_whitespace()
        .filter_map(named)
        .filter(|(name, _)| names.contains(name))
        .collect()
}

/// Checks the value, or the value of each part.
pub(crate) fn check(value: &str, each: impl Fn(&str) -> Option<String>) -> Option<String> {
    if !value.contains('=') {
        return each(value);
    }
    let part = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some(format!("{name}={}", each(value)?))
    };
    let parts: Option<Vec<String>> = value.split_ascii_whitespace().map(part).collect();
    parts.map(|parts| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values;

    #[test]
    fn one_value_is_of_all_parts() {
        let names = ["rx-0", "rx-1"].map(str::to_owned);
        assert_eq!(join(&spread("0-1", &names)), "0-1");
        assert_eq!(spread("rx-1=3 rx-7=4", &names), [("rx-1".to_owned(), "3".to_owned())]);
        assert_eq!(
            check("rx-0=1,0 rx-1=none", values::cpus_or_none).unwrap(),
            "rx-0=0-1 rx-1=none"
        );
        assert_eq!(check("rx-0=x", values::cpus), None);
        assert_eq!(check("rx-0=0 1", values::cpus), None);
    }

    proptest! {
        #[test]
        fn parts_survive_being_written(values in proptest::collection::vec(0u32..3, 1..6)) {
            let parts: Vec<Part> = values
                .iter()
                .enumerate()
                .map(|(queue, value)| (format!("rx-{queue}"), value.to_string()))
                .collect();
            let names: Vec<String> = parts.iter().map(|(name, _)| name.clone()).collect();
            prop_assert_eq!(spread(&join(&parts), &names), parts);
        }
    }
}
