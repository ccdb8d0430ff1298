//! Grouping by computed text whose values a filter lists: the kernel tests for each value, and groups by its index.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, Literal as PhysicalLiteral};
use vectile_pipeline::{Expr, Literal, Type};

use super::expression::Lowering;
use crate::fused::fallback_reason::FallbackReason;
use crate::text::is_text;

/// Maximum number of values: the kernel reads the column once for each.
const MAX_VALUES: usize = 16;

/// The values of an expression, and the kernel's index into them.
#[derive(Clone, Debug)]
pub(super) struct ListedValues {
    pub(super) values: ArrayRef,
    /// The index of each row's value.
    pub(super) number: Expr,
}

impl ListedValues {
    /// The values of `expr` in rows that pass all of `filters`. `None` if no filter lists them, or they have no kernel.
    /// Only text is supported: other values may be equal without being identical, as zeros are.
    pub(super) fn of(
        expr: &Arc<dyn PhysicalExpr>,
        filters: &[Arc<dyn PhysicalExpr>],
        lowering: &mut Lowering<'_>,
    ) -> Result<Option<Self>, FallbackReason> {
        if !is_text(&lowering.type_of(expr)?) {
            return Ok(None);
        }
        let lists = filters.iter().filter_map(|filter| list_of(filter, expr));
        let Some(values) = lists.min_by_key(Vec::len) else {
            return Ok(None);
        };
        if values.is_empty() || values.len() > MAX_VALUES {
            return Ok(None);
        }
        let mut trial = lowering.clone();
        let number = |number: usize| Expr::Literal(Literal::Int(number as i128, Type::I32));
        // Each row has one of the values, so the last needs no test.
        let last = values.len() - 1;
        let mut whens = Vec::new();
        for (index, value) in values.iter().enumerate().take(last) {
            let value = Arc::new(PhysicalLiteral::new(value.clone()));
            let is_equal = BinaryExpr::new(Arc::clone(expr), Operator::Eq, value);
            let Ok(is_equal) = trial.value(&(Arc::new(is_equal) as Arc<dyn PhysicalExpr>)) else {
                return Ok(None);
            };
            whens.push((is_equal, number(index)));
        }
        *lowering = trial;
        Ok(Some(Self {
            values: ScalarValue::iter_to_array(values)?,
            number: match whens.is_empty() {
                true => number(last),
                false => Expr::case(whens, Some(number(last))),
            },
        }))
    }
}

/// The distinct values to which `filter` restricts `expr`.
fn list_of(
    filter: &Arc<dyn PhysicalExpr>,
    expr: &Arc<dyn PhysicalExpr>,
) -> Option<Vec<ScalarValue>> {
    let constant = |of: &Arc<dyn PhysicalExpr>| {
        let value = of.downcast_ref::<PhysicalLiteral>()?.value();
        (!value.is_null()).then(|| value.clone())
    };
    if let Some(equal) = filter.downcast_ref::<BinaryExpr>() {
        let value = match equal.left() == expr {
            true => constant(equal.right()),
            false => (equal.right() == expr).then(|| constant(equal.left()))?,
        };
        return (equal.op() == &Operator::Eq).then(|| Some(vec![value?]))?;
    }
    let list = filter.downcast_ref::<InListExpr>()?;
    if list.negated() || list.expr() != expr {
        return None;
    }
    let mut values = Vec::new();
    for value in list.list() {
        let value = constant(value)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::table_schema::TableSchema;
    use datafusion::physical_expr::expressions::{Column, in_list, lit};

    use super::*;

    fn listed(column: usize, values: &[ScalarValue], negated: bool) -> Option<ListedValues> {
        let fields = [("text", DataType::Utf8), ("double", DataType::Float64)];
        let fields = fields.map(|(name, of)| Field::new(name, of, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let table = TableSchema::from(Arc::clone(&schema));
        let name = schema.field(column).name();
        let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, column));
        let list = values.iter().cloned().map(lit).collect();
        let filter = in_list(Arc::clone(&expr), list, &negated, &schema).unwrap();
        ListedValues::of(&expr, &[filter], &mut Lowering::new(&table)).unwrap()
    }

    #[test]
    fn text_has_the_listed_values() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect::<Vec<_>>();
        let list = listed(0, &texts(&["b", "a", "b"]), false).unwrap();
        assert_eq!(list.values.len(), 2);
        assert!(
            matches!(list.number, Expr::Op(vectile_pipeline::Op::Case, parts) if parts.len() == 3)
        );
        let list = listed(0, &texts(&["a"]), false).unwrap();
        assert!(matches!(list.number, Expr::Literal(_)));
        assert!(listed(0, &texts(&["a", "b"]), true).is_none());
        let many: Vec<ScalarValue> = (0..17).map(|i| i.to_string().as_str().into()).collect();
        assert!(listed(0, &many, false).is_none());
    }

    #[test]
    fn doubles_may_be_equal_without_being_the_same() {
        assert!(listed(1, &[0.0.into(), 1.0.into()], false).is_none());
    }
}
