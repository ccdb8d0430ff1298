//! The list of exceptions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use datafusion::common::{Result, exec_err};

/// Exceptions by location: a file, or a record of it as `file:line`. The value is the reason.
#[derive(Debug, Default)]
pub struct SkipList {
    /// Files with records that fail here on plain DataFusion already.
    pub plain: BTreeMap<String, String>,
    /// Records whose answer differs for a good reason.
    pub differs: BTreeMap<String, String>,
    /// Records whose answer SQL does not determine, so that it may or may not agree.
    pub varies: BTreeMap<String, String>,
}

impl SkipList {
    /// Reads lines of `plain|differs|varies LOCATION REASON`; `#` starts a comment line.
    pub fn read(path: &Path) -> Result<Self> {
        let mut list = SkipList::default();
        for line in fs::read_to_string(path)?.lines() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.splitn(3, char::is_whitespace);
            let kind = words.next().unwrap_or_default();
            let (Some(location), Some(reason)) = (words.next(), words.next()) else {
                return exec_err!("skip list: no location or no reason in: {line}");
            };
            let entries = match kind {
                "plain" => &mut list.plain,
                "differs" => &mut list.differs,
                "varies" => &mut list.varies,
                _ => return exec_err!("skip list: {kind} is not plain, differs or varies: {line}"),
            };
            if entries
                .insert(location.into(), reason.trim().into())
                .is_some()
            {
                return exec_err!("skip list: {location} is listed twice");
            }
        }
        Ok(list)
    }
}
