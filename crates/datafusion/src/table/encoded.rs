//! Row groups that come encoded: all rows of Vectile files or of another table, which are kept as they are.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::physical_plan::ExecutionPlan;
use vectile_file::{EXTENSION, FORMAT_VERSION, File, Segment};

use super::appender::Appender;
use super::contents::Settings;
use crate::error;
use crate::snapshot::segment_of;
use crate::whole_scan::{fits, whole_scan};

/// All rows of a query, encoded.
#[derive(Debug)]
pub(super) enum EncodedRows {
    Segments(Vec<Arc<Segment>>),
    Files(Vec<File>),
}

impl EncodedRows {
    /// The rows of `plan`, if it reads tables as a whole whose row groups may be those of a table with these settings.
    /// Reads the footers of files.
    pub(super) async fn of(
        plan: &Arc<dyn ExecutionPlan>,
        settings: &Settings,
        state: &dyn Session,
    ) -> Option<Self> {
        let (config, source) = whole_scan(plan)?;
        if !settings.keeps_encodings || source.file_type() != EXTENSION {
            return None;
        }
        if !fits(source.table_schema().table_schema(), &settings.schema) {
            return None;
        }
        let files = || config.file_groups.iter().flat_map(|group| group.iter());
        if source.snapshot().is_some() {
            let segments: Vec<_> = files().filter_map(segment_of).collect();
            let mut row_groups = segments.iter().flat_map(|segment| segment.row_groups());
            let are_small = row_groups.all(|of| of.rows() <= settings.row_group_rows);
            return are_small.then_some(Self::Segments(segments));
        }
        let store = state
            .runtime_env()
            .object_store(&config.object_store_url)
            .ok()?;
        let mut opened = Vec::new();
        for file in files() {
            // if it fails, reading the file reports the error
            let file = match file.range {
                None => File::open(Arc::clone(&store), &file.object_meta)
                    .await
                    .ok()?,
                Some(_) => return None,
            };
            let metadata = file.metadata();
            let mut row_groups = metadata.row_groups().iter();
            let are_small = row_groups.all(|of| of.rows <= settings.row_group_rows);
            // scans find columns of files by name
            let names = |schema: &Schema| -> Vec<String> {
                let fields = schema.fields().iter();
                fields.map(|field| field.name().clone()).collect()
            };
            let has_columns = fits(metadata.schema(), &settings.schema)
                && names(metadata.schema()) == names(source.table_schema().file_schema());
            if !are_small || metadata.version() != FORMAT_VERSION || !has_columns {
                return None;
            }
            opened.push(file);
        }
        Some(Self::Files(opened))
    }

    /// The number of row groups that stay as they are.
    pub(super) fn row_groups(&self) -> usize {
        match self {
            Self::Segments(segments) => {
                let row_groups = segments.iter().flat_map(|segment| segment.row_groups());
                row_groups.filter(|of| of.encoded().is_some()).count()
            }
            Self::Files(files) => files.iter().map(|of| of.metadata().num_row_groups()).sum(),
        }
    }

    /// Adds the rows to a table.
    pub(super) async fn write(&self, appender: &mut Appender) -> Result<()> {
        match self {
            Self::Segments(segments) => {
                for row_group in segments.iter().flat_map(|segment| segment.row_groups()) {
                    match row_group.encoded() {
                        Some(encoded) => appender.write_encoded(encoded.clone())?,
                        None => {
                            let batch = row_group.decode().map_err(error::file)?;
                            appender.write(batch).await?;
                        }
                    }
                }
            }
            Self::Files(files) => {
                for file in files {
                    for row_group in 0..file.metadata().num_row_groups() {
                        let encoded = file.read_encoded(row_group).await.map_err(error::file)?;
                        appender.write_encoded(encoded)?;
                    }
                }
            }
        }
        Ok(())
    }
}
