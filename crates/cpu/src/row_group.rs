//! A row group, as programs read it.

use vectile_encodings::Column;
use vectile_pipeline::{Lookup, Result};

use crate::reader::Reader;

/// The columns of a row group, and the tables that they are looked up in.
#[derive(Clone, Copy)]
pub(crate) struct RowGroup<'a> {
    pub columns: &'a [Column],
    /// The readers of the columns.
    pub readers: &'a [Reader<'a>],
    pub lookups: &'a [Lookup],
    /// Called for each batch of matches, of which there may be very many: an error ends the run.
    pub check: &'a dyn Fn() -> Result<()>,
}
