//! Tests of decoded values, supplied by an engine.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use vectile_encodings::Automaton;

use crate::error::Result;

/// A predicate on rows. Closures of this form are tests, too.
pub trait RowTest: Any + Send + Sync {
    /// One entry per row; null counts as false. The result for a row depends on that row only.
    ///
    /// # Errors
    ///
    /// [`Error::External`](crate::Error::External) with the engine's error. A test of one column is evaluated on
    /// distinct values first, which selected rows may not have. If that fails, it is evaluated on the selected rows,
    /// and only their error counts.
    fn evaluate(&self, rows: &RecordBatch) -> Result<BooleanArray>;

    /// The automaton that passes the strings that pass the test, if there is one. Nulls are not considered. The test is
    /// one of a text column, the only column of `schema`.
    fn automaton(&self, _schema: &Schema) -> Option<Automaton> {
        None
    }
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
    /// The schema of the batches that `rows` is evaluated on: `columns`, in that order.
    schema: SchemaRef,
    rows: Arc<dyn RowTest>,
    /// Computed by the first call.
    automaton: OnceLock<Option<Arc<Automaton>>>,
    /// The values last evaluated, and the result.
    last: Mutex<Option<(Weak<dyn Array>, BooleanArray)>>,
}

/// Results for fewer values are not worth caching.
const REMEMBERED_VALUES: usize = 16;

impl Test {
    /// A test that evaluates `rows` on batches of `columns`: indices in `schema`, in that order.
    pub fn new(columns: Vec<usize>, schema: &Schema, rows: Arc<dyn RowTest>) -> Self {
        let fields = columns
            .iter()
            .filter_map(|&column| schema.fields().get(column));
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
            columns,
            rows,
            automaton: OnceLock::new(),
            last: Mutex::new(None),
        }
    }

    /// Indices of the columns in the container's schema.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The predicate.
    pub fn rows(&self) -> &dyn RowTest {
        self.rows.as_ref()
    }

    /// The automaton that passes the strings that pass the test, if there is one. Nulls are not considered.
    pub fn automaton(&self) -> Option<Arc<Automaton>> {
        let automaton = self.automaton.get_or_init(|| {
            let is_single = self.columns.len() == 1;
            let automaton = is_single.then(|| self.rows.automaton(&self.schema));
            automaton.flatten().map(Arc::new)
        });
        automaton.clone()
    }

    /// Evaluates the test on the distinct values of its one column. A column returns the same array of them for every
    /// window of a row group, so the last result is cached.
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

    /// Evaluates the test on `rows` rows. `values` are the values of its columns.
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
