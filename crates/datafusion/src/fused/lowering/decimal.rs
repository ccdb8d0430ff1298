//! Decimals as their unscaled integers, and casts between them.

use arrow::datatypes::DataType;
use vectile_pipeline::{Arithmetic, Expr, Literal, Type};

/// Precision and scale of a decimal, or of an integer treated as one.
pub(super) struct Decimal {
    pub(super) precision: i16,
    pub(super) scale: i16,
}

impl Decimal {
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        match *data_type {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale) => Some(Self {
                precision: precision.into(),
                scale: scale.into(),
            }),
            _ => None,
        }
    }

    pub(super) fn of_integer(data_type: &DataType) -> Option<Self> {
        let precision = match data_type {
            DataType::Int8 | DataType::UInt8 => 3,
            DataType::Int16 | DataType::UInt16 => 5,
            DataType::Int32 | DataType::UInt32 => 10,
            DataType::Int64 => 19,
            DataType::UInt64 => 20,
            _ => return None,
        };
        let scale = 0;
        Some(Self { precision, scale })
    }
}

/// Casts `value` from `from` to `to`. Folds the cast of an integer constant that fits.
pub(super) fn cast(value: Expr, from: Type, to: Type) -> Expr {
    let fits = |number| match to.range() {
        Some((least, greatest)) => (least..=greatest).contains(&number),
        None => false,
    };
    match value {
        value if from == to => value,
        Expr::Literal(Literal::Int(number, _)) if fits(number) => {
            Expr::Literal(Literal::Int(number, to))
        }
        Expr::Literal(Literal::Null(_)) => Expr::Literal(Literal::Null(to)),
        value => Expr::cast(value, to),
    }
}

/// Returns `value * 10^digits` in 128 bits; `None` if the factor or a folded constant overflows.
pub(super) fn scaled(value: Expr, digits: i16) -> Option<Expr> {
    let unit = 10_i128.checked_pow(u32::try_from(digits).ok()?)?;
    Some(match value {
        value if unit == 1 => value,
        Expr::Literal(Literal::Int(number, of)) => {
            Expr::Literal(Literal::Int(number.checked_mul(unit)?, of))
        }
        value => {
            let unit = Expr::Literal(Literal::Int(unit, Type::I128));
            Expr::arithmetic(Arithmetic::Multiply, value, unit)
        }
    })
}

/// Rounds a double to the nearest value of the decimal `to`, which is stored as `machine`. `None` if 10 to the
/// precision of `to` overflows 128 bits.
pub(super) fn rounded(value: Expr, to: &Decimal, machine: Type) -> Option<Expr> {
    let most = 10_i128.checked_pow(u32::try_from(to.precision).ok()?)?;
    let unit = Expr::Literal(Literal::F64(10_f64.powi(to.scale.into())));
    let value = Expr::arithmetic(Arithmetic::Multiply, value, unit);
    let rounded = Expr::rounded(value, most - 1);
    Some(cast(rounded, Type::I128, machine))
}
