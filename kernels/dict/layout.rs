//! Codes of distinct values, followed by the values if they have a fixed width.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::Sequence;

use crate::builder::Builder;
use crate::error::{Error, Result};
use vectile_pipeline::Type;

/// More than any code that our writers produce.
const MAX_CODES: u64 = 1 << 20;

/// Checks codes with these bounds, of so many values.
pub(super) fn check(
    builder: &mut Builder,
    values: usize,
    codes: &Sequence,
    (_, bound): (u64, u64),
) -> Result<()> {
    builder.codes = values.max(1);
    // widths are rounded up to whole bits, so codes may seem to go beyond the entries; and the padding rows of the
    // last vector may have any code, which must be safe to look up
    if bound < values as u64 {
        return Ok(());
    }
    let rows = builder.rows();
    let bases = builder.vectors.iter().map(|vector| vector.base);
    let filling = codes.largest(rows.next_multiple_of(VECTOR_LEN))?;
    let filling = bases.fold(filling, u64::max);
    if filling < values as u64 {
        return Ok(());
    }
    let largest = codes.largest(rows)?;
    if largest >= values as u64 && rows > 0 {
        let reason = format!("code {largest} of {values} entries");
        let part = "dict";
        return Err(vectile_encodings::Error::Corrupt { part, reason }.into());
    }
    // kernels check codes of these before they look them up, and look up bases of others
    let is_looked_at = matches!(
        codes,
        Sequence::Delta(_) | Sequence::GpuFor(_) | Sequence::GpuDfor(_)
    );
    if !is_looked_at {
        if filling >= MAX_CODES {
            let reason = format!("a dictionary code of {filling}");
            return Err(Error::Unsupported(reason));
        }
        builder.codes = builder.codes.max(filling as usize + 1);
    }
    Ok(())
}

/// Lays out the values of checked codes.
pub(super) fn lay_out(builder: &mut Builder, values: &ArrayRef) -> Result<()> {
    if *values.data_type() == DataType::Boolean {
        return Err(Error::Unsupported("a dictionary of booleans".into()));
    }
    let numbers = integers(values);
    let spacing = numbers.as_ref().and_then(|numbers| numbers.spacing);
    builder.traits.even = Some(spacing.is_some());
    if let Some((first, step)) = spacing {
        (builder.reference, builder.step) = (first, step);
    }
    if let Some(of) = Type::of(values.data_type()) {
        let width = values.data_type().primitive_width().unwrap_or(0);
        let bytes = builder.codes * width;
        builder.values = value_bytes(values, width, bytes);
        builder.values_bytes = bytes;
        if let Some((low, high)) = of.range() {
            let known = numbers.as_ref().map(|numbers| numbers.bounds);
            let (low, high) = known.unwrap_or((low, high));
            builder.traits.include(low, high);
        }
    }
    builder.entries = Some(values.clone());
    Ok(())
}

/// The fixed-width values of an array as Arrow lays them out, up to `most` bytes.
fn value_bytes(array: &ArrayRef, width: usize, most: usize) -> Buffer {
    let data = array.to_data();
    let Some(bytes) = data.buffers().first() else {
        return Buffer::default();
    };
    let start = (data.offset() * width).min(bytes.len());
    let len = (data.len() * width).min(bytes.len() - start).min(most);
    bytes.slice_with_length(start, len)
}

/// Statistics of an array of integers.
struct Integers {
    /// The smallest and the largest.
    bounds: (i128, i128),
    /// The first value and the distance between consecutive ones, if that is constant.
    spacing: Option<(i128, i64)>,
}

impl Integers {
    /// `None` without values.
    fn of<T: Copy + Into<i128>>(values: &[T]) -> Option<Self> {
        let numbers = || values.iter().map(|value| (*value).into());
        let first: i128 = numbers().next()?;
        let bounds = numbers().fold((first, first), |(low, high), n| (low.min(n), high.max(n)));
        let second = numbers().nth(1).unwrap_or(first);
        let step = second
            .checked_sub(first)
            .and_then(|step| i64::try_from(step).ok());
        let is_even = |step: &i64| {
            let mut pairs = numbers().zip(numbers().skip(1));
            pairs.all(|(a, b)| a.checked_add(i128::from(*step)) == Some(b))
        };
        Some(Self {
            bounds,
            spacing: step.filter(is_even).map(|step| (first, step)),
        })
    }
}

/// Statistics of an array, if it is one of integers.
fn integers(values: &ArrayRef) -> Option<Integers> {
    use arrow::array::AsArray;
    use arrow::datatypes::*;
    macro_rules! of_type {
        ($($of:ident),*) => {
            match values.data_type().primitive_width()? {
                $(_ if values.as_any().is::<arrow::array::PrimitiveArray<$of>>() => {
                    Integers::of(values.as_primitive::<$of>().values())
                })*
                _ => None,
            }
        };
    }
    of_type!(
        Int8Type,
        Int16Type,
        Int32Type,
        Int64Type,
        UInt8Type,
        UInt16Type,
        UInt32Type,
        UInt64Type,
        Date32Type,
        Date64Type,
        Decimal32Type,
        Decimal64Type,
        Decimal128Type,
        Time32SecondType,
        Time32MillisecondType,
        Time64MicrosecondType,
        Time64NanosecondType,
        TimestampSecondType,
        TimestampMillisecondType,
        TimestampMicrosecondType,
        TimestampNanosecondType,
        DurationSecondType,
        DurationMillisecondType,
        DurationMicrosecondType,
        DurationNanosecondType
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, StringArray};
    use vectile_encodings::{Column, EncodeOptions, Encoding, encode};

    use super::*;
    use crate::{DeviceChunk, Transform};

    fn is_even(array: ArrayRef) -> bool {
        let pin = Some(Encoding::Dict);
        let bytes = encode(&array, &EncodeOptions::pinned(pin)).unwrap();
        let column = Column::parse(bytes.into(), array.data_type(), array.len()).unwrap();
        let chunk = DeviceChunk::build(&column).unwrap();
        let traits = &chunk.info().traits;
        assert!(traits.has(Transform::Dict));
        traits.even.unwrap()
    }

    #[test]
    fn dictionaries_of_evenly_spaced_numbers() {
        let integers = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let quantities = (0..3000i128).map(|row| Some(row * 7 % 50 * 100 + 100));
        assert!(is_even(Arc::new(Decimal128Array::from_iter(quantities))));
        assert!(is_even(integers(&[3, 3, 3, -8, -8, 3])));
        assert!(is_even(integers(&[i64::MIN, -1, i64::MIN, -1])));
        assert!(!is_even(integers(&[1, 2, 3, 3, 5, 1])));
        // a distance of more than 64 bits
        assert!(!is_even(integers(&[
            i64::MIN,
            i64::MAX,
            i64::MIN,
            i64::MAX
        ])));
        assert!(!is_even(Arc::new(StringArray::from(vec!["a", "b", "a"]))));
    }
}
