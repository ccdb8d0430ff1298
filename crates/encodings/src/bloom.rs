//! Split-block Bloom filters, as in Parquet: they exclude values from a chunk.
//!
//! ```text
//! blocks   32 bytes each: eight u32
//! ```
//!
//! A value is hashed by XXH64 with seed 0, over its bytes: those of a string, or those of a number in its Arrow array,
//! little-endian. The upper half of the hash, times the number of blocks, without the lower 32 bits, is the number of
//! its block. The lower half, times an odd constant for each word of the block, gives a bit in its upper five bits. All
//! eight bits are set if the value is present.

use arrow::array::Array;
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use twox_hash::XxHash64;

use crate::byte_strings;
use crate::error::{Error, Result, ensure};

const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();

/// The constants of Parquet.
const SALT: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// A Bloom filter. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BloomFilter {
    blocks: Buffer,
}

impl BloomFilter {
    /// Returns true if columns of `data_type` can have Bloom filters: numbers, strings and dictionaries of them.
    pub fn applies_to(data_type: &DataType) -> bool {
        match data_type {
            DataType::Dictionary(_, values) => {
                !values.is_nested()
                    && !matches!(**values, DataType::Dictionary(_, _))
                    && Self::applies_to(values)
            }
            other => other.primitive_width().is_some() || byte_strings::is_bytes(other),
        }
    }

    /// Builds the filter of the values of `array`; an absent value passes with a probability of about `fpp`. `None` if
    /// all rows are null.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the type has no filters, or `fpp` is not between 0 and 1.
    pub fn of(array: &dyn Array, fpp: f64) -> Result<Option<Self>> {
        if !(fpp > 0.0 && fpp < 1.0) {
            return Err(Error::Unsupported(format!(
                "{fpp} as a probability of false positives"
            )));
        }
        let mut hashes = hashes(array)?;
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.is_empty() {
            return Ok(None);
        }
        let bits =
            -(WORDS as f64) * hashes.len() as f64 / (1.0 - fpp.powf(1.0 / WORDS as f64)).ln();
        let blocks = (bits / (8 * BLOCK_BYTES) as f64).ceil().max(1.0) as usize;
        let mut words = vec![[0u32; WORDS]; blocks];
        for hash in hashes {
            let block = &mut words[block_of(hash, blocks)];
            block
                .iter_mut()
                .zip(mask(hash))
                .for_each(|(word, bit)| *word |= bit);
        }
        let bytes = words
            .as_flattened()
            .iter()
            .flat_map(|word| word.to_le_bytes());
        let blocks = Buffer::from(bytes.collect::<Vec<u8>>());
        Ok(Some(Self { blocks }))
    }

    /// Parses a filter. Any whole blocks are accepted: nothing in them is trusted, and lookups always return.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if they are not whole blocks.
    pub fn parse(bytes: Buffer) -> Result<Self> {
        let is_whole = !bytes.is_empty() && bytes.len().is_multiple_of(BLOCK_BYTES);
        ensure(is_whole, "Bloom filter", || {
            format!("{} bytes", bytes.len())
        })?;
        Ok(Self { blocks: bytes })
    }

    /// The filter's bytes.
    pub fn bytes(&self) -> &Buffer {
        &self.blocks
    }

    /// Returns true if one of `values` may be in the chunk. They are of the column's type, or of the type of its
    /// dictionary values.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the type has no filters.
    pub fn may_contain(&self, values: &dyn Array) -> Result<bool> {
        Ok(hashes(values)?.into_iter().any(|hash| self.has(hash)))
    }

    fn has(&self, hash: u64) -> bool {
        let start = block_of(hash, self.blocks.len() / BLOCK_BYTES) * BLOCK_BYTES;
        let block = self
            .blocks
            .get(start..start + BLOCK_BYTES)
            .unwrap_or_default();
        let (words, _) = block.as_chunks();
        let mut words = words.iter().zip(mask(hash));
        words.all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0)
    }
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// The bit of each word of a block.
fn mask(hash: u64) -> [u32; WORDS] {
    SALT.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// The hashes of all values.
fn hashes(array: &dyn Array) -> Result<Vec<u64>> {
    if let DataType::Dictionary(_, values) = array.data_type()
        && BloomFilter::applies_to(array.data_type())
    {
        return hashes(&cast(array, values)?);
    }
    let nulls = array.nulls();
    let is_valid = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
    let rows = (0..array.len()).filter(is_valid);
    let hash = |bytes| XxHash64::oneshot(0, bytes);
    if let Some(values) = byte_strings::values(array) {
        return Ok(rows.map(|row| hash(values[row])).collect());
    }
    let data = array.to_data();
    match (array.data_type().primitive_width(), data.buffers()) {
        (Some(width), [values]) => {
            let value = |row| {
                let start = (data.offset() + row) * width;
                values.get(start..start + width).unwrap_or_default()
            };
            Ok(rows.map(|row| hash(value(row))).collect())
        }
        _ => {
            let reason = format!("a Bloom filter of type {}", array.data_type());
            Err(Error::Unsupported(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Decimal128Array, DictionaryArray, Float64Array, Int64Array, LargeStringArray,
        StringArray, StringViewArray,
    };
    use arrow::datatypes::Int8Type;

    use super::*;

    fn filter(array: &dyn Array) -> BloomFilter {
        let filter = BloomFilter::of(array, 0.01).unwrap().unwrap();
        BloomFilter::parse(filter.bytes().clone()).unwrap()
    }

    #[test]
    fn present_values_pass_and_few_others() {
        for count in [1i64, 100, 10_000, 100_000] {
            // each twice, and nulls
            let there = (0..3 * count).map(|i| (i % 3 > 0).then_some(i / 3 * 7919));
            let array = Int64Array::from_iter(there);
            let filter = filter(&array);
            for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
                assert!(filter.may_contain(&array.slice(row, 1)).unwrap());
            }
            let others = Int64Array::from_iter_values((0..20_000).map(|i| -1 - i));
            let passed =
                (0..others.len()).filter(|row| filter.may_contain(&others.slice(*row, 1)).unwrap());
            let passed = passed.count();
            assert!(passed <= 350, "{passed} of 20000, of {count}");
            let bits = filter.bytes().len() * 8;
            assert!(bits <= 10 * count as usize + 256, "{bits} bits of {count}");
        }
    }

    /// The bytes that other implementations of the format compute.
    #[test]
    fn bytes_do_not_change() {
        let filter = filter(&StringArray::from(vec!["a", "b"]));
        let hashes = [0xD24E_C4F1_A98C_6E5B, 0xDE0E_6E9D_A1A5_B2E7_u64];
        assert_eq!(XxHash64::oneshot(0, b"a"), hashes[0]);
        let mut expected = [0u32; 8];
        for hash in [hashes[0], XxHash64::oneshot(0, b"b")] {
            for (word, salt) in expected.iter_mut().zip(SALT) {
                *word |= 1 << ((hash as u32).wrapping_mul(salt) >> 27);
            }
        }
        let bytes: Vec<u8> = expected
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(filter.bytes().as_slice(), bytes);
    }

    #[test]
    fn types_that_have_the_same_values_have_the_same_filter() {
        let words = ["x", "a longer one than twelve bytes", "", "x"];
        let dictionary: DictionaryArray<Int8Type> = words.into_iter().collect();
        let arrays: [ArrayRef; 4] = [
            Arc::new(StringArray::from_iter_values(words)),
            Arc::new(LargeStringArray::from_iter_values(words)),
            Arc::new(StringViewArray::from_iter_values(words)),
            Arc::new(dictionary),
        ];
        let expected = filter(&arrays[0]);
        for array in &arrays {
            assert!(BloomFilter::applies_to(array.data_type()));
            assert_eq!(filter(array), expected, "{}", array.data_type());
        }
        // floats are distinguished by their bits
        let zero = filter(&Float64Array::from(vec![0.0]));
        assert!(!zero.may_contain(&Float64Array::from(vec![-0.0])).unwrap());
        let wide = Decimal128Array::from(vec![i128::MAX, 5]);
        assert!(filter(&wide).may_contain(&wide.slice(1, 1)).unwrap());
    }

    #[test]
    fn what_is_none_is_refused() {
        assert!(
            BloomFilter::of(&Int64Array::new_null(9), 0.01)
                .unwrap()
                .is_none()
        );
        for fpp in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(BloomFilter::of(&Int64Array::from(vec![1]), fpp).is_err());
        }
        let flags = arrow::array::BooleanArray::from(vec![true]);
        assert!(!BloomFilter::applies_to(flags.data_type()));
        assert!(BloomFilter::of(&flags, 0.01).is_err());
        for bytes in [0, 1, 31, 33] {
            let error = BloomFilter::parse(vec![0u8; bytes].into()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
        let any = BloomFilter::parse(vec![0xFFu8; 96].into()).unwrap();
        assert!(any.may_contain(&Int64Array::from(vec![1])).unwrap());
        assert!(any.may_contain(&flags).is_err());
    }
}
