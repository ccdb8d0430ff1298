//! Assigns dense ids to distinct rows.

use std::slice;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use vectile_gpu::Error;
use vectile_pipeline::{KeyChunks, KeyTable, RowCodes};

use crate::error;

/// Maximum size of a table by distance, in entries per row.
const MOST_PER_ROW: usize = 4;

/// Dense ids of rows, by the values of their columns.
pub(crate) struct Numbered {
    /// The id of each row.
    pub(crate) codes: Vec<u32>,
    /// Number of distinct ids. Ids are below it.
    pub(crate) count: u32,
    /// For each column, the value of each id.
    pub(crate) values: Vec<ArrayRef>,
}

impl Numbered {
    /// Assigns ids by the values of one column without nulls.
    pub(crate) fn of(column: &ArrayRef) -> Result<Self> {
        if let Some(numbered) = Self::by_distance(column)? {
            return Ok(numbered);
        }
        Self::by_value([slice::from_ref(column)], &[column.data_type().clone()])
    }

    /// Assigns ids to integers that lie close together, by a table of the range from least to greatest, without
    /// hashing. Returns `None` for other columns.
    fn by_distance(column: &ArrayRef) -> Result<Option<Self>> {
        if !column.data_type().is_integer() || column.null_count() > 0 {
            return Ok(None);
        }
        let Ok(values) = cast(column, &DataType::Int64) else {
            return Ok(None);
        };
        let values = values.as_primitive::<Int64Type>();
        let (Some(least), Some(greatest), 0) = (min(values), max(values), values.null_count())
        else {
            return Ok(None);
        };
        let range = i128::from(greatest) - i128::from(least) + 1;
        let Some(range) = usize::try_from(range)
            .ok()
            .filter(|range| range / MOST_PER_ROW <= values.len())
        else {
            return Ok(None);
        };
        const NONE: u32 = u32::MAX;
        let (mut numbers, mut distinct) = (vec![NONE; range], Vec::new());
        let mut codes = Vec::with_capacity(values.len());
        for &value in values.values() {
            let number = &mut numbers[(value - least) as usize];
            if *number == NONE {
                *number = code_of(distinct.len())?;
                distinct.push(value);
            }
            codes.push(*number);
        }
        let count = code_of(distinct.len())?;
        let distinct = Int64Array::from(distinct);
        Ok(Some(Self {
            codes,
            count,
            values: vec![cast(&distinct, column.data_type())?],
        }))
    }

    /// Assigns ids by the values of columns, which come in batches, in the order of their first occurrence.
    pub(crate) fn by_value<'a>(
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

    /// A key table from the values of the only column to their ids.
    pub(crate) fn table(&self) -> Result<KeyTable> {
        let [_] = &self.values[..] else {
            return internal_err!("a table of {} columns", self.values.len());
        };
        let keys = KeyChunks::new(&self.values, 1).map_err(error::gpu)?;
        KeyTable::build(&keys, RowCodes::Rows).map_err(error::gpu)
    }
}

/// Returns [`Error::Unsupported`] if `number` does not fit a code.
fn code_of(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| error::gpu(Error::Unsupported(format!("{number} codes"))))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, UInt64Array};

    use super::*;

    #[test]
    fn integers_are_numbered_alike_by_distance_and_by_value() {
        let close = [5, -3, 5, 0, -3, 8, 8].map(i64::from).to_vec();
        let dates = Date32Array::from(vec![19_000, 18_999, 19_000]);
        for (column, is_close) in [
            (Arc::new(Int64Array::from(close)) as ArrayRef, true),
            (Arc::new(dates), false),
            (Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX])), false),
            (Arc::new(Int64Array::from(vec![1, 100, 1])), false),
            (Arc::new(UInt64Array::from(vec![3, 4, 3])), true),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), false),
            (Arc::new(Int64Array::from(Vec::<i64>::new())), false),
            (Arc::new(Int64Array::from(vec![Some(1), None])), false),
        ] {
            let numbered = Numbered::by_distance(&column).unwrap();
            assert_eq!(numbered.is_some(), is_close, "{column:?}");
            let data_type = [column.data_type().clone()];
            let other = Numbered::by_value([slice::from_ref(&column)], &data_type).unwrap();
            let numbered = numbered.unwrap_or_else(|| Numbered::of(&column).unwrap());
            assert_eq!(numbered.codes, other.codes);
            assert_eq!(numbered.count, other.count);
            assert_eq!(&numbered.values, &other.values);
        }
    }
}
