//! Assembled programs.

use crate::error::{Error, Result};

/// Most bytes of shared memory of a block: every device has more.
const SHARED_BYTES: u32 = 64 << 10;
/// Most warps of a block: the interpreter's registers allow no more.
pub(crate) const MOST_PROGRAM_WARPS: u32 = 8;
/// A program, and what a launch of it needs.
#[derive(Debug)]
pub(crate) struct Program {
    /// Words of the program.
    pub code: Vec<u64>,
    /// Most warps of a block.
    pub warps: u32,
    /// Bytes of shared memory of a warp.
    pub warp_bytes: u32,
    /// Bytes of global memory of a warp.
    pub scratch_bytes: usize,
    /// True if some number may not fit 64 bits. Then the interpreter says so, and the results are of no use.
    pub is_checked: bool,
}

impl Program {
    /// Warps of a block that has as many bytes of shared memory of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is too little memory for one.
    pub fn warps_beside(&self, block_bytes: u32) -> Result<u32> {
        let mut warps = self.warps;
        while warps > 1 && block_bytes + warps * self.warp_bytes > SHARED_BYTES {
            warps /= 2;
        }
        match block_bytes + warps * self.warp_bytes <= SHARED_BYTES {
            true => Ok(warps),
            false => {
                let reason = format!(
                    "{block_bytes} and {} bytes of shared memory in the interpreter",
                    self.warp_bytes
                );
                Err(Error::Unsupported(reason))
            }
        }
    }
}
