//! The index streams of a column: an entry for each index group.

use super::protobuf::Fields;
use super::statistics::ColumnStatistics;
use crate::error::{Fault, corrupt, ensure};

/// An entry of the row index: one index group of a column.
#[derive(Debug, Default)]
pub(crate) struct RowIndexEntry {
    /// Its start in each stream.
    pub(crate) positions: Vec<u64>,
    pub(crate) statistics: ColumnStatistics,
}

/// Parses the entries of an inflated stream `ROW_INDEX`, at most `most`.
pub(crate) fn row_index(bytes: &[u8], most: usize) -> Result<Vec<RowIndexEntry>, Fault> {
    let mut entries = Vec::new();
    for field in Fields::of(bytes) {
        let (1, value) = field? else { continue };
        ensure_room(entries.len(), most)?;
        let mut entry = RowIndexEntry::default();
        for field in value.message()? {
            let (number, value) = field?;
            match number {
                1 => value.append_unsigned(&mut entry.positions)?,
                2 => entry.statistics = ColumnStatistics::parse(value.message()?)?,
                _ => (),
            }
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// A Bloom filter as a message has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BloomFilterMessage {
    pub(crate) hash_functions: u32,
    /// The bits, from the lowest bit of the first word.
    pub(crate) words: Vec<u64>,
}

/// Limits the entries: few bytes may encode many.
fn ensure_room(entries: usize, most: usize) -> Result<(), Fault> {
    ensure(entries < most, || {
        format!("more than {most} entries of an index")
    })
}

/// Parses the filters of an inflated stream `BLOOM_FILTER_UTF8`, at most `most`.
pub(crate) fn bloom_filters(bytes: &[u8], most: usize) -> Result<Vec<BloomFilterMessage>, Fault> {
    let mut filters = Vec::new();
    for field in Fields::of(bytes) {
        let (1, value) = field? else { continue };
        ensure_room(filters.len(), most)?;
        let mut filter = BloomFilterMessage::default();
        for field in value.message()? {
            let (number, value) = field?;
            match number {
                1 => filter.hash_functions = value.u32()?,
                2 => filter.words.push(value.fixed64()?),
                3 => filter.words = words(value.bytes()?)?,
                _ => (),
            }
        }
        filters.push(filter);
    }
    Ok(filters)
}

fn words(bytes: &[u8]) -> Result<Vec<u64>, Fault> {
    let (words, rest) = bytes.as_chunks();
    match rest.is_empty() {
        true => Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect()),
        false => corrupt(format!("a Bloom filter of {} bytes", bytes.len())),
    }
}
