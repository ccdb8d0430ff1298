//! `ffor`: frame of reference and bit packing, for integers whose range within a vector is small.
//! Loses to `delta` on sorted values, to `rle` on long runs, to `dict` on few far-apart values.
//!
//! ```text
//! then     the base of each vector, its smallest value: narrow numbers, see `wire`
//! then     the residuals value - base, see `residuals` (with patches where they pay)
//! ```
//!
//! Bits per value: the bit length of the vector's range, plus 8 to 72 bits a vector.

use crate::bitpack::{self, Words};
use crate::codecs::sequence_codec::{Scratch, SequenceCodec, SpareRuns};
use crate::error::Result;
use crate::masks::Mask;
use crate::residuals::{Order, Packed, Residuals, ResidualsSize, ResidualsWriter};
use crate::selection::Selected;
use crate::simd::dispatched;
use crate::vectors::for_each_vector;
use crate::wire::{ChunkReader, ChunkWriter, Narrow, narrow_size, put_narrow};
use crate::words::Word;
use crate::{FORMAT_VERSION, VECTOR_LEN};

/// Up to this many rows of a vector are read one by one: a whole vector takes about as long as
/// thirty rows.
const SPARSE_ROWS: usize = 24;

dispatched! {
    /// Stores each value minus the smallest one, which is returned.
    fn subtract_smallest(values: &[u64; VECTOR_LEN], out: &mut [u64; VECTOR_LEN]) -> u64 {
        let smallest = values.iter().fold(u64::MAX, |smallest, value| smallest.min(*value));
        for (to, value) in out.iter_mut().zip(values) {
            *to = value - smallest;
        }
        smallest
    }
}

/// Packs vectors one after another.
#[derive(Debug)]
pub(crate) struct FforWriter {
    bases: Vec<u64>,
    residuals: ResidualsWriter,
}

impl Default for FforWriter {
    fn default() -> Self {
        Self {
            bases: vec![],
            residuals: ResidualsWriter::new(Order::Rows),
        }
    }
}

impl FforWriter {
    /// Packs one vector of `rows` rows; a short one is padded with its last value.
    pub fn push(&mut self, values: &[u64; VECTOR_LEN], rows: usize) {
        let mut offsets = [0; VECTOR_LEN];
        self.bases.push(subtract_smallest(values, &mut offsets));
        self.residuals.push(&offsets, rows, true);
    }

    /// Subtracts the smallest value of all vectors, and returns it.
    pub fn rebase(&mut self) -> u64 {
        let smallest = self.bases.iter().copied().min().unwrap_or(0);
        self.bases.iter_mut().for_each(|base| *base -= smallest);
        smallest
    }

    /// Returns true if all values are 0.
    pub fn is_zero(&self) -> bool {
        self.residuals.is_zero() && self.bases.iter().all(|base| *base == 0)
    }

    pub fn finish(self, out: &mut ChunkWriter) {
        put_narrow(&self.bases, out);
        self.residuals.finish(out);
    }

    /// The `len` values as a sequence, and its bytes.
    pub fn parsed(self, len: usize) -> Result<(Ffor, usize)> {
        let mut out = ChunkWriter::default();
        self.finish(&mut out);
        let mut reader = ChunkReader::new(&out.finish().into(), FORMAT_VERSION)?;
        Ok((Ffor::parse(&mut reader, len, 0)?, reader.total_bytes()))
    }
}

/// A parsed sequence. Invariant: `bases` has a number for each vector of `residuals`.
#[derive(Clone, Debug)]
pub struct Ffor {
    bases: Narrow,
    residuals: Residuals,
}

impl SequenceCodec for Ffor {
    const STORES_BOOLEANS: bool = true;

    fn encode(values: &[u64], _nesting: usize, out: &mut ChunkWriter) {
        let mut writer = FforWriter::default();
        for_each_vector(values, |vector, rows| writer.push(vector, rows));
        writer.finish(out);
    }

    fn size(values: &[u64], _nesting: usize) -> Option<usize> {
        let mut bases = vec![];
        let mut residuals = ResidualsSize::default();
        let mut offsets = [0; VECTOR_LEN];
        for_each_vector(values, |vector, rows| {
            bases.push(subtract_smallest(vector, &mut offsets));
            residuals.push(&offsets, rows);
        });
        Some(narrow_size(&bases) + residuals.bytes())
    }

    fn parse(reader: &mut ChunkReader, len: usize, _nesting: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        Ok(Self {
            bases: Narrow::parse(reader, vectors, "ffor")?,
            residuals: Residuals::parse(reader, len, Order::Rows)?,
        })
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        _runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        let base = reference.plus(self.base(vector));
        self.residuals.unpack_plus(vector, base, out);
        Ok(())
    }

    fn select<T: Word>(
        &self,
        selected: &Selected,
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut Vec<T>,
    ) -> Result<()> {
        let Scratch {
            values,
            words,
            runs,
        } = scratch;
        let vector = selected.vector;
        if selected.count == VECTOR_LEN {
            let base = reference.plus(self.base(vector));
            self.residuals.append_plus(vector, base, out);
        } else if self.residuals.has_patches(vector) || self.residuals.width(vector) > 32 {
            self.decode(vector, reference, runs, values)?;
            selected.append(values, out);
        } else if selected.count <= SPARSE_ROWS {
            selected.for_each(|row| out.push(self.get(vector, row, reference)));
        } else {
            // words are narrower than most values: only selected ones are widened
            let base = reference.plus(self.base(vector));
            self.residuals.unpack_words(vector, words);
            selected.append_by(|row| base.plus(u64::from(words[row])), out);
        }
        Ok(())
    }

    fn pick<T: Word>(
        &self,
        vector: usize,
        rows: &[u32],
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) -> Result<()> {
        let (residuals, base) = (&self.residuals, reference.plus(self.base(vector)));
        let pairs = out.iter_mut().zip(rows);
        if residuals.has_patches(vector) || residuals.width(vector) > 32 {
            residuals.unpack_plus(vector, base, &mut scratch.values);
            pairs.for_each(|(out, row)| *out = scratch.values[*row as usize % VECTOR_LEN]);
        } else if rows.len() <= SPARSE_ROWS {
            let (packed, width) = (residuals.packed(vector), residuals.width(vector));
            pairs.for_each(|(out, row)| {
                let residual = bitpack::get(packed, width, *row as usize % VECTOR_LEN);
                *out = base.plus(residual.into());
            });
        } else {
            let words = &mut scratch.words;
            residuals.unpack_words(vector, words);
            pairs.for_each(|(out, row)| {
                *out = base.plus(words[*row as usize % VECTOR_LEN].into());
            });
        }
        Ok(())
    }

    fn prefetch(&self, vector: usize, rows: &[u32]) {
        let (packed, width) = (self.residuals.packed(vector), self.residuals.width(vector));
        if rows.len() <= SPARSE_ROWS && width <= 32 {
            let rows = rows.iter().map(|row| *row as usize % VECTOR_LEN);
            rows.for_each(|row| bitpack::prefetch(packed, width, row));
        }
    }

    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        _runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        let base = self.base(vector);
        if high < base {
            out.fill(0);
        } else {
            self.residuals
                .in_range(vector, low.saturating_sub(base), high - base, out);
        }
        Ok(())
    }

    fn largest(&self, vector: usize) -> Option<u64> {
        if self.residuals.width(vector) > 32 {
            return None;
        }
        let mut words = [0; VECTOR_LEN];
        self.residuals.unpack_words(vector, &mut words);
        let patched = self.residuals.patches(vector);
        let patched = patched.fold(0, |largest: u64, (_, residual)| largest.max(residual));
        let largest = u64::from(largest_word(&words)).max(patched);
        self.base(vector).checked_add(largest)
    }

    fn upper_bound(&self, vector: usize) -> Option<u64> {
        if self.residuals.width(vector) > 32 {
            return None;
        }
        let packed = u64::from(bitpack::low_mask(self.residuals.width(vector)));
        let patched = self.residuals.patches(vector);
        let largest = patched.fold(packed, |largest, (_, residual)| largest.max(residual));
        self.base(vector).checked_add(largest)
    }
}

impl Ffor {
    /// The smallest entry of a vector.
    pub fn base(&self, vector: usize) -> u64 {
        self.bases.get(vector)
    }

    /// The residuals, to which the bases are added.
    pub fn residuals(&self) -> Packed<'_> {
        Packed(&self.residuals)
    }

    /// One row of a vector without patches.
    #[inline]
    fn get<T: Word>(&self, vector: usize, row: usize, reference: T) -> T {
        reference
            .plus(self.base(vector))
            .plus(self.residuals.get(vector, row))
    }
}

dispatched! {
    fn largest_word(words: &Words) -> u32 {
        words.iter().fold(0, |largest, word| largest.max(*word))
    }
}
