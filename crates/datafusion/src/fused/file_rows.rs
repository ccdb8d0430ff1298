//! Reads columns of rows that the device has selected from files, by row number, when their values are needed. For text
//! of a dimension: a query may look up millions of rows and output ten.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, Int64Array, RecordBatch, UInt64Array,
};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::error::DataFusionError;
use futures::future::try_join_all;
use futures::stream::TryStreamExt;
use tokio::runtime::Handle;
use vectile_encodings::Selection;
use vectile_gpu::Error;
use vectile_scan::{Container, Scan, Selected, SelectedRows, Selector};

use crate::error;
use crate::file::ScanFile;

/// Maximum number of cached rows: they take host memory that belongs to no query.
const MOST_KEPT: usize = 1 << 14;

/// If fewer than one in so many rows are read, their numbers are sorted.
const FEW_SHARE: usize = 16;

/// The index of a row that is not read.
const NO_INDEX: u32 = u32::MAX;

/// A row group of a file.
#[derive(Clone)]
pub(crate) struct FileRowGroup {
    pub(crate) scan: Arc<ScanFile>,
    pub(crate) row_group: usize,
}

impl FileRowGroup {
    fn container(&self) -> Arc<dyn Container> {
        Arc::clone(&self.scan.file) as _
    }

    fn rows(&self) -> usize {
        self.container().rows(self.row_group)
    }

    fn error(&self, error: vectile_scan::Error) -> DataFusionError {
        self.scan.error(error)
    }
}

/// Columns of row groups whose rows are numbered throughout.
pub(crate) struct FileRows {
    parts: Vec<FileRowGroup>,
    /// The number of each row group's first row, and behind them the number of all rows.
    firsts: Vec<usize>,
    names: Vec<String>,
    runtime: Handle,
    /// The rows read last, if they are few: other columns are often needed for the same rows.
    last: Mutex<Option<(Vec<usize>, RecordBatch)>>,
}

impl FileRows {
    /// Columns of `parts` by name and type of `schema`. Call it in a runtime, which later reads them.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if a file lacks a column or stores it as another type.
    pub(crate) fn new(parts: Vec<FileRowGroup>, schema: &SchemaRef) -> Result<Self> {
        for part in &parts {
            let own = part.container();
            for field in schema.fields() {
                let of_file = own.schema().field_with_name(field.name());
                if !of_file.is_ok_and(|of_file| of_file.data_type() == field.data_type()) {
                    let (name, data_type) = (field.name(), field.data_type());
                    let file = part.scan.file.location();
                    let reason = format!("{file} has no {name} of type {data_type}");
                    return Err(error::gpu(Error::Unsupported(reason)));
                }
            }
        }
        let mut firsts = vec![0];
        for part in &parts {
            firsts.push(firsts.last().copied().unwrap_or_default() + part.rows());
        }
        Ok(Self {
            parts,
            firsts,
            names: schema.fields().iter().map(|of| of.name().clone()).collect(),
            runtime: Handle::current(),
            last: Mutex::default(),
        })
    }

    /// The values of a column in `rows`; null where the row number is null. Blocks.
    ///
    /// # Errors
    ///
    /// Returns errors of reading files.
    pub(crate) fn values(&self, column: usize, rows: &Int64Array) -> Result<ArrayRef> {
        let all = self.firsts.last().copied().unwrap_or_default();
        let are_many = rows.len() >= all / FEW_SHARE && all < NO_INDEX as usize;
        let (row_numbers, indices) = match are_many {
            true => marked(rows, all),
            false => sorted(rows),
        };
        let name = self.names.get(column);
        let name = name.ok_or_else(|| internal_datafusion_err!("no such column"))?;
        let values = match row_numbers.len() > MOST_KEPT {
            true => self
                .read_all(&row_numbers, std::slice::from_ref(name))?
                .column(0)
                .clone(),
            false => self.batch(row_numbers)?.column(column).clone(),
        };
        Ok(take(&values, &indices, None)?)
    }

    /// All columns of the rows `row_numbers`, which are sorted.
    fn batch(&self, row_numbers: Vec<usize>) -> Result<RecordBatch> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((rows, batch)) = &*last
            && rows == &row_numbers
        {
            return Ok(batch.clone());
        }
        let batch = self.read_all(&row_numbers, &self.names)?;
        *last = Some((row_numbers, batch.clone()));
        Ok(batch)
    }

    /// Reads columns of these rows, from all row groups concurrently.
    fn read_all(&self, row_numbers: &[usize], names: &[String]) -> Result<RecordBatch> {
        let parts = self.parts.iter().zip(self.firsts.windows(2));
        let reads = parts.filter_map(|(part, bounds)| {
            let [first, end] =
                [bounds[0], bounds[1]].map(|bound| row_numbers.partition_point(|row| *row < bound));
            let own: Vec<usize> = row_numbers[first..end]
                .iter()
                .map(|row| row - bounds[0])
                .collect();
            (!own.is_empty()).then(|| read(part.clone(), own, names))
        });
        let reads: Vec<_> = reads.map(|read| self.runtime.spawn(read)).collect();
        let read = self.runtime.block_on(try_join_all(reads));
        let batches = read.map_err(error::interrupted)?.into_iter();
        let batches: Vec<Vec<RecordBatch>> = batches.collect::<Result<_>>()?;
        let batches: Vec<RecordBatch> = batches.into_iter().flatten().collect();
        let schema = match batches.first() {
            Some(first) => first.schema(),
            None => {
                let part = self.parts.first();
                let part = part.ok_or_else(|| internal_datafusion_err!("no row groups"))?;
                Arc::clone(scan(part, names)?.schema())
            }
        };
        Ok(concat_batches(&schema, &batches)?)
    }
}

/// The distinct numbers of rows in ascending order, and the index of each row among them.
fn sorted(rows: &Int64Array) -> (Vec<usize>, UInt64Array) {
    let mut numbers: Vec<usize> = rows.iter().flatten().map(|row| row as usize).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let index = |row: i64| numbers.binary_search(&(row as usize)).ok();
    let indices = rows.iter().map(|row| index(row?).map(|index| index as u64));
    let indices = indices.collect();
    (numbers, indices)
}

/// As [`sorted`], for numbers below `all`, fewer than [`NO_INDEX`]: without a sort.
fn marked(rows: &Int64Array, all: usize) -> (Vec<usize>, UInt64Array) {
    let mut indices = vec![NO_INDEX; all];
    for row in rows.iter().flatten() {
        if let Some(index) = indices.get_mut(row as usize) {
            *index = 0;
        }
    }
    let mut numbers = vec![];
    for (number, index) in indices.iter_mut().enumerate() {
        if *index != NO_INDEX {
            *index = numbers.len() as u32;
            numbers.push(number);
        }
    }
    let index = |row: i64| indices.get(row as usize).copied();
    let own = rows.iter().map(|row| index(row?).map(u64::from));
    let own = own.collect();
    (numbers, own)
}

/// A scan of columns of a row group.
fn scan(part: &FileRowGroup, names: &[String]) -> Result<Scan> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scan = Scan::new(part.container()).with_columns(&names);
    let mut scan = scan.map_err(|error| part.error(error))?;
    scan.row_groups = vec![part.row_group];
    Ok(scan)
}

/// Reads the given rows of a row group.
fn read(
    part: FileRowGroup,
    rows: Vec<usize>,
    names: &[String],
) -> impl Future<Output = Result<Vec<RecordBatch>>> + Send + use<> {
    let scan = scan(&part, names);
    async move {
        let mut scan = scan?;
        scan.selector = Some(Arc::new(SomeRows {
            of: part.rows(),
            rows,
        }));
        let batches = scan.stream().try_collect().await;
        batches.map_err(|error| part.error(error))
    }
}

impl fmt::Debug for FileRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRows")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// Selects the given rows of a row group.
struct SomeRows {
    of: usize,
    rows: Vec<usize>,
}

#[async_trait]
impl Selector for SomeRows {
    fn is_always_asked(&self) -> bool {
        true
    }

    fn window(&self, _: usize) -> usize {
        1
    }

    async fn select(&self, _: Vec<usize>) -> vectile_scan::Result<Option<Selected>> {
        let mut bits = BooleanBufferBuilder::new(self.of);
        bits.append_n(self.of, false);
        self.rows.iter().for_each(|&row| bits.set_bit(row, true));
        let mut selection = Selection::all(0, self.of);
        selection.and_boolean(&BooleanArray::new(bits.finish(), None));
        Ok(Some(Selected {
            rows: SelectedRows::Which(selection),
            memory: Arc::new(()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_rows_are_those_that_are_sorted() {
        let rows = Int64Array::from(vec![Some(7), None, Some(2), Some(7), Some(9), Some(0)]);
        let (numbers, indices) = marked(&rows, 10);
        assert_eq!(numbers, [0, 2, 7, 9]);
        let of_rows = [Some(2), None, Some(1), Some(2), Some(3), Some(0)];
        assert_eq!(indices, UInt64Array::from(of_rows.to_vec()));
        assert_eq!(sorted(&rows), (numbers, indices));
    }
}
