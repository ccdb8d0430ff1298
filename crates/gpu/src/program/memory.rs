//! Memory of a warp that runs a program: accumulators, flags, slots, the list of picked rows, and a tile.

use vectile_kernels::ColumnTraits;
use vectile_kernels::program::{DENSE_ROWS, LIST_BYTES};

use super::code::MOST_PROGRAM_WARPS;
use crate::kernel::KernelPlan;

/// Bytes of a word of each lane.
const WORD_BYTES: u32 = 32 * 8;
/// Bytes of a flag.
const FLAG_BYTES: u32 = 32 * 4;
/// Bytes of a slot.
const SLOT_BYTES: u32 = DENSE_ROWS * WORD_BYTES;
/// Bytes of a vector of decoded values.
const DECODED_BYTES: usize = 1024 * 8;
/// Where a warp has its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarpMemory {
    /// Most warps of a block.
    pub warps: u32,
    pub flags_at: u32,
    pub slots_at: u32,
    pub tile_at: u32,
    /// Bytes of shared memory.
    pub bytes: u32,
    /// Bytes of scratch memory.
    pub scratch_bytes: usize,
}

impl WarpMemory {
    /// Lays out memory for accumulators of so many words, flags, slots, and columns that are decoded.
    pub fn new(plan: &KernelPlan, kept_words: u32, flags: u32, slots: u32, decoded: usize) -> Self {
        let warps = plan.warps.min(MOST_PROGRAM_WARPS);
        let tile = plan.columns.iter().map(|column| tile_bytes(&column.traits));
        let tile = tile.max().unwrap_or(0);
        let flags_at = kept_words * WORD_BYTES;
        let slots_at = flags_at + flags * FLAG_BYTES;
        let list_at = slots_at + slots * SLOT_BYTES;
        let tile_at = list_at + LIST_BYTES;
        Self {
            warps,
            flags_at,
            slots_at,
            tile_at,
            bytes: tile_at + tile,
            scratch_bytes: decoded * DECODED_BYTES,
        }
    }
}

/// Bytes of shared memory to decode any vector of a column as entries of 64 bits.
fn tile_bytes(traits: &ColumnTraits) -> u32 {
    let mut traits = traits.clone();
    traits.wide_entries = true;
    traits.keep_rows();
    traits.tile_bytes()
}
