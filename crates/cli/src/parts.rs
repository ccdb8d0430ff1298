//! Tables that are generated in parts, several at the same time.

use std::sync::Arc;
use std::thread::available_parallelism;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::task::spawn_blocking;

use crate::copy::Batches;
use crate::error::{CliError, Result};

/// Rows in a part of a table: small enough to hold several in memory, large enough that
/// starting one (positioning its random streams) costs nothing beside it.
const PART_ROWS: u64 = 50_000;

/// Parts of one table in memory at most, some being made, the others waiting to be written: 8 of
/// the widest rows are 100 MB.
const MAX_PARTS_IN_FLIGHT: usize = 8;

/// A table of a benchmark at some scale, made in parts that join to the same rows however many
/// there are.
#[derive(Clone)]
pub struct Table {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// How many rows it has, nearly.
    pub rows: u64,
    /// Its columns.
    pub schema: SchemaRef,
    parts: u32,
    generate: Arc<Generate>,
}

/// Makes a part, counted from 0, of so many.
type Generate = dyn Fn(u32, u32) -> Box<dyn RecordBatchReader> + Send + Sync;

impl Table {
    /// A table of about `rows` rows, where `generate` makes a part, counted from 0, of so many.
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

    /// The rows in order, several parts being made ahead.
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
        let made = spawn_blocking(make).await;
        let batches = made.map_err(|error| CliError::failed(error.to_string()))??;
        Ok(stream::iter(batches.into_iter().map(Ok)))
    }
}

/// As many as there are cores, within bounds.
fn parts_in_flight() -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    cores.clamp(2, MAX_PARTS_IN_FLIGHT)
}
