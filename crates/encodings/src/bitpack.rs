//! Bit packing of one vector: 1024 residuals of up to 32 bits over 32 lanes of 32-bit words.
//!
//! ```text
//! value i is in lane i % 32, row i / 32
//! row r of a lane occupies bits [r * width, (r + 1) * width) of the lane's bit string,
//! least significant first; word w of lane l is the little-endian u32 at byte 4 * (w * 32 + l)
//!
//!            lane 0      lane 1            lane 31
//! line 0   | word 0,0  | word 0,1  | ... | word 0,31 |   128 bytes
//! line 1   | word 1,0  | ...
//! ...        `width` lines: a vector is exactly 128 * width bytes
//! ```
//!
//! A row is 32 consecutive values, so unpacking row by row yields them in order, 32 lanes at a
//! time (FastLanes' interleaved layout for 32-bit words).

use crate::VECTOR_LEN;
use crate::simd::dispatched;

/// Lanes of a vector, which is also the number of rows of each lane.
pub(crate) const LANES: usize = 32;

/// Bytes of one line: a word for each lane.
pub(crate) const LINE_BYTES: usize = LANES * 4;

/// One bit for each row of a vector, in row order.
pub(crate) type Mask = [u64; VECTOR_LEN / 64];

/// One 32-bit word for each row of a vector.
pub(crate) type Words = [u32; VECTOR_LEN];

type Line = [[u8; 4]; LANES];

/// The bits that `width` can hold, at most 32.
pub(crate) fn low_mask(width: usize) -> u32 {
    match width {
        0 => 0,
        1..32 => (1 << width) - 1,
        _ => u32::MAX,
    }
}

dispatched! {
    /// Appends `values`, of at most `width <= 32` bits each, packed: `128 * width` bytes.
    pub(crate) fn pack(values: &Words, width: usize, out: &mut Vec<u8>) {
        let mut lines = [[0u32; LANES]; LANES];
        let (rows, _) = values.as_chunks::<LANES>();
        for (row, values) in rows.iter().enumerate() {
            let (line, shift) = (row * width / 32, (row * width % 32) as u32);
            if width == 0 {
                break;
            }
            for lane in 0..LANES {
                lines[line][lane] |= values[lane] << shift;
            }
            if shift as usize + width > 32 {
                for lane in 0..LANES {
                    lines[line + 1][lane] = values[lane] >> (32 - shift);
                }
            }
        }
        for line in lines.iter().take(width) {
            let mut bytes = [0u8; LINE_BYTES];
            for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(line) {
                *to = word.to_le_bytes();
            }
            out.extend_from_slice(&bytes);
        }
    }
}

/// Row `R` of a vector of width `W`. Both are constants, so line, shift and mask are too.
#[inline(always)]
fn row<const W: usize, const R: usize>(lines: &[Line; W]) -> [u32; LANES] {
    let (line, shift) = (R * W / 32, (R * W % 32) as u32);
    let mask = if W == 32 { u32::MAX } else { (1u32 << W) - 1 };
    let mut out = [0u32; LANES];
    for lane in 0..LANES {
        out[lane] = u32::from_le_bytes(lines[line][lane]) >> shift;
    }
    if shift as usize + W > 32 {
        for lane in 0..LANES {
            out[lane] |= u32::from_le_bytes(lines[line + 1][lane]) << (32 - shift);
        }
    }
    for word in &mut out {
        *word &= mask;
    }
    out
}

/// Calls `$visit!(R)` for R = 0..32.
macro_rules! each_row {
    ($visit:ident) => {
        each_row!(@ $visit 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $visit:ident $($r:literal)*) => { $( $visit!($r); )* };
}

/// Calls `$f::<W>(lines, ..)` for the run-time `$width`, or runs `$zero` for width 0.
macro_rules! match_width {
    ($width:expr, $packed:expr, $zero:expr, $f:ident($($arg:expr),*)) => {
        match_width!(@ $width, $packed, $zero, $f, ($($arg),*),
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
    };
    (@ $width:expr, $packed:expr, $zero:expr, $f:ident, $args:tt, $($w:literal)*) => {
        match $width {
            $( $w => match lines::<$w>($packed) {
                Some(lines) => match_width!(@call $f, $w, lines, $args),
                None => $zero,
            }, )*
            _ => $zero,
        }
    };
    (@call $f:ident, $w:literal, $lines:ident, ($($arg:expr),*)) => { $f::<$w>($lines, $($arg),*) };
}

#[inline(always)]
fn lines<const W: usize>(packed: &[u8]) -> Option<&[Line; W]> {
    let (words, _) = packed.as_chunks::<4>();
    let (lines, _) = words.as_chunks::<LANES>();
    lines.first_chunk::<W>()
}

#[inline(always)]
fn unpack_rows<const W: usize>(lines: &[Line; W], out: &mut Words) {
    macro_rules! visit {
        ($r:literal) => {
            out.as_chunks_mut::<LANES>().0[$r] = row::<W, $r>(lines);
        };
    }
    each_row!(visit);
}

dispatched! {
    /// The residuals of a vector at `width <= 32`. `packed` holds at least `128 * width` bytes
    /// (checked when the column was parsed; a shorter slice reads as zeros).
    pub(crate) fn unpack(packed: &[u8], width: usize, out: &mut Words) {
        match_width!(width, packed, out.fill(0), unpack_rows(out))
    }
}

/// Bit `l` says whether `values[l] - low <= span`: `low <= values[l] <= low + span`.
#[inline(always)]
fn row_in_range(values: &[u32; LANES], low: u32, span: u32) -> u32 {
    let mut mask = 0;
    for (lane, value) in values.iter().enumerate() {
        mask |= u32::from(value.wrapping_sub(low) <= span) << lane;
    }
    mask
}

#[inline(always)]
fn in_range_rows<const W: usize>(lines: &[Line; W], low: u32, span: u32, out: &mut Mask) {
    let mut masks = [0u32; LANES];
    macro_rules! visit {
        ($r:literal) => {
            masks[$r] = row_in_range(&row::<W, $r>(lines), low, span);
        };
    }
    each_row!(visit);
    for (word, pair) in out.iter_mut().zip(masks.as_chunks::<2>().0) {
        *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
    }
}

dispatched! {
    /// Which residuals of a packed vector lie in `low..=low + span`, without storing them.
    pub(crate) fn in_range(packed: &[u8], width: usize, low: u32, span: u32, out: &mut Mask) {
        match_width!(
            width,
            packed,
            out.fill(if low == 0 { u64::MAX } else { 0 }),
            in_range_rows(low, span, out)
        )
    }
}

dispatched! {
    /// Which of `values` lie in `low..=high`.
    pub(crate) fn words_in_range(values: &[u64; VECTOR_LEN], low: u64, high: u64, out: &mut Mask) {
        let span = high.wrapping_sub(low);
        for (word, values) in out.iter_mut().zip(values.as_chunks::<64>().0) {
            let mut mask = 0;
            for (bit, value) in values.iter().enumerate() {
                mask |= u64::from(value.wrapping_sub(low) <= span) << bit;
            }
            *word = mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout, read bit by bit: the oracle.
    fn get(packed: &[u8], width: usize, i: usize) -> u32 {
        let (lane, row) = (i % LANES, i / LANES);
        (0..width).fold(0, |value, bit| {
            let at = row * width + bit;
            let byte = 4 * (at / 32 * LANES + lane) + at % 32 / 8;
            value | u32::from(packed[byte] >> (at % 8) & 1) << bit
        })
    }

    fn sample(width: usize) -> Words {
        let mut state = 0x9E37_79B9u32 | 1;
        std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 3 | state << 29) & low_mask(width)
        })
    }

    #[test]
    fn every_width_follows_the_layout() {
        for width in 0..=32 {
            let values = sample(width);
            let mut packed = vec![];
            pack(&values, width, &mut packed);
            assert_eq!(packed.len(), width * LINE_BYTES);
            let mut unpacked = [1; VECTOR_LEN];
            unpack(&packed, width, &mut unpacked);
            assert_eq!(unpacked, values, "width {width}");
            for i in (0..VECTOR_LEN).step_by(13) {
                assert_eq!(get(&packed, width, i), values[i], "width {width}, value {i}");
            }
        }
    }

    #[test]
    fn ranges_agree_with_comparing_the_values() {
        for width in 0..=32 {
            let values = sample(width);
            let mut packed = vec![];
            pack(&values, width, &mut packed);
            for (low, high) in [
                (0, 0),
                (0, u32::MAX),
                (values[5], values[5]),
                (low_mask(width) / 3, low_mask(width) / 2),
                (1, u32::MAX),
            ] {
                let mut mask = [0; 16];
                in_range(&packed, width, low, high - low, &mut mask);
                for (i, value) in values.iter().enumerate() {
                    let expected = (low..=high).contains(value);
                    assert_eq!(mask[i / 64] >> (i % 64) & 1 == 1, expected, "width {width}, value {i}");
                }
            }
        }
    }

    #[test]
    fn a_short_slice_reads_as_zeros() {
        let mut out = [7; VECTOR_LEN];
        unpack(&[1; 100], 5, &mut out);
        assert_eq!(out, [0; VECTOR_LEN]);
    }
}
