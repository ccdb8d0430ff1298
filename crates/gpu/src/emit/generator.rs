//! The parts of a kernel's text, and the steps of a vector.

use std::fmt::Write as _;

use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{
    Argument, Bounds, CodeTest, FIXED_ARGUMENTS, Facts, Fold, GROUP_WORDS, GroupFold, Grouping,
    Outcome, Per, SLOT_VECTORS, TableUse, Task, columns_by_row, columns_of_filter, push, tables_of,
};
use crate::layout::{Form, SequenceKind, Shape};
use crate::plan::{Filter, Output, Pipeline, Type};

/// Warps of a block, where shared memory allows it.
const WARPS: u32 = 8;
/// Warps of a block whose threads have accumulators in shared memory: small blocks fill it better.
const THREAD_WARPS: u32 = 4;
/// Warps of a block that has a multiprocessor for itself, as many as registers allow.
const LARGE_WARPS: u32 = 28;
/// Bytes of shared memory that a block takes at most: every device has more.
pub(super) const SHARED_BYTES: u32 = 64 << 10;
/// Share of the rows that lookups are expected to leave up to which there is no code to decode all.
pub(super) const SPARSE_SHARE: f64 = 0.15;
/// Columns of filters whose vectors are looked up before they are needed.
const OPEN_AHEAD: usize = 3;
/// The name of every kernel.
pub(crate) const NAME: &str = "scan";

const HEADERS: [&str; 6] = [
    include_str!("../../kernels/base.cuh"),
    include_str!("../../kernels/column.cuh"),
    include_str!("../../kernels/packed.cuh"),
    include_str!("../../kernels/sequence.cuh"),
    include_str!("../../kernels/values.cuh"),
    include_str!("../../kernels/scan.cuh"),
];

/// What only kernels with lookups or groups need.
const LOOKUP_HEADERS: [&str; 2] = [
    include_str!("../../kernels/lookup.cuh"),
    include_str!("../../kernels/groups.cuh"),
];

/// What only kernels need that look keys up in a hash table.
const HASHED_HEADER: &str = include_str!("../../kernels/hashed.cuh");

/// What only kernels need that compute floats.
const FLOATS_HEADER: &str = include_str!("../../kernels/floats.cuh");

/// A generated kernel.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub source: String,
    pub arguments: Vec<Argument>,
    pub code_tests: Vec<CodeTest>,
    pub accumulators: Vec<Fold>,
    pub results: Vec<Outcome>,
    /// Machine type of each output column, and whether it has nulls.
    pub outputs: Vec<(Type, bool)>,
    /// Threads of a block.
    pub threads: u32,
    /// What accumulators are of.
    pub per: Per,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// The tables that are looked up, for each a few words of a row group.
    pub tables: Vec<TableUse>,
    /// What the accumulators of groups are.
    pub grouping: Option<Grouping>,
}

/// Generates the kernel for `task` over columns of these shapes.
pub(crate) fn generate(
    pipeline: &Pipeline,
    shapes: &[Shape],
    facts: &Facts,
    task: Task,
) -> Result<Generated> {
    let mut generator = Generator::new(pipeline, shapes, facts, task)?;
    generator.body(task)?;
    let takes_registers = generator.is_wide() || !generator.is_sparse || generator.has_hashed();
    if generator.is_large() && takes_registers {
        // with the registers that any of it takes, large blocks have too few warps
        generator = Generator::new(pipeline, shapes, facts, task)?;
        generator.may_be_large = false;
        generator.body(task)?;
    }
    Ok(generator.finish())
}

/// How the lanes of a warp go through their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Each its own, in their order.
    Each,
    /// As is best, in any order.
    Any,
    /// All the same row at a time.
    Together,
}

pub(super) struct Generator<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) shapes: &'a [Shape],
    pub(super) facts: &'a Facts,
    pub(super) task: Task,
    pub(super) out: String,
    /// What a block prepares, once and with all its threads.
    pub(super) block: String,
    /// What comes before the loop, and after it: of each slot, where there are any.
    pub(super) start: String,
    pub(super) end: String,
    /// What is done once for a row group.
    pub(super) group: String,
    /// Sums of eight rows, and the sums that they belong to.
    pub(super) partials: Vec<(String, String)>,
    pub(super) temporaries: usize,
    /// What was computed for a row so far, by name.
    pub(super) computed: Vec<(String, Value)>,
    /// Whether floats are computed, and not only read.
    pub(super) computes_floats: bool,
    pub(super) arguments: Vec<Argument>,
    pub(super) code_tests: Vec<CodeTest>,
    pub(super) accumulators: Vec<Fold>,
    pub(super) results: Vec<Outcome>,
    pub(super) outputs: Vec<(Type, bool)>,
    /// Columns whose cursor is open, whose validity is known, that are prepared for reading by row.
    pub(super) chunks: Vec<bool>,
    pub(super) open: Vec<bool>,
    pub(super) valid: Vec<bool>,
    pub(super) prepared: Vec<bool>,
    /// Columns read by row or by code, of `delta`: each has a tile. Byte of the tile.
    pub(super) tiles: Vec<Option<u32>>,
    pub(super) shared: u32,
    /// Those of lookups, then those of keys that are entries of dictionaries.
    pub(super) tables: Vec<TableUse>,
    /// Lookups that filter when a row is accumulated.
    pub(super) deferred: Vec<usize>,
    /// Bytes of shared memory that belong to the block, before those of its warps.
    pub(super) block_shared: u32,
    /// Bytes of bits of lookups among them.
    pub(super) shared_bits: usize,
    /// Whether those of some lookup are not.
    pub(super) has_bits_outside: bool,
    /// Whether these may take all there is, for one large block.
    pub(super) may_be_large: bool,
    /// Whether some conjunct may have dropped rows.
    pub(super) is_filtered: bool,
    /// Whether all conjuncts have.
    pub(super) is_decided: bool,
    /// Whether selected rows are counted, lane by lane.
    pub(super) is_counted: bool,
    /// Whether there is no code to decode all rows.
    pub(super) is_sparse: bool,
    /// The argument that says where in it the table of groups is.
    pub(super) table_argument: usize,
    pub(super) grouping: Option<Grouping>,
    pub(super) per: Per,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
        pipeline: &'a Pipeline,
        shapes: &'a [Shape],
        facts: &'a Facts,
        task: Task,
    ) -> Result<Self> {
        let columns = pipeline.columns.len();
        if shapes.len() != columns {
            let reason = format!("{} columns where {columns} belong", shapes.len());
            return Err(Error::Unsupported(reason));
        }
        let mut shared = 0;
        let mut tiles = vec![None; columns];
        let by_row = columns_by_row(pipeline, task);
        for (column, shape) in shapes.iter().enumerate() {
            let is_looked_up = shape.has(Form::Dict) || shape.has(Form::AlpRd);
            let needs = by_row.contains(&column) || is_looked_up;
            if shape.has_sequence(SequenceKind::Delta) && needs {
                tiles[column] = Some(shared);
                shared += 32 * 33 * if shape.wide_entries { 8 } else { 4 };
            }
        }
        if shared > SHARED_BYTES {
            let reason = format!("{shared} bytes of shared memory a warp");
            return Err(Error::Unsupported(reason));
        }
        let tables = tables_of(pipeline, task);
        Ok(Self {
            tables,
            deferred: vec![],
            block_shared: 0,
            shared_bits: 0,
            has_bits_outside: false,
            may_be_large: true,
            is_counted: false,
            is_filtered: false,
            is_decided: false,
            is_sparse: false,
            table_argument: 0,
            grouping: None,
            per: Per::Warp,
            pipeline,
            shapes,
            facts,
            task,
            out: String::new(),
            block: String::new(),
            start: String::new(),
            group: String::new(),
            partials: vec![],
            chunks: vec![false; columns],
            end: String::new(),
            temporaries: 0,
            computed: vec![],
            computes_floats: false,
            arguments: vec![],
            code_tests: vec![],
            accumulators: vec![],
            results: vec![],
            outputs: vec![],
            open: vec![false; columns],
            valid: vec![false; columns],
            prepared: vec![false; columns],
            tiles,
            shared,
        })
    }

    pub(super) fn finish(self) -> Generated {
        let mut source = String::new();
        HEADERS.iter().for_each(|header| source.push_str(header));
        let has_block = self.has_block();
        if has_block || !self.tables.is_empty() {
            let headers = LOOKUP_HEADERS.iter();
            headers.for_each(|header| source.push_str(header));
        }
        if self.has_hashed() {
            source.push_str(HASHED_HEADER);
        }
        if self.computes_floats {
            source.push_str(FLOATS_HEADER);
        }
        let words = FIXED_ARGUMENTS + self.arguments.len();
        let slots = self.first_test() + self.code_tests.len();
        let _ = writeln!(source, "\nstruct Args {{ u64 word[{words}]; }};");
        for (column, shape) in self.shapes.iter().enumerate() {
            let (stored, value, word) = self.types(column);
            source.push_str(&shape.traits(&format!("C{column}"), stored, value, word));
        }
        let shared = self.shared;
        let mut warps = match self.per {
            Per::Block { .. } => THREAD_WARPS,
            Per::Warp | Per::Slot => WARPS,
        };
        while warps > 1 && warps * shared > SHARED_BYTES.saturating_sub(self.block_shared) {
            warps /= 2;
        }
        if self.is_large() {
            warps = LARGE_WARPS;
        }
        let threads = warps * 32;
        let bounds = match self.is_sparse && !self.is_wide() && !self.is_large() {
            true if self.has_hashed() => format!("HASHED_BOUNDS({threads})"),
            true => format!("SPARSE_BOUNDS({threads})"),
            false if matches!(self.per, Per::Block { .. }) => format!("THREAD_BOUNDS({threads})"),
            false => format!("BOUNDS({threads})"),
        };
        let per = match self.accumulators.contains(&Fold::SumFloat) {
            true => Per::Slot,
            false => self.per,
        };
        let _ = write!(
            source,
            r#"
extern "C" __global__ void {bounds} {NAME}(const Args a) {{
    const u64 warp = (u64)blockIdx.x * {warps} + threadIdx.x / 32;
"#
        );
        if shared > 0 || has_block {
            source.push_str("    DYN_SHARED(u8, shared);\n");
        }
        if has_block {
            let at = FIXED_ARGUMENTS; // the first argument is how much is the block's
            let _ = writeln!(
                source,
                "    u8* const own = shared + a.word[{at}] + threadIdx.x / 32 * {shared};"
            );
        } else if shared > 0 {
            let _ = writeln!(
                source,
                "    u8* const own = shared + threadIdx.x / 32 * {shared};"
            );
        }
        let (block, start) = (&self.block, &self.start);
        let (group, body, end) = (&self.group, &self.out, &self.end);
        let result = match per {
            Per::Block { .. } => "blockIdx.x",
            _ => "warp",
        };
        let vector = format!(
            "            u32 m = rows - v * 1024 >= 1024 ? ALL : existing(rows - v * 1024);\n{body}"
        );
        let _ = if per == Per::Slot {
            write!(
                source,
                r#"{block}    // a slot is always summed in the same order, whoever does it
    for (u64 slot = warp; slot < a.word[0]; slot += (u64)gridDim.x * {warps}) {{
        const u64* group = group_of((const u64*)a.word[1], (u32)a.word[2], {slots}, slot);
        const u32 rows = (u32)group[1], vectors = (rows + 1023) / 1024;
        u32 v = (u32)(slot - group[0]) * {SLOT_VECTORS};
        const u32 end = vectors - v < {SLOT_VECTORS} ? vectors : v + {SLOT_VECTORS};
{start}{group}        for (; v < end; v++) {{
{vector}        }}
        const u64 result = slot;
{end}    }}
}}
"#
            )
        } else {
            write!(
                source,
                r#"    const u64 last = a.word[0] * (blockIdx.x + 1) / gridDim.x;
    u64 at = a.word[0] * blockIdx.x / gridDim.x + threadIdx.x / 32;
    const u64* group = group_of((const u64*)a.word[1], (u32)a.word[2], {slots}, at);
{block}{start}    u32 v = at < last ? (u32)(at - group[0]) : 0;
    while (at < last) {{
        const u32 rows = (u32)group[1], vectors = (rows + 1023) / 1024;
{group}        for (; v < vectors && at < last; v += {warps}, at += {warps}) {{
{vector}        }}
        group += {slots};
        v -= vectors;
    }}
    const u64 result = {result};
{end}}}
"#
            )
        };
        Generated {
            source,
            arguments: self.arguments,
            code_tests: self.code_tests,
            accumulators: self.accumulators,
            results: self.results,
            outputs: self.outputs,
            threads,
            per,
            shared: self.block_shared + shared * warps,
            tables: self.tables,
            grouping: self.grouping,
        }
    }

    /// Stored, value and word types of a column.
    pub(super) fn types(&self, column: usize) -> (&'static str, &'static str, &'static str) {
        let shape = &self.shapes[column];
        let of = self.pipeline.columns.get(column).and_then(Type::of);
        let stored = of.map_or("u8", stored_name);
        match of {
            Some(Type::F32 | Type::F64) => (stored, stored, "i64"),
            Some(_) => {
                let value = self.column_bounds(column).name();
                (stored, value, if shape.is_wide() { "i128" } else { "i64" })
            }
            None => (stored, "i32", "i64"),
        }
    }

    pub(super) fn column_bounds(&self, column: usize) -> Bounds {
        match self.shapes[column].bounds {
            Some((low, high)) => Bounds::rounded(low, high),
            None => Bounds(0, 0),
        }
    }

    pub(super) fn line(&mut self, indent: usize, text: impl AsRef<str>) {
        let indent = if indent == 0 { 0 } else { indent * 4 + 4 };
        let _ = writeln!(self.out, "{:1$}{2}", "", indent, text.as_ref());
    }

    pub(super) fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    pub(super) fn argument(&mut self, argument: Argument) -> usize {
        self.arguments.push(argument);
        FIXED_ARGUMENTS + self.arguments.len() - 1
    }

    pub(super) fn integer(&mut self, value: i128, of: &str) -> String {
        let low = self.argument(Argument::Word(value as u64));
        match of {
            "i128" => {
                let high = self.argument(Argument::Word((value >> 64) as u64));
                format!("(i128)((u128)a.word[{high}] << 64 | a.word[{low}])")
            }
            of => format!("({of})a.word[{low}]"),
        }
    }

    /// Whether there are sums of 128 bits: they take more registers than the narrower bounds leave.
    pub(super) fn is_wide(&self) -> bool {
        let words = self.grouping.iter().flat_map(|grouping| &grouping.words);
        words.into_iter().any(|word| *word == GroupFold::WideSum)
    }

    /// Whether some keys are looked up in a hash table.
    pub(super) fn has_hashed(&self) -> bool {
        (0..self.tables.len()).any(|table| self.is_hashed(table))
    }

    /// Whether blocks have shared memory of their own.
    pub(super) fn has_block(&self) -> bool {
        match self.task {
            Task::Groups => true,
            Task::Totals => !self.tables.is_empty(),
            Task::Masks | Task::Values | Task::AllValues => false,
        }
    }

    // ---- the steps of a vector ----

    pub(super) fn body(&mut self, task: Task) -> Result<()> {
        match task {
            Task::AllValues => {
                self.line(2, "const u64 first = group[2] + (u64)v * 1024 + lane_id();");
            }
            Task::Values => {
                self.line(
                    2,
                    "const u32 selected = __ldg((const u32*)a.word[4] + at * 32 + lane_id());",
                );
                self.line(2, "if (!__any_sync(ALL, selected)) continue;");
                self.line(2, "m = transpose(selected);");
                self.line(2, "const u64 place = ((const u64*)a.word[5])[at] + sum_before((u32)__popc(selected));");
            }
            _ => {
                if self.has_block() {
                    self.block_argument();
                }
                if task == Task::Groups {
                    self.begin_groups();
                }
                let filter = &self.pipeline.filter;
                let conjuncts: &[Filter] = match filter {
                    Filter::And(parts) => parts,
                    Filter::Constant(true) => &[],
                    other => std::slice::from_ref(other),
                };
                let conjuncts = self.in_order(conjuncts);
                let mut columns = vec![];
                for conjunct in &conjuncts {
                    columns_of_filter(conjunct, &mut columns);
                    if let Filter::Found(lookup) | Filter::Missing(lookup) = conjunct {
                        push(self.pipeline.lookups[*lookup].column, &mut columns);
                    }
                }
                let filtering = columns.clone();
                if !self.tables.is_empty() {
                    let by_row = columns_by_row(self.pipeline, task).into_iter();
                    by_row.for_each(|column| push(column, &mut columns));
                }
                // a few descriptors ahead: their latencies overlap
                let mut ahead = columns.into_iter();
                ahead
                    .by_ref()
                    .take(OPEN_AHEAD)
                    .for_each(|column| self.open(column, 2));
                if !self.tables.is_empty() {
                    self.fetch(filtering.iter().skip(1));
                }
                for conjunct in conjuncts {
                    if let Some(column) = ahead.next() {
                        self.open(column, 2);
                    }
                    let mask = self.filter(conjunct)?;
                    self.is_filtered = true;
                    self.line(2, format!("m &= {mask};"));
                    self.line(2, "if (!__any_sync(ALL, m)) continue;");
                }
                self.is_decided = true;
            }
        }
        match (&self.pipeline.output, task) {
            (_, Task::Masks) => {
                self.line(2, "const u32 selected = transpose(m);");
                self.line(2, "((u32*)a.word[4])[at * 32 + lane_id()] = selected;");
                self.line(
                    2,
                    "const u32 count = __reduce_add_sync(ALL, (u32)__popc(m));",
                );
                self.line(2, "if (lane_id() == 0) ((u64*)a.word[5])[at] = count;");
                Ok(())
            }
            (Output::Rows(exprs), Task::Values) => self.rows(exprs, false),
            (Output::Rows(exprs), Task::AllValues) => self.rows(exprs, true),
            (Output::Aggregates(aggregates), Task::Totals) => self.aggregates(aggregates),
            (Output::Groups(keys, aggregates), Task::Groups) => self.groups(keys, aggregates),
            _ => Err(Error::Unsupported(
                "a task that the pipeline does not have".into(),
            )),
        }
    }

    /// Has what later conjuncts read of a vector fetched before the first is decided: what is read one after
    /// the other is waited for together. Vectors of plain values are too large for that.
    pub(super) fn fetch<'b>(&mut self, columns: impl Iterator<Item = &'b usize>) {
        for column in columns {
            if self.shapes[*column].has(Form::Plain) {
                continue;
            }
            self.open(*column, 2);
            self.line(2, format!("fetch<C{column}>(c{column});"));
        }
    }

    pub(super) fn open(&mut self, column: usize, indent: usize) {
        self.chunk(column);
        if !std::mem::replace(&mut self.open[column], true) {
            self.line(
                indent,
                format!("Cursor c{column} = open<C{column}>(h{column}, v);"),
            );
        }
    }

    pub(super) fn chunk(&mut self, column: usize) {
        if !std::mem::replace(&mut self.chunks[column], true) {
            let slot = GROUP_WORDS + column;
            let _ = writeln!(
                self.group,
                "        const Chunk h{column} = chunk(group[{slot}]);"
            );
        }
    }

    /// Code for the rows of a column that are not null; `None` if all are.
    pub(super) fn valid_rows(&mut self, column: usize) -> Option<String> {
        if !self.shapes[column].nullable() {
            return None;
        }
        self.open(column, 2);
        if !std::mem::replace(&mut self.valid[column], true) {
            self.line(2, format!("const u32 v{column} = valid_rows(c{column});"));
        }
        Some(format!("v{column}"))
    }

    pub(super) fn tile(&self, column: usize) -> String {
        match self.tiles[column] {
            Some(at) => format!("own + {at}"),
            None => "(void*)0".into(),
        }
    }

    pub(super) fn prepare(&mut self, column: usize) {
        self.open(column, 2);
        if !std::mem::replace(&mut self.prepared[column], true) {
            let tile = self.tile(column);
            self.line(2, format!("prepare<C{column}>(c{column}, {tile});"));
        }
    }
}

/// C++ type of a value as it is stored.
pub(super) fn stored_name(of: Type) -> &'static str {
    match of {
        Type::Bool | Type::U8 => "u8",
        Type::I8 => "i8",
        Type::I16 => "i16",
        Type::U16 => "u16",
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::I64 => "i64",
        Type::U64 => "u64",
        Type::I128 => "i128",
        Type::F32 => "float",
        Type::F64 => "double",
    }
}
