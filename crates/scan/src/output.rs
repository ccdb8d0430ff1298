//! Forms output batches of about the batch size from the rows that survive the filters.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{DataType, SchemaRef};

use crate::error::Result;
use crate::evaluate::BATCH_BYTES;

/// Rows of this many bytes are a batch, regardless of their number.
const WIDE_BYTES: u64 = BATCH_BYTES / 2;

/// Batches waiting for output. Large ones pass through; small ones are copied together, so that the operators above see
/// well filled batches. Batches with narrow dictionary keys or run ends pass through, too: several row groups together
/// may have more values than those can number.
pub(crate) struct Output {
    batch_size: usize,
    ready: VecDeque<RecordBatch>,
    small: BatchCoalescer,
    /// Estimated bytes in `small`.
    small_bytes: u64,
    /// True if batches are copied together.
    copies: bool,
    /// Rows until the limit.
    remaining: Option<usize>,
}

impl Output {
    pub(crate) fn new(schema: SchemaRef, batch_size: usize, limit: Option<usize>) -> Self {
        let mut fields = schema.fields().iter();
        Self {
            batch_size,
            copies: !fields.any(|field| numbers_few(field.data_type())),
            ready: VecDeque::new(),
            small: BatchCoalescer::new(schema, batch_size),
            small_bytes: 0,
            remaining: limit,
        }
    }

    /// The next batch.
    pub(crate) fn pop(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Rows until the limit; `None` without one.
    pub(crate) fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// Adds rows of about `bytes`. There must not be more of them than [`Self::remaining`].
    pub(crate) fn push(&mut self, mut batch: RecordBatch, bytes: u64) -> Result<()> {
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(batch.num_rows());
        }
        if batch.num_columns() == 0 {
            self.ready.push_back(batch);
            return Ok(());
        }
        // few rows that are wide are not held back: a batch size of them might not fit in memory
        let passes = bytes >= WIDE_BYTES || !self.copies && batch.num_rows() > 0;
        if passes {
            self.flush()?;
        }
        while self.small.is_empty() && (passes || batch.num_rows() * 2 >= self.batch_size) {
            let rows = batch.num_rows().min(self.batch_size);
            self.ready.push_back(batch.slice(0, rows));
            batch = batch.slice(rows, batch.num_rows() - rows);
            if batch.num_rows() == 0 {
                return Ok(());
            }
        }
        self.small_bytes = self.small_bytes.saturating_add(bytes);
        self.small.push_batch(batch)?;
        if self.small_bytes >= WIDE_BYTES {
            return self.flush();
        }
        self.take_completed();
        Ok(())
    }

    /// Outputs the rows held back.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.small.finish_buffered_batch()?;
        self.take_completed();
        Ok(())
    }

    fn take_completed(&mut self) {
        while let Some(batch) = self.small.next_completed_batch() {
            self.ready.push_back(batch);
            self.small_bytes = 0;
        }
    }
}

/// Returns true if the type, or one within it, has keys of 8 or 16 bits, or run ends of 16.
fn numbers_few(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Dictionary(keys, values) => {
            matches!(**keys, Int8 | UInt8 | Int16 | UInt16) || numbers_few(values)
        }
        RunEndEncoded(ends, values) => {
            ends.data_type() == &Int16 || numbers_few(values.data_type())
        }
        List(field)
        | LargeList(field)
        | ListView(field)
        | LargeListView(field)
        | FixedSizeList(field, _)
        | Map(field, _) => numbers_few(field.data_type()),
        Struct(fields) => fields.iter().any(|field| numbers_few(field.data_type())),
        Union(fields, _) => fields
            .iter()
            .any(|(_, field)| numbers_few(field.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, AsArray, DictionaryArray, Int8Array, Int16Array, Int32Array, ListArray,
        RunArray, StringArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int16Type, Int32Type, Schema};

    use super::*;

    fn batch(rows: std::ops::Range<i32>) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("a", DataType::Int32, false)]);
        let values = Int32Array::from_iter_values(rows);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(values)]).unwrap()
    }

    #[test]
    fn keeps_order_and_fills_batches() {
        let mut output = Output::new(batch(0..0).schema(), 10, None);
        for rows in [0..3, 3..5, 5..25, 25..40, 40..41] {
            output.push(batch(rows), 40).unwrap();
        }
        output.flush().unwrap();
        let batches: Vec<RecordBatch> = std::iter::from_fn(|| output.pop()).collect();
        let sizes: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(sizes, [10, 10, 10, 10, 1]);
        let values = batches
            .iter()
            .flat_map(|b| b.column(0).as_primitive::<Int32Type>().values().to_vec());
        assert!(values.eq(0..41));
    }

    #[test]
    fn counts_down_to_the_limit() {
        let mut output = Output::new(batch(0..0).schema(), 4, Some(6));
        output.push(batch(0..4), 16).unwrap();
        assert_eq!(output.remaining(), Some(2));
        output.push(batch(4..6), 8).unwrap();
        assert_eq!(output.remaining(), Some(0));
    }

    /// Together, they have more values than keys can number, and more items than run ends can count.
    #[test]
    fn types_that_number_few_are_not_copied_together() {
        let batch = |group: usize| {
            let values = (0..100).map(|value| format!("{group} {value}"));
            let values: ArrayRef = Arc::new(StringArray::from_iter_values(values));
            let keys = Int8Array::from_iter_values(0..100);
            let codes: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
            let (ends, numbers) = (Int16Array::from(vec![20_000]), Int32Array::from(vec![7]));
            let runs = RunArray::<Int16Type>::try_new(&ends, &numbers).unwrap();
            let item = Arc::new(Field::new_list_field(runs.data_type().clone(), true));
            let offsets = OffsetBuffer::from_repeated_length(200, 100);
            let lists = ListArray::new(item, offsets, Arc::new(runs), None);
            RecordBatch::try_from_iter([("d", codes), ("l", Arc::new(lists) as _)]).unwrap()
        };
        for column in [0, 1] {
            let batch = |group| batch(group).project(&[column]).unwrap();
            let mut output = Output::new(batch(0).schema(), 1000, None);
            for group in 0..3 {
                output.push(batch(group), 1000).unwrap();
            }
            output.flush().unwrap();
            let batches: Vec<RecordBatch> = std::iter::from_fn(|| output.pop()).collect();
            assert_eq!(batches, [batch(0), batch(1), batch(2)]);
        }
    }
}
