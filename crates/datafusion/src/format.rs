//! `STORED AS VECTILE`: schema and statistics of files, plans that read and write them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{
    GetExt, Result, Statistics, internal_err, not_impl_err, plan_datafusion_err, plan_err,
};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore};
pub use vectile_file::EXTENSION;
use vectile_scan::ContainerFormat;

use crate::file::FileContext;
use crate::listing::Listings;
use crate::merge::{common_type, merge_schemas};
use crate::options::{TableOptions, VectileOptions};
use crate::sink::VectileSink;
use crate::snapshot::Snapshot;
use crate::source::{VectileSource, scan_plan};
use crate::statistics::file_statistics;
use crate::whole_scan::{fits, whole_scan};

/// The [`FileFormat`] of Vectile files.
#[derive(Clone, Debug, Default)]
pub struct VectileFormat {
    options: TableOptions,
}

impl VectileFormat {
    /// A format that writes files with `options`.
    pub fn new(options: TableOptions) -> Self {
        Self { options }
    }

    /// Options for written files.
    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// The table in memory of which `input` is all rows, if they are to be one file that is encoded as the table is.
    fn encoded_rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        conf: &FileSinkConfig,
        session: &VectileOptions,
    ) -> Option<Arc<Snapshot>> {
        let (_, source) = whole_scan(input)?;
        let snapshot = source.snapshot()?;
        let has_columns = fits(
            source.table_schema().table_schema(),
            &get_writer_schema(conf),
        );
        let replace = self.options.replace;
        let has_defaults = self.options
            == TableOptions {
                replace,
                ..TableOptions::default()
            }
            && session.row_group_rows == VectileOptions::default().row_group_rows;
        let target = conf.table_paths.first()?;
        let is_one_file = conf.table_paths.len() == 1
            && conf.table_partition_cols.is_empty()
            && conf.file_output_mode.single_file_output(target);
        (has_columns && has_defaults && is_one_file).then(|| Arc::clone(snapshot))
    }
}

/// Creates [`VectileFormat`]s for `STORED AS VECTILE`.
#[derive(Clone, Debug, Default)]
pub struct VectileFormatFactory;

impl FileFormatFactory for VectileFormatFactory {
    fn create(
        &self,
        _state: &dyn Session,
        format_options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let options = TableOptions::try_from_map(format_options)?;
        Ok(Arc::new(VectileFormat::new(options)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(VectileFormat::default())
    }
}

impl GetExt for VectileFormatFactory {
    fn get_ext(&self) -> String {
        EXTENSION.to_owned()
    }
}

#[async_trait]
impl FileFormat for VectileFormat {
    fn get_ext(&self) -> String {
        EXTENSION.to_owned()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        match *compression == FileCompressionType::UNCOMPRESSED {
            true => Ok(self.get_ext()),
            false => internal_err!("Vectile files are not compressed as a whole"),
        }
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    /// Returns the schema as written. Schemas of several files are merged in the order of file names, see
    /// [`merge_schemas`].
    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        infer_schema(&vectile_file::Format, state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        infer_stats(&vectile_file::Format, state, store, &table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        conf: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        scan_plan(state, conf)
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        conf: FileSinkConfig,
        order_requirements: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if conf.insert_op != InsertOp::Append {
            return not_impl_err!("overwriting Vectile tables");
        }
        let session = VectileOptions::of(state.config_options());
        let conf = with_literal_target(conf)?;
        if let Some(snapshot) = self.encoded_rows(&input, &conf, &session) {
            let sink = VectileSink::try_new(conf, &self.options, &session)?;
            let sink = Arc::new(sink.with_snapshot(&snapshot));
            let input = Arc::new(EmptyExec::new(input.schema()));
            return Ok(Arc::new(DataSinkExec::new(input, sink, None)));
        }
        let sink = VectileSink::try_new(conf, &self.options, &session)?;
        Ok(Arc::new(DataSinkExec::new(
            input,
            Arc::new(sink),
            order_requirements,
        )))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(VectileSource::new(table_schema))
    }
}

/// Makes the target of a `COPY` the file or directory of that literal name. DataFusion takes a name with `[`, `*` or
/// `?` for a glob, and would write files with other names to its parent directory.
fn with_literal_target(mut conf: FileSinkConfig) -> Result<FileSinkConfig> {
    // an INSERT has no URL of its own
    if conf.original_url.is_empty() {
        return Ok(conf);
    }
    for target in &mut conf.table_paths {
        let Some(glob) = target.get_glob() else {
            continue;
        };
        let mut url = target.get_url().clone();
        let names = glob.as_str().split('/');
        let is_odd = |name: &str| matches!(name, "." | "..");
        match url.path_segments_mut() {
            Ok(mut path) if !names.clone().any(is_odd) => {
                path.pop_if_empty().extend(names);
            }
            _ => return plan_err!("cannot write to {}", conf.original_url),
        }
        *target = ListingTableUrl::try_new(url, None)?;
    }
    Ok(conf)
}

/// Infers the schema of files. Several schemas are merged in the order of file names, see [`merge_schemas`].
pub(crate) async fn infer_schema(
    format: &'static dyn ContainerFormat,
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
) -> Result<SchemaRef> {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    let listings = Listings::of(state.runtime_env());
    let concurrency = state
        .config_options()
        .execution
        .meta_fetch_concurrency
        .get();
    let schemas = futures::stream::iter(objects)
        .map(|object| {
            let (cache, listings) = (Arc::clone(&cache), listings.clone());
            async move {
                let source = FileContext {
                    format,
                    store,
                    footers: Some(&cache),
                    listings: &listings,
                };
                let file = source.open(object).await?;
                let schema = Arc::clone(file.schema());
                Ok::<_, DataFusionError>((object.location.to_string(), schema))
            }
        })
        .boxed()
        .buffer_unordered(concurrency);
    let mut schemas: Vec<(String, SchemaRef)> = schemas.try_collect().await?;
    schemas.sort_by(|(a, _), (b, _)| a.cmp(b));
    merge_schemas(&schemas, common_type).map_err(|error| plan_datafusion_err!("{error}"))
}

/// Statistics of a file for the columns of `table`.
pub(crate) async fn infer_stats(
    format: &'static dyn ContainerFormat,
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    table: &SchemaRef,
    object: &ObjectMeta,
) -> Result<Statistics> {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    let source = FileContext {
        format,
        store,
        footers: Some(&cache),
        listings: &Listings::of(state.runtime_env()),
    };
    let file = source.open(object).await?;
    file_statistics(file.as_ref(), table)
}
