//! Codes of a key table: one per index of a perfect hash table, or per slot of a hash table.

use crate::error::{Error, Result};

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

impl CodeTable {
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
