//! The tables that a kernel looks up, as outputs of another kernel, of which the device makes them.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use vectile_gpu::plan::{Attribute, Expr, GroupKey};
use vectile_gpu::{Build, BuildBy, Built, BuiltCodes};

use super::expression::{Grouping, Lowering};
use super::lookups::missing_value;
use crate::gpu::packing::Packing;
use crate::gpu::reason::Reason;
use crate::gpu::scalar::reinterpret;
use crate::gpu::table::{AttributeOnDevice, Table, Tables, of_codes};

/// What the tables of a dimension are made of.
#[derive(Clone, Debug)]
pub(crate) struct BuildColumns {
    kernel: Vec<Expr>,
    tables: Vec<BuildTable>,
}

#[derive(Clone, Debug)]
struct BuildTable {
    build: Build,
    attributes: Vec<BuildAttribute>,
}

#[derive(Clone, Debug)]
struct BuildAttribute {
    /// If the output is the code of a lookup: its number, and the number of the attribute there.
    of_code: Option<(usize, usize)>,
    /// The value where a key is missing, of the type that is wanted.
    missing: ArrayRef,
}

/// What rows of a dimension are found by: expressions over its schema, each with the type that it is compared as.
pub(crate) struct WantedKeys<'a> {
    pub(crate) keys: Vec<(&'a Arc<dyn PhysicalExpr>, &'a DataType)>,
    /// Whether they are packed into one integer.
    pub(crate) is_packed: bool,
}

/// A table that is wanted of a dimension: expressions are over its schema.
pub(crate) struct WantedTable<'a> {
    pub(crate) attributes: &'a [Arc<dyn PhysicalExpr>],
    /// Whether codes are to tell apart values of attributes, and no more.
    pub(crate) is_by_value: bool,
    pub(crate) is_unique: bool,
}

impl BuildColumns {
    /// Lowers tables that are found by `keys`; `over` says what an expression over `schema`, that of the dimension, is over
    /// the table that the kernel reads.
    pub(crate) fn lower(
        keys: &WantedKeys<'_>,
        tables: &[WantedTable<'_>],
        schema: &Schema,
        over: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, Reason>,
        lowering: &mut Lowering<'_>,
    ) -> Result<Self, Reason> {
        let mut built = Self {
            kernel: Vec::new(),
            tables: Vec::new(),
        };
        let mut outputs = Vec::new();
        for (key, key_type) in &keys.keys {
            // what is cast may be no value of the other type
            if &key.data_type(schema)? != *key_type {
                return Err(Reason::Join(format!("its key is {key}")));
            }
            let value = lowering.value(&over(key)?)?;
            outputs.push(built.output(value));
        }
        for table in tables {
            let (mut columns, mut attributes) = (Vec::new(), Vec::new());
            for attribute in table.attributes {
                let expr = over(attribute)?;
                let (output, of_code) = match table.is_by_value {
                    true => match lowering.group_key(&expr)? {
                        Grouping::Key(GroupKey::Value(value)) => (value, None),
                        Grouping::Key(_) => return Err(Reason::GroupKey(expr.to_string())),
                        Grouping::Attribute { lookup, attribute } => {
                            (Expr::Code(lookup), Some((lookup, attribute)))
                        }
                    },
                    false => (lowering.value(&expr)?, None),
                };
                columns.push(built.output(output));
                attributes.push(BuildAttribute {
                    of_code,
                    missing: missing_value(attribute, schema)?,
                });
            }
            // with a key among them, each row has values of its own
            let has_key = |attribute| keys.keys.iter().any(|(key, _)| *key == attribute);
            let is_each_row =
                table.is_unique && keys.keys.len() == 1 && table.attributes.iter().any(has_key);
            let by = match (columns.is_empty(), table.is_by_value && !is_each_row) {
                (true, _) => BuildBy::Nothing,
                (false, true) => BuildBy::Values(columns),
                (false, false) => BuildBy::ValuesOrRows(columns),
            };
            let build = Build {
                keys: outputs.clone(),
                is_packed: keys.is_packed,
                by,
                is_unique: table.is_unique,
            };
            built.tables.push(BuildTable { build, attributes });
        }
        Ok(built)
    }

    /// The number of an output, which is added if it is another one.
    fn output(&mut self, expr: Expr) -> usize {
        let known = self.kernel.iter().position(|known| *known == expr);
        known.unwrap_or_else(|| {
            self.kernel.push(expr);
            self.kernel.len() - 1
        })
    }

    /// What the kernel puts out.
    pub(crate) fn of_kernel(&self) -> &[Expr] {
        &self.kernel
    }

    /// What the device is to make of that.
    pub(crate) fn builds(&self) -> Vec<Build> {
        let tables = self.tables.iter();
        tables.map(|table| table.build.clone()).collect()
    }

    /// The tables that it has made; `tables` are those that the kernel has looked up.
    pub(crate) fn tables(&self, built: Vec<Built>, tables: &Tables) -> Result<Vec<Table>> {
        let made = self.tables.iter().zip(built);
        let made = made.map(|(table, built)| table.of(built, tables));
        made.collect()
    }
}

impl BuildTable {
    fn of(&self, built: Built, tables: &Tables) -> Result<Table> {
        let attributes = self.attributes.iter();
        let has_null = built.has_null;
        let packing = self.build.is_packed;
        let packing = packing.then(|| Packing::of_bounds(&built.digits));
        let table = match built.of_codes {
            BuiltCodes::Rows(values) => {
                let attributes = values.into_iter().zip(attributes);
                let attributes = attributes.map(|(values, attribute)| attribute.on(values, tables));
                Table::on_device(built.codes, packing, attributes.collect::<Result<_>>()?)
            }
            BuiltCodes::Values(values) => {
                let values = values.iter().zip(attributes);
                let values = values.map(|(values, attribute)| attribute.of(values, tables));
                Table::new(built.codes, packing, values.collect::<Result<_>>()?)
            }
        };
        Ok(table.with_null(has_null))
    }
}

impl BuildAttribute {
    /// The attribute whose values, or codes, are these.
    fn on(&self, of_codes: Arc<Attribute>, tables: &Tables) -> Result<AttributeOnDevice> {
        let of_code = self.of_code.map(|(lookup, attribute)| {
            let table = tables.get(lookup).cloned();
            let table = table.ok_or_else(|| internal_datafusion_err!("no lookup"))?;
            Ok::<_, DataFusionError>((table, attribute))
        });
        Ok(AttributeOnDevice {
            of_codes,
            missing: Arc::clone(&self.missing),
            of_code: of_code.transpose()?,
        })
    }

    /// The value of each code, and behind them that of a missing one.
    fn of(&self, values: &ArrayRef, tables: &Tables) -> Result<ArrayRef> {
        let values = match self.of_code {
            None => reinterpret(values, self.missing.data_type())?,
            Some((lookup, attribute)) => {
                let table = tables.get(lookup);
                let table = table.ok_or_else(|| internal_datafusion_err!("no lookup"))?;
                let values = of_codes(values, &table.values(attribute)?)?;
                arrow::compute::cast(&values, self.missing.data_type())?
            }
        };
        Ok(concat(&[&values, &self.missing])?)
    }
}
