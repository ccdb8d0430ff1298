//! What kernels look up, made of the rows of a dimension.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::UInt32Type;
use datafusion::common::{Result, internal_datafusion_err};
use vectile_gpu::Codes;
use vectile_gpu::plan::Attribute;

use super::packing::Packing;
use super::scalar::reinterpret;
use crate::error;

/// What a lookup needs of a dimension.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) codes: Arc<Codes>,
    /// How keys are packed into one integer, if they are.
    pub(crate) packing: Option<Packing>,
    /// Whether there was a row, be its key null or no value of the key's type.
    pub(crate) has_rows: bool,
    /// Whether a key was null, of which there is no code.
    pub(crate) has_null: bool,
    attributes: Vec<TableAttribute>,
}

#[derive(Debug)]
struct TableAttribute {
    /// As kernels have it.
    of_codes: Arc<Attribute>,
    /// The value where a key is missing.
    missing: ArrayRef,
    /// If what kernels have is a code of another table: that, and the attribute there.
    of_code: Option<(Arc<Table>, usize)>,
    /// The value for each code, and behind them the missing one, once somebody has asked.
    values: OnceLock<ArrayRef>,
}

/// An attribute that the device has made.
pub(crate) struct AttributeOnDevice {
    pub(crate) of_codes: Arc<Attribute>,
    /// The value where a key is missing, of the type that is wanted.
    pub(crate) missing: ArrayRef,
    /// If it is a code of another table: that, and the attribute there.
    pub(crate) of_code: Option<(Arc<Table>, usize)>,
}

impl Table {
    /// That of `codes`, with a value for each, and behind them the missing one, for each attribute.
    pub(crate) fn new(codes: Codes, packing: Option<Packing>, values: Vec<ArrayRef>) -> Self {
        let attributes = values.into_iter().map(|all| {
            let count = all.len().saturating_sub(1);
            TableAttribute {
                of_codes: Attribute::new(all.slice(0, count)),
                missing: all.slice(count, all.len() - count),
                of_code: None,
                values: all.into(),
            }
        });
        Self {
            has_rows: !codes.is_empty(),
            codes: Arc::new(codes),
            packing,
            has_null: false,
            attributes: attributes.collect(),
        }
    }

    /// That of `codes` whose attributes are on the device.
    pub(crate) fn on_device(
        codes: Codes,
        packing: Option<Packing>,
        attributes: Vec<AttributeOnDevice>,
    ) -> Self {
        let attributes = attributes.into_iter();
        let attributes = attributes.map(|attribute| TableAttribute {
            of_codes: attribute.of_codes,
            missing: attribute.missing,
            of_code: attribute.of_code,
            values: OnceLock::new(),
        });
        Self {
            has_rows: !codes.is_empty(),
            codes: Arc::new(codes),
            packing,
            has_null: false,
            attributes: attributes.collect(),
        }
    }

    /// The same, of rows of which some may have no code.
    pub(crate) fn of_rows(mut self, has_rows: bool, has_null: bool) -> Self {
        self.has_rows = has_rows;
        self.has_null = has_null;
        self
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.attributes.iter().map(|attribute| {
            let width = attribute.of_codes.data_type().primitive_width();
            let on_device = attribute.of_codes.len() * width.unwrap_or(1);
            match attribute.values.get() {
                Some(values) => values.get_array_memory_size(),
                None => on_device,
            }
        });
        self.codes.bytes() + values.sum::<usize>()
    }

    /// The values of an attribute for each code.
    pub(crate) fn attribute(&self, number: usize) -> Option<Arc<Attribute>> {
        let attribute = self.attributes.get(number)?;
        Some(Arc::clone(&attribute.of_codes))
    }

    /// The values of an attribute for each code, and behind them that where a key is missing. Those that the device has
    /// made are copied back at first.
    pub(crate) fn values(&self, number: usize) -> Result<ArrayRef> {
        let attribute = self.attributes.get(number);
        let attribute = attribute.ok_or_else(|| internal_datafusion_err!("no attribute"))?;
        if let Some(values) = attribute.values.get() {
            return Ok(Arc::clone(values));
        }
        let values = attribute.of_codes.values().map_err(error::gpu)?;
        let values = match &attribute.of_code {
            None => reinterpret(&values, attribute.missing.data_type())?,
            Some((table, number)) => {
                let values = of_codes(&values, &table.values(*number)?)?;
                cast(&values, attribute.missing.data_type())?
            }
        };
        let all = concat(&[&values, &attribute.missing])?;
        Ok(Arc::clone(attribute.values.get_or_init(|| all)))
    }

    /// How many attributes there are.
    #[cfg(test)]
    pub(crate) fn width(&self) -> usize {
        self.attributes.len()
    }
}

/// The values of codes. That of a missing key, whose code is null, is the last one.
pub(crate) fn of_codes(codes: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef> {
    let codes = codes.as_primitive_opt::<UInt32Type>();
    let codes = codes.ok_or_else(|| internal_datafusion_err!("codes of another type"))?;
    if codes.null_count() == 0 {
        return Ok(take(values, codes, None)?);
    }
    let missing = u32::try_from(values.len().saturating_sub(1)).ok();
    let codes: UInt32Array = codes.iter().map(|code| code.or(missing)).collect();
    Ok(take(values, &codes, None)?)
}

/// The tables of all lookups.
pub(crate) type Tables = Vec<Arc<Table>>;
