//! `delta`: differences of consecutive values, for sorted and drifting integers.
//! Loses to `ffor` on unordered values; a vector decodes only as a whole.
//!
//! ```text
//! then     the base of each vector, its first value minus its smallest difference, wrapping
//! then     the smallest difference of each vector, but for a few that are patched: both are narrow
//!          numbers, see `wire`
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
use crate::bitpack::{LANES, LINE_BYTES, Words};
use crate::codecs::sequence_codec::{DIFFERENCES_A_BYTE, SequenceCodec, SpareRuns};
use crate::error::Result;
use crate::patches::patch_bytes;
use crate::residuals::{
    MIN_PATCH_GAIN, Order, Packed, Residuals, ResidualsSize, ResidualsWriter, bit_length,
};
use crate::simd::dispatched;
use crate::vectors::for_each_vector;
use crate::wire::{ChunkReader, ChunkWriter, Narrow, narrow_size, put_narrow};
use crate::words::{Sum, Word};

/// The most differences of a vector that may be smaller than its smallest one.
const MAX_DROPS: u64 = 16;

dispatched! {
    /// Computes, transposed, by how much the difference of each of `rows` values to the one before exceeds the smallest
    /// difference, which is returned.
    fn differences(values: &[u64; VECTOR_LEN], rows: usize, out: &mut [u64; VECTOR_LEN]) -> i64 {
        let mut differences = [i64::MAX; VECTOR_LEN];
        for at in 1..rows {
            differences[at] = values[at].wrapping_sub(values[at - 1]) as i64;
        }
        // the first one and those after the end count as the smallest
        let smallest = if rows > 1 { smallest_of_most(&differences, rows) } else { 0 };
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

/// The smallest difference, except for up to [`MAX_DROPS`] that lie so far below it that packing gains from patching
/// them: where values ascend and start again.
#[inline(always)]
fn smallest_of_most(differences: &[i64; VECTOR_LEN], rows: usize) -> i64 {
    let least = |from: i64| {
        let least = |least: i64, d: &i64| least.min(if *d >= from { *d } else { i64::MAX });
        differences.iter().fold(i64::MAX, least)
    };
    let smallest = least(i64::MIN);
    let mut typical: [i64; LANES] =
        std::array::from_fn(|i| differences[1 + i * (rows - 1) / LANES]);
    typical.sort_unstable();
    let typical = typical[LANES / 2];
    let (mut best, mut dropped) = (smallest, 0);
    loop {
        // halfway between the minimum and the typical difference
        let middle = (best & typical) + ((best ^ typical) >> 1);
        let below = differences
            .iter()
            .fold(0u64, |count, d| count + u64::from(*d < middle));
        if middle == best || below > MAX_DROPS {
            break;
        }
        (best, dropped) = (least(middle), below as usize);
    }
    let largest = differences[1..rows]
        .iter()
        .fold(i64::MIN, |most, d| most.max(*d));
    let bits = |from: i64| bit_length(largest.wrapping_sub(from) as u64);
    let gain = (bits(smallest) - bits(best)) * LINE_BYTES;
    match gain > 2 * MIN_PATCH_GAIN + dropped * patch_bytes(64) {
        true => best,
        false => smallest,
    }
}

/// A parsed sequence. Invariant: there are a base and a smallest difference for each vector of `residuals`.
#[derive(Clone, Debug)]
pub struct Delta {
    bases: Narrow,
    smallests: Narrow,
    residuals: Residuals,
}

impl SequenceCodec for Delta {
    fn encode(values: &[u64], _nesting: usize, out: &mut ChunkWriter) {
        let (mut bases, mut smallests) = (vec![], vec![]);
        let mut residuals = ResidualsWriter::new(Order::Lanes);
        let mut packed = [0; VECTOR_LEN];
        for_each_vector(values, |vector, rows| {
            let smallest = differences(vector, rows, &mut packed);
            bases.push(vector[0].wrapping_sub(smallest as u64));
            smallests.push(smallest as u64);
            residuals.push(&packed, rows, true);
        });
        put_narrow(&bases, out);
        put_narrow(&smallests, out);
        residuals.finish(out);
    }

    fn size(values: &[u64], _nesting: usize) -> Option<usize> {
        let (mut bases, mut smallests) = (vec![], vec![]);
        let mut residuals = ResidualsSize::default();
        let mut packed = [0; VECTOR_LEN];
        for_each_vector(values, |vector, rows| {
            let smallest = differences(vector, rows, &mut packed);
            bases.push(vector[0].wrapping_sub(smallest as u64));
            smallests.push(smallest as u64);
            residuals.push(&packed, rows);
        });
        Some(narrow_size(&bases) + narrow_size(&smallests) + residuals.bytes())
    }

    fn work(values: &[u64]) -> usize {
        values.len() / DIFFERENCES_A_BYTE
    }

    fn parse(reader: &mut ChunkReader, len: usize, _nesting: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        Ok(Self {
            bases: Narrow::parse(reader, vectors, "delta")?,
            smallests: Narrow::parse(reader, vectors, "delta")?,
            residuals: Residuals::parse(reader, len, Order::Lanes)?,
        })
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        _runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
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
        Ok(())
    }
}

/// Lane `l` of a packed vector holds the differences of the entries from `32 * l` on.
impl Delta {
    /// The initial value of a vector's sums.
    pub fn base(&self, vector: usize) -> u64 {
        self.bases.get(vector)
    }

    /// The number added to each residual of a vector to get the difference.
    pub fn smallest(&self, vector: usize) -> u64 {
        self.smallests.get(vector)
    }

    /// The differences.
    pub fn residuals(&self) -> Packed<'_> {
        Packed(&self.residuals)
    }

    /// Per lane of a vector, the entry before its first: the base, then entries 31, 63 and so on.
    ///
    /// # Errors
    ///
    /// None today: differences are checked when they are parsed.
    pub fn lane_starts(&self, vector: usize) -> Result<[u64; LANES]> {
        let mut entries = [0; VECTOR_LEN];
        self.decode(vector, 0, &mut None, &mut entries)?;
        Ok(std::array::from_fn(|lane| match lane {
            0 => self.base(vector),
            lane => entries[lane * LANES - 1],
        }))
    }
}

dispatched! {
    /// The prefix sums of each lane.
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
    /// Adds the sum before each lane and restores the order of values.
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
