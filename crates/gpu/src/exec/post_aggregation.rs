//! Computations over groups on the device, before they are copied back: other kernels run over the group table as
//! columns.
//!
//! This copies nothing. A front in the table's memory declares each accumulator's words to be the values of a column.
//! The rows of these columns are the entries of the table, including empty ones.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use vectile_kernels::{DeviceChunk, Unwritten, UnwrittenValues};

use super::accumulator::totals_of;
use super::execution::{Execution, Prepared};
use super::group_table::{GroupTable, GroupTableLayout, NUMBERS_BYTES};
use super::groups::bytes_of_group;
use super::join_build::{Build, Built};
use super::rows::{ColumnOnDevice, width_of};
use crate::error::{Error, Result};
use crate::kernel::{Accumulator, Grouping, GroupsPlan, OutputPlan, Strategy};
use crate::runtime::{Batch, DeviceBuffer, Engine, Group, Resident};
use vectile_pipeline::{
    Aggregate, Arithmetic, Bounds, Comparison, Expr, Filter, GroupColumn, GroupKey, GroupTotals,
    Groups, Literal, NestedAggregation, Numbers, Output, Pipeline, PostAggregation, TopK, Type,
    parallel,
};

/// Numbers of buckets of entries, and the largest limit of a top-k query for which each is used. The first group of
/// each bucket bounds the first groups of all. Only the few groups of a thread have minima and maxima of 128 bits.
const BUCKETS: [(u64, usize); 2] = [(4096, 1024), (16, 12)];

/// A group table as columns.
pub(super) struct Columns<'a> {
    prepared: &'a Prepared,
    pub layout: &'a GroupTableLayout,
    types: Vec<DataType>,
    batch: Batch,
    /// The group number of a row, or the number of each part of its key; and which digits it has.
    numbers: Vec<(Expr, Range<usize>)>,
}

/// A column that a table's words are declared to be.
struct Declared {
    chunk: DeviceChunk,
    /// Offset of the words in the table's memory; `None` for row numbers, whose words are part of the chunk.
    words_at: Option<usize>,
}

/// Rows that are copied back and read at a time: few enough for a core's cache, and for little host memory.
const ROWS_PER_COPY: usize = 1 << 16;
const WORD_BYTES: usize = 8;

/// Rows of columns, copied back.
struct CopiedRows {
    host: DeviceBuffer,
    /// For each column, the bytes of its values and the width of one.
    columns: Vec<(Range<usize>, usize)>,
}

/// Indices of columns: row numbers, then accumulators, then group numbers if they differ from row numbers.
const ROW: usize = 0;
const FIRST: usize = 1;

impl Execution {
    /// The groups of a table that `post_aggregation` selects, perhaps in parts; all of them if it is `None`.
    pub(super) fn on_device(
        &mut self,
        prepared: &Prepared,
        table: &GroupTable,
        post_aggregation: Option<&PostAggregation>,
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        let columns = self.columns(prepared, table)?;
        let nothing = PostAggregation::default();
        let post_aggregation = post_aggregation.unwrap_or(&nothing);
        let mut passing = vec![columns.has_rows()];
        for condition in &post_aggregation.conditions {
            passing.push(columns.over(condition, &post_aggregation.columns)?);
        }
        if let Some(first) = &post_aggregation.top_k {
            let by = columns.over(&first.by, &post_aggregation.columns)?;
            passing.extend(self.bound_of_first(&columns, &passing, &by, first)?);
        }
        match &post_aggregation.nested {
            Some(nested) => {
                let known = &post_aggregation.columns;
                let groups = self.aggregated(&columns, &passing, nested, known, reserve)?;
                Ok(vec![groups])
            }
            None => self.passing_groups(&columns, &passing, reserve),
        }
    }

    /// Builds key tables of the groups of a batch that holds all rows; `None` if keys that must be unique are not.
    /// Their columns are `rows`, expressions over the columns of groups that `post_aggregation` names.
    ///
    /// # Errors
    ///
    /// As [`Execution::build`] and [`Execution::group_wanted`].
    pub fn build_from_groups(
        &mut self,
        batch: &Batch,
        post_aggregation: &PostAggregation,
        rows: &[Expr],
        tables: &[Build],
    ) -> Result<Option<Vec<Built>>> {
        self.watch(|this| {
            let (prepared, table) = this.all_groups(batch)?;
            let columns = this.columns(&prepared, &table)?;
            let mut passing = vec![columns.has_rows()];
            for condition in &post_aggregation.conditions {
                passing.push(columns.over(condition, &post_aggregation.columns)?);
            }
            let rows = rows.iter();
            let rows = rows.map(|row| columns.over(row, &post_aggregation.columns));
            let output = Output::Rows(rows.collect::<Result<_>>()?);
            let rows = this.then(&columns, &passing, output, |next, batch| {
                next.rows_on_device(batch, |_| Ok(()))
            })?;
            this.tables_of(&rows, tables)
        })
    }

    /// Declares a table's words as columns.
    pub(super) fn columns<'a>(
        &mut self,
        prepared: &'a Prepared,
        table: &'a GroupTable,
    ) -> Result<Columns<'a>> {
        let OutputPlan::Groups(plan) = &prepared.plan.output else {
            return Err(Error::Internal("no groups".into()));
        };
        let layout = &table.layout;
        let grouping = prepared.bindings.grouping.as_ref();
        let digits = grouping.map_or(vec![], Grouping::numbers);
        let row_numbers = DeviceChunk::of_row_numbers(&DataType::Int64, layout.entries, 0)?;
        let mut declared = vec![Declared {
            chunk: row_numbers,
            words_at: None,
        }];
        declared.extend(self.accumulator_columns(prepared, plan, layout)?);
        let number_at = |column| by_constant(Arithmetic::Subtract, Expr::Column(column), 1);
        let parts = layout.accumulators.key_parts();
        let mut numbers: Vec<Expr> = parts.map(|part| number_at(FIRST + part)).collect();
        if numbers.is_empty() {
            numbers.push(match plan.strategy {
                Strategy::Hashed => number_at(declared.len()),
                _ => Expr::Column(ROW),
            });
            if plan.strategy == Strategy::Hashed {
                let most = grouping.map_or(0, |of| of.groups);
                declared.push(Declared {
                    chunk: unwritten(&DataType::Int64, layout.entries, numbers_to(most))?,
                    words_at: Some(layout.numbers),
                });
            }
        }
        let group = Group {
            rows: layout.entries,
            columns: self.write_fronts(table, &declared)?,
        };
        let declared = declared.iter();
        Ok(Columns {
            prepared,
            layout,
            types: declared
                .map(|column| column.chunk.info().data_type.clone())
                .collect(),
            batch: Batch::of(&[group])?,
            numbers: numbers.into_iter().zip(digits).collect(),
        })
    }

    /// Declares the words of each accumulator as a column, with bounds of its values.
    fn accumulator_columns(
        &self,
        prepared: &Prepared,
        plan: &GroupsPlan,
        layout: &GroupTableLayout,
    ) -> Result<Vec<Declared>> {
        let words = (i64::MIN.into(), i64::MAX.into());
        let arguments = plan.rows.exprs.get(plan.key_values + plan.conditions..);
        let times = self.pipeline.most_combinations();
        let bindings = &prepared.bindings;
        let parts = bindings.grouping.iter().flat_map(|of| &of.parts);
        let mut parts = parts.map(|part| {
            let counts = bindings.digits()[part.clone()].iter().map(|of| of.count);
            counts.fold(1, u64::saturating_mul)
        });
        let mut declared = vec![];
        for (index, added) in layout.accumulators.all.iter().enumerate() {
            let argument = added.argument.and_then(|argument| arguments?.get(argument));
            let bounds = argument.map_or((i128::MIN, i128::MAX), |argument| {
                argument.bounds.of_sum(times)
            });
            let (low, high) = match added.accumulator {
                Accumulator::Count { .. } | Accumulator::DistinctCount => {
                    let (low, high) = Bounds(1, 1).of_sum(times);
                    (low, high.min(words.1))
                }
                Accumulator::Sum { wide: true } => bounds,
                Accumulator::Sum { wide: false } => (bounds.0.max(words.0), bounds.1.min(words.1)),
                _ => words,
            };
            let of = type_of(added.accumulator);
            let values = match of {
                DataType::Float64 => UnwrittenValues::Floats,
                _ if added.accumulator == Accumulator::KeyPart => {
                    numbers_to(parts.next().unwrap_or(u64::MAX))
                }
                _ => UnwrittenValues::Plain(low, high),
            };
            declared.push(Declared {
                chunk: unwritten(&of, layout.entries, values)?,
                words_at: Some(layout.column(index).0),
            });
        }
        Ok(declared)
    }

    /// Writes the fronts of columns to the table's memory, and returns the columns as residents of it. Row numbers, the
    /// first column, are at its start; the fronts of the others are right before the flags.
    fn write_fronts(
        &self,
        table: &GroupTable,
        declared: &[Declared],
    ) -> Result<Vec<Arc<Resident>>> {
        let layout = &table.layout;
        let front_bytes = GroupTableLayout::front_bytes(layout.entries);
        let first = layout.flags - declared.len() * front_bytes;
        let host_bytes = declared.len() * front_bytes + NUMBERS_BYTES;
        let mut host = self.engine.host_pool().take(host_bytes)?;
        let mut of_host = host.as_mut_slice();
        let mut copies = vec![];
        let mut residents = vec![];
        for (index, Declared { chunk, words_at }) in declared.iter().enumerate() {
            let at = match index {
                ROW => 0,
                _ => first + index * front_bytes,
            };
            let (bytes, fits) = match words_at {
                None => {
                    let fits = chunk.info().bytes <= first + front_bytes;
                    (chunk.front_bytes() + chunk.body_bytes(), fits)
                }
                Some(_) => (chunk.front_bytes(), chunk.front_bytes() <= front_bytes),
            };
            let own = of_host.split_off_mut(..bytes).filter(|_| fits);
            let own = own.ok_or_else(|| Error::Unsupported("a table of too many groups".into()))?;
            match words_at {
                None => {
                    let (front, body) = own.split_at_mut(chunk.front_bytes());
                    chunk.write_front(front, front.len())?;
                    chunk.write_body(body);
                }
                Some(words_at) => chunk.write_front(own, words_at - at)?,
            }
            copies.push((table.memory.address() + at as u64, &*own));
            let info = Arc::new(chunk.info().clone());
            let memory = Arc::clone(&table.memory);
            residents.push(Resident::in_memory(memory, at as u64, info));
        }
        let mut context = self.engine.stream_context()?;
        context.finish(|stream| {
            for (to, front) in &copies {
                // SAFETY: the table has room for fronts before its flags; both live until `finish` is done.
                unsafe { stream.copy_in(*to, front.as_ptr(), front.len()) }?;
            }
            Ok(())
        })?;
        self.engine.give_back(context);
        Ok(residents)
    }

    /// Runs a pipeline over the columns, and adds its statistics.
    pub(super) fn then<T>(
        &mut self,
        columns: &Columns<'_>,
        passing: &[Expr],
        output: Output,
        work: impl FnOnce(&mut Self, &Batch) -> Result<T>,
    ) -> Result<T> {
        let passing = passing.iter().cloned().map(Filter::Expr);
        let pipeline = Pipeline {
            columns: columns.types.clone(),
            lookups: vec![],
            matches: vec![],
            filter: Filter::And(passing.collect()),
            output,
        };
        let mut next = self.next(Arc::new(pipeline));
        next.most_groups = self.most_groups;
        let done = work(&mut next, &columns.batch);
        let own = next.statistics();
        self.statistics += own;
        done
    }

    /// The groups that pass, perhaps in parts.
    fn passing_groups(
        &mut self,
        columns: &Columns<'_>,
        passing: &[Expr],
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Groups>> {
        let accumulators = &columns.layout.accumulators;
        // the parts of the key, which come last, are among the numbers
        let values = accumulators.all.len() - accumulators.key_parts().count();
        let values = (0..values).map(|index| Expr::Column(FIRST + index));
        let numbers = columns.numbers.iter().map(|(number, _)| number.clone());
        let exprs = numbers.chain(values);
        let output = Output::Rows(exprs.collect());
        let (most, keys) = (self.most_groups, columns.prepared.bindings.digits().len());
        let group_bytes =
            bytes_of_group(accumulators.results.len(), keys) + 8 * accumulators.words().1;
        let mut allow = |rows: usize| match rows as u64 > most {
            true => Err(Error::Unsupported(format!(
                "{rows} groups, of at most {most}"
            ))),
            false => reserve(rows.saturating_mul(group_bytes)),
        };
        let rows = self.then(columns, passing, output, |next, batch| {
            next.rows_on_device(batch, &mut allow)
        })?;
        let first = columns.numbers.len();
        if rows.columns.len() < first {
            return Err(Error::Internal("no columns of a table".into()));
        }
        let threads = self.threads_for_parts(rows.rows);
        let each = match self.has_parts {
            true => rows.rows.div_ceil(threads).clamp(1, ROWS_PER_COPY),
            false => rows.rows.max(1),
        };
        let starts = (0..rows.rows.max(1)).step_by(each);
        let ranges = starts.map(|start| start..rows.rows.min(start + each));
        let parts = parallel::map(threads, ranges.collect(), |range| {
            self.check_cancelled()?;
            let copied = CopiedRows::of(&self.engine, &rows.columns, range.clone())?;
            let numbers = (0..first).map(|column| copied.words(column, 0));
            Ok(Groups {
                count: range.len(),
                totals: totals_of(accumulators, |at, word| copied.words(first + at, word)),
                keys: self.keys(columns.prepared, numbers.collect())?,
            })
        });
        let row_bytes: usize = rows.columns.iter().map(|column| width_of(column.of)).sum();
        self.statistics.bytes_returned += (rows.rows * row_bytes) as u64;
        parts.into_iter().collect()
    }

    /// Aggregates the groups that pass.
    fn aggregated(
        &mut self,
        columns: &Columns<'_>,
        passing: &[Expr],
        nested: &NestedAggregation,
        known: &[GroupColumn],
        reserve: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Groups> {
        let keys = nested.keys.iter();
        let keys = keys.map(|key| Ok(GroupKey::Value(columns.over(key, known)?)));
        let aggregates = nested.aggregates.iter();
        let aggregates =
            aggregates.map(|aggregate| aggregate.over(&mut |value| columns.over(value, known)));
        let keys = keys.collect::<Result<_>>()?;
        let output = Output::Groups(keys, aggregates.collect::<Result<_>>()?);
        let mut groups = self.then(columns, passing, output, |next, batch| {
            next.group(batch, &mut *reserve)
        })?;
        let Some(mut groups) = groups.pop().filter(|_| groups.is_empty()) else {
            return Err(Error::Unsupported("groups of several launches".into()));
        };
        for (key, expr) in groups.keys.iter_mut().zip(&nested.keys) {
            if let Expr::Column(column) = expr
                && let Some(GroupColumn::Key(key_index, _)) = known.get(*column)
            {
                *key = self.as_key(columns, *key_index, key)?;
            }
        }
        Ok(groups)
    }

    /// Converts values of [`Columns::digit`] to the key with that index.
    pub(super) fn as_key(
        &self,
        columns: &Columns<'_>,
        key_index: usize,
        values: &ArrayRef,
    ) -> Result<ArrayRef> {
        let digits = columns.prepared.bindings.digits();
        let digit = digits.get(key_index);
        let digit = digit.ok_or_else(|| Error::Internal("no such key".into()))?;
        let wide = arrow::compute::cast(values, &DataType::Int64);
        let wide = wide.map_err(vectile_encodings::Error::from)?;
        let values = wide.as_primitive::<Int64Type>().iter();
        let digits: Vec<Option<u64>> = values
            .map(|value| value.map(|value| (i128::from(value) - digit.first) as u64))
            .collect();
        self.key(columns.prepared, key_index, &digits)
    }

    /// A condition that all of the first groups satisfy, and some others do not. It compares with the k-th best of the
    /// first groups of buckets: the last group of the result cannot come after it. `None` if there is no such
    /// condition.
    fn bound_of_first(
        &mut self,
        columns: &Columns<'_>,
        passing: &[Expr],
        by: &Expr,
        first: &TopK,
    ) -> Result<Option<Expr>> {
        for (buckets, most) in BUCKETS {
            if !(1..=most).contains(&first.count) {
                continue;
            }
            match self.best_of(buckets, columns, passing, by, first) {
                Err(Error::Unsupported(_)) => continue,
                bests => {
                    let last = bests?.get(first.count - 1).copied();
                    return Ok(last.map(|last| comes_first(by, last, first)));
                }
            }
        }
        Ok(None)
    }

    /// The best value of each bucket, in the result's order.
    fn best_of(
        &mut self,
        buckets: u64,
        columns: &Columns<'_>,
        passing: &[Expr],
        by: &Expr,
        first: &TopK,
    ) -> Result<Vec<Literal>> {
        let bucket = by_constant(Arithmetic::Remainder, Expr::Column(ROW), buckets);
        let best = match first.descending {
            true => Aggregate::Max(by.clone()),
            false => Aggregate::Min(by.clone()),
        };
        let output = Output::Groups(vec![GroupKey::Value(bucket)], vec![best]);
        let groups = self.then(columns, passing, output, |next, batch| {
            next.group(batch, |_| Ok(()))
        })?;
        let of = first.of;
        let mut bests: Vec<Literal> = vec![];
        for GroupTotals { counts, values } in groups.iter().flat_map(|groups| &groups.totals) {
            let rows = (0..counts.len()).filter(|row| counts[*row] > 0);
            bests.extend(rows.map(|row| match values {
                Numbers::Int(all) => Literal::Int(all[row], of),
                Numbers::Float(all) if of == Type::F32 => Literal::F32(all[row] as f32),
                Numbers::Float(all) => Literal::F64(all[row]),
                Numbers::Text(_) => Literal::Null(of),
            }));
        }
        bests.sort_by(|a, b| match first.descending {
            true => compare(*b, *a),
            false => compare(*a, *b),
        });
        Ok(bests)
    }
}

/// True if a value does not come after `last`.
fn comes_first(by: &Expr, last: Literal, first: &TopK) -> Expr {
    let comparison = match first.descending {
        true => Comparison::GreaterOrEqual,
        false => Comparison::LessOrEqual,
    };
    let last = Expr::Literal(last);
    let is_first = Expr::compare(comparison, by.clone(), last);
    match first.nulls_first {
        true => Expr::or(vec![is_first, Expr::is_null(by.clone())]),
        false => is_first,
    }
}

fn compare(a: Literal, b: Literal) -> Ordering {
    match (a, b) {
        (Literal::Int(a, _), Literal::Int(b, _)) => a.cmp(&b),
        (Literal::F32(a), Literal::F32(b)) => a.total_cmp(&b),
        (Literal::F64(a), Literal::F64(b)) => a.total_cmp(&b),
        _ => Ordering::Equal,
    }
}

impl Columns<'_> {
    /// True if an entry has a group.
    pub(super) fn has_rows(&self) -> Expr {
        Expr::compare(Comparison::NotEqual, Expr::Column(FIRST), int(0))
    }

    /// Rewrites an expression over columns of groups to one over columns of the table.
    fn over(&self, expr: &Expr, known: &[GroupColumn]) -> Result<Expr> {
        expr.replaced(&mut |part| {
            let Expr::Column(column) = part else {
                return Ok(None);
            };
            let column = known.get(*column);
            let column = column.ok_or_else(|| Error::Internal("no such column".into()))?;
            self.column(*column).map(Some)
        })
    }

    pub(super) fn column(&self, column: GroupColumn) -> Result<Expr> {
        match column {
            GroupColumn::Key(key_index, of) => Ok(cast(self.digit(key_index, of)?, of)),
            GroupColumn::Count(aggregate) => Ok(self.result(aggregate)?.0),
            GroupColumn::Value(aggregate, of) => {
                let (count, value) = self.result(aggregate)?;
                let value = value.ok_or_else(|| Error::Internal("the value of a count".into()))?;
                let some = Expr::compare(Comparison::Greater, count.clone(), int(0));
                let value = cast(value, of);
                // the first column counts rows, and is never 0 for a group
                Ok(match count == Expr::Column(FIRST) {
                    true => value,
                    false => Expr::case(vec![(some, value)], None),
                })
            }
        }
    }

    /// The key with that index, of a type: its value, or its code.
    fn digit(&self, key_index: usize, data_type: Type) -> Result<Expr> {
        let of = self.prepared.bindings.digits().get(key_index);
        let of = of.ok_or_else(|| Error::Internal("no such key".into()))?;
        let mut numbers = self.numbers.iter();
        let number = numbers.find(|(_, digits)| digits.contains(&key_index));
        let (number, digits) = number.ok_or_else(|| Error::Internal("no such number".into()))?;
        // other values would be those of a signed column of 64 bits
        let is_signed_word = !matches!(data_type, Type::U64 | Type::I128);
        if !is_signed_word && of.first + i128::from(of.count) > i64::MAX.into() {
            return Err(Error::Unsupported(
                "keys that signed numbers of 64 bits do not hold".into(),
            ));
        }
        let stride = self.prepared.bindings.stride(key_index);
        let mut digit = number.clone();
        if stride > 1 {
            digit = by_constant(Arithmetic::Divide, digit, stride);
        }
        if digits.len() > 1 {
            // for the last key, too: the remainder bounds it
            digit = by_constant(Arithmetic::Remainder, digit, of.count);
        }
        let first = i64::try_from(of.first).ok();
        let first = first.ok_or_else(|| Error::Unsupported("keys of more than 64 bits".into()))?;
        let value = match first {
            0 => digit.clone(),
            first => by_constant(Arithmetic::Add, digit.clone(), first),
        };
        if !of.nullable {
            return Ok(value);
        }
        // a number of more than 63 bits is a negative one of the column
        let is_null = Expr::compare(Comparison::Equal, digit, int((of.count - 1) as i64));
        let null = Expr::Literal(Literal::Null(Type::I64));
        Ok(Expr::case(vec![(is_null, null)], Some(value)))
    }

    /// Count and value of an aggregate.
    pub(super) fn result(&self, aggregate: usize) -> Result<(Expr, Option<Expr>)> {
        let accumulators = &self.layout.accumulators;
        let result = accumulators.results.get(aggregate);
        let result = result.ok_or_else(|| Error::Internal("no such aggregate".into()))?;
        let value = result.value.map(|at| {
            let words = Expr::Column(FIRST + at);
            // the order-preserving map of `ordered` in `groups.cuh`
            let raised = |words| by_constant(Arithmetic::Add, words, i64::MIN);
            match accumulators.all[at].accumulator {
                Accumulator::Min(of) | Accumulator::Max(of) if of.is_float() => {
                    Err(Error::Unsupported("extremes of floats in groups".into()))
                }
                Accumulator::Max(_) => Ok(raised(words)),
                Accumulator::Min(_) => {
                    let turned = Expr::arithmetic(Arithmetic::Subtract, int(-1), words);
                    Ok(raised(turned))
                }
                _ => Ok(words),
            }
        });
        Ok((Expr::Column(FIRST + result.count), value.transpose()?))
    }
}

/// Numbers of groups or parts, plus one, in a column of 64 bits.
fn numbers_to(most: u64) -> UnwrittenValues<'static> {
    match i64::try_from(most) {
        Ok(most) => UnwrittenValues::Plain(0, most.into()),
        Err(_) => UnwrittenValues::Plain(i64::MIN.into(), i64::MAX.into()),
    }
}

/// A column of values that kernels have written, or will.
fn unwritten(
    data_type: &DataType,
    rows: usize,
    values: UnwrittenValues<'_>,
) -> Result<DeviceChunk> {
    Ok(DeviceChunk::of_unwritten(Unwritten {
        data_type,
        rows,
        nulls: None,
        values,
        sample: None,
    })?)
}

/// The Arrow type of an accumulator's words.
fn type_of(accumulator: Accumulator) -> DataType {
    match accumulator {
        Accumulator::Sum { wide: true } => DataType::Decimal128(38, 0),
        Accumulator::FloatSum => DataType::Float64,
        _ => DataType::Int64,
    }
}

fn cast(value: Expr, of: Type) -> Expr {
    Expr::cast(value, of)
}

fn int(value: impl Into<i128>) -> Expr {
    Expr::Literal(Literal::Int(value.into(), Type::I64))
}

fn by_constant(operation: Arithmetic, value: Expr, constant: impl Into<i128>) -> Expr {
    Expr::arithmetic(operation, value, int(constant))
}

impl CopiedRows {
    /// Copies rows of columns that are not null.
    fn of(engine: &Engine, columns: &[ColumnOnDevice], rows: Range<usize>) -> Result<Self> {
        let mut end = 0;
        let copied = columns.iter().map(|column| {
            let (start, width) = (end, width_of(column.of));
            end += (width * rows.len()).next_multiple_of(WORD_BYTES);
            (start..end, width)
        });
        let copied = copied.collect();
        let mut host = engine.host_pool().take(end)?;
        let mut to = host.as_mut_slice().as_mut_ptr();
        let mut context = engine.stream_context()?;
        context.finish(|stream| {
            for column in columns {
                let width = width_of(column.of);
                let from = column.memory.address() + (rows.start * width) as u64;
                let len = rows.len() * width;
                if len == 0 {
                    continue;
                }
                // SAFETY: the column has these rows and `host` has room for those of all columns, one after the other;
                // both live until `finish` is done.
                unsafe {
                    stream.copy_out(to, from, len)?;
                    to = to.add(len.next_multiple_of(WORD_BYTES));
                }
            }
            Ok(())
        })?;
        engine.give_back(context);
        Ok(Self {
            host,
            columns: copied,
        })
    }

    /// The low (0) or high (1) words of a column, which has values of one or two words.
    fn words(&self, column: usize, word: usize) -> Vec<u64> {
        let Some((bytes, width)) = self.columns.get(column) else {
            return vec![];
        };
        let bytes = self.host.as_slice().get(bytes.clone());
        let bytes = bytes.unwrap_or_default();
        let (words, _) = bytes.as_chunks::<WORD_BYTES>();
        let words = words.iter().skip(word).step_by((width / WORD_BYTES).max(1));
        words.map(|word| u64::from_le_bytes(*word)).collect()
    }
}
