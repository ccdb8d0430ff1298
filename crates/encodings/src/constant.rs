//! `constant`: one value for every row, or null for every row.
//!
//! ```text
//! header   (all rows null: nothing) the value as a column of one row
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeBinaryArray, UInt32Array, new_null_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use crate::nested::with_some_value;

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

/// `len` nulls.
pub(crate) fn nulls(data_type: &DataType, len: usize) -> Result<ArrayRef> {
    check_run_ends(data_type, len as u64)?;
    Ok(with_some_value(new_null_array(data_type, len)))
}

/// Whether run ends can count `rows` nulls: that is one run.
fn check_run_ends(data_type: &DataType, rows: u64) -> Result<()> {
    match data_type {
        DataType::RunEndEncoded(ends, values) => {
            let most = match ends.data_type() {
                DataType::Int16 => i64::from(i16::MAX),
                DataType::Int32 => i64::from(i32::MAX),
                _ => i64::MAX,
            };
            if rows > most as u64 {
                let reason = format!("{rows} rows in runs that end within {most}");
                return Err(Error::Unsupported(reason));
            }
            check_run_ends(values.data_type(), 1)
        }
        DataType::FixedSizeList(item, len) => {
            let items = rows.saturating_mul((*len).max(0) as u64);
            check_run_ends(item.data_type(), items)
        }
        DataType::Struct(fields) => {
            let mut fields = fields.iter();
            fields.try_for_each(|field| check_run_ends(field.data_type(), rows))
        }
        DataType::Union(fields, _) => {
            let mut fields = fields.iter();
            fields.try_for_each(|(_, field)| check_run_ends(field.data_type(), rows))
        }
        DataType::Dictionary(_, values) => check_run_ends(values, 1),
        _ => Ok(()),
    }
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
