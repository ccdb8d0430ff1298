//! Estimates of the time that a query takes on the CPU and on the GPU. `auto` decides by them.
//!
//! Estimates start from constants that were measured on servers. Times of queries on this machine correct them. For a
//! query that ran on both, its own times decide.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What an aggregate has to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Rows of the table that is scanned.
    pub(crate) rows: u64,
    /// Columns of it that are read.
    pub(crate) columns: usize,
    /// Tables that it is joined with.
    pub(crate) joins: usize,
    /// Bytes of its columns in the files.
    pub(crate) bytes: u64,
}

/// What is not on the GPU yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    /// Bytes of columns that are not on the device.
    pub(crate) bytes: u64,
    /// Whether the kernel has to be compiled.
    pub(crate) kernel: bool,
    /// Whether the device has to be opened.
    pub(crate) device: bool,
}

/// What a query may take on either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) cpu: Duration,
    pub(crate) gpu: Duration,
}

impl Estimate {
    /// Whether the CPU is done first.
    pub(crate) fn is_for_cpu(&self) -> bool {
        self.cpu < self.gpu
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "CPU {:.1} ms, GPU {:.1} ms", ms(self.cpu), ms(self.gpu))
    }
}

/// Seconds that a core of the CPU takes: for a value of a column, and for a row to look a key up.
const CPU_VALUE: f64 = 2e-9;
const CPU_LOOKUP: f64 = 8e-9;
/// Seconds that either takes for a query without rows.
const CPU_START: f64 = 0.5e-3;
const GPU_START: f64 = 1.5e-3;
/// Bytes of columns that a kernel reads in a second.
const GPU_RATE: f64 = 1e12;
/// Seconds to open a device, where it was not opened yet.
const OPEN: f64 = 0.3;
/// Bytes that are loaded in a second by each core, and seconds that a kernel takes to compile, until some were.
const LOAD_RATE: f64 = 600e6;
const COMPILE: f64 = 0.6;
/// How much of a measurement goes into the average.
const NEW_SHARE: f64 = 0.3;
/// Runs on the CPU after which a time on the GPU is forgotten, so that it is taken again: it may have been busy.
const MOST_ON_CPU: usize = 16;
/// How much faster or slower the CPU has to get for queries to be planned again.
const OTHER_OUTLOOK: f64 = 1.5;
/// Queries whose times are kept.
const MOST_QUERIES: usize = 1024;

/// What queries took so far.
#[derive(Debug)]
pub(crate) struct Costs {
    measured: Mutex<Measured>,
}

#[derive(Debug)]
struct Measured {
    /// The CPU's time, as a multiple of what its constants say.
    cpu: f64,
    /// That of which [`Costs::outlook`] tells.
    cpu_before: f64,
    /// Bytes loaded in a second by each core.
    load: f64,
    /// Seconds to compile a kernel.
    compile: f64,
    queries: HashMap<String, Took>,
}

/// What a query took when it ran last. On the GPU, that is with all it needs in place.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    cpu: Option<Duration>,
    gpu: Option<Duration>,
    /// Runs on the CPU since the last one on the GPU.
    on_cpu: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            measured: Mutex::new(Measured {
                cpu: 1.0,
                cpu_before: 1.0,
                load: LOAD_RATE,
                compile: COMPILE,
                queries: HashMap::new(),
            }),
        }
    }
}

impl Costs {
    /// What `work` may take with so many cores.
    pub(crate) fn estimate(&self, work: Work, missing: Missing, cores: usize) -> Estimate {
        let measured = self.measured();
        let cores = cores.max(1) as f64;
        let when = |is_missing: bool, seconds: f64| if is_missing { seconds } else { 0.0 };
        let gpu = GPU_START
            + work.bytes as f64 / GPU_RATE
            + missing.bytes as f64 / (measured.load * cores)
            + when(missing.kernel, measured.compile)
            + when(missing.device, OPEN);
        Estimate {
            cpu: Duration::from_secs_f64(CPU_START + measured.cpu * cpu_seconds(work) / cores),
            gpu: Duration::from_secs_f64(gpu),
        }
    }

    /// The last times of the query with this description, if it ran on both.
    pub(crate) fn took(&self, query: &str) -> Option<Estimate> {
        let took = self.measured().queries.get(query).copied()?;
        Some(Estimate {
            cpu: took.cpu?,
            gpu: took.gpu?,
        })
    }

    /// Notes what the CPU took for a query.
    pub(crate) fn add_cpu(&self, query: &str, work: Work, cores: usize, took: Duration) {
        let mut measured = self.measured();
        let known = measured.of(query);
        known.cpu = Some(took);
        known.on_cpu += 1;
        if known.on_cpu >= MOST_ON_CPU {
            known.gpu = None;
        }
        let expected = cpu_seconds(work) / cores.max(1) as f64;
        let seconds = took.as_secs_f64() - CPU_START;
        if expected > CPU_START && seconds > 0.0 {
            measured.cpu += NEW_SHARE * ((seconds / expected).clamp(0.05, 20.0) - measured.cpu);
        }
    }

    /// Notes what the GPU took for a query for which everything was in place.
    pub(crate) fn add_gpu(&self, query: &str, took: Duration) {
        let mut measured = self.measured();
        let known = measured.of(query);
        known.gpu = Some(took);
        known.on_cpu = 0;
    }

    /// Notes what it took to load columns.
    pub(crate) fn add_load(&self, bytes: u64, cores: usize, took: Duration) {
        // less says more of the start than of the rate
        if bytes > 16 << 20 {
            let mut measured = self.measured();
            let rate = bytes as f64 / took.as_secs_f64().max(1e-6) / cores.max(1) as f64;
            measured.load += NEW_SHARE * (rate - measured.load);
        }
    }

    /// Notes what it took to compile kernels.
    pub(crate) fn add_compile(&self, kernels: usize, took: Duration) {
        if kernels > 0 {
            let mut measured = self.measured();
            let each = took.as_secs_f64() / kernels as f64;
            measured.compile += NEW_SHARE * (each - measured.compile);
        }
    }

    /// A number that changes when estimates of what is in place have changed much.
    pub(crate) fn outlook(&self) -> u64 {
        let mut measured = self.measured();
        let change = measured.cpu / measured.cpu_before;
        if !(1.0 / OTHER_OUTLOOK..=OTHER_OUTLOOK).contains(&change) {
            measured.cpu_before = measured.cpu;
        }
        measured.cpu_before.to_bits()
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured {
    fn of(&mut self, query: &str) -> &mut Took {
        if self.queries.len() >= MOST_QUERIES && !self.queries.contains_key(query) {
            self.queries.clear();
        }
        self.queries.entry(query.to_owned()).or_default()
    }
}

/// Seconds that one core takes, as the constants say.
fn cpu_seconds(work: Work) -> f64 {
    let row = work.columns as f64 * CPU_VALUE + work.joins as f64 * CPU_LOOKUP;
    work.rows as f64 * row
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// TPC-H Q6 at that scale.
    fn q6(scale: u64) -> Work {
        Work {
            rows: 6_000_000 * scale,
            columns: 4,
            joins: 0,
            bytes: 35_000_000 * scale,
        }
    }

    #[test]
    fn the_gpu_gets_what_is_in_place_and_large() {
        let costs = Costs::default();
        let all = Missing::default();
        assert!(costs.estimate(q6(0), all, 16).is_for_cpu());
        assert!(!costs.estimate(q6(10), all, 16).is_for_cpu());
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
            let estimate = costs.estimate(q6(10), missing, 16);
            assert!(estimate.is_for_cpu(), "{missing:?}: {estimate}");
        }
    }

    #[test]
    fn what_was_measured_counts() {
        let costs = Costs::default();
        let before = costs.estimate(q6(10), Missing::default(), 16);
        for _ in 0..20 {
            costs.add_cpu("a query", q6(10), 16, 10 * before.cpu);
        }
        let after = costs.estimate(q6(10), Missing::default(), 16);
        assert!(after.cpu > 8 * before.cpu, "{after} after {before}");
        assert_eq!(after.gpu, before.gpu);

        let load = Missing {
            bytes: 1 << 30,
            ..Missing::default()
        };
        let before = costs.estimate(q6(10), load, 16);
        for _ in 0..20 {
            costs.add_load(1 << 30, 16, 30 * MS);
        }
        let after = costs.estimate(q6(10), load, 16);
        assert!(after.gpu < 40 * MS && before.gpu > 100 * MS, "{after}");
    }

    #[test]
    fn the_outlook_follows_large_changes() {
        let costs = Costs::default();
        let start = CPU_START * 1e3;
        let as_expected = cpu_seconds(q6(10)) / 16.0 * 1e3 + start;
        let before = costs.outlook();
        for share in [0.9, 1.2, 1.0] {
            costs.add_cpu("a query", q6(10), 16, MS.mul_f64(share * as_expected));
            assert_eq!(costs.outlook(), before);
        }
        for _ in 0..20 {
            costs.add_cpu("a query", q6(10), 16, MS.mul_f64(3.0 * as_expected));
        }
        let after = costs.outlook();
        assert_ne!(after, before);
        assert_eq!(costs.outlook(), after);
    }

    #[test]
    fn a_query_that_ran_on_both_is_known() {
        let costs = Costs::default();
        costs.add_cpu("slow results", q6(1), 16, 5 * MS);
        assert_eq!(costs.took("slow results"), None);
        costs.add_gpu("slow results", 50 * MS);
        assert!(costs.took("slow results").unwrap().is_for_cpu());
        costs.add_gpu("slow results", 2 * MS);
        assert!(!costs.took("slow results").unwrap().is_for_cpu());
        costs.add_gpu("slow results", 50 * MS);
        (0..MOST_ON_CPU).for_each(|_| costs.add_cpu("slow results", q6(1), 16, 5 * MS));
        assert_eq!(costs.took("slow results"), None, "it may be faster by now");
        (0..2 * MOST_QUERIES).for_each(|query| costs.add_gpu(&query.to_string(), MS));
        assert!(costs.measured().queries.len() <= MOST_QUERIES);
    }
}
