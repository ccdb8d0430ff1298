//! Operators on values.

use crate::types::Type;

/// An operator on values: its operands are [`Expr::Op`](crate::Expr::Op)'s. Results are null as SQL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Compares two values of one type.
    Compare(Comparison),
    /// True if all operands are (three-valued).
    And,
    /// True if any operand is (three-valued).
    Or,
    /// The negation (three-valued).
    Not,
    /// True if the value is null; never null itself. A column may be of any type here, as its values are not read.
    IsNull,
    /// Arithmetic on two values of one type; the result has the same type. Integers wrap around, except
    /// `I128` (decimals, whose overflow is an error in DataFusion): there the data must rule overflow out, or no kernel
    /// is generated. Floats are rounded after each operation.
    Arithmetic(Arithmetic),
    /// `0 - x`, with the overflow rules of [`Op::Arithmetic`].
    Negate,
    /// Conversion that cannot fail: integers to wider integers or to narrower ones if the data fit
    /// (else no kernel is generated), integers and floats to floats, to the nearest.
    Cast(Type),
    /// The value of the first condition that is true. Operands are a condition and a value in turn, then the default;
    /// it is null if it is left out.
    Case,
    /// A part of a date in days, or of a time in seconds.
    DatePart(DatePart),
    /// An integer divided by a positive constant, rounded down. The result has the same type.
    FloorDivide(i64),
    /// A sum divided by a count, rounded towards zero; null if the count is 0. The sum is an integer of any type, the
    /// count a non-negative `I64`.
    Average,
    /// A double rounded to the nearest integer, an `I128`; ties round away from zero. Its operands (integers and
    /// constants) must guarantee that its absolute value is at most this bound.
    Rounded(i128),
}

impl Op {
    /// Returns true if the operator takes this number of operands.
    pub fn takes(self, operands: usize) -> bool {
        match self {
            Self::And | Self::Or => true,
            Self::Not
            | Self::IsNull
            | Self::Negate
            | Self::Cast(_)
            | Self::DatePart(_)
            | Self::FloorDivide(_)
            | Self::Rounded(_) => operands == 1,
            Self::Compare(_) | Self::Arithmetic(_) | Self::Average => operands == 2,
            Self::Case => operands >= 2,
        }
    }
}

/// A comparison of two values of one type; floats compare in their total order, as in arrow-rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Arithmetic on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; integers only by a constant other than 0 and -1, rounding towards zero.
    Divide,
    /// `%`; restricted like [`Divide`](Self::Divide).
    Remainder,
}

/// A part of a date, from days since 1970-01-01 (proleptic Gregorian calendar), or of a time of day, from seconds since
/// then; an `I32`. Null outside the years that arrow-rs supports, -262143 to 262142.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// The year.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// 1 to 31.
    Day,
    /// Sunday is 0.
    DayOfWeek,
    /// 1 to 366.
    DayOfYear,
    /// 0 to 23, from seconds.
    Hour,
    /// 0 to 59, from seconds.
    Minute,
    /// 0 to 59, from seconds.
    Second,
}

impl DatePart {
    /// Returns true for parts of times, which are computed from seconds, and not from days.
    pub fn is_of_time(self) -> bool {
        matches!(self, Self::Hour | Self::Minute | Self::Second)
    }
}
