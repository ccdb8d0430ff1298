//! Zone maps of vectors, derived from those of index groups, which have other rows.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, UInt64Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::error::ArrowError;
use vectile_encodings::{VECTOR_LEN, ZoneMap};

/// The zone map of the vectors of `rows` rows. Each `stride` rows are an index group with an entry in `groups`.
pub(crate) fn of_groups(
    groups: &ZoneMap,
    stride: usize,
    rows: usize,
) -> Result<ZoneMap, ArrowError> {
    let vectors: Vec<Vector> = (0..rows)
        .step_by(VECTOR_LEN)
        .map(|start| {
            let end = rows.min(start + VECTOR_LEN);
            Vector {
                rows: end - start,
                first: start / stride,
                last: (end - 1) / stride,
            }
        })
        .collect();
    let nulls = vectors
        .iter()
        .map(|vector| vector.nulls(groups, stride, rows));
    Ok(ZoneMap {
        min: extremes(&groups.min, &vectors, Ordering::Less)?,
        max: extremes(&groups.max, &vectors, Ordering::Greater)?,
        null_count: nulls.collect::<UInt64Array>(),
        // the values may be in other vectors of the index group
        exact: BooleanArray::from(vec![false; vectors.len()]),
    })
}

/// A vector, and the index groups that overlap it.
struct Vector {
    rows: usize,
    first: usize,
    last: usize,
}

impl Vector {
    /// Its null count, if its index groups have no nulls, or nothing else.
    fn nulls(&self, groups: &ZoneMap, stride: usize, rows: usize) -> Option<u64> {
        let mut known = (self.first..=self.last).map(|group| {
            let of_group = stride.min(rows - group * stride) as u64;
            let is_known = group < groups.len() && groups.null_count.is_valid(group);
            match is_known.then(|| groups.null_count.value(group))? {
                0 => Some(false),
                nulls => (nulls == of_group).then_some(true),
            }
        });
        let first = known.next()??;
        known
            .all(|group| group == Some(first))
            .then_some(if first { self.rows as u64 } else { 0 })
    }
}

/// The minimum or maximum bound of the index groups of each vector; null if one is unknown.
fn extremes(
    bounds: &ArrayRef,
    vectors: &[Vector],
    better_order: Ordering,
) -> Result<ArrayRef, ArrowError> {
    let compare = make_comparator(bounds, bounds, SortOptions::default())?;
    let is_known = |group: usize| group < bounds.len() && bounds.is_valid(group);
    let extreme = |vector: &Vector| {
        let mut groups = vector.first..=vector.last;
        let first = groups.next().filter(|&first| is_known(first))?;
        groups.try_fold(first, |best, group| {
            let better = is_known(group).then(|| compare(group, best) == better_order)?;
            Some(if better { group } else { best })
        })
    };
    let indices = vectors
        .iter()
        .map(|vector| extreme(vector).map(|group| group as u32));
    take(bounds, &indices.collect::<UInt32Array>(), None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn vectors_have_the_bounds_of_their_index_groups() {
        let groups = ZoneMap {
            min: Arc::new(Int32Array::from(vec![Some(5), Some(1), None])),
            max: Arc::new(Int32Array::from(vec![Some(9), Some(3), None])),
            null_count: UInt64Array::from(vec![0, 0, 200]),
            exact: BooleanArray::from(vec![true; 3]),
        };
        // 1500, 1500 and 200 rows: vectors of groups 0; 0 and 1; 1; 2 and the end of 1
        let vectors = of_groups(&groups, 1500, 3200).unwrap();
        let min = vectors.min.as_primitive::<Int32Type>();
        assert!(min.iter().eq([Some(5), Some(1), None, None]));
        let max = vectors.max.as_primitive::<Int32Type>();
        assert!(max.iter().eq([Some(9), Some(9), None, None]));
        assert_eq!(
            vectors.null_count,
            UInt64Array::from(vec![Some(0), Some(0), None, Some(128)])
        );
        // fewer entries than index groups
        let vectors = of_groups(&groups.slice(0, 1), 1500, 3200).unwrap();
        assert!(
            vectors
                .min
                .as_primitive::<Int32Type>()
                .iter()
                .eq([Some(5), None, None, None])
        );
        assert_eq!(vectors.null_count.null_count(), 3);
    }
}
