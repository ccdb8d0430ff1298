//! Errors of the layers below, as DataFusion's.
//!
//! The original stays reachable: [`DataFusionError::External`] holds a [`vectile_file::Error`], or one
//! of another format, which names file, row group and column.

#[cfg(feature = "gpu")]
use datafusion::common::exec_datafusion_err;
use datafusion::common::internal_datafusion_err;
use datafusion::error::DataFusionError;

/// Writing a file failed.
pub(crate) fn file(error: vectile_file::Error) -> DataFusionError {
    external(error)
}

/// Reading a file failed.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A scan ended early.
pub(crate) fn scan(error: vectile_scan::Error) -> DataFusionError {
    match error {
        // A test's or a pool's is one of DataFusion's.
        vectile_scan::Error::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => DataFusionError::External(error),
        },
        vectile_scan::Error::Arrow(error) => error.into(),
        vectile_scan::Error::Internal(reason) => internal_datafusion_err!("{reason}"),
        error => DataFusionError::External(Box::new(error)),
    }
}

/// The scan asked for a column that it did not read.
#[cfg(feature = "gpu")]
pub(crate) fn missing_column(column: usize) -> DataFusionError {
    internal_datafusion_err!("column {column} was not read")
}

/// The GPU did not do it.
#[cfg(feature = "gpu")]
pub(crate) fn gpu(error: vectile_gpu::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Whether there is no kernel for what was asked.
#[cfg(feature = "gpu")]
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    is(error, |error| {
        matches!(error, vectile_gpu::Error::Unsupported(_))
    })
}

/// Whether it is a defect of ours, and neither query, data nor device is to blame.
#[cfg(feature = "gpu")]
pub(crate) fn is_internal(error: &DataFusionError) -> bool {
    let root = error.find_root();
    matches!(root, DataFusionError::Internal(_)) || is(root, vectile_gpu::Error::is_internal)
}

/// Whether a kernel is not compiled yet.
#[cfg(feature = "gpu")]
pub(crate) fn is_not_compiled(error: &DataFusionError) -> bool {
    is(error, |error| {
        matches!(error, vectile_gpu::Error::NotCompiled)
    })
}

/// Whether columns or a kernel are not on the GPU yet.
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

/// A task for the GPU did not end.
#[cfg(feature = "gpu")]
pub(crate) fn interrupted(error: tokio::task::JoinError) -> DataFusionError {
    exec_datafusion_err!("work for the GPU was interrupted: {error}")
}

/// What must run on the GPU does not.
#[cfg(feature = "gpu")]
pub(crate) fn required(error: DataFusionError) -> DataFusionError {
    error.context("vectile.gpu = require")
}
