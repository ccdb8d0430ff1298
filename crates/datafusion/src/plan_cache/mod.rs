//! Physical plans that a session keeps, so that a query which runs again is not planned again.
//!
//! ```text
//!  query ── known, same session, same files? ── no ──▶ plan ──▶ rules ──┬──▶ last rules ──▶ runs
//!                          │                                            └──▶ copy, kept
//!                          └── yes ──▶ copy of the kept plan ──▶ last rules ──▶ runs
//! ```
//!
//! A kept plan never runs, only copies of it do. It is kept as it is before the first of the rules that tie operators
//! to each other for a run (dynamic filters) or to a moment. These rules are applied to each copy.
//!
//! ```text
//!  query        what a query is known by, and the files that it reads
//!  environment  what plans depend on beside that
//!  copying      which plans can be copied
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
use self::environment::Environment;
use self::query::Query;
use self::subqueries::with_own_subqueries;
use crate::fresh::fresh;
use crate::options::VectileOptions;
use crate::pushdown::Rule;

/// The most plans that a session keeps.
const MOST_PLANS: usize = 64;

/// The most files that a kept plan reads: it holds what is known of each.
const MOST_FILES: usize = 4096;

/// The physical plan of `plan`, which is not optimized: one that the session has kept, or else a new one. It is that of
/// [`SessionState::create_physical_plan`]. As with that, run it once, and ask again for the next run: the scans of a
/// plan that has run have no rows.
///
/// A session that knows Vectile keeps the plans of queries that read Vectile and ORC files only, unless they call
/// functions such as `now()` and `random()`. A kept plan is used as long as the session's settings, functions and
/// rules, the tables and all of their files are the same. If a session has rules that go by something else, such as the user of a
/// request, set [`VectileOptions::keep_plans`] to false.
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
/// Those of planning.
pub async fn physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plans = state.config().get_extension::<KeptPlans>();
    let keeps = VectileOptions::of(state.config_options()).keep_plans;
    let Some((plans, query)) = plans.filter(|_| keeps).zip(Query::of(plan)) else {
        return state.create_physical_plan(plan).await;
    };
    // If files cannot be listed, planning says why.
    let files = query.files(state).await.unwrap_or_default();
    let listed = !files.is_empty() && files.len() <= MOST_FILES;
    let Some(environment) = plans.environment(state).filter(|_| listed) else {
        return state.create_physical_plan(plan).await;
    };
    if let Some(kept) = plans.get(&environment, &query, &files)
        && let Some(copy) = with_own_subqueries(&kept)?
    {
        return finished(fresh(&copy)?, state);
    }
    let planning = async {
        let plan = state.create_physical_plan(plan).await?;
        Ok::<_, DataFusionError>((plan, UNFINISHED.with(RefCell::take)))
    };
    let (plan, unfinished) = UNFINISHED.scope(RefCell::default(), planning).await?;
    // Planning lists the files too, between these two times.
    if let Some(unfinished) = unfinished
        && can_be_copied(&unfinished)
        && query.files(state).await.is_ok_and(|after| after == files)
        && let Ok(Some(plan)) = with_own_subqueries(&unfinished)
        && let Ok(plan) = fresh(&plan)
    {
        plans.put(&environment, Kept { query, files, plan });
    }
    Ok(plan)
}

tokio::task_local! {
    /// The plan that is being made, as it is to be kept.
    static UNFINISHED: RefCell<Option<Arc<dyn ExecutionPlan>>>;
}

/// Notes the plan that is to be kept. The rules behind it are applied whenever a plan is used.
#[derive(Debug)]
struct NotePlan;

const NOTE_PLAN: &str = "note_plan";

impl PhysicalOptimizerRule for NotePlan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Elsewhere, nobody asks for it.
        let _ = UNFINISHED.try_with(|unfinished| unfinished.replace(Some(Arc::clone(&plan))));
        Ok(plan)
    }

    fn name(&self) -> &str {
        NOTE_PLAN
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Has plans be noted before dynamic filters are pushed down. Without that rule, none is kept.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    rules.retain(|rule| rule.name() != NOTE_PLAN);
    let dynamic = FilterPushdown::new_post_optimization();
    let is_dynamic = |rule: &Rule| rule.name() == dynamic.name();
    if let Some(place) = rules.iter().rposition(is_dynamic) {
        rules.insert(place, Arc::new(NotePlan));
    }
}

/// `plan` with the rules behind [`NotePlan`] applied.
fn finished(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let rules = state.physical_optimizers().iter();
    let mut last = rules.skip_while(|rule| rule.name() != NOTE_PLAN).skip(1);
    last.try_fold(plan, |plan, rule| rule.optimize_with_context(plan, state))
}

/// A number that changes when the rules may decide otherwise about the same query in the same session.
pub(crate) type Outlook = Box<dyn Fn() -> u64 + Send + Sync>;

/// The plans that a session keeps: an extension of its configuration.
pub(crate) struct KeptPlans {
    outlook: Outlook,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    /// What all of them were planned in.
    environment: Option<Arc<Environment>>,
    /// Those used last are at the end.
    kept: VecDeque<Kept>,
}

struct Kept {
    query: Query,
    files: Vec<ObjectMeta>,
    /// Never runs.
    plan: Arc<dyn ExecutionPlan>,
}

impl KeptPlans {
    pub(crate) fn new(outlook: Outlook) -> Self {
        Self {
            outlook,
            plans: Mutex::default(),
        }
    }

    /// That of a session. If it is not the one that plans were kept for, they are forgotten.
    fn environment(&self, state: &SessionState) -> Option<Arc<Environment>> {
        let outlook = (self.outlook)();
        let mut plans = self.plans();
        let known = plans.environment.as_ref();
        if !known.is_some_and(|known| known.is_of(state, outlook)) {
            plans.kept.clear();
            plans.environment = Environment::of(state, outlook).map(Arc::new);
        }
        plans.environment.clone()
    }

    /// The plan of `query`, if it has read these files.
    fn get(
        &self,
        environment: &Arc<Environment>,
        query: &Query,
        files: &[ObjectMeta],
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let mut plans = self.plans();
        if !plans.are_for(environment) {
            return None;
        }
        let place = plans.kept.iter().position(|kept| &kept.query == query)?;
        let kept = plans.kept.remove(place)?;
        if kept.files != files {
            return None;
        }
        let plan = Arc::clone(&kept.plan);
        plans.kept.push_back(kept);
        Some(plan)
    }

    fn put(&self, environment: &Arc<Environment>, new: Kept) {
        let mut plans = self.plans();
        if plans.are_for(environment) {
            plans.kept.retain(|kept| kept.query != new.query);
            plans.kept.push_back(new);
            if plans.kept.len() > MOST_PLANS {
                plans.kept.pop_front();
            }
        }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plans {
    fn are_for(&self, environment: &Arc<Environment>) -> bool {
        let known = self.environment.as_ref();
        known.is_some_and(|known| Arc::ptr_eq(known, environment))
    }
}
