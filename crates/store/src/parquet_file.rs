//! Samples as a Parquet file. What Parquet is is known here only.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
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

/// What a Parquet file begins and ends with.
/// <https://github.com/apache/parquet-format/blob/master/README.md#file-format>
const MAGIC: &[u8; 4] = b"PAR1";

/// Whether a file is one of these: that it begins and ends as it should, and which format it names.
/// Its columns and rows are not looked at.
///
/// The library would decode all of the footer for this, and takes minutes for some of a kilobyte:
/// a list may claim 2^31 booleans, which are skipped one by one though each takes no byte.
pub(crate) fn check(file: &mut (impl Read + Seek)) -> Result<(), Unreadable> {
    let footer = footer(file)?;
    match format(&footer) {
        Some(FORMAT) => Ok(()),
        Some(format) if is_newer(format, FORMAT) => Err(Unreadable::Newer(format.to_owned())),
        Some(format) => Err(Unreadable::Foreign(format!("its format is {format}"))),
        None => Err(Unreadable::Foreign("it does not name its format".to_owned())),
    }
}

/// The metadata at the end of a file: before its length, four bytes, and [`MAGIC`].
fn footer(file: &mut (impl Read + Seek)) -> Result<Vec<u8>, Unreadable> {
    let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
    let unread = |error: std::io::Error| Unreadable::Damaged(error.to_string());
    let length = file.seek(SeekFrom::End(0)).map_err(unread)?;
    let magic = MAGIC.len() as u64;
    let Some(end) = length.checked_sub(magic + 4).filter(|end| *end >= magic) else {
        return Err(damaged("it is too short for a Parquet file"));
    };
    let mut head = [0; 4];
    let mut tail = [0; 8];
    file.rewind().and_then(|()| file.read_exact(&mut head)).map_err(unread)?;
    file.seek(SeekFrom::Start(end)).and_then(|_| file.read_exact(&mut tail)).map_err(unread)?;
    let [l0, l1, l2, l3, last @ ..] = tail;
    if &head != MAGIC || &last != MAGIC {
        return Err(damaged("it does not begin and end as a Parquet file does"));
    }
    let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    let Some(start) = end.checked_sub(bytes.into()).filter(|start| *start >= magic) else {
        return Err(damaged("its footer is longer than the file"));
    };
    let mut footer = Vec::new();
    file.seek(SeekFrom::Start(start)).map_err(unread)?;
    file.take(bytes.into()).read_to_end(&mut footer).map_err(unread)?;
    Ok(footer)
}

/// The value of [`FORMAT_KEY`] in a footer. A pair is a struct of two strings in Thrift's compact
/// protocol: each the header of a field (one up from the field before, type 8), a length, and bytes.
/// <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md#struct>
fn format(footer: &[u8]) -> Option<&str> {
    const STRING: u8 = 0x18;
    let mut key = vec![STRING, FORMAT_KEY.len() as u8];
    key.extend_from_slice(FORMAT_KEY.as_bytes());
    key.push(STRING);
    let after = footer.windows(key.len()).position(|bytes| bytes == key)? + key.len();
    let (length, value) = footer.get(after..)?.split_first()?;
    std::str::from_utf8(value.get(..usize::from(*length))?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Cursor, Write as _};

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
            assert_eq!(check(&mut file(&bytes)), Ok(()));
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
            let result = check(&mut Cursor::new(&bytes[..length]));
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
                let _ = check(&mut Cursor::new(&bytes));
            }
        }
    }

    #[test]
    fn foreign_and_newer_files_are_distinguished() {
        let written = |key: &str, format: &str| {
            let pair = KeyValue::new(key.to_owned(), format.to_owned());
            Cursor::new(with_metadata(&samples(3), vec![pair]).unwrap())
        };
        let newer = check(&mut written(FORMAT_KEY, "wirecost.samples/2")).unwrap_err();
        assert_eq!(newer, Unreadable::Newer("wirecost.samples/2".to_owned()));
        let other = check(&mut written(FORMAT_KEY, "other/1")).unwrap_err();
        assert_eq!(other, Unreadable::Foreign("its format is other/1".to_owned()));
        let other = check(&mut written("pandas", "{}")).unwrap_err();
        assert_eq!(other, Unreadable::Foreign("it does not name its format".to_owned()));
    }
}
