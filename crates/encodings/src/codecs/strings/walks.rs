//! Walks through the codes of splits, a step of an automaton for each code.
//!
//! A step waits for the one before it, so several splits are walked through together, and where strings end is computed
//! without branches.

use std::hint::select_unpredictable;

use crate::codecs::fsst::SPLIT_ROWS;
use crate::codecs::strings::code_table::CodeTable;
use crate::codecs::strings::entries::code_at;
use crate::error::{Result, ensure};
use crate::simd::dispatched;

const PART: &str = "strings";
/// Splits that are walked through together: as many as registers hold.
const WALKS: usize = 3;
/// Codes read together: they lie within 8 bytes from the start of the first.
const BLOCK: usize = 4;
/// Slots for the strings of a split and one behind them: as many as a byte numbers, so that no access needs a check.
const SLOTS: usize = 1 << u8::BITS;
/// The length of the string behind the last one, which no code ends.
const ENDLESS: u64 = 1 << 62;

/// Walks through some splits.
pub(super) struct Walks<'a> {
    table: &'a CodeTable,
    walks: [Walk<'a>; WALKS],
}

/// A walk through a split. Its strings are those that have bytes.
struct Walk<'a> {
    /// The split's place among others, if there is a split.
    place: Option<usize>,
    codes: &'a [u8],
    cursor: Cursor,
    /// The number of strings.
    strings: u8,
    /// The bytes of each string, then [`ENDLESS`].
    lengths: [u64; SLOTS],
    /// The state at the end of each string.
    ends: [u8; SLOTS],
    /// The row of each string.
    rows: [u8; SLOTS],
    /// A bit for each row whose string is empty.
    empty: u32,
}

/// A position in a walk.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// The bit at which the next code starts.
    bit: usize,
    state: u8,
    /// The current string, and the bytes of it that are left.
    string: u8,
    left: u64,
}

impl<'a> Walks<'a> {
    /// No walks yet.
    pub fn new(table: &'a CodeTable) -> Self {
        Self {
            table,
            walks: [const { Walk::none() }; WALKS],
        }
    }

    /// Walks through a split, whose strings have `lengths`, now or later. Calls `emit` with the places of splits that are
    /// done, and a bit for each row, which is set if its string passes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the codes of a split do not stand for strings of its lengths.
    pub fn start(
        &mut self,
        place: usize,
        codes: &'a [u8],
        lengths: &[u64],
        emit: &mut impl FnMut(usize, u32),
    ) -> Result<()> {
        loop {
            if let Some(idle) = self.walks.iter_mut().find(|walk| walk.place.is_none()) {
                idle.start(place, codes, lengths);
                return Ok(());
            }
            self.advance(emit)?;
        }
    }

    /// Ends all walks.
    ///
    /// # Errors
    ///
    /// As [`Walks::start`].
    pub fn finish(&mut self, emit: &mut impl FnMut(usize, u32)) -> Result<()> {
        while self.walks.iter().any(|walk| walk.place.is_some()) {
            self.advance(emit)?;
        }
        Ok(())
    }

    /// Walks on until at least one walk ends.
    fn advance(&mut self, emit: &mut impl FnMut(usize, u32)) -> Result<()> {
        let code_bits = self.table.code_bits();
        let busy = self.walks.iter().filter(|walk| walk.place.is_some());
        let blocks = busy.map(|walk| walk.blocks(code_bits)).min().unwrap_or(0);
        walk(self.table, &mut self.walks, blocks);
        for walk in &mut self.walks {
            if let Some(place) = walk.place
                && walk.blocks(code_bits) == 0
            {
                emit(place, walk.finish(self.table)?);
                walk.place = None;
            }
        }
        Ok(())
    }
}

impl<'a> Walk<'a> {
    const fn none() -> Self {
        Self {
            place: None,
            codes: &[],
            cursor: Cursor {
                bit: 0,
                state: CodeTable::START,
                string: 0,
                left: ENDLESS,
            },
            strings: 0,
            lengths: [ENDLESS; SLOTS],
            ends: [0; SLOTS],
            rows: [0; SLOTS],
            empty: 0,
        }
    }

    fn start(&mut self, place: usize, codes: &'a [u8], lengths: &[u64]) {
        (self.place, self.codes) = (Some(place), codes);
        (self.strings, self.empty) = (0, 0);
        for (row, length) in (0..SPLIT_ROWS as u8).zip(lengths) {
            self.lengths[usize::from(self.strings)] = *length;
            self.rows[usize::from(self.strings)] = row;
            self.strings += u8::from(*length > 0);
            self.empty |= u32::from(*length == 0) << row;
        }
        self.lengths[usize::from(self.strings)] = ENDLESS;
        self.cursor = Cursor {
            left: self.lengths[0],
            ..Cursor::default()
        };
    }

    /// The number of blocks that can be read from here without a check of each.
    fn blocks(&self, code_bits: usize) -> usize {
        let last = self.codes.len().checked_sub(size_of::<u64>());
        let bits = last.and_then(|last| (8 * last + 7).checked_sub(self.cursor.bit));
        bits.map_or(0, |bits| bits / (BLOCK * code_bits) + 1)
    }

    /// Walks through the rest of the codes; returns a bit for each row, which is set if its string passes.
    fn finish(&mut self, table: &CodeTable) -> Result<u32> {
        let code_bits = table.code_bits();
        let mut cursor = self.cursor;
        while cursor.string < self.strings && cursor.bit + code_bits <= 8 * self.codes.len() {
            let code = code_at(self.codes, cursor.bit, code_bits);
            cursor.bit += code_bits;
            cursor.step(table, code, &self.lengths, &mut self.ends);
        }
        let is_read = cursor.bit.div_ceil(8) == self.codes.len();
        let are_whole = cursor.string == self.strings && cursor.left == ENDLESS;
        let ends = &self.ends[..usize::from(self.strings)];
        let are_known = !ends.contains(&table.dead());
        ensure(is_read && are_whole && are_known, PART, || {
            let (bytes, strings) = (self.codes.len(), self.strings);
            format!("{bytes} bytes of codes that are not those of {strings} strings")
        })?;
        let mut passing = match table.accepts(CodeTable::START) {
            true => self.empty,
            false => 0,
        };
        for (state, row) in ends.iter().zip(self.rows) {
            passing |= u32::from(table.accepts(*state)) << row;
        }
        Ok(passing)
    }
}

impl Cursor {
    /// Takes the step of a code.
    #[inline(always)]
    fn step(
        &mut self,
        table: &CodeTable,
        code: usize,
        lengths: &[u64; SLOTS],
        ends: &mut [u8; SLOTS],
    ) {
        let length = table.length(code);
        let state = table.step(self.state, code);
        // the last state written is that at the end of the string
        ends[usize::from(self.string)] = state;
        // wraps if the code has more bytes than are left: no string ends any more
        let left = self.left.wrapping_sub(u64::from(length));
        let is_end = left == 0;
        self.string = self.string.wrapping_add(u8::from(is_end));
        let next = lengths[usize::from(self.string)];
        self.left = select_unpredictable(is_end, next, left);
        self.state = select_unpredictable(is_end, CodeTable::START, state);
    }
}

dispatched! {
    /// Walks through as many blocks of each split.
    fn walk(table: &CodeTable, walks: &mut [Walk<'_>; WALKS], blocks: usize) {
        let code_bits = table.code_bits();
        let mask = (1 << code_bits) - 1;
        let mut cursors = walks.each_ref().map(|walk| walk.cursor);
        for _ in 0..blocks {
            let mut words = [0; WALKS];
            for ((word, cursor), walk) in words.iter_mut().zip(&mut cursors).zip(&*walks) {
                let codes = walk.codes.get(cursor.bit / 8..);
                let codes = codes.and_then(|codes| codes.first_chunk());
                // walks without a split read nothing
                *word = codes.map_or(0, |codes| u64::from_le_bytes(*codes)) >> (cursor.bit % 8);
                cursor.bit += BLOCK * code_bits;
            }
            for _ in 0..BLOCK {
                for ((word, cursor), walk) in words.iter_mut().zip(&mut cursors).zip(&mut *walks) {
                    let code = (*word & mask) as usize;
                    *word >>= code_bits;
                    cursor.step(table, code, &walk.lengths, &mut walk.ends);
                }
            }
        }
        for (walk, cursor) in walks.iter_mut().zip(cursors) {
            walk.cursor = cursor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::onpair::BITMAP_BYTES;
    use crate::codecs::strings::entries::Entries;
    use crate::text::Automaton;

    /// Codes of three bits for `a`, `b`, `ab`, `abab` and `b` with all of these.
    fn entries() -> Entries {
        let mut bytes = vec![0; BITMAP_BYTES];
        bytes[12] = 0b110;
        let parts = [0, 1, 2, 2, 1, 3].into_iter().rev();
        let parts = parts.fold(0u32, |bits, part| bits << 3 | part);
        bytes.extend(&parts.to_le_bytes()[..3]);
        Entries::parse(&bytes, 5).unwrap()
    }

    fn packed(codes: &[u8]) -> Vec<u8> {
        let codes = codes.iter().rev();
        let bits = codes
            .clone()
            .fold(0u128, |bits, code| bits << 3 | u128::from(*code));
        bits.to_le_bytes()[..(3 * codes.len()).div_ceil(8)].to_vec()
    }

    /// The rows that pass in each of several splits of the same codes.
    fn walked(table: &CodeTable, codes: &[u8], lengths: &[u64]) -> Result<u32> {
        let mut passing = vec![];
        let mut walks = Walks::new(table);
        let mut emit = |place, rows| passing.push((place, rows));
        for place in 0..6 {
            walks.start(place, codes, lengths, &mut emit)?;
        }
        walks.finish(&mut emit)?;
        passing.sort_unstable();
        assert_eq!(passing.len(), 6);
        for (place, (found, rows)) in passing.iter().enumerate() {
            assert_eq!((*found, *rows), (place, passing[0].1));
        }
        Ok(passing[0].1)
    }

    #[test]
    fn strings_end_where_their_lengths_say() {
        let entries = entries();
        let of = |automaton: Option<Automaton>| CodeTable::of(&automaton.unwrap(), &entries);
        let has_bb = of(Automaton::contains("bb"));
        // babab | nothing | ab, babab | b, b | nothing
        let (codes, lengths) = (packed(&[4, 2, 4, 1, 1]), [5, 0, 7, 2, 0]);
        assert_eq!(walked(&has_bb, &codes, &lengths).unwrap(), 0b01100);
        let is_empty = of(Automaton::like("", false));
        assert_eq!(walked(&is_empty, &codes, &lengths).unwrap(), 0b10010);
        assert_eq!(walked(&is_empty, &[], &[0; 32]).unwrap(), u32::MAX);
        // many codes, so that most are read in blocks
        let (codes, lengths) = (packed(&[3; 40]), [4, 8, 148]);
        let is_abab = of(Automaton::like("abab", false));
        assert_eq!(walked(&is_abab, &codes, &lengths).unwrap(), 0b001);
        let is_longer = of(Automaton::like("_%abababab", false));
        assert_eq!(walked(&is_longer, &codes, &lengths).unwrap(), 0b100);
    }

    #[test]
    fn codes_of_other_strings_are_errors() {
        let table = CodeTable::of(&Automaton::constant(true), &entries());
        for many in [1, 9] {
            let codes: Vec<u8> = [4, 2].repeat(many);
            let lengths = |last: u64| [[5, 2].repeat(many - 1), vec![5, last]].concat();
            let walked = |codes: &[u8], lengths: &[u64]| walked(&table, &packed(codes), lengths);
            walked(&codes, &lengths(2)).unwrap();
            let with = |place: usize, code: u8| {
                let mut codes = codes.clone();
                codes[place] = code;
                codes
            };
            let longer = [&codes[..], &[0, 0, 0]].concat();
            for (codes, lengths) in [
                // the end of a string within a code
                (codes.clone(), lengths(1)),
                (
                    codes.clone(),
                    [vec![6, 1], lengths(2)[2..].to_vec()].concat(),
                ),
                // more and fewer codes
                (longer, lengths(2)),
                (codes[..codes.len() - 1].to_vec(), lengths(2)),
                (vec![], lengths(2)),
                // codes that have no entries, and strings of 255 bytes
                (with(0, 5), lengths(2)),
                (with(2 * many - 1, 7), lengths(2)),
                (with(2 * many - 1, 7), lengths(255)),
            ] {
                let error = walked(&codes, &lengths).unwrap_err().to_string();
                assert!(error.contains("not those of"), "{error}");
            }
        }
    }
}
