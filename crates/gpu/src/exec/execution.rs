//! State of an execution: its pipeline, its results so far, and kernels for the current row groups.

use std::ops::{AddAssign, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;
use vectile_encodings::VECTOR_LEN;

use super::accumulator::PartialResult;
use super::code_tests::CodeTestResults;
use super::tables::LookupTables;
use crate::error::{Error, Result};
use crate::kernel::{
    AccumulationScope, Argument, Bindings, Facts, KernelPlan, SLOT_VECTORS, Task, plan,
};
use crate::program::{MOST_PROGRAM_WARPS, Program};
use crate::runtime::{Batch, Engine, Entries, Loaded, Tier};
use vectile_kernels::ColumnTraits;
use vectile_pipeline::{GroupKey, Lookup, Number, Output, Pipeline};

/// Vectors that one warp may take in a launch. A thread then sees at most 2^20 rows, the limit of accumulators.
pub(super) const VECTORS_PER_WARP: usize = 1 << 15;

/// Rows of a launch that groups: their number fits the counts of a block.
pub(super) const ROWS_AT_ONCE: u64 = 1 << 31;
/// Limit of the combinations of rows with their matches in a launch: a launch cannot be cancelled.
const MOST_COMBINATIONS: u64 = 1 << 37;
/// Most matches of a row that a program is run for: a warp goes on while one of its rows has some left.
const MOST_ROUNDS: u64 = 1 << 16;
/// Scratch memory of the interpreter takes at most this share of the memory for chunks.
const SCRATCH_SHARE: u64 = 16;
/// A group table takes at most this share of the memory for chunks.
pub(super) const TABLE_SHARE: u64 = 8;
/// A group table that stays on the device, from which a lookup is built, takes at most this share: there may be a
/// group for each key of a large table.
const STAYING_TABLE_SHARE: u64 = 3;

/// Times and transfers of an execution.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Time to generate code, and to load or compile kernels.
    pub compile: Duration,
    /// Kernels that were compiled: they were neither in memory nor on disk.
    pub kernels_compiled: usize,
    /// Launches of kernels for pipelines.
    pub launches: usize,
    /// Those of the interpreter among them.
    pub launches_interpreted: usize,
    /// Run time of kernels, by the device's clock.
    pub kernel: Duration,
    /// Bytes of the column chunks that kernels read.
    pub bytes_scanned: u64,
    /// Bytes copied back.
    pub bytes_returned: u64,
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        self.compile += other.compile;
        self.kernels_compiled += other.kernels_compiled;
        self.launches += other.launches;
        self.launches_interpreted += other.launches_interpreted;
        self.kernel += other.kernel;
        self.bytes_scanned += other.bytes_scanned;
        self.bytes_returned += other.bytes_returned;
    }
}

/// Execution of a pipeline. Calls block: do not call from an async runtime's threads.
#[derive(Debug)]
pub struct Execution {
    pub(super) engine: Arc<Engine>,
    pub(super) original: Arc<Pipeline>,
    /// The caller's pipeline, or for the current batch one with more columns: see [`Execution::with_codes`].
    pub(super) pipeline: Arc<Pipeline>,
    /// True if groups are returned in parts, which are read by as many threads.
    pub(super) has_parts: bool,
    /// True if the groups that were returned last come from one launch.
    pub(super) is_one_launch: bool,
    /// For each key of groups, the value of each code if the key is a function of text.
    pub(super) text_keys: Vec<Option<ArrayRef>>,
    /// For each aggregate of groups, the value of each rank if it is an extreme of text.
    pub(super) text_extremes: Vec<Option<ArrayRef>>,
    pub(super) results: Vec<PartialResult>,
    pub(super) statistics: Statistics,
    pub(super) most_groups: u64,
    /// True if groups are processed on the device before they are copied back.
    pub(super) groups_stay: bool,
    pub(super) may_compile: bool,
    may_interpret: bool,
    /// Threads that evaluate functions of text, and read groups.
    pub(super) threads: usize,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Rows of all batches, as far as that is known.
    rows: u64,
    /// Traits of all batches so far: a kernel that covers them all is often loaded already.
    seen: Vec<ColumnTraits>,
}

/// Keeps an execution going: once it is dropped, no more kernels are launched.
#[derive(Debug)]
pub struct CancelGuard(Arc<AtomicBool>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A plan, its arguments and the results of its code tests.
struct Planned {
    plan: KernelPlan,
    bindings: Bindings,
    code_tests: Vec<CodeTestResults>,
}

/// The kernel that runs a plan.
enum Choice {
    /// A generated one; true if it was compiled.
    Generated(Arc<Loaded>, bool),
    /// The interpreter.
    Interpreted {
        /// True if a generated kernel can be compiled, and would run instead.
        is_replaceable: bool,
    },
}

/// Everything a launch needs besides its row groups.
pub(super) struct Prepared {
    pub(super) plan: KernelPlan,
    pub(super) bindings: Bindings,
    pub(super) loaded: Arc<Loaded>,
    /// The plan of the generated kernel that would replace the interpreter.
    pub(super) replacement: Option<KernelPlan>,
    pub(super) grid: u32,
    /// Warps of a block.
    pub(super) warps_per_block: u32,
    /// For each code test, the words of the groups.
    pub(super) code_tests: Vec<CodeTestResults>,
    /// For each code test, the offset of its text table in the block's shared memory, if it is copied there.
    pub(super) text_at: Vec<Option<u64>>,
    /// Bytes of dynamic shared memory of a block.
    pub(super) shared_bytes: u32,
    /// For each table, the words of the groups.
    pub(super) tables: Vec<LookupTables>,
    /// For each key that is a dictionary entry, the entries.
    pub(super) entries: Vec<Arc<Entries>>,
    /// Upper bound of the groups; for hashed ones, entries of their table.
    pub(super) groups: u64,
    /// Sets of distinct values of the groups.
    pub(super) sets: Vec<PlacedSet>,
}

/// A set of distinct values in the memory of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlacedSet {
    pub(super) address: u64,
    /// Entries of its hash table, a power of two.
    pub(super) entries: u64,
}

impl Engine {
    /// Starts to execute a pipeline.
    pub fn start(self: &Arc<Self>, pipeline: Arc<Pipeline>) -> Execution {
        Execution::new(Arc::clone(self), pipeline)
    }
}

impl Execution {
    pub(crate) fn new(engine: Arc<Engine>, pipeline: Arc<Pipeline>) -> Self {
        Self {
            engine,
            original: Arc::clone(&pipeline),
            pipeline,
            has_parts: false,
            is_one_launch: false,
            text_keys: vec![],
            text_extremes: vec![],
            results: vec![],
            statistics: Statistics::default(),
            most_groups: u64::MAX,
            groups_stay: false,
            may_compile: true,
            may_interpret: true,
            threads: thread::available_parallelism().map_or(1, usize::from),
            cancelled: Arc::default(),
            rows: 0,
            seen: vec![],
        }
    }

    /// An execution of a pipeline over one of this execution's columns.
    pub(super) fn part(&self, pipeline: Arc<Pipeline>, column: usize) -> Self {
        Self {
            rows: self.rows,
            seen: self.seen.get(column).cloned().into_iter().collect(),
            ..self.next(pipeline)
        }
    }

    /// An execution over results that this one leaves on the device.
    pub(super) fn next(&self, pipeline: Arc<Pipeline>) -> Self {
        Self {
            may_compile: self.may_compile,
            may_interpret: self.may_interpret,
            threads: self.threads,
            cancelled: Arc::clone(&self.cancelled),
            ..Self::new(Arc::clone(&self.engine), pipeline)
        }
    }

    /// Announces the rows of all batches together: kernels are then reused more often.
    pub fn expect_rows(&mut self, rows: u64) {
        self.rows = rows;
    }

    /// Cancels the execution when the guard is dropped: the next launch, on any thread, returns [`Error::Cancelled`]
    /// instead.
    pub fn cancel_on_drop(&self) -> CancelGuard {
        CancelGuard(Arc::clone(&self.cancelled))
    }

    pub(super) fn check_cancelled(&self) -> Result<()> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Runs work on the device. Returns an error if the device is lost.
    pub(super) fn watch<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let engine = Arc::clone(&self.engine);
        engine.health().watch(|| work(self))
    }

    /// Makes [`Execution::group`] return an error if more groups, or a table of more entries, would be copied back:
    /// reading them takes memory of the host, and longer than the kernel.
    pub fn limit_groups(&mut self, most: u64) {
        self.most_groups = most;
    }

    /// Has groups returned in parts, which the threads read together: each part has other groups of a table.
    pub fn in_parts(&mut self) {
        self.has_parts = true;
    }

    /// Returns true if each of the groups that were returned last is there once: all come from one launch.
    pub fn groups_are_distinct(&self) -> bool {
        self.is_one_launch
    }

    /// Limits the threads that read groups and evaluate functions of text; without a limit, there is one for each core.
    pub fn limit_threads(&mut self, most: usize) {
        self.threads = most;
    }

    /// Limit of the bytes of a group table.
    pub(super) fn most_table_bytes(&self) -> u64 {
        let share = match self.groups_stay {
            true => STAYING_TABLE_SHARE,
            false => TABLE_SHARE,
        };
        self.engine.memory_limit() / share
    }

    /// Makes a kernel that is neither loaded nor on disk [`Error::NotCompiled`].
    pub fn without_compiler(&mut self) {
        self.may_compile = false;
    }

    /// Has a generated kernel compiled that is neither loaded nor on disk, instead of running the interpreter; after
    /// [`Execution::without_compiler`], it is [`Error::NotCompiled`]. The interpreter still runs what cannot be compiled.
    pub fn without_interpreter(&mut self) {
        self.may_interpret = false;
    }

    /// Statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Prepares a kernel for these row groups.
    pub(super) fn prepare(&mut self, batch: &Batch, task: Task) -> Result<Prepared> {
        self.check_cancelled()?;
        batch.check(&self.pipeline.columns, self.engine.pool())?;
        self.check_combinations(batch)?;
        let start = Instant::now();
        let (mut facts, entries) = self.facts(batch, task)?;
        facts.is_interpreted = self.engine.tier() == Tier::Interpreted;
        let mut planned = self.planned(batch, &facts, task)?;
        let mut replacement = None;
        let (loaded, compiled) = match self.kernel(&planned)? {
            Choice::Generated(loaded, compiled) => (loaded, compiled),
            Choice::Interpreted { is_replaceable } => {
                // blocks of the interpreter are smaller
                let mut own = None;
                if planned.plan.warps > MOST_PROGRAM_WARPS {
                    facts.is_interpreted = true;
                    own = Some(self.planned(batch, &facts, task)?);
                }
                match self.program(own.as_ref().unwrap_or(&planned)) {
                    Ok(loaded) => {
                        replacement = is_replaceable.then(|| planned.plan.clone());
                        planned = own.unwrap_or(planned);
                        (loaded, false)
                    }
                    Err(error) => self.without_program(&planned, error)?,
                }
            }
        };
        let Planned {
            plan,
            bindings,
            code_tests,
        } = planned;
        let tables = plan.tables.iter();
        let tables = tables
            .map(|of| LookupTables::of(of, &self.pipeline, &entries, batch, &self.engine))
            .collect::<Result<_>>()?;
        self.statistics.compile += start.elapsed();
        self.statistics.kernels_compiled += usize::from(compiled);
        let device = self.engine.device();
        let (warps_per_block, mut shared_bytes) = match &loaded.program {
            Some(program) => {
                let warps = program.warps_beside(bindings.block_bytes)?;
                (warps, bindings.block_bytes + warps * program.warp_bytes)
            }
            None => (plan.warps, bindings.shared_bytes(&plan)),
        };
        // with one block on each multiprocessor, loads from global memory are faster for most tests
        let most_shared = device.shared_memory / 2;
        let is_interpreted = loaded.program.is_some();
        let text_at = code_tests.iter().map(|code_tests| {
            // the interpreter reads them where they are
            if is_interpreted {
                return None;
            }
            let at = shared_bytes.next_multiple_of(16);
            let bytes = u32::try_from(code_tests.table_bytes()).ok();
            let end = bytes.and_then(|bytes| at.checked_add(bytes));
            shared_bytes = end.filter(|end| *end <= most_shared && *end > at)?;
            Some(at.into())
        });
        let text_at = text_at.collect();
        let resident = loaded
            .kernel
            .resident_blocks(warps_per_block * 32, shared_bytes)
            .max(1);
        let work = match plan.per {
            AccumulationScope::Slot => slots_of(batch.rows()),
            AccumulationScope::Warp | AccumulationScope::Block { .. } => vectors_of(batch.rows()),
        };
        let warps = warps_per_block as usize;
        let resident = device.multiprocessors.max(1) as usize * resident as usize;
        // no more blocks than vectors keep busy: each block's results have to be combined
        let mut grid = resident.min(work.div_ceil(warps).max(1));
        let mut needed = 1;
        if let AccumulationScope::Block { vectors_per_warp } = plan.per {
            // as many as needed, in whole waves
            needed = work.div_ceil(warps * vectors_per_warp);
            if needed > grid {
                grid = needed.next_multiple_of(resident);
            }
        }
        if let Some(program) = &loaded.program {
            grid = grid.min(self.most_blocks(program, warps)).max(needed);
        }
        let grid = grid.try_into().unwrap_or(u32::MAX);
        Ok(Prepared {
            groups: bindings.grouping.as_ref().map_or(0, |g| g.groups),
            sets: vec![PlacedSet::default(); bindings.sets.len()],
            plan,
            bindings,
            loaded,
            replacement,
            grid,
            warps_per_block,
            code_tests,
            text_at,
            shared_bytes,
            tables,
            entries,
        })
    }

    /// Plans a kernel, and evaluates its code tests.
    fn planned(&mut self, batch: &Batch, facts: &Facts, task: Task) -> Result<Planned> {
        let (mut plan, bindings) = self.plan(batch, facts, task)?;
        let mut code_tests = vec![];
        for (test, is_bitmap) in bindings.code_tests.iter().zip(&mut plan.bitmaps) {
            let limits = (self.threads, self.may_compile);
            let mut answer = CodeTestResults::of(test, batch, &self.engine, limits)?;
            *is_bitmap = !answer.are_ranges();
            if *is_bitmap {
                answer.make_bits();
            }
            code_tests.push(answer);
        }
        Ok(Planned {
            plan,
            bindings,
            code_tests,
        })
    }

    fn kernel(&self, planned: &Planned) -> Result<Choice> {
        let generated = || {
            let (loaded, compiled) = self.generated(&planned.plan)?;
            Ok(Choice::Generated(loaded, compiled))
        };
        let interpreted = |is_replaceable| Ok(Choice::Interpreted { is_replaceable });
        match self.engine.tier() {
            Tier::Interpreted => interpreted(false),
            Tier::Generated => generated(),
            Tier::Auto => match self.engine.find_kernel(&planned.plan) {
                Ok(loaded) => Ok(Choice::Generated(loaded, false)),
                // the others of a warp would wait for a row with many
                Err(_) if self.pipeline.most_matches() > MOST_ROUNDS => generated(),
                Err(Error::NotCompiled) if !self.may_interpret => generated(),
                Err(Error::NotCompiled) => interpreted(true),
                Err(Error::NoCompiler(_) | Error::Compile { .. }) => interpreted(false),
                Err(error) => Err(error),
            },
        }
    }

    fn generated(&self, plan: &KernelPlan) -> Result<(Arc<Loaded>, bool)> {
        match self.may_compile {
            true => self.engine.kernel(plan),
            false => Ok((self.engine.find_kernel(plan)?, false)),
        }
    }

    /// The interpreter with the program of a plan. It is compiled only if the tier is pinned: that takes longer than to
    /// compile a kernel.
    fn program(&self, planned: &Planned) -> Result<Arc<Loaded>> {
        let may_compile = self.may_compile && self.engine.tier() == Tier::Interpreted;
        let mut loaded = self.engine.interpreted(&planned.plan, may_compile)?;
        let constants = &planned.bindings.constants;
        let fits = |argument: &Argument| match argument {
            Argument::Fitting(constant) => i64::try_from(constants[*constant]).is_ok(),
            _ => true,
        };
        if !loaded.layout.arguments.iter().all(fits) {
            loaded = self.engine.wide_program(&planned.plan, &loaded)?;
        }
        if let Some(program) = &loaded.program {
            program.warps_beside(planned.bindings.block_bytes)?;
        }
        Ok(loaded)
    }

    /// The generated kernel of a plan that the interpreter does not run, for this reason.
    fn without_program(&self, planned: &Planned, reason: Error) -> Result<(Arc<Loaded>, bool)> {
        let is_pinned = self.engine.tier() == Tier::Interpreted;
        let is_known = matches!(
            reason,
            Error::Unsupported(_)
                | Error::Compile { .. }
                | Error::NotCompiled
                | Error::NoCompiler(_)
        );
        if is_pinned || !is_known {
            return Err(reason);
        }
        match self.generated(&planned.plan) {
            // another thread is loading the interpreter, which there is no other way than to wait for
            Err(Error::NoCompiler(_)) if matches!(reason, Error::NotCompiled) => {
                let loaded = self.engine.interpreted(&planned.plan, true)?;
                Ok((loaded, false))
            }
            other => other,
        }
    }

    /// The most blocks that scratch memory suffices for.
    fn most_blocks(&self, program: &Program, warps: usize) -> usize {
        let bytes = (program.scratch_bytes * warps) as u64;
        let share = self.engine.memory_limit() / SCRATCH_SHARE;
        let blocks = share.checked_div(bytes).unwrap_or(u64::MAX);
        usize::try_from(blocks).unwrap_or(usize::MAX).max(1)
    }

    /// Refuses a launch with too many combinations. They are counted unless the longest match lists rule that out.
    fn check_combinations(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.num_rows() as u64;
        let most = self.pipeline.most_matches();
        if rows.saturating_mul(most) <= MOST_COMBINATIONS {
            return Ok(());
        }
        let mut counting = self.next(Arc::new(self.pipeline.counting_matches()));
        let counted = counting.aggregate(batch);
        self.statistics += counting.statistics();
        let combinations = match counted {
            Ok(()) => match counting.totals().first().and_then(|total| total.value) {
                Some(Number::Int(count)) => u64::try_from(count).unwrap_or(u64::MAX),
                _ => 0,
            },
            Err(Error::Unsupported(_)) => rows.saturating_mul(most),
            Err(error) => return Err(error),
        };
        match combinations > MOST_COMBINATIONS {
            true => {
                let reason = format!("{rows} rows of {combinations} combinations of matches");
                Err(Error::Unsupported(reason))
            }
            false => Ok(()),
        }
    }

    /// Plans a kernel for the traits of this batch and those before it. If that is not possible, for this batch alone.
    fn plan(&mut self, batch: &Batch, facts: &Facts, task: Task) -> Result<(KernelPlan, Bindings)> {
        let columns = batch.columns().iter();
        let own: Vec<ColumnTraits> = columns.map(|column| column.traits.clone()).collect();
        let mut all = own.clone();
        let seen = all.iter_mut().zip(&self.seen);
        seen.for_each(|(all, seen)| all.merge(seen));
        match plan(&self.pipeline, &all, facts, task) {
            Ok(planned) => {
                self.seen = all;
                Ok(planned)
            }
            Err(_) if all != own => plan(&self.pipeline, &own, facts, task),
            Err(error) => Err(error),
        }
    }

    /// Facts about lookups and keys, except for code tests.
    fn facts(&self, batch: &Batch, task: Task) -> Result<(Facts, Vec<Arc<Entries>>)> {
        let lookups = self.pipeline.lookups.iter();
        let shares = lookups.clone().map(|lookup| {
            // sampled once: another sample might need another kernel
            lookup.key_table.share(|| share_of(lookup, batch))
        });
        let mut entries = vec![];
        if let (Output::Groups(keys, _), Task::Groups) = (&self.pipeline.output, task) {
            for key in keys {
                if let GroupKey::DictionaryValue(column) = key {
                    entries.push(batch.columns()[*column].entries()?);
                }
            }
        }
        let rows = self.rows.max(batch.num_rows() as u64);
        let rows = ROWS_AT_ONCE.min(rows.next_power_of_two());
        let facts = Facts {
            shares: shares.collect::<Result<_>>()?,
            bits: lookups
                .clone()
                .map(|lookup| lookup.key_table.bits_bytes())
                .collect(),
            hashed: lookups.map(|lookup| lookup.key_table.is_hashed()).collect(),
            entries: entries.iter().map(|of| of.count()).collect(),
            coded: entries.iter().map(|of| of.are_codes()).collect(),
            rows: match self.pipeline.combination_bits() {
                0 => rows.max(1 << 20),
                bits => rows
                    .max(1 << 20)
                    .saturating_mul(1 << bits.min(u64::BITS - 1))
                    .min(MOST_COMBINATIONS),
            },
            table_bytes: self.most_table_bytes(),
            shared_bytes: self.engine.device().shared_memory as usize,
            groups_stay: self.groups_stay,
            is_interpreted: false,
        };
        Ok((facts, entries))
    }
}

/// The estimated share of rows whose key matches, from samples of some row groups.
fn share_of(lookup: &Lookup, batch: &Batch) -> Result<f64> {
    let column_batch = batch.columns().get(lookup.column);
    let Some(sample) = column_batch.and_then(|column_batch| column_batch.sample()) else {
        return Ok(1.0);
    };
    let found = lookup.key_table.count_keys(sample)?;
    Ok(found as f64 / sample.len().max(1) as f64)
}

impl Prepared {
    /// Vectors that a warp may take in a launch.
    pub(super) fn vectors_per_warp(&self) -> usize {
        match self.plan.per {
            AccumulationScope::Block { vectors_per_warp } => vectors_per_warp,
            AccumulationScope::Warp | AccumulationScope::Slot => VECTORS_PER_WARP,
        }
    }

    pub(super) fn warps(&self) -> usize {
        self.grid as usize * self.warps_per_block as usize
    }
}

/// Slots of row groups, whose vectors are summed by themselves.
pub(super) fn slots_of(rows: &[usize]) -> usize {
    let slots = rows.iter();
    slots
        .map(|rows| rows.div_ceil(VECTOR_LEN * SLOT_VECTORS))
        .sum()
}

pub(super) fn vectors_of(rows: &[usize]) -> usize {
    rows.iter().map(|rows| rows.div_ceil(VECTOR_LEN)).sum()
}

/// Splits row groups into ranges of at most `most` vectors each.
pub(super) fn parts(rows: &[usize], most: usize) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut vectors) = (vec![], 0, 0);
    for (index, rows) in rows.iter().enumerate() {
        let own = rows.div_ceil(VECTOR_LEN);
        if vectors + own > most && index > start {
            parts.push(start..index);
            (start, vectors) = (index, 0);
        }
        vectors += own;
    }
    if start < rows.len() {
        parts.push(start..rows.len());
    }
    parts
}
