//! The environment variables of a process.

use std::collections::HashMap;
use std::path::PathBuf;

/// Environment variables. Those that are blank or not UTF-8 count as unset.
#[derive(Clone, Debug, Default)]
pub struct Environment(HashMap<String, String>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os();
        variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns true if `name` is `true`, in any case.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// All names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `path`, with the home directory in place of a leading `~`. `None` without a home directory.
    pub fn expand(&self, path: &str) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(below) => {
                let home = self.get("HOME").or_else(|| self.get("USERPROFILE"))?;
                Some(PathBuf::from(home).join(below))
            }
            None => Some(PathBuf::from(path)),
        }
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        let set = variables
            .into_iter()
            .filter(|(_, value)| !value.trim().is_empty());
        Environment(set.collect())
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        owned.into_iter().collect()
    }
}
