//! CSV and JSON files, whose schema comes from all of their rows.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, AsArray, StringArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use async_trait::async_trait;
use bytes::{Buf, Bytes};
use datafusion::catalog::Session;
use datafusion::common::config::{CsvOptions, JsonOptions};
use datafusion::common::{GetExt, Statistics};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::table_schema::{TableSchema, TableSchemaBuilder};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexRequirement, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use regex::Regex;

use crate::infer::{Columns, Facts};

/// A file format of DataFusion with its own schema inference.
#[derive(Debug)]
pub struct TextFormat {
    text: Text,
    /// Types of columns given by the user.
    types: Fields,
    /// True if values of the files that the schema was inferred from have line ends.
    has_line_ends: AtomicBool,
}

#[derive(Clone, Debug)]
enum Text {
    Csv(CsvOptions),
    Json(JsonOptions),
}

impl TextFormat {
    /// CSV files.
    pub fn csv(options: CsvOptions, types: Fields) -> Self {
        Self::new(Text::Csv(options), types)
    }

    /// JSON files.
    pub fn json(options: JsonOptions, types: Fields) -> Self {
        Self::new(Text::Json(options), types)
    }

    fn new(text: Text, types: Fields) -> Self {
        Self {
            text,
            types,
            has_line_ends: AtomicBool::new(false),
        }
    }

    /// The wrapped format, which reads and writes.
    fn format(&self) -> Arc<dyn FileFormat> {
        match &self.text {
            Text::Csv(options) => {
                let mut options = options.clone();
                if self.has_line_ends.load(Ordering::Relaxed) {
                    options.newlines_in_values.get_or_insert(true);
                }
                Arc::new(CsvFormat::default().with_options(options))
            }
            Text::Json(options) => Arc::new(JsonFormat::default().with_options(options.clone())),
        }
    }

    async fn csv_schema(
        &self,
        options: &CsvOptions,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let format = csv_reader(options, state)?;
        let mut rows = options.schema_infer_max_rec.unwrap_or(usize::MAX);
        if rows == 0 {
            return self.format().infer_schema(state, store, objects).await;
        }
        let mut columns = Columns::default();
        for object in objects.iter().filter(|object| object.size > 0) {
            let read = async {
                let bytes = bytes_of(object, store, options.compression.into()).await?;
                columns.read(&format, bytes, rows).await
            };
            rows -= read.await.map_err(|error| in_file(object, error))?;
        }
        self.has_line_ends
            .fetch_or(columns.has_line_ends, Ordering::Relaxed);
        Ok(columns.schema())
    }

    /// DataFusion's schema, with a type for each number that represents it exactly.
    async fn json_schema(
        &self,
        options: &JsonOptions,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let all_rows = JsonOptions {
            schema_infer_max_rec: Some(options.schema_infer_max_rec.unwrap_or(usize::MAX)),
            ..options.clone()
        };
        let format = JsonFormat::default().with_options(all_rows);
        let schema = format.infer_schema(state, store, objects).await?;
        let fields = schema.fields().iter();
        let fields = fields.filter(|field| self.type_of(field).is_none() && has_floats(field));
        let floats: Fields = fields.cloned().collect();
        if floats.is_empty() {
            return Ok(schema);
        }
        let mut numbers = Numbers::default();
        for object in objects.iter().filter(|object| object.size > 0) {
            let bytes = bytes_of(object, store, options.compression.into()).await?;
            let read = numbers.read(&floats, bytes, options.newline_delimited);
            read.await.map_err(|error| in_file(object, error))?;
        }
        numbers.next = 0;
        let exact = schema
            .fields()
            .iter()
            .map(|field| match floats.find(field.name()) {
                Some(_) => numbers.exact(field),
                None => Ok(Arc::clone(field)),
            });
        let exact = exact
            .collect::<Result<Vec<_>>>()
            .map_err(|error| match objects {
                [object] => in_file(object, error),
                _ => error,
            })?;
        Ok(Arc::new(Schema::new_with_metadata(
            exact,
            schema.metadata().clone(),
        )))
    }

    /// A scan of CSV files in which `nulls` matches the nulls. DataFusion 55.2 matches them when it infers a schema,
    /// and not when it reads: so the files are read as text.
    async fn scan_with_nulls(
        &self,
        nulls: &str,
        state: &dyn Session,
        scan: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let typed = scan.projected_schema()?;
        let schema = scan.file_source().table_schema();
        let in_files = Arc::clone(schema.file_schema());
        let fields = in_files.fields().iter();
        let texts = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = TableSchemaBuilder::new(Arc::new(Schema::new(texts.collect::<Vec<_>>())))
            .with_table_partition_cols(schema.table_partition_cols().to_vec())
            .build();
        let format = self.format();
        let mut source = format.file_source(texts);
        if let Some(projection) = scan.file_source().projection() {
            let projected = source.try_pushdown_projection(projection)?;
            source = projected.ok_or_else(|| {
                DataFusionError::Internal("CSV files are read with any projection".into())
            })?;
        }
        // Texts sort in another order than values.
        let scan = FileScanConfigBuilder::from(scan)
            .with_source(source)
            .with_output_ordering(Vec::new())
            .build();
        let texts = format.create_physical_plan(state, scan).await?;
        let config = Arc::new(state.config_options().clone());
        let columns = typed.fields().iter().enumerate().map(|(index, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
            let column = match in_files.index_of(field.name()) {
                Err(_) => column,
                Ok(_) => Arc::new(ScalarFunctionExpr::try_new(
                    Arc::new(CsvValue::function(nulls, field.data_type())),
                    vec![column],
                    &texts.schema(),
                    Arc::clone(&config),
                )?),
            };
            Ok((column, field.name().clone()))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, texts)?))
    }

    fn type_of(&self, field: &Field) -> Option<&FieldRef> {
        self.types.find(field.name()).map(|(_, field)| field)
    }

    /// The schema with the given types.
    fn with_types(&self, schema: SchemaRef) -> SchemaRef {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| self.type_of(field).unwrap_or(field));
        let fields: Fields = fields.cloned().collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

fn in_file(object: &ObjectMeta, error: DataFusionError) -> DataFusionError {
    error.context(format!("{}", object.location))
}

/// The arrow reader of CSV as DataFusion configures it.
fn csv_reader(options: &CsvOptions, state: &dyn Session) -> Result<Format> {
    let has_header = options.has_header;
    let has_header = has_header.unwrap_or_else(|| state.config_options().catalog.has_header);
    let mut format = Format::default()
        .with_header(has_header)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_truncated_rows(options.truncated_rows.unwrap_or(false));
    if let Some(nulls) = &options.null_regex {
        format = format.with_null_regex(null_regex(nulls)?);
    }
    if let Some(escape) = options.escape {
        format = format.with_escape(escape);
    }
    if let Some(terminator) = options.terminator {
        format = format.with_terminator(terminator);
    }
    if let Some(comment) = options.comment {
        format = format.with_comment(comment);
    }
    Ok(format)
}

/// The bytes of a file, decompressed.
pub async fn bytes_of(
    object: &ObjectMeta,
    store: &Arc<dyn ObjectStore>,
    compression: FileCompressionType,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    let stored = store.get(&object.location).await?.into_stream();
    compression.convert_stream(stored.map_err(DataFusionError::from).boxed())
}

fn has_floats(field: &FieldRef) -> bool {
    match field.data_type() {
        DataType::Float64 => true,
        DataType::List(item) => has_floats(item),
        DataType::Struct(fields) => fields.iter().any(has_floats),
        _ => false,
    }
}

/// The type with text instead of floats.
fn of_text(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Float64 => DataType::Utf8,
        DataType::List(item) => DataType::List(of_text(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of_text).collect()),
        other => other.clone(),
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}

/// Facts about the numbers of columns, in the order of the columns and their children.
#[derive(Default)]
struct Numbers {
    facts: Vec<Facts>,
    next: usize,
}

impl Numbers {
    async fn read(
        &mut self,
        floats: &Fields,
        mut bytes: BoxStream<'_, Result<Bytes>>,
        has_lines: bool,
    ) -> Result<()> {
        let texts: Fields = floats.iter().map(of_text).collect();
        let reader = ReaderBuilder::new(Arc::new(Schema::new(texts))).with_coerce_primitive(true);
        let mut decoder = reader.build_decoder()?;
        let mut lines = Lines::default();
        while let Some(more) = bytes.try_next().await? {
            let mut more = match has_lines {
                true => more,
                false => lines.of_array(&more),
            };
            while !more.is_empty() {
                let decoded = decoder.decode(&more)?;
                more.advance(decoded);
                if !more.is_empty() {
                    self.flush(&mut decoder, floats)?;
                }
            }
        }
        self.flush(&mut decoder, floats)
    }

    fn flush(&mut self, decoder: &mut arrow::json::reader::Decoder, floats: &Fields) -> Result<()> {
        if let Some(batch) = decoder.flush()? {
            self.next = 0;
            for (column, field) in batch.columns().iter().zip(floats) {
                self.note(column.as_ref(), field);
            }
        }
        Ok(())
    }

    fn next(&mut self) -> &mut Facts {
        let index = self.next;
        self.next += 1;
        if index >= self.facts.len() {
            self.facts.resize_with(index + 1, Facts::default);
        }
        &mut self.facts[index]
    }

    fn note(&mut self, values: &dyn Array, field: &FieldRef) {
        match field.data_type() {
            DataType::Float64 => {
                let facts = self.next();
                let texts = values.as_string_opt::<i32>();
                let texts = texts.into_iter().flat_map(|texts| texts.iter().flatten());
                texts.for_each(|text| facts.note_number(text));
            }
            DataType::List(item) => {
                if let Some(list) = values.as_list_opt::<i32>() {
                    self.note(list.values().as_ref(), item);
                }
            }
            DataType::Struct(fields) => {
                if let Some(parts) = values.as_struct_opt() {
                    for (part, field) in parts.columns().iter().zip(fields) {
                        self.note(part.as_ref(), field);
                    }
                }
            }
            _ => {}
        }
    }

    /// The field with types that represent its numbers.
    fn exact(&mut self, field: &FieldRef) -> Result<FieldRef> {
        let data_type = match field.data_type() {
            DataType::Float64 => self.next().number_type(field.name())?,
            DataType::List(item) => DataType::List(self.exact(item)?),
            DataType::Struct(fields) => {
                let fields = fields.iter().map(|field| self.exact(field));
                DataType::Struct(fields.collect::<Result<_>>()?)
            }
            other => other.clone(),
        };
        Ok(Arc::new(Field::clone(field).with_data_type(data_type)))
    }
}

/// Converts an array of objects, whose text comes in parts, to lines.
#[derive(Default)]
struct Lines {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Lines {
    fn of_array(&mut self, part: &[u8]) -> Bytes {
        part.iter().map(|byte| self.next(*byte)).collect()
    }

    fn next(&mut self, byte: u8) -> u8 {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return byte;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => {
                self.depth += 1;
                if self.depth == 1 {
                    return b' ';
                }
            }
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return b' ';
                }
            }
            b',' if self.depth == 1 => return b'\n',
            _ => {}
        }
        byte
    }
}

#[async_trait]
impl FileFormat for TextFormat {
    fn get_ext(&self) -> String {
        self.format().get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.format().get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.format().compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let schema = match &self.text {
            Text::Csv(options) => self.csv_schema(options, state, store, objects).await?,
            Text::Json(options) => self.json_schema(options, state, store, objects).await?,
        };
        Ok(self.with_types(schema))
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.format()
            .infer_stats(state, store, schema, object)
            .await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        scan: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &self.text {
            Text::Csv(CsvOptions {
                null_regex: Some(nulls),
                ..
            }) => self.scan_with_nulls(nulls, state, scan).await,
            _ => self.format().create_physical_plan(state, scan).await,
        }
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        sink: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let format = self.format();
        format
            .create_writer_physical_plan(input, state, sink, order)
            .await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.format().file_source(schema)
    }
}

/// The function that converts the text of a CSV file to a value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CsvValue {
    signature: Signature,
    /// The regular expression that matches nulls.
    nulls: String,
    data_type: DataType,
}

impl CsvValue {
    fn function(nulls: &str, data_type: &DataType) -> ScalarUDF {
        ScalarUDF::from(Self {
            signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable),
            nulls: nulls.to_owned(),
            data_type: data_type.clone(),
        })
    }
}

impl ScalarUDFImpl for CsvValue {
    fn name(&self) -> &str {
        "csv_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = ColumnarValue::values_to_arrays(&arguments.args)?;
        let texts = texts.first().and_then(|texts| texts.as_string_opt::<i32>());
        let texts =
            texts.ok_or_else(|| DataFusionError::Internal("csv_value takes text".into()))?;
        let nulls = null_regex(&self.nulls)?;
        // The reader treats empty text as null.
        let values = texts.iter().map(|text| text.or(Some("")));
        let values = values.map(|text| text.filter(|text| !nulls.is_match(text)));
        let values: StringArray = values.collect();
        // Columns without values keep their type: text is not cast to it.
        if values.null_count() == values.len() {
            let values = new_null_array(&self.data_type, values.len());
            return Ok(ColumnarValue::Array(values));
        }
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let values = cast_with_options(&values, &self.data_type, &options)?;
        Ok(ColumnarValue::Array(values))
    }
}

fn null_regex(nulls: &str) -> Result<Regex> {
    Regex::new(nulls).map_err(|error| DataFusionError::External(error.into()))
}

/// Creates [`TextFormat`]s for `STORED AS CSV` and `STORED AS JSON`.
pub struct TextFormatFactory(Arc<dyn FileFormatFactory>);

impl TextFormatFactory {
    /// The factories of CSV and JSON.
    pub fn all() -> [Arc<dyn FileFormatFactory>; 2] {
        [
            Arc::new(Self(Arc::new(CsvFormatFactory::new()))),
            Arc::new(Self(Arc::new(JsonFormatFactory::new()))),
        ]
    }
}

impl fmt::Debug for TextFormatFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TextFormatFactory")
            .field(&self.get_ext())
            .finish()
    }
}

impl GetExt for TextFormatFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for TextFormatFactory {
    fn create(
        &self,
        state: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(inferring(self.0.create(state, options)?))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        inferring(self.0.default())
    }
}

fn inferring(format: Arc<dyn FileFormat>) -> Arc<dyn FileFormat> {
    let csv = format.downcast_ref::<CsvFormat>();
    let json = format.downcast_ref::<JsonFormat>();
    match (csv, json) {
        (Some(csv), _) => Arc::new(TextFormat::csv(csv.options().clone(), Fields::empty())),
        (_, Some(json)) => Arc::new(TextFormat::json(json.options().clone(), Fields::empty())),
        _ => format,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_become_lines_however_they_are_cut() {
        let array = br#" [ {"a":"],[\"\\","b":[1,2]} , {"a":{"c":3}},{}] "#;
        let mut whole = Lines::default();
        let expected = whole.of_array(array);
        let text = std::str::from_utf8(&expected).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [r#"{"a":"],[\"\\","b":[1,2]}"#, r#"{"a":{"c":3}}"#, "{}"]
        );
        for at in 0..array.len() {
            let mut lines = Lines::default();
            let (start, end) = array.split_at(at);
            let parts = [lines.of_array(start), lines.of_array(end)].concat();
            assert_eq!(parts, expected, "{at}");
        }
    }
}
