//! Rows that count once per match, compared with nested loops on the CPU.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, UInt32Array};
use arrow::datatypes::{Int32Type, Int64Type};
use vectile_emulator::{CpuDevice, Recorder};
use vectile_gpu::{Batch, Driver, Engine, Error, Group, Tier, compile_cubin, nvrtc};
use vectile_pipeline::{
    Aggregate, Arithmetic, Comparison, Exists, Expr, Filter, GroupKey, Literal, Lookup, Matches,
    Number, Numbers, Output, PayloadColumn, Pipeline, Type,
};
use vectile_pipeline::{Code, KeyTable};

use crate::support::{Input, driver, input, table};

const ROWS: i64 = 9_000;
/// Number of keys that have matches.
const KEYS: u32 = 40;

/// A multimap: per code, offset and count of its matches, and the value of each match.
struct List {
    first: Vec<u32>,
    count: Vec<u32>,
    /// An upper bound of the counts.
    most: u32,
    values: Vec<Option<i64>>,
}

impl List {
    /// A multimap with up to `most` matches per key.
    fn new(most: u32) -> Self {
        let count: Vec<u32> = (0..KEYS).map(|key| 1 + key * 7 % most).collect();
        let mut end = 0;
        let first = count.iter().map(|count| {
            end += count;
            end - count
        });
        let first: Vec<u32> = first.collect();
        let values = (0..end.into()).map(|at: i64| (at % 9 != 4).then_some(at * 31 % 50));
        Self {
            first,
            most: count.iter().copied().max().unwrap(),
            count,
            values: values.collect(),
        }
    }

    /// The values of a key's matches.
    fn of(&self, key: Option<i64>) -> &[Option<i64>] {
        let Some(key) = key.filter(|key| (0..KEYS.into()).contains(key)) else {
            return &[];
        };
        let first = self.first[key as usize] as usize;
        &self.values[first..first + self.count[key as usize] as usize]
    }

    fn matches(&self, code: Code, is_outer: bool) -> Matches {
        let attribute = |of: &[u32]| PayloadColumn::new(Arc::new(UInt32Array::from(of.to_vec())));
        Matches {
            code,
            offset: attribute(&self.first),
            count: attribute(&self.count),
            max_count: self.most,
            is_outer,
        }
    }

    /// The value of the current match.
    fn value(&self, number: usize) -> Expr {
        let values: ArrayRef = Arc::new(Int64Array::from(self.values.clone()));
        Expr::Payload(Code::Match(number), PayloadColumn::new(values))
    }
}

/// Two columns of keys, some of them null and some without a match, and one of large values.
fn inputs() -> Vec<Input> {
    let rows = || 0..ROWS;
    vec![
        input(
            Int32Array::from_iter(rows().map(|row| (row % 13 != 5).then_some((row % 53) as i32))),
            None,
        ),
        input(
            Int64Array::from_iter_values(rows().map(|row| row * 7919 % 47)),
            None,
        ),
        input(
            Int64Array::from_iter(
                rows().map(|row| (row % 7 != 3).then_some((row * 13 % 101 - 20) << 54)),
            ),
            None,
        ),
    ]
}

/// The values of a row.
fn row_of(inputs: &[Input], row: usize) -> [Option<i64>; 3] {
    [0, 1, 2].map(|number| {
        let array = &inputs[number].array;
        array.is_valid(row).then(|| match number {
            0 => array.as_primitive::<Int32Type>().value(row).into(),
            _ => array.as_primitive::<Int64Type>().value(row),
        })
    })
}

/// A row, with one match from each list.
struct Combination {
    row: [Option<i64>; 3],
    matches: [Option<i64>; 2],
}

struct Case {
    lists: [List; 2],
    is_outer: bool,
    /// True if the case has the second list.
    has_both: bool,
}

impl Case {
    fn combinations(&self, inputs: &[Input]) -> Vec<Combination> {
        let mut all = vec![];
        for row in 0..ROWS as usize {
            let row = row_of(inputs, row);
            let of = |list: &List, key| match list.of(key) {
                [] if self.is_outer => vec![None],
                some => some.to_vec(),
            };
            let second = match self.has_both {
                true => of(&self.lists[1], row[1]),
                false => vec![None],
            };
            for first in of(&self.lists[0], row[0]) {
                all.extend(second.iter().map(|second| Combination {
                    row,
                    matches: [first, *second],
                }));
            }
        }
        all
    }

    fn pipeline(&self, inputs: &[Input], filter: Filter, output: Output) -> Arc<Pipeline> {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..KEYS.into()));
        let own: Vec<u32> = (0..KEYS).collect();
        let lookups = [0, 1].map(|column| Lookup {
            column,
            key_table: Arc::new(KeyTable::new(&keys, &own, KEYS).unwrap()),
        });
        let lists = self.lists.iter().enumerate();
        let lists = lists.take(1 + usize::from(self.has_both));
        let matches = lists.map(|(number, list)| list.matches(Code::Lookup(number), self.is_outer));
        Arc::new(Pipeline {
            columns: inputs.iter().map(|i| i.array.data_type().clone()).collect(),
            lookups: lookups.to_vec(),
            matches: matches.collect(),
            filter,
            output,
        })
    }

    /// The number of combinations, sum and count of the rows' values, sum and maximum of the matches' values, and the
    /// sum of both if there are both.
    fn aggregates(&self) -> Vec<Aggregate> {
        let value = self.lists[0].value(0);
        let both = Expr::arithmetic(Arithmetic::Add, Expr::Column(1), value.clone());
        vec![
            Aggregate::CountRows,
            Aggregate::Sum(Expr::Column(2)),
            Aggregate::Count(Expr::Column(2)),
            Aggregate::Sum(value.clone()),
            Aggregate::Max(value),
            Aggregate::Sum(both),
        ]
    }

    fn expected<'a>(
        &self,
        of: impl Iterator<Item = &'a Combination> + Clone,
    ) -> Vec<(u64, Option<i128>)> {
        let sum = |values: Vec<i64>| {
            let sum = values.iter().map(|value| i128::from(*value)).sum::<i128>();
            (values.len() as u64, (!values.is_empty()).then_some(sum))
        };
        let all = |f: &dyn Fn(&Combination) -> Option<i64>| of.clone().filter_map(f).collect();
        let large: Vec<i64> = all(&|of| of.row[2]);
        let own: Vec<i64> = all(&|of| of.matches[0]);
        let both = all(&|of| Some(of.row[1]? + of.matches[0]?));
        let most = own.iter().max().map(|most| i128::from(*most));
        let rows = of.clone().count() as u64;
        vec![
            (rows, Some(rows.into())),
            sum(large.clone()),
            (large.len() as u64, Some(large.len() as i128)),
            sum(own.clone()),
            (own.len() as u64, most),
            sum(both),
        ]
    }
}

fn cases() -> Vec<Case> {
    let case = |is_outer, has_both| Case {
        lists: [List::new(6), List::new(3)],
        is_outer,
        has_both,
    };
    vec![
        case(false, false),
        case(true, false),
        case(false, true),
        case(true, true),
        // counts of 64 bits; combinations are counted first
        with_most(case(false, true), 1 << 16),
    ]
}

/// The case with `most` as upper bound of the counts.
fn with_most(mut case: Case, most: u32) -> Case {
    case.lists.iter_mut().for_each(|list| list.most = most);
    case
}

/// A join filter (the match's value is less than the row's key), and a test of the row alone.
fn filter(list: &List) -> Filter {
    let less = Expr::compare(Comparison::Less, list.value(0), Expr::Column(1));
    let not_null = !Expr::is_null(Expr::Column(2));
    Filter::And(vec![Filter::Expr(less), Filter::Expr(not_null)])
}

fn passes(of: &Combination) -> bool {
    let less = of.matches[0].zip(of.row[1]);
    less.is_some_and(|(value, key)| value < key) && of.row[2].is_some()
}

fn groups(engine: &Engine, inputs: &[Input]) -> Vec<Group> {
    table(engine, inputs, 4096)
}

/// The rows on a device, with generated kernels and with the interpreter.
fn loaded() -> Vec<(Arc<Engine>, Vec<Input>, Batch)> {
    let Some(driver) = driver() else {
        return vec![];
    };
    let of_tier = |tier| {
        let (engine, inputs) = (Engine::new(Arc::clone(&driver)), inputs());
        engine.set_tier(tier);
        let batch = Batch::of(&groups(&engine, &inputs)).unwrap();
        (engine, inputs, batch)
    };
    [Tier::Generated, Tier::Interpreted].map(of_tier).into()
}

#[test]
fn totals_are_of_all_combinations() {
    for (engine, inputs, batch) in loaded() {
        for case in cases() {
            let all = case.combinations(&inputs);
            for is_filtered in [false, true] {
                let filter = match is_filtered {
                    false => Filter::Constant(true),
                    true => filter(&case.lists[0]),
                };
                let output = Output::Aggregates(case.aggregates());
                let mut execution = engine.start(case.pipeline(&inputs, filter, output));
                execution.aggregate(&batch).unwrap();
                let actual = execution.totals().into_iter().map(|total| {
                    let value = total.value.map(|value| match value {
                        Number::Int(value) => value,
                        Number::Float(value) => panic!("{value}"),
                    });
                    (total.count, value)
                });
                let of = all.iter().filter(|of| !is_filtered || passes(of));
                let expected = case.expected(of);
                for ((count, value), expected) in actual.zip(&expected) {
                    assert_eq!((count, value), *expected);
                }
            }
        }
    }
}

#[test]
fn groups_are_of_all_combinations() {
    for (engine, inputs, batch) in loaded() {
        for case in cases() {
            let all = case.combinations(&inputs);
            let keys = vec![GroupKey::Value(case.lists[0].value(0)), GroupKey::Code(1)];
            let output = Output::Groups(keys, case.aggregates());
            let pipeline = case.pipeline(&inputs, filter(&case.lists[0]), output);
            let actual = engine.start(pipeline).group(&batch, |_| Ok(())).unwrap();
            let mut expected: BTreeMap<_, Vec<&Combination>> = BTreeMap::new();
            for of in all.iter().filter(|of| passes(of)) {
                let code = of.row[1].filter(|key| *key < KEYS.into());
                expected.entry((of.matches[0], code)).or_default().push(of);
            }
            let mut count = 0;
            for groups in &actual {
                for group in 0..groups.count {
                    let [value, code] = &groups.keys[..] else {
                        panic!("{:?}", groups.keys);
                    };
                    let code = code.as_primitive::<arrow::datatypes::UInt32Type>();
                    let code = code.is_valid(group).then(|| code.value(group).into());
                    let value = value.as_primitive::<Int64Type>();
                    let value = value.is_valid(group).then(|| value.value(group));
                    let of = expected[&(value, code)].iter().copied();
                    for (total, (count, sum)) in groups.totals.iter().zip(case.expected(of)) {
                        assert_eq!(total.counts[group], count);
                        match &total.values {
                            // a count has no further value
                            Numbers::Int(values) if values.is_empty() => {
                                assert_eq!(sum, Some(count.into()));
                            }
                            Numbers::Int(values) if count > 0 => {
                                assert_eq!(Some(values[group]), sum)
                            }
                            Numbers::Int(_) => assert_eq!(sum, None),
                            other => panic!("{other:?}"),
                        }
                    }
                    count += 1;
                }
            }
            assert_eq!(count, expected.len());
        }
    }
}

/// Sums of floats of all combinations have the same bits with both. Those of groups are added up in tables, in any order.
#[test]
fn sums_of_floats_are_the_same() {
    let float_of = |number| match number {
        Some(Number::Float(value)) => value,
        other => panic!("{other:?}"),
    };
    let (mut totals, mut grouped) = (vec![], vec![]);
    for (engine, inputs, batch) in loaded() {
        let (mut own_totals, mut own_grouped) = (vec![], vec![]);
        for case in cases() {
            let float = |expr| Expr::cast(expr, Type::F64);
            let third = Expr::Literal(Literal::F64(1.0 / 3.0));
            let own = Expr::arithmetic(Arithmetic::Multiply, float(Expr::Column(2)), third);
            let of_match = float(case.lists[0].value(0));
            let both = Expr::arithmetic(Arithmetic::Multiply, own.clone(), of_match.clone());
            let sums = [own, of_match, both].map(Aggregate::Sum).to_vec();
            for filter in [Filter::Constant(true), filter(&case.lists[0])] {
                let output = Output::Aggregates(sums.clone());
                let pipeline = case.pipeline(&inputs, filter.clone(), output);
                let mut execution = engine.start(pipeline);
                execution.aggregate(&batch).unwrap();
                let floats = execution.totals().into_iter();
                own_totals.extend(floats.map(|total| float_of(total.value).to_bits()));
                let output = Output::Groups(vec![GroupKey::Code(0)], sums[1..].to_vec());
                let pipeline = case.pipeline(&inputs, filter, output);
                for groups in engine.start(pipeline).group(&batch, |_| Ok(())).unwrap() {
                    for total in &groups.totals {
                        let Numbers::Float(values) = &total.values else {
                            panic!("{:?}", total.values);
                        };
                        own_grouped.extend(values.iter().copied());
                    }
                }
            }
        }
        totals.push(own_totals);
        grouped.push(own_grouped);
    }
    let ([generated, interpreted], [groups, interpreted_groups]) = (&totals[..], &grouped[..])
    else {
        return;
    };
    assert_eq!(generated, interpreted);
    assert_eq!(groups.len(), interpreted_groups.len());
    for (a, b) in groups.iter().zip(interpreted_groups) {
        assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} {b}");
    }
}

/// EXISTS: any value of the first list is less than the row's, or null.
fn exists(list: &List, number: usize) -> Expr {
    let value = || Box::new(list.value(number));
    let less = Expr::compare(Comparison::Less, *value(), Expr::Column(1));
    Expr::Exists(Box::new(Exists {
        matches: list.matches(Code::Lookup(0), false),
        number,
        condition: Expr::or(vec![less, Expr::is_null(*value())]),
    }))
}

fn has_exists(list: &List, row: &[Option<i64>; 3]) -> bool {
    let mut values = list.of(row[0]).iter();
    values.any(|value| value.is_none_or(|value| row[1].is_some_and(|key| value < key)))
}

#[test]
fn exists_counts_a_row_once() {
    for (engine, inputs, batch) in loaded() {
        let groups = groups(&engine, &inputs);
        let case = &cases()[0];
        let list = List::new(17);
        for is_there in [true, false] {
            let condition = |number| match is_there {
                true => exists(&list, number),
                false => !exists(&list, number),
            };
            let all = case.combinations(&inputs);
            let stays = |row: &[Option<i64>; 3]| has_exists(&list, row) == is_there;
            // rows that are not combined with matches
            let alone = |filter, output| {
                let mut pipeline = Arc::unwrap_or_clone(case.pipeline(&inputs, filter, output));
                pipeline.matches.clear();
                Arc::new(pipeline)
            };
            let is_large = Expr::compare(
                Comparison::Greater,
                Expr::Column(1),
                Expr::Literal(Literal::Int(30, Type::I64)),
            );
            let either = Filter::Or(vec![Filter::Expr(condition(7)), Filter::Expr(is_large)]);
            let rows = (0..ROWS as usize).map(|row| row_of(&inputs, row));
            for (filter, expected) in [
                (
                    Filter::Expr(condition(0)),
                    rows.clone().filter(|row| stays(row)).count(),
                ),
                (
                    either,
                    rows.filter(|row| stays(row) || row[1].is_some_and(|key| key > 30))
                        .count(),
                ),
            ] {
                assert!(expected > 100 && expected < ROWS as usize - 100);
                let pipeline = alone(filter.clone(), Output::Selection);
                let selected = engine.start(pipeline).select(&groups).unwrap();
                let selected: usize = selected.iter().map(|of| of.count()).sum();
                assert_eq!(selected, expected);
                let pipeline = alone(filter, Output::Rows(vec![Expr::Column(1)]));
                let written = engine.start(pipeline).rows(&groups).unwrap();
                assert_eq!(
                    written.iter().map(|rows| rows.count).sum::<usize>(),
                    expected
                );
            }
            // rows that are combined with matches of another list
            let output = Output::Aggregates(case.aggregates());
            let mut execution =
                engine.start(case.pipeline(&inputs, Filter::Expr(condition(1)), output));
            execution.aggregate(&batch).unwrap();
            let actual = execution.totals().into_iter().map(|total| total.count);
            let expected = case.expected(all.iter().filter(|of| stays(&of.row)));
            let expected = expected.into_iter().map(|(count, _)| count);
            assert_eq!(actual.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}

/// EXISTS has no kernel if its number is not unique, or its condition not a boolean.
#[test]
fn exists_has_a_number_of_its_own() {
    for (engine, inputs, batch) in loaded() {
        let case = &cases()[0];
        let list = &case.lists[0];
        let no_condition = Expr::Exists(Box::new(Exists {
            matches: list.matches(Code::Lookup(0), false),
            number: 1,
            condition: list.value(1),
        }));
        let free = Expr::is_null(list.value(5));
        for (expr, reason) in [
            (exists(list, 0), "others as well"),
            (no_condition, "a condition of type"),
            (free, "no matches 5"),
        ] {
            let output = Output::Aggregates(vec![Aggregate::CountRows]);
            let pipeline = case.pipeline(&inputs, Filter::Expr(expr), output);
            let error = engine.start(pipeline).aggregate(&batch).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}

/// Rows cannot be written once per match, and too many combinations are refused.
#[test]
fn rows_with_matches_have_no_kernel() {
    let Some(engine) = driver().map(Engine::new) else {
        return;
    };
    let (inputs, case) = (inputs(), cases().swap_remove(0));
    let groups = groups(&engine, &inputs);
    let start = |output| engine.start(case.pipeline(&inputs, Filter::Constant(true), output));
    let selected = start(Output::Selection).select(&groups).map(drop);
    let rows = start(Output::Rows(vec![Expr::Column(0)])).rows(&groups);
    for result in [selected, rows.map(drop)] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("not aggregated"), "{error}");
    }
    let pipeline = case.pipeline(&inputs, Filter::Constant(true), Output::Aggregates(vec![]));
    let mut pipeline = Arc::unwrap_or_clone(pipeline);
    pipeline.matches[0].max_count = u32::MAX;
    pipeline.matches[0].count =
        PayloadColumn::new(Arc::new(UInt32Array::from(vec![u32::MAX; KEYS as usize])));
    let result = engine
        .start(Arc::new(pipeline))
        .aggregate(&Batch::of(&groups).unwrap());
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("combinations"), "{error}");
}

/// One row may have more combinations than 32 bits can count.
#[test]
fn totals_count_beyond_32_bits() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new(driver);
    let inputs = [input(Int32Array::from(vec![0]), None)];
    let batch = Batch::of(&table(&engine, &inputs, 1)).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![0]));
    let most = 1 << 16;
    let attribute = |value: u32| PayloadColumn::new(Arc::new(UInt32Array::from(vec![value])));
    let matches = || Matches {
        code: Code::Lookup(0),
        offset: attribute(0),
        count: attribute(most),
        max_count: most,
        is_outer: false,
    };
    let pipeline = Pipeline {
        columns: vec![inputs[0].array.data_type().clone()],
        lookups: vec![Lookup {
            column: 0,
            key_table: Arc::new(KeyTable::new(&keys, &[0], 1).unwrap()),
        }],
        matches: vec![matches(), matches()],
        filter: Filter::Constant(true),
        output: Output::Aggregates(vec![Aggregate::CountRows]),
    };
    let mut execution = engine.start(Arc::new(pipeline));
    execution.aggregate(&batch).unwrap();
    assert_eq!(execution.totals()[0].count, u64::from(most).pow(2));
}

/// A block that may have more combinations than 32 bits can count uses 64 bits.
#[test]
fn counts_have_room_for_all_combinations() {
    let inputs = inputs();
    // a launch is assumed to have at least 2^20 rows
    for (most, is_wide) in [(6, false), (31, false), (64, true)] {
        let Ok(device) = CpuDevice::new() else { return };
        let recorder = Arc::new(Recorder::new(device));
        let engine = Engine::new(Arc::clone(&recorder) as Arc<dyn Driver>);
        let batch = Batch::of(&groups(&engine, &inputs)).unwrap();
        let case = with_most(cases().swap_remove(2), most);
        let keys = vec![GroupKey::Value(Expr::Column(1))];
        let grouped = Output::Groups(keys, case.aggregates());
        let pipeline = |output| case.pipeline(&inputs, Filter::Constant(true), output);
        let grouping = engine.start(pipeline(grouped)).group(&batch, |_| Ok(()));
        let post_aggregation = recorder.take();
        let totals = Output::Aggregates(case.aggregates());
        let adding = engine.start(pipeline(totals)).aggregate(&batch);
        let of_totals = recorder.take();
        assert!(grouping.is_err() && adding.is_err());
        let [post_aggregation, of_totals] = [&post_aggregation[0], &of_totals[0]];
        assert_eq!(
            post_aggregation.contains("count_shared(own_table"),
            !is_wide,
            "{most}"
        );
        assert_eq!(of_totals.contains("u64 s0 = 0"), is_wide, "{most}");
    }
}

#[test]
fn their_kernels_compile() {
    if let Err(error) = nvrtc() {
        return eprintln!("skipped: {error}");
    }
    let recorder = match CpuDevice::new() {
        Ok(device) => Arc::new(Recorder::new(device)),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let engine = Engine::new(Arc::clone(&recorder) as Arc<dyn Driver>);
    let inputs = inputs();
    let batch = Batch::of(&groups(&engine, &inputs)).unwrap();
    let case = cases().swap_remove(3);
    let wide = with_most(cases().swap_remove(3), 1 << 10);
    let keys = vec![GroupKey::Value(case.lists[0].value(0))];
    let groups = Output::Groups(keys, case.aggregates());
    for (case, output) in [
        (&case, Output::Aggregates(case.aggregates())),
        (&case, groups.clone()),
        (&wide, groups),
    ] {
        let Filter::And(mut filters) = filter(&case.lists[0]) else {
            panic!("one filter");
        };
        filters.push(Filter::Expr(exists(&case.lists[1], 2)));
        let pipeline = case.pipeline(&inputs, Filter::And(filters), output.clone());
        let mut execution = engine.start(pipeline);
        let result = match output {
            Output::Groups(..) => execution.group(&batch, |_| Ok(())).map(drop),
            _ => execution.aggregate(&batch),
        };
        let sources = recorder.take();
        assert!(result.is_err() && !sources.is_empty(), "{result:?}");
        for source in sources {
            for architecture in [(8, 0), (9, 0), (10, 0), (12, 0)] {
                let cubin = compile_cubin(&source, architecture).unwrap();
                let used = cubin.resources.first().unwrap();
                let spilled = used.stack + used.spill_loads + used.spill_stores;
                assert_eq!(spilled, 0, "{used:?}");
            }
        }
    }
}
