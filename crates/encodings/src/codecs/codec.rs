//! What a column asks of every encoding, and encodings of the columns within them.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::codecs::layout::Values;
use crate::compressor::Compressor;
use crate::encoding::Encoding;
use crate::error::Result;
use crate::predicate::Predicate;
use crate::selection::Selection;
use crate::size;
use crate::wire::{ChunkReader, ChunkWriter};

/// A test of values, with an entry for each; null counts as false.
pub(crate) type Test<'a> = dyn FnMut(&ArrayRef) -> Result<BooleanArray> + 'a;

/// Parsed values of a column of `data_type`. A selection lies within the column's rows.
pub(crate) trait Codec {
    fn encoding(&self) -> Encoding;

    /// The encodings from the outermost in.
    fn describe(&self) -> String {
        self.encoding().to_string()
    }

    /// What is in which buffer.
    fn layout(&self) -> Values<'_> {
        Values::Other
    }

    /// A bound on the bytes of any `rows` rows, found without decoding anything.
    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        size::fixed_bytes(data_type, rows as u64)
    }

    /// About the bytes of the selected rows, or more than `limit`.
    fn decoded_bytes(
        &self,
        data_type: &DataType,
        selection: &Selection,
        _limit: u64,
    ) -> Result<u64> {
        Ok(self.most_bytes(data_type, selection.count()))
    }

    /// The selected rows, of which `nulls` are null.
    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef>;

    /// Drops selected rows, none of which is null, that fail `predicate`. Returns whether the others
    /// pass; if not, they are still to be tested.
    fn filter(&self, _: &DataType, _: &Predicate, _: &mut Selection) -> Result<bool> {
        Ok(false)
    }

    /// As [`Codec::filter`], by a test of the values that rows have in common.
    fn filter_with(&self, _: &mut Test<'_>, _: &mut Selection) -> Result<bool> {
        Ok(false)
    }

    /// Returns true if values may be null that the column's validity has as valid.
    fn has_own_nulls(&self) -> bool {
        false
    }
}

/// A parsed column within a column.
pub(crate) trait Child: Sized {
    fn parse(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self>;

    /// Parses what constants and dictionaries are made of: numbers or strings that are stored as
    /// neither.
    fn parse_distinct(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self>;

    fn rows(&self) -> usize;
    fn describe(&self) -> String;
    fn most_bytes(&self, rows: usize) -> u64;
    fn decoded_bytes(&self, selection: &Selection) -> Result<u64>;
    fn select(&self, selection: &Selection) -> Result<ArrayRef>;

    /// All rows.
    fn decode_all(&self) -> Result<ArrayRef> {
        self.select(&Selection::all(0, self.rows()))
    }
}

/// How columns within a column are appended: in encodings of their own choice.
#[derive(Clone, Copy)]
pub(crate) struct Children<'a> {
    pub encode: Append,
    pub encode_distinct: Append,
    /// Who compresses strings, if not this thread.
    pub compressor: Option<&'a dyn Compressor>,
}

/// Appends a column.
pub(crate) type Append = fn(&dyn Array, Option<&dyn Compressor>, &mut ChunkWriter) -> Result<()>;

impl Children<'_> {
    /// Appends a child of a nested type.
    pub fn append(&self, child: &dyn Array, out: &mut ChunkWriter) -> Result<()> {
        (self.encode)(child, self.compressor, out)
    }

    /// Appends the entries of a dictionary.
    pub fn append_distinct(&self, entries: &dyn Array, out: &mut ChunkWriter) -> Result<()> {
        (self.encode_distinct)(entries, self.compressor, out)
    }
}
