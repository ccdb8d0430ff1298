//! Joins of a table with smaller ones, as lookups by key.
//!
//! A kernel reads one table, the probe side (the fact table of a star schema). Of every build side (a dimension), it
//! needs to know which keys exist and what payload each has. So a probe row must have at most one match, or the number
//! of matches must not matter.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, JoinOn, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::exchange::{is_exchange, without_exchange};
use super::files::num_rows;
use super::probe_side::ProbeSide;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::table::Table;
use crate::fused::types::{is_key, is_packed_key};
use crate::source::VectileSource;
use crate::text::{is_lossless, is_text};

/// How matches decide which probe rows remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JoinKind {
    /// Rows with a match remain.
    Inner,
    /// All rows remain; unmatched ones get nulls.
    Outer,
    /// Rows with at least one match remain, once each. Adds no columns.
    Semi,
    /// Rows without a match remain.
    Anti,
    /// Rows known to have no match remain, as for `NOT IN`: none if a build key is null, and of those whose own key is
    /// null none unless the build side is empty.
    NotIn,
}

/// The probe rows that remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptRows {
    /// Rows with a match.
    Matched,
    /// Rows without a match.
    Unmatched,
    All,
}

/// The properties of a join kind. Other modules depend on them and not on the kind.
pub(crate) struct JoinProperties {
    /// For `EXPLAIN`.
    name: &'static str,
    /// The equivalent in DataFusion, with the probe side on the left.
    join_type: JoinType,
    pub(crate) kept: KeptRows,
    /// True if operators above see the build side's columns, and a row for each match. Otherwise, a row remains once for
    /// any number of matches.
    pub(crate) adds_columns: bool,
    /// True if a null key may equal any key: then a row is unmatched only if its key is known to differ from all keys.
    pub(crate) is_null_aware: bool,
}

impl JoinKind {
    pub(crate) fn properties(self) -> JoinProperties {
        use JoinType::{Left, LeftAnti, LeftSemi};
        use KeptRows::{All, Matched, Unmatched};
        let (name, join_type, kept, adds_columns, is_null_aware) = match self {
            Self::Inner => ("inner", JoinType::Inner, Matched, true, false),
            Self::Outer => ("outer", Left, All, true, false),
            Self::Semi => ("semi", LeftSemi, Matched, false, false),
            Self::Anti => ("anti", LeftAnti, Unmatched, false, false),
            Self::NotIn => ("not in", LeftAnti, Unmatched, false, true),
        };
        JoinProperties {
            name,
            join_type,
            kept,
            adds_columns,
            is_null_aware,
        }
    }

    /// Returns true if the join gives all pairs of matching rows. A filter of the join may as well follow it.
    pub(crate) fn is_inner(self) -> bool {
        let properties = self.properties();
        properties.kept == KeptRows::Matched && properties.adds_columns
    }

    /// Returns true if unmatched rows remain, with nulls as the build side's columns.
    pub(crate) fn is_outer(self) -> bool {
        self.properties().kept == KeptRows::All
    }

    /// The kind of join that a filter over both sides turns into this one, if the build side's keys are unique.
    pub(crate) fn before_filter(self) -> Self {
        match self.properties().kept {
            KeptRows::Matched => Self::Inner,
            KeptRows::Unmatched | KeptRows::All => Self::Outer,
        }
    }

    /// Returns true if a join with this table leaves no row, regardless of its key.
    pub(crate) fn leaves_no_rows_with(self, table: &Table) -> bool {
        let properties = self.properties();
        match properties.kept {
            KeptRows::Matched => table.codes.is_empty(),
            // A null may be any value, so no value is known to be absent.
            KeptRows::Unmatched => properties.is_null_aware && table.has_null,
            KeptRows::All => false,
        }
    }

    /// The share of rows that remain if `matched` is the share of rows with a match.
    pub(crate) fn share_kept(self, matched: f64) -> f64 {
        match self.properties().kept {
            KeptRows::Matched => matched,
            KeptRows::Unmatched => 1.0 - matched,
            KeptRows::All => 1.0,
        }
    }
}

impl fmt::Display for JoinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().name)
    }
}

/// A pair of key expressions that must be equal.
#[derive(Clone, Debug)]
pub(crate) struct JoinKey {
    /// The probe side's expression, over the relation's schema.
    pub(crate) probe: Arc<dyn PhysicalExpr>,
    /// The build side's expression, over its schema.
    pub(crate) build: Arc<dyn PhysicalExpr>,
}

/// A join of the probe side with one build side.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// The build side.
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// One key, or several that must all be equal.
    pub(crate) keys: Vec<JoinKey>,
    pub(crate) kind: JoinKind,
    /// Index of the build side's first column in the relation's schema.
    pub(crate) first: usize,
    /// The join filter, unless it is a filter of the relation. It is over the relation's schema, which has the build
    /// side's columns for it.
    pub(crate) condition: Option<Arc<dyn PhysicalExpr>>,
}

impl Join {
    /// Returns true if kernels need columns of the build side, and not only the existence of a key.
    pub(crate) fn has_columns(&self) -> bool {
        self.kind.properties().adds_columns || self.condition.is_some()
    }

    /// Returns true if kernels evaluate the join filter per match, and a row remains once for any number of matches.
    pub(crate) fn reads_matches(&self) -> bool {
        self.condition.is_some() && !self.kind.properties().adds_columns
    }

    /// Plans a join of the build side with another table, by keys over the build side's own schema. Its columns come
    /// first.
    pub(crate) fn joined_with(
        &self,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<Arc<dyn ExecutionPlan>, FallbackReason> {
        let properties = sides.kind.properties();
        let joined = HashJoinExec::try_new(
            Arc::clone(&self.plan),
            Arc::clone(without_exchange(sides.build_plan)),
            keys,
            None,
            &properties.join_type,
            None,
            *join.partition_mode(),
            NullEquality::NullEqualsNothing,
            properties.is_null_aware,
        )?;
        Ok(Arc::new(joined))
    }

    /// Indices of the build side's columns in the relation's schema.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.first..self.first + self.plan.schema().fields().len()
    }

    /// Returns true if a column of the relation is one of the build side's.
    pub(crate) fn has_column(&self, column: usize) -> bool {
        self.has_columns() && self.columns().contains(&column)
    }

    /// Renumbers the build side's columns in `expr` from `first` on. From 0, the result is an expression over the build
    /// side.
    pub(crate) fn renumbered(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        first: usize,
    ) -> Result<Arc<dyn PhysicalExpr>, FallbackReason> {
        let own = self.columns();
        let renumbered = Arc::clone(expr).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let index = column.index();
            if !own.contains(&index) {
                return Ok(Transformed::no(expr));
            }
            let column = Column::new(column.name(), index - own.start + first);
            Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
        });
        Ok(renumbered.data()?)
    }
}

/// The probe side and the build side of a hash join.
pub(crate) struct Sides<'a> {
    /// The side of the join that is the probe side.
    pub(crate) probe: JoinSide,
    pub(crate) kind: JoinKind,
    /// True if all rows remain, and one more column marks those that the join would leave.
    pub(crate) is_mark: bool,
    pub(crate) probe_plan: &'a Arc<dyn ExecutionPlan>,
    pub(crate) build_plan: &'a Arc<dyn ExecutionPlan>,
    /// Pairs of the probe side's key and the build side's.
    pub(crate) keys: JoinOn,
}

impl<'a> Sides<'a> {
    /// The sides of `join`; `None` if neither side reads a Vectile table.
    pub(crate) fn of(
        join: &'a HashJoinExec,
        probe_side: ProbeSide,
    ) -> Result<Option<Self>, FallbackReason> {
        let sides = [join.left(), join.right()];
        let [left_rows, right_rows] = sides.map(probe_rows);
        if left_rows.is_none() && right_rows.is_none() {
            return Ok(None);
        }
        use JoinType::*;
        let is_inner = *join.join_type() == Inner;
        let is_left = is_inner && probe_side.is_left(join, [left_rows, right_rows])?;
        let (probe, kind) = match join.join_type() {
            Inner if is_left => (JoinSide::Left, JoinKind::Inner),
            Inner => (JoinSide::Right, JoinKind::Inner),
            Left => (JoinSide::Left, JoinKind::Outer),
            LeftSemi | LeftMark => (JoinSide::Left, JoinKind::Semi),
            LeftAnti if join.null_aware => (JoinSide::Left, JoinKind::NotIn),
            LeftAnti => (JoinSide::Left, JoinKind::Anti),
            Right => (JoinSide::Right, JoinKind::Outer),
            RightSemi | RightMark => (JoinSide::Right, JoinKind::Semi),
            RightAnti => (JoinSide::Right, JoinKind::Anti),
            Full => {
                return Err(FallbackReason::Join(format!(
                    "it is of type {}",
                    join.join_type()
                )));
            }
        };
        let why_not = if join.null_equality() != NullEquality::NullEqualsNothing {
            Some("nulls are equal")
        } else if join.null_aware && (!kind.properties().is_null_aware || join.filter().is_some()) {
            Some("it is aware of nulls")
        } else {
            None
        };
        if let Some(why_not) = why_not {
            return Err(FallbackReason::Join(why_not.into()));
        }
        let [left, right] = sides;
        let pairs = join.on().iter().cloned();
        let (rows, plans, keys) = match probe {
            JoinSide::Left => ((left_rows, right_rows), (left, right), pairs.collect()),
            _ => {
                let keys = pairs.map(|(left, right)| (right, left)).collect();
                ((right_rows, left_rows), (right, left), keys)
            }
        };
        // Then the build side has duplicate keys.
        if kind.is_outer() && rows.1 > rows.0 {
            return Err(FallbackReason::Join(
                "the joined table has more rows".into(),
            ));
        }
        let (probe_plan, build_plan) = plans;
        // A set of keys is made faster than a table of rows, and groups are made in any case.
        let are_rows =
            kind.properties().adds_columns && !(kind.is_outer() && is_grouped(build_plan));
        if are_rows && probe_side.is_too_small(probe_plan, build_plan)? {
            return Err(FallbackReason::Join("its build side has more rows".into()));
        }
        Ok(Some(Self {
            probe,
            kind,
            is_mark: matches!(join.join_type(), LeftMark | RightMark),
            probe_plan,
            build_plan,
            keys,
        }))
    }
}

/// True for groups.
fn is_grouped(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let plan = without_exchange(plan);
    match plan.children()[..] {
        [input] if plan.is::<ProjectionExec>() => is_grouped(input),
        _ => plan.is::<AggregateExec>(),
    }
}

/// Rows of the largest Vectile table that could be the probe side of `plan`; `None` if there is none.
fn probe_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let (config, _) = scan.downcast_to_file_source::<VectileSource>()?;
        return Some(num_rows(config).unwrap_or_default());
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        use JoinType::*;
        return match join.join_type() {
            Inner => probe_rows(join.left()).max(probe_rows(join.right())),
            Left | LeftSemi | LeftAnti | LeftMark => probe_rows(join.left()),
            Right | RightSemi | RightAnti | RightMark => probe_rows(join.right()),
            Full => None,
        };
    }
    let passes = plan.is::<ProjectionExec>() || plan.is::<FilterExec>() || is_exchange(plan);
    match plan.children()[..] {
        [input] if passes => probe_rows(input),
        [left, right] if plan.is::<CrossJoinExec>() || is_inner_loop(plan) => {
            probe_rows(left).max(probe_rows(right))
        }
        _ => None,
    }
}

fn is_inner_loop(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let join = plan.downcast_ref::<NestedLoopJoinExec>();
    join.is_some_and(|join| *join.join_type() == JoinType::Inner)
}

/// The key by which kernels look up rows of a build side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeySource {
    /// A column of the probe side, by its index and type there.
    Column(usize, DataType),
    /// Computed integers and text columns, packed into one integer.
    Packed(Vec<KeyPart>),
}

/// A part of a composite key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyPart {
    /// The type that it is compared as.
    pub(crate) data_type: DataType,
    /// Index of the probe side's column, if it is text.
    pub(crate) text: Option<usize>,
}

impl Join {
    /// The key by which kernels look rows up. `schema` is that of the relation, whose first columns are those of
    /// `table`.
    pub(crate) fn key_source(
        &self,
        schema: &Schema,
        table: &Schema,
    ) -> Result<KeySource, FallbackReason> {
        if let [key] = &self.keys[..]
            && let Some((column, data_type)) = key_column(&key.probe, table)?
        {
            return Ok(KeySource::Column(column, data_type));
        }
        let parts = self.keys.iter().map(|key| {
            let data_type = key.probe.data_type(schema)?;
            if is_packed_key(&data_type) {
                let text = None;
                return Ok(KeyPart { data_type, text });
            }
            match key_column(&key.probe, table)? {
                Some((column, data_type)) if is_text(&data_type) => Ok(KeyPart {
                    data_type,
                    text: Some(column),
                }),
                _ => Err(unsupported_key(&key.probe)),
            }
        });
        Ok(KeySource::Packed(
            parts.collect::<Result<_, FallbackReason>>()?,
        ))
    }
}

fn unsupported_key(key: &Arc<dyn PhysicalExpr>) -> FallbackReason {
    FallbackReason::Join(format!("its key is {key}"))
}

/// The column of the probe side that is `key`, or whose lossless cast it is; `None` if `key` is computed.
pub(super) fn key_column(
    key: &Arc<dyn PhysicalExpr>,
    table: &Schema,
) -> Result<Option<(usize, DataType)>, FallbackReason> {
    let (column, cast_to) = match key.downcast_ref::<CastExpr>() {
        Some(cast) => (cast.expr(), Some(cast.cast_type())),
        None => (key, None),
    };
    let Some(column) = column.downcast_ref::<Column>() else {
        return Ok(None);
    };
    let Some(field) = table.fields().get(column.index()) else {
        return Ok(None);
    };
    let data_type = field.data_type();
    if cast_to.is_some_and(|to| !is_lossless(data_type, to)) {
        return Ok(None);
    }
    match is_key(data_type) {
        true => Ok(Some((column.index(), data_type.clone()))),
        false if is_packed_key(data_type) => Ok(None),
        false => Err(FallbackReason::Type {
            column: field.name().clone(),
            data_type: data_type.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    fn column(of: DataType, cast_to: Option<DataType>) -> Option<(usize, DataType)> {
        let table = Schema::new(vec![Field::new("k", of, true)]);
        let mut key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        if let Some(to) = cast_to {
            key = Arc::new(CastExpr::new(key, to, None));
        }
        key_column(&key, &table).ok().flatten()
    }

    #[test]
    fn keys_are_columns_that_may_be_cast_without_loss() {
        for (of, cast_to) in [
            (DataType::Int32, None),
            (DataType::Int32, Some(DataType::Int64)),
            (DataType::UInt8, Some(DataType::Int16)),
            (DataType::Utf8, Some(DataType::Utf8View)),
            (DataType::Date32, None),
        ] {
            assert_eq!(column(of.clone(), cast_to), Some((0, of)));
        }
        for (of, cast_to) in [
            (DataType::Int64, Some(DataType::Int32)),
            (DataType::Int32, Some(DataType::UInt64)),
            (DataType::Utf8, Some(DataType::Int64)),
            (DataType::Float64, None),
            (DataType::UInt64, None),
            (DataType::Boolean, None),
        ] {
            assert_eq!(column(of, cast_to), None);
        }
    }

    #[test]
    fn other_keys_are_computed() {
        let own = [
            Field::new("k", DataType::Int32, true),
            Field::new("t", DataType::Utf8, true),
        ];
        let others = [
            Field::new("j", DataType::Decimal128(15, 2), true),
            Field::new("f", DataType::Float64, true),
        ];
        let table = Schema::new(own.to_vec());
        let schema = Schema::new([own, others].concat());
        let column =
            |name: &str, index| Arc::new(Column::new(name, index)) as Arc<dyn PhysicalExpr>;
        let key_source = |keys: &[Arc<dyn PhysicalExpr>]| {
            let keys = keys.iter().map(|key| JoinKey {
                probe: Arc::clone(key),
                build: column("other", 0),
            });
            let join = Join {
                plan: Arc::new(EmptyExec::new(Arc::new(table.clone()))),
                keys: keys.collect(),
                kind: JoinKind::Inner,
                first: 4,
                condition: None,
            };
            join.key_source(&schema, &table)
        };
        let (k, j, f) = (column("k", 0), column("j", 2), column("f", 3));
        let by_column = KeySource::Column(0, DataType::Int32);
        assert_eq!(key_source(std::slice::from_ref(&k)), Ok(by_column));
        let part = |data_type, text| KeyPart { data_type, text };
        let both = vec![
            part(DataType::Int32, None),
            part(DataType::Decimal128(15, 2), None),
        ];
        assert_eq!(
            key_source(&[k, Arc::clone(&j)]),
            Ok(KeySource::Packed(both.clone()))
        );
        assert_eq!(
            key_source(std::slice::from_ref(&j)),
            Ok(KeySource::Packed(both[1..].to_vec()))
        );
        let with_text = vec![both[1].clone(), part(DataType::Utf8, Some(1))];
        let t = column("t", 1);
        assert_eq!(key_source(&[j, t]), Ok(KeySource::Packed(with_text)));
        let reason = key_source(&[f]).unwrap_err();
        assert_eq!(reason.to_string(), "join: its key is f@3");
    }
}
