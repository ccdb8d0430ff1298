//! The rows of a table in memory at one moment, which a query sees from start to end.
//!
//! A scan has a file for each segment. The file is never read: it holds the [`Segment`] as an extension, which is what the
//! scan opens, and which lives as long as the plan.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::Column;
use object_store::ObjectMeta;
use object_store::memory::InMemory;
use vectile_file::Segment;
use vectile_scan::{Container, FileContainer};

use crate::statistics::file_statistics;

/// The URL of a store in which nothing is: plans name it for the files of segments.
const STORE: &str = "vectile-memory://tables";

/// Tells segments of this process from those of others with the same name.
static PROCESS: LazyLock<String> = LazyLock::new(|| {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let started = started.map_or(0, |since| since.as_nanos());
    format!("{started:x}-{:x}", std::process::id())
});

/// All rows of a table at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The table's number.
    pub(crate) table: u64,
    /// Grows with each change of the table.
    pub(crate) version: u64,
    pub(crate) files: Vec<PartitionedFile>,
    pub(crate) statistics: Statistics,
    /// The order of the rows of each file, if there is one.
    order: Option<LexOrdering>,
}

impl Snapshot {
    /// The rows of `files`, of a table with this schema.
    pub(crate) fn new(
        table: u64,
        version: u64,
        files: Vec<PartitionedFile>,
        schema: &SchemaRef,
        order: Option<LexOrdering>,
    ) -> Result<Self> {
        let statistics = match files.is_empty() {
            true => Statistics {
                num_rows: Precision::Exact(0),
                ..Statistics::new_unknown(schema)
            },
            false => {
                let known = files.iter().filter_map(|file| file.statistics.as_deref());
                Statistics::try_merge_iter(known, schema)?
            }
        };
        Ok(Self {
            table,
            version,
            files,
            statistics,
            order,
        })
    }

    /// The version, as a file that changes with it.
    pub(crate) fn mark(&self) -> ObjectMeta {
        mark(self.table, self.version)
    }

    /// Sets the files of a scan of all rows, in as many groups at most, with their statistics and order.
    pub(crate) fn scanned_by(
        &self,
        scan: FileScanConfigBuilder,
        partitions: usize,
    ) -> FileScanConfigBuilder {
        let groups = self.groups(partitions);
        // DataFusion compares the bounds of the files of a group, and bounds do not tell where nulls are
        let has_order = |order: &&LexOrdering| {
            groups.iter().all(|group| group.len() <= 1) || self.has_no_nulls(order)
        };
        let order = self.order.as_ref().filter(has_order);
        scan.with_file_groups(groups)
            .with_statistics(self.statistics.clone())
            .with_output_ordering(order.cloned().into_iter().collect())
    }

    fn has_no_nulls(&self, order: &LexOrdering) -> bool {
        order.iter().all(|sort| {
            let column = sort.expr.downcast_ref::<Column>();
            let columns = &self.statistics.column_statistics;
            let statistics = column.and_then(|column| columns.get(column.index()));
            statistics.is_some_and(|of| of.null_count == Precision::Exact(0))
        })
    }

    /// The files in as many groups at most, of about as many files each; one without files if there are none.
    fn groups(&self, partitions: usize) -> Vec<FileGroup> {
        let files = self.files.len();
        let groups = partitions.min(files).max(1);
        let bound = |group: usize| files * group / groups;
        let groups = (0..groups).map(|group| &self.files[bound(group)..bound(group + 1)]);
        groups.map(|files| FileGroup::new(files.to_vec())).collect()
    }

    /// The names of the files, which differ if their rows do.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectMeta> + '_ {
        self.files.iter().map(|file| file.object_meta.clone())
    }
}

/// A version of a table, as a file that changes with it.
pub(crate) fn mark(table: u64, version: u64) -> ObjectMeta {
    let mut mark = PartitionedFile::new(format!("{table}/version"), version).object_meta;
    mark.e_tag = Some(PROCESS.clone());
    mark
}

/// The name of a file in the records of how long queries took: that of its table, if it is a segment.
#[cfg(feature = "gpu")]
pub(crate) fn lasting_name(file: &PartitionedFile) -> &str {
    let name = file.object_meta.location.as_ref();
    match file.extensions.contains::<Segment>() {
        true => name.rsplit_once('/').map_or(name, |(table, _)| table),
        false => name,
    }
}

/// The file that stands for a segment in plans.
pub(crate) fn file_of(segment: Arc<Segment>) -> Result<PartitionedFile> {
    let statistics = file_statistics(segment.as_ref(), segment.schema())?;
    let name = segment.location().to_string();
    let mut file =
        PartitionedFile::new(name, segment.bytes() as u64).with_statistics(Arc::new(statistics));
    file.object_meta.e_tag = Some(PROCESS.clone());
    file.extensions.insert_arc(segment);
    Ok(file)
}

/// The segment that a file stands for; `None` for files of stores.
pub(crate) fn segment_of(file: &PartitionedFile) -> Option<Arc<Segment>> {
    file.extensions.get_arc()
}

/// The URL of the store of segments, which `runtime` knows from now on.
pub(crate) fn store_in(runtime: &RuntimeEnv) -> Result<ObjectStoreUrl> {
    let url = ObjectStoreUrl::parse(STORE)?;
    if runtime.object_store(&url).is_err() {
        runtime.register_object_store(url.as_ref(), Arc::new(InMemory::new()));
    }
    Ok(url)
}
