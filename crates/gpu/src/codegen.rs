//! Generates the kernel of a pipeline for the chunks at hand.
//!
//! ```text
//! struct C0 { .. };                    what column 0 has: widths, encodings, types
//! scan(Args a):
//!   a block takes a run of consecutive vectors, of all row groups together, its warps in turn
//!   for each vector:
//!     u32 m = rows that exist          one word a lane: the selection
//!     m &= ..                          one conjunct after another, on encoded columns
//!     if no row is left: next vector
//!     eight rows a lane at a time: decode what expressions need, compute, accumulate
//!   reduce over the warp, one result a warp
//! ```
//!
//! Integers are computed in the narrowest of 32, 64 and 128 bits that the data allow, by the bounds of
//! the columns rounded out to powers of two. Constants are arguments, so that another constant is no
//! other kernel: only how many bits it has matters.

use std::fmt::Write as _;
use std::ops::Bound;

use arrow::array::ArrayRef;
use vectile_encodings::Predicate;
use vectile_encodings::layout::{range_words, value_words};

use crate::error::{Error, Result};
use crate::ir::{
    Aggregate, Arithmetic, Comparison, DatePart, Expr, Filter, Literal, Output, Pipeline, Type,
};
use crate::shape::{Form, SequenceKind, Shape};

/// Warps of a block, where shared memory allows it.
const WARPS: u32 = 8;
/// Vectors that are summed by themselves, where the order of additions matters.
pub(crate) const SLOT_VECTORS: usize = 32;
/// Bytes of shared memory that a block takes at most: every device has more.
const SHARED_BYTES: u32 = 64 << 10;
/// Selected rows of a lane up to which each is looked up by itself, instead of decoding all.
const SPARSE_ROWS: u32 = 4;
/// Columns of filters whose vectors are looked up before they are needed.
const OPEN_AHEAD: usize = 3;
/// The most ranges that a membership test is taken apart into.
const MAX_RANGES: usize = 16;
/// The name of every kernel.
pub(crate) const NAME: &str = "scan";

const HEADERS: [&str; 6] = [
    include_str!("../kernels/base.cuh"),
    include_str!("../kernels/column.cuh"),
    include_str!("../kernels/packed.cuh"),
    include_str!("../kernels/sequence.cuh"),
    include_str!("../kernels/values.cuh"),
    include_str!("../kernels/scan.cuh"),
];

/// What a kernel leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Two words for each accumulator and warp.
    Totals,
    /// 32 words for each vector, bits in row order, and their number.
    Masks,
    /// Values at places that follow from masks and their numbers.
    Values,
    /// Values of every row.
    AllValues,
}

/// An argument behind the fixed ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// A word.
    Word(u64),
    /// The address of a table: smallest and largest integer of a range for each scale of ALP.
    Scales { column: usize, low: i64, high: i64 },
}

/// A test of the entries of a dictionary, answered for each row group: a word of the group.
#[derive(Clone, Debug)]
pub(crate) struct CodeTest {
    pub column: usize,
    pub test: EntryTest,
}

/// What is asked of entries.
#[derive(Clone, Debug)]
pub(crate) enum EntryTest {
    Predicate(Predicate),
    Values(crate::ir::ValueTest),
}

/// How an accumulator starts and how two are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Count,
    SumInt,
    SumFloat,
    Min,
    Max,
}

/// What an aggregate's result is made of: accumulators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The number of values.
    pub count: usize,
    /// The value, if it is not the number.
    pub value: Option<usize>,
    /// Whether a smallest or largest value is a float's place in the total order, and of which type.
    pub key: Option<Type>,
}

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
    /// Whether there is a result for each slot of [`SLOT_VECTORS`] vectors of a row group, instead of
    /// for each warp: then it does not depend on who computes it.
    pub by_slot: bool,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// Arguments with a fixed meaning: vectors, groups, number of groups, output, masks, counts, offsets.
pub(crate) const FIXED_ARGUMENTS: usize = 6;
/// Words of a group before its columns: first vector, rows, first row.
pub(crate) const GROUP_WORDS: usize = 3;

/// Generates the kernel for `task` over columns of these shapes. `ranges` says of each code test
/// whether its answers are ranges of codes in every group, as far as that is known.
pub(crate) fn generate(
    pipeline: &Pipeline,
    shapes: &[Shape],
    ranges: &[bool],
    task: Task,
) -> Result<Generated> {
    let mut generator = Generator::new(pipeline, shapes, ranges, task)?;
    generator.body(task)?;
    Ok(generator.finish())
}

/// How the lanes of a warp go through their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Each its own: nothing is done together.
    Each,
    /// All the same row at a time.
    Together,
}

/// An integer's bounds, rounded out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds(i128, i128);

impl Bounds {
    /// `low..=high` rounded out to powers of two, so that few kernels differ by them.
    fn rounded(low: i128, high: i128) -> Self {
        let up = |x: i128| match 128 - x.unsigned_abs().leading_zeros() {
            127.. => i128::MAX,
            bits => (1i128 << bits) - 1,
        };
        let low = if low < 0 { !up(!low) } else { 0 };
        Self(low, if high > 0 { up(high) } else { 0 })
    }

    fn literal(value: i128) -> Self {
        let bits = 128 - value.unsigned_abs().leading_zeros();
        let bits = [7, 15, 31, 63]
            .into_iter()
            .find(|b| bits <= *b)
            .unwrap_or(127);
        let top = if bits == 127 {
            i128::MAX
        } else {
            (1i128 << bits) - 1
        };
        Self(-top, top)
    }

    fn of(of: Type) -> Self {
        let (low, high) = of.range().unwrap_or((0, 0));
        Self(low, high)
    }

    fn within(self, other: Self) -> bool {
        other.0 <= self.0 && self.1 <= other.1
    }

    fn union(self, other: Self) -> Self {
        Self(self.0.min(other.0), self.1.max(other.1))
    }

    fn name(self) -> &'static str {
        if self.within(Self::of(Type::I32)) {
            "i32"
        } else if self.within(Self::of(Type::I64)) {
            "i64"
        } else {
            "i128"
        }
    }

    /// Bits of the largest magnitude.
    fn bits(self) -> u32 {
        let of = |x: i128| 128 - x.unsigned_abs().leading_zeros();
        of(self.0).max(of(self.1))
    }
}

/// Code for a value.
#[derive(Clone, Debug)]
struct Value {
    code: String,
    /// Code for whether it is not null; `None` if it never is.
    valid: Option<String>,
    of: Type,
    bounds: Bounds,
}

impl Value {
    fn boolean(code: String, valid: Option<String>) -> Self {
        Self {
            code,
            valid,
            of: Type::Bool,
            bounds: Bounds(0, 1),
        }
    }

    /// The C++ type it is computed in.
    fn name(&self) -> &'static str {
        match self.of {
            Type::F32 => "float",
            Type::F64 => "double",
            _ => self.bounds.name(),
        }
    }

    /// Code that is true if it is true, and neither null nor false.
    fn truth(&self) -> String {
        match &self.valid {
            Some(valid) => format!("(({}) && ({}))", valid, self.code),
            None => format!("({})", self.code),
        }
    }
}

fn both(a: &Option<String>, b: &Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a.clone()),
        (Some(a), Some(b)) => Some(format!("({a} && {b})")),
        (a, b) => a.clone().or_else(|| b.clone()),
    }
}

struct Generator<'a> {
    pipeline: &'a Pipeline,
    shapes: &'a [Shape],
    ranges: &'a [bool],
    out: String,
    /// What comes before the loop, and after it.
    start: String,
    end: String,
    /// What is done once for a row group.
    group: String,
    /// Sums of eight rows, and the sums that they belong to.
    partials: Vec<(String, String)>,
    temporaries: usize,
    arguments: Vec<Argument>,
    code_tests: Vec<CodeTest>,
    accumulators: Vec<Fold>,
    results: Vec<Outcome>,
    outputs: Vec<(Type, bool)>,
    /// Columns whose cursor is open, whose validity is known, that are prepared for reading by row.
    chunks: Vec<bool>,
    open: Vec<bool>,
    valid: Vec<bool>,
    prepared: Vec<bool>,
    /// Columns read by row or by code, of `delta`: each has a tile. Byte of the tile.
    tiles: Vec<Option<u32>>,
    shared: u32,
}

impl<'a> Generator<'a> {
    fn new(
        pipeline: &'a Pipeline,
        shapes: &'a [Shape],
        ranges: &'a [bool],
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
        Ok(Self {
            pipeline,
            shapes,
            ranges,
            out: String::new(),
            start: String::new(),
            group: String::new(),
            partials: vec![],
            chunks: vec![false; columns],
            end: String::new(),
            temporaries: 0,
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

    fn finish(self) -> Generated {
        let mut source = String::new();
        HEADERS.iter().for_each(|header| source.push_str(header));
        let words = FIXED_ARGUMENTS + self.arguments.len();
        let slots = GROUP_WORDS + self.shapes.len() + self.code_tests.len();
        let _ = writeln!(source, "\nstruct Args {{ u64 word[{words}]; }};");
        for (column, shape) in self.shapes.iter().enumerate() {
            let (stored, value, word) = self.types(column);
            source.push_str(&shape.traits(&format!("C{column}"), stored, value, word));
        }
        let shared = self.shared;
        let mut warps = WARPS;
        while warps * shared > SHARED_BYTES {
            warps /= 2;
        }
        let threads = warps * 32;
        let by_slot = self.accumulators.contains(&Fold::SumFloat);
        let _ = write!(
            source,
            r#"
extern "C" __global__ void BOUNDS({threads}) {NAME}(const Args a) {{
    DYN_SHARED(u8, shared);
    u8* const own = shared + threadIdx.x / 32 * {shared};
    const u64 warp = (u64)blockIdx.x * {warps} + threadIdx.x / 32;
"#
        );
        let (start, group, body, end) = (&self.start, &self.group, &self.out, &self.end);
        let vector = format!(
            "            u32 m = rows - v * 1024 >= 1024 ? ALL : existing(rows - v * 1024);\n{body}"
        );
        let _ = if by_slot {
            write!(
                source,
                r#"    // a slot is always summed in the same order, whoever does it
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
{start}    u32 v = at < last ? (u32)(at - group[0]) : 0;
    while (at < last) {{
        const u32 rows = (u32)group[1], vectors = (rows + 1023) / 1024;
{group}        for (; v < vectors && at < last; v += {warps}, at += {warps}) {{
{vector}        }}
        group += {slots};
        v -= vectors;
    }}
    const u64 result = warp;
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
            by_slot,
            shared: shared * warps,
        }
    }

    /// Stored, value and word types of a column.
    fn types(&self, column: usize) -> (&'static str, &'static str, &'static str) {
        let shape = &self.shapes[column];
        let of = self.pipeline.columns.get(column).and_then(Type::of);
        let stored = match of {
            None | Some(Type::Bool | Type::U8) => "u8",
            Some(Type::I8) => "i8",
            Some(Type::I16) => "i16",
            Some(Type::U16) => "u16",
            Some(Type::I32) => "i32",
            Some(Type::U32) => "u32",
            Some(Type::I64) => "i64",
            Some(Type::U64) => "u64",
            Some(Type::I128) => "i128",
            Some(Type::F32) => "float",
            Some(Type::F64) => "double",
        };
        match of {
            Some(Type::F32 | Type::F64) => (stored, stored, "i64"),
            Some(_) => {
                let value = self.column_bounds(column).name();
                (stored, value, if shape.is_wide() { "i128" } else { "i64" })
            }
            None => (stored, "i32", "i64"),
        }
    }

    fn column_bounds(&self, column: usize) -> Bounds {
        match self.shapes[column].bounds {
            Some((low, high)) => Bounds::rounded(low, high),
            None => Bounds(0, 0),
        }
    }

    fn line(&mut self, indent: usize, text: impl AsRef<str>) {
        let indent = if indent == 0 { 0 } else { indent * 4 + 4 };
        let _ = writeln!(self.out, "{:1$}{2}", "", indent, text.as_ref());
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    fn argument(&mut self, argument: Argument) -> usize {
        self.arguments.push(argument);
        FIXED_ARGUMENTS + self.arguments.len() - 1
    }

    fn integer(&mut self, value: i128, of: &str) -> String {
        let low = self.argument(Argument::Word(value as u64));
        match of {
            "i128" => {
                let high = self.argument(Argument::Word((value >> 64) as u64));
                format!("(i128)((u128)a.word[{high}] << 64 | a.word[{low}])")
            }
            of => format!("({of})a.word[{low}]"),
        }
    }

    // ---- the steps of a vector ----

    fn body(&mut self, task: Task) -> Result<()> {
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
                let mut columns = vec![];
                columns_of_filter(&self.pipeline.filter, &mut columns);
                // a few descriptors ahead: their latencies overlap
                let mut ahead = columns.into_iter();
                ahead
                    .by_ref()
                    .take(OPEN_AHEAD)
                    .for_each(|column| self.open(column, 2));
                let filter = &self.pipeline.filter;
                let conjuncts: &[Filter] = match filter {
                    Filter::And(parts) => parts,
                    Filter::Constant(true) => &[],
                    other => std::slice::from_ref(other),
                };
                for conjunct in conjuncts {
                    if let Some(column) = ahead.next() {
                        self.open(column, 2);
                    }
                    let mask = self.filter(conjunct)?;
                    self.line(2, format!("m &= {mask};"));
                    self.line(2, "if (!__any_sync(ALL, m)) continue;");
                }
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
            _ => Err(Error::Unsupported(
                "a task that the pipeline does not have".into(),
            )),
        }
    }

    fn open(&mut self, column: usize, indent: usize) {
        self.chunk(column);
        if !std::mem::replace(&mut self.open[column], true) {
            self.line(
                indent,
                format!("Cursor c{column} = open<C{column}>(h{column}, v);"),
            );
        }
    }

    fn chunk(&mut self, column: usize) {
        if !std::mem::replace(&mut self.chunks[column], true) {
            let slot = GROUP_WORDS + column;
            let _ = writeln!(
                self.group,
                "        const Chunk h{column} = chunk(group[{slot}]);"
            );
        }
    }

    /// Code for the rows of a column that are not null; `None` if all are.
    fn valid_rows(&mut self, column: usize) -> Option<String> {
        if !self.shapes[column].nullable() {
            return None;
        }
        self.open(column, 2);
        if !std::mem::replace(&mut self.valid[column], true) {
            self.line(2, format!("const u32 v{column} = valid_rows(c{column});"));
        }
        Some(format!("v{column}"))
    }

    fn tile(&self, column: usize) -> String {
        match self.tiles[column] {
            Some(at) => format!("own + {at}"),
            None => "(void*)0".into(),
        }
    }

    fn prepare(&mut self, column: usize) {
        self.open(column, 2);
        if !std::mem::replace(&mut self.prepared[column], true) {
            let tile = self.tile(column);
            self.line(2, format!("prepare<C{column}>(c{column}, {tile});"));
        }
    }

    /// Code for the mask of a filter.
    fn filter(&mut self, filter: &Filter) -> Result<String> {
        let mask = match filter {
            Filter::Constant(true) => return Ok("ALL".into()),
            Filter::Constant(false) => return Ok("0u".into()),
            Filter::Column(column, predicate) => self.predicate(*column, predicate)?,
            Filter::Values(column, test) => {
                let test = EntryTest::Values(test.clone());
                self.codes(*column, test, None, false)?
            }
            Filter::And(parts) | Filter::Or(parts) => {
                let is_and = matches!(filter, Filter::And(_));
                let masks = parts.iter().map(|part| self.filter(part));
                let masks = masks.collect::<Result<Vec<_>>>()?;
                if masks.is_empty() {
                    return Ok(if is_and { "ALL".into() } else { "0u".into() });
                }
                format!("({})", masks.join(if is_and { " & " } else { " | " }))
            }
            Filter::Expr(expr) => {
                let mask = self.temporary();
                self.line(2, format!("u32 {mask} = 0;"));
                self.by_row(std::slice::from_ref(expr), Walk::Each, |this, values| {
                    let truth = values[0].truth();
                    this.line(4, format!("{mask} |= (u32){truth} << r;"));
                    Ok(())
                })?;
                mask
            }
        };
        let name = self.temporary();
        self.line(2, format!("const u32 {name} = {mask};"));
        Ok(name)
    }

    fn predicate(&mut self, column: usize, predicate: &Predicate) -> Result<String> {
        let is_fixed = Type::of(&self.pipeline.columns[column]).is_some();
        match predicate {
            Predicate::IsNull => Ok(match self.valid_rows(column) {
                Some(valid) => format!("~{valid}"),
                None => "0u".into(),
            }),
            Predicate::IsNotNull => Ok(self.valid_rows(column).unwrap_or_else(|| "ALL".into())),
            Predicate::Range { low, high, negated } => {
                let test = EntryTest::Predicate(Predicate::Range {
                    low: low.clone(),
                    high: high.clone(),
                    negated: false,
                });
                let range = match is_fixed {
                    true => Some(self.words(low, high)?),
                    false => None,
                };
                self.codes(column, test, range, *negated)
            }
            Predicate::In { values, negated } => {
                let only_codes = self.shapes[column].forms == 1 << Form::Dict as u8;
                if only_codes {
                    let test = EntryTest::Predicate(Predicate::In {
                        values: values.clone(),
                        negated: false,
                    });
                    return self.codes(column, test, None, *negated);
                }
                let words = value_words(values)?
                    .ok_or_else(|| Error::Unsupported("constants beyond 128 bits".into()))?;
                let ranges = merged(words);
                if ranges.len() > MAX_RANGES {
                    let reason = format!("a list of {} ranges on a plain column", ranges.len());
                    return Err(Error::Unsupported(reason));
                }
                if self.shapes[column].has(Form::Dict) {
                    return Err(Error::Unsupported(
                        "a list on a column of both codes and values".into(),
                    ));
                }
                let mut masks = vec![];
                for range in ranges {
                    masks.push(self.range(column, range, None)?);
                }
                let any = match masks.is_empty() {
                    true => "0u".into(),
                    false => format!("({})", masks.join(" | ")),
                };
                Ok(self.of_valid(column, any, *negated))
            }
        }
    }

    fn words(&self, low: &Bound<ArrayRef>, high: &Bound<ArrayRef>) -> Result<(i128, i128)> {
        range_words(low, high)?
            .ok_or_else(|| Error::Unsupported("a constant beyond 128 bits".into()))
    }

    /// A test of codes, and of values too if a range is given.
    fn codes(
        &mut self,
        column: usize,
        test: EntryTest,
        range: Option<(i128, i128)>,
        negated: bool,
    ) -> Result<String> {
        let shape = &self.shapes[column];
        let mut slot = None;
        if shape.has(Form::Dict) {
            if shape.forms != 1 << Form::Dict as u8 && range.is_none() {
                let reason = "a test of values that are not all in dictionaries";
                return Err(Error::Unsupported(reason.into()));
            }
            self.code_tests.push(CodeTest { column, test });
            slot = Some(self.code_tests.len() - 1);
        } else if range.is_none() {
            return Err(Error::Unsupported(
                "a test of values that are in no dictionary".into(),
            ));
        }
        let mask = self.range(column, range.unwrap_or((1, 0)), slot)?;
        Ok(self.of_valid(column, mask, negated))
    }

    fn of_valid(&mut self, column: usize, mask: String, negated: bool) -> String {
        let mask = if negated { format!("~{mask}") } else { mask };
        match self.valid_rows(column) {
            Some(valid) => format!("({mask} & {valid})"),
            None => mask,
        }
    }

    fn range(&mut self, column: usize, range: (i128, i128), test: Option<usize>) -> Result<String> {
        self.open(column, 2);
        let shape = &self.shapes[column];
        let (is_wide, has_alp) = (shape.is_wide(), shape.has(Form::Alp));
        let float = Type::of(&self.pipeline.columns[column]).is_some_and(Type::is_float);
        let (low, high) = match is_wide && !float {
            true => range,
            // nothing lies beyond 64 bits
            false if range.0 > i128::from(i64::MAX) || range.1 < i128::from(i64::MIN) => (1, 0),
            false => {
                let clamp = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into());
                (clamp(range.0), clamp(range.1))
            }
        };
        let word = if is_wide && !float { "i128" } else { "i64" };
        let scales = match has_alp {
            true => {
                let (low, high) = (low as i64, high as i64);
                let at = self.argument(Argument::Scales { column, low, high });
                format!("(const i64*)a.word[{at}]")
            }
            false => "(const i64*)0".into(),
        };
        let (low, high) = (self.integer(low, word), self.integer(high, word));
        let columns = self.shapes.len();
        let (codes, bits) = match test {
            Some(test) => (
                format!("group[{}]", GROUP_WORDS + columns + test),
                !self.ranges.get(test).copied().unwrap_or(true),
            ),
            None => ("0".into(), false),
        };
        let tile = self.tile(column);
        let range = self.temporary();
        let _ = writeln!(
            self.group,
            "        const Range<{word}> {range}{{{low}, {high}, {codes}, {scales}}};\n        \
             const auto {range}e = entries_of<C{column}>(h{column}, {range});"
        );
        Ok(format!(
            "rows_in<C{column}, {bits}>(c{column}, {range}, {range}e, {tile})"
        ))
    }

    // ---- row by row ----

    /// Opens a loop over eight rows at a time, decodes the columns of `exprs`, and lets `each` use
    /// their values in row `r` of the lane.
    fn by_row(
        &mut self,
        exprs: &[Expr],
        walk: Walk,
        each: impl FnOnce(&mut Self, &[Value]) -> Result<()>,
    ) -> Result<()> {
        let mut columns = vec![];
        exprs
            .iter()
            .for_each(|expr| columns_of_expr(expr, &mut columns));
        for column in &columns {
            self.prepare(*column);
            self.valid_rows(*column);
        }
        // what is computed for a row, whichever way rows are walked
        let before = std::mem::take(&mut self.out);
        let values = exprs
            .iter()
            .map(|expr| self.expr(expr))
            .collect::<Result<Vec<_>>>()?;
        each(self, &values)?;
        let body = std::mem::replace(&mut self.out, before);
        let partials = std::mem::take(&mut self.partials);
        let is_sparse = walk == Walk::Each && columns.iter().all(|c| self.shapes[*c].is_direct());
        if is_sparse {
            let most = SPARSE_ROWS;
            self.line(
                2,
                format!("if (__reduce_max_sync(ALL, (u32)__popc(m)) <= {most}) {{"),
            );
            partials
                .iter()
                .for_each(|(partial, _)| self.line(3, format!("i32 {partial} = 0;")));
            self.line(3, "for (u32 left = m; left; left &= left - 1) {");
            self.line(4, "const u32 r = __ffs((int)left) - 1, k = 0;");
            self.line(4, "const bool in = true;");
            for column in &columns {
                let (_, value, _) = self.types(*column);
                self.line(
                    4,
                    format!("const {value} x{column}[1] = {{value_at<C{column}>(c{column}, r)}};"),
                );
                if self.shapes[*column].nullable() {
                    self.line(4, format!("const u32 n{column} = v{column} >> r;"));
                }
            }
            self.out.push_str(&body);
            self.line(3, "}");
            partials
                .iter()
                .for_each(|(partial, sum)| self.line(3, format!("{sum} += {partial};")));
            self.line(2, "} else");
        }
        self.line(2, "for (u32 eighth = 0; eighth < 4; eighth++) {");
        self.line(3, "const u32 m8 = m >> eighth * 8;");
        self.line(3, "if (!__any_sync(ALL, m8 & 255)) continue;");
        for column in &columns {
            if self.shapes[*column].nullable() {
                self.line(3, format!("const u32 n{column} = v{column} >> eighth * 8;"));
            }
        }
        for column in &columns {
            let tile = self.tile(*column);
            let (_, value, _) = self.types(*column);
            self.line(3, format!("{value} x{column}[8];"));
            self.line(
                3,
                format!("values_8<C{column}>(c{column}, eighth, {tile}, x{column});"),
            );
        }
        partials
            .iter()
            .for_each(|(partial, _)| self.line(3, format!("i32 {partial} = 0;")));
        self.line(0, "#pragma unroll");
        self.line(3, "for (u32 k = 0; k < 8; k++) {");
        self.line(4, "const u32 r = eighth * 8 + k;");
        self.line(4, "const bool in = m8 >> k & 1;");
        self.out.push_str(&body);
        self.line(3, "}");
        partials
            .iter()
            .for_each(|(partial, sum)| self.line(3, format!("{sum} += {partial};")));
        self.line(2, "}");
        Ok(())
    }

    /// Gives a value a name.
    fn named(&mut self, value: Value) -> Value {
        let name = self.temporary();
        let of = if value.of == Type::Bool {
            "bool"
        } else {
            value.name()
        };
        self.line(4, format!("const {of} {name} = {};", value.code));
        let valid = value.valid.map(|valid| {
            let name = self.temporary();
            self.line(4, format!("const bool {name} = {valid};"));
            name
        });
        Value {
            code: name,
            valid,
            ..value
        }
    }

    fn expr(&mut self, expr: &Expr) -> Result<Value> {
        Ok(match expr {
            Expr::Column(column) => {
                let data_type = &self.pipeline.columns[*column];
                let of = Type::of(data_type)
                    .ok_or_else(|| Error::Unsupported(format!("values of type {data_type}")))?;
                let valid = self.shapes[*column]
                    .nullable()
                    .then(|| format!("(n{column} >> k & 1)"));
                let bounds = self.column_bounds(*column);
                Value {
                    code: format!("x{column}[k]"),
                    valid,
                    of,
                    bounds,
                }
            }
            Expr::Literal(literal) => self.literal(*literal),
            Expr::Compare(comparison, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.compare(*comparison, a, b)?
            }
            Expr::And(parts) => self.logic(parts, true)?,
            Expr::Or(parts) => self.logic(parts, false)?,
            Expr::Not(part) => {
                let part = self.expr(part)?;
                Value::boolean(format!("!{}", part.code), part.valid)
            }
            Expr::IsNull(part) => {
                let part = self.expr(part)?;
                let code = part
                    .valid
                    .map_or("false".into(), |valid| format!("!{valid}"));
                Value::boolean(code, None)
            }
            Expr::Arithmetic(operation, a, b) => {
                let constant = match b.as_ref() {
                    Expr::Literal(Literal::Int(value, _)) => Some(*value),
                    _ => None,
                };
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.arithmetic(*operation, a, b, constant)?
            }
            Expr::Negate(part) => {
                let part = self.expr(part)?;
                let zero = match part.of {
                    Type::F32 | Type::F64 => {
                        let code = format!("negated({})", part.code);
                        return Ok(self.named(Value { code, ..part }));
                    }
                    of => Value {
                        code: "0".into(),
                        valid: None,
                        of,
                        bounds: Bounds(0, 0),
                    },
                };
                self.arithmetic(Arithmetic::Subtract, zero, part, None)?
            }
            Expr::Cast(part, to) => {
                let part = self.expr(part)?;
                self.cast(part, *to)?
            }
            Expr::Case(whens, otherwise) => self.case(whens, otherwise.as_deref())?,
            Expr::DatePart(part, date) => {
                let date = self.expr(date)?;
                let function = match part {
                    DatePart::Year => "year",
                    DatePart::Quarter => "quarter",
                    DatePart::Month => "month",
                    DatePart::Day => "day",
                    DatePart::DayOfWeek => "day_of_week",
                    DatePart::DayOfYear => "day_of_year",
                };
                let code = format!("{function}_of((i32){})", date.code);
                let bounds = Bounds::of(Type::I32);
                self.named(Value {
                    code,
                    valid: date.valid,
                    of: Type::I32,
                    bounds,
                })
            }
            Expr::Values(..) => {
                return Err(Error::Unsupported(
                    "a test of values within an expression".into(),
                ));
            }
        })
    }

    fn literal(&mut self, literal: Literal) -> Value {
        let of = literal.data_type();
        match literal {
            Literal::Null(_) => Value {
                code: match of {
                    Type::F32 => "0.0f".into(),
                    Type::F64 => "0.0".into(),
                    _ => "0".into(),
                },
                valid: Some("false".into()),
                of,
                bounds: Bounds(0, 0),
            },
            Literal::Int(value, Type::Bool) => Value::boolean(
                if value != 0 {
                    "true".into()
                } else {
                    "false".into()
                },
                None,
            ),
            Literal::Int(value, of) => {
                let bounds = Bounds::literal(value);
                let code = self.integer(value, bounds.name());
                Value {
                    code,
                    valid: None,
                    of,
                    bounds,
                }
            }
            Literal::F32(value) => {
                let at = self.argument(Argument::Word(u64::from(value.to_bits())));
                let code = format!("__int_as_float((i32)a.word[{at}])");
                Value {
                    code,
                    valid: None,
                    of,
                    bounds: Bounds(0, 0),
                }
            }
            Literal::F64(value) => {
                let at = self.argument(Argument::Word(value.to_bits()));
                let code = format!("__longlong_as_double((i64)a.word[{at}])");
                Value {
                    code,
                    valid: None,
                    of,
                    bounds: Bounds(0, 0),
                }
            }
        }
    }

    fn compare(&mut self, comparison: Comparison, a: Value, b: Value) -> Result<Value> {
        let symbol = match comparison {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        };
        same_type(&a, &b)?;
        let valid = both(&a.valid, &b.valid);
        let code = if a.of.is_float() {
            format!("(key_of({}) {symbol} key_of({}))", a.code, b.code)
        } else {
            let of = a.bounds.union(b.bounds).name();
            format!("(({of}){} {symbol} ({of}){})", a.code, b.code)
        };
        Ok(self.named(Value::boolean(code, valid)))
    }

    /// Three-valued AND or OR.
    fn logic(&mut self, parts: &[Expr], is_and: bool) -> Result<Value> {
        let mut all: Option<Value> = None;
        for part in parts {
            let part = self.expr(part)?;
            all = Some(match all {
                None => part,
                Some(before) => {
                    let symbol = if is_and { "&&" } else { "||" };
                    // what settles the result: a false for AND, a true for OR, that is not null
                    let settles = |value: &Value| {
                        let sign = if is_and { "!" } else { "" };
                        let valid = value.valid.clone().unwrap_or_else(|| "true".into());
                        format!("({valid} && {sign}{})", value.code)
                    };
                    let valid = match (&before.valid, &part.valid) {
                        (None, None) => None,
                        (a, b) => {
                            let both = both(a, b).unwrap_or_else(|| "true".into());
                            Some(format!(
                                "({both} || {} || {})",
                                settles(&before),
                                settles(&part)
                            ))
                        }
                    };
                    // a null counts as what does not settle it
                    let known = |value: &Value| match &value.valid {
                        None => value.code.clone(),
                        Some(valid) if is_and => format!("(!{valid} || {})", value.code),
                        Some(valid) => format!("({valid} && {})", value.code),
                    };
                    let code = format!("({} {symbol} {})", known(&before), known(&part));
                    self.named(Value::boolean(code, valid))
                }
            });
        }
        Ok(all.unwrap_or_else(|| {
            Value::boolean(
                if is_and {
                    "true".into()
                } else {
                    "false".into()
                },
                None,
            )
        }))
    }

    fn arithmetic(
        &mut self,
        operation: Arithmetic,
        a: Value,
        b: Value,
        constant: Option<i128>,
    ) -> Result<Value> {
        same_type(&a, &b)?;
        let valid = both(&a.valid, &b.valid);
        let of = a.of;
        let symbol = match operation {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Remainder => "%",
        };
        if of.is_float() {
            let code = match operation {
                Arithmetic::Remainder => {
                    return Err(Error::Unsupported("the remainder of floats".into()));
                }
                _ => format!("({} {symbol} {})", a.code, b.code),
            };
            return Ok(self.named(Value {
                code,
                valid,
                of,
                bounds: Bounds(0, 0),
            }));
        }
        let range = Bounds::of(of);
        let exact = match operation {
            Arithmetic::Add => add(a.bounds.0, b.bounds.0).zip(add(a.bounds.1, b.bounds.1)),
            Arithmetic::Subtract => sub(a.bounds.0, b.bounds.1).zip(sub(a.bounds.1, b.bounds.0)),
            Arithmetic::Multiply => product(a.bounds, b.bounds),
            Arithmetic::Divide | Arithmetic::Remainder => {
                if constant.is_none_or(|value| value == 0 || value == -1) {
                    return Err(Error::Unsupported("division by what may be 0 or -1".into()));
                }
                if of == Type::I128 {
                    return Err(Error::Unsupported("division of decimals".into()));
                }
                // a dividend is of its type, whatever is known of what it is computed from
                let (low, high) = (
                    a.bounds.0.max(range.0).min(0),
                    a.bounds.1.min(range.1).max(0),
                );
                let most = high.max(-low).min(range.1);
                match (operation, constant) {
                    (Arithmetic::Divide, Some(..0)) => Some((range.0.max(-most), most)),
                    _ => Some((low, high)),
                }
            }
        };
        let (bounds, wraps) = match exact {
            Some((low, high)) if Bounds(low, high).within(range) => (Bounds(low, high), false),
            _ if of == Type::I128 => {
                return Err(Error::Unsupported("decimals that may overflow".into()));
            }
            _ => (range, true),
        };
        let code = if wraps {
            // operands may be wider than the type's own: what is cut off does not matter
            let (unsigned, native) = native_names(of);
            let cast = |code: &str| format!("(u64)({code})");
            let inner = format!("{} {symbol} {}", cast(&a.code), cast(&b.code));
            format!("({})({native})({unsigned})({inner})", bounds.name())
        } else {
            let wide = a.bounds.union(b.bounds).union(bounds).name();
            // rows that do not count may hold anything: they must not overflow
            let inner = match operation {
                Arithmetic::Divide | Arithmetic::Remainder => wide.to_string(),
                _ => wide.replace('i', "u"),
            };
            format!("({wide})(({inner}){} {symbol} ({inner}){})", a.code, b.code)
        };
        Ok(self.named(Value {
            code,
            valid,
            of,
            bounds,
        }))
    }

    fn cast(&mut self, part: Value, to: Type) -> Result<Value> {
        if part.of == to {
            return Ok(part);
        }
        let bounds = match (part.of.is_float(), to.is_float()) {
            (true, false) => {
                return Err(Error::Unsupported("a cast of floats to integers".into()));
            }
            (false, false) if to != Type::Bool => {
                if !part.bounds.within(Bounds::of(to)) {
                    let reason = format!("a cast to {to:?} that may not fit");
                    return Err(Error::Unsupported(reason));
                }
                part.bounds
            }
            (false, false) => return Err(Error::Unsupported("a cast to booleans".into())),
            _ => Bounds(0, 0),
        };
        let code = match to {
            Type::F32 if part.of == Type::F64 => format!("(float){}", part.code),
            Type::F32 | Type::F64 if !part.of.is_float() && part.bounds.name() == "i128" => {
                return Err(Error::Unsupported("a cast of 128 bits to floats".into()));
            }
            Type::F32 => format!("(float){}", part.code),
            Type::F64 => format!("(double){}", part.code),
            _ => part.code,
        };
        Ok(Value {
            code: format!("({code})"),
            valid: part.valid,
            of: to,
            bounds,
        })
    }

    fn case(&mut self, whens: &[(Expr, Expr)], otherwise: Option<&Expr>) -> Result<Value> {
        let mut branches = vec![];
        for (when, then) in whens {
            branches.push((self.expr(when)?.truth(), self.expr(then)?));
        }
        let of = branches.first().map(|(_, value)| value.of);
        let of = of.ok_or_else(|| Error::Unsupported("a CASE without WHEN".into()))?;
        let last = match otherwise {
            Some(expr) => self.expr(expr)?,
            None => self.literal(Literal::Null(of)),
        };
        let mut bounds = last.bounds;
        for (_, value) in &branches {
            same_type(value, &last)?;
            bounds = bounds.union(value.bounds);
        }
        let name = Value {
            bounds,
            ..last.clone()
        }
        .name();
        let nullable = last.valid.is_some() || branches.iter().any(|(_, v)| v.valid.is_some());
        let (mut code, mut valid) = (
            format!("({name}){}", last.code),
            last.valid.clone().unwrap_or_else(|| "true".into()),
        );
        for (when, value) in branches.iter().rev() {
            code = format!("({when} ? ({name}){} : {code})", value.code);
            let known = value.valid.as_deref().unwrap_or("true");
            valid = format!("({when} ? {known} : {valid})");
        }
        let valid = nullable.then_some(valid);
        Ok(self.named(Value {
            code,
            valid,
            of,
            bounds,
        }))
    }

    // ---- outputs ----

    fn rows(&mut self, exprs: &[Expr], all: bool) -> Result<()> {
        // columns without nulls of which every row is wanted need no loop
        let copied = |this: &Self, expr: &Expr| match expr {
            Expr::Column(column) if all && !this.shapes[*column].nullable() => Some(*column),
            _ => None,
        };
        let (mut computed, mut places) = (vec![], vec![]);
        for (place, expr) in exprs.iter().enumerate() {
            let Some(column) = copied(self, expr) else {
                computed.push(expr.clone());
                places.push(place);
                self.outputs.push((Type::Bool, false));
                continue;
            };
            let data_type = &self.pipeline.columns[column];
            let of = Type::of(data_type)
                .ok_or_else(|| Error::Unsupported(format!("values of type {data_type}")))?;
            self.outputs.push((of, false));
            self.prepare(column);
            let out = self.output(self.types(column).0, 2 * place);
            let tile = self.tile(column);
            self.line(
                2,
                format!("copy_values<C{column}>(c{column}, m, {tile}, {out} + first);"),
            );
        }
        if computed.is_empty() {
            return Ok(());
        }
        self.by_row(&computed, Walk::Together, |this, values| {
            if all {
                this.line(4, "const u64 to = first + r * 32;");
            } else {
                this.line(4, "const u32 word = __shfl_sync(ALL, selected, r);");
                this.line(4, "const u64 first = __shfl_sync(ALL, place, r);");
                this.line(
                    4,
                    "const u64 to = first + __popc(word & ((1u << lane_id()) - 1));",
                );
            }
            for (place, value) in places.into_iter().zip(values) {
                let of = match value.of {
                    Type::Bool => "u8",
                    Type::F32 => "float",
                    Type::F64 => "double",
                    Type::I128 => "i128",
                    other => native_names(other).1,
                };
                let out = this.output(of, 2 * place);
                this.line(4, format!("if (in) {out}[to] = ({of}){};", value.code));
                if let Some(valid) = &value.valid {
                    let out = this.output("u8", 2 * place + 1);
                    this.line(4, format!("if (in) {out}[to] = {valid};"));
                }
                this.outputs[place] = (value.of, value.valid.is_some());
            }
            Ok(())
        })
    }

    /// A pointer to where an output's values, or whether they are null, belong. It is loaded once for
    /// all: the compiler cannot know that storing does not change it.
    fn output(&mut self, of: &str, at: usize) -> String {
        let name = format!("o{at}");
        let address = format!("((const u64*)a.word[3])[{at}]");
        let _ = writeln!(self.start, "    {of}* const {name} = ({of}*){address};");
        name
    }

    fn accumulator(&mut self, fold: Fold, of: &str, first: &str) -> (usize, String) {
        let index = self.accumulators.len();
        let name = format!("s{index}");
        let _ = writeln!(self.start, "    {of} {name} = {first};");
        self.accumulators.push(fold);
        (index, name)
    }

    fn aggregates(&mut self, aggregates: &[Aggregate]) -> Result<()> {
        let rows = self.accumulator(Fold::Count, "u32", "0").1;
        self.line(2, format!("{rows} += __popc(m);"));
        let exprs: Vec<Expr> = aggregates
            .iter()
            .filter_map(|aggregate| match aggregate {
                Aggregate::CountRows => None,
                Aggregate::Count(Expr::Column(_)) => None,
                Aggregate::Count(expr)
                | Aggregate::Sum(expr)
                | Aggregate::Min(expr)
                | Aggregate::Max(expr) => Some(expr.clone()),
            })
            .collect();
        for aggregate in aggregates {
            if let Aggregate::Count(Expr::Column(column)) = aggregate {
                self.valid_rows(*column);
            }
        }
        let mut results = vec![];
        if exprs.is_empty() {
            for aggregate in aggregates {
                results.push(self.count_only(aggregate));
            }
        } else {
            self.by_row(&exprs, Walk::Each, |this, values| {
                let mut values = values.iter();
                for aggregate in aggregates {
                    let result = match aggregate {
                        Aggregate::CountRows | Aggregate::Count(Expr::Column(_)) => None,
                        _ => values.next().map(|value| this.accumulate(aggregate, value)),
                    };
                    results.push(result.transpose()?);
                }
                Ok(())
            })?;
            for (result, aggregate) in results.iter_mut().zip(aggregates) {
                if result.is_none() {
                    *result = self.count_only(aggregate);
                }
            }
        }
        self.results = results.into_iter().flatten().collect();
        let accumulators = self.accumulators.clone();
        let words = 2 * accumulators.len();
        let _ = writeln!(
            self.end,
            "    u64* const to = (u64*)a.word[3] + result * {words};"
        );
        for (index, fold) in accumulators.iter().enumerate() {
            let combine = match fold {
                Fold::Count => "store_sum(to + {}, (i64)s{});",
                Fold::SumInt | Fold::SumFloat => "store_sum(to + {}, s{});",
                Fold::Min => "store_min(to + {}, s{});",
                Fold::Max => "store_max(to + {}, s{});",
            };
            let code = combine
                .replacen("{}", &(2 * index).to_string(), 1)
                .replacen("{}", &index.to_string(), 1);
            let _ = writeln!(self.end, "    {code}");
        }
        Ok(())
    }

    /// Counts of rows, and of a column's values, need no values.
    fn count_only(&mut self, aggregate: &Aggregate) -> Option<Outcome> {
        let count = match aggregate {
            Aggregate::CountRows => 0,
            Aggregate::Count(Expr::Column(column)) => match self.valid_rows(*column) {
                None => 0,
                Some(valid) => {
                    let (index, name) = self.accumulator(Fold::Count, "u32", "0");
                    self.line(2, format!("{name} += __popc(m & {valid});"));
                    index
                }
            },
            _ => return None,
        };
        Some(Outcome {
            count,
            value: None,
            key: None,
        })
    }

    fn accumulate(&mut self, aggregate: &Aggregate, value: &Value) -> Result<Outcome> {
        let value = self.named(value.clone());
        let taken = match &value.valid {
            Some(valid) => format!("in && {valid}"),
            None => "in".into(),
        };
        let count = match &value.valid {
            None => 0,
            Some(_) => {
                let (index, name) = self.accumulator(Fold::Count, "u32", "0");
                self.line(4, format!("{name} += {taken};"));
                index
            }
        };
        let code = &value.code;
        let mut key = None;
        let index = match aggregate {
            Aggregate::Sum(_) if value.of.is_float() => {
                let (index, name) = self.accumulator(Fold::SumFloat, "double", "0.0");
                self.line(4, format!("if ({taken}) {name} += {code};"));
                index
            }
            Aggregate::Sum(_) => {
                // a thread sees at most 2^20 rows of a launch
                let of = if value.bounds.bits() + 20 <= 63 {
                    "i64"
                } else {
                    "u128"
                };
                let (index, name) = self.accumulator(Fold::SumInt, of, "0");
                if value.bounds.bits() + 3 <= 31 {
                    // eight of them fit 32 bits
                    let partial = format!("p{index}");
                    self.line(4, format!("if ({taken}) {partial} += (i32){code};"));
                    self.partials.push((partial, name));
                    return Ok(Outcome {
                        count,
                        value: Some(index),
                        key,
                    });
                }
                let wide = if of == "u128" {
                    "(u128)(i128)"
                } else {
                    "(i64)"
                };
                self.line(4, format!("if ({taken}) {name} += {wide}{code};"));
                index
            }
            Aggregate::Min(_) | Aggregate::Max(_) => {
                let is_min = matches!(aggregate, Aggregate::Min(_));
                let (fold, symbol) = match is_min {
                    true => (Fold::Min, "<"),
                    false => (Fold::Max, ">"),
                };
                let (of, code) = match value.of {
                    Type::F32 | Type::F64 => ("i64", format!("(i64)key_of({code})")),
                    _ => (value.name(), format!("({}){code}", value.name())),
                };
                key = value.of.is_float().then_some(value.of);
                let first = if is_min { "greatest" } else { "least" };
                let (index, name) = self.accumulator(fold, of, &format!("{first}<{of}>()"));
                self.line(
                    4,
                    format!("if ({taken} && {code} {symbol} {name}) {name} = {code};"),
                );
                index
            }
            _ => {
                return Ok(Outcome {
                    count,
                    value: None,
                    key: None,
                });
            }
        };
        Ok(Outcome {
            count,
            value: Some(index),
            key,
        })
    }
}

fn add(a: i128, b: i128) -> Option<i128> {
    a.checked_add(b)
}

fn sub(a: i128, b: i128) -> Option<i128> {
    a.checked_sub(b)
}

fn product(a: Bounds, b: Bounds) -> Option<(i128, i128)> {
    let ends = [
        a.0.checked_mul(b.0)?,
        a.0.checked_mul(b.1)?,
        a.1.checked_mul(b.0)?,
        a.1.checked_mul(b.1)?,
    ];
    Some((*ends.iter().min()?, *ends.iter().max()?))
}

fn same_type(a: &Value, b: &Value) -> Result<()> {
    if a.of == b.of {
        return Ok(());
    }
    let reason = format!("an operation on {:?} and {:?}", a.of, b.of);
    Err(Error::Unsupported(reason))
}

/// Unsigned and own C++ type of an integer type.
fn native_names(of: Type) -> (&'static str, &'static str) {
    match of {
        Type::Bool | Type::U8 => ("u8", "u8"),
        Type::I8 => ("u8", "i8"),
        Type::U16 => ("u16", "u16"),
        Type::I16 => ("u16", "i16"),
        Type::U32 => ("u32", "u32"),
        Type::I32 => ("u32", "i32"),
        Type::U64 => ("u64", "u64"),
        _ => ("u64", "i64"),
    }
}

/// Ranges that hold just these words, ascending.
fn merged(mut words: Vec<i128>) -> Vec<(i128, i128)> {
    words.sort_unstable();
    words.dedup();
    let mut ranges: Vec<(i128, i128)> = vec![];
    for word in words {
        match ranges.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(word) => last.1 = word,
            _ => ranges.push((word, word)),
        }
    }
    ranges
}

fn push(column: usize, columns: &mut Vec<usize>) {
    if !columns.contains(&column) {
        columns.push(column);
    }
}

fn columns_of_filter(filter: &Filter, columns: &mut Vec<usize>) {
    match filter {
        Filter::Constant(_) => {}
        Filter::Column(column, _) | Filter::Values(column, _) => push(*column, columns),
        Filter::And(parts) | Filter::Or(parts) => {
            parts
                .iter()
                .for_each(|part| columns_of_filter(part, columns));
        }
        Filter::Expr(expr) => columns_of_expr(expr, columns),
    }
}

fn columns_of_expr(expr: &Expr, columns: &mut Vec<usize>) {
    match expr {
        Expr::Column(column) | Expr::Values(column, _) => push(*column, columns),
        Expr::Literal(_) => {}
        Expr::Compare(_, a, b) | Expr::Arithmetic(_, a, b) => {
            columns_of_expr(a, columns);
            columns_of_expr(b, columns);
        }
        Expr::And(parts) | Expr::Or(parts) => {
            parts.iter().for_each(|part| columns_of_expr(part, columns));
        }
        Expr::Not(part)
        | Expr::IsNull(part)
        | Expr::Negate(part)
        | Expr::Cast(part, _)
        | Expr::DatePart(_, part) => columns_of_expr(part, columns),
        Expr::Case(whens, otherwise) => {
            for (when, then) in whens {
                columns_of_expr(when, columns);
                columns_of_expr(then, columns);
            }
            if let Some(otherwise) = otherwise {
                columns_of_expr(otherwise, columns);
            }
        }
    }
}

/// The columns that are read row by row.
fn columns_by_row(pipeline: &Pipeline, task: Task) -> Vec<usize> {
    fn of_filter(filter: &Filter, columns: &mut Vec<usize>) {
        match filter {
            Filter::Expr(expr) => columns_of_expr(expr, columns),
            Filter::And(parts) | Filter::Or(parts) => {
                parts.iter().for_each(|part| of_filter(part, columns));
            }
            _ => {}
        }
    }
    let mut columns = vec![];
    if !matches!(task, Task::Values | Task::AllValues) {
        of_filter(&pipeline.filter, &mut columns);
    }
    match (&pipeline.output, task) {
        (Output::Rows(exprs), Task::Values | Task::AllValues) => {
            exprs
                .iter()
                .for_each(|expr| columns_of_expr(expr, &mut columns));
        }
        (Output::Aggregates(aggregates), Task::Totals) => {
            for aggregate in aggregates {
                match aggregate {
                    Aggregate::CountRows => {}
                    Aggregate::Count(expr)
                    | Aggregate::Sum(expr)
                    | Aggregate::Min(expr)
                    | Aggregate::Max(expr) => columns_of_expr(expr, &mut columns),
                }
            }
        }
        _ => {}
    }
    columns
}
