//! `constant`: one value for every row, or null for every row.
//!
//! ```text
//! header   (all rows null: nothing) the value as a column of one row
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, FixedSizeBinaryArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::codecs::codec::{Child, Codec, Test};
use crate::codecs::layout;
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::{Result, ensure};
use crate::nulls;
use crate::selection::Selection;
use crate::size;
use crate::wire::{ChunkReader, ChunkWriter};

/// Appends the source, whose valid rows are equal. `encode` appends one of them as a column.
pub(crate) fn encode(
    source: &Source,
    out: &mut ChunkWriter,
    encode: impl FnOnce(&Source, &mut ChunkWriter) -> Result<bool>,
) -> Result<bool> {
    let array = source.array;
    let valid = match array.nulls() {
        _ if array.logical_null_count() == array.len() => return Ok(true),
        None => Some(0),
        Some(nulls) => nulls.valid_indices().next(),
    };
    match valid {
        None => Ok(true),
        Some(row) => encode(&Source::of(&array.slice(row, 1)), out),
    }
}

/// The parsed value, an array of one row; `None` if all rows are null.
#[derive(Clone, Debug)]
pub(crate) struct Constant(Option<ArrayRef>);

impl Constant {
    pub fn of_nulls() -> Self {
        Self(None)
    }

    /// The value of an array of one row, which is not null.
    pub fn of(value: ArrayRef) -> Self {
        Self(Some(value))
    }

    pub fn parse<C: Child>(reader: &mut ChunkReader, data_type: &DataType) -> Result<Self> {
        let value = C::parse_distinct(reader, data_type, 1)?.decode_all()?;
        ensure(value.is_valid(0), "column", || {
            "a constant that is null".into()
        })?;
        Ok(Self(Some(value)))
    }
}

impl Codec for Constant {
    fn encoding(&self) -> Encoding {
        Encoding::Constant
    }

    fn layout(&self) -> layout::Values<'_> {
        match &self.0 {
            None => layout::Values::AllNull,
            Some(value) => layout::Values::Constant(value),
        }
    }

    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        let longest = self
            .0
            .as_ref()
            .map_or(0, |value| size::longest_string(value));
        let strings = longest.saturating_mul(rows as u64);
        size::fixed_bytes(data_type, rows as u64).saturating_add(strings)
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        match &self.0 {
            None => nulls::of_type(data_type, selection.count()),
            Some(value) => repeat(value, selection.count(), nulls),
        }
    }

    fn filter_with(&self, test: &mut Test<'_>, selection: &mut Selection) -> Result<bool> {
        let Some(value) = &self.0 else {
            return Ok(false);
        };
        let result = test(value)?;
        if result.is_empty() || result.is_null(0) || !result.value(0) {
            *selection = Selection::none(selection.first_vector(), selection.rows());
        }
        Ok(true)
    }
}

/// An array of `len` times the only value of `value`, with `nulls`.
fn repeat(value: &ArrayRef, len: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    if value.data_type() == &DataType::FixedSizeBinary(0) {
        // `take` counts rows by their bytes, which are none here
        let rows = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), nulls, len)?;
        return Ok(Arc::new(rows));
    }
    let indices = UInt32Array::new(vec![0; len].into(), nulls);
    Ok(take(value, &indices, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_bytes_are_counted() {
        let value = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), None, 1).unwrap();
        let rows = repeat(&(Arc::new(value) as ArrayRef), 3, None).unwrap();
        assert_eq!((rows.len(), rows.null_count()), (3, 0));
    }
}
