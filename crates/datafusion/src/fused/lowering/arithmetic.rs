//! Lowers arithmetic, casts and parts of dates and times.
//!
//! An operation that could fail for a value of its operands has no kernel: the CPU evaluates it.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Literal as PhysicalLiteral, NegativeExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use vectile_pipeline::{Arithmetic, DatePart, Expr, Literal, Type};

use super::decimal::{Decimal, cast, rounded, scaled};
use super::expression::{Lowering, unsupported};
use crate::fused::fallback_reason::FallbackReason;

type Result<T> = std::result::Result<T, FallbackReason>;

/// Maximum precision of decimals that kernels convert to floats: they fit 64 bits.
const MAX_FLOAT_DIGITS: i16 = 18;

impl Lowering<'_> {
    /// Lowers an operation on two numbers of the same type, or on two decimals.
    pub(super) fn arithmetic(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        binary: &BinaryExpr,
        op: Arithmetic,
    ) -> Result<Expr> {
        // An expression that fails on overflow is not equal to one that wraps around.
        let wrapping = BinaryExpr::new(
            Arc::clone(binary.left()),
            *binary.op(),
            Arc::clone(binary.right()),
        );
        let (left, right) = (self.type_of(binary.left())?, self.type_of(binary.right())?);
        if left.is_decimal() && right.is_decimal() {
            let sides = [binary.left(), binary.right()];
            return self.decimal(expr, op, sides.map(Arc::clone), (&left, &right));
        }
        if left != right || *binary != wrapping || !(left.is_integer() || left.is_floating()) {
            return Err(unsupported(expr));
        }
        let is_float = left.is_floating();
        let (left, right) = (self.value(binary.left())?, self.value(binary.right())?);
        let supported = match op {
            Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Multiply => true,
            Arithmetic::Divide => is_float || is_divisor(&right),
            Arithmetic::Remainder => !is_float && is_divisor(&right),
        };
        if !supported {
            return Err(unsupported(expr));
        }
        Ok(Expr::arithmetic(op, left, right))
    }

    /// Lowers arithmetic on decimals as arrow-rs defines it: in 128 bits, where overflow is ruled out before a kernel
    /// is generated. The same bounds rule out overflow of the narrower type to which the result is cast back.
    fn decimal(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        op: Arithmetic,
        sides: [Arc<dyn PhysicalExpr>; 2],
        (left, right): (&DataType, &DataType),
    ) -> Result<Expr> {
        let (Some(machine), Some(left), Some(right)) =
            (Type::of(left), Decimal::of(left), Decimal::of(right))
        else {
            return Err(unsupported(expr));
        };
        let result = self.type_of(expr)?;
        let (scale, left_up, right_up) = match op {
            Arithmetic::Add | Arithmetic::Subtract => {
                let scale = left.scale.max(right.scale);
                (scale, scale - left.scale, scale - right.scale)
            }
            Arithmetic::Multiply => (left.scale + right.scale, 0, 0),
            // narrower decimals fail where 128 bits would do
            Arithmetic::Divide if machine == Type::I128 => {
                let scale = Decimal::of(&result).map(|result| result.scale);
                let scale = scale.ok_or_else(|| unsupported(expr))?;
                (scale, scale - left.scale + right.scale, 0)
            }
            Arithmetic::Divide | Arithmetic::Remainder => return Err(unsupported(expr)),
        };
        if Type::of(&result) != Some(machine)
            || Decimal::of(&result).map(|result| result.scale) != Some(scale)
        {
            return Err(unsupported(expr));
        }
        let [left, right] = sides.map(|side| self.value(&side));
        let wide = |value: Result<Expr>, up| {
            scaled(cast(value?, machine, Type::I128), up).ok_or_else(|| unsupported(expr))
        };
        let (left, right) = (wide(left, left_up)?, wide(right, right_up)?);
        if op == Arithmetic::Divide && !is_divisor(&right) {
            return Err(unsupported(expr));
        }
        let computed = Expr::arithmetic(op, left, right);
        Ok(cast(computed, Type::I128, machine))
    }

    /// Lowers the negation of a number.
    pub(super) fn negative(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        negative: &NegativeExpr,
    ) -> Result<Expr> {
        let data_type = self.type_of(negative.arg())?;
        let value = self.value(negative.arg())?;
        match data_type {
            DataType::Decimal32(..) | DataType::Decimal64(..) => {
                let machine = Type::of(&data_type).ok_or_else(|| unsupported(expr))?;
                let negated = Expr::negate(cast(value, machine, Type::I128));
                Ok(cast(negated, Type::I128, machine))
            }
            _ if data_type.is_numeric() => Ok(Expr::negate(value)),
            _ => Err(unsupported(expr)),
        }
    }

    /// Lowers casts that fail for no value.
    pub(super) fn cast(&mut self, expr: &Arc<dyn PhysicalExpr>, of: &CastExpr) -> Result<Expr> {
        let (from, to) = (self.type_of(of.expr())?, of.cast_type());
        if &from == to {
            return self.value(of.expr());
        }
        let unsupported = || unsupported(expr);
        let (Some(source), Some(machine)) = (Type::of(&from), Type::of(to)) else {
            return Err(unsupported());
        };
        if let Some(to) = Decimal::of(to) {
            let digits = match Decimal::of(&from) {
                Some(from) => from,
                None if self.can_round(of.expr(), &from)? => {
                    let value = self.value(of.expr())?;
                    return rounded(value, &to, machine).ok_or_else(unsupported);
                }
                None => Decimal::of_integer(&from).ok_or_else(unsupported)?,
            };
            let up = to.scale - digits.scale;
            if up < 0 || digits.precision + up > to.precision {
                return Err(unsupported());
            }
            let value = cast(self.value(of.expr())?, source, Type::I128);
            let value = scaled(value, up).ok_or_else(unsupported)?;
            return Ok(cast(value, Type::I128, machine));
        }
        let value = self.value(of.expr())?;
        Ok(match (&from, to) {
            // The data show whether all values fit.
            (from, to) if from.is_integer() && to.is_integer() => cast(value, source, machine),
            (from, DataType::Float32 | DataType::Float64) if from.is_integer() => {
                cast(value, source, machine)
            }
            (DataType::Float32, DataType::Float64) => cast(value, source, machine),
            (from, DataType::Float64) => {
                let Decimal { precision, scale } = Decimal::of(from).ok_or_else(unsupported)?;
                if precision > MAX_FLOAT_DIGITS && !self.may_round {
                    return Err(unsupported());
                }
                let unit = Expr::Literal(Literal::F64(10_f64.powi(scale.into())));
                let number = cast(value, source, Type::F64);
                Expr::arithmetic(Arithmetic::Divide, number, unit)
            }
            (DataType::Date32, DataType::Timestamp(unit, None)) => {
                let day = i128::from(DAY * second(*unit));
                let day = Expr::Literal(Literal::Int(day, Type::I128));
                let days = cast(value, source, Type::I128);
                let time = Expr::arithmetic(Arithmetic::Multiply, days, day);
                cast(time, Type::I128, machine)
            }
            _ => return Err(unsupported()),
        })
    }

    /// Returns true if a double may be rounded to a decimal. A kernel cannot report that it does not fit: the decimals
    /// that it is computed from must rule that out.
    fn can_round(&self, expr: &Arc<dyn PhysicalExpr>, of: &DataType) -> Result<bool> {
        let mut rounds = self.may_round && of == &DataType::Float64;
        for column in collect_columns(expr) {
            rounds &= Decimal::of(self.data_type(column.index())?).is_some();
        }
        Ok(rounds)
    }

    /// Lowers a part of a date or of a timestamp, such as its year.
    pub(super) fn date_part(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Expr> {
        let [part, of] = function.args() else {
            return Err(unsupported(expr));
        };
        let part = match word(part).as_str() {
            "year" => DatePart::Year,
            "quarter" => DatePart::Quarter,
            "month" => DatePart::Month,
            "day" => DatePart::Day,
            "dow" => DatePart::DayOfWeek,
            "doy" => DatePart::DayOfYear,
            "hour" => DatePart::Hour,
            "minute" => DatePart::Minute,
            "second" => DatePart::Second,
            _ => return Err(unsupported(expr)),
        };
        let time = match self.type_of(of)? {
            DataType::Date32 if !part.is_of_time() => self.value(of)?,
            DataType::Timestamp(unit, zone) if is_utc(zone.as_deref()) => {
                let step = match part.is_of_time() {
                    true => second(unit),
                    false => DAY * second(unit),
                };
                rounded_down(self.value(of)?, step)
            }
            _ => return Err(unsupported(expr)),
        };
        Ok(Expr::date_part(part, time))
    }

    /// Lowers a timestamp that is cut to whole seconds, minutes, hours or days.
    pub(super) fn date_trunc(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<Expr> {
        let [granularity, of] = function.args() else {
            return Err(unsupported(expr));
        };
        let DataType::Timestamp(unit, zone) = self.type_of(of)? else {
            return Err(unsupported(expr));
        };
        // with a time zone, even UTC, hours and days that do not fit 64 bits of nanoseconds are errors
        let (is_utc, has_zone) = (is_utc(zone.as_deref()), zone.is_some());
        let step = match word(granularity).as_str() {
            "microsecond" if is_utc => second(unit) / 1_000_000,
            "millisecond" if is_utc => second(unit) / 1_000,
            "second" if is_utc => second(unit),
            "minute" if is_utc => 60 * second(unit),
            "hour" if !has_zone => 3_600 * second(unit),
            "day" if !has_zone => DAY * second(unit),
            _ => return Err(unsupported(expr)),
        };
        let value = self.value(of)?;
        if step <= 1 {
            return Ok(value);
        }
        let of_step = Expr::Literal(Literal::Int(step.into(), Type::I64));
        let steps = rounded_down(value, step);
        Ok(Expr::arithmetic(Arithmetic::Multiply, steps, of_step))
    }
}

/// A day in seconds.
const DAY: i64 = 86_400;

/// A second in a unit of time.
fn second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Returns true if local time in a time zone is UTC.
fn is_utc(zone: Option<&str>) -> bool {
    matches!(zone, None | Some("UTC" | "+00:00"))
}

/// The number of steps that a time has, rounded down.
fn rounded_down(time: Expr, step: i64) -> Expr {
    match step {
        1 => time,
        _ => Expr::floor_divide(time, step),
    }
}

/// A constant text in lower case; empty for other expressions.
fn word(expr: &Arc<dyn PhysicalExpr>) -> String {
    let constant = expr.downcast_ref::<PhysicalLiteral>();
    let text = constant.and_then(|constant| constant.value().try_as_str().flatten());
    text.unwrap_or_default().to_ascii_lowercase()
}

/// Returns true if division of integers by `divisor` fails for no value.
fn is_divisor(divisor: &Expr) -> bool {
    let Expr::Literal(Literal::Int(number, _)) = divisor else {
        return false;
    };
    !matches!(number, 0 | -1)
}
