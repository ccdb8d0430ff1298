//! Evaluates filters on zone maps: which zones (row groups, vectors) can have a matching row, and which have only
//! matching rows.

use std::cmp::Ordering;
use std::ops::Bound;

use arrow::array::{Array, ArrayRef, BooleanArray, Datum, Scalar, UInt64Array, make_comparator};
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::compute::kernels::cmp;
use vectile_encodings::{Predicate, ZoneMap};

use crate::error::{Error, Result};
use crate::node::{Leaf, Node};

/// The zones that may match and those that match in full: one bit per zone.
pub(crate) struct Verdict {
    /// A row may match; where unset, none does.
    pub(crate) may: BooleanBuffer,
    /// Every row matches.
    pub(crate) all: BooleanBuffer,
}

impl Verdict {
    fn constant(zones: usize, value: bool) -> Self {
        let bits = match value {
            true => BooleanBuffer::new_set(zones),
            false => BooleanBuffer::new_unset(zones),
        };
        Self {
            may: bits.clone(),
            all: bits,
        }
    }

    fn unknown(zones: usize) -> Self {
        Self {
            may: BooleanBuffer::new_set(zones),
            all: BooleanBuffer::new_unset(zones),
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            may: &self.may & &other.may,
            all: &self.all & &other.all,
        }
    }

    fn or(self, other: &Self) -> Self {
        Self {
            may: &self.may | &other.may,
            all: &self.all | &other.all,
        }
    }
}

/// The zones that a filter is evaluated on.
pub(crate) struct Zones<'a, Z> {
    /// Rows of each zone.
    pub(crate) rows: &'a UInt64Array,
    /// The zone map of a column, one entry per zone.
    pub(crate) maps: Z,
}

impl<'a, Z: Fn(usize) -> Option<&'a ZoneMap>> Zones<'a, Z> {
    /// Evaluates `node`.
    pub(crate) fn test(&self, node: &Node) -> Result<Verdict> {
        let zones = self.rows.len();
        Ok(match node {
            Node::Constant(value) => Verdict::constant(zones, *value),
            Node::PerValue(_) | Node::Rows(_) => Verdict::unknown(zones),
            Node::Leaf(leaf) => self.test_leaf(leaf)?,
            Node::And(children) => {
                let start = Verdict::constant(zones, true);
                children.iter().try_fold(start, |verdict, child| {
                    Ok::<_, Error>(verdict.and(&self.test(child)?))
                })?
            }
            Node::Or(children) => {
                let start = Verdict::constant(zones, false);
                children.iter().try_fold(start, |verdict, child| {
                    Ok::<_, Error>(verdict.or(&self.test(child)?))
                })?
            }
        })
    }

    /// `node` without the leaves that zone maps decide for all rows of a zone.
    pub(crate) fn open_part(&self, node: &Node, zone: usize) -> Result<Node> {
        Ok(match node {
            Node::Leaf(leaf) => {
                let verdict = self.test_leaf(leaf)?;
                match (verdict.may.value(zone), verdict.all.value(zone)) {
                    (false, _) => Node::Constant(false),
                    (true, true) => Node::Constant(true),
                    (true, false) => node.clone(),
                }
            }
            Node::And(children) => Node::all(self.open_parts(children, zone)?)?,
            Node::Or(children) => Node::any(self.open_parts(children, zone)?)?,
            Node::Constant(_) | Node::PerValue(_) | Node::Rows(_) => node.clone(),
        })
    }

    fn open_parts(&self, nodes: &[Node], zone: usize) -> Result<Vec<Node>> {
        nodes
            .iter()
            .map(|node| self.open_part(node, zone))
            .collect()
    }

    fn test_leaf(&self, leaf: &Leaf) -> Result<Verdict> {
        let zones = self.rows.len();
        let Some(map) = (self.maps)(leaf.column) else {
            return Ok(Verdict::unknown(zones));
        };
        let field;
        let map = match leaf.path.is_empty() {
            true => map,
            false => match map.field(&leaf.path) {
                Some(next_field) => {
                    field = next_field;
                    &field
                }
                None => return Ok(Verdict::unknown(zones)),
            },
        };
        if map.null_count.len() != zones {
            return Ok(Verdict::unknown(zones));
        }
        let nulls = Nulls::of(map, self.rows);
        Ok(match &leaf.predicate {
            Predicate::IsNull => Verdict {
                may: !&nulls.none,
                all: nulls.all,
            },
            Predicate::IsNotNull => Verdict {
                may: !&nulls.all,
                all: nulls.none,
            },
            Predicate::Range { .. } | Predicate::In { .. } if !map.has_bounds() => {
                Verdict::unknown(zones)
            }
            Predicate::Range { low, high, negated } => {
                Position::of_range(map, low, high)?.verdict(&nulls, *negated)
            }
            Predicate::In { values, negated } => {
                Position::of_values(map, values)?.verdict(&nulls, *negated)
            }
        })
    }
}

/// The zones without nulls, and those with nulls only.
struct Nulls {
    none: BooleanBuffer,
    all: BooleanBuffer,
}

impl Nulls {
    fn of(map: &ZoneMap, rows: &UInt64Array) -> Self {
        let count = |i: usize| map.null_count.is_valid(i).then(|| map.null_count.value(i));
        Self {
            none: BooleanBuffer::collect_bool(rows.len(), |i| count(i) == Some(0)),
            all: BooleanBuffer::collect_bool(rows.len(), |i| count(i) == Some(rows.value(i))),
        }
    }
}

/// The position of a zone's values relative to a set, as its bounds show. Bounds may be wider than the values (strings
/// are truncated): both facts hold for the values nevertheless.
struct Position {
    /// Every value is in the set.
    inside: BooleanBuffer,
    /// No value is in the set.
    outside: BooleanBuffer,
}

impl Position {
    fn of_range(map: &ZoneMap, low: &Bound<ArrayRef>, high: &Bound<ArrayRef>) -> Result<Self> {
        let zones = map.null_count.len();
        let mut inside = BooleanBuffer::new_set(zones);
        let mut outside = BooleanBuffer::new_unset(zones);
        match low {
            Bound::Included(low) => {
                inside = &inside & &holds(cmp::gt_eq, &map.min, low)?;
                outside = &outside | &holds(cmp::lt, &map.max, low)?;
            }
            Bound::Excluded(low) => {
                inside = &inside & &holds(cmp::gt, &map.min, low)?;
                outside = &outside | &holds(cmp::lt_eq, &map.max, low)?;
            }
            Bound::Unbounded => {}
        }
        match high {
            Bound::Included(high) => {
                inside = &inside & &holds(cmp::lt_eq, &map.max, high)?;
                outside = &outside | &holds(cmp::gt, &map.min, high)?;
            }
            Bound::Excluded(high) => {
                inside = &inside & &holds(cmp::lt, &map.max, high)?;
                outside = &outside | &holds(cmp::gt_eq, &map.min, high)?;
            }
            Bound::Unbounded => {}
        }
        Ok(Self { inside, outside })
    }

    /// The position relative to `values`, which ascend.
    fn of_values(map: &ZoneMap, values: &ArrayRef) -> Result<Self> {
        let against_min = make_comparator(values, &map.min, SortOptions::default())?;
        let against_max = make_comparator(values, &map.max, SortOptions::default())?;
        let min_against_max = make_comparator(&map.min, &map.max, SortOptions::default())?;
        let zones = map.null_count.len();
        let mut inside = vec![false; zones];
        let mut outside = vec![false; zones];
        for zone in 0..zones {
            if map.min.is_null(zone) || map.max.is_null(zone) {
                continue;
            }
            let first = partition_point(values.len(), |i| against_min(i, zone).is_lt());
            let hit = first < values.len() && against_max(first, zone) != Ordering::Greater;
            outside[zone] = !hit;
            inside[zone] = hit && min_against_max(zone, zone).is_eq();
        }
        Ok(Self {
            inside: inside.into(),
            outside: outside.into(),
        })
    }

    fn verdict(self, nulls: &Nulls, negated: bool) -> Verdict {
        let (matching, excluded) = match negated {
            false => (self.inside, self.outside),
            true => (self.outside, self.inside),
        };
        Verdict {
            may: &!&excluded & &!&nulls.all,
            all: &matching & &nulls.none,
        }
    }
}

/// True where `compare` of a bound and the constant is; false where the bound is unknown.
fn holds(
    compare: fn(&dyn Datum, &dyn Datum) -> Result<BooleanArray, arrow::error::ArrowError>,
    bounds: &ArrayRef,
    constant: &ArrayRef,
) -> Result<BooleanBuffer> {
    let result = compare(bounds, &Scalar::new(constant))?;
    Ok(match result.nulls() {
        Some(nulls) => result.values() & nulls.inner(),
        None => result.values().clone(),
    })
}

/// The first of `0..len` for which `before` is false; `before` is true up to some point.
fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        match before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringArray};

    use super::*;

    fn constant(value: i32) -> ArrayRef {
        Arc::new(Int32Array::from(vec![value]))
    }

    /// Zones: 0..=9, 10 throughout, 20..=29 with nulls, nulls only.
    fn zone() -> (ZoneMap, UInt64Array) {
        let zone = ZoneMap {
            min: Arc::new(Int32Array::from(vec![Some(0), Some(10), Some(20), None])),
            max: Arc::new(Int32Array::from(vec![Some(9), Some(10), Some(29), None])),
            null_count: UInt64Array::from(vec![0, 0, 3, 5]),
            exact: BooleanArray::from(vec![true; 4]),
        };
        (zone, UInt64Array::from(vec![10, 10, 10, 5]))
    }

    fn test(predicate: Predicate) -> (Vec<bool>, Vec<bool>) {
        let (zone, rows) = zone();
        let zones = Zones {
            rows: &rows,
            maps: |_| Some(&zone),
        };
        let verdict = zones.test(&Node::leaf(0, predicate)).unwrap();
        (verdict.may.iter().collect(), verdict.all.iter().collect())
    }

    #[test]
    fn ranges() {
        let at_least_10 = |negated| Predicate::Range {
            low: Bound::Included(constant(10)),
            high: Bound::Unbounded,
            negated,
        };
        assert_eq!(
            test(at_least_10(false)),
            (
                vec![false, true, true, false],
                vec![false, true, false, false]
            )
        );
        // The nulls of the third zone match neither way.
        assert_eq!(
            test(at_least_10(true)),
            (
                vec![true, false, false, false],
                vec![true, false, false, false]
            )
        );
        let open = Predicate::Range {
            low: Bound::Excluded(constant(9)),
            high: Bound::Excluded(constant(20)),
            negated: false,
        };
        assert_eq!(
            test(open),
            (
                vec![false, true, false, false],
                vec![false, true, false, false]
            )
        );
    }

    #[test]
    fn memberships() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![-1, 10, 25]));
        assert_eq!(
            test(Predicate::In {
                values: Arc::clone(&values),
                negated: false
            }),
            (
                vec![false, true, true, false],
                vec![false, true, false, false]
            )
        );
        assert_eq!(
            test(Predicate::In {
                values,
                negated: true
            }),
            (
                vec![true, false, true, false],
                vec![true, false, false, false]
            )
        );
    }

    #[test]
    fn null_tests() {
        assert_eq!(
            test(Predicate::IsNull),
            (
                vec![false, false, true, true],
                vec![false, false, false, true]
            )
        );
        assert_eq!(
            test(Predicate::IsNotNull),
            (
                vec![true, true, true, false],
                vec![true, true, false, false]
            )
        );
    }

    #[test]
    fn unknown_bounds_prune_nothing() {
        let zone = ZoneMap {
            min: Arc::new(StringArray::from(vec![Some("a")])),
            max: Arc::new(StringArray::from(vec![None::<&str>])),
            null_count: UInt64Array::from(vec![0]),
            exact: BooleanArray::from(vec![false]),
        };
        let rows = UInt64Array::from(vec![4]);
        let zones = Zones {
            rows: &rows,
            maps: |_| Some(&zone),
        };
        let value: ArrayRef = Arc::new(StringArray::from(vec!["zzz"]));
        for predicate in [
            Predicate::In {
                values: Arc::clone(&value),
                negated: false,
            },
            Predicate::Range {
                low: Bound::Included(value),
                high: Bound::Unbounded,
                negated: false,
            },
        ] {
            let verdict = zones.test(&Node::leaf(0, predicate)).unwrap();
            assert!(verdict.may.value(0));
            assert!(!verdict.all.value(0));
        }
    }
}
