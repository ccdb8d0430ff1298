//! Connects a session to object stores.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use datafusion_cli::cli_context::CliSessionContext;
use datafusion_cli::object_storage::{
    AwsOptions, GcpOptions, get_cos_object_store_builder, get_gcs_object_store_builder,
    get_oss_object_store_builder, get_s3_object_store_builder,
};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore};
use url::Url;

use crate::error::{CliError, Result};
use crate::store;

/// The object store of `url`, registered on first use. `options` are those of a `CREATE EXTERNAL TABLE` or `COPY`;
/// options that are not for the store are ignored.
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
