//! Variances and standard deviations on the GPU, which the emulator stands in for.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use datafusion::arrow::array::{Decimal128Array, Float32Array, Int32Array, Int64Array};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Float64Type};

use crate::support::{Fixture, metric};

const ROWS: usize = 60_000;

/// Numbers that are hard cases for variances, as `plain` and `packed`. `None`, with a message, without a C++ compiler.
async fn fixture(mode: &str) -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    let hash = |i: usize| (i.wrapping_mul(2_654_435_761) % 1_000_003) as f64;
    let floats = |of: &dyn Fn(usize) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..ROWS).map(of)))
    };
    let ints = |of: &dyn Fn(usize) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(of)))
    };
    let price = Decimal128Array::from_iter_values((0..ROWS).map(|i| i as i128 * 7919 % 10_000_000));
    let price = price.with_precision_and_scale(15, 2).unwrap();
    let some = (0..ROWS).map(|i| (i % 7 != 3).then(|| (hash(i) as i32) % 1000 - 500));
    let small = (0..ROWS).map(|i| hash(i) as f32 / 1e5 - 4.0);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", ints(&|i| i as i64)),
        ("few", ints(&|i| i as i64 % 5)),
        ("some", ints(&|i| i as i64 * 31 % 700)),
        ("many", ints(&|i| (i as i64 * 31 % 20_000) << 33)),
        ("int", Arc::new(Int32Array::from_iter(some))),
        ("big", ints(&|i| hash(i) as i64 * 2_000 - 1_000_000_000)),
        ("price", Arc::new(price)),
        ("float", floats(&|i| hash(i) / 1e3 - 400.0)),
        ("single", Arc::new(Float32Array::from_iter_values(small))),
        ("far", floats(&|i| 1e7 + hash(i) % 97.0)),
        ("same", floats(&|_| 0.1)),
        ("level", floats(&|i| (i % 5) as f64 * 1e6 + hash(i) % 9.0)),
        ("steps", floats(&|i| (i % 5) as f64 * 0.7)),
        (
            "odd",
            floats(&|i| match i % 5 {
                0 if i % 1000 == 0 => f64::NAN,
                1 if i % 1000 == 1 => f64::INFINITY,
                2 if i % 1000 == 2 => f64::NEG_INFINITY,
                _ => hash(i),
            }),
        ),
        ("huge", floats(&|i| (hash(i) % 3.0 - 1.0) * 1e160)),
    ];
    let columns = columns
        .into_iter()
        .map(|(name, values)| (name, values, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    fixture.ctx.register_batch("plain", batch).unwrap();
    let path = fixture.path("packed.vectile");
    let copy = format!(
        "COPY plain TO '{}' STORED AS VECTILE OPTIONS (row_group_rows 16384)",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed", &path).await;
    let set = format!("SET vectile.gpu = '{mode}'");
    fixture.run(&set).await.unwrap();
    Some(fixture)
}

/// Returns true if two results are equal except for the last digits. If squares overflow, DataFusion returns infinity
/// or NaN, depending on partitions.
fn are_close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs() || (!a.is_finite() && !b.is_finite()),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl Fixture {
    async fn numbers(&self, sql: &str) -> RecordBatch {
        let frame = self.ctx.sql(sql).await.unwrap();
        let schema = Arc::clone(frame.schema().inner());
        match frame.collect().await {
            Ok(batches) => concat_batches(&schema, &batches).unwrap(),
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    /// Asserts that `sql` has the same answer on both tables, and on the second one twice.
    async fn close(&self, sql: &str) {
        let [plain, packed, repeated] = [
            self.numbers(&sql.replace("{t}", "plain")).await,
            self.numbers(&sql.replace("{t}", "packed")).await,
            self.numbers(&sql.replace("{t}", "packed")).await,
        ];
        assert_eq!(plain.num_rows(), packed.num_rows(), "{sql}");
        let columns = plain.columns().iter().zip(packed.columns());
        for ((plain, packed), repeated) in columns.zip(repeated.columns()) {
            let [plain, packed, repeated] = [plain, packed, repeated]
                .map(|column| cast(column, &DataType::Float64).unwrap())
                .map(|column| column.as_primitive::<Float64Type>().clone());
            for (row, (expected, actual)) in plain.iter().zip(&packed).enumerate() {
                let is_close = are_close(actual, expected);
                assert!(is_close, "{sql}, row {row}: {actual:?} for {expected:?}");
                let repeated = repeated.is_valid(row).then(|| repeated.value(row));
                assert!(
                    are_close(repeated, actual),
                    "{sql}, row {row}: {repeated:?}, {actual:?}"
                );
            }
        }
    }
}

/// All four functions of a column.
fn all(of: &str) -> String {
    let functions = ["var_pop", "var_samp", "stddev_pop", "stddev_samp"];
    let functions = functions.map(|function| format!("{function}({of})"));
    functions.join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variances_are_those_of_the_cpu() {
    let Some(fixture) = fixture("require").await else {
        return;
    };
    for of in [
        "int",
        "big",
        "price",
        "float",
        "single",
        "far",
        "same",
        "odd",
        "huge",
        "level",
        "float * 2.0 - 1.0",
        "int + 1",
        "price * 2",
    ] {
        fixture
            .close(&format!("SELECT {} FROM {{t}}", all(of)))
            .await;
    }
    let many = format!(
        "SELECT {}, avg(float), sum(int), count(int) FROM {{t}}",
        all("float")
    );
    fixture.close(&many).await;
    for filter in [
        "id < 0",
        "id = 7",
        "id = 3",
        "id < 2",
        "float > 0 AND few = 2",
    ] {
        let sql = format!(
            "SELECT {}, {}, stddev(price) FILTER (WHERE few = 1), var(float) FILTER (WHERE id < 900) \
             FROM {{t}} WHERE {filter}",
            all("int"),
            all("float")
        );
        fixture.close(&sql).await;
    }
    // The variance of constants is exactly zero.
    for sql in [
        "SELECT var_pop(same), stddev_samp(same), var_pop(few) FILTER (WHERE few = 4) FROM packed",
        "SELECT var_pop(steps), stddev_samp(steps), var_pop(few) FROM packed GROUP BY few",
        "SELECT var_pop(steps), stddev_samp(steps), var_pop(few) FROM packed GROUP BY few, some",
    ] {
        for column in fixture.numbers(sql).await.columns() {
            let mut values = column.as_primitive::<Float64Type>().values().iter();
            assert!(
                values.len() > 0 && values.all(|value| *value == 0.0),
                "{sql}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variances_of_groups_are_those_of_the_cpu() {
    let Some(fixture) = fixture("require").await else {
        return;
    };
    // Numbered groups in threads, in blocks and in a table, and hashed groups.
    for key in ["few", "some", "id / 4", "many"] {
        for of in ["int", "price", "float", "far", "odd", "huge"] {
            let is_spread = ["few", "some"].contains(&key);
            // Groups of a few values may lie close together.
            if is_spread || ["int", "price"].contains(&of) {
                let of = all(of);
                let sql = format!("SELECT {key}, {of} FROM {{t}} GROUP BY 1 ORDER BY 1");
                fixture.close(&sql).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_close_together_and_far_apart_are_left_to_the_cpu() {
    let Some(fixture) = fixture("on").await else {
        return;
    };
    for of in ["level", "far", "float"] {
        let sql = format!("SELECT few, {} FROM {{t}} GROUP BY 1 ORDER BY 1", all(of));
        fixture.close(&sql).await;
    }
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    let sql = "SELECT few, stddev(level) FROM packed GROUP BY few";
    let error = fixture.run(sql).await.unwrap_err().to_string();
    let reason = "values that are too close together for stddev(packed.level)";
    assert!(error.contains(reason), "{error}");
}

#[tokio::test]
async fn values_far_from_zero_take_a_second_launch() {
    let Some(fixture) = fixture("require").await else {
        return;
    };
    for (of, launches) in [("float", 1), ("price", 1), ("far", 2), ("big", 1)] {
        let sql = format!("SELECT stddev({of}) FROM packed");
        let (plan, rows) = fixture.executed(&sql).await;
        assert_eq!((rows, metric(&plan, "launches")), (1, launches), "{of}");
    }
}

#[tokio::test]
async fn plans_say_which_variances_are_fused() {
    let Some(fixture) = fixture("on").await else {
        return;
    };
    for (sql, expected) in [
        (
            "SELECT stddev(float), var_pop(int) FROM packed",
            "FusedAggregateExec: aggr=[stddev(packed.float), var_pop(packed.int)], columns=[float, int]",
        ),
        ("SELECT var(DISTINCT int) FROM packed", "no kernel for "),
        (
            "SELECT corr(float, far) FROM packed",
            "not_on_gpu=no kernel for corr(packed.float,packed.far)",
        ),
    ] {
        let plan = fixture.plan(sql).await;
        assert!(plan.contains(expected), "{sql}\n{plan}");
    }
    fixture
        .close("SELECT var(DISTINCT int), corr(float, int) FROM {t}")
        .await;
}
