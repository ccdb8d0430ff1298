//! The types of a file's columns, and the Arrow types that they are read as.
//!
//! A file lists its types in pre-order: a column's number is its index in that list, and those of its children follow.

use std::sync::Arc;

use arrow::datatypes::{
    DataType, Field, Fields, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode,
};
use vectile_encodings::MAX_TYPE_DEPTH;

use crate::error::{Fault, corrupt, ensure};
use crate::kind::TypeKind;
use crate::messages::TypeMessage;

/// The most bytes of the paths of all columns.
const MAX_PATH_BYTES: usize = 64 << 20;

/// The most digits of a decimal.
const MAX_PRECISION: u32 = 38;

/// Digits after the point of decimals of Hive 0.11, as in ORC's C++ reader.
const HIVE_11_SCALE: u32 = 6;

/// The most types of a union.
const MAX_VARIANTS: usize = 127;

/// The type of a column and of its children.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// The column's number in the file.
    pub column: u32,
    /// Its kind.
    pub kind: TypeKind,
    /// Names of fields from the root, joined by dots.
    pub path: String,
    /// The Arrow type of its values.
    pub data_type: DataType,
    /// The children of a list, map, struct or union.
    pub children: Vec<Type>,
}

impl Type {
    /// Parses the root of a list of types: a struct whose fields are the columns of the table.
    pub(crate) fn root(types: &[TypeMessage]) -> Result<Self, Fault> {
        let mut tree = Tree {
            types,
            next: 0,
            path_bytes: 0,
        };
        let root = tree.read(String::new(), MAX_TYPE_DEPTH + 1)?;
        ensure(root.kind == TypeKind::Struct, || {
            format!("a {:?} instead of the table's struct", root.kind)
        })?;
        ensure(tree.next == types.len(), || {
            let (used, listed) = (tree.next, types.len());
            format!("{listed} types, of which the table has {used}")
        })?;
        Ok(root)
    }

    /// The table's schema; `self` is the root.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = match &self.data_type {
            DataType::Struct(fields) => fields.clone(),
            _ => Fields::empty(),
        };
        Arc::new(Schema::new(fields))
    }

    /// Calls `visit` with the numbers of this column and of its descendants.
    pub(crate) fn visit_columns(&self, visit: &mut impl FnMut(u32)) {
        visit(self.column);
        for child in &self.children {
            child.visit_columns(visit);
        }
    }
}

/// A list of types being parsed, in order.
struct Tree<'a> {
    types: &'a [TypeMessage],
    next: usize,
    /// The bytes of all paths so far.
    path_bytes: usize,
}

impl Tree<'_> {
    fn read(&mut self, path: String, depth: usize) -> Result<Type, Fault> {
        let Some(message) = self.types.get(self.next) else {
            return corrupt(format!("column {}: it has no type", self.next));
        };
        let column = u32::try_from(self.next).or_else(|_| corrupt("too many types"))?;
        let Some(kind) = TypeKind::of_code(message.kind) else {
            let reason = format!("column {column}: type number {} is not known", message.kind);
            return Err(Fault::Unsupported(reason));
        };
        if depth == 0 {
            let reason = format!("column {column}: types in more than {MAX_TYPE_DEPTH} levels");
            return Err(Fault::Unsupported(reason));
        }
        self.next += 1;
        let children = message.subtypes.iter().enumerate();
        let children = children.map(|(number, &child)| {
            ensure(child == self.next as u64, || {
                let next = self.next;
                format!("column {column}: a child of number {child}, where {next} is next")
            })?;
            let name = match kind {
                TypeKind::Struct => message.field_names.get(number).map(String::as_str),
                _ => Some(child_name(kind, number)),
            };
            let Some(name) = name else {
                return corrupt(format!("column {column}: field {number} has no name"));
            };
            let path = match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}.{name}"),
            };
            self.path_bytes = self.path_bytes.saturating_add(path.len());
            ensure(self.path_bytes <= MAX_PATH_BYTES, || {
                format!("column {column}: names of more than {MAX_PATH_BYTES} bytes in all")
            })?;
            self.read(path, depth - 1)
        });
        let children: Vec<Type> = children.collect::<Result<_, _>>()?;
        let data_type = data_type(kind, message, &children)
            .map_err(|reason| Fault::Corrupt(format!("column {column}: {reason}")))?;
        Ok(Type {
            column,
            kind,
            path,
            data_type,
            children,
        })
    }
}

/// The name of a child without one, for paths.
fn child_name(parent: TypeKind, number: usize) -> &'static str {
    match (parent, number) {
        (TypeKind::Map, 0) => "keys",
        (TypeKind::Map, _) => "values",
        (TypeKind::Union, _) => "variant",
        _ => "item",
    }
}

/// The Arrow type of a column, or the reason there is none.
fn data_type(kind: TypeKind, message: &TypeMessage, children: &[Type]) -> Result<DataType, String> {
    let field =
        |name: &str, child: &Type, nullable| Field::new(name, child.data_type.clone(), nullable);
    Ok(match (kind, children) {
        (TypeKind::Struct, children) => {
            let fields = message.field_names.iter().zip(children);
            DataType::Struct(
                fields
                    .map(|(name, child)| field(name, child, true))
                    .collect(),
            )
        }
        (TypeKind::List, [item]) => DataType::List(Arc::new(field("item", item, true))),
        (TypeKind::Map, [keys, values]) => {
            let entries = Fields::from(vec![
                field("keys", keys, false),
                field("values", values, true),
            ]);
            let entries = Field::new("entries", DataType::Struct(entries), false);
            DataType::Map(Arc::new(entries), false)
        }
        (TypeKind::Union, children) if children.len() <= MAX_VARIANTS => {
            let variants = children.iter().enumerate();
            let variants = variants.map(|(number, child)| {
                let name = format!("_union_{number}");
                (number as i8, Arc::new(field(&name, child, true)))
            });
            DataType::Union(variants.collect::<UnionFields>(), UnionMode::Sparse)
        }
        (TypeKind::List | TypeKind::Map | TypeKind::Union, children) => {
            return Err(format!("a {kind:?} of {} types", children.len()));
        }
        (_, [_, ..]) => return Err(format!("a {kind:?} has children")),
        (TypeKind::Boolean, []) => DataType::Boolean,
        (TypeKind::Byte, []) => DataType::Int8,
        (TypeKind::Short, []) => DataType::Int16,
        (TypeKind::Int, []) => DataType::Int32,
        (TypeKind::Long, []) => DataType::Int64,
        (TypeKind::Float, []) => DataType::Float32,
        (TypeKind::Double, []) => DataType::Float64,
        (TypeKind::String | TypeKind::Varchar | TypeKind::Char, []) => DataType::Utf8,
        (TypeKind::Binary, []) => DataType::Binary,
        (TypeKind::Timestamp, []) => DataType::Timestamp(TimeUnit::Nanosecond, None),
        (TypeKind::TimestampInstant, []) => {
            DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
        }
        (TypeKind::Date, []) => DataType::Date32,
        (TypeKind::Decimal, []) => decimal(message.precision, message.scale)?,
    })
}

/// The type of a decimal. One without a precision is of Hive 0.11, where each value has a scale of its own.
fn decimal(precision: u32, scale: u32) -> Result<DataType, String> {
    let (precision, scale) = match (precision, scale) {
        (0, 0) => (MAX_PRECISION, HIVE_11_SCALE),
        (0, scale) => (MAX_PRECISION, scale),
        both => both,
    };
    match precision <= MAX_PRECISION && scale <= precision {
        true => Ok(DataType::Decimal128(precision as u8, scale as i8)),
        false => Err(format!(
            "a decimal of {precision} digits, {scale} after the point"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u64, subtypes: &[u64], names: &[&str]) -> TypeMessage {
        TypeMessage {
            kind,
            subtypes: subtypes.to_vec(),
            field_names: names.iter().map(ToString::to_string).collect(),
            precision: 10,
            scale: 2,
        }
    }

    #[test]
    fn trees_have_paths() {
        let types = [
            message(12, &[1, 3], &["a", "b"]),
            message(10, &[2], &[]),
            message(14, &[], &[]),
            message(12, &[4], &["c"]),
            message(3, &[], &[]),
        ];
        let root = Type::root(&types).unwrap();
        let mut columns = vec![];
        root.visit_columns(&mut |column| columns.push(column));
        assert_eq!(columns, [0, 1, 2, 3, 4]);
        assert_eq!(root.children[0].children[0].path, "a.item");
        assert_eq!(root.children[1].children[0].path, "b.c");
        let list = Field::new_list_field(DataType::Decimal128(10, 2), true);
        assert_eq!(
            root.schema().field(0).data_type(),
            &DataType::List(list.into())
        );
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let deep: Vec<_> = (0..40)
            .map(|number| message(10, &[number + 1], &[]))
            .collect();
        let cases: [(&str, &[TypeMessage]); 9] = [
            ("no type", &[]),
            ("the table's struct", &[message(3, &[], &[])]),
            ("no type", &[message(12, &[1], &["a"])]),
            ("a child of number 0", &[message(12, &[0], &["a"])]),
            (
                "has no name",
                &[message(12, &[1], &[]), message(3, &[], &[])],
            ),
            (
                "of which the table has 1",
                &[message(12, &[], &[]), message(3, &[], &[])],
            ),
            ("not known", &[message(99, &[], &[])]),
            (
                "a Map of 1 types",
                &[
                    message(12, &[1], &["a"]),
                    message(11, &[2], &[]),
                    message(3, &[], &[]),
                ],
            ),
            ("levels", &deep),
        ];
        for (expected, types) in cases {
            let error = Type::root(types).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}, not {expected}");
        }
        assert!(decimal(39, 2).is_err() && decimal(4, 5).is_err());
        assert_eq!(decimal(0, 3), Ok(DataType::Decimal128(38, 3)));
        assert_eq!(decimal(0, 0), Ok(DataType::Decimal128(38, 6)));
        assert_eq!(decimal(9, 0), Ok(DataType::Decimal128(9, 0)));
    }
}
