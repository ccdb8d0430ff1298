//! Forms output batches of about the batch size from whatever survives the filters.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;

use crate::error::Result;
use crate::evaluate::BATCH_BYTES;

/// Rows of so many bytes are a batch, however few they are.
const WIDE_BYTES: u64 = BATCH_BYTES / 2;

/// Batches on their way out. Large ones pass through; small ones are copied together, so that the
/// operators above see well filled batches.
pub(crate) struct Output {
    batch_size: usize,
    ready: VecDeque<RecordBatch>,
    small: BatchCoalescer,
    /// Bytes in `small`, about.
    small_bytes: u64,
    /// Rows that may still be put out.
    remaining: Option<usize>,
}

impl Output {
    pub(crate) fn new(schema: SchemaRef, batch_size: usize, limit: Option<usize>) -> Self {
        Self {
            batch_size,
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

    /// Rows that may still be put out; `None`: any number.
    pub(crate) fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// Adds rows of about `bytes`, of which there must not be more than [`Self::remaining`].
    pub(crate) fn push(&mut self, mut batch: RecordBatch, bytes: u64) -> Result<()> {
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(batch.num_rows());
        }
        if batch.num_columns() == 0 {
            self.ready.push_back(batch);
            return Ok(());
        }
        // few rows that are wide are not held back: a batch size of them might not fit in memory
        let is_wide = bytes >= WIDE_BYTES;
        if is_wide {
            self.flush()?;
        }
        while self.small.is_empty() && (is_wide || batch.num_rows() * 2 >= self.batch_size) {
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

    /// Puts out what is held back.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::{DataType, Field, Int32Type, Schema};

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
}
