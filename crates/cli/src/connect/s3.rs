//! Stores that speak the protocol of Amazon S3.
//!
//! Credentials come from the first of these that has any: the options of the statement, the environment, the AWS
//! profile, a web identity, the container, the instance. Without any, requests are not signed.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{
    AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, resolve_bucket_region,
};
use object_store::{ClientConfigKey, ClientOptions, RetryConfig, StaticCredentialProvider};
use url::Url;

use crate::connect::environment::Environment;
use crate::connect::options::AwsOptions;
use crate::connect::profile::Profile;
use crate::error::{CliError, Result};

/// How long the metadata service of an instance may take to hand out credentials. To connect, it has a second.
const INSTANCE_PATIENCE: Duration = Duration::from_secs(5);

/// Amazon S3, or another server if an endpoint is set.
pub async fn amazon(
    bucket: &str,
    options: &AwsOptions,
    environment: &Environment,
) -> Result<AmazonS3> {
    let builder = with_credentials(builder(bucket, options, environment)?, options, environment);
    let builder = with_region(builder.await?, bucket).await?;
    Ok(builder.build()?)
}

/// Another service with the protocol of S3, which has no regions. Only options and environment have its credentials.
pub fn compatible(
    bucket: &str,
    is_virtual_hosted: bool,
    options: &AwsOptions,
    environment: &Environment,
) -> Result<AmazonS3> {
    let mut builder = builder(bucket, options, environment)?
        .with_virtual_hosted_style_request(is_virtual_hosted)
        .with_region("do_not_care");
    if let Some(credential) = options.credential()? {
        builder = with_credential(builder, credential);
    }
    Ok(builder.build()?)
}

/// A builder with the settings of `options`, or else of `AWS_*` variables, apart from credentials.
fn builder(
    bucket: &str,
    options: &AwsOptions,
    environment: &Environment,
) -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment.iter() {
        if name.starts_with("AWS_")
            && let Ok(key) = name.to_ascii_lowercase().parse()
        {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder.with_bucket_name(bucket);
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        // The key of S3 goes before the general one, which may be in the environment.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if let Some(allow_http) = options.allow_http {
        builder = builder.with_allow_http(allow_http);
    }
    if let Some(skip_signature) = options.skip_signature {
        builder = builder.with_skip_signature(skip_signature);
    }
    check_endpoint(&builder)?;
    Ok(builder)
}

/// Returns an error if the endpoint needs HTTP and that is not allowed.
fn check_endpoint(builder: &AmazonS3Builder) -> Result<()> {
    let Some(endpoint) = endpoint(builder) else {
        return Ok(());
    };
    let is_http = Url::parse(&endpoint).is_ok_and(|url| url.scheme() == "http");
    let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    if is_http && !is_true(builder, &allow_http) {
        return Err(
            CliError::failed(format!("HTTP is not allowed for the endpoint {endpoint}"))
                .hint("set the option 'aws.allow_http' to true, or AWS_ALLOW_HTTP=true"),
        );
    }
    Ok(())
}

async fn with_credentials(
    mut builder: AmazonS3Builder,
    options: &AwsOptions,
    environment: &Environment,
) -> Result<AmazonS3Builder> {
    if let Some(credential) = options.credential()? {
        return Ok(with_credential(builder, credential));
    }
    let profile = Profile::selected(environment);
    if !is_set(&builder, AmazonS3ConfigKey::Region)
        && let Ok(profile) = &profile
        && let Some(region) = profile.region()
    {
        builder = builder.with_region(region);
    }
    let has_key = is_set(&builder, AmazonS3ConfigKey::AccessKeyId)
        && is_set(&builder, AmazonS3ConfigKey::SecretAccessKey);
    if has_key || is_true(&builder, &AmazonS3ConfigKey::SkipSignature) {
        return Ok(builder);
    }
    if let Some(credential) = profile?.credential()? {
        return Ok(with_credential(builder, credential));
    }
    let is_unsigned = !has_own_source(&builder)? && !has_instance(&builder, environment).await?;
    Ok(match is_unsigned {
        true => builder.with_skip_signature(true),
        false => builder,
    })
}

fn with_credential(builder: AmazonS3Builder, credential: AwsCredential) -> AmazonS3Builder {
    builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)))
}

/// Returns true if the environment has a web identity, a container, or half a key, which `build` refuses.
fn has_own_source(builder: &AmazonS3Builder) -> Result<bool> {
    use AmazonS3ConfigKey as Key;
    let is_set = |key| is_set(builder, key);
    let has_key = is_set(Key::AccessKeyId) || is_set(Key::SecretAccessKey);
    let has_identity = is_set(Key::WebIdentityTokenFile) && is_set(Key::RoleArn);
    let has_task = is_set(Key::ContainerCredentialsRelativeUri);
    let has_pod = is_set(Key::ContainerCredentialsFullUri);
    if has_pod && !(has_key || has_identity || has_task) {
        return match is_set(Key::ContainerAuthorizationTokenFile) {
            true => Ok(true),
            false => Err(CliError::failed(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is set without AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, \
                 which vectile does not support",
            )
            .hint("run eval \"$(aws configure export-credentials --format env)\" first")),
        };
    }
    Ok(has_key || has_identity || has_task)
}

/// Returns true if the metadata service of an instance answers with credentials.
async fn has_instance(builder: &AmazonS3Builder, environment: &Environment) -> Result<bool> {
    if environment.is_true("AWS_EC2_METADATA_DISABLED") {
        return Ok(false);
    }
    let once = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let store = builder.clone().with_retry(once).build()?;
    let credential = store.credentials().get_credential();
    let answer = tokio::time::timeout(INSTANCE_PATIENCE, credential).await;
    Ok(matches!(answer, Ok(Ok(_))))
}

/// Asks Amazon for the region of `bucket` if none is set. Buckets of other servers may have names of buckets there, and
/// their machines may not reach Amazon.
async fn with_region(builder: AmazonS3Builder, bucket: &str) -> Result<AmazonS3Builder> {
    if is_set(&builder, AmazonS3ConfigKey::Region) || is_other_server(&builder) {
        return Ok(builder);
    }
    match resolve_bucket_region(bucket, &ClientOptions::new()).await {
        Ok(region) => Ok(builder.with_region(region)),
        Err(_) if endpoint(&builder).is_some() => Ok(builder),
        Err(error) => {
            Err(CliError::from(error)
                .hint("if it exists, set AWS_REGION or the option 'aws.region'"))
        }
    }
}

fn endpoint(builder: &AmazonS3Builder) -> Option<String> {
    let of_s3 = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    of_s3.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint))
}

/// Returns true if the endpoint is not one of Amazon's.
fn is_other_server(builder: &AmazonS3Builder) -> bool {
    let url = endpoint(builder).and_then(|endpoint| Url::parse(&endpoint).ok());
    url.is_some_and(|url| {
        let host = url.host_str().unwrap_or_default();
        ![".amazonaws.com", ".amazonaws.com.cn"]
            .iter()
            .any(|suffix| host.ends_with(suffix))
    })
}

fn is_set(builder: &AmazonS3Builder, key: AmazonS3ConfigKey) -> bool {
    builder.get_config_value(&key).is_some()
}

fn is_true(builder: &AmazonS3Builder, key: &AmazonS3ConfigKey) -> bool {
    let value = builder.get_config_value(key);
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: (&str, &str) = ("AWS_REGION", "eu-west-1");
    const NO_INSTANCE: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

    fn options(endpoint: Option<&str>, allow_http: Option<bool>) -> AwsOptions {
        AwsOptions {
            endpoint: endpoint.map(str::to_owned),
            allow_http,
            ..AwsOptions::default()
        }
    }

    fn value(builder: &AmazonS3Builder, key: AmazonS3ConfigKey) -> String {
        builder.get_config_value(&key).unwrap_or_default()
    }

    #[test]
    fn options_go_before_the_environment() {
        let environment = Environment::from([
            REGION,
            ("AWS_ENDPOINT_URL_S3", "https://a"),
            ("AWS_SKIP_SIGNATURE", "true"),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", " "),
        ]);
        let given = AwsOptions {
            region: Some("us-east-2".to_owned()),
            skip_signature: Some(false),
            ..options(Some("https://b"), None)
        };
        let built = builder("bucket", &given, &environment).unwrap();
        assert_eq!(value(&built, AmazonS3ConfigKey::Bucket), "bucket");
        assert_eq!(value(&built, AmazonS3ConfigKey::Region), "us-east-2");
        assert_eq!(value(&built, AmazonS3ConfigKey::SkipSignature), "false");
        assert_eq!(endpoint(&built).as_deref(), Some("https://b"));
        let built = builder("bucket", &AwsOptions::default(), &environment).unwrap();
        assert_eq!(value(&built, AmazonS3ConfigKey::Region), "eu-west-1");
        assert_eq!(endpoint(&built).as_deref(), Some("https://a"));
    }

    #[test]
    fn http_must_be_allowed() {
        let none = Environment::default();
        let plain = Some("http://host:9000");
        for refused in [options(plain, None), options(plain, Some(false))] {
            assert_eq!(
                builder("bucket", &refused, &none).unwrap_err().to_string(),
                "error: HTTP is not allowed for the endpoint http://host:9000\n\
                 hint: set the option 'aws.allow_http' to true, or AWS_ALLOW_HTTP=true"
            );
        }
        builder("bucket", &options(plain, Some(true)), &none).unwrap();
        let allowed = Environment::from([("AWS_ALLOW_HTTP", "true")]);
        builder("bucket", &options(plain, None), &allowed).unwrap();
        let refused = Environment::from([("AWS_ENDPOINT", "http://host")]);
        assert!(builder("bucket", &AwsOptions::default(), &refused).is_err());
    }

    async fn credential(
        options: AwsOptions,
        environment: Environment,
    ) -> Result<Option<Arc<AwsCredential>>> {
        let builder = builder("bucket", &options, &environment)?;
        let builder = with_credentials(builder, &options, &environment).await?;
        if is_true(&builder, &AmazonS3ConfigKey::SkipSignature) {
            return Ok(None);
        }
        let store = builder.build()?;
        Ok(Some(store.credentials().get_credential().await?))
    }

    async fn key_id(options: AwsOptions, environment: Environment) -> Option<String> {
        let credential = credential(options, environment).await.unwrap();
        credential.map(|credential| credential.key_id.clone())
    }

    #[tokio::test]
    async fn the_first_source_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let text = "[default]\naws_access_key_id = profile\naws_secret_access_key = S\n[sso]\nsso_session = s";
        std::fs::write(&path, text).unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let key = ("AWS_ACCESS_KEY_ID", "environment");
        let secret = ("AWS_SECRET_ACCESS_KEY", "S");
        let token = ("AWS_SESSION_TOKEN", "T");
        let none = AwsOptions::default;
        let given = || AwsOptions {
            access_key_id: Some("options".to_owned()),
            secret_access_key: Some("S".to_owned()),
            ..AwsOptions::default()
        };

        let all = Environment::from([file, key, secret, token]);
        let of_options = credential(given(), all.clone()).await.unwrap().unwrap();
        assert_eq!(of_options.key_id, "options");
        assert_eq!(of_options.token, None, "the token is of another key");
        assert_eq!(key_id(none(), all).await.unwrap(), "environment");

        let two = Environment::from([file, key]);
        assert_eq!(key_id(none(), two).await.unwrap(), "profile");

        let skip = ("AWS_SKIP_SIGNATURE", "true");
        let sso = ("AWS_PROFILE", "sso");
        assert_eq!(
            key_id(none(), Environment::from([file, skip, sso])).await,
            None
        );
        let environment = Environment::from([file, key, secret, sso]);
        assert_eq!(key_id(none(), environment).await.unwrap(), "environment");
        assert!(
            credential(none(), Environment::from([file, sso]))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn requests_without_credentials_are_not_signed() {
        let none = AwsOptions::default();
        assert_eq!(
            key_id(none.clone(), Environment::from([NO_INSTANCE])).await,
            None
        );
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", unused.local_addr().unwrap());
        drop(unused);
        let unreachable = Environment::from([("AWS_METADATA_ENDPOINT", address.as_str())]);
        assert_eq!(key_id(none, unreachable).await, None);
    }

    #[tokio::test]
    async fn half_a_source_is_an_error() {
        let none = AwsOptions::default();
        let half = Environment::from([("AWS_ACCESS_KEY_ID", "A"), NO_INSTANCE]);
        let error = credential(none.clone(), half).await.unwrap_err();
        assert!(
            error.to_string().contains("Missing SecretAccessKey"),
            "{error}"
        );
        let uri = (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://localhost:1338/",
        );
        let error = credential(none, Environment::from([uri]))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("_TOKEN_FILE"), "{error}");
    }

    #[test]
    fn amazon_knows_the_regions_of_its_own_buckets() {
        for (endpoint, is_other) in [
            (None, false),
            (Some("https://s3.eu-central-1.amazonaws.com"), false),
            (Some("https://s3.cn-north-1.amazonaws.com.cn"), false),
            (Some("https://minio.example.com"), true),
            (Some("https://notamazonaws.com"), true),
        ] {
            let options = options(endpoint, None);
            let builder = builder("bucket", &options, &Environment::default()).unwrap();
            assert_eq!(is_other_server(&builder), is_other, "{endpoint:?}");
        }
    }

    #[test]
    fn compatible_services_need_no_region() {
        let environment =
            Environment::from([("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "S")]);
        for is_virtual_hosted in [true, false] {
            let options = options(Some("https://host"), None);
            let store = compatible("bucket", is_virtual_hosted, &options, &environment).unwrap();
            assert_eq!(store.to_string(), "AmazonS3(bucket)");
        }
    }
}
