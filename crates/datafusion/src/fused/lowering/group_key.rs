//! GROUP BY keys: lowers them to keys of the kernel, and turns the kernel's keys into columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, take};
use arrow::datatypes::{ArrowNativeTypeOp, DataType, Decimal128Type, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use vectile_pipeline::{Expr, GroupKey, Groups};

use super::expression::{Grouping, Lowering};
use super::factor::without_factor;
use super::payload_values::{CodedColumn, PayloadValues};
use super::text_in_list::ListedValues;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::files::num_values;
use crate::fused::pattern::relation::Relation;
use crate::fused::scalar::reinterpret;
use crate::fused::table::Tables;
use crate::text::is_text;

/// Maps the GROUP BY columns of an aggregate to keys of its kernel. Strings whose minimum or maximum is computed are
/// keys of the kernel, too: the result of a group is then that of a few of the kernel's groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    columns: Vec<KeyColumn>,
    strings: Vec<KeyColumn>,
    kernel: Vec<GroupKey>,
}

#[derive(Clone, Debug)]
struct KeyColumn {
    /// Index of the kernel's key.
    key: usize,
    /// If the key is the code of a lookup: the index of the lookup, and of the payload column in it.
    payload: Option<(usize, usize)>,
    /// If the key is an index into a list of values: that list.
    list: Option<ArrayRef>,
    /// If the key is a quotient of a decimal: the divisor.
    factor: Option<i128>,
}

impl Keys {
    /// Lowers the expressions of `group_by` to keys of the kernel.
    pub(crate) fn lower(
        group_by: &PhysicalGroupBy,
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<Self, FallbackReason> {
        let mut keys = Self::default();
        let filters = relation.filters().of_table;
        let exprs = group_by.expr().iter();
        let exprs = exprs.map(|(expr, _)| relation.over_table(expr));
        let exprs: Vec<_> = exprs.collect::<Result<_, FallbackReason>>()?;
        let bits_of_column = |column| {
            let values = num_values(&relation.config, column)?;
            Some(u128::BITS - values.leading_zeros())
        };
        let values = lowering.payload_values(&exprs, bits_of_column)?;
        for (expr, value) in exprs.into_iter().zip(values) {
            if let Some(value) = value {
                let key = keys.add(value);
                keys.columns.push(KeyColumn {
                    key,
                    payload: None,
                    list: None,
                    factor: None,
                });
                continue;
            }
            // a function of text is evaluated for all values, a test for few
            let listed = match expr.is::<Column>() {
                true => None,
                false => ListedValues::of(&expr, &filters, lowering)?,
            };
            let column = match listed {
                Some(ListedValues { values, number }) => KeyColumn {
                    key: keys.add(GroupKey::Value(number)),
                    payload: None,
                    list: Some(values),
                    factor: None,
                },
                None => keys.column(&expr, lowering)?,
            };
            keys.columns.push(column);
        }
        Ok(keys)
    }

    /// Adds a key for strings, and returns its index among the strings.
    pub(super) fn add_strings(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        lowering: &mut Lowering<'_>,
    ) -> Result<usize, FallbackReason> {
        let column = self.column(expr, lowering)?;
        self.strings.push(column);
        Ok(self.strings.len() - 1)
    }

    /// The column for `expr`. Adds its key to the kernel's unless it is there.
    fn column(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        lowering: &mut Lowering<'_>,
    ) -> Result<KeyColumn, FallbackReason> {
        if let Some((factor, quotient)) = quotient(expr, lowering)? {
            return Ok(KeyColumn {
                key: self.add(GroupKey::Value(quotient)),
                payload: None,
                list: None,
                factor: Some(factor),
            });
        }
        let (key, payload) = match lowering.group_key(expr)? {
            Grouping::Key(key) => (key, None),
            Grouping::PayloadColumn { lookup, column } => {
                (GroupKey::Code(lookup), Some((lookup, column)))
            }
        };
        Ok(KeyColumn {
            key: self.add(key),
            payload,
            list: None,
            factor: None,
        })
    }

    /// The index of `key` among the kernel's keys, to which it is added unless it is there.
    fn add(&mut self, key: GroupKey) -> usize {
        let known = self.kernel.iter().position(|known| *known == key);
        known.unwrap_or_else(|| {
            self.kernel.push(key);
            self.kernel.len() - 1
        })
    }

    /// The kernel's keys.
    pub(crate) fn of_kernel(&self) -> &[GroupKey] {
        &self.kernel
    }

    /// The keys of a nested aggregation over these groups, and the distinct expressions that it groups by. `columns`
    /// has, for each of `exprs`, the GROUP BY column here that it is, or `None` if it is computed.
    pub(super) fn nested(&self, columns: &[Option<usize>], exprs: Vec<Expr>) -> (Self, Vec<Expr>) {
        let (mut nested, mut known, mut kept) = (Self::default(), Vec::new(), Vec::new());
        for (column, expr) in columns.iter().zip(exprs) {
            let inner = column.and_then(|column| self.columns.get(column));
            let of_kernel = inner.map(|inner| inner.key);
            let same = |other: &Option<usize>| other.is_some() && *other == of_kernel;
            let key = known.iter().position(same).unwrap_or_else(|| {
                known.push(of_kernel);
                nested.kernel.push(GroupKey::Value(expr.clone()));
                kept.push(expr);
                known.len() - 1
            });
            nested.columns.push(KeyColumn {
                key,
                payload: inner.and_then(|inner| inner.payload),
                list: inner.and_then(|inner| inner.list.clone()),
                factor: inner.and_then(|inner| inner.factor),
            });
        }
        (nested, kept)
    }

    /// Returns true if the groups of a nested aggregation by `columns` are distinct: a code that it groups by occurs
    /// with all payload columns that are keys here.
    pub(super) fn has_distinct_groups(&self, columns: &[Option<usize>]) -> bool {
        let some = columns
            .iter()
            .flatten()
            .filter_map(|&column| self.columns.get(column));
        let some: Vec<&KeyColumn> = some.collect();
        let is_among = |column: &KeyColumn| {
            let mut same = some.iter().filter(|other| other.key == column.key);
            same.any(|other| other.payload == column.payload)
        };
        let mut behind = self.columns.iter();
        behind.all(|column| !some.iter().any(|other| other.key == column.key) || is_among(column))
    }

    /// The keys of groups by some of the columns, and the indices of the kernel's keys behind them, in ascending order.
    /// `None` if some groups by those would have the same values.
    pub(crate) fn some(&self, columns: &[usize]) -> Option<(Self, Vec<usize>)> {
        let all: Vec<_> = columns.iter().copied().map(Some).collect();
        if !self.match_kernel_groups() || !self.has_distinct_groups(&all) {
            return None;
        }
        let some = columns.iter().map(|&column| self.columns.get(column));
        let some: Vec<&KeyColumn> = some.collect::<Option<_>>()?;
        let mut behind: Vec<usize> = some.iter().map(|column| column.key).collect();
        behind.sort_unstable();
        behind.dedup();
        let columns = some.into_iter().map(|column| {
            let key = behind.binary_search(&column.key).ok()?;
            Some(KeyColumn {
                key,
                ..column.clone()
            })
        });
        let kernel = behind.iter().map(|&key| self.kernel.get(key).cloned());
        let keys = Self {
            columns: columns.collect::<Option<_>>()?,
            strings: Vec::new(),
            kernel: kernel.collect::<Option<_>>()?,
        };
        Some((keys, behind))
    }

    /// The kernel's key behind a column.
    pub(super) fn of_column(&self, column: usize) -> Option<usize> {
        self.columns.get(column).map(|column| column.key)
    }

    /// Returns true if a column is a payload column of a lookup. A code may stand for null, and a missing code for a
    /// value.
    pub(super) fn is_payload(&self, column: usize) -> bool {
        let column = self.columns.get(column);
        column.is_some_and(|column| column.payload.is_some())
    }

    /// Returns true if the kernel has a code, a list index or a quotient instead of the column's value.
    pub(super) fn is_code(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|column| {
            column.payload.is_some() || column.list.is_some() || column.factor.is_some()
        })
    }

    /// The number of GROUP BY columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns true if the kernel's groups are those of the aggregate, provided that codes are distinct.
    pub(crate) fn match_kernel_groups(&self) -> bool {
        self.strings.is_empty()
    }

    /// Returns true if there are no keys, so that all rows are one group.
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The payload of keys that are codes, for all parts of some groups. Blocks.
    pub(crate) fn payload<'a>(
        &self,
        parts: &[Groups],
        tables: &'a Tables,
    ) -> Result<PayloadValues<'a>> {
        let columns = self.columns.iter().chain(&self.strings);
        let parts: Vec<_> = parts.iter().map(|part| part.keys.as_slice()).collect();
        PayloadValues::shared(columns.filter_map(KeyColumn::coded), &parts, tables)
    }

    /// The GROUP BY columns of `groups`, of the types of the first fields of `schema`.
    pub(super) fn columns(
        &self,
        groups: &Groups,
        payload: &PayloadValues<'_>,
        schema: &SchemaRef,
    ) -> Result<Vec<ArrayRef>> {
        let columns = self.columns.iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| column.of(groups, payload, field.data_type()));
        columns.collect()
    }

    /// The strings with this index in `groups`, as `data_type`.
    pub(super) fn strings(
        &self,
        index: usize,
        groups: &Groups,
        payload: &PayloadValues<'_>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let strings = self.strings.get(index);
        let strings = strings.ok_or_else(|| internal_datafusion_err!("no strings {index}"))?;
        strings.of(groups, payload, data_type)
    }
}

impl KeyColumn {
    /// The column for `groups`, as `data_type`.
    fn of(
        &self,
        groups: &Groups,
        payload: &PayloadValues<'_>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let key = groups.keys.get(self.key);
        let key = key.ok_or_else(|| internal_datafusion_err!("no key {}", self.key))?;
        if let Some(values) = &self.list {
            return of_type(&take(values, key, None)?, data_type);
        }
        if let Some(factor) = self.factor {
            let quotients = reinterpret(key, data_type)?;
            let values = quotients.as_primitive::<Decimal128Type>();
            let values =
                values.try_unary::<_, Decimal128Type, _>(|value| value.mul_checked(factor))?;
            return Ok(Arc::new(values.with_data_type(data_type.clone())));
        }
        match self.coded() {
            None => of_type(key, data_type),
            Some(coded) => of_type(&payload.of(coded, key)?, data_type),
        }
    }

    /// The payload column that the key is the code of, if any.
    fn coded(&self) -> Option<CodedColumn> {
        CodedColumn::of(self.key, self.payload)
    }
}

/// A decimal key without the factor that all its values have, and that factor; `None` for other keys.
fn quotient(
    key: &Arc<dyn PhysicalExpr>,
    lowering: &mut Lowering<'_>,
) -> Result<Option<(i128, Expr)>, FallbackReason> {
    let is_decimal = matches!(lowering.type_of(key)?, DataType::Decimal128(..));
    if !is_decimal || key.is::<Column>() || is_volatile(key) {
        return Ok(None);
    }
    let no_factor = || FallbackReason::GroupKey(key.to_string());
    let quotient = lowering.try_lower(|trial| {
        let value = trial.value_of_columns(key)?;
        without_factor(&value).ok_or_else(no_factor)
    });
    Ok(quotient)
}

/// Converts a key of the kernel to `data_type`.
fn of_type(key: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if key.data_type() == data_type {
        return Ok(Arc::clone(key));
    }
    match is_text(key.data_type()) || matches!(key.data_type(), DataType::Dictionary(..)) {
        true => Ok(cast(key, data_type)?),
        false => reinterpret(key, data_type),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray, UInt32Array};
    use arrow::datatypes::{Field, Schema};
    use vectile_pipeline::KeyTable;

    use super::*;
    use crate::fused::table::Table;

    #[test]
    fn keys_come_back_as_columns() {
        let codes = KeyTable::set(&(Arc::new(Int32Array::from(vec![1])) as _)).unwrap();
        let values: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec!["a", "b", "none"])),
            Arc::new(Int32Array::from(vec![Some(7), None, Some(-1)])),
        ];
        let values = values.iter().map(|all| (all.slice(0, 2), all.slice(2, 1)));
        let tables = vec![Arc::new(Table::new(codes, None, values.collect()))];
        let keys = Keys {
            columns: vec![
                KeyColumn {
                    key: 1,
                    payload: Some((0, 1)),
                    list: None,
                    factor: None,
                },
                KeyColumn {
                    key: 0,
                    payload: None,
                    list: None,
                    factor: None,
                },
                KeyColumn {
                    key: 1,
                    payload: Some((0, 0)),
                    list: None,
                    factor: None,
                },
            ],
            ..Keys::default()
        };
        let groups = Groups {
            count: 3,
            keys: vec![
                Arc::new(Int32Array::from(vec![Some(10), None, Some(12)])),
                Arc::new(UInt32Array::from(vec![Some(1), None, Some(0)])),
            ],
            totals: vec![],
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int32, true),
            Field::new("date", DataType::Date32, true),
            Field::new("text", DataType::Utf8View, true),
        ]));
        let columns = keys
            .columns(&groups, &PayloadValues::of_tables(&tables), &schema)
            .unwrap();
        let numbers: &Int32Array = columns[0].as_primitive();
        assert_eq!(numbers, &Int32Array::from(vec![None, Some(-1), Some(7)]));
        let texts: Vec<_> = columns[2].as_string_view().iter().flatten().collect();
        assert_eq!(texts, ["b", "none", "a"]);
        assert!(columns[1].is_null(1));
    }
}
