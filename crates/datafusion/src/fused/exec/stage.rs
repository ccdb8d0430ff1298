//! The stages of a fused node with their rows, bytes and time, for `EXPLAIN ANALYZE`.
//!
//! A stage builds the tables of a build side. The stages of a node are one metric, in the order of its joins. So they
//! are shown with the other metrics, and a copy of the node that has not run has none.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Result, human_readable_count, human_readable_duration, human_readable_size,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{CustomMetricValue, MetricsSet};

use crate::fused::table::Table;

/// How the tables of a build side were obtained.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    /// The join condition, as in `EXPLAIN`.
    on: String,
    origin: TableOrigin,
    /// Keys in its tables.
    keys: usize,
    /// Bytes of its tables.
    memory: usize,
    time: Duration,
}

/// Where tables come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableOrigin {
    /// Cached by an earlier query.
    Cached,
    /// Built on the device, with the stages of the joins within.
    Gpu(BuildInput, Vec<Stage>),
    Cpu(BuildInput),
}

/// Input of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BuildInput {
    pub(crate) rows: usize,
    /// Bytes of columns in the files.
    pub(crate) bytes: usize,
}

impl Stage {
    pub(crate) fn new(
        on: String,
        origin: TableOrigin,
        tables: &[Arc<Table>],
        time: Duration,
    ) -> Self {
        // each table has all keys
        let keys = tables.iter().map(|table| table.codes.len()).max();
        Self {
            on,
            origin,
            keys: keys.unwrap_or_default(),
            memory: tables.iter().map(|table| table.bytes()).sum(),
            time,
        }
    }
}

impl BuildInput {
    /// Input read by the scans of a plan that has run.
    pub(crate) fn by(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        let mut read = Self::default();
        plan.apply(|node| {
            if let Some(metrics) = node.metrics() {
                let sum = |name| sum(&metrics, name);
                let scanned = match node.children().is_empty() {
                    true => metrics.output_rows().unwrap_or_default() + sum("rows_filtered"),
                    false => 0,
                };
                read.rows += scanned.max(sum("gpu_rows"));
                read.bytes += sum("bytes_scanned") + sum("bytes_cached");
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(read)
    }
}

fn sum(metrics: &MetricsSet, name: &str) -> usize {
    let sum = metrics.sum_by_name(name);
    sum.map_or(0, |sum| sum.as_usize())
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (origin, read) = match &self.origin {
            TableOrigin::Cached => ("cached", None),
            TableOrigin::Gpu(read, _) => ("GPU", Some(read)),
            TableOrigin::Cpu(read) => ("CPU", Some(read)),
        };
        write!(f, "{}: {origin}", self.on)?;
        if let Some(BuildInput { rows, bytes }) = read {
            write!(f, ", rows={}", human_readable_count(*rows))?;
            write!(f, ", bytes={}", human_readable_size(*bytes))?;
        }
        write!(f, ", keys={}", human_readable_count(self.keys))?;
        write!(f, ", memory={}", human_readable_size(self.memory))?;
        if read.is_some() {
            let nanos = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
            write!(f, ", time={}", human_readable_duration(nanos))?;
        }
        match &self.origin {
            TableOrigin::Gpu(_, stages) if !stages.is_empty() => {
                write!(f, ", stages={}", List(stages))
            }
            _ => Ok(()),
        }
    }
}

struct List<'a>(&'a [Stage]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (number, stage) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{stage}")?;
        }
        f.write_str("]")
    }
}

/// The stages of a node as a metric.
#[derive(Debug)]
pub(crate) struct Stages(Mutex<Vec<Stage>>);

impl Stages {
    pub(crate) fn new(stages: Vec<Stage>) -> Self {
        Self(Mutex::new(stages))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Stage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        List(&self.all()).fmt(f)
    }
}

impl CustomMetricValue for Stages {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self::new(Vec::new()))
    }

    /// Lists the stages of each run, if a plan has run more than once.
    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            let others = other.all().clone();
            self.all().extend(others);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        self.all().len()
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        let Some(other) = other.as_any().downcast_ref::<Self>() else {
            return false;
        };
        let others = other.all().clone();
        *self.all() == others
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

    use super::*;
    use crate::fused::exec::metrics::GpuMetrics;

    fn stage(on: &str, origin: TableOrigin) -> Stage {
        Stage {
            on: on.into(),
            origin,
            keys: 1_460_000,
            memory: 12 << 20,
            time: Duration::from_micros(8_100),
        }
    }

    #[test]
    fn each_stage_is_shown_in_full() {
        let read = BuildInput {
            rows: 15_000_000,
            bytes: 96 << 20,
        };
        let nested = stage("o_custkey = c_custkey", TableOrigin::Cached);
        let stages = vec![
            stage(
                "l_orderkey = o_orderkey",
                TableOrigin::Gpu(read, vec![nested]),
            ),
            stage("l_suppkey = s_suppkey", TableOrigin::Cpu(read)),
        ];
        let set = ExecutionPlanMetricsSet::new();
        let metrics = GpuMetrics::new(&set, 0);
        metrics.add_stages(Vec::new());
        metrics.add_stages(stages);
        // As EXPLAIN ANALYZE prints them.
        let shown = set.clone_inner().aggregate_by_name().sorted_for_display();
        let of_kept = "keys=1.46 M, memory=12.0 MB";
        let of_read = "rows=15.00 M, bytes=96.0 MB, keys=1.46 M, memory=12.0 MB, time=8.10ms";
        let expected = format!(
            "stages=[l_orderkey = o_orderkey: GPU, {of_read}, stages=[o_custkey = c_custkey: cached, {of_kept}]; \
             l_suppkey = s_suppkey: CPU, {of_read}]"
        );
        let shown = shown.to_string();
        assert!(shown.contains(&expected), "{shown}");
    }

    #[test]
    fn stages_of_further_runs_are_listed_behind() {
        let set = ExecutionPlanMetricsSet::new();
        for origin in [TableOrigin::Cpu(BuildInput::default()), TableOrigin::Cached] {
            GpuMetrics::new(&set, 0).add_stages(vec![stage("a = b", origin)]);
        }
        let shown = set.clone_inner().aggregate_by_name().to_string();
        assert_eq!(shown.matches("stages=").count(), 1, "{shown}");
        assert_eq!(shown.matches("a = b: ").count(), 2, "{shown}");
    }
}
