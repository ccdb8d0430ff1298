//! Entries of dictionaries as group keys: their numbers differ between row groups.

use std::collections::HashMap;

use arrow::array::{ArrayRef, UInt64Array, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use vectile_pipeline::{Error, Result};

use crate::table::hashed;

/// The entries of a row group's dictionary.
#[derive(Debug)]
pub(crate) struct Entries {
    array: ArrayRef,
    /// The entries as bytes, which are equal if the entries are.
    rows: Rows,
    /// The hash of each entry, which is the same in all row groups.
    hashes: Vec<u64>,
}

impl Entries {
    /// Hashes the entries.
    pub fn new(array: ArrayRef) -> Result<Self> {
        let field = SortField::new(array.data_type().clone());
        let converter = RowConverter::new(vec![field]).map_err(of_arrow)?;
        let rows = converter.convert_columns(std::slice::from_ref(&array));
        let rows = rows.map_err(of_arrow)?;
        let hashes = rows.iter().map(|row| hash_of(row.as_ref())).collect();
        Ok(Self {
            array,
            rows,
            hashes,
        })
    }

    /// The hash of each entry.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Bytes of memory, without the entries themselves.
    pub fn bytes(&self) -> usize {
        self.rows.size() + size_of_val(&self.hashes[..])
    }

    /// The type of the entries.
    pub fn data_type(&self) -> &DataType {
        self.array.data_type()
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().fold(bytes.len() as u64, |hash, word| {
        hashed(hash, u64::from_le_bytes(*word))
    });
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hashed(of_words, u64::from_le_bytes(last))
}

/// The distinct entries of all row groups, numbered in the order in which they came.
#[derive(Debug)]
pub(crate) struct AllEntries {
    of_type: DataType,
    numbers: HashMap<Box<[u8]>, u64>,
    /// The entries: those that each row group has added.
    arrays: Vec<ArrayRef>,
    hashes: Vec<u64>,
    /// Estimated bytes.
    bytes: usize,
}

/// Estimated bytes of an entry in a map, without its own.
const BYTES_PER_ENTRY: usize = 64;

impl AllEntries {
    /// No entries.
    pub fn new(of_type: &DataType) -> Self {
        Self {
            of_type: of_type.clone(),
            numbers: HashMap::new(),
            arrays: Vec::new(),
            hashes: Vec::new(),
            bytes: 0,
        }
    }

    /// Replaces the numbers of a row group's entries by those of all. `words` has those of some groups at a time;
    /// those with bit `bit` of the nulls beside them stay as they are.
    pub fn replace<'w>(
        &mut self,
        entries: &Entries,
        words: impl Iterator<Item = (&'w mut Vec<u64>, &'w [u64])>,
        bit: usize,
    ) -> Result<()> {
        let mut of_codes = vec![None; entries.rows.num_rows()];
        let mut added = Vec::new();
        for (words, nulls) in words {
            for (group, word) in words.iter_mut().enumerate() {
                let is_null = nulls.get(group).is_some_and(|nulls| nulls >> bit & 1 == 1);
                let at = *word as usize;
                let Some(code) = of_codes.get_mut(at).filter(|_| !is_null) else {
                    continue;
                };
                *word = *code.get_or_insert_with(|| {
                    let bytes = entries.rows.row(at);
                    let next = self.numbers.len() as u64;
                    if let Some(known) = self.numbers.get(bytes.as_ref()) {
                        return *known;
                    }
                    self.numbers.insert(bytes.as_ref().into(), next);
                    self.hashes.push(entries.hashes[at]);
                    self.bytes += 2 * bytes.as_ref().len() + BYTES_PER_ENTRY;
                    added.push(*word);
                    next
                });
            }
        }
        if !added.is_empty() {
            let added = take(&entries.array, &UInt64Array::from(added), None);
            self.arrays.push(added.map_err(of_arrow)?);
        }
        Ok(())
    }

    /// The hash of each entry.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The type of the entries.
    pub fn data_type(&self) -> &DataType {
        &self.of_type
    }

    /// The entries, by their numbers.
    pub fn array(&self) -> Result<ArrayRef> {
        let arrays: Vec<_> = self.arrays.iter().map(AsRef::as_ref).collect();
        match arrays.is_empty() {
            true => Ok(new_empty_array(&self.of_type)),
            false => concat(&arrays).map_err(of_arrow),
        }
    }

    /// Estimated bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

pub(crate) fn of_arrow(error: arrow::error::ArrowError) -> Error {
    vectile_encodings::Error::from(error).into()
}
