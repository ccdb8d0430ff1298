//! Fuses filters and projections with the scans that evaluate them.

use std::sync::Arc;

use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use vectile_gpu::coded_columns;
use vectile_pipeline::{Filter, Output, Pipeline};

use super::fusing::Fusing;
use super::relation::{types_of, work};
use crate::fused::cost_model::{Builds, Work};
use crate::fused::exec::scan::GpuScan;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::expression::{Lowering, Needs};
use crate::fused::pattern::files::num_bytes;
use crate::options::GpuMode;
use crate::source::VectileSource;

impl Fusing<'_> {
    /// Moves the filters of a scan to the GPU, and its projection if that has a kernel. `are_first` says that only the rows
    /// are needed that come first in an order.
    pub(super) fn fuse_scan(
        &self,
        config: &FileScanConfig,
        source: &VectileSource,
        are_first: bool,
    ) -> Result<VectileSource, FallbackReason> {
        // a device reads and returns all rows that pass the filters
        if are_first && self.has_top_k_filters && self.options.gpu != GpuMode::Require {
            return Err(FallbackReason::FirstRows);
        }
        let table = source.table_schema().clone();
        let predicate = source.filter().filter(|_| source.evaluates_filters());
        let mut lowering = Lowering::new(&table);
        let filter = lowering.filters(predicate.as_slice())?;
        let filters = !matches!(filter, Filter::Constant(true));
        if !filters && self.options.gpu != GpuMode::Require {
            return Err(FallbackReason::NoFilter);
        }
        let mut projecting = lowering.clone();
        let output = match projecting.projection(source.projection()) {
            Some(rows) => {
                lowering = projecting;
                Output::Rows(rows)
            }
            None if filters => Output::Selection,
            None => return Err(FallbackReason::NoFilter),
        };
        let Needs {
            columns,
            parameters,
            ..
        } = lowering.finish();
        if let Some(parameter) = parameters.first() {
            // Kernels of scans are generated when they are planned, before parameters are known.
            return Err(FallbackReason::Expr(parameter.to_string()));
        }
        let work = Work {
            is_for_operators: true,
            ..work(config, columns.len())
        };
        let auto = self.estimated(work)?;
        if let Some(auto) = &auto
            && self.gpu.opened().is_none()
        {
            let reason = auto.cpu_is_faster_than_opening(None, Builds::default(), 0, self.cores);
            if reason.is_none() || self.options.gpu_background && !self.is_opened {
                self.gpu.open_in_background();
            }
            reason.map_or(Ok(()), Err)?;
        }
        if self.options.gpu != GpuMode::Require
            && let Some(Ok(device)) = self.gpu.opened()
        {
            device.limit(&self.options);
            let (bytes, limit) = (num_bytes(config), device.engine.memory_limit());
            if bytes > limit {
                return Err(FallbackReason::TooLarge { bytes, limit });
            }
        }
        let pipeline = Pipeline {
            columns: types_of(table.table_schema(), &columns),
            lookups: vec![],
            matches: vec![],
            filter,
            output,
        };
        let coded = coded_columns(&pipeline).into_iter();
        Ok(source.clone().with_device(Arc::new(GpuScan {
            gpu: self.gpu.clone(),
            coded: coded.map(|column| columns[column]).collect(),
            pipeline: Arc::new(pipeline),
            columns,
            options: self.options.clone(),
            auto,
            store: config.object_store_url.clone(),
        })))
    }
}
