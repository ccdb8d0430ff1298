//! Moves a stream of batches into a file: the common loop of imports and exports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{CliError, Result};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::writer::{Output, StagedTable, Summary, TableWriter};

/// Batches for a writer.
pub type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Batches buffered between reader and writer; enough to keep both busy.
const BATCHES_IN_FLIGHT: usize = 4;

/// Writes all of `batches` into one file. On any error, and on Ctrl-C, no file is left.
pub async fn copy(
    schema: &SchemaRef,
    batches: Batches,
    output: Output,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Summary> {
    let staged = stage(schema, batches, output, interrupt, progress);
    staged.await?.publish().await
}

/// As [`copy`], but leaves it to [`StagedTable::publish`] to give the file its name.
pub async fn stage(
    schema: &SchemaRef,
    batches: Batches,
    output: Output,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<StagedTable> {
    let mut writer = TableWriter::try_new(output, schema)?;
    let reading = Arc::new(AtomicU64::new(0));
    let batches = read_ahead(timed(batches, Arc::clone(&reading)));
    let written = tokio::select! {
        written = write_all(&mut writer, batches, progress) => written,
        () = interrupt.wait() => Err(CliError::Interrupted),
    };
    match written {
        Ok(()) => {
            let reading = Duration::from_nanos(reading.load(Ordering::Relaxed));
            writer.stage(reading).await
        }
        Err(error) => {
            writer.abort().await;
            Err(error)
        }
    }
}

async fn write_all(
    writer: &mut TableWriter,
    mut batches: Batches,
    progress: &Progress,
) -> Result<()> {
    while let Some(batch) = batches.try_next().await? {
        writer.write(&batch).await?;
        progress.advance(batch.num_rows());
        // Lets the interrupt through: a busy loop may never wait.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Passes batches on; adds the nanoseconds they take to `reading`.
pub fn timed(batches: Batches, reading: Arc<AtomicU64>) -> Batches {
    let batches = futures::stream::unfold((batches, reading), |(mut batches, reading)| async {
        let started = Instant::now();
        let batch = batches.next().await;
        reading.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Some((batch?, (batches, reading)))
    });
    batches.boxed()
}

/// Passes batches on up to the first error. Streams may not support polls after an error or their end.
pub fn until_error(batches: Batches) -> Batches {
    let batches = futures::stream::unfold(Some(batches), |batches| async {
        let mut batches = batches?;
        let batch = batches.next().await?;
        let rest = batch.is_ok().then_some(batches);
        Some((batch, rest))
    });
    batches.fuse().boxed()
}

/// Reads in a task of its own, so that decoding the input overlaps with encoding the output. Ends with the first error.
pub fn read_ahead(batches: Batches) -> Batches {
    let (sender, receiver) = mpsc::channel(BATCHES_IN_FLIGHT);
    let mut batches = until_error(batches);
    let mut reader = JoinSet::new(); // ends the task when dropped
    reader.spawn(async move {
        while let Some(batch) = batches.next().await {
            if sender.send(batch).await.is_err() {
                break;
            }
        }
    });
    let ahead = futures::stream::unfold((receiver, reader), |(mut receiver, mut reader)| async {
        match receiver.recv().await {
            Some(batch) => Some((batch, (receiver, reader))),
            // The channel also closes if the reader panics, which is not the end of the data.
            None => match reader.join_next().await {
                Some(Err(error)) if error.is_panic() => {
                    let failed = CliError::failed(format!("reading stopped: {error}"));
                    Some((Err(failed), (receiver, reader)))
                }
                _ => None,
            },
        }
    });
    ahead.fuse().boxed()
}
