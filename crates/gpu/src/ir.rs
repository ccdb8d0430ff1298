//! What a kernel computes: a filter over the columns of a table, and what becomes of the rows that
//! pass.
//!
//! Expressions are typed by the machine ([`Type`]); what Arrow's types mean beyond that (scales of
//! decimals, units of timestamps) is made explicit by whoever builds them. Values may be null, with
//! SQL's rules. Whether intermediate results fit 32 or 64 bits is worked out from the data when
//! code is generated.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use vectile_encodings::Predicate;

use crate::codes::Codes;

/// Machine type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits; also dates in days, times, decimals of 32 bits.
    I32,
    /// Signed, 64 bits; also timestamps, durations, decimals of 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 128 bits: decimals.
    I128,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Type {
    /// The machine type of an Arrow type; `None` for strings, nested types, half floats, decimals
    /// of 256 bits and intervals of more than one part.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        Some(match data_type {
            Boolean => Self::Bool,
            Int8 => Self::I8,
            Int16 => Self::I16,
            Int32 | Date32 | Time32(_) | Decimal32(_, _) => Self::I32,
            Int64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal64(_, _) => {
                Self::I64
            }
            UInt8 => Self::U8,
            UInt16 => Self::U16,
            UInt32 => Self::U32,
            UInt64 => Self::U64,
            Decimal128(_, _) => Self::I128,
            Float32 => Self::F32,
            Float64 => Self::F64,
            _ => return None,
        })
    }

    /// Whether it is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The smallest and the largest integer; `None` for floats.
    pub fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::Bool => (0, 1),
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::I64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::I128 => (i128::MIN, i128::MAX),
            Self::F32 | Self::F64 => return None,
        })
    }
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// A null of a type.
    Null(Type),
    /// An integer (or 0 and 1 for false and true) of a type.
    Int(i128, Type),
    /// Single precision.
    F32(f32),
    /// Double precision.
    F64(f64),
}

impl Literal {
    /// Its type.
    pub fn data_type(self) -> Type {
        match self {
            Self::Null(of) | Self::Int(_, of) => of,
            Self::F32(_) => Type::F32,
            Self::F64(_) => Type::F64,
        }
    }
}

/// How two values of one type compare; floats in their total order, as arrow-rs does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; integers only by a constant other than 0 and -1, rounding towards zero.
    Divide,
    /// `%`; as division.
    Remainder,
}

/// A part of a date, from days since 1970-01-01 (proleptic Gregorian calendar); an `I32`. Null beyond the
/// years that arrow-rs knows, -262143 to 262142.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// A value for each row.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A column, by its number in [`Pipeline::columns`].
    Column(usize),
    /// The same for every row. An argument of the kernel: another one is no other kernel.
    Literal(Literal),
    /// Compares two values of one type.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// All are true (three-valued).
    And(Vec<Expr>),
    /// Some is true (three-valued).
    Or(Vec<Expr>),
    /// Neither (three-valued).
    Not(Box<Expr>),
    /// Whether it is null; never null itself.
    IsNull(Box<Expr>),
    /// Arithmetic on two values of one type, which is the result's. Integers wrap around, but for
    /// `I128` (decimals, whose overflow is an error for DataFusion): there the data must rule
    /// overflow out, or no kernel is generated. Floats are rounded after each operation.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `0 - x`, as [`Expr::Arithmetic`].
    Negate(Box<Expr>),
    /// Conversion that cannot fail: integers to wider integers or to narrower ones if the data fit
    /// (else no kernel is generated), integers and floats to floats, to the nearest.
    Cast(Box<Expr>, Type),
    /// The value behind the first condition that is true, else the last one (or null).
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A part of a date in days.
    DatePart(DatePart, Box<Expr>),
    /// A test of one column, answered on the CPU for each distinct value; see [`Filter::Values`].
    Values(usize, ValueTest),
    /// What the key that a row has in one of [`Pipeline::lookups`] stands for: the entry, at the key's
    /// code, of this array, which has one for each code. Null where the key is not there.
    Looked(usize, ArrayRef),
}

/// A deterministic test of one column's values: an entry for each, null counts as false. Nulls are
/// not asked about.
#[derive(Clone)]
pub struct ValueTest(pub Arc<ValueFunction>);

/// What a [`ValueTest`] does.
pub type ValueFunction = dyn Fn(&ArrayRef) -> vectile_encodings::Result<BooleanArray> + Send + Sync;

impl fmt::Debug for ValueTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueTest")
    }
}

/// Which rows pass: those for which it is true. A null row passes no test but
/// [`Predicate::IsNull`].
#[derive(Clone, Debug)]
pub enum Filter {
    /// Every row, or none.
    Constant(bool),
    /// A range, membership or null test of a column, evaluated on its encoded form.
    Column(usize, Predicate),
    /// Any other test of a column that is stored as a dictionary in every row group (else no kernel
    /// is generated), evaluated once for each entry.
    Values(usize, ValueTest),
    /// All pass.
    And(Vec<Filter>),
    /// Some passes.
    Or(Vec<Filter>),
    /// A boolean expression is true.
    Expr(Expr),
    /// The row's key is in one of [`Pipeline::lookups`]; a null is not.
    Found(usize),
    /// The row's key is not there, or null.
    Missing(usize),
}

/// A small table, to be looked up by the values of a column: what a join becomes.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The column that holds the keys, by its number in [`Pipeline::columns`].
    pub column: usize,
    /// The keys that are there, and the code of each.
    pub codes: Arc<Codes>,
}

/// What rows are grouped by.
#[derive(Clone, Debug)]
pub enum GroupKey {
    /// An integer or boolean. Comes back as an array of the Arrow type that a column of its machine
    /// type has: `Int32` for [`Type::I32`] and so on.
    Value(Expr),
    /// A column that is stored as a dictionary in every row group (else no kernel is generated),
    /// text above all. Comes back as an array of the column's type.
    Entry(usize),
    /// The code in one of [`Pipeline::lookups`]; null where the key is not there. Comes back as
    /// `UInt32`.
    Code(usize),
}

/// An aggregate over the rows that pass. Nulls of its argument are left out.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// The number of rows.
    CountRows,
    /// The number of values.
    Count(Expr),
    /// The sum; of integers exact, modulo 2^128; of floats in doubles.
    Sum(Expr),
    /// The smallest value; floats in their total order.
    Min(Expr),
    /// The largest value; floats in their total order.
    Max(Expr),
}

/// What becomes of the rows that pass.
#[derive(Clone, Debug)]
pub enum Output {
    /// Which they are.
    Selection,
    /// Values of each, in the order of the rows.
    Rows(Vec<Expr>),
    /// One result for each aggregate.
    Aggregates(Vec<Aggregate>),
    /// One result for each aggregate and group: the rows that have the same keys, where null is a
    /// key like any other.
    Groups(Vec<GroupKey>, Vec<Aggregate>),
}

/// What a kernel computes.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The columns that expressions and filters number.
    pub columns: Vec<DataType>,
    /// The tables that filters, expressions and keys look up, by number.
    pub lookups: Vec<Lookup>,
    /// Which rows pass.
    pub filter: Filter,
    /// What becomes of them.
    pub output: Output,
}

/// The result of an aggregate, or of a part of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Values that went in.
    pub count: u64,
    /// What they came to; `None` if there were none. A count's is its count.
    pub value: Option<Number>,
}

/// The results of some groups: an entry of each array for a group.
#[derive(Clone, Debug)]
pub struct Groups {
    /// How many there are.
    pub count: usize,
    /// Their keys, as [`GroupKey`] says.
    pub keys: Vec<ArrayRef>,
    /// What each aggregate came to.
    pub totals: Vec<GroupTotals>,
}

/// What an aggregate came to in each group.
#[derive(Clone, Debug)]
pub struct GroupTotals {
    /// Values that went in.
    pub counts: Vec<u64>,
    /// The values, of which those of groups without any are arbitrary; empty for a count.
    pub values: Numbers,
}

/// Numbers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Exact ones.
    Int(Vec<i128>),
    /// Doubles (of an `F32` too).
    Float(Vec<f64>),
}

/// A number that an aggregate came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An exact one.
    Int(i128),
    /// A double (of an `F32` too).
    Float(f64),
}
