//! `alp`: floats that are decimals, as integers. Loses to `alp_rd` on floats that use all their
//! digits, to `dict` on few distinct values.
//!
//! ```text
//! header   u64 reference (two's complement): the smallest decimal integer of the chunk
//! buffer   u8 exponent e of each vector, at most 18 (f32: 10)
//! buffer   u8 factor f of each vector, at most e
//! then     decimal integer - reference of each value, see `sequence`
//! then     the exceptions, as the bits of the value, see `patches`
//! ```
//!
//! A value `v` of a vector is stored as the integer `d` nearest to `v * 10^e * 10^-f` if
//! `d * 10^f * 10^-e` gives back `v` bit for bit. Products are doubles, computed left to right;
//! for an `f32` the last one is rounded to it. Other values (-0.0, NaN and infinities always) are
//! exceptions; their `d` is that of a neighbour. `d` is at most 2^51 - 1 (f32: 2^31 - 1) in
//! magnitude and `d * 10^f` fits an `i64`: computing it in integers and converting that gives the
//! same double.
//!
//! Departures from the published code: `d * 10^f` is a product of floats, which vectorises
//! everywhere; so are the products for an `f32`, which leaves hardly an exception where single
//! precision gives back only three decimals in four; samples are not evenly spaced, see
//! `float::sample`.
//!
//! Bits per value: the integers', 80 (f32: 48) for each exception, 16 bits a vector.

mod scale;

use crate::VECTOR_LEN;
use crate::class;
use crate::codecs::codec::Codec;
use crate::codecs::layout;
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::sequence_codec::{Scratch, SpareRuns};
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::{Result, ensure};
use crate::float::{self, Float, SAMPLES, match_float};
use crate::masks::{Mask, set_bit};
use crate::patches::{PatchList, Patches, PatchesWriter};
use crate::predicate::{self, Predicate};
use crate::residuals::bit_length;
use crate::selection::Selection;
use crate::simd::dispatched;
use crate::vectors::{for_each_vector, sample_ranges};
use crate::wire::{ChunkReader, ChunkWriter};
use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

pub use scale::alp_integers;
use scale::{Factors, Scale, max_exponent};

const PART: &str = "alp";
/// Vectors that the candidate scales are searched in, evenly spread.
const SAMPLE_VECTORS: usize = 12;
/// Scales that every vector tries.
const MAX_CANDIDATES: usize = 5;
/// A vector stops trying candidates after this many in a row that are no better.
const MAX_WORSE: usize = 2;

/// Appends the source's values; `false` if they are no floats of single or double precision.
pub(crate) fn encode(source: &Source, out: &mut ChunkWriter) -> bool {
    let Some(offsets) = &source.offsets else {
        return false;
    };
    match_float!(source.array.data_type(),
        F => encode_values::<F>(&offsets.floats(), out), _ => return false);
    true
}

fn encode_values<F: Float>(values: &[F], out: &mut ChunkWriter) {
    let candidates = candidates(values);
    let (mut exponents, mut factors) = (vec![], vec![]);
    let (mut integers, mut reference) = (Vec::with_capacity(values.len()), i64::MAX);
    let mut exceptions = PatchesWriter::default();
    for_each_vector(values, |vector, rows| {
        let scale = best_scale(&candidates, &vector[..rows]);
        exponents.push(scale.exponent);
        factors.push(scale.factor);
        let mut converted = [0; VECTOR_LEN];
        let mut unequal = [0; VECTOR_LEN / 64];
        to_integers(vector, scale.factors(), &mut converted, &mut unequal);
        (rows..VECTOR_LEN).for_each(|row| set_bit(&mut unequal, row, false));
        fill(&unequal, rows, &mut converted);
        exceptions.push(&unequal, |row| vector[row].to_bits64());
        reference = converted[..rows]
            .iter()
            .fold(reference, |least, d| least.min(*d));
        integers.extend(converted[..rows].iter().map(|d| *d as u64));
    });
    for integer in &mut integers {
        *integer = integer.wrapping_sub(reference as u64);
    }
    out.i64(reference);
    out.buffer(exponents);
    out.buffer(factors);
    out.append(sequence::encode(&integers, None));
    exceptions.finish(out);
}

dispatched! {
    /// Computes the integer of each value, and the mask of values that it does not restore.
    fn to_integers<F: Float>(
        values: &[F; VECTOR_LEN],
        factors: Factors<F>,
        out: &mut [i64; VECTOR_LEN],
        unequal: &mut Mask,
    ) {
        let rows = values.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<64>().0);
        for ((values, out), word) in rows.zip(unequal) {
            let mut mask = 0;
            for bit in 0..64 {
                out[bit] = factors.to_integer(values[bit]);
                mask |= u64::from(!factors.holds(out[bit], values[bit])) << bit;
            }
            *word = mask;
        }
    }
}

/// Gives each exception the integer before it (the first ones the integer after them), which costs least in any integer
/// encoding.
fn fill(exceptions: &Mask, rows: usize, integers: &mut [i64; VECTOR_LEN]) {
    if *exceptions == [0; VECTOR_LEN / 64] {
        return;
    }
    let is_exception = |row: usize| exceptions[row / 64] >> (row % 64) & 1 == 1;
    let first = (0..rows).find(|row| !is_exception(*row));
    let mut previous = first.map_or(0, |row| integers[row]);
    for (row, integer) in integers[..rows].iter_mut().enumerate() {
        if is_exception(row) {
            *integer = previous;
        }
        previous = *integer;
    }
}

/// The scales that are best for most sampled vectors, the most frequent first.
fn candidates<F: Float>(values: &[F]) -> Vec<Scale> {
    let mut wins: Vec<(usize, Scale)> = vec![];
    for rows in sample_ranges(values.len(), SAMPLE_VECTORS) {
        let sample = float::sample(&values[rows]);
        let sizes = Scale::all::<F>().filter_map(|scale| Some((estimate(&sample, scale)?, scale)));
        if let Some((_, best)) = sizes.min_by_key(|(bits, _)| *bits) {
            match wins.iter_mut().find(|(_, scale)| *scale == best) {
                Some((count, _)) => *count += 1,
                None => wins.push((1, best)),
            }
        }
    }
    wins.sort_unstable_by(|a, b| b.cmp(a));
    wins.truncate(MAX_CANDIDATES);
    wins.into_iter().map(|(_, scale)| scale).collect()
}

/// The best candidate for the vector `values`.
fn best_scale<F: Float>(candidates: &[Scale], values: &[F]) -> Scale {
    let [first, others @ ..] = candidates else {
        return Scale {
            exponent: 0,
            factor: 0,
        };
    };
    if others.is_empty() {
        return *first;
    }
    let sample = float::sample(values);
    let size = |scale| estimate(&sample, scale).unwrap_or(usize::MAX);
    let (mut best, mut worse) = ((size(*first), *first), 0);
    for scale in others {
        let bits = size(*scale);
        if bits < best.0 {
            (best, worse) = ((bits, *scale), 0);
        } else {
            worse += 1;
            if worse == MAX_WORSE {
                break;
            }
        }
    }
    best.1
}

/// Bits that the sampled values take; `None` with fewer than two values that are no exceptions.
fn estimate<F: Float>(sample: &[F; SAMPLES], scale: Scale) -> Option<usize> {
    let (exceptions, low, high) = sampled_range(sample, scale.factors());
    let width = bit_length(high.wrapping_sub(low) as u64);
    (exceptions + 2 <= SAMPLES).then_some(SAMPLES * width + exceptions * (F::BITS + 16))
}

dispatched! {
    /// The number of exceptions; the smallest and largest integer of the others.
    fn sampled_range<F: Float>(sample: &[F; SAMPLES], factors: Factors<F>) -> (usize, i64, i64) {
        let (mut exceptions, mut low, mut high) = (0, i64::MAX, i64::MIN);
        for value in sample {
            let integer = factors.to_integer(*value);
            let holds = factors.holds(integer, *value);
            exceptions += u64::from(!holds);
            low = low.min(if holds { integer } else { i64::MAX });
            high = high.max(if holds { integer } else { i64::MIN });
        }
        (exceptions as usize, low, high)
    }
}

/// A parsed column of floats.
///
/// Invariants, checked by [`Alp::parse`]: a scale for each vector, with factor <= exponent <= the
/// type's largest. Integers beyond the type's largest show only when decoded: they give some float.
#[derive(Clone, Debug)]
pub(crate) struct Alp {
    reference: i64,
    exponents: Buffer,
    factors: Buffer,
    integers: Sequence,
    exceptions: Patches,
}

impl Codec for Alp {
    fn encoding(&self) -> Encoding {
        Encoding::Alp
    }

    fn describe(&self) -> String {
        format!("alp({})", self.integers.describe())
    }

    fn layout(&self) -> layout::Values<'_> {
        layout::Values::Alp {
            reference: self.reference,
            exponents: &self.exponents,
            factors: &self.factors,
            integers: &self.integers,
            exceptions: PatchList(&self.exceptions),
        }
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let values = match data_type {
            DataType::Float64 => Buffer::from_vec(self.values::<f64>(selection)?),
            _ => Buffer::from_vec(self.values::<f32>(selection)?),
        };
        class::fixed_width_array(data_type, selection.count(), values, nulls)
    }

    /// Compares ranges as integers.
    fn filter(
        &self,
        data_type: &DataType,
        predicate: &Predicate,
        selection: &mut Selection,
    ) -> Result<bool> {
        let Predicate::Range { low, high, negated } = predicate else {
            return Ok(false);
        };
        // keys of floats are words of 64 bits
        let narrow = |word: i128| word.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        match_float!(data_type, F => {
            let mut runs = None;
            let in_range = |vector, low, high, out: &mut _| {
                self.in_range::<F>(vector, narrow(low), narrow(high), &mut runs, out)
            };
            predicate::filter_range(low, high, *negated, selection, in_range)?;
            Ok(true)
        }, _ => Ok(false))
    }
}

impl Alp {
    pub fn parse<F: Float>(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        let reference = reader.i64()?;
        let exponents = reader.buffer_of(vectors, PART)?;
        let factors = reader.buffer_of(vectors, PART)?;
        for (exponent, factor) in exponents.iter().zip(factors.iter()) {
            ensure(
                factor <= exponent && *exponent <= max_exponent::<F>(),
                PART,
                || {
                    format!(
                        "exponent {exponent} and factor {factor}, at most {}",
                        max_exponent::<F>()
                    )
                },
            )?;
        }
        Ok(Self {
            reference,
            exponents,
            factors,
            integers: Sequence::parse(reader, len)?,
            exceptions: Patches::parse(reader, vectors, F::BITS / 8)?,
        })
    }

    fn scale(&self, vector: usize) -> Scale {
        Scale {
            exponent: self.exponents.get(vector).map_or(0, |e| *e),
            factor: self.factors.get(vector).map_or(0, |f| *f),
        }
    }

    /// The selected values.
    fn values<F: Float>(&self, selection: &Selection) -> Result<Vec<F>> {
        let mut out = Vec::with_capacity(selection.count());
        let mut integers = Vec::with_capacity(VECTOR_LEN);
        let mut scratch = Scratch::default();
        for selected in selection.vectors() {
            let vector = selected.vector;
            if self.exceptions.is_empty(vector) || selected.count == VECTOR_LEN {
                let start = out.len();
                integers.clear();
                let reference = F::unpacked(self.reference);
                self.integers
                    .select(&selected, reference, &mut scratch, &mut integers)?;
                append_floats(&integers, self.scale(vector).factors(), &mut out);
                for (row, bits) in self.exceptions.of(vector) {
                    out[start + row] = F::from_bits64(bits);
                }
            } else {
                let mut values = [F::default(); VECTOR_LEN];
                self.decode(vector, &mut values)?;
                selected.append(&values, &mut out);
            }
        }
        Ok(out)
    }

    /// Decodes a vector. Entries beyond the end are arbitrary.
    fn decode<F: Float>(&self, vector: usize, out: &mut [F; VECTOR_LEN]) -> Result<()> {
        let mut integers = [F::Unpacked::default(); VECTOR_LEN];
        self.integers
            .decode(vector, F::unpacked(self.reference), &mut integers)?;
        to_floats(&integers, self.scale(vector).factors(), out);
        for (row, bits) in self.exceptions.of(vector) {
            out[row] = F::from_bits64(bits);
        }
        Ok(())
    }

    /// Sets a bit per row of a vector whose value has a key in `low..=high`, compared as integers. Bits beyond the end
    /// are arbitrary; `runs` as for [`Sequence::in_range`].
    fn in_range<F: Float>(
        &self,
        vector: usize,
        low: i64,
        high: i64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        let factors: Factors<F> = self.scale(vector).factors();
        let (first, last) = factors.range(low, high);
        if low > high || first > last || last < self.reference {
            out.fill(0);
        } else {
            let offset =
                |integer: i64| integer.max(self.reference).wrapping_sub(self.reference) as u64;
            self.integers
                .in_range(vector, offset(first), offset(last), runs, out)?;
        }
        for (row, bits) in self.exceptions.of(vector) {
            set_bit(out, row, (low..=high).contains(&F::from_bits64(bits).key()));
        }
        Ok(())
    }
}

dispatched! {
    fn append_floats<F: Float>(integers: &[F::Unpacked], factors: Factors<F>, out: &mut Vec<F>) {
        out.extend(integers.iter().map(|integer| factors.to_float(*integer)));
    }
}

dispatched! {
    fn to_floats<F: Float>(
        integers: &[F::Unpacked; VECTOR_LEN],
        factors: Factors<F>,
        out: &mut [F; VECTOR_LEN],
    ) {
        for (to, integer) in out.iter_mut().zip(integers) {
            *to = factors.to_float(*integer);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::FORMAT_VERSION;
    use crate::float::tests::{columns, parse, values};

    fn encoded<F: Float>(values: &[F]) -> Vec<u8> {
        let mut out = ChunkWriter::default();
        encode_values(values, &mut out);
        out.finish()
    }

    fn parsed<F: Float>(bytes: Vec<u8>, len: usize) -> Result<Alp> {
        let mut reader = ChunkReader::new(&Buffer::from_vec(bytes), FORMAT_VERSION)?;
        let alp = Alp::parse::<F>(&mut reader, len)?;
        reader.finish()?;
        Ok(alp)
    }

    fn decoded<F: Float>(alp: &Alp, len: usize) -> Vec<F> {
        let mut all = vec![];
        for vector in 0..len.div_ceil(VECTOR_LEN) {
            let mut out = [F::default(); VECTOR_LEN];
            alp.decode(vector, &mut out).unwrap();
            all.extend_from_slice(&out[..(len - all.len()).min(VECTOR_LEN)]);
        }
        all
    }

    fn bits<F: Float>(values: &[F]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits64()).collect()
    }

    fn check_round_trip<F: Float>(values: &[F]) -> Alp {
        let alp = parsed::<F>(encoded(values), values.len()).unwrap();
        assert_eq!(bits(&decoded::<F>(&alp, values.len())), bits(values));
        alp
    }

    fn check_range<F: Float>(alp: &Alp, values: &[F], low: i64, high: i64) {
        for (vector, values) in values.chunks(VECTOR_LEN).enumerate() {
            let mut mask = [0x5555; VECTOR_LEN / 64];
            alp.in_range::<F>(vector, low, high, &mut None, &mut mask)
                .unwrap();
            for (row, value) in values.iter().enumerate() {
                let expected = (low..=high).contains(&value.key());
                assert_eq!(
                    mask[row / 64] >> (row % 64) & 1 == 1,
                    expected,
                    "row {row} of {vector}"
                );
            }
        }
    }

    fn check_ranges<F: Float>(column: &[F], constants: [F; 2]) {
        let alp = check_round_trip(column);
        let some = |i: usize| {
            column
                .get(i % column.len().max(1))
                .map_or(0, |value| value.key())
        };
        let keys = [
            constants[0].key(),
            constants[1].key(),
            some(0),
            some(977),
            i64::MIN,
            i64::MAX,
        ];
        for low in keys {
            for high in keys {
                check_range(&alp, column, low, high);
                check_range(&alp, column, low.saturating_add(1), high.saturating_sub(1));
            }
        }
    }

    /// `count` values `start * 10^-scale, (start + step) * 10^-scale, ..`
    fn decimals<F: Float>(start: i64, step: i64, scale: i32, count: i64) -> Vec<F> {
        (0..count)
            .map(|i| parse(&format!("{}e-{scale}", start + i * step)))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn doubles_round_trip_and_compare(column in columns::<f64>(), a in values(), b in values()) {
            check_ranges::<f64>(&column, [a, b]);
        }

        #[test]
        fn floats_round_trip_and_compare(column in columns::<f32>(), a in values(), b in values()) {
            check_ranges::<f32>(&column, [a, b]);
        }

        #[test]
        fn any_bytes_are_refused_or_decode(
            column in columns::<f64>(),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = encoded(&column);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(alp) = parsed::<f64>(bytes, column.len()) {
                let mut mask = [0; VECTOR_LEN / 64];
                for vector in 0..column.len().div_ceil(VECTOR_LEN) {
                    let _ = alp.decode::<f64>(vector, &mut [0.0; VECTOR_LEN]);
                    let _ = alp.in_range::<f64>(vector, 1, 1 << 62, &mut None, &mut mask);
                    let _ = alp.in_range::<f64>(vector, i64::MIN, i64::MAX, &mut None, &mut mask);
                }
            }
        }
    }

    #[test]
    fn every_length_round_trips() {
        for len in [0, 1, 2, 31, 1023, 1024, 1025, 2048, 3000] {
            check_ranges(&decimals::<f64>(-500, 1, 2, len), [0.0, 1.25]);
            check_ranges(&decimals::<f32>(-500, 1, 2, len), [0.0, 1.25]);
        }
    }

    #[test]
    fn any_number_of_exceptions_round_trips() {
        let nan = f64::from_bits(0x7FF8_0000_DEAD_BEEF);
        for exceptions in [1, 2, 31, 32, 33, 500, 1022, 1023, 1024] {
            let mut column = decimals::<f64>(-50_000, 99, 2, 2048);
            let spread = (0..exceptions).map(|i| i * 389 % VECTOR_LEN);
            spread.for_each(|row| column[row] = [nan, -0.0, f64::INFINITY, 5e-324, -nan][row % 5]);
            check_ranges(&column, [nan, -0.0]);
            let alp = check_round_trip(&column);
            assert_eq!(alp.exceptions.of(0).count(), exceptions);
            assert!(alp.exceptions.is_empty(1));
        }
        check_ranges(&[f32::NAN; 1024], [f32::NAN, f32::NEG_INFINITY]);
    }

    #[test]
    fn decimals_take_the_bits_of_their_digits() {
        let rows = 100 * VECTOR_LEN as i64;
        let bits_per_value = |bytes: usize| bytes as f64 * 8.0 / rows as f64;
        let shuffled = |i: i64, modulus| ((i * 0x9E37_79B9) ^ (i >> 3)) * 7_919 % modulus;
        for scale in 0..8 {
            let column: Vec<f64> = (0..rows)
                .map(|i| parse(&format!("{}e-{scale}", shuffled(i, 100_003) - 20_000)))
                .collect();
            let bits = bits_per_value(encoded(&column).len());
            // From three decimals on, no scale restores all values: 0.8% are exceptions.
            let most = if scale < 3 { 17.2 } else { 18.4 };
            assert!((16.9..most).contains(&bits), "scale {scale}: {bits} bits");
            let column: Vec<f32> = column.into_iter().map(|value| value as f32).collect();
            let bits = bits_per_value(encoded(&column).len());
            assert!((16.9..17.2).contains(&bits), "scale {scale}: {bits} bits");
        }
        // Seven digits, the precision of `f32`.
        let column: Vec<f32> = (0..rows)
            .map(|i| (8_000_000 + shuffled(i, 1_000_003)) as f32 / 100.0)
            .collect();
        let bits = bits_per_value(encoded(&column).len());
        assert!((19.9..20.2).contains(&bits), "{bits} bits");
    }

    #[test]
    fn periodic_data_does_not_fool_the_sample() {
        let column: Vec<f64> = (0..100 * 1024).map(|i| f64::from(i % 977) * 0.5).collect();
        let bytes = encoded(&column).len();
        assert!(bytes < column.len() * 14 / 8, "{bytes} bytes");
        let alp = check_round_trip(&column);
        assert!((0..100).all(|vector| alp.exceptions.is_empty(vector)));
    }

    #[test]
    fn vectors_choose_their_own_scale() {
        let mut column = decimals::<f64>(1, 17, 1, 20 * 1024);
        column.extend(decimals::<f64>(1, 17, 9, 20 * 1024));
        let alp = check_round_trip(&column);
        assert_ne!(alp.scale(0), alp.scale(39));
        assert!((0..40).all(|vector| alp.exceptions.of(vector).count() < 30));
    }

    #[test]
    fn scales_and_lengths_are_checked() {
        let column = decimals::<f32>(-500, 1, 2, 3000);
        let with = |change: &dyn Fn(&mut ChunkWriter)| {
            let mut out = ChunkWriter::default();
            change(&mut out);
            parsed::<f32>(out.finish(), 3000)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        let message = with(&|out| {
            out.i64(0);
            out.buffer(vec![3, 11, 2]);
            out.buffer(vec![0; 3]);
        });
        assert_eq!(message, "corrupt alp: exponent 11 and factor 0, at most 10");
        let message = with(&|out| {
            out.i64(0);
            out.buffer(vec![3; 3]);
            out.buffer(vec![3, 3, 4]);
        });
        assert_eq!(message, "corrupt alp: exponent 3 and factor 4, at most 10");
        let message = with(&|out| {
            out.i64(0);
            out.buffer(vec![3; 2]);
        });
        assert_eq!(
            message,
            "corrupt column chunk: a buffer of 3 bytes at 2, of 4 in all"
        );
        let message = with(&|out| {
            out.i64(0);
            out.buffer(vec![0; 3]);
            out.buffer(vec![0; 3]);
            out.append(sequence::encode(&vec![0; 3000], None));
            out.u8(8);
        });
        assert_eq!(
            message,
            "corrupt patches: values of 8 bytes, at most 4 possible"
        );
        assert!(parsed::<f32>(encoded(&column), 2000).is_err());
        let mut bytes = encoded(&column);
        bytes.pop();
        assert!(parsed::<f32>(bytes, 3000).is_err());
    }
}
