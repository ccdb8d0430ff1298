//! A session with a table in memory and the same table in a Vectile file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StringViewArray,
    StructArray, TimestampMicrosecondArray, UInt8Array,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;
use vectile_datafusion::{
    Gpu, GpuTuning, VectileOptions, VectileReadOptions, VectileSessionContextExt, register,
    register_with_gpu,
};
use vectile_emulator::CpuDevice;
use vectile_gpu::Engine;

/// Rows of the test table: two row groups of 4096 and a ragged one.
pub const ROWS: usize = 10_000;
pub const ROW_GROUP_ROWS: usize = 4096;

pub struct Fixture {
    pub ctx: SessionContext,
    pub dir: TempDir,
}

/// An engine on the emulator; `None`, with a message, without a C++ compiler.
pub fn emulator() -> Option<Arc<Engine>> {
    match CpuDevice::new() {
        Ok(device) => Some(Engine::new(Arc::new(device.without_optimization()))),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Converts the Parquet files of a folder to ORC files with zlib, in a folder below; `None`, with a message, without
/// Python and pyarrow.
pub fn orc_files(folder: &Path) -> Option<PathBuf> {
    let orc = folder.join("orc");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../orc/tests/data/write.py");
    let written = Command::new("python3")
        .arg(script)
        .args(["convert".as_ref(), folder, orc.as_path()])
        .output();
    let skipped = match written {
        Ok(output) if output.status.success() => return Some(orc),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("ModuleNotFoundError"), "{error}");
            "pyarrow"
        }
        Err(_) => "python3",
    };
    eprintln!("skipped: {skipped} is missing");
    None
}

/// Changes what no setting does.
pub fn tune(ctx: &SessionContext, change: impl FnOnce(&mut GpuTuning)) {
    let state = ctx.state_ref();
    let mut state = state.write();
    let extensions = &mut state.config_mut().options_mut().extensions;
    change(&mut extensions.get_mut::<VectileOptions>().unwrap().gpu_tuning);
}

impl Fixture {
    /// A session without tables, with the emulator as its GPU; `None`, with a message, without a C++ compiler.
    pub fn on_emulator() -> Option<Self> {
        emulator().map(|engine| Self::on(Gpu::new(engine)))
    }

    /// A session without tables that has this GPU.
    pub fn on(gpu: Gpu) -> Self {
        let config = SessionConfig::new().with_target_partitions(2);
        let ctx = SessionContext::new_with_config(config);
        register_with_gpu(&ctx, gpu).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self { ctx, dir }
    }

    /// A session with Vectile registered, and an empty directory.
    pub fn empty() -> Self {
        Self::with_config(SessionConfig::new().with_target_partitions(2))
    }

    pub fn with_config(config: SessionConfig) -> Self {
        let ctx = SessionContext::new_with_config(config);
        register(&ctx).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self { ctx, dir }
    }

    /// As [`Self::empty`], with [`table`] as `plain` in memory and as `packed` in a file.
    pub async fn new() -> Self {
        let fixture = Self::empty();
        fixture.add_tables().await;
        fixture
    }

    pub async fn add_tables(&self) {
        let batch = table();
        self.ctx.register_batch("plain", batch).unwrap();
        let path = self.path("packed.vectile");
        self.run(&format!(
            "COPY plain TO '{}' STORED AS VECTILE OPTIONS (row_group_rows {ROW_GROUP_ROWS})",
            path.display()
        ))
        .await
        .unwrap();
        self.register("packed", &path).await;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn register(&self, name: &str, path: &Path) {
        let options = VectileReadOptions::default();
        self.ctx
            .register_vectile(name, path.to_str().unwrap(), options)
            .await
            .unwrap();
    }

    /// Creates a table from a query's rows, in a file of its own.
    pub async fn make(&self, name: &str, query: &str) {
        let path = self.path(&format!("{name}.vectile"));
        let to = path.display();
        let copy = format!("COPY ({query}) TO '{to}' STORED AS VECTILE");
        self.run(&copy).await.unwrap();
        self.register(name, &path).await;
    }

    pub async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.ctx.sql(sql).await?.collect().await
    }

    /// From this many rows of a joined table on, the GPU builds key tables.
    pub fn build_from_rows(&self, rows: usize) {
        tune(&self.ctx, |tuning| tuning.build_from_rows = rows);
    }

    /// If false, each query builds its key tables.
    pub fn keep_key_tables(&self, keep: bool) {
        tune(&self.ctx, |tuning| tuning.keep_key_tables = keep);
    }

    /// The answer, pretty-printed.
    pub async fn answer(&self, sql: &str) -> String {
        let batches = match self.run(sql).await {
            Ok(batches) => batches,
            Err(error) => panic!("{sql}: {error}"),
        };
        pretty_format_batches(&batches).unwrap().to_string()
    }

    /// Asserts that `sql`, which reads `{t}`, has the same answer on both tables, to the bit.
    pub async fn same(&self, sql: &str) -> RecordBatch {
        let answer = async |table: &str| {
            let frame = self.ctx.sql(&sql.replace("{t}", table)).await.unwrap();
            let schema = Arc::clone(frame.schema().inner());
            let batches = match frame.collect().await {
                Ok(batches) => batches,
                Err(error) => panic!("{sql} on {table}: {error}"),
            };
            concat_batches(&schema, &batches).unwrap()
        };
        let plain = answer("plain").await;
        let packed = answer("packed").await;
        if plain.columns() != packed.columns() {
            let print = |batch| pretty_format_batches(&[batch]).unwrap().to_string();
            panic!("{sql}\n{}\n{}", print(plain), print(packed));
        }
        packed
    }

    /// Runs `sql`, and returns its plan and the number of rows.
    pub async fn executed(&self, sql: &str) -> (Arc<dyn ExecutionPlan>, usize) {
        let plan = self
            .ctx
            .sql(sql)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
        let batches = collect(Arc::clone(&plan), self.ctx.task_ctx())
            .await
            .unwrap();
        (plan, batches.iter().map(RecordBatch::num_rows).sum())
    }

    /// The physical plan of `sql` as `EXPLAIN` prints it.
    pub async fn plan(&self, sql: &str) -> String {
        let plan = self
            .ctx
            .sql(sql)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
        let plan = datafusion::physical_plan::displayable(plan.as_ref()).indent(true);
        plan.to_string()
    }
}

/// The sum of a metric over all nodes of a plan; for pruning metrics, of what was pruned.
pub fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own = plan.metrics().map_or(0, |metrics| {
        let values = metrics.iter().map(|metric| metric.value());
        let named = values.filter(|value| value.name() == name);
        named
            .map(|value| match value {
                MetricValue::PruningMetrics {
                    pruning_metrics, ..
                } => pruning_metrics.pruned(),
                value => value.as_usize(),
            })
            .sum()
    });
    own + plan
        .children()
        .into_iter()
        .map(|child| metric(child, name))
        .sum::<usize>()
}

fn column<A: From<Vec<Option<T>>>, T>(value: impl Fn(usize) -> Option<T>) -> A {
    (0..ROWS).map(value).collect::<Vec<_>>().into()
}

/// Columns of many types, with nulls and edge cases. `id` ascends.
pub fn table() -> RecordBatch {
    let hash = |i: usize| i.wrapping_mul(2_654_435_761) % 1_000_003;
    let int: Int32Array = column(|i| (i % 7 != 3).then(|| hash(i) as i32 % 1000 - 500));
    let big: Int64Array = column(|i| match i % 97 {
        0 => Some(i64::MAX),
        1 => Some(i64::MIN),
        2 => None,
        _ => Some(hash(i) as i64 * 1_000_003),
    });
    let byte: UInt8Array = column(|i| Some((hash(i) % 256) as u8));
    let float: Float64Array = column(|i| match i % 50 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(-0.0),
        3 => Some(0.0),
        4 => Some(f64::INFINITY),
        5 => Some(f64::NEG_INFINITY),
        6 => Some(-f64::NAN),
        _ => Some((hash(i) % 10_000) as f64 / 100.0 - 50.0),
    });
    let flag: BooleanArray = column(|i| match i % 3 {
        0 => Some(true),
        1 => Some(false),
        _ => None,
    });
    let date: Date32Array = column(|i| Some(15_000 + (i / 10) as i32));
    let time: TimestampMicrosecondArray =
        column(|i| (i % 11 != 0).then(|| 1_700_000_000_000_000 + i as i64 * 1_000));
    let price: Decimal128Array = column(|i| Some((hash(i) % 100_000) as i128));
    let price = price.with_precision_and_scale(15, 2).unwrap();
    let word = |i: usize| ["apple", "banana", "cherry", "", "élan", "zebra"][hash(i) % 6];
    let name: StringArray = column(|i| (i % 13 != 5).then(|| word(i)));
    let text: StringViewArray = column(|i| Some(format!("{} number {}", word(i), hash(i))));
    let bytes: BinaryArray = BinaryArray::from_iter(
        (0..ROWS).map(|i| (i % 5 != 0).then(|| hash(i).to_le_bytes()[..i % 4].to_vec())),
    );
    let dict: DictionaryArray<Int32Type> =
        (0..ROWS).map(|i| (i % 9 != 0).then(|| word(i))).collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..ROWS).map(|i| (i % 4 != 0).then(|| (0..i as i32 % 3).map(Some).collect::<Vec<_>>())),
    );
    let fields: Fields = vec![
        Field::new("x", DataType::Int32, true),
        Field::new("y", DataType::Utf8, true),
    ]
    .into();
    let children: Vec<ArrayRef> = vec![Arc::new(int.clone()), Arc::new(name.clone())];
    let nested = StructArray::new(fields, children, None);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS as i64))),
        ("int", Arc::new(int)),
        ("big", Arc::new(big)),
        ("byte", Arc::new(byte)),
        ("float", Arc::new(float)),
        ("flag", Arc::new(flag)),
        ("date", Arc::new(date)),
        ("time", Arc::new(time)),
        ("price", Arc::new(price)),
        ("name", Arc::new(name)),
        ("text", Arc::new(text)),
        ("bytes", Arc::new(bytes)),
        ("dict", Arc::new(dict)),
        ("list", Arc::new(list)),
        ("nested", Arc::new(nested)),
        ("void", Arc::new(Int32Array::new_null(ROWS))),
        ("one", Arc::new(StringArray::from(vec!["same"; ROWS]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)))
        .unwrap()
}
