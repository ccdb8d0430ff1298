//! Converts constants between DataFusion, the IR and Arrow.

use std::sync::Arc;

use crate::stack;
use arrow::array::{
    Array, ArrayData, ArrayRef, BooleanArray, Float32Array, Float64Array, RecordBatch, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{DataType, Schema, i256};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use vectile_pipeline::{Literal, Numbers, Type};

/// Converts a constant to the IR; `None` if the machine has no such type.
pub(crate) fn literal(value: &ScalarValue) -> Option<Literal> {
    let of = Type::of(&value.data_type())?;
    if value.is_null() {
        return Some(Literal::Null(of));
    }
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Literal::Int((*value).into(), of),
        ScalarValue::Float32(Some(value)) => Literal::F32(*value),
        ScalarValue::Float64(Some(value)) => Literal::F64(*value),
        other => Literal::Int(integer(other, of)?, of),
    })
}

/// Evaluates a parameter, for example a subquery that has run.
pub(crate) fn value_of(parameter: &Arc<dyn PhysicalExpr>) -> Result<Literal> {
    let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let value = match stack::evaluated(parameter, &none)? {
        ColumnarValue::Scalar(value) => literal(&value),
        ColumnarValue::Array(_) => None,
    };
    value.ok_or_else(|| internal_datafusion_err!("{parameter} is no constant"))
}

/// The value of an integer, date, time or decimal.
fn integer(value: &ScalarValue, of: Type) -> Option<i128> {
    let array = value.to_array().ok()?.to_data();
    let width = array.data_type().primitive_width()?;
    let bytes = array.buffers().first()?.get(..width)?;
    let signed = of.range().is_some_and(|(least, _)| least < 0);
    let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; size_of::<i128>()];
    wide.get_mut(..width)?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

/// Converts counts to `data_type`.
pub(crate) fn counts(counts: &[u64], data_type: &DataType) -> Result<ArrayRef> {
    let counts = counts.iter().map(|&count| count.into());
    integers(counts, None, data_type)
}

/// Converts numbers to `data_type`, null where the count is 0. Integers wrap around, floats are rounded.
pub(crate) fn numbers(numbers: &Numbers, counts: &[u64], data_type: &DataType) -> Result<ArrayRef> {
    let present: NullBuffer = counts.iter().map(|&count| count > 0).collect();
    let nulls = (present.null_count() > 0).then_some(present);
    match (numbers, data_type) {
        (Numbers::Int(values), _) => integers(values.iter().copied(), nulls, data_type),
        (Numbers::Float(values), DataType::Float64) => {
            let values = values.iter().copied().collect();
            Ok(Arc::new(Float64Array::try_new(values, nulls)?))
        }
        (Numbers::Float(values), DataType::Float32) => {
            let values = values.iter().map(|&value| value as f32).collect();
            Ok(Arc::new(Float32Array::try_new(values, nulls)?))
        }
        (Numbers::Float(_), other) => internal_err!("floats for {other}"),
        (Numbers::Text(_), other) => internal_err!("text for {other}"),
    }
}

/// Converts integers to `data_type` by their lowest bytes.
fn integers(
    values: impl ExactSizeIterator<Item = i128>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let rows = values.len();
    if data_type == &DataType::Boolean {
        let values: BooleanBuffer = values.map(|value| value != 0).collect();
        return Ok(Arc::new(BooleanArray::new(values, nulls)));
    }
    let Some(width) = data_type.primitive_width() else {
        return internal_err!("integers for {data_type}");
    };
    let buffer = match width {
        1 => Buffer::from_iter(values.map(|value| value as i8)),
        2 => Buffer::from_iter(values.map(|value| value as i16)),
        4 => Buffer::from_iter(values.map(|value| value as i32)),
        8 => Buffer::from_iter(values.map(|value| value as i64)),
        16 => Buffer::from_iter(values),
        32 => Buffer::from_iter(values.map(i256::from_i128)),
        _ => return internal_err!("integers for {data_type}"),
    };
    let data = ArrayData::builder(data_type.clone())
        .len(rows)
        .nulls(nulls)
        .add_buffer(buffer)
        .build()?;
    Ok(make_array(data))
}

/// Reinterprets the bits as another type of the same width.
pub(crate) fn reinterpret(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let width = data_type.primitive_width();
    if array.data_type() == data_type {
        Ok(Arc::clone(array))
    } else if width.is_some() && array.data_type().primitive_width() == width {
        let data = array.to_data().into_builder();
        Ok(make_array(data.data_type(data_type.clone()).build()?))
    } else {
        internal_err!("the bits of {} as {data_type}", array.data_type())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::{Date32Type, Decimal256Type, Float32Type, Int64Type};

    use super::*;

    fn one(number: Numbers, data_type: &DataType) -> ArrayRef {
        numbers(&number, &[1], data_type).unwrap()
    }

    #[test]
    fn constants_survive_both_ways() {
        for value in [
            ScalarValue::Int8(Some(-3)),
            ScalarValue::Int64(Some(i64::MIN)),
            ScalarValue::UInt16(Some(u16::MAX)),
            ScalarValue::UInt64(Some(u64::MAX)),
            ScalarValue::Boolean(Some(true)),
            ScalarValue::Date32(Some(-7)),
            ScalarValue::TimestampNanosecond(Some(-1), Some("UTC".into())),
            ScalarValue::Decimal32(Some(-99), 5, 2),
            ScalarValue::Decimal128(Some(-(10_i128.pow(37))), 38, 2),
        ] {
            let Some(Literal::Int(number, of)) = literal(&value) else {
                panic!("{value}");
            };
            assert_eq!(Some(of), Type::of(&value.data_type()));
            let array = one(Numbers::Int(vec![number]), &value.data_type());
            assert_eq!(ScalarValue::try_from_array(&array, 0).unwrap(), value);
        }
        assert!(literal(&ScalarValue::from("text")).is_none());
        let null = ScalarValue::Float64(None);
        assert_eq!(literal(&null), Some(Literal::Null(Type::F64)));
    }

    #[test]
    fn numbers_take_the_type_they_are_for() {
        let wide = one(Numbers::Int(vec![-5]), &DataType::Decimal256(76, 2));
        let wide = wide.as_primitive::<Decimal256Type>();
        assert_eq!(wide.value(0), i256::from(-5));
        let wrapped = one(Numbers::Int(vec![1 << 64]), &DataType::Int64);
        assert_eq!(wrapped.as_primitive::<Int64Type>().value(0), 0);
        let single = one(Numbers::Float(vec![-0.5]), &DataType::Float32);
        assert_eq!(single.as_primitive::<Float32Type>().value(0), -0.5);
        assert!(numbers(&Numbers::Float(vec![1.0]), &[1], &DataType::Int64).is_err());
        assert!(counts(&[1], &DataType::Utf8).is_err());
    }

    #[test]
    fn nothing_counted_is_null() {
        for data_type in [
            DataType::Int32,
            DataType::Boolean,
            DataType::Decimal128(9, 2),
        ] {
            let some = numbers(&Numbers::Int(vec![7, 1, 0]), &[0, 2, 1], &data_type).unwrap();
            let present: Vec<bool> = (0..3).map(|row| some.is_valid(row)).collect();
            assert_eq!(present, [false, true, true]);
        }
    }

    #[test]
    fn bits_are_reinterpreted() {
        let days: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None]));
        let dates = reinterpret(&days, &DataType::Date32).unwrap();
        assert_eq!(dates.as_primitive::<Date32Type>().value(0), 3);
        assert!(dates.is_null(1));
        assert!(reinterpret(&days, &DataType::Int64).is_err());
        assert!(reinterpret(&days, &DataType::Utf8).is_err());
    }
}
