//! Post-aggregation: computations over a kernel's groups, with constants that are known when the query runs.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::PhysicalExpr;
use vectile_pipeline::{Expr, GroupColumn, Literal, PostAggregation, Type};

use super::average::{Average, sum_of};
use super::function::{Function, Named};
use super::group_key::Keys;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::scalar::value_of;
use crate::text::is_text;

/// The groups of an aggregate as a table, over which expressions are lowered.
pub(super) struct GroupTable<'a> {
    /// The columns of the aggregate's results.
    results: &'a Schema,
    keys: &'a Keys,
    functions: &'a [Named],
    pub(super) averages: Vec<Average>,
    /// Sums and counts of averages, which are columns after those of `results`.
    parts: Vec<(Field, GroupColumn)>,
}

impl<'a> GroupTable<'a> {
    pub(super) fn new(results: &'a Schema, keys: &'a Keys, functions: &'a [Named]) -> Self {
        let (mut averages, mut parts) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (number, (function, aggregate)) in functions.iter().enumerate() {
            let column = keys.len() + number;
            if let (Function::Average { .. }, Some((of_sum, factor))) =
                (function, sum_of(aggregate))
                && let Some(of) = Type::of(&of_sum)
            {
                let sum = results.fields().len() + parts.len();
                averages.push(Average {
                    column,
                    sum,
                    count: sum + 1,
                    factor,
                });
                let name = aggregate.name();
                let (sum, count) = (GroupColumn::Value(first, of), GroupColumn::Count(first));
                parts.push((Field::new(name, of_sum, true), sum));
                parts.push((Field::new(name, DataType::Int64, false), count));
            }
            first += function.width();
        }
        Self {
            results,
            keys,
            functions,
            averages,
            parts,
        }
    }

    /// Returns true if the kernel has a code instead of the column's value, as for text. No expression may compute with
    /// it.
    fn is_code(&self, column: usize) -> bool {
        self.keys.is_code(column) || is_text(self.results.field(column).data_type())
    }

    /// The schema against which expressions are lowered. A code gets a type that kernels cannot compute with: text,
    /// which can be tested for null, if the code is null where its value is; otherwise `Null`, which cannot even be
    /// tested.
    pub(super) fn schema(&self) -> TableSchema {
        let fields = self.results.fields().iter().enumerate();
        let fields = fields.map(|(column, field)| {
            let field = field.as_ref().clone();
            match self.is_code(column) {
                true if field.is_nullable() && self.keys.is_payload(column) => {
                    field.with_data_type(DataType::Null)
                }
                true => field.with_data_type(DataType::Utf8),
                false => field,
            }
        });
        let parts = self.parts.iter().map(|(field, _)| field.clone());
        TableSchema::from(Arc::new(Schema::new(
            fields.chain(parts).collect::<Vec<_>>(),
        )))
    }

    /// Maps columns of [`Self::schema`] to columns on the device.
    pub(super) fn columns(&self, columns: &[usize]) -> Result<Vec<GroupColumn>, FallbackReason> {
        let first_part = self.results.fields().len();
        let columns = columns.iter().map(|&column| {
            let part = column.checked_sub(first_part);
            if let Some((_, part)) = part.and_then(|part| self.parts.get(part)) {
                return Ok(*part);
            }
            match self.keys.of_column(column) {
                Some(key) => {
                    let of = Type::of(self.results.field(column).data_type());
                    let of = of.filter(|_| !self.is_code(column));
                    Ok(GroupColumn::Key(key, of.unwrap_or(Type::I64)))
                }
                None => {
                    let function = function_column(self.functions, column - self.keys.len());
                    let name = || self.results.field(column).name().clone();
                    function.ok_or_else(|| FallbackReason::Aggregate(name()))
                }
            }
        });
        columns.collect()
    }
}

/// The device's column that is the result of a function; `None` if no single column is.
fn function_column(functions: &[Named], number: usize) -> Option<GroupColumn> {
    let (function, aggregate) = functions.get(number)?;
    let before = functions.iter().take(number);
    let first = before.map(|(function, _)| function.width()).sum();
    match function {
        Function::Count | Function::CountDistinct => Some(GroupColumn::Count(first)),
        Function::Value => {
            let of = Type::of(aggregate.field().data_type())?;
            Some(GroupColumn::Value(first, of))
        }
        Function::Average { .. }
        | Function::Variance(_)
        | Function::Text
        | Function::Strings(_) => None,
    }
}

/// Replaces parameters by their values. These are results of subqueries, which must have run.
pub(super) fn with_parameters(
    mut of: PostAggregation,
    parameters: &[Arc<dyn PhysicalExpr>],
) -> Result<PostAggregation> {
    let parameters = parameters.iter().map(value_of);
    let parameters: Vec<Literal> = parameters.collect::<Result<_>>()?;
    let known = |expr: &Expr| -> Result<Expr> {
        expr.replaced(&mut |part| match part {
            Expr::Parameter(number, _) => {
                let value = parameters.get(*number).copied();
                let value = value.ok_or_else(|| internal_datafusion_err!("no such parameter"))?;
                Ok(Some(Expr::Literal(value)))
            }
            _ => Ok(None),
        })
    };
    for condition in &mut of.conditions {
        *condition = known(condition)?;
    }
    if let Some(nested) = &mut of.nested {
        for key in &mut nested.keys {
            *key = known(key)?;
        }
        for aggregate in &mut nested.aggregates {
            *aggregate = aggregate.over(&mut |value| known(value))?;
        }
    }
    Ok(of)
}
