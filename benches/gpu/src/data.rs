//! Columns to measure with, and predicates on them.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array};
use arrow::compute;
use arrow::datatypes::DataType;
use vectile_encodings::Predicate;
use vectile_pipeline::{Aggregate, Filter, Output};

/// Rows of a row group, as the writer's default.
pub const GROUP_ROWS: usize = 1 << 18;

/// Random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }

    /// A row group of numbers of `width` bits.
    pub fn bits(&mut self, width: u32) -> Vec<i64> {
        let top = (1u64 << width) - 1;
        (0..GROUP_ROWS)
            .map(|_| (self.next() & top) as i64)
            .collect()
    }
}

pub fn i32s(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

pub fn i64s(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

pub fn f64s(values: Vec<f64>) -> ArrayRef {
    Arc::new(Float64Array::from(values))
}

/// Decimals of 15 digits, 2 after the point, as in TPC-H.
pub fn decimals(values: Vec<i128>) -> ArrayRef {
    let array = Decimal128Array::from(values).with_precision_and_scale(15, 2);
    Arc::new(array.unwrap_or_else(|error| panic!("{error}")))
}

/// `low <= column <= high`.
pub fn between(column: usize, low: ArrayRef, high: ArrayRef) -> Filter {
    let range = Predicate::Range {
        low: Bound::Included(low),
        high: Bound::Included(high),
        negated: false,
    };
    Filter::Column(column, range)
}

pub fn count() -> Output {
    Output::Aggregates(vec![Aggregate::CountRows])
}

/// Bytes of the strings of an array; 0 for other types.
pub fn text_bytes(array: &ArrayRef) -> usize {
    let lengths = compute::kernels::length::length(array);
    let bytes = |lengths: ArrayRef| match lengths.data_type() {
        DataType::Int32 => {
            let lengths = lengths.as_primitive::<arrow::datatypes::Int32Type>();
            compute::sum(lengths).map_or(0, |sum| i64::from(sum) as usize)
        }
        _ => 0,
    };
    lengths.map_or(0, bytes)
}
