//! Plans expressions: types, bounds and validity of their values; rejects those that have no kernel.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::columns::has_lookups;
use super::plan::{ListPlan, Node, Typed, Valid};
use super::planner::Planner;
use super::task::DictionaryTest;
use crate::error::{Error, Result};
use vectile_pipeline::join::code_bytes;
use vectile_pipeline::{
    Arithmetic, Bounds, Code, Domain, Exists, Expr, KeyTable, Literal, Op, PayloadColumn, Type,
    ValueTest,
};

impl Typed {
    fn new(node: Node, domain: Domain, valid: Option<Valid>) -> Self {
        let Domain { of, bounds } = domain;
        Self {
            node,
            of,
            bounds,
            valid,
        }
    }

    /// An operator that cannot wrap around.
    fn op(op: Op, operands: Vec<Typed>, domain: Domain, valid: Option<Valid>) -> Self {
        let node = Node::Op {
            op,
            operands,
            wraps: false,
        };
        Self::new(node, domain, valid)
    }

    fn boolean(node: Node, valid: Option<Valid>) -> Self {
        Self::new(node, Domain::BOOL, valid)
    }

    fn domain(&self) -> Domain {
        let Self { of, bounds, .. } = *self;
        Domain { of, bounds }
    }

    /// The C++ type it is computed in.
    pub fn name(&self) -> &'static str {
        match self.of {
            Type::F32 => "float",
            Type::F64 => "double",
            _ => self.bounds.name(),
        }
    }
}

impl Planner<'_> {
    /// A new validity flag, if the value may be null.
    fn named(&mut self, is_nullable: bool) -> Option<Valid> {
        is_nullable.then(|| {
            self.names += 1;
            Valid::Named(self.names)
        })
    }

    /// Plans an expression.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it has no kernel, for example if decimals may overflow; [`Error::Internal`] if types
    /// do not fit each other.
    pub fn typed(&mut self, expr: &Expr) -> Result<Typed> {
        Ok(match expr {
            Expr::Column(column) => {
                let of = self.type_of(*column)?;
                let valid = self.columns[*column].traits.nullable();
                let valid = valid.then_some(Valid::Column(*column));
                let bounds = self.columns[*column].bounds();
                Typed::new(Node::Column(*column), Domain { of, bounds }, valid)
            }
            Expr::Literal(literal) => self.literal(*literal),
            Expr::Parameter(..) => {
                let reason = "a constant that is not known";
                return Err(Error::Internal(reason.into()));
            }
            Expr::Op(op, operands) => self.operation(*op, operands, expr)?,
            Expr::Payload(code, payload) => match code {
                Code::Lookup(lookup) => self.payload(*lookup, payload)?,
                _ => self.once(expr, |this| this.payload_of(code, payload))?,
            },
            Expr::Id(code) => self.code(code)?,
            Expr::Unmatched(code) => {
                let code = self.code(code)?;
                Typed::op(Op::IsNull, vec![code], Domain::BOOL, None)
            }
            Expr::Exists(some) => self.once(expr, |this| this.exists(some))?,
            Expr::DenseId(_) | Expr::RowNumber => {
                let reason = "numbers of values or rows within an expression";
                return Err(Error::Internal(reason.into()));
            }
            Expr::Mapped(..) => {
                return Err(Error::Internal("a function of text in a kernel".into()));
            }
            Expr::Values(column, test) => self.once(expr, |this| this.value_test(*column, test))?,
        })
    }

    /// Plans an operator.
    fn operation(&mut self, op: Op, operands: &[Expr], expr: &Expr) -> Result<Typed> {
        match (op, operands) {
            _ if !op.takes(operands.len()) => {
                let reason = format!("{op:?} of {} operands", operands.len());
                Err(Error::Internal(reason))
            }
            (Op::And | Op::Or, _) => self.logic(op, operands),
            (Op::Case, _) => self.case(operands),
            // of any type: its values are not read
            (Op::IsNull, [Expr::Column(column)]) => {
                Ok(match self.columns[*column].traits.nullable() {
                    true => Typed::boolean(Node::IsMissing(*column), None),
                    false => Typed::boolean(Node::Bool(false), None),
                })
            }
            (Op::Arithmetic(operation), [a, b]) => self.arithmetic(operation, a, b, expr),
            (Op::Rounded(most), [part]) => self.rounded(part, most),
            (_, [part]) => {
                let part = self.typed(part)?;
                self.unary(op, part)
            }
            (_, [a, b]) => {
                let (a, b) = (self.typed(a)?, self.typed(b)?);
                self.binary(op, a, b)
            }
            _ => Err(Error::Internal(format!("{op:?} has no plan"))),
        }
    }

    /// Plans an operator on one value.
    fn unary(&mut self, op: Op, part: Typed) -> Result<Typed> {
        let valid = part.valid;
        Ok(match op {
            Op::Not => Typed::op(op, vec![part], Domain::BOOL, valid),
            Op::IsNull => Typed::op(op, vec![part], Domain::BOOL, None),
            Op::Negate => {
                let (of, bounds) = (part.of, Bounds(0, 0));
                let zero = Domain { of, bounds };
                let (domain, wraps) =
                    Domain::of_arithmetic(Arithmetic::Subtract, zero, part.domain(), None)?;
                let valid = self.named(valid.is_some());
                let operands = vec![part];
                let node = Node::Op {
                    op,
                    operands,
                    wraps,
                };
                Typed::new(node, domain, valid)
            }
            Op::Cast(to) if to == part.of => part,
            Op::Cast(to) => {
                let domain = part.domain().cast(to)?;
                Typed::op(op, vec![part], domain, valid)
            }
            Op::DatePart(date_part) => {
                let is_checked = !part.bounds.within(Bounds::known(date_part));
                let valid = self.named(valid.is_some() || is_checked);
                let domain = part.domain().of_part(date_part);
                Typed::op(op, vec![part], domain, valid)
            }
            Op::FloorDivide(divisor) => {
                let domain = part.domain().of_floor_division(divisor)?;
                Typed::op(op, vec![part], domain, valid)
            }
            _ => return Err(Error::Internal(format!("{op:?} of one value"))),
        })
    }

    /// Plans an operator on two values.
    fn binary(&mut self, op: Op, a: Typed, b: Typed) -> Result<Typed> {
        match op {
            Op::Compare(_) => {
                a.domain().expect_type(b.domain())?;
                let valid = self.named(a.valid.is_some() || b.valid.is_some());
                Ok(Typed::op(op, vec![a, b], Domain::BOOL, valid))
            }
            Op::Average => {
                let domain = Domain::of_average(a.domain(), b.domain())?;
                Ok(Typed::op(op, vec![a, b], domain, self.named(true)))
            }
            _ => Err(Error::Internal(format!("{op:?} of two values"))),
        }
    }

    /// Plans arithmetic, unless the same was planned before in this loop.
    fn arithmetic(
        &mut self,
        operation: Arithmetic,
        a: &Expr,
        b: &Expr,
        expr: &Expr,
    ) -> Result<Typed> {
        // values of lookups may have no name
        let has_name = !has_lookups(expr);
        let same = self.computed.iter().find(|(known, _)| known == expr);
        if let Some((_, value)) = same.filter(|_| has_name) {
            return Ok(value.clone());
        }
        let constant = match b {
            Expr::Literal(Literal::Int(value, _)) => Some(*value),
            _ => None,
        };
        let (a, b) = (self.typed(a)?, self.typed(b)?);
        let (domain, wraps) = Domain::of_arithmetic(operation, a.domain(), b.domain(), constant)?;
        let valid = self.named(a.valid.is_some() || b.valid.is_some());
        let node = Node::Op {
            op: Op::Arithmetic(operation),
            operands: vec![a, b],
            wraps,
        };
        let value = Typed::new(node, domain, valid);
        if has_name {
            self.computed.push((expr.clone(), value.clone()));
        }
        Ok(value)
    }

    /// Plans a double that is rounded to an integer of at most this magnitude.
    fn rounded(&mut self, part: &Expr, most: i128) -> Result<Typed> {
        let largest = self.largest(part)?.ceil();
        // as a double, the limit itself may be rounded up
        if largest.is_nan() || largest >= most as f64 {
            return Err(Error::Unsupported("a double that may not fit".into()));
        }
        let part = self.typed(part)?;
        let valid = part.valid;
        let bounds = Bounds::rounded(-(largest as i128), largest as i128);
        // kernels do not depend on the exact bound
        let op = Op::Rounded(bounds.1);
        let of = Type::I128;
        Ok(Typed::op(op, vec![part], Domain { of, bounds }, valid))
    }

    /// An upper bound of a double's magnitude; infinity if none is known.
    fn largest(&mut self, expr: &Expr) -> Result<f64> {
        // each operation rounds
        let slack = 1.0 + 1e-12;
        Ok(match expr {
            Expr::Literal(Literal::F64(value)) => value.abs(),
            Expr::Op(op, operands) => match (op, &operands[..]) {
                (Op::Negate, [part]) => self.largest(part)?,
                (Op::Cast(Type::F64), [part]) => {
                    let part = self.typed(part)?;
                    let Bounds(low, high) = part.bounds;
                    match part.of.is_float() {
                        true => f64::INFINITY,
                        false => low.unsigned_abs().max(high.unsigned_abs()) as f64,
                    }
                }
                (Op::Arithmetic(operation), [a, b]) => {
                    let divisor = match (operation, b) {
                        (Arithmetic::Divide, Expr::Literal(Literal::F64(value))) => value.abs(),
                        _ => 0.0,
                    };
                    let (a, b) = (self.largest(a)?, self.largest(b)?);
                    slack
                        * match operation {
                            Arithmetic::Add | Arithmetic::Subtract => a + b,
                            Arithmetic::Multiply => a * b,
                            Arithmetic::Divide if divisor > 0.0 => a / divisor,
                            Arithmetic::Divide | Arithmetic::Remainder => f64::INFINITY,
                        }
                }
                _ => f64::INFINITY,
            },
            _ => f64::INFINITY,
        })
    }

    /// Exact bounds of an integer, if known. Kernels must not depend on them: they are not rounded out.
    pub fn exact_bounds(&self, expr: &Expr) -> Option<Bounds> {
        Some(match expr {
            Expr::Column(column) => {
                let (low, high) = self.traits[*column].bounds?;
                Bounds(low, high)
            }
            Expr::Literal(Literal::Int(value, _)) => Bounds(*value, *value),
            Expr::Id(Code::Probe(_, codes)) => {
                Bounds(0, i128::from(codes.count().saturating_sub(1)))
            }
            Expr::Op(op, operands) => match (op, &operands[..]) {
                (Op::Cast(_), [part]) => self.exact_bounds(part)?,
                (Op::DatePart(part), [date]) => {
                    let times = self.exact_bounds(date)?;
                    times.clamped(Bounds::known(*part)).of_part(*part)
                }
                (Op::FloorDivide(divisor), [part]) => {
                    self.exact_bounds(part)?.floor_divided(*divisor)
                }
                (Op::Arithmetic(Arithmetic::Remainder), [part, divisor]) => {
                    let divisor = self.exact_bounds(divisor)?;
                    self.exact_bounds(part)?
                        .remainders(divisor.1.max(divisor.0.saturating_neg()))
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    pub fn type_of(&self, column: usize) -> Result<Type> {
        let data_type = &self.pipeline.columns[column];
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        Type::of(data_type).ok_or_else(unsupported)
    }

    fn literal(&mut self, literal: Literal) -> Typed {
        let (value, bounds) = match literal {
            Literal::Null(of) => {
                let bounds = Bounds(0, 0);
                return Typed::new(Node::Null, Domain { of, bounds }, Some(Valid::Never));
            }
            Literal::Int(value, Type::Bool) => return Typed::boolean(Node::Bool(value != 0), None),
            Literal::Int(value, _) => (value, Bounds::literal(value)),
            Literal::F32(value) => (value.to_bits().into(), Bounds(0, 0)),
            Literal::F64(value) => (value.to_bits().into(), Bounds(0, 0)),
        };
        let node = Node::Constant(self.constant(value));
        let of = literal.data_type();
        Typed::new(node, Domain { of, bounds }, None)
    }

    /// Three-valued AND or OR.
    fn logic(&mut self, op: Op, parts: &[Expr]) -> Result<Typed> {
        let mut typed = vec![];
        let mut valid = None;
        for part in parts {
            let part = self.typed(part)?;
            valid = match typed.is_empty() {
                true => part.valid,
                false => self.named(valid.is_some() || part.valid.is_some()),
            };
            typed.push(part);
        }
        Ok(Typed::op(op, typed, Domain::BOOL, valid))
    }

    fn case(&mut self, operands: &[Expr]) -> Result<Typed> {
        let (whens, otherwise) = operands.as_chunks::<2>();
        let mut typed = vec![];
        for branch in whens.as_flattened() {
            typed.push(self.typed(branch)?);
        }
        let of = typed.get(1).map(|value| value.of);
        let of = of.ok_or_else(|| Error::Internal("a CASE without WHEN".into()))?;
        let last = match otherwise {
            [expr] => self.typed(expr)?,
            _ => self.literal(Literal::Null(of)),
        };
        let (mut bounds, mut nullable) = (last.bounds, last.valid.is_some());
        for [_, value] in typed.as_chunks::<2>().0 {
            value.domain().expect_type(last.domain())?;
            bounds = bounds.union(value.bounds);
            nullable |= value.valid.is_some();
        }
        let valid = self.named(nullable);
        typed.push(last);
        Ok(Typed::op(Op::Case, typed, Domain { of, bounds }, valid))
    }

    /// Plans the payload of a row's key.
    fn payload(&mut self, lookup: usize, payload: &Arc<PayloadColumn>) -> Result<Typed> {
        let count = self.codes_of(lookup)?.count() as usize;
        if payload.len() != count {
            let reason = format!("{} values for {count} codes", payload.len());
            return Err(Error::Internal(reason));
        }
        let domain = Domain::of_payload(payload)?;
        let node = Node::Payload {
            lookup,
            payload: self.bindings.payload(payload),
            nullable: payload.is_nullable(),
        };
        let valid = self.named(true);
        Ok(Typed::new(node, domain, valid))
    }

    /// Plans a test of a column's values.
    fn value_test(&mut self, column: usize, test: &ValueTest) -> Result<Typed> {
        let valid = self.columns[column].traits.nullable();
        let valid = valid.then_some(Valid::Column(column));
        let test = self.codes(column, DictionaryTest::Values(test.clone()), None, false)?;
        let number = self.tests_before;
        self.tests_before += 1;
        self.tests.push((number, test));
        let node = Node::Tested {
            column,
            test: number,
        };
        Ok(Typed::boolean(node, valid))
    }

    /// Plans an expression with `make`, unless the same one was planned before in this loop.
    fn once(
        &mut self,
        expr: &Expr,
        make: impl FnOnce(&mut Self) -> Result<Typed>,
    ) -> Result<Typed> {
        if let Some((_, value)) = self.computed.iter().find(|(known, _)| known == expr) {
            return Ok(value.clone());
        }
        let value = make(self)?;
        self.computed.push((expr.clone(), value.clone()));
        Ok(value)
    }

    /// Plans a code, as its number: null if the row has none.
    fn code(&mut self, code: &Code) -> Result<Typed> {
        let once = || Expr::Id(code.clone());
        match code {
            Code::Lookup(lookup) => {
                let count = self.codes_of(*lookup)?.count();
                let valid = self.named(true);
                let domain = Domain::of_codes(count);
                Ok(Typed::new(Node::Code(*lookup), domain, valid))
            }
            Code::Match(number) => {
                let matches = self.pipeline.matches.get(*number);
                let no_such = || Error::Internal(format!("there are no matches {number}"));
                let is_outer = match self.enclosing_exists.contains(number) {
                    true => false,
                    false => matches.ok_or_else(no_such)?.is_outer,
                };
                self.once(&once(), |this| {
                    let (node, valid) = (Node::Match(*number), this.named(is_outer));
                    let of = Type::U32;
                    let bounds = Bounds::of(of);
                    Ok(Typed::new(node, Domain { of, bounds }, valid))
                })
            }
            Code::Probe(key, table) => self.once(&once(), |this| this.probe(key, table)),
            Code::Listed(code, codes) => match codes.data_type() {
                DataType::UInt32 => self.once(&once(), |this| this.payload_of(code, codes)),
                other => Err(Error::Internal(format!("codes of type {other}"))),
            },
            Code::If(condition, code) => {
                let condition = self.typed(condition)?;
                let code = self.code(code)?;
                let none = self.literal(Literal::Null(Type::U32));
                let bounds = none.bounds.union(code.bounds);
                let valid = self.named(true);
                let operands = vec![condition, code, none];
                let of = Type::U32;
                Ok(Typed::op(Op::Case, operands, Domain { of, bounds }, valid))
            }
        }
    }

    /// Plans EXISTS over a row's matches.
    fn exists(&mut self, some: &Exists) -> Result<Typed> {
        if some.number < self.pipeline.matches.len() || self.enclosing_exists.contains(&some.number)
        {
            let reason = format!("matches {} that are others as well", some.number);
            return Err(Error::Internal(reason));
        }
        let [offset, count] = some.matches.list();
        let (offset, count) = (self.typed(&offset)?, self.typed(&count)?);
        self.enclosing_exists.push(some.number);
        let condition = self.typed(&some.condition);
        self.enclosing_exists.pop();
        let condition = condition?;
        if condition.of != Type::Bool {
            let reason = format!("a condition of type {:?}", condition.of);
            return Err(Error::Internal(reason));
        }
        let node = Node::Exists {
            list: Box::new(ListPlan { offset, count }),
            number: some.number,
            condition: condition.into(),
        };
        Ok(Typed::boolean(node, None))
    }

    /// Plans the code of a computed key.
    fn probe(&mut self, key: &Expr, codes: &Arc<KeyTable>) -> Result<Typed> {
        let key = self.typed(key)?;
        let is_integer = !key.of.is_float() && key.of != Type::Bool;
        if !is_integer || !key.bounds.within(Bounds::of(Type::I64)) {
            let reason = format!("computed keys of type {:?}", key.of);
            return Err(Error::Unsupported(reason));
        }
        let table = self.bindings.table(codes);
        let domain = Domain::of_codes(codes.count());
        let node = Node::Probe {
            key: key.into(),
            table,
            is_hashed: codes.is_hashed(),
            bytes: code_bytes(codes.count()),
        };
        let valid = self.named(true);
        Ok(Typed::new(node, domain, valid))
    }

    /// Plans the payload of a computed code.
    fn payload_of(&mut self, code: &Code, payload: &Arc<PayloadColumn>) -> Result<Typed> {
        let code = self.code(code)?;
        let domain = Domain::of_payload(payload)?;
        let node = Node::PayloadOf {
            code: code.into(),
            payload: self.bindings.payload(payload),
            nullable: payload.is_nullable(),
        };
        let valid = self.named(true);
        Ok(Typed::new(node, domain, valid))
    }
}
