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
use crate::masks::Mask;
use crate::simd::{self, dispatched, gather_bits};
use crate::words::Word;

/// Lanes of a vector, and also rows per lane.
pub(crate) const LANES: usize = 32;

/// Bytes of one line: a word for each lane.
pub(crate) const LINE_BYTES: usize = LANES * 4;

/// Packed words, and the bits of each residual in them: at most 32.
pub(crate) type Plane<'a> = (&'a [u8], usize);

/// One 32-bit word for each row of a vector.
pub(crate) type Words = [u32; VECTOR_LEN];

type Line = [[u8; 4]; LANES];

/// The mask of `width` bits, at most 32.
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

/// Packs `values` of at most `width <= 64` bits each without interleaving, the lowest bit first, and appends them.
pub(crate) fn pack_short(values: &[u64], width: usize, out: &mut Vec<u8>) {
    let (mut word, mut used) = (0u128, 0);
    for value in values {
        word |= u128::from(*value) << used;
        used += width;
        while used >= 8 {
            out.push(word as u8);
            word >>= 8;
            used -= 8;
        }
    }
    if used > 0 {
        out.push(word as u8);
    }
}

/// The value of a row in the output of [`pack_short`].
pub(crate) fn get_short(packed: &[u8], width: usize, row: usize) -> u64 {
    let (byte, bit) = (row * width / 8, row * width % 8);
    let rest = packed.get(byte..).unwrap_or_default();
    let word = match rest.first_chunk() {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None => {
            let mut bytes = [0; 16];
            bytes[..rest.len()].copy_from_slice(rest);
            u128::from_le_bytes(bytes)
        }
    };
    let mask = 1u128.checked_shl(width as u32).unwrap_or(0).wrapping_sub(1);
    (word >> bit & mask) as u64
}

/// Reads the rows of a packed vector in order. The width is a run-time number: line and shift are the same for all
/// lanes of a row, so a row is a few instructions per register either way. Code for each width (measured: seven minutes
/// to compile) gains nothing that memory bandwidth does not take away.
struct Rows<'a> {
    lines: &'a [Line],
    width: usize,
    mask: u32,
}

impl<'a> Rows<'a> {
    /// `None` for width 0 and for fewer than `width` lines.
    #[inline(always)]
    fn new(packed: &'a [u8], width: usize) -> Option<Self> {
        let (words, _) = packed.as_chunks::<4>();
        let (lines, _) = words.as_chunks::<LANES>();
        let lines = lines.get(..width)?;
        (1..=32).contains(&width).then_some(Self {
            lines,
            width,
            mask: low_mask(width),
        })
    }

    /// The 32 consecutive values of row `row < 32`.
    #[inline(always)]
    fn get(&self, row: usize) -> [u32; LANES] {
        let (line, shift) = (row * self.width / 32, (row * self.width % 32) as u32);
        let low = &self.lines[line];
        // the last row ends with the last line: the line read instead of the one after it is shifted or masked away
        let high = &self.lines[(line + 1).min(self.width - 1)];
        let mut out = [0; LANES];
        for lane in 0..LANES {
            let low = u32::from_le_bytes(low[lane]) >> shift;
            let high = u32::from_le_bytes(high[lane]) << 1 << (31 - shift);
            out[lane] = (low | high) & self.mask;
        }
        out
    }
}

dispatched! {
    /// The residuals of a vector at `width <= 32`. `packed` holds at least `128 * width` bytes
    /// (checked when the column was parsed; a shorter slice reads as zeros).
    pub(crate) fn unpack(packed: &[u8], width: usize, out: &mut Words) {
        let Some(rows) = Rows::new(packed, width) else {
            return out.fill(0);
        };
        for (row, values) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            *values = rows.get(row);
        }
    }
}

dispatched! {
    /// Appends `base + residual` for each residual of a vector. Vectors wider than a word have a second plane.
    pub(crate) fn append_plus<T: Word>(low: Plane<'_>, high: Option<Plane<'_>>, base: T, out: &mut Vec<T>) {
        out.reserve(VECTOR_LEN);
        each_row(low, high, base, |_, values| out.extend_from_slice(values));
    }
}

dispatched! {
    /// As [`append_plus`], but into `out`, which it fills.
    pub(crate) fn unpack_plus<T: Word>(low: Plane<'_>, high: Option<Plane<'_>>, base: T, out: &mut [T; VECTOR_LEN]) {
        let (rows, _) = out.as_chunks_mut::<LANES>();
        each_row(low, high, base, |row, values| rows[row] = *values);
    }
}

/// Calls `put` with each row of `base + residual`, without a scratch vector.
#[inline(always)]
fn each_row<T: Word>(
    low: Plane<'_>,
    high: Option<Plane<'_>>,
    base: T,
    mut put: impl FnMut(usize, &[T; LANES]),
) {
    let Some(low) = Rows::new(low.0, low.1) else {
        return (0..LANES).for_each(|row| put(row, &[base; LANES]));
    };
    match high.and_then(|(high, width)| Rows::new(high, width)) {
        None => {
            for row in 0..LANES {
                let low = low.get(row);
                let mut values = [base; LANES];
                for lane in 0..LANES {
                    values[lane] = base.plus(u64::from(low[lane]));
                }
                put(row, &values);
            }
        }
        Some(high) => {
            for row in 0..LANES {
                let (low, high) = (low.get(row), high.get(row));
                let mut values = [base; LANES];
                for lane in 0..LANES {
                    values[lane] = base.plus(u64::from(low[lane]) | u64::from(high[lane]) << 32);
                }
                put(row, &values);
            }
        }
    }
}

/// One residual of a packed vector.
#[inline]
pub(crate) fn get(packed: &[u8], width: usize, row: usize) -> u32 {
    let (words, _) = packed.as_chunks::<4>();
    let (lane, bit) = (row % LANES, row / LANES * width);
    let word = |line: usize| {
        let word = words.get(line * LANES + lane).copied();
        u64::from(u32::from_le_bytes(word.unwrap_or_default()))
    };
    let pair = word(bit / 32) | word(bit / 32 + 1) << 32;
    (pair >> (bit % 32)) as u32 & low_mask(width)
}

/// Starts loading what [`get`] reads.
#[inline]
pub(crate) fn prefetch(packed: &[u8], width: usize, row: usize) {
    let (lane, line) = (row % LANES, row / LANES * width / 32);
    for line in [line, line + 1] {
        simd::prefetch(packed, (line * LANES + lane) * 4);
    }
}

dispatched! {
    /// Sets a bit per residual of a packed vector that lies in `low..=low + span`, without storing residuals.
    pub(crate) fn in_range(packed: &[u8], width: usize, low: u32, span: u32, out: &mut Mask) {
        let Some(rows) = Rows::new(packed, width) else {
            return out.fill(if low == 0 { u64::MAX } else { 0 });
        };
        let mut inside = [0; VECTOR_LEN];
        for (row, inside) in inside.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            for (inside, value) in inside.iter_mut().zip(rows.get(row)) {
                *inside = u8::from(value.wrapping_sub(low) <= span);
            }
        }
        gather_bits(&inside, out);
    }
}

dispatched! {
    /// Sets a bit per value that lies in `low..=high`.
    pub(crate) fn words_in_range(values: &[u64; VECTOR_LEN], low: u64, high: u64, out: &mut Mask) {
        let span = high.wrapping_sub(low);
        let mut inside = [0; VECTOR_LEN];
        for (inside, value) in inside.iter_mut().zip(values) {
            *inside = u8::from(value.wrapping_sub(low) <= span);
        }
        gather_bits(&inside, out);
    }
}

dispatched! {
    /// Bit `i` of `out` is byte `i`, which is 0 or 1.
    pub(crate) fn bits(flags: &[u8; VECTOR_LEN], out: &mut Mask) {
        gather_bits(flags, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the layout bit by bit: the oracle.
    fn oracle(packed: &[u8], width: usize, i: usize) -> u32 {
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
            state.rotate_right(3) & low_mask(width)
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
                let context = format!("width {width}, value {i}");
                assert_eq!(oracle(&packed, width, i), values[i], "{context}");
                assert_eq!(get(&packed, width, i), values[i], "{context}");
            }
        }
    }

    #[test]
    fn short_vectors_take_no_more_bits_than_their_values() {
        for width in 0..=64 {
            let value = |row: usize| {
                let random = (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                random.checked_shr(64 - width as u32).unwrap_or(0)
            };
            for rows in [1, 2, 7, 31, 1023] {
                let mut packed = vec![];
                pack_short(
                    &(0..rows).map(value).collect::<Vec<_>>(),
                    width,
                    &mut packed,
                );
                assert_eq!(packed.len(), (rows * width).div_ceil(8));
                for row in 0..rows {
                    assert_eq!(get_short(&packed, width, row), value(row), "width {width}");
                }
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
                    assert_eq!(
                        mask[i / 64] >> (i % 64) & 1 == 1,
                        expected,
                        "width {width}, value {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn flags_become_bits() {
        for byte in 0..=u8::MAX {
            let flags = std::array::from_fn(|row| byte >> (row % 8) & 1);
            let mut mask = [0; 16];
            bits(&flags, &mut mask);
            assert_eq!(mask, [u64::from_le_bytes([byte; 8]); 16]);
        }
    }

    #[test]
    fn a_short_slice_reads_as_zeros() {
        let mut out = [7; VECTOR_LEN];
        unpack(&[1; 100], 5, &mut out);
        assert_eq!(out, [0; VECTOR_LEN]);
    }
}
