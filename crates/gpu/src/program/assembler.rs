//! State of the assembler: instructions, arguments, and what flags and slots hold.

use std::collections::BTreeSet;

use vectile_kernels::program::{
    Grouped, Instruction, MOST_COLUMNS, NONE, PROGRAM_WORDS, ProgramWord, RowOp, Scope, ValueType,
    VectorOp,
};
use vectile_kernels::{ColumnTraits, Transform};
use vectile_pipeline::Type;

use super::body::Body;
use super::code::Program;
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
    pub code: Vec<Instruction>,
    pub arguments: Vec<Argument>,
    pub outputs: Vec<(Type, bool)>,
    /// Per column that may be null, the flag of its validity, and whether that is computed.
    valid: Vec<Option<(u16, bool)>>,
    /// Number of flags in use, and the most so far.
    flags: u16,
    most_flags: u16,
    /// Slots in use, and the most so far.
    slots: BTreeSet<u16>,
    most_slots: u16,
    /// Per column, its number among those that are decoded.
    decoded: Vec<Option<u16>>,
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
    pub fn new(plan: &'a KernelPlan) -> Result<Self> {
        let columns = plan.columns.len();
        if columns > MOST_COLUMNS {
            return unsupported(format!("{columns} columns for the interpreter"));
        }
        let header = vec![Argument::Word(0); HEADER_WORDS];
        let mut this = Self {
            plan,
            code: vec![],
            arguments: header,
            outputs: vec![],
            valid: vec![None; columns],
            flags: 0,
            most_flags: 0,
            slots: BTreeSet::new(),
            most_slots: 0,
            decoded: vec![None; columns],
            copies: vec![],
            accumulators: vec![],
            grouped: Grouped::Elsewhere,
            groups: 0,
            group_words: 0,
            body: Body::default(),
            is_checked: plan.columns.iter().any(is_wide),
        };
        if matches!(plan.task, Task::Values | Task::AllValues) {
            // where selected rows go: the interpreter has the numbers of these flags, too
            let reserved = [this.flag(), this.flag(), this.flag()];
            debug_assert_eq!(reserved, [0, 1, 2]);
        }
        for column in 0..columns {
            if this.traits(column).nullable() {
                this.valid[column] = Some((this.flag(), false));
            }
        }
        let mut count = 0;
        for (column, number) in plan.columns.iter().zip(&mut this.decoded) {
            if may_be_decoded(&column.traits) {
                *number = Some(count);
                count += 1;
            }
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
            // all that there is to select is known by then
            Task::Lengths => {}
            Task::Values | Task::AllValues => {
                let op = match plan.task {
                    Task::AllValues => VectorOp::Every,
                    _ => VectorOp::Selected,
                };
                self.at_vector(op, 0, [0; 3]);
            }
            _ => {
                for column in &plan.fetched {
                    self.at_vector(VectorOp::Fetch, *column as u8, [0; 3]);
                }
                for conjunct in &plan.conjuncts {
                    self.with_flags(|this| this.filter(conjunct))?;
                    self.at_vector(VectorOp::Filter, 0, [0; 3]);
                }
            }
        }
        match &plan.output {
            OutputPlan::Masks => self.at_vector(VectorOp::Masks, 0, [0; 3]),
            OutputPlan::Rows {
                columns,
                copied,
                loops,
            } => self.rows(*columns, copied, loops)?,
            OutputPlan::Lengths => self.lengths(),
            OutputPlan::Totals {
                accumulators,
                loops,
                counts,
            } => self.totals(accumulators, loops, counts)?,
            OutputPlan::Groups(groups) => self.groups(groups)?,
        }
        Ok(())
    }

    /// The flag of the rows in which a column is not null, which is computed first; `None` if it has no nulls.
    pub fn valid_rows(&mut self, column: usize) -> Option<u16> {
        let (flag, is_computed) = self.valid[column].as_mut()?;
        let flag = *flag;
        if !std::mem::replace(is_computed, true) {
            self.at_vector(VectorOp::Valid, column as u8, [0; 3]);
            self.at_vector(VectorOp::Keep, 0, [flag, 0, 0]);
        }
        Some(flag)
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
        let decoded = self.decoded.iter().flatten().count();
        let (flags, slots) = (u32::from(self.most_flags), u32::from(self.most_slots));
        // the list of picked rows needs a multiple of 16 bytes, as everything here
        let memory = WarpMemory::new(plan, kept, flags, slots, decoded);
        let columns_at = self.columns();
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
            (ProgramWord::SlotsAt, halves(memory.slots_at, 0)),
            (
                ProgramWord::Columns,
                halves(plan.columns.len() as u32, stride),
            ),
            (ProgramWord::Code, halves(columns_at, code_at)),
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
        if words > PROGRAM_WORDS {
            return unsupported(format!("a program of {words} words for the interpreter"));
        }
        let program = Program {
            code: self.code.into_iter().map(Instruction::word).collect(),
            warps: memory.warps,
            warp_bytes: memory.bytes,
            scratch_bytes: memory.scratch_bytes,
            is_checked: self.is_checked,
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

    /// Adds the description of the columns.
    fn columns(&mut self) -> u32 {
        let of = self.plan.columns.iter().zip(&self.decoded);
        let words = of.map(|(column, decoded)| {
            let of = column.of.map_or(ValueType::Text, value_type);
            let is_wide = u64::from(column.traits.wide_entries);
            of as u64 | u64::from(decoded.unwrap_or(0)) << 8 | is_wide << 16
        });
        let words: Vec<u64> = words.collect();
        self.words(words.into_iter())
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
fn is_wide(column: &ColumnPlan) -> bool {
    column.traits.is_wide() && !column.of.is_some_and(Type::is_float)
}

/// # Errors
///
/// [`Error::Unsupported`] for tests of a column of integers that may not fit 64 bits.
pub(super) fn check_column(column: &ColumnPlan) -> Result<()> {
    match is_wide(column) {
        true => unsupported("tests of numbers of more than 64 bits in the interpreter"),
        false => Ok(()),
    }
}

/// Returns true if an integer may not fit 64 bits.
pub(super) fn may_overflow(typed: &Typed) -> bool {
    !typed.of.is_float() && typed.bounds.name() == "i128"
}
