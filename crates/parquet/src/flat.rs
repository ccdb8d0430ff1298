//! Decodes flat columns, which have a value or a null for each row, and packs them as it goes: no array of a row group's
//! values is ever in memory, but for floats.
//!
//! ```text
//! page ── inflate ──▶ levels ──────────────────▶ nulls
//!                 └── values, 1024 at a time ──▶ rows ──▶ ffor, floats or codes
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Float32Array, Float64Array, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ColumnChunkMetaData;
use vectile_encodings::{Column, Encoding, IntegerPacker};

use crate::codes::{MAX_ENTRIES, Ranks};
use crate::error::{Fault, corrupt, unsupported};
use crate::inflate::Inflater;
use crate::levels::Levels;
use crate::pages::{Page, PageEncoding, PageKind, Pages};
use crate::plain::Form;
use crate::row_values::{RowValues, Sink};
use crate::schema::{Stored, TableColumn};
use crate::text::{Strings, Text};
use crate::values::{Kind, Values, prefixed};

/// The most bytes of a decimal.
const MAX_DECIMAL: usize = 16;

/// The column of a chunk with these pages, and the bytes of memory that it takes; `None` if it is left to the `parquet`
/// crate.
///
/// # Errors
///
/// [`Fault::Corrupt`].
pub(crate) fn decode(
    column: &TableColumn,
    chunk: &ColumnChunkMetaData,
    bytes: &[u8],
    pages: &Pages,
    rows: usize,
) -> Result<Option<(Column, usize)>, Fault> {
    if column.flat.is_none() || pages.has_odd_dictionaries {
        return Ok(None);
    }
    pages.check_rows(rows)?;
    let Some(decoder) = Decoder::new(column, chunk, pages, rows) else {
        return Ok(None);
    };
    match decoder.run(bytes, pages) {
        // a value that only the crate reads
        Err(Fault::Unsupported(_)) => Ok(None),
        decoded => decoded,
    }
}

/// The kind of the values of a column; `None` if this crate does not read them itself. Values of text are codes if all of
/// them are in a dictionary worth sorting, which `is_dictionary` says.
pub(crate) fn kind_of(
    column: &TableColumn,
    chunk: &ColumnChunkMetaData,
    is_dictionary: bool,
) -> Option<Kind> {
    use DataType::*;
    let flat = column.flat.as_ref()?;
    if chunk.column_descr().max_def_level() > 1 {
        return None;
    }
    Some(match (flat.physical, flat.stored, &column.data_type) {
        (_, _, Dictionary(_, _)) => return None,
        (PhysicalType::BOOLEAN, _, Boolean) => Kind::Bits,
        (PhysicalType::FLOAT, _, Float32) => Kind::Float(Form::U32),
        (PhysicalType::DOUBLE, _, Float64) => Kind::Float(Form::I64),
        (PhysicalType::INT32, Some(Stored::Integer { .. }), data_type) => {
            Kind::Fixed(match data_type {
                Int8 => Form::I8,
                Int16 => Form::I16,
                UInt8 => Form::U8,
                UInt16 => Form::U16,
                UInt32 => Form::U32,
                _ => Form::I32,
            })
        }
        (PhysicalType::INT64, Some(Stored::Integer { .. }), _) => Kind::Fixed(Form::I64),
        (physical, Some(Stored::Decimal), data_type) => {
            let length = usize::try_from(chunk.column_descr().type_length()).unwrap_or(0);
            Kind::Fixed(match (physical, data_type) {
                (PhysicalType::INT32, _) => Form::I32,
                (PhysicalType::INT64, Decimal64(_, _) | Decimal128(_, _) | Decimal256(_, _)) => {
                    Form::I64
                }
                (PhysicalType::FIXED_LEN_BYTE_ARRAY, Decimal128(_, _) | Decimal256(_, _))
                    if (1..=MAX_DECIMAL).contains(&length) =>
                {
                    Form::BigEndian(length)
                }
                _ => return None,
            })
        }
        (PhysicalType::BYTE_ARRAY, Some(Stored::Text | Stored::Binary), _)
            if column.may_be_dictionary && is_dictionary =>
        {
            Kind::Codes
        }
        (PhysicalType::BYTE_ARRAY, Some(Stored::Text | Stored::Binary), _)
            if column.may_be_dictionary =>
        {
            Kind::Strings
        }
        _ => return None,
    })
}

/// Decodes a column.
struct Decoder<'a> {
    column: &'a TableColumn,
    kind: Kind,
    inflater: Inflater,
    /// Memory for the page that is read.
    inflated: Vec<u8>,
    /// The nulls so far; `None` if the column has none by its type.
    levels: Option<Levels>,
    /// The values of the dictionary's entries, or the ranks of text.
    entries: Vec<i64>,
    /// The entries of text, sorted.
    sorted: Option<ArrayRef>,
    /// The entries of text that is not only in the dictionary.
    strings: Option<BinaryArray>,
    text: Text,
    rows: RowValues,
}

impl<'a> Decoder<'a> {
    /// `None` if it does not read the chunk.
    fn new(
        column: &'a TableColumn,
        chunk: &ColumnChunkMetaData,
        pages: &Pages,
        rows: usize,
    ) -> Option<Self> {
        let is_small = |entries: u64| entries <= MAX_ENTRIES;
        let kind = kind_of(column, chunk, pages.dictionary.is_some_and(is_small))?;
        let is_nullable = chunk.column_descr().max_def_level() > 0;
        let levels = is_nullable.then(|| Levels::new(rows));
        let is_read = |page: &Page| match page.kind {
            PageKind::Dictionary => {
                matches!(
                    page.encoding,
                    PageEncoding::Plain | PageEncoding::Dictionary
                )
            }
            PageKind::Data => {
                kind.reads(page.encoding) && (page.has_rle_levels || levels.is_none())
            }
            PageKind::DataV2 { .. } => kind.reads(page.encoding),
        };
        if !pages.pages.iter().all(is_read) {
            return None;
        }
        let sink = match (kind, &column.data_type) {
            (Kind::Codes, _) => Sink::Codes(Vec::with_capacity(rows)),
            (Kind::Strings, _) => Sink::Codes(Vec::new()),
            (_, DataType::Float32) => Sink::Floats(Vec::with_capacity(rows)),
            (_, DataType::Float64) => Sink::Doubles(Vec::with_capacity(rows)),
            (_, data_type) => Sink::Integers(IntegerPacker::new(data_type).ok()?),
        };
        Some(Self {
            column,
            kind,
            inflater: Inflater::new(chunk.compression())?,
            inflated: Vec::new(),
            levels,
            entries: Vec::new(),
            sorted: None,
            strings: None,
            text: match kind {
                Kind::Strings => Text::new(rows, plain_bytes(pages), is_text(column)),
                _ => Text::new(0, 0, false),
            },
            rows: RowValues::new(sink),
        })
    }

    fn run(mut self, chunk: &[u8], pages: &Pages) -> Result<Option<(Column, usize)>, Fault> {
        for page in &pages.pages {
            let body = chunk.get(page.body.clone()).unwrap_or_default();
            match page.kind {
                PageKind::Dictionary => self.read_dictionary(page, body)?,
                PageKind::Data | PageKind::DataV2 { .. } => self.read_data(page, body)?,
            }
        }
        self.finish()
    }

    fn read_dictionary(&mut self, page: &Page, body: &[u8]) -> Result<(), Fault> {
        let body = inflate(&mut self.inflater, &mut self.inflated, body, page.inflated)?;
        match self.kind {
            Kind::Fixed(form) | Kind::Float(form) => {
                self.entries = form.entries(body, page.values)?;
                Ok(())
            }
            Kind::Codes => {
                let Some(ranks) = ranks(self.column, body, page.values)? else {
                    return unsupported("entries that have no order");
                };
                self.entries = ranks.ranks.iter().map(|rank| i64::from(*rank)).collect();
                self.sorted = Some(ranks.sorted);
                Ok(())
            }
            Kind::Strings => {
                self.strings = Some(strings(body, page.values)?);
                Ok(())
            }
            Kind::Bits => unsupported("a dictionary of booleans"),
        }
    }

    fn read_data(&mut self, page: &Page, body: &[u8]) -> Result<(), Fault> {
        let (inflater, inflated) = (&mut self.inflater, &mut self.inflated);
        let (levels, values) = match page.kind {
            PageKind::DataV2 {
                levels,
                definition,
                is_compressed,
            } => {
                let Some((levels, values)) = body.split_at_checked(levels) else {
                    return corrupt(format!("{levels} bytes of levels in {}", body.len()));
                };
                let start = levels.len().saturating_sub(definition);
                let len = page.inflated.saturating_sub(levels.len());
                let values = match is_compressed {
                    true => inflate(inflater, inflated, values, len)?,
                    false => values,
                };
                (levels.get(start..).unwrap_or_default(), values)
            }
            _ => {
                let body = inflate(inflater, inflated, body, page.inflated)?;
                match self.levels {
                    Some(_) => prefixed(body)?,
                    None => (&[][..], body),
                }
            }
        };
        let count = match &mut self.levels {
            Some(known) => known.append(levels, page.values)?,
            None => page.values,
        };
        if self.kind == Kind::Strings {
            let mut strings = match count {
                0 => Strings::Plain(&[]),
                _ => Strings::new(page.encoding, values, self.strings.as_ref())?,
            };
            let levels = self.levels.as_ref().filter(|_| count < page.values);
            return self.text.append(page.values, levels, &mut strings);
        }
        let mut values = match count {
            // there may be no bytes
            0 => Values::Plain(Form::I64, &[]),
            _ => Values::new(self.kind, page.encoding, values, &self.entries)?,
        };
        match &self.levels {
            Some(levels) if count < page.values => {
                self.rows
                    .append_with_nulls(levels, page.values, &mut values)
            }
            _ => self.rows.append(page.values, &mut values),
        }
    }

    fn finish(self) -> Result<Option<(Column, usize)>, Fault> {
        let nulls = self.levels.and_then(Levels::finish);
        if self.kind == Kind::Strings {
            let Text { lengths, data, .. } = self.text;
            let data_type = &self.column.data_type;
            let column = Column::of_strings(data_type, &lengths, data, nulls.as_ref())?;
            return Ok(Some(column));
        }
        let plain = |array: ArrayRef| Ok(Some(Column::packed(&array, Encoding::Plain)?));
        match self.rows.finish() {
            Sink::Integers(packer) => Ok(Some(packer.finish(nulls.as_ref())?)),
            Sink::Floats(values) => plain(Arc::new(Float32Array::new(values.into(), nulls))),
            Sink::Doubles(values) => plain(Arc::new(Float64Array::new(values.into(), nulls))),
            Sink::Codes(codes) => coded(self.sorted, &codes, nulls.as_ref()),
        }
    }
}

/// The column of text in a dictionary.
fn coded(
    sorted: Option<ArrayRef>,
    codes: &[u32],
    nulls: Option<&NullBuffer>,
) -> Result<Option<(Column, usize)>, Fault> {
    let Some(sorted) = sorted else {
        return Ok(None);
    };
    let bytes = sorted.get_array_memory_size() + size_of_val(codes);
    let column = Column::of_codes(&sorted, codes, nulls)?;
    Ok(column.map(|column| (column, bytes)))
}

/// The inflated bytes of a page, in memory that is used again for the next one.
fn inflate<'a>(
    inflater: &mut Inflater,
    memory: &'a mut Vec<u8>,
    body: &'a [u8],
    len: usize,
) -> Result<&'a [u8], Fault> {
    if let Inflater::Uncompressed = inflater {
        return Ok(body);
    }
    if len == 0 {
        return Ok(&[]);
    }
    if let Some(more) = len.checked_sub(memory.len()) {
        if memory.try_reserve_exact(more).is_err() {
            return unsupported(format!("a page of {len} bytes"));
        }
        memory.resize(len, 0);
    }
    let to = memory.get_mut(..len).unwrap_or_default();
    inflater.inflate(body, to)?;
    Ok(to)
}

/// Bytes of the plain pages of a chunk.
fn plain_bytes(pages: &Pages) -> usize {
    let plain = pages.pages.iter();
    let plain = plain.filter(|page| page.encoding == PageEncoding::Plain);
    plain.fold(0, |sum: usize, page| sum.saturating_add(page.inflated))
}

/// Returns true if the values of a column are text.
fn is_text(column: &TableColumn) -> bool {
    let flat = column.flat.as_ref();
    flat.is_some_and(|flat| flat.stored == Some(Stored::Text))
}

/// The plain entries of a dictionary of text or binary, sorted; `None` if they have no order.
///
/// # Errors
///
/// [`Fault::Corrupt`], and [`Fault::Unsupported`] if there are too many bytes.
pub(crate) fn ranks(
    column: &TableColumn,
    bytes: &[u8],
    entries: usize,
) -> Result<Option<Ranks>, Fault> {
    let entries = strings(bytes, entries)?;
    let entries: ArrayRef = match is_text(column) {
        true => Arc::new(StringArray::try_from_binary(entries)?),
        false => Arc::new(entries),
    };
    Ranks::of(&entries, &column.data_type)
}

/// Strings that are each preceded by their length in 4 bytes.
fn strings(bytes: &[u8], count: usize) -> Result<BinaryArray, Fault> {
    let mut offsets = vec![0];
    let mut joined: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    for _ in 0..count {
        let (string, next) = prefixed(rest)?;
        joined.extend_from_slice(string);
        let Ok(end) = i32::try_from(joined.len()) else {
            return unsupported("entries of more than 2 GB");
        };
        offsets.push(end);
        rest = next;
    }
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(BinaryArray::try_new(offsets, joined.into(), None)?)
}
