//! What is encoded.

use std::cell::OnceCell;

use arrow::array::Array;
use arrow::datatypes::DataType;

use crate::byte_strings;
use crate::codecs::fsst::Tables;
use crate::codecs::onpair::Learned;
use crate::compressor::Compressor;
use crate::offsets::{self, Offsets};

/// A dictionary of more distinct values than one for this many rows is not tried.
pub(crate) const ROWS_PER_ENTRY: usize = 2;

/// An array and its values in the forms that encodings take.
pub(crate) struct Source<'a> {
    pub array: &'a dyn Array,
    pub offsets: Option<Offsets>,
    pub bytes: Option<Vec<&'a [u8]>>,
    /// The most entries that a dictionary may have.
    pub max_entries: usize,
    /// How many times larger the column is that this is a sample of.
    pub scale: f64,
    /// Who compresses strings, if not this thread.
    pub compressor: Option<&'a dyn Compressor>,
    /// Trained when first needed, on a sample if there was one.
    tables: OnceCell<Tables>,
    /// Learned likewise.
    entries: OnceCell<Learned>,
}

impl<'a> Source<'a> {
    pub fn of(array: &'a dyn Array) -> Self {
        Self {
            array,
            offsets: offsets::of(array),
            bytes: byte_strings::values(array),
            max_entries: array.len() / ROWS_PER_ENTRY + 1,
            scale: 1.0,
            compressor: None,
            tables: OnceCell::new(),
            entries: OnceCell::new(),
        }
    }

    /// Whether values are numbers or strings, which can be compared.
    pub fn has_order(&self) -> bool {
        self.offsets.is_some() || self.bytes.is_some()
    }

    /// Whether all rows are null, or all valid ones alike (offsets are filled where null).
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
            let nulls = self.array.nulls();
            let mut valid = (0..values.len()).filter(|row| nulls.is_none_or(|n| n.is_valid(*row)));
            let first = valid.next().map(|row| values[row]);
            return valid.all(|row| Some(values[row]) == first);
        }
        false
    }

    /// The symbol tables for its `values`.
    pub fn tables(&self, values: &[&[u8]]) -> &Tables {
        self.tables.get_or_init(|| Tables::train(values))
    }

    /// The entries for its `values`.
    pub fn entries(&self, values: &[&[u8]]) -> &Learned {
        self.entries.get_or_init(|| Learned::of(values, self.scale))
    }

    /// Takes over what was learned of a sample of this source.
    pub fn train_as(&self, sample: Source) {
        if let Some(tables) = sample.tables.into_inner() {
            let _ = self.tables.set(tables);
        }
        if let Some(entries) = sample.entries.into_inner() {
            let _ = self.entries.set(entries);
        }
    }
}
