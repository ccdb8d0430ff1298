//! Plans grouped aggregates: the group number of a row, and where groups are accumulated.
//!
//! The keys of a row are the digits of its group number, in a mixed radix system. A digit is the distance of an
//! integer from the smallest one, or a code; one further digit stands for null. For few groups, each thread has
//! accumulators of all groups. For more, the group number is the index in a table if that is small enough; else it
//! is hashed.
//!
//! Keys that are too wide for a number of 62 bits are cut into parts, each a number of its own. Their hash is the group
//! number, and each entry has the parts of its group, with which those of its other rows are compared. If they differ, two
//! keys have one hash, and the result is of no use; of a hundred million groups, that happens once in two thousand times.

use super::accumulator::{Accumulator, AccumulatorSlot, Accumulators};
use super::bindings::{Digit, Grouping, SetBinding};
use super::columns::push;
use super::plan::{GroupsPlan, KeyPlan, KeySource, Strategy, Typed};
use super::planner::{Planner, SPARSE_SHARE};
use super::tables::TableSource;
use super::threads::SLOT_GROWTH;
use crate::error::{Error, Result};
use std::ops::Range;
use vectile_pipeline::{Aggregate, Bounds, Expr, GroupKey, Type};

/// Maximum bytes of a group table of which each block has one in shared memory.
pub(crate) const SHARED_TABLE: u64 = 24 << 10;
/// Maximum bytes of a table that is indexed by group number, regardless of the number of rows.
const SMALL_TABLE: u64 = 64 << 20;
/// Bits of a number of several digits, from whose columns kernels take the digits again.
const NUMBER_BITS: u32 = 62;
/// Most parts of a key.
const MOST_PARTS: usize = 8;
/// Most sets of distinct values, and most parts of keys beside them.
pub(crate) const MOST_SETS: usize = 16;
const MOST_PARTS_OF_SETS: usize = 3;
/// Maximum groups per row of a larger table that is indexed by group number.
const GROUPS_PER_ROW: u64 = 2;

/// A preliminary plan of groups. [`Planner::place_groups`] completes it once the free shared memory is known.
pub(super) struct Grouped {
    plan: GroupsPlan,
    digits: Vec<Digit>,
    groups: u64,
    table: Result<Accumulators>,
}

impl Grouped {
    /// Returns true if a table has sums of 128 bits: they take more registers than the narrower launch bounds allow.
    pub fn is_wide(&self) -> bool {
        let table = self.table.as_ref();
        let is_wide = |slot: &AccumulatorSlot| slot.accumulator == Accumulator::Sum { wide: true };
        table.is_ok_and(|table| table.all.iter().any(is_wide))
    }
}

impl Planner<'_> {
    pub fn groups(&mut self, keys: &[GroupKey], aggregates: &[Aggregate]) -> Result<Grouped> {
        let mut exprs: Vec<Expr> = vec![];
        let mut tables = self.deferred.clone();
        let mut entries = self.pipeline.lookups.len();
        let mut sources = vec![];
        for key in keys {
            match key {
                GroupKey::Value(expr) => {
                    sources.push(KeySource::Value(exprs.len()));
                    exprs.push(expr.clone());
                }
                GroupKey::Code(lookup) => {
                    sources.push(KeySource::Table(*lookup));
                    push(*lookup, &mut tables);
                }
                GroupKey::DictionaryValue(_) => {
                    sources.push(KeySource::Table(entries));
                    tables.push(entries);
                    entries += 1;
                }
                GroupKey::Mapped(..) => {
                    return Err(Error::Internal("a function of text in a kernel".into()));
                }
            }
        }
        let key_values = exprs.len();
        let conditions = self.late_conditions();
        exprs.extend(conditions.iter().cloned());
        exprs.extend(aggregates.iter().filter_map(Aggregate::argument).cloned());
        let order = self.lane_order(aggregates.iter());
        let rows = self.combined_loop(&exprs, &tables, order)?;
        let (mut digits, mut planned) = (vec![], vec![]);
        for source in sources {
            let digit = match source {
                KeySource::Value(key) => self.value_digit(&exprs[key], &rows.exprs[key])?,
                KeySource::Table(table) => self.code_digit(table),
            };
            planned.push(KeyPlan {
                source,
                nullable: digit.nullable,
                // the distance fits its width even if the values do not
                is_wide: digit.count - u64::from(digit.nullable) > 1 << 32,
            });
            digits.push(digit);
        }
        let (groups, parts) = parts(&digits)?;
        let arguments = &rows.exprs[key_values + conditions.len()..];
        let mut table = table_accumulators(arguments, aggregates, self.facts.rows);
        if let Ok(table) = &mut table {
            let of_arguments = &exprs[key_values + conditions.len()..];
            for argument in table.distinct() {
                let digit = self.value_digit(&of_arguments[argument], &arguments[argument])?;
                let together = groups.checked_mul(digit.count);
                let has_number = together.is_some_and(|together| together < 1 << NUMBER_BITS);
                self.bindings.sets.push(SetBinding {
                    first: digit.first,
                    stride: if has_number { groups.max(1) } else { 0 },
                });
            }
            let sets = self.bindings.sets.len();
            if sets > MOST_SETS || sets > 0 && parts.len() > MOST_PARTS_OF_SETS {
                return Err(Error::Unsupported("so many sets of distinct values".into()));
            }
            table.add_key_parts(parts.len());
        }
        let bytes = table.as_ref().map(|table| table_bytes(groups, table));
        self.table_bytes = bytes.map_or(0, |bytes| match bytes {
            ..=SHARED_TABLE => (bytes as usize).next_multiple_of(16),
            _ => 0,
        });
        Ok(Grouped {
            table,
            plan: GroupsPlan {
                rows,
                keys: planned,
                key_values,
                conditions: conditions.len(),
                deferred: self.deferred.clone(),
                is_wide: groups > u32::MAX.into(),
                parts,
                strategy: Strategy::Threads,
                accumulators: Accumulators::default(),
                threads: None,
            },
            digits,
            groups,
        })
    }

    /// Decides where groups are accumulated.
    pub fn place_groups(&mut self, grouped: Grouped, of: &[Aggregate]) -> Result<GroupsPlan> {
        let Grouped {
            mut plan,
            digits,
            groups,
            table,
        } = grouped;
        let is_combined = plan.rows.combined.is_some();
        let mut aggregates = of.iter();
        let has_sets = aggregates.any(|of| matches!(of, Aggregate::CountDistinct(_)));
        let may_stay = !self.facts.groups_stay && !is_combined && !has_sets;
        if self.expected_share() > SPARSE_SHARE && may_stay {
            let arguments = &plan.rows.exprs[plan.key_values + plan.conditions..];
            plan.accumulators = Accumulators::of(arguments, of, SLOT_GROWTH)?;
            plan.threads = self.threads(groups, arguments, &plan.accumulators);
        }
        if plan.threads.is_none() {
            plan.accumulators = table?;
            let group_bytes = plan.accumulators.words().1 as u64 * 8;
            let bytes = table_bytes(groups, &plan.accumulators);
            let by_rows = self.facts.rows.saturating_mul(GROUPS_PER_ROW * group_bytes);
            plan.strategy = match bytes {
                ..=SHARED_TABLE => Strategy::Shared,
                _ if bytes <= SMALL_TABLE.max(by_rows) && bytes <= self.facts.table_bytes => {
                    Strategy::Numbered
                }
                _ => Strategy::Hashed,
            };
            if plan.strategy == Strategy::Shared {
                self.bindings.table_at = self.bindings.block_bytes;
                self.bindings.block_bytes += (bytes as u32).next_multiple_of(16);
            }
        }
        self.bindings.grouping = Some(Grouping {
            digits,
            groups,
            parts: plan.parts.clone(),
        });
        Ok(plan)
    }

    fn value_digit(&self, expr: &Expr, value: &Typed) -> Result<Digit> {
        if value.of.is_float() {
            return Err(Error::Unsupported("keys that are floats".into()));
        }
        let exact = self.exact_bounds(expr);
        // values that casts or types would wrap around are in neither of the bounds
        let Bounds(low, high) = exact
            .filter(|bounds| bounds.within(value.bounds))
            .unwrap_or(value.bounds);
        let range = high
            .checked_sub(low)
            .and_then(|range| u64::try_from(range).ok());
        let nullable = value.valid.is_some();
        let count = range.and_then(|range| match nullable {
            // tables keep a number, plus one: there is no entry for the last of 2^64
            false => Some(range.saturating_add(1)),
            true => range.checked_add(2),
        });
        let count = count.ok_or_else(|| Error::Unsupported("keys of more than 64 bits".into()))?;
        Ok(Digit {
            count,
            nullable,
            first: low,
            of: Some(value.of),
        })
    }

    fn code_digit(&self, table: usize) -> Digit {
        let (count, always) = match self.tables[table].source {
            TableSource::Lookup(lookup) => {
                let count = self.pipeline.lookups[lookup].key_table.count();
                (count, self.is_matched(lookup))
            }
            TableSource::Entries(entries) => {
                let count = self.facts.entries.get(entries).copied().unwrap_or(0);
                let column = &self.columns[self.tables[table].column];
                (count, !column.traits.nullable())
            }
        };
        Digit {
            count: u64::from(count) + u64::from(!always),
            nullable: !always,
            first: 0,
            of: None,
        }
    }
}

/// The number of possible groups, and the parts of their keys, if these are too wide for one number. A part has either
/// one digit or fewer than 2^62 numbers.
fn parts(digits: &[Digit]) -> Result<(u64, Vec<Range<usize>>)> {
    let mut parts: Vec<Range<usize>> = vec![];
    let mut numbers = 1u64;
    for (key, digit) in digits.iter().enumerate() {
        let together = numbers
            .checked_mul(digit.count)
            .filter(|numbers| *numbers < 1 << NUMBER_BITS);
        match (together, parts.last_mut()) {
            (Some(together), Some(part)) => {
                numbers = together;
                part.end = key + 1;
            }
            _ => {
                numbers = digit.count;
                parts.push(key..key + 1);
            }
        }
    }
    match parts.len() {
        0..=1 => Ok((numbers, vec![])),
        2..=MOST_PARTS => Ok((u64::MAX, parts)),
        _ => Err(Error::Unsupported("keys of many parts".into())),
    }
}

/// Bytes of a group table.
fn table_bytes(groups: u64, accumulators: &Accumulators) -> u64 {
    groups.saturating_mul(accumulators.words().1 as u64 * 8)
}

/// The accumulators of groups in a table.
fn table_accumulators(
    arguments: &[Typed],
    aggregates: &[Aggregate],
    rows: u64,
) -> Result<Accumulators> {
    let accumulators = Accumulators::of(arguments, aggregates, 64 - rows.leading_zeros())?;
    let is_too_wide = |slot: &AccumulatorSlot| {
        let wide = [Accumulator::Min(Type::I128), Accumulator::Max(Type::I128)];
        wide.contains(&slot.accumulator)
    };
    match accumulators.all.iter().any(is_too_wide) {
        true => Err(Error::Unsupported("extremes of 128 bits in groups".into())),
        false => Ok(accumulators),
    }
}
