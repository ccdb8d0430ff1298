//! Tells which rows may be among the first of their window partition.
//!
//! ```text
//!  row ──▶ key of its partition ──▶ heap: order keys of the first rows so far, the last of them on top
//!      └─▶ order key ──────────────▶ behind the top of a full heap? dropped
//! ```
//!
//! Keys are compared as bytes, in arrow's row format.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{HashMap, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use super::rows::without_others;

/// Most window partitions. With more, each has few rows, and few are dropped.
const MOST_PARTITIONS: usize = 1 << 16;

/// Most order keys in all heaps.
const MOST_KEYS: usize = 1 << 22;

/// If, after so many rows, less than one in so many was dropped, the others pass as they are.
const FEW_ROWS: usize = 1 << 17;
const LEAST_SHARE: usize = 4;

/// Bytes of an order key beside the key: its place in a heap that has as many free ones, and the allocator's share.
const KEY_BYTES: usize = 2 * size_of::<Box<[u8]>>() + 16;

/// Bytes of a window partition beside its key.
const PARTITION_BYTES: usize = 2 * size_of::<(Vec<u8>, Heap)>() + 16;

/// Order keys; the last one is on top.
type Heap = BinaryHeap<Box<[u8]>>;

/// Which rows are needed.
#[derive(Clone, Debug)]
pub(super) struct Need {
    /// Number of rows of each partition, at least 1.
    pub(super) first: usize,
    pub(super) partition_by: Vec<Arc<dyn PhysicalExpr>>,
    /// At least one key.
    pub(super) order_by: Vec<PhysicalSortExpr>,
}

/// The first rows of each window partition, among those that were added.
pub(super) struct FirstRows {
    need: Need,
    partitions: RowConverter,
    order: RowConverter,
    /// `None` when there are too many: from then on all rows are kept.
    heaps: Option<Heaps>,
    memory: MemoryReservation,
}

#[derive(Default)]
struct Heaps {
    by_partition: HashMap<Vec<u8>, Heap>,
    num_keys: usize,
    num_rows: usize,
    num_dropped: usize,
    num_bytes: usize,
}

impl FirstRows {
    /// No rows of columns `schema`.
    pub(super) fn new(need: Need, schema: &Schema, memory: MemoryReservation) -> Result<Self> {
        let partition_by = need.partition_by.iter();
        let fields = partition_by.map(|key| Ok(SortField::new(key.data_type(schema)?)));
        let partitions = RowConverter::new(fields.collect::<Result<_>>()?)?;
        let fields = need.order_by.iter().map(|key| {
            let data_type = key.expr.data_type(schema)?;
            Ok(SortField::new_with_options(data_type, key.options))
        });
        let order = RowConverter::new(fields.collect::<Result<_>>()?)?;
        Ok(Self {
            need,
            partitions,
            order,
            heaps: Some(Heaps::default()),
            memory,
        })
    }

    /// Adds rows. Returns those that are not known to have `first` rows of their partition before them, of which each
    /// precedes them in order: equal ones don't count. `None` if there are none.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let rows = batch.num_rows();
        let heaps = self.heaps.as_mut().filter(|_| rows > 0);
        let Some(heaps) = heaps else {
            return Ok((rows > 0).then_some(batch));
        };
        let keys = self.need.partition_by.iter();
        let partitions = encoded(&self.partitions, keys, &batch)?;
        let keys = self.need.order_by.iter().map(|key| &key.expr);
        let order = encoded(&self.order, keys, &batch)?;
        // Without keys there is one partition, and no row in `partitions`.
        let mut partitions = partitions.iter().map(|key| key.data());
        let is_kept = order.iter().map(|key| {
            let partition = partitions.next().unwrap_or_default();
            Some(heaps.add(partition, key.data(), self.need.first))
        });
        let is_kept: BooleanArray = is_kept.collect();
        let num_kept = is_kept.true_count();
        heaps.num_rows += rows;
        heaps.num_dropped += rows - num_kept;
        if heaps.are_too_many() || self.memory.try_resize(heaps.num_bytes).is_err() {
            self.heaps = None;
            self.memory.free();
        }
        Ok(match num_kept {
            0 => None,
            kept if kept == rows => Some(batch),
            kept => {
                let few = filter_record_batch(&batch, &is_kept)?;
                Some(if kept < rows / 2 { compact(few)? } else { few })
            }
        })
    }
}

impl Heaps {
    /// Adds a row; false if it is behind the `first` ones of its partition.
    fn add(&mut self, partition: &[u8], key: &[u8], first: usize) -> bool {
        let num_partitions = self.by_partition.len();
        let heap = self.by_partition.entry_ref(partition).or_default();
        if heap.len() < first {
            heap.push(key.into());
            self.num_keys += 1;
            self.num_bytes += key.len() + KEY_BYTES;
            if self.by_partition.len() > num_partitions {
                self.num_bytes += partition.len() + PARTITION_BYTES;
            }
            return true;
        }
        let Some(mut last) = heap.peek_mut() else {
            return true;
        };
        let order = key.cmp(&**last);
        if order == Ordering::Less {
            self.num_bytes = (self.num_bytes + key.len()).saturating_sub(last.len());
            *last = key.into();
        }
        order != Ordering::Greater
    }

    /// True if so many keys are kept that it takes too much memory, or more time than dropping rows saves.
    fn are_too_many(&self) -> bool {
        // rows that come in the order of the keys, or are equal, are kept one after the other
        let is_idle = self.num_rows > FEW_ROWS && self.num_dropped < self.num_rows / LEAST_SHARE;
        is_idle || self.num_keys > MOST_KEYS || self.by_partition.len() > MOST_PARTITIONS
    }
}

/// The values of `keys`, one row for each of `batch`.
fn encoded<'a>(
    converter: &RowConverter,
    keys: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    batch: &RecordBatch,
) -> Result<Rows> {
    let columns = keys.map(|key| key.evaluate(batch)?.into_array(batch.num_rows()));
    let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
    Ok(converter.convert_columns(&columns)?)
}

/// The same rows without the text of others, which a sort would keep.
fn compact(batch: RecordBatch) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().cloned().map(without_others);
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns.collect(),
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::compute::SortOptions;
    use arrow::datatypes::{DataType, Field, Int64Type};
    use datafusion::execution::memory_pool::{
        GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
    };
    use datafusion::physical_expr::expressions::col;

    use super::*;

    type Row = (Option<&'static str>, Option<i64>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let (names, values): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
        RecordBatch::try_new(
            Arc::new(schema()),
            vec![
                Arc::new(StringViewArray::from(names)),
                Arc::new(Int64Array::from(values)),
            ],
        )
        .unwrap()
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("name", DataType::Utf8View, true),
            Field::new("value", DataType::Int64, true),
        ])
    }

    fn first_rows(first: usize, options: SortOptions, pool: &Arc<dyn MemoryPool>) -> FirstRows {
        let (name, value) = (
            col("name", &schema()).unwrap(),
            col("value", &schema()).unwrap(),
        );
        let need = Need {
            first,
            partition_by: vec![name],
            order_by: vec![PhysicalSortExpr::new(value, options)],
        };
        let memory = MemoryConsumer::new("test").register(pool);
        FirstRows::new(need, &schema(), memory).unwrap()
    }

    /// As in SQL.
    const ASCENDING: SortOptions = SortOptions {
        descending: false,
        nulls_first: false,
    };

    fn unbounded() -> Arc<dyn MemoryPool> {
        Arc::new(UnboundedMemoryPool::default())
    }

    fn values(batch: Option<RecordBatch>) -> Vec<Option<i64>> {
        let column = batch.map(|batch| Arc::clone(batch.column(1)));
        column.map_or(vec![], |column| {
            column.as_primitive::<Int64Type>().iter().collect()
        })
    }

    #[test]
    fn rows_behind_enough_others_are_dropped() {
        let mut rows = first_rows(2, ASCENDING, &unbounded());
        let added = rows.add(batch(&[
            (Some("a"), Some(5)),
            (Some("a"), Some(5)),
            (Some("a"), Some(6)),
            (None, Some(6)),
            (Some("a"), Some(5)),
            (Some("a"), Some(1)),
            (Some("a"), Some(5)),
        ]));
        let kept = [5, 5, 6, 5, 1, 5].map(Some);
        assert_eq!(values(added.unwrap()), kept);
        // a null comes last, and is a partition of its own
        let added = rows.add(batch(&[
            (Some("a"), Some(2)),
            (Some("a"), Some(5)),
            (Some("a"), None),
            (None, None),
            (None, None),
        ]));
        assert_eq!(values(added.unwrap()), [Some(2), None, None]);
        assert_eq!(
            values(rows.add(batch(&[(None, Some(9))])).unwrap()),
            [Some(9)]
        );
        assert_eq!(rows.add(batch(&[(None, None)])).unwrap(), None);
        assert_eq!(rows.add(batch(&[])).unwrap(), None);
    }

    #[test]
    fn nulls_and_directions_are_those_of_the_order() {
        let null = None::<i64>;
        for (descending, nulls_first, dropped) in [
            (false, false, null),
            (false, true, Some(3)),
            (true, false, null),
            (true, true, Some(1)),
        ] {
            let options = SortOptions {
                descending,
                nulls_first,
            };
            let mut rows = first_rows(1, options, &unbounded());
            let all = [null, Some(1), Some(3)];
            let first = all.into_iter().filter(|value| *value != dropped);
            let first: Vec<Row> = first.map(|value| (None, value)).collect();
            rows.add(batch(&first)).unwrap();
            let last = rows.add(batch(&[(None, dropped)])).unwrap();
            assert_eq!(last, None, "{options:?}");
        }
    }

    #[test]
    fn without_memory_all_rows_are_kept() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let mut rows = first_rows(1, ASCENDING, &pool);
        rows.add(batch(&[(None, Some(1))])).unwrap();
        assert!(pool.reserved() > 0);
        let more: Vec<i64> = (2..9).collect();
        let more_of = |name| -> Vec<Row> { more.iter().map(|&n| (name, Some(n))).collect() };
        assert_eq!(rows.add(batch(&more_of(None))).unwrap(), None);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let names: Vec<Row> = names.map(|name| (Some(name), Some(1))).to_vec();
        assert_eq!(values(rows.add(batch(&names)).unwrap()).len(), names.len());
        assert_eq!(pool.reserved(), 0);
        let all = rows.add(batch(&more_of(None))).unwrap();
        assert_eq!(values(all).len(), more.len());
    }

    #[test]
    fn keys_for_nothing_are_given_up() {
        let pool = unbounded();
        let mut rows = first_rows(10_000, ASCENDING, &pool);
        let end = FEW_ROWS as i64;
        let names = [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
        ];
        let mut all = (0..=end).zip(names.into_iter().cycle());
        let mut num_kept = 0;
        loop {
            let next = all.by_ref().take(8192);
            let next: Vec<Row> = next.map(|(n, name)| (Some(name), Some(n))).collect();
            if next.is_empty() {
                break;
            }
            num_kept += values(rows.add(batch(&next)).unwrap()).len();
        }
        assert_eq!(num_kept, FEW_ROWS + 1);
        assert!(rows.heaps.is_none());
        assert_eq!(pool.reserved(), 0);
    }
}
