//! The Vectile footer, format version 1. Little-endian throughout; a "text" is a `u32` length and
//! that many bytes.
//!
//! ```text
//! u32    format version
//! text   logical schema, JSON as arrow-schema serialises it
//! u32    number of encoding names, and so many texts: the names that chunks refer to
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
//! Invariants that [`parse`] checks: row groups and, in each, `zones` and `data` of the columns
//! follow each other without overlap, start at multiples of 64, and end before the footer does
//! begin. So whatever the bytes say, all chunks together are no larger than the file, and the
//! parsed footer is no larger than a small multiple of its bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::new_empty_array;
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use vectile_encodings::ZoneMap;

use crate::cursor::Cursor;
use crate::error::{Error, Place, Result};
use crate::ipc::{ALIGNMENT, HEADER};
use crate::metadata::{Chunk, MAX_ROW_GROUP_ROWS, Metadata, RowGroup};
use crate::{FORMAT_VERSION, schema};

/// Parsed statistics are at most this large, unless they have a good part of that in the file.
const MAX_STATISTICS_BYTES: usize = 1 << 30;
const MAX_GROWTH: usize = 64;

const ROW_GROUP_BYTES: usize = 3 * size_of::<u64>();
const CHUNK_BYTES: usize = 5 * size_of::<u64>() + 3 * size_of::<u32>();

/// The footer of a file with these row groups and, per column, row-group statistics.
pub(crate) fn encode(
    schema: &Schema,
    row_groups: &[RowGroup],
    statistics: &[ZoneMap],
) -> Result<Vec<u8>> {
    let mut names = Names::default();
    let mut out = Vec::new();
    put_u32(&mut out, FORMAT_VERSION as usize)?;
    put_text(&mut out, &schema::to_json(schema)?)?;

    let mut groups = Vec::new();
    for row_group in row_groups {
        groups.extend((row_group.rows as u64).to_le_bytes());
        groups.extend(row_group.bytes.start.to_le_bytes());
        groups.extend(row_group.bytes.end.to_le_bytes());
        for chunk in &row_group.columns {
            put_range(&mut groups, &chunk.zones, chunk.zones_crc32);
            put_range(&mut groups, &chunk.data, chunk.data_crc32);
            put_u32(&mut groups, names.number(&chunk.encoding))?;
            groups.extend(chunk.arrow_bytes.to_le_bytes());
        }
    }

    put_u32(&mut out, names.in_order.len())?;
    for name in names.in_order {
        put_text(&mut out, name.as_bytes())?;
    }
    put_u32(&mut out, row_groups.len())?;
    out.append(&mut groups);
    if !row_groups.is_empty() {
        for (zones, field) in statistics.iter().zip(schema.fields()) {
            let bytes = zones
                .encode()
                .map_err(|error| Place::file("").column(field.name()).encoding(error))?;
            put_text(&mut out, &bytes)?;
        }
    }
    Ok(out)
}

/// The distinct names of encodings, numbered as they come.
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

fn put_u32(out: &mut Vec<u8>, value: usize) -> Result<()> {
    let value = u32::try_from(value)
        .map_err(|_| Error::InvalidArgument("the footer exceeds 4 GiB".into()))?;
    out.extend(value.to_le_bytes());
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) -> Result<()> {
    put_u32(out, text.len())?;
    out.extend_from_slice(text);
    Ok(())
}

fn put_range(out: &mut Vec<u8>, range: &Range<u64>, crc32: u32) {
    out.extend(range.start.to_le_bytes());
    out.extend((range.end - range.start).to_le_bytes());
    out.extend(crc32.to_le_bytes());
}

/// The footer from untrusted bytes, which begin at `offset` of the file.
pub(crate) fn parse(bytes: &[u8], offset: u64, file: &str) -> Result<Metadata> {
    let place = Place::file(file);
    let mut cursor = Cursor::new(bytes, place);
    let version = cursor.u32("format version")?;
    if version != FORMAT_VERSION {
        return Err(place.corrupt(format!("a footer of format version {version}")));
    }
    let schema = schema::parse(cursor.prefixed("schema")?, place)?;
    let names = encoding_names(&mut cursor, place)?;
    let row_groups = Groups {
        place,
        columns: schema.fields().len(),
        names: &names,
        free: HEADER.len() as u64..offset,
    }
    .parse(&mut cursor)?;
    let statistics = statistics(&mut cursor, &schema, row_groups.len(), place)?;
    if cursor.remaining() > 0 {
        return Err(place.corrupt(format!("{} bytes after the footer", cursor.remaining())));
    }
    Ok(Metadata {
        file: file.into(),
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

fn encoding_names(cursor: &mut Cursor<'_>, place: Place<'_>) -> Result<Vec<Arc<str>>> {
    let count = cursor.count(size_of::<u32>(), "encoding names")?;
    (0..count)
        .map(|_| {
            let name = cursor.prefixed("encoding name")?;
            let name = std::str::from_utf8(name)
                .map_err(|_| place.corrupt("the name of an encoding is not UTF-8"))?;
            Ok(name.into())
        })
        .collect()
}

/// Parses row groups front to back, taking what they occupy from the `free` bytes of the file.
struct Groups<'a> {
    place: Place<'a>,
    columns: usize,
    names: &'a [Arc<str>],
    free: Range<u64>,
}

impl Groups<'_> {
    fn parse(mut self, cursor: &mut Cursor<'_>) -> Result<Vec<RowGroup>> {
        let file = self.place;
        let entry_bytes = self
            .columns
            .saturating_mul(CHUNK_BYTES)
            .saturating_add(ROW_GROUP_BYTES);
        let count = cursor.count(entry_bytes, "row groups")?;
        let mut row_groups = Vec::with_capacity(count);
        for index in 0..count {
            self.place = file.row_group(index);
            row_groups.push(self.row_group(cursor)?);
        }
        Ok(row_groups)
    }

    fn row_group(&mut self, cursor: &mut Cursor<'_>) -> Result<RowGroup> {
        let rows = cursor.u64("row count")?;
        let rows = usize::try_from(rows)
            .ok()
            .filter(|rows| (1..=MAX_ROW_GROUP_ROWS).contains(rows))
            .ok_or_else(|| {
                let reason = format!("{rows} rows; 1 to {MAX_ROW_GROUP_ROWS} are allowed");
                self.place.corrupt(reason)
            })?;
        let bytes = cursor.u64("row group start")?..cursor.u64("row group end")?;
        if bytes.start > bytes.end {
            return Err(self.place.corrupt(format!("it occupies bytes {bytes:?}")));
        }
        self.take(bytes.clone(), "the row group")?;
        let mut group = Groups {
            place: self.place,
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
        let name = cursor.u32("encoding")? as usize;
        let encoding = self.names.get(name).ok_or_else(|| {
            self.place
                .corrupt(format!("no encoding has the number {name}"))
        })?;
        Ok(Chunk {
            zones,
            zones_crc32,
            data,
            data_crc32,
            encoding: Arc::clone(encoding),
            arrow_bytes: cursor.u64("size as Arrow arrays")?,
        })
    }

    fn part(&mut self, cursor: &mut Cursor<'_>, what: &str) -> Result<(Range<u64>, u32)> {
        let start = cursor.u64(what)?;
        let len = cursor.u64(what)?;
        let crc32 = cursor.u32(what)?;
        let end = start.checked_add(len).ok_or_else(|| {
            self.place
                .corrupt(format!("{what} of {len} bytes at {start}"))
        })?;
        self.take(start..end, what)?;
        Ok((start..end, crc32))
    }

    /// Takes `range` from the front of what is free.
    fn take(&mut self, range: Range<u64>, what: &str) -> Result<()> {
        let free = self.free.clone();
        if range.start < free.start
            || range.end > free.end
            || !range.start.is_multiple_of(ALIGNMENT)
        {
            return Err(self.place.corrupt(format!(
                "{what} at bytes {range:?}; it has to be within {free:?}, at a multiple of {ALIGNMENT}"
            )));
        }
        self.free.start = range.end;
        Ok(())
    }
}

fn statistics(
    cursor: &mut Cursor<'_>,
    schema: &SchemaRef,
    row_groups: usize,
    place: Place<'_>,
) -> Result<Vec<ZoneMap>> {
    let limit = MAX_STATISTICS_BYTES.max(cursor.remaining().saturating_mul(MAX_GROWTH));
    let mut total = 0;
    let mut of_column = |data_type: &DataType, column: Place<'_>| {
        if row_groups == 0 {
            let none = new_empty_array(data_type);
            return ZoneMap::of(&none).map_err(|error| column.encoding(error));
        }
        let bytes = Buffer::from(cursor.prefixed("statistics")?);
        let zones =
            ZoneMap::parse(bytes, data_type, row_groups).map_err(|error| column.encoding(error))?;
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
        .map(|field| of_column(field.data_type(), place.column(field.name())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use arrow::datatypes::Field;

    /// Where the footer of [`example`] begins in its file.
    const OFFSET: u64 = 1024;

    fn chunk(zones: Range<u64>, data: Range<u64>) -> Chunk {
        Chunk {
            zones,
            zones_crc32: 1,
            data,
            data_crc32: 2,
            encoding: "plain".into(),
            arrow_bytes: 40,
        }
    }

    fn row_groups() -> Vec<RowGroup> {
        vec![
            RowGroup {
                rows: 10,
                bytes: 64..448,
                columns: vec![chunk(128..140, 192..250), chunk(256..256, 320..448)],
            },
            RowGroup {
                rows: 3,
                bytes: 448..832,
                columns: vec![chunk(512..513, 576..640), chunk(640..700, 704..705)],
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
        let error = parse(&encoded(row_groups), OFFSET, "t").unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        let metadata = parse(&encoded(&row_groups()), OFFSET, "t").unwrap();
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
            let error = parse(&bytes[..len], OFFSET, "t").unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{len}: {error}");
        }
        let more = [bytes, vec![0]].concat();
        assert!(parse(&more, OFFSET, "t").is_err());
    }

    /// With a right checksum, that is: what a hostile writer could do.
    #[test]
    fn whatever_a_byte_becomes_ranges_stay_in_the_file() {
        let mut bytes = encoded(&row_groups());
        for index in 0..bytes.len() {
            let byte = bytes[index];
            for other in [0, 1, 0x7f, 0x80, 0xff, byte ^ 1, byte ^ 0x10] {
                bytes[index] = other;
                let Ok(metadata) = parse(&bytes, OFFSET, "t") else {
                    continue;
                };
                for group in metadata.row_groups() {
                    assert!((1..=MAX_ROW_GROUP_ROWS).contains(&group.rows));
                    for chunk in &group.columns {
                        for range in [&chunk.zones, &chunk.data] {
                            assert!(range.start <= range.end && range.end <= OFFSET);
                        }
                    }
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
        refused(
            &with(&|g| g[0].bytes = 0..448),
            "the row group at bytes 0..448",
        );
        refused(&with(&|g| g[1].bytes = 384..832), "within 448..1024");
        refused(
            &with(&|g| g[1].bytes.end = OFFSET + 1),
            "the row group at bytes",
        );
        refused(
            &with(&|g| g[1].columns[1].data.end = 833),
            "data at bytes 704..833",
        );
        refused(
            &with(&|g| g[0].columns[0].zones.start = 130),
            "multiple of 64",
        );
        let overlapping = with(&|g| g[0].columns[1] = g[0].columns[0].clone());
        refused(&overlapping, "within 250..448");
        let huge = with(&|g| g[0].columns[0].data = 192..u64::MAX);
        refused(&huge, "data at bytes");
    }

    #[test]
    fn counts_beyond_the_bytes_reserve_no_memory() {
        let schema = schema::to_json(&Schema::empty()).unwrap();
        let footer = |names: u32, row_groups: u32| {
            let mut bytes = FORMAT_VERSION.to_le_bytes().to_vec();
            put_text(&mut bytes, &schema).unwrap();
            bytes.extend(names.to_le_bytes());
            bytes.extend(row_groups.to_le_bytes());
            bytes
        };
        assert_eq!(parse(&footer(0, 0), OFFSET, "t").unwrap().num_rows(), 0);
        for (names, row_groups) in [(u32::MAX, 0), (2, 0), (0, u32::MAX), (0, 1)] {
            let error = parse(&footer(names, row_groups), OFFSET, "t").unwrap_err();
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
        let metadata = parse(&bytes, OFFSET, "t").unwrap();
        assert!(!metadata.row_group_statistics(1).has_bounds());
        assert!(metadata.memory_size() < 1 << 20);
    }

    #[test]
    fn other_versions_and_schemas_are_refused() {
        let mut bytes = encoded(&row_groups());
        bytes[0] = 2;
        let error = parse(&bytes, OFFSET, "t").unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
        for json in [
            "",
            "{",
            "[]",
            "{\"fields\": 3}",
            "{\"fields\":[],\"metadata\":{}} x",
        ] {
            let mut bytes = FORMAT_VERSION.to_le_bytes().to_vec();
            put_text(&mut bytes, json.as_bytes()).unwrap();
            let error = parse(&bytes, OFFSET, "t").unwrap_err();
            assert!(error.to_string().contains("schema"), "{error}");
        }
    }
}
