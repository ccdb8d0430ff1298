//! Chooses encodings and writes column chunks.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType;

use crate::MAX_ROWS;
use crate::codecs::codec::Children;
use crate::codecs::source::Source;
use crate::codecs::{dict, plain, registry, sequence, strings};
use crate::compressor::Compressor;
use crate::encoding::{Encoding, Pin};
use crate::error::{Error, Result};
use crate::validity;
use crate::vectors::sample_ranges;
use crate::wire::ChunkWriter;

/// Vectors sampled to choose an encoding.
const SAMPLE_VECTORS: usize = 10;

/// Bytes of text for which symbols or entries are learned.
const LEAST_TRAINED: usize = 256;

/// For columns encoded only to measure their size, and by default.
const CHILDREN: Children<'static> = Children {
    encode: |array, compressor, out| encode_node(array, None, compressor, out),
    encode_distinct: encode_entries,
    compressor: None,
};

/// Options for encoding a column.
#[derive(Clone, Debug, Default)]
pub struct EncodeOptions {
    /// Use this encoding instead of the smallest one.
    pub pin: Option<Pin>,
    /// Without a pin, use this encoding if it applies, and compare it with no other: one that was the smallest for
    /// similar rows.
    pub hint: Option<Encoding>,
    /// The encoding of a dictionary's codes, which are compared with no other either: one of integers.
    pub codes: Option<Encoding>,
    /// Compresses strings instead of the calling thread.
    pub compressor: Option<Arc<dyn Compressor>>,
}

impl EncodeOptions {
    /// Options with a fixed encoding, regardless of what another one would save.
    pub fn pinned(pin: impl Into<Option<Encoding>>) -> Self {
        Self {
            pin: pin.into().map(Pin::One),
            ..Self::default()
        }
    }
}

/// Encodes all rows of `array` as a column chunk.
///
/// Without a pin or a hint, every encoding that applies is tried on a sample, and the smallest wins unless
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
    let mut source = Source::of(array);
    source.compressor = options.compressor.as_deref();
    source.codes = options.codes;
    encode_source(source, options.pin, options.hint, &mut out)?;
    Ok(out.finish())
}

/// The estimated size in bytes of `array` in each encoding that applies, from a sample.
pub fn alternatives(array: &dyn Array) -> Result<Vec<(Encoding, u64)>> {
    let source = Source::of(array);
    // Without values there is nothing to encode, and so no choice.
    if array.is_empty() || array.data_type() == &DataType::Null {
        return Ok(vec![]);
    }
    let candidates = registry::candidates(&source);
    if let [only] = candidates[..] {
        // a single encoding needs no sample, which not all nested types allow
        let mut out = ChunkWriter::default();
        let applies = registry::encode(only, &source, CHILDREN, &mut out)?;
        return Ok(applies
            .then_some((only, out.len() as u64))
            .into_iter()
            .collect());
    }
    estimates(&source, candidates, true)
}

/// The candidate with the fewest weighted bytes.
fn choose(source: &Source, candidates: Vec<Encoding>) -> Result<Encoding> {
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let estimates = estimates(source, candidates, false)?.into_iter();
    let sizes = estimates.map(|(encoding, bytes)| {
        let counted = match (encoding, &source.offsets) {
            (Encoding::Dict, _) if dict::is_far(source) => bytes as usize + bytes as usize / 4,
            (_, Some(offsets)) => sequence::with_work(encoding, bytes as usize, &offsets.values),
            _ => bytes as usize,
        };
        (encoding, counted)
    });
    Ok(Encoding::smallest(sizes))
}

/// The candidate with the fewest bytes, regardless of its speed; any if there is none.
fn smallest(source: &Source, candidates: Vec<Encoding>) -> Result<Encoding> {
    let estimates = estimates(source, candidates, true)?.into_iter();
    let smallest = estimates.min_by_key(|(_, bytes)| *bytes);
    Ok(smallest.map_or(Encoding::GpuFor, |(encoding, _)| encoding))
}

/// Appends `array` in the pinned or the best encoding.
pub(crate) fn encode_node(
    array: &dyn Array,
    pin: Option<Pin>,
    compressor: Option<&dyn Compressor>,
    out: &mut ChunkWriter,
) -> Result<()> {
    let mut source = Source::of(array);
    source.compressor = compressor;
    encode_source(source, pin, None, out)
}

/// Appends `source` in the pinned encoding, the hinted one if it applies, or the best one.
fn encode_source(
    mut source: Source,
    pin: Option<Pin>,
    hint: Option<Encoding>,
    out: &mut ChunkWriter,
) -> Result<()> {
    let children = Children {
        compressor: source.compressor,
        ..CHILDREN
    };
    if source.is_constant() {
        return registry::encode(Encoding::Constant, &source, children, out).map(|_| ());
    }
    let candidates = registry::candidates(&source);
    if let (None, Some(hint)) = (pin, hint)
        && candidates.contains(&hint)
        && registry::encode(hint, &source, children, out)?
    {
        return Ok(());
    }
    let encoding = match pin {
        Some(Pin::One(Encoding::Constant)) => {
            return Err(Error::Unsupported(
                "encoding constant for values that differ".into(),
            ));
        }
        Some(Pin::One(pinned)) => pinned,
        Some(Pin::GpuStar) => {
            let family = candidates
                .into_iter()
                .filter(|of| Pin::GPU_STAR.contains(of));
            smallest(&source, family.collect())?
        }
        None => choose(&source, candidates)?,
    };
    if pin.is_some() {
        // a pinned dictionary applies even if it does not pay
        source.max_entries = usize::MAX;
    }
    match registry::encode(encoding, &source, children, out)? {
        true => Ok(()),
        false if pin.is_none() => {
            // the estimate from the sample did not hold for all rows, e.g. too many distinct values
            let fallback = registry::fallback(&source);
            registry::encode(fallback, &source, children, out).map(|_| ())
        }
        false => {
            let applicable = registry::candidates(&source)
                .iter()
                .map(|e| e.name())
                .collect::<Vec<_>>()
                .join(", ");
            let data_type = source.array.data_type();
            let pin = pin.unwrap_or(Pin::One(encoding));
            Err(Error::Unsupported(format!(
                "encoding {pin} for these values of type {data_type}; what applies: {applicable}"
            )))
        }
    }
}

/// Appends the entries of a dictionary: distinct, and so neither constant nor a dictionary.
fn encode_entries(
    entries: &dyn Array,
    compressor: Option<&dyn Compressor>,
    out: &mut ChunkWriter,
) -> Result<()> {
    let mut source = Source::of(entries);
    source.compressor = compressor;
    let mut candidates = registry::candidates(&source);
    candidates.retain(|encoding| *encoding != Encoding::Dict);
    let encoding = choose(&source, candidates)?;
    match registry::encode(encoding, &source, CHILDREN, out)? {
        true => Ok(()),
        false => registry::encode(Encoding::Plain, &source, CHILDREN, out).map(|_| ()),
    }
}

/// The size of the source, which has rows, in each of `candidates` that applies. Without `all`, candidates larger than
/// others may be omitted.
fn estimates(
    source: &Source,
    candidates: Vec<Encoding>,
    all: bool,
) -> Result<Vec<(Encoding, u64)>> {
    let rows = source.array.len();
    let mut sizes = vec![];
    let mut nulls = ChunkWriter::default();
    validity::encode(source.array, &mut nulls);
    let head = (1 + nulls.len()) as u64;
    if let Some(offsets) = &source.offsets {
        let of_kinds = sequence::sizes(&offsets.values, 0).into_iter();
        let known = of_kinds.filter(|(kind, _)| candidates.contains(kind));
        sizes.extend(known.map(|(kind, bytes)| (kind, head + 16 + bytes as u64)));
    }
    if let Some(width) = plain::width_of(source.array.data_type()) {
        sizes.push((Encoding::Plain, head + (rows * width) as u64));
    }
    if candidates.contains(&Encoding::Dict) {
        let best = sizes.iter().map(|(_, bytes)| *bytes).min();
        if let Some(bytes) = dict::estimate(source, CHILDREN, best.filter(|_| !all))? {
            sizes.push((Encoding::Dict, head + bytes));
            if !all && dict::is_least(source, bytes) {
                return Ok(sizes);
            }
        }
    }
    let is_known = |encoding: &Encoding| {
        let is_kind = sequence::KINDS.contains(encoding);
        let is_sized = sizes.iter().any(|(sized, _)| sized == encoding);
        is_kind || is_sized || *encoding == Encoding::Dict
    };
    // a symbol table or entries of so little text take about as many bytes as they save
    let is_short = !all
        && source
            .text_bytes()
            .is_some_and(|bytes| bytes < LEAST_TRAINED);
    let is_tried = |encoding: &Encoding| match encoding {
        Encoding::Fsst | Encoding::OnPair => !is_short,
        encoding => !is_known(encoding),
    };
    let sampled: Vec<_> = candidates.into_iter().filter(is_tried).collect();
    if !sampled.is_empty() {
        let dict = sizes.iter().find(|(sized, _)| *sized == Encoding::Dict);
        let dict = dict.map(|(_, bytes)| *bytes);
        sizes.extend(sampled_sizes(source, sampled, dict, all)?);
    }
    Ok(sizes)
}

/// The size of the source in each of `candidates` that applies, measured by encoding a sample. Without `all`, symbol
/// tables are not trained for text that entries halve: they do not do better, unless a dictionary, which takes `dict`
/// bytes, is nearly as good.
fn sampled_sizes(
    source: &Source,
    candidates: Vec<Encoding>,
    dict: Option<u64>,
    all: bool,
) -> Result<Vec<(Encoding, u64)>> {
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
    sample.scale = rows as f64 / sampled as f64;
    let mut sizes: Vec<(Encoding, u64)> = vec![];
    for encoding in candidates {
        let size_in = |of| {
            sizes
                .iter()
                .find(|(other, _)| *other == of)
                .map(|smallest| smallest.1)
        };
        if let (Encoding::Fsst, false, Some(plain), Some(entries)) = (
            encoding,
            all,
            size_in(Encoding::Plain),
            size_in(Encoding::OnPair),
        ) && entries * 2 <= plain
            && dict.is_none_or(|dict| entries * 5 <= dict * 4)
        {
            continue;
        }
        let mut out = ChunkWriter::default();
        if registry::encode(encoding, &sample, CHILDREN, &mut out)? {
            let once = strings::vocabulary_bytes(encoding, &sample);
            let rest = scale(out.len().saturating_sub(once), sampled, rows);
            sizes.push((encoding, once as u64 + rest));
        }
    }
    // one training serves both
    source.train_as(sample);
    Ok(sizes)
}

fn scale(bytes: usize, sampled: usize, rows: usize) -> u64 {
    (bytes as u128 * rows as u128 / sampled.max(1) as u128) as u64
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, StringArray,
    };
    use arrow::datatypes::i256;

    use super::*;
    use crate::Column;

    const ROWS: u64 = 65_536;

    fn random(seed: u64) -> u64 {
        let mixed = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    /// Values that are distributed over the rows in different ways, as text and as numbers.
    fn arrays() -> Vec<(String, ArrayRef)> {
        /// The value of a row, out of `n` values.
        type Order = fn(u64, u64) -> u64;
        let orders: [(&str, Order); 7] = [
            ("uniform", |row, most| random(row) % most),
            ("skewed", |row, most| {
                random(row) % (1 + random(row + ROWS) % most)
            }),
            ("sorted", |row, most| row * most / ROWS),
            ("in bursts", |row, most| {
                random(row / 5000) % most / 2 + random(row) % 20
            }),
            ("in bursts of runs", |row, most| match row / 4000 % 4 {
                1 => random(row) % most,
                burst => burst + row / 700,
            }),
            ("in runs", |row, most| random(row / 30) % most),
            ("almost all of", |row, most| match random(row) % 100 {
                0 => random(row + ROWS) % most,
                _ => most / 2,
            }),
        ];
        let mut all = vec![];
        for (name, order) in orders {
            for most in [2, 100, 3000, 20_000, 30_000] {
                let values = || (0..ROWS).map(|row| order(row, most));
                let text = values().map(|value| format!("{:016x} of {value}", random(value)));
                let numbers = values().map(|value| random(value) as i64);
                let arrays: [ArrayRef; 2] = [
                    Arc::new(StringArray::from_iter_values(text)),
                    Arc::new(Int64Array::from_iter_values(numbers)),
                ];
                let name = format!("{most} {name}");
                all.extend(arrays.map(|array| (name.clone(), array)));
            }
        }
        let uniform = orders[0].1;
        for most in [2, 73, 3000, 26_000] {
            let values = || (0..ROWS).map(|row| random(uniform(row, most)));
            let wide = |value: u64| i128::from(value) << 64 | i128::from(random(value));
            let doubles = values().map(|value| f64::from_bits(value >> 12 | 0x3ff << 52));
            let arrays: [ArrayRef; 3] = [
                Arc::new(Float64Array::from_iter_values(doubles)),
                Arc::new(Decimal128Array::from_iter_values(values().map(wide))),
                Arc::new(Decimal256Array::from_iter_values(
                    values().map(|value| i256::from_parts(u128::from(value), wide(value))),
                )),
            ];
            all.extend(arrays.map(|array| (format!("{most} repeated"), array)));
        }
        all
    }

    fn encoded(array: &dyn Array, pin: Option<Encoding>) -> usize {
        encode(array, &EncodeOptions::pinned(pin)).unwrap().len()
    }

    #[test]
    fn few_wide_decimals_take_a_code_a_row() {
        let wide = |row: u64| i128::from(random(row % 73)) << 64;
        let array: ArrayRef = Arc::new(Decimal128Array::from_iter_values((0..ROWS).map(wide)));
        let bytes = encoded(&array, None);
        assert!(bytes < ROWS as usize, "{bytes}");
        // and a single value takes none, regardless of its width
        let value = i256::from_parts(7, 1 << 100);
        let array: ArrayRef = Arc::new(Decimal256Array::from_iter_values(vec![value; 3000]));
        assert!(encoded(&array, None) < 500);
    }

    /// Rare values take space of their own, and not a bit per row.
    #[test]
    fn rare_values_and_nulls_take_little() {
        let rare = |row: u64| random(row).is_multiple_of(200);
        let rows = || 0..ROWS;
        let flags: ArrayRef = Arc::new(rows().map(|row| Some(rare(row))).collect::<BooleanArray>());
        let most = rows().filter(|row| rare(*row)).count() * 2 + 1200;
        assert!(encoded(&flags, None) < most);
        let numbers = rows().map(|row| if rare(row) { random(row) as i64 } else { 5 });
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        assert!(encoded(&numbers, None) < 6 * most);
        let nulls = rows().map(|row| (!rare(row)).then_some(5));
        let nulls: ArrayRef = Arc::new(Int64Array::from_iter(nulls));
        assert!(encoded(&nulls, None) < most);
        let valid = rows().map(|row| rare(row).then_some(5));
        let valid: ArrayRef = Arc::new(Int64Array::from_iter(valid));
        assert!(encoded(&valid, None) < most);
    }

    /// Times of day, which start again: one large step back does not cost every row.
    #[test]
    fn restarting_values_are_stored_as_differences() {
        let times = (0..ROWS).map(|row| (row % 900 * 3 / 2 + random(row) % 3) as i64);
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values(times));
        let bytes = encoded(&array, Some(Encoding::Delta));
        assert!(bytes * 8 < ROWS as usize * 4, "{bytes}");
    }

    #[test]
    fn the_choice_is_nearly_the_smallest() {
        for (name, array) in arrays() {
            let bytes = |pin| encode(&array, &EncodeOptions::pinned(pin)).map(|bytes| bytes.len());
            let candidates = registry::candidates(&Source::of(&array)).into_iter();
            let pinned =
                candidates.filter_map(|encoding| Some((bytes(Some(encoding)).ok()?, encoding)));
            let (smallest, encoding) = pinned.min_by_key(|(bytes, _)| *bytes).unwrap();
            let chosen = bytes(None).unwrap();
            assert!(
                chosen * 10 <= smallest * 11 + 10 * 1024,
                "{name}, {}: {chosen}, {encoding} {smallest}",
                array.data_type()
            );
        }
    }

    #[test]
    fn hints_hold_where_they_apply() {
        for (name, array) in arrays() {
            let chosen = encode(&array, &EncodeOptions::default()).unwrap();
            for hint in Encoding::ALL {
                let options = EncodeOptions {
                    hint: Some(hint),
                    ..EncodeOptions::default()
                };
                let hinted = encode(&array, &options).unwrap();
                let parsed = Column::parse(hinted.clone().into(), array.data_type(), array.len());
                let parsed = parsed.unwrap();
                let pinned = EncodeOptions::pinned(hint);
                // a pinned dictionary may have more entries than one that is chosen
                let is_other = hint == Encoding::Dict && parsed.encoding() != hint;
                match encode(&array, &pinned) {
                    Ok(pinned) if !is_other => assert_eq!(hinted, pinned, "{name}, {hint}"),
                    _ => assert_eq!(hinted, chosen, "{name}, {hint}"),
                }
            }
        }
    }

    #[test]
    fn codes_have_the_encoding_asked_for() {
        for (name, array) in arrays() {
            for codes in [
                Encoding::Ffor,
                Encoding::Rle,
                Encoding::Constant,
                Encoding::Fsst,
            ] {
                let options = EncodeOptions {
                    codes: Some(codes),
                    ..EncodeOptions::pinned(Encoding::Dict)
                };
                let bytes = encode(&array, &options).unwrap();
                let column = Column::parse(bytes.into(), array.data_type(), array.len()).unwrap();
                let expected = match codes {
                    Encoding::Rle => Encoding::Rle,
                    _ => Encoding::Ffor,
                };
                assert_eq!(column.codes_encoding(), Some(expected), "{name}");
                assert_eq!(&column.decode(0..array.len()).unwrap(), &array, "{name}");
            }
        }
        let same: ArrayRef = Arc::new(Int64Array::from_iter([Some(7), None, Some(7)]));
        let bytes = encode(&same, &EncodeOptions::default()).unwrap();
        let column = Column::parse(bytes.into(), same.data_type(), 3).unwrap();
        assert_eq!(column.codes_encoding(), None);
    }

    #[test]
    fn sizes_of_dictionaries_are_estimated() {
        for (name, array) in arrays() {
            let estimates = alternatives(&array).unwrap();
            let of_dict = estimates.iter().find(|(of, _)| *of == Encoding::Dict);
            let Some((_, estimate)) = of_dict else {
                panic!("{name}, {}", array.data_type());
            };
            let pin = Some(Encoding::Dict);
            let actual = encode(&array, &EncodeOptions::pinned(pin)).unwrap().len() as u64;
            // large buffers start at multiples of 64 bytes
            assert!(
                ((actual * 9 / 10).saturating_sub(1024)..=actual * 11 / 10).contains(estimate),
                "{name}, {}: {estimate} for {actual}",
                array.data_type()
            );
        }
    }
}
