//! Decodes a column of a row group, and packs it: flat ones as `flat` says, others by the `parquet` crate.

use arrow::array::{Array, ArrayRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::RowGroupMetaData;
use vectile_encodings::{Column, Encoding, MAX_ROWS};

use crate::chunks::Chunks;
use crate::codes::{self, MAX_ENTRIES};
use crate::delta;
use crate::error::{Fault, contain, corrupt, ensure, unsupported};
use crate::flat;
use crate::pages::{self, Pages};
use crate::schema::{Columns, TableColumn};

/// The most bytes of values of a fixed length in a row group.
const MAX_FIXED_BYTES: u64 = i32::MAX as u64;

/// A column of a row group to decode.
pub(crate) struct Task<'a> {
    pub(crate) columns: &'a Columns,
    /// The index of the column in the table.
    pub(crate) root: usize,
    pub(crate) row_group: &'a RowGroupMetaData,
    /// The index of the row group in the file.
    pub(crate) number: usize,
    pub(crate) rows: usize,
    /// The column's chunks, a part for each leaf.
    pub(crate) chunks: Chunks,
}

impl Task<'_> {
    /// The column and the bytes of memory that it takes.
    ///
    /// # Errors
    ///
    /// [`Fault::Unsupported`] and [`Fault::Corrupt`].
    pub(crate) fn run(self, column: &TableColumn) -> Result<(Column, usize), Fault> {
        if let Some(reason) = &column.unsupported {
            return unsupported(reason.clone());
        }
        if self.rows > MAX_ROWS {
            return unsupported(format!("{} rows, at most {MAX_ROWS}", self.rows));
        }
        let pages = self.check(column)?;
        if let Some(packed) = self.flat(column, &pages)? {
            return Ok(packed);
        }
        let is_small = |entries: u64| entries <= MAX_ENTRIES;
        if column.may_be_dictionary && pages.dictionary.is_some_and(is_small) {
            let array = self.array(&self.columns.dictionaries)?;
            if let Some(packed) = codes::column(&array, &column.data_type)? {
                return Ok(packed);
            }
        }
        let array = self.array(&self.columns.values)?;
        ensure(array.data_type() == &column.data_type, || {
            format!("{} in a column of {}", array.data_type(), column.data_type)
        })?;
        Ok(Column::packed(
            &array,
            Encoding::of_packed(&column.data_type),
        )?)
    }

    /// Checks what the decoder trusts; returns the pages of the last leaf.
    fn check(&self, column: &TableColumn) -> Result<Pages, Fault> {
        let mut pages = Pages::default();
        for (leaf, (_, bytes)) in column.leaves.clone().zip(&self.chunks.parts) {
            let Some(chunk) = self.row_group.columns().get(leaf) else {
                return corrupt(format!("no leaf {leaf}"));
            };
            let descr = chunk.column_descr();
            if descr.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY {
                let length = u64::try_from(descr.type_length()).unwrap_or(u64::MAX);
                let values = chunk.num_values().max(self.rows as i64) as u64;
                if length.saturating_mul(values) > MAX_FIXED_BYTES {
                    return unsupported(format!("{values} values of {length} bytes"));
                }
            }
            pages = pages::check(bytes, chunk)?;
            if pages.has_delta_lengths {
                contain(|| delta::check(&self.chunks, chunk, self.rows))?;
            }
        }
        Ok(pages)
    }

    /// The column, if it has one leaf that this crate decodes itself.
    fn flat(&self, column: &TableColumn, pages: &Pages) -> Result<Option<(Column, usize)>, Fault> {
        let chunk = self.row_group.columns().get(column.leaves.start);
        match (chunk, &self.chunks.parts[..]) {
            (Some(chunk), [(_, bytes)]) => flat::decode(column, chunk, bytes, pages, self.rows),
            _ => Ok(None),
        }
    }

    /// All rows of the column, by the `parquet` crate.
    fn array(&self, reader: &ArrowReaderMetadata) -> Result<ArrayRef, Fault> {
        contain(|| {
            let mask = ProjectionMask::roots(reader.parquet_schema(), [self.root]);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.chunks.clone(),
                reader.clone(),
            );
            let mut batches = builder
                .with_row_groups(vec![self.number])
                .with_projection(mask)
                .with_batch_size(self.rows)
                .build()?;
            let Some(batch) = batches.next().transpose()? else {
                return corrupt("no rows");
            };
            let rows = batch.num_rows();
            ensure(rows == self.rows, || {
                format!("{rows} rows in pages, {} in the row group", self.rows)
            })?;
            match batch.columns() {
                [column] => Ok(ArrayRef::clone(column)),
                columns => corrupt(format!("{} columns instead of one", columns.len())),
            }
        })
    }
}
