//! Executes the catalogue and compares results with the reference.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::UInt32Type;

use vectile_encodings::{Column, Encoding};
use vectile_gpu::{Batch, Driver, Engine, Error, Group, Tier};
use vectile_pipeline::{
    Aggregate, Expr, GroupKey, Groups, Number, Numbers, Output, Pipeline, Total, Type,
};

use crate::catalog::{Case, Query, catalog, many_columns};
use crate::reference::{self, Data, Expected, Value};
use crate::support::{self, device, driver};

/// Tolerance for sums of floats, relative to the sum of magnitudes.
const SUM_ERROR: f64 = 1e-12;

/// A case on a device.
pub struct Loaded<'a> {
    case: &'a Case,
    engine: Arc<Engine>,
    groups: Vec<Group>,
    arrays: Vec<Vec<ArrayRef>>,
    /// Queries that the CPU has answered as well.
    answered_on_cpu: Cell<usize>,
}

impl<'a> Loaded<'a> {
    pub fn new(case: &'a Case, engine: &Arc<Engine>) -> Self {
        let groups = case.groups.iter();
        Self {
            case,
            engine: Arc::clone(engine),
            groups: groups
                .clone()
                .map(|columns| support::group(engine, columns))
                .collect(),
            arrays: groups
                .map(|columns| columns.iter().map(|c| Arc::clone(&c.array)).collect())
                .collect(),
            answered_on_cpu: Cell::new(0),
        }
    }

    /// Why the engine's tier cannot run a query; `None` if it can. The interpreter's programs then have as many bits as the
    /// query needs.
    fn refusal(&self, query: &Query) -> Option<String> {
        // each overflow makes another program wide
        for _ in 0..4 {
            match self.run(query) {
                Err(Error::Overflow) => {}
                Err(Error::Unsupported(reason)) => return Some(reason),
                _ => return None,
            }
        }
        Some(Error::Overflow.to_string())
    }

    fn run(&self, query: &Query) -> vectile_gpu::Result<()> {
        let mut execution = self.engine.start(self.case.pipeline(query));
        let batch = || Batch::of(&self.groups);
        match query.output {
            Output::Selection => execution.select(&self.groups).map(drop),
            Output::Rows(_) => execution.rows(&self.groups).map(drop),
            Output::Aggregates(_) => batch().and_then(|batch| execution.aggregate(&batch)),
            Output::Groups(..) => {
                batch().and_then(|batch| execution.group(&batch, |_| Ok(())).map(drop))
            }
        }
    }

    /// Runs a query and compares its results.
    pub fn check(&self, query: &Query) {
        let pipeline = self.case.pipeline(query);
        let context = format!("{}, {}: {:?}", self.case.name, query.name, query.filter);
        match &pipeline.output {
            Output::Selection => {
                self.check_selection(&pipeline, &context);
                self.check_on_cpu(&pipeline, vec![Aggregate::CountRows], &context);
            }
            Output::Rows(exprs) => {
                self.check_rows(&pipeline, exprs, &context);
                for expr in exprs {
                    let of = [
                        Aggregate::Count,
                        Aggregate::Sum,
                        Aggregate::Min,
                        Aggregate::Max,
                    ];
                    for aggregate in of.map(|of| of(expr.clone())) {
                        self.check_on_cpu(&pipeline, vec![aggregate], &context);
                    }
                }
            }
            Output::Groups(keys, aggregates) => {
                self.check_groups(keys, aggregates, &pipeline, &context);
            }
            Output::Aggregates(aggregates) => {
                let expected = reference::totals(aggregates, &pipeline, &self.arrays);
                let first = self.totals(&pipeline, &context);
                check_totals(aggregates, &first, &expected, &context);
                if let Some(execution) = self.on_cpu(&pipeline, &context) {
                    let totals = execution.totals().expect(&context);
                    let context = format!("on the CPU, {context}");
                    check_totals(aggregates, &totals, &expected, &context);
                }
                if expected.iter().any(|e| e.magnitude.is_some()) {
                    let bits = |totals: &[Total]| -> Vec<Option<u64>> {
                        totals.iter().map(|t| float_bits(t.value)).collect()
                    };
                    let again = self.totals(&pipeline, &context);
                    assert_eq!(bits(&first), bits(&again), "the same every time: {context}");
                }
            }
        }
    }

    fn check_groups(
        &self,
        keys: &[GroupKey],
        aggregates: &[Aggregate],
        pipeline: &Arc<Pipeline>,
        context: &str,
    ) {
        let expected = reference::grouped(keys, aggregates, pipeline, &self.arrays);
        let mut execution = self.engine.start(Arc::clone(pipeline));
        let batch = Batch::of(&self.groups).expect(context);
        let groups = execution.group(&batch, |_| Ok(())).expect(context);
        check_groups(keys, aggregates, &groups, expected.clone(), context);
        if let Some(mut execution) = self.on_cpu(pipeline, context) {
            let partitions = execution.finish().expect(context).into_iter();
            let groups = partitions.map(|partition| partition.groups().expect(context));
            let groups: Vec<Groups> = groups.collect();
            let context = format!("on the CPU, {context}");
            check_groups(keys, aggregates, &groups, expected, &context);
        }
    }

    /// Compares aggregates of the rows that pass, on the CPU.
    fn check_on_cpu(&self, pipeline: &Pipeline, aggregates: Vec<Aggregate>, context: &str) {
        let output = Output::Aggregates(aggregates.clone());
        let pipeline = Arc::new(Pipeline {
            output,
            ..pipeline.clone()
        });
        let context = format!("on the CPU, {context}");
        if let Some(execution) = self.on_cpu(&pipeline, &context) {
            let expected = reference::totals(&aggregates, &pipeline, &self.arrays);
            let totals = execution.totals().expect(&context);
            check_totals(&aggregates, &totals, &expected, &context);
        }
    }

    /// The same on the CPU; `None` if it has no program.
    fn on_cpu(&self, pipeline: &Arc<Pipeline>, context: &str) -> Option<vectile_cpu::Execution> {
        let mut execution = vectile_cpu::Execution::new(Arc::clone(pipeline));
        for inputs in &self.case.groups {
            let columns: Vec<Column> = inputs.iter().map(support::column).collect();
            let rows = columns.first().map_or(0, Column::len);
            match vectile_cpu::Execution::run(pipeline, &columns, 0..rows, None, &mut |_| Ok(())) {
                Ok(partial) => execution.add(partial).expect(context),
                Err(vectile_pipeline::Error::Unsupported(_)) => return None,
                Err(error) => panic!("{error}, on the CPU, {context}"),
            }
        }
        let values = execution.distinct_values().into_iter();
        let counts = values.map(|values| values.counts().expect(context));
        execution.add_counts(counts.collect()).expect(context);
        self.answered_on_cpu.set(self.answered_on_cpu.get() + 1);
        Some(execution)
    }

    fn totals(&self, pipeline: &Arc<Pipeline>, context: &str) -> Vec<Total> {
        let mut execution = self.engine.start(Arc::clone(pipeline));
        let batch = Batch::of(&self.groups).expect(context);
        execution.aggregate(&batch).expect(context);
        execution.totals()
    }

    fn check_selection(&self, pipeline: &Arc<Pipeline>, context: &str) {
        let mut execution = self.engine.start(Arc::clone(pipeline));
        let selections = execution.select(&self.groups).expect(context);
        assert_eq!(selections.len(), self.groups.len());
        for (group, (selection, columns)) in selections.iter().zip(&self.arrays).enumerate() {
            let expected = reference::passing(&pipeline.filter, &Data::new(pipeline, columns));
            let bits = selection.to_boolean_buffer();
            let wrong = (0..expected.len()).find(|row| bits.value(*row) != expected[*row]);
            if let Some(row) = wrong {
                let values: Vec<ArrayRef> = columns.iter().map(|c| c.slice(row, 1)).collect();
                panic!(
                    "row {row} of group {group}, {values:?}: not {}; {context}",
                    expected[row]
                );
            }
            assert_eq!(bits.len(), expected.len());
        }
    }

    fn check_rows(&self, pipeline: &Arc<Pipeline>, exprs: &[Expr], context: &str) {
        let mut expected: Vec<Vec<(Value, String)>> = vec![vec![]; exprs.len()];
        let mut counts = vec![];
        for (group, columns) in self.arrays.iter().enumerate() {
            let passes = reference::passing(&pipeline.filter, &Data::new(pipeline, columns));
            counts.push(passes.iter().filter(|passes| **passes).count());
            for (expr, expected) in exprs.iter().zip(&mut expected) {
                let values = reference::evaluate(expr, &Data::new(pipeline, columns))
                    .into_iter()
                    .enumerate();
                let selected = values.filter(|(row, _)| passes[*row]);
                expected.extend(
                    selected.map(|(row, value)| (value, format!("row {row} of group {group}"))),
                );
            }
        }
        let mut execution = self.engine.start(Arc::clone(pipeline));
        let rows = execution.rows(&self.groups).expect(context);
        let actual: Vec<usize> = rows.iter().map(|rows| rows.count).collect();
        assert_eq!(actual, counts, "{context}");
        for (group, rows) in self.groups.iter().zip(&rows) {
            let columns = if group.rows == 0 { 0 } else { exprs.len() };
            assert_eq!(rows.columns.len(), columns, "{context}");
            let right = rows.columns.iter().all(|array| array.len() == rows.count);
            assert!(right, "{context}");
        }
        for (column, expr) in exprs.iter().enumerate() {
            let Expr::Column(at) = expr else { continue };
            if Type::of(&pipeline.columns[*at]).is_some() {
                continue;
            }
            for (columns, rows) in self.arrays.iter().zip(&rows) {
                let passes = reference::passing(&pipeline.filter, &Data::new(pipeline, columns));
                let expected = filter(&columns[*at], &BooleanArray::from(passes)).unwrap();
                assert_eq!(&rows.columns[column], &expected, "{context}");
            }
        }
        for (column, (expr, expected)) in exprs.iter().zip(expected).enumerate() {
            let arrays = rows.iter().filter_map(|rows| rows.columns.get(column));
            let values = arrays.flat_map(reference::values_of);
            for (actual, (expected, location)) in values.zip(expected) {
                assert!(
                    actual.same(expected),
                    "{expr:?} at {location}: {actual:?} for {expected:?}; {context}"
                );
            }
        }
    }
}

fn float_bits(number: Option<Number>) -> Option<u64> {
    match number {
        Some(Number::Float(value)) => Some(value.to_bits()),
        _ => None,
    }
}

fn check_total(actual: Total, expected: Expected, context: &str) {
    assert_eq!(actual.count, expected.count, "{context}");
    let (actual, value) = match (actual.value, expected.value) {
        (None, None) => return,
        (Some(Number::Int(actual)), Some(Value::Int(value))) => {
            assert_eq!(actual, value, "{context}");
            return;
        }
        (Some(Number::Float(actual)), Some(value)) => (actual, value.double()),
        other => panic!("{other:?}: {context}"),
    };
    match expected.magnitude {
        None => assert_eq!(
            actual.to_bits(),
            value.to_bits(),
            "{actual} for {value}: {context}"
        ),
        Some(magnitude) if magnitude.is_finite() => {
            let error = (actual - value).abs();
            assert!(
                error <= magnitude * SUM_ERROR,
                "{actual} for {value}: {context}"
            );
        }
        // with infinities and NaN, the result depends on the order
        Some(_) => assert!(!actual.is_finite(), "{actual} for {value}: {context}"),
    }
}

/// Runs cases that satisfy `which`: all their queries or, if `few`, one of each kind. Returns the number of queries.
pub fn run(device: Arc<dyn Driver>, few: bool, which: impl Fn(&Case) -> bool) -> usize {
    counted(device, few, which).0
}

/// As [`run`]. Also returns how many answers the CPU has given as well.
fn counted(device: Arc<dyn Driver>, few: bool, which: impl Fn(&Case) -> bool) -> (usize, usize) {
    let engine = Engine::new(device);
    engine.set_tier(Tier::Generated);
    let (mut count, mut on_cpu) = (0, 0);
    for case in catalog().iter().filter(|case| which(case)) {
        let loaded = Loaded::new(case, &engine);
        let mut known = vec![];
        for query in &case.queries {
            if !few || !known.contains(&query.name) {
                known.push(query.name);
                loaded.check(query);
                count += 1;
            }
        }
        on_cpu += loaded.answered_on_cpu.get();
    }
    (count, on_cpu)
}

/// Runs all queries of cases by the interpreter. Returns how many there are, and those that it cannot run, with reasons.
fn interpreted(device: Arc<dyn Driver>, start: &str) -> (usize, Vec<String>) {
    let engine = Engine::new(device);
    engine.set_tier(Tier::Interpreted);
    let (mut count, mut others) = (0, vec![]);
    for case in catalog().iter().filter(|case| case.name.starts_with(start)) {
        let loaded = Loaded::new(case, &engine);
        for query in &case.queries {
            count += 1;
            match loaded.refusal(query) {
                None => loaded.check(query),
                Some(reason) => others.push(format!("{}, {}: {reason}", case.name, query.name)),
            }
        }
    }
    (count, others)
}

/// The interpreter runs plans of more columns than a warp has lanes. Their kernels would compile for minutes, so they are
/// not in the catalogue.
#[test]
fn more_columns_than_lanes() {
    let Some(device) = driver() else { return };
    let engine = Engine::new(device);
    engine.set_tier(Tier::Interpreted);
    let case = many_columns();
    let loaded = Loaded::new(&case, &engine);
    for query in &case.queries {
        assert_eq!(loaded.refusal(query), None, "{}", query.name);
        loaded.check(query);
    }
}

fn check_all(start: &str) {
    let Some(device) = driver() else { return };
    let (count, others) = interpreted(Arc::clone(&device), start);
    assert!(count > 0);
    assert!(others.is_empty(), "refused by the interpreter: {others:?}");
    let (queries, on_cpu) = counted(device, false, |case| case.name.starts_with(start));
    assert!(queries > 0);
    // these read lookups, or text without a dictionary
    assert!(
        on_cpu > 0 || ["stars", "text keys", "functions of text"].contains(&start),
        "no program for {start}"
    );
}

/// A test for each part of the catalogue, so that they run in parallel.
macro_rules! parts {
    ($($name:ident: $start:literal,)*) => {
        const PARTS: &[&str] = &[$($start),*];
        $(
            #[test]
            fn $name() {
                check_all($start);
            }
        )*
    };
}

parts! {
    mixed_encodings: "mixed",
    single_encodings: "single",
    widths: "widths",
    blocks_of_128: "blocks",
    patches: "patches",
    dictionaries: "dictionaries",
    evenly_spaced: "evenly spaced",
    lists: "lists",
    arithmetic: "arithmetic",
    floats: "floats",
    logic: "logic",
    casts: "casts",
    comparisons: "comparisons",
    dates: "dates",
    times: "times",
    decimals: "decimals",
    stars: "stars",
    texts: "texts",
    text_keys: "text keys",
    text_functions: "functions of text",
    few_groups: "few",
}

#[test]
fn every_part_is_tested() {
    for case in catalog() {
        assert!(
            PARTS.iter().any(|part| case.name.starts_with(part)),
            "{}",
            case.name
        );
    }
}

/// The catalogue covers every encoding of every type.
#[test]
fn every_encoding_of_every_type() {
    let mut covered = std::collections::BTreeSet::new();
    for case in catalog() {
        for input in case.groups.iter().flatten() {
            let column = support::column(input);
            covered.insert((format!("{}", column.data_type()), column.encoding()));
        }
    }
    for data_type in crate::catalog::types() {
        let of_type: &[Encoding] = match data_type {
            arrow::datatypes::DataType::Boolean => {
                &[Encoding::Constant, Encoding::Ffor, Encoding::Rle]
            }
            arrow::datatypes::DataType::Float32 | arrow::datatypes::DataType::Float64 => &[
                Encoding::Constant,
                Encoding::Plain,
                Encoding::Ffor,
                Encoding::Delta,
                Encoding::Rle,
                Encoding::Dict,
                Encoding::Alp,
                Encoding::AlpRd,
            ],
            _ => &[
                Encoding::Constant,
                Encoding::Plain,
                Encoding::Ffor,
                Encoding::Delta,
                Encoding::Rle,
                Encoding::Dict,
            ],
        };
        for encoding in of_type {
            assert!(
                covered.contains(&(format!("{data_type}"), *encoding)),
                "{encoding} {data_type}"
            );
        }
    }
}

/// The emulator runs threads of a block in other orders: reversed and shuffled.
#[test]
fn other_schedules() {
    let Some(device) = device() else { return };
    for seed in 1..4 {
        device.set_seed(seed);
        let part = |case: &Case| {
            ["single", "patches of", "dictionaries", "logic"]
                .iter()
                .any(|s| case.name.starts_with(s))
        };
        assert!(run(device.clone(), true, part) > 10);
    }
}

fn check_totals(aggregates: &[Aggregate], totals: &[Total], expected: &[Expected], context: &str) {
    assert_eq!(totals.len(), expected.len(), "{context}");
    for (aggregate, (actual, expected)) in aggregates.iter().zip(totals.iter().zip(expected)) {
        let context = format!("{aggregate:?} of {context}");
        check_total(*actual, *expected, &context);
    }
}

fn check_groups(
    keys: &[GroupKey],
    aggregates: &[Aggregate],
    all: &[Groups],
    mut expected: reference::Grouped,
    context: &str,
) {
    for groups in all {
        assert_eq!(groups.keys.len(), keys.len(), "{context}");
        let texts: Vec<Vec<String>> = keys
            .iter()
            .zip(&groups.keys)
            .map(|(key, array)| match key {
                GroupKey::Value(_) => {
                    let values = reference::values_of(array).into_iter();
                    values.map(|value| format!("{value:?}")).collect()
                }
                GroupKey::DictionaryValue(_) | GroupKey::Mapped(..) => reference::texts_of(array),
                GroupKey::Code(_) => {
                    let codes = array.as_primitive::<UInt32Type>().iter();
                    codes.map(|code| format!("{code:?}")).collect()
                }
            })
            .collect();
        for group in 0..groups.count {
            let key: Vec<String> = texts.iter().map(|texts| texts[group].clone()).collect();
            let expected = expected.remove(&key);
            let expected = expected.unwrap_or_else(|| panic!("no group {key:?}: {context}"));
            let totals = groups.totals.iter().zip(aggregates).zip(expected);
            for ((total, aggregate), expected) in totals {
                let context = format!("{aggregate:?} of {key:?} of {context}");
                let count = total.counts[group];
                let value = match &total.values {
                    Numbers::Int(values) if values.is_empty() => Number::Int(count.into()),
                    Numbers::Int(values) => Number::Int(values[group]),
                    Numbers::Float(values) => Number::Float(values[group]),
                    Numbers::Text(_) => panic!("extremes of text"),
                };
                let has_value = matches!(
                    aggregate,
                    Aggregate::Sum(_) | Aggregate::Min(_) | Aggregate::Max(_)
                );
                let value = Some(value).filter(|_| !has_value || count > 0);
                check_total(Total { count, value }, expected, &context);
            }
        }
    }
    let left: Vec<_> = expected.keys().take(3).collect();
    assert!(
        left.is_empty(),
        "{} groups are missing, {left:?}: {context}",
        expected.len()
    );
}
