//! The logical schema, as the user wrote it, in JSON as `arrow-schema` serialises it, but without the defaults of most
//! fields. It is read from untrusted bytes, so [`parse`] refuses types that no Arrow array can have before anything
//! builds one.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION,
    DECIMAL256_MAX_PRECISION, DataType, Field, Schema, SchemaRef, TimeUnit,
};

use serde_json::{Map, Value};
use vectile_encodings::{MAX_DECODED_BYTES, MAX_TYPE_DEPTH, fixed_bytes};

use crate::error::{Error, FilePosition, Result};

/// Serialises the logical schema as JSON, checked to be one that [`parse`] accepts.
pub(crate) fn to_json(schema: &Schema) -> Result<Vec<u8>> {
    for field in schema.fields() {
        check_storable(field)?;
    }
    // Through a value, whose maps are sorted: equal tables give equal bytes.
    serde_json::to_value(schema)
        .and_then(|mut value| {
            omit_defaults(&mut value);
            if let Some(schema) = value.as_object_mut() {
                schema.retain(|key, value| *value != default_of(key));
            }
            serde_json::to_vec(&value)
        })
        .map_err(|error| Error::Internal(format!("cannot serialise the schema: {error}")))
}

/// Parses the logical schema from untrusted JSON.
pub(crate) fn parse(json: &[u8], position: FilePosition<'_>) -> Result<SchemaRef> {
    let schema: Schema = serde_json::from_slice(json)
        .and_then(|mut value: Value| {
            add_defaults(&mut value);
            if let Some(schema) = value.as_object_mut() {
                schema
                    .entry("metadata")
                    .or_insert_with(|| default_of("metadata"));
            }
            serde_json::from_value(value)
        })
        .map_err(|error| position.corrupt(format!("the schema is not readable: {error}")))?;
    for field in schema.fields() {
        check(field.data_type(), MAX_TYPE_DEPTH)
            .map_err(|reason| position.column(field.name()).corrupt(reason))?;
    }
    Ok(Arc::new(schema))
}

/// One field as in the JSON of a schema, checked to be one that [`parse_field`] accepts.
pub(crate) fn field_to_json(field: &Field) -> Result<Map<String, Value>> {
    check_storable(field)?;
    let mut value = serde_json::to_value(field)
        .map_err(|error| Error::Internal(format!("cannot serialise a field: {error}")))?;
    omit_defaults(&mut value);
    match value {
        Value::Object(field) => Ok(field),
        value => Err(Error::Internal(format!("a field is {value} in JSON"))),
    }
}

/// Parses a field from untrusted JSON.
pub(crate) fn parse_field(json: Map<String, Value>, position: FilePosition<'_>) -> Result<Field> {
    let mut value = Value::Object(json);
    add_defaults(&mut value);
    let field: Field = serde_json::from_value(value)
        .map_err(|error| position.corrupt(format!("the type is not readable: {error}")))?;
    check(field.data_type(), MAX_TYPE_DEPTH).map_err(|reason| position.corrupt(reason))?;
    Ok(field)
}

/// Fails if a column cannot have the type of this field.
fn check_storable(field: &Field) -> Result<()> {
    check(field.data_type(), MAX_TYPE_DEPTH).map_err(|reason| {
        Error::InvalidArgument(format!("cannot store column '{}': {reason}", field.name()))
    })
}

/// Removes from fields, at any depth, what [`add_defaults`] adds.
fn omit_defaults(value: &mut Value) {
    each_field(value, &mut |field| {
        field.retain(|key, value| *value != default_of(key));
    });
}

fn add_defaults(value: &mut Value) {
    each_field(value, &mut |field| {
        for key in DEFAULTED {
            field.entry(key).or_insert_with(|| default_of(key));
        }
    });
}

/// The keys that a field's JSON may omit.
const DEFAULTED: [&str; 4] = ["nullable", "dict_id", "dict_is_ordered", "metadata"];

/// The default of an omitted key; null for a key that may not be omitted.
fn default_of(key: &str) -> Value {
    match key {
        "nullable" => Value::from(true),
        "dict_is_ordered" => Value::from(false),
        "dict_id" => Value::from(0),
        "metadata" => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Calls `change` with each field within a schema or a type, at any depth.
fn each_field(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| each_field(value, change)),
        Value::Object(map) => {
            if map.contains_key("data_type") {
                change(map);
            }
            // users' metadata has no fields
            let types = map.iter_mut().filter(|(key, _)| *key != "metadata");
            types.for_each(|(_, value)| each_field(value, change));
        }
        _ => {}
    }
}

/// Checks that arrays of this type can exist: its parameters are in range, a null of it is not too large, and it nests
/// at most `depth` deep.
fn check(data_type: &DataType, depth: usize) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("the type nests more than {MAX_TYPE_DEPTH} levels"));
    };
    // planning a query makes nulls of its types, without asking for memory
    let null = fixed_bytes(data_type, 1);
    if null > MAX_DECODED_BYTES {
        return Err(format!(
            "a null of the type {data_type} takes {null} bytes, at most {MAX_DECODED_BYTES}"
        ));
    }
    let holds = match data_type {
        DataType::FixedSizeBinary(width) => *width >= 0,
        DataType::FixedSizeList(field, len) => {
            check(field.data_type(), depth)?;
            *len >= 0
        }
        DataType::Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        DataType::Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        DataType::Decimal32(p, s) => decimal(*p, *s, DECIMAL32_MAX_PRECISION),
        DataType::Decimal64(p, s) => decimal(*p, *s, DECIMAL64_MAX_PRECISION),
        DataType::Decimal128(p, s) => decimal(*p, *s, DECIMAL128_MAX_PRECISION),
        DataType::Decimal256(p, s) => decimal(*p, *s, DECIMAL256_MAX_PRECISION),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => {
            check(field.data_type(), depth)?;
            true
        }
        DataType::Struct(fields) => {
            for field in fields {
                check(field.data_type(), depth)?;
            }
            true
        }
        DataType::Union(fields, _) => {
            for (_, field) in fields.iter() {
                check(field.data_type(), depth)?;
            }
            // arrow builds no array of a union without children
            !fields.is_empty() && fields.iter().all(|(id, _)| id >= 0)
        }
        DataType::Dictionary(key, value) => {
            check(value, depth)?;
            key.is_dictionary_key_type()
        }
        DataType::Map(entries, _) => {
            check(entries.data_type(), depth)?;
            is_map_entries(entries)
        }
        DataType::RunEndEncoded(run_ends, values) => {
            check(values.data_type(), depth)?;
            run_ends.data_type().is_run_ends_type() && !run_ends.is_nullable()
        }
        _ => true,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("no column can have the type {data_type}"))
    }
}

fn decimal(precision: u8, scale: i8, max_precision: u8) -> bool {
    (1..=max_precision).contains(&precision) && i16::from(scale) <= i16::from(precision)
}

fn is_map_entries(entries: &Field) -> bool {
    match entries.data_type() {
        DataType::Struct(fields) => {
            !entries.is_nullable()
                && fields.len() == 2
                && !fields.iter().take(1).any(|key| key.is_nullable())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::datatypes::{UnionFields, UnionMode};

    use super::*;

    fn of(data_type: DataType) -> Schema {
        Schema::new(vec![Field::new("c", data_type, true)])
    }

    fn round_trip(schema: &Schema) -> Result<SchemaRef> {
        parse(&to_json(schema)?, FilePosition::file("t"))
    }

    #[test]
    fn nested_types_and_metadata_round_trip() {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let entries = Field::new(
            "entries",
            DataType::Struct(
                vec![
                    Field::new("k", DataType::Utf8, false),
                    Field::new("v", DataType::List(item), true),
                ]
                .into(),
            ),
            false,
        );
        let map = DataType::Map(Arc::new(entries), false);
        let field =
            Field::new("m", map, true).with_metadata(HashMap::from([("unit".into(), "km".into())]));
        let schema = Schema::new_with_metadata(
            vec![field],
            HashMap::from([("origin".into(), "test \"quoted\"".into())]),
        );
        assert_eq!(*round_trip(&schema).unwrap(), schema);
        // with all keys, as in version 1
        let json = serde_json::to_vec(&schema).unwrap();
        assert!(json.len() > 3 * to_json(&schema).unwrap().len() / 2);
        assert_eq!(*parse(&json, FilePosition::file("t")).unwrap(), schema);
    }

    #[test]
    fn what_users_say_is_no_field() {
        let said = HashMap::from([("data_type".to_owned(), "0".to_owned())]);
        let field = Field::new("data_type", DataType::Int8, false).with_metadata(said.clone());
        let schema = Schema::new_with_metadata(vec![field], said);
        assert_eq!(*round_trip(&schema).unwrap(), schema);
        let json = to_json(&of(DataType::Int8)).unwrap();
        let expected = r#"{"fields":[{"data_type":"Int8","name":"c"}]}"#;
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }

    #[test]
    fn impossible_types_are_refused() {
        let utf8 = || Box::new(DataType::Utf8);
        for data_type in [
            DataType::FixedSizeBinary(-1),
            DataType::FixedSizeBinary(i32::MAX),
            DataType::FixedSizeList(Arc::new(Field::new("i", DataType::Int64, true)), i32::MAX),
            DataType::Decimal128(0, 0),
            DataType::Decimal128(39, 0),
            DataType::Decimal32(3, 4),
            DataType::Time32(TimeUnit::Nanosecond),
            DataType::Dictionary(utf8(), utf8()),
            DataType::Map(Arc::new(Field::new("e", DataType::Utf8, false)), false),
            DataType::FixedSizeList(Arc::new(Field::new("i", DataType::Utf8, false)), -2),
        ] {
            let json = serde_json::to_vec(&of(data_type.clone())).unwrap();
            let error = parse(&json, FilePosition::file("t")).unwrap_err();
            assert!(
                matches!(error, Error::Corrupt { .. }),
                "{data_type}: {error}"
            );
            let error = to_json(&of(data_type)).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        }
    }

    /// Arrow panics when it makes an array of a dense union without children.
    #[test]
    fn unions_without_children_are_refused() {
        for mode in [UnionMode::Dense, UnionMode::Sparse] {
            let union = DataType::Union(UnionFields::empty(), mode);
            let list = DataType::List(Arc::new(Field::new("item", union, true)));
            let error = to_json(&of(list.clone())).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
            let json = serde_json::to_vec(&of(list)).unwrap();
            let error = parse(&json, FilePosition::file("t")).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }

    #[test]
    fn the_deepest_type_that_is_written_is_read() {
        let nest = |depth: usize| {
            (1..depth).fold(DataType::Int8, |inner, _| {
                DataType::Struct(vec![Field::new("f", inner, true)].into())
            })
        };
        let deepest = of(nest(MAX_TYPE_DEPTH));
        assert_eq!(*round_trip(&deepest).unwrap(), deepest);
        assert!(to_json(&of(nest(MAX_TYPE_DEPTH + 1))).is_err());
    }
}
