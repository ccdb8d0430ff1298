//! Estimates the time of a query on the CPU and on the GPU, for `auto`.
//!
//! Estimates start from constants measured on servers, corrected by times of queries on this machine. A query that has
//! run is estimated by its own times. Measurements are stored beside the kernels for later processes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

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
    /// Strings of keys without a dictionary, if known. The GPU numbers them after loading.
    pub(crate) strings: u64,
}

/// Preparation that the GPU still needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    /// Bytes of columns that are not on the device.
    pub(crate) bytes: u64,
    /// Rows to read for dimensions.
    pub(crate) rows: u64,
    /// True if the kernel has to be compiled.
    pub(crate) kernel: bool,
    /// True if the device has to be opened.
    pub(crate) device: bool,
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
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "CPU {:.1} ms, GPU {:.1} ms", ms(self.cpu), ms(self.gpu))
    }
}

/// Seconds on one CPU core: for a value of a column, for a join lookup of a row, and for adding a row to the state of
/// an aggregate.
const CPU_VALUE: f64 = 2e-9;
const CPU_LOOKUP: f64 = 8e-9;
const CPU_STATE: f64 = 10e-9;
/// Fixed seconds for a query, on CPU and GPU.
const CPU_START: f64 = 0.5e-3;
const GPU_START: f64 = 1.5e-3;
/// Bytes of columns that a kernel reads in a second.
const GPU_RATE: f64 = 1e12;
/// Bytes of output rows copied back and put into batches in a second: a guess.
const RETURN_RATE: f64 = 4e9;
/// Seconds to read a row for a dimension and to add it to a table.
const BUILD_ROW: f64 = 20e-9;
/// Seconds to number a string. First queries over 30 million of them took 3 to 7 ns a string on an H200, including
/// loading.
const NUMBER_STRING: f64 = 5e-9;
/// Seconds to open a device.
const OPEN: f64 = 0.3;
/// Bytes loaded in a second per core, and seconds to compile a kernel, until measured.
const LOAD_RATE: f64 = 600e6;
const COMPILE: f64 = 0.6;
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

/// Measured costs of queries.
#[derive(Debug)]
pub(crate) struct Costs {
    measured: Mutex<Measured>,
    /// Name under which they are stored for later processes.
    name: Option<String>,
}

#[derive(Debug)]
struct Measured {
    /// Measured CPU time relative to the constants.
    cpu: f64,
    /// Value of `cpu` when it last changed `outlook`.
    cpu_before: f64,
    /// See [`Costs::outlook`].
    outlook: u64,
    /// Bytes loaded in a second per core.
    load: f64,
    /// Seconds to compile a kernel.
    compile: f64,
    /// By the hash of the query's identity.
    queries: HashMap<u64, QueryTimes>,
}

/// Times of a query's last runs. GPU times count only if nothing had to be loaded or compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct QueryTimes {
    cpu: Option<Duration>,
    gpu: Option<Duration>,
    /// Runs on the CPU since the last one on the GPU.
    on_cpu: usize,
    /// How often the device was opened for it since it ran on the CPU.
    opened: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            measured: Mutex::new(Measured {
                cpu: 1.0,
                cpu_before: 1.0,
                outlook: 0,
                load: LOAD_RATE,
                compile: COMPILE,
                queries: HashMap::new(),
            }),
            name: None,
        }
    }
}

impl Costs {
    /// The costs that earlier processes measured on this machine.
    pub(crate) fn of_machine() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // several machines may share a user's directory
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = format!("costs 1 {cores} {}", host.trim());
        let mut costs = Self::default();
        if let Some(kept) = vectile_gpu::kept(&name) {
            let measured = costs.measured.get_mut();
            let measured = measured.unwrap_or_else(PoisonError::into_inner);
            measured.read(&String::from_utf8_lossy(&kept));
        }
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
        let took = query.and_then(|query| measured.queries.get(&hash(query)));
        let took = took.copied().unwrap_or_default();
        let cores = cores.max(1) as f64;
        let when = |is_missing: bool, seconds: f64| if is_missing { seconds } else { 0.0 };
        let cpu = CPU_START + measured.cpu * cpu_seconds(work) / cores;
        let gpu = GPU_START + work.bytes as f64 / GPU_RATE + work.returned as f64 / RETURN_RATE;
        let until_ready = missing.bytes as f64 / (measured.load * cores)
            + missing.rows as f64 * BUILD_ROW
            + when(missing.bytes > 0, work.strings as f64 * NUMBER_STRING)
            // the kernel of a query that has run is at least on disk
            + when(missing.kernel && took.gpu.is_none(), measured.compile)
            + when(missing.device, OPEN);
        let or = |took: Option<Duration>, seconds| took.unwrap_or(Duration::from_secs_f64(seconds));
        Estimate {
            cpu: or(took.cpu, cpu),
            gpu: or(took.gpu, gpu) + Duration::from_secs_f64(until_ready),
        }
    }

    /// Records the CPU's time for `work`.
    pub(crate) fn add_work(&self, work: Work, cores: usize, took: Duration) {
        let expected = cpu_seconds(work) / cores.max(1) as f64;
        let seconds = took.as_secs_f64() - CPU_START;
        if expected > CPU_START && seconds > 0.0 {
            let mut measured = self.measured();
            measured.cpu += NEW_SHARE * ((seconds / expected).clamp(0.05, 20.0) - measured.cpu);
        }
    }

    /// Records the CPU's time for a query.
    pub(crate) fn add_cpu(&self, query: &str, took: Duration) {
        self.note(query, |known| {
            known.cpu = Some(took);
            known.on_cpu += 1;
            known.opened = 0;
            if known.on_cpu >= MOST_ON_CPU {
                known.gpu = None;
            }
        });
    }

    /// Records an upper bound of the CPU's time for a query.
    pub(crate) fn add_cpu_within(&self, query: &str, took: Duration) {
        let known = self.measured().queries.get(&hash(query)).copied();
        let known = known.and_then(|known| known.cpu);
        self.add_cpu(query, known.map_or(took, |known| known.min(took)));
    }

    /// Records the GPU's time for a query that needed no preparation.
    pub(crate) fn add_gpu(&self, query: &str, took: Duration) {
        self.note(query, |known| {
            known.gpu = Some(took);
            known.on_cpu = 0;
        });
    }

    /// Records that the GPU cannot run a query.
    pub(crate) fn add_refused(&self, query: &str) {
        self.add_gpu(query, NEVER);
    }

    /// The times of a query that ran on both and was faster on the CPU.
    pub(crate) fn known_for_cpu(&self, query: &str) -> Option<Estimate> {
        let measured = self.measured();
        measured
            .queries
            .get(&hash(query))
            .and_then(QueryTimes::known_for_cpu)
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
        let query = hash(query);
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
        if known.differs(&before)
            && let Some(name) = self.name.clone()
            && let Ok(runtime) = Handle::try_current()
        {
            let text = measured.to_string();
            runtime.spawn_blocking(move || vectile_gpu::keep(&name, text.as_bytes()));
        }
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
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line for the averages and one for each query, with times in microseconds.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Option<Duration>| time.map_or(0, |time| time.as_micros());
        writeln!(f, "{} {} {}", self.cpu, self.load, self.compile)?;
        for (query, took) in &self.queries {
            let (cpu, gpu) = (micros(took.cpu), micros(took.gpu));
            writeln!(f, "{query} {cpu} {gpu} {}", took.opened)?;
        }
        Ok(())
    }
}

impl Measured {
    /// Reads the output of [`Measured::to_string`]. Skips invalid lines.
    fn read(&mut self, text: &str) {
        let mut lines = text.lines().map(|line| line.split(' '));
        let averages = lines.next().into_iter().flatten();
        let averages = averages.map_while(|number| number.parse().ok().filter(|n| *n > 0.0));
        if let [cpu, load, compile] = averages.collect::<Vec<f64>>()[..] {
            self.cpu = cpu.clamp(0.05, 20.0);
            (self.load, self.compile) = (load.min(1e12), compile.min(60.0));
            self.cpu_before = self.cpu;
        }
        for numbers in lines {
            let numbers = numbers.map_while(|number| number.parse().ok());
            if let [query, cpu, gpu, opened] = numbers.collect::<Vec<u64>>()[..] {
                let time = |micros| (micros > 0).then_some(Duration::from_micros(micros));
                let took = QueryTimes {
                    cpu: time(cpu),
                    gpu: time(gpu),
                    opened: opened as usize,
                    on_cpu: 0,
                };
                self.queries.insert(query, took);
            }
        }
    }
}

impl QueryTimes {
    fn known_for_cpu(&self) -> Option<Estimate> {
        let (cpu, gpu) = self.cpu.zip(self.gpu)?;
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
        let times = same(self.cpu, before.cpu) && same(self.gpu, before.gpu);
        !times || self.opened != before.opened
    }
}

fn hash(query: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.hash(&mut hasher);
    hasher.finish()
}

/// Seconds on one core according to the constants.
fn cpu_seconds(work: Work) -> f64 {
    let row = work.columns as f64 * CPU_VALUE
        + work.joins as f64 * CPU_LOOKUP
        + work.states as f64 * work.passing * CPU_STATE;
    work.rows as f64 * row
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
                kernel: true,
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
        costs.add_gpu(query, 50 * MS);
        assert!(is_for_cpu());
        costs.add_cpu_within(query, 500 * MS);
        assert!(is_for_cpu(), "the rest of the plan took long");
        assert!(costs.known_for_cpu(query).is_some());
        costs.add_gpu(query, 2 * MS);
        assert!(!is_for_cpu());
        let before = costs.outlook();
        costs.add_refused(query);
        assert!(costs.known_for_cpu(query).unwrap().is_refused());
        assert_ne!(costs.outlook(), before);
        (0..MOST_ON_CPU).for_each(|_| costs.add_cpu(query, 5 * MS));
        assert!(!is_for_cpu(), "it may be faster by now");
        assert_eq!(costs.known_for_cpu(query), None);
        (0..2 * MOST_QUERIES).for_each(|query| costs.add_gpu(&query.to_string(), MS));
        assert!(costs.measured().queries.len() <= MOST_QUERIES);
    }

    #[test]
    fn the_device_is_opened_for_a_query_that_is_slow_without() {
        let (costs, query) = (Costs::default(), "slow on the CPU");
        let all = Missing {
            bytes: q6(1).bytes,
            rows: 0,
            kernel: true,
            device: true,
        };
        let is_for_cpu = |costs: &Costs| {
            let estimate = costs.estimate(Some(query), q6(1), all, 16);
            estimate.is_for_cpu()
        };
        assert!(is_for_cpu(&costs));
        costs.add_cpu(query, 500 * MS);
        assert!(is_for_cpu(&costs), "the kernel has to be compiled");
        costs.add_gpu(query, MS);
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
    fn damaged_measurements_are_ignored() {
        for text in [
            "",
            "x",
            "nan 1 1\n",
            "1 2\n1 2 3 4",
            "-1 2 3\n7 8\n",
            "1e999 inf 0\n\n \n",
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
