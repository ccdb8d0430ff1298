//! What kernels make of Arrow's types.

use arrow::datatypes::DataType;
use vectile_gpu::plan::Type;

/// Levels of expressions that kernels compute. The compiler nests as deep.
pub(crate) const MOST_LEVELS: usize = 128;

/// Most parts of a filter or an expression that kernels compute, without constants: larger kernels compile for too long.
pub(crate) const MOST_PARTS: usize = 256;

/// Columns that kernels see as dictionaries only.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

/// Whether kernels look values of this type up.
pub(crate) fn is_key(data_type: &DataType) -> bool {
    use Type::*;
    let of = Type::of(data_type);
    is_text(data_type) || matches!(of, Some(I8 | I16 | I32 | I64 | U8 | U16 | U32))
}

/// Whether values of this type are integers of 64 bits or fewer, several of which make a key.
pub(crate) fn is_packed_key(data_type: &DataType) -> bool {
    use Type::*;
    match data_type {
        DataType::Decimal128(digits, _) => *digits <= MAX_DIGITS,
        other => matches!(Type::of(other), Some(I8 | I16 | I32 | I64 | U8 | U16 | U32)),
    }
}

/// Digits of decimals that 64 bits have room for.
const MAX_DIGITS: u8 = 18;

/// Whether a cast keeps values apart, and back again gives the same.
pub(crate) fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let is_string = |of: &DataType| matches!(of, Utf8 | LargeUtf8 | Utf8View);
    if from.is_integer() && to.is_integer() {
        let range = |of| Type::of(of).and_then(Type::range);
        let ranges = range(from).zip(range(to));
        return ranges.is_some_and(|(from, to)| to.0 <= from.0 && from.1 <= to.1);
    }
    from == to || is_string(from) && is_string(to)
}
