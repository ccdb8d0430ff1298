//! Encodes one row group from batches, on blocking threads and in parallel over columns.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::FuturesOrdered;
use tokio::task::spawn_blocking;
use vectile_encodings::{BloomFilter, Column, EncodeOptions, Encoding, ZoneMap};

use crate::choice::{Choice, Choices, EncodedValues};
use crate::compression::compress;
use crate::error::{Error, FilePosition, Result};
use crate::memory::memory_bytes;
use crate::metadata::Compression;
use crate::summary::EncodeTime;
use crate::threads::{Thread, Threads};
use crate::writer_options::WriterOptions;
use crate::{join, schema};

/// Names of encodings are truncated here: a deeply nested column would have a long one.
const MAX_NAME_BYTES: usize = 255;

/// How to encode the columns of a table.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) file: String,
    pub(crate) schema: SchemaRef,
    /// Options per column.
    pub(crate) options: Vec<EncodeOptions>,
    pub(crate) compression: Compression,
    /// Per column, the probability of false positives of its Bloom filters, if it is to have them.
    pub(crate) blooms: Vec<Option<f64>>,
    /// The threads that encode them.
    pub(crate) threads: Threads,
}

impl Plan {
    /// How `options` say to encode the columns of `schema`, for a file or table called `name`.
    pub(crate) fn new(name: String, schema: SchemaRef, options: &WriterOptions) -> Result<Self> {
        options.check(&schema)?;
        schema::to_json(&schema)?;
        Ok(Self {
            file: name,
            options: options.encode_options(&schema),
            compression: options.compression,
            blooms: options.blooms(&schema),
            threads: options.threads.clone(),
            schema,
        })
    }

    /// Fails if a batch has other columns than the schema. Their names are ignored.
    pub(crate) fn check_batch(&self, batch: &RecordBatch) -> Result<()> {
        let fields = self.schema.fields();
        if batch.num_columns() != fields.len() {
            return Err(Error::InvalidArgument(format!(
                "a batch of {} columns for a table of {}",
                batch.num_columns(),
                fields.len()
            )));
        }
        for (array, field) in batch.columns().iter().zip(fields) {
            if array.data_type() != field.data_type() {
                return Err(Error::InvalidArgument(format!(
                    "column '{}' is of type {}, and a batch has {}",
                    field.name(),
                    field.data_type(),
                    array.data_type()
                )));
            }
            if !field.is_nullable() && array.null_count() > 0 {
                let reason = format!("column '{}' has nulls but is not nullable", field.name());
                return Err(Error::InvalidArgument(reason));
            }
        }
        Ok(())
    }
}

/// Encodes row groups as a [`Writer`](crate::Writer) does, and leaves them in memory. Clones are one encoder.
///
/// It remembers how it encoded each column, and compares encodings anew only now and then: rows that come one after
/// another are mostly alike. A column that gets larger than before is compared at once.
#[derive(Clone, Debug)]
pub struct Encoder {
    plan: Arc<Plan>,
    choices: Arc<Choices>,
}

impl Encoder {
    /// An encoder of rows of this schema. Errors call the table `name`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the options name a column that the schema does not have or are out of range, or if
    /// a type cannot be stored.
    pub fn try_new(name: &str, schema: SchemaRef, options: &WriterOptions) -> Result<Self> {
        let columns = schema.fields().len();
        Ok(Self {
            plan: Arc::new(Plan::new(name.to_owned(), schema, options)?),
            choices: Arc::new(Choices::new(columns)),
        })
    }

    /// Fails if a batch does not fit the schema: its columns must have the types of the schema, in the same order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`].
    pub fn check(&self, batch: &RecordBatch) -> Result<()> {
        self.plan.check_batch(batch)
    }

    /// Encodes batches as one row group, or as several if their dictionaries have more values together than keys can
    /// number, or more rows than run ends can count. It needs a Tokio runtime.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and those of encoding.
    pub async fn encode(&self, batches: Vec<RecordBatch>) -> Result<Vec<EncodedRowGroup>> {
        for batch in &batches {
            self.check(batch)?;
        }
        let thread = self.plan.threads.one().await?;
        let choices = Some(Arc::clone(&self.choices));
        encode_row_group(Arc::clone(&self.plan), choices, batches, thread).await
    }
}

/// One column of one row group.
#[derive(Clone, Debug)]
pub(crate) struct EncodedColumn {
    pub(crate) data_type: DataType,
    pub(crate) data: Bytes,
    pub(crate) data_crc32: u32,
    pub(crate) compression: Compression,
    /// Bytes of the data when they are not compressed.
    pub(crate) data_bytes: u64,
    /// The vectors' zone map; empty if there is one vector, whose zone map is `statistics`.
    pub(crate) zones: Bytes,
    pub(crate) zones_crc32: u32,
    pub(crate) bloom: Option<Bytes>,
    /// The zones merged to one entry.
    pub(crate) statistics: ZoneMap,
    pub(crate) encoding: Arc<str>,
    pub(crate) arrow_bytes: u64,
    pub(crate) time: EncodeTime,
}

/// One row group in memory, encoded: what a file has of it, but for its place there. Copies share the bytes.
#[derive(Clone, Debug)]
pub struct EncodedRowGroup {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<EncodedColumn>,
}

impl EncodedRowGroup {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Fails if its columns do not have the types of `schema`, or nulls where there may be none.
    pub(crate) fn check(&self, schema: &SchemaRef) -> Result<()> {
        let fields = schema.fields().iter();
        let fits = |(field, column): (&FieldRef, &EncodedColumn)| {
            let nulls = &column.statistics.null_count;
            let has_nulls = nulls.iter().any(|nulls| nulls != Some(0));
            field.data_type() == &column.data_type && (field.is_nullable() || !has_nulls)
        };
        let is_same_count = self.columns.len() == schema.fields().len();
        match is_same_count && fields.zip(&self.columns).all(fits) {
            true => Ok(()),
            false => Err(Error::InvalidArgument(
                "an encoded row group has other columns than the table".into(),
            )),
        }
    }

    /// Bytes that it takes in a file: encoded values, zone maps and Bloom filters.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.iter();
        let columns = columns.map(|column| {
            let bloom = column.bloom.as_ref().map_or(0, Bytes::len);
            column.data.len() + column.zones.len() + bloom
        });
        columns.sum()
    }
}

/// Encodes the batches as one row group, or as several if their dictionaries have more values together than keys can
/// number, or more rows than run ends can count. It begins on `thread`, and takes others as they become free. Encodings
/// are those of `choices`, which are kept up to date; without them they are compared for each row group.
pub(crate) async fn encode_row_group(
    plan: Arc<Plan>,
    choices: Option<Arc<Choices>>,
    batches: Vec<RecordBatch>,
    thread: Thread,
) -> Result<Vec<EncodedRowGroup>> {
    let runs = match is_always_joinable(&plan.schema) {
        true => vec![batches],
        false => blocking(move || joinable(batches)).await?,
    };
    let mut thread = Some(thread);
    let mut encoded = Vec::with_capacity(runs.len());
    for batches in runs {
        encoded.push(encode_run(&plan, choices.as_ref(), batches, thread.take()).await?);
    }
    Ok(encoded)
}

async fn encode_run(
    plan: &Arc<Plan>,
    choices: Option<&Arc<Choices>>,
    batches: Vec<RecordBatch>,
    mut thread: Option<Thread>,
) -> Result<EncodedRowGroup> {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    // By column, so that a column's arrays are freed once it is encoded.
    let arrays = |column| batches.iter().map(move |b| Arc::clone(b.column(column)));
    let mut columns: Vec<(usize, Vec<ArrayRef>)> = (0..plan.schema.fields().len())
        .map(|column| (column, arrays(column).collect()))
        .collect();
    drop(batches);
    // The largest first, as it probably takes longest: then nothing waits for it alone at the end.
    columns.sort_by_cached_key(|(_, arrays)| {
        Reverse(arrays.iter().map(|array| memory_bytes(array)).sum::<u64>())
    });
    let jobs = columns.into_iter().map(|(column, arrays)| {
        let (plan, choices) = (Arc::clone(plan), choices.cloned());
        let first = thread.take();
        async move {
            let thread = match first {
                Some(thread) => thread,
                None => plan.threads.one().await?,
            };
            blocking(move || {
                let encoded = encode_column(&plan, choices.as_deref(), column, arrays);
                drop(thread);
                Ok((column, encoded?))
            })
            .await
        }
    });
    let jobs: FuturesOrdered<_> = jobs.collect();
    let mut columns: Vec<(usize, EncodedColumn)> = jobs.try_collect().await?;
    columns.sort_by_key(|(column, _)| *column);
    let columns = columns.into_iter().map(|(_, encoded)| encoded).collect();
    Ok(EncodedRowGroup { rows, columns })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work)
        .await
        .map_err(|error| Error::Internal(format!("an encoding task ended early: {error}")))?
}

fn encode_column(
    plan: &Plan,
    choices: Option<&Choices>,
    column: usize,
    arrays: Vec<ArrayRef>,
) -> Result<EncodedColumn> {
    let field = plan.schema.field(column);
    let mut time = EncodeTime::default();
    let array = timed(&mut time.join, || {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        concat(&arrays)
    })?;
    drop(arrays);
    let (compression, bloom) = (plan.compression, plan.blooms[column]);
    let choice = choices.map(|choices| choices.of(column));
    let options = &plan.options[column];
    encode_array(&array, options, choice, compression, bloom, time).map_err(|error| {
        FilePosition::file(&plan.file)
            .column(field.name())
            .encoding(error)
    })
}

fn encode_array(
    array: &ArrayRef,
    options: &EncodeOptions,
    choice: Option<&Choice>,
    compression: Compression,
    fpp: Option<f64>,
    mut time: EncodeTime,
) -> vectile_encodings::Result<EncodedColumn> {
    let zones = timed(&mut time.zone_maps, || ZoneMap::of(array))?;
    let values = timed(&mut time.encode, || {
        let values = match choice {
            Some(choice) => choice.encode(array.len(), options, |options| {
                encode_values(array, options, compression)
            })?,
            None => encode_values(array, options, compression)?,
        };
        if compression == Compression::None || options.pin.is_some() {
            return Ok(values);
        }
        // Repeated patterns show in plain values, but rarely in packed words.
        let plain = EncodeOptions::pinned(Encoding::Plain);
        match encode_values(array, &plain, compression) {
            Ok(plain) if plain.data.len() < values.data.len() => Ok(plain),
            _ => Ok::<_, vectile_encodings::Error>(values),
        }
    })?;
    let (statistics, zones) = timed(&mut time.zone_maps, || {
        let bytes = match zones.len() {
            1 => Bytes::new(),
            _ => zones.encode()?.into(),
        };
        Ok::<_, vectile_encodings::Error>((zones.merge()?, bytes))
    })?;
    let bloom = timed(&mut time.zone_maps, || match fpp {
        Some(fpp) => BloomFilter::of(array, fpp),
        None => Ok(None),
    })?;
    let (data_crc32, zones_crc32) = timed(&mut time.checksums, || {
        (crc32fast::hash(&values.data), crc32fast::hash(&zones))
    });
    Ok(EncodedColumn {
        data_type: array.data_type().clone(),
        data: values.data,
        data_crc32,
        compression: values.compression,
        data_bytes: values.data_bytes,
        zones,
        zones_crc32,
        bloom: bloom.map(|bloom| Bytes::copy_from_slice(bloom.bytes())),
        statistics,
        encoding: values.name.into(),
        arrow_bytes: memory_bytes(array),
        time,
    })
}

fn encode_values(
    array: &ArrayRef,
    options: &EncodeOptions,
    compression: Compression,
) -> vectile_encodings::Result<EncodedValues> {
    let data = Bytes::from(vectile_encodings::encode(array, options)?);
    // Parsing costs little and proves, before anything is written, that a reader will accept the chunk.
    let parsed = Column::parse(Buffer::from(data.clone()), array.data_type(), array.len())?;
    let data_bytes = data.len() as u64;
    let (data, compression) = match compress(&data, compression) {
        Some(compressed) => (compressed.into(), compression),
        None => (data, Compression::None),
    };
    Ok(EncodedValues {
        data,
        data_bytes,
        compression,
        encoding: parsed.encoding(),
        codes: parsed.codes_encoding(),
        name: short_name(parsed.describe()),
    })
}

/// Runs `work` and adds its duration to `time`.
fn timed<T>(time: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    *time += started.elapsed();
    done
}

fn short_name(mut name: String) -> String {
    if name.len() > MAX_NAME_BYTES {
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES - 3));
        name.push_str("...");
    }
    name
}

fn has_dictionary(data_type: &DataType) -> bool {
    has(data_type, &|of| matches!(of, DataType::Dictionary(_, _)))
}

fn has_runs(data_type: &DataType) -> bool {
    has(data_type, &|of| matches!(of, DataType::RunEndEncoded(_, _)))
}

/// Returns true if `is_one` holds for the type or one within it.
fn has(data_type: &DataType, is_one: &dyn Fn(&DataType) -> bool) -> bool {
    let within = match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _)
        | DataType::RunEndEncoded(_, field) => has(field.data_type(), is_one),
        DataType::Dictionary(_, values) => has(values, is_one),
        DataType::Struct(fields) => fields.iter().any(|field| has(field.data_type(), is_one)),
        DataType::Union(fields, _) => fields
            .iter()
            .any(|(_, field)| has(field.data_type(), is_one)),
        _ => false,
    };
    within || is_one(data_type)
}

/// True if no number of rows of such columns is too large to be one batch, but for what memory holds.
fn is_always_joinable(schema: &Schema) -> bool {
    let mut fields = schema.fields().iter();
    !fields.any(|field| has_dictionary(field.data_type()) || has_runs(field.data_type()))
}

/// The batches, which are of one schema, in order and in groups that can be joined to one batch each: their dictionaries
/// have no more values than keys can number, and no more rows than run ends can count. Groups that cannot are halved.
///
/// # Errors
///
/// Errors of joining them for another reason.
pub fn joinable(batches: Vec<RecordBatch>) -> Result<Vec<Vec<RecordBatch>>> {
    let schema = batches.first().map(RecordBatch::schema);
    if batches.len() < 2 || schema.is_none_or(|schema| is_always_joinable(&schema)) {
        return Ok(vec![batches]);
    }
    match merges(&batches) {
        Ok(true) => Ok(vec![batches]),
        Ok(false) | Err(ArrowError::DictionaryKeyOverflowError) => {
            let mut first = batches;
            let second = first.split_off(first.len() / 2);
            let mut runs = joinable(first)?;
            runs.append(&mut joinable(second)?);
            Ok(runs)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns true if one array can have the rows of all batches. Fails if keys cannot number the values of a dictionary.
fn merges(batches: &[RecordBatch]) -> Result<bool, ArrowError> {
    let Some(first) = batches.first() else {
        return Ok(true);
    };
    for (column, field) in first.schema_ref().fields().iter().enumerate() {
        let (is_coded, is_run) = (
            has_dictionary(field.data_type()),
            has_runs(field.data_type()),
        );
        let arrays = batches.iter().map(|batch| batch.column(column));
        if (is_coded || is_run) && !join::fits(arrays.clone()) {
            return Ok(false);
        }
        if is_coded {
            let arrays: Vec<&dyn Array> = arrays.map(AsRef::as_ref).collect();
            concat(&arrays)?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int8Array, StringArray, StringViewArray};
    use arrow::datatypes::{Field, Int8Type};

    #[test]
    fn dictionaries_that_overflow_their_keys_are_kept_apart() {
        let batch = |values: std::ops::Range<i8>| {
            let keys = Int8Array::from_iter_values(0..values.len() as i8);
            let values = StringArray::from_iter_values(values.map(|i| i.to_string()));
            let array = DictionaryArray::<Int8Type>::new(keys, Arc::new(values));
            let field = Field::new("d", array.data_type().clone(), true);
            let schema = Arc::new(Schema::new(vec![field]));
            RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap()
        };
        let fitting = joinable(vec![batch(0..40), batch(0..40), batch(40..80)]).unwrap();
        assert_eq!(fitting.len(), 1);
        let different = vec![batch(-128..-28), batch(-28..72), batch(28..127)];
        let different = joinable(different).unwrap();
        assert_eq!(different.len(), 3);
    }

    #[test]
    fn dictionaries_that_arrow_cannot_merge_are_kept_apart() {
        let batch = |first: i32| {
            let keys = Int8Array::from_iter_values(0..100);
            let values = (first..first + 100).map(|i| i.to_string());
            let values = StringViewArray::from_iter_values(values);
            let array = DictionaryArray::<Int8Type>::new(keys, Arc::new(values));
            let field = Field::new("d", array.data_type().clone(), true);
            let schema = Arc::new(Schema::new(vec![field]));
            RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap()
        };
        let runs = joinable(vec![batch(0), batch(100), batch(200)]).unwrap();
        assert_eq!(runs.len(), 3);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = short_name("é".repeat(200));
        assert!(
            name.len() <= MAX_NAME_BYTES && name.ends_with("..."),
            "{name}"
        );
    }
}
