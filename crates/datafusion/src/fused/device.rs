//! The device that queries use, and what is kept beside it.

use std::path::Path;
use std::sync::{Arc, LazyLock, Once, OnceLock};
use std::thread;
use std::{fmt, io};

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use vectile_gpu::{Cuda, Engine};

use super::background::Background;
use super::cost_model::Costs;
use super::defects::Defects;
use super::dimension_cache::DimensionCache;
use super::pins::Pins;
use crate::error;
use crate::options::VectileOptions;

/// Where queries find a GPU: by default the first device of the machine.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    device: OnceLock<Opened>,
    /// Opens it.
    open: Box<dyn Fn() -> Opened + Send + Sync>,
    begin: Once,
    costs: Arc<Costs>,
    background: Arc<Background>,
}

/// A device that queries use, or why they cannot.
pub(crate) type Opened = Result<Device, Arc<str>>;

/// A device, and what queries keep for the next ones.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) engine: Arc<Engine>,
    pub(crate) dimensions: Arc<DimensionCache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) defects: Arc<Defects>,
}

impl Device {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            dimensions: Arc::new(DimensionCache::beside(&engine)),
            pins: Arc::default(),
            defects: Arc::new(Defects::new(engine.device().is_emulated)),
            engine,
        }
    }

    /// Tells it how much memory a session lets it take.
    pub(crate) fn limit(&self, options: &VectileOptions) {
        if let Some(limit) = options.gpu_memory_limit {
            self.engine.set_memory_limit(limit);
            self.dimensions.limit(&self.engine);
        }
        if let Some(limit) = options.gpu_host_memory_limit {
            self.engine.set_host_memory_limit(limit);
        }
    }
}

/// The first device of the machine.
static MACHINE: LazyLock<Gpu> = LazyLock::new(|| {
    // of NVIDIA's driver, there and in the Linux of Windows
    let nodes = ["/dev/nvidiactl", "/dev/dxg"];
    if cfg!(target_os = "linux") && !nodes.iter().any(|node| Path::new(node).exists()) {
        let gpu = Gpu::with_costs(open_first, Costs::default());
        // to find none takes no time
        let _ = gpu.open();
        return gpu;
    }
    Gpu::with_costs(open_first, Costs::of_machine())
});

impl Gpu {
    /// The first device of the machine, if there is one. It is opened when a query first asks for
    /// it, once in a process.
    pub fn of_machine() -> Self {
        MACHINE.clone()
    }

    /// The device of this engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self::given(Ok(Device::new(engine)))
    }

    /// No device, and what to say about that.
    pub fn none(reason: impl Into<Arc<str>>) -> Self {
        Self::given(Err(reason.into()))
    }

    fn given(opened: Opened) -> Self {
        let gpu = Self::with_costs(move || opened.clone(), Costs::default());
        let _ = gpu.open();
        gpu
    }

    /// The device of an engine that `open` makes, when a query first asks for it; or why there is none. `open` may
    /// take its time: no thread of the async runtime runs it.
    pub fn later(open: impl Fn() -> Result<Arc<Engine>, String> + Send + Sync + 'static) -> Self {
        Self::with_costs(move || Ok(Device::new(open()?)), Costs::default())
    }

    fn with_costs(open: impl Fn() -> Opened + Send + Sync + 'static, costs: Costs) -> Self {
        Self(Arc::new(Shared {
            device: OnceLock::new(),
            open: Box::new(open),
            begin: Once::new(),
            costs: Arc::new(costs),
            background: Arc::new(Background::new()),
        }))
    }

    /// Begins to open the device on a thread of its own, and returns. A service calls this when it starts, so
    /// that its first query can use the device; otherwise the first query for which a GPU would pay does.
    pub fn open_in_background(&self) {
        if self.opened().is_none() {
            let gpu = self.clone();
            // without a thread, a query opens it that has to have it
            let open = || drop(in_background(move || _ = gpu.open()));
            self.0.begin.call_once(open);
        }
    }

    /// The device, or why there is none that works; `None` if it was not opened yet.
    pub(crate) fn opened(&self) -> Option<Opened> {
        self.0.device.get().cloned().map(working)
    }

    /// A device is there, or may be, or was before it was lost.
    pub(crate) fn may_be_there(&self) -> bool {
        !matches!(self.0.device.get(), Some(Err(_)))
    }

    /// The device, told how much memory it may take. If need be, it is opened on a thread that may block.
    ///
    /// # Errors
    ///
    /// Why there is none that works.
    pub(crate) async fn device(&self, options: &VectileOptions) -> Result<Device> {
        let opened = match self.opened() {
            Some(opened) => opened,
            None => {
                let gpu = self.clone();
                let open = SpawnedTask::spawn_blocking(move || gpu.open());
                open.join().await.map_err(error::interrupted)?
            }
        };
        let device = opened.map_err(|reason| exec_datafusion_err!("{reason}"))?;
        device.limit(options);
        Ok(device)
    }

    /// Opens it, if need be, on the calling thread.
    pub(super) fn open(&self) -> Opened {
        working(self.0.device.get_or_init(&self.0.open).clone())
    }

    /// `error`, if the CPU may answer instead: see [`Defects::left_to_cpu`].
    ///
    /// # Errors
    ///
    /// The defect, on an emulator.
    pub(crate) fn left_to_cpu(&self, error: DataFusionError) -> Result<DataFusionError> {
        match self.0.device.get() {
            Some(Ok(device)) => device.defects.left_to_cpu(error),
            _ => Ok(error),
        }
    }

    /// Logs a warning, if the error is a defect of ours and stays none; and says whether.
    pub(crate) fn is_noted(&self, error: &DataFusionError) -> bool {
        let device = self.0.device.get().and_then(|device| device.as_ref().ok());
        device.is_some_and(|device| device.defects.is_noted(error))
    }

    /// A number that changes when queries may be planned otherwise: a device has been opened or lost, or the CPU is
    /// much faster or slower than it was.
    pub(crate) fn outlook(&self) -> u64 {
        let works = self.opened().is_some_and(|device| device.is_ok());
        self.0.costs.outlook() << 1 | u64::from(works)
    }

    /// What queries took so far.
    pub(crate) fn costs(&self) -> &Arc<Costs> {
        &self.0.costs
    }

    /// The background makes the device ready for queries.
    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.0.background
    }
}

/// The device, unless it has been lost.
fn working(opened: Opened) -> Opened {
    let device = opened?;
    match device.engine.check() {
        Ok(()) => Ok(device),
        Err(error) => Err(error.to_string().into()),
    }
}

fn in_background(work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    let thread = thread::Builder::new().name("vectile-gpu".into());
    thread.spawn(work)
}

fn open_first() -> Opened {
    let device = Cuda::open(0).map_err(|error| error.to_string())?;
    let engine = Engine::new(device);
    let prepared = Arc::clone(&engine);
    // without it, the first copies take longer
    let _ = in_background(move || _ = prepared.prepare_copies());
    Ok(Device::new(engine))
}

impl Default for Gpu {
    fn default() -> Self {
        Self::of_machine()
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.device.get() {
            None => f.write_str("Gpu(not open yet)"),
            Some(Ok(device)) => f.debug_tuple("Gpu").field(&device.engine).finish(),
            Some(Err(reason)) => write!(f, "Gpu(none: {reason})"),
        }
    }
}

/// The name of the device, for `EXPLAIN`.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.device.get() {
            None => f.write_str("the GPU, which is not open yet"),
            Some(Ok(device)) => f.write_str(&device.engine.device().name),
            Some(Err(reason)) => write!(f, "no GPU: {reason}"),
        }
    }
}
