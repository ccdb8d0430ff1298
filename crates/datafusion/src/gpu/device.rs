//! The device that queries use, and what is kept beside it.

use std::path::Path;
use std::sync::{Arc, LazyLock, Once, OnceLock};
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use vectile_gpu::{Cuda, Engine};

use super::background::Background;
use super::costs::Costs;
use super::nodes::dimension_cache::DimensionCache;
use super::pins::Pins;
use crate::options::VectileOptions;

/// Where queries find a GPU: by default the first device of the machine.
#[derive(Clone)]
pub struct Gpu {
    source: Source,
    costs: Arc<Costs>,
}

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
    pub(crate) background: Arc<Background>,
    pub(crate) pins: Arc<Pins>,
}

impl Device {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            dimensions: Arc::new(DimensionCache::beside(&engine)),
            background: Arc::new(Background::new()),
            pins: Arc::default(),
            engine,
        }
    }

    /// Tells the device how much memory it may take.
    pub(crate) fn limit(&self, options: &VectileOptions) {
        if let Some(limit) = options.gpu_memory_limit {
            self.engine.set_memory_limit(limit);
        }
        if let Some(limit) = options.gpu_host_memory_limit {
            self.engine.set_host_memory_limit(limit);
        }
    }
}

/// The first device of the machine, or why it cannot be used.
static MACHINE: OnceLock<Opened> = OnceLock::new();

/// What queries took on this machine.
static COSTS: LazyLock<Arc<Costs>> = LazyLock::new(Arc::default);

impl Gpu {
    /// The first device of the machine, if there is one. It is opened when a query first asks for
    /// it, once in a process.
    pub fn of_machine() -> Self {
        Self {
            source: Source::Machine,
            costs: Arc::clone(&COSTS),
        }
    }

    /// The device of this engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self::given(Ok(Device::new(engine)))
    }

    /// No device, and what to say about that.
    pub fn none(reason: impl Into<Arc<str>>) -> Self {
        Self::given(Err(reason.into()))
    }

    fn given(device: Opened) -> Self {
        Self {
            source: Source::Given(device),
            costs: Arc::default(),
        }
    }

    /// Begins to open the device on a thread of its own, and returns. A service calls this when it starts, so
    /// that its first query can use the device; otherwise the first query for which a GPU would pay does.
    pub fn open_in_background(&self) {
        static BEGIN: Once = Once::new();
        if self.is_to_be_opened() {
            BEGIN.call_once(|| {
                // without a thread, a query opens it that has to have it
                let _ = in_background(|| _ = MACHINE.get_or_init(open));
            });
        }
    }

    /// The device, or why there is none that works. Opens it if need be, and waits for that.
    pub(crate) fn device(&self) -> Opened {
        let device = match &self.source {
            Source::Machine => MACHINE.get_or_init(open).clone()?,
            Source::Given(device) => device.clone()?,
        };
        let usable = device.engine.check();
        usable.map_err(|error| Arc::from(error.to_string()))?;
        Ok(device)
    }

    /// Whether there may be a device that is still to be opened.
    pub(crate) fn is_to_be_opened(&self) -> bool {
        let is_there = |node: &&str| Path::new(node).exists();
        match &self.source {
            Source::Machine if MACHINE.get().is_some() => false,
            // of NVIDIA's driver, there and in the Linux of Windows
            Source::Machine if cfg!(target_os = "linux") => {
                ["/dev/nvidiactl", "/dev/dxg"].iter().any(is_there)
            }
            Source::Machine => true,
            Source::Given(_) => false,
        }
    }

    /// Whether there is a device and it is open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.source {
            Source::Machine => MACHINE.get().is_some_and(Result::is_ok),
            Source::Given(device) => device.is_ok(),
        }
    }

    /// A number that changes when queries may be planned otherwise: a device has been opened or lost, or the CPU is
    /// much faster or slower than it was.
    pub(crate) fn outlook(&self) -> u64 {
        let device = match &self.source {
            Source::Machine => MACHINE.get(),
            Source::Given(device) => Some(device),
        };
        let opened = device.and_then(|device| device.as_ref().ok());
        let works = opened.is_some_and(|device| device.engine.check().is_ok());
        self.costs.outlook() << 1 | u64::from(works)
    }

    /// What queries took so far.
    pub(crate) fn costs(&self) -> &Arc<Costs> {
        &self.costs
    }
}

fn in_background(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name("vectile-gpu".into());
    thread.spawn(work)
}

fn open() -> Opened {
    match Cuda::open(0) {
        Ok(device) => {
            let device = Device::new(Engine::new(device));
            let engine = Arc::clone(&device.engine);
            // without it, the first copies take longer
            let _ = in_background(move || _ = engine.prepare_copies());
            Ok(device)
        }
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
        match &self.source {
            Source::Machine => f.write_str("Gpu(of the machine)"),
            Source::Given(Ok(device)) => f.debug_tuple("Gpu").field(&device.engine).finish(),
            Source::Given(Err(reason)) => write!(f, "Gpu(none: {reason})"),
        }
    }
}
