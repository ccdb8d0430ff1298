//! One dictionary per column, or field of one, for a whole Arrow IPC file.
//!
//! The IPC file format allows a dictionary to grow but not to be replaced, while the tables we copy
//! have a dictionary per row group. So the values seen so far are kept in order, new ones are
//! appended, and each batch's keys are rewritten.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, RecordBatch, UInt64Array, make_array, new_empty_array,
};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};

use crate::error::{CliError, Result};

/// The dictionaries of a table's columns.
pub struct GrowingDictionaries(Vec<Growing>);

/// The growing dictionaries of a type.
enum Growing {
    /// The type has none.
    None,
    /// The type is a dictionary.
    Dictionary(Box<Dictionary>),
    /// The dictionaries of its children, in order.
    Within(Vec<Growing>),
}

/// A dictionary that grows.
struct Dictionary {
    values: ArrayRef,
    converter: RowConverter,
    keys: HashMap<OwnedRow, u64>,
    /// The dictionaries within its values.
    within: Growing,
}

impl GrowingDictionaries {
    /// Empty dictionaries for the columns of `schema`.
    pub fn new(schema: &SchemaRef) -> Self {
        let fields = schema.fields().iter();
        GrowingDictionaries(fields.map(|field| Growing::of(field.data_type())).collect())
    }

    /// Rewrites the keys of a batch to the grown dictionaries.
    pub fn grow(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(&mut self.0);
        let columns = columns.map(|(column, growing)| match growing {
            Growing::None => Ok(Arc::clone(column)),
            growing => Ok(make_array(growing.rewrite(column.to_data())?)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }
}

impl Growing {
    fn of(data_type: &DataType) -> Self {
        let children: Vec<&DataType> = match data_type {
            DataType::Dictionary(_, values) => {
                // values whose rows cannot be compared keep the dictionaries that they have
                let dictionary = Dictionary::new(values).ok();
                return dictionary.map_or(Self::None, |of| Self::Dictionary(Box::new(of)));
            }
            DataType::List(child)
            | DataType::LargeList(child)
            | DataType::ListView(child)
            | DataType::LargeListView(child)
            | DataType::FixedSizeList(child, _)
            | DataType::Map(child, _) => vec![child.data_type()],
            DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
            DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
            DataType::Union(fields, _) => {
                fields.iter().map(|(_, field)| field.data_type()).collect()
            }
            _ => vec![],
        };
        let children: Vec<Self> = children.into_iter().map(Self::of).collect();
        match children.iter().all(|child| matches!(child, Self::None)) {
            true => Self::None,
            false => Self::Within(children),
        }
    }

    /// Rewrites the keys of an array to the grown dictionaries.
    fn rewrite(&mut self, array: ArrayData) -> Result<ArrayData> {
        match self {
            Self::None => Ok(array),
            Self::Dictionary(dictionary) => dictionary.rewrite(&make_array(array)),
            Self::Within(growing) => {
                let children = array.child_data().iter().cloned().zip(growing);
                let children = children.map(|(child, growing)| growing.rewrite(child));
                let children = children.collect::<Result<_>>()?;
                Ok(array.into_builder().child_data(children).build()?)
            }
        }
    }
}

impl Dictionary {
    fn new(values: &DataType) -> Result<Self, ArrowError> {
        Ok(Self {
            values: new_empty_array(values),
            converter: RowConverter::new(vec![SortField::new(values.clone())])?,
            keys: HashMap::new(),
            within: Growing::of(values),
        })
    }

    fn rewrite(&mut self, column: &ArrayRef) -> Result<ArrayData> {
        let dictionary = column.as_any_dictionary();
        let new_keys = self.add(dictionary.values())?;
        let old_keys = cast(dictionary.keys(), &DataType::UInt64)?;
        let keys = take(&new_keys, old_keys.as_primitive::<UInt64Type>(), None)?;
        let keys = cast_exactly(&keys, dictionary.keys().data_type())?;
        let data = keys.to_data().into_builder();
        let data = data.data_type(column.data_type().clone());
        // joined values may have other dictionaries than before
        let values = self.within.rewrite(self.values.to_data())?;
        Ok(data.add_child_data(values).build()?)
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
    use arrow::array::{DictionaryArray, Int8Array, ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int8Type, Schema};
    use arrow::ipc::reader::FileReader;
    use arrow::ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions};

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

    /// Within structs, lists and other dictionaries.
    #[test]
    fn nested_dictionaries_grow() {
        let batch = |values: &[&str]| {
            let rows = values.len();
            let text: DictionaryArray<Int8Type> = values.iter().copied().collect();
            let text: ArrayRef = Arc::new(text);
            let field = Arc::new(Field::new("d", text.data_type().clone(), true));
            let fields = vec![Arc::clone(&field)].into();
            let within: ArrayRef = Arc::new(StructArray::new(fields, vec![text.clone()], None));
            let keys = Int8Array::from_iter_values((0..rows as i8).rev());
            let outer = DictionaryArray::new(keys, Arc::clone(&within));
            let offsets = OffsetBuffer::from_lengths(vec![1; rows]);
            let list = ListArray::new(field, offsets, text, None);
            let columns: [(&str, ArrayRef); 3] = [
                ("struct", within),
                ("list", Arc::new(list)),
                ("dictionary", Arc::new(outer)),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let batches = [batch(&["b", "a", "b"]), batch(&["c", "a"]), batch(&["d"])];
        let schema = batches[0].schema();
        let options =
            IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
        let mut writer = FileWriter::try_new_with_options(vec![], &schema, options).unwrap();
        let mut growing = GrowingDictionaries::new(&schema);
        for batch in &batches {
            writer.write(&growing.grow(batch).unwrap()).unwrap();
        }
        let file = writer.into_inner().unwrap();
        let reader = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
        let read: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        let printed = |batches: &[RecordBatch]| {
            let printed = arrow::util::pretty::pretty_format_batches(batches);
            printed.unwrap().to_string()
        };
        assert_eq!(printed(&read), printed(&batches));
    }
}
