//! Lowers the relation below an operator, a scan with joins and filters, to the template of a kernel with the outputs
//! of the operator.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::aggregates::AggregateExec;
use vectile_gpu::coded_columns;
use vectile_pipeline::{Expr, Output, Pipeline};

use super::fusing::{Fusing, Joins};
use crate::fused::cost_model::Work;
use crate::fused::exec::auto::Auto;
use crate::fused::exec::build_side::{self, BuildSide};
use crate::fused::exec::cpu_fallback::CpuPlan;
use crate::fused::exec::fused_plan::FusedPlan;
use crate::fused::exec::input::Input;
use crate::fused::exec::star_pipeline::{LookupKey, StarLookup, StarTemplate};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::expression::{Lowering, Needs};
use crate::fused::lowering::join_filter;
use crate::fused::lowering::probe::LookupSpec;
use crate::fused::pattern::files::{bytes_of_columns, num_rows};
use crate::fused::pattern::join::KeySource;
use crate::fused::pattern::reduction;
use crate::fused::pattern::relation::Relation;
use crate::options::{FuseMode, GpuMode};

/// An operator over a relation, whose outputs a kernel computes.
pub(super) trait FusionTarget {
    /// True if rows are aggregated. Kernels then combine a row with any number of matches.
    const IS_AGGREGATED: bool;

    /// How the operator reads the kernel's outputs.
    type Outputs;

    /// Lowers the outputs. Returns those of the kernel, too.
    fn lower(
        &self,
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<(Self::Outputs, Output), FallbackReason>;

    /// The work of the kernel, completed by what only the operator knows; `None` if the cost is that of another kernel,
    /// which uses this one's outputs.
    fn work(&self, relation: &Relation, work: Work) -> Result<Option<Work>, FallbackReason>;
}

/// The parts of a fused node that run on the device.
pub(super) struct FusedParts<T> {
    pub(super) input: Input,
    pub(super) star: StarTemplate,
    auto: Option<Auto>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    pub(super) outputs: T,
    /// True if rows whose lookups have the same codes are in the same group, and others are not.
    pub(super) has_code_per_group: bool,
}

impl<T> FusedParts<T> {
    /// The plan of a node with `operation`, which `cpu` computes otherwise.
    pub(super) fn plan<O>(self, operation: O, cpu: CpuPlan, fusing: &Fusing<'_>) -> FusedPlan<O> {
        FusedPlan {
            gpu: fusing.gpu.clone(),
            is_on_cpu: fusing.is_on_cpu,
            input: self.input,
            star: self.star,
            auto: self.auto,
            filter: self.filter,
            operation,
            options: fusing.options.clone(),
            cpu,
            refused: Arc::default(),
        }
    }
}

impl Fusing<'_> {
    /// Lowers `relation` and the outputs of `target`.
    pub(super) fn lower_relation<T: FusionTarget>(
        &self,
        target: &T,
        mut relation: Relation,
    ) -> Result<FusedParts<T::Outputs>, FallbackReason> {
        if self.is_on_cpu {
            if T::IS_AGGREGATED && self.options.fuse == FuseMode::Auto {
                check_size(&relation)?;
            }
            // a device keeps the tables of whole build sides
            reduction::reduce_build_sides(&mut relation)?;
        }
        let table = relation.source.table_schema().clone();
        let schema = table.table_schema();
        let filters = relation.filters();
        let mut lowering = Lowering::over(&relation)
            .for_program(self.is_on_cpu)
            .with_text_functions();
        let filter = lowering.filters(&filters.of_table)?;
        let keys = JoinKeys::lower(&relation, schema, &mut lowering)?;
        let joined_filters = lowering.joined_filters(&filters.joined)?;
        let conditions = join_filter::of(&relation.joins, &mut lowering)?;
        let (outputs, output) = target.lower(&relation, &mut lowering)?;
        let Needs {
            columns,
            lookups,
            parameters,
        } = lowering.finish();
        let mut has_code_per_group = true;
        for lookup in &lookups {
            has_code_per_group &= lookup.has_code_per_group(&relation.joins)?;
        }
        let work = Work {
            joins: relation.joins.len(),
            states: num_states(&output),
            ..work(&relation.config, columns.len())
        };
        let auto = match target.work(&relation, work)? {
            Some(work) => self.estimated(work)?,
            None => None,
        };
        let build_sides = self.build_sides::<T>(&relation, &lookups, &keys, &conditions)?;
        let template = Pipeline {
            columns: types_of(schema, &columns),
            lookups: vec![],
            matches: vec![],
            filter,
            output,
        };
        let of_table = (!filters.of_table.is_empty()).then(|| conjunction(filters.of_table));
        let all: Vec<_> = of_table.iter().cloned().chain(filters.joined).collect();
        let coded = coded_columns(&template).into_iter();
        Ok(FusedParts {
            input: Input {
                source: relation.source.pruning_by(of_table),
                config: relation.config,
                coded: coded.map(|column| columns[column]).collect(),
                keys: keys
                    .columns(&template)
                    .map(|column| columns[column])
                    .collect(),
                columns,
            },
            star: StarTemplate {
                template: Arc::new(template),
                joined_filters,
                dimensions: build_sides,
                conditions,
                lookups: StarLookup::all(&lookups, &keys.lookups),
                parameters,
            },
            auto,
            filter: (!all.is_empty()).then(|| conjunction(all)),
            outputs,
            has_code_per_group,
        })
    }

    /// The build sides of the joins, each with the lookups that kernels have of it.
    fn build_sides<T: FusionTarget>(
        &self,
        relation: &Relation,
        lookups: &[LookupSpec],
        keys: &JoinKeys,
        conditions: &[Option<Expr>],
    ) -> Result<Vec<BuildSide>, FallbackReason> {
        let most_rows = self.options.gpu_max_build_rows;
        let may_decline = !self.is_on_cpu && self.options.gpu != GpuMode::Require;
        let probe_rows = num_rows(&relation.config).filter(|_| may_decline);
        let mut build_sides =
            build_side::build_sides(&relation.joins, lookups, &keys.sources, most_rows)?;
        let joins = relation.joins.iter().zip(conditions);
        for (build_side, (join, condition)) in build_sides.iter_mut().zip(joins) {
            if build_side.plan.boundedness().is_unbounded() {
                let reason = "the table it looks up has no end";
                return Err(FallbackReason::Join(reason.into()));
            }
            let has_kernel = join.condition.is_some() == condition.is_some();
            build_side.may_repeat_keys(has_kernel && (T::IS_AGGREGATED || join.reads_matches()));
            if !self.is_on_cpu
                && let Some(build) = self.plan_build(build_side)
            {
                build_side.built_by(build.map(|build| Arc::new(build) as _));
            }
            build_side.check_rows(probe_rows)?;
            // The build side need not be on the GPU, even with `require`: the main scan of the query is the table's.
            let plan = Arc::clone(&build_side.plan);
            build_side.plan = self.lenient(Joins::Large).operators(plan)?.data;
        }
        Ok(build_sides)
    }
}

/// Fewest rows to read for which a program is expected to be faster than DataFusion's operators.
const LEAST_ROWS: usize = 1 << 19;

/// A table has at least this many rows for each that a table is made of for a join.
const ROWS_PER_BUILD_ROW: usize = 2;

/// An error unless a program for `relation` is expected to be faster than DataFusion's operators: it makes tables of all
/// rows of build sides, where dynamic filters may leave few.
pub(super) fn check_size(relation: &Relation) -> Result<(), FallbackReason> {
    let rows = num_rows(&relation.config).unwrap_or(0);
    let (mut all, mut build_rows) = (rows, 0usize);
    for join in &relation.joins {
        let own = reduction::scanned_rows(&join.plan)?;
        all = all.saturating_add(own);
        // groups are made in any case, and a set of keys is made faster than a table of rows
        let is_grouped = join.plan.exists(|node| Ok(node.is::<AggregateExec>()))?;
        if join.kind.properties().adds_columns && !is_grouped {
            build_rows = build_rows.saturating_add(own);
        }
    }
    if all < LEAST_ROWS {
        return Err(FallbackReason::FewRows(all));
    }
    match build_rows.saturating_mul(ROWS_PER_BUILD_ROW) > rows {
        true => Err(FallbackReason::Join(
            "its build sides have many rows".into(),
        )),
        false => Ok(()),
    }
}

/// The keys of a relation's joins, in the order of the joins.
struct JoinKeys {
    sources: Vec<KeySource>,
    lookups: Vec<LookupKey>,
}

impl JoinKeys {
    /// Lowers the keys of the probe side, whose columns are those of `table`.
    fn lower(
        relation: &Relation,
        table: &Schema,
        lowering: &mut Lowering<'_>,
    ) -> Result<Self, FallbackReason> {
        let joins = relation.joins.iter();
        let sources = joins
            .clone()
            .map(|join| join.key_source(&relation.schema, table));
        let sources: Vec<KeySource> = sources.collect::<Result<_, FallbackReason>>()?;
        let lookups = joins.zip(&sources).map(|(join, source)| match source {
            KeySource::Column(column, _) => Ok(LookupKey::Column(lowering.key_column(*column)?)),
            KeySource::Packed(parts) => {
                let keys = join.keys.iter().zip(parts);
                let keys = keys.map(|(key, part)| match part.text {
                    Some(column) => Ok(lowering.key_text(column)?),
                    None => lowering.value(&key.probe),
                });
                Ok(LookupKey::Computed(
                    keys.collect::<Result<_, FallbackReason>>()?,
                ))
            }
        });
        Ok(Self {
            lookups: lookups.collect::<Result<_, FallbackReason>>()?,
            sources,
        })
    }

    /// Columns of the pipeline that are keys of groups or joins.
    fn columns(&self, template: &Pipeline) -> impl Iterator<Item = usize> {
        let parts = self.sources.iter().zip(&self.lookups);
        let of_joins = parts.flat_map(|(source, key)| key.columns_of(source));
        template.key_columns().into_iter().chain(of_joins)
    }
}

/// Number of states and keys of each group.
fn num_states(output: &Output) -> usize {
    match output {
        Output::Selection | Output::Rows(_) => 0,
        Output::Aggregates(aggregates) => aggregates.len(),
        Output::Groups(keys, aggregates) => keys.len() + aggregates.len(),
    }
}

pub(super) fn types_of(schema: &Schema, columns: &[usize]) -> Vec<DataType> {
    let fields = columns.iter().map(|&column| schema.field(column));
    fields.map(|field| field.data_type().clone()).collect()
}

/// The minimal work of a query that reads this many columns of a table.
pub(super) fn work(config: &FileScanConfig, columns: usize) -> Work {
    Work {
        // Without statistics, assumes a byte for each value.
        rows: num_rows(config).map_or_else(|| bytes_of_columns(config, 1), |rows| rows as u64),
        columns,
        bytes: bytes_of_columns(config, columns),
        ..Work::default()
    }
}
