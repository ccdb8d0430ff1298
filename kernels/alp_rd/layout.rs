//! Split floats: a sequence of indices of left parts, packed right parts, and exceptions.

use vectile_encodings::layout::{Packed, PatchList};

use crate::builder::Builder;
use crate::error::{Error, Result};

/// Lays out floats whose indices are a sequence.
pub(super) fn lay_out(
    builder: &mut Builder,
    right_width: usize,
    lefts: [u64; 8],
    rights: Packed<'_>,
    exceptions: PatchList<'_>,
) -> Result<()> {
    builder.right_width = right_width as u32;
    builder.lefts = lefts;
    builder.traits.searched = true;
    for vector in 0..builder.vectors.len() {
        if !rights.patches().is_empty(vector) {
            return Err(Error::Unsupported("alp_rd with patched right parts".into()));
        }
        let (width, line) = (rights.width(vector), builder.line()?);
        builder.packed.extend_from_slice(rights.words(vector));
        builder.traits.width(width);
        let extra = builder.extra(vector);
        extra.right_line = line;
        extra.right_width = width as u32;
    }
    builder.exceptions(exceptions, 4)
}
