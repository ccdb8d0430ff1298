//! View arrays over one buffer, validated as a whole instead of value by value.

use arrow::array::{BinaryViewArray, GenericByteViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{BinaryViewType, ByteViewType, StringViewType};

use crate::error::{Error, Result, corrupt};

/// The longest value stored in the view itself.
const INLINE_BYTES: usize = 12;

/// Text views over `data`: value `i` ends at `ends[i]`. Fails unless every value is UTF-8.
pub(crate) fn text(
    data: Buffer,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<StringViewArray> {
    let text = str::from_utf8(&data).map_err(|e| corrupt("text", e.to_string()))?;
    if !text.is_ascii() && !ends.iter().all(|end| text.is_char_boundary(*end)) {
        return Err(corrupt("text", "a value that ends within a character"));
    }
    // SAFETY: the whole buffer is UTF-8 and every value starts and ends at a character boundary,
    // so every value is UTF-8.
    unsafe { build::<StringViewType>(data, ends, nulls) }
}

/// Binary views over `data`: value `i` ends at `ends[i]`.
pub(crate) fn binary(
    data: Buffer,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<BinaryViewArray> {
    // SAFETY: any bytes are a binary value.
    unsafe { build::<BinaryViewType>(data, ends, nulls) }
}

/// # Safety
///
/// Every value must be valid for `T`.
unsafe fn build<T: ByteViewType + ?Sized>(
    data: Buffer,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<T>> {
    if u32::try_from(data.len()).is_err() {
        return Err(too_many_bytes(data.len()));
    }
    let mut views = Vec::with_capacity(ends.len());
    let mut start = 0;
    for end in ends {
        let rest = data.get(start..).unwrap_or_default();
        let len = end
            .checked_sub(start)
            .filter(|len| *len <= rest.len())
            .ok_or_else(|| corrupt("text", "values that overlap"))?;
        views.push(view(rest, len, start as u32));
        start = *end;
    }
    if nulls
        .as_ref()
        .is_some_and(|nulls| nulls.len() != views.len())
    {
        return Err(corrupt("text", "validity of another length"));
    }
    let buffers: Vec<Buffer> = vec![data];
    // SAFETY: each view was made from a slice of the only buffer, buffer 0, with the slice's
    // length, offset and first bytes; short values are inline and padded with zeros; the validity
    // has as many entries; the caller guarantees that values are valid.
    Ok(unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), buffers, nulls) })
}

/// The view of the first `len` bytes of `bytes`, which start at `offset` of buffer 0.
#[inline]
fn view(bytes: &[u8], len: usize, offset: u32) -> u128 {
    let head = match bytes.first_chunk() {
        Some(head) => u128::from_le_bytes(*head),
        None => {
            let mut head = [0; 16];
            head[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(head)
        }
    };
    let inline = head & ((1 << (8 * len.min(INLINE_BYTES))) - 1);
    let outside = head & u128::from(u32::MAX) | u128::from(offset) << 64;
    let content = if len <= INLINE_BYTES { inline } else { outside };
    content << 32 | len as u128
}

pub(crate) fn too_many_bytes(bytes: usize) -> Error {
    Error::Unsupported(format!(
        "{bytes} bytes of strings in one array; decode fewer rows at once or use a large type"
    ))
}
