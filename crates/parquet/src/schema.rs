//! The columns of a file: their Arrow types, and what is known of their chunks.
//!
//! Types are those that DataFusion infers: the ones that the writer noted, else those of the Parquet schema, with views
//! for text and binary.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use vectile_encodings::MAX_TYPE_DEPTH;

use crate::error::{Fault, corrupt, unsupported};

/// A column of the table: a root of the Parquet schema.
#[derive(Debug)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    /// The Arrow type of its values.
    pub(crate) data_type: DataType,
    /// Its leaves, by index in the file.
    pub(crate) leaves: Range<usize>,
    /// Its only leaf, if it has a value for each row, or null.
    pub(crate) flat: Option<Flat>,
    /// True if values may be read as a dictionary, which [`Columns::dictionaries`] does.
    pub(crate) may_be_dictionary: bool,
    /// The reason this crate does not read it, if there is one.
    pub(crate) unsupported: Option<String>,
}

/// A leaf with a value for each row.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    /// Its index in the file.
    pub(crate) leaf: usize,
    /// The type that values are stored as.
    pub(crate) physical: PhysicalType,
    /// The meaning of stored bytes; `None` if they are not compared or hashed here.
    pub(crate) stored: Option<Stored>,
    /// True if the file declares the order of its bounds to be that of [`Stored`].
    pub(crate) has_order: bool,
}

/// The meaning of the stored bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Boolean,
    /// An integer of the physical type's width, which is the value of the Arrow type.
    Integer {
        is_signed: bool,
    },
    /// A decimal of up to 128 bits.
    Decimal,
    Text,
    Binary,
}

impl Stored {
    /// The meaning of values of a physical type that parquet reads as `base` without hints, and as `data_type` here.
    fn of(physical: PhysicalType, base: &DataType, data_type: &DataType) -> Option<Self> {
        use DataType::*;
        let signed = Self::Integer { is_signed: true };
        let data_type = match data_type {
            Dictionary(_, values) => values,
            other => other,
        };
        let is_same = |base: &DataType, data_type: &DataType| match (base, data_type) {
            // the timezone changes no value
            (Timestamp(a, _), Timestamp(b, _)) => a == b,
            (a, b) => a == b,
        };
        Some(match (physical, base, data_type) {
            (PhysicalType::BOOLEAN, Boolean, Boolean) => Self::Boolean,
            (PhysicalType::INT32, Int8 | Int16 | Int32 | Date32 | Time32(_), _)
            | (PhysicalType::INT64, Int64 | Time64(_) | Timestamp(_, _), _)
                if is_same(base, data_type) =>
            {
                signed
            }
            (PhysicalType::INT32, UInt8 | UInt16 | UInt32, _)
            | (PhysicalType::INT64, UInt64, _)
                if is_same(base, data_type) =>
            {
                Self::Integer { is_signed: false }
            }
            // units that Parquet lacks: the writer noted them
            (PhysicalType::INT64, Int64, Timestamp(_, _) | Duration(_)) => signed,
            (PhysicalType::INT32, Int32, Time32(_)) => signed,
            (
                PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::FIXED_LEN_BYTE_ARRAY,
                Decimal128(p, s),
                Decimal32(q, t) | Decimal64(q, t) | Decimal128(q, t) | Decimal256(q, t),
            ) if (p, s) == (q, t) => Self::Decimal,
            (PhysicalType::BYTE_ARRAY, Utf8 | Binary, Utf8 | LargeUtf8 | Utf8View) => Self::Text,
            (PhysicalType::BYTE_ARRAY, Binary, Binary | LargeBinary | BinaryView) => Self::Binary,
            _ => return None,
        })
    }

    /// The order of its bounds.
    fn order(self) -> SortOrder {
        match self {
            Self::Integer { is_signed: true } | Self::Decimal => SortOrder::SIGNED,
            _ => SortOrder::UNSIGNED,
        }
    }
}

/// The columns of a file, and the readers of their values.
#[derive(Debug)]
pub(crate) struct Columns {
    /// The schema of the table.
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Vec<TableColumn>,
    /// Reads columns in their types.
    pub(crate) values: ArrowReaderMetadata,
    /// Reads text and binary as dictionaries.
    pub(crate) dictionaries: ArrowReaderMetadata,
}

impl Columns {
    /// The columns of a file; text and binary are views if `view_types` is true.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if parts of the metadata contradict each other.
    pub(crate) fn of(metadata: &Arc<ParquetMetaData>, view_types: bool) -> Result<Self, Fault> {
        let descr = metadata.file_metadata().schema_descr();
        let noted = ArrowReaderMetadata::try_new(Arc::clone(metadata), Default::default())?;
        let base = parquet_to_arrow_schema(descr, None)?;
        let roots = roots(descr)?;
        let noted_schema = noted.schema();
        let fields = noted_schema.fields();
        if fields.len() != roots.len() || base.fields().len() != roots.len() {
            return unsupported("columns without fields");
        }
        let typed: Fields = match view_types {
            true => fields.iter().map(with_views).collect(),
            false => fields.clone(),
        };
        let columns = roots.into_iter().enumerate().map(|(root, leaves)| {
            TableColumn::of(metadata, &typed[root], base.field(root), root, leaves)
        });
        let columns: Vec<TableColumn> = columns.collect();
        let keyed = typed.iter().zip(&columns).zip(base.fields());
        let keyed = keyed.map(|((field, column), base)| match column.may_be_dictionary {
            true => {
                let keys = Box::new(DataType::Int32);
                let data_type = DataType::Dictionary(keys, Box::new(base.data_type().clone()));
                Arc::new(field.as_ref().clone().with_data_type(data_type))
            }
            false => Arc::clone(field),
        });
        let reader = |fields: Fields| {
            let schema = Schema::new_with_metadata(fields, noted_schema.metadata().clone());
            let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
            ArrowReaderMetadata::try_new(Arc::clone(metadata), options)
        };
        let plain = |field: &Arc<Field>| field.as_ref().clone().with_metadata(Default::default());
        Ok(Self {
            values: reader(typed.clone())?,
            dictionaries: reader(keyed.collect())?,
            schema: Arc::new(Schema::new(typed.iter().map(plain).collect::<Fields>())),
            columns,
        })
    }
}

/// The leaves of each root of a schema.
fn roots(descr: &SchemaDescriptor) -> Result<Vec<Range<usize>>, Fault> {
    let mut roots: Vec<Range<usize>> = Vec::new();
    for leaf in 0..descr.num_columns() {
        match roots.get_mut(descr.get_column_root_idx(leaf)) {
            Some(root) => root.end = leaf + 1,
            None => roots.push(leaf..leaf + 1),
        }
    }
    match roots.len() == descr.root_schema().get_fields().len() {
        true => Ok(roots),
        false => corrupt("a column without leaves"),
    }
}

/// The field with a view type, if there is one for its type.
fn with_views(field: &Arc<Field>) -> Arc<Field> {
    let view = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(view))
}

impl TableColumn {
    fn of(
        metadata: &ParquetMetaData,
        field: &Field,
        base: &Field,
        root: usize,
        leaves: Range<usize>,
    ) -> Self {
        let descr = metadata.file_metadata().schema_descr();
        let root_type = descr.root_schema().get_fields().get(root);
        let is_primitive = root_type.is_some_and(|root| root.is_primitive());
        let leaf = descr.column(leaves.start);
        let is_flat = is_primitive && leaf.max_rep_level() == 0;
        let data_type = field.data_type();
        let flat = is_flat.then(|| Flat::of(metadata, &leaf, leaves.start, base, data_type));
        let is_plain_text = matches!(
            (base.data_type(), leaf.converted_type()),
            (DataType::Utf8, parquet::basic::ConvertedType::UTF8)
                | (DataType::Binary, parquet::basic::ConvertedType::NONE)
        );
        let stored = flat.as_ref().and_then(|flat| flat.stored);
        Self {
            name: field.name().clone(),
            may_be_dictionary: is_plain_text
                && matches!(stored, Some(Stored::Text | Stored::Binary))
                && !matches!(data_type, DataType::Dictionary(_, _)),
            unsupported: unsupported_type(data_type, 1),
            data_type: data_type.clone(),
            leaves,
            flat,
        }
    }
}

impl Flat {
    fn of(
        metadata: &ParquetMetaData,
        descr: &ColumnDescriptor,
        leaf: usize,
        base: &Field,
        data_type: &DataType,
    ) -> Self {
        let physical = descr.physical_type();
        let stored = Stored::of(physical, base.data_type(), data_type);
        let orders = metadata.file_metadata().column_orders();
        let order = orders.and_then(|orders| orders.get(leaf));
        let has_order = match (order, stored) {
            (Some(ColumnOrder::TYPE_DEFINED_ORDER(order)), Some(stored)) => {
                *order == stored.order()
            }
            _ => false,
        };
        Self {
            leaf,
            physical,
            stored,
            has_order,
        }
    }
}

/// True if columns of this type are read, whatever their values. Some files cannot be read nevertheless, see
/// [`Metadata::unsupported`](crate::Metadata::unsupported).
///
/// False for dictionaries with keys of 8 or 16 bits: a row group, which is decoded at once, may have more values than
/// they can number.
pub fn is_supported(data_type: &DataType) -> bool {
    unsupported_type(data_type, 1).is_none() && !has_short_keys(data_type)
}

fn has_short_keys(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        List(item) | LargeList(item) | FixedSizeList(item, _) | Map(item, _) => {
            has_short_keys(item.data_type())
        }
        Struct(fields) => fields.iter().any(|field| has_short_keys(field.data_type())),
        Dictionary(key, _) => key.primitive_width().is_none_or(|width| width < 4),
        _ => false,
    }
}

/// The reason columns of a type are not read; `None` if they are. `depth` counts the type and those around it.
fn unsupported_type(data_type: &DataType, depth: usize) -> Option<String> {
    use DataType::*;
    if depth > MAX_TYPE_DEPTH {
        return Some(format!("a type of more than {MAX_TYPE_DEPTH} levels"));
    }
    match data_type {
        List(item) | LargeList(item) | FixedSizeList(item, _) | Map(item, _) => {
            unsupported_type(item.data_type(), depth + 1)
        }
        Struct(fields) => {
            let mut fields = fields.iter();
            fields.find_map(|field| unsupported_type(field.data_type(), depth + 1))
        }
        Dictionary(_, values) if !values.is_nested() => unsupported_type(values, depth + 1),
        Dictionary(_, _) | RunEndEncoded(_, _) | Union(_, _) | ListView(_) | LargeListView(_) => {
            Some(format!("type {data_type}"))
        }
        _ => None,
    }
}
