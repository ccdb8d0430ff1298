//! Factors that all values of an expression have.
//!
//! DataFusion aligns the scales of decimals: `price - coalesce(amount, 0.0)` is a difference of numbers that were
//! multiplied by 10^13. Such a group key takes more than 64 bits; its quotient by that factor fits.

use vectile_pipeline::{Arithmetic, Expr, Literal, Op};

/// Smallest factor that a key is divided by. Keys with smaller ones mostly fit, and expressions above can read them.
const LEAST_FACTOR: u128 = 1_000_000;

/// The largest factor that values of `expr` have for certain, and the quotient; `None` if it is not worth it.
pub(super) fn without_factor(expr: &Expr) -> Option<(i128, Expr)> {
    let factor = factor(expr);
    let by = i128::try_from(factor).ok()?;
    (factor >= LEAST_FACTOR)
        .then(|| quotient(expr, by))
        .flatten()
        .map(|quotient| (by, quotient))
}

/// A factor of all values; 0 if they are zero or null.
fn factor(expr: &Expr) -> u128 {
    match expr {
        Expr::Literal(Literal::Int(value, _)) => value.unsigned_abs(),
        Expr::Literal(Literal::Null(_)) => 0,
        Expr::Op(Op::Arithmetic(Arithmetic::Multiply), operands) => match &operands[..] {
            [Expr::Literal(Literal::Int(value, _)), _]
            | [_, Expr::Literal(Literal::Int(value, _))] => value.unsigned_abs(),
            _ => 1,
        },
        Expr::Op(Op::Arithmetic(Arithmetic::Add | Arithmetic::Subtract), operands) => {
            operands.iter().map(factor).fold(0, common)
        }
        Expr::Op(Op::Case, operands) => results(operands).map(factor).fold(0, common),
        _ => 1,
    }
}

/// `expr` divided by a factor of its values; `None` if one of its parts has not the whole factor.
fn quotient(expr: &Expr, by: i128) -> Option<Expr> {
    let divided = |value: i128| (value % by == 0).then_some(value / by);
    match expr {
        Expr::Literal(Literal::Int(value, of)) => {
            Some(Expr::Literal(Literal::Int(divided(*value)?, *of)))
        }
        Expr::Literal(Literal::Null(_)) => Some(expr.clone()),
        Expr::Op(Op::Arithmetic(Arithmetic::Multiply), operands) => match &operands[..] {
            [Expr::Literal(Literal::Int(value, of)), other]
            | [other, Expr::Literal(Literal::Int(value, of))] => Some(match divided(*value)? {
                1 => other.clone(),
                value => {
                    let value = Expr::Literal(Literal::Int(value, *of));
                    Expr::arithmetic(Arithmetic::Multiply, other.clone(), value)
                }
            }),
            _ => None,
        },
        Expr::Op(op @ Op::Arithmetic(Arithmetic::Add | Arithmetic::Subtract), operands) => {
            let operands = operands.iter().map(|part| quotient(part, by));
            Some(Expr::Op(*op, operands.collect::<Option<_>>()?))
        }
        Expr::Op(Op::Case, operands) => {
            let mut operands = operands.clone();
            for index in results_of(operands.len()) {
                let result = operands.get_mut(index)?;
                *result = quotient(result, by)?;
            }
            Some(Expr::Op(Op::Case, operands))
        }
        _ => None,
    }
}

/// The results of a `CASE` of so many operands: each condition is followed by one, and the last may be without.
fn results_of(operands: usize) -> impl Iterator<Item = usize> {
    let otherwise = (operands % 2 == 1).then(|| operands - 1);
    (1..operands).step_by(2).chain(otherwise)
}

fn results(operands: &[Expr]) -> impl Iterator<Item = &Expr> {
    results_of(operands.len()).filter_map(|index| operands.get(index))
}

/// The greatest common divisor.
fn common(a: u128, b: u128) -> u128 {
    match b {
        0 => a,
        b => common(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use vectile_pipeline::Type;

    use super::*;

    fn constant(value: i128) -> Expr {
        Expr::Literal(Literal::Int(value, Type::I128))
    }

    fn times(expr: Expr, factor: i128) -> Expr {
        Expr::arithmetic(Arithmetic::Multiply, expr, constant(factor))
    }

    #[test]
    fn scales_are_divided_out() {
        let scale = 10i128.pow(13);
        let amount = || Expr::Column(1);
        let branches = |scale| {
            let is_null = Expr::is_null(amount());
            vec![(!is_null, times(amount(), scale))]
        };
        let case = Expr::case(branches(scale), Some(constant(0)));
        let difference =
            Expr::arithmetic(Arithmetic::Subtract, times(Expr::Column(0), scale), case);
        let case = Expr::case(
            vec![(!Expr::is_null(amount()), amount())],
            Some(constant(0)),
        );
        let expected = Expr::arithmetic(Arithmetic::Subtract, Expr::Column(0), case);
        assert_eq!(without_factor(&difference), Some((scale, expected)));
        // branches of other scales, and one without a result
        let case = Expr::case(branches(scale), Some(constant(-3_000_000)));
        let Some((factor, Expr::Op(Op::Case, operands))) = without_factor(&case) else {
            panic!("no factor");
        };
        assert_eq!(factor, 1_000_000);
        assert_eq!(operands[1], times(amount(), 10_000_000));
        assert_eq!(operands[2], constant(-3));
        let case = Expr::case(branches(scale), None);
        assert_eq!(without_factor(&case).map(|(factor, _)| factor), Some(scale));
    }

    #[test]
    fn other_expressions_have_no_factor() {
        let scale = 10i128.pow(13);
        for expr in [
            Expr::Column(0),
            times(Expr::Column(0), 100),
            constant(0),
            Expr::arithmetic(Arithmetic::Multiply, Expr::Column(0), Expr::Column(1)),
            Expr::arithmetic(
                Arithmetic::Add,
                times(Expr::Column(0), scale),
                Expr::Column(1),
            ),
            Expr::case(
                vec![(Expr::is_null(Expr::Column(0)), Expr::Column(1))],
                Some(constant(scale)),
            ),
        ] {
            assert_eq!(without_factor(&expr), None, "{expr:?}");
        }
    }
}
