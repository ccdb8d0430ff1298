//! Scans and aggregates on the GPU.
//!
//! ```text
//!  rule       finds what can be fused, weighs it up, and says why the rest is not
//!    relation   a chain of operators above a scan, as expressions over the table
//!    lower      those expressions as the IR of vectile-gpu
//!  aggregate  a plan node: loads, runs the kernel, builds the states of the aggregates
//!  scan       the filters of a scan, for the stream that otherwise evaluates them itself
//!    load       row groups on their way to the device
//! ```

mod aggregate;
mod load;
mod lower;
mod metrics;
mod reason;
mod relation;
mod rule;
mod scalar;
mod scan;

use std::fmt;
use std::sync::{Arc, OnceLock};

use vectile_gpu::{Cuda, Engine};

pub(crate) use metrics::GpuMetrics;
pub(crate) use rule::insert_rule;
pub(crate) use scan::{GpuPartition, GpuScan, SelectedRows, Selector};

/// Where queries find a GPU: by default the first device of the machine.
#[derive(Clone)]
pub struct Gpu(Source);

#[derive(Clone)]
enum Source {
    /// The first device, opened when a query first asks for it.
    Machine,
    /// This one, or none.
    Given(Result<Arc<Engine>, Arc<str>>),
}

/// The first device of the machine, or why it cannot be used.
static MACHINE: OnceLock<Result<Arc<Engine>, Arc<str>>> = OnceLock::new();

impl Gpu {
    /// The first device of the machine, if there is one. It is opened when a query first asks for
    /// it, once in a process.
    pub fn of_machine() -> Self {
        Self(Source::Machine)
    }

    /// The device of this engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self(Source::Given(Ok(engine)))
    }

    /// No device, and what to say about that.
    pub fn none(reason: impl Into<Arc<str>>) -> Self {
        Self(Source::Given(Err(reason.into())))
    }

    /// The engine, or why there is none.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Arc<str>> {
        match &self.0 {
            Source::Machine => MACHINE.get_or_init(open).clone(),
            Source::Given(engine) => engine.clone(),
        }
    }
}

impl Gpu {
    /// Whether there is a device and it is open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.0 {
            Source::Machine => MACHINE.get().is_some_and(Result::is_ok),
            Source::Given(engine) => engine.is_ok(),
        }
    }
}

fn open() -> Result<Arc<Engine>, Arc<str>> {
    match Cuda::open(0) {
        Ok(device) => Ok(Engine::new(device)),
        Err(error) => Err(error.to_string().into()),
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self::of_machine()
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Machine => f.write_str("Gpu(of the machine)"),
            Source::Given(Ok(engine)) => f.debug_tuple("Gpu").field(engine).finish(),
            Source::Given(Err(reason)) => write!(f, "Gpu(none: {reason})"),
        }
    }
}
