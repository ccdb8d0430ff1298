//! Decides which plans get a generated kernel in the background: those that keep the interpreter busy.
//!
//! ```text
//! interpreted launch ─▶ time of its plan ─▶ long enough: queue ─▶ one thread compiles ─▶ kernel cache
//!                              └─▶ disk, for later processes
//! ```

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::interpreted_times::{InterpretedTimes, PlanId};
use super::memory::lock;
use crate::error::{Error, Result};
use crate::kernel::KernelPlan;

/// Time of one core to compile a kernel.
const COMPILE: Duration = Duration::from_secs(1);
/// Share of the interpreter's kernel time that a generated kernel saves, rounded: 60% of all kernels of TPC-H together, 65%
/// of those of SSB, by `benches/gpu/tiers.py`.
const SAVED_SHARE: f64 = 2.0 / 3.0;
/// Limit of the plans that wait. Beyond it, no time is counted.
const MOST_WAITING: usize = 64;
/// Times are written to disk at most this often.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// The kernel time that the interpreter has to spend on a plan before a kernel is compiled for it, beside queries that
/// use `cores` cores.
///
/// A query is expected to be asked as often again as it was asked so far. So later runs would take as long as the earlier
/// ones, and a generated kernel saves [`SAVED_SHARE`] of that. It takes one core for [`COMPILE`], which slows the others
/// by that time, divided by their number. It pays once it saves more:
///
/// ```text
/// time * SAVED_SHARE >= COMPILE / cores
/// ```
fn worthwhile(cores: usize) -> Duration {
    COMPILE.div_f64(SAVED_SHARE * cores.max(1) as f64)
}

/// Plans that may get a generated kernel. Whoever adds times runs [`Compiling::step`] on one background thread.
#[derive(Debug)]
pub(crate) struct Compiling {
    is_on: AtomicBool,
    /// From this time on, a plan is compiled.
    worthwhile: Duration,
    /// True if times are read from disk and written to it.
    is_kept: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` before the first launch.
    times: Option<InterpretedTimes>,
    queue: VecDeque<KernelPlan>,
    has_thread: bool,
    /// When times were written.
    saved: Option<Instant>,
}

impl Compiling {
    /// If `is_kept`, times of earlier processes count, and later ones get those of this process.
    pub fn new(is_kept: bool) -> Self {
        Self::for_cores(
            thread::available_parallelism().map_or(1, usize::from),
            is_kept,
        )
    }

    fn for_cores(cores: usize, is_kept: bool) -> Self {
        Self {
            is_on: AtomicBool::new(true),
            worthwhile: worthwhile(cores),
            is_kept,
            state: Mutex::default(),
        }
    }

    /// While this is off, no time is counted and nothing is queued.
    pub fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Adds the kernel time of a launch that a generated kernel of this plan would have replaced. Returns true if the
    /// caller has to start a thread that calls [`Compiling::step`].
    pub fn add(&self, plan: &KernelPlan, time: Duration) -> bool {
        if !self.is_on.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = lock(&self.state);
        if state.queue.len() >= MOST_WAITING {
            return false;
        }
        let times = state.times.get_or_insert_with(|| self.first_times());
        let (before, after) = times.add(PlanId::of(plan), time);
        // only once: afterwards, the time stays above until the kernel is there, and forever if it does not compile
        if before < self.worthwhile && after >= self.worthwhile {
            state.queue.push_back(plan.clone());
        }
        let has_work = !state.queue.is_empty() || self.is_save_due(&state);
        has_work && !mem::replace(&mut state.has_thread, true)
    }

    /// Times of earlier processes, which may have ended before a kernel was compiled: one more launch queues it.
    fn first_times(&self) -> InterpretedTimes {
        if !self.is_kept {
            return InterpretedTimes::default();
        }
        let mut times = InterpretedTimes::kept();
        times.limit(self.worthwhile.saturating_sub(Duration::from_nanos(1)));
        times
    }

    fn is_save_due(&self, state: &State) -> bool {
        let is_old = |saved: Instant| saved.elapsed() >= SAVE_INTERVAL;
        self.is_kept && state.saved.is_none_or(is_old)
    }

    /// Notes that the thread could not be started. The next launch tries again.
    pub fn thread_failed(&self) {
        lock(&self.state).has_thread = false;
    }

    /// Compiles the kernel of the next plan. Returns false if there is none: the thread ends. Blocks.
    pub fn step(&self, compile: impl FnOnce(&KernelPlan) -> Result<()>) -> bool {
        self.save_if_due();
        let plan = {
            let mut state = lock(&self.state);
            let next = state.queue.pop_front();
            state.has_thread = next.is_some();
            next
        };
        let Some(plan) = plan else { return false };
        match compile(&plan) {
            Ok(()) => {
                // if the kernel is dropped from memory, the plan has to earn it again
                if let Some(times) = &mut lock(&self.state).times {
                    times.remove(PlanId::of(&plan));
                }
            }
            Err(error @ Error::Compile { .. }) => log::warn!("{error}; it is interpreted"),
            Err(error) => log::info!("no kernel was compiled in the background: {error}"),
        }
        true
    }

    fn save_if_due(&self) {
        let bytes = {
            let mut state = lock(&self.state);
            if !self.is_save_due(&state) {
                return;
            }
            state.saved = Some(Instant::now());
            state.times.as_ref().map(InterpretedTimes::bytes)
        };
        if let Some(bytes) = bytes {
            InterpretedTimes::keep(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::kernels::Kernels;
    use super::super::kernels::tests::{Counting, planned};
    use super::*;

    const CORES: usize = 3;
    /// Half a second divides the work of 3 cores.
    const DUE: Duration = Duration::from_millis(500);
    const LAUNCH: Duration = Duration::from_millis(100);

    /// Compiles all that is queued. Returns how many plans that were.
    fn work(compiling: &Compiling, kernels: &Kernels, driver: &Counting) -> usize {
        let mut count = 0;
        while compiling.step(|plan| kernels.get(plan, driver).map(drop)) {
            count += 1;
        }
        count
    }

    fn is_there(kernels: &Kernels, driver: &Counting, conjuncts: usize) -> bool {
        kernels.find(&planned(conjuncts), driver).is_ok()
    }

    #[test]
    fn compiling_has_to_pay() {
        assert_eq!(worthwhile(CORES), DUE);
        assert_eq!(worthwhile(0), Duration::from_millis(1500));
        assert_eq!(worthwhile(15), LAUNCH);
    }

    #[test]
    fn a_plan_that_is_asked_often_is_compiled() {
        let (compiling, kernels) = (Compiling::for_cores(CORES, false), Kernels::default());
        let driver = Counting::default();
        for _ in 1..5 {
            assert!(!compiling.add(&planned(1), LAUNCH));
        }
        assert!(!compiling.add(&planned(2), LAUNCH), "asked once");
        assert!(compiling.add(&planned(1), LAUNCH));
        assert!(!compiling.add(&planned(1), LAUNCH), "it waits already");
        assert_eq!(work(&compiling, &kernels, &driver), 1);
        assert!(is_there(&kernels, &driver, 1));
        assert!(!is_there(&kernels, &driver, 2));
        // a thread that has ended is replaced
        assert!(compiling.add(&planned(2), DUE));
        assert_eq!(work(&compiling, &kernels, &driver), 1);
        assert!(is_there(&kernels, &driver, 2));
        // once it has been dropped from memory
        assert!(!compiling.add(&planned(1), LAUNCH));
        assert!(compiling.add(&planned(1), DUE));
    }

    #[test]
    fn the_background_may_be_off() {
        let compiling = Compiling::for_cores(CORES, false);
        compiling.set_on(false);
        assert!(!compiling.add(&planned(1), 2 * DUE));
        assert!(!compiling.step(|_| panic!("nothing is queued")));
        compiling.set_on(true);
        assert!(!compiling.add(&planned(1), LAUNCH), "nothing was counted");
        assert!(compiling.add(&planned(1), DUE));
    }

    #[test]
    fn failures_are_not_retried() {
        let (compiling, kernels) = (Compiling::for_cores(CORES, false), Kernels::default());
        let misfits = AtomicUsize::new(0);
        let driver = Counting {
            misfits: Some(misfits),
            ..Counting::default()
        };
        for _ in 0..3 {
            compiling.add(&planned(1), DUE);
            work(&compiling, &kernels, &driver);
        }
        let compiled = driver.misfits.as_ref().unwrap();
        assert_eq!(compiled.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_queue_is_bounded() {
        let (compiling, kernels) = (Compiling::for_cores(CORES, false), Kernels::default());
        let driver = Counting::default();
        let ask = |conjuncts| compiling.add(&planned(conjuncts), DUE);
        assert!(ask(1));
        for conjuncts in 2..=MOST_WAITING + 1 {
            assert!(!ask(conjuncts));
        }
        assert_eq!(work(&compiling, &kernels, &driver), MOST_WAITING);
        assert!(!is_there(&kernels, &driver, MOST_WAITING + 1));
        assert!(ask(MOST_WAITING + 1));
    }

    #[test]
    fn queries_do_not_wait_for_the_background() {
        let (compiling, kernels) = (Compiling::for_cores(CORES, false), Kernels::default());
        let driver = Counting::default();
        compiling.add(&planned(1), DUE);
        compiling.step(|plan| {
            assert!(!is_there(&kernels, &driver, 1));
            assert!(!compiling.add(plan, DUE));
            kernels.get(plan, &driver).map(drop)
        });
        assert!(is_there(&kernels, &driver, 1));
    }
}
