//! Reads a table: the footer first, then only the requested columns of each row group.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use bytes::{Bytes, BytesMut};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::{BloomFilter, Column, VECTOR_LEN, ZoneMap};
use vectile_scan::object::{Handle, ReadBuffers, ReadOptions, Version};
use vectile_scan::{Fetch, RowGroupData};

use crate::compression::decompress;
use crate::encode::{EncodedColumn, EncodedRowGroup};
use crate::error::{Error, FilePosition, Result};
use crate::ipc::{self, FooterPointer, HEADER, TRAILER_BYTES};
use crate::metadata::{Bloom, Compression, Metadata, RowGroup};
use crate::summary::EncodeTime;
use crate::writer::join;
use crate::{FORMAT_VERSION, footer};

/// Bytes read from the end of a file first; usually the footer is in them.
const TAIL_BYTES: u64 = 64 << 10;

/// A larger footer is refused rather than read into memory: it would be of some ten million column chunks.
const MAX_FOOTER_BYTES: u64 = 1 << 30;

/// Reads the footer of a file: one request for its end, and another only if the footer is larger than 64 KiB.
///
/// # Errors
///
/// [`Error::NotVectile`], [`Error::UnsupportedVersion`], [`Error::Corrupt`], [`Error::Changed`] if the store has
/// another version by now than `object`, and those of the object store.
pub async fn read_metadata(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Metadata> {
    let file = object.location.to_string();
    let position = FilePosition::file(&file);
    let size = object.size;
    if size < HEADER.len() as u64 + TRAILER_BYTES {
        return Err(position.not_vectile(format!("it has only {size} bytes")));
    }
    let handle = Handle::default();
    let version = Version {
        store,
        location: &object.location,
        e_tag: object.e_tag.as_deref(),
        handle: &handle,
        buffers: None,
    };
    let mut tail = Tail::read(version, size, position).await?;
    let trailer = tail.bytes(size - TRAILER_BYTES..size)?;
    let arrow_footer = ipc::arrow_footer_range(&trailer, size, position)?;
    tail.extend_to(arrow_footer.start).await?;
    let pointer = ipc::footer_pointer(&tail.bytes(arrow_footer.clone())?, position)?;
    let range = footer_range(pointer, arrow_footer.start, position)?;
    tail.extend_to(range.start).await?;
    let footer = tail.bytes(range.clone())?;
    if crc32fast::hash(&footer) != pointer.crc32 {
        return Err(position.corrupt("the footer's checksum is wrong"));
    }
    let mut metadata = footer::parse(&footer, pointer.version, range.start, &file)?;
    metadata.footer_bytes = size - range.start;
    metadata.checksum = pointer.crc32;
    metadata.e_tag = object.e_tag.clone();
    metadata.is_file = tail.is_file;
    Ok(metadata)
}

fn footer_range(
    pointer: FooterPointer,
    end: u64,
    position: FilePosition<'_>,
) -> Result<Range<u64>> {
    let FooterPointer { offset, len, .. } = pointer;
    match offset.checked_add(len) {
        Some(footer_end) if footer_end <= end && offset >= HEADER.len() as u64 => {
            Ok(offset..footer_end)
        }
        _ => Err(position.corrupt(format!(
            "a footer of {len} bytes at {offset}, with {end} bytes before the Arrow footer"
        ))),
    }
}

/// The end of a file, from some offset on.
struct Tail<'a> {
    version: Version<'a>,
    position: FilePosition<'a>,
    size: u64,
    start: u64,
    bytes: Bytes,
    is_file: bool,
}

impl<'a> Tail<'a> {
    async fn read(version: Version<'a>, size: u64, position: FilePosition<'a>) -> Result<Self> {
        let start = size.saturating_sub(TAIL_BYTES);
        let mut tail = Self {
            version,
            position,
            size,
            start: size,
            bytes: Bytes::new(),
            is_file: false,
        };
        tail.extend_to(start).await?;
        Ok(tail)
    }

    /// Extends the tail to `start`, and by some more that probably has the rest of the footer.
    async fn extend_to(&mut self, start: u64) -> Result<()> {
        if start >= self.start {
            return Ok(());
        }
        if self.size - start > MAX_FOOTER_BYTES {
            let bytes = self.size - start;
            return Err(self.position.corrupt(format!("a footer of {bytes} bytes")));
        }
        let start = match self.bytes.is_empty() {
            true => start,
            false => start.saturating_sub(4 * (self.size - start).min(MAX_FOOTER_BYTES / 64)),
        };
        let range = start..self.start;
        let mut read = self.version.read(std::slice::from_ref(&range)).await?;
        self.is_file = read.is_file;
        let missing = read.bytes.pop().unwrap_or_default();
        check_len(&missing, self.start - start, self.position)?;
        self.bytes = if self.bytes.is_empty() {
            missing
        } else {
            let mut joined = BytesMut::with_capacity(missing.len() + self.bytes.len());
            joined.extend_from_slice(&missing);
            joined.extend_from_slice(&self.bytes);
            joined.freeze()
        };
        self.start = start;
        Ok(())
    }

    /// Bytes of the file that are in the tail.
    fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        let inside =
            self.start <= range.start && range.start <= range.end && range.end <= self.size;
        if !inside {
            let reason = format!("bytes {range:?} are not in the tail from {}", self.start);
            return Err(Error::Internal(reason));
        }
        let start = (range.start - self.start) as usize;
        Ok(self
            .bytes
            .slice(start..start + (range.end - range.start) as usize))
    }
}

/// Checks the length: stores return less if a file has become shorter since it was listed.
fn check_len(bytes: &Bytes, expected: u64, position: FilePosition<'_>) -> Result<()> {
    if bytes.len() as u64 == expected {
        return Ok(());
    }
    let actual = bytes.len();
    Err(position.corrupt(format!(
        "{actual} bytes were read where {expected} should be"
    )))
}

/// Reads columns and zone maps of one row group. Ranges near each other are fetched together and distant ones in
/// parallel; buffers are slices of what was fetched.
///
/// Call it twice to evaluate the zones of filter columns before fetching any values.
///
/// # Errors
///
/// [`Error::InvalidArgument`] if the row group or a column does not exist, [`Error::Corrupt`] with row group and
/// column, [`Error::Changed`] if the store has another version by now than that of `metadata`, and those of the object
/// store.
pub async fn read_row_group(
    store: &Arc<dyn ObjectStore>,
    location: &Path,
    metadata: &Metadata,
    fetch: &Fetch,
    options: &ReadOptions,
) -> Result<RowGroupData> {
    read_row_group_from(
        &Handle::default(),
        store,
        location,
        metadata,
        fetch,
        options,
        false,
    )
    .await
}

/// As [`read_row_group`], from a file that stays open for several row groups. If `apart`, no buffer is a slice of what
/// was fetched for several.
pub(crate) async fn read_row_group_from(
    handle: &Handle,
    store: &Arc<dyn ObjectStore>,
    location: &Path,
    metadata: &Metadata,
    fetch: &Fetch,
    options: &ReadOptions,
    apart: bool,
) -> Result<RowGroupData> {
    let row_group = metadata.try_row_group(fetch.row_group)?;
    let parts = parts_to_read(row_group, fetch)?;
    let ranges: Vec<Range<u64>> = parts.iter().map(|part| part.range.clone()).collect();
    let buffers = options.buffers.as_ref();
    let fetched = fetch_ranges(handle, store, location, metadata, buffers, &ranges).await?;

    let columns = row_group.columns.len();
    let mut data = RowGroupData {
        columns: (0..columns).map(|_| None).collect(),
        zones: (0..columns).map(|_| None).collect(),
        bytes_cached: 0,
        excess_bytes: 0,
        bytes_read: ranges.iter().map(|range| range.end - range.start).sum(),
    };
    for (part, bytes) in parts.iter().zip(fetched) {
        let position = metadata.position(fetch.row_group, part.column);
        part.check(&bytes, options, position)?;
        let chunk = &row_group.columns[part.column];
        let bytes = match chunk.compression {
            Compression::Zstd if part.kind == Kind::Data => {
                let data = decompress(&bytes, chunk.data_bytes);
                data.map_err(|reason| position.corrupt(reason))?.into()
            }
            // ranges of a local file are read one by one
            _ if apart && !metadata.is_file && parts.len() > 1 => Bytes::copy_from_slice(&bytes),
            _ => bytes,
        };
        let data_type = metadata.schema.field(part.column).data_type();
        let bytes = Buffer::from(bytes);
        match part.kind {
            // one vector: its zone map is not stored again
            Kind::Zones if part.range.is_empty() && row_group.rows <= VECTOR_LEN => {
                let zones = &metadata.statistics[part.column];
                data.zones[part.column] = Some(zones.slice(fetch.row_group, 1));
            }
            Kind::Zones => {
                let zones = row_group.rows.div_ceil(VECTOR_LEN);
                let zones = ZoneMap::parse_version(bytes, data_type, zones, metadata.version);
                data.zones[part.column] = Some(zones.map_err(|error| position.encoding(error))?);
            }
            Kind::Data => {
                let rows = row_group.rows;
                let column = Column::parse_version(bytes, data_type, rows, metadata.version);
                data.columns[part.column] = Some(column.map_err(|error| position.encoding(error))?);
            }
        }
    }
    Ok(data)
}

/// Reads ascending ranges of the version of a file that has this footer.
async fn fetch_ranges(
    handle: &Handle,
    store: &Arc<dyn ObjectStore>,
    location: &Path,
    metadata: &Metadata,
    buffers: Option<&Arc<dyn ReadBuffers>>,
    ranges: &[Range<u64>],
) -> Result<Vec<Bytes>> {
    let version = Version {
        store,
        location,
        e_tag: metadata.e_tag.as_deref(),
        handle,
        buffers,
    };
    Ok(version.fetch(ranges, metadata.is_file).await?)
}

/// Reads a row group as it is encoded, without parsing it. Compressed values are decompressed.
///
/// # Errors
///
/// As [`read_row_group`]; [`Error::InvalidArgument`] also if the file is of an older format version.
pub(crate) async fn read_encoded(
    handle: &Handle,
    store: &Arc<dyn ObjectStore>,
    location: &Path,
    metadata: &Metadata,
    row_group: usize,
) -> Result<EncodedRowGroup> {
    let chunks = metadata.try_row_group(row_group)?;
    if metadata.version != FORMAT_VERSION {
        let version = metadata.version;
        return Err(Error::InvalidArgument(format!(
            "{location} is of format version {version}, whose row groups have to be decoded"
        )));
    }
    // in file order
    let parts = chunks.columns.iter().flat_map(|chunk| {
        let bloom = chunk.bloom.as_ref();
        let bloom = bloom.map_or(chunk.zones.end..chunk.zones.end, |bloom| {
            bloom.bytes.clone()
        });
        [chunk.zones.clone(), bloom, chunk.data.clone()]
    });
    let parts: Vec<Range<u64>> = parts.collect();
    let fetched = fetch_ranges(handle, store, location, metadata, None, &parts).await?;
    let columns = chunks.columns.iter().zip(fetched.as_chunks::<3>().0);
    let columns = columns.enumerate().map(|(column, (chunk, parts))| {
        let position = metadata.position(row_group, column);
        let [zones, bloom, data] = parts;
        let options = ReadOptions::default();
        let check = |bytes: &Bytes, range: &Range<u64>, crc32, what| {
            check_len(bytes, range.end - range.start, position)?;
            check_crc32(bytes, crc32, what, &options, position)
        };
        check(zones, &chunk.zones, chunk.zones_crc32, "zone map")?;
        if let Some(known) = &chunk.bloom {
            check(bloom, &known.bytes, known.crc32, "Bloom filter")?;
        }
        check(data, &chunk.data, chunk.data_crc32, "values")?;
        let data: Bytes = match chunk.compression {
            // not a slice of what was fetched for several
            Compression::None => Bytes::copy_from_slice(data),
            Compression::Zstd => {
                let data = decompress(data, chunk.data_bytes);
                data.map_err(|reason| position.corrupt(reason))?.into()
            }
        };
        let statistics = metadata.statistics.get(column);
        let statistics = statistics.ok_or_else(|| position.corrupt("it has no statistics"))?;
        Ok(EncodedColumn {
            data_type: metadata.schema.field(column).data_type().clone(),
            data_crc32: crc32fast::hash(&data),
            compression: Compression::None,
            data_bytes: data.len() as u64,
            data,
            zones: Bytes::copy_from_slice(zones),
            zones_crc32: chunk.zones_crc32,
            bloom: chunk.bloom.is_some().then(|| Bytes::copy_from_slice(bloom)),
            // not a slice of those of all row groups
            statistics: join(&[statistics.slice(row_group, 1), statistics.slice(0, 0)])?,
            encoding: Arc::clone(&chunk.encoding),
            arrow_bytes: chunk.arrow_bytes,
            time: EncodeTime::default(),
        })
    });
    Ok(EncodedRowGroup {
        rows: chunks.rows,
        columns: columns.collect::<Result<_>>()?,
    })
}

/// Reads the Bloom filters of `columns`, which ascend, in one row group.
///
/// # Errors
///
/// As [`read_row_group`]; [`Error::InvalidArgument`] also if a column has none.
pub(crate) async fn read_bloom_filters(
    handle: &Handle,
    store: &Arc<dyn ObjectStore>,
    location: &Path,
    metadata: &Metadata,
    row_group: usize,
    columns: &[usize],
    options: &ReadOptions,
) -> Result<Vec<BloomFilter>> {
    let chunks = &metadata.try_row_group(row_group)?.columns;
    let bloom = |&column: &usize| {
        let bloom = chunks.get(column).and_then(|chunk| chunk.bloom.as_ref());
        let none = || Error::InvalidArgument(format!("column {column} has no Bloom filter"));
        bloom.ok_or_else(none)
    };
    let blooms: Vec<&Bloom> = columns.iter().map(bloom).collect::<Result<_>>()?;
    let ranges: Vec<Range<u64>> = blooms.iter().map(|bloom| bloom.bytes.clone()).collect();
    let fetched = fetch_ranges(handle, store, location, metadata, None, &ranges).await?;
    let filters = columns.iter().zip(blooms).zip(fetched);
    let filters = filters.map(|((&column, bloom), bytes)| {
        let position = metadata.position(row_group, column);
        check_len(&bytes, bloom.bytes.end - bloom.bytes.start, position)?;
        check_crc32(&bytes, bloom.crc32, "Bloom filter", options, position)?;
        // a slice would hold what was fetched for all
        BloomFilter::parse(Buffer::from(&bytes[..])).map_err(|error| position.encoding(error))
    });
    filters.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Zones,
    Data,
}

/// A range to read.
#[derive(Debug)]
struct ReadPart {
    column: usize,
    kind: Kind,
    range: Range<u64>,
    crc32: u32,
}

impl ReadPart {
    fn check(
        &self,
        bytes: &Bytes,
        options: &ReadOptions,
        position: FilePosition<'_>,
    ) -> Result<()> {
        check_len(bytes, self.range.end - self.range.start, position)?;
        let what = match self.kind {
            Kind::Zones => "zone map",
            Kind::Data => "values",
        };
        check_crc32(bytes, self.crc32, what, options, position)
    }
}

fn check_crc32(
    bytes: &Bytes,
    crc32: u32,
    what: &str,
    options: &ReadOptions,
    position: FilePosition<'_>,
) -> Result<()> {
    match options.verify_checksums && crc32fast::hash(bytes) != crc32 {
        true => Err(position.corrupt(format!("the checksum of its {what} is wrong"))),
        false => Ok(()),
    }
}

/// The parts to read, in file order and without duplicates.
fn parts_to_read(row_group: &RowGroup, fetch: &Fetch) -> Result<Vec<ReadPart>> {
    let zones = fetch.zones.iter().map(|column| (*column, Kind::Zones));
    let data = fetch.data.iter().map(|column| (*column, Kind::Data));
    let mut parts_to_read: Vec<(usize, Kind)> = zones.chain(data).collect();
    parts_to_read.sort_unstable();
    parts_to_read.dedup();
    parts_to_read
        .into_iter()
        .map(|(column, kind)| {
            let chunk = row_group.columns.get(column).ok_or_else(|| {
                let count = row_group.columns.len();
                Error::InvalidArgument(format!("a table of {count} columns has no column {column}"))
            })?;
            let (range, crc32) = match kind {
                Kind::Zones => (chunk.zones.clone(), chunk.zones_crc32),
                Kind::Data => (chunk.data.clone(), chunk.data_crc32),
            };
            Ok(ReadPart {
                column,
                kind,
                range,
                crc32,
            })
        })
        .collect()
}
