//! Values of a table at the indices of a vector.
//!
//! The compiler does not use the processor's gather instructions by itself: they take half of the time of single loads.

use vectile_encodings::VECTOR_LEN;
#[cfg(target_arch = "x86_64")]
use vectile_encodings::dispatched;

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
        #[cfg(target_arch = "x86_64")]
        {
            let whole = self.whole_words();
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the instructions; `whole_words` bounds the indices of whole words.
                unsafe { self.gather_avx512(first, keys, missing, whole, out) };
                return self.patch(first, keys, whole, out);
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above.
                unsafe { self.gather_avx2(first, keys, missing, whole, out) };
                return self.patch(first, keys, whole, out);
            }
        }
        self.gather_singly(first, keys, missing, out);
    }

    fn gather_singly(
        self,
        first: i64,
        keys: &[i64; VECTOR_LEN],
        missing: i64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        for (out, key) in out.iter_mut().zip(keys) {
            let index = usize::try_from(key.wrapping_sub(first) as u64);
            let value = index.ok().and_then(|index| self.get(index));
            *out = value.unwrap_or(missing);
        }
    }

    /// Number of indices at which a word of 8 bytes is within the table.
    #[cfg(target_arch = "x86_64")]
    fn whole_words(self) -> u64 {
        match self.bytes.len().checked_sub(8) {
            Some(last) => (last >> self.shift) as u64 + 1,
            None => 0,
        }
    }

    /// Sets the values of the last indices, at which words end behind the table.
    #[cfg(target_arch = "x86_64")]
    fn patch(self, first: i64, keys: &[i64; VECTOR_LEN], whole: u64, out: &mut [i64; VECTOR_LEN]) {
        let rest = (self.len() as u64).saturating_sub(whole);
        if rest == 0 || !any_behind(first, whole, rest, keys) {
            return;
        }
        for (out, key) in out.iter_mut().zip(keys) {
            if is_behind(first, whole, rest, *key)
                && let Some(value) = self.get(key.wrapping_sub(first) as usize)
            {
                *out = value;
            }
        }
    }

    /// # Safety
    ///
    /// The processor has AVX-512 F, and 8 bytes from `index << shift` on are within the table for `index < whole`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn gather_avx512(
        self,
        first: i64,
        keys: &[i64; VECTOR_LEN],
        missing: i64,
        whole: u64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        use std::arch::x86_64::*;
        let table = self.bytes.as_ptr().cast::<i64>();
        let (first, missing) = (_mm512_set1_epi64(first), _mm512_set1_epi64(missing));
        let whole = _mm512_set1_epi64(whole as i64);
        let shift = _mm_cvtsi32_si128(self.shift as i32);
        let unused = _mm_cvtsi32_si128(64 - (8 << self.shift));
        let pairs = keys.as_chunks::<8>().0.iter();
        for (keys, out) in pairs.zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: both arrays have 8 values of 64 bits. Lanes of `within` have an index below `whole`, for which the
            // caller guarantees 8 bytes; others are not read.
            unsafe {
                let keys = _mm512_loadu_si512(keys.as_ptr().cast());
                let index = _mm512_sub_epi64(keys, first);
                let within = _mm512_cmplt_epu64_mask(index, whole);
                let at = _mm512_sll_epi64(index, shift);
                let words = _mm512_mask_i64gather_epi64::<1>(missing, within, at, table);
                let words = _mm512_mask_sll_epi64(words, within, words, unused);
                let values = match self.is_signed {
                    true => _mm512_mask_sra_epi64(words, within, words, unused),
                    false => _mm512_mask_srl_epi64(words, within, words, unused),
                };
                _mm512_storeu_si512(out.as_mut_ptr().cast(), values);
            }
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2, and 8 bytes from `index << shift` on are within the table for `index < whole`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn gather_avx2(
        self,
        first: i64,
        keys: &[i64; VECTOR_LEN],
        missing: i64,
        whole: u64,
        out: &mut [i64; VECTOR_LEN],
    ) {
        use std::arch::x86_64::*;
        let table = self.bytes.as_ptr().cast::<i64>();
        let sign = _mm256_set1_epi64x(i64::MIN);
        let (first, missing) = (_mm256_set1_epi64x(first), _mm256_set1_epi64x(missing));
        let whole = _mm256_xor_si256(_mm256_set1_epi64x(whole as i64), sign);
        let shift = _mm_cvtsi32_si128(self.shift as i32);
        let pairs = keys.as_chunks::<4>().0.iter();
        for (keys, out) in pairs.zip(out.as_chunks_mut::<4>().0) {
            let values: [i64; 4];
            let within: [i64; 4];
            // SAFETY: both arrays have 4 values of 64 bits. Lanes of `is_within` have an index below `whole`, for which
            // the caller guarantees 8 bytes; others are not read.
            unsafe {
                let keys = _mm256_loadu_si256(keys.as_ptr().cast());
                let index = _mm256_sub_epi64(keys, first);
                let is_within = _mm256_cmpgt_epi64(whole, _mm256_xor_si256(index, sign));
                let at = _mm256_sll_epi64(index, shift);
                let words = _mm256_mask_i64gather_epi64::<1>(missing, table, at, is_within);
                values = std::mem::transmute::<__m256i, [i64; 4]>(words);
                within = std::mem::transmute::<__m256i, [i64; 4]>(is_within);
            }
            for (out, (word, within)) in out.iter_mut().zip(values.into_iter().zip(within)) {
                *out = match within {
                    0 => word,
                    _ => self.extended(word),
                };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn is_behind(first: i64, whole: u64, rest: u64, key: i64) -> bool {
    (key.wrapping_sub(first) as u64).wrapping_sub(whole) < rest
}

#[cfg(target_arch = "x86_64")]
dispatched! {
    fn any_behind(first: i64, whole: u64, rest: u64, keys: &[i64; VECTOR_LEN]) -> bool {
        let behind = |key: &i64| is_behind(first, whole, rest, *key);
        keys.iter().fold(false, |any, key| any | behind(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Integer + Into<i128>>(values: Vec<T>) {
        for len in [0, 1, 3, 7, 8, 9, values.len()] {
            let values = &values[..len];
            for first in [0, -5, i64::MAX - 3, i64::MIN] {
                let mut keys = [0; VECTOR_LEN];
                let numbers = keys.iter_mut().zip(0i64..);
                numbers.for_each(|(key, at)| *key = first.wrapping_add(at % 310 - 4));
                keys[9] = i64::MAX;
                keys[10] = i64::MIN;
                let mut out = [7; VECTOR_LEN];
                let table = Table::new(values);
                table.gather(first, &keys, -9, &mut out);
                let mut singly = [7; VECTOR_LEN];
                table.gather_singly(first, &keys, -9, &mut singly);
                assert_eq!(singly, out);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    let (mut of_avx2, whole) = ([7; VECTOR_LEN], table.whole_words());
                    // SAFETY: the processor has the instructions; `whole_words` bounds the indices of whole words.
                    unsafe { table.gather_avx2(first, &keys, -9, whole, &mut of_avx2) };
                    table.patch(first, &keys, whole, &mut of_avx2);
                    assert_eq!(of_avx2, out);
                }
                for (key, value) in keys.iter().zip(out) {
                    let index = key.wrapping_sub(first) as u64 as usize;
                    let expected = values.get(index).map_or(-9, |value| (*value).into());
                    assert_eq!(i128::from(value), expected, "{len} values, key {key}");
                }
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
