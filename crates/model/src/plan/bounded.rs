//! Lists that are bounded while they are read, so that a message of nothing but commas does not
//! become many times its size in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// How much an element counts for.
pub(crate) trait Weight {
    fn weight(&self) -> usize;
}

/// Reads a list of at most `MOST` elements.
///
/// # Errors
/// Those of the elements, and a list that is longer.
pub fn bounded<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List::<T> { most: MOST, weight: |_| 1, of: PhantomData })
}

/// Reads a list whose elements weigh at most `MOST` together.
pub(crate) fn bounded_in_all<'de, D, T, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Weight,
{
    deserializer.deserialize_seq(List::<T> { most: MOST, weight: T::weight, of: PhantomData })
}

struct List<T> {
    most: usize,
    weight: fn(&T) -> usize,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        let mut weight = 0usize;
        while let Some(element) = list.next_element()? {
            weight = weight.saturating_add((self.weight)(&element));
            if weight > self.most {
                return Err(A::Error::invalid_length(weight, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Heavy(usize);

    impl Weight for Heavy {
        fn weight(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn a_list_ends_at_its_limit() {
        let read = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            bounded::<_, Option<u8>, 3>(&mut json).map(|list| list.len())
        };
        assert_eq!(read("[null,null,null]").unwrap(), 3);
        let error = read("[null,null,null,null]").unwrap_err().to_string();
        assert!(error.contains("invalid length 4, expected a list of at most 3"), "{error}");
    }

    #[test]
    fn elements_are_weighed_together() {
        let read = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            bounded_in_all::<_, Heavy, 10>(&mut json).map(|list| list.len())
        };
        assert_eq!(read("[4,6]").unwrap(), 2);
        assert!(read("[4,6,1]").is_err());
        assert!(read(&format!("[1,{}]", usize::MAX)).is_err());
    }
}
