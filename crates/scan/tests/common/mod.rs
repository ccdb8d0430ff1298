//! A table in memory to scan, and random rows for it.

use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::buffer::Buffer;
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use vectile_encodings::{BloomFilter, Column, EncodeOptions, ZoneMap, encode};
use vectile_scan::{Container, Error, Fetch, Result, RowGroupData, ValueFilter};

/// The statistics that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    None,
    RowGroups,
    Vectors,
    /// Nothing but Bloom filters, of the first column.
    Blooms,
}

/// Encoded columns in memory, a row group for each batch.
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    statistics: Statistics,
    zones: Vec<ZoneMap>,
    /// The requests received.
    pub fetches: Mutex<Vec<Fetch>>,
    /// Row groups whose Bloom filters were read.
    pub blooms_read: Mutex<Vec<usize>>,
}

impl Table {
    pub fn new(batches: Vec<RecordBatch>, statistics: Statistics) -> Self {
        let schema = batches[0].schema();
        let columns = 0..schema.fields().len();
        let zones = columns.map(|column| {
            let zones = batches
                .iter()
                .map(|batch| ZoneMap::of(batch.column(column)));
            let zones: Vec<ZoneMap> = zones.map(|zone| zone.unwrap().merge().unwrap()).collect();
            let joined = |bound: fn(&ZoneMap) -> &ArrayRef| {
                let bounds: Vec<_> = zones.iter().map(|zone| bound(zone).as_ref()).collect();
                concat(&bounds).unwrap()
            };
            ZoneMap {
                min: joined(|zone| &zone.min),
                max: joined(|zone| &zone.max),
                null_count: zones.iter().flat_map(|zone| &zone.null_count).collect(),
                exact: zones.iter().flat_map(|zone| &zone.exact).collect(),
            }
        });
        Self {
            zones: zones.collect(),
            schema,
            batches,
            statistics,
            fetches: Mutex::default(),
            blooms_read: Mutex::default(),
        }
    }

    /// All rows, before encoding.
    pub fn rows(&self) -> RecordBatch {
        concat_batches(&self.schema, &self.batches).unwrap()
    }

    fn array(&self, row_group: usize, column: usize) -> Result<&ArrayRef> {
        let columns = self.batches.get(row_group).map(RecordBatch::columns);
        let array = columns.and_then(|columns| columns.get(column));
        array.ok_or_else(|| Error::external(format!("there is no column {column}")))
    }
}

#[async_trait]
impl Container for Table {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn num_row_groups(&self) -> usize {
        self.batches.len()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.batches[row_group].num_rows()
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        let zones = self.zones.get(column);
        let has_zones = [Statistics::RowGroups, Statistics::Vectors].contains(&self.statistics);
        zones.filter(|_| has_zones)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let arrays = columns
            .iter()
            .flat_map(|&column| self.array(row_group, column));
        arrays.map(|array| array.get_array_memory_size()).sum()
    }

    async fn fetch(&self, fetch: &Fetch) -> Result<RowGroupData> {
        self.fetches.lock().unwrap().push(fetch.clone());
        let columns = self.schema.fields().len();
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: 0,
            bytes_cached: 0,
            excess_bytes: 0,
        };
        for &column in &fetch.data {
            let array = self.array(fetch.row_group, column)?;
            let bytes = encode(array, &EncodeOptions::default()).unwrap();
            data.bytes_read += bytes.len() as u64;
            let parsed = Column::parse(Buffer::from(bytes), array.data_type(), array.len());
            data.columns[column] = Some(parsed.unwrap());
        }
        if self.statistics == Statistics::Vectors {
            for &column in &fetch.zones {
                let zones = ZoneMap::of(self.array(fetch.row_group, column)?);
                data.zones[column] = Some(zones.unwrap());
            }
        }
        Ok(data)
    }

    fn has_bloom_filter(&self, _: usize, column: usize) -> bool {
        self.statistics == Statistics::Blooms && column == 0
    }

    async fn bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> Result<Vec<Box<dyn ValueFilter>>> {
        self.blooms_read.lock().unwrap().push(row_group);
        let columns = columns.iter();
        let filters = columns.map(|&column| {
            let filter = BloomFilter::of(self.array(row_group, column)?, 1e-9);
            Ok(Box::new(filter.unwrap().unwrap()) as _)
        });
        filters.collect()
    }
}

/// Pseudo-random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Null one time in `nulls`.
    fn or_null<T>(&mut self, nulls: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match self.below(nulls) {
            0 => None,
            _ => Some(value(self)),
        }
    }
}

pub const NAMES: [&str; 5] = ["ash", "beech", "birch", "elm", "oak"];

/// Batches with `rows` rows each: ascending ids, few and many numbers, few and many strings, with
/// nulls.
pub fn batches(random: &mut Random, rows: &[usize]) -> Vec<RecordBatch> {
    let mut id = 0;
    let batch = |&rows: &usize| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| {
            id += random.below(3) as i64;
            id
        })));
        let few = (0..rows).map(|_| random.or_null(9, |random| random.below(20) as i32));
        let few: ArrayRef = Arc::new(Int32Array::from_iter(few));
        let price = (0..rows).map(|_| random.or_null(50, |r| r.below(100_000) as f64 / 100.0));
        let price: ArrayRef = Arc::new(Float64Array::from_iter(price));
        let name = (0..rows).map(|_| random.or_null(7, |r| NAMES[r.below(5) as usize]));
        let name: ArrayRef = Arc::new(StringArray::from_iter(name));
        let text = (0..rows).map(|_| random.or_null(100, |r| format!("text {}", r.next() % 5000)));
        let text: ArrayRef = Arc::new(StringArray::from_iter(text));
        RecordBatch::try_from_iter_with_nullable([
            ("id", ids, false),
            ("few", few, true),
            ("price", price, true),
            ("name", name, true),
            ("text", text, true),
        ])
        .unwrap()
    };
    rows.iter().map(batch).collect()
}
