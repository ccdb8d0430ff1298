//! Evaluates functions over sorted rows that come in batches.
//!
//! ```text
//!  rows:   │ before │ pending │ next batch            │
//!  known:           └─ put out ───────────────┘└─ pending next
//! ```
//!
//! Rows *before* were put out, and are kept for `lag`, for frames, and to see where partitions begin. *Pending* rows wait
//! for later ones, which `lead` needs, and functions of all rows of a partition or of all that are equal in order. Only the
//! columns that functions read are kept of rows before; other columns of pending rows are slices of their batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{concat, partition, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::aggregate::{of_first, of_last};
use super::frame::Extent;
use super::function::{Function, Shift};

/// What is evaluated over rows.
#[derive(Clone, Debug)]
pub(super) struct Functions {
    functions: Vec<Function>,
    /// Keys of partitions, keys of the order, values that functions read.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    num_partition_keys: usize,
    num_order_keys: usize,
}

/// Numbers of a row in its partition, from 1.
#[derive(Clone, Copy)]
struct Position {
    number: u64,
    rank: u64,
    dense_rank: u64,
}

/// The first row that is kept.
struct First {
    position: Position,
    /// States of each function that has some.
    states: Vec<Vec<ArrayRef>>,
}

/// Rows that are kept between batches.
pub(super) struct Rows {
    functions: Functions,
    schema: SchemaRef,
    /// The columns of rows before and pending.
    columns: Option<Vec<ArrayRef>>,
    /// Number of rows before.
    num_before: usize,
    pending: Vec<RecordBatch>,
    /// Position of the first row of `columns`.
    first: Position,
    /// States of the first row of `columns`, of each function that has some; empty before the first batch.
    states: Vec<Vec<ArrayRef>>,
    /// Columns of rows that came after those of `columns`.
    arrived: Vec<Vec<ArrayRef>>,
    /// The last row that came, in the columns by which rows wait for each other.
    last: Option<Vec<ArrayRef>>,
}

impl Functions {
    /// `None` if a function of `windows` is not known, their partitions or orders differ, or a type of their columns is
    /// nested or a dictionary, which cannot be kept without everything beside them.
    pub(super) fn of(windows: &[Arc<dyn WindowExpr>], input: &SchemaRef) -> Result<Option<Self>> {
        let Some(first) = windows.first() else {
            return Ok(None);
        };
        let is_alike = |window: &Arc<dyn WindowExpr>| {
            window.partition_by() == first.partition_by() && window.order_by() == first.order_by()
        };
        let functions = windows.iter().map(|window| Function::of(window.as_ref()));
        let Some(functions) = functions.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let order = first.order_by().iter().map(|key| &key.expr);
        let values = functions.iter().filter_map(Function::value);
        let columns = first.partition_by().iter().chain(order).chain(values);
        let columns: Vec<_> = columns.cloned().collect();
        let mut can_keep = windows.iter().all(is_alike);
        for column in &columns {
            let data_type = column.data_type(input)?;
            can_keep &= !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..));
        }
        if functions
            .iter()
            .any(|of| of.extent() == Some(Extent::Peers))
        {
            // DataFusion does not compare floats of a frame as it compares those of ranks
            for key in first.order_by() {
                can_keep &= !key.expr.data_type(input)?.is_floating();
            }
        }
        Ok(can_keep.then_some(Self {
            functions,
            columns,
            num_partition_keys: first.partition_by().len(),
            num_order_keys: first.order_by().len(),
        }))
    }

    /// The largest distance of a row to one before, or after, that its results depend on.
    fn most_rows(&self, is_back: bool) -> usize {
        let distances = self.functions.iter().map(Function::distances);
        let distances = distances.map(|(before, after)| if is_back { before } else { after });
        distances.max().unwrap_or(0)
    }

    /// Rows that are equal in so many first columns have results together, when all of them are known; `None` if rows
    /// don't wait for each other.
    fn keys_of_waiting(&self) -> Option<usize> {
        let has = |extent| self.functions.iter().any(|of| of.extent() == Some(extent));
        if has(Extent::Partition) {
            return Some(self.num_partition_keys);
        }
        has(Extent::Peers).then_some(self.num_partition_keys + self.num_order_keys)
    }

    /// Ranges of rows that are equal in the first `keys` columns.
    fn equal_rows(&self, columns: &[ArrayRef], keys: usize, rows: usize) -> Result<Ranges> {
        Ok(match columns.get(..keys) {
            Some(keys) if !keys.is_empty() => partition(keys)?.ranges(),
            _ => std::iter::once(0..rows).collect(),
        })
    }

    /// True if a function needs to know which rows are equal in order.
    fn have_peers(&self) -> bool {
        self.functions.iter().any(Function::has_peers)
    }

    /// Ranges of rows that are equal in order.
    fn peers(&self, columns: &[ArrayRef], rows: usize) -> Result<Ranges> {
        let keys = self.num_partition_keys + self.num_order_keys;
        self.equal_rows(columns, keys, rows)
    }
}

/// Ranges of rows that follow each other.
type Ranges = Vec<Range<usize>>;

impl Rows {
    pub(super) fn new(functions: Functions, schema: SchemaRef) -> Self {
        Self {
            functions,
            schema,
            columns: None,
            num_before: 0,
            pending: Vec::new(),
            first: Position {
                number: 1,
                rank: 1,
                dense_rank: 1,
            },
            states: Vec::new(),
            arrived: Vec::new(),
            last: None,
        }
    }

    /// Adds the next rows, or `None` after the last ones. Returns the rows whose functions are known now.
    pub(super) fn add(&mut self, batch: Option<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let is_last = batch.is_none();
        if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
            let exprs = self.functions.columns.iter();
            let values = exprs.map(|expr| expr.evaluate(&batch)?.into_array(batch.num_rows()));
            let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
            let continues = self.continues(&values, batch.num_rows())?;
            self.arrived.push(values);
            self.pending.push(batch);
            if continues {
                return Ok(Vec::new());
            }
        }
        self.keep_columns()?;
        let num_pending: usize = self.pending.iter().map(RecordBatch::num_rows).sum();
        let all = self.num_before + num_pending;
        let kept = match is_last {
            true => 0,
            false => self.num_waiting(all)?,
        };
        let num_known = num_pending.saturating_sub(kept);
        if num_known == 0 {
            return Ok(Vec::new());
        }
        let known = self.num_before..self.num_before + num_known;
        let before = known.end.min(self.functions.most_rows(true).max(1));
        let (results, first) = self.evaluate(all, known.clone(), known.end - before)?;
        self.first = first.position;
        self.states = first.states;
        self.num_before = before;
        let columns = self.columns.take().unwrap_or_default();
        let rest = |column: ArrayRef| column.slice(known.end - before, all - known.end + before);
        self.columns = Some(columns.into_iter().map(rest).map(without_others).collect());
        self.put_out(num_known, &results)
    }

    /// True if all of the next rows wait for the same later rows as the last one before them. `values` are their columns.
    fn continues(&mut self, values: &[ArrayRef], rows: usize) -> Result<bool> {
        let Some(keys) = self.functions.keys_of_waiting() else {
            return Ok(false);
        };
        let last = values.iter().take(keys);
        let last: Vec<ArrayRef> = last.map(|column| column.slice(rows - 1, 1)).collect();
        let Some(before) = self.last.replace(last) else {
            return Ok(false);
        };
        let both = before.iter().zip(self.last.iter().flatten());
        let both = both.map(|(before, last)| concat(&[before.as_ref(), last.as_ref()]));
        let both: Vec<ArrayRef> = both.collect::<Result<_, _>>()?;
        Ok(self.functions.equal_rows(&both, keys, 2)?.len() == 1)
    }

    /// Number of rows, of `rows` that are kept, that wait for later ones.
    fn num_waiting(&self, rows: usize) -> Result<usize> {
        let shifted = self.functions.most_rows(false);
        let Some(keys) = self.functions.keys_of_waiting() else {
            return Ok(shifted);
        };
        let columns = self.columns.as_deref().unwrap_or_default();
        let equal = self.functions.equal_rows(columns, keys, rows)?;
        Ok(equal.last().map_or(0, Range::len).max(shifted))
    }

    /// Appends the columns of rows that came to those that are kept.
    fn keep_columns(&mut self) -> Result<()> {
        let kept = self.columns.take().into_iter();
        let all: Vec<Vec<ArrayRef>> = kept.chain(self.arrived.drain(..)).collect();
        let num_columns = all.first().map_or(0, Vec::len);
        let columns = (0..num_columns).map(|number| {
            let parts = all.iter().filter_map(|columns| columns.get(number));
            let parts: Vec<&dyn Array> = parts.map(AsRef::as_ref).collect();
            Ok(concat(&parts)?)
        });
        self.columns = match &all[..] {
            [] => None,
            [columns] => Some(columns.clone()),
            _ => Some(columns.collect::<Result<_>>()?),
        };
        Ok(())
    }

    /// The results of the rows `known` of the `rows` that are kept, and what is known of the row `next`.
    fn evaluate(
        &self,
        rows: usize,
        known: Range<usize>,
        next: usize,
    ) -> Result<(Vec<ArrayRef>, First)> {
        let functions = &self.functions;
        let columns = self.columns.as_deref().unwrap_or_default();
        let partition_keys = functions.num_partition_keys;
        let partitions = functions.equal_rows(columns, partition_keys, rows)?;
        let numbers = numbers(&partitions, self.first.number, rows);
        let keys = partition_keys + functions.num_order_keys;
        let peers = match functions.have_peers() {
            true => functions.peers(columns, rows)?,
            false => vec![],
        };
        let (ranks, dense_ranks) = ranks(&peers, &numbers, self.first);
        let number_at = |numbers: &[u64]| numbers.get(next).copied().unwrap_or(1);
        let position = Position {
            number: number_at(&numbers),
            rank: number_at(&ranks),
            dense_rank: number_at(&dense_ranks),
        };
        let of_known = |numbers: &[u64]| -> ArrayRef {
            let known = numbers.get(known.clone()).unwrap_or_default();
            Arc::new(UInt64Array::from_iter_values(known.iter().copied()))
        };
        let mut values = columns.get(keys..).unwrap_or_default().iter();
        let mut values = || {
            let values = values.next();
            values.ok_or_else(|| internal_datafusion_err!("too few columns"))
        };
        let mut before = self.states.iter();
        let mut states = Vec::new();
        let mut keep = |of_rows: &[ArrayRef]| -> Result<()> {
            let next = UInt64Array::from(vec![next as u64]);
            let of_next = of_rows.iter().map(|state| take(state, &next, None));
            let of_next = of_next.map(|state| Ok(without_others(state?)));
            states.push(of_next.collect::<Result<_>>()?);
            Ok(())
        };
        let results = functions.functions.iter().map(|function| {
            let results = match function {
                Function::RowNumber => return Ok(of_known(&numbers)),
                Function::Rank => return Ok(of_known(&ranks)),
                Function::DenseRank => return Ok(of_known(&dense_ranks)),
                Function::Shift(shift) => {
                    let sources = shift.sources(&partitions, known.clone());
                    return Ok(take(values()?, &sources, None)?);
                }
                Function::First(_) => {
                    let first = before.next().and_then(|states| states.first());
                    let first = of_first(values()?, &partitions, first)?;
                    keep(std::slice::from_ref(&first))?;
                    first
                }
                Function::Last(_, extent) => match extent {
                    Extent::Peers => of_last(values()?, &peers)?,
                    Extent::Partition => of_last(values()?, &partitions)?,
                    Extent::Rows | Extent::Near { .. } => Arc::clone(values()?),
                },
                Function::Aggregate(aggregate) => {
                    let first = before.next().map(Vec::as_slice);
                    let states = aggregate.states(values()?, &partitions, first)?;
                    keep(&states)?;
                    let results = aggregate.results(states)?;
                    match aggregate.extent {
                        Extent::Peers => of_last(&results, &peers)?,
                        _ => results,
                    }
                }
            };
            Ok(results.slice(known.start, known.len()))
        });
        let results = results.collect::<Result<_>>()?;
        Ok((results, First { position, states }))
    }

    /// The first `num_known` pending rows, with their results.
    fn put_out(&mut self, num_known: usize, results: &[ArrayRef]) -> Result<Vec<RecordBatch>> {
        let mut known = Vec::new();
        let mut num_out = 0;
        for batch in std::mem::take(&mut self.pending) {
            let rows = batch.num_rows().min(num_known - num_out);
            if rows > 0 {
                let own = batch.slice(0, rows);
                let results = results.iter().map(|column| column.slice(num_out, rows));
                let columns = own.columns().iter().cloned().chain(results).collect();
                known.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
            }
            num_out += rows;
            if rows < batch.num_rows() {
                self.pending
                    .push(batch.slice(rows, batch.num_rows() - rows));
            }
        }
        Ok(known)
    }
}

impl Shift {
    /// For each of the rows `known`, the row whose value it gets; null if that is not in its partition.
    fn sources(&self, partitions: &[Range<usize>], known: Range<usize>) -> UInt64Array {
        let mut sources = Vec::with_capacity(known.len());
        for partition in partitions {
            let rows = partition.start.max(known.start)..partition.end.min(known.end);
            sources.extend(rows.map(|row| {
                let source = match self.is_back {
                    true => row.checked_sub(self.rows),
                    false => row.checked_add(self.rows),
                };
                source
                    .filter(|source| partition.contains(source))
                    .map(|source| source as u64)
            }));
        }
        sources.into()
    }
}

/// The number of each row in its partition; that of the first row is `first`.
fn numbers(partitions: &[Range<usize>], first: u64, rows: usize) -> Vec<u64> {
    let mut numbers = Vec::with_capacity(rows);
    for partition in partitions {
        let begin = match partition.start {
            0 => first,
            _ => 1,
        };
        numbers.extend((begin..).take(partition.len()));
    }
    numbers
}

/// The ranks of rows of which `peers` are equal in order, and the dense ranks. The first row is at `first`.
fn ranks(peers: &[Range<usize>], numbers: &[u64], first: Position) -> (Vec<u64>, Vec<u64>) {
    let mut ranks = Vec::with_capacity(numbers.len());
    let mut dense_ranks = Vec::with_capacity(numbers.len());
    let mut dense = first.dense_rank;
    for equal in peers {
        let rank = match equal.start {
            0 => first.rank,
            start => {
                let number = numbers.get(start).copied().unwrap_or(1);
                dense = if number == 1 { 1 } else { dense + 1 };
                number
            }
        };
        ranks.resize(equal.end, rank);
        dense_ranks.resize(equal.end, dense);
    }
    (ranks, dense_ranks)
}

/// A column without the text of rows that it does not have: slices of views keep all of it.
pub(super) fn without_others(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}
