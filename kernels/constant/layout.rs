//! One value, or none: packed integers of no bits. Kernels have no code for it but that of `ffor`.

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::datatypes::DataType;

use crate::builder::Builder;
use crate::types::Type;

/// A column without values: one of integers, or `false` of a dictionary where its type has none.
pub(super) fn nulls(builder: &mut Builder, data_type: &DataType) -> bool {
    builder.traits.include(0, 0);
    let are_integers = Type::of(data_type).is_some();
    if !are_integers {
        builder.entries = Some(new_empty_array(data_type));
        builder.traits.even = Some(true);
    }
    are_integers
}

/// The value of a dictionary of one boolean.
pub(super) fn boolean(entries: &ArrayRef) -> Option<i128> {
    let value = entries
        .as_boolean_opt()
        .filter(|entries| entries.len() == 1)?;
    Some(i128::from(value.value(0)))
}

/// A sequence of one value.
pub(super) fn entries(builder: &mut Builder, value: u64) -> Option<(u64, u64)> {
    builder.vectors.iter_mut().for_each(|v| v.base = value);
    builder.traits.width(0);
    Some((value, value))
}
