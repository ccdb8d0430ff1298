//! Errors of devices, of kernel compilation and of pipelines.

/// An error of a device, of a kernel's compilation, or of the pipeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable device; the text says what was searched for.
    #[error("no GPU: {0}")]
    Unavailable(String),
    /// A call of the driver failed. The query can be answered by the CPU.
    #[error("{call} failed: {reason}")]
    Driver {
        /// The call, such as `cuMemAlloc`.
        call: &'static str,
        /// The driver's description of the error.
        reason: String,
    },
    /// The device is unusable for the rest of this process. Other processes may use it.
    #[error("the GPU is lost for this process: {0}")]
    Lost(String),
    /// The caller cancelled the execution.
    #[error("cancelled")]
    Cancelled,
    /// An allocation of host memory for a result was refused.
    #[error("{wanted} bytes of host memory for results were refused: {reason}")]
    Refused {
        /// Bytes asked for.
        wanted: usize,
        /// Why not.
        reason: String,
    },
    /// The device's memory, or the budget for it, does not suffice.
    #[error("{wanted} bytes of device memory do not fit: {reason}")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Why they do not fit.
        reason: String,
    },
    /// A generated kernel did not compile: a defect of Vectile, or of the compiler. This process does not retry it.
    #[error("a kernel does not compile: {log}")]
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// A kernel has to be compiled, and there is no compiler; the text says what was searched for. Other queries, whose
    /// kernels are embedded, can use the device.
    #[error("the kernel needs a compiler: {0}")]
    NoCompiler(String),
    /// Columns are not on the device yet, and the caller forbids loading.
    #[error("columns are not loaded yet")]
    NotLoaded,
    /// The kernel has to be compiled first, and [`Execution::without_compiler`](crate::Execution::without_compiler)
    /// was called.
    #[error("the kernel is not compiled yet")]
    NotCompiled,
    /// The pipeline has no kernel or no program; the text says why.
    #[error("not fused: {0}")]
    Unsupported(String),
    /// A number did not fit 64 bits in the interpreter. It has 128 bits for the plan from now on: the query can be tried
    /// again, by another [`Execution`](crate::Execution).
    #[error("not fused: numbers of more than 64 bits in the interpreter")]
    Overflow,
    /// An invariant of Vectile does not hold; the text says which. No query, data or device is to blame.
    #[error("an internal error of Vectile: {0}")]
    Internal(String),
    /// Row groups do not fit the pipeline or the engine; the text says why.
    #[error("row groups that do not belong: {0}")]
    Mismatch(String),
    /// An encoded column cannot be decoded.
    #[error(transparent)]
    Encoding(#[from] vectile_encodings::Error),
}

impl Error {
    /// Returns true for defects of Vectile: an invariant that does not hold, or a kernel that does not compile.
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

impl From<vectile_pipeline::Error> for Error {
    fn from(error: vectile_pipeline::Error) -> Self {
        match error {
            vectile_pipeline::Error::Unsupported(reason) => Self::Unsupported(reason),
            vectile_pipeline::Error::Internal(reason) => Self::Internal(reason),
            vectile_pipeline::Error::Encoding(error) => Self::Encoding(error),
            vectile_pipeline::Error::Device(error) => match error.downcast::<Self>() {
                Ok(error) => *error,
                Err(error) => Self::Internal(error.to_string()),
            },
            error => Self::Internal(error.to_string()),
        }
    }
}

/// For tables and values that are read back from a device.
impl From<Error> for vectile_pipeline::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported(reason) => Self::Unsupported(reason),
            Error::Internal(reason) => Self::Internal(reason),
            Error::Encoding(error) => Self::Encoding(error),
            error => Self::Device(Box::new(error)),
        }
    }
}

/// Result of an operation on a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;
