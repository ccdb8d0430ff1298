//! The source of row groups.

use std::fmt::Debug;

use arrow::array::Array;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use vectile_encodings::{BloomFilter, Column, ZoneMap};

use crate::error::{Error, Result};

/// The parts of one row group to read: columns by their index in the schema, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetch {
    /// The row group.
    pub row_group: usize,
    /// Columns whose values to read.
    pub data: Vec<usize>,
    /// Columns whose per-vector zone maps to read.
    pub zones: Vec<usize>,
}

/// The parts read of one row group.
#[derive(Debug)]
pub struct RowGroupData {
    /// Per column of the schema, its values if they were requested.
    pub columns: Vec<Option<Column>>,
    /// Per column of the schema, its per-vector zone map if it was requested and there is one.
    pub zones: Vec<Option<ZoneMap>>,
    /// Bytes requested. Stores may read the gaps between them as well.
    pub bytes_read: u64,
    /// Bytes of memory of the parts that came from a cache instead.
    pub bytes_cached: u64,
    /// Bytes of memory that the columns take beyond [`Container::data_bytes`].
    pub excess_bytes: usize,
}

/// A set that may exclude values from a column in a row group, such as a Bloom filter.
pub trait ValueFilter: Debug + Send + Sync {
    /// Returns true if one of `values` may be in the column. They are of the column's type, or of the type of its
    /// dictionary values.
    ///
    /// # Errors
    ///
    /// If filters of the type are not supported.
    fn may_contain(&self, values: &dyn Array) -> vectile_encodings::Result<bool>;

    /// Size in bytes.
    fn bytes(&self) -> usize;

    /// Returns true if it came from a cache and was not read.
    fn is_cached(&self) -> bool {
        false
    }
}

impl ValueFilter for BloomFilter {
    fn may_contain(&self, values: &dyn Array) -> vectile_encodings::Result<bool> {
        BloomFilter::may_contain(self, values)
    }

    fn bytes(&self) -> usize {
        BloomFilter::bytes(self).len()
    }
}

/// Rows in row groups whose columns are encoded: a file, or a table in memory.
///
/// Statistics are hints. Where a container has none, a scan reads more and returns the same rows.
#[async_trait]
pub trait Container: Send + Sync {
    /// The schema of the rows.
    fn schema(&self) -> &SchemaRef;

    /// The number of row groups.
    fn num_row_groups(&self) -> usize;

    /// The number of rows of a row group. Callers pass the index of an existing row group.
    fn rows(&self, row_group: usize) -> usize;

    /// Minimum, maximum and null count of a column, one entry for each row group; `None` if they are
    /// not known, or there is no such column.
    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap>;

    /// Bytes of memory that the values of `columns` take once they are fetched. There may be no such
    /// column.
    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize;

    /// Reads values and zone maps.
    ///
    /// A scan requests the zone maps of filtered columns first, and then at once all values that it expects to need.
    ///
    /// # Errors
    ///
    /// [`Error::External`] with the container's own error, also if there is no such row group or
    /// column.
    async fn fetch(&self, fetch: &Fetch) -> Result<RowGroupData>;

    /// Returns true if a column has a Bloom filter in a row group.
    fn has_bloom_filter(&self, _row_group: usize, _column: usize) -> bool {
        false
    }

    /// Reads the Bloom filters of `columns`, which are ascending and all have one.
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch).
    async fn bloom_filters(
        &self,
        _row_group: usize,
        _columns: &[usize],
    ) -> Result<Vec<Box<dyn ValueFilter>>> {
        Ok(Vec::new())
    }

    /// Adds the row group and the column to an error of filtering or decoding.
    fn error(&self, row_group: usize, column: usize, source: vectile_encodings::Error) -> Error {
        Error::Encoding {
            row_group,
            column,
            source,
        }
    }
}
