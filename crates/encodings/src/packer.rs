//! Integers that are packed while they are decoded elsewhere, so that no array of them is ever in memory.

use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::class::Class;
use crate::codecs::constant::Constant;
use crate::codecs::ffor::FforWriter;
use crate::codecs::integers::Integers;
use crate::codecs::registry::Values;
use crate::codecs::sequence::Sequence;
use crate::column::Column;
use crate::error::{Error, Result};
use crate::size;
use crate::validity::Validity;
use crate::{MAX_ROWS, VECTOR_LEN};

/// Packs the integers of a column in encoding `ffor`, a vector at a time.
///
/// ```
/// use arrow::array::{ArrayRef, Decimal128Array};
/// use arrow::datatypes::DataType;
/// use vectile_encodings::IntegerPacker;
///
/// let data_type = DataType::Decimal128(5, 2);
/// let mut packer = IntegerPacker::new(&data_type)?;
/// packer.push(&[199, 250]);
/// packer.push(&[1]);
/// let (column, _) = packer.finish(None)?;
/// let prices = Decimal128Array::from(vec![199, 250, 1]).with_data_type(data_type);
/// assert_eq!(column.decode(0..3)?.as_ref(), &prices);
/// # Ok::<(), vectile_encodings::Error>(())
/// ```
#[derive(Debug)]
pub struct IntegerPacker {
    data_type: DataType,
    class: Class,
    /// Values plus this are unsigned, in the same order.
    bias: u64,
    /// The values of the vector that is not full, biased.
    vector: Box<[u64; VECTOR_LEN]>,
    filled: usize,
    packed: FforWriter,
    rows: usize,
}

impl IntegerPacker {
    /// Starts a column of a type of integers, booleans, dates, times or decimals.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for other types.
    pub fn new(data_type: &DataType) -> Result<Self> {
        let class = match Class::stored(data_type) {
            Some(Class::F16 | Class::F32 | Class::F64) | None => {
                return Err(Error::Unsupported(format!("{data_type} as integers")));
            }
            Some(class) => class,
        };
        Ok(Self {
            data_type: data_type.clone(),
            class,
            bias: match class {
                Class::U64 => 0,
                _ => 1 << 63,
            },
            vector: Box::new([0; VECTOR_LEN]),
            filled: 0,
            packed: FforWriter::default(),
            rows: 0,
        })
    }

    /// Appends values of the column's type: booleans as 0 and 1, unsigned integers of 64 bits by their bits. Nulls have a
    /// value, too; that of a neighbour takes the fewest bits.
    pub fn push(&mut self, mut values: &[i64]) {
        while !values.is_empty() {
            let room = &mut self.vector[self.filled..];
            let (now, rest) = values.split_at(values.len().min(room.len()));
            for (to, value) in room.iter_mut().zip(now) {
                *to = (*value as u64).wrapping_add(self.bias);
            }
            self.filled += now.len();
            if self.filled == VECTOR_LEN {
                self.flush();
            }
            values = rest;
        }
    }

    fn flush(&mut self) {
        if self.filled > 0 {
            let last = self.vector[self.filled - 1];
            self.vector[self.filled..].fill(last);
            self.packed.push(&self.vector, self.filled);
            self.rows += self.filled;
            self.filled = 0;
        }
    }

    /// The column, and the bytes of memory that it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for more than [`MAX_ROWS`] rows, or another number of them than of `nulls`.
    pub fn finish(mut self, nulls: Option<&NullBuffer>) -> Result<(Column, usize)> {
        self.flush();
        let rows = self.rows;
        if rows > MAX_ROWS || nulls.is_some_and(|nulls| nulls.len() != rows) {
            let nulls = nulls.map_or(rows, NullBuffer::len);
            let reason = format!("{rows} values and {nulls} nulls, at most {MAX_ROWS}");
            return Err(Error::Unsupported(reason));
        }
        let validity = Validity::of_nulls(nulls, rows)?;
        let smallest = self.packed.rebase();
        let reference = match self.class {
            Class::U64 => i128::from(smallest),
            _ => i128::from(smallest.wrapping_sub(self.bias) as i64),
        };
        let is_constant = self.packed.is_zero();
        let (sequence, bytes) = match is_constant {
            true => (Sequence::Constant(0), 0),
            false => {
                let (packed, bytes) = self.packed.parsed(rows)?;
                (Sequence::Ffor(packed), bytes)
            }
        };
        let column = |rows, validity, values| {
            let bytes = size::fixed_bytes(&self.data_type, rows as u64) as usize;
            Column::of_values(&self.data_type, rows, bytes, validity, values)
        };
        let integers = Values::Integers(Integers::new(self.class, reference, sequence));
        if is_constant && rows > 0 {
            let value = column(1, Validity::AllValid, integers).decode(0..1)?;
            let constant = Values::Constant(Constant::of(value));
            return Ok((column(rows, validity, constant), bytes));
        }
        let column = column(rows, validity, integers);
        Ok((column, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, AsArray, BooleanArray, Int8Array, Int64Array, UInt32Array, UInt64Array,
    };
    use arrow::compute::cast;
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::Encoding;

    /// Packs an array's values, in pieces.
    fn packed(array: &ArrayRef, piece: usize) -> Column {
        let words: Vec<i64> = match array.data_type() {
            DataType::UInt64 => {
                let values = array
                    .as_primitive::<arrow::datatypes::UInt64Type>()
                    .values();
                values.iter().map(|value| *value as i64).collect()
            }
            _ => {
                let values = cast(array, &DataType::Int64).unwrap();
                values.as_primitive::<Int64Type>().values().to_vec()
            }
        };
        let mut packer = IntegerPacker::new(array.data_type()).unwrap();
        words.chunks(piece).for_each(|piece| packer.push(piece));
        packer.finish(array.nulls()).unwrap().0
    }

    #[test]
    fn columns_are_those_of_arrays() {
        let numbers = |rows: i64| (0..rows).map(|i| (i % 7 > 0).then_some(i * i - 5000));
        let unsigned = [u64::MAX, 0, 1 << 63, 5];
        let arrays: [ArrayRef; 9] = [
            Arc::new(Int64Array::from_iter(numbers(3000))),
            Arc::new(Int64Array::from_iter(numbers(1024))),
            Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0])),
            Arc::new(UInt64Array::from_iter_values(unsigned)),
            Arc::new(UInt64Array::from_iter_values(vec![u64::MAX; 2000])),
            Arc::new(UInt32Array::from(vec![u32::MAX, 7])),
            Arc::new(Int8Array::from_iter_values((0..2500).map(|i| i as i8))),
            Arc::new(BooleanArray::from_iter((0..1500).map(|i| Some(i % 3 == 0)))),
            Arc::new(Int64Array::new_null(1030)),
        ];
        for array in arrays {
            let (expected, _) = Column::packed(&array, Encoding::Ffor).unwrap();
            for piece in [1, 100, 1024, 5000] {
                let column = packed(&array, piece);
                let decoded = column.decode(0..array.len()).unwrap();
                assert_eq!(decoded.to_data(), array.to_data(), "{}", array.data_type());
                assert_eq!(column.describe(), expected.describe());
                assert_eq!(
                    column.largest_offset().unwrap(),
                    expected.largest_offset().unwrap()
                );
            }
        }
    }

    #[test]
    fn types_without_integers_and_other_nulls_are_errors() {
        for data_type in [DataType::Float64, DataType::Utf8, DataType::Null] {
            assert!(IntegerPacker::new(&data_type).is_err());
        }
        let mut packer = IntegerPacker::new(&DataType::Int64).unwrap();
        packer.push(&[1, 2]);
        assert!(packer.finish(Some(&NullBuffer::new_null(3))).is_err());
        let packer = IntegerPacker::new(&DataType::Int64).unwrap();
        assert!(packer.finish(None).unwrap().0.is_empty());
    }
}
