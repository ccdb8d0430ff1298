//! Grouped aggregates: a table of accumulators that is copied back and read here, or processed further on the device.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::array::{ArrayRef, UInt32Array, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::take;

use vectile_encodings::VECTOR_LEN;

use super::accumulator::{AccumulatorState, numbers, totals_of};
use super::execution::{Execution, Prepared, ROWS_AT_ONCE, parts};
use super::group_table::{FLAG_BYTES, GroupTable, GroupTableLayout, GroupTableWords};
use super::launch::{Outputs, ScratchRequest};
use super::rows::{arrow_type, width_of};
use crate::error::{Error, Result};
use crate::kernel::{Accumulators, Grouping, OutputPlan, Strategy, Task};
use crate::runtime::{Batch, DeviceBuffer, StreamContext, TableEntries, lock};
use vectile_pipeline::{
    GroupKey, GroupTotals, Groups, Numbers, Output, PostAggregation, Type, parallel,
};

/// Initial entries of a hashed group table; it grows when it is full.
const HASHED_ENTRIES: u64 = 1 << 18;
/// The flag of a table without an entry for some key; that of a full one is 1.
const NO_ENTRY: u8 = 2;
/// Growth factors of the first and of later enlargements: a table larger than necessary is slower, too.
const FIRST_GROWTH: u64 = 16;
const GROWTH: u64 = 4;
/// Tables of up to this many bytes are copied back at once.
const SMALL_TABLE: usize = 4 << 20;
/// The limit in entries, if not all groups are returned.
const SMALL_IF_SOME: u64 = 1 << 14;

impl Execution {
    /// Aggregates row groups by keys, for [`Output::Groups`](vectile_pipeline::Output::Groups). A group may come back more
    /// than once, with parts of its rows: combine them.
    ///
    /// `reserve` is called before host memory for tables and groups is taken, each time with the total of this call,
    /// including memory that was freed since.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with a reason, if there is no kernel for this pipeline over these chunks, or if there
    /// are more groups than memory for them; those of `reserve` and of the driver.
    pub fn group(
        &mut self,
        batch: &Batch,
        mut reserve: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        self.group_all(batch, None, &mut reserve)
    }

    /// As [`Execution::group`], for a batch that holds all rows, with a filter, limit or nested aggregation of its
    /// groups. Without nested aggregation, more groups may be returned than `post_aggregation` selects.
    ///
    /// # Errors
    ///
    /// As [`Execution::group`]; [`Error::Unsupported`] if groups are to be aggregated, and computing all of them takes
    /// several launches.
    pub fn group_wanted(
        &mut self,
        batch: &Batch,
        post_aggregation: &PostAggregation,
        mut reserve: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        self.group_all(batch, Some(post_aggregation), &mut reserve)
    }

    /// Compiles the kernel that groups these row groups. `has_nested` is true if their groups are aggregated: that takes a
    /// different kernel.
    ///
    /// # Errors
    ///
    /// As [`Execution::group`].
    pub fn compile_groups(&mut self, batch: &Batch, has_nested: bool) -> Result<()> {
        self.groups_stay = has_nested;
        match batch.is_empty() {
            true => Ok(()),
            false => self.watch(|this| {
                // codes of some row groups are of no use for all
                if this.needs_codes(batch) {
                    return Ok(());
                }
                let batch = this.with_codes(batch.clone())?;
                this.prepare(&batch, Task::Groups).map(drop)
            }),
        }
    }

    fn group_all(
        &mut self,
        batch: &Batch,
        post_aggregation: Option<&PostAggregation>,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        match batch.is_empty() {
            true => Ok(vec![]),
            false => self.watch(|this| {
                let mut groups = this.group_parts(batch, post_aggregation, reserve)?;
                if !this.groups_stay {
                    groups
                        .iter_mut()
                        .try_for_each(|groups| this.set_text(groups))?;
                }
                Ok(groups)
            }),
        }
    }

    /// Replaces ranks by text.
    pub(super) fn set_text(&self, groups: &mut Groups) -> Result<()> {
        for (totals, values) in groups.totals.iter_mut().zip(&self.text_extremes) {
            let (Some(values), Numbers::Int(ranks)) = (values, &totals.values) else {
                continue;
            };
            let ranks = ranks.iter().zip(&totals.counts);
            let ranks = ranks.map(|(rank, count)| (*count > 0).then_some(*rank as u32));
            let ranks = UInt32Array::from_iter(ranks);
            let text = take(values, &ranks, None).map_err(vectile_encodings::Error::from)?;
            totals.values = Numbers::Text(text);
        }
        Ok(())
    }

    fn group_parts(
        &mut self,
        batch: &Batch,
        post_aggregation: Option<&PostAggregation>,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        self.groups_stay = post_aggregation.is_some_and(|of| of.nested.is_some());
        let batch = &self.with_codes(batch.clone())?;
        let mut prepared = self.prepare(batch, Task::Groups)?;
        let OutputPlan::Groups(plan) = &prepared.plan.output else {
            return Err(Error::Internal("no groups".into()));
        };
        let (strategy, accumulators) = (plan.strategy, plan.accumulators.clone());
        prepared.groups_of_table(batch.num_rows());
        let mut vectors = ROWS_AT_ONCE as usize / VECTOR_LEN;
        if strategy == Strategy::Threads {
            vectors = vectors.min(prepared.warps() * prepared.vectors_per_warp());
        }
        let parts = parts(batch.rows(), vectors);
        let post_aggregation = post_aggregation.filter(|_| parts.len() == 1);
        if self.groups_stay && post_aggregation.is_none() {
            let reason = "groups of several launches, which are grouped again";
            return Err(Error::Unsupported(reason.into()));
        }
        let has_text = self.text_extremes.iter().any(Option::is_some);
        if has_text && parts.len() > 1 && digits_of(&prepared) == 0 {
            let reason = "extremes of text of several launches";
            return Err(Error::Unsupported(reason.into()));
        }
        if !prepared.sets.is_empty() && parts.len() > 1 {
            let reason = "distinct values of several launches";
            return Err(Error::Unsupported(reason.into()));
        }
        let mut context = self.engine.stream_context()?;
        let digits = digits_of(&prepared);
        let group_bytes = bytes_of_group(accumulators.results.len(), digits);
        let mut results = vec![];
        let mut held = 0;
        self.is_one_launch = parts.len() == 1;
        for part in parts {
            if strategy == Strategy::Threads {
                self.check_groups(&prepared)?;
                results.push(self.groups_of_threads(
                    &prepared,
                    &accumulators,
                    batch,
                    part,
                    &mut context,
                )?);
                continue;
            }
            let mut more = |bytes: usize| reserve(bytes.saturating_add(held));
            let table = self.table_of(
                &mut prepared,
                batch,
                part,
                post_aggregation,
                &mut context,
                &mut more,
            )?;
            let groups =
                self.of_table(&prepared, &table, post_aggregation, &mut context, &mut more)?;
            held += groups
                .iter()
                .map(|groups| groups.count * group_bytes)
                .sum::<usize>();
            results.extend(groups);
        }
        self.engine.give_back(context);
        Ok(results)
    }

    /// The table of all groups of a batch, which stays on the device.
    pub(super) fn all_groups(&mut self, batch: &Batch) -> Result<(Prepared, GroupTable)> {
        self.groups_stay = true;
        let batch = self.with_codes(batch.clone())?;
        let mut prepared = self.prepare(&batch, Task::Groups)?;
        let OutputPlan::Groups(plan) = &prepared.plan.output else {
            return Err(Error::Internal("no groups".into()));
        };
        if plan.strategy == Strategy::Threads {
            return Err(Error::Internal("groups without a table".into()));
        }
        prepared.groups_of_table(batch.num_rows());
        let [part] = &parts(batch.rows(), ROWS_AT_ONCE as usize / VECTOR_LEN)[..] else {
            return Err(Error::Unsupported("groups of several launches".into()));
        };
        let mut context = self.engine.stream_context()?;
        let post_aggregation = PostAggregation::default();
        let (part, post_aggregation) = (part.clone(), Some(&post_aggregation));
        let table = self.table_of(
            &mut prepared,
            &batch,
            part,
            post_aggregation,
            &mut context,
            &mut |_| Ok(()),
        )?;
        self.engine.give_back(context);
        Ok((prepared, table))
    }

    /// The groups of a table, or those that `post_aggregation` selects: computed on the device, or else read from the
    /// copied-back table, perhaps in parts.
    fn of_table(
        &mut self,
        prepared: &Prepared,
        table: &GroupTable,
        post_aggregation: Option<&PostAggregation>,
        context: &mut StreamContext,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        if table.back.is_none() {
            match self.on_device(prepared, table, post_aggregation, reserve) {
                Err(Error::Unsupported(_)) if !self.groups_stay => self.check_groups(prepared)?,
                computed => return computed,
            }
        }
        let layout = &table.layout;
        let fetched;
        let back = match &table.back {
            Some(back) => back,
            None => {
                reserve(layout.bytes())?;
                fetched = self.fetch(table, context)?;
                &fetched
            }
        };
        let words = layout.words_of(back.as_slice());
        let entries = layout
            .entries
            .min(usize::try_from(prepared.groups).unwrap_or(usize::MAX));
        let threads = self.threads_for_parts(entries);
        let each = entries.div_ceil(threads).max(1);
        let ranges = (0..entries.max(1)).step_by(each);
        let ranges = ranges
            .map(|start| start..(start + each).min(entries))
            .collect();
        let occupied = parallel::map(threads, ranges, |range| words.occupied(range));
        let digits = prepared.bindings.digits().len();
        let group_bytes = bytes_of_group(layout.accumulators.results.len(), digits);
        let count: usize = occupied.iter().map(Vec::len).sum();
        reserve(layout.bytes() + count.saturating_mul(group_bytes))?;
        let parts = parallel::map(threads, occupied, |some| self.read(prepared, &words, &some));
        parts.into_iter().collect()
    }

    /// The number of parts that groups are returned in.
    pub(super) fn threads_for_parts(&self, groups: usize) -> usize {
        match self.has_parts {
            true => parallel::threads_for(groups, self.threads),
            false => 1,
        }
    }

    /// Groups with accumulators in each thread.
    fn groups_of_threads(
        &mut self,
        prepared: &Prepared,
        accumulators: &Accumulators,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<Groups> {
        let Accumulators { all, results } = accumulators;
        let each = all.len();
        let all_groups = all.repeat(prepared.groups as usize);
        let states = self.states(prepared, &all_groups, batch, part, context)?;
        let groups = states.chunks(each).zip(0..);
        let occupied: Vec<(&[AccumulatorState], u64)> =
            groups.filter(|(group, _)| group[0].count() > 0).collect();
        let groups = || occupied.iter().map(|(group, _)| group);
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
            count: occupied.len(),
            totals: totals.collect(),
            keys: self.keys(
                prepared,
                vec![occupied.iter().map(|(_, number)| *number).collect()],
            )?,
        })
    }

    /// The group table of some row groups. All of it is copied back if it is small and not processed further.
    fn table_of(
        &mut self,
        prepared: &mut Prepared,
        batch: &Batch,
        part: Range<usize>,
        post_aggregation: Option<&PostAggregation>,
        context: &mut StreamContext,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<GroupTable> {
        let hashed = is_hashed(prepared);
        let OutputPlan::Groups(plan) = &prepared.plan.output else {
            return Err(Error::Internal("no groups".into()));
        };
        let accumulators = &plan.accumulators.clone();
        let parts = plan.parts.len().max(1) as u64;
        loop {
            let entries = prepared.table_entries();
            let too_large = || Error::Unsupported(format!("a table of {entries} groups"));
            let strides = prepared.bindings.sets.iter().map(|of| of.stride);
            let words_of_sets = strides.zip(&prepared.sets).map(|(stride, set)| {
                // numbers, and the parts of those that are hashes
                let columns = if stride == 0 { 1 + parts + 1 } else { 1 };
                set.entries.saturating_mul(columns)
            });
            let layout = GroupTableLayout::of(entries, hashed, accumulators, words_of_sets);
            let layout = layout.ok_or_else(too_large)?;
            let (bytes, all_bytes) = (layout.bytes(), layout.bytes_with_sets());
            let may_grow = hashed || !layout.sets.is_empty();
            if may_grow && all_bytes as u64 > self.most_table_bytes() {
                let reason = format!("more groups than {all_bytes} bytes of device memory hold");
                return Err(Error::Unsupported(reason));
            }
            let are_many =
                bytes > SMALL_TABLE || post_aggregation.is_some() && entries > SMALL_IF_SOME;
            let stays = self.groups_stay || are_many;
            if !stays {
                self.check_groups(prepared)?;
                reserve(bytes)?;
            }
            let memory = self.engine.take(layout.all)?;
            for (set, at) in prepared.sets.iter_mut().zip(&layout.sets) {
                set.address = memory.address() + *at as u64;
            }
            let flags = memory.address() + layout.flags as u64;
            let outputs = |_| Outputs {
                out: memory.address() + layout.words as u64,
                masks: memory.address() + layout.numbers as u64,
                counts: flags,
                clear: Some((flags, all_bytes)),
                back: (flags, if stays { FLAG_BYTES } else { bytes }),
            };
            let back = self.run(
                prepared,
                batch,
                part.clone(),
                context,
                ScratchRequest::default(),
                outputs,
            )?;
            let flag = |flag: usize| back.as_slice()[flag * 8];
            let full_sets: Vec<u8> = (0..layout.sets.len()).map(|set| flag(2 + set)).collect();
            if flag(1) != 0 {
                return Err(Error::Unsupported("keys that hash alike".into()));
            }
            if flag(0) == NO_ENTRY || full_sets.contains(&NO_ENTRY) {
                return Err(Error::Unsupported("the largest key of 64 bits".into()));
            }
            let is_full = flag(0) != 0;
            let full_sets = full_sets.iter().map(|flag| *flag != 0);
            let full_sets: Vec<bool> = full_sets.collect();
            if !is_full && !full_sets.contains(&true) {
                prepared.keep_entries(batch.num_rows(), hashed.then_some(entries));
                return Ok(GroupTable {
                    layout,
                    memory: Arc::new(memory),
                    back: (!stays).then_some(back),
                });
            }
            if is_full && !hashed {
                return Err(Error::Unsupported("a key out of its chunk's bounds".into()));
            }
            if is_full {
                prepared.groups = grown(entries);
            }
            for (set, _) in prepared
                .sets
                .iter_mut()
                .zip(full_sets)
                .filter(|(_, is_full)| *is_full)
            {
                set.entries = grown(set.entries);
            }
        }
    }

    /// Returns an error if a copied-back table may have more groups than the limit.
    fn check_groups(&self, prepared: &Prepared) -> Result<()> {
        let (entries, most) = (prepared.groups, self.most_groups);
        match entries > most {
            true => Err(Error::Unsupported(format!(
                "a table for {entries} groups, of at most {most}"
            ))),
            false => Ok(()),
        }
    }

    /// Copies a table back.
    fn fetch(&self, table: &GroupTable, context: &mut StreamContext) -> Result<DeviceBuffer> {
        let bytes = table.layout.bytes();
        let mut back = self.engine.host_pool().take(bytes)?;
        let to = back.as_mut_slice().as_mut_ptr();
        let from = table.memory.address() + table.layout.flags as u64;
        // SAFETY: both have these bytes, and live until the stream is done.
        context.finish(|stream| unsafe { stream.copy_out(to, from, bytes) })?;
        Ok(back)
    }

    /// The groups at these entries of a table.
    fn read(
        &self,
        prepared: &Prepared,
        words: &GroupTableWords<'_>,
        occupied: &[usize],
    ) -> Result<Groups> {
        let accumulators = &words.layout.accumulators;
        let some = |accumulator: usize, word: usize| -> Vec<u64> {
            let column = words.column(accumulator);
            let each = accumulators.all[accumulator].accumulator.words();
            let words_of_groups = occupied
                .iter()
                .map(|at| u64::from_le_bytes(column[at * each + word]));
            words_of_groups.collect()
        };
        let part = |part: usize| -> Vec<u64> {
            let named = some(part, 0).into_iter();
            named.map(|named| named.wrapping_sub(1)).collect()
        };
        let mut numbers: Vec<Vec<u64>> = accumulators.key_parts().map(part).collect();
        if numbers.is_empty() {
            let occupied = occupied.iter();
            numbers.push(match is_hashed(prepared) {
                false => occupied.map(|at| *at as u64).collect(),
                true => occupied.map(|at| words.number(*at)).collect(),
            });
        }
        Ok(Groups {
            count: occupied.len(),
            totals: totals_of(accumulators, some),
            keys: self.keys(prepared, numbers)?,
        })
    }

    /// The keys of groups, by group number, or by the numbers of each part.
    pub(super) fn keys(
        &self,
        prepared: &Prepared,
        numbers: Vec<Vec<u64>>,
    ) -> Result<Vec<ArrayRef>> {
        let mut keys = vec![];
        let parts = prepared.bindings.grouping.as_ref();
        let parts = parts.map_or(vec![], Grouping::numbers);
        if parts.len() != numbers.len() {
            return Err(Error::Internal("parts of a key".into()));
        }
        for (part, mut numbers) in parts.into_iter().zip(numbers) {
            for key_index in part.clone() {
                let digit = &prepared.bindings.digits()[key_index];
                let digits: Vec<Option<u64>> = numbers
                    .iter_mut()
                    .map(|number| {
                        let value = match key_index + 1 == part.end {
                            true => *number,
                            false => {
                                let rest = *number / digit.count;
                                std::mem::replace(number, rest) - rest * digit.count
                            }
                        };
                        Some(value).filter(|value| !digit.nullable || *value < digit.count - 1)
                    })
                    .collect();
                keys.push(self.key(prepared, key_index, &digits)?);
            }
        }
        Ok(keys)
    }

    /// The key with that index, from its digits.
    pub(super) fn key(
        &self,
        prepared: &Prepared,
        key_index: usize,
        digits: &[Option<u64>],
    ) -> Result<ArrayRef> {
        let no_key = || Error::Internal("no such key".into());
        let Output::Groups(kinds, _) = &self.pipeline.output else {
            return Err(no_key());
        };
        let kind = kinds.get(key_index).ok_or_else(no_key)?;
        let digit = prepared
            .bindings
            .digits()
            .get(key_index)
            .ok_or_else(no_key)?;
        let codes = || digits.iter().map(|digit| digit.map(|code| code as u32));
        Ok(match kind {
            GroupKey::Value(_) => {
                let of = digit.of.unwrap_or(Type::I64);
                values_of(of, digit.first, digit.nullable, digits)?
            }
            GroupKey::Code(_) => {
                let codes = UInt32Array::from_iter(codes());
                match self.text_keys.get(key_index).and_then(Option::as_ref) {
                    Some(values) => {
                        take(values, &codes, None).map_err(vectile_encodings::Error::from)?
                    }
                    None => Arc::new(codes) as ArrayRef,
                }
            }
            GroupKey::Mapped(..) => return Err(no_key()),
            GroupKey::DictionaryValue(_) => {
                let before = kinds.iter().take(key_index);
                let before = before.filter(|kind| matches!(kind, GroupKey::DictionaryValue(_)));
                let of = prepared.entries.get(before.count()).ok_or_else(no_key)?;
                of.take(&codes().collect::<Vec<_>>())?
            }
        })
    }
}

fn digits_of(prepared: &Prepared) -> usize {
    prepared.bindings.digits().len()
}

fn is_hashed(prepared: &Prepared) -> bool {
    matches!(&prepared.plan.output, OutputPlan::Groups(plan) if plan.strategy == Strategy::Hashed)
}

/// Entries of a hash table after one that was full.
fn grown(entries: u64) -> u64 {
    let growth = match entries {
        HASHED_ENTRIES => FIRST_GROWTH,
        _ => GROWTH,
    };
    entries.saturating_mul(growth)
}

impl Prepared {
    /// Sets the initial size of hash tables: that of an earlier one for as many rows, or the minimum.
    fn groups_of_table(&mut self, rows: usize) {
        let known = lock(&self.loaded.entries).clone();
        let known = known.filter(|(of, _)| *of == rows).map(|(_, of)| of);
        if is_hashed(self) {
            let groups = known.as_ref().and_then(|of| of.groups);
            self.groups = groups.unwrap_or(HASHED_ENTRIES);
        }
        let sets = known.map_or(vec![], |of| of.sets);
        for (index, set) in self.sets.iter_mut().enumerate() {
            set.entries = sets.get(index).copied().unwrap_or(HASHED_ENTRIES);
        }
    }

    /// Keeps the size of hash tables for the next time.
    fn keep_entries(&self, rows: usize, groups: Option<u64>) {
        let sets: Vec<u64> = self.sets.iter().map(|set| set.entries).collect();
        if groups.is_some() || !sets.is_empty() {
            *lock(&self.loaded.entries) = Some((rows, TableEntries { groups, sets }));
        }
    }

    /// Entries of the group table: whole vectors.
    pub(super) fn table_entries(&self) -> u64 {
        self.groups.next_multiple_of(VECTOR_LEN as u64)
    }
}

/// Upper bound of the bytes that a group takes while it is read, except for text: entry and number, for each result a
/// count, a value and the words of the value, for each key a digit, a code and a value.
pub(super) fn bytes_of_group(results: usize, digits: usize) -> usize {
    16 + 40 * results + 40 * digits
}

/// Digits as values, counted from `first`.
pub(super) fn values_of(
    of: Type,
    first: i128,
    is_nullable: bool,
    digits: &[Option<u64>],
) -> Result<ArrayRef> {
    let values = digits
        .iter()
        .map(|value| first + i128::from(value.unwrap_or(0)));
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
    let nulls = is_nullable.then(|| NullBuffer::new(nulls));
    let data = ArrayData::builder(arrow_type(of))
        .len(digits.len())
        .add_buffer(buffer)
        .nulls(nulls)
        .align_buffers(true)
        .build()
        .map_err(vectile_encodings::Error::from)?;
    Ok(make_array(data))
}
