//! The plans of a session, and what they depend on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use futures::FutureExt;
use object_store::ObjectMeta;

use super::environment::PlanningEnvironment;
use super::query::Query;
use super::sql_query::SqlQuery;

/// Maximum number of plans in a session's cache.
const MOST_PLANS: usize = 64;

/// A number that changes when the rules may plan the same query in the same session differently.
pub(crate) type Outlook = Box<dyn Fn() -> u64 + Send + Sync>;

/// The plan cache of a session, an extension of its configuration.
pub(crate) struct PlanCache {
    outlook: Outlook,
    plans: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    /// The environment of all cached plans.
    environment: Option<Arc<PlanningEnvironment>>,
    /// Least recently used first.
    cached: VecDeque<CachedPlan>,
}

/// A plan and what it depends on, apart from the environment. Copies of this share all parts.
#[derive(Clone)]
pub(super) struct CachedPlan {
    /// The query as SQL; `None`: the caller had a logical plan only, or SQL that does not determine it.
    pub(super) sql: Option<Arc<SqlQuery>>,
    pub(super) query: Arc<Query>,
    /// The optimized logical plan, which does not depend on files and rows.
    pub(super) optimized: Arc<LogicalPlan>,
    /// `None` if files changed while it was planned, or rows of a table in memory have changed since.
    pub(super) physical: Option<PhysicalPlan>,
}

/// A physical plan, which later rows or files need anew.
#[derive(Clone)]
pub(super) struct PhysicalPlan {
    pub(super) files: Arc<[ObjectMeta]>,
    /// Only copies of it run.
    pub(super) plan: Arc<dyn ExecutionPlan>,
}

impl PlanCache {
    pub(crate) fn new(outlook: Outlook) -> Self {
        Self {
            outlook,
            plans: Mutex::default(),
        }
    }

    /// The session's environment; `None` if it cannot be compared. Clears the cache if the environment has changed.
    pub(super) fn environment(&self, state: &SessionState) -> Option<Arc<PlanningEnvironment>> {
        let outlook = (self.outlook)();
        let (environment, outdated) = {
            let mut plans = self.plans();
            let known = plans.environment.as_ref();
            if !known.is_some_and(|known| known.is_of(state, outlook)) {
                plans.cached.clear();
                plans.environment = PlanningEnvironment::of(state, outlook).map(Arc::new);
            }
            (plans.environment.clone(), plans.outdated())
        };
        // without the lock, as catalogs may plan queries, too
        let is_gone = |sql: &Arc<SqlQuery>| sql.is_current(state).now_or_never() != Some(true);
        let gone: Vec<_> = outdated.into_iter().filter(is_gone).collect();
        if !gone.is_empty() {
            let is_kept = |sql: &Arc<SqlQuery>| !gone.iter().any(|gone| Arc::ptr_eq(gone, sql));
            let mut plans = self.plans();
            plans
                .cached
                .retain(|cached| cached.sql.as_ref().is_none_or(is_kept));
        }
        environment
    }

    /// Drops the plans of queries of tables in memory, with the rows that they hold.
    pub(super) fn forget_tables_in_memory(&self) {
        let mut plans = self.plans();
        plans.cached.retain(|of| !of.query.is_of_memory());
    }

    /// The cached plan of a query in SQL. Its tables and files may have changed.
    pub(super) fn of_statement(
        &self,
        environment: &Arc<PlanningEnvironment>,
        statement: &Statement,
    ) -> Option<CachedPlan> {
        let is_of = |sql: &Arc<SqlQuery>| sql.is_of(statement);
        let is_known = |cached: &CachedPlan| cached.sql.as_ref().is_some_and(is_of);
        self.plans().used(environment, is_known)
    }

    /// The cached plan of `query`. Its files may have changed.
    pub(super) fn of_query(
        &self,
        environment: &Arc<PlanningEnvironment>,
        query: &Query,
    ) -> Option<CachedPlan> {
        let is_known = |cached: &CachedPlan| cached.query.as_ref() == query;
        self.plans().used(environment, is_known)
    }

    /// Adds a plan, which replaces the one of the same query.
    pub(super) fn put(&self, environment: &Arc<PlanningEnvironment>, new: CachedPlan) {
        let mut plans = self.plans();
        if plans.are_for(environment) {
            plans.cached.retain(|cached| cached.query != new.query);
            plans.cached.push_back(new);
            if plans.cached.len() > MOST_PLANS {
                plans.cached.pop_front();
            }
        }
    }

    fn plans(&self) -> MutexGuard<'_, CacheState> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn are_for(&self, environment: &Arc<PlanningEnvironment>) -> bool {
        let known = self.environment.as_ref();
        known.is_some_and(|known| Arc::ptr_eq(known, environment))
    }

    /// Drops the rows that tables in memory had before they changed, which plans hold for nothing. Returns the queries
    /// that need other physical plans. Their logical plans hold the tables, which may be gone.
    fn outdated(&mut self) -> Vec<Arc<SqlQuery>> {
        let mut outdated = Vec::new();
        self.cached.retain_mut(|cached| {
            let physical = cached.physical.take();
            let query = &cached.query;
            cached.physical = physical.filter(|of| query.is_of_current_rows(&of.files));
            if cached.physical.is_none() {
                outdated.extend(cached.sql.clone());
            }
            cached.physical.is_some() || cached.sql.is_some()
        });
        outdated
    }

    /// The plan that `is_known`, which is now the most recently used one.
    fn used(
        &mut self,
        environment: &Arc<PlanningEnvironment>,
        is_known: impl Fn(&CachedPlan) -> bool,
    ) -> Option<CachedPlan> {
        if !self.are_for(environment) {
            return None;
        }
        let index = self.cached.iter().rposition(is_known)?;
        let cached = self.cached.remove(index)?;
        self.cached.push_back(cached.clone());
        Some(cached)
    }
}
