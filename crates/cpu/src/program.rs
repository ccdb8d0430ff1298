//! Programs: expressions as a list of instructions, each of which computes a vector from earlier ones.

use std::sync::Arc;

use vectile_encodings::{Selection, VECTOR_LEN};
use vectile_pipeline::{
    Arithmetic, Bounds, Code, Comparison, DatePart, Domain, Error, Expr, KNOWN_DAYS, KeyTable,
    Literal, Lookup, Op, Result, Type, ValueTest,
};

use crate::batch::Batch;
use crate::lookup::{Payload, TextKeys, found};
use crate::primitives;
use crate::reader::Reader;
use crate::vector::{ALL, Kind, Mask, Values, Vector, both};

/// Index of an instruction, and of the vector that it computes.
pub(crate) type Register = usize;

/// Computes vectors of expressions over the columns of a row group. Equal expressions are computed once.
pub(crate) struct Program<'a> {
    columns: &'a [Reader<'a>],
    lookups: &'a [Lookup],
    instructions: Vec<Instruction<'a>>,
    domains: Vec<Domain>,
    /// True if some row may be null.
    nullable: Vec<bool>,
    known: Vec<(Expr, Register)>,
    known_codes: Vec<(Code, Register)>,
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
    Tested(usize, Selection),
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
    /// The code of a key in a table; null if it has none.
    Find(Register, Arc<KeyTable>),
    /// The code of a column of text in a table; null if it has none.
    FindText(TextKeys<'a>),
    /// The value of a code.
    Payload(Register, Payload),
    /// A code for rows for which a boolean is true.
    If(Register, Register),
}

impl<'a> Program<'a> {
    /// An empty program over `columns`, whose keys are looked up in `lookups`.
    pub fn new(columns: &'a [Reader<'a>], lookups: &'a [Lookup]) -> Self {
        Self {
            columns,
            lookups,
            instructions: Vec::new(),
            domains: Vec::new(),
            nullable: Vec::new(),
            known: Vec::new(),
            known_codes: Vec::new(),
        }
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
                fill(vector, *literal);
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
            Expr::Exists(_) => return Err(unsupported("EXISTS over matches")),
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
                let Lookup { column, key_table } = self.lookups.get(*number).ok_or_else(missing)?;
                self.lookup(*column, key_table)?
            }
            Code::Probe(key, table) => {
                let key = self.add(key)?;
                self.find(key, table)?
            }
            Code::Match(_) => return Err(unsupported("matches of duplicate keys")),
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
                let find = Instruction::Find(key, Arc::clone(table));
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
        let register = self.push(Instruction::Tested(column, passed), Domain::BOOL);
        let expr = Expr::Values(column, test.clone());
        self.known.push((expr, register));
    }

    fn column(&self, column: usize) -> Result<&'a Reader<'a>> {
        let missing = || Error::Internal(format!("there is no column {column}"));
        self.columns.get(column).ok_or_else(missing)
    }

    fn push(&mut self, instruction: Instruction<'a>, domain: Domain) -> Register {
        self.nullable.push(self.may_be_null(&instruction));
        self.instructions.push(instruction);
        self.domains.push(domain);
        self.domains.len() - 1
    }

    fn may_be_null(&self, instruction: &Instruction<'a>) -> bool {
        let column = |column: &usize| self.columns.get(*column).is_none_or(Reader::is_nullable);
        let any = |parts: &[Register]| parts.iter().any(|part| self.nullable[*part]);
        match instruction {
            Instruction::Column(of) | Instruction::Tested(of, _) => column(of),
            Instruction::Constant(literal) => matches!(literal, Literal::Null(_)),
            Instruction::IsMissing(_) | Instruction::IsNull(_) => false,
            Instruction::Convert(part)
            | Instruction::Not(part)
            | Instruction::NegateFloat(part)
            | Instruction::Single(part) => any(&[*part]),
            Instruction::Compare(_, a, b) | Instruction::Arithmetic(_, a, b, _) => any(&[*a, *b]),
            Instruction::And(parts) | Instruction::Or(parts) | Instruction::Case(parts) => {
                any(parts)
            }
            Instruction::DatePart(_, date) => {
                any(&[*date]) || !self.domains[*date].bounds.within(KNOWN_DAYS)
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
            Instruction::Column(column) => self.columns[*column].read(batch, out)?,
            Instruction::IsMissing(column) => {
                let valid = self.columns[*column].valid(batch);
                set_bools(out, valid.map_or([0; VECTOR_LEN / 64], complement), None);
            }
            Instruction::Tested(column, passed) => {
                let valid = self.columns[*column].valid(batch);
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
                let Values::Int(days) = &date.values else {
                    return Err(Error::Internal(format!("{part:?} of no integer")));
                };
                out.valid = date.valid;
                if !bounds.within(KNOWN_DAYS) {
                    let known = primitives::known_days(days);
                    out.valid = both(out.valid.as_ref(), Some(&known));
                }
                match &mut out.values {
                    Values::Int(out) => primitives::date_part(*part, days, out),
                    _ => return Err(Error::Internal(format!("register {register}"))),
                }
            }
            Instruction::Find(key, table) => found(&before[*key], table, mask, out)?,
            Instruction::FindText(keys) => keys.find(batch, out)?,
            Instruction::Payload(code, payload) => payload.read(&before[*code], out)?,
            Instruction::If(condition, code) => {
                let condition = &before[*condition];
                let code = &before[*code];
                let is_true = both(Some(&bools(condition)?), condition.valid.as_ref());
                out.valid = both(is_true.as_ref(), code.valid.as_ref());
                primitives::copy(&code.values, &mut out.values)?;
            }
        }
        Ok(())
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

fn complement(mask: Mask) -> Mask {
    mask.map(|word| !word)
}

fn set_bools(out: &mut Vector, mask: Mask, valid: Option<Mask>) {
    out.values = Values::Bool(mask);
    out.valid = valid;
}

/// The values of booleans.
pub(crate) fn bools(vector: &Vector) -> Result<Mask> {
    match &vector.values {
        Values::Bool(mask) => Ok(*mask),
        _ => Err(Error::Internal("a condition that is no boolean".into())),
    }
}

/// Three-valued AND, or OR.
fn logic(parts: &[Register], before: &[Vector], out: &mut Vector, is_and: bool) -> Result<()> {
    let (mut some_true, mut all_true) = ([0; VECTOR_LEN / 64], ALL);
    let (mut some_false, mut all_false) = ([0; VECTOR_LEN / 64], ALL);
    for part in parts {
        let part = &before[*part];
        let values = bools(part)?;
        let valid = part.valid.unwrap_or(ALL);
        for word in 0..VECTOR_LEN / 64 {
            let (yes, no) = (values[word] & valid[word], !values[word] & valid[word]);
            some_true[word] |= yes;
            all_true[word] &= yes;
            some_false[word] |= no;
            all_false[word] &= no;
        }
    }
    let (yes, no) = match is_and {
        true => (all_true, some_false),
        false => (some_true, all_false),
    };
    let is_nullable = parts.iter().any(|part| before[*part].valid.is_some());
    let known = || std::array::from_fn(|word| yes[word] | no[word]);
    set_bools(out, yes, is_nullable.then(known));
    Ok(())
}

/// The value of the first condition that is true.
fn case(parts: &[Register], before: &[Vector], out: &mut Vector) -> Result<()> {
    let Some((last, branches)) = parts.split_last() else {
        return Err(Error::Internal("a CASE without WHEN".into()));
    };
    let default = &before[*last];
    primitives::copy(&default.values, &mut out.values)?;
    let is_nullable = parts.iter().skip(1).step_by(2).chain([last]);
    let is_nullable = is_nullable
        .clone()
        .any(|part| before[*part].valid.is_some());
    let mut valid = default.valid.unwrap_or(ALL);
    // the first condition is the last to be written
    for branch in branches.as_chunks::<2>().0.iter().rev() {
        let [when, then] = branch.map(|part| &before[part]);
        let mut met = bools(when)?;
        if let Some(known) = when.valid {
            met.iter_mut()
                .zip(known)
                .for_each(|(met, known)| *met &= known);
        }
        primitives::merge(&met, &then.values, &mut out.values)?;
        let then_valid = then.valid.unwrap_or(ALL);
        for word in 0..VECTOR_LEN / 64 {
            valid[word] = (valid[word] & !met[word]) | (then_valid[word] & met[word]);
        }
    }
    out.valid = is_nullable.then_some(valid);
    Ok(())
}

/// Sets all rows to a constant.
fn fill(vector: &mut Vector, literal: Literal) {
    vector.valid = match literal {
        Literal::Null(_) => Some([0; VECTOR_LEN / 64]),
        _ => None,
    };
    match (&mut vector.values, literal) {
        (Values::Int(out), Literal::Int(value, _)) => out.fill(value as i64),
        (Values::Wide(out), Literal::Int(value, _)) => out.fill(value),
        (Values::Bool(out), Literal::Int(value, _)) => {
            *out = if value == 0 {
                [0; VECTOR_LEN / 64]
            } else {
                ALL
            };
        }
        (Values::Float(out), Literal::F32(value)) => out.fill(value.into()),
        (Values::Float(out), Literal::F64(value)) => out.fill(value),
        _ => {}
    }
}
