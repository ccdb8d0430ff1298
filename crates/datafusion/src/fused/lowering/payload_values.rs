//! Values of payload columns for groups by codes: looked up in the tables for each part of the groups, or for all parts
//! at once where a look-up of many codes costs little more than one of few.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::UInt32Type;
use datafusion::common::{Result, internal_datafusion_err};
use vectile_pipeline::Groups;

use crate::fused::table::Tables;

/// The payload columns of tables, and the values that parts of groups share.
pub(crate) struct PayloadValues<'a> {
    tables: &'a Tables,
    shared: Vec<SharedValues>,
}

/// A payload column, where the codes of some groups occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodedColumn {
    /// Index of the key that has the codes.
    pub(super) key: usize,
    /// Index of the lookup.
    pub(super) lookup: usize,
    /// Index of the payload column in it.
    pub(super) payload: usize,
}

/// The values of a payload column for the codes of all parts.
struct SharedValues {
    of: CodedColumn,
    positions: Arc<Positions>,
    values: ArrayRef,
}

/// Numbers the codes that occur.
struct Positions {
    /// The position of each code; arbitrary for codes that do not occur.
    of_codes: Vec<u32>,
    of_null: u32,
    /// The code at each position.
    codes: ArrayRef,
}

impl<'a> PayloadValues<'a> {
    /// Looks each part up in the tables.
    pub(crate) fn of_tables(tables: &'a Tables) -> Self {
        let shared = Vec::new();
        Self { tables, shared }
    }

    /// Looks the codes of all parts up at once, in those `columns` where that takes less. Blocks.
    pub(super) fn shared(
        columns: impl Iterator<Item = CodedColumn>,
        parts: &[Groups],
        tables: &'a Tables,
    ) -> Result<Self> {
        let mut all = Self::of_tables(tables);
        for of in columns {
            let is_known = all.shared.iter().any(|shared| shared.of == of);
            if is_known || all.table(of.lookup)?.may_be_divided(of.payload)? {
                continue;
            }
            let mut same = all.shared.iter().filter(|shared| shared.of.key == of.key);
            let positions = match same.next() {
                Some(shared) => Arc::clone(&shared.positions),
                None => Arc::new(Positions::of(parts, of.key)?),
            };
            let values = all.table(of.lookup)?.values(of.payload, &positions.codes)?;
            all.shared.push(SharedValues {
                of,
                positions,
                values,
            });
        }
        Ok(all)
    }

    fn table(&self, lookup: usize) -> Result<&crate::fused::table::Table> {
        let table = self.tables.get(lookup).map(Arc::as_ref);
        table.ok_or_else(|| internal_datafusion_err!("no lookup"))
    }

    /// The values of a payload column for the codes of one part. Blocks.
    pub(super) fn of(&self, of: CodedColumn, codes: &ArrayRef) -> Result<ArrayRef> {
        let mut shared = self.shared.iter();
        match shared.find(|shared| shared.of == of) {
            Some(shared) => {
                let positions = shared.positions.of_part(codes)?;
                Ok(take(&shared.values, &positions, None)?)
            }
            None => self.table(of.lookup)?.values(of.payload, codes),
        }
    }
}

impl Positions {
    /// Numbers the codes of a key.
    fn of(parts: &[Groups], key: usize) -> Result<Self> {
        let mut occurs: Vec<bool> = Vec::new();
        let mut has_null = false;
        for part in parts {
            let codes = part.keys.get(key);
            let codes = codes.ok_or_else(|| internal_datafusion_err!("no key {key}"))?;
            let codes = as_codes(codes)?;
            has_null |= codes.null_count() > 0;
            for code in codes.iter().flatten() {
                let code = code as usize;
                if code >= occurs.len() {
                    occurs.resize((code + 1).next_power_of_two(), false);
                }
                occurs[code] = true;
            }
        }
        let mut next = 0;
        let of_codes = occurs.iter().map(|&occurs| {
            let position = next;
            next += u32::from(occurs);
            position
        });
        let of_codes = of_codes.collect();
        let codes = (0..).zip(&occurs);
        let codes = codes.filter_map(|(code, &occurs)| occurs.then_some(Some(code)));
        let codes: UInt32Array = codes.chain(has_null.then_some(None)).collect();
        Ok(Self {
            of_codes,
            of_null: next,
            codes: Arc::new(codes),
        })
    }

    /// The positions of a part's codes, which must be among those that were numbered.
    fn of_part(&self, codes: &ArrayRef) -> Result<UInt32Array> {
        let position = |code: Option<u32>| match code {
            Some(code) => self.of_codes.get(code as usize).copied(),
            None => Some(self.of_null),
        };
        let positions = as_codes(codes)?.iter().map(position);
        let positions: Option<Vec<u32>> = positions.collect();
        let positions = positions.ok_or_else(|| internal_datafusion_err!("a code of no part"))?;
        Ok(positions.into())
    }
}

fn as_codes(codes: &ArrayRef) -> Result<&UInt32Array> {
    let codes = codes.as_primitive_opt::<UInt32Type>();
    codes.ok_or_else(|| internal_datafusion_err!("codes of another type"))
}
