//! Estimates the time of a query on the CPU and on the GPU, for `auto`.
//!
//! Estimates start from constants measured on servers, corrected by times of queries on this machine. A query that has
//! run is estimated by its own times. Measurements are stored beside the kernels for later processes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::Sum;
use std::ops::Add;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fs, thread};

use datafusion::execution::TaskContext;
use tokio::runtime::Handle;

/// The work of an aggregate or join.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Rows of the scanned table.
    pub(crate) rows: u64,
    /// Columns read of it.
    pub(crate) columns: usize,
    /// Number of joined tables.
    pub(crate) joins: usize,
    /// Group keys and aggregates: values that each row which passes the table's filters updates or looks up.
    pub(crate) states: usize,
    /// Selectivity of the filters, without joins.
    pub(crate) passing: f64,
    /// Bytes of its columns in the files.
    pub(crate) bytes: u64,
    /// Bytes of output rows, if it is a join.
    pub(crate) returned: u64,
    /// True if DataFusion's operators or a scan run it on the CPU, and no program.
    pub(crate) is_for_operators: bool,
    /// Strings of keys without a dictionary, if known. The GPU numbers them after loading.
    pub(crate) strings: u64,
}

/// Preparation that the GPU still needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    /// Bytes of columns that are not on the device.
    pub(crate) bytes: u64,
    /// Build sides without tables.
    pub(crate) builds: Builds,
    /// The generated kernel, and what runs instead.
    pub(crate) kernel: MissingKernel,
    /// True if the device has to be opened.
    pub(crate) device: bool,
}

/// Build sides whose tables are to be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Builds {
    /// Their number.
    pub(crate) count: u64,
    /// Those whose tables are kept for later queries.
    pub(crate) kept: u64,
    /// Rows that the CPU reads for them.
    pub(crate) rows: u64,
    /// Rows that the device reads for them.
    pub(crate) rows_on_device: u64,
}

/// State of the generated kernel of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MissingKernel {
    /// It is there.
    #[default]
    Nothing,
    /// It is not there: the interpreter runs.
    Interpreted,
    /// It is not there, and neither is the interpreter: it is compiled.
    Compiled,
}

/// How the device ran a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// By generated kernels only.
    Generated,
    /// Some of it by the interpreter.
    Interpreted,
}

/// Expected times of a query if the device is ready, for `EXPLAIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) cpu: Duration,
    generated: Duration,
    interpreted: Duration,
}

/// Estimated times of a query on CPU and GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) cpu: Duration,
    pub(crate) gpu: Duration,
}

impl Estimate {
    /// True if the CPU is estimated to be faster.
    pub(crate) fn is_for_cpu(&self) -> bool {
        self.cpu < self.gpu
    }

    /// True if the GPU failed at the query.
    pub(crate) fn is_refused(&self) -> bool {
        self.gpu >= NEVER
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {:.1} ms, GPU {:.1} ms", ms(self.cpu), ms(self.gpu))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cpu, generated, interpreted] = [self.cpu, self.generated, self.interpreted].map(ms);
        write!(
            f,
            "CPU {cpu:.1} ms, GPU {generated:.1} ms, interpreted {interpreted:.1} ms"
        )
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Builds {
    /// One build side, of which the device or the CPU reads so many rows; its tables may be kept for later queries.
    pub(crate) fn one(rows: u64, is_on_device: bool, is_kept: bool) -> Self {
        let on_device = if is_on_device { rows } else { 0 };
        Self {
            count: 1,
            kept: is_kept.into(),
            rows: rows - on_device,
            rows_on_device: on_device,
        }
    }

    /// True if there is none.
    pub(crate) fn is_empty(self) -> bool {
        self.count == 0
    }
}

impl Sum for Builds {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Add for Builds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kept: self.kept.saturating_add(other.kept),
            count: self.count.saturating_add(other.count),
            rows: self.rows.saturating_add(other.rows),
            rows_on_device: self.rows_on_device.saturating_add(other.rows_on_device),
        }
    }
}

impl Missing {
    /// True if the device has the columns, and the tables that are kept there.
    pub(crate) fn is_loaded(&self) -> bool {
        self.bytes == 0 && self.builds.kept == 0
    }

    /// Seconds until all of it is there, but for the kernel.
    fn seconds(&self, work: Work, load_rate: f64) -> f64 {
        let when = |is_missing: bool, seconds: f64| if is_missing { seconds } else { 0.0 };
        self.bytes as f64 / load_rate
            + when(self.bytes > 0, work.strings as f64 * NUMBER_STRING)
            + self.builds.count as f64 * BUILD_START
            + self.builds.rows as f64 * BUILD_ROW
            + self.builds.rows_on_device as f64 * BUILD_ROW_ON_DEVICE
            + when(self.device, OPEN)
    }
}

/// Seconds on one CPU core.
struct CpuRates {
    /// For a value of a column.
    value: f64,
    /// For a join lookup of a row.
    lookup: f64,
    /// For adding a row to the state of an aggregate.
    state: f64,
}

/// Programs: they fit SSB at scale factor 20 and TPC-H at 10 on 16 cores within a factor of 2.
const PROGRAMS: CpuRates = CpuRates {
    value: 0.6e-9,
    lookup: 1.8e-9,
    state: 1e-9,
};
/// DataFusion's operators, and scans.
const OPERATORS: CpuRates = CpuRates {
    value: 2e-9,
    lookup: 8e-9,
    state: 10e-9,
};
/// Fixed seconds for a query, on CPU and GPU.
const CPU_START: f64 = 0.5e-3;
const GPU_START: f64 = 1.5e-3;
/// Bytes of columns that a generated kernel and the interpreter read in a second. Kernels of SSB took 2.9 times as long by
/// the interpreter on an H100.
const GPU_RATE: f64 = 1e12;
const INTERPRETED_RATE: f64 = 0.35e12;
/// Fixed seconds to make the programs of a query: a guess.
const INTERPRETED_START: f64 = 1e-3;
/// Bytes of output rows copied back and put into batches in a second: a guess.
const RETURN_RATE: f64 = 4e9;
/// Fixed seconds for the tables of a build side. Lookups of SSB queries at scale factor 20 took so long on an H100.
const BUILD_START: f64 = 1.5e-3;
/// Seconds to read a row for a build side and to add it to a table, by the CPU, and by the device, which is a guess.
const BUILD_ROW: f64 = 20e-9;
const BUILD_ROW_ON_DEVICE: f64 = 0.5e-9;
/// Seconds to number a string. First queries over 30 million of them took 3 to 7 ns a string on an H200, including
/// loading.
const NUMBER_STRING: f64 = 5e-9;
/// Seconds to open a device.
const OPEN: f64 = 0.3;
/// Bytes loaded in a second per core, and seconds to compile a kernel, until measured.
const LOAD_RATE: f64 = 600e6;
const COMPILE: f64 = 0.6;
/// Limit of the ratio of a measured time to an expected one, and of its inverse.
const MOST_RATIO: f64 = 20.0;
/// Weight of a new measurement in the moving average.
const NEW_SHARE: f64 = 0.3;
/// A GPU time is forgotten after this many runs on the CPU, and a CPU time after the device was opened this many times
/// for the query, so that they are measured anew: the GPU may have been busy, or the file on a slow disk.
const MOST_ON_CPU: usize = 16;
const MOST_OPENED: usize = 8;
/// Ratio by which a time has to change to be stored for later processes.
const OTHER_TIME: f64 = 1.25;
/// Ratio by which the CPU's speed has to change for queries to be planned anew.
const OTHER_OUTLOOK: f64 = 1.5;
/// The GPU's time for a query that it cannot run.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of queries with stored times.
const MOST_QUERIES: usize = 1024;
/// Maximum number of columns that are known to have been read.
const MOST_COLUMNS: usize = 4096;

/// Identifies a column of a table: a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnId(pub(crate) u64);

/// A column that the CPU has read.
#[derive(Debug)]
struct ReadColumn {
    id: ColumnId,
    /// The context of the query that has read it, if no other has. Its memory is not used for another one meanwhile.
    by: Option<Weak<TaskContext>>,
}

/// Measured costs of queries.
#[derive(Debug)]
pub(crate) struct Costs {
    measured: Arc<Mutex<Measured>>,
    /// Name under which they are stored for later processes.
    name: Option<String>,
    /// Held while they are stored.
    storing: Arc<Mutex<()>>,
    /// True if they are about to be stored.
    is_due: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Measured {
    /// Measured CPU time relative to the constants.
    cpu: f64,
    /// Value of `cpu` when it last changed `outlook`.
    cpu_before: f64,
    /// See [`Costs::outlook`].
    outlook: u64,
    /// True if this machine's devices had the interpreter when they were last opened.
    has_interpreter: bool,
    /// Bytes loaded in a second per core.
    load: f64,
    /// Seconds to compile a kernel.
    compile: f64,
    /// By the hash of the query's identity.
    queries: HashMap<u64, QueryTimes>,
    /// Columns that queries have read on the CPU, the last one last.
    columns: VecDeque<ReadColumn>,
}

/// Times of a query's last runs. GPU times count only if nothing had to be loaded or compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct QueryTimes {
    cpu: Option<Duration>,
    generated: Option<Duration>,
    interpreted: Option<Duration>,
    /// Runs on the CPU since the last one on the GPU.
    on_cpu: usize,
    /// As `on_cpu`, but not ended by forgetting: runs that a generated kernel may have made faster.
    runs: usize,
    /// How often the device was opened for it since it ran on the CPU.
    opened: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            measured: Arc::new(Mutex::new(Measured {
                cpu: 1.0,
                cpu_before: 1.0,
                outlook: 0,
                has_interpreter: false,
                load: LOAD_RATE,
                compile: COMPILE,
                queries: HashMap::new(),
                columns: VecDeque::new(),
            })),
            name: None,
            storing: Arc::default(),
            is_due: Arc::default(),
        }
    }
}

impl Costs {
    /// The costs that earlier processes measured on this machine.
    pub(crate) fn of_machine() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // several machines may share a user's directory
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = format!("costs 3 {cores} {}", host.trim());
        let mut costs = Self::default();
        if let Some(kept) = vectile_gpu::kept(&name) {
            costs.measured().read(&String::from_utf8_lossy(&kept));
        }
        costs.measured().has_interpreter |= vectile_gpu::Precompiled::are_there();
        costs.name = Some(name);
        costs
    }

    /// Estimates `work` on `cores` cores. Measured times of `query` take precedence.
    pub(crate) fn estimate(
        &self,
        query: Option<&str>,
        work: Work,
        missing: Missing,
        cores: usize,
    ) -> Estimate {
        let measured = self.measured();
        let took = query.and_then(|query| measured.queries.get(&hashed(query)));
        let took = took.copied().unwrap_or_default();
        let cores = cores.max(1) as f64;
        let (is_interpreted, compile) = match missing.kernel {
            MissingKernel::Nothing => (false, 0.0),
            // a kernel that has run is at least on disk
            _ if took.generated.is_some() => (false, 0.0),
            MissingKernel::Interpreted => (true, 0.0),
            // one for the query, and one for each build side
            MissingKernel::Compiled => {
                let kernels = missing.builds.count.saturating_add(1);
                (false, measured.compile * kernels as f64)
            }
        };
        let (known, expected) = match is_interpreted {
            true => (took.interpreted, gpu_seconds(work, Kernels::Interpreted)),
            false => (took.generated, gpu_seconds(work, Kernels::Generated)),
        };
        let until_ready = missing.seconds(work, measured.load * cores) + compile;
        let or = |took: Option<Duration>, seconds| took.unwrap_or(Duration::from_secs_f64(seconds));
        Estimate {
            cpu: or(took.cpu, measured.cpu_seconds(work, cores)),
            gpu: or(known, expected) + Duration::from_secs_f64(until_ready),
        }
    }

    /// The expected times of `work` on `cores` cores, and on a device that is ready.
    pub(crate) fn expected(&self, work: Work, cores: usize) -> Expected {
        let measured = self.measured();
        let seconds = Duration::from_secs_f64;
        Expected {
            cpu: seconds(measured.cpu_seconds(work, cores.max(1) as f64)),
            generated: seconds(gpu_seconds(work, Kernels::Generated)),
            interpreted: seconds(gpu_seconds(work, Kernels::Interpreted)),
        }
    }

    /// Notes whether the device has the interpreter. Later processes then expect it before they open the device.
    pub(crate) fn note_interpreter(&self, has_interpreter: bool) {
        self.measured().has_interpreter = has_interpreter;
    }

    /// True if a device that is not open is expected to have the interpreter.
    pub(crate) fn has_interpreter(&self) -> bool {
        self.measured().has_interpreter
    }

    /// Records the CPU's time for `work`.
    pub(crate) fn add_work(&self, work: Work, cores: usize, took: Duration) {
        let expected = cpu_seconds(work) / cores.max(1) as f64;
        let seconds = took.as_secs_f64() - CPU_START;
        if expected > CPU_START && seconds > 0.0 {
            let mut measured = self.measured();
            let ratio = (seconds / expected).clamp(1.0 / MOST_RATIO, MOST_RATIO);
            measured.cpu += NEW_SHARE * (ratio - measured.cpu);
        }
    }

    /// Records the CPU's time for a query.
    pub(crate) fn add_cpu(&self, query: &str, took: Duration) {
        self.note(query, |known| {
            known.cpu = Some(took);
            known.on_cpu += 1;
            known.runs += 1;
            known.opened = 0;
            if known.on_cpu >= MOST_ON_CPU {
                (known.generated, known.interpreted) = (None, None);
            }
        });
    }

    /// Records an upper bound of the CPU's time for a query.
    pub(crate) fn add_cpu_within(&self, query: &str, took: Duration) {
        let known = self.measured().queries.get(&hashed(query)).copied();
        let known = known.and_then(|known| known.cpu);
        self.add_cpu(query, known.map_or(took, |known| known.min(took)));
    }

    /// Records the GPU's time for a query whose columns and kernels were there.
    pub(crate) fn add_gpu(&self, query: &str, kernels: Kernels, took: Duration) {
        self.note(query, |known| {
            match kernels {
                Kernels::Generated => known.generated = Some(took),
                Kernels::Interpreted => known.interpreted = Some(took),
            }
            // a kernel that does not compile would otherwise be tried again each time
            (known.on_cpu, known.runs) = (0, 0);
        });
    }

    /// Records that the GPU cannot run a query.
    pub(crate) fn add_refused(&self, query: &str) {
        self.add_gpu(query, Kernels::Generated, NEVER);
    }

    /// The times of a query that ran on both and was faster on the CPU, unless it was interpreted and a generated kernel
    /// would pay.
    pub(crate) fn known_for_cpu(&self, query: &str, work: Work, cores: usize) -> Option<Estimate> {
        let measured = self.measured();
        let took = measured.queries.get(&hashed(query))?;
        let known = took.known_for_cpu()?;
        let may_gain = took.generated.is_none() && measured.is_worth_compiling(took, work, cores);
        (!may_gain).then_some(known)
    }

    /// True if a generated kernel is expected to have saved more by now than it takes to compile it, which slows `cores`
    /// cores by the time of one, divided by their number.
    pub(crate) fn is_worth_compiling(&self, query: &str, work: Work, cores: usize) -> bool {
        let measured = self.measured();
        let took = measured.queries.get(&hashed(query));
        took.is_some_and(|took| measured.is_worth_compiling(took, work, cores))
    }

    /// The CPU's time for a query, if it has run there.
    pub(crate) fn cpu_time(&self, query: &str) -> Option<Duration> {
        let measured = self.measured();
        measured.queries.get(&hashed(query))?.cpu
    }

    /// Records a run of a query on the CPU beside others, of which this is its expected share.
    pub(crate) fn add_cpu_share(&self, query: &str, share: Duration) {
        self.add_cpu(query, self.cpu_time(query).unwrap_or(share));
    }

    /// Records that the device is opened for a query.
    pub(crate) fn add_opened(&self, query: &str) {
        self.note(query, |known| {
            known.opened += 1;
            if known.opened >= MOST_OPENED {
                known.cpu = None;
            }
        });
    }

    /// Updates a query's times, and stores all times for later processes if these changed much.
    fn note(&self, query: &str, note: impl FnOnce(&mut QueryTimes)) {
        let mut measured = self.measured();
        let query = hashed(query);
        if measured.queries.len() >= MOST_QUERIES && !measured.queries.contains_key(&query) {
            measured.queries.clear();
        }
        let known = measured.queries.entry(query).or_default();
        let before = *known;
        note(known);
        let known = *known;
        if known.known_for_cpu().is_some() != before.known_for_cpu().is_some() {
            measured.outlook += 1;
        }
        drop(measured);
        if known.differs(&before) {
            self.keep();
        }
    }

    /// Stores measurements for later processes, soon.
    fn keep(&self) {
        if let Some(name) = self.name.clone()
            && let Ok(runtime) = Handle::try_current()
            && !self.is_due.swap(true, Ordering::AcqRel)
        {
            let (measured, storing) = (Arc::clone(&self.measured), Arc::clone(&self.storing));
            let is_due = Arc::clone(&self.is_due);
            runtime.spawn_blocking(move || {
                let _turn = lock(&storing);
                // what changes from now on is stored after this
                is_due.store(false, Ordering::Release);
                let text = lock(&measured).to_string();
                vectile_gpu::keep(&name, text.as_bytes());
            });
        }
    }

    /// Notes that the CPU has read columns for `query`. Returns true if other queries have read all of them before.
    pub(crate) fn add_read(&self, query: &Arc<TaskContext>, columns: &[ColumnId]) -> bool {
        let query = Arc::downgrade(query);
        let mut measured = self.measured();
        let known = &mut measured.columns;
        let (mut are_known, mut is_changed) = (true, false);
        for &id in columns {
            let at = known.iter().position(|column| column.id == id);
            let before = at.and_then(|at| known.remove(at));
            is_changed |= before.is_none();
            let by = match before {
                None => Some(Weak::clone(&query)),
                Some(column) => column.by.filter(|by| by.ptr_eq(&query)),
            };
            are_known &= by.is_none();
            known.push_back(ReadColumn { id, by });
        }
        let excess = known.len().saturating_sub(MOST_COLUMNS);
        known.drain(..excess);
        drop(measured);
        if is_changed {
            self.keep();
        }
        are_known
    }

    /// Records the time for loading columns.
    pub(crate) fn add_load(&self, bytes: u64, cores: usize, took: Duration) {
        // smaller loads measure latency rather than throughput
        if bytes > 16 << 20 {
            let mut measured = self.measured();
            let rate = bytes as f64 / took.as_secs_f64().max(1e-6) / cores.max(1) as f64;
            measured.load += NEW_SHARE * (rate - measured.load);
        }
    }

    /// Records the time for compiling kernels.
    pub(crate) fn add_compile(&self, kernels: usize, took: Duration) {
        if kernels > 0 {
            let mut measured = self.measured();
            let each = took.as_secs_f64() / kernels as f64;
            measured.compile += NEW_SHARE * (each - measured.compile);
        }
    }

    /// A number that changes when queries may be planned differently: estimates changed much, or for a query that ran
    /// on both CPU and GPU, the other one is now faster.
    pub(crate) fn outlook(&self) -> u64 {
        let mut measured = self.measured();
        let change = measured.cpu / measured.cpu_before;
        if !(1.0 / OTHER_OUTLOOK..=OTHER_OUTLOOK).contains(&change) {
            measured.cpu_before = measured.cpu;
            measured.outlook += 1;
        }
        measured.outlook
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        lock(&self.measured)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line for the averages, one for each query, with times in microseconds, and one for each column.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Option<Duration>| time.map_or(0, |time| time.as_micros());
        let averages = [
            self.cpu,
            self.load,
            self.compile,
            // averages are not 0
            1.0 + f64::from(u8::from(self.has_interpreter)),
        ];
        writeln!(f, "{}", averages.map(|of| of.to_string()).join(" "))?;
        for (query, took) in &self.queries {
            let [cpu, generated, interpreted] =
                [took.cpu, took.generated, took.interpreted].map(micros);
            let (runs, opened) = (took.runs, took.opened);
            writeln!(f, "{query} {cpu} {generated} {interpreted} {runs} {opened}")?;
        }
        let mut columns = self.columns.iter();
        columns.try_for_each(|column| writeln!(f, "{}", column.id.0))
    }
}

impl Measured {
    /// Expected seconds on the CPU.
    fn cpu_seconds(&self, work: Work, cores: f64) -> f64 {
        CPU_START + self.cpu * cpu_seconds(work) / cores
    }

    fn is_worth_compiling(&self, took: &QueryTimes, work: Work, cores: usize) -> bool {
        let generated = gpu_seconds(work, Kernels::Generated);
        let saved = took.cpu.map_or(0.0, |cpu| cpu.as_secs_f64() - generated);
        saved * took.runs as f64 >= self.compile / cores.max(1) as f64
    }

    /// Reads the output of [`Measured::to_string`]. Skips invalid lines.
    fn read(&mut self, text: &str) {
        let mut lines = text.lines().map(|line| line.split(' '));
        let averages = lines.next().into_iter().flatten();
        let averages = averages.map_while(|number| number.parse().ok().filter(|n| *n > 0.0));
        let averages: Vec<f64> = averages.collect();
        if let [cpu, load, compile, has_interpreter] = averages[..] {
            self.cpu = cpu.clamp(1.0 / MOST_RATIO, MOST_RATIO);
            (self.load, self.compile) = (load.min(1e12), compile.min(60.0));
            self.cpu_before = self.cpu;
            self.has_interpreter = has_interpreter > 1.0;
        }
        for numbers in lines {
            let numbers = numbers.map_while(|number| number.parse().ok());
            match numbers.collect::<Vec<u64>>()[..] {
                [query, cpu, generated, interpreted, runs, opened] => {
                    let time = |micros| (micros > 0).then_some(Duration::from_micros(micros));
                    let took = QueryTimes {
                        cpu: time(cpu),
                        generated: time(generated),
                        interpreted: time(interpreted),
                        runs: runs as usize,
                        opened: opened as usize,
                        on_cpu: 0,
                    };
                    self.queries.insert(query, took);
                }
                [column] if self.columns.len() < MOST_COLUMNS => {
                    let id = ColumnId(column);
                    self.columns.push_back(ReadColumn { id, by: None });
                }
                _ => {}
            }
        }
    }
}

impl QueryTimes {
    /// The times, if the CPU was faster than generated kernels, or else than the interpreter.
    fn known_for_cpu(&self) -> Option<Estimate> {
        let (cpu, gpu) = self.cpu.zip(self.generated.or(self.interpreted))?;
        Some(Estimate { cpu, gpu }).filter(Estimate::is_for_cpu)
    }

    fn differs(&self, before: &Self) -> bool {
        let same = |now: Option<Duration>, before: Option<Duration>| match (now, before) {
            (Some(now), Some(before)) => {
                let ratio = now.as_secs_f64() / before.as_secs_f64();
                (1.0 / OTHER_TIME..=OTHER_TIME).contains(&ratio)
            }
            (now, before) => now == before,
        };
        let times = same(self.cpu, before.cpu)
            && same(self.generated, before.generated)
            && same(self.interpreted, before.interpreted);
        !times || self.opened != before.opened
    }
}

/// A hash that is the same in later processes of this build.
pub(crate) fn hashed(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Seconds on one core according to the constants.
fn cpu_seconds(work: Work) -> f64 {
    let rates = match work.is_for_operators {
        true => OPERATORS,
        false => PROGRAMS,
    };
    let row = work.columns as f64 * rates.value
        + work.joins as f64 * rates.lookup
        + work.states as f64 * work.passing * rates.state;
    work.rows as f64 * row
}

/// Seconds on a device that is ready, according to the constants.
fn gpu_seconds(work: Work, kernels: Kernels) -> f64 {
    let (start, rate) = match kernels {
        Kernels::Generated => (GPU_START, GPU_RATE),
        Kernels::Interpreted => (GPU_START + INTERPRETED_START, INTERPRETED_RATE),
    };
    start + work.bytes as f64 / rate + work.returned as f64 / RETURN_RATE
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// TPC-H Q6 at scale factor `scale`.
    fn q6(scale: u64) -> Work {
        Work {
            rows: 6_000_000 * scale,
            columns: 4,
            joins: 0,
            states: 1,
            passing: 0.02,
            returned: 0,
            is_for_operators: false,
            strings: 0,
            bytes: 35_000_000 * scale,
        }
    }

    #[test]
    fn strings_are_numbered_after_loading() {
        let costs = Costs::default();
        let keys = Work {
            strings: 6_000_000,
            ..q6(1)
        };
        let gpu = |work, bytes| {
            let missing = Missing {
                bytes,
                ..Missing::default()
            };
            costs.estimate(None, work, missing, 16).gpu
        };
        assert_eq!(gpu(keys, 0), gpu(q6(1), 0));
        assert!(gpu(keys, 1) >= gpu(q6(1), 1) + 29 * MS);
    }

    #[test]
    fn large_prepared_queries_go_to_the_gpu() {
        let costs = Costs::default();
        let all = Missing::default();
        assert!(costs.estimate(None, q6(0), all, 16).is_for_cpu());
        assert!(!costs.estimate(None, q6(10), all, 16).is_for_cpu());
        for missing in [
            Missing {
                device: true,
                ..all
            },
            Missing {
                kernel: MissingKernel::Compiled,
                ..all
            },
            Missing {
                bytes: q6(10).bytes,
                ..all
            },
        ] {
            let estimate = costs.estimate(None, q6(10), missing, 16);
            assert!(estimate.is_for_cpu(), "{missing:?}: {estimate}");
        }
    }

    #[test]
    fn the_interpreter_needs_no_compiler() {
        let costs = Costs::default();
        let gpu = |kernel| {
            let missing = Missing {
                kernel,
                ..Missing::default()
            };
            costs.estimate(None, q6(10), missing, 16)
        };
        let interpreted = gpu(MissingKernel::Interpreted);
        assert!(!interpreted.is_for_cpu(), "{interpreted}");
        assert!(interpreted.gpu > gpu(MissingKernel::Nothing).gpu);
        assert!(gpu(MissingKernel::Compiled).is_for_cpu());
        let text = costs.expected(q6(10), 16).to_string();
        assert!(text.contains(", interpreted "), "{text}");
    }

    #[test]
    fn each_kind_of_kernel_has_its_times() {
        let (costs, query) = (Costs::default(), "half interpreted");
        let gpu = |kernel| {
            let missing = Missing {
                kernel,
                ..Missing::default()
            };
            costs.estimate(Some(query), q6(10), missing, 16)
        };
        costs.add_cpu(query, 5 * MS);
        costs.add_gpu(query, Kernels::Interpreted, 9 * MS);
        assert_eq!(gpu(MissingKernel::Interpreted).gpu, 9 * MS);
        assert!(!gpu(MissingKernel::Nothing).is_for_cpu());
        assert!(costs.known_for_cpu(query, q6(0), 1).is_some());
        costs.add_gpu(query, Kernels::Generated, 2 * MS);
        // such a kernel is at least on disk
        for kernel in [MissingKernel::Interpreted, MissingKernel::Compiled] {
            assert_eq!(gpu(kernel).gpu, 2 * MS, "{kernel:?}");
        }
        assert_eq!(costs.known_for_cpu(query, q6(0), 1), None);
    }

    #[test]
    fn tables_built_on_the_device_cost_little() {
        let costs = Costs::default();
        let gpu = |is_on_device| {
            let builds = Builds::one(15_000_000, is_on_device, true);
            assert_eq!(builds.rows + builds.rows_on_device, 15_000_000);
            let missing = Missing {
                builds,
                ..Missing::default()
            };
            assert!(!missing.is_loaded());
            costs.estimate(None, q6(10), missing, 16).gpu
        };
        assert!(gpu(true) < 15 * MS && gpu(false) > 200 * MS);
    }

    #[test]
    fn measurements_correct_estimates() {
        let costs = Costs::default();
        let before = costs.estimate(None, q6(10), Missing::default(), 16);
        for _ in 0..20 {
            costs.add_work(q6(10), 16, 10 * before.cpu);
        }
        let after = costs.estimate(None, q6(10), Missing::default(), 16);
        assert!(after.cpu > 8 * before.cpu, "{after} after {before}");
        assert_eq!(after.gpu, before.gpu);

        let load = Missing {
            bytes: 1 << 30,
            ..Missing::default()
        };
        let before = costs.estimate(None, q6(10), load, 16);
        for _ in 0..20 {
            costs.add_load(1 << 30, 16, 30 * MS);
        }
        let after = costs.estimate(None, q6(10), load, 16);
        assert!(after.gpu < 40 * MS && before.gpu > 100 * MS, "{after}");
    }

    #[test]
    fn the_outlook_follows_large_changes() {
        let costs = Costs::default();
        let start = CPU_START * 1e3;
        let as_expected = cpu_seconds(q6(10)) / 16.0 * 1e3 + start;
        let before = costs.outlook();
        for share in [0.9, 1.2, 1.0] {
            costs.add_work(q6(10), 16, MS.mul_f64(share * as_expected));
            assert_eq!(costs.outlook(), before);
        }
        for _ in 0..20 {
            costs.add_work(q6(10), 16, MS.mul_f64(3.0 * as_expected));
        }
        let after = costs.outlook();
        assert_ne!(after, before);
        assert_eq!(costs.outlook(), after);
    }

    #[test]
    fn a_query_that_ran_is_known() {
        let (costs, all, query) = (Costs::default(), Missing::default(), "slow results");
        let is_for_cpu = || {
            let estimate = costs.estimate(Some(query), q6(1), all, 16);
            estimate.is_for_cpu()
        };
        costs.add_cpu(query, 5 * MS);
        assert!(!is_for_cpu(), "it may be faster on the GPU");
        costs.add_gpu(query, Kernels::Generated, 50 * MS);
        assert!(is_for_cpu());
        costs.add_cpu_within(query, 500 * MS);
        assert!(is_for_cpu(), "the rest of the plan took long");
        assert!(costs.known_for_cpu(query, q6(0), 1).is_some());
        costs.add_gpu(query, Kernels::Generated, 2 * MS);
        assert!(!is_for_cpu());
        let before = costs.outlook();
        costs.add_refused(query);
        assert!(costs.known_for_cpu(query, q6(0), 1).unwrap().is_refused());
        assert_ne!(costs.outlook(), before);
        (0..MOST_ON_CPU).for_each(|_| costs.add_cpu(query, 5 * MS));
        assert!(!is_for_cpu(), "it may be faster by now");
        assert_eq!(costs.known_for_cpu(query, q6(0), 1), None);
        (0..2 * MOST_QUERIES).for_each(|query| costs.add_cpu(&query.to_string(), MS));
        assert!(costs.measured().queries.len() <= MOST_QUERIES);
    }

    #[test]
    fn the_device_is_opened_for_a_query_that_is_slow_without() {
        let (costs, query) = (Costs::default(), "slow on the CPU");
        let all = Missing {
            bytes: q6(1).bytes,
            builds: Builds::default(),
            kernel: MissingKernel::Compiled,
            device: true,
        };
        let is_for_cpu = |costs: &Costs| {
            let estimate = costs.estimate(Some(query), q6(1), all, 16);
            estimate.is_for_cpu()
        };
        assert!(is_for_cpu(&costs));
        costs.add_cpu(query, 500 * MS);
        assert!(is_for_cpu(&costs), "the kernel has to be compiled");
        costs.add_gpu(query, Kernels::Generated, MS);
        assert!(!is_for_cpu(&costs));
        // a later process knows that, too
        let later = Costs::default();
        let text = costs.measured().to_string();
        later.measured().read(&text);
        assert!(!is_for_cpu(&later));
        assert_eq!(later.measured().to_string(), text);
        (0..MOST_OPENED).for_each(|_| costs.add_opened(query));
        assert!(is_for_cpu(&costs), "the CPU may be faster by now");
    }

    #[test]
    fn columns_are_known_once_another_query_has_read_them() {
        let (costs, query) = (Costs::default(), Arc::<TaskContext>::default);
        let [a, b, c] = [1, 2, 3].map(ColumnId);
        let first = query();
        assert!(!costs.add_read(&first, &[a, b]));
        assert!(!costs.add_read(&first, &[b]), "by another part of it");
        drop(first);
        assert!(costs.add_read(&query(), &[b, a, b]));
        assert!(!costs.add_read(&query(), &[a, c]), "c is new");
        // a later process knows that, too
        let later = Costs::default();
        let text = costs.measured().to_string();
        later.measured().read(&text);
        assert!(later.add_read(&query(), &[a, b, c]) && later.add_read(&query(), &[]));
        for column in 0..2 * MOST_COLUMNS as u64 {
            later.add_read(&query(), &[ColumnId(100 + column), a]);
        }
        assert_eq!(later.measured().columns.len(), MOST_COLUMNS);
        assert!(later.add_read(&query(), &[a]), "it was read all the time");
        assert!(!later.add_read(&query(), &[b]));
    }

    #[test]
    fn kernels_are_compiled_for_what_the_cpu_runs_often() {
        let (costs, query) = (Costs::default(), "slow by the interpreter");
        costs.add_gpu(query, Kernels::Interpreted, 20 * MS);
        let is_worth = || costs.is_worth_compiling(query, q6(1), 16);
        let runs = (1..100).find(|_| {
            costs.add_cpu(query, 10 * MS);
            is_worth()
        });
        // 0.6 s of a core of 16, and 8.5 ms saved by each run
        assert_eq!(runs, Some(5));
        assert!(costs.known_for_cpu(query, q6(1), 1).is_some());
        assert_eq!(costs.known_for_cpu(query, q6(1), 16), None);
        // a kernel that is there and slower is known for good
        costs.add_gpu(query, Kernels::Generated, 20 * MS);
        assert!(costs.known_for_cpu(query, q6(1), 16).is_some() && !is_worth());
    }

    #[test]
    fn damaged_measurements_are_ignored() {
        for text in [
            "",
            "x",
            "nan 1 1\n",
            "1 2\n1 2 3 4",
            "-1 2 3 4\n7 8\n",
            "1e999 inf 9 2\n\n \n",
        ] {
            let costs = Costs::default();
            costs.measured().read(text);
            let estimate = costs.estimate(None, q6(10), Missing::default(), 16);
            assert!(
                estimate.cpu > MS && estimate.cpu < 10_000 * MS,
                "{text}: {estimate}"
            );
        }
    }
}
