//! A column chunk: all rows of one column in one row group, encoded.
//!
//! ```text
//! column   u8 tag: 0 constant, 1 plain, 2 integers (ffor, delta, rle), 3 dict, 4 alp, 5 alp_rd,
//!          6 strings (plain, fsst), 7 nested
//! then     the validity, then the fields of that encoding (nothing if every row is null)
//! ```

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::concat;
use arrow::datatypes::DataType;

use crate::byte_strings;
use crate::class::{self, Class};
use crate::codecs::alp::{self, Alp};
use crate::codecs::alp_rd::{self, AlpRd};
use crate::codecs::constant;
use crate::codecs::dict::{self, Dict, Distinct};
use crate::codecs::integers::{self, Integers, Offsets};
use crate::codecs::layout::{self, Layout};
use crate::codecs::nested::{self, Nested};
use crate::codecs::plain::{self, Plain};
use crate::codecs::sequence;
use crate::codecs::strings::{self, Strings};
use crate::encoding::Encoding;
use crate::error::{Error, Result, corrupt, ensure};
use crate::float::Float;
use crate::nulls;
use crate::predicate::{self, Predicate};
use crate::selection::Selection;
use crate::size;
use crate::validity::Nulls;
use crate::validity::{self, Validity};
use crate::vectors::sample_ranges;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::{MAX_ROWS, VECTOR_LEN};

const PART: &str = "column";
/// Vectors that the choice of an encoding looks at.
const SAMPLE_VECTORS: usize = 10;
/// Rows that a filter has to decode are decoded in parts of about this many bytes.
const FILTER_BYTES: u64 = 16 << 20;
/// A dictionary of more distinct values than one for this many rows is not tried.
const ROWS_PER_ENTRY: usize = 2;

const CONSTANT: u8 = 0;
const PLAIN: u8 = 1;
const INTEGERS: u8 = 2;
const DICT: u8 = 3;
const ALP: u8 = 4;
const ALP_RD: u8 = 5;
const STRINGS: u8 = 6;
const NESTED: u8 = 7;

/// How to encode a column.
#[derive(Clone, Debug, Default)]
pub struct EncodeOptions {
    /// Use this encoding instead of the smallest one.
    pub pin: Option<Encoding>,
}

/// Encodes all rows of `array` into the bytes of a column chunk.
///
/// Without a pin, every encoding that applies is tried on a sample, and the smallest wins unless
/// one that is much cheaper to decode is within a few percent. A constant column is always stored
/// as such.
///
/// # Errors
///
/// [`Error::Unsupported`] if the pinned encoding does not apply to the type or the values, or the
/// array has more than [`MAX_ROWS`] rows.
pub fn encode(array: &dyn Array, options: &EncodeOptions) -> Result<Vec<u8>> {
    if array.len() > MAX_ROWS {
        let reason = format!("{} rows in a column chunk, at most {MAX_ROWS}", array.len());
        return Err(Error::Unsupported(reason));
    }
    let mut out = ChunkWriter::default();
    encode_node(array, options.pin, &mut out)?;
    Ok(out.finish())
}

/// The estimated size in bytes of `array` in each encoding that applies, from a sample.
pub fn alternatives(array: &dyn Array) -> Result<Vec<(Encoding, u64)>> {
    let source = Source::of(array);
    // Without a value there is nothing to encode, and so no choice.
    if array.is_empty() || array.data_type() == &DataType::Null {
        return Ok(vec![]);
    }
    let candidates = candidates(&source);
    if let [only] = candidates[..] {
        // one encoding is not a choice to make from a sample, which not all nested types can be put into
        let mut out = ChunkWriter::default();
        let applies = encode_as(only, &source, &mut out)?;
        return Ok(applies
            .then_some((only, out.len() as u64))
            .into_iter()
            .collect());
    }
    estimates(&source, candidates)
}

/// The one of `candidates` that takes the fewest bytes.
fn choose(source: &Source, candidates: Vec<Encoding>) -> Result<Encoding> {
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let estimates = estimates(source, candidates)?.into_iter();
    Ok(Encoding::smallest(
        estimates.map(|(encoding, bytes)| (encoding, bytes as usize)),
    ))
}

/// Appends `array` by the pinned or the best encoding.
pub(crate) fn encode_node(
    array: &dyn Array,
    pin: Option<Encoding>,
    out: &mut ChunkWriter,
) -> Result<()> {
    let source = Source::of(array);
    if source.is_constant() {
        return encode_constant(array, out);
    }
    let encoding = match pin {
        Some(Encoding::Constant) => {
            return Err(Error::Unsupported(
                "encoding constant for values that differ".into(),
            ));
        }
        Some(pinned) => pinned,
        None => choose(&source, candidates(&source))?,
    };
    let encoded = match pin {
        // who pins a dictionary wants it even where it does not pay
        Some(Encoding::Dict) => encode_dict(&source, dict::MAX_ENTRIES, out)?,
        _ => encode_as(encoding, &source, out)?,
    };
    match encoded {
        true => Ok(()),
        false if pin.is_none() => {
            // what the sample promised did not hold for all rows, e.g. too many distinct values
            let fallback = if source.offsets.is_some() {
                Encoding::Ffor
            } else if source.bytes.is_some() {
                Encoding::Fsst
            } else {
                Encoding::Plain
            };
            encode_as(fallback, &source, out).map(|_| ())
        }
        false => {
            let applicable = candidates(&source)
                .iter()
                .map(|e| e.name())
                .collect::<Vec<_>>()
                .join(", ");
            let data_type = array.data_type();
            Err(Error::Unsupported(format!(
                "encoding {encoding} for these values of type {data_type}; what applies: {applicable}"
            )))
        }
    }
}

/// Appends the entries of a dictionary: distinct, and so neither constant nor a dictionary.
pub(crate) fn encode_entries(entries: &ArrayRef, out: &mut ChunkWriter) -> Result<()> {
    let source = Source::of(entries);
    let mut candidates = candidates(&source);
    candidates.retain(|encoding| *encoding != Encoding::Dict);
    let encoding = choose(&source, candidates)?;
    match encode_as(encoding, &source, out)? {
        true => Ok(()),
        false => encode_as(Encoding::Plain, &source, out).map(|_| ()),
    }
}

/// An array and its values in the forms that encodings take.
struct Source<'a> {
    array: &'a dyn Array,
    offsets: Option<Offsets>,
    bytes: Option<Vec<&'a [u8]>>,
    /// Trained when first needed, on a sample if there was one.
    tables: OnceCell<strings::Tables>,
}

impl<'a> Source<'a> {
    fn of(array: &'a dyn Array) -> Self {
        Self {
            array,
            offsets: integers::offsets(array),
            bytes: byte_strings::values(array),
            tables: OnceCell::new(),
        }
    }

    fn is_union(&self) -> bool {
        matches!(self.array.data_type(), DataType::Union(_, _))
    }

    /// Whether all rows are null, or all valid ones alike (offsets are filled where null).
    fn is_constant(&self) -> bool {
        if self.array.is_empty()
            || (!self.is_union() && self.array.logical_null_count() == self.array.len())
        {
            return !self.is_union();
        }
        if let Some(offsets) = &self.offsets {
            return offsets.values.iter().all(|offset| *offset == 0);
        }
        if let Some(values) = &self.bytes {
            let nulls = self.array.nulls();
            let mut valid = (0..values.len()).filter(|row| nulls.is_none_or(|n| n.is_valid(*row)));
            let first = valid.next().map(|row| values[row]);
            return valid.all(|row| Some(values[row]) == first);
        }
        false
    }

    /// The distinct values, in order of appearance; `None` if a dictionary is no use.
    fn distinct(&self, limit: usize) -> Option<Distinct> {
        let nulls = self.array.nulls();
        match (&self.offsets, &self.bytes) {
            (Some(offsets), _) => Distinct::of_ints(&offsets.values, nulls, limit),
            (_, Some(values)) => Distinct::of_bytes(values, nulls, limit),
            _ => None,
        }
    }

    /// Sorts distinct values of this source.
    fn sort(&self, distinct: &mut Distinct) {
        if let Some(Offsets { values, .. }) = &self.offsets {
            distinct.sort(|a, b| values[a as usize].cmp(&values[b as usize]));
        } else if let Some(values) = &self.bytes {
            distinct.sort(|a, b| values[a as usize].cmp(values[b as usize]));
        }
    }
}

fn encode_constant(array: &dyn Array, out: &mut ChunkWriter) -> Result<()> {
    out.u8(CONSTANT);
    if array.is_empty() {
        out.u8(1);
        return Ok(());
    }
    validity::encode(array, out);
    let valid = match array.nulls() {
        None if array.logical_null_count() == array.len() => None,
        None => Some(0),
        Some(nulls) => nulls.valid_indices().next(),
    };
    match valid {
        None => Ok(()),
        Some(row) => {
            let value = array.slice(row, 1);
            let source = Source::of(&value);
            let encoding = if source.offsets.is_some() {
                Encoding::Ffor
            } else {
                Encoding::Plain
            };
            encode_as(encoding, &source, out).map(|_| ())
        }
    }
}

/// Appends the source in one encoding; `false`, and nothing appended, if it does not apply.
fn encode_as(encoding: Encoding, source: &Source, out: &mut ChunkWriter) -> Result<bool> {
    let array = source.array;
    let start = |tag, out: &mut ChunkWriter| start(tag, array, out);
    match (encoding, &source.offsets) {
        (Encoding::Ffor | Encoding::Delta | Encoding::Rle, Some(offsets)) => {
            start(INTEGERS, out);
            out.i128(offsets.reference);
            out.append(sequence::encode_as(encoding, &offsets.values, 0));
        }
        (Encoding::Dict, _) => {
            return encode_dict(source, array.len() / ROWS_PER_ENTRY + 1, out);
        }
        (Encoding::Alp | Encoding::AlpRd, Some(offsets)) => {
            let tag = if encoding == Encoding::Alp {
                ALP
            } else {
                ALP_RD
            };
            match array.data_type() {
                DataType::Float64 => {
                    start(tag, out);
                    encode_floats::<f64>(encoding, offsets, out);
                }
                DataType::Float32 => {
                    start(tag, out);
                    encode_floats::<f32>(encoding, offsets, out);
                }
                _ => return Ok(false),
            }
        }
        (Encoding::Fsst, _) if let Some(values) = &source.bytes => {
            let tables = source.tables.get_or_init(|| strings::Tables::train(values));
            start(STRINGS, out);
            strings::encode_fsst(values, tables, out);
        }
        (Encoding::Plain, _) if let Some(values) = &source.bytes => {
            start(STRINGS, out);
            strings::encode_plain(values, out);
        }
        (Encoding::Plain, _) if plain::width_of(array.data_type()).is_some() => {
            start(PLAIN, out);
            plain::encode(array, out)?;
        }
        (Encoding::Plain, _) if array.data_type() != &DataType::Boolean => {
            start(NESTED, out);
            nested::encode(array, out)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Appends the source as a dictionary; `false` if it has more distinct values than `limit`.
fn encode_dict(source: &Source, limit: usize, out: &mut ChunkWriter) -> Result<bool> {
    let Some(mut distinct) = source.distinct(limit) else {
        return Ok(false);
    };
    source.sort(&mut distinct);
    start(DICT, source.array, out);
    dict::encode(source.array, &distinct, distinct.encode_codes(), out)?;
    Ok(true)
}

/// What comes before the values in every encoding: its tag, and which rows are null.
fn start(tag: u8, array: &dyn Array, out: &mut ChunkWriter) {
    out.u8(tag);
    match array.data_type() {
        DataType::Union(_, _) => out.u8(0),
        _ => validity::encode(array, out),
    }
}

fn encode_floats<F: Float>(encoding: Encoding, offsets: &Offsets, out: &mut ChunkWriter) {
    let values: Vec<F> = offsets
        .values
        .iter()
        .map(|offset| F::from_key((offsets.reference as i64).wrapping_add(*offset as i64)))
        .collect();
    match encoding {
        Encoding::Alp => alp::encode(&values, out),
        _ => alp_rd::encode(&values, out),
    }
}

/// The encodings that apply to the type.
fn candidates(source: &Source) -> Vec<Encoding> {
    use Encoding::*;
    match source.array.data_type() {
        DataType::Boolean => vec![Ffor, Rle],
        // all values are alike
        DataType::FixedSizeBinary(0) => vec![Plain],
        DataType::Float32 | DataType::Float64 => vec![Plain, Ffor, Rle, Dict, Alp, Delta, AlpRd],
        _ if source.offsets.is_some() => vec![Plain, Ffor, Rle, Dict, Delta],
        _ if source.bytes.is_some() => vec![Plain, Dict, Fsst],
        _ => vec![Plain],
    }
}

/// The size of the source, which has rows, in each of `candidates` that applies, from a sample.
fn estimates(source: &Source, candidates: Vec<Encoding>) -> Result<Vec<(Encoding, u64)>> {
    let rows = source.array.len();
    let ranges: Vec<Range<usize>> = sample_ranges(rows, SAMPLE_VECTORS).collect();
    let sampled: usize = ranges.iter().map(Range::len).sum();
    let slices: Vec<ArrayRef> = ranges
        .into_iter()
        .map(|range| source.array.slice(range.start, range.len()))
        .collect();
    let sample = concat(
        &slices
            .iter()
            .map(|slice| slice.as_ref())
            .collect::<Vec<_>>(),
    )?;
    let mut sample = Source::of(&sample);
    let mut sizes = vec![];
    for encoding in candidates {
        let bytes = match encoding {
            Encoding::Dict if sampled < rows => estimate_dict(&sample, rows)?,
            _ => {
                let mut out = ChunkWriter::default();
                encode_as(encoding, &sample, &mut out)?.then_some(scale(out.len(), sampled, rows))
            }
        };
        sizes.extend(bytes.map(|bytes| (encoding, bytes)));
    }
    if let Some(tables) = sample.tables.take() {
        // one training serves both
        let _ = source.tables.set(tables);
    }
    Ok(sizes)
}

fn scale(bytes: usize, sampled: usize, rows: usize) -> u64 {
    (bytes as u128 * rows as u128 / sampled.max(1) as u128) as u64
}

/// The size of a dictionary over `rows` rows, from the growth of distinct values over the sample.
fn estimate_dict(sample: &Source, rows: usize) -> Result<Option<u64>> {
    let sampled = sample.array.len();
    let Some(mut all) = sample.distinct(sampled / ROWS_PER_ENTRY) else {
        return Ok(None);
    };
    let half = all.len_of_first(sampled / 2);
    let growth = all.len().saturating_sub(half) as f64 / (sampled - sampled / 2) as f64;
    let entries = all.len() as f64 + growth * (rows - sampled) as f64;
    if entries > (rows / ROWS_PER_ENTRY).min(dict::MAX_ENTRIES) as f64 {
        return Ok(None);
    }
    sample.sort(&mut all);
    let codes = all.encode_codes();
    let code_bytes = codes.len();
    let mut out = ChunkWriter::default();
    dict::encode(sample.array, &all, codes, &mut out)?;
    let entry_bytes = (out.len().saturating_sub(code_bytes)) as f64 / all.len() as f64;
    let code_bits = f64::max(
        code_bytes as f64 * 8.0 / sampled as f64,
        (entries.log2() - 1.0).max(0.0) * 0.5,
    );
    Ok(Some(
        (entries * entry_bytes + rows as f64 * code_bits / 8.0) as u64,
    ))
}

/// A parsed and checked column chunk. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Column {
    data_type: DataType,
    len: usize,
    /// The most bytes to decode at once.
    limit: u64,
    body: Arc<Body>,
}

#[derive(Debug)]
struct Body {
    validity: Validity,
    values: Values,
}

#[derive(Debug)]
enum Values {
    AllNull,
    Constant(ArrayRef),
    Plain(Plain),
    Integers(Integers, Class),
    Dict(Dict),
    Alp(Alp),
    AlpRd(AlpRd),
    Strings(Strings),
    Nested(Nested),
}

impl Column {
    /// Parses the bytes that [`encode`] made of `len` values of `data_type`. The bytes need no
    /// alignment. Nothing in them is trusted: whatever they hold, parsing and decoding return an
    /// error or values, and do not panic. Parsing uses memory in proportion to the bytes and rows,
    /// decoding as much as [`Column::decoded_bytes`] says.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are not such an encoding.
    pub fn parse(bytes: Buffer, data_type: &DataType, len: usize) -> Result<Self> {
        let mut reader = ChunkReader::new(&bytes)?;
        let column = Self::parse_node(&mut reader, data_type, len)?;
        reader.finish()?;
        Ok(column)
    }

    pub(crate) fn parse_node(
        reader: &mut ChunkReader,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        let tag = reader.u8()?;
        Self::parse_tagged(reader, tag, data_type, len)
    }

    /// Parses what constants and dictionaries are made of: numbers or strings that are stored as
    /// neither.
    pub(crate) fn parse_values(
        reader: &mut ChunkReader,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        let tag = reader.u8()?;
        let is_flat = Class::stored(data_type).is_some() || byte_strings::is_bytes(data_type);
        ensure(is_flat && tag != CONSTANT && tag != DICT, PART, || {
            format!("tag {tag} for distinct values of type {data_type}")
        })?;
        Self::parse_tagged(reader, tag, data_type, len)
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
            body: Arc::new(Body { validity, values }),
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

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of vectors.
    pub fn num_vectors(&self) -> usize {
        self.len.div_ceil(VECTOR_LEN)
    }

    /// The outermost encoding.
    pub fn encoding(&self) -> Encoding {
        match &self.body.values {
            Values::AllNull | Values::Constant(_) => Encoding::Constant,
            Values::Plain(_) | Values::Nested(_) => Encoding::Plain,
            Values::Integers(integers, _) => integers.ints.encoding(),
            Values::Dict(_) => Encoding::Dict,
            Values::Alp(_) => Encoding::Alp,
            Values::AlpRd(_) => Encoding::AlpRd,
            Values::Strings(strings) => strings.encoding(),
        }
    }

    /// The encodings from the outermost in, e.g. `dict(ffor, fsst(ffor))`.
    pub fn describe(&self) -> String {
        match &self.body.values {
            Values::Integers(integers, _) => integers.ints.describe(),
            Values::Dict(dict) => dict.describe(),
            Values::Alp(alp) => alp.describe(),
            Values::AlpRd(alp_rd) => alp_rd.describe(),
            Values::Strings(strings) => strings.describe(),
            Values::Nested(nested) => nested.describe(),
            _ => self.encoding().to_string(),
        }
    }

    /// What is in which buffer, for decoders that run elsewhere.
    pub fn layout(&self) -> Layout<'_> {
        let values = match &self.body.values {
            Values::AllNull => layout::Values::AllNull,
            Values::Constant(value) => layout::Values::Constant(value),
            Values::Plain(plain) => plain.layout(),
            Values::Integers(integers, _) => integers.layout(),
            Values::Dict(dict) => dict.layout(),
            Values::Alp(alp) => alp.layout(),
            Values::AlpRd(alp_rd) => alp_rd.layout(),
            Values::Strings(_) | Values::Nested(_) => layout::Values::Other,
        };
        Layout {
            validity: Nulls::new(&self.body.validity),
            values,
        }
    }

    /// The values of any range of rows.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for what only decoding shows; [`Error::Unsupported`] if the range ends
    /// beyond the chunk or holds more bytes than the type can address; [`Error::TooLarge`] if the
    /// values take more than a gigabyte and the bytes of the chunk do not account for that.
    pub fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        self.select(&Selection::of_range(rows))
    }

    /// The values of the selected rows. Only vectors with a selected row are decoded.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`].
    pub fn select(&self, selection: &Selection) -> Result<ArrayRef> {
        self.check_bounds(selection)?;
        self.check_size(selection)?;
        let nulls = self.body.validity.select(selection);
        self.body.values.select(&self.data_type, selection, nulls)
    }

    /// About how many bytes [`Column::select`] would return. Nothing is decoded but the lengths of
    /// strings and lists, and these only if there may be more than a megabyte of them.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`].
    pub fn decoded_bytes(&self, selection: &Selection) -> Result<u64> {
        self.check_bounds(selection)?;
        let rows = selection.count();
        let most = self.most_bytes(rows);
        if most <= size::EXACT_ABOVE {
            return Ok(most);
        }
        let strings = match &self.body.values {
            Values::Dict(dict) => dict.string_bytes(selection)?,
            Values::Strings(strings) => strings.string_bytes(&self.data_type, selection)?,
            Values::Nested(nested) => {
                return nested.decoded_bytes(&self.data_type, selection, self.limit);
            }
            _ => return Ok(most),
        };
        Ok(size::fixed_bytes(&self.data_type, rows as u64).saturating_add(strings))
    }

    /// Whether the chunk says no more than that every row is null.
    pub(crate) fn is_all_null(&self) -> bool {
        matches!(self.body.values, Values::AllNull)
    }

    /// A bound on the bytes of any `rows` rows, found without decoding anything.
    pub(crate) fn most_bytes(&self, rows: usize) -> u64 {
        let of_each = |bytes: u64| bytes.saturating_mul(rows as u64);
        let strings = match &self.body.values {
            Values::Constant(value) => of_each(size::longest_string(value)),
            Values::Dict(dict) => of_each(dict.longest_string()),
            Values::Strings(strings) => strings.most_bytes(),
            Values::Nested(nested) => return nested.most_bytes(&self.data_type, rows),
            _ => 0,
        };
        size::fixed_bytes(&self.data_type, rows as u64).saturating_add(strings)
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

    /// Keeps the selected rows that pass `predicate`, evaluated on the encoded form where the
    /// encoding can.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`]; [`Error::Unsupported`] if a constant has another type.
    pub fn filter(&self, predicate: &Predicate, selection: &mut Selection) -> Result<()> {
        self.check_bounds(selection)?;
        predicate::check_types(predicate, &self.data_type)?;
        match predicate {
            Predicate::IsNull => return self.filter_nulls(false, selection),
            Predicate::IsNotNull => return self.filter_nulls(true, selection),
            Predicate::Range { .. } | Predicate::In { .. } => self.filter_nulls(true, selection)?,
        }
        match &self.body.values {
            Values::Integers(integers, _) => filter_integers(integers, predicate, selection),
            Values::Alp(alp) => match (&self.data_type, predicate) {
                (DataType::Float64, Predicate::Range { low, high, negated }) => {
                    let range = predicate::range_words(low, high)?;
                    filter_ranges(selection, range, *negated, |v, low, high, out| {
                        alp.in_range::<f64>(v, narrow(low), narrow(high), out)
                    })
                }
                (DataType::Float32, Predicate::Range { low, high, negated }) => {
                    let range = predicate::range_words(low, high)?;
                    filter_ranges(selection, range, *negated, |v, low, high, out| {
                        alp.in_range::<f32>(v, narrow(low), narrow(high), out)
                    })
                }
                _ => self.filter_values(&mut |array| predicate.evaluate(array), selection),
            },
            Values::Strings(strings) => {
                if let Some(length) = predicate
                    .only_value()
                    .and_then(|value| Some(byte_strings::values(value)?[0].len()))
                {
                    for (vector, mask) in selection.vectors_mut() {
                        let mut same = [0; VECTOR_LEN / 64];
                        strings.with_length(vector, length as u64, &mut same)?;
                        mask.iter_mut()
                            .zip(&same)
                            .for_each(|(mask, same)| *mask &= same);
                    }
                }
                self.filter_values(&mut |array| predicate.evaluate(array), selection)
            }
            _ => self.filter_values(&mut |array| predicate.evaluate(array), selection),
        }
    }

    /// Keeps the selected rows that pass `test`, which must be deterministic. It gets arrays of
    /// this column's type and returns an entry for each row; null counts as false. It is evaluated
    /// once for each entry of a dictionary and each constant, else on decoded selected rows.
    ///
    /// # Errors
    ///
    /// As [`Column::decode`], and those of `test`.
    pub fn filter_with(
        &self,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
        selection: &mut Selection,
    ) -> Result<()> {
        self.check_bounds(selection)?;
        if self.body.validity.may_have_nulls() && !self.is_false_for_null(test)? {
            // nulls may pass (IS NULL, coalesce, ...): no value stands for them in the encoding
            return self.filter_rows(test, selection);
        }
        self.filter_nulls(true, selection)?;
        self.filter_values(test, selection)
    }

    fn is_false_for_null(
        &self,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
    ) -> Result<bool> {
        self.check_limit(size::fixed_bytes(&self.data_type, 1))?;
        let result = test(&nulls::of_type(&self.data_type, 1)?)?;
        Ok(result.is_empty() || result.is_null(0) || !result.value(0))
    }

    fn filter_nulls(&self, valid: bool, selection: &mut Selection) -> Result<()> {
        if let Values::Nested(_) = self.body.values {
            // dictionaries and runs keep their nulls with their values, unions have none
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

    /// Tests decoded rows, as many at once as fit [`FILTER_BYTES`].
    fn filter_rows(
        &self,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
        selection: &mut Selection,
    ) -> Result<()> {
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
    fn filter_values(
        &self,
        test: &mut dyn FnMut(&ArrayRef) -> Result<BooleanArray>,
        selection: &mut Selection,
    ) -> Result<()> {
        match &self.body.values {
            _ if selection.is_empty() => {}
            // fewer tests than rows: otherwise the rows themselves are tested
            Values::Dict(dict) if dict.entries().len() <= selection.count() => {
                dict.filter(&test(dict.entries())?, selection)?
            }
            Values::Constant(value) => {
                let result = test(value)?;
                if result.is_empty() || result.is_null(0) || !result.value(0) {
                    *selection = Selection::none(selection.first_vector(), selection.rows());
                }
            }
            _ => self.filter_rows(test, selection)?,
        }
        Ok(())
    }
}

/// The key of a float's total order, which `word_range` widened.
fn narrow(word: i128) -> i64 {
    word.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

fn filter_integers(
    integers: &Integers,
    predicate: &Predicate,
    selection: &mut Selection,
) -> Result<()> {
    match predicate {
        Predicate::Range { low, high, negated } => {
            let range = predicate::range_words(low, high)?;
            filter_ranges(selection, range, *negated, |vector, low, high, out| {
                integers.in_range(vector, low, high, out)
            })
        }
        Predicate::In { values, negated } => {
            let mut words = predicate::value_words(values)?
                .ok_or_else(|| Error::Unsupported("constants beyond 128 bits".into()))?;
            words.sort_unstable();
            words.dedup();
            integers.filter_in(&words, *negated, selection)
        }
        Predicate::IsNull | Predicate::IsNotNull => Ok(()),
    }
}

fn filter_ranges(
    selection: &mut Selection,
    range: Option<(i128, i128)>,
    negated: bool,
    mut in_range: impl FnMut(usize, i128, i128, &mut crate::masks::Mask) -> Result<()>,
) -> Result<()> {
    let (low, high) =
        range.ok_or_else(|| Error::Unsupported("a constant beyond 128 bits".into()))?;
    let flip = if negated { u64::MAX } else { 0 };
    let mut within = [0; VECTOR_LEN / 64];
    for (vector, mask) in selection.vectors_mut() {
        in_range(vector, low, high, &mut within)?;
        mask.iter_mut()
            .zip(&within)
            .for_each(|(mask, within)| *mask &= within ^ flip);
    }
    Ok(())
}

impl Values {
    fn parse(
        reader: &mut ChunkReader,
        tag: u8,
        validity: &Validity,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        let mismatch = || corrupt(PART, format!("tag {tag} for type {data_type}"));
        Ok(match tag {
            CONSTANT if matches!(validity, Validity::AllNull) => Self::AllNull,
            _ if matches!(validity, Validity::AllNull) => {
                return Err(corrupt(PART, format!("tag {tag} for nulls only")));
            }
            CONSTANT => {
                let value = Column::parse_values(reader, data_type, 1)?.decode(0..1)?;
                ensure(value.is_valid(0), PART, || "a constant that is null".into())?;
                Self::Constant(value)
            }
            PLAIN => {
                let width = plain::width_of(data_type).ok_or_else(mismatch)?;
                Self::Plain(Plain::parse(reader, width, len)?)
            }
            INTEGERS => {
                let class = Class::stored(data_type).ok_or_else(mismatch)?;
                Self::Integers(Integers::parse(reader, len)?, class)
            }
            DICT => Self::Dict(Dict::parse(reader, data_type, len)?),
            ALP if *data_type == DataType::Float64 => Self::Alp(Alp::parse::<f64>(reader, len)?),
            ALP if *data_type == DataType::Float32 => Self::Alp(Alp::parse::<f32>(reader, len)?),
            ALP_RD if *data_type == DataType::Float64 => {
                Self::AlpRd(AlpRd::parse::<f64>(reader, len)?)
            }
            ALP_RD if *data_type == DataType::Float32 => {
                Self::AlpRd(AlpRd::parse::<f32>(reader, len)?)
            }
            STRINGS if byte_strings::is_bytes(data_type) => {
                Self::Strings(Strings::parse(reader, len)?)
            }
            NESTED => Self::Nested(Nested::parse(reader, data_type, len)?),
            _ => return Err(mismatch()),
        })
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        match self {
            Self::AllNull => nulls::of_type(data_type, selection.count()),
            Self::Constant(value) => constant::repeat(value, selection.count(), nulls),
            Self::Plain(plain) => plain.select(data_type, selection, nulls),
            Self::Integers(integers, class) => integers.select(data_type, *class, selection, nulls),
            Self::Dict(dict) => dict.select(selection, nulls),
            Self::Alp(alp) => {
                let values = match data_type {
                    DataType::Float64 => Buffer::from_vec(alp.select::<f64>(selection)?),
                    _ => Buffer::from_vec(alp.select::<f32>(selection)?),
                };
                class::fixed_width_array(data_type, selection.count(), values, nulls)
            }
            Self::AlpRd(alp_rd) => {
                let values = match data_type {
                    DataType::Float64 => Buffer::from_vec(alp_rd.select::<f64>(selection)?),
                    _ => Buffer::from_vec(alp_rd.select::<f32>(selection)?),
                };
                class::fixed_width_array(data_type, selection.count(), values, nulls)
            }
            Self::Strings(strings) => strings.select(data_type, selection, nulls),
            Self::Nested(nested) => nested.select(data_type, selection, nulls),
        }
    }
}
