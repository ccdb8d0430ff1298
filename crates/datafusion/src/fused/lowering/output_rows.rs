//! Rows of joined tables: lowers them to outputs of the kernel, and converts the outputs to record batches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use vectile_pipeline::{Expr, Rows};

use super::expression::Lowering;
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

    /// Converts the rows of each row group to a batch of `schema`, leaving out row groups without rows. Values of codes
    /// are looked up for all row groups at once, since they may have to be read.
    pub(crate) fn batches(
        &self,
        rows: &[Rows],
        tables: &Tables,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let rows: Vec<&Rows> = rows.iter().filter(|rows| rows.count > 0).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); rows.len()];
        for (column, field) in self.columns.iter().zip(schema.fields()) {
            let values = rows.iter().map(|rows| {
                let values = rows.columns.get(column.output);
                values.ok_or_else(|| internal_datafusion_err!("no such output"))
            });
            let values: Vec<&ArrayRef> = values.collect::<Result<_>>()?;
            let Some((lookup, payload)) = column.payload else {
                for (columns, values) in columns.iter_mut().zip(values) {
                    columns.push(as_type(values, field.data_type())?);
                }
                continue;
            };
            let table = tables.get(lookup);
            let table = table.ok_or_else(|| internal_datafusion_err!("no lookup"))?;
            let codes: Vec<&dyn Array> = values.iter().map(|codes| codes.as_ref()).collect();
            let all = table.values(payload, &concat(&codes)?)?;
            let all = cast(&all, field.data_type())?;
            let mut first = 0;
            for (columns, rows) in columns.iter_mut().zip(&rows) {
                columns.push(all.slice(first, rows.count));
                first += rows.count;
            }
        }
        let batches = columns.into_iter().zip(rows).map(|(columns, rows)| {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
            let schema = Arc::clone(schema);
            Ok(RecordBatch::try_new_with_options(
                schema, columns, &options,
            )?)
        });
        batches.collect()
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
