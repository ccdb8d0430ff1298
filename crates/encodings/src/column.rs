//! A column chunk: all rows of one column in one row group, encoded.
//!
//! ```text
//! column   u8 tag: 0 constant, 1 plain, 2 integers (ffor, delta, rle, sparse), 3 dict, 4 alp, 5 alp_rd,
//!          6 strings (plain, fsst, onpair), 7 nested
//! then     the validity, then the fields of that encoding (nothing if every row is null)
//! ```

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::byte_strings;
use crate::codecs::codec::{Child, Codec, Test, TextTest};
use crate::codecs::constant::Constant;
use crate::codecs::dict::Dict;
use crate::codecs::layout::{self, Layout};
use crate::codecs::nested::{self, Nested};
use crate::codecs::plain::Plain;
use crate::codecs::registry::{self, Values, match_codec};
use crate::codecs::sequence::Sequence;
use crate::codecs::strings::Strings;
use crate::encoding::Encoding;
use crate::error::{Error, Result, ensure};
use crate::nulls;
use crate::predicate::{self, Predicate};
use crate::selection::Selection;
use crate::size;
use crate::text::Automaton;
use crate::validity::{Nulls, Validity};
use crate::wire::ChunkReader;
use crate::{FORMAT_VERSION, MAX_ROWS, VECTOR_LEN};

const PART: &str = "column";
/// Approximate bytes of rows that a filter decodes together.
const FILTER_BYTES: u64 = 16 << 20;

/// A parsed and checked column chunk. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Column {
    data_type: DataType,
    len: usize,
    /// The most bytes to decode together.
    limit: u64,
    body: Arc<Body>,
}

#[derive(Debug)]
struct Body {
    validity: Validity,
    values: Values<Column>,
    /// Computed by the first call.
    largest_offset: OnceLock<u64>,
    /// Computed by the first call.
    offset_bound: OnceLock<u64>,
}

impl Body {
    fn new(validity: Validity, values: Values<Column>) -> Arc<Self> {
        Arc::new(Self {
            validity,
            values,
            largest_offset: OnceLock::new(),
            offset_bound: OnceLock::new(),
        })
    }
}

impl Column {
    /// Parses the bytes that [`encode`](crate::encode) made of `len` values of `data_type`. The bytes need no
    /// alignment, and are not trusted: for any content, parsing and decoding return an error or values, and do not
    /// panic. Parsing uses memory in proportion to the bytes and rows, decoding as much as [`Column::decoded_bytes`]
    /// says.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are not such an encoding.
    pub fn parse(bytes: Buffer, data_type: &DataType, len: usize) -> Result<Self> {
        Self::parse_version(bytes, data_type, len, FORMAT_VERSION)
    }

    /// As [`parse`](Self::parse), for bytes from a file of another format version.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_version(
        bytes: Buffer,
        data_type: &DataType,
        len: usize,
        version: u32,
    ) -> Result<Self> {
        let mut reader = ChunkReader::new(&bytes, version)?;
        let column = <Self as Child>::parse(&mut reader, data_type, len)?;
        reader.finish()?;
        Ok(column)
    }

    /// The values of an array in encoding `plain`, which shares its memory; `None` if they are not of fixed width, or
    /// more than a chunk has.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], which would be a bug.
    pub fn of_fixed_width(array: &dyn Array) -> Result<Option<Self>> {
        let Some(values) = Plain::of(array).filter(|_| array.len() <= MAX_ROWS) else {
            return Ok(None);
        };
        let validity = Validity::of_nulls(array.logical_nulls().as_ref(), array.len())?;
        let bytes = array.get_array_memory_size();
        let (data_type, len) = (array.data_type(), array.len());
        let column = Self::of_values(data_type, len, bytes, validity, Values::Plain(values));
        Ok(Some(column))
    }

    /// Rows by the indices of their entries, in encoding `dict`; `None` unless the entries are ascending strings, no
    /// more than a dictionary may have. `numbers` of nulls are arbitrary.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if an index has no entry.
    pub fn of_codes(
        entries: &ArrayRef,
        numbers: &[u32],
        nulls: Option<&NullBuffer>,
    ) -> Result<Option<Self>> {
        if numbers.is_empty() || numbers.len() > MAX_ROWS {
            return Ok(None);
        }
        let Some(values) = Dict::of_codes(entries, numbers)? else {
            return Ok(None);
        };
        let validity = Validity::of_nulls(nulls, numbers.len())?;
        let bytes = entries.get_array_memory_size() + size_of_val(numbers);
        let (data_type, len) = (entries.data_type(), numbers.len());
        let column = Self::of_values(data_type, len, bytes, validity, Values::Dict(values));
        Ok(Some(column))
    }

    /// Text or binary in encoding `plain`, and the bytes of memory that it takes: a row has the next `lengths[row]` bytes
    /// of `data`, and a null none. Text is checked to be UTF-8 when it is decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for other types, other nulls and more rows than a chunk has; [`Error::Corrupt`] if the
    /// lengths are not those of `data`.
    pub fn of_strings(
        data_type: &DataType,
        lengths: &[u64],
        data: Vec<u8>,
        nulls: Option<&NullBuffer>,
    ) -> Result<(Self, usize)> {
        let rows = lengths.len();
        let is_fixed = matches!(data_type, DataType::FixedSizeBinary(_));
        let is_variable = byte_strings::is_bytes(data_type) && !is_fixed;
        let nulls_match = nulls.is_none_or(|nulls| nulls.len() == rows);
        if !is_variable || !nulls_match || rows > MAX_ROWS {
            let reason = format!("{rows} strings in a column of {data_type}");
            return Err(Error::Unsupported(reason));
        }
        let validity = Validity::of_nulls(nulls, rows)?;
        let (values, bytes) = Strings::of(lengths, Buffer::from_vec(data))?;
        let values = Values::Strings(values);
        let column = Self::of_values(data_type, rows, bytes, validity, values);
        Ok((column, bytes))
    }

    /// A chunk whose values take `bytes` bytes unencoded; these do not count if all are null.
    pub(crate) fn of_values(
        data_type: &DataType,
        len: usize,
        bytes: usize,
        validity: Validity,
        values: Values<Self>,
    ) -> Self {
        let values = match validity {
            Validity::AllNull => Values::Constant(Constant::of_nulls()),
            _ => values,
        };
        Self {
            data_type: data_type.clone(),
            len,
            limit: size::limit(bytes),
            body: Body::new(validity, values),
        }
    }

    fn parse_tagged(
        reader: &mut ChunkReader,
        tag: u8,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        ensure(len <= MAX_ROWS, PART, || {
            format!("{len} rows, at most {MAX_ROWS}")
        })?;
        let validity = Validity::parse(reader, len)?;
        let values =
            reader.nested(|reader| Values::parse(reader, tag, &validity, data_type, len))?;
        Ok(Self {
            data_type: data_type.clone(),
            len,
            limit: size::limit(reader.total_bytes()),
            body: Body::new(validity, values),
        })
    }

    /// The Arrow type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of vectors.
    pub fn num_vectors(&self) -> usize {
        self.len.div_ceil(VECTOR_LEN)
    }

    /// The outermost encoding.
    pub fn encoding(&self) -> Encoding {
        match_codec!(&self.body.values, codec => codec.encoding())
    }

    /// The encoding of a dictionary's codes; `None` if the column has no dictionary.
    pub fn codes_encoding(&self) -> Option<Encoding> {
        match self.layout().values {
            layout::Values::Dictionary { codes, .. } => Some(codes.encoding()),
            _ => None,
        }
    }

    /// The names of the encodings, the outermost first, e.g. `dict(ffor, fsst(ffor))`.
    pub fn describe(&self) -> String {
        match_codec!(&self.body.values, codec => codec.describe())
    }

    /// The buffers by content, for external decoders.
    pub fn layout(&self) -> Layout<'_> {
        Layout {
            validity: Nulls(&self.body.validity),
            values: match_codec!(&self.body.values, codec => codec.layout()),
        }
    }

    /// Bytes of memory that parsing took, beyond the bytes that were parsed.
    pub fn parsed_bytes(&self) -> usize {
        use layout::Values;
        match self.layout().values {
            Values::Integers { offsets, .. } => offsets.memory_size(),
            Values::Dictionary { entries, codes } => {
                entries.get_array_memory_size() + codes.memory_size()
            }
            Values::Alp { integers, .. } => integers.memory_size(),
            Values::Strings(strings) => strings.memory_size(),
            _ => 0,
        }
    }

    /// The largest difference of a value from the reference, if values are [`Integers`](layout::Values::Integers); else
    /// `u64::MAX`. Only the first call has to compute it, of this column or a clone.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for errors that only decoding shows.
    pub fn largest_offset(&self) -> Result<u64> {
        self.of_offsets(&self.body.largest_offset, Sequence::largest)
    }

    /// No smaller than [`largest_offset`](Self::largest_offset), and computed in less time if offsets are packed. It has
    /// no more bits, unless the largest offset is in a vector whose smallest one is larger than 0.
    ///
    /// # Errors
    ///
    /// As [`largest_offset`](Self::largest_offset).
    pub fn offset_bound(&self) -> Result<u64> {
        self.of_offsets(&self.body.offset_bound, Sequence::upper_bound)
    }

    fn of_offsets(
        &self,
        known: &OnceLock<u64>,
        compute: impl Fn(&Sequence, usize) -> Result<u64>,
    ) -> Result<u64> {
        if let Some(known) = known.get() {
            return Ok(*known);
        }
        let computed = match self.layout().values {
            layout::Values::Integers { offsets, .. } => compute(offsets, self.len)?,
            _ => u64::MAX,
        };
        Ok(*known.get_or_init(|| computed))
    }

    /// Decodes any range of rows.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for errors that only decoding shows; [`Error::Unsupported`] if the range ends beyond the
    /// chunk or holds more bytes than the type can address; [`Error::TooLarge`] if the values take more than a gigabyte
    /// and the bytes of the chunk do not account for that.
    pub fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        self.select(&Selection::of_range(rows))
    }

    /// Decodes the selected rows. Only vectors with a selected row are decoded.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`].
    pub fn select(&self, selection: &Selection) -> Result<ArrayRef> {
        self.check_bounds(selection)?;
        self.check_size(selection)?;
        let nulls = self.body.validity.select(selection);
        match_codec!(&self.body.values, codec => codec.select(&self.data_type, selection, nulls))
    }

    /// The estimated bytes of the result of [`Column::select`]. Only the lengths of strings and lists are decoded, and
    /// these only if there may be more than a megabyte of them.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`].
    pub fn decoded_bytes(&self, selection: &Selection) -> Result<u64> {
        self.check_bounds(selection)?;
        let most = self.most_bytes(selection.count());
        if most <= size::EXACT_ABOVE {
            return Ok(most);
        }
        match_codec!(&self.body.values,
            codec => codec.decoded_bytes(&self.data_type, selection, self.limit))
    }

    /// Returns true if the chunk stores only that every row is null.
    pub(crate) fn is_all_null(&self) -> bool {
        matches!(self.body.validity, Validity::AllNull)
    }

    fn check_size(&self, selection: &Selection) -> Result<()> {
        match self.most_bytes(selection.count()) {
            most if most <= self.limit => Ok(()),
            _ => self.check_limit(self.decoded_bytes(selection)?),
        }
    }

    fn check_limit(&self, bytes: u64) -> Result<()> {
        let limit = self.limit;
        match bytes <= limit {
            true => Ok(()),
            false => Err(Error::TooLarge { bytes, limit }),
        }
    }

    fn check_bounds(&self, selection: &Selection) -> Result<()> {
        let end = selection.first_vector() * VECTOR_LEN + selection.rows();
        if end > self.len {
            let reason = format!("rows up to {end} of a column of {}", self.len);
            return Err(Error::Unsupported(reason));
        }
        Ok(())
    }

    /// Keeps the selected rows that pass `predicate`, evaluated on the encoded form if the encoding can.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`]; [`Error::Unsupported`] if a constant has another type than the column,
    /// or the values of its dictionary.
    pub fn filter(&self, predicate: &Predicate, selection: &mut Selection) -> Result<()> {
        self.check_bounds(selection)?;
        if let DataType::Dictionary(_, values) = &self.data_type
            && predicate.is_of(values)
        {
            return match self.dictionary_values() {
                Some(values) => values.filter(predicate, selection),
                None => self.filter_nulls(!matches!(predicate, Predicate::IsNull), selection),
            };
        }
        predicate::check_types(predicate, &self.data_type)?;
        match predicate {
            Predicate::IsNull => return self.filter_nulls(false, selection),
            Predicate::IsNotNull => return self.filter_nulls(true, selection),
            Predicate::Range { .. } | Predicate::In { .. } => self.filter_nulls(true, selection)?,
        }
        let is_decided = match_codec!(&self.body.values,
            codec => codec.filter(&self.data_type, predicate, selection)?);
        if is_decided {
            return Ok(());
        }
        self.filter_values(&mut |array| predicate.evaluate(array), selection)
    }

    /// As [`Column::filter`], on the field of a struct at `path`: a field index, an index within that field, and so on.
    /// The field of a null struct is null, except for unions.
    ///
    /// # Errors
    ///
    /// As [`Column::filter`]; [`Error::Unsupported`] if there is no such field.
    pub fn filter_field(
        &self,
        path: &[usize],
        predicate: &Predicate,
        selection: &mut Selection,
    ) -> Result<()> {
        self.check_bounds(selection)?;
        let is_union = nested::type_of_field(&self.data_type, path)
            .is_some_and(|data_type| matches!(data_type, DataType::Union(_, _)));
        let Some((field, path)) = path.split_first() else {
            return self.filter(predicate, selection);
        };
        match &self.body.values {
            Values::Nested(Nested::Struct(fields)) if *field < fields.len() && is_union => {
                fields[*field].filter_field(path, predicate, selection)
            }
            Values::Nested(Nested::Struct(fields)) if *field < fields.len() => {
                let mut null = selection.clone();
                self.body.validity.filter(true, selection);
                fields[*field].filter_field(path, predicate, selection)?;
                if let Predicate::IsNull = predicate {
                    self.body.validity.filter(false, &mut null);
                    selection.or(&null);
                }
                Ok(())
            }
            _ if self.is_all_null() => {
                self.filter_nulls(!matches!(predicate, Predicate::IsNull), selection)
            }
            _ => {
                let reason = format!("field {field} of a column of type {}", self.data_type);
                Err(Error::Unsupported(reason))
            }
        }
    }

    /// The values of a dictionary, a row each, with all of its nulls.
    fn dictionary_values(&self) -> Option<&Self> {
        match (&self.body.values, &self.data_type) {
            (Values::Nested(Nested::Stored(values)), DataType::Dictionary(_, _)) => Some(values),
            _ => None,
        }
    }

    /// Keeps the selected rows that pass `test`, which must be deterministic. It gets arrays of this column's type and
    /// returns an entry for each row; null counts as false. It is evaluated once per entry of a dictionary and per
    /// constant, else on decoded selected rows.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`], and those of `test`.
    pub fn filter_with(
        &self,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
        selection: &mut Selection,
    ) -> Result<()> {
        self.filter_text(&|| None, test, selection)
    }

    /// As [`Column::filter_with`], for text. `automaton` makes an automaton that passes the strings that pass `test`, or
    /// returns `None`. It is called if the encoding can run an automaton over the codes of strings and that is expected
    /// to take less time than decoding them; `test` then tests nulls alone.
    ///
    /// Strings are not checked to be UTF-8 then.
    ///
    /// # Errors
    ///
    /// As [`Column::filter_with`].
    pub fn filter_text(
        &self,
        automaton: &dyn Fn() -> Option<Arc<Automaton>>,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
        selection: &mut Selection,
    ) -> Result<()> {
        self.check_bounds(selection)?;
        if let Some(values) = self.dictionary_values() {
            let mut test = |values: &ArrayRef| test(&nested::unstored(values, &self.data_type)?);
            return values.filter_text(automaton, &mut test, selection);
        }
        if self.body.validity.may_have_nulls() && !self.is_false_for_null(test)? {
            // nulls may pass (IS NULL, coalesce, ...), and the encoding has no value for them
            return self.filter_rows(test, selection);
        }
        self.filter_nulls(true, selection)?;
        if !self.filter_codes(automaton, selection)? {
            self.filter_values(test, selection)?;
        }
        Ok(())
    }

    /// Tests valid rows by an automaton; returns false if they are still to be tested.
    fn filter_codes(&self, automaton: &TextTest<'_>, selection: &mut Selection) -> Result<bool> {
        match_codec!(&self.body.values, codec => codec.filter_text(automaton, selection))
    }

    fn is_false_for_null(&self, test: &mut Test<'_>) -> Result<bool> {
        self.check_limit(size::fixed_bytes(&self.data_type, 1))?;
        let result = test(&nulls::of_type(&self.data_type, 1)?)?;
        Ok(result.is_empty() || result.is_null(0) || !result.value(0))
    }

    fn filter_nulls(&self, valid: bool, selection: &mut Selection) -> Result<()> {
        if match_codec!(&self.body.values, codec => codec.has_own_nulls()) {
            let mut is_kept = |rows: &ArrayRef| {
                let nulls = rows.logical_nulls();
                let kept = (0..rows.len())
                    .map(|row| Some(nulls.as_ref().is_none_or(|n| n.is_valid(row)) == valid));
                Ok(kept.collect())
            };
            return self.filter_rows(&mut is_kept, selection);
        }
        self.body.validity.filter(valid, selection);
        Ok(())
    }

    /// Tests decoded rows, as many at a time as fit [`FILTER_BYTES`].
    fn filter_rows(&self, test: &mut Test<'_>, selection: &mut Selection) -> Result<()> {
        let mut rest = selection.clone();
        while !rest.is_empty() {
            let (rows, _) = rest.fitting(FILTER_BYTES, |part| self.decoded_bytes(part))?;
            let part = rest.take_selected(rows);
            let mut kept = part.clone();
            kept.and_boolean(&test(&self.select(&part)?)?);
            selection.and_not(&part);
            selection.or(&kept);
        }
        Ok(())
    }

    /// Tests valid rows by value.
    fn filter_values(&self, test: &mut Test<'_>, selection: &mut Selection) -> Result<()> {
        if selection.is_empty()
            || match_codec!(&self.body.values, codec => codec.filter_with(test, selection)?)
        {
            return Ok(());
        }
        self.filter_rows(test, selection)
    }
}

impl Child for Column {
    fn parse(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self> {
        let tag = reader.u8()?;
        Self::parse_tagged(reader, tag, data_type, len)
    }

    fn parse_distinct(reader: &mut ChunkReader, data_type: &DataType, len: usize) -> Result<Self> {
        let tag = reader.u8()?;
        ensure(registry::is_distinct(tag, data_type), PART, || {
            format!("tag {tag} for distinct values of type {data_type}")
        })?;
        Self::parse_tagged(reader, tag, data_type, len)
    }

    fn rows(&self) -> usize {
        self.len
    }

    fn describe(&self) -> String {
        self.describe()
    }

    fn most_bytes(&self, rows: usize) -> u64 {
        match_codec!(&self.body.values, codec => codec.most_bytes(&self.data_type, rows))
    }

    fn decoded_bytes(&self, selection: &Selection) -> Result<u64> {
        self.decoded_bytes(selection)
    }

    fn select(&self, selection: &Selection) -> Result<ArrayRef> {
        self.select(selection)
    }
}
