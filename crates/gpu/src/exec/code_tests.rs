//! Results of a code test: which codes of each dictionary pass, and how to test strings without a dictionary. Row
//! groups with the same dictionary or symbol tables share a result and its table on the device.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};

use super::automaton_table;
use super::parameters::Parameters;
use crate::error::{Error, Result};
use crate::kernel::{CodeTest, DictionaryTest};
use crate::runtime::{Batch, Dictionary, Engine, FixedKernel, TextTests};
use vectile_pipeline::parallel;

/// Results of a code test for the codes of each row group.
pub(super) struct CodeTestResults {
    /// One for each dictionary.
    unique: Arc<Vec<DictionaryResult>>,
    /// For each row group, its index in `unique`.
    of_group: Arc<[usize]>,
    /// Tests of strings in splits, for row groups without a dictionary.
    tests: Option<Arc<TextTests>>,
}

/// The passing codes of one dictionary.
#[derive(Clone, Debug)]
struct DictionaryResult {
    /// Codes are below this bound.
    codes: usize,
    passing: Passing,
}

#[derive(Clone, Debug)]
enum Passing {
    /// Codes from the first to the second, inclusive; none if they cross.
    Range(u32, u32),
    /// Codes whose bit is set.
    Bits(Vec<u32>),
    /// No codes: strings in splits are tested by [`TextTests`].
    Text,
}

impl CodeTestResults {
    /// Evaluates `test` for the codes of these row groups.
    pub fn of(
        test: &CodeTest,
        batch: &Batch,
        engine: &Engine,
        (threads, may_compile): (usize, bool),
    ) -> Result<Self> {
        let column_batch = &batch.columns()[test.column];
        let kernel = || engine.fixed_kernel(FixedKernel::Tokenize, may_compile);
        let automaton = test.automaton.as_ref();
        let tests =
            automaton.map(|of| automaton_table::tests(of, test.column, batch, kernel, engine));
        let tests = tests.transpose()?;
        let no_codes = || DictionaryResult {
            codes: 0,
            passing: match &tests {
                Some(_) => Passing::Text,
                None => Passing::Range(1, 0),
            },
        };
        let result = |dictionary: &Option<Dictionary>| {
            Ok(match dictionary {
                Some(dictionary) => DictionaryResult {
                    codes: dictionary.codes,
                    passing: Passing::of(&passed(test, &dictionary.entries)?),
                },
                None => no_codes(),
            })
        };
        let unique = column_batch.tested(&test.test, |dictionaries, values| {
            let threads = parallel::threads_for(values, threads);
            let results = parallel::map(threads, dictionaries.iter().collect(), result);
            results.into_iter().collect::<Result<_>>()
        });
        Ok(Self {
            unique: unique?,
            of_group: Arc::clone(&column_batch.dictionary_of),
            tests,
        })
    }

    /// Returns true if the passing codes of each dictionary are a range.
    pub fn are_ranges(&self) -> bool {
        let mut unique = self.unique.iter();
        unique.all(|answer| matches!(answer.passing, Passing::Range(..)))
    }

    /// Bytes of the largest table by which strings in splits are tested; 0 without such tests.
    pub fn table_bytes(&self) -> usize {
        self.tests.as_ref().map_or(0, |tests| tests.table_bytes)
    }

    /// Turns ranges into bits: a kernel supports one kind.
    pub fn make_bits(&mut self) {
        for DictionaryResult { codes, passing } in Arc::make_mut(&mut self.unique) {
            // kernels read up to 1024 codes beyond the last one; none of these words may be past the end
            let words = codes.div_ceil(32) + 33;
            match passing {
                Passing::Range(low, high) => {
                    let mut bits = vec![0u32; words.max(*high as usize / 32 + 1)];
                    (*low..=*high).for_each(|code| bits[code as usize / 32] |= 1 << (code % 32));
                    *passing = Passing::Bits(bits);
                }
                Passing::Bits(bits) => bits.resize(words.max(bits.len()), 0),
                Passing::Text => {}
            }
        }
    }

    /// Appends the bits that some groups need, each once. Returns the offset of each result's bits.
    pub fn append(&self, part: Range<usize>, parameters: &mut Parameters) -> Vec<u64> {
        let mut offsets = vec![None; self.unique.len()];
        for &index in &self.of_group[part] {
            if let (Passing::Bits(bits), None) = (&self.unique[index].passing, offsets[index]) {
                offsets[index] = Some(parameters.next_offset());
                bits.iter()
                    .for_each(|word| parameters.bytes.extend(word.to_le_bytes()));
            }
        }
        let offsets = offsets.into_iter();
        offsets.map(Option::unwrap_or_default).collect()
    }

    /// The word of a group: a range, or the address of bits at `offsets` from `start`, or of its text tests.
    pub fn word(&self, group: usize, offsets: &[u64], start: u64) -> u64 {
        let index = self.of_group[group];
        match &self.unique[index].passing {
            Passing::Range(low, high) => u64::from(*low) | u64::from(*high) << 32,
            Passing::Bits(_) => start + offsets[index],
            Passing::Text => self
                .tests
                .as_ref()
                .map_or(0, |tests| tests.addresses[group]),
        }
    }
}

/// Evaluates the test for each dictionary value.
fn passed(test: &CodeTest, entries: &ArrayRef) -> Result<BooleanArray> {
    let passed = match &test.test {
        DictionaryTest::Predicate(predicate) => predicate.evaluate(entries)?,
        DictionaryTest::Values(test) => test.evaluate(entries)?,
        DictionaryTest::Matched(codes) => codes
            .codes_of(entries)?
            .iter()
            .map(Option::is_some)
            .map(Some)
            .collect(),
    };
    if passed.len() != entries.len() {
        let reason = format!("a test gave {} results for {}", passed.len(), entries.len());
        return Err(Error::Internal(reason));
    }
    Ok(passed)
}

impl Passing {
    fn of(passed: &BooleanArray) -> Self {
        let set = |code: &usize| passed.is_valid(*code) && passed.value(*code);
        let first = (0..passed.len()).find(set);
        let last = (0..passed.len()).rev().find(set);
        let (Some(first), Some(last)) = (first, last) else {
            return Self::Range(1, 0);
        };
        if (first..=last).all(|code| set(&code)) {
            return Self::Range(first as u32, last as u32);
        }
        let mut bits = vec![0u32; passed.len().div_ceil(32)];
        (first..=last)
            .filter(set)
            .for_each(|code| bits[code / 32] |= 1 << (code % 32));
        Self::Bits(bits)
    }
}
