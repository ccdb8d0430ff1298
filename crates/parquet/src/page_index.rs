//! Zone maps of vectors, derived from a file's page index. Pages have other rows than vectors.
//!
//! ```text
//! column index   1: is a page all null; 2, 3: least and largest value of each page; 5: its nulls
//! offset index   1: pages, each with 3: its first row
//! ```
//!
//! An index that contradicts itself says nothing.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, UInt64Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::error::ArrowError;
use vectile_encodings::{VECTOR_LEN, ZoneMap};

use crate::error::{Fault, corrupt, ensure};
use crate::schema::TableColumn;
use crate::statistics::{StoredBounds, Zone, zone_map};
use crate::thrift::{Kind, Reader};

/// The pages of a column chunk.
#[derive(Debug, Default)]
struct PageIndex<'a> {
    /// The first row of each page.
    starts: Vec<u64>,
    all_null: Vec<bool>,
    min: Vec<&'a [u8]>,
    max: Vec<&'a [u8]>,
    /// Empty if the file has none.
    nulls: Vec<u64>,
}

/// The zone map of the vectors of `rows` rows of a flat column in its order, from the bytes of the column index and the
/// offset index.
///
/// # Errors
///
/// [`Fault::Corrupt`] if the indexes cannot be parsed or do not belong together.
pub(crate) fn of_vectors(
    column: &TableColumn,
    column_index: &[u8],
    offset_index: &[u8],
    rows: usize,
) -> Result<ZoneMap, Fault> {
    let index = PageIndex::parse(column_index, offset_index, rows as u64)?;
    let pages = index.zones(rows as u64);
    let map = zone_map(column, &pages);
    let vectors = (0..rows).step_by(VECTOR_LEN).map(|start| {
        let end = rows.min(start + VECTOR_LEN);
        let page_of = |row: usize| {
            let pages = index.starts.partition_point(|first| *first <= row as u64);
            pages.saturating_sub(1)
        };
        Vector {
            rows: (end - start) as u64,
            first: page_of(start),
            last: page_of(end - 1),
        }
    });
    let vectors: Vec<Vector> = vectors.collect();
    let nulls = vectors.iter().map(|vector| vector.nulls(&pages));
    Ok(ZoneMap {
        min: extremes(&map.min, &pages, &vectors, Ordering::Less)?,
        max: extremes(&map.max, &pages, &vectors, Ordering::Greater)?,
        null_count: nulls.collect::<UInt64Array>(),
        // the values may be in other vectors of the page
        exact: BooleanArray::from(vec![false; vectors.len()]),
    })
}

impl<'a> PageIndex<'a> {
    fn parse(column_index: &'a [u8], offset_index: &'a [u8], rows: u64) -> Result<Self, Fault> {
        let mut index = Self::default();
        Reader::new(column_index).fields(|reader, id, kind| {
            if kind != Kind::List {
                return Ok(false);
            }
            match id {
                1 => index.all_null = list(reader, Reader::bool_in_list)?,
                2 => index.min = list(reader, Reader::binary)?,
                3 => index.max = list(reader, Reader::binary)?,
                5 => {
                    let nulls = |reader: &mut Reader<'a>| {
                        // an impossible count is unknown
                        Ok(u64::try_from(reader.integer()?).unwrap_or(u64::MAX))
                    };
                    index.nulls = list(reader, nulls)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Reader::new(offset_index).fields(|reader, id, kind| {
            if (id, kind) != (1, Kind::List) {
                return Ok(false);
            }
            index.starts = list(reader, |reader| {
                let mut start = -1;
                reader.fields(|reader, id, kind| {
                    if (id, kind) != (3, Kind::Integer) {
                        return Ok(false);
                    }
                    start = reader.integer()?;
                    Ok(true)
                })?;
                u64::try_from(start).or_else(|_| corrupt(format!("a page at row {start}")))
            })?;
            Ok(true)
        })?;
        let pages = index.starts.len();
        let counts = [index.all_null.len(), index.min.len(), index.max.len()];
        let belongs =
            counts == [pages; 3] && (index.nulls.is_empty() || index.nulls.len() == pages);
        ensure(belongs, || format!("{pages} pages, with {counts:?} values"))?;
        let ascends = index.starts.is_sorted_by(|a, b| a < b)
            && index.starts.first() == Some(&0)
            && index.starts.last().is_some_and(|last| *last < rows);
        ensure(ascends, || format!("pages that do not tile {rows} rows"))?;
        Ok(index)
    }

    fn zones(&self, rows: u64) -> Vec<Zone<'a>> {
        let ends = self.starts.iter().skip(1).chain([&rows]);
        let pages = self.starts.iter().zip(ends).enumerate();
        let zones = pages.map(|(page, (start, end))| {
            let rows = end - start;
            let all_null = self.all_null.get(page) == Some(&true);
            let nulls = self.nulls.get(page).copied();
            let bounds = self.min.get(page).zip(self.max.get(page));
            Zone {
                rows,
                nulls: match all_null {
                    true => Some(rows),
                    // pages with values have a value that is not null
                    false => nulls.filter(|&nulls| nulls < rows),
                },
                bounds: bounds.filter(|_| !all_null).map(|(min, max)| StoredBounds {
                    min,
                    max,
                    is_exact: false,
                }),
            }
        });
        zones.collect()
    }
}

/// Reads the values of a list.
fn list<'a, T>(
    reader: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let (len, _) = reader.list()?;
    (0..len).map(|_| read(reader)).collect()
}

/// A vector, and the pages that overlap it.
struct Vector {
    rows: u64,
    first: usize,
    last: usize,
}

impl Vector {
    fn pages<'a, 'b>(&self, pages: &'a [Zone<'b>]) -> &'a [Zone<'b>] {
        pages.get(self.first..=self.last).unwrap_or_default()
    }

    /// Its null count, if its pages have no nulls, or nothing else.
    fn nulls(&self, pages: &[Zone<'_>]) -> Option<u64> {
        let pages = self.pages(pages);
        match () {
            () if pages.is_empty() => None,
            () if pages.iter().all(|page| page.nulls == Some(0)) => Some(0),
            () if pages.iter().all(is_null) => Some(self.rows),
            () => None,
        }
    }
}

fn is_null(page: &Zone<'_>) -> bool {
    page.nulls == Some(page.rows)
}

/// The minimum or maximum bound of the pages of each vector that have values; null if one is unknown.
fn extremes(
    bounds: &ArrayRef,
    pages: &[Zone<'_>],
    vectors: &[Vector],
    better_order: Ordering,
) -> Result<ArrayRef, ArrowError> {
    let compare = make_comparator(bounds, bounds, SortOptions::default())?;
    let extreme = |vector: &Vector| {
        let mut best = None;
        let of_vector = (vector.first..).zip(vector.pages(pages));
        for (page, zone) in of_vector {
            if is_null(zone) {
                continue;
            }
            if page >= bounds.len() || !bounds.is_valid(page) {
                return None;
            }
            best = match best {
                Some(best) if compare(page, best) != better_order => Some(best),
                _ => Some(page),
            };
        }
        best.map(|page| page as u32)
    };
    let indices: UInt32Array = vectors.iter().map(extreme).collect();
    take(bounds, &indices, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column index of pages that are null or have one value, and their null counts.
    fn column_index(values: &[Option<u8>], nulls: &[u8]) -> Vec<u8> {
        let len = (values.len() as u8) << 4;
        let mut bytes = vec![0x19, len | 2];
        bytes.extend(values.iter().map(|value| u8::from(value.is_none())));
        for _ in 0..2 {
            bytes.extend([0x19, len | 8]);
            for value in values {
                match value {
                    Some(value) => bytes.extend([1, *value]),
                    None => bytes.push(0),
                }
            }
        }
        if !nulls.is_empty() {
            bytes.extend([0x29, (nulls.len() as u8) << 4 | 6]);
            bytes.extend(nulls.iter().map(|nulls| nulls * 2));
        }
        bytes.push(0);
        bytes
    }

    fn offset_index(starts: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x19, (starts.len() as u8) << 4 | 12];
        for start in starts {
            bytes.extend([0x36, start * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn pages_have_their_rows_nulls_and_bounds() {
        let (columns, offsets) = (
            column_index(&[Some(b'a'), None, Some(b'c')], &[3, 9, 20]),
            offset_index(&[0, 10, 19]),
        );
        let index = PageIndex::parse(&columns, &offsets, 30).unwrap();
        let zones = index.zones(30);
        let known: Vec<_> = zones.iter().map(|zone| (zone.rows, zone.nulls)).collect();
        // a page with values has more rows than nulls
        assert_eq!(known, [(10, Some(3)), (9, Some(9)), (11, None)]);
        assert!(zones[1].bounds.is_none());
        assert_eq!(zones[2].bounds.unwrap().max, b"c");
        let uncounted = column_index(&[Some(b'a'), None, Some(b'c')], &[]);
        let index = PageIndex::parse(&uncounted, &offsets, 30).unwrap();
        assert_eq!(index.zones(30)[0].nulls, None);
    }

    #[test]
    fn indexes_that_contradict_themselves_are_refused() {
        let columns = column_index(&[Some(b'a'), Some(b'b')], &[]);
        assert!(PageIndex::parse(&columns, &offset_index(&[0, 10]), 30).is_ok());
        for starts in [
            &[0][..],
            &[0, 10, 20],
            &[0, 30],
            &[1, 10],
            &[0, 0],
            &[10, 5],
            &[],
        ] {
            let offsets = offset_index(starts);
            assert!(
                PageIndex::parse(&columns, &offsets, 30).is_err(),
                "{starts:?}"
            );
        }
        let nulls = column_index(&[Some(b'a'), Some(b'b')], &[1]);
        assert!(PageIndex::parse(&nulls, &offset_index(&[0, 10]), 30).is_err());
    }
}
