//! The operation of a fused node: which rows it makes of what its kernel returns.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::memory::MemoryStream;
use vectile_gpu::{Batch, Execution};
use vectile_pipeline::{Groups, Output};

use super::build_side::OtherExpr;
use super::grouping_sets::SetGroups;
use crate::fused::table::Tables;
use crate::options::GpuMode;

/// The part of a fused node's plan in which aggregates and joins differ. It does not change when the node runs.
pub(crate) trait Operation: Clone + fmt::Debug + Send + Sync + 'static {
    /// Name of the node.
    const NAME: &'static str;
    /// Name of the list of [`Self::outputs`], for `EXPLAIN`.
    const OUTPUTS: &'static str;

    type Collector: Collector<Operation = Self>;

    /// Schema of the node's rows.
    fn schema(&self) -> SchemaRef;

    /// Number of rows, if it is the same for any input.
    fn num_rows(&self) -> Option<usize> {
        None
    }

    /// The columns computed by the node, for `EXPLAIN`.
    fn outputs(&self) -> String;

    /// The grouping expressions, for `EXPLAIN`; `None` if there are none.
    fn group_by(&self) -> Option<String> {
        None
    }

    /// Writes nested aggregation and group pruning, for `EXPLAIN`.
    fn fmt_groups(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Replaces expressions by `other` of them.
    fn with_exprs(self, other: OtherExpr<'_>) -> Result<Self>;

    /// Replaces the planned outputs of the kernel by those of this attempt, which may compute functions in another way.
    fn replace_outputs(&self, _planned: &Self, _output: &mut Output) {}

    /// Returns true if the kernel has to read all rows in one batch, where they fit the device.
    fn needs_single_batch(&self) -> bool {
        false
    }

    /// Starts to collect the results of a kernel that will read `rows` rows.
    fn collector(self, tables: &Tables, rows: u64, context: &TaskContext) -> Self::Collector;

    /// Drops groups that the parents do not need. `parts` have different groups: all, or some that are together.
    fn drop_unneeded(&self, _parts: &mut [Groups]) -> Result<()> {
        Ok(())
    }

    /// The rows of a program's results, of which `groups` are all groups, each once, and the operation with what they have shown of its functions.
    fn collected(
        self,
        execution: &vectile_cpu::Execution,
        groups: Vec<Groups>,
        tables: &Tables,
        context: &TaskContext,
    ) -> Result<(Self, CollectedRows)>;

    /// Changes what has to be computed in another way after an attempt, and returns true if there is anything.
    /// `has_kernel` is false if there was no kernel for the attempt.
    ///
    /// # Errors
    ///
    /// The device cannot compute it in any way.
    fn change_for_retry(&mut self, _has_kernel: bool) -> Result<bool> {
        Ok(false)
    }

    /// The result for empty input.
    fn of_no_rows(&self) -> Result<CollectedRows>;

    /// Completes collected rows where that takes operators, which may run out of memory.
    fn completed(
        &self,
        rows: CollectedRows,
        _: &Arc<TaskContext>,
    ) -> impl Future<Output = Result<CollectedRows>> + Send {
        std::future::ready(Ok(rows))
    }

    /// The node's rows from collected batches, of the session's batch size.
    fn stream(
        &self,
        batches: Vec<RecordBatch>,
        content: &RowContent,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Run state of an [`Operation`]: collects the results of one execution of a kernel. Its methods block.
pub(crate) trait Collector: Send + 'static {
    type Operation;

    /// Prepares the execution, before its first batch.
    fn begin(&self, _execution: &mut Execution, _mode: GpuMode) {}

    /// Compiles the kernel for `batch` without running it. Called for [`Operation::needs_single_batch`] only.
    fn compile(&self, _execution: &mut Execution, _batch: &Batch) -> Result<()> {
        Ok(())
    }

    /// Runs the kernel over `batch`, which is not empty.
    fn add(&mut self, execution: &mut Execution, batch: &Batch) -> Result<()>;

    /// Returns the rows, and the operation with what the attempt has shown of its functions.
    fn finish(self, execution: &Execution) -> Result<(Self::Operation, CollectedRows)>;
}

/// Rows that a kernel has computed.
pub(crate) struct CollectedRows {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) content: RowContent,
    /// Memory reservation for `batches`.
    pub(crate) memory: Option<MemoryReservation>,
}

/// What collected rows are.
#[derive(Debug)]
pub(crate) enum RowContent {
    /// The node's rows.
    Results,
    /// States of groups, each group once.
    DistinctStates,
    /// States of groups that have to be merged: a group may occur more than once, as each launch of a kernel has its
    /// own.
    States,
    /// The groups of some grouping sets, and no batches. Those of all other sets can be made of them.
    Sets(Vec<SetGroups>),
}

/// Batches as a stream, unchanged.
pub(crate) fn in_memory(
    batches: Vec<RecordBatch>,
    schema: SchemaRef,
) -> Result<SendableRecordBatchStream> {
    Ok(Box::pin(MemoryStream::try_new(batches, schema, None)?))
}
