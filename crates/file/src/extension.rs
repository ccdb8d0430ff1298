//! Encoded columns as Arrow arrays: the Arrow extension type `vectile.column`. What moves Arrow data, such as IPC
//! streams, Flight or the C data interface, moves columns that stay compressed.
//!
//! A value of such an array is one chunk: values of a column, encoded as in a Vectile file, and how many they are. A
//! record batch all of whose columns are encoded has one row for each row group, and arrays and batches of several
//! are concatenated or sliced as any others.
//!
//! [`encode_batch`] and [`decode_batch`] convert record batches, [`encode`] and [`decode`] arrays. [`ColumnType`] is the
//! extension type of a field. `docs/file-format.md` describes the storage and the metadata.
//!
//! Decoding trusts no metadata and no bytes, and these need no alignment. Lengths and offsets of arrays are checked by
//! the reader that made them: that of IPC does, the C data interface cannot.
//!
//! ```
//! use arrow::array::record_batch;
//! use vectile_file::extension::{ColumnType, decode_batch, encode_batch};
//!
//! let batch = record_batch!(("place", Utf8, ["Porto", "Porto", "Lisbon"]), ("miles", Float64, [1.5, 2.25, 0.5]))?;
//! let encoded = encode_batch(&batch)?;
//! assert_eq!(encoded.num_rows(), 1);
//! let place: ColumnType = encoded.schema().field(0).try_extension_type()?;
//! assert_eq!(place.data_type(), batch.column(0).data_type());
//!
//! assert_eq!(decode_batch(&encoded)?, batch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, LargeBinaryArray, RecordBatch, RecordBatchOptions,
    StructArray, new_empty_array,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow_schema::extension::{
    EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY, ExtensionType,
};
use serde_json::{Map, Value};
use vectile_encodings::{Column, EncodeOptions, MAX_DECODED_BYTES, Selection};

use crate::error::{Error, FilePosition, Result};
use crate::join::join;
use crate::metadata::MAX_ROW_GROUP_ROWS;
use crate::{FORMAT_VERSION, schema};

/// The first format version that has encoded columns in arrays.
const FIRST_VERSION: u32 = 2;

/// How many times larger than its bytes an array may get, if that is more than [`MAX_DECODED_BYTES`].
const MAX_GROWTH: u64 = 64;

/// The key of the format version in the metadata of the type, and that of a field's name, which they lack.
const VERSION: &str = "version";
const NAME: &str = "name";

/// The Arrow extension type `vectile.column`: what the field of an encoded column says of the values, and the format
/// version of their chunks.
///
/// The values have a field of their own, the logical one. Its type, nullability and own extension type, if it has one,
/// are in the metadata of the extension type, since the field of the encoded column cannot have them. Its name and other
/// metadata are those of the encoded column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// The logical field, without its name and the metadata that the encoded column keeps.
    field: Field,
    version: u32,
    /// All of it, as in the metadata of a field.
    json: String,
}

impl ColumnType {
    /// The type of a column that [`encode`] makes of arrays of a logical field.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if a column cannot have the type of the field.
    pub fn of(field: &Field) -> Result<Self> {
        let metadata = field.metadata().clone();
        let own = metadata.into_iter().filter(|(key, _)| is_extension(key));
        let field = field.clone().with_metadata(own.collect());
        Self::new(field, FORMAT_VERSION)
    }

    fn new(field: Field, version: u32) -> Result<Self> {
        let mut json = schema::field_to_json(&field)?;
        json.remove(NAME);
        json.insert(VERSION.to_owned(), version.into());
        Ok(Self {
            field: field.with_name(""),
            version,
            json: Value::Object(json).to_string(),
        })
    }

    /// Parses the metadata of the extension type, which are not trusted.
    fn parse(json: Option<&str>, position: FilePosition<'_>) -> Result<Self> {
        let json = json.ok_or_else(|| position.corrupt("its type has no metadata"))?;
        let mut json: Map<String, Value> = serde_json::from_str(json)
            .map_err(|error| position.corrupt(format!("its metadata are not readable: {error}")))?;
        let version = json.remove(VERSION).as_ref().and_then(Value::as_u64);
        let version = version.and_then(|version| u32::try_from(version).ok());
        let version = match version {
            Some(version @ FIRST_VERSION..=FORMAT_VERSION) => version,
            Some(newer) if newer > FORMAT_VERSION => return Err(position.version(newer)),
            _ => return Err(position.corrupt("its metadata have no format version")),
        };
        json.insert(NAME.to_owned(), "".into());
        Self::new(schema::parse_field(json, position)?, version)
    }

    /// The type of an encoded column, by its field.
    fn of_encoded(field: &Field) -> Result<Self> {
        let position = FilePosition::array(field.name());
        if field.extension_type_name() != Some(Self::NAME) {
            let reason = format!("column '{}' is not of type {}", field.name(), Self::NAME);
            return Err(Error::InvalidArgument(reason));
        }
        Self::parse(field.extension_type_metadata(), position)
    }

    /// The type of the values.
    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// Returns true if values may be null. Chunks never are.
    pub fn is_nullable(&self) -> bool {
        self.field.is_nullable()
    }

    /// The Arrow type of arrays of encoded columns.
    pub fn storage() -> DataType {
        DataType::Struct(storage_fields())
    }

    /// The field of the encoded column.
    fn encoded_field(self, logical: &Field) -> Result<Field> {
        let mut field = Field::new(logical.name(), Self::storage(), false)
            .with_metadata(logical.metadata().clone());
        field.try_with_extension_type(self)?;
        Ok(field)
    }

    /// The logical field.
    fn decoded_field(&self, encoded: &Field) -> Field {
        let mut metadata = encoded.metadata().clone();
        metadata.retain(|key, _| !is_extension(key));
        let own = self.field.metadata().clone();
        metadata.extend(own);
        let field = self.field.clone().with_name(encoded.name());
        field.with_metadata(metadata)
    }
}

/// The metadata of the type are the type.
impl ExtensionType for ColumnType {
    const NAME: &'static str = "vectile.column";

    type Metadata = Self;

    fn metadata(&self) -> &Self {
        self
    }

    fn serialize_metadata(&self) -> Option<String> {
        Some(self.json.clone())
    }

    fn deserialize_metadata(metadata: Option<&str>) -> Result<Self, ArrowError> {
        Self::parse(metadata, FilePosition::array(""))
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
    }

    fn supports_data_type(&self, data_type: &DataType) -> Result<(), ArrowError> {
        check_storage(data_type).map_err(ArrowError::InvalidArgumentError)
    }

    fn try_new(data_type: &DataType, metadata: Self) -> Result<Self, ArrowError> {
        metadata.supports_data_type(data_type)?;
        Ok(metadata)
    }
}

/// Returns true if an extension type says something at this key of a field's metadata.
fn is_extension(key: &str) -> bool {
    [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY].contains(&key)
}

fn storage_fields() -> Fields {
    let rows = Field::new("rows", DataType::Int64, false);
    Fields::from(vec![rows, Field::new("data", DataType::LargeBinary, false)])
}

/// Checks names and types. Tools lose the nullability of fields of structs, and add metadata to them.
fn check_storage(data_type: &DataType) -> Result<(), String> {
    let fields = storage_fields();
    let expected = fields.iter().map(|field| (field.name(), field.data_type()));
    match data_type {
        DataType::Struct(fields)
            if fields
                .iter()
                .map(|field| (field.name(), field.data_type()))
                .eq(expected) =>
        {
            Ok(())
        }
        _ => {
            let storage = ColumnType::storage();
            Err(format!(
                "an encoded column is stored as {storage}, not as {data_type}"
            ))
        }
    }
}

/// Encodes an array as one chunk. An array without rows is an array without chunks.
///
/// # Errors
///
/// [`Error::InvalidArgument`] if a column cannot have the array's type, or a chunk not so many rows: encode slices then.
/// [`Error::Encoding`] if a pinned encoding does not apply.
pub fn encode(array: &dyn Array, options: &EncodeOptions) -> Result<StructArray> {
    let field = Field::new("", array.data_type().clone(), true);
    encode_column(array, &ColumnType::of(&field)?, options, "")
}

fn encode_column(
    array: &dyn Array,
    column_type: &ColumnType,
    options: &EncodeOptions,
    name: &str,
) -> Result<StructArray> {
    let rows = array.len();
    if rows == 0 {
        return storage_array(vec![], OffsetBuffer::new_empty(), Buffer::default());
    }
    if rows > MAX_ROW_GROUP_ROWS {
        let reason = format!("{rows} rows to encode as one chunk, at most {MAX_ROW_GROUP_ROWS}");
        return Err(Error::InvalidArgument(reason));
    }
    let encoding = |error| FilePosition::array(name).encoding(error);
    let data = vectile_encodings::encode(array, options).map_err(encoding)?;
    let data = Buffer::from_vec(data);
    // Parsing costs little and proves that a reader will accept the chunk.
    Column::parse(data.clone(), column_type.data_type(), rows).map_err(encoding)?;
    let offsets = OffsetBuffer::from_lengths([data.len()]);
    storage_array(vec![rows as i64], offsets, data)
}

fn storage_array(rows: Vec<i64>, offsets: OffsetBuffer<i64>, data: Buffer) -> Result<StructArray> {
    let rows: ArrayRef = Arc::new(Int64Array::from(rows));
    let data = LargeBinaryArray::try_new(offsets, data, None)?;
    let columns = vec![rows, Arc::new(data)];
    Ok(StructArray::try_new(storage_fields(), columns, None)?)
}

/// Decodes the values of all chunks, one behind the other.
///
/// # Errors
///
/// [`Error::InvalidArgument`] if the array is not stored as [`ColumnType::storage`] says; [`Error::Corrupt`] for damaged
/// chunks, and for nulls among them; [`Error::Encoding`] if the values take more than a gigabyte and their bytes do not
/// account for that, or one Arrow array cannot have as many, such as distinct values of a dictionary: decode slices then.
pub fn decode(array: &dyn Array, column_type: &ColumnType) -> Result<ArrayRef> {
    let position = FilePosition::array("");
    Chunks::of(array, position)?.decode(column_type, position)
}

/// Encodes a record batch as one row group: a batch of one row, or of none if the batch has none. Names of columns,
/// metadata and nullability come back in [`decode_batch`].
///
/// # Errors
///
/// As [`encode`]; [`Error::InvalidArgument`] also if the batch has rows but no columns, as nothing would say how many.
pub fn encode_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    if batch.num_columns() == 0 && batch.num_rows() > 0 {
        let reason = "cannot encode the rows of a batch without columns";
        return Err(Error::InvalidArgument(reason.to_owned()));
    }
    let options = EncodeOptions::default();
    let schema = batch.schema_ref();
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let column_type = ColumnType::of(field)?;
        let encoded = encode_column(array, &column_type, &options, field.name())?;
        columns.push(Arc::new(encoded));
        fields.push(column_type.encoded_field(field)?);
    }
    let chunks = usize::from(batch.num_rows() > 0);
    batch_of(fields, schema, columns, chunks)
}

/// Decodes the row groups of a record batch all of whose columns are encoded.
///
/// # Errors
///
/// As [`decode`]; [`Error::InvalidArgument`] also if a column is not of type `vectile.column`, [`Error::Corrupt`] if
/// columns differ in the rows of a row group, and [`Error::UnsupportedVersion`].
pub fn decode_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    let mut types = Vec::with_capacity(batch.num_columns());
    let mut chunks = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        types.push(ColumnType::of_encoded(field)?);
        chunks.push(Chunks::of(array, FilePosition::array(field.name()))?);
    }
    let rows = common_rows(schema, &chunks)?;
    if chunks.is_empty() && batch.num_rows() > 0 {
        let reason = format!("{} row groups without columns", batch.num_rows());
        return Err(FilePosition::array("").corrupt(reason));
    }
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for ((field, chunks), column_type) in schema.fields().iter().zip(chunks).zip(types) {
        columns.push(chunks.decode(&column_type, FilePosition::array(field.name()))?);
        fields.push(column_type.decoded_field(field));
    }
    batch_of(fields, schema, columns, rows)
}

/// The rows of all row groups together, which must be the same ones in each column.
fn common_rows(schema: &Schema, columns: &[Chunks<'_>]) -> Result<usize> {
    let Some(first) = columns.first() else {
        return Ok(0);
    };
    for (field, column) in schema.fields().iter().zip(columns) {
        let mut pairs = column.rows.iter().zip(&first.rows).enumerate();
        if let Some((chunk, (rows, others))) = pairs.find(|(_, (rows, others))| rows != others) {
            let position = FilePosition::array(field.name()).row_group(chunk);
            let reason = format!("{rows} rows, where the first column has {others}");
            return Err(position.corrupt(reason));
        }
    }
    Ok(first.rows.iter().sum())
}

/// A batch with the metadata of `schema`.
fn batch_of(
    fields: Vec<Field>,
    schema: &Schema,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::new(schema),
        columns,
        &options,
    )?)
}

/// The chunks of an array. There are no nulls among them, and each has 1 to [`MAX_ROW_GROUP_ROWS`] rows.
struct Chunks<'a> {
    rows: Vec<usize>,
    data: &'a LargeBinaryArray,
}

impl<'a> Chunks<'a> {
    fn of(array: &'a dyn Array, position: FilePosition<'_>) -> Result<Self> {
        check_storage(array.data_type()).map_err(Error::InvalidArgument)?;
        let columns = array.as_struct_opt().map(StructArray::columns);
        let Some([rows, data]) = columns else {
            return Err(Error::Internal("a struct has other fields".into()));
        };
        let parts = (rows.as_primitive_opt::<Int64Type>(), data.as_binary_opt());
        let (Some(rows), Some(data)) = parts else {
            return Err(Error::Internal("fields have other types".into()));
        };
        let nulls = array.null_count() + rows.null_count() + data.null_count();
        if nulls > 0 {
            return Err(position.corrupt("nulls among its chunks"));
        }
        let rows = rows.values().iter().enumerate();
        let rows = rows.map(|(chunk, rows)| {
            let checked = usize::try_from(*rows).ok();
            let checked = checked.filter(|rows| (1..=MAX_ROW_GROUP_ROWS).contains(rows));
            checked.ok_or_else(|| {
                let reason = format!("{rows} rows; 1 to {MAX_ROW_GROUP_ROWS} are allowed");
                position.row_group(chunk).corrupt(reason)
            })
        });
        Ok(Self {
            rows: rows.collect::<Result<_>>()?,
            data,
        })
    }

    /// Decodes all values. One chunk after the other, as a few bytes of each can claim many rows.
    fn decode(&self, column_type: &ColumnType, position: FilePosition<'_>) -> Result<ArrayRef> {
        let (data_type, version) = (column_type.data_type(), column_type.version);
        let limit = self.limit();
        let mut decoded_bytes: u64 = 0;
        let mut arrays = Vec::with_capacity(self.rows.len());
        for (chunk, &rows) in self.rows.iter().enumerate() {
            let position = position.row_group(chunk);
            let encoding = |error| position.encoding(error);
            let data = self
                .bytes(chunk)
                .ok_or_else(|| position.corrupt("its offsets are not those of an Arrow array"))?;
            let column = Column::parse_version(data, data_type, rows, version).map_err(encoding)?;
            let bytes = column.decoded_bytes(&Selection::of_range(0..rows));
            decoded_bytes = decoded_bytes.saturating_add(bytes.map_err(encoding)?);
            if decoded_bytes > limit {
                let bytes = decoded_bytes;
                return Err(encoding(vectile_encodings::Error::TooLarge {
                    bytes,
                    limit,
                }));
            }
            let array = column.decode(0..rows).map_err(encoding)?;
            if array.null_count() > 0 && !column_type.is_nullable() {
                return Err(position.corrupt("nulls in a column that is not nullable"));
            }
            arrays.push(array);
        }
        match arrays.is_empty() {
            true => Ok(new_empty_array(data_type)),
            false => join(&arrays).map_err(|error| position.encoding(error)),
        }
    }

    /// The most bytes of values to decode.
    fn limit(&self) -> u64 {
        let offsets = self.data.value_offsets();
        let ends = offsets.first().zip(offsets.last());
        let stored = ends.map_or(0, |(start, end)| end.abs_diff(*start));
        stored.saturating_mul(MAX_GROWTH).max(MAX_DECODED_BYTES)
    }

    /// The bytes of one chunk, which share the array's memory.
    fn bytes(&self, chunk: usize) -> Option<Buffer> {
        let offset = |index: usize| usize::try_from(*self.data.value_offsets().get(index)?).ok();
        let (start, end) = (offset(chunk)?, offset(chunk.checked_add(1)?)?);
        let values = self.data.values();
        let len = end.checked_sub(start).filter(|_| end <= values.len())?;
        Some(values.slice_with_length(start, len))
    }
}

#[cfg(test)]
mod tests;
