//! Columns of byte strings: text, binary, views and fixed-size binary alike.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, GenericByteArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type,
};

use crate::byte_views::{self, too_many_bytes};
use crate::error::{Error, Result, ensure};

/// Returns true if values of the type are byte strings.
pub(crate) fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | FixedSizeBinary(_)
    )
}

/// Returns true if values of the type are text.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// The first eight bytes as a number, padded with zeros: numbers order as strings that differ in these bytes.
#[inline]
pub(crate) fn prefix(value: &[u8]) -> u64 {
    if let Some(first) = value.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    // bytes read twice have the same value in both reads
    let at = |index: usize| 56 - 8 * index as u32;
    match (value.first_chunk(), value.last_chunk(), value) {
        (Some(first), Some(last), _) => {
            let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
            u64::from(first) << 32 | u64::from(last) << (at(value.len() - 4) - 24)
        }
        (_, _, []) => 0,
        _ => {
            let byte = |index: usize| u64::from(value[index]) << at(index);
            byte(0) | byte(value.len() / 2) | byte(value.len() - 1)
        }
    }
}

/// The value of each row; empty for nulls. `None` if the type is not one of byte strings.
pub(crate) fn values(array: &dyn Array) -> Option<Vec<&[u8]>> {
    fn collect<'a>(array: &dyn Array, value: impl Fn(usize) -> &'a [u8]) -> Vec<&'a [u8]> {
        match array.nulls() {
            None => (0..array.len()).map(value).collect(),
            Some(nulls) => (0..array.len())
                .map(|row| if nulls.is_valid(row) { value(row) } else { &[] })
                .collect(),
        }
    }
    Some(match array.data_type() {
        DataType::Utf8 => {
            let strings = array.as_string::<i32>();
            collect(array, |row| strings.value(row).as_bytes())
        }
        DataType::LargeUtf8 => {
            let strings = array.as_string::<i64>();
            collect(array, |row| strings.value(row).as_bytes())
        }
        DataType::Utf8View => {
            let strings = array.as_string_view();
            collect(array, |row| strings.value(row).as_bytes())
        }
        DataType::Binary => {
            let strings = array.as_binary::<i32>();
            collect(array, |row| strings.value(row))
        }
        DataType::LargeBinary => {
            let strings = array.as_binary::<i64>();
            collect(array, |row| strings.value(row))
        }
        DataType::BinaryView => {
            let strings = array.as_binary_view();
            collect(array, |row| strings.value(row))
        }
        DataType::FixedSizeBinary(_) => {
            let strings = array.as_fixed_size_binary();
            collect(array, |row| strings.value(row))
        }
        _ => return None,
    })
}

/// An array of text or binary from `data`: value `i` ends at `ends[i]`, which ascend.
///
/// # Errors
///
/// [`Error::Corrupt`] if text is not UTF-8 or values are not within `data`; [`Error::Unsupported`] for other types, and
/// if there are more bytes than the type's offsets can address.
pub fn strings(
    data_type: &DataType,
    data: Buffer,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Utf8 => offset_array::<Utf8Type>(data, ends, nulls)?,
        DataType::LargeUtf8 => offset_array::<LargeUtf8Type>(data, ends, nulls)?,
        DataType::Binary => offset_array::<BinaryType>(data, ends, nulls)?,
        DataType::LargeBinary => offset_array::<LargeBinaryType>(data, ends, nulls)?,
        DataType::Utf8View => Arc::new(byte_views::text(data, ends, nulls)?),
        DataType::BinaryView => Arc::new(byte_views::binary(data, ends, nulls)?),
        other => return Err(Error::Unsupported(format!("{other} as byte strings"))),
    })
}

fn offset_array<T: ByteArrayType>(
    data: Buffer,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    T::Offset::from_usize(data.len()).ok_or_else(|| too_many_bytes(data.len()))?;
    let offsets: Vec<T::Offset> = std::iter::once(&0)
        .chain(ends)
        .map(|end| T::Offset::from_usize(*end).unwrap_or_default())
        .collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let array = GenericByteArray::<T>::try_new(offsets, data, nulls)
        .map_err(|e| crate::error::corrupt("text", e.to_string()))?;
    Ok(Arc::new(array))
}

/// Collects values into an array of any type of byte strings.
#[derive(Default)]
pub(crate) struct BytesBuilder {
    pub data: Vec<u8>,
    /// End of each value in `data`; ascends.
    pub ends: Vec<usize>,
}

impl BytesBuilder {
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            data: vec![],
            ends: Vec::with_capacity(rows),
        }
    }

    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len());
    }

    /// Appends the bytes of `range`, which lies within `bytes`.
    #[inline]
    pub fn push_of(&mut self, bytes: &[u8], range: Range<usize>) {
        /// Values up to this length are copied at a fixed length, which is cheaper than a copy of a few bytes.
        const SHORT: usize = 32;
        match bytes
            .get(range.start..)
            .and_then(<[u8]>::first_chunk::<SHORT>)
        {
            Some(short) if range.len() <= SHORT => {
                self.data.extend_from_slice(short);
                self.data.truncate(self.data.len() - SHORT + range.len());
            }
            _ => self
                .data
                .extend_from_slice(bytes.get(range).unwrap_or_default()),
        }
        self.ends.push(self.data.len());
    }

    /// Builds the array. Fails if text is not UTF-8, a value differs from the fixed size, or there are more bytes than
    /// the type's offsets can address.
    pub fn finish(self, data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        match data_type {
            DataType::FixedSizeBinary(size) => self.fixed_array(*size, nulls),
            _ => strings(data_type, Buffer::from_vec(self.data), &self.ends, nulls),
        }
    }

    fn fixed_array(self, size: i32, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let rows = self.ends.len();
        let size_bytes = usize::try_from(size).unwrap_or(0);
        let mut data = self.data;
        if nulls.is_some() {
            // null rows are stored as empty values
            let mut padded = vec![0; rows * size_bytes];
            let mut start = 0;
            for (row, end) in self.ends.iter().enumerate() {
                let value = &data[start..*end];
                ensure(
                    value.is_empty() || value.len() == size_bytes,
                    "binary",
                    || {
                        format!(
                            "a value of {} bytes in FixedSizeBinary({size})",
                            value.len()
                        )
                    },
                )?;
                padded[row * size_bytes..][..value.len()].copy_from_slice(value);
                start = *end;
            }
            data = padded;
        } else {
            let regular = self
                .ends
                .iter()
                .enumerate()
                .all(|(row, end)| *end == (row + 1) * size_bytes);
            ensure(regular, "binary", || {
                format!("values that are not FixedSizeBinary({size})")
            })?;
        }
        let array = if size == 0 {
            FixedSizeBinaryArray::try_new_with_len(size, Buffer::from_vec(data), nulls, rows)?
        } else {
            FixedSizeBinaryArray::try_new(size, Buffer::from_vec(data), nulls)?
        };
        Ok(Arc::new(array))
    }
}
