//! The order in which row groups are scanned.

use std::fmt::{self, Formatter};

use datafusion::common::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::Column;
use vectile_scan::Container;

use crate::pruning;

/// The order in which row groups are scanned, for the benefit of a top-k above.
#[derive(Clone, Debug)]
pub(crate) struct RowGroupOrder {
    /// Sort order of the query. Row groups are sorted by the minimum of its first column.
    pub(crate) order: LexOrdering,
    /// True if that order, or the order in the file, is reversed.
    pub(crate) reversed: bool,
}

impl RowGroupOrder {
    /// Sorts row groups by the query's order.
    pub(crate) fn apply(&self, row_groups: &mut [usize], file: &dyn Container) -> Result<()> {
        if let Some(column) = self.order.first().expr.downcast_ref::<Column>()
            && let Ok(index) = file.schema().index_of(column.name())
        {
            pruning::sort_by_minimum(row_groups, index, file)?;
        }
        if self.reversed {
            row_groups.reverse();
        }
        Ok(())
    }
}

/// For `EXPLAIN`.
impl fmt::Display for RowGroupOrder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "row_group_order=[{}]", self.order)?;
        match self.reversed {
            true => f.write_str(", reversed=true"),
            false => Ok(()),
        }
    }
}
