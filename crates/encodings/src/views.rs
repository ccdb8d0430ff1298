//! View arrays over one buffer, checked once as a whole instead of value by value.

use arrow::array::{BinaryViewArray, GenericByteViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ByteViewType;

use crate::bytes::{BinaryView, BytesBuilder, TextView, too_many_bytes};
use crate::error::{Result, corrupt};

/// The longest value that a view holds itself.
const INLINE_BYTES: usize = 12;

/// Views of text; fails unless every value is UTF-8.
pub(crate) fn text(values: BytesBuilder, nulls: Option<NullBuffer>) -> Result<StringViewArray> {
    let text = str::from_utf8(&values.data).map_err(|e| corrupt("text", e.to_string()))?;
    if !text.is_ascii() && !values.ends.iter().all(|end| text.is_char_boundary(*end)) {
        return Err(corrupt("text", "a value that ends within a character"));
    }
    // SAFETY: the whole buffer is UTF-8 and every value starts and ends at a character boundary,
    // so every value is UTF-8.
    unsafe { build::<TextView>(values, nulls) }
}

/// Views of bytes.
pub(crate) fn binary(values: BytesBuilder, nulls: Option<NullBuffer>) -> Result<BinaryViewArray> {
    // SAFETY: any bytes are a binary value.
    unsafe { build::<BinaryView>(values, nulls) }
}

/// # Safety
///
/// Every value must be valid for `T`.
unsafe fn build<T: ByteViewType + ?Sized>(
    values: BytesBuilder,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<T>> {
    let BytesBuilder { data, ends } = values;
    if u32::try_from(data.len()).is_err() {
        return Err(too_many_bytes(data.len()));
    }
    let mut views = Vec::with_capacity(ends.len());
    let mut start = 0;
    for end in ends {
        let value = data
            .get(start..end)
            .ok_or_else(|| corrupt("text", "values that overlap"))?;
        views.push(view(value, start as u32));
        start = end;
    }
    if nulls
        .as_ref()
        .is_some_and(|nulls| nulls.len() != views.len())
    {
        return Err(corrupt("text", "validity of another length"));
    }
    let buffers: Vec<Buffer> = vec![Buffer::from_vec(data)];
    // SAFETY: each view was made from a slice of the only buffer, buffer 0, with the slice's
    // length, offset and first bytes; short values are inline and padded with zeros; the validity
    // has as many entries; the caller vouches for the values.
    Ok(unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), buffers, nulls) })
}

/// The view of `value`, which starts at `offset` of buffer 0.
#[inline]
fn view(value: &[u8], offset: u32) -> u128 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    if value.len() <= INLINE_BYTES {
        bytes[4..4 + value.len()].copy_from_slice(value);
    } else {
        bytes[4..8].copy_from_slice(&value[..4]);
        bytes[12..].copy_from_slice(&offset.to_le_bytes());
    }
    u128::from_le_bytes(bytes)
}
