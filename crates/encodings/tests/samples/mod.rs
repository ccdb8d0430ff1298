//! Arrays of every type, in shapes that suit each encoding or defeat it.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;

/// The pattern of consecutive values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Constant,
    Few,
    Runs,
    Sorted,
    Random,
    Outliers,
    Extremes,
}

impl Shape {
    pub const ALL: [Self; 7] = [
        Self::Constant,
        Self::Few,
        Self::Runs,
        Self::Sorted,
        Self::Random,
        Self::Outliers,
        Self::Extremes,
    ];
}

/// The pattern of null rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NullPattern {
    None,
    Some,
    /// Whole vectors null or valid.
    Vectors,
    All,
}

impl NullPattern {
    pub const ALL: [Self; 4] = [Self::None, Self::Some, Self::Vectors, Self::All];
}

pub const LENGTHS: [usize; 9] = [0, 1, 31, 32, 33, 1023, 1024, 1025, 2048];

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
        self.next() % limit
    }
}

pub fn all_types() -> Vec<DataType> {
    use DataType::*;
    let item = || Arc::new(Field::new("item", Int32, true));
    let entries = Field::new(
        "entries",
        Struct(
            vec![
                Field::new("keys", Utf8, false),
                Field::new("values", Int64, true),
            ]
            .into(),
        ),
        false,
    );
    vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Millisecond, Some("+02:00".into())),
        Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Timestamp(TimeUnit::Nanosecond, None),
        Duration(TimeUnit::Second),
        Duration(TimeUnit::Nanosecond),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
        Decimal32(9, 2),
        Decimal64(18, 3),
        Decimal128(38, 4),
        Decimal256(76, 10),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(5),
        FixedSizeBinary(0),
        Dictionary(Box::new(Int16), Box::new(Utf8)),
        Dictionary(Box::new(UInt32), Box::new(Int64)),
        RunEndEncoded(
            Arc::new(Field::new("run_ends", Int32, false)),
            Arc::new(Field::new("values", Int32, true)),
        ),
        List(item()),
        LargeList(item()),
        FixedSizeList(item(), 3),
        Struct(
            vec![
                Field::new("a", Int32, true),
                Field::new("b", Utf8View, true),
            ]
            .into(),
        ),
        Map(Arc::new(entries), false),
        Union(
            UnionFields::try_new(
                vec![0, 5],
                vec![Field::new("i", Int32, true), Field::new("s", Utf8, true)],
            )
            .unwrap(),
            UnionMode::Dense,
        ),
        Union(
            UnionFields::try_new(
                vec![0, 5],
                vec![Field::new("i", Int32, true), Field::new("s", Utf8, true)],
            )
            .unwrap(),
            UnionMode::Sparse,
        ),
    ]
}

/// Returns true if comparison kernels support the type.
pub fn is_ordered(data_type: &DataType) -> bool {
    use DataType::*;
    !data_type.is_nested() && !matches!(data_type, Null | Dictionary(_, _) | RunEndEncoded(_, _))
}

/// Unsigned numbers of `bits` bits in a shape.
fn numbers(shape: Shape, len: usize, bits: u32, random: &mut Random) -> Vec<u64> {
    let max = u64::MAX >> (64 - bits);
    let mut drift = random.next() & (max >> 2);
    let mut run = (0, 0);
    (0..len)
        .map(|i| match shape {
            Shape::Constant => 42 & max,
            Shape::Few => (random.below(5) * 1009) & max,
            Shape::Runs => {
                if run.1 == 0 {
                    run = (random.below(1000) & max, 1 + random.below(60));
                }
                run.1 -= 1;
                run.0
            }
            Shape::Sorted => {
                drift = (drift + random.below(4)).min(max >> 1);
                drift
            }
            Shape::Random => random.below(5000) & max,
            Shape::Outliers if i % 97 == 0 => random.next() & max,
            Shape::Outliers => random.below(30) & max,
            Shape::Extremes => [0, max, max >> 1, (max >> 1) + 1, 1][random.below(5) as usize],
        })
        .collect()
}

fn doubles(shape: Shape, len: usize, random: &mut Random) -> Vec<f64> {
    numbers(shape, len, 40, random)
        .into_iter()
        .enumerate()
        .map(|(i, n)| match shape {
            Shape::Extremes => [
                f64::NAN,
                -f64::NAN,
                f64::from_bits(0x7FF0_0000_0000_0001),
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                0.0,
                f64::MIN_POSITIVE / 8.0,
                f64::MAX,
                f64::MIN,
                1e22,
                -12.5,
            ][random.below(12) as usize],
            Shape::Sorted => (n as f64).sqrt() / 3.0,
            Shape::Outliers if i % 97 == 0 => f64::from_bits(random.next()),
            _ => n as f64 / 100.0 - 3.0,
        })
        .collect()
}

fn strings(shape: Shape, len: usize, random: &mut Random) -> Vec<String> {
    const WORDS: [&str; 8] = [
        "quick",
        "ünïcode",
        "foxes",
        " ",
        "",
        "sleepily",
        "日本",
        "about the final requests",
    ];
    numbers(shape, len, 16, random)
        .into_iter()
        .map(|n| match shape {
            Shape::Random => (0..n % 7)
                .map(|_| WORDS[random.below(8) as usize])
                .collect(),
            Shape::Extremes if n % 3 == 0 => "long ".repeat(n as usize % 70),
            Shape::Extremes => String::from_iter(char::from_u32(random.below(0xD000) as u32)),
            Shape::Sorted => format!("customer#{n:09}"),
            _ => format!("value {n}"),
        })
        .collect()
}

fn bytes(shape: Shape, len: usize, random: &mut Random) -> Vec<Vec<u8>> {
    strings(shape, len, random)
        .into_iter()
        .map(|text| {
            let mut bytes = text.into_bytes();
            if shape == Shape::Extremes {
                bytes.extend(
                    (0..random.below(40))
                        .map(|i| if i % 3 == 0 { 255 } else { random.next() as u8 }),
                );
            }
            bytes
        })
        .collect()
}

fn nulls_of(pattern: NullPattern, len: usize, random: &mut Random) -> Option<NullBuffer> {
    Some(NullBuffer::new(match pattern {
        NullPattern::None => return None,
        NullPattern::Some => BooleanBuffer::collect_bool(len, |_| random.below(10) > 0),
        NullPattern::Vectors => BooleanBuffer::collect_bool(len, |i| i / 1024 % 2 == 1),
        NullPattern::All => BooleanBuffer::new_unset(len),
    }))
}

fn with_nulls(array: ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
    make_array(array.to_data().into_builder().nulls(nulls).build().unwrap())
}

/// An array of any type of [`all_types`].
pub fn array_of(
    data_type: &DataType,
    shape: Shape,
    pattern: NullPattern,
    len: usize,
    seed: u64,
) -> ArrayRef {
    use DataType::*;
    let random = &mut Random::new(seed);
    let nulls = nulls_of(pattern, len, random);
    let ints = |bits: u32, random: &mut Random| -> ArrayRef {
        Arc::new(UInt64Array::from(numbers(shape, len, bits, random)))
    };
    // reinterpret the bits, so that the whole range of the type occurs
    let reinterpret = |to: DataType, bits: u32, random: &mut Random| -> ArrayRef {
        let numbers = numbers(shape, len, bits, random);
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|n| n.to_le_bytes()[..bits as usize / 8].to_vec())
            .collect();
        make_array(
            ArrayData::builder(to)
                .len(len)
                .add_buffer(bytes.into())
                .align_buffers(true)
                .build()
                .unwrap(),
        )
    };
    let array: ArrayRef = match data_type {
        Null => return Arc::new(NullArray::new(len)),
        Boolean => Arc::new(
            numbers(shape, len, 16, random)
                .iter()
                .map(|n| Some(n % 3 == 0))
                .collect::<BooleanArray>(),
        ),
        Float64 => Arc::new(Float64Array::from(doubles(shape, len, random))),
        Float32 => {
            let values = doubles(shape, len, random).into_iter().map(|v| v as f32);
            Arc::new(values.map(Some).collect::<Float32Array>())
        }
        Float16 => {
            let values = doubles(shape, len, random)
                .into_iter()
                .map(half::f16::from_f64);
            Arc::new(Float16Array::from_iter_values(values))
        }
        Decimal128(p, s) => {
            let wide = numbers(shape, len, 62, random).into_iter().map(|n| {
                let n = i128::from(n) - (1 << 40);
                if shape == Shape::Extremes {
                    n * 10_000_000_000_000_000
                } else {
                    n
                }
            });
            let array = Decimal128Array::from_iter_values(wide);
            Arc::new(array.with_precision_and_scale(*p, *s).unwrap())
        }
        Decimal256(p, s) => {
            let wide = numbers(shape, len, 60, random).into_iter().map(|n| {
                let n = i256::from_i128(i128::from(n) - 77);
                if shape == Shape::Extremes {
                    n * i256::from_i128(i128::MAX / 3)
                } else {
                    n
                }
            });
            let array = Decimal256Array::from_iter_values(wide);
            Arc::new(array.with_precision_and_scale(*p, *s).unwrap())
        }
        Utf8 | LargeUtf8 | Utf8View => {
            let text: ArrayRef = Arc::new(StringArray::from(strings(shape, len, random)));
            cast(&text, data_type).unwrap()
        }
        Binary | LargeBinary | BinaryView => {
            let values = bytes(shape, len, random);
            let binary: ArrayRef = Arc::new(BinaryArray::from_iter_values(values));
            cast(&binary, data_type).unwrap()
        }
        FixedSizeBinary(size) => {
            let values = numbers(shape, len, 40, random)
                .into_iter()
                .map(|n| n.to_be_bytes()[8 - *size as usize..].to_vec());
            let values: Vec<Vec<u8>> = values.collect();
            let flat: Vec<u8> = values.concat();
            Arc::new(FixedSizeBinaryArray::try_new_with_len(*size, flat.into(), None, len).unwrap())
        }
        Dictionary(_, values) => {
            let shape = if shape == Shape::Constant {
                shape
            } else {
                Shape::Few
            };
            let flat = array_of(values, shape, pattern, len, seed);
            return cast(&flat, data_type).unwrap();
        }
        RunEndEncoded(_, values) => {
            let flat = array_of(values.data_type(), Shape::Runs, pattern, len, seed);
            return cast(&flat, data_type).unwrap();
        }
        List(item) | LargeList(item) => {
            let lengths: Vec<usize> = numbers(shape, len, 8, random)
                .into_iter()
                .map(|n| n as usize % 6)
                .collect();
            let child = array_of(
                item.data_type(),
                shape,
                NullPattern::Some,
                lengths.iter().sum(),
                seed + 1,
            );
            let list = ListArray::new(
                Arc::clone(item),
                OffsetBuffer::from_lengths(lengths),
                child,
                nulls,
            );
            return cast(&list, data_type).unwrap();
        }
        FixedSizeList(item, size) => {
            let child = array_of(
                item.data_type(),
                shape,
                NullPattern::Some,
                len * *size as usize,
                seed + 1,
            );
            return Arc::new(
                FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, child, nulls, len)
                    .unwrap(),
            );
        }
        Struct(fields) => {
            let children = fields
                .iter()
                .map(|f| array_of(f.data_type(), shape, NullPattern::Some, len, seed + 1))
                .collect();
            return Arc::new(
                StructArray::try_new_with_length(fields.clone(), children, nulls, len).unwrap(),
            );
        }
        Map(entries, sorted) => {
            let Struct(fields) = entries.data_type() else {
                unreachable!()
            };
            let lengths: Vec<usize> = numbers(shape, len, 8, random)
                .into_iter()
                .map(|n| n as usize % 4)
                .collect();
            let rows = lengths.iter().sum();
            let keys = array_of(
                fields[0].data_type(),
                shape,
                NullPattern::None,
                rows,
                seed + 1,
            );
            let values = array_of(
                fields[1].data_type(),
                shape,
                NullPattern::Some,
                rows,
                seed + 2,
            );
            let child =
                StructArray::try_new_with_length(fields.clone(), vec![keys, values], None, rows)
                    .unwrap();
            let offsets = OffsetBuffer::from_lengths(lengths);
            return Arc::new(
                MapArray::try_new(Arc::clone(entries), offsets, child, nulls, *sorted).unwrap(),
            );
        }
        Union(fields, mode) => {
            let ids: ScalarBuffer<i8> = (0..len)
                .map(|_| if random.below(2) == 0 { 0 } else { 5 })
                .collect();
            let children = fields
                .iter()
                .map(|(_, f)| array_of(f.data_type(), shape, NullPattern::Some, len, seed + 1))
                .collect();
            let offsets =
                (*mode == UnionMode::Dense).then(|| (0..len as i32).collect::<ScalarBuffer<i32>>());
            return Arc::new(UnionArray::try_new(fields.clone(), ids, offsets, children).unwrap());
        }
        Interval(IntervalUnit::MonthDayNano) => {
            let values = numbers(shape, len, 20, random)
                .into_iter()
                .map(|n| IntervalMonthDayNano::new(n as i32, 3, n as i64));
            Arc::new(IntervalMonthDayNanoArray::from_iter_values(values))
        }
        Interval(IntervalUnit::DayTime) => {
            let values = numbers(shape, len, 20, random)
                .into_iter()
                .map(|n| IntervalDayTime::new(n as i32, 3));
            Arc::new(IntervalDayTimeArray::from_iter_values(values))
        }
        UInt64 => ints(64, random),
        other => {
            let width = other.primitive_width().unwrap() as u32 * 8;
            reinterpret(other.clone(), width, random)
        }
    };
    with_nulls(array, nulls)
}

/// Floats as their bits, so that equal means equal in every bit; other arrays unchanged.
pub fn float_bits(array: &ArrayRef) -> ArrayRef {
    let as_type = |to: DataType| {
        let data = array.to_data();
        let builder = ArrayData::builder(to).len(data.len()).offset(data.offset());
        make_array(
            builder
                .nulls(data.nulls().cloned())
                .buffers(data.buffers().to_vec())
                .build()
                .unwrap(),
        )
    };
    match array.data_type() {
        DataType::Float16 => as_type(DataType::UInt16),
        DataType::Float32 => as_type(DataType::UInt32),
        DataType::Float64 => as_type(DataType::UInt64),
        _ => Arc::clone(array),
    }
}
