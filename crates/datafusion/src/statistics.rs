//! Converts a file's metadata to DataFusion's statistics; exact only where it is.

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use vectile_encodings::ZoneMap;
use vectile_scan::{Container, FileContainer};

/// Statistics of a file for the columns of `table`.
pub(crate) fn file_statistics(file: &dyn FileContainer, table: &Schema) -> Result<Statistics> {
    let rows = num_rows(file);
    // If a name is duplicate, the first column counts.
    let fields = file.schema().fields().iter().enumerate().rev();
    let indices: HashMap<&str, usize> = fields
        .map(|(index, field)| (field.name().as_str(), index))
        .collect();
    let columns = table
        .fields()
        .iter()
        .map(|field| match indices.get(field.name().as_str()) {
            Some(index) => column_statistics(file, *index, field),
            // A missing column is read as null.
            None => Ok(ColumnStatistics::new_unknown().with_null_count(Precision::Exact(rows))),
        });
    Ok(Statistics {
        num_rows: Precision::Exact(rows),
        // A total of all columns is no bound for a scan of some. DataFusion adds up the columns of a projection itself
        // where it can, and otherwise does better with the number of rows.
        total_byte_size: Precision::Absent,
        column_statistics: columns.collect::<Result<_>>()?,
    })
}

fn num_rows(file: &dyn Container) -> usize {
    (0..file.num_row_groups())
        .map(|row_group| file.rows(row_group))
        .sum()
}

fn column_statistics(
    file: &dyn FileContainer,
    index: usize,
    field: &Field,
) -> Result<ColumnStatistics> {
    let statistics =
        ColumnStatistics::new_unknown().with_byte_size(byte_size(file, index, field.data_type()));
    let Some(zones) = file.row_group_zones(index) else {
        return Ok(statistics);
    };
    let statistics = statistics.with_null_count(null_count(zones));
    // the bounds of a dictionary have the type of its values
    let same_type = zones.min.data_type() == field.data_type();
    if !same_type || !zones.has_bounds() {
        return Ok(statistics);
    }
    Ok(statistics
        .with_min_value(extreme(file, zones, &zones.min, Ordering::Less)?)
        .with_max_value(extreme(file, zones, &zones.max, Ordering::Greater)?))
}

fn null_count(zones: &ZoneMap) -> Precision<usize> {
    match zones.null_count.null_count() {
        0 => Precision::Exact(zones.null_count.values().iter().sum::<u64>() as usize),
        _ => Precision::Absent,
    }
}

/// Bytes of the column as Arrow arrays.
fn byte_size(file: &dyn FileContainer, index: usize, data_type: &DataType) -> Precision<usize> {
    if let Some(width) = data_type.primitive_width() {
        return Precision::Exact(width * num_rows(file));
    }
    match file.arrow_bytes(index) {
        Some(bytes) => Precision::Inexact(bytes as usize),
        None => Precision::Absent,
    }
}

/// The least or greatest of the row groups' `bounds`. Absent if one is unknown or NaN: NaN sorts beyond all numbers but
/// is no bound for comparing aggregates.
fn extreme(
    file: &dyn Container,
    zones: &ZoneMap,
    bounds: &ArrayRef,
    replaces_if: Ordering,
) -> Result<Precision<ScalarValue>> {
    let mut extreme: Option<ScalarValue> = None;
    let mut exact = true;
    for i in 0..file.num_row_groups() {
        if i >= bounds.len() {
            return Ok(Precision::Absent);
        }
        if bounds.is_null(i) {
            let nulls = zones
                .null_count
                .is_valid(i)
                .then(|| zones.null_count.value(i));
            match nulls == Some(file.rows(i) as u64) {
                true => continue,
                false => return Ok(Precision::Absent),
            }
        }
        exact &= zones.exact.is_valid(i) && zones.exact.value(i);
        let bound = ScalarValue::try_from_array(bounds, i)?;
        if is_nan(&bound) {
            return Ok(Precision::Absent);
        }
        let replaces = match &extreme {
            None => true,
            Some(extreme) => bound.partial_cmp(extreme) == Some(replaces_if),
        };
        if replaces {
            extreme = Some(bound);
        }
    }
    Ok(match extreme {
        Some(value) if exact => Precision::Exact(value),
        Some(value) => Precision::Inexact(value),
        None => Precision::Absent,
    })
}

fn is_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float16(Some(value)) => value.is_nan(),
        ScalarValue::Float32(Some(value)) => value.is_nan(),
        ScalarValue::Float64(Some(value)) => value.is_nan(),
        _ => false,
    }
}
