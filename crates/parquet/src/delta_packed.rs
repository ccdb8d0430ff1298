//! Packed differences of integers.
//!
//! ```text
//! header   varints: values of a block, miniblocks of a block, values; zigzag varint: the first value
//! block    zigzag varint: the least difference; a width for each miniblock; the miniblocks that have values
//! ```

use crate::error::{Fault, corrupt, ensure};
use crate::thrift::Reader;
use crate::unpack::unpack;

/// Differences that are unpacked together.
const PART: usize = 64;

/// Reads integers of up to 64 bits. Sums wrap.
#[derive(Debug)]
pub(crate) struct DeltaPacked<'a> {
    /// The bytes behind the current miniblock.
    rest: &'a [u8],
    /// The most bits of a difference.
    most_width: usize,
    miniblocks: usize,
    per_miniblock: usize,
    /// Values that are left.
    left: usize,
    /// The first value, until it was read.
    first: Option<i64>,
    last: i64,
    least: i64,
    /// The widths of the miniblocks behind the current one.
    widths: &'a [u8],
    miniblock: &'a [u8],
    width: usize,
    /// Differences of the miniblock that were read.
    read: usize,
}

impl<'a> DeltaPacked<'a> {
    /// Reads the header of integers of `most_width` bits.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`].
    pub(crate) fn new(bytes: &'a [u8], most_width: usize) -> Result<Self, Fault> {
        let mut reader = Reader::new(bytes);
        let block = reader.varint()?;
        let miniblocks = reader.varint()?;
        let values = reader.varint()?;
        let first = reader.integer()?;
        let per_miniblock = block.checked_div(miniblocks).unwrap_or(0);
        let is_even = per_miniblock > 0
            && per_miniblock.is_multiple_of(32)
            && per_miniblock.checked_mul(miniblocks) == Some(block);
        ensure(is_even, || {
            format!("{miniblocks} miniblocks of {block} values")
        })?;
        let usize_of = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let per_miniblock = usize_of(per_miniblock);
        Ok(Self {
            rest: bytes.get(reader.position()..).unwrap_or_default(),
            most_width,
            miniblocks: usize_of(miniblocks),
            per_miniblock,
            left: usize_of(values),
            first: Some(first),
            last: first,
            least: 0,
            widths: &[],
            miniblock: &[],
            width: 0,
            read: per_miniblock,
        })
    }

    /// Reads as many integers as `out` has room for.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if fewer are left.
    pub(crate) fn read(&mut self, mut out: &mut [i64]) -> Result<(), Fault> {
        ensure(out.len() <= self.left, || {
            format!("{} values where {} are left", out.len(), self.left)
        })?;
        self.left -= out.len();
        if let (Some(to), Some(_)) = (out.first_mut(), self.first) {
            *to = self.last;
            self.first = None;
            out = out.get_mut(1..).unwrap_or_default();
        }
        while !out.is_empty() {
            if self.read == self.per_miniblock {
                self.next_miniblock()?;
            }
            let most = PART.min(self.per_miniblock - self.read);
            let (now, rest) = out.split_at_mut(out.len().min(most));
            self.add(now)?;
            out = rest;
        }
        Ok(())
    }

    fn next_miniblock(&mut self) -> Result<(), Fault> {
        if self.widths.is_empty() {
            let mut reader = Reader::new(self.rest);
            self.least = reader.integer()?;
            let rest = self.rest.get(reader.position()..).unwrap_or_default();
            let Some((widths, rest)) = rest.split_at_checked(self.miniblocks) else {
                let bytes = rest.len();
                return corrupt(format!("{} widths in {bytes} bytes", self.miniblocks));
            };
            (self.widths, self.rest) = (widths, rest);
        }
        let Some((width, widths)) = self.widths.split_first() else {
            return corrupt("a block without miniblocks");
        };
        self.widths = widths;
        self.width = usize::from(*width);
        ensure(self.width <= self.most_width, || {
            format!("differences of {width} bits, at most {}", self.most_width)
        })?;
        // the last miniblock may be short
        let bytes = (self.per_miniblock / 8).saturating_mul(self.width);
        (self.miniblock, self.rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.read = 0;
        Ok(())
    }

    /// Reads up to [`PART`] integers of the miniblock.
    fn add(&mut self, out: &mut [i64]) -> Result<(), Fault> {
        let end = self.read + out.len();
        ensure(
            end.saturating_mul(self.width) <= self.miniblock.len() * 8,
            || format!("{end} differences in {} bytes", self.miniblock.len()),
        )?;
        if self.width <= 32 {
            let mut differences = [0; PART];
            let differences = differences.get_mut(..out.len()).unwrap_or_default();
            unpack(self.miniblock, self.width, self.read, differences);
            self.sum(
                differences.iter().map(|difference| i64::from(*difference)),
                out,
            );
        } else {
            let (miniblock, width) = (self.miniblock, self.width);
            self.sum(
                (self.read..end).map(|index| wide(miniblock, width, index)),
                out,
            );
        }
        self.read = end;
        Ok(())
    }

    #[inline(always)]
    fn sum(&mut self, differences: impl Iterator<Item = i64>, out: &mut [i64]) {
        let (mut last, least) = (self.last, self.least);
        for (to, difference) in out.iter_mut().zip(differences) {
            last = last.wrapping_add(difference.wrapping_add(least));
            *to = last;
        }
        self.last = last;
    }
}

/// The packed integer at an index, of up to 64 bits.
fn wide(bytes: &[u8], width: usize, index: usize) -> i64 {
    let bit = index * width;
    let tail = bytes.get(bit / 8..).unwrap_or_default();
    let mut word = [0; 16];
    word.iter_mut().zip(tail).for_each(|(to, byte)| *to = *byte);
    let mask = u64::MAX >> (64 - width.clamp(1, 64));
    ((u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 128 values in 4 miniblocks: 3, then 40 differences of 5 + 1 and 5 + 2 (of widths 2 and 33).
    fn packed() -> Vec<u8> {
        let mut bytes = vec![0x80, 1, 4, 41, 6, 10, 2, 33, 0, 0];
        bytes.extend([0b0101_0101; 8]);
        let twos = (0..8 * 33).map(|bit| u8::from(bit % 33 == 1));
        let twos: Vec<u8> = twos.collect();
        bytes.extend(twos.chunks(8).map(|bits| {
            let bits = bits.iter().enumerate();
            bits.map(|(index, bit)| bit << index).sum::<u8>()
        }));
        bytes
    }

    #[test]
    fn differences_are_summed() {
        let bytes = packed();
        let expected: Vec<i64> = (0..41).map(|i: i64| 3 + 6 * i + (i - 32).max(0)).collect();
        for piece in [1, 7, 41] {
            let mut values = DeltaPacked::new(&bytes, 64).unwrap();
            let mut out = vec![0; 41];
            for piece in out.chunks_mut(piece) {
                values.read(piece).unwrap();
            }
            assert_eq!(out, expected);
            assert!(values.read(&mut [0]).is_err());
        }
        assert!(
            DeltaPacked::new(&bytes, 32)
                .unwrap()
                .read(&mut [0; 41])
                .is_err()
        );
    }

    #[test]
    fn damaged_differences_are_errors() {
        let bytes = packed();
        for len in 0..bytes.len() {
            let values = DeltaPacked::new(&bytes[..len], 64);
            let read = values.and_then(|mut values| values.read(&mut [0; 41]));
            assert!(read.is_err(), "{len}");
        }
        for header in [[0x80, 1, 0, 1, 6], [0x81, 1, 4, 1, 6], [8, 1, 1, 1, 6]] {
            assert!(DeltaPacked::new(&header, 64).is_err());
        }
        let mut values = DeltaPacked::new(&[0x80, 1, 4, 1, 6], 64).unwrap();
        let mut out = [0];
        values.read(&mut out).unwrap();
        assert_eq!(out, [3]);
    }
}
