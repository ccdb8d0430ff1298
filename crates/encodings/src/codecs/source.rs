//! The input of encodings.

use std::cell::OnceCell;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, i256};

use crate::byte_strings;
use crate::codecs::fsst::Tables;
use crate::codecs::onpair::Learned;
use crate::compressor::Compressor;
use crate::encoding::Encoding;
use crate::offsets::{self, Offsets};
use crate::wire::ChunkWriter;

/// Minimum rows per entry for a dictionary to be tried.
pub(crate) const ROWS_PER_ENTRY: usize = 2;

/// A dictionary: its entries and codes, encoded.
pub(crate) struct Dictionary {
    pub count: usize,
    pub entries: ChunkWriter,
    pub codes: ChunkWriter,
}

/// An array and its values in the forms that encodings take.
pub(crate) struct Source<'a> {
    pub array: &'a dyn Array,
    pub offsets: Option<Offsets>,
    pub bytes: Option<Vec<&'a [u8]>>,
    /// Decimals with a range too large for offsets.
    pub wide: Option<Vec<i256>>,
    /// The most entries that a dictionary may have.
    pub max_entries: usize,
    /// The size of the column relative to this sample.
    pub scale: f64,
    /// The compressor of strings, if not this thread.
    pub compressor: Option<&'a dyn Compressor>,
    /// The encoding of a dictionary's codes, if not the best one.
    pub codes: Option<Encoding>,
    /// Built on first use; `None` if it has too many entries.
    pub dictionary: OnceCell<Option<Dictionary>>,
    /// Trained on first use, on a sample if there was one.
    tables: OnceCell<Tables>,
    /// Learned on first use, likewise.
    entries: OnceCell<Learned>,
}

impl<'a> Source<'a> {
    pub fn of(array: &'a dyn Array) -> Self {
        let offsets = offsets::of(array);
        Self {
            array,
            bytes: byte_strings::values(array),
            wide: offsets.is_none().then(|| wide(array)).flatten(),
            offsets,
            max_entries: array.len() / ROWS_PER_ENTRY + 1,
            scale: 1.0,
            compressor: None,
            codes: None,
            dictionary: OnceCell::new(),
            tables: OnceCell::new(),
            entries: OnceCell::new(),
        }
    }

    /// Returns true if values are numbers or strings, which can be compared.
    pub fn has_order(&self) -> bool {
        self.offsets.is_some() || self.bytes.is_some() || self.wide.is_some()
    }

    /// Bytes of all strings; `None` if values are no strings.
    pub fn text_bytes(&self) -> Option<usize> {
        let values = self.bytes.as_ref()?;
        Some(values.iter().map(|value| value.len()).sum())
    }

    /// Returns true if all rows are null, or all valid ones equal (null slots of offsets are
    /// filled).
    pub fn is_constant(&self) -> bool {
        if let DataType::Union(_, _) = self.array.data_type() {
            return false;
        }
        if self.array.logical_null_count() == self.array.len() {
            return true;
        }
        if let Some(offsets) = &self.offsets {
            return offsets.values.iter().all(|offset| *offset == 0);
        }
        if let Some(values) = &self.bytes {
            return self.is_same(values);
        }
        self.wide
            .as_ref()
            .is_some_and(|values| self.is_same(values))
    }

    fn is_same<T: PartialEq>(&self, values: &[T]) -> bool {
        let nulls = self.array.nulls();
        let mut valid = (0..values.len()).filter(|row| nulls.is_none_or(|n| n.is_valid(*row)));
        let first = valid.next().map(|row| &values[row]);
        valid.all(|row| Some(&values[row]) == first)
    }

    /// The symbol tables, trained for `values`.
    pub fn tables(&self, values: &[&[u8]]) -> &Tables {
        self.tables.get_or_init(|| Tables::train(values))
    }

    /// The entries, learned from `values`.
    pub fn entries(&self, values: &[&[u8]]) -> &Learned {
        self.entries.get_or_init(|| Learned::of(values, self.scale))
    }

    /// Takes over tables and entries learned from a sample of this source.
    pub fn train_as(&self, sample: Source) {
        if let Some(tables) = sample.tables.into_inner() {
            let _ = self.tables.set(tables);
        }
        if let Some(entries) = sample.entries.into_inner() {
            let _ = self.entries.set(entries);
        }
    }
}

/// The values of decimals of 128 and 256 bits.
fn wide(array: &dyn Array) -> Option<Vec<i256>> {
    Some(match array.data_type() {
        DataType::Decimal128(_, _) => {
            let values = array.as_primitive::<Decimal128Type>().values();
            values.iter().map(|value| i256::from_i128(*value)).collect()
        }
        DataType::Decimal256(_, _) => array.as_primitive::<Decimal256Type>().values().to_vec(),
        _ => return None,
    })
}
