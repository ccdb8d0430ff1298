//! Rows of a dimension, numbered by what they have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use vectile_gpu::Error;

use crate::error;

/// Rows numbered by their attributes.
pub(super) struct Numbered {
    /// For each row.
    pub(super) codes: Vec<u32>,
    /// Codes are below it.
    pub(super) count: u32,
    /// For each attribute its value for each code.
    pub(super) values: Vec<ArrayRef>,
}

impl Numbered {
    /// There is nothing to tell rows apart by.
    pub(super) fn all_alike(rows: usize) -> Self {
        Self {
            codes: vec![0; rows],
            count: 1,
            values: Vec::new(),
        }
    }

    /// By the columns of `rows` from `first` on, or each for itself.
    pub(super) fn new(
        rows: &[RecordBatch],
        first: usize,
        types: &[DataType],
        is_by_row: bool,
    ) -> Result<Self> {
        let columns = first..first + types.len();
        // Which floats are equal is not asked: each row keeps its own.
        if is_by_row || types.iter().any(DataType::is_floating) {
            let count = code_of(rows.iter().map(RecordBatch::num_rows).sum())?;
            let values = columns.zip(types).map(|(i, of)| concat_column(rows, i, of));
            return Ok(Self {
                codes: (0..count).collect(),
                count,
                values: values.collect::<Result<_>>()?,
            });
        }
        let fields = types
            .iter()
            .map(|of| Field::new("attribute", of.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut distinct = new_group_values(schema, &GroupOrdering::None)?;
        let (mut codes, mut numbers) = (Vec::new(), Vec::new());
        for batch in rows {
            let attributes = batch.columns().get(columns.clone()).unwrap_or_default();
            numbers.clear();
            distinct.intern(attributes, &mut numbers)?;
            for &number in &numbers {
                codes.push(code_of(number)?);
            }
        }
        let count = code_of(distinct.len())?;
        let values = match count {
            0 => types.iter().map(arrow::array::new_empty_array).collect(),
            _ => distinct.emit(EmitTo::All)?,
        };
        Ok(Self {
            codes,
            count,
            values,
        })
    }
}

/// A number as a code.
fn code_of(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| error::gpu(Error::Unsupported(format!("{number} codes"))))
}

/// A column of all rows.
pub(super) fn concat_column(
    rows: &[RecordBatch],
    column: usize,
    of: &DataType,
) -> Result<ArrayRef> {
    let columns = rows.iter().filter_map(|batch| batch.columns().get(column));
    let columns: Vec<&dyn Array> = columns.map(AsRef::as_ref).collect();
    Ok(match columns.is_empty() {
        true => arrow::array::new_empty_array(of),
        false => concat(&columns)?,
    })
}
