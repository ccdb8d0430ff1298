//! Reference implementation of pipelines: evaluates a column at a time, value by value, on Arrow arrays, without
//! encodings and without regard to speed. It implements the semantics that `vectile_pipeline` documents.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int64Array, TimestampSecondArray};
use arrow::compute::{DatePart as ArrowPart, date_part};
use arrow::datatypes::DataType;
use vectile_pipeline::{
    Aggregate, Arithmetic, Code, Comparison, DatePart, Expr, Filter, GroupKey, Literal, Lookup, Op,
    Pipeline, TextFunction, Type,
};

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Null,
    Int(i128),
    F32(f32),
    F64(f64),
}

impl Value {
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    fn truth(self) -> Option<bool> {
        match self {
            Self::Int(value) => Some(value != 0),
            _ => None,
        }
    }

    fn of_truth(truth: Option<bool>) -> Self {
        truth.map_or(Self::Null, |truth| Self::Int(truth.into()))
    }

    /// Equal in every bit.
    pub fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits(),
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }

    /// Compares two values of one type, neither of them null.
    fn compare(self, other: Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (Self::F32(a), Self::F32(b)) => a.total_cmp(&b),
            (Self::F64(a), Self::F64(b)) => a.total_cmp(&b),
            _ => panic!("{self:?} and {other:?} are of different types"),
        }
    }

    /// The value of a float, as a double.
    pub fn double(self) -> f64 {
        match self {
            Self::F32(value) => value.into(),
            Self::F64(value) => value,
            _ => panic!("{self:?} is no float"),
        }
    }
}

/// The values of an array. Strings have placeholders: they are only counted.
pub fn values_of(array: &ArrayRef) -> Vec<Value> {
    let data = array.to_data();
    let of = Type::of(array.data_type());
    let value = |row: usize| match of.unwrap_or(Type::Bool) {
        Type::Bool if of.is_none() => Value::Int(0),
        Type::Bool => Value::Int(array.as_boolean().value(row).into()),
        Type::I8 => Value::Int(data.buffer::<i8>(0)[row].into()),
        Type::I16 => Value::Int(data.buffer::<i16>(0)[row].into()),
        Type::I32 => Value::Int(data.buffer::<i32>(0)[row].into()),
        Type::I64 => Value::Int(data.buffer::<i64>(0)[row].into()),
        Type::U8 => Value::Int(data.buffer::<u8>(0)[row].into()),
        Type::U16 => Value::Int(data.buffer::<u16>(0)[row].into()),
        Type::U32 => Value::Int(data.buffer::<u32>(0)[row].into()),
        Type::U64 => Value::Int(data.buffer::<u64>(0)[row].into()),
        Type::I128 => Value::Int(data.buffer::<i128>(0)[row]),
        Type::F32 => Value::F32(data.buffer::<f32>(0)[row]),
        Type::F64 => Value::F64(data.buffer::<f64>(0)[row]),
    };
    (0..array.len())
        .map(|row| match array.is_null(row) {
            true => Value::Null,
            false => value(row),
        })
        .collect()
}

/// The columns of a row group, and the lookups.
pub struct Data<'a> {
    pub columns: &'a [ArrayRef],
    pub lookups: &'a [Lookup],
}

impl<'a> Data<'a> {
    pub fn new(pipeline: &'a Pipeline, columns: &'a [ArrayRef]) -> Self {
        let lookups = &pipeline.lookups;
        Self { columns, lookups }
    }

    /// The code of each row's key.
    fn codes(&self, lookup: usize) -> Vec<Option<u32>> {
        let lookup = &self.lookups[lookup];
        lookup
            .key_table
            .codes_of(&self.columns[lookup.column])
            .unwrap()
    }
}

/// Per row, true if it passes.
pub fn passing(filter: &Filter, data: &Data) -> Vec<bool> {
    let rows = data.columns[0].len();
    let tested = |tested: arrow::array::BooleanArray| {
        (0..rows)
            .map(|row| tested.is_valid(row) && tested.value(row))
            .collect()
    };
    match filter {
        Filter::Constant(passes) => vec![*passes; rows],
        Filter::Column(column, predicate) => {
            tested(predicate.evaluate(&data.columns[*column]).unwrap())
        }
        Filter::Values(column, test) => {
            let array = &data.columns[*column];
            let answers: Vec<bool> = tested(test.evaluate(array).unwrap());
            let valid = (0..rows).map(|row| array.is_valid(row));
            answers
                .into_iter()
                .zip(valid)
                .map(|(a, b)| a && b)
                .collect()
        }
        Filter::And(parts) => (0..parts.len()).fold(vec![true; rows], |all, part| {
            let part = passing(&parts[part], data);
            all.into_iter().zip(part).map(|(a, b)| a && b).collect()
        }),
        Filter::Or(parts) => (0..parts.len()).fold(vec![false; rows], |some, part| {
            let part = passing(&parts[part], data);
            some.into_iter().zip(part).map(|(a, b)| a || b).collect()
        }),
        Filter::Matched(lookup) => data.codes(*lookup).iter().map(Option::is_some).collect(),
        Filter::Unmatched(lookup) => data.codes(*lookup).iter().map(Option::is_none).collect(),
        Filter::Expr(expr) => evaluate(expr, data)
            .into_iter()
            .map(|value| value.truth() == Some(true))
            .collect(),
    }
}

/// The type of an expression.
pub fn type_of(expr: &Expr, columns: &[DataType]) -> Type {
    match expr {
        Expr::Column(column) => Type::of(&columns[*column]).unwrap(),
        Expr::Literal(literal) => literal.data_type(),
        Expr::Op(op, operands) => match op {
            Op::Arithmetic(_) | Op::Average | Op::Negate | Op::FloorDivide(_) => {
                type_of(&operands[0], columns)
            }
            Op::Cast(to) => *to,
            Op::Case => type_of(&operands[1], columns),
            Op::Rounded(_) => Type::I128,
            Op::DatePart(_) => Type::I32,
            Op::Compare(_) | Op::And | Op::Or | Op::Not | Op::IsNull => Type::Bool,
        },
        Expr::Payload(_, values) => Type::of(values.data_type()).unwrap(),
        Expr::Id(_) => Type::U32,
        Expr::Mapped(_, function) => Type::of(function.data_type()).unwrap_or(Type::U32),
        _ => Type::Bool,
    }
}

/// The value of an expression for each row.
pub fn evaluate(expr: &Expr, data: &Data) -> Vec<Value> {
    let rows = data.columns[0].len();
    match expr {
        Expr::Exists(_) => {
            unreachable!("tests of matches have loops of their own")
        }
        Expr::Column(column) => values_of(&data.columns[*column]),
        Expr::Literal(literal) => vec![
            match *literal {
                Literal::Null(_) => Value::Null,
                Literal::Int(value, _) => Value::Int(value),
                Literal::F32(value) => Value::F32(value),
                Literal::F64(value) => Value::F64(value),
            };
            rows
        ],
        Expr::Op(op, operands) => operation(*op, operands, data),
        Expr::Payload(code, values) => {
            let values = values_of(&values.values().unwrap());
            let codes = codes_of(code, data).into_iter();
            codes
                .map(|code| code.map_or(Value::Null, |code| values[code as usize]))
                .collect()
        }
        Expr::Id(code) => {
            let codes = codes_of(code, data).into_iter();
            codes
                .map(|code| code.map_or(Value::Null, |code| Value::Int(code.into())))
                .collect()
        }
        Expr::Unmatched(code) => {
            let codes = codes_of(code, data).into_iter();
            codes
                .map(|code| Value::of_truth(Some(code.is_none())))
                .collect()
        }
        Expr::Mapped(column, function) => {
            let results = results_of(&**function, &data.columns[*column]);
            match Type::of(results.data_type()) {
                Some(_) => values_of(&results),
                None => numbers_of(&texts_of(&results), &results),
            }
        }
        Expr::Values(column, test) => {
            let array = &data.columns[*column];
            let passed = test.evaluate(array).unwrap();
            let value = |row: usize| match array.is_valid(row) {
                true => Value::Int((passed.is_valid(row) && passed.value(row)).into()),
                false => Value::Null,
            };
            (0..rows).map(value).collect()
        }
        Expr::Parameter(..) | Expr::DenseId(_) | Expr::RowNumber => panic!("has no kernel"),
    }
}

/// The results of a function of text; null for null.
fn results_of(function: &dyn TextFunction, column: &ArrayRef) -> ArrayRef {
    let results = function.evaluate(column).unwrap();
    let nulls = arrow::compute::is_null(column).unwrap();
    arrow::compute::nullif(&results, &nulls).unwrap()
}

/// A number for each text that differs where texts do.
fn numbers_of(texts: &[String], of: &ArrayRef) -> Vec<Value> {
    let ids = texts.iter().enumerate().map(|(row, text)| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        match of.is_valid(row) {
            true => Value::Int(hasher.finish().into()),
            false => Value::Null,
        }
    });
    ids.collect()
}

/// The code of each row.
fn codes_of(code: &Code, data: &Data) -> Vec<Option<u32>> {
    match code {
        Code::Lookup(lookup) => data.codes(*lookup),
        Code::Probe(key, table) => {
            let keys = evaluate(key, data).into_iter();
            let keys = keys.map(|key| match key {
                Value::Int(key) => i64::try_from(key).ok(),
                _ => None,
            });
            let keys: ArrayRef = Arc::new(Int64Array::from_iter(keys));
            table.codes_of(&keys).unwrap()
        }
        Code::Match(_) | Code::Listed(..) | Code::If(..) => {
            unreachable!("tests of matches have loops of their own")
        }
    }
}

/// The value of an operator for each row.
fn operation(op: Op, operands: &[Expr], data: &Data) -> Vec<Value> {
    let rows = data.columns[0].len();
    let types: Vec<DataType> = data.columns.iter().map(|c| c.data_type().clone()).collect();
    let of = |expr: &Expr| type_of(expr, &types);
    let map = |f: &dyn Fn(Value) -> Value| -> Vec<Value> {
        evaluate(&operands[0], data).into_iter().map(f).collect()
    };
    let pairs = |f: &dyn Fn(Value, Value) -> Value| -> Vec<Value> {
        let pairs = evaluate(&operands[0], data)
            .into_iter()
            .zip(evaluate(&operands[1], data));
        pairs.map(|(a, b)| f(a, b)).collect()
    };
    match op {
        Op::Compare(comparison) => pairs(&|a, b| {
            if a.is_null() || b.is_null() {
                return Value::Null;
            }
            let order = a.compare(b);
            Value::of_truth(Some(match comparison {
                Comparison::Equal => order.is_eq(),
                Comparison::NotEqual => order.is_ne(),
                Comparison::Less => order.is_lt(),
                Comparison::LessOrEqual => order.is_le(),
                Comparison::Greater => order.is_gt(),
                Comparison::GreaterOrEqual => order.is_ge(),
            }))
        }),
        Op::And => connect(operands, data, rows, false),
        Op::Or => connect(operands, data, rows, true),
        Op::Not => map(&|value| Value::of_truth(value.truth().map(|t| !t))),
        Op::IsNull => map(&|value| Value::of_truth(Some(value.is_null()))),
        Op::Arithmetic(operation) => pairs(&|x, y| arithmetic(operation, x, y, of(&operands[0]))),
        Op::Negate => map(&|value| match value {
            Value::Null => Value::Null,
            Value::Int(value) => Value::Int(wrapped(-value, of(&operands[0]))),
            Value::F32(value) => Value::F32(-value),
            Value::F64(value) => Value::F64(-value),
        }),
        Op::Cast(to) => map(&|value| cast(value, to)),
        Op::Case => {
            let (whens, otherwise) = operands.as_chunks::<2>();
            let mut result = match otherwise {
                [expr] => evaluate(expr, data),
                _ => vec![Value::Null; rows],
            };
            for [when, then] in whens.iter().rev() {
                let (when, then) = (evaluate(when, data), evaluate(then, data));
                for row in 0..rows {
                    if when[row].truth() == Some(true) {
                        result[row] = then[row];
                    }
                }
            }
            result
        }
        Op::DatePart(part) => map(&|value| match value {
            Value::Int(time) => part_of_time(part, time as i64),
            other => other,
        }),
        Op::FloorDivide(divisor) => map(&|value| match value {
            Value::Int(value) => Value::Int(value.div_euclid(divisor.into())),
            other => other,
        }),
        Op::Average => pairs(&|sum, count| match (sum, count) {
            (Value::Int(_), Value::Int(0)) => Value::Null,
            (Value::Int(sum), Value::Int(count)) => Value::Int(sum / count),
            _ => Value::Null,
        }),
        Op::Rounded(_) => map(&|value| match value {
            Value::F64(value) => Value::Int(value.round() as i128),
            other => other,
        }),
    }
}

/// Three-valued OR (decided by a true) or AND (decided by a false).
fn connect(parts: &[Expr], data: &Data, rows: usize, settling: bool) -> Vec<Value> {
    let parts: Vec<Vec<Value>> = parts.iter().map(|part| evaluate(part, data)).collect();
    let result = |row: usize| {
        let truths: Vec<Option<bool>> = parts.iter().map(|part| part[row].truth()).collect();
        if truths.contains(&Some(settling)) {
            Some(settling)
        } else if truths.contains(&None) {
            None
        } else {
            Some(!settling)
        }
    };
    (0..rows).map(|row| Value::of_truth(result(row))).collect()
}

/// An integer wrapped around to its type.
fn wrapped(value: i128, of: Type) -> i128 {
    match of {
        Type::Bool | Type::U8 => (value as u8).into(),
        Type::I8 => (value as i8).into(),
        Type::I16 => (value as i16).into(),
        Type::I32 => (value as i32).into(),
        Type::I64 => (value as i64).into(),
        Type::U16 => (value as u16).into(),
        Type::U32 => (value as u32).into(),
        Type::U64 => (value as u64).into(),
        _ => value,
    }
}

fn arithmetic(operation: Arithmetic, a: Value, b: Value, of: Type) -> Value {
    macro_rules! float {
        ($a:expr, $b:expr) => {
            match operation {
                Arithmetic::Add => $a + $b,
                Arithmetic::Subtract => $a - $b,
                Arithmetic::Multiply => $a * $b,
                Arithmetic::Divide => $a / $b,
                Arithmetic::Remainder => $a % $b,
            }
        };
    }
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        (Value::F32(a), Value::F32(b)) => Value::F32(float!(a, b)),
        (Value::F64(a), Value::F64(b)) => Value::F64(float!(a, b)),
        (Value::Int(a), Value::Int(b)) => {
            // only products of 64 bits may exceed 128: the upper bits do not matter
            let exact = match operation {
                Arithmetic::Add => a + b,
                Arithmetic::Subtract => a - b,
                Arithmetic::Multiply => a.wrapping_mul(b),
                Arithmetic::Divide => a / b,
                Arithmetic::Remainder => a % b,
            };
            Value::Int(wrapped(exact, of))
        }
        _ => panic!("{a:?} and {b:?} are of different types"),
    }
}

fn cast(value: Value, to: Type) -> Value {
    match (value, to) {
        (Value::Null, _) => Value::Null,
        (Value::Int(value), Type::F32) => Value::F32(value as f32),
        (Value::Int(value), Type::F64) => Value::F64(value as f64),
        (Value::F32(value), Type::F64) => Value::F64(value.into()),
        (Value::F64(value), Type::F32) => Value::F32(value as f32),
        (Value::Int(value), _) => {
            assert_eq!(
                wrapped(value, to),
                value,
                "a cast to {to:?} that does not fit"
            );
            Value::Int(value)
        }
        (value, _) => value,
    }
}

/// A part of a date as in arrow-rs, which does not support all years.
fn part_of_time(part: DatePart, time: i64) -> Value {
    let date: ArrayRef = match (part.is_of_time(), i32::try_from(time)) {
        (true, _) => Arc::new(TimestampSecondArray::from(vec![time])),
        (false, Ok(days)) => Arc::new(Date32Array::from(vec![days])),
        (false, Err(_)) => return Value::Null,
    };
    let arrow_part = match part {
        DatePart::Year => ArrowPart::Year,
        DatePart::Quarter => ArrowPart::Quarter,
        DatePart::Month => ArrowPart::Month,
        DatePart::Day => ArrowPart::Day,
        DatePart::DayOfWeek => ArrowPart::DayOfWeekSunday0,
        DatePart::DayOfYear => ArrowPart::DayOfYear,
        DatePart::Hour => ArrowPart::Hour,
        DatePart::Minute => ArrowPart::Minute,
        DatePart::Second => ArrowPart::Second,
    };
    values_of(&date_part(&date, arrow_part).unwrap())[0]
}

/// The expected result of an aggregate.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub count: u64,
    pub value: Option<Value>,
    /// For a sum of floats, the sum of magnitudes: rounding errors are relative to it.
    pub magnitude: Option<f64>,
}

/// The aggregates over the rows that pass.
pub fn totals(
    aggregates: &[Aggregate],
    pipeline: &Pipeline,
    groups: &[Vec<ArrayRef>],
) -> Vec<Expected> {
    let mut arguments: Vec<Vec<Value>> = vec![vec![]; aggregates.len()];
    for columns in groups {
        let data = &Data::new(pipeline, columns);
        let passes = passing(&pipeline.filter, data);
        for (aggregate, arguments) in aggregates.iter().zip(&mut arguments) {
            let values = match aggregate {
                Aggregate::CountRows => vec![Value::Int(1); passes.len()],
                Aggregate::Count(expr)
                | Aggregate::CountDistinct(expr)
                | Aggregate::Sum(expr)
                | Aggregate::Min(expr)
                | Aggregate::Max(expr) => evaluate(expr, data),
            };
            let valid = values.into_iter().zip(&passes);
            arguments.extend(
                valid
                    .filter(|(v, passes)| **passes && !v.is_null())
                    .map(|(v, _)| v),
            );
        }
    }
    let totals = aggregates.iter().zip(arguments);
    totals
        .map(|(aggregate, values)| total(aggregate, &values))
        .collect()
}

/// The results of a group, by its keys as text.
pub type Grouped = BTreeMap<Vec<String>, Vec<Expected>>;

/// The aggregates of each group of rows that pass.
pub fn grouped(
    keys: &[GroupKey],
    aggregates: &[Aggregate],
    pipeline: &Pipeline,
    groups: &[Vec<ArrayRef>],
) -> Grouped {
    let mut arguments: BTreeMap<Vec<String>, Vec<Vec<Value>>> = BTreeMap::new();
    for columns in groups {
        let data = &Data::new(pipeline, columns);
        let passes = passing(&pipeline.filter, data);
        let named: Vec<Vec<String>> = keys
            .iter()
            .map(|key| match key {
                GroupKey::Value(expr) => {
                    let values = evaluate(expr, data).into_iter();
                    values.map(|value| format!("{value:?}")).collect()
                }
                GroupKey::DictionaryValue(column) => texts_of(&columns[*column]),
                GroupKey::Mapped(column, function) => {
                    texts_of(&results_of(&**function, &columns[*column]))
                }
                GroupKey::Code(lookup) => {
                    let codes = data.codes(*lookup).into_iter();
                    codes.map(|code| format!("{code:?}")).collect()
                }
            })
            .collect();
        let values: Vec<Vec<Value>> = aggregates
            .iter()
            .map(|aggregate| match aggregate {
                Aggregate::CountRows => vec![Value::Int(1); passes.len()],
                Aggregate::Count(expr)
                | Aggregate::CountDistinct(expr)
                | Aggregate::Sum(expr)
                | Aggregate::Min(expr)
                | Aggregate::Max(expr) => evaluate(expr, data),
            })
            .collect();
        for row in (0..passes.len()).filter(|row| passes[*row]) {
            let key = named.iter().map(|texts| texts[row].clone()).collect();
            let empty = || vec![vec![]; aggregates.len()];
            let group = arguments.entry(key).or_insert_with(empty);
            for (arguments, values) in group.iter_mut().zip(&values) {
                if !values[row].is_null() {
                    arguments.push(values[row]);
                }
            }
        }
    }
    let totals = |values: Vec<Vec<Value>>| -> Vec<Expected> {
        let aggregates = aggregates.iter().zip(values);
        aggregates
            .map(|(aggregate, values)| total(aggregate, &values))
            .collect()
    };
    arguments
        .into_iter()
        .map(|(key, values)| (key, totals(values)))
        .collect()
}

/// Each value as text, for keys of the reference and of results.
pub fn texts_of(array: &ArrayRef) -> Vec<String> {
    let texts = arrow::compute::cast(array, &DataType::Utf8).unwrap();
    let texts = texts.as_string::<i32>().iter();
    texts.map(|text| format!("{text:?}")).collect()
}

fn total(aggregate: &Aggregate, values: &[Value]) -> Expected {
    let count = match aggregate {
        Aggregate::CountDistinct(_) => {
            let distinct: BTreeSet<String> = values.iter().map(|v| format!("{v:?}")).collect();
            distinct.len() as u64
        }
        _ => values.len() as u64,
    };
    let is_float = matches!(values.first(), Some(Value::F32(_) | Value::F64(_)));
    let mut magnitude = None;
    let value = match aggregate {
        Aggregate::CountRows | Aggregate::Count(_) | Aggregate::CountDistinct(_) => {
            Some(Value::Int(count.into()))
        }
        Aggregate::Min(_) => values.iter().copied().min_by(|a, b| a.compare(*b)),
        Aggregate::Max(_) => values.iter().copied().max_by(|a, b| a.compare(*b)),
        Aggregate::Sum(_) if values.is_empty() => None,
        Aggregate::Sum(_) if is_float => {
            magnitude = Some(values.iter().map(|v| v.double().abs()).sum());
            Some(Value::F64(values.iter().map(|v| v.double()).sum()))
        }
        Aggregate::Sum(_) => Some(Value::Int(values.iter().fold(0i128, |sum, v| match v {
            Value::Int(value) => sum.wrapping_add(*value),
            _ => panic!("{v:?} is no integer"),
        }))),
    };
    Expected {
        count,
        value,
        magnitude,
    }
}
