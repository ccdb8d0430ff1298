//! The lookups of a kernel for the joins of a relation, and their purposes.
//!
//! An expression over the columns of one build side is a **payload column**: the CPU evaluates it for each row of the
//! build side, and keys that agree in all payload columns of a lookup share a code. GROUP BY keys have a lookup of
//! their own, because the kernel groups by its codes: codes must not be finer than the groups.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use vectile_gpu::Error;
use vectile_pipeline::{Code, Expr, PayloadColumn, Type};

use crate::error;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::join::Join;
use crate::fused::scalar::literal;
use crate::stack;

/// The purpose of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// GROUP BY keys, or only the existence of a match.
    Groups,
    /// Values in expressions.
    Values,
    /// Columns of output rows; there may be many distinct codes.
    Rows,
}

/// A lookup of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct LookupSpec {
    /// Index of the join.
    pub(crate) join: usize,
    pub(crate) purpose: Purpose,
    /// The payload columns that codes identify, over the schema of the build side.
    pub(crate) attributes: Vec<Arc<dyn PhysicalExpr>>,
}

impl LookupSpec {
    /// Returns true if each code, and a missing key, is a group of its own. Not so for floats, which may be equal in
    /// several rows, and for outer joins, where a missing key equals one whose payload is null.
    pub(crate) fn has_code_per_group(&self, joins: &[Join]) -> Result<bool, FallbackReason> {
        if self.purpose != Purpose::Groups || self.attributes.is_empty() {
            return Ok(true);
        }
        let Some(join) = joins.get(self.join) else {
            return Ok(false);
        };
        let schema = join.plan.schema();
        let mut is_whole = join.kind.is_inner();
        for attribute in &self.attributes {
            is_whole &= !attribute.data_type(&schema)?.is_floating();
        }
        Ok(is_whole)
    }
}

/// Collects the lookups for the joins of a relation.
#[derive(Clone)]
pub(crate) struct Lookups<'a> {
    joins: &'a [Join],
    requested: Vec<LookupSpec>,
}

/// Stands for a payload column of a lookup, by its index, until its values are known.
fn placeholder(column: usize) -> Arc<PayloadColumn> {
    PayloadColumn::new(Arc::new(UInt32Array::from_iter_values([column as u32])))
}

/// The index of the payload column that a placeholder stands for.
pub(crate) fn placeholder_column(column: &PayloadColumn) -> Option<usize> {
    let values = column.values().ok()?;
    let numbers = values.as_any().downcast_ref::<UInt32Array>()?;
    numbers.values().first().map(|&column| column as usize)
}

impl<'a> Lookups<'a> {
    pub(crate) fn new(joins: &'a [Join]) -> Self {
        let requested = Vec::new();
        Self { joins, requested }
    }

    /// The lookups that were requested. Each join has at least one, for the rows that it leaves.
    pub(crate) fn finish(mut self) -> Vec<LookupSpec> {
        for join in 0..self.joins.len() {
            if !self.requested.iter().any(|lookup| lookup.join == join) {
                self.number(join, Purpose::Groups);
            }
        }
        self.requested
    }

    /// Number of joins.
    pub(crate) fn num_joins(&self) -> usize {
        self.joins.len()
    }

    /// The join whose build side has all columns of `expr`; `None` if `expr` has columns of none or of several.
    pub(crate) fn join_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        if self.joins.is_empty() {
            return None;
        }
        let columns = collect_columns(expr);
        let is_of = |join: &Join| columns.iter().all(|column| join.has_column(column.index()));
        match columns.is_empty() {
            true => None,
            false => self.joins.iter().position(is_of),
        }
    }

    /// Requests a payload column of a join. Returns the index of the lookup, and of the payload column in it.
    pub(crate) fn payload_column(
        &mut self,
        join: usize,
        purpose: Purpose,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<(usize, usize), FallbackReason> {
        if is_volatile(expr) {
            return Err(FallbackReason::Expr(expr.to_string()));
        }
        let attribute = self.joins[join].renumbered(expr, 0)?;
        Ok(self.add(join, purpose, attribute))
    }

    /// Returns true if a join keeps unmatched rows. These have no code, although matched rows may have the same
    /// payload: such codes are no values.
    pub(crate) fn is_outer(&self, join: usize) -> bool {
        self.joins.get(join).is_some_and(|of| of.kind.is_outer())
    }

    /// The value of a payload column of a join, for the kernel.
    pub(crate) fn value(
        &mut self,
        join: usize,
        expr: &Arc<dyn PhysicalExpr>,
        data_type: &DataType,
    ) -> Result<Expr, FallbackReason> {
        if Type::of(data_type).is_none() {
            return Err(FallbackReason::Expr(expr.to_string()));
        }
        let (lookup, attribute) = self.payload_column(join, Purpose::Values, expr)?;
        let value = Expr::Payload(Code::Lookup(lookup), placeholder(attribute));
        if !self.is_outer(join) {
            return Ok(value);
        }
        // In an unmatched row, not every expression is null: `coalesce(name, 'none') = 'none'`.
        let missing = value_of_missing(
            &self.requested[lookup].attributes[attribute],
            &self.joins[join],
        )?;
        if missing.is_null() {
            return Ok(value);
        }
        let missing = literal(&missing).ok_or_else(|| FallbackReason::Expr(expr.to_string()))?;
        let is_missing = Expr::Unmatched(Code::Lookup(lookup));
        let branches = vec![(is_missing, Expr::Literal(missing))];
        Ok(Expr::case(branches, Some(value)))
    }

    fn add(
        &mut self,
        join: usize,
        purpose: Purpose,
        attribute: Arc<dyn PhysicalExpr>,
    ) -> (usize, usize) {
        let lookup = self.number(join, purpose);
        let attributes = &mut self.requested[lookup].attributes;
        let known = attributes.iter().position(|known| known == &attribute);
        let number = known.unwrap_or_else(|| {
            attributes.push(attribute);
            attributes.len() - 1
        });
        (lookup, number)
    }

    /// The index of a join's lookup for a purpose, which is added unless it is there.
    fn number(&mut self, join: usize, purpose: Purpose) -> usize {
        let matches = |lookup: &LookupSpec| lookup.join == join && lookup.purpose == purpose;
        self.requested.iter().position(matches).unwrap_or_else(|| {
            self.requested.push(LookupSpec {
                join,
                purpose,
                attributes: Vec::new(),
            });
            self.requested.len() - 1
        })
    }
}

/// The value of a payload column in unmatched rows: the expression over a row of nulls.
///
/// # Errors
///
/// [`Error::Unsupported`] for any failure: the payload column may be the result of a subquery, which has not run when a
/// query is planned.
pub(crate) fn missing_value(
    attribute: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> datafusion::common::Result<ArrayRef> {
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let fields: Vec<Field> = schema.fields().iter().map(nullable).collect();
    let nulls = fields
        .iter()
        .map(|field| new_null_array(field.data_type(), 1));
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let nulls = nulls.collect();
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), nulls, &options)?;
    let value = stack::evaluated(attribute, &row).and_then(|value| value.into_array(1));
    value.map_err(|error| error::gpu(Error::Unsupported(error.strip_backtrace())))
}

fn value_of_missing(
    attribute: &Arc<dyn PhysicalExpr>,
    join: &Join,
) -> Result<ScalarValue, FallbackReason> {
    let value = missing_value(attribute, &join.plan.schema())?;
    Ok(ScalarValue::try_from_array(&value, 0)?)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::fused::pattern::join::JoinKind;

    /// A join of two tables with two columns each.
    fn join(kind: JoinKind) -> [Join; 1] {
        let schema = Schema::new(vec![
            Field::new("key", DataType::Int32, false),
            Field::new("value", DataType::Int64, true),
        ]);
        [Join {
            plan: Arc::new(EmptyExec::new(Arc::new(schema))),
            keys: vec![],
            kind,
            first: 2,
            condition: None,
        }]
    }

    fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(name, index))
    }

    #[test]
    fn payload_columns_are_numbered_once() {
        let joins = join(JoinKind::Inner);
        let mut lookups = Lookups::new(&joins);
        let value = column("value", 3);
        assert_eq!(lookups.join_of(&value), Some(0));
        assert_eq!(lookups.join_of(&column("own", 1)), None);
        let mixed = BinaryExpr::new(column("own", 1), Operator::Lt, Arc::clone(&value));
        assert_eq!(lookups.join_of(&(Arc::new(mixed) as _)), None);
        for (purpose, expr, expected) in [
            (Purpose::Groups, &value, (0, 0)),
            (Purpose::Values, &value, (1, 0)),
            (Purpose::Groups, &column("key", 2), (0, 1)),
            (Purpose::Groups, &value, (0, 0)),
        ] {
            assert_eq!(lookups.payload_column(0, purpose, expr), Ok(expected));
        }
        let lookups = lookups.finish();
        let attributes: Vec<String> = lookups[0]
            .attributes
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(attributes, ["value@1", "key@0"]);
    }

    #[test]
    fn a_join_without_payload_has_a_lookup() {
        let joins = join(JoinKind::Semi);
        let lookups = Lookups::new(&joins);
        assert_eq!(lookups.join_of(&column("value", 3)), None);
        let lookups = lookups.finish();
        assert_eq!(lookups.len(), 1);
        assert!(lookups[0].attributes.is_empty());
    }

    #[test]
    fn payloads_of_unmatched_rows_may_not_be_null() {
        let joins = join(JoinKind::Outer);
        let mut lookups = Lookups::new(&joins);
        let value = column("value", 3);
        let value_expr = lookups.value(0, &value, &DataType::Int64).unwrap();
        assert!(matches!(value_expr, Expr::Payload(Code::Lookup(0), _)));
        let is_null: Arc<dyn PhysicalExpr> = Arc::new(IsNullExpr::new(value));
        let value_expr = lookups.value(0, &is_null, &DataType::Boolean).unwrap();
        assert!(matches!(
            value_expr,
            Expr::Op(vectile_pipeline::Op::Case, _)
        ));
        assert_eq!(lookups.finish()[0].attributes.len(), 2);
    }
}
