//! A format of containers that is added to a session by a line: Arrow IPC files, a row group for each record batch.
//! Scans filter and prune it, a device decodes it, and SQL answers as over the rows in memory.

use std::fs;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Float64Type, SchemaRef};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::physical_plan::collect;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use vectile_datafusion::register_format;
use vectile_encodings::streams::{ByteStream, StreamColumn, StreamValues};
use vectile_encodings::{Column, ZoneMap};
use vectile_scan::object::{ReadBuffers, ReadError, ReadOptions};
use vectile_scan::{
    Container, ContainerFormat, Error, Fetch, FileContainer, FileMetadata, Result, RowGroupData,
    StreamData,
};

use crate::support::{Fixture, ROW_GROUP_ROWS, metric, table};

/// Arrow IPC files, which are read as a whole.
#[derive(Debug)]
struct Ipc;

/// A file in memory, which is its own metadata.
struct IpcFile {
    location: Path,
    schema: SchemaRef,
    row_groups: Vec<RecordBatch>,
    zones: Vec<Option<ZoneMap>>,
    checksum: u32,
}

#[async_trait]
impl ContainerFormat for Ipc {
    fn name(&self) -> &'static str {
        "ipc"
    }

    async fn read_metadata(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> Result<Arc<dyn FileMetadata>> {
        let location = object.location.clone();
        let read = async { store.get(&location).await?.bytes().await };
        let bytes = read.await;
        let bytes = bytes.map_err(|error| Error::external(ReadError::from(error)))?;
        let of_file = |error| Error::external(format!("{location}: {error}"));
        let reader = FileReader::try_new(std::io::Cursor::new(&bytes), None).map_err(of_file)?;
        let schema = reader.schema();
        let row_groups: Vec<RecordBatch> = reader.collect::<Result<_, _>>().map_err(of_file)?;
        let zones = (0..schema.fields().len()).map(|column| zones(&row_groups, column));
        Ok(Arc::new(IpcFile {
            zones: zones.collect(),
            checksum: bytes.iter().fold(0, |sum: u32, byte| {
                sum.wrapping_mul(31).wrapping_add((*byte).into())
            }),
            location,
            schema,
            row_groups,
        }))
    }
}

/// The bounds of a column in each row group.
fn zones(row_groups: &[RecordBatch], column: usize) -> Option<ZoneMap> {
    let zones = row_groups.iter().map(|rows| {
        let vectors = ZoneMap::of(rows.column(column)).ok()?;
        vectors.merge().ok()
    });
    let zones: Vec<ZoneMap> = zones.collect::<Option<_>>()?;
    let join = |part: &dyn Fn(&ZoneMap) -> ArrayRef| {
        let parts: Vec<ArrayRef> = zones.iter().map(part).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        concat(&parts).ok()
    };
    Some(ZoneMap {
        min: join(&|zone| Arc::clone(&zone.min))?,
        max: join(&|zone| Arc::clone(&zone.max))?,
        null_count: join(&|zone| Arc::new(zone.null_count.clone()))?
            .as_primitive()
            .clone(),
        exact: join(&|zone| Arc::new(zone.exact.clone()))?
            .as_boolean()
            .clone(),
    })
}

impl FileMetadata for IpcFile {
    fn memory_size(&self) -> usize {
        let sizes = self
            .row_groups
            .iter()
            .map(RecordBatch::get_array_memory_size);
        sizes.sum()
    }

    fn num_row_groups(&self) -> usize {
        self.row_groups.len()
    }

    fn open(
        self: Arc<Self>,
        _store: Arc<dyn ObjectStore>,
        _location: &Path,
        _options: ReadOptions,
    ) -> Arc<dyn FileContainer> {
        self
    }
}

#[async_trait]
impl Container for IpcFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn num_row_groups(&self) -> usize {
        self.row_groups.len()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.row_groups[row_group].num_rows()
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.zones.get(column)?.as_ref()
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let columns = columns
            .iter()
            .map(|&column| self.row_groups[row_group].column(column));
        columns.map(|column| column.get_array_memory_size()).sum()
    }

    async fn fetch(&self, fetch: &Fetch) -> Result<RowGroupData> {
        let columns = self.schema.fields().len();
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: self.data_bytes(fetch.row_group, &fetch.data) as u64,
            bytes_cached: 0,
            excess_bytes: 0,
        };
        let rows = &self.row_groups[fetch.row_group];
        for &column in &fetch.zones {
            data.zones[column] = ZoneMap::of(rows.column(column)).ok();
        }
        for &column in &fetch.data {
            let values = Column::plain(rows.column(column));
            let values = values.map_err(|error| self.error(fetch.row_group, column, error))?;
            data.columns[column] = Some(values);
        }
        Ok(data)
    }
}

#[async_trait]
impl FileContainer for IpcFile {
    fn location(&self) -> &Path {
        &self.location
    }

    fn row_group_start(&self, row_group: usize) -> u64 {
        row_group as u64
    }

    fn checksum(&self) -> u32 {
        self.checksum
    }

    /// A column of floats is one stream, of the values that are not null.
    async fn stream_columns(
        &self,
        row_group: usize,
        columns: &[usize],
        _buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        let rows = &self.row_groups[row_group];
        let streams = columns.iter().filter_map(|&column| {
            let array = rows.column(column).as_primitive_opt::<Float64Type>()?;
            let values: Vec<f64> = array.iter().flatten().collect();
            let stream = StreamColumn {
                data_type: DataType::Float64,
                rows: array.len(),
                nulls: array.nulls().cloned(),
                values: StreamValues::Floats(ByteStream::uncompressed(values)),
            };
            Some((column, stream))
        });
        Ok(StreamData {
            columns: streams.collect(),
            bytes_read: self.data_bytes(row_group, columns) as u64,
        })
    }
}

impl Fixture {
    /// Adds the format, and [`table`] as `plain` in memory and as `packed` in a file of it.
    async fn with_ipc(self) -> Self {
        register_format(&self.ctx, &Ipc).unwrap();
        let rows = table();
        let path = self.path("rows.ipc");
        let file = fs::File::create(&path).unwrap();
        let mut writer = FileWriter::try_new(file, &rows.schema()).unwrap();
        for start in (0..rows.num_rows()).step_by(ROW_GROUP_ROWS) {
            let count = ROW_GROUP_ROWS.min(rows.num_rows() - start);
            writer.write(&rows.slice(start, count)).unwrap();
        }
        writer.finish().unwrap();
        let sql = "CREATE EXTERNAL TABLE packed STORED AS IPC LOCATION";
        self.run(&format!("{sql} '{}'", path.display()))
            .await
            .unwrap();
        self.ctx.register_batch("plain", rows).unwrap();
        self
    }
}

#[tokio::test]
async fn a_format_is_scanned_with_filters() {
    let fixture = Fixture::empty().with_ipc().await;
    for sql in [
        "SELECT * FROM {t} ORDER BY id",
        "SELECT min(id), max(id), count(price), min(name), max(name) FROM {t}",
        "SELECT id, text FROM {t} WHERE name LIKE 'b%' AND int < 0 ORDER BY id",
        "SELECT name, count(*), sum(price) FROM {t} WHERE flag GROUP BY name ORDER BY name",
        "SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.int",
    ] {
        fixture.same(sql).await;
    }
    let sql = "SELECT name FROM packed WHERE id BETWEEN 5000 AND 5009";
    let plan = fixture.plan(sql).await;
    assert!(plan.contains("file_type=ipc"), "{plan}");
    assert!(plan.contains("encoded=["), "{plan}");
    let (plan, rows) = fixture.executed(sql).await;
    assert_eq!(rows, 10);
    assert_eq!(metric(&plan, "row_groups_pruned_statistics"), 2);
    assert_eq!(metric(&plan, "vectors_pruned_statistics"), 3);
    assert_eq!(metric(&plan, "rows_decoded"), 10);
}

#[tokio::test]
async fn a_device_decodes_a_format() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let fixture = fixture.with_ipc().await;
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    let sql = "SELECT flag, count(*), sum(int), count(float), \
               min(float) FILTER (WHERE float BETWEEN 1.5 AND 40) FROM {t} GROUP BY flag ORDER BY flag";
    let plan = fixture.ctx.sql(&sql.replace("{t}", "packed")).await;
    let plan = plan.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), fixture.ctx.task_ctx())
        .await
        .unwrap();
    assert_eq!(metric(&plan, "fallbacks"), 0);
    assert_eq!(metric(&plan, "columns_decoded_on_gpu"), 3);
    fixture.same(sql).await;
}

#[tokio::test]
async fn errors_and_options_of_a_format() {
    let fixture = Fixture::empty().with_ipc().await;
    let path = fixture.path("damaged.ipc");
    fs::write(&path, "ARROW1 and no more").unwrap();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS IPC LOCATION '{}'",
        path.display()
    );
    let error = fixture.run(&sql).await.unwrap_err().to_string();
    assert!(error.contains("damaged.ipc: "), "{error}");
    let sql = format!("{sql} OPTIONS ('x' 'y')");
    let error = fixture.run(&sql).await.unwrap_err().to_string();
    assert!(
        error.contains("tables of IPC files have no option"),
        "{error}"
    );
    // cached metadata of one format is none of another
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS ORC LOCATION '{}'",
        fixture.path("rows.ipc").display()
    );
    let error = fixture.run(&sql).await.unwrap_err().to_string();
    assert!(error.contains("rows.ipc is not an ORC file"), "{error}");
}
