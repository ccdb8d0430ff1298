//! Join keys in the chunks that they come in, and the codes of their rows.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use crate::parallel;
use crate::types::Type;

/// Rows of a block: so many are read at once, and stay in the first cache.
pub(super) const BLOCK: usize = 1024;
/// Maximum threads that build a table: each reads all keys if they come in no order.
const MOST_THREADS: usize = 16;

/// The keys of a build table, in chunks. Keys are not copied. Rows are numbered from the first chunk to the last.
pub struct KeyChunks {
    pub(super) kind: KeyKind,
    rows: usize,
    pub(super) threads: usize,
}

/// Keys by how they are looked up.
pub(super) enum KeyKind {
    Integers(Vec<IntegerChunk>),
    /// Text or binary.
    Bytes(Vec<ArrayRef>),
}

/// The codes of rows.
#[derive(Clone, Copy)]
pub enum RowCodes<'a> {
    /// One code for all rows, and keys may be duplicates.
    Set,
    /// One code for all rows.
    One,
    /// The row's number.
    Rows,
    /// The row's number. Tables may use the rank of the key instead if keys ascend; devices do not read such tables.
    Ranks,
    /// A code for each row, and the number of codes; each code is below it.
    Each(&'a [u32], u32),
}

impl RowCodes<'_> {
    /// The number of codes of `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many. [`Error::Internal`] if the codes do not fit the rows or their
    /// number.
    pub(super) fn count(self, rows: usize) -> Result<u32> {
        match self {
            Self::Set | Self::One => Ok(1),
            Self::Rows | Self::Ranks => {
                u32::try_from(rows).map_err(|_| Error::Unsupported(format!("{rows} codes")))
            }
            Self::Each(codes, count) => {
                let greatest = codes.iter().copied().max();
                match codes.len() == rows && greatest.is_none_or(|code| code < count) {
                    true => Ok(count),
                    false => {
                        let codes = codes.len();
                        let reason = format!("{codes} codes below {count} for {rows}");
                        Err(Error::Internal(reason))
                    }
                }
            }
        }
    }

    /// The code of a row.
    pub fn code(self, row: usize) -> u32 {
        match self {
            Self::Set | Self::One => 0,
            Self::Rows | Self::Ranks => row as u32,
            Self::Each(codes, _) => codes[row],
        }
    }

    /// Writes the codes of the rows from `first` on.
    fn read(self, first: usize, to: &mut [u32]) {
        match self {
            Self::Set | Self::One => {}
            Self::Rows | Self::Ranks => (first as u32..).zip(to).for_each(|(row, to)| *to = row),
            Self::Each(codes, _) => to.copy_from_slice(&codes[first..first + to.len()]),
        }
    }
}

impl KeyChunks {
    /// The keys of `chunks`, of which `threads` threads may build a table.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if keys are neither integers (or dates, times, decimals of up to 64 bits) nor text.
    pub fn new(chunks: &[ArrayRef], threads: usize) -> Result<Self> {
        let rows = chunks.iter().map(|chunk| chunk.len()).sum();
        let threads = parallel::threads_for(rows, threads.min(MOST_THREADS));
        let mut first_row = 0;
        let integers = chunks.iter().map(|chunk| {
            let first = first_row;
            first_row += chunk.len();
            Ok(Integers::of(chunk)?.map(|values| (values, chunk, first)))
        });
        let kind = match integers.collect::<Result<Option<Vec<_>>>>()? {
            Some(chunks) => {
                let chunk = |(values, chunk, first): (_, &ArrayRef, _)| {
                    IntegerChunk::new(values, chunk.nulls(), first)
                };
                KeyKind::Integers(parallel::map(threads, chunks, chunk))
            }
            None => KeyKind::Bytes(chunks.to_vec()),
        };
        Ok(Self {
            kind,
            rows,
            threads,
        })
    }

    /// The number of rows, with and without a key.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Uses `threads` threads however few rows there are.
    #[cfg(test)]
    pub(super) fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }
}

/// Integers, or values stored as integers, in their own width.
enum Integers {
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
}

impl Integers {
    /// The integers of an array; `None` for text and binary.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for all other types.
    fn of(keys: &ArrayRef) -> Result<Option<Self>> {
        use DataType::*;
        if matches!(
            keys.data_type(),
            Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
        ) {
            return Ok(None);
        }
        let of = Type::of(keys.data_type()).filter(|of| !of.is_float() && *of != Type::Bool);
        let of = of.filter(|of| !matches!(of, Type::I128 | Type::U64));
        let of = of.ok_or_else(|| unsupported_keys(keys))?;
        let data = keys.to_data();
        let (offset, len) = (data.offset(), data.len());
        let buffer = data.buffers().first().cloned();
        let buffer = buffer.ok_or_else(|| unsupported_keys(keys))?;
        Ok(Some(match of {
            Type::I8 => Self::I8(ScalarBuffer::new(buffer, offset, len)),
            Type::I16 => Self::I16(ScalarBuffer::new(buffer, offset, len)),
            Type::I32 => Self::I32(ScalarBuffer::new(buffer, offset, len)),
            Type::U8 => Self::U8(ScalarBuffer::new(buffer, offset, len)),
            Type::U16 => Self::U16(ScalarBuffer::new(buffer, offset, len)),
            Type::U32 => Self::U32(ScalarBuffer::new(buffer, offset, len)),
            _ => Self::I64(ScalarBuffer::new(buffer, offset, len)),
        }))
    }

    fn len(&self) -> usize {
        match self {
            Self::I8(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::U32(values) => values.len(),
        }
    }

    /// Widens the values from `first` on.
    fn read(&self, first: usize, to: &mut [i64]) {
        fn widen<T: Copy + Into<i64>>(values: &[T], first: usize, to: &mut [i64]) {
            let values = &values[first..first + to.len()];
            for (to, value) in to.iter_mut().zip(values) {
                *to = (*value).into();
            }
        }
        match self {
            Self::I8(values) => widen(values, first, to),
            Self::I16(values) => widen(values, first, to),
            Self::I32(values) => widen(values, first, to),
            Self::I64(values) => widen(values, first, to),
            Self::U8(values) => widen(values, first, to),
            Self::U16(values) => widen(values, first, to),
            Self::U32(values) => widen(values, first, to),
        }
    }
}

/// A chunk of integer keys.
pub(super) struct IntegerChunk {
    values: Integers,
    /// `None` if all rows have a key.
    nulls: Option<NullBuffer>,
    first_row: usize,
    /// Rows with a key.
    pub keys: usize,
    /// The smallest and the largest key; `None` if there is none.
    pub bounds: Option<(i64, i64)>,
}

impl IntegerChunk {
    fn new(values: Integers, nulls: Option<&NullBuffer>, first_row: usize) -> Self {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0).cloned();
        let null_count = nulls.as_ref().map_or(0, NullBuffer::null_count);
        let mut chunk = Self {
            keys: values.len() - null_count,
            values,
            nulls,
            first_row,
            bounds: None,
        };
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        chunk.each_block(RowCodes::One, |block| {
            for key in block.keys() {
                (least, greatest) = (least.min(*key), greatest.max(*key));
            }
            true
        });
        chunk.bounds = (chunk.keys > 0).then_some((least, greatest));
        chunk
    }

    /// Calls `f` with the keys and codes of some rows at a time, until it returns false.
    pub fn each_block(&self, codes: RowCodes<'_>, mut f: impl FnMut(&mut Block) -> bool) {
        let mut block = Block {
            keys: [0; BLOCK],
            codes: [0; BLOCK],
            len: 0,
        };
        for first in (0..self.values.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.values.len() - first);
            self.values.read(first, &mut block.keys[..len]);
            codes.read(self.first_row + first, &mut block.codes[..len]);
            block.len = len;
            if let Some(nulls) = &self.nulls {
                block.keep(|row, _| nulls.is_valid(first + row));
            }
            if !f(&mut block) {
                return;
            }
        }
    }
}

/// Keys and codes of some rows. All codes are 0 if there is one.
pub(super) struct Block {
    keys: [i64; BLOCK],
    codes: [u32; BLOCK],
    len: usize,
}

impl Block {
    pub fn keys(&self) -> &[i64] {
        &self.keys[..self.len]
    }

    pub fn codes(&self) -> &[u32] {
        &self.codes[..self.len]
    }

    /// Keeps the rows for which `is_kept` of their index in the block and their key is true.
    #[inline]
    pub fn keep(&mut self, is_kept: impl Fn(usize, i64) -> bool) {
        let mut kept = 0;
        for row in 0..self.len {
            // without a branch, as no order of keys is assumed
            let (key, code) = (self.keys[row], self.codes[row]);
            (self.keys[kept], self.codes[kept]) = (key, code);
            kept += usize::from(is_kept(row, key));
        }
        self.len = kept;
    }
}

/// True if each row has a key, larger than that of the row before. `threads` threads share the work.
pub(super) fn do_ascend(chunks: &[IntegerChunk], threads: usize) -> bool {
    let mut last = None;
    let are_in_order = chunks.iter().all(|chunk| match (chunk.bounds, last) {
        (Some((least, greatest)), before) => {
            last = Some(greatest);
            chunk.nulls.is_none() && before.is_none_or(|before| before < least)
        }
        (None, _) => chunk.nulls.is_none(),
    });
    let do_ascend = |chunk: &IntegerChunk| {
        let (mut before, mut do_ascend) = (None, true);
        chunk.each_block(RowCodes::One, |block| {
            let (keys, first) = (block.keys(), block.keys().first());
            let pairs = keys.iter().zip(keys.get(1..).unwrap_or_default());
            do_ascend &= pairs.fold(true, |all, (a, b)| all & (a < b));
            do_ascend &= before.is_none_or(|before| first.is_none_or(|first| before < *first));
            before = keys.last().copied().or(before);
            do_ascend
        });
        do_ascend
    };
    are_in_order
        && parallel::map(threads, chunks.iter().collect(), do_ascend)
            .into_iter()
            .all(|of_chunk| of_chunk)
}

/// The smallest and the largest key of chunks; `None` if there is none.
pub(super) fn bounds(chunks: &[IntegerChunk]) -> Option<(i64, i64)> {
    let bounds = chunks.iter().filter_map(|chunk| chunk.bounds);
    bounds.reduce(|own, other| (own.0.min(other.0), own.1.max(other.1)))
}

/// The smallest and the largest of the integers, or values stored as integers, of an array; `None` if there is none.
pub(super) fn bounds_of(values: &ArrayRef) -> Option<(i64, i64)> {
    let integers = Integers::of(values).ok()??;
    IntegerChunk::new(integers, values.nulls(), 0).bounds
}

/// Widens integers, and types stored as integers, to 64 bits; `None` for text and binary.
///
/// # Errors
///
/// [`Error::Unsupported`] for all other types.
pub(super) fn integers(keys: &ArrayRef) -> Result<Option<Vec<i64>>> {
    let widened = |values: Integers| {
        let mut widened = vec![0; values.len()];
        values.read(0, &mut widened);
        widened
    };
    Ok(Integers::of(keys)?.map(widened))
}

pub(super) fn unsupported_keys(keys: &ArrayRef) -> Error {
    Error::Unsupported(format!("keys of type {}", keys.data_type()))
}
