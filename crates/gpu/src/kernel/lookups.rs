//! Plans lookups: their order, which are deferred, and whose bits each block copies.

use std::sync::Arc;

use super::bindings::BitCopy;
use super::columns::{columns_of_filter, has_matches, has_probes, push};
use super::decide::{LARGE_WARPS, WARPS};
use super::groups::SHARED_TABLE;
use super::plan::Test;
use super::planner::{Planner, SHARED_BYTES, SPARSE_SHARE};
use super::task::{DictionaryTest, Task};
use crate::error::{Error, Result};
use vectile_kernels::Transform;
use vectile_pipeline::{Expr, Filter, GroupKey, KeyTable, Output};

/// A lookup whose code is a group key is deferred if more than this share of the rows match.
const DEFERRED_SHARE: f64 = 0.5;
/// Cost of a probe that reads bits through the caches, relative to one that reads shared memory.
const GATHERED_COST: f64 = 6.0;
/// Cost of a probe of a hash table (estimated): one sector of memory, for some rows a further one.
const HASHED_COST: f64 = 12.0;
/// Maximum bytes of bits, of all lookups together, that blocks copy to shared memory without a loss of occupancy.
const SHARED_BITS: usize = 32 << 10;
/// Bytes of shared memory for the system and for padding between copies of bits.
const SYSTEM_SHARED: usize = 2 << 10;
/// Bytes of shared memory that bits leave in small blocks, to keep occupancy: any group table fits.
const OTHER_SHARED: usize = SHARED_TABLE as usize + SYSTEM_SHARED;
/// Minimum rows per launch for each byte of bits copied to shared memory (estimated).
const ROWS_PER_BYTE: u64 = 16;

impl<'a> Planner<'a> {
    pub fn codes_of(&self, lookup: usize) -> Result<&'a Arc<KeyTable>> {
        let of = self.pipeline.lookups.get(lookup);
        let of = of.ok_or_else(|| Error::Internal(format!("there is no lookup {lookup}")))?;
        Ok(&of.key_table)
    }

    /// The share of rows that match; 0.5 if it is not known.
    fn share(&self, lookup: usize) -> f64 {
        self.facts.shares.get(lookup).copied().unwrap_or(0.5)
    }

    /// Defers lookups that drop few rows and whose code is a group key: they filter when rows are accumulated.
    pub fn defer(&mut self) {
        for conjunct in self.conjuncts() {
            if let Filter::Matched(lookup) = conjunct
                && self.share(*lookup) > DEFERRED_SHARE
                && self.is_code_grouped(*lookup)
            {
                push(*lookup, &mut self.deferred);
            }
        }
    }

    /// Returns true if a conjunct is evaluated when a row is added to its group: it looks up a computed key, which the
    /// aggregate may look up as well.
    fn is_late(&self, conjunct: &Filter) -> bool {
        self.task == Task::Groups
            && matches!(conjunct, Filter::Expr(condition) if has_probes(condition))
            && !conjunct_reads_matches(conjunct)
    }

    /// Join filters, evaluated per combination of a row's matches.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a conjunct that combines them with tests of columns.
    pub fn conditions_of_matches(&self) -> Result<Vec<Expr>> {
        let conjuncts = self.conjuncts().iter();
        let conditions = conjuncts.filter(|of| conjunct_reads_matches(of));
        let conditions = conditions.map(|conjunct| match conjunct {
            Filter::Expr(condition) => Ok(condition.clone()),
            _ => {
                let reason = "tests of a column beside those of matches in one condition";
                Err(Error::Unsupported(reason.into()))
            }
        });
        conditions.collect()
    }

    /// Conditions that are evaluated when a row is added to its group.
    pub fn late_conditions(&self) -> Vec<Expr> {
        let late = self.conjuncts().iter().filter(|of| self.is_late(of));
        let late = late.filter_map(|conjunct| match conjunct {
            Filter::Expr(condition) => Some(condition.clone()),
            _ => None,
        });
        late.collect()
    }

    /// The conjuncts in the order of evaluation, without deferred ones: tests of columns, then lookups by dropped rows
    /// per cost, then EXISTS, then text.
    pub fn in_order(&self) -> Vec<&'a Filter> {
        let room = self.room_for_bits();
        let cost = |lookup: usize| match self.facts.bits.get(lookup) {
            _ if self.tables.get(lookup).is_some_and(|table| table.is_hashed) => HASHED_COST,
            Some(bytes) if *bytes > room => GATHERED_COST,
            _ => 1.0,
        };
        let (mut ordered, mut of_matches, mut of_text) = (vec![], vec![], vec![]);
        let mut lookups: Vec<(f64, &Filter)> = vec![];
        for conjunct in self.conjuncts() {
            match conjunct {
                Filter::Matched(lookup) if self.deferred.contains(lookup) => {}
                conjunct if self.is_late(conjunct) || conjunct_reads_matches(conjunct) => {}
                Filter::Matched(lookup) => {
                    let dropped = 1.0 - self.share(*lookup);
                    lookups.push((dropped / cost(*lookup), conjunct));
                }
                Filter::Unmatched(lookup) => {
                    lookups.push((self.share(*lookup) / cost(*lookup), conjunct));
                }
                other if self.reads_text(other) => of_text.push(other),
                other if has_exists(other) => of_matches.push(other),
                other => ordered.push(other),
            }
        }
        lookups.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        ordered.extend(lookups.into_iter().map(|(_, conjunct)| conjunct));
        ordered.extend(of_matches);
        ordered.extend(of_text);
        ordered
    }

    /// Returns true if a conjunct scans strings, which takes longest.
    fn reads_text(&self, conjunct: &Filter) -> bool {
        let mut columns = vec![];
        columns_of_filter(conjunct, &mut columns);
        let mut columns = columns.into_iter();
        columns.any(|column| self.columns[column].traits.has(Transform::Text))
    }

    /// The share of the rows that pass all lookups; lookups without a known share pass all rows.
    pub fn expected_share(&self) -> f64 {
        let share = |filter: &Filter| match filter {
            Filter::Matched(lookup) => self.facts.shares.get(*lookup).copied().unwrap_or(1.0),
            Filter::Unmatched(lookup) => {
                1.0 - self.facts.shares.get(*lookup).copied().unwrap_or(0.0)
            }
            _ => 1.0,
        };
        self.conjuncts().iter().map(share).product()
    }

    /// Returns true if the code of a lookup is a group key.
    fn is_code_grouped(&self, lookup: usize) -> bool {
        let (Output::Groups(keys, _), Task::Groups) = (&self.pipeline.output, self.task) else {
            return false;
        };
        let is_key = |key: &GroupKey| matches!(key, GroupKey::Code(other) if *other == lookup);
        self.pipeline.lookups[lookup].key_table.count() > 1 && keys.iter().any(is_key)
    }

    /// The test if a row's key is in the table of `lookup`. Reserves shared memory for a copy of the table's bits if
    /// there is room.
    pub fn probe_test(&mut self, lookup: usize) -> Result<Test> {
        let codes = Arc::clone(self.codes_of(lookup)?);
        let column = self.pipeline.lookups[lookup].column;
        let traits = &self.columns[column].traits;
        if traits.has_only(Transform::Dict) {
            return self.codes(column, DictionaryTest::Matched(codes), None, false);
        }
        let every = !std::mem::replace(&mut self.is_filtered, true);
        // one copy of a lookup's bits, even if several tests probe it
        let copies = &self.bindings.copies;
        let mut copy = copies.iter().position(|copy| copy.lookup == lookup);
        if copy.is_none() && !self.tables[lookup].is_hashed {
            let bytes = self.facts.bits.get(lookup).copied().unwrap_or(usize::MAX);
            let room = self.room_for_bits().saturating_sub(self.shared_bits);
            match !self.columns[column].traits.has(Transform::Dict) && bytes <= room {
                false => self.has_bits_outside = true,
                true => {
                    self.shared_bits += bytes;
                    let at = self.bindings.block_bytes;
                    copy = Some(self.bindings.copies.len());
                    self.bindings.copies.push(BitCopy { lookup, at, bytes });
                    self.bindings.block_bytes += (bytes as u32).next_multiple_of(16);
                }
            }
        }
        Ok(Test::Found {
            lookup,
            copy,
            every,
        })
    }

    /// Bytes of shared memory for bits of lookups: little, so that several blocks of a multiprocessor can have a copy
    /// each, or all that is free, for one large block.
    fn room_for_bits(&self) -> usize {
        if !self.has_block() {
            return 0;
        }
        let tiles = WARPS as usize * self.warp_bytes as usize;
        let beside_tiles = (SHARED_BYTES as usize).saturating_sub(tiles + OTHER_SHARED);
        let few = match tiles {
            0 => SHARED_BITS,
            _ => SHARED_BITS.min(beside_tiles),
        };
        match self.leaves_few() {
            true => self.room_of_large().min(self.worth_copying()).max(few),
            false => few,
        }
    }

    /// Bytes of shared memory for bits in a large block.
    fn room_of_large(&self) -> usize {
        let tiles = LARGE_WARPS as usize * self.warp_bytes as usize;
        let taken = tiles + self.table_bytes + SYSTEM_SHARED;
        self.facts.shared_bytes.saturating_sub(taken)
    }

    /// Maximum bytes of bits that are worth a copy per block for the launch's rows.
    fn worth_copying(&self) -> usize {
        usize::try_from(self.facts.rows / ROWS_PER_BYTE).unwrap_or(usize::MAX)
    }

    /// Returns true if a multiprocessor should have only one block, a large one: there is no room for further copies of
    /// bits, or it is better used as first level cache for bits that are not copied.
    pub fn is_large(&self) -> bool {
        let needs_cache = self.has_bits_outside && self.shared_bits > 0 && self.leaves_few();
        let is_worth_it =
            self.shared_bits > SHARED_BITS || needs_cache && self.worth_copying() > SHARED_BITS;
        is_worth_it && self.shared_bits <= self.room_of_large()
    }

    /// Returns true if lookups keep so few rows that a large block may pay off.
    fn leaves_few(&self) -> bool {
        self.may_be_large && self.expected_share() <= SPARSE_SHARE
    }
}

/// Returns true if a conjunct reads matches that rows are combined with.
fn conjunct_reads_matches(conjunct: &Filter) -> bool {
    let mut reads = false;
    conjunct.for_exprs(&mut |expr| reads |= has_matches(expr));
    reads
}

/// Returns true if a conjunct contains [`Expr::Exists`].
fn has_exists(conjunct: &Filter) -> bool {
    let mut reads = false;
    conjunct.for_exprs(&mut |expr| {
        reads |= expr.any(&|part| matches!(part, Expr::Exists(_)));
    });
    reads
}
