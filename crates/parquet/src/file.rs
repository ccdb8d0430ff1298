//! A file as a container of row groups to scan.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use object_store::{ObjectMeta, ObjectStore};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use vectile_encodings::streams::StreamColumn;
use vectile_encodings::{Column, MAX_ROWS, VECTOR_LEN, ZoneMap};
use vectile_scan::object::{Handle, ReadBuffer, ReadBuffers};
use vectile_scan::{Container, Fetch, RowGroupData, StreamData, ValueFilter, shared_work};

use crate::bloom::BloomFilter;
use crate::chunks::Chunks;
use crate::decode::Task;
use crate::error::{Error, ErrorOrigin, Fault, Result};
use crate::metadata::{
    Metadata, Options, RowGroup, chunk_range, is_dictionary, range_of, read_metadata,
};
use crate::page_index;
use crate::schema::{Flat, TableColumn};
use crate::statistics;
use crate::stream_columns;

/// Bytes of a view of text.
const VIEW_BYTES: u64 = 16;

/// Bytes of a code of a dictionary, and of the levels of a nested value.
const CODE_BYTES: u64 = 4;

/// Estimated bytes of text per byte of pages of which some are codes.
const INFLATED: u64 = 4;

/// A Parquet file, ready to be scanned.
///
/// Columns are decoded when they are fetched. A local file stays open once its first row group was read. Errors of a
/// scan are [`Error`]s within [`vectile_scan::Error::External`].
#[derive(Debug)]
pub struct File {
    handle: Handle,
    metadata: Arc<Metadata>,
}

impl File {
    /// Opens `object` and reads its metadata, with default [`Options`].
    ///
    /// # Errors
    ///
    /// Those of [`read_metadata`].
    pub async fn open(store: Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Self> {
        let metadata = read_metadata(&store, object, &Options::default()).await?;
        Ok(Self::new(Arc::new(metadata)))
    }

    /// A file with known metadata.
    pub fn new(metadata: Arc<Metadata>) -> Self {
        Self {
            handle: Handle::default(),
            metadata,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    async fn read_row_group(&self, fetch: &Fetch) -> Result<RowGroupData> {
        let columns = self.metadata.columns.columns.len();
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: 0,
            bytes_cached: 0,
            excess_bytes: 0,
        };
        let (row_group, chunks) = self.metadata.row_group(fetch.row_group)?;
        self.read_zones(row_group, chunks, &fetch.zones, &mut data)
            .await?;
        let read = self
            .read_chunks(row_group, chunks, &fetch.data, None)
            .await?;
        let read_bytes = read.iter().map(Chunks::bytes);
        data.bytes_read += read_bytes.sum::<u64>();
        let works = fetch.data.iter().zip(read).map(|(&index, chunks)| {
            let (metadata, row_group) = (Arc::clone(&self.metadata), fetch.row_group);
            move || decode(&metadata, row_group, index, chunks)
        });
        let decoded = shared_work(works.collect()).await;
        let mut held = 0;
        for (&index, decoded) in fetch.data.iter().zip(decoded) {
            let (packed, bytes) = decoded?;
            held += bytes;
            if let Some(slot) = data.columns.get_mut(index) {
                *slot = Some(packed);
            }
        }
        data.excess_bytes = held.saturating_sub(self.data_bytes(fetch.row_group, &fetch.data));
        Ok(data)
    }

    /// Reads columns in their pages, for a device. Leaves out those that it cannot decode, or that are damaged.
    pub(crate) async fn read_stream_columns(
        &self,
        row_group: usize,
        columns: &[usize],
        buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        let index = row_group;
        let (row_group, chunks) = self.metadata.row_group(index)?;
        if row_group.rows > MAX_ROWS {
            return Ok(StreamData::default());
        }
        let chunk_of = |column: &TableColumn| chunks.columns().get(column.leaves.start);
        let mut wanted = Vec::with_capacity(columns.len());
        for &number in columns {
            let column = self.metadata.column(number)?;
            if let Some(chunk) = chunk_of(column)
                && stream_columns::is_supported(column, chunk)
            {
                wanted.push((number, column, chunk));
            }
        }
        // a device copies what it inflates from where it was read
        let (own, others): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|(_, _, chunk)| stream_columns::is_inflated_on_device(chunk));
        let heap: Arc<dyn ReadBuffers> = Arc::new(Heap);
        let mut read = Vec::with_capacity(columns.len());
        for (wanted, buffers) in [
            (&own, buffers.as_ref()),
            (&others, buffers.as_ref().map(|_| &heap)),
        ] {
            let numbers: Vec<usize> = wanted.iter().map(|(number, ..)| *number).collect();
            let chunks = self
                .read_chunks(row_group, chunks, &numbers, buffers)
                .await?;
            read.extend(chunks);
        }
        let numbers: Vec<usize> = own
            .iter()
            .chain(&others)
            .map(|(number, ..)| *number)
            .collect();
        let mut data = StreamData {
            columns: Vec::with_capacity(numbers.len()),
            bytes_read: read.iter().map(Chunks::bytes).sum(),
        };
        let works = numbers.iter().zip(read).map(|(&number, chunks)| {
            let (metadata, buffers) = (Arc::clone(&self.metadata), buffers.clone());
            move || stream(&metadata, index, number, &chunks, buffers.as_deref())
        });
        let streams = shared_work(works.collect()).await;
        for (number, streams) in numbers.into_iter().zip(streams) {
            // the CPU reports errors
            if let Ok(Some(streams)) = streams {
                data.columns.push((number, streams));
            }
        }
        Ok(data)
    }

    /// Reads the chunks of columns of the table.
    async fn read_chunks(
        &self,
        row_group: &RowGroup,
        chunks: &RowGroupMetaData,
        columns: &[usize],
        buffers: Option<&Arc<dyn ReadBuffers>>,
    ) -> Result<Vec<Chunks>> {
        let mut wanted: Vec<(usize, Range<u64>)> = Vec::new();
        for (position, &column) in columns.iter().enumerate() {
            let column = self.metadata.column(column)?;
            let of_column = chunks.columns().get(column.leaves.clone());
            for chunk in of_column.unwrap_or_default() {
                let range = chunk_range(chunk, self.metadata.file_bytes);
                let range = range.map_err(|fault| self.origin(row_group, column).fault(fault))?;
                wanted.push((position, range));
            }
        }
        let ranges = wanted.iter().map(|(_, range)| range.clone()).collect();
        let read = self.read(ranges, buffers).await?;
        let empty = Chunks {
            parts: Vec::new(),
            file_bytes: self.metadata.file_bytes,
        };
        let mut of_columns = vec![empty; columns.len()];
        for ((position, range), bytes) in wanted.into_iter().zip(read) {
            if let Some(chunks) = of_columns.get_mut(position) {
                chunks.parts.push((range.start, bytes));
            }
        }
        Ok(of_columns)
    }

    /// Reads ranges in any order, and returns their bytes in the same order.
    async fn read(
        &self,
        ranges: Vec<Range<u64>>,
        buffers: Option<&Arc<dyn ReadBuffers>>,
    ) -> Result<Vec<Bytes>> {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by_key(|&at| ranges.get(at).map(|range| (range.start, range.end)));
        let sorted: Vec<Range<u64>> = order
            .iter()
            .filter_map(|&at| ranges.get(at).cloned())
            .collect();
        let object = &self.metadata.object;
        let read = object.read(&self.handle, &sorted, buffers).await?;
        let mut bytes = vec![Bytes::new(); ranges.len()];
        for (at, read) in order.into_iter().zip(read) {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = read;
            }
        }
        Ok(bytes)
    }

    /// Reads the page indexes of columns, for zone maps of vectors.
    async fn read_zones(
        &self,
        row_group: &RowGroup,
        chunks: &RowGroupMetaData,
        columns: &[usize],
        data: &mut RowGroupData,
    ) -> Result<()> {
        // one vector is the row group
        if row_group.rows <= VECTOR_LEN {
            return Ok(());
        }
        let end = self.metadata.file_bytes;
        let mut indexed = Vec::new();
        let mut ranges = Vec::new();
        for &index in columns {
            let column = self.metadata.column(index)?;
            let Some(chunk) = ordered_chunk(column, chunks) else {
                continue;
            };
            let length = chunk.column_index_length().map(i64::from);
            let of_column = range_of(chunk.column_index_offset(), length, end);
            let length = chunk.offset_index_length().map(i64::from);
            let of_offsets = range_of(chunk.offset_index_offset(), length, end);
            if let Some((of_column, of_offsets)) = of_column.zip(of_offsets) {
                indexed.push((index, column));
                ranges.extend([of_column, of_offsets]);
            }
        }
        let read = self.read(ranges, None).await?;
        data.bytes_read += read.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        let (pairs, _) = read.as_chunks::<2>();
        for ((index, column), [of_column, of_offsets]) in indexed.into_iter().zip(pairs) {
            let zones = page_index::of_vectors(column, of_column, of_offsets, row_group.rows);
            if let Some(slot) = data.zones.get_mut(index) {
                // an index that is damaged says nothing about the values
                *slot = zones.ok();
            }
        }
        Ok(())
    }

    async fn read_bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> Result<Vec<Box<dyn ValueFilter>>> {
        let (_, chunks) = self.metadata.row_group(row_group)?;
        let mut filtered = Vec::with_capacity(columns.len());
        for &column in columns {
            let column = self.metadata.column(column)?;
            let Some((flat, range)) = self.bloom_filter(column, chunks) else {
                let reason = format!("column '{}' has no Bloom filter", column.name);
                return Err(Error::InvalidArgument(reason));
            };
            filtered.push((flat, range));
        }
        let ranges = filtered.iter().map(|(_, range)| range.clone()).collect();
        let read = self.read(ranges, None).await?;
        let filters = filtered.into_iter().zip(read);
        let filters =
            filters.map(|((flat, _), bytes)| Box::new(BloomFilter::parse(&bytes, flat)) as _);
        Ok(filters.collect())
    }

    /// The bytes of the file that hold a column's Bloom filter, if it has one of known length.
    fn bloom_filter<'a>(
        &self,
        column: &'a TableColumn,
        chunks: &RowGroupMetaData,
    ) -> Option<(&'a Flat, Range<u64>)> {
        let flat = column
            .flat
            .as_ref()
            .filter(|flat| BloomFilter::apply_to(flat))?;
        let chunk = chunks.columns().get(flat.leaf)?;
        let length = chunk.bloom_filter_length().map(i64::from);
        let range = range_of(
            chunk.bloom_filter_offset(),
            length,
            self.metadata.file_bytes,
        )?;
        Some((flat, range))
    }

    fn origin(&self, row_group: &RowGroup, column: &TableColumn) -> ErrorOrigin {
        self.metadata.origin(row_group).column(&column.name)
    }
}

/// Decodes a column of the table; returns also the bytes of memory that it takes.
fn decode(
    metadata: &Metadata,
    row_group: usize,
    index: usize,
    chunks: Chunks,
) -> Result<(Column, usize)> {
    let (row_group, metadata_of_chunks) = metadata.row_group(row_group)?;
    let column = metadata.column(index)?;
    let task = Task {
        columns: &metadata.columns,
        root: index,
        row_group: metadata_of_chunks,
        number: row_group.number,
        rows: row_group.rows,
        chunks,
    };
    let origin = || metadata.origin(row_group).column(&column.name);
    task.run(column).map_err(|fault| origin().fault(fault))
}

/// A column of the table in its pages; `None` if a device cannot decode it.
fn stream(
    metadata: &Metadata,
    row_group: usize,
    index: usize,
    chunks: &Chunks,
    buffers: Option<&dyn ReadBuffers>,
) -> Result<Option<StreamColumn>> {
    let (row_group, metadata_of_chunks) = metadata.row_group(row_group)?;
    let column = metadata.column(index)?;
    let chunk = metadata_of_chunks.columns().get(column.leaves.start);
    let (Some(chunk), Some((_, bytes))) = (chunk, chunks.parts.first()) else {
        return Ok(None);
    };
    let origin = || metadata.origin(row_group).column(&column.name);
    let streams = stream_columns::of(column, chunk, bytes, row_group.rows, buffers);
    streams.map_err(|fault| origin().fault(fault))
}

/// Memory of the heap, for a local file that the calling thread reads.
#[derive(Debug)]
struct Heap;

impl ReadBuffers for Heap {
    fn take(&self, _bytes: usize) -> Option<Box<dyn ReadBuffer>> {
        None
    }
}

/// The chunk of a column whose bounds are in the order of its values.
fn ordered_chunk<'a>(
    column: &TableColumn,
    chunks: &'a RowGroupMetaData,
) -> Option<&'a ColumnChunkMetaData> {
    let flat = column.flat.as_ref();
    let flat = flat.filter(|flat| flat.has_order && flat.stored.is_some())?;
    chunks.columns().get(flat.leaf)
}

/// Estimated bytes that a column takes in memory once it is fetched.
fn column_bytes(column: &TableColumn, chunks: &RowGroupMetaData, rows: usize) -> u64 {
    let of_column = chunks.columns().get(column.leaves.clone());
    if let (Some(_), Some([chunk])) = (&column.flat, of_column) {
        let rows = rows as u64;
        let packed = statistics::offset_bits(column, chunk);
        let width = column.data_type.primitive_width();
        return match (packed, width) {
            (Some(bits), _) => rows.saturating_mul(bits.into()).div_ceil(8),
            (None, Some(width)) => rows.saturating_mul(width as u64),
            (None, None) => leaf_bytes(chunk, rows),
        };
    }
    let leaves = of_column.unwrap_or_default().iter();
    let leaves = leaves.map(|chunk| {
        let values = u64::try_from(chunk.num_values()).unwrap_or(0);
        leaf_bytes(chunk, values).saturating_add(values.saturating_mul(CODE_BYTES))
    });
    leaves.fold(0, u64::saturating_add)
}

/// Estimated bytes of the values of a leaf.
fn leaf_bytes(chunk: &ColumnChunkMetaData, values: u64) -> u64 {
    let width = match chunk.column_type() {
        PhysicalType::BOOLEAN => 1,
        PhysicalType::INT32 | PhysicalType::FLOAT => 4,
        PhysicalType::INT64 | PhysicalType::DOUBLE | PhysicalType::INT96 => 8,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => chunk.column_descr().type_length().max(1) as u64,
        PhysicalType::BYTE_ARRAY => {
            let stored = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
            let text = chunk.unencoded_byte_array_data_bytes();
            let text = text.and_then(|bytes| u64::try_from(bytes).ok());
            return match chunk.dictionary_page_offset() {
                Some(_) if is_dictionary(chunk) => {
                    stored.saturating_add(values.saturating_mul(CODE_BYTES))
                }
                Some(_) => text
                    .unwrap_or(stored.saturating_mul(INFLATED))
                    .saturating_add(values.saturating_mul(VIEW_BYTES)),
                None => text
                    .unwrap_or(stored)
                    .saturating_add(values.saturating_mul(VIEW_BYTES)),
            };
        }
    };
    values.saturating_mul(width)
}

#[async_trait]
impl Container for File {
    fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    fn num_row_groups(&self) -> usize {
        self.metadata.row_groups().len()
    }

    fn rows(&self, row_group: usize) -> usize {
        let row_group = self.metadata.row_groups().get(row_group);
        row_group.map_or(0, |row_group| row_group.rows)
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.metadata.row_group_zones(column)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let Ok((row_group, chunks)) = self.metadata.row_group(row_group) else {
            return 0;
        };
        let columns = columns
            .iter()
            .filter_map(|&column| self.metadata.columns.columns.get(column));
        let bytes = columns.map(|column| column_bytes(column, chunks, row_group.rows));
        usize::try_from(bytes.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    async fn fetch(&self, fetch: &Fetch) -> vectile_scan::Result<RowGroupData> {
        self.read_row_group(fetch)
            .await
            .map_err(vectile_scan::Error::external)
    }

    fn has_bloom_filter(&self, row_group: usize, column: usize) -> bool {
        let row_group = self.metadata.row_group(row_group).ok();
        let column = self.metadata.columns.columns.get(column);
        row_group
            .zip(column)
            .is_some_and(|((_, chunks), column)| self.bloom_filter(column, chunks).is_some())
    }

    async fn bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> vectile_scan::Result<Vec<Box<dyn ValueFilter>>> {
        let filters = self.read_bloom_filters(row_group, columns).await;
        filters.map_err(vectile_scan::Error::external)
    }

    fn error(
        &self,
        row_group: usize,
        column: usize,
        source: vectile_encodings::Error,
    ) -> vectile_scan::Error {
        let error = match (
            self.metadata.row_group(row_group),
            self.metadata.column(column),
        ) {
            (Ok((row_group, _)), Ok(column)) => {
                self.origin(row_group, column).fault(Fault::from(source))
            }
            (Err(error), _) | (_, Err(error)) => error,
        };
        vectile_scan::Error::external(error)
    }
}
