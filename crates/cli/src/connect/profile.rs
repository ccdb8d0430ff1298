//! The profile that AWS tools use: a section of `~/.aws/config` and of `~/.aws/credentials`.
//!
//! ```ini
//! [profile work]                   # in config; [work] in credentials, [default] in both
//! region = eu-central-1
//! aws_access_key_id = AKIA...
//! s3 =
//!   addressing_style = path        # indented further: a part of the value above
//! ```
//!
//! Names of properties ignore case, names of profiles do not. `#` and `;` start a comment at the start of a line and
//! after a space. If both files have a property, that of `credentials` counts.

use std::collections::HashMap;
use std::io::ErrorKind;

use object_store::aws::AwsCredential;

use crate::connect::environment::Environment;
use crate::error::{CliError, Result};

/// Properties that lead to credentials in ways that we do not implement.
const ROLE: &str = "role_arn";
const OTHER_SOURCES: &[&str] = &[
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "credential_process",
    "login_session",
];

/// A profile: its properties that have a value. It is empty if no file has it.
#[derive(Debug)]
pub struct Profile {
    name: String,
    properties: Properties,
}

type Properties = HashMap<String, String>;

impl Profile {
    /// The profile that `AWS_PROFILE` names; by default `default`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or if no file has the profile that `AWS_PROFILE` names.
    pub fn selected(environment: &Environment) -> Result<Self> {
        let name = environment.get("AWS_PROFILE").unwrap_or(DEFAULT);
        let mut properties = None;
        for file in [File::Config, File::Credentials] {
            if let Some(section) = file.read(environment, name)? {
                properties.get_or_insert_with(HashMap::new).extend(section);
            }
        }
        if properties.is_none() && name != DEFAULT {
            let [config, credentials] =
                [File::Config, File::Credentials].map(|file| file.path(environment));
            return Err(CliError::failed(format!(
                "there is no profile '{name}' in {config} or {credentials}"
            ))
            .hint("set AWS_PROFILE to one of `aws configure list-profiles`"));
        }
        Ok(Profile {
            name: name.to_owned(),
            properties: properties.unwrap_or_default(),
        })
    }

    /// The region.
    pub fn region(&self) -> Option<&str> {
        self.get("region")
    }

    /// The access key, if the profile has one.
    ///
    /// # Errors
    ///
    /// If the profile has half a key, or gets its credentials in a way that we do not implement.
    pub fn credential(&self) -> Result<Option<AwsCredential>> {
        if self.get(ROLE).is_some() {
            return Err(self.unsupported(ROLE));
        }
        let key_id = self.get("aws_access_key_id");
        let secret_key = self.get("aws_secret_access_key");
        let missing = match (key_id, secret_key) {
            (Some(key_id), Some(secret_key)) => {
                return Ok(Some(AwsCredential {
                    key_id: key_id.to_owned(),
                    secret_key: secret_key.to_owned(),
                    token: self.get("aws_session_token").map(str::to_owned),
                }));
            }
            (Some(_), None) => "aws_secret_access_key",
            (None, Some(_)) => "aws_access_key_id",
            (None, None) => {
                let mut sources = OTHER_SOURCES.iter();
                return match sources.find(|source| self.get(source).is_some()) {
                    Some(source) => Err(self.unsupported(source)),
                    None => Ok(None),
                };
            }
        };
        let name = &self.name;
        Err(CliError::failed(format!(
            "AWS profile '{name}' has no {missing}"
        )))
    }

    fn get(&self, property: &str) -> Option<&str> {
        self.properties.get(property).map(String::as_str)
    }

    fn unsupported(&self, property: &str) -> CliError {
        let name = &self.name;
        CliError::failed(format!(
            "AWS profile '{name}' gets its credentials by {property}, which vectile does not support"
        ))
        .hint(
            "run eval \"$(aws configure export-credentials --format env)\" first; \
             for public data, set AWS_SKIP_SIGNATURE=true",
        )
    }
}

const DEFAULT: &str = "default";

/// The two files of AWS tools.
#[derive(Clone, Copy, Debug)]
enum File {
    Config,
    Credentials,
}

impl File {
    fn path(self, environment: &Environment) -> &str {
        let (variable, default) = match self {
            File::Config => ("AWS_CONFIG_FILE", "~/.aws/config"),
            File::Credentials => ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        };
        environment.get(variable).unwrap_or(default)
    }

    /// The properties of `profile`; `None` if the file or the profile does not exist.
    fn read(self, environment: &Environment, profile: &str) -> Result<Option<Properties>> {
        let path = self.path(environment);
        let Some(expanded) = environment.expand(path) else {
            return Ok(None);
        };
        let text = match std::fs::read_to_string(expanded) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CliError::from(error).context(format!("cannot read {path}"))),
        };
        self.section(&text, profile)
            .map_err(|line| CliError::failed(format!("{path}, line {line}: ']' is missing")))
    }

    /// The properties of `profile` in `text`; the number of the line if a header is not closed.
    fn section(self, text: &str, profile: &str) -> Result<Option<Properties>, usize> {
        let mut properties = None;
        let mut is_selected = false;
        let mut property_indent = None;
        for (index, line) in text.lines().enumerate() {
            let content = line.trim();
            if content.is_empty() || content.starts_with(COMMENT) {
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            if property_indent.is_some_and(|outer| indent > outer) {
                continue; // a part of the value above
            }
            if let Some(header) = content.strip_prefix('[') {
                let (header, _) = header.split_once(']').ok_or(index + 1)?;
                is_selected = self.profile_of(header) == Some(profile);
                property_indent = None;
                if is_selected {
                    properties.get_or_insert_with(Properties::new);
                }
                continue;
            }
            property_indent = Some(indent);
            if is_selected
                && let Some(properties) = &mut properties
                && let Some((name, value)) = content.split_once('=')
            {
                let name = name.trim().to_ascii_lowercase();
                match without_comment(value).trim() {
                    "" => properties.remove(&name),
                    value => properties.insert(name, value.to_owned()),
                };
            }
        }
        Ok(properties)
    }

    /// The profile of a section. Some sections of `config` have none.
    fn profile_of(self, header: &str) -> Option<&str> {
        let header = header.trim();
        match self {
            File::Credentials => Some(header),
            File::Config if header == DEFAULT => Some(header),
            File::Config => {
                let (kind, name) = header.split_once(char::is_whitespace)?;
                (kind == "profile").then(|| name.trim().trim_matches('"'))
            }
        }
    }
}

const COMMENT: [char; 2] = ['#', ';'];

/// `value` up to the first comment sign that follows white space.
fn without_comment(value: &str) -> &str {
    let mut follows_space = false;
    for (position, character) in value.char_indices() {
        if follows_space && COMMENT.contains(&character) {
            return value.get(..position).unwrap_or(value);
        }
        follows_space = character.is_whitespace();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(file: File, text: &str, profile: &str) -> Option<Vec<(String, String)>> {
        let properties = file.section(text, profile).unwrap()?;
        let mut properties: Vec<_> = properties.into_iter().collect();
        properties.sort();
        Some(properties)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let owned = |(a, b): &(&str, &str)| (a.to_string(), b.to_string());
        Some(pairs.iter().map(owned).collect())
    }

    #[test]
    fn each_file_has_its_headers() {
        let text = "[default]\na = 1\n[profile dev]\na=2\n[dev]\na=3\n[ profile  \"two words\" ] # x\na=4\n\
                    [sso-session dev]\na=5\n[profile]\na=6\n[profiledev]\na=7";
        for (profile, value) in [("default", "1"), ("dev", "2"), ("two words", "4")] {
            let expected = pairs(&[("a", value)]);
            assert_eq!(section(File::Config, text, profile), expected, "{profile}");
        }
        assert_eq!(section(File::Config, text, "other"), None);
        assert_eq!(section(File::Config, text, ""), None);
        for (profile, value) in [("default", "1"), ("dev", "3"), ("profile dev", "2")] {
            let expected = pairs(&[("a", value)]);
            assert_eq!(
                section(File::Credentials, text, profile),
                expected,
                "{profile}"
            );
        }
        assert_eq!(section(File::Config, "[default]", "default"), pairs(&[]));
    }

    #[test]
    fn values_end_at_comments() {
        let text = "\r\n# c\n; c\n[default] ; c\r\n A_Key = x=y#z/+ # c\r\n b =1\t;c\n c =\n d = # c\n e\n f:g\n = h\n \
                    ü = ä #\n i = 1\n i = 2";
        let expected = pairs(&[
            ("", "h"),
            ("a_key", "x=y#z/+"),
            ("b", "1"),
            ("i", "2"),
            ("ü", "ä"),
        ]);
        assert_eq!(section(File::Config, text, "default"), expected);
    }

    #[test]
    fn indented_lines_belong_to_the_value_above() {
        let text = "[default]\n  region = a\n  s3 =\n    region = b\n    [default]\n  x = c\n[other]\n  region = d";
        let expected = pairs(&[("region", "a"), ("x", "c")]);
        assert_eq!(section(File::Config, text, "default"), expected);
        assert_eq!(
            section(File::Config, "[default]\nx = 1\n\ty = 2", "default"),
            pairs(&[("x", "1")])
        );
    }

    #[test]
    fn any_text_is_read_or_refused() {
        assert_eq!(File::Config.section("\n[default\na = 1", "default"), Err(2));
        for text in [
            "[",
            "[]",
            "=",
            "[ ]\n=",
            "]",
            "\u{feff}[default]",
            "a\0=b",
            "#",
            "[profile ]",
        ] {
            for file in [File::Config, File::Credentials] {
                for length in 0..=text.len() {
                    if let Some(text) = text.get(..length) {
                        let _ = file.section(text, "default");
                    }
                }
            }
        }
    }

    fn profile(config: &str, credentials: &str, name: &str) -> Result<Profile> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        let path = folder.path().join("config of mine");
        std::fs::write(&path, config).unwrap();
        std::fs::write(folder.path().join(".aws/credentials"), credentials).unwrap();
        Profile::selected(&Environment::from([
            ("AWS_PROFILE", name),
            ("AWS_CONFIG_FILE", path.to_str().unwrap()),
            ("HOME", folder.path().to_str().unwrap()),
        ]))
    }

    #[test]
    fn credentials_go_before_config() {
        let config = "[profile dev]\nregion = eu-west-1\naws_access_key_id = A\nsso_session = s\n";
        let credentials =
            "[dev]\naws_access_key_id = B\naws_secret_access_key = S\naws_session_token = T\n";
        let profile = profile(config, credentials, "dev").unwrap();
        assert_eq!(profile.region(), Some("eu-west-1"));
        let credential = profile.credential().unwrap().unwrap();
        assert_eq!(credential.key_id, "B");
        assert_eq!(credential.secret_key, "S");
        assert_eq!(credential.token.as_deref(), Some("T"));
    }

    #[test]
    fn a_profile_may_have_no_credentials() {
        let none = Profile::selected(&Environment::default()).unwrap();
        assert_eq!(none.region(), None);
        assert!(none.credential().unwrap().is_none());
        let other = profile("", "[other]\naws_access_key_id = A", "").unwrap();
        assert!(other.credential().unwrap().is_none());
        let region = profile("[default]\nregion = x", "", "").unwrap();
        assert_eq!(region.region(), Some("x"));
        assert!(region.credential().unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_used_is_an_error() {
        let keys = "aws_access_key_id = A\naws_secret_access_key = S\n";
        for source in OTHER_SOURCES {
            let config = format!("[default]\n{source} = x");
            let error = profile(&config, "", "").unwrap().credential().unwrap_err();
            let expected = format!(
                "error: AWS profile 'default' gets its credentials by {source}, which vectile does not support\nhint: "
            );
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert!(
                error
                    .to_string()
                    .contains("aws configure export-credentials --format env")
            );
        }
        let role = profile("[default]\nrole_arn = x", &format!("[default]\n{keys}"), "");
        let error = role.unwrap().credential().unwrap_err();
        assert!(error.to_string().contains("by role_arn, which"), "{error}");
        let half = profile("", "[dev]\naws_access_key_id = A", "dev").unwrap();
        assert_eq!(
            half.credential().unwrap_err().to_string(),
            "error: AWS profile 'dev' has no aws_secret_access_key"
        );
        let error = profile("[dev]", "", "dev").unwrap_err().to_string();
        assert!(
            error.starts_with("error: there is no profile 'dev' in "),
            "{error}"
        );
        let error = profile("", "[default", "").unwrap_err().to_string();
        assert_eq!(error, "error: ~/.aws/credentials, line 1: ']' is missing");
    }
}
