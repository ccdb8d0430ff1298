//! Combines columns of a file that several tasks read: one task decodes Parquet more slowly than the other threads
//! encode it. At most a few batches of a column wait for those of others.

use std::ops::Range;
use std::thread::available_parallelism;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use futures::stream::{StreamExt, unfold};

use crate::copy::{Batches, read_ahead, until_error};
use crate::error::{CliError, Result};

/// The most tasks that read a file. Each requests its own bytes.
const MOST_READERS: usize = 8;

/// The number of tasks that read a file; half of the threads are left to encode. At least two, if there are two
/// threads: a reader may take long to the first batch, while there is nothing to encode.
pub fn readers() -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(cores.min(2), MOST_READERS)
}

/// Splits the columns among `readers` tasks.
pub fn shares(columns: usize, readers: usize) -> Vec<Range<usize>> {
    let readers = readers.min(columns).max(1);
    (0..readers)
        .map(|reader| columns * reader / readers..columns * (reader + 1) / readers)
        .collect()
}

/// Combines the batches of `parts`, which have the same rows and consecutive columns of `schema`, up to the first
/// error.
pub fn side_by_side(parts: Vec<Batches>, schema: SchemaRef) -> Batches {
    let parts: Vec<ColumnPart> = parts
        .into_iter()
        .map(|batches| ColumnPart {
            batches: read_ahead(batches),
            rest: None,
        })
        .collect();
    let batches = unfold((parts, schema), |(mut parts, schema)| async {
        let batch = next(&mut parts, &schema).await.transpose()?;
        Some((batch, (parts, schema)))
    });
    until_error(batches.boxed())
}

struct ColumnPart {
    batches: Batches,
    /// Rows that other tasks have not read yet.
    rest: Option<RecordBatch>,
}

impl ColumnPart {
    /// The number of rows available; 0 at the end.
    async fn rows(&mut self) -> Result<usize> {
        loop {
            match &self.rest {
                Some(rest) if rest.num_rows() > 0 => return Ok(rest.num_rows()),
                _ => match self.batches.next().await {
                    Some(batch) => self.rest = Some(batch?),
                    None => return Ok(0),
                },
            }
        }
    }

    fn take(&mut self, rows: usize) -> Vec<ArrayRef> {
        let Some(rest) = self.rest.take() else {
            return Vec::new();
        };
        let columns = rest.slice(0, rows).columns().to_vec();
        self.rest = Some(rest.slice(rows, rest.num_rows() - rows));
        columns
    }
}

async fn next(parts: &mut [ColumnPart], schema: &SchemaRef) -> Result<Option<RecordBatch>> {
    let mut fewest = usize::MAX;
    let mut most = 0;
    for part in parts.iter_mut() {
        let rows = part.rows().await?;
        (fewest, most) = (fewest.min(rows), most.max(rows));
    }
    match (fewest, most) {
        (_, 0) => Ok(None),
        (0, _) => Err(CliError::failed("its columns differ in their rows")),
        _ => {
            let columns = parts.iter_mut().flat_map(|part| part.take(fewest));
            let batch = RecordBatch::try_new(SchemaRef::clone(schema), columns.collect())?;
            Ok(Some(batch))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int32Array;
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::TryStreamExt;

    use super::*;

    #[test]
    fn every_column_is_in_one_share() {
        for (columns, readers) in [(0, 8), (1, 8), (5, 1), (16, 8), (17, 8), (7, 3)] {
            let shares = shares(columns, readers);
            assert!(shares.len() <= readers);
            let all: Vec<usize> = shares.into_iter().flatten().collect();
            assert_eq!(all, (0..columns).collect::<Vec<_>>());
        }
    }

    /// Batches of the values from one of `bounds` to the next.
    fn part(name: &str, bounds: &[i32]) -> Batches {
        let field = Field::new(name, DataType::Int32, false);
        let schema = Arc::new(Schema::new(vec![field]));
        let batches: Vec<_> = bounds
            .windows(2)
            .map(|rows| {
                let values: ArrayRef = Arc::new(Int32Array::from_iter_values(rows[0]..rows[1]));
                Ok(RecordBatch::try_new(Arc::clone(&schema), vec![values])?)
            })
            .collect();
        futures::stream::iter(batches).boxed()
    }

    async fn read(parts: Vec<Batches>) -> Result<RecordBatch> {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int32, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let batches = side_by_side(parts, Arc::clone(&schema));
        let batches: Vec<_> = batches.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }

    #[tokio::test]
    async fn rows_stay_together_for_any_batches() {
        let a = part("a", &[0, 10, 10, 100]);
        let b = part("b", &[0, 3, 50, 51, 100]);
        let rows = read(vec![a, b]).await.unwrap();
        assert_eq!(rows.num_rows(), 100);
        assert_eq!(rows.column(0), rows.column(1));
    }

    #[tokio::test]
    async fn a_column_that_ends_or_fails_early_is_an_error() {
        let (a, b) = (part("a", &[0, 10]), part("b", &[0, 9]));
        let error = read(vec![a, b]).await.unwrap_err().to_string();
        assert!(error.contains("differ in their rows"), "{error}");
        let failing = futures::stream::iter([Err(CliError::failed("damaged"))]);
        let b = part("b", &[0, 9]).chain(failing).boxed();
        let error = read(vec![part("a", &[0, 10]), b]).await.unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }

    /// A caller that does not stop at an error polls once more.
    #[tokio::test]
    async fn an_error_is_the_end() {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int32, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let failing = || futures::stream::iter([Err(CliError::failed("damaged"))]).boxed();
        for parts in [
            vec![part("a", &[0, 10]), part("b", &[0, 9])],
            vec![part("a", &[0, 10]), failing()],
            vec![failing(), part("a", &[0, 10])],
        ] {
            let batches = read_ahead(side_by_side(parts, Arc::clone(&schema)));
            let batches: Vec<_> = batches.collect().await;
            assert!(matches!(batches.last(), Some(Err(_))), "{batches:?}");
            let errors = batches.iter().filter(|batch| batch.is_err());
            assert_eq!(errors.count(), 1, "{batches:?}");
        }
    }
}
