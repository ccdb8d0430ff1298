//! Converts the filters of a query to those of a scan.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use vectile_scan::{Container, DynamicFilter, Filters, Node, Role, Stage};

use crate::error;
use crate::lower::{lower, lower_weakened};

/// A dynamic filter of DataFusion.
struct DynamicExpr {
    expr: Arc<dyn PhysicalExpr>,
    tracking: DynamicFilterTracking,
    /// Schema of the file.
    schema: SchemaRef,
}

impl DynamicExpr {
    fn lower(&self) -> Result<Vec<Node>> {
        let current = snapshot_physical_expr(Arc::clone(&self.expr))?;
        let current = PhysicalExprSimplifier::new(&self.schema).simplify(current)?;
        split_conjunction(&current)
            .into_iter()
            .map(|part| lower_weakened(part, &self.schema))
            .collect()
    }
}

impl DynamicFilter for DynamicExpr {
    /// A filter that cannot be lowered keeps all rows.
    fn current(&self) -> Vec<Node> {
        self.lower().unwrap_or_default()
    }

    fn has_changed(&mut self) -> bool {
        let watcher = self.tracking.watcher();
        watcher.is_some_and(|watcher| watcher.changed())
    }

    fn can_change(&self) -> bool {
        matches!(self.tracking, DynamicFilterTracking::Watching(_))
    }
}

fn is_dynamic(conjunct: &Arc<dyn PhysicalExpr>) -> bool {
    conjunct.is::<DynamicFilterPhysicalExpr>()
}

/// Lowers `predicate`, whose columns are those of the file. `role` applies to the query's own filters. Also returns those
/// of its conjuncts that zone maps cannot answer in full.
pub(crate) fn filters(
    predicate: Option<&Arc<dyn PhysicalExpr>>,
    file: Arc<dyn Container>,
    role: Role,
) -> Result<(Filters, Vec<Arc<dyn PhysicalExpr>>)> {
    let (mut exact, mut tests) = (Vec::new(), Vec::new());
    let mut dynamic: Vec<Box<dyn DynamicFilter>> = Vec::new();
    for conjunct in predicate.into_iter().flat_map(split_conjunction) {
        match is_dynamic(conjunct) {
            true => dynamic.push(Box::new(DynamicExpr {
                expr: Arc::clone(conjunct),
                tracking: DynamicFilterTracking::classify(conjunct),
                schema: Arc::clone(file.schema()),
            })),
            false => {
                let node = lower(conjunct, file.schema())?;
                if node.stage() != Stage::Encoded {
                    tests.push(Arc::clone(conjunct));
                }
                exact.push(node);
            }
        }
    }
    let filters = Filters::try_new(file, exact, role, dynamic).map_err(error::scan)?;
    Ok((filters, tests))
}

/// Appends how each conjunct of `predicate` is evaluated, for `EXPLAIN`.
pub(crate) fn describe(
    predicate: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    f: &mut impl fmt::Write,
) -> fmt::Result {
    let stages = [Stage::Encoded, Stage::PerValue, Stage::Decoded];
    let mut stages = stages.map(|stage| (stage, Vec::new()));
    for conjunct in split_conjunction(predicate) {
        if is_dynamic(conjunct) {
            continue;
        }
        let Ok(node) = lower(conjunct, schema) else {
            continue;
        };
        let stage = node.stage();
        for (_, conjuncts) in stages.iter_mut().filter(|(listed, _)| *listed == stage) {
            conjuncts.push(conjunct.to_string());
        }
    }
    for (stage, conjuncts) in stages.iter().filter(|(_, conjuncts)| !conjuncts.is_empty()) {
        write!(f, ", {stage}=[{}]", conjuncts.join(", "))?;
    }
    Ok(())
}
