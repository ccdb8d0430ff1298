//! Connects a session to object stores.

mod environment;
mod options;
mod profile;
mod s3;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigExtension;
use datafusion::prelude::SessionContext;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore};
use url::Url;

use self::environment::Environment;
use self::options::{AwsOptions, GcpOptions};
use crate::error::{CliError, Result};
use crate::store;

/// Lets statements of `context` carry the options of object stores.
pub fn register_options(context: &SessionContext) {
    context.register_table_options_extension(AwsOptions::default());
    context.register_table_options_extension(GcpOptions::default());
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
        known => match connect(url, &store_options).await? {
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

/// A new connection; `None` if the scheme of `url` is not that of an object store.
async fn connect(
    url: &Url,
    options: &HashMap<String, String>,
) -> Result<Option<Arc<dyn ObjectStore>>> {
    let scheme = url.scheme();
    let prefix = match scheme {
        "s3" | "oss" | "cos" => Some(AwsOptions::PREFIX),
        "gs" | "gcs" => Some(GcpOptions::PREFIX),
        _ => None,
    };
    check_prefixes(options, prefix, url)?;
    Ok(match scheme {
        "s3" => {
            let environment = Environment::of_process();
            let options = AwsOptions::parse(options)?;
            Some(Arc::new(
                s3::amazon(bucket(url)?, &options, &environment).await?,
            ))
        }
        "oss" | "cos" => {
            let environment = Environment::of_process();
            let options = AwsOptions::parse(options)?;
            Some(Arc::new(s3::compatible(
                bucket(url)?,
                scheme == "oss",
                &options,
                &environment,
            )?))
        }
        "gs" | "gcs" => {
            let builder = google(bucket(url)?, GcpOptions::parse(options)?);
            Some(Arc::new(builder.build()?))
        }
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

/// Google Cloud Storage: `options` go before `GOOGLE_*` variables.
fn google(bucket: &str, options: GcpOptions) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    if let Some(path) = options.service_account_path {
        builder = builder.with_service_account_path(path);
    }
    if let Some(key) = options.service_account_key {
        builder = builder.with_service_account_key(key);
    }
    if let Some(path) = options.application_credentials_path {
        builder = builder.with_application_credentials(path);
    }
    builder
}

fn bucket(url: &Url) -> Result<&str> {
    let bucket = url.host_str().filter(|host| !host.is_empty());
    bucket.ok_or_else(|| {
        let scheme = url.scheme();
        CliError::failed(format!("there is no bucket in {url}"))
            .hint(format!("write {scheme}://BUCKET/PATH"))
    })
}

/// The options of object stores, which have the prefix `aws.` or `gcp.`.
fn options_of_store(options: &HashMap<String, String>) -> HashMap<String, String> {
    options
        .iter()
        .filter(|(key, _)| prefix_of(key).is_some())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn prefix_of(key: &str) -> Option<&str> {
    let (prefix, _) = key.split_once('.')?;
    [AwsOptions::PREFIX, GcpOptions::PREFIX]
        .contains(&prefix)
        .then_some(prefix)
}

/// Returns an error if an option has a prefix other than `allowed`.
fn check_prefixes(
    options: &HashMap<String, String>,
    allowed: Option<&str>,
    url: &Url,
) -> Result<()> {
    match options.keys().find(|key| prefix_of(key) != allowed) {
        Some(key) => Err(CliError::failed(format!(
            "option '{key}' does not apply to {url}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::gcp::GoogleConfigKey;

    async fn error(url: &str, options: &[(&str, &str)]) -> String {
        let options = options
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        let connected = connect(&Url::parse(url).unwrap(), &options).await;
        connected.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn options_belong_to_the_store() {
        let region = [("aws.region", "eu-central-1")];
        for url in ["gs://bucket/x", "https://host/x", "file:///x"] {
            let expected = format!("error: option 'aws.region' does not apply to {url}");
            assert_eq!(error(url, &region).await, expected);
        }
        let path = [("gcp.service_account_path", "x.json")];
        let expected = "error: option 'gcp.service_account_path' does not apply to s3://bucket/x";
        assert_eq!(error("s3://bucket/x", &path).await, expected);
    }

    #[tokio::test]
    async fn a_url_names_a_bucket() {
        for scheme in ["s3", "oss", "cos", "gs", "gcs"] {
            let url = format!("{scheme}:///x");
            let expected =
                format!("error: there is no bucket in {url}\nhint: write {scheme}://BUCKET/PATH");
            assert_eq!(error(&url, &[]).await, expected);
        }
    }

    #[test]
    fn google_takes_its_options() {
        let builder = google(
            "bucket",
            GcpOptions {
                service_account_path: Some("a.json".to_owned()),
                service_account_key: Some("{}".to_owned()),
                application_credentials_path: Some("b.json".to_owned()),
            },
        );
        for (key, value) in [
            (GoogleConfigKey::Bucket, "bucket"),
            (GoogleConfigKey::ServiceAccount, "a.json"),
            (GoogleConfigKey::ServiceAccountKey, "{}"),
            (GoogleConfigKey::ApplicationCredentials, "b.json"),
        ] {
            assert_eq!(builder.get_config_value(&key).as_deref(), Some(value));
        }
    }
}
