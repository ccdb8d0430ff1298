//! Prunes row groups by DataFusion's pruning predicates, which support more kinds of expressions (prefixes by `LIKE`,
//! monotonic casts) than the zone tests of lowered filters.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt64Array};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::metrics::Count;
use vectile_encodings::ZoneMap;
use vectile_scan::Container;

/// For each row group, true if it may have a matching row.
pub(crate) fn row_groups(
    predicate: &Arc<dyn PhysicalExpr>,
    file: &dyn Container,
    errors: &Count,
) -> Vec<bool> {
    let builder = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(file.schema()))
        .with_error_counter(errors);
    let all = || vec![true; file.num_row_groups()];
    let Some(pruning) = builder.build(Arc::clone(predicate)) else {
        return all();
    };
    let pruned: Result<Vec<bool>> = pruning.prune(&RowGroups(file));
    pruned.unwrap_or_else(|_| {
        errors.add(1);
        all()
    })
}

/// The row groups of a file.
struct RowGroups<'a>(&'a dyn Container);

impl RowGroups<'_> {
    fn zones(&self, column: &Column) -> Option<&ZoneMap> {
        let index = self.0.schema().index_of(column.name()).ok()?;
        self.0.row_group_zones(index)
    }

    fn bounds(&self, column: &Column) -> Option<&ZoneMap> {
        self.zones(column).filter(|zones| zones.has_bounds())
    }
}

impl PruningStatistics for RowGroups<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column).map(|zones| Arc::clone(&zones.min))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column).map(|zones| Arc::clone(&zones.max))
    }

    fn num_containers(&self) -> usize {
        self.0.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let zones = self.zones(column)?;
        Some(Arc::new(zones.null_count.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = (0..self.0.num_row_groups()).map(|row_group| self.0.rows(row_group) as u64);
        Some(Arc::new(UInt64Array::from_iter_values(rows)))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Sorts row groups by the minimum of a column, ascending, unknown ones last.
pub(crate) fn sort_by_minimum(
    indices: &mut [usize],
    column: usize,
    file: &dyn Container,
) -> Result<()> {
    let Some(zones) = file.row_group_zones(column) else {
        return Ok(());
    };
    let minima = &zones.min;
    if minima.len() != file.num_row_groups() || !zones.has_bounds() {
        return Ok(());
    }
    let order = arrow::array::make_comparator(
        minima,
        minima,
        arrow::compute::SortOptions {
            descending: false,
            nulls_first: false,
        },
    )?;
    indices.sort_by(|&a, &b| order(a, b));
    Ok(())
}
