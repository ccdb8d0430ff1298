//! The generator: the parts of a kernel's text, and the steps of a vector.

use std::fmt::Write as _;

use super::value::{Match, Value};
use crate::kernel::{
    AccumulationScope, Argument, FIXED_ARGUMENTS, GROUP_WORDS, KernelPlan, OutputPlan, Registers,
    RowLoop, SLOT_VECTORS, TABLE_WORDS, Task, Typed,
};
use vectile_pipeline::Type;

/// Number of columns whose vectors are opened before the first conjunct.
const OPEN_AHEAD: usize = 3;
/// The name of every kernel.
pub(crate) const NAME: &str = "scan";

/// The text of a kernel.
#[derive(Debug)]
pub(crate) struct Emitted {
    /// The headers, each as text.
    pub headers: Vec<&'static str>,
    /// The text that is generated for this kernel.
    pub body: String,
    pub layout: Layout,
}

impl Emitted {
    /// The complete source.
    pub fn source(&self) -> String {
        self.headers.concat() + &self.body
    }
}

/// The arguments of a kernel, and its output columns, in order.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub arguments: Vec<Argument>,
    /// Per output column, its machine type, and true if it has validity.
    pub outputs: Vec<(Type, bool)>,
}

/// Writes the text of a plan's kernel.
pub(crate) fn emit(plan: &KernelPlan) -> Emitted {
    let mut generator = Generator::new(plan);
    generator.body();
    generator.finish()
}

pub(super) struct Generator<'a> {
    pub(super) plan: &'a KernelPlan,
    pub(super) out: String,
    /// Text that a block runs once, with all its threads.
    pub(super) block: String,
    /// Text before and after the loop over vectors; per slot, if there are any.
    pub(super) start: String,
    pub(super) end: String,
    /// Text that runs once per row group.
    pub(super) group: String,
    /// Names of partial sums of eight rows, with the names of their sums.
    pub(super) partials: Vec<(String, String)>,
    pub(super) temporaries: usize,
    /// Expressions that were computed for the current row, with their values.
    pub(super) computed: Vec<(&'a Typed, Value)>,
    /// The current matches, of the innermost loop last.
    pub(super) matches: Vec<Match>,
    /// Loops of the current conjunct that have no mask yet, and the names of all masks so far.
    pub(super) row_tests: Vec<&'a RowLoop>,
    pub(super) masks: Vec<(&'a RowLoop, String)>,
    /// True if floats are computed, not only read.
    pub(super) computes_floats: bool,
    /// True if computed keys are looked up, and if in hash tables.
    pub(super) has_codes: bool,
    pub(super) has_hashed_codes: bool,
    pub(super) layout: Layout,
    /// Per column, true if its chunk is declared, its cursor open, its validity declared, and it is prepared for
    /// reading by row.
    pub(super) chunks: Vec<bool>,
    pub(super) open: Vec<bool>,
    pub(super) valid: Vec<bool>,
    pub(super) prepared: Vec<bool>,
    /// Per lookup, true if each block copies its bits.
    pub(super) copied: Vec<bool>,
    /// Columns that tests and sums have decoded into tiles, in this order.
    pub(super) decoded: Vec<usize>,
    /// True once all conjuncts are evaluated.
    pub(super) is_decided: bool,
    /// True once the selected rows are counted per lane.
    pub(super) is_counted: bool,
    /// True if the block's shared memory holds data of the current row group.
    pub(super) is_staged: bool,
    /// The argument with the group table's offset in the block's shared memory.
    pub(super) table_argument: usize,
}

impl<'a> Generator<'a> {
    fn new(plan: &'a KernelPlan) -> Self {
        let columns = plan.columns.len();
        Self {
            plan,
            out: String::new(),
            block: String::new(),
            start: String::new(),
            end: String::new(),
            group: String::new(),
            partials: vec![],
            temporaries: 0,
            computed: vec![],
            matches: vec![],
            row_tests: vec![],
            masks: vec![],
            computes_floats: false,
            has_codes: false,
            has_hashed_codes: false,
            layout: Layout::default(),
            chunks: vec![false; columns],
            open: vec![false; columns],
            valid: vec![false; columns],
            prepared: vec![false; columns],
            copied: vec![false; plan.tables.len()],
            decoded: vec![],
            is_decided: false,
            is_counted: false,
            is_staged: false,
            table_argument: 0,
        }
    }

    /// The text of the parts that were written.
    fn finish(self) -> Emitted {
        let kernel_loop = match self.plan.per {
            AccumulationScope::Slot => self.loop_over_slots(),
            _ if self.is_staged => self.loop_over_staged_groups(),
            _ => self.loop_over_vectors(),
        };
        Emitted {
            headers: self.headers(),
            body: self.declarations() + &self.kernel_start() + &kernel_loop,
            layout: self.layout,
        }
    }

    /// The headers that the text includes.
    fn headers(&self) -> Vec<&'static str> {
        let plan = self.plan;
        let mut columns = plan.columns.iter();
        let has_rare = columns.any(|column| column.traits.has_rare());
        let mut headers = vectile_kernels::scan(has_rare).collect::<Vec<_>>();
        if plan.has_block || self.has_codes || !plan.tables.is_empty() {
            headers.extend(vectile_kernels::LOOKUPS);
        }
        if self.has_hashed_codes || plan.tables.iter().any(|table| table.is_hashed) {
            headers.push(vectile_kernels::HASHED);
        }
        if plan.output == OutputPlan::Lengths {
            headers.push(vectile_kernels::LENGTHS);
        }
        if self.computes_floats {
            headers.push(vectile_kernels::FLOATS);
        }
        headers
    }

    /// Code before the kernel: the struct of its arguments, and the traits of its columns.
    fn declarations(&self) -> String {
        let words = FIXED_ARGUMENTS + self.layout.arguments.len();
        let mut source = format!("\nstruct Args {{ u64 word[{words}]; }};\n");
        for (index, column) in self.plan.columns.iter().enumerate() {
            let (stored, value, word) = self.types(index);
            let traits = column
                .traits
                .code(&format!("C{index}"), stored, value, word);
            source.push_str(&traits);
        }
        source
    }

    /// Code from the kernel's signature to its loop: the number of the warp, and shared memory.
    fn kernel_start(&self) -> String {
        let plan = self.plan;
        let (warps, shared) = (plan.warps, plan.warp_bytes);
        let bounds = match plan.registers {
            Registers::Hashed => "HASHED_BOUNDS",
            Registers::Sparse => "SPARSE_BOUNDS",
            Registers::Threads => "THREAD_BOUNDS",
            Registers::Plain => "BOUNDS",
        };
        let threads = warps * 32;
        let mut source = format!(
            r#"
extern "C" __global__ void {bounds}({threads}) {NAME}(const Args a) {{
    const u64 warp = (u64)blockIdx.x * {warps} + threadIdx.x / 32;
"#
        );
        if shared > 0 || plan.has_block || self.is_staged {
            source.push_str("    DYN_SHARED(u8, shared);\n");
        }
        if plan.has_block {
            let at = FIXED_ARGUMENTS; // the first argument is the size of the block's shared memory
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
        source
    }

    /// Code for one vector, with its selection `m`.
    fn vector(&self) -> String {
        let body = &self.out;
        format!(
            "            u32 m = rows - v * 1024 >= 1024 ? ALL : existing(rows - v * 1024);\n{body}"
        )
    }

    /// Code for the number of the result to write: one per block, or one per warp.
    fn result(&self) -> &'static str {
        match self.plan.per {
            AccumulationScope::Block { .. } => "blockIdx.x",
            _ => "warp",
        }
    }

    /// The kernel's loop if each slot has a result: warps take slots in turn.
    fn loop_over_slots(&self) -> String {
        let (slots, warps, vector) = (self.group_words(), self.plan.warps, self.vector());
        let (block, start, group, end) = (&self.block, &self.start, &self.group, &self.end);
        format!(
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
    }

    /// The kernel's loop if shared memory holds data of the current row group: each block takes a range of vectors, and
    /// its warps are at the same row group.
    fn loop_over_staged_groups(&self) -> String {
        let (slots, warps, vector) = (self.group_words(), self.plan.warps, self.vector());
        let (block, start, group, end) = (&self.block, &self.start, &self.group, &self.end);
        let result = self.result();
        format!(
            r#"    const u64 first = a.word[0] * blockIdx.x / gridDim.x, last = a.word[0] * (blockIdx.x + 1) / gridDim.x;
    u64 at = first + threadIdx.x / 32;
    const u64* group = group_of((const u64*)a.word[1], (u32)a.word[2], {slots}, first);
{block}{start}    u32 v = (u32)(at - group[0]);
    // all warps are at the same row group
    for (u64 next = group[0]; next < last;) {{
        const u32 rows = (u32)group[1], vectors = (rows + 1023) / 1024;
{group}        for (; v < vectors && at < last; v += {warps}, at += {warps}) {{
{vector}        }}
        group += {slots};
        v -= vectors;
        next += vectors;
    }}
    const u64 result = {result};
{end}}}
"#
        )
    }

    /// The kernel's loop otherwise: each block takes a range of vectors, which its warps share.
    fn loop_over_vectors(&self) -> String {
        let (slots, warps, vector) = (self.group_words(), self.plan.warps, self.vector());
        let (block, start, group, end) = (&self.block, &self.start, &self.group, &self.end);
        let result = self.result();
        format!(
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
    }

    /// Words of a row group's descriptor.
    fn group_words(&self) -> usize {
        self.first_test() + self.plan.bitmaps.len()
    }

    /// Index of the first word of code tests in a row group's descriptor.
    pub(super) fn first_test(&self) -> usize {
        GROUP_WORDS + self.plan.columns.len() + TABLE_WORDS * self.plan.tables.len()
    }

    /// C++ types of a column: as stored, as a value, as a word of ranges.
    pub(super) fn types(&self, column: usize) -> (&'static str, &'static str, &'static str) {
        let column = &self.plan.columns[column];
        let stored = column.of.map_or("u8", stored_name);
        match column.of {
            Some(Type::F32 | Type::F64) => (stored, stored, "i64"),
            Some(_) => {
                let value = column.bounds().name();
                let word = if column.traits.is_wide() {
                    "i128"
                } else {
                    "i64"
                };
                (stored, value, word)
            }
            None => (stored, "i32", "i64"),
        }
    }

    pub(super) fn line(&mut self, indent: usize, text: impl AsRef<str>) {
        let indent = if indent == 0 { 0 } else { indent * 4 + 4 };
        let _ = writeln!(self.out, "{:1$}{2}", "", indent, text.as_ref());
    }

    /// A name that is unique in the kernel. All other names are a letter, one per kind of object in the plan, and the
    /// object's number; each is declared once in every scope that uses it.
    pub(super) fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    pub(super) fn argument(&mut self, argument: Argument) -> usize {
        self.layout.arguments.push(argument);
        FIXED_ARGUMENTS + self.layout.arguments.len() - 1
    }

    /// Code for an integer constant.
    pub(super) fn integer(&mut self, constant: usize, of: &str) -> String {
        let low = self.argument(Argument::Low(constant));
        match of {
            "i128" => {
                let high = self.argument(Argument::High(constant));
                format!("(i128)((u128)a.word[{high}] << 64 | a.word[{low}])")
            }
            of => format!("({of})a.word[{low}]"),
        }
    }

    // ---- the steps of a vector ----

    fn body(&mut self) {
        let plan = self.plan;
        match plan.task {
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
            Task::Lengths => {
                self.line(2, "const u32 selected = a.word[4] ? __ldg((const u32*)a.word[4] + at * 32 + lane_id()) : transpose(m);");
                self.line(2, "if (!__any_sync(ALL, selected)) continue;");
                self.line(2, "const u64 place = ((const u64*)a.word[5])[at];");
            }
            Task::Totals | Task::Masks | Task::Groups => self.select(),
        }
        match &plan.output {
            OutputPlan::Masks => {
                self.line(2, "const u32 selected = transpose(m);");
                self.line(2, "((u32*)a.word[4])[at * 32 + lane_id()] = selected;");
                self.line(
                    2,
                    "const u32 count = __reduce_add_sync(ALL, (u32)__popc(m));",
                );
                self.line(2, "if (lane_id() == 0) ((u64*)a.word[5])[at] = count;");
            }
            OutputPlan::Rows {
                columns,
                copied,
                loops,
            } => self.rows(*columns, copied, loops),
            OutputPlan::Lengths => self.lengths(),
            OutputPlan::Totals {
                accumulators,
                loops,
                counts,
            } => self.totals(accumulators, loops, counts),
            OutputPlan::Groups(groups) => self.groups(groups),
        }
    }

    /// Writes the conjuncts, each of which drops rows from the selection.
    fn select(&mut self) {
        let plan = self.plan;
        if plan.has_block {
            let at = self.argument(Argument::BlockBytes);
            debug_assert_eq!(at, FIXED_ARGUMENTS);
        }
        if plan.task == Task::Groups {
            // the table's offset in shared memory must be this argument, before those of bits
            self.table_argument = self.argument(Argument::TableAt);
        }
        // open a few columns ahead, so that latencies overlap
        let (ahead, later) = plan
            .open_order
            .split_at(OPEN_AHEAD.min(plan.open_order.len()));
        ahead.iter().for_each(|column| self.open(*column, 2));
        // fetch columns that are read one after the other, so that latencies overlap
        for column in &plan.fetched {
            self.open(*column, 2);
            self.line(2, format!("fetch<C{column}>(c{column});"));
        }
        let mut later = later.iter();
        for conjunct in &plan.conjuncts {
            if let Some(column) = later.next() {
                self.open(*column, 2);
            }
            let mask = self.conjunct(conjunct);
            self.line(2, format!("m &= {mask};"));
            self.line(2, "if (!__any_sync(ALL, m)) continue;");
        }
        self.is_decided = true;
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

    /// Code for the mask of rows in which a column is not null; `None` if it has no nulls.
    pub(super) fn valid_rows(&mut self, column: usize) -> Option<String> {
        if !self.plan.columns[column].traits.nullable() {
            return None;
        }
        self.open(column, 2);
        if !std::mem::replace(&mut self.valid[column], true) {
            self.line(2, format!("const u32 v{column} = valid_rows(c{column});"));
        }
        Some(format!("v{column}"))
    }

    pub(super) fn tile(&self, column: usize) -> String {
        match self.plan.columns[column].tile {
            Some(at) => format!("own + {at}"),
            None => "(void*)0".into(),
        }
    }

    /// A column's tile to pick rows from; a null pointer if another column was decoded there after this one, because
    /// the column's cursor may still refer to its words in the tile.
    pub(super) fn picked_tile(&self, column: usize) -> String {
        let tile = |column: usize| self.plan.columns[column].tile;
        let mut since = self.decoded.iter().skip_while(|other| **other != column);
        match since.any(|other| *other != column && tile(*other) == tile(column)) {
            true => "(void*)0".into(),
            false => self.tile(column),
        }
    }

    pub(super) fn prepare(&mut self, column: usize) {
        self.open(column, 2);
        if !std::mem::replace(&mut self.prepared[column], true) {
            let tile = self.tile(column);
            self.line(2, format!("prepare<C{column}>(c{column}, {tile});"));
        }
    }

    /// Records that the following code may overwrite the column's tile.
    pub(super) fn is_overwritten(&mut self, column: usize) {
        self.decoded.push(column);
        if self.plan.columns[column].traits.filters_through_tile() {
            self.prepared[column] = false;
        }
    }

    /// Ends the block's preparations with a barrier.
    pub(super) fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.block.push_str("    __syncthreads();\n");
        }
    }
}

/// C++ type of a stored value.
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
