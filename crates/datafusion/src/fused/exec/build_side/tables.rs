//! Where the tables of a build side come from: the cache, the device, or the rows of its plan on the CPU.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::Result;

use super::{BuildSide, Built, DUPLICATE_KEYS, unsupported};
use crate::error;
use crate::fused::exec::batch_stream::ExecEnvironment;
use crate::fused::exec::metrics::GpuMetrics;
use crate::fused::exec::stage::{Stage, TableOrigin};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::key_table_cache::TableKey;
use crate::fused::table::Table;
use crate::options::{GpuMode, VectileOptions};
use datafusion::execution::TaskContext;

impl BuildSide {
    /// Returns the table of each lookup, and the stage for `EXPLAIN ANALYZE`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if no table can be built from the rows, and errors of the plan.
    pub(crate) async fn tables(
        &self,
        environment: &ExecEnvironment<'_>,
    ) -> Result<(Vec<Arc<Table>>, Stage)> {
        let begun = Instant::now();
        let (tables, origin) = self.cached_or_built(environment).await?;
        let stage = Stage::new(self.on(), origin, &tables, begun.elapsed());
        Ok((tables, stage))
    }

    /// As [`tables`](Self::tables), without a device: always from the rows of the plan.
    ///
    /// # Errors
    ///
    /// As for [`tables`](Self::tables).
    pub(crate) async fn tables_without_device(
        &self,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<(Vec<Arc<Table>>, Stage)> {
        let begun = Instant::now();
        let built = self.tables_of_rows(None, false, metrics, context);
        let (tables, read) = built.await?;
        let origin = TableOrigin::Cpu(read);
        let stage = Stage::new(self.on(), origin, &tables, begun.elapsed());
        Ok((tables, stage))
    }

    /// Gets the tables from the cache or builds them.
    async fn cached_or_built(
        &self,
        environment: &ExecEnvironment<'_>,
    ) -> Result<(Vec<Arc<Table>>, TableOrigin)> {
        let cache = &environment.device.key_tables;
        let options = VectileOptions::of(environment.context.session_config().options());
        let keys = self
            .lookups
            .iter()
            .map(|lookup| match options.gpu_tuning.keep_key_tables {
                true => self.table_key(lookup),
                false => Ok(None),
            });
        let keys: Vec<Option<TableKey>> = keys.collect::<Result<_>>()?;
        let cached = keys.iter().map(|key| cache.get(key.as_ref()?));
        if let Some(tables) = cached.collect::<Option<Vec<_>>>()
            && self.are_usable(&tables)
        {
            environment.metrics.lookups_cached.add(tables.len());
            let tables = tables.into_iter().map(|table| match table {
                Ok(table) if table.multimap.is_some() && !self.may_repeat => {
                    Err(unsupported(DUPLICATE_KEYS))
                }
                table => table.map_err(unsupported),
            });
            return Ok((tables.collect::<Result<_>>()?, TableOrigin::Cached));
        }
        let mut has_duplicate_keys = false;
        if let Some(Ok(building)) = &self.building {
            let mut attempts = error::Attempts::default();
            let built = loop {
                let built = building.tables(environment).await;
                if !attempts.is_next_useful(&built) {
                    break built;
                }
            };
            match built {
                Ok(Built { tables: None, .. }) if self.may_repeat => {
                    has_duplicate_keys = true;
                    let metrics = environment.metrics;
                    metrics.add_build_on_cpu(FallbackReason::from(unsupported(DUPLICATE_KEYS)));
                }
                Ok(Built {
                    tables,
                    read,
                    stages,
                }) => {
                    let built = match tables {
                        Some(tables) => Ok(tables.into_iter().map(Arc::new).collect()),
                        None => Err(DUPLICATE_KEYS.to_owned()),
                    };
                    let tables = self.cache_built(built, keys, environment)?;
                    return Ok((tables, TableOrigin::Gpu(read, stages)));
                }
                Err(error) if error::is_not_compiled(&error) => return Err(error),
                Err(error) => {
                    if options.gpu == GpuMode::Require && error::is_internal(&error) {
                        return Err(error);
                    }
                    let error = environment.device.defects.left_to_cpu(error)?;
                    environment
                        .metrics
                        .add_build_on_cpu(FallbackReason::from(error));
                }
            }
        }
        let (metrics, context) = (environment.metrics, environment.context);
        let cached = Some((cache, keys));
        let built = self.tables_of_rows(cached, has_duplicate_keys, metrics, context);
        let built = built.await;
        built.map(|(tables, read)| (tables, TableOrigin::Cpu(read)))
    }

    /// True if cached tables are consistent with each other and sufficient for this join.
    fn are_usable(&self, tables: &[Result<Arc<Table>, String>]) -> bool {
        let has_duplicates =
            |table: &Result<_, String>| matches!(table, Err(reason) if reason == DUPLICATE_KEYS);
        if self.may_repeat && tables.iter().any(has_duplicates) {
            return false;
        }
        let mut lists = tables.iter().flatten().map(|table| table.multimap.as_ref());
        let first = lists.next().flatten();
        lists.all(|other| match (first, other) {
            (Some(first), Some(other)) => first.is_like(other),
            (first, other) => first.is_none() && other.is_none(),
        })
    }

    /// Caches tables built on the device, or the reason why there are none.
    fn cache_built(
        &self,
        built: Result<Vec<Arc<Table>>, String>,
        keys: Vec<Option<TableKey>>,
        environment: &ExecEnvironment<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let cache = &environment.device.key_tables;
        for (number, key) in keys.into_iter().enumerate() {
            let Some(key) = key else {
                continue;
            };
            match &built {
                Ok(tables) => {
                    if let Some(table) = tables.get(number) {
                        cache.put(key, Ok(Arc::clone(table)));
                    }
                }
                Err(reason) => cache.put(key, Err(reason.clone())),
            }
        }
        let tables = built.map_err(unsupported)?;
        environment.metrics.lookups_built.add(tables.len());
        Ok(tables)
    }
}
