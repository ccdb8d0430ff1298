//! Runs of integers and packed integers: levels, indices of dictionaries, and booleans.
//!
//! ```text
//! runs     run, run, ..
//! run      varint: twice the count; the value in as few bytes as its bits need
//!          or twice the groups plus one; the groups, 8 packed integers each
//! ```

use crate::error::{Fault, corrupt, ensure};
use crate::thrift::Reader;
use crate::unpack::unpack;

/// The most bits of an integer.
const MAX_WIDTH: usize = 32;

/// Reads integers of up to 32 bits.
#[derive(Debug)]
pub(crate) struct Hybrid<'a> {
    /// The bytes behind the current run.
    rest: &'a [u8],
    width: usize,
    run: Run<'a>,
}

/// Integers that are left of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run<'a> {
    /// Equal ones.
    Equal { value: u32, count: usize },
    /// Those of `packed` from index `first` on. Other bytes may be behind them.
    Packed {
        packed: &'a [u8],
        first: usize,
        count: usize,
    },
}

impl Run<'_> {
    fn count(self) -> usize {
        match self {
            Self::Equal { count, .. } | Self::Packed { count, .. } => count,
        }
    }
}

impl<'a> Hybrid<'a> {
    /// Runs of integers of `width` bits.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are no such integers.
    pub(crate) fn new(bytes: &'a [u8], width: usize) -> Result<Self, Fault> {
        ensure(width <= MAX_WIDTH, || {
            format!("integers of {width} bits, at most {MAX_WIDTH}")
        })?;
        Ok(Self {
            rest: bytes,
            width,
            run: Run::Equal { value: 0, count: 0 },
        })
    }

    /// Packed booleans, without runs.
    pub(crate) fn of_bits(bytes: &'a [u8]) -> Self {
        Self {
            rest: &[],
            width: 1,
            run: Run::Packed {
                packed: bytes,
                first: 0,
                count: bytes.len() * 8,
            },
        }
    }

    /// Bits of an integer.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Up to `most > 0` integers of the same run: one at least.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are none left.
    pub(crate) fn next(&mut self, most: usize) -> Result<Run<'a>, Fault> {
        while self.run.count() == 0 {
            self.run = self.next_run()?;
        }
        match &mut self.run {
            Run::Equal { value, count } => {
                let taken = most.min(*count);
                *count -= taken;
                Ok(Run::Equal {
                    value: *value,
                    count: taken,
                })
            }
            Run::Packed {
                packed,
                first,
                count,
            } => {
                let taken = most.min(*count);
                let run = Run::Packed {
                    packed,
                    first: *first,
                    count: taken,
                };
                *first += taken;
                *count -= taken;
                Ok(run)
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>, Fault> {
        let mut reader = Reader::new(self.rest);
        let header = reader.varint()?;
        let rest = self.rest.get(reader.position()..).unwrap_or_default();
        let count = usize::try_from(header >> 1).unwrap_or(usize::MAX);
        if header & 1 == 0 {
            let Some((value, rest)) = rest.split_at_checked(self.width.div_ceil(8)) else {
                return corrupt("a run without a value");
            };
            let mut word = [0; 4];
            word.iter_mut()
                .zip(value)
                .for_each(|(to, byte)| *to = *byte);
            self.rest = rest;
            let value = u32::from_le_bytes(word);
            return Ok(Run::Equal { value, count });
        }
        // some writers leave out bytes of the last group that have no integer
        let bytes = count.saturating_mul(self.width).min(rest.len());
        self.rest = rest.get(bytes..).unwrap_or_default();
        let count = match self.width {
            0 => count.saturating_mul(8),
            width => count.saturating_mul(8).min(bytes * 8 / width),
        };
        // unpacking is faster if it may read bytes behind the integers
        Ok(Run::Packed {
            packed: rest,
            first: 0,
            count,
        })
    }

    /// Reads as many integers as `out` has room for.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if fewer are left.
    pub(crate) fn read(&mut self, mut out: &mut [u32]) -> Result<(), Fault> {
        while !out.is_empty() {
            let run = self.next(out.len())?;
            let (now, rest) = out.split_at_mut(run.count().min(out.len()));
            match run {
                Run::Equal { value, .. } => now.fill(value),
                Run::Packed { packed, first, .. } => unpack(packed, self.width, first, now),
            }
            out = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five times 300, then 16 packed integers 0 to 15 and two of the next group, all of 10 bits.
    fn runs() -> Vec<u8> {
        let mut bytes = vec![10, 300u32 as u8, 1, 7];
        let packed = (0..18u32).flat_map(|value| (0..10).map(move |bit| value >> bit & 1));
        let bits: Vec<u32> = packed.collect();
        bytes.extend(bits.chunks(8).map(|bits| {
            let bits = bits.iter().enumerate();
            bits.map(|(index, bit)| (bit << index) as u8).sum::<u8>()
        }));
        bytes
    }

    #[test]
    fn runs_are_read_in_pieces() {
        let bytes = runs();
        let expected: Vec<u32> = [300; 5].into_iter().chain(0..18).collect();
        for piece in [1, 3, 8, 23] {
            let mut hybrid = Hybrid::new(&bytes, 10).unwrap();
            let mut out = vec![0; expected.len()];
            for piece in out.chunks_mut(piece) {
                hybrid.read(piece).unwrap();
            }
            assert_eq!(out, expected);
            assert!(hybrid.read(&mut [0]).is_err());
        }
        let mut zeros = [1; 20];
        let mut hybrid = Hybrid::new(&[7], 0).unwrap();
        hybrid.read(&mut zeros).unwrap();
        assert_eq!(zeros, [0; 20]);
        let mut bits = [7; 9];
        Hybrid::of_bits(&[0b101, 1]).read(&mut bits).unwrap();
        assert_eq!(bits, [1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn bytes_that_end_are_errors() {
        assert!(Hybrid::new(&[], 33).is_err());
        for (bytes, width) in [(&[][..], 1), (&[10], 9), (&[0x80], 3), (&[3], 7), (&[0], 8)] {
            let mut hybrid = Hybrid::new(bytes, width).unwrap();
            assert!(hybrid.read(&mut [0]).is_err(), "{bytes:?}");
        }
        // counts that are too large for a machine word
        let most = [0xFF; 9].into_iter().chain([1, 2]).collect::<Vec<u8>>();
        let mut hybrid = Hybrid::new(&most, 0).unwrap();
        hybrid.read(&mut [0; 100]).unwrap();
    }
}
