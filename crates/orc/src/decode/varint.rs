//! Varints: groups of 7 bits, the low ones first, each byte but the last with its top bit set. Signed integers are
//! zigzagged: 0, -1, 1, -2 are 0, 1, 2, 3.

use crate::error::{Fault, corrupt};

/// Reads a varint of at most 64 bits from the front.
pub(crate) fn read(bytes: &mut &[u8]) -> Result<u64, Fault> {
    // most varints have one byte
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(first));
    }
    if let Some(value) = read_word(bytes) {
        return Ok(value);
    }
    let wide = read_wide(bytes)?;
    u64::try_from(wide).or_else(|_| corrupt("a varint of more than 64 bits"))
}

/// Reads a varint of at most eight bytes, which are one word, if the front is one.
fn read_word(bytes: &mut &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let last = (!word & 0x8080_8080_8080_8080).trailing_zeros();
    if last == u64::BITS {
        return None;
    }
    *bytes = bytes.get(last as usize / 8 + 1..).unwrap_or_default();
    // compacts groups of 7 bits in pairs, then pairs of pairs, and so on
    let groups = word & (u64::MAX >> (63 - last)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    Some(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4)
}

/// Reads a varint of at most 128 bits from the front.
pub(crate) fn read_wide(bytes: &mut &[u8]) -> Result<u128, Fault> {
    if let Some(value) = read_word(bytes) {
        return Ok(value.into());
    }
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let group = u128::from(byte & 0x7f);
        let shift = 7 * at as u32;
        // only two bits of the 19th byte count
        if shift > 126 || (shift == 126 && group > 3) {
            return corrupt("a varint of more than 128 bits");
        }
        value |= group << shift;
        if byte < 0x80 {
            *bytes = bytes.get(at + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    corrupt("a varint ends after the bytes")
}

/// Undoes zigzag.
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// As [`unzigzag`], for 128 bits.
pub(crate) fn unzigzag_wide(value: u128) -> i128 {
    (value >> 1) as i128 ^ -((value & 1) as i128)
}

/// Reads `count` decimals, a varint each, from the front of `bytes`.
pub(super) fn decode_decimals(mut bytes: &[u8], count: usize) -> Result<Vec<i128>, Fault> {
    // each takes a byte at least
    let mut out = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        out.push(unzigzag_wide(read_wide(&mut bytes)?));
    }
    Ok(out)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn write(mut value: u128, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    pub(crate) fn zigzag(value: i64) -> u64 {
        (value << 1) as u64 ^ (value >> 63) as u64
    }

    proptest! {
        #[test]
        fn round_trip(value: i128, next: u8, shift in 0u32..128) {
            let value = value >> shift;
            let mut bytes = vec![];
            write((value << 1) as u128 ^ (value >> 127) as u128, &mut bytes);
            prop_assert_eq!(decode_decimals(&bytes, 1), Ok(vec![value]));
            let before_others = [&bytes[..], &[next; 8]].concat();
            prop_assert_eq!(decode_decimals(&before_others, 1), Ok(vec![value]));
            prop_assert!(decode_decimals(&bytes[..bytes.len() - 1], 1).is_err());
            bytes.push(next);
            let mut rest = &bytes[..];
            let read = read(&mut rest);
            match i64::try_from(value) {
                Ok(value) => {
                    prop_assert_eq!(read.map(unzigzag), Ok(value));
                    prop_assert_eq!(rest, &[next][..]);
                }
                Err(_) => prop_assert!(read.is_err()),
            }
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>, count in 0usize..100) {
            if let Ok(values) = decode_decimals(&bytes, count) {
                prop_assert_eq!(values.len(), count);
            }
        }
    }

    #[test]
    fn too_long() {
        let mut bytes = vec![0xff; 18];
        bytes.push(3);
        assert_eq!(read_wide(&mut &bytes[..]), Ok(u128::MAX));
        bytes[18] = 4;
        assert!(read_wide(&mut &bytes[..]).is_err());
        assert!(read_wide(&mut &[0xff; 30][..]).is_err());
        assert!(read(&mut &[][..]).is_err());
        assert_eq!(unzigzag(u64::MAX), i64::MIN);
    }
}
