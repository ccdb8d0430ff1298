//! Paths as names of tables: `SELECT * FROM 'flights.vectile'`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{DynamicFileCatalog, TableProvider, UrlTableFactory};
use datafusion::datasource::dynamic_file::DynamicListTableFactory;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;

use crate::format::FileKind;
use crate::source::Input;

/// Lets SQL in `context` use paths as table names, as `-t` does.
pub fn enable(context: &SessionContext) {
    let paths = Arc::new(PathTables::default());
    paths
        .session
        .session_store()
        .with_state(context.state_weak_ref());
    let tables = Arc::clone(context.state().catalog_list());
    context.register_catalog_list(Arc::new(DynamicFileCatalog::new(tables, paths)));
}

#[derive(Debug, Default)]
struct PathTables {
    /// DataFusion's own factory, for its weak reference to the session. It treats missing files as missing tables,
    /// without an error about the file.
    session: DynamicListTableFactory,
}

#[async_trait]
impl UrlTableFactory for PathTables {
    async fn try_new(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !is_path(name) {
            return Ok(None);
        }
        let Some(session) = self.session.session_store().get_session().upgrade() else {
            return Ok(None);
        };
        let state = session
            .read()
            .as_any()
            .downcast_ref::<SessionState>()
            .cloned();
        let Some(state) = state else { return Ok(None) };
        let context = SessionContext::new_with_state(state);
        let open = async {
            let input = Input::find(&context, name, None).await?;
            let table = input.table(&context, name).await;
            table.map_err(|error| error.of_file(name))
        };
        match open.await {
            Ok(table) => Ok(Some(table)),
            Err(error) => Err(DataFusionError::External(Box::new(error))),
        }
    }
}

/// Returns true for paths; other names are those of unregistered tables.
fn is_path(name: &str) -> bool {
    name.contains('/') || FileKind::of_path(name).is_some()
}
