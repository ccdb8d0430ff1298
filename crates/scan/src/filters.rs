//! The filters of a scan, in the order in which they are evaluated.
//!
//! Every row that a scan returns passes its exact filters. A dynamic filter (of a hash join's build
//! side, of a top-k's threshold) may let rows through, so each of its parts is kept only while it
//! pays: one that keeps most of the rows it sees is suspended, until the filter changes. That is what
//! makes it safe to evaluate hash-table lookups here.
//!
//! The order is by cost over the share of rows dropped, as measured so far.

use std::sync::Arc;

use crate::conjunct::{Conjunct, Role, RowGroupFilters};
use crate::container::Container;
use crate::error::Result;
use crate::node::Node;

/// A filter that changes while a scan runs, as the operator that consumes its rows learns more.
pub trait DynamicFilter: Send + Sync {
    /// The present conditions on rows; empty if they cannot be expressed. Rows that do not pass may be returned
    /// nevertheless.
    fn current(&self) -> Vec<Node>;

    /// Returns true if the filter has changed since the last call.
    fn has_changed(&mut self) -> bool;

    /// Returns true if it may still change.
    fn can_change(&self) -> bool;
}

/// A dynamic filter, and its parts at the last refresh.
struct Dynamic {
    filter: Box<dyn DynamicFilter>,
    parts: Vec<Arc<Conjunct>>,
}

impl Dynamic {
    fn new(filter: Box<dyn DynamicFilter>, container: &dyn Container) -> Self {
        let parts = Vec::new();
        let mut dynamic = Self { filter, parts };
        dynamic.renew(container);
        dynamic
    }

    /// Ignores conditions that are not valid filters of this container.
    fn renew(&mut self, container: &dyn Container) {
        let parts = conjuncts(self.filter.current(), container, Role::Optional);
        self.parts = parts.unwrap_or_default();
    }
}

fn conjuncts(
    nodes: Vec<Node>,
    container: &dyn Container,
    role: Role,
) -> Result<Vec<Arc<Conjunct>>> {
    let parts = Node::conjunction(nodes)?.into_iter();
    parts
        .map(|node| Conjunct::try_new(node, container, role).map(Arc::new))
        .collect()
}

/// All filters of a scan of one container.
pub struct Filters {
    container: Arc<dyn Container>,
    exact: Vec<Arc<Conjunct>>,
    dynamic: Vec<Dynamic>,
    generation: u64,
}

impl Filters {
    /// All rows.
    pub(crate) fn none(container: Arc<dyn Container>) -> Self {
        Self {
            container,
            exact: Vec::new(),
            dynamic: Vec::new(),
            generation: 0,
        }
    }

    /// Filters for the rows that pass all of `nodes`. `role` is [`Role::Exact`], or [`Role::Prune`] if they are
    /// evaluated elsewhere.
    ///
    /// # Errors
    ///
    /// If constants are not of their column's type.
    pub fn try_new(
        container: Arc<dyn Container>,
        nodes: Vec<Node>,
        role: Role,
        dynamic: Vec<Box<dyn DynamicFilter>>,
    ) -> Result<Self> {
        let dynamic = dynamic.into_iter();
        Ok(Self {
            exact: conjuncts(nodes, container.as_ref(), role)?,
            dynamic: dynamic
                .map(|filter| Dynamic::new(filter, container.as_ref()))
                .collect(),
            generation: 0,
            container,
        })
    }

    /// Takes over the changes of dynamic filters. Returns true if there were any.
    pub fn refresh(&mut self) -> bool {
        let mut changed = false;
        for dynamic in &mut self.dynamic {
            if dynamic.filter.has_changed() {
                dynamic.renew(self.container.as_ref());
                changed = true;
            }
        }
        self.generation += u64::from(changed);
        changed
    }

    /// Returns true if a dynamic filter was incomplete when the scan began.
    pub fn can_change(&self) -> bool {
        let mut dynamic = self.dynamic.iter();
        dynamic.any(|dynamic| dynamic.filter.can_change())
    }

    /// Returns true if an exact filter rules the row group out.
    pub fn exclude(&self, row_group: usize) -> bool {
        self.exact
            .iter()
            .any(|conjunct| conjunct.excludes(row_group))
    }

    /// Returns true if there are exact filters, and they select every row of the row group.
    pub fn cover(&self, row_group: usize) -> bool {
        !self.exact.is_empty() && self.exact.iter().all(|conjunct| conjunct.covers(row_group))
    }

    /// Returns true if exact filters are to be evaluated on rows of the row group.
    pub(crate) fn is_open(&self, row_group: usize) -> bool {
        let mut exact = self.exact.iter();
        exact.any(|conjunct| conjunct.role == Role::Exact && !conjunct.covers(row_group))
    }

    /// Returns true if a dynamic filter rules the row group out.
    pub fn exclude_now(&self, row_group: usize) -> bool {
        self.dynamic().any(|conjunct| conjunct.excludes(row_group))
    }

    /// Returns true if columns of the filters have Bloom filters in the row group. It must be quick: there may be
    /// thousands of row groups.
    pub(crate) fn have_blooms(&self, row_group: usize) -> bool {
        let mut any = false;
        for conjunct in self.exact.iter().chain(self.dynamic()) {
            let mut ask = |column| any |= self.container.has_bloom_filter(row_group, column);
            conjunct.node.visit_leaf_columns(&mut ask);
        }
        any
    }

    fn dynamic(&self) -> impl Iterator<Item = &Arc<Conjunct>> {
        self.dynamic.iter().flat_map(|dynamic| &dynamic.parts)
    }

    /// Counts the changes of dynamic filters.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if there is nothing to evaluate, now or later.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.dynamic.is_empty()
    }

    /// The conjuncts worth evaluating on the rows of a row group, in order.
    pub(crate) fn for_row_group(&self, row_group: usize) -> Result<RowGroupFilters> {
        let all = self.exact.iter().chain(self.dynamic());
        let open = all.filter(|conjunct| !conjunct.covers(row_group) && conjunct.pays());
        let mut conjuncts: Vec<Arc<Conjunct>> = open
            .map(|conjunct| {
                let open = conjunct.in_row_group(row_group, self.container.as_ref());
                open.map(Arc::new)
            })
            .collect::<Result<_>>()?;
        conjuncts.sort_by(|a, b| a.rank().total_cmp(&b.rank()).then(a.role.cmp(&b.role)));
        Ok(RowGroupFilters {
            row_group,
            conjuncts,
            generation: self.generation,
        })
    }
}
