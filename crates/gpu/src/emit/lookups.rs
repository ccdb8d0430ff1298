//! Lookups: which rows have a key that is there, and the codes of those that are selected.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};

use super::generator::{Generator, SPARSE_SHARE, stored_name};
use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{
    Argument, Bounds, EntryTest, FIXED_ARGUMENTS, GROUP_WORDS, SHARED_TABLE, TABLE_WORDS,
    TableSource, TableUse, Task, push,
};
use crate::layout::Form;
use crate::plan::{Filter, GroupKey, Output, Type, code_bytes};

/// Share of the rows that pass from which on a key is not looked up beforehand, if its code is wanted.
const DEFERRED_SHARE: f64 = 0.5;
/// What it takes to look rows up in the caches, beside shared memory.
const GATHERED_COST: f64 = 6.0;
/// What it takes to look rows up in a hash table: a guess, of a sector of memory for each of them and some
/// of the next.
const HASHED_COST: f64 = 12.0;
/// Bytes of bits, of all lookups together, up to which blocks have copies in shared memory without being
/// fewer for it.
const SHARED_BITS: usize = 32 << 10;
/// Bytes of shared memory that large blocks need for other things: a table of groups, and what the
/// system takes.
const OTHER_SHARED: usize = SHARED_TABLE as usize + (2 << 10);
/// Rows of a launch from which on a byte of bits should be worth copying for each multiprocessor: an estimate.
const ROWS_PER_BYTE: u64 = 16;

impl Generator<'_> {
    /// The word of a row group where code tests begin.
    pub fn first_test(&self) -> usize {
        GROUP_WORDS + self.shapes.len() + TABLE_WORDS * self.tables.len()
    }

    /// Code for a table. It is made where it is used: kept for all vectors it takes registers that are
    /// wanted more by what is loaded.
    pub fn table(&mut self, table: usize) -> String {
        let column = self.tables[table].column;
        self.chunk(column);
        let slot = GROUP_WORDS + self.shapes.len() + TABLE_WORDS * table;
        let made = match self.is_hashed(table) {
            true => "hash_table_of",
            false => "table_of",
        };
        format!("{made}<C{column}>(h{column}, group + {slot})")
    }

    /// The type of a table.
    pub fn table_type(&self, table: usize) -> &'static str {
        match self.is_hashed(table) {
            true => "HashTable",
            false => "Table",
        }
    }

    /// Whether some chunk's keys are looked up in a hash table. Dictionaries' codes never are.
    pub fn is_hashed(&self, table: usize) -> bool {
        let TableUse { column, source } = self.tables[table];
        match source {
            TableSource::Lookup(lookup) => {
                let of_keys = self.facts.hashed.get(lookup).copied().unwrap_or(false);
                of_keys && self.shapes[column].forms != 1 << Form::Dict as u8
            }
            TableSource::Entries(_) => false,
        }
    }

    /// Code for the code that the row has in a table, ALL if none: `q` and the table.
    pub fn code(&mut self, table: usize) {
        let TableUse { column, source } = self.tables[table];
        let count = match source {
            TableSource::Lookup(lookup) => self.pipeline.lookups[lookup].codes.count(),
            TableSource::Entries(entries) => self.facts.entries.get(entries).copied().unwrap_or(2),
        };
        let is_nullable = self.shapes[column].nullable();
        if self.is_coded(table) && !is_nullable {
            return self.line(4, format!("const u32 q{table} = y{table}[k];"));
        }
        let row = format!("(b{table}, y{table}[k])");
        let code = match (code_bytes(count), self.is_known(table)) {
            _ if self.is_coded(table) => format!("y{table}[k]"),
            (0, true) => "0u".into(),
            (0, false) => format!("is_there{row} ? 0u : ALL"),
            (bytes, true) => format!("found_code<u{}>{row}", bytes * 8),
            (bytes, false) => format!("code_at<u{}>{row}", bytes * 8),
        };
        let is_valid = match is_nullable {
            true => format!("in && (n{column} >> k & 1)"),
            false => "in".into(),
        };
        self.line(
            4,
            format!("const u32 q{table} = {is_valid} ? {code} : ALL;"),
        );
    }

    /// Whether what a table would say of a row is known without it: the code that the row has.
    fn is_coded(&self, table: usize) -> bool {
        match self.tables[table].source {
            TableSource::Lookup(_) => false,
            TableSource::Entries(entries) => self.facts.coded.get(entries) == Some(&true),
        }
    }

    /// Whether the keys of all rows that are left by filters are in a table, and nothing has to be asked for
    /// that.
    pub fn is_known(&self, table: usize) -> bool {
        if self.is_hashed(table) {
            return false;
        }
        match self.tables[table].source {
            TableSource::Lookup(lookup) => {
                self.is_decided && self.is_found(lookup) && !self.deferred.contains(&lookup)
            }
            TableSource::Entries(_) => true,
        }
    }

    /// Conjuncts in the order in which they are tested: lookups last, those first that drop most
    /// rows for what they cost. Some are put off until rows are accumulated.
    pub fn in_order<'b>(&mut self, conjuncts: &'b [Filter]) -> Vec<&'b Filter> {
        let (lookups, mut ordered): (Vec<&Filter>, Vec<&Filter>) = conjuncts
            .iter()
            .partition(|conjunct| matches!(conjunct, Filter::Found(_) | Filter::Missing(_)));
        let facts = self.facts;
        let room = self.room_for_bits();
        let hashed: Vec<bool> = (0..facts.hashed.len())
            .map(|lookup| self.is_hashed(lookup))
            .collect();
        let cost = |lookup: usize| match facts.bits.get(lookup) {
            _ if hashed.get(lookup) == Some(&true) => HASHED_COST,
            Some(bytes) if *bytes > room => GATHERED_COST,
            _ => 1.0,
        };
        let share = |lookup: usize| facts.shares.get(lookup).copied().unwrap_or(0.5);
        let mut lookups: Vec<(f64, &Filter)> = lookups
            .into_iter()
            .filter_map(|conjunct| match conjunct {
                Filter::Found(lookup) => {
                    if share(*lookup) > DEFERRED_SHARE && self.is_code_wanted(*lookup) {
                        push(*lookup, &mut self.deferred);
                        return None;
                    }
                    Some(((1.0 - share(*lookup)) / cost(*lookup), conjunct))
                }
                Filter::Missing(lookup) => Some((share(*lookup) / cost(*lookup), conjunct)),
                _ => None,
            })
            .collect();
        // those first that drop most rows for what they cost
        lookups.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        ordered.extend(lookups.into_iter().map(|(_, conjunct)| conjunct));
        ordered
    }

    /// Share of the rows that lookups leave, as far as is known.
    pub fn expected_share(&self) -> f64 {
        let share = |filter: &Filter| match filter {
            Filter::Found(lookup) => self.facts.shares.get(*lookup).copied().unwrap_or(1.0),
            Filter::Missing(lookup) => 1.0 - self.facts.shares.get(*lookup).copied().unwrap_or(0.0),
            _ => 1.0,
        };
        match &self.pipeline.filter {
            Filter::And(parts) => parts.iter().map(share).product(),
            other => share(other),
        }
    }

    /// Whether rows are grouped by the code.
    fn is_code_wanted(&self, lookup: usize) -> bool {
        let (Output::Groups(keys, _), Task::Groups) = (&self.pipeline.output, self.task) else {
            return false;
        };
        let wanted = |key: &GroupKey| matches!(key, GroupKey::Code(other) if *other == lookup);
        self.pipeline.lookups[lookup].codes.count() > 1 && keys.iter().any(wanted)
    }

    /// Code for the mask of the rows, of those selected, whose key is there.
    pub fn found(&mut self, lookup: usize) -> Result<String> {
        let of = self.pipeline.lookups.get(lookup);
        let of = of.ok_or_else(|| Error::Unsupported(format!("there is no lookup {lookup}")))?;
        let column = of.column;
        if self.shapes[column].forms == 1 << Form::Dict as u8 {
            let test = EntryTest::Found(Arc::clone(&of.codes));
            return self.codes(column, test, None, false);
        }
        self.open(column, 2);
        let table = self.table(lookup);
        let tile = self.tile(column);
        if self.is_hashed(lookup) {
            self.is_filtered = true;
            let rows = match self.valid_rows(column) {
                Some(valid) => format!("m & {valid}"),
                None => "m".into(),
            };
            return Ok(format!(
                "found_in<C{column}>(c{column}, {rows}, {table}, {tile})"
            ));
        }
        let bytes = self.facts.bits.get(lookup).copied().unwrap_or(usize::MAX);
        let room = self.room_for_bits().saturating_sub(self.shared_bits);
        let fits = !self.shapes[column].has(Form::Dict) && bytes <= room;
        let bits = match fits {
            false => {
                self.has_bits_outside = true;
                "(const u32*)0".into()
            }
            true => {
                self.shared_bits += bytes;
                self.bits_in_shared(lookup, bytes)
            }
        };
        let every = !std::mem::replace(&mut self.is_filtered, true);
        let mask =
            format!("found_in<C{column}, {fits}, {every}>(c{column}, m, {table}, {bits}, {tile})");
        Ok(self.of_valid(column, mask, false))
    }

    /// Bytes of shared memory for bits of lookups: a few, of which several blocks of a multiprocessor can
    /// have a copy each, or all there is, for one large block.
    fn room_for_bits(&self) -> usize {
        // tiles and bits together could be more than some devices have
        if !self.has_block() || self.shared > 0 {
            return 0;
        }
        let most = self.facts.shared_bytes.saturating_sub(OTHER_SHARED);
        match self.leaves_few() {
            true => most.min(self.worth_copying()).max(SHARED_BITS),
            false => SHARED_BITS,
        }
    }

    /// Bytes for which the rows are enough to have each block copy them.
    fn worth_copying(&self) -> usize {
        usize::try_from(self.facts.rows / ROWS_PER_BYTE).unwrap_or(usize::MAX)
    }

    /// Whether a multiprocessor should have one block only, which then is large: there is no room for more
    /// copies of bits, or they are better used as a first level cache, for bits that are not copied.
    pub fn is_large(&self) -> bool {
        let is_cache_wanted = self.has_bits_outside && self.shared_bits > 0 && self.leaves_few();
        self.shared_bits > SHARED_BITS || is_cache_wanted && self.worth_copying() > SHARED_BITS
    }

    /// Whether lookups leave so few rows that a large block may pay.
    fn leaves_few(&self) -> bool {
        self.may_be_large && self.expected_share() <= SPARSE_SHARE
    }

    /// Has each block copy the bits of a lookup.
    fn bits_in_shared(&mut self, lookup: usize, bytes: usize) -> String {
        let name = format!("f{lookup}");
        let at = self.argument(Argument::Word(self.block_shared.into()));
        let words = self.argument(Argument::Word(bytes as u64 / 4));
        let from = self.argument(Argument::Bits { lookup });
        self.block_shared += (bytes as u32).next_multiple_of(16);
        let _ = writeln!(
            self.block,
            "    u32* const {name} = (u32*)(shared + a.word[{at}]);\n    \
             for (u32 i = threadIdx.x; i < a.word[{words}]; i += blockDim.x) \
             {name}[i] = __ldg((const u32*)a.word[{from}] + i);"
        );
        name
    }

    /// What the key that a row has stands for.
    pub fn looked(&mut self, lookup: usize, values: &ArrayRef) -> Result<Value> {
        let of = self.pipeline.lookups.get(lookup);
        let of = of.ok_or_else(|| Error::Unsupported(format!("there is no lookup {lookup}")))?;
        if values.len() != of.codes.count() as usize {
            let reason = format!("{} values for {} codes", values.len(), of.codes.count());
            return Err(Error::Unsupported(reason));
        }
        let data_type = values.data_type();
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        let of = Type::of(data_type).ok_or_else(unsupported)?;
        let stored = stored_name(of);
        let at = self.argument(Argument::Values(Arc::clone(values)));
        let from = format!("a.word[{at}]");
        let there = format!("(q{lookup} != ALL)");
        let valid = match values.null_count() {
            0 => there.clone(),
            _ => {
                let at = self.argument(Argument::Validity(Arc::clone(values)));
                format!("({there} && ((const u8*)a.word[{at}])[q{lookup}])")
            }
        };
        let bounds = match of {
            Type::Bool => Bounds(0, 1),
            Type::F32 | Type::F64 => Bounds(0, 0),
            of => bounds_of(values).unwrap_or(Bounds::of(of)),
        };
        let name = match of {
            Type::F32 => "float",
            Type::F64 => "double",
            Type::Bool => "bool",
            _ => bounds.name(),
        };
        let code = format!("({there} ? ({name})((const {stored}*){from})[q{lookup}] : ({name})0)");
        Ok(self.named(Value {
            code,
            valid: Some(valid),
            of,
            bounds,
        }))
    }

    /// The first argument: bytes of the block's shared memory.
    pub fn block_argument(&mut self) {
        debug_assert!(self.arguments.is_empty());
        let at = self.argument(Argument::Word(0));
        debug_assert_eq!(at, FIXED_ARGUMENTS);
    }
}

/// The bounds of integers, rounded out.
fn bounds_of(values: &ArrayRef) -> Option<Bounds> {
    let wide = crate::plan::integers(values).ok()??;
    let (low, high) = (wide.iter().min()?, wide.iter().max()?);
    Some(Bounds::rounded((*low).into(), (*high).into()))
}
