//! Uploads to an object store. Nothing exists under the destination's name until `finish`; `abort` leaves nothing
//! behind.

use bytes::Bytes;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use object_store::buffered::BufWriter;
use std::sync::Arc;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::Result;
use crate::location::Destination;

/// Bytes gathered before a part is sent: object stores require parts of at least 5 MiB. Those of large objects are
/// merged later.
const PART_BYTES: usize = 8 << 20;

/// An upload in progress.
pub struct Upload {
    sink: Sink,
    bytes: u64,
    finishing: bool,
}

enum Sink {
    Plain(Box<BufWriter>),
    Compressed(Box<dyn AsyncWrite + Send + Unpin>),
}

impl Upload {
    /// Starts an upload; nothing is sent yet.
    pub fn new(destination: &Destination, compression: FileCompressionType) -> Result<Self> {
        let store = Arc::clone(&destination.store);
        let writer = BufWriter::with_capacity(store, destination.path.clone(), PART_BYTES);
        let sink = match compression.is_compressed() {
            true => Sink::Compressed(compression.convert_async_writer(writer)?),
            false => Sink::Plain(Box::new(writer)),
        };
        Ok(Upload {
            sink,
            bytes: 0,
            finishing: false,
        })
    }

    /// Bytes passed to `put` so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends bytes.
    pub async fn put(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.bytes += bytes.len() as u64;
        match &mut self.sink {
            Sink::Plain(writer) => writer.put(Bytes::from(bytes)).await?,
            Sink::Compressed(writer) => writer.write_all(&bytes).await?,
        }
        Ok(())
    }

    /// Completes the upload: the whole file appears.
    pub async fn finish(&mut self) -> Result<()> {
        self.finishing = true;
        match &mut self.sink {
            Sink::Plain(writer) => writer.shutdown().await?,
            Sink::Compressed(writer) => writer.shutdown().await?,
        }
        Ok(())
    }

    /// Aborts the upload and removes what was sent.
    pub async fn abort(self) {
        match self.sink {
            // The caller already reports an error, which this one would hide.
            Sink::Plain(mut writer) if !self.finishing => drop(writer.abort().await),
            // These have no abort. Dropped outside the runtime, they remove local files before `drop` returns.
            sink => drop(std::thread::spawn(move || drop(sink)).join()),
        }
    }
}
