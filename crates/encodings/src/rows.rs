//! Packed rows of 32 residuals: residual `k` of a row is in bits `[k * width, (k + 1) * width)` of `width` words of 32
//! bits, the lowest bit first.
//!
//! Sixteen residuals of up to 32 bits, or eight of up to 64, begin at a byte and fit a register of 512 bits. There, a
//! permutation brings each one's words to its lane, and a shift per lane aligns it: no step depends on the width, so
//! that widths may change from row to row. Compilers do not find this in a loop. It is six to ten times as fast as the
//! loops, which other processors run.
//! speed of the loops, which other processors run.

/// Residuals of a row.
pub(crate) const ROW_LEN: usize = 32;

/// A word of 32 bits.
pub(crate) type Bytes = [u8; 4];

/// A packed row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row<'a> {
    /// Its words, and any after them: reading a full register is cheaper than stopping. Missing ones read as zeros.
    pub words: &'a [Bytes],
    /// Bits per residual, at most 64.
    pub width: usize,
}

/// An inclusive range of residuals.
pub(crate) type Interval = (u32, u32);

impl Row<'_> {
    /// The largest residual of this width.
    #[inline(always)]
    pub fn top(&self) -> u64 {
        top(self.width)
    }

    /// One residual.
    #[inline(always)]
    pub fn get(&self, k: usize) -> u64 {
        let (at, shift) = (k * self.width / 32, k * self.width % 32);
        let word = |i: usize| {
            let word = self.words.get(at + i).copied();
            u128::from(u32::from_le_bytes(word.unwrap_or_default()))
        };
        let bits = word(0) | word(1) << 32 | word(2) << 64;
        (bits >> shift) as u64 & self.top()
    }
}

#[inline(always)]
fn top(width: usize) -> u64 {
    match width {
        0 => 0,
        1..64 => (1 << width) - 1,
        _ => u64::MAX,
    }
}

/// Reads rows with a processor's instructions.
pub(crate) trait Reader: Copy {
    /// Unpacks a row of up to 32 bits per residual.
    fn narrow(self, row: Row<'_>, out: &mut [u32; ROW_LEN]);
    /// Unpacks a row.
    fn wide(self, row: Row<'_>, out: &mut [u64; ROW_LEN]);
    /// Bit `k` is set if residual `k` of a row of up to 32 bits lies in the interval.
    fn inside(self, row: Row<'_>, interval: Interval) -> u32;
    /// Replaces `values` by their prefix sums, starting from `before`; returns the last of them.
    fn sum_narrow(self, before: u32, values: &mut [u32; ROW_LEN]) -> u32;
    /// As [`sum_narrow`](Self::sum_narrow).
    fn sum_wide(self, before: u64, values: &mut [u64; ROW_LEN]) -> u64;
}

/// Defines `fn name(args) -> ret` whose body is compiled for several instruction sets, as by `dispatched`, with the
/// [`Reader`] that is best for each: the first argument of the body.
macro_rules! reading_rows {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($gen:ident : $bound:path),+>)? ($reader:ident, $($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<Reader: $crate::rows::Reader, $($($gen: $bound),+)?>($reader: Reader, $($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx512 $(<$($gen: $bound),+>)? (reader: $crate::rows::Registers, $($arg: $ty),*) $(-> $ret)? {
                    body(reader, $($arg),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2 $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($crate::rows::Loops, $($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: `level` returned Avx512, so the processor has these features.
                    $crate::simd::Level::Avx512 => return unsafe {
                        avx512($crate::rows::Registers::new(), $($arg),*)
                    },
                    // SAFETY: `level` returned Avx2, so the processor has these features.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body($crate::rows::Loops, $($arg),*)
        }
    };
}
pub(crate) use reading_rows;

/// Reads rows by loops, which compilers vectorise as they can.
#[derive(Clone, Copy)]
pub(crate) struct Loops;

impl Reader for Loops {
    #[inline(always)]
    fn narrow(self, row: Row<'_>, out: &mut [u32; ROW_LEN]) {
        unpack_row(&row, out);
    }

    #[inline(always)]
    fn wide(self, row: Row<'_>, out: &mut [u64; ROW_LEN]) {
        if row.width <= 32 {
            let mut narrow = [0; ROW_LEN];
            unpack_row(&row, &mut narrow);
            *out = narrow.map(u64::from);
            return;
        }
        for (k, out) in out.iter_mut().enumerate() {
            *out = row.get(k);
        }
    }

    #[inline(always)]
    fn inside(self, row: Row<'_>, (low, high): Interval) -> u32 {
        let mut residuals = [0; ROW_LEN];
        unpack_row(&row, &mut residuals);
        let mut inside = [0u8; ROW_LEN];
        for (inside, residual) in inside.iter_mut().zip(residuals) {
            *inside = u8::from(residual.wrapping_sub(low) <= high.wrapping_sub(low));
        }
        // the product moves byte `k` of eight to bit `56 + k`
        let eights = inside.as_chunks::<8>().0.iter().enumerate();
        eights.fold(0, |bits, (i, inside)| {
            let eight = u64::from_le_bytes(*inside).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            bits | (eight as u32) << (8 * i)
        })
    }

    #[inline(always)]
    fn sum_narrow(self, before: u32, values: &mut [u32; ROW_LEN]) -> u32 {
        values.iter_mut().fold(before, |sum, value| {
            *value = value.wrapping_add(sum);
            *value
        })
    }

    #[inline(always)]
    fn sum_wide(self, before: u64, values: &mut [u64; ROW_LEN]) -> u64 {
        values.iter_mut().fold(before, |sum, value| {
            *value = value.wrapping_add(sum);
            *value
        })
    }
}

/// Uses a body for each width, so that shifts are constants.
#[inline(always)]
fn unpack_row(row: &Row<'_>, out: &mut [u32; ROW_LEN]) {
    macro_rules! bodies {
        ($($width:literal)*) => {
            match row.width {
                $($width => unpack_width::<$width>(row.words, out),)*
                _ => out.fill(0),
            }
        };
    }
    bodies!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

#[inline(always)]
fn unpack_width<const WIDTH: usize>(words: &[Bytes], out: &mut [u32; ROW_LEN]) {
    let mut own = [0u32; ROW_LEN];
    for (own, word) in own[..WIDTH].iter_mut().zip(words) {
        *own = u32::from_le_bytes(*word);
    }
    let mask = u32::MAX >> (32 - WIDTH);
    for (k, out) in out.iter_mut().enumerate() {
        let (at, shift) = (k * WIDTH / 32, k * WIDTH % 32);
        let low = own[at] >> shift;
        let high = match shift + WIDTH > 32 {
            true => own[at + 1] << (32 - shift),
            false => 0,
        };
        *out = (low | high) & mask;
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Registers;

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Interval, ROW_LEN, Reader, Row, top};

    /// Lanes of 32 bits.
    const HALF: usize = 16;
    /// Lanes of 64 bits.
    const QUARTER: usize = 8;

    /// Reads rows by registers of 512 bits.
    #[derive(Clone, Copy)]
    pub(crate) struct Registers(());

    impl Registers {
        /// # Safety
        ///
        /// The processor has AVX-512 F and BW, and BMI2.
        #[inline(always)]
        pub unsafe fn new() -> Self {
            Self(())
        }
    }

    impl Reader for Registers {
        #[inline(always)]
        fn narrow(self, row: Row<'_>, out: &mut [u32; ROW_LEN]) {
            // SAFETY: this reader exists, so the processor has these features.
            unsafe { narrow(row, out) }
        }

        #[inline(always)]
        fn wide(self, row: Row<'_>, out: &mut [u64; ROW_LEN]) {
            // SAFETY: this reader exists, so the processor has these features.
            unsafe { wide(row, out) }
        }

        #[inline(always)]
        fn inside(self, row: Row<'_>, interval: Interval) -> u32 {
            // SAFETY: this reader exists, so the processor has these features.
            unsafe { inside(row, interval) }
        }

        #[inline(always)]
        fn sum_narrow(self, before: u32, values: &mut [u32; ROW_LEN]) -> u32 {
            // SAFETY: this reader exists, so the processor has these features.
            unsafe { sum_narrow(before, values) }
        }

        #[inline(always)]
        fn sum_wide(self, before: u64, values: &mut [u64; ROW_LEN]) -> u64 {
            // SAFETY: this reader exists, so the processor has these features.
            unsafe { sum_wide(before, values) }
        }
    }

    /// Loads a register from a byte of a row's words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn load(row: Row<'_>, byte: usize) -> __m512i {
        let rest = row.words.as_flattened().get(byte..).unwrap_or_default();
        match rest.first_chunk::<64>() {
            // SAFETY: the slice has as many bytes as the register.
            Some(bytes) => unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) },
            // masked bytes at no address are slow
            None if rest.is_empty() => _mm512_setzero_si512(),
            None => {
                let mask = _bzhi_u64(u64::MAX, rest.len() as u32);
                // SAFETY: the mask has a bit for each byte of `rest`, and no others are read.
                unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) }
            }
        }
    }

    /// The position of sixteen residuals in their words of 32 bits.
    struct Halves {
        word: __m512i,
        next: __m512i,
        shift: __m512i,
        /// The shift of the next word: 32, which leaves nothing, if the residual begins with a word.
        rest: __m512i,
        top: __m512i,
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn halves(width: usize) -> Halves {
        let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let bits = _mm512_madd_epi16(lanes, _mm512_set1_epi32(width as i32));
        let word = _mm512_srli_epi32::<5>(bits);
        let shift = _mm512_and_si512(bits, _mm512_set1_epi32(31));
        Halves {
            word,
            next: _mm512_add_epi32(word, _mm512_set1_epi32(1)),
            shift,
            rest: _mm512_sub_epi32(_mm512_set1_epi32(32), shift),
            top: _mm512_set1_epi32(top(width) as i32),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn half(row: Row<'_>, part: usize, at: &Halves) -> __m512i {
        let words = load(row, part * row.width * HALF / 8);
        let low = _mm512_srlv_epi32(_mm512_permutexvar_epi32(at.word, words), at.shift);
        let high = _mm512_sllv_epi32(_mm512_permutexvar_epi32(at.next, words), at.rest);
        _mm512_and_si512(_mm512_or_si512(low, high), at.top)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn narrow(row: Row<'_>, out: &mut [u32; ROW_LEN]) {
        let at = halves(row.width);
        for (part, out) in out.as_chunks_mut::<HALF>().0.iter_mut().enumerate() {
            let residuals = half(row, part, &at);
            // SAFETY: `out` has as many bytes as the register.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), residuals) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn inside(row: Row<'_>, (low, high): Interval) -> u32 {
        let at = halves(row.width);
        let low = _mm512_set1_epi32(low as i32);
        let span = _mm512_sub_epi32(_mm512_set1_epi32(high as i32), low);
        let first = _mm512_sub_epi32(half(row, 0, &at), low);
        let second = _mm512_sub_epi32(half(row, 1, &at), low);
        let first = _mm512_cmple_epu32_mask(first, span);
        u32::from(first) | u32::from(_mm512_cmple_epu32_mask(second, span)) << HALF
    }

    /// Sums by steps of one lane, two, four and eight, and continues with the last sum.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn sum_narrow(before: u32, values: &mut [u32; ROW_LEN]) -> u32 {
        let zero = _mm512_setzero_si512();
        let last = _mm512_set1_epi32(HALF as i32 - 1);
        let mut before = _mm512_set1_epi32(before as i32);
        for values in values.as_chunks_mut::<HALF>().0 {
            // SAFETY: `values` has as many bytes as the register, here and below.
            let mut sums = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<15>(sums, zero));
            sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<14>(sums, zero));
            sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<12>(sums, zero));
            sums = _mm512_add_epi32(sums, _mm512_alignr_epi32::<8>(sums, zero));
            sums = _mm512_add_epi32(sums, before);
            before = _mm512_permutexvar_epi32(last, sums);
            // SAFETY: see above.
            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), sums) };
        }
        _mm_cvtsi128_si32(_mm512_castsi512_si128(before)) as u32
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn sum_wide(before: u64, values: &mut [u64; ROW_LEN]) -> u64 {
        let zero = _mm512_setzero_si512();
        let last = _mm512_set1_epi64(QUARTER as i64 - 1);
        let mut before = _mm512_set1_epi64(before as i64);
        for values in values.as_chunks_mut::<QUARTER>().0 {
            // SAFETY: `values` has as many bytes as the register, here and below.
            let mut sums = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<7>(sums, zero));
            sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<6>(sums, zero));
            sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<4>(sums, zero));
            sums = _mm512_add_epi64(sums, before);
            before = _mm512_permutexvar_epi64(last, sums);
            // SAFETY: see above.
            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), sums) };
        }
        _mm_cvtsi128_si64(_mm512_castsi512_si128(before)) as u64
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn wide(row: Row<'_>, out: &mut [u64; ROW_LEN]) {
        let lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
        let bits = _mm512_mul_epu32(lanes, _mm512_set1_epi64(row.width as i64));
        let top = _mm512_set1_epi64(top(row.width) as i64);
        let parts = out.as_chunks_mut::<QUARTER>().0.iter_mut().enumerate();
        if row.width <= 32 {
            // two words of 32 bits to each lane
            let word = _mm512_srli_epi64::<5>(bits);
            let next = _mm512_add_epi64(word, _mm512_set1_epi64(1));
            let words = _mm512_or_si512(word, _mm512_slli_epi64::<32>(next));
            let shift = _mm512_and_si512(bits, _mm512_set1_epi64(31));
            for (part, out) in parts {
                let own = _mm512_permutexvar_epi32(words, load(row, part * row.width));
                let residuals = _mm512_and_si512(_mm512_srlv_epi64(own, shift), top);
                // SAFETY: `out` has as many bytes as the register.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), residuals) };
            }
            return;
        }
        let word = _mm512_srli_epi64::<6>(bits);
        let next = _mm512_add_epi64(word, _mm512_set1_epi64(1));
        let shift = _mm512_and_si512(bits, _mm512_set1_epi64(63));
        let rest = _mm512_sub_epi64(_mm512_set1_epi64(64), shift);
        for (part, out) in parts {
            let own = load(row, part * row.width);
            let low = _mm512_srlv_epi64(_mm512_permutexvar_epi64(word, own), shift);
            let high = _mm512_sllv_epi64(_mm512_permutexvar_epi64(next, own), rest);
            let residuals = _mm512_and_si512(_mm512_or_si512(low, high), top);
            // SAFETY: `out` has as many bytes as the register.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), residuals) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(width: usize) -> [u64; ROW_LEN] {
        std::array::from_fn(|k| {
            (k as u64 + width as u64 + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(23)
                & top(width)
        })
    }

    reading_rows! {
        fn narrow(reader, row: Row<'_>) -> [u32; ROW_LEN] {
            let mut out = [1; ROW_LEN];
            reader.narrow(row, &mut out);
            out
        }
    }

    reading_rows! {
        fn wide(reader, row: Row<'_>) -> [u64; ROW_LEN] {
            let mut out = [1; ROW_LEN];
            reader.wide(row, &mut out);
            out
        }
    }

    reading_rows! {
        fn inside(reader, row: Row<'_>, interval: Interval) -> u32 {
            reader.inside(row, interval)
        }
    }

    /// Bit by bit, in words.
    fn pack(residuals: &[u64; ROW_LEN], width: usize) -> Vec<Bytes> {
        let mut words = vec![[0; 4]; width];
        for (k, residual) in residuals.iter().enumerate() {
            for bit in (0..width).filter(|bit| residual >> bit & 1 == 1) {
                let at = k * width + bit;
                words[at / 32][at % 32 / 8] |= 1 << (at % 8);
            }
        }
        words
    }

    #[test]
    fn every_width_follows_the_layout() {
        for width in 0..=64 {
            let residuals = sample(width);
            let words = pack(&residuals, width);
            let row = Row {
                words: &words,
                width,
            };
            assert_eq!(wide(row), residuals, "width {width}");
            let single: Vec<u64> = (0..ROW_LEN).map(|k| row.get(k)).collect();
            assert_eq!(single, residuals, "width {width}");
            let mut by_loops = [1; ROW_LEN];
            Loops.wide(row, &mut by_loops);
            assert_eq!(by_loops, residuals, "width {width}");
            if width > 32 {
                continue;
            }
            let expected = residuals.map(|residual| residual as u32);
            assert_eq!(narrow(row), expected, "width {width}");
            for (low, high) in [
                (0, 0),
                (0, u32::MAX),
                (expected[3], expected[3]),
                (top(width) as u32 / 3, top(width) as u32 / 2),
                (1, u32::MAX),
            ] {
                let bits = (0..ROW_LEN).fold(0u32, |bits, k| {
                    bits | u32::from((low..=high).contains(&expected[k])) << k
                });
                let context = format!("width {width}, {low} to {high}");
                assert_eq!(inside(row, (low, high)), bits, "{context}");
                assert_eq!(Loops.inside(row, (low, high)), bits, "{context}");
            }
        }
    }

    reading_rows! {
        fn sums(reader, values: [u64; ROW_LEN]) -> ([u32; ROW_LEN], u32, [u64; ROW_LEN], u64) {
            let (mut narrow, mut wide) = (values.map(|value| value as u32), values);
            let last_narrow = reader.sum_narrow(7, &mut narrow);
            let last_wide = reader.sum_wide(7, &mut wide);
            (narrow, last_narrow, wide, last_wide)
        }
    }

    #[test]
    fn sums_run_on_from_what_is_before() {
        let values = sample(64);
        let (narrow, last_narrow, wide, last_wide) = sums(values);
        let mut sum = 7u64;
        for k in 0..ROW_LEN {
            sum = sum.wrapping_add(values[k]);
            assert_eq!((narrow[k], wide[k]), (sum as u32, sum), "{k}");
        }
        assert_eq!((last_narrow, last_wide), (sum as u32, sum));
        let mut by_loops = values;
        assert_eq!(Loops.sum_wide(7, &mut by_loops), sum);
        assert_eq!(by_loops, wide);
        let mut by_loops = values.map(|value| value as u32);
        assert_eq!(Loops.sum_narrow(7, &mut by_loops), sum as u32);
        assert_eq!(by_loops, narrow);
    }

    #[test]
    fn missing_words_read_as_zeros() {
        for width in [1, 20, 32] {
            let row = Row {
                words: &[[0xff; 4]][..1],
                width,
            };
            let expected: [u64; ROW_LEN] = std::array::from_fn(|k| row.get(k));
            assert_eq!(wide(row), expected);
            assert_eq!(narrow(row).map(u64::from), expected);
            let mut by_loops = [1; ROW_LEN];
            Loops.wide(row, &mut by_loops);
            assert_eq!(by_loops, expected);
        }
    }
}
