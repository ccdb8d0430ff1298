//! Rows that are combined with their matches, and EXISTS over matches, compared with nested loops row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::datatypes::{DataType, Int64Type};
use vectile_cpu::Execution;
use vectile_encodings::{Column, EncodeOptions, encode};
use vectile_pipeline::{
    Aggregate, Arithmetic, Code, Comparison, Error, Exists, Expr, Filter, GroupKey, KeyTable,
    Literal, Lookup, Matches, Number, Numbers, Op, Output, PayloadColumn, Pipeline, Type,
};

/// Keys that have a code.
const KEYS: u32 = 40;

/// A value, null or not; booleans are 0 and 1.
type Value = Option<i128>;

/// Matches of rows: the number of each list, and the code of the match.
type Current = Vec<(usize, Option<u32>)>;

fn random(row: usize, salt: u64) -> u64 {
    let mut x = row as u64 ^ salt << 40;
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

fn payload(of: &[u32]) -> Arc<PayloadColumn> {
    PayloadColumn::new(Arc::new(UInt32Array::from(of.to_vec())))
}

/// A multimap over the keys.
#[derive(Clone)]
struct List {
    offset: Arc<PayloadColumn>,
    count: Arc<PayloadColumn>,
    max_count: u32,
    values: Arc<PayloadColumn>,
}

impl List {
    fn new(count: impl Fn(u32) -> u32) -> Self {
        let counts: Vec<u32> = (0..KEYS).map(count).collect();
        let mut end = 0;
        let first = counts.iter().map(|count| {
            end += count;
            end - count
        });
        let first: Vec<u32> = first.collect();
        let value = |at: u32| (at % 9 != 4).then_some(i64::from(at) * 31 % 50);
        Self {
            offset: payload(&first),
            count: payload(&counts),
            max_count: counts.iter().copied().max().unwrap(),
            values: PayloadColumn::new(Arc::new(Int64Array::from_iter((0..end).map(value)))),
        }
    }

    fn matches(&self, code: Code, is_outer: bool) -> Matches {
        Matches {
            code,
            offset: Arc::clone(&self.offset),
            count: Arc::clone(&self.count),
            max_count: self.max_count,
            is_outer,
        }
    }

    /// The value of the current match.
    fn value(&self, number: usize) -> Expr {
        Expr::Payload(Code::Match(number), Arc::clone(&self.values))
    }

    /// True for rows with a match that meets a condition.
    fn exists(&self, code: Code, number: usize, condition: Expr) -> Expr {
        let matches = self.matches(code, false);
        Expr::Exists(Box::new(Exists {
            matches,
            number,
            condition,
        }))
    }
}

fn table() -> Arc<KeyTable> {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..KEYS.into()));
    let own: Vec<u32> = (0..KEYS).collect();
    Arc::new(KeyTable::new(&keys, &own, KEYS).unwrap())
}

/// Two columns of keys, some of them null and some without a code, and a column of values.
fn columns(rows: usize) -> Vec<ArrayRef> {
    let key = |salt: u64, of: u64, null: u64| {
        let key = move |row: usize| {
            let is_null = random(row, salt + 10).is_multiple_of(null);
            (!is_null).then_some((random(row, salt) % of) as i64)
        };
        Arc::new(Int64Array::from_iter((0..rows).map(key))) as ArrayRef
    };
    vec![key(1, 53, 13), key(2, 47, 1000), key(3, 60, 7)]
}

fn pipeline(matches: Vec<Matches>, filter: Filter, output: Output) -> Arc<Pipeline> {
    let lookup = |column| Lookup {
        column,
        key_table: table(),
    };
    Arc::new(Pipeline {
        columns: vec![DataType::Int64; 3],
        lookups: vec![lookup(0), lookup(1)],
        matches,
        filter,
        output,
    })
}

/// Evaluates a pipeline row by row.
struct Reference<'a> {
    pipeline: &'a Pipeline,
    columns: &'a [ArrayRef],
}

impl Reference<'_> {
    fn column(&self, column: usize, row: usize) -> Value {
        let array = self.columns[column].as_primitive::<Int64Type>();
        array.is_valid(row).then(|| array.value(row).into())
    }

    fn find(&self, table: &KeyTable, key: Value) -> Option<u32> {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![key.map(|key| key as i64)]));
        table.codes_of(&keys).unwrap()[0]
    }

    fn payload(&self, column: &PayloadColumn, code: Option<u32>) -> Value {
        let (values, code) = (column.values().unwrap(), code? as usize);
        values.is_valid(code).then(|| match values.data_type() {
            DataType::Int64 => values.as_primitive::<Int64Type>().value(code).into(),
            _ => values
                .as_primitive::<arrow::datatypes::UInt32Type>()
                .value(code)
                .into(),
        })
    }

    fn code(&self, code: &Code, row: usize, current: &Current) -> Option<u32> {
        match code {
            Code::Lookup(number) => {
                let lookup = &self.pipeline.lookups[*number];
                self.find(&lookup.key_table, self.column(lookup.column, row))
            }
            Code::Probe(key, table) => self.find(table, self.value(key, row, current)),
            Code::Match(number) => current.iter().find(|(of, _)| of == number).unwrap().1,
            Code::Listed(code, codes) => {
                let code = self.code(code, row, current);
                self.payload(codes, code).map(|code| code as u32)
            }
            Code::If(condition, code) => match self.value(condition, row, current) {
                Some(1) => self.code(code, row, current),
                _ => None,
            },
        }
    }

    /// The codes of a row's matches.
    fn list(&self, of: &Matches, row: usize, current: &Current) -> Vec<u32> {
        let code = self.code(&of.code, row, current);
        let Some(count) = self.payload(&of.count, code) else {
            return vec![];
        };
        let first = self.payload(&of.offset, code).unwrap() as u32;
        (first..first + count as u32).collect()
    }

    fn value(&self, expr: &Expr, row: usize, current: &Current) -> Value {
        let value = |part: &Expr| self.value(part, row, current);
        match expr {
            Expr::Column(column) => self.column(*column, row),
            Expr::Literal(Literal::Int(value, _)) => Some(*value),
            Expr::Payload(code, values) => self.payload(values, self.code(code, row, current)),
            Expr::Unmatched(code) => Some(self.code(code, row, current).is_none().into()),
            Expr::Id(code) => self.code(code, row, current).map(i128::from),
            Expr::Exists(some) => {
                let mut list = self.list(&some.matches, row, current).into_iter();
                let is_met = |code: u32| {
                    let mut inner = current.clone();
                    inner.push((some.number, Some(code)));
                    self.value(&some.condition, row, &inner) == Some(1)
                };
                Some(list.any(is_met).into())
            }
            Expr::Op(op, parts) => {
                let values: Vec<Value> = parts.iter().map(value).collect();
                let connected = |decisive: i128| match &values {
                    _ if values.contains(&Some(decisive)) => Some(decisive),
                    _ if values.contains(&None) => None,
                    _ => Some(1 - decisive),
                };
                match (op, &values[..]) {
                    (Op::And, _) => connected(0),
                    (Op::Or, _) => connected(1),
                    (Op::Cast(_), [part]) => *part,
                    (Op::Not, [part]) => part.map(|part| 1 - part),
                    (Op::IsNull, [part]) => Some(part.is_none().into()),
                    (Op::Compare(comparison), [a, b]) => {
                        let (a, b) = ((*a)?, (*b)?);
                        let is_so = match comparison {
                            Comparison::Less => a < b,
                            Comparison::Equal => a == b,
                            Comparison::NotEqual => a != b,
                            _ => a > b,
                        };
                        Some(is_so.into())
                    }
                    (Op::Arithmetic(Arithmetic::Add), [a, b]) => Some((*a)? + (*b)?),
                    _ => panic!("{op:?}"),
                }
            }
            _ => panic!("{expr:?}"),
        }
    }

    fn passes(&self, filter: &Filter, row: usize, current: &Current) -> bool {
        match filter {
            Filter::Constant(passes) => *passes,
            Filter::Expr(expr) => self.value(expr, row, current) == Some(1),
            Filter::And(parts) => parts.iter().all(|part| self.passes(part, row, current)),
            Filter::Or(parts) => parts.iter().any(|part| self.passes(part, row, current)),
            Filter::Matched(number) => self.code(&Code::Lookup(*number), row, current).is_some(),
            _ => panic!("{filter:?}"),
        }
    }

    /// Calls `visit` with the combinations that pass.
    fn for_each(&self, visit: &mut dyn FnMut(usize, &Current)) {
        for row in 0..self.columns[0].len() {
            self.combine(row, vec![], visit);
        }
    }

    fn combine(&self, row: usize, current: Current, visit: &mut dyn FnMut(usize, &Current)) {
        let number = current.len();
        let Some(of) = self.pipeline.matches.get(number) else {
            if self.passes(&self.pipeline.filter, row, &current) {
                visit(row, &current);
            }
            return;
        };
        let list = self.list(of, row, &vec![]);
        let mut codes: Vec<Option<u32>> = list.into_iter().map(Some).collect();
        if codes.is_empty() && of.is_outer {
            codes.push(None);
        }
        for code in codes {
            let mut current = current.clone();
            current.push((number, code));
            self.combine(row, current, visit);
        }
    }
}

/// Number of combinations; of values, their sum, minimum and maximum.
type Row = (u64, u64, i128, i128, i128);

const NONE: Row = (0, 0, 0, i128::MAX, i128::MIN);

fn add(to: &mut Row, value: Value) {
    to.0 += 1;
    if let Some(value) = value {
        *to = (
            to.0,
            to.1 + 1,
            to.2 + value,
            to.3.min(value),
            to.4.max(value),
        );
    }
}

fn run(pipeline: &Arc<Pipeline>, columns: &[ArrayRef]) -> Result<Execution, Error> {
    let rows = columns[0].len();
    let columns = columns.iter().map(|array| {
        let bytes = encode(array, &EncodeOptions::default()).unwrap();
        Column::parse(bytes.into(), array.data_type(), array.len()).unwrap()
    });
    let columns: Vec<Column> = columns.collect();
    let mut execution = Execution::new(Arc::clone(pipeline));
    let partial = Execution::run(pipeline, &columns, 0..rows, None, &mut |_| Ok(()))?;
    execution.add(partial)?;
    Ok(execution)
}

/// Compares aggregates of `value`, of all rows and by `key`. Returns the number of combinations.
fn check(matches: &[Matches], filter: &Filter, value: &Expr, key: &Expr, rows: usize) -> u64 {
    let columns = columns(rows);
    let mut aggregates = vec![Aggregate::CountRows];
    let of = [
        Aggregate::Count,
        Aggregate::Sum,
        Aggregate::Min,
        Aggregate::Max,
    ];
    aggregates.extend(of.map(|of| of(value.clone())));
    let output = Output::Aggregates(aggregates.clone());
    let all = pipeline(matches.to_vec(), filter.clone(), output);
    let reference = Reference {
        pipeline: &all,
        columns: &columns,
    };
    let (mut total, mut by_key) = (NONE, BTreeMap::new());
    reference.for_each(&mut |row, current| {
        let value = reference.value(value, row, current);
        add(&mut total, value);
        let key = reference.value(key, row, current);
        add(by_key.entry(key).or_insert(NONE), value);
    });
    let totals = run(&all, &columns).unwrap().totals().unwrap();
    let int = |index: usize, none: i128| match totals[index].value {
        Some(Number::Int(value)) => value,
        None => none,
        other => panic!("{other:?}"),
    };
    let found: Row = (
        totals[0].count,
        totals[1].count,
        int(2, 0),
        int(3, i128::MAX),
        int(4, i128::MIN),
    );
    assert_eq!(found, total, "{matches:?} {filter:?}");

    let output = Output::Groups(vec![GroupKey::Value(key.clone())], aggregates);
    let grouped = pipeline(matches.to_vec(), filter.clone(), output);
    let mut execution = run(&grouped, &columns).unwrap();
    let mut found = BTreeMap::new();
    for partition in execution.finish().unwrap() {
        let groups = partition.groups().unwrap();
        let keys = arrow::compute::cast(&groups.keys[0], &DataType::Int64).unwrap();
        let keys = keys.as_primitive::<Int64Type>();
        let ints = |index: usize| match &groups.totals[index].values {
            Numbers::Int(values) => values.clone(),
            other => panic!("{other:?}"),
        };
        let (sums, minima, maxima) = (ints(2), ints(3), ints(4));
        for group in 0..groups.count {
            let counts = |index: usize| groups.totals[index].counts[group];
            let row = match counts(1) {
                0 => (counts(0), 0, 0, i128::MAX, i128::MIN),
                some => (counts(0), some, sums[group], minima[group], maxima[group]),
            };
            let key = keys.is_valid(group).then(|| keys.value(group).into());
            assert!(found.insert(key, row).is_none());
        }
    }
    assert_eq!(found, by_key, "{matches:?} {filter:?}");
    total.0
}

fn compare(comparison: Comparison, a: Expr, b: Expr) -> Expr {
    Expr::compare(comparison, a, b)
}

fn int(value: i128) -> Expr {
    Expr::Literal(Literal::Int(value, Type::I64))
}

/// Few matches each, some keys without any, and one key with thousands.
fn lists() -> [List; 3] {
    [
        List::new(|key| key * 7 % 5),
        List::new(|key| 1 + key * 3 % 3),
        List::new(|key| if key == 17 { 3_000 } else { key % 3 }),
    ]
}

#[test]
fn rows_come_once_for_each_combination() {
    let [few, some, many] = lists();
    let (column, lookup) = (Expr::Column, Code::Lookup);
    for is_outer in [false, true] {
        let sum = Expr::arithmetic(Arithmetic::Add, few.value(0), column(2));
        let one = [few.matches(lookup(0), is_outer)];
        let two = [
            few.matches(lookup(0), is_outer),
            some.matches(lookup(1), !is_outer),
        ];
        let less = compare(Comparison::Less, few.value(0), column(1));
        let of_both = Expr::arithmetic(Arithmetic::Add, few.value(0), some.value(1));
        let of_both = compare(Comparison::Less, of_both, column(2));
        let unmatched = Expr::or(vec![Expr::Unmatched(Code::Match(0)), less.clone()]);
        let known = Filter::Expr(!Expr::is_null(column(2)));
        let filters = [
            Filter::Constant(true),
            Filter::Expr(less.clone()),
            Filter::Expr(unmatched.clone()),
            Filter::Expr(!less.clone()),
            Filter::Expr(Expr::is_null(few.value(0))),
            Filter::And(vec![
                Filter::Expr(unmatched),
                known.clone(),
                Filter::And(vec![Filter::Matched(1), Filter::Expr(less)]),
            ]),
            Filter::And(vec![Filter::Constant(false), known]),
        ];
        for filter in &filters {
            check(&one, filter, &sum, &few.value(0), 2_500);
            check(&two, filter, &some.value(1), &few.value(0), 1_500);
        }
        check(&two, &Filter::Expr(of_both), &sum, &column(1), 2_500);
        let id = Expr::cast(Expr::Id(Code::Match(0)), Type::I64);
        let id = Filter::Expr(compare(Comparison::Less, id, int(20)));
        let key = Expr::Id(Code::Match(0));
        for rows in [1, 1_023, 1_025, 3_000] {
            check(&one, &id, &sum, &key, rows);
        }
        let three = [
            two[0].clone(),
            two[1].clone(),
            few.matches(lookup(1), is_outer),
        ];
        let equal = compare(Comparison::Equal, few.value(0), few.value(2));
        check(
            &three,
            &Filter::Expr(equal),
            &some.value(1),
            &few.value(2),
            900,
        );
        let large = [many.matches(lookup(0), is_outer)];
        let combinations = check(&large, &filters[0], &many.value(0), &column(1), 700);
        assert!(combinations > 10_000);
        let selective = compare(Comparison::Equal, many.value(0), column(1));
        check(&large, &Filter::Expr(selective), &many.value(0), &key, 700);
    }
}

/// EXISTS of one list's code beside outer matches in another, which may be null.
#[test]
fn lists_depend_on_the_row_alone() {
    let [few, some, _] = lists();
    let condition = |number| compare(Comparison::Less, some.value(number), Expr::Column(2));
    let if_any = |lookup, number| {
        let exists = some.exists(Code::Lookup(1), number, condition(number));
        Code::If(Box::new(exists), Box::new(Code::Lookup(lookup)))
    };
    let sum = Expr::arithmetic(Arithmetic::Add, few.value(0), some.value(1));
    for is_outer in [false, true] {
        let matches = [
            few.matches(if_any(0, 7), true),
            some.matches(if_any(1, 8), is_outer),
            few.matches(if_any(0, 9), is_outer),
        ];
        check(
            &matches[..2],
            &Filter::Constant(true),
            &sum,
            &few.value(0),
            1_500,
        );
        let outer = Expr::or(vec![Expr::Unmatched(Code::Match(1)), condition(1)]);
        check(&matches, &Filter::Expr(outer), &sum, &few.value(2), 500);
    }
}

/// Codes of lists may be listed, computed, or for some rows only.
#[test]
fn lists_have_any_code() {
    let [few, some, many] = lists();
    let key = Expr::arithmetic(Arithmetic::Add, Expr::Column(0), int(3));
    let probe = Code::Probe(Box::new(key), table());
    let listed: Vec<u32> = (0..KEYS).map(|code| code * 11 % KEYS).collect();
    let listed = Code::Listed(Box::new(Code::Lookup(0)), payload(&listed));
    let less = compare(Comparison::Less, some.value(7), Expr::Column(2));
    let exists = some.exists(Code::Lookup(1), 7, less);
    let some_rows = Code::If(Box::new(exists), Box::new(Code::Lookup(0)));
    // the value of a code that a match is listed with
    let all: Vec<u32> = (0..200).map(|index| index % 50).collect();
    let of_match = Code::Listed(Box::new(Code::Match(0)), payload(&all));
    let value = Expr::Payload(of_match.clone(), Arc::clone(&many.values));
    for is_outer in [false, true] {
        for code in [&probe, &listed, &some_rows] {
            let matches = [few.matches(code.clone(), is_outer)];
            for filter in [
                Filter::Constant(true),
                Filter::Expr(Expr::Unmatched(of_match.clone())),
                Filter::Expr(compare(Comparison::Less, value.clone(), Expr::Column(1))),
            ] {
                check(
                    &matches,
                    &filter,
                    &value,
                    &Expr::Id(of_match.clone()),
                    2_500,
                );
            }
        }
    }
}

#[test]
fn exists_keeps_a_row_once() {
    let [few, some, many] = lists();
    let (column, lookup) = (Expr::Column, Code::Lookup);
    let less = |list: &List, number| compare(Comparison::Less, list.value(number), column(1));
    let differs = compare(Comparison::NotEqual, many.value(8), column(2));
    let never = compare(Comparison::Less, many.value(8), int(-1));
    let last = compare(
        Comparison::Equal,
        Expr::cast(Expr::Id(Code::Match(8)), Type::I64),
        int(2_990),
    );
    let of_both = Expr::arithmetic(Arithmetic::Add, few.value(5), some.value(6));
    let of_both = compare(Comparison::Equal, of_both, column(2));
    // for a match of one list, some match of another
    let nested = few.exists(lookup(0), 5, some.exists(lookup(1), 6, of_both));
    let listed: Vec<u32> = (0..200).map(|index| index % KEYS).collect();
    let of_match = Code::Listed(Box::new(Code::Match(5)), payload(&listed));
    let deeper = compare(Comparison::Less, some.value(6), few.value(5));
    let dependent = few.exists(lookup(0), 5, !some.exists(of_match, 6, deeper));
    let conditions = [
        few.exists(lookup(0), 5, less(&few, 5)),
        few.exists(lookup(0), 5, !less(&few, 5)),
        few.exists(lookup(0), 5, Expr::is_null(few.value(5))),
        many.exists(lookup(0), 8, differs),
        many.exists(lookup(0), 8, never),
        many.exists(lookup(0), 8, last),
        nested,
        dependent,
    ];
    let large = Filter::Expr(compare(Comparison::Less, int(30), column(1)));
    for condition in conditions {
        for condition in [condition.clone(), !condition.clone()] {
            let filter = Filter::Expr(condition.clone());
            check(&[], &filter, &column(2), &column(1), 1_200);
            let either = Filter::Or(vec![filter.clone(), large.clone()]);
            check(&[], &either, &column(2), &condition, 1_200);
            let matches = [some.matches(lookup(1), true)];
            check(&matches, &filter, &some.value(0), &condition, 600);
        }
    }
    // a condition on the match that a row is combined with
    let other = compare(Comparison::Equal, few.value(5), some.value(0));
    let exists = few.exists(lookup(0), 5, other);
    for is_outer in [false, true] {
        let matches = [some.matches(lookup(1), is_outer)];
        for condition in [exists.clone(), !exists.clone()] {
            check(
                &matches,
                &Filter::Expr(condition),
                &some.value(0),
                &exists,
                2_000,
            );
        }
    }
}

#[test]
fn some_matches_are_refused() {
    let [few, ..] = lists();
    let columns = columns(100);
    let error = |matches: &[Matches], filter: Filter, output| {
        run(&pipeline(matches.to_vec(), filter, output), &columns)
            .err()
            .unwrap()
    };
    let counted = || Output::Aggregates(vec![Aggregate::CountRows]);
    let one = few.matches(Code::Lookup(0), false);
    let less = || compare(Comparison::Less, few.value(0), Expr::Column(1));
    let unsupported = [
        (
            vec![one.clone()],
            Filter::Constant(true),
            Output::Rows(vec![Expr::Column(0)]),
        ),
        (
            vec![one.clone()],
            Filter::Or(vec![Filter::Expr(less()), Filter::Matched(1)]),
            counted(),
        ),
        (
            vec![one.clone(), few.matches(Code::Match(0), false)],
            Filter::Constant(true),
            counted(),
        ),
    ];
    for (matches, filter, output) in unsupported {
        let error = error(&matches, filter, output);
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
    let of_other = |number| compare(Comparison::Less, few.value(number), Expr::Column(1));
    let twice = few.exists(
        Code::Lookup(0),
        5,
        few.exists(Code::Lookup(1), 5, of_other(5)),
    );
    let no_condition = few.exists(Code::Lookup(0), 5, few.value(5));
    for expr in [of_other(1), of_other(4), twice, no_condition] {
        let error = error(std::slice::from_ref(&one), Filter::Expr(expr), counted());
        assert!(matches!(error, Error::Internal(_)), "{error}");
    }
}

/// An error of the caller ends the examination of many matches.
#[test]
fn a_run_over_many_matches_ends_early() {
    let most = u32::MAX;
    let code = Code::Lookup(0);
    let matches = || Matches {
        code: code.clone(),
        offset: payload(&[0; KEYS as usize]),
        count: payload(&[most; KEYS as usize]),
        max_count: most,
        is_outer: false,
    };
    let never = Expr::is_null(Expr::Id(Code::Match(9)));
    let exists = Expr::Exists(Box::new(Exists {
        matches: matches(),
        number: 9,
        condition: never,
    }));
    let columns = columns(2_000);
    let encoded = columns.iter().map(|array| {
        let bytes = encode(array, &EncodeOptions::default()).unwrap();
        Column::parse(bytes.into(), array.data_type(), array.len()).unwrap()
    });
    let encoded: Vec<Column> = encoded.collect();
    for (matches, filter) in [
        (vec![matches(), matches()], Filter::Constant(true)),
        (vec![], Filter::Expr(exists)),
    ] {
        let output = Output::Aggregates(vec![Aggregate::CountRows]);
        let pipeline = pipeline(matches, filter, output);
        let mut calls = 0;
        let error = Execution::run(&pipeline, &encoded, 0..2_000, None, &mut |_| {
            calls += 1;
            match calls {
                3 => Err(Error::Unsupported("cancelled".into())),
                _ => Ok(()),
            }
        });
        assert!(error.unwrap_err().to_string().contains("cancelled"));
    }
}
