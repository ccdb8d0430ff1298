//! Values of payload columns for codes that kernels put out: looked up in the tables for each part of the output, or for
//! all parts at once where a look-up of many codes costs little more than one of few.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::UInt32Type;
use datafusion::common::{Result, internal_datafusion_err};

use crate::fused::table::{Table, Tables};

/// The payload columns of tables, and the values that parts of an output share.
pub(crate) struct PayloadValues<'a> {
    tables: &'a Tables,
    shared: Vec<SharedValues>,
}

/// A payload column whose codes are put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodedColumn {
    /// Index of the codes in a part.
    pub(super) codes: usize,
    /// Index of the lookup.
    pub(super) lookup: usize,
    /// Index of the payload column in it.
    pub(super) payload: usize,
}

impl CodedColumn {
    /// The payload column that `payload` names by lookup and index, if any, of the codes with this index.
    pub(super) fn of(codes: usize, payload: Option<(usize, usize)>) -> Option<Self> {
        let (lookup, payload) = payload?;
        Some(Self {
            codes,
            lookup,
            payload,
        })
    }
}

/// The values of a payload column for the codes of all parts.
struct SharedValues {
    of: CodedColumn,
    positions: Arc<Positions>,
    values: ArrayRef,
}

/// Numbers the codes that occur.
struct Positions {
    of_codes: OfCodes,
    of_null: u32,
    /// The code at each position, in ascending order; a null comes last.
    codes: ArrayRef,
}

enum OfCodes {
    /// The position of each code; arbitrary for codes that do not occur.
    Dense(Vec<u32>),
    /// The codes that occur, in ascending order.
    Sparse(Vec<u32>),
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
        parts: &[&[ArrayRef]],
        tables: &'a Tables,
    ) -> Result<Self> {
        let mut all = Self::of_tables(tables);
        if parts.len() < 2 {
            return Ok(all);
        }
        for of in columns {
            let is_known = all.shared.iter().any(|shared| shared.of == of);
            if is_known || all.table(of.lookup)?.may_be_divided(of.payload)? {
                continue;
            }
            let mut same = all
                .shared
                .iter()
                .filter(|shared| shared.of.codes == of.codes);
            let positions = match same.next() {
                Some(shared) => Arc::clone(&shared.positions),
                None => Arc::new(Positions::of(parts, of.codes)?),
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

    fn table(&self, lookup: usize) -> Result<&Table> {
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
    /// Numbers the codes with this index in all parts.
    fn of(parts: &[&[ArrayRef]], index: usize) -> Result<Self> {
        let parts = parts.iter().map(|part| {
            let codes = part.get(index);
            as_codes(codes.ok_or_else(|| internal_datafusion_err!("no codes"))?)
        });
        let parts: Vec<&UInt32Array> = parts.collect::<Result<_>>()?;
        let all = || parts.iter().flat_map(|codes| codes.iter().flatten());
        let rows: usize = parts.iter().map(|codes| codes.len()).sum();
        let end = all().max().map_or(0, |code| code as usize + 1);
        let (of_codes, codes) = match end <= rows.saturating_mul(2) {
            true => {
                let mut occurs = vec![false; end];
                all().for_each(|code| occurs[code as usize] = true);
                let mut next = 0;
                let of_codes = occurs.iter().map(|&occurs| {
                    let position = next;
                    next += u32::from(occurs);
                    position
                });
                let of_codes = OfCodes::Dense(of_codes.collect());
                let codes = (0..).zip(occurs).filter(|(_, occurs)| *occurs);
                (of_codes, codes.map(|(code, _)| code).collect())
            }
            false => {
                let mut codes: Vec<u32> = all().collect();
                codes.sort_unstable();
                codes.dedup();
                (OfCodes::Sparse(codes.clone()), codes)
            }
        };
        let of_null = codes.len() as u32;
        let has_null = parts.iter().any(|codes| codes.null_count() > 0);
        let codes = codes.into_iter().map(Some);
        let codes: UInt32Array = codes.chain(has_null.then_some(None)).collect();
        Ok(Self {
            of_codes,
            of_null,
            codes: Arc::new(codes),
        })
    }

    /// The positions of a part's codes, which must be among those that were numbered.
    fn of_part(&self, codes: &ArrayRef) -> Result<UInt32Array> {
        let position = |code: Option<u32>| match code {
            Some(code) => match &self.of_codes {
                OfCodes::Dense(positions) => positions.get(code as usize).copied(),
                OfCodes::Sparse(codes) => codes.binary_search(&code).ok().map(|at| at as u32),
            },
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

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray};
    use vectile_pipeline::KeyTable;

    use super::*;

    fn codes(codes: Vec<Option<u32>>) -> ArrayRef {
        Arc::new(UInt32Array::from(codes))
    }

    #[test]
    fn parts_share_the_values_of_their_codes() {
        let keys = KeyTable::set(&(Arc::new(Int32Array::from(vec![1])) as _)).unwrap();
        let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "none"]));
        let payload = vec![(values.slice(0, 3), values.slice(3, 1))];
        let tables = vec![Arc::new(Table::new(keys, None, payload))];
        let parts = [
            codes(vec![Some(2), None, Some(0)]),
            codes(vec![]),
            codes(vec![Some(0), Some(2)]),
        ];
        let of = CodedColumn {
            codes: 0,
            lookup: 0,
            payload: 0,
        };
        let slices: Vec<&[ArrayRef]> = parts.iter().map(std::slice::from_ref).collect();
        let positions = Arc::new(Positions::of(&slices, 0).unwrap());
        let shared = SharedValues {
            of,
            values: tables[0].values(0, &positions.codes).unwrap(),
            positions,
        };
        let shared = PayloadValues {
            tables: &tables,
            shared: vec![shared],
        };
        let own = PayloadValues::of_tables(&tables);
        for part in &parts {
            let values = shared.of(of, part).unwrap();
            assert_eq!(&values, &own.of(of, part).unwrap());
        }
        assert!(shared.of(of, &codes(vec![Some(7)])).is_err());
    }

    #[test]
    fn codes_have_positions_however_far_apart() {
        for far in [5, 3_000_000_000] {
            let parts = [
                codes(vec![Some(far), Some(1)]),
                codes(vec![None, Some(far)]),
            ];
            let slices: Vec<&[ArrayRef]> = parts.iter().map(std::slice::from_ref).collect();
            let positions = Positions::of(&slices, 0).unwrap();
            assert_eq!(&positions.codes, &codes(vec![Some(1), Some(far), None]));
            assert_eq!(positions.of_part(&parts[0]).unwrap().values(), &[1, 0]);
            assert_eq!(positions.of_part(&parts[1]).unwrap().values(), &[2, 1]);
            assert!(positions.of_part(&codes(vec![Some(far + 1)])).is_err());
        }
    }
}
