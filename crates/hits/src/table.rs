//! The table, and any range of its rows as batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, RecordBatchReader, StringViewBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::columns::{COLUMNS, MONEY, Values};
use crate::draws::Salt;
use crate::hit::{Hit, Size};
use crate::scale::Scale;

/// Rows of a batch.
const BATCH_ROWS: u64 = 8_192;

/// The table at some scale.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    size: Size,
}

impl Table {
    /// Its name in queries.
    pub const NAME: &'static str = "hits";

    /// The table of a scale.
    pub fn new(scale: Scale) -> Self {
        Self {
            size: Size::new(scale.rows()),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.size.rows
    }

    /// Its columns: numbers, flags, times and text. Only numbers that are not always known are nullable.
    pub fn schema() -> SchemaRef {
        let field = |(name, values): &(&str, Values)| {
            Field::new(*name, values.data_type(), values.is_nullable())
        };
        Arc::new(Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>()))
    }

    /// Generates the rows `range`, counted from 0. Rows beyond the end of the table are omitted.
    pub fn generate(&self, range: Range<u64>) -> Batches {
        let end = range.end.min(self.size.rows);
        Batches {
            schema: Self::schema(),
            size: self.size,
            rows: range.start.min(end)..end,
        }
    }
}

/// The rows of a range, generated on demand, in batches of 8192.
pub struct Batches {
    schema: SchemaRef,
    size: Size,
    rows: Range<u64>,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.rows.end.min(self.rows.start + BATCH_ROWS);
        let rows = self.rows.start..end;
        if rows.is_empty() {
            return None;
        }
        self.rows.start = end;
        let hits: Vec<Hit> = rows.map(|row| Hit::new(&self.size, row)).collect();
        let columns = (1..)
            .zip(COLUMNS)
            .map(|(salt, (_, values))| array(values, salt, &hits));
        let columns: Result<Vec<_>, _> = columns.collect();
        Some(columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns)))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The values of a column for these rows.
fn array(values: &Values, salt: Salt, hits: &[Hit]) -> Result<ArrayRef, ArrowError> {
    let rows = hits.iter();
    Ok(match values {
        Values::Int16(of) => Arc::new(Int16Array::from_iter_values(
            rows.map(|hit| of(hit, salt) as i16),
        )),
        Values::Int32(of) => Arc::new(Int32Array::from_iter_values(
            rows.map(|hit| of(hit, salt) as i32),
        )),
        Values::Int64(of) => Arc::new(Int64Array::from_iter_values(rows.map(|hit| of(hit, salt)))),
        Values::OptionalInt32(of) => {
            let values = rows.map(|hit| of(hit, salt).map(|value| value as i32));
            Arc::new(values.collect::<Int32Array>())
        }
        Values::OptionalInt64(of) => {
            Arc::new(rows.map(|hit| of(hit, salt)).collect::<Int64Array>())
        }
        Values::OptionalFloat(of) => {
            Arc::new(rows.map(|hit| of(hit, salt)).collect::<Float64Array>())
        }
        Values::OptionalMoney(of) => {
            let values = rows.map(|hit| of(hit, salt).map(i128::from));
            let values = values.collect::<Decimal128Array>();
            Arc::new(values.with_precision_and_scale(MONEY.0, MONEY.1)?)
        }
        Values::Bool(of) => {
            let values: Vec<bool> = rows.map(|hit| of(hit, salt)).collect();
            Arc::new(BooleanArray::from(values))
        }
        Values::Date(of) => Arc::new(Date32Array::from_iter_values(
            rows.map(|hit| of(hit, salt) as i32),
        )),
        Values::Timestamp(of) => {
            let micros = rows.map(|hit| of(hit, salt) * 1_000_000);
            Arc::new(TimestampMicrosecondArray::from_iter_values(micros))
        }
        Values::Text(of) => {
            let mut builder = StringViewBuilder::with_capacity(hits.len());
            let mut text = String::new();
            for hit in rows {
                text.clear();
                of(hit, salt, &mut text);
                builder.append_value(&text);
            }
            Arc::new(builder.finish())
        }
    })
}
