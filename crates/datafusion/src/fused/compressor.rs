//! Compresses the strings of written files on the GPU.

use std::fmt::{self, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::runtime::SpawnedTask;
use datafusion::physical_plan::metrics::Count;
use datafusion::prelude::SessionConfig;
use vectile_encodings::{Compressor, Splits, Uncompressed};
use vectile_gpu::{Engine, Error};

use super::background::{Kind, Session};
use super::device::Gpu;
use crate::error;
use crate::options::{GpuMode, VectileOptions};

/// Shorter strings are compressed faster than the device could start.
const LEAST_BYTES: u64 = 1 << 16;
/// For less text than this, `auto` opens no device: a few cores compress it in the same time.
const LEAST_BYTES_TO_OPEN: u64 = 64 << 20;

/// Compresses strings on the device of `gpu`, if `mode` allows it and it is ready.
struct GpuCompressor {
    gpu: Gpu,
    mode: GpuMode,
    /// Bytes of strings requested to be compressed so far.
    requested: AtomicU64,
    /// Bytes of strings that the device has compressed.
    compressed: Count,
    /// Cancels background tasks when dropped.
    session: Session,
}

impl Gpu {
    /// Delegates the compression of strings in written files to this device, for
    /// [`WriterOptions`](vectile_file::WriterOptions). `None` if `mode` is [`GpuMode::Off`]. With [`GpuMode::Auto`],
    /// the CPU compresses until the device is open and has its kernel; both are prepared in the background once there
    /// is enough text. With other modes the device is opened, and its kernel compiled, at once. If the device fails,
    /// the CPU compresses.
    pub fn compressor(&self, mode: GpuMode) -> Option<Arc<dyn Compressor>> {
        self.counting_compressor(mode, Count::new())
    }

    fn counting_compressor(&self, mode: GpuMode, compressed: Count) -> Option<Arc<dyn Compressor>> {
        let compressor = || GpuCompressor {
            gpu: self.clone(),
            mode,
            requested: AtomicU64::new(0),
            compressed,
            session: Session::new(),
        };
        (mode != GpuMode::Off && self.may_be_there()).then(|| Arc::new(compressor()) as _)
    }
}

/// Delegates the compression of strings in written files to a session's GPU, according to `vectile.gpu`; see
/// [`Gpu::compressor`].
pub fn compressor(session: &SessionConfig) -> Option<Arc<dyn Compressor>> {
    counting_compressor(session, Count::new())
}

/// As [`compressor`]. Adds the bytes of strings that the device has compressed to `compressed`.
pub(crate) fn counting_compressor(
    session: &SessionConfig,
    compressed: Count,
) -> Option<Arc<dyn Compressor>> {
    let gpu = session.get_extension::<Gpu>()?;
    gpu.counting_compressor(VectileOptions::of(session.options()).gpu, compressed)
}

impl GpuCompressor {
    /// The device, to compress `bytes` more; `None` if the CPU should.
    fn engine(&self, bytes: u64) -> Option<Arc<Engine>> {
        let requested = self.requested.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let opened = match (self.gpu.opened(), self.mode) {
            (None, GpuMode::Auto) => {
                if requested >= LEAST_BYTES_TO_OPEN {
                    self.gpu.open_in_background();
                }
                return None;
            }
            (None, _) => self.gpu.open(),
            (Some(opened), _) => opened,
        };
        Some(opened.ok()?.engine)
    }

    /// Compiles the kernel in the background.
    fn compile(&self, engine: Arc<Engine>) {
        let work = async move {
            let compile = SpawnedTask::spawn_blocking(move || engine.prepare_compression());
            let compiled = compile.join().await.map_err(error::interrupted)?;
            compiled.map_err(error::gpu)
        };
        let name = "the kernel that compresses text".into();
        let background = self.gpu.background();
        background.start(Kind::Query, name, self.session.end(), work);
    }
}

impl Compressor for GpuCompressor {
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits> {
        let bytes = strings.strings.iter().map(|string| string.len() as u64);
        let bytes: u64 = bytes.sum();
        if bytes < LEAST_BYTES {
            return None;
        }
        let engine = self.engine(bytes)?;
        match engine.compress(strings, self.mode != GpuMode::Auto) {
            Ok(compressed_strings) => {
                self.compressed.add(bytes as usize);
                Some(compressed_strings.splits)
            }
            Err(Error::NotCompiled) => {
                self.compile(engine);
                None
            }
            // the CPU writes the same file
            Err(error) => {
                self.gpu.is_noted(&error::gpu(error));
                None
            }
        }
    }
}

impl fmt::Debug for GpuCompressor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GpuCompressor").field(&self.gpu).finish()
    }
}
