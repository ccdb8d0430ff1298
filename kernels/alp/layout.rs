//! Decimal floats: integers, a scale for each vector, and exceptions.

use arrow::datatypes::DataType;
use vectile_encodings::layout::PatchList;

use crate::builder::Builder;
use crate::error::Result;

/// Scales: exponent * 19 + factor.
pub const SCALES: usize = 19 * 19;

/// Lays out floats whose integers are a sequence, less the reference; `scales` has exponent and factor of each vector.
pub(super) fn lay_out<'a>(
    builder: &mut Builder,
    data_type: &DataType,
    reference: i64,
    scales: impl Iterator<Item = (&'a u8, &'a u8)>,
    exceptions: PatchList<'_>,
) -> Result<()> {
    builder.reference = i128::from(reference);
    for (vector, (exponent, factor)) in scales.enumerate() {
        let scale = u16::from(*exponent) * 19 + u16::from(*factor);
        builder.vectors[vector].scale = scale;
        builder.traits.scale(scale);
    }
    let bytes = match data_type {
        DataType::Float32 => 4,
        _ => 8,
    };
    builder.exceptions(exceptions, bytes)
}
