//! Settings: `SET vectile.*` of a session, and `OPTIONS (...)` of a table or a `COPY`.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use arrow::datatypes::Schema;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result, config_datafusion_err, config_err, plan_err};
use vectile_encodings::Pin;
use vectile_file::{Compression, DEFAULT_ROW_GROUP_ROWS, WriterOptions};

/// Controls which queries run on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuMode {
    /// Use a GPU if there is one and it is expected to be faster. The CPU takes over if the GPU fails.
    #[default]
    Auto,
    /// Use the GPU wherever there is a kernel. The CPU takes over if the GPU fails.
    On,
    /// Never use the GPU.
    Off,
    /// Run every scan of a Vectile table on the GPU; a query that cannot run there is an error. Without the feature
    /// `gpu`, that is every query.
    Require,
}

impl fmt::Display for GpuMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::Require => "require",
        })
    }
}

impl FromStr for GpuMode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            "require" => Ok(Self::Require),
            _ => Err(()),
        }
    }
}

/// A number of bytes: digits, with an optional unit `K`, `M`, `G` or `T`.
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
        let unit = units
            .into_iter()
            .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let (digits, shift) = unit.unwrap_or((text, 0));
        let number: u64 = digits.trim().parse().map_err(|_| ())?;
        number.checked_mul(1 << shift).map(Self).ok_or(())
    }
}

/// Default maximum number of rows of a joined table. For more, the CPU's hash join is faster, because one thread builds
/// a table of codes.
const GPU_MAX_BUILD_ROWS: usize = 64_000_000;

/// Default minimum number of rows for a build on the GPU: for fewer, the CPU has built the table before a kernel is
/// launched.
const GPU_BUILD_FROM_ROWS: usize = 1 << 16;

/// Settings of a session, in the namespace `vectile`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VectileOptions {
    /// If true, scans evaluate filters themselves. If false, they only prune by zone maps.
    pub pushdown_filters: bool,
    /// If true, scans verify the checksums of the data they read.
    pub verify_checksums: bool,
    /// Rows per row group of written files.
    pub row_group_rows: usize,
    /// If true, [`physical_plan`](crate::physical_plan) caches the plans of queries.
    pub keep_plans: bool,
    /// Controls which queries run on the GPU.
    pub gpu: GpuMode,
    /// Maximum bytes of columns kept on the device; `None`: the engine's default. All sessions of the process share the
    /// device: the query planned last determines the limit.
    pub gpu_memory_limit: Option<u64>,
    /// Maximum bytes of columns kept in pinned host memory in addition; shared likewise.
    pub gpu_host_memory_limit: Option<u64>,
    /// If true, [`GpuMode::Auto`] prepares the GPU in the background for queries that the CPU runs meanwhile: it opens
    /// the device, loads columns and compiles kernels.
    pub gpu_background: bool,
    /// Maximum number of rows of a table that a scan on the GPU is joined with.
    pub gpu_max_build_rows: usize,
    /// If a table that a scan on the GPU is joined with has at least this many rows before its filters, the GPU builds
    /// the lookup, where it can.
    pub gpu_build_from_rows: usize,
    /// If true, lookups stay on the GPU for queries with the same joined table.
    pub gpu_keep_lookups: bool,
}

impl Default for VectileOptions {
    fn default() -> Self {
        Self {
            pushdown_filters: true,
            verify_checksums: true,
            row_group_rows: DEFAULT_ROW_GROUP_ROWS,
            keep_plans: true,
            gpu: GpuMode::default(),
            gpu_memory_limit: None,
            gpu_host_memory_limit: None,
            gpu_background: true,
            gpu_max_build_rows: GPU_MAX_BUILD_ROWS,
            gpu_build_from_rows: GPU_BUILD_FROM_ROWS,
            gpu_keep_lookups: true,
        }
    }
}

/// Implemented by hand, because the macro `extensions_options` omits the prefix in the names of entries, by which
/// `SHOW` looks them up.
impl ExtensionOptions for VectileOptions {
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
        match key {
            "pushdown_filters" => self.pushdown_filters = parse(key, value)?,
            "verify_checksums" => self.verify_checksums = parse(key, value)?,
            "row_group_rows" => match parse(key, value)? {
                0 => return config_err!("vectile.row_group_rows must be a positive integer"),
                rows => self.row_group_rows = rows,
            },
            "keep_plans" => self.keep_plans = parse(key, value)?,
            "gpu" => self.gpu = parse(key, value)?,
            "gpu.memory_limit" => {
                let Bytes(limit) = parse(key, value)?;
                self.gpu_memory_limit = Some(limit);
            }
            "gpu.host_memory_limit" => {
                let Bytes(limit) = parse(key, value)?;
                self.gpu_host_memory_limit = Some(limit);
            }
            "gpu.background" => self.gpu_background = parse(key, value)?,
            "gpu.max_build_rows" => self.gpu_max_build_rows = parse(key, value)?,
            "gpu.build_from_rows" => self.gpu_build_from_rows = parse(key, value)?,
            "gpu.keep_lookups" => self.gpu_keep_lookups = parse(key, value)?,
            _ => {
                let known = self.entries().into_iter().map(|entry| entry.key);
                let known = known.collect::<Vec<_>>().join(", ");
                return config_err!("there is no setting 'vectile.{key}'; there are {known}");
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let optional = |key: &str, value: Option<String>, description: &'static str| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value,
            description,
        };
        let entry = |key: &str, value: String, description: &'static str| {
            optional(key, Some(value), description)
        };
        vec![
            entry(
                "pushdown_filters",
                self.pushdown_filters.to_string(),
                "Whether scans evaluate filters themselves. When false they only prune by zone maps",
            ),
            entry(
                "verify_checksums",
                self.verify_checksums.to_string(),
                "Whether scans compare the checksums of what they read",
            ),
            entry(
                "row_group_rows",
                self.row_group_rows.to_string(),
                "Rows per row group of files written",
            ),
            entry(
                "keep_plans",
                self.keep_plans.to_string(),
                "Whether the plan of a query is kept for when it runs again",
            ),
            entry(
                "gpu",
                self.gpu.to_string(),
                "Whether queries run on the GPU: auto, where it is faster; on, where it can; off; require, or fail",
            ),
            optional(
                "gpu.memory_limit",
                self.gpu_memory_limit.map(|limit| limit.to_string()),
                "The most bytes of columns to keep on the GPU",
            ),
            optional(
                "gpu.host_memory_limit",
                self.gpu_host_memory_limit.map(|limit| limit.to_string()),
                "The most bytes of columns to keep in host memory for the GPU",
            ),
            entry(
                "gpu.background",
                self.gpu_background.to_string(),
                "Whether vectile.gpu = auto makes the GPU ready once the CPU has answered",
            ),
            entry(
                "gpu.max_build_rows",
                self.gpu_max_build_rows.to_string(),
                "The most rows of a table that a scan on the GPU is joined with",
            ),
            entry(
                "gpu.build_from_rows",
                self.gpu_build_from_rows.to_string(),
                "Rows of a joined table from which on the GPU makes the lookup itself",
            ),
            entry(
                "gpu.keep_lookups",
                self.gpu_keep_lookups.to_string(),
                "Whether lookups stay on the GPU for queries that have the same",
            ),
        ]
    }
}

fn parse<T: FromStr>(key: &str, value: &str) -> Result<T> {
    let parsed = value.trim().to_ascii_lowercase().parse();
    parsed.map_err(|_| config_datafusion_err!("vectile.{key} cannot be '{value}'"))
}

impl ConfigExtension for VectileOptions {
    const PREFIX: &'static str = "vectile";
}

impl VectileOptions {
    /// The options in `config`, or the defaults if none are registered.
    pub(crate) fn of(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns an error if this build does not support the settings.
    pub(crate) fn check(&self) -> Result<()> {
        match self.gpu {
            GpuMode::Require if cfg!(not(feature = "gpu")) => {
                plan_err!("vectile.gpu = require: this build has no GPU support")
            }
            _ => Ok(()),
        }
    }
}

/// Options of one table or one `COPY`, for the files it writes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TableOptions {
    /// Rows per row group; `None`: the session's setting.
    pub row_group_rows: Option<usize>,
    /// Encodings by column name. Other columns get the smallest encoding.
    pub encodings: HashMap<String, Pin>,
    /// Compression of encoded values as a whole.
    pub compression: Compression,
    /// Columns with a Bloom filter in each row group.
    pub bloom_filters: Vec<String>,
    /// Probability that a Bloom filter passes a value that is not in the row group; `None`: 0.01.
    pub bloom_filter_fpp: Option<f64>,
    /// If true, `COPY` may replace its target file; otherwise an existing file is an error.
    pub replace: bool,
}

/// Prefix of the column's name in `'encoding.<column>'`.
const ENCODING: &str = "encoding.";

impl TableOptions {
    /// Parses `OPTIONS (row_group_rows 65536, 'encoding.l_comment' 'fsst')`. Ignores options with another prefix
    /// (`aws.`, `execution.`).
    ///
    /// # Errors
    ///
    /// Returns a configuration error if an option does not exist or a value does not parse.
    pub fn try_from_map(options: &HashMap<String, String>) -> Result<Self> {
        let mut parsed = Self::default();
        for (key, value) in options {
            let (own, key) = match key.strip_prefix("format.") {
                Some(key) => (true, key),
                None => (!key.contains('.'), key.as_str()),
            };
            if let Some(column) = key.strip_prefix(ENCODING) {
                let encoding = Pin::from_str(value)
                    .map_err(|error| config_datafusion_err!("option '{key}': {error}"))?;
                parsed.encodings.insert(column.to_owned(), encoding);
            } else if key == "row_group_rows" {
                let rows = value.parse().ok().filter(|&rows: &usize| rows > 0);
                parsed.row_group_rows = Some(rows.ok_or_else(|| {
                    config_datafusion_err!(
                        "option 'row_group_rows' must be a positive integer, not '{value}'"
                    )
                })?);
            } else if key == "compression" {
                let compression = value.to_ascii_lowercase().parse();
                parsed.compression = compression
                    .map_err(|error| config_datafusion_err!("option 'compression': {error}"))?;
            } else if key == "bloom_filter" {
                let names = value.split(',').map(str::trim);
                let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
                parsed.bloom_filters = names.collect();
            } else if key == "bloom_filter_fpp" {
                let fpp = value.parse().ok();
                let fpp = fpp.filter(|&fpp: &f64| fpp > 0.0 && fpp < 1.0);
                parsed.bloom_filter_fpp = Some(fpp.ok_or_else(|| {
                    config_datafusion_err!(
                        "option 'bloom_filter_fpp' must be a number between 0 and 1, not '{value}'"
                    )
                })?);
            } else if key == "replace" {
                parsed.replace = value.parse().map_err(|_| {
                    config_datafusion_err!("option 'replace' must be true or false, not '{value}'")
                })?;
            } else if own {
                return config_err!(
                    "there is no option '{key}' of VECTILE; there are 'row_group_rows', 'encoding.<column>', 'compression', \
                     'bloom_filter', 'bloom_filter_fpp' and 'replace'"
                );
            }
        }
        Ok(parsed)
    }

    /// The options for writing files of `schema`.
    pub(crate) fn writer_options(
        &self,
        session: &VectileOptions,
        schema: &Schema,
    ) -> Result<WriterOptions> {
        let pins = self.encodings.iter();
        let pins = pins.map(|(name, encoding)| {
            let column = column_named(schema, &format!("{ENCODING}{name}"), name)?;
            Ok((column, *encoding))
        });
        let blooms = self.bloom_filters.iter();
        let blooms = blooms.map(|name| column_named(schema, "bloom_filter", name));
        let options = WriterOptions::default();
        let fpp = self.bloom_filter_fpp.unwrap_or(options.bloom_filter_fpp);
        Ok(options
            .with_row_group_rows(self.row_group_rows.unwrap_or(session.row_group_rows))
            .with_compression(self.compression)
            .with_pins(pins.collect::<Result<Vec<_>>>()?)
            .with_bloom_filters(blooms.collect::<Result<Vec<_>>>()?)
            .with_bloom_filter_fpp(fpp))
    }
}

/// The column that `option` names. As SQL converts option names to lower case, a name that differs only in case
/// matches.
fn column_named<'a>(schema: &'a Schema, option: &str, name: &str) -> Result<&'a str> {
    let fields = || schema.fields().iter().map(|field| field.name().as_str());
    fields()
        .find(|field| *field == name)
        .or_else(|| fields().find(|field| field.eq_ignore_ascii_case(name)))
        .ok_or_else(|| config_datafusion_err!("option '{option}': there is no column '{name}'"))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use vectile_encodings::Encoding;

    use super::*;

    fn table_options(options: &[(&str, &str)]) -> Result<TableOptions> {
        let map = options
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        TableOptions::try_from_map(&map.collect())
    }

    #[test]
    fn settings_have_their_full_names() {
        let mut config = ConfigOptions::new();
        config.extensions.insert(VectileOptions::default());
        config.set("vectile.row_group_rows", "4096").unwrap();
        config.set("vectile.pushdown_filters", "FALSE").unwrap();
        let entries = config.entries();
        let value = |key| entries.iter().find(|e| e.key == key).unwrap().value.clone();
        assert_eq!(value("vectile.row_group_rows").as_deref(), Some("4096"));
        assert_eq!(value("vectile.pushdown_filters").as_deref(), Some("false"));
        for (key, value) in [
            ("row_group_rows", "0"),
            ("verify_checksums", "maybe"),
            ("keep_plans", "maybe"),
            ("gpus", "1"),
            ("gpu", "maybe"),
            ("gpu.memory_limit", "much"),
            ("gpu.host_memory_limit", "-1"),
        ] {
            let error = config.set(&format!("vectile.{key}"), value).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn a_setting_may_have_settings_below_it() {
        let mut config = ConfigOptions::new();
        config.extensions.insert(VectileOptions::default());
        config.set("vectile.gpu", "Require").unwrap();
        config.set("vectile.gpu.memory_limit", "4G").unwrap();
        config.set("vectile.gpu.host_memory_limit", "2g").unwrap();
        config.set("vectile.gpu.background", "false").unwrap();
        config.set("vectile.gpu.max_build_rows", "20").unwrap();
        config.set("vectile.gpu.build_from_rows", "0").unwrap();
        config.set("vectile.gpu.keep_lookups", "false").unwrap();
        let options = VectileOptions::of(&config);
        assert_eq!(options.gpu, GpuMode::Require);
        assert_eq!(options.check().is_ok(), cfg!(feature = "gpu"));
        assert_eq!(options.gpu_memory_limit, Some(4 << 30));
        assert_eq!(options.gpu_host_memory_limit, Some(2 << 30));
        assert!(!options.gpu_background);
        assert_eq!(options.gpu_max_build_rows, 20);
        assert_eq!(options.gpu_build_from_rows, 0);
        assert!(!options.gpu_keep_lookups);
    }

    #[test]
    fn parses_options_from_sql() {
        let options = table_options(&[
            ("format.row_group_rows", "4096"),
            ("encoding.a", "fsst"),
            ("aws.region", "eu-central-1"),
            ("format.replace", "true"),
            ("format.compression", "ZSTD"),
            ("bloom_filter", " a, B ,"),
            ("bloom_filter_fpp", "0.5"),
        ])
        .unwrap();
        assert_eq!(options.bloom_filters, ["a", "B"]);
        assert_eq!(options.bloom_filter_fpp, Some(0.5));
        assert!(options.replace);
        assert_eq!(options.compression, Compression::Zstd);
        assert_eq!(options.row_group_rows, Some(4096));
        assert_eq!(options.encodings.get("a"), Some(&Pin::One(Encoding::Fsst)));
    }

    #[test]
    fn rejects_unknown_options() {
        for (options, message) in [
            ([("format.compressor", "zstd")], "no option 'compressor'"),
            ([("format.compression", "lz4")], "there are none and zstd"),
            ([("format.row_group_rows", "0")], "positive integer"),
            ([("encoding.a", "zip")], "encoding.a"),
            ([("format.replace", "maybe")], "true or false"),
        ] {
            let error = table_options(&options).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn finds_columns_whatever_their_case() {
        let schema = Schema::new(vec![Field::new("Name", DataType::Utf8, true)]);
        let session = VectileOptions::default();
        let options = table_options(&[("encoding.name", "dict")]).unwrap();
        let written = options.writer_options(&session, &schema).unwrap();
        assert_eq!(written.pins.get("Name"), Some(&Pin::One(Encoding::Dict)));
        let options = table_options(&[("encoding.other", "dict")]).unwrap();
        assert!(options.writer_options(&session, &schema).is_err());
    }
}
