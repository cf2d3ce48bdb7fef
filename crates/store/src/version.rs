//! Versions of a record's files, such as `wirecost.run/1`.

/// Whether a version is a later version of the same schema.
pub(crate) fn is_newer(found: &str, known: &str) -> bool {
    let split = |version: &str| {
        let (name, number) = version.rsplit_once('/')?;
        Some((name.to_owned(), number.parse::<u32>().ok()?))
    };
    match (split(found), split(known)) {
        (Some((found, number)), Some((name, known))) => found == name && number > known,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_higher_number_of_the_same_schema_is_newer() {
        let newer = |found| is_newer(found, "wirecost.run/2");
        assert!(newer("wirecost.run/3") && newer("wirecost.run/10"));
        for other in ["wirecost.run/2", "wirecost.run/1", "wirecost.observe/3", "run", "", "a/b"] {
            assert!(!newer(other), "{other}");
        }
    }
}
