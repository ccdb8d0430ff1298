//! Packed integers of RLE version 2: big-endian, the most significant bit first, padded to a whole byte.

use crate::error::{Fault, ensure};

/// The widths by 5-bit code.
const WIDTHS: [u32; 32] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28,
    30, 32, 40, 48, 56, 64,
];

/// The width of a code; only its lower 5 bits count.
pub(super) fn width_of(code: u8) -> u32 {
    WIDTHS[usize::from(code & 31)]
}

/// The smallest encodable width of at least `bits`, if there is one.
pub(super) fn width_for(bits: u32) -> Option<u32> {
    WIDTHS.into_iter().find(|&width| width >= bits)
}

/// Splits off the bytes of `count` packed integers: at most 512 of 64 bits.
pub(super) fn split(bytes: &[u8], width: u32, count: usize) -> Result<(&[u8], &[u8]), Fault> {
    let needed = (width as usize * count).div_ceil(8);
    ensure(bytes.len() >= needed, || {
        let left = bytes.len();
        format!("{count} values of {width} bits, {left} bytes are left")
    })?;
    Ok(bytes.split_at(needed))
}

/// The most integers of a run.
pub(super) const MOST: usize = 512;

/// Unpacks integers of a width of 1 to 64 bits, as many as `out` has. Missing ones are zero.
pub(super) fn unpack(packed: &[u8], width: u32, out: &mut [u64]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_narrow::<$width>(packed, out),)*
                _ => unpack_wide(packed, width as usize, out),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 26 28 30 32);
}

/// Unpacks integers in groups of eight, which start at a byte boundary. Each lies within the 8 bytes that start at its
/// first byte.
fn unpack_narrow<const WIDTH: usize>(packed: &[u8], out: &mut [u64]) {
    let mut rest = packed;
    let (groups, last) = out.as_chunks_mut::<8>();
    let mut done = 0;
    for group in groups.iter_mut() {
        let Some(window) = rest.get(..WIDTH - 1 + 8) else {
            break;
        };
        for (at, value) in group.iter_mut().enumerate() {
            let bit = at * WIDTH;
            let bytes = window
                .get(bit / 8..bit / 8 + 8)
                .and_then(<[u8]>::first_chunk);
            let bits = bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes));
            *value = bits << (bit % 8) >> (64 - WIDTH);
        }
        rest = rest.get(WIDTH..).unwrap_or_default();
        done += 1;
    }
    for group in groups.iter_mut().skip(done) {
        unpack_wide(rest, WIDTH, group);
        rest = rest.get(WIDTH..).unwrap_or_default();
    }
    unpack_wide(rest, WIDTH, last);
}

fn unpack_wide(packed: &[u8], width: usize, out: &mut [u64]) {
    for (at, value) in out.iter_mut().enumerate() {
        let bit = at * width;
        let window = window(packed, bit / 8);
        *value = (window << (bit % 8) >> (128 - width)) as u64;
    }
}

/// The 16 bytes from `start` on.
fn window(packed: &[u8], start: usize) -> u128 {
    let bytes = packed.get(start..).unwrap_or_default();
    match bytes.first_chunk() {
        Some(bytes) => u128::from_be_bytes(*bytes),
        None => {
            let mut padded = [0; 16];
            for (to, from) in padded.iter_mut().zip(bytes) {
                *to = *from;
            }
            u128::from_be_bytes(padded)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packs bit by bit, as the specification draws it.
    pub(crate) fn pack(values: &[u64], width: u32) -> Vec<u8> {
        let mut out = vec![0; (values.len() * width as usize).div_ceil(8)];
        let bits = values
            .iter()
            .flat_map(|value| (0..width).rev().map(move |bit| value >> bit & 1));
        for (at, bit) in bits.enumerate() {
            out[at / 8] |= (bit as u8) << (7 - at % 8);
        }
        out
    }

    /// The code of a width.
    pub(crate) fn code_of(width: u32) -> u8 {
        WIDTHS.iter().position(|&of| of == width).unwrap() as u8
    }

    proptest! {
        #[test]
        fn round_trip(code in 0u8..32, values in prop::collection::vec(any::<u64>(), 0..100)) {
            let width = width_of(code);
            let values: Vec<u64> = values.into_iter().map(|value| value >> (64 - width)).collect();
            let packed = pack(&values, width);
            let (of_values, rest) = split(&packed, width, values.len())?;
            prop_assert!(rest.is_empty());
            let mut unpacked = vec![0; values.len()];
            unpack(of_values, width, &mut unpacked);
            prop_assert_eq!(unpacked, values);
        }
    }

    #[test]
    fn widths() {
        assert_eq!((width_of(23), width_of(24), width_of(31)), (24, 26, 64));
        assert_eq!(
            (width_for(25), width_for(33), width_for(64)),
            (Some(26), Some(40), Some(64))
        );
        assert_eq!(width_for(65), None);
        assert!(split(&[0; 9], 24, 4).is_err());
    }
}
