//! DataFusion's sort of rows of which some were read.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream;

/// The rows of `input` in order.
pub(super) fn sorted(
    input: SendableRecordBatchStream,
    order: LexOrdering,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = input.schema();
    let rows = Arc::new(Once {
        schema: Arc::clone(&schema),
        rows: Mutex::new(Some(input)),
    });
    let input = StreamingTableExec::try_new(schema, vec![rows], None, [], false, None)?;
    SortExec::new(order, Arc::new(input)).execute(0, context)
}

/// Rows that can be read once.
struct Once {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.take().unwrap_or_else(|| {
            let error = stream::iter([internal_err!("rows of a sort are read twice")]);
            let schema = Arc::clone(&self.schema);
            Box::pin(RecordBatchStreamAdapter::new(schema, error))
        })
    }
}
