//! Samples as a Parquet file. What Parquet is is known here only.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use wirecost_model::sample::Sample;

use crate::schema::{COLUMNS, Column, FORMAT, FORMAT_KEY, Field};
use crate::version::is_newer;

/// Why bytes are no file of samples.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Not Parquet, or a part of it.
    Damaged(String),
    /// Parquet, but not by wirecost.
    Foreign(String),
    /// The version that wrote it.
    Newer(String),
}

impl From<ParquetError> for Unreadable {
    fn from(error: ParquetError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// The bytes of a file.
pub(crate) fn write(samples: &[Sample]) -> Result<Vec<u8>, ParquetError> {
    with_metadata(samples, vec![KeyValue::new(FORMAT_KEY.to_owned(), FORMAT.to_owned())])
}

fn with_metadata(samples: &[Sample], pairs: Vec<KeyValue>) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("wirecost ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(pairs))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema()?, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in &COLUMNS {
        let mut out = group.next_column()?.ok_or_else(|| too_few(column.name))?;
        match column.field {
            Field::Number(get) => {
                let values: Vec<f64> = samples.iter().map(get).collect();
                out.typed::<DoubleType>().write_batch(&values, None, None)?;
            }
            Field::Text(get) => {
                let values: Vec<ByteArray> = samples.iter().map(|s| get(s).into()).collect();
                out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Field::Optional(get) => {
                let values: Vec<ByteArray> =
                    samples.iter().filter_map(get).map(Into::into).collect();
                let there: Vec<i16> = samples.iter().map(|s| i16::from(get(s).is_some())).collect();
                out.typed::<ByteArrayType>().write_batch(&values, Some(&there), None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    writer.into_inner()
}

fn schema() -> Result<Arc<Type>, ParquetError> {
    let column = |column: &Column| {
        let (physical, repetition) = match column.field {
            Field::Number(_) => (Physical::DOUBLE, Repetition::REQUIRED),
            Field::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Field::Optional(_) => (Physical::BYTE_ARRAY, Repetition::OPTIONAL),
        };
        let text = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(text)
            .build()
            .map(Arc::new)
    };
    let columns = COLUMNS.iter().map(column).collect::<Result<_, _>>()?;
    Type::group_type_builder("sample").with_fields(columns).build().map(Arc::new)
}

fn too_few(column: &str) -> ParquetError {
    ParquetError::General(format!("there is no column {column}"))
}

/// Whether a file is one of these: that it ends as it should, and which columns it has. Its rows are
/// not looked at.
pub(crate) fn check(file: &File) -> Result<(), Unreadable> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(file)?;
    let pairs = metadata.file_metadata().key_value_metadata();
    let pairs = pairs.map(Vec::as_slice).unwrap_or_default();
    let format = pairs.iter().find(|pair| pair.key == FORMAT_KEY).and_then(|p| p.value.as_deref());
    match format {
        Some(FORMAT) => Ok(()),
        Some(format) if is_newer(format, FORMAT) => Err(Unreadable::Newer(format.to_owned())),
        Some(format) => Err(Unreadable::Foreign(format!("its format is {format}"))),
        None => Err(Unreadable::Foreign("it does not name its format".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    fn samples(count: u32) -> Vec<Sample> {
        let sample = |number: u32| Sample {
            start: f64::from(number) / 8.0,
            seconds: 0.125,
            host: (!number.is_multiple_of(3)).then(|| format!("h{}", number % 3)),
            kind: "flow".to_owned(),
            name: number.is_multiple_of(2).then(|| "198.18.0.1:5001 > 198.18.0.2:5001".to_owned()),
            metric: "rtt".to_owned(),
            unit: "us".to_owned(),
            value: f64::from(number) * 1.5 - 7.0,
        };
        (0..count).map(sample).collect()
    }

    /// By the library's own reader of rows.
    fn read(bytes: &[u8]) -> Vec<Sample> {
        let file = SerializedFileReader::new(file(bytes)).unwrap();
        let rows = file.get_row_iter(None).unwrap().map(Result::unwrap);
        rows.map(|row| Sample {
            start: row.get_double(0).unwrap(),
            seconds: row.get_double(1).unwrap(),
            host: row.get_string(2).ok().cloned(),
            kind: row.get_string(3).unwrap().clone(),
            name: row.get_string(4).ok().cloned(),
            metric: row.get_string(5).unwrap().clone(),
            unit: row.get_string(6).unwrap().clone(),
            value: row.get_double(7).unwrap(),
        })
        .collect()
    }

    #[test]
    fn samples_survive_writing_and_reading() {
        for count in [0, 1, 5, 10_000] {
            let samples = samples(count);
            let bytes = write(&samples).unwrap();
            assert_eq!(read(&bytes), samples);
            assert_eq!(check(&file(&bytes)), Ok(()));
        }
    }

    #[test]
    fn repeated_names_take_no_space() {
        let bytes = write(&samples(10_000)).unwrap().len();
        // Two numbers of eight bytes differ from row to row; five texts do not.
        assert!(bytes < 10_000 * 2 * 8, "{bytes}");
    }

    #[test]
    fn a_truncated_file_is_damaged() {
        let bytes = write(&samples(50)).unwrap();
        for length in 0..bytes.len() {
            let result = check(&file(&bytes[..length]));
            assert!(matches!(result, Err(Unreadable::Damaged(_))), "{length}: {result:?}");
        }
    }

    #[test]
    fn a_flipped_byte_never_panics() {
        let bytes = write(&samples(20)).unwrap();
        for place in 0..bytes.len() {
            for flip in [0x01, 0x10, 0x55, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[place] ^= flip;
                let _ = check(&file(&bytes));
            }
        }
    }

    #[test]
    fn foreign_and_newer_files_are_distinguished() {
        let written = |key: &str, format: &str| {
            let pair = KeyValue::new(key.to_owned(), format.to_owned());
            file(&with_metadata(&samples(3), vec![pair]).unwrap())
        };
        let newer = check(&written(FORMAT_KEY, "wirecost.samples/2")).unwrap_err();
        assert_eq!(newer, Unreadable::Newer("wirecost.samples/2".to_owned()));
        let other = check(&written("pandas", "{}")).unwrap_err();
        assert_eq!(other, Unreadable::Foreign("it does not name its format".to_owned()));
    }
}
