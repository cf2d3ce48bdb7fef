//! Values as a study has them: numbers, texts and truth values, all kept as texts.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scalar(pub String);

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Reads a scalar, and what else stands where scalars do.
struct Reader {
    lists: bool,
    tables: bool,
}

enum Read {
    Scalar(Scalar),
    List(Vec<Scalar>),
    Table(IndexMap<String, Scalar>),
}

impl<'de> Visitor<'de> for Reader {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a string or a boolean")?;
        if self.lists {
            f.write_str(", or a list of these")?;
        }
        if self.tables {
            f.write_str(", or a table of these")?;
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Read, E> {
        Ok(Read::Scalar(Scalar(text.to_owned())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Read, E> {
        Ok(Read::Scalar(Scalar(number.to_string())))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Read, E> {
        Ok(Read::Scalar(Scalar(number.to_string())))
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Read, E> {
        Ok(Read::Scalar(Scalar(truth.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Read, A::Error> {
        if !self.lists {
            return Err(de::Error::invalid_type(de::Unexpected::Seq, &self));
        }
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Read::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Read, A::Error> {
        if !self.tables {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        }
        let mut values = IndexMap::new();
        while let Some((name, value)) = table.next_entry()? {
            values.insert(name, value);
        }
        Ok(Read::Table(values))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Reader { lists: false, tables: false })? {
            Read::Scalar(scalar) => Ok(scalar),
            Read::List(_) | Read::Table(_) => Err(de::Error::custom("expected a single value")),
        }
    }
}

/// A value of an axis: one, or a table of several that are set at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AxisValue {
    One(Scalar),
    Several(IndexMap<String, Scalar>),
}

impl Serialize for AxisValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AxisValue::One(scalar) => scalar.serialize(serializer),
            AxisValue::Several(values) => values.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AxisValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Reader { lists: false, tables: true })? {
            Read::Scalar(scalar) => Ok(AxisValue::One(scalar)),
            Read::Table(values) => Ok(AxisValue::Several(values)),
            Read::List(_) => Err(de::Error::custom("a list cannot contain a list")),
        }
    }
}

/// What a condition asks of one value: to be one of these, or to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatch {
    One(Scalar),
    OneOf(Vec<Scalar>),
}

impl Serialize for ValueMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ValueMatch::One(scalar) => scalar.serialize(serializer),
            ValueMatch::OneOf(values) => values.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ValueMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Reader { lists: true, tables: false })? {
            Read::Scalar(scalar) => Ok(ValueMatch::One(scalar)),
            Read::List(values) => Ok(ValueMatch::OneOf(values)),
            Read::Table(_) => Err(de::Error::custom("a condition cannot contain a table")),
        }
    }
}
