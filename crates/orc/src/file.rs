//! A file as a container of stripes to scan.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::{Column, ZoneMap};
use vectile_scan::object::{Handle, ReadBuffers};
use vectile_scan::{Container, Fetch, RowGroupData, StreamData, ValueFilter, yield_now};

use crate::bloom::BloomFilters;
use crate::columns::{Numbered, StripeStreams, stream_key};
use crate::decode::Decoder;
use crate::error::{Error, ErrorOrigin, Fault, Result};
use crate::kind::{Encoding as ColumnEncoding, StreamKind};
use crate::messages::{bloom_filters, row_index};
use crate::metadata::{MAX_INDEX_BYTES, Metadata, StreamRange, Stripe, read_metadata};
use crate::position::{self, IndexGroups};
use crate::schema::Type;
use crate::statistics::Zones;
use crate::stream::Stream;
use crate::stream_columns;
use crate::vectors;

/// An ORC file, ready to be scanned: its row groups are the stripes.
///
/// Columns are decoded when they are fetched. A local file stays open once its first stripe was read. Errors of a scan
/// are [`Error`]s within [`vectile_scan::Error::External`].
#[derive(Debug)]
pub struct File {
    handle: Handle,
    metadata: Arc<Metadata>,
}

impl File {
    /// Opens `object` and reads its metadata.
    ///
    /// # Errors
    ///
    /// Those of [`read_metadata`].
    pub async fn open(store: Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Self> {
        Ok(Self::new(Arc::new(read_metadata(&store, object).await?)))
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

    /// The value streams of some columns of the table and of their children, as they are in the file.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there is no such stripe or column, and those of the object store.
    pub async fn streams(&self, stripe: usize, columns: &[usize]) -> Result<Vec<Stream>> {
        let stripe = self.metadata.stripe(stripe)?;
        let mut numbers = Vec::new();
        for &column in columns {
            let column = self.metadata.column(column)?;
            column.visit_columns(&mut |column| numbers.push(column));
        }
        numbers.sort_unstable();
        let is_selected = |stream: &&StreamRange| {
            stream.kind.is_of_values() && numbers.binary_search(&stream.column).is_ok()
        };
        self.read(stripe.streams.iter().filter(is_selected), None)
            .await
    }

    /// The positions in a column's streams where the index groups of a stripe begin; empty if the file has no index
    /// groups. `column` is the column's type.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there is no such stripe, [`Error::Corrupt`], and those of the object store.
    pub async fn index_groups(&self, stripe: usize, column: &Type) -> Result<Vec<IndexGroups>> {
        let stripe = self.metadata.stripe(stripe)?;
        let is_index = |stream: &&StreamRange| {
            stream.kind == StreamKind::RowIndex && stream.column == column.column
        };
        let selected = stripe.streams.iter().filter(is_index);
        let index = self.read(selected, None).await?;
        match index.first() {
            Some(index) => self.index_groups_in(stripe, column, index),
            None => Ok(Vec::new()),
        }
    }

    /// As [`index_groups`](Self::index_groups), from an index that was read.
    fn index_groups_in(
        &self,
        stripe: &Stripe,
        column: &Type,
        index: &Stream,
    ) -> Result<Vec<IndexGroups>> {
        let Some(&encoding) = stripe.encodings.get(column.column as usize) else {
            return Ok(Vec::new());
        };
        let dictionary = matches!(encoding, ColumnEncoding::Dictionary { .. });
        // the lengths of dictionary entries are not split by index groups either
        let is_cut = |kind| kind != StreamKind::Length || !dictionary;
        let streams = stripe
            .streams
            .iter()
            .filter(|stream| stream.column == column.column);
        let streams = streams
            .filter(|stream| is_cut(stream.kind))
            .filter_map(|stream| {
                Some((
                    stream.kind,
                    Decoder::of(column.kind, encoding, stream.kind)?,
                ))
            });
        let compression = self.metadata.codec.compression();
        let Some(groups) = self.metadata.index_groups(stripe) else {
            return Ok(Vec::new());
        };
        let result = index
            .inflate_up_to(MAX_INDEX_BYTES)
            .and_then(|bytes| row_index(&bytes, groups))
            .and_then(|entries| position::index_groups(&entries, streams.collect(), compression));
        let origin = || {
            self.metadata
                .origin(stripe)
                .column(&column.path)
                .stream(index.kind)
        };
        result.map_err(|fault| origin().fault(fault))
    }

    /// Decodes columns of a stripe to Arrow arrays.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Unsupported`] with stripe, column and stream, and those of
    /// [`streams`](Self::streams).
    pub async fn decode(&self, stripe: usize, columns: &[usize]) -> Result<Vec<ArrayRef>> {
        let (streams, _) = self.stripe_streams(stripe, columns).await?;
        let rows = self.metadata.stripe(stripe)?.rows;
        let mut arrays = Vec::with_capacity(columns.len());
        for &column in columns {
            arrays.push(streams.decode(self.metadata.column(column)?, rows)?);
            // decoding a column may take long
            yield_now().await;
        }
        Ok(arrays)
    }

    /// Columns of a stripe for a device to decode. Leaves out those that only [`decode`](Self::decode) supports, or
    /// whose errors it reports.
    pub(crate) async fn read_stream_columns(
        &self,
        stripe: usize,
        columns: &[usize],
        buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        let stripe = self.metadata.stripe(stripe)?;
        let types = columns.iter().map(|&column| self.metadata.column(column));
        let types: Vec<&Type> = types.collect::<Result<_>>()?;
        let is_selected = |stream: &&StreamRange| {
            let is_kind = stream.kind.is_of_values() || stream.kind == StreamKind::RowIndex;
            let mut types = types.iter();
            let is_of = |column: &&Type| {
                column.column == stream.column && stream_columns::is_supported(column.kind)
            };
            is_kind && types.any(is_of)
        };
        let selected = stripe.streams.iter().filter(is_selected);
        let mut streams = self.read(selected, buffers.as_ref()).await?;
        streams.sort_by_key(stream_key);
        let bytes_read = streams.iter().map(|stream| stream.bytes.len() as u64).sum();
        let streams = StripeStreams {
            origin: self.metadata.origin(stripe),
            streams,
            encodings: &stripe.encodings,
            timezone: stripe.timezone.as_deref(),
        };
        let stride = self.metadata.row_index_stride;
        let stride = stride.and_then(|stride| usize::try_from(stride).ok());
        let mut data = StreamData {
            columns: Vec::with_capacity(columns.len()),
            bytes_read,
        };
        for (&number, column) in columns.iter().zip(types) {
            let index = streams.stream(column.column, StreamKind::RowIndex);
            let groups = match index {
                Some(index) => self.index_groups_in(stripe, column, index),
                None => Ok(Vec::new()),
            };
            let of = |groups| stream_columns::of(&streams, column, stripe.rows, stride, groups);
            if let Ok(Some(streams)) = groups.and_then(of) {
                data.columns.push((number, streams));
            }
            // decoding a column may take long
            yield_now().await;
        }
        Ok(data)
    }

    /// The value streams of some columns, and their size in bytes.
    async fn stripe_streams(
        &self,
        stripe: usize,
        columns: &[usize],
    ) -> Result<(StripeStreams<'_>, u64)> {
        let mut streams = self.streams(stripe, columns).await?;
        let stripe = self.metadata.stripe(stripe)?;
        streams.sort_by_key(stream_key);
        let bytes = streams.iter().map(|stream| stream.bytes.len() as u64).sum();
        let streams = StripeStreams {
            origin: self.metadata.origin(stripe),
            streams,
            encodings: &stripe.encodings,
            timezone: stripe.timezone.as_deref(),
        };
        Ok((streams, bytes))
    }

    async fn read(
        &self,
        selected: impl Iterator<Item = &StreamRange>,
        buffers: Option<&Arc<dyn ReadBuffers>>,
    ) -> Result<Vec<Stream>> {
        let selected: Vec<&StreamRange> = selected.collect();
        let ranges: Vec<Range<u64>> = selected.iter().map(|stream| stream.bytes.clone()).collect();
        let object = &self.metadata.object;
        let read = object.read(&self.handle, &ranges, buffers).await?;
        let streams = selected.into_iter().zip(read);
        let streams = streams.map(|(stream, bytes)| Stream {
            kind: stream.kind,
            column: stream.column,
            bytes,
            codec: self.metadata.codec,
        });
        Ok(streams.collect())
    }

    /// The index streams of one kind for columns of the table: an entry per column, if it has one.
    async fn read_index(
        &self,
        stripe: &Stripe,
        columns: &[usize],
        kind: StreamKind,
    ) -> Result<Vec<Option<Stream>>> {
        let numbers = columns
            .iter()
            .map(|&column| Ok(self.metadata.column(column)?.column));
        let numbers: Vec<u32> = numbers.collect::<Result<_>>()?;
        let is_selected =
            |stream: &&StreamRange| stream.kind == kind && numbers.contains(&stream.column);
        let selected = stripe.streams.iter().filter(is_selected);
        let streams = self.read(selected, None).await?;
        let of = |number: &u32| {
            streams
                .iter()
                .find(|stream| stream.column == *number)
                .cloned()
        };
        Ok(numbers.iter().map(of).collect())
    }

    async fn read_row_group(&self, fetch: &Fetch) -> Result<RowGroupData> {
        let columns = self.metadata.root.children.len();
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: 0,
            bytes_cached: 0,
            excess_bytes: 0,
        };
        let stripe = self.metadata.stripe(fetch.row_group)?;
        let indexes = self
            .read_index(stripe, &fetch.zones, StreamKind::RowIndex)
            .await?;
        for (&column, index) in fetch.zones.iter().zip(indexes) {
            let (Some(index), Some(slot)) = (index, data.zones.get_mut(column)) else {
                continue;
            };
            data.bytes_read += index.bytes.len() as u64;
            let zones = self.vector_zones(stripe, self.metadata.column(column)?, &index);
            *slot = zones
                .map_err(|fault| self.origin(stripe, column).stream(index.kind).fault(fault))?;
        }
        let (streams, bytes) = self.stripe_streams(fetch.row_group, &fetch.data).await?;
        data.bytes_read += bytes;
        let mut held = 0;
        for &column in &fetch.data {
            let of_type = self.metadata.column(column)?;
            let of_encodings = |error| self.of_encodings(stripe, column, error);
            let codes = match streams.numbered(of_type, stripe.rows)? {
                Some(text) => codes(&text).map_err(of_encodings)?,
                None => None,
            };
            let (decoded, bytes) = match codes {
                Some(codes) => codes,
                None => {
                    let array = streams.decode(of_type, stripe.rows)?;
                    let column = Column::plain(&array).map_err(of_encodings)?;
                    (column, array.get_array_memory_size())
                }
            };
            held += bytes;
            if let Some(slot) = data.columns.get_mut(column) {
                *slot = Some(decoded);
            }
            // decoding a column may take long
            yield_now().await;
        }
        data.excess_bytes = held.saturating_sub(self.data_bytes(fetch.row_group, &fetch.data));
        Ok(data)
    }

    /// The zone map of the vectors of a stripe, from the statistics of its index groups.
    fn vector_zones(
        &self,
        stripe: &Stripe,
        column: &Type,
        index: &Stream,
    ) -> Result<Option<ZoneMap>, Fault> {
        let stride = self.metadata.row_index_stride;
        let stride = stride.and_then(|stride| usize::try_from(stride).ok());
        let Some((stride, groups)) = stride.zip(self.metadata.index_groups(stripe)) else {
            return Ok(None);
        };
        let entries = row_index(&index.inflate_up_to(MAX_INDEX_BYTES)?, groups)?;
        if entries.len() != groups {
            return Ok(None);
        }
        let starts = (0..stripe.rows).step_by(stride);
        let groups = Zones {
            rows: starts
                .map(|start| stride.min(stripe.rows - start) as u64)
                .collect(),
            statistics: entries
                .iter()
                .map(|entry| Some(&entry.statistics))
                .collect(),
            writer: self.metadata.writer,
        };
        let vectors = vectors::of_groups(&groups.of_column(column), stride, stripe.rows);
        vectors
            .map(Some)
            .map_err(|error| Fault::Corrupt(error.to_string()))
    }

    async fn read_bloom_filters(
        &self,
        stripe: usize,
        columns: &[usize],
    ) -> Result<Vec<Box<dyn ValueFilter>>> {
        let stripe = self.metadata.stripe(stripe)?;
        let streams = self
            .read_index(stripe, columns, StreamKind::BloomFilterUtf8)
            .await?;
        let groups = self.metadata.index_groups(stripe);
        let filters = columns.iter().zip(streams).map(|(&column, stream)| {
            let mut messages = match stream.zip(groups) {
                Some((stream, groups)) => stream
                    .inflate_up_to(MAX_INDEX_BYTES)
                    .and_then(|bytes| bloom_filters(&bytes, groups)),
                None => Ok(Vec::new()),
            };
            // rows without a filter may have any value
            if let Ok(messages) = &mut messages
                && Some(messages.len()) != groups
            {
                messages.clear();
            }
            let origin = || {
                self.origin(stripe, column)
                    .stream(StreamKind::BloomFilterUtf8)
            };
            let messages = messages.map_err(|fault| origin().fault(fault))?;
            Ok(Box::new(BloomFilters::new(messages)) as _)
        });
        filters.collect()
    }

    fn origin(&self, stripe: &Stripe, column: usize) -> ErrorOrigin {
        let origin = self.metadata.origin(stripe);
        match self.metadata.root.children.get(column) {
            Some(column) => origin.column(&column.path),
            None => origin,
        }
    }

    fn of_encodings(
        &self,
        stripe: &Stripe,
        column: usize,
        error: vectile_encodings::Error,
    ) -> Error {
        let fault = match error {
            vectile_encodings::Error::Corrupt { .. } => Fault::Corrupt(error.to_string()),
            error => Fault::Unsupported(error.to_string()),
        };
        self.origin(stripe, column).fault(fault)
    }

    /// Estimated bytes that a column of the table takes in memory while it is fetched; lengths of text are not known.
    fn column_bytes(&self, stripe: &Stripe, column: &Type) -> u64 {
        let mut columns = Vec::new();
        column.visit_columns(&mut |column| columns.push(column));
        let streams = stripe.streams.iter();
        let streams =
            streams.filter(|stream| stream.kind.is_of_values() && columns.contains(&stream.column));
        let bytes: u64 = streams
            .map(|stream| stream.bytes.end - stream.bytes.start)
            .sum();
        let rows = stripe.rows as u64;
        match column.data_type.primitive_width() {
            Some(width) => bytes + rows.saturating_mul(width as u64),
            None => bytes
                .saturating_mul(INFLATED)
                .saturating_add(rows.saturating_mul(4)),
        }
    }
}

/// Estimated bytes of text per stored byte.
const INFLATED: u64 = 4;

/// Text in a dictionary as a column of a scan, and its bytes; `None` if its entries cannot be encoded.
fn codes(text: &Numbered) -> vectile_encodings::Result<Option<(Column, usize)>> {
    let Numbered {
        entries,
        numbers,
        nulls,
    } = text;
    let column = Column::of_codes(entries, numbers, nulls.as_ref())?;
    let bytes = entries.get_array_memory_size() + size_of_val(&numbers[..]);
    Ok(column.map(|column| (column, bytes)))
}

#[async_trait]
impl Container for File {
    fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    fn num_row_groups(&self) -> usize {
        self.metadata.stripes().len()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.metadata
            .stripes()
            .get(row_group)
            .map_or(0, |stripe| stripe.rows)
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.metadata.stripe_zones(column)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let Some(stripe) = self.metadata.stripes().get(row_group) else {
            return 0;
        };
        let columns = columns
            .iter()
            .filter_map(|&column| self.metadata.root.children.get(column));
        let bytes = columns.map(|column| self.column_bytes(stripe, column));
        usize::try_from(bytes.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    async fn fetch(&self, fetch: &Fetch) -> vectile_scan::Result<RowGroupData> {
        self.read_row_group(fetch)
            .await
            .map_err(vectile_scan::Error::external)
    }

    fn has_bloom_filter(&self, row_group: usize, column: usize) -> bool {
        let stripe = self.metadata.stripes().get(row_group);
        let column = self.metadata.root.children.get(column);
        let column = column.filter(|column| BloomFilters::apply_to(column.kind));
        stripe.zip(column).is_some_and(|(stripe, column)| {
            let mut streams = stripe.streams.iter();
            streams.any(|stream| {
                stream.kind == StreamKind::BloomFilterUtf8 && stream.column == column.column
            })
        })
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
        let error = match self.metadata.stripe(row_group) {
            Ok(stripe) => self.of_encodings(stripe, column, source),
            Err(error) => error,
        };
        vectile_scan::Error::external(error)
    }
}
