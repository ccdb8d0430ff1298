//! Errors of scans.

use arrow::error::ArrowError;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The reason a scan ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A collaborator of the scan failed: its container, a test, its memory. The error is that
    /// collaborator's.
    #[error(transparent)]
    External(BoxedError),
    /// A column could not be filtered or decoded.
    #[error("row group {row_group}, column {column}: {source}")]
    Encoding {
        /// The row group.
        row_group: usize,
        /// The index of the column in the container's schema.
        column: usize,
        /// The cause.
        source: vectile_encodings::Error,
    },
    /// The arguments do not fit the container.
    #[error("{0}")]
    InvalidArgument(String),
    /// An Arrow kernel refused.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A bug in this crate or one below it.
    #[error("internal error: {0}")]
    Internal(String),
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an error of one of the scan's collaborators.
    pub fn external(error: impl Into<BoxedError>) -> Self {
        Self::External(error.into())
    }
}
