//! Node of a fused star join whose rows are put out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::SendableRecordBatchStream;
use vectile_gpu::{Batch, Execution};
use vectile_pipeline::{Groups, Rows};

use super::build_side::OtherExpr;
use super::fused_exec::FusedExec;
use super::operation::{CollectedRows, Collector, Operation, RowContent, in_memory};
use crate::error;
use crate::fused::lowering::output_rows::RowColumns;
use crate::fused::table::Tables;

/// Computes the rows of a join over a scan on the GPU.
pub(crate) type FusedJoinExec = FusedExec<JoinRows>;

/// The rows of a join.
#[derive(Clone, Debug)]
pub(crate) struct JoinRows {
    pub(crate) columns: RowColumns,
    pub(crate) schema: SchemaRef,
}

impl Operation for JoinRows {
    const NAME: &'static str = "FusedJoinExec";
    const OUTPUTS: &'static str = "rows";

    type Collector = RowCollector;

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn outputs(&self) -> String {
        let names = self.schema.fields().iter();
        let names = names.map(|field| field.name().as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    fn with_exprs(self, _: OtherExpr<'_>) -> Result<Self> {
        Ok(self)
    }

    fn collector(self, tables: &Tables, _: u64, context: &TaskContext) -> RowCollector {
        let consumer = MemoryConsumer::new("VectileGpuGroups");
        RowCollector {
            rows: self,
            tables: tables.clone(),
            batches: Vec::new(),
            threads: context.session_config().target_partitions(),
            memory: consumer.register(context.memory_pool()),
        }
    }

    fn collected(
        self,
        execution: &vectile_cpu::Execution,
        _: Vec<Groups>,
        tables: &Tables,
        context: &TaskContext,
    ) -> Result<(Self, CollectedRows)> {
        let mut collector = self.collector(tables, 0, context);
        collector.add_rows(execution.rows())?;
        Ok(collector.collected())
    }

    fn of_no_rows(&self) -> Result<CollectedRows> {
        Ok(CollectedRows {
            batches: Vec::new(),
            content: RowContent::Results,
            memory: None,
        })
    }

    fn stream(
        &self,
        batches: Vec<RecordBatch>,
        _: &RowContent,
        _: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        in_memory(batches, self.schema())
    }
}

/// Collects the rows of a join.
pub(crate) struct RowCollector {
    rows: JoinRows,
    tables: Tables,
    batches: Vec<RecordBatch>,
    /// Threads that make batches of rows.
    threads: usize,
    /// Memory reservation for `batches`.
    memory: MemoryReservation,
}

impl Collector for RowCollector {
    type Operation = JoinRows;

    fn add(&mut self, execution: &mut Execution, batch: &Batch) -> Result<()> {
        let rows = execution.rows_of_batch(batch).map_err(error::gpu)?;
        self.add_rows(&rows)
    }

    fn finish(self, _: &Execution) -> Result<(JoinRows, CollectedRows)> {
        Ok(self.collected())
    }
}

impl RowCollector {
    fn add_rows(&mut self, rows: &[Rows]) -> Result<()> {
        let columns = &self.rows.columns;
        for batch in columns.batches(rows, &self.tables, &self.rows.schema, self.threads)? {
            // count slices: several arrays may share a buffer that the device returned
            let bytes: usize = batch.columns().iter().map(bytes_of).sum();
            self.memory.try_grow(bytes)?;
            self.batches.push(batch);
        }
        Ok(())
    }

    fn collected(self) -> (JoinRows, CollectedRows) {
        let collected = CollectedRows {
            batches: self.batches,
            content: RowContent::Results,
            memory: Some(self.memory),
        };
        (self.rows, collected)
    }
}

/// Bytes of an array's rows. Shared buffers count by slice.
fn bytes_of(array: &ArrayRef) -> usize {
    let data = array.to_data();
    data.get_slice_memory_size()
        .unwrap_or_else(|_| data.get_array_memory_size())
}
