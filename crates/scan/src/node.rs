//! Filters in the form that a scan evaluates.
//!
//! A conjunct is a tree in negation normal form. Its leaves, from cheap to dear:
//!
//! - [`Node::Leaf`]: a range, membership or null test of one column, answered on the encoded form;
//! - [`Node::PerValue`]: any other test of one column, evaluated once per distinct value if the
//!   encoding has distinct values, else on the decoded survivors;
//! - [`Node::Rows`]: a test of several columns, evaluated on the decoded survivors.
//!
//! A node selects the rows for which its expression is *true*.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{concat, filter, sort};
use arrow::error::ArrowError;
use vectile_encodings::Predicate;

use crate::test::Test;

/// A filter over the columns of one container, by their index in its schema.
///
/// A node selects the rows for which its expression is *true*.
#[derive(Clone)]
pub enum Node {
    /// Selects every row, or none.
    Constant(bool),
    /// Answered on the encoded form of one column.
    Leaf(Leaf),
    /// A test of one column, evaluated once per distinct value if possible.
    PerValue(Arc<Test>),
    /// A test of several columns.
    Rows(Arc<Test>),
    /// Selects the rows that all children select.
    And(Vec<Node>),
    /// Selects the rows that any child selects.
    Or(Vec<Node>),
}

/// A predicate of one column.
#[derive(Clone)]
pub struct Leaf {
    /// Index of the column in the container's schema.
    pub column: usize,
    /// Field indices down nested structs: a field, a field within it, and so on. Empty: the column itself.
    pub path: Vec<usize>,
    /// The predicate on its values.
    pub predicate: Predicate,
}

impl Leaf {
    /// Returns true if both are about the same column and path.
    fn is_of_same(&self, other: &Self) -> bool {
        (self.column, &self.path) == (other.column, &other.path)
    }
}

/// How a scan evaluates a conjunct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// On the encoded form of the columns.
    Encoded,
    /// Once per distinct value of a column where it has any.
    PerValue,
    /// On decoded rows.
    Decoded,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoded => "encoded",
            Self::PerValue => "per_value",
            Self::Decoded => "decoded",
        })
    }
}

impl Node {
    /// The conjuncts of the conjunction of `nodes`.
    pub(crate) fn conjunction(nodes: Vec<Node>) -> Result<Vec<Self>, ArrowError> {
        Ok(match Self::all(nodes)? {
            Self::Constant(true) => Vec::new(),
            Self::And(parts) => parts,
            part => vec![part],
        })
    }

    /// The most expensive stage of any part of this node.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Constant(_) | Self::Leaf(_) => Stage::Encoded,
            Self::PerValue(_) => Stage::PerValue,
            Self::Rows(_) => Stage::Decoded,
            Self::And(children) | Self::Or(children) => children
                .iter()
                .map(Self::stage)
                .max()
                .unwrap_or(Stage::Encoded),
        }
    }

    /// Calls `visit` with each column that this needs; columns may repeat.
    pub(crate) fn visit_columns(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Self::Constant(_) => {}
            Self::Leaf(leaf) => visit(leaf.column),
            Self::PerValue(test) | Self::Rows(test) => {
                test.columns().iter().copied().for_each(visit)
            }
            Self::And(children) | Self::Or(children) => {
                children.iter().for_each(|child| child.visit_columns(visit));
            }
        }
    }

    /// Calls `visit` with the column of each leaf; columns may repeat.
    pub(crate) fn visit_leaf_columns(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Self::Leaf(leaf) => visit(leaf.column),
            Self::And(children) | Self::Or(children) => {
                children
                    .iter()
                    .for_each(|child| child.visit_leaf_columns(visit));
            }
            Self::Constant(_) | Self::PerValue(_) | Self::Rows(_) => {}
        }
    }

    /// The conjunction of `nodes`, with the ranges of a column merged.
    ///
    /// # Errors
    ///
    /// If predicates of one column have constants of different types.
    pub fn all(nodes: impl IntoIterator<Item = Node>) -> Result<Self, ArrowError> {
        let mut parts: Vec<Node> = Vec::new();
        let mut rest: Vec<Node> = nodes.into_iter().collect();
        rest.reverse();
        while let Some(node) = rest.pop() {
            match node {
                Self::Constant(true) => {}
                Self::Constant(false) => return Ok(Self::Constant(false)),
                Self::And(children) => rest.extend(children.into_iter().rev()),
                Self::Leaf(leaf) => {
                    if !push_conjunct(&mut parts, leaf)? {
                        return Ok(Self::Constant(false));
                    }
                }
                other => parts.push(other),
            }
        }
        Ok(match parts.len() {
            0 => Self::Constant(true),
            1 => parts.remove(0),
            _ => Self::And(parts),
        })
    }

    /// The disjunction of `nodes`, with the points of a column merged to one membership test.
    ///
    /// # Errors
    ///
    /// As [`all`](Self::all).
    pub fn any(nodes: impl IntoIterator<Item = Node>) -> Result<Self, ArrowError> {
        let mut parts: Vec<Node> = Vec::new();
        let mut points = Vec::new();
        let mut rest: Vec<Node> = nodes.into_iter().collect();
        rest.reverse();
        while let Some(node) = rest.pop() {
            match node {
                Self::Constant(false) => {}
                Self::Constant(true) => return Ok(Self::Constant(true)),
                Self::Or(children) => rest.extend(children.into_iter().rev()),
                Self::Leaf(leaf) => push_disjunct(&mut parts, &mut points, leaf),
                other => parts.push(other),
            }
        }
        for Points { part, values } in points {
            if values.len() > 1
                && let Some(Self::Leaf(leaf)) = parts.get_mut(part)
            {
                let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
                leaf.predicate = Predicate::In {
                    values: sort(&concat(&values)?, None)?,
                    negated: false,
                };
            }
        }
        Ok(match parts.len() {
            0 => Self::Constant(false),
            1 => parts.remove(0),
            _ => Self::Or(parts),
        })
    }

    /// A predicate of one column.
    pub fn leaf(column: usize, predicate: Predicate) -> Self {
        Self::field(column, Vec::new(), predicate)
    }

    /// A predicate of a field of a struct, see [`Leaf::path`]. The field of a null struct is null.
    pub fn field(column: usize, path: Vec<usize>, predicate: Predicate) -> Self {
        Self::Leaf(Leaf {
            column,
            path,
            predicate,
        })
    }

    /// A test of decoded values.
    pub fn test(test: Test) -> Self {
        match test.columns().len() {
            1 => Self::PerValue(Arc::new(test)),
            _ => Self::Rows(Arc::new(test)),
        }
    }
}

/// Adds `leaf`, joining `a >= 1` and `a < 5` into one range, and `a IN (3, 7)` and `a < 5` into
/// one membership test. False if no value passes both.
fn push_conjunct(parts: &mut Vec<Node>, leaf: Leaf) -> Result<bool, ArrowError> {
    for part in parts.iter_mut() {
        let Node::Leaf(other) = part else {
            continue;
        };
        if !other.is_of_same(&leaf) {
            continue;
        }
        if let Some(joined) = join_ranges(&other.predicate, &leaf.predicate) {
            other.predicate = joined;
            return Ok(true);
        }
        if let Some(values) = common_values(&other.predicate, &leaf.predicate)? {
            let possible = !values.is_empty();
            other.predicate = Predicate::In {
                values,
                negated: false,
            };
            return Ok(possible);
        }
    }
    parts.push(Node::Leaf(leaf));
    Ok(true)
}

/// The values of a membership test that pass another predicate too; `None` unless `a` or `b` is a membership test.
fn common_values(a: &Predicate, b: &Predicate) -> Result<Option<ArrayRef>, ArrowError> {
    let (values, other) = match (a, b) {
        (
            Predicate::In {
                values,
                negated: false,
            },
            other,
        ) => (values, other),
        (
            other,
            Predicate::In {
                values,
                negated: false,
            },
        ) => (values, other),
        _ => return Ok(None),
    };
    let passed = other.evaluate(values);
    let passed = passed.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
    Ok(Some(filter(values, &passed)?))
}

/// The range between a lower and an upper bound; `None` unless `a` and `b` are such bounds.
fn join_ranges(a: &Predicate, b: &Predicate) -> Option<Predicate> {
    let (
        Predicate::Range {
            low: low_a,
            high: high_a,
            negated: false,
        },
        Predicate::Range {
            low: low_b,
            high: high_b,
            negated: false,
        },
    ) = (a, b)
    else {
        return None;
    };
    let (low, high) = match (low_a, high_a, low_b, high_b) {
        (low, Bound::Unbounded, Bound::Unbounded, high) => (low, high),
        (Bound::Unbounded, high, low, Bound::Unbounded) => (low, high),
        _ => return None,
    };
    Some(Predicate::Range {
        low: low.clone(),
        high: high.clone(),
        negated: false,
    })
}

/// A leaf of a disjunction that passes a set of values.
struct Points {
    part: usize,
    /// Its values and those of further leaves of the same column, sorted once all are known.
    values: Vec<ArrayRef>,
}

/// Adds `leaf`, merging `a = 1` and `a IN (2, 3)` into one membership test.
fn push_disjunct(parts: &mut Vec<Node>, points: &mut Vec<Points>, leaf: Leaf) {
    if let Some(values) = leaf.predicate.points() {
        let is_of_same = |known: &&mut Points| match parts.get(known.part) {
            Some(Node::Leaf(other)) => other.is_of_same(&leaf),
            _ => false,
        };
        let values = Arc::clone(values);
        if let Some(known) = points.iter_mut().find(is_of_same) {
            known.values.push(values);
            return;
        }
        points.push(Points {
            part: parts.len(),
            values: vec![values],
        });
    }
    parts.push(Node::Leaf(leaf));
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;

    fn constant(value: i32) -> ArrayRef {
        Arc::new(Int32Array::from(vec![value]))
    }

    fn at_least(value: i32) -> Node {
        let (low, high) = (Bound::Included(constant(value)), Bound::Unbounded);
        Node::leaf(
            0,
            Predicate::Range {
                low,
                high,
                negated: false,
            },
        )
    }

    fn below(value: i32) -> Node {
        let (low, high) = (Bound::Unbounded, Bound::Excluded(constant(value)));
        Node::leaf(
            0,
            Predicate::Range {
                low,
                high,
                negated: false,
            },
        )
    }

    #[test]
    fn bounds_of_a_column_join_to_one_range() {
        let node = Node::all([at_least(1), Node::Constant(true), below(5)]).unwrap();
        let Node::Leaf(leaf) = node else {
            panic!("not a leaf");
        };
        let Predicate::Range {
            low,
            high,
            negated: false,
        } = leaf.predicate
        else {
            panic!("not a range");
        };
        assert_eq!(low, Bound::Included(constant(1)));
        assert_eq!(high, Bound::Excluded(constant(5)));
        assert!(matches!(
            Node::all([at_least(1), at_least(2)]).unwrap(),
            Node::And(_)
        ));
        assert!(matches!(Node::all([]).unwrap(), Node::Constant(true)));
        let never = Node::all([at_least(1), Node::Constant(false)]).unwrap();
        assert!(matches!(never, Node::Constant(false)));
    }

    #[test]
    fn bounds_thin_out_membership_tests() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 3, 7]));
        let among = || {
            Node::leaf(
                0,
                Predicate::In {
                    values: Arc::clone(&values),
                    negated: false,
                },
            )
        };
        for node in [
            Node::all([among(), at_least(3)]),
            Node::all([at_least(3), among()]),
        ] {
            let Node::Leaf(Leaf {
                predicate:
                    Predicate::In {
                        values,
                        negated: false,
                    },
                ..
            }) = node.unwrap()
            else {
                panic!("not a membership test");
            };
            assert_eq!(
                &values,
                &(Arc::new(Int32Array::from(vec![3, 7])) as ArrayRef)
            );
        }
        assert!(matches!(
            Node::all([among(), below(0)]).unwrap(),
            Node::Constant(false)
        ));
    }

    #[test]
    fn points_of_a_column_join_to_one_membership_test() {
        let point = |value| Node::leaf(0, Predicate::equal(constant(value)));
        let either = Node::any([point(7), point(3)]).unwrap();
        let node = Node::any([either, point(5), Node::Constant(false)]).unwrap();
        let Node::Leaf(Leaf {
            predicate:
                Predicate::In {
                    values,
                    negated: false,
                },
            ..
        }) = node
        else {
            panic!("not a membership test");
        };
        assert_eq!(
            &values,
            &(Arc::new(Int32Array::from(vec![3, 5, 7])) as ArrayRef)
        );
        assert!(matches!(
            Node::any([point(1), below(0)]).unwrap(),
            Node::Or(_)
        ));
        assert!(matches!(Node::any([]).unwrap(), Node::Constant(false)));
    }
}
