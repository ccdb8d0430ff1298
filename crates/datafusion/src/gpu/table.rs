//! What kernels look up, made of the rows of a dimension.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use vectile_gpu::Codes;
use vectile_gpu::plan::Attribute;

use super::packing::Packing;

/// What a lookup needs of a dimension.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) codes: Arc<Codes>,
    /// How keys are packed into one integer, if they are.
    pub(crate) packing: Option<Packing>,
    /// For each attribute its value for each code, and behind them that where a key is missing.
    pub(crate) values: Vec<ArrayRef>,
    /// The same without that of missing keys, as kernels have them.
    attributes: Vec<Arc<Attribute>>,
}

impl Table {
    /// That of `codes`, with `values` for each attribute.
    pub(crate) fn new(codes: Codes, packing: Option<Packing>, values: Vec<ArrayRef>) -> Self {
        let of_codes = values.iter();
        let of_codes =
            of_codes.map(|all| Attribute::new(all.slice(0, all.len().saturating_sub(1))));
        Self {
            codes: Arc::new(codes),
            packing,
            attributes: of_codes.collect(),
            values,
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|values| values.get_array_memory_size());
        self.codes.bytes() + values.sum::<usize>()
    }

    /// The values of an attribute for each code.
    pub(crate) fn attribute(&self, number: usize) -> Option<Arc<Attribute>> {
        self.attributes.get(number).cloned()
    }
}

/// The tables of all lookups.
pub(crate) type Tables = Vec<Arc<Table>>;
