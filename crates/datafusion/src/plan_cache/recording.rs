//! A catalog that records the tables which it is asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{ResolvedTableReference, Result};
use datafusion::datasource::TableType;

/// Tables that a catalog has found, without those made for the lookup, as catalogs make them of paths.
pub(super) type Tables = HashMap<ResolvedTableReference, Arc<dyn TableProvider>>;

/// The catalogs of a session. Only looks things up.
#[derive(Clone, Debug)]
pub(super) struct RecordingCatalogs {
    inner: Arc<dyn CatalogProviderList>,
    tables: Arc<Mutex<Tables>>,
}

impl RecordingCatalogs {
    pub(super) fn new(inner: &Arc<dyn CatalogProviderList>) -> Self {
        Self {
            inner: Arc::clone(inner),
            tables: Arc::default(),
        }
    }

    /// The tables found so far.
    pub(super) fn take(&self) -> Tables {
        std::mem::take(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CatalogProviderList for RecordingCatalogs {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        Some(Arc::new(RecordingCatalog {
            inner: self.inner.catalog(name)?,
            name: name.into(),
            tables: Arc::clone(&self.tables),
        }))
    }
}

#[derive(Debug)]
struct RecordingCatalog {
    inner: Arc<dyn CatalogProvider>,
    name: Arc<str>,
    tables: Arc<Mutex<Tables>>,
}

impl CatalogProvider for RecordingCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(RecordingSchema {
            inner: self.inner.schema(name)?,
            catalog: Arc::clone(&self.name),
            name: name.into(),
            tables: Arc::clone(&self.tables),
        }))
    }
}

#[derive(Debug)]
struct RecordingSchema {
    inner: Arc<dyn SchemaProvider>,
    catalog: Arc<str>,
    name: Arc<str>,
    tables: Arc<Mutex<Tables>>,
}

#[async_trait]
impl SchemaProvider for RecordingSchema {
    fn owner_name(&self) -> Option<&str> {
        self.inner.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = self.inner.table(name).await?;
        if let Some(table) = &found
            && self.inner.table_exist(name)
        {
            let name = ResolvedTableReference {
                catalog: Arc::clone(&self.catalog),
                schema: Arc::clone(&self.name),
                table: name.into(),
            };
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables.insert(name, Arc::clone(table));
        }
        Ok(found)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}
