//! What a GPU node counts, for `EXPLAIN ANALYZE`.

use std::sync::Arc;

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricType, MetricValue, Time,
};
use vectile_gpu::{Assembled, Statistics};

use super::stage::{Stage, Stages};

/// The metrics of one partition of a GPU node.
#[derive(Clone, Debug)]
pub(crate) struct GpuMetrics {
    /// Bytes of column chunks, as they are in the file, that the engine had: on the device, or in host
    /// memory.
    pub(crate) bytes_cached: Count,
    /// Bytes of device layouts that were made for this query, and of streams, that were copied to the device.
    pub(crate) bytes_sent: Count,
    /// Rows that kernels looked at.
    pub(crate) rows: Count,
    /// Tables of dimensions that were there from earlier queries.
    pub(crate) lookups_cached: Count,
    /// Rows of dimensions that tables were made of.
    pub(crate) build_rows: Count,
    /// Tables of dimensions that the device has made.
    pub(crate) lookups_built: Count,
    /// Reading dimensions, and making tables of them.
    pub(crate) build_time: Time,
    /// Launches of kernels.
    launches: Count,
    /// Finding or compiling kernels.
    compile_time: Time,
    /// Copying to the device, added up over copies under way at once; building the layouts is not
    /// in it.
    pub(crate) copy_time: Time,
    /// Running kernels, by the device's clock.
    kernel_time: Time,
    set: ExecutionPlanMetricsSet,
    partition: usize,
}

impl GpuMetrics {
    pub(crate) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let summary = || MetricBuilder::new(set).with_type(MetricType::Summary);
        let bytes = || summary().with_category(MetricCategory::Bytes);
        Self {
            bytes_cached: bytes().counter("bytes_cached", partition),
            bytes_sent: bytes().counter("bytes_sent", partition),
            rows: summary()
                .with_category(MetricCategory::Rows)
                .counter("gpu_rows", partition),
            lookups_cached: summary().counter("lookups_cached", partition),
            build_rows: summary()
                .with_category(MetricCategory::Rows)
                .counter("build_rows", partition),
            lookups_built: summary().counter("lookups_built_on_gpu", partition),
            build_time: summary().subset_time("build_time", partition),
            launches: summary().counter("launches", partition),
            compile_time: summary().subset_time("compile_time", partition),
            copy_time: summary().subset_time("copy_time", partition),
            kernel_time: summary().subset_time("kernel_time", partition),
            set: set.clone(),
            partition,
        }
    }

    /// Takes over what the engine measured.
    pub(crate) fn add(&self, statistics: &Statistics) {
        self.launches.add(statistics.launches);
        self.compile_time.add_duration(statistics.compile);
        self.kernel_time.add_duration(statistics.kernel);
    }

    /// Counts columns that the device has made of streams.
    pub(crate) fn add_assembled(&self, assembled: &Assembled) {
        let summary = || MetricBuilder::new(&self.set).with_type(MetricType::Summary);
        let columns = summary().counter("columns_decoded_on_gpu", self.partition);
        columns.add(assembled.chunks.iter().flatten().count());
        let time = summary().subset_time("decode_time", self.partition);
        time.add_duration(assembled.kernel);
        self.bytes_sent.add(assembled.sent);
    }

    /// Tells what each of the node's dimensions took.
    pub(crate) fn add_stages(&self, stages: Vec<Stage>) {
        if !stages.is_empty() {
            let summary = MetricBuilder::new(&self.set).with_type(MetricType::Summary);
            let summary = summary.with_partition(self.partition);
            summary.build(MetricValue::Custom {
                name: "stages".into(),
                value: Arc::new(Stages::new(stages)),
            });
        }
    }

    /// Says why the CPU makes tables of a dimension that the device was to make.
    pub(crate) fn add_build_on_cpu(&self, reason: impl ToString) {
        let summary = MetricBuilder::new(&self.set).with_type(MetricType::Summary);
        let name = format!("builds_on_cpu ({})", reason.to_string());
        summary.counter(name, self.partition).add(1);
    }

    /// Counts work that was left to the CPU after all. The reason is in the metric's name too:
    /// `EXPLAIN ANALYZE` shows labels only with `VERBOSE`.
    pub(crate) fn add_fallback(&self, reason: impl ToString) {
        let reason = reason.to_string();
        let summary = || MetricBuilder::new(&self.set).with_type(MetricType::Summary);
        summary()
            .counter(format!("fallbacks ({reason})"), self.partition)
            .add(1);
        summary()
            .with_new_label("reason", reason)
            .counter("fallbacks", self.partition)
            .add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallbacks_are_shown_with_their_reasons() {
        let set = ExecutionPlanMetricsSet::new();
        for (partition, reason) in [(0, "no kernel"), (1, "no memory"), (2, "no memory")] {
            GpuMetrics::new(&set, partition).add_fallback(reason);
        }
        // As EXPLAIN ANALYZE prints them.
        let metrics = set.clone_inner().aggregate_by_name().sorted_for_display();
        let text = metrics.to_string();
        assert!(text.contains("fallbacks=3"), "{text}");
        assert!(text.contains("fallbacks (no kernel)=1"), "{text}");
        assert!(text.contains("fallbacks (no memory)=2"), "{text}");
    }
}
