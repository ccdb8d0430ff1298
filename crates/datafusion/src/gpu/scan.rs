//! The filters of a scan on the GPU, and its projection where that has no text.
//!
//! The scan stays what it is: a stream of row groups that follows limits, orders and dynamic
//! filters. Of a row group it gets the selected rows from here instead of evaluating its filters.
//! Where the GPU fails it evaluates them after all.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::ObjectMeta;
use vectile_encodings::Selection;
use vectile_gpu::ir::{Output, Pipeline};
use vectile_gpu::{Engine, Error, Rows};

use super::load::{GpuFile, Part, Reads, interrupted, look_up};
use super::metrics::GpuMetrics;
use crate::error;
use crate::fetch::ScanFile;
use crate::options::GpuMode;

/// What a scan has the GPU do.
#[derive(Clone, Debug)]
pub(crate) struct GpuScan {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pipeline: Arc<Pipeline>,
    /// The pipeline's columns, by their index in the table's schema.
    pub(crate) columns: Vec<usize>,
    pub(crate) mode: GpuMode,
    /// Where the files are.
    pub(crate) store: ObjectStoreUrl,
}

impl fmt::Display for GpuScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.pipeline.output {
            Output::Rows(_) => "filter and project",
            _ => "filter",
        };
        write!(f, "{what} on {}", self.engine.device().name)
    }
}

impl GpuScan {
    /// For one file; `None` if that has to be scanned without.
    pub(crate) fn open(
        &self,
        file: Arc<ScanFile>,
        object: &ObjectMeta,
        table: &Schema,
        metrics: GpuMetrics,
    ) -> Result<Option<Arc<Selector>>> {
        let reads = Reads {
            engine: &self.engine,
            store: &self.store,
            table,
            columns: &self.columns,
        };
        match reads.of_file(file, object) {
            Ok(file) => Ok(Some(Arc::new(Selector {
                file: Arc::new(file),
                scan: self.clone(),
                metrics,
            }))),
            Err(error) if self.mode == GpuMode::Require => Err(error::required(error)),
            Err(error) => {
                metrics.add_fallback(error);
                Ok(None)
            }
        }
    }
}

/// Selects rows of one file.
pub(crate) struct Selector {
    file: Arc<GpuFile>,
    scan: GpuScan,
    metrics: GpuMetrics,
}

/// The rows of a row group that pass the filters.
pub(crate) enum Selected {
    /// Which they are.
    Rows(Selection),
    /// What they come to.
    Batch(RecordBatch),
}

impl Selector {
    /// Whether this gives the batches of the scan, and not only its rows.
    pub(crate) fn projects(&self) -> bool {
        matches!(self.scan.pipeline.output, Output::Rows(_))
    }

    /// The selected rows of a row group, projected to `schema` if [`Self::projects`]; `None` if the
    /// CPU has to find them.
    pub(crate) async fn select(
        &self,
        row_group: usize,
        schema: &SchemaRef,
        reservation: MemoryReservation,
    ) -> Result<Option<Selected>> {
        match self.try_select(row_group, schema, reservation).await {
            Ok(selected) => Ok(Some(selected)),
            Err(error) if self.scan.mode == GpuMode::Require => Err(error::required(error)),
            Err(error) => {
                self.metrics.add_fallback(error);
                Ok(None)
            }
        }
    }

    async fn try_select(
        &self,
        row_group: usize,
        schema: &SchemaRef,
        reservation: MemoryReservation,
    ) -> Result<Selected> {
        let part = Part::new(Arc::clone(&self.file), row_group);
        let (engine, metrics) = (Arc::clone(&self.scan.engine), self.metrics.clone());
        let look_up = SpawnedTask::spawn_blocking(move || look_up(&engine, vec![part], &metrics));
        let mut looked_up = look_up.join().await.map_err(interrupted)?;
        let group = match (looked_up.groups.pop(), looked_up.missing.pop()) {
            (None, Some(found)) => {
                let load = found.load(self.metrics.clone(), reservation);
                load.await?.group
            }
            (Some(group), _) => group,
            (None, None) => return internal_err!("nothing was looked up"),
        };
        self.metrics.rows.add(group.rows);
        let mut execution = self.scan.engine.start(Arc::clone(&self.scan.pipeline));
        let (projects, schema) = (self.projects(), Arc::clone(schema));
        let run = SpawnedTask::spawn_blocking(move || {
            let groups = [group];
            let selected = match projects {
                true => {
                    let rows = execution.rows(&groups).map_err(error::gpu)?.pop();
                    let Rows { count, columns } = rows.unwrap_or_default();
                    Selected::Batch(batch(columns, count, schema)?)
                }
                false => {
                    let selected = execution.select(&groups).map_err(error::gpu)?.pop();
                    let none = || error::gpu(Error::Unsupported("no selection".into()));
                    Selected::Rows(selected.ok_or_else(none)?)
                }
            };
            Ok((selected, execution.statistics()))
        });
        let (selected, statistics) = run.join().await.map_err(interrupted).flatten()?;
        self.metrics.add(&statistics);
        Ok(selected)
    }
}

/// Values of machine types as those of the schema.
fn batch(values: Vec<ArrayRef>, rows: usize, schema: SchemaRef) -> Result<RecordBatch> {
    let typed = values.iter().zip(schema.fields()).map(|(values, field)| {
        let data = values.to_data().into_builder();
        let data = data.data_type(field.data_type().clone()).build()?;
        Ok(make_array(data))
    });
    let typed: Vec<ArrayRef> = typed.collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, typed, &options)?)
}
