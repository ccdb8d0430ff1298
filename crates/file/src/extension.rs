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
//! Decoding trusts no metadata and no bytes, and these need no alignment. What an array has in memory, such as its
//! lengths and offsets, is checked by the reader that made it: that of IPC does, the C data interface cannot.
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
mod tests {
    use std::collections::HashMap;
    use std::io::Cursor;

    use arrow::array::{
        ArrayData, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray,
        FixedSizeBinaryArray, FixedSizeListArray, Int8Array, Int16Array, Int32Array, ListArray,
        NullArray, RunArray, StringArray, StringViewArray, make_array, record_batch,
    };
    use arrow::compute::{concat, concat_batches};
    use arrow::datatypes::{Int8Type, Int16Type, Int32Type};
    use arrow::ffi::{FFI_ArrowSchema, from_ffi, to_ffi};
    use arrow::ipc::reader::StreamReader;
    use arrow::ipc::writer::StreamWriter;
    use proptest::prelude::*;

    use super::*;

    fn type_of(array: &dyn Array) -> ColumnType {
        ColumnType::of(&Field::new("c", array.data_type().clone(), true)).unwrap()
    }

    fn encoded(array: &dyn Array) -> StructArray {
        encode(array, &EncodeOptions::default()).unwrap()
    }

    /// An array of these chunks.
    fn chunks(chunks: &[(i64, &[u8])]) -> StructArray {
        let rows = chunks.iter().map(|(rows, _)| *rows).collect();
        let lens = chunks.iter().map(|(_, data)| data.len());
        let data: Vec<&[u8]> = chunks.iter().map(|(_, data)| *data).collect();
        storage_array(rows, OffsetBuffer::from_lengths(lens), data.concat().into()).unwrap()
    }

    /// Several times the same chunk.
    fn repeated(array: &dyn Array, times: usize) -> StructArray {
        let chunk = encoded(array);
        let data = chunk.column(1).as_binary::<i64>().value(0);
        chunks(&vec![(array.len() as i64, data); times])
    }

    fn joined(arrays: &[StructArray]) -> ArrayRef {
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array as &dyn Array).collect();
        concat(&arrays).unwrap()
    }

    fn list(values: ArrayRef, lens: impl IntoIterator<Item = usize>) -> ArrayRef {
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lens);
        Arc::new(ListArray::new(item, offsets, values, None))
    }

    /// Arrays of many types with these values.
    fn arrays(values: &[Option<i32>]) -> Vec<ArrayRef> {
        let ints = Arc::new(Int32Array::from(values.to_vec()));
        let text = |value: &Option<i32>| value.map(|value| format!("{}", value % 50));
        let texts: Vec<Option<String>> = values.iter().map(text).collect();
        let borrowed = || texts.iter().map(Option::as_deref);
        let strings: ArrayRef = Arc::new(borrowed().collect::<StringArray>());
        let decimals = values.iter().map(|value| value.map(i128::from));
        let decimals: Decimal128Array = decimals.collect();
        let fields = Fields::from(vec![
            Field::new("i", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let parts: Vec<ArrayRef> = vec![Arc::clone(&ints) as ArrayRef, Arc::clone(&strings)];
        let lens = (0..values.len()).map(|row| usize::from(row % 2 == 0) * 2);
        let lens = lens.take(values.len() / 2 * 2);
        let even = values.len() / 2 * 2;
        vec![
            Arc::clone(&ints) as ArrayRef,
            Arc::clone(&strings),
            Arc::new(borrowed().collect::<StringViewArray>()),
            Arc::new(BinaryArray::from_opt_vec(
                borrowed().map(|text| text.map(str::as_bytes)).collect(),
            )),
            Arc::new(
                values
                    .iter()
                    .map(|v| v.map(|v| v % 3 == 0))
                    .collect::<BooleanArray>(),
            ),
            Arc::new(
                values
                    .iter()
                    .map(|v| v.map(f64::from))
                    .collect::<arrow::array::Float64Array>(),
            ),
            Arc::new(decimals.with_precision_and_scale(20, 3).unwrap()),
            Arc::new(borrowed().collect::<DictionaryArray<Int32Type>>()),
            Arc::new(borrowed().collect::<RunArray<Int32Type>>()),
            Arc::new(StructArray::new(fields, parts, None)),
            list(strings.slice(0, even), lens),
            Arc::new(NullArray::new(values.len())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn arrays_round_trip(
            values in prop::collection::vec(prop::option::weighted(0.9, any::<i32>()), 0..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            for array in arrays(&values) {
                let of_type = type_of(&array);
                prop_assert_eq!(&decode(&encoded(&array), &of_type).unwrap(), &array);
                let cut = cut.index(array.len() + 1);
                let parts = [array.slice(0, cut), array.slice(cut, array.len() - cut)];
                let parts = parts.map(|part| encoded(&part));
                let decoded = decode(&joined(&parts), &of_type).unwrap();
                prop_assert_eq!(decoded.data_type(), array.data_type());
                prop_assert_eq!(&decoded, &array);
            }
        }

        #[test]
        fn damaged_chunks_do_no_harm(
            seed in prop::collection::vec(prop::option::weighted(0.9, 0..1000i32), 1..1100),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            len in any::<prop::sample::Index>(),
            rows in prop_oneof![Just(None), (-1..3000i64).prop_map(Some)],
        ) {
            for array in arrays(&seed) {
                let chunk = encoded(&array);
                let sound = chunk.column(1).as_binary::<i64>();
                let sound = if sound.is_empty() { &[][..] } else { sound.value(0) };
                let mut bytes = sound.to_vec();
                for (index, byte) in &damage {
                    if !bytes.is_empty() {
                        let at = index.index(bytes.len());
                        bytes[at] ^= byte;
                    }
                }
                let rows = rows.unwrap_or(array.len() as i64);
                let cut = &sound[..len.index(sound.len() + 1)];
                for bytes in [&bytes[..], cut] {
                    let of_type = type_of(&array);
                    let sound = (array.len() as i64, sound);
                    let decoded = decode(&chunks(&[(rows, bytes), sound]), &of_type);
                    if let Ok(decoded) = decoded {
                        prop_assert_eq!(decoded.len(), rows as usize + array.len());
                        decoded.to_data().validate_full().unwrap();
                    }
                }
            }
        }
    }

    /// A batch that has what may get lost: nullability, metadata, another extension type.
    fn batch() -> RecordBatch {
        let said = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
        let uuid = FixedSizeBinaryArray::try_from_iter((0..3u8).map(|i| [i; 16])).unwrap();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![1, 2, 3])),
            Arc::new(StringArray::from(vec![Some("Porto"), None, Some("Porto")])),
            Arc::new(uuid),
        ];
        let fields = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("place", DataType::Utf8, true).with_metadata(said("unit", "none")),
            Field::new("id", DataType::FixedSizeBinary(16), true)
                .with_metadata(said(EXTENSION_TYPE_NAME_KEY, "arrow.uuid")),
        ];
        let schema = Schema::new_with_metadata(fields, said("origin", "test"));
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    fn through_ipc(batches: &[RecordBatch]) -> Vec<RecordBatch> {
        let mut writer = StreamWriter::try_new(vec![], &batches[0].schema()).unwrap();
        batches
            .iter()
            .for_each(|batch| writer.write(batch).unwrap());
        let bytes = writer.into_inner().unwrap();
        let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
        reader.map(Result::unwrap).collect()
    }

    #[test]
    fn batches_round_trip_through_ipc() {
        let (first, second) = (batch(), batch().slice(1, 2));
        let encoded = [&first, &second].map(|batch| encode_batch(batch).unwrap());
        let read = through_ipc(&encoded);
        assert_eq!(read, encoded);
        let schema = read[0].schema();
        assert_eq!(schema.metadata(), first.schema().metadata());
        assert_eq!(schema.field(1).metadata()["unit"], "none");
        assert!(
            schema
                .fields()
                .iter()
                .all(|field| field.has_valid_extension_type::<ColumnType>())
        );
        let read = concat_batches(&schema, &read).unwrap();
        assert_eq!(read.num_rows(), 2);
        let expected = concat_batches(&first.schema(), [&first, &second]).unwrap();
        assert_eq!(decode_batch(&read).unwrap(), expected);
        assert_eq!(decode_batch(&read.slice(1, 1)).unwrap(), second);
    }

    /// Also of columns that are encoded.
    #[test]
    fn any_batch_round_trips() {
        for batch in [
            batch(),
            batch().slice(0, 0),
            encode_batch(&batch()).unwrap(),
        ] {
            let encoded = encode_batch(&batch).unwrap();
            assert_eq!(encoded.num_rows(), batch.num_rows().min(1));
            assert_eq!(decode_batch(&encoded).unwrap(), batch);
        }
    }

    #[test]
    fn the_order_of_a_dictionary_is_kept() {
        let array: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
        let field = Field::new("d", array.data_type().clone(), false).with_dict_is_ordered(true);
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap();
        let read = through_ipc(&[encode_batch(&batch).unwrap()]);
        let decoded = decode_batch(&read[0]).unwrap();
        assert_eq!(decoded.schema().field(0).dict_is_ordered(), Some(true));
    }

    #[test]
    fn rows_need_columns() {
        let of_rows = |rows| batch_of(vec![], &Schema::empty(), vec![], rows).unwrap();
        let none = of_rows(0);
        assert_eq!(decode_batch(&encode_batch(&none).unwrap()).unwrap(), none);
        let error = encode_batch(&of_rows(3)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        let error = decode_batch(&of_rows(3)).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }

    /// An array and its field as they arrive in another library.
    fn through_ffi(data: ArrayData, field: &Field) -> (ArrayRef, Field) {
        let (array, storage) = to_ffi(&data).unwrap();
        let schema = FFI_ArrowSchema::try_from(field).unwrap();
        assert_eq!(DataType::try_from(&storage).unwrap(), *field.data_type());
        // SAFETY: `to_ffi` exported both from an array of this type.
        let data = unsafe { from_ffi(array, &schema) }.unwrap();
        (make_array(data), Field::try_from(&schema).unwrap())
    }

    #[test]
    fn arrays_round_trip_through_the_c_data_interface() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter((0..3000).map(|i| Some(i * i))));
        let array = joined(&[
            encoded(&values.slice(0, 1100)),
            encoded(&values.slice(1100, 1900)),
        ]);
        let field = Field::new("squares", ColumnType::storage(), false);
        let field = field.with_extension_type(type_of(&values));
        for data in [array.to_data(), array.slice(1, 1).to_data()] {
            let is_all = data.len() == 2;
            let (array, read) = through_ffi(data, &field);
            assert_eq!(read, field);
            let of_type: ColumnType = read.try_extension_type().unwrap();
            let expected = if is_all {
                values.clone()
            } else {
                values.slice(1100, 1900)
            };
            assert_eq!(&decode(&array, &of_type).unwrap(), &expected);
        }
    }

    /// A library may pass any pointer.
    #[test]
    fn buffers_need_no_alignment() {
        let seed: Vec<_> = (0..5000).map(|i| (i % 7 > 0).then_some(i * i)).collect();
        let shifted = |bytes: &[u8], by: usize| {
            let bytes = [&vec![0; by], bytes].concat();
            Buffer::from_vec(bytes).slice(by)
        };
        for array in arrays(&seed) {
            let chunk = encoded(&array);
            let field = Field::new("c", ColumnType::storage(), false);
            for by in 0..=8 {
                let children = chunk.to_data().child_data().to_vec();
                let children = children.into_iter().map(|child| {
                    let last = child.buffers().len() - 1;
                    let mut buffers = child.buffers().to_vec();
                    buffers[last] = shifted(&buffers[last], by);
                    let builder = child.into_builder().buffers(buffers);
                    // SAFETY: it is only exported; the values are those of a sound array.
                    unsafe { builder.build_unchecked() }
                });
                let data = chunk
                    .to_data()
                    .into_builder()
                    .child_data(children.collect());
                // SAFETY: as above.
                let data = unsafe { data.build_unchecked() };
                let (read, _) = through_ffi(data, &field);
                assert_eq!(&decode(&read, &type_of(&array)).unwrap(), &array, "{by}");
            }
        }
    }

    fn is_corrupt<T>(result: Result<T>, reason: &str) {
        let error = result.err().unwrap();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }

    #[test]
    fn rows_of_chunks_are_checked() {
        let array = Int64Array::from(vec![1, 5, 2]);
        let of_type = type_of(&array);
        let chunk = encoded(&array);
        let data = chunk.column(1).as_binary::<i64>().value(0);
        for rows in [i64::MIN, -1, 0, MAX_ROW_GROUP_ROWS as i64 + 1, i64::MAX] {
            is_corrupt(
                decode(&chunks(&[(3, data), (rows, data)]), &of_type),
                "allowed",
            );
        }
        for rows in [1, 2, 4, 1025, MAX_ROW_GROUP_ROWS as i64] {
            is_corrupt(
                decode(&chunks(&[(rows, data)]), &of_type),
                "encoded column, row group 0",
            );
        }
        is_corrupt(
            decode(&chunks(&[(3, data), (3, &[])]), &of_type),
            "row group 1",
        );
    }

    #[test]
    fn nulls_among_chunks_are_damage() {
        let values = Int64Array::from(vec![1]);
        let of_type = type_of(&values);
        let chunk = encoded(&values);
        let (fields, columns, _) = chunk.clone().into_parts();
        let null = StructArray::new(fields, columns.clone(), Some(vec![false].into()));
        is_corrupt(decode(&null, &of_type), "null");
        // a tool that knows no nullability
        let fields = storage_fields();
        let fields = fields
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true));
        let fields = Fields::from(fields.collect::<Vec<_>>());
        let nullable = StructArray::new(fields.clone(), columns.clone(), None);
        assert_eq!(
            decode(&nullable, &of_type).unwrap().as_ref(),
            &values as &dyn Array
        );
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![None]));
        let null = StructArray::new(fields.clone(), vec![rows, columns[1].clone()], None);
        is_corrupt(decode(&null, &of_type), "null");
        let data: ArrayRef = Arc::new(LargeBinaryArray::from_opt_vec(vec![None]));
        let null = StructArray::new(fields, vec![columns[0].clone(), data], None);
        is_corrupt(decode(&null, &of_type), "null");
        // and so are nulls among values that have none
        let values = Int64Array::from(vec![None, Some(1)]);
        let of_type = ColumnType::of(&Field::new("c", DataType::Int64, false)).unwrap();
        is_corrupt(decode(&encoded(&values), &of_type), "not nullable");
    }

    #[test]
    fn other_arrays_are_refused() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let renamed = StructArray::from(vec![(
            Arc::new(Field::new("rows", DataType::Int64, false)),
            Arc::clone(&ints),
        )]);
        let others: [&dyn Array; 2] = [&ints, &renamed];
        for array in others {
            let error = decode(array, &type_of(&ints)).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        }
        let batch = record_batch!(("a", Int32, [1])).unwrap();
        let error = decode_batch(&batch).unwrap_err();
        assert_eq!(
            error.to_string(),
            "column 'a' is not of type vectile.column"
        );
        let storage = encode_batch(&batch).unwrap();
        let field = Field::new("a", ColumnType::storage(), false);
        let plain = RecordBatch::try_new(
            Arc::new(Schema::new(vec![field])),
            storage.columns().to_vec(),
        );
        let error = decode_batch(&plain.unwrap()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        let rows = NullArray::new(MAX_ROW_GROUP_ROWS + 1);
        let error = encode(&rows, &EncodeOptions::default()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }

    #[test]
    fn metadata_are_checked() {
        let array = encoded(&Int32Array::from(vec![1]));
        let decode_with = |metadata: Option<&str>| {
            let mut said = HashMap::from([(
                EXTENSION_TYPE_NAME_KEY.to_owned(),
                ColumnType::NAME.to_owned(),
            )]);
            said.extend(
                metadata.map(|text| (EXTENSION_TYPE_METADATA_KEY.to_owned(), text.to_owned())),
            );
            let field = Field::new("c", ColumnType::storage(), false).with_metadata(said);
            let is_valid = field.has_valid_extension_type::<ColumnType>();
            let columns: Vec<ArrayRef> = vec![Arc::new(array.clone())];
            let decoded = batch_of(vec![field], &Schema::empty(), columns, 1);
            let decoded = decode_batch(&decoded.unwrap());
            assert_eq!(is_valid, decoded.is_ok(), "{metadata:?}");
            decoded
        };
        let sound = r#"{"data_type":"Int32","nullable":false,"version":2}"#;
        let of_type = ColumnType::of(&Field::new("c", DataType::Int32, false)).unwrap();
        assert_eq!(of_type.serialize_metadata().as_deref(), Some(sound));
        assert_eq!(
            ColumnType::deserialize_metadata(Some(sound)).unwrap(),
            of_type
        );
        decode_with(Some(sound)).unwrap();
        for metadata in [
            "",
            "{",
            "[]",
            "2",
            r#"{"version":2}"#,
            r#"{"data_type":"Int32"}"#,
            r#"{"data_type":"Int32","version":0}"#,
            r#"{"data_type":"Int32","version":1}"#,
            r#"{"data_type":"Int32","version":"2"}"#,
            r#"{"data_type":"Int32","version":4294967298}"#,
            r#"{"data_type":"Int33","version":2}"#,
            r#"{"data_type":{"FixedSizeBinary":-1},"version":2}"#,
            r#"{"data_type":{"Union":[[],"Dense"]},"version":2}"#,
        ] {
            is_corrupt(decode_with(Some(metadata)), "encoded column, column 'c'");
        }
        is_corrupt(decode_with(None), "no metadata");
        let deep = |levels: usize| "[".repeat(levels);
        is_corrupt(decode_with(Some(&deep(100_000))), "not readable");
        let error = decode_with(Some(r#"{"data_type":"Int32","version":3}"#)).unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedVersion { found: 3, .. }),
            "{error}"
        );
        let mut field = Field::new("c", DataType::Int32, false);
        assert!(field.try_with_extension_type(of_type).is_err());
    }

    #[test]
    fn columns_have_the_same_rows() {
        let batch = record_batch!(("a", Int32, [1, 2]), ("b", Int32, [3, 4])).unwrap();
        let whole = encode_batch(&batch).unwrap();
        let part = encode_batch(&batch.slice(0, 1)).unwrap();
        let columns = vec![whole.column(0).clone(), part.column(1).clone()];
        let mixed = RecordBatch::try_new(whole.schema(), columns).unwrap();
        is_corrupt(decode_batch(&mixed), "row group 0, column 'b': 1 rows");
    }

    fn is_refused(array: &dyn Array, of_type: &ColumnType) {
        let error = decode(array, of_type).unwrap_err();
        assert!(matches!(error, Error::Encoding { .. }), "{error}");
    }

    /// A few bytes claim any number of rows.
    #[test]
    fn decoded_sizes_are_bounded() {
        let zeros = Int64Array::from_iter_values(std::iter::repeat_n(0, 1 << 20));
        let of_type = type_of(&zeros);
        let array = repeated(&zeros, 1000);
        is_refused(&array, &of_type);
        assert_eq!(decode(&array.slice(0, 3), &of_type).unwrap().len(), 3 << 20);
    }

    /// Where arrow-rs would panic, or give wrong arrays.
    #[test]
    fn overflows_are_errors() {
        // offsets of lists
        let many = list(Arc::new(NullArray::new(1 << 28)), [1 << 28]);
        let of_type = type_of(&many);
        is_refused(&repeated(&many, 8), &of_type);
        assert_eq!(decode(&repeated(&many, 7), &of_type).unwrap().len(), 7);
        // run ends
        let ends = Int16Array::from(vec![20_000]);
        let runs = RunArray::<Int16Type>::try_new(&ends, &StringArray::from(vec!["a"])).unwrap();
        is_refused(&repeated(&runs, 2), &type_of(&runs));
        // keys of dictionaries, which are merged, or cannot be
        let of_values = |values: ArrayRef| {
            let keys = Int8Array::from_iter_values((0..100).chain([0; 200]));
            Arc::new(DictionaryArray::<Int8Type>::new(keys, values)) as ArrayRef
        };
        let texts = |from: i32| (from..from + 100).map(|i| i.to_string());
        let parts = |make: &dyn Fn(i32) -> ArrayRef| [0, 100].map(make);
        let strings =
            parts(&|from| of_values(Arc::new(StringArray::from_iter_values(texts(from)))));
        let views =
            parts(&|from| of_values(Arc::new(StringViewArray::from_iter_values(texts(from)))));
        let pairs = strings.clone().map(|keys| {
            let item = Arc::new(Field::new_list_field(keys.data_type().clone(), true));
            Arc::new(FixedSizeListArray::new(item, 2, keys, None)) as ArrayRef
        });
        let fits = [strings[0].clone(), strings[0].clone()];
        for parts in [strings, views, pairs] {
            let of_type = type_of(&parts[0]);
            let both = joined(&parts.each_ref().map(|part| encoded(part)));
            is_refused(&both, &of_type);
            assert_eq!(&decode(&both.slice(1, 1), &of_type).unwrap(), &parts[1]);
        }
        let both = joined(&fits.each_ref().map(|part| encoded(part)));
        assert_eq!(decode(&both, &type_of(&fits[0])).unwrap().len(), 600);
    }
}
