//! Uploads of any size: object stores take at most 10,000 parts of one object.

use std::mem;

use async_trait::async_trait;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};

/// The number of parts that are sent as they come. Some stores want all parts but the last of one size, so the size
/// changes only where it has to.
const EQUAL_PARTS: usize = 5000;

/// After those, this many parts have the same size; the next are larger by `STEP_BYTES`.
const PARTS_PER_STEP: usize = 38;

const STEP_BYTES: usize = 16 << 20;

/// An upload that joins its later parts, so that 10,000 hold 5 TiB, the most that S3 stores. Wrapping another
/// `GrowingParts` changes nothing.
#[derive(Debug)]
pub struct GrowingParts {
    upload: Box<dyn MultipartUpload>,
    /// Parts sent.
    sent: usize,
    /// Parts received since the last one sent.
    waiting: Vec<PutPayload>,
    waiting_bytes: usize,
}

impl GrowingParts {
    /// Sends to `upload`.
    pub fn new(upload: Box<dyn MultipartUpload>) -> Self {
        Self {
            upload,
            sent: 0,
            waiting: vec![],
            waiting_bytes: 0,
        }
    }

    fn send(&mut self) -> UploadPart {
        self.sent += 1;
        self.waiting_bytes = 0;
        let parts = mem::take(&mut self.waiting);
        let chunks = parts.iter().flat_map(PutPayload::iter).cloned();
        self.upload.put_part(chunks.collect())
    }
}

/// The fewest bytes of the part after `sent` others.
fn least_bytes(sent: usize) -> usize {
    match sent.checked_sub(EQUAL_PARTS) {
        None => 0,
        Some(later) => (2 + later / PARTS_PER_STEP) * STEP_BYTES,
    }
}

#[async_trait]
impl MultipartUpload for GrowingParts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.waiting_bytes += data.content_length();
        self.waiting.push(data);
        match self.waiting_bytes >= least_bytes(self.sent) {
            true => self.send(),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        if !self.waiting.is_empty() {
            self.send().await?;
        }
        self.upload.complete().await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;

    use super::*;

    /// Records the size of each part.
    #[derive(Debug)]
    struct Counted(Arc<Mutex<Vec<usize>>>);

    #[async_trait]
    impl MultipartUpload for Counted {
        fn put_part(&mut self, data: PutPayload) -> UploadPart {
            self.0.lock().unwrap().push(data.content_length());
            Box::pin(std::future::ready(Ok(())))
        }

        async fn complete(&mut self) -> object_store::Result<PutResult> {
            Ok(PutResult {
                e_tag: None,
                version: None,
            })
        }

        async fn abort(&mut self) -> object_store::Result<()> {
            Ok(())
        }
    }

    /// The sizes of the parts of the largest object.
    async fn sizes(wrap: impl Fn(Counted) -> GrowingParts) -> Vec<usize> {
        const OBJECT: usize = 5 << 40;
        let sizes = Arc::new(Mutex::new(vec![]));
        let mut upload = wrap(Counted(Arc::clone(&sizes)));
        let part = Bytes::from(vec![0; STEP_BYTES]);
        for _ in 0..OBJECT / STEP_BYTES {
            upload.put_part(part.clone().into()).await.unwrap();
        }
        upload.complete().await.unwrap();
        let sizes = std::mem::take(&mut *sizes.lock().unwrap());
        assert_eq!(sizes.iter().sum::<usize>(), OBJECT);
        sizes
    }

    #[tokio::test]
    async fn ten_thousand_parts_are_enough_for_any_object() {
        let parts = sizes(|counted| GrowingParts::new(Box::new(counted))).await;
        assert!(parts.len() <= 10_000, "{}", parts.len());
        assert!(
            parts[..EQUAL_PARTS]
                .iter()
                .all(|bytes| *bytes == STEP_BYTES)
        );
        let twice = |counted| GrowingParts::new(Box::new(GrowingParts::new(Box::new(counted))));
        assert_eq!(sizes(twice).await, parts);
    }
}
