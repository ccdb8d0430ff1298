//! Programs: expressions as a list of instructions, each of which computes a vector from earlier ones.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use vectile_encodings::{Selection, VECTOR_LEN};
use vectile_pipeline::{
    Arithmetic, Bounds, Code, Comparison, DatePart, Domain, Error, Exists, Expr, KeyTable, Literal,
    Lookup, Matches, Op, Result, Type, ValueTest,
};

use crate::batch::Batch;
use crate::logic::{bools, case, complement, is_true, logic, set_bools};
use crate::lookup::{Payload, TextKeys, found};
use crate::matches::{Lists, Pairs, any_match};
use crate::primitives;
use crate::reader::Reader;
use crate::row_group::RowGroup;
use crate::vector::{Kind, Mask, Values, Vector, both};

/// Index of an instruction, and of the vector that it computes.
pub(crate) type Register = usize;

/// Computes vectors of expressions over the columns of a row group. Equal expressions are computed once.
pub(crate) struct Program<'a> {
    row_group: RowGroup<'a>,
    /// A column of which each run is a row. There are no others then.
    runs: Option<(usize, &'a Reader<'a>)>,
    /// The matches that rows have, in the order of a batch's.
    matches: Vec<Current>,
    instructions: Vec<Instruction<'a>>,
    domains: Vec<Domain>,
    /// True if some row may be null.
    nullable: Vec<bool>,
    known: Vec<(Expr, Register)>,
    known_codes: Vec<(Code, Register)>,
}

/// The match in a list of each row.
#[derive(Clone, Copy)]
struct Current {
    /// That of its [`Code::Match`].
    number: usize,
    /// Of the codes.
    bounds: Bounds,
    is_nullable: bool,
}

/// One step of a program.
enum Instruction<'a> {
    /// The values of a column.
    Column(usize),
    /// A constant, which is computed once.
    Constant(Literal),
    /// True if the column is null.
    IsMissing(usize),
    /// True if the column's value passes a test, of which the result is known.
    Tested(usize, Arc<Selection>),
    /// A conversion to the kind of vector of the result.
    Convert(Register),
    Compare(Comparison, Register, Register),
    And(Vec<Register>),
    Or(Vec<Register>),
    Not(Register),
    IsNull(Register),
    /// Arithmetic on two vectors of the result's kind; the result wraps to this type.
    Arithmetic(Arithmetic, Register, Register, Option<Type>),
    /// A float with the opposite sign.
    NegateFloat(Register),
    /// A number, rounded to single precision.
    Single(Register),
    /// Conditions and values in turn, then the default.
    Case(Vec<Register>),
    DatePart(DatePart, Register),
    FloorDivide(i64, Register),
    /// The code of a key in a table; null if it has none. True while most keys of a hash table have none.
    Find(Register, Arc<KeyTable>, Cell<bool>),
    /// The code of a column of text in a table; null if it has none.
    FindText(TextKeys<'a>),
    /// The value of a code.
    Payload(Register, Payload),
    /// A code for rows for which a boolean is true.
    If(Register, Register),
    /// The code of a row's match, by its index among those of a batch.
    Match(usize),
    Exists(Box<AnyMatch<'a>>),
}

/// True for rows with a match that meets a condition.
struct AnyMatch<'a> {
    first: Register,
    count: Register,
    /// Computes the condition for pairs of a row and a match.
    program: Program<'a>,
    condition: Register,
    /// The vectors of the program, and pairs to fill.
    scratch: RefCell<(Vec<Vector>, Pairs)>,
}

impl<'a> Program<'a> {
    /// An empty program over the columns of a row group.
    pub fn new(row_group: RowGroup<'a>) -> Self {
        Self {
            row_group,
            runs: None,
            matches: Vec::new(),
            instructions: Vec::new(),
            domains: Vec::new(),
            nullable: Vec::new(),
            known: Vec::new(),
            known_codes: Vec::new(),
        }
    }

    /// A program over the runs of a column, which `reader` reads.
    pub fn over_runs(mut self, column: usize, reader: &'a Reader<'a>) -> Self {
        self.runs = Some((column, reader));
        self
    }

    /// A program over rows with a further match each, of this number. `is_outer` if some may have none.
    pub fn with_matches(mut self, number: usize, of: &Matches, is_outer: bool) -> Self {
        let last = of.offset.bounds().map(|(_, last)| last);
        let last = last.map(|last| last.saturating_add(of.max_count.into()));
        let bounds = Bounds(0, last.unwrap_or(u32::MAX.into()));
        self.matches.push(Current {
            number,
            bounds: bounds.clamped(Bounds::of(Type::U32)),
            is_nullable: is_outer,
        });
        self
    }

    /// The row group that is read.
    pub fn row_group(&self) -> RowGroup<'a> {
        self.row_group
    }

    /// True if nothing is computed.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Type and bounds of a vector.
    pub fn domain(&self, register: Register) -> Domain {
        self.domains[register]
    }

    /// True if some value of a vector may be null.
    pub fn is_nullable(&self, register: Register) -> bool {
        self.nullable[register]
    }

    /// Vectors for the results of [`run`](Self::run).
    pub fn vectors(&self) -> Vec<Vector> {
        let kinds = self.domains.iter().map(|domain| Kind::of(*domain));
        let mut vectors: Vec<Vector> = kinds.map(Vector::new).collect();
        for (vector, instruction) in vectors.iter_mut().zip(&self.instructions) {
            if let Instruction::Constant(literal) = instruction {
                vector.fill(*literal);
            }
        }
        vectors
    }

    /// Adds an expression, and returns the register of its value.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if no instruction computes it, or it might fail for some values.
    pub fn add(&mut self, expr: &Expr) -> Result<Register> {
        if let Some((_, register)) = self.known.iter().find(|(known, _)| known == expr) {
            return Ok(*register);
        }
        let register = match expr {
            Expr::Column(column) => {
                let domain = self.column(*column)?.domain()?;
                self.push(Instruction::Column(*column), domain)
            }
            Expr::Literal(literal) => self.literal(*literal),
            Expr::Op(op, operands) => self.op(*op, operands)?,
            Expr::Values(..) => return Err(unsupported("a test of values")),
            Expr::Mapped(..) => return Err(unsupported("a function of text")),
            Expr::Payload(code, values) => {
                let code = self.code(code)?;
                let payload = Payload::new(values)?;
                let domain = payload.domain();
                self.push(Instruction::Payload(code, payload), domain)
            }
            Expr::Unmatched(code) => {
                let code = self.code(code)?;
                self.push(Instruction::IsNull(code), Domain::BOOL)
            }
            Expr::Id(code) => self.code(code)?,
            Expr::Exists(some) => {
                let any_match = self.any_match(some)?;
                self.push(Instruction::Exists(Box::new(any_match)), Domain::BOOL)
            }
            Expr::Parameter(..) | Expr::DenseId(_) | Expr::RowNumber => {
                return Err(Error::Internal(format!("{expr:?} in a program")));
            }
        };
        self.known.push((expr.clone(), register));
        Ok(register)
    }

    /// Adds a code, which is null if there is none.
    fn code(&mut self, code: &Code) -> Result<Register> {
        let mut known = self.known_codes.iter();
        if let Some((_, register)) = known.find(|(known, _)| known == code) {
            return Ok(*register);
        }
        let register = match code {
            Code::Lookup(number) => {
                let missing = || Error::Internal(format!("there is no lookup {number}"));
                let Lookup { column, key_table } =
                    self.row_group.lookups.get(*number).ok_or_else(missing)?;
                self.lookup(*column, key_table)?
            }
            Code::Probe(key, table) => {
                let key = self.add(key)?;
                self.find(key, table)?
            }
            Code::Match(number) => {
                let index = self.matches.iter().position(|of| of.number == *number);
                let missing = || Error::Internal(format!("there are no matches {number}"));
                let index = index.ok_or_else(missing)?;
                let (of, bounds) = (Type::U32, self.matches[index].bounds);
                self.push(Instruction::Match(index), Domain { of, bounds })
            }
            Code::Listed(code, codes) => {
                let code = self.code(code)?;
                let payload = Payload::new(codes)?;
                let domain = payload.domain();
                self.push(Instruction::Payload(code, payload), domain)
            }
            Code::If(condition, code) => {
                let (condition, code) = (self.add(condition)?, self.code(code)?);
                let domain = self.domain(code);
                self.push(Instruction::If(condition, code), domain)
            }
        };
        self.known_codes.push((code.clone(), register));
        Ok(register)
    }

    /// Plans EXISTS over a row's matches.
    fn any_match(&mut self, some: &Exists) -> Result<AnyMatch<'a>> {
        if self.matches.iter().any(|of| of.number == some.number) {
            let reason = format!("matches {} that are others as well", some.number);
            return Err(Error::Internal(reason));
        }
        let [first, count] = some.matches.list();
        let (first, count) = (self.add(&first)?, self.add(&count)?);
        let mut program = Self {
            matches: self.matches.clone(),
            ..Self::new(self.row_group)
        };
        program = program.with_matches(some.number, &some.matches, false);
        for (known, register) in &self.known {
            if let Instruction::Tested(column, passed) = &self.instructions[*register]
                && some.condition.any(&|part| part == known)
            {
                let tested = Instruction::Tested(*column, Arc::clone(passed));
                let register = program.push(tested, Domain::BOOL);
                program.known.push((known.clone(), register));
            }
        }
        let condition = program.add(&some.condition)?;
        if program.domain(condition).of != Type::Bool {
            let reason = format!("a condition of type {:?}", program.domain(condition).of);
            return Err(Error::Internal(reason));
        }
        Ok(AnyMatch {
            first,
            count,
            condition,
            scratch: RefCell::new((program.vectors(), Pairs::new(self.matches.len()))),
            program,
        })
    }

    /// The code of a column's value in a table.
    fn lookup(&mut self, column: usize, table: &'a Arc<KeyTable>) -> Result<Register> {
        let reader = self.column(column)?;
        match reader.is_text() {
            true => {
                let keys = TextKeys::new(reader, table)?;
                Ok(self.push(Instruction::FindText(keys), codes_of(table)))
            }
            false => {
                let key = self.key(column)?;
                self.find(key, table)
            }
        }
    }

    /// A column that is looked up. Its bounds do not matter if all values of its type fit 64 bits: they may have to be
    /// decoded.
    fn key(&mut self, column: usize) -> Result<Register> {
        let expr = Expr::Column(column);
        match self.column(column)?.integer_type() {
            Some(of) if Bounds::of(of).within(Bounds::of(Type::I64)) && !self.knows(&expr) => {
                let bounds = Bounds::of(of);
                Ok(self.push(Instruction::Column(column), Domain { of, bounds }))
            }
            _ => self.add(&expr),
        }
    }

    fn find(&mut self, key: Register, table: &Arc<KeyTable>) -> Result<Register> {
        match Kind::of(self.domain(key)) {
            Kind::Int => {
                let find = Instruction::Find(key, Arc::clone(table), Cell::new(true));
                Ok(self.push(find, codes_of(table)))
            }
            _ => Err(unsupported("keys of more than 64 bits")),
        }
    }

    /// True if the expression was added.
    pub fn knows(&self, expr: &Expr) -> bool {
        self.known.iter().any(|(known, _)| known == expr)
    }

    /// Adds a test whose result for the rows of interest is `passed`.
    pub fn add_test(&mut self, column: usize, test: &ValueTest, passed: Selection) {
        let register = self.push(Instruction::Tested(column, Arc::new(passed)), Domain::BOOL);
        let expr = Expr::Values(column, test.clone());
        self.known.push((expr, register));
    }

    fn column(&self, column: usize) -> Result<&'a Reader<'a>> {
        let reader = match self.runs {
            Some((of, reader)) => Some(reader).filter(|_| of == column),
            None => self.row_group.readers.get(column),
        };
        reader.ok_or_else(|| Error::Internal(format!("there is no column {column}")))
    }

    fn push(&mut self, instruction: Instruction<'a>, domain: Domain) -> Register {
        self.nullable.push(self.may_be_null(&instruction));
        self.instructions.push(instruction);
        self.domains.push(domain);
        self.domains.len() - 1
    }

    fn may_be_null(&self, instruction: &Instruction<'a>) -> bool {
        let column = |column: &usize| self.column(*column).map_or(true, Reader::is_nullable);
        let any = |parts: &[Register]| parts.iter().any(|part| self.nullable[*part]);
        match instruction {
            Instruction::Column(of) | Instruction::Tested(of, _) => column(of),
            Instruction::Constant(literal) => matches!(literal, Literal::Null(_)),
            Instruction::IsMissing(_) | Instruction::IsNull(_) | Instruction::Exists(_) => false,
            Instruction::Match(index) => self.matches[*index].is_nullable,
            Instruction::Convert(part)
            | Instruction::Not(part)
            | Instruction::NegateFloat(part)
            | Instruction::FloorDivide(_, part)
            | Instruction::Single(part) => any(&[*part]),
            Instruction::Compare(_, a, b) | Instruction::Arithmetic(_, a, b, _) => any(&[*a, *b]),
            Instruction::And(parts) | Instruction::Or(parts) | Instruction::Case(parts) => {
                any(parts)
            }
            Instruction::DatePart(part, date) => {
                let known = Bounds::known(*part);
                any(&[*date]) || !self.domains[*date].bounds.within(known)
            }
            Instruction::Find(..) | Instruction::FindText(_) | Instruction::If(..) => true,
            Instruction::Payload(code, payload) => any(&[*code]) || payload.is_nullable(),
        }
    }

    fn literal(&mut self, literal: Literal) -> Register {
        let of = literal.data_type();
        let bounds = match literal {
            Literal::Int(value, _) => Bounds(value, value),
            _ => Bounds(0, 0),
        };
        let domain = match of {
            Type::Bool => Domain::BOOL,
            _ => Domain { of, bounds },
        };
        self.push(Instruction::Constant(literal), domain)
    }

    fn op(&mut self, op: Op, operands: &[Expr]) -> Result<Register> {
        if !op.takes(operands.len()) {
            let reason = format!("{op:?} of {} operands", operands.len());
            return Err(Error::Internal(reason));
        }
        if let (Op::IsNull, [Expr::Column(column)]) = (op, operands) {
            // of any type: its values are not read
            self.column(*column)?;
            return Ok(self.push(Instruction::IsMissing(*column), Domain::BOOL));
        }
        let registers = operands.iter().map(|operand| self.add(operand));
        let registers: Vec<Register> = registers.collect::<Result<_>>()?;
        let domain_of = |register: Register| self.domains[register];
        match (op, &registers[..]) {
            (Op::And, _) => Ok(self.push(Instruction::And(registers), Domain::BOOL)),
            (Op::Or, _) => Ok(self.push(Instruction::Or(registers), Domain::BOOL)),
            (Op::Not, [part]) => Ok(self.push(Instruction::Not(*part), Domain::BOOL)),
            (Op::IsNull, [part]) => Ok(self.push(Instruction::IsNull(*part), Domain::BOOL)),
            (Op::Compare(comparison), [a, b]) => {
                domain_of(*a).expect_type(domain_of(*b))?;
                let (a, b) = self.of_one_kind(*a, *b);
                let compare = Instruction::Compare(comparison, a, b);
                Ok(self.push(compare, Domain::BOOL))
            }
            (Op::Arithmetic(operation), [a, b]) => {
                let constant = match operands.get(1) {
                    Some(Expr::Literal(Literal::Int(value, _))) => Some(*value),
                    _ => None,
                };
                self.arithmetic(operation, *a, *b, constant)
            }
            (Op::Negate, [part]) => {
                let domain = domain_of(*part);
                if domain.of.is_float() {
                    return Ok(self.push(Instruction::NegateFloat(*part), domain));
                }
                let zero = self.literal(Literal::Int(0, domain.of));
                self.arithmetic(Arithmetic::Subtract, zero, *part, None)
            }
            (Op::Cast(to), [part]) => self.cast(*part, to),
            (Op::Case, _) => self.case(registers),
            (Op::DatePart(part), [date]) => {
                let domain = domain_of(*date);
                match Kind::of(domain) {
                    Kind::Int => {
                        let part_of = Instruction::DatePart(part, *date);
                        Ok(self.push(part_of, domain.of_part(part)))
                    }
                    _ => Err(Error::Internal(format!("{part:?} of {:?}", domain.of))),
                }
            }
            (Op::FloorDivide(divisor), [part]) => {
                let domain = domain_of(*part).of_floor_division(divisor)?;
                match Kind::of(domain_of(*part)) {
                    Kind::Int => Ok(self.push(Instruction::FloorDivide(divisor, *part), domain)),
                    _ => Err(unsupported("unsigned integers of 64 bits rounded down")),
                }
            }
            (Op::Average | Op::Rounded(_), _) => Err(unsupported("a computation over groups")),
            _ => Err(Error::Internal(format!("{op:?} has no instruction"))),
        }
    }

    fn arithmetic(
        &mut self,
        operation: Arithmetic,
        a: Register,
        b: Register,
        constant: Option<i128>,
    ) -> Result<Register> {
        let (of_a, of_b) = (self.domain(a), self.domain(b));
        let (domain, wraps) = Domain::of_arithmetic(operation, of_a, of_b, constant)?;
        if domain.of.is_float() {
            let float = Instruction::Arithmetic(operation, a, b, None);
            let result = self.push(float, domain);
            return Ok(match domain.of {
                Type::F32 => self.push(Instruction::Single(result), domain),
                _ => result,
            });
        }
        // an operand may take more bits than the result
        let is_wide = |domain| Kind::of(domain) == Kind::Wide;
        if wraps && [of_a, of_b, domain].into_iter().any(is_wide) {
            return Err(unsupported("unsigned integers of 64 bits that may wrap"));
        }
        let is_wide = [of_a, of_b, domain].into_iter().any(is_wide);
        let kind = if is_wide { Kind::Wide } else { Kind::Int };
        let (a, b) = (self.convert(a, kind), self.convert(b, kind));
        let wraps = wraps.then_some(domain.of);
        if Kind::of(domain) == kind {
            return Ok(self.push(Instruction::Arithmetic(operation, a, b, wraps), domain));
        }
        let of_type = Domain {
            of: Type::I128,
            bounds: Bounds::of(Type::I128),
        };
        let wide = self.push(Instruction::Arithmetic(operation, a, b, wraps), of_type);
        Ok(self.push(Instruction::Convert(wide), domain))
    }

    fn cast(&mut self, part: Register, to: Type) -> Result<Register> {
        let from = self.domain(part);
        let domain = from.cast(to)?;
        if from.of == to {
            return Ok(part);
        }
        Ok(match domain.of {
            // rounded once, also from integers
            Type::F32 => self.push(Instruction::Single(part), domain),
            _ => self.push(Instruction::Convert(part), domain),
        })
    }

    /// Two vectors in the same kind.
    fn of_one_kind(&mut self, a: Register, b: Register) -> (Register, Register) {
        let kinds = [a, b].map(|register| Kind::of(self.domain(register)));
        match kinds[0] == kinds[1] {
            true => (a, b),
            false => (self.convert(a, Kind::Wide), self.convert(b, Kind::Wide)),
        }
    }

    /// The vector of an integer in another kind.
    fn convert(&mut self, register: Register, kind: Kind) -> Register {
        let domain = self.domain(register);
        if Kind::of(domain) == kind {
            return register;
        }
        let bounds = Bounds::of(Type::I128);
        self.push(Instruction::Convert(register), Domain { bounds, ..domain })
    }

    fn case(&mut self, mut registers: Vec<Register>) -> Result<Register> {
        if registers.len().is_multiple_of(2) {
            let first = registers.get(1).map(|first| self.domain(*first).of);
            let of = first.ok_or_else(|| Error::Internal("a CASE without WHEN".into()))?;
            registers.push(self.literal(Literal::Null(of)));
        }
        let is_value = |index: usize| !index.is_multiple_of(2) || index + 1 == registers.len();
        let values = (0..registers.len()).filter(|index| is_value(*index));
        let values: Vec<usize> = values.collect();
        let mut domain = self.domain(registers[values[0]]);
        for index in &values {
            let other = self.domain(registers[*index]);
            domain.expect_type(other)?;
            domain.bounds = domain.bounds.union(other.bounds);
        }
        for index in values {
            registers[index] = match Kind::of(domain) {
                Kind::Wide => self.convert(registers[index], Kind::Wide),
                _ => registers[index],
            };
        }
        Ok(self.push(Instruction::Case(registers), domain))
    }

    /// Computes all instructions for the rows of a batch. `vectors` is from [`vectors`](Self::vectors). Only values of the
    /// rows of `mask` are read afterwards.
    ///
    /// # Errors
    ///
    /// Errors of decoding columns.
    pub fn run(&self, batch: Batch<'_>, mask: &Mask, vectors: &mut [Vector]) -> Result<()> {
        for (register, instruction) in self.instructions.iter().enumerate() {
            let (before, rest) = vectors.split_at_mut(register);
            let Some(out) = rest.first_mut() else {
                return Err(Error::Internal(format!("no vector {register}")));
            };
            self.step(instruction, register, (batch, mask), before, out)?;
        }
        Ok(())
    }

    fn step(
        &self,
        instruction: &Instruction<'a>,
        register: Register,
        (batch, mask): (Batch<'_>, &Mask),
        before: &[Vector],
        out: &mut Vector,
    ) -> Result<()> {
        match instruction {
            Instruction::Constant(_) => {}
            Instruction::Column(column) => self.column(*column)?.read(batch, out)?,
            Instruction::IsMissing(column) => {
                let valid = self.column(*column)?.valid(batch);
                set_bools(out, valid.map_or([0; VECTOR_LEN / 64], complement), None);
            }
            Instruction::Tested(column, passed) => {
                let valid = self.column(*column)?.valid(batch);
                set_bools(out, batch.mask(|vector| passed.mask(vector)), valid);
            }
            Instruction::Convert(part) => {
                out.valid = before[*part].valid;
                primitives::convert(&before[*part].values, &mut out.values)?;
            }
            Instruction::Compare(comparison, a, b) => {
                let (a, b) = (&before[*a], &before[*b]);
                let mask = primitives::compare(*comparison, &a.values, &b.values)?;
                set_bools(out, mask, both(a.valid.as_ref(), b.valid.as_ref()));
            }
            Instruction::And(parts) => logic(parts, before, out, true)?,
            Instruction::Or(parts) => logic(parts, before, out, false)?,
            Instruction::Not(part) => {
                let part = &before[*part];
                set_bools(out, complement(bools(part)?), part.valid);
            }
            Instruction::IsNull(part) => {
                let valid = before[*part].valid;
                set_bools(out, valid.map_or([0; VECTOR_LEN / 64], complement), None);
            }
            Instruction::Arithmetic(operation, a, b, wraps) => {
                let (a, b) = (&before[*a], &before[*b]);
                out.valid = both(a.valid.as_ref(), b.valid.as_ref());
                primitives::arithmetic(*operation, &a.values, &b.values, &mut out.values)?;
                if let (Some(of), Values::Int(out)) = (wraps, &mut out.values) {
                    primitives::wrap(*of, out);
                }
            }
            Instruction::NegateFloat(part) => {
                let part = &before[*part];
                out.valid = part.valid;
                if let (Values::Float(part), Values::Float(out)) = (&part.values, &mut out.values) {
                    out.iter_mut()
                        .zip(part.iter())
                        .for_each(|(out, x)| *out = -x);
                }
            }
            Instruction::Single(part) => {
                let part = &before[*part];
                out.valid = part.valid;
                primitives::single(&part.values, &mut out.values)?;
            }
            Instruction::Case(parts) => case(parts, before, out)?,
            Instruction::DatePart(part, date) => {
                let bounds = self.domains[*date].bounds;
                let date = &before[*date];
                let Values::Int(times) = &date.values else {
                    return Err(Error::Internal(format!("{part:?} of no integer")));
                };
                out.valid = date.valid;
                if !bounds.within(Bounds::known(*part)) {
                    let known = primitives::known_times(*part, times);
                    out.valid = both(out.valid.as_ref(), Some(&known));
                }
                match &mut out.values {
                    Values::Int(out) => primitives::date_part(*part, times, out),
                    _ => return Err(Error::Internal(format!("register {register}"))),
                }
            }
            Instruction::FloorDivide(divisor, part) => {
                let part = &before[*part];
                out.valid = part.valid;
                match (&part.values, &mut out.values) {
                    (Values::Int(values), Values::Int(out)) => {
                        primitives::floor_divide(*divisor, values, out);
                    }
                    _ => return Err(Error::Internal(format!("register {register}"))),
                }
            }
            Instruction::Find(key, table, is_filtered) => {
                found(&before[*key], table, is_filtered, mask, out)?;
            }
            Instruction::FindText(keys) => keys.find(batch, out)?,
            Instruction::Payload(code, payload) => payload.read(&before[*code], out)?,
            Instruction::If(condition, code) => {
                let condition = &before[*condition];
                let code = &before[*code];
                out.valid = both(Some(&is_true(condition)?), code.valid.as_ref());
                primitives::copy(&code.values, &mut out.values)?;
            }
            Instruction::Match(index) => {
                let matched = batch.matches().get(*index);
                let missing = || Error::Internal(format!("a batch without matches {index}"));
                let matched = matched.ok_or_else(missing)?;
                match &mut out.values {
                    Values::Int(out) => out.copy_from_slice(&matched.codes[..]),
                    _ => return Err(Error::Internal(format!("register {register}"))),
                }
                out.valid = matched.valid;
            }
            Instruction::Exists(any) => set_bools(out, any.run(batch, mask, before)?, None),
        }
        Ok(())
    }
}

impl AnyMatch<'_> {
    /// The rows of a batch's `mask` with a match that meets the condition.
    fn run(&self, batch: Batch<'_>, mask: &Mask, before: &[Vector]) -> Result<Mask> {
        let lists = Lists::new(&before[self.first], &before[self.count], mask)?;
        let scratch = self.scratch.try_borrow_mut();
        let mut scratch =
            scratch.map_err(|_| Error::Internal("a condition within itself".into()))?;
        let (vectors, pairs) = &mut *scratch;
        any_match(batch, &lists, pairs, &mut |batch, mask| {
            (self.program.row_group.check)()?;
            self.program.run(batch, mask, vectors)?;
            let met = is_true(&vectors[self.condition])?;
            Ok(std::array::from_fn(|word| mask[word] & met[word]))
        })
    }
}

/// The domain of the codes of a table.
fn codes_of(table: &KeyTable) -> Domain {
    let last = table.count().saturating_sub(1);
    Domain {
        of: Type::U32,
        bounds: Bounds(0, last.into()),
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!("{what}, in a program"))
}
