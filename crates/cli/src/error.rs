//! Errors of the command line, and their exit codes.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::text::printable;

/// The result of everything in this program.
pub type Result<T, E = CliError> = std::result::Result<T, E>;

/// Exit code after Ctrl-C, as shells have it: 128 and the number of the signal.
pub const INTERRUPTED: i32 = 130;

/// An error for the user: what happened, and what to do next.
#[derive(Debug)]
pub enum CliError {
    /// The command line itself is wrong. Exit code 2.
    Usage(String),
    /// The query, the data or the machine is at fault. Exit code 1.
    Failed {
        /// The failure, and the file or table it concerns.
        message: String,
        /// A remedy, if one is known.
        hint: Option<String>,
    },
    /// Ctrl-C or a termination request. Exit code 130.
    Interrupted,
    /// The reader of our output has closed it (`vectile ... | head`). Not an error: exit code 0.
    BrokenPipe,
}

impl CliError {
    /// A failure without a hint.
    pub fn failed(message: impl Into<String>) -> Self {
        CliError::Failed {
            message: message.into(),
            hint: None,
        }
    }

    /// Adds a remedy, unless there is one already.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let CliError::Failed { hint, .. } = &mut self {
            hint.get_or_insert_with(|| text.into());
        }
        self
    }

    /// Prefixes the message with the operation that failed.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        if let CliError::Failed { message, .. } = &mut self {
            *message = format!("{doing}: {message}");
        }
        self
    }

    /// Prefixes the message with the file's name, unless the message has it.
    pub fn of_file(self, file: &str) -> Self {
        let name = file.rsplit('/').next().unwrap_or(file);
        match &self {
            CliError::Failed { message, .. } if !message.contains(name) => self.context(file),
            _ => self,
        }
    }

    /// A bug in this program.
    pub fn internal(error: &dyn std::error::Error) -> Self {
        CliError::failed(format!("internal error: {error}"))
    }

    /// Prints the error; returns its exit code.
    pub fn report(&self) -> ExitCode {
        if !matches!(self, CliError::BrokenPipe) {
            // If even standard error is closed, only the exit code reports the error.
            let error = self.to_string();
            drop(writeln!(io::stderr(), "{}", printable(&error)));
        }
        self.exit_code()
    }

    /// The process exit code of this error.
    fn exit_code(&self) -> ExitCode {
        match self {
            CliError::BrokenPipe => ExitCode::SUCCESS,
            CliError::Failed { .. } => ExitCode::from(1),
            CliError::Usage(_) => ExitCode::from(2),
            CliError::Interrupted => ExitCode::from(INTERRUPTED as u8),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Usage(message) => {
                write!(f, "error: {message}\n\nFor more information, try '--help'.")
            }
            CliError::Failed { message, hint } => {
                write!(f, "error: {}", rooted(message))?;
                hint.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
            }
            CliError::Interrupted => write!(f, "interrupted"),
            CliError::BrokenPipe => write!(f, "output closed"),
        }
    }
}

impl std::error::Error for CliError {}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::BrokenPipe,
            _ => CliError::failed(error.to_string()).with_known_hint(),
        }
    }
}

/// The text of `std::io` for the error that ends `vectile ... | head`.
const BROKEN_PIPE: &str = "Broken pipe";

impl From<ArrowError> for CliError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => source.into(),
            // The CSV writer keeps only the text of the underlying error.
            ArrowError::CsvError(text) if text.contains(BROKEN_PIPE) => CliError::BrokenPipe,
            ArrowError::ExternalError(source) => match source.downcast::<DataFusionError>() {
                Ok(error) => (*error).into(),
                Err(source) => CliError::failed(external(source.as_ref())),
            },
            other => CliError::failed(other.to_string()).with_known_hint(),
        }
    }
}

impl From<object_store::Error> for CliError {
    fn from(error: object_store::Error) -> Self {
        CliError::failed(with_sources(&error)).with_known_hint()
    }
}

impl From<parquet::errors::ParquetError> for CliError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        CliError::failed(error.to_string())
    }
}

impl From<vectile_file::Error> for CliError {
    fn from(error: vectile_file::Error) -> Self {
        CliError::failed(with_sources(&error)).with_known_hint()
    }
}

impl From<vectile_encodings::Error> for CliError {
    fn from(error: vectile_encodings::Error) -> Self {
        CliError::failed(error.to_string())
    }
}

impl From<DataFusionError> for CliError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::IoError(source) => source.into(),
            DataFusionError::ArrowError(source, _) => (*source).into(),
            DataFusionError::ObjectStore(source) => (*source).into(),
            DataFusionError::Diagnostic(_, inner) => (*inner).into(),
            // The name of the planner's rule is of no use to the author of the query.
            DataFusionError::Context(text, inner) if text.starts_with("Optimizer rule") => {
                (*inner).into()
            }
            DataFusionError::Context(text, inner) => CliError::from(*inner).context(text),
            DataFusionError::Shared(inner) => match Arc::try_unwrap(inner) {
                Ok(inner) => inner.into(),
                Err(shared) => CliError::failed(message(&shared)).with_known_hint(),
            },
            DataFusionError::External(source) => match source.downcast::<CliError>() {
                Ok(ours) => *ours,
                Err(source) => CliError::failed(external(source.as_ref())).with_known_hint(),
            },
            other => CliError::failed(message(&other)).with_known_hint(),
        }
    }
}

/// The message of the innermost relevant error.
fn message(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Plan(text) => text.replace(DEFAULT_SCHEMA, "'"),
        DataFusionError::Execution(text) => text.clone(),
        DataFusionError::Context(text, inner) if text.starts_with("Optimizer rule") => {
            message(inner)
        }
        DataFusionError::Context(text, inner) => format!("{text}: {}", message(inner)),
        DataFusionError::Diagnostic(_, inner) => message(inner),
        DataFusionError::Shared(inner) => message(inner),
        DataFusionError::External(source) => external(source.as_ref()),
        DataFusionError::ArrowError(source, _) => source.to_string(),
        DataFusionError::ParquetError(source) => source.to_string(),
        DataFusionError::ObjectStore(source) => with_sources(source.as_ref()),
        other => other.strip_backtrace(),
    }
}

/// The schema of tables without one; users did not write it.
const DEFAULT_SCHEMA: &str = "'datafusion.public.";

fn external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<DataFusionError>() {
        Some(error) => message(error),
        None => with_sources(error),
    }
}

impl CliError {
    fn with_known_hint(self) -> Self {
        let CliError::Failed { message, .. } = &self else {
            return self;
        };
        match known_hint(message) {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }
}

/// Restores the leading `/` of local paths in a message: object stores omit it. Applies to paths that exist only with
/// it.
fn rooted(message: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | ')' | '(' | '`');
    let fix = |word: &str| {
        let path = word.trim_end_matches([':', '.']);
        let is_relative = path.contains('/') && !path.starts_with('/') && !path.contains("://");
        let lacks_root = is_relative
            && !Path::new(path).exists()
            && Path::new("/").join(path).symlink_metadata().is_ok();
        if lacks_root { "/" } else { "" }
    };
    let mut text = String::with_capacity(message.len() + 8);
    for piece in message.split_inclusive(ends) {
        let word = piece.trim_end_matches(ends);
        text.push_str(fix(word));
        text.push_str(piece);
    }
    text
}

/// Remedies for errors whose text comes from libraries.
fn known_hint(message: &str) -> Option<&'static str> {
    const HINTS: &[(&str, &str)] = &[
        (
            "No space left on device",
            "free some space on the target disk",
        ),
        (
            "Permission denied",
            "check the permissions of the file and of its directory",
        ),
        (
            "not supported in CSV",
            "write JSON, Parquet or Arrow instead, or leave the column out",
        ),
        (
            "not found in schema",
            "DESCRIBE the table to see its columns; names with capitals need double quotes",
        ),
        (
            "No field named",
            "DESCRIBE the table to see its columns; names with capitals need double quotes",
        ),
        (
            "not found",
            "name a table with -t NAME=PATH, or with CREATE EXTERNAL TABLE ... STORED AS VECTILE LOCATION '...'",
        ),
        (
            "Resources exhausted",
            "raise the limit: SET datafusion.runtime.memory_limit = '4G'",
        ),
    ];
    let table_is_missing = message.contains("table '") && message.contains("not found");
    HINTS
        .iter()
        .filter(|(text, _)| *text != "not found" || table_is_missing)
        .find(|(text, _)| message.contains(text))
        .map(|(_, hint)| *hint)
}

/// An error and its sources on one line, without the repetition in many error types.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_start_at_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        std::fs::write(&path, "").unwrap();
        let path = path.to_str().unwrap();
        let stored = path.trim_start_matches('/');
        assert_eq!(
            rooted(&format!("cannot read {stored}: line 3 of '{stored}', n/a")),
            format!("cannot read {path}: line 3 of '{path}', n/a")
        );
        assert_eq!(rooted(path), path);
    }

    #[test]
    fn layers_are_left_out() {
        let inner = DataFusionError::Execution("it is late".into());
        let error = DataFusionError::External(Box::new(inner));
        let error = DataFusionError::Context("Optimizer rule 'x' failed".into(), Box::new(error));
        let error = DataFusionError::Shared(Arc::new(error));
        assert_eq!(CliError::from(error).to_string(), "error: it is late");
    }
}
