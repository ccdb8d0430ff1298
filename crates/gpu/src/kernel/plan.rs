//! What a kernel is, decided: all that its text depends on, and nothing else.
//!
//! Two queries with equal plans have the same kernel. What may differ between them (constants, first keys, sizes
//! of tables) are [`Bindings`](super::Bindings), which arguments bring to the kernel.

use std::ops::Range;

use super::accumulator::Accumulators;
use super::bounds::Bounds;
use super::tables::TableSource;
use super::task::{AccumulationScope, Task};
use crate::plan::{Arithmetic, Comparison, DatePart, Type};
use vectile_kernels::ColumnTraits;

/// A kernel before it is written: the key of the cache of kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelPlan {
    pub task: Task,
    pub columns: Vec<ColumnPlan>,
    pub tables: Vec<TablePlan>,
    /// Columns in the order in which conjuncts, and rows that are left, need them.
    pub opened: Vec<usize>,
    /// Those whose words are fetched before the first conjunct is decided.
    pub fetched: Vec<usize>,
    /// Which rows pass, one test after the other.
    pub conjuncts: Vec<Test>,
    /// Of each test of codes, whether its answers are bits, and not ranges.
    pub bitmaps: Vec<bool>,
    pub output: OutputPlan,
    /// Whether blocks have shared memory of their own.
    pub has_block: bool,
    /// Bytes of shared memory of a warp.
    pub warp_bytes: u32,
    /// Warps of a block.
    pub warps: u32,
    pub registers: Registers,
    /// What accumulators are of.
    pub per: AccumulationScope,
}

impl KernelPlan {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.warps * 32
    }
}

/// Registers that threads may take, as blocks that a multiprocessor should have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Registers {
    Plain,
    /// Threads have accumulators in shared memory.
    Threads,
    /// There is no code to decode all rows.
    Sparse,
    /// The same, with hash tables.
    Hashed,
}

/// A column as a kernel reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColumnPlan {
    /// `None` for text.
    pub of: Option<Type>,
    /// With bounds rounded out, and one scale or none.
    pub traits: ColumnTraits,
    /// Byte of the warp's shared memory where the tile is that vectors are decoded in. Columns may share one.
    pub tile: Option<u32>,
}

impl ColumnPlan {
    /// Bounds of the integers; of nothing else.
    pub fn bounds(&self) -> Bounds {
        self.traits
            .bounds
            .map_or(Bounds(0, 0), |(a, b)| Bounds(a, b))
    }
}

/// A table that is looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TablePlan {
    /// The column whose values, or codes in a dictionary, are looked up.
    pub column: usize,
    pub source: TableSource,
    /// Whether some chunk's keys are looked up in a hash table. Dictionaries' codes never are.
    pub is_hashed: bool,
    /// Whether what it would say of a row is known without it: the code that the row has.
    pub is_coded: bool,
    /// Whether rows that all conjuncts leave have a key that is there, and nothing has to be asked for that.
    pub is_found: bool,
    /// Bytes of a code.
    pub code_bytes: usize,
}

/// A test of the rows of a vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Test {
    Constant(bool),
    IsNull(usize),
    IsNotNull(usize),
    /// The value, or code, is in one of these ranges.
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
    /// The key is in the table of a lookup.
    Found {
        lookup: usize,
        /// The copy of its bits in shared memory, by number.
        copy: Option<usize>,
        /// Whether all rows are looked up, none of them dropped yet.
        every: bool,
    },
}

/// A range of values, and the codes that stand for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RangeTest {
    /// Its ends, by their numbers among constants.
    pub low: usize,
    pub high: usize,
    /// A test of codes, by number.
    pub codes: Option<usize>,
}

/// An expression with all that is known of its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Typed {
    pub node: Node,
    pub of: Type,
    pub bounds: Bounds,
    /// What says whether it is not null; `None` if it never is.
    pub valid: Option<Valid>,
}

/// What tells whether a value is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Valid {
    Column(usize),
    Never,
    /// A name of its own.
    Named(u32),
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Column(usize),
    Bool(bool),
    Null,
    /// By its number among constants.
    Constant(usize),
    Compare(Comparison, Box<Typed>, Box<Typed>),
    And(Vec<Typed>),
    Or(Vec<Typed>),
    Not(Box<Typed>),
    IsNull(Box<Typed>),
    /// Whether a column is null.
    IsMissing(usize),
    /// Whether a test of the loop, by its number, passes.
    Tested {
        column: usize,
        test: u32,
    },
    Arithmetic {
        operation: Arithmetic,
        a: Box<Typed>,
        b: Box<Typed>,
        /// Whether it is cut to its type.
        wraps: bool,
    },
    Negate {
        part: Box<Typed>,
        wraps: bool,
    },
    Cast(Box<Typed>),
    /// A sum over a number of values.
    Average(Box<Typed>, Box<Typed>),
    /// The nearest integer.
    Rounded(Box<Typed>),
    Case(Vec<(Typed, Typed)>, Box<Typed>),
    DatePart {
        part: DatePart,
        date: Box<Typed>,
        /// Whether dates may be beyond the years that have parts.
        is_checked: bool,
    },
    /// An attribute of a lookup, by its number among those of [`Bindings`](super::Bindings).
    Payload {
        lookup: usize,
        attribute: usize,
        nullable: bool,
    },
    /// The code of a lookup.
    Code(usize),
    /// The place of the partner at hand, by the number of its [`MatchesPlan`].
    Match(usize),
    /// Whether a partner meets a condition, of which it is asked one after the other.
    Exists {
        list: Box<ListPlan>,
        number: usize,
        condition: Box<Typed>,
    },
    /// The code of a computed key, in a table by its number among those of [`Bindings`](super::Bindings).
    Probe {
        key: Box<Typed>,
        table: usize,
        is_hashed: bool,
        /// Bytes of a code in the table; 0 if there is but one.
        bytes: usize,
    },
    /// The value of a code, by the number of the attribute.
    PayloadOf {
        code: Box<Typed>,
        attribute: usize,
        nullable: bool,
    },
}

/// A loop over the rows of a vector that are left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowLoop {
    pub exprs: Vec<Typed>,
    /// Tests of columns that expressions ask about, by numbers that no other loop has.
    pub tests: Vec<(u32, Test)>,
    pub columns: Vec<usize>,
    pub tables: Vec<usize>,
    /// Columns, those of tables among them, that may be null.
    pub nullable: Vec<usize>,
    pub picks: SparseAccess,
    /// The only column, if all that is asked for is the sum of its values: whole vectors are added up.
    pub summed: Option<usize>,
    /// What rows are combined with, if they are.
    pub combined: Option<Combined>,
}

/// What is computed of a row for each combination with its partners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Combined {
    pub matches: Vec<MatchesPlan>,
    /// Conditions that combinations have to meet.
    pub conditions: Vec<Typed>,
}

/// The partners of a row in a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListPlan {
    /// The place of the first one.
    pub first: Typed,
    /// How many there are, null if there is none.
    pub count: Typed,
}

/// Partners that a row is combined with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchesPlan {
    pub list: ListPlan,
    /// Whether a row without a partner counts once.
    pub is_outer: bool,
}

/// Whether selected rows are read one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SparseAccess {
    /// All rows are decoded.
    Never,
    /// If they are few: the lanes share them.
    Few,
    /// However many: the lanes share them.
    All,
    /// If they are few: each lane takes its own, in their order.
    Own,
}

/// What becomes of the rows that pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutputPlan {
    Masks,
    Rows {
        columns: usize,
        /// Columns that are copied: the output's place, the column.
        copied: Vec<(usize, usize)>,
        /// The outputs' places of each loop.
        loops: Vec<(RowLoop, Vec<usize>)>,
    },
    /// Of strings in the only column.
    Lengths,
    Totals {
        accumulators: Accumulators,
        /// The accumulators of each loop, by number.
        loops: Vec<(RowLoop, Range<usize>)>,
        /// Accumulators of a column's values that count without a loop: number, column.
        counts: Vec<(usize, usize)>,
    },
    Groups(Box<GroupsPlan>),
}

/// How rows are grouped, and added up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupsPlan {
    /// Values of keys, conditions that rows have to meet, then arguments of aggregates.
    pub rows: RowLoop,
    pub keys: Vec<KeyPlan>,
    /// Values of keys among those of the loop.
    pub key_values: usize,
    /// Conditions among those of the loop.
    pub conditions: usize,
    /// Lookups that filter when a row is added.
    pub deferred: Vec<usize>,
    /// Whether numbers of groups take 64 bits.
    pub is_wide: bool,
    pub strategy: Strategy,
    pub accumulators: Accumulators,
    pub threads: Option<ThreadsPlan>,
}

/// The aggregation strategy: where groups are accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// Each thread has accumulators of every group, in shared memory.
    Threads,
    /// By number, in shared memory, then in global memory.
    Shared,
    /// By number, in global memory.
    Numbered,
    /// Where the number hashes to.
    Hashed,
}

/// A digit of a group's number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyPlan {
    pub source: KeySource,
    pub nullable: bool,
    /// Whether it takes more than 32 bits.
    pub is_wide: bool,
}

/// Where a digit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeySource {
    /// A value, by its place among keys.
    Value(usize),
    /// The code in a table.
    Table(usize),
}

/// Accumulators that each thread has of every group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadsPlan {
    pub groups: u32,
    /// Byte of a warp's shared memory where they begin.
    pub at: u32,
    /// Where each accumulator is.
    pub kept: Vec<Kept>,
    /// Bits that fields have in the end.
    pub fields: Vec<Field>,
    /// Words that are no fields'.
    pub own_words: usize,
    /// All words.
    pub words: usize,
}

/// A part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub word: usize,
    /// Its lowest bit.
    pub first: u32,
    pub bits: u32,
    pub signed: bool,
}

/// How an accumulator is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kept {
    /// In a field, by its place among fields.
    Field(usize),
    /// In words of its own, the first of them.
    Own(usize),
}
