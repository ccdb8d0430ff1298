//! Scans of Parquet files that ignore bounds of floats.
//!
//! Bounds in Parquet files exclude NaN, which sorts above all numbers. DataFusion 55.2 nevertheless treats a column
//! with equal bounds as constant, answers `min` and `max` from bounds, and prunes row groups and pages by them. So a
//! rule removes these bounds from the statistics of a plan, and from metadata as it is read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::basic::{LogicalType, Type};
use parquet::data_type::FixedLenByteArray;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics as ChunkStatistics;
use vectile_datafusion::without_float_statistics;

type Plan = Arc<dyn ExecutionPlan>;

/// The optimizer rule. It runs before those of DataFusion, the first of which answers `min` and `max`.
#[derive(Debug)]
pub struct DistrustFloatBounds;

impl PhysicalOptimizerRule for DistrustFloatBounds {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        Ok(plan.transform_up(distrust)?.data)
    }

    fn name(&self) -> &str {
        "distrust_float_bounds"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn distrust(node: Plan) -> Result<Transformed<Plan>> {
    let scan = node.downcast_ref::<DataSourceExec>();
    let parquet = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>);
    let Some((config, source)) = parquet else {
        return Ok(Transformed::no(node));
    };
    let scan = without_float_statistics(config)
        .with_source(Arc::new(without_bounds(source)))
        .build();
    Ok(Transformed::yes(DataSourceExec::from_data_source(scan)))
}

/// A source that reads no bounds of floats from its files.
fn without_bounds(source: &ParquetSource) -> ParquetSource {
    match source.parquet_file_reader_factory() {
        Some(readers) => {
            let readers = Arc::new(BoundlessReaders(Arc::clone(readers)));
            source.clone().with_parquet_file_reader_factory(readers)
        }
        // It creates its readers itself. Tables of files have no such source.
        None => {
            let mut options = source.table_parquet_options().clone();
            options.global.pruning = false;
            options.global.enable_page_index = false;
            source.clone().with_table_parquet_options(options)
        }
    }
}

/// Creates readers of files without bounds of floats.
#[derive(Debug)]
struct BoundlessReaders(Arc<dyn ParquetFileReaderFactory>);

impl ParquetFileReaderFactory for BoundlessReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let reader = self
            .0
            .create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(BoundlessReader(reader)))
    }
}

struct BoundlessReader(Box<dyn AsyncFileReader + Send>);

impl AsyncFileReader for BoundlessReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.0.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.0.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let metadata = self.0.get_metadata(options);
        async { without_float_bounds(metadata.await?) }.boxed()
    }
}

/// The metadata without bounds of floats, for row groups and pages. Positions of pages are kept.
fn without_float_bounds(metadata: Arc<ParquetMetaData>) -> ParquetResult<Arc<ParquetMetaData>> {
    let mut row_groups = metadata.row_groups().iter();
    if !row_groups.any(|group| group.columns().iter().any(has_float_bounds)) {
        return Ok(metadata);
    }
    let mut builder = ParquetMetaData::clone(&metadata).into_builder();
    let mut row_groups = builder.take_row_groups();
    let mut pages = builder.take_column_index();
    for (index, group) in row_groups.iter_mut().enumerate() {
        let pages = pages.as_mut().and_then(|pages| pages.get_mut(index));
        let mut pages = pages.map(|pages| pages.iter_mut());
        for column in group.columns_mut() {
            let pages = pages.as_mut().and_then(Iterator::next);
            if !has_float_bounds(column) {
                continue;
            }
            *column = without_bounds_of(column)?;
            // Missing pages would otherwise be read now.
            if let Some(pages) = pages {
                *pages = ColumnIndexMetaData::NONE;
            }
        }
    }
    let builder = builder.set_row_groups(row_groups).set_column_index(pages);
    Ok(Arc::new(builder.build()))
}

fn has_float_bounds(column: &ColumnChunkMetaData) -> bool {
    let descriptor = column.column_descr();
    let is_float = match column.column_type() {
        Type::FLOAT | Type::DOUBLE => true,
        Type::FIXED_LEN_BYTE_ARRAY => descriptor.logical_type_ref() == Some(&LogicalType::Float16),
        _ => false,
    };
    let has_bounds = |statistics: &ChunkStatistics| {
        statistics.min_bytes_opt().is_some() || statistics.max_bytes_opt().is_some()
    };
    is_float
        && (column.column_index_offset().is_some() || column.statistics().is_some_and(has_bounds))
}

fn without_bounds_of(column: &ColumnChunkMetaData) -> ParquetResult<ColumnChunkMetaData> {
    let statistics = column.statistics().map(|known| {
        let (distinct, nulls) = (known.distinct_count_opt(), known.null_count_opt());
        match column.column_type() {
            Type::FLOAT => ChunkStatistics::new::<f32>(None, None, distinct, nulls, false),
            Type::DOUBLE => ChunkStatistics::new::<f64>(None, None, distinct, nulls, false),
            _ => ChunkStatistics::new::<FixedLenByteArray>(None, None, distinct, nulls, false),
        }
    });
    let mut builder = column
        .clone()
        .into_builder()
        .clear_statistics()
        .set_column_index_offset(None)
        .set_column_index_length(None);
    if let Some(statistics) = statistics {
        builder = builder.set_statistics(statistics);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::catalog::TableProvider;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::session;
    use crate::source::Input;

    /// Occasional NaN, in every row group, among equal numbers and among others.
    const ROWS: &str = "
      SELECT n, x, same, arrow_cast(x, 'Float32') AS f32, arrow_cast(same, 'Float16') AS f16,
        arrow_cast(x, 'Dictionary(Int32, Float64)') AS dict, named_struct('x', x) AS pair
      FROM (SELECT value AS n,
          CASE WHEN value % 100 = 7 THEN CAST('NaN' AS DOUBLE) ELSE value % 50 END AS x,
          CASE WHEN value = 511 THEN CAST('NaN' AS DOUBLE) ELSE 3.0 END AS same
        FROM range(1000))";

    const QUERIES: [&str; 16] = [
        "SELECT * FROM t ORDER BY n",
        "SELECT min(x), max(x), min(same), max(same), max(f32), max(f16) FROM t",
        "SELECT count(*), sum(n) FROM t WHERE x > 100",
        "SELECT count(*), sum(n) FROM t WHERE NOT x <= 49",
        "SELECT count(*), sum(n) FROM t WHERE f32 > 100 AND n < 600",
        "SELECT count(*), sum(n) FROM t WHERE f16 > 3",
        "SELECT count(*), sum(n) FROM t WHERE same <> 3",
        "SELECT count(*), sum(n) FROM t WHERE dict > 100.0",
        "SELECT count(*), sum(n) FROM t WHERE pair['x'] > 100",
        "SELECT count(*), sum(n) FROM t WHERE x = CAST('NaN' AS DOUBLE)",
        "SELECT count(*), sum(n) FROM t WHERE x IS NOT DISTINCT FROM CAST('NaN' AS DOUBLE)",
        "SELECT count(*), sum(n) FROM t WHERE x IN (CAST('NaN' AS DOUBLE), 1000)",
        "SELECT count(*), sum(n) FROM t WHERE x BETWEEN 60 AND CAST('NaN' AS DOUBLE)",
        "SELECT n FROM t ORDER BY x DESC, n LIMIT 3",
        "SELECT same, count(*) FROM t GROUP BY same ORDER BY same",
        "SELECT a.n FROM t a JOIN (SELECT DISTINCT same FROM t WHERE n > 500) b ON a.x = b.same
         ORDER BY a.n LIMIT 30",
    ];

    /// The rows as a table in memory, and as one of a Parquet file with several row groups and pages.
    async fn tables(context: &SessionContext, path: &str) -> [Arc<dyn TableProvider>; 2] {
        let rows = context.sql(ROWS).await.unwrap().cache().await.unwrap();
        let plain = rows.into_view();
        context.register_table("plain", Arc::clone(&plain)).unwrap();
        let copy = format!(
            "COPY plain TO '{path}' OPTIONS (max_row_group_size 250, data_page_row_count_limit 50,
             write_batch_size 50)"
        );
        context.sql(&copy).await.unwrap().collect().await.unwrap();
        let file = Input::find(context, path, None).await.unwrap();
        [plain, file.table(context, "t").await.unwrap()]
    }

    async fn answer(context: &SessionContext, query: &str) -> String {
        let rows = context.sql(query).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&rows).unwrap().to_string()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nan_is_a_value_of_parquet_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, context) in [
            ("sql", session::for_sql().unwrap()),
            ("copying", session::for_copying().unwrap()),
        ] {
            let path = dir.path().join(format!("{name}.parquet"));
            let tables = tables(&context, path.to_str().unwrap()).await;
            let mut expected = Vec::new();
            for (table, query) in tables
                .iter()
                .flat_map(|table| QUERIES.map(|query| (table, query)))
            {
                context.deregister_table("t").unwrap();
                context.register_table("t", Arc::clone(table)).unwrap();
                expected.push(answer(&context, query).await);
            }
            let actual = expected.split_off(QUERIES.len());
            for ((expected, actual), query) in expected.iter().zip(&actual).zip(QUERIES) {
                assert_eq!(actual, expected, "{name}: {query}");
            }
        }
    }

    /// Bounds of other columns still rule pages out.
    #[tokio::test(flavor = "multi_thread")]
    async fn other_bounds_are_trusted() {
        let context = session::for_sql().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let [_, file] = tables(&context, path.to_str().unwrap()).await;
        context.register_table("file", file).unwrap();
        let plan = "EXPLAIN ANALYZE SELECT count(x) FROM file WHERE n < 20 AND x > -1";
        let plan = answer(&context, plan).await;
        let pruned = "row_groups_pruned_statistics=4 total → 1 matched";
        assert!(plan.contains(pruned), "{plan}");
        let pruned = "page_index_rows_pruned=250 total → 50 matched";
        assert!(plan.contains(pruned), "{plan}");
    }
}
