//! Star joins over random columns of the shape of the Star Schema Benchmark at scale 20: one query of each flight, over
//! encoded columns and over plain ones.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::UInt32Type;
use serde_json::json;
use vectile_encodings::{Encoding, Pin};
use vectile_gpu::{Batch, DeviceChunk, Group};
use vectile_pipeline::KeyTable;
use vectile_pipeline::{
    Aggregate, Arithmetic, Expr, Filter, GroupKey, Lookup, Numbers, Output, Pipeline,
};

use crate::bench::{Bench, RUNS, Result, pinned};
use crate::data::{GROUP_ROWS, Random, between, i32s, i64s};
use crate::timing::median;

const ROWS: usize = 120_000_000;
const CUSTOMERS: i32 = 600_000;
const SUPPLIERS: i32 = 40_000;
const PARTS: i32 = 1_000_000;
/// The most rows of an order.
const LINES: i64 = 7;
/// The days from 1992 to 1998, months of 30 days.
const DAYS: i32 = 7 * 360;

/// Columns, in the order of [`columns`].
const CUSTOMER: usize = 0;
const SUPPLIER: usize = 1;
const PART: usize = 2;
const DATE: usize = 3;
const REVENUE: usize = 4;
const COST: usize = 5;
const PRICE: usize = 6;
const DISCOUNT: usize = 7;
const QUANTITY: usize = 8;

pub fn run(bench: &mut Bench) -> Result<()> {
    table(bench, "star", "random rows", &columns(1))?;
    table(bench, "star runs", "orders of 1 to 7 rows", &columns(LINES))
}

/// Every query over some columns.
fn table(bench: &mut Bench, name: &str, what: &str, arrays: &[ArrayRef]) -> Result<()> {
    println!("\nStar joins, {} M rows, {what}", ROWS / 1_000_000);
    println!(
        "{:<6} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8}",
        "query",
        "MB",
        "ms",
        "floor",
        "floor/ms",
        "plain MB",
        "plain ms",
        "plain/ms",
        "gpu_* MB",
        "gpu_* ms",
        "plain/ms"
    );
    for query in queries()? {
        let (bytes, ms, result) = measure(bench, &query, arrays, None)?;
        let of_plain = Some(Encoding::Plain.into());
        let (plain_bytes, plain, expected) = measure(bench, &query, arrays, of_plain)?;
        let tiles = measure(bench, &query, arrays, Some(Pin::GpuStar))?;
        let (tile_bytes, tiles, of_tiles) = tiles;
        if result != expected || of_tiles != expected {
            return Err(format!("{}: plain columns give another answer", query.name).into());
        }
        let floor = bench.reading(bytes);
        println!(
            "{:<6} {:>8.0} {ms:>8.4} {floor:>7.4} {:>8.0}% {:>8.0} {plain:>8.4} {:>7.2}x {:>9.0} {tiles:>8.4} {:>7.2}x",
            query.name,
            bytes as f64 / 1e6,
            floor / ms * 100.0,
            plain_bytes as f64 / 1e6,
            plain / ms,
            tile_bytes as f64 / 1e6,
            plain / tiles,
        );
        let facts = json!({
            "case": query.name, "rows": ROWS, "bytes": bytes, "ms": ms, "floor_ms": floor,
            "plain_bytes": plain_bytes, "plain_ms": plain, "tile_bytes": tile_bytes, "tile_ms": tiles,
        });
        bench.record(name, facts)?;
    }
    Ok(())
}

struct Query {
    name: &'static str,
    columns: Vec<usize>,
    lookups: Vec<Lookup>,
    filter: Filter,
    output: Output,
}

fn date_of(day: i32) -> i32 {
    (1992 + day / 360) * 10_000 + (day / 30 % 12 + 1) * 100 + day % 30 + 1
}

/// Columns of orders of up to `lines` rows: customer and day are those of the order.
fn columns(lines: i64) -> Vec<ArrayRef> {
    let mut random = Random(11);
    let mut orders: Vec<usize> = vec![];
    for order in 0.. {
        let left = GROUP_ROWS - orders.len();
        if left == 0 {
            break;
        }
        let own = random.within(1, lines) as usize;
        orders.resize(orders.len() + own.min(left), order);
    }
    let of_orders = |values: Vec<i64>| orders.iter().map(|order| values[*order]).collect();
    let mut numbers = |low: i64, high: i64| -> Vec<i64> {
        (0..GROUP_ROWS).map(|_| random.within(low, high)).collect()
    };
    let narrow = |values: Vec<i64>| i32s(values.into_iter().map(|x| x as i32).collect());
    let days: Vec<i64> = of_orders(numbers(0, i64::from(DAYS) - 1));
    vec![
        narrow(of_orders(numbers(1, CUSTOMERS.into()))),
        narrow(numbers(1, SUPPLIERS.into())),
        narrow(numbers(1, PARTS.into())),
        i32s(days.into_iter().map(|day| date_of(day as i32)).collect()),
        i64s(numbers(81_000, 10_464_950)),
        i64s(numbers(54_060, 125_939)),
        i64s(numbers(90_000, 10_494_950)),
        narrow(numbers(0, 10)),
        narrow(numbers(1, 50)),
    ]
}

/// Random keys from 1 on, each with a code below `count`.
fn some(keys: i32, one_in: u64, count: u32, seed: u64) -> Result<Arc<KeyTable>> {
    let mut random = Random(seed);
    let chosen: Vec<i32> = (1..=keys).filter(|_| random.next() % one_in == 0).collect();
    let codes: Vec<u32> = chosen
        .iter()
        .map(|_| (random.next() % u64::from(count)) as u32)
        .collect();
    Ok(Arc::new(KeyTable::new(&i32s(chosen), &codes, count)?))
}

/// Years from `from` on, each with its code.
fn years(from: i32, count: i32) -> Result<Arc<KeyTable>> {
    let days: Vec<i32> = (0..DAYS)
        .filter(|day| (from..from + count).contains(&(1992 + day / 360)))
        .collect();
    let codes: Vec<u32> = days
        .iter()
        .map(|day| (1992 + day / 360 - from) as u32)
        .collect();
    let keys = i32s(days.into_iter().map(date_of).collect());
    Ok(Arc::new(KeyTable::new(&keys, &codes, count as u32)?))
}

fn queries() -> Result<Vec<Query>> {
    let lookup = |column, key_table| Lookup { column, key_table };
    let column = |at| Box::new(Expr::Column(at));
    let number = |x: i32| i32s(vec![x]);
    let found = |count: usize| -> Vec<Filter> { (0..count).map(Filter::Matched).collect() };
    let sum = |at| Aggregate::Sum(Expr::Column(at));
    let mut tests = vec![
        between(2, number(1), number(3)),
        between(3, number(1), number(24)),
    ];
    tests.push(Filter::Matched(0));
    let first = Query {
        name: "Q1.1",
        columns: vec![DATE, PRICE, DISCOUNT, QUANTITY],
        lookups: vec![lookup(0, years(1993, 1)?)],
        filter: Filter::And(tests),
        output: Output::Aggregates(vec![Aggregate::Sum(Expr::arithmetic(
            Arithmetic::Multiply,
            *column(1),
            Expr::cast(*column(2), vectile_pipeline::Type::I64),
        ))]),
    };
    let second = Query {
        name: "Q2.1",
        columns: vec![SUPPLIER, PART, DATE, REVENUE],
        lookups: vec![
            lookup(2, years(1992, 7)?),
            lookup(1, some(PARTS, 25, 40, 2)?),
            lookup(0, some(SUPPLIERS, 5, 1, 1)?),
        ],
        filter: Filter::And(found(3)),
        output: Output::Groups(vec![GroupKey::Code(0), GroupKey::Code(1)], vec![sum(3)]),
    };
    let third = Query {
        name: "Q3.1",
        columns: vec![SUPPLIER, CUSTOMER, DATE, REVENUE],
        lookups: vec![
            lookup(1, some(CUSTOMERS, 5, 5, 3)?),
            lookup(0, some(SUPPLIERS, 5, 5, 1)?),
            lookup(2, years(1992, 6)?),
        ],
        filter: Filter::And(found(3)),
        output: Output::Groups((0..3).map(GroupKey::Code).collect(), vec![sum(3)]),
    };
    let profit = Expr::arithmetic(Arithmetic::Subtract, *column(4), *column(5));
    let fourth = Query {
        name: "Q4.1",
        columns: vec![SUPPLIER, CUSTOMER, PART, DATE, REVENUE, COST],
        lookups: vec![
            lookup(3, years(1992, 7)?),
            lookup(1, some(CUSTOMERS, 5, 5, 3)?),
            lookup(0, some(SUPPLIERS, 5, 1, 1)?),
            lookup(2, some(PARTS, 2, 1, 4)?),
        ],
        filter: Filter::And(found(4)),
        output: Output::Groups(
            vec![GroupKey::Code(0), GroupKey::Code(1)],
            vec![Aggregate::Sum(profit)],
        ),
    };
    Ok(vec![first, second, third, fourth])
}

/// The result, in any order.
type Answer = Vec<(Vec<u32>, i128)>;

/// Bytes on the device, median milliseconds of the kernel, the answer.
fn measure(
    bench: &mut Bench,
    query: &Query,
    arrays: &[ArrayRef],
    pin: Option<Pin>,
) -> Result<(usize, f64, Answer)> {
    let arrays: Vec<&ArrayRef> = query.columns.iter().map(|at| &arrays[*at]).collect();
    let images = arrays
        .iter()
        .map(|array| Ok(DeviceChunk::build(&pinned(array, pin)?)?))
        .collect::<Result<Vec<DeviceChunk>>>()?;
    let copies = ROWS.div_ceil(GROUP_ROWS);
    let groups = bench.groups(&images, copies)?;
    let pipeline = Arc::new(Pipeline {
        columns: arrays.iter().map(|a| a.data_type().clone()).collect(),
        lookups: query.lookups.clone(),
        matches: vec![],
        filter: query.filter.clone(),
        output: query.output.clone(),
    });
    let (mut times, mut answer) = (vec![], vec![]);
    for _ in 0..RUNS + 2 {
        let mut execution = bench.engine.start(Arc::clone(&pipeline));
        answer = run_once(&mut execution, &pipeline, &groups)?;
        times.push(execution.statistics().kernel.as_secs_f64() * 1e3);
    }
    let bytes: usize = images.iter().map(|image| image.info().bytes).sum();
    drop(groups);
    bench.engine.clear();
    Ok((bytes * copies, median(&mut times[2..]), answer))
}

fn run_once(
    execution: &mut vectile_gpu::Execution,
    pipeline: &Pipeline,
    groups: &[Group],
) -> Result<Answer> {
    let mut answer: Answer = vec![];
    if let Output::Aggregates(_) = &pipeline.output {
        execution.aggregate(&Batch::of(groups)?)?;
        for total in execution.totals() {
            answer.push((vec![total.count as u32], i128::from(total.count)));
        }
        return Ok(answer);
    }
    for groups in execution.group(&Batch::of(groups)?, |_| Ok(()))? {
        for group in 0..groups.count {
            let code = |array: &ArrayRef| array.as_primitive::<UInt32Type>().value(group);
            let keys: Vec<u32> = groups.keys.iter().map(code).collect();
            let sum = match &groups.totals[0].values {
                Numbers::Int(sums) => sums[group],
                Numbers::Float(_) | Numbers::Text(_) => return Err("a sum of no integers".into()),
            };
            answer.push((keys, sum));
        }
    }
    answer.sort_unstable();
    Ok(answer)
}
