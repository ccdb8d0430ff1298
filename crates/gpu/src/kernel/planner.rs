//! State of the kernel planner.

use super::bindings::Bindings;
use super::plan::{ColumnPlan, TablePlan, Test, Typed};
use super::tables::{Facts, TableSource, tables_of};
use super::task::{AccumulationScope, Task};
use crate::error::{Error, Result};
use vectile_kernels::{ColumnTraits, Transform};
use vectile_pipeline::{Aggregate, Output, join::code_bytes};
use vectile_pipeline::{Bounds, Expr, Filter, Pipeline, Type};

/// Maximum bytes of shared memory of a block: every device has more.
pub(super) const SHARED_BYTES: u32 = 64 << 10;
/// If lookups are expected to keep at most this share of the rows, the kernel has no code that decodes whole vectors.
pub(super) const SPARSE_SHARE: f64 = 0.15;

pub(super) struct Planner<'a> {
    pub pipeline: &'a Pipeline,
    pub traits: &'a [ColumnTraits],
    pub facts: &'a Facts,
    pub task: Task,
    pub columns: Vec<ColumnPlan>,
    pub tables: Vec<TablePlan>,
    pub bindings: Bindings,
    /// Expressions that were computed for the current row, with their results.
    pub computed: Vec<(Expr, Typed)>,
    /// Numbers of the [`Expr::Exists`] that enclose the current expression.
    pub enclosing_exists: Vec<usize>,
    /// Tests of columns in the current loop, each with a number that is unique in the kernel.
    pub tests: Vec<(u32, Test)>,
    /// Number of tests in all loops so far.
    pub tests_before: u32,
    /// Number of names of validity flags so far.
    pub names: u32,
    /// Lookups that filter when a row is added to its group.
    pub deferred: Vec<usize>,
    /// True if bits may take all shared memory of a multiprocessor, for one large block.
    pub may_be_large: bool,
    /// Bytes of the lookups' bits in shared memory.
    pub shared_bits: usize,
    /// Bytes of the group table in shared memory; 0 if it is too large for that.
    pub table_bytes: usize,
    /// True if the bits of some lookup are not in shared memory.
    pub has_bits_outside: bool,
    /// True if an earlier conjunct may have dropped rows.
    pub is_filtered: bool,
    /// True if the last loop over rows has no code that decodes whole vectors.
    pub is_sparse: bool,
    /// Columns that loops read from tiles.
    pub kept_tiles: Vec<usize>,
    /// Columns of which loops read single rows in their encoded form.
    pub picked: Vec<usize>,
    /// Bytes of shared memory per warp.
    pub warp_bytes: u32,
    /// The scope of accumulators.
    pub per: AccumulationScope,
}

impl<'a> Planner<'a> {
    pub fn new(
        pipeline: &'a Pipeline,
        traits: &'a [ColumnTraits],
        facts: &'a Facts,
        task: Task,
    ) -> Result<Self> {
        let width = pipeline.columns.len();
        if traits.len() != width {
            let reason = format!("{} columns where {width} belong", traits.len());
            return Err(Error::Internal(reason));
        }
        if let Output::Aggregates(aggregates) = &pipeline.output {
            // their sets are those of a table, which has one group without keys
            let is_distinct = |of: &Aggregate| matches!(of, Aggregate::CountDistinct(_));
            if aggregates.iter().any(is_distinct) {
                return Err(Error::Unsupported("distinct values without a table".into()));
            }
        }
        let columns = traits.iter().zip(&pipeline.columns);
        let columns = columns.map(|(traits, of)| ColumnPlan {
            of: Type::of(of),
            traits: traits.for_kernels(|low, high| {
                let Bounds(low, high) = Bounds::rounded(low, high);
                (low, high)
            }),
            tile: None,
        });
        let mut this = Self {
            pipeline,
            traits,
            facts,
            task,
            columns: columns.collect(),
            tables: vec![],
            bindings: Bindings::default(),
            computed: vec![],
            enclosing_exists: vec![],
            tests: vec![],
            tests_before: 0,
            names: 0,
            deferred: vec![],
            may_be_large: true,
            shared_bits: 0,
            table_bytes: 0,
            has_bits_outside: false,
            is_filtered: false,
            is_sparse: false,
            kept_tiles: vec![],
            picked: vec![],
            warp_bytes: 0,
            per: AccumulationScope::Warp,
        };
        this.defer();
        this.tables = tables_of(pipeline, task)
            .into_iter()
            .map(|of| {
                let (column, source) = (of.column, of.source);
                let is_dict = this.traits[column].has_only(Transform::Dict);
                let (is_hashed, is_coded, is_matched, count) = match source {
                    TableSource::Lookup(lookup) => (
                        facts.hashed.get(lookup) == Some(&true) && !is_dict,
                        false,
                        this.is_matched(lookup) && !this.deferred.contains(&lookup),
                        pipeline.lookups[lookup].key_table.count(),
                    ),
                    TableSource::Entries(entries) => (
                        false,
                        facts.coded.get(entries) == Some(&true),
                        true,
                        facts.entries.get(entries).copied().unwrap_or(2),
                    ),
                };
                TablePlan {
                    column,
                    source,
                    is_hashed,
                    is_coded,
                    is_matched,
                    code_bytes: code_bytes(count),
                }
            })
            .collect();
        Ok(this)
    }

    /// Adds a constant and returns its index in [`Bindings::constants`].
    pub fn constant(&mut self, value: i128) -> usize {
        self.bindings.constants.push(value);
        self.bindings.constants.len() - 1
    }

    /// Returns true if blocks have shared memory beside that of their warps.
    pub fn has_block(&self) -> bool {
        match self.task {
            Task::Groups => true,
            Task::Totals => !self.tables.is_empty(),
            Task::Masks | Task::Values | Task::AllValues | Task::Lengths => false,
        }
    }

    /// Returns true if any keys are looked up in a hash table.
    pub fn has_hashed(&self) -> bool {
        let computed = &self.bindings.tables;
        self.tables.iter().any(|table| table.is_hashed) || computed.iter().any(|of| of.is_hashed())
    }

    /// The conjuncts of the filter.
    pub fn conjuncts(&self) -> &'a [Filter] {
        match &self.pipeline.filter {
            Filter::And(parts) => parts,
            Filter::Constant(true) => &[],
            other => std::slice::from_ref(other),
        }
    }

    /// Returns true if the filter keeps only rows whose key is in the table of `lookup`.
    pub fn is_matched(&self, lookup: usize) -> bool {
        let keeps_matched =
            |filter: &Filter| matches!(filter, Filter::Matched(other) if *other == lookup);
        self.conjuncts().iter().any(keeps_matched)
    }
}
