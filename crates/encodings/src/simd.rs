//! One body, compiled for several instruction sets, chosen at run time.
//!
//! The bodies are plain loops over arrays of constant length that the compiler vectorises; what
//! the x86-64 baseline lacks (32-bit multiplies and compares over wide registers, mask
//! registers) is worth two to four times the speed.

/// Defines `fn name(args) -> ret` whose body is compiled for AVX-512, AVX2 and the baseline.
///
/// ```
/// vectile_encodings::dispatched! {
///     fn sum(values: &[i64; 1024]) -> i64 {
///         values.iter().sum()
///     }
/// }
/// assert_eq!(sum(&[2; 1024]), 2048);
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
pub(crate) use crate::dispatched;

/// The instruction sets that bodies are compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Of every processor.
    Baseline,
    /// AVX2, and bit manipulation.
    Avx2,
    /// AVX-512 F, BW, VL and DQ, too.
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
