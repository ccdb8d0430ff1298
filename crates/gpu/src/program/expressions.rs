//! Instructions of expressions.

use vectile_kernels::program::{CHECKED, COMPUTED, Conversion, FIND_HASHED, NONE, Operand, RowOp};
use vectile_pipeline::{Arithmetic, Bounds, Comparison, DatePart, Op, Type};

use super::assembler::{Assembler, may_overflow, unsupported, value_type};
use super::body::Place;
use crate::error::{Error, Result};
use crate::kernel::{Argument, Node, Typed};

/// From this number on, arithmetic is of single precision; see [`RowOp::Float`].
const SINGLE: u16 = 8;

impl<'a> Assembler<'a> {
    /// Computes a value into `x`.
    pub fn value(&mut self, typed: &'a Typed) -> Result<()> {
        self.expr(typed)?;
        if typed.is_truth() {
            self.at_rows(RowOp::Number, 0, [0; 3]);
        }
        Ok(())
    }

    /// Computes a boolean into `t`.
    pub fn truth(&mut self, typed: &'a Typed) -> Result<()> {
        self.expr(typed)?;
        if !typed.is_truth() {
            self.at_rows(RowOp::Truth, 0, [0; 3]);
        }
        Ok(())
    }

    /// Computes a value into `x`, or `t` if [`Typed::is_truth`] says so. Values that occur again are kept.
    fn expr(&mut self, typed: &'a Typed) -> Result<()> {
        self.is_checked |= may_overflow(typed);
        let mut computed = self.body.computed.iter();
        if let Some((_, place)) = computed.find(|(known, _)| *known == typed) {
            match *place {
                Place::Slot(slot, valid) => {
                    self.at_rows(RowOp::Set, Operand::Slot as u8, [slot, valid, 0]);
                }
                Place::Flag(flag, valid) => {
                    self.at_rows(RowOp::LoadTruth, 0, [flag, valid, 0]);
                }
            }
            return Ok(());
        }
        self.compute(typed)?;
        if self.body.repeated.contains(&typed) {
            let valid = self.flag();
            let place = match typed.is_truth() {
                true => {
                    let flag = self.flag();
                    self.at_rows(RowOp::SaveTruth, 0, [flag, valid, 0]);
                    Place::Flag(flag, valid)
                }
                false => {
                    let slot = self.slot();
                    self.at_rows(RowOp::Save, 0, [slot, valid, 0]);
                    Place::Slot(slot, valid)
                }
            };
            self.body.computed.push((typed, place));
        }
        Ok(())
    }

    fn compute(&mut self, typed: &'a Typed) -> Result<()> {
        match &typed.node {
            Node::Column(_) | Node::Constant(_) | Node::Code(_) | Node::Match(_) => {
                let Some((from, b, c)) = self.operand(typed)? else {
                    return Err(Error::Internal("a leaf that is no operand".into()));
                };
                self.at_rows(RowOp::Set, from as u8, [b, c, 0]);
            }
            Node::Null => self.at_rows(RowOp::Null, 0, [0; 3]),
            Node::Bool(value) => self.at_rows(RowOp::Constant, (*value).into(), [0; 3]),
            Node::Op {
                op,
                operands,
                wraps,
            } => self.operation(typed, *op, operands, *wraps)?,
            Node::IsMissing(column) => {
                let valid = self.valid_flag(*column);
                self.at_rows(RowOp::LoadMask, 0, [valid, NONE, 0]);
                self.at_rows(RowOp::Not, 0, [0; 3]);
            }
            Node::Tested { column, test } => {
                let mut tests = self.body.tests.iter();
                let Some((_, flag)) = tests.find(|(number, _)| number == test) else {
                    return Err(Error::Internal(format!("there is no test {test}")));
                };
                let valid = match typed.valid {
                    Some(_) => self.valid_flag(*column),
                    None => NONE,
                };
                self.at_rows(RowOp::LoadMask, 0, [*flag, valid, 0]);
            }
            Node::Payload {
                lookup,
                payload,
                nullable,
            } => {
                let (slot, valid) = self.code_in(*lookup)?;
                self.at_rows(RowOp::Set, Operand::Slot as u8, [slot, valid, 0]);
                self.payload(typed.of, *payload, *nullable);
            }
            Node::PayloadOf {
                code,
                payload,
                nullable,
            } => {
                self.value(code)?;
                self.payload(typed.of, *payload, *nullable);
            }
            Node::Probe {
                key,
                table,
                is_hashed,
                bytes,
            } => {
                self.value(key)?;
                // the arguments are consecutive
                let words =
                    [0, 1, 2, 3].map(|word| self.argument(Argument::TableWord(*table, word)));
                let how = *bytes as u16 | if *is_hashed { FIND_HASHED } else { 0 };
                self.at_rows(RowOp::Find, COMPUTED, [words[0], 0, how]);
            }
            Node::Exists {
                list,
                number,
                condition,
            } => self.exists(list, *number, condition)?,
        }
        Ok(())
    }

    /// The payload of the code in `x`.
    fn payload(&mut self, of: Type, payload: usize, nullable: bool) {
        let values = self.argument(Argument::Values(payload));
        let validity = match nullable {
            true => self.argument(Argument::Validity(payload)),
            false => NONE,
        };
        self.at_rows(RowOp::Payload, value_type(of) as u8, [values, validity, 0]);
    }

    /// A value as operand, with its two indices, if no instruction is needed for that.
    fn operand(&mut self, typed: &'a Typed) -> Result<Option<(Operand, u16, u16)>> {
        self.is_checked |= may_overflow(typed);
        Ok(match &typed.node {
            Node::Column(column) => {
                let valid = match typed.valid {
                    Some(_) => self.valid_flag(*column),
                    None => NONE,
                };
                Some((Operand::Column, self.lane(*column)?.into(), valid))
            }
            Node::Constant(constant) => {
                let at = self.operand_argument(match may_overflow(typed) && !self.is_wide {
                    true => Argument::Fitting(*constant),
                    false => Argument::Low(*constant),
                });
                Some((Operand::Argument, at, NONE))
            }
            Node::Code(lookup) => {
                let (slot, valid) = self.code_in(*lookup)?;
                Some((Operand::Slot, slot, valid))
            }
            Node::Match(number) => {
                let mut matches = self.body.matches.iter().rev();
                let Some(matched) = matches.find(|matched| matched.number == *number) else {
                    return Err(Error::Internal(format!("there is no match {number}")));
                };
                let valid = match typed.valid {
                    Some(_) => matched.valid,
                    None => NONE,
                };
                Some((Operand::Slot, matched.index, valid))
            }
            _ => {
                let mut computed = self.body.computed.iter();
                match computed.find(|(known, _)| *known == typed) {
                    Some((_, Place::Slot(slot, valid))) => Some((Operand::Slot, *slot, *valid)),
                    _ => None,
                }
            }
        })
    }

    /// An operator on two values. `how` is 0 or [`CHECKED`].
    fn binary(&mut self, op: RowOp, how: u8, d: u16, a: &'a Typed, b: &'a Typed) -> Result<()> {
        if let Some((from, index, valid)) = self.operand(b)? {
            // computed values stay where they are
            self.value(a)?;
            self.at_rows(op, from as u8 | how, [index, valid, d]);
            return Ok(());
        }
        self.value(b)?;
        let (slot, valid) = (self.slot(), self.flag());
        self.at_rows(RowOp::Save, 0, [slot, valid, 0]);
        self.value(a)?;
        self.at_rows(op, Operand::Slot as u8 | how, [slot, valid, d]);
        self.free(slot);
        Ok(())
    }

    fn operation(
        &mut self,
        typed: &'a Typed,
        op: Op,
        operands: &'a [Typed],
        wraps: bool,
    ) -> Result<()> {
        match (op, operands) {
            (Op::Compare(comparison), [a, b]) => {
                let kind = match a.of {
                    Type::F64 => 8,
                    Type::F32 => 16,
                    _ => 0,
                };
                self.binary(
                    RowOp::Compare,
                    0,
                    kind + comparison_number(comparison),
                    a,
                    b,
                )?;
            }
            (Op::And, _) => self.logic(operands, RowOp::And)?,
            (Op::Or, _) => self.logic(operands, RowOp::Or)?,
            (Op::Not, [part]) => {
                self.truth(part)?;
                self.at_rows(RowOp::Not, 0, [0; 3]);
            }
            (Op::IsNull, [part]) => {
                self.expr(part)?;
                self.at_rows(RowOp::IsNull, 0, [0; 3]);
            }
            (Op::Arithmetic(operation), [a, b]) => {
                self.arithmetic(typed, operation, a, b)?;
                if wraps {
                    self.at_rows(RowOp::Wrap, value_type(typed.of) as u8, [0; 3]);
                }
            }
            (Op::Negate, [part]) => self.negate(typed, part, wraps)?,
            (Op::Cast(_), [part]) => self.cast(typed.of, part)?,
            (Op::Average, [sum, count]) => self.binary(RowOp::Average, 0, 0, sum, count)?,
            (Op::Rounded(_), [part]) => {
                self.value(part)?;
                self.at_rows(RowOp::Convert, Conversion::Round as u8, [0; 3]);
            }
            (Op::FloorDivide(divisor), [part]) => {
                self.value(part)?;
                let at = self.argument(Argument::Word(divisor as u64));
                self.at_rows(RowOp::FloorDivide, 0, [at, 0, 0]);
            }
            (Op::Case, [whens @ .., otherwise]) => self.case(typed, whens, otherwise)?,
            (Op::DatePart(part), [date]) => {
                self.value(date)?;
                let Bounds(first, last) = Bounds::known(part);
                let known = match date.bounds.within(Bounds(first, last)) {
                    true => NONE,
                    false => {
                        let at = self.argument(Argument::Word(first as u64));
                        self.argument(Argument::Word(last as u64));
                        at
                    }
                };
                self.at_rows(RowOp::DatePart, part_number(part), [known, 0, 0]);
            }
            // the planner checks numbers of operands
            _ => return Err(Error::Internal(format!("{op:?} of {}", operands.len()))),
        }
        Ok(())
    }

    fn arithmetic(
        &mut self,
        typed: &Typed,
        operation: Arithmetic,
        a: &'a Typed,
        b: &'a Typed,
    ) -> Result<()> {
        if typed.of.is_float() {
            let number = match operation {
                Arithmetic::Add => 0,
                Arithmetic::Subtract => 1,
                Arithmetic::Multiply => 2,
                Arithmetic::Divide => 3,
                Arithmetic::Remainder => return unsupported("remainders of floats"),
            };
            let single = if typed.of == Type::F32 { SINGLE } else { 0 };
            return self.binary(RowOp::Float, 0, single + number, a, b);
        }
        let op = match operation {
            Arithmetic::Add => RowOp::Add,
            Arithmetic::Subtract => RowOp::Subtract,
            Arithmetic::Multiply => RowOp::Multiply,
            Arithmetic::Divide => RowOp::Divide,
            Arithmetic::Remainder => RowOp::Remainder,
        };
        let how = if may_overflow(typed) { CHECKED } else { 0 };
        self.binary(op, how, 0, a, b)
    }

    fn negate(&mut self, typed: &Typed, part: &'a Typed, wraps: bool) -> Result<()> {
        self.value(part)?;
        if part.of.is_float() {
            self.at_rows(RowOp::Negate, (part.of == Type::F32).into(), [0; 3]);
            return Ok(());
        }
        let minus = self.operand_argument(Argument::Word(u64::MAX));
        let how = if may_overflow(typed) { CHECKED } else { 0 };
        let from = Operand::Argument as u8 | how;
        self.at_rows(RowOp::Multiply, from, [minus, NONE, 0]);
        if wraps {
            self.at_rows(RowOp::Wrap, value_type(typed.of) as u8, [0; 3]);
        }
        Ok(())
    }

    fn cast(&mut self, to: Type, part: &'a Typed) -> Result<()> {
        self.value(part)?;
        let conversion = match (to, part.of) {
            (Type::F64, Type::F32) => Conversion::Widen,
            (Type::F32, Type::F64) => Conversion::Narrow,
            (Type::F64, Type::F64) | (Type::F32, Type::F32) => return Ok(()),
            (Type::F64, _) => Conversion::ToDouble,
            (Type::F32, _) => Conversion::ToFloat,
            _ => return Ok(()),
        };
        self.at_rows(RowOp::Convert, conversion as u8, [0; 3]);
        Ok(())
    }

    /// Three-valued AND or OR.
    fn logic(&mut self, parts: &'a [Typed], op: RowOp) -> Result<()> {
        let Some((first, others)) = parts.split_first() else {
            let is_and = op == RowOp::And;
            self.at_rows(RowOp::Constant, is_and.into(), [0; 3]);
            return Ok(());
        };
        self.truth(first)?;
        if others.is_empty() {
            return Ok(());
        }
        let (flag, valid) = (self.flag(), self.flag());
        for part in others {
            self.at_rows(RowOp::SaveTruth, 0, [flag, valid, 0]);
            self.truth(part)?;
            self.at_rows(op, 0, [flag, valid, 0]);
        }
        Ok(())
    }

    /// The value of the first condition that is true: the last one is computed first.
    fn case(&mut self, typed: &'a Typed, whens: &'a [Typed], otherwise: &'a Typed) -> Result<()> {
        let (chosen, valid) = (self.flag(), self.flag());
        let of_truth = typed.is_truth();
        let (slot, flag) = match of_truth {
            true => (NONE, self.flag()),
            false => (self.slot(), NONE),
        };
        let keep = |this: &mut Self| match of_truth {
            true => this.at_rows(RowOp::SaveTruth, 0, [flag, valid, 0]),
            false => this.at_rows(RowOp::Save, 0, [slot, valid, 0]),
        };
        let compute = |this: &mut Self, part: &'a Typed| match of_truth {
            true => this.truth(part),
            false => this.value(part),
        };
        compute(self, otherwise)?;
        keep(self);
        for [when, then] in whens.as_chunks::<2>().0.iter().rev() {
            self.truth(when)?;
            // conditions within `then` have flags of their own
            self.at_rows(RowOp::SaveTrue, 0, [chosen, 0, 0]);
            compute(self, then)?;
            match of_truth {
                true => self.at_rows(RowOp::ChooseTruth, 0, [flag, valid, chosen]),
                false => self.at_rows(RowOp::Choose, 0, [slot, valid, chosen]),
            }
            keep(self);
        }
        if !of_truth {
            self.free(slot);
        }
        Ok(())
    }
}

/// The number of a comparison, see [`RowOp::Compare`].
fn comparison_number(comparison: Comparison) -> u16 {
    match comparison {
        Comparison::Equal => 0,
        Comparison::NotEqual => 1,
        Comparison::Less => 2,
        Comparison::LessOrEqual => 3,
        Comparison::Greater => 4,
        Comparison::GreaterOrEqual => 5,
    }
}

/// The number of a part of a date or time, see [`RowOp::DatePart`].
fn part_number(part: DatePart) -> u8 {
    match part {
        DatePart::Year => 0,
        DatePart::Quarter => 1,
        DatePart::Month => 2,
        DatePart::Day => 3,
        DatePart::DayOfWeek => 4,
        DatePart::DayOfYear => 5,
        DatePart::Hour => 6,
        DatePart::Minute => 7,
        DatePart::Second => 8,
    }
}
