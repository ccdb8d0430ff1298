//! Levels of definition of flat columns: 1 for a value, 0 for a null.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::NullBuffer;
use arrow::util::bit_chunk_iterator::{BitChunks, UnalignedBitChunk};

use crate::error::{Fault, ensure};
use crate::hybrid::{Hybrid, Run};

/// Collects the nulls of a column, page by page.
#[derive(Debug)]
pub(crate) struct Levels {
    /// A bit for each row so far, set if it has a value.
    valid: BooleanBufferBuilder,
    nulls: usize,
}

impl Levels {
    /// Of a column of so many rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            valid: BooleanBufferBuilder::new(rows),
            nulls: 0,
        }
    }

    /// Appends a page of `rows` rows with these levels; returns the number of its values.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are fewer levels.
    pub(crate) fn append(&mut self, levels: &[u8], rows: usize) -> Result<usize, Fault> {
        let mut hybrid = Hybrid::new(levels, 1)?;
        let start = self.valid.len();
        let (mut left, mut values) = (rows, 0);
        while left > 0 {
            match hybrid.next(left)? {
                Run::Equal { value, count } => {
                    ensure(value <= 1, || format!("a level of {value}, at most 1"))?;
                    self.valid.append_n(count, value == 1);
                    values += count * value as usize;
                    left -= count;
                }
                Run::Packed {
                    packed,
                    first,
                    count,
                } => {
                    let bits = first..first + count;
                    self.valid.append_packed_range(bits, packed);
                    values += UnalignedBitChunk::new(packed, first, count).count_ones();
                    left -= count;
                }
            }
        }
        debug_assert_eq!(self.valid.len(), start + rows);
        self.nulls += rows - values;
        Ok(values)
    }

    /// Appends `rows` rows that have values.
    pub(crate) fn append_values(&mut self, rows: usize) {
        self.valid.append_n(rows, true);
    }

    /// The bits of the `rows` rows from `start` on, all of which were appended.
    pub(crate) fn words(&self, start: usize, rows: usize) -> BitChunks<'_> {
        BitChunks::new(self.valid.as_slice(), start, rows)
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.valid.len()
    }

    /// The nulls, if there are any.
    pub(crate) fn finish(mut self) -> Option<NullBuffer> {
        (self.nulls > 0).then(|| NullBuffer::new(self.valid.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_nulls() {
        let mut levels = Levels::new(30);
        assert_eq!(levels.append(&[6, 1], 3), Ok(3));
        // two nulls, then 1 1 0 1 0 0 0 0 and a part of the next group
        assert_eq!(levels.append(&[4, 0, 5, 0b1011, 0xFF], 11), Ok(4));
        assert_eq!(levels.append(&[200, 1, 0], 4), Ok(0));
        assert_eq!(levels.append(&[200, 1, 1], 4), Ok(4));
        assert!(levels.append(&[4, 2], 1).is_err());
        assert!(levels.append(&[4, 1], 3).is_err());
    }

    #[test]
    fn columns_without_nulls_have_no_bits() {
        let mut levels = Levels::new(5);
        assert_eq!(levels.append(&[10, 1], 5), Ok(5));
        assert!(levels.finish().is_none());
        let mut levels = Levels::new(5);
        assert_eq!(levels.append(&[3, 0b10110], 5), Ok(3));
        let words: Vec<u64> = levels.words(1, 3).iter_padded().collect();
        assert_eq!(words, [0b011]);
        let nulls = levels.finish().unwrap();
        let valid: Vec<bool> = nulls.iter().collect();
        assert_eq!(valid, [false, true, true, false, true]);
    }
}
