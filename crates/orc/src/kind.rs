//! Enumerations of the format: types, encodings of columns, streams.

use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// True or false.
    Boolean,
    /// An integer of 8 bits.
    Byte,
    /// An integer of 16 bits.
    Short,
    /// An integer of 32 bits.
    Int,
    /// An integer of 64 bits.
    Long,
    /// A float of 32 bits.
    Float,
    /// A float of 64 bits.
    Double,
    /// Text.
    String,
    /// Bytes.
    Binary,
    /// A date and time of day, without a timezone.
    Timestamp,
    /// Any number of values of one type.
    List,
    /// Pairs of keys and values.
    Map,
    /// A value per field.
    Struct,
    /// A value of one of several types.
    Union,
    /// A decimal of up to 38 digits.
    Decimal,
    /// A day.
    Date,
    /// Text of at most a given length.
    Varchar,
    /// Text of a fixed length.
    Char,
    /// An instant.
    TimestampInstant,
}

impl TypeKind {
    /// The kind with this code in a footer, if it is known.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Boolean,
            1 => Self::Byte,
            2 => Self::Short,
            3 => Self::Int,
            4 => Self::Long,
            5 => Self::Float,
            6 => Self::Double,
            7 => Self::String,
            8 => Self::Binary,
            9 => Self::Timestamp,
            10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Union,
            14 => Self::Decimal,
            15 => Self::Date,
            16 => Self::Varchar,
            17 => Self::Char,
            18 => Self::TimestampInstant,
            _ => return None,
        })
    }

    /// Returns true if values are text.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::String | Self::Varchar | Self::Char)
    }
}

/// The encoding of a column, which determines its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Values without a dictionary.
    Direct {
        /// The version of integer RLE.
        version: RleVersion,
    },
    /// Indices of dictionary entries.
    Dictionary {
        /// The version of integer RLE.
        version: RleVersion,
        /// Number of entries in the dictionary.
        entries: u32,
    },
}

impl Encoding {
    /// The version of integer RLE.
    pub fn version(self) -> RleVersion {
        match self {
            Self::Direct { version } | Self::Dictionary { version, .. } => version,
        }
    }
}

/// The version of integer RLE, which depends on the encoding of a column and not on the file's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RleVersion {
    /// Runs with a small delta, and literals.
    V1,
    /// Runs of four kinds.
    V2,
}

/// The purpose of a stream of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// A bit per row, set if it has a value.
    Present,
    /// The values, or their dictionary indices.
    Data,
    /// Lengths of strings, lists and maps.
    Length,
    /// The bytes of a dictionary's entries.
    DictionaryData,
    /// Nanoseconds of timestamps, scales of decimals.
    Secondary,
    /// Statistics and positions of index groups.
    RowIndex,
    /// Bloom filters of index groups by the first writers: their hashes of text depend on the machine.
    BloomFilter,
    /// Bloom filters of index groups.
    BloomFilterUtf8,
    /// Any other stream; readers of values need none.
    Other(u64),
}

impl StreamKind {
    /// The kind with this code in a stripe's footer.
    pub(crate) fn of_code(code: u64) -> Self {
        match code {
            0 => Self::Present,
            1 => Self::Data,
            2 => Self::Length,
            3 => Self::DictionaryData,
            5 => Self::Secondary,
            6 => Self::RowIndex,
            7 => Self::BloomFilter,
            8 => Self::BloomFilterUtf8,
            other => Self::Other(other),
        }
    }

    /// Returns true if decoders need the stream for values.
    pub(crate) fn is_of_values(self) -> bool {
        matches!(
            self,
            Self::Present | Self::Data | Self::Length | Self::DictionaryData | Self::Secondary
        )
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Present => "PRESENT",
            Self::Data => "DATA",
            Self::Length => "LENGTH",
            Self::DictionaryData => "DICTIONARY_DATA",
            Self::Secondary => "SECONDARY",
            Self::RowIndex => "ROW_INDEX",
            Self::BloomFilter => "BLOOM_FILTER",
            Self::BloomFilterUtf8 => "BLOOM_FILTER_UTF8",
            Self::Other(code) => return write!(f, "of kind {code}"),
        })
    }
}
