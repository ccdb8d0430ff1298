//! One body, compiled for several instruction sets, chosen at run time.
//!
//! The bodies are plain loops over arrays of constant length that the compiler vectorises; what
//! the x86-64 baseline lacks (32-bit multiplies and compares over wide registers, mask
//! registers) is worth two to four times the speed.

use crate::VECTOR_LEN;

/// Defines `fn name(args) -> ret` whose body is compiled for AVX-512, AVX2 and the baseline.
///
/// ```
/// vectile_encodings::simd::dispatched! {
///     /// The sum of all values.
///     fn sum(values: &[i64]) -> i64 {
///         values.iter().sum()
///     }
/// }
/// assert_eq!(sum(&[1, 2, 3]), 6);
/// ```
#[macro_export]
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($gen:ident : $bound:path),+>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx512 $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2 $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: `level` returned Avx512, so the processor has these features.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: `level` returned Avx2, so the processor has these features.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body($($arg),*)
        }
    };
}
pub use dispatched;

/// The instruction sets that bodies are compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Those that every processor has.
    Baseline,
    /// AVX2, BMI and population counts.
    Avx2,
    /// Also AVX-512 F, BW, VL and DQ.
    Avx512,
}

/// The best level of this processor. The detection macros cache: a load and a test each.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn level() -> Level {
    let common = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    match (common, wide) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Baseline,
    }
}

/// Moves the lowest bits of `bits`, in order, to the positions of the bits in `mask`, if the processor has an
/// instruction for it.
#[inline(always)]
pub(crate) fn deposit(bits: u64, mask: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "bmi2")]
        fn bmi2(bits: u64, mask: u64) -> u64 {
            std::arch::x86_64::_pdep_u64(bits, mask)
        }
        if is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has the instruction.
            return Some(unsafe { bmi2(bits, mask) });
        }
    }
    let _ = (bits, mask);
    None
}

/// Starts loading the byte at an index, if there is one, together with those around it.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, index);
}

/// Bit `i` of `out` is byte `i`, which is 0 or 1. Comparing into bytes first leaves a loop that the compiler vectorises,
/// which it does not if each flag is shifted into its word.
#[inline(always)]
pub fn gather_bits(flags: &[u8; VECTOR_LEN], out: &mut [u64; VECTOR_LEN / 64]) {
    let words = out.iter_mut().zip(flags.as_chunks::<64>().0);
    #[cfg(target_arch = "x86_64")]
    {
        match is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has the instructions.
            true => words.for_each(|(word, flags)| *word = unsafe { bits_avx512(flags) }),
            false => words.for_each(|(word, flags)| *word = bits_sse2(flags)),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    words.for_each(|(word, flags)| *word = bits_singly(flags));
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bits_avx512(flags: &[u8; 64]) -> u64 {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_test_epi8_mask};
    // SAFETY: the array has the 64 bytes that are loaded.
    let flags = unsafe { _mm512_loadu_si512(flags.as_ptr().cast()) };
    _mm512_test_epi8_mask(flags, flags)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits_sse2(flags: &[u8; 64]) -> u64 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8, _mm_slli_epi16};
    let parts = flags.as_chunks::<16>().0.iter().enumerate();
    parts.fold(0, |word, (i, flags)| {
        // SAFETY: every x86-64 processor has the instructions, and the array the 16 bytes that are loaded.
        let bits = unsafe {
            let flags = _mm_loadu_si128(flags.as_ptr().cast());
            // the lowest bit of each byte becomes its highest
            _mm_movemask_epi8(_mm_slli_epi16::<7>(flags))
        };
        word | (bits as u64) << (16 * i)
    })
}

/// Converts eight flags at a time: the product moves byte `k` to bit `56 + k`.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn bits_singly(flags: &[u8; 64]) -> u64 {
    let eights = flags.as_chunks::<8>().0.iter().enumerate();
    eights.fold(0, |word, (i, flags)| {
        let bits = u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word | bits << (8 * i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_bits() {
        for step in 1..70 {
            let flags: [u8; VECTOR_LEN] =
                std::array::from_fn(|row| u8::from(row % step == step / 2 || row % 7 == 3));
            let mut bits = [u64::MAX; VECTOR_LEN / 64];
            gather_bits(&flags, &mut bits);
            for (row, flag) in flags.iter().enumerate() {
                assert_eq!(bits[row / 64] >> (row % 64) & 1, u64::from(*flag), "{row}");
            }
            for (word, flags) in bits.iter().zip(flags.as_chunks().0) {
                assert_eq!(bits_singly(flags), *word);
                #[cfg(target_arch = "x86_64")]
                assert_eq!(bits_sse2(flags), *word);
            }
        }
    }
}
