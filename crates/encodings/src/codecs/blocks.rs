//! Blocks of 128 integers with a width for each 32 of them: the building block of the `gpu_*`
//! encodings.
//!
//! ```text
//! block       the minimum, a word or two | u8 width of each of four miniblocks | the miniblocks
//! miniblock   32 residuals value - minimum: residual k in bits [k * width, (k + 1) * width) of
//!             `width` words, least significant first
//! words       u32
//! ```
//!
//! The method and the layout are those of "Tile-based Lightweight Integer Compression in GPU"
//! (Shanbhag, Yogatama, Yu, Madden; SIGMOD 2022). Its words have 32 bits. Where a value needs more,
//! a minimum has two words, the lower one first, and a width is up to 64.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::VECTOR_LEN;
use crate::error::{Result, corrupt, ensure};
use crate::residuals::bit_length;
use crate::rows::{Bytes, ROW_LEN, Row};
use crate::wire::{ChunkReader, ChunkWriter, le_bytes, u16_at};

/// Values of a block.
pub(crate) const BLOCK_LEN: usize = 128;
/// Miniblocks of a block: rows of residuals.
pub(crate) const MINIBLOCKS: usize = BLOCK_LEN / ROW_LEN;
/// Vectors begin at a multiple of this many words, which a GPU loads together.
pub(crate) const QUAD: usize = 4;

/// The width of a column's integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// All integers are below 2^32.
    Narrow,
    Wide,
}

impl Width {
    pub fn of(values: &[u64]) -> Self {
        let all = values.iter().fold(0, |all, value| all | value);
        match all > u64::from(u32::MAX) {
            true => Self::Wide,
            false => Self::Narrow,
        }
    }

    pub fn parse(reader: &mut ChunkReader, part: &'static str) -> Result<Self> {
        match reader.u8()? {
            1 => Ok(Self::Narrow),
            2 => Ok(Self::Wide),
            words => Err(corrupt(part, format!("{words} words of a minimum"))),
        }
    }

    /// Words of a minimum.
    pub fn words(self) -> usize {
        match self {
            Self::Narrow => 1,
            Self::Wide => 2,
        }
    }

    /// Bits of an integer.
    pub fn bits(self) -> usize {
        32 * self.words()
    }

    /// The lower bits of a number, sign-extended.
    pub fn signed(self, value: u64) -> u64 {
        match self {
            Self::Narrow => i64::from(value as i32) as u64,
            Self::Wide => value,
        }
    }

    /// The lower bits of a number, zero-extended.
    pub fn truncated(self, value: u64) -> u64 {
        match self {
            Self::Narrow => value & u64::from(u32::MAX),
            Self::Wide => value,
        }
    }
}

/// Collects the words of vectors.
pub(crate) struct BlocksWriter {
    width: Width,
    words: Vec<u32>,
    /// Quads of each vector.
    quads: Vec<u16>,
    start: usize,
}

impl BlocksWriter {
    pub fn new(width: Width) -> Self {
        Self {
            width,
            words: vec![],
            quads: vec![],
            start: 0,
        }
    }

    pub fn word(&mut self, word: u32) {
        self.words.push(word);
    }

    /// Appends an integer of the column's width.
    pub fn integer(&mut self, value: u64) {
        self.words.push(value as u32);
        if self.width == Width::Wide {
            self.words.push((value >> 32) as u32);
        }
    }

    /// Appends a block of four miniblocks.
    pub fn block(&mut self, minimum: u64, residuals: &[u64; BLOCK_LEN]) {
        self.integer(minimum);
        let widths = widths(residuals);
        self.words.push(u32::from_le_bytes(widths));
        let miniblocks = residuals.as_chunks::<ROW_LEN>().0;
        for (residuals, width) in miniblocks.iter().zip(widths) {
            pack(residuals, usize::from(width), &mut self.words);
        }
    }

    /// Appends packed residuals.
    pub fn packed(&mut self, residuals: &[u64], width: usize) {
        pack(residuals, width, &mut self.words);
    }

    pub fn end_vector(&mut self) {
        self.words
            .resize(self.words.len().next_multiple_of(QUAD), 0);
        // at most 8 blocks of 3 words and 256
        self.quads
            .push(((self.words.len() - self.start) / QUAD) as u16);
        self.start = self.words.len();
    }

    pub fn finish(self, out: &mut ChunkWriter) {
        out.buffer(le_bytes(&self.quads, |quads| quads.to_le_bytes()));
        out.buffer(le_bytes(&self.words, |word| word.to_le_bytes()));
    }
}

/// The bits that the residuals of each miniblock take.
pub(crate) fn widths(residuals: &[u64; BLOCK_LEN]) -> [u8; MINIBLOCKS] {
    let miniblocks = residuals.as_chunks::<ROW_LEN>().0;
    std::array::from_fn(|m| {
        let all = miniblocks[m].iter().fold(0, |all, residual| all | residual);
        bit_length(all) as u8
    })
}

/// Total bytes of a vector of blocks.
pub(crate) fn vector_bytes(words: usize) -> usize {
    words.next_multiple_of(QUAD) * size_of::<Bytes>() + size_of::<u16>()
}

fn pack(residuals: &[u64], width: usize, out: &mut Vec<u32>) {
    let (mut bits, mut filled) = (0u128, 0);
    for residual in residuals {
        bits |= u128::from(*residual) << filled;
        filled += width;
        while filled >= 32 {
            out.push(bits as u32);
            bits >>= 32;
            filled -= 32;
        }
    }
    if filled > 0 {
        out.push(bits as u32);
    }
}

/// The words of vectors. Invariant: `starts` ascends, has an entry more than there are vectors, and
/// `words` ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    /// Start of each vector, in quads.
    starts: Vec<u32>,
    words: Buffer,
}

impl Vectors {
    pub fn parse(reader: &mut ChunkReader, vectors: usize, part: &'static str) -> Result<Self> {
        let quads = reader.buffer_of(vectors.saturating_mul(size_of::<u16>()), part)?;
        let mut starts = Vec::with_capacity(vectors + 1);
        let mut end = 0u32;
        starts.push(0);
        for vector in 0..vectors {
            end = end.saturating_add(u32::from(u16_at(&quads, vector)));
            starts.push(end);
        }
        let bytes = (end as usize).saturating_mul(QUAD * size_of::<Bytes>());
        let words = reader.buffer_of(bytes, part)?;
        Ok(Self { starts, words })
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Start of a vector, in quads.
    pub fn start(&self, vector: usize) -> u32 {
        self.starts.get(vector).copied().unwrap_or_default()
    }

    pub fn all_words(&self) -> &Buffer {
        &self.words
    }

    pub fn words(&self, vector: usize) -> Words<'_> {
        let byte = |vector| self.start(vector) as usize * QUAD * size_of::<Bytes>();
        let bytes = self.words.get(byte(vector)..byte(vector + 1));
        Words(bytes.unwrap_or_default().as_chunks().0)
    }

    /// The words of a vector, and all after them.
    #[inline]
    pub fn words_from(&self, vector: usize) -> Words<'_> {
        let start = self.start(vector) as usize * QUAD * size_of::<Bytes>();
        Words(self.words.get(start..).unwrap_or_default().as_chunks().0)
    }
}

/// The remaining words of a vector. Missing words read as zeros: parsing the column has checked the
/// length where it matters.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a>(&'a [Bytes]);

impl<'a> Words<'a> {
    #[inline(always)]
    pub fn word(&mut self) -> u32 {
        let word = self.0.split_off_first();
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Reads an integer of the column's width.
    #[inline(always)]
    pub fn integer(&mut self, width: Width) -> u64 {
        let low = u64::from(self.word());
        match width {
            Width::Narrow => low,
            Width::Wide => low | u64::from(self.word()) << 32,
        }
    }

    /// Takes the next `words` words.
    #[inline(always)]
    pub fn take(&mut self, words: usize) -> &'a [Bytes] {
        self.0.split_off(..words).unwrap_or_default()
    }

    /// Reads the minimum and the widths of the next block.
    #[inline(always)]
    pub fn head(&mut self, width: Width) -> (u64, [u8; MINIBLOCKS]) {
        (self.integer(width), self.word().to_le_bytes())
    }

    /// Reads the next miniblock.
    #[inline(always)]
    pub fn row(&mut self, width: usize) -> Row<'a> {
        let words = self.all();
        self.take(width);
        Row { words, width }
    }

    /// All remaining words.
    #[inline(always)]
    pub fn all(&self) -> &'a [Bytes] {
        self.0
    }

    /// Reads the minimum and the miniblocks of the next block.
    pub fn block(&mut self, width: Width) -> (u64, [Row<'a>; MINIBLOCKS]) {
        let (minimum, widths) = self.head(width);
        (minimum, widths.map(|width| self.row(usize::from(width))))
    }

    /// Checks that the words are exactly this many blocks, padded to a quad.
    pub fn check_blocks(&mut self, blocks: usize, width: Width, part: &'static str) -> Result<()> {
        for _ in 0..blocks {
            let head = self.take(width.words());
            let widths = self.word().to_le_bytes();
            let words: usize = widths.iter().map(|width| usize::from(*width)).sum();
            let is_narrow = widths.iter().all(|of| usize::from(*of) <= width.bits());
            let is_there = head.len() == width.words() && self.0.len() >= words;
            ensure(is_narrow && is_there, part, || {
                let left = self.0.len();
                format!("a block of widths {widths:?} in {left} words")
            })?;
            self.take(words);
        }
        Ok(())
    }

    pub fn check_end(&self, part: &'static str) -> Result<()> {
        ensure(self.0.len() < QUAD, part, || {
            format!("{} words behind the last block", self.0.len())
        })
    }
}

/// Blocks of a vector.
pub(crate) const VECTOR_BLOCKS: usize = VECTOR_LEN / BLOCK_LEN;

/// The blocks of a column, eight per vector, for external decoders.
#[derive(Clone, Copy, Debug)]
pub struct BlocksView<'a> {
    vectors: &'a Vectors,
    width: Width,
    /// Blocks of a tile, if tiles begin with an integer of their own.
    tile_blocks: Option<usize>,
}

impl<'a> BlocksView<'a> {
    pub(crate) fn new(vectors: &'a Vectors, width: Width, tile_blocks: Option<usize>) -> Self {
        Self {
            vectors,
            width,
            tile_blocks,
        }
    }

    /// The words of all vectors. Each vector starts at a multiple of 16 bytes.
    pub fn all_words(&self) -> &'a Buffer {
        self.vectors.all_words()
    }

    /// The range of a vector in `all_words`, in units of 16 bytes.
    pub fn place(&self, vector: usize) -> Range<u32> {
        self.vectors.start(vector)..self.vectors.start(vector + 1)
    }

    /// Returns true if a minimum has two words.
    pub fn is_wide(&self) -> bool {
        self.width == Width::Wide
    }

    /// Per block of a vector, its first word, and the widths of its miniblocks.
    pub fn blocks(&self, vector: usize) -> [(usize, [u8; MINIBLOCKS]); VECTOR_BLOCKS] {
        let mut words = self.vectors.words(vector);
        let all = words.0.len();
        std::array::from_fn(|block| {
            if self.tile_blocks.is_some_and(|blocks| block % blocks == 0) {
                words.integer(self.width);
            }
            let start = all - words.0.len();
            let (_, widths) = words.head(self.width);
            words.take(widths.iter().map(|width| usize::from(*width)).sum());
            (start, widths)
        })
    }
}
