//! Integer RLE, version 2: runs of four kinds, identified by the upper two bits.
//!
//! ```text
//! short repeat   00 www ccc             the value in w + 1 bytes, c + 3 times
//! direct         01 wwwww l  llllllll   l + 1 values of the width of code w
//! patched base   10 wwwww l  llllllll   bbb ppppp  ggg nnnnn, base, l + 1 values, n patches
//! delta          11 wwwww l  llllllll   base, first delta, l - 1 deltas; of one delta if w is 0
//! ```
//!
//! Everything is big-endian. A run has at most 512 values, and a length of 9 bits is one less than that.

use super::bits;
use super::blocks;
use super::sign::Sign;
use super::varint;
use crate::error::{Fault, corrupt};

/// The remaining runs of a stream.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    sign: Sign,
    /// Scratch for the packed integers of a run.
    unpacked: [u64; bits::MOST],
}

/// The content of the first two bytes of a run, except for short repeats.
struct Head {
    /// The code of the width.
    code: u8,
    values: usize,
}

impl blocks::Runs for Runs<'_> {
    fn append(&mut self, _: usize, out: &mut Vec<i64>) -> Result<bool, Fault> {
        match self.bytes.is_empty() {
            true => Ok(false),
            false => self.append_next(out).map(|()| true),
        }
    }
}

impl<'a> Runs<'a> {
    pub(super) fn new(bytes: &'a [u8], sign: Sign) -> Self {
        Self {
            bytes,
            sign,
            unpacked: [0; bits::MOST],
        }
    }

    fn append_next(&mut self, out: &mut Vec<i64>) -> Result<(), Fault> {
        let first = self.byte()?;
        if first >> 6 == 0 {
            return self.short_repeat(first, out);
        }
        let length = usize::from(first & 1) << 8 | usize::from(self.byte()?);
        let head = Head {
            code: first >> 1 & 31,
            values: length + 1,
        };
        match first >> 6 {
            1 => self.direct(&head, out),
            2 => self.patched_base(&head, out),
            _ => self.delta(&head, out),
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let Some((&byte, rest)) = self.bytes.split_first() else {
            return corrupt("the stream ends in a run");
        };
        self.bytes = rest;
        Ok(byte)
    }

    /// Reads an integer of `width` bytes.
    fn big_endian(&mut self, width: usize) -> Result<u64, Fault> {
        let (bytes, rest) = bits::split(self.bytes, 8, width)?;
        self.bytes = rest;
        let push = |value, byte: &u8| value << 8 | u64::from(*byte);
        Ok(bytes.iter().fold(0, push))
    }

    /// Reads `count` packed integers.
    fn packed(&mut self, width: u32, count: usize) -> Result<&[u64], Fault> {
        let (packed, rest) = bits::split(self.bytes, width, count)?;
        let unpacked = self.unpacked.get_mut(..count).unwrap_or_default();
        // the bytes that follow may be read, and are shifted out
        let packed = match self.bytes.get(..packed.len() + size_of::<u64>()) {
            Some(more) => more,
            None => packed,
        };
        bits::unpack(packed, width, unpacked);
        self.bytes = rest;
        Ok(unpacked)
    }

    fn short_repeat(&mut self, head: u8, out: &mut Vec<i64>) -> Result<(), Fault> {
        let value = self.big_endian(usize::from(head >> 3 & 7) + 1)?;
        let values = usize::from(head & 7) + 3;
        out.resize(out.len() + values, self.sign.of(value));
        Ok(())
    }

    fn direct(&mut self, head: &Head, out: &mut Vec<i64>) -> Result<(), Fault> {
        let sign = self.sign;
        let values = self.packed(bits::width_of(head.code), head.values)?;
        out.extend(values.iter().map(|value| sign.of(*value)));
        Ok(())
    }

    /// Values are offsets from a base, their minimum. The upper bits of some are in a list of patches:
    ///
    /// ```text
    /// b + 1 bytes   the base: its top bit is the sign, the others are the magnitude
    /// values        offsets of the width of code w
    /// n patches     gap of g + 1 bits << width of code p | patch
    /// ```
    ///
    /// A gap is the distance to the previous patched value. One of 255 with patch 0 only extends the next gap.
    fn patched_base(&mut self, head: &Head, out: &mut Vec<i64>) -> Result<(), Fault> {
        let width = bits::width_of(head.code);
        let (third, fourth) = (self.byte()?, self.byte()?);
        let base_bytes = usize::from(third >> 5) + 1;
        let patch_width = bits::width_of(third);
        let gap_width = u32::from(fourth >> 5) + 1;
        let patches = usize::from(fourth & 31);
        let Some(entry_width) = bits::width_for(patch_width + gap_width) else {
            return corrupt(format!(
                "patches of {patch_width} bits with gaps of {gap_width}"
            ));
        };
        let base = self.big_endian(base_bytes)?;
        let sign_bit = 1 << (8 * base_bytes - 1);
        let magnitude = (base & (sign_bit - 1)) as i64;
        let base = match base & sign_bit {
            0 => magnitude,
            _ => -magnitude,
        };
        let start = out.len();
        let values = self.packed(width, head.values)?;
        out.extend(values.iter().map(|value| *value as i64));
        let offsets = out.get_mut(start..).unwrap_or_default();
        let mut at = 0;
        for &entry in self.packed(entry_width, patches)? {
            // an entry is no wider than its two parts, but its encoded width may be
            let gap = (entry >> patch_width) & ((1 << gap_width) - 1);
            let patch = entry & (u64::MAX >> (64 - patch_width));
            at += gap as usize;
            if gap == 255 && patch == 0 {
                continue;
            }
            let Some(offset) = offsets.get_mut(at) else {
                return corrupt(format!("a patch of value {at} of {}", head.values));
            };
            // widths are rounded up, so their sum may exceed 64 bits
            *offset |= patch.checked_shl(width).unwrap_or(0) as i64;
        }
        for offset in offsets {
            *offset = base.wrapping_add(*offset);
        }
        Ok(())
    }

    fn delta(&mut self, head: &Head, out: &mut Vec<i64>) -> Result<(), Fault> {
        let base = self.sign.of(varint::read(&mut self.bytes)?);
        let first = varint::unzigzag(varint::read(&mut self.bytes)?);
        out.push(base);
        let mut value = base;
        if head.code == 0 {
            out.extend((1..head.values).map(|_| {
                value = value.wrapping_add(first);
                value
            }));
            return Ok(());
        }
        if head.values < 2 {
            return Ok(());
        }
        value = value.wrapping_add(first);
        out.push(value);
        let deltas = self.packed(bits::width_of(head.code), head.values - 2)?;
        out.extend(deltas.iter().map(|delta| {
            value = match first < 0 {
                true => value.wrapping_sub(*delta as i64),
                false => value.wrapping_add(*delta as i64),
            };
            value
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::varint::tests::{write, zigzag};
    use super::bits::tests::{code_of, pack};
    use super::*;

    fn decode(bytes: &[u8], sign: Sign, count: usize) -> Result<Vec<i64>, Fault> {
        blocks::tests::values(&mut Runs::new(bytes, sign), count)
    }

    fn bits_of(sign: Sign, value: i64) -> u64 {
        match sign {
            Sign::Signed => zigzag(value),
            Sign::Unsigned => value as u64,
        }
    }

    fn head(kind: u8, code: u8, values: usize) -> Vec<u8> {
        let length = values - 1;
        vec![kind << 6 | code << 1 | (length >> 8) as u8, length as u8]
    }

    /// Values that fit `width` bits, after zigzag if signed.
    fn value(sign: Sign, width: u32) -> impl Strategy<Value = i64> + Clone {
        any::<u64>().prop_map(move |bits| sign.of(bits >> (64 - width)))
    }

    fn width() -> impl Strategy<Value = u32> {
        (0u8..32).prop_map(bits::width_of)
    }

    type Part = (Vec<i64>, Vec<u8>);

    fn short_repeat(sign: Sign) -> impl Strategy<Value = Part> {
        let value = (1u32..=8).prop_flat_map(move |bytes| (Just(bytes), value(sign, 8 * bytes)));
        (value, 3usize..=10).prop_map(move |((bytes, value), count)| {
            let mut stream = vec![((bytes - 1) << 3) as u8 | (count - 3) as u8];
            let bits = bits_of(sign, value).to_be_bytes();
            stream.extend_from_slice(&bits[8 - bytes as usize..]);
            (vec![value; count], stream)
        })
    }

    fn direct(sign: Sign) -> impl Strategy<Value = Part> {
        let values = width().prop_flat_map(move |width| {
            (
                Just(width),
                prop::collection::vec(value(sign, width), 1..=512),
            )
        });
        values.prop_map(move |(width, values)| {
            let mut stream = head(1, code_of(width), values.len());
            let bits: Vec<u64> = values.iter().map(|&value| bits_of(sign, value)).collect();
            stream.extend(pack(&bits, width));
            (values, stream)
        })
    }

    fn fixed_delta(sign: Sign) -> impl Strategy<Value = Part> {
        (value(sign, 64), any::<i64>(), 1usize..=512).prop_map(move |(base, delta, count)| {
            let mut stream = head(3, 0, count);
            write(bits_of(sign, base).into(), &mut stream);
            write(zigzag(delta).into(), &mut stream);
            let step = |i| base.wrapping_add(delta.wrapping_mul(i as i64));
            ((0..count).map(step).collect(), stream)
        })
    }

    fn delta(sign: Sign) -> impl Strategy<Value = Part> {
        let deltas = width().prop_flat_map(|width| {
            let width = width.max(2);
            let delta = any::<u64>().prop_map(move |bits| bits >> (64 - width));
            (Just(width), prop::collection::vec(delta, 0..=510))
        });
        (value(sign, 64), any::<i64>(), deltas).prop_map(move |(base, first, (width, deltas))| {
            let mut stream = head(3, code_of(width), deltas.len() + 2);
            write(bits_of(sign, base).into(), &mut stream);
            write(zigzag(first).into(), &mut stream);
            stream.extend(pack(&deltas, width));
            let mut values = vec![base, base.wrapping_add(first)];
            for delta in deltas {
                let delta = delta as i64;
                let delta = if first < 0 {
                    delta.wrapping_neg()
                } else {
                    delta
                };
                values.push(values[values.len() - 1].wrapping_add(delta));
            }
            (values, stream)
        })
    }

    prop_compose! {
        fn patched_base()(
            base_bytes in 1usize..=8,
            base in any::<i64>(),
            width in 1u32..=32,
            patch_width in 1u32..=32,
            offsets in prop::collection::vec(any::<u64>(), 1..=512),
            // distances between patches; those from 255 on take more than one entry
            patches in prop::collection::vec((0usize..300, 1u64..), 0..=15),
        ) -> Part {
            // widths that have codes
            let (width, patch_width) = (bits::width_for(width).unwrap(), bits::width_for(patch_width).unwrap());
            let magnitude = (base.unsigned_abs() >> 1) >> (64 - 8 * base_bytes);
            let is_negative = base < 0;
            let base = if is_negative { -(magnitude as i64) } else { magnitude as i64 };
            let mut offsets: Vec<u64> = offsets.into_iter().map(|offset| offset >> (64 - width)).collect();
            let low = offsets.clone();
            let mut entries = vec![];
            let mut at = 0;
            for (number, (distance, patch)) in patches.into_iter().enumerate() {
                let distance = if number == 0 { distance } else { distance.max(1) };
                let patch = (patch >> (64 - patch_width)).max(1);
                at += distance;
                if at >= offsets.len() {
                    break;
                }
                let mut gap = distance;
                while gap > 255 {
                    entries.push(255 << patch_width);
                    gap -= 255;
                }
                entries.push((gap as u64) << patch_width | patch);
                offsets[at] |= patch << width;
            }
            let mut stream = head(2, code_of(width), offsets.len());
            stream.push(((base_bytes - 1) << 5) as u8 | code_of(patch_width));
            stream.push(7 << 5 | entries.len() as u8);
            let sign = u64::from(is_negative) << (8 * base_bytes - 1);
            stream.extend_from_slice(&(magnitude | sign).to_be_bytes()[8 - base_bytes..]);
            stream.extend(pack(&low, width));
            stream.extend(pack(&entries, bits::width_for(patch_width + 8).unwrap()));
            let values = offsets.iter().map(|&offset| base.wrapping_add(offset as i64)).collect();
            (values, stream)
        }
    }

    fn part(sign: Sign) -> impl Strategy<Value = Part> {
        prop_oneof![
            short_repeat(sign),
            direct(sign),
            fixed_delta(sign),
            delta(sign),
            patched_base(),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(
            (sign, parts) in prop::sample::select(vec![Sign::Signed, Sign::Unsigned])
                .prop_flat_map(|sign| (Just(sign), prop::collection::vec(part(sign), 0..8)))
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

        #[test]
        fn any_run(kind in 0u8..4, mut bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            bytes[0] = bytes[0] & 0x3f | kind << 6;
            if let Ok(values) = decode(&bytes, Sign::Signed, 3) {
                prop_assert_eq!(values.len(), 3);
            }
        }
    }

    #[test]
    fn of_the_specification() {
        let repeat = [0x0a, 0x27, 0x10];
        assert_eq!(decode(&repeat, Sign::Unsigned, 5), Ok(vec![10000; 5]));
        let direct = [0x5e, 0x03, 0x5c, 0xa1, 0xab, 0x1e, 0xde, 0xad, 0xbe, 0xef];
        let values = vec![23713, 43806, 57005, 48879];
        assert_eq!(decode(&direct, Sign::Unsigned, 4), Ok(values));
        let patched = [
            0x8e, 0x13, 0x2b, 0x21, 0x07, 0xd0, 0x1e, 0x00, 0x14, 0x70, 0x28, 0x32, 0x3c, 0x46,
            0x50, 0x5a, 0x64, 0x6e, 0x78, 0x82, 0x8c, 0x96, 0xa0, 0xaa, 0xb4, 0xbe, 0xfc, 0xe8,
        ];
        let mut values = vec![2030, 2000, 2020, 1_000_000];
        values.extend((204..220).map(|value| value * 10));
        assert_eq!(decode(&patched, Sign::Unsigned, 20), Ok(values));
        let delta = [0xc6, 0x09, 0x02, 0x02, 0x22, 0x42, 0x42, 0x46];
        let primes = vec![2, 3, 5, 7, 11, 13, 17, 19, 23, 29];
        assert_eq!(decode(&delta, Sign::Unsigned, 10), Ok(primes));
    }

    #[test]
    fn patches_stay_in_their_run() {
        // one value of 1 bit, base 0; a patch of 1 bit after a gap of 1
        let run = |gap: u8| [0x80, 0x00, 0x00, 0x01, 0x00, 0x80, gap << 7 | 0x40];
        assert_eq!(decode(&run(0), Sign::Unsigned, 1), Ok(vec![3]));
        let error = decode(&run(1), Sign::Unsigned, 1).unwrap_err();
        assert_eq!(error.to_string(), "a patch of value 1 of 1");
        // patches of 64 bits have no room for a gap
        let wide = [
            0x80, 0x00, 0x1f, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert!(decode(&wide, Sign::Unsigned, 1).is_err());
    }
}
