//! Features of a footer that decide whether the `parquet` crate may parse it: that crate recurses as deep as the schema
//! is, and needs keys for encrypted columns.

use crate::error::{Fault, ensure, unsupported};
use crate::thrift::{Kind, Reader};

/// The most levels of a schema, which has more of them than its Arrow type: a list has three.
const MAX_SCHEMA_DEPTH: usize = 100;

/// Field ids of `FileMetaData`, `SchemaElement`, `RowGroup` and `ColumnChunk`.
mod ids {
    pub(super) const SCHEMA: i64 = 2;
    pub(super) const ROW_GROUPS: i64 = 4;
    pub(super) const ENCRYPTION: i64 = 8;
    pub(super) const NUM_CHILDREN: i64 = 5;
    pub(super) const COLUMNS: i64 = 1;
    pub(super) const FILE_PATH: i64 = 1;
    pub(super) const CRYPTO_METADATA: i64 = 8;
    pub(super) const ENCRYPTED_METADATA: i64 = 9;
}

/// Checks the bytes of a footer.
///
/// # Errors
///
/// [`Fault::Unsupported`] if a column is encrypted or in another file, or the schema is too deep; [`Fault::Corrupt`].
pub(crate) fn check(footer: &[u8]) -> Result<(), Fault> {
    let mut reader = Reader::new(footer);
    reader.fields(|reader, id, kind| match (id, kind) {
        (ids::SCHEMA, Kind::List) => check_schema(reader).map(|()| true),
        (ids::ROW_GROUPS, Kind::List) => {
            each(reader, |reader| {
                reader.fields(|reader, id, kind| match (id, kind) {
                    (ids::COLUMNS, Kind::List) => each(reader, check_chunk).map(|()| true),
                    _ => Ok(false),
                })
            })?;
            Ok(true)
        }
        (ids::ENCRYPTION, _) => unsupported("columns are encrypted"),
        _ => Ok(false),
    })
}

/// Reads the structs of a list.
fn each(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (len, kind) = reader.list()?;
    ensure(len == 0 || kind == Kind::Struct, || {
        format!("{kind:?} instead of structs")
    })?;
    (0..len).try_for_each(|_| read(reader))
}

fn check_chunk(reader: &mut Reader<'_>) -> Result<(), Fault> {
    reader.fields(|reader, id, kind| match (id, kind) {
        (ids::FILE_PATH, Kind::Binary) if reader.binary()?.is_empty() => Ok(true),
        (ids::FILE_PATH, Kind::Binary) => unsupported("columns are in other files"),
        (ids::CRYPTO_METADATA | ids::ENCRYPTED_METADATA, _) => unsupported("columns are encrypted"),
        _ => Ok(false),
    })
}

/// Checks the depth of the schema, which is a list of its elements in pre-order.
fn check_schema(reader: &mut Reader<'_>) -> Result<(), Fault> {
    // children that are still to come, of each element from the root on
    let mut open: Vec<i64> = Vec::new();
    each(reader, |reader| {
        let mut children = 0;
        reader.fields(|reader, id, kind| match (id, kind) {
            (ids::NUM_CHILDREN, Kind::Integer) => {
                children = reader.integer()?;
                Ok(true)
            }
            _ => Ok(false),
        })?;
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        match open.len() <= MAX_SCHEMA_DEPTH {
            true => Ok(()),
            false => unsupported(format!("a schema of more than {MAX_SCHEMA_DEPTH} levels")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::corrupt;

    /// A footer with a schema of elements with these numbers of children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x29, 0xFC];
        let mut len = children.len();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        for &children in children {
            bytes.extend([0x55, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn schemas_may_be_wide_but_not_deep() {
        assert_eq!(check(&footer(&[3, 0, 2, 0, 0, 0])), Ok(()));
        let mut wide = vec![60];
        wide.extend([1, 0].repeat(60));
        assert_eq!(check(&footer(&wide)), Ok(()));
        assert_eq!(check(&footer(&[1; 100])), Ok(()));
        let deep = check(&footer(&[1; 101]));
        assert_eq!(deep, unsupported("a schema of more than 100 levels"));
        assert!(matches!(
            check(&footer(&vec![1; 1 << 20])),
            Err(Fault::Unsupported(_))
        ));
    }

    #[test]
    fn encryption_and_other_files_are_found() {
        assert_eq!(check(&[0x8C, 0, 0]), unsupported("columns are encrypted"));
        // row groups: [{ columns: [{ file_path: "a" }] }]
        let other = [0x49, 0x1C, 0x19, 0x1C, 0x18, 1, b'a', 0, 0, 0];
        assert_eq!(check(&other), unsupported("columns are in other files"));
        let own = [0x49, 0x1C, 0x19, 0x1C, 0x18, 0, 0, 0, 0];
        assert_eq!(check(&own), Ok(()));
        let crypto = [0x49, 0x1C, 0x19, 0x1C, 0x8C, 0, 0, 0, 0];
        assert_eq!(check(&crypto), unsupported("columns are encrypted"));
        let integers = [0x49, 0x15, 2, 0];
        assert_eq!(check(&integers), corrupt("Integer instead of structs"));
    }
}
