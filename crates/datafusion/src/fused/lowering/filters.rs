//! Lowers filters to the kernels' IR: where possible, to tests of columns in their encoded form.

use std::sync::Arc;

use arrow::array::new_null_array;
use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, DynamicFilterPhysicalExpr, DynamicFilterTracking,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use vectile_encodings::Predicate;
use vectile_pipeline::{Expr, Filter, Type, ValueTest};
use vectile_scan::{Node, Test};

use super::expression::{Lowering, unsupported};
use crate::error;
use crate::expression::expression_of;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::types::{MAX_LEVELS, MAX_NODES};
use crate::lower::lower;
use crate::stack;
use crate::text::is_text;

type Result<T> = std::result::Result<T, FallbackReason>;

/// A filter over columns of joined tables.
#[derive(Clone, Debug)]
pub(crate) struct JoinedFilter {
    /// `AND` and `OR` of parts; those over the table alone are tested in their encoded form.
    pub(crate) in_parts: Filter,
    /// The filter as one expression, if that has a kernel. Only an expression can be evaluated per match, where rows
    /// have several matches.
    pub(crate) whole: Option<Expr>,
}

impl JoinedFilter {
    /// `AND` or `OR` of `parts`. The whole reads the same payload columns as the parts, so that it adds none.
    fn of(
        parts: Vec<Self>,
        in_parts: fn(Vec<Filter>) -> Filter,
        whole: fn(Vec<Expr>) -> Expr,
    ) -> Self {
        let (parts, wholes): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|part| (part.in_parts, part.whole))
            .unzip();
        let wholes: Option<Vec<Expr>> = wholes.into_iter().collect();
        Self {
            in_parts: in_parts(parts),
            whole: wholes.map(whole),
        }
    }
}

fn check_parts(filters: &[Arc<dyn PhysicalExpr>]) -> Result<()> {
    match stack::parts(filters) > MAX_NODES {
        true => Err(FallbackReason::ManyParts),
        false => Ok(()),
    }
}

impl Lowering<'_> {
    /// Lowers the conjunction of `filters` over the table, without dynamic filters, which need not reject rows.
    pub(crate) fn filters(&mut self, filters: &[Arc<dyn PhysicalExpr>]) -> Result<Filter> {
        check_parts(filters)?;
        let mut nodes = Vec::new();
        for conjunct in filters.iter().flat_map(split_conjunction) {
            if conjunct
                .downcast_ref::<DynamicFilterPhysicalExpr>()
                .is_some()
            {
                continue;
            }
            if is_volatile(conjunct)
                || DynamicFilterTracking::classify(conjunct).contains_dynamic_filter()
            {
                return Err(unsupported(conjunct));
            }
            // A subquery has no result yet.
            let has_subquery = conjunct.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()))?;
            let node =
                lower(conjunct, self.table.table_schema()).map_err(|error| match has_subquery {
                    true => FallbackReason::Failed(error.strip_backtrace()),
                    false => error.into(),
                });
            nodes.push(node?);
        }
        self.node(Node::all(nodes).map_err(DataFusionError::from)?)
    }

    /// Lowers `filters` over columns of joined tables.
    pub(crate) fn joined_filters(
        &mut self,
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Vec<JoinedFilter>> {
        check_parts(filters)?;
        filters
            .iter()
            .map(|filter| self.joined_filter(0, filter))
            .collect()
    }

    /// Splits `AND` and `OR`, so that parts over the table alone are tested in their encoded form.
    fn joined_filter(
        &mut self,
        level: usize,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> Result<JoinedFilter> {
        match level > MAX_LEVELS {
            true => Err(FallbackReason::TooDeep),
            false => stack::grown(|| self.joined_filter_at(level, filter)),
        }
    }

    fn joined_filter_at(
        &mut self,
        level: usize,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> Result<JoinedFilter> {
        if self.is_of_table(filter) {
            return Ok(JoinedFilter {
                in_parts: self.filters(std::slice::from_ref(filter))?,
                whole: self.try_lower(|trial| trial.value(filter)),
            });
        }
        if self.lookups.join_of(filter).is_none()
            && let Some(binary) = filter.downcast_ref::<BinaryExpr>()
        {
            match binary.op() {
                Operator::And => return self.joined_conjunction(level, filter),
                Operator::Or => {
                    let sides = stack::operands(filter, Operator::Or).into_iter();
                    let sides = sides.map(|side| self.joined_filter(level + 1, side));
                    let sides = sides.collect::<Result<_>>()?;
                    return Ok(JoinedFilter::of(sides, Filter::Or, Expr::or));
                }
                _ => {}
            }
        }
        if is_volatile(filter) || DynamicFilterTracking::classify(filter).contains_dynamic_filter()
        {
            return Err(unsupported(filter));
        }
        let value = self.value(filter)?;
        Ok(JoinedFilter {
            in_parts: Filter::Expr(value.clone()),
            whole: Some(value),
        })
    }

    /// Lowers a conjunction. Combines the parts over the table, whose ranges may merge, and the parts over each join,
    /// which make one payload column.
    fn joined_conjunction(
        &mut self,
        level: usize,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> Result<JoinedFilter> {
        let (of_table, others): (Vec<_>, Vec<_>) = split_conjunction(filter)
            .into_iter()
            .cloned()
            .partition(|part| self.is_of_table(part));
        let mut joined: Vec<(Option<usize>, Vec<_>)> = vec![];
        for part in others {
            let join = self.lookups.join_of(&part);
            match joined
                .iter_mut()
                .find(|(of, _)| join.is_some() && *of == join)
            {
                Some((_, parts)) => parts.push(part),
                None => joined.push((join, vec![part])),
            }
        }
        let of_table = (!of_table.is_empty()).then_some(of_table);
        let joined = joined.into_iter().map(|(_, parts)| parts);
        let parts = of_table.into_iter().chain(joined);
        let parts = parts.map(|parts| self.joined_filter(level + 1, &conjunction(parts)));
        let parts = parts.collect::<Result<_>>()?;
        Ok(JoinedFilter::of(parts, Filter::And, Expr::and))
    }

    fn is_of_table(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        let of_table = self.table.table_schema().fields().len();
        let columns = collect_columns(expr);
        columns.iter().all(|column| column.index() < of_table)
    }

    fn node(&mut self, node: Node) -> Result<Filter> {
        Ok(match node {
            Node::Constant(value) => Filter::Constant(value),
            Node::Leaf(leaf) => {
                let data_type = self.data_type(leaf.column)?;
                if Type::of(data_type).is_none() && !is_text(data_type) {
                    return Err(self.unsupported_column(leaf.column));
                }
                Filter::Column(self.number(leaf.column)?, leaf.predicate)
            }
            Node::PerValue(test) => match self.text_column(&test)? {
                // a device looks results up, instead of testing all values for each query
                Some(column) => match self.filter_of_text(&test)? {
                    Some(filter) => filter,
                    None => self.values(column, test)?,
                },
                None => Filter::Expr(self.value(expression_of(&test)?)?),
            },
            Node::Rows(test) => Filter::Expr(self.value(expression_of(&test)?)?),
            Node::And(nodes) => Filter::And(self.nodes(nodes)?),
            Node::Or(nodes) => Filter::Or(self.nodes(nodes)?),
        })
    }

    fn nodes(&mut self, nodes: Vec<Node>) -> Result<Vec<Filter>> {
        nodes.into_iter().map(|node| self.node(node)).collect()
    }

    /// The column that `test` reads, if it is a single one of text or binary.
    fn text_column(&self, test: &Test) -> Result<Option<usize>> {
        let [column] = *test.columns() else {
            return Ok(None);
        };
        let text = is_text(self.data_type(column)?);
        Ok(text.then_some(column))
    }

    /// Lowers a test of one text column to functions of text, if they decide it and no automaton does.
    fn filter_of_text(&mut self, test: &Test) -> Result<Option<Filter>> {
        let expr = expression_of(test)?;
        if self.text_argument(expr).is_none() || test.automaton().is_some() {
            return Ok(None);
        }
        Ok(self.try_lower(|trial| trial.value(expr)).map(Filter::Expr))
    }

    /// Lowers `test` to one that is evaluated once for each value of a text column.
    fn values(&mut self, column: usize, test: Arc<Test>) -> Result<Filter> {
        let null = new_null_array(self.data_type(column)?, 1);
        // A subquery has no result yet.
        let failed = |error| FallbackReason::Failed(error::scan(error).strip_backtrace());
        let null_passes = test.evaluate(vec![null], 1).map_err(failed)?;
        let null_passes = null_passes.true_count() == 1;
        let automaton = test.automaton();
        let test = ValueTest::new(Arc::new(move |values| {
            let passed = test.evaluate_values(values);
            passed.map_err(|error| ArrowError::ExternalError(Box::new(error)).into())
        }));
        let test = test.with_automaton(automaton);
        let column = self.number(column)?;
        let values = Filter::Values(column, test);
        Ok(match null_passes {
            // The value test sees no nulls.
            true => Filter::Or(vec![values, Filter::Column(column, Predicate::IsNull)]),
            false => values,
        })
    }
}
