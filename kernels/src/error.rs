//! Errors of laying out a column chunk.

/// An error of laying out a column chunk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kernels do not read such columns; the text says why.
    #[error("no kernel: {0}")]
    Unsupported(String),
    /// An encoded column cannot be decoded.
    #[error(transparent)]
    Encoding(#[from] vectile_encodings::Error),
}

/// Result of laying out a column chunk.
pub type Result<T, E = Error> = std::result::Result<T, E>;
