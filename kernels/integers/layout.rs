//! Integers as distances from the smallest one.

use arrow::datatypes::DataType;

use crate::builder::{Builder, unsupported};
use crate::error::Result;
use vectile_pipeline::Type;

/// Lays out integers whose distances have these bounds.
pub(super) fn lay_out(
    builder: &mut Builder,
    data_type: &DataType,
    reference: i128,
    (low, high): (u64, u64),
) -> Result<()> {
    if Type::of(data_type).is_none() {
        return Err(unsupported(data_type));
    }
    builder.reference = reference;
    builder.traits.include(
        reference.saturating_add(i128::from(low)),
        reference.saturating_add(i128::from(high)),
    );
    Ok(())
}
