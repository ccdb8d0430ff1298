//! Code for the values of expressions in a row.

use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Argument, Node, Typed};
use vectile_pipeline::{Arithmetic, Bounds, Comparison, DatePart, Op, Type};

fn both(a: &Option<String>, b: &Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a.clone()),
        (Some(a), Some(b)) => Some(format!("({a} && {b})")),
        (a, b) => a.clone().or_else(|| b.clone()),
    }
}

impl<'a> Generator<'a> {
    /// Declares a variable with a value.
    pub fn named(&mut self, value: Value) -> Value {
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

    /// Writes a value with `make`, unless it was written before for the current row.
    fn once(&mut self, typed: &'a Typed, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if let Some((_, value)) = self.computed.iter().find(|(known, _)| *known == typed) {
            return value.clone();
        }
        let value = make(self);
        self.computed.push((typed, value.clone()));
        value
    }

    pub fn expr(&mut self, typed: &'a Typed) -> Value {
        match &typed.node {
            Node::Column(column) => {
                let valid = typed.valid.map(|_| format!("(n{column} >> k & 1)"));
                Value::of(typed, format!("x{column}[k]"), valid)
            }
            Node::Null => {
                let zero = match typed.of {
                    Type::F32 => "0.0f",
                    Type::F64 => "0.0",
                    _ => "0",
                };
                Value::of(typed, zero.into(), Some("false".into()))
            }
            Node::Bool(value) => Value::of(typed, value.to_string(), None),
            Node::Constant(constant) => {
                let code = self.constant(*constant, typed);
                Value::of(typed, code, None)
            }
            Node::Op {
                op,
                operands,
                wraps,
            } => self.operation(typed, *op, operands, *wraps),
            Node::Tested { column, test } => {
                let valid = typed.valid.map(|_| format!("(n{column} >> k & 1)"));
                Value::of(typed, format!("(d{test} >> k & 1)"), valid)
            }
            Node::IsMissing(column) => Value::of(typed, format!("!(n{column} >> k & 1)"), None),
            Node::Payload {
                lookup,
                payload,
                nullable,
            } => self.payload(typed, *lookup, *payload, *nullable),
            Node::Code(lookup) => {
                let valid = format!("(q{lookup} != ALL)");
                Value::of(typed, format!("q{lookup}"), Some(valid))
            }
            Node::Match(number) => {
                let mut matches = self.matches.iter().rev();
                let matched = matches.find(|matched| matched.number == *number);
                // a missing match is a defect: the kernel does not compile then
                let index = matched.map_or_else(
                    || format!("no_match_{number}"),
                    |matched| matched.index.clone(),
                );
                let is_matched = matched.and_then(|matched| matched.is_matched.clone());
                Value::of(typed, index, is_matched.filter(|_| typed.valid.is_some()))
            }
            Node::Exists {
                list,
                number,
                condition,
            } => self.once(typed, |this| {
                let code = this.exists(list, *number, condition);
                Value::of(typed, code, None)
            }),
            Node::Probe {
                key,
                table,
                is_hashed,
                bytes,
            } => self.once(typed, |this| {
                this.probe(typed, key, *table, *is_hashed, *bytes)
            }),
            Node::PayloadOf {
                code,
                payload,
                nullable,
            } => self.once(typed, |this| {
                let code = this.expr(code);
                let is_matched = code.valid.unwrap_or_else(|| "true".into());
                this.payload_of(typed, &code.code, is_matched, *payload, *nullable)
            }),
        }
    }

    fn operation(&mut self, typed: &'a Typed, op: Op, operands: &'a [Typed], wraps: bool) -> Value {
        match (op, operands) {
            (Op::Compare(comparison), [a, b]) => {
                let (a, b) = (self.expr(a), self.expr(b));
                self.compare(typed, comparison, a, b)
            }
            (Op::And, _) => self.logic(typed, operands, true),
            (Op::Or, _) => self.logic(typed, operands, false),
            (Op::Not, [part]) => {
                let part = self.expr(part);
                Value::of(typed, format!("!{}", part.code), part.valid)
            }
            (Op::IsNull, [part]) => {
                let valid = self.expr(part).valid;
                let code = valid.map_or("false".into(), |valid| format!("!{valid}"));
                Value::of(typed, code, None)
            }
            (Op::Arithmetic(operation), [a, b]) => self.once(typed, |this| {
                let (a, b) = (this.expr(a), this.expr(b));
                this.arithmetic(typed, operation, a, b, wraps)
            }),
            (Op::Negate, [part]) => self.negate(typed, part, wraps),
            (Op::Cast(_), [part]) => {
                let part = self.expr(part);
                self.cast(typed, part)
            }
            (Op::Average, [sum, count]) => self.average(typed, sum, count),
            (Op::Rounded(_), [part]) => {
                self.computes_floats = true;
                let part = self.expr(part);
                let code = format!("rounded<{}>({})", typed.name(), part.code);
                self.named(Value::of(typed, code, part.valid))
            }
            (Op::FloorDivide(divisor), [part]) => {
                let part = self.expr(part);
                let part = self.named(part);
                let (of, x) = (typed.name(), &part.code);
                let code = format!("({of})((i64){x} / {divisor}ll - ((i64){x} % {divisor}ll < 0))");
                self.named(Value::of(typed, code, part.valid))
            }
            (Op::Case, [whens @ .., otherwise]) => self.case(typed, whens, otherwise),
            (Op::DatePart(part), [date]) => self.date_part(typed, part, date),
            // the planner checks numbers of operands: a kernel with this text does not compile
            _ => Value::of(typed, format!("no_operator({})", operands.len()), None),
        }
    }

    fn negate(&mut self, typed: &'a Typed, part: &'a Typed, wraps: bool) -> Value {
        let part = self.expr(part);
        if part.of.is_float() {
            let code = format!("negated({})", part.code);
            return self.named(Value { code, ..part });
        }
        let zero = Value {
            code: "0".into(),
            valid: None,
            of: part.of,
            bounds: Bounds(0, 0),
        };
        self.arithmetic(typed, Arithmetic::Subtract, zero, part, wraps)
    }

    fn average(&mut self, typed: &'a Typed, sum: &'a Typed, count: &'a Typed) -> Value {
        let (sum, count) = (self.expr(sum), self.expr(count));
        let count = self.named(count);
        let wide = sum.bounds.union(count.bounds).name();
        let is_some = Some(format!("({} > 0)", count.code));
        let valid = both(&both(&sum.valid, &count.valid), &is_some);
        // rows that do not count may hold anything
        let divisor = format!("({0} > 0 ? ({wide}){0} : 1)", count.code);
        let code = format!("({})(({wide}){} / {divisor})", typed.name(), sum.code);
        self.named(Value::of(typed, code, valid))
    }

    fn date_part(&mut self, typed: &'a Typed, part: DatePart, date: &'a Typed) -> Value {
        let known = Bounds::known(part);
        let is_checked = !date.bounds.within(known);
        let mut date = self.expr(date);
        if is_checked {
            date = self.named(date);
            let Bounds(first, last) = known;
            let code = &date.code;
            let known = format!("({code} >= {first} && {code} <= {last})");
            date.valid = both(&date.valid, &Some(known));
        }
        let of_days = |function| format!("{function}_of((i32){})", date.code);
        // a remainder has the sign of the time
        let of_seconds = |all: u32, step: u32| {
            let time = &date.code;
            format!("(i32)(((i64){time} % {all} + {all}) % {all} / {step})")
        };
        let code = match part {
            DatePart::Year => of_days("year"),
            DatePart::Quarter => of_days("quarter"),
            DatePart::Month => of_days("month"),
            DatePart::Day => of_days("day"),
            DatePart::DayOfWeek => of_days("day_of_week"),
            DatePart::DayOfYear => of_days("day_of_year"),
            DatePart::Hour => of_seconds(86_400, 3_600),
            DatePart::Minute => of_seconds(3_600, 60),
            DatePart::Second => of_seconds(60, 1),
        };
        self.named(Value::of(typed, code, date.valid))
    }

    fn constant(&mut self, constant: usize, typed: &Typed) -> String {
        match typed.of {
            Type::F32 => {
                let at = self.argument(Argument::Low(constant));
                format!("__int_as_float((i32)a.word[{at}])")
            }
            Type::F64 => {
                let at = self.argument(Argument::Low(constant));
                format!("__longlong_as_double((i64)a.word[{at}])")
            }
            _ => self.integer(constant, typed.bounds.name()),
        }
    }

    fn compare(&mut self, typed: &Typed, comparison: Comparison, a: Value, b: Value) -> Value {
        let symbol = match comparison {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        };
        let valid = both(&a.valid, &b.valid);
        let code = if a.of.is_float() {
            format!("(key_of({}) {symbol} key_of({}))", a.code, b.code)
        } else {
            let of = a.bounds.union(b.bounds).name();
            format!("(({of}){} {symbol} ({of}){})", a.code, b.code)
        };
        self.named(Value::of(typed, code, valid))
    }

    /// Three-valued AND or OR.
    fn logic(&mut self, typed: &Typed, parts: &'a [Typed], is_and: bool) -> Value {
        let mut all: Option<Value> = None;
        for part in parts {
            let part = self.expr(part);
            all = Some(match all {
                None => part,
                Some(before) => {
                    let symbol = if is_and { "&&" } else { "||" };
                    // a value decides the result if it is a valid false for AND, a valid true for OR
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
                    // null counts as the value that does not decide the result
                    let known = |value: &Value| match &value.valid {
                        None => value.code.clone(),
                        Some(valid) if is_and => format!("(!{valid} || {})", value.code),
                        Some(valid) => format!("({valid} && {})", value.code),
                    };
                    let code = format!("({} {symbol} {})", known(&before), known(&part));
                    self.named(Value::of(typed, code, valid))
                }
            });
        }
        all.unwrap_or_else(|| Value::of(typed, is_and.to_string(), None))
    }

    fn arithmetic(
        &mut self,
        typed: &Typed,
        operation: Arithmetic,
        a: Value,
        b: Value,
        wraps: bool,
    ) -> Value {
        let (of, bounds) = (typed.of, typed.bounds);
        let valid = both(&a.valid, &b.valid);
        let symbol = match operation {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Remainder => "%",
        };
        let code = if of.is_float() {
            self.computes_floats = true;
            let (a, b) = (&a.code, &b.code);
            format!("with_nan({a} {symbol} {b}, {a}, {b}, {})", made_nan(of))
        } else if wraps {
            // operands may be wider than the type: the upper bits do not matter
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
            // values that are not negative need no sign extension; but two operands of 32 bits must use the same
            // multiplication
            let is_narrow = |value: &Value| value.name() == "i32";
            let is_signed = |value: &Value| value.bounds.0 < 0;
            let one_is_signed = is_narrow(&a) && is_narrow(&b) && (is_signed(&a) || is_signed(&b));
            let unsigned = wide == "i64" && inner == "u64" && !one_is_signed;
            let operand = |value: &Value| match unsigned && is_narrow(value) && !is_signed(value) {
                true => format!("({inner})(u32){}", value.code),
                false => format!("({inner}){}", value.code),
            };
            format!("({wide})({} {symbol} {})", operand(&a), operand(&b))
        };
        self.named(Value::of(typed, code, valid))
    }

    fn cast(&mut self, typed: &Typed, part: Value) -> Value {
        let code = match typed.of {
            Type::F32 | Type::F64 if part.of.is_float() => {
                self.computes_floats = true;
                let function = match typed.of {
                    Type::F32 => "narrowed",
                    _ => "widened",
                };
                format!("{function}({})", part.code)
            }
            Type::F32 => format!("(float){}", part.code),
            Type::F64 => format!("(double){}", part.code),
            _ => part.code,
        };
        Value::of(typed, format!("({code})"), part.valid)
    }

    fn case(&mut self, typed: &Typed, whens: &'a [Typed], otherwise: &'a Typed) -> Value {
        let mut branches = vec![];
        for [when, then] in whens.as_chunks::<2>().0 {
            branches.push((self.expr(when).truth(), self.expr(then)));
        }
        let last = self.expr(otherwise);
        let name = typed.name();
        let (mut code, mut valid) = (
            format!("({name}){}", last.code),
            last.valid.unwrap_or_else(|| "true".into()),
        );
        for (when, value) in branches.iter().rev() {
            code = format!("({when} ? ({name}){} : {code})", value.code);
            let known = value.valid.as_deref().unwrap_or("true");
            valid = format!("({when} ? {known} : {valid})");
        }
        self.named(Value::of(typed, code, typed.valid.map(|_| valid)))
    }
}

/// Unsigned and own C++ type of an integer type.
pub(super) fn native_names(of: Type) -> (&'static str, &'static str) {
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

/// The NaN that the CPU returns for an operation on operands that are no NaN.
fn made_nan(of: Type) -> &'static str {
    let is_negative = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
    match (of, is_negative) {
        (Type::F32, true) => "__int_as_float((i32)0xffc00000)",
        (Type::F32, false) => "__int_as_float(0x7fc00000)",
        (_, true) => "__longlong_as_double((i64)0xfff8000000000000ull)",
        (_, false) => "__longlong_as_double(0x7ff8000000000000ll)",
    }
}
