//! Integers of a fixed number of bits, one behind the other, the lowest bit first.

use vectile_encodings::simd::dispatched;

/// Bytes that are read for an integer: up to 7 bits before it, and 32 bits of its own.
const WORD: usize = 8;

/// Unpacks integers of up to 32 bits.
///
/// `bytes` starts with the integer of index 0; that of index `first` is the first of `out`. Bits that are missing are 0.
pub(crate) fn unpack(bytes: &[u8], width: usize, first: usize, out: &mut [u32]) {
    if width == 0 {
        return out.fill(0);
    }
    let start = first.saturating_mul(width) / 8;
    let bit = first.wrapping_mul(width) % 8;
    let bytes = bytes.get(start..).unwrap_or_default();
    // integers whose word is within the bytes
    let whole = match (bytes.len() * 8).checked_sub(WORD * 8 + bit) {
        Some(bits) => bits / width + 1,
        None => 0,
    };
    let (within, rest) = out.split_at_mut(whole.min(out.len()));
    unpack_whole(bytes, width, bit, within);
    for (index, to) in rest.iter_mut().enumerate() {
        let bit = bit + (within.len() + index) * width;
        let tail = bytes.get(bit / 8..).unwrap_or_default();
        let mut word = [0; WORD];
        word.iter_mut().zip(tail).for_each(|(to, byte)| *to = *byte);
        *to = integer(word, bit % 8, width);
    }
}

/// The integer at a bit of a word.
#[inline(always)]
fn integer(word: [u8; WORD], bit: usize, width: usize) -> u32 {
    let mask = u32::MAX >> (32 - width.clamp(1, 32));
    (u64::from_le_bytes(word) >> (bit % 8)) as u32 & mask
}

dispatched! {
    /// As [`unpack`], if the words of all integers are within `bytes`; the first is at `bit`.
    fn unpack_whole(bytes: &[u8], width: usize, bit: usize, out: &mut [u32]) {
        for (index, to) in out.iter_mut().enumerate() {
            let bit = bit + index * width;
            let word = bytes.get(bit / 8..).and_then(|rest| rest.first_chunk());
            *to = word.map_or(0, |word| integer(*word, bit, width));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_and_start() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i * 7 + i) as u8).collect();
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .map_or(0, |byte| u32::from(byte >> (at % 8) & 1))
        };
        for width in 0..=32 {
            for first in [0, 1, 7, 8, 100] {
                for len in [0, 1, 33, 300] {
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
