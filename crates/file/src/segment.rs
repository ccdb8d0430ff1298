//! Row groups in memory, ready to be scanned: as they were encoded, or with plain values that are still to be encoded.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use object_store::path::Path;
use vectile_encodings::{BloomFilter, Column, Encoding, VECTOR_LEN, ZoneMap};
use vectile_scan::{Container, Fetch, FileContainer, RowGroupData, ValueFilter};

use crate::encode::EncodedRowGroup;
use crate::error::{Error, FilePosition, Result};
use crate::memory::memory_bytes;
use crate::metadata::Compression;
use crate::writer::join;

/// Row groups in memory that are scanned as a file. It never changes, so that any number of queries may scan it.
///
/// Its name and number stand for a file's location and checksum: no other segment of the process has the same ones.
#[derive(Debug)]
pub struct Segment {
    name: Path,
    number: u32,
    schema: SchemaRef,
    row_groups: Vec<Arc<MemoryRowGroup>>,
    /// Where each row group begins, as if their bytes were in a file.
    starts: Vec<u64>,
    /// Per column, an entry for each row group.
    statistics: Vec<ZoneMap>,
    bytes: usize,
    life: Arc<()>,
}

/// A row group in memory.
#[derive(Debug)]
pub struct MemoryRowGroup {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<MemoryColumn>,
    encoded: Option<EncodedRowGroup>,
    bytes: usize,
}

#[derive(Debug)]
struct MemoryColumn {
    values: Values,
    /// The vectors' zone map.
    zones: ZoneMap,
    /// The zones merged to one.
    statistics: ZoneMap,
    bloom: Option<BloomFilter>,
    encoding: Cow<'static, str>,
    /// Bytes of the values in memory.
    bytes: usize,
    /// Bytes of the values as Arrow arrays.
    arrow_bytes: u64,
}

/// Values of a column.
#[derive(Debug)]
enum Values {
    Encoded(Column),
    /// An array that the first scan encodes, because many are never scanned before they become part of a larger row
    /// group.
    Array {
        array: ArrayRef,
        encoding: Encoding,
        encoded: OnceLock<Column>,
    },
}

impl MemoryRowGroup {
    /// A row group of encoded rows with the columns of `schema`. Errors call the table `name`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the rows have other columns, or are compressed.
    pub fn of_encoded(name: &str, schema: SchemaRef, encoded: EncodedRowGroup) -> Result<Self> {
        encoded.check(&schema)?;
        let position = FilePosition::file(name);
        let rows = encoded.rows;
        let fields = schema.fields().iter().zip(&encoded.columns);
        let columns = fields.map(|(field, column)| {
            let position = position.column(field.name());
            if column.compression != Compression::None {
                let reason = format!("column '{}' is compressed", field.name());
                return Err(Error::InvalidArgument(reason));
            }
            let data_type = field.data_type();
            let values = Column::parse(Buffer::from(column.data.clone()), data_type, rows);
            let zones = match rows <= VECTOR_LEN {
                true => Ok(column.statistics.clone()),
                false => {
                    let bytes = Buffer::from(column.zones.clone());
                    ZoneMap::parse(bytes, data_type, rows.div_ceil(VECTOR_LEN))
                }
            };
            let bloom = column.bloom.as_ref();
            let bloom = bloom.map(|bloom| BloomFilter::parse(Buffer::from(bloom.clone())));
            let bloom = bloom.transpose();
            Ok(MemoryColumn {
                values: Values::Encoded(values.map_err(|error| position.encoding(error))?),
                zones: zones.map_err(|error| position.encoding(error))?,
                statistics: column.statistics.clone(),
                bloom: bloom.map_err(|error| position.encoding(error))?,
                encoding: column.encoding.to_string().into(),
                bytes: column.data.len(),
                arrow_bytes: column.arrow_bytes,
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let zones = encoded.columns.iter().map(|column| column.zones.len());
        let bytes = zones.sum::<usize>() + bytes_of(&columns);
        Ok(Self {
            schema,
            rows,
            columns,
            encoded: Some(encoded),
            bytes,
        })
    }

    /// A row group of the rows of `batch`. A column is encoded when it is first scanned, in a way that costs little and
    /// that programs and devices can read: integers, dates, times and decimals as offsets, text as a dictionary where
    /// `has_dictionary` is true. Other values are kept as they are. The bounds of columns are unknown
    /// where `has_bounds` is false. Errors call the table `name`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the batch has no rows or other columns than `schema`, and errors of encoding.
    pub fn of_batch(
        name: &str,
        schema: SchemaRef,
        batch: &RecordBatch,
        has_dictionary: impl Fn(usize) -> bool,
        has_bounds: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        let rows = batch.num_rows();
        if rows == 0 || batch.num_columns() != schema.fields().len() {
            let columns = batch.num_columns();
            let reason = format!("a row group of {rows} rows and {columns} columns");
            return Err(Error::InvalidArgument(reason));
        }
        let position = FilePosition::file(name);
        let fields = schema.fields().iter().zip(batch.columns());
        let columns = fields.enumerate().map(|(index, (field, array))| {
            let column = MemoryColumn::of_array(array, has_dictionary(index), has_bounds(index));
            column.map_err(|error| position.column(field.name()).encoding(error))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            schema,
            rows,
            bytes: bytes_of(&columns),
            columns,
            encoded: None,
        })
    }

    /// The row group as it was encoded; `None` if its values are plain.
    pub fn encoded(&self) -> Option<&EncodedRowGroup> {
        self.encoded.as_ref()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The name of a column's encoding; `None` if there is no such column.
    pub fn encoding(&self, column: usize) -> Option<&str> {
        self.columns.get(column).map(|column| &*column.encoding)
    }

    /// All rows, decoded.
    ///
    /// # Errors
    ///
    /// Errors of decoding, which would be defects.
    pub fn decode(&self) -> Result<RecordBatch> {
        let position = FilePosition::file("");
        let fields = self.schema.fields().iter().zip(&self.columns);
        let arrays = fields.map(|(field, column)| {
            let array = match &column.values {
                Values::Array { array, .. } => Ok(Arc::clone(array)),
                Values::Encoded(values) => values.decode(0..self.rows),
            };
            array.map_err(|error| position.column(field.name()).encoding(error))
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options);
        batch.map_err(|error| Error::Internal(error.to_string()))
    }
}

/// Bytes that columns take in memory.
fn bytes_of(columns: &[MemoryColumn]) -> usize {
    let bytes = columns.iter().map(|column| {
        let parsed = match &column.values {
            Values::Encoded(values) => values.parsed_bytes(),
            Values::Array { .. } => 0,
        };
        let bloom = column.bloom.as_ref().map_or(0, |bloom| bloom.bytes().len());
        let zones = column.zones.memory_size() + column.statistics.memory_size();
        column.bytes + parsed + zones + bloom
    });
    bytes.sum()
}

impl MemoryColumn {
    fn of_array(
        array: &ArrayRef,
        has_dictionary: bool,
        has_bounds: bool,
    ) -> vectile_encodings::Result<Self> {
        let encoding = match has_dictionary {
            true => Encoding::Dict,
            false => Encoding::of_packed(array.data_type()),
        };
        let fixed = match encoding {
            Encoding::Plain => Column::of_fixed_width(array)?,
            _ => None,
        };
        let values = match fixed {
            Some(values) => Values::Encoded(values),
            None => Values::Array {
                array: Arc::clone(array),
                encoding,
                encoded: OnceLock::new(),
            },
        };
        let arrow_bytes = memory_bytes(array);
        let zones = match has_bounds {
            true => ZoneMap::of(array)?,
            false => ZoneMap::of_nulls(array),
        };
        Ok(Self {
            values,
            statistics: zones.merge()?,
            zones,
            bloom: None,
            encoding: encoding.to_string().into(),
            bytes: usize::try_from(arrow_bytes).unwrap_or(usize::MAX),
            arrow_bytes,
        })
    }

    /// The values, encoded.
    fn values(&self) -> vectile_encodings::Result<Column> {
        let (array, encoding, known) = match &self.values {
            Values::Encoded(values) => return Ok(values.clone()),
            Values::Array {
                array,
                encoding,
                encoded,
            } => (array, encoding, encoded),
        };
        if let Some(values) = known.get() {
            return Ok(values.clone());
        }
        let (values, _) = Column::packed(array, *encoding)?;
        // another scan may have been first: both are the same
        Ok(known.get_or_init(|| values).clone())
    }
}

impl Segment {
    /// Row groups with the columns of `schema`, at least one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there are none, or they have other columns.
    pub fn try_new(
        name: Path,
        number: u32,
        schema: SchemaRef,
        row_groups: Vec<Arc<MemoryRowGroup>>,
    ) -> Result<Self> {
        let columns = schema.fields().len();
        let is_one = |row_group: &Arc<MemoryRowGroup>| row_group.columns.len() == columns;
        if row_groups.is_empty() || !row_groups.iter().all(is_one) {
            let reason = format!("{name}: no row groups, or some have other columns");
            return Err(Error::InvalidArgument(reason));
        }
        let statistics = (0..columns).map(|column| {
            let own = row_groups.iter();
            let own = own.map(|row_group| row_group.columns[column].statistics.clone());
            let own: Vec<ZoneMap> = own.collect();
            match own.as_slice() {
                [one] => Ok(one.clone()),
                several => join(several),
            }
        });
        let statistics = statistics.collect::<Result<_>>()?;
        let mut bytes = 0;
        let mut starts = Vec::with_capacity(row_groups.len());
        for row_group in &row_groups {
            starts.push(bytes as u64);
            bytes += row_group.bytes.max(1);
        }
        Ok(Self {
            name,
            number,
            schema,
            row_groups,
            starts,
            statistics,
            bytes,
            life: Arc::default(),
        })
    }

    /// Its row groups.
    pub fn row_groups(&self) -> &[Arc<MemoryRowGroup>] {
        &self.row_groups
    }

    /// Bytes of its row groups in memory. Row groups begin at distinct bytes below it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn row_group(&self, index: usize) -> Option<&MemoryRowGroup> {
        self.row_groups.get(index).map(AsRef::as_ref)
    }

    fn column(&self, row_group: usize, column: usize) -> Option<&MemoryColumn> {
        self.row_group(row_group)?.columns.get(column)
    }
}

#[async_trait]
impl Container for Segment {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn num_row_groups(&self) -> usize {
        self.row_groups.len()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.row_group(row_group).map_or(0, MemoryRowGroup::rows)
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.statistics.get(column)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let columns = columns.iter();
        let columns = columns.filter_map(|&column| self.column(row_group, column));
        columns
            .map(|column| column.bytes)
            .fold(0, usize::saturating_add)
    }

    async fn fetch(&self, fetch: &Fetch) -> vectile_scan::Result<RowGroupData> {
        let columns = self.schema.fields().len();
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: 0,
            bytes_cached: self.data_bytes(fetch.row_group, &fetch.data) as u64,
            excess_bytes: 0,
        };
        let column = |index: usize| {
            let column = self.column(fetch.row_group, index);
            column.ok_or_else(|| {
                let row_group = fetch.row_group;
                let reason = format!(
                    "{} has no column {index} in row group {row_group}",
                    self.name
                );
                vectile_scan::Error::external(Error::InvalidArgument(reason))
            })
        };
        for &index in &fetch.data {
            let values = column(index)?.values();
            let values = values.map_err(|error| self.error(fetch.row_group, index, error))?;
            data.columns[index] = Some(values);
        }
        for &index in &fetch.zones {
            data.zones[index] = Some(column(index)?.zones.clone());
        }
        Ok(data)
    }

    fn has_bloom_filter(&self, row_group: usize, column: usize) -> bool {
        let column = self.column(row_group, column);
        column.is_some_and(|column| column.bloom.is_some())
    }

    async fn bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> vectile_scan::Result<Vec<Box<dyn ValueFilter>>> {
        let columns = columns.iter();
        let columns = columns.filter_map(|&column| self.column(row_group, column));
        let filters = columns.filter_map(|column| column.bloom.clone());
        Ok(filters.map(|filter| Box::new(filter) as _).collect())
    }

    fn error(
        &self,
        row_group: usize,
        column: usize,
        source: vectile_encodings::Error,
    ) -> vectile_scan::Error {
        let position = FilePosition::file(self.name.as_ref()).row_group(row_group);
        let error = match self.schema.fields().get(column) {
            Some(field) => position.column(field.name()).encoding(source),
            None => position.encoding(source),
        };
        vectile_scan::Error::external(error)
    }
}

#[async_trait]
impl FileContainer for Segment {
    fn location(&self) -> &Path {
        &self.name
    }

    fn row_group_start(&self, row_group: usize) -> u64 {
        self.starts.get(row_group).copied().unwrap_or_default()
    }

    fn checksum(&self) -> u32 {
        self.number
    }

    fn life(&self) -> Option<Weak<()>> {
        Some(Arc::downgrade(&self.life))
    }

    fn arrow_bytes(&self, column: usize) -> Option<u64> {
        let columns = (0..self.row_groups.len()).filter_map(|of| self.column(of, column));
        Some(columns.map(|column| column.arrow_bytes).sum())
    }

    fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        let column = self.column(row_group, column)?;
        Some(Cow::Borrowed(&column.encoding))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::record_batch;
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::executor::block_on;
    use object_store::memory::InMemory;
    use object_store::{ObjectStore, ObjectStoreExt};

    use super::*;
    use crate::{Encoder, File, Writer, WriterOptions};

    fn batch(rows: i64) -> RecordBatch {
        let numbers: Vec<i64> = (0..rows).collect();
        let texts: Vec<String> = numbers.iter().map(|n| format!("t{}", n % 7)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        record_batch!(("n", Int64, numbers), ("t", Utf8, texts)).unwrap()
    }

    async fn encoded(batch: &RecordBatch) -> EncodedRowGroup {
        let options = WriterOptions::default().with_bloom_filters(["n"]);
        let encoder = Encoder::try_new("memory", batch.schema(), &options).unwrap();
        let mut encoded = encoder.encode(vec![batch.clone()]).await.unwrap();
        assert_eq!(encoded.len(), 1);
        encoded.remove(0)
    }

    fn in_memory(batch: &RecordBatch, encoded: EncodedRowGroup) -> Result<MemoryRowGroup> {
        MemoryRowGroup::of_encoded("memory", batch.schema(), encoded)
    }

    #[tokio::test]
    async fn segments_return_the_rows_they_are_made_of() {
        for rows in [1, 1024, 5000] {
            let batch = batch(rows);
            let of_batch = |has_dictionary: bool| {
                let is_text = |column| has_dictionary && column == 1;
                MemoryRowGroup::of_batch("memory", batch.schema(), &batch, is_text, |_| true)
                    .unwrap()
            };
            let (plain, coded) = (of_batch(false), of_batch(true));
            assert!(coded.encoding(1).unwrap().starts_with("dict"));
            let encoded = in_memory(&batch, encoded(&batch).await).unwrap();
            assert!(plain.encoded().is_none() && encoded.encoded().is_some());
            for row_group in [plain, coded, encoded] {
                assert_eq!(row_group.decode().unwrap(), batch);
                let row_groups = vec![Arc::new(row_group)];
                let name = Path::from("memory/1");
                let segment = Segment::try_new(name, 1, batch.schema(), row_groups).unwrap();
                let is_encoded = segment.row_groups()[0].encoded().is_some();
                assert_eq!(segment.has_bloom_filter(0, 0), is_encoded);
                assert!(!segment.has_bloom_filter(0, 1));
                let fetch = Fetch {
                    row_group: 0,
                    data: vec![1],
                    zones: vec![0],
                };
                let read = block_on(segment.fetch(&fetch)).unwrap();
                assert!(read.columns[0].is_none() && read.zones[1].is_none());
                let zones = read.zones[0].as_ref().unwrap();
                assert_eq!(zones.len(), (rows as usize).div_ceil(VECTOR_LEN));
                assert_eq!(read.columns[1].as_ref().unwrap().len(), rows as usize);
                let null_count = &segment.row_group_zones(0).unwrap().null_count;
                assert_eq!(null_count.value(0), 0);
            }
        }
    }

    #[tokio::test]
    async fn row_groups_go_to_files_and_back_as_they_are() {
        let batch = batch(3000);
        let encoded = encoded(&batch).await;
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let location = Path::from("t.vectile");
        let mut writer = Writer::try_new(
            Arc::clone(&store),
            location.clone(),
            batch.schema(),
            WriterOptions::default(),
        )
        .unwrap();
        writer.write(&batch.slice(0, 10)).await.unwrap();
        writer.write_encoded(&encoded).await.unwrap();
        writer.write(&batch.slice(0, 5)).await.unwrap();
        let summary = writer.finish().await.unwrap();
        assert_eq!((summary.rows, summary.row_groups), (3015, 3));

        let object = store.head(&location).await.unwrap();
        let file = File::open(store, &object).await.unwrap();
        let back = file.read_encoded(1).await.unwrap();
        assert_eq!(back.bytes(), encoded.bytes());
        for (back, column) in back.columns.iter().zip(&encoded.columns) {
            assert_eq!(back.data, column.data);
            assert_eq!(back.bloom, column.bloom);
            assert_eq!(back.statistics.min.as_ref(), column.statistics.min.as_ref());
        }
        assert_eq!(in_memory(&batch, back).unwrap().decode().unwrap(), batch);
    }

    #[tokio::test]
    async fn row_groups_take_the_same_memory_whatever_their_file_has() {
        let batch = batch(1000);
        let encoded = encoded(&batch).await;
        let mut sizes = Vec::new();
        for row_groups in [1, 100] {
            let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let location = Path::from("t.vectile");
            let options = WriterOptions::default();
            let writer = Writer::try_new(
                Arc::clone(&store),
                location.clone(),
                batch.schema(),
                options,
            );
            let mut writer = writer.unwrap();
            for _ in 0..row_groups {
                writer.write_encoded(&encoded).await.unwrap();
            }
            writer.finish().await.unwrap();
            let object = store.head(&location).await.unwrap();
            let file = File::open(store, &object).await.unwrap();
            let first = file.read_encoded(0).await.unwrap();
            sizes.push(in_memory(&batch, first).unwrap().bytes());
        }
        assert_eq!(sizes[0], sizes[1]);
    }

    #[tokio::test]
    async fn other_columns_are_refused() {
        let encoded = encoded(&batch(10)).await;
        let field = |name, data_type| Field::new(name, data_type, true);
        for fields in [
            vec![field("n", DataType::Int64)],
            vec![field("n", DataType::Int32), field("t", DataType::Utf8)],
        ] {
            let schema = Arc::new(Schema::new(fields));
            let row_group = MemoryRowGroup::of_encoded("m", schema, encoded.clone());
            assert!(matches!(row_group, Err(Error::InvalidArgument(_))));
        }
    }

    #[tokio::test]
    async fn segments_have_row_groups_of_any_kind() {
        let (first, second) = (batch(1500), batch(10));
        let encoded = in_memory(&first, encoded(&first).await).unwrap();
        let plain = MemoryRowGroup::of_batch(
            "m",
            second.schema(),
            &second,
            |_| false,
            |column| column == 0,
        )
        .unwrap();
        let row_groups = vec![Arc::new(encoded), Arc::new(plain)];
        let segment = Segment::try_new(Path::from("m/1"), 1, first.schema(), row_groups).unwrap();
        assert_eq!((segment.rows(0), segment.rows(1)), (1500, 10));
        assert_eq!(segment.row_group_zones(0).unwrap().len(), 2);
        let of_text = segment.row_group_zones(1).unwrap();
        assert!(of_text.min.is_valid(0) && of_text.min.is_null(1) && of_text.max.is_null(1));
        assert_eq!(of_text.null_count.values(), &[0, 0]);
        let second = segment.row_group_start(1);
        assert!(segment.row_group_start(0) == 0 && (1..segment.bytes() as u64).contains(&second));
        let absent = Fetch {
            row_group: 2,
            data: vec![0],
            zones: vec![],
        };
        assert!(segment.fetch(&absent).await.is_err());
        assert!(Segment::try_new(Path::from("m"), 1, first.schema(), vec![]).is_err());
    }
}
