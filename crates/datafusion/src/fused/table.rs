//! What kernels look up, made of the rows of a dimension.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Scalar, UInt32Array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null, take};
use arrow::datatypes::{Int64Type, UInt32Type};
use datafusion::common::{Result, internal_datafusion_err};
use vectile_gpu::KeyTable;
use vectile_gpu::plan::PayloadColumn;

use super::composite_key::CompositeKey;
use super::file_rows::FileRows;
use super::multimap::JoinMultiMap;
use super::scalar::reinterpret;
use crate::error;

/// What a lookup needs of a dimension.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) codes: Arc<KeyTable>,
    /// How keys are packed into one integer, if they are.
    pub(crate) packing: Option<CompositeKey>,
    /// Whether there was a row, be its key null or no value of the key's type.
    pub(crate) has_rows: bool,
    /// Whether a key was null, of which there is no code.
    pub(crate) has_null: bool,
    /// The rows of each key, where some key has several: its code is of these, and not of attributes.
    pub(crate) repeated: Option<JoinMultiMap>,
    attributes: Vec<TableAttribute>,
}

#[derive(Debug)]
struct TableAttribute {
    /// As kernels have it.
    of_codes: Arc<PayloadColumn>,
    /// The value where a key is missing.
    missing: ArrayRef,
    stands_for: StandsFor,
    /// The value for each code, and behind them the missing one, of tables that were made here.
    values: Option<ArrayRef>,
}

/// The meaning of values that kernels have.
#[derive(Clone, Debug)]
pub(crate) enum StandsFor {
    /// Themselves.
    Values,
    /// Codes of another table, for the attribute of that number there.
    KeyTable(Arc<Table>, usize),
    /// Rows of files, for the column of that number.
    Rows(Arc<FileRows>, usize),
}

/// An attribute that the device has made.
pub(crate) struct BuiltPayload {
    pub(crate) of_codes: Arc<PayloadColumn>,
    /// The value where a key is missing, of the type that is wanted.
    pub(crate) missing: ArrayRef,
    pub(crate) stands_for: StandsFor,
}

impl Table {
    /// That of `codes`, with a value for each, and behind them the missing one, for each attribute.
    pub(crate) fn new(
        codes: impl Into<Arc<KeyTable>>,
        packing: Option<CompositeKey>,
        values: Vec<ArrayRef>,
    ) -> Self {
        let codes = codes.into();
        let attributes = values.into_iter().map(|all| {
            let count = all.len().saturating_sub(1);
            TableAttribute {
                of_codes: PayloadColumn::new(all.slice(0, count)),
                missing: all.slice(count, all.len() - count),
                stands_for: StandsFor::Values,
                values: Some(all),
            }
        });
        Self {
            has_rows: !codes.is_empty(),
            codes,
            packing,
            has_null: false,
            repeated: None,
            attributes: attributes.collect(),
        }
    }

    /// That of `codes` whose attributes are on the device.
    pub(crate) fn of_device(
        codes: KeyTable,
        packing: Option<CompositeKey>,
        attributes: Vec<BuiltPayload>,
    ) -> Self {
        let attributes = attributes.into_iter();
        let attributes = attributes.map(|attribute| TableAttribute {
            of_codes: attribute.of_codes,
            missing: attribute.missing,
            stands_for: attribute.stands_for,
            values: None,
        });
        Self {
            has_rows: !codes.is_empty(),
            codes: Arc::new(codes),
            packing,
            has_null: false,
            repeated: None,
            attributes: attributes.collect(),
        }
    }

    /// The same, whose codes are of keys that have these rows.
    pub(crate) fn with_repeated(mut self, repeated: Option<JoinMultiMap>) -> Self {
        self.repeated = repeated;
        self
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
            match &attribute.values {
                Some(values) => values.get_array_memory_size(),
                None => on_device,
            }
        });
        let repeated = self.repeated.as_ref().map_or(0, JoinMultiMap::bytes);
        self.codes.bytes() + values.sum::<usize>() + repeated
    }

    /// The values of an attribute for each code; `None` if kernels have codes or numbers of rows in their place.
    pub(crate) fn attribute(&self, number: usize) -> Option<Arc<PayloadColumn>> {
        let attribute = self.attributes.get(number)?;
        let are_values = matches!(attribute.stands_for, StandsFor::Values);
        are_values.then(|| Arc::clone(&attribute.of_codes))
    }

    /// The values of an attribute for some codes. A null code stands for a key that is missing, and has the missing value.
    /// Blocks, for what the device has made is copied back, and what it has not read is read.
    pub(crate) fn values(&self, number: usize, codes: &ArrayRef) -> Result<ArrayRef> {
        let attribute = self.attributes.get(number);
        let attribute = attribute.ok_or_else(|| internal_datafusion_err!("no attribute"))?;
        let codes = codes.as_primitive_opt::<UInt32Type>();
        let codes = codes.ok_or_else(|| internal_datafusion_err!("codes of another type"))?;
        if let Some(values) = &attribute.values {
            let missing = u32::try_from(values.len().saturating_sub(1)).ok();
            let codes = match codes.null_count() {
                0 => codes.clone(),
                _ => codes
                    .iter()
                    .map(|code| code.or(missing))
                    .collect::<UInt32Array>(),
            };
            return Ok(take(values, &codes, None)?);
        }
        let data_type = attribute.missing.data_type();
        let values = attribute.of_codes.at(codes).map_err(error::gpu)?;
        let values = match &attribute.stands_for {
            StandsFor::Values if values.data_type().is_primitive() => {
                reinterpret(&values, data_type)?
            }
            StandsFor::Values => cast(&values, data_type)?,
            StandsFor::KeyTable(table, number) => {
                cast(&table.values(*number, &values)?, data_type)?
            }
            StandsFor::Rows(rows, column) => {
                let numbers = values.as_primitive_opt::<Int64Type>();
                let numbers = numbers.ok_or_else(|| internal_datafusion_err!("no rows"))?;
                cast(&rows.values(*column, numbers)?, data_type)?
            }
        };
        match codes.null_count() {
            0 => Ok(values),
            _ => {
                let missing = Scalar::new(Arc::clone(&attribute.missing));
                Ok(zip(&is_not_null(codes)?, &values, &missing)?)
            }
        }
    }

    /// All values of an attribute, and behind them that where a key is missing.
    #[cfg(test)]
    pub(crate) fn all_values(&self, number: usize) -> ArrayRef {
        let codes = (0..self.codes.count()).map(Some).chain([None]);
        let codes: ArrayRef = Arc::new(codes.collect::<UInt32Array>());
        self.values(number, &codes).unwrap()
    }

    /// How many attributes there are.
    #[cfg(test)]
    pub(crate) fn width(&self) -> usize {
        self.attributes.len()
    }
}

/// The tables of all lookups.
pub(crate) type Tables = Vec<Arc<Table>>;
