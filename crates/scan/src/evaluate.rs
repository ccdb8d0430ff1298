//! Narrows a selection of rows by a filter.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use vectile_encodings::{Column, Selection};

use crate::container::Container;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::test::Test;

/// Decoded rows that are in memory together take about this many bytes at most, unless it is a single row.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;

/// The columns of a row group read so far.
pub(crate) struct Columns {
    container: Arc<dyn Container>,
    row_group: usize,
    /// By index in the container's schema.
    columns: Vec<Option<Column>>,
}

impl Columns {
    /// No columns of `row_group` yet.
    pub(crate) fn new(container: Arc<dyn Container>, row_group: usize) -> Self {
        let columns = vec![None; container.schema().fields().len()];
        Self {
            container,
            row_group,
            columns,
        }
    }

    /// Adds columns that were read.
    pub(crate) fn add(&mut self, columns: Vec<Option<Column>>) {
        for (slot, column) in self.columns.iter_mut().zip(columns) {
            if column.is_some() {
                *slot = column;
            }
        }
    }

    /// Returns true if the column was read.
    pub(crate) fn has(&self, index: usize) -> bool {
        matches!(self.columns.get(index), Some(Some(_)))
    }

    /// The selected rows of a column.
    fn select(&self, index: usize, selection: &Selection) -> Result<ArrayRef> {
        let selected = self.get(index)?.select(selection);
        selected.map_err(|error| self.error(index, error))
    }

    /// The selected rows of several columns.
    pub(crate) fn select_all(
        &self,
        indices: &[usize],
        selection: &Selection,
    ) -> Result<Vec<ArrayRef>> {
        let indices = indices.iter();
        indices
            .map(|&index| self.select(index, selection))
            .collect()
    }

    /// Estimated bytes of the selected rows of some columns once decoded.
    pub(crate) fn decoded_bytes(&self, indices: &[usize], selection: &Selection) -> Result<u64> {
        indices.iter().try_fold(0u64, |bytes, &index| {
            let column = self.get(index)?.decoded_bytes(selection);
            let column = column.map_err(|error| self.error(index, error))?;
            Ok(bytes.saturating_add(column))
        })
    }

    fn get(&self, index: usize) -> Result<&Column> {
        let column = self.columns.get(index).and_then(Option::as_ref);
        column.ok_or_else(|| Error::Internal(format!("column {index} was not read")))
    }

    fn error(&self, index: usize, error: vectile_encodings::Error) -> Error {
        self.container.error(self.row_group, index, error)
    }
}

/// Keeps the rows of `selection` that `node` selects.
pub(crate) fn narrow(node: &Node, columns: &Columns, selection: &mut Selection) -> Result<()> {
    match node {
        Node::Constant(true) => Ok(()),
        Node::Constant(false) => {
            *selection = Selection::none(selection.first_vector(), selection.rows());
            Ok(())
        }
        Node::Leaf(leaf) => {
            let column = columns.get(leaf.column)?;
            let filtered = column.filter_field(&leaf.path, &leaf.predicate, selection);
            filtered.map_err(|error| columns.error(leaf.column, error))
        }
        Node::PerValue(test) => narrow_per_value(test, columns, selection),
        Node::Rows(test) => narrow_rows(test, columns, selection),
        Node::And(children) => {
            for child in children {
                if selection.is_empty() {
                    break;
                }
                narrow(child, columns, selection)?;
            }
            Ok(())
        }
        Node::Or(children) => narrow_any(children, columns, selection),
    }
}

/// Evaluates each child only on rows that no earlier child has selected.
fn narrow_any(children: &[Node], columns: &Columns, selection: &mut Selection) -> Result<()> {
    let mut matched = Selection::none(selection.first_vector(), selection.rows());
    for child in children {
        if selection.is_empty() {
            break;
        }
        let mut selected = selection.clone();
        narrow(child, columns, &mut selected)?;
        matched.or(&selected);
        selection.and_not(&selected);
    }
    *selection = matched;
    Ok(())
}

/// Evaluates the test on distinct values. Those may include some that no selected row has, so if the expression fails
/// on them (a cast, a division) the selected rows are evaluated instead.
fn narrow_per_value(test: &Test, columns: &Columns, selection: &mut Selection) -> Result<()> {
    let Some(&index) = test.columns().first() else {
        return narrow_rows(test, columns, selection);
    };
    let mut failed = false;
    let mut ask = |values: &ArrayRef| -> vectile_encodings::Result<BooleanArray> {
        let passed = test.evaluate_values(values);
        passed.map_err(|error| {
            failed = true;
            ArrowError::ExternalError(Box::new(error)).into()
        })
    };
    let before = selection.clone();
    let column = columns.get(index)?;
    match column.filter_text(&|| test.automaton(), &mut ask, selection) {
        Ok(()) => Ok(()),
        Err(_) if failed => {
            *selection = before;
            narrow_rows(test, columns, selection)
        }
        Err(error) => Err(columns.error(index, error)),
    }
}

/// Decodes the selected rows of the test's columns, as many at a time as fit [`BATCH_BYTES`].
fn narrow_rows(test: &Test, columns: &Columns, selection: &mut Selection) -> Result<()> {
    let mut rest = selection.clone();
    while !rest.is_empty() {
        let size = |rows: &Selection| columns.decoded_bytes(test.columns(), rows);
        let (count, _) = rest.fitting(BATCH_BYTES, size)?;
        let part = rest.take_selected(count);
        let values = columns.select_all(test.columns(), &part)?;
        let mut passed = part.clone();
        passed.and_boolean(&test.evaluate(values, count)?);
        selection.and_not(&part);
        selection.or(&passed);
    }
    Ok(())
}
