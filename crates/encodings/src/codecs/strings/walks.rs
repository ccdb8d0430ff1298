//! Walks through the codes of splits, a step of an automaton for each code.
//!
//! A step waits for the one before it, so several splits are walked through together, and where strings end is computed
//! without branches.

use crate::codecs::fsst::{ESCAPE, SPLIT_ROWS};
use crate::codecs::strings::PART;
use crate::codecs::strings::code_table::CodeTable;
use crate::codecs::strings::entries::code_at;
use crate::error::{Result, ensure};
use crate::simd::dispatched;

/// Splits that are walked through together.
const WALKS: usize = 4;
/// Codes read together: they lie within 8 bytes from the start of the first.
const BLOCK: usize = 4;
/// Slots for the strings of a split and one behind them; a power of two.
const SLOTS: usize = 2 * SPLIT_ROWS;
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
    strings: usize,
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
    is_escaped: bool,
    /// The current string, and the bytes of it that are left.
    string: usize,
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
        match self.table.has_escapes() {
            true => walk_escaped(self.table, &mut self.walks, blocks),
            false => walk_plain(self.table, &mut self.walks, blocks),
        }
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
                is_escaped: false,
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
            self.lengths[self.strings % SLOTS] = *length;
            self.rows[self.strings % SLOTS] = row;
            self.strings += usize::from(*length > 0);
            self.empty |= u32::from(*length == 0) << row;
        }
        self.lengths[self.strings % SLOTS] = ENDLESS;
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
            match table.has_escapes() {
                true => cursor.step::<true>(table, code, &self.lengths, &mut self.ends),
                false => cursor.step::<false>(table, code, &self.lengths, &mut self.ends),
            }
        }
        let is_read = cursor.bit.div_ceil(8) == self.codes.len();
        let are_whole = cursor.string == self.strings && cursor.left == ENDLESS;
        let ends = &self.ends[..self.strings.min(SLOTS)];
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
    fn step<const ESCAPES: bool>(
        &mut self,
        table: &CodeTable,
        code: usize,
        lengths: &[u64; SLOTS],
        ends: &mut [u8; SLOTS],
    ) {
        let mut length = table.length(code);
        if ESCAPES {
            length = if self.is_escaped { 1 } else { length };
            self.is_escaped = !self.is_escaped & (code == usize::from(ESCAPE));
        }
        let state = table.step(self.state, code);
        // the last state written is that at the end of the string
        ends[self.string % SLOTS] = state;
        // wraps if the code has more bytes than are left: no string ends any more
        let left = self.left.wrapping_sub(u64::from(length));
        let is_end = left == 0;
        self.string += usize::from(is_end);
        let next = lengths[self.string % SLOTS];
        self.left = left | (next & u64::from(is_end).wrapping_neg());
        self.state = state & u8::from(is_end).wrapping_sub(1) | CodeTable::START;
    }
}

/// Walks through as many blocks of each split.
#[inline(always)]
fn walk<const ESCAPES: bool>(table: &CodeTable, walks: &mut [Walk<'_>; WALKS], blocks: usize) {
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
                cursor.step::<ESCAPES>(table, code, &walk.lengths, &mut walk.ends);
            }
        }
    }
    for (walk, cursor) in walks.iter_mut().zip(cursors) {
        walk.cursor = cursor;
    }
}

dispatched! {
    fn walk_plain(table: &CodeTable, walks: &mut [Walk<'_>; WALKS], blocks: usize) {
        walk::<false>(table, walks, blocks)
    }
}

dispatched! {
    fn walk_escaped(table: &CodeTable, walks: &mut [Walk<'_>; WALKS], blocks: usize) {
        walk::<true>(table, walks, blocks)
    }
}
