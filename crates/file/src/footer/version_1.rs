//! Row groups in the footer of format version 1: fixed-width numbers, little-endian.
//!
//! ```text
//! u32    format version
//! text   logical schema, JSON; of a text, the length is a u32
//! u32    number of encoding names, and as many texts
//! u32    number of row groups, and for each
//!          u64  rows
//!          u64  start, end in the file (two numbers)
//!          per column
//!            u64, u64, u32  zones: start, length, crc32
//!            u64, u64, u32  data: start, length, crc32
//!            u32            encoding: index of its name
//!            u64            bytes as Arrow arrays
//! per column, if there are row groups
//!   text  row-group statistics: an encoded zone map of one entry per row group
//! ```
//!
//! Row groups and, in each, `zones` and `data` of the columns follow each other without overlap, start at multiples of
//! 64, and end before the footer begins.

use std::ops::Range;
use std::sync::Arc;

use super::fields::{encoding, rows};
use crate::cursor::Cursor;
use crate::error::{FilePosition, Result};
use crate::ipc::HEADER;
use crate::metadata::{Chunk, Compression, RowGroup};

/// Row groups and chunks start at multiples of this many bytes.
const ALIGNMENT: u64 = 64;

const ROW_GROUP_BYTES: usize = 3 * size_of::<u64>();
const CHUNK_BYTES: usize = 5 * size_of::<u64>() + 3 * size_of::<u32>();

/// Parses the row groups of a file whose footer begins at byte `limit`.
pub(super) fn row_groups(
    cursor: &mut Cursor<'_>,
    columns: usize,
    names: &[Arc<str>],
    limit: u64,
    position: FilePosition<'_>,
) -> Result<Vec<RowGroup>> {
    Groups {
        position,
        columns,
        names,
        free: HEADER.len() as u64..limit,
    }
    .parse(cursor)
}

/// Parses row groups front to back, removing the bytes they occupy from the `free` bytes of the file.
struct Groups<'a> {
    position: FilePosition<'a>,
    columns: usize,
    names: &'a [Arc<str>],
    free: Range<u64>,
}

impl Groups<'_> {
    fn parse(mut self, cursor: &mut Cursor<'_>) -> Result<Vec<RowGroup>> {
        let file = self.position;
        let entry_bytes = self
            .columns
            .saturating_mul(CHUNK_BYTES)
            .saturating_add(ROW_GROUP_BYTES);
        let count = cursor.count(Cursor::wide_u32, entry_bytes, "row groups")?;
        let mut row_groups = Vec::with_capacity(count);
        for index in 0..count {
            self.position = file.row_group(index);
            row_groups.push(self.row_group(cursor)?);
        }
        Ok(row_groups)
    }

    fn row_group(&mut self, cursor: &mut Cursor<'_>) -> Result<RowGroup> {
        let rows = rows(cursor.u64("row count")?, self.position)?;
        let bytes = cursor.u64("row group start")?..cursor.u64("row group end")?;
        if bytes.start > bytes.end {
            return Err(self
                .position
                .corrupt(format!("it occupies bytes {bytes:?}")));
        }
        self.take(bytes.clone(), "the row group")?;
        let mut group = Groups {
            position: self.position,
            columns: self.columns,
            names: self.names,
            free: bytes.clone(),
        };
        let columns = (0..self.columns)
            .map(|_| group.chunk(cursor))
            .collect::<Result<_>>()?;
        Ok(RowGroup {
            rows,
            bytes,
            columns,
        })
    }

    fn chunk(&mut self, cursor: &mut Cursor<'_>) -> Result<Chunk> {
        let (zones, zones_crc32) = self.part(cursor, "zones")?;
        let (data, data_crc32) = self.part(cursor, "data")?;
        let number = cursor.wide_u32("encoding")?;
        Ok(Chunk {
            zones,
            zones_crc32,
            bloom: None,
            data_bytes: data.end - data.start,
            data,
            data_crc32,
            compression: Compression::None,
            encoding: encoding(self.names, number, self.position)?,
            arrow_bytes: cursor.u64("size as Arrow arrays")?,
        })
    }

    fn part(&mut self, cursor: &mut Cursor<'_>, what: &str) -> Result<(Range<u64>, u32)> {
        let start = cursor.u64(what)?;
        let len = cursor.u64(what)?;
        let crc32 = cursor.u32(what)?;
        let end = start.checked_add(len).ok_or_else(|| {
            self.position
                .corrupt(format!("{what} of {len} bytes at {start}"))
        })?;
        self.take(start..end, what)?;
        Ok((start..end, crc32))
    }

    /// Removes `range` from the front of the free bytes.
    fn take(&mut self, range: Range<u64>, what: &str) -> Result<()> {
        let free = self.free.clone();
        if range.start < free.start
            || range.end > free.end
            || !range.start.is_multiple_of(ALIGNMENT)
        {
            return Err(self.position.corrupt(format!(
                "{what} at bytes {range:?}; it has to be within {free:?}, at a multiple of {ALIGNMENT}"
            )));
        }
        self.free.start = range.end;
        Ok(())
    }
}
