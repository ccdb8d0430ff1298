//! Domains of results: the type and the bounds of an operator's value, from those of its operands.

use crate::bounds::Bounds;
use crate::error::{Error, Result};
use crate::join::PayloadColumn;
use crate::op::{Arithmetic, DatePart};
use crate::types::Type;

/// The values that an expression may have, if it is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    /// Their type.
    pub of: Type,
    /// Bounds of integers; `0..=0` for floats.
    pub bounds: Bounds,
}

impl Domain {
    /// The domain of booleans.
    pub const BOOL: Self = Self {
        of: Type::Bool,
        bounds: Bounds(0, 1),
    };

    /// The domain of codes below `count`, with bounds that are rounded out.
    pub fn of_codes(count: u32) -> Self {
        Self {
            of: Type::U32,
            bounds: Bounds::rounded(0, i128::from(count.saturating_sub(1))),
        }
    }

    /// The domain of a payload column, with bounds that are rounded out.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values without a machine type.
    pub fn of_payload(payload: &PayloadColumn) -> Result<Self> {
        let data_type = payload.data_type();
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        let of = Type::of(data_type).ok_or_else(unsupported)?;
        let bounds = match (of, payload.bounds()) {
            (Type::Bool | Type::F32 | Type::F64, _) | (_, None) => Bounds::of(of),
            (_, Some((low, high))) => Bounds::rounded(low, high),
        };
        Ok(Self { of, bounds })
    }

    /// The domain of a result of arithmetic, and true if the result wraps around to its type. A divisor must be a
    /// constant; `constant` is the second operand if it is one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if DataFusion would return an error for some values: decimals that may overflow, a divisor
    /// of 0 or -1; and for remainders of floats. [`Error::Internal`] if the types differ.
    pub fn of_arithmetic(
        operation: Arithmetic,
        a: Self,
        b: Self,
        constant: Option<i128>,
    ) -> Result<(Self, bool)> {
        a.expect_type(b)?;
        let of = a.of;
        if of.is_float() {
            return match operation {
                Arithmetic::Remainder => Err(Error::Unsupported("the remainder of floats".into())),
                _ => Ok((a, false)),
            };
        }
        let range = Bounds::of(of);
        let (Bounds(a_low, a_high), Bounds(b_low, b_high)) = (a.bounds, b.bounds);
        let ends = |low: Option<i128>, high: Option<i128>| Some(Bounds(low?, high?));
        let exact = match operation {
            Arithmetic::Add => ends(a_low.checked_add(b_low), a_high.checked_add(b_high)),
            Arithmetic::Subtract => ends(a_low.checked_sub(b_high), a_high.checked_sub(b_low)),
            Arithmetic::Multiply => a.bounds.product(b.bounds),
            Arithmetic::Divide | Arithmetic::Remainder => {
                let divisor = constant.filter(|divisor| ![0, -1].contains(divisor));
                let Some(divisor) = divisor else {
                    let reason = "division by what may be 0 or -1";
                    return Err(Error::Unsupported(reason.into()));
                };
                if of == Type::I128 && operation == Arithmetic::Remainder {
                    return Err(Error::Unsupported("remainders of decimals".into()));
                }
                // the dividend fits its type, even if the bounds of its operands do not show it
                let dividend = Bounds(a_low.max(range.0).min(0), a_high.min(range.1).max(0));
                Some(match operation {
                    Arithmetic::Remainder => {
                        // the bounds of all divisors of the same size class: they are arguments
                        let Bounds(least, greatest) = Bounds::literal(divisor);
                        dividend.remainders(greatest - least)
                    }
                    _ if divisor < 0 => {
                        let Bounds(low, high) = dividend;
                        let most = high.max(low.saturating_neg()).min(range.1);
                        Bounds(range.0.max(-most), most)
                    }
                    _ => dividend,
                })
            }
        };
        match exact {
            Some(bounds) if bounds.within(range) => Ok((Self { of, bounds }, false)),
            _ if of == Type::I128 => Err(Error::Unsupported("decimals that may overflow".into())),
            _ => Ok((Self { of, bounds: range }, true)),
        }
    }

    /// The domain of an average: its magnitude is at most that of the sum.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] unless an integer is divided by a count.
    pub fn of_average(sum: Self, count: Self) -> Result<Self> {
        if sum.of.is_float() || count.of != Type::I64 || count.bounds.0 < 0 {
            let reason = format!("averages of {:?} by {:?}", sum.of, count.of);
            return Err(Error::Internal(reason));
        }
        let Bounds(low, high) = sum.bounds;
        let bounds = Bounds(low.min(0), high.max(0));
        Ok(Self { bounds, ..sum })
    }

    /// The domain of a part of a date in days, or of a time in seconds. The part is null for those that arrow-rs does not
    /// support.
    pub fn of_part(self, part: DatePart) -> Self {
        Self {
            of: Type::I32,
            bounds: self.bounds.clamped(Bounds::known(part)).of_part(part),
        }
    }

    /// The domain of an integer that is divided by a constant and rounded down.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] unless the integer has at most 64 bits and the divisor is positive.
    pub fn of_floor_division(self, divisor: i64) -> Result<Self> {
        if self.of.is_float() || self.of == Type::I128 || divisor < 1 {
            let reason = format!("{:?} divided by {divisor}", self.of);
            return Err(Error::Internal(reason));
        }
        let bounds = self.bounds.floor_divided(divisor);
        Ok(Self { bounds, ..self })
    }

    /// The domain of a value that is cast to a type.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if a value may not fit, and for casts of floats to integers, to booleans, and of 128 bits
    /// to floats.
    pub fn cast(self, to: Type) -> Result<Self> {
        if self.of == to {
            return Ok(self);
        }
        let bounds = match (self.of.is_float(), to.is_float()) {
            (true, false) => {
                return Err(Error::Unsupported("a cast of floats to integers".into()));
            }
            (false, false) if to != Type::Bool => {
                if !self.bounds.within(Bounds::of(to)) {
                    let reason = format!("a cast to {to:?} that may not fit");
                    return Err(Error::Unsupported(reason));
                }
                self.bounds
            }
            (false, false) => return Err(Error::Unsupported("a cast to booleans".into())),
            (false, true) if !self.bounds.within(Bounds::of(Type::I64)) => {
                return Err(Error::Unsupported("a cast of 128 bits to floats".into()));
            }
            _ => Bounds(0, 0),
        };
        Ok(Self { of: to, bounds })
    }

    /// Checks that two operands have the same type.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if they do not.
    pub fn expect_type(self, other: Self) -> Result<()> {
        if self.of == other.of {
            return Ok(());
        }
        let reason = format!("an operation on {:?} and {:?}", self.of, other.of);
        Err(Error::Internal(reason))
    }
}
