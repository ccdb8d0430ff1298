//! Functions of a row's position in its partition, and of the rows around it.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions_window::lead_lag::WindowShift;
use datafusion::functions_window::nth_value::NthValue;
use datafusion::functions_window::rank::Rank;
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::PartitionEvaluator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::aggregate::Aggregate;
use super::frame::{Extent, MOST_ROWS};
use crate::stack;

/// A function of a row's position in its partition, or of the rows around it.
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
    /// The value of the first row of the partition.
    First(Arc<dyn PhysicalExpr>),
    /// The value of the last row of the frame.
    Last(Arc<dyn PhysicalExpr>, Extent),
    /// An aggregate of the rows of the frame.
    Aggregate(Aggregate),
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
        if let Some(aggregate) = Aggregate::of(window) {
            return Some(Self::Aggregate(aggregate));
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
        if of.is::<WindowShift>() {
            return Shift::of(function).map(Self::Shift);
        }
        if !of.is::<NthValue>() || !is_plain(function) {
            return None;
        }
        let extent = Extent::of(window.get_window_frame(), !window.order_by().is_empty())?;
        let [value] = <[_; 1]>::try_from(function.expressions()).ok()?;
        match (function.fun().name(), extent) {
            (_, Extent::Near { .. }) => None,
            ("first_value", _) => Some(Self::First(value)),
            ("last_value", extent) => Some(Self::Last(value, extent)),
            _ => None,
        }
    }

    /// The column that it reads of each row, if any.
    pub(super) fn value(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank => None,
            Self::Shift(shift) => Some(&shift.value),
            Self::First(value) | Self::Last(value, _) => Some(value),
            Self::Aggregate(aggregate) => Some(&aggregate.value),
        }
    }

    /// The rows that it sees; `None` if these don't matter.
    pub(super) fn extent(&self) -> Option<Extent> {
        match self {
            Self::Last(_, extent) => Some(*extent),
            Self::Aggregate(aggregate) => Some(aggregate.extent),
            _ => None,
        }
    }

    /// True if it needs to know which rows are equal in order.
    pub(super) fn has_peers(&self) -> bool {
        matches!(self, Self::Rank | Self::DenseRank) || self.extent() == Some(Extent::Peers)
    }

    /// Numbers of rows before a row, and after it, that its result depends on.
    pub(super) fn distances(&self) -> (usize, usize) {
        match (self, self.extent()) {
            (Self::Shift(shift), _) if shift.is_back => (shift.rows, 0),
            (Self::Shift(shift), _) => (0, shift.rows),
            (_, Some(Extent::Near { before, after })) => (before, after),
            _ => (0, 0),
        }
    }
}

/// True if a function neither ignores nulls nor sees rows in reverse order. DataFusion 55.2 has no accessors: both are the
/// last fields of what `Debug` shows.
fn is_plain(function: &WindowUDFExpr) -> bool {
    let levels = stack::levels(function.args());
    let shown = stack::with_room(levels, || format!("{function:?}"));
    shown.ends_with("is_reversed: false, ignore_nulls: false }")
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
