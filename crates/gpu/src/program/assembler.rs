//! State of the assembler: instructions, arguments, and what flags and slots hold.

use std::collections::BTreeSet;

use vectile_kernels::program::{
    Grouped, Instruction, NONE, PROGRAM_WORDS, ProgramWord, RowOp, Scope, ValueType, VectorOp,
};
use vectile_kernels::{ColumnTraits, Transform};
use vectile_pipeline::Type;

use super::body::Body;
use super::code::Program;
use super::columns::{self, Columns};
use super::memory::WarpMemory;
use crate::emit::Layout;
use crate::error::{Error, Result};
use crate::kernel::{
    AccumulationScope, Argument, ColumnPlan, FIXED_ARGUMENTS, GROUP_WORDS, KernelPlan, OutputPlan,
    TABLE_WORDS, Task, Typed,
};

/// Arguments with a fixed meaning, before those that instructions name.
const HEADER_WORDS: usize = ProgramWord::Grouped as usize + 1;

pub(super) struct Assembler<'a> {
    pub plan: &'a KernelPlan,
    /// True if numbers have 128 bits.
    pub is_wide: bool,
    pub code: Vec<Instruction>,
    pub arguments: Vec<Argument>,
    pub outputs: Vec<(Type, bool)>,
    /// Columns that are taken up together, in order, and the argument that describes the first of each set.
    sets: Vec<(Columns, u16)>,
    /// The set that is taken up.
    set: Option<usize>,
    /// Per column that may be null, the flag of its validity, and whether that is computed.
    valid: Vec<Option<(u16, bool)>>,
    /// Number of flags that are always in use, of those in use, and the most so far.
    reserved_flags: u16,
    flags: u16,
    most_flags: u16,
    /// Slots in use, and the most so far.
    slots: BTreeSet<u16>,
    most_slots: u16,
    /// Most columns of a set that may be decoded.
    most_decoded: usize,
    /// Per lookup, the argument of the offset of a copy of its bits, and that of the copy.
    copies: Vec<(usize, [Argument; 3])>,
    /// Accumulators, as words.
    pub accumulators: Vec<u64>,
    pub grouped: Grouped,
    /// Groups of threads, and words of accumulators for each.
    pub groups: u16,
    pub group_words: u16,
    pub body: Body<'a>,
    /// True if some number may not fit 64 bits.
    pub is_checked: bool,
}

pub(super) fn unsupported<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(reason.into()))
}

/// Two numbers of 32 bits as a word.
fn halves(low: u32, high: u32) -> Argument {
    Argument::Word(u64::from(low) | u64::from(high) << 32)
}

impl<'a> Assembler<'a> {
    pub fn new(plan: &'a KernelPlan, is_wide: bool) -> Result<Self> {
        let header = vec![Argument::Word(0); HEADER_WORDS];
        let mut this = Self {
            plan,
            is_wide,
            code: vec![],
            arguments: header,
            outputs: vec![],
            sets: vec![],
            set: None,
            valid: vec![],
            reserved_flags: 0,
            flags: 0,
            most_flags: 0,
            slots: BTreeSet::new(),
            most_slots: 0,
            most_decoded: 0,
            copies: vec![],
            accumulators: vec![],
            grouped: Grouped::Elsewhere,
            groups: 0,
            group_words: 0,
            body: Body::default(),
            is_checked: plan.columns.iter().any(is_wide_column),
        };
        if matches!(plan.task, Task::Values | Task::AllValues) {
            // where selected rows go: the interpreter has the numbers of these flags, too
            let reserved = [this.flag(), this.flag(), this.flag()];
            debug_assert_eq!(reserved, [0, 1, 2]);
        }
        this.reserved_flags = this.flags;
        for set in columns::sets(plan)? {
            let described = this.describe_columns(&set);
            this.sets.push((set, described));
        }
        Ok(this)
    }

    /// Assembles the program.
    pub fn program(mut self) -> Result<(Program, Layout)> {
        self.vector()?;
        self.at_vector(VectorOp::End, 0, [0; 3]);
        self.finish()
    }

    // ---- instructions ----

    pub fn at_vector(&mut self, op: VectorOp, a: u8, rest: [u16; 3]) {
        let op = op as u8;
        self.code.push(Instruction { op, a, rest });
    }

    pub fn at_rows(&mut self, op: RowOp, a: u8, rest: [u16; 3]) {
        let op = op as u8;
        self.code.push(Instruction { op, a, rest });
    }

    /// The number of the next instruction.
    pub fn next(&self) -> u16 {
        // checked at the end: a program of more is too large anyway
        self.code.len().min(NONE.into()) as u16
    }

    /// The index of an argument's word, which is added.
    pub fn argument(&mut self, argument: Argument) -> u16 {
        self.arguments.push(argument);
        (FIXED_ARGUMENTS + self.arguments.len() - 1).min(NONE.into()) as u16
    }

    /// The index of an operand's word, which is added; in wide programs with its upper half.
    pub fn operand_argument(&mut self, argument: Argument) -> u16 {
        let at = self.argument(argument);
        if self.is_wide {
            self.argument(match argument {
                Argument::Low(constant) => Argument::High(constant),
                Argument::Word(word) => Argument::Word(((word as i64) >> 63) as u64),
                // factors of keys are less than 2^62
                _ => Argument::Word(0),
            });
        }
        at
    }

    /// A new flag.
    pub fn flag(&mut self) -> u16 {
        self.flags += 1;
        self.most_flags = self.most_flags.max(self.flags);
        self.flags - 1
    }

    /// Calls `make`, after which flags that it took are free again.
    pub fn with_flags<T>(&mut self, make: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.flags;
        let made = make(self);
        self.flags = before;
        made
    }

    /// A free slot.
    pub fn slot(&mut self) -> u16 {
        let slot = (0..)
            .find(|slot| !self.slots.contains(slot))
            .unwrap_or(NONE);
        self.slots.insert(slot);
        self.most_slots = self.most_slots.max(slot + 1);
        slot
    }

    pub fn free(&mut self, slot: u16) {
        self.slots.remove(&slot);
    }

    /// Frees all slots.
    pub fn free_all(&mut self) {
        self.slots.clear();
    }

    // ---- places in descriptors and arguments ----

    /// The word of a table in a row group's descriptor.
    pub fn table_word(&self, table: usize) -> u16 {
        (GROUP_WORDS + self.plan.columns.len() + TABLE_WORDS * table) as u16
    }

    /// The word of a code test in a row group's descriptor.
    pub fn test_word(&self, test: usize) -> u16 {
        self.table_word(self.plan.tables.len()) + test as u16
    }

    /// The argument of the offset of a copy of a lookup's bits.
    pub fn copy(&mut self, copy: usize) -> u16 {
        let arguments = [
            Argument::CopyAt(copy),
            Argument::CopyWords(copy),
            Argument::CopyOf(copy),
        ];
        if !self.copies.iter().any(|(known, _)| *known == copy) {
            self.copies.push((copy, arguments));
        }
        self.argument(Argument::CopyAt(copy))
    }

    pub fn traits(&self, column: usize) -> &'a ColumnTraits {
        &self.plan.columns[column].traits
    }

    // ---- the steps of a vector ----

    fn vector(&mut self) -> Result<()> {
        let plan = self.plan;
        match plan.task {
            Task::AllValues => self.at_vector(VectorOp::Every, 0, [0; 3]),
            Task::Values => self.at_vector(VectorOp::Selected, 0, [0; 3]),
            _ => {}
        }
        self.take_up(&Columns::new())?;
        // all that there is to select may be known by then: the plan has no conjuncts in that case
        for column in &plan.fetched {
            if let Some(lane) = self.find_lane(*column) {
                self.at_vector(VectorOp::Fetch, lane, [0; 3]);
            }
        }
        for conjunct in &plan.conjuncts {
            self.take_up(&columns::of_test(plan, conjunct))?;
            self.with_flags(|this| this.filter(conjunct))?;
            self.at_vector(VectorOp::Filter, 0, [0; 3]);
        }
        match &plan.output {
            OutputPlan::Masks => self.at_vector(VectorOp::Masks, 0, [0; 3]),
            OutputPlan::Rows {
                columns,
                copied,
                loops,
            } => self.rows(*columns, copied, loops)?,
            OutputPlan::Lengths => self.lengths()?,
            OutputPlan::Totals {
                accumulators,
                loops,
                counts,
            } => self.totals(accumulators, loops, counts)?,
            OutputPlan::Groups(groups) => self.groups(groups)?,
        }
        Ok(())
    }

    // ---- columns ----

    /// Has the columns of the next step taken up, unless they are.
    pub fn take_up(&mut self, step: &Columns) -> Result<()> {
        let mut sets = self.sets.iter().enumerate().skip(self.set.unwrap_or(0));
        let Some((number, (set, described))) = sets.find(|(_, (set, _))| step.is_subset(set))
        else {
            return Err(Error::Internal(format!("no set has columns {step:?}")));
        };
        if self.set == Some(number) {
            return Ok(());
        }
        self.set = Some(number);
        // the interpreter takes up the first set when it enters a row group
        let is_only = self.sets.len() == 1;
        let nullable = set.iter().filter(|column| self.traits(**column).nullable());
        let nullable: Vec<usize> = nullable.copied().collect();
        let (lanes, described) = (set.len() as u8, *described);
        if !is_only {
            self.at_vector(VectorOp::Columns, lanes, [described, 0, 0]);
        }
        self.flags = self.reserved_flags;
        self.valid = vec![None; self.plan.columns.len()];
        for column in nullable {
            self.valid[column] = Some((self.flag(), false));
        }
        Ok(())
    }

    /// The lane of a column that is taken up.
    pub fn lane(&self, column: usize) -> Result<u8> {
        match self.find_lane(column) {
            Some(lane) => Ok(lane),
            None => Err(Error::Internal(format!("column {column} is not taken up"))),
        }
    }

    fn find_lane(&self, column: usize) -> Option<u8> {
        let (set, _) = self.sets.get(self.set?)?;
        let lane = set.iter().position(|known| *known == column)?;
        Some(lane as u8)
    }

    /// Adds words to the arguments that describe columns, as [`VectorOp::Columns`] says. Returns the index of the first.
    fn describe_columns(&mut self, set: &Columns) -> u16 {
        let mut decoded = 0;
        let words = set.iter().map(|column| {
            let plan = &self.plan.columns[*column];
            let of = plan.of.map_or(ValueType::Text, value_type) as u64;
            let word = of << 8 | decoded << 16 | u64::from(plan.traits.wide_entries) << 24;
            decoded += u64::from(may_be_decoded(&plan.traits));
            word | (*column as u64) << 32
        });
        let words: Vec<u64> = words.collect();
        self.most_decoded = self.most_decoded.max(decoded as usize);
        self.words(words.into_iter()) as u16
    }

    /// Makes a column readable row by row, for a body that picks rows if few are left, or not.
    pub fn decode(&mut self, column: usize, may_pick: bool) -> Result<()> {
        let lane = self.lane(column)?;
        if may_be_decoded(self.traits(column)) {
            self.at_vector(VectorOp::Decode, lane, [may_pick.into(), 0, 0]);
        }
        Ok(())
    }

    /// The flag of the rows in which a column is not null, which is computed first; `None` if it has no nulls.
    pub fn valid_rows(&mut self, column: usize) -> Result<Option<u16>> {
        let lane = self.lane(column)?;
        let Some((flag, is_computed)) = self.valid[column].as_mut() else {
            return Ok(None);
        };
        let flag = *flag;
        if !std::mem::replace(is_computed, true) {
            self.at_vector(VectorOp::Valid, lane, [0; 3]);
            self.at_vector(VectorOp::Keep, 0, [flag, 0, 0]);
        }
        Ok(Some(flag))
    }

    /// The flag of a column's validity, which was computed before; `NONE` if it has no nulls.
    pub fn valid_flag(&self, column: usize) -> u16 {
        self.valid[column].map_or(NONE, |(flag, _)| flag)
    }

    // ---- the whole ----

    fn finish(mut self) -> Result<(Program, Layout)> {
        let plan = self.plan;
        let spare = u32::from(self.grouped == Grouped::Threads);
        let kept = match self.grouped {
            Grouped::Threads | Grouped::Not => {
                (u32::from(self.groups) + spare) * u32::from(self.group_words)
            }
            Grouped::Block | Grouped::Elsewhere => 0,
        };
        let (flags, slots) = (u32::from(self.most_flags), u32::from(self.most_slots));
        // the list of picked rows needs a multiple of 16 bytes, as everything here
        let memory = WarpMemory::new(plan, kept, flags, slots, self.most_decoded);
        let first = self.sets.first();
        let (columns, columns_at) = first.map_or((0, 0), |(set, at)| (set.len(), *at));
        let accumulators = self.accumulators.clone();
        let accumulators_at = self.words(accumulators.iter().copied());
        let copies = std::mem::take(&mut self.copies);
        let copies_at = (FIXED_ARGUMENTS + self.arguments.len()) as u32;
        for (_, arguments) in &copies {
            self.arguments.extend(arguments);
        }
        let code_at = (FIXED_ARGUMENTS + self.arguments.len()) as u32;
        let stride = u32::from(self.test_word(plan.bitmaps.len()));
        let scope = match plan.per {
            AccumulationScope::Warp => Scope::Warp,
            AccumulationScope::Block { .. } => Scope::Block,
            AccumulationScope::Slot => Scope::Slot,
        };
        let grouped = u32::from(self.groups) | u32::from(self.group_words) << 16;
        let header = [
            (ProgramWord::BlockBytes, Argument::BlockBytes),
            (ProgramWord::TableAt, Argument::TableAt),
            (ProgramWord::Groups, Argument::Groups),
            (ProgramWord::Entries, Argument::Entries),
            (ProgramWord::Scratch, Argument::Scratch),
            (ProgramWord::Overflow, Argument::Overflow),
            (
                ProgramWord::ScratchBytes,
                Argument::Word(memory.scratch_bytes as u64),
            ),
            (ProgramWord::WarpBytes, halves(memory.bytes, memory.tile_at)),
            (ProgramWord::KeptAt, halves(0, memory.flags_at)),
            (
                ProgramWord::SlotsAt,
                halves(memory.slots_at, self.is_wide.into()),
            ),
            (ProgramWord::Columns, halves(columns as u32, stride)),
            (ProgramWord::Code, halves(columns_at.into(), code_at)),
            (
                ProgramWord::Accumulators,
                halves(accumulators_at, accumulators.len() as u32),
            ),
            (ProgramWord::Copies, halves(copies_at, copies.len() as u32)),
            (ProgramWord::Scope, Argument::WithWarps(scope as u32)),
            (ProgramWord::Grouped, halves(self.grouped as u32, grouped)),
        ];
        for (word, argument) in header {
            self.arguments[word as usize] = argument;
        }
        let words = FIXED_ARGUMENTS + self.arguments.len() + self.code.len();
        if words >= PROGRAM_WORDS {
            return unsupported(format!("a program of {words} words in the interpreter"));
        }
        let program = Program {
            code: self.code.into_iter().map(Instruction::word).collect(),
            warps: memory.warps,
            warp_bytes: memory.bytes,
            scratch_bytes: memory.scratch_bytes,
            is_checked: self.is_checked && !self.is_wide,
        };
        let layout = Layout {
            arguments: self.arguments,
            outputs: self.outputs,
        };
        Ok((program, layout))
    }

    /// Adds words to the arguments, and returns the index of the first.
    fn words(&mut self, words: impl Iterator<Item = u64>) -> u32 {
        let at = (FIXED_ARGUMENTS + self.arguments.len()) as u32;
        self.arguments.extend(words.map(Argument::Word));
        at
    }
}

/// Returns true if some vector of the column cannot be read where it is.
pub(super) fn may_be_decoded(traits: &ColumnTraits) -> bool {
    !traits.is_packed() || !traits.is_direct() || traits.high != 0 || traits.has(Transform::AlpRd)
}

/// The machine type, as programs name it.
pub(super) fn value_type(of: Type) -> ValueType {
    match of {
        Type::Bool => ValueType::Bool,
        Type::I8 => ValueType::I8,
        Type::I16 => ValueType::I16,
        Type::I32 => ValueType::I32,
        Type::I64 => ValueType::I64,
        Type::U8 => ValueType::U8,
        Type::U16 => ValueType::U16,
        Type::U32 => ValueType::U32,
        Type::U64 => ValueType::U64,
        Type::I128 => ValueType::I128,
        Type::F32 => ValueType::F32,
        Type::F64 => ValueType::F64,
    }
}

/// Returns true if some integer of a column may not fit 64 bits.
pub(super) fn is_wide_column(column: &ColumnPlan) -> bool {
    column.traits.is_wide() && !column.of.is_some_and(Type::is_float)
}

/// Returns true if an integer may not fit 64 bits.
pub(super) fn may_overflow(typed: &Typed) -> bool {
    !typed.of.is_float() && typed.bounds.name() == "i128"
}
