//! Arrays as columns in encodings that cost little to make, for values that are decoded elsewhere and scanned as
//! columns.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use crate::column::Column;
use crate::encoder::{EncodeOptions, encode};
use crate::encoding::Encoding;
use crate::error::{Error, Result};

impl Encoding {
    /// The encoding of a type's values that costs little to make and that programs and devices can read: `ffor` for
    /// integers, dates, times and decimals, `plain` for other types.
    pub fn of_packed(data_type: &DataType) -> Self {
        let is_integer =
            data_type.is_integer() || data_type.is_temporal() || data_type.is_decimal();
        match is_integer {
            true => Self::Ffor,
            false => Self::Plain,
        }
    }
}

impl Column {
    /// The values of an array in `encoding`, or in the smallest one if that does not apply, and the bytes of memory that
    /// they take. Plain values of fixed width share the array's memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no encoding for the type or the number of rows.
    pub fn packed(array: &ArrayRef, encoding: Encoding) -> Result<(Self, usize)> {
        match pinned(array, encoding) {
            Err(Error::Unsupported(_)) => encoded(array, &EncodeOptions::default()),
            packed => packed,
        }
    }

    /// The values of an array, for containers that decode their files themselves: uncompressed if there is an encoding
    /// for that. Shares the array's memory if values are of fixed width.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no encoding for the type.
    pub fn plain(array: &ArrayRef) -> Result<Self> {
        pinned(array, Encoding::Plain).map(|(column, _)| column)
    }
}

/// As [`Column::packed`], but only in `encoding`; bits, which have no plain encoding, in `ffor`.
fn pinned(array: &ArrayRef, encoding: Encoding) -> Result<(Column, usize)> {
    let encoding = match (encoding, array.data_type()) {
        (Encoding::Plain, DataType::Boolean) => Encoding::Ffor,
        (encoding, _) => encoding,
    };
    if encoding == Encoding::Plain
        && let Some(column) = Column::of_fixed_width(array)?
    {
        return Ok((column, array.get_array_memory_size()));
    }
    let options = EncodeOptions {
        codes: Some(Encoding::Ffor),
        ..EncodeOptions::pinned(encoding)
    };
    encoded(array, &options)
}

fn encoded(array: &ArrayRef, options: &EncodeOptions) -> Result<(Column, usize)> {
    let bytes = encode(array, options)?;
    let len = bytes.len();
    let column = Column::parse(bytes.into(), array.data_type(), array.len())?;
    Ok((column, len))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray,
        StringArray, StringViewArray,
    };
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn packed_columns_have_the_values_and_an_encoding_of_their_type() {
        let arrays: [(ArrayRef, Encoding); 8] = [
            (
                Arc::new(Int64Array::from_iter(
                    (0..3000).map(|i| (i % 5 != 0).then_some(i)),
                )),
                Encoding::Ffor,
            ),
            (
                Arc::new(Date32Array::from_iter_values(7..2000)),
                Encoding::Ffor,
            ),
            (
                // wider than offsets can be
                Arc::new(Decimal128Array::from(vec![i128::MIN / 4, 0, i128::MAX / 4])),
                Encoding::Plain,
            ),
            (
                Arc::new(Float64Array::from(vec![0.5, f64::NAN, -0.0])),
                Encoding::Plain,
            ),
            (
                Arc::new(BooleanArray::from_iter((0..2000).map(|i| Some(i % 3 == 0)))),
                Encoding::Ffor,
            ),
            (
                Arc::new(StringArray::from(vec![Some("a"), None, Some("bc")])),
                Encoding::Plain,
            ),
            (
                Arc::new(StringViewArray::from(vec!["a", "a string of many bytes"])),
                Encoding::Plain,
            ),
            (
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
                    Some(vec![Some(1), None]),
                    None,
                    Some(vec![]),
                ])),
                Encoding::Plain,
            ),
        ];
        for (array, expected) in arrays {
            let encoding = Encoding::of_packed(array.data_type());
            let (column, bytes) = Column::packed(&array, encoding).unwrap();
            let decoded = column.decode(0..array.len()).unwrap();
            assert_eq!(decoded.to_data(), array.to_data(), "{}", array.data_type());
            assert_eq!(column.encoding(), expected, "{}", array.data_type());
            assert!(bytes > 0);
        }
    }

    #[test]
    fn offsets_take_less_memory_than_integers() {
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10_000).map(|i| i % 16)));
        let (_, bytes) = Column::packed(&array, Encoding::Ffor).unwrap();
        assert!(bytes < 10_000);
        let (_, bytes) = Column::packed(&array, Encoding::Plain).unwrap();
        assert!(bytes >= 80_000);
    }

    #[test]
    fn strings_that_are_joined_are_a_column() {
        let text = |row: usize| "text of some bytes".get(..row % 19);
        let values: Vec<_> = (0..3000)
            .map(|row| text(row).filter(|_| row % 7 > 0))
            .collect();
        let lengths: Vec<u64> = values
            .iter()
            .map(|text| text.map_or(0, str::len) as u64)
            .collect();
        let data = values.iter().flatten().flat_map(|text| text.bytes());
        let data: Vec<u8> = data.collect();
        let expected = StringViewArray::from(values);
        let of = |lengths: &[u64], data_type| {
            Column::of_strings(data_type, lengths, data.clone(), expected.nulls())
        };
        let (column, bytes) = of(&lengths, &DataType::Utf8View).unwrap();
        assert_eq!(column.encoding(), Encoding::Plain);
        assert!(bytes > data.len() && bytes < data.len() + 4000);
        let decoded = column.decode(0..3000).unwrap();
        assert_eq!(decoded.as_ref(), &expected);
        assert!(of(&lengths[1..], &DataType::Utf8View).is_err());
        assert!(of(&lengths, &DataType::Int64).is_err());
        assert!(of(&lengths, &DataType::FixedSizeBinary(3)).is_err());
    }
}
