//! When a row group that fills is full: by its rows, or by their bytes.

use arrow::array::RecordBatch;
use vectile_encodings::VECTOR_LEN;

use crate::memory::arrow_bytes;

/// A row group ends when its rows take this many bytes as Arrow arrays, regardless of their number. Two of them, and
/// what encoding them needs, stay well below a gigabyte.
pub(crate) const ROW_GROUP_ARROW_BYTES: usize = 64 << 20;

/// The size of a row group that fills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowGroupSize {
    rows: usize,
    arrow_bytes: usize,
}

impl RowGroupSize {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the rows as Arrow arrays.
    pub fn arrow_bytes(&self) -> usize {
        self.arrow_bytes
    }

    /// Adds the rows of a batch.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows();
        self.arrow_bytes = self.arrow_bytes.saturating_add(arrow_bytes(batch));
    }

    /// The number of rows of `batch`, which has some, that still fit a row group of at most `most_rows`: at least one, and
    /// whole vectors if bytes end the row group.
    pub fn room(&self, most_rows: usize, batch: &RecordBatch) -> usize {
        self.room_for(most_rows, batch.num_rows(), arrow_bytes(batch))
    }

    fn room_for(&self, most_rows: usize, rows: usize, bytes: usize) -> usize {
        let by_rows = most_rows.saturating_sub(self.rows).clamp(1, rows.max(1));
        let row_bytes = (bytes / rows.max(1)).max(1);
        let by_bytes = ROW_GROUP_ARROW_BYTES.saturating_sub(self.arrow_bytes) / row_bytes;
        if by_rows <= by_bytes {
            return by_rows;
        }
        let end = self.rows + by_bytes;
        let whole_vectors = (end - end % VECTOR_LEN).saturating_sub(self.rows);
        let some = match whole_vectors {
            0 => by_bytes,
            vectors => vectors,
        };
        some.clamp(1, by_rows)
    }

    /// Returns true if nothing more is to be added.
    pub fn is_full(&self, most_rows: usize) -> bool {
        self.rows >= most_rows || self.arrow_bytes >= ROW_GROUP_ARROW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_end_at_rows_or_bytes() {
        let empty = RowGroupSize::default();
        assert_eq!(empty.room_for(1000, 400, 400), 400);
        assert_eq!(empty.room_for(1000, 4000, 4000), 1000);
        let filling = RowGroupSize {
            rows: 900,
            ..RowGroupSize::default()
        };
        assert_eq!(filling.room_for(1000, 400, 400), 100);
        // Rows of 32 KiB: 2048 fill a row group; rows of 100 MiB fill one each.
        assert_eq!(empty.room_for(1 << 18, 10_000, 10_000 << 15), 2048);
        assert_eq!(filling.room_for(1 << 18, 10_000, 10_000 << 15), 1148);
        assert_eq!(empty.room_for(1 << 18, 10, 1000 << 20), 1);
        let full = RowGroupSize {
            rows: 7,
            arrow_bytes: ROW_GROUP_ARROW_BYTES,
        };
        assert_eq!(full.room_for(1 << 18, 10, 1000), 1);
        assert!(full.is_full(1 << 18) && !filling.is_full(1000));
    }
}
