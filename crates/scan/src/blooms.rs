//! Prunes row groups by Bloom filters: decides if a row group can have a matching row.

use arrow::array::ArrayRef;

use crate::container::{Container, ValueFilter};
use crate::error::Result;
use crate::node::{Leaf, Node};

/// The Bloom filters read for one row group, by column.
pub(crate) struct Blooms {
    pub(crate) row_group: usize,
    pub(crate) filters: Vec<(usize, Box<dyn ValueFilter>)>,
}

/// The columns whose Bloom filters may rule out that any row passes all of `nodes`, ascending.
pub(crate) fn columns_of<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    container: &dyn Container,
    row_group: usize,
) -> Vec<usize> {
    let has = |column| container.has_bloom_filter(row_group, column);
    let mut columns = Vec::new();
    for node in nodes.filter(|node| may_be_ruled_out(node, &has)) {
        node.visit_leaf_columns(&mut |column| columns.push(column));
    }
    columns.retain(|column| has(*column));
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn may_be_ruled_out(node: &Node, has: &impl Fn(usize) -> bool) -> bool {
    match node {
        Node::Leaf(leaf) => values(leaf).is_some() && has(leaf.column),
        Node::And(children) => children.iter().any(|child| may_be_ruled_out(child, has)),
        Node::Or(children) => children.iter().all(|child| may_be_ruled_out(child, has)),
        Node::Constant(_) | Node::PerValue(_) | Node::Rows(_) => false,
    }
}

/// The values of which a row must have one in the leaf's column; `None` if the leaf is no such
/// test.
fn values(leaf: &Leaf) -> Option<&ArrayRef> {
    leaf.predicate.points().filter(|_| leaf.path.is_empty())
}

impl Blooms {
    /// Returns true if no row passes all of `nodes`.
    pub(crate) fn rule_out<'a>(
        &self,
        mut nodes: impl Iterator<Item = &'a Node>,
        container: &dyn Container,
    ) -> Result<bool> {
        nodes.try_fold(false, |ruled_out, node| {
            Ok(ruled_out || !self.may_pass(node, container)?)
        })
    }

    /// Returns true if a row may pass `node`.
    fn may_pass(&self, node: &Node, container: &dyn Container) -> Result<bool> {
        Ok(match node {
            Node::Leaf(leaf) => {
                let mut filters = self.filters.iter();
                let filter = filters.find(|(column, _)| *column == leaf.column);
                match (filter, values(leaf)) {
                    (Some((column, filter)), Some(values)) => {
                        let passes = filter.may_contain(values);
                        passes.map_err(|error| container.error(self.row_group, *column, error))?
                    }
                    _ => true,
                }
            }
            Node::And(children) => {
                for child in children {
                    if !self.may_pass(child, container)? {
                        return Ok(false);
                    }
                }
                true
            }
            Node::Or(children) => {
                for child in children {
                    if self.may_pass(child, container)? {
                        return Ok(true);
                    }
                }
                false
            }
            Node::Constant(_) | Node::PerValue(_) | Node::Rows(_) => true,
        })
    }
}
