//! One dictionary per column for a whole Arrow IPC file.
//!
//! The IPC file format allows a dictionary to grow but not to be replaced, while the tables we copy
//! have a dictionary per row group. So the values seen so far are kept in order, new ones appended,
//! and each batch's keys rewritten.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array, make_array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};

use crate::error::{CliError, Result};

/// The dictionaries of a table's columns; `None` for columns that have none.
pub struct GrowingDictionaries(Vec<Option<Growing>>);

struct Growing {
    values: ArrayRef,
    converter: RowConverter,
    keys: HashMap<OwnedRow, u64>,
}

impl GrowingDictionaries {
    /// Empty dictionaries for the dictionary columns of `schema`.
    pub fn new(schema: &SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Dictionary(_, values) => Growing::new(values).ok(),
            _ => None,
        });
        GrowingDictionaries(columns.collect())
    }

    /// The same rows with keys into the grown dictionaries.
    pub fn grow(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(&mut self.0);
        let columns = columns.map(|(column, growing)| match growing {
            Some(growing) => growing.rewrite(column),
            None => Ok(Arc::clone(column)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }
}

impl Growing {
    fn new(values: &DataType) -> Result<Self, ArrowError> {
        Ok(Growing {
            values: arrow::array::new_empty_array(values),
            converter: RowConverter::new(vec![SortField::new(values.clone())])?,
            keys: HashMap::new(),
        })
    }

    fn rewrite(&mut self, column: &ArrayRef) -> Result<ArrayRef> {
        let dictionary = column.as_any_dictionary();
        let new_keys = self.add(dictionary.values())?;
        let old_keys = cast(dictionary.keys(), &DataType::UInt64)?;
        let keys = take(
            &new_keys,
            old_keys.as_primitive::<arrow::datatypes::UInt64Type>(),
            None,
        )?;
        let keys = cast_exactly(&keys, dictionary.keys().data_type())?;
        let data = keys
            .to_data()
            .into_builder()
            .data_type(column.data_type().clone());
        let data = data.add_child_data(self.values.to_data()).build()?;
        Ok(make_array(data))
    }

    /// Adds the values not seen before; returns the key of each of `values`.
    fn add(&mut self, values: &ArrayRef) -> Result<UInt64Array> {
        let rows = self.converter.convert_columns(&[Arc::clone(values)])?;
        let mut keys = Vec::with_capacity(values.len());
        let mut fresh = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let next = self.keys.len() as u64;
            let key = *self.keys.entry(row.owned()).or_insert(next);
            if key == next {
                fresh.push(index as u64);
            }
            keys.push(key);
        }
        if !fresh.is_empty() {
            let fresh = take(values, &UInt64Array::from(fresh), None)?;
            self.values = concat(&[&self.values, &fresh])?;
        }
        Ok(UInt64Array::from(keys))
    }
}

fn cast_exactly(keys: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = arrow::compute::CastOptions {
        safe: false,
        ..Default::default()
    };
    arrow::compute::cast_with_options(keys, to, &options).map_err(|_| {
        CliError::failed(format!(
            "the column's dictionaries together have more values than {to} keys can number"
        ))
        .hint("write an Arrow stream (.arrows) instead: there, dictionaries may change")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int8Array, StringArray};
    use arrow::datatypes::{Field, Int8Type, Schema};

    #[test]
    fn batches_share_one_growing_dictionary() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let schema = Arc::new(Schema::new(vec![Field::new("d", dictionary, true)]));
        let mut growing = GrowingDictionaries::new(&schema);
        let batches = [
            vec![Some("b"), None, Some("a")],
            vec![Some("c"), Some("a"), Some("b")],
        ];
        for (values, keys) in batches.iter().zip([
            vec![Some(0), None, Some(1)],
            vec![Some(2), Some(1), Some(0)],
        ]) {
            let column: DictionaryArray<Int8Type> = values.iter().copied().collect();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(column)]).unwrap();
            let grown = growing.grow(&batch).unwrap();
            let column = grown.column(0).as_dictionary::<Int8Type>();
            assert_eq!(column.keys(), &Int8Array::from(keys));
            let strings = cast(grown.column(0), &DataType::Utf8).unwrap();
            assert_eq!(
                strings.as_string::<i32>(),
                &values.iter().copied().collect::<StringArray>()
            );
        }
    }
}
