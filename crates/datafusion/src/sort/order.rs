//! The order of rows by their packed keys.
//!
//! ```text
//!  most significant                              least
//!  ┌────────────┬────────────┬─ … ─┬───────┬───────────┐
//!  │ first key  │ second key │     │ batch │ row in it │
//!  └────────────┴────────────┴─ … ─┴───────┴───────────┘
//! ```
//!
//! Rows that are equal in all keys stay in the order in which they came.

use std::ops::{BitOr, Shl};

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalSortExpr;

use super::codes::Codes;

/// Rows in order: numbers of their batches and places in these.
pub(super) struct Order {
    packed: Packed,
    /// Number of bits of a row's place in its batch.
    row_bits: u32,
    /// Number of bits of a batch's number.
    batch_bits: u32,
}

/// Keys, batch and row in one integer each.
enum Packed {
    Narrow(Vec<u64>),
    Wide(Vec<u128>),
}

impl Order {
    /// Bytes that the order of a row by so many keys takes while it is made.
    pub(super) fn bytes_per_row(num_keys: usize) -> usize {
        // ranks of strings twice, for each key
        size_of::<u128>() + 2 * size_of::<u32>() * num_keys
    }

    /// The order of the rows of `batches`; `None` if their keys do not fit into an integer.
    ///
    /// # Errors
    ///
    /// Those of evaluating keys.
    pub(super) fn of(batches: &[RecordBatch], keys: &[PhysicalSortExpr]) -> Result<Option<Self>> {
        let most_rows = batches.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
        let (row_bits, batch_bits) = (bits(most_rows), bits(batches.len()));
        let mut all_bits = row_bits + batch_bits;
        let mut codes = Vec::with_capacity(keys.len());
        for key in keys {
            let columns = batches.iter().map(|batch| {
                let column = key.expr.evaluate(batch)?;
                column.into_array(batch.num_rows())
            });
            let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
            let Some(key) = Codes::of(columns, key.options)? else {
                return Ok(None);
            };
            all_bits += key.bits();
            if all_bits > u128::BITS {
                return Ok(None);
            }
            codes.push(key);
        }
        let packed = match all_bits <= u64::BITS {
            true => {
                let narrow = |code: u128| code as u64;
                Packed::Narrow(sorted(batches, &codes, (batch_bits, row_bits), narrow)?)
            }
            false => {
                let wide = |code| code;
                Packed::Wide(sorted(batches, &codes, (batch_bits, row_bits), wide)?)
            }
        };
        Ok(Some(Self {
            packed,
            row_bits,
            batch_bits,
        }))
    }

    pub(super) fn num_rows(&self) -> usize {
        match &self.packed {
            Packed::Narrow(rows) => rows.len(),
            Packed::Wide(rows) => rows.len(),
        }
    }

    /// The batches and places of up to `num_rows` rows from the row `first` on.
    pub(super) fn rows(&self, first: usize, num_rows: usize) -> Vec<(usize, usize)> {
        let (row_mask, batch_mask) = (mask(self.row_bits), mask(self.batch_bits));
        let unpack = |packed: u64| {
            let batch = packed.checked_shr(self.row_bits).unwrap_or(0) & batch_mask;
            (batch as usize, (packed & row_mask) as usize)
        };
        match &self.packed {
            Packed::Narrow(rows) => {
                let rows = rows.iter().skip(first).take(num_rows);
                rows.map(|packed| unpack(*packed)).collect()
            }
            Packed::Wide(rows) => {
                let rows = rows.iter().skip(first).take(num_rows);
                rows.map(|packed| unpack(*packed as u64)).collect()
            }
        }
    }
}

/// Number of bits of numbers below `count`.
fn bits(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

/// The lowest `bits` bits, at most 64.
fn mask(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0)
}

/// The packed rows of `batches` in order. A row's keys, batch and place have at most as many bits as `T`.
fn sorted<T>(
    batches: &[RecordBatch],
    codes: &[Codes],
    (batch_bits, row_bits): (u32, u32),
    narrowed: impl Fn(u128) -> T,
) -> Result<Vec<T>>
where
    T: Copy + Ord + BitOr<Output = T> + Shl<u32, Output = T>,
{
    let num_rows = batches.iter().map(RecordBatch::num_rows).sum();
    let mut packed: Vec<T> = Vec::with_capacity(num_rows);
    // the first key that has bits begins the integers, so that no shift is as wide as they are
    let mut codes = codes.iter().filter(|key| key.bits() > 0);
    match codes.next() {
        Some(key) => key.for_each(|code| packed.push(narrowed(code)))?,
        None => packed.resize(num_rows, narrowed(0)),
    }
    for key in codes {
        let bits = key.bits();
        let mut rows = packed.iter_mut();
        key.for_each(|code| {
            if let Some(row) = rows.next() {
                *row = (*row << bits) | narrowed(code);
            }
        })?;
    }
    let mut rows = packed.iter_mut();
    for (number, batch) in (0..).zip(batches) {
        for (place, row) in (0..batch.num_rows() as u128).zip(&mut rows) {
            let batch: u128 = number << row_bits;
            *row = (*row << (batch_bits + row_bits)) | narrowed(batch | place);
        }
    }
    packed.sort_unstable();
    Ok(packed)
}
