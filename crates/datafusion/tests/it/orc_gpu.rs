//! ORC columns on the GPU: answers equal the CPU's for each type, and for damaged files.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::physical_plan::{collect, displayable};

use vectile_orc::{Metadata, StreamKind};

use crate::orc::{data, fixture_metadata};
use crate::support::{Fixture, metric};

/// An answer as text, with metrics of its origin.
struct Answer {
    text: String,
    on_gpu: bool,
    fallbacks: usize,
    /// Column chunks that the device decoded.
    decoded: usize,
}

impl Fixture {
    async fn gpu(&self, mode: &str) {
        self.run(&format!("SET vectile.gpu = '{mode}'"))
            .await
            .unwrap();
    }

    async fn traced(&self, sql: &str) -> Result<Answer> {
        let frame = self.ctx.sql(sql).await?;
        let task = frame.task_ctx().into();
        let plan = frame.create_physical_plan().await?;
        let batches = collect(plan.clone(), task).await?;
        let shown = displayable(plan.as_ref()).indent(true).to_string();
        Ok(Answer {
            text: pretty_format_batches(&batches)?.to_string(),
            on_gpu: shown.contains("FusedAggregateExec") || shown.contains("gpu=filter"),
            fallbacks: metric(&plan, "fallbacks"),
            decoded: metric(&plan, "columns_decoded_on_gpu"),
        })
    }

    /// Two values of a column as literals, in ascending order; `None` for types without literals.
    async fn literals(&self, column: &str) -> Option<[String; 2]> {
        let sql = format!("SELECT DISTINCT {column} FROM t WHERE {column} IS NOT NULL ORDER BY 1");
        let batches = self.run(&sql).await.unwrap();
        let schema = batches.first()?.schema();
        let values = concat_batches(&schema, &batches).unwrap();
        let rows = values.num_rows();
        (rows > 0).then(|| [rows / 3, rows * 2 / 3].map(|row| literal(&values, row)))
    }
}

/// A value of the only column.
fn literal(values: &RecordBatch, row: usize) -> String {
    let array = values.column(0);
    let format = ArrayFormatter::try_new(array, &FormatOptions::default()).unwrap();
    let text = format.value(row).to_string();
    match array.data_type() {
        DataType::Binary => format!("X'{text}'"),
        DataType::Utf8 => format!("'{}'", text.replace('\'', "''")),
        of_type => format!("arrow_cast('{text}', '{of_type}')"),
    }
}

/// The queries of a column `{c}`. Each compiles a kernel, which takes a second.
fn queries(of_type: &DataType, nullable: bool, literals: Option<[String; 2]>) -> Vec<String> {
    if of_type.is_nested() {
        return vec!["SELECT {c} FROM t WHERE {c} IS NULL".into()];
    }
    // The last digits of a sum of floats depend on the order of additions.
    let has_sum = of_type.is_integer() || matches!(of_type, DataType::Decimal128(..));
    let all = match has_sum {
        true => "count(*), count({c}), min({c}), max({c}), sum({c})",
        false => "count(*), count({c}), min({c}), max({c})",
    };
    let missing = "count(*) FILTER (WHERE {c} IS NULL)";
    let Some([a, b]) = literals else {
        return vec![format!("SELECT {all}, {missing} FROM t")];
    };
    let (equal, among) = (format!("{{c}} = {a}"), format!("{{c}} IN ({a}, {b})"));
    let mut queries = match of_type {
        // Aggregates have no tests of text.
        DataType::Utf8 | DataType::Binary => vec![
            format!("SELECT {all} FROM t WHERE {equal} OR {{c}} IS NULL"),
            format!("SELECT {all} FROM t WHERE {among}"),
        ],
        _ => {
            let tests = [equal, among].map(|test| format!("count(*) FILTER (WHERE {test})"));
            vec![format!(
                "SELECT {all}, {missing}, {} FROM t",
                tests.join(", ")
            )]
        }
    };
    queries.push(format!("SELECT {all} FROM t WHERE {{c}} < {b}"));
    queries.push(format!(
        "SELECT {{c}} FROM t WHERE {{c}} >= {a} ORDER BY {{c}}"
    ));
    if nullable && !of_type.is_floating() {
        queries.push("SELECT {c}, count(*) FROM t GROUP BY {c} ORDER BY {c}".into());
    }
    queries
}

/// Compares GPU and CPU for all queries of each column of a file.
async fn compare(name: &str) {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    fixture.create("t", &data(name), "").await;
    let schema = fixture.ctx.table("t").await.unwrap().schema().clone();
    let (mut compared, mut on_gpu, mut fell_back, mut decoded) = (0, 0, 0, 0);
    for field in schema.fields() {
        let column = format!("\"{}\"", field.name());
        fixture.gpu("off").await;
        let literals = match field.data_type().is_nested() {
            false => fixture.literals(&column).await,
            true => None,
        };
        let nullable = field.name().contains("nulls");
        for sql in queries(field.data_type(), nullable, literals) {
            let sql = sql.replace("{c}", &column);
            fixture.gpu("off").await;
            let cpu = fixture.traced(&sql).await;
            fixture.gpu("on").await;
            let gpu = fixture.traced(&sql).await;
            let (cpu, gpu) = match (cpu, gpu) {
                (Ok(cpu), Ok(gpu)) => (cpu, gpu),
                // Sums of decimals may overflow.
                (Err(_), Err(_)) => continue,
                (cpu, gpu) => panic!("{name}, {sql}: {:?}, {:?}", cpu.err(), gpu.err()),
            };
            assert_eq!(gpu.text, cpu.text, "{name}, {sql}");
            compared += 1;
            on_gpu += usize::from(gpu.on_gpu);
            fell_back += usize::from(gpu.fallbacks > 0);
            decoded += gpu.decoded;
        }
    }
    println!(
        "{name}: {compared} queries, {on_gpu} on the GPU, {fell_back} of them left to the CPU, {decoded} chunks decoded"
    );
    assert!(on_gpu - fell_back > compared / 3, "{name}");
    assert!(decoded > 0, "{name}: the CPU decoded all of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_of_version_1() {
    compare("integers.v1-none.orc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_of_version_2() {
    compare("integers.v2-none.orc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_of_version_1() {
    compare("types.v1-none.orc").await;
    compare("types.v1-zlib.orc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_of_version_2() {
    compare("types.v2-lz4.orc").await;
    compare("types.v2-snappy.orc").await;
    compare("types.v2-zstd-dictionary.orc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_stripes() {
    compare("scan.stripes.orc").await;
}

/// Files to damage, with columns and their queries. Each query reads one column, since the CPU does not decode others
/// where no row passes a filter. Statistics prune no rows: those of damaged values are wrong, and only the CPU uses
/// those of vectors.
const DAMAGED: [(&str, &[(&str, &str)]); 5] = [
    (
        "types.v1-zlib.orc",
        &[
            ("list", "count(list)"),
            ("long", SUM),
            ("int_nulls", SUM),
            ("short", SUM),
            ("byte_runs", SUM),
            ("cents", SUM),
            ("bool_nulls", "sum(CASE WHEN {c} THEN 1 END), count({c})"),
            (
                "double_nulls",
                "sum(CASE WHEN {c} > 0 THEN 1 END), count({c})",
            ),
            (
                "date_nulls",
                "sum(CASE WHEN {c} > DATE '1970-01-01' THEN 1 END), max({c})",
            ),
            (
                "timestamp",
                "sum(CASE WHEN {c} > TIMESTAMP '1990-01-01T00:00:00' THEN 1 END), min({c})",
            ),
            ("words_nulls", TEXT),
            ("text", TEXT),
        ],
    ),
    (
        "types.v2-zstd-dictionary.orc",
        &[
            ("long_nulls", SUM),
            ("cents_nulls", SUM),
            ("words_nulls", TEXT),
        ],
    ),
    (
        "integers.v1-none.orc",
        &[
            ("random", SUM),
            ("repeated_nulls", SUM),
            ("runs_of_three", SUM),
            ("extremes_nulls", SUM),
        ],
    ),
    (
        "integers.v2-none.orc",
        &[
            ("random", SUM),
            ("outliers_nulls", SUM),
            ("deep_outliers", SUM),
            ("far_outliers", SUM),
            ("repeated", SUM),
            ("down_nulls", SUM),
            ("up", SUM),
        ],
    ),
    (
        "scan.stripes.orc",
        &[
            ("key", SUM),
            ("late", SUM),
            ("amount", SUM),
            ("price", "sum(CASE WHEN {c} > 100 THEN 1 END), max({c})"),
            ("name", TEXT),
            ("flag", "sum(CASE WHEN {c} THEN 1 END)"),
        ],
    ),
];

const SUM: &str = "sum({c}), count({c})";

const TEXT: &str = "count(*) FROM t WHERE {c} LIKE '%b%'";

/// Number of files by default. `ORC_DAMAGED_FILES` overrides it, and `ORC_DAMAGED_FIRST` sets the first seed.
const DAMAGED_FILES: u64 = 250;

/// Files with more rows are skipped: few bytes can encode many rows.
const MAX_ROWS: u64 = 1 << 20;

/// Time limit of a query.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Pseudo-random numbers, reproducible by seed.
struct Random(u64);

impl Random {
    fn of(seed: u64) -> Self {
        let mut random = Self(seed);
        // Consecutive seeds begin alike.
        for _ in 0..4 {
            random.below(1);
        }
        random
    }

    fn below(&mut self, end: usize) -> usize {
        let Self(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % end
    }
}

/// Changes some bytes in these ranges, or cuts the file.
fn damage(bytes: &mut Vec<u8>, ranges: &[Range<u64>], random: &mut Random) {
    if random.below(50) == 0 {
        bytes.truncate(random.below(bytes.len()));
        return;
    }
    for _ in 0..1 + random.below(3) {
        let range = &ranges[random.below(ranges.len())];
        let offset = range.start as usize + random.below((range.end - range.start) as usize);
        match random.below(3) {
            0 => bytes[offset] ^= 1 << random.below(8),
            1 => bytes[offset] = random.below(256) as u8,
            _ => {
                let end = bytes.len().min(offset + 8);
                bytes[offset..end].fill([0, 0xff][random.below(2)]);
            }
        }
    }
}

/// The byte ranges to damage for a query of a column: the streams of the column and its children. Without a filter,
/// also all other bytes; with one, the CPU reads statistics of vectors.
fn damage_ranges(metadata: &Metadata, column: &str, has_filter: bool) -> Vec<Range<u64>> {
    let columns = &metadata.root().children;
    let at = columns.iter().position(|of_type| of_type.path == column);
    let at = at.expect("a column of the file");
    let after = columns.get(at + 1).map_or(u32::MAX, |next| next.column);
    let statistics = [
        StreamKind::RowIndex,
        StreamKind::BloomFilter,
        StreamKind::BloomFilterUtf8,
    ];
    let streams = metadata.stripes().iter().flat_map(|stripe| &stripe.streams);
    let streams = streams.filter(|stream| {
        (columns[at].column..after).contains(&stream.column)
            && !(has_filter && statistics.contains(&stream.kind))
            && !stream.bytes.is_empty()
    });
    let mut damage_ranges: Vec<Range<u64>> = streams.map(|stream| stream.bytes.clone()).collect();
    if !has_filter {
        let last = metadata.stripes().last().expect("a file with rows");
        damage_ranges.push(0..last.bytes.end + 100);
    }
    damage_ranges
}

fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_have_the_same_answers_or_errors() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let fixture = Arc::new(fixture);
    let mut files = vec![];
    for (name, _) in DAMAGED {
        let metadata = fixture_metadata(&data(name)).await.unwrap();
        files.push((fs::read(data(name)).unwrap(), metadata));
    }
    let first = number_from("ORC_DAMAGED_FIRST", 0);
    let count = number_from("ORC_DAMAGED_FILES", DAMAGED_FILES);
    let (mut answers, mut errors, mut unread, mut on_gpu) = (0, 0, 0, 0);
    for number in first..first + count {
        let mut random = Random::of(number);
        let pick = random.below(DAMAGED.len());
        let (name, queries) = DAMAGED[pick];
        let (column, query) = queries[random.below(queries.len())];
        let (whole, metadata) = &files[pick];
        let mut bytes = whole.clone();
        let has_filter = query.contains("WHERE");
        damage(
            &mut bytes,
            &damage_ranges(metadata, column, has_filter),
            &mut random,
        );
        let path = fixture.path(&format!("{number}.orc"));
        fs::write(&path, bytes).unwrap();
        if fixture_metadata(&path)
            .await
            .is_none_or(|metadata| metadata.num_rows() > MAX_ROWS)
        {
            unread += 1;
            fs::remove_file(&path).unwrap();
            continue;
        }
        let from = if query.contains(" FROM ") {
            ""
        } else {
            " FROM t"
        };
        let sql = format!("SELECT {query}{from}").replace("{c}", column);
        let what = format!("{name}, damaged as ORC_DAMAGED_FIRST={number}, {sql}");
        let cpu = run_query(&fixture, &path, "off", &sql, &what).await;
        let gpu = run_query(&fixture, &path, "on", &sql, &what).await;
        match (cpu, gpu) {
            (Ok(cpu), Ok(gpu)) => {
                assert_eq!(gpu.text, cpu.text, "{what}");
                answers += 1;
                on_gpu += usize::from(gpu.on_gpu && gpu.fallbacks == 0);
            }
            (Err(_), Err(_)) => errors += 1,
            (cpu, gpu) => panic!("{what}: CPU: {:?}, GPU: {:?}", cpu.err(), gpu.err()),
        }
        fs::remove_file(&path).unwrap();
    }
    println!(
        "{answers} answers, {on_gpu} of them from the GPU, {errors} errors, {unread} files not opened"
    );
    assert!(count < 100 || (on_gpu > 0 && errors > 0));
}

/// Answers a query of one file, in one of the modes. Fails the test on a panic or a timeout.
async fn run_query(
    fixture: &Arc<Fixture>,
    path: &Path,
    mode: &'static str,
    sql: &str,
    what: &str,
) -> Result<Answer> {
    let create = format!(
        "CREATE EXTERNAL TABLE t STORED AS ORC LOCATION '{}'",
        path.display()
    );
    let (fixture, sql) = (Arc::clone(fixture), sql.to_string());
    let query = tokio::spawn(async move {
        fixture.gpu(mode).await;
        fixture.run(&create).await?;
        let answer = fixture.traced(&sql).await;
        fixture.run("DROP TABLE t").await.unwrap();
        answer
    });
    let Ok(answer) = tokio::time::timeout(TIME_LIMIT, query).await else {
        // The test cannot end while a thread hangs, and its output would be shown only at its end.
        drop(writeln!(io::stderr(), "{what}, {mode}: no answer in time"));
        std::process::abort();
    };
    let answer = answer.unwrap_or_else(|error| panic!("{what}, {mode}: {error}"));
    if let Err(error) = &answer {
        let text = error.to_string();
        assert!(!text.contains("panic"), "{what}, {mode}: {text}");
    }
    answer
}

/// If an index has wrong positions, the CPU decodes that column, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_the_device_cannot_decode_affects_no_other() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let fixture = Arc::new(fixture);
    let whole = fs::read(data("integers.v1-none.orc")).unwrap();
    let metadata = fixture_metadata(&data("integers.v1-none.orc")).await;
    let metadata = metadata.unwrap();
    let columns = &metadata.root().children;
    let column = columns.iter().find(|column| column.path == "random");
    let column = column.unwrap().column;
    let mut streams = metadata.stripes()[0].streams.iter();
    let index = streams
        .find(|stream| stream.kind == StreamKind::RowIndex && stream.column == column)
        .unwrap();
    let sql = "SELECT sum(random), sum(repeated_nulls), sum(runs_of_three) FROM t";
    let of = async |damaged: Option<u64>, mode| {
        let mut bytes = whole.clone();
        let path = fixture.path(&format!("{mode}-{damaged:?}.orc"));
        if let Some(offset) = damaged {
            bytes[offset as usize] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
        run_query(&fixture, &path, mode, sql, "a damaged index").await
    };
    let (cpu, gpu) = (of(None, "off").await, of(None, "on").await);
    let (cpu, all) = (cpu.unwrap(), gpu.unwrap().decoded);
    let mut without_one = 0;
    for offset in index.bytes.clone().step_by(3) {
        let gpu = of(Some(offset), "on").await.unwrap();
        assert_eq!(gpu.text, cpu.text, "byte {offset}");
        assert!(
            gpu.decoded == all || gpu.decoded + 1 == all,
            "byte {offset}"
        );
        without_one += usize::from(gpu.decoded < all);
    }
    assert!(without_one > 0, "{:?}", index.bytes);
}
