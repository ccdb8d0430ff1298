//! Merges the schemas of a table's files, in queries and in conversions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Columns that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// No type holds every value of both files.
    Types {
        /// The column's name.
        column: String,
        /// The file that does not fit, and its type of the column.
        file: (String, DataType),
        /// The type in the files before it.
        before: DataType,
    },
    /// A file has two columns of one name, which only their position distinguishes.
    Duplicate {
        /// The columns' name.
        column: String,
        /// The file.
        file: String,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Types {
                column,
                file: (file, found),
                before,
            } => write!(
                f,
                "column {column} is {found} in {file} and {before} in the files before it"
            ),
            MergeError::Duplicate { column, file } => {
                write!(f, "{file} has several columns of the name {column}")
            }
        }
    }
}

impl std::error::Error for MergeError {}

/// Merges the schemas of several files, each with its name, by column name: all columns of any file, in the order of
/// their first occurrence. Columns that a file lacks are nullable. Columns of different types get the type that
/// `common` returns, as [`common_type`] does. Metadata is kept where all files agree.
///
/// # Errors
///
/// See [`MergeError`].
pub fn merge_schemas(
    files: &[(String, SchemaRef)],
    common: impl Fn(&DataType, &DataType) -> Option<DataType>,
) -> Result<SchemaRef, MergeError> {
    for (file, schema) in files {
        check_names(file, schema)?;
    }
    let Some(((_, first), rest)) = files.split_first() else {
        return Ok(Arc::new(Schema::empty()));
    };
    if rest.iter().all(|(_, schema)| schema == first) {
        return Ok(Arc::clone(first));
    }
    let mut metadata = first.metadata().clone();
    let mut merged: Vec<Column> = Vec::new();
    let mut indices = HashMap::new();
    for (file, schema) in files {
        agree(&mut metadata, schema.metadata());
        for field in schema.fields() {
            let index = *indices.entry(field.name()).or_insert(merged.len());
            match merged.get_mut(index) {
                Some(column) => column.add(file, field, &common)?,
                None => merged.push(Column {
                    field: field.as_ref().clone(),
                    files: 1,
                }),
            }
        }
    }
    let fields = merged.into_iter().map(|column| {
        let nullable = column.field.is_nullable() || column.files < files.len();
        column.field.with_nullable(nullable)
    });
    let fields: Vec<Field> = fields.collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

/// A column of the files merged so far.
struct Column {
    field: Field,
    /// Number of files that have it.
    files: usize,
}

impl Column {
    fn add(
        &mut self,
        file: &str,
        field: &Field,
        common: impl Fn(&DataType, &DataType) -> Option<DataType>,
    ) -> Result<(), MergeError> {
        let (before, found) = (self.field.data_type(), field.data_type());
        let data_type = common(before, found).ok_or_else(|| MergeError::Types {
            column: field.name().clone(),
            file: (file.to_string(), found.clone()),
            before: before.clone(),
        })?;
        let mut metadata = self.field.metadata().clone();
        agree(&mut metadata, field.metadata());
        self.field = Field::new(
            field.name(),
            data_type,
            self.field.is_nullable() || field.is_nullable(),
        )
        .with_metadata(metadata);
        self.files += 1;
        Ok(())
    }
}

/// Keeps the entries that `other` has, too.
fn agree(metadata: &mut HashMap<String, String>, other: &HashMap<String, String>) {
    metadata.retain(|key, value| other.get(key) == Some(value));
}

fn check_names(file: &str, schema: &Schema) -> Result<(), MergeError> {
    let mut names = std::collections::HashSet::new();
    match schema.fields().iter().find(|f| !names.insert(f.name())) {
        None => Ok(()),
        Some(duplicate) => Err(MergeError::Duplicate {
            column: duplicate.name().clone(),
            file: file.to_string(),
        }),
    }
}

/// The type that holds every value of both types unchanged; `None` if there is none.
///
/// Numbers of different widths get the wider type. Strings, and likewise binaries, get the large type if one is large,
/// else the view. Nested types are merged by Arrow's rule.
pub fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Null, Utf8, Utf8View};
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Null, other) | (other, Null) => Some(other.clone()),
        (a, b)
            if a.is_signed_integer() && b.is_signed_integer()
                || a.is_unsigned_integer() && b.is_unsigned_integer()
                || a.is_floating() && b.is_floating() =>
        {
            Some(wider(a, b))
        }
        (LargeUtf8, Utf8 | Utf8View) | (Utf8 | Utf8View, LargeUtf8) => Some(LargeUtf8),
        (Utf8, Utf8View) | (Utf8View, Utf8) => Some(Utf8View),
        (LargeBinary, Binary | BinaryView) | (Binary | BinaryView, LargeBinary) => {
            Some(LargeBinary)
        }
        (Binary, BinaryView) | (BinaryView, Binary) => Some(BinaryView),
        (a, b) => {
            let mut merged = Field::new("", a.clone(), true);
            merged.try_merge(&Field::new("", b.clone(), true)).ok()?;
            Some(merged.data_type().clone())
        }
    }
}

fn wider(a: &DataType, b: &DataType) -> DataType {
    match a.primitive_width() < b.primitive_width() {
        true => b.clone(),
        false => a.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        let fields = fields.iter().map(|(n, t)| Field::new(*n, t.clone(), false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn merge(a: &SchemaRef, b: &SchemaRef) -> Result<SchemaRef, MergeError> {
        let files = [("a".into(), Arc::clone(a)), ("b".into(), Arc::clone(b))];
        merge_schemas(&files, common_type)
    }

    #[test]
    fn schemas_merge_by_name() {
        let a = schema(&[("x", DataType::Int64), ("y", DataType::Utf8)]);
        let b = schema(&[
            ("y", DataType::Utf8View),
            ("x", DataType::Int16),
            ("z", DataType::Date32),
        ]);
        let expected = Schema::new(vec![
            Field::new("x", DataType::Int64, false),
            Field::new("y", DataType::Utf8View, false),
            Field::new("z", DataType::Date32, true),
        ]);
        assert_eq!(merge(&a, &b).unwrap().as_ref(), &expected);
    }

    #[test]
    fn types_that_would_change_values_do_not_merge() {
        let a = schema(&[("x", DataType::Int64)]);
        for other in [DataType::Utf8, DataType::Float64, DataType::UInt64] {
            let b = schema(&[("x", other.clone())]);
            assert_eq!(
                merge(&a, &b).unwrap_err().to_string(),
                format!("column x is {other} in b and Int64 in the files before it")
            );
        }
    }

    #[test]
    fn a_name_twice_in_a_file_is_an_error() {
        let a = schema(&[("x", DataType::Int64)]);
        let b = schema(&[("x", DataType::Int64), ("x", DataType::Int64)]);
        assert_eq!(
            merge(&a, &b).unwrap_err().to_string(),
            "b has several columns of the name x"
        );
    }

    #[test]
    fn metadata_stays_where_files_agree() {
        let with = |entries: &[(&str, &str)]| -> SchemaRef {
            let entries = entries.iter();
            let metadata: HashMap<String, String> = entries
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect();
            let field = Field::new("x", DataType::Int64, true).with_metadata(metadata.clone());
            Arc::new(Schema::new_with_metadata(vec![field], metadata))
        };
        let merged = merge(
            &with(&[("same", "1"), ("other", "2"), ("first", "3")]),
            &with(&[("same", "1"), ("other", "4")]),
        );
        assert_eq!(merged.unwrap(), with(&[("same", "1")]));
    }
}
