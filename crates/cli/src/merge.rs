//! Several input files as one table: one schema for all, each batch adapted to it.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow::compute::{CastOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::common::nested_struct::cast_column;
use vectile_datafusion::{MergeError, common_type};

use crate::error::{CliError, Result};
use crate::source::{InputFile, PARTITION_TYPE};

/// Merges the schemas of several files by the rule of tables, and by one more: integers and floats, which JSON and CSV
/// distinguish only by the presence of a fraction, merge to float. `adapt` refuses integers that this would round.
pub fn merge_schemas(files: &[(String, SchemaRef)]) -> Result<SchemaRef> {
    let common = |a: &DataType, b: &DataType| match (a.is_integer(), b.is_integer()) {
        (true, false) if b.is_floating() => Some(b.clone()),
        (false, true) if a.is_floating() => Some(a.clone()),
        _ => common_type(a, b),
    };
    vectile_datafusion::merge_schemas(files, common).map_err(|error| {
        let failed = CliError::failed(error.to_string());
        match error {
            MergeError::Types { .. } => failed.hint(SEPARATELY),
            MergeError::Duplicate { .. } => failed.hint("rename them where the file is made"),
            _ => failed,
        }
    })
}

const SEPARATELY: &str = "convert the files separately: name a directory as OUT";

/// A file's schema, followed by its partition columns.
pub fn with_partitions(file: &InputFile, schema: &SchemaRef) -> SchemaRef {
    let present = |name: &str| schema.index_of(name).is_ok();
    let new = file.partitions.iter().filter(|(name, _)| !present(name));
    let new: Vec<Field> = new
        .map(|(name, _)| Field::new(name, PARTITION_TYPE, true))
        .collect();
    if new.is_empty() {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| field.as_ref().clone());
    let fields: Vec<Field> = fields.chain(new).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The rows of `batch`, from `file`, with the columns of `schema`.
pub fn adapt(batch: &RecordBatch, file: &InputFile, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = schema
        .fields()
        .iter()
        .map(|field| adapt_column(batch, file, field));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

fn adapt_column(batch: &RecordBatch, file: &InputFile, field: &FieldRef) -> Result<ArrayRef> {
    if let Some(column) = batch.column_by_name(field.name()) {
        check_exact(column, field)?;
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        return Ok(cast_column(column, field.data_type(), &options)?);
    }
    let partition = file
        .partitions
        .iter()
        .find(|(name, _)| name == field.name());
    match partition {
        Some((_, Some(value))) => {
            let values = std::iter::repeat_n(Some(value), batch.num_rows());
            Ok(Arc::new(values.collect::<StringArray>()))
        }
        _ => Ok(new_null_array(field.data_type(), batch.num_rows())),
    }
}

/// Refuses integers that become floats and are too large to be exact.
fn check_exact(column: &ArrayRef, field: &Field) -> Result<()> {
    let bits = match field.data_type() {
        DataType::Float16 => 11,
        DataType::Float32 => f32::MANTISSA_DIGITS,
        DataType::Float64 => f64::MANTISSA_DIGITS,
        _ => return Ok(()),
    };
    let inexact = match column.data_type() {
        from if from.is_signed_integer() => {
            let values = cast(column, &DataType::Int64)?;
            let mut values = values.as_primitive::<Int64Type>().iter().flatten();
            values
                .find(|value| value.unsigned_abs() > 1 << bits)
                .map(i128::from)
        }
        from if from.is_unsigned_integer() => {
            let values = cast(column, &DataType::UInt64)?;
            let mut values = values.as_primitive::<UInt64Type>().iter().flatten();
            values.find(|value| *value > 1 << bits).map(i128::from)
        }
        _ => None,
    };
    match inexact {
        None => Ok(()),
        Some(value) => Err(CliError::failed(format!(
            "column {} is {} here and {} in another file, which may not hold its value {value} exactly",
            field.name(),
            column.data_type(),
            field.data_type(),
        ))
        .hint(SEPARATELY)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::array::{Int64Array, UInt64Array};

    fn schema(data_type: DataType) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", data_type, false)]))
    }

    #[test]
    fn integers_meet_floats() {
        for (a, b) in [
            (DataType::Int64, DataType::Float64),
            (DataType::Float32, DataType::UInt8),
        ] {
            let float = if a.is_floating() { &a } else { &b };
            let files = [
                ("a".into(), schema(a.clone())),
                ("b".into(), schema(b.clone())),
            ];
            assert_eq!(merge_schemas(&files).unwrap(), schema(float.clone()));
        }
        let files = [
            ("a.csv".into(), schema(DataType::Int64)),
            ("b.csv".into(), schema(DataType::Utf8)),
        ];
        let text = merge_schemas(&files).unwrap_err().to_string();
        assert!(
            text.contains("column x is Utf8 in b.csv and Int64 in the files before it"),
            "{text}"
        );
    }

    #[test]
    fn integers_become_floats_only_exactly() {
        let check = |column: ArrayRef, data_type: DataType| {
            check_exact(&column, &Field::new("x", data_type, true)).is_ok()
        };
        let signed = |value: i64| Arc::new(Int64Array::from(vec![None, Some(value)])) as ArrayRef;
        let unsigned = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        for (bits, float) in [
            (11, DataType::Float16),
            (24, DataType::Float32),
            (53, DataType::Float64),
        ] {
            assert!(check(signed(-(1 << bits)), float.clone()), "{float}");
            assert!(!check(signed(-(1 << bits) - 1), float.clone()), "{float}");
            assert!(check(unsigned(1 << bits), float.clone()), "{float}");
            assert!(!check(unsigned((1 << bits) + 1), float.clone()), "{float}");
        }
        assert!(!check(signed(i64::MIN), DataType::Float64));
        assert!(check(signed(i64::MAX), DataType::Int64));
    }
}
