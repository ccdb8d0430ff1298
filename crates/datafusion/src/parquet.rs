//! `SET vectile.parquet`: a rule that makes scans of Parquet files scans of Vectile.
//!
//! DataFusion's statistics of Parquet files have bounds of floats that exclude NaN, which sorts above all numbers. It
//! nevertheless answers `min` and `max` by them, so that the rule removes them.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, ParquetRowSelection};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileReaderFactory,
    ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use vectile_parquet::{Format, Options};
use vectile_scan::ContainerFormat;

use crate::options::{ParquetMode, VectileOptions};
use crate::pushdown::Rule;
use crate::source::VectileSource;

/// The factory of readers that DataFusion sets for tables of its own. Those of callers may read files that are nowhere
/// else, and only their names identify them.
const OWN_FACTORY: &str = "CachedParquetFileReaderFactory ";

/// The start of a text, at most as long as [`OWN_FACTORY`]: the rest is not even printed.
#[derive(Default)]
struct Start(String);

impl Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        match self.0.len() < OWN_FACTORY.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

/// True if DataFusion made the factory.
fn is_own(factory: &dyn ParquetFileReaderFactory) -> bool {
    let mut start = Start::default();
    // fails once there is enough
    let _ = write!(start, "{factory:?} ");
    start.0.starts_with(OWN_FACTORY)
}

/// Reads text as views, which DataFusion infers by default.
static VIEWS: LazyLock<Format> = LazyLock::new(|| Format::new(Options::default()));

/// Reads text as the types in the file.
static NO_VIEWS: LazyLock<Format> =
    LazyLock::new(|| Format::new(Options::default().with_view_types(false)));

/// Replaces sources of Parquet files by [`VectileSource`]. It precedes all rules that push filters, limits and orders into
/// scans.
#[derive(Debug)]
struct ParquetScans {
    /// Has the caches, and the memory pool.
    runtime: Arc<RuntimeEnv>,
}

/// The name of the rule that `SET vectile.parquet = on` asks for. Rules that change sources of Parquet files follow it.
pub const PARQUET_RULE: &str = "parquet_scans";

impl PhysicalOptimizerRule for ParquetScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = VectileOptions::of(config);
        if options.parquet == ParquetMode::Off {
            return Ok(plan);
        }
        options.check()?;
        plan.transform_up(|node| {
            Ok(match self.replaced(&node, &options)? {
                Some(scan) => Transformed::yes(scan),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        PARQUET_RULE
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl ParquetScans {
    /// The scan of `node`, if it is one of Parquet files that [`VectileSource`] can read.
    fn replaced(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        options: &VectileOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let scan = node
            .downcast_ref::<DataSourceExec>()
            .and_then(|scan| scan.downcast_to_file_source::<ParquetSource>());
        let Some((config, source)) = scan.filter(|(config, source)| can_read(config, source))
        else {
            return Ok(None);
        };
        let table = source.table_schema().clone();
        let format: &'static dyn ContainerFormat = match has_views(table.file_schema()) {
            true => &*VIEWS,
            false => &*NO_VIEWS,
        };
        let ours = VectileSource::of_format(format, table)
            .with_runtime(&self.runtime)
            .with_options(options.clone());
        let ours = match source.projection() {
            Some(projection) => ours.try_pushdown_projection(projection)?,
            None => Some(Arc::new(ours) as _),
        };
        Ok(ours.map(|source| {
            let config = without_float_statistics(config).with_source(source);
            DataSourceExec::from_data_source(config.build()) as _
        }))
    }
}

/// True if the scan needs nothing but the files: neither keys, readers, schemas or rows that a caller chose, nor options
/// that change types or distrust files, nor what an earlier rule has pushed into it.
fn can_read(config: &FileScanConfig, source: &ParquetSource) -> bool {
    let options = source.table_parquet_options();
    let crypto = &options.crypto;
    let is_encrypted = crypto.file_decryption.is_some() || crypto.factory_id.is_some();
    let reading = &options.global;
    let changes_types = reading.binary_as_string || reading.coerce_int96.is_some();
    // turned off where statistics, indexes or filters of files are wrong
    let prunes = reading.pruning && reading.enable_page_index && reading.bloom_filter_on_read;
    let factory = source.parquet_file_reader_factory();
    let mut files = config.file_groups.iter().flat_map(|group| group.iter());
    let is_special = files.any(|file| {
        let extensions = &file.extensions;
        file.arrow_schema.is_some()
            || extensions.contains::<ParquetAccessPlan>()
            || extensions.contains::<ParquetRowSelection>()
    });
    let table = source.table_schema();
    let mut fields = table.file_schema().fields().iter();
    source.filter().is_none()
        && !is_encrypted
        && !changes_types
        && prunes
        && factory.is_none_or(|factory| is_own(factory.as_ref()))
        && !is_special
        && table.virtual_columns().is_empty()
        && fields.all(|field| vectile_parquet::is_supported(field.data_type()))
}

/// A scan without bounds of floats in the statistics of the plan and of its files.
pub fn without_float_statistics(config: &FileScanConfig) -> FileScanConfigBuilder {
    let schema = config.file_source().table_schema().table_schema();
    let known = |statistics: &Statistics| {
        let mut statistics = statistics.clone();
        let columns = statistics.column_statistics.iter_mut();
        for (column, field) in columns.zip(schema.fields()) {
            if may_hold_nan(field.data_type()) {
                column.min_value = Precision::Absent;
                column.max_value = Precision::Absent;
            }
        }
        Arc::new(statistics)
    };
    let groups = config.file_groups.iter().map(|group| {
        let files = group.iter().map(|file| PartitionedFile {
            statistics: file.statistics.as_deref().map(known),
            ..file.clone()
        });
        let statistics = group.file_statistics(None).map(known);
        let group = FileGroup::new(files.collect());
        match statistics {
            Some(statistics) => group.with_statistics(statistics),
            None => group,
        }
    });
    let statistics = known(&config.statistics());
    FileScanConfigBuilder::from(config.clone())
        .with_file_groups(groups.collect())
        .with_statistics(Arc::unwrap_or_clone(statistics))
}

/// True for floats, and for types of several columns, which have no bounds in Parquet files.
fn may_hold_nan(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => may_hold_nan(values),
        DataType::RunEndEncoded(_, values) => may_hold_nan(values.data_type()),
        other => other.is_floating() || other.is_nested(),
    }
}

/// True if columns of text or binary are views. One reading of a file has either these or none.
fn has_views(schema: &Schema) -> bool {
    let is_view =
        |data_type: &DataType| matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    let mut fields = schema.fields().iter();
    fields.any(|field| is_view(field.data_type()))
}

/// Inserts the rule before all others.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>, runtime: &Arc<RuntimeEnv>) {
    rules.retain(|rule| rule.name() != PARQUET_RULE);
    let runtime = Arc::clone(runtime);
    rules.insert(0, Arc::new(ParquetScans { runtime }));
}
