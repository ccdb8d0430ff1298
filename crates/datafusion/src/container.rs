//! Tables of files of other formats: `STORED AS ORC`, and whatever else [`FORMATS`] lists.

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
use vectile_scan::ContainerFormat;

use crate::format::{infer_schema, infer_stats};
use crate::source::{VectileSource, scan_plan};

/// The formats that every session reads, beside Vectile's own. A new format is a line here.
pub(crate) const FORMATS: [&dyn ContainerFormat; 1] = [&vectile_orc::Format];

/// The word for a format in messages and after `STORED AS`.
pub(crate) fn file_type(format: &dyn ContainerFormat) -> String {
    format.name().to_uppercase()
}

/// The [`FileFormat`] of files that are read and not written, such as those of ORC.
#[derive(Clone, Debug)]
pub struct ContainerFileFormat {
    format: &'static dyn ContainerFormat,
}

impl ContainerFileFormat {
    /// A format of tables whose files are of `format`.
    pub fn new(format: &'static dyn ContainerFormat) -> Self {
        Self { format }
    }
}

/// Creates [`ContainerFileFormat`]s for `STORED AS ORC` and the like.
#[derive(Clone, Debug)]
pub struct ContainerFileFormatFactory {
    format: &'static dyn ContainerFormat,
}

impl ContainerFileFormatFactory {
    /// A factory of tables whose files are of `format`.
    pub fn new(format: &'static dyn ContainerFormat) -> Self {
        Self { format }
    }
}

impl FileFormatFactory for ContainerFileFormatFactory {
    fn create(
        &self,
        _state: &dyn Session,
        format_options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let file_type = file_type(self.format);
        match format_options.keys().next() {
            Some(option) => plan_err!("tables of {file_type} files have no option '{option}'"),
            None => Ok(self.default()),
        }
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(ContainerFileFormat::new(self.format))
    }
}

impl GetExt for ContainerFileFormatFactory {
    fn get_ext(&self) -> String {
        self.format.name().to_owned()
    }
}

#[async_trait]
impl FileFormat for ContainerFileFormat {
    fn get_ext(&self) -> String {
        self.format.name().to_owned()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        match *compression == FileCompressionType::UNCOMPRESSED {
            true => Ok(self.get_ext()),
            false => internal_err!(
                "{} files are not compressed as a whole",
                file_type(self.format)
            ),
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
        infer_schema(self.format, state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        infer_stats(self.format, state, store, &table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        conf: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        scan_plan(state, conf)
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(VectileSource::of_format(self.format, table_schema))
    }
}
