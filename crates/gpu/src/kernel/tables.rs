//! Tables that kernels look up, and facts about the data that are known before planning.

use super::task::Task;
use vectile_pipeline::{GroupKey, Output, Pipeline};

/// Facts about the data of lookups and groups that are known before planning. They decide which kernel is
/// generated, not its results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Per lookup, the share of rows whose key is in the table.
    pub shares: Vec<f64>,
    /// Per lookup, bytes of the table's bits.
    pub bits: Vec<usize>,
    /// Per lookup, true if its keys are in a hash table.
    pub hashed: Vec<bool>,
    /// Per group key that is a dictionary value, the number of distinct values.
    pub entries: Vec<u32>,
    /// Per group key that is a dictionary value, true if codes mean the same value in every row group.
    pub coded: Vec<bool>,
    /// Maximum rows of a launch.
    pub rows: u64,
    /// Maximum bytes of a group table.
    pub table_bytes: u64,
    /// Maximum bytes of shared memory of a block.
    pub shared_bytes: usize,
    /// True if the kernel is the interpreter, whose blocks have few warps.
    pub is_interpreted: bool,
    /// True if groups stay on the device: then they are in a table, regardless of their number.
    pub groups_stay: bool,
}

/// A table that a kernel looks up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableUse {
    /// The column whose values, or dictionary codes, are looked up.
    pub column: usize,
    pub source: TableSource,
}

/// The content of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TableSource {
    /// The codes of a lookup.
    Lookup(usize),
    /// Maps dictionary codes of a row group to numbers of the values among all dictionaries. The index does not count
    /// lookups.
    Entries(usize),
}

/// The tables of a pipeline, lookups first.
pub(crate) fn tables_of(pipeline: &Pipeline, task: Task) -> Vec<TableUse> {
    let lookups = pipeline.lookups.iter().enumerate();
    let mut tables: Vec<TableUse> = lookups
        .map(|(index, lookup)| TableUse {
            column: lookup.column,
            source: TableSource::Lookup(index),
        })
        .collect();
    if let (Output::Groups(keys, _), Task::Groups) = (&pipeline.output, task) {
        let columns = keys.iter().filter_map(|key| match key {
            GroupKey::DictionaryValue(column) => Some(*column),
            _ => None,
        });
        tables.extend(columns.enumerate().map(|(index, column)| TableUse {
            column,
            source: TableSource::Entries(index),
        }));
    }
    tables
}
