//! What a footer says, as DataFusion's statistics: exact only where it is.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use vectile_encodings::ZoneMap;
use vectile_file::Metadata;

/// Statistics of a file for the columns of `table`.
pub(crate) fn file_statistics(metadata: &Metadata, table: &Schema) -> Result<Statistics> {
    let rows = metadata.num_rows() as usize;
    let columns =
        table
            .fields()
            .iter()
            .map(|field| match metadata.schema().index_of(field.name()) {
                Ok(index) => column_statistics(metadata, index, field),
                // Reads as null.
                Err(_) => {
                    Ok(ColumnStatistics::new_unknown().with_null_count(Precision::Exact(rows)))
                }
            });
    Ok(Statistics {
        num_rows: Precision::Exact(rows),
        // Of all columns, and so no bound for a scan of some; DataFusion adds up those of a
        // projection itself where it can, and otherwise does better with the number of rows.
        total_byte_size: Precision::Absent,
        column_statistics: columns.collect::<Result<_>>()?,
    })
}

fn column_statistics(metadata: &Metadata, index: usize, field: &Field) -> Result<ColumnStatistics> {
    let zones = metadata.row_group_statistics(index);
    let statistics = ColumnStatistics::new_unknown()
        .with_null_count(null_count(zones))
        .with_byte_size(byte_size(metadata, index, field.data_type()));
    // the bounds of a dictionary are of the type of its values
    let same_type = zones.min.data_type() == field.data_type();
    if !same_type || !zones.has_bounds() {
        return Ok(statistics);
    }
    Ok(statistics
        .with_min_value(extreme(metadata, zones, &zones.min, Ordering::Less)?)
        .with_max_value(extreme(metadata, zones, &zones.max, Ordering::Greater)?))
}

fn null_count(zones: &ZoneMap) -> Precision<usize> {
    match zones.null_count.null_count() {
        0 => Precision::Exact(zones.null_count.values().iter().sum::<u64>() as usize),
        _ => Precision::Absent,
    }
}

/// Bytes of the column as Arrow arrays.
fn byte_size(metadata: &Metadata, index: usize, data_type: &DataType) -> Precision<usize> {
    if let Some(width) = data_type.primitive_width() {
        return Precision::Exact(width * metadata.num_rows() as usize);
    }
    let chunks = metadata
        .row_groups()
        .iter()
        .filter_map(|group| group.columns.get(index));
    Precision::Inexact(chunks.map(|chunk| chunk.arrow_bytes as usize).sum())
}

/// The least or greatest of `bounds`, which are the row groups'. Absent where one is unknown, as
/// with NaN, which sorts beyond all numbers but is no bound to compare aggregates with.
fn extreme(
    metadata: &Metadata,
    zones: &ZoneMap,
    bounds: &ArrayRef,
    wanted: Ordering,
) -> Result<Precision<ScalarValue>> {
    let mut extreme: Option<ScalarValue> = None;
    let mut exact = true;
    for (i, group) in metadata.row_groups().iter().enumerate() {
        if i >= bounds.len() {
            return Ok(Precision::Absent);
        }
        if bounds.is_null(i) {
            match zones.null_count.value(i) == group.rows as u64 {
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
            Some(extreme) => bound.partial_cmp(extreme) == Some(wanted),
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
