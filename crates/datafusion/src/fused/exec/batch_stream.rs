//! Supplies a kernel with batches of row groups: first those on the device, then others as they are loaded.
//!
//! All of them are looked up together if they fit the device, else window by window.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::TaskContext;
use vectile_gpu::{Batch, Engine, Execution};

use super::column_loader::{Loads, RowGroupChunks, WindowLookup, keep, look_up, windows};
use super::input::TableRowGroup;
use super::metrics::GpuMetrics;
use crate::error;
use crate::fused::cost_model::Costs;
use crate::fused::device::Device;

/// Where and how the kernels of a query run, and the metrics they report to.
#[derive(Clone, Copy)]
pub(crate) struct ExecEnvironment<'a> {
    pub(crate) device: &'a Device,
    pub(crate) metrics: &'a GpuMetrics,
    pub(crate) context: &'a Arc<TaskContext>,
    pub(crate) limits: LoadLimits,
}

/// Row groups for a kernel, in batches.
pub(crate) struct BatchStream {
    engine: Arc<Engine>,
    metrics: GpuMetrics,
    context: Arc<TaskContext>,
    limits: LoadLimits,
    /// Records load times, if set.
    costs: Option<Arc<Costs>>,
    rows: u64,
    row_groups: Vec<TableRowGroup>,
    windows: Peekable<IntoIter<Vec<TableRowGroup>>>,
    /// Lookup of the next window.
    prefetched: Option<SpawnedTask<Result<WindowLookup>>>,
    /// Loads of this window's missing columns.
    loading: Option<Loading>,
    /// The first batch, if [`Self::begin`] has fetched it.
    first: Option<Batch>,
}

/// Loads in progress.
struct Loading {
    loads: Loads,
    begun: Instant,
    /// Bytes of columns that were missing.
    bytes: u64,
}

/// Limits for loading, and kernels that may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadLimits {
    /// Row groups that are loaded at the same time, and threads that evaluate functions of text.
    pub(crate) loads: usize,
    /// True if kernels that are missing are compiled.
    pub(crate) may_compile: bool,
    /// True if the interpreter runs instead of generated kernels that are missing.
    pub(crate) may_interpret: bool,
}

impl LoadLimits {
    /// Applies to an execution.
    pub(crate) fn limit(&self, execution: &mut Execution) {
        execution.limit_threads(self.loads);
        if !self.may_compile {
            execution.without_compiler();
        }
        if !self.may_interpret {
            execution.without_interpreter();
        }
    }
}

impl BatchStream {
    pub(crate) fn new(
        row_groups: Vec<TableRowGroup>,
        environment: &ExecEnvironment<'_>,
        costs: Option<Arc<Costs>>,
    ) -> Self {
        let ExecEnvironment {
            device,
            metrics,
            context,
            limits,
        } = *environment;
        let engine = &device.engine;
        Self::of(row_groups, engine, metrics, context, limits, costs)
    }

    fn of(
        row_groups: Vec<TableRowGroup>,
        engine: &Arc<Engine>,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
        limits: LoadLimits,
        costs: Option<Arc<Costs>>,
    ) -> Self {
        Self {
            rows: row_groups
                .iter()
                .map(|row_group| row_group.rows() as u64)
                .sum(),
            windows: windows(row_groups.clone(), engine.memory_limit())
                .into_iter()
                .peekable(),
            row_groups,
            engine: Arc::clone(engine),
            metrics: metrics.clone(),
            context: Arc::clone(context),
            limits,
            costs,
            prefetched: None,
            loading: None,
            first: None,
        }
    }

    /// Rows in all batches together.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// True if all row groups fit the device at the same time.
    pub(crate) fn fit_device(&self) -> bool {
        self.windows.len() + usize::from(self.first.is_some() || self.loading.is_some()) < 2
    }

    /// Restarts with the same row groups.
    pub(crate) fn restarted(&self) -> Self {
        let (row_groups, engine) = (self.row_groups.clone(), &self.engine);
        let (metrics, context) = (&self.metrics, &self.context);
        Self::of(row_groups, engine, metrics, context, self.limits, None)
    }

    /// Returns all row groups, resident together, in one batch; `None` if they do not fit.
    pub(crate) async fn all(mut self) -> Result<Option<Batch>> {
        if !self.fit_device() {
            return Ok(None);
        }
        let rows = self.rows;
        let is_all = |batch: &Batch| batch.num_rows() as u64 == rows;
        let mut next = self.next().await?;
        if next.as_ref().is_some_and(is_all) {
            return Ok(next);
        }
        // load them all
        while next.take().is_some() {
            next = self.next().await?;
        }
        Ok(self.restarted().next().await?.filter(is_all))
    }

    /// Fetches the first batch ahead of [`Self::next`].
    pub(crate) async fn begin(&mut self) -> Result<()> {
        self.first = self.next().await?;
        Ok(())
    }

    /// Returns the next batch. The caller must have dropped the previous one.
    pub(crate) async fn next(&mut self) -> Result<Option<Batch>> {
        if let Some(batch) = self.first.take() {
            return Ok(Some(batch));
        }
        loop {
            if let Some(loading) = &mut self.loading {
                if let Some(batch) = loading.loads.next().await? {
                    // codes and results that are computed for all row groups are there for the next query
                    keep(&self.engine, &self.row_groups, &batch);
                    return Ok(Some(batch));
                }
                self.record_loaded();
            }
            let Some(window) = self.windows.next() else {
                return Ok(None);
            };
            let lookup = match self.prefetched.take() {
                Some(task) => Some(task.join().await.map_err(error::interrupted).flatten()?),
                None => None,
            };
            let lookup = match lookup.filter(|lookup| lookup.missing.is_empty()) {
                Some(lookup) => lookup,
                // there was no lookup ahead, or the window before may have left no memory
                None => {
                    let task = self.look_up(window);
                    task.join().await.map_err(error::interrupted).flatten()?
                }
            };
            self.metrics.bytes_cached.add(lookup.bytes);
            if lookup.missing.is_empty() {
                // Copy the next window while the kernel works on this one. If this one has to be loaded, chunks of the
                // next one would take the memory that loads need.
                let next = self.windows.peek().cloned();
                self.prefetched = next.map(|window| self.look_up(window));
            } else {
                self.load(lookup.missing);
            }
            if !lookup.batch.is_empty() {
                return Ok(Some(lookup.batch));
            }
        }
    }

    fn look_up(&self, window: Vec<TableRowGroup>) -> SpawnedTask<Result<WindowLookup>> {
        let engine = Arc::clone(&self.engine);
        SpawnedTask::spawn_blocking(move || look_up(&engine, window))
    }

    fn load(&mut self, missing: Vec<RowGroupChunks>) {
        let bytes = missing.iter().map(RowGroupChunks::missing_bytes).sum();
        let mut loads = Loads::new(
            missing,
            &self.metrics,
            &self.context,
            self.limits.loads,
            self.limits.may_compile,
        );
        loads.begin();
        self.loading = Some(Loading {
            loads,
            begun: Instant::now(),
            bytes,
        });
    }

    fn record_loaded(&mut self) {
        if let Some(loading) = self.loading.take()
            && let Some(costs) = &self.costs
        {
            costs.add_load(loading.bytes, self.limits.loads, loading.begun.elapsed());
        }
    }
}
