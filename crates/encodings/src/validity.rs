//! Nulls of a column chunk.
//!
//! ```text
//! header   u8 tag: 0 all valid, 1 all null, 2 or 3 mixed
//! mixed:
//! buffer   u8 kind of each vector: 0 all valid, 1 all null, 2 a bitmap; tag 3: 3 few nulls, 4 few
//!          valid rows
//! buffer   128 bytes for each vector of kind 2: bit i % 8 of byte i / 8 is set if row i is valid. The
//!          last vector of a chunk has as many bytes as its rows need (128 in version 1)
//! tag 3:
//! buffer   u8 number of the few rows of each vector of kind 3 and 4, less one
//! then     the rows in their vectors, 1024 of them together, see `residuals`
//! ```
//!
//! Parsing expands few rows to bitmaps: no other code knows of them.

use arrow::array::Array;
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::error::{Result, corrupt, ensure};
use crate::masks::{Mask, for_each_bit, set_bit};
use crate::residuals::{Order, Residuals, ResidualsWriter};
use crate::selection::Selection;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::{FORMAT_VERSION, VECTOR_LEN};

const PART: &str = "validity";
const BITMAP_BYTES: usize = VECTOR_LEN / 8;
const VALID: u8 = 0;
const NULL: u8 = 1;
const BITMAP: u8 = 2;
const FEW: u8 = 3;
const FEW_NULL: u8 = 3;
const FEW_VALID: u8 = 4;
/// Up to this many rows take fewer bytes than a bitmap.
const MAX_FEW: usize = 96;

/// Parsed validity. Invariant: `Mixed` has a kind for each vector, and in `ranks` the index of its bitmap in `bitmaps`.
#[derive(Clone, Debug)]
pub(crate) enum Validity {
    AllValid,
    AllNull,
    Mixed {
        kinds: Buffer,
        ranks: Vec<u32>,
        bitmaps: Buffer,
    },
}

/// Appends the validity of `array`. Unions have none, and without rows all are null.
pub(crate) fn encode(array: &dyn Array, out: &mut ChunkWriter) {
    if let DataType::Union(_, _) = array.data_type() {
        return out.u8(VALID);
    }
    encode_nulls(array.logical_nulls().as_ref(), array.len(), out);
}

fn encode_nulls(nulls: Option<&NullBuffer>, len: usize, out: &mut ChunkWriter) {
    match nulls {
        _ if len == 0 => out.u8(NULL),
        Some(nulls) if nulls.null_count() == len => out.u8(NULL),
        Some(nulls) if nulls.null_count() > 0 => {
            encode_mixed(nulls.inner(), out);
        }
        _ => out.u8(VALID),
    }
}

fn encode_mixed(valid: &BooleanBuffer, out: &mut ChunkWriter) {
    let (mut kinds, mut counts, mut few) = (vec![], vec![], vec![]);
    let vector = |start: usize| valid.slice(start, VECTOR_LEN.min(valid.len() - start));
    let starts = (0..valid.len()).step_by(VECTOR_LEN);
    for vector in starts.clone().map(vector) {
        let count = vector.count_set_bits();
        let nulls = vector.len() - count;
        kinds.push(match (count, nulls) {
            (_, 0) => VALID,
            (0, _) => NULL,
            _ if count.min(nulls) > MAX_FEW => BITMAP,
            _ => {
                let is_few_valid = count < nulls;
                counts.push((count.min(nulls) - 1) as u8);
                few.extend((0..vector.len()).filter(|row| vector.value(*row) == is_few_valid));
                if is_few_valid { FEW_VALID } else { FEW_NULL }
            }
        });
    }
    let mut rows = ResidualsWriter::new(Order::Rows);
    for part in few.chunks(VECTOR_LEN) {
        let row = |i: usize| part.get(i).map_or(0, |row| *row as u64);
        rows.push(&std::array::from_fn(row), part.len(), false);
    }
    let mut packed = ChunkWriter::default();
    packed.buffer(counts);
    rows.finish(&mut packed);
    let bitmaps = kinds.iter().filter(|kind| **kind >= FEW_NULL).count() * BITMAP_BYTES;
    let pays = packed.len() < bitmaps;
    if !pays {
        kinds
            .iter_mut()
            .for_each(|kind| *kind = (*kind).min(BITMAP));
    }
    let mut bitmaps = vec![];
    for (vector, kind) in starts.map(vector).zip(&kinds) {
        if *kind == BITMAP {
            let end = bitmaps.len() + vector.len().div_ceil(8);
            for word in vector.bit_chunks().iter_padded() {
                bitmaps.extend_from_slice(&word.to_le_bytes());
            }
            bitmaps.truncate(end);
        }
    }
    out.u8(if pays { FEW } else { BITMAP });
    out.buffer(kinds);
    out.buffer(bitmaps);
    if pays {
        out.append(packed);
    }
}

impl Validity {
    /// The validity of `len` rows with these nulls.
    pub fn of_nulls(nulls: Option<&NullBuffer>, len: usize) -> Result<Self> {
        let mut out = ChunkWriter::default();
        encode_nulls(nulls, len, &mut out);
        let bytes = out.finish().into();
        Self::parse(&mut ChunkReader::new(&bytes, FORMAT_VERSION)?, len)
    }

    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        match reader.u8()? {
            VALID => Ok(Self::AllValid),
            NULL => Ok(Self::AllNull),
            tag @ (BITMAP | FEW) => {
                let kinds = reader.buffer_of(len.div_ceil(VECTOR_LEN), PART)?;
                let most = if tag == FEW { FEW_VALID } else { BITMAP };
                for kind in kinds.iter() {
                    ensure(*kind <= most, PART, || {
                        format!("a kind of {kind}, at most {most}")
                    })?;
                }
                let count = kinds.iter().filter(|kind| **kind == BITMAP).count();
                let rows = len % VECTOR_LEN;
                let is_short = rows > 0 && kinds.last() == Some(&BITMAP) && !reader.is_version_1();
                let bytes = match is_short {
                    true => (count - 1) * BITMAP_BYTES + rows.div_ceil(8),
                    false => count * BITMAP_BYTES,
                };
                let bitmaps = reader.buffer_of(bytes, PART)?;
                match tag {
                    FEW => Self::parse_few(reader, &kinds, &bitmaps),
                    _ => Ok(Self::mixed(kinds, bitmaps)),
                }
            }
            tag => Err(corrupt(PART, format!("a tag of {tag}, at most 3"))),
        }
    }

    fn mixed(kinds: Buffer, bitmaps: Buffer) -> Self {
        let mut next = 0;
        let ranks = kinds.iter().map(|kind| {
            let rank = next;
            next += u32::from(*kind == BITMAP);
            rank
        });
        Self::Mixed {
            ranks: ranks.collect(),
            kinds,
            bitmaps,
        }
    }

    /// Reads the few rows of vectors, and expands them to bitmaps.
    fn parse_few(reader: &mut ChunkReader, kinds: &[u8], bitmaps: &[u8]) -> Result<Self> {
        let is_few = |kind: &&u8| **kind >= FEW_NULL;
        let counts = reader.buffer_of(kinds.iter().filter(is_few).count(), PART)?;
        let total: usize = counts.iter().map(|count| usize::from(*count) + 1).sum();
        let packed = Residuals::parse(reader, total, Order::Rows)?;
        let mut out = Vec::with_capacity(bitmaps.len() + counts.len() * BITMAP_BYTES);
        let (mut counts, mut next) = (counts.iter(), 0);
        let (mut bitmaps, mut rows) = (bitmaps.chunks(BITMAP_BYTES), [0; VECTOR_LEN]);
        for kind in kinds.iter().filter(|kind| **kind >= BITMAP) {
            if *kind == BITMAP {
                out.extend_from_slice(bitmaps.next().unwrap_or_default());
                continue;
            }
            let is_few_valid = *kind == FEW_VALID;
            let mut mask: Mask = [if is_few_valid { 0 } else { u64::MAX }; 16];
            let count = counts.next().map_or(0, |count| usize::from(*count) + 1);
            for at in next..next + count {
                if at % VECTOR_LEN == 0 {
                    packed.unpack(at / VECTOR_LEN, &mut rows);
                }
                let row = rows[at % VECTOR_LEN];
                ensure(row < VECTOR_LEN as u64, PART, || {
                    format!("row {row} of a vector")
                })?;
                set_bit(&mut mask, row as usize, is_few_valid);
            }
            next += count;
            out.extend_from_slice(mask.map(u64::to_le_bytes).as_flattened());
        }
        let kinds: Vec<u8> = kinds.iter().map(|kind| *kind.min(&BITMAP)).collect();
        Ok(Self::mixed(kinds.into(), out.into()))
    }

    /// Returns true if some row of the chunk may be null.
    pub fn may_have_nulls(&self) -> bool {
        !matches!(self, Self::AllValid)
    }

    /// The valid rows of a vector; `None` if all are.
    pub fn mask(&self, vector: usize) -> Option<Mask> {
        match self {
            Self::AllValid => None,
            Self::AllNull => Some([0; 16]),
            Self::Mixed {
                kinds,
                ranks,
                bitmaps,
            } => match kinds.get(vector) {
                Some(&NULL) => Some([0; 16]),
                Some(&BITMAP) => {
                    let first = ranks[vector] as usize * BITMAP_BYTES;
                    let bytes = bitmaps.get(first..).unwrap_or_default();
                    let mut bitmap = [0; BITMAP_BYTES];
                    let len = bytes.len().min(BITMAP_BYTES);
                    bitmap[..len].copy_from_slice(&bytes[..len]);
                    let (words, _) = bitmap.as_chunks();
                    Some(std::array::from_fn(|word| u64::from_le_bytes(words[word])))
                }
                _ => None,
            },
        }
    }

    /// Keeps the valid rows, or the null ones if `valid` is false.
    pub fn filter(&self, valid: bool, selection: &mut Selection) {
        for (vector, mask) in selection.vectors_mut() {
            let kept = self.mask(vector).unwrap_or([u64::MAX; 16]);
            for (word, kept) in mask.iter_mut().zip(kept) {
                *word &= if valid { kept } else { !kept };
            }
        }
    }

    /// The validity of the selected rows; `None` if none is null.
    pub fn select(&self, selection: &Selection) -> Option<NullBuffer> {
        if !self.may_have_nulls() {
            return None;
        }
        let mut bits = Bits::with_capacity(selection.count());
        for selected in selection.vectors() {
            match self.mask(selected.vector) {
                None => bits.append_ones(selected.count),
                Some(valid) if selected.is_full() => {
                    for (i, word) in valid.iter().enumerate() {
                        bits.append(*word, selected.rows.saturating_sub(i * 64).min(64));
                    }
                }
                Some(valid) => {
                    for_each_bit(selected.mask, |row| {
                        bits.append(valid[row / 64] >> (row % 64), 1)
                    });
                }
            }
        }
        let nulls = NullBuffer::new(bits.finish());
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// A growing bitmap, up to 64 bits at a time.
pub(crate) struct Bits {
    bytes: MutableBuffer,
    word: u64,
    len: usize,
}

impl Bits {
    pub fn with_capacity(bits: usize) -> Self {
        Self {
            bytes: MutableBuffer::new(bits.div_ceil(64) * 8),
            word: 0,
            len: 0,
        }
    }

    /// Appends the lowest `count <= 64` bits of `bits`.
    #[inline]
    pub fn append(&mut self, bits: u64, count: usize) {
        if count == 0 {
            return;
        }
        let bits = bits & (u64::MAX >> (64 - count));
        let used = self.len % 64;
        self.word |= bits << used;
        self.len += count;
        if used + count >= 64 {
            self.bytes.push(self.word);
            self.word = bits.checked_shr((64 - used) as u32).unwrap_or(0);
        }
    }

    pub fn append_ones(&mut self, mut count: usize) {
        while count > 0 {
            let now = count.min(64);
            self.append(u64::MAX, now);
            count -= now;
        }
    }

    pub fn finish(mut self) -> BooleanBuffer {
        self.bytes.push(self.word);
        BooleanBuffer::new(self.bytes.into(), 0, self.len)
    }
}

/// The nulls of a column chunk.
#[derive(Clone, Copy, Debug)]
pub struct Nulls<'a>(pub(crate) &'a Validity);

impl Nulls<'_> {
    /// Returns true if there may be nulls.
    pub fn any(&self) -> bool {
        self.0.may_have_nulls()
    }

    /// A bit for each row of a vector, set if it is valid; `None` if all are.
    pub fn mask(&self, vector: usize) -> Option<[u64; VECTOR_LEN / 64]> {
        self.0.mask(vector)
    }
}
