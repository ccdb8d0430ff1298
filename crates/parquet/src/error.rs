//! Errors, with their position in the file.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use vectile_scan::object::ReadError;

/// An error in some bytes. The caller adds their position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No writer produces these bytes.
    #[error("{0}")]
    Corrupt(String),
    /// The bytes are valid, but this crate does not read them.
    #[error("{0}")]
    Unsupported(String),
}

/// Fails with [`Fault::Corrupt`].
pub(crate) fn corrupt<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Corrupt(reason.into()))
}

/// Fails with [`Fault::Unsupported`].
pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Unsupported(reason.into()))
}

/// [`corrupt`] unless `condition` holds.
pub(crate) fn ensure(condition: bool, reason: impl FnOnce() -> String) -> Result<(), Fault> {
    match condition {
        true => Ok(()),
        false => corrupt(reason()),
    }
}

/// Runs code of the `parquet` crate on bytes of a file. A panic of that crate on damaged bytes is
/// [`corrupt`] here.
pub(crate) fn contain<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // nothing that the work changes outlives a panic
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic_message(panic.as_ref());
        corrupt(format!("the decoder stopped: {reason}"))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("for an unknown reason")
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        // more text than 32-bit offsets address is no damage
        let is_limit = |reason: &str| reason.contains("overflow");
        match error {
            ParquetError::NYI(reason) => Self::Unsupported(reason),
            ParquetError::General(reason) if is_limit(&reason) => Self::Unsupported(reason),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unsupported(error.to_string())
    }
}

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::NotYetImplemented(reason) => Self::Unsupported(reason),
            ArrowError::OffsetOverflowError(_) => Self::Unsupported(error.to_string()),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<vectile_encodings::Error> for Fault {
    fn from(error: vectile_encodings::Error) -> Self {
        match error {
            vectile_encodings::Error::Corrupt { .. } => Self::Corrupt(error.to_string()),
            error => Self::Unsupported(error.to_string()),
        }
    }
}

/// A position in a file, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorOrigin {
    /// Location of the file in its object store.
    pub file: Arc<str>,
    /// The index of the row group in the file.
    pub row_group: Option<usize>,
    /// The name of the column.
    pub column: Option<String>,
}

impl ErrorOrigin {
    /// A position in `file`.
    pub(crate) fn file(file: &Arc<str>) -> Self {
        Self {
            file: Arc::clone(file),
            row_group: None,
            column: None,
        }
    }

    /// Adds the row group.
    pub(crate) fn row_group(mut self, row_group: usize) -> Self {
        self.row_group = Some(row_group);
        self
    }

    /// Adds the name of the column.
    pub(crate) fn column(mut self, column: &str) -> Self {
        self.column = Some(column.to_owned());
        self
    }

    /// Converts a fault at this position to an error.
    pub(crate) fn fault(self, fault: Fault) -> Error {
        match fault {
            Fault::Corrupt(reason) => Error::Corrupt {
                origin: self,
                reason,
            },
            Fault::Unsupported(reason) => Error::Unsupported {
                origin: self,
                reason,
            },
        }
    }
}

/// "file, row group 3, column 'a'", as far as known.
impl fmt::Display for ErrorOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(row_group) = self.row_group {
            write!(f, ", row group {row_group}")?;
        }
        match &self.column {
            Some(column) => write!(f, ", column '{column}'"),
            None => Ok(()),
        }
    }
}

/// The reason a Parquet file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has another format. Check the name.
    #[error("{file} is not a Parquet file: {reason}")]
    NotParquet {
        /// Location of the file in its object store.
        file: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// No writer produces these bytes. Fetch the file again or restore it.
    #[error("corrupt file {origin}: {reason}")]
    Corrupt {
        /// The position of the damage.
        origin: ErrorOrigin,
        /// The value read and the values allowed.
        reason: String,
    },
    /// The file is valid, but has a feature that this crate does not read. Another reader may.
    #[error("{origin}: {reason}")]
    Unsupported {
        /// Its position.
        origin: ErrorOrigin,
        /// The feature.
        reason: String,
    },
    /// The file is no longer the version that was listed. List it again to read the new one.
    #[error("{file} was changed while it was read; run the query again")]
    Changed {
        /// Location of the file in its object store.
        file: Arc<str>,
    },
    /// There is no such row group or column.
    #[error("{0}")]
    InvalidArgument(String),
    /// A bug in this crate.
    #[error("internal error: {0}")]
    Internal(String),
    /// A local file could not be read.
    #[error("{file}: {source}")]
    File {
        /// Location of the file in its object store.
        file: Arc<str>,
        /// The cause.
        source: std::io::Error,
    },
    /// The object store failed.
    #[error(transparent)]
    ObjectStore(#[from] object_store::Error),
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Changed(file) => Error::Changed {
                file: file.as_ref().into(),
            },
            ReadError::File { file, source } => Error::File {
                file: file.as_ref().into(),
                source,
            },
            ReadError::ObjectStore(error) => Error::ObjectStore(error),
            error => Error::Internal(error.to_string()),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_origin() {
        let origin = ErrorOrigin::file(&"t.parquet".into())
            .row_group(3)
            .column("a");
        let fault = Fault::Corrupt("a page of 9 bytes, 4 are left".into());
        assert_eq!(
            origin.fault(fault).to_string(),
            "corrupt file t.parquet, row group 3, column 'a': a page of 9 bytes, 4 are left"
        );
        let fault = Fault::Unsupported("encrypted".into());
        let error = ErrorOrigin::file(&"t.parquet".into()).fault(fault);
        assert_eq!(error.to_string(), "t.parquet: encrypted");
    }

    #[test]
    fn panics_are_faults() {
        let fault = contain::<()>(|| panic!("index {} of 3", 4)).unwrap_err();
        assert_eq!(
            fault,
            Fault::Corrupt("the decoder stopped: index 4 of 3".into())
        );
        assert_eq!(contain(|| Ok(7)), Ok(7));
    }
}
