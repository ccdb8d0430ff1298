//! Errors, sorted by what the caller can do about them.

use std::fmt;

use arrow::error::ArrowError;
use vectile_scan::object::ReadError;

/// The reason a table could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has another format. Check the name, or convert it first.
    #[error("{file} is not a Vectile table: {reason}")]
    NotVectile {
        /// Location of the file in its object store.
        file: String,
        /// The reason.
        reason: String,
    },
    /// No writer produces these bytes. Fetch the file again or restore it.
    #[error("corrupt {}{}: {reason}", kind(.file), position(.file, .row_group, .column.as_deref()))]
    Corrupt {
        /// Location of the file in its object store; empty if the bytes are of an Arrow array.
        file: String,
        /// The row group with the damage, if it is in one.
        row_group: Option<usize>,
        /// The name of the column with the damage, if it is in one.
        column: Option<String>,
        /// The value read and the values allowed.
        reason: String,
    },
    /// The file was written by a newer release. Upgrade.
    #[error(
        "{} is in Vectile format version {found}, and this release reads up to version \
         {supported}; please use a newer release of Vectile to read it",
        position(.file, &None, None)
    )]
    UnsupportedVersion {
        /// Location of the file in its object store; empty if it is the version of an Arrow array.
        file: String,
        /// The version the file names.
        found: u32,
        /// The newest version this release reads.
        supported: u32,
    },
    /// A column could not be encoded or decoded although its bytes are sound.
    #[error("{}: {source}", position(.file, .row_group, Some(.column)))]
    Encoding {
        /// Location of the file in its object store; empty for an Arrow array.
        file: String,
        /// The row group, if it is known.
        row_group: Option<usize>,
        /// The name of the column; empty for an Arrow array without one.
        column: String,
        /// The cause.
        source: vectile_encodings::Error,
    },
    /// The arguments do not fit each other: a batch of another schema, an unknown column.
    #[error("{0}")]
    InvalidArgument(String),
    /// The file is no longer the version that was listed. List it again to read the new one.
    #[error("{file} was changed while it was read; run the query again")]
    Changed {
        /// Location of the file in its object store.
        file: String,
    },
    /// A local file could not be read, or synced to disk.
    #[error("{file}: {source}")]
    File {
        /// Location of the file in its object store.
        file: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Not all files could be made visible, and some that were could not be removed. Remove them.
    #[error("{source}; these files could not be removed again: {}", .files.join(", "))]
    LeftBehind {
        /// Locations of the files in their object store.
        files: Vec<String>,
        /// The first failure.
        source: Box<Error>,
    },
    /// The object store failed.
    #[error(transparent)]
    ObjectStore(#[from] object_store::Error),
    /// An Arrow kernel refused.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A bug in this crate or one below it.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Changed(file) => Error::Changed {
                file: file.to_string(),
            },
            ReadError::File { file, source } => Error::File {
                file: file.to_string(),
                source,
            },
            ReadError::ObjectStore(error) => Error::ObjectStore(error),
            error => Error::Internal(error.to_string()),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The position of an error in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePosition<'a> {
    file: &'a str,
    row_group: Option<usize>,
    column: Option<&'a str>,
}

impl<'a> FilePosition<'a> {
    /// A position in `file`, which is a location in an object store.
    pub(crate) fn file(file: &'a str) -> Self {
        Self {
            file,
            row_group: None,
            column: None,
        }
    }

    /// A position in the Arrow array of an encoded column, whose name is empty if it is not known.
    pub(crate) fn array(column: &'a str) -> Self {
        Self::file("").column(column)
    }

    /// Adds the row group, or the chunk of an array.
    pub(crate) fn row_group(self, row_group: usize) -> Self {
        Self {
            row_group: Some(row_group),
            ..self
        }
    }

    /// Adds the column's name.
    pub(crate) fn column(self, column: &'a str) -> Self {
        Self {
            column: Some(column),
            ..self
        }
    }

    /// A failure of the encodings at this position: corrupt bytes, or [`Error::Encoding`].
    pub(crate) fn encoding(self, source: vectile_encodings::Error) -> Error {
        match (source, self.column) {
            (source @ vectile_encodings::Error::Corrupt { .. }, _) | (source, None) => {
                self.corrupt(source.to_string())
            }
            (source, Some(column)) => Error::Encoding {
                file: self.file.to_owned(),
                row_group: self.row_group,
                column: column.to_owned(),
                source,
            },
        }
    }

    /// Corrupt bytes at this position.
    pub(crate) fn corrupt(self, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            file: self.file.to_owned(),
            row_group: self.row_group,
            column: self.column.map(str::to_owned),
            reason: reason.into(),
        }
    }

    /// The file is not a Vectile table.
    pub(crate) fn not_vectile(self, reason: impl Into<String>) -> Error {
        Error::NotVectile {
            file: self.file.to_owned(),
            reason: reason.into(),
        }
    }

    /// The file has a format version that this release does not read.
    pub(crate) fn version(self, found: u32) -> Error {
        Error::UnsupportedVersion {
            file: self.file.to_owned(),
            found,
            supported: crate::FORMAT_VERSION,
        }
    }
}

/// The kind of thing that is corrupt, unless its position says it.
fn kind(file: &str) -> &'static str {
    match file {
        "" => "",
        _ => "file ",
    }
}

/// "file, row group 3, column 'x'", as far as known. Without a file, "encoded column, row group 3, column 'x'".
fn position(file: &str, row_group: &Option<usize>, column: Option<&str>) -> impl fmt::Display {
    let (mut text, column) = match file {
        "" => (
            "encoded column".to_owned(),
            column.filter(|name| !name.is_empty()),
        ),
        _ => (file.to_owned(), column),
    };
    if let Some(row_group) = row_group {
        text.push_str(&format!(", row group {row_group}"));
    }
    if let Some(column) = column {
        text.push_str(&format!(", column '{column}'"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_position() {
        let position = FilePosition::file("t.vectile").row_group(3).column("x");
        assert_eq!(
            position.corrupt("checksum").to_string(),
            "corrupt file t.vectile, row group 3, column 'x': checksum"
        );
        assert_eq!(
            FilePosition::file("t.vectile").version(7).to_string(),
            "t.vectile is in Vectile format version 7, and this release reads up to version 2; \
             please use a newer release of Vectile to read it"
        );
        let position = FilePosition::array("x").row_group(3);
        assert_eq!(
            position.corrupt("checksum").to_string(),
            "corrupt encoded column, row group 3, column 'x': checksum"
        );
        assert_eq!(
            FilePosition::array("").corrupt("checksum").to_string(),
            "corrupt encoded column: checksum"
        );
    }

    #[test]
    fn corrupt_columns_are_corrupt_files() {
        let source = vectile_encodings::Error::Corrupt {
            part: "ffor",
            reason: "width 65".into(),
        };
        let error = FilePosition::file("t").column("x").encoding(source);
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        let source = vectile_encodings::Error::Unsupported("rle of a struct".into());
        let error = FilePosition::file("t").column("x").encoding(source);
        assert!(matches!(error, Error::Encoding { .. }), "{error}");
    }
}
