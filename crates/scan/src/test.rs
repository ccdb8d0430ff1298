//! Tests of decoded values, which an engine brings.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::Result;

/// Says which rows pass. Closures of this form are tests, too.
pub trait RowTest: Any + Send + Sync {
    /// An entry for each row; null counts as false. The answer for a row depends on that row only.
    ///
    /// # Errors
    ///
    /// [`Error::External`](crate::Error::External) with the engine's error. A test of one column is asked
    /// about distinct values first, and no selected row may have them. If that fails, it is asked about
    /// the selected rows, and only their error counts.
    fn evaluate(&self, rows: &RecordBatch) -> Result<BooleanArray>;
}

impl<F> RowTest for F
where
    F: Fn(&RecordBatch) -> Result<BooleanArray> + Send + Sync + 'static,
{
    fn evaluate(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        self(rows)
    }
}

/// A test of decoded values of some columns.
pub struct Test {
    columns: Vec<usize>,
    /// What `rows` is evaluated on: `columns`, in that order.
    schema: SchemaRef,
    rows: Arc<dyn RowTest>,
    /// The values last asked about, and the answer.
    last: Mutex<Option<(Weak<dyn Array>, BooleanArray)>>,
}

/// Fewer values are not worth remembering.
const REMEMBERED_VALUES: usize = 16;

impl Test {
    /// `rows` is evaluated on batches of `columns`, which are indices in `schema`, in that order.
    pub fn new(columns: Vec<usize>, schema: &Schema, rows: Arc<dyn RowTest>) -> Self {
        let fields = columns
            .iter()
            .filter_map(|&column| schema.fields().get(column));
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
            columns,
            rows,
            last: Mutex::new(None),
        }
    }

    /// Indices of the columns in the container's schema.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// What is evaluated.
    pub fn rows(&self) -> &dyn RowTest {
        self.rows.as_ref()
    }

    /// Whether each of the distinct values of the one column passes. A column hands out the same
    /// array of them for every window of a row group, so the last answer is remembered.
    ///
    /// # Errors
    ///
    /// Those of [`RowTest::evaluate`].
    pub fn evaluate_values(&self, values: &ArrayRef) -> Result<BooleanArray> {
        if values.len() < REMEMBERED_VALUES {
            return self.evaluate(vec![Arc::clone(values)], values.len());
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, passed)) = last.as_ref()
            && asked
                .upgrade()
                .is_some_and(|asked| Arc::ptr_eq(&asked, values))
        {
            return Ok(passed.clone());
        }
        let passed = self.evaluate(vec![Arc::clone(values)], values.len())?;
        *last = Some((Arc::downgrade(values), passed.clone()));
        Ok(passed)
    }

    /// Whether each of `rows` rows passes. `values` are those of the columns.
    ///
    /// # Errors
    ///
    /// Those of [`RowTest::evaluate`].
    pub fn evaluate(&self, values: Vec<ArrayRef>, rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), values, &options)?;
        self.rows.evaluate(&batch)
    }
}
