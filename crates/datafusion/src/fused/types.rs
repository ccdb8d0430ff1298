//! Arrow types as kernels see them, and limits on the expressions that kernels compute.

use arrow::datatypes::DataType;
use vectile_pipeline::Type;

use crate::text::is_text;

/// Maximum nesting depth of an expression in a kernel; the CUDA compiler nests as deep.
pub(crate) const MAX_LEVELS: usize = 128;

/// Maximum number of nodes, not counting constants, in a filter or an expression of a kernel: larger kernels take too
/// long to compile.
pub(crate) const MAX_NODES: usize = 256;

/// Returns true if kernels can look values of this type up in a key table.
pub(crate) fn is_key(data_type: &DataType) -> bool {
    use Type::*;
    let of = Type::of(data_type);
    is_text(data_type) || matches!(of, Some(I8 | I16 | I32 | I64 | U8 | U16 | U32))
}

/// Returns true for integers and decimals of at most 64 bits, several of which can be packed into one join key.
pub(crate) fn is_packed_key(data_type: &DataType) -> bool {
    use Type::*;
    match data_type {
        DataType::Decimal128(digits, _) => *digits <= MAX_DIGITS,
        other => matches!(Type::of(other), Some(I8 | I16 | I32 | I64 | U8 | U16 | U32)),
    }
}

/// Maximum precision of a decimal that fits 64 bits.
const MAX_DIGITS: u8 = 18;
