//! The interactive shell: DataFusion's own, over our session.

use std::io::IsTerminal;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use datafusion_cli::exec::exec_from_repl;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};

use crate::error::{CliError, Result};

/// Rows shown of a result; `\maxrows` is not a command, but LIMIT is.
const MAX_ROWS: usize = 100;

/// Reads statements until `\q` or the end of input.
pub async fn run(
    context: &SessionContext,
    registry: Arc<InstrumentedObjectStoreRegistry>,
) -> Result<()> {
    let mut options = PrintOptions {
        format: PrintFormat::Automatic,
        quiet: false,
        maxrows: MaxRows::Limited(MAX_ROWS),
        color: std::io::stdout().is_terminal(),
        instrumented_registry: registry,
    };
    exec_from_repl(context, &mut options)
        .await
        .map_err(|error| CliError::failed(format!("the shell ended: {error}")))
}
