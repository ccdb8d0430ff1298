//! What listings pass over: the files that tools leave beside the data, such as `_SUCCESS`,
//! `.part-0.crc` and uploads not yet complete.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// A store whose listings have no hidden objects. By its name each can still be read.
#[derive(Debug)]
pub struct WithoutHidden(pub Arc<dyn ObjectStore>);

/// Whether a part of the path below `prefix` begins with `.` or `_`; `_key=value` is a partition.
fn is_hidden(prefix: Option<&Path>, location: &Path) -> bool {
    let root = Path::default();
    let below = location.prefix_match(prefix.unwrap_or(&root));
    below.into_iter().flatten().any(|part| {
        let part = part.as_ref();
        part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
    })
}

#[async_trait]
impl ObjectStore for WithoutHidden {
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let base = prefix.cloned();
        let shown =
            move |meta: &ObjectMeta| future::ready(!is_hidden(base.as_ref(), &meta.location));
        self.0.list(prefix).try_filter(shown).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let base = prefix.cloned();
        let shown =
            move |meta: &ObjectMeta| future::ready(!is_hidden(base.as_ref(), &meta.location));
        self.0
            .list_with_offset(prefix, offset)
            .try_filter(shown)
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.0.list_with_delimiter(prefix).await?;
        listed
            .objects
            .retain(|meta| !is_hidden(prefix, &meta.location));
        listed
            .common_prefixes
            .retain(|path| !is_hidden(prefix, path));
        Ok(listed)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.0.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

impl fmt::Display for WithoutHidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn listings_pass_over_hidden_names() {
        let store = WithoutHidden(Arc::new(InMemory::new()));
        for name in ["a", "_b", ".c", "d/_e/f", "_k=v/g", "_dir/h", "_dir/_i"] {
            store.put(&Path::from(name), "x".into()).await.unwrap();
        }
        for (prefix, expected) in [(None, vec!["_k=v/g", "a"]), (Some("_dir"), vec!["_dir/h"])] {
            let prefix = prefix.map(Path::from);
            let listed = store.list(prefix.as_ref()).map_ok(|meta| meta.location);
            let mut listed: Vec<Path> = listed.try_collect().await.unwrap();
            listed.sort();
            assert_eq!(
                listed,
                expected.into_iter().map(Path::from).collect::<Vec<_>>()
            );
        }
        let top = store.list_with_delimiter(None).await.unwrap();
        assert_eq!(top.objects.len(), 1);
        assert_eq!(top.common_prefixes, [Path::from("_k=v"), Path::from("d")]);
        assert!(store.get(&Path::from("_b")).await.is_ok(), "it has a name");
    }
}
