//! Programs of the interpreter: the same kernel plan as instructions, for a kernel that was compiled ahead of time.
//!
//! The interpreter takes the arguments of a generated kernel, and the program behind them. It reads the same
//! descriptors and tables, and leaves the same results. So everything around a launch is the same for both.
//!
//! `vectile_kernels::program` defines instructions and arguments; `kernels/interpreter` runs them.

mod assembler;
mod body;
mod code;
mod columns;
mod expressions;
mod filters;
mod memory;
mod outputs;
mod rows;

pub(crate) use self::code::{MOST_PROGRAM_WARPS, Program};
use crate::emit::Layout;
use crate::error::Result;
use crate::kernel::KernelPlan;

/// The name of the kernel that runs programs.
pub(crate) const NAME: &str = "interpret";

/// The program of a plan, and the arguments before it. A wide program has numbers of 128 bits, and is several times as
/// slow; others say if a number does not fit 64 bits.
///
/// # Errors
///
/// [`Error::Unsupported`](crate::Error::Unsupported) if only a generated kernel can do it.
pub(crate) fn assemble(plan: &KernelPlan, is_wide: bool) -> Result<(Program, Layout)> {
    assembler::Assembler::new(plan, is_wide)?.program()
}
