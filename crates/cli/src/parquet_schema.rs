//! The tables that Parquet can hold: its writer panics on types that it does not support.

use arrow::datatypes::{DataType, Schema};

use crate::error::{CliError, Result};

/// Refuses a table that cannot be written as Parquet, naming the column.
pub fn check(schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        if let Some(data_type) = without_form(field.data_type()) {
            let name = field.name();
            let message = format!("column {name}: Parquet has no form for the type {data_type}");
            return Err(CliError::failed(message)
                .hint("write Vectile or Arrow instead, or leave the column out"));
        }
    }
    Ok(())
}

fn without_form(data_type: &DataType) -> Option<&DataType> {
    use DataType::*;
    match data_type {
        Union(_, _) | FixedSizeBinary(0) => Some(data_type),
        List(item) | LargeList(item) | ListView(item) | LargeListView(item) => {
            without_form(item.data_type())
        }
        FixedSizeList(item, _) | Map(item, _) | RunEndEncoded(_, item) => {
            without_form(item.data_type())
        }
        Dictionary(_, values) => without_form(values),
        Struct(fields) => fields.iter().find_map(|f| without_form(f.data_type())),
        _ => None,
    }
}
