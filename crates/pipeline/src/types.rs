//! Machine types and their constants.

use arrow::datatypes::DataType;

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

    /// Returns true for floats.
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
#[derive(Clone, Copy, Debug)]
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

/// Floats are equal if all of their bits are.
impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Null(a), Self::Null(b)) => a == b,
            (Self::Int(a, of_a), Self::Int(b, of_b)) => (a, of_a) == (b, of_b),
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits(),
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}
