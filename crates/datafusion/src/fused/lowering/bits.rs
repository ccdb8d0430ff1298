//! Lowers operations on bits of integers to arithmetic: shifts by a constant, and masks of few runs of bits.
//!
//! The lowest `k` bits of an integer are its remainder by 2^k, rounded down: also those of a negative one in two's
//! complement. Kernels wait for memory while they divide. Programs on the CPU do not, and DataFusion's operators take a third
//! to a sixth of their time for these.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use vectile_pipeline::{Arithmetic, Expr, Literal, Type};

use super::expression::{Lowering, unsupported};
use crate::fused::fallback_reason::FallbackReason;

/// Most runs of bits of a mask.
const MOST_RUNS: usize = 4;

impl Lowering<'_> {
    /// Lowers `value & mask`, `value >> bits` and `value << bits`; the first two for devices only.
    pub(super) fn bits(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        binary: &BinaryExpr,
    ) -> Result<Expr, FallbackReason> {
        let divides = *binary.op() != Operator::BitwiseShiftLeft;
        if divides && self.is_for_program() {
            return Err(unsupported(expr));
        }
        let (left, right) = (binary.left(), binary.right());
        let of = self.type_of(left)?;
        let machine = Type::of(&of).filter(|_| of.is_integer());
        let machine = machine.ok_or_else(|| unsupported(expr))?;
        if self.type_of(right)? != of {
            return Err(unsupported(expr));
        }
        let (left, right) = (self.value(left)?, self.value(right)?);
        let lowered = match (binary.op(), &left, &right) {
            (Operator::BitwiseAnd, _, Expr::Literal(Literal::Int(mask, _))) => {
                masked(&left, *mask, machine)
            }
            (Operator::BitwiseAnd, Expr::Literal(Literal::Int(mask, _)), _) => {
                masked(&right, *mask, machine)
            }
            (Operator::BitwiseShiftRight, _, Expr::Literal(Literal::Int(bits, _))) => {
                shifted_right(left, *bits, machine)
            }
            (Operator::BitwiseShiftLeft, _, Expr::Literal(Literal::Int(bits, _))) => {
                power(*bits, machine)
                    .map(|power| Expr::arithmetic(Arithmetic::Multiply, left, power))
            }
            _ => None,
        };
        lowered.ok_or_else(|| unsupported(expr))
    }
}

/// The bits of `value` that a mask has, as a sum of runs; `None` if there are too many, or the highest bits are among them.
fn masked(value: &Expr, mask: i128, of: Type) -> Option<Expr> {
    let mut rest = u64::try_from(mask).ok()?;
    let mut sum: Option<Expr> = None;
    for _ in 0..MOST_RUNS {
        if rest == 0 {
            break;
        }
        let from = rest.trailing_zeros();
        let to = from + (rest >> from).trailing_ones();
        rest &= u64::MAX.checked_shl(to)?;
        let upper = lowest(value.clone(), to.into(), of)?;
        let run = match from {
            0 => upper,
            from => {
                let lower = lowest(value.clone(), from.into(), of)?;
                Expr::arithmetic(Arithmetic::Subtract, upper, lower)
            }
        };
        sum = Some(match sum {
            Some(sum) => Expr::arithmetic(Arithmetic::Add, sum, run),
            None => run,
        });
    }
    sum.filter(|_| rest == 0)
}

/// `value >> bits`, which copies the sign.
fn shifted_right(value: Expr, bits: i128, of: Type) -> Option<Expr> {
    let power = power(bits, of)?;
    let lowest = lowest(value.clone(), bits, of)?;
    let rest = Expr::arithmetic(Arithmetic::Subtract, value, lowest);
    Some(Expr::arithmetic(Arithmetic::Divide, rest, power))
}

/// The lowest bits of `value`.
fn lowest(value: Expr, bits: i128, of: Type) -> Option<Expr> {
    let power = power(bits, of)?;
    let remainder = |value| Expr::arithmetic(Arithmetic::Remainder, value, power.clone());
    let rest = remainder(value);
    Some(match is_signed(of) {
        true => remainder(Expr::arithmetic(Arithmetic::Add, rest, power.clone())),
        false => rest,
    })
}

/// 2^`bits`, which is less than half of the largest value; `None` for other numbers of bits.
fn power(bits: i128, of: Type) -> Option<Expr> {
    let most = match of {
        Type::I8 | Type::U8 => 8,
        Type::I16 | Type::U16 => 16,
        Type::I32 | Type::U32 => 32,
        Type::I64 | Type::U64 => 64,
        _ => return None,
    };
    let power = (1..=most - 2).contains(&bits).then(|| 1i128 << bits);
    power.map(|power| Expr::Literal(Literal::Int(power, of)))
}

fn is_signed(of: Type) -> bool {
    matches!(of, Type::I8 | Type::I16 | Type::I32 | Type::I64)
}
