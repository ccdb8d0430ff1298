//! Compression of text on a GPU.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use vectile_datafusion::{Gpu, GpuMode};
use vectile_encodings::Compressor;

/// The option of commands that write tables.
#[derive(Clone, Copy, Debug, Args)]
pub struct GpuArgs {
    /// Use of a GPU to compress the text of Vectile files
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    gpu: When,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// Where there is one, once it is ready
    Auto,
    /// Where there is one, from the first row on
    On,
    /// Never
    Off,
}

impl GpuArgs {
    /// The compressor to use besides the CPU.
    pub fn compressor(self) -> Option<Arc<dyn Compressor>> {
        Gpu::of_machine().compressor(match self.gpu {
            When::Auto => GpuMode::Auto,
            When::On => GpuMode::On,
            When::Off => GpuMode::Off,
        })
    }
}
