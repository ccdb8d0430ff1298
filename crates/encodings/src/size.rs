//! Bytes that decoded values take as Arrow arrays. They are known before anything is decoded, so that memory is refused
//! or reserved first. They are approximate: allocators round up.

use arrow::array::{Array, AsArray, GenericByteArray};
use arrow::datatypes::{ArrowNativeType, ByteArrayType, DataType, UnionMode};

/// Up to this many bytes, an upper bound is as good as the exact size, which takes time to compute.
pub(crate) const EXACT_ABOVE: u64 = 1 << 20;

/// The most bytes that are decoded at once, unless the bytes of the chunk account for more.
pub const MAX_DECODED_BYTES: u64 = 1 << 30;

/// How many times larger than its bytes a string can get.
const MAX_GROWTH: u64 = 64;

/// The most bytes to decode at once from a chunk of `stored` bytes: a damaged or hostile file can claim any width and
/// number of rows in a few bytes.
pub(crate) fn limit(stored: usize) -> u64 {
    (stored as u64)
        .saturating_mul(MAX_GROWTH)
        .max(MAX_DECODED_BYTES)
}

/// Bytes of `rows` rows, except those of strings and of the items of lists: the size of nulls.
pub fn fixed_bytes(data_type: &DataType, rows: u64) -> u64 {
    use DataType::*;
    let of = |data_type: &DataType| fixed_bytes(data_type, rows);
    let all = |children: &mut dyn Iterator<Item = u64>| children.fold(0, u64::saturating_add);
    let width = |bytes: u64| rows.saturating_mul(bytes);
    let values = match data_type {
        Null => return 0,
        Boolean => rows.div_ceil(8),
        Utf8 | Binary | List(_) | Map(_, _) => width(4),
        LargeUtf8 | LargeBinary | LargeList(_) | ListView(_) => width(8),
        Utf8View | BinaryView | LargeListView(_) => width(16),
        FixedSizeBinary(bytes) => width((*bytes).max(0) as u64),
        FixedSizeList(item, len) => fixed_bytes(item.data_type(), width((*len).max(0) as u64)),
        Struct(fields) => all(&mut fields.iter().map(|field| of(field.data_type()))),
        Union(fields, mode) => {
            // all rows of a dense union of nulls are in its first child
            let children = match mode {
                UnionMode::Sparse => fields.len(),
                UnionMode::Dense => 1,
            };
            let children = fields.iter().take(children);
            width(5).saturating_add(all(&mut children.map(|(_, field)| of(field.data_type()))))
        }
        Dictionary(keys, values) => of(keys).saturating_add(distinct_bytes(values, rows)),
        RunEndEncoded(_, values) => distinct_bytes(values.data_type(), rows),
        other => width(other.primitive_width().unwrap_or(0) as u64),
    };
    values.saturating_add(rows.div_ceil(8))
}

/// Bytes of the distinct values of a dictionary or of runs of `rows` rows: one value at least. Runs count in full,
/// because arrow-rs casts them to values first.
fn distinct_bytes(values: &DataType, rows: u64) -> u64 {
    match values {
        DataType::RunEndEncoded(_, values) => fixed_bytes(values.data_type(), rows.max(1)),
        other => fixed_bytes(other, 1),
    }
}

/// Bytes of the strings in `rows` of an array, if each row has a copy of its own: views share.
pub(crate) fn string_bytes(array: &dyn Array, rows: impl Iterator<Item = usize>) -> u64 {
    fn sum<T: ByteArrayType>(
        array: &GenericByteArray<T>,
        rows: impl Iterator<Item = usize>,
    ) -> u64 {
        rows.map(|row| array.value_length(row).as_usize() as u64)
            .sum()
    }
    match array.data_type() {
        DataType::Utf8 => sum(array.as_string::<i32>(), rows),
        DataType::LargeUtf8 => sum(array.as_string::<i64>(), rows),
        DataType::Binary => sum(array.as_binary::<i32>(), rows),
        DataType::LargeBinary => sum(array.as_binary::<i64>(), rows),
        _ => 0,
    }
}

/// The length of the longest string of an array, counted as in [`string_bytes`].
pub(crate) fn longest_string(array: &dyn Array) -> u64 {
    let of_row = |row| string_bytes(array, std::iter::once(row));
    (0..array.len()).map(of_row).max().unwrap_or(0)
}
