//! Arrays of nulls, of any type, and nulls of fields.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, nullif};
use arrow::datatypes::DataType;

use crate::error::{Error, Result};

/// An array of `len` nulls.
pub(crate) fn of_type(data_type: &DataType, len: usize) -> Result<ArrayRef> {
    check_run_ends(data_type, len as u64)?;
    Ok(with_some_value(new_null_array(data_type, len)))
}

/// Checks that run ends can count `rows` nulls, which are one run.
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

/// Adds a value that no key refers to, to a dictionary of nulls only: kernels of arrow-rs panic on dictionaries without
/// values, and the original may have had some.
pub(crate) fn with_some_value(array: ArrayRef) -> ArrayRef {
    match array.as_any_dictionary_opt() {
        Some(dictionary) if dictionary.values().is_empty() => {
            dictionary.with_values(new_null_array(dictionary.values().data_type(), 1))
        }
        _ => array,
    }
}

/// A field of a struct with these nulls: null where the struct is, and so are its own fields. Unions, which have no
/// nulls of their own, stay unchanged.
pub(crate) fn of_field(field: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef> {
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
        return Ok(ArrayRef::clone(field));
    };
    match field.data_type() {
        DataType::Union(_, _) => Ok(ArrayRef::clone(field)),
        DataType::RunEndEncoded(_, values) => {
            let values = cast(field, values.data_type())?;
            Ok(cast(&of_field(&values, Some(nulls))?, field.data_type())?)
        }
        DataType::Struct(fields) => {
            let within = field.as_struct();
            let nulls = NullBuffer::union(within.nulls(), Some(nulls));
            let columns = within.columns().iter();
            let columns = columns.map(|column| of_field(column, nulls.as_ref()));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let rows = within.len();
            let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?;
            Ok(Arc::new(array))
        }
        _ => Ok(nullif(field, &BooleanArray::new(!nulls.inner(), None))?),
    }
}
