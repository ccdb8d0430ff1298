//! `vectile sql` with an emulated GPU, for the differential fuzzer: `sql_fuzz.py --subject emulated`.
//!
//! It takes the arguments that the fuzzer passes to `vectile sql`, and no others. `EMULATED_SEED` determines the order
//! in which threads run, see [`CpuDevice::set_seed`]. `--gpu-build-from-rows=N` and `--no-key-table-cache` change
//! [`GpuTuning`], as in the command line. With `--plain` it is DataFusion alone, without rules of Vectile:
//! an answer that is wrong there, too, is DataFusion's.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use arrow::csv::Writer;
use datafusion::common::{Result, exec_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::DFParser;
use futures::TryStreamExt;
use vectile_datafusion::{Gpu, GpuTuning, VectileOptions, register_with_gpu};
use vectile_emulator::CpuDevice;
use vectile_gpu::Engine;

/// As in the command line: plans are deep.
const STACK: usize = 32 << 20;

fn main() -> ExitCode {
    match parse().and_then(|given| on_workers(run(given))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments.
struct Arguments {
    script: String,
    /// `NAME=FOLDER` of each table.
    tables: Vec<String>,
    is_plain: bool,
    tuning: GpuTuning,
}

fn parse() -> Result<Arguments> {
    let mut arguments = std::env::args().skip(1);
    let (mut script, mut tables, mut is_plain) = (None, vec![], false);
    let mut tuning = GpuTuning::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-f" => script = arguments.next(),
            "-t" => tables.extend(arguments.next()),
            "--plain" => is_plain = true,
            "--no-key-table-cache" => tuning.keep_key_tables = false,
            _ => {
                if let Some(rows) = argument.strip_prefix("--gpu-build-from-rows=") {
                    let rows = rows.parse();
                    tuning.build_from_rows = rows.or_else(|_| exec_err!("{argument}"))?;
                }
            }
        }
    }
    match script {
        Some(path) => Ok(Arguments {
            script: std::fs::read_to_string(path)?,
            tables,
            is_plain,
            tuning,
        }),
        None => {
            exec_err!("usage: emulated sql --format csv -f SCRIPT [-t NAME=FOLDER].. [--plain]")
        }
    }
}

fn on_workers(work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let workers = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(STACK)
        .enable_all()
        .build()?;
    let done = workers.block_on(workers.spawn(work));
    done.unwrap_or_else(|error| exec_err!("{error}"))
}

async fn run(arguments: Arguments) -> Result<()> {
    let context = session(arguments.is_plain, arguments.tuning)?;
    for table in &arguments.tables {
        let Some((name, folder)) = table.split_once('=') else {
            return exec_err!("-t {table}: not NAME=FOLDER");
        };
        let create = format!("CREATE EXTERNAL TABLE {name} STORED AS VECTILE LOCATION '{folder}'");
        context.sql(&create).await?.collect().await?;
    }
    for statement in DFParser::parse_sql(&arguments.script)? {
        let state = context.state();
        let plan = state.statement_to_plan(statement).await?;
        let frame = context.execute_logical_plan(plan).await?;
        let mut batches = execute_stream(frame.create_physical_plan().await?, context.task_ctx())?;
        let mut rows = Writer::new(vec![]);
        while let Some(batch) = batches.try_next().await? {
            rows.write(&batch)?;
        }
        stdout().write_all(&rows.into_inner())?;
        stdout().flush()?;
    }
    Ok(())
}

fn session(is_plain: bool, tuning: GpuTuning) -> Result<SessionContext> {
    let config = SessionConfig::new().with_information_schema(true).set_bool(
        "datafusion.execution.listing_table_ignore_subdirectory",
        false,
    );
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .build();
    let context = SessionContext::new_with_state(state);
    if is_plain {
        return Ok(context.enable_url_table());
    }
    let seed = std::env::var("EMULATED_SEED").unwrap_or_default();
    let seed = seed.parse().unwrap_or(0);
    let device = CpuDevice::new()
        .map(|device| device.with_seed(seed))
        .map_err(|error| error.to_string());
    let gpu = match device {
        Ok(device) => Gpu::new(Engine::new(Arc::new(device))),
        Err(reason) => Gpu::none(reason),
    };
    register_with_gpu(&context, gpu)?;
    let state = context.state_ref();
    let mut state = state.write();
    let extensions = &mut state.config_mut().options_mut().extensions;
    if let Some(options) = extensions.get_mut::<VectileOptions>() {
        options.gpu_tuning = tuning;
    }
    drop(state);
    Ok(context)
}
