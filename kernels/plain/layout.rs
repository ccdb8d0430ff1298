//! Values as Arrow lays them out, padded to whole vectors.

use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;

use crate::builder::{Builder, unsupported};
use crate::error::Result;
use vectile_pipeline::Type;

/// Lays out values of `width` bytes.
pub(super) fn lay_out(
    builder: &mut Builder,
    data_type: &DataType,
    width: usize,
    bytes: &Buffer,
) -> Result<()> {
    let of = Type::of(data_type).ok_or_else(|| unsupported(data_type))?;
    let whole = builder.vectors.len() * VECTOR_LEN * width;
    builder.words = bytes.slice_with_length(0, bytes.len().min(whole));
    builder.packed.resize(whole - builder.words.len(), 0);
    if let Some((low, high)) = of.range() {
        builder.traits.include(low, high);
    }
    Ok(())
}

/// Lays out values to be written later: integers within `bounds`, or floats without. Returns their bytes.
pub(super) fn lay_out_unwritten(
    builder: &mut Builder,
    data_type: &DataType,
    bounds: Option<(i128, i128)>,
) -> Result<usize> {
    let of = Type::of(data_type).filter(|of| of.is_float() == bounds.is_none());
    let width = data_type.primitive_width().filter(|_| of.is_some());
    let width = width.ok_or_else(|| unsupported(data_type))?;
    if let Some((low, high)) = bounds {
        builder.traits.include(low, high);
    }
    Ok(builder.vectors.len() * VECTOR_LEN * width)
}
