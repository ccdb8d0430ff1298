//! One value, or none: packed integers of no bits. Kernels decode it with the code of `ffor`.

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::datatypes::DataType;

use crate::builder::Builder;
use vectile_pipeline::Type;

/// Lays out a column of nulls: as integers, or with an empty dictionary if its type has no integers. Returns true for
/// integers.
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

/// Lays out a sequence of one value.
pub(super) fn entries(builder: &mut Builder, value: u64) -> Option<(u64, u64)> {
    builder.vectors.iter_mut().for_each(|v| v.base = value);
    builder.traits.width(0);
    Some((value, value))
}
