//! The interface of every encoding to a column, and encodings of the columns within them.

use std::sync::Arc;

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
use crate::text::Automaton;
use crate::wire::{ChunkReader, ChunkWriter};

/// A test of values, with an entry for each; null counts as false.
pub(crate) type Test<'a> = dyn FnMut(&ArrayRef) -> Result<BooleanArray> + 'a;

/// Makes the automaton that passes the same strings as a test; `None` if there is none.
pub(crate) type TextTest<'a> = dyn Fn() -> Option<Arc<Automaton>> + 'a;

/// Parsed values of a column of `data_type`. A selection lies within the column's rows.
pub(crate) trait Codec {
    fn encoding(&self) -> Encoding;

    /// The names of the encodings, the outermost first.
    fn describe(&self) -> String {
        self.encoding().to_string()
    }

    /// The buffers, by content.
    fn layout(&self) -> Values<'_> {
        Values::Other
    }

    /// An upper bound on the bytes of any `rows` rows, computed without decoding.
    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        size::fixed_bytes(data_type, rows as u64)
    }

    /// The estimated bytes of the selected rows, or more than `limit`.
    fn decoded_bytes(
        &self,
        data_type: &DataType,
        selection: &Selection,
        _limit: u64,
    ) -> Result<u64> {
        Ok(self.most_bytes(data_type, selection.count()))
    }

    /// Decodes the selected rows; `nulls` are their nulls.
    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef>;

    /// Drops selected rows, none of which is null, that fail `predicate`. Returns true if the others pass; if false,
    /// they are still to be tested.
    fn filter(&self, _: &DataType, _: &Predicate, _: &mut Selection) -> Result<bool> {
        Ok(false)
    }

    /// As [`Codec::filter`], by a test of the values that rows share.
    fn filter_with(&self, _: &mut Test<'_>, _: &mut Selection) -> Result<bool> {
        Ok(false)
    }

    /// As [`Codec::filter`], by an automaton over the bytes of text. Encodings ask for it only if they use it.
    fn filter_text(&self, _: &TextTest<'_>, _: &mut Selection) -> Result<bool> {
        Ok(false)
    }

    /// Returns true if values may be null that are valid by the column's validity.
    fn has_own_nulls(&self) -> bool {
        false
    }
}

/// A parsed column within a column.
pub(crate) trait Child: Sized {
    fn parse(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self>;

    /// Parses a column of values for constants and dictionaries: numbers or strings that are themselves stored as
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

/// Functions to append columns within a column, each in an encoding of its own choice.
#[derive(Clone, Copy)]
pub(crate) struct Children<'a> {
    pub encode: Append,
    pub encode_distinct: Append,
    /// The compressor of strings, if not this thread.
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
