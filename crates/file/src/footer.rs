//! The Vectile footer. A number is a varint: seven bits in each byte, the lowest first; all bytes but the last have the
//! highest bit set. A checksum is a `u32`, little-endian. A "text" is its length, a number, and that many bytes.
//!
//! ```text
//! number format version
//! text   logical schema, JSON
//! number count of encoding names, and as many texts: the names that chunks refer to
//! number count of row groups, and for each
//!          number rows
//!          number bytes between the row group before and this one
//!          per column
//!            u8     what it has: 1 a zone map, 2 a Bloom filter, 4 compressed data
//!            number encoding: index of its name
//!            part   zone map, if it has one
//!            part   Bloom filter, if it has one
//!            part   data
//!            u8     how the data are compressed (1: Zstandard), if they are
//!            number bytes of the data when they are not, if they are
//!            number bytes as Arrow arrays
//!          number bytes behind the last part
//! per column, if there are row groups
//!   text  row-group statistics: an encoded zone map of one entry per row group
//!
//! part     number bytes between the part before and this one, number bytes, checksum
//! ```
//!
//! Row groups, and the parts in each, follow each other: a position is a distance from the end of the part before. So
//! they cannot overlap. [`parse`] checks that they end before the footer begins: regardless of the bytes, all chunks
//! together are no larger than the file, and the parsed footer is no larger than a small multiple of its bytes.
//!
//! The footer of version 1 has the same content in numbers of a fixed width; see [`version_1`].

mod fields;
mod version_1;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::new_empty_array;
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use vectile_encodings::ZoneMap;

use fields::{encoding, rows};

use crate::cursor::{Cursor, Read, put_varint};
use crate::error::{Error, FilePosition, Result};
use crate::ipc::HEADER;
use crate::metadata::{Bloom, Chunk, Compression, Metadata, RowGroup};
use crate::{FORMAT_VERSION, compression, schema};

/// Parsed statistics are at most this large, unless they take a good part of that in the file.
const MAX_STATISTICS_BYTES: usize = 1 << 30;
const MAX_GROWTH: usize = 64;

/// The fewest bytes of a row group's entry besides those of its chunks, and of a chunk's entry.
const ROW_GROUP_BYTES: usize = 3;
const CHUNK_BYTES: usize = 9;

const HAS_ZONES: u8 = 1;
const HAS_BLOOM: u8 = 2;
const IS_COMPRESSED: u8 = 4;

const ZSTD: u8 = 1;

/// The footer of a file with these row groups and, per column, row-group statistics.
pub(crate) fn encode(
    schema: &Schema,
    row_groups: &[RowGroup],
    statistics: &[ZoneMap],
) -> Result<Vec<u8>> {
    let mut names = Names::default();
    let mut out = Vec::new();
    put_varint(&mut out, FORMAT_VERSION.into());
    put_text(&mut out, &schema::to_json(schema)?);

    let mut groups = RangeWriter::new(HEADER.len() as u64);
    for row_group in row_groups {
        put_varint(&mut groups.out, row_group.rows as u64);
        groups.put_gap(row_group.bytes.start)?;
        for chunk in &row_group.columns {
            groups.put_chunk(chunk, &mut names)?;
        }
        groups.put_gap(row_group.bytes.end)?;
    }

    put_varint(&mut out, names.in_order.len() as u64);
    for name in names.in_order {
        put_text(&mut out, name.as_bytes());
    }
    put_varint(&mut out, row_groups.len() as u64);
    out.append(&mut groups.out);
    if !row_groups.is_empty() {
        for (zones, field) in statistics.iter().zip(schema.fields()) {
            let bytes = zones
                .encode()
                .map_err(|error| FilePosition::file("").column(field.name()).encoding(error))?;
            put_text(&mut out, &bytes);
        }
    }
    Ok(out)
}

/// The distinct names of encodings, numbered in order of appearance.
#[derive(Default)]
struct Names<'a> {
    in_order: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.in_order.push(name);
            self.in_order.len() - 1
        })
    }
}

/// Writes ranges that follow each other in the file.
struct RangeWriter {
    out: Vec<u8>,
    end: u64,
}

impl RangeWriter {
    fn new(end: u64) -> Self {
        Self { out: vec![], end }
    }

    fn put_chunk<'a>(&mut self, chunk: &'a Chunk, names: &mut Names<'a>) -> Result<()> {
        let mut has = 0;
        if !chunk.zones.is_empty() {
            has |= HAS_ZONES;
        }
        if chunk.bloom.is_some() {
            has |= HAS_BLOOM;
        }
        if chunk.compression != Compression::None {
            has |= IS_COMPRESSED;
        }
        self.out.push(has);
        put_varint(&mut self.out, names.number(&chunk.encoding) as u64);
        if has & HAS_ZONES != 0 {
            self.put_part(&chunk.zones, chunk.zones_crc32)?;
        }
        if let Some(bloom) = &chunk.bloom {
            self.put_part(&bloom.bytes, bloom.crc32)?;
        }
        self.put_part(&chunk.data, chunk.data_crc32)?;
        match chunk.compression {
            Compression::None => {}
            Compression::Zstd => {
                self.out.push(ZSTD);
                put_varint(&mut self.out, chunk.data_bytes);
            }
        }
        put_varint(&mut self.out, chunk.arrow_bytes);
        Ok(())
    }

    fn put_part(&mut self, bytes: &Range<u64>, crc32: u32) -> Result<()> {
        self.put_gap(bytes.start)?;
        put_varint(&mut self.out, bytes.end - bytes.start);
        self.out.extend(crc32.to_le_bytes());
        self.end = bytes.end;
        Ok(())
    }

    /// Writes the distance of `start` from the end of the last range.
    fn put_gap(&mut self, start: u64) -> Result<()> {
        let gap = start.checked_sub(self.end).ok_or_else(|| {
            Error::Internal(format!("byte {start} is before {} in the file", self.end))
        })?;
        put_varint(&mut self.out, gap);
        self.end = start;
        Ok(())
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Parses the footer of a file of `version` from untrusted bytes, which begin at `offset` of the file.
pub(crate) fn parse(bytes: &[u8], version: u32, offset: u64, file: &str) -> Result<Metadata> {
    let position = FilePosition::file(file);
    let mut cursor = Cursor::new(bytes, position);
    let number: Read<'_> = match version {
        1 => Cursor::wide_u32,
        _ => Cursor::varint,
    };
    let repeated = number(&mut cursor, "format version")?;
    if repeated != u64::from(version) {
        return Err(position.corrupt(format!("a footer of format version {repeated}")));
    }
    let schema = schema::parse(cursor.prefixed(number, "schema")?, position)?;
    let names = encoding_names(&mut cursor, number, position)?;
    let columns = schema.fields().len();
    let row_groups = match version {
        1 => version_1::row_groups(&mut cursor, columns, &names, offset, position)?,
        _ => row_groups(&mut cursor, columns, &names, offset, position)?,
    };
    let statistics = statistics(
        &mut cursor,
        number,
        &schema,
        row_groups.len(),
        version,
        position,
    )?;
    if cursor.remaining() > 0 {
        return Err(position.corrupt(format!("{} bytes after the footer", cursor.remaining())));
    }
    Ok(Metadata {
        file: file.into(),
        version,
        num_rows: row_groups.iter().map(|group| group.rows as u64).sum(),
        schema,
        row_groups,
        statistics,
        footer_bytes: 0,
        checksum: 0,
        e_tag: None,
        is_file: false,
    })
}

fn encoding_names<'a>(
    cursor: &mut Cursor<'a>,
    number: Read<'a>,
    position: FilePosition<'_>,
) -> Result<Vec<Arc<str>>> {
    let count = cursor.count(number, 1, "encoding names")?;
    (0..count)
        .map(|_| {
            let name = cursor.prefixed(number, "encoding name")?;
            let name = std::str::from_utf8(name)
                .map_err(|_| position.corrupt("the name of an encoding is not UTF-8"))?;
            Ok(name.into())
        })
        .collect()
}

/// Parses the row groups of a file whose footer begins at byte `limit`.
fn row_groups(
    cursor: &mut Cursor<'_>,
    columns: usize,
    names: &[Arc<str>],
    limit: u64,
    position: FilePosition<'_>,
) -> Result<Vec<RowGroup>> {
    let entry_bytes = columns
        .saturating_mul(CHUNK_BYTES)
        .saturating_add(ROW_GROUP_BYTES);
    let count = cursor.count(Cursor::varint, entry_bytes, "row groups")?;
    let mut parser = Parser {
        position,
        names,
        end: HEADER.len() as u64,
        limit,
    };
    let mut row_groups = Vec::with_capacity(count);
    for index in 0..count {
        parser.position = position.row_group(index);
        row_groups.push(parser.row_group(cursor, columns)?);
    }
    Ok(row_groups)
}

/// Parses ranges that follow each other in the file.
struct Parser<'a> {
    position: FilePosition<'a>,
    names: &'a [Arc<str>],
    /// End of the last range parsed.
    end: u64,
    /// Start of the footer.
    limit: u64,
}

impl Parser<'_> {
    fn row_group(&mut self, cursor: &mut Cursor<'_>, columns: usize) -> Result<RowGroup> {
        let rows = rows(cursor.varint("row count")?, self.position)?;
        let gap = cursor.varint("row group start")?;
        let start = self.advance(gap, "the row group")?;
        let columns = (0..columns)
            .map(|_| self.chunk(cursor))
            .collect::<Result<_>>()?;
        let rest = cursor.varint("row group end")?;
        let end = self.advance(rest, "the row group")?;
        Ok(RowGroup {
            rows,
            bytes: start..end,
            columns,
        })
    }

    fn chunk(&mut self, cursor: &mut Cursor<'_>) -> Result<Chunk> {
        let has = cursor.u8("column")?;
        if has & !(HAS_ZONES | HAS_BLOOM | IS_COMPRESSED) != 0 {
            return Err(self
                .position
                .corrupt(format!("a column that has parts {has:#x}")));
        }
        let number = cursor.varint("encoding")?;
        let encoding = encoding(self.names, number, self.position)?;
        let (zones, zones_crc32) = match has & HAS_ZONES {
            0 => (self.end..self.end, 0),
            _ => self.part(cursor, "zones")?,
        };
        let bloom = match has & HAS_BLOOM {
            0 => None,
            _ => {
                let (bytes, crc32) = self.part(cursor, "a Bloom filter")?;
                Some(Bloom { bytes, crc32 })
            }
        };
        let (data, data_crc32) = self.part(cursor, "data")?;
        let stored = data.end - data.start;
        let (compression, data_bytes) = match has & IS_COMPRESSED {
            0 => (Compression::None, stored),
            _ => self.compression(cursor, stored)?,
        };
        Ok(Chunk {
            zones,
            zones_crc32,
            bloom,
            data,
            data_crc32,
            compression,
            data_bytes,
            encoding,
            arrow_bytes: cursor.varint("size as Arrow arrays")?,
        })
    }

    /// The compression of `stored` bytes, and their decompressed size.
    fn compression(&self, cursor: &mut Cursor<'_>, stored: u64) -> Result<(Compression, u64)> {
        let compression = match cursor.u8("compression")? {
            ZSTD => Compression::Zstd,
            other => return Err(self.position.corrupt(format!("compression {other}"))),
        };
        let bytes = cursor.varint("size of data")?;
        let limit = compression::limit(stored);
        match bytes <= limit {
            true => Ok((compression, bytes)),
            false => Err(self.position.corrupt(format!(
                "{bytes} bytes of data compressed to {stored}, at most {limit}"
            ))),
        }
    }

    fn part(&mut self, cursor: &mut Cursor<'_>, what: &str) -> Result<(Range<u64>, u32)> {
        let gap = cursor.varint(what)?;
        let start = self.advance(gap, what)?;
        let len = cursor.varint(what)?;
        let end = self.advance(len, what)?;
        Ok((start..end, cursor.u32(what)?))
    }

    /// The position `bytes` after the end of the last range.
    fn advance(&mut self, bytes: u64, what: &str) -> Result<u64> {
        let end = self.end.checked_add(bytes);
        let end = end.filter(|end| *end <= self.limit).ok_or_else(|| {
            let (from, to) = (self.end, self.limit);
            self.position.corrupt(format!(
                "{what} goes on for {bytes} bytes; it has to be within {from}..{to}"
            ))
        })?;
        self.end = end;
        Ok(end)
    }
}

fn statistics<'a>(
    cursor: &mut Cursor<'a>,
    number: Read<'a>,
    schema: &SchemaRef,
    row_groups: usize,
    version: u32,
    position: FilePosition<'_>,
) -> Result<Vec<ZoneMap>> {
    let limit = MAX_STATISTICS_BYTES.max(cursor.remaining().saturating_mul(MAX_GROWTH));
    let mut total = 0;
    let mut of_column = |data_type: &DataType, column: FilePosition<'_>| {
        if row_groups == 0 {
            let none = new_empty_array(data_type);
            return ZoneMap::of(&none).map_err(|error| column.encoding(error));
        }
        let bytes = Buffer::from(cursor.prefixed(number, "statistics")?);
        let zones = ZoneMap::parse_version(bytes, data_type, row_groups, version)
            .map_err(|error| column.encoding(error))?;
        total += zones.memory_size();
        match total <= limit {
            true => Ok(zones),
            false => Err(column.corrupt(format!(
                "statistics of more than {limit} bytes up to this column"
            ))),
        }
    };
    schema
        .fields()
        .iter()
        .map(|field| of_column(field.data_type(), position.column(field.name())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use arrow::datatypes::Field;

    use crate::metadata::MAX_ROW_GROUP_ROWS;

    /// Where the footer of [`example`] begins in its file.
    const OFFSET: u64 = 1024;

    fn chunk(zones: Range<u64>, data: Range<u64>) -> Chunk {
        Chunk {
            zones,
            zones_crc32: 1,
            bloom: None,
            data_bytes: data.end.saturating_sub(data.start),
            data,
            data_crc32: 2,
            compression: Compression::None,
            encoding: "plain".into(),
            arrow_bytes: 40,
        }
    }

    fn row_groups() -> Vec<RowGroup> {
        let none = |at: u64| Chunk {
            zones_crc32: 0,
            ..chunk(at..at, at..448)
        };
        let bloom = Bloom {
            bytes: 520..530,
            crc32: 3,
        };
        let with_bloom = Chunk {
            bloom: Some(bloom),
            compression: Compression::Zstd,
            data_bytes: 1000,
            ..chunk(512..513, 576..640)
        };
        vec![
            RowGroup {
                rows: 10,
                bytes: 64..448,
                columns: vec![chunk(128..140, 192..250), none(250)],
            },
            RowGroup {
                rows: 3,
                bytes: 448..832,
                columns: vec![with_bloom, chunk(640..700, 704..705)],
            },
        ]
    }

    fn zone_map(array: &dyn arrow::array::Array) -> ZoneMap {
        let zones = ZoneMap::of(array).unwrap().merge().unwrap();
        let twice =
            |array: &dyn arrow::array::Array| arrow::compute::concat(&[array, array]).unwrap();
        ZoneMap {
            min: twice(&zones.min),
            max: twice(&zones.max),
            null_count: zones.null_count.iter().chain(&zones.null_count).collect(),
            exact: zones.exact.iter().chain(&zones.exact).collect(),
        }
    }

    fn encoded(row_groups: &[RowGroup]) -> Vec<u8> {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8, false),
        ]);
        let statistics = [
            zone_map(&Int32Array::from(vec![Some(3), None])),
            zone_map(&StringArray::from(vec!["x", "y"])),
        ];
        encode(&schema, row_groups, &statistics).unwrap()
    }

    fn refused(row_groups: &[RowGroup], reason: &str) {
        let error = parse(&encoded(row_groups), FORMAT_VERSION, OFFSET, "t").unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        let metadata = parse(&encoded(&row_groups()), FORMAT_VERSION, OFFSET, "t").unwrap();
        assert_eq!(metadata.row_groups(), row_groups());
        assert_eq!(metadata.num_rows(), 13);
        assert_eq!(
            metadata.row_group_statistics(0).null_count.values(),
            &[1, 1]
        );
        assert_eq!(metadata.schema().field(1).name(), "b");
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = encoded(&row_groups());
        for len in 0..bytes.len() {
            let error = parse(&bytes[..len], FORMAT_VERSION, OFFSET, "t").unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{len}: {error}");
        }
        let more = [bytes, vec![0]].concat();
        assert!(parse(&more, FORMAT_VERSION, OFFSET, "t").is_err());
    }

    /// The checksum is right: a hostile writer can do this.
    #[test]
    fn ranges_stay_in_the_file_for_any_changed_byte() {
        stay_in_the_file(encoded(&row_groups()), FORMAT_VERSION, OFFSET);
    }

    /// The footer of a file of version 1, rewritten as one of this version.
    #[test]
    fn ranges_of_version_1_stay_in_the_file_for_any_change() {
        let file = include_bytes!("../tests/golden/version-1/onpair.vectile");
        let arrow_footer = u32::from_le_bytes(*file[..file.len() - 6].last_chunk().unwrap());
        let tail = &file[file.len() - 10 - arrow_footer as usize..file.len() - 10];
        let pointer = crate::ipc::footer_pointer(tail, FilePosition::file("t")).unwrap();
        assert_eq!(pointer.version, 1);
        let footer = &file[pointer.offset as usize..][..pointer.len as usize];
        let metadata = parse(footer, 1, pointer.offset, "t").unwrap();
        assert_eq!(metadata.num_row_groups(), 2);
        for len in 0..footer.len() {
            parse(&footer[..len], 1, pointer.offset, "t").unwrap_err();
        }
        stay_in_the_file(footer.to_vec(), 1, pointer.offset);
    }

    fn stay_in_the_file(mut bytes: Vec<u8>, version: u32, offset: u64) {
        for index in 0..bytes.len() {
            let byte = bytes[index];
            for other in [0, 1, 0x7f, 0x80, 0xff, byte ^ 1, byte ^ 0x10] {
                bytes[index] = other;
                let Ok(metadata) = parse(&bytes, version, offset, "t") else {
                    continue;
                };
                let mut end = 0;
                for group in metadata.row_groups() {
                    assert!((1..=MAX_ROW_GROUP_ROWS).contains(&group.rows));
                    let blooms = |chunk: &Chunk| chunk.bloom.clone().map(|bloom| bloom.bytes);
                    let parts = group.columns.iter().flat_map(|chunk| {
                        let zones = Some(chunk.zones.clone());
                        [zones, blooms(chunk), Some(chunk.data.clone())]
                    });
                    let last = group.bytes.end..group.bytes.end;
                    for range in parts.flatten().chain([last]) {
                        assert!(end <= range.start && range.start <= range.end);
                        end = range.end;
                    }
                    assert!(end <= offset);
                }
            }
            bytes[index] = byte;
        }
    }

    #[test]
    fn row_groups_that_cannot_be_are_refused() {
        let with = |change: &dyn Fn(&mut Vec<RowGroup>)| {
            let mut row_groups = row_groups();
            change(&mut row_groups);
            row_groups
        };
        refused(&with(&|g| g[0].rows = 0), "row group 0: 0 rows");
        refused(
            &with(&|g| g[1].rows = MAX_ROW_GROUP_ROWS + 1),
            "row group 1: 16777217 rows",
        );
        refused(&with(&|g| g[0].rows = usize::MAX), "rows; 1 to 16777216");
        let beyond = "it has to be within";
        refused(&with(&|g| g[1].bytes.end = OFFSET + 1), beyond);
        for end in [OFFSET + 1, u64::MAX] {
            let far = with(&|g| {
                g[1].columns[1].data.end = end;
                g[1].bytes.end = end;
            });
            refused(&far, beyond);
        }
        // writers cannot produce overlapping ranges
        let schema = Schema::empty();
        for bytes in [0..448, 64..250] {
            let mut overlapping = row_groups();
            overlapping[0].bytes = bytes;
            assert!(encode(&schema, &overlapping, &[]).is_err());
        }
    }

    #[test]
    fn data_that_cannot_be_compressed_so_far_are_refused() {
        let mut groups = row_groups();
        groups[1].columns[0].data_bytes = u64::MAX;
        refused(&groups, "bytes of data compressed to 64");
    }

    #[test]
    fn parts_of_another_kind_are_refused() {
        let bytes = encoded(&row_groups());
        // the first row group: its rows, its distance from the start, the flags of its first column
        let entry = [10, 56, HAS_ZONES];
        let at = bytes.windows(3).position(|window| window == entry);
        let mut bytes = bytes.clone();
        bytes[at.unwrap() + 2] |= 0x40;
        let error = parse(&bytes, FORMAT_VERSION, OFFSET, "t").unwrap_err();
        assert!(error.to_string().contains("parts 0x41"), "{error}");
    }

    #[test]
    fn counts_beyond_the_bytes_reserve_no_memory() {
        let schema = schema::to_json(&Schema::empty()).unwrap();
        let footer = |names: u64, row_groups: u64| {
            let mut bytes = vec![FORMAT_VERSION as u8];
            put_text(&mut bytes, &schema);
            put_varint(&mut bytes, names);
            put_varint(&mut bytes, row_groups);
            bytes
        };
        assert_eq!(
            parse(&footer(0, 0), FORMAT_VERSION, OFFSET, "t")
                .unwrap()
                .num_rows(),
            0
        );
        for (names, row_groups) in [(u64::MAX, 0), (2, 0), (0, u64::MAX), (0, 1)] {
            let error = parse(&footer(names, row_groups), FORMAT_VERSION, OFFSET, "t").unwrap_err();
            assert!(error.to_string().contains("room for at most"), "{error}");
        }
    }

    /// Nulls of a type so wide that a row of them is half a gigabyte.
    #[test]
    fn statistics_of_wide_nulls_take_little_memory() {
        let wide = Schema::new(vec![
            Field::new("a", DataType::FixedSizeBinary(1 << 29), true),
            Field::new("b", DataType::FixedSizeBinary(1 << 29), true),
        ]);
        let nulls = zone_map(&arrow::array::new_null_array(&DataType::Int32, 13));
        let bytes = encode(&wide, &row_groups(), &[nulls.clone(), nulls]).unwrap();
        let metadata = parse(&bytes, FORMAT_VERSION, OFFSET, "t").unwrap();
        assert!(!metadata.row_group_statistics(1).has_bounds());
        assert!(metadata.memory_size() < 1 << 20);
    }

    #[test]
    fn other_versions_and_schemas_are_refused() {
        let mut bytes = encoded(&row_groups());
        bytes[0] = 3;
        let error = parse(&bytes, FORMAT_VERSION, OFFSET, "t").unwrap_err();
        assert!(error.to_string().contains("format version 3"), "{error}");
        for json in [
            "",
            "{",
            "[]",
            "{\"fields\": 3}",
            "{\"fields\":[],\"metadata\":{}} x",
        ] {
            let mut bytes = vec![FORMAT_VERSION as u8];
            put_text(&mut bytes, json.as_bytes());
            let error = parse(&bytes, FORMAT_VERSION, OFFSET, "t").unwrap_err();
            assert!(error.to_string().contains("schema"), "{error}");
        }
    }
}
