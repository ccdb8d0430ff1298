//! The device that queries use, and what is kept beside it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use vectile_gpu::{Cuda, Engine};

use super::nodes::dimension_cache::DimensionCache;

/// Where queries find a GPU: by default the first device of the machine.
#[derive(Clone)]
pub struct Gpu(Source);

#[derive(Clone)]
enum Source {
    /// The first device, opened when a query first asks for it.
    Machine,
    /// This one, or none.
    Given(Opened),
}

/// A device that queries use, or why they cannot.
type Opened = Result<Device, Arc<str>>;

/// A device, and what queries keep for the next ones.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) engine: Arc<Engine>,
    pub(crate) dimensions: Arc<DimensionCache>,
}

impl Device {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            dimensions: Arc::new(DimensionCache::beside(&engine)),
            engine,
        }
    }
}

/// The first device of the machine, or why it cannot be used.
static MACHINE: OnceLock<Opened> = OnceLock::new();

impl Gpu {
    /// The first device of the machine, if there is one. It is opened when a query first asks for
    /// it, once in a process.
    pub fn of_machine() -> Self {
        Self(Source::Machine)
    }

    /// The device of this engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self(Source::Given(Ok(Device::new(engine))))
    }

    /// No device, and what to say about that.
    pub fn none(reason: impl Into<Arc<str>>) -> Self {
        Self(Source::Given(Err(reason.into())))
    }

    /// The device, or why there is none that works.
    pub(crate) fn device(&self) -> Opened {
        let device = match &self.0 {
            Source::Machine => MACHINE.get_or_init(open).clone()?,
            Source::Given(device) => device.clone()?,
        };
        let usable = device.engine.check();
        usable.map_err(|error| Arc::from(error.to_string()))?;
        Ok(device)
    }

    /// Whether there is a device and it is open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.0 {
            Source::Machine => MACHINE.get().is_some_and(Result::is_ok),
            Source::Given(device) => device.is_ok(),
        }
    }
}

fn open() -> Opened {
    match Cuda::open(0) {
        Ok(device) => Ok(Device::new(Engine::new(device))),
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
            Source::Given(Ok(device)) => f.debug_tuple("Gpu").field(&device.engine).finish(),
            Source::Given(Err(reason)) => write!(f, "Gpu(none: {reason})"),
        }
    }
}
