//! Sort keys as integers in the order of their values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, UInt32Array};
use arrow::compute::SortOptions;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{HashMap, Result, internal_err};

/// Most different strings of a key. With more, finding and sorting them takes as long as sorting the rows.
const MOST_STRINGS: usize = 1 << 16;

/// A key of all rows whose values have codes: 0 to `largest`, in the order of the values.
pub(super) struct Codes {
    /// A key's columns, one for each batch.
    columns: Vec<ArrayRef>,
    is_descending: bool,
    /// The code of null, if there are nulls.
    null: Option<u128>,
    /// The code 0 if nulls are last, otherwise 1.
    first: u128,
    /// The smallest and the largest value, as [`for_each`] has them.
    range: (i128, i128),
    largest: u128,
}

/// True if keys of this type may have codes.
pub(super) fn have_codes(data_type: &DataType) -> bool {
    use DataType::*;
    let is_number = data_type.is_integer() || matches!(data_type, Boolean | Float32 | Float64);
    let is_decimal = matches!(data_type, Decimal32(..) | Decimal64(..) | Decimal128(..));
    let is_time = matches!(
        data_type,
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_)
    );
    is_number || is_decimal || is_time || is_string(data_type)
}

fn is_string(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View)
}

impl Codes {
    /// The codes of a key. `None` if they take more than 128 bits, or it has more than [`MOST_STRINGS`] strings.
    ///
    /// # Errors
    ///
    /// An internal one if a column's type has no codes.
    pub(super) fn of(columns: Vec<ArrayRef>, options: SortOptions) -> Result<Option<Self>> {
        let are_strings = columns
            .first()
            .is_some_and(|column| is_string(column.data_type()));
        let columns = match are_strings {
            true => match ranks(&columns)? {
                Some(ranks) => ranks,
                None => return Ok(None),
            },
            false => columns,
        };
        let mut range: Option<(i128, i128)> = None;
        let mut has_nulls = false;
        for column in &columns {
            for_each(column, |value| match (value, &mut range) {
                (None, _) => has_nulls = true,
                (Some(value), Some((least, most))) => {
                    *least = value.min(*least);
                    *most = value.max(*most);
                }
                (Some(value), none) => *none = Some((value, value)),
            })?;
        }
        // without values there are nulls alone
        let (least, most) = range.unwrap_or_default();
        let distance = most.abs_diff(least);
        let first = u128::from(has_nulls && options.nulls_first);
        let Some(largest) = distance.checked_add(u128::from(has_nulls)) else {
            return Ok(None);
        };
        let null = has_nulls.then_some(if options.nulls_first { 0 } else { largest });
        Ok(Some(Self {
            columns,
            is_descending: options.descending,
            null,
            first,
            range: (least, most),
            largest,
        }))
    }

    /// Number of bits of a code.
    pub(super) fn bits(&self) -> u32 {
        u128::BITS - self.largest.leading_zeros()
    }

    /// Calls `f` with the code of each row.
    pub(super) fn for_each(&self, mut f: impl FnMut(u128)) -> Result<()> {
        let (least, most) = self.range;
        let null = self.null.unwrap_or_default();
        for column in &self.columns {
            match self.is_descending {
                true => for_each(column, |value| {
                    f(value.map_or(null, |value| most.abs_diff(value) + self.first));
                })?,
                false => for_each(column, |value| {
                    f(value.map_or(null, |value| value.abs_diff(least) + self.first));
                })?,
            }
        }
        Ok(())
    }
}

/// Calls `f` with each value, as an integer in the order of the values, or with `None` for null.
fn for_each(column: &ArrayRef, f: impl FnMut(Option<i128>)) -> Result<()> {
    use DataType::*;
    match column.data_type() {
        Boolean => {
            let values = column.as_boolean().iter();
            values.map(|value| value.map(i128::from)).for_each(f);
        }
        Int8 => each::<Int8Type>(column, i128::from, f),
        Int16 => each::<Int16Type>(column, i128::from, f),
        Int32 => each::<Int32Type>(column, i128::from, f),
        Int64 => each::<Int64Type>(column, i128::from, f),
        UInt8 => each::<UInt8Type>(column, i128::from, f),
        UInt16 => each::<UInt16Type>(column, i128::from, f),
        UInt32 => each::<UInt32Type>(column, i128::from, f),
        UInt64 => each::<UInt64Type>(column, i128::from, f),
        Float32 => each::<Float32Type>(column, f32_order, f),
        Float64 => each::<Float64Type>(column, f64_order, f),
        Decimal32(..) => each::<Decimal32Type>(column, i128::from, f),
        Decimal64(..) => each::<Decimal64Type>(column, i128::from, f),
        Decimal128(..) => each::<Decimal128Type>(column, |value| value, f),
        Date32 => each::<Date32Type>(column, i128::from, f),
        Date64 => each::<Date64Type>(column, i128::from, f),
        Time32(TimeUnit::Second) => each::<Time32SecondType>(column, i128::from, f),
        Time32(TimeUnit::Millisecond) => each::<Time32MillisecondType>(column, i128::from, f),
        Time64(TimeUnit::Microsecond) => each::<Time64MicrosecondType>(column, i128::from, f),
        Time64(TimeUnit::Nanosecond) => each::<Time64NanosecondType>(column, i128::from, f),
        Timestamp(unit, _) => match unit {
            TimeUnit::Second => each::<TimestampSecondType>(column, i128::from, f),
            TimeUnit::Millisecond => each::<TimestampMillisecondType>(column, i128::from, f),
            TimeUnit::Microsecond => each::<TimestampMicrosecondType>(column, i128::from, f),
            TimeUnit::Nanosecond => each::<TimestampNanosecondType>(column, i128::from, f),
        },
        Duration(unit) => match unit {
            TimeUnit::Second => each::<DurationSecondType>(column, i128::from, f),
            TimeUnit::Millisecond => each::<DurationMillisecondType>(column, i128::from, f),
            TimeUnit::Microsecond => each::<DurationMicrosecondType>(column, i128::from, f),
            TimeUnit::Nanosecond => each::<DurationNanosecondType>(column, i128::from, f),
        },
        other => return internal_err!("sort keys of type {other} have no codes"),
    }
    Ok(())
}

fn each<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    order: impl Fn(T::Native) -> i128,
    mut f: impl FnMut(Option<i128>),
) {
    let column = column.as_primitive::<T>();
    match column.nulls() {
        Some(_) => column.iter().for_each(|value| f(value.map(&order))),
        None => column
            .values()
            .iter()
            .for_each(|value| f(Some(order(*value)))),
    }
}

/// An integer in the place of `value` in IEEE 754's total order.
fn f32_order(value: f32) -> i128 {
    let bits = value.to_bits().cast_signed();
    i128::from(bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed())
}

/// An integer in the place of `value` in IEEE 754's total order.
fn f64_order(value: f64) -> i128 {
    let bits = value.to_bits().cast_signed();
    i128::from(bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed())
}

/// The rank of each string among the different ones of all columns; `None` if there are more than [`MOST_STRINGS`].
fn ranks(columns: &[ArrayRef]) -> Result<Option<Vec<ArrayRef>>> {
    let mut numbers = HashMap::new();
    let mut numbered = Vec::with_capacity(columns.len());
    for column in columns {
        let column = match column.data_type() {
            DataType::Utf8 => number(column.as_string::<i32>().iter(), &mut numbers),
            DataType::LargeUtf8 => number(column.as_string::<i64>().iter(), &mut numbers),
            DataType::Utf8View => number(column.as_string_view().iter(), &mut numbers),
            other => return internal_err!("sort keys of type {other} are no strings"),
        };
        match column {
            Some(column) => numbered.push(column),
            None => return Ok(None),
        }
    }
    let mut strings: Vec<(&str, u32)> = numbers.into_iter().collect();
    strings.sort_unstable();
    let mut ranks = vec![0; strings.len()];
    for (rank, (_, number)) in (0..).zip(&strings) {
        if let Some(of_number) = ranks.get_mut(*number as usize) {
            *of_number = rank;
        }
    }
    let rank = |number: u32| ranks.get(number as usize).copied().unwrap_or_default();
    let ranked = numbered.iter().map(|column| {
        let ranks: UInt32Array = column.unary(rank);
        Arc::new(ranks) as ArrayRef
    });
    Ok(Some(ranked.collect()))
}

/// The number of each string, in the order in which they are first met. `None` if there are too many different ones.
fn number<'a>(
    strings: impl Iterator<Item = Option<&'a str>>,
    numbers: &mut HashMap<&'a str, u32>,
) -> Option<UInt32Array> {
    let mut last: Option<(&str, u32)> = None;
    let numbered = strings.map(|string| {
        let Some(string) = string else {
            return Some(None);
        };
        if let Some((_, number)) = last.filter(|(last, _)| *last == string) {
            return Some(Some(number));
        }
        let next = u32::try_from(numbers.len()).ok()?;
        let number = *numbers.entry(string).or_insert(next);
        last = Some((string, number));
        (numbers.len() <= MOST_STRINGS).then_some(Some(number))
    });
    numbered.collect()
}
