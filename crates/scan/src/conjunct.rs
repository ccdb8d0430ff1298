//! A conjunct of the filters: the columns it needs, its cost, and its measured selectivity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::UInt64Array;
use arrow::datatypes::Schema;
use vectile_encodings::Selection;

use crate::container::Container;
use crate::error::Result;
use crate::evaluate::{Columns, narrow};
use crate::node::{Node, Stage};
use crate::zones::{Verdict, Zones};

/// Rows on which a part of a dynamic filter is measured before it may be suspended.
const TRIAL_ROWS: u64 = 1 << 15;

/// The purpose of a conjunct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Every row of the scan must satisfy it.
    Exact,
    /// Evaluated on rows while that pays.
    Optional,
    /// For pruning by zone maps only; an operator above evaluates it.
    Prune,
}

/// A conjunct.
pub(crate) struct Conjunct {
    pub(crate) node: Node,
    /// Indices of the columns that evaluating it on rows needs, ascending.
    pub(crate) columns: Vec<usize>,
    pub(crate) role: Role,
    cost: u32,
    /// The verdicts of the row groups' zone maps.
    groups: Arc<Verdict>,
    tally: Arc<Tally>,
}

/// A row group, and the conjuncts worth evaluating on its rows, in order.
pub(crate) struct RowGroupFilters {
    pub(crate) row_group: usize,
    pub(crate) conjuncts: Vec<Arc<Conjunct>>,
    /// Generation of the filters that the conjuncts come from.
    pub(crate) generation: u64,
}

/// Rows that a conjunct was evaluated on, and those that it kept.
#[derive(Default)]
struct Tally {
    seen: AtomicU64,
    kept: AtomicU64,
}

impl Tally {
    fn add(&self, seen: usize, kept: usize) {
        self.seen.fetch_add(seen as u64, Ordering::Relaxed);
        self.kept.fetch_add(kept as u64, Ordering::Relaxed);
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// The share of rows kept; 0.5 until something is measured.
    fn kept(&self) -> f64 {
        match self.seen() {
            0 => 0.5,
            seen => self.kept.load(Ordering::Relaxed) as f64 / seen as f64,
        }
    }
}

impl Conjunct {
    pub(crate) fn try_new(node: Node, container: &dyn Container, role: Role) -> Result<Self> {
        let rows =
            (0..container.num_row_groups()).map(|row_group| container.rows(row_group) as u64);
        let zones = Zones {
            rows: &UInt64Array::from_iter_values(rows),
            maps: |column| container.row_group_zones(column),
        };
        let groups = zones.test(&node)?;
        Ok(Self::with(
            node,
            container,
            role,
            Arc::new(groups),
            Arc::default(),
        ))
    }

    fn with(
        node: Node,
        container: &dyn Container,
        role: Role,
        groups: Arc<Verdict>,
        tally: Arc<Tally>,
    ) -> Self {
        let mut columns = Vec::new();
        if role != Role::Prune {
            node.visit_columns(&mut |column| columns.push(column));
        }
        columns.sort_unstable();
        columns.dedup();
        Self {
            cost: cost(&node, container.schema()),
            node,
            columns,
            role,
            groups,
            tally,
        }
    }

    /// The part of this conjunct that the row group's zone maps do not decide.
    pub(crate) fn in_row_group(&self, row_group: usize, container: &dyn Container) -> Result<Self> {
        // zone maps of this row group alone: there may be thousands of row groups, and each is
        // evaluated
        let mut own = HashMap::new();
        self.node.visit_columns(&mut |column| {
            let map = container.row_group_zones(column);
            if let Some(map) = map.filter(|map| map.null_count.len() == container.num_row_groups())
            {
                let of_row_group = || map.slice(row_group, 1);
                own.entry(column).or_insert_with(of_row_group);
            }
        });
        let zones = Zones {
            rows: &UInt64Array::from(vec![container.rows(row_group) as u64]),
            maps: |column| own.get(&column),
        };
        let node = zones.open_part(&self.node, 0)?;
        let (groups, tally) = (Arc::clone(&self.groups), Arc::clone(&self.tally));
        Ok(Self::with(node, container, self.role, groups, tally))
    }

    /// Returns true if no row of the row group can match.
    pub(crate) fn excludes(&self, row_group: usize) -> bool {
        !self.groups.may.value(row_group)
    }

    /// Returns true if every row of the row group matches.
    pub(crate) fn covers(&self, row_group: usize) -> bool {
        self.groups.all.value(row_group)
    }

    /// Keeps the rows of `selection` that this selects.
    pub(crate) fn narrow(&self, columns: &Columns, selection: &mut Selection) -> Result<()> {
        if self.role == Role::Prune {
            return Ok(());
        }
        let seen = selection.count();
        narrow(&self.node, columns, selection)?;
        self.tally.add(seen, selection.count());
        Ok(())
    }

    /// Returns true if the conjunct must be evaluated, or has not been shown to cost more than it
    /// saves.
    pub(crate) fn pays(&self) -> bool {
        if self.role != Role::Optional || self.tally.seen() < TRIAL_ROWS {
            return true;
        }
        self.tally.kept()
            < match self.node.stage() {
                Stage::Encoded => 0.9,
                Stage::PerValue | Stage::Decoded => 0.6,
            }
    }

    /// Cost per row dropped.
    pub(crate) fn rank(&self) -> f64 {
        f64::from(self.cost) / (1.0 - self.tally.kept()).max(0.001)
    }
}

/// Estimated cost per row, relative to a comparison of integers.
fn cost(node: &Node, schema: &Schema) -> u32 {
    match node {
        Node::Constant(_) => 0,
        Node::Leaf(leaf) => match schema.fields().get(leaf.column) {
            Some(field) if field.data_type().primitive_width().is_some() => 1,
            _ => 2,
        },
        Node::PerValue(_) => 8,
        Node::Rows(test) => 10 + test.columns().len() as u32,
        Node::And(children) | Node::Or(children) => {
            1 + children
                .iter()
                .map(|child| cost(child, schema))
                .sum::<u32>()
        }
    }
}
