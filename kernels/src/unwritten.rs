//! Values that somebody writes on a device: what is known of them when a chunk for them is laid out.

use arrow::array::ArrayRef;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

/// Values that are written on a device.
#[derive(Debug)]
pub struct Unwritten<'a> {
    /// Of the column.
    pub data_type: &'a DataType,
    /// Its rows.
    pub rows: usize,
    /// Which of them are null.
    pub nulls: Option<&'a NullBuffer>,
    /// What is known of the values.
    pub values: UnwrittenValues<'a>,
    /// See [`ChunkInfo::sample`](crate::ChunkInfo::sample).
    pub sample: Option<ArrayRef>,
}

/// What is known of values that are written on a device.
#[derive(Clone, Copy, Debug)]
pub enum UnwrittenValues<'a> {
    /// Integers: the least and the greatest of each vector, the wrong way round if it has none.
    Integers(&'a [(i64, i64)]),
    /// The same of codes of distinct values, and these.
    Codes(&'a [(i64, i64)], &'a ArrayRef),
    /// Floats.
    Floats,
    /// Strings: their lengths, 0 for nulls.
    Strings(&'a [u64]),
}
