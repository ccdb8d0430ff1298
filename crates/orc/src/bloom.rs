//! Bloom filters of a column in a stripe: one per index group.
//!
//! ```text
//! hash    text: Murmur3's first 64 bits; integers and floats: Wang's hash of 64 bits
//! bits    of the two halves of the hash, bit |a + i * b| modulo all bits, for i from 1 on
//! ```

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use vectile_scan::ValueFilter;

use crate::kind::TypeKind;
use crate::messages::BloomFilterMessage;

/// The seed of ORC's Murmur3.
const SEED: u64 = 104_729;

/// The filters of a column in one stripe.
#[derive(Clone, Debug)]
pub(crate) struct BloomFilters {
    filters: Vec<BloomFilterMessage>,
}

impl BloomFilters {
    /// Returns true if this crate understands Bloom filters of columns of this type.
    pub(crate) fn apply_to(kind: TypeKind) -> bool {
        use TypeKind::*;
        matches!(
            kind,
            Byte | Short | Int | Long | Date | Float | Double | String | Varchar
        )
    }

    pub(crate) fn new(filters: Vec<BloomFilterMessage>) -> Self {
        Self { filters }
    }
}

impl ValueFilter for BloomFilters {
    fn may_contain(&self, values: &dyn Array) -> vectile_encodings::Result<bool> {
        let Some(hashes) = hashes(values) else {
            return Ok(true);
        };
        let may = |filter: &BloomFilterMessage| hashes.iter().any(|&hash| has(filter, hash));
        // a stripe has one filter per index group; without any nothing is known
        Ok(self.filters.is_empty() || self.filters.iter().any(may))
    }

    fn bytes(&self) -> usize {
        let words: usize = self.filters.iter().map(|filter| filter.words.len()).sum();
        words * size_of::<u64>()
    }
}

/// Returns true if all bits of a hash are set.
fn has(filter: &BloomFilterMessage, hash: u64) -> bool {
    let bits = filter.words.len() as u64 * 64;
    if bits == 0 {
        return true;
    }
    let (a, b) = (hash as i32, (hash >> 32) as i32);
    let functions = i32::try_from(filter.hash_functions).unwrap_or(i32::MAX);
    // more functions than bits test the same bits repeatedly
    (1..=functions.min(64)).all(|number| {
        let mut combined = a.wrapping_add(number.wrapping_mul(b));
        if combined < 0 {
            combined = !combined;
        }
        let bit = combined as u64 % bits;
        let word = filter.words.get((bit / 64) as usize);
        word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
    })
}

/// The hashes of the non-null values; `None` if a value may be stored in more than one way.
fn hashes(values: &dyn Array) -> Option<Vec<u64>> {
    macro_rules! integers {
        ($type:ty) => {
            values
                .as_primitive::<$type>()
                .iter()
                .flatten()
                .map(|value| of_integer(value.into()))
                .collect()
        };
    }
    Some(match values.data_type() {
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::Date32 => integers!(Date32Type),
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>().iter().flatten();
            values
                .map(|value| of_float(value.into()))
                .collect::<Option<_>>()?
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>().iter().flatten();
            values.map(of_float).collect::<Option<_>>()?
        }
        DataType::Utf8 => {
            let values = values.as_string::<i32>().iter().flatten();
            values.map(|value| murmur3(value.as_bytes())).collect()
        }
        _ => return None,
    })
}

/// The hash of a float; `None` for NaN, which has many forms, and zero, whose sign is unknown.
fn of_float(value: f64) -> Option<u64> {
    let is_one_form = !value.is_nan() && value != 0.0;
    is_one_form.then(|| of_integer(value.to_bits() as i64))
}

/// Thomas Wang's hash of 64 bits, with shifts that keep the sign.
fn of_integer(value: i64) -> u64 {
    let mut key = value;
    key = (!key).wrapping_add(key << 21);
    key ^= key >> 24;
    key = key.wrapping_add(key << 3).wrapping_add(key << 8);
    key ^= key >> 14;
    key = key.wrapping_add(key << 2).wrapping_add(key << 4);
    key ^= key >> 28;
    key = key.wrapping_add(key << 31);
    key as u64
}

/// The 64 bits of Murmur3 that ORC's writers use.
fn murmur3(bytes: &[u8]) -> u64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let (words, tail) = bytes.as_chunks();
    let mut hash = SEED;
    for word in words {
        hash ^= mix(u64::from_le_bytes(*word));
        hash = hash
            .rotate_left(27)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    if !tail.is_empty() {
        hash ^= mix(u64::from_le_bytes(last));
    }
    hash ^= bytes.len() as u64;
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};

    use super::*;

    /// A filter with the bits of these hashes.
    fn filter(hashes: &[u64]) -> BloomFilters {
        let mut message = BloomFilterMessage {
            hash_functions: 3,
            words: vec![0; 16],
        };
        for hash in hashes {
            for number in 1..=3 {
                let combined =
                    (*hash as i32).wrapping_add(((hash >> 32) as i32).wrapping_mul(number));
                let bit = if combined < 0 { !combined } else { combined } as usize % 1024;
                message.words[bit / 64] |= 1 << (bit % 64);
            }
        }
        BloomFilters::new(vec![message])
    }

    #[test]
    fn present_values_pass_and_few_others() {
        let there: ArrayRef = Arc::new(Int64Array::from_iter_values((0..60).map(|i| i * 7919 - 9)));
        let filter = filter(&hashes(&there).unwrap());
        assert_eq!(filter.bytes(), 128);
        for row in 0..there.len() {
            assert!(filter.may_contain(&there.slice(row, 1)).unwrap());
        }
        let passed = (0..1000).filter(|i| {
            let other: ArrayRef = Arc::new(Int64Array::from(vec![1_000_000 + i]));
            filter.may_contain(&other).unwrap()
        });
        assert!(passed.count() < 40);
        // of equal value
        let narrow: ArrayRef = Arc::new(Int32Array::from(vec![-9]));
        assert!(filter.may_contain(&narrow).unwrap());
    }

    #[test]
    fn what_is_unknown_passes() {
        let filter = filter(&[]);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["abc"]));
        assert!(!filter.may_contain(&text).unwrap());
        for value in [0.0, -0.0, f64::NAN] {
            let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, value]));
            assert!(filter.may_contain(&values).unwrap());
        }
        let text: ArrayRef = Arc::new(StringArray::from(vec!["abc"]));
        assert!(BloomFilters::new(vec![]).may_contain(&text).unwrap());
        let empty = BloomFilterMessage::default();
        assert!(BloomFilters::new(vec![empty]).may_contain(&text).unwrap());
    }
}
