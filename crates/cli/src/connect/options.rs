//! The options of object stores in `CREATE EXTERNAL TABLE` and `COPY`. Their names and meanings are those of
//! DataFusion's own command line.

use std::any::Any;
use std::collections::HashMap;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::config_err;
use datafusion::error::Result;
use object_store::aws::AwsCredential;

/// Options `aws.*`, of stores that speak the protocol of S3.
#[derive(Clone, Debug, Default)]
pub struct AwsOptions {
    /// The public part of an access key.
    pub access_key_id: Option<String>,
    /// The secret part of an access key.
    pub secret_access_key: Option<String>,
    /// The token of a temporary access key.
    pub session_token: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// True if the endpoint may be without TLS.
    pub allow_http: Option<bool>,
    /// True if requests are not signed, even if there are credentials.
    pub skip_signature: Option<bool>,
}

const AWS_NAMES: &[&str] = &[
    "access_key_id",
    "secret_access_key",
    "session_token",
    "region",
    "endpoint",
    "oss.endpoint",
    "cos.endpoint",
    "allow_http",
    "skip_signature",
    "nosign",
];

impl AwsOptions {
    /// Reads all of `options`, each of which has the prefix `aws.`.
    pub fn parse(options: &HashMap<String, String>) -> Result<Self> {
        parse(options)
    }

    /// The access key. Returns an error if only a part of it is set.
    pub fn credential(&self) -> Result<Option<AwsCredential>> {
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(key_id), Some(secret_key)) => Ok(Some(AwsCredential {
                key_id: key_id.clone(),
                secret_key: secret_key.clone(),
                token: self.session_token.clone(),
            })),
            (None, None) if self.session_token.is_none() => Ok(None),
            _ => config_err!(
                "an access key has two parts: 'aws.access_key_id' and 'aws.secret_access_key'"
            ),
        }
    }
}

impl ExtensionOptions for AwsOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let text = || Some(value.to_owned());
        match name_in(key, Self::PREFIX) {
            "access_key_id" => self.access_key_id = text(),
            "secret_access_key" => self.secret_access_key = text(),
            "session_token" => self.session_token = text(),
            "region" => self.region = text(),
            "endpoint" | "oss" | "oss.endpoint" | "cos" | "cos.endpoint" => self.endpoint = text(),
            "allow_http" => self.allow_http = Some(flag(key, value)?),
            "skip_signature" | "nosign" => self.skip_signature = Some(flag(key, value)?),
            _ => return unknown(key, Self::PREFIX, AWS_NAMES),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        entries(Self::PREFIX, AWS_NAMES)
    }
}

impl ConfigExtension for AwsOptions {
    const PREFIX: &'static str = "aws";
}

/// Options `gcp.*`, of Google Cloud Storage.
#[derive(Clone, Debug, Default)]
pub struct GcpOptions {
    /// The file with the key of a service account.
    pub service_account_path: Option<String>,
    /// The key of a service account, in JSON.
    pub service_account_key: Option<String>,
    /// The file with application default credentials.
    pub application_credentials_path: Option<String>,
}

const GCP_NAMES: &[&str] = &[
    "service_account_path",
    "service_account_key",
    "application_credentials_path",
];

impl GcpOptions {
    /// Reads all of `options`, each of which has the prefix `gcp.`.
    pub fn parse(options: &HashMap<String, String>) -> Result<Self> {
        parse(options)
    }
}

impl ExtensionOptions for GcpOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let text = Some(value.to_owned());
        match name_in(key, Self::PREFIX) {
            "service_account_path" => self.service_account_path = text,
            "service_account_key" => self.service_account_key = text,
            "application_credentials_path" => self.application_credentials_path = text,
            _ => return unknown(key, Self::PREFIX, GCP_NAMES),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        entries(Self::PREFIX, GCP_NAMES)
    }
}

impl ConfigExtension for GcpOptions {
    const PREFIX: &'static str = "gcp";
}

fn parse<T: ExtensionOptions + Default>(options: &HashMap<String, String>) -> Result<T> {
    let mut parsed = T::default();
    for (key, value) in options {
        parsed.set(key, value)?;
    }
    Ok(parsed)
}

/// `key` without `prefix`: table options pass their keys whole.
fn name_in<'a>(key: &'a str, prefix: &str) -> &'a str {
    let name = key
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('.'));
    name.unwrap_or(key)
}

fn flag(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => config_err!("option '{key}' is 'true' or 'false', not '{value}'"),
    }
}

fn unknown(key: &str, prefix: &str, names: &[&str]) -> Result<()> {
    let known: Vec<String> = names
        .iter()
        .map(|name| format!("{prefix}.{name}"))
        .collect();
    let known = known.join(", ");
    config_err!("there is no option '{key}'; there are {known}")
}

/// The names of options. Values stay out, because some are secrets.
fn entries(prefix: &str, names: &[&str]) -> Vec<ConfigEntry> {
    let entry = |name: &&str| ConfigEntry {
        key: format!("{prefix}.{name}"),
        value: None,
        description: "",
    };
    names.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::error::DataFusionError;

    fn aws(options: &[(&str, &str)]) -> Result<AwsOptions> {
        let options = options.iter();
        AwsOptions::parse(
            &options
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    fn text(error: &DataFusionError) -> String {
        error.strip_backtrace()
    }

    #[test]
    fn every_name_is_taken() {
        for name in AWS_NAMES {
            let key = format!("aws.{name}");
            AwsOptions::default().set(&key, "true").unwrap();
        }
        for name in GCP_NAMES {
            let key = format!("gcp.{name}");
            GcpOptions::default().set(&key, "x").unwrap();
        }
    }

    #[test]
    fn keys_keep_their_values() {
        let options = aws(&[
            ("aws.access_key_id", "AKIA"),
            ("aws.secret_access_key", "Secret"),
            ("aws.session_token", "Token"),
            ("aws.region", "eu-central-1"),
            ("aws.cos.endpoint", "https://host"),
            ("aws.allow_http", "TRUE"),
            ("aws.nosign", "false"),
        ]);
        let options = options.unwrap();
        let credential = options.credential().unwrap().unwrap();
        assert_eq!(credential.key_id, "AKIA");
        assert_eq!(credential.secret_key, "Secret");
        assert_eq!(credential.token.as_deref(), Some("Token"));
        assert_eq!(options.region.as_deref(), Some("eu-central-1"));
        assert_eq!(options.endpoint.as_deref(), Some("https://host"));
        assert_eq!(options.allow_http, Some(true));
        assert_eq!(options.skip_signature, Some(false));
        assert!(aws(&[]).unwrap().credential().unwrap().is_none());
    }

    #[test]
    fn errors_name_the_option() {
        let error = aws(&[("aws.regoin", "x")]).unwrap_err();
        assert!(
            text(&error).contains("there is no option 'aws.regoin'; there are aws.access_key_id, ")
        );
        let error = aws(&[("aws.allow_http", "yes")]).unwrap_err();
        assert!(text(&error).contains("option 'aws.allow_http' is 'true' or 'false', not 'yes'"));
        for part in [
            "aws.access_key_id",
            "aws.secret_access_key",
            "aws.session_token",
        ] {
            let error = aws(&[(part, "x")]).unwrap().credential().unwrap_err();
            assert!(
                text(&error).contains("an access key has two parts"),
                "{part}"
            );
        }
        let error = GcpOptions::default().set("gcp.key", "x").unwrap_err();
        assert!(
            text(&error)
                .contains("there is no option 'gcp.key'; there are gcp.service_account_path, ")
        );
    }

    #[test]
    fn entries_hide_secrets() {
        let options = aws(&[("aws.secret_access_key", "Secret")]).unwrap();
        assert!(options.entries().iter().all(|entry| entry.value.is_none()));
    }
}
