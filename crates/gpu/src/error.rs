//! What can go wrong on a device.

/// An error of a device, of a kernel's compilation, or of what was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no device that can be used; the text says what was looked for.
    #[error("no GPU: {0}")]
    Unavailable(String),
    /// A call of the driver failed. The query can be answered by the CPU.
    #[error("{call} failed: {reason}")]
    Driver {
        /// The call, such as `cuMemAlloc`.
        call: &'static str,
        /// What the driver said.
        reason: String,
    },
    /// The device does not work any more in this process, whatever is tried. Other processes may use it.
    #[error("the GPU is lost for this process: {0}")]
    Lost(String),
    /// Whoever wanted the result does not want it any more.
    #[error("cancelled")]
    Cancelled,
    /// Memory of the host that a result needs was refused.
    #[error("{wanted} bytes of host memory for results were refused: {reason}")]
    Refused {
        /// Bytes asked for.
        wanted: usize,
        /// Why not.
        reason: String,
    },
    /// Memory of the device, or its budget, does not suffice.
    #[error("{wanted} bytes of device memory do not fit: {reason}")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// What was in the way.
        reason: String,
    },
    /// A generated kernel did not compile: a defect of ours, or of the compiler. It is not compiled again in this process.
    #[error("a kernel does not compile: {log}")]
    Compile {
        /// What the compiler said.
        log: String,
    },
    /// Columns are not on the device yet, and nothing may be loaded.
    #[error("columns are not loaded yet")]
    NotLoaded,
    /// The kernel has to be compiled first, and [`Execution::without_compiler`](crate::Execution::without_compiler)
    /// was called.
    #[error("the kernel is not compiled yet")]
    NotCompiled,
    /// What was asked for has no kernel; the text says why.
    #[error("not for the GPU: {0}")]
    Unsupported(String),
    /// An invariant of ours does not hold; the text says which. No query, data or device is to blame.
    #[error("an internal error of Vectile: {0}")]
    Internal(String),
    /// Row groups are not what the pipeline, or the engine, can take; the text says why.
    #[error("row groups that do not belong: {0}")]
    Mismatch(String),
    /// An encoded column cannot be decoded.
    #[error(transparent)]
    Encoding(#[from] vectile_encodings::Error),
}

impl Error {
    /// Whether it is a defect of ours: an invariant that does not hold, or a kernel that does not compile.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Internal(_) | Self::Compile { .. })
    }
}

impl From<vectile_kernels::Error> for Error {
    fn from(error: vectile_kernels::Error) -> Self {
        match error {
            vectile_kernels::Error::Encoding(error) => Self::Encoding(error),
            vectile_kernels::Error::Unsupported(reason) => Self::Unsupported(reason),
        }
    }
}

/// Result of an operation on a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;
