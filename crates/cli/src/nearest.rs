//! Converts types that Parquet lacks to the nearest ones it has. Otherwise they would be stored as
//! integers, and only readers that know Arrow would recognise them.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{CliError, Result};

/// The schema with types that Parquet has: times in milliseconds or finer, dates in days.
pub fn parquet_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = nearest_fields(schema.fields());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn nearest_fields(fields: &Fields) -> Fields {
    fields.iter().map(nearest_field).collect()
}

fn nearest_field(field: &FieldRef) -> FieldRef {
    let nearest = nearest(field.data_type());
    Arc::new(Field::clone(field).with_data_type(nearest))
}

fn nearest(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => DataType::Date32,
        DataType::List(item) => DataType::List(nearest_field(item)),
        DataType::LargeList(item) => DataType::LargeList(nearest_field(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(nearest_field(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(nearest_field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(nearest_fields(fields)),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(nearest(values)))
        }
        other => other.clone(),
    }
}

/// Converts the rows of `batch` to `schema`, which is [`parquet_schema`] of theirs.
///
/// # Errors
///
/// If a value would change: a time beyond the range of milliseconds, a date with a time of day.
pub fn fit(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| fit_column(column, field));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

fn fit_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let fitted = cast_with_options(column, field.data_type(), &options)?;
    let back = cast_with_options(&fitted, column.data_type(), &options)?;
    match back.as_ref() == column.as_ref() {
        true => Ok(fitted),
        false => Err(CliError::failed(format!(
            "column {} is {}, with values that {}, the nearest type in Parquet, does not have",
            field.name(),
            column.data_type(),
            field.data_type()
        ))
        .hint("cast it to a timestamp in milliseconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Date32Array, Date64Array, StructArray, Time32MillisecondArray, Time32SecondArray,
        TimestampMillisecondArray, TimestampSecondArray,
    };

    const DAY: i64 = 86_400_000;

    fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    #[test]
    fn seconds_become_milliseconds_and_dates_days() {
        let inner = |array: ArrayRef| -> ArrayRef {
            let field = Arc::new(Field::new("in", array.data_type().clone(), true));
            Arc::new(StructArray::from(vec![(field, array)]))
        };
        let before = table(vec![
            (
                "at",
                Arc::new(TimestampSecondArray::from(vec![Some(-1), None])),
            ),
            (
                "t",
                inner(Arc::new(Time32SecondArray::from(vec![Some(7), None]))),
            ),
            ("d", Arc::new(Date64Array::from(vec![Some(-3 * DAY), None]))),
        ]);
        let after = table(vec![
            (
                "at",
                Arc::new(TimestampMillisecondArray::from(vec![Some(-1000), None])),
            ),
            (
                "t",
                inner(Arc::new(Time32MillisecondArray::from(vec![
                    Some(7000),
                    None,
                ]))),
            ),
            ("d", Arc::new(Date32Array::from(vec![Some(-3), None]))),
        ]);
        let schema = parquet_schema(&before.schema());
        assert_eq!(fit(&before, &schema).unwrap(), after);
    }

    #[test]
    fn values_that_would_change_are_errors() {
        for column in [
            Arc::new(Date64Array::from(vec![DAY + 1])) as ArrayRef,
            Arc::new(TimestampSecondArray::from(vec![i64::MAX / 2])),
        ] {
            let batch = table(vec![("c", column)]);
            let schema = parquet_schema(&batch.schema());
            assert!(fit(&batch, &schema).is_err());
        }
    }
}
