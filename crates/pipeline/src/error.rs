//! Errors of pipelines.

/// An error of building a pipeline or of reading what it refers to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No pipeline computes this; the text says why.
    #[error("no pipeline: {0}")]
    Unsupported(String),
    /// An invariant of Vectile does not hold; the text says which. No query, data or device is to blame.
    #[error("an internal error of Vectile: {0}")]
    Internal(String),
    /// A column cannot be decoded.
    #[error(transparent)]
    Encoding(#[from] vectile_encodings::Error),
    /// A device failed that holds a table or its values.
    #[error(transparent)]
    Device(Box<dyn std::error::Error + Send + Sync>),
}

/// Result of an operation on pipelines.
pub type Result<T, E = Error> = std::result::Result<T, E>;
