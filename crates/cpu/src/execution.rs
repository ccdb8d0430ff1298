//! Runs a pipeline over row groups.

use std::sync::Arc;

use vectile_encodings::{Column, Selection, VECTOR_LEN};
use vectile_pipeline::{
    Aggregate, Code, Error, Expr, GroupKey, Groups, Literal, Lookup, Number, Numbers, Output,
    Pipeline, Result, Rows, Total, Type,
};

use crate::accumulator::{self, Accumulator};
use crate::filter::{add_tests, apply};
use crate::group::Key;
use crate::masked::{MOST_MASKS, by_group};
use crate::merge::Merger;
use crate::partial::Partial;
use crate::program::{Program, Register};
use crate::reader::Reader;
use crate::rows::rows_of;
use crate::vector::{Kind, Vector, count, for_each_row};

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

    /// The most bytes that [`run`](Self::run) takes for groups.
    pub fn bytes(pipeline: &Pipeline) -> usize {
        match &pipeline.output {
            Output::Groups(..) => MOST_SLOTS * Accumulator::MOST_BYTES,
            _ => 0,
        }
    }

    /// Computes the rows or aggregates of a row group. `columns` are those of the pipeline, of `rows` rows each.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if no program computes the pipeline over these columns; errors of decoding.
    pub fn run(pipeline: &Pipeline, columns: &[Column], rows: usize) -> Result<Partial> {
        if !pipeline.matches.is_empty() {
            let reason = "matches of duplicate keys, in a program";
            return Err(Error::Unsupported(reason.into()));
        }
        if columns.len() != pipeline.columns.len() {
            let reason = format!("{} columns of {}", columns.len(), pipeline.columns.len());
            return Err(Error::Internal(reason));
        }
        if let Some(other) = columns.iter().find(|column| column.len() != rows) {
            let reason = format!("a column of {} rows, not {rows}", other.len());
            return Err(Error::Internal(reason));
        }
        let readers = columns.iter().map(Reader::new);
        let readers: Vec<Reader<'_>> = readers.collect::<Result<_>>()?;
        let mut selection = Selection::all(0, rows);
        let lookups = &pipeline.lookups[..];
        apply(&pipeline.filter, columns, &readers, lookups, &mut selection)?;
        if let Output::Rows(outputs) = &pipeline.output {
            let rows = rows_of(outputs, lookups, columns, &readers, &selection)?;
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
        if let Some((picked, is_read)) = picked(&keys, aggregates, lookups, columns, &selection)? {
            let readers = readers.iter().zip(&picked).zip(is_read);
            let readers = readers.map(|((reader, rows), is_read)| match is_read {
                true => reader.of_rows(rows),
                false => Reader::new(rows),
            });
            let readers: Vec<Reader<'_>> = readers.collect::<Result<_>>()?;
            let all = Selection::all(0, selection.count());
            return aggregated(&keys, aggregates, lookups, &picked, &readers, &all);
        }
        aggregated(&keys, aggregates, lookups, columns, &readers, &selection)
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
        self.merger.add(aggregates, partial)
    }

    /// The rows of each row group.
    pub fn rows(&self) -> &[Rows] {
        &self.rows
    }

    /// Estimated bytes of the rows or groups so far.
    pub fn merged_bytes(&self) -> usize {
        if let Output::Rows(_) = &self.pipeline.output {
            let arrays = self.rows.iter().flat_map(|rows| &rows.columns);
            return arrays.map(|array| array.get_array_memory_size()).sum();
        }
        let width = match &self.pipeline.output {
            Output::Groups(keys, aggregates) => 4 * keys.len() + 2 * aggregates.len() + 4,
            _ => 0,
        };
        self.merger.len() * width * size_of::<i128>()
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
            });
            let value = match aggregates[index] {
                Aggregate::CountRows | Aggregate::Count(_) => Some(Number::Int(count.into())),
                _ => value.filter(|_| count > 0),
            };
            Total { count, value }
        });
        Ok(totals.collect())
    }

    /// The groups.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn groups(&self) -> Result<Groups> {
        self.merger.groups()
    }
}

/// A key that is a code as the value of that code.
fn by_value(key: &GroupKey) -> GroupKey {
    match key {
        GroupKey::Code(lookup) => GroupKey::Value(Expr::Id(Code::Lookup(*lookup))),
        key => key.clone(),
    }
}

/// Aggregates the selected rows.
fn aggregated(
    keys: &[GroupKey],
    aggregates: &[Aggregate],
    lookups: &[Lookup],
    columns: &[Column],
    readers: &[Reader<'_>],
    selection: &Selection,
) -> Result<Partial> {
    let rows = selection.rows();
    let mut program = Program::new(readers, lookups);
    for key in keys {
        if let GroupKey::Value(expr) = key {
            add_tests(&mut program, expr, columns, selection)?;
        }
    }
    let keys = Key::all(keys, readers, &mut program)?;
    let groups = Key::combinations(&keys);
    if groups > MOST_SLOTS.min(FEW_GROUPS.max(rows)) / aggregates.len().max(1) {
        let reason = format!("{groups} groups of {rows} rows");
        return Err(Error::Unsupported(reason));
    }
    let mut arguments = Vec::new();
    for aggregate in aggregates {
        let (register, domain, is_nullable) = match aggregate.argument() {
            None => (None, None, false),
            // values are not read
            Some(Expr::Column(column)) if matches!(aggregate, Aggregate::Count(_)) => {
                let missing = || Error::Internal(format!("there is no column {column}"));
                let reader = readers.get(*column).ok_or_else(missing)?;
                match reader.is_nullable() {
                    true => {
                        let is_null = Expr::is_null(Expr::Column(*column));
                        let valid = Expr::case(vec![(!is_null, int(1))], None);
                        let register = program.add(&valid)?;
                        (Some(register), Some(program.domain(register)), true)
                    }
                    false => (None, None, false),
                }
            }
            Some(expr) => {
                add_tests(&mut program, expr, columns, selection)?;
                let mut register = program.add(expr)?;
                let is_count = matches!(aggregate, Aggregate::Count(_));
                if !is_count && program.domain(register).of == Type::Bool {
                    register = program.add(&Expr::cast(expr.clone(), Type::I8))?;
                }
                let is_nullable = program.is_nullable(register);
                (Some(register), Some(program.domain(register)), is_nullable)
            }
        };
        let accumulator = Accumulator::new(aggregate, domain, is_nullable, groups, rows)?;
        arguments.push((register, accumulator));
    }
    let counts = accumulate(&program, selection, &keys, readers, &mut arguments, groups)?;
    let with_rows = counts.iter().enumerate();
    let with_rows = with_rows.filter(|(_, rows)| **rows > 0);
    let found: Vec<usize> = with_rows.map(|(group, _)| group).collect();
    let rows: Vec<u64> = found.iter().map(|group| counts[*group]).collect();
    let totals = arguments.iter();
    let totals = totals.map(|(_, accumulator)| accumulator.totals(&found, &rows));
    Ok(Partial {
        rows: None,
        count: found.len(),
        keys: keys.iter().map(|key| key.values(&found)).collect(),
        totals: totals.collect(),
        singles: arguments.iter().map(|(_, of)| of.is_single()).collect(),
    })
}

/// The most accumulators of a row group: groups by aggregates.
const MOST_SLOTS: usize = 1 << 17;

/// A row group may have this many accumulators even if it has fewer rows.
const FEW_GROUPS: usize = 1 << 12;

/// If at most one row of this many is selected, rows are picked before they are computed on.
const PICKED: usize = 8;

/// The selected rows of the columns that an output reads, decoded, if they are few, and which columns these are. Others
/// stay as they are.
fn picked(
    keys: &[GroupKey],
    aggregates: &[Aggregate],
    lookups: &[Lookup],
    columns: &[Column],
    selection: &Selection,
) -> Result<Option<(Vec<Column>, Vec<bool>)>> {
    if selection.count() * PICKED > selection.rows() {
        return Ok(None);
    }
    let mut is_read = vec![false; columns.len()];
    for key in keys {
        match key {
            GroupKey::Value(expr) => mark_columns(expr, lookups, &mut is_read),
            // codes would be decoded
            GroupKey::DictionaryValue(_) | GroupKey::Code(_) => return Ok(None),
        }
    }
    let arguments = aggregates.iter().filter_map(Aggregate::argument);
    arguments.for_each(|argument| mark_columns(argument, lookups, &mut is_read));
    let mut picked = Vec::with_capacity(columns.len());
    for (column, is_read) in columns.iter().zip(&is_read) {
        if !*is_read {
            picked.push(column.clone());
            continue;
        }
        if Type::of(column.data_type()).is_none_or(|of| of == Type::Bool) {
            return Ok(None);
        }
        match Column::of_fixed_width(&column.select(selection)?)? {
            Some(rows) => picked.push(rows),
            None => return Ok(None),
        }
    }
    Ok(Some((picked, is_read)))
}

/// Marks the columns that an expression reads.
fn mark_columns(expr: &Expr, lookups: &[Lookup], is_read: &mut [bool]) {
    let mut mark = |column: usize| {
        if let Some(is_read) = is_read.get_mut(column) {
            *is_read = true;
        }
    };
    if let Expr::Column(column) | Expr::Values(column, _) = expr {
        mark(*column);
    }
    expr.visit_codes(&mut |code| {
        if let Code::Lookup(number) = code
            && let Some(lookup) = lookups.get(*number)
        {
            mark(lookup.column);
        }
    });
    expr.for_parts(|part| mark_columns(part, lookups, is_read));
}

fn int(value: i128) -> Expr {
    Expr::Literal(Literal::Int(value, Type::I64))
}

/// Adds the selected rows to the accumulators. Returns the number of rows of each group.
fn accumulate(
    program: &Program<'_>,
    selection: &Selection,
    keys: &[Key<'_>],
    readers: &[Reader<'_>],
    arguments: &mut [(Option<Register>, Accumulator)],
    groups: usize,
) -> Result<Vec<u64>> {
    let mut counts = vec![0u64; groups];
    let mut vectors = program.vectors();
    let none = Vector::new(Kind::Bool);
    let mut masks = vec![[0; VECTOR_LEN / 64]; groups.min(MOST_MASKS)];
    for vector in 0..selection.num_vectors() {
        if selection.is_vector_empty(vector) {
            continue;
        }
        let mask = selection.mask(vector);
        program.run(vector, &mut vectors)?;
        let mut numbers = [0u32; VECTOR_LEN];
        for key in keys {
            key.add_digits(vector, &mask, &vectors, readers, &mut numbers)?;
        }
        let rows = match groups <= MOST_MASKS {
            true => {
                by_group(&numbers, &mask, &mut masks);
                accumulator::Rows::Masks(&masks)
            }
            false => accumulator::Rows::Numbers(&mask, &numbers),
        };
        match rows {
            accumulator::Rows::Masks(masks) => {
                let pairs = counts.iter_mut().zip(masks);
                pairs.for_each(|(rows, mask)| *rows += count(mask) as u64);
            }
            accumulator::Rows::Numbers(mask, groups) => {
                for_each_row(mask, |row| counts[groups[row] as usize] += 1);
            }
        }
        for (register, accumulator) in arguments.iter_mut() {
            let argument = register.map_or(&none, |register| &vectors[register]);
            accumulator.add(argument, &rows)?;
        }
    }
    Ok(counts)
}
