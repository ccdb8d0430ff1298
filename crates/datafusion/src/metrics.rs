//! Metrics of scans, for `EXPLAIN ANALYZE`.

use std::time::Duration;

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricType, PruningMetrics, Time,
};
use vectile_scan::{Counter, Metrics, Step};

/// The metrics of one partition of a scan.
///
/// Times are wall clock and exclude other operators. `time_fetching` includes waiting for prefetched bytes only as far
/// as the scan had to wait.
#[derive(Clone, Debug)]
pub(crate) struct ScanMetrics {
    /// Files, or byte ranges of them, excluded by statistics or partition values.
    pub(crate) files: PruningMetrics,
    /// Row groups excluded by row-group zone maps, or known to match in full.
    pub(crate) row_groups: PruningMetrics,
    /// Row groups excluded by a dynamic filter after the file was opened.
    pub(crate) row_groups_pruned_dynamic: Count,
    /// Row groups excluded by Bloom filters.
    pub(crate) row_groups_pruned_bloom: Count,
    /// Vectors (of 1024 rows) excluded by their zone maps.
    pub(crate) vectors: PruningMetrics,
    /// Bytes read of column data, zone maps and Bloom filters, without footers.
    pub(crate) bytes_scanned: Count,
    /// Bytes of memory of column data, zone maps and Bloom filters that the runtime's cache had.
    pub(crate) bytes_cached: Count,
    /// Rows that filters were evaluated on and dropped.
    pub(crate) rows_filtered: Count,
    /// Rows decoded to Arrow arrays for output.
    pub(crate) rows_decoded: Count,
    /// Reading and parsing the footer, lowering the filters, pruning row groups.
    pub(crate) time_opening: Time,
    /// Waiting for column data.
    pub(crate) time_fetching: Time,
    /// Evaluating filters.
    pub(crate) time_filtering: Time,
    /// Decoding and projecting the surviving rows.
    pub(crate) time_decoding: Time,
    /// Errors of building or evaluating a pruning predicate. Nothing is pruned then.
    pub(crate) pruning_errors: Count,
}

impl ScanMetrics {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let summary = || MetricBuilder::new(metrics).with_type(MetricType::Summary);
        let bytes = || summary().with_category(MetricCategory::Bytes);
        let rows = || MetricBuilder::new(metrics).with_category(MetricCategory::Rows);
        Self {
            files: summary().pruning_metrics("files_ranges_pruned_statistics", partition),
            row_groups: summary().pruning_metrics("row_groups_pruned_statistics", partition),
            row_groups_pruned_dynamic: summary()
                .with_category(MetricCategory::Rows)
                .counter("row_groups_pruned_dynamic_filter", partition),
            row_groups_pruned_bloom: summary()
                .with_category(MetricCategory::Rows)
                .counter("row_groups_pruned_by_bloom_filter", partition),
            vectors: summary().pruning_metrics("vectors_pruned_statistics", partition),
            bytes_scanned: bytes().counter("bytes_scanned", partition),
            bytes_cached: bytes().counter("bytes_cached", partition),
            rows_filtered: rows().counter("rows_filtered", partition),
            rows_decoded: rows().counter("rows_decoded", partition),
            time_opening: summary().subset_time("open_time", partition),
            time_fetching: MetricBuilder::new(metrics).subset_time("fetch_time", partition),
            time_filtering: MetricBuilder::new(metrics).subset_time("filter_time", partition),
            time_decoding: MetricBuilder::new(metrics).subset_time("decode_time", partition),
            pruning_errors: rows().counter("num_predicate_creation_errors", partition),
        }
    }
}

impl Metrics for ScanMetrics {
    fn add(&self, counter: Counter, count: usize) {
        match counter {
            Counter::RowGroupsPruned => self.row_groups_pruned_dynamic.add(count),
            Counter::RowGroupsPrunedByBloomFilter => self.row_groups_pruned_bloom.add(count),
            Counter::VectorsPruned => self.vectors.add_pruned(count),
            Counter::VectorsLeft => self.vectors.add_matched(count),
            Counter::BytesRead => self.bytes_scanned.add(count),
            Counter::BytesCached => self.bytes_cached.add(count),
            Counter::RowsFiltered => self.rows_filtered.add(count),
            Counter::RowsDecoded => self.rows_decoded.add(count),
            _ => (),
        }
    }

    fn add_time(&self, step: Step, time: Duration) {
        match step {
            Step::Fetching => self.time_fetching.add_duration(time),
            Step::Filtering => self.time_filtering.add_duration(time),
            Step::Decoding => self.time_decoding.add_duration(time),
            _ => (),
        }
    }
}
