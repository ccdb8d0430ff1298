//! Values of expressions in a row.

use super::generator::Generator;
use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{Argument, Bounds, add, name_of, product, sub};
use crate::plan::{Arithmetic, Comparison, DatePart, Expr, Literal, Type};

/// The dates that arrow-rs knows, which are those of chrono: -262143-01-01 to 262142-12-31.
const KNOWN_DAYS: Bounds = Bounds(-96_465_292, 95_026_236);

fn both(a: &Option<String>, b: &Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a.clone()),
        (Some(a), Some(b)) => Some(format!("({a} && {b})")),
        (a, b) => a.clone().or_else(|| b.clone()),
    }
}

impl Generator<'_> {
    /// Gives a value a name.
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

    pub fn expr(&mut self, expr: &Expr) -> Result<Value> {
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
                let name = name_of(expr);
                let same = self
                    .computed
                    .iter()
                    .find(|(known, _)| Some(known) == name.as_ref());
                if let Some((_, value)) = same {
                    return Ok(value.clone());
                }
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                let value = self.arithmetic(*operation, a, b, constant)?;
                self.computed.extend(name.map(|name| (name, value.clone())));
                value
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
                let mut date = self.expr(date)?;
                if !date.bounds.within(KNOWN_DAYS) {
                    date = self.named(date);
                    let Bounds(first, last) = KNOWN_DAYS;
                    let code = &date.code;
                    let known = format!("({code} >= {first} && {code} <= {last})");
                    date.valid = both(&date.valid, &Some(known));
                }
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
            Expr::Looked(lookup, values) => self.looked(*lookup, values)?,
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
                _ => {
                    let (a, b) = (&a.code, &b.code);
                    format!("with_nan({a} {symbol} {b}, {a}, {b}, {})", made_nan(of))
                }
            };
            self.computes_floats = true;
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
            // what is not negative has no sign to be taken along, but two of 32 bits take the same multiplication
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
            Type::F32 | Type::F64 if part.of.is_float() => {
                self.computes_floats = true;
                let function = match to {
                    Type::F32 => "narrowed",
                    _ => "widened",
                };
                format!("{function}({})", part.code)
            }
            Type::F32 | Type::F64 if part.bounds.name() == "i128" => {
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
}

fn same_type(a: &Value, b: &Value) -> Result<()> {
    if a.of == b.of {
        return Ok(());
    }
    let reason = format!("an operation on {:?} and {:?}", a.of, b.of);
    Err(Error::Unsupported(reason))
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

/// The NaN that the CPU makes of operands that are none.
fn made_nan(of: Type) -> &'static str {
    let is_negative = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
    match (of, is_negative) {
        (Type::F32, true) => "__int_as_float((i32)0xffc00000)",
        (Type::F32, false) => "__int_as_float(0x7fc00000)",
        (_, true) => "__longlong_as_double((i64)0xfff8000000000000ull)",
        (_, false) => "__longlong_as_double(0x7ff8000000000000ll)",
    }
}
