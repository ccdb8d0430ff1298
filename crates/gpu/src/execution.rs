//! A pipeline under way: kernels for the chunks at hand, launches, results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::ArrayData;
use arrow::array::{Array, ArrayRef, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use vectile_encodings::layout::alp_integers;
use vectile_encodings::{Selection, VECTOR_LEN};

use crate::codegen::{
    Argument, CodeTest, EntryTest, FIXED_ARGUMENTS, Fold, GROUP_WORDS, Generated, SLOT_VECTORS,
    Task, generate,
};
use crate::driver::{Kernel, Launch};
use crate::engine::{Engine, Group, Lane};
use crate::error::{Error, Result};
use crate::exact::ExactSum;
use crate::ir::{Filter, Number, Pipeline, Total, Type};
use crate::memory::Piece;
use crate::shape::{SCALES, Shape};

/// Vectors that one warp may take in a launch: a thread then sees at most 2^20 rows, which is what
/// accumulators are made for.
const VECTORS_PER_WARP: usize = 1 << 15;
/// Bytes of a vector's selection.
const MASK_BYTES: usize = VECTOR_LEN / 8;

/// Where the time of an execution went, and what it moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Generating code, and finding or compiling kernels.
    pub compile: Duration,
    /// Kernels that had to be compiled: in memory and on disk there was none.
    pub kernels_compiled: usize,
    /// Launches of generated kernels.
    pub launches: usize,
    /// Kernels at work, by the device's clock.
    pub kernel: Duration,
    /// Bytes of column chunks that kernels had before them.
    pub bytes_scanned: u64,
    /// Bytes copied back.
    pub bytes_returned: u64,
}

/// A pipeline under way. Calls block: not for an async runtime's threads.
#[derive(Debug)]
pub struct Execution {
    engine: Arc<Engine>,
    pipeline: Arc<Pipeline>,
    results: Vec<Part>,
    statistics: Statistics,
}

/// An aggregate so far.
#[derive(Clone, Debug)]
struct Part {
    count: u64,
    value: Option<Folded>,
}

/// What accumulators came to.
#[derive(Clone, Debug)]
enum Folded {
    Int(i128),
    /// An extreme.
    Float(f64),
    Sum(Box<ExactSum>),
}

impl Folded {
    fn number(&self) -> Number {
        match self {
            Self::Int(value) => Number::Int(*value),
            Self::Float(value) => Number::Float(*value),
            Self::Sum(sum) => Number::Float(sum.value()),
        }
    }
}

/// What a launch needs beside its groups.
struct Prepared {
    generated: Generated,
    kernel: Arc<dyn Kernel>,
    grid: u32,
    /// For each code test, what a group's word says.
    answers: Vec<Vec<Answer>>,
}

/// Which codes of a dictionary pass.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// Those from the first to the second; none if they cross.
    Range(u32, u32),
    /// Those with a bit.
    Bits(Arc<Vec<u32>>),
}

/// Words for the device, and where in them other words' addresses belong.
#[derive(Default)]
struct Parameters {
    bytes: Vec<u8>,
}

impl Parameters {
    fn place(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.bytes.len() as u64
    }

    fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
    }
}

impl Execution {
    pub(crate) fn new(engine: Arc<Engine>, pipeline: Arc<Pipeline>) -> Self {
        Self {
            engine,
            pipeline,
            results: vec![],
            statistics: Statistics::default(),
        }
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Aggregates more row groups, for [`Output::Aggregates`](crate::ir::Output::Aggregates).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with a reason, if there is no kernel for this pipeline over these
    /// chunks; those of the driver.
    pub fn aggregate(&mut self, groups: &[Group]) -> Result<()> {
        let groups = present(groups);
        if groups.is_empty() {
            return Ok(());
        }
        let prepared = self.prepare(&groups, Task::Totals)?;
        let mut lane = self.engine.lane()?;
        for part in parts(&groups, prepared.warps() * VECTORS_PER_WARP) {
            self.totals_of(&prepared, &groups, part, &mut lane)?;
        }
        self.engine.give_back(lane);
        Ok(())
    }

    fn totals_of(
        &mut self,
        prepared: &Prepared,
        groups: &[&Group],
        part: std::ops::Range<usize>,
        lane: &mut Lane,
    ) -> Result<()> {
        let accumulators = &prepared.generated.accumulators;
        let results = match prepared.generated.by_slot {
            true => slots_of(&groups[part.clone()]),
            false => prepared.warps(),
        };
        let out_bytes = results * accumulators.len() * 16;
        let back = self.run(prepared, groups, part, lane, |place| Outputs {
            out: place,
            bytes: out_bytes,
            back: 0..out_bytes,
            ..Outputs::default()
        })?;
        let back = back.bytes();
        let (words, _) = back.as_chunks::<16>();
        let folded: Vec<Folded> = accumulators
            .iter()
            .enumerate()
            .map(|(i, fold)| fold_words(*fold, words.iter().skip(i).step_by(accumulators.len())))
            .collect();
        for (index, result) in prepared.generated.results.iter().enumerate() {
            let count = match folded.get(result.count) {
                Some(Folded::Int(count)) => *count as u64,
                _ => 0,
            };
            let value = match (result.value, count) {
                (None, _) => Some(Folded::Int(i128::from(count))),
                (Some(_), 0) => None,
                (Some(at), _) => folded.get(at).map(|folded| match (result.key, folded) {
                    (Some(of), Folded::Int(key)) => Folded::Float(float_of(*key, of)),
                    _ => folded.clone(),
                }),
            };
            let fold = result.value.and_then(|at| accumulators.get(at)).copied();
            let new = Part { count, value };
            match self.results.get_mut(index) {
                Some(old) => old.combine(new, fold.unwrap_or(Fold::Count)),
                None => self.results.push(new),
            }
        }
        Ok(())
    }

    /// The results so far, one for each aggregate; none if no row group was aggregated.
    pub fn totals(&self) -> Vec<Total> {
        let total = |part: &Part| Total {
            count: part.count,
            value: part.value.as_ref().map(Folded::number),
        };
        self.results.iter().map(total).collect()
    }

    /// The selected rows of each row group, for
    /// [`Output::Selection`](crate::ir::Output::Selection).
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`].
    pub fn select(&mut self, groups: &[Group]) -> Result<Vec<Selection>> {
        let groups = groups.iter().collect::<Vec<_>>();
        let nonempty: Vec<&Group> = groups.iter().copied().filter(|g| g.rows > 0).collect();
        let mut selections = vec![];
        let mut masks: Vec<u8> = vec![];
        if !nonempty.is_empty() {
            let prepared = self.prepare(&nonempty, Task::Masks)?;
            let mut lane = self.engine.lane()?;
            for part in parts(&nonempty, prepared.warps() * VECTORS_PER_WARP) {
                let vectors = vectors_of(&nonempty[part.clone()]);
                let bytes = vectors * MASK_BYTES;
                let back = self.run(&prepared, &nonempty, part, &mut lane, |place| Outputs {
                    masks: place,
                    counts: place + bytes as u64,
                    bytes: bytes + vectors * 8,
                    clear: true,
                    back: 0..bytes,
                    ..Outputs::default()
                })?;
                masks.extend(back.bytes());
            }
            self.engine.give_back(lane);
        }
        let mut rest = masks.as_slice();
        for group in groups {
            let (own, others) = rest
                .split_at_checked(group.rows.div_ceil(VECTOR_LEN) * MASK_BYTES)
                .unwrap_or_default();
            rest = others;
            let bits = BooleanBuffer::new(Buffer::from_vec(own.to_vec()), 0, group.rows);
            let mut selection = Selection::all(0, group.rows);
            selection.and_boolean(&BooleanArray::new(bits, None));
            selections.push(selection);
        }
        Ok(selections)
    }

    /// The selected rows of all these row groups together, in order, for
    /// [`Output::Rows`](crate::ir::Output::Rows): their number, and an array for each expression, of
    /// the Arrow type of its machine type (`I128`: Decimal128(38, 0)).
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`].
    pub fn rows(&mut self, groups: &[Group]) -> Result<(usize, Vec<ArrayRef>)> {
        let groups = present(groups);
        if groups.is_empty() {
            return Ok((0, vec![]));
        }
        let (select, gather) = match self.pipeline.filter {
            Filter::Constant(true) => (None, self.prepare(&groups, Task::AllValues)?),
            _ => (
                Some(self.prepare(&groups, Task::Masks)?),
                self.prepare(&groups, Task::Values)?,
            ),
        };
        let warps = select.as_ref().map_or(usize::MAX, Prepared::warps);
        let warps = warps.min(gather.warps());
        let mut lane = self.engine.lane()?;
        let mut columns: Vec<Vec<ArrayRef>> = vec![];
        let mut rows = 0;
        for part in parts(&groups, warps * VECTORS_PER_WARP) {
            let (count, arrays) =
                self.rows_of(select.as_ref(), &gather, &groups, part, &mut lane)?;
            rows += count;
            columns.resize(arrays.len().max(columns.len()), vec![]);
            for (column, array) in columns.iter_mut().zip(arrays) {
                column.push(array);
            }
        }
        self.engine.give_back(lane);
        let joined = columns.into_iter().map(|arrays| match arrays.as_slice() {
            [one] => Ok(Arc::clone(one)),
            many => {
                let many: Vec<&dyn Array> = many.iter().map(|array| array.as_ref()).collect();
                arrow::compute::concat(&many)
            }
        });
        let joined = joined.collect::<Result<Vec<_>, _>>();
        Ok((rows, joined.map_err(vectile_encodings::Error::from)?))
    }

    /// The rows of some groups.
    fn rows_of(
        &mut self,
        select: Option<&Prepared>,
        gather: &Prepared,
        groups: &[&Group],
        part: std::ops::Range<usize>,
        lane: &mut Lane,
    ) -> Result<(usize, Vec<ArrayRef>)> {
        let selected = match select {
            Some(select) => Some(self.selected(select, groups, part.clone(), lane)?),
            None => None,
        };
        let rows = match &selected {
            Some(selected) => selected.rows,
            None => groups[part.clone()].iter().map(|group| group.rows).sum(),
        };
        let outputs = &gather.generated.outputs;
        let mut out_bytes = 0usize;
        let mut spans = vec![];
        for (of, nullable) in outputs {
            let width = width_of(*of) * rows;
            let values = out_bytes..out_bytes + width;
            out_bytes = values.end.next_multiple_of(256);
            let nulls = out_bytes..out_bytes + if *nullable { rows } else { 0 };
            out_bytes = nulls.end.next_multiple_of(256);
            spans.push((values, nulls));
        }
        if rows == 0 {
            let empty = outputs
                .iter()
                .map(|(of, _)| arrow::array::new_empty_array(&arrow_type(*of)));
            return Ok((0, empty.collect()));
        }
        let result = self.engine.pool().take(out_bytes + outputs.len() * 16)?;
        let addresses: Vec<u64> = spans
            .iter()
            .flat_map(|(values, nulls)| [values.start, nulls.start])
            .map(|at| result.address() + at as u64)
            .collect();
        let table = result.address() + out_bytes as u64;
        let words: Vec<u8> = addresses.iter().flat_map(|a| a.to_le_bytes()).collect();
        let staging = lane.staging(&self.engine, words.len())?;
        staging[..words.len()].copy_from_slice(&words);
        let from = staging.as_ptr();
        // SAFETY: both are as long as needed and live until the stream is done, just below.
        unsafe { lane.stream.copy_in(table, from, words.len())? };
        lane.stream.synchronize()?;
        let (masks, places) = selected.as_ref().map_or((0, 0), |s| (s.masks, s.places));
        let back = self.run(gather, groups, part, lane, |_| Outputs {
            out: table,
            masks,
            counts: places,
            outside: Some((result.address(), out_bytes)),
            keep: true,
            ..Outputs::default()
        })?;
        let back = match back {
            Back::Copied(bytes) => Buffer::from_vec(bytes),
            Back::Kept(piece) => piece.into_buffer(out_bytes),
        };
        let arrays = outputs
            .iter()
            .zip(spans)
            .map(|((of, nullable), (values, nulls))| {
                let nulls = nullable.then(|| {
                    let valid = back[nulls].iter().map(|valid| *valid != 0);
                    NullBuffer::from(valid.collect::<Vec<bool>>())
                });
                array_of(
                    *of,
                    rows,
                    back.slice_with_length(values.start, values.len()),
                    nulls,
                )
            });
        Ok((rows, arrays.collect::<Result<_>>()?))
    }

    /// Which rows of some groups pass, and where each vector's first one belongs.
    fn selected(
        &mut self,
        select: &Prepared,
        groups: &[&Group],
        part: std::ops::Range<usize>,
        lane: &mut Lane,
    ) -> Result<Selected> {
        let vectors = vectors_of(&groups[part.clone()]);
        let mask_bytes = vectors * MASK_BYTES;
        let memory = self.engine.pool().take(mask_bytes + vectors * 8)?;
        let (masks, places) = (memory.address(), memory.address() + mask_bytes as u64);
        // SAFETY: the piece has that many bytes, and lives until the stream is done.
        unsafe { lane.stream.fill(masks, 0, mask_bytes + vectors * 8)? };
        let counts = self.run(select, groups, part, lane, |_| Outputs {
            masks,
            counts: places,
            outside: Some((places, vectors * 8)),
            ..Outputs::default()
        })?;
        let counts = counts.bytes();
        let mut rows = 0u64;
        let staging = lane.staging(&self.engine, counts.len())?;
        let firsts = staging.as_chunks_mut::<8>().0.iter_mut();
        for (first, count) in firsts.zip(counts.as_chunks::<8>().0) {
            *first = rows.to_le_bytes();
            rows += u64::from_le_bytes(*count);
        }
        let from = staging.as_ptr();
        // SAFETY: both are as long as needed and live until the stream is done, just below.
        unsafe { lane.stream.copy_in(places, from, counts.len())? };
        lane.stream.synchronize()?;
        Ok(Selected {
            _memory: memory,
            masks,
            places,
            rows: usize::try_from(rows)
                .map_err(|_| Error::Unsupported("more rows than memory".into()))?,
        })
    }

    /// Makes a kernel for these groups.
    fn prepare(&mut self, groups: &[&Group], task: Task) -> Result<Prepared> {
        let start = Instant::now();
        let shapes = shapes_of(&self.pipeline, groups)?;
        let mut generated = generate(&self.pipeline, &shapes, &[], task)?;
        let mut answers = vec![];
        for test in &generated.code_tests {
            answers.push(answers_of(test, groups)?);
        }
        let is_range = |answers: &Vec<Answer>| {
            let mut answers = answers.iter();
            answers.all(|answer| matches!(answer, Answer::Range(..)))
        };
        let ranges: Vec<bool> = answers.iter().map(is_range).collect();
        if ranges.contains(&false) {
            generated = generate(&self.pipeline, &shapes, &ranges, task)?;
            for (answers, groups_tests) in answers.iter_mut().zip(&generated.code_tests) {
                if !is_range(answers) {
                    let codes = |group: &&Group| group.columns[groups_tests.column].codes();
                    let pairs = answers.iter_mut().zip(groups);
                    pairs.for_each(|(answer, group)| answer.as_bits(codes(group)));
                }
            }
        }
        let (kernel, compiled) = self.engine.kernel(&generated)?;
        self.statistics.compile += start.elapsed();
        self.statistics.kernels_compiled += usize::from(compiled);
        let device = self.engine.device();
        let resident = kernel
            .resident_blocks(generated.threads, generated.shared)
            .max(1);
        // no more blocks than vectors keep busy: each block's results have to be combined
        let work = match generated.by_slot {
            true => slots_of(groups),
            false => vectors_of(groups),
        };
        let busy = work.div_ceil(generated.threads as usize / 32).max(1);
        let grid =
            (device.multiprocessors.max(1) * resident).min(busy.try_into().unwrap_or(u32::MAX));
        Ok(Prepared {
            generated,
            kernel,
            grid,
            answers,
        })
    }

    /// Launches a kernel over some of the groups, and copies back what `outputs` says. It gets the
    /// address of memory that it can have as much of as it asks for.
    fn run(
        &mut self,
        prepared: &Prepared,
        groups: &[&Group],
        part: std::ops::Range<usize>,
        lane: &mut Lane,
        outputs: impl Fn(u64) -> Outputs,
    ) -> Result<Back> {
        let slots = GROUP_WORDS + self.pipeline.columns.len() + prepared.answers.len();
        // sizes first: addresses follow from the memory that they need
        let size = outputs(0).bytes;
        let mut parameters = Parameters::default();
        let groups_at = parameters.place();
        let count = part.len();
        parameters.bytes.resize(count * slots * 8, 0);
        let mut tables = vec![];
        for argument in &prepared.generated.arguments {
            if let Argument::Scales { column, low, high } = argument {
                tables.push(parameters.place());
                scales(
                    &mut parameters,
                    &self.pipeline,
                    groups,
                    *column,
                    *low,
                    *high,
                )?;
            }
        }
        let mut bit_tables: Vec<(Arc<Vec<u32>>, u64)> = vec![];
        for answers in &prepared.answers {
            for answer in &answers[part.clone()] {
                if let Answer::Bits(bits) = answer
                    && !bit_tables.iter().any(|(known, _)| Arc::ptr_eq(known, bits))
                {
                    let place = parameters.place();
                    bits.iter()
                        .for_each(|w| parameters.bytes.extend(w.to_le_bytes()));
                    bit_tables.push((Arc::clone(bits), place));
                }
            }
        }
        let out_at = parameters.place().next_multiple_of(256);
        let scratch = lane.scratch(&self.engine, out_at as usize + size)?;
        let outputs = outputs(scratch + out_at);
        let unit = match prepared.generated.by_slot {
            true => VECTOR_LEN * SLOT_VECTORS,
            false => VECTOR_LEN,
        };
        let (mut first, mut first_row) = (0u64, 0u64);
        let mut words = Vec::with_capacity(count * slots * 8);
        let range = part.clone();
        for index in part {
            let group = groups[index];
            words.extend(first.to_le_bytes());
            words.extend((group.rows as u64).to_le_bytes());
            words.extend(first_row.to_le_bytes());
            first_row += group.rows as u64;
            for column in &group.columns {
                words.extend(column.address().to_le_bytes());
                self.statistics.bytes_scanned += column.bytes() as u64;
            }
            for answers in &prepared.answers {
                let word = match &answers[index] {
                    Answer::Range(low, high) => u64::from(*low) | u64::from(*high) << 32,
                    Answer::Bits(bits) => {
                        let known = bit_tables
                            .iter()
                            .find(|(known, _)| Arc::ptr_eq(known, bits));
                        scratch + known.map_or(0, |(_, place)| *place)
                    }
                };
                words.extend(word.to_le_bytes());
            }
            first += group.rows.div_ceil(unit) as u64;
        }
        parameters.bytes[..words.len()].copy_from_slice(&words);
        let mut args = vec![
            first,
            scratch + groups_at,
            count as u64,
            outputs.out,
            outputs.masks,
            outputs.counts,
        ];
        debug_assert_eq!(args.len(), FIXED_ARGUMENTS);
        let mut tables = tables.into_iter();
        for argument in &prepared.generated.arguments {
            args.push(match argument {
                Argument::Word(word) => *word,
                Argument::Scales { .. } => scratch + tables.next().unwrap_or(0),
            });
        }
        let (from, len) = match &outputs.outside {
            Some((from, len)) => (*from, *len),
            None => (
                scratch + out_at + outputs.back.start as u64,
                outputs.back.len(),
            ),
        };
        let sent = parameters.bytes.len();
        let back_at = sent.next_multiple_of(256);
        // arrays keep what comes back: without a copy, and without new pages from the system
        let kept = match outputs.keep {
            true => Some(self.engine.host_pool().take(len)?),
            false => None,
        };
        let room = if kept.is_some() { 0 } else { len };
        let staging = lane.staging(&self.engine, back_at + room)?;
        staging[..sent].copy_from_slice(&parameters.bytes);
        let pinned = staging.as_mut_ptr();
        let to = match &kept {
            Some(piece) => piece.address() as *mut u8,
            // SAFETY: within the staging memory.
            None => unsafe { pinned.add(back_at) },
        };
        let launch = Launch {
            grid: prepared.grid,
            block: prepared.generated.threads,
            shared: prepared.generated.shared,
            args: &args,
        };
        let chunks = groups[range].iter().flat_map(|group| &group.columns);
        self.engine.wait_for(lane.stream.as_mut(), chunks)?;
        let stream = &mut lane.stream;
        // SAFETY: scratch and staging are as long as asked for and live in the lane, and chunks in
        // `groups`, until the stream is done below. The kernel was generated for these arguments:
        // columns of these shapes, tables and outputs of these sizes.
        let marks = unsafe {
            stream.copy_in(scratch, pinned, sent)?;
            if outputs.clear {
                stream.fill(scratch + out_at, 0, outputs.bytes)?;
            }
            let start = stream.mark()?;
            stream.launch(prepared.kernel.as_ref(), launch)?;
            let end = stream.mark()?;
            stream.copy_out(to, from, len)?;
            (start, end)
        };
        stream.synchronize()?;
        let time = stream.elapsed(&marks.0, &marks.1)?;
        let time = Duration::from_secs_f64((time / 1e3).max(0.0));
        self.statistics.kernel += time;
        self.statistics.launches += 1;
        self.statistics.bytes_returned += len as u64;
        Ok(match kept {
            Some(piece) => Back::Kept(piece),
            None => {
                let staging = lane.staging(&self.engine, back_at + len)?;
                Back::Copied(staging[back_at..back_at + len].to_vec())
            }
        })
    }
}

/// Which rows pass, on the device.
struct Selected {
    _memory: Piece,
    masks: u64,
    places: u64,
    rows: usize,
}

/// Where a kernel writes, and what of it comes back.
#[derive(Default)]
struct Outputs {
    out: u64,
    masks: u64,
    counts: u64,
    /// Bytes of scratch memory that it needs, to be filled with zeros if `clear`.
    bytes: usize,
    clear: bool,
    /// Which of them to copy back.
    back: std::ops::Range<usize>,
    /// Memory elsewhere to copy back instead.
    outside: Option<(u64, usize)>,
    /// Whether to copy it to memory of its own, for arrays to keep.
    keep: bool,
}

/// What came back.
enum Back {
    Copied(Vec<u8>),
    Kept(Piece),
}

impl Back {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Kept(_) => vec![],
        }
    }
}

impl Prepared {
    fn warps(&self) -> usize {
        self.grid as usize * self.generated.threads as usize / 32
    }
}

impl Part {
    fn combine(&mut self, other: Self, fold: Fold) {
        use Folded::{Float, Int, Sum};
        self.count += other.count;
        self.value = match (self.value.take(), other.value) {
            (Some(Int(a)), Some(Int(b))) => Some(Int(match fold {
                Fold::Min => a.min(b),
                Fold::Max => a.max(b),
                Fold::Count | Fold::SumInt | Fold::SumFloat => a.wrapping_add(b),
            })),
            (Some(Float(a)), Some(Float(b))) => Some(Float(match fold {
                Fold::Min if b.total_cmp(&a).is_lt() => b,
                Fold::Max if b.total_cmp(&a).is_gt() => b,
                _ => a,
            })),
            (Some(Sum(mut a)), Some(Sum(b))) => {
                a.merge(&b);
                Some(Sum(a))
            }
            (a, b) => a.or(b),
        };
    }
}

fn fold_words<'a>(fold: Fold, words: impl Iterator<Item = &'a [u8; 16]>) -> Folded {
    let ints = words.map(|word| i128::from_le_bytes(*word));
    match fold {
        Fold::Count | Fold::SumInt => Folded::Int(ints.fold(0, i128::wrapping_add)),
        Fold::SumFloat => {
            let mut sum = Box::<ExactSum>::default();
            ints.for_each(|word| sum.add(f64::from_bits(word as u64)));
            Folded::Sum(sum)
        }
        Fold::Min => Folded::Int(ints.min().unwrap_or(0)),
        Fold::Max => Folded::Int(ints.max().unwrap_or(0)),
    }
}

/// The float with that place in the total order.
fn float_of(key: i128, of: Type) -> f64 {
    match of {
        Type::F32 => {
            let key = key as i32;
            f64::from(f32::from_bits(
                (key ^ ((key >> 31) as u32 >> 1) as i32) as u32,
            ))
        }
        _ => {
            let key = key as i64;
            f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
        }
    }
}

/// Row groups with rows.
fn present(groups: &[Group]) -> Vec<&Group> {
    groups.iter().filter(|group| group.rows > 0).collect()
}

/// Slots of row groups, whose vectors are summed by themselves.
fn slots_of(groups: &[&Group]) -> usize {
    let slots = |group: &&Group| group.rows.div_ceil(VECTOR_LEN * SLOT_VECTORS);
    groups.iter().map(slots).sum()
}

fn vectors_of(groups: &[&Group]) -> usize {
    groups.iter().map(|g| g.rows.div_ceil(VECTOR_LEN)).sum()
}

/// Runs of groups of at most `most` vectors together.
fn parts(groups: &[&Group], most: usize) -> Vec<std::ops::Range<usize>> {
    let (mut parts, mut start, mut vectors) = (vec![], 0, 0);
    for (index, group) in groups.iter().enumerate() {
        let own = group.rows.div_ceil(VECTOR_LEN);
        if vectors + own > most && index > start {
            parts.push(start..index);
            (start, vectors) = (index, 0);
        }
        vectors += own;
    }
    if start < groups.len() {
        parts.push(start..groups.len());
    }
    parts
}

/// What occurs in each column.
fn shapes_of(pipeline: &Pipeline, groups: &[&Group]) -> Result<Vec<Shape>> {
    let mut shapes: Vec<Shape> = vec![Shape::default(); pipeline.columns.len()];
    for group in groups {
        if group.columns.len() != shapes.len() {
            let reason = format!(
                "{} columns where {} belong",
                group.columns.len(),
                shapes.len()
            );
            return Err(Error::Unsupported(reason));
        }
        for (shape, column) in shapes.iter_mut().zip(&group.columns) {
            if column.rows() != group.rows {
                let reason = format!("a column of {} rows, of {}", column.rows(), group.rows);
                return Err(Error::Unsupported(reason));
            }
            shape.merge(column.shape());
        }
    }
    Ok(shapes)
}

/// What a test says of the codes of each group.
fn answers_of(test: &CodeTest, groups: &[&Group]) -> Result<Vec<Answer>> {
    let mut known: Vec<(&ArrayRef, Answer)> = vec![];
    let mut answers = Vec::with_capacity(groups.len());
    for group in groups {
        let Some(entries) = group.columns[test.column].entries() else {
            answers.push(Answer::Range(1, 0));
            continue;
        };
        let same = known
            .iter()
            .rev()
            .find(|(array, _)| Arc::ptr_eq(array, entries));
        if let Some((_, answer)) = same {
            answers.push(answer.clone());
            continue;
        }
        let passed = match &test.test {
            EntryTest::Predicate(predicate) => predicate.evaluate(entries)?,
            EntryTest::Values(test) => (test.0)(entries)?,
        };
        if passed.len() != entries.len() {
            let reason = format!("a test gave {} results for {}", passed.len(), entries.len());
            return Err(Error::Unsupported(reason));
        }
        let answer = Answer::of(&passed);
        known.push((entries, answer.clone()));
        answers.push(answer);
    }
    Ok(answers)
}

impl Answer {
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
        Self::Bits(Arc::new(bits))
    }

    /// As bits, for `codes` codes.
    fn as_bits(&mut self, codes: usize) {
        // kernels look up 1024 codes from any on, at no word of which they may be beyond the end
        let words = codes.div_ceil(32) + 33;
        match self {
            Self::Range(low, high) => {
                let mut bits = vec![0u32; words.max(*high as usize / 32 + 1)];
                (*low..=*high).for_each(|code| bits[code as usize / 32] |= 1 << (code % 32));
                *self = Self::Bits(Arc::new(bits));
            }
            Self::Bits(bits) if bits.len() < words => {
                let mut longer = bits.as_ref().clone();
                longer.resize(words, 0);
                *self = Self::Bits(Arc::new(longer));
            }
            Self::Bits(_) => {}
        }
    }
}

/// Appends the range of integers for each scale.
fn scales(
    parameters: &mut Parameters,
    pipeline: &Pipeline,
    groups: &[&Group],
    column: usize,
    low: i64,
    high: i64,
) -> Result<()> {
    let single = pipeline.columns[column] == DataType::Float32;
    let mut used = Shape::default();
    for group in groups {
        let scales = &group.columns[column].shape().scales;
        scales.iter().for_each(|scale| used.scale(*scale));
    }
    let mut table = vec![(1i64, 0i64); SCALES];
    for scale in used.scales {
        let (exponent, factor) = ((scale / 19) as u8, (scale % 19) as u8);
        if let Some(range) = alp_integers(single, exponent, factor, low, high)? {
            table[usize::from(scale)] = range;
        }
    }
    for (first, last) in table {
        parameters.word(first as u64);
        parameters.word(last as u64);
    }
    Ok(())
}

/// Bytes of a value in an output column.
fn width_of(of: Type) -> usize {
    match of {
        Type::Bool | Type::I8 | Type::U8 => 1,
        Type::I16 | Type::U16 => 2,
        Type::I32 | Type::U32 | Type::F32 => 4,
        Type::I64 | Type::U64 | Type::F64 => 8,
        Type::I128 => 16,
    }
}

/// The Arrow type of an output column.
fn arrow_type(of: Type) -> DataType {
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

fn array_of(of: Type, rows: usize, values: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let values = match of {
        Type::Bool => values
            .iter()
            .map(|value| *value != 0)
            .collect::<BooleanBuffer>()
            .into_inner(),
        _ => values,
    };
    let data = ArrayData::builder(arrow_type(of))
        .len(rows)
        .add_buffer(values)
        .nulls(nulls)
        .align_buffers(true)
        .build()
        .map_err(vectile_encodings::Error::from)?;
    Ok(make_array(data))
}
