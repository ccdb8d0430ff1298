//! Values to be written on a device: their description when a chunk for them is laid out.

use arrow::array::ArrayRef;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

/// Values that are written on a device.
#[derive(Debug)]
pub struct Unwritten<'a> {
    /// The column's type.
    pub data_type: &'a DataType,
    /// Its rows.
    pub rows: usize,
    /// The null rows.
    pub nulls: Option<&'a NullBuffer>,
    /// Kind and bounds of the values.
    pub values: UnwrittenValues<'a>,
    /// See [`ChunkInfo::sample`](crate::ChunkInfo::sample).
    pub sample: Option<ArrayRef>,
}

/// Kind and bounds of values that are written on a device.
#[derive(Clone, Copy, Debug)]
pub enum UnwrittenValues<'a> {
    /// Integers: the least and the greatest of each vector, reversed if it has none.
    Integers(&'a [(i64, i64)]),
    /// Codes of distinct values: their least and greatest of each vector, as for integers; and the values.
    Codes(&'a [(i64, i64)], &'a ArrayRef),
    /// Floats.
    Floats,
    /// Integers that are stored as they are: bounds of all.
    Plain(i128, i128),
    /// Strings: their lengths, 0 for nulls.
    Strings(&'a [u64]),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;

    use super::*;
    use crate::{DeviceChunk, Transform};

    /// A column of 1500 rows.
    fn laid_out(data_type: &DataType, values: UnwrittenValues<'_>) -> crate::Result<DeviceChunk> {
        DeviceChunk::of_unwritten(Unwritten {
            data_type,
            rows: 1500,
            nulls: None,
            values,
            sample: None,
        })
    }

    /// Bytes behind a front.
    fn body(chunk: &DeviceChunk) -> usize {
        chunk.info().bytes - chunk.front_bytes()
    }

    #[test]
    fn integers_have_room_for_their_bounds() {
        let bounds = [(-5, 1000), (i64::MIN, i64::MAX)];
        let chunk = laid_out(&DataType::Int64, UnwrittenValues::Integers(&bounds)).unwrap();
        assert_eq!(chunk.reference(), i64::MIN.into());
        // 10 bits, and a low and a high plane of 32
        assert_eq!(body(&chunk), (10 + 64) * 128 + DeviceChunk::SLACK_BYTES);
        let traits = &chunk.info().traits;
        assert!(traits.has(Transform::Integers) && traits.wide_entries);
        assert_eq!(traits.bounds, Some((i64::MIN.into(), i64::MAX.into())));
        let none = [(i64::MAX, i64::MIN), (7, 7)];
        let chunk = laid_out(&DataType::Date32, UnwrittenValues::Integers(&none)).unwrap();
        assert_eq!(
            (chunk.reference(), body(&chunk)),
            (7, DeviceChunk::SLACK_BYTES)
        );
        let text = laid_out(&DataType::Utf8, UnwrittenValues::Integers(&none));
        assert!(text.is_err());
    }

    #[test]
    fn codes_are_of_entries() {
        let entries: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let of = |most| {
            let bounds = [(0, 1), (1, most)];
            let values = UnwrittenValues::Codes(&bounds, &entries);
            laid_out(&DataType::Utf8, values).map(|chunk| chunk.info().codes)
        };
        assert_eq!(of(2).unwrap(), 3);
        assert!(of(3).is_err());
    }

    #[test]
    fn strings_and_floats_have_room() {
        let lengths: Vec<u64> = (0..1500).collect();
        let chunk = laid_out(&DataType::Utf8, UnwrittenValues::Strings(&lengths)).unwrap();
        let bytes = (body(&chunk) - DeviceChunk::SLACK_BYTES) as u64;
        let sum = lengths.iter().sum::<u64>();
        assert!((sum..sum + 256).contains(&bytes), "{bytes}");
        let too_long = laid_out(&DataType::Utf8, UnwrittenValues::Strings(&[u64::MAX; 1500]));
        assert!(too_long.is_err());
        let chunk = laid_out(&DataType::Float32, UnwrittenValues::Floats).unwrap();
        assert_eq!(body(&chunk), 2048 * 4 + DeviceChunk::SLACK_BYTES);
        assert!(laid_out(&DataType::Int32, UnwrittenValues::Floats).is_err());
        let chunk = laid_out(&DataType::Decimal128(38, 2), UnwrittenValues::Plain(-7, 9)).unwrap();
        assert_eq!(body(&chunk), 2048 * 16 + DeviceChunk::SLACK_BYTES);
        assert_eq!(chunk.info().traits.bounds, Some((-7, 9)));
        assert!(laid_out(&DataType::Float64, UnwrittenValues::Plain(0, 1)).is_err());
    }
}
