//! TPC-H Q1 over columns like those of `lineitem`: eight aggregates of four decimals, for the few groups of two columns
//! of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, StringArray};
use arrow::datatypes::{Date32Type, Decimal128Type};
use serde_json::json;
use vectile_encodings::Encoding;
use vectile_gpu::{Batch, DeviceChunk, Execution, Group};
use vectile_pipeline::{
    Aggregate, Arithmetic, Expr, GroupKey, Literal, Numbers, Output, Pipeline, Type,
};

use crate::bench::{Bench, RUNS, Result, column};
use crate::data::{GROUP_ROWS, Random, between, decimals};
use crate::timing::median;

const ROWS: usize = 60_000_000;
/// The first and the last date of shipping, in days since 1970.
const DAYS: [i64; 2] = [8037, 10561];
const LAST_DAY: i32 = 10471;
/// From this day on, items are open.
const OPEN_DAY: i64 = 9298;

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\nTPC-H Q1");
    let arrays = columns();
    let pipeline = query(&arrays);
    let expected = answer(&arrays)?;
    for (name, pin) in [("as written", None), ("ffor", Some(Encoding::Ffor))] {
        let (bytes, ms, answer) = measure(bench, &pipeline, &arrays, pin)?;
        if answer != expected {
            return Err(format!("{name}: {answer:?} instead of {expected:?}").into());
        }
        let floor = bench.reading(bytes);
        println!(
            "{name}: {} M rows, {:.0} MB: kernel {ms:.4} ms, floor {floor:.4} ms, ratio {:.2}; {} groups",
            ROWS / 1_000_000,
            bytes as f64 / 1e6,
            ms / floor,
            answer.len(),
        );
        let facts = json!({
            "case": name, "rows": ROWS, "bytes": bytes, "ms": ms, "floor_ms": floor,
        });
        bench.record("q1", facts)?;
    }
    Ok(())
}

/// The columns of a row group: date, quantity, price, discount, tax, two texts.
pub fn columns() -> Vec<ArrayRef> {
    let mut random = Random(7);
    let (mut dates, mut quantities, mut prices) = (vec![], vec![], vec![]);
    let (mut discounts, mut taxes) = (vec![], vec![]);
    let (mut flags, mut statuses) = (vec![], vec![]);
    for _ in 0..GROUP_ROWS {
        let (day, quantity) = (random.within(DAYS[0], DAYS[1]), random.within(1, 50));
        dates.push(day as i32);
        quantities.push(i128::from(quantity * 100));
        prices.push(i128::from(quantity * random.within(90_000, 209_899)));
        discounts.push(i128::from(random.within(0, 10)));
        taxes.push(i128::from(random.within(0, 8)));
        let is_open = day > OPEN_DAY;
        let returned = if random.next() % 2 == 0 { "A" } else { "R" };
        flags.push(if is_open { "N" } else { returned });
        statuses.push(if is_open { "O" } else { "F" });
    }
    vec![
        Arc::new(Date32Array::from(dates)),
        decimals(quantities),
        decimals(prices),
        decimals(discounts),
        decimals(taxes),
        Arc::new(StringArray::from(flags)),
        Arc::new(StringArray::from(statuses)),
    ]
}

pub fn query(arrays: &[ArrayRef]) -> Arc<Pipeline> {
    let column = Expr::Column;
    let compute = |op, a: &Expr, b: &Expr| Expr::arithmetic(op, a.clone(), b.clone());
    let one = Expr::Literal(Literal::Int(100, Type::I128));
    let rest = compute(Arithmetic::Subtract, &one, &column(3));
    let taxed = compute(Arithmetic::Add, &one, &column(4));
    let discounted = compute(Arithmetic::Multiply, &column(2), &rest);
    let charged = compute(Arithmetic::Multiply, &discounted, &taxed);
    let sum = Aggregate::Sum;
    Arc::new(Pipeline {
        columns: arrays.iter().map(|a| a.data_type().clone()).collect(),
        lookups: vec![],
        matches: vec![],
        filter: between(0, date(0), date(LAST_DAY)),
        output: Output::Groups(
            vec![GroupKey::DictionaryValue(5), GroupKey::DictionaryValue(6)],
            vec![
                sum(column(1)),
                sum(column(2)),
                sum(discounted),
                sum(charged),
                // the averages
                sum(column(1)),
                sum(column(2)),
                sum(column(3)),
                Aggregate::CountRows,
            ],
        ),
    })
}

fn date(day: i32) -> ArrayRef {
    Arc::new(Date32Array::from(vec![day]))
}

/// The result, by flag and status.
type Answer = Vec<(String, Vec<i128>)>;

/// Bytes on the device, median milliseconds of the kernel, the answer. Text is always a dictionary: otherwise it cannot
/// be grouped by.
pub fn measure(
    bench: &mut Bench,
    pipeline: &Arc<Pipeline>,
    arrays: &[ArrayRef],
    pin: Option<Encoding>,
) -> Result<(usize, f64, Answer)> {
    let image = |array: &ArrayRef| -> Result<DeviceChunk> {
        let pin = match array.data_type().is_primitive() {
            true => pin,
            false => Some(Encoding::Dict),
        };
        Ok(DeviceChunk::build(&column(array, pin)?)?)
    };
    let images = arrays.iter().map(image).collect::<Result<Vec<_>>>()?;
    let copies = ROWS.div_ceil(GROUP_ROWS);
    let groups = bench.groups(&images, copies)?;
    let (mut times, mut answer) = (vec![], vec![]);
    for _ in 0..RUNS + 2 {
        let mut execution = bench.engine.start(Arc::clone(pipeline));
        answer = run_once(&mut execution, &groups)?;
        times.push(execution.statistics().kernel.as_secs_f64() * 1e3);
    }
    let bytes: usize = images.iter().map(|image| image.info().bytes).sum();
    drop(groups);
    bench.engine.clear();
    Ok((bytes * copies, median(&mut times[2..]), answer))
}

fn run_once(execution: &mut Execution, groups: &[Group]) -> Result<Answer> {
    let mut answer: Answer = vec![];
    for groups in execution.group(&Batch::of(groups)?, |_| Ok(()))? {
        for group in 0..groups.count {
            let text = |array: &ArrayRef| -> Result<String> {
                let array = arrow::compute::cast(array, &arrow::datatypes::DataType::Utf8)?;
                Ok(array.as_string::<i32>().value(group).to_string())
            };
            let keys = groups.keys.iter().map(text).collect::<Result<String>>()?;
            let mut values = vec![];
            for total in &groups.totals {
                values.push(i128::from(total.counts[group]));
                match &total.values {
                    Numbers::Int(sums) => values.extend(sums.get(group)),
                    Numbers::Float(_) | Numbers::Text(_) => {
                        return Err("a sum of no integers".into());
                    }
                }
            }
            answer.push((keys, values));
        }
    }
    answer.sort_unstable();
    Ok(answer)
}

/// The answer computed by the CPU.
fn answer(arrays: &[ArrayRef]) -> Result<Answer> {
    let dates = arrays[0].as_primitive::<Date32Type>();
    let numbers: Vec<_> = arrays[1..5]
        .iter()
        .map(|array| array.as_primitive::<Decimal128Type>())
        .collect();
    let texts: Vec<_> = arrays[5..]
        .iter()
        .map(|array| array.as_string::<i32>())
        .collect();
    let mut groups: BTreeMap<String, (i128, [i128; 5])> = BTreeMap::new();
    for row in (0..dates.len()).filter(|row| dates.value(*row) <= LAST_DAY) {
        let key = texts.iter().map(|text| text.value(row)).collect();
        let (count, sums) = groups.entry(key).or_default();
        let number = |at: usize| numbers[at].value(row);
        let discounted = number(1) * (100 - number(2));
        let charged = discounted * (100 + number(3));
        *count += 1;
        let values = [number(0), number(1), discounted, charged, number(2)];
        sums.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
    }
    let copies = ROWS.div_ceil(GROUP_ROWS) as i128;
    let all = groups.into_iter().map(|(key, (count, sums))| {
        let mut values = vec![];
        for sum in [0, 1, 2, 3, 0, 1, 4] {
            values.extend([count * copies, sums[sum] * copies]);
        }
        values.push(count * copies);
        (key, values)
    });
    Ok(all.collect())
}
