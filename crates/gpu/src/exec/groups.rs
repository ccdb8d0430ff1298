//! Grouped aggregates: a table of accumulators comes back, and is read here.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::array::{ArrayRef, UInt32Array, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::execution::{Execution, Prepared, ROWS_AT_ONCE, TABLE_SHARE, parts};
use super::folded::{Part, float_of};
use super::launch::{Outputs, Wanted};
use super::rows::{arrow_type, width_of};
use crate::error::{Error, Result};
use crate::kernel::{Digit, Fold, GroupFold, Grouping, Spot, Task};
use crate::plan::{GroupKey, GroupTotals, Groups, Number, Numbers, Output, Total, Type};
use crate::runtime::{Batch, Lane, Piece};

/// Entries of a table at first, where groups are found by hashing; then it grows.
const HASHED_ENTRIES: u64 = 1 << 18;
/// How much larger the next one is.
const GROWTH: u64 = 16;
/// Bytes before the entries: whether the table was full, or a group out of it.
const FLAG_BYTES: usize = 256;

impl Execution {
    /// Aggregates row groups by keys, for [`Output::Groups`](crate::plan::Output::Groups). A group may
    /// come back more than once, with parts of its rows: combine them.
    ///
    /// `reserve` is told of the memory of the host that tables and groups take, before they do: each
    /// time of all bytes of this call, those included that are gone by then.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with a reason, if there is no kernel for this pipeline over these chunks,
    /// or if there are more groups than memory for them; those of `reserve` and of the driver.
    pub fn group(
        &mut self,
        batch: &Batch,
        mut reserve: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        match batch.is_empty() {
            true => Ok(vec![]),
            false => self.watch(|this| this.group_parts(batch, &mut reserve)),
        }
    }

    fn group_parts(
        &mut self,
        batch: &Batch,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        let mut prepared = self.prepare(batch, Task::Groups)?;
        let grouping = prepared.bindings.grouping.clone();
        let grouping = grouping.ok_or_else(|| Error::Unsupported("no groups".into()))?;
        if grouping.spot == Spot::Hashed {
            prepared.table_entries = HASHED_ENTRIES;
        }
        self.check_groups(&prepared)?;
        let mut lane = self.engine.lane()?;
        let mut vectors = ROWS_AT_ONCE as usize / vectile_encodings::VECTOR_LEN;
        if grouping.spot == Spot::Threads {
            vectors = vectors.min(prepared.warps() * prepared.vectors_per_warp());
        }
        let mut results = vec![];
        let mut held = 0;
        for part in parts(batch.rows(), vectors) {
            if grouping.spot == Spot::Threads {
                results.push(self.few_groups(&prepared, &grouping, batch, part, &mut lane)?);
                continue;
            }
            let mut more = |bytes: usize| reserve(bytes.saturating_add(held));
            let table =
                self.table_of(&mut prepared, &grouping, batch, part, &mut lane, &mut more)?;
            let groups = self.read(&prepared, &grouping, &table, &mut more)?;
            held += groups.count * bytes_of_group(&grouping);
            results.push(groups);
        }
        self.engine.give_back(lane);
        Ok(results)
    }

    /// Groups of which each thread had accumulators.
    fn few_groups(
        &mut self,
        prepared: &Prepared,
        grouping: &Grouping,
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<Groups> {
        let folded = self.folded(prepared, batch, part, lane)?;
        let results = &prepared.loaded.layout.results;
        let each = results.len() / grouping.groups.max(1) as usize;
        let mut numbers = vec![];
        let mut found = vec![];
        for (number, results) in results.chunks(each.max(1)).enumerate() {
            let results = results
                .iter()
                .map(|result| Part::of(result, &folded).total());
            let results: Vec<Total> = results.collect();
            if results.first().is_some_and(|rows| rows.count > 0) {
                numbers.push(number as u64);
                found.push(results);
            }
        }
        let totals = (1..each).map(|at| {
            let of = || found.iter().map(|results| results[at]);
            let accumulators = &prepared.loaded.layout.accumulators;
            let fold = results[at].value.and_then(|value| accumulators.get(value));
            let floats = results[at].key.is_some() || fold == Some(&Fold::SumFloat);
            let int = |total: Total| match total.value {
                Some(Number::Int(value)) => value,
                _ => 0,
            };
            let float = |total: Total| match total.value {
                Some(Number::Float(value)) => value,
                _ => 0.0,
            };
            GroupTotals {
                counts: of().map(|total| total.count).collect(),
                values: match floats {
                    true => Numbers::Float(of().map(float).collect()),
                    false => Numbers::Int(of().map(int).collect()),
                },
            }
        });
        Ok(Groups {
            count: numbers.len(),
            totals: totals.collect(),
            keys: self.keys(prepared, grouping, numbers)?,
        })
    }

    /// The table of some row groups.
    fn table_of(
        &mut self,
        prepared: &mut Prepared,
        grouping: &Grouping,
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Table> {
        let hashed = grouping.spot == Spot::Hashed;
        let words = grouping.words.len() as u64;
        loop {
            let entries = prepared.table_entries;
            let numbers = if hashed { entries } else { 0 };
            let bytes = entries
                .checked_mul(words)
                .and_then(|words| words.checked_add(numbers)?.checked_mul(8))
                .and_then(|bytes| usize::try_from(bytes).ok()?.checked_add(FLAG_BYTES))
                .ok_or_else(|| Error::Unsupported(format!("a table of {entries} groups")))?;
            if hashed && bytes as u64 > self.engine.memory_limit() / TABLE_SHARE {
                let reason = format!("more groups than {bytes} bytes of device memory hold");
                return Err(Error::Unsupported(reason));
            }
            reserve(bytes)?;
            let memory = self.engine.take(bytes)?;
            let address = memory.address();
            let (own, wanted) = (part.clone(), Wanted::default());
            let back = self.run(prepared, batch, own, lane, wanted, |_| Outputs {
                out: address + FLAG_BYTES as u64 + numbers * 8,
                masks: address + FLAG_BYTES as u64,
                counts: address,
                clear: Some((address, bytes)),
                back: (address, bytes),
            })?;
            let table = Table {
                back,
                entries: entries as usize,
                numbers: numbers as usize,
            };
            if table.word(0) == 0 {
                return Ok(table);
            }
            if !hashed {
                return Err(Error::Unsupported("a key out of its chunk's bounds".into()));
            }
            prepared.table_entries = entries.saturating_mul(GROWTH);
            self.check_groups(prepared)?;
        }
    }

    /// Whether there may be more groups than are wanted.
    fn check_groups(&self, prepared: &Prepared) -> Result<()> {
        let (entries, most) = (prepared.table_entries, self.most_groups);
        match entries > most {
            true => Err(Error::Unsupported(format!(
                "a table for {entries} groups, of at most {most}"
            ))),
            false => Ok(()),
        }
    }

    /// The groups of a table.
    fn read(
        &self,
        prepared: &Prepared,
        grouping: &Grouping,
        table: &Table,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Groups> {
        let counts = table.column(0);
        let found: Vec<usize> = (0..counts.len())
            .filter(|at| counts[*at] != [0; 8])
            .collect();
        let groups_bytes = found.len().saturating_mul(bytes_of_group(grouping));
        reserve(table.back.bytes().saturating_add(groups_bytes))?;
        let numbers: Vec<u64> = match table.numbers {
            0 => found.iter().map(|at| *at as u64).collect(),
            _ => found.iter().map(|at| table.number(*at)).collect(),
        };
        let words = |word: usize| -> Vec<u64> {
            let column = table.column(word);
            found
                .iter()
                .map(|at| u64::from_le_bytes(column[*at]))
                .collect()
        };
        let totals = grouping.results.iter().map(|result| GroupTotals {
            counts: words(result.count),
            values: match result.value {
                None => Numbers::Int(vec![]),
                Some(at) => numbers_of(grouping.words[at], at, result.key, &words),
            },
        });
        Ok(Groups {
            count: found.len(),
            totals: totals.collect(),
            keys: self.keys(prepared, grouping, numbers)?,
        })
    }

    /// The keys of groups, by their numbers.
    fn keys(
        &self,
        prepared: &Prepared,
        grouping: &Grouping,
        mut numbers: Vec<u64>,
    ) -> Result<Vec<ArrayRef>> {
        let Output::Groups(kinds, _) = &self.pipeline.output else {
            return Err(Error::Unsupported("no groups".into()));
        };
        let mut keys = vec![];
        let mut entries = prepared.entries.iter();
        for (kind, digit) in kinds.iter().zip(&grouping.digits) {
            let digits: Vec<Option<u64>> = numbers
                .iter_mut()
                .map(|number| {
                    let value = *number % digit.count;
                    *number /= digit.count;
                    Some(value).filter(|value| !digit.nullable || value + 1 < digit.count)
                })
                .collect();
            keys.push(match kind {
                GroupKey::Value(_) => values_of(digit, &digits)?,
                GroupKey::Code(_) => {
                    let codes = digits.iter().map(|digit| digit.map(|code| code as u32));
                    Arc::new(UInt32Array::from_iter(codes)) as ArrayRef
                }
                GroupKey::Entry(_) => {
                    let of = entries.next();
                    let of = of.ok_or_else(|| Error::Unsupported("entries of no key".into()))?;
                    let codes = digits.iter().map(|digit| digit.map(|code| code as u32));
                    of.take(&codes.collect::<Vec<_>>())?
                }
            });
        }
        Ok(keys)
    }
}

/// Bytes that a group takes at most while it is read, but for text: its place and number, for each
/// result a count, a value and the words of that, for each key a digit, a code and a value.
fn bytes_of_group(grouping: &Grouping) -> usize {
    16 + 40 * grouping.results.len() + 40 * grouping.digits.len()
}

/// What came back.
struct Table {
    back: Piece,
    entries: usize,
    /// Entries that say which group is where; none if it is the place.
    numbers: usize,
}

impl Table {
    fn words(&self) -> &[[u8; 8]] {
        self.back.as_slice().as_chunks::<8>().0
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.words()[at])
    }

    /// The number of the group in an entry.
    fn number(&self, at: usize) -> u64 {
        self.word(FLAG_BYTES / 8 + at).wrapping_sub(1)
    }

    /// A word of each entry.
    fn column(&self, word: usize) -> &[[u8; 8]] {
        let start = FLAG_BYTES / 8 + self.numbers + word * self.entries;
        &self.words()[start..start + self.entries]
    }
}

/// The numbers that words stand for.
fn numbers_of(
    fold: GroupFold,
    at: usize,
    key: Option<Type>,
    words: &dyn Fn(usize) -> Vec<u64>,
) -> Numbers {
    let low = words(at);
    let ordered = |word: u64| (word ^ 1 << 63) as i64;
    let ints: Vec<i128> = match fold {
        GroupFold::SumFloat => {
            return Numbers::Float(low.into_iter().map(f64::from_bits).collect());
        }
        GroupFold::WideSum => {
            let high = words(at + 1);
            let wide = |(low, high): (u64, u64)| i128::from(low) | i128::from(high as i64) << 64;
            low.into_iter().zip(high).map(wide).collect()
        }
        GroupFold::Sum => low
            .into_iter()
            .map(|word| i128::from(word as i64))
            .collect(),
        GroupFold::Count | GroupFold::High => low.into_iter().map(i128::from).collect(),
        GroupFold::Min => low.into_iter().map(|word| ordered(!word).into()).collect(),
        GroupFold::Max => low.into_iter().map(|word| ordered(word).into()).collect(),
    };
    match key {
        Some(of) => Numbers::Float(ints.into_iter().map(|key| float_of(key, of)).collect()),
        None => Numbers::Int(ints),
    }
}

/// Keys that are values.
fn values_of(digit: &Digit, digits: &[Option<u64>]) -> Result<ArrayRef> {
    let of = digit.of.unwrap_or(Type::I64);
    let values = digits
        .iter()
        .map(|value| digit.first + i128::from(value.unwrap_or(0)));
    let buffer = match of {
        Type::Bool => values
            .map(|value| value != 0)
            .collect::<BooleanBuffer>()
            .into_inner(),
        _ => {
            let width = width_of(of);
            let mut bytes: Vec<u8> = Vec::with_capacity(digits.len() * width);
            values.for_each(|value| bytes.extend(&value.to_le_bytes()[..width]));
            Buffer::from(bytes)
        }
    };
    let nulls = digits
        .iter()
        .map(Option::is_some)
        .collect::<BooleanBuffer>();
    let nulls = digit.nullable.then(|| NullBuffer::new(nulls));
    let data = ArrayData::builder(arrow_type(of))
        .len(digits.len())
        .add_buffer(buffer)
        .nulls(nulls)
        .align_buffers(true)
        .build()
        .map_err(vectile_encodings::Error::from)?;
    Ok(make_array(data))
}
