//! Fuses joins whose rows are put out.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};
use vectile_pipeline::Output;

use super::fusing::{Fused, Fusing, Joins};
use super::relation::FusionTarget;
use crate::fused::cost_model::Work;
use crate::fused::exec::fused_join::JoinRows;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::expression::Lowering;
use crate::fused::lowering::output_rows::RowColumns;
use crate::fused::pattern::files::num_rows;
use crate::fused::pattern::probe_side::ProbeSide;
use crate::fused::pattern::relation::Relation;
use crate::options::GpuMode;

/// Minimum number of rows of a large table.
const LARGE_ROWS: usize = 1 << 20;

/// Estimated bytes of a string.
const TEXT_BYTES: usize = 32;

/// Most bytes of text in rows that a node puts out: all of them are collected, where a join on the CPU makes batches as
/// they are read. The limit is from when one thread made strings of codes, and was not measured since.
const MOST_TEXT: u64 = 128 << 20;

/// The rows of a join. The plan has an estimate of their number.
struct RowTarget<'a>(&'a Arc<dyn ExecutionPlan>);

impl FusionTarget for RowTarget<'_> {
    const IS_AGGREGATED: bool = false;
    type Outputs = RowColumns;

    fn lower(
        &self,
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<(RowColumns, Output), FallbackReason> {
        let columns = RowColumns::lower(relation, lowering)?;
        let output = Output::Rows(columns.of_kernel().to_vec());
        Ok((columns, output))
    }

    fn work(&self, relation: &Relation, work: Work) -> Result<Option<Work>, FallbackReason> {
        let OutputBytes { values, text } = output_bytes(self.0, &relation.config)?;
        Ok(Some(Work {
            returned: values.saturating_add(text),
            // programs put out no rows
            is_for_operators: true,
            ..work
        }))
    }
}

impl Fusing<'_> {
    /// Fuses a join, also below filters and projections; `None` if it is not one with a Vectile table.
    pub(super) fn fuse_join(&self, plan: &Arc<dyn ExecutionPlan>) -> Fused {
        // programs collect all rows, as build sides do
        let is_collected = !self.is_on_cpu || self.joins == Joins::Large;
        if self.joins == Joins::None || !is_collected || !may_contain_join(plan) {
            return Ok(None);
        }
        let Some(relation) = Relation::of(plan, ProbeSide::LargestTable)?
            .filter(|relation| !relation.joins.is_empty())
        else {
            return Ok(None);
        };
        let is_large = num_rows(&relation.config).is_some_and(|rows| rows >= LARGE_ROWS);
        if self.joins == Joins::Large && !is_large {
            return Ok(None);
        }
        if !self.is_on_cpu && self.options.gpu != GpuMode::Require {
            let bytes = output_bytes(plan, &relation.config)?.text;
            if bytes > MOST_TEXT {
                let reason = format!("rows with {bytes} bytes of text");
                return Err(FallbackReason::Join(reason));
            }
        }
        let parts = self.lower_relation(&RowTarget(plan), relation)?;
        let below = self.lenient(Joins::None);
        let cpu = Arc::clone(plan).map_children(|input| below.operators(input))?;
        let cpu = self.cpu_plan(cpu.data)?;
        let rows = JoinRows {
            columns: parts.outputs.clone(),
            schema: plan.schema(),
        };
        self.node(parts.plan(rows, cpu, self))
    }
}

/// Returns true for joins, and for filters and projections, which may be over joins.
fn may_contain_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
}

/// Estimated bytes of a join's rows.
struct OutputBytes {
    /// Of numbers.
    values: u64,
    /// Of strings.
    text: u64,
}

fn output_bytes(
    plan: &Arc<dyn ExecutionPlan>,
    config: &FileScanConfig,
) -> Result<OutputBytes, FallbackReason> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let rows = statistics.num_rows.get_value().copied();
    let rows = rows.or(num_rows(config)).unwrap_or_default() as u64;
    let schema = plan.schema();
    let widths = || {
        schema
            .fields()
            .iter()
            .map(|of| of.data_type().primitive_width())
    };
    let texts = widths().filter(Option::is_none).count();
    Ok(OutputBytes {
        values: rows.saturating_mul(widths().flatten().sum::<usize>() as u64),
        text: rows.saturating_mul((texts * TEXT_BYTES) as u64),
    })
}
