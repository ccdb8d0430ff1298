//! Stack space for recursion over expressions, which are as deep as a statement is long: each term of `a OR b OR c` is
//! a level.

use std::sync::Arc;

#[cfg(feature = "gpu")]
use arrow::array::RecordBatch;
#[cfg(feature = "gpu")]
use datafusion::common::Result;
#[cfg(feature = "gpu")]
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
#[cfg(feature = "gpu")]
use datafusion::physical_expr::expressions::Literal;

type Expr = Arc<dyn PhysicalExpr>;

/// Maximum bytes that a level of Vectile's own recursion takes, including its calls.
const CALL_BYTES: usize = 128 << 10;

/// Bytes of a new stack segment.
const NEW_STACK: usize = 2 << 20;

/// Maximum bytes that a level takes in DataFusion's recursion: evaluation, printing, pruning.
const LEVEL_BYTES: usize = 16 << 10;

/// Maximum bytes of a stack.
const MAX_BYTES: usize = 1 << 30;

/// Runs a level of a recursion, on a new stack if this one is almost exhausted.
pub(crate) fn grown<R>(level: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(CALL_BYTES, NEW_STACK, level)
}

/// Runs a recursion over `levels` levels that does not grow the stack itself.
pub(crate) fn with_room<R>(levels: usize, walk: impl FnOnce() -> R) -> R {
    let bytes = levels.saturating_mul(LEVEL_BYTES).min(MAX_BYTES) + CALL_BYTES;
    stacker::maybe_grow(bytes, bytes, walk)
}

/// Evaluates `expr` for `rows`, with enough stack.
#[cfg(feature = "gpu")]
pub(crate) fn evaluated(expr: &Expr, rows: &RecordBatch) -> Result<ColumnarValue> {
    with_room(levels([expr]), || expr.evaluate(rows))
}

/// Number of levels of the deepest of `exprs`.
pub(crate) fn levels<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> usize {
    let mut open: Vec<(&Expr, usize)> = exprs.into_iter().map(|expr| (expr, 1)).collect();
    let mut deepest = 0;
    while let Some((expr, level)) = open.pop() {
        deepest = deepest.max(level);
        let children = expr.children().into_iter();
        open.extend(children.map(|child| (child, level + 1)));
    }
    deepest
}

/// Number of nodes of `exprs` without constants. A list of values counts as one.
#[cfg(feature = "gpu")]
pub(crate) fn parts<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> usize {
    let mut open: Vec<&Expr> = exprs.into_iter().collect();
    let mut parts = 0;
    while let Some(expr) = open.pop() {
        if !expr.is::<Literal>() {
            parts += 1;
            open.extend(expr.children());
        }
    }
    parts
}

/// The operands of a chain of `operator`, which is associative, from left to right: all three of `a OR b OR c`.
pub(crate) fn operands(expr: &Expr, operator: Operator) -> Vec<&Expr> {
    let (mut open, mut operands) = (vec![expr], Vec::new());
    while let Some(expr) = open.pop() {
        match expr.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == operator => {
                open.extend([binary.right(), binary.left()]);
            }
            _ => operands.push(expr),
        }
    }
    operands
}

#[cfg(test)]
mod tests {
    use datafusion::physical_expr::expressions::{binary, lit};

    use super::*;

    #[test]
    fn operands_are_in_order() {
        let schema = arrow::datatypes::Schema::empty();
        let or = |a, b| binary(a, Operator::Or, b, &schema).unwrap();
        let and = |a, b| binary(a, Operator::And, b, &schema).unwrap();
        let (yes, no) = (|| lit(true), || lit(false));
        let both = and(yes(), no());
        let expr = or(or(yes(), Arc::clone(&both)), or(no(), yes()));
        let alternatives = operands(&expr, Operator::Or);
        assert_eq!(alternatives, [&yes(), &both, &no(), &yes()]);
        assert_eq!(operands(&expr, Operator::And), [&expr]);
        assert_eq!(levels([&expr, &yes()]), 4);
        #[cfg(feature = "gpu")]
        assert_eq!(parts([&expr, &yes()]), 4);
    }
}
