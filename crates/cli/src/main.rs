//! The vectile command line.
//!
//! Exit codes: 0 done, 1 a query, its data or the machine failed, 2 the command line was wrong,
//! 130 interrupted.

mod convert;
mod copy;
mod demo;
mod device;
mod dictionaries;
mod error;
mod format;
mod generate;
mod inspect;
mod interrupt;
mod location;
mod merge;
mod parts;
mod print;
mod progress;
mod report;
mod session;
mod shell;
mod source;
mod sql;
mod ssb;
mod text;
mod tpch;
mod upload;
mod writer;

use std::io::Write;
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
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report(&CliError::from(error)),
    };
    let result = runtime.block_on(start(cli.command));
    // What a cancelled query was still doing is cleaned up, or else left behind.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

async fn start(command: Command) -> Result<()> {
    match command {
        // The shell has its own idea of Ctrl-C, and stays on this thread.
        Command::Sql(args) if args.is_interactive() => sql::converse(&args).await,
        // The others run on a worker thread, where work that blocks may block in place.
        command => {
            let interrupt = Interrupt::listen()?;
            let done = tokio::spawn(run(command, interrupt)).await;
            done.unwrap_or_else(|error| Err(CliError::failed(format!("internal error: {error}"))))
        }
    }
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

fn report(error: &CliError) -> ExitCode {
    if !matches!(error, CliError::BrokenPipe) {
        // If even standard error is gone, the exit code is all there is to say.
        let written = writeln!(std::io::stderr(), "{error}");
        drop(written);
    }
    error.exit_code()
}
