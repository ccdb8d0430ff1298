//! Aggregates of the rows of a partition up to each row.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray, UInt64Array,
};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowNativeTypeOp, DataType, Date32Type, Date64Type, Decimal128Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};

/// How values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    Sum,
    Min,
    Max,
}

/// An aggregate of the rows of a partition up to each row.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// The value of a row.
    pub(super) value: Arc<dyn PhysicalExpr>,
    /// True if rows that are equal in order have the same result, that of the last of them.
    pub(super) has_peers: bool,
    kind: Kind,
    /// The type of results.
    data_type: DataType,
}

impl Running {
    /// `None` if `window` is another function, has another frame, a filter or distinct values, or another type.
    pub(super) fn of(window: &dyn WindowExpr) -> Option<Self> {
        let aggregate: &PlainAggregateWindowExpr = window.as_any().downcast_ref()?;
        if has_filter(aggregate) {
            return None;
        }
        let frame = window.get_window_frame();
        let is_running =
            frame.start_bound.is_unbounded() && frame.end_bound == WindowFrameBound::CurrentRow;
        let function = aggregate.get_aggregate_expr();
        if !is_running || function.is_distinct() || window.order_by().is_empty() {
            return None;
        }
        let of = function.fun().inner();
        let kind = if of.is::<Count>() {
            Kind::Count
        } else if of.is::<Sum>() {
            Kind::Sum
        } else if of.is::<Min>() {
            Kind::Min
        } else if of.is::<Max>() {
            Kind::Max
        } else {
            return None;
        };
        let [value] = <[_; 1]>::try_from(window.expressions()).ok()?;
        let data_type = window.field().ok()?.data_type().clone();
        let is_known = match kind {
            Kind::Count => data_type == DataType::Int64,
            // the order of additions decides a sum of floats
            Kind::Sum => matches!(
                data_type,
                DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..)
            ),
            Kind::Min | Kind::Max => is_ordered(&data_type),
        };
        is_known.then_some(Self {
            value,
            has_peers: frame.units != WindowFrameUnits::Rows,
            kind,
            data_type,
        })
    }

    /// For each row, the result of the rows of its partition up to it. `first` is that of the first row, if there are rows
    /// before it.
    ///
    /// # Errors
    ///
    /// An internal one if columns have other types than the function.
    pub(super) fn results(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&ArrayRef>,
    ) -> Result<ArrayRef> {
        if self.kind == Kind::Count {
            let first = first.and_then(|first| first.as_primitive_opt::<Int64Type>());
            return Ok(Arc::new(counts(values, partitions, first)));
        }
        use DataType::*;
        match &self.data_type {
            Int8 => self.combined::<Int8Type>(values, partitions, first),
            Int16 => self.combined::<Int16Type>(values, partitions, first),
            Int32 => self.combined::<Int32Type>(values, partitions, first),
            Int64 => self.combined::<Int64Type>(values, partitions, first),
            UInt8 => self.combined::<UInt8Type>(values, partitions, first),
            UInt16 => self.combined::<UInt16Type>(values, partitions, first),
            UInt32 => self.combined::<UInt32Type>(values, partitions, first),
            UInt64 => self.combined::<UInt64Type>(values, partitions, first),
            Date32 => self.combined::<Date32Type>(values, partitions, first),
            Date64 => self.combined::<Date64Type>(values, partitions, first),
            Decimal128(..) => self.combined::<Decimal128Type>(values, partitions, first),
            Timestamp(unit, _) => match unit {
                TimeUnit::Second => self.combined::<TimestampSecondType>(values, partitions, first),
                TimeUnit::Millisecond => {
                    self.combined::<TimestampMillisecondType>(values, partitions, first)
                }
                TimeUnit::Microsecond => {
                    self.combined::<TimestampMicrosecondType>(values, partitions, first)
                }
                TimeUnit::Nanosecond => {
                    self.combined::<TimestampNanosecondType>(values, partitions, first)
                }
            },
            other => internal_err!("running aggregates of type {other}"),
        }
    }

    fn combined<T: ArrowPrimitiveType>(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&ArrayRef>,
    ) -> Result<ArrayRef> {
        let Some(values) = values.as_primitive_opt::<T>() else {
            let of = values.data_type();
            return internal_err!("a running aggregate of type {} of {of}", self.data_type);
        };
        let first = first.and_then(|first| first.as_primitive_opt::<T>());
        let results = match self.kind {
            Kind::Min => running(values, partitions, first, |least, value| {
                if value.is_lt(least) { value } else { least }
            }),
            Kind::Max => running(values, partitions, first, |most, value| {
                if value.is_gt(most) { value } else { most }
            }),
            Kind::Count | Kind::Sum => running(values, partitions, first, |sum, value| {
                sum.add_wrapping(value)
            }),
        };
        Ok(Arc::new(results.with_data_type(self.data_type.clone())))
    }
}

/// The results of the last rows that are equal in order, for each row.
pub(super) fn of_last_peers(results: &ArrayRef, peers: &[Range<usize>]) -> Result<ArrayRef> {
    let last = peers.iter().flat_map(|equal| {
        let last = equal.end.saturating_sub(1) as u64;
        iter::repeat_n(last, equal.len())
    });
    let last = UInt64Array::from_iter_values(last);
    Ok(take(results, &last, None)?)
}

/// True if a window has a `FILTER`. DataFusion 55.2 has no accessor for it. It is the last field of what `Debug` shows:
/// the text of a filter ends with a parenthesis of its own.
fn has_filter(window: &PlainAggregateWindowExpr) -> bool {
    !format!("{window:?}").ends_with("filter: None }")
}

/// True for types whose values all are in one order.
fn is_ordered(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer() || matches!(data_type, Date32 | Date64 | Timestamp(..) | Decimal128(..))
}

fn counts(
    values: &ArrayRef,
    partitions: &[Range<usize>],
    first: Option<&Int64Array>,
) -> Int64Array {
    // a column of nulls has no bitmap of them
    let nulls = values.logical_nulls();
    let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let mut counts = Vec::with_capacity(values.len());
    for partition in partitions {
        let mut rows = partition.clone();
        let mut count = 0;
        if let Some(first) = first.filter(|_| rows.start == 0 && !rows.is_empty()) {
            count = first.iter().flatten().next().unwrap_or_default();
            counts.push(count);
            rows.start = 1;
        }
        counts.extend(rows.map(|row| {
            count += i64::from(is_valid(row));
            count
        }));
    }
    counts.into()
}

fn running<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    partitions: &[Range<usize>],
    first: Option<&PrimitiveArray<T>>,
    combine: impl Fn(T::Native, T::Native) -> T::Native,
) -> PrimitiveArray<T> {
    let mut results = Vec::with_capacity(values.len());
    for partition in partitions {
        let mut rows = partition.clone();
        let mut result = None;
        if let Some(first) = first.filter(|_| rows.start == 0 && !rows.is_empty()) {
            result = first.iter().next().flatten();
            results.push(result);
            rows.start = 1;
        }
        let values = values.slice(rows.start, rows.len());
        results.extend(values.iter().map(|value| {
            if let Some(value) = value {
                result = Some(result.map_or(value, |result| combine(result, value)));
            }
            result
        }));
    }
    results.into_iter().collect()
}
