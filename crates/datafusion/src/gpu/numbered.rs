//! Rows numbered by what they have.

use std::slice;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use vectile_gpu::{Codes, Error};

use crate::error;

/// Rows numbered by their attributes.
pub(crate) struct Numbered {
    /// For each row.
    pub(crate) codes: Vec<u32>,
    /// Codes are below it.
    pub(crate) count: u32,
    /// For each attribute its value for each code.
    pub(crate) values: Vec<ArrayRef>,
}

impl Numbered {
    /// There is nothing to tell rows apart by.
    pub(crate) fn all_alike(rows: usize) -> Self {
        Self {
            codes: vec![0; rows],
            count: 1,
            values: Vec::new(),
        }
    }

    /// By the columns of `rows` from `first` on, or each for itself.
    pub(crate) fn new(
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
        let columns = |batch| RecordBatch::columns(batch).get(columns.clone());
        Self::by_value(rows.iter().filter_map(columns), types)
    }

    /// The rows of one column, by its values.
    pub(crate) fn of(column: &ArrayRef) -> Result<Self> {
        Self::by_value([slice::from_ref(column)], &[column.data_type().clone()])
    }

    /// By the values of columns, which come in batches: in the order in which they come first.
    fn by_value<'a>(
        batches: impl IntoIterator<Item = &'a [ArrayRef]>,
        types: &[DataType],
    ) -> Result<Self> {
        let fields = types.iter().map(|of| Field::new("value", of.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut distinct = new_group_values(schema, &GroupOrdering::None)?;
        let (mut codes, mut numbers) = (Vec::new(), Vec::new());
        for columns in batches {
            numbers.clear();
            distinct.intern(columns, &mut numbers)?;
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

    /// A table of the values of the only column, each with its number.
    pub(crate) fn table(&self) -> Result<Codes> {
        let [values] = &self.values[..] else {
            return internal_err!("a table of {} columns", self.values.len());
        };
        let own: Vec<u32> = (0..self.count).collect();
        Codes::new(values, &own, self.count).map_err(error::gpu)
    }
}

/// A number as a code.
fn code_of(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| error::gpu(Error::Unsupported(format!("{number} codes"))))
}

/// A column of all rows.
pub(crate) fn concat_column(
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
