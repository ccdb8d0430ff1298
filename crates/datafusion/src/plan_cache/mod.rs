//! Plan cache of a session: physical plans of queries, reused when the queries run again.
//!
//! ```text
//!  query ── known, same session, same files? ── no ──▶ plan ──▶ rules ──┬──▶ last rules ──▶ runs
//!                          │                                            └──▶ copy, cached
//!                          └── yes ──▶ copy of the cached plan ──▶ last rules ──▶ runs
//! ```
//!
//! A cached plan never runs; copies of it do. The cache stores the plan as it is before the rules that bind operators
//! to one run (dynamic filters) or to a moment. Those rules are applied to each copy.
//!
//! ```text
//!  query        cache key: the query and the files that it reads
//!  environment  other session state that plans depend on
//!  copying      decides which plans can be copied
//!  subqueries   copies whose subqueries have results of their own
//! ```

mod copying;
mod environment;
mod query;
mod subqueries;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use object_store::ObjectMeta;

use self::copying::can_be_copied;
use self::environment::PlanningEnvironment;
use self::query::Query;
use self::subqueries::with_own_subqueries;
use crate::fresh::fresh;
use crate::options::VectileOptions;
use crate::pushdown::Rule;

/// Maximum number of plans in a session's cache.
const MOST_PLANS: usize = 64;

/// Maximum number of files of a cached plan, whose metadata it holds.
const MOST_FILES: usize = 4096;

/// Returns a physical plan for `plan`, which is not optimized: from the session's plan cache, or newly planned as by
/// [`SessionState::create_physical_plan`]. Run it once, and call this again for the next run: the scans of a plan that
/// has run return no rows.
///
/// A session in which Vectile is registered caches plans of queries that read Vectile and ORC files only, unless they
/// call functions such as `now()` and `random()`. A cached plan is used as long as the session's settings, functions
/// and rules, the tables and all of their files are the same. If a session has rules that depend on anything else, such
/// as the user of a request, set [`VectileOptions::keep_plans`] to false.
///
/// ```
/// use datafusion::physical_plan::collect;
/// # use datafusion::prelude::SessionContext;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// # let ctx = SessionContext::new();
/// # vectile_datafusion::register(&ctx)?;
/// let (state, query) = ctx.sql("SELECT 1").await?.into_parts();
/// let plan = vectile_datafusion::physical_plan(&state, &query).await?;
/// let rows = collect(plan, state.task_ctx()).await?;
/// # assert_eq!(rows[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns errors of planning.
pub async fn physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plans = state.config().get_extension::<PlanCache>();
    let keeps = VectileOptions::of(state.config_options()).keep_plans;
    let Some((plans, query)) = plans.filter(|_| keeps).zip(Query::of(plan)) else {
        return state.create_physical_plan(plan).await;
    };
    // If listing files fails, planning reports the error.
    let files = query.files(state).await.unwrap_or_default();
    let listed = !files.is_empty() && files.len() <= MOST_FILES;
    let Some(environment) = plans.environment(state).filter(|_| listed) else {
        return state.create_physical_plan(plan).await;
    };
    if let Some(cached) = plans.get(&environment, &query, &files)
        && let Some(copy) = with_own_subqueries(&cached)?
    {
        return finished(fresh(&copy)?, state);
    }
    let planning = async {
        let plan = state.create_physical_plan(plan).await?;
        Ok::<_, DataFusionError>((plan, UNFINISHED.with(RefCell::take)))
    };
    let (plan, unfinished) = UNFINISHED.scope(RefCell::default(), planning).await?;
    // Planning has listed the files too, between these two times.
    if let Some(unfinished) = unfinished
        && can_be_copied(&unfinished)
        && query.files(state).await.is_ok_and(|after| after == files)
        && let Ok(Some(plan)) = with_own_subqueries(&unfinished)
        && let Ok(plan) = fresh(&plan)
    {
        plans.put(&environment, CachedPlan { query, files, plan });
    }
    Ok(plan)
}

tokio::task_local! {
    /// The plan being made, in the state in which it is cached.
    static UNFINISHED: RefCell<Option<Arc<dyn ExecutionPlan>>>;
}

/// Records the plan to be cached. Rules behind this one are applied whenever a plan is used.
#[derive(Debug)]
struct RecordPlan;

const RECORD_PLAN: &str = "record_plan";

impl PhysicalOptimizerRule for RecordPlan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Fails outside of `physical_plan`, where the plan is not cached.
        let _ = UNFINISHED.try_with(|unfinished| unfinished.replace(Some(Arc::clone(&plan))));
        Ok(plan)
    }

    fn name(&self) -> &str {
        RECORD_PLAN
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Inserts the rule that records plans, before dynamic filters are pushed down. If there is no such rule, no plan is
/// cached.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    rules.retain(|rule| rule.name() != RECORD_PLAN);
    let dynamic = FilterPushdown::new_post_optimization();
    let is_dynamic = |rule: &Rule| rule.name() == dynamic.name();
    if let Some(index) = rules.iter().rposition(is_dynamic) {
        rules.insert(index, Arc::new(RecordPlan));
    }
}

/// Applies the rules behind [`RecordPlan`] to `plan`.
fn finished(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let rules = state.physical_optimizers().iter();
    let mut last = rules.skip_while(|rule| rule.name() != RECORD_PLAN).skip(1);
    last.try_fold(plan, |plan, rule| rule.optimize_with_context(plan, state))
}

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

struct CachedPlan {
    query: Query,
    files: Vec<ObjectMeta>,
    /// Only copies of it run.
    plan: Arc<dyn ExecutionPlan>,
}

impl PlanCache {
    pub(crate) fn new(outlook: Outlook) -> Self {
        Self {
            outlook,
            plans: Mutex::default(),
        }
    }

    /// The session's environment; `None` if it cannot be compared. Clears the cache if the environment has changed.
    fn environment(&self, state: &SessionState) -> Option<Arc<PlanningEnvironment>> {
        let outlook = (self.outlook)();
        let mut plans = self.plans();
        let known = plans.environment.as_ref();
        if !known.is_some_and(|known| known.is_of(state, outlook)) {
            plans.cached.clear();
            plans.environment = PlanningEnvironment::of(state, outlook).map(Arc::new);
        }
        plans.environment.clone()
    }

    /// The cached plan of `query`, if it has read exactly `files`.
    fn get(
        &self,
        environment: &Arc<PlanningEnvironment>,
        query: &Query,
        files: &[ObjectMeta],
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let mut plans = self.plans();
        if !plans.are_for(environment) {
            return None;
        }
        let index = plans
            .cached
            .iter()
            .position(|cached| &cached.query == query)?;
        let cached = plans.cached.remove(index)?;
        if cached.files != files {
            return None;
        }
        let plan = Arc::clone(&cached.plan);
        plans.cached.push_back(cached);
        Some(plan)
    }

    fn put(&self, environment: &Arc<PlanningEnvironment>, new: CachedPlan) {
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
}
