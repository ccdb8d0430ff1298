//! Arrow types by the machine type of their values.

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, IntervalUnit};

use crate::error::{Error, Result};

/// The machine type of the values of an ordered type with fixed-width values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl Class {
    /// The class of a type; `None` for strings, nested types and values without an order-preserving integer.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        Some(match data_type {
            Boolean => Self::Bool,
            Int8 => Self::I8,
            Int16 => Self::I16,
            Int32 | Date32 | Time32(_) | Decimal32(_, _) | Interval(IntervalUnit::YearMonth) => {
                Self::I32
            }
            Int64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal64(_, _) => {
                Self::I64
            }
            Decimal128(_, _) => Self::I128,
            UInt8 => Self::U8,
            UInt16 => Self::U16,
            UInt32 => Self::U32,
            UInt64 => Self::U64,
            Float16 => Self::F16,
            Float32 => Self::F32,
            Float64 => Self::F64,
            _ => return None,
        })
    }

    /// The class in which a type's values are stored: Decimal256 as long as they fit 128 bits.
    pub fn stored(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Decimal256(_, _) => Some(Self::I128),
            other => Self::of(other),
        }
    }
}

/// Runs `$body` with `$native` the Rust type of a class that is not `Bool`.
macro_rules! match_class {
    ($class:expr, bool => $bool:expr, $native:ident => $body:expr) => {{
        macro_rules! with {
            ($type:ty) => {{
                type $native = $type;
                $body
            }};
        }
        match $class {
            $crate::class::Class::Bool => $bool,
            $crate::class::Class::I8 => with!(i8),
            $crate::class::Class::I16 => with!(i16),
            $crate::class::Class::I32 => with!(i32),
            $crate::class::Class::I64 => with!(i64),
            $crate::class::Class::I128 => with!(i128),
            $crate::class::Class::U8 => with!(u8),
            $crate::class::Class::U16 => with!(u16),
            $crate::class::Class::U32 => with!(u32),
            $crate::class::Class::U64 => with!(u64),
            $crate::class::Class::F16 => with!(half::f16),
            $crate::class::Class::F32 => with!(f32),
            $crate::class::Class::F64 => with!(f64),
        }
    }};
}
pub(crate) use match_class;

/// A value as an integer of the same width with the same order (floats: arrow's total order, in
/// which every bit pattern has a position).
pub(crate) trait Native: ArrowNativeType {
    /// The integer.
    type Word: crate::words::Word + Ord + Wide;
    fn to_word(self) -> Self::Word;
    fn from_word(word: Self::Word) -> Self;
}

/// Lossless conversion to and wrapping conversion from the widest integer.
pub(crate) trait Wide: Copy {
    fn widen(self) -> i128;
    fn narrow(value: i128) -> Self;
    /// `self - smaller`, wrapping, as an unsigned number of 64 bits.
    fn distance(self, smaller: Self) -> u64;
}

macro_rules! impl_integer {
    ($($t:ty),*) => { $(
        impl Wide for $t {
            #[inline(always)]
            fn widen(self) -> i128 { self as i128 }
            #[inline(always)]
            fn narrow(value: i128) -> Self { value as $t }
            #[inline(always)]
            fn distance(self, smaller: Self) -> u64 { (self as u64).wrapping_sub(smaller as u64) }
        }
        impl Native for $t {
            type Word = $t;
            #[inline(always)]
            fn to_word(self) -> $t { self }
            #[inline(always)]
            fn from_word(word: $t) -> $t { word }
        }
    )* };
}
impl_integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

macro_rules! impl_float {
    ($($t:ty: $word:ty, $bits:ty);*) => { $(impl Native for $t {
        type Word = $word;
        #[inline(always)]
        fn to_word(self) -> $word {
            let bits = self.to_bits() as $word;
            bits ^ ((bits >> (<$word>::BITS - 1)) as $bits >> 1) as $word
        }
        #[inline(always)]
        fn from_word(word: $word) -> $t {
            <$t>::from_bits((word ^ ((word >> (<$word>::BITS - 1)) as $bits >> 1) as $word) as $bits)
        }
    })* };
}
impl_float!(half::f16: i16, u16; f32: i32, u32; f64: i64, u64);

/// The values of an array of fixed-width type, null slots included.
pub(crate) fn natives<N: ArrowNativeType>(data: &ArrayData) -> &[N] {
    data.buffer::<N>(0).get(..data.len()).unwrap_or_default()
}

/// The bits of a boolean array.
pub(crate) fn bits(array: &dyn Array) -> &BooleanBuffer {
    array.as_boolean().values()
}

/// An array of `data_type` from the bytes of its fixed-width values.
pub(crate) fn fixed_width_array(
    data_type: &DataType,
    len: usize,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let data = ArrayData::builder(data_type.clone())
        .len(len)
        .add_buffer(values)
        .nulls(nulls)
        .align_buffers(true)
        .build()
        .map_err(Error::Arrow)?;
    Ok(make_array(data))
}
