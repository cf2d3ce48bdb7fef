//! Keys of documents that got a better name after documents with the first one had been published.
//! Both are written, with one value, and either is read.

use serde::{Deserialize, Deserializer};

/// A module for `#[serde(flatten, with = ...)]` of a field with the first name given here, whose
/// documents had the second before. The field's schema is `Keys` of its type.
macro_rules! renamed {
    ($(#[$description:meta])* $new:ident, formerly $old:ident, in $module:ident) => {
        mod $module {
            use schemars::JsonSchema;
            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use $crate::renamed::present;

            #[derive(Serialize, JsonSchema)]
            pub(super) struct Keys<T> {
                $(#[$description])*
                $new: T,
                #[doc = concat!("Has the value of `", stringify!($new), "`: use that key.")]
                #[schemars(extend("deprecated" = true))]
                $old: T,
            }

            #[derive(Deserialize)]
            #[serde(bound(deserialize = "T: Deserialize<'de>"))]
            struct Either<T> {
                #[serde(default, deserialize_with = "present")]
                $new: Option<T>,
                #[serde(default, deserialize_with = "present")]
                $old: Option<T>,
            }

            pub(super) fn serialize<T: Serialize, S: Serializer>(
                value: &T,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                Keys { $new: value, $old: value }.serialize(serializer)
            }

            pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<T, D::Error> {
                let Either { $new, $old } = Either::deserialize(deserializer)?;
                $new.or($old).ok_or_else(|| D::Error::missing_field(stringify!($new)))
            }
        }
    };
}

pub(crate) use renamed;

/// A key that is there, whose value may be null.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    renamed!(
        /// What it holds.
        better, formerly worse, in better
    );

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        name: String,
        #[serde(flatten, with = "better")]
        better: Option<u32>,
    }

    #[test]
    fn both_keys_are_written_and_either_is_read() {
        for value in [Some(7), None] {
            let row = Row { name: "a".to_owned(), better: value };
            let written = serde_json::to_value(&row).unwrap();
            assert_eq!(written, json!({"name": "a", "better": value, "worse": value}));
            for key in ["better", "worse"] {
                let one = json!({"name": "a", key: value});
                assert_eq!(serde_json::from_value::<Row>(one).unwrap(), row);
            }
            assert_eq!(serde_json::from_value::<Row>(written).unwrap(), row);
        }
        let error = serde_json::from_value::<Row>(json!({"name": "a"})).unwrap_err();
        assert_eq!(error.to_string(), "missing field `better`");
    }
}
