//! Functions of a row's position in its partition, and of the rows up to it.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions_window::lead_lag::WindowShift;
use datafusion::functions_window::rank::Rank;
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::PartitionEvaluator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::running::Running;

/// Most rows between a row and the one whose value it gets: so many are kept in memory.
const MOST_ROWS: usize = 1024;

/// A function of a row's position in its partition, or of the rows up to it.
#[derive(Clone, Debug)]
pub(super) enum Function {
    /// The number of the row, from 1.
    RowNumber,
    /// The number of the first row that is equal in order.
    Rank,
    /// The number of different rows in order, up to this one.
    DenseRank,
    /// The value of the row so many rows before (`lag`) or after (`lead`), or null.
    Shift(Shift),
    /// An aggregate of the rows up to this one.
    Running(Running),
}

/// A row's distance to the row whose value it gets.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    /// The value of a row.
    pub(super) value: Arc<dyn PhysicalExpr>,
    /// Number of rows between both, at least 1.
    pub(super) rows: usize,
    /// True for `lag`.
    pub(super) is_back: bool,
}

impl Function {
    /// `None` if `window` is another function, or one with another value than null where there is no row.
    pub(super) fn of(window: &dyn WindowExpr) -> Option<Self> {
        if let Some(running) = Running::of(window) {
            return Some(Self::Running(running));
        }
        let window: &StandardWindowExpr = window.as_any().downcast_ref()?;
        let function = window.get_standard_func_expr();
        let function: &WindowUDFExpr = function.as_any().downcast_ref()?;
        let of = function.fun().inner();
        if of.is::<RowNumber>() {
            return Some(Self::RowNumber);
        }
        if of.is::<Rank>() {
            return match function.fun().name() {
                "rank" => Some(Self::Rank),
                "dense_rank" => Some(Self::DenseRank),
                _ => None,
            };
        }
        match of.is::<WindowShift>() {
            true => Shift::of(function).map(Self::Shift),
            false => None,
        }
    }

    /// The column that it reads of each row, if any.
    pub(super) fn value(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank => None,
            Self::Shift(shift) => Some(&shift.value),
            Self::Running(running) => Some(&running.value),
        }
    }

    /// True if it needs to know which rows are equal in order.
    pub(super) fn has_peers(&self) -> bool {
        match self {
            Self::Rank | Self::DenseRank => true,
            Self::Running(running) => running.has_peers,
            Self::RowNumber | Self::Shift(_) => false,
        }
    }
}

impl Shift {
    fn of(function: &WindowUDFExpr) -> Option<Self> {
        let rows = match function.args() {
            [_] => 1,
            [_, offset] => match offset.downcast_ref::<Literal>()?.value() {
                ScalarValue::Int64(Some(rows)) => usize::try_from(rows.unsigned_abs()).ok()?,
                _ => return None,
            },
            _ => return None,
        };
        let [value] = <[_; 1]>::try_from(function.expressions()).ok()?;
        let evaluator = function.create_evaluator().ok()?;
        let is_back = evaluator.is_causal();
        let is_known = (1..=MOST_ROWS).contains(&rows) && reads(evaluator, rows, is_back);
        is_known.then_some(Self {
            value,
            rows,
            is_back,
        })
    }
}

/// True if an evaluator reads `rows` rows for each row. With `IGNORE NULLS`, it reads all before or after.
fn reads(evaluator: Box<dyn PartitionEvaluator>, rows: usize, is_back: bool) -> bool {
    let (row, all) = (2 * MOST_ROWS, 4 * MOST_ROWS);
    let range = match is_back {
        true => row - rows..row + 1,
        false => row..row + rows,
    };
    evaluator.get_range(row, all).is_ok_and(|of| of == range)
}
