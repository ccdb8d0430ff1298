//! The GPU that queries use, with its caches.

use std::path::Path;
use std::sync::{Arc, LazyLock, Once, OnceLock};
use std::thread;
use std::{fmt, io};

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use vectile_gpu::{Cuda, Engine, Tier};

use super::background::{Background, Kind, Session};
use super::cost_model::Costs;
use super::defects::Defects;
use super::key_table_cache::KeyTableCache;
use super::pins::Pins;
use super::readiness::Readiness;
use crate::error;
use crate::options::{GpuKernels, VectileOptions};

/// A handle to the GPU of queries: by default the first device of the machine.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    device: OnceLock<Opened>,
    /// Opens the device.
    open: Box<dyn Fn() -> Opened + Send + Sync>,
    begin: Once,
    /// Compiles kernels ahead.
    prepare: Once,
    costs: Arc<Costs>,
    readiness: Arc<Readiness>,
    background: Arc<Background>,
    /// Ends with the last handle.
    session: Session,
}

/// An open device, or why there is none.
pub(crate) type Opened = Result<Device, Arc<str>>;

/// An open device, and its state that queries share.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) engine: Arc<Engine>,
    pub(crate) key_tables: Arc<KeyTableCache>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) defects: Arc<Defects>,
}

impl Device {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            key_tables: Arc::new(KeyTableCache::beside(&engine)),
            pins: Arc::default(),
            defects: Arc::new(Defects::new(engine.device().is_emulated)),
            engine,
        }
    }

    /// Applies a session's options to the device.
    pub(crate) fn limit(&self, options: &VectileOptions) {
        if let Some(kernels) = options.gpu_kernels {
            self.engine.set_tier(match kernels {
                GpuKernels::Auto => Tier::Auto,
                GpuKernels::Interpreted => Tier::Interpreted,
                GpuKernels::Generated => Tier::Generated,
            });
        }
        self.engine.compile_in_background(options.gpu_background);
        if let Some(limit) = options.gpu_memory_limit {
            self.engine.set_memory_limit(limit);
            self.key_tables.limit(&self.engine);
        }
        if let Some(limit) = options.gpu_host_memory_limit {
            self.engine.set_host_memory_limit(limit);
        }
    }
}

/// The first device of the machine.
static MACHINE: LazyLock<Gpu> = LazyLock::new(|| {
    // device nodes of NVIDIA's driver, on Linux and in WSL
    let nodes = ["/dev/nvidiactl", "/dev/dxg"];
    if cfg!(target_os = "linux") && !nodes.iter().any(|node| Path::new(node).exists()) {
        let gpu = Gpu::with_costs(open_first, Costs::default());
        // fails at once
        let _ = gpu.open();
        return gpu;
    }
    Gpu::with_costs(open_first, Costs::of_machine())
});

impl Gpu {
    /// The first device of the machine, if there is one. It is opened once in a process, when a query first needs it.
    pub fn of_machine() -> Self {
        MACHINE.clone()
    }

    /// The device of `engine`.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self::given(Ok(Device::new(engine)))
    }

    /// No device, with the reason to report.
    pub fn none(reason: impl Into<Arc<str>>) -> Self {
        Self::given(Err(reason.into()))
    }

    fn given(opened: Opened) -> Self {
        let gpu = Self::with_costs(move || opened.clone(), Costs::default());
        let _ = gpu.open();
        gpu
    }

    /// The device of an engine that `open` creates when a query first needs it, or the reason why there is none. `open`
    /// may block: it does not run on a thread of the async runtime.
    pub fn later(open: impl Fn() -> Result<Arc<Engine>, String> + Send + Sync + 'static) -> Self {
        Self::with_costs(move || Ok(Device::new(open()?)), Costs::default())
    }

    fn with_costs(open: impl Fn() -> Opened + Send + Sync + 'static, costs: Costs) -> Self {
        Self(Arc::new(Shared {
            device: OnceLock::new(),
            open: Box::new(open),
            begin: Once::new(),
            prepare: Once::new(),
            costs: Arc::new(costs),
            readiness: Arc::default(),
            background: Arc::new(Background::new()),
            session: Session::new(),
        }))
    }

    /// Starts to open the device on a thread of its own, and returns at once. Call it when a service starts, so that
    /// its first query can use the device; otherwise the first query for which a GPU would pay opens it.
    pub fn open_in_background(&self) {
        if self.opened().is_none() {
            let gpu = self.clone();
            // without a thread, the first query that requires the device opens it
            let open = || drop(in_background(move || _ = gpu.open()));
            self.0.begin.call_once(open);
        }
    }

    /// The device, or why there is none that works; `None` if it is not opened yet.
    pub(crate) fn opened(&self) -> Option<Opened> {
        self.0.device.get().cloned().map(working)
    }

    /// False if opening the device has failed. A device that was lost counts as present.
    pub(crate) fn may_be_there(&self) -> bool {
        !matches!(self.0.device.get(), Some(Err(_)))
    }

    /// Returns the device, with memory limits from `options`. If necessary, opens it on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no device that works.
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
        if options.gpu_background {
            self.prepare_kernels(&device);
        }
        Ok(device)
    }

    /// Begins to compile the kernels that are the same for every query, once, where the build has not embedded them. An
    /// emulator compiles kernels when they are needed.
    fn prepare_kernels(&self, device: &Device) {
        let engine = Arc::clone(&device.engine);
        let work = async move {
            let prepare = move || engine.prepare_kernels().map_err(error::gpu);
            let task = SpawnedTask::spawn_blocking(prepare);
            task.join().await.map_err(error::interrupted)?
        };
        if !device.engine.device().is_emulated {
            let (background, end) = (&self.0.background, self.0.session.end());
            let start = || background.start(Kind::Kernels, "kernels".into(), end, work);
            self.0.prepare.call_once(start);
        }
    }

    /// Opens the device if necessary, on the calling thread.
    pub(super) fn open(&self) -> Opened {
        working(self.0.device.get_or_init(&self.0.open).clone())
    }

    /// Returns `error` if the CPU may take over: see [`Defects::left_to_cpu`].
    ///
    /// # Errors
    ///
    /// Returns the error if it is a defect, on an emulator.
    pub(crate) fn left_to_cpu(&self, error: DataFusionError) -> Result<DataFusionError> {
        match self.0.device.get() {
            Some(Ok(device)) => device.defects.left_to_cpu(error),
            _ => Ok(error),
        }
    }

    /// Logs a warning and returns true if `error` is a defect that does not stay an error.
    pub(crate) fn is_noted(&self, error: &DataFusionError) -> bool {
        let device = self.0.device.get().and_then(|device| device.as_ref().ok());
        device.is_some_and(|device| device.defects.is_noted(error))
    }

    /// A number that changes when queries may be planned differently: the device was opened or lost, or estimates
    /// changed.
    pub(crate) fn outlook(&self) -> u64 {
        let works = self.opened().is_some_and(|device| device.is_ok());
        self.0.costs.outlook() << 1 | u64::from(works)
    }

    /// Measured costs of queries.
    pub(crate) fn costs(&self) -> &Arc<Costs> {
        &self.0.costs
    }

    /// Queries for which the device was not ready.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.0.readiness
    }

    /// The worker that prepares the device for queries.
    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.0.background
    }
}

/// Returns the device unless it was lost.
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
    // otherwise the first copies take longer
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
