//! Arrays of every type that kernels support, in best and worst cases of encodings.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BooleanArray, Float32Array, Float64Array, StringArray, make_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;
use vectile_pipeline::Type;

/// Rows of a vector.
pub const VECTOR: usize = 1024;

/// The distribution of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    Constant,
    /// Five distinct values, the type's extremes among them.
    Few,
    Runs,
    Sorted,
    Drifting,
    /// Offsets of these widths, one after the other per vector.
    Widths(&'static [u32]),
    /// Offsets of these widths, one after the other per 32 rows.
    Miniblocks(&'static [u32]),
    /// Differences of these widths, one after the other per vector.
    Steps(&'static [u32]),
    /// Small numbers, except for this many in 1000: patches, exceptions of decimals.
    Outliers(u64),
    /// One value, except for this many in 1000.
    Rare(u64),
    /// Ascending, with restarts.
    Restarts,
    /// The type's extremes, NaNs, infinities, ...
    Extremes,
    /// Floats with random digits and few exponents.
    Digits,
}

/// The distribution of nulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nulls {
    None,
    Some,
    /// Every second vector, whole.
    Vectors,
    All,
}

/// Reproducible pseudo-random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    /// A number of `low..=high`.
    fn between(&mut self, low: i128, high: i128) -> i128 {
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        match (high.wrapping_sub(low) as u128).checked_add(1) {
            Some(span) => low.wrapping_add((wide % span) as i128),
            None => wide as i128,
        }
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// An array of a type with a machine type.
pub fn sample(data_type: &DataType, style: Style, nulls: Nulls, len: usize, seed: u64) -> ArrayRef {
    let random = &mut Random::new(seed);
    let of = Type::of(data_type).expect("a type with a machine type");
    let array: ArrayRef = match of {
        Type::F64 => Arc::new(Float64Array::from(doubles(style, len, random))),
        Type::F32 => Arc::new(Float32Array::from(singles(style, len, random))),
        _ => array_of(data_type, &integers(of, style, len, random)),
    };
    with_nulls(&array, nulls, random)
}

/// An array of a type that is stored as integers.
pub fn array_of(data_type: &DataType, values: &[i128]) -> ArrayRef {
    if *data_type == DataType::Boolean {
        let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
        return Arc::new(BooleanArray::new(bits, None));
    }
    let width = data_type.primitive_width().unwrap();
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes()[..width].to_vec())
        .collect();
    let builder = ArrayData::builder(data_type.clone())
        .len(values.len())
        .add_buffer(bytes.into())
        .align_buffers(true);
    make_array(builder.build().unwrap())
}

pub fn with_nulls(array: &ArrayRef, nulls: Nulls, random: &mut Random) -> ArrayRef {
    let len = array.len();
    let bits = match nulls {
        Nulls::None => return Arc::clone(array),
        Nulls::Some => BooleanBuffer::collect_bool(len, |_| random.below(10) > 0),
        Nulls::Vectors => BooleanBuffer::collect_bool(len, |row| row / VECTOR % 2 == 1),
        Nulls::All => BooleanBuffer::new_unset(len),
    };
    let builder = array.to_data().into_builder();
    make_array(builder.nulls(Some(NullBuffer::new(bits))).build().unwrap())
}

/// Bounds of the values of a style; decimals of 128 bits go far beyond 64 bits.
fn bounds(of: Type, style: Style) -> (i128, i128) {
    match (of, style) {
        (Type::I128, Style::Extremes) => (-10i128.pow(38) + 1, 7 * 10i128.pow(37)),
        (Type::I128, _) => (10i128.pow(37), 10i128.pow(37) + (1 << 64) - 1),
        _ => of.range().unwrap(),
    }
}

fn integers(of: Type, style: Style, len: usize, random: &mut Random) -> Vec<i128> {
    let (low, high) = bounds(of, style);
    let bits = 128 - (high - low).unsigned_abs().leading_zeros();
    let few = [
        low,
        high,
        low + (high - low) / 3,
        low + 1,
        high - (high - low) / 5,
    ];
    let mut at = low + (high - low) / 4;
    let mut run = (0, 0);
    let mut base = low;
    let value = |row: usize| match style {
        Style::Constant => low + (high - low) / 3,
        Style::Few => random.one_of(&few),
        Style::Runs => {
            if run.1 == 0 {
                run = (random.between(low, high), 1 + random.below(60));
            }
            run.1 -= 1;
            run.0
        }
        Style::Sorted => {
            at = (at + i128::from(random.below(4))).min(high);
            at
        }
        Style::Drifting => {
            at = (at + i128::from(random.below(9)) - 4).clamp(low, high);
            at
        }
        Style::Widths(widths) | Style::Miniblocks(widths) => {
            let rows = match style {
                Style::Widths(_) => VECTOR,
                _ => 32,
            };
            let width = widths[row / rows % widths.len()].min(bits);
            let top = (1i128 << width) - 1;
            match row % rows {
                0 => {
                    base = random.between(low, high - top);
                    base
                }
                1 => base + top,
                _ => random.between(base, base + top),
            }
        }
        Style::Steps(widths) => {
            let width = widths[row / VECTOR % widths.len()].min(bits);
            let top = (1i128 << width) - 1;
            let room = (high - low) / VECTOR as i128;
            match row % VECTOR {
                0 => at = low,
                // rising as long as the type has room, else up and down
                1 if top <= room => at += top,
                _ if top <= room => at += random.between(0, top),
                1 => at = low + top / 2,
                2 => at = low,
                _ => at = random.between(low, low + top / 2),
            }
            at
        }
        Style::Rare(share) if random.below(1000) >= share => low + (high - low) / 3,
        Style::Rare(_) => random.between(low, high),
        Style::Restarts => {
            low + (row as i128 % 100 * 2 + i128::from(random.below(2))).min(high - low)
        }
        Style::Outliers(share) if random.below(1000) < share => random.between(low, high),
        Style::Outliers(_) => random.between(low, (low + 30).min(high)),
        Style::Extremes => {
            let edges = [
                low,
                high,
                0.max(low),
                1.max(low),
                (-1).max(low),
                low + 1,
                high - 1,
            ];
            match random.below(8) {
                7 => random.between(low, high),
                edge => edges[edge as usize],
            }
        }
        Style::Digits => random.between(low, high),
    };
    (0..len).map(value).collect()
}

pub const EDGES: [f64; 14] = [
    f64::NAN,
    -f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    -0.0,
    0.0,
    f64::MIN_POSITIVE / 8.0,
    -f64::MIN_POSITIVE / 8.0,
    f64::MIN_POSITIVE,
    f64::MAX,
    f64::MIN,
    1e22,
    -12.5,
    0.1,
];

pub const EDGES_32: [f32; 14] = [
    f32::NAN,
    -f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -0.0,
    0.0,
    f32::MIN_POSITIVE / 8.0,
    -f32::MIN_POSITIVE / 8.0,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    1e10,
    -12.5,
    0.1,
];

fn doubles(style: Style, len: usize, random: &mut Random) -> Vec<f64> {
    let decimals = decimals(style, 48, len, random);
    let value = |(row, decimal): (usize, f64)| match style {
        Style::Extremes | Style::Few => match random.below(15) {
            14 if style == Style::Extremes => f64::from_bits(random.next()),
            edge => EDGES[edge as usize % if style == Style::Few { 5 } else { 14 }],
        },
        Style::Outliers(share) if random.below(1000) < share => match row % 3 {
            0 => random.one_of(&EDGES),
            1 => f64::from_bits(0x7FF0_0000_0000_0001),
            _ => f64::from_bits(random.next()),
        },
        Style::Digits if random.below(200) == 0 => f64::from_bits(random.next()),
        Style::Digits => {
            let exponent = 1020 + random.below(5);
            f64::from_bits(exponent << 52 | random.next() >> 12)
        }
        _ => decimal,
    };
    decimals.into_iter().enumerate().map(value).collect()
}

fn singles(style: Style, len: usize, random: &mut Random) -> Vec<f32> {
    let decimals = decimals(style, 20, len, random);
    let value = |(row, decimal): (usize, f64)| match style {
        Style::Extremes | Style::Few => match random.below(15) {
            14 if style == Style::Extremes => f32::from_bits(random.next() as u32),
            edge => EDGES_32[edge as usize % if style == Style::Few { 5 } else { 14 }],
        },
        Style::Outliers(share) if random.below(1000) < share => match row % 3 {
            0 => random.one_of(&EDGES_32),
            1 => f32::from_bits(0x7F80_0001),
            _ => f32::from_bits(random.next() as u32),
        },
        Style::Digits if random.below(200) == 0 => f32::from_bits(random.next() as u32),
        Style::Digits => {
            let exponent = 124 + random.below(5) as u32;
            f32::from_bits(exponent << 23 | random.next() as u32 >> 9)
        }
        _ => decimal as f32,
    };
    decimals.into_iter().enumerate().map(value).collect()
}

/// Numbers with few decimals, whose integers have up to `bits` bits.
fn decimals(style: Style, bits: u32, len: usize, random: &mut Random) -> Vec<f64> {
    let capped = match style {
        Style::Widths(_) | Style::Steps(_) => bits,
        _ => 17,
    };
    let top = (1i128 << capped) - 1;
    let mut at = 0i128;
    let mut run = (0, 0);
    let mut value = |row: usize| -> i128 {
        match style {
            Style::Constant => 4200,
            Style::Runs => {
                if run.1 == 0 {
                    run = (random.between(0, top), 1 + random.below(60));
                }
                run.1 -= 1;
                run.0
            }
            Style::Sorted => {
                at = (at + i128::from(random.below(4))).min(top);
                at
            }
            Style::Drifting => {
                at = (at + i128::from(random.below(9)) - 4).clamp(-top, top);
                at
            }
            Style::Widths(widths) | Style::Steps(widths) => {
                let width = widths[row / VECTOR % widths.len()].min(bits);
                let top = (1i128 << width) - 1;
                match row % VECTOR {
                    0 => -5,
                    1 => top - 5,
                    _ => random.between(-5, top - 5),
                }
            }
            Style::Rare(share) if random.below(1000) >= share => 4200,
            Style::Restarts => row as i128 % 100 * 2,
            _ => random.between(-1000, top),
        }
    };
    let scale = |row: usize| match style {
        Style::Widths(_)
        | Style::Steps(_)
        | Style::Sorted
        | Style::Drifting
        | Style::Rare(_)
        | Style::Restarts => 100.0,
        _ => [100.0, 1.0, 1000.0][row / VECTOR % 3],
    };
    (0..len).map(|row| value(row) as f64 / scale(row)).collect()
}

/// Strings with `distinct` different values.
pub fn strings(distinct: u64, nulls: Nulls, len: usize, seed: u64) -> ArrayRef {
    let random = &mut Random::new(seed);
    let words = [
        "",
        "quick foxes",
        "ünïcode",
        "日本",
        "sleepily about the final requests",
    ];
    let text = |n: u64| format!("{}{}", words[n as usize % words.len()], n / 5);
    let values: Vec<String> = (0..len).map(|_| text(random.below(distinct))).collect();
    let array: ArrayRef = Arc::new(StringArray::from(values));
    with_nulls(&array, nulls, random)
}
