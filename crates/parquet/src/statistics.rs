//! Zone maps from a file's statistics of row groups and pages. They never claim more than the writer can have known:
//!
//! - Bounds count only in the order that the file declares to be its type's. Without a declaration, bounds of signed
//!   integers do: all writers compare them alike.
//! - Floats have no bounds: writers differ about NaN and the signs of zeros.
//! - 96-bit timestamps have none: their bytes are not in the order of time.
//! - Text may be cut; a bound is a value only if the file says so.
//! - Bounds that are no values of the type, and those that cross, are unknown. So are null counts that the file lacks,
//!   or that exceed the rows.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int64Array, StringArray,
    UInt64Array, make_array, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ColumnChunkMetaData;
use vectile_encodings::ZoneMap;

use crate::schema::{Flat, Stored, TableColumn};

/// Bytes of a decimal of 128 bits.
const DECIMAL_BYTES: usize = 16;

/// Bounds as they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBounds<'a> {
    pub(crate) min: &'a [u8],
    pub(crate) max: &'a [u8],
    /// True if both are values.
    pub(crate) is_exact: bool,
}

/// Statistics of a zone: a row group, or a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone<'a> {
    pub(crate) rows: u64,
    pub(crate) nulls: Option<u64>,
    pub(crate) bounds: Option<StoredBounds<'a>>,
}

impl<'a> Zone<'a> {
    /// The statistics of a flat column in a row group.
    pub(crate) fn of_chunk(flat: &Flat, chunk: &'a ColumnChunkMetaData, rows: u64) -> Self {
        let statistics = chunk.statistics();
        let bounds = statistics.and_then(|statistics| {
            let is_old = statistics.is_min_max_deprecated();
            // signed integers alone are in the old order
            let is_signed = flat.stored == Some(Stored::Integer { is_signed: true });
            let is_ordered = match is_old {
                true => is_signed,
                false => flat.has_order,
            };
            let is_cut = matches!(flat.stored, Some(Stored::Text | Stored::Binary))
                && !(statistics.min_is_exact() && statistics.max_is_exact());
            is_ordered.then_some(StoredBounds {
                min: statistics.min_bytes_opt()?,
                max: statistics.max_bytes_opt()?,
                is_exact: !is_old && !is_cut,
            })
        });
        Self {
            rows,
            nulls: statistics.and_then(|statistics| statistics.null_count_opt()),
            bounds,
        }
    }

    fn unknown(rows: u64) -> Self {
        Self {
            rows,
            nulls: None,
            bounds: None,
        }
    }
}

/// The zone map of a column of row groups: its chunks, by leaf, and their rows.
pub(crate) fn of_row_groups<'a>(
    column: &TableColumn,
    row_groups: impl Iterator<Item = (&'a [ColumnChunkMetaData], u64)>,
) -> ZoneMap {
    let zones = row_groups.map(|(chunks, rows)| {
        let flat = column.flat.as_ref();
        let chunk = flat.and_then(|flat| Some((flat, chunks.get(flat.leaf)?)));
        match chunk {
            Some((flat, chunk)) => Zone::of_chunk(flat, chunk, rows),
            None => Zone::unknown(rows),
        }
    });
    zone_map(column, &zones.collect::<Vec<_>>())
}

/// The most bits by which integers of a chunk differ from the least of them; `None` if it has other values, or no bounds.
pub(crate) fn offset_bits(column: &TableColumn, chunk: &ColumnChunkMetaData) -> Option<u32> {
    let flat = column.flat.as_ref()?;
    if !matches!(flat.stored, Some(Stored::Integer { is_signed: true })) {
        return None;
    }
    let bounds = Zone::of_chunk(flat, chunk, 0).bounds?;
    let min = integer(bounds.min, flat.physical)?;
    let max = integer(bounds.max, flat.physical)?;
    (min <= max).then(|| u64::BITS - max.abs_diff(min).leading_zeros())
}

/// The zone map of zones of a column.
pub(crate) fn zone_map(column: &TableColumn, zones: &[Zone<'_>]) -> ZoneMap {
    let nulls = |zone: &Zone<'_>| zone.nulls.filter(|&nulls| nulls <= zone.rows);
    let null_count = UInt64Array::from_iter(zones.iter().map(nulls));
    let null = || new_null_array(&DataType::Null, zones.len());
    let (min, max, exact) = match bounds(column, zones) {
        Some((min, max, exact)) => (min, max, exact),
        None => (null(), null(), vec![false; zones.len()]),
    };
    ZoneMap {
        min,
        max,
        null_count,
        exact: BooleanArray::from(exact),
    }
}

/// The bounds of each zone, and per zone true if both are values of it; `None` if none is known.
fn bounds(column: &TableColumn, zones: &[Zone<'_>]) -> Option<(ArrayRef, ArrayRef, Vec<bool>)> {
    let flat = column.flat.as_ref()?;
    let data_type = match &column.data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let arrays = match flat.stored? {
        Stored::Boolean => Known::of(zones, boolean)
            .arrays(|values| Some(Arc::new(BooleanArray::from(values)) as _)),
        Stored::Integer { is_signed: true } => {
            Known::of(zones, |bytes| integer(bytes, flat.physical))
                .arrays(|values| integers(Int64Array::from(values), data_type))
        }
        Stored::Integer { is_signed: false } => {
            let unsigned = |bytes: &[u8]| {
                let value = integer(bytes, flat.physical)?;
                Some(match flat.physical {
                    PhysicalType::INT32 => u64::from(value as u32),
                    _ => value as u64,
                })
            };
            Known::of(zones, unsigned)
                .arrays(|values| cast(&UInt64Array::from(values), data_type).ok())
        }
        Stored::Decimal => {
            Known::of(zones, |bytes| decimal(bytes, flat.physical)).arrays(|values| {
                let (precision, scale) = match *data_type {
                    DataType::Decimal32(p, s)
                    | DataType::Decimal64(p, s)
                    | DataType::Decimal128(p, s)
                    | DataType::Decimal256(p, s) => (p, s),
                    _ => return None,
                };
                let array = Decimal128Array::from(values);
                let array = array.with_precision_and_scale(precision, scale).ok()?;
                cast(&array, data_type).ok()
            })
        }
        Stored::Text => Known::of(zones, |bytes| std::str::from_utf8(bytes).ok())
            .arrays(|values| cast(&StringArray::from(values), data_type).ok()),
        Stored::Binary => {
            Known::of(zones, Some).arrays(|values| cast(&BinaryArray::from(values), data_type).ok())
        }
    };
    let (min, max, exact) = arrays?;
    // nulls of a wide type take as much memory as values
    (min.null_count() < zones.len()).then_some((min, max, exact))
}

/// Bounds of zones, of the same type.
struct Known<T> {
    min: Vec<Option<T>>,
    max: Vec<Option<T>>,
    exact: Vec<bool>,
}

impl<T: PartialOrd> Known<T> {
    fn of<'a>(zones: &[Zone<'a>], read: impl Fn(&'a [u8]) -> Option<T>) -> Self {
        let mut known = Self {
            min: Vec::with_capacity(zones.len()),
            max: Vec::with_capacity(zones.len()),
            exact: Vec::with_capacity(zones.len()),
        };
        for zone in zones {
            let bounds = zone.bounds.and_then(|bounds| {
                let (min, max) = (read(bounds.min)?, read(bounds.max)?);
                (min <= max).then_some((min, max, bounds.is_exact))
            });
            let exact = bounds.as_ref().is_some_and(|(_, _, exact)| *exact);
            let (min, max) = bounds.map(|(min, max, _)| (min, max)).unzip();
            known.exact.push(exact);
            known.min.push(min);
            known.max.push(max);
        }
        known
    }

    /// Arrays of the column's type; `None` if that has no such values.
    fn arrays(
        self,
        array: impl Fn(Vec<Option<T>>) -> Option<ArrayRef>,
    ) -> Option<(ArrayRef, ArrayRef, Vec<bool>)> {
        let (min, max) = (array(self.min)?, array(self.max)?);
        // values that the type cannot have are null
        let zones = self.exact.into_iter().enumerate();
        let exact = zones.map(|(zone, exact)| exact && min.is_valid(zone) && max.is_valid(zone));
        let exact = exact.collect();
        Some((min, max, exact))
    }
}

fn boolean(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn integer(bytes: &[u8], physical: PhysicalType) -> Option<i64> {
    match physical {
        PhysicalType::INT32 => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        PhysicalType::INT64 => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// A decimal: an integer, or bytes of which the first is the highest.
fn decimal(bytes: &[u8], physical: PhysicalType) -> Option<i128> {
    if physical != PhysicalType::FIXED_LEN_BYTE_ARRAY {
        return integer(bytes, physical).map(i128::from);
    }
    let sign = (*bytes.first()? as i8) >> 7;
    let mut wide = [sign as u8; DECIMAL_BYTES];
    let start = DECIMAL_BYTES.checked_sub(bytes.len())?;
    wide.get_mut(start..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// Integers as values of a type of that or a smaller width. Those that do not fit are null.
fn integers(values: Int64Array, data_type: &DataType) -> Option<ArrayRef> {
    use DataType::*;
    let values: ArrayRef = match data_type {
        Int8 | Int16 | Int32 => return cast(&values, data_type).ok(),
        Date32 | Time32(_) => cast(&values, &Int32).ok()?,
        _ => Arc::new(values),
    };
    let data = values.to_data().into_builder();
    data.data_type(data_type.clone())
        .build()
        .ok()
        .map(make_array)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Int8Type, TimeUnit, UInt32Type};
    use parquet::data_type::ByteArray;
    use parquet::file::statistics::{Statistics, ValueStatistics};
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    fn column(physical: PhysicalType, stored: Stored, data_type: DataType) -> TableColumn {
        TableColumn {
            name: "a".into(),
            data_type,
            leaves: 0..1,
            flat: Some(Flat {
                leaf: 0,
                physical,
                stored: Some(stored),
                has_order: true,
            }),
            may_be_dictionary: false,
            unsupported: None,
        }
    }

    fn zone<'a>(min: &'a [u8], max: &'a [u8]) -> Zone<'a> {
        Zone {
            rows: 10,
            nulls: Some(0),
            bounds: Some(StoredBounds {
                min,
                max,
                is_exact: true,
            }),
        }
    }

    #[test]
    fn values_that_the_type_cannot_have_are_unknown() {
        let signed = Stored::Integer { is_signed: true };
        let column = column(PhysicalType::INT32, signed, DataType::Int8);
        let (low, high, wide) = (
            (-5i32).to_le_bytes(),
            100i32.to_le_bytes(),
            300i32.to_le_bytes(),
        );
        let zones = [
            zone(&low, &high),
            zone(&low, &wide),
            zone(&high, &low),
            zone(&low[..3], &high),
            Zone::unknown(10),
        ];
        let map = zone_map(&column, &zones);
        let max: Vec<_> = map.max.as_primitive::<Int8Type>().iter().collect();
        assert_eq!(max, [Some(100), None, None, None, None]);
        let min: Vec<_> = map.min.as_primitive::<Int8Type>().iter().collect();
        assert_eq!(min, [Some(-5), Some(-5), None, None, None]);
        let exact: Vec<_> = map.exact.iter().flatten().collect();
        assert_eq!(exact, [true, false, false, false, false]);
        assert_eq!(map.null_count.null_count(), 1);
    }

    #[test]
    fn unsigned_integers_are_above_their_bits() {
        let unsigned = Stored::Integer { is_signed: false };
        let column = column(PhysicalType::INT32, unsigned, DataType::UInt32);
        let (low, high) = (1i32.to_le_bytes(), (-1i32).to_le_bytes());
        let map = zone_map(&column, &[zone(&low, &high), zone(&high, &low)]);
        let max: Vec<_> = map.max.as_primitive::<UInt32Type>().iter().collect();
        assert_eq!(max, [Some(u32::MAX), None]);
    }

    #[test]
    fn times_and_decimals_have_the_types_of_their_columns() {
        let signed = Stored::Integer { is_signed: true };
        let (low, high) = (1i64.to_le_bytes(), 2i64.to_le_bytes());
        for data_type in [
            DataType::Timestamp(TimeUnit::Second, Some("UTC".into())),
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Duration(TimeUnit::Second),
        ] {
            let column = column(PhysicalType::INT64, signed, data_type.clone());
            let map = zone_map(&column, &[zone(&low, &high)]);
            assert!(map.max.data_type() == &data_type && map.has_bounds());
        }
        let column32 = column(PhysicalType::INT32, signed, DataType::Date32);
        let (low, high) = (1i32.to_le_bytes(), 2i32.to_le_bytes());
        let map = zone_map(&column32, &[zone(&low, &high)]);
        assert_eq!(map.max.data_type(), &DataType::Date32);
        for data_type in [
            DataType::Decimal32(5, 2),
            DataType::Decimal128(5, 2),
            DataType::Decimal256(5, 2),
        ] {
            let fixed = PhysicalType::FIXED_LEN_BYTE_ARRAY;
            let column = column(fixed, Stored::Decimal, data_type.clone());
            let map = zone_map(&column, &[zone(&[0xFF, 0x38], &[0x01, 0x00])]);
            let min = cast(&map.min, &DataType::Utf8).unwrap();
            assert_eq!(min.as_string::<i32>().value(0), "-2.00", "{data_type}");
        }
        assert_eq!(decimal(&[1; 17], PhysicalType::FIXED_LEN_BYTE_ARRAY), None);
        assert_eq!(decimal(&[], PhysicalType::FIXED_LEN_BYTE_ARRAY), None);
    }

    #[test]
    fn null_counts_above_the_rows_are_unknown() {
        let column = column(PhysicalType::BYTE_ARRAY, Stored::Text, DataType::Utf8View);
        let nulls = |nulls| Zone {
            rows: 10,
            nulls,
            bounds: None,
        };
        let map = zone_map(&column, &[nulls(Some(10)), nulls(Some(11)), nulls(None)]);
        let counts: Vec<_> = map.null_count.iter().collect();
        assert_eq!(counts, [Some(10), None, None]);
        assert!(!map.has_bounds() && map.exact.true_count() == 0);
        assert_eq!(map.min.data_type(), &DataType::Null);
        let map = zone_map(&column, &[zone(b"a", b"b"), zone(b"a", b"\xFF")]);
        assert!(map.max.is_valid(0) && map.max.is_null(1));
    }

    /// The bounds that count of a chunk of integers or text with these statistics: least, largest, exact.
    fn counted(flat: &Flat, statistics: Statistics) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        let schema = "message m { required int32 n; required binary t (UTF8); }";
        let schema = SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap()));
        let leaf = usize::from(flat.physical == PhysicalType::BYTE_ARRAY);
        let chunk = ColumnChunkMetaData::builder(schema.column(leaf));
        let chunk = chunk.set_statistics(statistics).build().unwrap();
        let bounds = Zone::of_chunk(flat, &chunk, 10).bounds?;
        Some((bounds.min.to_vec(), bounds.max.to_vec(), bounds.is_exact))
    }

    #[test]
    fn bounds_count_in_an_order_that_is_known() {
        let flat = |stored, has_order| Flat {
            leaf: 0,
            physical: match stored {
                Stored::Text => PhysicalType::BYTE_ARRAY,
                _ => PhysicalType::INT32,
            },
            stored: Some(stored),
            has_order,
        };
        let integers = |is_old| Statistics::int32(Some(1), Some(9), None, Some(0), is_old);
        let (signed, unsigned) = (
            Stored::Integer { is_signed: true },
            Stored::Integer { is_signed: false },
        );
        let exact = |flat: Flat, is_old| counted(&flat, integers(is_old)).map(|known| known.2);
        assert_eq!(exact(flat(signed, true), false), Some(true));
        assert_eq!(exact(flat(signed, false), true), Some(false));
        assert_eq!(exact(flat(signed, false), false), None);
        assert_eq!(exact(flat(unsigned, true), false), Some(true));
        assert_eq!(exact(flat(unsigned, true), true), None);
        assert_eq!(exact(flat(Stored::Decimal, true), true), None);

        let text = |is_old, is_exact| {
            let (min, max) = (ByteArray::from("a"), ByteArray::from("c"));
            let statistics = ValueStatistics::new(Some(min), Some(max), None, None, is_old);
            let statistics = statistics
                .with_min_is_exact(true)
                .with_max_is_exact(is_exact);
            Statistics::ByteArray(statistics)
        };
        let known = |has_order, statistics| counted(&flat(Stored::Text, has_order), statistics);
        let bounds = |is_exact| Some((b"a".to_vec(), b"c".to_vec(), is_exact));
        assert_eq!(known(true, text(false, true)), bounds(true));
        assert_eq!(known(true, text(false, false)), bounds(false));
        assert_eq!(known(false, text(false, true)), None);
        assert_eq!(known(true, text(true, true)), None);
        let none = Statistics::int32(Some(1), None, None, None, false);
        assert_eq!(counted(&flat(signed, true), none), None);
    }
}
