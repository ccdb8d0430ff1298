//! Concatenated byte strings: `plain` without compression, `fsst` compressed by one or two symbol
//! tables (the second one compresses the codes of the first, for text of a small vocabulary),
//! `onpair` as codes of entries.
//!
//! ```text
//! header   u8 number of symbol tables, 0..=2; or 3: entries, and their u64 number
//! buffer   each table, the one to undo first first; or what the entries are made of
//! then     the length of each string, as an integer sequence; 0 for nulls
//! then     the compressed bytes of each split, as an integer sequence
//! buffer   the bytes of all splits
//! ```
//!
//! A **split** is 32 consecutive strings, the last one of a chunk fewer. Its strings are
//! compressed as one, and it decompresses alone: 32 splits a vector, one for each lane.

mod code_table;
mod entries;
mod symbols;
mod walks;

use std::ops::Range;
use std::slice;

use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::byte_strings::{self, BytesBuilder};
use crate::codecs::codec::{Codec, TextTest};
use crate::codecs::fsst::{self, SPLIT_ROWS};
use crate::codecs::layout::{EntriesView, StringsView, Values};
use crate::codecs::onpair::{self, MAX_ENTRIES};
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::source::Source;
use crate::compressor::Splits;
use crate::encoding::Encoding;
use crate::error::{Result, corrupt, ensure};
use crate::masks::Mask;
use crate::predicate::Predicate;
use crate::selection::{Selected, Selection};
use crate::size;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::{FORMAT_VERSION, VECTOR_LEN};

use code_table::CodeTable;
pub(crate) use entries::Entries;
use symbols::{SLACK, SymbolTable, SymbolTablePair};
use walks::Walks;

const PART: &str = "strings";
/// Marks entries in place of the number of symbol tables.
const ENTRIES: u8 = 3;
/// The most bytes reserved in extrapolation from the first vector.
const MAX_RESERVED: usize = 1 << 24;
/// Fewer rows than this are decoded to be tested.
const LEAST_TESTED: usize = 2048;
/// All rows of a split are walked through: it pays if as many of them are selected on average.
const LEAST_OF_SPLIT: usize = 4;
/// Entries of a code table that take the time of a row's decoding to fill.
const ENTRIES_A_ROW: usize = 32;

/// Appends the source's strings without compression; `false` if it has none.
pub(crate) fn encode(source: &Source, out: &mut ChunkWriter) -> bool {
    if let Some(values) = &source.bytes {
        out.u8(0);
        write(values, fsst::splits_of(values), out);
    }
    source.bytes.is_some()
}

/// Appends the source's strings, compressed by symbol tables; `false` if it has none.
pub(crate) fn encode_fsst(source: &Source, out: &mut ChunkWriter) -> bool {
    let Some(values) = &source.bytes else {
        return false;
    };
    let tables = source.tables(values);
    out.u8(1 + u8::from(tables.second.is_some()));
    tables.export().for_each(|table| out.sized_buffer(table));
    write(values, tables.compress(values, source.compressor), out);
    true
}

/// Appends the source's strings as codes of entries; `false` if it has none.
pub(crate) fn encode_onpair(source: &Source, out: &mut ChunkWriter) -> bool {
    let Some(values) = &source.bytes else {
        return false;
    };
    let occurring = onpair::occurring(values.iter().copied());
    let dictionary = source.entries(values).dictionary(&occurring);
    out.u8(ENTRIES);
    out.u64(dictionary.len() as u64);
    out.sized_buffer(dictionary.export());
    let codes = dictionary.compress(values, source.compressor);
    write(values, codes, out);
    true
}

/// Bytes of this encoding's symbol tables or entries for the source's strings: a sample has as many
/// as the column.
pub(crate) fn vocabulary_bytes(encoding: Encoding, source: &Source) -> usize {
    let Some(values) = &source.bytes else {
        return 0;
    };
    match encoding {
        Encoding::Fsst => {
            let tables = source.tables(values).export();
            tables.map(|table| table.len()).sum()
        }
        Encoding::OnPair => {
            let occurring = onpair::occurring(values.iter().copied());
            let dictionary = source.entries(values).dictionary(&occurring);
            dictionary.export().len()
        }
        _ => 0,
    }
}

fn write(values: &[&[u8]], splits: Splits, out: &mut ChunkWriter) {
    let lengths: Vec<u64> = values.iter().map(|value| value.len() as u64).collect();
    out.append(sequence::encode_lengths(&lengths));
    let lengths: Vec<u64> = splits.iter().map(|split| split.len() as u64).collect();
    out.append(sequence::encode_lengths(&lengths));
    out.buffer(splits.data);
}

/// The meaning of codes.
#[derive(Clone, Debug)]
enum Vocabulary {
    /// Codes are bytes: the strings are not compressed.
    Bytes,
    Symbols(symbols::Tables),
    Entries(Entries),
}

impl Vocabulary {
    fn parse(reader: &mut ChunkReader) -> Result<Self> {
        let kind = reader.u8()?;
        if kind == ENTRIES {
            let count = reader.count(MAX_ENTRIES, PART)?;
            return Ok(Self::Entries(Entries::parse(
                &reader.sized_buffer()?,
                count,
            )?));
        }
        let mut table = || SymbolTable::parse(&reader.sized_buffer()?);
        Ok(match kind {
            0 => Self::Bytes,
            1 => Self::Symbols(symbols::Tables::One(table()?)),
            2 => {
                let (second, first) = (table()?, table()?);
                let pair = SymbolTablePair::new(first, second);
                Self::Symbols(symbols::Tables::Two(Box::new(pair)))
            }
            _ => {
                let reason = format!("{kind} symbol tables, at most 2");
                return Err(corrupt(PART, reason));
            }
        })
    }

    /// Upper bound on the bytes per byte of codes.
    fn max_growth(&self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Symbols(tables) => tables.max_growth(),
            Self::Entries(entries) => entries.max_growth(),
        }
    }
}

/// A parsed column. Invariant: `starts` ascends, has an entry more than there are splits, and ends
/// with the length of `data`.
#[derive(Clone, Debug)]
pub(crate) struct Strings {
    len: usize,
    vocabulary: Vocabulary,
    lengths: Sequence,
    starts: Vec<u64>,
    data: Buffer,
}

impl Strings {
    /// Strings of these lengths, one behind the other in `data`, without compression; and their bytes in memory.
    pub fn of(lengths: &[u64], data: Buffer) -> Result<(Self, usize)> {
        let sum_of = |lengths: &[u64]| {
            lengths
                .iter()
                .fold(0u64, |sum, len| sum.saturating_add(*len))
        };
        let mut end = 0u64;
        let ends = lengths.chunks(SPLIT_ROWS).map(|split| {
            end = end.saturating_add(sum_of(split));
            end
        });
        let starts: Vec<u64> = [0].into_iter().chain(ends).collect();
        ensure(end == data.len() as u64, PART, || {
            format!("lengths of {end} bytes for {}", data.len())
        })?;
        let encoded = sequence::encode_lengths(lengths).finish();
        let bytes = data.len() + encoded.len() + size_of_val(&starts[..]);
        let mut reader = ChunkReader::new(&encoded.into(), FORMAT_VERSION)?;
        let strings = Self {
            len: lengths.len(),
            vocabulary: Vocabulary::Bytes,
            lengths: Sequence::parse(&mut reader, lengths.len())?,
            starts,
            data,
        };
        Ok((strings, bytes))
    }

    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let vocabulary = Vocabulary::parse(reader)?;
        let lengths = Sequence::parse(reader, len)?;
        let splits = len.div_ceil(SPLIT_ROWS);
        let split_lengths = Sequence::parse(reader, splits)?;
        // a split takes at least a byte for every 64 rows in it: no more entries than the rows
        // allow
        let mut starts = Vec::with_capacity(splits + 1);
        starts.push(0);
        split_lengths.decode_range(0..splits, 0u64, &mut starts)?;
        let mut end = 0u64;
        for start in &mut starts {
            end = end.saturating_add(*start);
            *start = end;
        }
        let bytes = usize::try_from(end).unwrap_or(usize::MAX);
        let data = reader.buffer_of(bytes, PART)?;
        Ok(Self {
            len,
            vocabulary,
            lengths,
            starts,
            data,
        })
    }

    fn select_vector(
        &self,
        selected: &Selected,
        lengths: &mut [u64; VECTOR_LEN],
        scratch: &mut Vec<u8>,
        out: &mut BytesBuilder,
    ) -> Result<()> {
        let lengths = self.lengths_of(selected.vector, lengths)?;
        for (i, lengths) in lengths.chunks(SPLIT_ROWS).enumerate() {
            let row_mask = (selected.mask[i / 2] >> (i % 2 * SPLIT_ROWS)) as u32;
            let split = selected.vector * VECTOR_LEN / SPLIT_ROWS + i;
            if row_mask == u32::MAX {
                self.append_split(split, lengths, scratch, out)?;
            } else if row_mask != 0 {
                self.append_rows(split, lengths, row_mask, scratch, out)?;
            }
        }
        Ok(())
    }

    /// The lengths of a vector's strings.
    fn lengths_of<'a>(
        &self,
        vector: usize,
        lengths: &'a mut [u64; VECTOR_LEN],
    ) -> Result<&'a [u64]> {
        self.lengths.decode(vector, 0, lengths)?;
        let first = vector * VECTOR_LEN;
        let rows = self.len.saturating_sub(first).min(VECTOR_LEN);
        // short enough that sums of a vector cannot overflow
        let bits = lengths[..rows].iter().fold(0, |bits, length| bits | length);
        ensure(bits <= u64::from(u32::MAX), PART, || {
            format!("a string of more than {} bytes", u32::MAX)
        })?;
        Ok(&lengths[..rows])
    }

    /// Checks that a split holds strings of `lengths`, without decompressing it.
    fn check_split(&self, split: usize, lengths: &[u64], scratch: &mut Vec<u8>) -> Result<()> {
        if let Vocabulary::Entries(entries) = &self.vocabulary {
            return entries.check(self.split(split), lengths);
        }
        let bytes = lengths.iter().sum::<u64>() as usize;
        let behind = bytes..usize::MAX;
        let decompressed = self.decompress(split, bytes, slice::from_ref(&behind), scratch)?;
        ensure(decompressed.len() == bytes, PART, || {
            let decompressed = decompressed.len();
            format!("split {split} has {decompressed} bytes, its lengths say {bytes}")
        })
    }

    /// Appends a whole split, whose strings have `lengths`.
    fn append_split(
        &self,
        split: usize,
        lengths: &[u64],
        scratch: &mut Vec<u8>,
        out: &mut BytesBuilder,
    ) -> Result<()> {
        let mut end = out.data.len();
        out.ends.extend(lengths.iter().map(|len| {
            end += *len as usize;
            end
        }));
        let bytes = end - out.data.len();
        let all = self.decompress(split, bytes, symbols::ALL, scratch)?;
        ensure(all.len() == bytes, PART, || {
            let decompressed = all.len();
            format!("split {split} has {decompressed} bytes, its lengths say {bytes}")
        })?;
        out.data.extend_from_slice(all);
        Ok(())
    }

    /// Appends the strings of a split whose bit in `row_mask` is set.
    fn append_rows(
        &self,
        split: usize,
        lengths: &[u64],
        row_mask: u32,
        scratch: &mut Vec<u8>,
        out: &mut BytesBuilder,
    ) -> Result<()> {
        let mut starts = [0; SPLIT_ROWS + 1];
        let mut bytes = 0;
        for (start, length) in starts[1..].iter_mut().zip(lengths) {
            bytes += *length as usize;
            *start = bytes;
        }
        let mut ranges = [const { 0..0 }; SPLIT_ROWS];
        let mut count = 0;
        let mut rest = row_mask;
        while rest != 0 {
            let row = rest.trailing_zeros() as usize;
            ranges[count] = starts[row]..starts[row + 1];
            count += 1;
            rest &= rest - 1;
        }
        let ranges = &ranges[..count];
        let decompressed = self.decompress(split, bytes, ranges, scratch)?;
        for range in ranges {
            ensure(range.end <= decompressed.len(), PART, || {
                let decompressed = decompressed.len();
                format!("split {split} has {decompressed} bytes, its lengths say {bytes}")
            })?;
            out.push_of(decompressed, range.clone());
        }
        Ok(())
    }

    /// Decompresses the byte `ranges` of a split, which has `bytes` bytes in all. `scratch` is
    /// overwritten.
    fn decompress<'a>(
        &'a self,
        split: usize,
        bytes: usize,
        ranges: &[Range<usize>],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let codes = self.split(split);
        let limit = codes.len().saturating_mul(self.vocabulary.max_growth());
        ensure(bytes <= limit, PART, || {
            let codes = codes.len();
            format!("split {split} of {codes} bytes holds {bytes}, at most {limit} possible")
        })?;
        if let Vocabulary::Bytes = self.vocabulary {
            return Ok(codes);
        }
        scratch.resize(scratch.len().max(bytes + SLACK), 0);
        let out = &mut scratch[..bytes + SLACK];
        let end = match &self.vocabulary {
            Vocabulary::Bytes => 0,
            Vocabulary::Symbols(tables) => tables.decompress(codes, ranges, out)?,
            Vocabulary::Entries(entries) => entries.decompress(codes, bytes, ranges, out)?,
        };
        Ok(&scratch[..end])
    }

    /// The table of an automaton's steps, if making it and walking through the codes of the selected rows takes less time
    /// than decoding these. Only codes of entries have none that covers bytes of two strings.
    fn code_table(&self, automaton: &TextTest<'_>, selection: &Selection) -> Option<CodeTable> {
        let Vocabulary::Entries(entries) = &self.vocabulary else {
            return None;
        };
        let rows = selection.count();
        if rows < LEAST_TESTED || rows < LEAST_OF_SPLIT * count_splits(selection) {
            return None;
        }
        let automaton = automaton()?;
        let pays = automaton.states() * entries.count() <= ENTRIES_A_ROW * rows;
        pays.then(|| CodeTable::of(&automaton, entries))
    }

    /// A bit for each row of the vectors that the selection covers, set if its string passes. Splits without a selected
    /// row have none.
    fn tested(&self, table: &CodeTable, selection: &Selection) -> Result<Vec<Mask>> {
        let mut passing = vec![Mask::default(); selection.num_vectors()];
        let mut emit = |place: usize, rows: u32| {
            let words = passing.as_flattened_mut();
            if let Some(word) = words.get_mut(place / 2) {
                *word |= u64::from(rows) << (place % 2 * SPLIT_ROWS);
            }
        };
        let first = selection.first_vector() * VECTOR_LEN / SPLIT_ROWS;
        let mut walks = Walks::new(table);
        let mut lengths = [0; VECTOR_LEN];
        for selected in selection.vectors() {
            let lengths = self.lengths_of(selected.vector, &mut lengths)?;
            for (i, lengths) in lengths.chunks(SPLIT_ROWS).enumerate() {
                if (selected.mask[i / 2] >> (i % 2 * SPLIT_ROWS)) as u32 != 0 {
                    let split = selected.vector * VECTOR_LEN / SPLIT_ROWS + i;
                    walks.start(split - first, self.split(split), lengths, &mut emit)?;
                }
            }
        }
        walks.finish(&mut emit)?;
        Ok(passing)
    }

    fn split(&self, split: usize) -> &[u8] {
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        self.data
            .get(start(split)..start(split + 1))
            .unwrap_or_default()
    }
}

impl StringsView for Strings {
    fn tables(&self) -> usize {
        match &self.vocabulary {
            Vocabulary::Symbols(tables) => tables.count(),
            _ => 0,
        }
    }

    fn symbol(&self, table: usize, code: u8) -> &[u8] {
        match &self.vocabulary {
            Vocabulary::Symbols(tables) => tables.symbol(table, code),
            _ => &[],
        }
    }

    fn entries(&self) -> Option<&dyn EntriesView> {
        match &self.vocabulary {
            Vocabulary::Entries(entries) => Some(entries),
            _ => None,
        }
    }

    fn data(&self) -> &Buffer {
        &self.data
    }

    fn starts(&self) -> &[u64] {
        &self.starts
    }

    fn memory_size(&self) -> usize {
        size_of_val(&self.starts[..]) + self.lengths.memory_size()
    }

    fn for_each_vector(&self, visit: &mut dyn FnMut(usize, &[u64])) -> Result<()> {
        let (mut lengths, mut scratch) = ([0; VECTOR_LEN], vec![]);
        for vector in 0..self.len.div_ceil(VECTOR_LEN) {
            let lengths = self.lengths_of(vector, &mut lengths)?;
            let first = vector * VECTOR_LEN / SPLIT_ROWS;
            for (split, lengths) in (first..).zip(lengths.chunks(SPLIT_ROWS)) {
                self.check_split(split, lengths, &mut scratch)?;
            }
            visit(vector, lengths);
        }
        Ok(())
    }
}

impl Codec for Strings {
    fn encoding(&self) -> Encoding {
        match self.vocabulary {
            Vocabulary::Bytes => Encoding::Plain,
            Vocabulary::Symbols(_) => Encoding::Fsst,
            Vocabulary::Entries(_) => Encoding::OnPair,
        }
    }

    fn describe(&self) -> String {
        let (encoding, lengths) = (self.encoding(), self.lengths.describe());
        match self.vocabulary {
            Vocabulary::Symbols(symbols::Tables::Two(_)) => {
                format!("{encoding}({encoding}, {lengths})")
            }
            _ => format!("{encoding}({lengths})"),
        }
    }

    fn layout(&self) -> Values<'_> {
        Values::Strings(self)
    }

    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        let strings = (self.data.len() as u64).saturating_mul(self.vocabulary.max_growth() as u64);
        size::fixed_bytes(data_type, rows as u64).saturating_add(strings)
    }

    fn decoded_bytes(&self, data_type: &DataType, selection: &Selection, _: u64) -> Result<u64> {
        if let DataType::FixedSizeBinary(_) = data_type {
            return Ok(size::fixed_bytes(data_type, selection.count() as u64));
        }
        let mut lengths = [0; VECTOR_LEN];
        let mut bytes = size::fixed_bytes(data_type, selection.count() as u64);
        for selected in selection.vectors() {
            self.lengths.decode(selected.vector, 0, &mut lengths)?;
            selected.for_each(|row| bytes = bytes.saturating_add(lengths[row]));
        }
        Ok(bytes)
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let mut out = BytesBuilder::with_capacity(selection.count());
        let mut lengths = [0; VECTOR_LEN];
        let mut scratch = vec![];
        for (i, selected) in selection.vectors().enumerate() {
            self.select_vector(&selected, &mut lengths, &mut scratch, &mut out)?;
            if i == 0 {
                let all = out.data.len() * selection.count() / selected.count;
                out.data.reserve((all + all / 8).min(MAX_RESERVED));
            }
        }
        out.finish(data_type, nulls)
    }

    /// Drops rows whose length differs from the only one that can pass.
    fn filter(
        &self,
        _: &DataType,
        predicate: &Predicate,
        selection: &mut Selection,
    ) -> Result<bool> {
        let value = predicate
            .only_value()
            .and_then(|value| byte_strings::values(value));
        if let Some(length) = value.map(|value| value[0].len() as u64) {
            let (mut runs, mut same) = (None, [0; VECTOR_LEN / 64]);
            for (vector, mask) in selection.vectors_mut() {
                self.lengths
                    .in_range(vector, length, length, &mut runs, &mut same)?;
                mask.iter_mut()
                    .zip(&same)
                    .for_each(|(mask, same)| *mask &= same);
            }
        }
        Ok(false)
    }
    /// Tests the codes, if that is expected to take less time than decoding the selected rows.
    fn filter_text(&self, automaton: &TextTest<'_>, selection: &mut Selection) -> Result<bool> {
        let Some(table) = self.code_table(automaton, selection) else {
            return Ok(false);
        };
        for (vector, passing) in self.tested(&table, selection)?.iter().enumerate() {
            selection.and_mask(vector, passing);
        }
        Ok(true)
    }
}

/// The number of splits with a selected row.
fn count_splits(selection: &Selection) -> usize {
    let masks = (0..selection.num_vectors()).map(|vector| selection.mask(vector));
    let splits = masks
        .flatten()
        .flat_map(|word| [word as u32, (word >> SPLIT_ROWS) as u32]);
    splits.filter(|rows| *rows != 0).count()
}
