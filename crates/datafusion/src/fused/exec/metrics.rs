//! Metrics of GPU nodes, for `EXPLAIN ANALYZE`.

use std::sync::Arc;

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricType, MetricValue, Time,
};
use vectile_gpu::{Assembled, Statistics};

use super::stage::{Stage, Stages};

/// The metrics of one partition of a GPU node.
#[derive(Clone, Debug)]
pub(crate) struct GpuMetrics {
    /// Bytes, as in the file, of column chunks that the engine had on the device or in host memory.
    pub(crate) bytes_cached: Count,
    /// Bytes of device layouts built for this query, and of streams, that were copied to the device.
    pub(crate) bytes_sent: Count,
    /// Rows that kernels read.
    pub(crate) rows: Count,
    /// Tables of build sides that an earlier query has cached.
    pub(crate) lookups_cached: Count,
    /// Rows of build sides that tables were built from.
    pub(crate) build_rows: Count,
    /// Tables of build sides that were built on the device.
    pub(crate) lookups_built: Count,
    /// Time for reading build sides and building their tables.
    pub(crate) build_time: Time,
    /// Kernel launches.
    launches: Count,
    /// Launches of the interpreter among them.
    pub(crate) interpreted: Count,
    /// Time for looking up or compiling kernels.
    compile_time: Time,
    /// Time for copying to the device, summed over concurrent copies, without building the layouts.
    pub(crate) copy_time: Time,
    /// Time for running kernels, by the device's clock.
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
            interpreted: summary().counter("interpreted", partition),
            compile_time: summary().subset_time("compile_time", partition),
            copy_time: summary().subset_time("copy_time", partition),
            kernel_time: summary().subset_time("kernel_time", partition),
            set: set.clone(),
            partition,
        }
    }

    /// Adds the engine's statistics.
    pub(crate) fn add(&self, statistics: &Statistics) {
        self.launches.add(statistics.launches);
        self.interpreted.add(statistics.launches_interpreted);
        self.compile_time.add_duration(statistics.compile);
        self.kernel_time.add_duration(statistics.kernel);
    }

    /// Counts columns that the device has decoded.
    pub(crate) fn add_assembled(&self, assembled: &Assembled) {
        let summary = || MetricBuilder::new(&self.set).with_type(MetricType::Summary);
        let columns = summary().counter("columns_decoded_on_gpu", self.partition);
        columns.add(assembled.chunks.iter().flatten().count());
        let time = summary().subset_time("decode_time", self.partition);
        time.add_duration(assembled.kernel);
        self.bytes_sent.add(assembled.sent);
    }

    /// Reports the stages of the node's build sides.
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

    /// Records why the CPU builds tables of a build side that the device should have built.
    pub(crate) fn add_build_on_cpu(&self, reason: impl ToString) {
        let summary = MetricBuilder::new(&self.set).with_type(MetricType::Summary);
        let name = format!("builds_on_cpu ({})", reason.to_string());
        summary.counter(name, self.partition).add(1);
    }

    /// Counts work that fell back to the CPU. The metric's name includes the reason, because `EXPLAIN ANALYZE` shows
    /// labels only with `VERBOSE`.
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
