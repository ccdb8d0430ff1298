//! Bodies of requests and answers: JSON or Arrow IPC streams; errors as a status and a text.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{JsonArray, Writer};
use arrow::json::{ReaderBuilder, WriterBuilder};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use datafusion::error::DataFusionError;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Media {
    Json,
    Arrow,
}

impl Media {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }

    /// Arrow if the header names it, JSON otherwise.
    pub(crate) fn of(headers: &HeaderMap, header: &HeaderName) -> Self {
        let mut values = headers.get_all(header).iter();
        let is_arrow = values.any(|value| {
            let value = value.to_str().unwrap_or_default();
            value.contains(Self::Arrow.name())
        });
        match is_arrow {
            true => Self::Arrow,
            false => Self::Json,
        }
    }

    pub(crate) fn response(self, body: impl IntoResponse) -> Response {
        ([(header::CONTENT_TYPE, self.name())], body).into_response()
    }

    /// The rows of a body: an Arrow IPC stream, or JSON objects one after another or in an array.
    pub(crate) fn decode(
        self,
        body: Bytes,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>, ArrowError> {
        let batches = match self {
            Self::Json => of_json(&body, schema)?,
            Self::Arrow => of_stream(body)?,
        };
        batches.iter().map(|batch| checked(batch, schema)).collect()
    }
}

/// The columns of `batch`, if they are those of `schema`: by name, type, and without nulls where it has none.
fn checked(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let names = |schema: &Schema| {
        let fields = schema.fields().iter();
        fields.map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    let (found, wanted) = (names(batch.schema_ref()), names(schema));
    if found != wanted {
        let reason = format!("the columns are {wanted:?}, not {found:?}");
        return Err(ArrowError::SchemaError(reason));
    }
    RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())
}

fn of_stream(body: Bytes) -> Result<Vec<RecordBatch>, ArrowError> {
    let (mut decoder, mut body) = (StreamDecoder::new(), Buffer::from(body));
    let mut batches = Vec::new();
    while let Some(batch) = decoder.decode(&mut body)? {
        batches.push(batch);
    }
    decoder.finish()?;
    Ok(batches)
}

fn of_json(body: &[u8], schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    let read = |reader: ReaderBuilder| {
        let batches = reader.with_strict_mode(true).build(body)?;
        batches.collect::<Result<Vec<_>, _>>()
    };
    if !body.trim_ascii_start().starts_with(b"[") {
        return read(ReaderBuilder::new(Arc::clone(schema)));
    }
    let row = Field::new_struct("row", schema.fields().clone(), false);
    let lists = read(ReaderBuilder::new_with_field(Field::new_list(
        "rows", row, false,
    )))?;
    let lists = lists.iter().map(|lists| lists.column(0).as_list::<i32>());
    Ok(lists.map(|list| list.values().as_struct().into()).collect())
}

/// The body of an answer, as far as it is written.
pub(crate) enum Answer {
    Json(Writer<Vec<u8>, JsonArray>),
    Arrow(StreamWriter<Vec<u8>>),
}

impl Answer {
    pub(crate) fn new(media: Media, schema: &Schema) -> Result<Self, ArrowError> {
        Ok(match media {
            Media::Json => Self::Json(WriterBuilder::new().with_explicit_nulls(true).build(vec![])),
            Media::Arrow => Self::Arrow(StreamWriter::try_new(vec![], schema)?),
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::Json(writer) => writer.write(batch),
            Self::Arrow(writer) => writer.write(batch),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Json(writer) => writer.get_ref().len(),
            Self::Arrow(writer) => writer.get_ref().len(),
        }
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>, ArrowError> {
        match self {
            Self::Json(mut writer) => {
                writer.finish()?;
                Ok(writer.into_inner())
            }
            Self::Arrow(writer) => writer.into_inner(),
        }
    }
}

/// An error as a status and a text.
#[derive(Debug)]
pub(crate) struct Failure(StatusCode, String);

impl Failure {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self(status, reason.into())
    }

    /// An error of the client.
    pub(crate) fn request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self::request(error.to_string())
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        let status = match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => StatusCode::SERVICE_UNAVAILABLE,
            DataFusionError::Internal(_)
            | DataFusionError::External(_)
            | DataFusionError::IoError(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.strip_backtrace())
    }
}
