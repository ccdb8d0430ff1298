//! Tables that kernels look up, and what is known of them beforehand.

use super::task::Task;
use crate::plan::{GroupKey, Output, Pipeline};

/// What is known beforehand of the data that lookups and groups meet. It decides which kernel is
/// generated, not what comes out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Of each lookup, the share of keys that are there.
    pub shares: Vec<f64>,
    /// Of each lookup, bytes of the bits of its places.
    pub bits: Vec<usize>,
    /// Of each lookup, whether its keys are in a hash table.
    pub hashed: Vec<bool>,
    /// Of each key that is an entry of a dictionary, how many there are.
    pub entries: Vec<u32>,
    /// Of each of those, whether the number of an entry is its code in every row group.
    pub coded: Vec<bool>,
    /// Rows of a launch, at most.
    pub rows: u64,
    /// Bytes that a table of groups may take.
    pub table_bytes: u64,
    /// Bytes of shared memory that a block can have.
    pub shared_bytes: usize,
    /// Whether groups stay on the device: then they are in a table, however few there are.
    pub groups_stay: bool,
}

/// A table that a kernel looks up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableUse {
    /// The column whose values, or codes in a dictionary, are looked up.
    pub column: usize,
    pub source: TableSource,
}

/// What a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TableSource {
    /// The codes of a lookup.
    Lookup(usize),
    /// For the codes of a dictionary, the numbers that its entries have among those of all
    /// dictionaries. Counted without those of lookups.
    Entries(usize),
}

/// The tables of a pipeline: those of lookups first.
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
            GroupKey::Entry(column) => Some(*column),
            _ => None,
        });
        tables.extend(columns.enumerate().map(|(index, column)| TableUse {
            column,
            source: TableSource::Entries(index),
        }));
    }
    tables
}
