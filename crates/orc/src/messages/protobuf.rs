//! Protocol buffers, as far as ORC's messages need them: fields of a message, by number.
//!
//! ```text
//! field    varint: number << 3 | wire type
//! value    0: varint, 1: 8 bytes, 2: varint length and bytes, 5: 4 bytes
//! ```

use crate::decode::varint;
use crate::error::{Fault, corrupt};

/// The value of a field, as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// An unsigned integer, or an enum.
    pub(crate) fn unsigned(self) -> Result<u64, Fault> {
        match self {
            Self::Varint(value) => Ok(value),
            other => corrupt(format!("{} instead of an integer", other.name())),
        }
    }

    /// An unsigned integer of 32 bits.
    pub(crate) fn u32(self) -> Result<u32, Fault> {
        let value = self.unsigned()?;
        u32::try_from(value).or_else(|_| corrupt(format!("{value} instead of 32 bits")))
    }

    /// A signed integer, which is zigzagged.
    pub(crate) fn signed(self) -> Result<i64, Fault> {
        self.unsigned().map(varint::unzigzag)
    }

    pub(crate) fn double(self) -> Result<f64, Fault> {
        self.fixed64().map(f64::from_bits)
    }

    pub(crate) fn fixed64(self) -> Result<u64, Fault> {
        match self {
            Self::Fixed64(value) => Ok(value),
            other => corrupt(format!("{} instead of 8 bytes", other.name())),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => corrupt(format!("{} instead of bytes", other.name())),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, Fault> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).or_else(|_| corrupt("text that is not UTF-8"))
    }

    pub(crate) fn message(self) -> Result<Fields<'a>, Fault> {
        self.bytes().map(Fields::of)
    }

    /// Appends the integers of a repeated field, which are one per occurrence, or packed.
    pub(crate) fn append_unsigned(self, out: &mut Vec<u64>) -> Result<(), Fault> {
        let Self::Bytes(mut packed) = self else {
            out.push(self.unsigned()?);
            return Ok(());
        };
        while !packed.is_empty() {
            out.push(varint::read(&mut packed)?);
        }
        Ok(())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Varint(_) => "a varint",
            Self::Fixed64(_) => "8 bytes",
            Self::Fixed32(_) => "4 bytes",
            Self::Bytes(_) => "bytes",
        }
    }
}

/// The fields of a message, in order. Nothing follows an error.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Result<(u64, Value<'a>), Fault> {
        let key = varint::read(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Varint(varint::read(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = varint::read(&mut self.0)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let Some((bytes, rest)) = self.0.split_at_checked(length) else {
                    let left = self.0.len();
                    return corrupt(format!("a field of {length} bytes, {left} are left"));
                };
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return corrupt(format!("wire type {other}")),
        };
        Ok((key >> 3, value))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some((array, rest)) = self.0.split_first_chunk() else {
            return corrupt(format!("{} bytes instead of {N}", self.0.len()));
        };
        self.0 = rest;
        Ok(*array)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_wire_type() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: 150
            0x11, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 2: 1.5
            0x1a, 2, b'h', b'i', // 3: "hi"
            0x25, 1, 0, 0, 0, // 4: four bytes
            0x2a, 3, 1, 0x96, 0x01, // 5: packed 1, 150
        ];
        let fields: Vec<_> = Fields::of(&bytes).map(Result::unwrap).collect();
        assert_eq!(fields.len(), 5);
        assert_eq!(fields[0].1.unsigned(), Ok(150));
        assert_eq!(fields[0].1.signed(), Ok(75));
        assert_eq!(fields[1].1.double(), Ok(1.5));
        assert_eq!(fields[2].1.text(), Ok("hi"));
        assert_eq!(fields[3], (4, Value::Fixed32(1)));
        let mut packed = vec![];
        fields[4].1.append_unsigned(&mut packed).unwrap();
        fields[0].1.append_unsigned(&mut packed).unwrap();
        assert_eq!(packed, [1, 150, 150]);
        for value in [fields[1].1, fields[2].1, fields[3].1] {
            assert!(value.unsigned().is_err());
        }
        assert!(fields[0].1.bytes().is_err() && fields[0].1.double().is_err());
    }

    #[test]
    fn damage_ends_a_message() {
        for bytes in [&[0x0a, 9, 1][..], &[0x0b], &[0x08], &[0x11, 1], &[0x80; 12]] {
            let fields: Vec<_> = Fields::of(bytes).collect();
            assert_eq!(fields.len(), 1);
            assert!(fields[0].is_err());
        }
        assert!(Value::Bytes(&[0xff]).text().is_err());
    }
}
