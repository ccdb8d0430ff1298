//! Keys that are integers, looked up by their distance from the smallest: a bit for each number, and a code.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use super::code_table::{CodeTable, MOST_BYTES, code_bytes};
use super::types::Type;
use crate::error::{Error, Result};

/// Bits of a dense table for each key, at most: as many as a hash table has, of four slots for a key.
const BITS_PER_KEY: u64 = 256;
/// Numbers, from the smallest key to the largest, of which a table is dense, however few are keys: their bits
/// take 2 MiB, which caches hold.
const SMALL_RANGE: u64 = 1 << 24;
/// Numbers, from the smallest key to the largest, that kernels can tell apart in a dense table.
pub(super) const MOST_RANGE: u64 = 1 << 31;

/// Integers that are looked up by their distance from the first.
pub(super) struct PerfectHashTable {
    pub first: i64,
    /// From the first to the last.
    pub range: u64,
    /// A bit for each.
    pub bits: Vec<u32>,
    /// A code for each, if there is more than one; of those that are missing, all ones.
    pub codes: CodeTable,
}

impl PerfectHashTable {
    /// The code of each value.
    pub fn of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
        let integers = integers(values)?.ok_or_else(|| other_keys(values))?;
        let code = |row: usize| {
            let place = integers[row]
                .checked_sub(self.first)
                .filter(|_| values.is_valid(row));
            let place = place.and_then(|place| u64::try_from(place).ok());
            let place = place
                .filter(|place| *place < self.range)
                .unwrap_or(self.range) as usize;
            match self.bits[place / 32] >> (place % 32) & 1 {
                0 => None,
                _ => Some(self.codes.get(place)),
            }
        };
        Ok((0..values.len()).map(code).collect())
    }

    /// Writes the bits in the device's order, and gives the codes.
    pub fn write(&self, to: &mut [u8]) -> &CodeTable {
        let words = to.as_chunks_mut::<4>().0.iter_mut();
        words
            .zip(&self.bits)
            .for_each(|(to, word)| *to = word.to_le_bytes());
        &self.codes
    }
}

/// Whether integers are looked up by their distance from the smallest key, rather than in a hash table:
/// a bit for each of `range` numbers takes no more memory than slots for `keys` do, or is little in any
/// case. Its rows ask for one bit, where those of a hash table ask for 32 bytes, and more than once.
pub(super) fn is_dense(range: u64, keys: u64, count: u32) -> bool {
    let width = code_bytes(count) as u64;
    range
        <= keys
            .saturating_mul(BITS_PER_KEY)
            .clamp(SMALL_RANGE, MOST_RANGE)
        && range.saturating_mul(width) <= MOST_BYTES
}

pub(super) fn other_keys(keys: &ArrayRef) -> Error {
    Error::Unsupported(format!("keys of type {}", keys.data_type()))
}

/// The values of integers and what is stored as such; `None` of text.
pub(crate) fn integers(keys: &ArrayRef) -> Result<Option<Vec<i64>>> {
    use DataType::*;
    if matches!(
        keys.data_type(),
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    ) {
        return Ok(None);
    }
    let of = Type::of(keys.data_type()).filter(|of| !of.is_float() && *of != Type::Bool);
    let of = of.filter(|of| !matches!(of, Type::I128 | Type::U64));
    let of = of.ok_or_else(|| other_keys(keys))?;
    let data = keys.to_data();
    let (offset, len) = (data.offset(), data.len());
    let buffer = data.buffers().first().ok_or_else(|| other_keys(keys))?;
    macro_rules! widened {
        ($native:ty) => {
            buffer.typed_data::<$native>()[offset..offset + len]
                .iter()
                .map(|value| i64::from(*value))
                .collect()
        };
    }
    Ok(Some(match of {
        Type::I8 => widened!(i8),
        Type::I16 => widened!(i16),
        Type::I32 => widened!(i32),
        Type::U8 => widened!(u8),
        Type::U16 => widened!(u16),
        Type::U32 => widened!(u32),
        _ => widened!(i64),
    }))
}
