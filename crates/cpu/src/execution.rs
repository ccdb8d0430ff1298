//! Runs a pipeline over row groups.

use std::ops::Range;
use std::sync::Arc;

use vectile_encodings::{Column, Selection, VECTOR_LEN};
use vectile_pipeline::{
    Aggregate, Code, Error, Expr, GroupKey, Literal, Number, Numbers, Op, Output, Pipeline, Result,
    Rows, Total, Type,
};

use crate::accumulator::{self, Accumulator};
use crate::batch::{Batch, for_each_batch};
use crate::combiner::{Combiner, conjuncts};
use crate::distinct::{DistinctCounts, DistinctPartition};
use crate::filter::{add_tests, apply};
use crate::group::{Combinations, Key, KeyType};
use crate::logic::is_true;
use crate::masked::{MOST_MASKS, by_group};
use crate::memory::Memory;
use crate::merge::Merger;
use crate::numbering::Numbering;
use crate::partial::{Distinct, KeyRange, Part, Partial};
use crate::partition::Partition;
use crate::program::{Program, Register};
use crate::reader::Reader;
use crate::row_group::RowGroup;
use crate::rows::rows_of;
use crate::vector::{ALL, Kind, Mask, Vector, both, count, for_each_row};

/// Numbers of groups have 32 bits, and a batch may add one for each row.
const MOST_GROUPS: usize = u32::MAX as usize - VECTOR_LEN;

/// A run of a pipeline. Row groups are computed by any threads, and merged in their order: the result
/// is the same for any number of threads.
pub struct Execution {
    pipeline: Arc<Pipeline>,
    merger: Merger,
    rows: Vec<Rows>,
}

/// Keys and aggregates of an output.
fn outputs(output: &Output) -> Result<(&[GroupKey], &[Aggregate])> {
    match output {
        Output::Aggregates(aggregates) => Ok((&[], aggregates)),
        Output::Groups(keys, aggregates) => Ok((keys, aggregates)),
        Output::Selection | Output::Rows(_) => {
            Err(Error::Internal("an output without aggregates".into()))
        }
    }
}

impl Execution {
    /// A run that has read no rows.
    pub fn new(pipeline: Arc<Pipeline>) -> Self {
        Self {
            pipeline,
            merger: Merger::default(),
            rows: Vec::new(),
        }
    }

    /// Computes the rows or aggregates of some `rows` of a row group, whose `columns` are those of the pipeline. Calls
    /// `reserve` with the bytes for groups before they become more, and with the same bytes while it examines matches, of
    /// which a row may have very many, so that an error can end the run. `ascending` is the index of a group key of which
    /// each part is expected to have no smaller value than those before: then merging is faster.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if no program computes the pipeline over these columns; errors of decoding, and of
    /// `reserve`.
    pub fn run(
        pipeline: &Pipeline,
        columns: &[Column],
        rows: Range<usize>,
        ascending: Option<usize>,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Partial> {
        if columns.len() != pipeline.columns.len() {
            let reason = format!("{} columns of {}", columns.len(), pipeline.columns.len());
            return Err(Error::Internal(reason));
        }
        let all = columns.first().map_or(rows.end, Column::len);
        if rows.start > rows.end || rows.end > all {
            return Err(Error::Internal(format!("rows {rows:?} of {all}")));
        }
        if let Some(other) = columns.iter().find(|column| column.len() != all) {
            let reason = format!("a column of {} rows, not {all}", other.len());
            return Err(Error::Internal(reason));
        }
        let readers = columns.iter().map(Reader::new);
        let readers: Vec<Reader<'_>> = readers.collect::<Result<_>>()?;
        let mut selection = Selection::none(0, all);
        selection.add_range(rows.clone());
        let memory = Memory::new(reserve);
        let row_group = RowGroup {
            columns,
            readers: &readers,
            lookups: &pipeline.lookups,
            check: &|| memory.check(),
        };
        let (filters, conditions) = conjuncts(&pipeline.filter)?;
        for filter in filters {
            if selection.is_empty() {
                break;
            }
            apply(filter, row_group, &mut selection)?;
        }
        if let Output::Rows(outputs) = &pipeline.output {
            if !(pipeline.matches.is_empty() && conditions.is_empty()) {
                let reason = "rows with matches, which are not aggregated";
                return Err(Error::Unsupported(reason.into()));
            }
            let rows = rows_of(outputs, row_group, &selection)?;
            return Ok(Partial {
                rows: Some(rows),
                ..Partial::default()
            });
        }
        let (keys, aggregates) = outputs(&pipeline.output)?;
        if selection.is_empty() && keys.is_empty() {
            return Ok(Partial::default());
        }
        let keys: Vec<GroupKey> = keys.iter().map(by_value).collect();
        let combiner = Combiner::new(&pipeline.matches, &conditions, row_group, &selection)?;
        let program = Combiner::program(&pipeline.matches, row_group);
        let most = usize::try_from(pipeline.most_combinations()).unwrap_or(usize::MAX);
        let most = rows.len().saturating_mul(most);
        let run = Run {
            program,
            combiner,
            selection: &selection,
            most,
        };
        let groups = run.aggregated(&keys, aggregates, ascending.is_none(), &memory)?;
        Ok(groups.partial(ascending))
    }

    /// Adds the rows or groups of the next row group.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn add(&mut self, mut partial: Partial) -> Result<()> {
        if let Some(rows) = partial.rows.take() {
            self.rows.push(rows);
            return Ok(());
        }
        let (_, aggregates) = outputs(&self.pipeline.output)?;
        let distinct = aggregates.iter().enumerate();
        let distinct = distinct.filter(|(_, of)| matches!(of, Aggregate::CountDistinct(_)));
        self.merger.add(partial, distinct.map(|(index, _)| index))
    }

    /// The rows of each row group.
    pub fn rows(&self) -> &[Rows] {
        &self.rows
    }

    /// True if so many groups were added that they should be merged now: take the [`partitions`](Self::partitions),
    /// [merge](Partition::merge) each of them, on any thread, and [put them back](Self::put_partitions).
    pub fn is_due(&self) -> bool {
        self.merger.is_due()
    }

    /// Takes the groups so far, and distinct values. They have to be put back before others are added.
    pub fn partitions(&mut self) -> Vec<Partition> {
        self.merger.take()
    }

    /// Puts partitions back, in their order.
    pub fn put_partitions(&mut self, partitions: Vec<Partition>) {
        self.merger.put(partitions);
    }

    /// True if some aggregate counts distinct values: take [`distinct_values`](Self::distinct_values) after the last row
    /// group, [count](DistinctPartition::counts) each of them, on any thread, and [add the counts](Self::add_counts).
    pub fn counts_distinct(&self) -> bool {
        self.merger.counts_distinct()
    }

    /// Takes the distinct values.
    pub fn distinct_values(&mut self) -> Vec<DistinctPartition> {
        self.merger.distinct_values()
    }

    /// Adds the numbers of distinct values.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn add_counts(&mut self, counts: Vec<DistinctCounts>) -> Result<()> {
        self.merger.add_counts(counts)
    }

    /// Takes all groups: [`groups`](Partition::groups) of each partition, on any thread, are those of the output.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn finish(&mut self) -> Result<Vec<Partition>> {
        self.merger.finish()
    }

    /// Estimated bytes of the rows or groups so far.
    pub fn merged_bytes(&self) -> usize {
        let arrays = self.rows.iter().flat_map(|rows| &rows.columns);
        let of_rows = arrays.map(|array| array.get_array_memory_size());
        of_rows.sum::<usize>() + self.merger.bytes()
    }

    /// The totals of an output without keys.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn totals(&self) -> Result<Vec<Total>> {
        let (_, aggregates) = outputs(&self.pipeline.output)?;
        let all = self.merger.totals();
        let totals = aggregates.iter().enumerate().map(|(index, _)| {
            let totals = all.get(index);
            let count = totals.and_then(|totals| totals.counts.first().copied());
            let count = count.unwrap_or_default();
            let value = totals.and_then(|totals| match &totals.values {
                Numbers::Int(values) => values.first().map(|value| Number::Int(*value)),
                Numbers::Float(values) => values.first().map(|value| Number::Float(*value)),
                Numbers::Text(_) => None,
            });
            let value = match aggregates[index] {
                Aggregate::CountRows | Aggregate::Count(_) | Aggregate::CountDistinct(_) => {
                    Some(Number::Int(count.into()))
                }
                _ => value.filter(|_| count > 0),
            };
            Total { count, value }
        });
        Ok(totals.collect())
    }
}

/// A key that is a code as the value of that code.
fn by_value(key: &GroupKey) -> GroupKey {
    match key {
        GroupKey::Code(lookup) => GroupKey::Value(Expr::Id(Code::Lookup(*lookup))),
        key => key.clone(),
    }
}

/// The groups of a row group.
struct RowGroupGroups {
    keys: Vec<KeyType>,
    singles: Vec<bool>,
    part: Part,
    /// The type and the groups of each distinct value.
    distinct: Vec<(KeyType, Part)>,
}

impl RowGroupGroups {
    /// The groups in one part, or in many.
    fn partial(self, ascending: Option<usize>) -> Partial {
        let of_key = |key: usize| KeyRange::of(key, self.keys.get(key), &self.part);
        let range = ascending.and_then(of_key);
        let of_entries = self.keys.iter().map(KeyType::entry_hashes);
        let of_entries: Vec<_> = of_entries.collect();
        let parts = match range {
            Some(_) => vec![self.part],
            None => self.part.in_parts(&of_entries),
        };
        let distinct = self.distinct.into_iter().map(|(of, part)| Distinct {
            of,
            parts: part.in_parts(&of_entries),
        });
        Partial {
            rows: None,
            distinct: distinct.collect(),
            keys: self.keys,
            singles: self.singles,
            parts,
            range,
        }
    }
}

/// The groups with rows.
fn part_of(
    keys: &[Key<'_>],
    numbering: &Numbering,
    counts: Vec<u64>,
    arguments: Vec<Argument>,
) -> Part {
    let with_rows = counts.iter().enumerate();
    let with_rows = with_rows.filter(|(_, rows)| **rows > 0);
    let found: Option<Vec<usize>> =
        (!numbering.is_exact()).then(|| with_rows.map(|(group, _)| group).collect());
    let (mut low, mut high, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
    for (index, key) in keys.iter().enumerate() {
        let some = found.as_deref().unwrap_or_default();
        let words = numbering.words(key, some, index, &mut nulls);
        low.push(words.0);
        high.push(words.1);
    }
    let words = low.into_iter().chain(high).chain([nulls]).collect();
    let totals = arguments.into_iter();
    let totals = totals.map(|of| of.accumulator.totals(found.as_deref()));
    let totals = totals.collect();
    let rows = match &found {
        Some(found) => found.iter().map(|group| counts[*group]).collect(),
        None => counts,
    };
    Part {
        rows,
        words,
        totals,
    }
}

/// Groups by all keys and by a value, whose distinct values are counted.
struct DistinctValues<'a> {
    keys: Vec<Key<'a>>,
    /// The value.
    value: Register,
    numbering: Numbering,
    /// 1 for each group that occurs; not used if all do.
    occurs: Vec<u64>,
}

impl DistinctValues<'_> {
    /// Numbers the groups of a batch's rows that pass and have a value.
    fn add(
        &mut self,
        batch: Batch<'_>,
        mask: &Mask,
        vectors: &[Vector],
        readers: &[Reader<'_>],
    ) -> Result<()> {
        let mask = both(Some(mask), vectors[self.value].valid.as_ref()).unwrap_or(ALL);
        let mut numbers = [0u32; VECTOR_LEN];
        let numbering = &mut self.numbering;
        numbering.number(&self.keys, batch, &mask, vectors, readers, &mut numbers)?;
        if !numbering.is_exact() {
            self.occurs.resize(numbering.len(), 0);
            for_each_row(&mask, |row| self.occurs[numbers[row] as usize] = 1);
        }
        Ok(())
    }

    /// The type of the value, and the groups.
    fn groups(self) -> Result<(KeyType, Part)> {
        let missing = || Error::Internal("a distinct value that is no key".into());
        let of = self.keys.last().ok_or_else(missing)?.key_type()?;
        let occurs = match self.numbering.is_exact() {
            true => vec![1; self.numbering.len()],
            false => self.occurs,
        };
        Ok((of, part_of(&self.keys, &self.numbering, occurs, vec![])))
    }
}

/// The value of each row that an accumulator adds.
struct Argument {
    /// False if the accumulator gets its values when groups are merged.
    is_added: bool,
    /// `None` if values are not read.
    value: Option<Register>,
    /// If set, only rows for which it is true are added.
    condition: Option<Register>,
    accumulator: Accumulator,
}

/// The condition and the value of an expression that is null unless the condition is true.
fn only_when(expr: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::Op(Op::Case, operands) = expr else {
        return None;
    };
    match &operands[..] {
        [when, then] | [when, then, Expr::Literal(Literal::Null(_))] => Some((when, then)),
        _ => None,
    }
}

/// The aggregation of a row group's selected rows.
struct Run<'a> {
    program: Program<'a>,
    combiner: Combiner<'a>,
    selection: &'a Selection,
    /// The most combinations of rows and matches.
    most: usize,
}

impl<'a> Run<'a> {
    /// The groups, which may come several times if they `may_repeat`.
    fn aggregated(
        mut self,
        keys: &[GroupKey],
        aggregates: &[Aggregate],
        may_repeat: bool,
        memory: &Memory<'_>,
    ) -> Result<RowGroupGroups> {
        let most_rows = match self.combiner.is_empty() {
            true => self.selection.count(),
            false => self.most,
        };
        let mut distinct = Vec::new();
        for aggregate in aggregates {
            if let Aggregate::CountDistinct(value) = aggregate {
                distinct.push(self.distinct_values(keys, value, most_rows)?);
            }
        }
        let (keys, combinations) = self.keys(keys)?;
        let mut numbering = Numbering::new(combinations);
        let mut arguments = Vec::new();
        for aggregate in aggregates {
            arguments.push(self.argument(aggregate, numbering.len())?);
        }
        // sums of floats would depend on it
        let is_exact = |of: &Argument| of.accumulator.is_exact();
        if may_repeat && arguments.iter().all(is_exact) {
            numbering.let_repeat(most_rows);
        }
        let distinct_values = &mut distinct[..];
        let counts = self.accumulate(
            &keys,
            &mut numbering,
            &mut arguments,
            distinct_values,
            memory,
        )?;
        let singles = arguments.iter().map(|of| of.accumulator.is_single());
        let singles = singles.collect();
        let part = part_of(&keys, &numbering, counts, arguments);
        Ok(RowGroupGroups {
            keys: keys.iter().map(Key::key_type).collect::<Result<_>>()?,
            singles,
            part,
            distinct: distinct
                .into_iter()
                .map(DistinctValues::groups)
                .collect::<Result<_>>()?,
        })
    }

    /// The keys, and the number of their combinations.
    fn keys(&mut self, keys: &[GroupKey]) -> Result<(Vec<Key<'a>>, Combinations)> {
        for key in keys {
            if let GroupKey::Value(expr) = key {
                add_tests(&mut self.program, expr, self.selection)?;
            }
        }
        let readers = self.program.row_group().readers;
        let few = Numbering::few(self.selection.count());
        Key::all(keys, readers, &mut self.program, few)
    }

    /// Groups by all keys and by a value, of at most `rows` rows.
    fn distinct_values(
        &mut self,
        keys: &[GroupKey],
        value: &Expr,
        rows: usize,
    ) -> Result<DistinctValues<'a>> {
        let value = std::iter::once(GroupKey::Value(value.clone()));
        let keys: Vec<GroupKey> = keys.iter().cloned().chain(value).collect();
        let (keys, combinations) = self.keys(&keys)?;
        let mut numbering = Numbering::new(combinations);
        numbering.let_repeat(rows);
        let missing = || Error::Internal("a distinct value that is no value".into());
        let value = keys.last().and_then(Key::register).ok_or_else(missing)?;
        Ok(DistinctValues {
            keys,
            value,
            numbering,
            occurs: Vec::new(),
        })
    }

    /// An aggregate's argument, and its accumulator for `groups` groups.
    fn argument(&mut self, aggregate: &Aggregate, groups: usize) -> Result<Argument> {
        let program = &mut self.program;
        let accumulator = |domain, is_nullable| {
            Accumulator::new(aggregate, domain, is_nullable, groups, self.most)
        };
        let Some(expr) = aggregate.argument() else {
            return Ok(Argument {
                is_added: true,
                value: None,
                condition: None,
                accumulator: accumulator(None, false)?,
            });
        };
        if let Aggregate::CountDistinct(_) = aggregate {
            return Ok(Argument {
                is_added: false,
                value: None,
                condition: None,
                accumulator: accumulator(None, true)?,
            });
        }
        if let (Aggregate::Count(_), Expr::Column(column)) = (aggregate, expr) {
            // values are not read
            let missing = || Error::Internal(format!("there is no column {column}"));
            let readers = program.row_group().readers;
            let is_nullable = readers.get(*column).ok_or_else(missing)?.is_nullable();
            let is_null = Expr::is_null(Expr::Column(*column));
            let condition = is_nullable.then(|| program.add(&!is_null)).transpose()?;
            return Ok(Argument {
                is_added: true,
                value: None,
                condition,
                accumulator: accumulator(None, is_nullable)?,
            });
        }
        add_tests(program, expr, self.selection)?;
        let (condition, expr) = match only_when(expr) {
            Some((condition, value)) => (Some(program.add(condition)?), value),
            None => (None, expr),
        };
        let mut value = program.add(expr)?;
        let is_count = matches!(aggregate, Aggregate::Count(_));
        if !is_count && program.domain(value).of == Type::Bool {
            value = program.add(&Expr::cast(expr.clone(), Type::I8))?;
        }
        let is_nullable = condition.is_some() || program.is_nullable(value);
        Ok(Argument {
            is_added: true,
            value: Some(value),
            condition,
            accumulator: accumulator(Some(program.domain(value)), is_nullable)?,
        })
    }

    /// Adds the selected rows, combined with their matches, to the accumulators. Returns the number of rows of each group.
    fn accumulate(
        &mut self,
        keys: &[Key<'_>],
        numbering: &mut Numbering,
        arguments: &mut [Argument],
        distinct: &mut [DistinctValues<'_>],
        memory: &Memory<'_>,
    ) -> Result<Vec<u64>> {
        let Self {
            program,
            combiner,
            selection,
            ..
        } = self;
        let mut counts = vec![0u64; numbering.len()];
        if let ([], [rows]) = (keys, &mut counts[..])
            && program.is_empty()
            && combiner.is_empty()
            && distinct.is_empty()
        {
            *rows = selection.count() as u64;
            return Ok(counts);
        }
        let readers = program.row_group().readers;
        let mut vectors = program.vectors();
        let mut numbers = [0u32; VECTOR_LEN];
        let none = Vector::new(Kind::Bool);
        let of_groups = arguments.iter().map(|of| of.accumulator.bytes_per_group());
        let bytes_per_group = of_groups.sum::<usize>() + size_of::<u64>();
        let needs_rows =
            !numbering.is_exact() || arguments.iter().any(|of| of.accumulator.counts_rows());
        let mut masks = Vec::new();
        let mut add = |batch: Batch<'_>, mask: &Mask| {
            program.run(batch, mask, &mut vectors)?;
            numbering.number(keys, batch, mask, &vectors, readers, &mut numbers)?;
            for values in distinct.iter_mut() {
                values.add(batch, mask, &vectors, readers)?;
            }
            let groups = numbering.len();
            let of_values = distinct.iter().map(|values| values.numbering.len());
            if of_values.fold(groups, usize::max) >= MOST_GROUPS {
                return Err(Error::Unsupported("2^32 groups".into()));
            }
            let of_values = distinct.iter().map(|values| values.numbering.bytes());
            let bytes = numbering.bytes() + groups * bytes_per_group + of_values.sum::<usize>();
            if bytes > memory.reserved() {
                // vectors of accumulators double
                memory.reserve(bytes * 2)?;
            }
            if groups > counts.len() {
                // else a group's rows are not counted, but there are some
                counts.resize(groups, if needs_rows { 0 } else { 1 });
                let all = arguments.iter_mut();
                all.for_each(|of| of.accumulator.grow(groups));
            }
            let rows = match groups <= MOST_MASKS {
                true => {
                    masks.resize(groups, [0; VECTOR_LEN / 64]);
                    by_group(&numbers, mask, &mut masks);
                    accumulator::Rows::Masks(&masks)
                }
                false => accumulator::Rows::Numbers(mask, &numbers),
            };
            match rows {
                _ if !needs_rows => {}
                accumulator::Rows::Masks(masks) => {
                    let pairs = counts.iter_mut().zip(masks);
                    pairs.for_each(|(rows, mask)| *rows += count(mask) as u64);
                }
                accumulator::Rows::Numbers(mask, groups) => {
                    for_each_row(mask, |row| counts[groups[row] as usize] += 1);
                }
            }
            for Argument {
                value,
                condition,
                accumulator,
                ..
            } in arguments.iter_mut().filter(|of| of.is_added)
            {
                let met = condition.map(|condition| is_true(&vectors[condition]));
                let value = value.map_or(&none, |value| &vectors[value]);
                accumulator.add(value, met.transpose()?.as_ref(), &rows)?;
            }
            Ok(())
        };
        for_each_batch(selection, |batch, mask| combiner.add(batch, mask, &mut add))?;
        combiner.finish(&mut add)?;
        Ok(counts)
    }
}
