//! What can go wrong, sorted by what the caller can do about it.

use arrow::error::ArrowError;

/// Why a column could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not what an encoder writes. Read the file again or restore it.
    #[error("corrupt {part}: {reason}")]
    Corrupt {
        /// The part of the column that is wrong, e.g. `"ffor"`.
        part: &'static str,
        /// What was found and what is allowed.
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
        /// The most that is decoded at once.
        limit: u64,
    },
    /// An Arrow kernel refused.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A name that is none of `known`.
    pub(crate) fn unknown_encoding(name: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        Self::Unsupported(format!("encoding '{name}'; known are {known}"))
    }
}

/// A [`Error::Corrupt`] of `part`.
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
