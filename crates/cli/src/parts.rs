//! Tables generated in parts, in parallel.

use std::sync::Arc;
use std::thread::available_parallelism;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::task::spawn_blocking;

use crate::copy::Batches;
use crate::error::{CliError, Result};

/// Rows in a part of a table: small enough to hold several in memory, large enough that the cost of
/// starting one (positioning its random streams) is negligible.
const PART_ROWS: u64 = 50_000;

/// The most parts of one table in memory, being generated or waiting to be written: 8 of the widest
/// rows are 100 MB.
const MAX_PARTS_IN_FLIGHT: usize = 8;

/// A table of a benchmark at some scale, generated in parts. The number of parts does not change
/// its rows.
#[derive(Clone)]
pub struct Table {
    /// Its name, and its file's.
    pub name: &'static str,
    /// Approximate number of rows.
    pub rows: u64,
    /// Its columns.
    pub schema: SchemaRef,
    parts: u32,
    generate: Arc<Generate>,
}

/// Generates a part: its index, and the number of parts.
type Generate = dyn Fn(u32, u32) -> Box<dyn RecordBatchReader> + Send + Sync;

impl Table {
    /// A table of about `rows` rows. `generate` takes the index of a part and the number of parts.
    pub fn new(
        name: &'static str,
        rows: u64,
        schema: SchemaRef,
        generate: impl Fn(u32, u32) -> Box<dyn RecordBatchReader> + Send + Sync + 'static,
    ) -> Self {
        Table {
            name,
            rows,
            schema,
            parts: rows.div_ceil(PART_ROWS).max(1) as u32,
            generate: Arc::new(generate),
        }
    }

    /// The rows in order; several parts are generated ahead.
    pub fn batches(&self) -> Batches {
        let table = self.clone();
        stream::iter(0..self.parts)
            .map(move |part| table.clone().part(part))
            .buffered(parts_in_flight())
            .try_flatten()
            .boxed()
    }

    async fn part(self, part: u32) -> Result<impl Stream<Item = Result<RecordBatch>>> {
        let make = move || (self.generate)(part, self.parts).collect::<Result<Vec<_>, _>>();
        let generated = spawn_blocking(make).await;
        let batches = generated.map_err(|error| CliError::failed(error.to_string()))??;
        Ok(stream::iter(batches.into_iter().map(Ok)))
    }
}

/// The number of cores, within limits.
fn parts_in_flight() -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    cores.clamp(2, MAX_PARTS_IN_FLIGHT)
}
