//! From the interpreter to a generated kernel.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{Decimal128Array, Int64Array};
use arrow::datatypes::DataType::Decimal128;
use vectile_encodings::Encoding;
use vectile_gpu::{Batch, Engine, Error, Group, Statistics, Tier};
use vectile_pipeline::{Aggregate, Expr, Filter, Number, Output};

use crate::support::{Input, device, input, start, table};

const ROWS: i64 = 100_000;
/// More kernel time than a plan needs to be compiled, with any number of cores.
const ENOUGH: Duration = Duration::from_secs(2);
/// The background compiles within this time, even on a busy machine.
const MOST: Duration = Duration::from_secs(300);

fn inputs() -> [Input; 1] {
    let values: Int64Array = (0..ROWS).map(|row| row * 37 % 4001).collect();
    [input(values, Some(Encoding::Ffor))]
}

/// Sums a column, and checks the sum.
fn asked(engine: &Arc<Engine>, groups: &[Group]) -> Statistics {
    let output = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
    let mut execution = start(engine, &inputs(), Filter::Constant(true), output);
    execution.aggregate(&Batch::of(groups).unwrap()).unwrap();
    let sum: i128 = (0..ROWS).map(|row| i128::from(row * 37 % 4001)).sum();
    assert_eq!(execution.totals()[0].value, Some(Number::Int(sum)));
    let statistics = execution.statistics();
    assert_eq!(statistics.launches, 1);
    statistics
}

#[test]
fn a_query_that_is_asked_often_gets_a_generated_kernel() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let groups = table(&engine, &inputs(), 32 << 10);
    let asked = || asked(&engine, &groups);
    // the emulator compiles the interpreter only on demand
    engine.set_tier(Tier::Interpreted);
    assert_eq!(asked().launches_interpreted, 1);
    engine.set_tier(Tier::Auto);
    engine.compile_in_background(false);
    let mut spent = Duration::ZERO;
    while spent < ENOUGH {
        let statistics = asked();
        assert_eq!(statistics.launches_interpreted, 1, "nothing compiles");
        spent += statistics.kernel;
    }
    engine.compile_in_background(true);
    let begun = Instant::now();
    while asked().launches_interpreted == 1 {
        assert!(begun.elapsed() < MOST, "no kernel was compiled");
        // queries go on while it compiles
        thread::sleep(Duration::from_millis(1));
    }
    let generated = asked();
    assert_eq!(generated.launches_interpreted, 0);
    assert_eq!(generated.kernels_compiled, 0, "the background compiled it");
    engine.set_tier(Tier::Interpreted);
    assert_eq!(asked().launches_interpreted, 1);
}

#[test]
fn programs_have_128_bits_after_an_overflow() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    engine.compile_in_background(false);
    // the bounds allow more than 64 bits; a single value has them
    let values = |large: i128| -> Vec<i128> { (0..5000).chain([large]).collect() };
    let sum_of = |values: &[i128]| {
        let array = Decimal128Array::from_iter_values(values.iter().copied());
        let inputs = [input(
            array.with_data_type(Decimal128(38, 0)),
            Some(Encoding::Plain),
        )];
        let groups = table(&engine, &inputs, 1 << 10);
        let output = Output::Aggregates(vec![Aggregate::Sum(Expr::Column(0))]);
        let mut execution = start(&engine, &inputs, Filter::Constant(true), output);
        let ran = execution.aggregate(&Batch::of(&groups).unwrap());
        ran.map(|()| (execution.totals()[0].value, execution.statistics()))
    };
    let large = values(1 << 100);
    let expected = Some(Number::Int(large.iter().sum()));
    engine.set_tier(Tier::Interpreted);
    assert!(matches!(sum_of(&large), Err(Error::Overflow)));
    for tier in [Tier::Interpreted, Tier::Auto] {
        engine.set_tier(tier);
        let (sum, statistics) = sum_of(&large).unwrap();
        assert_eq!(sum, expected);
        assert_eq!(
            (statistics.launches_interpreted, statistics.launches),
            (1, 1)
        );
    }
}
