//! Constants between DataFusion, the IR and Arrow.

use arrow::array::{Array, ArrayData, ArrayRef, make_array, new_null_array};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use vectile_gpu::ir::{Literal, Number, Type};

/// A constant for the IR; `None` if its type is none of the machine's.
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

/// The bytes of the widest type, Decimal256.
const WIDEST: usize = 32;

/// One row of a number as `data_type`: an integer wraps around, a float is rounded.
pub(crate) fn array(number: Option<Number>, data_type: &DataType) -> Result<ArrayRef> {
    let Some(number) = number else {
        return Ok(new_null_array(data_type, 1));
    };
    let (bits, negative) = match (number, data_type) {
        (Number::Int(value), _) => (value, value < 0),
        (Number::Float(value), DataType::Float32) => ((value as f32).to_bits().into(), false),
        (Number::Float(value), DataType::Float64) => (value.to_bits().into(), false),
        (Number::Float(_), other) => return internal_err!("a float for {other}"),
    };
    let width = match data_type {
        DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or_default(),
    };
    let mut bytes = [if negative { 0xff } else { 0 }; WIDEST];
    bytes[..size_of::<i128>()].copy_from_slice(&bits.to_le_bytes());
    let Some(bytes) = bytes.get(..width).filter(|bytes| !bytes.is_empty()) else {
        return internal_err!("a number for {data_type}");
    };
    let data = ArrayData::builder(data_type.clone())
        .len(1)
        .add_buffer(Buffer::from(bytes))
        .build()?;
    Ok(make_array(data))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::i256;

    use super::*;

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
            let array = array(Some(Number::Int(number)), &value.data_type()).unwrap();
            assert_eq!(ScalarValue::try_from_array(&array, 0).unwrap(), value);
        }
        assert!(literal(&ScalarValue::from("text")).is_none());
        let null = ScalarValue::Float64(None);
        assert_eq!(literal(&null), Some(Literal::Null(Type::F64)));
    }

    #[test]
    fn numbers_take_the_type_they_are_for() {
        let wide = array(Some(Number::Int(-5)), &DataType::Decimal256(76, 2)).unwrap();
        let wide = wide.as_primitive::<arrow::datatypes::Decimal256Type>();
        assert_eq!(wide.value(0), i256::from(-5));
        let wrapped = array(Some(Number::Int(1 << 64)), &DataType::Int64).unwrap();
        assert_eq!(
            ScalarValue::try_from_array(&wrapped, 0).unwrap(),
            ScalarValue::Int64(Some(0))
        );
        let single = array(Some(Number::Float(-0.5)), &DataType::Float32).unwrap();
        assert_eq!(
            ScalarValue::try_from_array(&single, 0).unwrap(),
            ScalarValue::Float32(Some(-0.5))
        );
        assert!(array(None, &DataType::Int32).unwrap().is_null(0));
        assert!(array(Some(Number::Float(1.0)), &DataType::Int64).is_err());
    }
}
