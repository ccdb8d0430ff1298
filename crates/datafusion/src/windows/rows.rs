//! Evaluates functions over sorted rows that come in batches.
//!
//! ```text
//!  rows:   │ before │ pending │ next batch            │
//!  known:           └─ put out ───────────────┘└─ pending next
//! ```
//!
//! Rows *before* were put out, and are kept for `lag` and to see where partitions begin. *Pending* rows wait for later
//! ones, which `lead` needs, and aggregates over all rows that are equal in order. Only the columns that functions read are kept of rows before; other columns of pending rows
//! are slices of their batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{concat, partition, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::function::{Function, Shift};
use super::running::of_last_peers;

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

/// What is known of the first row that is kept.
struct First {
    position: Position,
    /// Results of each running aggregate.
    running: Vec<ArrayRef>,
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
    /// Results of the first row of `columns`, of each running aggregate; empty before the first batch.
    running: Vec<ArrayRef>,
}

impl Functions {
    /// `None` if not all functions of `windows` depend on positions in the same partitions and order, or a type of their
    /// columns is nested or a dictionary, which cannot be kept without everything beside them.
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
        if functions.iter().any(needs_all_peers) {
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

    /// The largest distance of a row to one before, or after.
    fn most_rows(&self, is_back: bool) -> usize {
        let shifts = self.functions.iter().filter_map(|function| match function {
            Function::Shift(shift) if shift.is_back == is_back => Some(shift.rows),
            _ => None,
        });
        shifts.max().unwrap_or(0)
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

    /// True if a function needs all rows that are equal in order.
    fn need_all_peers(&self) -> bool {
        self.functions.iter().any(needs_all_peers)
    }

    /// Ranges of rows that are equal in order.
    fn peers(&self, columns: &[ArrayRef], rows: usize) -> Result<Ranges> {
        let keys = self.num_partition_keys + self.num_order_keys;
        self.equal_rows(columns, keys, rows)
    }
}

/// True if `function` needs all rows that are equal in order.
fn needs_all_peers(function: &Function) -> bool {
    matches!(function, Function::Running(running) if running.has_peers)
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
            running: Vec::new(),
        }
    }

    /// Adds the next rows, or `None` after the last ones. Returns the rows whose functions are known now.
    pub(super) fn add(&mut self, batch: Option<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let is_last = batch.is_none();
        if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
            let exprs = self.functions.columns.iter();
            let values = exprs.map(|expr| expr.evaluate(&batch)?.into_array(batch.num_rows()));
            self.keep_columns(values.collect::<Result<_>>()?)?;
            self.pending.push(batch);
        }
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
        self.running = first.running;
        self.num_before = before;
        let columns = self.columns.take().unwrap_or_default();
        let rest = |column: ArrayRef| column.slice(known.end - before, all - known.end + before);
        self.columns = Some(columns.into_iter().map(rest).map(without_others).collect());
        self.put_out(num_known, &results)
    }

    /// Number of rows, of `rows` that are kept, that wait for later ones.
    fn num_waiting(&self, rows: usize) -> Result<usize> {
        let shifted = self.functions.most_rows(false);
        if !self.functions.need_all_peers() {
            return Ok(shifted);
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        let peers = self.functions.peers(columns, rows)?;
        Ok(peers.last().map_or(0, Range::len).max(shifted))
    }

    /// Appends columns of further rows to those that are kept.
    fn keep_columns(&mut self, values: Vec<ArrayRef>) -> Result<()> {
        self.columns = Some(match self.columns.take() {
            Some(columns) => {
                let columns = columns.iter().zip(&values);
                let all = columns.map(|(kept, new)| concat(&[kept.as_ref(), new.as_ref()]));
                all.collect::<Result<_, _>>()?
            }
            None => values,
        });
        Ok(())
    }

    /// The functions of the rows `known` of the `rows` that are kept, and the position of the row `next`.
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
        let mut before = self.running.iter();
        let mut running = Vec::new();
        let results = functions.functions.iter().map(|function| match function {
            Function::RowNumber => Ok(of_known(&numbers)),
            Function::Rank => Ok(of_known(&ranks)),
            Function::DenseRank => Ok(of_known(&dense_ranks)),
            Function::Shift(shift) => {
                let sources = shift.sources(&partitions, known.clone());
                Ok(take(values()?, &sources, None)?)
            }
            Function::Running(aggregate) => {
                let results = aggregate.results(values()?, &partitions, before.next())?;
                running.push(take(&results, &UInt64Array::from(vec![next as u64]), None)?);
                let results = match aggregate.has_peers {
                    true => of_last_peers(&results, &peers)?,
                    false => results,
                };
                Ok(results.slice(known.start, known.len()))
            }
        });
        let results = results.collect::<Result<_>>()?;
        Ok((results, First { position, running }))
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
