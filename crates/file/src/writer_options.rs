//! Options for writing a table.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use vectile_encodings::{BloomFilter, Compressor, EncodeOptions, Pin};

use crate::error::{Error, Result};
use crate::metadata::{Compression, MAX_ROW_GROUP_ROWS};
use crate::threads::Threads;

/// Default rows of a row group.
pub const DEFAULT_ROW_GROUP_ROWS: usize = 1 << 18;

/// Default probability of false positives of Bloom filters: ten bits for each distinct value.
pub const DEFAULT_BLOOM_FILTER_FPP: f64 = 0.01;

/// Options for writing a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WriterOptions {
    /// Rows of a row group, at most [`MAX_ROW_GROUP_ROWS`]. Wide rows make smaller row groups,
    /// since a row group also ends at 64 MiB of Arrow arrays.
    pub row_group_rows: usize,
    /// Columns with a fixed encoding, by name, regardless of what another would save.
    pub pins: HashMap<String, Pin>,
    /// How encoded values are compressed as a whole, if that saves a tenth. Cold data become smaller, and take longer
    /// to read.
    pub compression: Compression,
    /// Columns that get a Bloom filter in each row group, by name.
    pub bloom_filters: Vec<String>,
    /// The probability that a Bloom filter passes a value that is absent, between 0 and 1.
    pub bloom_filter_fpp: f64,
    /// The threads that encode columns.
    pub threads: Threads,
    /// Compresses strings instead of those threads, as far as it can: a GPU.
    pub compressor: Option<Arc<dyn Compressor>>,
    /// The directory that locations are relative to, if the store is a local file system: then a file is on disk before
    /// it is visible, and its name when it is finished.
    pub local_root: Option<PathBuf>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            row_group_rows: DEFAULT_ROW_GROUP_ROWS,
            pins: HashMap::new(),
            compression: Compression::None,
            bloom_filters: Vec::new(),
            bloom_filter_fpp: DEFAULT_BLOOM_FILTER_FPP,
            threads: Threads::default(),
            compressor: None,
            local_root: None,
        }
    }
}

impl WriterOptions {
    /// Sets [`row_group_rows`](Self::row_group_rows).
    #[must_use]
    pub fn with_row_group_rows(mut self, rows: usize) -> Self {
        self.row_group_rows = rows;
        self
    }

    /// Adds to [`pins`](Self::pins).
    #[must_use]
    pub fn with_pins<N: Into<String>, P: Into<Pin>>(
        mut self,
        pins: impl IntoIterator<Item = (N, P)>,
    ) -> Self {
        let pins = pins.into_iter();
        self.pins
            .extend(pins.map(|(name, pin)| (name.into(), pin.into())));
        self
    }

    /// Sets [`compression`](Self::compression).
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Adds to [`bloom_filters`](Self::bloom_filters).
    #[must_use]
    pub fn with_bloom_filters<N: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = N>,
    ) -> Self {
        self.bloom_filters
            .extend(columns.into_iter().map(Into::into));
        self
    }

    /// Sets [`bloom_filter_fpp`](Self::bloom_filter_fpp).
    #[must_use]
    pub fn with_bloom_filter_fpp(mut self, fpp: f64) -> Self {
        self.bloom_filter_fpp = fpp;
        self
    }

    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`compressor`](Self::compressor).
    #[must_use]
    pub fn with_compressor(mut self, compressor: Option<Arc<dyn Compressor>>) -> Self {
        self.compressor = compressor;
        self
    }

    /// Sets [`local_root`](Self::local_root).
    #[must_use]
    pub fn with_local_root(mut self, root: Option<PathBuf>) -> Self {
        self.local_root = root;
        self
    }

    /// Checks that values are in their ranges, and that the schema has the columns.
    pub(crate) fn check(&self, schema: &SchemaRef) -> Result<()> {
        if !(1..=MAX_ROW_GROUP_ROWS).contains(&self.row_group_rows) {
            return Err(Error::InvalidArgument(format!(
                "row groups of {} rows; 1 to {MAX_ROW_GROUP_ROWS} are allowed",
                self.row_group_rows
            )));
        }
        let fpp = self.bloom_filter_fpp;
        if !(fpp > 0.0 && fpp < 1.0) {
            return Err(Error::InvalidArgument(format!(
                "{fpp} as the probability of false positives of Bloom filters; it is between 0 and 1"
            )));
        }
        for name in &self.bloom_filters {
            let field = schema.field_with_name(name).map_err(|_| {
                Error::InvalidArgument(format!(
                    "a Bloom filter is asked for of column '{name}', which the table does not have"
                ))
            })?;
            if !BloomFilter::applies_to(field.data_type()) {
                return Err(Error::InvalidArgument(format!(
                    "there are no Bloom filters of {}, the type of column '{name}'",
                    field.data_type()
                )));
            }
        }
        match self.pins.keys().find(|name| schema.index_of(name).is_err()) {
            Some(name) => Err(Error::InvalidArgument(format!(
                "an encoding is chosen for column '{name}', which the table does not have"
            ))),
            None => Ok(()),
        }
    }

    /// For each column, how it is encoded.
    pub(crate) fn encode_options(&self, schema: &SchemaRef) -> Vec<EncodeOptions> {
        let of_column = |name: &String| EncodeOptions {
            pin: self.pins.get(name).copied(),
            compressor: self.compressor.clone(),
            ..EncodeOptions::default()
        };
        schema
            .fields()
            .iter()
            .map(|f| of_column(f.name()))
            .collect()
    }

    /// For each column, the probability of false positives of its Bloom filters, if it has any.
    pub(crate) fn blooms(&self, schema: &SchemaRef) -> Vec<Option<f64>> {
        let has_one = |name: &String| self.bloom_filters.contains(name);
        let fields = schema.fields().iter();
        fields
            .map(|field| has_one(field.name()).then_some(self.bloom_filter_fpp))
            .collect()
    }
}
