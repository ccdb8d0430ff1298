//! The payload of a build side's rows.

use std::ops::Range;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, make_array, new_empty_array};
use arrow::buffer::MutableBuffer;
use arrow::compute::concat;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_datafusion_err};
use vectile_pipeline::{RowCodes, parallel};

use crate::fused::dense_ids::Numbered;

/// The codes of the payload of rows.
pub(super) enum PayloadCodes {
    /// There is no payload: all rows are alike.
    One,
    /// The row's number.
    Rows,
    /// Equal payload has the same code.
    ByValue(Numbered),
}

impl PayloadCodes {
    /// The codes of the columns of `rows`, of the given types: the row's number if `is_by_row`.
    pub(super) fn new(
        rows: &[RecordBatch],
        (columns, types): (Range<usize>, &[DataType]),
        is_by_row: bool,
    ) -> Result<Self> {
        if types.is_empty() {
            return Ok(Self::One);
        }
        // floats are not compared for equality: each row keeps its own
        if is_by_row || types.iter().any(DataType::is_floating) {
            return Ok(Self::Rows);
        }
        let columns = |batch| RecordBatch::columns(batch).get(columns.clone());
        Numbered::by_value(rows.iter().filter_map(columns), types).map(Self::ByValue)
    }

    /// The code of each row, for a table that a device reads or not.
    pub(super) fn of_rows(&self, is_for_device: bool) -> RowCodes<'_> {
        match self {
            Self::One => RowCodes::One,
            Self::Rows if is_for_device => RowCodes::Rows,
            Self::Rows => RowCodes::Ranks,
            Self::ByValue(numbered) => RowCodes::Each(&numbered.codes, numbered.count),
        }
    }

    /// The value of each code, in each of the columns of `rows`, of the given types. `threads` threads share the work.
    pub(super) fn values(
        self,
        rows: &[RecordBatch],
        (columns, types): (Range<usize>, &[DataType]),
        threads: usize,
    ) -> Result<Vec<ArrayRef>> {
        match self {
            Self::One => Ok(Vec::new()),
            Self::ByValue(numbered) => Ok(numbered.values),
            Self::Rows => concat_columns(rows, (columns, types), threads),
        }
    }
}

/// Bytes of the columns of `rows` in one piece.
pub(super) fn bytes_of(rows: &[RecordBatch], columns: Range<usize>) -> usize {
    let columns = rows
        .iter()
        .filter_map(|batch| batch.columns().get(columns.clone()));
    // views share the text of their batches
    let bytes = columns.flatten().map(|column| {
        let bytes = column.to_data().get_slice_memory_size();
        bytes.unwrap_or_else(|_| column.get_array_memory_size())
    });
    bytes.sum()
}

/// Concatenates columns of batches. `threads` threads share the work.
fn concat_columns(
    rows: &[RecordBatch],
    (columns, types): (Range<usize>, &[DataType]),
    threads: usize,
) -> Result<Vec<ArrayRef>> {
    let mut all = Vec::with_capacity(types.len());
    for (column, of) in columns.zip(types) {
        let chunks = rows.iter().filter_map(|batch| batch.columns().get(column));
        all.push((of, chunks.collect::<Vec<&ArrayRef>>()));
    }
    // Threads share the rows of a column of fixed width, and the other columns.
    let mut fixed = Vec::with_capacity(types.len());
    for (of, chunks) in &all {
        fixed.push(match of.primitive_width() {
            Some(width) if chunks.iter().all(|chunk| chunk.data_type() == *of) => {
                Some(concat_fixed(chunks, (of, width), threads)?)
            }
            _ => None,
        });
    }
    let concatenated = parallel::map(
        threads,
        all.into_iter().zip(fixed).collect(),
        |((of, chunks), fixed)| match fixed {
            Some(column) => Ok(column),
            None if chunks.is_empty() => Ok(new_empty_array(of)),
            None => {
                let chunks: Vec<&dyn Array> = chunks.into_iter().map(AsRef::as_ref).collect();
                Ok(concat(&chunks)?)
            }
        },
    );
    concatenated.into_iter().collect()
}

/// Concatenates arrays of values of `width` bytes. `threads` threads share the work.
fn concat_fixed(
    chunks: &[&ArrayRef],
    (of, width): (&DataType, usize),
    threads: usize,
) -> Result<ArrayRef> {
    let rows = chunks.iter().map(|chunk| chunk.len()).sum();
    // zeroed memory of this size is untouched memory, which threads fault in as they write
    let mut values = MutableBuffer::from_len_zeroed(rows * width);
    let mut rest = values.as_slice_mut();
    let mut nulls = NullBufferBuilder::new(rows);
    let mut copies = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match chunk.nulls() {
            Some(own) => nulls.append_buffer(own),
            None => nulls.append_n_non_nulls(chunk.len()),
        }
        let (to, behind) = std::mem::take(&mut rest).split_at_mut(chunk.len() * width);
        rest = behind;
        copies.push((chunk.to_data(), to));
    }
    let copied = parallel::map(threads, copies, |(from, to): (ArrayData, &mut [u8])| {
        let begin = from.offset() * width;
        let from = from.buffers().first();
        let from = from.and_then(|from| from.get(begin..begin + to.len()));
        from.map(|from| to.copy_from_slice(from))
    });
    if copied.contains(&None) {
        return Err(internal_datafusion_err!("values of {of} without a buffer"));
    }
    let data = ArrayData::builder(of.clone())
        .len(rows)
        .add_buffer(values.into())
        .nulls(nulls.finish());
    Ok(make_array(data.build()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int32Array, StringViewArray};

    use super::*;

    #[test]
    fn columns_are_concatenated_by_several_threads() {
        let numbers = Int32Array::from_iter((0..1000).map(|i| (i % 7 > 0).then_some(i)));
        let decimals = Decimal128Array::from_iter_values((0..1000).map(|i| i << 70));
        let texts = StringViewArray::from_iter_values((0..1000).map(|i| format!("{i:020}")));
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(decimals), Arc::new(texts)];
        let names = ["a", "b", "c"].into_iter();
        let whole = RecordBatch::try_from_iter(names.zip(columns.clone())).unwrap();
        let types: Vec<DataType> = columns.iter().map(|of| of.data_type().clone()).collect();
        let batches = [(0, 10), (10, 0), (10, 500), (510, 490)];
        let batches = batches.map(|(from, len)| whole.slice(from, len));
        for threads in [1, 3] {
            let all = concat_columns(&batches, (0..3, &types), threads).unwrap();
            assert_eq!(all, columns);
            let last = concat_columns(&batches[1..3], (1..3, &types[1..]), threads).unwrap();
            assert_eq!(last, [1, 2].map(|column| columns[column].slice(10, 500)));
        }
        let none = concat_columns(&[], (0..3, &types), 2).unwrap();
        assert!(none.iter().all(|column| column.is_empty()));
        assert_eq!(bytes_of(&batches, 1..3), 1000 * (16 + 16));
    }
}
