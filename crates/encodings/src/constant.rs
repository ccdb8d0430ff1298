//! `constant`: one value for every row, or null for every row.
//!
//! ```text
//! header   (all rows null: nothing) the value as a column of one row
//! ```

use arrow::array::{ArrayRef, UInt32Array, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::error::Result;
use crate::nested::with_some_value;

/// `len` times the only value of `value`, with `nulls`.
pub(crate) fn repeat(value: &ArrayRef, len: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let indices = UInt32Array::new(vec![0; len].into(), nulls);
    Ok(take(value, &indices, None)?)
}

/// `len` nulls.
pub(crate) fn nulls(data_type: &DataType, len: usize) -> ArrayRef {
    with_some_value(new_null_array(data_type, len))
}
