//! Which rows are null.
//!
//! ```text
//! header   u8 tag: 0 all valid, 1 all null, 2 mixed
//! mixed:
//! buffer   u8 kind of each vector: 0 all valid, 1 all null, 2 a bitmap
//! buffer   128 bytes for each vector of kind 2: bit i % 8 of byte i / 8 is set if row i is valid. The
//!          last vector of a chunk has as many bytes as its rows need (128 in version 1)
//! ```

use arrow::array::Array;
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::VECTOR_LEN;
use crate::error::{Result, corrupt, ensure};
use crate::masks::{Mask, for_each_bit};
use crate::selection::Selection;
use crate::wire::{ChunkReader, ChunkWriter};

const PART: &str = "validity";
const BITMAP_BYTES: usize = VECTOR_LEN / 8;
const VALID: u8 = 0;
const NULL: u8 = 1;
const BITMAP: u8 = 2;

/// Parsed validity. Invariant: `Mixed` has a kind for each vector, and in `ranks` the index of its
/// bitmap, which `bitmaps` holds.
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

/// Appends the validity of `array`: of unions none is kept, and without rows all are null.
pub(crate) fn encode(array: &dyn Array, out: &mut ChunkWriter) {
    if let DataType::Union(_, _) = array.data_type() {
        return out.u8(VALID);
    }
    match array.logical_nulls() {
        _ if array.is_empty() => out.u8(NULL),
        Some(nulls) if nulls.null_count() == array.len() => out.u8(NULL),
        Some(nulls) if nulls.null_count() > 0 => {
            out.u8(BITMAP);
            encode_mixed(nulls.inner(), out);
        }
        _ => out.u8(VALID),
    }
}

fn encode_mixed(valid: &BooleanBuffer, out: &mut ChunkWriter) {
    let (mut kinds, mut bitmaps) = (vec![], vec![]);
    for start in (0..valid.len()).step_by(VECTOR_LEN) {
        let rows = VECTOR_LEN.min(valid.len() - start);
        let vector = valid.slice(start, rows);
        let count = vector.count_set_bits();
        kinds.push(if count == rows {
            VALID
        } else if count == 0 {
            NULL
        } else {
            let end = bitmaps.len() + rows.div_ceil(8);
            for word in vector.bit_chunks().iter_padded() {
                bitmaps.extend_from_slice(&word.to_le_bytes());
            }
            bitmaps.truncate(end);
            BITMAP
        });
    }
    out.buffer(kinds);
    out.buffer(bitmaps);
}

impl Validity {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        match reader.u8()? {
            VALID => Ok(Self::AllValid),
            NULL => Ok(Self::AllNull),
            BITMAP => Self::parse_mixed(reader, len),
            tag => Err(corrupt(PART, format!("a tag of {tag}, at most 2"))),
        }
    }

    fn parse_mixed(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        let kinds = reader.buffer_of(vectors, PART)?;
        let mut ranks = Vec::with_capacity(vectors);
        let mut rank = 0;
        for kind in kinds.iter() {
            ensure(*kind <= BITMAP, PART, || {
                format!("a kind of {kind}, at most 2")
            })?;
            ranks.push(rank);
            rank += u32::from(*kind == BITMAP);
        }
        let rows = len % VECTOR_LEN;
        let is_short = rows > 0 && kinds.last() == Some(&BITMAP) && !reader.is_version_1();
        let bytes = match is_short {
            true => (rank as usize - 1) * BITMAP_BYTES + rows.div_ceil(8),
            false => rank as usize * BITMAP_BYTES,
        };
        let bitmaps = reader.buffer_of(bytes, PART)?;
        Ok(Self::Mixed {
            kinds,
            ranks,
            bitmaps,
        })
    }

    /// Whether some row of the chunk may be null.
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

    /// Keeps the valid rows, or the null ones.
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

/// Which rows are null.
#[derive(Clone, Copy, Debug)]
pub struct Nulls<'a>(pub(crate) &'a Validity);

impl Nulls<'_> {
    /// Whether there may be any.
    pub fn any(&self) -> bool {
        self.0.may_have_nulls()
    }

    /// A bit for each row of a vector, set if it is valid; `None` if all are.
    pub fn mask(&self, vector: usize) -> Option<[u64; VECTOR_LEN / 64]> {
        self.0.mask(vector)
    }
}
