//! Zone maps: the smallest and the largest value and the number of nulls of each vector.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, StructArray, UInt64Array, new_null_array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::{and, cast, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, i256};

use crate::byte_strings::{self, BytesBuilder};
use crate::class::{self, Class, Native, match_class};
use crate::codecs::codec::Child;
use crate::column::Column;
use crate::encoder::encode_node;
use crate::error::{Result, ensure};
use crate::nulls;
use crate::offsets;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::{FORMAT_VERSION, VECTOR_LEN};

/// The longest bound of a string, in bytes. Longer ones are truncated, maxima upwards.
const MAX_BOUND_BYTES: usize = 32;

/// Bounds of the values of consecutive zones: the vectors of a column chunk, or row groups.
#[derive(Clone, Debug)]
pub struct ZoneMap {
    /// A lower bound of the values of each zone; null if all rows are null, no bound is known, or the type has no
    /// order. Its type is the column's, that of the values for a dictionary, and for a struct one of bounds of its
    /// fields. See [`ZoneMap::has_bounds`] and [`ZoneMap::field`].
    pub min: ArrayRef,
    /// An upper bound of the values of each zone; null as `min`.
    pub max: ArrayRef,
    /// Number of nulls in each zone.
    pub null_count: UInt64Array,
    /// True if `min` and `max` are themselves values of the zone (strings may be truncated).
    pub exact: BooleanArray,
}

/// Flags of optional parts of a zone map: null counts, if some are not 0, and exactness, if some bounds are not exact.
const HAS_NULLS: u8 = 1;
const NOT_EXACT: u8 = 2;

/// The most bytes of bounds that are null.
const MAX_NULL_BYTES: u64 = 1 << 20;

/// The rows of the smallest and the largest value of a zone.
type Extremes = Option<(u32, u32)>;

impl ZoneMap {
    /// Computes the bounds of each vector of `array`.
    pub fn of(array: &dyn Array) -> Result<Self> {
        let zones: Vec<(usize, usize)> = (0..array.len())
            .step_by(VECTOR_LEN)
            .map(|start| (start, VECTOR_LEN.min(array.len() - start)))
            .collect();
        Self::of_zones(array, &zones)
    }

    /// Counts the nulls of each vector of `array`, and leaves the bounds unknown.
    pub fn of_nulls(array: &dyn Array) -> Self {
        let nulls = array.logical_nulls();
        let null_count: UInt64Array = (0..array.len())
            .step_by(VECTOR_LEN)
            .map(|start| {
                let rows = VECTOR_LEN.min(array.len() - start);
                let nulls = nulls.as_ref().map(|nulls| nulls.slice(start, rows));
                nulls.map_or(0, |nulls| nulls.null_count() as u64)
            })
            .collect();
        let zones = null_count.len();
        let unknown = new_null_array(&bound_type(array.data_type()), zones);
        Self {
            min: Arc::clone(&unknown),
            max: unknown,
            null_count,
            exact: BooleanArray::from(vec![false; zones]),
        }
    }

    fn of_zones(array: &dyn Array, zones: &[(usize, usize)]) -> Result<Self> {
        let nulls = array.logical_nulls();
        let null_count = zones
            .iter()
            .map(|(start, rows)| {
                nulls
                    .as_ref()
                    .map_or(0, |n| n.slice(*start, *rows).null_count() as u64)
            })
            .collect();
        let data_type = array.data_type();
        match bound_type(data_type) {
            DataType::Struct(fields) if is_bounded(data_type) => {
                return Self::of_fields(array, &fields, zones, null_count);
            }
            values if &values != data_type => {
                return Self::of_zones(&cast(array, &values)?, zones);
            }
            _ => (),
        }
        if byte_strings::is_bytes(data_type) {
            let truncates = !matches!(data_type, DataType::FixedSizeBinary(_));
            let (mut low, mut high) = (StringBounds::default(), StringBounds::default());
            for (start, rows) in zones {
                let zone = array.slice(*start, *rows);
                let values = byte_strings::values(&zone).unwrap_or_default();
                let extremes = byte_extremes(&values, zone.nulls());
                low.push(extremes.map(|(min, _)| min), truncates, |value| {
                    truncate(value, byte_strings::is_text(data_type), false)
                });
                high.push(extremes.map(|(_, max)| max), truncates, |value| {
                    truncate(value, byte_strings::is_text(data_type), true)
                });
            }
            let exact = low.exact.iter().zip(&high.exact);
            let exact = exact.map(|(a, b)| Some(*a && *b)).collect();
            return Ok(Self {
                min: low.finish(data_type)?,
                max: high.finish(data_type)?,
                null_count,
                exact,
            });
        }
        let data = array.to_data();
        let extremes = match (Class::of(data_type), data_type) {
            (Some(class), _) => match_class!(class,
            bool => {
                let values: Vec<u8> = class::bits(array).iter().map(u8::from).collect();
                extremes(&values, array.nulls(), zones)
            },
            N => {
                word_extremes(class::natives::<N>(&data), array.nulls(), zones)
            }),
            (None, DataType::Decimal256(_, _)) => {
                extremes(class::natives::<i256>(&data), array.nulls(), zones)
            }
            _ => vec![None; zones.len()],
        };
        let pick = |rows: Vec<Option<u32>>| -> Result<ArrayRef> {
            match Class::of(data_type).is_some() || matches!(data_type, DataType::Decimal256(_, _))
            {
                true => Ok(take(array, &arrow::array::UInt32Array::from(rows), None)?),
                false => Ok(new_null_array(data_type, zones.len())),
            }
        };
        Ok(Self {
            min: pick(extremes.iter().map(|e| e.map(|e| e.0)).collect())?,
            max: pick(extremes.iter().map(|e| e.map(|e| e.1)).collect())?,
            null_count,
            exact: BooleanArray::from(vec![true; zones.len()]),
        })
    }

    /// The zone map of a struct: of its fields where the struct is not null.
    fn of_fields(
        array: &dyn Array,
        fields: &Fields,
        zones: &[(usize, usize)],
        null_count: UInt64Array,
    ) -> Result<Self> {
        let mut exact = BooleanArray::from(vec![true; zones.len()]);
        let (mut min, mut max) = (vec![], vec![]);
        for (field, child) in fields.iter().zip(array.as_struct().columns()) {
            let bounds = match field.data_type() {
                DataType::Null => Self::unknown(zones.len()),
                _ => Self::of_zones(&nulls::of_field(child, array.nulls())?, zones)?,
            };
            exact = and(&exact, &bounds.exact)?;
            min.push(bounds.min);
            max.push(bounds.max);
        }
        let of = |bounds| StructArray::try_new(fields.clone(), bounds, None);
        Ok(Self {
            min: Arc::new(of(min)?),
            max: Arc::new(of(max)?),
            null_count,
            exact,
        })
    }

    /// No bounds and no null counts.
    fn unknown(zones: usize) -> Self {
        Self {
            min: new_null_array(&DataType::Null, zones),
            max: new_null_array(&DataType::Null, zones),
            null_count: UInt64Array::new_null(zones),
            exact: BooleanArray::from(vec![true; zones]),
        }
    }

    /// The bounds of a field of a struct at `path`: a field index, an index within that field, and so on. Its null
    /// counts are not known.
    pub fn field(&self, path: &[usize]) -> Option<Self> {
        let field = |bounds: &ArrayRef| {
            path.iter()
                .try_fold(ArrayRef::clone(bounds), |bounds, &field| {
                    let fields = bounds.as_struct_opt()?;
                    let is_known = fields.null_count() == 0;
                    is_known.then(|| fields.columns().get(field).cloned())?
                })
        };
        Some(Self {
            min: field(&self.min)?,
            max: field(&self.max)?,
            null_count: UInt64Array::new_null(self.len()),
            exact: self.exact.clone(),
        })
    }

    /// The bounds of `len` zones from `offset` on.
    ///
    /// # Panics
    ///
    /// If there are not that many.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        Self {
            min: self.min.slice(offset, len),
            max: self.max.slice(offset, len),
            null_count: self.null_count.slice(offset, len),
            exact: self.exact.slice(offset, len),
        }
    }

    /// Returns true if the bounds are values of the column. Those of a struct are not: the minima of its fields are
    /// from different rows. If none is known and the type is wide they are of type `Null`: nulls of a wide type take as
    /// much memory as values.
    pub fn has_bounds(&self) -> bool {
        let is_value =
            |bounds: &ArrayRef| !matches!(bounds.data_type(), DataType::Null | DataType::Struct(_));
        is_value(&self.min) && is_value(&self.max)
    }

    /// Number of zones.
    pub fn len(&self) -> usize {
        self.null_count.len()
    }

    /// Returns true if there are no zones.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bounds of all zones together, as one zone.
    pub fn merge(&self) -> Result<Self> {
        let exact = self.exact.false_count() == 0;
        Ok(Self {
            min: merged(&self.min, &self.exact, |zones| zones.min)?,
            max: merged(&self.max, &self.exact, |zones| zones.max)?,
            null_count: UInt64Array::from(vec![self.null_count.values().iter().sum::<u64>()]),
            exact: BooleanArray::from(vec![exact]),
        })
    }

    /// Serializes the zone map.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = ChunkWriter::default();
        for array in [&self.min, &self.max] {
            encode_node(array, None, None, &mut out)?;
        }
        let has_nulls = self.null_count.values().iter().any(|nulls| *nulls > 0);
        let all_exact = self.exact.false_count() == 0;
        out.u8(match (has_nulls, all_exact) {
            (false, true) => 0,
            (true, true) => HAS_NULLS,
            (false, false) => NOT_EXACT,
            (true, false) => HAS_NULLS | NOT_EXACT,
        });
        if has_nulls {
            encode_node(&self.null_count, None, None, &mut out)?;
        }
        if !all_exact {
            encode_node(&self.exact, None, None, &mut out)?;
        }
        Ok(out.finish())
    }

    /// Parses the bounds of `zones` zones of a column of `data_type`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Corrupt`] if the bytes are not a zone map.
    pub fn parse(bytes: Buffer, data_type: &DataType, zones: usize) -> Result<Self> {
        Self::parse_version(bytes, data_type, zones, FORMAT_VERSION)
    }

    /// As [`parse`](Self::parse), for bytes from a file of another format version.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_version(
        bytes: Buffer,
        data_type: &DataType,
        zones: usize,
        version: u32,
    ) -> Result<Self> {
        let mut reader = ChunkReader::new(&bytes, version)?;
        let array = |reader: &mut ChunkReader, data_type: &DataType| -> Result<ArrayRef> {
            let column = <Column as Child>::parse(reader, data_type, zones)?;
            match column.is_all_null() && column.most_bytes(zones) > MAX_NULL_BYTES {
                true => Ok(new_null_array(&DataType::Null, zones)),
                false => column.decode(0..zones),
            }
        };
        let bounds = bound_type(data_type);
        let min = array(&mut reader, &bounds)?;
        let max = array(&mut reader, &bounds)?;
        let parts = match reader.is_version_1() {
            true => HAS_NULLS | NOT_EXACT,
            false => reader.u8()?,
        };
        ensure(parts <= HAS_NULLS | NOT_EXACT, "zone map", || {
            format!("parts {parts:#x}")
        })?;
        let null_count: ArrayRef = match parts & HAS_NULLS {
            0 => Arc::new(UInt64Array::from(vec![0; zones])),
            _ => array(&mut reader, &DataType::UInt64)?,
        };
        let exact: ArrayRef = match parts & NOT_EXACT {
            0 => Arc::new(BooleanArray::from(vec![true; zones])),
            _ => array(&mut reader, &DataType::Boolean)?,
        };
        reader.finish()?;
        let known = null_count.null_count() + exact.null_count() == 0;
        ensure(known, "zone map", || "a null count that is null".into())?;
        Ok(Self {
            min,
            max,
            null_count: null_count.to_data().into(),
            exact: exact.to_data().into(),
        })
    }

    /// Bytes of memory held.
    pub fn memory_size(&self) -> usize {
        let arrays: [&dyn Array; 4] = [&self.min, &self.max, &self.null_count, &self.exact];
        arrays
            .iter()
            .map(|array| array.get_array_memory_size())
            .sum()
    }
}

/// Returns true if values of the type, or of a field of it, have an order and so bounds.
fn is_bounded(data_type: &DataType) -> bool {
    match data_type {
        // not of dictionaries in dictionaries
        DataType::Dictionary(_, values) => {
            !values.is_nested()
                && !matches!(**values, DataType::Dictionary(_, _))
                && is_bounded(values)
        }
        DataType::Struct(fields) => fields.iter().any(|field| is_bounded(field.data_type())),
        DataType::Decimal256(_, _) => true,
        other => Class::of(other).is_some() || byte_strings::is_bytes(other),
    }
}

/// The type of the bounds of a column of `data_type`. Struct fields without bounds take no space.
fn bound_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) if is_bounded(data_type) => values.as_ref().clone(),
        DataType::Struct(fields) if is_bounded(data_type) => {
            let of_field = |field: &FieldRef| {
                let bounds = match is_bounded(field.data_type()) {
                    true => bound_type(field.data_type()),
                    false => DataType::Null,
                };
                Field::new(field.name(), bounds, true)
            };
            DataType::Struct(fields.iter().map(of_field).collect())
        }
        other => other.clone(),
    }
}

/// The minimum or maximum of `bounds`, as `pick` decides, in one zone. Null if a zone's bound is unknown: it is null,
/// but not because the zone has no value.
fn merged(
    bounds: &ArrayRef,
    exact: &BooleanArray,
    pick: fn(ZoneMap) -> ArrayRef,
) -> Result<ArrayRef> {
    if let Some(fields) = bounds.as_struct_opt()
        && fields.null_count() == 0
    {
        let columns = fields.columns().iter();
        let columns = columns.map(|bounds| merged(bounds, exact, pick));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let merged = StructArray::try_new(fields.fields().clone(), columns, None)?;
        return Ok(Arc::new(merged));
    }
    let is_known = |zone| exact.value(zone) || bounds.is_valid(zone);
    match (0..bounds.len()).all(is_known) && !bounds.data_type().is_nested() {
        true => Ok(pick(ZoneMap::of_zones(bounds, &[(0, bounds.len())])?)),
        false => Ok(new_null_array(bounds.data_type(), 1)),
    }
}

/// As [`extremes`], by the order of words.
fn word_extremes<N: Native>(
    values: &[N],
    nulls: Option<&NullBuffer>,
    zones: &[(usize, usize)],
) -> Vec<Extremes> {
    if nulls.is_some() {
        let words: Vec<_> = values.iter().map(|value| value.to_word()).collect();
        return extremes(&words, nulls, zones);
    }
    let of_zone = |(start, rows): &(usize, usize)| {
        let zone = values.get(*start..start + rows)?;
        let (min, max) = offsets::extremes(zone)?;
        let row = |word| zone.iter().position(|value| value.to_word() == word);
        Some(((start + row(min)?) as u32, (start + row(max)?) as u32))
    };
    zones.iter().map(of_zone).collect()
}

/// The smallest and the largest of the valid values, comparing the first eight bytes before all of them.
fn byte_extremes<'a>(
    values: &[&'a [u8]],
    nulls: Option<&NullBuffer>,
) -> Option<(&'a [u8], &'a [u8])> {
    const BYTES: usize = size_of::<u64>();
    // equal prefixes are common, and equal values need no comparison of their bytes
    let is_less = |a: (u64, &[u8]), b: (u64, &[u8])| match a.0.cmp(&b.0) {
        Ordering::Equal if a.1.len().max(b.1.len()) <= BYTES => a.1.len() < b.1.len(),
        Ordering::Equal => a.1 < b.1,
        order => order == Ordering::Less,
    };
    let valid = (0..values.len()).filter(|row| nulls.is_none_or(|n| n.is_valid(*row)));
    let mut keyed = valid.map(|row| (byte_strings::prefix(values[row]), values[row]));
    let first = keyed.next()?;
    let (mut min, mut max) = (first, first);
    for value in keyed {
        if is_less(value, min) {
            min = value;
        } else if is_less(max, value) {
            max = value;
        }
    }
    Some((min.1, max.1))
}

/// The extremes of each zone among its valid rows.
fn extremes<T: PartialOrd>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    zones: &[(usize, usize)],
) -> Vec<Extremes> {
    zones
        .iter()
        .map(|(start, rows)| {
            let mut extremes_so_far: Extremes = None;
            for row in *start..start + rows {
                if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    continue;
                }
                let value = &values[row];
                extremes_so_far = Some(match extremes_so_far {
                    None => (row as u32, row as u32),
                    Some((min, _)) if *value < values[min as usize] => {
                        (row as u32, extremes_so_far.map_or(row as u32, |f| f.1))
                    }
                    Some((min, max)) if *value > values[max as usize] => (min, row as u32),
                    Some(same) => same,
                });
            }
            extremes_so_far
        })
        .collect()
}

/// Bounds of zones of strings.
#[derive(Default)]
struct StringBounds {
    values: BytesBuilder,
    valid: Vec<bool>,
    /// True for each bound that is the value itself.
    exact: Vec<bool>,
}

impl StringBounds {
    /// Adds a bound: `value`, or the result of `truncate` if it is long.
    fn push(
        &mut self,
        value: Option<&[u8]>,
        truncates: bool,
        truncate: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) {
        let is_long = truncates && value.is_some_and(|value| value.len() > MAX_BOUND_BYTES);
        let bound = match value {
            Some(value) if is_long => truncate(value),
            other => other.map(<[u8]>::to_vec),
        };
        self.values.push(bound.as_deref().unwrap_or_default());
        self.valid.push(bound.is_some());
        self.exact.push(!is_long);
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef> {
        self.values
            .finish(data_type, Some(NullBuffer::from(self.valid)))
    }
}

/// A prefix of `value` that is not above it; or, for an upper bound, the prefix incremented so that it is above every
/// string that starts with it. `None` if no such bound exists.
fn truncate(value: &[u8], is_text: bool, upper: bool) -> Option<Vec<u8>> {
    let mut end = MAX_BOUND_BYTES;
    if is_text {
        while value[end] & 0xC0 == 0x80 {
            end -= 1;
        }
    }
    let prefix = &value[..end];
    if !upper {
        return Some(prefix.to_vec());
    }
    if !is_text {
        let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
        let mut bound = prefix[..=last].to_vec();
        bound[last] += 1;
        return Some(bound);
    }
    let text = str::from_utf8(prefix).ok()?;
    text.char_indices().rev().find_map(|(at, c)| {
        let next = match c {
            '\u{D7FF}' => '\u{E000}',
            c => char::from_u32(u32::from(c) + 1)?,
        };
        let mut bound = text[..at].to_owned();
        bound.push(next);
        Some(bound.into_bytes())
    })
}
