//! `STORED AS ORC`: schema and statistics of files, plans that read them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics, internal_err, plan_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_plan::ExecutionPlan;
use object_store::{ObjectMeta, ObjectStore};

use crate::file::FileKind;
use crate::format::{infer_schema, infer_stats, scan_plan};
use crate::source::VectileSource;

const KIND: FileKind = FileKind::Orc;

/// The [`FileFormat`] of ORC files, which are read and not written.
#[derive(Clone, Debug, Default)]
pub struct OrcFormat;

/// Creates [`OrcFormat`]s for `STORED AS ORC`.
#[derive(Clone, Debug, Default)]
pub struct OrcFormatFactory;

impl FileFormatFactory for OrcFormatFactory {
    fn create(
        &self,
        _state: &dyn Session,
        format_options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        match format_options.keys().next() {
            Some(option) => plan_err!("tables of ORC files have no option '{option}'"),
            None => Ok(self.default()),
        }
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(OrcFormat)
    }
}

impl GetExt for OrcFormatFactory {
    fn get_ext(&self) -> String {
        KIND.name().to_owned()
    }
}

#[async_trait]
impl FileFormat for OrcFormat {
    fn get_ext(&self) -> String {
        KIND.name().to_owned()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        match *compression == FileCompressionType::UNCOMPRESSED {
            true => Ok(self.get_ext()),
            false => internal_err!("ORC files are not compressed as a whole"),
        }
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        infer_schema(KIND, state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        infer_stats(KIND, state, store, &table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        conf: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        scan_plan(state, conf)
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(VectileSource::of_kind(KIND, table_schema))
    }
}
