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
use arrow::datatypes::{ArrowNativeType, DataType, i256};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::VECTOR_LEN;
use crate::byte_strings;
use crate::class::{self, Class};
use crate::codecs::codec::{Child, Children, Codec, Test};
use crate::codecs::ffor::FforWriter;
use crate::codecs::layout;
use crate::codecs::rle;
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::sequence_codec::Scratch;
use crate::codecs::source::{Dictionary, Source};
use crate::encoding::Encoding;
use crate::error::{Error, Result, ensure};
use crate::offsets::Offsets;
use crate::residuals::bit_length;
use crate::selection::Selection;
use crate::simd::dispatched;
use crate::size;
use crate::vectors::{for_each_vector, sample};
use crate::wire::{ChunkReader, ChunkWriter};

const PART: &str = "dict";
/// The most entries of a dictionary.
const MAX_ENTRIES: usize = 1 << 18;
/// Vectors of numbers that are sampled before all rows are read.
const SAMPLE_VECTORS: usize = 8;
/// Bits per row in the table that estimates distinct values; at most a part of the second-level cache.
const COUNT_BITS: usize = 2;
const MOST_COUNT_BITS: usize = 1 << 22;
/// Error margin of the estimate.
const COUNT_MARGIN: f64 = 1.02;
/// Strings that repeat this often on average are counted without an estimate first.
const MANY_ROWS: usize = 16;
/// Slots of the cache of recent strings.
const RECENT: usize = 512;
/// Numbers that fill more than this share of their range need no codes, unless codes are a bit shorter.
const DENSE: f64 = 0.7;
/// Minimum runs per entry: a value with a single run is as well stored in it.
const LEAST_USES: f64 = 1.2;
/// Minimum bits per code if rows follow from each other.
const LEAST_BITS: f64 = 0.5;
/// Entries that fit the nearest cache, and rows per run that compensate for access to larger ones.
const NEAR_ENTRIES: usize = 1 << 12;
const FAR_RUN: usize = 4;

/// The distinct values of a column.
struct Distinct {
    /// The code of each row, in order of first appearance.
    codes: Vec<u32>,
    /// The first row of each code.
    firsts: Vec<u32>,
}

impl Distinct {
    /// Finds the distinct values of a source; `None` if there are more than `limit`, or none: all rows are null, or
    /// values have no order. Null rows repeat the code before them.
    fn of(source: &Source, limit: usize) -> Option<Self> {
        let nulls = source.array.nulls();
        if let Some(offsets) = &source.offsets {
            Self::of_ints(&offsets.values, nulls, limit)
        } else if let Some(values) = &source.bytes {
            Self::of_bytes(values, nulls, limit)
        } else {
            Self::of_wide(source.wide.as_ref()?, nulls, limit)
        }
    }

    /// Sorts the distinct values of a source; returns the sorted code of each row.
    fn sort_as(&mut self, source: &Source) -> Vec<u64> {
        if let Some(Offsets { values, .. }) = &source.offsets {
            self.sort(|row| values[row])
        } else if let Some(values) = &source.bytes {
            self.sort(|row| values[row])
        } else {
            let values = source.wide.as_deref().unwrap_or_default();
            self.sort(|row| values[row])
        }
    }

    fn of_ints(values: &[u64], nulls: Option<&NullBuffer>, limit: usize) -> Option<Self> {
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

    fn of_wide(values: &[i256], nulls: Option<&NullBuffer>, limit: usize) -> Option<Self> {
        let mut known = HashMap::new();
        Self::collect(values, nulls, limit, |value, next| {
            *known.entry(*value).or_insert(next)
        })
    }

    fn of_bytes(values: &[&[u8]], nulls: Option<&NullBuffer>, limit: usize) -> Option<Self> {
        let hasher = DefaultHashBuilder::default();
        let mut known: Vec<(u64, ShortKey, &[u8])> = vec![];
        let mut table = HashTable::new();
        // recent results, so that most lookups of few strings take one comparison
        let mut recent = [u32::MAX; RECENT];
        Self::collect(values, nulls, limit, |value, next| {
            let key = ShortKey::of(value);
            let recent = &mut recent[key.slot()];
            if let Some((_, known, _)) = known.get(*recent as usize)
                && *known == key
                && key.is_whole()
            {
                return *recent;
            }
            let hash = match key.is_whole() {
                true => hasher.hash_one(key),
                false => hasher.hash_one(value),
            };
            let is_same = |code: &u32| {
                let (_, known, bytes) = &known[*code as usize];
                *known == key && (key.is_whole() || bytes == value)
            };
            if let Some(code) = table.find(hash, is_same) {
                *recent = *code;
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

    /// Number of distinct values.
    fn len(&self) -> usize {
        self.firsts.len()
    }

    /// As [`sort_as`](Self::sort_as), by the key `value` of a row.
    fn sort<T: Ord>(&mut self, value: impl Fn(usize) -> T) -> Vec<u64> {
        let firsts = self.firsts.iter().zip(0u32..);
        let mut order: Vec<(T, u32, u32)> = firsts
            .map(|(first, code)| (value(*first as usize), *first, code))
            .collect();
        order.sort_unstable();
        let mut rank = vec![0; order.len()];
        for (new, (_, _, old)) in (0u64..).zip(&order) {
            rank[*old as usize] = new;
        }
        self.firsts = order.iter().map(|(_, first, _)| *first).collect();
        self.codes.iter().map(|code| rank[*code as usize]).collect()
    }
}

impl Dictionary {
    /// The dictionary of a source; `None` if it has more distinct values than entries are allowed, or none.
    fn of<'a>(source: &'a Source, children: Children) -> Result<Option<&'a Self>> {
        let limit = source.max_entries.min(MAX_ENTRIES);
        if source.dictionary.get().is_none() {
            let encoded = match Distinct::of(source, limit) {
                Some(distinct) => Some(Self::make(source, distinct, children)?),
                None => None,
            };
            let _ = source.dictionary.set(encoded);
        }
        Ok(source.dictionary.get().and_then(Option::as_ref))
    }

    fn make(source: &Source, mut distinct: Distinct, children: Children) -> Result<Self> {
        let codes = distinct.sort_as(source);
        let count = distinct.len();
        let rows = UInt32Array::from(distinct.firsts);
        let mut entries = ChunkWriter::default();
        children.append_distinct(&take(source.array, &rows, None)?, &mut entries)?;
        Ok(Self {
            count,
            entries,
            codes: sequence::encode(&codes, source.codes),
        })
    }
}

/// The length and both ends of a byte string, which determine strings of up to 16 bytes: cheaper to hash and to compare
/// than bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ShortKey {
    first: u64,
    last: u64,
    len: usize,
}

impl ShortKey {
    fn of(value: &[u8]) -> Self {
        let first = byte_strings::prefix(value);
        let last = value
            .last_chunk()
            .map_or(0, |last| u64::from_le_bytes(*last));
        let len = value.len();
        Self { first, last, len }
    }

    /// The slot among [`RECENT`].
    fn slot(&self) -> usize {
        let word = self.first ^ self.last.rotate_left(32) ^ self.len as u64;
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT
    }

    fn is_whole(&self) -> bool {
        self.len <= 16
    }
}

/// Appends the source; `false` if it has more distinct values than entries are allowed, or none.
pub(crate) fn encode(source: &Source, children: Children, out: &mut ChunkWriter) -> Result<bool> {
    let Some(dictionary) = Dictionary::of(source, children)? else {
        return Ok(false);
    };
    out.u64(dictionary.count as u64);
    out.append(dictionary.entries.clone());
    out.append(dictionary.codes.clone());
    Ok(true)
}

/// The estimated size of a dictionary of a source. `None` if it has too many entries, or is no smaller than `best`
/// bytes.
pub(crate) fn estimate(
    source: &Source,
    children: Children,
    best: Option<u64>,
) -> Result<Option<u64>> {
    let most = source.max_entries.min(MAX_ENTRIES) as f64;
    let rows = source.array.len() as f64;
    let few = match &source.bytes {
        // few strings are counted exactly
        Some(_) => Distinct::of(source, source.array.len() / MANY_ROWS),
        None => None,
    };
    if let Some(distinct) = few {
        let encoded = Dictionary::make(source, distinct, children)?;
        let _ = source.dictionary.set(Some(encoded));
    } else if source.wide.is_none() {
        let largest = |offsets: &Offsets| offsets.values.iter().copied().max().unwrap_or(0);
        let range = source
            .offsets
            .as_ref()
            .map_or(f64::INFINITY, |o| largest(o) as f64 + 1.0);
        // if most of a range of numbers occurs, they are as good as codes
        let are_codes = |entries: f64| {
            let are_short = entries.log2().ceil() < range.log2().ceil();
            best.is_some() && entries > range * DENSE && !are_short
        };
        if let Some(offsets) = &source.offsets
            && are_codes(about_distinct_of(&sample(&offsets.values, SAMPLE_VECTORS)))
        {
            return Ok(None);
        }
        let entries = about_distinct(source);
        if entries > most * COUNT_MARGIN || are_codes(entries) {
            return Ok(None);
        }
        if let (Some(offsets), Some(best)) = (&source.offsets, best) {
            // numbers far from each other take some bits even as entries
            let stored = rle::count_runs(&offsets.values) as f64;
            let bits = entries * (range / entries).log2().max(0.0) + rows * LEAST_BITS;
            if entries * LEAST_USES > stored || bits / 8.0 > best as f64 {
                return Ok(None);
            }
        }
    }
    Ok(Dictionary::of(source, children)?
        .map(|dictionary| (8 + dictionary.entries.len() + dictionary.codes.len()) as u64))
}

/// Returns true if strings in a dictionary of `bytes` bytes are hardly larger than any code per string, so that no
/// other encoding of strings needs to be tried.
pub(crate) fn is_least(source: &Source, bytes: u64) -> bool {
    let (Some(values), Some(Some(dictionary))) = (&source.bytes, source.dictionary.get()) else {
        return false;
    };
    let filled = values.iter().filter(|value| !value.is_empty()).count();
    let bits = bit_length(dictionary.count as u64 - 1).max(1) * filled;
    bytes * 8 * 20 <= bits as u64 * 21
}

/// Returns true if looking up a number takes several times as long as unpacking it: there are more entries than fit the
/// nearest cache, and rows have them in random order.
pub(crate) fn is_far(source: &Source) -> bool {
    let (Some(offsets), Some(Some(dictionary))) = (&source.offsets, source.dictionary.get()) else {
        return false;
    };
    let runs = rle::count_runs(&offsets.values);
    dictionary.count > NEAR_ENTRIES && runs > source.array.len() / FAR_RUN
}

/// The estimated number of distinct values of a source, including nulls.
fn about_distinct(source: &Source) -> f64 {
    match (&source.offsets, &source.bytes) {
        (Some(offsets), _) => about_distinct_of(&offsets.values),
        (_, Some(values)) => about_hashes(values.iter().map(|value| hash_of(value))),
        _ => 0.0,
    }
}

fn about_distinct_of(values: &[u64]) -> f64 {
    about_hashes(values.iter().map(|value| mixed(0, *value)))
}

/// The estimated number of distinct hashes, from the bits of a table that none sets (linear counting: Whang,
/// Vander-Zanden and Taylor, 1990).
fn about_hashes(hashes: impl ExactSizeIterator<Item = u64>) -> f64 {
    let rows = hashes.len();
    let bits = (rows * COUNT_BITS)
        .next_power_of_two()
        .clamp(64, MOST_COUNT_BITS);
    let mut table = vec![0u64; bits / 64];
    for hash in hashes {
        let bit = (hash >> 32) as usize & (bits - 1);
        table[bit / 64] |= 1 << (bit % 64);
    }
    let set: u32 = table.iter().map(|word| word.count_ones()).sum();
    let clear = (bits - set as usize).max(1) as f64 / bits as f64;
    (-(bits as f64) * clear.ln()).min(rows as f64)
}

/// A hash that is equal in every process: files must not differ.
fn hash_of(value: &[u8]) -> u64 {
    let (words, _) = value.as_chunks();
    let hash = words.iter().fold(value.len() as u64, |hash, word| {
        let hash = hash ^ u64::from_le_bytes(*word);
        hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    });
    // the last word may repeat bytes
    let last = value.last_chunk().map(|last| u64::from_le_bytes(*last));
    mixed(hash, last.unwrap_or_else(|| byte_strings::prefix(value)))
}

fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

/// A parsed column.
#[derive(Clone, Debug)]
pub(crate) struct Dict {
    entries: ArrayRef,
    entries_encoding: String,
    longest_string: u64,
    codes: Sequence,
}

impl Codec for Dict {
    fn encoding(&self) -> Encoding {
        Encoding::Dict
    }

    fn describe(&self) -> String {
        format!("dict({}, {})", self.codes.describe(), self.entries_encoding)
    }

    fn layout(&self) -> layout::Values<'_> {
        layout::Values::Dictionary {
            entries: &self.entries,
            codes: &self.codes,
        }
    }

    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        let strings = self.longest_string.saturating_mul(rows as u64);
        size::fixed_bytes(data_type, rows as u64).saturating_add(strings)
    }

    fn decoded_bytes(&self, data_type: &DataType, selection: &Selection, _: u64) -> Result<u64> {
        let fixed = size::fixed_bytes(data_type, selection.count() as u64);
        if self.longest_string == 0 {
            return Ok(fixed);
        }
        let codes = self.select_codes(selection)?;
        let entries = codes.iter().map(|code| *code as usize);
        Ok(fixed.saturating_add(size::string_bytes(&self.entries, entries)))
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        // types without a class may have another alignment than integers of their width
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

    /// Tests the entries if there are fewer than rows; otherwise the caller tests the rows themselves.
    fn filter_with(&self, test: &mut Test<'_>, selection: &mut Selection) -> Result<bool> {
        let pays = self.entries.len() <= selection.count();
        if pays {
            self.filter_entries(&test(&self.entries)?, selection)?;
        }
        Ok(pays)
    }
}

impl Dict {
    /// Rows by the indices of their entries. `None` unless the entries are ascending strings, at least one and at most
    /// as many as a dictionary may have.
    pub fn of_codes(entries: &ArrayRef, numbers: &[u32]) -> Result<Option<Self>> {
        let fits = (1..=MAX_ENTRIES).contains(&entries.len()) && entries.null_count() == 0;
        let values = byte_strings::values(entries).filter(|_| fits);
        if !values.is_some_and(|values| values.is_sorted_by(|a, b| a < b)) {
            return Ok(None);
        }
        let mut codes = FforWriter::default();
        for_each_vector(numbers, |vector, rows| {
            codes.push(&vector.map(u64::from), rows);
        });
        let (codes, _) = codes.parsed(numbers.len())?;
        let dict = Self {
            longest_string: size::longest_string(entries),
            entries_encoding: Encoding::Plain.to_string(),
            entries: ArrayRef::clone(entries),
            codes: Sequence::Ffor(codes),
        };
        dict.check(max(numbers))?;
        Ok(Some(dict))
    }

    pub fn parse<C: Child>(
        reader: &mut ChunkReader,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        // `take` counts rows by their bytes; encoders create no such dictionary
        let has_bytes = data_type != &DataType::FixedSizeBinary(0);
        ensure(has_bytes, PART, || "entries without bytes".into())?;
        let count = reader.count(MAX_ENTRIES.min(len), PART)?;
        let entries = reader.nested(|reader| C::parse_distinct(reader, data_type, count))?;
        let codes = Sequence::parse(reader, len)?;
        let entries_encoding = entries.describe();
        let entries = entries.decode_all()?;
        Ok(Self {
            longest_string: size::longest_string(&entries),
            entries_encoding,
            entries,
            codes,
        })
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

    /// The codes of the selected rows, checked against the entries.
    fn select_codes(&self, selection: &Selection) -> Result<Vec<u32>> {
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
    fn filter_entries(&self, kept: &BooleanArray, selection: &mut Selection) -> Result<()> {
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
    /// Appends the entry of each code; the caller has checked the codes.
    fn append_entries<N: ArrowNativeType>(codes: &[u32], entries: &[N], out: &mut Vec<N>) {
        let entry = |code: &u32| entries.get(*code as usize).copied().unwrap_or_default();
        out.extend(codes.iter().map(entry));
    }
}
