//! `INSERT INTO` a table in memory.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::TryStreamExt;

use super::appender::Appender;
use super::contents::Contents;
use super::encoded::EncodedRows;

/// The rows that are there when others come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// They stay.
    Stay,
    /// They go. The statement counts the rows that come.
    Replaced,
    /// They go. The statement counts them.
    Removed,
}

/// Adds the rows of a query, all at once.
#[derive(Debug)]
pub(super) struct TableSink {
    contents: Arc<Contents>,
    before: Before,
    /// Rows to add instead of those of the query, which has none.
    encoded: Option<EncodedRows>,
}

impl TableSink {
    pub(super) fn new(contents: &Arc<Contents>, before: Before) -> Self {
        Self {
            contents: Arc::clone(contents),
            before,
            encoded: None,
        }
    }

    /// Adds these rows instead of those of the query.
    pub(super) fn with_encoded(mut self, encoded: EncodedRows) -> Self {
        self.encoded = Some(encoded);
        self
    }
}

/// The rows of `batch` with the types of `schema`.
fn typed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let arrays = batch.columns().iter().zip(schema.fields());
    let arrays = arrays.map(
        |(array, field)| match array.data_type() == field.data_type() {
            true => Ok(Arc::clone(array)),
            false => Ok(cast(array, field.data_type())?),
        },
    );
    let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        arrays,
        &options,
    )?)
}

#[async_trait]
impl DataSink for TableSink {
    fn metrics(&self) -> Option<MetricsSet> {
        None
    }

    fn schema(&self) -> &SchemaRef {
        &self.contents.settings.schema
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> Result<u64> {
        let mut appender = Appender::new(&self.contents);
        while let Some(batch) = data.try_next().await? {
            appender.write(typed(&batch, self.schema())?).await?;
        }
        if let Some(encoded) = &self.encoded {
            encoded.write(&mut appender).await?;
        }
        match self.before {
            Before::Stay => appender.commit().await,
            Before::Replaced => appender.replace().await.map(|replaced| replaced.added),
            Before::Removed => appender.replace().await.map(|replaced| replaced.removed),
        }
    }
}

impl DisplayAs for TableSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overwrite = (self.before != Before::Stay).then(|| "overwrite".to_owned());
        let encoded = self.encoded.as_ref();
        let encoded = encoded.map(|rows| format!("encoded_row_groups={}", rows.row_groups()));
        let said: Vec<String> = overwrite.into_iter().chain(encoded).collect();
        write!(f, "VectileTable({})", said.join(", "))
    }
}
