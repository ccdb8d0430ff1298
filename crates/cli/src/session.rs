//! The `SessionContext` of every command.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use url::Url;
use vectile_datafusion::{
    PARQUET_RULE, TableFactory, VectileOptions, VectileSessionStateBuilderExt,
};

use crate::error::Result;
use crate::float_bounds::DistrustFloatBounds;
use crate::interruptible::{Cancel, InterruptibleJoins};
use crate::text_files::TextFormatFactory;
use crate::{connect, paths, store};

/// How long listings of directories are cached: a query lists each once, and the next one sees new files of other
/// writers. DataFusion would cache them forever.
const LISTINGS_LAST: Duration = Duration::from_secs(2);

/// The `STORED AS` names of DataFusion's own formats.
const OTHER_FILE_TYPES: [&str; 5] = ["PARQUET", "CSV", "JSON", "NDJSON", "ARROW"];

/// A session for SQL: all cores, paths usable as table names, directories read recursively.
pub fn for_sql() -> Result<SessionContext> {
    session(config()?, None)
}

/// A session for the interactive shell: as for SQL, with joins that `cancel` ends.
pub fn for_shell(cancel: Cancel) -> Result<SessionContext> {
    session(config()?, Some(cancel))
}

/// A session that copies tables unchanged: rows in file order, same types and metadata.
pub fn for_copying() -> Result<SessionContext> {
    let config = config()?
        .with_target_partitions(1)
        .set_bool(
            "datafusion.execution.parquet.schema_force_view_types",
            false,
        )
        .set_bool("datafusion.execution.parquet.skip_metadata", false);
    let context = session(config, None)?;
    make_nothing_ready(&context);
    Ok(context)
}

/// A session that sorts and filters rows read elsewhere, in at most `memory` bytes and on disk.
pub fn for_arranging(memory: usize) -> Result<SessionContext> {
    let config = config()?.with_target_partitions(1);
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0);
    Ok(SessionContext::new_with_config_rt(
        config,
        runtime.build_arc()?,
    ))
}

/// Disables GPU preparation in the background for later queries, because there are none.
pub fn make_nothing_ready(context: &SessionContext) {
    set(context, |options| options.gpu_background = false);
}

/// Changes the session's options of Vectile.
pub fn set(context: &SessionContext, change: impl FnOnce(&mut VectileOptions)) {
    let state = context.state_ref();
    let mut state = state.write();
    let extensions = &mut state.config_mut().options_mut().extensions;
    if let Some(options) = extensions.get_mut::<VectileOptions>() {
        change(options);
    }
}

fn config() -> Result<SessionConfig> {
    let config = SessionConfig::from_env()?
        .with_information_schema(true)
        .set_bool(
            "datafusion.execution.listing_table_ignore_subdirectory",
            false,
        );
    Ok(config)
}

fn session(config: SessionConfig, cancel: Option<Cancel>) -> Result<SessionContext> {
    let runtime = RuntimeEnvBuilder::new()
        .with_object_list_cache_ttl(Some(LISTINGS_LAST))
        .build_arc()?;
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_vectile();
    let optimizer = builder.physical_optimizers();
    let rules = &mut optimizer.get_or_insert_with(PhysicalOptimizer::new).rules;
    let ours = rules.iter().position(|rule| rule.name() == PARQUET_RULE);
    let next = ours.map_or(0, |index| index + 1);
    rules.insert(next, Arc::new(DistrustFloatBounds));
    if let Some(cancel) = cancel {
        builder = builder.with_physical_optimizer_rule(Arc::new(InterruptibleJoins(cancel)));
    }
    for file_type in OTHER_FILE_TYPES {
        let factory = Arc::new(TableFactory::default());
        builder = builder.with_table_factory(file_type.to_owned(), factory);
    }
    let context = SessionContext::new_with_state(builder.build());
    for format in TextFormatFactory::all() {
        let state = context.state_ref();
        state.write().register_file_format(format, true)?;
    }
    if let Ok(files) = Url::parse("file:///") {
        context.register_object_store(&files, store::local());
    }
    connect::register_options(&context);
    paths::enable(&context);
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_see_what_others_write() {
        for context in [for_sql().unwrap(), for_copying().unwrap()] {
            let caches = &context.runtime_env().cache_manager;
            assert_eq!(caches.get_list_files_cache_ttl(), Some(LISTINGS_LAST));
        }
    }
}
