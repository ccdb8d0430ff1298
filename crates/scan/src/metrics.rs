//! Counters and timers of a scan.

use std::time::{Duration, Instant};

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Row groups that a dynamic filter has ruled out.
    RowGroupsPruned,
    /// Row groups that Bloom filters have ruled out.
    RowGroupsPrunedByBloomFilter,
    /// Vectors that zone maps have ruled out.
    VectorsPruned,
    /// Vectors that zone maps have left.
    VectorsLeft,
    /// Bytes of values, zone maps and Bloom filters read.
    BytesRead,
    /// Bytes of memory of values, zone maps and Bloom filters that a cache had.
    BytesCached,
    /// Rows that filters were evaluated on and dropped.
    RowsFiltered,
    /// Rows decoded for output.
    RowsDecoded,
}

/// A timed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Waiting for values, as far as the scan had to.
    Fetching,
    /// Evaluating filters.
    Filtering,
    /// Decoding and projecting the surviving rows.
    Decoding,
}

/// Receives the metrics of a scan.
pub trait Metrics: Send + Sync {
    /// Adds `count` to a counter.
    fn add(&self, counter: Counter, count: usize);

    /// Adds wall-clock time to a step.
    fn add_time(&self, step: Step, time: Duration);
}

/// Counts nothing.
impl Metrics for () {
    fn add(&self, _: Counter, _: usize) {}

    fn add_time(&self, _: Step, _: Duration) {}
}

/// Times a step until it is dropped.
pub(crate) struct Timer<'a> {
    metrics: &'a dyn Metrics,
    step: Step,
    start: Instant,
}

impl<'a> Timer<'a> {
    pub(crate) fn start(metrics: &'a dyn Metrics, step: Step) -> Self {
        let start = Instant::now();
        Self {
            metrics,
            step,
            start,
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.metrics.add_time(self.step, self.start.elapsed());
    }
}
