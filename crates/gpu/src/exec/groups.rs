//! Grouped aggregates: a table of accumulators comes back, and is read here.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::array::{ArrayRef, UInt32Array, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::accumulator::{Folded, numbers, numbers_of};
use super::execution::{Execution, Prepared, ROWS_AT_ONCE, TABLE_SHARE, parts};
use super::launch::{Outputs, Wanted};
use super::rows::{arrow_type, width_of};
use crate::error::{Error, Result};
use crate::kernel::{Accumulators, Digit, OutputPlan, Strategy, Task};
use crate::plan::{GroupKey, GroupTotals, Groups, Numbers, Output, Type};
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
        let batch = &self.with_codes(batch.clone())?;
        let mut prepared = self.prepare(batch, Task::Groups)?;
        let OutputPlan::Groups(plan) = &prepared.plan.output else {
            return Err(Error::Unsupported("no groups".into()));
        };
        let (strategy, accumulators) = (plan.strategy, plan.accumulators.clone());
        if strategy == Strategy::Hashed {
            prepared.table_entries = HASHED_ENTRIES;
        }
        self.check_groups(&prepared)?;
        let mut lane = self.engine.lane()?;
        let mut vectors = ROWS_AT_ONCE as usize / vectile_encodings::VECTOR_LEN;
        if strategy == Strategy::Threads {
            vectors = vectors.min(prepared.warps() * prepared.vectors_per_warp());
        }
        let digits = prepared.bindings.digits().len();
        let group_bytes = bytes_of_group(accumulators.results.len(), digits);
        let mut results = vec![];
        let mut held = 0;
        for part in parts(batch.rows(), vectors) {
            if strategy == Strategy::Threads {
                results.push(self.few_groups(&prepared, &accumulators, batch, part, &mut lane)?);
                continue;
            }
            let mut more = |bytes: usize| reserve(bytes.saturating_add(held));
            let words = accumulators.words().1;
            let table = self.table_of(
                &mut prepared,
                (strategy, words),
                batch,
                part,
                &mut lane,
                &mut more,
            )?;
            let found = table.found();
            more(table.back.bytes() + found.len().saturating_mul(group_bytes))?;
            let groups = self.read(&prepared, &accumulators, &table, &found)?;
            held += groups.count * group_bytes;
            results.push(groups);
        }
        self.engine.give_back(lane);
        Ok(results)
    }

    /// Groups of which each thread had accumulators.
    fn few_groups(
        &mut self,
        prepared: &Prepared,
        accumulators: &Accumulators,
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<Groups> {
        let Accumulators { all, results } = accumulators;
        let each = all.len();
        let of_groups = all.repeat(prepared.table_entries as usize);
        let folded = self.folded(prepared, &of_groups, batch, part, lane)?;
        let groups = folded.chunks(each).zip(0..);
        let found: Vec<(&[Folded], u64)> =
            groups.filter(|(group, _)| group[0].count() > 0).collect();
        let groups = || found.iter().map(|(group, _)| group);
        let totals = results.iter().map(|result| GroupTotals {
            counts: groups().map(|group| group[result.count].count()).collect(),
            values: match result.value {
                None => Numbers::Int(vec![]),
                Some(at) => numbers(
                    groups().map(|group| group[at].number()),
                    all[at].accumulator,
                ),
            },
        });
        Ok(Groups {
            count: found.len(),
            totals: totals.collect(),
            keys: self.keys(prepared, found.iter().map(|(_, number)| *number).collect())?,
        })
    }

    /// The table of some row groups.
    fn table_of(
        &mut self,
        prepared: &mut Prepared,
        (strategy, words): (Strategy, usize),
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Table> {
        let hashed = strategy == Strategy::Hashed;
        loop {
            let entries = prepared.table_entries;
            let numbers = if hashed { entries } else { 0 };
            let bytes = entries
                .checked_mul(words as u64)
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

    /// The groups of a table, at these entries.
    fn read(
        &self,
        prepared: &Prepared,
        accumulators: &Accumulators,
        table: &Table,
        found: &[usize],
    ) -> Result<Groups> {
        let numbers: Vec<u64> = match table.numbers {
            0 => found.iter().map(|at| *at as u64).collect(),
            _ => found.iter().map(|at| table.number(*at)).collect(),
        };
        let first = accumulators.words().0;
        let words = |word: usize| -> Vec<u64> {
            let column = table.column(word);
            let of_groups = found.iter().map(|at| u64::from_le_bytes(column[*at]));
            of_groups.collect()
        };
        let totals = accumulators.results.iter().map(|result| GroupTotals {
            counts: words(first[result.count]),
            values: match result.value {
                None => Numbers::Int(vec![]),
                Some(at) => {
                    let next = || words(first[at] + 1);
                    numbers_of(accumulators.all[at].accumulator, words(first[at]), next)
                }
            },
        });
        Ok(Groups {
            count: found.len(),
            totals: totals.collect(),
            keys: self.keys(prepared, numbers)?,
        })
    }

    /// The keys of groups, by their numbers.
    fn keys(&self, prepared: &Prepared, mut numbers: Vec<u64>) -> Result<Vec<ArrayRef>> {
        let Output::Groups(kinds, _) = &self.pipeline.output else {
            return Err(Error::Unsupported("no groups".into()));
        };
        let mut keys = vec![];
        let mut entries = prepared.entries.iter();
        let last = kinds.len().saturating_sub(1);
        for (place, (kind, digit)) in kinds.iter().zip(prepared.bindings.digits()).enumerate() {
            let digits: Vec<Option<u64>> = numbers
                .iter_mut()
                .map(|number| {
                    let value = match place == last {
                        true => *number,
                        false => {
                            let rest = *number / digit.count;
                            std::mem::replace(number, rest) - rest * digit.count
                        }
                    };
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
fn bytes_of_group(results: usize, digits: usize) -> usize {
    16 + 40 * results + 40 * digits
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

    /// The entries of groups that have rows.
    fn found(&self) -> Vec<usize> {
        let counts = self.column(0).iter().enumerate();
        let found = counts.filter(|(_, count)| **count != [0; 8]);
        found.map(|(at, _)| at).collect()
    }

    /// A word of each entry.
    fn column(&self, word: usize) -> &[[u8; 8]] {
        let start = FLAG_BYTES / 8 + self.numbers + word * self.entries;
        &self.words()[start..start + self.entries]
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
        _ => match width_of(of) {
            1 => Buffer::from_iter(values.map(|value| value as i8)),
            2 => Buffer::from_iter(values.map(|value| value as i16)),
            4 => Buffer::from_iter(values.map(|value| value as i32)),
            8 => Buffer::from_iter(values.map(|value| value as i64)),
            _ => Buffer::from_iter(values),
        },
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
