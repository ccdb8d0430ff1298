//! Claim: one core encodes lineitem at 350 MB/s of Arrow memory or more, zone maps included.
//!
//! `cargo run --release --bin encode -- [SCALE [TABLE]]`, default 0.2 lineitem. Every column chunk
//! is decoded again and compared.

use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat_batches;
use vectile_benches::report::print_table;
use vectile_benches::{Result, data};
use vectile_encodings::{Column, EncodeOptions, ZoneMap, alternatives, encode};

const ROW_GROUP_ROWS: usize = 1 << 18;
const BATCH_ROWS: usize = 8192;
const RUNS: usize = 3;

/// Bytes of the values of an array, including strings outside of their views.
fn arrow_bytes(array: &ArrayRef) -> Result<usize> {
    let outside = match array.as_string_view_opt() {
        Some(strings) => strings.total_buffer_bytes_used(),
        None => 0,
    };
    Ok(array.to_data().get_slice_memory_size()? + outside)
}

struct Row {
    name: String,
    encoding: String,
    arrow: usize,
    encoded: usize,
    /// Estimated time of `encode` spent on choosing.
    choose: f64,
    encode: f64,
    zones: f64,
    decode: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scale: f64 = args.first().map_or(Ok(0.2), |s| s.parse())?;
    let table = args.get(1).map_or("lineitem", String::as_str);
    let (schema, batches) = data::batches(table, scale);
    let all = concat_batches(&schema, &batches.collect::<Vec<_>>())?;
    let mut columns: Vec<Row> = schema
        .fields()
        .iter()
        .map(|field| Row {
            name: field.name().clone(),
            encoding: String::new(),
            arrow: 0,
            encoded: 0,
            choose: 0.0,
            encode: 0.0,
            zones: 0.0,
            decode: 0.0,
        })
        .collect();
    for start in (0..all.num_rows()).step_by(ROW_GROUP_ROWS) {
        let group = all.slice(start, ROW_GROUP_ROWS.min(all.num_rows() - start));
        for (array, row) in group.columns().iter().zip(&mut columns) {
            // a separate copy, so that its memory is that of these rows
            let array = arrow::compute::concat(&[array.as_ref(), array.slice(0, 0).as_ref()])?;
            row.arrow += arrow_bytes(&array)?;
            let best = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
                let mut best = f64::MAX;
                for _ in 0..RUNS {
                    let start = Instant::now();
                    work()?;
                    best = best.min(start.elapsed().as_secs_f64());
                }
                Ok(best)
            };
            let mut bytes = vec![];
            row.choose += best(&mut || {
                std::hint::black_box(alternatives(&array)?);
                Ok(())
            })?;
            row.encode += best(&mut || Ok(bytes = encode(&array, &EncodeOptions::default())?))?;
            row.zones +=
                best(&mut || Ok(row.encoded += ZoneMap::of(&array)?.encode()?.len() / RUNS))?;
            row.encoded += bytes.len();
            let column = Column::parse(bytes.into(), array.data_type(), array.len())?;
            row.encoding = column.describe();
            row.decode += best(&mut || {
                for start in (0..array.len()).step_by(BATCH_ROWS) {
                    std::hint::black_box(
                        column.decode(start..(start + BATCH_ROWS).min(array.len()))?,
                    );
                }
                Ok(())
            })?;
            assert_eq!(&column.decode(0..array.len())?, &array, "{}", row.name);
        }
    }
    println!("{table} at scale {scale}, one core, best of {RUNS}; MB/s of Arrow memory\n");
    let total = |value: fn(&Row) -> f64| columns.iter().map(value).sum::<f64>();
    let arrow = total(|r| r.arrow as f64);
    let show = |name: &str,
                encoding: &str,
                arrow: f64,
                encoded: f64,
                choose: f64,
                encode: f64,
                zones: f64,
                decode: f64| {
        vec![
            name.to_string(),
            encoding.to_string(),
            format!("{:.1}", arrow / 1e6),
            format!("{:.2}", arrow / encoded),
            format!("{:.0}", arrow / 1e6 / choose),
            format!("{:.0}", arrow / 1e6 / encode),
            format!("{:.0}", arrow / 1e6 / zones),
            format!("{:.0}", arrow / 1e6 / (encode + zones)),
            format!("{:.0}", arrow / 1e6 / decode),
        ]
    };
    let mut rows: Vec<_> = columns
        .iter()
        .map(|r| {
            show(
                &r.name,
                &r.encoding,
                r.arrow as f64,
                r.encoded as f64,
                r.choose,
                r.encode,
                r.zones,
                r.decode,
            )
        })
        .collect();
    rows.push(show(
        "all",
        "",
        arrow,
        total(|r| r.encoded as f64),
        total(|r| r.choose),
        total(|r| r.encode),
        total(|r| r.zones),
        total(|r| r.decode),
    ));
    print_table(
        &[
            "column", "encoding", "MB", "ratio", "choose", "encode", "zone map", "both", "decode",
        ],
        &rows,
    );
    Ok(())
}
