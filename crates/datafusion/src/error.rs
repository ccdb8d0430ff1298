//! Converts errors of the layers below to DataFusion's.
//!
//! The original stays accessible: [`DataFusionError::External`] holds a [`vectile_file::Error`], or that of another
//! format, which names file, row group and column.

#[cfg(feature = "gpu")]
use datafusion::common::exec_datafusion_err;
use datafusion::common::internal_datafusion_err;
use datafusion::error::DataFusionError;

/// An error of writing a file.
pub(crate) fn file(error: vectile_file::Error) -> DataFusionError {
    external(error)
}

/// An error of reading a file.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error of a scan.
pub(crate) fn scan(error: vectile_scan::Error) -> DataFusionError {
    match error {
        // Errors of tests and memory pools are DataFusion's.
        vectile_scan::Error::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => DataFusionError::External(error),
        },
        vectile_scan::Error::Arrow(error) => error.into(),
        vectile_scan::Error::Internal(reason) => internal_datafusion_err!("{reason}"),
        error => DataFusionError::External(Box::new(error)),
    }
}

/// An internal error: the scan needs a column that it did not read.
#[cfg(feature = "gpu")]
pub(crate) fn missing_column(column: usize) -> DataFusionError {
    internal_datafusion_err!("column {column} was not read")
}

/// An error of the GPU, or of a pipeline.
#[cfg(feature = "gpu")]
pub(crate) fn gpu(error: impl Into<vectile_gpu::Error>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}

/// True if there is no kernel for the operation.
#[cfg(feature = "gpu")]
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    is(error, |error| {
        matches!(error, vectile_gpu::Error::Unsupported(_))
    })
}

/// True if there is neither a kernel nor a compiler for it.
#[cfg(feature = "gpu")]
pub(crate) fn is_without_compiler(error: &DataFusionError) -> bool {
    is(error, |error| {
        matches!(error, vectile_gpu::Error::NoCompiler(_))
    })
}

/// Most times that work is tried again because a number did not fit the interpreter.
#[cfg(feature = "gpu")]
const MOST_OVERFLOWS: usize = 8;

/// Attempts at work on the GPU. After a number that did not fit, another program of the interpreter has more bits.
#[cfg(feature = "gpu")]
#[derive(Default)]
pub(crate) struct Attempts(usize);

#[cfg(feature = "gpu")]
impl Attempts {
    /// True if the work that ended so is worth another attempt.
    pub(crate) fn is_next_useful<T>(&mut self, done: &Result<T, DataFusionError>) -> bool {
        self.0 += 1;
        self.0 <= MOST_OVERFLOWS && done.as_ref().is_err_and(is_overflow)
    }
}

/// True if a number did not fit the interpreter.
#[cfg(feature = "gpu")]
fn is_overflow(error: &DataFusionError) -> bool {
    is(error, |error| matches!(error, vectile_gpu::Error::Overflow))
}

/// True for defects of Vectile, which neither query, data nor device cause.
#[cfg(feature = "gpu")]
pub(crate) fn is_internal(error: &DataFusionError) -> bool {
    let root = error.find_root();
    matches!(root, DataFusionError::Internal(_)) || is(root, vectile_gpu::Error::is_internal)
}

/// True if a kernel is not compiled yet.
#[cfg(feature = "gpu")]
pub(crate) fn is_not_compiled(error: &DataFusionError) -> bool {
    is(error, |error| {
        matches!(error, vectile_gpu::Error::NotCompiled)
    })
}

/// True if columns or a kernel are not on the GPU yet.
#[cfg(feature = "gpu")]
pub(crate) fn is_not_ready(error: &DataFusionError) -> bool {
    use vectile_gpu::Error::{NotCompiled, NotLoaded};
    is(error, |error| matches!(error, NotCompiled | NotLoaded))
}

#[cfg(feature = "gpu")]
fn is(error: &DataFusionError, test: impl Fn(&vectile_gpu::Error) -> bool) -> bool {
    match error {
        DataFusionError::External(error) => error.downcast_ref().is_some_and(test),
        _ => false,
    }
}

/// A task for the GPU did not complete.
#[cfg(feature = "gpu")]
pub(crate) fn interrupted(error: tokio::task::JoinError) -> DataFusionError {
    exec_datafusion_err!("work for the GPU was interrupted: {error}")
}

/// An operation that must run on the GPU does not.
#[cfg(feature = "gpu")]
pub(crate) fn required(error: DataFusionError) -> DataFusionError {
    error.context("vectile.gpu = require")
}
