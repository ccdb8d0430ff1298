//! Codes of a key table: one per index of a perfect hash table, or per slot of a hash table.

use std::mem::{self, MaybeUninit};

use crate::error::{Error, Result};
use crate::parallel;

/// Maximum bytes of a table of codes.
pub(super) const MOST_BYTES: u64 = 2 << 30;

/// Bytes of a code below `count`, with one further value for missing keys; 0 if there is only one code.
pub fn code_bytes(count: u32) -> usize {
    match count {
        0 | 1 => 0,
        2..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Codes, each in as few bytes as `code_bytes` allows.
pub enum CodeTable {
    /// There is only one code: none are stored.
    One,
    /// A byte per code.
    U8(Vec<u8>),
    /// Two bytes per code.
    U16(Vec<u16>),
    /// Four bytes per code.
    U32(Vec<u32>),
}

/// A code as tables store it.
pub(super) trait StoredCode: Copy + Send {
    /// The code of a key that is missing.
    const MISSING: Self;

    fn new(code: u32) -> Self;

    fn table(codes: Vec<Self>) -> CodeTable;
}

/// There is only one code.
impl StoredCode for () {
    const MISSING: Self = ();

    fn new(_: u32) -> Self {}

    fn table(_: Vec<Self>) -> CodeTable {
        CodeTable::One
    }
}

macro_rules! stored_code {
    ($of:ty, $table:ident) => {
        impl StoredCode for $of {
            const MISSING: Self = <$of>::MAX;

            fn new(code: u32) -> Self {
                code as $of
            }

            fn table(codes: Vec<Self>) -> CodeTable {
                CodeTable::$table(codes)
            }
        }
    };
}

stored_code!(u8, U8);
stored_code!(u16, U16);
stored_code!(u32, U32);

/// Part of a table of codes that one thread writes: first missing codes, in order, then the codes of keys.
pub(super) struct CodesPart<'a, C> {
    codes: &'a mut [MaybeUninit<C>],
    written: usize,
}

impl<C: StoredCode> CodesPart<'_, C> {
    /// Writes missing codes up to the index `end`, or to the part's end, unless they have been written.
    pub fn write_missing(&mut self, end: usize) {
        let end = end.min(self.codes.len());
        if let Some(codes) = self.codes.get_mut(self.written..end) {
            codes.fill(MaybeUninit::new(C::MISSING));
            self.written = end;
        }
    }

    /// Sets the code of an index up to which missing codes have been written.
    #[inline]
    pub fn set(&mut self, index: usize, code: u32) {
        self.codes[index].write(C::new(code));
    }
}

impl CodeTable {
    /// Creates a table of `range` codes, of which `parts` are written by `write`, several at once by `threads` threads.
    /// Each part has the index behind its last code, in order; codes behind all of them belong to the last part. Codes
    /// that are not written are missing. Returns the results of `write`, too.
    pub(super) fn of_parts<C: StoredCode, P: Send, R: Send>(
        range: usize,
        parts: Vec<(usize, P)>,
        threads: usize,
        write: impl Fn(P, &mut CodesPart<'_, C>) -> R + Sync,
    ) -> (Self, Vec<R>) {
        let mut codes: Vec<C> = Vec::with_capacity(range);
        let mut rest = &mut codes.spare_capacity_mut()[..range];
        let (count, mut begin) = (parts.len(), 0);
        let mut split = Vec::with_capacity(count + 1);
        for (number, (end, part)) in parts.into_iter().enumerate() {
            let len = match number + 1 == count {
                true => rest.len(),
                false => end.saturating_sub(begin).min(rest.len()),
            };
            let (own, behind) = mem::take(&mut rest).split_at_mut(len);
            (rest, begin) = (behind, begin + len);
            split.push((own, part));
        }
        let results = parallel::map(threads, split, |(codes, part)| {
            let mut codes = CodesPart { codes, written: 0 };
            let result = write(part, &mut codes);
            codes.write_missing(usize::MAX);
            result
        });
        match count {
            0 => codes.resize(range, C::MISSING),
            // SAFETY: the parts cover the first `range` codes of the capacity, as the last one takes what others leave.
            // `write_missing` has written each code of each part, as `written` starts at 0 and grows nowhere else.
            _ => unsafe { codes.set_len(range) },
        }
        (C::table(codes), results)
    }

    /// Creates a table of `range` codes below `count`, all of them missing.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it takes more than 2 GiB.
    pub fn new(count: u32, range: u64) -> Result<Self> {
        let width = code_bytes(count) as u64;
        if range * width > MOST_BYTES {
            let reason = format!("a table of {range} codes of {width} bytes");
            return Err(Error::Unsupported(reason));
        }
        let range = range as usize;
        Ok(match width {
            0 => Self::One,
            1 => Self::U8(vec![u8::MAX; range]),
            2 => Self::U16(vec![u16::MAX; range]),
            _ => Self::U32(vec![u32::MAX; range]),
        })
    }

    /// Bytes of a code; 0 if there is only one code.
    fn width(&self) -> usize {
        match self {
            Self::One => 0,
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One => 0,
            Self::U8(codes) => codes.len(),
            Self::U16(codes) => codes.len(),
            Self::U32(codes) => codes.len(),
        }
    }

    /// A table with the code of each index, if it has one.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub fn from_codes(codes: &[Option<u32>], count: u32) -> Result<Self> {
        let mut table = Self::new(count, codes.len() as u64)?;
        for (index, code) in codes.iter().enumerate() {
            if let Some(code) = code {
                table.set(index, *code);
            }
        }
        Ok(table)
    }

    /// Reads a table from the device's layout.
    pub fn read(count: u32, bytes: Vec<u8>) -> Self {
        match code_bytes(count) {
            0 => Self::One,
            1 => Self::U8(bytes),
            2 => {
                let codes = bytes.as_chunks::<2>().0.iter();
                Self::U16(codes.map(|code| u16::from_le_bytes(*code)).collect())
            }
            _ => {
                let codes = bytes.as_chunks::<4>().0.iter();
                Self::U32(codes.map(|code| u32::from_le_bytes(*code)).collect())
            }
        }
    }

    /// Writes the table in the device's layout.
    pub fn write(&self, to: &mut [u8]) {
        match self {
            Self::One => {}
            Self::U8(codes) => to[..codes.len()].copy_from_slice(codes),
            Self::U16(codes) => {
                let to = to.as_chunks_mut::<2>().0.iter_mut();
                to.zip(codes)
                    .for_each(|(to, code)| *to = code.to_le_bytes());
            }
            Self::U32(codes) => {
                let to = to.as_chunks_mut::<4>().0.iter_mut();
                to.zip(codes)
                    .for_each(|(to, code)| *to = code.to_le_bytes());
            }
        }
    }

    /// Number of bytes that [`write`](Self::write) writes.
    pub fn bytes(&self) -> usize {
        self.len() * self.width()
    }

    /// Sets the code of an index.
    pub fn set(&mut self, index: usize, code: u32) {
        match self {
            Self::One => {}
            Self::U8(codes) => codes[index] = code as u8,
            Self::U16(codes) => codes[index] = code as u16,
            Self::U32(codes) => codes[index] = code,
        }
    }

    /// The code of an index.
    pub fn get(&self, index: usize) -> u32 {
        match self {
            Self::One => 0,
            Self::U8(codes) => codes[index].into(),
            Self::U16(codes) => codes[index].into(),
            Self::U32(codes) => codes[index],
        }
    }
}
