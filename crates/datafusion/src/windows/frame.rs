//! The rows that window functions see.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};

/// Most rows between a row and another one that its result depends on: so many are kept in memory.
pub(super) const MOST_ROWS: usize = 1024;

/// The rows that a function sees of a row's partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Those up to the row.
    Rows,
    /// Those up to the last that is equal in order.
    Peers,
    /// All.
    Partition,
    /// So many before it and after it, and itself.
    Near { before: usize, after: usize },
}

impl Extent {
    /// `None` for other frames. Without an order, all rows are equal.
    pub(super) fn of(frame: &WindowFrame, has_order: bool) -> Option<Self> {
        let are_rows = frame.units == WindowFrameUnits::Rows;
        let rows = |bound: &ScalarValue| match bound {
            ScalarValue::UInt64(Some(rows)) if are_rows => usize::try_from(*rows)
                .ok()
                .filter(|rows| *rows <= MOST_ROWS),
            _ => None,
        };
        let start = match &frame.start_bound {
            WindowFrameBound::Preceding(bound) if bound.is_null() => None,
            WindowFrameBound::Preceding(bound) => Some(rows(bound)?),
            WindowFrameBound::CurrentRow if are_rows => Some(0),
            _ => return None,
        };
        match (start, &frame.end_bound) {
            (None, WindowFrameBound::Following(bound)) if bound.is_null() => Some(Self::Partition),
            (None, WindowFrameBound::CurrentRow) if are_rows => Some(Self::Rows),
            (None, WindowFrameBound::CurrentRow) if has_order => Some(Self::Peers),
            (None, WindowFrameBound::CurrentRow) => Some(Self::Partition),
            (Some(before), WindowFrameBound::CurrentRow) => Some(Self::Near { before, after: 0 }),
            (Some(before), WindowFrameBound::Following(bound)) if !bound.is_null() => {
                let after = rows(bound)?;
                Some(Self::Near { before, after })
            }
            _ => None,
        }
    }
}
