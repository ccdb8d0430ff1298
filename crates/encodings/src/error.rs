//! Errors, sorted by what the caller can do about them.

use arrow::error::ArrowError;

/// The reason a column could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No encoder writes these bytes. Read the file again or restore it.
    #[error("corrupt {part}: {reason}")]
    Corrupt {
        /// The part of the column that is wrong, e.g. `"ffor"`.
        part: &'static str,
        /// The value read and the values allowed.
        reason: String,
    },
    /// The request cannot be met by this version. Choose another encoding or type.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The rows take more memory than their bytes account for. Decode fewer at once.
    #[error("{bytes} bytes of decoded rows, at most {limit} at once")]
    TooLarge {
        /// Bytes that the decoded rows would take.
        bytes: u64,
        /// The most bytes decoded at once.
        limit: u64,
    },
    /// An Arrow kernel refused.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error for a name that is not in `known`.
    pub(crate) fn unknown_encoding(name: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        Self::Unsupported(format!("encoding '{name}'; known are {known}"))
    }
}

/// An [`Error::Corrupt`] of `part`.
pub(crate) fn corrupt(part: &'static str, reason: impl Into<String>) -> Error {
    Error::Corrupt {
        part,
        reason: reason.into(),
    }
}

/// Fails with [`Error::Corrupt`] unless `holds`.
pub(crate) fn ensure(
    holds: bool,
    part: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(corrupt(part, reason()))
    }
}
