//! Nested types as the columns they consist of: `plain` for lists, structs, maps, unions, dictionaries and run-end
//! encoded arrays.
//!
//! ```text
//! struct               each child column, as many rows as the struct, and null where it is
//! list, map (any kind) u64 rows of the child; the length of each list as an integer sequence;
//!                      the child column
//! dictionary, runs     the values, a row each, as a column of the value type
//! union                Int8 column of type ids; (dense) Int32 column of offsets; for each child
//!                      u64 rows and the column
//! ```
//!
//! Children choose their own encodings.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBufferBuilder, FixedSizeListArray, Int8Array, Int32Array,
    LargeListArray, ListArray, MapArray, StructArray, UInt64Array, UnionArray, make_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options, filter, take};
use arrow::datatypes::{DataType, Field, UnionMode};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use crate::byte_strings;
use crate::codecs::codec::{Child, Children, Codec};
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::{Error, Result, corrupt, ensure};
use crate::nulls::{self, with_some_value};
use crate::selection::Selection;
use crate::size;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::{MAX_ROWS, VECTOR_LEN};

const PART: &str = "nested";

/// The type that a dictionary, run-end encoded or list-view type is stored as.
fn stored_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::ListView(item) => DataType::List(Arc::clone(item)),
        DataType::LargeListView(item) => DataType::LargeList(Arc::clone(item)),
        _ => return None,
    })
}

/// Converts stored values back to `data_type`.
pub(crate) fn unstored(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::Dictionary(keys, of) if !is_packed_by_arrow(of) => pack(values, keys, data_type),
        _ => Ok(cast(values, data_type)?),
    }
}

/// Returns true if arrow-rs creates dictionaries of the type without duplicate values.
fn is_packed_by_arrow(values: &DataType) -> bool {
    use DataType::*;
    byte_strings::is_bytes(values)
        || values.is_numeric()
        || matches!(
            values,
            Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(_, _)
        )
}

/// Builds a dictionary of `data_type` from these values, without duplicates if rows of the type can be compared.
fn pack(values: &ArrayRef, keys: &DataType, data_type: &DataType) -> Result<ArrayRef> {
    let mut rows = vec![];
    let fields = vec![SortField::new(values.data_type().clone())];
    let numbers = match RowConverter::supports_fields(&fields) {
        true => {
            let converted = RowConverter::new(fields)?.convert_columns(&[Arc::clone(values)])?;
            let mut numbers = HashMap::new();
            let number = |row| {
                let next = rows.len() as u64;
                *numbers
                    .entry(converted.row(row).owned())
                    .or_insert_with(|| {
                        rows.push(row as u64);
                        next
                    })
            };
            (0..values.len()).map(number).collect()
        }
        false => {
            rows.extend(0..values.len() as u64);
            rows.clone()
        }
    };
    let numbers = UInt64Array::new(numbers.into(), values.logical_nulls());
    let exactly = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let numbers = cast_with_options(&numbers, keys, &exactly)?;
    let entries = take(values, &UInt64Array::from(rows), None)?;
    let dictionary = numbers.to_data().into_builder();
    let dictionary = dictionary.data_type(data_type.clone());
    let dictionary = dictionary.add_child_data(entries.to_data()).build()?;
    Ok(make_array(dictionary))
}

/// The type of the field of a struct at `path`: a field index, an index within that field, and so on.
pub(crate) fn type_of_field<'a>(data_type: &'a DataType, path: &[usize]) -> Option<&'a DataType> {
    path.iter()
        .try_fold(data_type, |data_type, &field| match data_type {
            DataType::Struct(fields) => fields.get(field).map(|field| field.data_type()),
            _ => None,
        })
}

/// The field of the child of a list-like type.
fn child_field(data_type: &DataType) -> Option<&Arc<Field>> {
    match data_type {
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::FixedSizeList(f, _)
        | DataType::Map(f, _) => Some(f),
        _ => None,
    }
}

/// Appends the source's children; `false` if its type has none.
pub(crate) fn encode(source: &Source, children: Children, out: &mut ChunkWriter) -> Result<bool> {
    match source.array.data_type() {
        DataType::Boolean => Ok(false),
        _ => encode_array(source.array, children, out).map(|()| true),
    }
}

fn encode_array(array: &dyn Array, children: Children, out: &mut ChunkWriter) -> Result<()> {
    if let Some(stored) = stored_type(array.data_type()) {
        return children.append(&cast(array, &stored)?, out);
    }
    let rows = array.len();
    match array.data_type() {
        DataType::Struct(_) => {
            for child in array.as_struct().columns() {
                children.append(&nulls::of_field(child, array.nulls())?, out)?;
            }
            Ok(())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            encode_list(
                list.values(),
                list.offsets().iter().map(|o| *o as usize),
                children,
                out,
            )
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            encode_list(
                list.values(),
                list.offsets().iter().map(|o| *o as usize),
                children,
                out,
            )
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            encode_list(
                &entries,
                map.offsets().iter().map(|o| *o as usize),
                children,
                out,
            )
        }
        DataType::FixedSizeList(_, size) => {
            let size = *size as usize;
            let list = array.as_fixed_size_list();
            encode_list(
                list.values(),
                (0..=rows).map(|row| row * size),
                children,
                out,
            )
        }
        DataType::Union(_, _) => encode_union(array.as_union(), children, out),
        other => Err(Error::Unsupported(format!("the Arrow type {other}"))),
    }
}

fn encode_list(
    values: &ArrayRef,
    offsets: impl Iterator<Item = usize>,
    children: Children,
    out: &mut ChunkWriter,
) -> Result<()> {
    let offsets: Vec<usize> = offsets.collect();
    let (first, last) = (
        offsets.first().copied().unwrap_or(0),
        offsets.last().copied().unwrap_or(0),
    );
    let lengths: Vec<u64> = offsets
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as u64)
        .collect();
    out.u64((last - first) as u64);
    out.append(sequence::encode_lengths(&lengths));
    children.append(&values.slice(first, last - first), out)
}

fn encode_union(union: &UnionArray, children: Children, out: &mut ChunkWriter) -> Result<()> {
    let DataType::Union(fields, _) = union.data_type() else {
        return Err(Error::Unsupported("a union without fields".into()));
    };
    children.append(&Int8Array::new(union.type_ids().clone(), None), out)?;
    if let Some(offsets) = union.offsets() {
        children.append(&Int32Array::new(offsets.clone(), None), out)?;
    }
    for (id, _) in fields.iter() {
        let child = union.child(id);
        out.u64(child.len() as u64);
        children.append(child, out)?;
    }
    Ok(())
}

/// A parsed column.
#[derive(Clone, Debug)]
pub(crate) enum Nested<C> {
    Struct(Vec<C>),
    List(Box<List<C>>),
    /// Stored as another type.
    Stored(C),
    Union {
        ids: C,
        offsets: Option<C>,
        children: Vec<C>,
    },
}

/// Invariant: `starts` ascends and has the child row at which each vector begins, and the end.
#[derive(Clone, Debug)]
pub(crate) struct List<C> {
    lengths: Sequence,
    starts: Vec<u64>,
    child: C,
}

impl<C: Child> Nested<C> {
    pub fn parse(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self> {
        reader.nested(|reader| {
            if let Some(stored) = stored_type(data_type) {
                return Ok(Self::Stored(C::parse(reader, &stored, len)?));
            }
            if let Some(field) = child_field(data_type) {
                let list = List::parse(reader, field.data_type(), len)?;
                return Ok(Self::List(Box::new(list)));
            }
            match data_type {
                DataType::Struct(fields) => fields
                    .iter()
                    .map(|field| C::parse(reader, field.data_type(), len))
                    .collect::<Result<_>>()
                    .map(Self::Struct),
                DataType::Union(fields, mode) => {
                    let ids = C::parse(reader, &DataType::Int8, len)?;
                    let offsets = match mode {
                        UnionMode::Dense => Some(C::parse(reader, &DataType::Int32, len)?),
                        UnionMode::Sparse => None,
                    };
                    let mut children = Vec::with_capacity(fields.len());
                    for (_, field) in fields.iter() {
                        let rows = reader.count(MAX_ROWS, PART)?;
                        children.push(C::parse(reader, field.data_type(), rows)?);
                    }
                    Ok(Self::Union {
                        ids,
                        offsets,
                        children,
                    })
                }
                other => Err(Error::Unsupported(format!("the Arrow type {other}"))),
            }
        })
    }

    /// Bytes of `rows` rows without their children.
    fn own_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        let rows = match self {
            // any part of a dense union is decoded by decoding all of it
            Self::Union { ids, .. } => ids.rows(),
            _ => rows,
        } as u64;
        match data_type {
            DataType::Struct(_) | DataType::FixedSizeList(_, _) => rows.div_ceil(8),
            DataType::Union(_, _) => rows.saturating_mul(5),
            other => size::fixed_bytes(other, rows),
        }
    }
}

impl<C: Child> Codec for Nested<C> {
    fn encoding(&self) -> Encoding {
        Encoding::Plain
    }

    fn describe(&self) -> String {
        let all = |columns: &[C]| {
            columns
                .iter()
                .map(C::describe)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::Struct(children) => format!("plain({})", all(children)),
            Self::List(list) => format!(
                "plain({}, {})",
                list.lengths.describe(),
                list.child.describe()
            ),
            Self::Stored(column) => column.describe(),
            Self::Union { children, .. } => format!("plain({})", all(children)),
        }
    }

    fn most_bytes(&self, data_type: &DataType, rows: usize) -> u64 {
        let all = |column: &C| column.most_bytes(column.rows());
        let children = match self {
            Self::Stored(column) => column.most_bytes(rows),
            Self::Struct(children) => sum(children.iter().map(|child| child.most_bytes(rows))),
            Self::List(list) => all(&list.child),
            Self::Union { children, .. } => sum(children.iter().map(all)),
        };
        self.own_bytes(data_type, rows).saturating_add(children)
    }

    fn decoded_bytes(
        &self,
        data_type: &DataType,
        selection: &Selection,
        limit: u64,
    ) -> Result<u64> {
        let own = self.own_bytes(data_type, selection.count());
        if own > limit {
            // computing that many lengths takes memory too
            return Ok(own);
        }
        let children = match self {
            Self::Stored(column) => column.decoded_bytes(selection)?,
            Self::Struct(children) => {
                try_sum(children.iter().map(|child| child.decoded_bytes(selection)))?
            }
            Self::List(list) => list
                .child
                .decoded_bytes(&list.rows_of(selection, |_| ())?)?,
            Self::Union { children, .. } => {
                let all = |child: &C| child.decoded_bytes(&Selection::all(0, child.rows()));
                try_sum(children.iter().map(all))?
            }
        };
        Ok(own.saturating_add(children))
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        match self {
            Self::Stored(column) => {
                let stored = column.select(selection)?;
                Ok(with_some_value(unstored(&stored, data_type)?))
            }
            Self::Struct(children) => {
                let DataType::Struct(fields) = data_type else {
                    return Err(corrupt(PART, "a struct of another type"));
                };
                let arrays = children
                    .iter()
                    .map(|child| nulls::of_field(&child.select(selection)?, nulls.as_ref()))
                    .collect::<Result<Vec<_>>>()?;
                let rows = selection.count();
                Ok(Arc::new(StructArray::try_new_with_length(
                    fields.clone(),
                    arrays,
                    nulls,
                    rows,
                )?))
            }
            Self::List(list) => list.select(data_type, selection, nulls),
            Self::Union {
                ids,
                offsets,
                children,
            } => select_union(data_type, ids, offsets.as_ref(), children, selection),
        }
    }

    /// Dictionaries and runs keep their nulls with their values, unions have none.
    fn has_own_nulls(&self) -> bool {
        true
    }
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn try_sum(mut bytes: impl Iterator<Item = Result<u64>>) -> Result<u64> {
    bytes.try_fold(0, |sum: u64, bytes| Ok(sum.saturating_add(bytes?)))
}

fn select_union<C: Child>(
    data_type: &DataType,
    ids: &C,
    offsets: Option<&C>,
    children: &[C],
    selection: &Selection,
) -> Result<ArrayRef> {
    let DataType::Union(fields, _) = data_type else {
        return Err(corrupt(PART, "a union of another type"));
    };
    // rows of a dense union refer to any rows of its children: build it whole, then filter
    let type_ids = ids.decode_all()?;
    let offsets = match offsets {
        Some(column) => Some(column.decode_all()?),
        None => None,
    };
    let arrays = children
        .iter()
        .map(|child| child.decode_all())
        .collect::<Result<_>>()?;
    let union = UnionArray::try_new(
        fields.clone(),
        type_ids
            .as_primitive::<arrow::datatypes::Int8Type>()
            .values()
            .clone(),
        offsets.map(|o| {
            o.as_primitive::<arrow::datatypes::Int32Type>()
                .values()
                .clone()
        }),
        arrays,
    )?;
    let window = union.slice(selection.first_vector() * VECTOR_LEN, selection.rows());
    Ok(filter(&window, &selection.to_boolean_buffer().into())?)
}

impl<C: Child> List<C> {
    fn parse(reader: &mut ChunkReader, child_type: &DataType, len: usize) -> Result<Self> {
        let child_rows = reader.count(MAX_ROWS, PART)?;
        let lengths = Sequence::parse(reader, len)?;
        let mut starts = Vec::with_capacity(len.div_ceil(VECTOR_LEN) + 1);
        let mut end = 0u64;
        starts.push(0);
        let mut values = [0u64; VECTOR_LEN];
        for vector in 0..len.div_ceil(VECTOR_LEN) {
            lengths.decode(vector, 0, &mut values)?;
            let rows = (len - vector * VECTOR_LEN).min(VECTOR_LEN);
            end = values[..rows]
                .iter()
                .fold(end, |end, len| end.saturating_add(*len));
            starts.push(end);
        }
        ensure(end == child_rows as u64, PART, || {
            format!("lists of {end} rows over a child of {child_rows}")
        })?;
        Ok(Self {
            lengths,
            starts,
            child: C::parse(reader, child_type, child_rows)?,
        })
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let mut lengths = Vec::with_capacity(selection.count());
        let rows = self.rows_of(selection, |length| lengths.push(length))?;
        build_list(data_type, self.child.select(&rows)?, lengths, nulls)
    }

    /// Selects the child's rows of the selected lists, and passes the lists' lengths to `length`.
    fn rows_of(&self, selection: &Selection, mut length: impl FnMut(usize)) -> Result<Selection> {
        let mut ranges: Vec<Range<usize>> = vec![];
        let mut values = [0u64; VECTOR_LEN];
        for selected in selection.vectors() {
            self.lengths.decode(selected.vector, 0, &mut values)?;
            let mut next = self.starts[selected.vector] as usize;
            let mut row = 0;
            selected.for_each(|selected_row| {
                next += values[row..selected_row].iter().sum::<u64>() as usize;
                let end = next + values[selected_row] as usize;
                length(values[selected_row] as usize);
                match ranges.last_mut() {
                    Some(last) if last.end == next => last.end = end,
                    _ => ranges.push(next..end),
                }
                next = end;
                row = selected_row + 1;
            });
        }
        Ok(selection_of(&ranges))
    }
}

/// The selection of ascending, disjoint ranges of rows.
fn selection_of(ranges: &[Range<usize>]) -> Selection {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return Selection::none(0, 0);
    };
    let first_vector = first.start / VECTOR_LEN;
    let mut bits = BooleanBufferBuilder::new(last.end - first_vector * VECTOR_LEN);
    for range in ranges {
        bits.append_n(range.start - first_vector * VECTOR_LEN - bits.len(), false);
        bits.append_n(range.len(), true);
    }
    Selection::from_boolean_buffer(first_vector, &bits.finish())
}

fn build_list(
    data_type: &DataType,
    child: ArrayRef,
    lengths: Vec<usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let too_long = || Error::Unsupported(format!("lists of {} rows in one array", child.len()));
    let offsets32 = |lengths: &[usize]| -> Result<OffsetBuffer<i32>> {
        i32::try_from(child.len()).map_err(|_| too_long())?;
        Ok(OffsetBuffer::from_lengths(lengths.iter().copied()))
    };
    Ok(match data_type {
        DataType::List(field) => {
            let offsets = offsets32(&lengths)?;
            Arc::new(ListArray::try_new(
                Arc::clone(field),
                offsets,
                child,
                nulls,
            )?)
        }
        DataType::LargeList(field) => {
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(LargeListArray::try_new(
                Arc::clone(field),
                offsets,
                child,
                nulls,
            )?)
        }
        DataType::Map(field, sorted) => {
            let offsets = offsets32(&lengths)?;
            let entries = child.as_struct().clone();
            Arc::new(MapArray::try_new(
                Arc::clone(field),
                offsets,
                entries,
                nulls,
                *sorted,
            )?)
        }
        DataType::FixedSizeList(field, size) => {
            let rows = lengths.len();
            let regular = lengths.iter().all(|len| i32::try_from(*len) == Ok(*size));
            ensure(regular, PART, || {
                format!("a list that is not of {size} values")
            })?;
            Arc::new(FixedSizeListArray::try_new_with_length(
                Arc::clone(field),
                *size,
                child,
                nulls,
                rows,
            )?)
        }
        other => return Err(Error::Unsupported(format!("lists of type {other}"))),
    })
}
