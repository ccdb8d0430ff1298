//! `plain`: fixed-width values in Arrow's layout, where no other encoding is smaller. Byte strings
//! are in `strings`, nested types in `nested`.
//!
//! ```text
//! buffer   the values, little-endian; arbitrary where null
//! ```

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::VECTOR_LEN;
use crate::class;
use crate::codecs::codec::Codec;
use crate::codecs::layout;
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::{Error, Result};
use crate::selection::Selection;
use crate::wire::{ChunkReader, ChunkWriter};

/// Bytes per value; `None` if the type is not of fixed width.
pub(crate) fn width_of(data_type: &DataType) -> Option<usize> {
    data_type.primitive_width()
}

/// Appends the source's values.
pub(crate) fn encode(source: &Source, out: &mut ChunkWriter) -> Result<bool> {
    let array = source.array;
    let width = width_of(array.data_type())
        .ok_or_else(|| Error::Unsupported(format!("{} in encoding plain", array.data_type())))?;
    out.buffer(values_of(array, width).to_vec());
    Ok(true)
}

/// The values of an array.
fn values_of(array: &dyn Array, width: usize) -> Buffer {
    let data = array.to_data();
    let (start, bytes) = (data.offset() * width, data.len() * width);
    match data.buffers().first() {
        Some(buffer) if start + bytes <= buffer.len() => buffer.slice_with_length(start, bytes),
        _ => Buffer::default(),
    }
}

/// Parsed values. Invariant: `values` is `width` bytes for each row of the chunk.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    width: usize,
    values: Buffer,
}

impl Plain {
    /// The values of an array, which shares its memory; `None` if they are not of fixed width.
    pub fn of(array: &dyn Array) -> Option<Self> {
        let width = width_of(array.data_type())?;
        let values = values_of(array, width);
        Some(Self { width, values })
    }

    pub fn parse(reader: &mut ChunkReader, width: usize, len: usize) -> Result<Self> {
        Ok(Self {
            width,
            values: reader.buffer_of(len.saturating_mul(width), "plain")?,
        })
    }
}

impl Codec for Plain {
    fn encoding(&self) -> Encoding {
        Encoding::Plain
    }

    fn layout(&self) -> layout::Values<'_> {
        layout::Values::Plain(self.width, &self.values)
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let len = selection.count();
        let mut out = Vec::with_capacity(len * self.width);
        for selected in selection.vectors() {
            let start = selected.vector * VECTOR_LEN * self.width;
            let vector = self.values.get(start..).unwrap_or_default();
            if selected.is_full() {
                out.extend_from_slice(vector.get(..selected.rows * self.width).unwrap_or_default());
            } else {
                selected.for_each(|row| {
                    let at = row * self.width;
                    out.extend_from_slice(vector.get(at..at + self.width).unwrap_or_default());
                });
            }
        }
        class::fixed_width_array(data_type, len, Buffer::from_vec(out), nulls)
    }
}
