//! What kernels look up, made of the rows of a dimension.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use vectile_gpu::Codes;

/// What a lookup needs of a dimension.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) codes: Arc<Codes>,
    /// For each attribute its value for each code, and behind them that where a key is missing.
    pub(crate) values: Vec<ArrayRef>,
}

impl Table {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|values| values.get_array_memory_size());
        self.codes.bytes() + values.sum::<usize>()
    }

    /// The values of an attribute for each code.
    pub(crate) fn values_of_codes(&self, attribute: usize) -> Option<ArrayRef> {
        let values = self.values.get(attribute)?;
        Some(values.slice(0, values.len().checked_sub(1)?))
    }
}

/// The tables of all lookups.
pub(crate) type Tables = Vec<Arc<Table>>;
