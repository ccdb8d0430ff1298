//! Integers of a fixed number of bits, one behind the other, the lowest bit first.

use vectile_encodings::simd::dispatched;

/// Bytes that are read for an integer: up to 7 bits before it, and 32 bits of its own.
const WORD: usize = 8;

/// Integers that start at a byte, together.
const GROUP: usize = 8;

/// Bytes that are read for a group: at most 32, and those of the last integer's word.
const GROUP_BYTES: usize = 40;

/// Unpacks integers of up to 32 bits.
///
/// `bytes` starts with the integer of index 0; that of index `first` is the first of `out`. Bits that are missing are 0.
pub(crate) fn unpack(bytes: &[u8], width: usize, first: usize, out: &mut [u32]) {
    if width == 0 {
        return out.fill(0);
    }
    let head = out.len().min(first.next_multiple_of(GROUP) - first);
    let (head, rest) = out.split_at_mut(head);
    let grouped = first + head.len();
    unpack_each(bytes, width, first, head);
    let start = grouped / GROUP * width;
    let whole = bytes.len().checked_sub(start + GROUP_BYTES);
    let whole = whole.map_or(0, |bytes| bytes / width + 1);
    let (groups, _) = rest.as_chunks_mut();
    let whole = whole.min(groups.len());
    let groups = groups.get_mut(..whole).unwrap_or_default();
    unpack_groups(bytes.get(start..).unwrap_or_default(), width, groups);
    let read = groups.len() * GROUP;
    unpack_each(
        bytes,
        width,
        grouped + read,
        rest.get_mut(read..).unwrap_or_default(),
    );
}

/// As [`unpack`], integer by integer.
fn unpack_each(bytes: &[u8], width: usize, first: usize, out: &mut [u32]) {
    let mask = u32::MAX >> (32 - width.clamp(1, 32));
    for (index, to) in (first..).zip(out) {
        let bit = index.saturating_mul(width);
        let tail = bytes.get(bit / 8..).unwrap_or_default();
        let mut word = [0; WORD];
        word.iter_mut().zip(tail).for_each(|(to, byte)| *to = *byte);
        *to = (u64::from_le_bytes(word) >> (bit % 8)) as u32 & mask;
    }
}

/// Calls `$unpack` with the width as a constant, so that shifts are.
macro_rules! with_width {
    ($width:expr, $bytes:expr, $out:expr, [$($constant:literal)+]) => {
        match $width {
            $($constant => groups_of::<$constant>($bytes, $out),)+
            _ => {}
        }
    };
}

dispatched! {
    /// As [`unpack`], if `bytes` has [`GROUP_BYTES`] from the start of each group.
    fn unpack_groups(bytes: &[u8], width: usize, out: &mut [[u32; GROUP]]) {
        with_width!(width, bytes, out, [
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        ]);
    }
}

#[inline(always)]
fn groups_of<const WIDTH: usize>(bytes: &[u8], out: &mut [[u32; GROUP]]) {
    // a word has these integers, and up to 7 bits before them
    let per_word = match WIDTH {
        0..=8 => 8,
        9..=16 => 4,
        17..=29 => 2,
        _ => 1,
    };
    let mask = u32::MAX >> (32 - WIDTH);
    let mut rest = bytes;
    for group in out {
        let Some(bytes) = rest.first_chunk::<GROUP_BYTES>() else {
            return;
        };
        for (index, to) in group.iter_mut().enumerate() {
            let start = index / per_word * per_word * WIDTH;
            let shift = start % 8 + index % per_word * WIDTH;
            let mut word = [0; WORD];
            word.copy_from_slice(&bytes[start / 8..start / 8 + WORD]);
            *to = (u64::from_le_bytes(word) >> shift) as u32 & mask;
        }
        rest = rest.get(WIDTH..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_and_start() {
        let bytes: Vec<u8> = (0..1500u32).map(|i| (i * i * 7 + i) as u8).collect();
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .map_or(0, |byte| u32::from(byte >> (at % 8) & 1))
        };
        for width in 0..=32 {
            for first in [0, 1, 7, 8, 100] {
                for len in [0, 1, 7, 33, 300] {
                    let mut out = vec![7; len];
                    unpack(&bytes, width, first, &mut out);
                    for (index, value) in out.iter().enumerate() {
                        let start = (first + index) * width;
                        let expected = (0..width).map(|i| bit(start + i) << i).sum::<u32>();
                        assert_eq!(*value, expected, "width {width}, {first} + {index}");
                    }
                }
            }
        }
    }
}
