//! The positions in a column's streams where its index groups begin.
//!
//! An entry of a row index is a list of numbers: those of `PRESENT`, if the column has that stream, then those of the
//! others, in the order of their kinds. A dictionary is not split by index groups and has none.
//!
//! ```text
//! stream      with chunks: offset of the chunk, byte in what it inflates to; without: offset
//! then        of RLE: values of the run to skip; of booleans: bytes of the run to skip, bits of the byte
//! ```

use crate::compression::Compression;
use crate::decode::Decoder;
use crate::error::{Fault, corrupt};
use crate::kind::StreamKind;
use crate::messages::RowIndexEntry;

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The offset of the chunk's header; of the byte if there are no chunks.
    pub offset: usize,
    /// The byte within the inflated chunk.
    pub byte: usize,
    /// The number of values to skip from there on.
    pub values: usize,
}

/// The positions in one of a column's streams where its index groups begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexGroups {
    /// The stream.
    pub stream: StreamKind,
    /// An entry for each index group.
    pub positions: Vec<Position>,
}

/// The positions in these streams of a column where its index groups begin.
pub(crate) fn index_groups(
    entries: &[RowIndexEntry],
    mut streams: Vec<(StreamKind, Decoder)>,
    compression: Compression,
) -> Result<Vec<IndexGroups>, Fault> {
    streams.retain(|(stream, _)| *stream != StreamKind::DictionaryData);
    streams.sort_by_key(|(stream, _)| *stream);
    let mut groups: Vec<IndexGroups> = streams
        .iter()
        .map(|(stream, _)| IndexGroups {
            stream: *stream,
            positions: Vec::with_capacity(entries.len()),
        })
        .collect();
    for entry in entries {
        let mut numbers = Numbers(entry.positions.iter());
        for (group, (_, decoder)) in groups.iter_mut().zip(&streams) {
            group
                .positions
                .push(numbers.position(*decoder, compression)?);
        }
    }
    Ok(groups)
}

/// The remaining numbers of an entry.
struct Numbers<'a>(std::slice::Iter<'a, u64>);

impl Numbers<'_> {
    fn next(&mut self) -> Result<usize, Fault> {
        let next = self
            .0
            .next()
            .and_then(|&number| usize::try_from(number).ok());
        next.map_or_else(|| corrupt("too few positions of a index group"), Ok)
    }

    fn position(&mut self, decoder: Decoder, compression: Compression) -> Result<Position, Fault> {
        let offset = self.next()?;
        let byte = match compression {
            Compression::None => 0,
            _ => self.next()?,
        };
        let values = match decoder {
            Decoder::Bytes | Decoder::Decimals => 0,
            Decoder::ByteRle | Decoder::RleV1(_) | Decoder::RleV2(_) => self.next()?,
            Decoder::Boolean => {
                let bytes = self.next()?;
                bytes.saturating_mul(8).saturating_add(self.next()?)
            }
        };
        Ok(Position {
            offset,
            byte,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Sign;

    #[test]
    fn numbers_are_those_of_the_streams() {
        let entry = |positions: &[u64]| RowIndexEntry {
            positions: positions.to_vec(),
            ..RowIndexEntry::default()
        };
        let streams = vec![
            (StreamKind::Data, Decoder::RleV2(Sign::Signed)),
            (StreamKind::Present, Decoder::Boolean),
        ];
        let entries = [entry(&[0; 7]), entry(&[10, 20, 3, 5, 30, 40, 7])];
        let groups = index_groups(&entries, streams.clone(), Compression::Zlib).unwrap();
        assert_eq!(groups[0].stream, StreamKind::Present);
        assert_eq!(
            groups[0].positions[1],
            Position {
                offset: 10,
                byte: 20,
                values: 29
            }
        );
        assert_eq!(
            groups[1].positions[1],
            Position {
                offset: 30,
                byte: 40,
                values: 7
            }
        );
        let groups = index_groups(
            &[entry(&[10, 3, 5, 30, 7])],
            streams.clone(),
            Compression::None,
        )
        .unwrap();
        assert_eq!(
            groups[1].positions[0],
            Position {
                offset: 30,
                byte: 0,
                values: 7
            }
        );
        assert!(index_groups(&[entry(&[10, 3, 5, 30])], streams, Compression::None).is_err());
    }
}
