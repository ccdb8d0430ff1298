//! Booleans: byte RLE of bytes whose bits go from the most significant to the least.

use arrow::buffer::{BooleanBuffer, Buffer};

use super::byte_rle;
use crate::error::Fault;

/// The `count` bits at the front of a stream.
pub(super) fn decode(bytes: &[u8], count: usize) -> Result<BooleanBuffer, Fault> {
    let mut bits = byte_rle::decode(bytes, count.div_ceil(8))?;
    for byte in &mut bits {
        *byte = byte.reverse_bits();
    }
    Ok(BooleanBuffer::new(Buffer::from_vec(bits), 0, count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::byte_rle::tests::streams;
    use super::*;

    proptest! {
        #[test]
        fn bits_of_bytes((bytes, stream) in streams(), short in 0usize..8) {
            let count = (bytes.len() * 8).saturating_sub(short);
            let bits = decode(&stream, count)?;
            prop_assert_eq!(bits.len(), count);
            for (at, bit) in bits.iter().enumerate() {
                prop_assert_eq!(bit, bytes[at / 8] >> (7 - at % 8) & 1 == 1);
            }
        }
    }

    #[test]
    fn of_the_specification() {
        let bits = decode(&[0xff, 0x80], 8).unwrap();
        assert_eq!(
            bits.iter().collect::<Vec<_>>(),
            [true, false, false, false, false, false, false, false]
        );
        assert!(decode(&[0xff, 0x80], 9).is_err());
    }
}
