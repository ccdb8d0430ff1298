//! Instructions of outputs: rows that are written, totals, groups.

use std::ops::Range;

use vectile_kernels::program::{
    AccumulatorKind, Conversion, Grouped, MOST_COLUMNS, NONE, ONE, Operand, RowOp, ValueType,
    VectorOp,
};
use vectile_pipeline::Type;

use super::assembler::{Assembler, value_type};
use super::columns;
use crate::error::Result;
use crate::kernel::{
    Accumulator, AccumulatorLocation, AccumulatorSlot, Accumulators, Argument, Field, GroupsPlan,
    KeySource, RowLoop, Strategy, Task, ThreadsPlan, Typed,
};

impl<'a> Assembler<'a> {
    // ---- rows ----

    pub fn rows(
        &mut self,
        columns: usize,
        copied: &[(usize, usize)],
        loops: &'a [(RowLoop, Vec<usize>)],
    ) -> Result<()> {
        self.outputs = vec![(Type::Bool, false); columns];
        for copied in copied.chunks(MOST_COLUMNS) {
            self.copied(copied)?;
        }
        for (rows, indices) in loops {
            self.take_up(&columns::of_loop(self.plan, rows))?;
            self.body(rows, VectorOp::Loop, false, |this| {
                let place = this.place();
                for (index, expr) in indices.iter().copied().zip(&rows.exprs) {
                    this.value(expr)?;
                    let of = value_type(expr.of) as u8;
                    this.at_rows(RowOp::Write, of, [index as u16, place, 0]);
                    if expr.valid.is_some() {
                        this.at_rows(RowOp::WriteValid, 0, [index as u16, place, 0]);
                    }
                    this.outputs[index] = (expr.of, expr.valid.is_some());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The slot of places that rows go to.
    fn place(&mut self) -> u16 {
        let goes_on = self.plan.task == Task::AllValues;
        self.at_rows(RowOp::Place, goes_on.into(), [0; 3]);
        let slot = self.slot();
        self.at_rows(RowOp::Save, 0, [slot, NONE, 0]);
        slot
    }

    /// Copies columns to outputs as they are: (index of the output, column).
    fn copied(&mut self, copied: &[(usize, usize)]) -> Result<()> {
        self.take_up(&columns::of_copied(copied))?;
        for (_, column) in copied {
            self.decode(*column, false)?;
        }
        let start = self.code.len();
        self.at_vector(VectorOp::Loop, 0, [0; 3]);
        self.free_all();
        let place = self.place();
        for (index, column) in copied.iter().copied() {
            let rest = [self.lane(column)?.into(), NONE, 0];
            self.at_rows(RowOp::Set, Operand::Column as u8, rest);
            let of = self.plan.columns[column].of;
            if let Some(of) = of {
                self.outputs[index].0 = of;
            }
            let of = of.map_or(ValueType::U8, value_type) as u8;
            self.at_rows(RowOp::Write, of, [index as u16, place, 0]);
        }
        self.code[start].rest[0] = self.next();
        Ok(())
    }

    /// Lengths of strings of the only column, or codes.
    pub fn lengths(&mut self) -> Result<()> {
        let is_nullable = self.traits(0).nullable();
        let lane = self.lane(0)?;
        self.at_vector(VectorOp::Lengths, lane, [0, 0, is_nullable.into()]);
        Ok(())
    }

    // ---- totals ----

    pub fn totals(
        &mut self,
        accumulators: &Accumulators,
        loops: &'a [(RowLoop, Range<usize>)],
        counts: &[(usize, usize)],
    ) -> Result<()> {
        self.grouped = Grouped::Not;
        self.groups = 1;
        let mut at = vec![];
        for (index, slot) in accumulators.all.iter().enumerate() {
            let kind = self.kind(slot.accumulator);
            at.push(self.group_words);
            self.describe(kind, self.group_words, None, index);
            self.group_words += words(kind);
        }
        let is_combined = loops.iter().any(|(rows, _)| rows.combined.is_some());
        if !is_combined {
            self.at_vector(VectorOp::Count, 0, [0, NONE, 0]);
        }
        for (rows, of_loop) in loops {
            self.take_up(&columns::of_loop(self.plan, rows))?;
            let may_pick = !accumulators.are_ordered();
            self.body(rows, VectorOp::Loop, may_pick, |this| {
                if is_combined {
                    this.at_rows(RowOp::Constant, 1, [0; 3]);
                    let kind = AccumulatorKind::Count as u8;
                    this.at_rows(RowOp::AddToTotal, kind, [0; 3]);
                }
                let mut current = None;
                for index in of_loop.clone() {
                    let AccumulatorSlot {
                        accumulator,
                        argument: Some(argument),
                    } = accumulators.all[index]
                    else {
                        continue;
                    };
                    let of = &rows.exprs[argument];
                    if current != Some(argument) {
                        this.value(of)?;
                        current = Some(argument);
                    }
                    if this.prepare(accumulator, of) {
                        current = None;
                    }
                    let kind = this.kind(accumulator) as u8;
                    this.at_rows(RowOp::AddToTotal, kind, [0, at[index], 0]);
                }
                Ok(())
            })?;
        }
        for (index, column) in counts {
            self.take_up(&columns::Columns::from([*column]))?;
            if let Some(valid) = self.valid_rows(*column)? {
                self.at_vector(VectorOp::Count, 0, [at[*index], valid, 0]);
            }
        }
        Ok(())
    }

    /// Turns the value in `x` into what an accumulator adds. Returns true if that is another.
    fn prepare(&mut self, accumulator: Accumulator, of: &Typed) -> bool {
        let is_single = of.of == Type::F32;
        match accumulator {
            Accumulator::FloatSum if is_single => {
                self.at_rows(RowOp::Convert, Conversion::Widen as u8, [0; 3]);
                true
            }
            Accumulator::Min(_) | Accumulator::Max(_) if of.of.is_float() => {
                self.at_rows(RowOp::Order, is_single.into(), [0; 3]);
                true
            }
            _ => false,
        }
    }

    /// Describes an accumulator to the interpreter: its words, its bits of them, its index among results.
    fn describe(&mut self, kind: AccumulatorKind, at: u16, field: Option<Field>, result: usize) {
        let mut word = kind as u64 | u64::from(at) << 8 | (result as u64) << 40;
        if let Some(field) = field {
            word |= u64::from(field.first) << 24 | u64::from(field.bits) << 32;
            word |= u64::from(field.signed) << 39;
        }
        self.accumulators.push(word);
    }

    // ---- groups ----

    pub fn groups(&mut self, plan: &'a GroupsPlan) -> Result<()> {
        let accumulators = &plan.accumulators;
        self.take_up(&columns::of_loop(self.plan, &plan.rows))?;
        match &plan.threads {
            Some(threads) => self.threads(threads, accumulators),
            None => {
                let (first, count) = accumulators.words();
                if plan.strategy == Strategy::Shared {
                    self.grouped = Grouped::Block;
                    self.group_words = count as u16;
                }
                for (index, (slot, at)) in accumulators.all.iter().zip(first).enumerate() {
                    let kind = self.table_kind(slot.accumulator);
                    self.describe(kind, at as u16, None, index);
                }
            }
        }
        // tables are added to in the order in which warps get there anyway
        let may_pick = plan.threads.is_none() || !accumulators.are_ordered();
        self.body(&plan.rows, VectorOp::Loop, may_pick, |this| {
            let (keys, others) = plan.rows.exprs.split_at(plan.key_values);
            let (conditions, arguments) = others.split_at(plan.conditions);
            for lookup in &plan.deferred {
                let (slot, valid) = this.code_in(*lookup)?;
                this.at_rows(RowOp::Set, Operand::Slot as u8, [slot, valid, 0]);
                this.at_rows(RowOp::Drop, 0, [0; 3]);
            }
            for condition in conditions {
                this.truth(condition)?;
                this.at_rows(RowOp::Filter, 0, [0; 3]);
            }
            let (group, parts) = this.number(plan, keys)?;
            match &plan.threads {
                Some(threads) => {
                    this.at_rows(RowOp::Kept, 0, [0; 3]);
                    this.at_rows(RowOp::Save, 0, [group, NONE, 0]);
                    this.add_to_threads(threads, accumulators, arguments, group)
                }
                None => this.add_to_table(plan, arguments, group, &parts),
            }
        })
    }

    /// The slots of the group number, which is in `x`, too, and of the parts of the key, if it has several.
    fn number(&mut self, plan: &GroupsPlan, values: &'a [Typed]) -> Result<(u16, Vec<u16>)> {
        let group = self.slot();
        if plan.keys.is_empty() {
            let zero = self.operand_argument(Argument::Word(0));
            self.at_rows(RowOp::Set, Operand::Argument as u8, [zero, NONE, 0]);
            self.at_rows(RowOp::Save, 0, [group, NONE, 0]);
        }
        if plan.parts.is_empty() {
            self.number_of(plan, 0..plan.keys.len(), values, group)?;
            return Ok((group, vec![]));
        }
        let mut parts = vec![];
        for (index, keys) in plan.parts.iter().enumerate() {
            let part = self.slot();
            self.number_of(plan, keys.clone(), values, part)?;
            let is_last = index + 1 == plan.parts.len();
            let before = if index == 0 { NONE } else { group };
            self.at_rows(RowOp::Hash, is_last.into(), [before, 0, 0]);
            self.at_rows(RowOp::Save, 0, [group, NONE, 0]);
            parts.push(part);
        }
        Ok((group, parts))
    }

    /// Leaves the number that the digits of `keys` make in a slot.
    fn number_of(
        &mut self,
        plan: &GroupsPlan,
        keys: Range<usize>,
        values: &'a [Typed],
        group: u16,
    ) -> Result<()> {
        let first_key = keys.start;
        for index in keys {
            let key = &plan.keys[index];
            match key.source {
                KeySource::Value(value) => {
                    let value = &values[value];
                    self.value(value)?;
                    let first = self.argument(Argument::KeyFirst(index));
                    let null = match value.valid {
                        Some(_) => self.argument(Argument::KeyNull(index)),
                        None => NONE,
                    };
                    self.at_rows(RowOp::Digit, 0, [first, null, 0]);
                }
                KeySource::Table(table) => {
                    let (slot, valid) = self.code_in(table)?;
                    let valid = if key.nullable { valid } else { NONE };
                    self.at_rows(RowOp::Set, Operand::Slot as u8, [slot, valid, 0]);
                    if key.nullable {
                        let zero = self.argument(Argument::Word(0));
                        let null = self.argument(Argument::KeyNull(index));
                        self.at_rows(RowOp::Digit, 0, [zero, null, 0]);
                    }
                }
            }
            if index > first_key {
                let factor = self.operand_argument(Argument::Stride(index));
                let from = Operand::Argument as u8;
                self.at_rows(RowOp::Multiply, from, [factor, NONE, 0]);
                self.at_rows(RowOp::Add, Operand::Slot as u8, [group, NONE, 0]);
            }
            self.at_rows(RowOp::Save, 0, [group, NONE, 0]);
        }
        Ok(())
    }

    /// The places of accumulators of threads.
    fn threads(&mut self, plan: &ThreadsPlan, accumulators: &Accumulators) {
        self.grouped = Grouped::Threads;
        self.groups = plan.groups as u16;
        self.group_words = plan.words as u16;
        let mut all = vec![];
        let located = accumulators.all.iter().zip(&plan.locations);
        for (index, (slot, location)) in located.enumerate() {
            all.push(match *location {
                AccumulatorLocation::Field(field) => {
                    let field = plan.fields[field];
                    let kind = AccumulatorKind::Field;
                    (field.word, field.first, kind, Some(field), index)
                }
                AccumulatorLocation::Own(word) => {
                    (word, 0, self.kind(slot.accumulator), None, index)
                }
            });
        }
        // fields of a word follow each other, the lowest first
        all.sort_by_key(|(word, first, ..)| (*word, *first));
        for (word, _, kind, field, index) in all {
            self.describe(kind, word as u16, field, index);
        }
    }

    fn add_to_threads(
        &mut self,
        plan: &ThreadsPlan,
        accumulators: &Accumulators,
        arguments: &'a [Typed],
        group: u16,
    ) -> Result<()> {
        let mut current = None;
        let located = accumulators.all.iter().zip(&plan.locations);
        for (slot, location) in located {
            let is_count = self.load(slot, arguments, &mut current)?;
            let (kind, word, first) = match *location {
                AccumulatorLocation::Field(field) => {
                    let field = plan.fields[field];
                    (AccumulatorKind::Field, field.word, field.first)
                }
                AccumulatorLocation::Own(word) => (self.kind(slot.accumulator), word, 0),
            };
            let one = if is_count { ONE } else { 0 };
            let rest = [group, word as u16, first as u16];
            self.at_rows(RowOp::AddToThread, kind as u8 | one, rest);
        }
        Ok(())
    }

    /// Computes the argument of an accumulator. Returns true if it counts. `current` is the argument in `x`.
    fn load(
        &mut self,
        slot: &AccumulatorSlot,
        arguments: &'a [Typed],
        current: &mut Option<usize>,
    ) -> Result<bool> {
        let is_count = matches!(slot.accumulator, Accumulator::Count { .. });
        match slot.argument {
            None => {
                self.at_rows(RowOp::Constant, 1, [0; 3]);
                *current = None;
            }
            Some(argument) => {
                if *current != Some(argument) {
                    self.value(&arguments[argument])?;
                    *current = Some(argument);
                }
                if self.prepare(slot.accumulator, &arguments[argument]) {
                    *current = None;
                }
            }
        }
        Ok(is_count)
    }

    fn add_to_table(
        &mut self,
        plan: &'a GroupsPlan,
        arguments: &'a [Typed],
        group: u16,
        parts: &[u16],
    ) -> Result<()> {
        let op = match plan.strategy {
            Strategy::Hashed => RowOp::Entry,
            _ => RowOp::Check,
        };
        let accumulators = &plan.accumulators;
        let has_sets = accumulators.distinct().next().is_some();
        let number = match op {
            RowOp::Entry if has_sets => {
                let number = self.slot();
                self.at_rows(RowOp::Save, 0, [number, NONE, 0]);
                number
            }
            _ => group,
        };
        self.at_rows(op, 0, [0; 3]);
        self.at_rows(RowOp::Save, 0, [group, NONE, 0]);
        let is_shared = plan.strategy == Strategy::Shared;
        let mut current = None;
        let (all_parts, mut parts, mut sets) = (parts, parts.iter(), 0..);
        for (slot, word) in accumulators.all.iter().zip(accumulators.words().0) {
            if slot.accumulator == Accumulator::KeyPart {
                let part = *parts.next().unwrap_or(&group);
                self.at_rows(RowOp::Set, Operand::Slot as u8, [part, NONE, 0]);
                let kind = AccumulatorKind::KeyPart as u8;
                self.at_rows(RowOp::AddToTable, kind, [group, 0, word as u16]);
                continue;
            }
            let is_count = self.load(slot, arguments, &mut current)?;
            if slot.accumulator == Accumulator::DistinctCount {
                let set = sets.next().unwrap_or(0);
                let first = self.operand_argument(Argument::SetFirst(set));
                self.at_rows(RowOp::Subtract, Operand::Argument as u8, [first, NONE, 0]);
                let described = self.describe_set(set, group, is_shared, all_parts);
                self.at_rows(RowOp::Distinct, 0, [described, number, word as u16]);
                current = None;
                continue;
            }
            if let Accumulator::Min(_) | Accumulator::Max(_) = slot.accumulator {
                let is_min = matches!(slot.accumulator, Accumulator::Min(_));
                self.at_rows(RowOp::Rank, is_min.into(), [0; 3]);
                current = None;
            }
            let kind = match slot.accumulator {
                // in shared memory, rows of a launch fit 32 bits
                Accumulator::Count { wide: false } if is_shared => AccumulatorKind::Count,
                Accumulator::Count { .. } => AccumulatorKind::Sum,
                other => self.table_kind(other),
            };
            let one = if is_count { ONE } else { 0 };
            let rest = [group, is_shared.into(), word as u16];
            self.at_rows(RowOp::AddToTable, kind as u8 | one, rest);
        }
        Ok(())
    }

    /// Describes a set of distinct values, as [`RowOp::Distinct`] says. `entry` is the slot of the group's entry.
    fn describe_set(&mut self, set: usize, entry: u16, is_shared: bool, parts: &[u16]) -> u16 {
        let slots = parts.iter().zip([16, 32, 48]);
        let slots = slots.fold(0, |slots, (slot, at)| slots | u64::from(*slot) << at);
        let layout = parts.len() as u64 | (set as u64) << 2 | u64::from(is_shared) << 8 | slots;
        let words = [
            Argument::SetAt(set),
            Argument::SetEntries(set),
            Argument::SetStride(set),
            Argument::Word(layout),
            Argument::Word(entry.into()),
        ];
        let [described, ..] = words.map(|word| self.argument(word));
        described
    }

    /// How threads keep an accumulator.
    fn kind(&self, accumulator: Accumulator) -> AccumulatorKind {
        match accumulator {
            Accumulator::Count { .. } => AccumulatorKind::Count,
            Accumulator::Sum { wide: false } => AccumulatorKind::Sum,
            Accumulator::Sum { wide: true } => AccumulatorKind::WideSum,
            Accumulator::FloatSum => AccumulatorKind::FloatSum,
            Accumulator::Min(Type::I128) if self.is_wide => AccumulatorKind::WideMin,
            Accumulator::Max(Type::I128) if self.is_wide => AccumulatorKind::WideMax,
            Accumulator::Min(_) => AccumulatorKind::Min,
            Accumulator::Max(_) => AccumulatorKind::Max,
            Accumulator::KeyPart => AccumulatorKind::KeyPart,
            Accumulator::DistinctCount => AccumulatorKind::Sum,
        }
    }

    /// How tables keep it: they have no extremes of 128 bits.
    fn table_kind(&self, accumulator: Accumulator) -> AccumulatorKind {
        match accumulator {
            Accumulator::Min(_) | Accumulator::Max(_) => AccumulatorKind::Raise,
            other => self.kind(other),
        }
    }
}

/// Words of an accumulator of a thread.
fn words(kind: AccumulatorKind) -> u16 {
    match kind {
        AccumulatorKind::WideSum | AccumulatorKind::WideMin | AccumulatorKind::WideMax => 2,
        _ => 1,
    }
}
