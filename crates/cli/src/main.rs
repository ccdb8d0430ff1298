//! The vectile command line.
//!
//! Exit codes: 0 done, 1 a query, its data or the machine failed, 2 the command line was wrong,
//! 130 interrupted.

mod allocator;
mod arrange;
mod columns;
mod compressor;
mod connect;
mod contain;
mod convert;
mod copy;
mod create;
mod demo;
mod device;
mod dictionaries;
mod error;
mod float_bounds;
mod format;
mod generate;
mod hits;
mod infer;
mod inspect;
mod intact;
mod interrupt;
mod interruptible;
mod location;
mod merge;
mod nearest;
mod open_file;
mod parquet_schema;
mod parts;
mod paths;
mod print;
mod progress;
mod report;
mod runtime;
mod session;
mod shell;
mod side_by_side;
mod source;
mod sql;
mod ssb;
mod store;
mod text;
mod text_files;
mod text_options;
mod tpcds;
mod tpch;
mod upload;
mod warnings;
mod writer;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::error::{CliError, Result};
use crate::interrupt::Interrupt;

/// Tables that stay compressed and answer SQL
#[derive(Debug, Parser)]
#[command(name = "vectile", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Convert(convert::ConvertArgs),
    Inspect(inspect::InspectArgs),
    Sql(sql::SqlArgs),
    Gen(generate::GenArgs),
    Demo(demo::DemoArgs),
    Device(device::DeviceArgs),
}

fn main() -> ExitCode {
    allocator::keep_freed_memory();
    let cli = Cli::parse();
    warnings::show();
    let result = match cli.command {
        // The shell handles Ctrl-C itself.
        Command::Sql(args) if args.is_interactive() => shell::converse(&args),
        command => start(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn start(command: Command) -> Result<()> {
    let runtime = runtime::workers()?;
    let interrupt = Interrupt::listen()?;
    // On a worker thread, where work may block in place.
    let done = runtime.block_on(runtime.spawn(run(command, interrupt)));
    runtime::end(runtime, Duration::from_secs(1));
    done.unwrap_or_else(|error| Err(CliError::internal(&error)))
}

async fn run(command: Command, interrupt: Interrupt) -> Result<()> {
    match command {
        Command::Convert(args) => convert::run(args, &interrupt).await,
        Command::Gen(args) => generate::run(args, &interrupt).await,
        Command::Demo(args) => demo::run(args, &interrupt).await,
        Command::Device(args) => device::run(&args),
        Command::Inspect(args) => interrupt.or(inspect::run(args)).await,
        Command::Sql(args) => sql::run(args, &interrupt).await,
    }
}
