//! Joins arrays to one. arrow-rs panics, or its result is wrong, if offsets, run ends or keys of the result overflow;
//! [`fits`] and [`join`] find that out first.

use arrow::array::{Array, ArrayData, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{DataType, UnionMode};
use vectile_encodings::{Error, Result};

/// The values of all arrays, which are of one type, one behind the other.
///
/// # Errors
///
/// [`Error::Unsupported`] or Arrow's if one array of the type cannot have them all.
pub(crate) fn join(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let data: Vec<ArrayData> = arrays.iter().map(|array| array.to_data()).collect();
    check(&data.iter().collect::<Vec<_>>(), true)?;
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(concat(&arrays)?)
}

/// True if one array can have the values of all arrays, which are of one type. Joining dictionaries may still fail.
pub(crate) fn fits<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> bool {
    let data: Vec<ArrayData> = arrays.map(|array| array.to_data()).collect();
    check(&data.iter().collect::<Vec<_>>(), true).is_ok()
}

/// Fails if offsets, run ends or keys of the joined arrays may overflow. If `merges`, arrow-rs merges dictionaries of
/// values that it can compare, or fails.
fn check(arrays: &[&ArrayData], merges: bool) -> Result<()> {
    use DataType::*;
    let [first, _, ..] = arrays else {
        return Ok(());
    };
    let data_type = first.data_type();
    let sum = |count: &dyn Fn(&ArrayData) -> usize| {
        let counts = arrays.iter().map(|array| count(array));
        counts.fold(0, usize::saturating_add)
    };
    let child = |number: usize| {
        let children = arrays.iter().map(|array| array.child_data().get(number));
        children.flatten().collect::<Vec<_>>()
    };
    let items = |number: usize| {
        let lens = child(number).into_iter().map(ArrayData::len);
        lens.fold(0, usize::saturating_add)
    };
    let children = 0..first.child_data().len();
    let (count, most) = match data_type {
        Utf8 | Binary => {
            let bytes = |array: &ArrayData| array.buffers().get(1).map_or(0, |bytes| bytes.len());
            (sum(&bytes), max_of(&Int32))
        }
        List(_) | ListView(_) | Map(_, _) => (items(0), max_of(&Int32)),
        Union(_, UnionMode::Dense) => {
            let largest = children.clone().map(items).max();
            (largest.unwrap_or(0), max_of(&Int32))
        }
        RunEndEncoded(ends, _) => (sum(&ArrayData::len), max_of(ends.data_type())),
        Dictionary(_, values) if merges && can_merge(values) => (0, 0),
        Dictionary(keys, _) => (items(0), max_of(keys)),
        _ => (0, 0),
    };
    if count > most {
        let reason = format!("{count} items or bytes in one array of {data_type}, at most {most}");
        return Err(Error::Unsupported(reason));
    }
    let is_joined_by_child = matches!(
        data_type,
        List(_)
            | LargeList(_)
            | ListView(_)
            | LargeListView(_)
            | Map(_, _)
            | Struct(_)
            | RunEndEncoded(_, _)
    );
    let merges = merges && is_joined_by_child;
    children
        .into_iter()
        .try_for_each(|number| check(&child(number), merges))
}

/// Returns true if arrow-rs can merge dictionaries of such values.
fn can_merge(values: &DataType) -> bool {
    use DataType::*;
    values.is_primitive() || matches!(values, Utf8 | LargeUtf8 | Binary | LargeBinary)
}

/// The largest value of an integer type.
fn max_of(data_type: &DataType) -> usize {
    match data_type {
        DataType::Int8 => i8::MAX as usize,
        DataType::UInt8 => u8::MAX as usize,
        DataType::Int16 => i16::MAX as usize,
        DataType::UInt16 => u16::MAX as usize,
        DataType::Int32 => i32::MAX as usize,
        DataType::UInt32 => u32::MAX as usize,
        _ => i64::MAX as usize,
    }
}
