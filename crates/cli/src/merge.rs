//! Several input files as one table: one schema for all, each batch adapted to it.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::error::{CliError, Result};
use crate::source::{InputFile, PARTITION_TYPE};

/// Merges the schemas of several files by column name. Columns that a file lacks are null there;
/// numbers of different widths meet in the wider type; anything else must agree.
pub fn merge_schemas(files: &[(String, SchemaRef)]) -> Result<SchemaRef> {
    let Some((_, first)) = files.first() else {
        return Ok(Arc::new(Schema::empty()));
    };
    if files.iter().all(|(_, schema)| schema == first) {
        return Ok(Arc::clone(first));
    }
    let mut merged: Vec<Field> = Vec::new();
    for (name, schema) in files {
        for field in schema.fields() {
            match merged.iter_mut().find(|known| known.name() == field.name()) {
                Some(known) => *known = merge_fields(known, field, name)?,
                None => merged.push(field.as_ref().clone()),
            }
        }
    }
    let merged = merged.into_iter().map(|field| {
        let everywhere = files.iter().all(|(_, s)| s.index_of(field.name()).is_ok());
        let nullable = field.is_nullable() || !everywhere;
        field.with_nullable(nullable)
    });
    Ok(Arc::new(Schema::new(merged.collect::<Vec<_>>())))
}

fn merge_fields(known: &Field, field: &FieldRef, file: &str) -> Result<Field> {
    let data_type = common_type(known.data_type(), field.data_type()).ok_or_else(|| {
        CliError::failed(format!(
            "column {} is {} in {file} and {} in the files before it",
            field.name(),
            field.data_type(),
            known.data_type()
        ))
        .hint("convert the files separately: name a directory as OUT")
    })?;
    let nullable = known.is_nullable() || field.is_nullable();
    Ok(known
        .clone()
        .with_data_type(data_type)
        .with_nullable(nullable))
}

/// The type that holds every value of both, unchanged.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Float64, Int64, Null, UInt64};
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Null, other) | (other, Null) => Some(other.clone()),
        (a, b) if a.is_signed_integer() && b.is_signed_integer() => Some(Int64),
        (a, b) if a.is_unsigned_integer() && b.is_unsigned_integer() => Some(UInt64),
        // What JSON and CSV tell apart only by whether a fraction happens to occur.
        (Int64, Float64) | (Float64, Int64) => Some(Float64),
        (a, b) if a.is_floating() && b.is_floating() => Some(Float64),
        _ => None,
    }
}

/// A file's schema with its partition columns behind it.
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

/// The rows of `batch`, of `file`, with the columns of `schema`.
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
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        return Ok(cast_with_options(column, field.data_type(), &options)?);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        let fields = fields.iter().map(|(n, t)| Field::new(*n, t.clone(), false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    #[test]
    fn schemas_merge_by_name() {
        let a = schema(&[("x", DataType::Int64), ("y", DataType::Utf8)]);
        let b = schema(&[
            ("y", DataType::Utf8),
            ("x", DataType::Float64),
            ("z", DataType::Date32),
        ]);
        let merged = merge_schemas(&[("a".into(), a), ("b".into(), b)]).unwrap();
        let expected = Schema::new(vec![
            Field::new("x", DataType::Float64, false),
            Field::new("y", DataType::Utf8, false),
            Field::new("z", DataType::Date32, true),
        ]);
        assert_eq!(merged.as_ref(), &expected);
    }

    #[test]
    fn types_that_would_change_values_do_not_merge() {
        let a = schema(&[("x", DataType::Int64)]);
        let b = schema(&[("x", DataType::Utf8)]);
        let error = merge_schemas(&[("a.csv".into(), a), ("b.csv".into(), b)]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("column x is Utf8 in b.csv and Int64 in the files before it"),
            "{text}"
        );
    }
}
