//! Row groups that do not fit a pipeline or an engine are refused.

use std::sync::Arc;

use arrow::array::{Float32Array, Int32Array, Int64Array};
use arrow::datatypes::DataType;
use vectile_gpu::{Batch, DeviceChunk, Engine, Error, Group, Result};
use vectile_pipeline::{Aggregate, Expr, Filter, GroupKey, Output, Pipeline};

use crate::support::{device, image, input, resident};

fn group(engine: &Engine, images: &[&DeviceChunk]) -> Group {
    Group {
        rows: images[0].rows(),
        columns: images.iter().map(|image| resident(engine, image)).collect(),
    }
}

fn integers() -> DeviceChunk {
    image(&input(Int32Array::from_iter_values(0..2000), None))
}

/// Runs the pipeline with each kind of output.
fn run(engine: &Arc<Engine>, columns: &[DataType], groups: &[Group]) -> Vec<Result<()>> {
    let value = || Expr::Column(0);
    let start = |output| {
        engine.start(Arc::new(Pipeline {
            columns: columns.to_vec(),
            lookups: vec![],
            matches: vec![],
            filter: Filter::Constant(true),
            output,
        }))
    };
    let aggregates = || vec![Aggregate::Max(value())];
    let keys = vec![GroupKey::Value(value())];
    let batch = || Batch::of(groups);
    vec![
        batch().and_then(|batch| start(Output::Aggregates(aggregates())).aggregate(&batch)),
        batch().and_then(|batch| {
            let grouped = start(Output::Groups(keys, aggregates())).group(&batch, |_| Ok(()));
            grouped.map(|_| ())
        }),
        start(Output::Selection).select(groups).map(|_| ()),
        start(Output::Rows(vec![value()])).rows(groups).map(|_| ()),
    ]
}

#[track_caller]
fn refused(results: Vec<Result<()>>, reason: &str) {
    for result in results {
        match result {
            Err(Error::Mismatch(found)) => assert_eq!(found, reason),
            other => panic!("{other:?} where it should be refused: {reason}"),
        }
    }
}

#[test]
fn row_groups_that_do_not_fit_the_pipeline_are_refused() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let groups = [group(&engine, &[&integers()])];
    for result in run(&engine, &[DataType::Int32], &groups) {
        result.unwrap();
    }
    for (columns, reason) in [
        (
            &[DataType::Int64][..],
            "column 0 is Int32 where Int64 belongs",
        ),
        (
            &[DataType::Float32],
            "column 0 is Int32 where Float32 belongs",
        ),
        (
            &[DataType::Date32],
            "column 0 is Int32 where Date32 belongs",
        ),
        (
            &[DataType::Int32, DataType::Int32],
            "1 columns where 2 belong",
        ),
        (&[DataType::Utf8], "column 0 is Int32 where Utf8 belongs"),
        (
            &[DataType::Utf8View, DataType::Binary],
            "1 columns where 2 belong",
        ),
        (&[], "1 columns where 0 belong"),
    ] {
        refused(run(&engine, columns, &groups), reason);
    }
}

#[test]
fn chunks_of_another_engine_are_refused() {
    let (Some(one), Some(other)) = (device(), device()) else {
        return;
    };
    let (one, other) = (Engine::new(one), Engine::new(other));
    let groups = [group(&one, &[&integers()])];
    let columns = [DataType::Int32];
    refused(
        run(&other, &columns, &groups),
        "column 0 is of another engine",
    );
    let mixed = [groups[0].clone(), group(&other, &[&integers()])];
    let reason = "chunks of several engines in a column";
    refused(run(&one, &columns, &mixed), reason);
}

#[test]
fn row_groups_may_differ_only_in_rows() {
    let Some(device) = device() else { return };
    let engine = Engine::new(device);
    let one = group(&engine, &[&integers()]);
    let floats = image(&input(Float32Array::from(vec![1.5; 100]), None));
    let longs = image(&input(Int64Array::from(vec![7; 100]), None));
    for (other, reason) in [
        (&[&floats][..], "Float32 beside Int32 in a column"),
        (&[&longs], "Int64 beside Int32 in a column"),
        (&[&longs, &longs], "2 columns beside 1"),
    ] {
        let groups = [one.clone(), group(&engine, other)];
        refused(run(&engine, &[DataType::Int32], &groups), reason);
    }
}
