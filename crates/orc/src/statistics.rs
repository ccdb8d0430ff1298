//! Zone maps from a file's statistics of stripes and index groups. They never claim more than the writer can have
//! known:
//!
//! - Bounds of floats exclude NaN, which sorts above all numbers. If there is one, the sum is NaN; without a sum the
//!   bounds are unknown.
//! - Zeros of either sign are the same to a writer.
//! - Timestamps are in whole milliseconds.
//! - Some versions of the writer in Java wrote bounds that are not those of the values: see [`Writer`].
//! - A writer that cuts long text within a character, or makes an upper bound that is no text, writes U+FFFD there.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray,
    TimestampNanosecondArray, UInt64Array, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use vectile_encodings::ZoneMap;

use crate::kind::TypeKind;
use crate::messages::{Bounds, ColumnStatistics};
use crate::schema::Type;

/// The number of the Java writer.
const JAVA: u64 = 0;

/// Its first version whose bounds of stripes are right: HIVE-8732.
const FIRST_RIGHT_VERSION: u64 = 1;

/// The version of Java 1.5.0 to 1.5.5, whose bounds of one-word decimals are wrong: ORC-517.
const DECIMALS_OF_ONE_WORD_WRONG: u64 = 6;

/// The most digits of a decimal of one word.
const ONE_WORD_PRECISION: u8 = 18;

/// The replacement for bytes that are not text.
const REPLACEMENT: char = '\u{FFFD}';

/// The program that wrote a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    /// The program's number.
    pub(crate) number: u64,
    /// Its revision, counted from its first.
    pub(crate) version: u64,
}

impl Writer {
    /// Returns true if the bounds of a column are right.
    fn has_bounds(self, column: &Type) -> bool {
        if self.number != JAVA {
            return true;
        }
        match column.data_type {
            DataType::Decimal128(..=ONE_WORD_PRECISION, _)
                if self.version == DECIMALS_OF_ONE_WORD_WRONG =>
            {
                false
            }
            _ => self.version >= FIRST_RIGHT_VERSION,
        }
    }
}

/// Statistics of some zones: stripes, or index groups of one stripe.
pub(crate) struct Zones<'a> {
    /// Statistics per zone.
    pub(crate) statistics: Vec<Option<&'a ColumnStatistics>>,
    /// Rows per zone.
    pub(crate) rows: Vec<u64>,
    /// The writer of the file.
    pub(crate) writer: Writer,
}

impl Zones<'_> {
    /// The zone map of a column of the table.
    pub(crate) fn of_column(&self, column: &Type) -> ZoneMap {
        let (min, max, exact) = match self.writer.has_bounds(column) {
            true => self.bounds(column),
            false => self.unknown(),
        };
        let values = self
            .statistics
            .iter()
            .map(|known| known.and_then(|known| known.values));
        let nulls = values
            .zip(&self.rows)
            .map(|(values, rows)| rows.checked_sub(values?));
        // in Arrow, unions have no nulls of their own, but their values do
        let nulls = nulls.map(|nulls| nulls.filter(|_| column.kind != TypeKind::Union));
        ZoneMap {
            min,
            max,
            null_count: UInt64Array::from_iter(nulls),
            exact: BooleanArray::from(exact),
        }
    }

    fn unknown(&self) -> (ArrayRef, ArrayRef, Vec<bool>) {
        let null = || new_null_array(&DataType::Null, self.rows.len());
        (null(), null(), vec![false; self.rows.len()])
    }

    /// The bounds of each zone, and per zone true if both are values of it.
    fn bounds(&self, column: &Type) -> (ArrayRef, ArrayRef, Vec<bool>) {
        let bounds = self.statistics.iter();
        let bounds =
            bounds.map(|known| known.and_then(|known| Some((known, known.bounds.as_ref()?))));
        let bounds: Vec<_> = bounds.collect();
        let arrays = match (column.kind, &column.data_type) {
            (
                TypeKind::Byte | TypeKind::Short | TypeKind::Int | TypeKind::Long | TypeKind::Date,
                data_type,
            ) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| match *bounds {
                    Bounds::Integers(min, max) => Some(((min?, max?), true)),
                    _ => None,
                });
                // days have 32 bits, but are cast to integers first; values that do not fit are null
                let narrow = |values: Vec<Option<i64>>| {
                    let wide = Int64Array::from(values);
                    match data_type {
                        DataType::Date32 => cast(&cast(&wide, &DataType::Int32)?, data_type),
                        _ => cast(&wide, data_type),
                    }
                };
                zone_bounds.arrays(narrow)
            }
            (TypeKind::Boolean, _) => {
                let zone_bounds = ZoneBounds::of(&bounds, |known, bounds| match *bounds {
                    Bounds::Booleans(set) => {
                        let values = known.values.filter(|&values| set <= values && values > 0)?;
                        Some(((set == values, set > 0), true))
                    }
                    _ => None,
                });
                zone_bounds.arrays(|values| Ok(Arc::new(BooleanArray::from(values)) as _))
            }
            (TypeKind::Float, _) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| {
                    let ((min, max), exact) = doubles(bounds)?;
                    let (low, high) = (min as f32, max as f32);
                    let same = f64::from(low) == min && f64::from(high) == max;
                    same.then_some(((low, high), exact))
                });
                zone_bounds.arrays(|values| Ok(Arc::new(Float32Array::from(values)) as _))
            }
            (TypeKind::Double, _) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| doubles(bounds));
                zone_bounds.arrays(|values| Ok(Arc::new(Float64Array::from(values)) as _))
            }
            (TypeKind::String | TypeKind::Varchar, _) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| match bounds {
                    Bounds::Text(Some((min, min_is_value)), Some((max, max_is_value))) => {
                        let is_whole = !min.contains(REPLACEMENT) && !max.contains(REPLACEMENT);
                        let exact = *min_is_value && *max_is_value;
                        is_whole.then_some(((min.as_str(), max.as_str()), exact))
                    }
                    _ => None,
                });
                zone_bounds.arrays(|values| Ok(Arc::new(StringArray::from(values)) as _))
            }
            (TypeKind::Decimal, &DataType::Decimal128(precision, scale)) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| match bounds {
                    Bounds::Decimals(Some(min), Some(max)) => {
                        Some(((decimal(min, scale)?, decimal(max, scale)?), true))
                    }
                    _ => None,
                });
                zone_bounds.arrays(|values| {
                    let array = Decimal128Array::from(values);
                    Ok(Arc::new(array.with_precision_and_scale(precision, scale)?) as _)
                })
            }
            (
                TypeKind::Timestamp | TypeKind::TimestampInstant,
                DataType::Timestamp(_, timezone),
            ) => {
                let zone_bounds = ZoneBounds::of(&bounds, |_, bounds| match *bounds {
                    Bounds::Timestamps(min, max) => {
                        let min = min?.checked_sub(1)?.checked_mul(1_000_000)?;
                        let max = max?.checked_add(1)?.checked_mul(1_000_000)?;
                        Some(((min, max), false))
                    }
                    _ => None,
                });
                zone_bounds.arrays(|values| {
                    let array = TimestampNanosecondArray::from(values);
                    Ok(Arc::new(array.with_timezone_opt(timezone.clone())) as _)
                })
            }
            // some writers pad text of a fixed length, and others do not
            _ => None,
        };
        arrays.unwrap_or_else(|| self.unknown())
    }
}

/// Bounds of zones, of the same type.
struct ZoneBounds<T> {
    min: Vec<Option<T>>,
    max: Vec<Option<T>>,
    exact: Vec<bool>,
}

impl<T> ZoneBounds<T> {
    fn of<'a>(
        zones: &[Option<(&'a ColumnStatistics, &'a Bounds)>],
        find: impl Fn(&'a ColumnStatistics, &'a Bounds) -> Option<((T, T), bool)>,
    ) -> Self {
        let mut zone_bounds = Self {
            min: Vec::with_capacity(zones.len()),
            max: Vec::with_capacity(zones.len()),
            exact: Vec::with_capacity(zones.len()),
        };
        for zone in zones {
            let bounds = zone.and_then(|(known, bounds)| find(known, bounds));
            zone_bounds
                .exact
                .push(bounds.as_ref().is_some_and(|(_, exact)| *exact));
            let (min, max) = bounds.map(|(bounds, _)| bounds).unzip();
            zone_bounds.min.push(min);
            zone_bounds.max.push(max);
        }
        zone_bounds
    }

    /// Arrays of the column's type; `None` if that has no such values.
    fn arrays(
        self,
        array: impl Fn(Vec<Option<T>>) -> arrow::error::Result<ArrayRef>,
    ) -> Option<(ArrayRef, ArrayRef, Vec<bool>)> {
        Some((array(self.min).ok()?, array(self.max).ok()?, self.exact))
    }
}

/// Bounds that hold regardless of the signs of zeros; true if they are values.
fn doubles(bounds: &Bounds) -> Option<((f64, f64), bool)> {
    let Bounds::Doubles(Some(min), Some(max), Some(sum)) = *bounds else {
        return None;
    };
    if sum.is_nan() || min.is_nan() || max.is_nan() {
        return None;
    }
    let exact = min != 0.0 && max != 0.0;
    let min = if min == 0.0 { -0.0 } else { min };
    let max = if max == 0.0 { 0.0 } else { max };
    Some(((min, max), exact))
}

/// A decimal as an integer in units of `scale` digits, if it is one.
fn decimal(text: &str, scale: i8) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let missing = usize::try_from(scale).ok()?.checked_sub(fraction.len())?;
    let is_number = !whole.is_empty()
        && (whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    let zeros = std::iter::repeat_n(b'0', missing);
    let mut digits = whole.bytes().chain(fraction.bytes()).chain(zeros);
    let value = digits.try_fold(0i128, |value, digit| {
        value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))
    });
    value.map(|value| sign * value)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Date32Type, Float64Type, Int32Type, TimeUnit, TimestampNanosecondType};

    use super::*;

    fn column(kind: TypeKind, data_type: DataType) -> Type {
        Type {
            column: 1,
            kind,
            path: "a".into(),
            data_type,
            children: vec![],
        }
    }

    /// A writer without known faults.
    const WRITER: Writer = Writer {
        number: 1,
        version: 6,
    };

    fn zone_map(kind: TypeKind, data_type: DataType, bounds: Vec<Bounds>) -> ZoneMap {
        zone_map_by(WRITER, kind, data_type, bounds)
    }

    fn zone_map_by(
        writer: Writer,
        kind: TypeKind,
        data_type: DataType,
        bounds: Vec<Bounds>,
    ) -> ZoneMap {
        let statistics: Vec<_> = bounds
            .into_iter()
            .map(|bounds| ColumnStatistics {
                values: Some(7),
                bounds: Some(bounds),
            })
            .collect();
        let mut known: Vec<_> = statistics.iter().map(Some).collect();
        known.push(None);
        let zones = Zones {
            rows: vec![10; known.len()],
            statistics: known,
            writer,
        };
        zones.of_column(&column(kind, data_type))
    }

    #[test]
    fn nulls_are_rows_without_values() {
        let map = zone_map(
            TypeKind::Binary,
            DataType::Binary,
            vec![Bounds::Booleans(1)],
        );
        assert_eq!(map.null_count, UInt64Array::from(vec![Some(3), None]));
        assert!(!map.has_bounds());
        // more values than rows are ignored
        let statistics = ColumnStatistics {
            values: Some(11),
            bounds: None,
        };
        let zones = Zones {
            rows: vec![10],
            statistics: vec![Some(&statistics)],
            writer: WRITER,
        };
        let map = zones.of_column(&column(TypeKind::Long, DataType::Int64));
        assert_eq!(map.null_count.null_count(), 1);
    }

    #[test]
    fn integers_that_do_not_fit_are_unknown() {
        let bounds = vec![
            Bounds::Integers(Some(-5), Some(5)),
            Bounds::Integers(Some(-5), Some(1 << 40)),
        ];
        let map = zone_map(TypeKind::Int, DataType::Int32, bounds.clone());
        let expected = [Some(5), None, None];
        assert!(map.max.as_primitive::<Int32Type>().iter().eq(expected));
        let map = zone_map(TypeKind::Date, DataType::Date32, bounds);
        assert!(map.max.as_primitive::<Date32Type>().iter().eq(expected));
        let map = zone_map(
            TypeKind::Int,
            DataType::Int32,
            vec![Bounds::Integers(None, Some(5))],
        );
        assert_eq!(map.max.null_count(), 2);
    }

    #[test]
    fn floats_may_be_nan_or_zero() {
        let of = |min, max, sum| Bounds::Doubles(Some(min), Some(max), sum);
        let bounds = vec![
            of(0.0, 1.5, Some(9.0)),
            of(1.0, 2.0, Some(f64::NAN)),
            of(1.0, 2.0, None),
            of(-2.0, -0.0, Some(-2.0)),
        ];
        let map = zone_map(TypeKind::Double, DataType::Float64, bounds.clone());
        let min: Vec<_> = map
            .min
            .as_primitive::<Float64Type>()
            .iter()
            .map(|min| min.map(f64::to_bits))
            .collect();
        assert_eq!(
            min,
            [
                Some((-0.0f64).to_bits()),
                None,
                None,
                Some((-2.0f64).to_bits()),
                None
            ]
        );
        let max: Vec<_> = map
            .max
            .as_primitive::<Float64Type>()
            .iter()
            .map(|max| max.map(f64::to_bits))
            .collect();
        assert_eq!(max[3], Some(0.0f64.to_bits()));
        assert_eq!(map.exact.true_count(), 0);
        let exact = zone_map(
            TypeKind::Float,
            DataType::Float32,
            vec![of(1.5, 2.5, Some(4.0)), of(0.1, 2.5, Some(4.0))],
        );
        assert!(exact.exact.value(0) && exact.min.is_valid(0));
        assert!(exact.min.is_null(1));
    }

    #[test]
    fn decimals_are_text() {
        assert_eq!(decimal("12.5", 2), Some(1250));
        assert_eq!(decimal("-0.05", 2), Some(-5));
        assert_eq!(decimal("7", 0), Some(7));
        assert_eq!(decimal("1.500", 1), Some(15));
        for text in [
            "1.55",
            "",
            "-",
            ".5",
            "1e5",
            "1.x",
            "+1",
            "9999999999999999999999999999999999999999",
        ] {
            assert_eq!(decimal(text, 1), None, "{text}");
        }
    }

    #[test]
    fn bounds_of_some_writers_are_wrong() {
        let bounds = || vec![Bounds::Decimals(Some("1.25".into()), Some("1.25".into()))];
        let has_bounds = |number, version, precision| {
            let writer = Writer { number, version };
            let data_type = DataType::Decimal128(precision, 2);
            zone_map_by(writer, TypeKind::Decimal, data_type, bounds()).has_bounds()
        };
        assert!(!has_bounds(JAVA, 0, 38));
        assert!(has_bounds(JAVA, 5, 18));
        assert!(!has_bounds(JAVA, 6, 18));
        assert!(has_bounds(JAVA, 6, 19));
        assert!(has_bounds(JAVA, 7, 18));
        assert!(has_bounds(1, 6, 18));
    }

    #[test]
    fn text_that_was_cut_within_a_character_is_no_bound() {
        let of = |min: &str, max: &str| {
            Bounds::Text(Some((min.into(), false)), Some((max.into(), false)))
        };
        let bounds = vec![
            of("ab", "cd"),
            of("ab\u{FFFD}", "cd"),
            of("ab", "cd\u{FFFD}"),
            of("ab", "c\u{FFFD}\u{FFFD}d"),
        ];
        let map = zone_map(TypeKind::String, DataType::Utf8, bounds);
        let known: Vec<bool> = (0..4).map(|zone| map.max.is_valid(zone)).collect();
        assert_eq!(known, [true, false, false, false]);
        assert!(map.min.is_null(1) && map.exact.true_count() == 0);
    }

    #[test]
    fn timestamps_are_wider_than_their_milliseconds() {
        let data_type = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let bounds = vec![
            Bounds::Timestamps(Some(5), Some(6)),
            Bounds::Timestamps(Some(0), Some(i64::MAX)),
        ];
        let map = zone_map(TypeKind::Timestamp, data_type, bounds);
        assert_eq!(
            map.min.as_primitive::<TimestampNanosecondType>().value(0),
            4_000_000
        );
        assert_eq!(
            map.max.as_primitive::<TimestampNanosecondType>().value(0),
            7_000_000
        );
        assert!(map.max.is_null(1) && map.exact.true_count() == 0);
    }
}
