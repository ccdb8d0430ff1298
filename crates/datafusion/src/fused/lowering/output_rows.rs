//! Rows of joined tables: lowers them to outputs of the kernel, and converts the outputs to record batches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use vectile_pipeline::{Expr, Rows, parallel};

use super::expression::Lowering;
use super::payload_values::{CodedColumn, PayloadValues};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::relation::Relation;
use crate::fused::table::Tables;

/// Maps the columns of rows to outputs of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct RowColumns {
    columns: Vec<RowColumn>,
    kernel: Vec<Expr>,
}

#[derive(Clone, Debug)]
struct RowColumn {
    /// Index of the kernel's output.
    output: usize,
    /// If the output is the code of a lookup: the index of the lookup, and of the payload column in it.
    payload: Option<(usize, usize)>,
}

impl RowColumns {
    /// Lowers the columns of `relation`.
    pub(crate) fn lower(
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<Self, FallbackReason> {
        let mut rows = Self {
            columns: Vec::new(),
            kernel: Vec::new(),
        };
        for column in relation.columns() {
            let (output, payload) = lowering.row_column(&column.expr)?;
            let known = rows.kernel.iter().position(|known| *known == output);
            let output = known.unwrap_or_else(|| {
                rows.kernel.push(output);
                rows.kernel.len() - 1
            });
            rows.columns.push(RowColumn { output, payload });
        }
        match rows.columns.is_empty() {
            true => Err(FallbackReason::Join("no column of it is wanted".into())),
            false => Ok(rows),
        }
    }

    /// The outputs of the kernel.
    pub(crate) fn of_kernel(&self) -> &[Expr] {
        &self.kernel
    }

    /// Converts the rows of each row group to a batch of `schema`, leaving out row groups without rows. At most `threads`
    /// threads share the row groups. Blocks.
    pub(crate) fn batches(
        &self,
        rows: &[Rows],
        tables: &Tables,
        schema: &SchemaRef,
        threads: usize,
    ) -> Result<Vec<RecordBatch>> {
        let rows: Vec<&Rows> = rows.iter().filter(|rows| rows.count > 0).collect();
        let coded = self.columns.iter().filter_map(RowColumn::coded);
        let parts: Vec<_> = rows.iter().map(|rows| rows.columns.as_slice()).collect();
        let payload = PayloadValues::shared(coded, &parts, tables)?;
        let all = rows.iter().map(|rows| rows.count).sum();
        let threads = parallel::threads_for(all, threads);
        let batches = parallel::map(threads, rows, |rows| self.batch(rows, &payload, schema));
        batches.into_iter().collect()
    }

    fn batch(
        &self,
        rows: &Rows,
        payload: &PayloadValues<'_>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| {
            let values = rows.columns.get(column.output);
            let values = values.ok_or_else(|| internal_datafusion_err!("no such output"))?;
            match column.coded() {
                None => as_type(values, field.data_type()),
                Some(coded) => Ok(cast(&payload.of(coded, values)?, field.data_type())?),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
        let columns = columns.collect::<Result<_>>()?;
        let schema = Arc::clone(schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

impl RowColumn {
    /// The payload column that the output is the code of, if any.
    fn coded(&self) -> Option<CodedColumn> {
        CodedColumn::of(self.output, self.payload)
    }
}

/// Reinterprets values of a machine type as `data_type`. Strings have that type already.
pub(crate) fn as_type(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if values.data_type() == data_type {
        return Ok(Arc::clone(values));
    }
    let data = values.to_data().into_builder();
    Ok(make_array(data.data_type(data_type.clone()).build()?))
}
