//! Finds sorts of rows of which a filter keeps the first ranks.
//!
//! ```text
//!  FilterExec                  rank <= k
//!    ProjectionExec ..         any number; also an exchange
//!      window                  rank, row_number
//!        SortExec              also with a merge of its partitions
//!          RepartitionExec     by hash, if any
//!            FirstRanksExec
//! ```
//!
//! A row with `k` rows before it in order, not equal ones, has a higher number and rank than `k`. Without it, rows up to
//! rank `k` have the same number and rank, as none of them is behind it. Rows of higher ranks keep at least `k` rows before
//! them, so that the filter still refuses them. No other function may see fewer rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{Partitioning, PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::exec::SortedWindowExec;
use super::first_ranks::FirstRanksExec;
use super::first_rows::Need;
use super::function::Function;

type Plan = Arc<dyn ExecutionPlan>;

/// Most rows of a window partition that are told apart.
const MOST_FIRST: usize = 10_000;

/// A column of ranks, and the number of the last rank that is kept.
#[derive(Clone, Copy)]
struct Bound {
    column: usize,
    first: usize,
}

/// The filter `plan` over a sort of fewer rows; `None` if it is another operator, or keeps other rows than those of the
/// first ranks.
pub(super) fn with_fewer_rows(plan: &Plan) -> Result<Option<Plan>> {
    let Some(filter) = plan.downcast_ref::<FilterExec>() else {
        return Ok(None);
    };
    for bound in split_conjunction(filter.predicate()) {
        if let Some(bound) = Bound::of(bound)
            && let Some(input) = below_filter(filter.input(), bound)?
        {
            return above(plan, input).map(Some);
        }
    }
    Ok(None)
}

impl Bound {
    /// `None` if `condition` is not one of these: a column is less than, at most or equal to a literal.
    fn of(condition: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let binary: &BinaryExpr = condition.downcast_ref()?;
        let (column, operator, literal) = match binary.left().is::<Literal>() {
            true => (binary.right(), binary.op().swap()?, binary.left()),
            false => (binary.left(), *binary.op(), binary.right()),
        };
        let column: &Column = column.downcast_ref()?;
        let literal: &Literal = literal.downcast_ref()?;
        let ScalarValue::UInt64(Some(value)) = literal.value() else {
            return None;
        };
        let value = usize::try_from(*value).ok()?;
        let first = match operator {
            Operator::LtEq | Operator::Eq => value,
            Operator::Lt => value.checked_sub(1)?,
            _ => return None,
        };
        (1..=MOST_FIRST).contains(&first).then_some(Self {
            column: column.index(),
            first,
        })
    }
}

/// `plan`, the input of a filter by `bound`, over fewer rows.
fn below_filter(plan: &Plan, bound: Bound) -> Result<Option<Plan>> {
    let input = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let output = projection.expr().get(bound.column);
        let column = output.and_then(|output| output.expr.downcast_ref::<Column>());
        let Some(column) = column.map(Column::index) else {
            return Ok(None);
        };
        below_filter(projection.input(), Bound { column, ..bound })?
    } else if let Some(exchange) = plan.downcast_ref::<RepartitionExec>() {
        below_filter(exchange.input(), bound)?
    } else if let Some((windows, input)) = window(plan) {
        match Need::of(windows, &input.schema(), bound)? {
            Some(need) => below_window(input, need)?,
            None => None,
        }
    } else {
        None
    };
    input.map(|input| above(plan, input)).transpose()
}

/// The functions of a window operator, and its input.
fn window(plan: &Plan) -> Option<(&[Arc<dyn WindowExpr>], &Plan)> {
    if let Some(window) = plan.downcast_ref::<SortedWindowExec>() {
        return Some((window.window_expr(), window.input()));
    }
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        let is_own = window.state_observer().is_none();
        return is_own.then(|| (window.window_expr(), window.input()));
    }
    let window: &WindowAggExec = plan.downcast_ref()?;
    Some((window.window_expr(), window.input()))
}

impl Need {
    /// The rows of `input` that `windows` need if only those up to `bound` are kept; `None` if these are all of them, or
    /// if keys are such that their order or equality in the row format may be another one than in a sort.
    fn of(
        windows: &[Arc<dyn WindowExpr>],
        input: &SchemaRef,
        bound: Bound,
    ) -> Result<Option<Self>> {
        let function = bound.column.checked_sub(input.fields().len());
        let Some(window) = function.and_then(|function| windows.get(function)) else {
            return Ok(None);
        };
        let are_ranks = windows.iter().all(|other| {
            let function = Function::of(other.as_ref());
            matches!(function, Some(Function::Rank | Function::RowNumber))
                && other.partition_by() == window.partition_by()
                && other.order_by() == window.order_by()
        });
        if !are_ranks || window.order_by().is_empty() {
            return Ok(None);
        }
        let order_by = window.order_by().iter().map(|key| &key.expr);
        for key in window.partition_by().iter().chain(order_by) {
            let data_type = key.data_type(input)?;
            let is_encoded = matches!(
                data_type,
                DataType::Dictionary(..) | DataType::RunEndEncoded(..)
            );
            if is_encoded || data_type.is_nested() || is_volatile(key) {
                return Ok(None);
            }
        }
        Ok(Some(Self {
            first: bound.first,
            partition_by: window.partition_by().to_vec(),
            order_by: window.order_by().to_vec(),
        }))
    }
}

/// `plan`, the input of a window, over the rows that it needs; `None` if it does not sort its rows.
fn below_window(plan: &Plan, need: Need) -> Result<Option<Plan>> {
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        if merge.fetch().is_some() || !merge.input().is::<SortExec>() {
            return Ok(None);
        }
        let input = below_window(merge.input(), need)?;
        return input.map(|input| above(plan, input)).transpose();
    }
    let sort = plan.downcast_ref::<SortExec>();
    let Some(sort) = sort.filter(|sort| sort.fetch().is_none()) else {
        return Ok(None);
    };
    let exchange = sort.input().downcast_ref::<RepartitionExec>();
    let exchange = exchange.filter(|of| matches!(of.partitioning(), Partitioning::Hash(..)));
    let rows = exchange.map_or(sort.input(), RepartitionExec::input);
    if rows.is::<FirstRanksExec>() {
        return Ok(None);
    }
    let fewer: Plan = Arc::new(FirstRanksExec::new(Arc::clone(rows), need));
    let input = match exchange {
        Some(_) => above(sort.input(), fewer)?,
        None => fewer,
    };
    above(plan, input).map(Some)
}

/// `plan` with another input.
fn above(plan: &Plan, input: Plan) -> Result<Plan> {
    replace_children_if_necessary(Arc::clone(plan), vec![input])
}
