//! Tables to read: finds their files, determines their format, opens them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::{CsvOptions, JsonOptions};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use url::Url;
use vectile_datafusion::{PartitionedTable, partition_value};

use crate::connect::object_store;
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format, all_extensions, known_extension};
use crate::location::{Destination, parse_source, takes};
use crate::text_files::{TextFormat, bytes_of};
use crate::text_options::TextOptions;

/// One file to read.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its URL.
    pub url: ListingTableUrl,
    /// Its store.
    pub store: Arc<dyn ObjectStore>,
    /// Its location and size in the store.
    pub meta: ObjectMeta,
    /// Its format and compression.
    pub kind: FileKind,
    /// Its path below the directory or glob the user named; its name if the user named the file.
    pub relative: String,
    /// Values of the partition columns that its path carries (`year=2013/part.parquet`).
    pub partitions: Vec<(String, Option<String>)>,
}

/// An input named by the user: a URL and its files.
#[derive(Debug)]
pub struct Input {
    /// The file, directory or glob.
    pub url: ListingTableUrl,
    /// Its files, in path order; at least one.
    pub files: Vec<InputFile>,
    /// True if DataFusion finds the same files for `url`. For it, `*` also matches names of directories.
    pub is_exact: bool,
}

/// The error for files that only we find: a partitioned table has those below a directory, or those that DataFusion's
/// glob matches.
pub fn further_directories() -> CliError {
    CliError::failed("there are files in further directories, which the glob does not take")
        .hint("name the directory, or move these files")
}

impl Input {
    /// Finds the files of `text`. Their format is `format`, or else that of each file's name; in a directory, files of
    /// unknown formats are skipped.
    pub async fn find(
        context: &SessionContext,
        text: &str,
        format: Option<Format>,
    ) -> Result<Self> {
        let url = parse_source(text)?;
        let store = object_store(context, url.get_url(), &HashMap::new()).await?;
        let found = list(context, &url, &store)
            .await
            .map_err(|error| error.of_file(text).context("cannot read"))?;
        let mut files = Vec::with_capacity(found.len());
        let mut is_exact = true;
        for meta in &found {
            match input_file(&url, &store, meta, format)? {
                Some(file) if takes(&url, &meta.location) => files.push(file),
                Some(_) => is_exact = false,
                None => (),
            }
        }
        match (files.is_empty(), found.first().filter(|_| is_exact)) {
            (false, _) => Ok(Input {
                url,
                files,
                is_exact,
            }),
            (true, None) => Err(
                CliError::failed(format!("{text}: no such file or directory"))
                    .hint("check the path; globs need quotes when they are not for the shell"),
            ),
            (true, Some(_)) => Err(
                CliError::failed(format!("{text}: no file of a known format")).hint(format!(
                    "known are {}; vectile convert --from reads others",
                    all_extensions()
                )),
            ),
        }
    }

    /// Removes files at or below `out`, unless the user named `out`, or all of the input is below it.
    pub fn leave_out(&mut self, out: &Destination) {
        if self.is_collection() && !out.holds(&self.url, self.url.prefix()) {
            self.files
                .retain(|file| !out.holds(&file.url, &file.meta.location));
        }
    }

    /// Returns true for a directory or glob, false for one file.
    pub fn is_collection(&self) -> bool {
        self.url.is_collection() || self.url.get_glob().is_some()
    }

    /// URLs for which DataFusion finds exactly the files of this input.
    fn urls(&self) -> Result<Vec<ListingTableUrl>> {
        match self.is_exact {
            true => Ok(vec![self.url.clone()]),
            false => self.file_urls(),
        }
    }

    /// The URL of each file. A table of these has no partitions.
    pub fn file_urls(&self) -> Result<Vec<ListingTableUrl>> {
        match self.files.iter().any(|file| !file.partitions.is_empty()) {
            true => Err(further_directories()),
            false => Ok(self.files.iter().map(|file| file.url.clone()).collect()),
        }
    }

    /// The input as one table, for SQL: all its files must be of one kind.
    pub async fn table(
        &self,
        context: &SessionContext,
        name: &str,
    ) -> Result<Arc<dyn TableProvider>> {
        let extension = self.single_extension(name)?;
        let Some(first) = self.files.first() else {
            return Err(CliError::failed(format!("{name}: no files")));
        };
        let format = file_format(context, first).await?;
        let options = ListingOptions::new(Arc::clone(&format))
            .with_file_extension(if self.is_collection() { extension } else { "" });
        let config = ListingTableConfig::new_with_multi_paths(self.urls()?);
        let config = config.with_listing_options(options);
        let state = context.state();
        let config = match self.is_collection() && self.is_exact {
            true => config.infer_partitions_from_path(&state).await?,
            false => config,
        };
        // The files are known: DataFusion would request them from the store once more.
        let files: Vec<ObjectMeta> = self.files.iter().map(|file| file.meta.clone()).collect();
        let schema = match format.infer_schema(&state, &first.store, &files).await {
            Ok(schema) => schema,
            Err(error) => return Err(self.of_file(&state, &format, error.into()).await),
        };
        let config = config.with_schema(schema);
        let cache = context
            .runtime_env()
            .cache_manager
            .get_file_statistic_cache();
        let table = ListingTable::try_new(config)?.with_cache(cache.clone());
        Ok(PartitionedTable::of(table, cache)?)
    }

    /// Adds the name of the file to an error from reading the schema.
    async fn of_file(
        &self,
        state: &SessionState,
        format: &Arc<dyn FileFormat>,
        error: CliError,
    ) -> CliError {
        for file in &self.files {
            let meta = std::slice::from_ref(&file.meta);
            if let Err(error) = format.infer_schema(state, &file.store, meta).await {
                return CliError::from(error).of_file(&file.display());
            }
        }
        error
    }

    fn single_extension(&self, name: &str) -> Result<&str> {
        let mut extensions: Vec<&str> = self
            .files
            .iter()
            .map(|file| known_extension(&file.relative))
            .collect();
        extensions.sort_unstable();
        extensions.dedup();
        match extensions.as_slice() {
            [extension] => Ok(extension),
            several => Err(CliError::failed(format!(
                "table {name} would mix files of several formats: {}",
                several.join(", ")
            ))
            .hint("choose with a glob, such as -t NAME='dir/*.parquet'")),
        }
    }
}

impl InputFile {
    /// The file as a table. Schemas of text files come from all of their rows, unless they are known.
    pub async fn table(
        &self,
        context: &SessionContext,
        schema: Option<SchemaRef>,
    ) -> Result<ListingTable> {
        let format = file_format(context, self).await?;
        let options = ListingOptions::new(format).with_file_extension("");
        let config = ListingTableConfig::new(self.url.clone()).with_listing_options(options);
        let config = match schema {
            Some(schema) => config.with_schema(schema),
            None => config
                .infer_schema(&context.state())
                .await
                .map_err(|error| CliError::from(error).of_file(&self.display()))?,
        };
        Ok(ListingTable::try_new(config)?)
    }

    /// The file's name for messages.
    pub fn display(&self) -> String {
        match self.url.scheme() {
            "file" => format!("/{}", self.meta.location),
            _ => self.url.as_str().to_string(),
        }
    }
}

async fn file_format(context: &SessionContext, file: &InputFile) -> Result<Arc<dyn FileFormat>> {
    let state = context.state();
    let given = TextOptions::of(&state);
    let registered = |extension: &str| {
        let factory = state.get_file_format_factory(extension);
        let format = factory.map(|factory| factory.create(&state, &HashMap::new()));
        format.ok_or_else(|| CliError::failed(format!("{extension} files are not supported")))
    };
    Ok(match file.kind.format {
        Format::Arrows => registered(Format::Arrow.extension())??,
        Format::Csv => {
            let options = state.default_table_options().csv;
            let options = given.csv(CsvOptions {
                compression: file.kind.compression.into(),
                ..options
            });
            Arc::new(TextFormat::csv(options, given.types.clone()))
        }
        Format::Json => {
            let options = JsonOptions {
                compression: file.kind.compression.into(),
                newline_delimited: !is_json_array(file).await?,
                ..state.default_table_options().json
            };
            Arc::new(TextFormat::json(options, given.types.clone()))
        }
        format => registered(format.extension())??,
    })
}

/// Returns true if a JSON file is one array of objects, as `vectile sql --format json` prints it, rather than lines.
async fn is_json_array(file: &InputFile) -> Result<bool> {
    if file.meta.size == 0 {
        return Ok(false);
    }
    let mut bytes = bytes_of(&file.meta, &file.store, file.kind.compression).await?;
    while let Some(part) = bytes.try_next().await? {
        if let Some(first) = part.iter().find(|byte| !byte.is_ascii_whitespace()) {
            return Ok(*first == b'[');
        }
    }
    Ok(false)
}

async fn list(
    context: &SessionContext,
    url: &ListingTableUrl,
    store: &Arc<dyn ObjectStore>,
) -> Result<Vec<ObjectMeta>> {
    if !url.is_collection() {
        return match store.head(url.prefix()).await {
            Ok(meta) => Ok(vec![meta]),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
    }
    let state = context.state();
    let listing = url.list_all_files(&state, store.as_ref(), "").await?;
    let mut files: Vec<ObjectMeta> = listing.try_collect().await?;
    files.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(files)
}

fn relative_path(url: &ListingTableUrl, meta: &ObjectMeta) -> String {
    let below = url.strip_prefix(&meta.location);
    let relative = below.map(|parts| parts.collect::<Vec<_>>().join("/"));
    match relative {
        Some(relative) if !relative.is_empty() => relative,
        _ => meta.location.filename().unwrap_or_default().to_string(),
    }
}

fn input_file(
    url: &ListingTableUrl,
    store: &Arc<dyn ObjectStore>,
    meta: &ObjectMeta,
    format: Option<Format>,
) -> Result<Option<InputFile>> {
    let name = meta.location.as_ref();
    let kind = match format {
        Some(format) => Some(FileKind::with_format(name, format)),
        None => FileKind::of_path(name),
    };
    let relative = relative_path(url, meta);
    let Some(kind) = kind else { return Ok(None) };
    Ok(Some(InputFile {
        url: file_url(url, meta)?,
        store: Arc::clone(store),
        meta: meta.clone(),
        kind,
        partitions: partitions(&relative),
        relative,
    }))
}

fn file_url(url: &ListingTableUrl, meta: &ObjectMeta) -> Result<ListingTableUrl> {
    let mut file: Url = url.get_url().clone();
    // By its parts: `set_path` would convert `\\` to `/`, and `%20` to a space.
    match file.path_segments_mut() {
        Ok(mut path) => {
            path.clear().extend(meta.location.parts());
        }
        Err(()) => return Err(CliError::failed(format!("{url} has no path"))),
    }
    Ok(ListingTableUrl::try_new(file, None)?)
}

fn partitions(relative: &str) -> Vec<(String, Option<String>)> {
    let directories = relative.rsplit_once('/').map_or("", |(head, _)| head);
    directories
        .split('/')
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.to_string(), partition_value(value)))
        .collect()
}

/// The type of partition columns when a conversion puts them into the file.
pub const PARTITION_TYPE: DataType = DataType::Utf8;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions,
        PutOptions, PutPayload, PutResult,
    };

    use super::*;

    #[test]
    fn partitions_come_from_directories() {
        let text = |v: &str| Some(v.to_string());
        assert_eq!(
            partitions("year=2013/month=1/a=b.csv"),
            vec![
                ("year".to_string(), text("2013")),
                ("month".to_string(), text("1"))
            ]
        );
        assert_eq!(
            partitions("k=__HIVE_DEFAULT_PARTITION__/x.csv"),
            vec![("k".to_string(), None)]
        );
        assert!(partitions("x.csv").is_empty());
    }

    /// A store in memory that counts requests for the size of an object.
    #[derive(Debug, Default)]
    struct Counting {
        store: InMemory,
        heads: AtomicUsize,
    }

    impl std::fmt::Display for Counting {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.store.fmt(f)
        }
    }

    #[async_trait]
    impl ObjectStore for Counting {
        async fn put_opts(&self, to: &Path, bytes: PutPayload, options: PutOptions) -> Put {
            self.store.put_opts(to, bytes, options).await
        }

        async fn put_multipart_opts(&self, to: &Path, options: PutMultipartOptions) -> Upload {
            self.store.put_multipart_opts(to, options).await
        }

        async fn get_opts(&self, from: &Path, options: GetOptions) -> Get {
            self.heads
                .fetch_add(usize::from(options.head), Ordering::Relaxed);
            self.store.get_opts(from, options).await
        }

        fn delete_stream(&self, paths: Listed<Path>) -> Listed<Path> {
            self.store.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> Listed<ObjectMeta> {
            self.store.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> List {
            self.store.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Copied {
            self.store.copy_opts(from, to, options).await
        }
    }

    type Put = object_store::Result<PutResult>;
    type Upload = object_store::Result<Box<dyn MultipartUpload>>;
    type Get = object_store::Result<GetResult>;
    type Listed<T> = BoxStream<'static, object_store::Result<T>>;
    type List = object_store::Result<ListResult>;
    type Copied = object_store::Result<()>;

    #[tokio::test]
    async fn a_file_is_looked_for_once_for_its_table_and_once_for_a_query() {
        let context = crate::session::for_sql().unwrap();
        let store = Arc::new(Counting::default());
        let url = Url::parse("mem://bucket").unwrap();
        context.register_object_store(&url, Arc::clone(&store) as Arc<dyn ObjectStore>);
        let copy = "COPY (SELECT 1 AS a) TO 'mem://bucket/t.vectile'";
        context.sql(copy).await.unwrap().collect().await.unwrap();
        store.heads.store(0, Ordering::Relaxed);

        let input = Input::find(&context, "mem://bucket/t.vectile", None)
            .await
            .unwrap();
        let table = input.table(&context, "t").await.unwrap();
        assert_eq!(store.heads.load(Ordering::Relaxed), 1);
        let rows = context.read_table(table).unwrap();
        assert_eq!(rows.count().await.unwrap(), 1);
        assert_eq!(store.heads.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn file_urls_keep_every_character() {
        let base = ListingTableUrl::parse("file:///tmp/").unwrap();
        for name in ["tmp/a b#c?d%20e.csv", "tmp/ü[1].csv"] {
            let meta = ObjectMeta {
                location: object_store::path::Path::parse(name).unwrap(),
                last_modified: Default::default(),
                size: 1,
                e_tag: None,
                version: None,
            };
            let url = file_url(&base, &meta).unwrap();
            assert_eq!(url.prefix(), &meta.location, "{name}");
        }
    }
}
