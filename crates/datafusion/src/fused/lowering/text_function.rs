//! Functions of one text column, which the CPU evaluates for each distinct value.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use vectile_pipeline::{Expr, GroupKey, TextFunction, Type};

use super::expression::{Lowering, unsupported};
use super::probe::missing_value;
use super::value_test::alone;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::scalar::literal;
use crate::stack;
use crate::text::is_text;

type Result<T> = std::result::Result<T, FallbackReason>;

/// An expression over one column.
#[derive(Debug)]
struct OfColumn {
    expr: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    data_type: DataType,
}

impl OfColumn {
    fn evaluated(&self, values: &ArrayRef) -> datafusion::common::Result<ArrayRef> {
        let values = cast(values, self.schema.field(0).data_type())?;
        let rows = values.len();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![values])?;
        stack::evaluated(&self.expr, &batch)?.into_array(rows)
    }
}

impl TextFunction for OfColumn {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn evaluate(&self, values: &ArrayRef) -> vectile_encodings::Result<ArrayRef> {
        let results = self.evaluated(values);
        results.map_err(|error| ArrowError::ExternalError(Box::new(error)).into())
    }

    fn is_identity(&self) -> bool {
        self.expr.is::<Column>()
    }

    fn is_same(&self, other: &dyn TextFunction) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| {
            *self.expr == *other.expr
                && self.schema == other.schema
                && self.data_type == other.data_type
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A function of a text column of the pipeline.
struct Function {
    column: usize,
    of: Arc<dyn TextFunction>,
    /// Its result for null.
    of_null: ScalarValue,
}

impl Lowering<'_> {
    /// The text column of the table that is the only one in `expr`, if a device can look up the results: each depends on
    /// the value alone.
    pub(super) fn text_argument(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        if self.is_for_program() || !self.maps_text {
            return None;
        }
        let column = self.only_text(expr)?;
        let is_other = |part: &Arc<dyn PhysicalExpr>| {
            let function = part.downcast_ref::<ScalarFunctionExpr>();
            let volatility = function.map(|of| of.fun().signature().volatility);
            Ok(volatility.is_some_and(|of| of != Volatility::Immutable)
                || part.is::<ScalarSubqueryExpr>())
        };
        let is_pure = !is_volatile(expr) && !expr.exists(is_other).ok()?;
        is_pure.then_some(column)
    }

    fn text_function(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Function>> {
        let Some(column) = self.text_argument(expr) else {
            return Ok(None);
        };
        let data_type = self.type_of(expr)?;
        let of_null = missing_value(expr, self.schema)?;
        let of_null = ScalarValue::try_from_array(&of_null, 0)?;
        let field = self.field(column)?;
        let is_nullable = field.is_nullable();
        let (expr, schema) = alone(expr, field)?;
        Ok(Some(Function {
            column: self.number(column)?,
            of: Arc::new(OfColumn {
                expr,
                schema,
                data_type: data_type.clone(),
            }),
            of_null: match is_nullable {
                true => of_null,
                false => ScalarValue::try_from(&data_type)?,
            },
        }))
    }

    /// Lowers a function of text to a value of a machine type; `None` if it is none.
    pub(super) fn value_of_text(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Expr>> {
        if Type::of(&self.type_of(expr)?).is_none() {
            return Ok(None);
        }
        let Some(Function {
            column,
            of,
            of_null,
        }) = self.text_function(expr)?
        else {
            return Ok(None);
        };
        let mapped = Expr::Mapped(column, of);
        if of_null.is_null() {
            return Ok(Some(mapped));
        }
        let of_null = literal(&of_null).ok_or_else(|| unsupported(expr))?;
        let is_null = Expr::is_null(Expr::Column(column));
        let branches = vec![(is_null, Expr::Literal(of_null))];
        Ok(Some(Expr::case(branches, Some(mapped))))
    }

    /// Lowers a function of text that results in text, or the column itself, to codes that differ where values do; `None`
    /// if it is none.
    pub(super) fn codes_of_text(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Expr>> {
        let function = self.function_to_text(expr)?;
        Ok(function.map(|(column, of)| Expr::Mapped(column, of)))
    }

    /// Lowers a key that is a function of text and results in text; `None` if it is none.
    pub(super) fn key_of_text(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<GroupKey>> {
        let function = self.function_to_text(expr)?;
        Ok(function.map(|(column, of)| GroupKey::Mapped(column, of)))
    }

    fn function_to_text(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<(usize, Arc<dyn TextFunction>)>> {
        if !is_text(&self.type_of(expr)?) {
            return Ok(None);
        }
        let function = self.text_function(expr)?.filter(|of| of.of_null.is_null());
        Ok(function.map(|function| (function.column, function.of)))
    }
}
