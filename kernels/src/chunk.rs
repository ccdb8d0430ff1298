//! A column chunk as kernels read it, and its description.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBufferBuilder};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use vectile_encodings::{Column, Selection, VECTOR_LEN};

use crate::builder::{ALIGNMENT, Builder, SLACK_BYTES};
use crate::error::Result;
use crate::registry::{lay_out, lay_out_codes, lay_out_row_numbers, lay_out_unwritten};
use crate::symbols::Symbols;
use crate::traits::ColumnTraits;
use crate::unwritten::Unwritten;
use vectile_pipeline::Type;

/// A column chunk in its device layout, still on the host, in two parts: a front, which is generated, and a body
/// anywhere behind it. The body usually stays where it was read.
#[derive(Debug)]
pub struct DeviceChunk {
    builder: Builder,
    info: ChunkInfo,
}

/// Description of a column chunk, wherever it lies.
#[derive(Clone, Debug)]
pub struct ChunkInfo {
    /// Bytes in its device layout.
    pub bytes: usize,
    /// Its rows.
    pub rows: usize,
    /// The column's type.
    pub data_type: DataType,
    /// Traits that kernels depend on.
    pub traits: ColumnTraits,
    /// The distinct values, if it is dictionary-encoded.
    pub entries: Option<ArrayRef>,
    /// The symbol tables, if it is of strings.
    pub symbols: Option<Arc<Symbols>>,
    /// One more than the largest code that a kernel may read.
    pub codes: usize,
    /// Values of some rows, to estimate the selectivity of lookups. `None` for text without a dictionary.
    pub sample: Option<ArrayRef>,
}

/// Rows of a chunk in its sample, evenly spaced.
pub const SAMPLE_ROWS: usize = 32;

impl DeviceChunk {
    /// Alignment of fronts and bodies.
    pub const ALIGNMENT: usize = ALIGNMENT;

    /// Bytes behind a body that kernels may read, with any contents.
    pub const SLACK_BYTES: usize = SLACK_BYTES;

    /// Lays a column out. Checks everything that parsing the column left unchecked: codes without an entry, runs that
    /// do not tile a vector. Kernels trust what they read.
    ///
    /// # Errors
    ///
    /// [`Error::Encoding`](crate::Error::Encoding) for a damaged column;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for strings that are not a dictionary, nested types and
    /// others without a fixed-width value.
    pub fn build(column: &Column) -> Result<Self> {
        let layout = column.layout();
        let mut builder = Builder::new(column.len(), column.num_vectors());
        lay_out(&mut builder, column.data_type(), layout.values)?;
        builder.validity(&layout.validity);
        let is_number = Type::of(column.data_type()).is_some();
        let sample = match is_number || builder.entries.is_some() {
            true => Some(sample(column)?),
            false => None,
        };
        let body = builder.words.len() + builder.packed.len();
        Ok(Self::of(builder, column.data_type(), body, sample))
    }

    /// Lays out dictionary codes that a kernel writes, and a validity bitmap for each vector if rows may be null: a
    /// front with all offsets, and behind it a body, up to [`ChunkInfo::bytes`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if it has too many rows.
    pub fn of_codes(rows: usize, entries: &ArrayRef, is_nullable: bool) -> Result<Self> {
        let mut builder = Builder::new(rows, rows.div_ceil(VECTOR_LEN));
        let body = lay_out_codes(&mut builder, entries, is_nullable)?;
        Ok(Self::of(builder, entries.data_type(), body, None))
    }

    /// Lays out values that a kernel writes: a front with all offsets, and behind it a body, up to
    /// [`ChunkInfo::bytes`].
    ///
    /// # Errors
    ///
    /// [`Error::Encoding`](crate::Error::Encoding) for codes without an entry;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for types without such values, and for too many bytes.
    pub fn of_unwritten(column: Unwritten<'_>) -> Result<Self> {
        let Unwritten {
            data_type,
            rows,
            nulls,
            values,
            sample,
        } = column;
        let mut builder = Builder::new(rows, rows.div_ceil(VECTOR_LEN));
        let body = lay_out_unwritten(&mut builder, data_type, &values)?;
        if let Some(nulls) = nulls {
            builder.masks(|vector| mask(nulls, vector));
        }
        Ok(Self::of(builder, data_type, body, sample))
    }

    /// Lays out row numbers, the first of which is `first`: 16 bytes for each vector, and one body for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) for types that are not integers.
    pub fn of_row_numbers(data_type: &DataType, rows: usize, first: i128) -> Result<Self> {
        let mut builder = Builder::new(rows, rows.div_ceil(VECTOR_LEN));
        let body = lay_out_row_numbers(&mut builder, data_type, first)?;
        Ok(Self::of(builder, data_type, body, None))
    }

    /// The reference that integers are distances from, in addition to the bases of vectors.
    pub fn reference(&self) -> i128 {
        self.builder.reference
    }

    /// The chunk of a filled builder, with its body's bytes and its sample.
    fn of(
        mut builder: Builder,
        data_type: &DataType,
        body: usize,
        sample: Option<ArrayRef>,
    ) -> Self {
        let vectors = builder.vectors.iter();
        builder.traits.based = vectors.clone().any(|vector| vector.base != 0);
        builder.traits.widths = vectors.fold(0, |widths, vector| widths | 1 << vector.width);
        let bytes = builder.front_bytes() + body + SLACK_BYTES;
        let info = ChunkInfo {
            bytes: bytes.next_multiple_of(ALIGNMENT),
            rows: builder.rows(),
            data_type: data_type.clone(),
            traits: builder.traits.clone(),
            entries: builder.entries.clone(),
            symbols: builder.symbols.clone(),
            codes: builder.codes,
            sample,
        };
        Self { builder, info }
    }

    /// Bytes of the front, a multiple of [`ALIGNMENT`](Self::ALIGNMENT).
    pub fn front_bytes(&self) -> usize {
        self.builder.front_bytes()
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.builder.words.len() + self.builder.packed.len()
    }

    /// The beginning of the body, if it is unchanged from the file, and most of the body.
    pub fn body_as_read(&self) -> Option<&Buffer> {
        let read = &self.builder.words;
        (read.len() > self.body_made().len()).then_some(read)
    }

    /// The generated rest of the body.
    pub fn body_made(&self) -> &[u8] {
        &self.builder.packed
    }

    /// Writes the front to all of `out`, [`front_bytes`](Self::front_bytes) long, for a body that starts `body`
    /// bytes behind it, a multiple of [`ALIGNMENT`](Self::ALIGNMENT).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a body further than 64 GiB away.
    pub fn write_front(&self, out: &mut [u8], body: usize) -> Result<()> {
        self.builder.write_front(out, body)
    }

    /// Writes the body to all of `out`, [`body_bytes`](Self::body_bytes) long.
    pub fn write_body(&self, out: &mut [u8]) {
        let (words, packed) = out.split_at_mut(self.builder.words.len());
        words.copy_from_slice(&self.builder.words);
        packed.copy_from_slice(&self.builder.packed);
    }

    /// Writes front and body one after the other to the start of `out`, which has [`ChunkInfo::bytes`] or more.
    ///
    /// # Errors
    ///
    /// As [`write_front`](Self::write_front).
    pub fn write(&self, out: &mut [u8]) -> Result<()> {
        let (front, rest) = out.split_at_mut(self.front_bytes());
        self.write_front(front, front.len())?;
        let (body, rest) = rest.split_at_mut(self.body_bytes());
        self.write_body(body);
        rest.fill(0);
        Ok(())
    }

    /// Rows of the chunk.
    pub fn rows(&self) -> usize {
        self.info.rows
    }

    /// The description of the chunk.
    pub fn info(&self) -> &ChunkInfo {
        &self.info
    }
}

/// A bit for each row of a vector, set if it is not null; `None` if all are set.
fn mask(nulls: &NullBuffer, vector: usize) -> Option<[u64; VECTOR_LEN / 64]> {
    let start = vector * VECTOR_LEN;
    let rows = VECTOR_LEN.min(nulls.len().saturating_sub(start));
    let nulls = nulls.slice(start, rows);
    let mut mask = [0; VECTOR_LEN / 64];
    let words = nulls.inner().bit_chunks();
    mask.iter_mut()
        .zip(words.iter_padded())
        .for_each(|(to, word)| *to = word);
    // rows behind the last one count as nulls only if others are null
    (nulls.null_count() > 0).then_some(mask)
}

/// Values of [`SAMPLE_ROWS`] rows.
fn sample(column: &Column) -> Result<ArrayRef> {
    let (rows, count) = (column.len(), SAMPLE_ROWS.min(column.len()));
    let mut bits = BooleanBufferBuilder::new(rows);
    bits.append_n(rows, false);
    (0..count).for_each(|index| bits.set_bit(index * rows / count, true));
    let selection = Selection::from_boolean_buffer(0, &bits.finish());
    Ok(column.select(&selection)?)
}
