//! Errors, with their position in the file.

use std::fmt;
use std::sync::Arc;

use vectile_scan::object::ReadError;

use crate::kind::StreamKind;

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

/// [`corrupt`] unless `condition` holds.
pub(crate) fn ensure(condition: bool, reason: impl FnOnce() -> String) -> Result<(), Fault> {
    match condition {
        true => Ok(()),
        false => corrupt(reason()),
    }
}

/// A position in a file, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorOrigin {
    /// Location of the file in its object store.
    pub file: Arc<str>,
    /// The index of the stripe.
    pub stripe: Option<usize>,
    /// The path of the column: names of fields, joined by dots.
    pub column: Option<String>,
    /// The stream of the column.
    pub stream: Option<StreamKind>,
}

impl ErrorOrigin {
    /// A position in `file`.
    pub(crate) fn file(file: &Arc<str>) -> Self {
        Self {
            file: Arc::clone(file),
            stripe: None,
            column: None,
            stream: None,
        }
    }

    /// Adds the stripe.
    pub(crate) fn stripe(mut self, stripe: usize) -> Self {
        self.stripe = Some(stripe);
        self
    }

    /// Adds the path of the column.
    pub(crate) fn column(mut self, column: &str) -> Self {
        self.column = Some(column.to_owned());
        self
    }

    /// Adds the stream.
    pub(crate) fn stream(mut self, stream: StreamKind) -> Self {
        self.stream = Some(stream);
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

/// "file, stripe 3, column 'a.b', stream LENGTH", as far as known.
impl fmt::Display for ErrorOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(stripe) = self.stripe {
            write!(f, ", stripe {stripe}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column '{column}'")?;
        }
        match self.stream {
            Some(stream) => write!(f, ", stream {stream}"),
            None => Ok(()),
        }
    }
}

/// The reason an ORC file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has another format. Check the name.
    #[error("{file} is not an ORC file: {reason}")]
    NotOrc {
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
    /// The file is valid, but has a feature that this crate does not read.
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
    /// There is no such stripe or column.
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
        let origin = ErrorOrigin::file(&"t.orc".into()).stripe(3).column("a.b");
        let fault = || Fault::Corrupt("a run of 9 values, 4 are left".into());
        assert_eq!(
            origin
                .clone()
                .stream(StreamKind::Length)
                .fault(fault())
                .to_string(),
            "corrupt file t.orc, stripe 3, column 'a.b', stream LENGTH: a run of 9 values, 4 are left"
        );
        let fault = Fault::Unsupported("compression LZO".into());
        let error = ErrorOrigin::file(&"t.orc".into()).fault(fault);
        assert_eq!(error.to_string(), "t.orc: compression LZO");
    }
}
