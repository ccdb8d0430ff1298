//! Aggregates over frames of sorted rows.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat, is_null, nullif, take};
use arrow::datatypes::{
    ArrowNativeTypeOp, DataType, Date32Type, Date64Type, Decimal128Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr,
};

use super::frame::Extent;
use crate::stack;

/// Most rows of a frame of floats. A sum of more is kept from row to row, which rounds differently.
const MOST_FLOATS: usize = 64;

/// How values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    Sum,
    Min,
    Max,
    Average,
}

/// An aggregate over frames of rows.
#[derive(Clone, Debug)]
pub(super) struct Aggregate {
    /// The value of a row.
    pub(super) value: Arc<dyn PhysicalExpr>,
    pub(super) extent: Extent,
    kind: Kind,
    function: Arc<AggregateFunctionExpr>,
    /// The type of sums and extremes.
    data_type: DataType,
}

impl Aggregate {
    /// `None` if `window` is another function, has another frame, a filter or distinct values, or another type.
    pub(super) fn of(window: &dyn WindowExpr) -> Option<Self> {
        let of = window.as_any();
        let function = if let Some(plain) = of.downcast_ref::<PlainAggregateWindowExpr>() {
            plain.get_aggregate_expr()
        } else if let Some(sliding) = of.downcast_ref::<SlidingAggregateWindowExpr>() {
            sliding.get_aggregate_expr()
        } else {
            return None;
        };
        if has_filter(window) || function.is_distinct() || !function.order_bys().is_empty() {
            return None;
        }
        let extent = Extent::of(window.get_window_frame(), !window.order_by().is_empty())?;
        let of = function.fun().inner();
        let kind = if of.is::<Count>() {
            Kind::Count
        } else if of.is::<Sum>() {
            Kind::Sum
        } else if of.is::<Min>() {
            Kind::Min
        } else if of.is::<Max>() {
            Kind::Max
        } else if of.is::<Avg>() {
            Kind::Average
        } else {
            return None;
        };
        let [value] = <[_; 1]>::try_from(window.expressions()).ok()?;
        let data_type = match kind {
            // counts and sums are the states of averages
            Kind::Average => function.state_fields().ok()?.get(1)?.data_type().clone(),
            _ => function.field().data_type().clone(),
        };
        let aggregate = Self {
            value,
            extent,
            kind,
            function: Arc::new(function.clone()),
            data_type,
        };
        aggregate.is_known().then_some(aggregate)
    }

    fn is_known(&self) -> bool {
        use DataType::*;
        let is_exact = matches!(self.data_type, Int64 | UInt64 | Decimal128(..));
        let is_float = self.data_type == Float64;
        match (self.kind, self.extent) {
            (Kind::Count, _) => self.data_type == Int64,
            (Kind::Min | Kind::Max, Extent::Partition) => {
                let is_text = matches!(self.data_type, Utf8 | LargeUtf8 | Utf8View);
                self.function.groups_accumulator_supported()
                    && (is_text || is_ordered(&self.data_type))
            }
            (Kind::Min | Kind::Max, Extent::Near { .. }) => false,
            (Kind::Min | Kind::Max, _) => is_ordered(&self.data_type),
            (_, Extent::Near { before, after }) => {
                is_exact || (is_float && before + after < MOST_FLOATS)
            }
            (Kind::Average | Kind::Sum, _) => {
                (is_exact || is_float) && self.function.groups_accumulator_supported()
            }
        }
    }

    /// For each row, what is known of its frame, without later rows of the same order. `first` is that of the first row,
    /// if there are rows before it.
    ///
    /// # Errors
    ///
    /// An internal one if columns have other types than the function.
    pub(super) fn states(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&[ArrayRef]>,
    ) -> Result<Vec<ArrayRef>> {
        let state = |number: usize| first.and_then(|first| first.get(number));
        let counts = || -> ArrayRef {
            let first = state(0).and_then(|first| first.as_primitive_opt::<Int64Type>());
            let nulls = values.logical_nulls();
            Arc::new(match self.extent {
                Extent::Near { before, after } => {
                    counts_near(nulls.as_ref(), partitions, (before, after))
                }
                _ => counts(nulls.as_ref(), partitions, first),
            })
        };
        Ok(match (self.kind, self.extent) {
            (_, Extent::Partition) => vec![self.of_partitions(values, partitions, state(0))?],
            (Kind::Count, _) => vec![counts()],
            (Kind::Average, _) => {
                // sums of decimals may be wider
                let values = cast(values, &self.data_type)?;
                vec![counts(), self.combined(&values, partitions, state(1))?]
            }
            _ => vec![self.combined(values, partitions, state(0))?],
        })
    }

    /// The results of rows with these states.
    pub(super) fn results(&self, states: Vec<ArrayRef>) -> Result<ArrayRef> {
        match (self.kind, self.extent, &states[..]) {
            (Kind::Average, extent, [counts, sums]) if extent != Extent::Partition => {
                let rows = counts.len();
                // without a value, there is no state
                let counts = nullif(counts, &is_null(sums)?)?;
                let states = [cast(&counts, &DataType::UInt64)?, Arc::clone(sums)];
                let each: Vec<usize> = (0..rows).collect();
                let mut groups = self.function.create_groups_accumulator()?;
                groups.merge_batch(&states, &each, rows)?;
                groups.evaluate(EmitTo::All)
            }
            (_, _, [results]) => Ok(Arc::clone(results)),
            _ => internal_err!("an aggregate of {} states", states.len()),
        }
    }

    /// The results of whole partitions, one for each row.
    fn of_partitions(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&ArrayRef>,
    ) -> Result<ArrayRef> {
        let known = first.filter(|_| partitions.first().is_some_and(|of| of.start == 0));
        let others = partitions
            .get(usize::from(known.is_some())..)
            .unwrap_or_default();
        let start = others.first().map_or(values.len(), |of| of.start);
        let numbers = others.iter().zip(0..);
        let numbers = numbers.flat_map(|(of, number)| iter::repeat_n(number, of.len()));
        let numbers: Vec<usize> = numbers.collect();
        let mut groups = self.function.create_groups_accumulator()?;
        let values = values.slice(start, values.len() - start);
        groups.update_batch(&[values], &numbers, None, others.len())?;
        let results = groups.evaluate(EmitTo::All)?;
        let results = match known {
            Some(known) => concat(&[known.as_ref(), results.as_ref()])?,
            None => results,
        };
        let each = partitions.iter().zip(0..);
        let each = each.flat_map(|(of, number)| iter::repeat_n(number, of.len()));
        Ok(take(&results, &UInt64Array::from_iter_values(each), None)?)
    }

    fn combined(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&ArrayRef>,
    ) -> Result<ArrayRef> {
        use DataType::*;
        match &self.data_type {
            Int8 => self.of_type::<Int8Type>(values, partitions, first),
            Int16 => self.of_type::<Int16Type>(values, partitions, first),
            Int32 => self.of_type::<Int32Type>(values, partitions, first),
            Int64 => self.of_type::<Int64Type>(values, partitions, first),
            UInt8 => self.of_type::<UInt8Type>(values, partitions, first),
            UInt16 => self.of_type::<UInt16Type>(values, partitions, first),
            UInt32 => self.of_type::<UInt32Type>(values, partitions, first),
            UInt64 => self.of_type::<UInt64Type>(values, partitions, first),
            Float64 => self.of_type::<Float64Type>(values, partitions, first),
            Date32 => self.of_type::<Date32Type>(values, partitions, first),
            Date64 => self.of_type::<Date64Type>(values, partitions, first),
            Decimal128(..) => self.of_type::<Decimal128Type>(values, partitions, first),
            Timestamp(unit, _) => match unit {
                TimeUnit::Second => self.of_type::<TimestampSecondType>(values, partitions, first),
                TimeUnit::Millisecond => {
                    self.of_type::<TimestampMillisecondType>(values, partitions, first)
                }
                TimeUnit::Microsecond => {
                    self.of_type::<TimestampMicrosecondType>(values, partitions, first)
                }
                TimeUnit::Nanosecond => {
                    self.of_type::<TimestampNanosecondType>(values, partitions, first)
                }
            },
            other => internal_err!("aggregates of type {other} over frames"),
        }
    }

    fn of_type<T: ArrowPrimitiveType>(
        &self,
        values: &ArrayRef,
        partitions: &[Range<usize>],
        first: Option<&ArrayRef>,
    ) -> Result<ArrayRef> {
        let Some(values) = values.as_primitive_opt::<T>() else {
            let of = values.data_type();
            return internal_err!("an aggregate of type {} of {of}", self.data_type);
        };
        let first = first.and_then(|first| first.as_primitive_opt::<T>());
        let add = |sum: T::Native, value: T::Native| sum.add_wrapping(value);
        // a sum of negative zeros is zero
        let from_zero = |value| add(T::Native::ZERO, value);
        let same = |value| value;
        let results = match (self.kind, self.extent) {
            (Kind::Min, _) => running(values, partitions, first, same, |least, value| {
                if value.is_lt(least) { value } else { least }
            }),
            (Kind::Max, _) => running(values, partitions, first, same, |most, value| {
                if value.is_gt(most) { value } else { most }
            }),
            (_, Extent::Near { before, after }) if self.data_type.is_floating() => {
                sums_of_few(values, partitions, (before, after))
            }
            (_, Extent::Near { before, after }) => differences(values, partitions, (before, after)),
            _ => running(values, partitions, first, from_zero, add),
        };
        Ok(Arc::new(results.with_data_type(self.data_type.clone())))
    }
}

/// The value of the last of the rows that are equal in order, or in one partition, for each row.
pub(super) fn of_last(values: &ArrayRef, equal: &[Range<usize>]) -> Result<ArrayRef> {
    let last = equal.iter().flat_map(|rows| {
        let last = rows.end.saturating_sub(1) as u64;
        iter::repeat_n(last, rows.len())
    });
    let last = UInt64Array::from_iter_values(last);
    Ok(take(values, &last, None)?)
}

/// The value of the first row of the partition, for each row. `first` is that of the first row, if there are rows before
/// it.
pub(super) fn of_first(
    values: &ArrayRef,
    partitions: &[Range<usize>],
    first: Option<&ArrayRef>,
) -> Result<ArrayRef> {
    let known = first.filter(|_| partitions.first().is_some_and(|of| of.start == 0));
    let values = match known {
        Some(known) => concat(&[known.as_ref(), values.as_ref()])?,
        None => Arc::clone(values),
    };
    let sources = partitions.iter().flat_map(|of| {
        let source = match known {
            Some(_) if of.start == 0 => 0,
            _ => (of.start + usize::from(known.is_some())) as u64,
        };
        iter::repeat_n(source, of.len())
    });
    let sources = UInt64Array::from_iter_values(sources);
    Ok(take(&values, &sources, None)?)
}

/// True if an aggregate over a window has a `FILTER`. DataFusion 55.2 has no accessor for it. It is the last field of what
/// `Debug` shows: the text of a filter ends with a parenthesis of its own.
fn has_filter(window: &dyn WindowExpr) -> bool {
    let arguments = window.expressions();
    let order_by = window.order_by().iter().map(|key| &key.expr);
    let exprs = arguments
        .iter()
        .chain(window.partition_by())
        .chain(order_by);
    let shown = stack::with_room(stack::levels(exprs), || format!("{window:?}"));
    !shown.ends_with("filter: None }")
}

/// True for types whose values all are in one order.
fn is_ordered(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer() || matches!(data_type, Date32 | Date64 | Timestamp(..) | Decimal128(..))
}

/// For each row of `partitions`, the rows of its partition from so many before it to so many after it.
fn near_each(
    partitions: &[Range<usize>],
    (before, after): (usize, usize),
) -> impl Iterator<Item = Range<usize>> {
    partitions.iter().flat_map(move |of| {
        of.clone().map(move |row| {
            let start = row.saturating_sub(before).max(of.start);
            let end = row.saturating_add(after).saturating_add(1).min(of.end);
            start..end
        })
    })
}

/// Numbers of values that are not null, from the first row of the partition to each.
fn counts(
    nulls: Option<&NullBuffer>,
    partitions: &[Range<usize>],
    first: Option<&Int64Array>,
) -> Int64Array {
    let is_valid = |row| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let mut counts = Vec::new();
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

/// Numbers of values that are not null, near each row.
fn counts_near(
    nulls: Option<&NullBuffer>,
    partitions: &[Range<usize>],
    distances: (usize, usize),
) -> Int64Array {
    let mut count = 0;
    let before = nulls.map(|nulls| {
        let counts = nulls.iter().map(|is_valid| {
            count += i64::from(is_valid);
            count
        });
        iter::once(0).chain(counts).collect::<Vec<i64>>()
    });
    let rows = near_each(partitions, distances);
    let counts = rows.map(|rows| match &before {
        Some(before) => Some(before.get(rows.end)? - before.get(rows.start)?),
        None => Some(rows.len() as i64),
    });
    counts.collect()
}

/// Values combined from the first row of the partition to each, beginning with `begin` of the first value.
fn running<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    partitions: &[Range<usize>],
    first: Option<&PrimitiveArray<T>>,
    begin: impl Fn(T::Native) -> T::Native,
    combine: impl Fn(T::Native, T::Native) -> T::Native,
) -> PrimitiveArray<T> {
    let mut values = values.iter();
    let mut results = Vec::with_capacity(values.len());
    for partition in partitions {
        let mut result = None;
        for row in partition.clone() {
            let value = values.next().flatten();
            let before = first.filter(|_| row == 0);
            match (before, value) {
                (Some(first), _) => result = first.iter().next().flatten(),
                (None, Some(value)) => {
                    result = Some(match result {
                        Some(result) => combine(result, value),
                        None => begin(value),
                    });
                }
                (None, None) => {}
            }
            results.push(result);
        }
    }
    results.into_iter().collect()
}

/// Sums of the values near each row, as differences of sums from the first row on.
fn differences<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    partitions: &[Range<usize>],
    distances: (usize, usize),
) -> PrimitiveArray<T> {
    let (mut sum, mut count) = (T::Native::ZERO, 0usize);
    let mut before = Vec::with_capacity(values.len() + 1);
    before.push((sum, count));
    before.extend(values.iter().map(|value| {
        sum = sum.add_wrapping(value.unwrap_or(T::Native::ZERO));
        count += usize::from(value.is_some());
        (sum, count)
    }));
    let rows = near_each(partitions, distances);
    let results = rows.map(|rows| {
        let (start, end) = (before.get(rows.start)?, before.get(rows.end)?);
        (end.1 > start.1).then(|| end.0.sub_wrapping(start.0))
    });
    results.collect()
}

/// Sums of the values near each row, of few of them.
fn sums_of_few<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    partitions: &[Range<usize>],
    distances: (usize, usize),
) -> PrimitiveArray<T> {
    let rows = near_each(partitions, distances);
    let results = rows.map(|rows| {
        let valid = rows.filter(|row| values.is_valid(*row));
        let valid = valid.filter_map(|row| values.values().get(row).copied());
        valid.fold(None, |sum: Option<T::Native>, value| {
            Some(sum.unwrap_or(T::Native::ZERO).add_wrapping(value))
        })
    });
    results.collect()
}
