//! Residuals of many vectors, bit-packed, with patches: the storage of `ffor` and `delta`.
//!
//! ```text
//! buffer   u8 bit_width of each vector, 0..=64
//! buffer   packed vectors, 128 * bit_width bytes each: up to 32 bits as in `bitpack`; wider ones
//!          as a low plane of 32 bits (4096 bytes) and a high plane of bit_width - 32 bits. A last
//!          vector of fewer rows has just these, bit by bit one behind the other, the lowest first
//!          (1024 as others in version 1)
//! then     the patches, see `patches`
//! ```
//!
//! A patch replaces the residual of its row. The packed slot of a patched row holds zero.
//!
//! Parsing repacks a short vector as a full one, so that all are read in one way.

use arrow::buffer::Buffer;

use crate::VECTOR_LEN;
use crate::bitpack::{self, LANES, LINE_BYTES, Plane, Words};
use crate::error::{Result, ensure};
use crate::masks::{Mask, for_each_bit, set_bit};
use crate::patches::{PatchList, Patches, PatchesWriter, patch_bytes};
use crate::simd::dispatched;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::Word;

const PART: &str = "residuals";
/// Bytes that patches must save to be worth their second pass.
pub(crate) const MIN_PATCH_GAIN: usize = 64;

/// The number of significant bits of `value`.
pub(crate) fn bit_length(value: u64) -> usize {
    64 - value.leading_zeros() as usize
}

/// The position of the residuals within a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// The residual of a row is at that row.
    Rows,
    /// A lane has the residuals of consecutive rows.
    Lanes,
}

impl Order {
    fn packed_index(self, row: usize) -> usize {
        match self {
            Self::Rows => row,
            Self::Lanes => row % LANES * LANES + row / LANES,
        }
    }
}

/// Packs vectors of residuals one after another.
#[derive(Debug)]
pub(crate) struct ResidualsWriter {
    order: Order,
    widths: Vec<u8>,
    packed: Vec<u8>,
    patches: PatchesWriter,
}

impl ResidualsWriter {
    pub fn new(order: Order) -> Self {
        Self {
            order,
            widths: vec![],
            packed: vec![],
            patches: PatchesWriter::default(),
        }
    }

    /// Packs one vector of `rows` rows at the cheapest width.
    pub fn push(&mut self, residuals: &[u64; VECTOR_LEN], rows: usize, patching: bool) {
        if rows < VECTOR_LEN {
            return self.push_short(residuals, rows, patching);
        }
        let full = bit_length(union(residuals));
        let width = width_of(residuals, full, patching);
        self.widths.push(width as u8);
        if width == full {
            self.patches.push(&[0; VECTOR_LEN / 64], |_| 0);
            pack(residuals, width, &mut self.packed);
        } else {
            let (kept, patched) = patched(residuals, width);
            self.patches.push(&patched, |row| residuals[row]);
            pack(&kept, width, &mut self.packed);
        }
    }

    fn push_short(&mut self, residuals: &[u64; VECTOR_LEN], rows: usize, patching: bool) {
        let mut live = [0; VECTOR_LEN];
        for (row, residual) in live[..rows].iter_mut().enumerate() {
            *residual = residuals[self.order.packed_index(row)];
        }
        let live_bits = bit_length(union(&live));
        let width = width_of(&live[..rows], live_bits, patching);
        self.widths.push(width as u8);
        let (kept, by_row) = patched(&live, width);
        let mut patched = [0; VECTOR_LEN / 64];
        for_each_bit(&by_row, |row| {
            set_bit(&mut patched, self.order.packed_index(row), true);
        });
        self.patches
            .push(&patched, |packed_index| residuals[packed_index]);
        bitpack::pack_short(&kept[..rows], width, &mut self.packed);
    }

    /// Returns true if all residuals are 0.
    pub fn is_zero(&self) -> bool {
        self.widths.iter().all(|width| *width == 0) && self.patches.is_empty()
    }

    pub fn finish(self, out: &mut ChunkWriter) {
        out.buffer(self.widths);
        out.buffer(self.packed);
        self.patches.finish(out);
    }
}

/// The residuals with zeros for those wider than `width`, and a mask of these.
fn patched(residuals: &[u64; VECTOR_LEN], width: usize) -> ([u64; VECTOR_LEN], Mask) {
    let limit = 1u64.checked_shl(width as u32).unwrap_or(0).wrapping_sub(1);
    let mut kept = *residuals;
    let mut patched = [0; VECTOR_LEN / 64];
    for (row, residual) in kept.iter_mut().enumerate().filter(|(_, r)| **r > limit) {
        *residual = 0;
        set_bit(&mut patched, row, true);
    }
    (kept, patched)
}

/// The width to pack residuals at; `full` fits all.
fn width_of(residuals: &[u64], full: usize, patching: bool) -> usize {
    match patching {
        true => cheapest_width(residuals, full),
        false => full,
    }
}

/// The size in bytes of [`ResidualsWriter`]'s output for the same vectors, patched if it pays.
#[derive(Default)]
pub(crate) struct ResidualsSize {
    vectors: usize,
    packed: usize,
    patches: usize,
    /// The bits of the widest patch.
    widest: usize,
}

impl ResidualsSize {
    /// Counts one vector of `rows` rows; other entries must be zero.
    pub fn push(&mut self, residuals: &[u64; VECTOR_LEN], rows: usize) {
        let full = bit_length(union(residuals));
        let width = cheapest_width(residuals, full);
        self.vectors += 1;
        self.packed += (rows * width).div_ceil(8);
        if width < full {
            self.patches += count_wider(residuals, width);
            self.widest = self.widest.max(full);
        }
    }

    pub fn bytes(&self) -> usize {
        let patches = match self.patches {
            0 => 0,
            patches => 2 * self.vectors + patches * patch_bytes(self.widest),
        };
        1 + self.vectors + self.packed + patches
    }
}

/// Appends the packed words of a vector whose residuals have at most `width` bits.
pub fn pack(residuals: &[u64; VECTOR_LEN], width: usize, out: &mut Vec<u8>) {
    let mut plane = [0; VECTOR_LEN];
    words(residuals, 0, &mut plane);
    bitpack::pack(&plane, width.min(32), out);
    if width > 32 {
        words(residuals, 32, &mut plane);
        bitpack::pack(&plane, width - 32, out);
    }
}

dispatched! {
    /// The union of the bits of all residuals.
    fn union(residuals: &[u64]) -> u64 {
        residuals.iter().fold(0, |all, residual| all | residual)
    }
}

dispatched! {
    /// The 32 bits of each residual from bit `shift` on.
    fn words(residuals: &[u64; VECTOR_LEN], shift: u32, out: &mut Words) {
        for (word, residual) in out.iter_mut().zip(residuals) {
            *word = (residual >> shift) as u32;
        }
    }
}

dispatched! {
    /// The number of residuals that need more than `width < 64` bits.
    fn count_wider(residuals: &[u64], width: usize) -> usize {
        let limit = (1u64 << width) - 1;
        let wider = |count: u64, residual: &u64| count + u64::from(*residual > limit);
        residuals.iter().fold(0, wider) as usize
    }
}

/// The width at which packed bytes and patches together are smallest; `full` fits all residuals.
fn cheapest_width(residuals: &[u64], full: usize) -> usize {
    let bytes_of = |width: usize| (residuals.len() * width).div_ceil(8);
    let mut best = (bytes_of(full), full);
    for width in (0..full).rev() {
        if bytes_of(full) - bytes_of(width) <= MIN_PATCH_GAIN {
            continue;
        }
        let patches = count_wider(residuals, width) * patch_bytes(full);
        if patches + MIN_PATCH_GAIN >= bytes_of(full) {
            // a smaller width has at least as many patches
            break;
        }
        let bytes = bytes_of(width) + patches;
        if bytes + MIN_PATCH_GAIN < best.0 {
            best = (bytes, width);
        }
    }
    best.1
}

/// Parsed residuals.
///
/// Invariants, checked by [`Residuals::parse`]: widths are at most 64; `offsets` has an entry more than there are
/// vectors in `packed`, which ends at the last. A short vector is in `short`, repacked as a full one.
#[derive(Clone, Debug)]
pub(crate) struct Residuals {
    widths: Buffer,
    offsets: Vec<u32>,
    packed: Buffer,
    short: Buffer,
    patches: Patches,
}

impl Residuals {
    pub fn parse(reader: &mut ChunkReader, len: usize, order: Order) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        let widths = reader.buffer_of(vectors, PART)?;
        let widest = widths.iter().max().map_or(0, |width| *width);
        ensure(widest <= 64, PART, || {
            format!("a bit width of {widest}, at most 64")
        })?;
        let (long, rows) = match reader.is_version_1() {
            true => (vectors, 0),
            false => (len / VECTOR_LEN, len % VECTOR_LEN),
        };
        let mut offsets = Vec::with_capacity(long + 1);
        let mut lines = 0u32;
        offsets.push(0);
        for width in widths.iter().take(long) {
            lines = lines.saturating_add(u32::from(*width));
            offsets.push(lines);
        }
        let long_bytes = (lines as usize).saturating_mul(LINE_BYTES);
        let short_width = widths.get(long).map_or(0, |width| usize::from(*width));
        let short_bytes = (rows * short_width).div_ceil(8);
        let packed = reader.buffer_of(long_bytes.saturating_add(short_bytes), PART)?;
        let short = packed.get(long_bytes..).unwrap_or_default();
        Ok(Self {
            short: lengthened(short, short_width, rows, order),
            packed: packed.slice_with_length(0, long_bytes),
            widths,
            offsets,
            patches: Patches::parse(reader, vectors, size_of::<u64>())?,
        })
    }

    pub fn width(&self, vector: usize) -> usize {
        self.widths.get(vector).map_or(0, |w| usize::from(*w))
    }

    /// The packed words of a vector.
    pub fn packed(&self, vector: usize) -> &[u8] {
        if vector + 1 >= self.offsets.len() {
            return &self.short;
        }
        let line = |i: usize| {
            self.offsets
                .get(i)
                .map_or(0, |line| *line as usize * LINE_BYTES)
        };
        self.packed
            .get(line(vector)..line(vector + 1))
            .unwrap_or_default()
    }

    /// Patches of a vector, as (row in vector, residual).
    pub fn patches(&self, vector: usize) -> impl Iterator<Item = (usize, u64)> {
        self.patches.of(vector)
    }

    pub fn has_patches(&self, vector: usize) -> bool {
        !self.patches.is_empty(vector)
    }

    /// One residual, before patches.
    #[inline]
    pub fn get(&self, vector: usize, row: usize) -> u64 {
        let (packed, width) = (self.packed(vector), self.width(vector));
        let low = u64::from(bitpack::get(packed, width.min(32), row));
        match packed.get(32 * LINE_BYTES..) {
            Some(high) if width > 32 => low | u64::from(bitpack::get(high, width - 32, row)) << 32,
            _ => low,
        }
    }

    /// The residuals as words, before patches. For vectors of width up to 32.
    pub fn unpack_words(&self, vector: usize, out: &mut Words) {
        bitpack::unpack(self.packed(vector), self.width(vector).min(32), out);
    }

    /// Appends `base + residual` for each row, patched.
    pub fn append_plus<T: Word>(&self, vector: usize, base: T, out: &mut Vec<T>) {
        let (low, high) = self.planes(vector);
        let start = out.len();
        bitpack::append_plus(low, high, base, out);
        for (row, residual) in self.patches(vector) {
            out[start + row] = base.plus(residual);
        }
    }

    /// As [`append_plus`](Self::append_plus), into `out`, which it fills.
    pub fn unpack_plus<T: Word>(&self, vector: usize, base: T, out: &mut [T; VECTOR_LEN]) {
        let (low, high) = self.planes(vector);
        bitpack::unpack_plus(low, high, base, out);
        for (row, residual) in self.patches(vector) {
            out[row] = base.plus(residual);
        }
    }

    /// The planes of a vector.
    fn planes(&self, vector: usize) -> (Plane<'_>, Option<Plane<'_>>) {
        let (packed, width) = (self.packed(vector), self.width(vector));
        let high = packed.get(32 * LINE_BYTES..).filter(|_| width > 32);
        ((packed, width.min(32)), high.map(|high| (high, width - 32)))
    }

    /// The residuals, patched.
    pub fn unpack(&self, vector: usize, out: &mut [u64; VECTOR_LEN]) {
        let width = self.width(vector);
        let mut plane = [0; VECTOR_LEN];
        self.unpack_words(vector, &mut plane);
        for (to, word) in out.iter_mut().zip(&plane) {
            *to = u64::from(*word);
        }
        if width > 32 {
            let high = self
                .packed(vector)
                .get(32 * LINE_BYTES..)
                .unwrap_or_default();
            bitpack::unpack(high, width - 32, &mut plane);
            for (to, word) in out.iter_mut().zip(&plane) {
                *to |= u64::from(*word) << 32;
            }
        }
        for (row, value) in self.patches(vector) {
            out[row] = value;
        }
    }

    /// Sets a bit per residual that lies in `low..=high`.
    pub fn in_range(&self, vector: usize, low: u64, high: u64, out: &mut Mask) {
        let width = self.width(vector);
        let max = 1u64.checked_shl(width as u32).unwrap_or(0).wrapping_sub(1);
        if low > high {
            out.fill(0);
            return;
        } else if low == 0 && high >= max {
            out.fill(u64::MAX);
        } else if low > max {
            out.fill(0);
        } else if width <= 32 {
            let span = high.min(max) - low;
            bitpack::in_range(self.packed(vector), width, low as u32, span as u32, out);
        } else {
            let mut residuals = [0; VECTOR_LEN];
            self.unpack(vector, &mut residuals);
            bitpack::words_in_range(&residuals, low, high, out);
        }
        for (row, value) in self.patches(vector) {
            set_bit(out, row, (low..=high).contains(&value));
        }
    }
}

/// Repacks a short vector as a full one.
fn lengthened(short: &[u8], width: usize, rows: usize, order: Order) -> Buffer {
    if width == 0 || rows == 0 {
        return Buffer::default();
    }
    let mut residuals = [0; VECTOR_LEN];
    for row in 0..rows {
        residuals[order.packed_index(row)] = bitpack::get_short(short, width, row);
    }
    let mut packed = Vec::with_capacity(width * LINE_BYTES);
    pack(&residuals, width, &mut packed);
    packed.into()
}

/// Bit-packed residuals of many vectors, with patches.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a>(pub(crate) &'a Residuals);

impl<'a> Packed<'a> {
    /// Bits of a residual of a vector, 0 to 64.
    pub fn width(&self, vector: usize) -> usize {
        self.0.width(vector)
    }

    /// The packed words of a vector: `128 * width` bytes.
    pub fn words(&self, vector: usize) -> &'a [u8] {
        self.0.packed(vector)
    }

    /// The packed words of all vectors as stored, except a short one at the end, which is stored in another way.
    pub fn long_words(&self) -> &'a Buffer {
        &self.0.packed
    }

    /// The packed words of the short vector; empty if there is none.
    pub fn short_words(&self) -> &'a [u8] {
        &self.0.short
    }

    /// Residuals that replace the packed ones.
    pub fn patches(&self) -> PatchList<'a> {
        PatchList(&self.0.patches)
    }
}
