//! Batches: row groups for one kernel, column by column.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType;

use super::chunks::{Copies, Group, Resident};
use super::entries::Entries;
use super::memory::{DeviceBuffer, Pool, lock};
use crate::error::{Error, Result};
use crate::kernel::DictionaryTest;
use vectile_kernels::{ColumnTraits, Symbols, Transform};
use vectile_pipeline::{Automaton, TextFunction};

/// Tests of strings that are kept for a column.
const TEXT_TESTS: usize = 8;

/// Functions of text whose results are kept for a column.
const TEXT_FUNCTIONS: usize = 8;

/// Tests of dictionary values whose results are kept for a column, and the fewest values for which they are.
const CODE_TESTS: usize = 8;
const TESTED_VALUES: usize = 1 << 12;

/// Number of chunks of a column whose samples are combined.
const SAMPLED_CHUNKS: usize = 64;

/// Row groups with the columns of a pipeline, in the pipeline's order. None of them is empty.
#[derive(Clone, Debug)]
pub struct Batch {
    rows: Arc<[usize]>,
    columns: Vec<Arc<ColumnBatch>>,
}

/// The chunks of a column in several row groups, and what a kernel has to know of them. Computing that inspects every
/// chunk, so column batches are kept for later queries over the same row groups.
#[derive(Debug)]
pub(crate) struct ColumnBatch {
    chunks: Vec<Arc<Resident>>,
    /// Rows, address and bytes of each chunk.
    pub rows: Vec<usize>,
    pub addresses: Vec<u64>,
    pub bytes: Vec<usize>,
    /// The union of the chunks' traits.
    pub traits: ColumnTraits,
    /// Distinct dictionaries; `None` stands for chunks without one.
    pub dictionaries: Vec<Option<Dictionary>>,
    /// The symbol tables of strings without a dictionary, at the same indices.
    pub symbols: Vec<Option<Arc<Symbols>>>,
    /// For each chunk, the index of its dictionary, or symbol tables.
    pub dictionary_of: Arc<[usize]>,
    /// The copies that bring the chunks to the device.
    pub copies: Copies,
    sample: OnceLock<Option<ArrayRef>>,
    entries: Mutex<Option<Arc<Entries>>>,
    coded: Mutex<Option<std::result::Result<Arc<ColumnBatch>, String>>>,
    text_tokens: Mutex<Option<Arc<TextTokens>>>,
    text_fingerprints: Mutex<Option<Arc<DeviceBuffer>>>,
    text_tests: Mutex<VecDeque<(Automaton, Arc<TextTests>)>>,
    text_functions: Mutex<VecDeque<TextResults>>,
    /// Results of tests for many dictionary values.
    code_tests: Mutex<VecDeque<TestResults>>,
    /// True if all chunks share a dictionary whose entries are distinct.
    is_distinct: bool,
    /// Time of the last use, by the engine's clock.
    used: AtomicU64,
}

/// The strings of chunks that have symbols as tokens, in device memory.
#[derive(Debug)]
pub(crate) struct TextTokens {
    pub words: DeviceBuffer,
    /// Offset of each vector's tokens.
    pub offsets: DeviceBuffer,
    /// Index of each chunk's first vector.
    pub first_vectors: Vec<usize>,
}

/// A test of strings by an automaton, in device memory.
#[derive(Debug)]
pub(crate) struct TextTests {
    /// Address of each chunk's test; kernels do not read those of chunks without symbols.
    pub addresses: Vec<u64>,
    /// Bytes of the largest chunk's table.
    pub table_bytes: usize,
    /// Keeps the tests' data alive.
    pub _tokens: Arc<TextTokens>,
    pub _fingerprints: Option<Arc<DeviceBuffer>>,
    pub _memory: DeviceBuffer,
}

/// Results whose type is known to the module that computes them.
type Computed = Arc<dyn Any + Send + Sync>;

/// A function of text, and its results for the dictionaries of a column.
type TextResults = (Arc<dyn TextFunction>, Computed);

/// A test of dictionary values, and its results for each dictionary.
type TestResults = (DictionaryTest, Computed);

/// A dictionary shared by chunks.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub entries: ArrayRef,
    /// One more than the largest code that a kernel may read.
    pub codes: usize,
    /// True if the chunks hold codes of this dictionary.
    pub is_coded: bool,
}

impl Batch {
    /// Creates a batch of these row groups, without the empty ones.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if they differ in the number of columns, in their types, or in the engine's device, or if a
    /// column has other rows than its row group.
    pub fn of(groups: &[Group]) -> Result<Self> {
        let groups: Vec<&Group> = groups.iter().filter(|group| group.rows > 0).collect();
        let width = groups.first().map_or(0, |group| group.columns.len());
        if let Some(other) = groups.iter().find(|group| group.columns.len() != width) {
            let other = other.columns.len();
            return Err(mismatch(format!("{other} columns beside {width}")));
        }
        let columns = (0..width).map(|column| {
            let chunks = groups.iter().map(|group| &group.columns[column]);
            Ok(Arc::new(ColumnBatch::of(chunks.cloned().collect())?))
        });
        Self::new(
            groups.iter().map(|group| group.rows).collect(),
            columns.collect::<Result<_>>()?,
        )
    }

    /// Combines columns with these rows.
    pub(crate) fn new(rows: Arc<[usize]>, columns: Vec<Arc<ColumnBatch>>) -> Result<Self> {
        for column_batch in &columns {
            if column_batch.rows[..] != rows[..] {
                let reason = "a column has other rows than its row group";
                return Err(mismatch(reason.into()));
            }
        }
        Ok(Self { rows, columns })
    }

    /// The rows of each row group.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    pub(crate) fn columns(&self) -> &[Arc<ColumnBatch>] {
        &self.columns
    }

    /// Checks that a pipeline over columns of these types can read the batch on the engine of that memory.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if not: a kernel would misinterpret its bytes.
    pub(crate) fn check(&self, types: &[DataType], pool: &Arc<Pool>) -> Result<()> {
        if self.columns.len() != types.len() {
            let (actual, expected) = (self.columns.len(), types.len());
            return Err(mismatch(format!(
                "{actual} columns where {expected} belong"
            )));
        }
        for (column, (column_batch, expected)) in self.columns.iter().zip(types).enumerate() {
            // `ColumnBatch::of` has compared the other chunks with the first.
            let Some(chunk) = column_batch.chunks.first() else {
                continue;
            };
            if chunk.data_type() != expected {
                let actual = chunk.data_type();
                let reason = format!("column {column} is {actual} where {expected} belongs");
                return Err(mismatch(reason));
            }
            if !chunk.is_of(pool) {
                return Err(mismatch(format!("column {column} is of another engine")));
            }
        }
        Ok(())
    }

    /// For each copier, the last copy that brings one of the chunks.
    pub(crate) fn copies(&self) -> Copies {
        let mut copies = Copies::default();
        let column_batches = self.columns().iter();
        column_batches.for_each(|column_batch| copies.join(&column_batch.copies));
        copies
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of all row groups.
    pub fn num_rows(&self) -> usize {
        self.rows.iter().sum()
    }
}

fn get_or_make<T>(of: &Mutex<Option<Arc<T>>>, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut known = lock(of);
    match &*known {
        Some(known) => Ok(Arc::clone(known)),
        None => Ok(Arc::clone(known.insert(Arc::new(make()?)))),
    }
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn other_results() -> Error {
    Error::Internal("results of another type".into())
}

fn mismatch(reason: String) -> Error {
    Error::Mismatch(reason)
}

impl ColumnBatch {
    /// Combines chunks of one type, on one engine's device.
    pub fn of(chunks: Vec<Arc<Resident>>) -> Result<Self> {
        if let [first, others @ ..] = &chunks[..]
            && let Some(other) = others.iter().find(|other| !other.goes_with(first))
        {
            let (one, other) = (first.data_type(), other.data_type());
            let reason = match one == other {
                true => "chunks of several engines in a column".into(),
                false => format!("{other} beside {one} in a column"),
            };
            return Err(mismatch(reason));
        }
        let mut traits = ColumnTraits::default();
        let mut copies = Copies::default();
        let (mut dictionaries, mut symbols) = (Vec::<Option<Dictionary>>::new(), vec![]);
        let mut known = HashMap::new();
        let mut dictionary_of = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            traits.merge(chunk.traits());
            copies.include(chunk);
            let is_coded = chunk.traits().has(Transform::Dict);
            let of_entries = chunk.entries().map(|of| Arc::as_ptr(of).addr());
            let of_symbols = chunk.symbols().map(|of| Arc::as_ptr(of).addr());
            let key = of_entries.or(of_symbols).map(|key| (key, is_coded));
            let index = *known.entry(key).or_insert_with(|| {
                symbols.push(chunk.symbols().cloned());
                dictionaries.push(chunk.entries().map(|entries| Dictionary {
                    entries: Arc::clone(entries),
                    codes: 0,
                    is_coded,
                }));
                dictionaries.len() - 1
            });
            if let Some(dictionary) = &mut dictionaries[index] {
                dictionary.codes = dictionary.codes.max(chunk.codes());
            }
            dictionary_of.push(index);
        }
        Ok(Self {
            rows: chunks.iter().map(|chunk| chunk.rows()).collect(),
            addresses: chunks.iter().map(|chunk| chunk.address()).collect(),
            bytes: chunks.iter().map(|chunk| chunk.bytes()).collect(),
            traits,
            dictionaries,
            symbols,
            dictionary_of: dictionary_of.into(),
            copies,
            sample: OnceLock::new(),
            entries: Mutex::default(),
            coded: Mutex::default(),
            text_tokens: Mutex::default(),
            text_fingerprints: Mutex::default(),
            text_tests: Mutex::default(),
            text_functions: Mutex::default(),
            code_tests: Mutex::default(),
            is_distinct: false,
            used: AtomicU64::new(0),
            chunks,
        })
    }

    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Values of some rows.
    pub fn sample(&self) -> Option<&ArrayRef> {
        let sample = self.sample.get_or_init(|| {
            let step = self.len().div_ceil(SAMPLED_CHUNKS).max(1);
            let samples = self.chunks.iter().step_by(step);
            let samples: Vec<&dyn Array> = samples
                .filter_map(|chunk| chunk.sample().map(AsRef::as_ref))
                .collect();
            concat(&samples).ok()
        });
        sample.as_ref()
    }

    /// The entries of the dictionaries, numbered on first use.
    pub fn entries(&self) -> Result<Arc<Entries>> {
        let mut known = lock(&self.entries);
        if let Some(entries) = &*known {
            return Ok(Arc::clone(entries));
        }
        let of_group = Arc::clone(&self.dictionary_of);
        let entries = match &self.dictionaries[..] {
            [Some(only)] if self.is_distinct => Entries::of_distinct(&only.entries, of_group),
            all => Entries::of(
                all.iter().map(|of| of.as_ref().map(|of| &of.entries)),
                of_group,
            )?,
        };
        Ok(Arc::clone(known.insert(Arc::new(entries))))
    }

    /// The chunks whose strings have no dictionary.
    pub fn texts(&self) -> Result<Self> {
        let chunks = self.chunks.iter();
        let texts = chunks.filter(|chunk| chunk.traits().has(Transform::Text));
        Self::of(texts.cloned().collect())
    }

    /// The column with other chunks in place of those without dictionary: all of one dictionary, whose entries are distinct.
    pub fn with_codes(&self, codes: Vec<Arc<Resident>>) -> Result<Self> {
        let is_distinct = codes.len() == self.chunks.len();
        let mut codes = codes.into_iter();
        let chunks = self.chunks.iter().map(|chunk| {
            let other = chunk.traits().has(Transform::Text).then(|| codes.next());
            other.flatten().unwrap_or_else(|| Arc::clone(chunk))
        });
        Ok(Self {
            is_distinct,
            ..Self::of(chunks.collect())?
        })
    }

    /// The results of a function of its values; `make` computes them unless they are kept.
    pub fn mapped<T: Any + Send + Sync>(
        &self,
        function: &Arc<dyn TextFunction>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let known = |known: &VecDeque<TextResults>| {
            let known = known.iter().find(|(of, _)| **of == **function);
            known.map(|(_, results)| Arc::clone(results))
        };
        if let Some(known) = known(&lock(&self.text_functions)) {
            return known.downcast().map_err(|_| other_results());
        }
        let computed = Arc::new(make()?);
        let mut known = lock(&self.text_functions);
        known.truncate(TEXT_FUNCTIONS - 1);
        known.push_front((Arc::clone(function), Arc::clone(&computed) as Computed));
        Ok(computed)
    }

    /// The column with dictionaries for all chunks; `make` computes it unless it is cached. Concurrent callers wait.
    pub fn coded(&self, make: impl FnOnce() -> Result<Self>) -> Result<Arc<Self>> {
        let mut coded = lock(&self.coded);
        if let Some(known) = &*coded {
            return known.clone().map_err(Error::Unsupported);
        }
        let computed = make().map(Arc::new);
        match &computed {
            Ok(computed) => *coded = Some(Ok(Arc::clone(computed))),
            // cached: there will be as many strings another time
            Err(Error::Unsupported(reason)) => *coded = Some(Err(reason.clone())),
            Err(_) => {}
        }
        computed
    }

    /// The strings as tokens; `make` computes them unless they are cached. Concurrent callers wait.
    pub fn text_tokens(
        &self,
        make: impl FnOnce() -> Result<TextTokens>,
    ) -> Result<Arc<TextTokens>> {
        get_or_make(&self.text_tokens, make)
    }

    /// Hashes of the strings; `make` computes them unless they are cached. Concurrent callers wait.
    pub fn text_fingerprints(
        &self,
        make: impl FnOnce() -> Result<DeviceBuffer>,
    ) -> Result<Arc<DeviceBuffer>> {
        get_or_make(&self.text_fingerprints, make)
    }

    /// The tests of strings by an automaton; `make` builds them unless they are cached.
    pub fn text_tests(
        &self,
        automaton: &Automaton,
        make: impl FnOnce() -> Result<TextTests>,
    ) -> Result<Arc<TextTests>> {
        let known = |tests: &VecDeque<(Automaton, Arc<TextTests>)>| {
            let known = tests.iter().find(|(of, _)| of == automaton);
            known.map(|(_, tests)| Arc::clone(tests))
        };
        if let Some(tests) = known(&lock(&self.text_tests)) {
            return Ok(tests);
        }
        let computed = Arc::new(make()?);
        let mut tests = lock(&self.text_tests);
        tests.truncate(TEXT_TESTS - 1);
        tests.push_front((automaton.clone(), Arc::clone(&computed)));
        Ok(computed)
    }

    /// The results of a test for each dictionary; `make` computes them, of so many values, unless they are kept. Those of
    /// few values are not, and those of keys of tables.
    pub fn tested<T: Any + Send + Sync>(
        &self,
        test: &DictionaryTest,
        make: impl FnOnce(&[Option<Dictionary>], usize) -> Result<T>,
    ) -> Result<Arc<T>> {
        let dictionaries = self.dictionaries.iter().flatten();
        let values = dictionaries.map(|of| of.entries.len()).sum();
        // a key table is kept elsewhere, if at all: the column would keep it alive
        if values < TESTED_VALUES || matches!(test, DictionaryTest::Matched(_)) {
            return Ok(Arc::new(make(&self.dictionaries, values)?));
        }
        let known = |known: &VecDeque<TestResults>| {
            let known = known.iter().find(|(of, _)| of == test);
            known.map(|(_, results)| Arc::clone(results))
        };
        if let Some(known) = known(&lock(&self.code_tests)) {
            return known.downcast().map_err(|_| other_results());
        }
        let computed = Arc::new(make(&self.dictionaries, values)?);
        let mut known = lock(&self.code_tests);
        known.truncate(CODE_TESTS - 1);
        known.push_front((test.clone(), Arc::clone(&computed) as Computed));
        Ok(computed)
    }

    /// Returns true if it has any of these chunks.
    pub fn has_some(&self, chunks: &HashSet<*const Resident>) -> bool {
        let mut own = self.chunks.iter();
        own.any(|chunk| chunks.contains(&Arc::as_ptr(chunk)))
    }

    /// The addresses of its chunks' memory.
    pub fn memory(&self) -> Vec<u64> {
        let memory = self.chunks.iter().map(|chunk| chunk.memory.address());
        let mut memory: Vec<u64> = memory.collect();
        memory.sort_unstable();
        memory.dedup();
        memory
    }

    /// Releases its chunks. Pushes everything else that only this batch has on the device to `rest`, and returns its
    /// bytes.
    pub fn take_apart(self, rest: &mut Vec<Arc<dyn Any + Send + Sync>>) -> u64 {
        let mut bytes = 0;
        let mut leave = |bytes_of: usize, of: Arc<dyn Any + Send + Sync>| {
            bytes += bytes_of as u64;
            rest.push(of);
        };
        for (_, tests) in into_inner(self.text_tests) {
            leave(tests._memory.bytes(), tests);
        }
        if let Some(tokens) = into_inner(self.text_tokens) {
            leave(tokens.words.bytes() + tokens.offsets.bytes(), tokens);
        }
        if let Some(fingerprints) = into_inner(self.text_fingerprints) {
            leave(fingerprints.bytes(), fingerprints);
        }
        for chunk in self.chunks {
            // other chunks have another owner
            if Arc::strong_count(&chunk) == 1 {
                leave(chunk.bytes(), chunk);
            }
        }
        match into_inner(self.coded) {
            Some(Ok(coded)) => match Arc::try_unwrap(coded) {
                Ok(coded) => bytes + coded.take_apart(rest),
                Err(_) => bytes,
            },
            _ => bytes,
        }
    }

    /// Notes a use by a query.
    pub fn touch(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Marks its chunks as used when the batch was.
    pub fn date_chunks(&self) {
        let used = self.used();
        self.chunks.iter().for_each(|chunk| chunk.touch(used));
    }
}
