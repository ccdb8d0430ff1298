//! Selected rows: which rows are selected, or values of them.
//!
//! Values take two kernels. The first selects rows and counts them in each vector, which gives the output offset of
//! each vector; the second writes values there. Strings have kernels of their own after the first.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use vectile_encodings::{Selection, VECTOR_LEN};
use vectile_kernels::DeviceChunk;

use super::execution::{Execution, Prepared, VECTORS_PER_WARP, parts, vectors_of};
use super::launch::{Outputs, ScratchAddresses, ScratchRequest};
use super::strings::{RowSelection, Strings};
use super::tables::{on_device, validity_at};
use crate::error::{Error, Result};
use crate::kernel::{OutputPlan, Task};
use crate::runtime::{Batch, ColumnBatch, DeviceBuffer, Entries, Group, Resident, StreamContext};
use vectile_pipeline::{Bounds, Code, Expr, Filter, Lookup, Output, Pipeline, Rows, Type};

/// Bytes of a vector's selection.
const MASK_BYTES: usize = VECTOR_LEN / 8;

/// Columns of rows in the device's memory.
pub(super) struct RowsOnDevice {
    pub rows: usize,
    pub columns: Vec<ColumnOnDevice>,
}

/// Values in the device's memory and, if some may be null, behind them a byte for each that is 0 for nulls.
#[derive(Clone)]
pub(super) struct ColumnOnDevice {
    pub of: Type,
    pub is_nullable: bool,
    pub memory: Arc<DeviceBuffer>,
    pub validity_at: usize,
    /// Bounds of its values, as planned; `None` if they were copied.
    pub bounds: Option<Bounds>,
    /// The entries that values are numbers of, if any.
    pub entries: Option<Arc<Entries>>,
}

/// Selected rows, on the device.
struct Selected {
    masks: DeviceBuffer,
    /// For each vector, the number of selected rows before it.
    offsets: Vec<u64>,
    /// Selected rows of each group.
    counts: Vec<usize>,
}

/// The kernels of an output of rows.
struct RowKernels {
    /// `None` if all rows are selected.
    select: Option<Prepared>,
    /// `None` if all outputs are strings.
    gather: Option<Prepared>,
    /// Outputs of strings, with their indices.
    strings: Vec<(usize, Strings)>,
    /// Number of outputs.
    outputs: usize,
}

impl Execution {
    /// The selected rows of each row group, for [`Output::Selection`](vectile_pipeline::Output::Selection).
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`].
    pub fn select(&mut self, groups: &[Group]) -> Result<Vec<Selection>> {
        self.watch(|this| this.selections(groups))
    }

    fn selections(&mut self, groups: &[Group]) -> Result<Vec<Selection>> {
        let batch = Batch::of(groups)?;
        let mut masks: Vec<u8> = vec![];
        if !batch.is_empty() {
            let batch = self.with_codes(batch)?;
            let prepared = self.prepare(&batch, Task::Masks)?;
            let mut context = self.engine.stream_context()?;
            for part in parts(batch.rows(), prepared.warps() * VECTORS_PER_WARP) {
                let vectors = vectors_of(&batch.rows()[part.clone()]);
                let (bytes, all) = (vectors * MASK_BYTES, vectors * (MASK_BYTES + 8));
                let request = ScratchRequest {
                    bytes: all,
                    ..ScratchRequest::default()
                };
                let outputs = |scratch: ScratchAddresses| Outputs {
                    masks: scratch.bytes,
                    counts: scratch.bytes + bytes as u64,
                    clear: Some((scratch.bytes, all)),
                    back: (scratch.bytes, bytes),
                    ..Outputs::default()
                };
                let back = self.run(&prepared, &batch, part, &mut context, request, outputs)?;
                masks.extend(&back.as_slice()[..bytes]);
            }
            self.engine.give_back(context);
        }
        let mut rest = masks.as_slice();
        let selections = groups.iter().map(|group| {
            let (own, others) = rest
                .split_at_checked(group.rows.div_ceil(VECTOR_LEN) * MASK_BYTES)
                .unwrap_or_default();
            rest = others;
            let bits = BooleanBuffer::new(Buffer::from_vec(own.to_vec()), 0, group.rows);
            let mut selection = Selection::all(0, group.rows);
            selection.and_boolean(&BooleanArray::new(bits, None));
            selection
        });
        Ok(selections.collect())
    }

    /// The selected rows of each row group, in order, for [`Output::Rows`](vectile_pipeline::Output::Rows). Row groups of
    /// one launch share one buffer, which is freed with the last of their arrays.
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`].
    pub fn rows(&mut self, groups: &[Group]) -> Result<Vec<Rows>> {
        self.watch(|this| this.all_rows(groups))
    }

    /// As [`Execution::rows`], for a batch without empty row groups.
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`].
    pub fn rows_of_batch(&mut self, batch: &Batch) -> Result<Vec<Rows>> {
        match batch.is_empty() {
            true => Ok(vec![]),
            false => self.watch(|this| this.selected_rows(batch.clone(), &mut |_| Ok(()))),
        }
    }

    fn all_rows(&mut self, groups: &[Group]) -> Result<Vec<Rows>> {
        let batch = Batch::of(groups)?;
        let selected = match batch.is_empty() {
            true => vec![],
            false => self.selected_rows(batch, &mut |_| Ok(()))?,
        };
        let mut selected = selected.into_iter();
        let all = groups.iter().map(|group| match group.rows {
            0 => Rows::default(),
            _ => selected.next().unwrap_or_default(),
        });
        Ok(all.collect())
    }

    /// Computes selected rows. `allow` is called with the number of rows of each launch before they are computed.
    pub(super) fn selected_rows(
        &mut self,
        batch: Batch,
        allow: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Rows>> {
        let mut all = vec![];
        let batch = self.with_codes(batch)?;
        let mut kernels = self.kernels(&batch)?;
        let warps = [&kernels.select, &kernels.gather].into_iter().flatten();
        let warps = warps.map(Prepared::warps).min();
        let most = warps.map_or(usize::MAX, |warps| warps * VECTORS_PER_WARP);
        let mut context = self.engine.stream_context()?;
        for part in parts(batch.rows(), most) {
            let selected = match &kernels.select {
                Some(select) => Some(self.selected(select, &batch, part.clone(), &mut context)?),
                None => None,
            };
            allow(match &selected {
                Some(selected) => selected.counts.iter().sum(),
                None => batch.rows()[part.clone()].iter().sum(),
            })?;
            let rows = self.rows_of(&mut kernels, &batch, part, selected, &mut context)?;
            all.extend(rows);
        }
        self.engine.give_back(context);
        let strings = kernels.strings.iter();
        strings.for_each(|(_, strings)| strings.count(self));
        Ok(all)
    }

    /// Prepares all kernels before the first launch.
    fn kernels(&mut self, batch: &Batch) -> Result<RowKernels> {
        let pipeline = Arc::clone(&self.pipeline);
        let Output::Rows(exprs) = &pipeline.output else {
            let reason = "rows of a pipeline that has none";
            return Err(Error::Internal(reason.into()));
        };
        let (select, task) = match pipeline.filter {
            Filter::Constant(true) => (None, Task::AllValues),
            _ => (Some(self.prepare(batch, Task::Masks)?), Task::Values),
        };
        let mut strings = exprs.iter().map(|expr| pipeline.strings(expr).is_some());
        let are_strings = !exprs.is_empty() && strings.all(|is_one| is_one);
        let gather = (!are_strings).then(|| self.prepare(batch, task));
        let strings = exprs.iter().enumerate();
        let strings = strings.filter_map(|(index, expr)| Some((index, pipeline.strings(expr)?)));
        let strings = strings.map(|(index, column)| {
            let strings = Strings::prepare(self, column, &batch.columns()[column])?;
            Ok((index, strings))
        });
        Ok(RowKernels {
            strings: strings.collect::<Result<_>>()?,
            select,
            gather: gather.transpose()?,
            outputs: exprs.len(),
        })
    }

    /// The rows of some groups.
    fn rows_of(
        &mut self,
        kernels: &mut RowKernels,
        batch: &Batch,
        part: Range<usize>,
        selected: Option<Selected>,
        context: &mut StreamContext,
    ) -> Result<Vec<Rows>> {
        let rows = &batch.rows()[part.clone()];
        let (counts, offsets) = match &selected {
            Some(selected) => (selected.counts.clone(), selected.offsets.clone()),
            None => (rows.to_vec(), first_rows(rows)),
        };
        let selection = RowSelection {
            masks: selected.as_ref().map_or(0, |s| s.masks.address()),
            offsets: &offsets,
            counts: &counts,
        };
        let mut columns = vec![vec![]; kernels.outputs];
        if let Some(gather) = &kernels.gather {
            columns = self.values_of(gather, batch, part.clone(), context, &selection)?;
        }
        for (index, strings) in &mut kernels.strings {
            columns[*index] = strings.arrays(&selection, part.clone(), context)?;
        }
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let groups_rows = counts.iter().map(|count| Rows {
            count: *count,
            columns: columns.iter_mut().filter_map(Iterator::next).collect(),
        });
        Ok(groups_rows.collect())
    }

    /// For each output, an array for each group; arbitrary ones for outputs of strings.
    fn values_of(
        &mut self,
        gather: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
        selection: &RowSelection,
    ) -> Result<Vec<Vec<ArrayRef>>> {
        let rows: usize = selection.counts.iter().sum();
        let outputs = &gather.loaded.layout.outputs;
        // offsets of values and validity of each column; validity is a byte a row
        let mut offsets = vec![];
        let mut bytes = 0;
        for (of, nullable) in outputs {
            let nulls = bytes + validity_at(rows, width_of(*of));
            offsets.push((bytes, nulls));
            bytes = (nulls + if *nullable { rows } else { 0 }).next_multiple_of(256);
        }
        let back = match rows {
            0 => None,
            _ => {
                let result = self.engine.take(bytes)?;
                let at = |offset: usize| result.address() + offset as u64;
                let columns = offsets
                    .iter()
                    .map(|(values, nulls)| [at(*values), at(*nulls)]);
                let columns: Vec<[u64; 2]> = columns.collect();
                let back = (result.address(), bytes);
                let back = self.gather(gather, batch, part, context, selection, &columns, back)?;
                Some(Arc::new(back))
            }
        };
        let columns = outputs
            .iter()
            .zip(&offsets)
            .map(|((of, nullable), offsets)| {
                let mut first = 0;
                let groups = selection.counts.iter().map(|count| {
                    let rows = first..first + count;
                    first = rows.end;
                    array_of(*of, *nullable, rows, *offsets, back.as_ref())
                });
                groups.collect()
            });
        columns.collect()
    }

    /// Writes the values and the validity of columns to these addresses, and copies some bytes back.
    #[expect(clippy::too_many_arguments, reason = "those of a launch")]
    fn gather(
        &mut self,
        gather: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
        selection: &RowSelection,
        columns: &[[u64; 2]],
        back: (u64, usize),
    ) -> Result<DeviceBuffer> {
        let mut words: Vec<u64> = columns.iter().flatten().copied().collect();
        let table_bytes = words.len() as u64 * 8;
        words.extend(selection.offsets);
        let own = ScratchRequest { words, bytes: 0 };
        self.run(gather, batch, part, context, own, |scratch| Outputs {
            out: scratch.words,
            masks: selection.masks,
            counts: scratch.words + table_bytes,
            back,
            ..Outputs::default()
        })
    }

    /// The selected rows of a batch as columns that stay on the device. None of them may be strings. `allow` is called
    /// with the number of rows before they are computed.
    pub(super) fn rows_on_device(
        &mut self,
        batch: &Batch,
        allow: impl FnOnce(usize) -> Result<()>,
    ) -> Result<RowsOnDevice> {
        let batch = self.with_codes(batch.clone())?;
        let (batch, entries) = self.with_numbers(batch)?;
        let kernels = self.kernels(&batch)?;
        let Some(gather) = kernels.gather.filter(|_| kernels.strings.is_empty()) else {
            return Err(Error::Unsupported("strings on the device".into()));
        };
        let warps = kernels.select.iter().chain([&gather]);
        let most = warps.map(Prepared::warps).min().unwrap_or(0) * VECTORS_PER_WARP;
        let [part] = &parts(batch.rows(), most)[..] else {
            return Err(Error::Unsupported("rows of several launches".into()));
        };
        let mut context = self.engine.stream_context()?;
        let selected = match &kernels.select {
            Some(select) => Some(self.selected(select, &batch, part.clone(), &mut context)?),
            None => None,
        };
        let (counts, offsets) = match &selected {
            Some(selected) => (selected.counts.clone(), selected.offsets.clone()),
            None => (batch.rows().to_vec(), first_rows(batch.rows())),
        };
        let selection = RowSelection {
            masks: selected.as_ref().map_or(0, |s| s.masks.address()),
            offsets: &offsets,
            counts: &counts,
        };
        let rows = counts.iter().sum();
        allow(rows)?;
        let outputs = gather.loaded.layout.outputs.iter();
        let bounds = planned_bounds(&gather.plan.output, outputs.len());
        let outputs = outputs.zip(bounds).zip(entries);
        let columns = outputs.map(|(((of, is_nullable), bounds), entries)| {
            let validity = validity_at(rows, width_of(*of));
            let bytes = validity + if *is_nullable { rows } else { 0 };
            Ok(ColumnOnDevice {
                of: *of,
                is_nullable: *is_nullable,
                memory: Arc::new(self.engine.take(bytes.max(1))?),
                validity_at: validity,
                bounds,
                entries,
            })
        });
        let columns: Vec<ColumnOnDevice> = columns.collect::<Result<_>>()?;
        if rows > 0 {
            let addresses = columns.iter().map(|column| {
                let values = column.memory.address();
                [values, values + column.validity_at as u64]
            });
            let addresses: Vec<[u64; 2]> = addresses.collect();
            let nothing = (columns.first().map_or(0, |of| of.memory.address()), 0);
            self.gather(
                &gather,
                &batch,
                part.clone(),
                &mut context,
                &selection,
                &addresses,
                nothing,
            )?;
        }
        self.engine.give_back(context);
        Ok(RowsOnDevice { rows, columns })
    }

    /// The batch with a column of row numbers if an output needs it, and for each output the entries that it numbers,
    /// if any. The pipeline then looks up the numbers of values, and reads the row numbers.
    fn with_numbers(&mut self, mut batch: Batch) -> Result<(Batch, Vec<Option<Arc<Entries>>>)> {
        let Output::Rows(outputs) = &self.pipeline.output else {
            return Ok((batch, vec![]));
        };
        let mut numbered = vec![None; outputs.len()];
        let has_numbers = |output: &Expr| matches!(output, Expr::DenseId(_) | Expr::RowNumber);
        if !outputs.iter().any(has_numbers) {
            return Ok((batch, numbered));
        }
        let mut pipeline = Pipeline::clone(&self.pipeline);
        let mut outputs = outputs.clone();
        for (output, entries) in outputs.iter_mut().zip(&mut numbered) {
            match output {
                Expr::DenseId(column) => {
                    let column = *column;
                    let of = batch.columns()[column].entries()?;
                    let key_table = of.codes()?;
                    let lookups = &mut pipeline.lookups;
                    let known = lookups
                        .iter()
                        .position(|known| known.key_table == key_table);
                    *output = Expr::Id(Code::Lookup(known.unwrap_or(lookups.len())));
                    if known.is_none() {
                        lookups.push(Lookup { column, key_table });
                    }
                    *entries = Some(of);
                }
                Expr::RowNumber => {
                    let rows = batch.rows().to_vec();
                    let mut columns = batch.columns().to_vec();
                    *output = Expr::Column(columns.len());
                    columns.push(self.row_numbers(&rows)?);
                    pipeline.columns.push(DataType::Int64);
                    batch = Batch::new(rows.into(), columns)?;
                }
                _ => {}
            }
        }
        pipeline.output = Output::Rows(outputs);
        self.pipeline = Arc::new(pipeline);
        Ok((batch, numbered))
    }

    /// A column of the row numbers of row groups.
    fn row_numbers(&self, rows: &[usize]) -> Result<Arc<ColumnBatch>> {
        let mut first = 0;
        let chunks = rows.iter().map(|rows| {
            let numbers = DeviceChunk::of_row_numbers(&DataType::Int64, *rows, first)?;
            first += *rows as i128;
            Ok(numbers)
        });
        let chunks: Vec<DeviceChunk> = chunks.collect::<Result<_>>()?;
        let mut all = vec![];
        for chunk in &chunks {
            let front = chunk.front_bytes();
            let mut own = vec![0; chunk.info().bytes];
            let (to, body) = own.split_at_mut(front);
            chunk.write_front(to, front)?;
            chunk.write_body(&mut body[..chunk.body_bytes()]);
            all.extend(own);
        }
        let memory = on_device(&self.engine, all.len(), |to| to.copy_from_slice(&all))?;
        let memory = Arc::new(memory);
        let mut at = 0;
        let residents = chunks.iter().map(|chunk| {
            let (here, info) = (at, Arc::new(chunk.info().clone()));
            at += info.bytes as u64;
            Resident::in_memory(Arc::clone(&memory), here, info)
        });
        Ok(Arc::new(ColumnBatch::of(residents.collect())?))
    }

    /// Selects rows of some groups, and computes the output offset of each vector.
    fn selected(
        &mut self,
        select: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<Selected> {
        let vectors = vectors_of(&batch.rows()[part.clone()]);
        let (mask_bytes, all) = (vectors * MASK_BYTES, vectors * (MASK_BYTES + 8));
        let masks = self.engine.take(all)?;
        let counts_at = masks.address() + mask_bytes as u64;
        let own = part.clone();
        let back = self.run(
            select,
            batch,
            part,
            context,
            ScratchRequest::default(),
            |_| Outputs {
                masks: masks.address(),
                counts: counts_at,
                clear: Some((masks.address(), all)),
                back: (counts_at, vectors * 8),
                ..Outputs::default()
            },
        )?;
        let (offsets, counts) = offsets_and_counts(&back, &batch.rows()[own]);
        Ok(Selected {
            masks,
            offsets,
            counts,
        })
    }
}

/// The bounds of each of so many outputs that a loop computes.
fn planned_bounds(of: &OutputPlan, outputs: usize) -> Vec<Option<Bounds>> {
    let mut bounds = vec![None; outputs];
    if let OutputPlan::Rows { loops, .. } = of {
        for (rows, indices) in loops {
            for (value, index) in rows.exprs.iter().zip(indices) {
                if let Some(bounds) = bounds.get_mut(*index) {
                    *bounds = Some(value.bounds);
                }
            }
        }
    }
    bounds
}

/// From the number of selected rows of each vector: how many are selected before each vector, and in each group.
pub(super) fn offsets_and_counts(passing: &DeviceBuffer, rows: &[usize]) -> (Vec<u64>, Vec<usize>) {
    let mut passing = passing.as_slice().as_chunks::<8>().0.iter();
    let mut sum = 0;
    let mut offsets = vec![];
    let counts = rows.iter().map(|rows| {
        let before = sum;
        for count in passing.by_ref().take(rows.div_ceil(VECTOR_LEN)) {
            offsets.push(sum);
            sum += u64::from_le_bytes(*count);
        }
        (sum - before) as usize
    });
    let counts = counts.collect();
    (offsets, counts)
}

/// The first row of each vector, where all rows of all groups are selected.
pub(super) fn first_rows(rows: &[usize]) -> Vec<u64> {
    let mut first = 0;
    let groups = rows.iter().flat_map(|rows| {
        let start = first;
        first += *rows as u64;
        (start..first).step_by(VECTOR_LEN)
    });
    groups.collect()
}

/// Bytes of a value in an output column.
pub(super) fn width_of(of: Type) -> usize {
    match of {
        Type::Bool | Type::I8 | Type::U8 => 1,
        Type::I16 | Type::U16 => 2,
        Type::I32 | Type::U32 | Type::F32 => 4,
        Type::I64 | Type::U64 | Type::F64 => 8,
        Type::I128 => 16,
    }
}

/// The Arrow type of an output column.
pub(super) fn arrow_type(of: Type) -> DataType {
    match of {
        Type::Bool => DataType::Boolean,
        Type::I8 => DataType::Int8,
        Type::I16 => DataType::Int16,
        Type::I32 => DataType::Int32,
        Type::I64 => DataType::Int64,
        Type::U8 => DataType::UInt8,
        Type::U16 => DataType::UInt16,
        Type::U32 => DataType::UInt32,
        Type::U64 => DataType::UInt64,
        Type::I128 => DataType::Decimal128(38, 0),
        Type::F32 => DataType::Float32,
        Type::F64 => DataType::Float64,
    }
}

/// Some rows of a column whose values and validity begin at these offsets of `back`.
pub(super) fn array_of(
    of: Type,
    nullable: bool,
    rows: Range<usize>,
    offsets: (usize, usize),
    back: Option<&Arc<DeviceBuffer>>,
) -> Result<ArrayRef> {
    let slice = |from: usize, width: usize| match back {
        Some(back) => back.buffer(from + rows.start * width..from + rows.end * width),
        None => Buffer::default(),
    };
    let bits =
        |bytes: Buffer| BooleanBuffer::collect_bool(bytes.len(), |row| bytes.as_slice()[row] != 0);
    let values = slice(offsets.0, width_of(of));
    let values = match of {
        Type::Bool => bits(values).into_inner(),
        _ => values,
    };
    let nulls = nullable.then(|| NullBuffer::new(bits(slice(offsets.1, 1))));
    let data = ArrayData::builder(arrow_type(of))
        .len(rows.len())
        .add_buffer(values)
        .nulls(nulls)
        .align_buffers(true)
        .build()
        .map_err(vectile_encodings::Error::from)?;
    Ok(make_array(data))
}
