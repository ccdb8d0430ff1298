//! A column chunk in its device layout: a front, and a body anywhere behind it.
//!
//! The body is usually that of the file: only the device's copy engine touches it. Offsets that a reader of the file
//! computes by summing (where a vector's words start, which patches are its own) are stored in the front, so that a
//! warp that decodes a vector reads 16 bytes, and then the words:
//!
//! ```text
//! header    128 bytes: transform, sequence, rows, offsets of the parts, reference, step
//! vectors   16 bytes each: line of the packed words, width, flags, scale, base; for blocks, one more with the end of
//!           the last one
//! extras    32 bytes each, if some vector has patches, nulls or differences
//! values    dictionary entries
//! blocks    of single vectors: patches, exceptions, bitmaps of validity, runs
//!
//! body      packed words (in `delta`, those of a vector follow the starts of its lanes), plain values, or strings
//! ```
//!
//! `chunk_structs` defines the structs, for device code as well. The layouts of encodings, which fill a builder, validate
//! everything that kernels rely on.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::{BlocksView, Nulls, Packed, PatchList};

use crate::chunk_structs::{
    ALL_NULL, EXCEPTIONS, Extra, FEW_WIDTHS, Header, PATCHED, SOME_NULL, Vector, WIDE,
};
use crate::error::{Error, Result};
use crate::symbols::Symbols;
use crate::traits::ColumnTraits;

pub(crate) const LINE_BYTES: usize = 128;
pub(crate) const LANES: usize = 32;
/// Alignment of fronts and bodies.
pub(crate) const ALIGNMENT: usize = 256;
/// Limit of the widths of blocks for which kernels have code, of a chunk: each takes time to compile.
const FEW: usize = 4;
/// Bytes that a decoder may read behind packed words, and behind the values of runs.
pub(crate) const SLACK_BYTES: usize = 2048;

/// Units of the lines of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Lines of 128 bytes of the body.
    #[default]
    Body,
    /// Units of 16 bytes of the body.
    Quads,
    /// Units of 16 bytes, from the first block on.
    Blocks,
}

/// A chunk while it is assembled. Offsets are in units of 16 bytes; those of blocks count from the first block, lines
/// of packed words from the start of the body.
#[derive(Debug)]
pub(crate) struct Builder {
    rows: usize,
    pub traits: ColumnTraits,
    pub vectors: Vec<Vector>,
    extras: Vec<Extra>,
    /// Dictionary entries; zeros follow, up to `values_bytes`.
    pub values: Buffer,
    pub values_bytes: usize,
    /// The body: words of the file, followed by generated ones.
    pub words: Buffer,
    pub packed: Vec<u8>,
    blocks: Vec<u8>,
    patch_bytes: u8,
    pub reference: i128,
    /// The distinct values of a dictionary.
    pub entries: Option<ArrayRef>,
    /// The symbol tables of strings.
    pub symbols: Option<Arc<Symbols>>,
    /// One more than the largest code that a kernel may read.
    pub codes: usize,
    pub right_width: u32,
    pub lefts: [u64; 8],
    pub step: i64,
    /// Units of the lines of vectors.
    pub lines: Lines,
    /// For blocks, the end of the last vector.
    end: Option<u32>,
}

pub(crate) fn too_large() -> Error {
    Error::Unsupported("a column chunk beyond 64 GiB".into())
}

/// The offset of byte `at`, a multiple of 16.
fn offset(at: usize) -> Result<u32> {
    u32::try_from(at / 16).map_err(|_| too_large())
}

pub(crate) fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

impl Builder {
    pub fn new(rows: usize, vectors: usize) -> Self {
        Self {
            rows,
            traits: ColumnTraits::default(),
            vectors: vec![Vector::default(); vectors],
            extras: vec![],
            values: Buffer::default(),
            values_bytes: 0,
            words: Buffer::default(),
            packed: spare(),
            blocks: spare(),
            patch_bytes: 4,
            reference: 0,
            entries: None,
            symbols: None,
            codes: 0,
            right_width: 0,
            lefts: [0; 8],
            step: 0,
            lines: Lines::default(),
            end: None,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn extra(&mut self, vector: usize) -> &mut Extra {
        if self.extras.is_empty() {
            self.extras = vec![Extra::default(); self.vectors.len()];
        }
        &mut self.extras[vector]
    }

    /// The line of the packed words that are added next.
    pub fn line(&self) -> Result<u32> {
        let bytes = self.words.len() + self.packed.len();
        u32::try_from(bytes / LINE_BYTES).map_err(|_| too_large())
    }

    /// Sets the line and width of a vector's packed residuals, and adds their patches. Returns the largest possible
    /// residual.
    pub fn residuals(&mut self, vector: usize, line: u32, residuals: &Packed<'_>) -> Result<u64> {
        let width = residuals.width(vector);
        self.vectors[vector].line = line;
        self.vectors[vector].width = width as u8;
        self.traits.width(width);
        let patches = residuals.patches();
        if !patches.is_empty(vector) {
            let block = self.patch_block(patches, vector, self.patch_bytes)?;
            self.extra(vector).patches = block;
            self.flag(vector, PATCHED);
        }
        let patched = patches.of(vector).map(|(_, residual)| residual);
        Ok(patched.fold(top_of(width), u64::max))
    }

    /// Adds the words of blocks, as they are, and sets the lines of all vectors.
    pub fn blocks_of(&mut self, view: BlocksView<'_>) {
        self.lines = Lines::Quads;
        self.words = view.all_words().clone();
        self.traits.wide_entries |= view.is_wide();
        let mut vectors_of = [0u32; 65];
        let mut widths = Vec::with_capacity(self.vectors.len());
        for vector in 0..self.vectors.len() {
            let lines = view.place(vector);
            let blocks = view.blocks(vector);
            self.vectors[vector].line = lines.start;
            self.end = Some(lines.end);
            let pairs = blocks.windows(2).enumerate();
            let distances = pairs.map(|(k, pair)| ((pair[1].0 - pair[0].0) as u64) << (9 * k));
            let distances = distances.fold(0, |all, distance| all | distance);
            self.extra(vector).smallest = distances;
            let own = blocks.iter().flat_map(|(_, widths)| widths);
            let own = own.fold(0u128, |all, width| all | 1 << width);
            (0..65).for_each(|width| vectors_of[width] += (own >> width & 1) as u32);
            widths.push(own);
        }
        if view.is_wide() {
            (0..self.vectors.len()).for_each(|vector| self.flag(vector, WIDE));
            return;
        }
        let mut frequent: Vec<usize> = (0..=32).collect();
        frequent.sort_by_key(|width| std::cmp::Reverse(vectors_of[*width]));
        let frequent = frequent[..FEW]
            .iter()
            .fold(0, |all, width| all | 1 << width);
        for (vector, widths) in widths.into_iter().enumerate() {
            if widths & !frequent == 0 {
                self.flag(vector, FEW_WIDTHS);
                self.traits.low |= widths as u64;
            }
        }
    }

    /// Sets the bounds of a vector's entries.
    pub fn bounds(&mut self, vector: usize, (least, most): (u64, u64)) {
        self.vectors[vector].base = least;
        self.vectors[vector].width = (u64::BITS - (most - least).leading_zeros()) as u8;
    }

    /// Sets the bytes of a patch of residuals.
    pub fn patch_width(&mut self, residuals: &Packed<'_>) {
        let mut patches = (0..self.vectors.len()).flat_map(|v| residuals.patches().of(v));
        let wide = patches.any(|(_, residual)| residual > u64::from(u32::MAX));
        self.patch_bytes = if wide { 8 } else { 4 };
    }

    /// Adds exceptions, stored as they are.
    pub fn exceptions(&mut self, exceptions: PatchList<'_>, bytes: u8) -> Result<()> {
        for vector in 0..self.vectors.len() {
            if !exceptions.is_empty(vector) {
                let block = self.patch_block(exceptions, vector, bytes)?;
                self.extra(vector).exceptions = block;
                self.flag(vector, EXCEPTIONS);
            }
        }
        Ok(())
    }

    pub fn flag(&mut self, vector: usize, flag: u8) {
        self.vectors[vector].flags |= flag;
        self.traits.flags |= flag;
    }

    /// Adds the patches of a vector: a word for each lane with count and offset of its patches, their values, their
    /// positions.
    fn patch_block(&mut self, patches: PatchList<'_>, vector: usize, bytes: u8) -> Result<u32> {
        let (mut words, mut positions, mut values) = ([0u16; 32], vec![], vec![]);
        for (row, value) in patches.of(vector) {
            let lane = row % 32;
            if words[lane] == 0 {
                words[lane] = positions.len() as u16;
            }
            words[lane] += 1 << 10;
            positions.push(row as u16);
            values.push(value);
        }
        // lanes without patches: the last one has the total
        let mut offset = 0;
        for word in &mut words {
            if *word >> 10 == 0 {
                *word = offset;
            }
            offset = (*word >> 10) + (*word & 0x3FF);
        }
        let mut block: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for value in values {
            block.extend(&value.to_le_bytes()[..usize::from(bytes)]);
        }
        block.extend(positions.iter().flat_map(|position| position.to_le_bytes()));
        self.block(|out| out.extend_from_slice(&block))
    }

    /// Adds a block of one vector, which `write` appends. Returns its offset, counted from the first block.
    pub fn block(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u32> {
        let start = offset(self.blocks.len())?;
        write(&mut self.blocks);
        pad(&mut self.blocks, 16);
        Ok(start)
    }

    /// Adds the validity of rows.
    pub fn validity(&mut self, nulls: &Nulls<'_>) {
        if nulls.any() {
            self.masks(|vector| nulls.mask(vector));
        }
    }

    /// Adds the validity of rows. `mask` gives a bit for each row of a vector that is set if it is not null; `None` if
    /// no row is null.
    pub fn masks(&mut self, mask: impl Fn(usize) -> Option<[u64; VECTOR_LEN / 64]>) {
        for vector in 0..self.vectors.len() {
            match mask(vector) {
                None => {}
                Some(mask) if mask == [0; 16] => self.flag(vector, ALL_NULL),
                Some(mask) => {
                    // 2^28 rows at most, so 32 MiB of bitmaps
                    let start = (self.blocks.len() / 16) as u32;
                    mask.iter()
                        .for_each(|w| self.blocks.extend(w.to_le_bytes()));
                    self.extra(vector).bitmap = start;
                    self.flag(vector, SOME_NULL);
                }
            }
        }
    }

    /// Offsets of the parts of the front: extras, values, blocks; and its end.
    fn part_offsets(&self) -> [usize; 4] {
        let vectors = self.vectors.len() + usize::from(self.end.is_some());
        let extras = Header::BYTES + vectors * Vector::BYTES;
        let values = (extras + self.extras.len() * Extra::BYTES).next_multiple_of(ALIGNMENT);
        let blocks = (values + self.values_bytes).next_multiple_of(16);
        let end = (blocks + self.blocks.len()).next_multiple_of(ALIGNMENT);
        [extras, values, blocks, end]
    }

    /// Bytes of the front, a multiple of [`ALIGNMENT`].
    pub fn front_bytes(&self) -> usize {
        let [.., end] = self.part_offsets();
        end
    }

    /// Writes the front of a chunk whose body lies `body` bytes behind its start, to all of `out`.
    pub fn write_front(&self, out: &mut [u8], body: usize) -> Result<()> {
        let [extras, values, blocks, _] = self.part_offsets();
        let first_block = offset(blocks)?;
        let first_line = u32::try_from(body / LINE_BYTES).map_err(|_| too_large())?;
        let first = match self.lines {
            Lines::Body => first_line,
            Lines::Quads => offset(body)?,
            Lines::Blocks => first_block,
        };
        let behind = |first: u32, offset: u32| first.checked_add(offset).ok_or_else(too_large);
        let number = |bits: u8| bits.trailing_zeros() as u8;
        let transform = number(self.traits.transforms);
        let sequence = number(self.traits.sequences);
        let mut out = Writer { out, at: 0 };
        let entries = self.entries.as_ref();
        let header = Header {
            transform,
            sequence,
            patch_bytes: self.patch_bytes,
            rows: u32::try_from(self.rows).map_err(|_| too_large())?,
            vectors: offset(Header::BYTES)?,
            extras: offset(extras)?,
            packed: offset(body)?,
            values: offset(if self.values_bytes > 0 { values } else { body })?,
            entries: entries.map_or(0, |entries| entries.len() as u32),
            right_width: self.right_width,
            reference: self.reference as u64,
            reference_high: (self.reference >> 64) as u64,
            lefts: self.lefts,
            step: self.step,
            ..Header::default()
        };
        out.bytes(&header.to_bytes());
        for v in &self.vectors {
            let line = behind(first, v.line)?;
            out.bytes(&Vector { line, ..*v }.to_bytes());
        }
        if let Some(end) = self.end {
            let line = behind(first, end)?;
            let end = Vector {
                line,
                ..Vector::default()
            };
            out.bytes(&end.to_bytes());
        }
        for e in &self.extras {
            let extra = Extra {
                patches: behind(first_block, e.patches)?,
                exceptions: behind(first_block, e.exceptions)?,
                bitmap: behind(first_block, e.bitmap)?,
                right_line: behind(first_line, e.right_line)?,
                ..*e
            };
            out.bytes(&extra.to_bytes());
        }
        out.zeros_to(values);
        out.bytes(&self.values);
        out.zeros_to(blocks);
        out.bytes(&self.blocks);
        out.zeros_to(out.out.len());
        Ok(())
    }
}

thread_local! {
    /// Memory of earlier builders. New memory costs page faults, the more the more threads have them at once.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Limits of the vectors that a thread keeps, and of their bytes.
const SPARE_VECTORS: usize = 8;
const SPARE_BYTES: usize = 4 << 20;

fn spare() -> Vec<u8> {
    let kept = SPARE.try_with(|spare| spare.borrow_mut().pop());
    kept.ok().flatten().unwrap_or_default()
}

impl Drop for Builder {
    fn drop(&mut self) {
        let own = [mem::take(&mut self.packed), mem::take(&mut self.blocks)];
        for mut bytes in own {
            bytes.clear();
            // at the end of a thread it cannot be kept
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_VECTORS && (1..=SPARE_BYTES).contains(&bytes.capacity()) {
                    spare.push(bytes);
                }
            });
        }
    }
}

/// Writes values one after the other.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn zeros_to(&mut self, end: usize) {
        self.out[self.at..end].fill(0);
        self.at = end;
    }
}

pub(crate) fn unsupported(data_type: &DataType) -> Error {
    Error::Unsupported(format!("{data_type} that is not a dictionary"))
}

/// The largest residual of a width.
fn top_of(width: usize) -> u64 {
    match width {
        0 => 0,
        1..64 => (1 << width) - 1,
        _ => u64::MAX,
    }
}
