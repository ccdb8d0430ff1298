//! Merges the groups of row groups.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Int8Array, Int16Array, Int32Array, Int64Array,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array, new_null_array,
};
use arrow::row::{OwnedRow, RowConverter, SortField};
use vectile_pipeline::{Aggregate, Error, GroupTotals, Groups, Numbers, Result, Type};

use crate::accumulator::merge;
use crate::group::KeyValues;
use crate::partial::Partial;

/// The most groups of all row groups together: one thread merges them.
const MOST_GROUPS: usize = 1 << 18;

/// The groups of all row groups.
#[derive(Default)]
pub(crate) struct Merger {
    keys: Vec<MergedKey>,
    /// The groups by their keys: integers, or indices of distinct entries.
    groups: HashMap<Box<[Option<i64>]>, usize>,
    totals: Vec<GroupTotals>,
    /// True for aggregates whose values are of single precision.
    singles: Vec<bool>,
}

/// The values of a key in all groups.
enum MergedKey {
    Integers(Type, Vec<Option<i64>>),
    Entries {
        converter: RowConverter,
        distinct: HashMap<OwnedRow, i64>,
        /// The entries, in the order in which they came.
        rows: Vec<OwnedRow>,
        of_groups: Vec<Option<i64>>,
    },
}

impl MergedKey {
    fn new(values: &KeyValues) -> Result<Self> {
        Ok(match values {
            KeyValues::Integers(of, _) => Self::Integers(*of, Vec::new()),
            KeyValues::Entries(entries, _) => Self::Entries {
                converter: RowConverter::new(vec![SortField::new(entries.data_type().clone())])
                    .map_err(of_arrow)?,
                distinct: HashMap::new(),
                rows: Vec::new(),
                of_groups: Vec::new(),
            },
        })
    }

    /// The keys as integers.
    fn ids(&mut self, values: KeyValues) -> Result<Vec<Option<i64>>> {
        match (self, values) {
            (Self::Integers(of, _), KeyValues::Integers(other, values)) if *of == other => {
                Ok(values)
            }
            (
                Self::Entries {
                    converter,
                    distinct,
                    rows,
                    ..
                },
                KeyValues::Entries(entries, codes),
            ) => {
                let converted = converter.convert_columns(&[entries]).map_err(of_arrow)?;
                let mut of_codes = vec![None; converted.num_rows()];
                let ids = codes.into_iter().map(|code| {
                    let code = code? as usize;
                    let id = of_codes.get_mut(code)?;
                    Some(*id.get_or_insert_with(|| {
                        let row = converted.row(code).owned();
                        *distinct.entry(row).or_insert_with_key(|row| {
                            rows.push(row.clone());
                            rows.len() as i64 - 1
                        })
                    }))
                });
                Ok(ids.collect())
            }
            _ => Err(Error::Internal("keys of another kind".into())),
        }
    }

    fn push(&mut self, id: Option<i64>) {
        match self {
            Self::Integers(_, values) => values.push(id),
            Self::Entries { of_groups, .. } => of_groups.push(id),
        }
    }

    fn array(&self) -> Result<ArrayRef> {
        match self {
            Self::Integers(of, values) => Ok(integers(*of, values)),
            Self::Entries {
                converter,
                rows,
                of_groups,
                ..
            } => {
                let rows = rows.iter().map(OwnedRow::row);
                let entries = converter.convert_rows(rows).map_err(of_arrow)?;
                let [entries] = &entries[..] else {
                    return Err(Error::Internal("a key of several columns".into()));
                };
                if entries.is_empty() {
                    return Ok(new_null_array(entries.data_type(), of_groups.len()));
                }
                let indices = of_groups.iter().map(|id| Some((*id)? as u64));
                let indices: UInt64Array = indices.collect();
                arrow::compute::take(entries, &indices, None).map_err(of_arrow)
            }
        }
    }
}

fn of_arrow(error: arrow::error::ArrowError) -> Error {
    vectile_encodings::Error::from(error).into()
}

/// An array of the Arrow type of a machine type.
fn integers(of: Type, values: &[Option<i64>]) -> ArrayRef {
    macro_rules! array {
        ($array:ty, $native:ty) => {
            Arc::new(<$array>::from_iter(
                values.iter().map(|value| Some((*value)? as $native)),
            ))
        };
    }
    match of {
        Type::Bool => Arc::new(BooleanArray::from_iter(
            values.iter().map(|value| Some((*value)? != 0)),
        )),
        Type::I8 => array!(Int8Array, i8),
        Type::I16 => array!(Int16Array, i16),
        Type::I32 => array!(Int32Array, i32),
        Type::U8 => array!(UInt8Array, u8),
        Type::U16 => array!(UInt16Array, u16),
        Type::U32 => array!(UInt32Array, u32),
        Type::U64 => array!(UInt64Array, u64),
        Type::I128 => array!(Decimal128Array, i128),
        Type::I64 | Type::F32 | Type::F64 => array!(Int64Array, i64),
    }
}

impl Merger {
    /// Adds the groups of the next row group.
    pub fn add(&mut self, aggregates: &[Aggregate], partial: Partial) -> Result<()> {
        let Partial {
            keys,
            totals,
            singles,
            count,
            ..
        } = partial;
        if self.groups.is_empty() {
            self.keys = keys.iter().map(MergedKey::new).collect::<Result<_>>()?;
            let none = |totals: &GroupTotals| GroupTotals {
                counts: Vec::new(),
                values: match totals.values {
                    Numbers::Int(_) => Numbers::Int(Vec::new()),
                    Numbers::Float(_) => Numbers::Float(Vec::new()),
                },
            };
            self.totals = totals.iter().map(none).collect();
            self.singles = singles;
        }
        if count == 0 {
            return Ok(());
        }
        let merged = self.keys.iter_mut().zip(keys);
        let ids = merged.map(|(key, values)| key.ids(values));
        let ids: Vec<Vec<Option<i64>>> = ids.collect::<Result<_>>()?;
        let mut of = Vec::with_capacity(count);
        for group in 0..count {
            let key: Box<[Option<i64>]> = ids.iter().map(|ids| ids[group]).collect();
            let next = self.groups.len();
            let merged = *self.groups.entry(key).or_insert(next);
            if next >= MOST_GROUPS && merged == next {
                let reason = format!("more than {MOST_GROUPS} groups");
                return Err(Error::Unsupported(reason));
            }
            if merged == next {
                let keys = self.keys.iter_mut().zip(&ids);
                keys.for_each(|(key, ids)| key.push(ids[group]));
            }
            of.push(merged);
        }
        let both = self.totals.iter_mut().zip(&totals);
        for (aggregate, (totals, new)) in aggregates.iter().zip(both) {
            merge(aggregate, totals, new, &of)?;
        }
        Ok(())
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// All groups, in the order in which they came.
    pub fn groups(&self) -> Result<Groups> {
        Ok(Groups {
            count: self.groups.len(),
            keys: self
                .keys
                .iter()
                .map(MergedKey::array)
                .collect::<Result<_>>()?,
            totals: self.totals(),
        })
    }

    /// The totals of each aggregate.
    pub fn totals(&self) -> Vec<GroupTotals> {
        let mut all = self.totals.clone();
        for (totals, is_single) in all.iter_mut().zip(&self.singles) {
            if let (Numbers::Float(values), true) = (&mut totals.values, is_single) {
                // makes NaNs quiet, as a conversion to single precision and back does
                let each = values.iter_mut();
                each.for_each(|value| *value = f64::from(*value as f32));
            }
        }
        all
    }
}
