//! From streams to columns: the Arrow array of a column in one stripe.
//!
//! A null has no entry in any stream but `PRESENT`, and neither have its children. So a column is decoded for the rows
//! that its parent has, and then spread over all rows of the parent.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, ListArray, MapArray,
    PrimitiveArray, StringArray, StructArray, UInt32Array, UnionArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Date32Type, Fields, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampNanosecondType,
};
use arrow::error::ArrowError;
use bytes::Bytes;
use vectile_encodings::MAX_ROWS;

use crate::decode::{Decoder, Values, most_integers};
use crate::error::{Error, ErrorOrigin, Fault, Result, corrupt, ensure};
use crate::kind::{Encoding, StreamKind, TypeKind};
use crate::schema::Type;
use crate::stream::Stream;
use crate::timestamp::Base;

/// The streams read of a stripe.
pub(crate) struct StripeStreams<'a> {
    /// The stripe's position.
    pub(crate) origin: ErrorOrigin,
    /// The streams of the columns to decode, sorted by [`stream_key`].
    pub(crate) streams: Vec<Stream>,
    /// Encodings by column number.
    pub(crate) encodings: &'a [Encoding],
    /// The writer's timezone.
    pub(crate) timezone: Option<&'a str>,
}

/// The sort key of streams in a stripe.
pub(crate) fn stream_key(stream: &Stream) -> (u32, StreamKind) {
    (stream.column, stream.kind)
}

impl StripeStreams<'_> {
    /// The values of `column` and its children in `rows` rows of its parent.
    pub(crate) fn decode(&self, column: &Type, rows: usize) -> Result<ArrayRef> {
        self.reader(column, rows)?.array()
    }

    /// As [`decode`](Self::decode), for text in a dictionary; `None` for anything else.
    pub(crate) fn numbered(&self, column: &Type, rows: usize) -> Result<Option<Numbered>> {
        match self.encodings.get(column.column as usize) {
            Some(Encoding::Dictionary { entries, .. }) if column.kind.is_text() => {
                let reader = self.reader(column, rows)?;
                reader.numbered(*entries as usize).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A reader of a column in `rows` rows of its parent; it knows the nulls.
    pub(crate) fn reader<'a>(&'a self, column: &'a Type, rows: usize) -> Result<ColumnReader<'a>> {
        let encoding = self.encodings.get(column.column as usize);
        let Some(&encoding) = encoding else {
            return self.of_column(column, corrupt("the stripe has no encoding for it"));
        };
        let mut reader = ColumnReader {
            stripe: self,
            column,
            encoding,
            nulls: None,
            rows,
            values: rows,
        };
        reader.read_nulls()?;
        Ok(reader)
    }

    pub(crate) fn stream(&self, column: u32, kind: StreamKind) -> Option<&Stream> {
        let at = self
            .streams
            .binary_search_by_key(&(column, kind), stream_key);
        self.streams.get(at.ok()?)
    }

    fn of_column<T>(&self, column: &Type, result: Result<T, Fault>) -> Result<T> {
        result.map_err(|fault| self.origin.clone().column(&column.path).fault(fault))
    }
}

/// Text in a dictionary.
pub(crate) struct Numbered {
    pub(crate) entries: ArrayRef,
    /// Per row, the index of its dictionary entry; 0 for nulls.
    pub(crate) numbers: Vec<u32>,
    pub(crate) nulls: Option<NullBuffer>,
}

/// A column that is being decoded.
pub(crate) struct ColumnReader<'a> {
    stripe: &'a StripeStreams<'a>,
    pub(crate) column: &'a Type,
    pub(crate) encoding: Encoding,
    /// The rows without a value, if there are any.
    pub(crate) nulls: Option<NullBuffer>,
    pub(crate) rows: usize,
    /// Number of rows that have a value.
    values: usize,
}

impl ColumnReader<'_> {
    fn read_nulls(&mut self) -> Result<()> {
        let column = self.column.column;
        if self.stripe.stream(column, StreamKind::Present).is_none() {
            return Ok(());
        }
        let present = self.decode(StreamKind::Present, self.rows)?;
        let Values::Bits(present) = present else {
            return unexpected();
        };
        let nulls = NullBuffer::new(present);
        self.values = self.rows - nulls.null_count();
        self.nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        Ok(())
    }

    fn array(&self) -> Result<ArrayRef> {
        Ok(match self.column.kind {
            TypeKind::Boolean => self.booleans()?,
            TypeKind::Byte => self.bytes()?,
            TypeKind::Short => self.integers::<Int16Type>()?,
            TypeKind::Int => self.integers::<Int32Type>()?,
            TypeKind::Long => self.integers::<Int64Type>()?,
            TypeKind::Date => self.integers::<Date32Type>()?,
            TypeKind::Float => self.floats::<Float32Type, 4>(f32::from_le_bytes)?,
            TypeKind::Double => self.floats::<Float64Type, 8>(f64::from_le_bytes)?,
            TypeKind::Timestamp | TypeKind::TimestampInstant => self.timestamps()?,
            TypeKind::Decimal => self.decimals()?,
            TypeKind::String | TypeKind::Varchar | TypeKind::Char | TypeKind::Binary => {
                self.text()?
            }
            TypeKind::List => self.lists()?,
            TypeKind::Map => self.maps()?,
            TypeKind::Struct => self.structs()?,
            TypeKind::Union => self.unions()?,
        })
    }

    fn fault<T>(&self, result: Result<T, Fault>) -> Result<T> {
        self.stripe.of_column(self.column, result)
    }

    fn arrow<T>(&self, result: Result<T, ArrowError>) -> Result<T> {
        self.fault(result.map_err(|error| Fault::Corrupt(error.to_string())))
    }

    fn in_stream<T>(&self, kind: StreamKind, result: Result<T, Fault>) -> Result<T> {
        let origin = || self.stripe.origin.clone().column(&self.column.path);
        result.map_err(|fault| origin().stream(kind).fault(fault))
    }

    /// The inflated bytes of a stream; empty if the column has no such stream.
    fn inflate(&self, kind: StreamKind) -> Result<Bytes> {
        match self.stripe.stream(self.column.column, kind) {
            Some(stream) => self.in_stream(kind, stream.inflate()),
            None => Ok(Bytes::new()),
        }
    }

    /// The first `count` values of a stream.
    fn decode(&self, kind: StreamKind, count: usize) -> Result<Values> {
        let decoder = self.decoder(kind)?;
        let bytes = self.inflate(kind)?;
        self.in_stream(kind, decoder.decode(&bytes, count))
    }

    fn decoder(&self, kind: StreamKind) -> Result<Decoder> {
        let decoder = Decoder::of(self.column.kind, self.encoding, kind);
        let missing = || {
            let reason = format!("columns of type {:?} have no such stream", self.column.kind);
            Fault::Corrupt(reason)
        };
        self.in_stream(kind, decoder.ok_or_else(missing))
    }

    fn decode_integers(&self, kind: StreamKind, count: usize) -> Result<Vec<i64>> {
        self.decode_each(kind, count, |integers, values| {
            values.extend_from_slice(integers);
            Ok(())
        })
    }

    /// Decodes the first `count` integers of a stream in blocks, which `append` converts to values.
    fn decode_each<T>(
        &self,
        kind: StreamKind,
        count: usize,
        mut append: impl FnMut(&[i64], &mut Vec<T>) -> Result<(), Fault>,
    ) -> Result<Vec<T>> {
        let decoder = self.decoder(kind)?;
        let bytes = self.inflate(kind)?;
        let mut values = Vec::with_capacity(count.min(most_integers(&bytes)));
        let decoded =
            decoder.decode_integers(&bytes, count, &mut |block| append(block, &mut values));
        self.in_stream(kind, decoded)?;
        Ok(values)
    }

    /// Decodes lengths and their sum, which is at most `most` and fits 32 bits.
    fn decode_lengths(&self, count: usize, most: usize) -> Result<(Vec<i64>, usize)> {
        let most = most.min(i32::MAX as usize);
        let lengths = self.decode_integers(StreamKind::Length, count)?;
        let mut sum = 0usize;
        for &length in &lengths {
            let next = usize::try_from(length).ok();
            let next = next.and_then(|length| sum.checked_add(length));
            let Some(next) = next.filter(|&next| next <= most) else {
                let reason = format!("a length of {length} after {sum} of {most}");
                return self.in_stream(StreamKind::Length, corrupt(reason));
            };
            sum = next;
        }
        Ok((lengths, sum))
    }

    /// The offsets of all rows. Rows with a value have these lengths, whose sum fits 32 bits.
    fn offsets(&self, lengths: &[i64]) -> OffsetBuffer<i32> {
        let mut lengths = lengths.iter();
        let mut end = 0;
        let mut offsets = Vec::with_capacity(self.rows + 1);
        offsets.push(end);
        for row in 0..self.rows {
            let has_value = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            if has_value {
                end += *lengths.next().unwrap_or(&0) as i32;
            }
            offsets.push(end);
        }
        OffsetBuffer::new(offsets.into())
    }

    fn primitive<T: ArrowPrimitiveType>(&self, values: Vec<T::Native>) -> PrimitiveArray<T> {
        let values = spread(values, self.nulls.as_ref());
        PrimitiveArray::new(values.into(), self.nulls.clone())
    }

    fn booleans(&self) -> Result<ArrayRef> {
        let Values::Bits(bits) = self.decode(StreamKind::Data, self.values)? else {
            return unexpected();
        };
        let bits = match &self.nulls {
            None => bits,
            Some(nulls) => {
                let mut rows = vec![0; self.rows.div_ceil(8)];
                for (value, row) in nulls.valid_indices().enumerate() {
                    if let Some(byte) = rows.get_mut(row / 8) {
                        *byte |= u8::from(bits.value(value)) << (row % 8);
                    }
                }
                BooleanBuffer::new(Buffer::from_vec(rows), 0, self.rows)
            }
        };
        Ok(Arc::new(BooleanArray::new(bits, self.nulls.clone())))
    }

    fn bytes(&self) -> Result<ArrayRef> {
        let Values::Small(bytes) = self.decode(StreamKind::Data, self.values)? else {
            return unexpected();
        };
        let values = bytes.into_iter().map(|byte| byte as i8).collect();
        Ok(Arc::new(self.primitive::<Int8Type>(values)))
    }

    fn integers<T>(&self) -> Result<ArrayRef>
    where
        T: ArrowPrimitiveType<Native: TryFrom<i64>>,
    {
        let fits = |integer: i64| T::Native::try_from(integer).is_ok();
        let values = self.decode_each(StreamKind::Data, self.values, |integers, values| {
            check_all(integers, fits, |integer| {
                format!("{integer} instead of {}", T::DATA_TYPE)
            })?;
            let converted = integers.iter();
            values
                .extend(converted.map(|integer| T::Native::try_from(*integer).unwrap_or_default()));
            Ok(())
        });
        Ok(Arc::new(self.primitive::<T>(values?)))
    }

    fn floats<T: ArrowPrimitiveType, const N: usize>(
        &self,
        of: fn([u8; N]) -> T::Native,
    ) -> Result<ArrayRef> {
        let Some(length) = self.values.checked_mul(N) else {
            return self.fault(corrupt(format!("{} values", self.values)));
        };
        let Values::Bytes(bytes) = self.decode(StreamKind::Data, length)? else {
            return unexpected();
        };
        let (values, _) = bytes.as_chunks();
        let values = values.iter().map(|bytes| of(*bytes)).collect();
        Ok(Arc::new(self.primitive::<T>(values)))
    }

    /// The instant that seconds of timestamps are relative to.
    pub(crate) fn base(&self) -> Result<Base> {
        match self.column.kind {
            TypeKind::Timestamp => self.fault(Base::of_timezone(self.stripe.timezone)),
            _ => Ok(Base::UTC),
        }
    }

    fn timestamps(&self) -> Result<ArrayRef> {
        let base = self.base()?;
        let seconds = self.decode_integers(StreamKind::Data, self.values)?;
        let fractions = self.decode_integers(StreamKind::Secondary, self.values)?;
        let values = seconds.into_iter().zip(fractions);
        let values = values.map(|(seconds, fraction)| base.nanoseconds(seconds, fraction));
        let values = self.fault(values.collect())?;
        let array = self.primitive::<TimestampNanosecondType>(values);
        Ok(match &self.column.data_type {
            DataType::Timestamp(_, timezone) => Arc::new(array.with_timezone_opt(timezone.clone())),
            _ => Arc::new(array),
        })
    }

    fn decimals(&self) -> Result<ArrayRef> {
        let DataType::Decimal128(precision, scale) = self.column.data_type else {
            return unexpected();
        };
        let Values::Decimals(digits) = self.decode(StreamKind::Data, self.values)? else {
            return unexpected();
        };
        let mut values = digits;
        let mut first = 0;
        // values of other scales are rescaled; usually there are none
        self.decode_each(
            StreamKind::Secondary,
            self.values,
            |scales, _: &mut Vec<()>| {
                let own = values.get_mut(first..).unwrap_or_default();
                first += scales.len();
                let is_own = |read_scale: &i64| *read_scale == i64::from(scale);
                if scales
                    .iter()
                    .fold(true, |all, read_scale| all & is_own(read_scale))
                {
                    return Ok(());
                }
                let mut pairs = own.iter_mut().zip(scales);
                pairs.try_for_each(|(digits, read_scale)| {
                    *digits = rescaled(*digits, *read_scale, scale)?;
                    Ok(())
                })
            },
        )?;
        let values = ScalarBuffer::from(spread(values, self.nulls.as_ref()));
        let array = Decimal128Array::new(values, self.nulls.clone());
        let array = self.arrow(array.with_precision_and_scale(precision, scale))?;
        Ok(Arc::new(array))
    }

    fn text(&self) -> Result<ArrayRef> {
        match self.encoding {
            Encoding::Direct { .. } => self.direct_text(),
            Encoding::Dictionary { entries, .. } => self.dictionary_text(entries as usize),
        }
    }

    fn direct_text(&self) -> Result<ArrayRef> {
        let bytes = self.inflate(StreamKind::Data)?;
        let (lengths, _) = self.decode_lengths(self.values, bytes.len())?;
        self.text_of(self.offsets(&lengths), bytes, self.nulls.clone())
    }

    /// Text with offsets that end within `bytes`.
    fn text_of(
        &self,
        offsets: OffsetBuffer<i32>,
        bytes: Bytes,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let bytes = Buffer::from(bytes);
        Ok(match self.column.kind.is_text() {
            true => Arc::new(self.arrow(StringArray::try_new(offsets, bytes, nulls))?),
            false => Arc::new(self.arrow(BinaryArray::try_new(offsets, bytes, nulls))?),
        })
    }

    /// The length of each row of text without a dictionary; 0 for nulls.
    pub(crate) fn lengths(&self) -> Result<Vec<u64>> {
        let (lengths, _) = self.decode_lengths(self.values, i32::MAX as usize)?;
        // none is negative
        let lengths = lengths.into_iter().map(|length| length as u64).collect();
        Ok(spread(lengths, self.nulls.as_ref()))
    }

    /// The entries of a dictionary, and their lengths.
    pub(crate) fn dictionary(&self, entries: usize) -> Result<(ArrayRef, Vec<i64>)> {
        if !self.column.kind.is_text() {
            let reason = format!("a dictionary of type {:?}", self.column.kind);
            return self.fault(corrupt(reason));
        }
        let bytes = self.inflate(StreamKind::DictionaryData)?;
        // entries differ, so at most one is empty
        self.fault(ensure(entries <= bytes.len().max(self.values) + 1, || {
            format!(
                "a dictionary of {entries} entries for {} values",
                self.values
            )
        }))?;
        let (lengths, _) = self.decode_lengths(entries, bytes.len())?;
        let mut end = 0;
        let ends = lengths.iter().map(|length| {
            end += *length as i32;
            end
        });
        let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
        let dictionary = self.text_of(OffsetBuffer::new(offsets.into()), bytes, None)?;
        Ok((dictionary, lengths))
    }

    /// Per value, the index of its dictionary entry.
    fn entry_numbers(&self, entries: usize) -> Result<Vec<u32>> {
        self.decode_each(StreamKind::Data, self.values, |integers, numbers| {
            check_all(
                integers,
                |number| (number as u64) < entries as u64,
                |number| format!("entry {number} of a dictionary of {entries}"),
            )?;
            // there are fewer entries than 2^32
            numbers.extend(integers.iter().map(|number| *number as u32));
            Ok(())
        })
    }

    fn numbered(&self, entries: usize) -> Result<Numbered> {
        let (dictionary, _) = self.dictionary(entries)?;
        Ok(Numbered {
            entries: dictionary,
            numbers: spread(self.entry_numbers(entries)?, self.nulls.as_ref()),
            nulls: self.nulls.clone(),
        })
    }

    fn dictionary_text(&self, entries: usize) -> Result<ArrayRef> {
        let (dictionary, lengths) = self.dictionary(entries)?;
        let numbers = self.entry_numbers(entries)?;
        // each is below 2^31, and there are fewer than 2^32
        let lengths = numbers.iter().map(|number| lengths.get(*number as usize));
        let bytes: i64 = lengths.flatten().sum();
        if bytes > i64::from(i32::MAX) {
            let reason = format!("{bytes} bytes of text in a stripe, at most {}", i32::MAX);
            return self.fault(Err(Fault::Unsupported(reason)));
        }
        let numbers = spread(numbers, self.nulls.as_ref());
        let numbers = UInt32Array::new(numbers.into(), self.nulls.clone());
        self.arrow(take(&dictionary, &numbers, None))
    }

    /// The list offsets, and the rows of the only child: as many as the lists have together.
    fn list_offsets(&self) -> Result<(OffsetBuffer<i32>, usize)> {
        let (lengths, rows) = self.decode_lengths(self.values, MAX_ROWS)?;
        Ok((self.offsets(&lengths), rows))
    }

    fn lists(&self) -> Result<ArrayRef> {
        let (offsets, rows) = self.list_offsets()?;
        let (DataType::List(field), [item]) = (&self.column.data_type, &self.column.children[..])
        else {
            return unexpected();
        };
        let items = self.stripe.decode(item, rows)?;
        let lists = ListArray::try_new(Arc::clone(field), offsets, items, self.nulls.clone());
        Ok(Arc::new(self.arrow(lists)?))
    }

    fn maps(&self) -> Result<ArrayRef> {
        let (offsets, rows) = self.list_offsets()?;
        let DataType::Map(field, ordered) = &self.column.data_type else {
            return unexpected();
        };
        let DataType::Struct(fields) = field.data_type() else {
            return unexpected();
        };
        let entries = self.fields(fields, rows, None)?;
        let maps = MapArray::try_new(
            Arc::clone(field),
            offsets,
            entries,
            self.nulls.clone(),
            *ordered,
        );
        Ok(Arc::new(self.arrow(maps)?))
    }

    fn structs(&self) -> Result<ArrayRef> {
        let DataType::Struct(fields) = &self.column.data_type else {
            return unexpected();
        };
        Ok(Arc::new(self.fields(
            fields,
            self.rows,
            self.nulls.clone(),
        )?))
    }

    /// The children as fields of a struct of `rows` rows, some of which may be null.
    fn fields(
        &self,
        fields: &Fields,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<StructArray> {
        if fields.is_empty() {
            return Ok(StructArray::new_empty_fields(rows, nulls));
        }
        let values = rows - nulls.as_ref().map_or(0, NullBuffer::null_count);
        let value_indices = nulls.as_ref().map(|nulls| value_indices(nulls, rows));
        let children = self.column.children.iter().map(|child| {
            let array = self.stripe.decode(child, values)?;
            match &value_indices {
                None => Ok(array),
                Some(value_indices) => self.arrow(take(&array, value_indices, None)),
            }
        });
        let children = children.collect::<Result<_>>()?;
        self.arrow(StructArray::try_new(fields.clone(), children, nulls))
    }

    /// Decodes unions. In Arrow they have no nulls of their own, so their nulls are nulls of the first type.
    fn unions(&self) -> Result<ArrayRef> {
        let DataType::Union(fields, _) = &self.column.data_type else {
            return unexpected();
        };
        let Values::Small(tags) = self.decode(StreamKind::Data, self.values)? else {
            return unexpected();
        };
        let variants = self.column.children.len();
        if let Some(tag) = tags.iter().find(|&&tag| usize::from(tag) >= variants) {
            let reason = format!("type {tag} of a union of {variants}");
            return self.in_stream(StreamKind::Data, corrupt(reason));
        }
        let tags = spread(tags, self.nulls.as_ref());
        let children = self
            .column
            .children
            .iter()
            .enumerate()
            .map(|(variant, child)| {
                let is_valid = |row| self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let has = BooleanBuffer::collect_bool(self.rows, |row| {
                    is_valid(row)
                        && tags
                            .get(row)
                            .is_some_and(|&tag| usize::from(tag) == variant)
                });
                let has = NullBuffer::new(has);
                let values = self.stripe.decode(child, self.rows - has.null_count())?;
                self.arrow(take(&values, &value_indices(&has, self.rows), None))
            });
        let children = children.collect::<Result<_>>()?;
        let tags: Vec<i8> = tags.into_iter().map(|tag| tag as i8).collect();
        let union = UnionArray::try_new(fields.clone(), tags.into(), None, children);
        Ok(Arc::new(self.arrow(union)?))
    }
}

/// A stream decoded to other values than the registry says, which is a bug.
fn unexpected<T>() -> Result<T> {
    Err(Error::Internal(
        "a column of another type than its decoder's".into(),
    ))
}

/// Spreads values over the rows that have one; other rows get the default.
fn spread<T: Copy + Default>(values: Vec<T>, nulls: Option<&NullBuffer>) -> Vec<T> {
    let Some(nulls) = nulls else {
        return values;
    };
    let mut rows = vec![T::default(); nulls.len()];
    let mut values = &values[..];
    for (start, end) in nulls.valid_slices() {
        let Some((run, rest)) = values.split_at_checked(end - start) else {
            break;
        };
        if let Some(rows) = rows.get_mut(start..end) {
            rows.copy_from_slice(run);
        }
        values = rest;
    }
    rows
}

/// Checks integers without a branch for each, so that the compiler vectorizes it.
fn check_all(
    integers: &[i64],
    fits: impl Fn(i64) -> bool,
    reason: impl Fn(i64) -> String,
) -> Result<(), Fault> {
    let all = integers
        .iter()
        .fold(true, |all, &integer| all & fits(integer));
    if all {
        return Ok(());
    }
    let wrong = integers.iter().find(|&&integer| !fits(integer));
    wrong.map_or(Ok(()), |&wrong| corrupt(reason(wrong)))
}

/// Per row, the index of its value among the values present.
fn value_indices(nulls: &NullBuffer, rows: usize) -> UInt32Array {
    let mut next = 0;
    let numbers = (0..rows).map(|row| {
        let number = next;
        next += u32::from(nulls.is_valid(row));
        number
    });
    UInt32Array::new(numbers.collect(), Some(nulls.clone()))
}

/// Rescales a decimal of `found` digits after the point to `scale`. Excess digits are truncated.
fn rescaled(digits: i128, read_scale: i64, scale: i8) -> Result<i128, Fault> {
    let scale = i64::from(scale);
    if read_scale == scale {
        return Ok(digits);
    }
    let by = u32::try_from(read_scale.abs_diff(scale)).ok();
    let factor = by.and_then(|by| 10i128.checked_pow(by));
    let value = match (read_scale < scale, factor) {
        (true, Some(factor)) => digits.checked_mul(factor),
        (false, Some(factor)) => Some(digits / factor),
        (_, None) => None,
    };
    value.ok_or_else(|| {
        Fault::Corrupt(format!(
            "a decimal of scale {read_scale} in a column of scale {scale}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_those_of_the_column() {
        assert_eq!(rescaled(1234, 2, 2), Ok(1234));
        assert_eq!(rescaled(1234, 0, 2), Ok(123_400));
        assert_eq!(rescaled(-1299, 3, 1), Ok(-12));
        for (digits, read_scale) in [(i128::MAX, 1), (1, i64::MIN), (1, 1 << 40)] {
            assert!(rescaled(digits, read_scale, 2).is_err());
        }
    }

    #[test]
    fn values_go_to_their_rows() {
        let nulls = NullBuffer::from(vec![false, true, true, false, true]);
        assert_eq!(spread(vec![7, 8, 9], Some(&nulls)), [0, 7, 8, 0, 9]);
        assert_eq!(spread(vec![7, 8], None), [7, 8]);
        let value_indices = value_indices(&nulls, 5);
        assert_eq!(
            value_indices,
            UInt32Array::from(vec![None, Some(0), Some(1), None, Some(2)])
        );
    }
}
