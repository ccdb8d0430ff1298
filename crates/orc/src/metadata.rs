//! The metadata of a file, checked and in memory.
//!
//! ```text
//! "ORC" | stripes | statistics of stripes | footer | postscript | u8: bytes of the postscript
//! stripe: index streams | streams of values | footer
//! ```
//!
//! Files are read from their end. Everything but the postscript is in compression chunks.

use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::{MAX_ROWS, ZoneMap};
use vectile_scan::object::{Handle, Object};

use crate::compression::{Codec, Compression, DEFAULT_BLOCK_BYTES};
use crate::error::{Error, ErrorOrigin, Fault, Result, corrupt, ensure};
use crate::kind::{Encoding, StreamKind};
use crate::messages::{
    ColumnStatistics, Footer, MAX_STRIPE_ENTRIES, PostScript, StripeFooter, StripeInformation,
    stripe_statistics,
};
use crate::schema::Type;
use crate::statistics::{Writer, Zones};

/// Bytes read first; most footers fit.
const TAIL_BYTES: u64 = 64 << 10;

/// The most bytes of footer and statistics of stripes.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// The most bytes of a stripe's footer. All footers are kept.
const MAX_STRIPE_FOOTER_BYTES: usize = 16 << 20;

/// The most bytes of the index of a column in a stripe.
pub(crate) const MAX_INDEX_BYTES: usize = 256 << 20;

/// The most index groups of a stripe that are used.
const MAX_INDEX_GROUPS: usize = 1 << 20;

const MAGIC: &str = "ORC";

/// A file's schema and stripes, and the positions of their streams.
#[derive(Debug)]
pub struct Metadata {
    pub(crate) object: Object,
    schema: SchemaRef,
    pub(crate) root: Type,
    pub(crate) codec: Codec,
    rows: u64,
    /// Rows of an index group, if there are any.
    pub(crate) row_index_stride: Option<u64>,
    pub(crate) writer: Writer,
    stripes: Vec<Stripe>,
    /// Statistics of the stripes, by column of the table, if the file has them.
    zones: Vec<ZoneMap>,
    checksum: u32,
}

impl Metadata {
    /// The number of index groups in a stripe's indexes; `None` if there are none, or too many to be useful.
    pub(crate) fn index_groups(&self, stripe: &Stripe) -> Option<usize> {
        let stride = usize::try_from(self.row_index_stride?).ok()?;
        let groups = stripe.rows.div_ceil(stride);
        (groups <= MAX_INDEX_GROUPS).then_some(groups)
    }
}

/// A stripe: rows, and the streams of their columns.
#[derive(Debug)]
pub struct Stripe {
    /// Rows, one at least.
    pub rows: usize,
    /// The bytes of the file that hold it.
    pub bytes: Range<u64>,
    /// Its streams, in file order.
    pub streams: Vec<StreamRange>,
    /// Encodings of its columns, by column number.
    pub encodings: Vec<Encoding>,
    /// The writer's timezone, which its timestamps depend on.
    pub timezone: Option<String>,
    /// Its index in the file.
    pub(crate) number: usize,
}

/// The position of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRange {
    /// Its purpose.
    pub kind: StreamKind,
    /// Its column, by number in the file.
    pub column: u32,
    /// The bytes of the file that hold it.
    pub bytes: Range<u64>,
}

impl Metadata {
    /// The location of the file in its object store.
    pub fn file(&self) -> &str {
        self.object.file()
    }

    /// The schema of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The root of the column types: its children are the columns of the table.
    pub fn root(&self) -> &Type {
        &self.root
    }

    /// Rows in the file.
    pub fn num_rows(&self) -> u64 {
        self.rows
    }

    /// The stripes that have rows, in file order.
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// The compression of streams.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Bounds and null counts of a column of the table, one entry for each stripe, if the file has them.
    pub fn stripe_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.zones.get(column)
    }

    /// CRC-32 of the bytes of footer and statistics: most files with other content have another one.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Approximate bytes of memory that this takes.
    pub fn memory_size(&self) -> usize {
        let of_stripe = |stripe: &Stripe| {
            size_of::<Stripe>()
                + stripe.streams.len() * size_of::<StreamRange>()
                + stripe.encodings.len() * size_of::<Encoding>()
        };
        let zones = |zones: &ZoneMap| {
            let bounds = zones.min.get_array_memory_size() + zones.max.get_array_memory_size();
            bounds + zones.len() * size_of::<u64>()
        };
        size_of::<Self>()
            + 2 * self.schema.fields().size()
            + self.stripes.iter().map(of_stripe).sum::<usize>()
            + self.zones.iter().map(zones).sum::<usize>()
    }

    /// The stripe of this index; an error if there is none.
    pub(crate) fn stripe(&self, number: usize) -> Result<&Stripe> {
        self.stripes.get(number).ok_or_else(|| {
            let count = self.stripes.len();
            Error::InvalidArgument(format!("{} has {count} stripes, no {number}", self.file()))
        })
    }

    /// The column of the table with this index; an error if there is none.
    pub(crate) fn column(&self, number: usize) -> Result<&Type> {
        self.root.children.get(number).ok_or_else(|| {
            let count = self.root.children.len();
            Error::InvalidArgument(format!("a table of {count} columns has no column {number}"))
        })
    }

    /// The position of a stripe, for errors.
    pub(crate) fn origin(&self, stripe: &Stripe) -> ErrorOrigin {
        ErrorOrigin::file(self.object.file()).stripe(stripe.number)
    }
}

/// Reads the metadata of a file: its end, and the footers of its stripes.
///
/// # Errors
///
/// [`Error::NotOrc`], [`Error::Corrupt`], [`Error::Unsupported`] if the file is compressed by LZO, encrypted, or has
/// types that Arrow lacks; [`Error::Changed`] if the store has another version by now than `object`, and those of the
/// object store.
pub async fn read_metadata(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Metadata> {
    let size = object.size;
    let mut object = Object::new(Arc::clone(store), object);
    let handle = Handle::default();
    let origin = ErrorOrigin::file(object.file());
    let in_file = |fault: Fault| origin.clone().fault(fault);
    let not_orc = |reason: String| Error::NotOrc {
        file: Arc::clone(&origin.file),
        reason,
    };

    let start = size.saturating_sub(TAIL_BYTES);
    let mut tail = object.read_one(&handle, start..size).await?;
    let Some((&postscript_bytes, rest)) = tail.split_last() else {
        return Err(not_orc("it is empty".into()));
    };
    let end = rest.len().checked_sub(postscript_bytes.into());
    let postscript = end.and_then(|end| rest.get(end..)).map(PostScript::parse);
    let postscript = match postscript {
        Some(Ok(postscript)) if postscript.magic == MAGIC => postscript,
        _ => return Err(not_orc("it does not end with a postscript of ORC".into())),
    };
    let codec = codec(&postscript).map_err(in_file)?;
    let after = 1 + u64::from(postscript_bytes);
    let footers = postscript
        .footer_bytes
        .checked_add(postscript.metadata_bytes);
    let Some(footers) = footers.filter(|&bytes| bytes <= MAX_FOOTER_BYTES && bytes <= size - after)
    else {
        let (a, b) = (postscript.footer_bytes, postscript.metadata_bytes);
        let reason = format!("a footer of {a} bytes and statistics of {b}, in a file of {size}");
        return Err(in_file(Fault::Corrupt(reason)));
    };
    let footers_start = size - after - footers;
    if footers_start < start {
        tail = object.read_one(&handle, footers_start..size).await?;
    }
    // both are in the tail, which extends to the end of the file
    let in_tail = |from_end: u64, bytes: u64| {
        let end = tail.len().saturating_sub(from_end as usize);
        tail.slice(end.saturating_sub(bytes as usize)..end)
    };
    let footer_bytes = in_tail(after, postscript.footer_bytes);
    let statistics = in_tail(after + postscript.footer_bytes, postscript.metadata_bytes);
    let checksum = crc32fast::hash(&in_tail(after, footers));
    let footer = codec
        .inflate_up_to(&footer_bytes, MAX_FOOTER_BYTES as usize)
        .and_then(|bytes| Footer::parse(&bytes));
    let footer = footer.map_err(in_file)?;
    ensure_plain(footer.is_encrypted).map_err(in_file)?;
    let root = Type::root(&footer.types).map_err(in_file)?;
    let (stripes, columns) = (footer.stripes.len(), footer.types.len());
    let statistics = codec
        .inflate_up_to(&statistics, MAX_FOOTER_BYTES as usize)
        .and_then(|bytes| stripe_statistics(&bytes, stripes, columns));
    let statistics = statistics.map_err(in_file)?;

    let stripes = read_stripes(&object, &handle, &footer, codec, footers_start).await?;
    let writer = Writer {
        number: footer.writer,
        version: postscript.writer_version,
    };
    Ok(Metadata {
        schema: root.schema(),
        zones: zones(&root, &footer, &statistics, &stripes, writer),
        codec,
        rows: footer.rows,
        row_index_stride: Some(footer.row_index_stride).filter(|&stride| stride > 0),
        writer,
        stripes,
        root,
        checksum,
        object,
    })
}

fn codec(postscript: &PostScript) -> Result<Codec, Fault> {
    let compression = Compression::of_code(postscript.compression)?;
    let block_bytes = match compression {
        Compression::None => DEFAULT_BLOCK_BYTES,
        _ => postscript.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
    };
    Codec::try_new(compression, block_bytes)
}

fn ensure_plain(is_encrypted: bool) -> Result<(), Fault> {
    match is_encrypted {
        true => Err(Fault::Unsupported("encrypted columns are not read".into())),
        false => Ok(()),
    }
}

/// Reads the footers of the stripes that have rows. Stripes end before `end`, and each starts at or after the end of
/// the one before: so all their footers together are no larger than the file.
async fn read_stripes(
    object: &Object,
    handle: &Handle,
    footer: &Footer,
    codec: Codec,
    end: u64,
) -> Result<Vec<Stripe>> {
    let in_file = |fault: Fault| ErrorOrigin::file(object.file()).fault(fault);
    let mut rows = 0u64;
    let mut free = 0..end;
    let mut stripe_parts = Vec::new();
    for (number, stripe) in footer.stripes.iter().enumerate() {
        // stripes without rows are not read
        if stripe.rows == 0 {
            continue;
        }
        let parts = StripeParts::of(stripe, &free)
            .map_err(|fault| ErrorOrigin::file(object.file()).stripe(number).fault(fault))?;
        rows = rows.saturating_add(stripe.rows);
        free.start = parts.footer.end;
        stripe_parts.push((number, stripe, parts));
    }
    ensure(rows == footer.rows, || {
        format!("{rows} rows in stripes, {} in the file", footer.rows)
    })
    .map_err(in_file)?;
    let ranges: Vec<Range<u64>> = stripe_parts
        .iter()
        .map(|(_, _, parts)| parts.footer.clone())
        .collect();
    let footers = object.read(handle, &ranges, None).await?;
    let stripes = stripe_parts.into_iter().zip(footers);
    let mut entries = MAX_STRIPE_ENTRIES;
    let stripes = stripes.map(|((number, stripe, parts), bytes)| {
        let message = codec
            .inflate_up_to(&bytes, MAX_STRIPE_FOOTER_BYTES)
            .and_then(|bytes| StripeFooter::parse(&bytes, footer.types.len(), &mut entries));
        let parsed = message.and_then(|message| parts.stripe(number, stripe, message));
        parsed.map_err(|fault| ErrorOrigin::file(object.file()).stripe(number).fault(fault))
    });
    stripes.collect()
}

/// The positions of the parts of a stripe.
struct StripeParts {
    streams: Range<u64>,
    footer: Range<u64>,
}

impl StripeParts {
    /// The position of a stripe within the `free` bytes, which no earlier stripe has.
    fn of(stripe: &StripeInformation, free: &Range<u64>) -> Result<Self, Fault> {
        let streams_end = stripe.offset.checked_add(stripe.index_bytes);
        let streams_end = streams_end.and_then(|offset| offset.checked_add(stripe.data_bytes));
        let footer =
            streams_end.and_then(|start| Some(start..start.checked_add(stripe.footer_bytes)?));
        let is_free = |footer: &Range<u64>| stripe.offset >= free.start && footer.end <= free.end;
        let Some(footer) = footer.filter(is_free) else {
            return corrupt(format!("{stripe:?} in bytes {free:?}"));
        };
        ensure(!footer.is_empty(), || "it has no footer".into())?;
        ensure(stripe.rows <= MAX_ROWS as u64, || {
            format!("{} rows, at most {MAX_ROWS}", stripe.rows)
        })?;
        Ok(Self {
            streams: stripe.offset..footer.start,
            footer,
        })
    }

    /// The stripe with this footer.
    fn stripe(
        self,
        number: usize,
        stripe: &StripeInformation,
        footer: StripeFooter,
    ) -> Result<Stripe, Fault> {
        ensure_plain(footer.is_encrypted)?;
        let mut start = self.streams.start;
        let streams = footer.streams.into_iter().map(|(kind, column, length)| {
            let end = start
                .checked_add(length)
                .filter(|&end| end <= self.streams.end);
            let Some(end) = end else {
                return corrupt(format!(
                    "stream {kind} of column {column} has {length} bytes, which end outside"
                ));
            };
            let bytes = start..end;
            start = end;
            if column == 0 && kind == StreamKind::Present {
                return Err(Fault::Unsupported("rows that are null as a whole".into()));
            }
            Ok(StreamRange {
                kind,
                column,
                bytes,
            })
        });
        Ok(Stripe {
            rows: stripe.rows as usize,
            streams: streams.collect::<Result<_, _>>()?,
            bytes: self.streams.start..self.footer.end,
            encodings: footer.encodings,
            timezone: footer.timezone,
            number,
        })
    }
}

/// The zone maps of the table's columns, if every stripe has statistics.
fn zones(
    root: &Type,
    footer: &Footer,
    statistics: &[Vec<ColumnStatistics>],
    stripes: &[Stripe],
    writer: Writer,
) -> Vec<ZoneMap> {
    // complete, or else few bytes could make many entries
    let is_full = |columns: &Vec<ColumnStatistics>| columns.len() == footer.types.len();
    if statistics.len() != footer.stripes.len()
        || !statistics.iter().all(is_full)
        || stripes.is_empty()
    {
        return Vec::new();
    }
    let columns = root.children.iter();
    let columns = columns.map(|column| {
        let of_stripe =
            |stripe: &Stripe| statistics.get(stripe.number)?.get(column.column as usize);
        let zones = Zones {
            statistics: stripes.iter().map(of_stripe).collect(),
            rows: stripes.iter().map(|stripe| stripe.rows as u64).collect(),
            writer,
        };
        zones.of_column(column)
    });
    columns.collect()
}
