//! A column chunk as kernels read it, and what is known of it.

use arrow::array::{ArrayRef, BooleanBufferBuilder};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use vectile_encodings::{Column, Selection};

use crate::builder::Builder;
use crate::error::Result;
use crate::registry::lay_out;
use crate::traits::ColumnTraits;
use crate::types::Type;

/// A column chunk in its device layout, still on the host. Packed words stay where they were read.
#[derive(Debug)]
pub struct DeviceChunk {
    /// Each with the byte where it starts.
    parts: Vec<(usize, Buffer)>,
    info: ChunkInfo,
}

/// What is known of a column chunk, wherever it lies.
#[derive(Clone, Debug)]
pub struct ChunkInfo {
    /// Bytes in its device layout.
    pub bytes: usize,
    /// Its rows.
    pub rows: usize,
    /// Of the column.
    pub data_type: DataType,
    /// What kernels have to know of it.
    pub traits: ColumnTraits,
    /// The distinct values, if that is how they are stored.
    pub entries: Option<ArrayRef>,
    /// One more than the largest code that a kernel may meet.
    pub codes: usize,
    /// Values of some rows: what share of them a lookup finds decides when it is made. None of text that
    /// is in no dictionary.
    pub sample: Option<ArrayRef>,
}

/// Rows of a chunk in its sample.
const SAMPLE_ROWS: usize = 32;

impl DeviceChunk {
    /// Lays a column out. Checks what parsing the column has left to check: codes without an entry, runs that do not
    /// tile a vector. Kernels trust what they read.
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
        let vectors = builder.vectors.iter();
        builder.traits.based = vectors.clone().any(|vector| vector.base != 0);
        builder.traits.widths = vectors.fold(0, |widths, vector| widths | 1 << vector.width);
        let is_number = Type::of(column.data_type()).is_some();
        let mut info = ChunkInfo {
            bytes: 0,
            rows: column.len(),
            data_type: column.data_type().clone(),
            traits: builder.traits.clone(),
            entries: builder.entries.clone(),
            codes: builder.codes,
            sample: match is_number || builder.entries.is_some() {
                true => Some(sample(column)?),
                false => None,
            },
        };
        let (parts, bytes) = builder.finish()?;
        info.bytes = bytes;
        Ok(Self { parts, info })
    }

    /// Writes what the device gets to the start of `out`, which has [`ChunkInfo::bytes`] or more.
    pub fn write(&self, out: &mut [u8]) {
        let mut end = 0;
        for (start, bytes) in &self.parts {
            out[end..*start].fill(0);
            end = start + bytes.len();
            out[*start..end].copy_from_slice(bytes);
        }
        out[end..self.info.bytes].fill(0);
    }

    /// Rows of the chunk.
    pub fn rows(&self) -> usize {
        self.info.rows
    }

    /// What is known of it.
    pub fn info(&self) -> &ChunkInfo {
        &self.info
    }
}

/// Values of [`SAMPLE_ROWS`] rows, as far from each other as may be.
fn sample(column: &Column) -> Result<ArrayRef> {
    let (rows, wanted) = (column.len(), SAMPLE_ROWS.min(column.len()));
    let mut bits = BooleanBufferBuilder::new(rows);
    bits.append_n(rows, false);
    (0..wanted).for_each(|index| bits.set_bit(index * rows / wanted, true));
    let selection = Selection::from_boolean_buffer(0, &bits.finish());
    Ok(column.select(&selection)?)
}
