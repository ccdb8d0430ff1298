//! Lookups in the build tables of joins: codes of keys, and values of codes.

use std::cell::Cell;
use std::hint::black_box;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use vectile_encodings::layout::SequenceReader;
use vectile_encodings::{VECTOR_LEN, dispatched};
use vectile_pipeline::join::{CodeTable, DenseCodes, HashedKeys, HostKeys, PerfectHashTable};
use vectile_pipeline::{Bounds, Domain, Error, KeyTable, PayloadColumn, Result, Type};

use crate::batch::Batch;
use crate::gather::{ToI64, gather, replace};
use crate::reader::{Reader, widened};
use crate::vector::{Mask, Values, Vector, both, count, for_each_row, mask_of, mask_of_pairs};

/// Hash tables of more slots are not in the second cache of a core.
const CACHED_SLOTS: usize = 1 << 16;

/// If at most this many rows of a vector matter, keys are looked up one by one.
const FEW_ROWS: usize = VECTOR_LEN / 8;

/// Looks the keys of the rows of `mask` up in a table. Keys without a code, and null ones, become null. `is_filtered` says
/// if most keys of hash tables are expected to have none; it is kept up to date.
pub(crate) fn found(
    keys: &Vector,
    table: &KeyTable,
    is_filtered: &Cell<bool>,
    mask: &Mask,
    out: &mut Vector,
) -> Result<()> {
    let (Values::Int(of), Values::Int(codes)) = (&keys.values, &mut out.values) else {
        return Err(Error::Internal("keys of another kind".into()));
    };
    match table.host()? {
        HostKeys::Hashed(table, of_slots) if count(mask) > FEW_ROWS => {
            let mask = both(Some(mask), keys.valid.as_ref()).unwrap_or(*mask);
            find_hashed(table, of_slots, is_filtered, of, &mask, codes);
        }
        HostKeys::Dense(dense) if count(mask) > FEW_ROWS => match &dense.codes {
            DenseCodes::Stored(table) => find_stored(dense, table, of, codes),
            DenseCodes::Ranks(ranks) => find_ranks(dense, ranks, of, codes),
        },
        table => {
            codes.fill(-1);
            for_each_row(mask, |row| {
                codes[row] = table.code(of[row]).map_or(-1, i64::from);
            });
        }
    }
    out.valid = both(Some(&has_code(codes)), keys.valid.as_ref());
    Ok(())
}

/// Sets codes to those of keys of the rows of `mask`, or to -1.
fn find_hashed(
    table: &HashedKeys,
    of_slots: &CodeTable,
    is_filtered: &Cell<bool>,
    keys: &[i64; VECTOR_LEN],
    mask: &Mask,
    codes: &mut [i64; VECTOR_LEN],
) {
    let mut hashes = [0; VECTOR_LEN];
    HashedKeys::hashes(keys, &mut hashes);
    let mut left = *mask;
    if let Some(filter) = table.filter().filter(|_| is_filtered.get()) {
        bits_of_hashes(filter.shift(), &hashes, codes);
        let bits = *codes;
        words_of_bits(0, &bits, codes);
        replace(filter.words(), 0, codes);
        pick_bits(0, &bits, codes);
        let passing = has_code(codes);
        left = std::array::from_fn(|word| mask[word] & passing[word]);
        is_filtered.set(2 * count(&left) < count(mask));
    }
    if table.slots().len() > CACHED_SLOTS {
        black_box(table.touch(&hashes, &left));
    }
    codes.fill(-1);
    for_each_row(&left, |row| {
        let slot = table.slot_index_of_hash(keys[row], hashes[row]);
        codes[row] = slot.map_or(-1, |slot| of_slots.get(slot).into());
    });
}

dispatched! {
    /// The index of the bit that a filter has for each hash.
    fn bits_of_hashes(shift: u32, hashes: &[u64; VECTOR_LEN], bits: &mut [i64; VECTOR_LEN]) {
        let pairs = bits.iter_mut().zip(hashes);
        pairs.for_each(|(bit, hash)| *bit = (hash >> shift) as i64);
    }
}

fn find_stored(
    dense: &PerfectHashTable,
    table: &CodeTable,
    keys: &[i64; VECTOR_LEN],
    codes: &mut [i64; VECTOR_LEN],
) {
    match table {
        CodeTable::One => find_bits(dense, keys, codes),
        CodeTable::U8(table) => find_codes(dense.first, table, u8::MAX.into(), keys, codes),
        CodeTable::U16(table) => find_codes(dense.first, table, u16::MAX.into(), keys, codes),
        CodeTable::U32(table) => find_codes(dense.first, table, u32::MAX.into(), keys, codes),
    }
}

/// Sets codes to the number of smaller keys, of which there are `ranks` before each word of bits, or to -1.
fn find_ranks(
    dense: &PerfectHashTable,
    ranks: &[u32],
    keys: &[i64; VECTOR_LEN],
    codes: &mut [i64; VECTOR_LEN],
) {
    words_of_bits(dense.first, keys, codes);
    let mut words = *codes;
    // bits behind the last key are zero
    replace(&dense.bits, 0, &mut words);
    replace(ranks, 0, codes);
    pick_ranks(dense.first, keys, &words, codes);
}

dispatched! {
    /// Adds to ranks the set bits of words below that of the key; sets them to -1 if the bit of the key is not set.
    fn pick_ranks(first: i64, keys: &[i64; VECTOR_LEN], words: &[i64; VECTOR_LEN], ranks: &mut [i64; VECTOR_LEN]) {
        for (rank, (key, word)) in ranks.iter_mut().zip(keys.iter().zip(words)) {
            let bit = key.wrapping_sub(first) & 31;
            let smaller = (*word as u32 & ((1u32 << bit) - 1)).count_ones();
            let is_missing = (*word >> bit & 1) - 1;
            *rank = (*rank + i64::from(smaller)) | is_missing;
        }
    }
}

/// Sets codes to 0 for keys whose bit is set, and to -1 for others.
fn find_bits(dense: &PerfectHashTable, keys: &[i64; VECTOR_LEN], codes: &mut [i64; VECTOR_LEN]) {
    words_of_bits(dense.first, keys, codes);
    // bits behind the last key are zero
    replace(&dense.bits, 0, codes);
    pick_bits(dense.first, keys, codes);
}

dispatched! {
    /// The index of the word that has the bit of each key.
    fn words_of_bits(first: i64, keys: &[i64; VECTOR_LEN], words: &mut [i64; VECTOR_LEN]) {
        let pairs = words.iter_mut().zip(keys);
        pairs.for_each(|(word, key)| *word = (key.wrapping_sub(first) as u64 >> 5) as i64);
    }
}

dispatched! {
    /// Replaces words by 0 if the bit of the key is set in them, else by -1.
    fn pick_bits(first: i64, keys: &[i64; VECTOR_LEN], words: &mut [i64; VECTOR_LEN]) {
        let pairs = words.iter_mut().zip(keys);
        pairs.for_each(|(word, key)| *word = (*word >> (key.wrapping_sub(first) & 31) & 1) - 1);
    }
}

/// Sets codes to those in a table, where `missing` stands for none, or to -1.
fn find_codes<T: Copy + ToI64>(
    first: i64,
    table: &[T],
    missing: i64,
    keys: &[i64; VECTOR_LEN],
    codes: &mut [i64; VECTOR_LEN],
) {
    gather(table, first, keys, missing, codes);
    replace_missing(missing, codes);
}

dispatched! {
    fn replace_missing(missing: i64, codes: &mut [i64; VECTOR_LEN]) {
        for code in codes {
            *code = match *code == missing {
                true => -1,
                false => *code,
            };
        }
    }
}

dispatched! {
    fn has_code(codes: &[i64; VECTOR_LEN]) -> Mask {
        mask_of(codes, |code| code >= 0)
    }
}

/// The bits of codes. Codes without a bit have arbitrary ones.
fn bits_of(bits: &BooleanBuffer, codes: &[i64; VECTOR_LEN]) -> Mask {
    let first = bits.offset() as i64;
    let mut bytes = [0; VECTOR_LEN];
    bytes_of_bits(first, codes, &mut bytes);
    replace(bits.values(), 0, &mut bytes);
    is_set(first, codes, &bytes)
}

dispatched! {
    /// The index of the byte that has the bit of each code.
    fn bytes_of_bits(first: i64, codes: &[i64; VECTOR_LEN], bytes: &mut [i64; VECTOR_LEN]) {
        let pairs = bytes.iter_mut().zip(codes);
        pairs.for_each(|(byte, code)| *byte = code.wrapping_add(first) >> 3);
    }
}

dispatched! {
    fn is_set(first: i64, codes: &[i64; VECTOR_LEN], bytes: &[i64; VECTOR_LEN]) -> Mask {
        mask_of_pairs(codes, bytes, |code, byte| byte >> (code.wrapping_add(first) & 7) & 1 == 1)
    }
}

/// The codes that the values of a column of text have in a table.
pub(crate) struct TextKeys<'a> {
    reader: &'a Reader<'a>,
    of: TextCodes<'a>,
}

enum TextCodes<'a> {
    /// A code for each entry of a dictionary, -1 for entries without one.
    Entries(Option<SequenceReader<'a>>, Vec<i64>),
    Table(&'a KeyTable),
}

impl<'a> TextKeys<'a> {
    /// Looks the entries of a dictionary up, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values of another type than the table's keys.
    pub fn new(reader: &'a Reader<'a>, table: &'a KeyTable) -> Result<Self> {
        let of = match reader.dictionary() {
            Ok((entries, codes)) => {
                let found = table.codes_of(&entries)?.into_iter();
                let found = found.map(|code| code.map_or(-1, i64::from));
                TextCodes::Entries(codes, found.collect())
            }
            Err(_) => TextCodes::Table(table),
        };
        Ok(Self { reader, of })
    }

    /// Sets the codes of a batch's values, null for those without one.
    pub fn find(&self, batch: Batch<'_>, out: &mut Vector) -> Result<()> {
        let Values::Int(codes) = &mut out.values else {
            return Err(Error::Internal("codes of another kind".into()));
        };
        match &self.of {
            TextCodes::Entries(sequence, of_entries) => {
                match sequence {
                    Some(sequence) => batch.integers(sequence, codes)?,
                    None => codes.fill(0),
                }
                // entries of nulls are arbitrary
                replace(of_entries, -1, codes);
            }
            TextCodes::Table(table) => {
                let found = table.codes_of(&self.reader.decoded(batch)?)?;
                codes.fill(-1);
                let pairs = codes.iter_mut().zip(found);
                pairs.for_each(|(code, found)| *code = found.map_or(-1, i64::from));
            }
        }
        let valid = self.reader.valid(batch);
        out.valid = both(Some(&has_code(codes)), valid.as_ref());
        Ok(())
    }
}

/// The values of a payload column.
pub(crate) struct Payload {
    values: ArrayRef,
    domain: Domain,
}

impl Payload {
    /// The values of `column`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values without a machine type; errors of computing them.
    pub fn new(column: &PayloadColumn) -> Result<Self> {
        let values = column.values()?;
        let data_type = values.data_type();
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        let of = Type::of(data_type).ok_or_else(unsupported)?;
        let bounds = match (of, column.bounds()) {
            (Type::Bool | Type::F32 | Type::F64, _) | (_, None) => Bounds::of(of),
            (_, Some((low, high))) => Bounds(low, high),
        };
        let domain = Domain { of, bounds };
        Ok(Self { values, domain })
    }

    /// Type and bounds of the values.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// True if some value is null.
    pub fn is_nullable(&self) -> bool {
        self.values.null_count() > 0
    }

    /// The values of codes. Those of null codes are null.
    pub fn read(&self, codes: &Vector, out: &mut Vector) -> Result<()> {
        let Values::Int(of) = &codes.values else {
            return Err(Error::Internal("codes of another kind".into()));
        };
        out.valid = codes.valid;
        if let Some(nulls) = self.values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let is_valid =
                |code: i64| (code as usize) < nulls.len() && nulls.is_valid(code as usize);
            out.valid = both(out.valid.as_ref(), Some(&mask_of(of, is_valid)));
        }
        self.gather(of, &mut out.values)
    }

    fn gather(&self, codes: &[i64; VECTOR_LEN], out: &mut Values) -> Result<()> {
        let values = &self.values;
        if let Values::Bool(mask) = out {
            let bits = values
                .as_boolean_opt()
                .ok_or_else(|| mismatch(values.data_type()))?;
            *mask = bits_of(bits.values(), codes);
            return Ok(());
        }
        let data = values.to_data();
        let len = values.len();
        // rows without a code have arbitrary values
        macro_rules! integers {
            ($out:expr, $native:ty) => {{
                let values = data.buffer::<$native>(0).get(..len);
                let values = values.ok_or_else(|| mismatch(self.values.data_type()))?;
                gather(values, 0, codes, 0, $out);
            }};
        }
        macro_rules! gather {
            ($native:ty, $out:expr, $of:expr) => {{
                let values = data.buffer::<$native>(0).get(..len);
                let values = values.ok_or_else(|| mismatch(self.values.data_type()))?;
                let pairs = $out.iter_mut().zip(codes);
                pairs.for_each(|(out, code)| {
                    *out = $of(values.get(*code as usize).copied().unwrap_or_default());
                });
            }};
        }
        match out {
            Values::Int(out) => match self.domain.of {
                Type::I8 => integers!(out, i8),
                Type::I16 => integers!(out, i16),
                Type::I32 => integers!(out, i32),
                Type::I64 => integers!(out, i64),
                Type::U8 => integers!(out, u8),
                Type::U16 => integers!(out, u16),
                Type::U32 => integers!(out, u32),
                Type::U64 => integers!(out, u64),
                Type::I128 => gather!(i128, out, |x| x as i64),
                _ => return Err(mismatch(self.values.data_type())),
            },
            Values::Wide(out) => match self.domain.of {
                Type::U64 => gather!(u64, out, i128::from),
                Type::I128 => gather!(i128, out, |x| x),
                _ => return Err(mismatch(self.values.data_type())),
            },
            Values::Float(out) => match self.domain.of {
                Type::F32 => gather!(f32, out, widened),
                Type::F64 => gather!(f64, out, |x| x),
                _ => return Err(mismatch(self.values.data_type())),
            },
            Values::Bool(_) => return Err(mismatch(self.values.data_type())),
        }
        Ok(())
    }
}

fn mismatch(data_type: &DataType) -> Error {
    Error::Internal(format!("a payload of type {data_type}"))
}
