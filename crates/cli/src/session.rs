//! The `SessionContext` every command works in, and the object stores it can reach.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_cli::cli_context::CliSessionContext;
use datafusion_cli::object_storage::{
    AwsOptions, GcpOptions, get_cos_object_store_builder, get_gcs_object_store_builder,
    get_oss_object_store_builder, get_s3_object_store_builder,
};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore};
use url::Url;
use vectile_datafusion::VectileSessionStateBuilderExt;

use crate::error::{CliError, Result};
use crate::interruptible::{Cancel, InterruptibleJoins};
use crate::{paths, store};

/// Listings of directories are kept for so long: a query lists each once, and sees the files that others have
/// written by then. DataFusion would keep them for ever.
const LISTINGS_LAST: Duration = Duration::from_secs(2);

/// A session for SQL: all cores, paths usable as table names, directories read recursively.
pub fn for_sql() -> Result<SessionContext> {
    session(config()?, None)
}

/// A session for the interactive shell: as for SQL, with joins that `cancel` ends.
pub fn for_shell(cancel: Cancel) -> Result<SessionContext> {
    session(config()?, Some(cancel))
}

/// A session that copies tables as they are: rows in file order, types and metadata unchanged.
pub fn for_copying() -> Result<SessionContext> {
    let config = config()?
        .with_target_partitions(1)
        .set_bool(
            "datafusion.execution.parquet.schema_force_view_types",
            false,
        )
        .set_bool("datafusion.execution.parquet.skip_metadata", false);
    session(config, None)
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
    if let Some(cancel) = cancel {
        builder = builder.with_physical_optimizer_rule(Arc::new(InterruptibleJoins(cancel)));
    }
    let context = SessionContext::new_with_state(builder.build());
    if let Ok(files) = Url::parse("file:///") {
        context.register_object_store(&files, store::local());
    }
    paths::enable(&context);
    Ok(context)
}

/// The object store behind `url`, registered on first use. `options` are those of a
/// `CREATE EXTERNAL TABLE` or `COPY`; the ones that are not about the store are left alone.
pub async fn object_store(
    context: &SessionContext,
    url: &Url,
    options: &HashMap<String, String>,
) -> Result<Arc<dyn ObjectStore>> {
    let known = context.runtime_env().object_store_registry.get_store(url);
    let store_options = options_of_store(options);
    match known {
        Ok(store) if store_options.is_empty() => Ok(store),
        known => match connect(context, url, &store_options).await? {
            Some(store) => {
                let store = store::remote(store, url);
                context.register_object_store(url, Arc::clone(&store));
                Ok(store)
            }
            None => known.map_err(|_| {
                CliError::failed(format!("no object store for {url}")).hint(
                    "use a local path, or a URL that starts with s3://, gs://, oss://, cos:// or https://",
                )
            }),
        },
    }
}

async fn connect(
    context: &SessionContext,
    url: &Url,
    options: &HashMap<String, String>,
) -> Result<Option<Arc<dyn ObjectStore>>> {
    let scheme = url.scheme();
    context.register_table_options_extension_from_scheme(scheme);
    let mut table_options = context.state().default_table_options();
    table_options.alter_with_string_hash_map(options)?;
    let extensions = &table_options.extensions;
    let aws = extensions.get::<AwsOptions>().cloned().unwrap_or_default();
    let gcp = extensions.get::<GcpOptions>().cloned().unwrap_or_default();
    Ok(match scheme {
        "s3" => {
            let builder = get_s3_object_store_builder(url, &aws, false).await?;
            Some(Arc::new(builder.build()?))
        }
        "oss" => Some(Arc::new(get_oss_object_store_builder(url, &aws)?.build()?)),
        "cos" => Some(Arc::new(get_cos_object_store_builder(url, &aws)?.build()?)),
        "gs" | "gcs" => Some(Arc::new(get_gcs_object_store_builder(url, &gcp)?.build()?)),
        "http" | "https" => {
            let client = ClientOptions::new().with_allow_http(true);
            let origin = url.origin().ascii_serialization();
            let builder = HttpBuilder::new()
                .with_client_options(client)
                .with_url(origin);
            Some(Arc::new(builder.build()?))
        }
        _ => None,
    })
}

fn options_of_store(options: &HashMap<String, String>) -> HashMap<String, String> {
    options
        .iter()
        .filter(|(key, _)| key.starts_with("aws.") || key.starts_with("gcp."))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
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
