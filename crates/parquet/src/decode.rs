//! Decodes a column of a row group, and packs it: flat ones as `flat` says, others by the `parquet` crate.

use arrow::array::{Array, ArrayRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::RowGroupMetaData;
use vectile_encodings::{Column, Encoding, MAX_ROWS};

use crate::chunks::Chunks;
use crate::codes::{self, MAX_ENTRIES};
use crate::delta;
use crate::error::{Fault, contain, corrupt, ensure, unsupported};
use crate::flat;
use crate::pages::{self, Pages};
use crate::schema::{Columns, TableColumn};

/// The most bytes of values of a fixed length in a row group.
const MAX_FIXED_BYTES: u64 = i32::MAX as u64;

/// A column of a row group to decode.
pub(crate) struct Task<'a> {
    pub(crate) columns: &'a Columns,
    /// The index of the column in the table.
    pub(crate) root: usize,
    pub(crate) row_group: &'a RowGroupMetaData,
    /// The index of the row group in the file.
    pub(crate) number: usize,
    pub(crate) rows: usize,
    /// The column's chunks, a part for each leaf.
    pub(crate) chunks: Chunks,
}

impl Task<'_> {
    /// The column and the bytes of memory that it takes.
    ///
    /// # Errors
    ///
    /// [`Fault::Unsupported`] and [`Fault::Corrupt`].
    pub(crate) fn run(self, column: &TableColumn) -> Result<(Column, usize), Fault> {
        if let Some(reason) = &column.unsupported {
            return unsupported(reason.clone());
        }
        if self.rows > MAX_ROWS {
            return unsupported(format!("{} rows, at most {MAX_ROWS}", self.rows));
        }
        let pages = self.check(column)?;
        if let Some(packed) = self.flat(column, &pages)? {
            return Ok(packed);
        }
        let is_small = |entries: u64| entries <= MAX_ENTRIES;
        if column.may_be_dictionary && pages.dictionary.is_some_and(is_small) {
            let array = self.array(&self.columns.dictionaries)?;
            if let Some(packed) = codes::column(&array, &column.data_type)? {
                return Ok(packed);
            }
        }
        let array = self.array(&self.columns.values)?;
        ensure(array.data_type() == &column.data_type, || {
            format!("{} in a column of {}", array.data_type(), column.data_type)
        })?;
        Ok(Column::packed(
            &array,
            Encoding::of_packed(&column.data_type),
        )?)
    }

    /// Checks what the decoder trusts; returns the pages of the last leaf.
    fn check(&self, column: &TableColumn) -> Result<Pages, Fault> {
        let mut pages = Pages::default();
        for (leaf, (_, bytes)) in column.leaves.clone().zip(&self.chunks.parts) {
            let Some(chunk) = self.row_group.columns().get(leaf) else {
                return corrupt(format!("no leaf {leaf}"));
            };
            let descr = chunk.column_descr();
            if descr.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY {
                let length = u64::try_from(descr.type_length()).unwrap_or(u64::MAX);
                let values = chunk.num_values().max(self.rows as i64) as u64;
                if length.saturating_mul(values) > MAX_FIXED_BYTES {
                    return unsupported(format!("{values} values of {length} bytes"));
                }
            }
            pages = pages::check(bytes, chunk)?;
            if pages.has_delta_lengths {
                contain(|| delta::check(&self.chunks, chunk, self.rows))?;
            }
        }
        Ok(pages)
    }

    /// The column, if it has one leaf that this crate decodes itself.
    fn flat(&self, column: &TableColumn, pages: &Pages) -> Result<Option<(Column, usize)>, Fault> {
        let chunk = self.row_group.columns().get(column.leaves.start);
        match (chunk, &self.chunks.parts[..]) {
            (Some(chunk), [(_, bytes)]) => flat::decode(column, chunk, bytes, pages, self.rows),
            _ => Ok(None),
        }
    }

    /// All rows of the column, by the `parquet` crate.
    fn array(&self, reader: &ArrowReaderMetadata) -> Result<ArrayRef, Fault> {
        contain(|| {
            let mask = ProjectionMask::roots(reader.parquet_schema(), [self.root]);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.chunks.clone(),
                reader.clone(),
            );
            let mut batches = builder
                .with_row_groups(vec![self.number])
                .with_projection(mask)
                .with_batch_size(self.rows)
                .build()?;
            let Some(batch) = batches.next().transpose()? else {
                return corrupt("no rows");
            };
            let rows = batch.num_rows();
            ensure(rows == self.rows, || {
                format!("{rows} rows in pages, {} in the row group", self.rows)
            })?;
            match batch.columns() {
                [column] => Ok(ArrayRef::clone(column)),
                columns => corrupt(format!("{} columns instead of one", columns.len())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{BrotliLevel, Compression, Encoding as PageEncoding, ZstdLevel};
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

    use super::*;

    /// Integers that look random, the same in each run.
    fn drawn(seed: u64, rows: usize) -> impl Iterator<Item = u64> {
        (1..=rows as u64).map(move |row| {
            let mixed = (row ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ mixed >> 29).wrapping_mul(0xFF51_AFD7_ED55_8CCD) >> 7
        })
    }

    /// Rows that are valid: all, most, runs, few, none, all but the first ones.
    fn is_valid(pattern: usize, row: usize, draw: u64) -> bool {
        match pattern {
            0 => true,
            1 => !draw.is_multiple_of(5),
            2 => (row / 300).is_multiple_of(2),
            3 => draw.is_multiple_of(90),
            4 => false,
            _ => row > 1500,
        }
    }

    /// A column of each type that is flat, of `range` different values.
    fn columns(rows: usize, range: u64, pattern: usize) -> RecordBatch {
        let numbers = |seed: u64| {
            let draws = drawn(seed, rows).enumerate();
            draws.map(move |(row, draw)| {
                let value = (draw % range) as i64 - (range / 3) as i64;
                is_valid(pattern, row, draw >> 20).then_some(value)
            })
        };
        let text = |seed| numbers(seed).map(|value| value.map(|value| format!("text {value}")));
        let mut columns: Vec<(String, ArrayRef)> = vec![
            ("text".into(), Arc::new(StringArray::from_iter(text(1)))),
            ("binary".into(), Arc::new(BinaryArray::from_iter(text(2)))),
            (
                "f32".into(),
                Arc::new(Float32Array::from_iter(
                    numbers(3).map(|value| value.map(|value| value as f32 / 8.0)),
                )),
            ),
            (
                "f64".into(),
                Arc::new(Float64Array::from_iter(
                    numbers(4).map(|value| value.map(|value| value as f64 / 10.0)),
                )),
            ),
        ];
        use DataType::*;
        let integers = [
            Boolean,
            Int8,
            Int16,
            Int32,
            Int64,
            UInt8,
            UInt16,
            UInt32,
            UInt64,
            Date32,
            Time32(TimeUnit::Millisecond),
            Time64(TimeUnit::Microsecond),
            Timestamp(TimeUnit::Second, None),
            Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Duration(TimeUnit::Microsecond),
            Decimal32(9, 2),
            Decimal64(18, 2),
            Decimal128(7, 2),
            Decimal128(18, 0),
            Decimal128(30, 3),
            Decimal256(30, 3),
        ];
        for (seed, data_type) in (5..).zip(integers) {
            let values = Int64Array::from_iter(numbers(seed));
            // types of 32 bits are cast from such integers only
            let values = match data_type {
                Date32 | Time32(_) => cast(&values, &Int32).unwrap(),
                _ => Arc::new(values),
            };
            columns.push((data_type.to_string(), cast(&values, &data_type).unwrap()));
        }
        let fields = columns.iter().map(|(name, array)| {
            let is_nullable = array.null_count() > 0;
            Field::new(name, array.data_type().clone(), is_nullable)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = columns.into_iter().map(|(_, array)| array);
        RecordBatch::try_new(schema, arrays.collect()).unwrap()
    }

    /// Writes rows, and decodes each column here and by the `parquet` crate. Returns those that are left to it.
    fn check(batch: &RecordBatch, properties: WriterPropertiesBuilder, name: &str) -> Vec<String> {
        let properties = properties
            .set_max_row_group_row_count(Some(4000))
            .set_write_batch_size(64)
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties));
        let mut writer = writer.unwrap();
        writer.write(batch).unwrap();
        let bytes = Bytes::from(writer.into_inner().unwrap());
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&bytes)
            .unwrap();
        let metadata = Arc::new(metadata);
        let columns = Columns::of(&metadata, true).unwrap();
        let mut left = vec![];
        for (number, row_group) in metadata.row_groups().iter().enumerate() {
            for (root, column) in columns.columns.iter().enumerate() {
                let name = format!("{name}, {}, row group {number}", column.name);
                let (start, len) = row_group.column(root).byte_range();
                let part = bytes.slice(start as usize..(start + len) as usize);
                let task = Task {
                    columns: &columns,
                    root,
                    row_group,
                    number,
                    rows: row_group.num_rows() as usize,
                    chunks: Chunks {
                        parts: vec![(start, part)],
                        file_bytes: bytes.len() as u64,
                    },
                };
                let pages = task.check(column).unwrap();
                let Some((own, _)) = task.flat(column, &pages).unwrap() else {
                    left.push(column.name.clone());
                    continue;
                };
                let expected = task.array(&columns.values).unwrap();
                let decoded = own.decode(0..task.rows).unwrap();
                assert_eq!(decoded.to_data(), expected.to_data(), "{name}");
            }
        }
        left.dedup();
        left
    }

    const PATTERNS: usize = 6;

    #[test]
    fn pages_of_all_sizes_are_read_as_by_the_crate() {
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::ZSTD(ZstdLevel::default()),
            Compression::LZ4_RAW,
        ];
        for pattern in 0..PATTERNS {
            for (index, range) in [1, 2, 100, 3000, 1 << 40].into_iter().enumerate() {
                let batch = columns(5000, range, pattern);
                for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                    let properties = WriterProperties::builder()
                        .set_writer_version(version)
                        .set_compression(codecs[(pattern + index) % codecs.len()])
                        .set_data_page_row_count_limit([64, 700, 1 << 20][index % 3])
                        .set_dictionary_page_size_limit([1 << 20, 2000][index / 2 % 2]);
                    let name = format!("{range} values, pattern {pattern}, {version:?}");
                    let left = check(&batch, properties, &name);
                    // dictionaries without entries, and those that overflow into prefixes and suffixes
                    let is_bytes =
                        |name: &String| name == "text" || name == "binary" || name.contains("(30");
                    assert!(left.iter().all(is_bytes), "{name}: {left:?}");
                    assert!(
                        index > 1 || pattern >= 3 || left.is_empty(),
                        "{name}: {left:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn encodings_are_read_as_by_the_crate() {
        let encodings = [
            PageEncoding::PLAIN,
            PageEncoding::DELTA_BINARY_PACKED,
            PageEncoding::BYTE_STREAM_SPLIT,
            PageEncoding::RLE,
        ];
        for encoding in encodings {
            for (pattern, range) in [(0, 1 << 40), (1, 1 << 33), (2, 1), (5, 250), (4, 9)] {
                for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                    let batch = columns(5000, range, pattern);
                    let indices = batch.schema();
                    let indices = indices.fields().iter().enumerate();
                    let indices = indices.filter(|(_, field)| has(field.data_type(), encoding));
                    let indices: Vec<usize> = indices.map(|(index, _)| index).collect();
                    let batch = batch.project(&indices).unwrap();
                    let properties = WriterProperties::builder()
                        .set_writer_version(version)
                        .set_dictionary_enabled(false)
                        .set_encoding(encoding)
                        .set_data_page_row_count_limit(900);
                    let name = format!("{encoding}, {range} values, pattern {pattern}");
                    assert_eq!(check(&batch, properties, &name), Vec::<String>::new());
                }
            }
        }
    }

    /// Returns true if the crate writes a type's values in an encoding.
    fn has(data_type: &DataType, encoding: PageEncoding) -> bool {
        use DataType::*;
        let is_bytes = matches!(data_type, Utf8 | Binary);
        let is_fixed = matches!(data_type, Decimal128(30, _) | Decimal256(_, _));
        let is_float = data_type.is_floating();
        match encoding {
            PageEncoding::RLE => data_type == &Boolean,
            PageEncoding::PLAIN => true,
            PageEncoding::BYTE_STREAM_SPLIT => !is_bytes && data_type != &Boolean,
            _ => !is_bytes && !is_fixed && !is_float && data_type != &Boolean,
        }
    }

    #[test]
    fn some_chunks_are_left_to_the_crate() {
        let batch = columns(3000, 50, 1);
        let brotli = Compression::BROTLI(BrotliLevel::default());
        let properties = WriterProperties::builder().set_compression(brotli);
        let left = check(&batch, properties, "Brotli");
        assert_eq!(left.len(), batch.num_columns());
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(PageEncoding::DELTA_LENGTH_BYTE_ARRAY);
        let text = batch.project(&[0, 1]).unwrap();
        let name = "text with packed lengths";
        assert_eq!(check(&text, properties, name), ["text", "binary"]);
        let wide = cast(&Int64Array::from(vec![5, 7]), &DataType::Decimal128(38, 19));
        let batch = RecordBatch::try_from_iter([("wide", wide.unwrap())]).unwrap();
        assert_eq!(check(&batch, WriterProperties::builder(), "wide"), ["wide"]);
    }
}
