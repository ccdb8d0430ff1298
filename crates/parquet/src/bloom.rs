//! Bloom filters of a column in a row group: split blocks, over xxHash of the stored bytes of a value.

use std::fmt;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type, UInt64Type};
use parquet::basic::Type as PhysicalType;
use parquet::bloom_filter::Sbbf;
use vectile_scan::ValueFilter;

use crate::error::contain;
use crate::schema::{Flat, Stored};

/// The filter of a column in one row group.
pub(crate) struct BloomFilter {
    /// `None` if it could not be parsed: then any value may be there.
    filter: Option<Sbbf>,
    physical: PhysicalType,
    bytes: usize,
}

impl BloomFilter {
    /// Returns true if this crate understands Bloom filters of a column.
    pub(crate) fn apply_to(flat: &Flat) -> bool {
        // decimals have bytes of several lengths
        matches!(
            flat.stored,
            Some(Stored::Integer { .. } | Stored::Text | Stored::Binary)
        )
    }

    /// Parses a filter: a header, and as many bits as it says. One that is damaged, or of a kind that is not known, excludes
    /// nothing, as for other readers.
    pub(crate) fn parse(bytes: &[u8], flat: &Flat) -> Self {
        Self {
            filter: contain(|| Ok(Sbbf::from_bytes(bytes)?)).ok(),
            physical: flat.physical,
            bytes: bytes.len(),
        }
    }

    /// Returns true if one of the values of a type of integers, dates or times may be there; `None` for other types.
    fn may_contain_integer(&self, filter: &Sbbf, values: &dyn Array) -> Option<bool> {
        let is_of = |value: i64| match self.physical {
            PhysicalType::INT32 => filter.check(&(value as i32)),
            _ => filter.check(&value),
        };
        Some(match values.data_type() {
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                let values = cast(values, &DataType::UInt64).ok()?;
                let mut values = values.as_primitive::<UInt64Type>().iter().flatten();
                values.any(|value| is_of(value as i64))
            }
            DataType::Int8 | DataType::Int16 | DataType::Date32 | DataType::Time32(_) => {
                let values = cast(values, &DataType::Int32).ok()?;
                let mut values = values.as_primitive::<Int32Type>().iter().flatten();
                values.any(|value| is_of(value.into()))
            }
            DataType::Int32
            | DataType::Int64
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Duration(_) => {
                let values = cast(values, &DataType::Int64).ok()?;
                let mut values = values.as_primitive::<Int64Type>().iter().flatten();
                values.any(is_of)
            }
            _ => return None,
        })
    }

    /// As [`may_contain_integer`](Self::may_contain_integer), for text and binary.
    fn may_contain_bytes(filter: &Sbbf, values: &dyn Array) -> Option<bool> {
        let values = match values.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                cast(values, &DataType::Utf8View).ok()?
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                let values = cast(values, &DataType::BinaryView).ok()?;
                let mut values = values.as_binary_view().iter().flatten();
                return Some(values.any(|value| filter.check(value)));
            }
            _ => return None,
        };
        let mut values = values.as_string_view().iter().flatten();
        Some(values.any(|value| filter.check(value)))
    }
}

impl ValueFilter for BloomFilter {
    fn may_contain(&self, values: &dyn Array) -> vectile_encodings::Result<bool> {
        let filter = self.filter.as_ref();
        let Some(filter) = filter.filter(|filter| filter.num_blocks() > 0) else {
            return Ok(true);
        };
        let known = match self.physical {
            PhysicalType::BYTE_ARRAY => Self::may_contain_bytes(filter, values),
            _ => self.may_contain_integer(filter, values),
        };
        Ok(known.unwrap_or(true))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for BloomFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloomFilter")
            .field("physical", &self.physical)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn damaged_filters_exclude_nothing() {
        let flat = Flat {
            leaf: 0,
            physical: PhysicalType::BYTE_ARRAY,
            stored: Some(Stored::Text),
            has_order: true,
        };
        let values = StringArray::from(vec!["a"]);
        for bytes in [&b""[..], b"no filter", &[0xff; 64]] {
            let filter = BloomFilter::parse(bytes, &flat);
            assert!(filter.may_contain(&values).unwrap());
            assert_eq!(filter.bytes(), bytes.len());
        }
    }
}
