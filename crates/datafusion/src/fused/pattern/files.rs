//! Sizes and bounds of the files of a scan, known without reading them.

use datafusion::datasource::physical_plan::FileScanConfig;
use vectile_pipeline::Literal;

use crate::fused::scalar::literal;

/// Bytes of the files of a scan: an upper bound for its columns.
pub(crate) fn num_bytes(config: &FileScanConfig) -> u64 {
    let files = config.file_groups.iter().flat_map(|group| group.iter());
    let bytes = files.map(|file| match &file.range {
        Some(range) => (range.end - range.start).max(0) as u64,
        None => file.object_meta.size,
    });
    bytes.sum()
}

/// Bytes of so many columns of the files of a scan, if all were of one size.
pub(crate) fn bytes_of_columns(config: &FileScanConfig, columns: usize) -> u64 {
    let schema = config.file_source.table_schema().table_schema();
    let all = schema.fields().len().max(1);
    num_bytes(config) / all as u64 * columns as u64
}

/// The number of integers between the minimum and maximum of a column, if all files have statistics of it.
pub(crate) fn num_values(config: &FileScanConfig, column: usize) -> Option<u128> {
    let mut bounds: Option<(i128, i128)> = None;
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        let of_column = file.statistics.as_ref()?.column_statistics.get(column)?;
        let (low, high) = (
            of_column.min_value.get_value()?,
            of_column.max_value.get_value()?,
        );
        let (Literal::Int(low, _), Literal::Int(high, _)) = (literal(low)?, literal(high)?) else {
            return None;
        };
        let (lowest, highest) = bounds.unwrap_or((low, high));
        bounds = Some((lowest.min(low), highest.max(high)));
    }
    let (low, high) = bounds?;
    high.abs_diff(low).checked_add(1)
}

/// Mean bytes of a column's values as Arrow arrays, if known for all files. `column` is an index in the table's schema.
pub(crate) fn bytes_per_value(config: &FileScanConfig, column: usize) -> Option<usize> {
    let (mut bytes, mut rows) = (0usize, 0usize);
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        // byte ranges of one file have the numbers of the whole file
        let statistics = file.statistics.as_ref()?;
        let of_column = statistics.column_statistics.get(column)?;
        bytes = bytes.saturating_add(*of_column.byte_size.get_value()?);
        rows = rows.saturating_add(*statistics.num_rows.get_value()?);
    }
    Some(bytes / rows.max(1))
}

/// Rows of the files of a scan, if known for all of them.
pub(crate) fn num_rows(config: &FileScanConfig) -> Option<usize> {
    let mut rows: usize = 0;
    let mut last = None;
    for file in config.file_groups.iter().flat_map(|group| group.iter()) {
        // Byte ranges of one file are consecutive, and each has the row count of the whole file.
        let location = Some(&file.object_meta.location);
        if file.range.is_some() && last == location {
            continue;
        }
        last = location;
        let of_file = file.statistics.as_ref()?.num_rows.get_value()?;
        rows = rows.saturating_add(*of_file);
    }
    Some(rows)
}
