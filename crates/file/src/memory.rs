//! Memory that the rows of an array take, regardless of larger arrays they are slices of.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, RunArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, RunEndIndexType, UnionMode};

/// Bytes of the rows of a batch as Arrow arrays, regardless of larger arrays that they are slices of.
pub fn arrow_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let bytes: u64 = columns.map(|array| memory_bytes(array)).sum();
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Bytes of the rows of `array`. Values that rows share, such as those of a dictionary, count at
/// most as often as the rows can refer to them.
pub(crate) fn memory_bytes(array: &dyn Array) -> u64 {
    let rows = array.len();
    let validity = array.nulls().map_or(0, |_| rows.div_ceil(8) as u64);
    let values = match array.data_type() {
        // arrow counts only the views of these types
        DataType::Utf8View => {
            let views = array.as_string_view();
            (rows * 16 + views.total_buffer_bytes_used()) as u64
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            (rows * 16 + views.total_buffer_bytes_used()) as u64
        }
        // and the whole children of these
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of_lists(list.values(), list.offsets())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of_lists(list.values(), list.offsets())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
            of_lists(&entries, map.offsets())
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            let items = list.sizes().iter().map(|size| *size as usize).sum();
            (rows * 8) as u64 + share(list.values(), items)
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            let items = list.sizes().iter().map(|size| *size as usize).sum();
            (rows * 16) as u64 + share(list.values(), items)
        }
        DataType::FixedSizeList(_, _) => memory_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => {
            let children = array.as_struct().columns();
            children.iter().map(|child| memory_bytes(child)).sum()
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            memory_bytes(dictionary.keys()) + share(dictionary.values(), rows)
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => of_runs::<Int16Type>(array),
            DataType::Int32 => of_runs::<Int32Type>(array),
            _ => of_runs::<Int64Type>(array),
        },
        DataType::Union(fields, mode) => {
            let union = array.as_union();
            let children = fields.iter().map(|(id, _)| match mode {
                UnionMode::Sparse => memory_bytes(union.child(id)),
                UnionMode::Dense => share(union.child(id), rows),
            });
            (rows * 5) as u64 + children.sum::<u64>()
        }
        _ => {
            let bytes = array.to_data().get_slice_memory_size();
            return bytes.unwrap_or_else(|_| array.get_array_memory_size()) as u64;
        }
    };
    values.saturating_add(validity)
}

/// Bytes of the offsets of lists and of the items between the first and the last.
fn of_lists<O: OffsetSizeTrait>(items: &ArrayRef, offsets: &OffsetBuffer<O>) -> u64 {
    let (start, end) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    let items = memory_bytes(&items.slice(start, end - start));
    (offsets.len() * size_of::<O>()) as u64 + items
}

/// Bytes of the runs that the rows are in.
fn of_runs<R: RunEndIndexType>(array: &dyn Array) -> u64 {
    match array.as_any().downcast_ref::<RunArray<R>>() {
        Some(runs) if !runs.is_empty() => {
            let (first, last) = (
                runs.get_start_physical_index(),
                runs.get_end_physical_index(),
            );
            let count = last - first + 1;
            (count * size_of::<R::Native>()) as u64
                + memory_bytes(&runs.values().slice(first, count))
        }
        _ => 0,
    }
}

/// Bytes of `rows` average rows of `values`, at most those of all.
fn share(values: &ArrayRef, rows: usize) -> u64 {
    let (rows, of) = (rows.min(values.len()), values.len().max(1));
    (u128::from(memory_bytes(values)) * rows as u128 / of as u128) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        DictionaryArray, Int32Array, ListArray, StringArray, StringViewArray, StructArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn slices_count_only_their_rows() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
        assert_eq!(memory_bytes(&array), 4000);
        assert_eq!(memory_bytes(&array.slice(10, 100)), 400);
        let long = "x".repeat(100);
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![long.as_str(), "short"]));
        assert_eq!(memory_bytes(&views), 132);
        assert_eq!(memory_bytes(&views.slice(1, 1)), 16);
    }

    #[test]
    fn slices_of_nested_arrays_count_only_their_items() {
        let items: ArrayRef = Arc::new(Int32Array::from_iter_values(0..3000));
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let offsets = OffsetBuffer::from_lengths([3; 1000]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, items, None));
        assert_eq!(memory_bytes(&lists.slice(10, 100)), 101 * 4 + 300 * 4);
        let field = Arc::new(Field::new("list", lists.data_type().clone(), true));
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(field, lists)]));
        assert_eq!(memory_bytes(&nested.slice(10, 100)), 101 * 4 + 300 * 4);

        let runs = Int32Array::from_iter_values((0..1000).map(|row| row / 100));
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let values = Arc::new(Field::new("values", DataType::Int32, true));
        let runs = cast(&runs, &DataType::RunEndEncoded(ends, values)).unwrap();
        assert_eq!(memory_bytes(&runs), 10 * 8);
        assert_eq!(memory_bytes(&runs.slice(150, 100)), 2 * 8);
    }

    #[test]
    fn few_rows_of_a_large_dictionary_count_few_of_its_values() {
        let values = StringArray::from_iter_values((0..1000).map(|i| format!("{i:096}")));
        let keys = Int32Array::from_iter_values(0..1000);
        let array: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
        let all = memory_bytes(&array);
        assert_eq!(all, 1000 * 4 + 1000 * 96 + 1001 * 4);
        assert_eq!(memory_bytes(&array.slice(0, 10)), all / 100);
    }
}
