//! The session state that plans depend on, apart from their queries and tables.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// Settings, functions, rules and services of a session. Compares them by identity: as this holds references, a changed
/// one has another address.
pub(super) struct PlanningEnvironment {
    outlook: u64,
    /// A state that is built anew, with another type planner for example, has another one.
    session: String,
    options: Arc<ConfigOptions>,
    runtime: Arc<RuntimeEnv>,
    planner: Arc<dyn QueryPlanner + Send + Sync>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    rewrites: Vec<Arc<dyn FunctionRewrite + Send + Sync>>,
    analyzer_rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
    optimizer_rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    /// Weak, because a rule signals the session's end when it is dropped.
    physical_rules: Vec<Weak<dyn PhysicalOptimizerRule + Send + Sync>>,
    scalar_functions: HashMap<String, Arc<ScalarUDF>>,
    higher_order_functions: HashMap<String, Arc<HigherOrderUDF>>,
    aggregate_functions: HashMap<String, Arc<AggregateUDF>>,
    window_functions: HashMap<String, Arc<WindowUDF>>,
}

impl PlanningEnvironment {
    /// The environment of a session; `None` if something in it cannot be compared.
    pub(super) fn of(state: &SessionState, outlook: u64) -> Option<Self> {
        if state.statistics_registry().is_some() {
            return None;
        }
        let physical_rules = state.physical_optimizers().iter();
        Some(Self {
            outlook,
            session: state.session_id().to_owned(),
            options: Arc::clone(state.config_options()),
            runtime: Arc::clone(state.runtime_env()),
            planner: Arc::clone(state.query_planner()),
            expr_planners: state.expr_planners().to_vec(),
            relation_planners: state.relation_planners().to_vec(),
            rewrites: state.analyzer().function_rewrites.clone(),
            analyzer_rules: state.analyzer().rules.clone(),
            optimizer_rules: state.optimizer().rules.clone(),
            physical_rules: physical_rules.map(Arc::downgrade).collect(),
            scalar_functions: state.scalar_functions().clone(),
            higher_order_functions: state.higher_order_functions().clone(),
            aggregate_functions: state.aggregate_functions().clone(),
            window_functions: state.window_functions().clone(),
        })
    }

    pub(super) fn is_of(&self, state: &SessionState, outlook: u64) -> bool {
        let physical_rules = state.physical_optimizers();
        self.outlook == outlook
            && self.session == state.session_id()
            && Arc::ptr_eq(&self.options, state.config_options())
            && Arc::ptr_eq(&self.runtime, state.runtime_env())
            && Arc::ptr_eq(&self.planner, state.query_planner())
            && are_same(&self.expr_planners, state.expr_planners())
            && are_same(&self.relation_planners, state.relation_planners())
            && are_same(&self.rewrites, &state.analyzer().function_rewrites)
            && are_same(&self.analyzer_rules, &state.analyzer().rules)
            && are_same(&self.optimizer_rules, &state.optimizer().rules)
            && self.physical_rules.len() == physical_rules.len()
            && (self.physical_rules.iter().zip(physical_rules))
                .all(|(known, rule)| Weak::ptr_eq(known, &Arc::downgrade(rule)))
            && have_same(&self.scalar_functions, state.scalar_functions())
            && have_same(&self.higher_order_functions, state.higher_order_functions())
            && have_same(&self.aggregate_functions, state.aggregate_functions())
            && have_same(&self.window_functions, state.window_functions())
            && state.statistics_registry().is_none()
    }
}

fn are_same<T: ?Sized>(known: &[Arc<T>], now: &[Arc<T>]) -> bool {
    let mut pairs = known.iter().zip(now);
    known.len() == now.len() && pairs.all(|(known, now)| Arc::ptr_eq(known, now))
}

/// True if names stand for the same functions. Copies of a map have its order, so that the first pass is enough for them.
fn have_same<T>(known: &HashMap<String, Arc<T>>, now: &HashMap<String, Arc<T>>) -> bool {
    let is_pair = |((name, known), (other, now)): ((&String, &Arc<T>), _)| {
        Arc::ptr_eq(known, now) && name == other
    };
    let is_same = |(name, known)| now.get(name).is_some_and(|now| Arc::ptr_eq(known, now));
    known.len() == now.len() && (known.iter().zip(now).all(is_pair) || known.iter().all(is_same))
}
