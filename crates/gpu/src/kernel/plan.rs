//! The kernel plan: everything that the text of a kernel depends on, and nothing else.
//!
//! Two queries with equal plans share a kernel. Values that may differ between them (constants, first keys, sizes
//! of tables) are [`Bindings`](super::Bindings), which become arguments of the kernel.

use std::ops::Range;

use super::accumulator::Accumulators;
use super::tables::TableSource;
use super::task::{AccumulationScope, Task};
use vectile_kernels::ColumnTraits;
use vectile_pipeline::{Bounds, Op, Type};

/// The plan of a kernel: the key of the kernel cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelPlan {
    pub task: Task,
    pub columns: Vec<ColumnPlan>,
    pub tables: Vec<TablePlan>,
    /// Columns in the order in which conjuncts, then the remaining rows, read them.
    pub open_order: Vec<usize>,
    /// Columns whose words are fetched before the first conjunct is evaluated.
    pub fetched: Vec<usize>,
    /// Rows pass if all of these are true; evaluated in this order.
    pub conjuncts: Vec<Test>,
    /// Per [`CodeTest`](super::CodeTest): true if its result is a bitmap, false if it is a range of codes.
    pub bitmaps: Vec<bool>,
    pub output: OutputPlan,
    /// True if blocks have shared memory beside that of their warps.
    pub has_block: bool,
    /// Bytes of shared memory per warp.
    pub warp_bytes: u32,
    /// Warps per block.
    pub warps: u32,
    pub registers: Registers,
    /// The scope of accumulators.
    pub per: AccumulationScope,
}

/// The register budget of threads: each variant has a minimum number of blocks per multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Registers {
    Plain,
    /// Threads have accumulators in shared memory.
    Threads,
    /// The kernel has no code that decodes whole vectors.
    Sparse,
    /// As [`Sparse`](Self::Sparse), with hash tables.
    Hashed,
}

/// A column as a kernel reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColumnPlan {
    /// `None` for text.
    pub of: Option<Type>,
    /// The column's traits, with bounds rounded out and at most one scale.
    pub traits: ColumnTraits,
    /// Byte offset, in the warp's shared memory, of the tile that vectors are decoded into. Columns may share a tile.
    pub tile: Option<u32>,
}

impl ColumnPlan {
    /// Bounds of integers; `0..=0` for other types.
    pub fn bounds(&self) -> Bounds {
        self.traits
            .bounds
            .map_or(Bounds(0, 0), |(a, b)| Bounds(a, b))
    }
}

/// A key table that the kernel looks up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TablePlan {
    /// The column whose values, or dictionary codes, are looked up.
    pub column: usize,
    pub source: TableSource,
    /// True if keys of some chunk are looked up in a hash table. Dictionary codes never are.
    pub is_hashed: bool,
    /// True if the row's dictionary code is already the result; the kernel skips the probe.
    pub is_coded: bool,
    /// True if all rows that pass the conjuncts are known to have a key in the table; the kernel does not check it
    /// again.
    pub is_matched: bool,
    /// Bytes of a code.
    pub code_bytes: usize,
}

/// A test of the rows of a vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Test {
    Constant(bool),
    IsNull(usize),
    IsNotNull(usize),
    /// True if the value, or code, is in one of these ranges.
    Ranges {
        column: usize,
        ranges: Vec<RangeTest>,
        is_list: bool,
        negated: bool,
    },
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
    Expr(RowLoop),
    /// True if the key is in the table of a lookup.
    Found {
        lookup: usize,
        /// The copy of the table's bits in shared memory, by its index in
        /// [`Bindings::copies`](super::Bindings::copies).
        copy: Option<usize>,
        /// True if no row was dropped before, so all rows are looked up.
        every: bool,
    },
}

/// A range of values, and its test on dictionary codes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RangeTest {
    /// The ends, by their indices among constants.
    pub low: usize,
    pub high: usize,
    /// The test of codes, by its index in [`Bindings::code_tests`](super::Bindings::code_tests).
    pub codes: Option<usize>,
}

/// An expression with the type, bounds and validity of its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Typed {
    pub node: Node,
    pub of: Type,
    pub bounds: Bounds,
    /// The validity flag; `None` if the value is never null.
    pub valid: Option<Valid>,
}

impl Typed {
    /// Returns true if it is computed as a boolean, and not as a number.
    pub fn is_truth(&self) -> bool {
        match &self.node {
            Node::Bool(_) | Node::IsMissing(_) | Node::Tested { .. } | Node::Exists { .. } => true,
            Node::Null => self.of == Type::Bool,
            Node::Op { op, .. } => match op {
                Op::Compare(_) | Op::And | Op::Or | Op::Not | Op::IsNull => true,
                Op::Case => self.of == Type::Bool,
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns true if nothing is computed for it.
    pub fn is_leaf(&self) -> bool {
        matches!(
            self.node,
            Node::Column(_)
                | Node::Bool(_)
                | Node::Null
                | Node::Constant(_)
                | Node::IsMissing(_)
                | Node::Tested { .. }
                | Node::Code(_)
                | Node::Match(_)
        )
    }

    /// Calls `visit` for the values that it is computed from.
    pub fn for_parts<'a>(&'a self, visit: &mut impl FnMut(&'a Typed)) {
        match &self.node {
            Node::Op { operands, .. } => operands.iter().for_each(visit),
            Node::Exists {
                list, condition, ..
            } => {
                visit(&list.offset);
                visit(&list.count);
                visit(condition);
            }
            Node::Probe { key: part, .. } | Node::PayloadOf { code: part, .. } => visit(part),
            _ => {}
        }
    }
}

/// The source of a validity flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Valid {
    Column(usize),
    /// The value is always null.
    Never,
    /// A variable of this number.
    Named(u32),
}

/// The operation that computes a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Column(usize),
    Bool(bool),
    Null,
    /// By its index among constants.
    Constant(usize),
    /// An operator on values. A CASE always has its default.
    Op {
        op: Op,
        operands: Vec<Typed>,
        /// True if the result wraps around to its type.
        wraps: bool,
    },
    /// True if a column is null.
    IsMissing(usize),
    /// The result of a test of the loop, by its number in [`RowLoop::tests`].
    Tested {
        column: usize,
        test: u32,
    },
    /// A payload of a lookup, by its index in [`Bindings::attributes`](super::Bindings::attributes).
    Payload {
        lookup: usize,
        payload: usize,
        nullable: bool,
    },
    /// The row's code in a lookup's table.
    Code(usize),
    /// Index of the current match, by the number of its [`MatchesPlan`] or [`Exists`](Self::Exists).
    Match(usize),
    /// True if any match meets a condition, which is evaluated per match.
    Exists {
        list: Box<ListPlan>,
        number: usize,
        condition: Box<Typed>,
    },
    /// The code of a computed key in a table, by its index in [`Bindings::tables`](super::Bindings::tables).
    Probe {
        key: Box<Typed>,
        table: usize,
        is_hashed: bool,
        /// Bytes of a code in the table; 0 if there is only one code.
        bytes: usize,
    },
    /// The payload of a computed code, by its index in [`Bindings::attributes`](super::Bindings::attributes).
    PayloadOf {
        code: Box<Typed>,
        payload: usize,
        nullable: bool,
    },
}

/// A loop over the selected rows of a vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowLoop {
    pub exprs: Vec<Typed>,
    /// Tests of columns that expressions read, with numbers that are unique in the kernel.
    pub tests: Vec<(u32, Test)>,
    pub columns: Vec<usize>,
    pub tables: Vec<usize>,
    /// Columns that may be null, including the key columns of tables.
    pub nullable: Vec<usize>,
    pub access: SparseAccess,
    /// The column, if the loop only sums its values: then whole vectors are added up.
    pub summed: Option<usize>,
    /// The matches that rows are combined with, if any.
    pub combined: Option<Combined>,
}

/// The combinations of a row's matches that expressions are evaluated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Combined {
    pub matches: Vec<MatchesPlan>,
    /// Join filters, evaluated per combination.
    pub conditions: Vec<Typed>,
}

/// The list of a row's matches in a build table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListPlan {
    /// The offset of the first match.
    pub offset: Typed,
    /// The number of matches; null if there is none.
    pub count: Typed,
}

/// Matches that a row is combined with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchesPlan {
    pub list: ListPlan,
    /// True if a row without a match counts once (outer join).
    pub is_outer: bool,
}

/// How a loop reads single rows without decoding the whole vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SparseAccess {
    /// Never: all rows are decoded.
    Never,
    /// If few rows are selected: the lanes share them.
    Few,
    /// For any number of rows: the lanes share them.
    All,
    /// If few rows are selected: each lane reads its own, in row order.
    Own,
}

/// The output of the rows that pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutputPlan {
    Masks,
    Rows {
        columns: usize,
        /// Columns that are copied: (index of the output, column).
        copied: Vec<(usize, usize)>,
        /// Loops, each with the indices of its outputs.
        loops: Vec<(RowLoop, Vec<usize>)>,
    },
    /// The lengths of strings in the only column.
    Lengths,
    Totals {
        accumulators: Accumulators,
        /// Loops, each with the indices of its accumulators.
        loops: Vec<(RowLoop, Range<usize>)>,
        /// Accumulators that count a column's values without a loop: (index of the accumulator, column).
        counts: Vec<(usize, usize)>,
    },
    Groups(Box<GroupsPlan>),
}

/// How rows are grouped and accumulated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupsPlan {
    /// Computes values of keys, then conditions, then arguments of aggregates.
    pub rows: RowLoop,
    pub keys: Vec<KeyPlan>,
    /// Number of the loop's expressions that are values of keys.
    pub key_values: usize,
    /// Number of the loop's expressions that are conditions.
    pub conditions: usize,
    /// Lookups that filter when a row is added to its group.
    pub deferred: Vec<usize>,
    /// True if group numbers take 64 bits.
    pub is_wide: bool,
    /// The parts of a key that is too wide for one number, as ranges of `keys`; none of other keys.
    pub parts: Vec<Range<usize>>,
    pub strategy: Strategy,
    pub accumulators: Accumulators,
    pub threads: Option<ThreadsPlan>,
}

/// The aggregation strategy: where groups are accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// Each thread has accumulators of every group, in shared memory.
    Threads,
    /// An array indexed by group number in shared memory, merged into one in global memory.
    Shared,
    /// An array indexed by group number in global memory.
    Numbered,
    /// A hash table of group numbers in global memory.
    Hashed,
}

/// A group key: a digit of the group number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyPlan {
    pub source: KeySource,
    pub nullable: bool,
    /// True if the digit takes more than 32 bits.
    pub is_wide: bool,
}

/// The source of a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeySource {
    /// A value, by its index among the loop's expressions.
    Value(usize),
    /// The row's code in a table.
    Table(usize),
}

/// The layout of accumulators that each thread has for every group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadsPlan {
    pub groups: u32,
    /// Byte offset of the accumulators in a warp's shared memory.
    pub offset: u32,
    /// The location of each accumulator.
    pub locations: Vec<AccumulatorLocation>,
    /// The bit fields.
    pub fields: Vec<Field>,
    /// Number of words without fields.
    pub own_words: usize,
    /// Number of all words.
    pub words: usize,
}

/// A bit field of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub word: usize,
    /// The lowest bit.
    pub first: u32,
    pub bits: u32,
    pub signed: bool,
}

/// The location of a thread's accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccumulatorLocation {
    /// A bit field, by its index in [`ThreadsPlan::fields`].
    Field(usize),
    /// Whole words, by the index of the first.
    Own(usize),
}
