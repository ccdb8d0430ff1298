//! Values of a table at the indices of a vector.
//!
//! The compiler does not use the processor's gather instructions by itself: they take half of the time of single loads.

use vectile_encodings::VECTOR_LEN;

/// Tables of at most this many values are in four registers of 512 bits: a fifth of the time of gathering.
#[cfg(target_arch = "x86_64")]
const FEW_VALUES: usize = 32;

/// Keys to look up; `None` for those in the output.
type Keys<'a> = Option<&'a [i64; VECTOR_LEN]>;

/// Values of 1, 2, 4 or 8 bytes, little-endian, one behind the other.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    /// Base-two logarithm of a value's bytes.
    shift: u32,
    is_signed: bool,
}

/// An integer of at most 8 bytes.
///
/// # Safety
///
/// All of its bytes are initialized, and there are 1, 2, 4 or 8 of them.
pub(crate) unsafe trait Integer: Copy {
    const IS_SIGNED: bool;
}

macro_rules! integers {
    ($($native:ty: $is_signed:expr),*) => {
        $(
            // SAFETY: integers have no padding.
            unsafe impl Integer for $native {
                const IS_SIGNED: bool = $is_signed;
            }
        )*
    };
}

integers!(u8: false, u16: false, u32: false, u64: false, i8: true, i16: true, i32: true, i64: true);

impl<'a> Table<'a> {
    /// A table of `values`.
    pub fn new<T: Integer>(values: &'a [T]) -> Self {
        let bytes = values.as_ptr().cast();
        Self {
            // SAFETY: the bytes of a slice of integers are initialized, and live as long as it.
            bytes: unsafe { std::slice::from_raw_parts(bytes, size_of_val(values)) },
            shift: size_of::<T>().trailing_zeros(),
            is_signed: T::IS_SIGNED,
        }
    }

    fn len(self) -> usize {
        self.bytes.len() >> self.shift
    }

    fn get(self, index: usize) -> Option<i64> {
        let start = index.checked_mul(1 << self.shift)?;
        let bytes = self.bytes.get(start..)?.get(..1 << self.shift)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        // the container is read on little-endian machines only
        Some(self.extended(i64::from_le_bytes(word)))
    }

    /// The value in the lowest bytes of a word.
    #[inline(always)]
    fn extended(self, word: i64) -> i64 {
        let unused = 64 - (8 << self.shift);
        match self.is_signed {
            true => word << unused >> unused,
            false => ((word as u64) << unused >> unused) as i64,
        }
    }

    /// Sets `out` to the values at `keys[i] - first`, or to `missing` where there is none.
    pub fn gather(
        self,
        first: i64,
        keys: &[i64; VECTOR_LEN],
        missing: i64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        self.gather_keys(first, Some(keys), missing, out);
    }

    /// Replaces indices by the values at them, or by `missing` where there is none.
    pub fn replace(self, missing: i64, indices: &mut [i64; VECTOR_LEN]) {
        self.gather_keys(0, None, missing, indices);
    }

    fn gather_keys(self, first: i64, keys: Keys<'_>, missing: i64, out: &mut [i64; VECTOR_LEN]) {
        #[cfg(target_arch = "x86_64")]
        {
            let mut short = [0; 8];
            let words = self.words(&mut short);
            if is_x86_feature_detected!("avx512f") {
                return match self.len() {
                    // SAFETY: the processor has the instructions.
                    ..=FEW_VALUES => unsafe { self.permute_avx512(first, keys, missing, out) },
                    // SAFETY: the processor has the instructions.
                    _ => unsafe { words.gather_avx512(first, keys, missing, out) },
                };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions.
                return unsafe { words.gather_avx2(first, keys, missing, out) };
            }
        }
        self.gather_singly(first, keys, missing, out);
    }

    fn gather_singly(self, first: i64, keys: Keys<'_>, missing: i64, out: &mut [i64; VECTOR_LEN]) {
        for (row, out) in out.iter_mut().enumerate() {
            let key = keys.map_or(*out, |keys| keys[row]);
            let index = usize::try_from(key.wrapping_sub(first) as u64);
            let value = index.ok().and_then(|index| self.get(index));
            *out = value.unwrap_or(missing);
        }
    }

    /// Gathers from a table of at most [`FEW_VALUES`] values, which fit registers.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512 F.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn permute_avx512(
        self,
        first: i64,
        keys: Keys<'_>,
        missing: i64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        use std::arch::x86_64::*;
        let table: [[i64; 8]; FEW_VALUES / 8] = std::array::from_fn(|register| {
            std::array::from_fn(|lane| self.get(register * 8 + lane).unwrap_or_default())
        });
        // SAFETY: the arrays have 8 values of 64 bits.
        let [a, b, c, d] =
            table.map(|values| unsafe { _mm512_loadu_si512(values.as_ptr().cast()) });
        let (first, missing) = (_mm512_set1_epi64(first), _mm512_set1_epi64(missing));
        let len = _mm512_set1_epi64(self.len() as i64);
        let half = _mm512_set1_epi64(FEW_VALUES as i64 / 2);
        for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let keys = keys.map_or(&*out, |keys| &keys.as_chunks().0[at]);
            // SAFETY: the array has 8 values of 64 bits.
            let keys = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
            let index = _mm512_sub_epi64(keys, first);
            let within = _mm512_cmplt_epu64_mask(index, len);
            // four bits of the index tell the value in two registers, the next one which two
            let low = _mm512_permutex2var_epi64(a, index, b);
            let high = _mm512_permutex2var_epi64(c, index, d);
            let values = _mm512_mask_blend_epi64(_mm512_test_epi64_mask(index, half), low, high);
            let values = _mm512_mask_blend_epi64(within, missing, values);
            // SAFETY: the array has 8 values of 64 bits.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), values) };
        }
    }

    /// The words of the table. Those of a table below 8 bytes are in `short`.
    #[cfg(target_arch = "x86_64")]
    fn words<'b>(self, short: &'b mut [u8; 8]) -> Words<'b>
    where
        'a: 'b,
    {
        let bytes = match self.bytes.len() {
            len @ 0..8 => {
                short[..len].copy_from_slice(self.bytes);
                short
            }
            _ => self.bytes,
        };
        Words {
            bytes,
            last: bytes.len().saturating_sub(8),
            of: self,
        }
    }
}

/// A table that is read in words of 8 bytes. The word of a value begins with it, or is the last word of the table.
///
/// Invariants: `bytes` has `last + 8` bytes; the values of `of` are the first ones in it.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Words<'a> {
    bytes: &'a [u8],
    /// The offset of the last word.
    last: usize,
    of: Table<'a>,
}

/// A value at byte `o` of the table is at byte `o - w` of its word, which is at `w = min(o, last)`. A shift to the left
/// drops the bytes behind it, and one to the right those before it.
#[cfg(target_arch = "x86_64")]
impl Words<'_> {
    /// Bits of a word that a value does not use.
    fn unused(self) -> i64 {
        64 - (8 << self.of.shift)
    }

    /// # Safety
    ///
    /// The processor has AVX-512 F.
    #[target_feature(enable = "avx512f")]
    unsafe fn gather_avx512(
        self,
        first: i64,
        keys: Keys<'_>,
        missing: i64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        use std::arch::x86_64::*;
        let table = self.bytes.as_ptr().cast::<i64>();
        let (first, missing) = (_mm512_set1_epi64(first), _mm512_set1_epi64(missing));
        let len = _mm512_set1_epi64(self.of.len() as i64);
        let last = _mm512_set1_epi64(self.last as i64);
        let unused = _mm512_set1_epi64(self.unused());
        let shift = _mm_cvtsi32_si128(self.of.shift as i32);
        for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let keys = keys.map_or(&*out, |keys| &keys.as_chunks().0[at]);
            // SAFETY: the array has 8 values of 64 bits.
            let keys = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
            let index = _mm512_sub_epi64(keys, first);
            let within = _mm512_cmplt_epu64_mask(index, len);
            let offset = _mm512_sll_epi64(index, shift);
            let at = _mm512_min_epu64(offset, last);
            let before = _mm512_slli_epi64::<3>(_mm512_sub_epi64(offset, at));
            // SAFETY: `at` is at most `last`, from which on the table has 8 bytes.
            let words = unsafe { _mm512_mask_i64gather_epi64::<1>(missing, within, at, table) };
            let behind = _mm512_sub_epi64(unused, before);
            let words = _mm512_mask_sllv_epi64(words, within, words, behind);
            let values = match self.of.is_signed {
                true => _mm512_mask_srav_epi64(words, within, words, unused),
                false => _mm512_mask_srlv_epi64(words, within, words, unused),
            };
            // SAFETY: the array has 8 values of 64 bits.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), values) };
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn gather_avx2(
        self,
        first: i64,
        keys: Keys<'_>,
        missing: i64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        use std::arch::x86_64::*;
        let table = self.bytes.as_ptr().cast::<i64>();
        let (first, missing) = (_mm256_set1_epi64x(first), _mm256_set1_epi64x(missing));
        // there are no unsigned comparisons
        let lowest = _mm256_set1_epi64x(i64::MIN);
        let len = _mm256_xor_si256(_mm256_set1_epi64x(self.of.len() as i64), lowest);
        let last = _mm256_set1_epi64x(self.last as i64);
        let unused = _mm256_set1_epi64x(self.unused());
        let shift = _mm_cvtsi32_si128(self.of.shift as i32);
        // nor arithmetic shifts: flipping the sign bit and subtracting it extends it
        let sign = match self.of.is_signed {
            true => _mm256_srlv_epi64(lowest, unused),
            false => _mm256_setzero_si256(),
        };
        for (at, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let keys = keys.map_or(&*out, |keys| &keys.as_chunks().0[at]);
            // SAFETY: the array has 4 values of 64 bits.
            let keys = unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) };
            let index = _mm256_sub_epi64(keys, first);
            let within = _mm256_cmpgt_epi64(len, _mm256_xor_si256(index, lowest));
            let offset = _mm256_sll_epi64(index, shift);
            let at = _mm256_blendv_epi8(offset, last, _mm256_cmpgt_epi64(offset, last));
            let before = _mm256_slli_epi64::<3>(_mm256_sub_epi64(offset, at));
            // SAFETY: lanes of `within` have an index below `len`, so their offset is not negative and `at` at most
            // `last`, from which on the table has 8 bytes. Other lanes are not read.
            let words = unsafe { _mm256_mask_i64gather_epi64::<1>(missing, table, at, within) };
            let behind = _mm256_sub_epi64(unused, before);
            let values = _mm256_srlv_epi64(_mm256_sllv_epi64(words, behind), unused);
            let values = _mm256_sub_epi64(_mm256_xor_si256(values, sign), sign);
            let values = _mm256_blendv_epi8(missing, values, within);
            // SAFETY: the array has 4 values of 64 bits.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), values) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Integer + Into<i128>>(values: Vec<T>) {
        for len in (0..18).chain([31, 32, 33, values.len()]) {
            let values = &values[..len];
            for first in [0, -5, i64::MAX - 3, i64::MAX, i64::MIN, i64::MIN + 2] {
                let mut keys = [0; VECTOR_LEN];
                let numbers = keys.iter_mut().zip(0i64..);
                numbers.for_each(|(key, at)| *key = first.wrapping_add(at % 310 - 4));
                keys[9] = i64::MAX;
                keys[10] = i64::MIN;
                // offsets that wrap around into the table
                for (key, bits) in keys[20..].iter_mut().zip(56..64) {
                    *key = first.wrapping_add(1 << bits);
                }
                check_keys(values, first, &keys);
            }
        }
    }

    fn check_keys<T: Integer + Into<i128>>(values: &[T], first: i64, keys: &[i64; VECTOR_LEN]) {
        let (len, table) = (values.len(), Table::new(values));
        let check = |kind: &str, gather: &dyn Fn(Keys<'_>, &mut [i64; VECTOR_LEN])| {
            let (mut out, mut replaced) = ([7; VECTOR_LEN], *keys);
            gather(Some(keys), &mut out);
            gather(None, &mut replaced);
            assert_eq!(replaced, out);
            for (key, value) in keys.iter().zip(out) {
                let index = key.wrapping_sub(first) as u64 as usize;
                let expected = values.get(index).map_or(-9, |value| (*value).into());
                let of = format!("{kind}: {len} values from {first}, key {key}");
                assert_eq!(i128::from(value), expected, "{of}");
            }
        };
        check("best", &|keys, out| table.gather_keys(first, keys, -9, out));
        check("singly", &|keys, out| {
            table.gather_singly(first, keys, -9, out)
        });
        #[cfg(target_arch = "x86_64")]
        {
            let mut short = [0xee; 8];
            let words = table.words(&mut short);
            if is_x86_feature_detected!("avx512f") {
                if len <= FEW_VALUES {
                    // SAFETY: the processor has the instructions.
                    check("permuted", &|keys, out| unsafe {
                        table.permute_avx512(first, keys, -9, out);
                    });
                }
                // SAFETY: the processor has the instructions.
                check("avx512", &|keys, out| unsafe {
                    words.gather_avx512(first, keys, -9, out);
                });
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions.
                check("avx2", &|keys, out| unsafe {
                    words.gather_avx2(first, keys, -9, out)
                });
            }
        }
    }

    #[test]
    fn values_of_any_width_are_gathered() {
        let numbers = || (0u64..300).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
        check::<u8>(numbers().map(|x| x as u8).collect());
        check::<u16>(numbers().map(|x| x as u16).collect());
        check::<u32>(numbers().map(|x| x as u32).collect());
        check::<u64>(numbers().collect());
        check::<i8>(numbers().map(|x| x as i8).collect());
        check::<i16>(numbers().map(|x| x as i16).collect());
        check::<i32>(numbers().map(|x| x as i32).collect());
        check::<i64>(numbers().map(|x| x as i64 - (1 << 60)).collect());
    }
}
