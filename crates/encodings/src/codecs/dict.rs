//! `dict`: codes into the sorted distinct values, for columns of few values. Loses to `fsst` or
//! `ffor` when most values are distinct.
//!
//! ```text
//! header   u64 number of entries, at most 2^18
//! then     the entries, ascending, as a column; the code of each row as an integer sequence
//! ```
//!
//! Codes keep the order of the values, so a range of values is a range of codes. Null rows repeat
//! the code of a neighbour.

use std::hash::BuildHasher;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::VECTOR_LEN;
use crate::class::{self, Class};
use crate::codecs::layout;
use crate::codecs::sequence::SequenceView;
use crate::codecs::sequence::{self, Scratch, Sequence};
use crate::column::{self, Column};
use crate::error::{Error, Result, ensure};
use crate::selection::Selection;
use crate::simd::dispatched;
use crate::size;
use crate::wire::{ChunkReader, ChunkWriter};

const PART: &str = "dict";
/// The most entries of a dictionary.
pub(crate) const MAX_ENTRIES: usize = 1 << 18;

/// What the rows of a column have in common.
pub(crate) struct Distinct {
    /// The code of each row, in order of first appearance.
    codes: Vec<u32>,
    /// The first row of each code.
    firsts: Vec<u32>,
}

impl Distinct {
    /// `None` if there are more than `limit` values, or none: all rows are null. Null rows repeat the
    /// code before them.
    pub fn of_ints(values: &[u64], nulls: Option<&NullBuffer>, limit: usize) -> Option<Self> {
        let max = values.iter().copied().max()?;
        if max < 2 * values.len() as u64 {
            let mut known = vec![u32::MAX; max as usize + 1];
            return Self::collect(values, nulls, limit, |value, next| {
                let code = &mut known[*value as usize];
                if *code == u32::MAX {
                    *code = next;
                }
                *code
            });
        }
        let mut known = HashMap::new();
        Self::collect(values, nulls, limit, |value, next| {
            *known.entry(*value).or_insert(next)
        })
    }

    /// As [`Distinct::of_ints`].
    pub fn of_bytes(values: &[&[u8]], nulls: Option<&NullBuffer>, limit: usize) -> Option<Self> {
        let hasher = DefaultHashBuilder::default();
        let mut known: Vec<(u64, ShortKey, &[u8])> = vec![];
        let mut table = HashTable::new();
        Self::collect(values, nulls, limit, |value, next| {
            let key = ShortKey::of(value);
            let hash = match key.is_whole() {
                true => hasher.hash_one(key),
                false => hasher.hash_one(value),
            };
            let is_same = |code: &u32| {
                let (_, known, bytes) = &known[*code as usize];
                *known == key && (key.is_whole() || bytes == value)
            };
            if let Some(code) = table.find(hash, is_same) {
                return *code;
            }
            table.insert_unique(hash, next, |code| known[*code as usize].0);
            known.push((hash, key, value));
            next
        })
    }

    fn collect<T>(
        values: &[T],
        nulls: Option<&NullBuffer>,
        limit: usize,
        mut code_of: impl FnMut(&T, u32) -> u32,
    ) -> Option<Self> {
        let mut firsts = vec![];
        let mut codes = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                codes.push(codes.last().copied().unwrap_or(0));
                continue;
            }
            let next = firsts.len() as u32;
            let code = code_of(value, next);
            if code == next {
                if firsts.len() == limit.min(MAX_ENTRIES) {
                    return None;
                }
                firsts.push(row as u32);
            }
            codes.push(code);
        }
        (!firsts.is_empty()).then_some(Self { codes, firsts })
    }

    /// Number of distinct values in the first `rows` rows. Only before [`Distinct::sort`].
    pub fn len_of_first(&self, rows: usize) -> usize {
        let codes = self.codes.get(..rows).unwrap_or(&self.codes);
        codes.iter().max().map_or(0, |max| *max as usize + 1)
    }

    /// Number of distinct values.
    pub fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Renumbers the codes in the order of the values, which `compare` gives for two rows.
    pub fn sort(&mut self, compare: impl Fn(u32, u32) -> std::cmp::Ordering) {
        let mut order: Vec<u32> = (0..self.firsts.len() as u32).collect();
        order.sort_unstable_by(|a, b| compare(self.firsts[*a as usize], self.firsts[*b as usize]));
        let mut rank = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            rank[*old as usize] = new as u32;
        }
        self.firsts = order.iter().map(|old| self.firsts[*old as usize]).collect();
        for code in &mut self.codes {
            *code = rank[*code as usize];
        }
    }

    /// The codes as an integer sequence.
    pub fn encode_codes(&self) -> ChunkWriter {
        let codes: Vec<u64> = self.codes.iter().map(|code| u64::from(*code)).collect();
        sequence::encode(&codes, 0)
    }
}

/// The length and both ends of a byte string, which is all of one of up to 16 bytes: cheaper to
/// hash and to compare than bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ShortKey {
    first: u64,
    last: u64,
    len: usize,
}

impl ShortKey {
    fn of(value: &[u8]) -> Self {
        let (first, last) = match (value.first_chunk(), value.last_chunk()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => (
                value
                    .iter()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte)),
                0,
            ),
        };
        let len = value.len();
        Self { first, last, len }
    }

    fn is_whole(&self) -> bool {
        self.len <= 16
    }
}

/// Appends `array`, whose sorted distinct values are `distinct`, with encoded `codes`.
pub(crate) fn encode(
    array: &dyn Array,
    distinct: &Distinct,
    codes: ChunkWriter,
    out: &mut ChunkWriter,
) -> Result<()> {
    let entries = take(array, &UInt32Array::from(distinct.firsts.clone()), None)?;
    out.u64(distinct.len() as u64);
    column::encode_entries(&entries, out)?;
    out.append(codes);
    Ok(())
}

/// A parsed column.
#[derive(Clone, Debug)]
pub(crate) struct Dict {
    entries: ArrayRef,
    entries_encoding: String,
    longest_string: u64,
    codes: Sequence,
}

impl Dict {
    pub fn parse(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self> {
        // `take` counts rows by their bytes; encoders make no such dictionary
        let has_bytes = data_type != &DataType::FixedSizeBinary(0);
        ensure(has_bytes, PART, || "entries without bytes".into())?;
        let count = reader.count(MAX_ENTRIES.min(len), PART)?;
        let entries = reader.nested(|reader| Column::parse_values(reader, data_type, count))?;
        let codes = Sequence::parse(reader, len)?;
        let entries_encoding = entries.describe();
        let entries = entries.decode(0..count)?;
        Ok(Self {
            longest_string: size::longest_string(&entries),
            entries_encoding,
            entries,
            codes,
        })
    }

    pub fn describe(&self) -> String {
        format!("dict({}, {})", self.codes.describe(), self.entries_encoding)
    }

    pub fn layout(&self) -> layout::Values<'_> {
        layout::Values::Dictionary {
            entries: &self.entries,
            codes: SequenceView::new(&self.codes),
        }
    }

    /// Bytes of the longest entry, if rows have copies of it.
    pub fn longest_string(&self) -> u64 {
        self.longest_string
    }

    /// Bytes of the selected rows' copies of their entries.
    pub fn string_bytes(&self, selection: &Selection) -> Result<u64> {
        if self.longest_string == 0 {
            return Ok(0);
        }
        let codes = self.select_codes(selection)?;
        let entries = codes.iter().map(|code| *code as usize);
        Ok(size::string_bytes(&self.entries, entries))
    }

    pub fn entries(&self) -> &ArrayRef {
        &self.entries
    }

    pub fn select(&self, selection: &Selection, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        // types without a class may be aligned otherwise than integers of their width
        let data_type = self.entries.data_type();
        match Class::of(data_type).and_then(|_| data_type.primitive_width()) {
            Some(1) => return self.gather::<u8>(selection, nulls),
            Some(2) => return self.gather::<u16>(selection, nulls),
            Some(4) => return self.gather::<u32>(selection, nulls),
            Some(8) => return self.gather::<u64>(selection, nulls),
            Some(16) => return self.gather::<i128>(selection, nulls),
            _ => {}
        }
        let codes = self.select_codes(selection)?;
        Ok(take(
            &self.entries,
            &UInt32Array::new(codes.into(), nulls),
            None,
        )?)
    }

    /// The entries of the selected rows, for values of the width of `N`.
    fn gather<N: ArrowNativeType>(
        &self,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let data = self.entries.to_data();
        let entries = class::natives::<N>(&data);
        let rows = selection.count();
        let mut out = Vec::with_capacity(rows);
        let mut codes = Vec::with_capacity(VECTOR_LEN);
        let mut scratch = Scratch::default();
        for selected in selection.vectors() {
            codes.clear();
            self.codes.select(&selected, 0, &mut scratch, &mut codes)?;
            self.check(max(&codes))?;
            append_entries(&codes, entries, &mut out);
        }
        class::fixed_width_array(self.entries.data_type(), rows, Buffer::from_vec(out), nulls)
    }

    fn check(&self, max: u32) -> Result<()> {
        let entries = self.entries.len();
        ensure((max as usize) < entries, PART, || {
            format!("code {max} of {entries} entries")
        })
    }

    /// The codes of the selected rows, each that of an entry.
    pub fn select_codes(&self, selection: &Selection) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(selection.count());
        let mut scratch = Scratch::default();
        for selected in selection.vectors() {
            self.codes.select(&selected, 0, &mut scratch, &mut out)?;
        }
        if !out.is_empty() {
            self.check(max(&out))?;
        }
        Ok(out)
    }

    /// Keeps the selected rows whose entry is `kept`; null counts as false.
    pub fn filter(&self, kept: &BooleanArray, selection: &mut Selection) -> Result<()> {
        if kept.len() != self.entries.len() {
            let reason = format!(
                "a test gave {} results for {} entries",
                kept.len(),
                self.entries.len()
            );
            return Err(Error::Unsupported(reason));
        }
        let codes: Vec<u64> = (0..kept.len() as u64)
            .filter(|code| kept.is_valid(*code as usize) && kept.value(*code as usize))
            .collect();
        if codes.is_empty() {
            *selection = Selection::none(selection.first_vector(), selection.rows());
            return Ok(());
        }
        self.codes.filter_in(&codes, false, selection)
    }
}

dispatched! {
    fn max(codes: &[u32]) -> u32 {
        codes.iter().copied().max().unwrap_or(0)
    }
}

dispatched! {
    /// Appends the entry of each code; the codes have been checked.
    fn append_entries<N: ArrowNativeType>(codes: &[u32], entries: &[N], out: &mut Vec<N>) {
        let entry = |code: &u32| entries.get(*code as usize).copied().unwrap_or_default();
        out.extend(codes.iter().map(entry));
    }
}
