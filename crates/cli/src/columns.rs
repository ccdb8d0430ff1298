//! Column names in options.

use std::str::FromStr;

use arrow::datatypes::SchemaRef;
use datafusion::common::utils::datafusion_strsim::levenshtein;

use crate::error::{CliError, Result};

/// Names separated by commas. One that has commas itself is in double quotes.
#[derive(Clone, Debug)]
pub struct ColumnList(Vec<String>);

impl FromStr for ColumnList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = items(text)?.into_iter().map(|item| {
            let (name, _) = item.name_and_words(&[])?;
            Ok(name)
        });
        names.collect::<Result<_, String>>().map(ColumnList)
    }
}

impl ColumnList {
    /// The indices of the columns in `schema`. Errors name `option`.
    pub fn indices(&self, option: &str, schema: &SchemaRef) -> Result<Vec<usize>> {
        let mut indices = Vec::with_capacity(self.0.len());
        for name in &self.0 {
            let index = column_named(option, schema, name)?;
            if indices.contains(&index) {
                let twice = format!("{option}: column {name} is there twice");
                return Err(CliError::Usage(twice));
            }
            indices.push(index);
        }
        Ok(indices)
    }
}

/// The text between two commas.
pub struct Item {
    /// Without white space around it and without quotes.
    text: String,
    is_quoted: bool,
    /// The text after the closing quote.
    rest: String,
}

impl Item {
    /// The name, and the words after it that are in `known`, in lower case.
    pub fn name_and_words(self, known: &[&str]) -> Result<(String, Vec<String>), String> {
        let mut words = Vec::new();
        let mut left = match self.is_quoted {
            true => self.rest.as_str(),
            false => self.text.as_str(),
        };
        while let Some((before, word)) = left.trim_end().rsplit_once(char::is_whitespace) {
            let word = word.to_ascii_lowercase();
            if !known.contains(&word.as_str()) {
                break;
            }
            words.insert(0, word);
            left = before;
        }
        let left = left.trim_end();
        match self.is_quoted {
            true if left.is_empty() => Ok((self.text, words)),
            true => Err(format!("{left} behind column {}", self.text)),
            false => Ok((left.to_string(), words)),
        }
    }
}

/// Splits `text` at commas outside of quotes.
pub fn items(text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let text = text.trim_start();
        let (item, after) = match text.strip_prefix('"') {
            Some(quoted) => {
                let (name, after) = unquote(quoted).ok_or("a quote is not closed")?;
                let (behind, after) = cut(after);
                let item = Item {
                    text: name,
                    is_quoted: true,
                    rest: behind.to_string(),
                };
                (item, after)
            }
            None => {
                let (name, after) = cut(text);
                let item = Item {
                    text: name.trim_end().to_string(),
                    is_quoted: false,
                    rest: String::new(),
                };
                (item, after)
            }
        };
        if item.text.is_empty() {
            return Err("a column's name is missing".into());
        }
        items.push(item);
        rest = after;
    }
    Ok(items)
}

/// The text before the first comma and, if there is one, after it.
fn cut(text: &str) -> (&str, Option<&str>) {
    match text.split_once(',') {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// The text up to the closing quote, with doubled quotes reduced to one, and the text after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, after)),
        }
    }
}

/// The index of the column of that name. Case may differ if no other column then has the name.
pub fn column_named(option: &str, schema: &SchemaRef, name: &str) -> Result<usize> {
    if let Ok(index) = schema.index_of(name) {
        return Ok(index);
    }
    let fields = schema.fields().iter().enumerate();
    let mut similar = fields.filter(|(_, field)| field.name().eq_ignore_ascii_case(name));
    match (similar.next(), similar.next()) {
        (Some((index, _)), None) => Ok(index),
        _ => Err(no_column(option, schema, name)),
    }
}

/// The error for a column in `option` that does not exist.
pub fn no_column(option: &str, schema: &SchemaRef, name: &str) -> CliError {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let distance = |other: &str| levenshtein(&name.to_lowercase(), &other.to_lowercase());
    let nearest = names.iter().map(|other| (distance(other), *other)).min();
    let columns = format!("columns are {}", names.join(", "));
    let hint = match nearest {
        Some((distance, nearest)) if distance <= 1 + name.chars().count() / 4 => {
            format!("did you mean {nearest}? {columns}")
        }
        _ => columns,
    };
    CliError::failed(format!("{option}: there is no column {name}")).hint(hint)
}
