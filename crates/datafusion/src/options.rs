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

/// Controls which kernels run queries on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuKernels {
    /// A generated kernel if there is one, else the interpreter.
    Auto,
    /// The interpreter, for all that it can run.
    Interpreted,
    /// Generated kernels, which are compiled first.
    Generated,
}

impl fmt::Display for GpuKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Interpreted => "interpreted",
            Self::Generated => "generated",
        })
    }
}

impl FromStr for GpuKernels {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "auto" => Ok(Self::Auto),
            "interpreted" => Ok(Self::Interpreted),
            "generated" => Ok(Self::Generated),
            _ => Err(()),
        }
    }
}

/// Controls which aggregates of Vectile tables run as programs on the CPU, where no GPU runs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FuseMode {
    /// Those that read many rows, more than they make tables of for joins: they are expected to be faster.
    #[default]
    Auto,
    /// All for which there is a program.
    On,
    /// None: DataFusion's operators run all.
    Off,
}

impl fmt::Display for FuseMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl FromStr for FuseMode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "auto" => Ok(Self::Auto),
            "on" | "true" => Ok(Self::On),
            "off" | "false" => Ok(Self::Off),
            _ => Err(()),
        }
    }
}

/// Controls which Parquet files Vectile's scans read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParquetMode {
    /// None: DataFusion's reader scans all.
    #[default]
    Off,
    /// Those of all tables that they can read.
    On,
}

impl fmt::Display for ParquetMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

impl FromStr for ParquetMode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "off" | "false" => Ok(Self::Off),
            "on" | "true" => Ok(Self::On),
            _ => Err(()),
        }
    }
}

/// A type of setting: how its values are written in SQL.
trait SettingValue: Sized {
    /// Parses a value, which is trimmed and in lower case; `None` if it is malformed.
    fn parse(text: &str) -> Option<Self>;

    /// The value as `SHOW` prints it; `None` if it is unset.
    fn show(&self) -> Option<String>;
}

macro_rules! setting_values {
    ($($type:ty),*) => {
        $(impl SettingValue for $type {
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(&self) -> Option<String> {
                Some(self.to_string())
            }
        })*
    };
}

setting_values!(bool, usize, FuseMode, GpuMode, ParquetMode);

impl SettingValue for Option<GpuKernels> {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Some)
    }

    fn show(&self) -> Option<String> {
        self.map(|kernels| kernels.to_string())
    }
}

/// A number of bytes: digits, with an optional unit `K`, `M`, `G` or `T`.
impl SettingValue for Option<u64> {
    fn parse(text: &str) -> Option<Self> {
        let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
        let unit = units
            .into_iter()
            .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let (digits, shift) = unit.unwrap_or((text, 0));
        let number: u64 = digits.trim().parse().ok()?;
        number.checked_mul(1 << shift).map(Some)
    }

    fn show(&self) -> Option<String> {
        self.map(|bytes| bytes.to_string())
    }
}

/// Defines [`VectileOptions`]. A setting is a field, its name in SQL, its default, the text of documentation and
/// `information_schema.df_settings`, and optionally a condition on values with the text of its error.
macro_rules! settings {
    ($($field:ident: $type:ty, $key:literal, $default:expr, $description:literal $(, $check:expr, $error:literal)?;)*) => {
        /// Settings of a session, in the namespace `vectile`.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct VectileOptions {
            $(#[doc = $description] pub $field: $type,)*
            /// Decisions that tests and benchmarks change, but no setting does.
            pub gpu_tuning: GpuTuning,
        }

        impl Default for VectileOptions {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    gpu_tuning: GpuTuning::default(),
                }
            }
        }

        /// Implemented by hand, because the macro `extensions_options` omits the prefix in the names of entries, by
        /// which `SHOW` looks them up.
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
                let text = value.trim().to_ascii_lowercase();
                match key {
                    // `RESET` of DataFusion fails for all settings but its own
                    $($key if text == "default" => self.$field = $default,
                    $key => {
                        let parsed = <$type>::parse(&text).ok_or_else(|| {
                            config_datafusion_err!("vectile.{key} cannot be '{value}'")
                        })?;
                        $(if !$check(&parsed) {
                            return config_err!(concat!("vectile.", $key, " must be ", $error));
                        })?
                        self.$field = parsed;
                    })*
                    _ => {
                        let known = [$(concat!("vectile.", $key)),*].join(", ");
                        return config_err!("there is no setting 'vectile.{key}'; there are {known}");
                    }
                }
                Ok(())
            }

            fn entries(&self) -> Vec<ConfigEntry> {
                vec![$(ConfigEntry {
                    key: concat!("vectile.", $key).to_owned(),
                    value: self.$field.show(),
                    description: $description,
                }),*]
            }
        }
    };
}

settings! {
    pushdown_filters: bool, "pushdown_filters", true,
        "If true, scans evaluate filters on the encoded columns. If false, they only skip rows by zone maps.";
    verify_checksums: bool, "verify_checksums", true,
        "If true, scans verify the checksums of the data they read.";
    cache_memory: Option<u64>, "cache_memory", None,
        "Maximum bytes of column chunks to keep in memory, such as '4G', for later queries of files whose checksums are \
         verified. 0 keeps none. All sessions of a runtime share them: the query that runs last determines the limit. \
         They do not count in the memory pool. Unset: an eighth of the machine's memory (1 GiB except on Linux), and at \
         most a quarter of `datafusion.runtime.memory_limit`.";
    row_group_rows: usize, "row_group_rows", DEFAULT_ROW_GROUP_ROWS,
        "Rows per row group of written files.",
        |rows: &usize| *rows > 0, "a positive integer";
    memory_tables: bool, "memory_tables", false,
        "If true, `CREATE TABLE` makes tables in memory that are encoded as files are, and scanned as fast. If false, they \
         are DataFusion's, whose rows are Arrow arrays.";
    keep_plans: bool, "keep_plans", true,
        "If true, the session caches the plan of a query for when it runs again.";
    parquet: ParquetMode, "parquet", ParquetMode::Off,
        "Controls which Parquet files Vectile's scans read, with all that they do for its own files: `on`, those of all \
         tables that they can read; `off`, none, and DataFusion's reader scans all. Columns are decoded and packed once, and \
         stay in memory for later queries, as far as `vectile.cache_memory` allows. `on` is an error if the build cannot \
         read Parquet.",
        |mode: &ParquetMode| cfg!(feature = "parquet") || *mode == ParquetMode::Off,
        "`off`: this build cannot read Parquet";
    fuse: FuseMode, "fuse", FuseMode::Auto,
        "Controls which aggregates of Vectile tables run, with their joins, as programs over encoded vectors on the CPU, \
         where no GPU runs them: `auto`, those of large tables, which are expected to be faster; `on`, all for which there \
         is a program; `off`, none. With `off`, window functions are DataFusion's, too.";
    gpu: GpuMode, "gpu", GpuMode::Auto,
        "Controls which queries run on the GPU: `auto`, those expected to be faster there; `on`, all for which there \
         is a kernel; `off`, none; `require`, all, and others fail.";
    gpu_kernels: Option<GpuKernels>, "gpu.kernels", None,
        "Kernels that run queries on the GPU, to compare them: `interpreted`, the interpreter, which is ready at once; \
         `generated`, kernels of their own, which are compiled first; `auto`, one of both. All sessions of the process \
         share the device: the query planned last determines it. Unset: as before, at first `auto`.";
    gpu_memory_limit: Option<u64>, "gpu.memory_limit", None,
        "Maximum bytes to keep on the device, such as '40G': columns, key tables and everything derived from them, as \
         far as other programs leave memory. All sessions of the process share the device: the query planned last \
         determines the limit. Unset: 80% of the memory that other programs leave.";
    gpu_host_memory_limit: Option<u64>, "gpu.host_memory_limit", None,
        "Maximum bytes of columns to keep in pinned host memory in addition; from there they return to the device at \
         the speed of the link. Other programs cannot use that memory. Shared likewise. Unset: 4 GiB.";
    gpu_background: bool, "gpu.background", true,
        "If true, `auto` makes the GPU ready in the background for queries that the CPU runs meanwhile: it opens the \
         device, loads columns and compiles kernels. It also compiles kernels for queries that the interpreter runs \
         often.";
    gpu_max_build_rows: usize, "gpu.max_build_rows", GPU_MAX_BUILD_ROWS,
        "Maximum rows, after its filters, of a table that a scan on the GPU is joined with, if the CPU builds the key \
         table. With more, the CPU joins.";
}

/// Default maximum number of rows of a joined table. For more, the CPU's hash join is faster, because one thread builds
/// a table of codes.
const GPU_MAX_BUILD_ROWS: usize = 64_000_000;

/// Decisions about key tables of joins on the GPU that have one right value for users: tests and benchmarks change them,
/// to reach code paths with few rows and to time queries without cached tables.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GpuTuning {
    /// If a table that a scan on the GPU is joined with has at least this many rows before its filters, the GPU builds
    /// the key table, where it can. For fewer, the CPU has built it before a kernel is launched.
    pub build_from_rows: usize,
    /// If true, key tables stay on the GPU for queries with the same joined table.
    pub keep_key_tables: bool,
}

impl Default for GpuTuning {
    fn default() -> Self {
        Self {
            build_from_rows: 1 << 16,
            keep_key_tables: true,
        }
    }
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
            ("gpu.kernels", "some"),
            ("gpu.memory_limit", "much"),
            ("gpu.host_memory_limit", "-1"),
        ] {
            let error = config.set(&format!("vectile.{key}"), value).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn settings_may_be_set_to_their_defaults() {
        let mut config = ConfigOptions::new();
        config.extensions.insert(VectileOptions::default());
        let shown = |config: &ConfigOptions| -> Vec<(String, Option<String>)> {
            let entries = config.entries().into_iter();
            let own = entries.filter(|entry| entry.key.starts_with("vectile."));
            own.map(|entry| (entry.key, entry.value)).collect()
        };
        let defaults = shown(&config);
        for (key, value) in [
            ("fuse", "off"),
            ("keep_plans", "false"),
            ("row_group_rows", "1024"),
            ("gpu.memory_limit", "4G"),
        ] {
            let key = format!("vectile.{key}");
            config.set(&key, value).unwrap();
            assert_ne!(shown(&config), defaults);
            config.set(&key, " Default").unwrap();
            assert_eq!(shown(&config), defaults);
        }
        config.set("vectile.gpus", "default").unwrap_err();
    }

    #[test]
    fn a_setting_may_have_settings_below_it() {
        let mut config = ConfigOptions::new();
        config.extensions.insert(VectileOptions::default());
        config.set("vectile.gpu", "Require").unwrap();
        config.set("vectile.gpu.kernels", "Interpreted").unwrap();
        config.set("vectile.gpu.memory_limit", "4G").unwrap();
        config.set("vectile.gpu.host_memory_limit", "2g").unwrap();
        config.set("vectile.gpu.background", "false").unwrap();
        config.set("vectile.gpu.max_build_rows", "20").unwrap();
        let options = VectileOptions::of(&config);
        assert_eq!(options.gpu, GpuMode::Require);
        assert_eq!(options.check().is_ok(), cfg!(feature = "gpu"));
        assert_eq!(options.gpu_kernels, Some(GpuKernels::Interpreted));
        assert_eq!(options.gpu_memory_limit, Some(4 << 30));
        assert_eq!(options.gpu_host_memory_limit, Some(2 << 30));
        assert!(!options.gpu_background);
        assert_eq!(options.gpu_max_build_rows, 20);
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
