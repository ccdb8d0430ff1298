//! The filters of a scan of one file: what was lowered, in the order in which it is evaluated.
//!
//! Filters of the query are exact: every row that the scan returns satisfies them. A dynamic
//! filter (of a hash join's build side, of a top-k's threshold) may let rows through, so each of
//! its parts is kept only while it pays: one that keeps most of the rows it sees is suspended,
//! until the filter changes. That is what makes it safe to evaluate hash-table lookups here.
//!
//! The order is by cost over the share of rows dropped, as measured so far.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use vectile_file::Metadata;

use crate::conjunct::{Conjunct, Role};
use crate::lower::{lower, lower_weakened};
use crate::node::{Node, Stage};

/// A dynamic filter, lowered as it was when last looked at.
struct DynamicConjunct {
    expr: Arc<dyn PhysicalExpr>,
    tracking: DynamicFilterTracking,
    parts: Vec<Arc<Conjunct>>,
}

impl DynamicConjunct {
    fn new(expr: Arc<dyn PhysicalExpr>, file: &Metadata) -> Self {
        let tracking = DynamicFilterTracking::classify(&expr);
        let mut conjunct = Self {
            expr,
            tracking,
            parts: Vec::new(),
        };
        conjunct.lower(file);
        conjunct
    }

    /// A value that cannot be lowered filters nothing.
    fn lower(&mut self, file: &Metadata) {
        self.parts = lower_dynamic(&self.expr, file).unwrap_or_default();
    }
}

/// The parts of a dynamic filter's current value.
fn lower_dynamic(expr: &Arc<dyn PhysicalExpr>, file: &Metadata) -> Result<Vec<Arc<Conjunct>>> {
    let current = snapshot_physical_expr(Arc::clone(expr))?;
    let current = PhysicalExprSimplifier::new(file.schema()).simplify(current)?;
    let nodes = split_conjunction(&current)
        .into_iter()
        .map(|part| lower_weakened(part, file.schema()))
        .collect::<Result<_>>()?;
    conjuncts(nodes, file, Role::Optional)
}

fn conjuncts(nodes: Vec<Node>, file: &Metadata, role: Role) -> Result<Vec<Arc<Conjunct>>> {
    let parts = Node::conjunction(nodes)?.into_iter();
    parts
        .map(|node| Conjunct::try_new(node, file, role).map(Arc::new))
        .collect()
}

/// All filters of a scan of one file.
pub(crate) struct Filters {
    file: Arc<Metadata>,
    exact: Vec<Arc<Conjunct>>,
    dynamic: Vec<DynamicConjunct>,
    generation: u64,
}

impl Filters {
    /// Lowers `predicate`, whose columns are those of the file. `role` is that of the query's own
    /// filters.
    pub(crate) fn try_new(
        predicate: Option<&Arc<dyn PhysicalExpr>>,
        file: Arc<Metadata>,
        role: Role,
    ) -> Result<Self> {
        let mut exact = Vec::new();
        let mut dynamic = Vec::new();
        for conjunct in predicate.into_iter().flat_map(split_conjunction) {
            if conjunct
                .downcast_ref::<DynamicFilterPhysicalExpr>()
                .is_some()
            {
                dynamic.push(DynamicConjunct::new(Arc::clone(conjunct), &file));
            } else {
                exact.push(lower(conjunct, file.schema())?);
            }
        }
        Ok(Self {
            exact: conjuncts(exact, &file, role)?,
            dynamic,
            generation: 0,
            file,
        })
    }

    /// Looks whether a dynamic filter has changed, and lowers it again if so.
    pub(crate) fn refresh(&mut self) -> bool {
        let mut changed = false;
        for conjunct in &mut self.dynamic {
            if conjunct
                .tracking
                .watcher()
                .is_some_and(|watcher| watcher.changed())
            {
                conjunct.lower(&self.file);
                changed = true;
            }
        }
        self.generation += u64::from(changed);
        changed
    }

    /// Whether a dynamic filter was not complete when the file was opened.
    pub(crate) fn can_change(&self) -> bool {
        let mut dynamic = self.dynamic.iter();
        dynamic.any(|conjunct| matches!(conjunct.tracking, DynamicFilterTracking::Watching(_)))
    }

    /// Counts the changes of dynamic filters.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a filter of the query rules the row group out.
    pub(crate) fn exclude(&self, row_group: usize) -> bool {
        self.exact
            .iter()
            .any(|conjunct| conjunct.excludes(row_group))
    }

    /// Whether there are filters of the query, and they cover the row group.
    pub(crate) fn cover(&self, row_group: usize) -> bool {
        !self.exact.is_empty() && self.exact.iter().all(|conjunct| conjunct.covers(row_group))
    }

    /// Whether zone maps of the lowered filters cannot answer a part of the query's filters.
    pub(crate) fn has_tests(&self) -> bool {
        self.exact
            .iter()
            .any(|conjunct| conjunct.node.stage() != Stage::Encoded)
    }

    /// Whether filters of the query are to be evaluated on rows of the row group.
    pub(crate) fn is_open(&self, row_group: usize) -> bool {
        let mut exact = self.exact.iter();
        exact.any(|conjunct| conjunct.role == Role::Exact && !conjunct.covers(row_group))
    }

    /// Whether a dynamic filter rules the row group out.
    pub(crate) fn exclude_now(&self, row_group: usize) -> bool {
        self.dynamic().any(|conjunct| conjunct.excludes(row_group))
    }

    fn dynamic(&self) -> impl Iterator<Item = &Arc<Conjunct>> {
        self.dynamic.iter().flat_map(|conjunct| &conjunct.parts)
    }

    /// Whether there is nothing to evaluate, now or later.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.dynamic.is_empty()
    }

    /// What is worth evaluating on the rows of a row group, in order.
    pub(crate) fn for_row_group(&self, row_group: usize) -> Result<Vec<Arc<Conjunct>>> {
        let all = self.exact.iter().chain(self.dynamic());
        let open = all.filter(|conjunct| !conjunct.covers(row_group) && conjunct.pays());
        let mut conjuncts: Vec<Arc<Conjunct>> = open
            .map(|conjunct| conjunct.in_row_group(row_group, &self.file).map(Arc::new))
            .collect::<Result<_>>()?;
        conjuncts.sort_by(|a, b| a.rank().total_cmp(&b.rank()).then(a.role.cmp(&b.role)));
        Ok(conjuncts)
    }
}

/// Names how each conjunct of `predicate` is evaluated, for `EXPLAIN`.
pub(crate) fn describe(
    predicate: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut stages: [(Stage, Vec<String>); 3] = [
        (Stage::Encoded, Vec::new()),
        (Stage::PerValue, Vec::new()),
        (Stage::Decoded, Vec::new()),
    ];
    for conjunct in split_conjunction(predicate) {
        if conjunct
            .downcast_ref::<DynamicFilterPhysicalExpr>()
            .is_some()
        {
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
