//! Vectile tables in memory, with rows in every state.

use std::ops::Range;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use futures::FutureExt;
use vectile_datafusion::{VectileTable, VectileTableOptions};

/// Longer than a test: rows that do not fill a row group stay as they are.
const SEAL_AFTER: Duration = Duration::from_secs(3600);

/// A table in memory with these rows. The first half of them is encoded in row groups, the next ones are being encoded
/// when this returns, a scan was planned of those behind them, and the last ones no scan has seen yet.
pub(crate) async fn memory_table(
    state: &dyn Session,
    schema: SchemaRef,
    rows: &[RecordBatch],
    options: VectileTableOptions,
) -> Result<VectileTable> {
    let table = VectileTable::try_new(schema, options.with_seal_after(SEAL_AFTER))?;
    table.append(percent(rows, 0..50)).await?;
    table.flush().await?;
    table.append(percent(rows, 50..70)).await?;
    // starts to encode, and does not wait
    let _ = table.flush().now_or_never();
    table.append(percent(rows, 70..90)).await?;
    table.scan(state, None, &[], None).await?;
    table.append(percent(rows, 90..100)).await?;
    Ok(table)
}

/// The rows of batches from one percentage of all to another.
fn percent(batches: &[RecordBatch], range: Range<usize>) -> Vec<RecordBatch> {
    let total: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let (start, end) = (total * range.start / 100, total * range.end / 100);
    let mut first = 0;
    let slices = batches.iter().map(|batch| {
        let from = start.saturating_sub(first).min(batch.num_rows());
        let to = end.saturating_sub(first).min(batch.num_rows());
        first += batch.num_rows();
        batch.slice(from, to - from)
    });
    slices.filter(|slice| slice.num_rows() > 0).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array};
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn rows_are_in_several_states() {
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..7));
        let batch = RecordBatch::try_from_iter([("a", values)]).unwrap();
        let rows = vec![batch.clone(), batch.slice(0, 3)];
        let state = SessionContext::new().state();
        let options = VectileTableOptions::default();
        let table = memory_table(&state, batch.schema(), &rows, options);
        let size = table.await.unwrap().size();
        assert_eq!(size.rows, 10);
        // those being encoded may be done already
        assert!([5, 7].contains(&size.sealed_rows), "{size:?}");
    }
}
