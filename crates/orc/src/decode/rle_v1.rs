//! Integer RLE, version 1.
//!
//! ```text
//! control   u8: c < 128: a run of c + 3 values: i8 delta, then the first value as a varint;
//!               c >= 128: 256 - c literal varints
//! ```
//!
//! Varints are zigzagged if the stream is signed. Value `i` of a run is the first plus `i` times the delta, wrapping.

use super::blocks;
use super::sign::Sign;
use super::varint;
use crate::error::{Fault, corrupt};

/// The remaining runs of a stream.
pub(super) struct Runs<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) sign: Sign,
}

impl blocks::Runs for Runs<'_> {
    fn append(&mut self, most: usize, out: &mut Vec<i64>) -> Result<bool, Fault> {
        let Some((&control, rest)) = self.bytes.split_first() else {
            return Ok(false);
        };
        self.bytes = rest;
        if control < 0x80 {
            let run = usize::from(control) + 3;
            let Some((&delta, rest)) = self.bytes.split_first() else {
                return corrupt("the stream ends in a run");
            };
            self.bytes = rest;
            let mut value = self.sign.of(varint::read(&mut self.bytes)?);
            let delta = i64::from(delta as i8);
            out.extend((0..run.min(most)).map(|_| {
                let this = value;
                value = value.wrapping_add(delta);
                this
            }));
        } else {
            let literals = 256 - usize::from(control);
            for _ in 0..literals.min(most) {
                out.push(self.sign.of(varint::read(&mut self.bytes)?));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::varint::tests::{write, zigzag};
    use super::*;

    fn decode(bytes: &[u8], sign: Sign, count: usize) -> Result<Vec<i64>, Fault> {
        blocks::tests::values(&mut Runs { bytes, sign }, count)
    }

    fn value(sign: Sign, value: i64, out: &mut Vec<u8>) {
        let bits = match sign {
            Sign::Signed => zigzag(value),
            Sign::Unsigned => value as u64,
        };
        write(bits.into(), out);
    }

    fn part(sign: Sign) -> impl Strategy<Value = (Vec<i64>, Vec<u8>)> {
        let shifted = || (any::<i64>(), 0u32..64).prop_map(|(value, shift)| value >> shift);
        let run = (3usize..=130, any::<i8>(), shifted());
        let run = run.prop_map(move |(run, delta, first)| {
            let mut stream = vec![(run - 3) as u8, delta as u8];
            value(sign, first, &mut stream);
            let step = |i| first.wrapping_add(i64::from(delta).wrapping_mul(i as i64));
            ((0..run).map(step).collect(), stream)
        });
        let literals = prop::collection::vec(shifted(), 1..=128).prop_map(move |literals| {
            let mut stream = vec![(256 - literals.len()) as u8];
            literals
                .iter()
                .for_each(|&literal| value(sign, literal, &mut stream));
            (literals, stream)
        });
        prop_oneof![run, literals]
    }

    proptest! {
        #[test]
        fn round_trip(
            (sign, parts) in prop::sample::select(vec![Sign::Signed, Sign::Unsigned])
                .prop_flat_map(|sign| (Just(sign), prop::collection::vec(part(sign), 0..12)))
        ) {
            let (values, streams): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let (values, stream) = (values.concat(), streams.concat());
            prop_assert_eq!(&decode(&stream, sign, values.len())?, &values);
            let half = values.len() / 2;
            prop_assert_eq!(&decode(&stream, sign, half)?, &values[..half]);
            prop_assert!(decode(&stream, sign, values.len() + 1).is_err());
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>, count in 0usize..10_000) {
            if let Ok(values) = decode(&bytes, Sign::Signed, count) {
                prop_assert_eq!(values.len(), count);
            }
        }
    }

    #[test]
    fn of_the_specification() {
        assert_eq!(
            decode(&[0x61, 0x00, 0x07], Sign::Unsigned, 100),
            Ok(vec![7; 100])
        );
        let down = (1..=100).rev().collect();
        assert_eq!(decode(&[0x61, 0xff, 0x64], Sign::Unsigned, 100), Ok(down));
        let literals = [0xfb, 0x02, 0x03, 0x06, 0x07, 0x0b];
        assert_eq!(
            decode(&literals, Sign::Unsigned, 5),
            Ok(vec![2, 3, 6, 7, 11])
        );
        for damaged in [&[][..], &[0x61], &[0x61, 0], &[0xfe, 1]] {
            assert!(decode(damaged, Sign::Unsigned, 2).is_err());
        }
    }
}
