//! Column chunks in memory, as the `parquet` crate reads files.

use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Parts of a file in memory. Reading other parts is an error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    /// Where each part starts in the file, and its bytes.
    pub(crate) parts: Vec<(u64, Bytes)>,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
}

impl Chunks {
    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// The bytes from `start` to the end of their part.
    fn from(&self, start: u64) -> Result<Bytes> {
        let found = self.parts.iter().find_map(|(first, bytes)| {
            let offset = usize::try_from(start.checked_sub(*first)?).ok()?;
            (offset < bytes.len()).then(|| bytes.slice(offset..))
        });
        found.ok_or_else(|| ParquetError::EOF(format!("byte {start} is in no chunk of the column")))
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Chunks {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF(format!(
                "{length} bytes where {} are left",
                bytes.len()
            ))),
        }
    }
}
