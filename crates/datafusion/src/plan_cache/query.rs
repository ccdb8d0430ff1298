//! Cache key of a query.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, LogicalPlan, Signature, TableScan, Volatility, WindowFunctionDefinition,
};
use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::ObjectMeta;

use crate::container::ContainerFileFormat;
use crate::format::VectileFormat;
use crate::partitions;
use crate::table::VectileTable;

/// Maximum number of tables, functions and literals of a cached query: lists can be long.
const MOST_MARKS: usize = 4096;

/// A query over files of Vectile's and other containers whose result depends only on these and the session.
#[derive(Debug)]
pub(super) struct Query {
    plan: LogicalPlan,
    /// Addresses of tables and functions, in the order of the plan: plans compare as equal even if these differ. As the
    /// plan holds them, their addresses are not reused. Also hashes of literals, which distinguish most plans quickly.
    marks: Vec<u64>,
    tables: Vec<Arc<dyn TableProvider>>,
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.marks == other.marks && self.plan == other.plan
    }
}

impl Query {
    /// Returns `None` if the plan reads other sources, or may have another result when it runs again.
    pub(super) fn of(plan: &LogicalPlan) -> Option<Self> {
        let mut query = Self {
            plan: plan.clone(),
            marks: Vec::new(),
            tables: Vec::new(),
        };
        let mut is_known = true;
        let visited = plan.apply_with_subqueries(|node| {
            is_known = is_known && query.add_node(node)?;
            Ok(go_on(is_known))
        });
        let is_known = visited.is_ok() && is_known && query.marks.len() <= MOST_MARKS;
        (is_known && !query.tables.is_empty()).then_some(query)
    }

    /// The columns of the result.
    pub(super) fn schema(&self) -> &SchemaRef {
        self.plan.schema().inner()
    }

    /// True if it reads a table in memory.
    pub(super) fn is_of_memory(&self) -> bool {
        self.tables.iter().any(|table| table.is::<VectileTable>())
    }

    /// True if it reads Parquet files.
    pub(super) fn is_of_parquet(&self) -> bool {
        let listings = self.tables.iter().filter_map(listing_of);
        listings.into_iter().any(is_of_parquet)
    }

    /// False if `files`, which the query read, are of rows that tables in memory had before they changed.
    pub(super) fn is_of_current_rows(&self, files: &[ObjectMeta]) -> bool {
        let tables = self.tables.iter();
        let mut tables = tables.filter_map(|table| table.downcast_ref::<VectileTable>());
        tables.all(|table| files.contains(&table.mark()))
    }

    /// Records the tables, functions and literals of an operator. Returns true if the operator is supported.
    fn add_node(&mut self, node: &LogicalPlan) -> Result<bool> {
        match node {
            LogicalPlan::TableScan(scan) if self.add_table(scan).is_some() => {}
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_) => {}
            _ => return Ok(false),
        }
        let mut is_known = true;
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                is_known = is_known && self.add_expr(expr);
                Ok(go_on(is_known))
            })
        })?;
        Ok(is_known)
    }

    fn add_table(&mut self, scan: &TableScan) -> Option<()> {
        // statistics requests are not compared
        if !scan.statistics_requests.is_empty() {
            return None;
        }
        let table = source_as_provider(&scan.source).ok()?;
        if !has_files(&table) {
            return None;
        }
        self.marks.push(address_of(&table));
        self.tables.push(table);
        Some(())
    }

    /// Records the function or literal of an expression. Returns true if it always has the same value.
    fn add_expr(&mut self, expr: &Expr) -> bool {
        let (address, signature) = match expr {
            Expr::ScalarFunction(call) => (address_of(&call.func), call.func.signature()),
            Expr::AggregateFunction(call) => (address_of(&call.func), call.func.signature()),
            Expr::WindowFunction(call) => window_function(call),
            Expr::Literal(value, _) => {
                let mut hasher = DefaultHasher::new();
                value.hash(&mut hasher);
                self.marks.push(hasher.finish());
                return true;
            }
            Expr::Alias(_)
            | Expr::Column(_)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
            | Expr::Not(_)
            | Expr::IsNotNull(_)
            | Expr::IsNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::InList(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::ScalarSubquery(_)
            | Expr::GroupingSet(_)
            | Expr::OuterReferenceColumn(..) => return true,
            _ => return false,
        };
        self.marks.push(address);
        signature.volatility == Volatility::Immutable
    }

    /// Lists the files of the tables as planning does, and those that stand for the row groups of tables in memory; empty
    /// if that would take a request each time.
    pub(super) async fn files(&self, state: &SessionState) -> Result<Vec<ObjectMeta>> {
        let lists_once = state.runtime_env().cache_manager.get_list_files_cache();
        let is_near = |url: &ListingTableUrl| {
            url.scheme() == "file" || (url.is_collection() && lists_once.is_some())
        };
        let mut tables = self.tables.iter().filter_map(listing_of);
        if !tables.all(|table| table.table_paths().iter().all(is_near)) {
            return Ok(Vec::new());
        }
        let tables = self.tables.iter().filter_map(listing_of);
        let listings = tables.flat_map(|table| {
            let extension = &table.options().file_extension;
            table.table_paths().iter().map(async move |url| {
                let store = state.runtime_env().object_store(url)?;
                let files = url.list_all_files(state, store.as_ref(), extension);
                files.await?.try_collect::<Vec<_>>().await
            })
        });
        let mut files = try_join_all(listings).await?.concat();
        for table in &self.tables {
            if let Some(table) = table.downcast_ref::<VectileTable>() {
                let snapshot = table.snapshot().await?;
                files.extend(snapshot.objects());
                files.push(snapshot.mark());
            }
        }
        Ok(files)
    }
}

fn go_on(is_known: bool) -> TreeNodeRecursion {
    match is_known {
        true => TreeNodeRecursion::Continue,
        false => TreeNodeRecursion::Stop,
    }
}

fn window_function(call: &WindowFunction) -> (u64, &Signature) {
    match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            (address_of(function), function.signature())
        }
        WindowFunctionDefinition::WindowUDF(function) => {
            (address_of(function), function.signature())
        }
    }
}

/// True if [`VectileSource`](crate::source::VectileSource) reads the table, or may do so, and its files say which rows it has.
pub(super) fn has_files(table: &Arc<dyn TableProvider>) -> bool {
    table.is::<VectileTable>() || listing_of(table).is_some()
}

/// The listing table, if [`VectileSource`](crate::source::VectileSource) reads its files, or may do so.
fn listing_of(table: &Arc<dyn TableProvider>) -> Option<&ListingTable> {
    let listing = partitions::listing_of(table.as_ref())?;
    let format = listing.options().format.as_ref();
    let is_ours = format.is::<VectileFormat>() || format.is::<ContainerFileFormat>();
    (is_ours || is_of_parquet(listing)).then_some(listing)
}

#[cfg(feature = "parquet")]
fn is_of_parquet(listing: &ListingTable) -> bool {
    let format = listing.options().format.as_ref();
    format.is::<datafusion::datasource::file_format::parquet::ParquetFormat>()
}

#[cfg(not(feature = "parquet"))]
fn is_of_parquet(_: &ListingTable) -> bool {
    false
}

fn address_of<T: ?Sized>(of: &Arc<T>) -> u64 {
    Arc::as_ptr(of).cast::<()>() as u64
}
