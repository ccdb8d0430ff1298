//! Key tables and payload columns of one lookup of a dimension.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Scalar};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null, take};
use arrow::datatypes::{Int64Type, UInt32Type};
use datafusion::common::{Result, internal_datafusion_err};
use vectile_pipeline::KeyTable;
use vectile_pipeline::PayloadColumn;

use super::composite_key::CompositeKey;
use super::file_rows::FileRows;
use super::multimap::JoinMultiMap;
use super::scalar::reinterpret;
use crate::error;

/// The key table of a lookup, with its payload.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) codes: Arc<KeyTable>,
    /// Layout of composite keys; `None` if keys are not packed.
    pub(crate) packing: Option<CompositeKey>,
    /// True if the dimension has any row, even one whose key is null or outside the key's type.
    pub(crate) has_rows: bool,
    /// True if a key is null. Null keys have no code.
    pub(crate) has_null: bool,
    /// Multimap for duplicate keys. If set, codes of the key table identify keys, and the multimap has the payload's
    /// codes.
    pub(crate) multimap: Option<JoinMultiMap>,
    payload: Vec<TablePayload>,
}

#[derive(Debug)]
struct TablePayload {
    /// The column that kernels read.
    of_codes: Arc<PayloadColumn>,
    /// The value for rows without a match.
    missing: ArrayRef,
    meaning: PayloadMeaning,
    /// The value of each code; only of tables built on the CPU.
    values: Option<ArrayRef>,
}

/// Meaning of the values in a payload column.
#[derive(Clone, Debug)]
pub(crate) enum PayloadMeaning {
    /// The values themselves.
    Values,
    /// Codes of another table, for its payload column of that index.
    KeyTable(Arc<Table>, usize),
    /// Row numbers of files, for the column of that index.
    Rows(Arc<FileRows>, usize),
}

/// A payload column built on the device.
pub(crate) struct BuiltPayload {
    pub(crate) of_codes: Arc<PayloadColumn>,
    /// The value for rows without a match, of the output type.
    pub(crate) missing: ArrayRef,
    pub(crate) meaning: PayloadMeaning,
}

impl Table {
    /// A table built on the CPU. Each payload column has the value of each code, and that of rows without a match.
    pub(crate) fn new(
        codes: impl Into<Arc<KeyTable>>,
        packing: Option<CompositeKey>,
        payload: Vec<(ArrayRef, ArrayRef)>,
    ) -> Self {
        let codes = codes.into();
        let payload = payload.into_iter();
        let payload = payload.map(|(values, missing)| TablePayload {
            of_codes: PayloadColumn::new(Arc::clone(&values)),
            missing,
            meaning: PayloadMeaning::Values,
            values: Some(values),
        });
        Self {
            has_rows: !codes.is_empty(),
            codes,
            packing,
            has_null: false,
            multimap: None,
            payload: payload.collect(),
        }
    }

    /// A table whose payload is on the device.
    pub(crate) fn of_device(
        codes: KeyTable,
        packing: Option<CompositeKey>,
        payload: Vec<BuiltPayload>,
    ) -> Self {
        let payload = payload.into_iter();
        let payload = payload.map(|payload| TablePayload {
            of_codes: payload.of_codes,
            missing: payload.missing,
            meaning: payload.meaning,
            values: None,
        });
        Self {
            has_rows: !codes.is_empty(),
            codes: Arc::new(codes),
            packing,
            has_null: false,
            multimap: None,
            payload: payload.collect(),
        }
    }

    /// Sets the multimap of duplicate keys.
    pub(crate) fn with_multimap(mut self, multimap: Option<JoinMultiMap>) -> Self {
        self.multimap = multimap;
        self
    }

    /// Sets if the dimension has rows, and null keys.
    pub(crate) fn of_rows(mut self, has_rows: bool, has_null: bool) -> Self {
        self.has_rows = has_rows;
        self.has_null = has_null;
        self
    }

    /// Bytes in memory, on the device or the host.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.payload.iter().map(|payload| {
            let width = payload.of_codes.data_type().primitive_width();
            let on_device = payload.of_codes.len() * width.unwrap_or(1);
            match &payload.values {
                Some(values) => values.get_array_memory_size(),
                None => on_device,
            }
        });
        let multimap = self.multimap.as_ref().map_or(0, JoinMultiMap::bytes);
        self.codes.bytes() + values.sum::<usize>() + multimap
    }

    /// The values of a payload column for each code; `None` if it has codes or row numbers instead.
    pub(crate) fn payload_column(&self, number: usize) -> Option<Arc<PayloadColumn>> {
        let payload = self.payload.get(number)?;
        let are_values = matches!(payload.meaning, PayloadMeaning::Values);
        are_values.then(|| Arc::clone(&payload.of_codes))
    }

    /// Returns true if the values for several parts of codes take no more than those for all of them. Columns on the device
    /// are copied back for that. False if rows of files are read, of which parts may have the same ones. Blocks.
    pub(crate) fn may_be_divided(&self, number: usize) -> Result<bool> {
        let payload = self.payload.get(number);
        let payload = payload.ok_or_else(|| internal_datafusion_err!("no payload"))?;
        if payload.values.is_some() {
            return Ok(true);
        }
        if payload.of_codes.is_taken_by_code() {
            return Ok(false);
        }
        payload.of_codes.values().map_err(error::gpu)?;
        match &payload.meaning {
            PayloadMeaning::Values => Ok(true),
            PayloadMeaning::KeyTable(table, number) => table.may_be_divided(*number),
            PayloadMeaning::Rows(..) => Ok(false),
        }
    }

    /// The values of a payload column for `codes`. A null code gets the missing value. Blocks: columns on the device
    /// are copied back, and rows of files are read.
    pub(crate) fn values(&self, number: usize, codes: &ArrayRef) -> Result<ArrayRef> {
        let payload = self.payload.get(number);
        let payload = payload.ok_or_else(|| internal_datafusion_err!("no payload"))?;
        let codes = codes.as_primitive_opt::<UInt32Type>();
        let codes = codes.ok_or_else(|| internal_datafusion_err!("codes of another type"))?;
        let missing = Scalar::new(Arc::clone(&payload.missing));
        if let Some(values) = &payload.values {
            let values = take(values, codes, None)?;
            // the value for a null code is null already
            return Ok(
                match codes.null_count() == 0 || payload.missing.logical_null_count() == 1 {
                    true => values,
                    false => zip(&is_not_null(codes)?, &values, &missing)?,
                },
            );
        }
        let data_type = payload.missing.data_type();
        let values = payload.of_codes.take(codes).map_err(error::gpu)?;
        let values = match &payload.meaning {
            PayloadMeaning::Values if values.data_type().is_primitive() => {
                reinterpret(&values, data_type)?
            }
            PayloadMeaning::Values => cast(&values, data_type)?,
            PayloadMeaning::KeyTable(table, number) => {
                cast(&table.values(*number, &values)?, data_type)?
            }
            PayloadMeaning::Rows(rows, column) => {
                let numbers = values.as_primitive_opt::<Int64Type>();
                let numbers = numbers.ok_or_else(|| internal_datafusion_err!("no rows"))?;
                cast(&rows.values(*column, numbers)?, data_type)?
            }
        };
        match codes.null_count() {
            0 => Ok(values),
            _ => Ok(zip(&is_not_null(codes)?, &values, &missing)?),
        }
    }

    /// All values of a payload column, and behind them the missing one.
    #[cfg(test)]
    pub(crate) fn all_values(&self, number: usize) -> ArrayRef {
        let payload = &self.payload[number];
        let codes = (0..payload.of_codes.len() as u32).map(Some).chain([None]);
        let codes: ArrayRef = Arc::new(codes.collect::<arrow::array::UInt32Array>());
        self.values(number, &codes).unwrap()
    }

    /// Number of payload columns.
    #[cfg(test)]
    pub(crate) fn width(&self) -> usize {
        self.payload.len()
    }
}

/// One table for each lookup.
pub(crate) type Tables = Vec<Arc<Table>>;
