//! The selected rows of consecutive vectors.

use std::ops::Range;

use arrow::array::{Array, BooleanArray};
use arrow::buffer::BooleanBuffer;

use crate::VECTOR_LEN;
use crate::masks::{self, Mask, for_each_bit};
use crate::row_list::push_rows;
use crate::simd;

const WORDS: usize = VECTOR_LEN / 64;

/// A bitmap over consecutive vectors of a row group: a bit for each of `rows` rows, starting at the
/// first row of `first_vector`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    first_vector: usize,
    rows: usize,
    /// 16 words for each vector; bits beyond `rows` are zero.
    words: Vec<Mask>,
}

impl Selection {
    /// Selects all of `rows` rows from the start of `first_vector`.
    pub fn all(first_vector: usize, rows: usize) -> Self {
        let mut selection = Self {
            first_vector,
            rows,
            words: vec![[u64::MAX; WORDS]; rows.div_ceil(VECTOR_LEN)],
        };
        selection.clear_tail();
        selection
    }

    /// Selects none of `rows` rows from the start of `first_vector`.
    pub fn none(first_vector: usize, rows: usize) -> Self {
        Self {
            first_vector,
            rows,
            words: vec![[0; WORDS]; rows.div_ceil(VECTOR_LEN)],
        }
    }

    /// Selects exactly a range of rows, counted from the start of the row group.
    pub fn of_range(range: Range<usize>) -> Self {
        let first_vector = range.start / VECTOR_LEN;
        let start = range.start - first_vector * VECTOR_LEN;
        let mut selection = Self::all(first_vector, range.len() + start);
        for (word, mask) in selection
            .words
            .as_flattened_mut()
            .iter_mut()
            .zip(0..start.div_ceil(64))
        {
            *word &= u64::MAX
                .checked_shl((start - mask * 64) as u32)
                .unwrap_or(0);
        }
        selection
    }

    fn clear_tail(&mut self) {
        let words = self.words.as_flattened_mut();
        if let Some(word) = words.get_mut(self.rows / 64) {
            *word &= (1 << (self.rows % 64)) - 1;
        }
        for word in words.iter_mut().skip(self.rows / 64 + 1) {
            *word = 0;
        }
    }

    /// The vector of the first covered row.
    pub fn first_vector(&self) -> usize {
        self.first_vector
    }

    /// Rows covered, selected or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Vectors covered.
    pub fn num_vectors(&self) -> usize {
        self.words.len()
    }

    /// Rows selected.
    pub fn count(&self) -> usize {
        masks::count(&self.words)
    }

    /// Returns true if no row is selected.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|mask| *mask == [0; WORDS])
    }

    /// Returns true if no row of the `vector`-th covered vector is selected.
    pub fn is_vector_empty(&self, vector: usize) -> bool {
        self.words
            .get(vector)
            .is_none_or(|mask| *mask == [0; WORDS])
    }

    /// Deselects the `vector`-th covered vector.
    pub fn clear_vector(&mut self, vector: usize) {
        if let Some(mask) = self.words.get_mut(vector) {
            *mask = [0; WORDS];
        }
    }

    /// A bit for each row of the `vector`-th covered vector, set if it is selected.
    pub fn mask(&self, vector: usize) -> [u64; VECTOR_LEN / 64] {
        self.words.get(vector).copied().unwrap_or_default()
    }

    /// Keeps the rows of the `vector`-th covered vector whose bit is set.
    pub fn and_mask(&mut self, vector: usize, kept: &[u64; VECTOR_LEN / 64]) {
        if let Some(mask) = self.words.get_mut(vector) {
            mask.iter_mut()
                .zip(kept)
                .for_each(|(mask, kept)| *mask &= kept);
        }
    }

    /// Adds the rows of the `vector`-th covered vector whose bit is set.
    pub fn or_mask(&mut self, vector: usize, added: &[u64; VECTOR_LEN / 64]) {
        if let Some(mask) = self.words.get_mut(vector) {
            mask.iter_mut()
                .zip(added)
                .for_each(|(mask, added)| *mask |= added);
        }
        self.clear_tail();
    }

    /// Adds a range of the covered rows.
    pub fn add_range(&mut self, rows: Range<usize>) {
        let rows = rows.start..rows.end.min(self.rows);
        let words = self.words.as_flattened_mut().iter_mut().enumerate();
        let words = words.take(rows.end.div_ceil(64)).skip(rows.start / 64);
        for (word, bits) in words {
            let first = rows.start.saturating_sub(word * 64);
            let behind = (word * 64 + 64).saturating_sub(rows.end);
            // ranges without rows end before their word does
            let upper = u64::MAX.checked_shl(first as u32).unwrap_or(0);
            *bits |= upper & u64::MAX.checked_shr(behind as u32).unwrap_or(0);
        }
    }

    /// Intersects with `other`, which covers the same rows.
    pub fn and(&mut self, other: &Selection) {
        self.combine(other, |a, b| a & b);
    }

    /// Adds the rows that `other`, which covers the same rows, selects.
    pub fn or(&mut self, other: &Selection) {
        self.combine(other, |a, b| a | b);
    }

    /// Drops the rows that `other`, which covers the same rows, selects.
    pub fn and_not(&mut self, other: &Selection) {
        self.combine(other, |a, b| a & !b);
    }

    fn combine(&mut self, other: &Selection, with: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(
            (self.first_vector, self.rows),
            (other.first_vector, other.rows)
        );
        let others = other.words.as_flattened();
        for (word, other) in self.words.as_flattened_mut().iter_mut().zip(others) {
            *word = with(*word, *other);
        }
    }

    /// Keeps the first `limit` selected rows.
    pub fn truncate_selected(&mut self, limit: usize) {
        let mut left = limit;
        for word in self.words.as_flattened_mut() {
            let count = word.count_ones() as usize;
            if count <= left {
                left -= count;
                continue;
            }
            let mut kept = 0;
            for _ in 0..left {
                let lowest = *word & word.wrapping_neg();
                kept |= lowest;
                *word ^= lowest;
            }
            *word = kept;
            left = 0;
        }
    }

    /// Moves the first `count` selected rows to a selection of their own, over the same rows.
    pub fn take_selected(&mut self, count: usize) -> Selection {
        let mut first = self.clone();
        first.truncate_selected(count);
        self.and_not(&first);
        first
    }

    /// The number of leading selected rows, at least one, whose measure is within `limit`, and that
    /// measure. `measure` must grow with the selected rows.
    pub fn fitting<E>(
        &self,
        limit: u64,
        measure: impl Fn(&Selection) -> Result<u64, E>,
    ) -> Result<(usize, u64), E> {
        let mut rows = self.count();
        let mut measured = measure(self)?;
        while measured > limit && rows > 1 {
            let share = rows as u128 * u128::from(limit) / u128::from(measured);
            rows = (share as usize).clamp(1, rows / 2);
            let mut first = self.clone();
            first.truncate_selected(rows);
            measured = measure(&first)?;
        }
        Ok((rows, measured))
    }

    /// The bitmap over all covered rows.
    pub fn to_boolean_buffer(&self) -> BooleanBuffer {
        BooleanBuffer::new(self.words.as_flattened().to_vec().into(), 0, self.rows)
    }

    /// Selects the rows whose bit is set.
    pub fn from_boolean_buffer(first_vector: usize, bits: &BooleanBuffer) -> Self {
        let mut selection = Self::none(first_vector, bits.len());
        let words = selection.words.as_flattened_mut();
        for (word, bits) in words.iter_mut().zip(bits.bit_chunks().iter_padded()) {
            *word = bits;
        }
        selection
    }

    /// Narrows to the selected rows for which `kept` (an entry for each selected row, in order)
    /// is true; null counts as false.
    pub fn and_boolean(&mut self, kept: &BooleanArray) {
        let both;
        let kept = match kept.nulls() {
            Some(nulls) => {
                both = kept.values() & nulls.inner();
                &both
            }
            None => kept.values(),
        };
        self.keep_bits(kept.bit_chunks().iter_padded());
    }

    /// Narrows to the selected rows whose bit is set: `kept` has words with a bit for each selected row, in order.
    pub fn keep_bits(&mut self, kept: impl Iterator<Item = u64>) {
        let mut kept = kept;
        // unused bits: the lowest `count` of `rest`
        let (mut rest, mut count) = (0u64, 0);
        for word in self.words.as_flattened_mut() {
            let needed = word.count_ones();
            let mut bits = rest;
            if needed > count {
                let next = kept.next().unwrap_or(0);
                bits |= next << count;
                rest = next.checked_shr(needed - count).unwrap_or(0);
                count += 64 - needed;
            } else {
                rest = rest.checked_shr(needed).unwrap_or(0);
                count -= needed;
            }
            *word = deposit(bits, *word);
        }
    }

    /// The covered vectors with a selected row: index in the row group, number of rows, mask.
    pub(crate) fn vectors(&self) -> impl Iterator<Item = Selected<'_>> {
        let words = self.words.iter().enumerate();
        let selected = words.filter(|(_, mask)| **mask != [0; WORDS]);
        selected.map(|(i, mask)| Selected {
            vector: self.first_vector + i,
            rows: (self.rows - i * VECTOR_LEN).min(VECTOR_LEN),
            count: masks::count(std::slice::from_ref(mask)),
            mask,
        })
    }

    /// The mask of each covered vector with a selected row, for narrowing.
    pub(crate) fn vectors_mut(&mut self) -> impl Iterator<Item = (usize, &mut Mask)> {
        let first = self.first_vector;
        self.words
            .iter_mut()
            .enumerate()
            .filter(|(_, mask)| **mask != [0; WORDS])
            .map(move |(i, mask)| (first + i, mask))
    }
}

/// Up to this many rows of a vector are visited one by one, without a list.
const FEW_ROWS: usize = 32;

/// A vector with at least one selected row.
pub(crate) struct Selected<'a> {
    /// Index of the vector in the row group.
    pub vector: usize,
    /// Rows of the vector that the selection covers.
    pub rows: usize,
    /// Rows selected.
    pub count: usize,
    pub mask: &'a Mask,
}

impl Selected<'_> {
    /// Returns true if every covered row is selected.
    pub fn is_full(&self) -> bool {
        self.count == self.rows
    }

    /// Calls `visit` with each selected row of the vector, ascending.
    #[inline]
    pub fn for_each(&self, visit: impl FnMut(usize)) {
        for_each_bit(self.mask, visit);
    }

    /// Appends the selected values of a vector.
    #[inline]
    pub fn append<T: Copy>(&self, values: &[T; VECTOR_LEN], out: &mut Vec<T>) {
        if self.is_full() {
            out.extend_from_slice(&values[..self.rows]);
        } else {
            self.append_by(|row| values[row], out);
        }
    }

    /// Appends a value for each selected row.
    #[inline]
    pub fn append_by<T>(&self, value: impl Fn(usize) -> T, out: &mut Vec<T>) {
        if self.count <= FEW_ROWS {
            return self.for_each(|row| out.push(value(row)));
        }
        // a list has a known length, so that the vector grows once
        let mut rows = Vec::new();
        push_rows(self.mask, 0, &mut rows);
        out.extend(rows.iter().map(|row| value(*row as usize % VECTOR_LEN)));
    }
}

/// Moves the lowest bits of `bits`, in order, to the positions of the bits in `mask`.
#[inline(always)]
pub(crate) fn deposit(bits: u64, mask: u64) -> u64 {
    if mask == u64::MAX {
        return bits;
    }
    simd::deposit(bits, mask).unwrap_or_else(|| deposit_singly(bits, mask))
}

fn deposit_singly(bits: u64, mask: u64) -> u64 {
    let (mut rest, mut bits, mut out) = (mask, bits, 0);
    while rest != 0 {
        let lowest = rest & rest.wrapping_neg();
        out |= lowest & (bits & 1).wrapping_neg();
        bits >>= 1;
        rest ^= lowest;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_select_exactly_their_rows() {
        for range in [
            0..0,
            0..1,
            5..1029,
            1024..2048,
            1500..1501,
            63..64,
            64..130,
            2047..2049,
        ] {
            let selection = Selection::of_range(range.clone());
            let offset = selection.first_vector() * VECTOR_LEN;
            let set: Vec<usize> = selection
                .to_boolean_buffer()
                .set_indices()
                .map(|i| i + offset)
                .collect();
            assert_eq!(set, range.collect::<Vec<_>>());
        }
    }

    #[test]
    fn narrowing_counts_selected_rows_only() {
        let mut selection = Selection::of_range(10..20);
        selection.and_boolean(&BooleanArray::from_iter((0..10).map(|i| match i % 3 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        })));
        assert_eq!(
            selection
                .to_boolean_buffer()
                .set_indices()
                .collect::<Vec<_>>(),
            [10, 13, 16, 19]
        );
        selection.truncate_selected(3);
        assert_eq!(selection.count(), 3);
        selection.truncate_selected(0);
        assert!(selection.is_empty());
    }

    #[test]
    fn narrowing_agrees_with_counting() {
        for (density, kept_density, nulls) in
            [(1, 2, false), (3, 3, true), (7, 1, true), (2, 5, false)]
        {
            let rows = 3000;
            let bits =
                BooleanBuffer::collect_bool(rows, |i| density == 1 || i * 7919 % 11 % density == 0);
            let kept: BooleanArray = (0..bits.count_set_bits())
                .map(|i| (!nulls || i % 4 > 0).then_some(i * 31 % 13 % kept_density == 0))
                .collect();
            let mut selection = Selection::from_boolean_buffer(0, &bits);
            selection.and_boolean(&kept);
            let expected: Vec<usize> = bits
                .set_indices()
                .zip(&kept)
                .filter_map(|(row, kept)| (kept == Some(true)).then_some(row))
                .collect();
            let actual: Vec<usize> = selection.to_boolean_buffer().set_indices().collect();
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn ranges_are_added() {
        let rows = 3000;
        for (start, end) in [
            (0, 0),
            (0, 1),
            (63, 65),
            (64, 128),
            (100, 100),
            (1, 2999),
            (2048, 4000),
        ] {
            let mut selection = Selection::none(0, rows);
            selection.add_range(5..7);
            selection.add_range(start..end);
            let expected = BooleanBuffer::collect_bool(rows, |row| {
                (5..7).contains(&row) || (start..end).contains(&row)
            });
            assert_eq!(selection.to_boolean_buffer(), expected, "{start}..{end}");
        }
    }

    #[test]
    fn bits_are_deposited_with_and_without_the_instruction() {
        for (bits, mask) in [
            (0b1011, 0xf0f0),
            (u64::MAX, 0x8000_0001_0000_1001),
            (7, 0),
            (5, 1 << 63),
        ] {
            let expected = deposit_singly(bits, mask);
            assert_eq!(deposit(bits, mask), expected);
            assert_eq!(expected & !mask, 0);
        }
    }

    #[test]
    fn bitmaps_round_trip() {
        let bits = BooleanBuffer::collect_bool(3000, |i| i % 7 == 3);
        let selection = Selection::from_boolean_buffer(4, &bits);
        assert_eq!(selection.to_boolean_buffer(), bits);
        assert_eq!(selection.count(), bits.count_set_bits());
        assert_eq!(
            selection.vectors().map(|s| s.count).sum::<usize>(),
            selection.count()
        );
    }

    /// For any sizes of rows, parts are within the limit or a single row, and together they are all
    /// rows.
    #[test]
    fn parts_fit_and_are_all_rows() {
        let of_row = |row: usize| [1u64, 5, 1000, 0][row % 4 * (row / 1500)];
        let bytes = |part: &Selection| {
            let mut bytes = 0;
            for selected in part.vectors() {
                selected.for_each(|row| bytes += of_row(selected.vector * VECTOR_LEN + row));
            }
            Ok::<_, ()>(bytes)
        };
        let mut rest = Selection::of_range(700..2500);
        let mut seen = Selection::none(rest.first_vector(), rest.rows());
        let all = rest.clone();
        while !rest.is_empty() {
            let (rows, size) = rest.fitting(900, bytes).unwrap();
            let part = rest.take_selected(rows);
            assert_eq!((part.count(), bytes(&part)), (rows, Ok(size)));
            assert!(size <= 900 || rows == 1, "{size} of {rows} rows");
            seen.or(&part);
        }
        assert_eq!(seen, all);
    }
}
