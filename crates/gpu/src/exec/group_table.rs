//! Layout of group tables, on the device and after they were copied back.

use std::ops::Range;
use std::sync::Arc;

use crate::kernel::Accumulators;
use crate::runtime::DeviceBuffer;
use vectile_encodings::VECTOR_LEN;

/// Bytes before the entries: words of flags. The first is set if the table was full, or a group was out of range; the second
/// if keys hash alike; then one for each set that was full.
pub(super) const FLAG_BYTES: usize = 256;
/// Bytes of a front that makes a column of a table's words: a header, and a record for each vector.
const FRONT_BYTES: usize = 256;
const VECTOR_BYTES: usize = 16;
/// Limit of the bytes of a row number column's body.
pub(super) const NUMBERS_BYTES: usize = 4096;

/// Byte offsets of the parts of a group table: room for fronts that make columns of it, flags, numbers, and a column
/// for each accumulator.
pub(super) struct GroupTableLayout {
    pub accumulators: Accumulators,
    pub entries: usize,
    /// Flags: the table was full, or a group was out of range.
    pub flags: usize,
    /// Group numbers of the entries of a hashed table; without hashing, the entry's index is the number.
    pub numbers: usize,
    pub words: usize,
    pub end: usize,
    /// Sets of distinct values, after the table.
    pub sets: Vec<usize>,
    /// The end of the sets.
    pub all: usize,
}

/// A table of groups on the device.
pub(super) struct GroupTable {
    pub layout: GroupTableLayout,
    pub memory: Arc<DeviceBuffer>,
    /// The copied-back bytes from the flags on, if all of them were copied.
    pub back: Option<DeviceBuffer>,
}

/// The copied-back words of a group table.
pub(super) struct GroupTableWords<'a> {
    pub layout: &'a GroupTableLayout,
    words: &'a [[u8; 8]],
}

impl GroupTableLayout {
    /// The layout for so many entries, and for sets of so many words; `None` if it is too large.
    pub fn of(
        entries: u64,
        is_hashed: bool,
        accumulators: &Accumulators,
        sets: impl Iterator<Item = u64>,
    ) -> Option<Self> {
        let entries = usize::try_from(entries).ok()?;
        let column = entries.checked_mul(8)?;
        let fronts = accumulators.all.len() + 2;
        let front = Self::front_bytes(entries).checked_mul(fronts)?;
        let flags = front.checked_add(NUMBERS_BYTES)?;
        let numbers = flags.checked_add(FLAG_BYTES)?;
        let words = numbers.checked_add(if is_hashed { column } else { 0 })?;
        let end = words.checked_add(column.checked_mul(accumulators.words().1)?)?;
        let (mut all, mut sets_at) = (end, vec![]);
        for words in sets {
            sets_at.push(all);
            all = all.checked_add(usize::try_from(words).ok()?.checked_mul(8)?)?;
        }
        Some(Self {
            accumulators: accumulators.clone(),
            entries,
            flags,
            numbers,
            words,
            end,
            sets: sets_at,
            all,
        })
    }

    /// Upper bound of the bytes of a column's front.
    pub fn front_bytes(entries: usize) -> usize {
        let vectors = entries.div_ceil(VECTOR_LEN);
        (FRONT_BYTES + vectors * VECTOR_BYTES).next_multiple_of(256)
    }

    /// Bytes of the table from the flags on.
    pub fn bytes(&self) -> usize {
        self.end - self.flags
    }

    /// The same, and of the sets.
    pub fn bytes_with_sets(&self) -> usize {
        self.all - self.flags
    }

    /// The offset of an accumulator's column, and the words of an entry there.
    pub fn column(&self, accumulator: usize) -> (usize, usize) {
        let before = self.accumulators.words().0[accumulator];
        let each = self.accumulators.all[accumulator].accumulator.words();
        (self.words + before * self.entries * 8, each)
    }

    /// The words of copied-back bytes, from the flags on.
    pub fn words_of<'a>(&'a self, back: &'a [u8]) -> GroupTableWords<'a> {
        GroupTableWords {
            layout: self,
            words: back.as_chunks::<8>().0,
        }
    }
}

impl GroupTableWords<'_> {
    fn some(&self, from: usize, count: usize) -> &[[u8; 8]] {
        let from = (from - self.layout.flags) / 8;
        &self.words[from..from + count]
    }

    /// The group number of an entry of a hashed table.
    pub fn number(&self, at: usize) -> u64 {
        let number = self.some(self.layout.numbers + at * 8, 1)[0];
        u64::from_le_bytes(number).wrapping_sub(1)
    }

    /// The entries with rows, among those of a range.
    pub fn occupied(&self, range: Range<usize>) -> Vec<usize> {
        let counts = self.column(0).get(range.clone()).unwrap_or_default();
        let occupied = range.zip(counts).filter(|(_, count)| **count != [0; 8]);
        occupied.map(|(at, _)| at).collect()
    }

    /// The words of an accumulator.
    pub fn column(&self, accumulator: usize) -> &[[u8; 8]] {
        let (from, each) = self.layout.column(accumulator);
        self.some(from, each * self.layout.entries)
    }
}
