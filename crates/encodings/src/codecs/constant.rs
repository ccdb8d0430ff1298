//! `constant`: one value for every row, or null for every row.
//!
//! ```text
//! header   (all rows null: nothing) the value as a column of one row
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeBinaryArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::error::Result;

/// `len` times the only value of `value`, with `nulls`.
pub(crate) fn repeat(value: &ArrayRef, len: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    if value.data_type() == &DataType::FixedSizeBinary(0) {
        // `take` counts rows by their bytes, of which there are none
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
