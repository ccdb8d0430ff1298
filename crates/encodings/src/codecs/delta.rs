//! `delta`: differences of consecutive values, for sorted and drifting integers.
//! Loses to `ffor` on unordered values; a vector decodes only as a whole.
//!
//! ```text
//! then     the base of each vector, its first value minus its smallest difference, wrapping
//! then     the smallest difference of each vector: both are narrow numbers, see `wire`
//! then     the residuals difference - smallest difference, see `residuals` (patched)
//! ```
//!
//! Lane `l` of a vector holds the 32 *consecutive* values from `32 * l`: the difference of value
//! `32 * l + r` to the one before is at row `r` of lane `l`, that is at position `32 * r + l` of the
//! packed vector. The first difference counts as the smallest, residual 0. To decode, every lane
//! sums its own 32 differences, the 32 lane totals are scanned, and each lane adds what precedes
//! it: no base per lane is stored (FastLanes stores 128 bytes of them a vector), and the scan over
//! lanes is five shuffles of a warp.
//!
//! Bits per value: the bit length of the range of differences, plus 8 to 136 bits a vector.

use crate::VECTOR_LEN;
use crate::bitpack::{LANES, Words};
use crate::error::Result;
use crate::residuals::{Order, Packed, Residuals, ResidualsWriter};
use crate::simd::dispatched;
use crate::vectors::vectors;
use crate::wire::{ChunkReader, ChunkWriter, Narrow, put_narrow};
use crate::words::{Sum, Word};

/// Appends `values`.
pub(crate) fn encode(values: &[u64], out: &mut ChunkWriter) {
    let (mut bases, mut smallests) = (vec![], vec![]);
    let mut residuals = ResidualsWriter::new(Order::Lanes);
    let mut packed = [0; VECTOR_LEN];
    for (vector, rows) in vectors(values) {
        let smallest = differences(&vector, rows, &mut packed);
        bases.push(vector[0].wrapping_sub(smallest as u64));
        smallests.push(smallest as u64);
        residuals.push(&packed, rows, true);
    }
    put_narrow(&bases, out);
    put_narrow(&smallests, out);
    residuals.finish(out);
}

dispatched! {
    /// Stores, transposed, what the difference of each of `rows` values to the one before exceeds
    /// the smallest difference by, which is returned.
    fn differences(values: &[u64; VECTOR_LEN], rows: usize, out: &mut [u64; VECTOR_LEN]) -> i64 {
        let mut differences = [i64::MAX; VECTOR_LEN];
        for at in 1..rows {
            differences[at] = values[at].wrapping_sub(values[at - 1]) as i64;
        }
        let smallest = differences.iter().fold(i64::MAX, |smallest, d| smallest.min(*d));
        // the first one, and those behind the end, count as the smallest
        let smallest = if rows > 1 { smallest } else { 0 };
        differences[0] = smallest;
        differences[rows..].fill(smallest);
        for (lane, differences) in differences.as_chunks::<LANES>().0.iter().enumerate() {
            for (row, difference) in differences.iter().enumerate() {
                out[row * LANES + lane] = difference.wrapping_sub(smallest) as u64;
            }
        }
        smallest
    }
}

/// A parsed sequence. Invariant: there are a base and a smallest difference for each vector of `residuals`.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    bases: Narrow,
    smallests: Narrow,
    residuals: Residuals,
}

impl Delta {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        Ok(Self {
            bases: Narrow::parse(reader, vectors, "delta")?,
            smallests: Narrow::parse(reader, vectors, "delta")?,
            residuals: Residuals::parse(reader, len, Order::Lanes)?,
        })
    }

    pub fn base(&self, vector: usize) -> u64 {
        self.bases.get(vector)
    }

    pub fn smallest(&self, vector: usize) -> u64 {
        self.smallests.get(vector)
    }

    pub fn decode<T: Word>(&self, vector: usize, reference: T, out: &mut [T; VECTOR_LEN]) {
        let base = T::Sum::truncate(self.base(vector));
        let smallest = T::Sum::truncate(self.smallest(vector));
        let mut sums = [T::Sum::default(); VECTOR_LEN];
        if self.residuals.width(vector) <= 32 && !self.residuals.has_patches(vector) {
            let mut words = [0; VECTOR_LEN];
            self.residuals.unpack_words(vector, &mut words);
            sum_words(&words, smallest, &mut sums);
        } else {
            let mut residuals = [0; VECTOR_LEN];
            self.residuals.unpack(vector, &mut residuals);
            sum_wide(&residuals, smallest, &mut sums);
        }
        untranspose(&sums, base, reference, out);
    }
}

dispatched! {
    /// The sums of each lane up to each row.
    fn sum_words<S: Sum>(residuals: &Words, smallest: S, out: &mut [S; VECTOR_LEN]) {
        let mut sums = [S::default(); LANES];
        let rows = out.as_chunks_mut::<LANES>().0.iter_mut();
        for (row, residuals) in rows.zip(residuals.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let difference = S::truncate(u64::from(residuals[lane])).add(smallest);
                sums[lane] = sums[lane].add(difference);
            }
            *row = sums;
        }
    }
}

fn sum_wide<S: Sum>(residuals: &[u64; VECTOR_LEN], smallest: S, out: &mut [S; VECTOR_LEN]) {
    let mut sums = [S::default(); LANES];
    for (i, residual) in residuals.iter().enumerate() {
        let sum = &mut sums[i % LANES];
        *sum = sum.add(S::truncate(*residual).add(smallest));
        out[i] = *sum;
    }
}

dispatched! {
    /// Adds what precedes each lane and puts the values in their order.
    fn untranspose<T: Word>(sums: &[T::Sum; VECTOR_LEN], base: T::Sum, reference: T, out: &mut [T; VECTOR_LEN]) {
        let mut before = [base; LANES];
        for lane in 1..LANES {
            before[lane] = before[lane - 1].add(sums[VECTOR_LEN - LANES + lane - 1]);
        }
        for (lane, values) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            for (row, value) in values.iter_mut().enumerate() {
                let sum = before[lane].add(sums[row * LANES + lane]);
                *value = reference.plus(sum.into());
            }
        }
    }
}

/// `delta`: lane `l` of a packed vector holds the differences of the entries from `32 * l` on.
#[derive(Clone, Copy, Debug)]
pub struct DeltaView<'a>(pub(crate) &'a Delta);

impl<'a> DeltaView<'a> {
    /// What the sums of a vector start from.
    pub fn base(&self, vector: usize) -> u64 {
        self.0.base(vector)
    }

    /// What is added to each residual of a vector to get the difference.
    pub fn smallest(&self, vector: usize) -> u64 {
        self.0.smallest(vector)
    }

    /// The differences.
    pub fn residuals(&self) -> Packed<'a> {
        Packed(&self.0.residuals)
    }

    /// For each lane of a vector the entry before its first: the base, then entries 31, 63 and so on.
    pub fn lane_starts(&self, vector: usize) -> [u64; LANES] {
        let mut entries = [0; VECTOR_LEN];
        self.0.decode(vector, 0, &mut entries);
        std::array::from_fn(|lane| match lane {
            0 => self.base(vector),
            lane => entries[lane * LANES - 1],
        })
    }
}
